"""`Cells`: served scores in order, with weight and label sum; all that calibrators and metrics need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import documents
from ..links import Float, UncurseError, check_choice, check_labels, check_scores, check_weights, logit
from .moments import Array

# The grid, on the logit: steps of 1/1024 between -6 and 4, where the top of most pools lies, coarser
# outside. Counted in steps of 1/1024 first, then every `width` steps become one cell: 16,128 in all.
_GRID_LOW, _GRID_HIGH, _GRID_STEPS = -16.0, 16.0, 1024
_GRID_SECTIONS = ((-16, -10, 8), (-10, -6, 2), (-6, 4, 1), (4, 8, 2), (8, 16, 8))  # from, to, width
_GRID_SIZE = int((_GRID_HIGH - _GRID_LOW) * _GRID_STEPS)
_GRID_CELLS: NDArray[np.int64] = np.concatenate(
    [
        np.arange((low + 16) * _GRID_STEPS, (high + 16) * _GRID_STEPS) // width * width
        for low, high, width in _GRID_SECTIONS
    ]
)
_GRID_STARTS = np.unique(_GRID_CELLS)
_EXACT_ROWS = 1 << 20  # beyond this many rows arrays go to the grid unless the caller says otherwise


def grid_steps(logits: Float) -> NDArray[np.int64]:
    """The number of the 1/1024-wide step that holds each logit; the ends take what lies beyond them."""
    steps = (logits - _GRID_LOW) * _GRID_STEPS
    np.clip(steps, 0, _GRID_SIZE - 1, out=steps)
    return steps.astype(np.int64)


class Cells:
    """Served scores in ascending order with their weight and label sum.

    A cell is a distinct score (exact) or a slot of a fixed grid on the logit that keeps the mean score
    inside it. Exact cells are kept up to 2^20 rows unless `exact` says otherwise; a grid never has more
    than 16,128 cells, however many rows.

    Parameters
    ----------
    scale
        What `score` is: ``"logit"`` (probabilities given to `update` are converted), ``"probability"``, or
        ``"value"``, which is always exact.
    exact
        True, False, or None to decide by the number of rows.

    Attributes
    ----------
    score, weight, label : arrays of shape (K,)
        Mean score, total weight and weighted label sum; `label` is None for unlabelled rows.
    weight_squares, label_squares : arrays of shape (K,)
        Sums of w² and w²y, for standard errors; the same as `weight` and `label` without weights.

    Examples
    --------
    >>> cells = Cells().update([0.5, -1.0, 0.5], [1, 0, 0])
    >>> cells.score, cells.weight, cells.label
    (array([-1. ,  0.5]), array([1., 2.]), array([0., 1.]))
    """

    def __init__(self, scale: str = "logit", exact: bool | None = None) -> None:
        self.scale = check_choice("scale", scale, ("logit", "probability", "value"))
        if exact is False and scale == "value":
            raise UncurseError("the grid of cells lies on the logit; use exact=True on the value scale")
        self.exact = exact
        self.rows = 0
        self._on_grid = exact is False
        self._labelled: bool | None = None
        # Rows of the table: score sum, weight, label sum; where there are weights also Σw² and Σw²y.
        self._keys: NDArray[Any] = np.empty(0, np.int64 if self._on_grid else np.float64)
        self._table: Array = np.empty((3, 0))

    def update(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        scale: str | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Cells:
        """Add rows; `scores` is (n,) on `scale` (by default that of the cells)."""
        given = self.scale if scale is None else scale
        values = check_scores(scores, given)
        y = None if labels is None else check_labels(labels, len(values))
        weights = check_weights(sample_weight, len(values))
        if given != self.scale and (given, self.scale) != ("probability", "logit"):
            raise UncurseError(f"these cells hold scores on the {self.scale} scale; scale={given!r} cannot be added")
        self._check_labels(y is not None)
        self._labelled = y is not None
        self.rows += len(values)
        if self._too_many():
            self._to_grid()
        if self._on_grid:
            self._add(*_grid_table(values, y, weights, given, self.scale))
        else:
            exact = values if given == self.scale else logit(values.astype(np.float64, copy=False))
            self._add(*_exact_table(exact, y, weights))
        return self

    def merge(self, other: Cells) -> Cells:
        """Add the rows behind `other`. Exact cells join a grid; nothing leaves one."""
        if other.scale != self.scale:
            raise UncurseError(f"cannot merge cells on the {self.scale} and the {other.scale} scale")
        if not other.rows:
            return self
        self._check_labels(bool(other._labelled))
        if other._on_grid and self.exact:
            raise UncurseError("cannot merge cells of a grid into exact ones; use exact=None or exact=False")
        self._labelled = other._labelled
        self.rows += other.rows
        if other._on_grid or self._too_many():
            self._to_grid()
        keys = self._grid_keys(other.score) if self._on_grid and not other._on_grid else other._keys
        self._add(keys, other._table)
        return self

    def _too_many(self) -> bool:
        return self.exact is None and self.scale != "value" and self.rows > _EXACT_ROWS

    def _check_labels(self, labelled: bool) -> None:
        if self._labelled is not None and self._labelled != labelled:
            raise UncurseError("some of these rows have labels and some have none; keep two Cells")

    def _grid_keys(self, scores: Array) -> NDArray[np.int64]:
        return _GRID_CELLS[grid_steps(scores if self.scale == "logit" else logit(scores))]

    def _to_grid(self) -> None:
        if not self._on_grid:
            keys = self._grid_keys(self._keys)
            self._on_grid = True
            self._keys, table = np.empty(0, np.int64), self._table
            self._add(keys, table)

    def _add(self, keys: NDArray[Any], table: Array) -> None:
        if len(self._keys):
            keys = np.concatenate([self._keys, keys])
            table = np.concatenate([_widen(self._table, len(table)), _widen(table, len(self._table))], axis=1)
        self._keys, self._table = _collapse(keys, table)

    @property
    def on_grid(self) -> bool:
        """Whether cells are slots of the grid, not distinct scores."""
        return self._on_grid

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Between which logits each cell lies; an exact cell has no width."""
        if not self._on_grid:
            return self.score, self.score
        width = np.searchsorted(_GRID_STARTS, self._keys, side="right")
        low = self._keys / _GRID_STEPS + _GRID_LOW
        return low, np.append(_GRID_STARTS, _GRID_SIZE)[width] / _GRID_STEPS + _GRID_LOW

    @property
    def score(self) -> Array:
        """Mean score of each cell, ascending."""
        if not self._on_grid:
            keys: Array = self._keys
            return keys
        means: Array = self._table[0] / self._table[1]
        return means

    @property
    def weight(self) -> Array:
        """Weight of each cell."""
        return self._row(1)

    @property
    def label(self) -> Array | None:
        """Weighted label sum of each cell, None where there are no labels."""
        return self._row(2) if self._labelled else None

    @property
    def weight_squares(self) -> Array:
        """Σw² of each cell."""
        return self._row(3 if len(self._table) > 3 else 1)

    @property
    def label_squares(self) -> Array:
        """Σw²y of each cell."""
        return self._row(4 if len(self._table) > 3 else 2)

    def _row(self, i: int) -> Array:
        row: Array = self._table[i]
        return row

    def __len__(self) -> int:
        return len(self._keys)

    def to_json(self) -> str:
        """One JSON document."""
        return documents.dumps(
            "cells",
            {
                "scale": self.scale,
                "exact": self.exact,
                "grid": self._on_grid,
                "rows": self.rows,
                "labelled": self._labelled,
                "keys": self._keys.tolist(),
                "table": self._table.tolist(),
            },
        )

    @classmethod
    def from_json(cls, text: str) -> Cells:
        """Back from `to_json`."""
        content = documents.loads(text, source="cells")
        check_choice("kind", content["kind"], ("cells",))
        with documents.reading("cells"):
            cells = cls(content["scale"], content["exact"])
            cells._on_grid, cells.rows = bool(content["grid"]), int(content["rows"])
            cells._labelled = content["labelled"]
            cells._keys = np.array(content["keys"], np.int64 if cells._on_grid else np.float64)
            cells._table = np.array(content["table"], np.float64).reshape(len(content["table"]), len(cells._keys))
            if len(cells._table) not in (3, 5):
                raise ValueError("its table has neither 3 nor 5 rows")
        return cells


