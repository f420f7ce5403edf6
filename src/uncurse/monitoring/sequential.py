"""A test of a map that may be looked at every day: e-values, and confidence sequences of the calibration error.

The map is right if a label with prediction f is 1 with probability f. If all odds are e^δ times as high instead, the
log likelihood ratio of some rows is δ·Σy − K(δ), where K(δ) = Σ log(1 + f(e^δ − 1)). If the map is right, its
exponential is a martingale for every δ. So is the average over a distribution of δ and of the day on which the error
began. By Ville's inequality this average, the e-value, ever exceeds 1/α with probability α at most. Nothing is
approximated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebval, chebvander

from .._types import Array
from ..errors import UncurseError
from ..text import error_and_interval, percent

LEVEL = 0.95  # of the confidence sequence; a valid map raises an alarm with probability 5% at most
ALARM = 20.0  # the e-value that raises it
WATCH = 5.0  # an e-value that a valid map reaches with probability 20% at most
_LARGEST_SHIFT = 2.0  # odds that are wrong by a factor of 7; larger errors are found at once anyway
# K is analytic within ±π of the real axis. So its interpolation in n Chebyshev nodes of ±2 has a relative error of some
# 3.4^-n: rounding, for 25.
_NODES = 25
_SHIFTS: Array = _LARGEST_SHIFT * np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
_COEFFICIENTS: Array = np.linalg.inv(chebvander(_SHIFTS / _LARGEST_SHIFT, _NODES - 1)).astype(np.float64)
# Sizes of errors that the test looks for: 0.4% to 270%, all orders of magnitude alike. The step of 1.19 costs less than
# 1% of the growth of the e-value of an error between two sizes, and an error of half the smallest size is still found.
_SIZES: Array = np.geomspace(0.004, 1.0, 33)
_FROM_THE_START = 0.7  # prior probability that an error is there from the first day on
_NO_ERROR = 0.1  # weight of δ = 0 in the mixture of the confidence sequence


@dataclass(frozen=True)
class LabelSums:
    """Sums over rows that compare predictions with labels; sums of disjoint rows add up.

    >>> sums = LabelSums.of([0.1, 0.5], [0, 1])
    >>> (sums + sums).predicted
    1.2
    """

    rows: float  # effective number if rows have weights
    predicted: float
    observed: float
    cumulants: tuple[float, ...]  # K(δ) at 25 fixed values of δ
    served: float  # sum of the predictions as served, without the map

    @classmethod
    def of(cls, predictions: Any, labels: Any, weight: Any = 1.0, served: Any = None) -> LabelSums:
        """Sum up rows, or cells with their label sums and numbers of rows; by default the predictions are served."""
        f, y = np.asarray(predictions, np.float64), np.asarray(labels, np.float64)
        if not ((f >= 0) & (f <= 1)).all():
            raise UncurseError(f"predictions lie from {f.min():g} to {f.max():g}; pass probabilities, from 0 to 1")
        w = np.broadcast_to(np.asarray(weight, np.float64), f.shape)
        cumulants = [float(w @ np.log1p(f * np.expm1(shift))) for shift in _SHIFTS]
        without = f if served is None else np.asarray(served, np.float64)
        return cls(float(w.sum()), float(w @ f), float(y.sum()), tuple(cumulants), float(w @ without))

    def __add__(self, other: LabelSums) -> LabelSums:
        return total([self, other])

    @property
    def error(self) -> float:
        """Calibration error Σf/Σy − 1; NaN without a positive label."""
        return self.predicted / self.observed - 1 if self.observed > 0 else float("nan")

    @property
    def served_error(self) -> float | None:
        """The same of the predictions as served; None without a positive label."""
        return self.served / self.observed - 1 if self.observed > 0 else None


def series_of(sums: Sequence[LabelSums]) -> tuple[Array, Array]:
    """Return sums of labels (T,) and cumulants (T, 25), as `log_e_values` takes them."""
    return np.array([one.observed for one in sums]), np.array([one.cumulants for one in sums])


def intervals(sums: Sequence[LabelSums], *, fixed: bool = False) -> Array:
    """Return 95% confidence sequences of the calibration error of T sums, (T, 2); ±∞ where there is no bound.

    They cover the errors at all times together, if one shift of the log odds describes them. With `fixed` they are
    confidence intervals by the likelihood ratio: narrower, and for rows that are looked at once.
    """
    predicted, (observed, cumulants) = np.array([one.predicted for one in sums]), series_of(sums)
    series = _COEFFICIENTS @ cumulants.T
    slopes = chebder(series) / _LARGEST_SHIFT

    def curve(coefficients: Any, shift: Array) -> Array:
        return np.asarray(chebval(shift / _LARGEST_SHIFT, coefficients, tensor=False), np.float64)

    def likelihood(shift: Array) -> Array:
        return shift * observed - curve(series, shift)

    edge = np.full(len(sums), _LARGEST_SHIFT)
    # The likelihood is concave: find its maximum, then where it falls below the bound on either side.
    best = _bisect(lambda shift: curve(slopes, shift) - observed, -edge, edge)
    if fixed:
        # Half of the quantile of χ² with one degree of freedom, by Wilks' theorem.
        least = likelihood(best) - 0.5 * NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2
    else:
        shifts = np.concatenate([-_SIZES, _SIZES, [0.0]])
        prior = np.append(np.full(2 * len(_SIZES), (1 - _NO_ERROR) / (2 * len(_SIZES))), _NO_ERROR)
        mixture = np.multiply.outer(observed, shifts) - cumulants @ _curves(shifts).T
        least = np.logaddexp.reduce(mixture + np.log(prior), axis=-1) + np.log(1 - LEVEL)
    ends = []
    for sign in (1.0, -1.0):
        shift = _bisect(lambda x: likelihood(x) - least, sign * edge, best)
        error = predicted / np.maximum(curve(slopes, shift), 1e-300) - 1
        ends.append(np.where(likelihood(sign * edge) < least, error, -sign * np.inf))
    return np.stack([np.maximum(ends[0], -1.0), ends[1]], axis=-1)


def _curves(shifts: Array) -> Array:
    """Return the matrix that turns K at the nodes into K at these shifts."""
    return np.asarray(chebvander(shifts / _LARGEST_SHIFT, _NODES - 1) @ _COEFFICIENTS, np.float64)


def log_e_values(observed: Array, cumulants: Array, tolerance: float = 0.0) -> Array:
    """Return the logarithm of the e-value after each day (..., T), from label sums (..., T) and cumulants (..., T, 25).

    Errors of the odds up to the share `tolerance` do not count.

    >>> day = LabelSums.of(np.full(1000, 0.1), np.arange(1000) < 150)  # 150 positives instead of 100
    >>> bool(log_e_values(*series_of([day]))[0] > np.log(20))
    True
    """
    edge, days = float(np.log1p(tolerance)), observed.shape[-1]
    sizes = edge + _SIZES
    shifts, null = np.concatenate([-sizes, sizes]), np.repeat([-edge, edge], len(sizes))
    curves = _curves(np.append(shifts, [-edge, edge]))
    starts = np.log(_start_probabilities(days))
    later = np.log(1 - _FROM_THE_START) - np.log1p(np.log(np.arange(days) + 1.0))  # errors that have not begun
    total = np.full((*observed.shape[:-1], len(shifts)), -np.inf)
    found = np.empty_like(observed)
    for t in range(days):
        k = cumulants[..., t, :] @ curves.T
        gain = (shifts - null) * observed[..., t, None] - (k[..., :-2] - np.repeat(k[..., -2:], len(sizes), axis=-1))
        total = np.logaddexp(total, starts[t]) + gain
        found[..., t] = np.logaddexp(np.logaddexp.reduce(total, axis=-1) - np.log(len(shifts)), later[t])
    return found


def likely_start(observed: Array, cumulants: Array) -> int:
    """Return the number of the day on which an error most likely began, from arguments as in `log_e_values`."""
    shifts = np.concatenate([-_SIZES, _SIZES])
    gain = shifts * observed[:, None] - cumulants @ _curves(shifts).T
    since = np.cumsum(gain[::-1], axis=0)[::-1]
    return int(np.argmax(np.logaddexp.reduce(since, axis=-1) + np.log(_start_probabilities(len(observed)))))


def _start_probabilities(days: int) -> Array:
    """Return the prior probability that an error begins on each day: 0.7, then a slowly falling sequence."""
    reached = 1 / (1 + np.log(np.arange(1, days + 1)))  # of an error that is not there from the start
    return np.append(_FROM_THE_START, (1 - _FROM_THE_START) * (reached[:-1] - reached[1:]))


def _bisect(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return where functions that have one zero between `low` and `high` are 0; an end where there is none."""
    first, last = function(low), function(high)
    rising = last > 0
    none = (first > 0) == rising
    ends = np.where(np.abs(first) < np.abs(last), low, high)
    for _ in range(60):
        middle = (low + high) / 2
        beyond = (function(middle) > 0) == rising
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return np.where(none, ends, (low + high) / 2)


