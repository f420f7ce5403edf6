"""The findings of the paper on click logs as claims, and their judgement by replications."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from .._types import Array
from .clicks_tables import CALIBRATORS, OUTCOMES, Finding, Key, Samples, beside, mean_and_error, paper, percent


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: the mean of `statistic` of the sides is below zero."""

    name: str
    metrics: tuple[str, ...]
    calibrators: tuple[str, ...]
    sides: tuple[tuple[tuple[str, int], ...], ...]  # (variant, S) of each side, for each form of the claim
    statistic: Callable[..., Any]


def _size(values: Any) -> Any:
    """Values turned so that their mean is positive: their mean is then |mean|, and differences stay paired."""
    return values * np.sign(np.mean(values))


_BINNED = ("calibration_error", "ece", "mce")
_ORIGINAL, _VAD, _VALUE = ("original", 2), ("vad", 2), ("vad_identity", 2)

CLAIMS = (
    Claim("the model over-predicts", _BINNED[:1], CALIBRATORS[:1], ((_ORIGINAL,),), lambda o: -o),
    Claim("a calibrator alone still over-predicts", _BINNED[:1], CALIBRATORS[1:], ((_ORIGINAL,),), lambda o: -o),
    Claim(
        "VAD+ lowers the error",
        _BINNED,
        CALIBRATORS,
        (*(((("vad", s), ("original", s))) for s in range(2, 7)), (_VALUE, _ORIGINAL)),
        lambda v, o: _size(v) - _size(o),
    ),
    Claim("VAD+ lowers the log loss", ("log_loss_reduction",), CALIBRATORS, ((_VAD,),), lambda v: v),
    Claim(
        "S=3 is slightly better than S=2", _BINNED, CALIBRATORS, ((("vad", 3), _VAD),), lambda a, b: _size(a) - _size(b)
    ),
    # Alike: apart by less than half of what VAD+ changes.
    Claim(
        "S=4, 5, 6 are like S=2",
        _BINNED,
        CALIBRATORS,
        tuple((("vad", s), _VAD, _ORIGINAL) for s in (4, 5, 6)),
        lambda a, v, o: _size(a - v) - _size(o - v) / 2,
    ),
    Claim(
        "VAD(p) is like VAD",
        _BINNED,
        CALIBRATORS,
        ((_VALUE, _VAD, _ORIGINAL),),
        lambda a, v, o: _size(a - v) - _size(o - v) / 2,
    ),
)


def judge(dataset: str, alphas: Sequence[float], samples: Samples) -> Iterator[Finding]:
    """Every claim at every place where the paper's tables make it, over the served models that all sides share."""
    known = paper(dataset)
    bins = sorted({key.bins for key in samples if key.bins is not None})
    for claim in CLAIMS:
        for metric, calibrator, sides in product(claim.metrics, claim.calibrators, claim.sides):
            for m in bins if metric in ("ece", "mce") else [None]:
                keys = [Key(metric, calibrator, variant, s, m) for variant, s in sides]
                shared = set.intersection(*(set(samples.get(key, ())) for key in keys))
                # The paper prints the calibrator alone once, for the pairs.
                theirs = [key._replace(replicas=2) if key.variant == "original" else key for key in keys]
                for a, alpha in enumerate(alphas):
                    cells = [known[key, percent(alpha)][0] for key in theirs if (key, percent(alpha)) in known]
                    if not shared or len(cells) < len(keys):
                        continue
                    series = [np.array([samples[key][model][a] for model in sorted(shared)]) for key in keys]
                    difference, error = map(float, mean_and_error(claim.statistic(*series)))
                    shift = beside(samples, keys[0], "row_error", len(alphas))[a] if m is None else None
                    of_rows = None if shift is None else _row_error(claim, series, shift)
                    clear = np.hypot(_clear(len(shared)) * error, 2 * (of_rows or 0.0)) if len(shared) > 2 else np.inf
                    outcome = OUTCOMES[0 if difference < -clear else 1 if difference > clear else 2]
                    yield Finding(
                        claim.name,
                        metric,
                        alpha,
                        calibrator,
                        m,
                        tuple(f"{variant} S={s}" for variant, s in sides),
                        difference,
                        error,
                        of_rows,
                        len(shared),
                        outcome,
                        tuple(float(values.mean()) for values in series),
                        tuple(cells),
                        float(claim.statistic(*cells)),
                    )


@cache
def _clear(count: int) -> float:
    """How many standard errors over so many replications are clear: two of a normal, more where they are few."""
    return float(stdtrit(count - 1, ndtr(2.0)))


def _row_error(claim: Claim, series: list[Array], error: float) -> float:
    """What one standard error in the clicks of the selection does to a statistic of calibration errors.

    All models are judged on the same test rows, so no number of replications averages that out. It multiplies every
    Σf/Σy alike, and so nearly cancels between errors of one sign.
    """
    means = [float(values.mean()) for values in series]
    here, relative = claim.statistic(*means), error / (1 + means[0])
    moved = (claim.statistic(*((1 + mean) * (1 + step) - 1 for mean in means)) for step in (-relative, relative))
    return float(max(abs(there - here) for there in moved))


__all__ = ["CLAIMS", "Claim", "judge"]
