"""`Joint`: how served scores and the scores of the other replicas lie together, in cells that merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..threads import in_threads, shares
from ..validation import check_choice, check_labels, check_scores, check_weights
from .dense_histogram import FEW, Box, Grid, Keys, collapsed, logits, packed, sampled, unpacked

#: Beyond so many cells they are made twice as wide.
MOST_CELLS = 131_072
_MOST_STEP = 2.0**20
_Part = tuple[Float, NDArray[Any] | None, Array | None]  # logits, labels, weights
_THREAD = 1 << 20  # rows that another thread is worth starting for


class Joint:
    """Counts of rows by served logit, by how far the mean of the others is above it, and by their variance.

    Cells have one width for both logits, a power of two that fits the spread of the first rows; the variance of the
    others (three replicas and more) is told apart by powers of √2. Two `Joint` merge into the coarser of their grids.

    Attributes
    ----------
    served, apart, variance : arrays of shape (K,)
        Of each cell: served logit, mean of the others less the served, variance of the others about their mean (0 where
        there is one, or where it is hardly any).
    weight, label : arrays of shape (K,)
        Total weight and weighted label sum; `label` is None for unlabelled rows.

    Examples
    --------
    >>> joint = Joint().update([[0.0, 1.0], [0.0, 1.0], [2.0, 2.0]], [1, 0, 1])
    >>> len(joint), float(joint.weight.sum()), float(joint.label.sum())
    (2, 3.0, 2.0)
    """

    def __init__(self) -> None:
        self.rows = 0
        self.n_replicas = 0
        self.weight_squares = 0.0
        self._grid: Grid | None = None
        self._labelled: bool | None = None
        self._keys: Keys = np.empty(0, np.int64)
        self._table: Array = np.empty((2, 0))
        self._box: Box | None = None  # of rows that are not among the keys yet

    def update(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        scale: str = "logit",
        sample_weight: ArrayLike | None = None,
        logit_offset: float = 0.0,
    ) -> Joint:
        """Add rows; `scores` is (n, S) on `scale`. `logit_offset` is added to every logit first."""
        check_choice("scale", scale, ("logit", "probability"))
        values = check_scores(scores, scale, name="pool", ndim=2)
        y = None if labels is None else check_labels(labels, len(values))
        weights = check_weights(sample_weight, len(values))
        self._settle(values, y is not None, scale, weights, logit_offset)

        def part(rows: slice) -> _Part:
            l = logits(values[rows], scale, logit_offset)
            return l, None if y is None else y[rows], None if weights is None else weights[rows]

        if self._box is None and len(values) < FEW:
            self._add(*self.grid.rows(*part(slice(None))).cells())
        else:
            if self._box is None:
                self._box = Box(self.grid, logits(sampled(values), scale, logit_offset), y is not None)
            self._count(self._box, part, shares(len(values), _THREAD))
        self.rows += len(values)
        self.weight_squares += float(len(values)) if weights is None else float(weights @ weights)
        return self

    def _count(self, box: Box, part: Callable[[slice], _Part], pieces: list[slice]) -> None:
        # The box's own sums for the first thread, new ones for each other.
        sums = [box.sums, *(np.zeros_like(box.sums) for _ in pieces[1:])]

        def count(i: int) -> list[tuple[Keys, Array]]:
            l, y, w = part(pieces[i])
            return box.count(l, y, w, sums[i])

        far = [cells for some in in_threads(count, range(len(pieces))) for cells in some]
        for more in sums[1:]:
            box.sums += more
        if far:
            self._keys, self._table = _joined(self._keys, self._table, *far)
            if sum(len(keys) for keys, _ in far) > pieces[-1].stop // 16:
                self._flush()  # rows have moved on: the next ones get a box of their own

    def settle(
        self,
        scores: ArrayLike,
        labelled: bool,
        *,
        scale: str = "logit",
        sample_weight: ArrayLike | None = None,
        logit_offset: float = 0.0,
    ) -> Joint:
        """Let these rows decide where cells lie, if none have yet."""
        values = check_scores(scores, scale, name="pool", ndim=2)
        self._settle(values, labelled, scale, check_weights(sample_weight, len(values)), logit_offset)
        return self

    def _settle(self, values: Float, labelled: bool, scale: str, weights: Array | None, offset: float) -> None:
        self._check(values.shape[1], labelled)
        if self._grid is None:
            l = logits(sampled(values), scale, offset).astype(np.float64, copy=False)
            w = np.ones(len(l)) if weights is None else sampled(weights)
            w = w if w.any() else np.ones(len(l))
            mean = w @ l / w.sum()
            away = l - mean
            self.settle_by(mean, (away.T * w) @ away / w.sum(), labelled)

    def settle_by(self, mean: Array, covariance: Array, labelled: bool) -> Joint:
        """The same by mean (S,) and covariance (S, S) of the logits."""
        self._check(len(mean), labelled)
        if self._grid is None:
            self._grid = Grid.fitting(mean, covariance)
            self.n_replicas, self._labelled = len(mean), labelled
        return self

    def like(self) -> Joint:
        """One without rows, whose cells lie where these do."""
        joint = Joint()
        joint.n_replicas, joint._labelled, joint._grid = self.n_replicas, self._labelled, self._grid
        return joint

    def _check(self, replicas: int, labelled: bool) -> None:
        if replicas < 2:
            raise UncurseError(f"there are {replicas} column(s); the served model and a replica are two at least")
        if self.n_replicas and (self.n_replicas, self._labelled) != (replicas, labelled):
            raise UncurseError(
                f"these rows have {replicas} replicas{' and labels' if labelled else ''}, unlike the ones before; "
                "keep two Joint"
            )

    @property
    def grid(self) -> Grid:
        """Where cells lie."""
        if self._grid is None:
            raise UncurseError("this Joint holds no rows; update it with scores first")
        return self._grid

    @property
    def step(self) -> float:
        """How wide cells are; 0 before there are rows."""
        if self._grid is None:
            return 0.0
        self._flush()
        return self._grid.step

    @property
    def levels(self) -> Array:
        """What is taken off each of the others before their variance: by how much it lies above their mean."""
        return np.array(() if self._grid is None else self._grid.levels)

    def update_cells(
        self, served: Keys, apart: Keys, slot: Keys, table: Array, rows: int, weight_squares: float
    ) -> Joint:
        """Add cells that an engine has counted: numbers of steps, of slots, and rows Σw and Σwy of a table."""
        self._add(packed(served, apart, slot), table)
        self.rows += rows
        self.weight_squares += weight_squares
        return self

    def merge(self, other: Joint) -> Joint:
        """Add the rows behind `other`."""
        if other._grid is None:
            return self
        if self._grid is None:
            self.n_replicas, self._labelled, self._grid = other.n_replicas, other._labelled, other._grid
        if (self.n_replicas, self._labelled) != (other.n_replicas, other._labelled):
            raise UncurseError("these Joint differ in replicas or labels; collect them alike")
        self._flush()
        other._flush()
        step, lowest = max(self.grid.step, other.grid.step), max(self.grid.lowest, other.grid.lowest)
        self._coarsen(step, lowest)
        self._add(_coarser(other._keys, other.grid, step, lowest), other._table)
        self.rows += other.rows
        self.weight_squares += other.weight_squares
        return self

    def _add(self, keys: Keys, table: Array) -> None:
        self._keys, self._table = _joined(self._keys, self._table, (keys, table))
        self._limit()

    def _flush(self) -> None:
        """What is in the box becomes keys."""
        if self._box is not None:
            cells, self._box = self._box.cells(), None
            self._add(*cells)

    def _limit(self) -> None:
        if self._box is None:
            while len(self._keys) > MOST_CELLS and self.grid.step < _MOST_STEP:
                self._coarsen(2 * self.grid.step, self.grid.lowest)

    def _coarsen(self, step: float, lowest: int) -> None:
        self._keys, self._table = collapsed(_coarser(self._keys, self.grid, step, lowest), self._table)
        self._grid = Grid(step, self.grid.levels, lowest)

    def _numbers(self) -> tuple[Keys, Keys, Keys]:
        self._flush()
        return unpacked(self._keys)

    @property
    def served(self) -> Array:
        """Served logit of each cell."""
        return self._middles(self._numbers()[0])

    @property
    def apart(self) -> Array:
        """How far the mean of the other replicas lies above the served logit."""
        return self._middles(self._numbers()[1])

    def _middles(self, numbers: Keys) -> Array:
        """Where rows of cells lie: about their middles, as far to a side as the counts to either side tell.

        Where they fall by a factor e in one unit, the mean of a cell lies step²/12 below its middle: half a percent of
        a prediction at the top, if cells are wide.
        """
        if not len(numbers):
            return np.empty(0)
        columns, place = np.unique(numbers, return_inverse=True)
        count = np.bincount(place, weights=self._table[0])
        before, after = np.diff(columns, prepend=columns[0] - 2) == 1, np.diff(columns, append=columns[-1] + 2) == 1
        rise = np.where(after, np.roll(count, -1), 0.0) - np.where(before, np.roll(count, 1), 0.0)
        aside = np.clip(rise / count / 24, -0.2, 0.2)
        return np.asarray((numbers + 0.5 + aside[place]) * self.step, np.float64)

    def apart_squared(self, level: float) -> Array:
        """The square of `apart` about a level, less what the width of cells adds to it."""
        away = (self._numbers()[1] + 0.5) * self.step - level
        return np.asarray(np.maximum(np.square(away) - self.step**2 / 12, 0.0), np.float64)

    @property
    def variance(self) -> Array:
        """Variance of the other replicas about their mean, each less its level."""
        slot = self._numbers()[2]
        if self.n_replicas < 3:
            return np.zeros(len(slot))
        return np.where(slot > self.grid.lowest, np.exp2((slot + 0.5) / 2), 0.0)

    @property
    def weight(self) -> Array:
        """Weight of each cell."""
        self._flush()
        weight: Array = self._table[0]
        return weight

    @property
    def label(self) -> Array | None:
        """Weighted label sum of each cell, None where there are no labels."""
        self._flush()
        return self._table[1] if self._labelled else None

    @property
    def effective_rows(self) -> float:
        """(Σw)² / Σw²: how many rows of one weight these are worth."""
        return float(self.weight.sum() ** 2 / self.weight_squares) if self.weight_squares else 0.0

    @property
    def worth(self) -> float:
        """What to multiply weights by so that they count the rows that they are worth."""
        return self.effective_rows / float(self.weight.sum())

    def __len__(self) -> int:
        self._flush()
        return len(self._keys)

    def __copy__(self) -> Joint:
        self._flush()
        joint = Joint()
        vars(joint).update(vars(self))
        return joint

    def __repr__(self) -> str:
        return f"Joint of {self.rows:,} rows and {self.n_replicas} replicas in {len(self):,} cells"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        served, apart, slot = self._numbers()
        grid = Grid(0.0, (), 0) if self._grid is None else self._grid
        return {
            "replicas": self.n_replicas,
            "rows": self.rows,
            "labelled": self._labelled,
            "step": grid.step,
            "levels": list(grid.levels),
            "lowest": grid.lowest,
            "weight_squares": self.weight_squares,
            "served": served.tolist(),
            "apart": apart.tolist(),
            "slot": slot.tolist() if self.n_replicas > 2 else None,
            "weight": _plain(self._table[0]),
            "label": _plain(self._table[1]) if self._labelled else None,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Joint:
        """Back from `to_dict`."""
        with documents.reading("joint"):
            joint = cls()
            if not int(content["replicas"]):
                return joint
            joint.n_replicas, joint._labelled = int(content["replicas"]), content["labelled"]
            joint._grid = Grid(float(content["step"]), tuple(map(float, content["levels"])), int(content["lowest"]))
            served, apart = (np.array(content[name], np.int64) for name in ("served", "apart"))
            slot = np.zeros(len(served), np.int64) if content["slot"] is None else np.array(content["slot"], np.int64)
            weight = np.array(content["weight"], np.float64)
            label = np.zeros(len(served)) if content["label"] is None else np.array(content["label"], np.float64)
            if {len(column) for column in (apart, slot, weight, label)} != {len(served)}:
                raise ValueError("its arrays differ in length")
            table = np.stack([weight, label])
            joint.update_cells(served, apart, slot, table, int(content["rows"]), float(content["weight_squares"]))
        return joint


def _joined(keys: Keys, table: Array, *more: tuple[Keys, Array]) -> tuple[Keys, Array]:
    return collapsed(
        np.concatenate([keys, *(k for k, _ in more)]), np.concatenate([table, *(t for _, t in more)], axis=1)
    )


def _coarser(keys: Keys, grid: Grid, step: float, lowest: int) -> Keys:
    """The keys of the same cells on a coarser grid."""
    if (grid.step, grid.lowest) == (step, lowest):
        return keys
    by = int(np.log2(step / grid.step))
    served, apart, slot = unpacked(keys)
    return packed(served >> by, apart >> by, np.maximum(slot, lowest))


def _plain(values: Array) -> list[float] | list[int]:
    """Whole numbers as such: they are half as long in a file."""
    whole = np.round(values)
    made: list[float] | list[int] = (whole.astype(np.int64) if (whole == values).all() else values).tolist()
    return made


__all__ = ["MOST_CELLS", "Joint"]
