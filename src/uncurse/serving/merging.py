"""Lines and pieces that follow each other, made one; every piece found by the number that goes in at the start.

The edges of a piece there are the smallest floats that pass the maps' own edges, as the maps themselves compute: found
by halving, between floats that are neighbours at last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..links import get_link


@dataclass(frozen=True)
class Line:
    """`slope` · l + `intercept`."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Pieces:
    """`y` + `slope` · (l − `x`) of piece i, where i of the `edges` are at most the number that went in at the start.

    All pieces of one sequence have the same edges.
    """

    edges: tuple[float, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float, ...]


@dataclass(frozen=True)
class Phi:
    """From a score of the link to the prediction, which a logistic or probit link keeps inside (0, 1)."""

    link: str


@dataclass(frozen=True)
class Inverse:
    """From a prediction to the score of the link; 0 and 1 to the farthest one that is finite."""

    link: str


@dataclass(frozen=True)
class Inside:
    """Clip to [`low`, `high`]."""

    low: float
    high: float


Operation = Line | Pieces | Phi | Inverse | Inside

_FAR = 1e200  # edges beyond are left out: near the end of all floats lines are infinite


def apply(operation: Operation, l: Array, found_by: Array) -> Array:
    """One operation on numbers, its piece found by others; in the map's own arithmetic."""
    result: Array
    if isinstance(operation, Line):
        return operation.slope * l + operation.intercept if operation.slope else np.full_like(l, operation.intercept)
    if isinstance(operation, Pieces):
        i = np.searchsorted(operation.edges, found_by, side="right")
        x, y, slope = (np.array(column)[i] for column in (operation.x, operation.y, operation.slope))
        with np.errstate(over="ignore", invalid="ignore"):
            result = np.where(slope == 0.0, y, slope * (l - x) + y)
        return result
    if isinstance(operation, Phi):
        return get_link(operation.link).phi(l).astype(np.float64, copy=False)
    if isinstance(operation, Inverse):
        return get_link(operation.link).inverse(l).astype(np.float64, copy=False)
    result = np.clip(l, operation.low, operation.high)
    return result


# ---------------------------------------------------------------------------- pieces, all of the first number


def merged(steps: Sequence[Operation], low: float, high: float) -> tuple[Operation, ...]:
    """Lines and pieces that follow each other made one, and every piece found by what goes in at the start.

    That lies between `low` and `high`.
    """
    low, high = max(low, -_FAR), min(high, _FAR)
    starts = _starts(steps, low, high)
    ends = np.append(np.nextafter(starts[1:], -np.inf), high)
    # A number inside each piece; in the first, whose start is far off, one that is not.
    inner = np.array([min(ends[0], 0.5 if low == 0.0 else 0.0), *starts[1:]])
    done: list[Operation] = []
    at = 0
    while at < len(steps):
        stop = at
        while stop < len(steps) and isinstance(steps[stop], Line | Pieces):
            stop += 1
        if stop == at:
            done.append(steps[at])
            at += 1
        else:
            one = _one(steps[at:stop], _local(steps[:at], inner), starts)
            # Values that no longer depend on what came before need it no more.
            done = [one] if isinstance(one, Pieces) and not any(one.slope) else [*done, one]
            at = stop
    return _joined(done)


def _local(steps: Iterable[Operation], l: Array) -> Array:
    """Through the maps' own operations, each piece found by what goes into it."""
    for step in steps:
        l = apply(step, l, l)
    return l


def _starts(steps: Sequence[Operation], low: float, high: float) -> Array:
    """The first float of every piece: `low`, and wherever some edge is passed on the way."""
    starts = np.array([low])
    with np.errstate(over="ignore"):
        for k, step in enumerate(steps):
            if not isinstance(step, Pieces) or not step.edges:
                continue
            edges = np.array(step.edges)
            ends = np.append(np.nextafter(starts[1:], -np.inf), high)
            # Within a piece so far everything rises, so that the edges passed in it are those between its ends.
            passed = [np.searchsorted(edges, _local(steps[:k], l), side="right") for l in (starts, ends)]
            count = np.maximum(passed[1] - passed[0], 0)
            piece = np.repeat(np.arange(len(starts)), count)
            edge = np.concatenate([edges[a : a + n] for a, n in zip(passed[0], count, strict=True)])
            found = _first_to_pass(steps[:k], edge, starts[piece], ends[piece])
            starts = np.union1d(starts, found)
    return starts


def _first_to_pass(steps: Sequence[Operation], edges: Array, below: Array, above: Array) -> Array:
    """The smallest float that the steps take to each edge or above; `below` does not get there, `above` does."""
    low, high = _places(below), _places(above)
    while (low + 1 < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # half way between, without overflow
        passed = _local(steps, _floats(middle)) >= edges
        low, high = np.where(passed, low, middle), np.where(passed, middle, high)
    return _floats(high)


def _places(values: Array) -> NDArray[np.int64]:
    """The place of each float in the order of all floats; both zeros are at 0."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, -(bits & np.iinfo(np.int64).max), bits)


def _floats(places: NDArray[np.int64]) -> Array:
    return np.where(places < 0, -places | np.iinfo(np.int64).min, places).view(np.float64)


def _one(steps: Sequence[Operation], inner: Array, starts: Array) -> Operation:
    """One line or one table of pieces for steps of one link; `inner` is what a number inside each piece has become."""
    if all(isinstance(step, Line) for step in steps):
        slope, intercept = 1.0, 0.0
        for step in steps:
            assert isinstance(step, Line)
            slope, intercept = step.slope * slope, step.slope * intercept + step.intercept
        return Line(slope, intercept)
    slopes, x, l = np.ones(len(inner)), inner, inner
    for step in steps:
        if isinstance(step, Line):
            slopes = step.slope * slopes
        elif isinstance(step, Pieces):
            i = np.searchsorted(step.edges, l, side="right")
            slopes = np.array(step.slope)[i] * slopes
            if len(steps) == 1:  # its own points, which keep its own arithmetic
                x, l = np.array(step.x)[i], np.array(step.y)[i]
                break
        l = apply(step, l, l)
    # A flat piece is one value, wherever its point was.
    x = np.where(slopes == 0.0, 0.0, x)
    return Pieces(tuple(starts[1:].tolist()), tuple(x.tolist()), tuple(l.tolist()), tuple(slopes.tolist()))


def _joined(steps: Sequence[Operation]) -> tuple[Operation, ...]:
    """Neighbours that are the same piece in every table become one, and a table of one piece a line."""
    tables = [one for one in steps if isinstance(one, Pieces)]
    if not tables:
        return tuple(steps)
    rows = list(zip(*(zip(one.x, one.y, one.slope, strict=True) for one in tables), strict=True))
    kept = [0, *(i for i in range(1, len(rows)) if rows[i] != rows[i - 1])]
    edges = tuple(tables[0].edges[i - 1] for i in kept[1:])
    result: list[Operation] = []
    for one in steps:
        if isinstance(one, Pieces):
            x, y, slope = (tuple(column[i] for i in kept) for column in (one.x, one.y, one.slope))
            one = replace(one, edges=edges, x=x, y=y, slope=slope)
            if not edges:
                one = Line(slope[0], y[0] - slope[0] * x[0])
        result.append(one)
    return tuple(result)


__all__ = ["Inside", "Inverse", "Line", "Operation", "Phi", "Pieces", "apply", "merged"]
