"""The default teacher of a classifier: gradient-boosted trees on a table of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import OrdinalEncoder
from threadpoolctl import threadpool_limits

from .._types import Array

_FEW_ROWS = 50_000  # fitted by one thread: on a busy machine, several would mostly wait for each other
_MOST_COLUMNS = 256  # of a sparse matrix; trees gain little from rare features, and take long


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


def default_teacher(X: Any, pool: Any, seed: int) -> tuple[Any, Any, Any] | None:
    """Return a teacher, and the training rows and the pool as it takes them; None if they are no tables."""
    if hasattr(X, "tocsc"):
        columns = np.sort(np.argsort(-np.diff(X.tocsc().indptr), kind="stable")[:_MOST_COLUMNS])
        rows = [part.tocsc()[:, columns].toarray() for part in (X, pool)]
    else:
        parts = [_columns(part) for part in (X, pool)]
        if not parts[0] or len(parts[0]) != len(parts[1]):
            return None
        rows = [np.column_stack(part) for part in zip(*map(_numbers, *parts), strict=True)]
    # Small steps and trees: the default settings over-fit a few thousand rows.
    model = Trees(learning_rate=0.05, max_iter=200, max_leaf_nodes=15, random_state=seed)
    return model, *rows


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
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        text = [part.astype(str).reshape(-1, 1) for part in (column, of_pool)]
        return encoder.fit_transform(text[0])[:, 0], encoder.transform(text[1])[:, 0]
