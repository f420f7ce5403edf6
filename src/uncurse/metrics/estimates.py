"""Results of the metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..text import error_and_interval, interval


class Estimate(float):
    """A float, NaN where it is undefined, with a standard error and, for ECE and MCE, a noise floor.

    The floor is the expected value if every prediction were the true probability.

    >>> Estimate(0.05, 0.01)
    0.05 (standard error 0.01)
    """

    standard_error: float
    floor: float | None

    def __new__(cls, value: float, standard_error: float, floor: float | None = None) -> Estimate:
        """Create the float and set its attributes."""
        self = super().__new__(cls, value)
        self.standard_error = float(standard_error)
        self.floor = None if floor is None else float(floor)
        return self

    def __getnewargs__(self) -> tuple[float, float, float | None]:  # type: ignore[override]
        return float(self), self.standard_error, self.floor

    def __repr__(self) -> str:
        tail = "" if self.floor is None else f", floor {self.floor:.3g}"
        return f"{float(self):.4g} (standard error {self.standard_error:.2g}{tail})"

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        return interval(float(self), self.standard_error)

    def to_dict(self) -> dict[str, float | None]:
        """Return plain data; NaN becomes None."""
        content = {"value": float(self), "standard_error": self.standard_error}
        if self.floor is not None:
            content["floor"] = self.floor
        return {name: None if np.isnan(value) else value for name, value in content.items()}


@dataclass(frozen=True)
class Bin:
    """One bin of the ECE: mean prediction and mean label."""

    weight: float  # of its rows, or their number
    predicted: float
    observed: float
    standard_error: float  # of `observed`


@dataclass(frozen=True)
class SelectionMetrics:
    """Metrics of one selection."""

    alpha: float  # share of the rows that is selected
    selected: float  # number of selected rows, or their weight
    predicted: float  # sum of predictions
    observed: float  # sum of labels
    ratio: Estimate  # predicted / observed; NaN without a positive label
    calibration_error: Estimate  # the same minus 1
    ece: Estimate  # expected calibration error over bins
    mce: Estimate  # maximum calibration error over bins
    log_loss: Estimate  # mean
    brier: Estimate  # mean squared error
    bins: tuple[Bin, ...]  # non-empty bins of the ECE by ascending prediction

    def cells(self) -> dict[str, str]:
        """Return the metrics as text by name of the column, with 95% intervals and noise floors in parentheses."""
        error, span = error_and_interval(self.calibration_error, *self.calibration_error.interval)
        return {
            "top": f"{100 * self.alpha:.4g}%",
            "selected": amount(self.selected),
            "predicted": amount(self.predicted),
            "observed": amount(self.observed),
            "calibration error": f"{error} ({span})" if self.observed > 0 else error,
            "ECE (floor)": f"{self.ece:.5f} ({self.ece.floor:.5f})",
            "MCE (floor)": f"{self.mce:.5f} ({self.mce.floor:.5f})",
            "log loss": f"{self.log_loss:.5f}",
            "Brier": f"{self.brier:.5f}",
        }


def amount(value: float) -> str:
    """Return a sum as text: an integer from 1,000 on, else with four digits.

    >>> amount(1234567.8), amount(12.5)
    ('1,234,568', '12.5')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
