"""Checks of sums that were read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from .block_sums import Blocks
from .replica_grid import HALF, LARGEST, MAX_LEVEL, Keys


def check_blocks(blocks: Blocks) -> None:
    """Raise ValueError unless these are the blocks of `Moments`."""
    rows, weight, squares, mean, scatter = blocks
    count, replicas = len(rows), mean.shape[-1]
    shapes = [(count,), (count,), (count,), (count, replicas), (count, replicas, replicas)]
    if [block.shape for block in blocks] != shapes:
        raise ValueError("its arrays differ in length")
    if not all((np.abs(block) < 1e305).all() for block in blocks):  # their sums must be finite too
        raise ValueError("it holds numbers that are not finite")
    if (rows < 0).any() or (rows > 1 << 53).any() or (weight < 0).any() or not weight.any():
        raise ValueError("rows and weights must be positive")
    # Σw² lies between (Σw)²/n and (Σw)².
    with np.errstate(over="ignore"):
        total, levels = np.square(weight) * (1 + 1e-9), weight * np.square(mean).max(initial=0.0)
    if not np.isfinite(levels).all():
        raise ValueError("the squares of its means overflow")
    if (squares > total).any() or (squares < total / np.maximum(rows, 1) * (1 - 2e-9)).any():
        raise ValueError("its squared weights do not fit its weights")
    size = np.abs(scatter).max(axis=(1, 2))
    twisted = np.abs(scatter - scatter.transpose(0, 2, 1)).max(axis=(1, 2))
    # A block of one row has no scatter beyond the rounding of its squares about a mean of all blocks.
    slack = 1e-9 * size + 1e-14 * levels
    if (twisted > slack).any() or (np.linalg.eigvalsh(scatter).min(axis=1) < -slack).any():
        raise ValueError("a scatter matrix is not symmetric and positive semi-definite")


def checked_counts(content: Mapping[str, Any], replicas: int, level: int) -> tuple[list[Keys], Array, dict[str, Any]]:
    """Return cell numbers, table and totals of `ReplicaCounts`; raise ValueError if they are inconsistent."""
    names = ["served", "gap", *(["contrast"] if replicas > 2 else [])]
    numbers = [np.array(content[name], np.int64) for name in names]
    weight = np.array(content["weight"], np.float64)
    label = np.array(content["label"], np.float64) if content["labelled"] else np.zeros(len(weight))
    sums = np.array(content["column_sums"], np.float64)
    rows, squares = int(content["rows"]), float(content["weight_squares"])
    if {x.shape for x in (*numbers, label)} != {weight.shape} or sums.shape != (replicas,):
        raise ValueError("its arrays differ in length")
    if not (0 <= level <= MAX_LEVEL and all(((x >= -HALF) & (x < HALF)).all() for x in numbers)):
        raise ValueError("a cell lies outside the grid")
    fits = (weight > 0) & (label >= 0) & (label <= weight * (1 + 1e-9))
    if not (np.isfinite(weight).all() and fits.all()):
        raise ValueError("weights must be positive and label sums at most the weight")
    if not (np.isfinite(sums).all() and np.isfinite(squares) and squares > 0 and 0 < rows < 1 << 53):
        raise ValueError("its totals must be positive numbers")
    total = float(weight.sum())  # Σw² lies between (Σw)²/n and (Σw)²
    if not total * total / rows * (1 - 1e-9) <= squares <= total * total * (1 + 1e-9):
        raise ValueError("its squared weights do not fit its weights")
    if not (np.abs(sums) <= total * LARGEST * (1 + 1e-9)).all():
        raise ValueError("its column sums do not fit its weights")
    return numbers, np.stack([weight, label]), {"rows": rows, "weight_squares": squares, "column_sums": sums}


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
