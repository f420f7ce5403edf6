"""Compile a map to a short program of operations: the form from which exports and lazy engines are generated.

Consecutive maps of one link become one `Line` or one `Pieces`. Every piece is found by the input of the program: its
edges there are the smallest floats that pass the edges of the map, as the map itself computes. So a program has a
single table lookup, and steps exactly where the map steps, however an engine rounds exp and log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..links import get_link
from .base import ScoreMap
from .combined import Chain, Grouped
from .shapes import Affine, Curve, Steps

#: Bounds of predictions: the smallest normal float, the largest, and the largest below 1.
TINY = float(np.finfo(np.float64).tiny)
MOST = float(np.finfo(np.float64).max)
BELOW_ONE = float(np.nextafter(1.0, 0.0))
#: How to serve a map by group.
SERVE_GROUPS = (
    "serve it as Python or SQL, which take groups (`uncurse export map.json -o map.py`, `uncurse sql map.json`), or "
    "save each part: load('map.json').maps['NAME'].save('NAME.json'), and .default for all other groups"
)
_FAR = 1e200  # edges beyond are left out: lines overflow there


@dataclass(frozen=True)
class Line:
    """slope · l + intercept."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Pieces:
    """y[i] + slope[i] · (l − x[i]), where i is the number of `edges` that are at most the input of the program.

    All `Pieces` of one program have the same edges.
    """

    edges: tuple[float, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float, ...]


@dataclass(frozen=True)
class Phi:
    """φ(l): from a score of the link to the prediction, inside (0, 1) for the logistic and probit links."""

    link: str


@dataclass(frozen=True)
class Inverse:
    """φ⁻¹(l): from a prediction to the score of the link; 0 and 1 give the largest finite scores."""

    link: str


@dataclass(frozen=True)
class Clip:
    """Clip l to [`low`, `high`]."""

    low: float
    high: float


Operation = Line | Pieces | Phi | Inverse | Clip


def apply(operation: Operation, l: Array, found_by: Array) -> Array:
    """Apply one operation to the numbers `l`, in the arithmetic of the maps themselves.

    `found_by` is the input of the program, by which the piece is found.
    """
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


def compile_map(score_map: ScoreMap) -> tuple[Operation, ...]:
    """Compile a map without groups, from a score on its scale to the prediction.

    >>> compile_map(Affine(0.5, -1.0, scale="probability"))[:3]
    (Inverse(link='logistic'), Line(slope=0.5, intercept=-1.0), Phi(link='logistic'))
    """
    steps, link = _operations(score_map)
    first: list[Operation] = []
    if score_map.scale == "logit":
        first = _convert("logistic", score_map.link)
    elif score_map.link != "identity":
        first = [Inverse(score_map.link)]
    last: list[Operation] = [] if link == "identity" else [Phi(link)]
    bounds = get_link(link) if score_map.scale == "value" else get_link("logistic")
    last.append(Clip(TINY if bounds.lower == 0 else -MOST, BELOW_ONE if bounds.upper == 1 else MOST))
    return _merge([*first, *steps, *last], *valid_range(score_map))


def compile_transform(score_map: ScoreMap) -> tuple[Operation, ...]:
    """Compile `ScoreMap.transform` of a map without groups, from scores of the link to scores of the link."""
    steps, link = _operations(score_map)
    return _merge([*steps, *_convert(link, score_map.link)], -MOST, MOST)


def valid_range(score_map: ScoreMap) -> tuple[float, float]:
    """Return the lowest and the highest score that a map takes; other numbers are not scores."""
    return (0.0, 1.0) if score_map.scale == "probability" else (-MOST, MOST)


# ---------------------------------------------------------------------------- operations of the maps


def _operations(score_map: ScoreMap) -> tuple[list[Operation], str]:
    """Return the operations of the maps, each piece found by its own input, and the link of the result."""
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has a map for each group, and this form has one; {SERVE_GROUPS}")
    if not isinstance(score_map, Chain):
        return [_operation(score_map)], score_map.link
    steps, link = [], score_map.link
    for step in score_map.maps:
        steps += [*_convert(link, step.link), _operation(step)]
        link = step.link
    return steps, link


def _convert(old: str, new: str) -> list[Operation]:
    """Convert scores of one link to scores of another."""
    if old == new:
        return []
    there: list[Operation] = [] if old == "identity" else [Phi(old)]
    if new == "identity":
        return [*there, Clip(-MOST, MOST)] if old == "log" else there  # exp may be infinite, and 0 · ∞ is NaN
    return [*there, Inverse(new)]


