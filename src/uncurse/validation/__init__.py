"""Checks of arguments: every public function validates its input with these."""

from .arrays import (
    LARGEST_SCORE,
    SCALES,
    check_finite,
    check_labels,
    check_length,
    check_names,
    check_numbers,
    check_predictions,
    check_scores,
    check_weights,
    effective_rows,
    group_rows,
    warn_if_probabilities,
)
from .values import check_choice, check_count, check_flag, check_number, check_share, warn_user

__all__ = [
    "LARGEST_SCORE",
    "SCALES",
    "check_choice",
    "check_count",
    "check_finite",
    "check_flag",
    "check_labels",
    "check_length",
    "check_names",
    "check_number",
    "check_numbers",
    "check_predictions",
    "check_scores",
    "check_share",
    "check_weights",
    "effective_rows",
    "group_rows",
    "warn_if_probabilities",
    "warn_user",
]
