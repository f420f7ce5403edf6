"""Metrics of all rows, each with a standard error; ECE and MCE also with a noise floor.

The noise floor is the expected value of the metric if every prediction were the true probability. See
`expected_calibration_error` for its accuracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..errors import UncurseError
from ..links import inside
from ..validation import (
    LARGEST_SCORE,
    check_finite,
    check_labels,
    check_length,
    check_numbers,
    check_predictions,
    check_scores,
    check_weights,
)
from .estimates import Estimate
from .ranking import rank


def calibration_ratio(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Return Σp / Σy, the ratio of predicted to observed (PCOC).

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels, which are any numbers of positive sum, predictions, and optional weights, of which only ratios matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> calibration_ratio([1, 0, 1, 0], [0.5, 0.5, 0.5, 0.5])
    1 ± 0.5
    """
    f = check_scores(p, "value", name="p").astype(np.float64)
    labels = check_numbers(y, "y").astype(np.float64)
    check_length(labels, len(f), "y")
    check_finite(labels, "y", LARGEST_SCORE)
    weights = check_weights(sample_weight, len(f))
    w = np.ones(1) if weights is None else weights
    predicted, observed = float(np.sum(w * f)), float(np.sum(w * labels))
    if observed <= 0:
        raise UncurseError(
            f"the labels sum to {observed:g}, so no ratio exists; select more rows, with positives in them"
        )
    ratio = predicted / observed
    return Estimate(ratio, np.sqrt(np.sum(np.square(w * (f - ratio * labels)))) / observed)


def calibration_error(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Return the signed calibration error Σp / Σy − 1; +0.05 means 5% too high.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels, which are any numbers of positive sum, predictions, and optional weights, of which only ratios matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> calibration_error([1, 0], [0.6, 0.5])
    0.1 ± 0.71
    """
    ratio = calibration_ratio(y, p, sample_weight=sample_weight)
    return Estimate(ratio - 1, ratio.standard_error)


def expected_calibration_error(
    y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None, n_bins: int = 10, strategy: str = "quantile"
) -> Estimate:
    """Return the weighted mean over bins of ``|mean label − mean prediction|``.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.
    n_bins : int, default=10
        Number of bins, at most 4096.
    strategy : {"quantile", "uniform"}, default="quantile"
        Bins of equal weight, or of equal width in probability.

    Returns
    -------
    Estimate
        With the noise floor, the mean for labels drawn from the predictions. Label sums are taken as binomial,
        with their mean and variance, in bins where that variance is below 10, and as normal in others.

    Examples
    --------
    >>> expected_calibration_error([0, 1, 1, 1], [0.1, 0.2, 0.9, 0.9], n_bins=2)
    0.225 ± 0.12 (floor 0.188)
    """
    return _binned(y, p, sample_weight, n_bins, strategy)[0]


def maximum_calibration_error(
    y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None, n_bins: int = 10, strategy: str = "quantile"
) -> Estimate:
    """Return the maximum over bins of ``|mean label − mean prediction|``.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.
    n_bins, strategy : optional
        As in `expected_calibration_error`.

    Returns
    -------
    Estimate
        With its noise floor, as in `expected_calibration_error`; it is at most 1.

    Examples
    --------
    >>> float(maximum_calibration_error([0, 1, 1, 1], [0.1, 0.2, 0.9, 0.9], n_bins=2))
    0.35
    """
    return _binned(y, p, sample_weight, n_bins, strategy)[1]


def log_loss(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Return the mean of −log P(label).

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> log_loss([1, 0], [0.5, 0.5])
    0.6931 ± 0
    """
    f, labels, w = _arrays(y, p, sample_weight)
    return _mean(_row_losses(labels, f), w)


def brier_score(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Return the mean squared error of the predictions.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> brier_score([1, 0], [0.5, 0.5])
    0.25 ± 0
    """
    f, labels, w = _arrays(y, p, sample_weight)
    return _mean(np.square(labels - f), w)


def log_loss_reduction(
    y: ArrayLike, p: ArrayLike, baseline: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Return LogLoss(p) / LogLoss(baseline) − 1; negative is better. The standard error is that of paired rows.

    Parameters
    ----------
    y, p, baseline, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, those to compare with, and optional weights, of which only ratios
        matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> float(log_loss_reduction([1, 0], [0.5, 0.5], [0.5, 0.5]))
    0.0
    """
    f, labels, w = _arrays(y, p, sample_weight)
    g = _arrays(y, baseline, sample_weight)[0]
    losses, base_losses = _row_losses(labels, f), _row_losses(labels, g)
    base = float(np.average(base_losses, weights=w))
    if base < 1e-100:
        raise UncurseError("the baseline predicts every label with certainty, so no ratio of log losses exists")
    ratio = float(np.average(losses, weights=w)) / base
    return Estimate(ratio - 1, _mean(losses - ratio * base_losses, w).standard_error / base)


def _arrays(y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Array, NDArray[Any], Array | None]:
    f = check_predictions(p).astype(np.float64)
    return f, check_labels(y, len(f), name="y"), check_weights(sample_weight, len(f))


def _row_losses(labels: NDArray[Any], f: Array) -> Array:
    f = inside(f, 0.0, 1.0)  # type: ignore[assignment]
    return -np.where(labels > 0, np.log(f), np.log1p(-f))


def _mean(values: Array, weights: Array | None) -> Estimate:
    w = np.ones(len(values)) if weights is None else weights
    total = w.sum()
    mean = float(w @ values / total)
    return Estimate(mean, np.sqrt(np.sum(np.square(w * (values - mean)))) / total)


def _binned(
    y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None, n_bins: int, strategy: str
) -> tuple[Estimate, Estimate]:
    f = check_predictions(p)
    ranked = rank(f, check_labels(y, len(f), name="y"), check_weights(sample_weight, len(f)))
    _, (ece,), (mce,), _ = ranked.binned(ranked.reached[-1:], n_bins, strategy)
    return ece, mce
