"""`Joint`: how served scores and the scores of the other replicas lie together, in cells that merge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import documents
from ..cores import chunks, in_threads, shares
from ..links import Float, UncurseError, check_choice, check_labels, check_scores, check_weights, to_link
from .moments import Array

Keys = NDArray[np.int64]

#: Beyond so many cells they are made twice as wide.
MOST_CELLS = 32_768
_WIDEST, _FARTHEST = 12.0, 16.0  # spreads about the mean that are counted in a dense box; what lies beyond is sorted
_LEAST_STEP, _MOST_STEP = 2.0**-20, 2.0**20
_SLOTS = (-60, 60)  # powers of √2 that tell variances apart
_REACH = 1 << 24  # cells to either side of zero


class Joint:
    """Counts of rows by served logit, by how far the mean of the others is above it, and by their variance.

    Cells have one width for both logits, a power of two that fits the spread of the first rows; the variance of the
    others (three replicas and more) is told apart by powers of √2. Two `Joint` merge into the coarser of their grids.

    Attributes
    ----------
    served, apart, variance : arrays of shape (K,)
        The middle of each cell: served logit, mean of the others less the served, variance of the others about their
        mean (0 where there is one).
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
        self.step = 0.0
        self.weight_squares = 0.0
        self.levels: Array = np.empty(0)  # of the others, taken off before their variance: those of the first rows
        self._keys: Keys = np.empty(0, np.int64)
        self._table: Array = np.empty((2, 0))
        self._labelled: bool | None = None

    def update(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        scale: str = "logit",
        sample_weight: ArrayLike | None = None,
        logit_offset: float = 0.0,
    ) -> Joint:
        """Add rows; `scores` is (n, S) on `scale`."""
        check_choice("scale", scale, ("logit", "probability"))
        values = check_scores(scores, scale, name="pool", ndim=2)
        y = None if labels is None else check_labels(labels, len(values))
        weights = check_weights(sample_weight, len(values))
        self.settle(values[:: max(1, len(values) // 65_536)], scale, logit_offset, values.shape[1], y is not None)
        box = _Box(self, values, scale, logit_offset)

        def count(share: slice) -> tuple[Keys, Array]:
            return box.count(
                values[share], None if y is None else y[share], None if weights is None else weights[share]
            )

        for keys, table in in_threads(count, shares(len(values))):
            self._keys, self._table = _collapsed(
                np.concatenate([self._keys, keys]), np.concatenate([self._table, table], axis=1)
            )
        self.rows += len(values)
        self.weight_squares += float(len(values)) if weights is None else float(weights @ weights)
        self._limit()
        return self

    def settle(self, sample: Float, scale: str, logit_offset: float, replicas: int, labelled: bool) -> None:
        """The first rows decide the width of cells, and the levels of the other replicas."""
        if replicas < 2:
            raise UncurseError(f"there are {replicas} column(s); the served model and a replica are two at least")
        if self.n_replicas and (self.n_replicas, self._labelled) != (replicas, labelled):
            raise UncurseError(
                f"these rows have {replicas} replicas{' and labels' if labelled else ''}, unlike the ones before; "
                "keep two Joint"
            )
        self.n_replicas, self._labelled = replicas, labelled
        if not self.step:
            l = _logits(sample, scale, logit_offset)
            self.levels = l[:, 1:].mean(axis=0) - l[:, 1:].mean()
            self.step = fitting_step(float(l[:, 0].std()), float((l[:, 1:].mean(axis=1) - l[:, 0]).std()))

    def update_cells(
        self, served: Keys, apart: Keys, slot: Keys, table: Array, rows: int, weight_squares: float
    ) -> Joint:
        """Add cells that an engine has counted: numbers of steps, of slots, and rows Σw and Σwy of a table."""
        self._keys, self._table = _collapsed(
            np.concatenate([self._keys, _packed(served, apart, slot)]), np.concatenate([self._table, table], axis=1)
        )
        self.rows += rows
        self.weight_squares += weight_squares
        self._limit()
        return self

    def merge(self, other: Joint) -> Joint:
        """Add the rows behind `other`."""
        if not other.n_replicas:
            return self
        if not self.n_replicas:
            self.n_replicas, self._labelled = other.n_replicas, other._labelled
            self.step, self.levels = other.step, other.levels
        if (self.n_replicas, self._labelled) != (other.n_replicas, other._labelled):
            raise UncurseError("these Joint differ in replicas or labels; collect them alike")
        keys, table = other._keys, other._table
        while self.step < other.step:
            self._widen()
        step = other.step
        while step < self.step:
            keys, step = _halved(keys), 2 * step
        self._keys, self._table = _collapsed(
            np.concatenate([self._keys, keys]), np.concatenate([self._table, table], axis=1)
        )
        self.rows += other.rows
        self.weight_squares += other.weight_squares
        self._limit()
        return self

    def _limit(self) -> None:
        while len(self._keys) > MOST_CELLS and self.step < _MOST_STEP:
            self._widen()

    def _widen(self) -> None:
        self._keys, self._table = _collapsed(_halved(self._keys), self._table)
        self.step *= 2

    @property
    def served(self) -> Array:
        """Served logit of each cell."""
        return (_unpacked(self._keys)[0] + 0.5) * self.step

    @property
    def apart(self) -> Array:
        """How far the mean of the other replicas lies above the served logit."""
        return (_unpacked(self._keys)[1] + 0.5) * self.step

    @property
    def variance(self) -> Array:
        """Variance of the other replicas about their mean, each less its level."""
        if self.n_replicas < 3:
            return np.zeros(len(self))
        return np.exp2((_unpacked(self._keys)[2] + 0.5) / 2)

    @property
    def weight(self) -> Array:
        """Weight of each cell."""
        return self._table[0]

    @property
    def label(self) -> Array | None:
        """Weighted label sum of each cell, None where there are no labels."""
        return self._table[1] if self._labelled else None

    @property
    def effective_rows(self) -> float:
        """(Σw)² / Σw²: how many rows of one weight these are worth."""
        return float(self.weight.sum() ** 2 / self.weight_squares) if self.weight_squares else 0.0

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Joint of {self.rows:,} rows and {self.n_replicas} replicas in {len(self):,} cells"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        served, apart, slot = _unpacked(self._keys)
        return {
            "replicas": self.n_replicas,
            "rows": self.rows,
            "labelled": self._labelled,
            "step": self.step,
            "levels": self.levels.tolist(),
            "weight_squares": self.weight_squares,
            "served": served.tolist(),
            "apart": apart.tolist(),
            "slot": slot.tolist() if self.n_replicas > 2 else None,
            "weight": self._table[0].tolist(),
            "label": self._table[1].tolist() if self._labelled else None,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Joint:
        """Back from `to_dict`."""
        with documents.reading("joint"):
            joint = cls()
            joint.n_replicas, joint._labelled = int(content["replicas"]), content["labelled"]
            joint.step, joint.levels = float(content["step"]), np.array(content["levels"], np.float64)
            columns = [np.array(content[name] or [], np.int64) for name in ("served", "apart", "slot")]
            count = len(columns[0])
            if content["slot"] is None:
                columns[2] = np.zeros(count, np.int64)
            weight = np.array(content["weight"], np.float64)
            label = np.zeros(count) if content["label"] is None else np.array(content["label"], np.float64)
            if {len(c) for c in (*columns, weight, label)} != {count}:
                raise ValueError("its arrays differ in length")
            if count:
                table = np.stack([weight, label])
                joint.update_cells(*columns, table, int(content["rows"]), float(content["weight_squares"]))
        return joint


def fitting_step(spread: float, apart: float) -> float:
    """The width of cells: a power of two, at most a 16th of the served scores' spread and a 4th of the replicas'."""
    finest = min(spread / 16, apart / 4 if apart > 0 else np.inf)
    if not np.isfinite(finest) or finest <= 0:
        finest = spread / 16 if spread > 0 else 1.0
    return float(np.clip(np.exp2(np.floor(np.log2(finest))), _LEAST_STEP, _MOST_STEP))


def _logits(values: Float, scale: str, offset: float) -> Array:
    l = to_link(values, scale, "logistic").astype(np.float64, copy=False)
    return l + offset if offset else l


class _Box:
    """Counts rows in a dense box of cells about the middle, and by sorting where they lie far out."""

    def __init__(self, joint: Joint, values: Float, scale: str, offset: float) -> None:
        self.step, self.levels, self.scale, self.offset = joint.step, joint.levels, scale, offset
        sample = _logits(values[:: max(1, len(values) // 65_536)], scale, offset)
        served, apart = sample[:, 0], sample[:, 1:].mean(axis=1) - sample[:, 0]
        self.low: list[int] = []
        self.size: list[int] = []
        for x, reach in ((served, _WIDEST), (apart, _FARTHEST)):
            low, high = max(x.min(), x.mean() - reach * x.std()), min(x.max(), x.mean() + reach * x.std())
            margin = 0.25 * (high - low) + 4 * self.step
            self.low.append(int(np.floor((low - margin) / self.step)))
            self.size.append(int(min((high - low + 2 * margin) / self.step + 2, 4096)))
        slots = self._slots(sample[:, 1:])
        self.low.append(int(np.quantile(slots, 0.002)) - 1)
        self.size.append(int(slots.max()) - self.low[2] + 2 if values.shape[1] > 2 else 1)
        if values.shape[1] == 2:
            self.low[2] = 0

    def count(self, values: Float, labels: NDArray[Any] | None, weights: Array | None) -> tuple[Keys, Array]:
        """Cells of these rows: keys, and a table of Σw and Σwy."""
        pairs = 1 if labels is None else 2
        sums = np.zeros(pairs * int(np.prod(self.size)))
        far_keys, far_tables = [], []
        for chunk in chunks(len(values), 1 << 15 if len(sums) < 1 << 16 else 1 << 18):
            served, apart, slot = self._numbers(values[chunk])
            y = None if labels is None else labels[chunk]
            w = None if weights is None else weights[chunk]
            i, j = served - self.low[0], apart - self.low[1]
            out = (i < 0) | (i >= self.size[0]) | (j < 0) | (j >= self.size[1])
            if self.size[2] > 1:
                slot -= self.low[2]
                out |= (slot < 0) | (slot >= self.size[2])
            if out.any():
                far = np.flatnonzero(out)
                table = np.zeros((2, len(far)))
                table[0] = 1.0 if w is None else w[far]
                if y is not None:
                    table[1] = table[0] * y[far]
                far_keys.append(_packed(served[far], apart[far], slot[far] + self.low[2]))
                far_tables.append(table)
                near = np.flatnonzero(~out)
                i, j, slot = i[near], j[near], slot[near]
                y, w = None if y is None else y[near], None if w is None else w[near]
            i *= self.size[1]
            i += j
            if self.size[2] > 1:
                i *= self.size[2]
                i += slot
            if y is not None:
                i *= 2
                np.add(i, y, out=i, casting="unsafe")
            sums += np.bincount(i, weights=w, minlength=len(sums))
        counts = sums.reshape(-1, pairs)
        total = counts.sum(axis=1)
        filled = np.flatnonzero(total)
        table = np.zeros((2, len(filled)))
        table[0] = total[filled]
        if labels is not None:
            table[1] = counts[filled, 1]
        first, slot = np.divmod(filled, self.size[2])
        i, j = np.divmod(first, self.size[1])
        keys = _packed(i + self.low[0], j + self.low[1], slot + self.low[2])
        return np.concatenate([keys, *far_keys]), np.concatenate([table, *far_tables], axis=1)

    def _numbers(self, values: Float) -> tuple[Keys, Keys, Keys]:
        l = _logits(values, self.scale, self.offset)
        served, others = l[:, 0], l[:, 1:]
        mean = others[:, 0]
        if others.shape[1] > 1:  # column by column: numpy's mean over a short axis is slow
            mean = np.asarray(sum(others[:, i] for i in range(others.shape[1])) / others.shape[1])
        return self._steps(served), self._steps(mean - served), self._slots(others)

    def _slots(self, others: Array) -> Keys:
        """The power of √2 that the variance of the others lies above."""
        count = others.shape[1]
        if count == 1:
            return np.zeros(len(others), np.int64)
        if count == 2:  # the common case, in one pass
            spread = np.square(others[:, 0] - others[:, 1] - (self.levels[0] - self.levels[1])) / 2
        else:
            columns = [others[:, i] - self.levels[i] for i in range(count)]
            mean = sum(columns) / count
            spread = np.asarray(sum(np.square(c - mean) for c in columns) / (count - 1))
        fraction, exponent = np.frexp(spread)
        slot = 2 * exponent.astype(np.int64) - 2 + (fraction >= np.sqrt(0.5))
        return np.where(spread > 0, np.clip(slot, _SLOTS[0], _SLOTS[1] - 1), _SLOTS[0])

    def _steps(self, x: Array) -> Keys:
        steps = np.floor(x / self.step)
        if not (np.abs(steps) < _REACH).all():
            steps = np.clip(steps, 1 - _REACH, _REACH - 1)
        return steps.astype(np.int64)


def _packed(served: Keys, apart: Keys, slot: Keys) -> Keys:
    return ((served + _REACH) << 33) | ((apart + _REACH) << 8) | (slot + 128)


def _unpacked(keys: Keys) -> tuple[Keys, Keys, Keys]:
    return (keys >> 33) - _REACH, ((keys >> 8) & ((1 << 25) - 1)) - _REACH, (keys & 255) - 128


def _halved(keys: Keys) -> Keys:
    served, apart, slot = _unpacked(keys)
    return _packed(served >> 1, apart >> 1, slot)


def _collapsed(keys: Keys, table: Array) -> tuple[Keys, Array]:
    """Sort by key and add up what shares one."""
    if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, table = keys[order], table[:, order]
        first = np.concatenate([[True], keys[1:] != keys[:-1]])
        starts = np.flatnonzero(first)
        keys, table = keys[starts], np.add.reduceat(table, starts, axis=1)
    filled = table[0] > 0
    return (keys, table) if filled.all() else (keys[filled], table[:, filled])


__all__ = ["MOST_CELLS", "Joint", "fitting_step"]
