"""`Cells`: served scores in order with weight and label sums, for calibrators and metrics."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..errors import UncurseError
from ..links import logit
from ..validation import check_choice, check_flag, check_labels, check_scores, check_weights
from .cell_tables import (
    EXACT_ROWS,
    EXACT_TOP,
    GRID_SIZE,
    SLOT_OF_STEP,
    SLOT_STARTS,
    checked_table,
    decay_table,
    exact_table,
    grid_steps,
    grid_table,
    join_cells,
    split_at_cut,
    step_edges,
)
from .sums import Sums

_NO_KEYS, _NO_SUMS = np.empty(0, np.int64), np.empty((3, 0))


class Cells(Sums):
    """Served scores in ascending order with their weight and label sum.

    A cell is a distinct score, or a slot of a fixed grid on the logit with the mean score of its rows. The highest
    2,048 scores are always exact. By default all cells are exact up to 2**17 rows; a grid has at most 16,512 cells.
    Exact cells can be merged into a grid, not the reverse.

    Parameters
    ----------
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of `score`. Probabilities passed to `update` are converted to logits if it is "logit". Cells on the
        value scale are always exact.
    exact : bool, optional
        Keep every distinct score (True) or use the grid (False); by default decided by the number of rows.

    Examples
    --------
    >>> cells = Cells().update([0.5, -1.0, 0.5], [1, 0, 0])
    >>> cells.score, cells.weight, cells.label
    (array([-1. ,  0.5]), array([1., 2.]), array([0., 1.]))
    """

    _kind: ClassVar[str] = "cells"

    def __init__(self, scale: str = "logit", exact: bool | None = None) -> None:
        self.scale = check_choice("scale", scale, ("logit", "probability", "value"))
        self.exact = None if exact is None else check_flag(exact, "exact")
        if self.exact is False and scale == "value":
            raise UncurseError("the grid of cells lies on the logit; use exact=True on the value scale")
        self.rows = 0
        self._on_grid = self.exact is False
        self._labelled: bool | None = None
        # Rows of a table are Σws, Σw and Σwy of each cell, with weights also Σw² and Σw²y. The key of an exact cell is
        # its score, that of a slot its first step. On a grid, cells from step `_cut` on are exact and all rows below
        # it are in slots, so the sums do not depend on the order of rows.
        self._exact_keys: Array = np.empty(0)
        self._exact_table: Array = np.empty((3, 0))
        self._grid_keys: NDArray[np.int64] = np.empty(0, np.int64)
        self._grid_table: Array = np.empty((3, 0))
        self._cut = 0

    def update(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        scale: str | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Cells:
        """Add rows.

        Parameters
        ----------
        scores, labels, sample_weight : array-like of shape (n,)
            Served scores, and optionally labels (0 or 1) and row weights.
        scale : {"logit", "probability", "value"}, optional
            Scale of the scores; by default that of the cells.

        Returns
        -------
        Cells
        """
        input_scale = self.scale if scale is None else scale
        values = check_scores(scores, input_scale)
        y = None if labels is None else check_labels(labels, len(values))
        weights = check_weights(sample_weight, len(values), summed=True)
        if input_scale != self.scale and (input_scale, self.scale) != ("probability", "logit"):
            raise UncurseError(f"these cells are on the {self.scale} scale; scale={input_scale!r} cannot be added")
        self._count(len(values), y is not None)
        if self._on_grid and len(values) > EXACT_TOP:
            self._add(*grid_table(values, y, weights, input_scale, self.scale, self._cut))
        else:
            exact = values if input_scale == self.scale else logit(values.astype(np.float64, copy=False))
            self._add(*exact_table(exact, y, weights))
        return self

    def update_steps(
        self,
        table: Array,
        rows: int,
        cut: int,
        top: Array,
        labels: NDArray[Any] | None = None,
        weights: Array | None = None,
    ) -> Cells:
        """Add rows that an engine has summed up by `grid_steps`.

        Parameters
        ----------
        table : array of shape (3 or 5, steps)
            Σwl, Σw, Σwy and, with weights, Σw² and Σw²y of each step.
        rows : int
            Number of rows.
        cut : int
            First step that is kept exactly, see `top_cut`.
        top : array of shape (m,)
            Logits of all rows from step `cut` on.
        labels, weights : arrays of shape (m,), optional
            Labels and weights of these rows.

        Returns
        -------
        Cells
        """
        self._count(rows, labels is not None, on_grid=True)
        self._add(*split_at_cut(table, cut, top, labels, weights))
        return self

    def _merge(self, other: Cells) -> Cells:
        if other.scale != self.scale:
            raise UncurseError(f"cannot merge cells on the {self.scale} and the {other.scale} scale")
        if not other.rows:
            return self
        if other._on_grid and self.exact:
            raise UncurseError("cannot merge cells of a grid into exact ones; use exact=None or exact=False")
        self._count(other.rows, bool(other._labelled), other._on_grid)
        self._add(other._exact_keys, other._exact_table, other._grid_keys, other._grid_table, other._cut)
        return self

    def _decayed(self, factor: float, total: float) -> Cells:
        same = copy.deepcopy(self)
        same._exact_keys, same._exact_table = decay_table(self._exact_keys, self._exact_table, factor, total)
        same._grid_keys, same._grid_table = decay_table(self._grid_keys, self._grid_table, factor, total)
        return same

    def _count(self, rows: int, labelled: bool, on_grid: bool = False) -> None:
        if self._labelled is not None and self._labelled != labelled:
            raise UncurseError("some of these rows have labels and some have none; keep two Cells")
        self._labelled = labelled
        self.rows += rows
        self._on_grid |= on_grid or (self.exact is None and self.scale != "value" and self.rows > EXACT_ROWS)

    def _steps(self, scores: Array) -> NDArray[np.int64]:
        return grid_steps(scores if self.scale == "logit" else logit(scores))

    def _add(
        self,
        exact_keys: Array,
        exact_table: Array,
        grid_keys: NDArray[np.int64] = _NO_KEYS,
        grid_table: Array = _NO_SUMS,
        cut: int = 0,
    ) -> None:
        """Add exact cells and slots below `cut`; then keep at most 2,048 exact cells if there is a grid."""
        keys, table = join_cells(self._exact_keys, self._exact_table, exact_keys, exact_table)
        slots, sums = join_cells(self._grid_keys, self._grid_table, grid_keys, grid_table)
        self._cut = max(self._cut, cut)
        if self._on_grid and (self._cut or len(keys) > EXACT_TOP):
            steps = self._steps(keys)
            if len(keys) > EXACT_TOP:
                self._cut = max(self._cut, int(steps[-EXACT_TOP - 1]) + 1)
            low = steps < self._cut
            slots, sums = join_cells(slots, sums, SLOT_OF_STEP[steps[low]], table[:, low])
            keys, table = keys[~low], table[:, ~low]
        self._exact_keys, self._exact_table, self._grid_keys, self._grid_table = keys, table, slots, sums

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lowest and highest logit of each cell; an exact cell has no width."""
        after = np.searchsorted(SLOT_STARTS, self._grid_keys, side="right")
        low = step_edges(self._grid_keys)
        high = step_edges(np.append(SLOT_STARTS, GRID_SIZE)[after])
        # The slot that holds the cut ends there.
        high = np.minimum(high, step_edges(np.array(self._cut))) if len(high) else high
        return np.append(low, self._exact_keys), np.append(high, self._exact_keys)

    @property
    def score(self) -> Array:
        """Mean score of each cell, ascending."""
        return np.append(self._grid_table[0] / self._grid_table[1], self._exact_keys)

    def on_logit(self) -> tuple[Array, Array, Array]:
        """Return mean score and both bounds of each cell as logits.

        Returns
        -------
        tuple of three arrays of shape (K,)
            Mean, lower bound and upper bound.
        """
        low, high = self.bounds  # the ends of slots are logits already
        if self.scale != "probability":
            return self.score, low, high
        exact, score = low == high, logit(self.score).astype(np.float64, copy=False)
        return score, np.where(exact, score, low), np.where(exact, score, high)

    @property
    def weight(self) -> Array:
        """Weight of each cell."""
        return self._row(1)

    @property
    def label(self) -> Array | None:
        """Weighted label sum of each cell; None without labels."""
        return self._row(2) if self._labelled else None

    @property
    def weight_squares(self) -> Array:
        """Σw² of each cell, for standard errors; equal to `weight` without weights."""
        return self._row(3)

    @property
    def label_squares(self) -> Array:
        """Σw²y of each cell, for standard errors; equal to `label` without weights."""
        return self._row(4)

    def _totals(self) -> tuple[float, float]:
        return float(self.weight.sum()), float(self.weight_squares.sum())

    def _row(self, i: int) -> Array:
        rows = (t[i if i < len(t) else i - 2] for t in (self._grid_table, self._exact_table))
        return np.concatenate(list(rows))

    def __len__(self) -> int:
        return len(self._grid_keys) + len(self._exact_keys)

    def __repr__(self) -> str:
        kind = "the grid" if self._on_grid else "exact scores"
        return f"Cells(scale={self.scale!r}) of {self.rows:,} rows in {len(self):,} cells, {kind}"

    def _to_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "exact": self.exact,
            "grid": self._on_grid,
            "rows": self.rows,
            "labelled": self._labelled,
            "cut": self._cut,
            "exact_keys": self._exact_keys.tolist(),
            "exact_table": self._exact_table.tolist(),
            "grid_keys": self._grid_keys.tolist(),
            "grid_table": self._grid_table.tolist(),
        }

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Cells:
        cells = cls(content["scale"], content["exact"])
        cells._on_grid, cells.rows = bool(content["grid"]), int(content["rows"])
        cells._labelled, cells._cut = content["labelled"], int(content["cut"])
        cells._exact_keys = np.array(content["exact_keys"], np.float64)
        cells._grid_keys = np.array(content["grid_keys"], np.int64)
        cells._exact_table = checked_table(content["exact_table"], cells._exact_keys)
        cells._grid_table = checked_table(content["grid_table"], cells._grid_keys)
        if not 0 <= cells.rows < 1 << 53:
            raise ValueError("its number of rows is not valid")
        if type(cells._labelled) is not bool and (cells.rows or cells._labelled is not None):
            raise ValueError("labelled must be true or false")
        if cells.exact not in (None, not cells._on_grid) or (len(cells._grid_keys) and not cells._on_grid):
            raise ValueError("exact and grid contradict each other")
        if not 0 <= cells._cut <= GRID_SIZE or not np.isin(cells._grid_keys, SLOT_STARTS).all():
            raise ValueError("a cell lies outside the grid")
        if bool(cells.rows) != bool(len(cells)):
            raise ValueError("it has rows without cells, or cells without rows")
        score = cells.score
        if (np.diff(score) < -1e-9 * (1 + np.abs(score[1:]))).any():  # sums of slots are rounded
            raise ValueError("cells must be in ascending order")
        return cells
