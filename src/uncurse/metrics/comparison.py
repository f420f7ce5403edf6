"""Which predictions of the same selected rows are nearer to the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UncurseError
from .evaluation import Evaluation

_DRAWS = 20_000  # a probability of 95% has a standard error of 0.15%
#: From this probability on, predictions are said to be nearer to the truth.
SURE = 0.95


@dataclass(frozen=True)
class Comparison:
    """How near several sets of predictions are to the truth, by the same labels; lists are in the order of the sets.

    Errors of all sets are due to the same labels, so their difference is known better than each of them.

    Examples
    --------
    >>> from uncurse import evaluate
    >>> p = np.linspace(0.01, 0.3, 10_000)
    >>> y = np.random.default_rng(0).random(10_000) < 0.8 * p
    >>> compare([evaluate(y, p, [0.1, 1.0]), evaluate(y, 0.8 * p, [0.1, 1.0])]).nearer[1] > 0.99
    True
    """

    error: list[float]  # mean absolute calibration error over the shares
    nearer: list[float]  # probability of being nearer to the truth than the first set, over all shares
    nearer_by_share: list[list[float | None]]  # as `nearer`; None where there is no positive label


def compare(evaluations: Sequence[Evaluation]) -> Comparison | None:
    """Compare predictions of the same selected rows with the truth; None if no share has a positive label.

    The true number of positives of a share has a normal distribution about the number that was observed, and those of
    rows that only the larger of two shares selects are independent. Predictions are nearer to the truth on a share if
    their sum is nearer to the true number, and over all shares if their mean error relative to the observed number is
    smaller.

    Parameters
    ----------
    evaluations : sequence of Evaluation
        Results on the same rows, such as those of `evaluate_log` for the scores as served, which come first, and for
        maps.

    Returns
    -------
    Comparison or None
    """
    from scipy.special import ndtr

    columns = [one.rows for one in evaluations]
    alphas = np.array([row.alpha for row in columns[0]])
    observed = np.array([row.observed for row in columns[0]])
    for rows in columns:
        if [row.alpha for row in rows] != alphas.tolist() or not np.allclose([row.observed for row in rows], observed):
            raise UncurseError("the evaluations are of different rows; select the same shares of the same rows")
    shares = np.argsort(alphas)[observed[np.argsort(alphas)] > 0]  # which are nested
    if not shares.size:
        return None
    observed = observed[shares]
    predicted = np.array([[rows[i].predicted for i in shares] for rows in columns])
    ratio = np.maximum(predicted / observed, 1e-300)
    error = np.array([[rows[i].ratio.standard_error for i in shares] for rows in columns])
    sd = np.max(error / ratio, axis=0) * observed  # of the observed number
    middle = (predicted + predicted[0]) / 2
    lower = ndtr((middle - observed) / sd)  # the lower sum is nearer if the truth is below the middle
    by_share = np.full((len(columns), len(alphas)), np.nan)
    by_share[:, shares] = np.select([predicted < predicted[0], predicted > predicted[0]], [lower, 1 - lower], 0.5)
    increments = np.diff(np.maximum.accumulate(np.square(sd)), prepend=0.0)
    draws = np.random.default_rng(0).standard_normal((_DRAWS, len(shares)))
    truth = observed + np.cumsum(draws * np.sqrt(increments), axis=1)
    loss = np.stack([(np.abs(one - truth) / observed).mean(axis=1) for one in predicted])
    nearer = (loss < loss[0]).mean(axis=1) + 0.5 * (loss == loss[0]).mean(axis=1)
    nearer = by_share[:, shares[0]] if len(shares) == 1 else nearer
    return Comparison(
        np.abs(predicted / observed - 1).mean(axis=1).tolist(),
        nearer.tolist(),
        [[None if np.isnan(one) else one for one in row] for row in by_share.tolist()],
    )
