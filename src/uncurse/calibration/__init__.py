"""Calibrators: labelled scores to a score map."""

from .calibrators import CALIBRATORS, calibrate, fit
from .logistic import LogisticFit, fit_logistic

__all__ = ["CALIBRATORS", "LogisticFit", "calibrate", "fit", "fit_logistic"]