def _operation(score_map: ScoreMap) -> Operation:
    if isinstance(score_map, Affine):
        return Line(score_map.slope, score_map.intercept)
    if isinstance(score_map, Curve):  # before the first knot, between knots, after the last
        x, y = np.array(score_map.x), np.array(score_map.y)
        slopes = [score_map.left, *(np.diff(y) / np.diff(x)).tolist(), score_map.right]
        return Pieces(tuple(score_map.x), (x[0].item(), *x.tolist()), (y[0].item(), *y.tolist()), tuple(slopes))
    if isinstance(score_map, Steps):
        count = len(score_map.values)
        return Pieces(
            tuple(score_map.edges), (score_map.center,) * count, tuple(score_map.values), (score_map.slope,) * count
        )
    raise UncurseError(
        f"a {type(score_map).__name__} map cannot be compiled; use an Affine, Curve, Steps or Chain map, or apply it "
        "with NumPy"
    )


# ---------------------------------------------------------------------------- one table, found by the input


def _merge(steps: Sequence[Operation], low: float, high: float) -> tuple[Operation, ...]:
    """Combine consecutive lines and pieces, and find every piece by the input, which lies in [`low`, `high`]."""
    low, high = max(low, -_FAR), min(high, _FAR)
    starts = _starts(steps, low, high)
    ends = np.append(np.nextafter(starts[1:], -np.inf), high)
    # A number inside each piece; in the first, whose start is extreme, a moderate one.
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
            one = _combine(steps[at:stop], _run_locally(steps[:at], inner), starts)
            # Constant values do not depend on the operations before them.
            done = [one] if isinstance(one, Pieces) and not any(one.slope) else [*done, one]
            at = stop
    return _join_equal(done)


def _run_locally(steps: Iterable[Operation], l: Array) -> Array:
    """Run operations whose pieces are found by their own input rather than by the input of the program."""
    for step in steps:
        l = apply(step, l, l)
    return l


def _starts(steps: Sequence[Operation], low: float, high: float) -> Array:
    """Return the first float of every piece: `low`, and each input at which a later edge is passed."""
    starts = np.array([low])
    with np.errstate(over="ignore"):
        for k, step in enumerate(steps):
            if not isinstance(step, Pieces) or not step.edges:
                continue
            edges = np.array(step.edges)
            ends = np.append(np.nextafter(starts[1:], -np.inf), high)
            # Everything rises within a piece, so the edges passed in it are those between its ends.
            passed = [np.searchsorted(edges, _run_locally(steps[:k], l), side="right") for l in (starts, ends)]
            count = np.maximum(passed[1] - passed[0], 0)
            piece = np.repeat(np.arange(len(starts)), count)
            edge = np.concatenate([edges[a : a + n] for a, n in zip(passed[0], count, strict=True)])
            found = _first_to_pass(steps[:k], edge, starts[piece], ends[piece])
            starts = np.union1d(starts, found)
    return starts


def _first_to_pass(steps: Sequence[Operation], edges: Array, below: Array, above: Array) -> Array:
    """Bisect for the smallest float that the steps take to each edge or above; `below` is too low, `above` is not."""
    low, high = _ranks(below), _ranks(above)
    while (low + 1 < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # the mean, without overflow
        passed = _run_locally(steps, _floats(middle)) >= edges
        low, high = np.where(passed, low, middle), np.where(passed, middle, high)
    return _floats(high)


def _ranks(values: Array) -> NDArray[np.int64]:
    """Return the rank of each float in the order of all floats; both zeros have rank 0."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, -(bits & np.iinfo(np.int64).max), bits)


def _floats(places: NDArray[np.int64]) -> Array:
    return np.where(places < 0, -places | np.iinfo(np.int64).min, places).view(np.float64)


def _combine(steps: Sequence[Operation], inner: Array, starts: Array) -> Operation:
    """Combine steps of one link to a line or a table of pieces; `inner` is the value of one number in each piece."""
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
            if len(steps) == 1:  # keep the map's own points, and with them its arithmetic
                x, l = np.array(step.x)[i], np.array(step.y)[i]
                break
        l = apply(step, l, l)
    # The point of a flat piece does not matter.
    x = np.where(slopes == 0.0, 0.0, x)
    return Pieces(tuple(starts[1:].tolist()), tuple(x.tolist()), tuple(l.tolist()), tuple(slopes.tolist()))


def _join_equal(steps: Sequence[Operation]) -> tuple[Operation, ...]:
    """Join neighbouring pieces that are equal in every table; a table of one piece becomes a line."""
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
