"""Combine maps that follow each other into one map, and remove knots that a curve does not need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link
from .combined import Segmented
from .shapes import Affine, Curve, ScoreMap, Steps

_TOLERANCE = 1e-4  # relative error of a prediction
_FLAT = 1e-3  # slope below which the outside of a curve counts as constant
_GAP = 1e-9  # least distance of knots, relative to their size
_TIE = 1e-5  # largest slope of steps that only breaks ties
_MAX_POINTS = 1 << 14  # of a composition of two links
# Where a composition of two links is sampled: beyond a logit of 25, 1 − p has too few digits.
_SAMPLED = {"logistic": (-40.0, 25.0), "log": (-60.0, 60.0)}


def compose(*maps: ScoreMap, scale: str) -> ScoreMap:
    """Return one map that applies `maps` in order to scores on `scale`, whatever their own scales are.

    The result is exact if all maps have the same link, but for curves after curves: these, and continuous maps of
    different links, are curves with a relative error of 1e-4 of the prediction. Only the first may be a `Segmented`;
    the others are then applied to each of its maps.

    >>> compose(Affine(2.0, 1.0), Affine(0.5, 0.0), scale="logit")
    Affine(slope=1.0, intercept=0.5, link='logistic', scale='logit')
    """
    first, *others = maps
    if isinstance(first, Segmented):
        parts = {name: compose(part, *others, scale=scale) for name, part in first.maps.items()}
        return Segmented(compose(first.default, *others, scale=scale), parts)
    result: ScoreMap
    result, *rest = (replace(part, scale=scale) for part in maps)  # type: ignore[type-var]
    return reduce(_pair, rest, result)


def _pair(first: Any, second: Any) -> Any:
    """Apply `second` after `first`: two maps of the same scale."""
    same = first.link == second.link
    if isinstance(first, Affine) and first.slope == 0:
        value = second.transform(_convert(np.array([first.intercept]), first.link, second.link))
        return Affine(0.0, value.item(), second.link, first.scale)
    if isinstance(first, Affine) and isinstance(second, Affine) and same:
        intercept = second.slope * first.intercept + second.intercept
        return Affine(second.slope * first.slope, intercept, first.link, first.scale)
    if isinstance(first, Steps) and isinstance(second, Steps):
        raise UncurseError("cannot compose steps with steps; fit one of them on the predictions of the other")
    if isinstance(first, Steps):
        mapped = second.transform(_convert(np.array(first.values), first.link, second.link))
        values = np.asarray(_convert(mapped, second.link, first.link), np.float64)
        values = np.maximum.accumulate(values) if first.monotone else values  # rounding
        return replace(first, values=values.tolist(), slope=_tie_break(first.slope, second, first.link))
    if isinstance(second, Steps):
        return _before_steps(first, second)
    return _curve_of_one_link(first, second) if same else _curve_of_two_links(first, second)


def _convert(scores: Float, link: str, other: str) -> Float:
    return scores if link == other else get_link(other).inverse(get_link(link).phi(scores))


def _before_steps(first: Affine | Curve, second: Steps) -> Steps:
    edges, center = (
        _preimages(first, _convert(np.array(values), second.link, first.link), flat=0.0)
        for values in (second.edges, [second.center])
    )
    reached = np.isfinite(edges)
    low = int((edges == -np.inf).sum())
    values = np.array(second.values)[low : low + reached.sum() + 1]
    return Steps(
        edges[reached].tolist(),
        _convert(values, second.link, first.link).tolist(),
        _tie_break(second.slope, first, second.link),
        center.item() if np.isfinite(center).all() else 0.0,
        first.link,
        first.scale,
        second.monotone,
    )


def _tie_break(slope: float, other: ScoreMap, link: str) -> float:
    """Return the slope inside the steps after composition; only a tie-break may be approximate."""
    if isinstance(other, Affine) and other.link == link:
        return slope * other.slope
    if slope > _TIE:
        raise UncurseError(f"steps with slope={slope:g} cannot be composed with a {other.kind}; pass slope=0")
    return slope


def _preimages(score_map: Affine | Curve, values: Float, flat: float) -> Array:
    """Return the smallest score that reaches each value; ±inf if all or no scores do.

    The outside of a curve counts as constant if its slope is at most `flat`.
    """
    if isinstance(score_map, Affine):
        return np.asarray((values - score_map.intercept) / score_map.slope, np.float64)
    x, y = np.array(score_map.x), np.array(score_map.y)
    right = np.clip(np.searchsorted(y, values), 1, max(len(y) - 1, 1))
    found = np.empty(len(values))
    below, above = values <= y[0], values > y[-1]
    inner = ~(below | above)
    i = right[inner]
    found[inner] = x[i - 1] + (values[inner] - y[i - 1]) * (x[i] - x[i - 1]) / (y[i] - y[i - 1])
    left, last = score_map.left, score_map.right
    found[below] = x[0] + (values[below] - y[0]) / left if left > flat else -np.inf
    found[above] = x[-1] + (values[above] - y[-1]) / last if last > flat else np.inf
    return found


def _curve_of_one_link(first: Affine | Curve, second: Affine | Curve) -> Any:
    if isinstance(second, Affine):
        assert isinstance(first, Curve)
        y = second.slope * np.array(first.y) + second.intercept
        return replace(first, y=y.tolist(), left=second.slope * first.left, right=second.slope * first.right)
    x = _preimages(first, np.array(second.x), _FLAT)
    x = x[np.isfinite(x)]
    slopes = (first.slope, first.slope) if isinstance(first, Affine) else (first.left, first.right)
    if isinstance(first, Curve):
        x = np.union1d(first.x, x)
        x = x[np.append(True, np.diff(x) > _GAP * (1 + np.abs(x[1:])))]
    y = np.maximum.accumulate(np.asarray(second.transform(first.transform(x)), np.float64))
    left, right = slopes[0] * second.left, slopes[1] * second.right
    return thin(Curve(x.tolist(), y.tolist(), left, right, first.link, first.scale))


def _curve_of_two_links(first: Affine | Curve, second: Affine | Curve) -> Any:
    link = "log" if first.scale == "value" else "logistic"

    def composed(l: Array) -> Array:
        middle = _convert(first.transform(_convert(l, link, first.link)), first.link, second.link)
        return np.asarray(_convert(second.transform(middle), second.link, link), np.float64)

    with np.errstate(over="ignore"):
        x, y = _sample(composed, np.linspace(*_SAMPLED[link], 131), (first.link, second.link))
    y = np.maximum.accumulate(y)
    left, right = np.diff(y)[[0, -1]] / np.diff(x)[[0, -1]]
    return thin(Curve(x.tolist(), y.tolist(), left.item(), right.item(), link, first.scale))


def _sample(function: Callable[[Array], Array], x: Array, links: tuple[str, str]) -> tuple[Array, Array]:
    """Halve the intervals of `x` until straight lines between the points are near the function."""
    y = function(x)
    while True:
        middle = (x[:-1] + x[1:]) / 2
        found = function(middle)
        far = ~(np.abs(found - (y[:-1] + y[1:]) / 2) <= _TOLERANCE / 10)
        if not far.any():
            return x, y
        if len(x) > _MAX_POINTS:
            what = f"a map of the {links[0]} link and one of the {links[1]} link"
            raise UncurseError(f"{what} cannot be one curve: its predictions leave the range; fit both with one link")
        order = np.argsort(np.append(x, middle[far]), kind="stable")
        x, y = np.append(x, middle[far])[order], np.append(y, found[far])[order]


def thin(curve: Any) -> Any:
    """Return a map whose curves have fewer knots, and predictions that differ by a relative error of at most 1e-4.

    Every line is as long as the tolerance permits. None is flatter than the flattest part that it replaces, so that the
    order of scores does not change.

    >>> thin(Curve((0.0, 1.0, 2.0), (0.0, 1.00001, 2.0), 1.0, 1.0)).x
    (0.0, 2.0)
    """
    if not isinstance(curve, Curve):
        return curve
    x, y = np.array(curve.x), np.array(curve.y)
    # An error of a logit or of a logarithm is a relative error of the prediction.
    allowed = 0.99 * _TOLERANCE * (np.abs(y) if curve.link == "identity" else np.ones(len(y)))
    knots, values, start = [x[0]], [y[0]], 0
    while start < len(x) - 1:
        rest = slice(start + 1, None)
        width, rise = x[rest] - x[start], y[rest] - values[-1]
        low = np.maximum.accumulate((rise - allowed[rest]) / width)
        high = np.minimum.accumulate((rise + allowed[rest]) / width)
        reached = max(int(np.argmin(np.append(low <= high, False))), 1) - 1
        # Where the curve bends up, the next line starts best from below, and else from above.
        last = reached + 1 == len(width)
        bends_up = not last and low[reached + 1] > low[reached]
        slope = (low[reached] + high[reached]) / 2 if last else (low if bends_up else high)[reached]
        flattest = (np.diff(y[start : start + reached + 2]) / np.diff(x[start : start + reached + 2])).min()
        values.append(values[-1] + max(slope, flattest) * width[reached])
        start += reached + 1
        knots.append(x[start])
    if len(knots) == len(x):
        return curve
    return replace(curve, x=np.array(knots).tolist(), y=np.maximum.accumulate(values).tolist())
