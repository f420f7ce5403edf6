"""Apply a line or a curve after a map, without a new part wherever both can be merged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from .base import ScoreMap
from .combined import Chain, Grouped, compose
from .shapes import Affine, Curve

_MAX_KNOTS = 512  # of a curve that results from curves
_TOLERANCE = 1e-4  # of a curve with fewer knots, in log odds: 0.01% of a small prediction
_FLAT = 1e-3  # slope below which the outside of a curve counts as constant
_GAP = 1e-9  # least distance of knots, relative to their size


def append_map(score_map: ScoreMap, update: Affine | Curve) -> ScoreMap:
    """Return the map that applies `update` after `score_map`, in every group.

    A line after a line is a line, and what follows a curve of the same link becomes part of that curve. A map that is
    updated every day therefore does not grow.
    """
    if isinstance(score_map, Grouped):
        maps = {name: append_map(part, update) for name, part in score_map.maps.items()}
        return Grouped(append_map(score_map.default, update), maps)
    *first, last = score_map.maps if isinstance(score_map, Chain) else (score_map,)
    merged = None
    if isinstance(last, Affine | Curve) and last.link == update.link:
        try:
            merged = _merged(last, update)
        except UncurseError:  # knots that coincide after rounding, or numbers that overflow
            merged = None
    return compose(*first, *((last, update) if merged is None else (merged,)), scale=score_map.scale)


def _merged(first: Affine | Curve, second: Affine | Curve) -> Curve | None:
    """Return one curve for both; None for two lines, which `compose` merges, and where there is none."""
    if isinstance(second, Affine):
        if isinstance(first, Affine):
            return None
        y = second.slope * np.array(first.y) + second.intercept
        slopes = (second.slope * first.left, second.slope * first.right)
        return Curve(first.x, y.tolist(), *slopes, first.link, first.scale)
    knots = np.array(second.x)
    if isinstance(first, Affine):
        if first.slope <= 0:
            return None
        x, left, right = (knots - first.intercept) / first.slope, first.slope, first.slope
    else:
        x, left, right = np.union1d(first.x, _preimages(first, knots)), first.left, first.right
        x = x[np.append(True, np.diff(x) > _GAP * (1 + np.abs(x[1:])))]
    y = np.maximum.accumulate(np.asarray(second.transform(first.transform(x)), np.float64))
    if len(x) > _MAX_KNOTS:
        kept = _important(x, y)
        x, y = x[kept], y[kept]
    return Curve(x.tolist(), y.tolist(), left * second.left, right * second.right, first.link, first.scale)


def _preimages(curve: Curve, values: Array) -> Array:
    """Return where a curve has these values; without those that it does not reach, or only far outside its knots."""
    x, y = np.array(curve.x), np.array(curve.y)
    found = [np.interp(values[(values > y[0]) & (values < y[-1])], y, x)]
    if curve.left > _FLAT:
        found.append(x[0] + (values[values <= y[0]] - y[0]) / curve.left)
    if curve.right > _FLAT:
        found.append(x[-1] + (values[values >= y[-1]] - y[-1]) / curve.right)
    return np.concatenate(found)


def _important(x: Array, y: Array) -> NDArray[np.intp]:
    """Return the knots without which the curve would move by more than the tolerance (Ramer–Douglas–Peucker)."""
    kept = np.zeros(len(x), bool)
    kept[[0, -1]] = True
    pending = [(0, len(x) - 1)]
    while pending:
        start, end = pending.pop()
        if end - start < 2:
            continue
        inner = slice(start + 1, end)
        away = np.abs(y[inner] - np.interp(x[inner], x[[start, end]], y[[start, end]]))
        if away.max() > _TOLERANCE:
            worst = start + 1 + int(np.argmax(away))
            kept[worst] = True
            pending += [(start, worst), (worst, end)]
    return np.flatnonzero(kept)
