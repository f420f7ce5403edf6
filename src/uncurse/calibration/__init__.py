"""Calibrators: labelled scores to a score map."""

from .calibrators import CALIBRATORS, calibrate, fit_calibrator

__all__ = ["CALIBRATORS", "calibrate", "fit_calibrator"]
