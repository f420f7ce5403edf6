"""Checks of input: every public function checks its arguments with these."""

from __future__ import annotations

import math
import os
import sys
import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._types import Float
from .errors import UncurseError

#: Scales on which scores may arrive: log odds, probabilities in [0, 1], or any number (regression).
SCALES = ("logit", "probability", "value")


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn_user(message: str) -> None:
    """Issue a `UserWarning` that points at the first line of code outside this package.

    Parameters
    ----------
    message : str
        What happened and what to do about it.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_user("the replicas are identical; change the seed")
    >>> str(caught[0].message)
    'the replicas are identical; change the seed'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`, else an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise UncurseError(f"{name}={value!r} is unknown; choose one of {', '.join(choices)}")
    return value


def check_scores(scores: ArrayLike, scale: str, *, name: str = "scores", ndim: int = 1) -> Float:
    """A floating array of `ndim` dimensions, finite, and inside [0, 1] on the probability scale."""
    check_choice("scale", scale, SCALES)
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
        warn_user(f"every value of {name} lies in [0, 1]; if these are probabilities, pass scale='probability'")


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
        return as_floats(values)
    except (TypeError, ValueError) as error:
        raise UncurseError(f"{name} must be an array of numbers, not {type(values).__name__}: {error}") from None


def as_floats(values: ArrayLike) -> Float:
    """An array of float32 or float64; other numbers become float64."""
    array = np.asarray(values)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"dtype {array.dtype}; convert it to float first")
    return array.astype(np.float64)


__all__ = [
    "SCALES",
    "as_floats",
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
    "warn_if_probabilities",
    "warn_user",
]
