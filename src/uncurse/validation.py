"""Checks of arguments, which every public function uses for its input, and warnings."""

from __future__ import annotations

import math
import os
import sys
import warnings
from datetime import MAXYEAR, UTC, datetime
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._types import Array, Float
from .errors import UncurseError

#: Scales of scores: log odds, probabilities in [0, 1], or any finite number (regression).
SCALES = ("logit", "probability", "value")

#: Largest score that a method accepts. Fourth powers of scores, as in the variance of a variance, stay finite.
LARGEST_SCORE = 1e75

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


# ---------------------------------------------------------------------------- single values


def warn_user(message: str) -> None:
    """Issue a `UserWarning` that points at the first line of code outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise an error that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise UncurseError(f"{name}={value!r:.80} is unknown; choose one of {', '.join(choices)}")
    return value


def check_number(value: Any, name: str) -> float:
    """Return `value` as a float if it is a finite real number; refuse strings and booleans."""
    number = _as_float(value)
    if not math.isfinite(number):
        raise UncurseError(f"{name} is {value!r:.80}; pass a finite number")
    return number


def check_share(alpha: Any, name: str = "alpha") -> float:
    """Return `alpha` as a float if it lies in (0, 1]."""
    share = _as_float(alpha)
    if not 0 < share <= 1:
        raise UncurseError(f"{name}={alpha!r:.80} is not a share; pass a number above 0 and at most 1, such as 0.02")
    return share


def check_flag(value: Any, name: str) -> bool:
    """Return `value` as a bool if it is one."""
    if not isinstance(value, bool | np.bool_):
        raise UncurseError(f"{name}={value!r:.80}; pass True or False")
    return bool(value)


def check_count(value: Any, name: str, largest: int | None = None) -> int:
    """Return `value` as an int if it is an integer of at least 1, and at most `largest`; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise UncurseError(f"{name}={value!r:.80}; pass an integer, 1 or more")
    if largest is not None and int(value) > largest:
        raise UncurseError(f"{name}={value!r:.80} is too large; pass at most {largest:,}")
    return int(value)


def check_time(time: Any, name: str) -> datetime:
    """Return an ISO 8601 date or time in UTC; a time without an offset is in UTC. Errors call it `name`."""
    try:
        found = datetime.fromisoformat(time)
        if found.year == MAXYEAR:  # no day follows it
            raise ValueError
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise UncurseError(f"{name} is {time!r:.40}; pass an ISO date or time, such as 2026-11-15T06:00") from None


