"""The noise variance of a logistic regression from its Fisher information, without a second fit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..errors import UncurseError
from ..threads import one_blas_thread
from ..validation import (
    check_finite,
    check_flag,
    check_number,
    check_numbers,
    check_scores,
    check_weights,
    effective_rows,
)

_COLLINEAR = 1e-10  # smaller singular values are rounding: columns that determine each other share their coefficient


def information_variance(
    X: ArrayLike,
    probabilities: ArrayLike,
    X_pool: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    penalty: float = 0.0,
    fit_intercept: bool = True,
) -> float:
    """Compute the noise variance V of a logistic regression on a candidate pool.

    V = tr(Σ_pool · Cov(β̂)), where Σ_pool is the covariance of the pool's features and
    Cov(β̂) = H⁻¹ J H⁻¹ with H = Σ w p(1 − p) x xᵀ + penalty · I and J = Σ w² p(1 − p) x xᵀ. Without weights and penalty
    Cov(β̂) is the inverse of the observed information. Pass V to ``VAD.fit(scores, variance=V)``.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Training rows. Linearly dependent columns are allowed: the coefficients of minimum norm are assumed.
    probabilities : array-like of shape (n,)
        Fitted probabilities of the training rows.
    X_pool : array-like of shape (m, d)
        Rows of the candidate pool.
    sample_weight : array-like of shape (n,), default=None
        Weights of the training rows, independent of the labels. Only their ratios matter: they are scaled to sum to
        the effective number of rows, (Σw)² / Σw².
    penalty : float, default=0.0
        Strength λ of the ridge term λ/2 · ‖β‖², which is 1/C in scikit-learn, for weights scaled as above.
    fit_intercept : bool, default=True
        Whether the model has an intercept. The intercept is not penalized.

    Returns
    -------
    float
        The variance of the logits over the pool that is due to the noise of the coefficients.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> round(information_variance(X, np.full(1000, 0.5), X), 4)  # about d / (n p (1 − p))
    0.012
    """
    p = check_scores(probabilities, "probability", name="probabilities").astype(np.float64, copy=False)
    x, pool = _check_features(X, len(p), "X"), _check_features(X_pool, None, "X_pool")
    if x.shape[1] != pool.shape[1]:
        raise UncurseError(f"X has {x.shape[1]} columns and X_pool has {pool.shape[1]}; pass the same features")
    fit_intercept = check_flag(fit_intercept, "fit_intercept")
    ridge = check_number(penalty, "penalty")
    if ridge < 0:
        raise UncurseError(f"penalty is {ridge:g}; pass 0 or more, such as 1/C of scikit-learn")
    weights = check_weights(sample_weight, len(p))
    w = np.ones(len(p)) if weights is None else weights / weights.max()
    w *= effective_rows(w) / w.sum()
    information = w * p * (1 - p)
    if not information.sum() > 0:
        raise UncurseError("every probability is 0 or 1, so the rows carry no information; pass fitted probabilities")

    with np.errstate(over="ignore", invalid="ignore"), one_blas_thread():
        # Units of the columns: the largest training value is 1.
        largest = np.abs(x).max(axis=0)
        units = largest + (largest == 0)
        x, pool = x / units, pool / units
        pool -= pool.mean(axis=0)
        if fit_intercept:  # orthogonal to the columns once these are centered, so it drops out of Cov(β̂)
            x -= np.average(x, axis=0, weights=information)
        noise = x * np.sqrt(information * w)[:, None]
        design = np.vstack([x * np.sqrt(information)[:, None], np.diag(math.sqrt(ridge) / units)])
        rank = x.shape[1] if ridge > 0 else int(np.count_nonzero(information)) - int(fit_intercept)
        value = _trace(design, noise, pool, rank) if np.isfinite(design).all() and np.isfinite(pool).all() else math.nan
    if not math.isfinite(value):
        raise UncurseError("the variance overflows; check that the columns of X and X_pool have the same units")
    return value


def _check_features(values: ArrayLike, rows: int | None, name: str) -> Array:
    x = check_numbers(values, name).astype(np.float64, copy=False)
    if x.ndim != 2 or 0 in x.shape or (rows is not None and len(x) != rows):
        wanted = "(m, d), at least one row" if rows is None else f"({rows}, d), a row per probability"
        raise UncurseError(f"{name} has shape {x.shape}; pass {wanted} and one column")
    check_finite(x, name)
    return x


def _trace(design: Array, noise: Array, pool: Array, rank: int) -> float:
    """Return tr(Cov(pool) H⁻¹ J H⁻¹) for H = designᵀ design and J = noiseᵀ noise, of at most some rank.

    A QR factorization keeps twice as many digits as H itself does, and a sum of squares cannot be negative.
    """
    norms = np.linalg.norm(design, axis=0)
    norms[norms == 0] = 1.0
    _, singular, rotation = np.linalg.svd(np.linalg.qr(design / norms, mode="r"))
    kept = singular > _COLLINEAR * singular[0]
    kept &= np.arange(len(singular)) < rank
    whitening = (rotation[: len(singular)][kept] / singular[kept, None] / norms).T  # H⁻¹ = whitening · whiteningᵀ
    root = np.linalg.qr(noise @ whitening, mode="r") @ whitening.T  # rootᵀ root = H⁻¹ J H⁻¹
    return float(np.square(pool @ root.T).sum() / len(pool))
