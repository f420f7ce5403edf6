"""How scores and their noise differ from earlier days, or from what a map was fitted to. No labels are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UncurseError
from ..evidence import Evidence, Histogram
from ..methods.noise import replica_kind
from ..methods.records import FitRecord, ScoreSummary
from ..methods.shrinkage import Shrinkage
from .state import Day

_BINS = 10  # of the population stability index, with equal shares of the scores that the map was fitted to
_MIN_SD = 1e-3  # of scores, in logits: smaller differences do not matter
_CHANCE = 14.0  # χ² of a mean and a spread, exceeded by chance on one day in 1,000


@dataclass(frozen=True)
class ScoreChange:
    """Change of the served scores since the fit, or since the earlier days.

    `stability` is the population stability index Σ(p − q)·ln(p/q), the change of the whole distribution: over ten
    bins, and for days of normal distributions with their means and standard deviations.
    """

    compared_with: str  # "pool" or "labeled rows" of the fit, or "earlier days"
    mean: float  # change, in standard deviations of the scores compared with
    spread: float  # standard deviation divided by that of the scores compared with
    stability: float

    @property
    def reference(self) -> str:
        """What the scores are compared with, in words."""
        return self.compared_with if self.compared_with == "earlier days" else f"{self.compared_with} of the fit"


@dataclass(frozen=True)
class LambdaChange:
    """Change of λ since the fit."""

    before: float
    after: float
    standard_errors: float  # of which their difference is a multiple


def score_change(cells: Histogram, before: ScoreSummary, compared_with: str) -> ScoreChange:
    """Compare new scores with a summary of those of the fit."""
    score, weight = cells.score, cells.weight
    mean = float(np.average(score, weights=weight))
    sd = float(np.sqrt(np.average(np.square(score - mean), weights=weight)))
    sd, old_sd = max(sd, _MIN_SD), max(before.sd, _MIN_SD)
    return ScoreChange(compared_with, (mean - before.mean) / old_sd, sd / old_sd, _stability(cells, before))


def day_change(latest: Day, earlier: Sequence[Day]) -> tuple[ScoreChange, bool]:
    """Compare the scores of a day with those of earlier days; also tell whether the change is more than chance."""
    before = earlier[0]
    for day in earlier[1:]:
        before = before + day
    sd, old_sd = max(latest.score_sd, _MIN_SD), max(before.score_sd, _MIN_SD)
    mean, spread = (latest.score_mean - before.score_mean) / old_sd, sd / old_sd
    # ∫(p − q)·ln(p/q) of two normal distributions. Without a change it is χ² with two degrees of freedom, times this.
    stability = (spread**2 + mean**2 + (1 + mean**2) / spread**2) / 2 - 1
    noise = sum(1 / max(day.sums.rows, 1e-9) for day in (latest, before))
    return ScoreChange("earlier days", mean, spread, stability), stability > _CHANCE * noise


def _stability(cells: Histogram, before: ScoreSummary) -> float:
    edges, weights = np.array(before.edges), np.array(before.weights)
    reached = np.append(0.0, np.cumsum(weights)) / weights.sum()
    inner = np.unique(np.interp(np.arange(1, _BINS) / _BINS, reached, edges))
    old = np.diff(np.interp(inner, edges, reached), prepend=0.0, append=1.0)
    low, high = cells.bounds
    # A cell is spread evenly over its width.
    width = np.where(high > low, high - low, 1.0)
    shares = (np.where(high > low, np.clip((edge - low) / width, 0.0, 1.0), low < edge) for edge in inner)
    below = np.array([share @ cells.weight for share in shares]) / cells.weight.sum()
    rows = float(cells.weight.sum()) ** 2 / float(cells.weight_squares.sum())
    new = np.diff(below, prepend=0.0, append=1.0)
    p, q = (np.maximum(x, 0.5 / n) for x, n in ((new, rows), (old, before.rows)))
    return float(np.sum((p - q) * np.log(p / q)))


def lambda_change(rows: Evidence, record: FitRecord) -> LambdaChange | None:
    """Compare λ of new rows of the candidate pool, with replicas, with that of the fit; None if either is unknown."""
    before, error = record.lambda_, record.standard_error
    if before is None or error is None or record.calibrator is not None or len(rows.spec.scores) < 2:
        return None
    kind = replica_kind(record.replicas)
    table = None if rows.replicas is None or record.link != "logistic" else kind.table(rows.replicas.table())
    try:
        after = Shrinkage.of(rows.moments, kind, table=table)
    except UncurseError:  # scores that do not vary
        return None
    both = float(np.hypot(error, after.error))
    value = max(after.value, 0.0)
    return LambdaChange(before, value, (value - before) / both) if both > 0 else None
