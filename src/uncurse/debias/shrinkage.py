"""λ, its error, and shrinkage of groups towards each other."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..links import logistic
from ..maps import Affine, Curve, ScoreMap
from ..maps.shapes import logit_knots

# Sums of squares of identical columns differ by rounding: some 1e-16 of the variance for each of 10,000 rows.
_IDENTICAL = 1e-12


def identical_replicas(noise: float, variance: float) -> bool:
    """Return whether the noise variance is 0 to rounding."""
    return noise <= _IDENTICAL * variance


def lambda_error(shrinkage: float, rows: float, differences: int, served_in_noise: bool) -> float:
    """Return the standard error of λ by normal theory.

    The variance of log(V / Var) is 2/n for the served scores and 2/(n · differences) for V, minus twice their
    covariance if the served score is one of the replicas. `differences` is 0 for a known V.
    """
    factor = 1 + (1 / differences if differences else 0.0)
    if differences and served_in_noise:
        factor -= 2 * (1 - shrinkage) / (differences + 1)
    return abs(1 - shrinkage) * float(np.sqrt(2 / rows * max(factor, 0.0)))


def group_lambdas(
    own: Array, spread: Array, rows: Array, known: NDArray[np.bool_], pool: float, *, differences: int, in_noise: bool
) -> Array:
    """Return λ of each group, shrunk towards the mean λ within groups.

    `own`, `spread` and `rows` are λ, score variance and effective rows of each group, and `known` marks groups with
    their own estimate of λ. If there is none, `pool`, the λ of all rows, is used. For the others see `lambda_error`.
    """
    # The common λ is that within groups: the spread between centers is not noise.
    within = pool
    if known.any():
        n, variance = rows[known], spread[known]
        within = 1 - float(n @ ((1 - own[known]) * variance)) / float(n @ variance)
    error = np.array([lambda_error(within, n, differences, in_noise) for n in rows])
    return shrink_towards(within, np.where(known, own, within), np.where(known, error, np.inf))


def shrink_towards(target: float, values: Array, errors: Array) -> Array:
    """Shrink estimates of groups towards a common value by empirical Bayes; an infinite error means no estimate.

    An estimate with error s has the weight τ²/(τ² + s²), with the variance τ² between groups by DerSimonian and Laird.
    """
    known = np.isfinite(errors) & (errors > 0)
    if known.sum() < 2:
        return np.where(errors == 0, values, target)
    w = 1 / np.square(errors[known])
    mean = np.average(values[known], weights=w)
    excess = w @ np.square(values[known] - mean) - (known.sum() - 1)
    between = max(0.0, excess / (w.sum() - np.square(w).sum() / w.sum()))
    variance = between + np.square(errors)
    share = np.divide(between, variance, out=np.ones_like(variance), where=variance > 0)
    return np.asarray(target + share * (values - target))


@cache
def _nodes() -> tuple[Array, Array]:
    """Return nodes and weights of a Gauss–Hermite rule, which take longer to find than to use."""
    return np.polynomial.hermite_e.hermegauss(61)


def with_curvature(shrinkage: float, center: float, noise: float, link: str) -> ScoreMap:
    """Return the map E[φ(l*) | l] where l* | l is N(λl + (1 − λ)c, λV), with λ, c and V the first arguments.

    It is exact for the identity, log and probit links. For the logistic link it is a curve through 256 points of a
    Gauss–Hermite rule.
    """
    intercept = (1 - shrinkage) * center
    variance = shrinkage * max(noise, 0.0)
    if link == "identity" or shrinkage == 0:
        return Affine(shrinkage, intercept, link)
    if link == "log":
        return Affine(shrinkage, intercept + variance / 2, link)
    if link == "probit":
        root = float(np.sqrt(1 + variance))
        return Affine(shrinkage / root, intercept / root, link)
    if link != "logistic":
        raise UncurseError(f"curvature=True is not known for the {link} link; leave it out")
    nodes, weights = _nodes()
    m = logit_knots()
    l = m[:, None] + np.sqrt(variance) * nodes
    # φ and 1 − φ separately, so that neither tail loses digits.
    odds = (logistic(l) @ weights) / (logistic(-l) @ weights)
    return Curve(((m - intercept) / shrinkage).tolist(), np.log(odds).tolist(), shrinkage, shrinkage)
