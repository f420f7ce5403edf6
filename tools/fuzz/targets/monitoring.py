"""Targets: the monitor."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from uncurse import LogSpec, MonitorState, Verdict, monitor
from uncurse.evidence import from_arrays
from uncurse.monitoring import judge

from ..checks import check_close, check_finite, check_fit
from ..engine import Call, Fault, target
from .refresh import draw_map


@target("monitoring.monitor", every=2)
def target_monitor(call: Call) -> None:
    scale = call.one_of("logit", "logit", "probability")
    rows = call.rows()
    scores, groups = call.scores(rows, scale=scale), call.one_of(None, None, call.groups(rows))
    logits = scores if scale == "logit" else np.log(np.maximum(scores, 1e-9)) - np.log1p(-np.minimum(scores, 1 - 1e-9))
    labels, weights = call.labels(logits), call.weights(rows)
    score_map, spec = draw_map(call, scale, groups is not None), LogSpec(("s0",), scale)
    tolerance = call.option(0.0, 0.0, 0.02, 0.5)

    def run(scores: np.ndarray, labels: np.ndarray, groups: Any, weights: Any, **options: Any) -> Verdict:
        given = {"spec": spec, "groups": groups, "sample_weight": weights}
        evidence = call.call(from_arrays, scores[:, None], labels, **given)
        return call.call(monitor, score_map, evidence, **options)  # type: ignore[no-any-return]

    if call.broken:
        call.call(monitor, call.option(score_map), call.junk(), call.junk())
        return
    verdict = run(scores, labels, groups, weights, tolerance=tolerance, day="2026-11-01")
    json.dumps(verdict.to_dict(), allow_nan=False)
    again = call.call(judge, verdict.state, tolerance=tolerance)
    if again.since_fit != verdict.since_fit:
        raise Fault("Changed: the verdict of the state alone")
    for part in (verdict.since_fit, verdict.latest, *verdict.buckets, *verdict.groups):
        check_finite("an e-value", [part.e_value, part.predicted, part.observed])
        low, high = (-1.0 if part.low is None else part.low), (np.inf if part.high is None else part.high)
        if not low <= high:
            raise Fault(f"Disordered: an interval from {low} to {high}")
    half = rows // 2
    if groups is None and weights is None and half:
        one = run(scores[:half], labels[:half], None, None, day="2026-11-01").state
        both = run(scores[half:], labels[half:], None, None, state=one, day="2026-11-01").state
        if not isinstance(both, MonitorState):
            raise Fault(f"Wrong type: {type(both).__name__}")
        whole = run(scores, labels, None, None, day="2026-11-01").state
        check_close("rows in two calls", both.series()[1], whole.series()[1])

    def fit(scores: np.ndarray, labels: np.ndarray, weights: Any) -> Any:
        since = run(scores, labels, None, weights).since_fit
        return [np.log(since.e_value), since.rows]

    if groups is None:
        check_fit(call, fit, (scores, labels), weights, 1e-6)


__all__: list[str] = []
