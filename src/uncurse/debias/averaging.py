"""Average two estimates of the true rates by their probabilities, instead of choosing one.

A choice throws away half of the evidence near its threshold. An average changes smoothly with the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import Array
from ..calibration.spline import monotone_curve
from ..errors import UncurseError
from ..evidence.replica_cells import ReplicaCells
from ..links import logistic, logit
from ..maps import Grouped, ScoreMap, compose
from .remaining_error import RemainingError, TopShare

_KNOTS = 256  # at quantiles of the pool, and as many at equal steps


def mixed_log_odds(weight: float, first: Array, second: Array) -> Array:
    """Return the log odds of an average of two probabilities, from the log odds of both."""
    return np.asarray(logit(weight * logistic(first) + (1 - weight) * logistic(second)), np.float64)


@dataclass(frozen=True)
class Averaged:
    """Average of two estimates, the first with probability `weight`."""

    first: RemainingError
    second: RemainingError
    weight: float

    @property
    def cells(self) -> ReplicaCells:
        """Cells of the pool."""
        return self.second.cells

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        return mixed_log_odds(self.weight, self.first.log_odds(served), self.second.log_odds(served))

    def log_error(self, alpha: float) -> float:
        """Return the standard error of a mixture: that of each estimate, and the difference between them."""
        top = TopShare(self.cells, alpha)
        served = self.cells.served[top.cells]
        means = [top.mean(logistic(estimate.log_odds(served))) for estimate in (self.first, self.second)]
        shares = (self.weight, 1 - self.weight)
        mean = shares[0] * means[0] + shares[1] * means[1]
        variance = sum(
            share * (estimate.log_error(alpha) ** 2 + float(np.log(own / mean)) ** 2)
            for share, estimate, own in zip(shares, (self.first, self.second), means, strict=True)
        )
        return float(np.sqrt(variance))

    def level_error(self, alpha: float) -> tuple[float, int]:
        """Return the part of the error that all scores share, and its degrees of freedom."""
        other, more = self.second.level_error(alpha)
        try:
            one, freedom = self.first.level_error(alpha)
        except UncurseError:  # replicas that do not show it: the labels alone do
            return other, more
        return self.weight * one + (1 - self.weight) * other, min(freedom, more)


def average_maps(first: ScoreMap, second: ScoreMap, weight: float, cells: ReplicaCells, offset: float) -> ScoreMap:
    """Return the map that predicts ``weight`` times the first plus ``1 − weight`` times the second.

    It is exact at the quantiles of `cells`, and piecewise linear in the log odds between them. `offset` is what was
    added to the logits of the cells.
    """
    if isinstance(first, Grouped) or isinstance(second, Grouped):
        names = {name for part in (first, second) if isinstance(part, Grouped) for name in part.maps}
        default = average_maps(_of_group(first, None), _of_group(second, None), weight, cells, offset)
        maps = {
            name: average_maps(_of_group(first, name), _of_group(second, name), weight, cells, offset)
            for name in sorted(names)
        }
        return Grouped(default, maps)
    steps = (np.arange(_KNOTS) + 0.5) / _KNOTS
    shares = [1e-4, 1 - 1e-4, *steps]
    low, high, *inner = np.quantile(cells.served, shares, weights=cells.weight, method="inverted_cdf")
    knots = np.unique(np.concatenate([inner, low + (high - low) * steps, [low, high]]))
    x = knots[np.append(True, np.diff(knots) > 1e-6)] - offset
    p = weight * first.at_logits(x) + (1 - weight) * second.at_logits(x)
    return compose(monotone_curve(x, np.asarray(logit(p), np.float64)), scale=first.scale)


def _of_group(score_map: ScoreMap, name: str | None) -> ScoreMap:
    if not isinstance(score_map, Grouped):
        return score_map
    return score_map.default if name is None else score_map.maps.get(name, score_map.default)
