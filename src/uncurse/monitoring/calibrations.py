"""Calibration of some rows, with the evidence against the map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .sequential import LabelSums, intervals, log_e_values

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


def calibration_of(name: str, sums: LabelSums, tolerance: float = 0.0) -> Calibration:
    """Return the calibration of the rows called `name`; for `tolerance` see `monitor`."""
    return calibrations_of([(name, sums)], tolerance)[0]


def calibrations_of(parts: Sequence[tuple[str, LabelSums]], tolerance: float) -> list[Calibration]:
    """Return the calibrations of sets of rows, given as names and sums; at least one."""
    sums = [one for _, one in parts]
    observed, cumulants = np.array([[one.observed] for one in sums]), np.array([[one.cumulants] for one in sums])
    log_e = log_e_values(observed, cumulants, tolerance)[:, 0].tolist()
    found = []
    for (name, one), ends, evidence in zip(parts, intervals(sums, LEVEL).tolist(), log_e, strict=True):
        low, high = (end if math.isfinite(end) else None for end in ends)
        error = None if math.isnan(one.error) else one.error
        found.append(Calibration(name, one.rows, one.predicted, one.observed, error, low, high, e_value(evidence)))
    return found


def e_value(log_e: float) -> float:
    """Return an e-value from its logarithm, which is limited to 700: the exponential of more overflows."""
    return math.exp(min(log_e, 700.0))


def error_words(part: Calibration) -> str:
    """Describe the error of some rows."""
    if part.error is None:
        return f"no positive label where {part.predicted:.3g} are predicted"
    direction = "too high" if part.error >= 0 else "too low"
    ends = ["no bound" if end is None else f"{100 * end:+.1f}%" for end in (part.low, part.high)]
    return f"predictions are {100 * abs(part.error):.1f}% {direction} (95% confidence sequence {ends[0]} to {ends[1]})"
