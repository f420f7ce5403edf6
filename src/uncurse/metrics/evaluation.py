"""Calibration metrics of the top-scored rows, from arrays, cells or the evidence of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from ..evidence.evidence import cells_of
from ..maps import Affine, Grouped, ScoreMap
from ..maps.combined import predicted_cells
from ..text_tables import aligned, html_table
from ..validation import (
    check_choice,
    check_labels,
    check_numbers,
    check_predictions,
    check_share,
    check_weights,
    warn_user,
)
from .estimates import Estimate, SelectionMetrics
from .ranking import Ranked, columns_of, limit_bins, rank, selected_weight, top_rows, unit_weight
from .selection import count_of_share


@dataclass(frozen=True)
class Evaluation:
    """Metrics of several selections. Prints as a table.

    Parameters
    ----------
    rows : tuple of SelectionMetrics
        Metrics of each share.
    total : float
        Number of rows, or their total weight.
    n_bins : int
        Number of bins of ECE and MCE, at most 4096.
    strategy : str
        ``"quantile"`` or ``"uniform"``.

    Examples
    --------
    >>> evaluate([0, 1, 0, 1], [0.1, 0.4, 0.2, 0.3], alphas=[0.5, 1.0]).column("ratio")
    array([0.35, 0.5 ])
    """

    rows: tuple[SelectionMetrics, ...]
    total: float
    n_bins: int
    strategy: str

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

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return [dict(vars(part)) for part in value]
            return value.to_dict() if isinstance(value, Estimate) else value

        rows = [{name: plain(value) for name, value in vars(row).items()} for row in self.rows]
        return {"total": self.total, "n_bins": self.n_bins, "strategy": self.strategy, "rows": rows}


def evaluate(
    y: ArrayLike,
    p: ArrayLike,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    sample_weight: ArrayLike | None = None,
    n_bins: int = 10,
    strategy: str = "quantile",
) -> Evaluation:
    """Measure calibration of the top-scored rows, for one or several shares.

    Rows that tie at the edge of a selection are selected in part, so that row order does not matter. Where more than
    2^21 rows are selected, those below the best 2^21 are summarised by cells of a fine grid.

    Parameters
    ----------
    y, p, sample_weight : array-like of shape (n,)
        Labels (0 or 1), predicted probabilities, and optional weights, of which only ratios matter.
    alphas : sequence of float or float, default=(0.02, 0.05, 0.1, 1.0)
        Shares to select.
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
    shares = _check_shares(alphas)
    f = check_predictions(p)
    labels = check_labels(y, len(f), name="y")
    weights = check_weights(sample_weight, len(f))
    total = float(len(f)) if weights is None else float(weights.sum())
    if weights is None and max(shares) < 0.5:
        # Only the top is needed: find its edge first, then sort the rows above it.
        f, labels = top_rows(f, labels, count_of_share(max(shares), len(f)))
    return _evaluation_of(rank(f, labels, weights), shares, total, n_bins, strategy)


def evaluate_cells(
    cells: Cells,
    score_map: ScoreMap | None = None,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    n_bins: int = 10,
    strategy: str = "quantile",
) -> Evaluation:
    """Measure calibration of the top-scored rows from labelled cells.

    Parameters
    ----------
    cells : Cells
        Labelled cells of the served score.
    score_map : ScoreMap, optional
        Map from scores to predictions; by default the link alone.
    alphas, n_bins, strategy : optional
        Shares to select, and bins of ECE and MCE, as in `evaluate`.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> cells = Cells(exact=False).update([-1.0, 0.0, 1.0], [0, 0, 1])
    >>> evaluate_cells(cells, alphas=[1.0]).rows[0].observed
    1.0
    """
    _check_types(cells, Cells, score_map)
    columns = columns_of(cells)
    if isinstance(score_map, Grouped):
        raise UncurseError("cells have no groups, and this map has a map for each group; use evaluate_log")
    if score_map is None:
        score_map = Affine(1.0, 0.0, scale=cells.scale)
    elif score_map.scale != cells.scale:
        raise UncurseError(
            f"the map takes the scale {score_map.scale}, the cells hold the scale {cells.scale}; use one scale, "
            "or `evaluate_log` for the cells of evidence, which are always logits"
        )
    shares = _check_shares(alphas)
    return _evaluation_of(Ranked(score_map(cells.score), columns), shares, float(columns[0].sum()), n_bins, strategy)


