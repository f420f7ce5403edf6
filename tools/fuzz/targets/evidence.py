"""Targets: evidence and its parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from uncurse import Cells, Evidence, LogSpec, Moments, ReplicaCounts, TopK, evidence, metrics

from ..checks import check_close, check_finite, check_invariant
from ..engine import Call, Fault, target
from .foundations import LINKS, SCALES
from .maps import change_values


def shards(call: Call, rows: int) -> list[np.ndarray]:
    """Split row numbers into parts: a few, or one for each row."""
    if call.chance(0.1) and rows <= 300:
        return [np.array([i]) for i in call.rng.permutation(rows)]
    cuts = np.sort(call.rng.integers(0, rows + 1, call.one_of(1, 2, 5)))
    return [part for part in np.split(call.rng.permutation(rows), cuts) if len(part)]


def without_weight(weights: np.ndarray | None, rows: np.ndarray) -> bool:
    """Tell whether no row of a part has weight; such a part is refused on its own."""
    return weights is not None and not weights[rows].any()


def of_rows(values: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """Select rows, or none of None."""
    return None if values is None else values[rows]


def check_part(call: Call, name: str, collect: Callable[..., Any], values: Callable[[Any], Any], *data: Any) -> None:
    """Check a part of the evidence: JSON round trip, and independence of the order, of the split and of weights.

    Parameters
    ----------
    call : Call
        Draws the shards.
    name : str
        Name of the class.
    collect : callable
        Returns a new object with the rows of `data`.
    values : callable
        Returns numbers of such an object.
    data : arrays or None
        Arrays with one entry per row; the last one holds weights.
    """
    made = collect(*data)
    check_finite(f"a number of {name}", values(made))
    again = call.read_back(type(made).from_dict, json.loads(json.dumps(made.to_dict())))
    check_close("a round trip through JSON", values(again), values(made), 1e-12, 0.0)
    if call.broken or not call.moderate:
        return
    weights = data[-1]

    def merged() -> Any:
        total = None
        for rows in shards(call, len(data[0])):
            if not without_weight(weights, rows):
                part = collect(*(of_rows(column, rows) for column in data))
                total = part if total is None else call.call(total.merge, part)
        return values(total)

    check_invariant(call, "how rows were split", lambda: values(collect(*data)), merged)
    factor = call.one_of(2.0**-20, 2.0**20)
    scaled = np.full(len(data[0]), factor) if weights is None else weights * factor
    check_invariant(
        call, f"weights times {factor:.0e}", lambda: values(collect(*data)), lambda: values(collect(*data[:-1], scaled))
    )


@target("evidence.Moments")
def moments(call: Call) -> None:
    scale = call.one_of(*SCALES)
    link = call.one_of(*(LINKS if scale != "value" else ("identity", "log")))
    scores = call.scores(call.rows(), call.one_of(1, 2, 3), scale)
    scores = np.abs(scores) if link == "log" else scores
    weights, offset = call.weights(len(scores)), call.option(0.0, -2.0) if scale != "value" else 0.0
    made = call.call(Moments, call.option(link), call.option(32, 4, 1))
    call.call(
        made.update, call.wrap(scores), scale=call.option(scale), sample_weight=call.wrap(weights), logit_offset=offset
    )

    def collect(scores: np.ndarray, weights: np.ndarray | None) -> Moments:
        part = Moments(link)
        call.call(part.update, scores, scale=scale, sample_weight=weights, logit_offset=offset)
        return part

    def values(part: Moments) -> Any:
        spread = np.sqrt(np.maximum(np.diag(part.covariance), 0.0)) + 1e-3 * (
            1 + np.abs(part.mean)
        )  # sums of squares cancel below that
        return np.concatenate([part.mean, (part.covariance / np.outer(spread, spread)).ravel()])

    if not call.broken:
        check_part(call, "Moments", collect, values, scores, weights)


@target("evidence.Cells")
def cells(call: Call) -> None:
    scale = call.one_of("logit", "probability")
    scores = call.scores(call.rows(), scale=scale)
    labels = call.one_of(None, call.labels(scores))
    weights, exact = call.weights(len(scores)), call.one_of(None, True, False)
    made = call.call(Cells, call.option("logit"), call.option(exact))
    call.call(
        made.update, call.wrap(scores), call.wrap(labels), scale=call.option(scale), sample_weight=call.wrap(weights)
    )

    def collect(scores: np.ndarray, labels: np.ndarray | None, weights: np.ndarray | None) -> Cells:
        return call.call(Cells(exact=exact).update, scores, labels, scale=scale, sample_weight=weights)  # type: ignore[no-any-return]

    def values(part: Cells) -> Any:
        logits, weight, label = part.score, part.weight, part.weight if part.label is None else part.label
        total = weight.sum()  # no row has weight if every logit is infinite
        middle = np.clip(logits, -20, 20)
        return np.array([weight @ middle, label @ middle, label.sum()]) / (total if total > 0 else 1.0)

    if not call.broken:
        check_part(call, "Cells", collect, values, scores, labels, weights)


@target("evidence.ReplicaCounts", every=2)
def replica_counts(call: Call) -> None:
    scale = call.one_of("logit", "probability")
    scores = call.scores(call.rows(), call.one_of(2, 3, 5), scale)
    labels, weights = call.one_of(None, call.labels(scores)), call.weights(len(scores))
    made = ReplicaCounts()
    options = {"scale": call.option(scale), "sample_weight": call.wrap(weights), "logit_offset": call.option(0.0, -1.0)}
    call.call(made.update, call.wrap(scores), call.wrap(labels), **options)

    def collect(scores: np.ndarray, labels: np.ndarray | None, weights: np.ndarray | None) -> ReplicaCounts:
        return call.call(ReplicaCounts().update, scores, labels, scale=scale, sample_weight=weights)  # type: ignore[no-any-return]

    def values(part: ReplicaCounts) -> Any:
        found = part.cells()
        return np.array([found.weight @ np.clip(found.served, -20, 20) / found.weight.sum(), len(found.served)])

    if not call.broken:
        check_part(call, "ReplicaCounts", collect, values, scores, labels, weights)


@target("evidence.LogSpec")
def log_spec(call: Call) -> None:
    scale = call.one_of(*SCALES)
    options: dict[str, Any] = {"scale": call.option(scale)}
    for name in ("label", "weight", "group"):
        if call.chance(0.3):
            options[name] = call.option(name, None)
    if call.chance(0.3):
        options["top_k"] = call.call(TopK, call.option("request"), call.option(1, 3))
    options["link"] = call.option("identity" if scale == "value" else "logistic")
    if scale != "value" and call.chance(0.3):
        options["negative_rate"] = call.option(None, 0.1, 1.0, 1e-300, 1)
    spec = call.call(LogSpec, call.option(("s0", "s1"), ["s0"], "s0"), **options)
    if LogSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) != spec:
        raise Fault("Changed: the description after a round trip through JSON")


def draw_evidence(
    call: Call, *, labelled: bool, columns: int, scale: str, spec: LogSpec
) -> tuple[Any, tuple[Any, ...]]:
    """Draw rows, and a function that collects them."""
    scores = call.scores(call.rows(), columns, scale)
    labels = call.labels(scores) if labelled else None
    groups = call.one_of(None, None, call.groups(len(scores)))
    weights = call.weights(len(scores))
    parts = {"cells": call.one_of(True, False), "replica_counts": columns > 1 and call.chance(0.5)}

    def collect(scores: Any, labels: Any, groups: Any, weights: Any) -> Any:
        options = {"spec": spec, "groups": groups, "sample_weight": weights, **parts}
        return call.call(evidence.from_arrays, scores, labels, **options)

    return collect, (scores, labels, groups, weights)


@target("evidence.from_arrays", every=2)
def from_arrays(call: Call) -> None:
    columns, scale = call.one_of(1, 2, 3), call.one_of("logit", "probability")
    names = tuple(f"s{i}" for i in range(columns))
    spec = LogSpec(names, scale, negative_rate=call.one_of(None, 0.1))
    collect, data = draw_evidence(call, labelled=call.chance(0.5), columns=columns, scale=scale, spec=spec)
    made = collect(*(call.wrap(column) for column in data))
    path = call.folder / "evidence.json"
    call.call(made.save, path)
    again = call.read_back(Evidence.load, path)
    if again.to_dict() != made.to_dict():
        raise Fault("Changed: the evidence after save and load")


@target("evidence.Evidence.load", every=2)
def load(call: Call) -> None:
    spec = LogSpec(("s0", "s1"))
    collect, data = draw_evidence(call, labelled=True, columns=2, scale="logit", spec=spec)
    made = collect(*data)
    path = call.folder / "evidence.json"
    call.call(made.save, path)
    text = path.read_text(encoding="utf-8")
    if call.broken and call.chance(0.5):
        # A flipped character; the checksum finds it.
        place = int(call.rng.integers(len(text) - 2))
        changed = text[:place] + call.one_of("0", "9", ",", "-", " ", "e") + text[place + 1 :]
        path.write_text(changed, encoding="utf-8")
        if json_of(changed) not in (None, json_of(text)) and not call.refuses(Evidence.load, path):
            raise Fault("Accepted: evidence with a changed character")
        return
    content = json.loads(text)
    content.pop("checksum", None)
    part = call.one_of("moments", "cells", "replica_counts", "spec")
    if call.broken and content.get(part):
        content[part] = json.loads(change_values(call, json.dumps(content[part])))
    remade = call.call(Evidence.from_dict, content)
    check_finite("a moment", [remade.moments.mean, remade.moments.covariance])


def json_of(text: str) -> Any:
    """Parse a document, or return None."""
    try:
        return json.loads(text)
    except ValueError:
        return None


@target("evidence.Evidence.merge", every=2)
def merge(call: Call) -> None:
    spec = LogSpec(("s0", "s1"))
    collect, data = draw_evidence(call, labelled=True, columns=2, scale="logit", spec=spec)
    parts = [collect(*(of_rows(column, rows) for column in data)) for rows in shards(call, len(data[0]))]
    before = [part.to_dict() for part in parts]
    call.call(evidence.merged, call.option(parts, tuple(parts)))
    if call.broken:
        call.call(parts[0].merge, call.junk())
    if [part.to_dict() for part in parts] != before:
        raise Fault("Changed: a merge changed one of its arguments")


@target("evidence.Evidence.decayed", every=2)
def decayed(call: Call) -> None:
    spec = LogSpec(("s0", "s1"))
    collect, data = draw_evidence(call, labelled=True, columns=2, scale="logit", spec=spec)
    parts = [collect(*(of_rows(column, rows) for column in data)) for rows in shards(call, len(data[0]))[:3]]
    before = [part.to_dict() for part in parts]
    factor = call.option(0.5, 1, 0.3, 1e-9, 1e-40)
    made = [call.call(part.decayed, factor) for part in parts]
    half_life = call.option(None, 1.0, 0.01, 30, np.inf)
    total = call.call(evidence.merged, made, half_life=half_life)
    again = call.read_back(Evidence.from_dict, json.loads(json.dumps(total.to_dict())))
    if [part.to_dict() for part in parts] != before or again.to_dict() != total.to_dict():
        raise Fault("Changed: evidence after it decayed, or decayed evidence after a round trip through JSON")
    if call.broken:
        return
    check_close(
        "decay of a merge", sums_of(merged_first(call, parts, factor)), sums_of(call.call(evidence.merged, made))
    )


def merged_first(call: Call, parts: list[Any], factor: float) -> Any:
    """Merge evidence, and let the result decay."""
    return call.call(call.call(evidence.merged, parts).decayed, factor)


def sums_of(made: Any) -> np.ndarray:
    """Return numbers of evidence that do not cancel."""
    mean = made.moments.mean
    return np.array([made.weight, made.effective_rows, made.rows, *mean, *np.diag(made.moments.covariance) + mean**2])


@target("metrics.evaluate_log", every=2)
def evaluate_log(call: Call) -> None:
    spec = LogSpec(("s0",), scale=call.one_of("logit", "probability"))
    collect, data = draw_evidence(call, labelled=True, columns=1, scale=spec.scale, spec=spec)
    result = call.call(metrics.evaluate_log, call.option(collect(*data)), alphas=call.option(1.0, 0.5, (0.1, 1.0)))
    json.dumps(result.to_dict(), allow_nan=False)


__all__: list[str] = []
