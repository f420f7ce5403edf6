"""Scores that a map is fitted to: of training rows out of fold, and of the pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples

from .._types import Array
from ..debias.records import DataRecord, FitRecord
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, from_arrays
from ..evidence.from_arrays import column_names
from ..validation import effective_rows
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


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Hold the models that `cross_fit` has trained, and the scores that a map is fitted to.

    Scores are what the base model predicts: probabilities of ``classes_[1]``, or values of a regressor. Column 0 holds
    those of the served model, or of its counterpart in a fold. S is `n_replicas`.

    Parameters
    ----------
    replicas : Replicas
        Models trained on all rows.
    pool : ndarray of shape (k * m, S)
        Scores of the m rows of the pool by the models of folds, fold by fold. Up to 20,000 rows, k is at most `cv`, so
        that there may be one copy of the pool for each fold; in a larger pool each row is scored by one fold. Without
        a pool these are the scores of `labelled`; without folds, those of the pool by `replicas`.
    pool_weights : ndarray of shape (k * m,), or None
        Weights of the rows of `pool`; None if all are equal.
    labelled : tuple (scores, labels) or (scores, labels, weights), or None
        Training rows scored out of fold, fold by fold, not in the order of X. None without folds.
    target : ndarray of shape (n,)
        The target, in the order of X.
    served_pool : ndarray of shape (m', S), or None
        Scores of the pool, or of a sample of it, by `replicas`. None without a pool but with folds.
    alignment : tuple of float
        Slope and intercept of the line, on the log odds or the values, from a score of the served model to a score out
        of fold. Models of folds see fewer rows, so their scores are noisier. A map that is fitted to scores out of
        fold takes served scores after this line.
    constant : bool
        Whether each model predicts a single value.
    pool_repeats, labelled_repeats : float, default=1.0
        k, how often each row of the pool is scored, and the same for the labelled rows.

    Examples
    --------
    >>> from uncurse import UncursedClassifierCV
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> done = UncursedClassifierCV(cv=2, random_state=0).cross_fit(X, X[:, 0] > 0.1, pool=X[:50])
    >>> done.pool.shape, done.labelled[0].shape
    ((100, 3), (200, 3))
    """

    replicas: Replicas
    pool: Array
    pool_weights: Array | None
    labelled: tuple[Array, ...] | None
    target: NDArray[Any]
    served_pool: Array | None
    alignment: tuple[float, float]
    constant: bool
    pool_repeats: float = 1.0
    labelled_repeats: float = 1.0


def pool_evidence(done: CrossFit, clip: float = 0.0) -> Evidence:
    """Return a pool of probabilities as evidence, with the number of different rows; `clip` as in `evidence_of`."""
    return evidence_of(done.pool, None, done.pool_weights, clip).repeated(done.pool_repeats)


def labelled_evidence(done: CrossFit, clip: float = 0.0) -> Evidence:
    """Return the labelled rows as evidence, with the number of different rows."""
    assert done.labelled is not None
    scores, labels, *weights = done.labelled
    return evidence_of(scores, labels, weights[0] if weights else None, clip).repeated(done.labelled_repeats)


def pool_record(done: CrossFit) -> DataRecord:
    """Return the record of the pool, with each row counted once."""
    return _data_record(done.pool, done.pool_weights, done.pool_repeats)


def served_record(record: FitRecord, done: CrossFit, *, uses_labels: bool) -> FitRecord:
    """Return what the record of a fit to scores out of fold says about the map of served scores."""
    labelled = None
    if uses_labels and done.labelled is not None:
        scores, _, *weights = done.labelled
        labelled = _data_record(scores, weights[0] if weights else None, done.labelled_repeats)
    record = replace(record, pool=pool_record(done), labelled=labelled)
    if done.labelled is None:
        return record
    # Served scores have less noise, and another center; monitoring would take the difference of λ for a drift.
    return replace(record, standard_error=None, center=None, noise_variance=None, score_variance=None)


def _data_record(scores: Array, weights: Array | None, repeats: float) -> DataRecord:
    rows = len(scores) / repeats
    effective = rows if weights is None else effective_rows(weights) / repeats
    return DataRecord(round(rows), column_names(scores.shape[1]), effective_rows=effective)


def evidence_of(scores: Array, labels: Array | None, weights: Array | None, clip: float) -> Evidence:
    """Return probabilities, clipped to [clip, 1 − clip], as evidence."""
    spec = LogSpec(column_names(scores.shape[1]), "probability", label=None if labels is None else "label")
    clipped = np.clip(scores, clip, 1 - clip) if clip else scores
    return from_arrays(clipped, labels, spec=spec, sample_weight=weights, replica_counts=True)
