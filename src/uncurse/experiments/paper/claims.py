"""The findings of the paper on click logs, and our verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import lcm
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from ..._types import Array
from .tables import MAIN_BINS, OUTCOMES, PAPER_CALIBRATORS, Finding, Key, Samples, beside, paper, percent, pooled


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: the mean of `statistic` of the sides is below zero."""

    name: str
    metrics: tuple[str, ...]
    calibrators: tuple[str, ...]
    sides: tuple[tuple[str, int], ...]  # (variant, S) of each side
    statistic: Callable[..., Any]


def _size(values: Any) -> Any:
    """Turn values so that their mean is positive: their mean is then |mean|, and differences stay paired."""
    return values * np.sign(np.mean(values))


def _alike(one: Any, vad: Any, original: Any) -> Any:
    """Return a value below zero if `one` differs from `vad` by less than half of what VAD changes."""
    return _size(one - vad) - _size(original - vad) / 2


_BINNED = ("calibration_error", "ece", "mce")
_ORIGINAL, _VAD = ("original", 2), ("vad", 2)

CLAIMS = (
    Claim("the model over-predicts", _BINNED[:1], PAPER_CALIBRATORS[:1], (_ORIGINAL,), lambda o: -o),
    Claim("a calibrator alone still over-predicts", _BINNED[:1], PAPER_CALIBRATORS[1:], (_ORIGINAL,), lambda o: -o),
    Claim("VAD+ lowers the error", _BINNED, PAPER_CALIBRATORS, (_VAD, _ORIGINAL), lambda v, o: _size(v) - _size(o)),
    Claim("VAD+ lowers the log loss", ("log_loss_reduction",), PAPER_CALIBRATORS, (_VAD,), lambda v: v),
    Claim(
        "S=3 is slightly better than S=2",
        _BINNED,
        PAPER_CALIBRATORS,
        (("vad", 3), _VAD),
        lambda a, b: _size(a) - _size(b),
    ),
    *(
        Claim(f"S={s} is like S=2", _BINNED, PAPER_CALIBRATORS, (("vad", s), _VAD, _ORIGINAL), _alike)
        for s in (4, 5, 6)
    ),
    Claim("VAD(p) is like VAD", _BINNED, PAPER_CALIBRATORS, (("vad_identity", 2), _VAD, _ORIGINAL), _alike),
)


def judge(dataset: str, alphas: Sequence[float], samples: Samples) -> Iterator[Finding]:
    """Yield each claim once for each metric and calibrator, judged at the largest α that the paper prints.

    Selections at smaller α are subsets of that one, and other numbers of bins use the same rows, so they would not be
    further evidence. The replications are those that all sides share.
    """
    for claim in CLAIMS:
        for metric, calibrator in product(claim.metrics, claim.calibrators):
            bins = MAIN_BINS if metric in ("ece", "mce") else None
            keys = [Key(metric, calibrator, variant, s, bins) for variant, s in claim.sides]
            found = _finding(claim, keys, alphas, samples, paper(dataset))
            if found is not None:
                yield found


def _finding(claim: Claim, keys: list[Key], alphas: Sequence[float], samples: Samples, known: Any) -> Finding | None:
    # The paper prints the calibrator alone once, for the pairs.
    theirs = [key._replace(replicas=2) if key.variant == "original" else key for key in keys]
    printed = [a for a, alpha in enumerate(alphas) if all((key, percent(alpha)) in known for key in theirs)]
    shared = sorted(set.intersection(*(set(samples.get(key, ())) for key in keys)))
    if not shared or not printed:
        return None
    at = printed[-1]
    differences = {}
    block = lcm(*(key.replicas for key in keys))
    for a in printed:
        series = [np.array([samples[key][place][a] for place in shared]) for key in keys]
        differences[a] = claim.statistic(*series)
    mean, network, world = pooled(dict(zip(shared, differences[at], strict=True)), block)
    difference = float(mean)
    if world is None:
        clicks = beside(samples, keys[0], "click_error", len(alphas))[at]
        by_clicks = 0.0 if clicks is None else _click_error(claim, keys[0].metric, series, clicks)
        blocks = len({model // block for _, model in shared})
        error = float(np.hypot(network, by_clicks))
        clear = float(np.hypot(_clear(blocks) * network, 2 * by_clicks)) if blocks > 2 else np.inf
    else:
        error, worlds = float(world), len({w for w, _ in shared})
        clear = _clear(worlds) * error if worlds > 2 else np.inf
    cells = [known[key, percent(alphas[at])][0] for key in theirs]
    return Finding(
        claim.name,
        keys[0].metric,
        keys[0].calibrator,
        alphas[at],
        tuple(f"{key.variant} S={key.replicas}" for key in keys),
        difference,
        error,
        len(shared),
        OUTCOMES[0 if difference < -clear else 1 if difference > clear else 2],
        tuple(float(values.mean()) for values in series),
        tuple(cells),
        float(claim.statistic(*cells)),
        sum(float(np.mean(differences[a])) < 0 for a in printed),
        len(printed),
    )


@cache
def _clear(count: int) -> float:
    """Return how many standard errors over so many observations are clear: two, or more if there are few."""
    return float(stdtrit(count - 1, ndtr(2.0)))


def _click_error(claim: Claim, metric: str, series: list[Array], error: float) -> float:
    """Return the change of a statistic if the clicks of the selection change by one standard error.

    All networks of a world are judged on the same test rows, so more networks do not reduce it. It multiplies every
    Σf/Σy by one factor, and nearly cancels between calibration errors of one sign. The error of a log-loss reduction
    is that of paired losses. In differences of ECE and MCE it is not counted; several worlds count it.
    """
    if metric != "calibration_error":
        return error if metric == "log_loss_reduction" else 0.0
    means = [float(values.mean()) for values in series]
    here, relative = claim.statistic(*means), error / (1 + means[0])
    moved = (claim.statistic(*((1 + mean) * (1 + step) - 1 for mean in means)) for step in (-relative, relative))
    return float(max(abs(there - here) for there in moved))
