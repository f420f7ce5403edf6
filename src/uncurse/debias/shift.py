"""How the pool differs from the labelled rows, beyond chance.

`Tower` corrects predictions for the difference between both distributions. If noise is large, small differences of
variances change the correction a lot. So differences that may be due to chance are shrunk.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._types import Array
from ..evidence.replica_cells import ReplicaCells, clip_outliers
from ..links import logistic
from .remaining_error import log_bayes_factor
from .replica_kinds import ReplicaKind

# Standard deviations of differences, if there are any: of means (in standard deviations of the score), of the logarithm
# of the standard deviation of the score, and of that of the noise.
_SIZES = np.array([0.3, 0.1, 0.1])
_ROUNDING = 1e-20  # a smaller squared standard error is 0 up to rounding, which depends on the order of rows


def without_chance(pool: ReplicaCells, labelled: ReplicaCells, kind: ReplicaKind) -> ReplicaCells:
    """Return the cells of the pool, moved towards the labelled rows where both differ by chance.

    Mean, spread and noise are compared one by one. Each differs with probability ½, by a normal of known size. The
    difference is multiplied by the probability that it is real, given the samples.
    """
    if len(pool.served_masses) or len(labelled.served_masses):  # floors and caps must stay where they are
        return pool
    (mine, my_errors), (theirs, their_errors) = (_moments(cells, kind) for cells in (pool, labelled))
    scale = np.array([float(np.exp(theirs[1])), 1.0, 1.0])
    difference, error = (mine - theirs) / scale, my_errors + their_errors
    if not (np.isfinite(difference).all() and (error > _ROUNDING).all()):  # replicas that are equal or all as far apart
        return pool
    chance = log_bayes_factor(difference, error, np.square(_SIZES))
    mean, spread, noise = theirs + logistic(-chance) * difference * scale
    noise_ratio = float(np.exp(noise - mine[2]))
    return replace(
        pool,
        served=mean + float(np.exp(spread - mine[1])) * (pool.served - mine[0]),
        gap=pool.gap_level + noise_ratio * (pool.gap - pool.gap_level),
        spread=noise_ratio**2 * pool.spread,
    )


def _moments(cells: ReplicaCells, kind: ReplicaKind) -> tuple[Array, Array]:
    """Return mean, log standard deviation and log noise of some cells, and their squared standard errors.

    The first error is in standard deviations of the score.
    """
    w = cells.weight / cells.weight.sum()
    x, variance = (clip_outliers(values, w) for values in (cells.served, kind.summarize(cells).variance))
    mean, noise = float(w @ x), float(w @ variance)
    square = np.square(x - mean)
    spread = float(w @ square)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.array([mean, 0.5 * np.log(spread), 0.5 * np.log(noise)])
        relative = [1.0, float(w @ np.square(square / spread - 1)) / 4, float(w @ np.square(variance / noise - 1)) / 4]
    return values, np.array(relative) / cells.effective_rows
