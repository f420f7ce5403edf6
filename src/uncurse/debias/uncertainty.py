"""How far predictions may still be off on what gets selected: intervals for the calibration error that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._types import Array, Float
from ..errors import UncurseError
from ..evidence import Joint
from ..links import logistic
from ..maps import ScoreMap
from ..validation import check_share

if TYPE_CHECKING:
    from .free_shape import Distilled
    from .tower import Tower


class Selected:
    """The cells of a pool that hold its top share, the last of them in part."""

    def __init__(self, joint: Joint, alpha: float) -> None:
        check_share(alpha)
        order = np.argsort(-joint.served, kind="stable")
        w = joint.weight[order]
        before = np.cumsum(w) - w
        part = np.clip(alpha * float(joint.weight.sum()) - before, 0.0, w)
        self.cells = order[part > 0]
        self.weight = part[part > 0]
        self.rows = alpha * joint.effective_rows
        self.share = self.weight / self.weight.sum()

    def mean(self, values: Float) -> float:
        """Over the selected rows."""
        return float(self.share @ values)

    def relative(self, p: Float, features: Array, covariance: Array) -> float:
        """Squared relative error of the mean of `p`, whose log odds are coefficients times `features`."""
        gradient = features @ (self.share * p * (1 - p)) / self.mean(p)
        return float(gradient @ covariance @ gradient)

    def scatter(self, p: Float, by_score: Float, uncertain: Array) -> float:
        """Squared relative error of the true rate among so many rows.

        Probabilities `p` differ from what scores tell, `by_score`, and truth differs from `p`, by what is not known.
        """
        variance = self.mean(np.square(p - by_score)) + self.mean(uncertain)
        return float(variance / self.rows / self.mean(p) ** 2)


def levels_of(joint: Joint) -> Array:
    """Mean score of every replica on these rows, above that of the served one: (S,)."""
    others = float(joint.weight @ joint.apart / joint.weight.sum()) + joint.levels
    return np.append(0.0, others)


def level_variance(levels: Array, replicas: str) -> tuple[float, int]:
    """Variance of the level that predictions are built on, from how replicas' levels differ; degrees of freedom.

    Models trained alike: of their mean. Bootstraps: of the served one, about which theirs lie.
    """
    if replicas == "seeds":
        return float(np.var(levels, ddof=1)) / len(levels), len(levels) - 1
    if replicas == "anchored":
        return float(np.mean(np.square(levels[1:]))), len(levels) - 1
    return float(np.var(levels[1:], ddof=1)), len(levels) - 2


def interval_of(
    log_error: float, standard_error: float, level: float, by_level: tuple[float, int] = (0.0, 1)
) -> tuple[float, float]:
    """An interval of the calibration error from the logarithm of predicted over true and its standard error.

    `by_level` is a second error with few degrees of freedom: its quantile is Student's.
    """
    reach = normal_quantile(level) * standard_error
    if by_level[0] > 0:
        from scipy.special import stdtrit

        reach = float(np.hypot(reach, float(stdtrit(by_level[1], 0.5 + level / 2)) * by_level[0]))
    return float(np.expm1(log_error - reach)), float(np.expm1(log_error + reach))


def normal_quantile(level: float) -> float:
    """Of a two-sided interval."""
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise UncurseError(f"level={level}; pass a probability between 0 and 1, such as 0.9")
    return float(ndtri(0.5 + level / 2))


def left_on_top(score_map: ScoreMap, reference: Tower | Distilled, alpha: float, level: float) -> tuple[float, float]:
    """An interval for the calibration error that a map leaves, judged by a reference and how well that is known."""
    joint = reference.joint
    top = Selected(joint, alpha)
    served = joint.served[top.cells]
    theirs = top.mean(logistic(reference.odds(served)))
    ours = top.mean(score_map.at_logits(reference.as_given(served)))
    return interval_of(float(np.log(ours / theirs)), reference.log_error(alpha), level, reference.level_error(alpha))


__all__ = ["Selected", "interval_of", "left_on_top", "level_variance", "levels_of", "normal_quantile"]
