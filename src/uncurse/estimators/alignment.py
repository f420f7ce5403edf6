"""Translate scores of the served model to scores of the models of the folds.

The map is fitted to scores out of fold, whose models are trained on fewer rows and so have more noise. A served score
corresponds to the score out of fold for which the expected truth is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._types import Array
from ..debias.replica_kinds import ReplicaKind

_LEAST_ROWS = 30  # of a fold, from which its noise is estimated
_LEAST = 0.05  # least share of the variance that is attributed to true scores


def align(
    kind: ReplicaKind,
    folds: Sequence[Array],
    served: Array | None,
    *,
    held_out: float,
    weights: Sequence[Array] | None = None,
) -> tuple[float, float]:
    """Return slope and intercept that translate a served score to a score out of fold.

    With all rows, noise has r times the variance that it has in a fold. For regular models r is 1 − held_out, and for
    strongly regularised ones 1: the prior is the middle between them. Differences between replicas on the pool measure
    r, with an error that follows from the differences between folds.

    `folds` holds the scores (m, S) of the pool by the models of each fold, which have not seen a share `held_out` of
    the rows, `served` those by the models that are trained on all rows, and `weights` the weights (m,) of each fold's
    rows.
    """
    if min(map(len, folds)) < _LEAST_ROWS:
        folds, weights = [np.concatenate(folds)], None if weights is None else [np.concatenate(weights)]
    by_fold = [None] * len(folds) if weights is None else weights
    parts = [np.cov(scores.T, ddof=0, aweights=own) for scores, own in zip(folds, by_fold, strict=True)]
    noises = np.array([float(kind.noise_variance(part)) for part in parts])
    noise, variance = float(noises.mean()), float(np.mean([part[0, 0] for part in parts]))
    if not min(noises.min(), variance) > 0:
        return 1.0, 0.0
    means = [np.average(scores[:, 0], weights=own) for scores, own in zip(folds, by_fold, strict=True)]
    center = float(np.mean(means))
    log_ratio, error = np.log1p(-held_out / 2), held_out / 2
    served_center, served_variance = center, None
    if served is not None:
        covariance = np.cov(served.T, ddof=0)
        served_center, served_variance = float(served[:, 0].mean()), float(covariance[0, 0])
        served_noise = float(kind.noise_variance(covariance))
        if not min(served_noise, served_variance) > 0:
            return 1.0, 0.0
        chance = float(np.std(np.log(noises), ddof=1)) * np.sqrt(1 + 1 / len(folds)) if len(folds) > 1 else np.inf
        weight = error**2 / (error**2 + max(chance, 1e-3) ** 2)
        log_ratio += weight * (np.log(served_noise / noise) - log_ratio)
    ratio = float(np.exp(log_ratio))
    true = max(variance - noise, _LEAST * variance)
    if served_variance is None:  # the true scores are the same, with less noise
        served_variance = true + ratio * noise
    served_true = max(served_variance - ratio * noise, _LEAST * served_variance)
    # The ratio of both λ, and of the scales of the true scores if their variances differ.
    slope = float(np.sqrt(served_true / served_variance / (true / variance) * variance / served_variance))
    return slope, center - slope * served_center
