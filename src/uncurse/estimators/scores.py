"""Scores that a map is fitted to: of training rows out of fold, and of the pool."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, from_arrays
from ..evidence.from_arrays import column_names
from .replicas import Replicas
from .resampling import Rows

_TREES_AND_LINEAR = (
    "lightgbm",
    "xgboost",
    "catboost",
    "sklearn.tree",
    "sklearn.ensemble",
    "sklearn.linear_model",
)
_SCORED_ROWS = 20_000  # more scores of the pool have next to no effect on a map


def count_rows(pool: Any) -> int:
    """Return the number of rows of a pool, 0 if there is none; raise UncurseError if it has no rows."""
    if pool is None:
        return 0
    try:
        count = int(_num_samples(pool))
    except (TypeError, ValueError) as error:
        raise UncurseError(f"the pool has no rows to score: {error}") from None
    if not count:
        raise UncurseError("the pool has 0 rows; pass a sample of the candidates, or omit it")
    return count


def is_tree_or_linear(estimator: Any) -> bool:
    """Return whether the noise of a model comes from its training rows rather than from its seed."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return any(part.__module__.startswith(_TREES_AND_LINEAR) for part in type(estimator).__mro__)


def all_constant(parts: list[Array]) -> bool:
    """Return whether each model predicts a single value; parts of one row say nothing."""
    several = [part for part in parts if len(part) > 1] or [np.concatenate(parts)]
    return all(not np.ptp(part[:, 0]) > 1e-9 * np.abs(part[:, 0]).max() for part in several)


def pool_parts(pool: int, folds: int, seed: int) -> tuple[list[Rows | None], int]:
    """Return the pool rows that the models of each fold score, and how many folds score each row.

    Every fold scores a small pool, so that differences between models average out. A large one is divided between
    folds, which saves time.
    """
    times = min(folds, max(1, _SCORED_ROWS // max(pool, 1)))
    if times == folds:
        return [None] * folds, max(folds, 1)
    first = np.random.default_rng([seed, pool]).permutation(pool) % folds
    return [np.flatnonzero((number - first) % folds < times) for number in range(folds)], times


class CrossFit(NamedTuple):
    """Models, and the scores that a map is fitted to."""

    replicas: Replicas  # trained on all rows
    pool: Array  # scores of the pool by the models of each fold, shape (rows, S)
    pool_weights: Array | None
    labelled: tuple[Array, ...] | None  # scores out of fold, labels and, if there are any, weights
    target: NDArray[Any]
    served_pool: Array | None  # scores of the pool, or of a sample of it, by `replicas`
    alignment: tuple[float, float]  # slope and intercept, on the link, from a served score to a score out of fold
    constant: bool  # whether each model predicts a single value
    pool_repeats: float = 1.0  # how often each row of the pool is scored
    labelled_repeats: float = 1.0  # how often each labelled row is scored

    def pool_evidence(self, scale: str, clip: float = 0.0) -> Evidence:
        """Return the pool as evidence, with the number of different rows."""
        return _evidence(self.pool, None, self.pool_weights, scale, clip).repeated(self.pool_repeats)

    def served_evidence(self, scale: str, clip: float = 0.0) -> Evidence:
        """Return the pool as evidence, scored by the models that are trained on all rows."""
        assert self.served_pool is not None
        return _evidence(self.served_pool, None, None, scale, clip)

    def labelled_evidence(self, scale: str, clip: float = 0.0) -> Evidence:
        """Return the labelled rows as evidence, with the number of different rows."""
        assert self.labelled is not None
        scores, labels, *weights = self.labelled
        return _evidence(scores, labels, weights[0] if weights else None, scale, clip).repeated(self.labelled_repeats)


def _evidence(scores: Array, labels: Array | None, weights: Array | None, scale: str, clip: float) -> Evidence:
    clipped = np.clip(scores, clip, 1 - clip) if clip else scores
    spec = LogSpec(column_names(scores.shape[1]), scale, label=None if labels is None else "label")
    counts = scale == "probability"
    return from_arrays(clipped, labels, spec=spec, sample_weight=weights, replica_counts=counts)
