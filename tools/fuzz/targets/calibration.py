"""Targets: calibrators."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncurse import Cells, calibrate
from uncurse.calibration import CALIBRATORS, choose_half_life, fit_calibrator
from uncurse.evidence import from_arrays

from ..checks import check_fit, check_invariant, check_map, served_scores
from ..engine import Call, Fault, target

BINNED = ("histogram", "scaling-binning", "isotonic", "smooth-isotonic", "bbq")


def options_of(call: Call, method: str) -> dict[str, Any]:
    """Draw options of a calibrator, few of them at a time."""
    options: dict[str, Any] = {}
    if call.chance(0.2):
        options["strict"] = call.option(True, False)
    if method in ("histogram", "scaling-binning"):
        if call.chance(0.5):
            options["n_bins"] = call.option(1, 2, 10, 50, 10**8)
        if call.chance(0.3):
            options["strategy"] = call.option("quantile", "uniform")
        if call.chance(0.3):
            options["refine_top"] = call.option(None, 0.5, 0.01, 1e-9)
    if call.broken and call.chance(0.1):
        options[call.one_of("bins", "n_bins", "strict")] = call.junk()
    return options


def _target_of(method: str) -> None:
    @target(f"calibration.calibrate.{method}")
    def run(call: Call) -> None:
        scale = call.one_of("logit", "logit", "probability")
        scores = call.scores(call.rows(), scale=scale)
        logits = (
            scores if scale == "logit" else np.log(np.maximum(scores, 1e-9)) - np.log1p(-np.minimum(scores, 1 - 1e-9))
        )
        labels, weights = call.labels(logits), call.weights(len(scores))
        exact, options = call.one_of(None, None, True, False), options_of(call, method)
        made = call.call(
            calibrate,
            call.option(method, method),
            call.wrap(scores),
            call.wrap(labels),
            scale=call.option(scale),
            sample_weight=call.wrap(weights),
            exact=call.option(exact),
            **options,
        )
        check_map(call, made, scores, monotone=options.get("strict", True) is not False)
        if call.broken or not call.chance(0.5):
            return
        served = served_scores(call, scale, scores)

        def predict(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> Any:
            again = call.call(
                calibrate, method, scores, labels, scale=scale, sample_weight=weights, exact=exact, **options
            )
            return again(served)

        check_fit(call, predict, (scores, labels), weights)
        if call.moderate:
            check_invariant(
                call,
                "how rows were split",
                lambda: predict(scores, labels, weights),
                lambda: from_parts(call, method, scores, labels, weights, scale, exact, options)(served),
            )


def from_parts(
    call: Call, method: str, scores: Any, labels: Any, weights: Any, scale: str, exact: Any, options: Any
) -> Any:
    """Fit a calibrator to cells that were collected in parts and merged."""
    from uncurse.maps import compose

    number = np.sort(call.rng.integers(call.one_of(2, len(scores) + 1), size=len(scores)))
    total = None
    for part in np.unique(number):
        rows = number == part
        w = None if weights is None else weights[rows]
        if w is not None and not w.any():
            continue
        cells = call.call(Cells(exact=exact).update, scores[rows], labels[rows], scale=scale, sample_weight=w)
        total = cells if total is None else call.call(total.merge, cells)
    return compose(call.call(fit_calibrator, method, total, **options), scale=scale)


for _method in CALIBRATORS:
    _target_of(_method)


@target("calibration.choose_half_life", every=2)
def half_life(call: Call) -> None:
    scores = call.scores(call.rows(), 1)
    labels, weights = call.labels(scores), call.weights(len(scores))
    ends = np.array_split(np.arange(len(scores)), call.one_of(3, 3, 4, 6))
    parts = [
        call.call(from_arrays, scores[rows], labels[rows], sample_weight=None if weights is None else weights[rows])
        for rows in ends
        if len(rows)
    ]
    options: dict[str, Any] = {"calibrator": call.option("spline", "platt", "isotonic")}
    if call.chance(0.3):
        options["half_lives"] = call.option([1.0], [0.01, 1e6, np.inf])
    found = call.call(choose_half_life, call.option(parts, tuple(parts)), **options)
    least = min(one["log_loss"] for one in found.to_dict()["candidates"])
    longest = max(one.half_life for one in found.candidates)
    if found.half_life != longest and not all(one.difference >= -1e-9 * (1 + least) for one in found.candidates):
        raise Fault("Wrong: another half-life has a smaller log loss than the chosen decay")


__all__: list[str] = []
