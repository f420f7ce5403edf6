"""Calibrators that serve only as baselines: smoothed isotonic regression, and Bayesian binning into quantiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.calibration.binning import cuts_at_weight, edges_at, increasing_levels, isotonic_levels, steps
from uncurse.calibration.parametric import MIN_SLOPE, sample_of_rows
from uncurse.links import logistic, logit
from uncurse.maps import Curve, ScoreMap


def smooth_isotonic(logits: Array, labels: NDArray[Any], weights: Array | None = None) -> Curve:
    """Smoothed isotonic regression (Deng et al. 2020): straight lines between the means of isotonic levels."""
    sample = sample_of_rows(logits, labels, weights)
    starts, _ = isotonic_levels(sample.label / sample.weight, sample.weight)
    weight, label = np.add.reduceat(sample.weight, starts), np.add.reduceat(sample.label, starts)
    first, values = increasing_levels(weight, label)
    starts = starts[first]
    x = np.add.reduceat(sample.weight * sample.score, starts) / np.add.reduceat(sample.weight, starts)
    # Pool levels whose scores are equal up to rounding: a line through them would be arbitrarily steep.
    segments = np.flatnonzero(np.append(True, np.diff(x) > 1e-9 * (1 + np.abs(x[1:]))))
    share = np.add.reduceat(sample.weight, starts)
    x, values = (np.add.reduceat(share * v, segments) / np.add.reduceat(share, segments) for v in (x, values))
    level = logit(values)
    if len(x) == 1:
        return Curve(x.tolist(), level.tolist(), MIN_SLOPE, MIN_SLOPE)
    ends = np.diff(level)[[0, -1]] / np.diff(x)[[0, -1]]
    left, right = np.clip(ends, MIN_SLOPE, 1.0)  # extrapolate no more steeply than the score itself
    return Curve(x.tolist(), level.tolist(), float(left), float(right))


def bbq(logits: Array, labels: NDArray[Any], weights: Array | None = None, *, strict: bool = True) -> ScoreMap:
    """Bayesian binning into quantiles (Naeini et al. 2015): an average of equal-weight binnings by their posterior.

    Binnings have N^⅓/10 to 10·N^⅓ bins, N the effective number of rows. Each of B bins has a Beta prior of weight 2/B
    whose mean is the middle between the lowest and the highest probability of the bin.
    """
    from scipy.special import gammaln

    sample = sample_of_rows(logits, labels, weights)
    p, q = (np.maximum(logistic(l), 1e-300) for l in (sample.score, -sample.score))  # the prior must not vanish
    reached, count = np.cumsum(sample.weight), len(sample.score)
    cube = float(reached[-1]) ** (1 / 3)
    least, most = (min(size, count) for size in (max(1, int(cube / 10)), max(2, int(10 * cube))))
    models: dict[int, tuple[NDArray[np.intp], Array, float]] = {}  # by number of cuts: cuts, values, log evidence
    for size in range(least, most + 1):
        cuts = cuts_at_weight(reached, reached[-1] * np.arange(1, size) / size)
        if len(cuts) in models:
            continue
        starts = np.append(0, cuts)
        n, m = np.add.reduceat(sample.weight, starts), np.add.reduceat(sample.label, starts)
        highest = np.append(cuts, count) - 1
        prior = 2.0 / len(n)
        a, b = (prior * (x[starts] + x[highest]) / 2 for x in (p, q))
        evidence = gammaln(prior) - gammaln(n + prior) + gammaln(m + a) - gammaln(a) + gammaln(n - m + b) - gammaln(b)
        models[len(cuts)] = (cuts, (m + a) / (n + prior), float(evidence.sum()))
    evidences = np.array([model[2] for model in models.values()])
    posterior = np.exp(evidences - evidences.max())
    posterior /= posterior.sum()
    kept = [(model, share) for model, share in zip(models.values(), posterior, strict=True) if share > 1e-6]
    cuts = np.unique(np.concatenate([model[0] for model, _ in kept]))
    average = np.zeros(len(cuts) + 1)
    for (own, values, _), share in kept:
        average += share * values[np.searchsorted(own, np.append(0, cuts), side="right")]
    label = np.repeat(average, np.diff(np.concatenate([[0], cuts, [count]]))) * sample.weight
    return steps(sample, cuts, edges_at(sample, cuts), label, strict)


#: Baselines by name.
BASELINES: dict[str, Callable[..., ScoreMap]] = {"smooth-isotonic": smooth_isotonic, "bbq": bbq}
