"""The arithmetic of shrinking: how much is noise, what a bent link does to it, and how small groups borrow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..links import logistic
from ..maps import Affine, Curve, ScoreMap, logit_knots


def noise_variance(covariance: Array, replicas: str = "seeds") -> Array:
    """V from the S×S covariance (ddof 0) of replica scores; leading axes are kept.

    ``seeds``: (tr C − 1ᵀC1/S) / (S − 1), the mean over rows of the variance across centred replicas.
    ``bootstrap``: the same over columns 1…, column 0 being served and no bootstrap itself.
    ``anchored``: the mean over bootstraps b of Var(l_b − l_served): each is the served fit plus one noise.

    >>> round(float(noise_variance(np.array([[1.0, 0.8], [0.8, 1.0]]))), 6)
    0.2
    """
    if replicas == "anchored":
        others = np.diagonal(covariance, axis1=-2, axis2=-1)[..., 1:]
        return np.asarray((others + covariance[..., :1, 0] - 2 * covariance[..., 0, 1:]).mean(axis=-1))
    c = covariance[..., 1:, 1:] if replicas == "bootstrap" else covariance
    size = c.shape[-1]
    return np.asarray((np.trace(c, axis1=-2, axis2=-1) - c.sum(axis=(-2, -1)) / size) / (size - 1))


def group_lambdas(
    own: Array,
    spread: Array,
    weight: Array,
    known: NDArray[np.bool_],
    whole: float,
    *,
    others: int,
    served_in_noise: bool,
) -> Array:
    """λ of each group, pulled towards λ within groups; those not `known` get it, and the whole's where none is.

    What groups share is λ within them: the spread of their centres is not theirs to shrink. Errors are by normal
    theory there, so they depend on neither row order nor a few rows' luck: the variance of log(V / Var) is 2/n for the
    served scores, 2/(n · others) for V from so many differences (none where V is given), less what the two have in
    common where the served score is one of the replicas.
    """
    within = whole
    if known.any():
        within = 1 - float(weight[known] @ ((1 - own) * spread)[known]) / float(weight[known] @ spread[known])
    factor = 1 + (1 / others if others else 0.0)
    if others and served_in_noise:
        factor -= 2 * (1 - within) / (others + 1)
    error = (1 - within) * np.sqrt(2 / weight * factor)
    return pull_towards(within, np.where(known, own, within), np.where(known, error, np.inf))


def pull_towards(whole: float, values: Array, errors: Array) -> Array:
    """Empirical Bayes: the spread τ² between groups by DerSimonian and Laird, then τ²/(τ² + s²) of each group's own.

    >>> pull_towards(0.0, np.array([-1.0, 1.0, 1.0]), np.array([0.1, 0.1, np.inf])).round(2)
    array([-1.,  1.,  0.])
    """
    known = np.isfinite(errors) & (errors > 0)
    if known.sum() < 2:
        return np.where(errors == 0, values, whole)
    w = 1 / np.square(errors[known])
    mean = np.average(values[known], weights=w)
    excess = w @ np.square(values[known] - mean) - (known.sum() - 1)
    between = max(0.0, excess / (w.sum() - np.square(w).sum() / w.sum()))
    share = between / (between + np.square(errors))
    return np.asarray(whole + share * (values - whole))


def curved(slope: float, center: float, noise: float, link: str) -> ScoreMap:
    """The map E[φ(l*) | l] where l* | l is normal with mean λl + (1 − λ)c and variance τ² = λV.

    Exact for the identity, log and probit links; a curve through 256 points of a Gauss–Hermite rule for the logistic.
    """
    intercept = (1 - slope) * center
    variance = slope * noise
    if link == "identity" or slope == 0:
        return Affine(slope, intercept, link)
    if link == "log":
        return Affine(slope, intercept + variance / 2, link)
    if link == "probit":
        root = np.sqrt(1 + variance)
        return Affine(float(slope / root), float(intercept / root), link)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    m = logit_knots()
    l = m[:, None] + np.sqrt(variance) * nodes
    # The mean of φ and of 1 − φ apart, so that neither tail loses digits.
    odds = (logistic(l) @ weights) / (logistic(-l) @ weights)
    return Curve(((m - intercept) / slope).tolist(), np.log(odds).tolist(), slope, slope)


__all__ = ["curved", "group_lambdas", "noise_variance", "pull_towards"]
