"""Choose the half-life of evidence by the log loss on the next period."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence, Moments, merged
from ..evidence.times import check_half_life
from ..maps import ScoreMap
from .calibrators import fit_calibrator

#: Half-lives that are compared, in periods, besides that of evidence that does not decay.
HALF_LIVES = (8.0, 4.0, 2.0, 1.0, 0.5)
MIN_PERIODS = 3  # the first has no past, and with one period before it all half-lives agree


@dataclass(frozen=True)
class HalfLifeCandidate:
    """Log loss of one half-life.

    Parameters
    ----------
    half_life : float
        Half-life in periods; infinite if nothing decays.
    log_loss : float
        Mean log loss over the rows of the judged periods.
    difference : float
        `log_loss` minus that of the chosen half-life.
    standard_error : float
        Standard error of the difference, from its spread between periods; NaN if a single period is judged.

    Examples
    --------
    >>> HalfLifeCandidate(2.0, 0.31, 0.002, 0.001).difference
    0.002
    """

    half_life: float
    log_loss: float
    difference: float
    standard_error: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; an infinite half-life and an unknown standard error become None.

        Returns
        -------
        dict
        """
        return {name: value if math.isfinite(value) else None for name, value in vars(self).items()}


@dataclass(frozen=True)
class HalfLifeChoice:
    """Result of `choose_half_life`.

    Parameters
    ----------
    half_life : float
        Half-life with the smallest log loss, in periods; infinite if the evidence should not decay.
    periods : int
        Number of periods that judged the half-lives.
    rows : int
        Number of labelled rows in these periods.
    candidates : tuple of HalfLifeCandidate
        All half-lives that were compared, from the longest to the shortest.

    Examples
    --------
    >>> HalfLifeChoice(math.inf, 2, 1000, ()).to_dict()["half_life"] is None
    True
    """

    half_life: float
    periods: int
    rows: int
    candidates: tuple[HalfLifeCandidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Returns
        -------
        dict
        """
        chosen = self.half_life if math.isfinite(self.half_life) else None
        candidates = [candidate.to_dict() for candidate in self.candidates]
        return {"half_life": chosen, "periods": self.periods, "rows": self.rows, "candidates": candidates}


def choose_half_life(
    labelled: Sequence[Evidence],
    *,
    calibrator: str = "spline",
    half_lives: Sequence[float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> HalfLifeChoice:
    """Choose the half-life of evidence by the log loss on the next period.

    For every period from the third on, a calibrator of the served score is fitted on the periods before it, with each
    half-life, and judged by the log loss of the labelled rows of this period. The half-life with the smallest total is
    chosen. Calibrator and judgement see the same kind of rows. A map of the pool would be judged on rows that it was
    not fitted for, if labelled rows and pool differ.

    Parameters
    ----------
    labelled : sequence of Evidence
        Evidence with labels of three or more periods, such as days, in order of time.
    calibrator : str, default="spline"
        Calibrator, see `calibrate`. The spline is the curve that `Tower` fits to labels.
    half_lives : sequence of float, optional
        Half-lives to compare, in periods; by default 0.5, 1, 2, 4 and 8, as far as they are shorter than the number of
        periods, and infinity (no decay).
    progress : callable, optional
        Called with 1 after each fit, of which there are (periods − 2) · (number of half-lives).

    Returns
    -------
    HalfLifeChoice

    Examples
    --------
    >>> from uncurse.evidence import from_arrays
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(6, 20_000, 1))
    >>> drift = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])[:, None]  # the rate rises on the fourth day
    >>> clicks = rng.random((6, 20_000)) < 1 / (1 + np.exp(-scores[:, :, 0] - drift))
    >>> choose_half_life([from_arrays(s, y) for s, y in zip(scores, clicks)]).half_life
    0.5
    """
    for name, value in (("labelled", labelled), ("half_lives", [] if half_lives is None else half_lives)):
        if not isinstance(value, list | tuple):
            raise UncurseError(f"{name} is a {type(value).__name__}; pass a list")
    if len(labelled) < MIN_PERIODS:
        raise UncurseError(
            f"there are labels of {len(labelled)} periods, and a half-life is chosen from {MIN_PERIODS} or more"
        )
    periods = [_only_cells(part) for part in labelled]
    if half_lives is None:
        half_lives = candidates_for(len(periods))
    candidates = sorted({check_half_life(h) for h in half_lives}, reverse=True)
    if not candidates:
        raise UncurseError("there is no half-life to compare; pass at least one")
    losses = np.empty((len(periods) - 2, len(candidates)))
    for i, half_life in enumerate(candidates):
        past = merged(periods[:2], half_life)
        for t, period in enumerate(periods[2:]):
            assert past.cells is not None
            losses[t, i] = _log_loss(fit_calibrator(calibrator, past.cells), period)
            past = merged([past, period], half_life)
            if progress is not None:
                progress(1)
    judged = periods[2:]
    return _choice(candidates, losses, sum(part.weight for part in judged), sum(part.rows for part in judged))


def candidates_for(periods: int) -> list[float]:
    """Return the half-lives that are compared by default: those shorter than the number of periods, and infinity."""
    return [math.inf, *(h for h in HALF_LIVES if h < periods)]


def _only_cells(part: Evidence) -> Evidence:
    if not isinstance(part, Evidence):
        raise UncurseError(f"a period is a {type(part).__name__}; pass Evidence")
    cells = part.require("cells", "collect logits or probabilities")
    if cells.label is None:
        raise UncurseError("this evidence holds no labels; collect it with its label column")
    # Sources do not matter here, and merging would warn of them for every candidate.
    return replace(part, moments=Moments(part.spec.link), replica_counts=None, groups={}, sources=())


def _log_loss(score_map: ScoreMap, period: Evidence) -> float:
    """Return the log loss, summed over the rows of a period."""
    cells = period.cells
    assert cells is not None
    assert cells.label is not None
    log_odds = score_map.transform(cells.score)
    negatives = cells.weight - cells.label
    return float(cells.label @ np.logaddexp(0.0, -log_odds) + negatives @ np.logaddexp(0.0, log_odds))


def _choice(candidates: list[float], losses: Array, weight: float, rows: int) -> HalfLifeChoice:
    """Choose by total losses, shape (periods, candidates); of equal ones the longest half-life."""
    total = losses.sum(axis=0)
    best = int(np.argmax(total <= total.min() * (1 + 1e-12)))
    differences = losses - losses[:, [best]]
    count = len(losses)
    spread = np.std(differences, axis=0, ddof=1) if count > 1 else np.full(len(candidates), np.nan)
    columns = (total, differences.sum(axis=0), math.sqrt(count) * spread)
    found = zip(candidates, *(column / weight for column in columns), strict=True)
    compared = tuple(HalfLifeCandidate(*map(float, values)) for values in found)
    return HalfLifeChoice(candidates[best], count, rows, compared)
