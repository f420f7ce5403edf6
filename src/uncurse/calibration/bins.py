"""Bins of cells, and where they end.

A bin ends at a *place*: i is the gap below cell i, and i + s, for cells of a grid, the share s of cell i. Rows of one
exact score are never torn apart; those of a grid's cell are, in proportion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells
from ..links import logit
from ..validation import check_choice, check_count


def bins(cells: Cells, n_bins: int, strategy: str, refine_top: float | None) -> tuple[Array, Array]:
    """Places where bins end, ascending, and the scores there; no bin is empty."""
    check_choice("strategy", strategy, ("quantile", "uniform"))
    shares = np.arange(1, check_count(n_bins, "n_bins")) / n_bins
    reached, wide = running(cells.weight), wide_cells(cells)
    total = reached[-1]
    if strategy == "quantile":
        places = inner(at_weight(reached, wide, total * shares), len(wide))
        edges = edges_at(cells, places)
    else:
        edges = np.asarray(logit(shares), np.float64)
        places = _at_score(cells, edges)
        last = np.append(places[1:] > places[:-1], True)  # of edges with no row between them, the upper one
        last &= (places > 0) & (places < len(cells))
        places, edges = places[last], edges[last]
    if refine_top is not None:
        if not 0 < refine_top <= 1:
            raise UncurseError(f"refine_top={refine_top}; pass the smallest share that will be selected, such as 0.001")
        below, halves = total - totals(reached, places)[-1], []
        while total - below > refine_top * total * (1 + 1e-9):
            below = (total + below) / 2
            halves.append(below)
        more = np.minimum(at_weight(reached, wide, np.array(halves)), len(cells) - 1.0)
        more = np.unique(more[more > places.max(initial=0.0)])
        places, edges = np.append(places, more), np.append(edges, edges_at(cells, more))
    return places, edges


def running(column: Array) -> Array:
    """The sum of a column up to each place."""
    running: Array = np.append(0.0, np.cumsum(column))
    return running


def inner(places: Array, cells: int) -> Array:
    """Distinct places with a cell on either side."""
    return np.unique(places[(places > 0) & (places < cells)])


def at_weight(reached: Array, wide: NDArray[np.bool_], targets: Array) -> Array:
    """The places where the running weight reaches the targets; above a cell that cannot be torn."""
    i = np.searchsorted(reached, targets * (1 - 1e-12)) - 1
    share = np.clip((targets - reached[i]) / (reached[i + 1] - reached[i]), 0.0, 1.0)
    return np.asarray(i + np.where(wide[i], share, 1.0), np.float64)


def wide_cells(cells: Cells) -> NDArray[np.bool_]:
    """Which cells hold more than one score, and can be torn."""
    low, high = cells.bounds
    return high > low


def _at_score(cells: Cells, edges: Array) -> Array:
    low, high = cells.bounds
    i = np.searchsorted(high, edges)
    inside = np.minimum(i, len(low) - 1)
    width = (high - low)[inside]
    share = np.clip((edges - low[inside]) / np.where(width > 0, width, np.inf), 0.0, 1.0)
    return np.asarray(i + np.where(i < len(low), share, 0.0), np.float64)


def edges_at(cells: Cells, places: Array) -> Array:
    """The score at each place."""
    i = places.astype(np.intp)
    share = places - i
    score = cells.score
    low, high = cells.bounds
    middle = (score[i] + score[i - 1]) / 2
    # Neighbouring floats have no middle: then the edge is the upper one, which belongs to its own step.
    middle = np.where(middle > score[i - 1], middle, score[i])
    return np.where(share > 0, low[i] + share * (high[i] - low[i]), middle)


def totals(running: Array, places: Array) -> Array:
    """What lies between places, of a running sum."""
    i = places.astype(np.intp)
    at = running[i] + (places - i) * (running[np.minimum(i + 1, len(running) - 1)] - running[i])
    return np.diff(at, prepend=0.0, append=running[-1])


__all__ = ["at_weight", "bins", "edges_at", "inner", "running", "totals", "wide_cells"]
