"""Calibrators: labelled `Cells` on the logit to a score map.

Each is one function ``(cells, *, strict=True, ...) -> ScoreMap``. With ``strict`` the map can be served:
strictly increasing (bins that fall are pooled, ties are broken by the raw score) and never certain (a bin
without positives, or without negatives, counts half a row of the other kind). ``strict=False`` is the
textbook's answer, bins that fall and all; only a probability of exactly 0 or 1 is moved, to 1e-12.

With two classes, Dirichlet calibration (Kull et al. 2019) is the same family as beta calibration: use ``beta``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells
from ..links import logistic, logit
from ..maps import Affine, Curve, ScoreMap, Steps, compose, logit_knots
from ..validation import check_choice
from .bins import at_weight, bins, edges_at, inner, running, totals, wide_cells
from .logistic import fit_logistic
from .spline import fit_smooth

_TIE = 1e-6  # the slope inside a step: enough to break ties, too little to matter
_EDGE = 1e-12  # the most certain a textbook bin may be


def calibrate(
    method: str,
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    scale: str = "logit",
    sample_weight: ArrayLike | None = None,
    exact: bool | None = None,
    **options: Any,
) -> ScoreMap:
    """Fit one calibrator by name.

    Parameters
    ----------
    method
        One of ``platt``, ``temperature``, ``beta``, ``histogram``, ``scaling-binning``, ``isotonic``,
        ``smooth-isotonic``, ``bbq``, ``spline``.
    scores, labels
        Served scores of shape (n,) on `scale` and their labels, 0 or 1.
    sample_weight
        A weight counts rows: 2 is the row twice.
    exact
        Exact cells or the grid; by default exact up to 2^17 rows.
    options
        Those of the calibrator, such as ``n_bins=50`` or ``strict=False``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(-1, 1, 20_000)
    >>> clicks = rng.random(20_000) < logistic(truth)
    >>> too_steep = calibrate("platt", 2 * truth, clicks)
    >>> round(too_steep.slope, 2)
    0.5
    """
    cells = Cells(exact=exact).update(scores, labels, scale=scale, sample_weight=sample_weight)
    return compose(fit(method, cells, **options), scale=scale)


def fit(method: str, cells: Cells, **options: Any) -> ScoreMap:
    """Fit the calibrator `method` to labelled cells on the logit; an unknown option is an error."""
    if method == "dirichlet":
        raise UncurseError("with two classes Dirichlet calibration is beta calibration; use 'beta'")
    function = CALIBRATORS[check_choice("calibrator", method, tuple(CALIBRATORS))]
    known = [name for name in inspect.signature(function).parameters if name != "cells"]
    for name in options:
        if name not in known:
            raise UncurseError(f"{method} has no option {name!r}; it takes {', '.join(known)}")
    if cells.scale != "logit":
        raise UncurseError(f"calibrators need cells on the logit, not on the {cells.scale} scale")
    labels = cells.label
    if labels is None:
        raise UncurseError(f"{method} needs labels; update the cells with scores and labels")
    for missing, count in (("positives", labels.sum()), ("negatives", (cells.weight - labels).sum())):
        if count <= 0:
            raise UncurseError(f"the labels hold no {missing}; collect rows until both kinds are there")
    return function(cells, **options)


# ---------------------------------------------------------------------------- parametric


def platt(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Platt scaling on the logit: logistic regression, no penalty, no target smoothing."""
    l, w, y = _columns(cells)
    center, spread = _standard(l, w, "platt")
    _check_overlap(l, w, y, "platt")
    slope, intercept = fit_logistic(np.stack([(l - center) / spread, np.ones_like(l)]), w, y).coefficients / [
        spread,
        1.0,
    ]
    return Affine(_rising(slope, "platt"), float(intercept - slope * center))


