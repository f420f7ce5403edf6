"""Selection of the top-scored rows, and calibration metrics on them."""

from .estimates import Estimate
from .evaluation import (
    Evaluation,
    calibration_error,
    evaluate,
    evaluate_log,
    expected_calibration_error,
    log_loss_reduction,
    maximum_calibration_error,
)
from .selection import top_k, top_share

__all__ = [
    "Estimate",
    "Evaluation",
    "calibration_error",
    "evaluate",
    "evaluate_log",
    "expected_calibration_error",
    "log_loss_reduction",
    "maximum_calibration_error",
    "top_k",
    "top_share",
]
