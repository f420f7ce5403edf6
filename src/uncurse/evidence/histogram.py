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
Rows = tuple[Float, NDArray[Any] | None, Array | None]  # logits (n, S), labels and weights

#: Cells with a smaller share of the weight are dropped when weights decay: a file that decays every day for years then
#: stays small, and no result changes by more than rounding.
NEGLIGIBLE = 1e-15
#: The grid is made coarser until at most this many cells are filled: 1/32 of a logit for 10 million rows of 2 replicas.
MAX_CELLS = 1 << 15
FINEST = 2.0**-14  # width of cells at level 0: three coordinates of 21 bits fit into one 64-bit key
_MAX_LEVEL = 20  # cells are 64 wide, so that any rows fill few of them
_LINEAR, _TAIL_RATE = 16.0, 2.0  # beyond ±16, a probability of 0 or 1 to seven digits, cells grow with the logit
_LARGEST = 1e6  # larger logits are counted as this one
_BITS = 21
_HALF, _MASK = 1 << (_BITS - 1), (1 << _BITS) - 1
_SAMPLE = 1 << 17  # rows that are sorted at once; of more, a sample of as many settles the level and the box
_CHUNK = 1 << 16  # rows whose coordinates stay in the cache
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
        return self.add(values, y, check_weights(sample_weight, len(values)))

    def add(
        self, logits: Float, labels: NDArray[Any] | None, weights: Array | None, counts: Array | None = None
    ) -> Histogram:
        """Add valid rows, of logits (n,) or (n, S), each as often as it counts."""
        logits = logits[:, None] if logits.ndim == 1 else logits
        if not (logits.min() >= -_LARGEST and logits.max() <= _LARGEST):
            logits = np.clip(logits, -_LARGEST, _LARGEST)
        self._start(logits.shape[1], labels is not None)
        if len(logits) <= _SAMPLE and self._box is None:
            self._join(*_each_row(_coordinates(logits), self._level, labels, weights, counts))
        else:
            self._count(logits, labels, weights, counts)
        sums = [np.sum(_values(_POSITION, x, weights, counts)) for x in logits.T]
        self.column_sums = self.column_sums + sums
        self.rows += len(logits) if counts is None else round(counts.sum())
        return self

    def _count(self, logits: Float, labels: NDArray[Any] | None, weights: Array | None, counts: Array | None) -> None:
        """Count rows in the box, and join those outside it to the keys."""
        if self._box is None:
            rows = slice(None, None, max(1, len(logits) // _SAMPLE))
            axes = _coordinates(logits[rows])
            keys, sums = _each_row(axes, self._level, None, None if weights is None else weights[rows])
            # A sample fills no more cells than all rows do, so the final level is at least that of the sample.
            self._coarsen(_least_level(keys[sums[_WEIGHT] > 0], self._level))
            self._box = _Box(axes, self._level, labels is not None, weights is not None)
        outside = self._box.count(logits, labels, weights, counts)
        if outside:
            self._keys, self._sums = _collapse((self._keys, self._sums), *outside)
            if len(self._keys) > MAX_CELLS or sum(len(keys) for keys, _ in outside) > len(logits) // 16:
                self._flush()  # the box misses too many rows: start another

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
        self._join(_coarser(other._keys, self._level - other._level), other._sums)
        self.rows += other.rows
        self.column_sums = self.column_sums + other.column_sums
        return self

    def _join(self, keys: Keys, sums: Array) -> None:
        self._keys, self._sums = _collapse((self._keys, self._sums), (keys, sums))
        if len(self._keys) > MAX_CELLS:
            self._coarsen(_least_level(self._keys, self._level))

    def _flush(self) -> None:
        """Move the counts of the box to the keys."""
        if self._box is not None:
            cells, self._box = self._box.cells(), None
            self._join(*cells)

    def _coarsen(self, level: int) -> None:
        self._flush()
        if level > self._level:
            self._keys, self._sums = _collapse((_coarser(self._keys, level - self._level), self._sums))
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
        low = _unpack(self._keys)[0].astype(np.float64)
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
        numbers = _unpack(self._keys)
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
            "cells": [numbers.tolist() for numbers in _unpack(self._keys)[:axes]],
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
        same._keys = _pack([np.array(axis, np.int64) for axis in content["cells"]])
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

    def __init__(self, sample: list[Float], level: int, labeled: bool, weighted: bool) -> None:
        self.level, self.pairs = level, 2 if labeled else 1
        self.channels = [_WEIGHT, *([_WEIGHT_SQUARES] if weighted else []), *([_POSITION] if len(sample) == 1 else [])]
        self.ends = []  # the first and the last cell on each axis, around the bulk of the sample
        for numbers, _, _ in _numbered(sample, level):
            few = numbers[:: max(1, len(numbers) // 4096)].astype(np.float64)
            low, high = np.clip(outlier_fences(few, np.ones(len(few))), numbers.min(), numbers.max()).tolist()
            margin = _MARGIN * (high - low) + 4
            self.ends.append((int(low - margin), int(high + margin)))
        while self.pairs * np.prod(self.shape) > _MAX_BOX:
            widest = int(np.argmax(self.shape))
            low, high = self.ends[widest]
            middle, quarter = (low + high) // 2, (high - low) // 4
            self.ends[widest] = middle - quarter, middle + quarter
        self.sums: Array = np.zeros((len(self.channels), self.pairs * int(np.prod(self.shape))))

    @property
    def shape(self) -> list[int]:
        """Number of cells on each axis."""
        return [high - low + 1 for low, high in self.ends]

    def count(self, logits: Float, *columns: NDArray[Any] | None) -> list[tuple[Keys, Array]]:
        """Add rows with labels, weights and counts; return keys and sums of the rows outside the box."""
        outside = []
        for chunk in chunks(len(logits), _CHUNK):
            axes = _coordinates(logits[chunk])
            y, w, c = (None if column is None else column[chunk] for column in columns)
            numbered = list(_numbered(axes, self.level))
            numbers = [x for x, _, _ in numbered]
            if not all(low <= a and b <= high for (_, a, b), (low, high) in zip(numbered, self.ends, strict=True)):
                kept = np.ones(len(numbers[0]), bool)
                for x, (low, high) in zip(numbers, self.ends, strict=True):
                    kept &= (x >= low) & (x <= high)
                rest = (None if column is None else column[~kept] for column in (y, w, c))
                outside.append(_each_row([x[~kept] for x in axes], self.level, *rest))
                numbers, axes = [x[kept] for x in numbers], [x[kept] for x in axes]
                y, w, c = (None if column is None else column[kept] for column in (y, w, c))
            places = self._places(numbers, y)
            for sums, channel in zip(self.sums, self.channels, strict=True):
                np.add.at(sums, places, _values(channel, axes[0], w, c))  # unlike bincount, without a copy
        return outside

    def _places(self, numbers: list[Float], labels: NDArray[Any] | None) -> Keys:
        place = numbers[0]
        place -= self.ends[0][0]
        for x, (low, high) in zip(numbers[1:], self.ends[1:], strict=True):
            place *= high - low + 1
            x -= low
            np.add(place, x, out=place, casting="unsafe")  # integers below 2**24 are exact in float32
        if labels is not None:
            place *= 2
            place += labels
        return place.astype(np.int64)

    def cells(self) -> tuple[Keys, Array]:
        """Return keys and sums of the filled cells."""
        by_label = self.sums.reshape(len(self.channels), -1, self.pairs)
        filled = np.flatnonzero(by_label[0].any(axis=1))
        sums = np.zeros((5, len(filled)))
        for channel, counts in zip(self.channels, by_label, strict=True):
            sums[channel] = counts[filled].sum(axis=1)
            if self.pairs == 2 and channel != _POSITION:
                sums[channel + 1] = counts[filled, 1]
        if _WEIGHT_SQUARES not in self.channels:
            sums[_WEIGHT_SQUARES], sums[_LABEL_SQUARES] = sums[_WEIGHT], sums[_LABEL]
        places = np.unravel_index(filled, self.shape)
        return _pack([x.astype(np.int64) + low for x, (low, _) in zip(places, self.ends, strict=True)]), sums


def _values(channel: int, served: Float, weights: Array | None, counts: Array | None) -> Any:
    """Return what each row adds to a channel."""
    value: Any = served.astype(np.float64, copy=False) if channel == _POSITION else 1.0
    for factor in (weights, weights if channel == _WEIGHT_SQUARES else None, counts):
        if factor is not None:
            value = value * factor
    return value


def _each_row(
    axes: list[Float], level: int, labels: NDArray[Any] | None, weights: Array | None, counts: Array | None = None
) -> tuple[Keys, Array]:
    """Return the key of each row, and what it adds to the sums."""
    sums = np.zeros((5, len(axes[0])))
    for channel in (_WEIGHT, _WEIGHT_SQUARES, *([_POSITION] if len(axes) == 1 else [])):
        sums[channel] = _values(channel, axes[0], weights, counts)
    if labels is not None:
        sums[_LABEL], sums[_LABEL_SQUARES] = sums[_WEIGHT] * labels, sums[_WEIGHT_SQUARES] * labels
    return _pack([numbers.astype(np.int64) for numbers, _, _ in _numbered(axes, level)]), sums


def _coordinates(logits: Float) -> list[Float]:
    """Return served logit and, for replicas, gap and contrast of rows (n, S).

    The served logit keeps its type: a power of two times a float32 is exact. The others are float64.
    """
    served, *others = logits.T
    if not others:
        return [served]
    if len(others) == 1:
        return [served, np.subtract(others[0], served, dtype=np.float64)]
    mean = sum(others[1:], others[0].astype(np.float64)) / len(others)
    if len(others) == 2:
        return [served, mean - served, np.subtract(others[0], others[1], dtype=np.float64)]
    squares = sum(np.square(column - mean) for column in others)
    return [served, mean - served, np.sqrt(2 / (len(others) - 1) * squares)]


def _numbered(axes: list[Float], level: int) -> Iterator[tuple[Float, float, float]]:
    """Yield the cells of rows on each axis as integral floats, and the first and the last of them."""
    scale = 2.0**-level / FINEST
    for x, factor in zip(axes, (scale, scale, scale / 2), strict=False):
        ends = np.array([x.min(), x.max()], np.float64)
        if not (ends[0] >= -_LINEAR and ends[1] <= _LINEAR):
            x, ends = _compress(x.astype(np.float64)), _compress(ends)
        numbers = x * x.dtype.type(factor)
        np.floor(numbers, out=numbers)
        yield numbers, *np.floor(ends * factor).tolist()


def _compress(x: Array) -> Array:
    """Map logits to grid coordinates: the identity up to ±16, logarithmic beyond."""
    size = np.abs(x)
    far = _LINEAR + _TAIL_RATE * np.log(np.clip(size, _LINEAR, _LARGEST) / _LINEAR)
    return np.where(size > _LINEAR, np.copysign(far, x), x)


def _expand(t: Array) -> Array:
    """Invert `_compress`."""
    far = np.abs(t) - _LINEAR
    return np.where(far > 0, np.copysign(_LINEAR * np.exp(far / _TAIL_RATE), t), t)


def _pack(numbers: list[Keys]) -> Keys:
    """Combine the cell numbers of up to three axes into one sortable key."""
    zeros = np.zeros(len(numbers[0]), np.int64)
    served, gap, contrast = (*numbers, zeros, zeros)[:3]
    return ((served + _HALF) << (2 * _BITS)) | ((gap + _HALF) << _BITS) | (contrast + _HALF)


def _unpack(keys: Keys) -> list[Keys]:
    """Invert `_pack`; always return three axes."""
    return [(keys >> (2 * _BITS)) - _HALF, ((keys >> _BITS) & _MASK) - _HALF, (keys & _MASK) - _HALF]


def _coarser(keys: Keys, levels: int) -> Keys:
    """Return the keys of the same cells on a grid that is `levels` coarser."""
    return keys if levels == 0 else _pack([number >> levels for number in _unpack(keys)])


def _least_level(keys: Keys, level: int) -> int:
    """Return the lowest level, from `level` on, at which these keys fill at most `MAX_CELLS` cells."""

    def fits(coarser: int) -> bool:
        ascending = np.sort(_coarser(keys, coarser - level))
        return bool(np.count_nonzero(np.diff(ascending)) < MAX_CELLS)

    return bisect_left(range(_MAX_LEVEL), True, level, key=fits)


def _collapse(*cells: tuple[Keys, Array]) -> tuple[Keys, Array]:
    """Join cells, sort them by key, add up those that share one, and drop cells without weight."""
    keys, sums = cells[0]
    if len(cells) > 1:
        keys, sums = np.concatenate([k for k, _ in cells]), np.concatenate([s for _, s in cells], axis=1)
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, sums = keys[order], sums[:, order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        keys, sums = keys[starts], np.add.reduceat(sums, starts, axis=1)
    filled = sums[_WEIGHT] > 0
    return (keys, sums) if filled.all() else (keys[filled], sums[:, filled])


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

    def gap_squared(self, level: float) -> Array:
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
