"""Measure many networks, and make the paper's tables.

The networks differ only by seed. For each S they form groups of S. Of a pair both networks are served, each with the
other as its replica; of a larger group the first. All maps are monotone, so the rows that a served network selects are
found once, and every calibrator, variant and number of bins is evaluated on them.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.calibration import calibrate
from uncurse.errors import UncurseError
from uncurse.links import logistic
from uncurse.metrics.selection import count_of_share

from ..processes import Progress, in_processes
from ..theory import Gaussianity, gaussianity
from .claims import judge
from .served import LAMBDA_FLOOR, REPLICAS, Figures, Lambdas, Scored, groups_of, measure_network, slope_of
from .tables import REPLICA_METHODS, ClickTables, Key, Lambda, cells_of

ALPHAS = (*(round(0.01 * i, 2) for i in range(2, 11)), 1.0)
BINS = (30, 40, 50, 60, 70)


@dataclass(frozen=True)
class Measured:
    """Figures of one world or log, for `tabulate`."""

    models: int
    alphas: tuple[float, ...]
    figures: dict[int, Figures]  # by served network
    lambdas: list[Lambdas]
    sizes: dict[str, float]
    shape: Gaussianity  # of the served logit on the pool
    networks: dict[str, Any]


def measure(
    scored: Scored,
    *,
    alphas: Sequence[float] = ALPHAS,
    bins: Sequence[int] = BINS,
    replicas: Sequence[int] = REPLICAS,
    methods: Sequence[str] = REPLICA_METHODS,
    processes: int | None = None,
    progress: Callable[[int], Progress] = lambda total: iter,
) -> Measured:
    """Measure every calibrator, alone and with VAD, and our methods, for every served network.

    `alphas` are shares of the test rows to select by the served score; one without clicks is left out with a warning.
    `bins` are numbers of bins for ECE and MCE: 50 in all cells, the others for pairs. `replicas` are the sizes S of
    groups; those larger than the number of networks are left out. `methods` are compared by kind of replica.
    """
    served = groups_of(scored.models, replicas)
    kept = _with_positives(scored, served, alphas)
    tasks = [(scored, model, sizes, kept, list(bins), methods) for model, sizes in served.items()]
    figures, lambdas, failed, slopes = zip(*in_processes(measure_network, tasks, processes, progress), strict=True)
    for name, reason in {name: reason for each in failed for name, reason in each.items()}.items():
        count = sum(name in each for each in failed)
        warnings.warn(f"{name} is left out for {count} of {len(failed)} networks: {reason}", UserWarning, stacklevel=2)
    found = [value for each in lambdas for pair in each.values() for value in pair]
    networks = _describe_networks(scored, np.array(slopes))
    if LAMBDA_FLOOR in found:
        low = f"{found.count(LAMBDA_FLOOR)} of {len(found)}"
        networks["λ not above zero"] = f"{low}, set to {LAMBDA_FLOOR}"
        warnings.warn(
            f"{low} λ were not above {LAMBDA_FLOOR} and are set to it: the networks differ by more than their scores "
            "vary; train on more rows",
            UserWarning,
            stacklevel=2,
        )
    sizes: dict[str, float] = {
        "labeled": len(scored.labeled),
        "labeled_rate": float(np.mean(scored.labeled_y)),
        "pool": len(scored.pool),
        "test": len(scored.test),
        "test_rate": float(np.mean(scored.test_y)),
        **({} if scored.truth is None else {"test_true_rate": float(np.mean(scored.truth))}),
    }
    by_network, shape = dict(zip(served, figures, strict=True)), gaussianity(scored.pool[:, 0])
    return Measured(scored.models, kept, by_network, list(lambdas), sizes, shape, networks)


def tabulate(dataset: str, worlds: Sequence[Measured], about: dict[str, Any] | None = None) -> ClickTables:
    """Make the tables of worlds with as many networks each; `about` is plain data that is kept in the result."""
    alphas = tuple(alpha for alpha in worlds[0].alphas if all(alpha in each.alphas for each in worlds))
    samples: dict[Key, dict[tuple[int, int], Array]] = defaultdict(dict)
    lambdas: dict[tuple[int, str, str], list[tuple[float, float]]] = defaultdict(list)
    for w, each in enumerate(worlds):
        kept = [each.alphas.index(alpha) for alpha in alphas]
        for model, figures in each.figures.items():
            for key, values in figures.items():
                samples[key][w, model] = values[kept]
        for place, pair in (item for made in each.lambdas for item in made.items()):
            lambdas[place].append(pair)
    return ClickTables(
        dataset,
        worlds[0].models,
        len(worlds),
        worlds[0].sizes,
        alphas,
        tuple(cells_of(dataset, alphas, samples)),
        tuple(judge(dataset, alphas, samples)),
        tuple(_lambda(*place, np.array(pairs)) for place, pairs in sorted(lambdas.items())),
        worlds[0].shape,
        tuple(each.networks for each in worlds),
        dict(about or {}),
    )


def _with_positives(scored: Scored, served: Iterable[int], shares: Sequence[float]) -> tuple[float, ...]:
    """Return the shares whose selections all hold a click; of few test rows the smallest may not."""
    rate, rows = float(np.mean(scored.test_y)), len(scored.test)

    def holds_clicks(alpha: float) -> bool:
        count = count_of_share(alpha, rows)
        tops = (np.argpartition(-scored.test[:, model], count - 1)[:count] for model in served)
        return count * rate > 100 or all(scored.test_y[top].any() for top in tops)

    kept = tuple(alpha for alpha in shares if alpha * rows >= 1 and holds_clicks(alpha))
    if not kept:
        raise UncurseError(f"of {rows:,} test rows no selection holds a click for every model; take more rows")
    left_out = ", ".join(f"{100 * alpha:g}%" for alpha in shares if alpha not in kept)
    if left_out:
        warnings.warn(f"left out: the top {left_out} of {rows:,} test rows holds no click", UserWarning, stacklevel=3)
    return kept


def _describe_networks(scored: Scored, slopes: Array) -> dict[str, Any]:
    """Return the slopes of Platt scaling, above 1 for under-fitted networks, and the spread of their levels."""
    try:
        slope = slope_of(calibrate("platt", scored.labeled.mean(axis=1, dtype=np.float64), scored.labeled_y))
    except UncurseError:
        slope = np.nan
    known = np.isfinite(slopes).any()
    clicks = float(np.sum(scored.labeled_y))
    levels = np.array([float(logistic(column).sum(dtype=np.float64)) / clicks - 1 for column in scored.labeled.T])
    return {
        "held-out log loss": float(np.mean(log_losses(scored.labeled, scored.labeled_y))),
        "Platt slope of the mean": float(slope),
        "Platt slope": float(np.nanmean(slopes)) if known else np.nan,
        "Platt slope sd": float(np.nanstd(slopes)) if known else np.nan,
        "level": float(levels.mean()),
        "level sd": float(levels.std(ddof=1)),
    }


def log_losses(logits: NDArray[Any], labels: NDArray[Any]) -> Array:
    """Return the mean log loss of each column of logits."""
    return np.array(
        [np.logaddexp(0.0, np.where(labels, -column, column)).mean(dtype=np.float64) for column in logits.T]
    )


def _lambda(s: int, kind: str, link: str, pairs: Array) -> Lambda:
    columns = np.column_stack([pairs, pairs[:, 0] / pairs[:, 1]])
    sd = columns.std(axis=0, ddof=1) if len(pairs) > 1 else np.full(3, np.nan)
    return Lambda(s, kind, link, len(pairs), *np.column_stack([columns.mean(axis=0), sd]).ravel().tolist())
