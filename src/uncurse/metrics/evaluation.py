"""Calibration metrics of the top-scored rows and of all rows, from arrays or the evidence of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..documents import plain
from ..errors import UncurseError
from ..evidence import Evidence, Histogram
from ..evidence.evidence import served_of
from ..links import inside, logistic
from ..maps import ScoreMap
from ..maps.combined import predicted_cells
from ..text import aligned, html_table
from ..validation import (
    LARGEST_SCORE,
    check_choice,
    check_count,
    check_finite,
    check_labels,
    check_length,
    check_numbers,
    check_outcomes,
    check_predictions,
    check_scores,
    check_share,
    check_weights,
    warn_user,
)
from .measure import (
    MAX_BINS,
    Estimate,
    SelectionMetrics,
    binomial_error,
    selected_weight,
    sums_of_cells,
    sums_of_rows,
    top_metrics,
)
from .selection import count_of_share

DEFAULT_SHARES = (0.001, 0.01, 0.02, 0.05, 0.1)
_LEAST_ROWS, _LEAST_POSITIVES = 100, 10  # of a share: the standard error is then about 30%


@dataclass(frozen=True)
class Evaluation:
    """Metrics of several selections. Prints as a table.

    Examples
    --------
    >>> evaluate([0, 1, 0, 1], [0.1, 0.4, 0.2, 0.3], alphas=[0.5, 1.0]).column("ratio")
    array([0.35, 0.5 ])
    """

    rows: tuple[SelectionMetrics, ...]  # of each share
    total: float  # number of rows, or their total weight
    n_bins: int  # of ECE and MCE, at most 4096
    strategy: str  # "quantile" or "uniform"

    def table(self) -> list[tuple[str, ...]]:
        """Return the metrics as text, one row per share.

        Returns
        -------
        list of tuple of str
            Names of the columns, then the cells of each share.
        """
        return [tuple(self.rows[0].cells()), *(tuple(row.cells().values()) for row in self.rows)]

    def __str__(self) -> str:
        return "\n".join(aligned(self.table(), left=0))

    def _repr_html_(self) -> str:
        return html_table(self.table(), caption="Calibration of the top-scored rows")

    def column(self, name: str) -> Array:
        """Return one metric of all shares as an array.

        Parameters
        ----------
        name : str
            Field of `SelectionMetrics`.

        Returns
        -------
        array of shape (shares,)
        """
        check_choice("name", name, tuple(part.name for part in fields(SelectionMetrics) if part.name != "bins"))
        return np.array([float(getattr(row, name)) for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; an undefined ratio is None.

        Returns
        -------
        dict
        """
        return {name: plain(getattr(self, name)) for name in ("total", "n_bins", "strategy", "rows")}


def evaluate(
    y: ArrayLike,
    p: ArrayLike,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    sample_weight: ArrayLike | None = None,
    trials: ArrayLike | None = None,
    n_bins: int = 10,
    strategy: str = "quantile",
) -> Evaluation:
    """Measure calibration of the top-scored rows, for one or several shares.

    Rows that tie at the edge of a selection are selected in part, so that row order does not matter. Beyond a million
    rows, predictions that agree to 0.01% are one prediction.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.
    alphas : sequence of float or float, default=(0.02, 0.05, 0.1, 1.0)
        Shares to select.
    trials : array-like of shape (n,), optional
        Number of trials of each row. `y` is then the number of successes, and the row counts as one row per trial.
    n_bins : int, default=10
        Number of bins of ECE and MCE, at most 4096.
    strategy : {"quantile", "uniform"}, default="quantile"
        Bins of equal weight, or of equal width in probability.

    Returns
    -------
    Evaluation
        One row of metrics per share. If a share has no positive label, its ratio and calibration error are NaN and a
        `UserWarning` names the share.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.beta(2, 50, 100_000)
    >>> noisy = truth * rng.lognormal(0, 0.3, 100_000)
    >>> result = evaluate(rng.random(100_000) < truth, noisy.clip(0, 1), alphas=[0.02, 1.0])
    >>> bool(result.rows[0].calibration_error > 0.2)
    True
    """
    return _warned(_evaluate(y, p, _check_shares(alphas), sample_weight, n_bins, strategy, trials))


def _evaluate(
    y: ArrayLike,
    p: ArrayLike,
    shares: list[float],
    sample_weight: ArrayLike | None,
    n_bins: int,
    strategy: str,
    trials: ArrayLike | None = None,
) -> Evaluation:
    f, labels, weights, counts = check_outcomes(check_predictions(p), y, sample_weight, trials, "y")
    total, equal = float(len(f)), weights is None and counts is None
    if equal and max(shares) < 0.5:  # only the top is needed: find its edge before sorting
        count = count_of_share(max(shares), len(f))
        top = f >= np.partition(f, len(f) - count)[len(f) - count]
        f, labels = f[top], labels[top]
    prediction, sums = sums_of_rows(f, labels, weights, counts)
    total = total if equal else float(sums[0].sum())
    selected = [selected_weight(alpha, sums, total) for alpha in shares]
    n_bins = min(check_count(n_bins, "n_bins"), MAX_BINS)
    return Evaluation(top_metrics(prediction, sums, shares, selected, n_bins, strategy), total, n_bins, strategy)


