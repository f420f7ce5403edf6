"""Targets: validation, links and documents."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from uncurse import documents, links, validation

from ..checks import check_finite
from ..engine import Call, Fault, target

SCALES, LINKS = validation.SCALES, links.LINKS


@target("validation.check_scores")
def check_scores(call: Call) -> None:
    columns = call.one_of(None, None, 2, 3)
    scale = call.one_of(*SCALES)
    scores = call.wrap(call.scores(call.rows(), columns, scale))
    values = call.call(validation.check_scores, scores, call.option(scale), ndim=2 if columns else 1)
    if values.dtype not in (np.float32, np.float64):
        raise Fault(f"the scores are {values.dtype}")
    check_finite("a score", values)


@target("validation.check_labels")
def check_labels(call: Call) -> None:
    scores = call.scores(call.rows())
    labels = call.call(validation.check_labels, call.wrap(call.labels(scores)), len(scores))
    if not np.isin(labels, (0, 1)).all():
        raise Fault("a label is neither 0 nor 1")


@target("validation.check_weights")
def check_weights(call: Call) -> None:
    rows = call.rows()
    weights = call.call(validation.check_weights, call.wrap(call.weights(rows)), rows)
    check_finite("a weight", weights)


@target("validation.check_names")
def check_names(call: Call) -> None:
    rows = call.rows()
    names = call.call(validation.check_names, call.wrap(call.groups(rows)), rows, "groups")
    if len(names) != rows:
        raise Fault(f"{len(names)} names for {rows} rows")


@target("validation.check_numbers")
def check_numbers(call: Call) -> None:
    values = call.call(validation.check_numbers, call.wrap(call.scores(call.rows())), "x")
    if values.dtype not in (np.float32, np.float64):
        raise Fault(f"the numbers are {values.dtype}")


@target("validation.check_share")
def check_share(call: Call) -> None:
    share = call.call(validation.check_share, call.number(0.001, 1.0))
    if not 0 < share <= 1:
        raise Fault(f"the share is {share}")


@target("validation.check_flag")
def check_flag(call: Call) -> None:
    if call.call(validation.check_flag, call.option(True, False, np.True_), "strict") not in (True, False):
        raise Fault("a flag is neither True nor False")


@target("validation.check_count")
def check_count(call: Call) -> None:
    count = call.call(validation.check_count, call.count(1, 100), "n")
    if type(count) is not int or count < 1:
        raise Fault(f"the count is {count!r}")


@target("validation.check_choice")
def check_choice(call: Call) -> None:
    if call.call(validation.check_choice, "scale", call.option(*SCALES), SCALES) not in SCALES:
        raise Fault("the choice is not one of the choices")


@target("validation.check_number")
def check_number(call: Call) -> None:
    check_finite("the number", call.call(validation.check_number, call.number(-3, 3), "x"))


@target("validation.effective_rows")
def effective_rows(call: Call) -> None:
    weights = call.weights(call.rows())
    rows = call.call(validation.effective_rows, call.wrap(np.ones(3) if weights is None else weights))
    if not call.broken and not 0 < rows <= len(np.ones(3) if weights is None else weights) * (1 + 1e-9):
        raise Fault(f"the effective number of rows is {rows}")


@target("validation.group_rows")
def group_rows(call: Call) -> None:
    groups = call.groups(call.rows())
    given = call.wrap(groups)
    names, members = call.call(validation.group_rows, given, len(groups))
    if len(names) != len(members) or sorted(np.concatenate(members)) != list(range(len(groups))):
        raise Fault("the groups do not hold every row once")
    if not call.broken:
        encoded, codes = validation.encode_names(given, len(groups), "groups")
        if encoded != names or any((codes[rows] != i).any() for i, rows in enumerate(members)):
            raise Fault("rows have another group than their number says")


@target("links.get_link")
def get_link(call: Call) -> None:
    link = call.call(links.get_link, call.option(*LINKS))
    l = np.sort(call.scores(50))
    with np.errstate(over="ignore", invalid="ignore"):
        predictions = np.asarray(link.phi(l))
    if (np.diff(predictions[np.isfinite(predictions)]) < 0).any():
        raise Fault(f"NotMonotone: {link.name}")
    inside = l[np.abs(l) < 5]
    if not np.allclose(link.inverse(link.phi(inside)), inside, rtol=1e-6, atol=1e-6):
        raise Fault(f"the inverse of {link.name} is not its inverse")


@target("links.logistic")
def logistic(call: Call) -> None:
    predictions = call.call(links.logistic, call.wrap(call.scores(call.rows())))
    if not call.broken:
        check_finite("a probability", predictions)


@target("links.logit")
def logit(call: Call) -> None:
    logits = call.call(links.logit, call.wrap(call.scores(call.rows(), scale="probability")))
    if not call.broken:
        check_finite("a logit", logits)


@target("links.to_link")
def to_link(call: Call) -> None:
    scale, link = call.one_of(*SCALES), call.one_of(*LINKS)
    scores = call.wrap(call.scores(call.rows(), scale=scale))
    call.call(links.to_link, scores, call.option(scale), call.option(link))


def plain_data(call: Call, depth: int = 3) -> Any:
    """Draw plain data, mostly valid JSON."""
    kind = call.one_of("number", "text", "list", "dict", "none") if depth else "number"
    if kind == "list":
        return [plain_data(call, depth - 1) for _ in range(3)]
    if kind == "dict":
        return {f"k{i}": plain_data(call, depth - 1) for i in range(3)}
    if kind == "text":
        return call.one_of("", "a", "\x00", "é", "\ud800" if call.broken else "b")
    return None if kind == "none" else call.number(-1e3, 1e3)


@target("documents.dumps")
def dumps(call: Call) -> None:
    content = {"a": plain_data(call), "b": plain_data(call)}
    text = call.call(documents.dumps, call.option("affine", "moments"), call.option(content))
    again = call.call(documents.loads, text)
    if json.loads(text) != again:
        raise Fault("Changed: the document is not what was written")


@target("documents.loads")
def loads(call: Call) -> None:
    call.call(documents.loads, damaged_text(call, documents.dumps("affine", {"a": [1.0, 2.0], "b": "x"})))


def damaged_text(call: Call, text: str) -> Any:
    """Cut, flip or replace parts of a document in a broken call."""
    if not call.broken:
        return text
    place = int(call.rng.integers(len(text)))
    return call.one_of(
        text[:place],
        text[:place] + call.one_of('"', "}", "[", "0", "NaN", "Infinity", "1e999", ",") + text[place + 1 :],
        text[:place] + "9" * 5000 + text[place:],
        "[" * 100_000,
        '{"a":' * 100_000,
        text.replace('"schema_version": 1', '"schema_version": true'),
        text.replace('"schema_version": 1', '"schema_version": 1.0'),
        text + text,
        text.replace("{", '{"kind": "b", ', 1),
        call.junk(),
    )


@target("documents.read")
def read(call: Call) -> None:
    path = call.folder / "document.json"
    text = damaged_text(call, documents.dumps("affine", {"a": 1.0}))
    if isinstance(text, str):
        call.call(documents.write, call.option(path, str(path)), text)
    call.call(documents.read, call.option(path, str(path)))


@target("documents.write")
def write(call: Call) -> None:
    path = call.folder / "text.txt"
    chosen = call.option(path)
    if isinstance(chosen, int | np.integer | np.bool_ | str | bytes):
        return  # open file descriptors, and names in the current folder
    call.call(documents.write, chosen, call.option("abc", ""))


__all__: list[str] = []
