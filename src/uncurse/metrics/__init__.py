"""Selection of the top-scored rows, and calibration metrics on them."""

from .comparison import Comparison, compare
from .evaluation import (
    Evaluation,
    calibration_error,
    default_shares,
    evaluate,
    evaluate_log,
    expected_calibration_error,
    log_loss_reduction,
    maximum_calibration_error,
)
from .measure import Estimate
from .selection import top_k, top_share

__all__ = [
    "Comparison",
    "Estimate",
    "Evaluation",
    "calibration_error",
    "compare",
    "default_shares",
    "evaluate",
    "evaluate_log",
    "expected_calibration_error",
    "log_loss_reduction",
    "maximum_calibration_error",
    "top_k",
    "top_share",
]
