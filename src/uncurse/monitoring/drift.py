"""How scores and their noise differ from earlier days, or from what a map was fitted to. No labels are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UncurseError
from ..evidence import Evidence
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

    compared_with: str  # "pool", that of the fit, or "earlier days"
    mean: float  # change, in standard deviations of the scores compared with
    spread: float  # standard deviation divided by that of the scores compared with
    stability: float

    @property
    def reference(self) -> str:
        """What the scores are compared with, in words."""
        return "pool of the fit" if self.compared_with == "pool" else self.compared_with


@dataclass(frozen=True)
class LambdaChange:
    """Change of λ since the fit."""

    before: float
    after: float
    standard_errors: float  # of which their difference is a multiple


def score_change(pool: Evidence, record: FitRecord) -> ScoreChange | None:
    """Compare the scores of a pool with those of the fit, over ten bins with equal shares of the latter."""
    before, cells = record.pool.scores, pool.served
    if before is None or cells is None:
        return None
    now = ScoreSummary.of(cells)
    old = np.append(0.0, np.cumsum(before.weights)) / np.sum(before.weights)
    inner = np.unique(np.interp(np.arange(1, _BINS) / _BINS, old, before.edges))
    low, high = cells.bounds
    new = np.append(0.0, np.cumsum(cells.weight)) / cells.weight.sum()
    # A cell is spread evenly over its width.
    below = np.interp(inner, np.ravel([low, high], "F"), np.ravel([new[:-1], new[1:]], "F"))
    shares = ((below, cells.effective_rows), (np.interp(inner, before.edges, old), before.rows))
    p, q = (np.maximum(np.diff(share, prepend=0.0, append=1.0), 0.5 / rows) for share, rows in shares)
    mean, spread = _shift((now.mean, now.sd), (before.mean, before.sd))
    return ScoreChange("pool", mean, spread, float(np.sum((p - q) * np.log(p / q))))


def day_change(latest: Day, earlier: Sequence[Day]) -> tuple[ScoreChange, bool]:
    """Compare the scores of a day with those of earlier days; also tell whether the change is more than chance."""
    before = earlier[0]
    for day in earlier[1:]:
        before = before + day
    mean, spread = _shift((latest.score_mean, latest.score_sd), (before.score_mean, before.score_sd))
    # ∫(p − q)·ln(p/q) of two normal distributions. Without a change it is χ² with two degrees of freedom, times this.
    stability = (spread**2 + mean**2 + (1 + mean**2) / spread**2) / 2 - 1
    noise = sum(1 / max(day.sums.rows, 1e-9) for day in (latest, before))
    return ScoreChange("earlier days", mean, spread, stability), stability > _CHANCE * noise


def _shift(new: tuple[float, float], old: tuple[float, float]) -> tuple[float, float]:
    """Return the change of a mean, in standard deviations before the change, and the ratio of standard deviations."""
    sd = max(old[1], _MIN_SD)
    return (new[0] - old[0]) / sd, max(new[1], _MIN_SD) / sd


def lambda_change(pool: Evidence, record: FitRecord) -> LambdaChange | None:
    """Compare λ of a pool with replicas with that of the fit; None if either is unknown."""
    before, error = record.lambda_, record.standard_error
    if before is None or error is None or record.calibrator is not None or len(pool.spec.scores) < 2:
        return None
    kind = replica_kind(record.replicas)
    table = None if pool.replicas is None or record.link != "logistic" else kind.table(pool.replicas.table())
    try:
        after = Shrinkage.of(pool.moments, kind, table=table)
    except UncurseError:  # scores that do not vary
        return None
    both = float(np.hypot(error, after.error))
    value = max(after.value, 0.0)
    return LambdaChange(before, value, (value - before) / both) if both > 0 else None
