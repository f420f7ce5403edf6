"""Calibrators by name: labelled cells to a score map.

Each calibrator is a function ``(cells, **options) -> ScoreMap``. By default the map increases
strictly and never predicts 0 or 1: bins whose rates decrease are pooled, the score breaks ties, and a bin without
positives or negatives gets half a row of each kind. ``strict=False`` (beta and the calibrators with bins) returns the
textbook estimate, except that probabilities of exactly 0 or 1 become 1e-12 or 1 − 1e-12.

To add a calibrator, list it in `CALIBRATORS`; `cli/fit.py` repeats the names.

With two classes, Dirichlet calibration (Kull et al. 2019) is the same family as beta calibration: use ``beta``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from ..errors import UncurseError
from ..evidence import Cells
from ..evidence.from_arrays import check_classes
from ..maps import ScoreMap, compose
from ..validation import check_choice, check_scores, check_weights
from .binning import bbq, histogram, isotonic, scaling_binning, smooth_isotonic
from .parametric import beta, platt, temperature
from .spline import spline

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
    """Fit a calibrator to labelled scores.

    Parameters
    ----------
    method : str
        One of ``platt``, ``temperature``, ``beta``, ``histogram``, ``scaling-binning``, ``isotonic``,
        ``smooth-isotonic``, ``bbq``, ``spline``.
    scores, labels : array-like of shape (n,)
        Served scores on `scale`, and labels, 0 or 1.
    scale : {"logit", "probability"}, default="logit"
        Scale of `scores`; the map takes scores on the same scale.
    sample_weight : array-like of shape (n,), optional
        Only ratios matter. Whatever depends on a number of rows (half a row of smoothing, the number of bins of
        ``bbq``, the smoothness of ``spline``) uses the effective number of rows, (Σw)² / Σw².
    exact : bool, optional
        Use exact scores (True) or a fine grid (False). By default exact up to 2^17 rows.
    **options
        Options of the calibrator, such as ``n_bins=50`` or ``strict=False``.

    Returns
    -------
    ScoreMap
        Map from scores to calibrated probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(-1, 1, 20_000)
    >>> clicks = rng.random(20_000) < 1 / (1 + np.exp(-truth))
    >>> too_steep = calibrate("platt", 2 * truth, clicks)
    >>> round(too_steep.slope, 2)
    0.5
    """
    values = check_scores(scores, scale)
    weights = check_weights(sample_weight, len(values))
    cells = Cells(exact=exact).update(values, labels, scale=scale, sample_weight=weights)
    return compose(fit_calibrator(method, cells, **options), scale=scale)


def fit_calibrator(method: str, cells: Cells, **options: Any) -> ScoreMap:
    """Fit a calibrator to labelled cells.

    Parameters
    ----------
    method : str
        Name of the calibrator, as in `calibrate`.
    cells : Cells
        Labelled cells on the logit scale.
    **options
        Options of the calibrator; an unknown option is an error.

    Returns
    -------
    ScoreMap

    Examples
    --------
    >>> cells = Cells().update([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> fit_calibrator("histogram", cells, n_bins=1)([0.0]).round(3)
    array([0.5])
    """
    if isinstance(method, str) and method == "dirichlet":
        raise UncurseError("with two classes Dirichlet calibration is beta calibration; use 'beta'")
    function = CALIBRATORS[check_choice("calibrator", method, tuple(CALIBRATORS))]
    known = [name for name in inspect.signature(function).parameters if name != "cells"]
    for name in options:
        if name not in known:
            raise UncurseError(f"{method} has no option {name!r}; it takes {', '.join(known) or 'no options'}")
    if not isinstance(cells, Cells):
        raise UncurseError(f"cells is a {type(cells).__name__}; pass Cells")
    if cells.scale != "logit":
        raise UncurseError(f"calibrators need cells on the logit scale, not on the {cells.scale} scale")
    labels = cells.label
    if labels is None:
        raise UncurseError(f"{method} needs labels; update the cells with scores and labels")
    check_classes(cells.weight, labels)
    return function(cells, **options)
