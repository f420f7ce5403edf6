"""Poisson bootstraps of training rows, which do not depend on the order of the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..errors import UncurseError
from ..validation import effective_rows, encode_names

Rows = NDArray[np.intp]

_REDRAWS = 1000
_LEAST_ROWS = 5  # effective rows that a bootstrap needs


@dataclass(frozen=True)
class Bootstrap:
    """Units that are drawn independently: rows in the order of their content, or whole groups of rows."""

    units: Rows  # (n,): unit of each row
    count: int
    classes: Rows  # (n,): every class must be drawn
    weight: Array  # (n,)

    @classmethod
    def of(
        cls, X: Any, y: NDArray[Any], weights: Array | None, groups: ArrayLike | None, *, stratified: bool
    ) -> Bootstrap:
        """Prepare draws for these rows; `stratified` makes sure that every class of `y` is drawn."""
        n = len(y)
        weight = np.ones(n) if weights is None else weights
        if effective_rows(weight) < min(_LEAST_ROWS, np.count_nonzero(weight) / 2):
            raise UncurseError(
                f"sample_weight leaves {effective_rows(weight):.3g} effective rows of {np.count_nonzero(weight)}, and "
                f"a bootstrap needs {_LEAST_ROWS}; use less extreme weights, or replicas='seeds'"
            )
        classes = np.unique(y, return_inverse=True)[1] if stratified and y.ndim == 1 else np.zeros(n, np.intp)
        if groups is None:
            units = np.empty(n, np.intp)
            hashes = row_hashes(X, classes if stratified else y)
            units[np.lexsort([weight, hashes, weight == 0])] = np.arange(n)
        else:
            units = encode_names(groups, n, "groups")[1]
        return cls(units, int(units.max()) + 1, classes, weight)

    def draw(self, seed: list[int], rows: Rows | None = None, *, at_most_once: bool = False) -> NDArray[np.int64]:
        """Return how often each row is drawn: Poisson(1), or 0 or 1 with equal chances; 0 outside `rows`.

        Half of the rows without repetition have the same variance as a bootstrap. Draw again if a class, or half of
        the weight that is expected, is missing.
        """
        among = np.ones(len(self.units), bool) if rows is None else np.isin(np.arange(len(self.units)), rows)
        allowed = np.where(among, self.weight, 0.0)
        expected = allowed.sum() / (2 if at_most_once else 1)
        needed = np.bincount(self.classes, weights=allowed) > 0
        for attempt in range(_REDRAWS):
            rng = np.random.default_rng([*seed, attempt])
            times = (rng.integers(2, size=self.count) if at_most_once else rng.poisson(1.0, self.count))[self.units]
            weight = allowed * times
            if weight.sum() >= expected / 2 and (np.bincount(self.classes, weights=weight) > 0)[needed].all():
                return np.asarray(times * (allowed > 0), np.int64)
        rarest = int(np.bincount(self.classes[self.weight > 0]).min())
        raise UncurseError(
            f"none of {_REDRAWS} bootstraps contains every class: the rarest has {rarest} rows; add rows of it, or use "
            "replicas='seeds'"
        )


def take_rows(X: Any, rows: Rows) -> Any:
    """Return some rows of an array, a sparse matrix, a dataframe or a list."""
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    return X[rows] if hasattr(X, "__getitem__") else np.asarray(X)[rows]


def row_hashes(X: Any, y: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of the content of each row."""
    pairs = zip(_row_bytes(X), _row_bytes(y), strict=True)
    digests = (hashlib.blake2b(b"".join(pair), digest_size=8).digest() for pair in pairs)
    return np.frombuffer(b"".join(digests), np.uint64)


def _row_bytes(X: Any) -> Iterator[bytes]:
    """Content of each row: equal for equal numbers in arrays, lists and dataframes."""
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        return (X.indices[i:j].tobytes() + X.data[i:j].tobytes() for i, j in pairwise(X.indptr.tolist()))
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":  # the estimator refuses complex numbers by itself
        return (row.tobytes() for row in np.asarray(X))
    try:
        return (row.tobytes() for row in np.asarray(X, np.float64))
    except (TypeError, ValueError):  # text, categories, dates, ragged lists
        rows = X if isinstance(X, list | tuple) else np.asarray(X).tolist()
    return (
        row.tobytes() if isinstance(row, np.ndarray) else repr(row).encode("utf-8", "backslashreplace") for row in rows
    )
