"""The labeled scores that calibrators are fitted to, and Platt scaling, temperature scaling and beta calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Histogram
from ..maps import Affine, Curve, ScoreMap
from ..maps.shapes import logit_knots
from ..validation import check_flag
from .logistic import fit_logistic

MIN_SLOPE = 1e-6  # of a strict map: enough to keep the order of scores, too little to matter


@dataclass(frozen=True)
class Sample:
    """Scores in ascending order, and the weight and label sum of each, in effective rows.

    The weights add up to (Σw)² / Σw², which is the number of rows without weights.
    """

    score: Array
    weight: Array
    label: Array

    @property
    def mean(self) -> float:
        """Mean score."""
        return float(self.weight @ self.score / self.weight.sum())


def sample_of_cells(cells: Histogram) -> Sample:
    """Return the labeled cells of a histogram as a sample."""
    assert cells.label is not None
    factor = float(cells.weight.sum()) / float(cells.weight_squares.sum())
    return Sample(cells.score, cells.weight * factor, cells.label * factor)


def sample_of_rows(logits: Array, labels: Any, weights: Array | None, counts: Array | None = None) -> Sample:
    """Return the distinct scores of rows, each of which counts several times if there are counts, as a sample."""
    w = np.ones(len(logits)) if weights is None else weights
    times = np.ones(len(logits)) if counts is None else counts
    w = w * times * ((w @ times) / (np.square(w) @ times))
    kept = w > 0
    score, place = np.unique(logits[kept], return_inverse=True)
    weight, label = (np.asarray(np.bincount(place, column[kept]), np.float64) for column in (w, w * labels))
    return Sample(score, weight, label)


def platt(sample: Sample) -> Affine:
    """Platt scaling: logistic regression on the logit, without penalty or target smoothing."""
    _check_different(sample, "platt")
    check_overlap(sample, "platt")
    center = sample.mean
    features = np.stack([sample.score - center, np.ones_like(sample.score)])
    slope, level = fit_logistic(features, sample.weight, sample.label).coefficients
    return Affine(_check_rising(slope, "platt"), float(level - slope * center))


def temperature(sample: Sample) -> Affine:
    """Temperature scaling: one slope on the logit."""
    if np.abs(sample.score).max() < 1e-100:
        raise UncurseError("every score is 0, so a temperature has no effect; use another calibrator")
    # The likelihood has no maximum where no row contradicts the sign of its score, or every row does.
    above, below = sample.score > 0, sample.score < 0
    positive, negative = sample.label > 0, sample.weight - sample.label > 0
    if not (negative[above].any() or positive[below].any()):
        raise UncurseError("temperature has no finite fit: the sign of the score predicts every label; use 'isotonic'")
    if not (positive[above].any() or negative[below].any()):
        raise UncurseError("temperature has no finite fit: every label contradicts its score; is one of them reversed?")
    (slope,) = fit_logistic(sample.score[None], sample.weight, sample.label).coefficients
    return Affine(_check_rising(slope, "temperature"), 0.0)


def beta(sample: Sample, *, strict: bool = True) -> ScoreMap:
    """Beta calibration (Kull et al. 2017): logit q = a log p − b log(1 − p) + c with a, b ≥ 0.

    With ``strict``, a and b are at least 1e-6, so that the map increases strictly.
    """
    _check_different(sample, "beta")
    check_overlap(sample, "beta")
    # The features are log p, −log(1 − p) and 1. A negative a or b becomes 0, and the others are fitted again.
    features = np.stack(
        [-np.logaddexp(0.0, -sample.score), np.logaddexp(0.0, sample.score), np.ones_like(sample.score)]
    )
    a, b, c = fit_logistic(features, sample.weight, sample.label).coefficients
    if a < 0:
        a, (b, c) = 0.0, fit_logistic(features[1:], sample.weight, sample.label).coefficients
    elif b < 0:
        b, (a, c) = 0.0, fit_logistic(features[::2], sample.weight, sample.label).coefficients
    _check_rising(a + b, "beta")
    least = MIN_SLOPE if check_flag(strict, "strict") else 0.0
    a, b = max(a, least), max(b, least)
    # 256 linear pieces have an error of at most 2e-5 |a − b|; outside the knots the function is a straight line.
    x = logit_knots(int(256 * np.clip(np.sqrt(abs(a - b)), 1, 8)))
    q = -a * np.logaddexp(0.0, -x) + b * np.logaddexp(0.0, x) + c
    return Curve(x.tolist(), q.tolist(), float(a), float(b))


def check_overlap(sample: Sample, method: str) -> None:
    """Raise unless some positive scores below a negative and some positive above one, as a finite fit needs."""
    positive, negative = sample.score[sample.label > 0], sample.score[sample.weight - sample.label > 0]
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


def _check_different(sample: Sample, method: str) -> None:
    """Raise if scores are equal up to rounding."""
    first, last = sample.score[[0, -1]]
    if last / 2 - first / 2 <= 1e-12 * max(1.0, abs(sample.mean)):
        raise UncurseError(
            f"every score is {first:g}; {method} needs scores that differ (use 'histogram' for a single level)"
        )


def _check_rising(slope: float, method: str) -> float:
    if slope <= 0:
        raise UncurseError(
            f"{method} has slope {slope:.3g}: labels fall as scores rise; is the label, or the score, reversed?"
        )
    return float(slope)
