"""`MonitorState`: what was seen of a map since it was fitted, as one file that can be merged."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from ..documents import Document, fingerprint
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec
from ..evidence.evidence import served_of
from ..links import logistic
from ..maps import ScoreMap
from ..maps.combined import predicted_cells
from ..validation import check_time
from .sequential import LabelSums, total

# Edges of the ranges of predictions in which calibration is reported.
_EDGES = tuple(digit * 10.0**power for power in range(-5, 0) for digit in (1, 2, 5))
_PERCENT = [f"{100 * edge:g}%" for edge in _EDGES]
_RANGES = [
    f"below {_PERCENT[0]}",
    *(f"{low} to {high}" for low, high in pairwise(_PERCENT)),
    f"{_PERCENT[-1]} and above",
]
#: Fields of a `LogSpec` that all days of a state share: its labels and its selection.
OF_ROWS = ("label", "trials", "weight", "segment", "top_k")
#: Order of the keys of `MonitorState.buckets`.
PLACE_OF_RANGE = {name: i for i, name in enumerate(_RANGES)}


@dataclass(frozen=True)
class Day:
    """What was seen on one day."""

    sums: LabelSums
    score_mean: float  # of the served logit
    score_sd: float
    sources: Mapping[str, str] = field(default_factory=dict)  # files that were read, with a digest of their content

    def __add__(self, other: Day) -> Day:
        rows = np.array([self.sums.rows, other.sums.rows])
        share = rows / max(rows.sum(), 1e-300)
        means = np.array([self.score_mean, other.score_mean])
        mean = float(share @ means)
        square = share @ (np.square([self.score_sd, other.score_sd]) + np.square(means - mean))
        return Day(self.sums + other.sums, mean, float(np.sqrt(square)), {**self.sources, **other.sources})


@dataclass(frozen=True)
class MonitorState(Document):
    """What was seen of a map since it was fitted. States of the same map can be merged.

    Parameters
    ----------
    map_id : str
        Digest of the map, see `map_digest`.
    days : mapping of str to Day
        Days by their ISO date or time.
    buckets, segments : mapping of str to LabelSums
        The same rows by range of the prediction, and by segment.
    settled_before : str, optional
        Time before which all rows are counted.
    tolerance : float, optional
        Errors of the odds up to this share are accepted; all days have the same tolerance.
    spec : LogSpec, optional
        Columns of the log; all days have the same labels and the same selection.

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
    segments: Mapping[str, LabelSums] = field(default_factory=dict)
    settled_before: str | None = None
    tolerance: float | None = None
    spec: LogSpec | None = None

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Self:
        state = super()._from_dict(content)
        for one in (*(day.sums for day in state.days.values()), *state.buckets.values(), *state.segments.values()):
            values = np.array([one.rows, one.predicted, one.observed, one.served, *one.cumulants], np.float64)
            if len(values) != len(total([]).cumulants) + 4 or not (np.abs(values) <= 2.001 * one.rows).all():
                raise UncurseError("the state has sums that no rows have; is it damaged? Start a new one")
        return state

    @property
    def ordered(self) -> list[tuple[str, Day]]:
        """Days in order of time."""
        return sorted(self.days.items(), key=lambda item: check_time(item[0], "the state"))

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
            raise UncurseError(f"state is of type {type(other).__name__}; pass a MonitorState")
        if other.map_id != self.map_id:
            raise UncurseError(
                f"the state belongs to another map ({other.map_id}, not {self.map_id}); start a new one for the new map"
            )
        both = {name: (getattr(self, name), getattr(other, name)) for name in ("tolerance", "spec")}
        for name, (mine, theirs) in both.items():
            if mine is not None and theirs is not None:
                check_same(name, mine, theirs)
        times = [time for time in (self.settled_before, other.settled_before) if time]
        latest = max(times, key=lambda time: check_time(time, "settled_before"), default=None)
        return replace(
            self,
            days=_sum_by_name(other.days, self.days),
            buckets=_sum_by_name(other.buckets, self.buckets),
            segments=_sum_by_name(other.segments, self.segments),
            settled_before=latest,
            **{name: theirs if mine is None else mine for name, (mine, theirs) in both.items()},
        )


def check_same(name: str, given: Any, kept: Any) -> None:
    """Check that a tolerance, or the labels and the selection of a `LogSpec`, are those of a state."""
    pairs = {name: (given, kept)}
    if isinstance(given, LogSpec):
        pairs = {part: (getattr(given, part), getattr(kept, part)) for part in OF_ROWS}
    for part, (mine, theirs) in pairs.items():
        if mine != theirs:
            one, other = ("none" if value is None else value for value in (mine, theirs))
            raise UncurseError(f"{part} is {one}, and {other} in the state; use the same, or start a new state")


def files_of(sources: Iterable[str]) -> dict[str, str]:
    """Return the resolved path of each file, folder or glob with a digest of its content; empty if it is no file."""
    found: dict[str, str] = {}
    for source in sources:
        inside = os.path.join(source, "**", "*") if os.path.isdir(source) else source
        names = [source] if os.path.isfile(source) else glob.glob(inside, recursive=True)
        found |= {os.path.realpath(name): fingerprint(name) for name in names if os.path.isfile(name)}
        if not names:
            found[os.path.realpath(source)] = ""
    return found


def map_digest(score_map: ScoreMap) -> str:
    """Return a digest of a map: equal for equal maps."""
    return hashlib.sha256(json.dumps(score_map.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def _sum_by_name(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {**mine, **{name: mine[name] + value if name in mine else value for name, value in theirs.items()}}


def count_rows(
    score_map: ScoreMap, evidence: Evidence, day: str, sources: Mapping[str, str], tolerance: float
) -> MonitorState:
    """Return the state of the labeled rows of one day, which is an ISO date or time, and of its files."""
    cells = served_of(evidence, "evidence")
    factor = cells.effective_rows / cells.weight.sum()

    # Prediction, label sum, number of rows and served prediction of each cell, by segment.
    parts = {
        name: (p, own.label * factor, own.weight * factor, logistic(own.score))
        for name, (p, own) in predicted_cells(score_map, evidence).items()
        if own.label is not None
    }
    f, y, w, s = (np.concatenate(column) for column in zip(*parts.values(), strict=True))
    place = np.searchsorted(_EDGES, f, side="right")
    ranges = [(_RANGES[i], place == i) for i in np.unique(place)]
    buckets = {name: LabelSums.of(f[rows], y[rows], w[rows], s[rows]) for name, rows in ranges}
    mean = float(np.average(cells.score, weights=cells.weight))
    sd = float(np.sqrt(np.average(np.square(cells.score - mean), weights=cells.weight)))
    seen = Day(total(list(buckets.values())), mean, sd, sources)
    by_segment = {name: LabelSums.of(*parts[name]) for name in evidence.segments}
    state = MonitorState(map_digest(score_map), {day: seen}, buckets, by_segment)
    return replace(state, tolerance=tolerance, spec=evidence.spec)