def _widen(table: Array, rows: int) -> Array:
    """Add Σw² and Σw²y to a table that did not need them: without weights they are the weight and label sums."""
    return np.concatenate([table, table[1:3]]) if len(table) < rows else table


def _collapse(keys: NDArray[Any], table: Array) -> tuple[NDArray[Any], Array]:
    """Sort by key and add up what shares one; cells without weight go."""
    if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, table = keys[order], table[:, order]
        first = np.concatenate([[True], keys[1:] != keys[:-1]])
        if not first.all():
            starts = np.flatnonzero(first)
            keys, table = keys[starts], np.add.reduceat(table, starts, axis=1)
    filled = table[1] > 0
    return (keys, table) if filled.all() else (keys[filled], table[:, filled])


def _exact_table(values: Float, labels: NDArray[Any] | None, weights: Array | None) -> tuple[Array, Array]:
    order = np.argsort(values, kind="stable")
    keys = values[order].astype(np.float64, copy=False)
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    tied = len(starts) < len(keys)

    def total(column: NDArray[Any]) -> Array:
        column = column[order].astype(np.float64, copy=False)
        result: Array = np.add.reduceat(column, starts) if tied else column
        return result

    table = np.zeros((3 if weights is None else 5, len(starts)))
    if tied:
        keys = keys[starts]
    if weights is None:
        table[1] = np.diff(starts, append=len(values))
        if labels is not None:
            table[2] = total(labels)
    else:
        table[1], table[3] = total(weights), total(weights * weights)
        if labels is not None:
            table[2], table[4] = total(weights * labels), total(weights * weights * labels)
    table[0] = keys * table[1]
    return keys, table


