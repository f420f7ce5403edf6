"""Metrics on the selected set, each with its standard error; ECE and MCE with the noise floor beside them.

A metric is an `Estimate`: a float that also knows its `standard_error` and, where it has one, its `floor`:
what the metric would be on average if every prediction were the true probability.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..documents import SCHEMA_VERSION
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from ..links import inside, logistic
from ..maps import Affine, Grouped, ScoreMap
from ..validation import (
    check_finite,
    check_labels,
    check_length,
    check_numbers,
    check_scores,
    check_share,
    check_weights,
)
from .ranking import Bin, Estimate, Ranked, Row, columns_of, rank, top_rows
from .selection import count_of_share


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
            if isinstance(value, tuple):
                return [dict(vars(one)) for one in value]
            return value.to_dict() if isinstance(value, Estimate) else value

        rows = [{name: plain(value) for name, value in vars(row).items()} for row in self.rows]
        return {"total": self.total, "n_bins": self.n_bins, "strategy": self.strategy, "rows": rows}

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps({"kind": "evaluation", "schema_version": SCHEMA_VERSION, **self.to_dict()})

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """One offline page with the figures and every number; `uncurse.report.Report` sets several side by side."""
        from ..report import Method, Report

        Report([Method("the predictions", self)]).to_html(path)


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
    more than 2^21 rows are selected, cells of a fine grid stand for those below the best 2^21.

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
    shares = _shares(alphas)
    f = check_scores(p, "probability", name="p")
    labels = check_labels(y, len(f), name="y")
    weights = check_weights(sample_weight, len(f))
    total = float(len(f)) if weights is None else float(weights.sum())
    if weights is None and max(shares) < 0.5:
        # Only the top is ever looked at: find its edge first, sort what is above.
        f, labels = top_rows(f, labels, count_of_share(max(shares), len(f)))
    return _evaluation(rank(f, labels, weights), shares, total, n_bins, strategy)


def evaluate_cells(
    cells: Cells,
    score_map: ScoreMap | None = None,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
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
        score_map = Affine(1.0, 0.0, scale=cells.scale)
    elif score_map.scale != cells.scale:
        raise UncurseError(
            f"the map takes scale={score_map.scale!r}, the cells hold scale={cells.scale!r}; use one scale"
        )
    shares = _shares(alphas)
    return _evaluation(
        Ranked(score_map(cells.score), columns_of(cells)), shares, float(cells.weight.sum()), n_bins, strategy
    )


def evaluate_log(
    log: Evidence,
    score_map: ScoreMap | None = None,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    n_bins: int = 10,
    strategy: str = "quantile",
) -> Evaluation:
    """The same from the evidence of a labelled log; a map by group needs evidence by group.

    >>> from uncurse.evidence import from_arrays
    >>> log = from_arrays([[-1.0], [0.0], [1.0]], [0, 0, 1])
    >>> evaluate_log(log, Affine(1.0, -1.0), alphas=[1.0]).rows[0].observed
    1.0
    """
    if log.cells is None:
        raise UncurseError("this evidence is of values, which are no predictions of a label; evaluate probabilities")
    if log.spec.label is None:
        raise UncurseError("this evidence holds no labels; collect it with its label column")
    parts: list[tuple[ScoreMap | None, Cells | None]] = [(score_map, log.cells)]
    if isinstance(score_map, Grouped):
        if not log.groups:
            raise UncurseError("this map has a map for each group; collect the log by its group column too")
        parts = [(score_map.maps.get(name, score_map.default), part.cells) for name, part in log.groups.items()]
    # The cells are of corrected logits where negatives were sampled; a map corrects them itself.
    offset = log.spec.logit_offset
    predictions, columns = [], []
    for step, cells in parts:
        if cells is None:
            raise UncurseError("a log of more than 200 groups is collected without their cells; use fewer groups")
        predictions.append(logistic(cells.score) if step is None else step.at_logits(cells.score - offset))
        columns.append(columns_of(cells))
    w, y, w2, y2 = (np.concatenate(column) for column in zip(*columns, strict=True))
    ranked = Ranked(np.concatenate(predictions).astype(np.float64, copy=False), (w, y, w2, y2))
    return _evaluation(ranked, _shares(alphas), float(w.sum()), n_bins, strategy)


# ---------------------------------------------------------------------------- single metrics


def calibration_ratio(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Σf / Σy, which ad teams call calibration or PCOC. Labels may be any numbers of positive sum.

    >>> calibration_ratio([1, 0, 1, 0], [0.5, 0.5, 0.5, 0.5])
    1 ± 0.5
    """
    f = check_scores(p, "value", name="p").astype(np.float64)
    labels = check_numbers(y, "y").astype(np.float64)
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
    ranked = rank(f, check_labels(y, len(f), name="y"), check_weights(sample_weight, len(f)))
    (ece,), (mce,) = ranked.binned(ranked.reached[-1:], n_bins, strategy)
    return ece, mce


def _shares(alphas: Sequence[float] | float) -> list[float]:
    try:
        shares = [check_share(a) for a in np.atleast_1d(np.asarray(alphas)).tolist()]
    except TypeError:
        raise UncurseError(f"alphas={alphas!r}; pass shares, such as [0.02, 0.1]") from None
    if not shares:
        raise UncurseError("alphas is empty; pass at least one share, such as [0.02, 0.1]")
    return shares


def _evaluation(ranked: Ranked, shares: list[float], total: float, n_bins: int, strategy: str) -> Evaluation:
    counted = ranked.whole_rows
    selected = np.array([float(count_of_share(a, int(total))) if counted else a * total for a in shares])
    return Evaluation(ranked.rows(shares, selected, n_bins, strategy), total, n_bins, strategy)


__all__ = [
    "Bin",
    "Estimate",
    "Evaluation",
    "Row",
    "brier_score",
    "calibration_error",
    "calibration_ratio",
    "evaluate",
    "evaluate_cells",
    "evaluate_log",
    "expected_calibration_error",
    "log_loss",
    "log_loss_reduction",
    "maximum_calibration_error",
]
