"""How the log odds of labels differ from those of a map: a level, a slope and a curve, as far as the labels show them.

The log odds of the labels are z + level + slope · (z − center) + curve(z), where z are the log odds of the predictions.
Nested models (no drift, a level, a level and a slope, a curve too) with normal priors of several sizes are compared by
their marginal likelihood. The map that served until now is the mean of every prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..calibration.logistic import fit_logistic
from ..calibration.spline import MIN_KNOTS, Basis, distinct_knots, make_basis
from ..links import logistic
from ..threads import one_blas_thread

# Prior probabilities of no drift, of a level, of a level and a slope, and of a curve too. One half for no drift: most
# days are like the day before. Each further part is less likely than the one before it.
_PRIOR = np.array([0.5, 0.25, 0.15, 0.1])
# Sizes of a drift, in log odds, and their probabilities: 5% and 15% happen from one refresh to the next; 50% is a new
# kind of traffic or of labels. A factor of three between neighbours is finer than labels can resolve.
_SIZES, _SIZE_PRIOR = np.array([0.05, 0.15, 0.5]), np.array([0.4, 0.4, 0.2])
_SLOPE = 0.5  # size of the slope relative to the level: both move predictions alike two log odds above the center
_CURVE = 0.3  # size of the bends relative to the level, see `calibration.spline`: smaller than what a line explains
_SUPPORTED = 0.75  # three to one: probability from which a part is called supported, and from which a curve is used
# Quantiles of z at the knots of the curve: closer towards the top, where rows are selected. Bends are small and smooth,
# so few knots are enough.
_LEVELS = np.array([0.01, 0.2, 0.5, 0.8, 0.95, 0.99])
_CELLS_PER_SPREAD = 256  # merge cells within 1/256 of a spread: a limit of memory and time, not of precision
_FENCE = 3.0  # see `_inside`
_NO_VARIANCE = 1e-14  # a direction with less prior variance is certain

PARTS = ("nothing", "level", "slope", "curve")


@dataclass(frozen=True)
class Known:
    """What earlier labels left uncertain: the covariance of level and slope about `center`."""

    center: float
    covariance: Array

    def about(self, center: float) -> Array:
        """Return the covariance of level and slope about another center."""
        move = np.array([[1.0, center - self.center], [0.0, 1.0]])
        return np.asarray(move @ self.covariance @ move.T)


@dataclass(frozen=True)
class Drift:
    """Posterior of the drift: mean and covariance of level, slope and bends of a curve in (z − center) / spread.

    `center` and `spread` of z are weighted by the information of the labels. `error_covariance` holds the mean squared
    errors if level and slope have drifted; it is larger than `covariance`, in which the probability of no drift counts.
    `probabilities` are those that the level has drifted, the slope too, and the curve too. `basis` is None without a
    curve.
    """

    center: float
    spread: float
    basis: Basis | None
    coefficients: Array
    covariance: Array
    error_covariance: Array
    probabilities: Array

    @property
    def supported(self) -> str:
        """The largest part that the labels support: "nothing", "level", "slope" or "curve"."""
        return PARTS[int(np.sum(np.cumprod(self.probabilities > _SUPPORTED)))]

    def features(self, z: Array) -> Array:
        """Return the functions of z whose sum is the drift, shape (K, n)."""
        return _features(z, self.center, self.spread, self.basis)

    def change(self, z: Array) -> Array:
        """Return the drift of the log odds at z."""
        return np.asarray(self.coefficients @ self.features(z))


def fit_drift(z: Array, weight: Array, label: Array, known: Known | None) -> Drift:
    """Compare labels with the log odds z of predictions, cell by cell, and return the posterior of their drift.

    Level and slope are averaged over all models, weighted by their posterior probability. The curve is used only if it
    is supported, so that a straight line otherwise stays one. `weight` and `label` are effective rows and positives.
    `known` is what earlier labels left uncertain; without it the map is taken as certain before it drifts.
    """
    inside = _inside(z, weight)  # outliers show nothing of the others, and their leverage is extreme
    z, weight, label = z[inside], weight[inside], label[inside]
    p = logistic(z)
    information = weight * p * (1 - p)
    center = float(information @ z / information.sum())
    spread = float(np.sqrt(weight @ np.square(z - weight @ z / weight.sum()) / weight.sum()))
    z, weight, label = _merged(z, weight, label, spread / _CELLS_PER_SPREAD)
    basis = _basis(z, weight, center, spread)
    features = _features(z, center, spread, basis)
    size = len(features)
    before = np.zeros((size, size))
    if known is not None:
        before[:2, :2] = known.about(center)
    parts, fits, evidence = [], [], []
    with one_blas_thread():
        for part, sd, prior in _models(basis is not None):
            used = size if part == 3 else 2
            variance = np.zeros(used)
            variance[:1] = sd**2 * (part >= 1)
            variance[1:2] = (_SLOPE * sd) ** 2 * (part >= 2)
            variance[2:] = (_CURVE * sd) ** 2
            mean, covariance = np.zeros(size), np.zeros((size, size))
            mean[:used], covariance[:used, :used], likelihood = _fit(
                features[:used], weight, label, z, before[:used, :used] + np.diag(variance)
            )
            parts.append(part)
            fits.append((mean, covariance))
            evidence.append(likelihood + np.log(prior))
    part_of, posterior = np.array(parts), np.exp(np.array(evidence) - max(evidence))
    posterior /= posterior.sum()
    probabilities = np.array([posterior[part_of >= part].sum() for part in (1, 2, 3)])
    if probabilities[2] <= _SUPPORTED:
        posterior = np.where(part_of < 3, posterior, 0.0) / posterior[part_of < 3].sum()
        basis, size = None, 2
    means, covariances = np.stack([m[:size] for m, _ in fits]), np.stack([c[:size, :size] for _, c in fits])
    mean = posterior @ means
    squares = covariances + np.einsum("mi,mj->mij", means - mean, means - mean)
    drifted = np.where(part_of >= 2, posterior, 0.0)
    covariance, errors = (np.einsum("m,mij->ij", p / p.sum(), squares) for p in (posterior, drifted))
    return Drift(center, spread, basis, mean, covariance, errors, probabilities)


def _features(z: Array, center: float, spread: float, basis: Basis | None) -> Array:
    line = np.stack([np.ones_like(z), z - center])
    return line if basis is None else np.vstack([line, basis((z - center) / spread)[2:]])


def _models(curve: bool) -> list[tuple[int, float, float]]:
    """Return part, size and prior weight of every model; only ratios of weights matter, so a curve may be missing."""
    prior = _PRIOR if curve else _PRIOR[:3]
    drifts = [
        (part, float(size), float(prior[part] * share))
        for part in range(1, len(prior))
        for size, share in zip(_SIZES, _SIZE_PRIOR, strict=True)
    ]
    return [(0, 0.0, float(prior[0])), *drifts]


def _fit(features: Array, weight: Array, label: Array, z: Array, prior: Array) -> tuple[Array, Array, float]:
    """Return posterior mean, covariance and log marginal likelihood (Laplace) under a normal prior about 0."""
    values, vectors = np.linalg.eigh(prior)
    free = values > _NO_VARIANCE
    root = vectors[:, free] * np.sqrt(values[free])
    if not free.any():
        loss = label * np.logaddexp(0.0, -z) + (weight - label) * np.logaddexp(0.0, z)
        return np.zeros(len(prior)), np.zeros_like(prior), -float(loss.sum())
    fit = fit_logistic(root.T @ features, weight, label, offset=z, prior_precision=np.ones(int(free.sum())))
    mean, covariance = root @ fit.coefficients, root @ fit.covariance @ root.T
    return mean, covariance, fit.log_likelihood - 0.5 * fit.log_determinant


def _basis(z: Array, weight: Array, center: float, spread: float) -> Basis | None:
    """Return the basis of the curve; None if the predictions have too few different values."""
    if not spread > 0:
        return None
    knots = distinct_knots(_LEVELS, (z - center) / spread, weight)
    return make_basis(knots) if len(knots) >= MIN_KNOTS else None


def _inside(z: Array, weight: Array) -> NDArray[np.bool_]:
    """Mark all but outliers: outside the 1% to 99% range by 3 times its distance to the median (9 normal sd)."""
    low, middle, high = np.quantile(z, [0.01, 0.5, 0.99], weights=weight, method="inverted_cdf")
    return np.asarray((z >= low - _FENCE * (middle - low)) & (z <= high + _FENCE * (high - middle)))


def _merged(z: Array, weight: Array, label: Array, width: float) -> tuple[Array, Array, Array]:
    """Sort cells by z, and merge those in the same interval of this width."""
    keys = np.floor((z - z.min()) / width) if width > 0 else np.zeros(len(z))
    place = np.unique(keys, return_inverse=True)[1]
    total = np.bincount(place, weight)
    return (
        np.bincount(place, weight * z) / total,
        np.asarray(total, np.float64),
        np.bincount(place, label).astype(float),
    )
