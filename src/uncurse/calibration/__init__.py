"""Calibrators: labelled scores to a score map."""

from .calibrators import CALIBRATORS, calibrate, fit_calibrator
from .logistic import LogisticFit, fit_logistic

__all__ = ["CALIBRATORS", "LogisticFit", "calibrate", "fit_calibrator", "fit_logistic"]
