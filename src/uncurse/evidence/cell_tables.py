"""The fixed grid of `Cells`, on the logit, and tables of rows summed by exact score or by slot of the grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from ..links import logistic, logit
from ..threads import chunks
from .replica_grid import LINEAR, collapse, compress, expand
from .sums import NEGLIGIBLE

# Rows are counted in steps of 1/1024 of a logit. Then `width` steps become one slot: one step between -6 and 4, where
# the top of most pools lies, more outside; 14,464 slots in all. Beyond ±16 steps grow with the logit, up to ±1,000. The
# highest scores, from the step above which there are at most 2,048 distinct ones, are not rounded.
_GRID_LOW, _GRID_HIGH, _GRID_STEPS = -18.0, 18.0, 1024
_GRID_SECTIONS = ((-18, -10, 16), (-10, -6, 2), (-6, 4, 1), (4, 8, 4), (8, 18, 16))  # from, to, width
GRID_SIZE = int((_GRID_HIGH - _GRID_LOW) * _GRID_STEPS)
SLOT_OF_STEP: NDArray[np.int64] = np.concatenate(
    [
        np.arange((low - _GRID_LOW) * _GRID_STEPS, (high - _GRID_LOW) * _GRID_STEPS).astype(np.int64) // width * width
        for low, high, width in _GRID_SECTIONS
    ]
)
SLOT_STARTS = np.unique(SLOT_OF_STEP)
_TAIL_RATE = 2.0 / np.log(1000.0 / LINEAR)
#: Number of highest scores that stay exact.
EXACT_TOP = 2_048

#: First logit, steps per logit and number of steps; start and growth of the tails. For engines that count by step.
GRID = (_GRID_LOW, _GRID_STEPS, GRID_SIZE)
TAIL = (LINEAR, float(_TAIL_RATE))
#: Up to this many rows every distinct score is a cell, unless the caller chooses otherwise.
EXACT_ROWS = 1 << 17


def grid_steps(logits: Float) -> NDArray[np.int64]:
    """Return the step of each logit; logits beyond the grid belong to its first or last step."""
    beyond = np.abs(logits).max(initial=0.0) > LINEAR
    if beyond:
        logits = compress(logits.astype(np.float64), _TAIL_RATE)
    steps = logits - _GRID_LOW
    steps *= _GRID_STEPS
    if beyond:
        np.clip(steps, 0, GRID_SIZE - 1, out=steps)
    return steps.astype(np.int64)


def step_edges(steps: NDArray[np.integer[Any]] | Array) -> Array:
    """Return the logits at which steps begin: the inverse of `grid_steps`.

    >>> step_edges(grid_steps(np.array([-1.0, 0.5])))
    array([-1. ,  0.5])
    """
    return expand(np.asarray(steps, np.float64) / _GRID_STEPS + _GRID_LOW, _TAIL_RATE)


def top_cut(rows_by_step: Array) -> int:
    """Return the lowest step above which there are few enough rows to keep them exactly."""
    above = np.cumsum(rows_by_step[::-1])[::-1]
    return int(np.searchsorted(-above, -4 * EXACT_TOP))


def join_cells(keys: NDArray[Any], table: Array, more_keys: NDArray[Any], more: Array) -> tuple[NDArray[Any], Array]:
    """Concatenate cells and add up those with the same key."""
    if not len(more_keys):
        return keys, table
    if len(keys):
        size = max(len(table), len(more))
        table, more = (_with_squares(t) if len(t) < size else t for t in (table, more))
        more_keys, more = np.concatenate([keys, more_keys]), np.concatenate([table, more], axis=1)
    return collapse(more_keys, more, weight=1)


def _with_squares(table: Array) -> Array:
    """Add Σw² and Σw²y, which are the weight and the label sum of rows without weights."""
    return np.concatenate([table, table[1:]]) if len(table) == 3 else table


def decay_table(keys: NDArray[Any], table: Array, factor: float, total: float) -> tuple[NDArray[Any], Array]:
    """Multiply all weights by a factor, and drop cells with a negligible share of the total weight."""
    kept = table[1] > NEGLIGIBLE * total
    powers = np.array([[factor]] * 3 + [[factor**2]] * 2)
    return keys[kept], _with_squares(table)[:, kept] * powers


def exact_table(values: Float, labels: NDArray[Any] | None, weights: Array | None) -> tuple[Array, Array]:
    """Return distinct scores in order, and their table."""
    order = np.argsort(values, kind="stable")
    keys = values[order].astype(np.float64, copy=False)
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    tied = len(starts) < len(keys)

    def total(column: NDArray[Any]) -> Array:
        column = column[order].astype(np.float64, copy=False)
        return np.add.reduceat(column, starts) if tied else column

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


def grid_table(
    values: Float, labels: NDArray[Any] | None, weights: Array | None, input_scale: str, scale: str, cut: int
) -> tuple[Array, Array, NDArray[np.int64], Array, int]:
    """Return exact cells of the top, slots below it and the step between them; no cell below `cut` is exact.

    The label is the lowest bit of the step number, so that one `bincount` counts rows and labels.
    """
    pairs = 1 if labels is None else 2
    size = pairs * GRID_SIZE
    steps_seen = np.zeros((2, size))
    score_sum, rows_seen = np.zeros(GRID_SIZE), np.zeros(GRID_SIZE)

    def read(chunk: slice | NDArray[np.intp]) -> tuple[Array, NDArray[np.int64]]:
        x = values[chunk].astype(np.float64, copy=False)
        l = (x if input_scale == "logit" else logit(x)).astype(np.float64, copy=False)
        return (l if scale == "logit" else x), grid_steps(l)

    for chunk in chunks(len(values), 1 << 17):
        x, steps = read(chunk)
        w = None if weights is None else weights[chunk]
        if w is not None:
            rows_seen += np.bincount(steps, minlength=GRID_SIZE)
        score_sum += np.bincount(steps, weights=x if w is None else x * w, minlength=GRID_SIZE)
        if labels is not None:
            steps *= 2
            np.add(steps, labels[chunk], out=steps, casting="unsafe")
        if w is None:
            steps_seen[0] += np.bincount(steps, minlength=size)
        else:
            steps_seen[0] += np.bincount(steps, weights=w, minlength=size)
            steps_seen[1] += np.bincount(steps, weights=w * w, minlength=size)
    counts = steps_seen[0].reshape(GRID_SIZE, pairs)
    table = np.zeros((3 if weights is None else 5, GRID_SIZE))
    table[0], table[1] = score_sum, counts.sum(axis=1)
    if labels is not None:
        table[2] = counts[:, 1]
    if weights is None:
        rows_seen = table[1]
    else:
        squares = steps_seen[1].reshape(GRID_SIZE, pairs)
        table[3] = squares.sum(axis=1)
        table[4] = squares[:, 1] if labels is not None else 0.0
    # Read the top again, exactly.
    cut = max(cut, top_cut(rows_seen))
    lowest = np.array(-np.inf)  # without a cut all rows are exact, also those below the grid
    if cut:
        edge = step_edges(np.array(cut)) - 1e-6
        lowest = edge if input_scale == "logit" else np.asarray(logistic(edge) * (1 - 1e-6))
    top = np.flatnonzero(values >= lowest)
    x, steps = read(top)
    top, x = top[steps >= cut], x[steps >= cut]
    return split_at_cut(table, cut, x, *(None if column is None else column[top] for column in (labels, weights)))


def split_at_cut(
    table: Array, cut: int, top: Array, labels: NDArray[Any] | None, weights: Array | None
) -> tuple[Array, Array, NDArray[np.int64], Array, int]:
    """Return slots of the sums below step `cut`, and exact cells of the rows from there on."""
    keys, exact = np.empty(0), np.zeros((len(table), 0))
    if len(top):
        keys, exact = collapse(*exact_table(top, labels, weights), weight=1)
    table[:, cut:] = 0.0
    slots, sums = collapse(SLOT_STARTS, np.add.reduceat(table, SLOT_STARTS, axis=1), weight=1)
    return keys, exact, slots, sums, cut


def checked_table(rows: list[list[float]], keys: NDArray[Any]) -> Array:
    """Return a table of `Cells`; raise ValueError if it is not one."""
    table = np.array(rows, np.float64).reshape(len(rows), len(keys))
    if len(rows) not in (3, 5) or not np.isfinite(table).all() or not np.isfinite(keys).all():
        raise ValueError("a table must have 3 or 5 rows of finite numbers")
    if (np.diff(keys) <= 0).any():
        raise ValueError("cells must be in ascending order")
    for i in range(1, len(rows), 2):
        weight, label = table[i], table[i + 1]
        if (weight <= 0).any() or (label < 0).any() or (label > weight * (1 + 1e-9)).any():
            raise ValueError("weights must be positive and label sums at most the weight")
    return table
