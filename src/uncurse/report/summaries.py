"""What a pass over scores says of their distribution, as plain data: few enough numbers to keep in a map's file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells
from ..theory import gaussianity

_FAR = 5e-4  # the share left out of the histogram at either end
_MOST_BINS = 72


def describe(cells: Cells) -> dict[str, Any]:
    """Rows, mean, sd, a histogram and the Gaussianity check of scores, on the logit (or value) scale, JSON-able.

    >>> summary = describe(Cells().update(np.random.default_rng(0).normal(-3.0, 0.5, 10_000)))
    >>> summary["rows"], round(summary["mean"], 1), round(summary["sd"], 1)
    (10000, -3.0, 0.5)
    >>> summary["gaussianity"]["distance"] < 0.01
    True
    """
    if not cells.rows:
        raise UncurseError("these cells hold no rows, so there is nothing to describe; update them with scores")
    (score, low, high), weight = cells.on_logit(), cells.weight
    total = float(weight.sum())
    mean = float(weight @ score) / total
    sd = math.sqrt(float(weight @ np.square(score - mean)) / total)
    edges, filled = _histogram(low, high, weight, cells.rows)
    return {
        "rows": int(cells.rows),
        "weight": total,
        "scale": "value" if cells.scale == "value" else "logit",
        "mean": mean,
        "sd": sd,
        "histogram": {"edges": edges.tolist(), "weight": filled.tolist()},
        "gaussianity": _gaussianity(cells),
    }


def _gaussianity(cells: Cells) -> dict[str, float | None] | None:
    try:
        found = gaussianity(cells)
    except UncurseError:  # too few rows, or constant: there is no shape to judge
        return None
    return {
        "distance": found.distance,
        "skewness": found.skewness,
        "excess_kurtosis": found.excess_kurtosis,
        "p_value": None if math.isnan(found.p_value) else found.p_value,
    }


def _histogram(low: Array, high: Array, weight: Array, rows: int) -> tuple[Array, Array]:
    """Equal bins between the far quantiles; a slot's weight is spread evenly over its width."""
    before = np.append(0.0, np.cumsum(weight))
    ends, reached = np.ravel([low, high], order="F"), np.ravel([before[:-1], before[1:]], order="F")
    far = np.interp(np.array([_FAR, 1 - _FAR]) * before[-1], reached, ends)
    left, right = float(far[0]), float(far[1])
    if not right - left > 1e-9 * max(abs(left), abs(right)):
        return np.array([left - 0.5, left + 0.5]), before[-1:]
    edges = np.linspace(left, right, int(np.clip(2 * rows ** (1 / 3), 12, _MOST_BINS)) + 1)
    # An edge may itself be a score, and the cumulated weight steps there: look just below, at the last just above.
    below = edges - 1e-12 * (right - left)
    below[-1] = right + 1e-12 * (right - left)
    return edges, np.diff(np.interp(below, ends, reached))


__all__ = ["describe"]
