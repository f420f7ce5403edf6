"""Replicas of scikit-learn estimators, and estimators that debias themselves."""

from .replicas import Replicas, fit_replicas
from .vad_estimators import VADClassifier, VADRegressor

__all__ = ["Replicas", "VADClassifier", "VADRegressor", "fit_replicas"]