def expected_calibration_error(
    y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None, n_bins: int = 10, strategy: str = "quantile"
) -> Estimate:
    """Return the weighted mean over bins of ``|mean label − mean prediction|``.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.
    n_bins : int, default=10
        Number of bins, at most 4096.
    strategy : {"quantile", "uniform"}, default="quantile"
        Bins of equal weight, or of equal width in probability.

    Returns
    -------
    Estimate
        With its noise floor: the mean for labels drawn from the predictions, by simulation with a fixed seed.

    Examples
    --------
    >>> expected_calibration_error([0, 1, 1, 1], [0.1, 0.2, 0.9, 0.9], n_bins=2)
    0.225 (standard error 0.12, floor 0.188)
    """
    return _evaluate(y, p, [1.0], sample_weight, n_bins, strategy).rows[0].ece


def maximum_calibration_error(
    y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None, n_bins: int = 10, strategy: str = "quantile"
) -> Estimate:
    """Return the maximum over bins of ``|mean label − mean prediction|``.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.
    n_bins, strategy : optional
        As in `expected_calibration_error`.

    Returns
    -------
    Estimate
        With its noise floor, as in `expected_calibration_error`.

    Examples
    --------
    >>> float(maximum_calibration_error([0, 1, 1, 1], [0.1, 0.2, 0.9, 0.9], n_bins=2))
    0.35
    """
    return _evaluate(y, p, [1.0], sample_weight, n_bins, strategy).rows[0].mce