def evaluate_log(
    log: Evidence,
    score_map: ScoreMap | None = None,
    alphas: Sequence[float] | float = (0.02, 0.05, 0.1, 1.0),
    *,
    n_bins: int = 10,
    strategy: str = "quantile",
    values: Evidence | None = None,
) -> Evaluation:
    """Measure calibration of the top-scored rows from the evidence of a labelled log.

    The served score selects the rows, so all maps are measured on the same rows.

    Parameters
    ----------
    log : Evidence
        Evidence with labels; for a map by group it must be collected by group.
    score_map : ScoreMap, optional
        Map from scores to predictions; by default the link alone.
    alphas, n_bins, strategy : optional
        Shares to select, and bins of ECE and MCE, as in `evaluate`.
    values : Evidence, optional
        Evidence of the same rows with the value of a positive label as their weight. `log` still selects the rows, and
        the sums are of predicted and of observed value.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from uncurse import Affine
    >>> from uncurse.evidence import from_arrays
    >>> log = from_arrays([[-1.0], [0.0], [1.0]], [0, 0, 1])
    >>> evaluate_log(log, Affine(1.0, -1.0), alphas=[1.0]).rows[0].observed
    1.0
    """
    _check_types(log, Evidence, score_map)
    selecting = cells_of(log, "log")
    measured = log
    if values is not None:
        _check_types(values, Evidence, score_map)
        cells_of(values, "evidence of values")
        measured = values
    parts = predicted_cells(score_map, measured).values()
    prediction = np.concatenate([p for p, _ in parts]).astype(np.float64, copy=False)
    w, y, w2, y2 = (np.concatenate(column) for column in zip(*(columns_of(cells) for _, cells in parts), strict=True))
    if values is None and len(parts) == 1 and (np.diff(prediction) > 0).all():  # the prediction selects the same rows
        return _evaluation_of(
            Ranked(prediction, (w, y, w2, y2)), _check_shares(alphas), float(w.sum()), n_bins, strategy
        )
    low, high = np.concatenate([np.stack(cells.bounds) for _, cells in parts], axis=1)
    n_bins = limit_bins(n_bins)
    rows: list[SelectionMetrics] = []
    for alpha in _check_shares(alphas):
        share = _selected_share(low, high, *_edge(selecting, alpha))
        kept = share > 0
        if not kept.any():  # of a value that is 0 on all selected rows
            none, binned = Estimate(np.nan, np.nan), Estimate(np.nan, np.nan, np.nan)
            rows.append(SelectionMetrics(alpha, 0.0, 0.0, 0.0, none, none, binned, binned, none, none, ()))
            continue
        part = share[kept]
        selected = w[kept] * part
        ranked = Ranked(prediction[kept], (selected, y[kept] * part, w2[kept] * part**2, y2[kept] * part**2))
        rows += ranked.rows([alpha], selected.sum(keepdims=True), n_bins, strategy)
    return _summed_up(tuple(rows), float(w.sum()), n_bins, strategy)


def _check_types(data: object, wanted: type, score_map: object) -> None:
    """Raise UncurseError unless `data` is of the wanted type and `score_map` a map or None."""
    if not isinstance(data, wanted):
        raise UncurseError(f"this needs {wanted.__name__}, not a {type(data).__name__}")
    if not isinstance(score_map, ScoreMap | None):
        raise UncurseError(
            f"score_map is a {type(score_map).__name__}; pass a score map, or None for plain predictions"
        )


def _check_shares(alphas: Sequence[float] | float) -> list[float]:
    """Return the shares as a list; raise UncurseError if there are none or one is not in (0, 1]."""
    shares = np.atleast_1d(check_numbers(alphas, "alphas"))
    if not shares.size:
        raise UncurseError("alphas is empty; pass at least one share, such as [0.02, 0.1]")
    return [check_share(alpha) for alpha in shares.tolist()]


def _evaluation_of(ranked: Ranked, shares: list[float], total: float, n_bins: int, strategy: str) -> Evaluation:
    """Return the evaluation of the top of ranked rows."""
    selected = [selected_weight(alpha, total, ranked.unit) for alpha in shares]
    n_bins = limit_bins(n_bins)
    return _summed_up(ranked.rows(shares, np.array(selected), n_bins, strategy), total, n_bins, strategy)


def _summed_up(rows: tuple[SelectionMetrics, ...], total: float, n_bins: int, strategy: str) -> Evaluation:
    """Return the evaluation of these selections; warn if one has no positive label."""
    for row in rows:
        if row.observed <= 0:
            warn_user(
                f"the top {100 * row.alpha:g}% ({row.selected:g} rows) has no positive label, so its ratio and "
                "calibration error are undefined (NaN); select more rows"
            )
    return Evaluation(rows, total, n_bins, strategy)


def _edge(cells: Cells, alpha: float) -> tuple[float, float]:
    """Return the lowest selected logit, and the share of the rows at exactly this logit that is selected."""
    low, high = cells.bounds
    w = cells.weight
    target = selected_weight(alpha, float(w.sum()), unit_weight(w, cells.weight_squares))
    above = np.cumsum(w[::-1])
    i = min(int(np.searchsorted(above, target * (1 - 1e-12))), len(w) - 1)
    share = min(1.0 - (float(above[i]) - target) / float(w[::-1][i]), 1.0)
    bottom, top = float(low[::-1][i]), float(high[::-1][i])
    return top - share * (top - bottom), share


def _selected_share(low: Array, high: Array, edge: float, share: float) -> Array:
    """Return how much of each cell is selected."""
    exact = low == high
    within = np.clip((high - edge) / (high - low + exact), 0.0, 1.0)
    return np.where(exact, np.where(low > edge, 1.0, np.where(low == edge, share, 0.0)), within)
