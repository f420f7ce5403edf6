"""Sums over labelled rows: by day, by range of the prediction and by group."""

from __future__ import annotations

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from ..maps import Grouped, ScoreMap
from .sequential import LabelSums, total
from .state import Day, MonitorState

# Edges of the ranges of predictions in which calibration is reported.
_EDGES = tuple(digit * 10.0**power for power in range(-5, 0) for digit in (1, 2, 5))


def count_rows(digest: str, score_map: ScoreMap, evidence: Evidence, day: str) -> MonitorState:
    """Return the state of the labelled rows of one day, which is an ISO date or time."""
    assert evidence.cells is not None
    cells = evidence.cells
    factor = float(cells.weight.sum() / cells.weight_squares.sum())  # weights to effective rows
    offset = evidence.spec.logit_offset
    groups: dict[str, LabelSums] = {}
    parts: list[tuple[Array, Array, Array]] = []
    for name, part in evidence.groups.items():
        if part.cells is None:
            if isinstance(score_map, Grouped):
                raise UncurseError("a log of more than 200 groups is collected without their cells; use fewer groups")
            continue
        own = score_map.maps.get(name, score_map.default) if isinstance(score_map, Grouped) else score_map
        rows = _predicted(own, part.cells, offset, factor)
        groups[name] = LabelSums.of(*rows)
        parts.append(rows)
    if not isinstance(score_map, Grouped):
        parts = [_predicted(score_map, cells, offset, factor)]
    f, y, w = (np.concatenate(column) for column in zip(*parts, strict=True))
    place = np.searchsorted(_EDGES, f, side="right")
    buckets = {_range_name(i): LabelSums.of(f[place == i], y[place == i], w[place == i]) for i in np.unique(place)}
    mean = float(np.average(cells.score, weights=cells.weight))
    sd = float(np.sqrt(np.average(np.square(cells.score - mean), weights=cells.weight)))
    return MonitorState(digest, {day: Day(total(list(buckets.values())), mean, sd, evidence.sources)}, buckets, groups)


def _predicted(score_map: ScoreMap, cells: Cells, offset: float, factor: float) -> tuple[Array, Array, Array]:
    """Return prediction, label sum and number of rows of each cell."""
    assert cells.label is not None
    # Cells hold logits corrected for negative sampling. Maps take uncorrected logits.
    return score_map.at_logits(cells.score - offset), cells.label * factor, cells.weight * factor


def _range_name(place: int) -> str:
    edges = [f"{100 * edge:g}%" for edge in _EDGES]
    if place == 0:
        return f"below {edges[0]}"
    return f"{edges[place - 1]} to {edges[place]}" if place < len(edges) else f"{edges[-1]} and above"


def range_place(name: str) -> int:
    """Return the place of a key of `MonitorState.buckets` among all ranges of predictions; −1 if it is none.

    >>> range_place("below 0.001%"), range_place("0.001% to 0.002%")
    (0, 1)
    """
    places = {_range_name(i): i for i in range(len(_EDGES) + 1)}
    return places.get(name, -1)
