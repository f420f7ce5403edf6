"""Weighted logistic regression by Newton's method: the only logistic solver of the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..links import logistic
from ..threads import one_blas_thread

_MAX_STEPS = 100  # a regular problem needs 5 to 30
# Converged: the loss per unit weight is within 1e-20 of its minimum. The last step is then exact to rounding.
_TOLERANCE = 1e-20
# Below this eigenvalue the information per unit weight is singular to working precision; features are whitened, so at
# most it is 1/4. On separated labels the smallest eigenvalue and the Newton decrement both decay like exp(-|logit|), so
# this bound is reached before `_TOLERANCE`.
_SINGULAR = 1e-14
_NO_VARIANCE = 1e-14  # a direction with less prior variance is certain
_EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LogisticFit:
    """Result of `fit_logistic`. The observed information includes the prior precision."""

    coefficients: Array  # (d,), posterior mode
    covariance: Array  # (d, d), inverse of the observed information
    log_likelihood: float  # at the mode, minus the penalty of the prior
    log_determinant: float  # of the observed information


def fit_logistic(
    features: Array,
    weight: Array,
    label: Array,
    *,
    offset: Array | float = 0.0,
    prior_mean: Array | None = None,
    prior_precision: Array | None = None,
    start: Array | None = None,
) -> LogisticFit:
    """Fit a logistic regression to cells with features (d, K), weights (K,) and weighted label sums (K,).

    Maximise Σ yₖ lₖ − wₖ log(1 + exp lₖ) − ½ Σ λⱼ (bⱼ − mⱼ)² with lₖ = offsetₖ + Σ bⱼ xⱼₖ, prior means m and precisions
    λ; zeros replace `start` if they fit better. Raise UncurseError if there is no finite maximum: the features separate
    the labels, or are collinear.

    >>> x = np.array([-1.0, 0.0, 1.0])
    >>> fit = fit_logistic(np.stack([x, np.ones(3)]), np.full(3, 10.0), 10 * logistic(2 * x - 1))
    >>> fit.coefficients.round(6)
    array([ 2., -1.])
    """
    zeros = np.zeros(len(features))
    mean = zeros if prior_mean is None else np.asarray(prior_mean, np.float64)
    precision = zeros if prior_precision is None else np.asarray(prior_precision, np.float64)
    total = float(weight.sum())
    with one_blas_thread():
        unscale = _whitening(features, weight / total, precision / total)
        begin = zeros if start is None else np.asarray(np.linalg.solve(unscale, start), np.float64)
        at, information, loss = _minimize(
            unscale.T @ features, weight / total, label / total, offset, unscale.T, mean, precision / total, begin
        )
        inverse = unscale @ np.linalg.inv(information) @ unscale.T / total
        log_determinant = np.linalg.slogdet(information)[1] - 2 * np.linalg.slogdet(unscale)[1]
    return LogisticFit(
        unscale @ at,
        (inverse + inverse.T) / 2,
        -loss * total,
        float(log_determinant + len(zeros) * np.log(total)),
    )


def marginal_likelihood(
    features: Array, weight: Array, label: Array, offset: Array, prior: Array
) -> tuple[Array, Array, float]:
    """Return posterior mean, covariance and log marginal likelihood (Laplace) under a normal prior about 0.

    `prior` is the covariance of the coefficients; directions without variance are certain.
    """
    values, vectors = np.linalg.eigh(prior)
    free = values > _NO_VARIANCE
    root = vectors[:, free] * np.sqrt(values[free])
    if not free.any():
        loss = label * np.logaddexp(0.0, -offset) + (weight - label) * np.logaddexp(0.0, offset)
        return np.zeros(len(prior)), np.zeros_like(prior), -float(loss.sum())
    fit = fit_logistic(root.T @ features, weight, label, offset=offset, prior_precision=np.ones(int(free.sum())))
    mean, covariance = root @ fit.coefficients, root @ fit.covariance @ root.T
    return mean, covariance, fit.log_likelihood - 0.5 * fit.log_determinant


def _whitening(features: Array, weight: Array, precision: Array) -> Array:
    """Matrix A for which the rows of A'X are orthonormal under `weight` (and the prior), for any scale of X."""
    largest = np.maximum(np.abs(features).max(axis=1), np.sqrt(precision))
    if (largest == 0).any():
        raise _not_converged()
    rows = np.vstack([(features / largest[:, None] * np.sqrt(weight)).T, np.diag(np.sqrt(precision) / largest)])
    size = np.sqrt(np.square(rows).sum(axis=0))
    if (size == 0).any():
        raise _not_converged()
    triangle = np.linalg.qr(rows / size, mode="r")
    if np.abs(np.diagonal(triangle)).min() < 1e-12:  # collinear to rounding
        raise _not_converged()
    return np.asarray(np.linalg.inv(triangle) / (largest * size)[:, None])