def _as_float(value: object) -> float:
    """Convert a real number to a float; return NaN for anything else, such as text and booleans."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan


# ---------------------------------------------------------------------------- arrays


def check_numbers(values: ArrayLike, name: str) -> Float:
    """Return numbers, finite or not, as an array; float32 and float64 are not copied, others become float64."""
    if type(values) is np.ndarray and values.dtype in (np.float32, np.float64):
        return values
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UncurseError(f"{name} has masked values; drop or fill those rows first")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UncurseError(f"{name} must be an array of numbers, not {type(values).__name__}: {error}") from None
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biuf":
        remedy = "convert it to float first"
        if array.dtype.kind in "US" and array.size and name in ("y", "labels"):
            classes, counts = np.unique(array, return_counts=True)
            remedy = f"compare it with the class that counts, such as {name} == {str(classes[counts.argmin()])!r}"
        raise UncurseError(
            f"{name} must be an array of numbers, not {type(values).__name__}: dtype {array.dtype}; {remedy}"
        )
    with np.errstate(over="ignore"):  # a long double may become infinite, which `check_finite` reports
        return array.astype(np.float64)


def check_finite(values: Float, name: str, largest: float = np.inf) -> None:
    """Raise an error that locates the first NaN or infinity, or the first number beyond `largest`."""
    flat = values if values.ndim == 1 else values.ravel(order="K")  # a column of a table is not copied
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of squares is several times faster than isfinite, and any NaN, infinity or large number survives it.
        if np.dot(flat, flat) < min(largest, 1e150) ** 2:
            return
        bad = np.flatnonzero(~(np.abs(values.ravel()) <= min(largest, np.finfo(values.dtype).max)))
    if bad.size:
        where = ", ".join(str(i) for i in np.unravel_index(bad[0], values.shape))
        value = values.ravel()[bad[0]]
        size = f" beyond ±{largest:g}" if np.isfinite(value) else ""
        raise UncurseError(
            f"{name}[{where}] is {value}{size} ({bad.size} such values); drop or repair those rows first"
        )


def check_scores(
    scores: ArrayLike,
    scale: str,
    *,
    name: str = "scores",
    ndim: int = 1,
    largest: float = LARGEST_SCORE,
    remedy: str = "",
) -> Float:
    """Return at least one finite score as a float array (not copied).

    Probabilities must lie in [0, 1]; `remedy` ends the message for other numbers.
    """
    check_choice("scale", scale, SCALES)
    values = check_numbers(scores, name)
    if values.ndim != ndim:
        expected = "one column, shape (n,)" if ndim == 1 else "a column per replica, shape (n, S)"
        raise UncurseError(f"{name} has shape {values.shape}; pass {expected}")
    if values.size == 0:
        raise UncurseError(f"{name} is empty, shape {values.shape}; pass at least one row")
    check_finite(values, name, largest)
    if scale == "probability":
        low, high = values.min(), values.max()
        if low < 0 or high > 1:
            remedy = remedy or not_probabilities(low, high)
            raise UncurseError(f"{name} holds {low if low < 0 else high:g}, which is not a probability; {remedy}")
    return values


def check_predictions(p: ArrayLike) -> Float:
    """Return predicted probabilities as `check_scores` does; the message for other numbers names what takes those."""
    remedy = "convert logits to probabilities, or compare the sums of any numbers with calibration_error(y, p)"
    return check_scores(p, "probability", name="p", remedy=remedy)


def not_probabilities(low: float, high: float) -> str:
    """Return what numbers beyond [0, 1] may be, by their range, and the remedy."""
    if low >= 0 and 2 < high <= 100:
        return "are these percentages? Divide them by 100"
    return "are these logits? Then the scale is logit"


def warn_if_probabilities(logits: Float, name: str) -> None:
    """Warn if at least 100 values that should be logits look like rates; about 1,000 rows are inspected."""
    sample = logits[:: max(1, len(logits) // 1024)]
    if len(sample) < 100 or sample.min() < 0:
        return
    if sample.max() <= 1:
        warn_user(f"every value of {name} lies in [0, 1]; if these are probabilities, set the scale to probability")
    elif 30 < sample.max() <= 100:  # log odds are within 30
        warn_user(
            f"every value of {name} lies in [0, 100]; if these are percentages, divide them by 100, and set the scale "
            "to probability"
        )


def check_length(values: NDArray[Any], rows: int, name: str) -> None:
    """Raise an error unless `values` has shape (rows,)."""
    if values.ndim != 1 or len(values) != rows:
        raise UncurseError(f"{name} has shape {values.shape} but there are {rows} rows; pass shape ({rows},)")


def check_labels(labels: ArrayLike, rows: int, *, name: str = "labels") -> NDArray[Any]:
    """Return binary labels, one per row, in their own numeric dtype; booleans become int8."""
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


def check_counts(labels: ArrayLike, trials: ArrayLike | None, rows: int, name: str) -> tuple[Any, Array | None]:
    """Return labels and trials, one per row; labels are successes if there are trials, and 0 or 1 otherwise."""
    if trials is None:
        return check_labels(labels, rows, name=name), None
    y, n = (check_numbers(values, each).astype(np.float64) for values, each in ((labels, name), (trials, "trials")))
    check_length(y, rows, name)
    check_length(n, rows, "trials")
    found = fault_of_counts(y, n)
    if found is not None:
        of_trials, at, problem = found
        raise UncurseError(f"{'trials' if of_trials else name}[{at}] {problem}")
    return y, n


def fault_of_counts(successes: NDArray[Any], trials: NDArray[Any]) -> tuple[bool, int, str] | None:
    """Return the first count at fault: whether it is of trials, its place and the problem; None if all are valid."""
    whole = (trials == np.floor(trials)) & (trials >= 1) & (trials < np.inf)
    if not whole.all():
        at = int(whole.argmin())
        return True, at, f"is {trials[at]:g}; trials are whole numbers of at least 1: leave out rows without trials"
    valid = (successes == np.floor(successes)) & (successes >= 0) & (successes <= trials)
    if valid.all():
        return None
    at = int(valid.argmin())
    rule = "successes are whole numbers from 0 to the trials: repair the row, or name the right columns"
    return False, at, f"is {successes[at]:g} of {trials[at]:g} trials; {rule}"


def split_trials(successes: NDArray[Any], trials: Array) -> tuple[NDArray[np.intp], NDArray[Any], Array]:
    """Return a row of the successes and one of the failures of each row: its place, label and number of trials."""
    hits, misses = np.flatnonzero(successes > 0), np.flatnonzero(trials > successes)
    labels = np.repeat(np.array([1, 0], np.int8), [len(hits), len(misses)])
    return np.append(hits, misses), labels, np.append(successes[hits], (trials - successes)[misses])


def check_outcomes(
    scores: Float, labels: ArrayLike, sample_weight: ArrayLike | None, trials: ArrayLike | None, name: str
) -> tuple[Float, NDArray[Any], Array | None, Array | None]:
    """Return scores, 0/1 labels and weights of rows, and how often each occurs; None if each occurs once."""
    y, n = check_counts(labels, trials, len(scores), name)
    weights = check_weights(sample_weight, len(scores))
    if n is None:
        return scores, y, weights, None
    rows, y, counts = split_trials(y, n)
    return scores[rows], y, None if weights is None else weights[rows], counts


def check_weights(weights: ArrayLike | None, rows: int) -> Array | None:
    """Return sample weights as float64, one per row: at least 0, with the largest in [1e-100, 1e100]. None stays None.

    Squares of weights must neither overflow nor vanish.
    """
    if weights is None:
        return None
    w = check_numbers(weights, "sample_weight").astype(np.float64, copy=False)
    check_length(w, rows, "sample_weight")
    check_finite(w, "sample_weight")
    if w.min(initial=0.0) < 0:
        raise UncurseError(f"sample_weight holds {w.min():g}; weights must be 0 or more")
    largest = w.max(initial=0.0)
    if largest == 0:
        raise UncurseError("every sample_weight is zero; give some row a positive weight")
    if not 1e-100 <= largest <= 1e100:
        raise UncurseError(f"the largest sample_weight is {largest:g}; rescale the weights, only their ratios matter")
    return w


def effective_rows(weights: Array) -> float:
    """Return the effective number of rows, (Σw)² / Σw², between 1 and n; weights may be on any scale."""
    w = weights / weights.max()  # neither the sum nor the squares can overflow
    return float(w.sum() ** 2 / np.dot(w, w))


# ---------------------------------------------------------------------------- names


def encode_names(values: ArrayLike, rows: int, name: str) -> tuple[list[str], NDArray[np.intp]]:
    """Return the distinct names as sorted text, and the number of each row's name among them.

    Names are text, numbers or booleans without missing values; 1 and 1.0 are the same name.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise UncurseError(f"{name} has masked values; drop or fill those rows first")
    try:
        # NumPy makes text of numbers and NaN in a list, and drops null characters at the end of text.
        array = np.asarray(values, None if hasattr(values, "dtype") else object)
        check_length(array, rows, name)
        if array.dtype.kind in "biu":
            unique, codes = np.unique(array, return_inverse=True)
            distinct = unique.tolist()
        else:  # a dictionary of text is ten times faster than a sort
            listed = array.tolist()
            distinct = list(dict.fromkeys(listed))
            place = {value: i for i, value in enumerate(distinct)}
            codes = np.fromiter(map(place.__getitem__, listed), np.intp, rows)
    except TypeError as error:
        raise UncurseError(f"{name} must be a list of names, text or numbers: {error}") from None
    text = []
    for i, value in enumerate(distinct):
        if is_missing(value) or isinstance(value, bytes) or np.ndim(value) > 0:
            raise UncurseError(
                f"{name}[{np.argmax(codes == i)}] is {value!r:.80}; pass text or numbers, 'unknown' if missing"
            )
        whole = isinstance(value, float | np.floating) and value.is_integer()
        text.append(str(int(value) if whole else value))
    names = sorted(set(text))
    number = {each: i for i, each in enumerate(names)}
    return names, np.array([number[each] for each in text], np.intp)[codes]


def segment_rows(segments: ArrayLike, rows: int, name: str = "segments") -> tuple[list[str], list[NDArray[np.intp]]]:
    """Return the sorted names of the segments, as text, and the ascending row numbers of each."""
    names, codes = encode_names(segments, rows, name)
    small = codes.astype(np.uint16) if len(names) <= 1 << 16 else codes  # which NumPy sorts by radix
    order = np.argsort(small, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    return names, np.split(order, ends[:-1])


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or the missing value of pandas."""
    try:
        return value is None or (not isinstance(value, np.ndarray) and bool(value != value))
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True
