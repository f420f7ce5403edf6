"""Estimates of E[φ(t) | served score] without labels: with one λ, of any monotone shape, or their average.

With three replicas or more, those that are not served give an unbiased estimate of φ(t), the teacher. Given the true
score t, its noise is independent of the noise of the served score. So the mean of the teacher given the served score is
E[φ(t) | served score] (double learning, without serving a second model). φ of the mean m of the other replicas is
biased because φ is curved. Let d be a contrast between them with the variance of m. Then the real part of φ(m + i·d)
has the mean φ(t), because circular normal noise in the complex plane averages out of any analytic function. To second
order it is φ(m) − ½φ''(m)·d², for which the noise need not be normal.

With two replicas, or bootstraps, there is no independent teacher. The estimate is then that of `truth`, which assumes
normal noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from .._types import Array
from ..calibration.spline import SmoothCurve, fit_smooth, increasing, monotone_curve
from ..errors import UncurseError
from ..evidence import Moments
from ..evidence.histogram import ReplicaTable, outlier_fences, point_masses
from ..links import logistic, logit
from ..maps import Curve, ScoreMap, Segmented
from .noise import NO_NOISE, ReplicaKind
from .remaining_error import Estimate, TopShare, compared_tops, log_bayes_factor
from .shrinkage import Shrinkage
from .truth import TrueScores, TruthModel

_MIN_ROWS = 20  # fewer do not determine a shape
_POLE = 0.01  # least denominator of the teacher: φ has poles at ±iπ
_MAX_NOISE = 1.0  # largest variance of the others' mean: the poles cause a bias of 0.3% there, of 6% at 1.4²
# Error on the top of a map with one λ if noise differs from row to row or scores have heavy tails. In the worlds of the
# arena it is 3% to 15%, on real logs up to 25%.
_WRONG = 0.1
_LEAST_WEIGHT = 0.2  # a map with less weight changes predictions by less than its error
_UNDER_FIT_ERROR = 0.05  # standard deviation of how much a model under-fits, for the share of a correction that is used
#: Why a share of a correction is used.
UNDER_FIT = (
    "models of this kind usually under-predict their top, which replicas do not show: labeled rows would settle it"
)
_TIE = 1e-6  # slope that breaks ties without changing predictions
# End slopes follow the curve over the outer 5% of the rows at the bottom and 3% at the top.
_ENDS = (0.05, 0.97)
_MIN_SLOPE = 0.05  # if these few rows are flat or decrease by chance, the map must still increase
_KNOTS, _AVERAGE_KNOTS = 128, 256
_BINS = np.array([0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997])  # of the variance at a score
_POOLED_ROWS = 10  # least number of rows from which that variance is estimated
_LEAST_NOISE, _MOST_NOISE = 1e-4, 100.0  # of the logit: relative to the largest, and at most


def teacher(table: ReplicaTable) -> Array:
    """Return an unbiased estimate of φ(t) for each cell, from the replicas other than the served one.

    It needs three replicas or more that were trained alike.
    """
    from scipy.special import roots_jacobi

    others = table.n_replicas - 1
    # Shift every replica to the mean level of all replicas.
    mean = table.served + table.gap - table.gap_level / table.n_replicas
    # φ of a cell's mean misses half of φ'' times the variance of the gap within the cell, width²/12, which d² adds to.
    radius = np.sqrt(np.maximum((others - 1) / others * table.spread - table.width**2 / 12, 0.0))
    if others == 2:
        return _complex_mean(mean, radius)
    # The contrast is one coordinate of a vector of known length and unknown direction in others − 1 dimensions.
    nodes, weights = roots_jacobi(5, (others - 4) / 2, (others - 4) / 2)
    parts = [w * _complex_mean(mean, radius * x) for x, w in zip(nodes, weights / weights.sum(), strict=True)]
    return np.asarray(np.sum(parts, axis=0))


def _complex_mean(mean: Array, contrast: Array) -> Array:
    """Return the real part of φ(mean + i·contrast)."""
    odds = np.exp(-np.abs(mean))  # or their inverse, whichever does not overflow
    cosine = odds * np.cos(contrast)
    below = np.maximum(1 + 2 * cosine + odds * odds, _POLE)
    return np.asarray(np.where(mean >= 0, 1 + cosine, odds * odds + cosine) / below)


def regress_on_served(table: ReplicaTable, probability: Array, scatter_of: Array | None = None) -> SmoothCurve:
    """Fit the curve of the mean probability over the served score; the scatter of `scatter_of` weights the fit."""
    order = np.argsort(table.served, kind="stable")
    served, weight, p = table.served[order], table.row_weights()[0][order], probability[order]
    q = p if scatter_of is None else scatter_of[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(served) > 0]))
    total, sums, *moments = (np.add.reduceat(weight * x, starts) for x in (np.ones_like(p), p, q, q * q))
    position = served[starts]
    # A floor or a cap lies somewhere in its cell: put it at the end where other scores begin.
    middle = np.searchsorted(np.cumsum(total), total.sum() / 2)
    inwards = np.where(np.arange(len(total)) > middle, -0.5, 0.5) * table.width
    position = np.where(point_masses(total), position + inwards, position)
    return fit_smooth(position, total, sums, scatter=_dispersion(total, *(m / total for m in moments)))


def _dispersion(weight: Array, mean: Array, square: Array) -> Array:
    """Return the variance of probabilities at a score relative to p(1 − p), in bins that are finer towards the top."""
    # A score of a single row has no variance: pool neighboring scores.
    place = np.floor((np.cumsum(weight) - weight / 2 + 0.25) / min(_POOLED_ROWS, weight.sum() / 2))  # no ties
    starts = np.flatnonzero(np.diff(place, prepend=-1.0) > 0)
    rows, mean, square = (np.add.reduceat(weight * x, starts) for x in (np.ones_like(weight), mean, square))
    mean, square = mean / rows, square / rows
    within = np.maximum(square - mean**2, 0.0) * rows / np.maximum(rows - 1, 0.5)
    reached = np.cumsum(rows) / rows.sum()
    place = np.unique(np.searchsorted(_BINS, reached - rows / rows.sum() / 2 + 1e-7), return_inverse=True)[1]
    total, spread, binomial, position = (
        np.bincount(place, weights=rows * x) for x in (np.ones_like(rows), within, mean * (1 - mean), reached)
    )
    ratio, binomial = spread / np.maximum(binomial, 1e-300), np.maximum(binomial / total, 1e-300)
    noise = np.minimum(ratio, _MOST_NOISE * binomial) / binomial  # variance of the logit
    ratio = np.maximum(noise, _LEAST_NOISE * max(float(noise.max()), 0.01)) * binomial
    reached = np.cumsum(weight) / weight.sum()
    return np.asarray(np.exp(np.interp(reached, position / total, np.log(np.maximum(ratio, 1e-300)))))


def lines_of(moments: Moments, kind: ReplicaKind) -> Array:
    """Return mean and slope of each column on the served score, and Var(column − served) / Var(served)."""
    mean, covariance = kind.columns(moments)
    if not covariance[0, 0] > 0:  # constant served scores show no slope
        return np.stack([mean, np.ones_like(mean), np.zeros_like(mean)])
    scaled = covariance / covariance[0, 0]
    return np.stack([mean, scaled[0], np.diagonal(scaled) + 1 - 2 * scaled[0]])


@dataclass(frozen=True)
class LabelFree(Estimate):
    """Base of the label-free estimates, with their errors on the top of the pool.

    `lines` are those of `lines_of`, from models that are trained like the served one.
    """

    model: TruthModel
    lines: Array

    @property
    def table(self) -> ReplicaTable:  # type: ignore[override]
        """Replicas of the pool."""
        return self.model.table

    def map(self) -> ScoreMap:
        """Return the map of logits."""
        raise NotImplementedError

    @cached_property
    def _resampled(self) -> Array:
        """Rates of the cells by maps that differ by the sampling error, (R, K)."""
        raise NotImplementedError

    def map_error(self, top: TopShare) -> float:
        """Return the sampling error of the map: the standard error of the log mean prediction on the top share."""
        return top.log_spread(self._resampled)

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of predicted over true rate on the top share."""
        rates, variance = (x[top.cells] for x in self._by_replicas)
        sampling = top.sampling_error(rates, self.rates[top.cells], variance)
        return float(np.hypot(np.sqrt(sampling), self.map_error(top)))

    @cached_property
    def _by_replicas(self) -> tuple[Array, Array]:
        """Rates of the cells given all replicas, and posterior variances."""
        log_odds, variance = self.model.posterior_logit()
        return np.asarray(logistic(log_odds), np.float64), variance

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return the relative error due to level, slope and noise of the models, and its degrees of freedom.

        The errors of a model on different rows are related: those of a linear model have a few dimensions. So a model
        is too high or too low on the top as a whole, and its noise is larger or smaller than that of others. Bootstraps
        show by how much: by their lines on the served score, and by their variances about it.
        """
        if self.model.kind.no_interval:
            return None
        levels, by_noise = self.table.levels, 0.0
        if self.table.n_replicas > 2 and not self.model.kind.exchangeable:
            mean, slope, noise = self.lines
            distance = top.mean(top.served) - float(np.average(self.table.served, weights=self.table.weight))
            levels = mean - mean[0]
            levels[1:] += (slope[1:] - slope[1:].mean()) * distance
            by_noise = float(np.var(noise[1:], ddof=1)) * distance**2
        variance, freedom = self.model.kind.level_variance(levels)
        return top.level_error(self.rates[top.cells], variance + by_noise), freedom


@dataclass(frozen=True)
class Monotone(LabelFree):
    """A label-free map of any monotone shape; `curve` gives the log odds by served logit."""

    curve: SmoothCurve | Curve

    @classmethod
    def fit(cls, model: TruthModel, lines: Array) -> Monotone:
        """Fit to a pool: from the teacher if there is one and noise allows it, else from the true scores."""
        table = model.table
        if table.effective_rows < _MIN_ROWS:
            raise UncurseError(f"{table.effective_rows:.3g} rows do not determine a shape; pass at least {_MIN_ROWS}")
        if np.ptp(table.served) <= 0:
            raise UncurseError(f"the served scores are constant at {table.served[0]:g}; pass scores that differ")
        if table.cap:
            raise UncurseError(f"{table.cap}, which hides the noise there; pass scores without a cap, or labeled rows")
        others = table.n_replicas - 1
        if model.kind.exchangeable and others > 1 and model.noise / others <= _MAX_NOISE:
            return cls(model, lines, regress_on_served(table, teacher(table)))
        if model.latent is None:
            raise UncurseError(f"{NO_NOISE}; train them with other seeds")
        return cls(model, lines, _latent_curve(model.latent, table))

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        return np.asarray(self.curve(served) if isinstance(self.curve, SmoothCurve) else self.curve.transform(served))

    def map(self) -> Curve:
        """Return the map of logits."""
        return self.curve.map() if isinstance(self.curve, SmoothCurve) else self.curve

    def map_error(self, top: TopShare) -> float:
        """Return the sampling error of the map: the standard error of the log mean prediction on the top share."""
        if isinstance(self.curve, SmoothCurve):
            features = self.curve.features(top.served)
            return float(np.sqrt(top.squared_error(self.rates[top.cells], features, self.curve.covariance)))
        return super().map_error(top)

    @cached_property
    def _resampled(self) -> Array:
        """Rates by curves that are fitted to bootstraps of the rows."""
        assert isinstance(self.curve, Curve)
        x, served = np.array(self.curve.x), self.table.served
        changes = [increasing(x, y) - self.curve.y for y in self.model.resampled.log_odds(x)]
        return np.asarray(logistic(self.curve.transform(served) + [np.interp(served, x, each) for each in changes]))

    def probability_of(self, other: LabelFree) -> float:
        """Return the probability that another map is right, as far as this one, which can have any shape, shows.

        If the other map is right, the two differ on the top by the error of this one. Otherwise they also differ by the
        error of a wrong map, a normal with standard deviation `_WRONG`. Both have the prior probability ½.
        """
        if isinstance(self.curve, SmoothCurve):  # the same smoothing for both, so that it causes no difference
            other = replace(self, curve=regress_on_served(self.table, other.rates, teacher(self.table)))
        factors = []
        for top in compared_tops(self.table):
            right = max(self.map_error(top), 1e-9) ** 2
            factors.append(log_bayes_factor(self.correction(top) - other.correction(top), right, _WRONG**2))
        return float(logistic(np.array(np.mean(factors))))  # the shares are nested: their evidence does not add up


@dataclass(frozen=True)
class OneLambda(LabelFree):
    """VAD with curvature: one λ for all rows."""

    shrinkage: Shrinkage

    @classmethod
    def fit(cls, model: TruthModel, lines: Array) -> OneLambda:
        """Fit to the replicas of some rows."""
        served, w = model.table.served, model.table.weight / model.table.weight.sum()
        center, noise = float(w @ served), model.served_noise
        variance = float(w @ np.square(served - center))
        return cls(model, lines, Shrinkage(max(1 - noise / variance, 0.0), 0.0, center, noise, variance))

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        return np.asarray(self._curves[0].transform(served))

    def map(self) -> ScoreMap:
        """Return the map of logits."""
        return self._curves[0]

    @cached_property
    def _curves(self) -> list[ScoreMap]:
        """Curves of λ, and of λ minus and plus its standard error."""
        curves = []
        for sign in (0, -1, 1):
            value = float(np.clip(self.shrinkage.value + sign * self.shrinkage.error, 1e-3, 1.0))
            noise = (1 - value) * self.shrinkage.variance
            curves.append(replace(self.shrinkage, value=value, noise=noise).map(curvature=True))
        return curves

    @cached_property
    def _resampled(self) -> Array:
        """Rates by λ minus and plus its standard error."""
        return np.stack([curve.at_logits(self.table.served) for curve in self._curves[1:]])


@dataclass(frozen=True)
class Average(Estimate):
    """Average of two estimates, the first with probability `weight`.

    A choice throws away half of the evidence near its threshold. An average changes smoothly with the evidence.
    """

    first: Estimate
    second: Estimate
    weight: float

    @property
    def table(self) -> ReplicaTable:  # type: ignore[override]
        """Replicas of the pool."""
        return self.second.table

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        first, second = logistic(self.first.log_odds(served)), logistic(self.second.log_odds(served))
        return np.asarray(logit(self.weight * first + (1 - self.weight) * second), np.float64)

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of a mixture: that of each estimate, and the difference between them."""
        parts, shares = (self.first, self.second), (self.weight, 1 - self.weight)
        means = [top.mean(estimate.rates[top.cells]) for estimate in parts]
        mean = shares[0] * means[0] + shares[1] * means[1]
        variance = sum(
            share * (estimate.log_error(top) ** 2 + float(np.log(own / mean)) ** 2)
            for share, estimate, own in zip(shares, parts, means, strict=True)
        )
        return float(np.sqrt(variance))

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return the part of the error that all scores share, and its degrees of freedom."""
        one, other = self.first.level_error(top), self.second.level_error(top)
        if one is None or other is None:  # replicas that do not show it: the labels alone do
            return other
        return self.weight * one[0] + (1 - self.weight) * other[0], min(one[1], other[1])


@dataclass(frozen=True)
class Cautious(Estimate):
    """A share of a correction: models under-fit by an amount that replicas do not show. `error` is that of the rest."""

    estimate: Estimate
    share: float
    error: float

    @classmethod
    def of(cls, estimate: Estimate, under_fit: float, tops: list[TopShare]) -> Cautious:
        """Return the expected share on top shares of a model that under-predicts by a normal about `under_fit`."""
        change = float(np.mean([estimate.correction(top) for top in tops]))
        if not under_fit > 0 or not change > 0:
            return cls(estimate, 1.0, 0.0)
        z = (change - under_fit) / _UNDER_FIT_ERROR
        rest = _UNDER_FIT_ERROR * (z * float(ndtr(z)) + float(np.exp(-z * z / 2)) / np.sqrt(2 * np.pi))
        return cls(estimate, min(rest / change, 1.0), 0.02 + min(under_fit, change) / 2)

    @property
    def table(self) -> ReplicaTable:  # type: ignore[override]
        """Replicas of the pool."""
        return self.estimate.table

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        whole = logistic(self.estimate.log_odds(served))
        return np.asarray(logit(self.share * whole + (1 - self.share) * logistic(served)), np.float64)

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of the mean estimate on the top share."""
        return float(np.hypot(self.share * self.estimate.log_error(top), self.error))

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return the part of the error that all scores share, and its degrees of freedom."""
        found = self.estimate.level_error(top)
        return None if found is None else (self.share * found[0], found[1])


def label_free_estimate(model: TruthModel, shrinkage: Shrinkage, lines: Array) -> OneLambda | Monotone | Average:
    """Return VAD with curvature, the monotone shape, or their average if replicas leave it open which is right.

    One λ has a smaller error than a curve, but noise may differ from row to row.
    """
    monotone = Monotone.fit(model, lines)
    if not shrinkage.value > 0:
        return monotone
    parametric = OneLambda(model, lines, shrinkage)
    weight = monotone.probability_of(parametric)
    if weight > 1 - _LEAST_WEIGHT:
        return parametric
    return monotone if weight < _LEAST_WEIGHT else Average(parametric, monotone, weight)


def average_maps(first: ScoreMap, second: ScoreMap, weight: float, table: ReplicaTable) -> ScoreMap:
    """Return the map that predicts ``weight`` times the first plus ``1 − weight`` times the second, for logits.

    It is exact at the quantiles of `table`, and piecewise linear in the log odds between them.
    """
    if isinstance(first, Segmented) or isinstance(second, Segmented):
        names = {name for part in (first, second) if isinstance(part, Segmented) for name in part.maps}
        default, *maps = (
            average_maps(_of_segment(first, name), _of_segment(second, name), weight, table)
            for name in (None, *sorted(names))
        )
        return Segmented(default, dict(zip(sorted(names), maps, strict=True)))
    x = _quantiles(table)
    p = weight * first.at_logits(x) + (1 - weight) * second.at_logits(x)
    return monotone_curve(x, np.asarray(logit(p), np.float64))


def _quantiles(table: ReplicaTable) -> Array:
    """Return the served logits at which maps are tabulated."""
    steps = (np.arange(_AVERAGE_KNOTS) + 0.5) / _AVERAGE_KNOTS
    shares = [1e-4, 1 - 1e-4, *steps]
    low, high, *inner = np.quantile(table.served, shares, weights=table.weight, method="inverted_cdf")
    knots = np.unique(np.concatenate([inner, low + (high - low) * steps, [low, high]]))
    return np.asarray(knots[np.append(True, np.diff(knots) > 1e-6)])


def shaped_maps(
    maps: Mapping[str, ScoreMap], whole: ScoreMap, parts: Mapping[str, ReplicaTable], table: ReplicaTable
) -> dict[str, ScoreMap]:
    """Add to maps by segment what they do not explain of the shape of the map of all rows.

    That is the difference in log odds between the mean predictions of the two at a served score.
    """
    served, weight = (np.concatenate([getattr(part, name) for part in parts.values()]) for name in ("served", "weight"))
    by_segment = np.concatenate([maps[name].at_logits(part.served) for name, part in parts.items()])
    edges = np.quantile(served, _BINS, weights=weight, method="inverted_cdf")
    place = np.unique(np.searchsorted(edges, served), return_inverse=True)[1]
    total, at, *means = (
        np.bincount(place, weight * values) for values in (1.0, served, whole.at_logits(served), by_segment)
    )
    of_whole, of_segments = (np.asarray(logit(mean / total)) for mean in means)
    x = _quantiles(table)
    more = np.interp(x, at / total, of_whole - of_segments)
    return {name: monotone_curve(x, logit(each.at_logits(x)) + more) for name, each in maps.items()}


def _of_segment(score_map: ScoreMap, name: str | None) -> ScoreMap:
    if not isinstance(score_map, Segmented):
        return score_map
    return score_map.default if name is None else score_map.maps.get(name, score_map.default)


def _latent_curve(latent: TrueScores, table: ReplicaTable) -> Curve:
    """Return the curve of E[φ(t) | served score]; three rows or 0.002% lie outside its knots on either side."""
    served, order = table.served, np.argsort(table.served, kind="stable")
    reached = np.cumsum(table.weight[order]) / table.weight.sum()
    few = max(2e-5, 3 / table.effective_rows)
    quantiles = np.interp([max(1e-4, few), *_ENDS, 1 - few], reached, served[order])
    fences = outlier_fences(served, table.weight)
    low, bottom, top, high = np.clip(quantiles, *fences)
    if not high > low:
        raise UncurseError(f"nearly all served scores are {low:g}; pass scores that differ")
    x = np.linspace(low, high, _KNOTS)
    y = latent.log_odds(x)
    i, j = np.clip(np.searchsorted(x, [bottom, top]), 1, _KNOTS - 2)
    slopes = (y[i] - y[0]) / (x[i] - x[0]), (y[-1] - y[j]) / (x[-1] - x[j])
    left, right = (float(np.clip(slope, _MIN_SLOPE, 1.0)) for slope in slopes)
    curve = replace(monotone_curve(x, y), left=left, right=right)
    # Beyond the fences there are only outliers: a slope would predict probabilities near 0 or 1 without evidence.
    outliers_below, outliers_above = served.min() < fences[0] < low, served.max() > fences[1] > high
    x = np.concatenate([[fences[0]] if outliers_below else [], x, [fences[1]] if outliers_above else []])
    ends = (_TIE if outliers_below else left), (_TIE if outliers_above else right)
    return Curve(x.tolist(), curve.transform(x).tolist(), *ends)
