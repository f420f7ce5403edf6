"""Check that scores are log odds, and that the columns of a pool are replicas of the kind that was named."""

from __future__ import annotations

import math

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.histogram import ReplicaTable
from ..validation import warn_user
from .noise import ReplicaKind, identical_replicas

_MIN_ROWS = 1_000  # with fewer rows the columns are not judged
_EXTREME = 30.0  # log odds of a probability of 1e-13
_RARE = 2e-4  # share of rows; fewer are outliers, which the methods other than a single λ withstand
_LEAST_VARIANCE = 0.1  # share of the variance; extreme scores with less of it hardly change λ
_CHANCE = 3.0  # standard errors that the correlation of a column with the others exceeds
_LESS_RELATED = 0.5  # least mean correlation of a column with the others, relative to that among these
_ALIKE = 1.5  # ratio of standard deviations; with a larger one, maps of replicas by seed are off by 5% and more
_COMPARABLE = 5.0  # with a larger one, columns are not scores of one model
# The squared difference between replicas, relative to that from the served score, is 1 for replicas by seed and 1.2 to
# 2 for bootstraps. With few parameters it varies with the draw; then the differences follow the scores as well.
_OF_BOOTSTRAPS, _OF_SEEDS, _DRAW = 1.15, (0.7, 1.13), 0.3


def describe_extremes(table: ReplicaTable) -> str:
    """Describe served scores that are too large for log odds; empty if there are none but rare outliers."""
    share = _extreme_shares(table)[0]
    return f"{share:.2%} of the served scores lie beyond ±{_EXTREME:g}" if share > _RARE else ""


def check_log_odds(table: ReplicaTable, *, squares: bool = True) -> None:
    """Raise UncurseError if served scores are too large for log odds; warn of rare outliers.

    If the method follows from `squares` of scores, as λ does, rare outliers can change it, which is an error.
    """
    served, weight = table.served, table.weight
    extreme = np.abs(served) > _EXTREME
    if not extreme.any():
        return
    text = describe_extremes(table) or f"a served score is {served[np.argmax(np.abs(served))]:.4g}"
    deviations = weight * np.square(served - np.average(served, weights=weight))
    decisive = squares and deviations[extreme].sum() > _LEAST_VARIANCE * deviations.sum()
    text += f", too far out for log odds: pass labeled rows to Auto, or clip them to ±{_EXTREME:g} here and in serving"
    if decisive or describe_extremes(table):
        raise UncurseError(text)
    warn_user(text)


def check_replicas(kind: ReplicaKind, pool: Evidence, table: ReplicaTable | None) -> None:
    """Raise UncurseError if a column is no replica of the others; warn if they look like replicas of another kind.

    Two columns do not show their kind, and neither do snapshots and the members of an ensemble. Rare outliers, which
    `table` shows, hide how the columns are related.
    """
    names, covariance = pool.spec.scores, pool.moments.covariance
    variance = np.diagonal(covariance)
    if pool.moments.effective_rows < _MIN_ROWS or len(names) < 2 or not variance[0] > 0:
        return
    if table is not None and any(0 < share <= _RARE for share in _extreme_shares(table)):
        return
    gaps = _gaps(covariance)
    same = [identical_replicas(gap, float(variance[0])) for gap in gaps.values()]
    if all(same):
        return
    if any(same):
        first, second = (names[i] for i in list(gaps)[same.index(True)])
        raise UncurseError(f"{second} repeats the scores of {first}; pass the scores of another model, or leave it out")
    ratios = np.sqrt(variance / variance[0])
    worst = int(np.argmax(np.maximum(ratios, 1 / np.maximum(ratios, 1e-300))))
    varies = f"the scores of {names[worst]} vary {ratios[worst]:.2g} times as much as those of {names[0]}"
    if not 1 / _COMPARABLE <= ratios[worst] <= _COMPARABLE:
        raise UncurseError(f"{varies}, so they are no replicas; pass scores on one scale, without outliers")
    _check_relations(covariance / np.sqrt(np.outer(variance, variance)), pool.moments.effective_rows, names)
    if kind.name == "seeds" and not 1 / _ALIKE <= ratios[worst] <= _ALIKE:
        warn_user(
            f"{varies}, so models differ by more than the seed, and predictions can be off by 5% to 20%: train them "
            "alike, and long enough"
        )
    if len(names) > 2:
        _check_kind(kind, covariance)


def _check_relations(correlation: Array, rows: float, names: tuple[str, ...]) -> None:
    """Raise UncurseError if a column is hardly related to the others, as after a shuffle."""
    others = len(names) - 1
    related = (correlation.sum(axis=0) - 1) / others
    odd = int(np.argmin(related)) if others > 1 else 1
    least = _CHANCE / math.sqrt(rows)
    if others > 1:
        among = np.delete(np.delete(correlation, odd, 0), odd, 1)
        least = max(least, _LESS_RELATED * (among.sum() - others) / (others * (others - 1)))
    if related[odd] < least:
        raise UncurseError(
            f"the scores of {names[odd]} are hardly related to the others (correlation {related[odd]:.2f}); pass "
            "scores of the same rows, in the same order, of models that were trained to the end"
        )


def _check_kind(kind: ReplicaKind, covariance: Array) -> None:
    """Warn if replicas by seed look like bootstraps, or bootstraps like replicas by seed."""
    # Leave out what follows the mean score: a difference in slope is one number, and says little of the rows.
    mean = covariance.mean(axis=0)
    gaps = _gaps(covariance - np.outer(mean, mean) / mean.mean())
    from_served = np.mean([gap for (i, _), gap in gaps.items() if i == 0])
    between = np.mean([gap for (i, _), gap in gaps.items() if i > 0])
    in_all = np.mean([gap for (i, _), gap in _gaps(covariance).items() if i > 0])
    ratio, draw = float(between / from_served), _DRAW * max(1 - float(between / in_all), 0.0) ** 0.5
    text = f"the other columns differ from each other {ratio:.2f} times as much as from the served one (mean square)"
    if kind.name == "seeds" and ratio > _OF_BOOTSTRAPS * math.exp(draw):
        warn_user(
            f"{text}, as bootstraps do (1.2 to 2) and replicas by seed do not (1): if they were trained on bootstrap "
            "samples, pass replicas='bootstrap'"
        )
    if kind.name == "bootstrap" and _OF_SEEDS[0] < ratio < _OF_SEEDS[1]:
        warn_user(
            f"{text}, as replicas by seed do (1) and bootstraps do not (1.2 to 2): if only their seeds differ, pass "
            "replicas='seeds', or train them on bootstrap samples"
        )


def _gaps(covariance: Array) -> dict[tuple[int, int], float]:
    """Return the variance of the difference of each pair of columns."""
    return {
        (i, j): float(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])
        for j in range(len(covariance))
        for i in range(j)
    }


def _extreme_shares(table: ReplicaTable) -> tuple[float, float]:
    """Return the shares of rows whose served score, and whose mean of the other columns, is too large for log odds."""
    w = table.weight / table.weight.sum()
    served, others = (float(w @ (np.abs(x) > _EXTREME)) for x in (table.served, table.served + table.gap))
    return served, others
