"""Rows counted by cell: in a dense box about the middle, by sorting where they lie far out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from ..threads import chunks
from .moments import strict_link

Keys = NDArray[np.int64]

#: Powers of √2 that tell variances apart: the lowest, and the one after the highest.
SLOTS = (-60, 60)
#: Cells to either side of zero.
REACH = 1 << 24
#: Rows that are sooner sorted than a box is made for them.
FEW = 4_096
_LEAST_STEP, _MOST_STEP = 2.0**-20, 2.0**20
_WIDEST, _FARTHEST = 12.0, 16.0  # spreads about the mean that are counted in the box
_LARGEST = 1 << 22  # cells of a box: their numbers are exact in float32 too
_CHUNK = 1 << 17  # rows whose numbers stay in the cache
_SAMPLE = 1 << 16


class Rows(NamedTuple):
    """Rows by the numbers of their cells: whole numbers, whatever their dtype."""

    served: Float
    apart: Float
    slots: NDArray[Any] | None
    labels: NDArray[Any] | None
    weights: Array | None

    def at(self, rows: NDArray[Any]) -> Rows:
        """Some of them."""
        return Rows(
            self.served[rows],
            self.apart[rows],
            None if self.slots is None else self.slots[rows],
            None if self.labels is None else self.labels[rows],
            None if self.weights is None else self.weights[rows],
        )

    def cells(self) -> tuple[Keys, Array]:
        """A key for each row, and its Σw and Σwy."""
        served, apart = (np.clip(x, 1 - REACH, REACH - 1).astype(np.int64) for x in (self.served, self.apart))
        slots = np.zeros(len(served), np.int64) if self.slots is None else self.slots.astype(np.int64)
        table = np.zeros((2, len(served)))
        table[0] = 1.0 if self.weights is None else self.weights
        if self.labels is not None:
            table[1] = table[0] * self.labels
        return packed(served, apart, slots), table


@dataclass(frozen=True)
class Grid:
    """Where cells lie: how wide they are, what is taken off the others first, the lowest slot of their variance."""

    step: float  # a power of two
    levels: tuple[float, ...]  # of the others; they sum to zero
    lowest: int  # what varies less is told apart no further

    @classmethod
    def fitting(cls, mean: Array, covariance: Array) -> Grid:
        """The grid for replicas of such logits (S,) and (S, S).

        >>> Grid.fitting(np.array([0.0, 1.0]), np.array([[1.0, 0.5], [0.5, 1.0]]))
        Grid(step=0.0625, levels=(0.0,), lowest=0)
        """
        others = covariance[1:, 1:]
        count = len(others)
        middle = others.sum() / count**2  # variance of their mean
        apart = covariance[0, 0] + middle - 2 * covariance[0, 1:].mean()
        spreads = np.sqrt(np.maximum([covariance[0, 0], apart], 0.0))
        step = fitting_step(float(spreads[0]), float(spreads[1]), len(mean))
        far = float(np.abs(mean).max() + 16 * spreads.max())
        while far > REACH / 4 * step:  # scores far from zero that hardly differ are within reach too
            step *= 2
        lowest = 0
        if count > 1:
            noise = (np.trace(others) - count * middle) / (count - 1)
            # A 64th of the mean: what is below it does not differ to a mixture either.
            lowest = int(np.clip(np.floor(2 * np.log2(noise)) - 12, SLOTS[0], SLOTS[1] - 1)) if noise > 0 else SLOTS[0]
        return cls(step, tuple((mean[1:] - mean[1:].mean()).tolist()), lowest)

    def rows(self, l: Float, labels: NDArray[Any] | None = None, weights: Array | None = None) -> Rows:
        """Of logits (n, S): steps of the served one, steps from it to the mean of the others, slots of their variance.

        Steps stay in the dtype of the logits: on float32 that is twice as fast.
        """
        served, count = l[:, 0], l.shape[1] - 1
        others = [l[:, i] for i in range(1, count + 1)]  # column by column: numpy's sums over a short axis are slow
        i = served * (1 / self.step)
        j = others[0] - served if count == 1 else sum(others[1:], others[0]) / count - served
        j *= 1 / self.step
        np.floor(i, out=i)
        np.floor(j, out=j)
        return Rows(i, j, None if count == 1 else self._slots(others), labels, weights)

    def _slots(self, others: list[Float]) -> NDArray[Any]:
        if len(others) == 2:  # the common case, in one pass
            spread = others[0] - others[1]
            spread -= self.levels[0] - self.levels[1]
            spread *= spread
            spread *= 0.5
        else:
            columns = [column - level for column, level in zip(others, self.levels, strict=True)]
            mean = sum(columns[1:], columns[0]) / len(columns)
            spread = sum(((c - mean) ** 2 for c in columns[1:]), (columns[0] - mean) ** 2) / (len(columns) - 1)
        np.clip(spread, 2.0 ** (SLOTS[0] / 2 - 1), 2.0 ** (SLOTS[1] / 2) * (1 - 1e-6), out=spread)
        spread *= spread  # ⌊2 log₂ v⌋ is the exponent of v², which its bits hold
        if spread.dtype == np.float32:
            slots: NDArray[Any] = (spread.view(np.int32) >> 23) - 127
        else:
            slots = (spread.view(np.int64) >> 52) - 1023
        np.maximum(slots, self.lowest, out=slots)
        return slots


def fitting_step(spread: float, apart: float, replicas: int = 2) -> float:
    """The width of cells: a power of two, at most a 16th of the served scores' spread and a 4th of the replicas'.

    With three replicas and more, cells are told apart by variance too, and are a 4th and a half at most: finer ones
    would soon be too many.
    """
    parts = (16, 4) if replicas == 2 else (4, 2)
    finest = min(spread / parts[0], apart / parts[1] if apart > 0 else np.inf)
    if not np.isfinite(finest) or finest <= 0:
        finest = spread / parts[0] if spread > 0 else 1.0
    return float(np.clip(np.exp2(np.floor(np.log2(finest))), _LEAST_STEP, _MOST_STEP))


def logits(values: Float, scale: str, offset: float) -> Float:
    """Logits of scores on `scale`; those of probabilities as float64."""
    return strict_link(values, scale, "logistic", offset)


def sampled(values: Any) -> Any:
    """Some tens of thousands of the rows, evenly."""
    return values[:: max(1, len(values) // _SAMPLE)]


class Box:
    """Sums of the cells about the middle, which grow with every row; rows far out come back as keys."""

    def __init__(self, grid: Grid, l: Float, labelled: bool) -> None:
        self.grid, self.pairs = grid, 2 if labelled else 1
        rows = grid.rows(l)
        highest = 0 if rows.slots is None else min(int(rows.slots.max()) + 3, SLOTS[1] - 1)
        lowest = 0 if rows.slots is None else grid.lowest
        self.ends = [_ends(rows.served, _WIDEST), _ends(rows.apart, _FARTHEST), (lowest, highest)]
        while self.pairs * np.prod(self.size) > _LARGEST:
            wide = int(self.size[1] > self.size[0])
            low, high = self.ends[wide]
            self.ends[wide] = (low + high) // 2 - (high - low) // 4, (low + high) // 2 + (high - low) // 4
        self.sums = np.zeros(self.pairs * int(np.prod(self.size)))

    @property
    def size(self) -> list[int]:
        """How many steps and slots it holds."""
        return [high - low + 1 for low, high in self.ends]

    def count(
        self, l: Float, labels: NDArray[Any] | None, weights: Array | None, sums: Array
    ) -> list[tuple[Keys, Array]]:
        """Add rows to `sums`; what lies outside comes back as keys and tables of Σw and Σwy."""
        far = []
        for chunk in chunks(len(l), _CHUNK):
            y, w = None if labels is None else labels[chunk], None if weights is None else weights[chunk]
            rows = self.grid.rows(l[chunk], y, w)
            if not self._holds(rows):
                inside = self._inside(rows)
                far.append(rows.at(~inside).cells())
                rows = rows.at(inside)
            # As fast as bincount, without its copy of all cells.
            np.add.at(sums, self._places(rows), 1.0 if rows.weights is None else rows.weights)
        return far

    def _holds(self, rows: Rows) -> bool:
        """Whether all lie inside; two reductions are faster than a mask."""
        numbers = zip(rows[:3], self.ends, strict=True)
        return all(x is None or (x.min() >= low and x.max() <= high) for x, (low, high) in numbers)

    def _inside(self, rows: Rows) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.ones(len(rows.served), bool)
        for x, (low, high) in zip(rows[:3], self.ends, strict=True):
            if x is not None:
                inside &= (x >= low) & (x <= high)
        return inside

    def _places(self, rows: Rows) -> NDArray[np.int64]:
        """Where in the sums rows are counted; their numbers are used up."""
        _, width, depth = self.size
        at, apart = rows.served, rows.apart
        at -= self.ends[0][0]
        at *= width
        apart -= self.ends[1][0]
        at += apart
        if rows.slots is not None:
            at *= depth
            at += rows.slots - self.ends[2][0]
        if rows.labels is not None:
            at *= 2
            at += rows.labels
        return at.astype(np.int64)

    def cells(self) -> tuple[Keys, Array]:
        """Keys and a table of Σw and Σwy of all that was counted."""
        counts = self.sums.reshape(-1, self.pairs)
        total = counts.sum(axis=1)
        filled = np.flatnonzero(total)
        table = np.zeros((2, len(filled)))
        table[0] = total[filled]
        if self.pairs == 2:
            table[1] = counts[filled, 1]
        _, width, depth = self.size
        served, rest = np.divmod(filled, width * depth)
        apart, slot = np.divmod(rest, depth)
        return packed(served + self.ends[0][0], apart + self.ends[1][0], slot + self.ends[2][0]), table


def _ends(steps: Float, reach: float) -> tuple[int, int]:
    """The first and the last step of the box, with room for what a sample did not show."""
    x = steps.astype(np.float64)
    mean, spread = x.mean(), x.std()
    low, high = max(x.min(), mean - reach * spread), min(x.max(), mean + reach * spread)
    margin = 0.25 * (high - low) + 4
    return max(int(low - margin), 1 - REACH), min(int(high + margin), REACH - 1)


def packed(served: Keys, apart: Keys, slot: Keys) -> Keys:
    """Three numbers of a cell in one, in their order."""
    return ((served + REACH) << 33) | ((apart + REACH) << 8) | (slot + 128)


def unpacked(keys: Keys) -> tuple[Keys, Keys, Keys]:
    """Back from `packed`."""
    return (keys >> 33) - REACH, ((keys >> 8) & ((1 << 25) - 1)) - REACH, (keys & 255) - 128


def collapsed(keys: Keys, table: Array) -> tuple[Keys, Array]:
    """Sort by key and add up what shares one; cells without weight go."""
    if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, table = keys[order], table[:, order]
        first = np.concatenate([[True], keys[1:] != keys[:-1]])
        starts = np.flatnonzero(first)
        keys, table = keys[starts], np.add.reduceat(table, starts, axis=1)
    filled = table[0] > 0
    return (keys, table) if filled.all() else (keys[filled], table[:, filled])


__all__ = [
    "FEW", "REACH", "SLOTS", "Box", "Grid", "Keys", "Rows", "collapsed", "fitting_step", "logits", "packed", "sampled",
    "unpacked",
]  # fmt: skip
