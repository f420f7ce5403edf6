"""Fit for the best of each request: how lucky winners are depends on whom they beat.

A winner among weak competitors owes more to luck than a winner among strong ones at the same score, so the rows of a
pool do not show the luck of the winners. A second look at the winners does: the score of another model that did not
take part in the selection. The mean gap between the score that selected and such a look, as a smooth curve, is the
luck; what varies about the curve beyond the noise of the look is the spread of the true scores.

- Replicas by seed and snapshots: the served score selects, and the mean of the others is the look.
- Bootstraps: each bootstrap selects in turn, and the served score is the truth that it was drawn around. The noise of
  the served score adds to the spread of the true scores, so its own gap is larger by √(1 + V / W), where W is the
  variance of the served score within requests.
- An ensemble: the mean of all members but one selects, and the one left out is the look. The gap is scaled to the
  noise of the mean of all members.

With labels that the served score did not select, the curve of the labels over the denoised score converts true scores
to rates. With labels of winners, the label-free map is corrected by a curve over the served score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..calibration.spline import Basis, SmoothCurve, monotone_curve
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec
from ..evidence.from_arrays import converted, from_arrays
from ..evidence.histogram import ReplicaTable
from ..links import logistic, logit
from ..maps import Affine
from ..metrics.selection import top_k
from ..validation import check_count, check_length, check_numbers, encode_names, warn_user
from .fitted import Solution, on_scores
from .noise import ReplicaKind, replica_kind
from .records import DataRecord, FitRecord
from .remaining_error import TopShare
from .replica_calibration import fit_labels, fit_scaling
from .truth import TruthModel

_KNOTS = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])  # quantiles of the selecting score at the knots
_BENDS = np.array([0.01, 0.03, 0.1, 0.3, 1.0])  # standard deviations of the bends of a gap curve, in logits
_MIN_WINNERS = 50
_SLOPE_ERROR = 0.3  # prior standard deviation of what labels of winners change of the slope
_LEAST_RELIABILITY = 0.05  # of the denoised scores of labeled rows
_IDENTICAL = 1e-9
_ENDS = (0.0005, 0.9995)  # quantiles of the winners' scores between which the map is a curve
_GRID = np.linspace(*_ENDS, 64)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True)
class Requests:
    """Rows of a pool, and what selects the best `k` of each request: the score, or value × probability."""

    codes: NDArray[np.intp]
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
        return cls(encode_names(request, rows, "request")[1], check_count(k, "top_k"), value)

    def best(self, score: Array) -> NDArray[np.bool_]:
        """Return which rows a logit selects."""
        if self.value is not None:
            with np.errstate(divide="ignore"):
                score = np.maximum(np.log(self.value) + np.log(logistic(score)), -1e12)
        return top_k(score, self.codes, self.k)

    def variance(self, score: Array) -> float:
        """Return the variance within requests."""
        size = np.bincount(self.codes)
        away = score - (np.bincount(self.codes, score) / np.maximum(size, 1))[self.codes]
        freedom = len(score) - np.count_nonzero(size)
        if not freedom:
            raise UncurseError("every request has one row; pass all candidates of the requests, not only their winners")
        return float(away @ away) / freedom


@dataclass(frozen=True)
class _Looks:
    """Scores that selected winners, in standard deviations among them, and how far they exceed a second look.

    `noise` is the variance of the look. The gap of the served score is larger by `scale`, and the variance of the true
    scores about it by `spread`. `shared` is the number of times that each winner is looked at.
    """

    position: Array
    gap: Array
    noise: float
    scale: float = 1.0
    spread: float = 1.0
    shared: int = 1


def _looks(logits: Array, requests: Requests, kind: ReplicaKind, served: Array) -> _Looks:
    """Return the looks at winners that this kind of replica gives."""
    size = logits.shape[1]
    if kind.exchangeable:
        won = requests.best(served)
        center, slope = float(served.mean()), kind.slope(np.cov(logits.T))
        look = center + (logits[:, 1:] - center) / slope
        others = look[won]
        noise = float(others.var(axis=1, ddof=1).mean()) if size > 2 else float(np.var(look[:, 0] - logits[:, 0])) / 2
        return _Looks(_standard(served[won]), served[won] - others.mean(axis=1), noise / (size - 1))
    pairs, total = [], requests.variance(served)
    if kind.served_is_a_column:  # each bootstrap selects; the served score is the truth that it was drawn around
        between = logits[:, 1:]
        noise = float(between.var(axis=1, ddof=1).mean()) if size > 2 else float(np.var(between[:, 0] - served))
        for column in between.T:
            won = requests.best(column)
            pairs.append((_standard(column[won]), column[won] - served[won]))
        ratio = min(noise / total, 0.9)
        scale, spread, of_look = np.sqrt(1 + ratio), (1 - ratio) * (1 + ratio), 0.0
    else:
        of_look = float(logits.var(axis=1, ddof=1).mean())
        variances = []
        for column in logits.T:
            rest = (size * served - column) / (size - 1)
            won = requests.best(rest)
            variances.append(requests.variance(rest))
            pairs.append((_standard(rest[won]), rest[won] - column[won]))
        less, (own, other) = float(np.mean(variances)), (of_look / size, of_look / (size - 1))
        scale = own / np.sqrt(total) / (other / np.sqrt(less))
        spread = own * (1 - min(own / total, 0.9)) / (other * (1 - min(other / less, 0.9)))
    position, gap = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return _Looks(position, gap, of_look, float(scale), float(spread), len(pairs))


def _standard(score: Array) -> Array:
    deviation = float(score.std())
    return np.asarray((score - score.mean()) / (deviation or 1.0))


@dataclass(frozen=True)
class _Luck:
    """Mean excess of the served score of winners over their true score, and the variance of the latter."""

    center: float  # mean and standard deviation of the served score of the winners
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


def _luck(looks: _Looks, won: Array, k: int) -> _Luck:
    """Fit the gap as a natural spline whose bends have a normal prior of the most likely width."""
    z, gap = looks.position, looks.gap
    knots = np.unique(np.quantile(z, _KNOTS))
    if len(z) < _MIN_WINNERS or len(knots) < len(_KNOTS):
        raise UncurseError(f"the requests have {len(z)} winners that differ; pass {_MIN_WINNERS} or more")
    basis = Basis(knots)
    features = basis(z)
    gram, moment = features @ features.T, features @ gap
    line = np.linalg.lstsq(features[:2].T, gap, rcond=None)[0]
    noise = float(np.mean(np.square(gap - line @ features[:2]))) * looks.shared * k  # the k best of a request are alike

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
    variance = looks.spread * max(residual - looks.noise, 0.0)
    scale = looks.scale
    return _Luck(float(won.mean()), float(won.std()), basis, scale * coefficients, scale**2 * covariance, variance)


@dataclass(frozen=True)
class WinnersEstimate:
    """Estimate of the true rates among winners of requests, with its errors.

    `labels` is the curve of the labels over the true score, of which `known` is the variance that the denoised scores
    of the labeled rows leave open; `direct` is a correction by labels of winners.
    """

    table: ReplicaTable
    kind: ReplicaKind
    luck: _Luck
    labels: SmoothCurve | None = None
    known: float = 0.0
    direct: SmoothCurve | None = None
    label_levels: Array | None = None

    def before(self, served: Array) -> Array:
        """Return the log odds before a correction by labels of winners."""
        mean, spread = self.luck.true_score(served), np.sqrt(max(self.luck.variance - self.known, 0.0))
        rate = np.zeros_like(mean)
        for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum(), strict=True):
            true = mean + spread * node
            rate += weight * logistic(true if self.labels is None else self.labels(true))
        return np.asarray(logit(np.clip(rate, 1e-300, 1 - 1e-16)), np.float64)

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        found = self.before(served)
        return found if self.direct is None else found + self.direct(np.clip(served, *self.direct.ends))

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of the mean estimate on the top share."""
        p = np.asarray(logistic(self.log_odds(top.served)), np.float64)
        sampling = top.sampling_error(p, p, self.luck.variance * np.square(p * (1 - p)))
        if self.direct is not None:
            features = self.direct.features(np.clip(top.served, *self.direct.ends))
            return float(np.sqrt(top.squared_error(p, features, self.direct.covariance) + sampling))
        by_luck = top.squared_error(p, self.luck.features(top.served), self.luck.covariance)
        by_labels = 0.0
        if self.labels is not None:
            features = self.labels.features(self.luck.true_score(top.served))
            by_labels = top.squared_error(p, features, self.labels.covariance)
        change = top.log_mean(top.served) - top.log_mean(self.luck.true_score(top.served))
        return float(np.sqrt(by_luck + by_labels + sampling + (self.kind.correction_error / 2 * change) ** 2))

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return the relative error of a level that all scores share, and its freedom."""
        if self.direct is not None:
            return 0.0, 1
        if self.labels is None and self.kind.no_interval:
            return None
        levels = self.table.levels if self.label_levels is None else self.table.levels - self.label_levels
        variance, freedom = self.kind.level_variance(levels)
        return top.level_error(self.log_odds(top.served), variance), freedom


def fit_requests(
    scores: Float,
    spec: LogSpec,
    requests: Requests,
    labeled: Evidence | None,
    *,
    replicas: str,
    labels_from: str | None,
) -> Solution:
    """Fit to the winners of requests; `scores` are the rows of the pool (n, S)."""
    kind = replica_kind(replicas)
    rows = None if labeled is None else kind.table_of(labeled, "labeled rows")
    scaling = (1.0, 0.0) if rows is None else fit_scaling(TruthModel(rows, kind.name))
    logits = scaling[0] * converted(scores.astype(np.float64), spec)[1] + scaling[1]
    levels = kind.table(ReplicaTable.of_rows(logits)).levels
    means = logits.mean(axis=0)
    logits = logits - (means - (means[0] if kind.served_is_a_column else means.mean()))
    served = logits[:, 0] if kind.served_is_a_column else logits.mean(axis=1)
    won = requests.best(served)
    winners = from_arrays(scores[won], spec=spec)
    record = FitRecord(
        "winners",
        DataRecord.of(winners),
        None if labeled is None else DataRecord.of(labeled),
        scale=spec.scale,
        replicas=kind.name,
        labels_from=labels_from,
        negative_sampling_rate=spec.negative_sampling_rate,
        top_k=requests.k,
        no_interval="" if labeled else kind.no_interval,
    )
    if np.ptp(logits, axis=1).max() <= _IDENTICAL * np.ptp(served) and labeled is None:
        reason = "the replicas are identical, so they show no noise"
        warn_user(f"{reason}; was the seed changed?")
        record = replace(record, method="nothing", reason=reason, no_interval=reason)
        return Solution(on_scores(spec, Affine(1.0, 0.0)), record)
    luck = _luck(_looks(logits, requests, kind, served), served[won], requests.k)
    table = replace(kind.table(ReplicaTable.of_rows(logits[won])), levels=levels)
    estimate = WinnersEstimate(table, kind, luck)
    mean = float(np.mean(served[won] - luck.true_score(served[won])))
    reason = f"the log odds of the winners are {mean:.2g} too high by chance"
    if rows is not None:
        rows = rows.rescaled(*scaling)
        if labels_from == "winners":
            estimate = replace(estimate, direct=fit_labels(rows, rows.served, (0.0, _SLOPE_ERROR), estimate.before))
            reason += "; labels of winners correct what remains"
        else:
            labels, known = _label_curve(rows, kind)
            estimate = replace(estimate, labels=labels, known=known, label_levels=rows.levels)
            reason += "; labels give the rate at a true score"
    low, high = np.quantile(served[won], _ENDS)
    x = np.unique(np.concatenate([np.quantile(served[won], _GRID), np.linspace(low, high, 64)]))
    maps = [Affine(*scaling)] if scaling != (1.0, 0.0) else []
    return Solution(
        on_scores(spec, *maps, monotone_curve(x, estimate.log_odds(x))), replace(record, reason=reason), estimate
    )


def _label_curve(rows: ReplicaTable, kind: ReplicaKind) -> tuple[SmoothCurve, float]:
    """Return the curve of the labels over the denoised score, and the variance of the true score that this leaves."""
    summary = kind.summarize(rows)
    w = rows.weight / rows.weight.sum()
    center = float(w @ summary.mean)
    noise = float(w @ summary.variance) / summary.models
    reliability = max(1 - noise / float(w @ np.square(summary.mean - center)), _LEAST_RELIABILITY)
    return fit_labels(rows, center - summary.level + reliability * (summary.mean - center)), reliability * noise
