"""A map as a few operations, one after the other: the one form that every export writes down.

Maps of one link that follow each other become one `Line` or one `Pieces`. Every piece is found by the number that goes
in at the start, whatever stands in between: its edges there are the smallest floats that pass the map's own edges, as
the map itself computes. So an export looks up once, and steps where the map steps, however its exp and log round.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..links import get_link
from ..maps import Affine, Chain, Curve, Grouped, ScoreMap, Steps
from .merging import Inside, Inverse, Line, Operation, Phi, Pieces, apply, merged

#: Where predictions are clipped: the smallest normal float, the largest, and the largest below 1.
TINY = float(np.finfo(np.float64).tiny)
MOST = float(np.finfo(np.float64).max)
BELOW_ONE = float(np.nextafter(1.0, 0.0))


#: Links that exports know; a single export may still refuse one, such as probit in SQL.
_LINKS = ("logistic", "identity", "log", "probit")


def operations(score_map: ScoreMap) -> tuple[Operation, ...]:
    """From a served score, on the map's scale, to the prediction.

    >>> operations(Affine(0.5, -1.0, scale="probability"))[:3]
    (Inverse(link='logistic'), Line(slope=0.5, intercept=-1.0), Phi(link='logistic'))
    """
    steps, link = _run(score_map)
    first: list[Operation] = []
    if score_map.scale == "logit":
        first = _convert("logistic", score_map.link)
    elif score_map.link != "identity":
        first = [Inverse(score_map.link)]
    last: list[Operation] = [] if link == "identity" else [Phi(link)]
    bounds = get_link(link) if score_map.scale == "value" else get_link("logistic")
    last.append(Inside(TINY if bounds.lower == 0 else -MOST, BELOW_ONE if bounds.upper == 1 else MOST))
    return merged([*first, *steps, *last], *valid(score_map))


def between(score_map: ScoreMap) -> tuple[Operation, ...]:
    """From a score of the map's link to a score of that link, as the map's `transform`.

    >>> between(Chain((Affine(2.0, 0.0), Affine(0.5, 1.0))))
    (Line(slope=1.0, intercept=1.0),)
    """
    steps, link = _run(score_map)
    return merged([*steps, *_convert(link, score_map.link)], -MOST, MOST)


def valid(score_map: ScoreMap) -> tuple[float, float]:
    """The lowest and the highest score that the map takes."""
    return (0.0, 1.0) if score_map.scale == "probability" else (-MOST, MOST)


def evaluate(steps: Iterable[Operation], scores: Array) -> Array:
    """What the operations make of an array of scores.

    >>> evaluate(operations(Affine(0.5, -1.0)), np.array([2.0]))
    array([0.5])
    """
    l = scores
    with np.errstate(over="ignore"):
        for step in steps:
            l = apply(step, l, scores)
    return l


# ---------------------------------------------------------------------------- one map after the other


def _run(score_map: ScoreMap) -> tuple[list[Operation], str]:
    """The maps' own operations, each piece found by what goes into it, and the link that they end in."""
    if isinstance(score_map, Grouped):
        raise UncurseError("this map has groups; export the map of each group, and the default map, separately")
    if not isinstance(score_map, Chain):
        return [_own(score_map)], score_map.link
    steps, link = [], score_map.link
    for step in score_map.maps:
        steps += [*_convert(link, step.link), _own(step)]
        link = step.link
    return steps, link


def _convert(old: str, new: str) -> list[Operation]:
    """From the scores of one link to those of another."""
    if old == new:
        return []
    there: list[Operation] = [] if old == "identity" else [Phi(old)]
    if new == "identity":
        return [*there, Inside(-MOST, MOST)] if old == "log" else there  # exp may be infinite, and 0 · ∞ is no number
    return [*there, Inverse(new)]


def _own(score_map: ScoreMap) -> Operation:
    if score_map.link not in _LINKS:
        raise UncurseError(f"the {score_map.link} link has no formula for exports; known are {', '.join(_LINKS)}")
    if isinstance(score_map, Affine):
        return Line(score_map.slope, score_map.intercept)
    if isinstance(score_map, Curve):  # left of the first knot, between knots, right of the last
        x, y = np.array(score_map.x), np.array(score_map.y)
        slopes = [score_map.left, *(np.diff(y) / np.diff(x)).tolist(), score_map.right]
        return Pieces(tuple(score_map.x), (x[0].item(), *x.tolist()), (y[0].item(), *y.tolist()), tuple(slopes))
    if isinstance(score_map, Steps):
        count = len(score_map.values)
        return Pieces(
            tuple(score_map.edges), (score_map.center,) * count, tuple(score_map.values), (score_map.slope,) * count
        )
    raise UncurseError(f"a {type(score_map).__name__} map has no formula; export an Affine, Curve, Steps or Chain map")


__all__ = [
    "BELOW_ONE",
    "MOST",
    "TINY",
    "Inside",
    "Inverse",
    "Line",
    "Operation",
    "Phi",
    "Pieces",
    "between",
    "evaluate",
    "operations",
    "valid",
]
