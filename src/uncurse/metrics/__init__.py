"""Selection of the top-scored rows, and calibration metrics on them."""

from .metrics import (
    Evaluation,
    brier_score,
    calibration_error,
    calibration_ratio,
    evaluate,
    evaluate_cells,
    evaluate_log,
    expected_calibration_error,
    log_loss,
    log_loss_reduction,
    maximum_calibration_error,
)
from .ranking import Bin, Estimate, Row
from .selection import top_k, top_share

__all__ = [
    "Bin",
    "Estimate",
    "Evaluation",
    "Row",
    "brier_score",
    "calibration_error",
    "calibration_ratio",
    "evaluate",
    "evaluate_cells",
    "evaluate_log",
    "expected_calibration_error",
    "log_loss",
    "log_loss_reduction",
    "maximum_calibration_error",
    "top_k",
    "top_share",
]
