"""`Histogram`: rows counted on a grid of logits. `ReplicaTable`: the cells of a histogram of replicas as arrays.

A row of replica logits has up to three coordinates: the served logit; the gap, which is the mean of the other replicas
minus the served logit; and the contrast among the others, which is their difference if there are two and √2 times their
standard deviation if there are more. Cells are ``FINEST · 2**level`` wide, on the contrast axis twice as wide. Grids of
different levels are nested, so a histogram can be made coarser at any time, and the result does not depend on the order
of the rows.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..documents import PlainData
from ..errors import UncurseError
from ..threads import chunks
from ..validation import check_labels, check_scores, check_weights

Keys = NDArray[np.int64]

#: Cells with a smaller share of the weight are dropped when weights decay: a file that decays every day for years then
#: stays small, and no result changes by more than rounding.
NEGLIGIBLE = 1e-15
#: The grid is made coarser until at most this many cells are filled, of a single column and of replicas: for 10 million
#: rows they are then 1/1024 and 1/32 of a logit wide.
MAX_CELLS = (1 << 13, 1 << 15)
FINEST = 2.0**-14  # width of cells at level 0: three coordinates of 21 bits fit into one 64-bit key
_LINEAR, _TAIL_RATE = 16.0, 2.0  # beyond ±16, a probability of 0 or 1 to seven digits, cells grow with the logit
_LARGEST = 1e6  # larger logits are counted as this one
_HALF = 1 << 20  # added to cell numbers, so that keys are positive
# Shifts and masks that move the bits of a number of 21 bits three places apart.
_SPREAD = (
    (0, 0x1FFFFF),
    (32, 0x1F00000000FFFF),
    (16, 0x1F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)
_HASH = 0x1E3779B97F4A7C15  # an odd number of 61 bits
_CHUNK = 1 << 18  # rows that are counted at once
_FEW = 1 << 15  # so many rows, or fewer, are sorted
_SAMPLE = 1 << 17  # rows that settle the level and the box
_MAX_BOX = 1 << 21  # cells: 16 MB of float64
_MARGIN = 0.25  # share of its extent by which a box exceeds its sample
_WEIGHT, _LABEL, _WEIGHT_SQUARES, _LABEL_SQUARES, _POSITION = range(5)  # rows of a table of cells
_MASS, _MASS_RATIO = 0.02, 2.5  # see `point_masses`
_ABOVE_CAP = 0.002  # largest share of outliers above a cap


class Histogram(PlainData):
    """Weights and label sums of rows, by served logit or by the logits of several replicas.

    Many rows are counted in a box of cells around the first of them. Few rows, and rows outside the box, are sorted by
    the key of their cell. `column_sums` holds the exact sum of the weighted logits of each column.

    >>> served = Histogram().update([0.5, -1.0, 0.5], [1, 0, 0])
    >>> served.score, served.weight, served.label
    (array([-1. ,  0.5]), array([1., 2.]), array([0., 1.]))
    >>> replicas = Histogram().update([[0.0, 1.0], [0.0, 1.0], [2.0, 2.0]])
    >>> len(replicas), replicas.table().weight
    (2, array([2., 1.]))
    """

    _kind: ClassVar[str] = "histogram"

    def __init__(self) -> None:
        self.rows = self.n_columns = self._level = 0
        self.column_sums: Array = np.zeros(0)
        self._labeled: bool | None = None
        self._keys: Keys = np.empty(0, np.int64)
        self._sums: Array = np.empty((5, 0))  # Σw, Σwy, Σw², Σw²y and, with one column, Σwl of each cell
        self._box: _Box | None = None  # of rows that are not among the keys yet

    def update(
        self, logits: ArrayLike, labels: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Histogram:
        """Check rows and add them: logits (n,) or (n, S), the served one first, labels (0 or 1) and weights."""
        values = check_scores(logits, "logit", ndim=2 if np.ndim(logits) > 1 else 1)
        y = None if labels is None else check_labels(labels, len(values))
        return self.add(np.atleast_2d(values.T), y, check_weights(sample_weight, len(values)))

    def add(
        self, columns: Float, labels: NDArray[Any] | None, weights: Array | None = None, counts: Array | None = None
    ) -> Histogram:
        """Add valid rows, given by columns of logits (S, n), each as often as it counts."""
        self._start(len(columns), labels is not None)
        for rows in chunks(columns.shape[1], _CHUNK):
            w, c = (None if column is None else column[rows] for column in (weights, counts))
            self.rows += columns[:, rows].shape[1] if c is None else round(c.sum())
            kept: Any = rows if w is None or w.all() else rows.start + np.flatnonzero(w)
            part = columns[:, kept].astype(np.float64, order="C", copy=False)
            if part.size:
                self._count(part, *(None if column is None else column[kept] for column in (labels, weights, counts)))
        return self

    def _count(self, columns: Array, labels: NDArray[Any] | None, weights: Array | None, counts: Array | None) -> None:
        """Count rows in the box, and join those outside it to the keys."""
        columns, axes = _coordinates(columns)
        total = weights if counts is None else counts if weights is None else weights * counts
        weighted = columns if total is None else columns * total
        self.column_sums = self.column_sums + weighted.sum(axis=1)
        values: dict[int, Any] = {_WEIGHT: 1.0 if total is None else total}
        if total is not None and weights is not None:
            values[_WEIGHT_SQUARES] = total * weights
        if self.n_columns == 1:
            values[_POSITION] = weighted[0]
        if self._box is not None and self._box.channels != list(values):
            self._flush()  # weights follow rows without
        if self._box is None and len(axes[0]) > _FEW:
            sample = [x[:: max(1, len(x) // _SAMPLE)] for x in axes]
            self._coarsen(self._level + _levels_too_fine(_keys(sample, self._level), self._most_cells))
            self._box = _Box(sample, self._level, labels is not None, list(values))
        box = self._box
        if box is None:
            self._join(*_each_row(axes, self._level, labels, values))
            return
        outside = box.count(axes, labels, values)
        if len(outside):
            y = None if labels is None else labels[outside]
            own = {row: np.broadcast_to(value, len(axes[0]))[outside] for row, value in values.items()}
            self._join(*_each_row([x[outside] for x in axes], box.level, y, own))
        if len(outside) > len(axes[0]) // 16 or np.count_nonzero(box.sums[0]) > 2 * self._most_cells:
            self._flush()  # the box misses too many rows, or is too fine: start another

    def _start(self, n_columns: int, labeled: bool) -> None:
        """Fix the number of columns and whether rows have labels."""
        if not self.n_columns:
            self.n_columns, self._labeled, self.column_sums = n_columns, labeled, np.zeros(n_columns)
        if self.n_columns != n_columns:
            raise UncurseError(f"these rows have {n_columns} columns, the ones before {self.n_columns}")
        if self._labeled != labeled:
            raise UncurseError("some of these rows have labels and some have none; keep two histograms")

    def merge(self, other: Histogram) -> Histogram:
        """Add the rows of another histogram with the same columns, which does not change; return this one."""
        if not other.n_columns:
            return self
        self._start(other.n_columns, bool(other._labeled))
        self._coarsen(other.level)
        self._join(other._keys >> 3 * (self._level - other._level), other._sums)
        self.rows += other.rows
        self.column_sums = self.column_sums + other.column_sums
        return self

    @property
    def _most_cells(self) -> int:
        return MAX_CELLS[self.n_columns > 1]

    def _join(self, keys: Keys, sums: Array) -> None:
        """Join cells of this level to those that there are, and make the grid coarser if they are too many."""
        self._keys = np.concatenate([self._keys, keys])
        self._keys, self._sums = _collapse(self._keys, np.concatenate([self._sums, sums], axis=1))
        while len(self._keys) > self._most_cells:
            self._coarsen(self._level + 1)

    def _flush(self) -> None:
        """Move the counts of the box to the keys."""
        if self._box is not None:
            box, self._box = self._box, None
            self._join(*box.cells())

    def _coarsen(self, level: int) -> None:
        self._flush()
        if level > self._level:
            self._keys, self._sums = _collapse(self._keys >> 3 * (level - self._level), self._sums)
            self._level = level

    def coarsened(self, level: int) -> Histogram:
        """Return this histogram, or a copy on the grid of `level` if that is coarser."""
        same = copy.deepcopy(self) if level > self.level else self
        same._coarsen(level)
        return same

    def scaled(self, factor: float, of_squares: float) -> Histogram:
        """Return the same rows with Σw multiplied by one factor and Σw² by another; drop cells below 1e-15 of Σw."""
        kept = self.weight > NEGLIGIBLE * self.weight.sum()
        same = copy.copy(self)
        same._keys = self._keys[kept]
        same._sums = self._sums[:, kept] * np.array([[factor], [factor], [of_squares], [of_squares], [factor]])
        same.column_sums = self.column_sums * factor
        return same

    @property
    def level(self) -> int:
        """Level of the grid: cells are 2**(level − 14) wide."""
        self._flush()
        return self._level

    @property
    def score(self) -> Array:
        """Mean logit of the rows of each cell, ascending; for a single column."""
        return self._row(_POSITION) / self._row(_WEIGHT)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lowest and highest logit of each cell of served logits."""
        width = FINEST * 2.0**self.level
        low = _unpack(self._keys, self._level, 1)[0].astype(np.float64)
        return _expand(low * width), _expand((low + 1) * width)

    @property
    def weight(self) -> Array:
        """Weight of each cell."""
        return self._row(_WEIGHT)

    @property
    def label(self) -> Array | None:
        """Weighted label sum of each cell; None without labels."""
        return self._row(_LABEL) if self._labeled else None

    @property
    def weight_squares(self) -> Array:
        """Σw² of each cell, for standard errors; equal to `weight` without weights."""
        return self._row(_WEIGHT_SQUARES)

    @property
    def label_squares(self) -> Array:
        """Σw²y of each cell, for standard errors; equal to `label` without weights."""
        return self._row(_LABEL_SQUARES)

    def _row(self, i: int) -> Array:
        self._flush()
        row: Array = self._sums[i]
        return row

    @property
    def effective_rows(self) -> float:
        """Number of rows of equal weight that carry as much information: (Σw)² / Σw²."""
        total, squares = float(self.weight.sum()), float(self.weight_squares.sum())
        return total / squares * total if squares > 0 else 0.0

    def table(self) -> ReplicaTable:
        """Return the cells of two or more replicas as arrays.

        Outliers of gap and contrast are replaced by their means: a few extreme scores of other replicas must neither
        determine the noise nor move the denoised score of their rows.
        """
        total = float(self.weight.sum())
        if not total > 0:
            raise UncurseError("this histogram holds no rows; update it with scores first")
        means, width, weight = self.column_sums / total, FINEST * 2.0**self._level, self.weight
        numbers = _unpack(self._keys, self._level)
        served = _expand(_centers(numbers[0], weight) * width)
        gap = _expand(_centers(numbers[1], weight, along=_beside_line(numbers[0], numbers[1], weight)) * width)
        kept = _without_outliers(gap, weight)
        levels = means - means[0]
        if (kept != gap).any():  # the exact means contain the outliers
            levels[1:] += float(weight @ kept) / total - levels[1:].mean()
        spread, others = np.zeros(len(weight)), len(means) - 1
        if others > 1:
            contrast = _expand(_centers(numbers[2], weight) * 2 * width)
            bounded = _without_outliers(contrast, weight)
            if (bounded != contrast).any():
                half = float(weight @ bounded) / total / 2
                levels[1:] = levels[1:].mean() + (np.array([half, -half]) if others == 2 else 0.0)
            if others == 2:
                square = np.square(bounded - (levels[1] - levels[2]))
            else:
                # Without a row's own replicas, only the mean of this correction can be exact.
                raw = np.square(bounded)
                mean = max(float(weight @ raw) / total, 1e-300)
                share = 1 - 2 * float(np.var(levels[1:], ddof=1)) / mean
                square = raw * (max(share, 0.0) if np.ptp(bounded) > 4 * width else 0.0)  # equal contrasts are levels
            spread = (square + width**2 / 3) / 2  # plus the variance inside a cell, which is 2 · width wide
        return ReplicaTable(served, kept, spread, weight, self.label, levels, width, self.effective_rows)

    def __len__(self) -> int:
        return len(self.weight)

    def __repr__(self) -> str:
        return f"Histogram of {self.rows:,} rows and {self.n_columns} columns in {len(self):,} cells"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        weighted = not np.array_equal(self.weight, self.weight_squares)
        axes = min(self.n_columns, 3)
        return {
            "columns": self.n_columns,
            "rows": self.rows,
            "labeled": self._labeled,
            "level": self._level,
            "column_sums": self.column_sums.tolist(),
            "cells": [numbers.tolist() for numbers in _unpack(self._keys, self._level, axes)],
            "weight": _plain(self.weight),
            "label": _plain(self._sums[_LABEL]) if self._labeled else None,
            "weight_squares": self.weight_squares.tolist() if weighted else None,
            "label_squares": self.label_squares.tolist() if weighted and self._labeled else None,
            "score_sums": self._sums[_POSITION].tolist() if axes == 1 else None,
        }

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Histogram:
        same = cls()
        same.n_columns, same.rows, same._level = (int(content[name]) for name in ("columns", "rows", "level"))
        same._labeled = content["labeled"]
        same.column_sums = np.array(content["column_sums"], np.float64)
        if not same.n_columns:
            return same
        same._keys = _pack([np.array(axis, np.int64) for axis in content["cells"]], same._level)
        weight, zeros = content["weight"], [0.0] * len(content["weight"])
        label, squares = content["label"] or zeros, content["weight_squares"] or weight
        label_squares = label if content["weight_squares"] is None else content["label_squares"] or zeros
        columns = [weight, label, squares, label_squares, content["score_sums"] or zeros]
        same._sums = np.array(columns, np.float64)
        if same._sums.shape != (5, len(same._keys)) or same.column_sums.shape != (same.n_columns,):
            raise ValueError("its cells do not form a histogram")
        return same


