"""`ReplicaCounts`: a joint histogram of replica scores that can be merged."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..threads import in_threads, shares
from ..validation import check_choice, check_labels, check_number, check_scores, check_weights
from .block_sums import strict_link
from .replica_cells import ReplicaCells, replica_cells
from .replica_grid import (
    FINEST,
    LARGEST,
    DenseHistogram,
    Keys,
    cell_numbers,
    checked_counts,
    coarsen,
    collapse,
    column_sums,
    coordinates,
    join_cells,
    least_level,
    pack,
    plain_numbers,
    sparse_counts,
    unpack,
)
from .sums import NEGLIGIBLE, Sums

#: The grid is made coarser until at most this many cells are filled: 1/32 of a logit for 10 million rows of 2 replicas.
MAX_CELLS = 1 << 15
_SAMPLE = 1 << 17  # rows whose filled cells bound the level from below; as many rows are sorted at once
_MAX_KEYS = 8 * MAX_CELLS  # cells kept beside a histogram; then they are joined
_THREAD_ROWS = 1 << 20  # rows for which another thread is worth starting


class ReplicaCounts(Sums):
    """Counts of rows by served logit, by gap to the other replicas, and by contrast among those.

    The grid does not depend on the data. It is made coarser, by powers of two, until at most 32,768 cells are filled.
    So the result is the same for every order of the rows and every way to split them.

    Attributes
    ----------
    rows, n_replicas : int
        Number of rows and of replicas.
    column_sums : array of shape (S,)
        Exact sum of the weighted logits of each replica.

    Examples
    --------
    >>> counts = ReplicaCounts().update([[0.0, 1.0], [0.0, 1.0], [2.0, 2.0]], [1, 0, 1])
    >>> len(counts), counts.cells().weight, counts.cells().label
    (2, array([2., 1.]), array([1., 1.]))
    """

    _kind: ClassVar[str] = "replica counts"

    def __init__(self) -> None:
        self.rows = self.n_replicas = self._level = 0
        self.column_sums: Array = np.zeros(0)
        self._weight_squares = 0.0
        self._labelled: bool | None = None
        self._keys: Keys = np.empty(0, np.int64)
        self._table: Array = np.empty((2, 0))
        self._histogram: DenseHistogram | None = None  # of rows that are not among the keys yet
        self._cells: ReplicaCells | None = None

    def update(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        scale: str = "logit",
        sample_weight: ArrayLike | None = None,
        logit_offset: float = 0.0,
    ) -> ReplicaCounts:
        """Add rows.

        Parameters
        ----------
        scores : array-like of shape (n, S)
            Scores of S ≥ 2 replicas, the served one first.
        labels, sample_weight : array-like of shape (n,), optional
            Labels (0 or 1), and row weights.
        scale : {"logit", "probability"}, default="logit"
            Scale of the scores.
        logit_offset : float, default=0.0
            Number added to every logit.

        Returns
        -------
        ReplicaCounts
        """
        check_choice("scale", scale, ("logit", "probability"))
        values = check_scores(scores, scale, name="scores", ndim=2)
        y = None if labels is None else check_labels(labels, len(values))
        w = check_weights(sample_weight, len(values), summed=True)
        logit_offset = check_number(logit_offset, "logit_offset")
        if scale == "probability" and not (values.min() > 0 and values.max() < 1):
            _logits(values, scale, 0.0)  # raises before anything is counted
        self._start(values.shape[1], y is not None)
        if len(values) <= _SAMPLE:
            logits = _logits(values, scale, logit_offset)
            sums = column_sums(logits, coordinates(logits), w)
            self._add(*sparse_counts(cell_numbers(logits, self._level), y, w))
        else:
            sums = self._count(values, y, w, scale, logit_offset)
        self._add_totals(len(values), float(len(values)) if w is None else float(w @ w), sums)
        return self

    def _count(
        self, values: Float, labels: NDArray[Any] | None, weights: Array | None, scale: str, offset: float
    ) -> Array:
        """Count many rows in a dense histogram, a thread per core; return the sums of their columns."""
        if self._histogram is None:
            rows = slice(None, None, len(values) // _SAMPLE)
            logits = _logits(values[rows], scale, offset)
            keys, table = sparse_counts(
                cell_numbers(logits, self._level), None, None if weights is None else weights[rows]
            )
            # A sample fills no more cells than all rows do, so the final level is at least that of the sample.
            level = least_level(keys[table[0] > 0], self._level, MAX_CELLS)
            self._coarsen(level)
            self._histogram = DenseHistogram(cell_numbers(logits, level), level, labels is not None)
        histogram, pieces = self._histogram, shares(len(values), _THREAD_ROWS)
        sums = [histogram.sums, *(np.zeros_like(histogram.sums) for _ in pieces[1:])]

        def count(i: int) -> tuple[list[tuple[Keys, Array]], Array]:
            y, w = (None if column is None else column[pieces[i]] for column in (labels, weights))
            return histogram.count(_logits(values[pieces[i]], scale, offset), y, w, sums[i])

        counted = in_threads(count, range(len(pieces)))
        for thread_sums in sums[1:]:
            histogram.sums += thread_sums
        outside = [cells for misses, _ in counted for cells in misses]
        if outside:
            self._keys, self._table = join_cells(self._keys, self._table, *outside)
            if sum(len(keys) for keys, _ in outside) > len(values) // 16 or len(self._keys) > _MAX_KEYS:
                self._flush()  # the histogram misses these rows: start another
        self._cells = None
        return np.asarray(np.sum([column for _, column in counted], axis=0))

    def _start(self, n_replicas: int, labelled: bool) -> None:
        """Fix the number of replicas and whether rows have labels."""
        if n_replicas < 2:
            raise UncurseError(f"there are {n_replicas} score columns; pass the served model and at least one replica")
        if not self.n_replicas:
            self.n_replicas, self._labelled, self.column_sums = n_replicas, labelled, np.zeros(n_replicas)
        if self.n_replicas != n_replicas:
            raise UncurseError(f"these rows have {n_replicas} replicas, the ones before {self.n_replicas}")
        if self._labelled != labelled:
            raise UncurseError("some of these rows have labels and some have none; keep separate counts")

    def update_cells(
        self,
        numbers: list[Keys],
        table: Array,
        level: int,
        *,
        labelled: bool,
        rows: int,
        weight_squares: float,
        column_sums: Array,
    ) -> ReplicaCounts:
        """Add cells that a dataframe engine has counted.

        Parameters
        ----------
        numbers : list of int arrays of shape (K,)
            Cell numbers on each axis.
        table : array of shape (2, K)
            Σw and Σwy of each cell.
        level, rows : int
            Level of the grid, and number of rows.
        labelled : bool
            Whether rows have labels.
        weight_squares : float
            Σw².
        column_sums : array of shape (S,)
            Sums of the weighted logits.

        Returns
        -------
        ReplicaCounts
        """
        self._start(len(column_sums), labelled)
        self._coarsen(level)
        self._add(coarsen(pack(numbers), self._level - level), table)
        self._add_totals(rows, weight_squares, column_sums)
        return self

    def _merge(self, other: ReplicaCounts) -> ReplicaCounts:
        if not other.n_replicas:
            return self
        self._start(other.n_replicas, bool(other._labelled))
        other._flush()
        self._flush()
        self._coarsen(other._level)
        self._add(coarsen(other._keys, self._level - other._level), other._table)
        self._add_totals(other.rows, other._weight_squares, other.column_sums)
        return self

    def repeated(self, times: float) -> ReplicaCounts:
        """Return counts of rows that each occur several times: the effective number of rows is divided.

        Parameters
        ----------
        times : float
            How often each row occurs.

        Returns
        -------
        ReplicaCounts
        """
        same = ReplicaCounts().merge(self)
        same._weight_squares *= check_number(times, "times")
        return same

    def _totals(self) -> tuple[float, float]:
        self._flush()
        return float(self._table[0].sum()), self._weight_squares

    def _decayed(self, factor: float, total: float) -> ReplicaCounts:
        same = ReplicaCounts().merge(self)
        kept = same._table[0] > NEGLIGIBLE * total
        same._keys, same._table = same._keys[kept], same._table[:, kept] * factor
        same._weight_squares *= factor**2
        same.column_sums = same.column_sums * factor
        return same

    def _add_totals(self, rows: int, weight_squares: float, column_sums: Array) -> None:
        self.rows += rows
        self._weight_squares += weight_squares
        self.column_sums = self.column_sums + column_sums

    def _add(self, keys: Keys, table: Array) -> None:
        self._cells = None
        self._keys, self._table = join_cells(self._keys, self._table, (keys, table))
        if self._histogram is not None:
            if len(self._keys) > _MAX_KEYS:
                self._flush()
        elif len(self._keys) > MAX_CELLS:
            self._coarsen(least_level(self._keys, self._level, MAX_CELLS))

    def _flush(self) -> None:
        """Move the counts of the histogram to the keys."""
        if self._histogram is not None:
            cells, self._histogram = self._histogram.cells(), None
            self._add(*cells)

    def _coarsen(self, level: int) -> None:
        if level > self._level:
            self._flush()
        if level > self._level:
            self._keys, self._table = collapse(coarsen(self._keys, level - self._level), self._table)
            self._level, self._cells = level, None

    def coarsened(self, level: int) -> ReplicaCounts:
        """Return these counts, or a copy on the grid of `level` if that is coarser.

        Parameters
        ----------
        level : int
            Level of the grid.

        Returns
        -------
        ReplicaCounts
        """
        counts = copy.deepcopy(self) if level > self.level else self
        counts._coarsen(level)
        return counts

    @property
    def level(self) -> int:
        """Level of the grid: cells are 2**(level − 14) wide."""
        self._flush()
        return self._level

    def cells(self) -> ReplicaCells:
        """Return the filled cells as arrays.

        Returns
        -------
        ReplicaCells
        """
        if self._cells is None:
            total, _ = self._totals()
            if not total > 0:
                raise UncurseError("these counts hold no rows; update them with scores first")
            self._cells = replica_cells(
                unpack(self._keys),
                FINEST * 2.0**self._level,
                self._table[0],
                self._table[1] if self._labelled else None,
                self.column_sums / total,
                self.effective_rows,
            )
        return self._cells

    def __len__(self) -> int:
        self._flush()
        return len(self._keys)

    def __repr__(self) -> str:
        return f"ReplicaCounts of {self.rows:,} rows and {self.n_replicas} replicas in {len(self):,} cells"

    def _to_dict(self) -> dict[str, Any]:
        self._flush()
        served, gap, contrast = unpack(self._keys)
        return {
            "replicas": self.n_replicas,
            "rows": self.rows,
            "labelled": self._labelled,
            "level": self._level,
            "weight_squares": self._weight_squares,
            "column_sums": self.column_sums.tolist(),
            "served": served.tolist(),
            "gap": gap.tolist(),
            "contrast": contrast.tolist() if self.n_replicas > 2 else None,
            "weight": plain_numbers(self._table[0]),
            "label": plain_numbers(self._table[1]) if self._labelled else None,
        }

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> ReplicaCounts:
        replicas, level = int(content["replicas"]), int(content["level"])
        if not replicas and not content["rows"]:
            return cls()
        numbers, table, totals = checked_counts(content, replicas, level)
        return cls().update_cells(numbers, table, level, labelled=bool(content["labelled"]), **totals)


def _logits(values: Float, scale: str, offset: float) -> Float:
    logits = strict_link(values, scale, "logistic", offset)
    inside = logits.min() >= -LARGEST and logits.max() <= LARGEST
    return logits if inside else np.clip(logits, -LARGEST, LARGEST)
