"""What ``map.json`` says about a fit: its record, with intervals and the distribution of the scores that it saw."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from .._types import Array
from ..debias.auto import Auto
from ..debias.records import DataRecord, ErrorInterval, FitRecord, ScoreSummary
from ..debias.remaining_error import SHARES
from ..debias.tower import Tower
from ..debias.vad import VAD
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from ..metrics.normality import gaussianity

LEVEL = 0.9  # of the intervals of the remaining error

_TAIL = 5e-4  # share of the scores that the histogram leaves out at either end
_MAX_BINS = 72


def record_of(
    fitted: VAD | Tower | Auto, pool: Evidence, labelled: Evidence | None = None, *, command: str = ""
) -> FitRecord:
    """Return the record of a fit, with intervals and summaries of the scores of pool and labelled rows.

    >>> from uncurse.evidence import from_arrays
    >>> pool = from_arrays([[0.0, 0.1], [1.0, 0.9], [2.0, 2.2]])
    >>> record = record_of(VAD().fit(pool), pool)
    >>> record.method, round(record.lambda_, 3)
    ('vad', 0.988)
    """
    return replace(
        fitted.record_,
        pool=_data_record(pool),
        labelled=None if labelled is None else _data_record(labelled),
        remaining_error=intervals_of(fitted),
        command=command,
    )


def _data_record(rows: Evidence) -> DataRecord:
    return replace(DataRecord.of(rows), scores=None if rows.cells is None else summarize_scores(rows.cells))


def intervals_of(fitted: Any) -> tuple[ErrorInterval, ...]:
    """Return the intervals that a fitted object has: none of a regression, a small pool or identical replicas."""
    found = []
    for alpha in SHARES:
        with suppress(UncurseError):
            low, high = fitted.interval(alpha, LEVEL)
            found.append(ErrorInterval(alpha, low, high, LEVEL))
    return tuple(found)


def summarize_scores(cells: Cells) -> ScoreSummary:
    """Return mean, standard deviation, histogram and Gaussianity of scores, on the logit or value scale.

    >>> summary = summarize_scores(Cells().update(np.random.default_rng(0).normal(-3.0, 0.5, 10_000)))
    >>> summary.rows, round(summary.mean, 1), round(summary.sd, 1)
    (10000, -3.0, 0.5)
    >>> summary.distance < 0.01
    True
    """
    if not cells.rows:
        raise UncurseError("these cells hold no rows, so there is nothing to summarise; update them with scores")
    (score, low, high), weight = cells.on_logit(), cells.weight
    total = float(weight.sum())
    mean = float(weight @ score) / total
    sd = math.sqrt(float(weight @ np.square(score - mean)) / total)
    edges, weights = _histogram(low, high, weight, round(cells.effective_rows))
    scale = "value" if cells.scale == "value" else "logit"
    summary = ScoreSummary(cells.rows, total, mean, sd, scale, tuple(edges.tolist()), tuple(weights.tolist()))
    try:
        found = gaussianity(cells)
    except UncurseError:  # too few rows, or constant: there is no shape to judge
        return summary
    p_value = None if math.isnan(found.p_value) else found.p_value
    shape = {name: getattr(found, name) for name in ("distance", "skewness", "excess_kurtosis")}
    return replace(summary, **shape, p_value=p_value)


def _histogram(low: Array, high: Array, weight: Array, rows: int) -> tuple[Array, Array]:
    """Return edges of equal bins between the tails, and their weights; a cell is spread over its width."""
    before = np.append(0.0, np.cumsum(weight))
    ends, reached = np.ravel([low, high], order="F"), np.ravel([before[:-1], before[1:]], order="F")
    left, right = np.interp(np.array([_TAIL, 1 - _TAIL]) * before[-1], reached, ends).tolist()
    if not right - left > 1e-9 * max(abs(left), abs(right)):
        return np.array([left - 0.5, left + 0.5]), before[-1:]
    edges = np.linspace(left, right, int(np.clip(2 * rows ** (1 / 3), 12, _MAX_BINS)) + 1)
    # An edge may itself be a score, where the cumulative weight jumps: look just below, at the last edge just above.
    below = edges - 1e-12 * (right - left)
    below[-1] = right + 1e-12 * (right - left)
    return edges, np.diff(np.interp(below, ends, reached))
