"""The metrics of selections and their errors, from distinct predictions and the sums of weights and labels of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from ..evidence import Histogram
from ..links import inside
from ..text import error_and_interval, interval, number, share
from ..validation import check_choice
from .selection import count_of_share

MAX_BINS = 1 << 12  # limits the memory of the bootstrap
_EXACT_ROWS = 1 << 20
_DRAWS = 40_000  # of gaps, over all bins: a noise floor has a relative error of 0.5%


class Estimate(float):
    """A float, NaN where it is undefined, with a standard error and, for ECE and MCE, a noise floor.

    The floor is the expected value if every prediction were the true probability.

    >>> Estimate(0.05, 0.01)
    0.05 (standard error 0.01)
    """

    standard_error: float
    floor: float | None

    def __new__(cls, value: float, standard_error: float, floor: float | None = None) -> Estimate:
        """Create the float and set its attributes."""
        self = super().__new__(cls, value)
        self.standard_error = float(standard_error)
        self.floor = None if floor is None else float(floor)
        return self

    def __getnewargs__(self) -> tuple[float, float, float | None]:  # type: ignore[override]
        return float(self), self.standard_error, self.floor

    def __repr__(self) -> str:
        tail = "" if self.floor is None else f", floor {self.floor:.3g}"
        return f"{float(self):.4g} (standard error {self.standard_error:.2g}{tail})"

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        return interval(float(self), self.standard_error)

    def to_dict(self) -> dict[str, float | None]:
        """Return plain data; NaN becomes None."""
        content = {"value": float(self), "standard_error": self.standard_error}
        if self.floor is not None:
            content["floor"] = self.floor
        return {name: None if np.isnan(value) else value for name, value in content.items()}


@dataclass(frozen=True)
class Bin:
    """One bin of the ECE: mean prediction and mean label."""

    weight: float  # of its rows, or their number
    predicted: float
    observed: float
    standard_error: float  # of `observed`

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of `observed`."""
        low, high = interval(self.observed, self.standard_error)
        return max(low, 0.0), min(high, 1.0)


@dataclass(frozen=True)
class SelectionMetrics:
    """Metrics of one selection."""

    alpha: float  # share of the rows that is selected
    selected: float  # number of selected rows, or their weight
    predicted: float  # sum of predictions
    observed: float  # sum of labels
    ratio: Estimate  # predicted / observed; NaN without a positive label
    calibration_error: Estimate  # the same minus 1
    ece: Estimate  # expected calibration error over bins
    mce: Estimate  # maximum calibration error over bins
    log_loss: Estimate  # mean
    brier: Estimate  # mean squared error
    bins: tuple[Bin, ...]  # non-empty bins of the ECE by ascending prediction

    def cells(self) -> dict[str, str]:
        """Return the metrics as text by name of the column, with 95% intervals and noise floors in parentheses."""
        error, span = error_and_interval(self.calibration_error, *self.calibration_error.interval)
        return {
            "top": share(self.alpha),
            "selected": number(self.selected),
            "predicted": number(self.predicted),
            "observed": number(self.observed),
            "calibration error": f"{error} ({span})" if self.observed > 0 else error,
            "ECE (floor)": f"{self.ece:.5f} ({self.ece.floor:.5f})",
            "MCE (floor)": f"{self.mce:.5f} ({self.mce.floor:.5f})",
            "log loss": f"{self.log_loss:.5f}",
            "Brier": f"{self.brier:.5f}",
        }


def sums_of_rows(
    f: Float, labels: NDArray[Any], weights: Array | None, counts: Array | None = None
) -> tuple[Array, Array]:
    """Return distinct predictions, ascending, and Σw, Σwy, Σw² and Σw²y of each, shape (4, K)."""
    if counts is not None and weights is None:
        weights = np.ones(len(f))
    if weights is None:
        # Sort predictions with their labels in the lowest bit: faster than to sort an index. Adding 0 turns −0 into 0.
        bits: NDArray[Any] = (f + f.dtype.type(0)).view(np.uint32 if f.dtype == np.float32 else np.uint64)
        bits <<= 1
        bits |= labels.astype(bits.dtype)
        bits.sort()
        scores, y = (bits >> 1).view(f.dtype).astype(np.float64), (bits & 1).astype(np.float64)
        sums = np.stack([np.ones(len(y)), y, np.ones(len(y)), y])
    else:
        order = np.argsort(f)
        order = order[weights[order] > 0]
        scores, w, y = f[order].astype(np.float64), weights[order], labels[order]
        sums = np.stack([w, w * y, w * w, w * w * y]) * (1.0 if counts is None else counts[order])
    # Beyond a million rows, predictions that agree in 14 bits are one: the sums take most of the time.
    keys = scores if len(scores) <= _EXACT_ROWS else scores.astype(np.float32).view(np.uint32) >> 9
    starts = np.flatnonzero(np.append(True, keys[1:] > keys[:-1]))
    if len(starts) == len(scores):
        return scores, sums
    totals = np.add.reduceat(sums, starts, axis=1)
    return scores[starts] if keys is scores else np.add.reduceat(scores * sums[0], starts) / totals[0], totals


