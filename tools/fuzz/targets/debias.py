"""Targets: VAD, Tower, Auto and information_variance."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from uncurse import VAD, Affine, Auto, Evidence, Grouped, LogSpec, Tower, evidence, information_variance
from uncurse.calibration import CALIBRATORS
from uncurse.debias import KINDS, FitRecord, load_record
from uncurse.evidence.from_arrays import column_names

from ..checks import check_close, check_finite, check_invariant, check_map, check_predictions, served_scores
from ..engine import Call, Fault, Refused, target
from .evidence import of_rows, shards, without_weight
from .foundations import LINKS


def draw_rows(call: Call, scale: str, columns: int, labelled: bool) -> tuple[np.ndarray, Any]:
    """Draw a pool, and labelled rows of the same kind or None."""
    rows = call.one_of(30, 100, 100, 300, 300, 1000, *((1, 3, 10) if call.extreme else ()))
    if not labelled:
        return call.scores(rows, columns, scale), None
    both = call.scores(rows + call.one_of(30, 100, 100, 300, 300, *((2, 5) if call.extreme else ())), columns, scale)
    pool, scores = both[:rows], both[rows:]
    logits = scores if scale == "logit" else np.log(np.maximum(scores, 1e-9)) - np.log1p(-np.minimum(scores, 1 - 1e-9))
    labels, weights = call.labels(logits), call.weights(len(scores))
    return pool, (scores, labels) if weights is None else (scores, labels, weights)


def wrap_labelled(call: Call, labelled: Any) -> Any:
    """Return labelled rows in another form, or in a broken call something else."""
    if labelled is None or call.breaks():
        return call.option(None, labelled)
    return tuple(call.wrap(part) for part in labelled)


def predictor(model: Any) -> Any:
    """Return what predicts without groups."""
    return model.map_.default if isinstance(model.map_, Grouped) else model.predict_proba


def check_fitted(call: Call, model: Any, pool: np.ndarray, groups: np.ndarray | None) -> None:
    """Check predictions, intervals and the map of a fitted method."""
    check_map(call, model.map_, pool[:, 0])
    served = served_scores(call, model.map_.scale, pool[:, 0])
    probability = model.map_.scale != "value"
    check_predictions(served, call.call(predictor(model), served), probability=probability)
    if groups is not None:
        for name in (*np.unique(groups)[:2], "never seen"):
            predictions = call.call(model.predict_proba, served, np.full(len(served), name))
            check_predictions(served, predictions, probability=probability)
    if call.chance(0.3):
        scores, own = call.wrap(pool[:, 0]), call.option(None, groups)
        call.call(predictor(model), scores) if own is None else call.call(model.predict_proba, scores, own)
    if call.chance(0.3):
        check_interval(call, model)


def check_interval(call: Call, model: Any) -> None:
    """Check that an interval is finite and in order; a method may say why it has none."""
    try:
        low, high = call.call(model.interval, call.option(0.02, 0.1, 1.0, 1e-7), call.option(0.9, 0.5, 0.999))
    except Refused:
        return
    check_finite("an interval", [low, high])
    if low > high:
        raise Fault(f"the interval ({low}, {high}) is empty")


def check_method(
    call: Call,
    make: Callable[[], Any],
    options: dict[str, Any],
    pool: np.ndarray,
    labelled: Any,
    groups: Any,
    weights: Any,
) -> None:
    """Check that a fit depends on ratios of weights only, and neither on the order nor on the split of rows."""
    if call.broken or not call.moderate:
        return
    served = served_scores(call, options["scale"], pool[:, 0])

    def fit(pool: Any, groups: Any, weights: Any, labelled: Any) -> Any:
        model = call.call(make().fit, pool, labelled=labelled, groups=groups, sample_weight=weights)
        return call.call(predictor(model), served)

    def compare(what: str, other: Callable[[], Any]) -> None:
        check_invariant(call, what, lambda: fit(pool, groups, weights, labelled), other, 1e-6)  # iterative fits

    order = call.rng.permutation(len(pool))
    shuffled = labelled
    if labelled is not None:
        rows = call.rng.permutation(len(labelled[0]))
        shuffled = tuple(part[rows] for part in labelled)
    compare("the order of rows", lambda: fit(pool[order], of_rows(groups, order), of_rows(weights, order), shuffled))
    factor = call.one_of(2.0**-20, 2.0**20)
    scaled = np.full(len(pool), factor) if weights is None else weights * factor
    relabelled = labelled if labelled is None or len(labelled) == 2 else (*labelled[:2], labelled[2] * factor)
    compare(f"weights times {factor:.0e}", lambda: fit(pool, groups, scaled, relabelled))
    compare("how rows were split", lambda: from_shards(call, make(), options, pool, labelled, groups, weights, served))


def from_shards(
    call: Call, model: Any, options: dict[str, Any], pool: Any, labelled: Any, groups: Any, weights: Any, served: Any
) -> Any:
    """Fit evidence that was collected in shards and merged."""
    names = column_names(pool.shape[1])
    known = {name: options[name] for name in ("scale", "link", "negative_rate") if name in options}
    spec = LogSpec(names, **known)
    # Replica counts need logits, which probabilities of 0 and 1 do not have; other links accept these.
    counts = options["scale"] != "value" and pool.shape[1] > 1 and spec.link == "logistic"

    def collected(scores: Any, labels: Any, groups: Any, weights: Any) -> Evidence:
        parts = [
            call.call(
                evidence.from_arrays, scores[rows], of_rows(labels, rows), spec=spec, groups=of_rows(groups, rows),
                sample_weight=of_rows(weights, rows), replica_counts=counts,
            )
            for rows in shards(call, len(scores))
            if not without_weight(weights, rows)
        ]  # fmt: skip
        return call.call(evidence.merged, parts)  # type: ignore[no-any-return]

    rows = None
    if labelled is not None:
        rows = collected(labelled[0], labelled[1], None, labelled[2] if len(labelled) == 3 else None)
    call.call(model.fit, collected(pool, None, groups, weights), labelled=rows)
    return call.call(predictor(model), served)


def check_refit(call: Call, model: Any, pool: np.ndarray) -> None:
    """Check that a failed refit keeps the map."""
    before = model.map_
    try:
        call.call(model.fit, call.junk(), labelled=call.junk())
    except Refused:
        if model.map_ is not before:
            raise Fault("Changed: a refused refit changed the map") from None


def vad_options(call: Call, scale: str, columns: int) -> dict[str, Any]:
    """Draw options of VAD; few are changed at a time."""
    options: dict[str, Any] = {"scale": scale, "link": "identity" if scale == "value" else "logistic"}
    if call.chance(0.3):
        options["link"] = call.option(*(("identity", "log") if scale == "value" else LINKS))
    if call.chance(0.4):
        options["replicas"] = call.option(
            "seeds", "anchored", "ensemble", "snapshots", "bootstrap" if columns > 2 or call.broken else "seeds"
        )
    if call.chance(0.2):
        options["curvature"] = call.option(True, False)
    if call.chance(0.2) and scale != "value":
        options["shape"] = call.option("free", "straight")
    if call.chance(0.2):
        options["recentre"] = call.option(True, False)
    if call.chance(0.2) and scale != "value":
        options["negative_rate"] = call.option(None, 0.1, 1.0, 1e-9)
    if call.chance(0.4):
        options["lambda_floor"] = call.option(None, 0.01, 0.0)
    if call.chance(0.2) and scale != "value":
        options["intervals"] = call.option(True, False)
    if call.broken and call.chance(0.1):
        options["calibrator_options"] = call.junk()
    return options


def run_vad(call: Call, calibrator: str | None) -> None:
    """Fit VAD with arrays, and check the result."""
    scale = call.one_of("logit", "logit", "probability") if calibrator else call.one_of("logit", "probability", "value")
    columns = call.one_of(2, 2, 3, 5)
    pool, labelled = draw_rows(call, scale, columns, labelled=calibrator is not None)
    options = vad_options(call, scale, columns)
    if calibrator is not None:
        options |= {"calibrator": call.option(calibrator), "curvature": False, "shape": "straight"}
    if isinstance(options["link"], str) and options["link"] == "log" and scale == "value":
        pool = np.abs(pool) + 1e-3
    groups, weights = call.one_of(None, None, call.groups(len(pool))), call.weights(len(pool))
    arguments = {
        "labelled": wrap_labelled(call, labelled),
        "groups": call.wrap(groups),
        "sample_weight": call.wrap(weights),
    }
    if calibrator is None and call.chance(0.1):
        arguments["variance"] = call.option(0.1, 0.0, 1e-9, 100.0)
    model = call.call(VAD, **options)
    call.call(model.fit, call.wrap(pool), **arguments)
    check_fitted(call, model, pool, groups if arguments["groups"] is not None and not call.broken else None)
    check_finite("λ", model.lambda_)
    if FitRecord.from_dict(json.loads(json.dumps(model.record_.to_dict()))) != model.record_:
        raise Fault("Changed: the record after a round trip through JSON")
    if call.chance(0.1):
        check_refit(call, model, pool)
    if call.chance(0.3) and "variance" not in arguments:
        check_method(call, lambda: VAD(**options), options, pool, labelled, groups, weights)


@target("debias.load_record")
def target_load_record(call: Call) -> None:
    record = VAD().fit([[0.0, 0.1], [1.0, 0.9], [2.0, 2.2]]).record_
    content = record.to_dict()
    changed = call.chance(0.5)
    if changed:
        content[call.one_of(*content)] = call.one_of(
            None, True, -1, 1e300, "x", [], {}, [[]], [{}], {"a": 1}, {"a": {}}
        )
    path = call.folder / "recorded.json"
    Affine(0.5, 0.0).save(path, content)
    found = call.call(load_record, call.option(path, str(path)))
    if not changed and not call.broken and found != record:
        raise Fault("Changed: the record of a map file")


@target("debias.VAD")
def vad(call: Call) -> None:
    run_vad(call, None)


@target("debias.VAD.calibrator", every=2)
def tandem(call: Call) -> None:
    run_vad(call, call.one_of(*CALIBRATORS))


def run_labelled(call: Call, kind: type[Any], labelled: bool) -> None:
    """Fit Tower or Auto with arrays, and check the result."""
    scale, columns = call.one_of("logit", "logit", "probability"), call.one_of(2, 2, 3, 5)
    pool, rows = draw_rows(call, scale, columns, labelled)
    options: dict[str, Any] = {
        "scale": call.option(scale),
        "replicas": call.option("seeds", "anchored", "ensemble", "snapshots"),
    }
    if columns > 2:
        options["replicas"] = call.option(*KINDS)
    if call.chance(0.2):
        options["negative_rate"] = call.option(None, 0.1, 1.0)
    groups, weights = call.one_of(None, None, call.groups(len(pool))), call.weights(len(pool))
    model = call.call(kind, **options)
    arguments = {"groups": call.wrap(groups), "sample_weight": call.wrap(weights)}
    call.call(model.fit, call.wrap(pool), labelled=wrap_labelled(call, rows), **arguments)
    check_fitted(call, model, pool, groups if not call.broken else None)
    if call.chance(0.1):
        check_refit(call, model, pool)
    if call.chance(0.3):
        check_method(call, lambda: kind(**options), options, pool, rows, groups, weights)


@target("debias.Tower", every=2)
def tower(call: Call) -> None:
    run_labelled(call, Tower, labelled=True)


@target("debias.Auto", every=2)
def auto(call: Call) -> None:
    run_labelled(call, Auto, labelled=call.chance(0.7))


@target("debias.information_variance")
def variance(call: Call) -> None:
    rows, columns = call.rows(), call.one_of(1, 2, 5)
    x = call.rng.normal(size=(rows, columns)) * 10.0 ** call.rng.uniform(-3, 3)
    pool = call.rng.normal(size=(call.rows(), columns))
    if call.chance(0.2) and columns > 1:
        x[:, 1] = x[:, 0] * (1 + call.one_of(0.0, 1e-9, 1e-15) * call.rng.normal(size=rows))
    p, weights = call.scores(rows, scale="probability"), call.weights(rows)
    options = {"penalty": call.option(0.0, 1.0, 1e-6), "fit_intercept": call.option(True, False)}
    value = call.call(
        information_variance, call.wrap(x), call.wrap(p), call.wrap(pool), sample_weight=call.wrap(weights), **options
    )
    check_finite("the variance", value)
    if value < 0:
        raise Fault(f"the variance is {value}")
    if not call.broken and options["penalty"] == 0:
        one, other = (
            call.call(information_variance, x[o], p[o], pool, sample_weight=of_rows(weights, o), **options)
            for o in (np.arange(rows), call.rng.permutation(rows))
        )
        check_close("the order of rows", other, one, 1e-4)


__all__: list[str] = []
