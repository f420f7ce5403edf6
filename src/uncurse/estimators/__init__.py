"""Replicas of scikit-learn estimators, and estimators that correct themselves."""

from .replicas import Replicas, fit_replicas
from .uncursed import UncursedClassifierCV, UncursedRegressorCV

__all__ = ["Replicas", "UncursedClassifierCV", "UncursedRegressorCV", "fit_replicas"]