def sums_of_cells(cells: Histogram) -> Array:
    """Return Σw, Σwy, Σw² and Σw²y of labeled cells, shape (4, K)."""
    assert cells.label is not None
    return np.stack([cells.weight, cells.label, cells.weight_squares, cells.label_squares])


def selected_weight(alpha: float, sums: Array, total: float) -> float:
    """Return the weight of the top share: of whole rows if all rows have the same weight."""
    unit = float(sums[2, 0] / sums[0, 0])
    if not np.allclose(sums[2], unit * sums[0], rtol=1e-12, atol=0.0):
        return alpha * total
    return unit * count_of_share(alpha, round(total / unit))


def top_metrics(
    prediction: Array, sums: Array, alphas: Sequence[float], selected: Sequence[float], n_bins: int, strategy: str
) -> tuple[SelectionMetrics, ...]:
    """Return the metrics of the highest predictions, of each weight in `selected`; a row at the edge counts in part."""
    check_choice("strategy", strategy, ("quantile", "uniform"))
    if not (prediction[1:] > prediction[:-1]).all():
        prediction, place = np.unique(prediction, return_inverse=True)
        sums = np.stack([np.bincount(place, column) for column in sums])
    prediction, sums = prediction[::-1], sums[:, ::-1]
    reached = np.cumsum(sums[0])
    rows = []
    for alpha, weight in zip(alphas, selected, strict=True):
        last = min(int(np.searchsorted(reached, weight * (1 - 1e-12))), len(reached) - 1)
        part = sums[:, : last + 1].copy()
        kept = min(1 - (reached[last] - weight) / part[0, last], 1.0)
        part[:, last] *= np.array([kept, kept, kept**2, kept**2])
        rows.append(_metrics(alpha, float(weight), prediction[: last + 1], part, n_bins, strategy))
    return tuple(rows)


def _metrics(alpha: float, selected: float, f: Array, sums: Array, n_bins: int, strategy: str) -> SelectionMetrics:
    """Return the metrics of rows with descending predictions."""
    w, y, w2, y2 = sums
    total, predicted, observed = float(w.sum()), float(w @ f), float(y.sum())

    def error_of_sum(positive: Array, negative: Array) -> float:
        """Return the standard error of a sum over rows, from its deviations for positive and negative labels."""
        return float(np.sqrt(y2 @ np.square(positive) + (w2 - y2) @ np.square(negative)))

    def mean_of(positive: Array, negative: Array) -> Estimate:
        value = float(y @ positive + (w - y) @ negative) / total
        return Estimate(value, error_of_sum(positive - value, negative - value) / total)

    ratio, error = np.nan, np.nan
    if observed > 0:
        ratio = predicted / observed
        sampled = error_of_sum(f - ratio, f)  # linearized ratio estimator of a sample of rows
        error = max(sampled, binomial_error(f, w2, ratio)) / observed
    safe = inside(f, 0.0, 1.0)
    ece, mce, bins = _binned(f, sums, n_bins, strategy)
    return SelectionMetrics(
        alpha,
        selected,
        predicted,
        observed,
        Estimate(ratio, error),
        Estimate(ratio - 1, error),
        ece,
        mce,
        mean_of(-np.log(safe), -np.log1p(-safe)),
        mean_of(np.square(1 - f), np.square(f)),
        bins,
    )


