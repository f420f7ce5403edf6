"""How scores and their noise differ from earlier days, or from what a map was fitted to. No labels are needed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..debias.records import FitRecord, ScoreSummary
from ..debias.vad_fit import VADOptions, fit_vad
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from .state import Day

_BINS = 10  # of the population stability index, with equal shares of the scores that the map was fitted to
_MIN_SD = 1e-3  # of scores, in logits: smaller differences do not matter
_CHANCE = 14.0  # χ² of a mean and a spread, exceeded by chance on one day in 1,000


@dataclass(frozen=True)
class ScoreChange:
    """Change of the served scores since the fit, or since the earlier days.

    Parameters
    ----------
    compared_with : {"pool", "labelled rows", "earlier days"}
        Rows that the scores are compared with; pool and labelled rows are those of the fit.
    mean : float
        Change of the mean, in standard deviations of the scores compared with.
    spread : float
        Standard deviation divided by that of the scores compared with.
    stability : float
        Population stability index Σ(p − q)·ln(p/q): change of the whole distribution. Over ten bins; for days, of
        normal distributions with their means and standard deviations.

    Examples
    --------
    >>> ScoreChange("pool", 0.1, 1.0, 0.01).mean
    0.1
    """

    compared_with: str
    mean: float
    spread: float
    stability: float

    @property
    def reference(self) -> str:
        """What the scores are compared with, in words."""
        return self.compared_with if self.compared_with == "earlier days" else f"{self.compared_with} of the fit"


@dataclass(frozen=True)
class LambdaChange:
    """Change of λ since the fit.

    Parameters
    ----------
    before, after : float
        λ of the fit, and of the new rows.
    standard_errors : float
        Their difference in standard errors.

    Examples
    --------
    >>> LambdaChange(0.9, 0.8, -3.2).after
    0.8
    """

    before: float
    after: float
    standard_errors: float


def score_change(cells: Cells, before: ScoreSummary, compared_with: str) -> ScoreChange:
    """Compare new scores with a summary of those of the fit."""
    score, weight = cells.on_logit()[0], cells.weight
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


def _stability(cells: Cells, before: ScoreSummary) -> float:
    edges, weights = np.array(before.edges), np.array(before.weights)
    reached = np.append(0.0, np.cumsum(weights)) / weights.sum()
    inner = np.unique(np.interp(np.arange(1, _BINS) / _BINS, reached, edges))
    old = np.diff(np.interp(inner, edges, reached), prepend=0.0, append=1.0)
    _, low, high = cells.on_logit()
    # A cell is spread evenly over its width.
    width = np.where(high > low, high - low, 1.0)
    shares = (np.where(high > low, np.clip((edge - low) / width, 0.0, 1.0), low < edge) for edge in inner)
    below = np.array([share @ cells.weight for share in shares]) / cells.weight.sum()
    new = np.diff(below, prepend=0.0, append=1.0)
    p, q = (np.maximum(x, 0.5 / n) for x, n in ((new, cells.effective_rows), (old, before.rows)))
    return float(np.sum((p - q) * np.log(p / q)))


def lambda_change(rows: Evidence, record: FitRecord) -> LambdaChange | None:
    """Compare λ of new rows of the candidate pool, with replicas, with that of the fit; None if either is unknown."""
    before, error = record.lambda_, record.standard_error
    if before is None or error is None or record.calibrator is not None or len(rows.spec.scores) < 2:
        return None
    options = VADOptions(
        link=record.link,
        scale=record.scale,
        replicas=record.replicas,
        negative_rate=record.negative_rate,
        lambda_floor=0.0,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a low λ, which is the result here
            after = fit_vad(Evidence(rows.spec, rows.moments), None, options).record
    except UncurseError:  # scores that do not vary
        return None
    if after.lambda_ is None or after.standard_error is None:
        return None
    both = float(np.hypot(error, after.standard_error))
    return LambdaChange(before, after.lambda_, (after.lambda_ - before) / both) if both > 0 else None
