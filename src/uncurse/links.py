"""Links: strictly increasing functions φ from a score l to a prediction f = φ(l).

Scores arrive on one of three scales: ``"logit"``, ``"probability"`` (in [0, 1]) or ``"value"`` (any number, for
regression). `to_link` converts them to the scores of a link.

To add a link, list it in `_LINKS`, its functions in exports in `maps/program.py`, and the formula of its curvature in
`methods/shrinkage.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ._types import Float
from .errors import UncurseError
from .validation import SCALES, check_choice, check_numbers


@dataclass(frozen=True)
class Link:
    """A strictly increasing function φ and its inverse, as functions of an array of floats."""

    name: str
    phi: Callable[[Float], Float]
    inverse: Callable[[Float], Float]
    lower: float  # bounds of the predictions
    upper: float


def logistic(scores: ArrayLike) -> Float:
    """Compute 1 / (1 + exp(−l)), clipped into the open interval (0, 1).

    >>> logistic(np.array([-800.0, 0.0, 800.0])) > 0
    array([ True,  True,  True])
    """
    result = np.asarray(np.negative(check_numbers(scores, "scores")))
    with np.errstate(over="ignore"):
        np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return inside(result, 0.0, 1.0, out=result)


def logit(probabilities: ArrayLike) -> Float:
    """Compute log(p / (1 − p)); values outside (0, 1) give the largest finite logits of the dtype.

    >>> logit([0.5, 1.0]).round(2)
    array([ 0.  , 36.74])
    """
    p = inside(check_numbers(probabilities, "probabilities"), 0.0, 1.0)
    return np.log(p) - np.log1p(-p)


def inside(values: Float, lower: float, upper: float, out: Float | None = None) -> Float:
    """Clip into the open interval (lower, upper), to the nearest float of the same dtype; NaN stays NaN.

    Just above 0 means the smallest normal float.
    """
    dtype = np.asarray(values).dtype
    low = np.finfo(dtype).tiny if lower == 0.0 else np.nextafter(dtype.type(lower), dtype.type(np.inf))
    high = np.nextafter(dtype.type(upper), dtype.type(-np.inf))
    return np.clip(values, low, high, out=out)


def _exp(scores: Float) -> Float:
    with np.errstate(over="ignore"):
        return np.exp(scores)


def _log(values: Float) -> Float:
    return np.log(np.maximum(values, np.finfo(values.dtype).tiny))


_LINKS = {
    link.name: link
    for link in (
        Link("logistic", logistic, logit, 0.0, 1.0),
        Link("identity", np.asarray, np.asarray, -np.inf, np.inf),
        Link("log", _exp, _log, 0.0, np.inf),
    )
}

#: Names of the links.
LINKS = tuple(_LINKS)


def get_link(name: str) -> Link:
    """Return a link by its name."""
    return _LINKS[check_choice("link", name, LINKS)]


def check_space(link: str, scale: str) -> None:
    """Raise an error unless scores on `scale` have scores of `link`."""
    check_choice("scale", scale, SCALES)
    if np.isfinite(get_link(link).upper) and scale == "value":
        raise UncurseError(f"scale='value' has no {link} score; use the identity or the log link")


def to_link(scores: Float, scale: str, link: str) -> Float:
    """Convert an array of scores on `scale` to scores of `link`, l = φ⁻¹(f); logits of the logistic are not copied."""
    if scale == "logit" and link == "logistic":
        return scores
    return get_link(link).inverse(logistic(scores) if scale == "logit" else scores)


__all__ = ["logistic", "logit"]
