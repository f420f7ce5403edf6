"""Calibrators by name.

Each calibrator is a function ``(sample, **options) -> ScoreMap``. By default the map increases strictly and never
predicts 0 or 1: bins whose rates decrease are pooled, the score breaks ties, and a bin without positives or negatives
gets half a row of each kind. ``strict=False`` (beta and the calibrators with bins) returns the textbook estimate,
except that probabilities of exactly 0 or 1 become 1e-12 or 1 − 1e-12.

To add a calibrator, list it in `CALIBRATORS`; `cli/fit.py` repeats the names.

With two classes, Dirichlet calibration (Kull et al. 2019) is the same family as beta calibration: use ``beta``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UncurseError
from ..evidence import Histogram
from ..evidence.from_arrays import check_classes
from ..links import logit
from ..maps import ScoreMap, compose
from ..validation import check_choice, check_outcomes, check_scores
from .binning import histogram, isotonic, scaling_binning
from .parametric import Sample, beta, platt, sample_of_cells, sample_of_rows, temperature
from .spline import spline

#: Calibrators by name.
CALIBRATORS: dict[str, Callable[..., ScoreMap]] = {
    "platt": platt,
    "temperature": temperature,
    "beta": beta,
    "histogram": histogram,
    "scaling-binning": scaling_binning,
    "isotonic": isotonic,
    "spline": spline,
}
_EXACT_ROWS = 1 << 17  # more rows are summarized by a histogram first


def calibrate(
    method: str,
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    scale: str = "logit",
    sample_weight: ArrayLike | None = None,
    trials: ArrayLike | None = None,
    **options: Any,
) -> ScoreMap:
    """Fit a calibrator to labeled scores.

    Use it alone if you act on all predictions. ``VAD(calibrator=...)`` and ``uncurse fit --method vad --calibrator``
    fit it first, and VAD corrects the bias that remains on the candidates. Maps increase strictly and never predict 0
    or 1.

    Parameters
    ----------
    method : str
        ``platt`` is a line on the logit, ``temperature`` a slope, ``beta`` beta calibration, ``spline`` a curve;
        ``isotonic``, ``histogram`` and ``scaling-binning`` (a Platt line in bins) are steps.
    scores, labels : array-like of shape (n,)
        Served scores on `scale`, and labels, 0 or 1.
    scale : {"logit", "probability"}, default="logit"
        Scale of `scores`; the map takes scores on the same scale.
    sample_weight : array-like of shape (n,), optional
        Only ratios matter. Whatever depends on a number of rows (half a row of smoothing, the smoothness of
        ``spline``) uses the effective number of rows, (Σw)² / Σw².
    trials : array-like of shape (n,), optional
        Number of trials of each row. `labels` are then numbers of successes, and a row counts as one row per trial.
    **options
        ``n_bins=50``, ``strategy="quantile"`` or ``"uniform"``, and ``refine_top=``, the smallest share that will be
        selected, for the calibrators with bins. ``strict=False``, for these and ``beta``: the textbook estimate.

    Returns
    -------
    ScoreMap
        Map from scores to calibrated probabilities.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(-1, 1, 20_000)
    >>> clicks = rng.random(20_000) < 1 / (1 + np.exp(-truth))
    >>> too_steep = calibrate("platt", 2 * truth, clicks)
    >>> round(too_steep.slope, 2)
    0.5
    """
    check_choice("scale", scale, ("logit", "probability"))
    values = check_scores(scores, scale)
    values, y, weights, counts = check_outcomes(values, labels, sample_weight, trials, "labels")
    logits = logit(values.astype(np.float64)) if scale == "probability" else values
    if len(logits) > _EXACT_ROWS:
        sample = sample_of_cells(Histogram().add(logits[None], y, weights, counts))
    else:
        sample = sample_of_rows(logits.astype(np.float64, copy=False), y, weights, counts)
    return compose(fit_calibrator(method, sample, **options), scale=scale)


def fit_calibrator(method: str, rows: Histogram | Sample, **options: Any) -> ScoreMap:
    """Fit the calibrator of this name to a sample, or to the labeled cells of a histogram of logits."""
    sample = rows if isinstance(rows, Sample) else sample_of_cells(rows)
    function = CALIBRATORS[check_choice("calibrator", method, tuple(CALIBRATORS))]
    known = list(inspect.signature(function).parameters)[1:]
    for name in options:
        if name not in known:
            raise UncurseError(f"{method} has no option {name!r}; it takes {', '.join(known) or 'no options'}")
    check_classes(sample.weight, sample.label)
    return function(sample, **options)
