"""Links between a prediction and the score behind it, and the one place where input is checked.

A link φ turns a score l into a prediction f = φ(l). Scores arrive on one of three *scales*:
``"logit"``, ``"probability"`` (in [0, 1]) or ``"value"`` (any number, for regression).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.floating[Any]]

#: Scales on which scores may arrive.
SCALES = ("logit", "probability", "value")


class UncurseError(ValueError):
    """Input that cannot be used; the message names the value and the remedy."""


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
    result = np.asarray(np.negative(_floating(scores)))
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
    p = inside(_floating(probabilities), 0.0, 1.0)
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

    result: Float = ndtri(inside(_floating(probabilities), 0.0, 1.0))
    return result


def _exp(scores: Float) -> Float:
    with np.errstate(over="ignore"):
        result: Float = np.exp(_floating(scores))
    return result


def _log_inverse(values: Float) -> Float:
    values = _floating(values)
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
    check_choice("scores", scale, SCALES)
    values = _floating(scores)
    if scale == "logit" and link == "logistic":
        return values
    prediction = logistic(values) if scale == "logit" else values
    return get_link(link).inverse(prediction)


# ---------------------------------------------------------------------------- checks


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`, else an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise UncurseError(f"{name}={value!r} is unknown; choose one of {', '.join(choices)}")
    return value


def check_scores(scores: ArrayLike, scale: str, *, name: str = "scores", ndim: int = 1) -> Float:
    """A floating array of `ndim` dimensions, finite, and inside [0, 1] on the probability scale."""
    check_choice("scores", scale, SCALES)
    values = check_numbers(scores, name)
    if values.ndim != ndim:
        wanted = "one column, shape (n,)" if ndim == 1 else "a column per replica, shape (n, S)"
        raise UncurseError(f"{name} has shape {values.shape}; pass {wanted}")
    if values.size == 0:
        raise UncurseError(f"{name} is empty, shape {values.shape}; pass at least one row")
    check_finite(values, name)
    if scale == "probability":
        low, high = values.min(), values.max()
        if low < 0 or high > 1:
            worst = low if low < 0 else high
            raise UncurseError(
                f"{name} holds {worst:g}, which is not a probability; are these logits? Then say so, or convert them"
            )
    return values


def check_finite(values: Float, name: str) -> None:
    """Raise on the first NaN or infinity, by its place."""
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum is several times faster than isfinite, and any NaN or infinity survives it.
        suspicious = not np.isfinite(values.sum())
    if not suspicious:
        return
    bad = np.flatnonzero(~np.isfinite(values.ravel()))
    if bad.size:
        where = ", ".join(str(i) for i in np.unravel_index(bad[0], values.shape))
        raise UncurseError(
            f"{name}[{where}] is {values.ravel()[bad[0]]} ({bad.size} such values); drop or repair those rows first"
        )


def warn_if_probabilities(values: Float, name: str) -> None:
    """Logits that all lie in [0, 1] are hardly logits; a few thousand rows tell."""
    sample = values[:: max(1, len(values) // 1024)]
    if len(sample) >= 100 and sample.min() >= 0 and sample.max() <= 1:
        warnings.warn(
            f"every value of {name} lies in [0, 1]; if these are probabilities, not logits, say so "
            "(VAD: scores='probability'; calibrate and evidence: scale='probability')",
            UserWarning,
            stacklevel=4,
        )


def check_labels(labels: ArrayLike, rows: int, *, name: str = "labels") -> NDArray[Any]:
    """Binary labels, 0 or 1, one per row."""
    plain = type(labels) is np.ndarray and labels.dtype.kind in "biuf"
    y = np.asarray(labels) if plain else check_numbers(labels, name)
    check_length(y, rows, name)
    if y.dtype == bool:
        return y.view(np.int8)
    if y.dtype.kind in "iu" and (len(y) == 0 or (y.min() >= 0 and y.max() <= 1)):
        return y
    bad = np.flatnonzero((y != 0) & (y != 1))
    if bad.size:
        raise UncurseError(f"{name}[{bad[0]}] is {y[bad[0]]}; labels must be 0 or 1")
    return y


def check_weights(weights: ArrayLike | None, rows: int) -> NDArray[np.float64] | None:
    """Non-negative finite weights, one per row, with a positive sum; None stays None."""
    if weights is None:
        return None
    w = check_numbers(weights, "sample_weight").astype(np.float64, copy=False)
    check_length(w, rows, "sample_weight")
    check_finite(w, "sample_weight")
    if w.size and w.min() < 0:
        raise UncurseError(f"sample_weight holds {w.min():g}; weights must be 0 or more")
    with np.errstate(over="ignore", under="ignore"):
        total, squares = w.sum(), np.dot(w, w)
    if total == 0:
        raise UncurseError("every sample_weight is zero; give some row a positive weight")
    if not (np.isfinite(squares) and squares > 0):
        raise UncurseError(f"sample_weight goes up to {w.max():g}, whose square is no number; rescale the weights")
    return w


def check_length(values: NDArray[Any], rows: int, name: str) -> None:
    """One-dimensional, and as long as the scores."""
    if values.ndim != 1 or len(values) != rows:
        raise UncurseError(f"{name} has shape {values.shape} but there are {rows} scores; pass shape ({rows},)")


def check_names(values: ArrayLike, rows: int, name: str) -> NDArray[Any]:
    """A name (text or number) per row, none missing."""
    names = np.asarray(values)
    check_length(names, rows, name)
    if names.dtype.kind in "fO":
        missing = np.flatnonzero(names != names) if names.dtype.kind == "f" else _missing(names)
        if missing.size:
            raise UncurseError(f"{name}[{missing[0]}] is {names[missing[0]]}; fill what is missing, say with 'unknown'")
    if names.dtype.kind == "f":  # 1 and 1.0 are one name
        return np.array([int(v) if v.is_integer() else v for v in names.tolist()], object).astype(str)
    return names.astype(str) if names.dtype.kind == "O" else names


def _missing(names: NDArray[Any]) -> NDArray[np.intp]:
    return np.flatnonzero([v is None or v != v for v in names.tolist()])


def check_count(value: Any, name: str) -> int:
    """A whole number, at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise UncurseError(f"{name}={value!r}; use at least 1, a whole number")
    return int(value)


def check_share(alpha: float, name: str = "alpha") -> float:
    """A share in (0, 1]."""
    try:
        share = float(alpha)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 < share <= 1:
        raise UncurseError(f"{name}={alpha!r} is not a share; pass a number above 0 and at most 1, such as 0.02")
    return share


def check_numbers(values: ArrayLike, name: str) -> Float:
    """An array of floats, or our error."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UncurseError(f"{name} has masked values; drop or fill those rows first")
    try:
        return _floating(values)
    except (TypeError, ValueError) as error:
        raise UncurseError(f"{name} must be an array of numbers, not {type(values).__name__}: {error}") from None


def _floating(values: ArrayLike) -> Float:
    array = np.asarray(values)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"dtype {array.dtype}; convert it to float first")
    return array.astype(np.float64)


__all__ = [
    "LINKS",
    "SCALES",
    "Link",
    "UncurseError",
    "check_choice",
    "check_count",
    "check_finite",
    "check_labels",
    "check_length",
    "check_names",
    "check_numbers",
    "check_scores",
    "check_share",
    "check_weights",
    "get_link",
    "inside",
    "logistic",
    "logit",
    "normal_cdf",
    "to_link",
    "warn_if_probabilities",
]
