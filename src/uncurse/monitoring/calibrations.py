"""Calibration of some rows, with the evidence against the map."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .sequential import LabelSums, log_e_values

LEVEL = 0.95  # of the confidence sequence; a valid map raises an alarm with probability 5% at most


@dataclass(frozen=True)
class Calibration:
    """Calibration of some rows.

    Parameters
    ----------
    name : str
        Which rows these are.
    rows, predicted, observed : float
        Number of rows, sum of predictions and sum of labels.
    error : float or None
        `predicted` / `observed` − 1; None without a positive label.
    low, high : float or None
        95% confidence sequence of the error; None where there is no bound.
    e_value : float
        Evidence against the map: a valid map ever exceeds 1/α with probability α at most.

    Examples
    --------
    >>> calibration_of("all", LabelSums.of([0.5, 0.5], [0, 1])).error
    0.0
    """

    name: str
    rows: float
    predicted: float
    observed: float
    error: float | None
    low: float | None
    high: float | None
    e_value: float


def calibration_of(name: str, sums: LabelSums, tolerance: float = 0.0, log_e: float | None = None) -> Calibration:
    """Return the calibration of some rows.

    Parameters
    ----------
    name : str
        Which rows these are.
    sums : LabelSums
        Their sums.
    tolerance : float, default=0.0
        See `monitor`.
    log_e : float, optional
        Logarithm of the e-value, if it is known by day.

    Returns
    -------
    Calibration
    """
    if log_e is None:
        log_e = float(log_e_values(np.array([sums.observed]), np.array([sums.cumulants]), tolerance)[0])
    low, high = (end if math.isfinite(end) else None for end in sums.interval(LEVEL))
    error = None if math.isnan(sums.error) else sums.error
    return Calibration(name, sums.rows, sums.predicted, sums.observed, error, low, high, math.exp(min(log_e, 700.0)))


def error_words(part: Calibration) -> str:
    """Describe the error of some rows.

    Parameters
    ----------
    part : Calibration
        Their calibration.

    Returns
    -------
    str
    """
    if part.error is None:
        return f"no positive label where {part.predicted:.3g} are predicted"
    direction = "too high" if part.error >= 0 else "too low"
    ends = ["no bound" if end is None else f"{100 * end:+.1f}%" for end in (part.low, part.high)]
    return f"predictions are {100 * abs(part.error):.1f}% {direction} (95% confidence sequence {ends[0]} to {ends[1]})"


__all__ = ["LEVEL", "Calibration", "calibration_of", "error_words"]
