"""`MonitorState`: what was seen of a map since it was fitted, as one file that can be merged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from .._types import Array
from ..documents import Document
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from ..evidence.decay import check_time
from ..evidence.evidence import cells_of
from ..maps import Grouped, ScoreMap
from ..maps.combined import predicted_cells
from .sequential import LabelSums, total

# Edges of the ranges of predictions in which calibration is reported.
_EDGES = tuple(digit * 10.0**power for power in range(-5, 0) for digit in (1, 2, 5))


@dataclass(frozen=True)
class Day:
    """What was seen on one day.

    Parameters
    ----------
    sums : LabelSums
        Predictions and labels.
    score_mean, score_sd : float
        Mean and standard deviation of the served logit.
    sources : tuple of str
        Files that were read.

    Examples
    --------
    >>> Day(LabelSums.of([0.1], [0]), -2.2, 0.0).score_mean
    -2.2
    """

    sums: LabelSums
    score_mean: float
    score_sd: float
    sources: tuple[str, ...] = ()

    def __add__(self, other: Day) -> Day:
        rows = np.array([self.sums.rows, other.sums.rows])
        share = rows / max(rows.sum(), 1e-300)
        means = np.array([self.score_mean, other.score_mean])
        mean = float(share @ means)
        square = share @ (np.square([self.score_sd, other.score_sd]) + np.square(means - mean))
        return Day(self.sums + other.sums, mean, float(np.sqrt(square)), self.sources + other.sources)


@dataclass(frozen=True)
class MonitorState(Document):
    """What was seen of a map since it was fitted. States of the same map can be merged.

    Parameters
    ----------
    map_id : str
        Digest of the map, see `map_digest`.
    days : mapping of str to Day
        Days by their ISO date or time.
    buckets, groups : mapping of str to LabelSums
        The same rows by range of the prediction, and by group.
    settled_before : str, optional
        Time before which all rows are counted.

    Examples
    --------
    >>> from uncurse import Affine
    >>> state = MonitorState(map_digest(Affine(0.8, -0.4)))
    >>> state.merge(state).days
    {}
    """

    _kind: ClassVar[str] = "monitor"
    _wanted: ClassVar[str] = "the state of a monitor"
    map_id: str
    days: Mapping[str, Day] = field(default_factory=dict)
    buckets: Mapping[str, LabelSums] = field(default_factory=dict)
    groups: Mapping[str, LabelSums] = field(default_factory=dict)
    settled_before: str | None = None

    @property
    def ordered(self) -> list[tuple[str, Day]]:
        """Days in order of time."""
        return sorted(self.days.items(), key=lambda item: check_time(item[0], "the state"))

    def series(self) -> tuple[Array, Array]:
        """Return sum of labels and cumulants of each day, as `log_e_values` takes them.

        Returns
        -------
        tuple of arrays of shape (T,) and (T, 25)
        """
        days = [day for _, day in self.ordered]
        return np.array([day.sums.observed for day in days]), np.array([day.sums.cumulants for day in days])

    def merge(self, other: MonitorState) -> MonitorState:
        """Return the state of the rows of both; neither changes.

        Parameters
        ----------
        other : MonitorState
            A state of the same map.

        Returns
        -------
        MonitorState
        """
        if not isinstance(other, MonitorState):
            raise UncurseError(f"cannot merge a state with a {type(other).__name__}; pass a MonitorState")
        self.check_map(other.map_id)
        latest = max(
            (s for s in (self.settled_before, other.settled_before) if s),
            key=lambda s: check_time(s, "settled_before"),
            default=None,
        )
        return replace(
            self,
            days=_sum_by_name(self.days, other.days),
            buckets=_sum_by_name(self.buckets, other.buckets),
            groups=_sum_by_name(self.groups, other.groups),
            settled_before=latest,
        )

    def check_map(self, map_id: str) -> None:
        """Raise UncurseError unless the state belongs to a map.

        Parameters
        ----------
        map_id : str
            Digest of the map.
        """
        if map_id != self.map_id:
            raise UncurseError(
                f"this state belongs to another map ({self.map_id}, not {map_id}); start a new state after a refit"
            )

    def _to_dict(self) -> dict[str, Any]:
        days = {
            name: {**vars(day), "sums": day.sums.to_dict(), "sources": list(day.sources)} for name, day in self.ordered
        }
        content: dict[str, Any] = {"map_id": self.map_id, "days": days, "settled_before": self.settled_before}
        for part in ("buckets", "groups"):
            content[part] = {name: sums.to_dict() for name, sums in getattr(self, part).items()}
        return content

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> MonitorState:
        days = {}
        for name, day in content["days"].items():
            check_time(name, "a day of the state")
            mean, sd = float(day["score_mean"]), float(day["score_sd"])
            if not (np.isfinite([mean, sd]).all() and sd >= 0):
                raise ValueError("its scores are not finite")
            days[name] = Day(LabelSums.from_dict(day["sums"]), mean, sd, tuple(map(str, day["sources"])))
        parts = {
            part: {str(name): LabelSums.from_dict(sums) for name, sums in content[part].items()}
            for part in ("buckets", "groups")
        }
        settled = content["settled_before"]
        if settled is not None:
            check_time(settled, "settled_before of the state")
        return cls(str(content["map_id"]), days, **parts, settled_before=settled)


def map_digest(score_map: ScoreMap) -> str:
    """Return a digest of a map: equal for equal maps."""
    return hashlib.sha256(json.dumps(score_map.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def _sum_by_name(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(mine)
    for name, value in theirs.items():
        both[name] = both[name] + value if name in both else value
    return both


# ---------------------------------------------------------------------------- the rows of a day


def count_rows(digest: str, score_map: ScoreMap, evidence: Evidence, day: str) -> MonitorState:
    """Return the state of the labelled rows of one day, which is an ISO date or time."""
    cells = cells_of(evidence, "evidence")
    factor = float(cells.weight.sum() / cells.weight_squares.sum())  # weights to effective rows

    def rows_of(p: Array, cells: Cells) -> tuple[Array, Array, Array]:
        """Return prediction, label sum and number of rows of each cell."""
        assert cells.label is not None
        return p, cells.label * factor, cells.weight * factor

    parts = {name: rows_of(*part) for name, part in predicted_cells(score_map, evidence).items()}
    groups = parts
    if not isinstance(score_map, Grouped):
        named = {name: part for name, part in evidence.groups.items() if part.cells is not None}
        groups = {name: rows_of(*predicted_cells(score_map, part)[""]) for name, part in named.items()}
    f, y, w = (np.concatenate(column) for column in zip(*parts.values(), strict=True))
    place = np.searchsorted(_EDGES, f, side="right")
    buckets = {_range_name(i): LabelSums.of(f[place == i], y[place == i], w[place == i]) for i in np.unique(place)}
    mean = float(np.average(cells.score, weights=cells.weight))
    sd = float(np.sqrt(np.average(np.square(cells.score - mean), weights=cells.weight)))
    seen = Day(total(list(buckets.values())), mean, sd, evidence.sources)
    return MonitorState(digest, {day: seen}, buckets, {name: LabelSums.of(*rows) for name, rows in groups.items()})


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
