"""Calibrators: labelled scores to a score map."""

from .calibrators import CALIBRATORS, calibrate, fit_calibrator
from .half_life import HalfLifeCandidate, HalfLifeChoice, choose_half_life

__all__ = [
    "CALIBRATORS",
    "HalfLifeCandidate",
    "HalfLifeChoice",
    "calibrate",
    "choose_half_life",
    "fit_calibrator",
]
