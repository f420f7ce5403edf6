"""Metrics on the selected set, each with its standard error; ECE and MCE with the noise floor beside them.

A metric is an `Estimate`: a float that also knows its `standard_error` and, where it has one, its `floor`:
what the metric would be on average if every prediction were the true probability.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from .documents import SCHEMA_VERSION
from .evidence import Array, Cells
from .links import (
    UncurseError,
    check_choice,
    check_finite,
    check_labels,
    check_length,
    check_scores,
    check_share,
    check_weights,
    inside,
)
from .maps import Affine, ScoreMap
from .selection import count_of_share


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


@dataclass(frozen=True)
class Evaluation:
    """A row per α. Prints as a table; `to_json` has every number."""

    rows: tuple[Row, ...]
    total: float
    n_bins: int
    strategy: str

    def __str__(self) -> str:
        header = f"{'top':>6}  {'selected':>10}  {'predicted/observed':>20}  {'calibration error':>18}  "
        header += f"{'ECE (floor)':>16}  {'MCE (floor)':>16}  {'log loss':>8}  {'Brier':>8}"
        lines = [header]
        for row in self.rows:
            error = f"{100 * row.calibration_error:+.2f}% ± {100 * row.calibration_error.standard_error:.2f}%"
            ratio = f"{row.ratio:.4f} ± {row.ratio.standard_error:.4f}"
            ece, mce = f"{row.ece:.4f} ({row.ece.floor:.4f})", f"{row.mce:.4f} ({row.mce.floor:.4f})"
            lines.append(
                f"{100 * row.alpha:>5.4g}%  {row.selected:>10,.0f}  {ratio:>20}  {error:>18}  {ece:>16}  {mce:>16}  "
                f"{row.log_loss:>8.5f}  {row.brier:>8.5f}"
            )
        return "\n".join(lines)

    def column(self, name: str) -> Array:
        """One metric over all α."""
        return np.array([float(getattr(row, name)) for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""

        def plain(value: Any) -> Any:
            return value.to_dict() if isinstance(value, Estimate) else value

        rows = [{name: plain(value) for name, value in vars(row).items()} for row in self.rows]
        return {"total": self.total, "n_bins": self.n_bins, "strategy": self.strategy, "rows": rows}

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps({"kind": "evaluation", "schema_version": SCHEMA_VERSION, **self.to_dict()})


def evaluate(
    y: ArrayLike,
    p: ArrayLike,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    sample_weight: ArrayLike | None = None,
    n_bins: int = 10,
    strategy: str = "quantile",
) -> Evaluation:
    """Every metric on the top share of `p`, for many shares at the cost of one sort.

    Rows that tie at the edge of a selection are taken in part, all alike, so that row order does not matter. Where
    more than 2^20 rows are selected, cells of a fine grid stand for them (see `Cells`).

    Parameters
    ----------
    y, p
        Labels, 0 or 1, and predicted probabilities, shape (n,).
    alphas
        Shares to select.
    n_bins, strategy
        Of ECE and MCE: bins of equal count (``"quantile"``, the paper's code) or equal width (``"uniform"``).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.beta(2, 50, 100_000)
    >>> noisy = truth * rng.lognormal(0, 0.3, 100_000)
    >>> result = evaluate(rng.random(100_000) < truth, noisy.clip(0, 1), alphas=[0.02, 1.0])
    >>> bool(result.rows[0].calibration_error > 0.2)
    True
    """
    shares = [check_share(a) for a in np.atleast_1d(np.asarray(alphas, np.float64)).tolist()]
    if not shares:
        raise UncurseError("alphas is empty; pass at least one share, such as [0.02, 0.1]")
    f = check_scores(p, "probability", name="p")
    labels = check_labels(y, len(f), name="y")
    weights = check_weights(sample_weight, len(f))
    total = float(len(f)) if weights is None else float(weights.sum())
    if weights is None and max(shares) < 0.5:
        # Only the top is ever looked at: find its edge first, sort what is above.
        count = count_of_share(max(shares), len(f))
        keep = f >= np.partition(f, len(f) - count)[len(f) - count]
        f, labels = f[keep], labels[keep]
    return _evaluation(_ranked(f, labels, weights), shares, total, n_bins, strategy)


def evaluate_cells(
    cells: Cells,
    score_map: ScoreMap | None = None,
    alphas: Sequence[float] = (0.02, 0.05, 0.1, 1.0),
    *,
    n_bins: int = 10,
    strategy: str = "quantile",
) -> Evaluation:
    """The same from labelled cells of the served score, through a map (by default its plain prediction).

    >>> cells = Cells(exact=False).update([-1.0, 0.0, 1.0], [0, 0, 1])
    >>> evaluate_cells(cells, alphas=[1.0]).rows[0].observed
    1.0
    """
    if cells.label is None:
        raise UncurseError("these cells hold no labels; update them with scores and labels")
    if score_map is None:
        score_map = Affine(1.0, 0.0, scores=cells.scale)
    shares = [check_share(a) for a in alphas]
    return _evaluation(_Ranked(score_map(cells.score), cells), shares, float(cells.weight.sum()), n_bins, strategy)


# ---------------------------------------------------------------------------- single metrics


def calibration_ratio(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Σf / Σy, which ad teams call calibration or PCOC. Labels may be any numbers of positive sum.

    >>> calibration_ratio([1, 0, 1, 0], [0.5, 0.5, 0.5, 0.5])
    1 ± 0.5
    """
    f = check_scores(p, "value", name="p").astype(np.float64)
    labels = np.asarray(y, np.float64)
    check_length(labels, len(f), "y")
    check_finite(labels, "y")
    weights = check_weights(sample_weight, len(f))
    w = np.ones(1) if weights is None else weights
    predicted, observed = float(np.sum(w * f)), float(np.sum(w * labels))
    if observed <= 0:
        raise UncurseError(
            f"the labels sum to {observed:g}, so no ratio exists; select more rows, with positives in them"
        )
    ratio = predicted / observed
    return Estimate(ratio, np.sqrt(np.sum(np.square(w * (f - ratio * labels)))) / observed)


def calibration_error(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Signed calibration error Σf / Σy − 1: +0.05 is 5% too high.

    >>> calibration_error([1, 0], [0.6, 0.5])
    0.1 ± 0.71
    """
    ratio = calibration_ratio(y, p, sample_weight=sample_weight)
    return Estimate(ratio - 1, ratio.standard_error)


def expected_calibration_error(
    y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None, n_bins: int = 10, strategy: str = "quantile"
) -> Estimate:
    """Mean over bins of |mean label − mean prediction|, weighted by what is in them.

    >>> expected_calibration_error([0, 1, 1, 1], [0.1, 0.2, 0.9, 0.9], n_bins=2)
    0.225 ± 0.13 (floor 0.184)
    """
    return _whole_binned(y, p, sample_weight, n_bins, strategy)[0]


def maximum_calibration_error(
    y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None, n_bins: int = 10, strategy: str = "quantile"
) -> Estimate:
    """Largest over bins of |mean label − mean prediction|.

    >>> float(maximum_calibration_error([0, 1, 1, 1], [0.1, 0.2, 0.9, 0.9], n_bins=2))
    0.35
    """
    return _whole_binned(y, p, sample_weight, n_bins, strategy)[1]


def log_loss(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Mean of −log of the probability given to what happened.

    >>> log_loss([1, 0], [0.5, 0.5])
    0.6931 ± 0
    """
    f, labels, w = _arrays(y, p, sample_weight)
    return _mean(_row_losses(labels, f), w)


def brier_score(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Mean squared error of the probability.

    >>> brier_score([1, 0], [0.5, 0.5])
    0.25 ± 0
    """
    f, labels, w = _arrays(y, p, sample_weight)
    return _mean(np.square(labels - f), w)


def log_loss_reduction(
    y: ArrayLike, p: ArrayLike, baseline: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """LogLoss(p) / LogLoss(baseline) − 1; negative is better. The standard error is that of paired rows.

    >>> float(log_loss_reduction([1, 0], [0.5, 0.5], [0.5, 0.5]))
    0.0
    """
    f, labels, w = _arrays(y, p, sample_weight)
    g = _arrays(y, baseline, sample_weight)[0]
    ours, theirs = _row_losses(labels, f), _row_losses(labels, g)
    base = float(np.average(theirs, weights=w))
    ratio = float(np.average(ours, weights=w)) / base
    return Estimate(ratio - 1, _mean(ours - ratio * theirs, w).standard_error / base)


def _arrays(y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Array, NDArray[Any], Array | None]:
    f = check_scores(p, "probability", name="p").astype(np.float64)
    return f, check_labels(y, len(f), name="y"), check_weights(sample_weight, len(f))


def _row_losses(labels: NDArray[Any], f: Array) -> Array:
    f = inside(f, 0.0, 1.0)  # type: ignore[assignment]
    return -np.where(labels > 0, np.log(f), np.log1p(-f))


def _mean(values: Array, weights: Array | None) -> Estimate:
    w = np.ones(len(values)) if weights is None else weights
    total = w.sum()
    mean = float(w @ values / total)
    return Estimate(mean, np.sqrt(np.sum(np.square(w * (values - mean)))) / total)


def _whole_binned(
    y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None, n_bins: int, strategy: str
) -> tuple[Estimate, Estimate]:
    f = check_scores(p, "probability", name="p")
    ranked = _ranked(f, check_labels(y, len(f), name="y"), check_weights(sample_weight, len(f)))
    (ece,), (mce,) = ranked.binned(ranked.sums[0, -1:], n_bins, strategy)
    return ece, mce


def _ranked(f: Any, labels: NDArray[Any], weights: Array | None) -> _Ranked:
    """Exact up to 2^20 rows; beyond, the grid of cells, whose means are true to 1e-7."""
    if len(f) > 1 << 20:
        cells = Cells("logit", exact=False).update(f, labels, scale="probability", sample_weight=weights)
        return _Ranked(Affine(1.0, 0.0)(cells.score), cells)
    cells = Cells("probability", exact=True).update(f, labels, sample_weight=weights)
    return _Ranked(cells.score, cells)


# ---------------------------------------------------------------------------- the ranked set

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


class _Ranked:
    """Cells from the best down, with running sums of everything a metric needs, so that any selection is a look-up."""

    def __init__(self, prediction: Array, cells: Cells) -> None:
        f, w, y = prediction[::-1], cells.weight[::-1], cells.label
        assert y is not None  # callers have labels
        y, w2, y2 = y[::-1], cells.weight_squares[::-1], cells.label_squares[::-1]
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
                    f"the top {100 * alpha:g}% ({count:g} rows) holds no positive label, so no ratio exists; select more"
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
        if int(n_bins) < 1:
            raise UncurseError(f"n_bins={n_bins}; use at least 1")
        shares = np.arange(int(n_bins) + 1) / int(n_bins)
        end = selected[:, None]
        if strategy == "quantile":
            bounds = end * shares
            if self.whole_rows:
                bounds = np.where(end == np.floor(end), np.floor(bounds + 0.5), bounds)
        else:
            # Cells with f ≥ edge come first: predictions are in order, from the best down.
            edges = self.sums[0][np.searchsorted(-self.f, -shares[::-1], side="right")]
            edges[0], edges[-1] = 0.0, np.inf
            bounds = np.minimum(edges, end)
        s = {name: np.diff(v, axis=-1) for name, v in self.at(bounds).items()}
        empty = s["w"] <= 0
        w = np.where(empty, 1.0, s["w"])
        residual = (s["y"] - s["f"]) / w
        gap, spread = np.abs(residual), _deviation(residual, s["w2"], s["r1"], s["r2"]) / w
        floor = np.sqrt(np.maximum(s["noise"], 0.0)) / w
        gap, spread, floor = (np.where(empty, 0.0, v) for v in (gap, spread, floor))
        share = s["w"] / s["w"].sum(axis=-1, keepdims=True)
        variance = _folded(gap, spread)[1]
        ece = map(
            Estimate,
            (share * gap).sum(axis=-1),
            np.sqrt((np.square(share) * variance).sum(axis=-1)),
            (share * floor).sum(axis=-1) * np.sqrt(2 / np.pi),
        )
        mce = map(Estimate, gap.max(axis=-1), _largest(gap, spread)[1], _largest(np.zeros_like(floor), floor)[0])
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
    top = (mean + 7 * sd).max(axis=-1, keepdims=True) + 1e-300
    u = np.linspace(0.0, 1.0, 97)
    t = (top * u)[..., None]
    mean, sd = mean[..., None, :], np.maximum(sd, 1e-300)[..., None, :]
    with np.errstate(over="ignore"):
        above = 1 - np.prod(ndtr((t - mean) / sd) - ndtr((-t - mean) / sd), axis=-1)
    step = top[..., 0] * (u[1] - u[0])
    first = step * (above.sum(axis=-1) - (above[..., 0] + above[..., -1]) / 2)
    tail = 2 * t[..., 0] * above
    second = step * (tail.sum(axis=-1) - tail[..., -1] / 2)
    return first, np.sqrt(np.maximum(second - first**2, 0.0))


def _evaluation(ranked: _Ranked, shares: list[float], total: float, n_bins: int, strategy: str) -> Evaluation:
    counted = ranked.whole_rows
    selected = np.array([float(count_of_share(a, int(total))) if counted else a * total for a in shares])
    return Evaluation(ranked.rows(shares, selected, n_bins, strategy), total, int(n_bins), strategy)


__all__ = [
    "Estimate",
    "Evaluation",
    "Row",
    "brier_score",
    "calibration_error",
    "calibration_ratio",
    "evaluate",
    "evaluate_cells",
    "expected_calibration_error",
    "log_loss",
    "log_loss_reduction",
    "maximum_calibration_error",
]
