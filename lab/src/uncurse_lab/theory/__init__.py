"""Maximization bias computed by quadrature, and a check that scores are Gaussian."""

from uncurse.metrics.normality import Gaussianity, gaussianity

from .bias import (
    Geometry,
    best_of,
    lemma1_bounds,
    maximization_bias,
    score_geometry,
    selected_mean,
    selected_slope,
    selected_truth,
)

__all__ = [
    "Gaussianity",
    "Geometry",
    "best_of",
    "gaussianity",
    "lemma1_bounds",
    "maximization_bias",
    "score_geometry",
    "selected_mean",
    "selected_slope",
    "selected_truth",
]
