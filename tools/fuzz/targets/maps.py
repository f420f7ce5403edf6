"""Targets: score maps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from uncurse import maps
from uncurse.maps import Affine, Chain, Curve, Grouped, ScoreMap, Steps

from ..checks import check_close, check_map, check_predictions, one_map, served_scores
from ..engine import Call, Fault, target
from .foundations import damaged_text

SPACES = (
    ("logistic", "logit"),
    ("logistic", "logit"),
    ("logistic", "probability"),
    ("identity", "value"),
    ("identity", "probability"),
    ("identity", "logit"),
    ("log", "value"),
    ("log", "probability"),
    ("probit", "logit"),
    ("probit", "probability"),
)


def knots(call: Call, count: int, strict: bool) -> Any:
    """Draw increasing numbers, of ordinary or extreme size, in any form."""
    values = np.sort(call.scores(count))
    if not call.broken:
        values = np.unique(values) if strict else values
        values = np.append(values, values[-1] + 1.0 + np.arange(count - len(values)) * max(1.0, abs(values[-1])))
    return call.wrap(values)


def affine(call: Call, link: str, scale: str) -> ScoreMap:
    slope = call.one_of(call.number(0.0, 2.0), call.number(0.0, 2.0), 0.0, 1e300, 1e-300)
    intercept = call.option(call.number(-3, 3), 1e300, -1e300, 0)
    if any(not isinstance(x, float) or abs(x) > 1e100 for x in (slope, intercept)):
        call.moderate = False  # compositions may overflow or cancel in between
    made = call.call(Affine, slope, intercept, call.option(link), call.option(scale))
    assert isinstance(made, ScoreMap)
    return made


def curve(call: Call, link: str, scale: str) -> ScoreMap:
    count = call.one_of(1, 2, 3, 10, 100)
    x, y = knots(call, count, True), knots(call, count, False)
    made = call.call(Curve, x, y, call.number(0.0, 2.0), call.number(0.0, 2.0), call.option(link), call.option(scale))
    assert isinstance(made, ScoreMap)
    return made


def steps(call: Call, link: str, scale: str) -> ScoreMap:
    count = call.one_of(1, 2, 3, 10, 100)
    edges, values = knots(call, count, True), knots(call, count + 1, False)
    options = {"slope": call.one_of(0.0, 1e-6, call.number(0, 1)), "center": call.number(-3, 3)}
    made = call.call(Steps, edges, values, **options, link=call.option(link), scale=call.option(scale))
    assert isinstance(made, ScoreMap)
    return made


def simple(call: Call, link: str, scale: str) -> ScoreMap:
    """Draw an affine map, a curve or steps."""
    return call.one_of(affine, curve, steps)(call, link, scale)


def check_made(call: Call, score_map: ScoreMap) -> None:
    check_map(call, score_map, [-1.0, 0.0, 1.0])
    if call.chance(0.3):
        scores = call.wrap(call.scores(call.rows(), scale=score_map.scale))
        predictions = call.call(one_map(score_map), scores)
        check_predictions(predictions, predictions, probability=score_map.scale != "value", monotone=False)
    if call.chance(0.1):
        number = call.number(0.0, 1.0)
        if np.ndim(call.call(one_map(score_map), number)) and not np.ndim(number):
            raise Fault("one number gives an array")


@target("maps.Affine")
def target_affine(call: Call) -> None:
    check_made(call, affine(call, *call.one_of(*SPACES)))


@target("maps.Curve")
def target_curve(call: Call) -> None:
    check_made(call, curve(call, *call.one_of(*SPACES)))


@target("maps.Steps")
def target_steps(call: Call) -> None:
    check_made(call, steps(call, *call.one_of(*SPACES)))


@target("maps.Chain")
def target_chain(call: Call) -> None:
    spaces = call.one_of(*SPACES)
    parts = [simple(call, *spaces) for _ in range(call.one_of(1, 2, 3))]
    check_made(call, call.call(Chain, call.option(tuple(parts), parts)))


@target("maps.Grouped")
def target_grouped(call: Call) -> None:
    spaces = call.one_of(*SPACES)
    by_group = {
        name: call.option(simple(call, *spaces)) for name in call.one_of(("0", "1", "2"), (0, 1), ("",), ("0", 0))
    }
    grouped = call.call(Grouped, call.option(simple(call, *spaces)), call.option(by_group))
    check_made(call, grouped)
    scores = call.scores(call.rows(), scale=grouped.scale)
    groups = call.groups(len(scores))
    predictions = call.call(grouped, scores, call.wrap(groups))
    order = call.rng.permutation(len(scores))
    check_close("the order of rows", grouped(scores[order], groups[order]), predictions[order])
    for name, part in by_group.items():
        x = served_scores(call, grouped.scale)
        check_close("other groups", grouped(x, np.full(len(x), str(name))), part(x))


@target("maps.compose")
def target_compose(call: Call) -> None:
    spaces = call.one_of(*SPACES)
    parts = [call.option(simple(call, *spaces)) for _ in range(call.one_of(1, 2, 3, 0 if call.broken else 1))]
    made = call.call(maps.compose, *parts, scale=call.option(spaces[1]))
    check_made(call, made)
    if call.moderate and all(part.scale == made.scale for part in parts):  # `compose` ignores other scales
        x = served_scores(call, made.scale)[5:-5]
        check_close("composition", made(x), call.call(Chain, tuple(parts))(x))


@target("maps.load")
def target_load(call: Call) -> None:
    path = call.folder / "loaded.json"
    text = damaged_text(call, change_values(call, simple(call, *call.one_of(*SPACES)).to_json()))
    if isinstance(text, str):
        path.write_text(text, encoding="utf-8", errors="replace")
    check_made(call, call.call(maps.load, call.option(path, str(path))))


@target("maps.from_dict")
def target_from_dict(call: Call) -> None:
    content = json.loads(change_values(call, simple(call, *call.one_of(*SPACES)).to_json()))
    check_made(call, call.call(maps.from_dict, call.option(content)))


def change_values(call: Call, text: str) -> str:
    """Replace a field of a document in a broken call."""
    content = json.loads(text)
    if call.broken:
        name = call.one_of(*content)
        changes: tuple[Any, ...] = (
            None,
            "x",
            "123",
            -1.0,
            1e300,
            [],
            [1.0],
            ["a"],
            [[1.0]],
            {},
            True,
            10**400,
            [1.0, 0.5],
            [10**400],
            "DROP",
        )
        change = call.one_of(*changes)
        if change == "DROP":
            del content[name]
        else:
            content[name] = change
    return json.dumps(content)


@target("maps.ScoreMap.at_logits")
def target_at_logits(call: Call) -> None:
    made = simple(call, *call.one_of(*SPACES[:3], *SPACES[7:]))
    logits = np.sort(call.scores(call.rows()))
    predictions = call.call(made.at_logits, call.wrap(logits))
    check_predictions(predictions, predictions, probability=made.scale != "value", monotone=False)


__all__: list[str] = []
