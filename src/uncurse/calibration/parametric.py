"""Parametric calibrators: Platt scaling, temperature scaling and beta calibration."""

from __future__ import annotations

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells
from ..maps import Affine, Curve, ScoreMap
from ..maps.shapes import logit_knots
from ..validation import check_flag
from .logistic import fit_logistic

MIN_SLOPE = 1e-6  # of a strict map: enough to keep the order of scores, too little to matter


def effective_columns(cells: Cells) -> tuple[Array, Array, Array]:
    """Return score, weight and label sum of labelled cells, with weights scaled to the effective number of rows.

    The factor is n_eff / Σw with n_eff = (Σw)² / Σw², which is 1 without weights.

    >>> cells = Cells().update([0.5, -1.0, 0.5], [1, 0, 0], sample_weight=[7.0, 7.0, 7.0])
    >>> effective_columns(cells)[1:]
    (array([1., 2.]), array([0., 1.]))
    """
    label = cells.label
    if label is None:
        raise UncurseError("these cells have no labels; update them with scores and labels")
    factor = float(cells.weight.sum()) / float(cells.weight_squares.sum())
    return cells.score, cells.weight * factor, label * factor


def platt(cells: Cells) -> Affine:
    """Platt scaling: logistic regression on the logit, without penalty or target smoothing."""
    score, weight, label = effective_columns(cells)
    center = _check_different(score, weight, "platt")
    check_overlap(score, weight, label, "platt")
    slope, level = fit_logistic(np.stack([score - center, np.ones_like(score)]), weight, label).coefficients
    return Affine(_check_rising(slope, "platt"), float(level - slope * center))


def temperature(cells: Cells) -> Affine:
    """Temperature scaling: one slope on the logit."""
    score, weight, label = effective_columns(cells)
    if np.abs(score).max() < 1e-100:
        raise UncurseError("every score is 0, so a temperature has no effect; use another calibrator")
    # The likelihood has no maximum where no row contradicts the sign of its score, or every row does.
    above, below = score > 0, score < 0
    positive, negative = label > 0, weight - label > 0
    if not (negative[above].any() or positive[below].any()):
        raise UncurseError("temperature has no finite fit: the sign of the score predicts every label; use 'isotonic'")
    if not (positive[above].any() or negative[below].any()):
        raise UncurseError("temperature has no finite fit: every label contradicts its score; is one of them reversed?")
    (slope,) = fit_logistic(score[None], weight, label).coefficients
    return Affine(_check_rising(slope, "temperature"), 0.0)


def beta(cells: Cells, *, strict: bool = True) -> ScoreMap:
    """Beta calibration (Kull et al. 2017): logit q = a log p − b log(1 − p) + c with a, b ≥ 0.

    With ``strict``, a and b are at least 1e-6, so that the map increases strictly.
    """
    score, weight, label = effective_columns(cells)
    _check_different(score, weight, "beta")
    check_overlap(score, weight, label, "beta")
    low, high = -np.logaddexp(0.0, -score), np.logaddexp(0.0, score)  # log p, −log(1 − p)
    ones = np.ones_like(score)
    a, b, c = fit_logistic(np.stack([low, high, ones]), weight, label).coefficients
    if a < 0:
        a, (b, c) = 0.0, fit_logistic(np.stack([high, ones]), weight, label).coefficients
    elif b < 0:
        b, (a, c) = 0.0, fit_logistic(np.stack([low, ones]), weight, label).coefficients
    _check_rising(a + b, "beta")
    least = MIN_SLOPE if check_flag(strict, "strict") else 0.0
    a, b = max(a, least), max(b, least)
    # 256 linear pieces have an error of at most 2e-5 |a − b|; outside the knots the function is a straight line.
    x = logit_knots(int(256 * np.clip(np.sqrt(abs(a - b)), 1, 8)))
    q = -a * np.logaddexp(0.0, -x) + b * np.logaddexp(0.0, x) + c
    return Curve(x.tolist(), q.tolist(), float(a), float(b))


def check_overlap(score: Array, weight: Array, label: Array, method: str) -> None:
    """Raise unless some positive scores below a negative and some positive above one, as a finite fit needs."""
    positive, negative = score[label > 0], score[weight - label > 0]
    if positive[0] >= negative[-1]:
        raise UncurseError(
            f"{method} has no finite fit: every positive scores at least {positive[0]:g} and no negative scores more; "
            "use 'isotonic', or more rows"
        )
    if positive[-1] <= negative[0]:
        raise UncurseError(
            f"{method} has no finite fit: every positive scores at most {positive[-1]:g} and no negative scores less; "
            "is the label, or the score, reversed?"
        )


def _check_different(score: Array, weight: Array, method: str) -> float:
    """Return the mean score; raise if scores are equal up to rounding."""
    center = float((weight / weight.sum()) @ score)
    if score[-1] / 2 - score[0] / 2 <= 1e-12 * max(1.0, abs(center)):
        raise UncurseError(
            f"every score is {score[0]:g}; {method} needs scores that differ (use 'histogram' for a single level)"
        )
    return center


def _check_rising(slope: float, method: str) -> float:
    if slope <= 0:
        raise UncurseError(
            f"{method} has slope {slope:.3g}: labels fall as scores rise; is the label, or the score, reversed?"
        )
    return float(slope)
