"""Calibrators with one value per bin, and the bins themselves.

A bin ends at a *cut*, a position in the sequence of cells: i is the boundary below cell i, and i + s a share s inside
cell i. Cells of a grid can be split in proportion; a cell of a single score cannot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..evidence import Cells
from ..links import logistic, logit
from ..maps import Curve, ScoreMap, Steps
from ..validation import check_choice, check_count, check_flag, check_share
from .parametric import MIN_SLOPE, effective_columns, platt

_MAX_BINS = 1 << 20  # 64 per cell of the grid; limits memory to tens of megabytes
_CERTAIN = 1e-12  # bins without positives or negatives get this probability, or 1 minus it, if not strict


def histogram(
    cells: Cells,
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
    _, weight, label = effective_columns(cells)
    cuts, edges = make_bins(cells, n_bins, strategy, refine_top)
    return _steps(cells, edges, sums_between(cuts, weight), sums_between(cuts, label), strict)


def scaling_binning(
    cells: Cells,
    *,
    n_bins: int = 50,
    strategy: str = "quantile",
    refine_top: float | None = None,
    strict: bool = True,
) -> ScoreMap:
    """Scaling-binning (Kumar et al. 2019): Platt scaling, then the mean of its output in each bin of `histogram`."""
    score, weight, _ = effective_columns(cells)
    scaled = logistic(platt(cells).transform(score))
    cuts, edges = make_bins(cells, n_bins, strategy, refine_top)
    return _steps(cells, edges, sums_between(cuts, weight), sums_between(cuts, weight * scaled), strict)


def isotonic(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Isotonic regression (Zadrozny and Elkan 2002): the best non-decreasing step function."""
    _, weight, label = effective_columns(cells)
    starts = _isotonic_starts(label / weight, weight)[0]
    edges = scores_at(cells, starts[1:].astype(np.float64))
    return _steps(cells, edges, np.add.reduceat(weight, starts), np.add.reduceat(label, starts), strict)


def smooth_isotonic(cells: Cells) -> ScoreMap:
    """Smoothed isotonic regression (Deng et al. 2020): straight lines between the means of isotonic levels."""
    score, weight, label = effective_columns(cells)
    starts = _isotonic_starts(label / weight, weight)[0]
    first, values = _increasing(np.add.reduceat(weight, starts), np.add.reduceat(label, starts))
    starts = starts[first]
    x = np.add.reduceat(weight * score, starts) / np.add.reduceat(weight, starts)
    # Pool levels whose scores are equal up to rounding: a line through them would be arbitrarily steep.
    apart = np.append(True, np.diff(x) > 1e-9 * (1 + np.abs(x[1:])))
    if not apart.all():
        groups = np.flatnonzero(apart)
        share = np.add.reduceat(weight, starts)
        x, values = (np.add.reduceat(share * v, groups) / np.add.reduceat(share, groups) for v in (x, values))
    level = logit(values)
    if len(x) == 1:
        return Curve(x.tolist(), level.tolist(), MIN_SLOPE, MIN_SLOPE)
    ends = np.diff(level)[[0, -1]] / np.diff(x)[[0, -1]]
    left, right = np.clip(ends, MIN_SLOPE, 1.0)  # extrapolate no more steeply than the score itself
    return Curve(x.tolist(), level.tolist(), float(left), float(right))


