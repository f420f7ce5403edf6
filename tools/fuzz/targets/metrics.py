"""Targets: selection and calibration metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from uncurse import Affine, Cells, metrics

from ..checks import check_close, check_finite, check_fit
from ..engine import Call, Fault, target

PLAIN = ("calibration_error", "calibration_ratio", "log_loss", "brier_score")
#: A standard error is the root of a difference, which rounding makes as large as this.
ROUNDING = 1e-7
BINNED = ("expected_calibration_error", "maximum_calibration_error")


def labelled_predictions(call: Call) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Draw labels, predictions and weights."""
    p = call.scores(call.rows(), scale="probability")
    y = call.labels(np.log(np.maximum(p, 1e-9)) - np.log1p(-np.minimum(p, 1 - 1e-9)))
    return y, p, call.weights(len(p))


def bin_options(call: Call) -> dict[str, Any]:
    """Draw options of binned metrics."""
    options: dict[str, Any] = {}
    if call.chance(0.5):
        options["n_bins"] = call.option(1, 2, 10, 100, 10**8)
    if call.chance(0.5):
        options["strategy"] = call.option("quantile", "uniform")
    return options


def numbers(estimate: Any) -> list[float]:
    """Return the value of an estimate and its standard error."""
    return [float(estimate), float(estimate.standard_error)]


def _metric(name: str, options_of: Callable[[Call], dict[str, Any]]) -> None:
    function = getattr(metrics, name)

    @target(f"metrics.{name}")
    def run(call: Call) -> None:
        y, p, weights = labelled_predictions(call)
        options = options_of(call)
        result = call.call(function, call.wrap(y), call.wrap(p), sample_weight=call.wrap(weights), **options)
        check_finite("the estimate or its standard error", numbers(result))

        def measure(y: np.ndarray, p: np.ndarray, weights: np.ndarray | None) -> Any:
            return numbers(call.call(function, y, p, sample_weight=weights, **options))

        if not call.broken:
            check_fit(call, measure, (y, p), weights, ROUNDING)


for _name in PLAIN:
    _metric(_name, lambda call: {})
for _name in BINNED:
    _metric(_name, bin_options)


@target("metrics.log_loss_reduction")
def log_loss_reduction(call: Call) -> None:
    y, p, weights = labelled_predictions(call)
    baseline = call.scores(len(p), scale="probability")
    arguments = (call.wrap(y), call.wrap(p), call.wrap(baseline))
    check_finite(
        "the estimate", numbers(call.call(metrics.log_loss_reduction, *arguments, sample_weight=call.wrap(weights)))
    )


@target("metrics.evaluate")
def evaluate(call: Call) -> None:
    y, p, weights = labelled_predictions(call)
    options, alphas = bin_options(call), call.option(0.5, 1.0, (1.0,), (0.02, 0.1, 1.0), [0.1], np.array([0.2, 0.5]))
    result = call.call(
        metrics.evaluate, call.wrap(y), call.wrap(p), alphas, sample_weight=call.wrap(weights), **options
    )

    def values(result: Any) -> list[float]:
        return [v for row in result.rows for v in (*numbers(row.log_loss), *numbers(row.ece), *numbers(row.mce))]

    check_finite("a metric", values(result))
    json.dumps(result.to_dict(), allow_nan=False)

    def measure(y: np.ndarray, p: np.ndarray, weights: np.ndarray | None) -> Any:
        return values(call.call(metrics.evaluate, y, p, alphas, sample_weight=weights, **options))

    if not call.broken and call.chance(0.5):
        check_fit(call, measure, (y, p), weights, ROUNDING)


@target("metrics.evaluate_cells")
def evaluate_cells(call: Call) -> None:
    scores = call.scores(call.rows())
    cells = call.call(Cells().update, scores, call.labels(scores), sample_weight=call.weights(len(scores)))
    score_map = call.option(None, None, Affine(0.5, 0.1), Affine(0.5, 0.1, scale="probability"))
    alphas = call.option(1.0, (0.1, 1.0))
    result = call.call(metrics.evaluate_cells, call.option(cells), score_map, alphas, **bin_options(call))
    json.dumps(result.to_dict(), allow_nan=False)


@target("metrics.top_share")
def top_share(call: Call) -> None:
    scores, alpha = call.scores(call.rows()).clip(-1e30, 1e30).astype(np.float32).astype(float), call.number(0.001, 1.0)
    chosen = call.call(metrics.top_share, call.wrap(scores), alpha)
    expected = int(np.floor(float(alpha) * len(chosen) + 0.5))
    if chosen.sum() != expected:
        raise Fault(f"{chosen.sum()} rows are selected, not {expected}")
    if not call.broken and chosen.any() and not chosen.all() and scores[chosen].min() < scores[~chosen].max():
        raise Fault("a row is selected whose score is below that of another")


@target("metrics.top_k")
def top_k(call: Call) -> None:
    scores, k = call.scores(call.rows()), call.count(1, 5)
    requests = call.groups(len(scores))
    chosen = call.call(metrics.top_k, call.wrap(scores), call.wrap(requests), call.option(k, k))
    if call.broken:
        return
    for request in np.unique(requests.astype(str)):
        rows = requests.astype(str) == request
        if chosen[rows].sum() != min(k, rows.sum()):
            raise Fault(f"{chosen[rows].sum()} of {rows.sum()} rows of a request are selected, k={k}")
        check_close("selection", np.sort(scores[rows & chosen]), np.sort(scores[rows])[-int(k) :])


__all__: list[str] = []