def total(sums: Sequence[LabelSums]) -> LabelSums:
    """Add up sums of disjoint rows."""
    numbers = np.array([(one.rows, one.predicted, one.observed, one.served, *one.cumulants) for one in sums])
    rows, predicted, observed, served, *cumulants = numbers.reshape(-1, 4 + _NODES).sum(axis=0).tolist()
    return LabelSums(rows, predicted, observed, tuple(cumulants), served)


@dataclass(frozen=True)
class Calibration:
    """Calibration of some rows."""

    name: str  # of these rows
    rows: float
    predicted: float  # sum of predictions
    observed: float  # sum of labels
    error: float | None  # predicted / observed − 1; None without a positive label
    low: float | None  # 95% confidence sequence of the error; None where there is no bound
    high: float | None
    e_value: float  # evidence against the map: a valid map ever exceeds 1/α with probability α at most
    served_error: float | None  # of the predictions as served

    @property
    def may_be_zero(self) -> bool:
        """Whether the confidence sequence of the error includes zero."""
        return (self.low is None or self.low <= 0) and (self.high is None or self.high >= 0)


def calibrations_of(parts: Sequence[tuple[str, LabelSums]], tolerance: float = 0.0) -> list[Calibration]:
    """Return the calibrations of sets of rows, as names and sums, at least one; for `tolerance` see `monitor`."""
    sums = [one for _, one in parts]
    observed, cumulants = series_of(sums)
    log_e = log_e_values(observed[:, None], cumulants[:, None], tolerance)[:, 0]
    found = []
    for (name, one), ends, evidence in zip(parts, intervals(sums).tolist(), log_e, strict=True):
        low, high = (end if math.isfinite(end) else None for end in ends)
        error = None if math.isnan(one.error) else one.error
        counts = (one.rows, one.predicted, one.observed)
        found.append(Calibration(name, *counts, error, low, high, e_value(evidence), one.served_error))
    return found


def e_value(log_e: float) -> float:
    """Return an e-value from its logarithm; the exponential of more than 700 overflows."""
    return math.exp(min(log_e, 700.0))


def e_value_text(value: float) -> str:
    """Return an e-value as text; larger ones than a million say nothing more."""
    return "> 1,000,000" if value > 1e6 else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def error_words(part: Calibration) -> str:
    """Describe the error of some rows."""
    if part.error is None:
        return f"no positive label where {part.predicted:.3g} are predicted"
    direction = "too high" if part.error >= 0 else "too low"
    _, span = error_and_interval(part.error, part.low, part.high)
    return f"predictions are {percent(abs(part.error), sign=False)} {direction} (95% confidence sequence {span})"
