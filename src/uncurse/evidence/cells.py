"""`Cells`: served scores in order, with weight and label sum; all that calibrators and metrics need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import logistic, logit
from ..threads import chunks
from ..validation import check_choice, check_labels, check_scores, check_weights, warn_if_probabilities

# The grid, on the logit: steps of 1/1024 between -6 and 4, where the top of most pools lies, coarser outside. Rows are
# counted in steps of 1/1024 first, then every `width` steps become one cell: 14,464 in all. Beyond ±16, where few are,
# steps grow with the logit: to ±1,000 in two units. At the very top, from the lowest step above which there are at
# most 2,048 distinct scores, nothing is rounded: each score is a cell of its own.
_GRID_LOW, _GRID_HIGH, _GRID_STEPS = -18.0, 18.0, 1024
_GRID_SECTIONS = ((-18, -10, 16), (-10, -6, 2), (-6, 4, 1), (4, 8, 4), (8, 18, 16))  # from, to, width
_GRID_SIZE = int((_GRID_HIGH - _GRID_LOW) * _GRID_STEPS)
_GRID_CELLS: NDArray[np.int64] = np.concatenate(
    [
        np.arange((low - _GRID_LOW) * _GRID_STEPS, (high - _GRID_LOW) * _GRID_STEPS).astype(np.int64) // width * width
        for low, high, width in _GRID_SECTIONS
    ]
)
_GRID_STARTS = np.unique(_GRID_CELLS)
_TAIL = 16.0
_TAIL_RATE = 2.0 / np.log(1000.0 / _TAIL)
_TOP = 2_048

#: From where, in how many steps of one, and how many in all; and where tails begin and how they grow: for engines that
#: count by step themselves.
GRID = (_GRID_LOW, _GRID_STEPS, _GRID_SIZE)
TAIL = (_TAIL, float(_TAIL_RATE))
#: Up to so many rows every score is a cell of its own.
EXACT_ROWS = 1 << 17  # beyond this many rows arrays go to the grid unless the caller says otherwise


def grid_steps(logits: Float) -> NDArray[np.int64]:
    """The number of the 1/1024-wide step that holds each logit; the ends take what lies beyond them."""
    beyond = len(logits) > 0 and not (logits.min() >= -_TAIL and logits.max() <= _TAIL)
    if beyond:
        far = np.abs(logits)
        tail = _TAIL + _TAIL_RATE * np.log(np.maximum(far, _TAIL) / _TAIL)
        logits = np.where(far > _TAIL, np.copysign(tail, logits), logits)
    steps = logits - _GRID_LOW
    steps *= _GRID_STEPS
    if beyond:
        np.clip(steps, 0, _GRID_SIZE - 1, out=steps)
    return steps.astype(np.int64)


def step_edges(steps: NDArray[np.integer[Any]] | Array) -> Array:
    """The logits at which steps begin; the inverse of `grid_steps`.

    >>> step_edges(grid_steps(np.array([-1.0, 0.5])))
    array([-1. ,  0.5])
    """
    at = np.asarray(steps, np.float64) / _GRID_STEPS + _GRID_LOW
    tail = np.copysign(_TAIL * np.exp((np.abs(at) - _TAIL) / _TAIL_RATE), at)
    return np.where(np.abs(at) > _TAIL, tail, at)


class Cells:
    """Served scores in ascending order with their weight and label sum.

    A cell is a distinct score (exact) or a slot of a fixed grid on the logit that keeps the mean score inside it; the
    highest 2,048 or so scores are exact in either case. All cells are exact up to 2^17 rows unless `exact` says
    otherwise; with a grid there are never more than 16,512, however many rows.

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
        # Columns are cells. Rows of a table: score sum, weight, label sum; where there are weights also Σw² and Σw²y.
        # Exact cells have their score as key, slots of the grid their first step. On a grid the cells of steps from
        # `_cut` on are exact, and every row below it is in a slot: so the sums do not depend on how rows came.
        self._exact_keys: Array = np.empty(0)
        self._exact_table: Array = np.empty((3, 0))
        self._grid_keys: NDArray[np.int64] = np.empty(0, np.int64)
        self._grid_table: Array = np.empty((3, 0))
        self._cut = 0

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
        if given == "logit":
            warn_if_probabilities(values, "scores")
        self._labelled = y is not None
        self.rows += len(values)
        self._on_grid |= self._too_many()
        if self._on_grid and len(values) > _TOP:
            self._add(*_grid_table(values, y, weights, given, self.scale, self._cut))
        else:
            exact = values if given == self.scale else logit(values.astype(np.float64, copy=False))
            self._add(*_exact_table(exact, y, weights))
        return self

    def update_steps(
        self,
        table: Array,
        rows: int,
        cut: int,
        top: Array,
        labels: NDArray[Any] | None = None,
        weights: Array | None = None,
    ) -> Cells:
        """Add rows that an engine has summed up by `grid_steps`.

        `table` has a column for each step and the rows Σwl, Σw, Σwy and, where there are weights, Σw² and Σw²y. `top`
        are the logits of all rows from step `cut` on (see `top_cut`), with their labels and weights.
        """
        self._check_labels(labels is not None)
        self._labelled = labels is not None
        self.rows += rows
        self._on_grid = True
        self._add(*_cells_of(table, cut, top, labels, weights))
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
        self._on_grid |= other._on_grid or self._too_many()
        self._add(other._exact_keys, other._exact_table, other._grid_keys, other._grid_table, other._cut)
        return self

    def _too_many(self) -> bool:
        return self.exact is None and self.scale != "value" and self.rows > EXACT_ROWS

    def _check_labels(self, labelled: bool) -> None:
        if self._labelled is not None and self._labelled != labelled:
            raise UncurseError("some of these rows have labels and some have none; keep two Cells")

    def _steps(self, scores: Array) -> NDArray[np.int64]:
        return grid_steps(scores if self.scale == "logit" else logit(scores))

    def _add(
        self,
        exact_keys: Array,
        exact_table: Array,
        grid_keys: NDArray[np.int64] | None = None,
        grid_table: Array | None = None,
        cut: int = 0,
    ) -> None:
        """Add exact cells, and slots below `cut`; then keep at most 2,048 exact cells where there is a grid."""
        keys, table = _join(self._exact_keys, self._exact_table, exact_keys, exact_table)
        slots: NDArray[np.int64] = self._grid_keys
        sums = self._grid_table
        if grid_keys is not None and grid_table is not None:
            slots, sums = _join(slots, sums, grid_keys, grid_table)
        self._cut = max(self._cut, cut)
        if self._on_grid and (self._cut or len(keys) > _TOP):
            steps = self._steps(keys)
            if len(keys) > _TOP:
                self._cut = max(self._cut, int(steps[-_TOP - 1]) + 1)
            low = steps < self._cut
            slots, sums = _join(slots, sums, _GRID_CELLS[steps[low]], table[:, low])
            keys, table = keys[~low], table[:, ~low]
        self._exact_keys, self._exact_table, self._grid_keys, self._grid_table = keys, table, slots, sums

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Between which logits each cell lies; an exact cell has no width."""
        after = np.searchsorted(_GRID_STARTS, self._grid_keys, side="right")
        low = step_edges(self._grid_keys)
        high = step_edges(np.append(_GRID_STARTS, _GRID_SIZE)[after])
        # The slot that holds the cut ends there.
        high = np.minimum(high, step_edges(np.array(self._cut))) if len(high) else high
        return np.append(low, self._exact_keys), np.append(high, self._exact_keys)

    @property
    def score(self) -> Array:
        """Mean score of each cell, ascending."""
        scores: Array = np.append(self._grid_table[0] / self._grid_table[1], self._exact_keys)
        return scores

    def on_logit(self) -> tuple[Array, Array, Array]:
        """Mean score and both bounds of each cell as logits, where scores are probabilities too."""
        low, high = self.bounds  # the ends of slots are logits already
        if self.scale != "probability":
            return self.score, low, high
        exact, score = low == high, logit(self.score).astype(np.float64, copy=False)
        return score, np.where(exact, score, low), np.where(exact, score, high)

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
        return self._row(3)

    @property
    def label_squares(self) -> Array:
        """Σw²y of each cell."""
        return self._row(4)

    def _row(self, i: int) -> Array:
        rows = (t[i if i < len(t) else i - 2] for t in (self._grid_table, self._exact_table))
        row: Array = np.concatenate(list(rows))
        return row

    def __len__(self) -> int:
        return len(self._grid_keys) + len(self._exact_keys)

    def __repr__(self) -> str:
        kind = "the grid" if self._on_grid else "exact scores"
        return f"Cells(scale={self.scale!r}) of {self.rows:,} rows in {len(self):,} cells, {kind}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "scale": self.scale,
            "exact": self.exact,
            "grid": self._on_grid,
            "rows": self.rows,
            "labelled": self._labelled,
            "cut": self._cut,
            "exact_keys": self._exact_keys.tolist(),
            "exact_table": self._exact_table.tolist(),
            "grid_keys": self._grid_keys.tolist(),
            "grid_table": self._grid_table.tolist(),
        }

    def to_json(self) -> str:
        """One JSON document."""
        return documents.dumps("cells", self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Cells:
        """Back from `to_json`."""
        content = documents.loads(text, source="cells")
        check_choice("kind", content["kind"], ("cells",))
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Cells:
        """Back from `to_dict`."""
        with documents.reading("cells"):
            cells = cls(content["scale"], content["exact"])
            cells._on_grid, cells.rows = bool(content["grid"]), int(content["rows"])
            cells._labelled, cells._cut = content["labelled"], int(content["cut"])
            cells._exact_keys = np.array(content["exact_keys"], np.float64)
            cells._grid_keys = np.array(content["grid_keys"], np.int64)
            cells._exact_table = _table_of(content["exact_table"], len(cells._exact_keys))
            cells._grid_table = _table_of(content["grid_table"], len(cells._grid_keys))
        return cells


def _table_of(rows: list[list[float]], cells: int) -> Array:
    if len(rows) not in (3, 5):
        raise ValueError("a table has neither 3 nor 5 rows")
    return np.array(rows, np.float64).reshape(len(rows), cells)


def _join(keys: NDArray[Any], table: Array, more_keys: NDArray[Any], more: Array) -> tuple[NDArray[Any], Array]:
    """Cells of both, those with the same key added up."""
    if not len(more_keys):
        return keys, table
    if len(keys):
        # Without weights Σw² and Σw²y are the weight and the label sum.
        size = max(len(table), len(more))
        table, more = (np.concatenate([t, t[1:3]]) if len(t) < size else t for t in (table, more))
        more_keys, more = np.concatenate([keys, more_keys]), np.concatenate([table, more], axis=1)
    return _collapse(more_keys, more)


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
    values: Float, labels: NDArray[Any] | None, weights: Array | None, given: str, kept: str, cut: int
) -> tuple[Array, Array, NDArray[np.int64], Array, int]:
    """Exact cells of the top, slots below it, and the step between, of many rows; below `cut` none is exact.

    Sums by `bincount`, a label folded into the number of the step so that one count serves both.
    """
    pairs = 1 if labels is None else 2
    size = pairs * _GRID_SIZE
    steps_seen = np.zeros((2, size))
    score_sum, rows_seen = np.zeros(_GRID_SIZE), np.zeros(_GRID_SIZE)

    def read(chunk: slice | NDArray[np.intp]) -> tuple[Array, NDArray[np.int64]]:
        x = values[chunk].astype(np.float64, copy=False)
        l = (x if given == "logit" else logit(x)).astype(np.float64, copy=False)
        return (l if kept == "logit" else x), grid_steps(l)

    for chunk in chunks(len(values), 1 << 17):
        x, steps = read(chunk)
        w = None if weights is None else weights[chunk]
        if w is not None:
            rows_seen += np.bincount(steps, minlength=_GRID_SIZE)
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
    if weights is None:
        rows_seen = table[1]
    else:
        squares = steps_seen[1].reshape(_GRID_SIZE, pairs)
        table[3] = squares.sum(axis=1)
        table[4] = squares[:, 1] if labels is not None else 0.0
    # The top again, exactly.
    cut = max(cut, top_cut(rows_seen))
    lowest = np.array(-np.inf)  # where nothing is cut, all rows, also what lies below the grid
    if cut:
        edge = step_edges(np.array(cut)) - 1e-6
        lowest = edge if given == "logit" else np.asarray(logistic(edge) * (1 - 1e-6))
    top = np.flatnonzero(values >= lowest)
    x, steps = read(top)
    top, x = top[steps >= cut], x[steps >= cut]
    return _cells_of(table, cut, x, *(None if column is None else column[top] for column in (labels, weights)))


def top_cut(rows_by_step: Array) -> int:
    """The lowest step from which on there are not many more rows than are kept exactly."""
    above = np.cumsum(rows_by_step[::-1])[::-1]
    return int(np.searchsorted(-above, -4 * _TOP))


def _cells_of(
    table: Array, cut: int, top: Array, labels: NDArray[Any] | None, weights: Array | None
) -> tuple[Array, Array, NDArray[np.int64], Array, int]:
    """Sums by step below `cut` as slots, and the rows from there on as exact cells."""
    exact_keys, exact_table = np.empty(0), np.zeros((len(table), 0))
    if len(top):
        exact_keys, exact_table = _collapse(*_exact_table(top, labels, weights))
    table[:, cut:] = 0.0
    slots, sums = _collapse(_GRID_STARTS, np.add.reduceat(table, _GRID_STARTS, axis=1))
    return exact_keys, exact_table, slots, sums, cut


__all__ = ["EXACT_ROWS", "GRID", "TAIL", "Cells", "grid_steps", "step_edges", "top_cut"]
