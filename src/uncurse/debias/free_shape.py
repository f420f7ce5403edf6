"""Label-free estimates of E[φ(t) | served score]: of any shape, or with one λ.

With three replicas or more, those that are not served give an unbiased estimate of φ(t), the teacher. Given the true
score t, its noise is independent of the noise of the served score. So the mean of the teacher given the served score is
E[φ(t) | served score] (double learning, without serving a second model). φ of the mean m of the other replicas is
biased because φ is curved. Let d be a contrast between them with the variance of m. Then the real part of φ(m + i·d)
has the mean φ(t), because circular normal noise in the complex plane averages out of any analytic function. To second
order it is φ(m) − ½φ''(m)·d², for which the noise need not be normal.

With two replicas, or bootstraps, there is no independent teacher. The estimate is then that of `latent_scores`, which
assumes normal noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .._types import Array
from ..calibration.spline import SmoothCurve, fit_smooth, monotone_curve
from ..errors import UncurseError
from ..evidence import Moments
from ..evidence.replica_cells import ReplicaCells, outlier_fences, point_masses
from ..links import logistic
from ..maps import Affine, Curve
from .averaging import mixed_log_odds
from .latent_scores import LatentScores, ReplicaModel
from .remaining_error import TopShare, compared_shares, log_bayes_factor, relative_level_error
from .shrinkage import with_curvature

_MIN_ROWS = 20  # fewer do not determine a shape
_POLE = 0.01  # least denominator of the teacher: φ has poles at ±iπ
_MAX_NOISE = 1.0  # largest variance of the others' mean: the poles cause a bias of 0.3% there, of 6% at 1.4²
# Error on the top of a map with one λ if noise differs from row to row or scores have heavy tails. In the worlds of the
# arena it is 3% to 15%, on real logs up to 25%.
_WRONG = 0.1
_TIE = 1e-6  # slope that breaks ties without changing predictions
# End slopes follow the curve over the outer 5% of the rows at the bottom and 3% at the top.
_ENDS = (0.05, 0.97)
_MIN_SLOPE = 0.05  # if these few rows are flat or decrease by chance, the map must still increase
_KNOTS = 128
_BINS = np.array([0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997])  # of the variance at a score
_GROUP_ROWS = 10  # least number of rows from which that variance is estimated
_LEAST_NOISE, _MOST_NOISE = 1e-4, 100.0  # of the logit: relative to the largest, and at most


def teacher(cells: ReplicaCells) -> Array:
    """Return an unbiased estimate of φ(t) for each cell, from the replicas other than the served one.

    It needs three replicas or more that were trained alike.
    """
    from scipy.special import roots_jacobi

    others = cells.n_replicas - 1
    # Shift every replica to the mean level of all replicas.
    mean = cells.served + cells.gap - cells.gap_level / cells.n_replicas
    # φ of a cell's mean misses half of φ'' times the variance of the gap within the cell, width²/12, which d² adds to.
    radius = np.sqrt(np.maximum((others - 1) / others * cells.spread - cells.width**2 / 12, 0.0))
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


def project(cells: ReplicaCells, probability: Array, scatter_of: Array | None = None) -> SmoothCurve:
    """Fit the curve of the mean probability over the served score; the scatter of `scatter_of` weights the fit."""
    order = np.argsort(cells.served, kind="stable")
    served, weight, p = cells.served[order], cells.row_weights()[0][order], probability[order]
    q = p if scatter_of is None else scatter_of[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(served) > 0]))
    total, sums, *moments = (np.add.reduceat(weight * x, starts) for x in (np.ones_like(p), p, q, q * q))
    position = served[starts]
    # A floor or a cap lies somewhere in its cell: put it at the end where other scores begin.
    middle = np.searchsorted(np.cumsum(total), total.sum() / 2)
    inwards = np.where(np.arange(len(total)) > middle, -0.5, 0.5) * cells.width
    position = np.where(point_masses(total), position + inwards, position)
    return fit_smooth(position, total, sums, scatter=_dispersion(total, *(m / total for m in moments)))


def _dispersion(weight: Array, mean: Array, square: Array) -> Array:
    """Return the variance of probabilities at a score relative to p(1 − p), in bins that are finer towards the top."""
    # A score of a single row has no variance: group neighbouring scores.
    group = np.floor((np.cumsum(weight) - weight / 2 + 0.25) / min(_GROUP_ROWS, weight.sum() / 2))  # no ties
    starts = np.flatnonzero(np.diff(group, prepend=-1.0) > 0)
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


def lines_of(moments: Moments) -> Array:
    """Return mean and slope of each column on the served score, and Var(column − served) / Var(served)."""
    if not moments.covariance[0, 0] > 0:  # constant served scores show no slope
        return np.stack([moments.mean, np.ones_like(moments.mean), np.zeros_like(moments.mean)])
    scaled = moments.covariance / moments.covariance[0, 0]
    return np.stack([moments.mean, scaled[0], np.diagonal(scaled) + 1 - 2 * scaled[0]])


@dataclass(frozen=True)
class LabelFree(ABC):
    """Base of the label-free estimates, with their errors on the top of the pool.

    `lines` holds mean and slope of each column on the served score, and its relative variance about that score.
    """

    model: ReplicaModel
    lines: Array | None = field(default=None, kw_only=True)

    @property
    def cells(self) -> ReplicaCells:
        """Cells of the pool."""
        return self.model.cells

    @abstractmethod
    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""

    @abstractmethod
    def map_error(self, alpha: float) -> float:
        """Return the sampling error of the map: the standard error of the log mean prediction on the top share."""

    def log_error(self, alpha: float) -> float:
        """Return the standard error of the log of predicted over true rate on the top share."""
        top = TopShare(self.cells, alpha)
        logit, variance = (x[top.cells] for x in self._posterior)
        by_score = logistic(self.log_odds(self.cells.served[top.cells]))
        sampling = top.sampling_error(logistic(logit), by_score, variance)
        return float(np.hypot(np.sqrt(sampling), self.map_error(alpha)))

    @cached_property
    def _posterior(self) -> tuple[Array, Array]:
        return self.model.posterior_logit(self.model.latent)

    def level_error(self, alpha: float) -> tuple[float, int]:
        """Return the relative error due to level, slope and noise of the models, and its degrees of freedom.

        The errors of a model on different rows are related: those of a linear model have a few dimensions. So a model
        is too high or too low on the top as a whole, and its noise is larger or smaller than that of others. Bootstraps
        show by how much: by their lines on the served score, and by their variances about it.
        """
        if self.model.kind.no_interval:
            raise UncurseError(f"there are no intervals: {self.model.kind.no_interval}")
        top = TopShare(self.cells, alpha)
        levels, by_noise = self.cells.levels, 0.0
        if self.lines is not None and self.cells.n_replicas > 2 and not self.model.kind.exchangeable:
            mean, slope, noise = self.lines
            served = self.cells.served
            distance = top.mean(served[top.cells]) - float(np.average(served, weights=self.cells.weight))
            levels = mean - mean[0]
            levels[1:] += (slope[1:] - slope[1:].mean()) * distance
            by_noise = float(np.var(noise[1:], ddof=1)) * distance**2
        variance, freedom = self.model.kind.level_variance(levels)
        variance += by_noise
        return relative_level_error(top, self.log_odds(self.cells.served[top.cells]), variance), freedom

    def log_mean(self, alpha: float) -> float:
        """Return the log of the mean prediction on the top share."""
        top = TopShare(self.cells, alpha)
        return top.log_mean(self.log_odds(self.cells.served[top.cells]))


@dataclass(frozen=True)
class FreeShape(LabelFree):
    """A label-free map of any shape; `curve` gives the log odds by served logit."""

    curve: SmoothCurve | Curve

    @classmethod
    def fit(cls, model: ReplicaModel, lines: Array | None = None) -> FreeShape:
        """Fit to a pool: from the teacher if there is one and noise allows it, else from the latent scores."""
        cells = model.cells
        if cells.effective_rows < _MIN_ROWS:
            raise UncurseError(f"{cells.effective_rows:.3g} rows do not determine a shape; pass at least {_MIN_ROWS}")
        if np.ptp(cells.served) <= 0:
            raise UncurseError(f"the served scores are constant at {cells.served[0]:g}; pass scores that differ")
        if cells.cap:
            raise UncurseError(f"{cells.cap}, which hides the noise there; pass scores without a cap, or labelled rows")
        others = cells.n_replicas - 1
        if model.kind.exchangeable and others > 1 and model.noise / others <= _MAX_NOISE:
            return cls(model, project(cells, teacher(cells)), lines=lines)
        if model.latent is None:
            raise UncurseError("the replicas are identical, so they show no noise; train them with other seeds")
        return cls(model, _latent_curve(model.latent, cells), lines=lines)

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        return np.asarray(self.curve(served) if isinstance(self.curve, SmoothCurve) else self.curve.transform(served))

    def map(self) -> Curve:
        """Return the map."""
        return self.curve.map() if isinstance(self.curve, SmoothCurve) else self.curve

    def map_error(self, alpha: float) -> float:
        """Return the sampling error of the map: the standard error of the log mean prediction on the top share."""
        top = TopShare(self.cells, alpha)
        served = self.cells.served[top.cells]
        if isinstance(self.curve, SmoothCurve):
            p = logistic(self.log_odds(served))
            return float(np.sqrt(top.squared_error(p, self.curve.features(served), self.curve.covariance)))
        return float(np.std([top.log_mean(c.transform(served)) for c in self._resampled]))

    @cached_property
    def _resampled(self) -> list[Curve]:
        return [_latent_curve(latent, self.cells) for latent in self.model.resampled]

    def probability_of(self, other: LabelFree) -> float:
        """Return the probability that another map is right, as far as this one, which can have any shape, shows.

        If the other map is right, the two differ on the top by the error of this one. Otherwise they also differ by the
        error of a wrong map, a normal with standard deviation `_WRONG`. Both have the prior probability ½.
        """
        if isinstance(self.curve, SmoothCurve):  # the same smoothing for both, so that it causes no difference
            smoothed = project(
                self.cells, np.asarray(logistic(other.log_odds(self.cells.served)), np.float64), teacher(self.cells)
            )
            other = replace(self, curve=smoothed)
        factors = []
        for alpha in compared_shares(self.cells):
            difference, right = self.log_mean(alpha) - other.log_mean(alpha), max(self.map_error(alpha), 1e-9) ** 2
            factors.append(log_bayes_factor(difference, right, _WRONG**2))
        return float(logistic(np.array(np.mean(factors))))  # the shares are nested: their evidence does not add up


@dataclass(frozen=True)
class Parametric(LabelFree):
    """VAD with curvature: one λ (`shrinkage`) for all rows, with `center` and `variance` of the served score."""

    shrinkage: float
    center: float
    variance: float

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        return np.asarray(self._curve.transform(served))

    @cached_property
    def _curve(self) -> Affine | Curve:
        return self._curve_of(self.shrinkage)

    @cached_property
    def _end_curves(self) -> list[Affine | Curve]:
        """Curves of λ minus and plus its standard error."""
        return [self._curve_of(self.shrinkage + sign * self.shrinkage_error) for sign in (-1, 1)]

    def _curve_of(self, shrinkage: float) -> Affine | Curve:
        bounded = float(np.clip(shrinkage, 1e-3, 1.0))
        curve = with_curvature(bounded, self.center, (1 - bounded) * self.variance, "logistic")
        assert isinstance(curve, Affine | Curve)
        return curve

    @cached_property
    def shrinkage_error(self) -> float:
        """Standard error of λ over rows, by its influence function."""
        w, served = self.cells.weight / self.cells.weight.sum(), self.cells.served
        noise = self.model.summary.variance / self.model.summary.served_models
        square = np.square(served - self.center)
        ratio = 1 - self.shrinkage
        influence = (noise - w @ noise - ratio * (square - w @ square)) / self.variance
        return float(np.sqrt(w @ np.square(influence) / self.cells.effective_rows))

    def map_error(self, alpha: float) -> float:
        """Return the sampling error of the map: the standard error of the log mean prediction on the top share."""
        top = TopShare(self.cells, alpha)
        served = self.cells.served[top.cells]
        return float(np.std([top.log_mean(c.transform(served)) for c in self._end_curves]))


@dataclass(frozen=True)
class LabelFreeAverage(LabelFree):
    """Average of a map with one λ and a map of any shape; `weight` is the probability that the first is right."""

    parametric: Parametric
    free: FreeShape
    weight: float

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        return mixed_log_odds(self.weight, self.parametric.log_odds(served), self.free.log_odds(served))

    def map_error(self, alpha: float) -> float:
        """Return the error of a mixture: that of each map, and the difference between them."""
        w, parts = self.weight, (self.parametric, self.free)
        own = w * parts[0].map_error(alpha) ** 2 + (1 - w) * parts[1].map_error(alpha) ** 2
        return float(np.sqrt(own + w * (1 - w) * (parts[0].log_mean(alpha) - parts[1].log_mean(alpha)) ** 2))


def _latent_curve(latent: LatentScores, cells: ReplicaCells) -> Curve:
    """Return the curve of E[φ(t) | served score]; three rows or 0.002% lie outside its knots on either side."""
    served, order = cells.served, np.argsort(cells.served, kind="stable")
    reached = np.cumsum(cells.weight[order]) / cells.weight.sum()
    few = max(2e-5, 3 / cells.effective_rows)
    quantiles = np.interp([max(1e-4, few), *_ENDS, 1 - few], reached, served[order])
    fences = outlier_fences(served, cells.weight)
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
