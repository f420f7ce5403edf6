"""The fixed grid of `Cells`, on the logit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from .replica_grid import LINEAR, compress, expand

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
