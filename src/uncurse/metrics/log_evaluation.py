"""Calibration metrics of the top-scored rows from the evidence of a log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence
from ..links import logistic
from ..maps import Grouped, ScoreMap
from .estimates import Estimate, SelectionMetrics
from .evaluation import Evaluation, check_shares, check_types, evaluation_of, summed_up
from .ranking import Ranked, columns_of, limit_bins
from .selection import count_of_share


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
    check_types(log, Evidence, score_map)
    measured = log if values is None else values
    for evidence in (log, measured):
        if evidence.cells is None:
            raise UncurseError(
                "this evidence has scale='value', which does not predict a label; evaluate logits or probabilities"
            )
        if evidence.spec.label is None:
            raise UncurseError("this evidence holds no labels; collect it with its label column")
    assert log.cells is not None
    assert measured.cells is not None
    parts: list[tuple[ScoreMap | None, Cells | None]] = [(score_map, measured.cells)]
    if isinstance(score_map, Grouped):
        if not measured.groups:
            raise UncurseError("this map has a map for each group; collect the log by its group column too")
        parts = [(score_map.maps.get(name, score_map.default), part.cells) for name, part in measured.groups.items()]
    predictions, columns, bounds = [], [], []
    for part_map, cells in parts:
        if cells is None:
            raise UncurseError("a log of more than 200 groups is collected without their cells; use fewer groups")
        # Cells hold logits corrected for negative sampling. Maps take uncorrected logits.
        logits = cells.score - measured.spec.logit_offset
        predictions.append(logistic(cells.score) if part_map is None else part_map.at_logits(logits))
        columns.append(columns_of(cells))
        bounds.append(np.stack(cells.bounds))
    prediction = np.concatenate(predictions).astype(np.float64, copy=False)
    w, y, w2, y2 = (np.concatenate(column) for column in zip(*columns, strict=True))
    if values is None and len(parts) == 1 and (np.diff(prediction) > 0).all():  # the prediction selects the same rows
        return evaluation_of(Ranked(prediction, (w, y, w2, y2)), check_shares(alphas), float(w.sum()), n_bins, strategy)
    low, high = np.concatenate(bounds, axis=1)
    n_bins = limit_bins(n_bins)
    rows: list[SelectionMetrics] = []
    for alpha in check_shares(alphas):
        share = _selected_share(low, high, *_edge(log.cells, alpha))
        kept = share > 0
        if not kept.any():  # of a value that is 0 on all selected rows
            none = Estimate(np.nan, np.nan)
            rows.append(SelectionMetrics(alpha, 0.0, 0.0, 0.0, none, none, none, none, none, none, ()))
            continue
        part = share[kept]
        selected = w[kept] * part
        ranked = Ranked(prediction[kept], (selected, y[kept] * part, w2[kept] * part**2, y2[kept] * part**2))
        rows += ranked.rows([alpha], selected.sum(keepdims=True), n_bins, strategy)
    return summed_up(tuple(rows), float(measured.cells.weight.sum()), n_bins, strategy)


def _edge(cells: Cells, alpha: float) -> tuple[float, float]:
    """Return the lowest selected logit, and the share of the rows at exactly this logit that is selected."""
    low, high = cells.bounds
    w = cells.weight
    total = float(w.sum())
    unit = float(cells.weight_squares[0] / w[0])
    same = np.allclose(cells.weight_squares, unit * w, rtol=1e-12, atol=0.0)
    target = unit * count_of_share(alpha, round(total / unit)) if same else alpha * total
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
