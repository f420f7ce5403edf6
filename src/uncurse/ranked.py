"""Cells from the best down, with running sums, so that every metric of any selection is a look-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from .evidence import Array, Cells
from .links import UncurseError, check_choice, check_count, inside


class Estimate(float):
    """A number with its standard error, and its noise floor where it has one.

    >>> Estimate(0.05, 0.01)
    0.05 ± 0.01
    """

    standard_error: float
    floor: float | None

    def __new__(cls, value: float, standard_error: float, floor: float | None = None) -> Estimate:
        """A float, with more to say."""
        self = super().__new__(cls, value)
        self.standard_error = float(standard_error)
        self.floor = None if floor is None else float(floor)
        return self

    def __getnewargs__(self) -> tuple[float, float, float | None]:  # type: ignore[override]
        return float(self), self.standard_error, self.floor

    def __repr__(self) -> str:
        tail = "" if self.floor is None else f" (floor {self.floor:.3g})"
        return f"{float(self):.4g} ± {self.standard_error:.2g}{tail}"

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        content = {"value": float(self), "standard_error": self.standard_error}
        return content if self.floor is None else {**content, "floor": self.floor}


@dataclass(frozen=True)
class Row:
    """All metrics of one selection."""

    alpha: float
    selected: float  # rows, or weight
    predicted: float  # Σf
    observed: float  # Σy
    ratio: Estimate
    calibration_error: Estimate
    ece: Estimate
    mce: Estimate
    log_loss: Estimate
    brier: Estimate


# Running sums. A trailing 1 or 2 is Σw²x or Σw²x², which standard errors need; "r" is y − f.
_SUMS = (
    "w",
    "w2",
    "f",
    "y",
    "ff2",
    "fy2",
    "yy2",
    "noise",
    "r1",
    "r2",
    "loss",
    "loss1",
    "loss2",
    "brier",
    "brier1",
    "brier2",
)


#: Weight, label sum, Σw² and Σw²y of cells in ascending order.
Columns = tuple[Array, Array, Array, Array]


class Ranked:
    """Cells from the best down, with running sums of everything a metric needs, so that any selection is a look-up."""

    def __init__(self, prediction: Array, columns: Columns) -> None:
        if not (np.diff(prediction) > 0).all():  # a map with ties, or one that falls: rank by what is predicted
            prediction, place = np.unique(prediction, return_inverse=True)
            columns = tuple(np.asarray(np.bincount(place, column), np.float64) for column in columns)  # type: ignore[assignment]
        f = prediction[::-1]
        w, y, w2, y2 = (column[::-1] for column in columns)
        safe = inside(f, 0.0, 1.0)
        hit, miss = -np.log(safe), -np.log1p(-safe)
        near, far = np.square(1 - f), f * f
        self.f = f
        self.whole_rows = bool((w2 == w).all())  # weights are counts, and a bin can end at a row
        sums = np.zeros((len(_SUMS), len(f) + 1))
        for i, column in enumerate(
            (
                w,
                w2,
                w * f,
                y,
                w2 * f * f,
                y2 * f,
                y2,
                w2 * f * (1 - f),  # Var Σwy if predictions were true
                y2 - w2 * f,
                y2 * (1 - 2 * f) + w2 * f * f,
                y * hit + (w - y) * miss,
                y2 * hit + (w2 - y2) * miss,
                y2 * hit * hit + (w2 - y2) * miss * miss,
                y * near + (w - y) * far,
                y2 * near + (w2 - y2) * far,
                y2 * near * near + (w2 - y2) * far * far,
            )
        ):
            np.cumsum(column, out=sums[i, 1:])
        self.sums = sums

    def at(self, weight: Array) -> dict[str, Array]:
        """The running sums where the weight reached is `weight`, a cell taken in part where it falls inside one."""
        reached = self.sums[0]
        i = np.clip(np.searchsorted(reached, weight, side="left"), 1, len(reached) - 1)
        share = np.clip((weight - reached[i - 1]) / (reached[i] - reached[i - 1]), 0.0, 1.0)
        values = self.sums[:, i - 1] + share * (self.sums[:, i] - self.sums[:, i - 1])
        return dict(zip(_SUMS, values, strict=True))

    def rows(self, alphas: Sequence[float], selected: Array, n_bins: int, strategy: str) -> tuple[Row, ...]:
        """Every metric of the best `selected`, one row each."""
        s = self.at(selected)
        for alpha, count, positives in zip(alphas, selected, s["y"], strict=True):
            if positives <= 0:
                raise UncurseError(
                    f"the top {100 * alpha:g}% ({count:g} rows) has no positive label, so no ratio; select more"
                )
        ratio = s["f"] / s["y"]
        # Rows as a sample: the linearised ratio estimator.
        error = np.sqrt(np.maximum(s["ff2"] - 2 * ratio * s["fy2"] + ratio**2 * s["yy2"], 0.0)) / s["y"]
        ece, mce = self.binned(selected, n_bins, strategy)

        def means(name: str) -> list[Estimate]:
            value = s[name] / s["w"]
            return list(map(Estimate, value, _deviation(value, s["w2"], s[name + "1"], s[name + "2"]) / s["w"]))

        columns = zip(
            alphas,
            selected.tolist(),
            s["f"].tolist(),
            s["y"].tolist(),
            map(Estimate, ratio, error),
            map(Estimate, ratio - 1, error),
            ece,
            mce,
            means("loss"),
            means("brier"),
            strict=True,
        )
        return tuple(Row(*values) for values in columns)

    def binned(self, selected: Array, n_bins: int, strategy: str) -> tuple[list[Estimate], list[Estimate]]:
        """ECE and MCE of the best `selected`."""
        check_choice("strategy", strategy, ("quantile", "uniform"))
        shares = np.arange(check_count(n_bins, "n_bins") + 1) / n_bins
        reached, end = self.sums[0], selected[:, None]
        if strategy == "quantile":
            # A bin ends where a cell does, the nearest: equal predictions are never torn apart.
            target = end * shares
            i = np.clip(np.searchsorted(reached, target), 1, len(reached) - 1)
            bounds = np.where(target - reached[i - 1] < reached[i] - target, reached[i - 1], reached[i])
        else:
            # Cells with f ≥ edge come first: predictions are in order, from the best down.
            bounds = np.tile(reached[np.searchsorted(-self.f, -shares[::-1], side="right")], (len(end), 1))
        bounds[:, 0], bounds[:, -1] = 0.0, np.inf
        bounds = np.minimum(bounds, end)
        s = {name: np.diff(v, axis=-1) for name, v in self.at(bounds).items()}
        empty = s["w"] <= 0
        w = np.where(empty, 1.0, s["w"])
        residual = (s["y"] - s["f"]) / w
        gap, spread = np.abs(residual), _deviation(residual, s["w2"], s["r1"], s["r2"]) / w
        floor = np.sqrt(np.maximum(s["noise"], 0.0)) / w
        spread = np.where(np.square(s["w"]) < 1.5 * s["w2"], floor, spread)  # one row cannot tell its own spread
        gap, spread, floor = (np.where(empty, 0.0, v) for v in (gap, spread, floor))
        share = s["w"] / s["w"].sum(axis=-1, keepdims=True)
        # Gaps of nothing but noise look as large as the noise. What they are without it, by the James–Stein factor.
        z = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)
        filled = np.maximum((spread > 0).sum(axis=-1, keepdims=True), 1)
        mean_gap = gap * np.maximum(1 - filled / np.maximum(np.square(z).sum(axis=-1, keepdims=True), 1e-300), 0.0)
        variance = _folded(mean_gap, spread)[1]
        ece = map(
            Estimate,
            (share * gap).sum(axis=-1),
            np.sqrt((np.square(share) * variance).sum(axis=-1)),
            (share * floor).sum(axis=-1) * np.sqrt(2 / np.pi),
        )
        mce = map(Estimate, gap.max(axis=-1), _largest(mean_gap, spread)[1], _largest(np.zeros_like(floor), floor)[0])
        return list(ece), list(mce)


def _deviation(mean: Any, w2: Any, first: Any, second: Any) -> Any:
    """√Σw²(x − m)² from Σw², Σw²x and Σw²x²."""
    return np.sqrt(np.maximum(second - 2 * mean * first + mean * mean * w2, 0.0))


def _folded(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Mean and variance of |N(mean, sd²)|."""
    ratio = np.divide(mean, sd, out=np.full_like(mean, np.inf), where=sd > 0)
    expected = sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * np.square(ratio)) + mean * (1 - 2 * ndtr(-ratio))
    return expected, np.maximum(mean**2 + sd**2 - expected**2, 0.0)


