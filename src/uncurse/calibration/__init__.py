"""Calibrators: labeled scores to a score map."""

from .calibrators import CALIBRATORS, calibrate

__all__ = ["CALIBRATORS", "calibrate"]
