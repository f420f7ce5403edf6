"""The default teacher: boosted trees, which show how the pool differs from the training rows in what a model misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from .._types import Array

_MOST_COLUMNS = 128  # of a sparse matrix; trees gain little from rare features, and take long
# On real logs a quarter of the rounds of slower steps has the same log loss.
_SETTINGS = {"learning_rate": 0.2, "max_iter": 40, "max_leaf_nodes": 6}
_FEW_ROWS = 50_000  # trees are fitted by one thread: on a busy machine, several would mostly wait for each other
_COMPARED_ROWS = 10_000  # of training rows and of the pool; a difference that these do not show hardly matters
_SPLITS = 100  # random splits of these rows


@dataclass(frozen=True, eq=False)
class Teacher:
    """A classifier to be trained in the folds, and the training rows and the pool as it takes them."""

    model: Any
    rows: Any
    pool: Any

    def sees_a_shift(self, seed: int) -> bool:
        """Return whether column means of pool and training rows differ more than in nine of ten random splits.

        Both the largest of the standardized differences and the sum of their squares are compared, for a shift of one
        column and of many. Random splits have the same correlated and rare columns. A false alarm costs only time, and
        a shift that is missed a bias, so the limit is low.
        """
        rng = np.random.default_rng(seed)
        parts = [part[rng.permutation(len(part))[:_COMPARED_ROWS]] for part in (self.rows, self.pool)]
        columns = np.nan_to_num(np.concatenate(parts, dtype=np.float64), copy=False, posinf=0.0, neginf=0.0)
        columns -= columns[0].copy()  # a constant column is now exactly 0
        columns -= columns.mean(axis=0)
        spread = columns.std(axis=0)
        columns /= np.where(spread > 0, spread, 1.0)
        first = np.arange(len(columns)) < len(parts[0])
        splits = np.stack([first, *(rng.permutation(first) for _ in range(_SPLITS))]).astype(np.float64)
        differences = np.abs(splits @ columns)  # of one part from the mean of both, which is 0, times its rows
        found = (differences.max(axis=1), np.square(differences).sum(axis=1))
        return any(values[0] > np.quantile(values[1:], 0.95) for values in found)


def default_teacher(X: Any, pool: Any, seed: int) -> Teacher | None:
    """Return a teacher for these training rows and this pool; None if they are no tables."""
    if hasattr(X, "tocsc"):
        columns = np.sort(np.argsort(-np.diff(X.tocsc().indptr), kind="stable")[:_MOST_COLUMNS])
        rows = [csc_array(part)[:, columns].toarray() for part in (X, pool)]
    else:
        parts = [_columns(part) for part in (X, pool)]
        if not parts[0] or len(parts[0]) != len(parts[1]):
            return None
        rows = [np.column_stack(part) for part in zip(*map(_numbers, *parts), strict=True)]
    return Teacher(Trees(**_SETTINGS, random_state=seed), *rows)


class Trees(HistGradientBoostingClassifier):  # type: ignore[misc]
    """Gradient-boosted trees that use one thread for few rows."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to training rows."""
        with threadpool_limits(1 if len(X) < _FEW_ROWS else None, user_api="openmp"):
            return super().fit(X, y, sample_weight)

    def predict_proba(self, X: Any) -> Any:
        """Return probabilities of the classes."""
        with threadpool_limits(1 if len(X) < _FEW_ROWS else None, user_api="openmp"):
            return super().predict_proba(X)


def _columns(X: Any) -> list[Any]:
    """Return the columns of a frame or an array of two dimensions; none of anything else."""
    if hasattr(X, "columns"):
        return [np.asarray(X[name]) for name in X.columns]
    array = np.asarray(X)
    return list(array.T) if array.ndim == 2 else []


def _numbers(column: Any, of_pool: Any) -> tuple[Array, Array]:
    """Return a column of the training rows and of the pool as numbers; categories become their ranks."""
    try:
        return np.asarray(column, np.float64), np.asarray(of_pool, np.float64)
    except (TypeError, ValueError):
        text = np.concatenate([part.astype(str) for part in (column, of_pool)])
        ranks = np.unique(text, return_inverse=True)[1].astype(np.float64)
        return ranks[: len(column)], ranks[len(column) :]
