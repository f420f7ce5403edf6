"""Targets: maps that are refreshed by labels."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from uncurse import Affine, Chain, Curve, Grouped, LogSpec, Steps, refresh
from uncurse.debias import FitRecord, Fitted
from uncurse.evidence import from_arrays

from ..checks import check_finite, check_fit, check_map
from ..engine import Call, Fault, target

#: A refreshed map is an iterative fit to merged cells.
ROUNDING = 1e-4


def draw_map(call: Call, scale: str, grouped: bool) -> Any:
    """Draw a map of any kind."""
    maps = (
        Affine(call.one_of(1.0, 0.5, 0.0), call.one_of(0.0, -1.0, 5.0), scale=scale),
        Affine(1.0, 0.0, link=call.one_of("probit", "identity", "log"), scale=scale),
        Curve((-2.0, 0.0, 1.0), (-2.5, -0.5, 0.1), call.one_of(0.0, 0.5), 0.5, scale=scale),
        Steps((-1.0, 0.5), (-2.0, -1.0, 0.5), scale=scale),
        Chain((Affine(0.8, 0.1, scale=scale), Steps((0.0,), (-1.0, 1.0), scale=scale))),
    )
    score_map = call.one_of(*maps)
    return Grouped(score_map, {"a": maps[0], "b": maps[2]}) if grouped else score_map


@target("debias.refresh", every=2)
def target_refresh(call: Call) -> None:
    scale = call.one_of("logit", "logit", "probability")
    rows = call.rows()
    scores, groups = call.scores(rows, scale=scale), call.one_of(None, None, call.groups(rows))
    logits = scores if scale == "logit" else np.log(np.maximum(scores, 1e-9)) - np.log1p(-np.minimum(scores, 1 - 1e-9))
    labels, weights = call.labels(logits), call.weights(rows)
    score_map, spec = draw_map(call, scale, groups is not None), LogSpec(("s0",), scale)

    def run(scores: np.ndarray, labels: np.ndarray, groups: Any, weights: Any, source: Any = score_map) -> Fitted:
        options = {"spec": spec, "groups": groups, "sample_weight": weights}
        evidence = call.call(from_arrays, scores[:, None], labels, **options)
        return call.call(refresh, source, evidence)  # type: ignore[no-any-return]

    if call.broken:
        call.call(refresh, call.option(score_map), call.junk())
        return
    fitted = run(scores, labels, groups, weights)
    for _ in range(2):
        check_map(call, fitted.map, scores)
        record = fitted.record
        if FitRecord.from_dict(json.loads(json.dumps(record.to_dict()))) != record:
            raise Fault("Changed: the record after a round trip through JSON")
        last = record.refreshes[-1]
        check_finite("a standard error", [last.level_error, last.slope_error, *last.uncertainty])
        fitted = run(scores, labels, groups, weights, fitted)

    def fit(scores: np.ndarray, labels: np.ndarray, weights: Any) -> Any:
        return run(scores, labels, None, weights).map.at_logits(np.linspace(-5, 5, 11))

    if groups is None:
        check_fit(call, fit, (scores, labels), weights, ROUNDING)


__all__: list[str] = []
