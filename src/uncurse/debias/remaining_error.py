"""Intervals for the calibration error of a map on the top of the pool.

A fit answers the protocol `RemainingError` with standard errors, and `remaining_error_interval` makes the interval of
all of them. An interval of another form starts here; `LabelFree`, `TowerFit` and `Averaged` implement the protocol.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._types import Array, Float
from ..errors import UncurseError
from ..evidence.replica_cells import ReplicaCells
from ..evidence.spec import logit_offset
from ..links import logistic
from ..maps import Grouped, ScoreMap
from ..validation import check_number, check_share

#: Shares on which maps are compared.
SHARES = (0.01, 0.02, 0.05, 0.1)
_CERTAIN = 1e-280  # a mean probability below this has no relative error in double precision


class RemainingError(Protocol):
    """Estimate of the true rates on the pool, with standard errors; the prediction of a map is compared with it."""

    @property
    def cells(self) -> ReplicaCells:
        """Cells of the pool."""

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""

    def log_error(self, alpha: float) -> float:
        """Return the standard error of the log of the mean estimate on the top share."""

    def level_error(self, alpha: float) -> tuple[float, int]:
        """Return the part of the error that all scores share, and its degrees of freedom."""


def compared_shares(cells: ReplicaCells) -> list[float]:
    """Return the shares on which maps are compared: those that select a row."""
    return [alpha for alpha in SHARES if alpha * cells.effective_rows >= 1] or [1.0]


class TopShare:
    """Cells of a pool that hold its top share; the last cell counts in part."""

    def __init__(self, cells: ReplicaCells, alpha: float) -> None:
        share = check_share(alpha)
        self.rows = share * cells.effective_rows
        if self.rows < 0.5:
            raise UncurseError(
                f"alpha={alpha:g} of {cells.effective_rows:,.0f} rows selects none; "
                f"use at least {1 / cells.effective_rows:.2g}"
            )
        order = cells.descending
        weight = cells.weight[order]
        part = np.clip(share * float(weight.sum()) - (np.cumsum(weight) - weight), 0.0, weight)
        self.cells = order[part > 0]
        self.share = part[part > 0] / part.sum()

    def mean(self, values: Float) -> float:
        """Return the mean over the selected rows."""
        return float(self.share @ values)

    def log_mean(self, log_odds: Float) -> float:
        """Return the log of the mean probability of the selected rows, from their log odds."""
        return float(np.log(self.mean(logistic(log_odds))))

    def squared_error(self, p: Float, features: Array, covariance: Array) -> float:
        """Return the squared relative error of the mean of `p`, whose log odds are linear in `features`."""
        gradient = features @ (self.share * (p / self.mean(p)) * (1 - p))
        return float(gradient @ covariance @ gradient)

    def sampling_error(self, p: Float, by_score: Float, variance: Array) -> float:
        """Return the squared relative error of the true rate among the selected rows.

        True probabilities differ from `p` with the given variance, and `p` differs from the mean at the same score.
        """
        mean = self.mean(p)
        relative = self.mean(np.square((p - by_score) / mean)) + self.mean(variance / mean / mean)
        return relative / self.rows


def relative_level_error(top: TopShare, log_odds: Array, variance: float) -> float:
    """Return the standard error of the log mean prediction on the top, if the mean logit has this `variance`."""
    p = logistic(log_odds)
    return float(np.sqrt(variance)) * top.mean(p / top.mean(p) * (1 - p))


def log_bayes_factor(difference: Any, variance: Any, more: Any) -> Any:
    """Return the log Bayes factor of N(0, variance) against N(0, variance + more), given a difference."""
    return 0.5 * (np.log1p(more / variance) - np.square(difference) * (1 / variance - 1 / (variance + more)))


def normal_quantile(level: float) -> float:
    """Return the half-width of a two-sided normal interval in standard errors."""
    from scipy.special import ndtri

    if not 0 < check_number(level, "level") < 1:
        raise UncurseError(f"level={level!r}; pass a probability between 0 and 1, such as 0.9")
    return float(ndtri(0.5 + level / 2))


def remaining_error_interval(
    score_map: ScoreMap, remaining: RemainingError, alpha: float, level: float, negative_rate: float | None
) -> tuple[float, float]:
    """Return an interval for the calibration error of a map on the top share."""
    from scipy.special import stdtrit

    quantile = normal_quantile(level)
    top = TopShare(remaining.cells, alpha)
    served = remaining.cells.served[top.cells]
    default = score_map.default if isinstance(score_map, Grouped) else score_map
    predicted = top.mean(default.at_logits(served - logit_offset(negative_rate)))
    estimated = top.mean(logistic(remaining.log_odds(served)))
    if min(predicted, estimated) < _CERTAIN:
        raise UncurseError(f"predictions on the top {100 * alpha:g}% are 0 to double precision; are the scores logits?")
    shared, freedom = remaining.level_error(alpha)
    student = float(stdtrit(freedom, 0.5 + level / 2))  # few degrees of freedom
    reach = float(np.hypot(quantile * remaining.log_error(alpha), student * shared))
    error = float(np.log(predicted / estimated))
    return float(np.expm1(error - reach)), float(np.expm1(min(error + reach, 700.0)))
