"""A teacher: a model of another class, which sees how candidates differ in what the served model does not know.

Replicas show noise, not what the served model's class cannot express. Suppose that at the same served score the
candidates are worse than the labeled rows, in a way that the served model misses. A teacher's scores t differ there:
Δ(s) = logit E_pool[t | s] − logit E_labeled[t | s].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import Array
from ..calibration.spline import SmoothCurve
from ..evidence import Evidence
from ..links import logistic
from .label_free import regress_on_served
from .remaining_error import log_bayes_factor

# Prior standard deviation of the difference in the teacher's score at the same served score, if there is one.
_SIZE = 0.3


@dataclass(frozen=True)
class Teacher:
    """What a teacher shows of the difference between pool and labeled rows.

    `pool` and `labeled` are the log odds of the mean teacher score by served score. `weight` is the part of the
    difference between pool and labeled rows that lies in the teacher's score, given the served score, times the
    probability that there is one. The log losses are those of the labeled rows.
    """

    pool: SmoothCurve
    labeled: SmoothCurve
    weight: float
    log_loss: float
    served_log_loss: float

    @property
    def reason(self) -> str:
        """The teacher's part in the map, in words."""
        losses = f"log loss {self.log_loss:.4g}, served {self.served_log_loss:.4g}"
        if not self.weight:
            return f"the teacher does not predict better than the served model ({losses}), so it is not used"
        return f"the teacher ({losses}) explains {100 * self.weight:.0f}% of the difference between pool and labels"


def compare_by_teacher(pool: Evidence | None, labeled: Evidence | None, scaling: tuple[float, float]) -> Teacher | None:
    """Return what the teacher shows; its weight is 0 unless its log loss is lower than that of the served score.

    `scaling` (slope and intercept) converts served logits to log odds.
    """
    if pool is None or labeled is None or pool.replicas is None or labeled.replicas is None:
        return None
    level = max(pool.replicas.level, labeled.replicas.level)
    curves, losses = [], np.zeros(2)
    for part in (pool, labeled):
        assert part.replicas is not None
        table = part.replicas.coarsened(level).table()
        teacher = table.served + table.gap
        w, y = table.row_weights()
        if part is labeled:
            served = scaling[0] * table.served + scaling[1]
            losses = np.array([w @ np.logaddexp(0.0, x) - y @ x for x in (teacher, served)]) / w.sum()
        curves.append(regress_on_served(table.rescaled(*scaling), np.asarray(logistic(teacher), np.float64)))
    weight = _explained(pool, labeled) if losses[0] < losses[1] else 0.0
    return Teacher(curves[0], curves[1], weight, *losses.tolist())


def _explained(pool: Evidence, labeled: Evidence) -> float:
    """Return the part of the difference that lies in the teacher's score, given the served score.

    It is the teacher's share of the linear discriminant of pool against labeled rows, in logits of both scores.
    """
    mine, theirs = pool.moments, labeled.moments
    covariance: Array = (mine.covariance + theirs.covariance) / 2
    difference = mine.mean - theirs.mean
    served, teacher = np.linalg.solve(covariance, difference)
    # A served part of the opposite sign only says that the teacher's scores differ from those that go with the served.
    share = abs(teacher) / (abs(teacher) + max(served * np.sign(teacher), 0.0))
    slope = covariance[0, 1] / covariance[0, 0]
    residual = covariance[1, 1] - slope * covariance[0, 1]
    left = difference[1] - slope * difference[0]
    variance = residual * (1 / mine.effective_rows + 1 / theirs.effective_rows)
    factor = log_bayes_factor(left, variance, residual * _SIZE**2)
    return float(share * logistic(-np.asarray(factor)))
