"""Links: strictly increasing functions φ from a score l to a prediction f = φ(l).

Scores arrive on one of three scales: ``"logit"``, ``"probability"`` (in [0, 1]) or ``"value"`` (any number, for
regression). `to_link` converts them to the scores of a link.

To add a link, list it in `_LINKS`, and its name in `cli/options.py`. Its formulas in other languages are in
`serving/export/` and `logs/lazy_maps.py`, and that of the curvature in `debias/shrinkage.py`; these refuse others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ._types import Float
from .errors import UncurseError
from .validation import SCALES, check_choice, check_numbers


@dataclass(frozen=True)
class Link:
    """A strictly increasing function φ with its inverse and its derivative.

    Parameters
    ----------
    name : str
        Name of the link.
    phi, inverse, slope : callable
        φ, φ⁻¹ and φ' as functions of an array.
    lower, upper : float
        Bounds of the predictions.

    Examples
    --------
    >>> link = get_link("logistic")
    >>> float(link.phi(np.array(0.0))), float(link.inverse(np.array(0.5)))
    (0.5, 0.0)
    """

    name: str
    phi: Callable[[Float], Float]
    inverse: Callable[[Float], Float]
    slope: Callable[[Float], Float]
    lower: float
    upper: float


def logistic(scores: ArrayLike) -> Float:
    """Compute 1 / (1 + exp(−l)), clipped into the open interval (0, 1).

    Parameters
    ----------
    scores : array-like
        Logits of any shape.

    Returns
    -------
    ndarray of float32 or float64
        Probabilities, never exactly 0 or 1.

    Examples
    --------
    >>> logistic(np.array([-800.0, 0.0, 800.0])) > 0
    array([ True,  True,  True])
    """
    result = np.asarray(np.negative(check_numbers(scores, "scores")))
    with np.errstate(over="ignore"):
        np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return inside(result, 0.0, 1.0, out=result)


def inside(values: Float, lower: float, upper: float, out: Float | None = None) -> Float:
    """Clip into the open interval (lower, upper), to the nearest float of the same dtype; NaN stays NaN.

    Just above 0 means the smallest normal float.

    >>> inside(np.array([-1.0, 0.5, np.inf]), -np.inf, np.inf)
    array([-1.00000000e+000,  5.00000000e-001,  1.79769313e+308])
    """
    dtype = np.asarray(values).dtype
    low = np.finfo(dtype).tiny if lower == 0.0 else np.nextafter(dtype.type(lower), dtype.type(np.inf))
    high = np.nextafter(dtype.type(upper), dtype.type(-np.inf))
    return np.clip(values, low, high, out=out)


def logit(probabilities: ArrayLike) -> Float:
    """Compute log(p / (1 − p)); 0 and 1 give the largest finite logits of the dtype.

    Parameters
    ----------
    probabilities : array-like
        Values of any shape; those outside (0, 1) are clipped.

    Returns
    -------
    ndarray of float32 or float64
        Finite logits.

    Examples
    --------
    >>> logit([0.5, 1.0]).round(2)
    array([ 0.  , 36.74])
    """
    p = inside(check_numbers(probabilities, "probabilities"), 0.0, 1.0)
    return np.log(p) - np.log1p(-p)


def normal_cdf(scores: ArrayLike) -> Float:
    """Compute the distribution function of the standard normal."""
    from scipy.special import ndtr  # slow to import

    return ndtr(check_numbers(scores, "scores"))


def _logistic_slope(scores: Float) -> Float:
    return logistic(scores) * logistic(np.negative(scores))


def _normal_density(scores: Float) -> Float:
    with np.errstate(over="ignore"):
        return np.exp(-0.5 * np.square(scores)) / math.sqrt(2 * math.pi)


def _probit_inverse(probabilities: Float) -> Float:
    from scipy.special import ndtri  # slow to import

    return ndtri(inside(check_numbers(probabilities, "probabilities"), 0.0, 1.0))


def _exp(scores: Float) -> Float:
    with np.errstate(over="ignore"):
        return np.exp(check_numbers(scores, "scores"))


def _log_inverse(values: Float) -> Float:
    values = check_numbers(values, "values")
    return np.log(np.maximum(values, np.finfo(values.dtype).tiny))


_LINKS = {
    link.name: link
    for link in (
        Link("logistic", logistic, logit, _logistic_slope, 0.0, 1.0),
        Link("identity", np.asarray, np.asarray, np.ones_like, -np.inf, np.inf),
        Link("log", _exp, _log_inverse, _exp, 0.0, np.inf),
        Link("probit", lambda l: inside(normal_cdf(l), 0.0, 1.0), _probit_inverse, _normal_density, 0.0, 1.0),
    )
}

#: Names of the links.
LINKS = tuple(_LINKS)


def get_link(name: str) -> Link:
    """Return a link by its name.

    Parameters
    ----------
    name : {"logistic", "identity", "log", "probit"}
        Name of the link.

    Returns
    -------
    Link
        The link.

    Examples
    --------
    >>> get_link("log").phi(np.array([0.0]))
    array([1.])
    """
    return _LINKS[check_choice("link", name, LINKS)]


def check_space(link: str, scale: str) -> None:
    """Raise an error unless scores on `scale` have scores of `link`."""
    check_choice("scale", scale, SCALES)
    if np.isfinite(get_link(link).upper) and scale == "value":
        raise UncurseError(f"scale='value' has no {link} score; use the identity or the log link")


def to_link(scores: ArrayLike, scale: str, link: str) -> Float:
    """Convert scores on `scale` to scores of `link`: l = φ⁻¹(f).

    Parameters
    ----------
    scores : array-like
        Scores of any shape. Logits of the logistic link are returned without a copy.
    scale : {"logit", "probability", "value"}
        Scale of the scores.
    link : {"logistic", "identity", "log", "probit"}
        Name of the link.

    Returns
    -------
    ndarray of float32 or float64
        Scores of the link.

    Examples
    --------
    >>> to_link([0.5, 0.25], "probability", "identity")
    array([0.5 , 0.25])
    """
    check_choice("scale", scale, SCALES)
    target, values = get_link(link), check_numbers(scores, "scores")
    if scale == "logit" and target.name == "logistic":
        return values
    return target.inverse(logistic(values) if scale == "logit" else values)


__all__ = ["LINKS", "Link", "get_link", "logistic", "logit", "to_link"]