def binomial_error(f: Array, w2: Array, ratio: float) -> float:
    """Return the standard error of Σw(f − ratio·y) if labels follow the predictions, which do not exceed Σwy.

    Equal labels have no spread, though their rate may differ from 0 or 1. So this is a lower bound of the spread.
    """
    rate = np.clip(f / max(ratio, 1.0), 0.0, 1.0)
    return ratio * float(np.sqrt(w2 @ (rate * (1 - rate))))


def _binned(f: Array, sums: Array, n_bins: int, strategy: str) -> tuple[Estimate, Estimate, tuple[Bin, ...]]:
    """Return ECE, MCE and the bins by ascending prediction."""
    w, y, w2, y2 = sums
    starts = _starts_of_bins(f, w, n_bins, strategy)
    sizes = np.diff(starts, append=len(f))

    def summed(column: Array) -> Array:
        return np.asarray(np.add.reduceat(column, starts), np.float64)

    def error_of_mean(positive: Array, negative: Array) -> Array:
        return np.sqrt(summed(y2 * np.square(positive) + (w2 - y2) * np.square(negative))) / weight

    weight = summed(w)
    predicted, observed, rows = summed(w * f) / weight, summed(y) / weight, np.square(weight) / summed(w2)
    gap, noise = observed - predicted, np.sqrt(summed(w2 * f * (1 - f))) / weight
    mean_gap, rate = np.repeat(gap, sizes), np.repeat(observed, sizes)
    spread = error_of_mean(1 - f - mean_gap, f + mean_gap)
    # A single row has no spread, and neither have rows with the same label and prediction, up to rounding.
    spread = np.where((rows < 1.5) | (spread < 1e-6 * noise), noise, spread)
    shares = weight / weight.sum()
    errors, floors = _bootstrap(gap, spread, noise, rows, predicted, shares)
    ece, mce = Estimate(shares @ np.abs(gap), errors[0], floors[0]), Estimate(np.abs(gap).max(), errors[1], floors[1])
    # Labels vary by p(1 − p), with the predictions for p where all labels of a bin are equal.
    error = np.where((observed <= 0) | (observed >= 1), noise, error_of_mean(1 - rate, rate))
    table = np.stack([weight, predicted, observed, error], axis=1)[::-1]
    return ece, mce, tuple(Bin(*row) for row in table.tolist())


def _starts_of_bins(f: Array, w: Array, n_bins: int, strategy: str) -> NDArray[np.intp]:
    """Return the first row of each bin of descending predictions; equal predictions share a bin."""
    edges = np.arange(1, n_bins) / n_bins
    if strategy == "uniform":
        cuts = np.searchsorted(-f, -edges[::-1], side="right")
    else:  # the nearest end of a prediction; a tie goes to the one below, whatever the rounding of cumulative weights
        reached = np.append(0.0, np.cumsum(w))
        target = reached[-1] * edges
        i = np.clip(np.searchsorted(reached, target), 1, len(w))
        before, after = target - reached[i - 1], reached[i] - target
        cuts = np.where(before < after - 1e-9 * reached[-1], i - 1, i)
    cuts = np.unique(np.append(0, cuts))
    return cuts[cuts < len(f)]


def _bootstrap(gap: Array, spread: Array, noise: Array, rows: Array, rate: Array, shares: Array) -> tuple[Array, Array]:
    """Return standard errors and noise floors of ECE and MCE by a parametric bootstrap with a fixed seed.

    Standard errors redraw the gaps of the bins: normal, about the gaps shrunk by the James–Stein factor, because
    observed gaps include noise. Floors draw the label sums from the predictions: binomial, scaled to the standard
    deviation of the rows.
    """
    rng = np.random.default_rng(0)
    draws = (max(100, _DRAWS // len(gap)), len(gap))
    z = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 1e-100 * np.abs(gap))
    shrunk = gap * max(1 - np.count_nonzero(spread) / max(float(z @ z), 1e-300), 0.0)
    redrawn = np.abs(shrunk + spread * rng.standard_normal(draws))
    n, p = np.maximum(np.rint(rows), 1), np.clip(rate, 0.0, 1.0)
    sd = np.sqrt(p * (1 - p) / n)
    chance = np.abs(rng.binomial(n.astype(np.int64), p, draws) / n - p)
    chance *= np.divide(noise, sd, out=np.zeros_like(sd), where=sd > 0)
    errors = np.array([(redrawn @ shares).std(), redrawn.max(axis=1).std()])
    return errors, np.array([(chance @ shares).mean(), chance.max(axis=1).mean()])