def _grid_table(
    values: Float, labels: NDArray[Any] | None, weights: Array | None, given: str, kept: str
) -> tuple[NDArray[np.int64], Array]:
    """Sums on the grid by `bincount`, a label folded into the step's number so that one count serves both."""
    pairs = 1 if labels is None else 2
    size = pairs * _GRID_SIZE
    steps_seen = np.zeros((2, size))
    score_sum = np.zeros(_GRID_SIZE)
    for chunk in _chunks(len(values)):
        x = values[chunk].astype(np.float64, copy=False)
        l = x if given == "logit" else logit(x)
        steps = grid_steps(l)
        if kept == "logit":
            x = l.astype(np.float64, copy=False)
        w = None if weights is None else weights[chunk]
        score_sum += np.bincount(steps, weights=x if w is None else x * w, minlength=_GRID_SIZE)
        if labels is not None:
            steps *= 2
            np.add(steps, labels[chunk], out=steps, casting="unsafe")
        if w is None:
            steps_seen[0] += np.bincount(steps, minlength=size)
        else:
            steps_seen[0] += np.bincount(steps, weights=w, minlength=size)
            steps_seen[1] += np.bincount(steps, weights=w * w, minlength=size)
    counts = steps_seen[0].reshape(_GRID_SIZE, pairs)
    table = np.zeros((3 if weights is None else 5, _GRID_SIZE))
    table[0], table[1] = score_sum, counts.sum(axis=1)
    if labels is not None:
        table[2] = counts[:, 1]
    if weights is not None:
        squares = steps_seen[1].reshape(_GRID_SIZE, pairs)
        table[3] = squares.sum(axis=1)
        table[4] = squares[:, 1] if labels is not None else 0.0
    return _GRID_STARTS, np.add.reduceat(table, _GRID_STARTS, axis=1)


def _chunks(rows: int, step: int = 1 << 16) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, rows, step))


__all__ = ["Cells", "grid_steps"]