def bbq(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Bayesian binning into quantiles (Naeini et al. 2015): an average of equal-weight binnings by their posterior.

    Binnings have N^⅓/10 to 10·N^⅓ bins, N the effective number of rows. Each of B bins has a Beta prior of weight 2/B
    whose mean is the middle between the lowest and the highest probability of the bin.
    """
    from scipy.special import gammaln

    score, weight, label = effective_columns(cells)
    total, splittable = _cumulative(weight), _splittable(cells)
    p, q = (np.maximum(logistic(l), 1e-300) for l in (score, -score))  # the prior must not vanish
    cube = float(total[-1]) ** (1 / 3)
    least, most = (min(size, len(score)) for size in (max(1, int(cube / 10)), max(2, int(10 * cube))))
    models: dict[int, tuple[Array, Array, float]] = {}  # by number of cuts: cuts, values, log evidence
    for size in range(least, most + 1):
        cuts = _interior(_cuts_at_weight(total, splittable, total[-1] * np.arange(1, size) / size), len(score))
        if len(cuts) in models:
            continue
        n, m = sums_between(cuts, weight), sums_between(cuts, label)
        lowest = np.append(0, cuts).astype(np.intp)
        highest = np.append(np.ceil(cuts), len(score)).astype(np.intp) - 1
        prior = 2.0 / len(n)
        a, b = (prior * (x[lowest] + x[highest]) / 2 for x in (p, q))
        evidence = gammaln(prior) - gammaln(n + prior) + gammaln(m + a) - gammaln(a) + gammaln(n - m + b) - gammaln(b)
        models[len(cuts)] = (cuts, (m + a) / (n + prior), float(evidence.sum()))
    evidences = np.array([model[2] for model in models.values()])
    posterior = np.exp(evidences - evidences.max())
    posterior /= posterior.sum()
    kept = [(model, share) for model, share in zip(models.values(), posterior, strict=True) if share > 1e-6]
    cuts = np.unique(np.concatenate([model[0] for model, _ in kept]))
    average = np.zeros(len(cuts) + 1)
    for (ends, values, _), share in kept:
        average += share * values[np.searchsorted(ends, np.append(-1.0, cuts), side="right")]
    n = sums_between(cuts, weight)
    return _steps(cells, scores_at(cells, cuts), n, average * n, strict)


# ---------------------------------------------------------------------------- bins


def make_bins(cells: Cells, n_bins: int, strategy: str, refine_top: float | None) -> tuple[Array, Array]:
    """Return the cuts between bins, ascending, and the scores there; no bin is empty.

    >>> make_bins(Cells().update([0.0, 1.0, 2.0, 3.0]), 2, "quantile", None)
    (array([2.]), array([1.5]))
    """
    check_choice("strategy", strategy, ("quantile", "uniform"))
    n_bins = min(check_count(n_bins, "n_bins"), max(len(cells), round(cells.effective_rows)), _MAX_BINS)
    shares = np.arange(1, n_bins) / n_bins
    total, splittable = _cumulative(cells.weight), _splittable(cells)
    if strategy == "quantile":
        cuts = _interior(_cuts_at_weight(total, splittable, total[-1] * shares), len(cells))
        edges = scores_at(cells, cuts)
    else:
        edges = np.asarray(logit(shares), np.float64)
        cuts = _cuts_at_score(cells, edges)
        # Of several edges without a row between them keep the highest.
        last = (np.diff(cuts, append=np.inf) > 0) & (cuts > 0) & (cuts < len(cells))
        cuts, edges = cuts[last], edges[last]
    if refine_top is not None:
        share = check_share(refine_top, "refine_top")
        below, halves = total[-1] - sums_between(cuts, cells.weight)[-1], []
        while total[-1] - below > share * total[-1] * (1 + 1e-9):
            below = (total[-1] + below) / 2
            halves.append(below)
        more = np.minimum(_cuts_at_weight(total, splittable, np.array(halves)), len(cells) - 1.0)
        more = np.unique(more[more > cuts.max(initial=0.0)])
        cuts, edges = np.append(cuts, more), np.append(edges, scores_at(cells, more))
    return cuts, edges


def scores_at(cells: Cells, cuts: Array) -> Array:
    """Return the score at each cut.

    >>> scores_at(Cells().update([0.0, 1.0]), np.array([1.0]))
    array([0.5])
    """
    i = cuts.astype(np.intp)
    share = cuts - i
    score = cells.score
    low, high = cells.bounds
    middle = score[i - 1] / 2 + score[i] / 2
    # Adjacent floats have no middle. The edge is then the upper one, because a score on an edge is above it.
    middle = np.where(middle > score[i - 1], middle, score[i])
    return np.where(share > 0, low[i] + share * (high[i] - low[i]), middle)


def sums_between(cuts: Array, column: Array) -> Array:
    """Sum a column of cells between consecutive cuts.

    >>> sums_between(np.array([1.5]), np.array([1.0, 2.0, 4.0]))
    array([2., 5.])
    """
    # Differences of cumulative sums would lose bins that are light beside the rows below them.
    i = cuts.astype(np.intp)
    starts = np.append(0, i)
    sums = np.where(np.diff(starts, append=len(column)) > 0, np.add.reduceat(column, starts), 0.0)
    below_cut = (cuts - i) * column[i]
    sums[:-1] += below_cut
    sums[1:] -= below_cut
    return sums


def _cumulative(column: Array) -> Array:
    return np.append(0.0, np.cumsum(column))


def _splittable(cells: Cells) -> NDArray[np.bool_]:
    low, high = cells.bounds
    return high > low


def _interior(cuts: Array, cells: int) -> Array:
    """Distinct cuts with a cell on either side; `_cuts_at_weight` gives none below the first cell."""
    return np.unique(cuts[cuts < cells])


def _cuts_at_weight(total: Array, splittable: NDArray[np.bool_], targets: Array) -> Array:
    """Cuts where the cumulative weight reaches the targets; above a cell that cannot be split."""
    i = np.searchsorted(total, targets * (1 - 1e-12)) - 1
    share = np.clip((targets - total[i]) / (total[i + 1] - total[i]), 0.0, 1.0)
    return np.asarray(i + np.where(splittable[i], share, 1.0), np.float64)


def _cuts_at_score(cells: Cells, edges: Array) -> Array:
    low, high = cells.bounds
    i = np.searchsorted(high, edges)
    inside = np.minimum(i, len(low) - 1)
    width = (high - low)[inside]
    share = np.clip((edges - low[inside]) / np.where(width > 0, width, np.inf), 0.0, 1.0)
    return np.asarray(i + np.where(i < len(low), share, 0.0), np.float64)


# ---------------------------------------------------------------------------- values of bins


def _isotonic_starts(values: Array, weight: Array) -> tuple[NDArray[np.intp], Array]:
    """First position of each level of the isotonic regression, and the levels."""
    from scipy.optimize import isotonic_regression  # takes a third of a second to import

    result: Any = isotonic_regression(values, weights=weight)
    starts = np.asarray(result.blocks[:-1], np.intp)
    return starts, np.asarray(result.x[starts])


def _increasing(weight: Array, label: Array) -> tuple[NDArray[np.intp], Array]:
    """Strictly increasing levels inside (0, 1): first bin of each level, and the levels.

    A bin without positives or without negatives gets half a row of each kind; bins whose rates decrease are pooled.
    """
    certain = np.minimum(label, weight - label) <= 1e-9 * weight  # sums of weights are rarely exactly zero
    return _isotonic_starts(np.where(certain, (label + 0.5) / (weight + 1), label / weight), weight)


def _steps(cells: Cells, edges: Array, weight: Array, label: Array, strict: bool) -> ScoreMap:
    if check_flag(strict, "strict"):
        first, values = _increasing(weight, label)
        edges = edges[first[1:] - 1]
    else:
        values = np.clip(label / weight, _CERTAIN, 1 - _CERTAIN)
    center = float(np.average(cells.score, weights=cells.weight))
    return Steps(edges.tolist(), logit(values).tolist(), MIN_SLOPE if strict else 0.0, center, monotone=strict)
