"""Calibrators: labelled scores to a score map."""

from .calibrators import CALIBRATORS, calibrate, fit, newton_logistic

__all__ = ["CALIBRATORS", "calibrate", "fit", "newton_logistic"]