def calibration_error(y: ArrayLike, p: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Estimate:
    """Return the signed calibration error Σp / Σy − 1; +0.05 means 5% too high.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels, which are any numbers of positive sum, predictions, and optional weights, of which only ratios matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> calibration_error([1, 0], [0.6, 0.5])
    0.1 (standard error 0.77)
    """
    f = check_scores(p, "value", name="p").astype(np.float64)
    labels = check_numbers(y, "y").astype(np.float64)
    check_length(labels, len(f), "y")
    check_finite(labels, "y", LARGEST_SCORE)
    w = _weights(sample_weight, len(f))
    predicted, observed = float(w @ f), float(w @ labels)
    if observed <= 0:
        raise UncurseError(f"the labels sum to {observed:g}, so no ratio exists; select more rows, with positives")
    ratio = predicted / observed
    error = float(np.linalg.norm(w * (f - ratio * labels)))
    if ((labels == 0) | (labels == 1)).all():
        error = max(error, binomial_error(f, w * w, ratio))
    return Estimate(ratio - 1, error / observed)


def log_loss_reduction(
    y: ArrayLike, p: ArrayLike, baseline: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Return LogLoss(p) / LogLoss(baseline) − 1; negative is better. The standard error is that of paired rows.

    Parameters
    ----------
    y, p, baseline, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, those to compare with, and optional weights, of which only ratios
        matter.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> float(log_loss_reduction([1, 0], [0.5, 0.5], [0.5, 0.5]))
    0.0
    """
    losses, base_losses = _losses(y, p), _losses(y, baseline)
    check_length(base_losses, len(losses), "baseline")
    w = _weights(sample_weight, len(losses))
    base = float(w @ base_losses)
    if base < 1e-100 * w.sum():
        raise UncurseError("the baseline predicts every label with certainty, so no ratio of log losses exists")
    ratio = float(w @ losses) / base
    return Estimate(ratio - 1, float(np.linalg.norm(w * (losses - ratio * base_losses))) / base)


def _weights(sample_weight: ArrayLike | None, rows: int) -> Array:
    weights = check_weights(sample_weight, rows)
    return np.ones(rows) if weights is None else weights


def _losses(y: ArrayLike, p: ArrayLike) -> Array:
    """Return the log loss of each row."""
    f = check_predictions(p).astype(np.float64)
    labels, f = check_labels(y, len(f), name="y"), np.asarray(inside(f, 0.0, 1.0))
    return -np.where(labels > 0, np.log(f), np.log1p(-f))


def evaluate_log(
    log: Evidence,
    score_map: ScoreMap | None = None,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    n_bins: int = 10,
    strategy: str = "quantile",
    values: Evidence | None = None,
) -> Evaluation:
    """Measure calibration of the top-scored rows from the evidence of a labeled log.

    The served score selects the rows, so all maps are measured on the same rows. Without a map, predictions are those
    of the link. For a map by segment the log must be collected by segment. `values` is evidence of the same rows with
    the value of a positive label as their weight: `log` still selects the rows, and the sums are of predicted and of
    observed value. The other arguments are those of `evaluate`.

    >>> from uncurse import Affine
    >>> from uncurse.evidence import from_arrays
    >>> log = from_arrays([[-1.0], [0.0], [1.0]], [0, 0, 1])
    >>> evaluate_log(log, Affine(1.0, -1.0), alphas=[1.0]).rows[0].observed
    1.0
    """
    if not isinstance(log, Evidence):
        raise UncurseError(f"log is of type {type(log).__name__}; pass Evidence, which `collect` returns")
    selecting = served_of(log, "log")
    if values is not None:
        served_of(values, "evidence of values")
    parts = predicted_cells(score_map, log if values is None else values).values()
    prediction = np.concatenate([p for p, _ in parts]).astype(np.float64, copy=False)
    sums = np.concatenate([sums_of_cells(cells) for _, cells in parts], axis=1)
    low, high = np.concatenate([np.stack(cells.bounds) for _, cells in parts], axis=1)
    rows: list[SelectionMetrics] = []
    n_bins = min(check_count(n_bins, "n_bins"), MAX_BINS)
    for alpha in _check_shares(alphas):
        share = _selected_share(low, high, *_edge(selecting, alpha))
        kept = share > 0
        if not kept.any():  # of a value that is 0 on all selected rows
            none, binned = Estimate(np.nan, np.nan), Estimate(np.nan, np.nan, np.nan)
            rows.append(SelectionMetrics(alpha, 0.0, 0.0, 0.0, none, none, binned, binned, none, none, ()))
            continue
        chosen = sums[:, kept] * share[kept] ** np.array([[1], [1], [2], [2]])
        rows += top_metrics(prediction[kept], chosen, [alpha], [chosen[0].sum()], n_bins, strategy)
    found = Evaluation(tuple(rows), float(sums[0].sum()), n_bins, strategy)
    return found if values is not None else _warned(found)


def default_shares(log: Evidence) -> list[float]:
    """Return the shares of 0.1%, 1%, 2%, 5% and 10% that select 100 rows and 10 predicted positives; at least one.

    >>> from uncurse.evidence import from_arrays
    >>> default_shares(from_arrays(np.full((5_000, 1), -2.0), np.arange(5_000) % 2))
    [0.02, 0.05, 0.1]
    """
    cells = served_of(log, "log")
    p, found = logistic(cells.score), []
    for alpha in DEFAULT_SHARES:
        if alpha * log.effective_rows >= _LEAST_ROWS:
            rows = cells.weight * _selected_share(*cells.bounds, *_edge(cells, alpha))
            found += [alpha] if p @ rows * log.effective_rows / log.weight >= _LEAST_POSITIVES else []
    return found or [DEFAULT_SHARES[-1] if DEFAULT_SHARES[-1] * log.effective_rows >= 1 else 1.0]


def _check_shares(alphas: Sequence[float] | float) -> list[float]:
    """Return the shares as a list; raise UncurseError if there are none or one is not in (0, 1]."""
    shares = np.atleast_1d(check_numbers(alphas, "alphas"))
    if not shares.size:
        raise UncurseError("alphas is empty; pass at least one share, such as [0.02, 0.1]")
    return [check_share(alpha) for alpha in shares.tolist()]


def _warned(evaluation: Evaluation) -> Evaluation:
    """Warn if a selection has no positive label."""
    for row in evaluation.rows:
        if row.observed <= 0:
            warn_user(
                f"the top {100 * row.alpha:g}% ({row.selected:g} rows) has no positive label, so its ratio and "
                "calibration error are undefined (NaN); select more rows"
            )
    return evaluation


def _edge(cells: Histogram, alpha: float) -> tuple[float, float]:
    """Return the lowest selected logit, and the selected share of a cell without width at this logit."""
    low, high = cells.bounds
    w = cells.weight[::-1]
    target = selected_weight(alpha, np.stack([w, w, cells.weight_squares[::-1]]), float(w.sum()))
    above = np.cumsum(w)
    i = min(int(np.searchsorted(above, target * (1 - 1e-12))), len(w) - 1)
    share = min(1.0 - float(above[i] - target) / float(w[i]), 1.0)
    bottom, top = float(low[::-1][i]), float(high[::-1][i])
    return top - share * (top - bottom), share


def _selected_share(low: Array, high: Array, edge: float, share: float) -> Array:
    """Return how much of each cell is selected."""
    exact = low == high
    within = np.clip((high - edge) / (high - low + exact), 0.0, 1.0)
    return np.where(exact, np.where(low > edge, 1.0, np.where(low == edge, share, 0.0)), within)
