"""The straight line nearest to a map on the top of the pool, for models that can only hold a line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..links import logistic, logit
from ..maps import Affine, Grouped, ScoreMap, compose
from ..validation import check_share

#: Smallest and largest selected share for which a line is made: of a pool, and of rows that were selected from it.
POOL_SHARES, SELECTED_SHARES = (0.01, 0.1), (0.1, 1.0)
_SHARES = 9  # between the ends, at equal ratios
_LEAST_SLOPE = 1e-3  # the line must keep the order of the scores
_EXACT = 1e4  # weight of the mean over all rows, if all are selected
_STEPS, _CLOSE = 50, 1e-12


def straight_line(
    score_map: ScoreMap,
    served: Array,
    weight: Array,
    alphas: Sequence[float] = POOL_SHARES,
    rows: float | None = None,
) -> tuple[Affine, float]:
    """Return the affine map whose mean predictions on the top shares are nearest to those of a map, and its loss.

    The loss is the largest relative difference of the mean predictions on shares between the two `alphas`. If the
    largest share is 1, the mean prediction of all rows stays the same. `served` and `weight` are the logits of the rows
    as the map takes them, and their weights; or those of cells that hold `rows` effective rows.
    """
    low, high = _check_shares(alphas)
    if isinstance(score_map, Grouped):
        raise UncurseError("a map with groups has no single line; fit each group on its own and take its line")
    simple = compose(score_map, scale=score_map.scale)
    if isinstance(simple, Affine):
        return simple, 0.0
    order = np.argsort(-served, kind="stable")
    x, w = served[order], weight[order]
    reached = np.cumsum(w) / w.sum()
    rows = len(x) if rows is None else rows
    if high * rows < 1:
        raise UncurseError(f"the top {100 * high:g}% of {rows:.0f} scores selects none; pass larger alphas")
    # Rows beyond the largest share do not matter.
    kept = slice(0, int(np.searchsorted(reached, high)) + 1)
    x, w, reached = x[kept], w[kept], reached[kept]
    shares = np.geomspace(low, high, _SHARES)
    before = np.concatenate([[0.0], reached[:-1]])
    own = np.clip(shares[:, None] - before, 0.0, (reached - before))  # share of each row in each selection
    own /= own.sum(axis=1, keepdims=True)
    target = np.log(own @ score_map.at_logits(x))
    importance = np.append(np.ones(_SHARES - 1), _EXACT if high == 1 else 1.0)
    slope, intercept = _fit(x, own, target, np.asarray(logit(score_map.at_logits(x)), np.float64), importance)
    line = Affine(slope, intercept, "logistic", score_map.scale)
    loss = float(np.abs(np.expm1(np.log(own @ line.at_logits(x)) - target)).max())
    return line, loss


def _check_shares(alphas: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = alphas
    except (TypeError, ValueError):
        raise UncurseError(f"alphas={alphas!r}; pass the smallest and the largest share, such as (0.01, 0.1)") from None
    low, high = check_share(low), check_share(high)
    if not low < high:
        raise UncurseError(f"alphas={alphas!r}; the first share must be smaller than the second")
    return low, high


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