def _largest(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the largest of independent |N(mean, sd²)|, by ∫ P(max > t) dt."""
    low = np.maximum((mean - 7 * sd).max(axis=-1, keepdims=True), 0.0)  # below it P is 1
    width = (mean + 7 * sd).max(axis=-1, keepdims=True) - low + 1e-300
    u = np.linspace(0.0, 1.0, 129)
    t = (low + width * u)[..., None]
    mean, sd = mean[..., None, :], np.maximum(sd, 1e-300)[..., None, :]
    with np.errstate(over="ignore"):
        above = 1 - np.prod(ndtr((t - mean) / sd) - ndtr((-t - mean) / sd), axis=-1)
    step = width[..., 0] * (u[1] - u[0])
    start, x = low[..., 0], t[..., 0] - low
    # Moments about `low`, so that a large gap known well does not lose its small error to rounding.
    first = step * (above.sum(axis=-1) - (above[..., 0] + above[..., -1]) / 2)
    tail = 2 * x * above
    second = step * (tail.sum(axis=-1) - tail[..., -1] / 2)
    return start + first, np.sqrt(np.maximum(second - first**2, 0.0))


def columns_of(cells: Cells) -> Columns:
    """What `Ranked` needs of labelled cells."""
    labels = cells.label
    assert labels is not None  # callers have labels
    return cells.weight, labels, cells.weight_squares, cells.label_squares


_EXACT_ROWS = 1 << 20


def rank(f: Any, labels: NDArray[Any], weights: Array | None) -> Ranked:
    """The best 2^20 rows exactly; what lies below them in cells of the grid, each with its mean prediction."""
    parts: list[Any] = [slice(None)]
    if len(f) > _EXACT_ROWS:
        top = f >= np.partition(f, len(f) - _EXACT_ROWS)[len(f) - _EXACT_ROWS]
        parts = [top] if top.all() else [~top, top]
    cells = [
        Cells("probability", exact=i == len(parts) - 1).update(
            f[part], labels[part], sample_weight=None if weights is None else weights[part]
        )
        for i, part in enumerate(parts)
        if weights is None or weights[part].any()
    ]
    columns = [np.concatenate(column) for column in zip(*(columns_of(c) for c in cells), strict=True)]
    w, y, w2, y2 = columns
    return Ranked(np.concatenate([c.score for c in cells]), (w, y, w2, y2))


__all__ = ["Columns", "Estimate", "Ranked", "Row", "columns_of", "rank"]
