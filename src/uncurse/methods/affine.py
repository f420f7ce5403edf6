"""The straight line nearest to a map on the selected scores, for models that can only hold a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence.spec import logit_offset
from ..links import logistic, logit
from ..maps import Affine, ScoreMap, Segmented, compose
from ..validation import check_share
from .records import TOP_SHARES, FitRecord

# Smallest and largest selected share for which a line is made: of a pool, and of rows that were selected from it.
_POOL_SHARES, _WINNER_SHARES = (0.01, 0.1), (0.1, 1.0)
_SHARES = 9  # between the ends, at equal ratios
_LEAST_SLOPE = 1e-3  # the line must keep the order of the scores
_EXACT = 1e4  # weight of the mean over all rows, if all are selected
_STEPS, _CLOSE = 50, 1e-12


def nearest_affine(score_map: ScoreMap, record: FitRecord | None, alphas: Sequence[float] | None) -> Affine:
    """Return the line whose mean predictions on the top shares are nearest to those of a map, see `Fitted.to_affine`.

    The `max_error` of the line is the largest relative difference of the mean predictions on shares between the two
    `alphas`. If the largest share is 1, the mean prediction of all rows stays the same.
    """
    by_request = record is not None and record.top_k is not None
    of_labels = record is not None and alphas is None and not by_request and record.labels_from == "winners"
    alphas = alphas or (_WINNER_SHARES if by_request or of_labels else _POOL_SHARES)
    if np.shape(alphas) != (2,):
        raise UncurseError(f"alphas={alphas!r}; pass the smallest and the largest share, such as (0.01, 0.1)")
    low, high = map(check_share, alphas)
    if not low < high:
        raise UncurseError(f"alphas={alphas!r}; the first share must be smaller than the second")
    if isinstance(score_map, Segmented):
        raise UncurseError("a map by segment has no single line; fit each segment on its own and take its line")
    simple = compose(score_map, scale=score_map.scale)
    if isinstance(simple, Affine):
        return replace(simple, max_error=0.0)
    rows = None if record is None else (record.labeled if of_labels else record.pool)
    if record is None or rows is None or (rows.scores is None and record.center is None):
        raise UncurseError("a line needs the distribution of the scores, which this map was saved without")
    if rows.scores is not None:
        top = np.array(rows.scores.top)
    else:  # only moments are known: take a normal
        from scipy.special import ndtri

        assert record.center is not None
        assert record.score_variance is not None
        tail = np.clip(TOP_SHARES, 1e-6, 1 - 1e-6)
        top = record.center - np.sqrt(record.score_variance) * ndtri(tail)
    top = top - logit_offset(record.negative_sampling_rate)  # as the map takes them
    before = np.append(0.0, TOP_SHARES)
    x = np.append(top[0], (top[1:] + top[:-1]) / 2)  # middle of the scores between two shares
    shares = np.geomspace(low, high, _SHARES)
    own = np.clip(shares[:, None] - before[:-1], 0.0, np.diff(before))  # share of each score in each selection
    x, own = x[own.any(axis=0)], own[:, own.any(axis=0)]
    own /= own.sum(axis=1, keepdims=True)
    predictions = score_map.at_logits(x)
    target = np.log(own @ predictions)
    importance = np.append(np.ones(_SHARES - 1), _EXACT if high == 1 else 1.0)
    slope, intercept = _fit(x, own, target, np.asarray(logit(predictions), np.float64), importance)
    line = Affine(slope, intercept, "logistic", score_map.scale)
    error = float(np.abs(np.expm1(np.log(own @ line.at_logits(x)) - target)).max())
    return replace(line, max_error=error)


def _fit(x: Array, own: Array, target: Array, log_odds: Array, importance: Array) -> tuple[float, float]:
    """Least squares of the log mean predictions by Gauss–Newton, from the line through the log odds at the ends."""
    factor = np.sqrt(importance)
    center = float(x.mean())
    rise = float(np.ptp(x))
    slope = max(float(np.ptp(log_odds)) / rise, _LEAST_SLOPE) if rise > 0 else 1.0
    level = float(log_odds.mean())
    for _ in range(_STEPS):
        p = logistic(slope * (x - center) + level)
        means = own @ p
        gradient = (own @ np.stack([p * (1 - p) * (x - center), p * (1 - p)], axis=1)) / means[:, None]
        step = np.linalg.lstsq(factor[:, None] * gradient, factor * (target - np.log(means)), rcond=1e-9)[0]
        slope, level = max(slope + float(step[0]), _LEAST_SLOPE), level + float(step[1])
        if float(np.abs(step).max()) < _CLOSE:
            break
    return slope, level - slope * center
