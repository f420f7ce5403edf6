"""Choose the half-life of evidence by the log loss on the next period."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence, Moments, merged
from ..evidence.decay import check_half_life
from ..links import logistic
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
        Standard error of the difference, from its spread between periods; from the noise of the labels if a single
        period is judged.

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
        """Return plain data; an infinite half-life becomes None.

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
        Chosen half-life in periods: that with the smallest log loss, or the longest one, if its log loss is not higher
        by more than the noise of the labels. Infinite if the evidence should not decay.
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
    chosen, unless the longest one, by default no decay, is worse by less than the standard error that the noise of the
    labels causes: decay costs rows, so chance must not choose it. Calibrator and judgement see the same kind of rows. A
    map of the pool would be judged on rows that it was not fitted for, if labelled rows and pool differ.

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
    judged = periods[2:]
    log_odds: list[list[Array]] = [[] for _ in judged]  # of each period, by candidate
    for half_life in candidates:
        past = merged(periods[:2], half_life)
        for period, found in zip(judged, log_odds, strict=True):
            assert past.cells is not None
            assert period.cells is not None
            score_map = fit_calibrator(calibrator, past.cells)
            found.append(np.asarray(score_map.transform(period.cells.score), np.float64))
            past = merged([past, period], half_life)
            if progress is not None:
                progress(1)
    return _choice(candidates, judged, [np.array(found) for found in log_odds])


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


def _log_losses(cells: Cells, log_odds: Array) -> Array:
    """Return log losses, summed over the rows of a period; log odds have shape (candidates, cells)."""
    assert cells.label is not None
    return np.logaddexp(0.0, -log_odds) @ cells.label + np.logaddexp(0.0, log_odds) @ (cells.weight - cells.label)


def _label_noise(cells: Cells, log_odds: Array, best: int) -> Array:
    """Return variances of the difference to the best candidate: a label moves it by the difference of the log odds."""
    rate = logistic(log_odds[best])
    variances: Array = np.square(log_odds - log_odds[best]) @ (cells.weight_squares * rate * (1 - rate))
    return variances


def _choice(candidates: list[float], judged: list[Evidence], log_odds: list[Array]) -> HalfLifeChoice:
    """Choose by total losses; the longest half-life, which is the first, unless another is better than by chance."""
    periods = [(part.cells, found) for part, found in zip(judged, log_odds, strict=True) if part.cells is not None]
    losses = np.array([_log_losses(*period) for period in periods])
    total, count, weight = losses.sum(axis=0), len(losses), sum(part.weight for part in judged)

    def label_errors(chosen: int) -> Array:
        return np.sqrt(sum(_label_noise(*period, chosen) for period in periods))

    best = int(np.argmin(total))
    # The noise of the labels, not the spread between periods: drift that comes in one jump makes that spread large.
    if total[0] - total[best] <= label_errors(best)[0] + 1e-12 * total[best]:
        best = 0
    differences = losses - losses[:, [best]]
    errors = math.sqrt(count) * np.std(differences, axis=0, ddof=1) if count > 1 else label_errors(best)
    columns = (total, differences.sum(axis=0), errors)
    found = zip(candidates, *(column / weight for column in columns), strict=True)
    compared = tuple(HalfLifeCandidate(*map(float, values)) for values in found)
    return HalfLifeChoice(candidates[best], count, sum(part.rows for part in judged), compared)