class _Box:
    """Sums of all cells in a box around a sample of rows."""

    def __init__(self, sample: list[Array], level: int, labeled: bool, channels: list[int]) -> None:
        self.level, self.pairs, self.channels = level, 2 if labeled else 1, channels
        self.low: list[int] = []  # the first cell on each axis, and the number of cells, around the bulk of the sample
        self.shape: list[int] = []
        for numbers in _numbers(sample, level):
            few = numbers[:: max(1, len(numbers) // 4096)].astype(np.float64)
            low, high = np.clip(outlier_fences(few, np.ones(len(few))), numbers.min(), numbers.max()).tolist()
            margin = _MARGIN * (high - low) + 4
            self.low.append(int(low - margin))
            self.shape.append(int(high - low + 2 * margin) + 1)
        while self.pairs * np.prod(self.shape) > _MAX_BOX:
            widest = int(np.argmax(self.shape))
            quarter = self.shape[widest] // 4
            self.low[widest] += quarter
            self.shape[widest] -= 2 * quarter
        self.size = int(np.prod(self.shape)) + 1  # the last cell is for rows outside the box
        self.sums: Array = np.zeros((len(channels), self.pairs * self.size))

    def count(self, axes: list[Array], labels: NDArray[Any] | None, values: dict[int, Array]) -> NDArray[np.intp]:
        """Add rows with labels and values of each channel; return the places of the rows outside the box."""
        place: NDArray[np.int32] | None = None
        outside = np.empty(0, np.intp)
        for numbers, low, size in zip(_numbers(axes, self.level), self.low, self.shape, strict=True):
            numbers -= low
            if numbers.view(np.uint32).max() >= size:  # also if a number is negative
                outside = np.union1d(outside, np.flatnonzero(numbers.view(np.uint32) >= size))
            if place is not None:
                place *= size
                numbers += place
            place = numbers
        assert place is not None
        place[outside] = self.size - 1
        if labels is not None:
            place += labels.astype(np.int32) * np.int32(self.size)
        cells = place.astype(np.intp)
        for sums, channel in zip(self.sums, self.channels, strict=True):
            np.add.at(sums, cells, values[channel])
        return outside

    def cells(self) -> tuple[Keys, Array]:
        """Return keys and sums of the filled cells."""
        by_label = self.sums.reshape(len(self.channels), self.pairs, self.size)[:, :, :-1]
        filled = np.flatnonzero(by_label[0].sum(axis=0))
        numbers = [x + low for x, low in zip(np.unravel_index(filled, self.shape), self.low, strict=True)]
        values = dict(zip(self.channels, by_label[:, :, filled], strict=True))
        sums = {channel: counts.sum(axis=0) for channel, counts in values.items()}
        positive = {channel: counts[1] for channel, counts in values.items()} if self.pairs == 2 else None
        return _pack(numbers, self.level), _table(sums, positive)


def _each_row(
    axes: list[Array], level: int, labels: NDArray[Any] | None, values: dict[int, Array]
) -> tuple[Keys, Array]:
    """Return the key of each row, and what it adds to the sums."""
    sums = {row: np.broadcast_to(value, len(axes[0])) for row, value in values.items()}
    return _keys(axes, level), _table(sums, None if labels is None else {row: v * labels for row, v in sums.items()})


def _table(sums: dict[int, Array], positive: dict[int, Array] | None) -> Array:
    """Return the sums of cells, given those of all rows and those of rows with a positive label."""
    table = np.zeros((5, len(sums[_WEIGHT])))
    table[_WEIGHT], table[_WEIGHT_SQUARES] = sums[_WEIGHT], sums.get(_WEIGHT_SQUARES, sums[_WEIGHT])
    if positive is not None:
        table[_LABEL], table[_LABEL_SQUARES] = positive[_WEIGHT], positive.get(_WEIGHT_SQUARES, positive[_WEIGHT])
    table[_POSITION] = sums.get(_POSITION, 0.0)
    return table


def _coordinates(columns: Array) -> tuple[Array, list[Array]]:
    """Return columns of logits within ±1e6, and the coordinates of rows on the grid."""
    axes = _axes(columns)
    if all(x.min() >= -_LINEAR and x.max() <= _LINEAR for x in axes):
        return columns, axes
    columns = np.clip(columns, -_LARGEST, _LARGEST)
    return columns, [_compress(x) for x in _axes(columns)]


def _axes(columns: Array) -> list[Array]:
    """Return served logit and, for replicas, gap and contrast of rows."""
    served, others = columns[0], columns[1:]
    if len(others) < 2:
        return [served, *(column - served for column in others)]
    mean = others.mean(axis=0)
    if len(others) == 2:
        return [served, mean - served, others[0] - others[1]]
    return [served, mean - served, np.sqrt(2.0) * others.std(axis=0, ddof=1)]


def _numbers(axes: list[Array], level: int) -> Iterator[NDArray[np.int32]]:
    """Yield the cells of rows on each axis."""
    scale = 2.0**-level / FINEST
    for x, factor in zip(axes, (scale, scale, scale / 2), strict=False):
        numbers = x * factor
        yield np.floor(numbers, out=numbers).astype(np.int32)


def _compress(x: Array) -> Array:
    """Map logits to grid coordinates: the identity up to ±16, logarithmic beyond."""
    size = np.abs(x)
    far = _LINEAR + _TAIL_RATE * np.log(np.clip(size, _LINEAR, _LARGEST) / _LINEAR)
    return np.where(size > _LINEAR, np.copysign(far, x), x)


def _expand(t: Array) -> Array:
    """Invert `_compress`."""
    far = np.abs(t) - _LINEAR
    return np.where(far > 0, np.copysign(_LINEAR * np.exp(far / _TAIL_RATE), t), t)


def _keys(axes: list[Array], level: int) -> Keys:
    """Return the keys of the cells of rows."""
    return _pack([numbers.astype(np.int64) for numbers in _numbers(axes, level)], level)


def _pack(numbers: list[Keys], level: int) -> Keys:
    """Interleave the bits of cell numbers of a level, on up to three axes: ``key >> 3`` is the key one level up."""
    key = np.zeros(len(numbers[0]), np.int64)
    for axis, number in enumerate(numbers):
        bits = number + (_HALF >> level)
        for shift, mask in _SPREAD:
            bits = (bits | bits << shift) & mask
        key |= bits << (2 - axis)
    return key


def _unpack(keys: Keys, level: int, axes: int = 3) -> list[Keys]:
    """Invert `_pack`."""
    numbers = []
    for axis in range(axes):
        bits = keys >> (2 - axis) & _SPREAD[-1][1]
        for (shift, _), (_, mask) in zip(_SPREAD[:0:-1], _SPREAD[-2::-1], strict=True):
            bits = (bits | bits >> shift) & mask
        numbers.append(bits - (_HALF >> level))
    return numbers


def _levels_too_fine(keys: Keys, most: int) -> int:
    """Return how many levels keys must go up to fill at most so many cells: never too many, so that the result does not
    depend on the sample of rows.
    """

    def fits(levels: int) -> bool:
        filled = np.zeros(1 << 18, bool)  # some cells share a place
        filled[(keys >> 3 * levels) * _HASH >> 46] = True
        return int(np.count_nonzero(filled)) <= most

    return bisect_left(range(20), True, key=fits)


def _collapse(keys: Keys, sums: Array) -> tuple[Keys, Array]:
    """Sort cells by key, and add up those that share one."""
    if not (keys[1:] >= keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, sums = keys[order], sums[:, order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    return (keys, sums) if len(starts) == len(keys) else (keys[starts], np.add.reduceat(sums, starts, axis=1))


def _plain(values: Array) -> list[float] | list[int]:
    """Return integral floats as integers, which are half as long in a file."""
    integral = bool((np.round(values) == values).all() and (values < 2.0**53).all())
    plain: list[float] | list[int] = (values.astype(np.int64) if integral else values).tolist()
    return plain


@dataclass(frozen=True)
class ReplicaTable:
    """Cells of a histogram of replicas, or rows of logits. All arrays but `levels` have shape (K,).

    >>> table = Histogram().update([[0.0, 1.0], [2.0, 2.5]]).table()
    >>> table.served.round(3), table.gap.round(3), table.levels
    (array([0., 2.]), array([1. , 0.5]), array([0.  , 0.75]))
    """

    served: Array  # logit
    gap: Array  # mean of the other replicas minus the served logit
    spread: Array  # variance of the other replicas about their mean, each corrected for its level; 0 for two replicas
    weight: Array  # Σw
    label: Array | None  # Σwy
    levels: Array  # (S,), mean logit of each replica minus that of the served one
    width: float  # of a cell
    effective_rows: float  # (Σw)² / Σw²

    @classmethod
    def of_rows(cls, logits: Float) -> ReplicaTable:
        """Return the table of some rows of logits (n, S), each a cell of its own."""
        x = logits.astype(np.float64)
        levels = x.mean(axis=0) - x[:, 0].mean()
        others = x[:, 1:] - levels[1:]
        spread = others.var(axis=1, ddof=1) if x.shape[1] > 2 else np.zeros(len(x))
        gap = x[:, 1:].mean(axis=1) - x[:, 0]
        return cls(x[:, 0], gap, spread, np.ones(len(x)), None, levels, 0.0, float(len(x)))

    @property
    def n_replicas(self) -> int:
        """Number of replicas, the served one included."""
        return len(self.levels)

    @property
    def gap_level(self) -> float:
        """Mean gap."""
        return float(self.levels[1:].mean())

    def gap_squared(self, level: float | Array) -> Array:
        """Return the mean squared gap about `level` of each cell, with the variance inside a cell."""
        return np.asarray(np.square(self.gap - level) + self.width**2 / 12)

    def row_weights(self) -> tuple[Array, Array]:
        """Return weight and label sums (zero without labels) scaled to the effective number of rows."""
        factor = self.effective_rows / float(self.weight.sum())
        return self.weight * factor, np.zeros_like(self.weight) if self.label is None else self.label * factor

    @cached_property
    def descending(self) -> NDArray[np.intp]:
        """Order of the cells from the highest served logit to the lowest."""
        return np.argsort(-self.served, kind="stable")

    @property
    def cap(self) -> str:
        """Description of a cap on the served score; empty if there is none."""
        served, place = np.unique(self.served, return_inverse=True)
        weight = np.asarray(np.bincount(place, self.weight), np.float64)
        masses = served[point_masses(weight)]
        if not len(masses):
            return ""
        here = np.abs(served - masses[-1]) <= self.width / 2
        if float(weight[(served > masses[-1]) & ~here].sum()) > _ABOVE_CAP * float(weight.sum()):
            return ""
        share = float(weight[here].sum() / weight.sum())
        return f"{100 * share:.1f}% of the served scores are capped at a logit of about {masses[-1]:.3g}"

    def rescaled(self, slope: float, intercept: float) -> ReplicaTable:
        """Return the cells of the logits slope · l + intercept."""
        return replace(
            self,
            served=slope * self.served + intercept,
            gap=slope * self.gap,
            spread=slope**2 * self.spread,
            levels=slope * self.levels,
            width=slope * self.width,
        )


def point_masses(weight: Array) -> NDArray[np.bool_]:
    """Mark floors, caps and default values among the weights of neighboring scores.

    A point mass has more than 2% of the weight and 2.5 times the mean of the three scores on either side. A smooth
    distribution in cells of half a standard deviation or less has no such score.
    """
    marked = np.zeros(len(weight), bool)
    for i in np.flatnonzero(weight > _MASS * weight.sum()):
        near = np.concatenate([weight[max(i - 3, 0) : i], weight[i + 1 : i + 4]])
        marked[i] = len(near) > 0 and weight[i] > _MASS_RATIO * near.mean()
    return marked


def outlier_fences(values: Array, weight: Array) -> tuple[float, float]:
    """Return the ends of the central 99.8% of the weight, each moved out by the range between them."""
    # Do not interpolate: between a cap and the first outlier there is nothing.
    low, high = np.quantile(values, np.array([0.001, 0.999]) * (1 - 1e-9), weights=weight, method="inverted_cdf")
    reach = high - low
    return (float(low - reach), float(high + reach)) if reach > 0 else (float(values.min()), float(values.max()))


def clip_outliers(values: Array, weight: Array) -> Array:
    """Clip values at the outlier fences."""
    return np.clip(values, *outlier_fences(values, weight))


def _without_outliers(values: Array, weight: Array) -> Array:
    """Replace values outside the outlier fences by the mean of the others."""
    low, high = outlier_fences(values, weight)
    inside = (values >= low) & (values <= high)
    return values if inside.all() else np.where(inside, values, np.average(values[inside], weights=weight[inside]))


def _centers(numbers: Keys, weight: Array, along: Keys | None = None) -> Array:
    """Return the mean position of the rows of each cell, in units of the width.

    Where the density falls by a factor e per logit, the mean of a cell lies width²/12 below its middle: half a percent
    of a prediction at the top if cells are wide. The counts of the neighboring cells show the slope of the density;
    `along` is the coordinate to count them by, if it is not `numbers` itself.
    """
    columns, place = np.unique(numbers if along is None else along, return_inverse=True)
    count = np.bincount(place, weights=weight)
    before, after = np.diff(columns, prepend=columns[0] - 2) == 1, np.diff(columns, append=columns[-1] + 2) == 1
    rise = np.where(after, np.roll(count, -1), 0.0) - np.where(before, np.roll(count, 1), 0.0)
    aside = np.clip(rise / count / 24, -0.2, 0.2)
    return np.asarray(numbers + 0.5 + aside[place], np.float64)


def _beside_line(served: Keys, gap: Keys, weight: Array) -> Keys:
    """Return the gap minus its regression on the served score, as cell numbers.

    Given the served score, the density of the gap depends on this difference. Its slope is not that of the density of
    all gaps, which would make label-free maps 0.3% too high in cells of an eighth of a logit.
    """
    share = weight / weight.sum()
    x, y = served - float(share @ served), gap - float(share @ gap)
    slope = float(share @ (x * y)) / max(float(share @ (x * x)), 1e-300)
    slope = round(slope, 6)  # neither the order of the rows nor the level of the scores decides how a half is rounded
    return np.asarray(gap - np.round(slope * (served - served.min())).astype(np.int64))