def _minimize(
    features: Array,
    weight: Array,
    label: Array,
    offset: Array | float,
    to_prior: Array,
    prior_mean: Array,
    prior_precision: Array,
    start: Array,
) -> tuple[Array, Array, float]:
    """Return the minimum of the loss in whitened coordinates per unit of weight, the information, and the loss.

    `to_prior` is the transposed map from whitened coordinates to coefficients. This is Newton's method from
    zeros or `start`, whichever is better. Where the loss does not fall, the step is damped (Levenberg) until it does:
    damping shortens and turns the step. Halving alone fails where all cells are saturated, because the Newton step is
    then longer by many orders of magnitude than the distance to the minimum.
    """

    def loss_at(at: Array) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            l = at @ features + offset
            # y log(1 + exp(-l)) + (w - y) log(1 + exp(l)) has no cancellation.
            tail = np.log1p(np.exp(-np.abs(l)))
            misses = label * np.maximum(-l, 0.0) + (weight - label) * np.maximum(l, 0.0)
            penalty = 0.5 * np.sum(prior_precision * np.square(at @ to_prior - prior_mean))
            loss = float(np.sum(weight * tail + misses) + penalty)
        return loss if np.isfinite(loss) else np.inf

    at = min(np.zeros_like(start), start, key=loss_at)
    loss, damping = loss_at(at), 0.0
    for _ in range(_MAX_STEPS):
        l = at @ features + offset
        p, q = logistic(l), logistic(-l)
        residual, spread = (weight - label) * p - label * q, weight * p * q
        gradient = features @ residual + to_prior @ (prior_precision * (at @ to_prior - prior_mean))
        hessian = (features * spread) @ features.T + (to_prior * prior_precision) @ to_prior.T
        # Large coefficients of nearly separated labels cancel in the log odds, so that e = ε Σⱼ |bⱼ xⱼ| of a cell may
        # exceed ε by many orders of magnitude. With the residuals r the loss moves by up to Σ |r| e, and the gradient
        # by X (w p q e), whose Newton decrement is at most Σ w p q e².
        rounding = _EPSILON * (np.abs(at) @ np.abs(features) + np.abs(offset))
        loss_error, decrement_error = float(np.abs(residual) @ rounding), float(spread @ np.square(rounding))
        values, vectors = np.linalg.eigh(hessian)
        along = vectors.T @ gradient
        regular = bool(values[0] > _SINGULAR)
        if regular:
            tolerance = _TOLERANCE + (8 * _EPSILON) ** 2 / values[0] + decrement_error
            if np.sum(along**2 / values) < tolerance:
                at = at - vectors @ (along / values)
                return at, hessian, loss_at(at)
        damping = damping if regular else max(damping, 1e-8)
        for _ in range(60):
            step = -along / (np.maximum(values, 0.0) + damping)
            candidate = at + vectors @ step
            new = loss_at(candidate)
            if new <= loss + 1e-4 * (along @ step) + 4 * _EPSILON * loss + loss_error:
                break
            damping = max(4 * damping, 1e-8)
        else:
            raise _not_converged()
        at, loss = candidate, new
        damping = damping / 16 if damping > 1e-8 else 0.0
    raise _not_converged()


def _not_converged() -> UncurseError:
    return UncurseError(
        f"logistic regression did not converge in {_MAX_STEPS} Newton steps; the scores separate the labels, or are "
        "constant; use more rows"
    )
