"""Selection of the top-scored rows, and calibration metrics on them."""

from .estimates import Bin, Estimate, SelectionMetrics
from .evaluation import Evaluation, evaluate, evaluate_cells, evaluate_log
from .metrics import (
    brier_score,
    calibration_error,
    calibration_ratio,
    expected_calibration_error,
    log_loss,
    log_loss_reduction,
    maximum_calibration_error,
)
from .selection import top_k, top_share

__all__ = [
    "Bin",
    "Estimate",
    "Evaluation",
    "SelectionMetrics",
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
