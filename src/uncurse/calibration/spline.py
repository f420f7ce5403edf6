"""Smooth curves of the log odds whose complexity is chosen from the data: a straight line at one end.

A natural cubic spline with twelve knots. Its line is free; its bends are drawn from a normal prior, whose spread τ is
averaged over by marginal likelihood. So little data gives Platt's two parameters, and much data a curve, without a
choice in between that a few rows could tip. The same fit serves labels (a calibrator) and probabilities (a projection,
whose scatter is not that of a coin and is estimated).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._types import Array
from ..links import logistic
from ..maps import Curve
from ..threads import one_blas_thread

# Shares of the weight below each knot: closer towards the top, which is what gets selected.
_LEVELS = np.array([0.001, 0.02, 0.1, 0.25, 0.45, 0.65, 0.8, 0.9, 0.96, 0.987, 0.997, 0.9995])
# Spreads of the prior, in logits: how far bends may take the curve from its line over a few spreads of the score.
_SPREADS = np.array([0.01, 0.03, 0.1, 0.3, 1.0])
_PRIOR = np.array([0.5, 0.15, 0.15, 0.12, 0.06, 0.02])  # of the line itself, then of each spread
_LEAST_SHARE = 0.025
_STEPS_PER_SPREAD = 256
_REACH = 3.0  # spreads beyond the outer knots
_RUN = 64  # cells that tell how much probabilities scatter
_TIE = 1e-6  # the least slope: enough to break ties


@dataclass(frozen=True)
class Smooth:
    """A fitted curve of the log odds, with the covariance of its coefficients."""

    center: float
    spread: float
    basis: Basis
    coefficients: Array
    covariance: Array
    line_probability: float  # that there is no bend at all; curves that hardly bend share the rest

    def features(self, x: Array) -> Array:
        """(K, n): what the coefficients multiply."""
        return self.basis((x - self.center) / self.spread)

    def __call__(self, x: Array) -> Array:
        """Log odds at scores `x`."""
        result: Array = self.coefficients @ self.features(x)
        return result

    def moved(self, level: float, tilt: float) -> Smooth:
        """The same curve, `level` higher and steeper by `tilt` for each spread of the score."""
        coefficients = self.coefficients.copy()
        coefficients[:2] += level, tilt
        return replace(self, coefficients=coefficients)

    def map(self, count: int = 128) -> Curve:
        """As a score map, made to rise where it falls; beyond the outer knots it is a straight line."""
        knots = self.basis.knots * self.spread + self.center
        x = np.unique(np.concatenate([np.linspace(knots[0], knots[-1], count), knots]))
        return rising(x, self(x))


@dataclass(frozen=True)
class Basis:
    """Natural cubic splines through `knots`: two columns of a line, then bends that are independent a priori."""

    knots: Array
    change: Array  # (K, K): values at the knots by coefficient
    second: Array  # (K, K): second derivatives at the knots by value there

    def __call__(self, x: Array) -> Array:
        k, h = self.knots, np.diff(self.knots)
        j = np.clip(np.searchsorted(k, x, side="right") - 1, 0, len(h) - 1)
        inner = np.clip(x, k[0], k[-1])
        up, down, width = inner - k[j], k[j + 1] - inner, h[j]
        values = np.zeros((len(k), len(x)))
        rows = np.arange(len(x))
        values[j, rows] += down / width
        values[j + 1, rows] += up / width
        values += self.second[j].T * ((down**3 / width - width * down) / 6)
        values += self.second[j + 1].T * ((up**3 / width - width * up) / 6)
        # Beyond the knots a straight line, as steep as the curve ends.
        for beyond, end in ((np.minimum(x - k[0], 0.0), 0), (np.maximum(x - k[-1], 0.0), -1)):
            if beyond.any():
                values += np.outer(self._end_slope(end), beyond)
        result: Array = self.change.T @ values
        return result

    def _end_slope(self, end: int) -> Array:
        i, h = (0, np.diff(self.knots)[0]) if end == 0 else (len(self.knots) - 2, np.diff(self.knots)[-1])
        slope = np.zeros(len(self.knots))
        slope[i], slope[i + 1] = -1 / h, 1 / h
        sixth = h / 6
        result: Array = slope - sixth * (self.second[i + 1] if end == 0 else -self.second[i])
        return result


def make_basis(knots: Array) -> Basis:
    """The basis with ∫ f''² as the penalty of its bends."""
    h, count = np.diff(knots), len(knots)
    difference = np.zeros((count - 2, count))
    band = np.zeros((count - 2, count - 2))
    for i in range(count - 2):
        difference[i, i : i + 3] = 1 / h[i], -1 / h[i] - 1 / h[i + 1], 1 / h[i + 1]
        band[i, i] = (h[i] + h[i + 1]) / 3
        if i:
            band[i, i - 1] = band[i - 1, i] = h[i] / 6
    inner = np.linalg.solve(band, difference)
    second = np.zeros((count, count))
    second[1:-1] = inner
    penalty = difference.T @ inner
    values, vectors = np.linalg.eigh(penalty)
    bends = vectors[:, 2:] / np.sqrt(values[2:])
    return Basis(knots, np.column_stack([np.ones(count), knots, bends]), second)


def fit_smooth(
    score: Array, weight: Array, label: Array, *, scatter: bool = False, slope: tuple[float, float] | None = None
) -> Smooth:
    """The curve of P(label) over `score`, both summed up in cells of ascending score.

    With ``scatter`` labels are probabilities, whose variance about the curve is estimated rather than p(1 − p).
    ``slope`` is what is known of the slope beforehand: a mean and a standard deviation.
    """
    center, spread = _middle(score, weight)
    z, w, y = _condensed((score - center) / spread, weight, label)
    reached = (np.cumsum(w) - w / 2) / w.sum()
    knots = np.unique(np.interp(_LEVELS, reached, z))
    knots = knots[np.concatenate([[True], np.diff(knots) > 0.05])]
    if len(knots) < 4:
        knots = np.linspace(z[0], z[-1], 4)
    basis = make_basis(knots)
    z = np.clip(z, knots[0] - _REACH, knots[-1] + _REACH)  # a row far out has a lever as long
    with one_blas_thread():
        known = (0.0, 0.0) if slope is None else (slope[0] * spread, 1 / (slope[1] * spread) ** 2)
        return _averaged(center, spread, basis, basis(z), w, y, scatter, known)


def _averaged(
    center: float,
    spread: float,
    basis: Basis,
    features: Array,
    w: Array,
    y: Array,
    scatter: bool,
    known: tuple[float, float],
) -> Smooth:
    size = len(features)
    scale = np.ones(len(w))
    fits: list[tuple[Array, Array, float]] = []
    start = np.zeros(size)
    start[0] = np.log(y.sum() / (w - y).sum())
    start[1] = 1e-3
    if scatter:
        loose = _penalised(features, w, y, _SPREADS[-1], start, known)[0]
        p = logistic(loose @ features)
        scale = _dispersion(np.square(y - w * p) / (w * p * (1 - p))) * len(w) / max(len(w) - size, 1)
    for tau in [0.0, *_SPREADS]:
        coefficients, hessian, value = _penalised(features, w / scale, y / scale, tau, start, known)
        fits.append((coefficients, hessian, value))
        start = coefficients
    values = np.array([f[2] for f in fits])
    share = _PRIOR * np.exp(values - values.max())
    share /= share.sum()
    share = np.where(share < _LEAST_SHARE, 0.0, share)  # so that what is hardly possible does not rule the covariance
    share /= share.sum()
    mean = sum(s * f[0] for s, f in zip(share, fits, strict=True))
    covariance = np.zeros((size, size))
    for s, (coefficients, inverse, _) in zip(share, fits, strict=True):
        covariance += s * (inverse + np.outer(coefficients - mean, coefficients - mean))
    return Smooth(center, spread, basis, np.asarray(mean), covariance, float(share[0]))


def _penalised(
    features: Array, w: Array, y: Array, tau: float, start: Array, known: tuple[float, float]
) -> tuple[Array, Array, float]:
    """Coefficients, their covariance and the log marginal likelihood (Laplace) where bends have the spread τ.

    `known` is what is known of the slope: a value, and one over its variance.
    """
    size = len(features)
    used = size if tau > 0 else 2
    x = features[:used]
    ridge = np.zeros(used)
    ridge[2:] = 1 / tau**2 if tau > 0 else 0.0
    middle = np.zeros(used)
    middle[1], ridge[1] = known
    b = start[:used].copy()

    def objective(b: Array) -> float:
        l = b @ x
        return float(y @ l - w @ np.logaddexp(0.0, l) - 0.5 * ridge @ np.square(b - middle))

    value = objective(b)
    hessian = np.eye(used)
    for _ in range(50):
        p = logistic(b @ x)
        gradient = x @ (y - w * p) - ridge * (b - middle)
        hessian = (x * (w * p * (1 - p))) @ x.T + np.diag(ridge)
        step = np.linalg.solve(hessian + 1e-12 * np.trace(hessian) / used * np.eye(used), gradient)
        if gradient @ step < 1e-10:
            break
        length = 1.0
        while (new := objective(b + length * step)) < value - 1e-12 * abs(value) and length > 1e-6:
            length /= 2
        b, value = b + length * step, new
    _, logdet = np.linalg.slogdet(hessian)
    marginal = value - 0.5 * logdet - ((used - 2) * np.log(tau) if tau > 0 else 0.0)
    coefficients, covariance = np.zeros(size), np.zeros((size, size))
    coefficients[:used] = b
    covariance[:used, :used] = np.linalg.inv(hessian + 1e-12 * np.trace(hessian) / used * np.eye(used))
    return coefficients, covariance, float(marginal)


def _dispersion(pearson: Array) -> Array:
    """The variance about the curve in units of p(1 − p): probabilities scatter more where they are high."""
    starts = np.arange(0, max(len(pearson) - _RUN + 1, 1), _RUN)
    means = np.add.reduceat(pearson, starts) / np.diff(starts, append=len(pearson))
    means = np.maximum(means, 1e-12 + 1e-6 * means.max())
    return np.asarray(np.exp(np.interp(np.arange(len(pearson)), starts + _RUN / 2, np.log(means))))


def _middle(score: Array, weight: Array) -> tuple[float, float]:
    """Median and half of what holds two thirds of the weight: a few rows far out do not matter."""
    reached = (np.cumsum(weight) - weight / 2) / weight.sum()
    low, center, high = np.interp([1 / 6, 0.5, 5 / 6], reached, score)
    spread = (high - low) / 2
    if spread <= 0:
        mean = float(weight @ score / weight.sum())
        spread = np.sqrt(weight @ np.square(score - mean) / weight.sum())
    return float(center), float(spread)


def _condensed(z: Array, w: Array, y: Array) -> tuple[Array, Array, Array]:
    """Cells of a 256th of a spread: a curve this smooth sees no difference."""
    keys = np.floor(z * _STEPS_PER_SPREAD)
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    total = np.add.reduceat(w, starts)
    return np.add.reduceat(w * z, starts) / total, total, np.add.reduceat(y, starts)


def rising(x: Array, y: Array, weight: Array | None = None) -> Curve:
    """A curve through points, made to rise strictly, going on at its ends as steeply as there."""
    from scipy.optimize import isotonic_regression

    level = np.asarray(isotonic_regression(y - _TIE * x, weights=weight).x) + _TIE * x
    slopes = np.diff(level)[[0, -1]] / np.diff(x)[[0, -1]]
    return Curve(x.tolist(), level.tolist(), float(max(slopes[0], _TIE)), float(max(slopes[1], _TIE)))


__all__ = ["Smooth", "fit_smooth", "rising"]