def temperature(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Temperature scaling: one slope on the logit."""
    l, w, y = _columns(cells)
    size = float(np.sqrt(w @ np.square(l) / w.sum()))
    if size == 0:
        raise UncurseError("every score is 0, so a temperature changes nothing; use another calibrator")
    # The likelihood rises for ever where no row contradicts the sign of the score, or every row does.
    agree, contradict = (
        bool(((l > 0) & (u > 0)).any() or ((l < 0) & (v > 0)).any()) for u, v in ((y, w - y), (w - y, y))
    )
    if not contradict:
        raise UncurseError("temperature has no finite fit: the sign of the score predicts every label; use 'isotonic'")
    if not agree:
        raise UncurseError("temperature has no finite fit: every label contradicts its score; is one turned round?")
    (slope,) = fit_logistic(l[None] / size, w, y).coefficients / size
    return Affine(_rising(slope, "temperature"), 0.0)


def beta(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Beta calibration (Kull et al. 2017): logit q = a log p − b log(1 − p) + c with a, b ≥ 0."""
    l, w, y = _columns(cells)
    _standard(l, w, "beta")
    _check_overlap(l, w, y, "beta")
    low, high = -np.logaddexp(0.0, -l), np.logaddexp(0.0, l)  # log p, −log(1 − p)
    ones = np.ones_like(l)
    a, b, c = fit_logistic(np.stack([low, high, ones]), w, y).coefficients
    if a < 0:
        a, (b, c) = 0.0, fit_logistic(np.stack([high, ones]), w, y).coefficients
    elif b < 0:
        b, (a, c) = 0.0, fit_logistic(np.stack([low, ones]), w, y).coefficients
    _rising(a + b, "beta")
    least = _TIE if strict else 0.0
    a, b = max(a, least), max(b, least)
    # Linear pieces of 256 are wrong by 2e-5 |a − b| at most, and outside the knots the function is a straight line.
    x = logit_knots(int(256 * np.clip(np.sqrt(abs(a - b)), 1, 8)))
    q = -a * np.logaddexp(0.0, -x) + b * np.logaddexp(0.0, x) + c
    return Curve(x.tolist(), q.tolist(), float(a), float(b))


def spline(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """A penalised spline of the log odds: Platt's line where labels are few, a smooth curve where they show one."""
    l, w, y = _columns(cells)
    _check_overlap(l, w, y, "spline")
    platt(cells)  # says what is wrong where labels fall as scores rise
    return fit_smooth(l, w, y).map()


def _standard(l: Array, w: Array, method: str) -> tuple[float, float]:
    center = float(w @ l / w.sum())
    spread = float(np.sqrt(w @ np.square(l - center) / w.sum()))
    if len(l) < 2 or spread <= 1e-12 * max(1.0, abs(center)):
        raise UncurseError(
            f"every score is {l[0]:g}; {method} needs scores that differ (use 'histogram' for one level)"
        )
    return center, spread


def _check_overlap(l: Array, w: Array, y: Array, method: str) -> None:
    """A finite maximum of the likelihood needs positives below some negative and above some other."""
    positive, negative = l[y > 0], l[w - y > 0]
    if positive[0] >= negative[-1]:
        raise UncurseError(
            f"{method} has no finite fit: every positive scores at least {positive[0]:g} and no negative scores more; "
            "use 'isotonic', or more rows"
        )
    if positive[-1] <= negative[0]:
        raise UncurseError(
            f"{method} has no finite fit: every positive scores at most {positive[-1]:g} and no negative scores less; "
            "is the label, or the score, turned round?"
        )


def _rising(slope: float, method: str) -> float:
    if slope <= 0:
        raise UncurseError(
            f"{method} finds slope {slope:.3g}: labels fall as scores rise; is the label, or the score, turned round?"
        )
    return float(slope)


# ---------------------------------------------------------------------------- bins


def histogram(
    cells: Cells,
    *,
    n_bins: int = 50,
    strategy: str = "quantile",
    refine_top: float | None = None,
    strict: bool = True,
) -> ScoreMap:
    """Histogram binning (Zadrozny and Elkan 2001): the mean label of each bin.

    ``strategy="quantile"`` has bins of equal weight, ``"uniform"`` of equal width in probability. With
    ``refine_top=0.001`` the last bin is halved until it holds at most that share of the weight, so that it is
    never wider than the selection.
    """
    _, w, y = _columns(cells)
    places, edges = bins(cells, n_bins, strategy, refine_top)
    return _steps(cells, edges, totals(running(w), places), totals(running(y), places), strict)


def scaling_binning(
    cells: Cells,
    *,
    n_bins: int = 50,
    strategy: str = "quantile",
    refine_top: float | None = None,
    strict: bool = True,
) -> ScoreMap:
    """The scaling-binning calibrator (Kumar et al. 2019): Platt first, then the mean of its output in each bin."""
    l, w, _ = _columns(cells)
    smooth = logistic(platt(cells).transform(l))
    places, edges = bins(cells, n_bins, strategy, refine_top)
    return _steps(cells, edges, totals(running(w), places), totals(running(w * smooth), places), strict)


def isotonic(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Isotonic regression (Zadrozny and Elkan 2002): the best non-decreasing step function."""
    _, w, y = _columns(cells)
    starts = _pools(w, y)
    edges = edges_at(cells, starts[1:].astype(np.float64))
    return _steps(cells, edges, np.add.reduceat(w, starts), np.add.reduceat(y, starts), strict)


def smooth_isotonic(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Smoothed isotonic regression (Deng et al. 2020): isotonic, then straight lines between its levels: no ties."""
    l, w, y = _columns(cells)
    starts = _pools(w, y)
    first, values = _monotone(np.add.reduceat(w, starts), np.add.reduceat(y, starts))
    starts = starts[first]
    x, level = np.add.reduceat(w * l, starts) / np.add.reduceat(w, starts), logit(values)
    if len(x) == 1:
        return Curve(x.tolist(), level.tolist(), _TIE, _TIE)
    ends = np.diff(level)[[0, -1]] / np.diff(x)[[0, -1]]
    left, right = np.clip(ends, _TIE, 1.0)  # never steeper outside than the score itself
    return Curve(x.tolist(), level.tolist(), float(left), float(right))


def bbq(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Bayesian binning into quantiles (Naeini et al. 2015): equal-count binnings, averaged by their posterior.

    Binnings with N^⅓/10 to 10·N^⅓ bins, each bin a Beta prior of weight 2/B around the middle between its lowest and
    its highest probability. On cells a binning costs its number of bins, so a million rows take a fraction of a second.
    """
    from scipy.special import gammaln

    l, w, y = _columns(cells)
    p, reached, labelled, wide = logistic(l), running(w), running(y), wide_cells(cells)
    cube = float(reached[-1]) ** (1 / 3)
    sizes = np.unique(np.clip(np.arange(max(1, int(cube / 10)), max(2, int(10 * cube)) + 1), 1, len(l)))
    models: dict[int, tuple[Array, Array, float]] = {}  # by number of bins: places, values, log evidence
    for size in sizes.tolist():
        places = inner(at_weight(reached, wide, reached[-1] * np.arange(1, size) / size), len(l))
        if len(places) in models:
            continue
        n, m = totals(reached, places), totals(labelled, places)
        lowest, highest = np.append(0, places).astype(np.intp), np.append(np.ceil(places), len(l)).astype(np.intp) - 1
        prior = 2.0 / len(n)
        a = prior * (p[lowest] + p[highest]) / 2
        b = prior - a
        evidence = gammaln(prior) - gammaln(n + prior) + gammaln(m + a) - gammaln(a) + gammaln(n - m + b) - gammaln(b)
        models[len(places)] = (places, (m + a) / (n + prior), float(evidence.sum()))
    evidences = np.array([model[2] for model in models.values()])
    posterior = np.exp(evidences - evidences.max())
    posterior /= posterior.sum()
    kept = [(model, share) for model, share in zip(models.values(), posterior, strict=True) if share > 1e-6]
    places = np.unique(np.concatenate([model[0] for model, _ in kept]))
    average = np.zeros(len(places) + 1)
    for (ends, values, _), share in kept:
        average += share * values[np.searchsorted(ends, np.append(-1.0, places), side="right")]
    n = totals(reached, places)
    return _steps(cells, edges_at(cells, places), n, average * n, strict)


def _isotonic(values: Array, weights: Array) -> Any:
    from scipy.optimize import isotonic_regression  # a third of a second to import: only for those who fit one

    return isotonic_regression(values, weights=weights)


def _columns(cells: Cells) -> tuple[Array, Array, Array]:
    labels = cells.label
    assert labels is not None  # checked by `fit`
    return cells.score, cells.weight, labels


def _pools(w: Array, y: Array) -> NDArray[np.intp]:
    """The first cell of each level of the isotonic regression."""
    return np.asarray(_isotonic(y / w, w).blocks[:-1], np.intp)


def _monotone(weight: Array, label: Array) -> tuple[NDArray[np.intp], Array]:
    """Levels that rise strictly and stay inside (0, 1): half a row for what a bin lacks, then pool what falls.

    Returns the first bin of each level, and the levels.
    """
    lacking = np.minimum(label, weight - label) <= 1e-9 * weight  # sums of weights are never quite zero
    values = np.where(lacking, (label + 0.5) / (weight + 1), label / weight)
    pools = _isotonic(values, weight)
    first = np.asarray(pools.blocks[:-1], np.intp)
    return first, np.asarray(pools.x[first])


def _steps(cells: Cells, edges: Array, weight: Array, label: Array, strict: bool) -> ScoreMap:
    if strict:
        first, values = _monotone(weight, label)
        edges = edges[first[1:] - 1]
    else:
        values = np.clip(label / weight, _EDGE, 1 - _EDGE)
    l = cells.score
    center = float(np.average(l, weights=cells.weight))
    return Steps(edges.tolist(), logit(values).tolist(), _TIE if strict else 0.0, center, monotone=strict)


#: Calibrators by name.
CALIBRATORS: dict[str, Callable[..., ScoreMap]] = {
    "platt": platt,
    "temperature": temperature,
    "beta": beta,
    "histogram": histogram,
    "scaling-binning": scaling_binning,
    "isotonic": isotonic,
    "smooth-isotonic": smooth_isotonic,
    "bbq": bbq,
    "spline": spline,
}

__all__ = ["CALIBRATORS", "calibrate", "fit"]
