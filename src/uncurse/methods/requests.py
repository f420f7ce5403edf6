"""Fit for the best of each request: how lucky winners are depends on whom they beat.

A winner among weak competitors owes more to luck than a winner among strong ones at the same score, so the rows of a
pool do not show the luck of the winners. A second look at the winners does: the score of another model that did not
take part in the selection. The mean gap between the score that selected and such a look, as a smooth curve, is the
luck; what varies about the curve beyond the noise of the look is the spread of the true scores.

- Replicas by seed and snapshots: the served score selects, and the mean of the others is the look.
- Bootstraps: each bootstrap selects in turn, and the mean of the others is the look; the served score is, if there is
  one bootstrap. Bootstraps vary more within requests than the served score does. Gaps per standard deviation are
  alike, so the gap of the served score is larger by the ratio of the standard deviations.
- An ensemble: the mean of all members but one selects, and the one left out is the look. The gap is scaled to the
  noise of the mean of all members.

Labels give the rate at a served score among labeled rows. If the served score did not select these rows, looks at them
show how lucky they are. The log odds of a winner are then those of labeled rows with its score, less what it is luckier
than they are. So a wrong noise variance matters only as far as winners and labeled rows differ. Labels of winners need
no such step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..calibration.spline import Basis, SmoothCurve, monotone_curve
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import best_of_each, converted, from_arrays
from ..evidence.histogram import ReplicaTable
from ..links import logistic, logit
from ..maps import Affine, compose
from ..validation import check_count, check_length, check_numbers, encode_names, warn_user
from .fitted import Solution
from .label_free import UNDER_FIT, Cautious
from .noise import NO_NOISE, ReplicaKind, check_replicas, replica_kind
from .records import FitRecord
from .remaining_error import Estimate, TopShare, top_shares
from .replica_calibration import fit_labels, fit_scaling

_KNOTS = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])  # quantiles of the selecting score at the knots
_BENDS = np.array([0.01, 0.03, 0.1, 0.3, 1.0])  # standard deviations of the bends of a gap curve, in logits
_MIN_WINNERS = 50
_SLOPE_ERROR = 0.3  # prior standard deviation of what labels of winners change of the slope
_IDENTICAL = 1e-9
# Winners and labeled rows of the same true score have other features, so models err differently on them: the typical
# error, as a share of the move between them, of LightGBM on simulated logs.
_BY_FEATURES = 0.3
_ENDS = (0.0005, 0.9995)  # quantiles of the winners' scores between which the map is a curve
_GRID = np.linspace(*_ENDS, 64)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True)
class Requests:
    """Rows of a pool, and what selects the best `k` of each request: the score, or value × probability.

    Without `codes` all rows are selected.
    """

    codes: NDArray[np.intp] | None = None
    k: int = 1
    value: Array | None = None

    @classmethod
    def of(cls, request: ArrayLike, rows: int, k: int, value: ArrayLike | None) -> Requests:
        """Check the arrays of `rows` rows."""
        if value is not None:
            value = check_numbers(value, "value").astype(np.float64)
            check_length(value, rows, "value")
            if not (value.min() >= 0 and value.max() < np.inf):
                raise UncurseError("a value is negative or not finite; pass bids or other values of 0 or more")
        codes, k = encode_names(request, rows, "request")[1], check_count(k, "top_k")
        if np.bincount(codes).max() <= k:
            raise UncurseError(f"no request has more than {k} rows; pass all candidates of the requests")
        return cls(codes, k, value)

    def best(self, score: Array) -> NDArray[np.bool_]:
        """Return which rows a logit selects."""
        if self.codes is None:
            return np.ones(len(score), bool)
        if self.value is not None:
            with np.errstate(divide="ignore"):
                score = np.maximum(np.log(self.value) + np.log(logistic(score)), -1e12)
        return best_of_each(score, self.codes, self.k)

    def variance(self, score: Array) -> float:
        """Return the variance within requests."""
        if self.codes is None:
            return float(score.var())
        size = np.bincount(self.codes)
        away = score - (np.bincount(self.codes, score) / np.maximum(size, 1))[self.codes]
        freedom = len(score) - np.count_nonzero(size)
        return float(away @ away) / freedom


class _Looks(NamedTuple):
    """Second looks at selected rows."""

    pairs: list[tuple[Array, Array]]  # scores that selected, and how far they exceed the look: once per look
    noise: float  # variance of a look
    scale: float = 1.0  # by how much the gap of the served score is larger
    spread: float = 1.0  # by how much the variance of the true scores about it is


def _looks(logits: Array, kind: ReplicaKind, requests: Requests) -> _Looks:
    """Return the second looks that this kind of replica gives."""
    best, variance, table = requests.best, requests.variance, kind.table(ReplicaTable.of_rows(logits))
    served, others, size = table.served, table.served + table.gap, logits.shape[1]
    if kind.exchangeable:  # the others look
        won = best(served)
        noise = float(table.spread[won].mean()) if size > 2 else float(np.var(table.gap)) / 2
        return _Looks([(served[won], -table.gap[won])], noise / (size - 1))
    pairs, total = [], variance(served)
    if kind.served_is_a_column:  # each bootstrap selects
        between, count = logits[:, 1:], size - 1
        outwards = max(float(np.cov(others, served)[0, 1]) / float(served.var()) - 1, 0.0)
        for column in between.T:
            won, look = best(column), served
            if count > 1:  # if the bootstraps rise more steeply than the served score, so does it than the truth
                look = (count * others - column) / (count - 1) - outwards * (served - served.mean())
            pairs.append((column[won], column[won] - look[won]))
        noise = float(table.spread.mean()) / (count - 1) if count > 1 else 0.0
        wider = float(np.mean([variance(column) for column in between.T])) / total
        differences = variance(between[:, 0] - between[:, 1]) / 2 if count > 1 else variance(table.gap)
        return _Looks(pairs, noise, float(np.sqrt(wider)), (1 - min(differences / total, 0.9)) * wider)
    noise, variances = float(table.spread.mean()), []
    for column in logits.T:  # each member looks
        rest = (size * served - column) / (size - 1)
        won = best(rest)
        variances.append(variance(rest))
        pairs.append((rest[won], rest[won] - column[won]))
    less, (own, other) = float(np.mean(variances)), (noise / size, noise / (size - 1))
    scale = own / np.sqrt(total) / (other / np.sqrt(less))
    spread = own * (1 - min(own / total, 0.9)) / (other * (1 - min(other / less, 0.9)))
    return _Looks(pairs, noise, float(scale), spread)


def _served(logits: Array, kind: ReplicaKind) -> Array:
    return logits[:, 0] if kind.served_is_a_column else np.asarray(logits.mean(axis=1))


@dataclass(frozen=True)
class _Luck:
    """Mean excess of the served score of selected rows over their true score, and the variance of the latter."""

    center: float  # mean and standard deviation of the served score of the rows
    spread: float
    basis: Basis
    coefficients: Array
    covariance: Array
    variance: float

    def features(self, served: Array) -> Array:
        """Return the basis functions at served scores."""
        return self.basis((served - self.center) / self.spread)

    def true_score(self, served: Array) -> Array:
        """Return the mean true score."""
        return np.asarray(served - self.coefficients @ self.features(served))

    def log_odds(self, served: Array) -> Array:
        """Return the log odds of the mean rate at served scores."""
        true, rate = self.true_score(served), np.zeros(len(served))
        for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum(), strict=True):
            rate += weight * logistic(true + np.sqrt(self.variance) * node)
        return np.asarray(logit(np.clip(rate, 1e-300, 1 - 1e-16)), np.float64)


def _luck(logits: Array, kind: ReplicaKind, requests: Requests) -> _Luck:
    """Fit the gap of the winners of requests, or of all rows, to a second look.

    It is a natural spline of the score, in standard deviations, whose bends have a normal prior of the most likely
    width.
    """
    served = _served(logits, kind)
    served = served[requests.best(served)]
    looks = _looks(logits, kind, requests)
    z = np.concatenate([(score - score.mean()) / (float(score.std()) or 1.0) for score, _ in looks.pairs])
    gap = np.concatenate([gap for _, gap in looks.pairs])
    knots = np.unique(np.quantile(z, _KNOTS))
    if len(z) < _MIN_WINNERS or len(knots) < len(_KNOTS):
        raise UncurseError(f"too few different winners of requests: {len(z)}; pass {_MIN_WINNERS} requests or more")
    basis = Basis(knots)
    features = basis(z)
    gram, moment = features @ features.T, features @ gap
    line = np.linalg.lstsq(features[:2].T, gap, rcond=None)[0]
    # Looks at the same winner, and the k best of a request, are alike.
    noise = float(np.mean(np.square(gap - line @ features[:2]))) * len(looks.pairs) * requests.k

    def fit(width: float) -> tuple[float, Array, Array]:
        prior = np.append([0.0, 0.0], np.full(len(knots) - 2, width**-2))
        precision = gram / noise + np.diag(prior)
        covariance = np.linalg.inv(precision)
        coefficients = covariance @ moment / noise
        evidence = (
            coefficients @ moment / noise - np.linalg.slogdet(precision)[1] - 2 * (len(knots) - 2) * np.log(width)
        )
        return float(evidence), coefficients, np.asarray(covariance, np.float64)

    _, coefficients, covariance = max((fit(width) for width in _BENDS), key=lambda each: each[0])
    residual = float(np.mean(np.square(gap - coefficients @ features)))
    variance, scale = looks.spread * max(residual - looks.noise, 0.0), looks.scale
    return _Luck(
        float(served.mean()), float(served.std()), basis, scale * coefficients, scale**2 * covariance, variance
    )


@dataclass(frozen=True)
class WinnersEstimate(Estimate):
    """Estimate of the true rates among winners of requests, with its errors.

    `labels` gives the log odds of labeled rows, and `labeled` their luck. If they are winners it is the difference of
    the log odds from those that the replicas show, and there is no `labeled`.
    """

    table: ReplicaTable
    kind: ReplicaKind
    luck: _Luck
    labels: SmoothCurve | None = None
    labeled: _Luck | None = None
    slope: float = 1.0  # of the log odds of labeled rows on those that the replicas show, at most 1

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        found = self.luck.log_odds(served)
        if self.labels is None:
            return found
        if self.labeled is None:
            return found + self.labels(np.clip(served, *self.labels.ends))
        return self.labels(served) + self.slope * (found - self.labeled.log_odds(served))

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of the mean estimate on the top share."""
        p = self.rates[top.cells]
        error = top.sampling_error(p, p, self.luck.variance * np.square(p * (1 - p)))
        if self.labels is not None:
            served = top.served if self.labeled else np.clip(top.served, *self.labels.ends)
            error += top.squared_error(p, self.labels.features(served), self.labels.covariance)
        if self.labels is None or self.labeled is not None:
            error += top.squared_error(p, self.luck.features(top.served), self.luck.covariance)
            before = top.served if self.labeled is None else self.labeled.true_score(top.served)
            change = top.log_mean(logistic(before)) - top.log_mean(logistic(self.luck.true_score(top.served)))
            by_features = 0.0 if self.labeled is None else _BY_FEATURES
            error += ((self.kind.correction_error / 2) ** 2 + by_features**2) * change**2
        return float(np.sqrt(error))

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return the relative error of a level that all scores share, and its freedom."""
        if self.labels is not None and self.labeled is None:
            return 0.0, 1
        if self.labels is None and self.kind.no_interval:
            return None
        variance, freedom = self.kind.level_variance(self.table.levels)
        return top.level_error(self.rates[top.cells], variance), freedom


def fit_requests(
    scores: Float,
    pool: Evidence,
    requests: Requests,
    labeled: Evidence | None,
    labeled_scores: Float | None = None,
    *,
    replicas: str,
    labels_from: str | None,
) -> Solution:
    """Fit to the winners of requests; `scores` are the rows of the pool (n, S), `labeled_scores` those with labels."""
    kind, spec = replica_kind(replicas), pool.spec
    rows = None if labeled is None else kind.table_of(labeled, "labeled rows")
    scaling = (1.0, 0.0) if rows is None else fit_scaling(kind, rows)

    def logits_of(scores: Float) -> Array:
        return np.asarray(scaling[0] * converted(scores.T.astype(np.float64), spec)[1].T + scaling[1])

    logits = logits_of(scores)
    levels, means = kind.table(ReplicaTable.of_rows(logits)).levels, logits.mean(axis=0)
    shift = means - (means[0] if kind.served_is_a_column else means.mean())
    logits = logits - shift
    served = _served(logits, kind)
    won = requests.best(served)
    record = FitRecord.of(
        "winners",
        from_arrays(scores[won], spec=spec),
        labeled,
        replicas=kind.name,
        labels_from=labels_from,
        top_k=requests.k,
        no_interval="" if labeled else kind.no_interval,
    )
    if np.ptp(logits, axis=1).max() <= _IDENTICAL * np.ptp(served) and labeled is None:
        warn_user(f"{NO_NOISE}; was the seed changed?")
        record = replace(record, method="nothing", reason=NO_NOISE, no_interval=NO_NOISE)
        return Solution(Affine(1.0, 0.0), record)
    check_replicas(kind, pool, None)
    luck = _luck(logits, kind, requests)
    table = replace(kind.table(ReplicaTable.of_rows(logits[won])), levels=levels)
    estimate = WinnersEstimate(table, kind, luck)
    mean = float(np.mean(served[won] - luck.true_score(served[won])))
    reason = f"the log odds of the winners are {mean:.2g} too high by chance"
    if rows is not None:
        rows = rows.rescaled(*scaling)
        if labels_from == "winners":
            reason += "; labels of winners correct what remains"
            labels = fit_labels(rows, rows.served, (0.0, _SLOPE_ERROR), luck.log_odds)
            estimate = replace(estimate, labels=labels)
        else:
            if labeled_scores is None:
                raise UncurseError("with request, labeled rows must be rows: pass scores and labels, not evidence")
            reason += "; labels give the rate at a score"
            of_labeled, labels = (
                _luck(logits_of(labeled_scores) - shift, kind, Requests()),
                fit_labels(rows, rows.served),
            )
            slope = np.polyfit(of_labeled.log_odds(served[won]), labels(served[won]), 1)[0]
            estimate = replace(
                estimate,
                labels=labels,
                labeled=of_labeled,
                slope=float(np.clip(slope, 0.0, 1.0)),
                table=replace(table, levels=levels - rows.levels),
            )
    final: Estimate = estimate
    if rows is None:
        all_rows = kind.table(ReplicaTable.of_rows(logits))
        final = cautious = Cautious.of(estimate, kind.under_fit(all_rows), top_shares(table, [1.0]))
        if cautious.share < 1:
            reason += f"; {100 * cautious.share:.0f}% of it is taken off, because {UNDER_FIT}"
    low, high = np.quantile(served[won], _ENDS)
    x = np.unique(np.concatenate([np.quantile(served[won], _GRID), np.linspace(low, high, 64)]))
    curve = monotone_curve(x, final.log_odds(x))
    score_map = curve if scaling == (1.0, 0.0) else compose(Affine(*scaling), curve, scale="logit")
    return Solution(score_map, replace(record, reason=reason), final)
