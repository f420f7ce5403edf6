"""Penalised spline of the log odds; the data choose its complexity.

The curve is a natural cubic spline with at most twelve knots. Its linear part is unpenalized. Its bends have a normal
prior whose standard deviation τ is averaged over by marginal likelihood. The fit is therefore close to Platt scaling
for few labels, and a curve for many. The same fit serves labels (the ``spline`` calibrator) and probabilities (a
projection, which is never a line, and whose residual variance is not binomial).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence.histogram import point_masses
from ..links import logistic
from ..maps import Curve
from .logistic import fit_logistic
from .parametric import MIN_SLOPE, Sample, check_overlap, platt

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

# Quantiles of the score at the knots: closer towards the top, where rows are selected.
_LEVELS = np.array([0.001, 0.02, 0.1, 0.25, 0.45, 0.65, 0.8, 0.9, 0.96, 0.987, 0.997, 0.9995])
MIN_KNOTS = 4  # the smallest spline with two bends
_MIN_GAP = 0.05  # between knots, in spreads: closer knots give bends that the data do not determine
# Values of τ, in logits: how far bends may move the curve from its line over a few spreads. A factor of three between
# neighbors is finer than the data can resolve. Prior probability of the line, then of each τ: one half that there is
# no bend, and less for larger bends.
_SPREADS = np.array([0.01, 0.03, 0.1, 0.3, 1.0])
_PRIOR = np.array([0.5, 0.15, 0.15, 0.12, 0.06, 0.02])
# Mean probabilities at a noisy score are never a line: they bend by the noise times the curvature of the link. With the
# line among the candidates, label-free maps were 0.4% to 0.6% too high on the top 1% (200,000 rows, noise of .4).
_PROJECTION_PRIOR = np.append(0.0, _PRIOR[1:] / _PRIOR[1:].sum())
_LEAST_POSTERIOR = 0.025  # drop less probable values of τ: the largest would dominate the covariance
_CELLS_PER_SPREAD = 256  # merge cells within 1/256 of a spread: a curve this smooth changes by 0.1% of its slope
_TAIL = 0.01  # at most this share of the other scores is an outlier on either side; at least 3 cells
_TIE = 1e-6  # scores on a grid meet thresholds exactly: rounding must not decide on which side they are
_FENCE = 3.0  # outliers are outside the 1% to 99% range by 3 times its distance to the median: 9 normal sd
_STEP = 1e-3  # of a difference that gives a derivative, in spreads
_REACH = 3.0  # clip other scores at 3 spreads outside the knots


@dataclass(frozen=True)
class SmoothCurve:
    """Fitted curve of the log odds in z = (x − center) / spread, with the covariance of its coefficients.

    Coefficients are the level at `center`, the slope per spread, then bends. Scores at or beyond one of the `limits`
    are outliers, a floor or a cap, and have the level of that side. A side without them has an infinite limit, and the
    curve continues as a straight line. `line_probability` is the posterior probability that labels show no bend.
    """

    center: float
    spread: float
    limits: tuple[float, float]
    levels: tuple[float, float]
    basis: Basis
    coefficients: Array
    covariance: Array
    line_probability: float

    @property
    def ends(self) -> tuple[float, float]:
        """Scores of the outer knots."""
        low, high = (self.basis.knots[[0, -1]] * self.spread + self.center).tolist()
        return low, high

    def features(self, x: Array) -> Array:
        """Return the basis functions at scores `x`, shape (K, n)."""
        return self.basis((np.clip(x, *self.limits) - self.center) / self.spread)

    def __call__(self, x: Array) -> Array:
        """Return the log odds at scores `x`."""
        low, high = self.limits
        values = self.coefficients @ self.features(x)
        return np.where(x <= low, self.levels[0], np.where(x >= high, self.levels[1], values))

    def slope(self, x: Array) -> Array:
        """Return the derivative at scores `x`; that of the outer knots beyond them."""
        inside, step = np.clip(x, *self.ends), _STEP * self.spread
        return np.asarray((self(inside + step) - self(inside - step)) / (2 * step))

    def map(self, count: int = 128) -> Curve:
        """Return the curve as a strictly increasing score map with at least `count` knots."""
        low, high = self.limits
        knots = self.basis.knots * self.spread + self.center
        x = np.concatenate([np.linspace(knots[0], knots[-1], count), knots])
        apart = _TIE * self.spread  # knots that differ by rounding would make a step
        x = x[(x > low + apart) & (x < high - apart)]
        x = np.unique(np.append(x, [limit for limit in self.limits if np.isfinite(limit)]))
        x = x[np.append(True, np.diff(x) > apart)]
        curve = monotone_curve(x, self(x))
        left = MIN_SLOPE if np.isfinite(low) else curve.left
        return replace(curve, left=left, right=MIN_SLOPE if np.isfinite(high) else curve.right)


@dataclass(frozen=True)
class Basis:
    """Natural cubic splines on `knots`: a constant, a line, then bends for which Σ b² = ∫ f''²."""

    knots: Array

    def __call__(self, x: Array) -> Array:
        """Return the basis functions at `x`, shape (K, n); straight lines beyond the outer knots."""
        first, last = self.knots[0], self.knots[-1]
        result: Array = self._spline(np.clip(x, first, last)).T
        for end, beyond in ((first, np.minimum(x - first, 0.0)), (last, np.maximum(x - last, 0.0))):
            if beyond.any():
                result = result + np.outer(self._spline(end, 1), beyond)
        return result

    @cached_property
    def _spline(self) -> CubicSpline:
        from scipy.interpolate import CubicSpline

        knots, count, gaps = self.knots, len(self.knots), np.diff(self.knots)
        second = CubicSpline(knots, np.eye(count), bc_type="natural")(knots, 2)  # f'' at the knots, linear in between
        mass = np.diag(np.append(gaps, 0.0) + np.append(0.0, gaps)) / 3 + (np.diag(gaps, 1) + np.diag(gaps, -1)) / 6
        values, vectors = np.linalg.eigh(second.T @ mass @ second)
        bends = vectors[:, 2:] / np.sqrt(values[2:])
        return CubicSpline(knots, np.column_stack([np.ones(count), knots, bends]), bc_type="natural")


def spline(sample: Sample) -> Curve:
    """Penalised spline: close to Platt scaling for few labels, a smooth curve if the labels support it."""
    check_overlap(sample, "spline")
    platt(sample)  # raises if labels decrease with the score
    return fit_smooth(sample.score, sample.weight, sample.label).map()


def fit_smooth(
    score: Array,
    weight: Array,
    label: Array,
    *,
    scatter: Array | None = None,
    slope: tuple[float, float] | None = None,
    offset: Callable[[Array], Array] | None = None,
) -> SmoothCurve:
    """Fit the log odds of labels as a smooth curve of ascending scores, from weights and label sums in effective rows.

    `scatter` is for labels that are probabilities: their variance about the curve relative to p(1 − p). `slope` is the
    mean and standard deviation of a normal prior. With an `offset` the curve is the difference from it, and has no
    limits.
    """
    # Scores that are equal up to rounding must be one cell, or a floor would not be seen as one.
    keys = np.cumsum(np.diff(score, prepend=score[0]) > 1e-9 * (1 + np.abs(score)))
    if scatter is not None:
        _, total, sums = merge_cells(score, weight, weight * scatter, keys)
        scatter = sums / total
    score, weight, label = merge_cells(score, weight, label, keys)
    heavy = point_masses(weight)  # floors, caps and default values
    if np.count_nonzero(~heavy) < len(_LEVELS):  # too few other scores for a curve
        heavy = np.zeros_like(heavy)
    positions = (np.cumsum(weight[~heavy]) - weight[~heavy] / 2) / weight[~heavy].sum()
    # The median, and half the width of the central two thirds, which is one standard deviation of a normal.
    low, center, high = np.interp([1 / 6, 0.5, 5 / 6], positions, score[~heavy]).tolist()
    spread = high / 2 - low / 2
    if not spread > 1e-12 * max(abs(center), 1e-100):
        raise UncurseError(f"every score is {center:g}; a curve needs scores that differ")
    if spread > 1e100:  # squares of scores overflow
        raise UncurseError(f"scores have a spread of {spread:g}; a curve needs scores of moderate size")
    inside = _inside(score, weight, heavy, positions)
    z = (score[inside] - center) / spread
    z, w, y = merge_cells(z, weight[inside], label[inside], np.floor(z * _CELLS_PER_SPREAD + 0.5 + _TIE))
    if not z[-1] - z[0] > _TIE:  # a few heavy rows may outweigh all others
        raise UncurseError(f"nearly all of the weight is at a score of {center:g}; a curve needs scores that differ")
    knots = distinct_knots(_LEVELS, z, w)
    if len(knots) < MIN_KNOTS:
        knots = np.linspace(z[0], z[-1], MIN_KNOTS)
    z = np.clip(z, knots[0] - _REACH, knots[-1] + _REACH)  # clip outliers: their leverage is extreme
    basis = Basis(knots)
    known = (0.0, 0.0) if slope is None else (slope[0] * spread, (slope[1] * spread) ** -2)
    if scatter is not None:
        dispersion = np.interp(z * spread + center, score, scatter)
        w, y = w / dispersion, y / dispersion
    base = np.zeros_like(z) if offset is None else offset(z * spread + center)
    prior = _PRIOR if scatter is None else _PROJECTION_PRIOR
    coefficients, covariance, line = _averaged(basis(z), w, y, prior, known, base)
    curve = SmoothCurve(center, spread, (-np.inf, np.inf), (-np.inf, np.inf), basis, coefficients, covariance, line)
    return curve if offset is not None else _limited(curve, score, weight, label, inside)


def merge_cells(score: Array, weight: Array, label: Array, keys: NDArray[Any]) -> tuple[Array, Array, Array]:
    """Merge neighboring cells with equal keys."""
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    if len(starts) == len(score):
        return score, weight, label
    total = np.add.reduceat(weight, starts)
    return np.add.reduceat(weight * score, starts) / total, total, np.add.reduceat(label, starts)


def _inside(score: Array, weight: Array, heavy: NDArray[np.bool_], positions: Array) -> slice:
    """Return the cells that the curve is fitted to: without outliers, and without a floor or a cap at either end."""
    tail = min(max(_TAIL, 3 / len(positions)), 0.1)
    low, middle, high = np.interp([tail, 0.5, 1 - tail], positions, score[~heavy])
    below = np.searchsorted(score, low - (_FENCE + _TIE) * (middle - low))
    above = np.searchsorted(score, high + (_FENCE + _TIE) * (high - middle), side="right")
    reached = np.cumsum(np.where(heavy, 0.0, weight)) / weight[~heavy].sum()
    below = max(below, 1 + np.max(np.flatnonzero(heavy & (reached < tail)), initial=-1))
    above = min(above, np.min(np.flatnonzero(heavy & (reached > 1 - tail)), initial=len(score)))
    return slice(int(below), int(above))


def distinct_knots(levels: Array, z: Array, weight: Array) -> Array:
    """Return quantiles of the standardized score that are far enough apart."""
    knots: list[float] = []
    for level in np.interp(levels, (np.cumsum(weight) - weight / 2) / weight.sum(), z).tolist():
        if not knots or level > knots[-1] + _MIN_GAP + _TIE:
            knots.append(level)
    return np.array(knots)


def _limited(curve: SmoothCurve, score: Array, weight: Array, label: Array, inside: slice) -> SmoothCurve:
    """Add the levels of scores outside the curve: their label rate, smoothed by one row with the rate at its end.

    A map must not decrease. So the level of low scores is at most the end of the curve. If the rate of high scores is
    below the curve, they are pooled with the highest scores inside that have a higher prediction, which keeps the mean
    of the selected rows.
    """
    if inside == slice(0, len(score)):
        return curve
    (low, high), (bottom, top) = curve.limits, curve.levels
    fitted = curve(score[inside])
    # Sums of positives and of negatives: a rate near 1 has lost the digits of its log odds.
    p, q = (np.maximum(logistic(l), 1e-300) for l in (fitted, -fitted))
    tie = _TIE * curve.spread  # a score that equals a limit up to rounding is beyond it
    if inside.start:
        w = float(weight[: inside.start].sum())
        y = min(max(float(label[: inside.start].sum()), 0.0), w)  # labels that are estimates may add up to more
        low = float(score[inside.start - 1])
        low = min(low + tie, low / 2 + float(score[inside.start]) / 2)
        bottom = float(min(np.log((y + p[0]) / (w - y + q[0])), fitted[0]))
    if inside.stop < len(score):
        w = float(weight[inside.stop :].sum())
        y = min(max(float(label[inside.stop :].sum()), 0.0), w)
        positives = np.cumsum(np.append(y + p[-1], (weight[inside] * p)[::-1]))
        level = np.log(positives / np.cumsum(np.append(w - y + q[-1], (weight[inside] * q)[::-1])))
        shared = int(np.argmax(np.append(fitted[::-1], -np.inf) <= level))  # scores that share the level
        first = inside.stop - shared
        high, top = float(score[first]), float(level[shared])
        high = max(high - tie, high / 2 + float(score[max(first - 1, 0)]) / 2)
    return replace(curve, limits=(low, high), levels=(bottom, top))


def _averaged(
    features: Array, weight: Array, label: Array, prior_of_tau: Array, slope: tuple[float, float], offset: Array
) -> tuple[Array, Array, float]:
    """Average the fits over τ. Return coefficients, covariance and the posterior probability of the line.

    `slope` is the prior of the slope per spread: mean and precision.
    """
    size, sizes = len(features), [None, *_SPREADS.tolist()]  # no τ is the line
    coefficients, covariances = np.zeros((len(sizes), size)), np.zeros((len(sizes), size, size))
    marginal = np.zeros(len(sizes))
    for i, tau in enumerate(sizes):
        used = 2 if tau is None else size
        mean, precision = np.zeros(used), np.full(used, (tau or 1.0) ** -2)
        mean[1], precision[:2] = slope[0], (0.0, slope[1])
        fit = fit_logistic(
            features[:used],
            weight,
            label,
            offset=offset,
            prior_mean=mean,
            prior_precision=precision,
            start=coefficients[i - 1, :used],
        )
        coefficients[i, :used], covariances[i, :used, :used] = fit.coefficients, fit.covariance
        # The log marginal likelihood (Laplace) but for the labels.
        prior = (used - 2) * np.log(tau or 1.0) + 0.5 * float(precision @ np.square(fit.coefficients - mean))
        marginal[i] = -0.5 * fit.log_determinant - prior
    # The log likelihood of many precise probabilities is so large that its rounding would show in differences, so the
    # difference of each fit from the last is summed up.
    last = offset + coefficients[-1] @ features
    away = np.minimum((coefficients - coefficients[-1]) @ features, 500.0)  # no overflow
    marginal += (label * away - weight * np.log1p(logistic(last) * np.expm1(away))).sum(axis=1)
    posterior = prior_of_tau * np.exp(marginal - marginal.max())
    posterior /= posterior.sum()
    posterior = np.where(posterior < _LEAST_POSTERIOR, 0.0, posterior)
    posterior /= posterior.sum()
    mean = posterior @ coefficients
    away = coefficients - mean
    covariance = np.einsum("t,tij->ij", posterior, covariances) + (away.T * posterior) @ away
    return mean, covariance, float(posterior[0])


def monotone_curve(x: Array, y: Array) -> Curve:
    """Return a strictly increasing curve near the points (x, y), extrapolated with the slopes at its ends.

    `x` increases strictly. Where `y` falls, values are pooled by isotonic regression.
    """
    level = increasing(x, y)
    slopes = np.diff(level)[[0, -1]] / np.diff(x)[[0, -1]] if len(x) > 1 else (MIN_SLOPE, MIN_SLOPE)
    return Curve(x.tolist(), level.tolist(), float(max(slopes[0], MIN_SLOPE)), float(max(slopes[1], MIN_SLOPE)))


def increasing(x: Array, y: Array) -> Array:
    """Return strictly increasing values near `y`."""
    from scipy.optimize import isotonic_regression

    tie = MIN_SLOPE * (x - x[0])
    level: Array = isotonic_regression(y - tie).x + tie
    return level
