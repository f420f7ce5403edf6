"""Links between a prediction and the score behind it, and the one place where input is checked.

A link φ turns a score l into a prediction f = φ(l). Scores arrive on one of three *scales*:
``"logit"``, ``"probability"`` (in [0, 1]) or ``"value"`` (any number, for regression).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ._types import Float
from .validation import SCALES, as_floats, check_choice


@dataclass(frozen=True)
class Link:
    """A strictly increasing φ with its inverse and first two derivatives.

    >>> link = get_link("logistic")
    >>> float(link.phi(np.array(0.0))), float(link.inverse(np.array(0.5)))
    (0.5, 0.0)
    """

    name: str
    phi: Callable[[Float], Float]
    inverse: Callable[[Float], Float]
    slope: Callable[[Float], Float]
    bend: Callable[[Float], Float]
    lower: float  # predictions live in [lower, upper]
    upper: float


def logistic(scores: Float) -> Float:
    """1 / (1 + exp(-l)) through numpy's vectorised exp, kept inside (0, 1).

    >>> logistic(np.array([-800.0, 0.0, 800.0])) > 0
    array([ True,  True,  True])
    """
    result = np.asarray(np.negative(as_floats(scores)))
    with np.errstate(over="ignore"):
        np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return inside(result, 0.0, 1.0, out=result)


def inside(values: Float, lower: float, upper: float, out: Float | None = None) -> Float:
    """Clip into the open interval (lower, upper), to the nearest float of its kind."""
    dtype = np.asarray(values).dtype
    low = np.finfo(dtype).tiny if lower == 0.0 else np.nextafter(dtype.type(lower), dtype.type(np.inf))
    high = np.nextafter(dtype.type(upper), dtype.type(-np.inf))
    clipped: Float = np.clip(values, low, high, out=out)
    return clipped


def logit(probabilities: Float) -> Float:
    """log(p / (1 - p)); exact 0 and 1 go to the farthest finite logit of the dtype."""
    p = inside(as_floats(probabilities), 0.0, 1.0)
    result: Float = np.log(p) - np.log1p(-p)
    return result


def _logistic_slope(scores: Float) -> Float:
    p = logistic(scores)
    q = logistic(np.negative(scores))
    result: Float = p * q
    return result


def _logistic_bend(scores: Float) -> Float:
    p = logistic(scores)
    q = logistic(np.negative(scores))
    result: Float = p * q * (q - p)
    return result


def _normal_density(scores: Float) -> Float:
    result: Float = np.exp(-0.5 * np.square(scores)) / math.sqrt(2 * math.pi)
    return result


def normal_cdf(scores: Float) -> Float:
    """The standard normal's distribution function; scipy takes a moment to import, so only for those who need it."""
    from scipy.special import ndtr

    result: Float = ndtr(scores)
    return result


def _probit_inverse(probabilities: Float) -> Float:
    from scipy.special import ndtri

    result: Float = ndtri(inside(as_floats(probabilities), 0.0, 1.0))
    return result


def _exp(scores: Float) -> Float:
    with np.errstate(over="ignore"):
        result: Float = np.exp(as_floats(scores))
    return result


def _log_inverse(values: Float) -> Float:
    values = as_floats(values)
    result: Float = np.log(np.maximum(values, np.finfo(values.dtype).tiny))
    return result


_ONE = (0.0, 1.0)
_LINKS = {
    link.name: link
    for link in (
        Link("logistic", logistic, logit, _logistic_slope, _logistic_bend, *_ONE),
        Link(
            "identity",
            lambda l: np.asarray(l),
            lambda p: np.asarray(p),
            lambda l: np.ones_like(l),
            lambda l: np.zeros_like(l),
            -np.inf,
            np.inf,
        ),
        Link("log", _exp, _log_inverse, _exp, _exp, 0.0, np.inf),
        Link(
            "probit",
            lambda l: inside(normal_cdf(l), *_ONE),
            _probit_inverse,
            _normal_density,
            lambda l: -np.asarray(l) * _normal_density(l),
            *_ONE,
        ),
    )
}

#: Names of the links, for messages and command lines.
LINKS = tuple(_LINKS)


def get_link(name: str) -> Link:
    """The link of that name: ``logistic``, ``identity``, ``log`` or ``probit``."""
    return _LINKS[check_choice("link", name, LINKS)]


def to_link(scores: ArrayLike, scale: str, link: str) -> Float:
    """Scores on `scale`, as scores of `link`: l = φ⁻¹(f). No copy where none is needed.

    >>> to_link([0.5, 0.25], "probability", "identity")
    array([0.5 , 0.25])
    """
    check_choice("scale", scale, SCALES)
    values = as_floats(scores)
    if scale == "logit" and link == "logistic":
        return values
    prediction = logistic(values) if scale == "logit" else values
    return get_link(link).inverse(prediction)


__all__ = ["LINKS", "Link", "get_link", "inside", "logistic", "logit", "normal_cdf", "to_link"]
