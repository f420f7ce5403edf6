"""Calibrators with one value per bin. A bin holds the scores from one cut up to the next; a cut is a position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..links import logistic, logit
from ..maps import ScoreMap, Steps
from ..validation import check_choice, check_count, check_flag, check_share
from .parametric import MIN_SLOPE, Sample, platt

_MAX_BINS = 1 << 20  # limits memory to tens of megabytes
_CERTAIN = 1e-12  # bins without positives or negatives get this probability, or 1 minus it, if not strict


def histogram(
    sample: Sample,
    *,
    n_bins: int = 50,
    strategy: str = "quantile",
    refine_top: float | None = None,
    strict: bool = True,
) -> ScoreMap:
    """Histogram binning (Zadrozny and Elkan 2001): the mean label of each bin.

    ``strategy="quantile"`` makes bins of equal weight, ``"uniform"`` bins of equal width in probability. `n_bins` is
    limited to the number of rows. ``refine_top=0.001`` halves the last bin until it holds at most that share of the
    weight, so that it is not wider than the selection.
    """
    _check_rising(sample)
    cuts, edges = make_bins(sample, n_bins, strategy, refine_top)
    return steps(sample, cuts, edges, sample.label, strict)


def scaling_binning(
    sample: Sample,
    *,
    n_bins: int = 50,
    strategy: str = "quantile",
    refine_top: float | None = None,
    strict: bool = True,
) -> ScoreMap:
    """Scaling-binning (Kumar et al. 2019): Platt scaling, then the mean of its output in each bin of `histogram`."""
    scaled = replace(sample, label=sample.weight * logistic(platt(sample).transform(sample.score)))
    return histogram(scaled, n_bins=n_bins, strategy=strategy, refine_top=refine_top, strict=strict)


def isotonic(sample: Sample, *, strict: bool = True) -> ScoreMap:
    """Isotonic regression (Zadrozny and Elkan 2002): the best non-decreasing step function."""
    _check_rising(sample)
    cuts = isotonic_levels(sample.label / sample.weight, sample.weight)[0][1:]
    return steps(sample, cuts, edges_at(sample, cuts), sample.label, strict)


def _check_rising(sample: Sample) -> None:
    """Raise an error if labels fall as the ranks of the scores rise, beyond chance."""
    total = sample.weight.sum()
    rank, rate = np.cumsum(sample.weight) - (sample.weight + total) / 2, sample.label.sum() / total
    if sample.label @ rank < -4 * np.sqrt(rate * (1 - rate) * (sample.weight @ np.square(rank))):
        raise UncurseError("labels fall as scores rise; is the label, or the score, reversed?")


def make_bins(sample: Sample, n_bins: int, strategy: str, refine_top: float | None) -> tuple[NDArray[np.intp], Array]:
    """Return the first position of each bin but the lowest, ascending, and the scores between bins; no bin is empty."""
    check_choice("strategy", strategy, ("quantile", "uniform"))
    reached, count = np.cumsum(sample.weight), len(sample.score)
    total = reached[-1]
    n_bins = min(check_count(n_bins, "n_bins"), max(count, round(total)), _MAX_BINS)
    shares = np.arange(1, n_bins) / n_bins
    if strategy == "quantile":
        cuts = cuts_at_weight(reached, total * shares)
        edges = edges_at(sample, cuts)
    else:
        edges = np.asarray(logit(shares), np.float64)
        cuts = np.searchsorted(sample.score, edges)
        # Of several edges without a row between them keep the highest.
        last = (np.diff(cuts, append=count) > 0) & (cuts > 0)
        cuts, edges = cuts[last], edges[last]
    if refine_top is not None:
        share = check_share(refine_top, "refine_top")
        below, halves = float(reached[cuts[-1] - 1]) if len(cuts) else 0.0, []
        while total - below > share * total * (1 + 1e-9):
            below = (total + below) / 2
            halves.append(below)
        more = np.unique(np.minimum(_positions(reached, np.array(halves)), count - 1))
        more = more[more > cuts.max(initial=0)]
        cuts, edges = np.append(cuts, more), np.append(edges, edges_at(sample, more))
    return cuts, edges


def cuts_at_weight(reached: Array, targets: Array) -> NDArray[np.intp]:
    """Return the distinct cuts inside the sample above the scores at which the cumulative weight reaches targets."""
    cuts = np.unique(_positions(reached, targets))
    return cuts[cuts < len(reached)]


def _positions(reached: Array, targets: Array) -> NDArray[np.intp]:
    return np.searchsorted(reached, targets * (1 - 1e-12)) + 1


def edges_at(sample: Sample, cuts: NDArray[np.intp]) -> Array:
    """Return the middle between the scores on either side of each cut."""
    below, above = sample.score[cuts - 1], sample.score[cuts]
    middle = below / 2 + above / 2
    # Adjacent floats have no middle. The edge is then the upper one, because a score on an edge is above it.
    return np.where(middle > below, middle, above)


def isotonic_levels(values: Array, weight: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the first position of each level of the isotonic regression, and the levels."""
    from scipy.optimize import isotonic_regression  # takes a third of a second to import

    result: Any = isotonic_regression(values, weights=weight)
    starts = np.asarray(result.blocks[:-1], np.intp)
    return starts, np.asarray(result.x[starts])


def increasing_levels(weight: Array, label: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the first bin of each level, and strictly increasing levels inside (0, 1).

    A bin without positives or without negatives gets half a row of each kind; bins whose rates decrease are pooled.
    """
    certain = np.minimum(label, weight - label) <= 1e-9 * weight  # sums of weights are rarely exactly zero
    return isotonic_levels(np.where(certain, (label + 0.5) / (weight + 1), label / weight), weight)


def steps(sample: Sample, cuts: NDArray[np.intp], edges: Array, label: Array, strict: bool) -> ScoreMap:
    """Return the map with the mean label of each bin."""
    starts = np.append(0, cuts)
    weight, label = np.add.reduceat(sample.weight, starts), np.add.reduceat(label, starts)
    if check_flag(strict, "strict"):
        first, values = increasing_levels(weight, label)
        edges = edges[first[1:] - 1]
    else:
        values = np.clip(label / weight, _CERTAIN, 1 - _CERTAIN)
    slope = MIN_SLOPE if strict else 0.0
    return Steps(edges.tolist(), logit(values).tolist(), slope, sample.mean, monotone=strict)
