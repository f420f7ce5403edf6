"""The cells of `ReplicaCounts`: a grid that does not depend on the data, and a dense histogram for large batches.

A row of replica logits has three coordinates: the served logit; the gap, which is the mean of the other replicas minus
the served logit; and the contrast among the others, which is their difference if there are two and √2 times their
standard deviation if there are more. Cells are ``FINEST · 2**level`` wide, on the contrast axis twice as wide. Grids of
different levels are nested, so counts can be made coarser at any time, and the result does not depend on the order of
the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from ..threads import chunks

Keys = NDArray[np.int64]

#: Width of cells at level 0: three coordinates of 21 bits fit into one 64-bit key.
FINEST = 2.0**-14
#: Cells are 64 wide at this level, so that any rows fill few of them.
MAX_LEVEL = 20
#: Beyond ±16 a logit is a probability of 0 or 1 to seven digits, and the width of cells grows with the logit.
LINEAR = 16.0
#: Growth of the coordinate per unit of log |logit| beyond `LINEAR`.
TAIL_RATE = 2.0
#: Larger logits are counted as this one.
LARGEST = 1e6
_BITS = 21
#: Cell numbers lie between minus and plus this number.
HALF = 1 << (_BITS - 1)
_MASK = (1 << _BITS) - 1
_CHUNK = 1 << 16  # rows whose coordinates stay in the cache
_MAX_HISTOGRAM = 1 << 22  # cells: 32 MB of float64
_MARGIN = 0.25  # share of its extent by which a histogram exceeds its sample


def compress(x: Array, rate: float = TAIL_RATE) -> Array:
    """Map logits to grid coordinates: the identity up to ±16, logarithmic beyond."""
    size = np.abs(x)
    far = LINEAR + rate * np.log(np.clip(size, LINEAR, LARGEST) / LINEAR)
    return np.where(size > LINEAR, np.copysign(far, x), x)


def expand(t: Array, rate: float = TAIL_RATE) -> Array:
    """Invert `compress`."""
    far = np.abs(t) - LINEAR
    return np.where(far > 0, np.copysign(LINEAR * np.exp(far / rate), t), t)


def coordinates(logits: Float) -> list[Float]:
    """Return served logit, gap and, for three replicas or more, contrast of rows (n, S).

    The served logit keeps its type: a power of two times a float32 is exact. The others are float64.
    """
    served, *others = (logits[:, i] for i in range(logits.shape[1]))
    if len(others) == 1:
        return [served, np.subtract(others[0], served, dtype=np.float64)]
    mean = np.add(others[0], others[1], dtype=np.float64)
    for column in others[2:]:
        mean += column
    mean /= len(others)
    if len(others) == 2:
        return [served, mean - served, np.subtract(others[0], others[1], dtype=np.float64)]
    squares = sum((np.square(c - mean) for c in others[1:]), np.square(others[0] - mean))
    return [served, mean - served, np.sqrt(2 / (len(others) - 1) * squares)]


def column_sums(logits: Float, axes: list[Float], weights: Array | None) -> Array:
    """Return the sum of each column of logits; `axes` are their coordinates."""

    def total(x: Float) -> float:
        return float(x.sum(dtype=np.float64)) if weights is None else float(weights @ x)

    if logits.shape[1] > 3:
        return np.array([total(column) for column in logits.T])
    # The coordinates determine up to three columns, and they lie in the cache.
    served, gap, contrast = (*map(total, axes), 0.0)[:3]
    return np.array([served, served + gap + contrast / 2, served + gap - contrast / 2][: logits.shape[1]])


def cell_numbers(logits: Float, level: int) -> list[Float]:
    """Return the cell of each row on each axis, as integral floats."""
    return [numbers for numbers, _, _ in _numbered(coordinates(logits), level)]


def _numbered(axes: list[Float], level: int) -> Iterator[tuple[Float, float, float]]:
    """Yield the cells of rows on each axis, and the first and the last of them."""
    scale = 2.0**-level / FINEST
    for x, factor in zip(axes, (scale, scale, scale / 2), strict=False):
        ends = np.array([x.min(), x.max()], np.float64)
        if not (ends[0] >= -LINEAR and ends[1] <= LINEAR):
            x, ends = compress(x.astype(np.float64)), compress(ends)
        numbers = x * x.dtype.type(factor)
        np.floor(numbers, out=numbers)
        yield numbers, *np.floor(ends * factor).tolist()


def pack(numbers: list[Keys]) -> Keys:
    """Combine the cell numbers of two or three axes into one sortable key."""
    served, gap = numbers[:2]
    contrast = numbers[2] if len(numbers) > 2 else np.zeros(len(served), np.int64)
    return ((served + HALF) << (2 * _BITS)) | ((gap + HALF) << _BITS) | (contrast + HALF)


def unpack(keys: Keys) -> list[Keys]:
    """Invert `pack`; always return three axes."""
    return [(keys >> (2 * _BITS)) - HALF, ((keys >> _BITS) & _MASK) - HALF, (keys & _MASK) - HALF]


def coarsen(keys: Keys, levels: int) -> Keys:
    """Return the keys of the same cells on a grid that is `levels` coarser."""
    return keys if levels == 0 else pack([number >> levels for number in unpack(keys)])


def least_level(keys: Keys, level: int, most: int) -> int:
    """Return the lowest level, from `level` on, at which these keys fill at most `most` cells."""
    axes = unpack(keys)
    ends = [(int(x.min()), int(x.max())) for x in axes]
    for coarser in range(MAX_LEVEL, level - 1, -1):
        by = coarser - level
        shape = [(high >> by) - (low >> by) + 1 for low, high in ends]
        if np.prod(shape, dtype=float) <= most:
            continue
        if np.prod(shape, dtype=float) <= _MAX_HISTOGRAM:
            place = np.zeros(len(keys), np.int64)
            for x, (low, _), width in zip(axes, ends, shape, strict=True):
                place = place * width + ((x >> by) - (low >> by))
            filled = np.zeros(int(np.prod(shape)), bool)
            filled[place] = True
            count = int(np.count_nonzero(filled))
        else:
            count = len(np.unique(coarsen(keys, by)))
        if count > most:
            return coarser + 1
    return level


def collapse(keys: NDArray[Any], table: Array, weight: int = 0) -> tuple[NDArray[Any], Array]:
    """Sort by key, add up the columns that share one, and drop cells without weight, which is row `weight`."""
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, table = keys[order], table[:, order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        keys, table = keys[starts], np.add.reduceat(table, starts, axis=1)
    filled = table[weight] > 0
    return (keys, table) if filled.all() else (keys[filled], table[:, filled])


def join_cells(keys: Keys, table: Array, *more: tuple[Keys, Array]) -> tuple[Keys, Array]:
    """Add up tables of cells."""
    return collapse(
        np.concatenate([keys, *(k for k, _ in more)]), np.concatenate([table, *(t for _, t in more)], axis=1)
    )


def sparse_counts(numbers: list[Float], labels: NDArray[Any] | None, weights: Array | None) -> tuple[Keys, Array]:
    """Return a key for each row, and its weight and weighted label."""
    table = np.zeros((2, len(numbers[0])))
    table[0] = 1.0 if weights is None else weights
    if labels is not None:
        table[1] = table[0] * labels
    return pack([number.astype(np.int64) for number in numbers]), table


class DenseHistogram:
    """Counts of the cells around a sample of rows; rows outside are returned as keys."""

    def __init__(self, sample: list[Float], level: int, labelled: bool) -> None:
        self.level, self.pairs = level, 2 if labelled else 1
        self.ends = [_extent(numbers) for numbers in sample]
        while self.pairs * np.prod(self.shape) > _MAX_HISTOGRAM:
            widest = int(np.argmax(self.shape))
            low, high = self.ends[widest]
            middle, quarter = (low + high) // 2, (high - low) // 4
            self.ends[widest] = middle - quarter, middle + quarter
        self.sums: Array = np.zeros(self.pairs * int(np.prod(self.shape)))

    @property
    def shape(self) -> list[int]:
        """Number of cells on each axis."""
        return [high - low + 1 for low, high in self.ends]

    def count(
        self, logits: Float, labels: NDArray[Any] | None, weights: Array | None, sums: Array
    ) -> tuple[list[tuple[Keys, Array]], Array]:
        """Add rows to `sums`; return keys and tables of the rows outside the histogram, and the sums of columns."""
        outside = []
        columns = np.zeros(logits.shape[1])
        for chunk in chunks(len(logits), _CHUNK):
            position = coordinates(logits[chunk])
            columns += column_sums(logits[chunk], position, None if weights is None else weights[chunk])
            axes = list(_numbered(position, self.level))
            numbers = [x for x, _, _ in axes]
            y, w = (None if column is None else column[chunk] for column in (labels, weights))
            if not all(low <= a and b <= high for (_, a, b), (low, high) in zip(axes, self.ends, strict=True)):
                kept = np.ones(len(numbers[0]), bool)
                for x, (low, high) in zip(numbers, self.ends, strict=True):
                    kept &= (x >= low) & (x <= high)
                rest = (None if column is None else column[~kept] for column in (y, w))
                outside.append(sparse_counts([x[~kept] for x in numbers], *rest))
                numbers = [x[kept] for x in numbers]
                y, w = (None if column is None else column[kept] for column in (y, w))
            np.add.at(sums, self._places(numbers, y), 1.0 if w is None else w)  # unlike bincount, without a copy
        return outside, columns

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
        """Return keys and a table of Σw and Σwy of the filled cells."""
        counts = self.sums.reshape(-1, self.pairs)
        total = counts.sum(axis=1)
        filled = np.flatnonzero(total)
        table = np.zeros((2, len(filled)))
        table[0] = total[filled]
        if self.pairs == 2:
            table[1] = counts[filled, 1]
        places = np.unravel_index(filled, self.shape)
        return pack([x.astype(np.int64) + low for x, (low, _) in zip(places, self.ends, strict=True)]), table


def _extent(numbers: Float) -> tuple[int, int]:
    """Return the first and the last cell of a histogram around the bulk of a sample."""
    # 12 standard deviations hold every row of a well-behaved pool; outliers are counted by key instead.
    sample = numbers[:: max(1, len(numbers) // 4096)].astype(np.float64)
    center, spread = float(np.median(sample)), float(sample.std())
    low, high = max(numbers.min(), center - 12 * spread), min(numbers.max(), center + 12 * spread)
    margin = _MARGIN * (high - low) + 4
    return int(low - margin), int(high + margin)


def plain_numbers(values: Array) -> list[float] | list[int]:
    """Return integral floats as integers, which are half as long in a file."""
    integral = bool((np.round(values) == values).all() and (values < 2.0**53).all())
    plain: list[float] | list[int] = (values.astype(np.int64) if integral else values).tolist()
    return plain


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
