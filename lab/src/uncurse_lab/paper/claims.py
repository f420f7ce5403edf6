"""The findings of the paper on click logs, and our verdict on each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from .tables import MAIN_BINS, OUTCOMES, PAPER_CALIBRATORS, Finding, Key, Samples, beside, paper, percent, pooled

_BINNED = ("calibration_error", "ece", "mce")


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: the mean of `statistic` of the sides is below zero."""

    name: str
    sides: tuple[tuple[str, int], ...]  # (variant, S) of each side
    statistic: Callable[..., Any]
    metrics: tuple[str, ...] = _BINNED
    calibrators: tuple[str, ...] = PAPER_CALIBRATORS


def _size(values: Any) -> Any:
    """Turn values so that their mean is positive: their mean is then |mean|, and differences stay paired."""
    return values * np.sign(np.mean(values))


def _smaller(one: Any, other: Any) -> Any:
    return _size(one) - _size(other)


def _alike(one: Any, vad: Any, original: Any) -> Any:
    """Return a value below zero if `one` differs from `vad` by less than half of what VAD changes."""
    return _size(one - vad) - _size(original - vad) / 2


_ORIGINAL, _VAD = ("original", 2), ("vad", 2)
CLAIMS = (
    Claim("the model over-predicts", (_ORIGINAL,), operator.neg, _BINNED[:1], PAPER_CALIBRATORS[:1]),
    Claim("a calibrator alone still over-predicts", (_ORIGINAL,), operator.neg, _BINNED[:1], PAPER_CALIBRATORS[1:]),
    Claim("VAD+ lowers the error", (_VAD, _ORIGINAL), _smaller),
    Claim("VAD+ lowers the log loss", (_VAD,), operator.pos, ("log_loss_reduction",)),
    Claim("S=3 is slightly better than S=2", (("vad", 3), _VAD), _smaller),
    *(Claim(f"S={s} is like S=2", (("vad", s), _VAD, _ORIGINAL), _alike) for s in (4, 5, 6)),
    Claim("VAD(p) is like VAD", (("vad_identity", 2), _VAD, _ORIGINAL), _alike),
)


def judge(dataset: str, alphas: Sequence[float], samples: Samples) -> Iterator[Finding]:
    """Yield each claim once for each metric and calibrator, judged at the largest α that the paper prints."""
    # Selections at smaller α are subsets, and other numbers of bins use the same rows: they are no further evidence.
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
    at, block = printed[-1], lcm(*(key.replicas for key in keys))
    series = [np.array([samples[key][place] for place in shared]) for key in keys]  # replications × α
    differences = [claim.statistic(*(values[:, a] for values in series)) for a in printed]
    ours = [float(values[:, at].mean()) for values in series]
    cells = [known[key, percent(alphas[at])][0] for key in theirs]
    mean, spread, over_worlds = pooled(dict(zip(shared, differences[-1], strict=True)), block)
    count, by_clicks = len({model // block for _, model in shared}), 0.0
    if over_worlds is not None:
        count, spread = len({world for world, _ in shared}), over_worlds
    elif (clicks := beside(samples, keys[0], "click_error", len(alphas))[at]) is not None:
        by_clicks = _click_error(claim, keys[0].metric, ours, clicks)
    # Two standard errors are clear, or more if there are few observations.
    clear = np.hypot(stdtrit(count - 1, ndtr(2.0)) * spread, 2 * by_clicks) if count > 2 else np.inf
    return Finding(
        claim.name,
        keys[0].metric,
        keys[0].calibrator,
        alphas[at],
        tuple(f"{key.variant} S={key.replicas}" for key in keys),
        float(mean),
        float(np.hypot(spread, by_clicks)),
        len(shared),
        OUTCOMES[0 if mean < -clear else 1 if mean > clear else 2],
        tuple(ours),
        tuple(cells),
        float(claim.statistic(*cells)),
        sum(float(np.mean(values)) < 0 for values in differences),
        len(printed),
    )


def _click_error(claim: Claim, metric: str, means: list[float], error: float) -> float:
    """Return the change of a statistic if the clicks of the selection, shared by all networks, change by one error.

    It multiplies every Σf/Σy by one factor, and nearly cancels between calibration errors of one sign.
    """
    if metric != "calibration_error":  # log losses are paired; for ECE and MCE only several worlds count clicks
        return error if metric == "log_loss_reduction" else 0.0
    here, relative = claim.statistic(*means), error / (1 + means[0])
    moved = (claim.statistic(*((1 + mean) * (1 + step) - 1 for mean in means)) for step in (-relative, relative))
    return float(max(abs(there - here) for there in moved))
