"""`uncurse show`: what a map file, or a folded model, holds."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from .. import documents
from ..links import get_link, logistic
from ..text import aligned
from .app import app
from .output import Format, emit
from .reading import input_file, is_evidence, load_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..maps import Affine, ScoreMap
    from ..methods import FitRecord, Fitted

_WIDTH, _HEIGHT = 60, 15  # of the picture, in characters
_MOST_SEGMENTS = 20
_MARKED = (0.1, 0.02)  # top shares


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A map file, or a model that may be folded.")],
    format: Format = "table",
) -> None:
    """Show how a map was fitted and what it does.

    Of a model, show which map was folded into it.

    \b
    Examples:
      uncurse show map.json
      uncurse show model2.txt
    """
    if _is_model(file):
        from ..serving.fold import family, load_family

        kind = family(file)
        module = load_family(kind)
        stamp = module.stamp(module.read(Path(file)))
        text = f"{file} ({kind}): " + (f"holds {stamp}" if stamp else "no map was folded into it by uncurse fold")
        emit(format, text, "folded", {"family": kind, "holds": stamp})
        return
    from ..report.prose import intervals_of

    fitted = load_map(file)
    content = {name: documents.plain(getattr(fitted, name)) for name in ("map", "record")}
    content["intervals"] = intervals_of(fitted)
    emit(format, "\n".join(_text(file, fitted)), "shown", content)


def _is_model(file: str) -> bool:
    """Tell a model, which may be JSON too, from a document of uncurse."""
    if not is_evidence(file):
        return True
    try:
        with open(input_file(file), "rb") as stream:
            return b'"schema_version"' not in stream.read(1_000)
    except OSError:  # named when the map is read
        return False


def _text(file: str, fitted: Fitted) -> list[str]:
    """Return the lines of a description."""
    from ..maps import Affine, Segmented
    from ..report.prose import record_lines

    score_map, record = fitted.map, fitted.record
    path = input_file(file)
    time = datetime.fromtimestamp(os.path.getmtime(path), UTC).isoformat(" ", "minutes")
    lines = [f"{file}: {score_map.kind} map of scores on the {score_map.scale} scale, written {time}"]
    lines += ["it was saved without a record of its fit"] if record is None else record_lines(fitted)
    lines += [record.command] if record is not None and record.command else []
    segments = score_map.maps if isinstance(score_map, Segmented) else {}
    default = score_map.default if isinstance(score_map, Segmented) else score_map
    lines += [formula(default)] if isinstance(default, Affine) and default.link == "logistic" else []
    lines += ["", *_picture(default, record)]
    if segments:
        lines += ["", "The map of all other segments is shown above.", *aligned(_segments(segments, record))]
        more = len(segments) - _MOST_SEGMENTS
        lines += [f"… and {more:,} more; --format json has all"] if more > 0 else []
    return lines


def _segments(maps: Mapping[str, ScoreMap], record: FitRecord | None) -> list[tuple[str, ...]]:
    """Return what the map of each segment makes of the lowest scores of the top 10% and 2% of the pool."""
    from ..evidence.spec import logit_offset

    listed = [*maps.items()][:_MOST_SEGMENTS]
    if record is None or record.pool.scores is None:
        return [("segment", "map"), *((name, one.kind) for name, one in listed)]
    logits, offset = record.pool.scores.lowest(_MARKED), logit_offset(record.negative_sampling_rate)
    predictions = {"as served": logistic(logits), **{name: one.at_logits(logits - offset) for name, one in listed}}
    cells = [(name, *(f"{100 * prediction:.3g}%" for prediction in found)) for name, found in predictions.items()]
    return [("segment", "top 10%", "top 2%"), *cells]


def formula(score_map: Affine) -> str:
    """Return a straight map of logits as a formula."""
    sign = "-" if score_map.intercept < 0 else "+"
    line = f"1 / (1 + exp(-({score_map.slope:.6g} · logit {sign} {abs(score_map.intercept):.6g})))"
    tail = ", where logit = ln(p / (1 - p))" if score_map.scale == "probability" else ""
    return f"prediction = {line}{tail}"


def _picture(score_map: ScoreMap, record: FitRecord | None) -> list[str]:
    """Draw a map on the range of its pool, on logarithmic axes if predictions are rates."""
    from ..evidence.spec import logit_offset

    scores = None if record is None else record.pool.scores
    low, high = (-6.0, 2.0) if scores is None else (scores.edges[0], scores.edges[-1])
    if record is not None and scores is None and record.center is not None and record.score_variance is not None:
        low, high = (record.center + side * 3 * math.sqrt(record.score_variance) for side in (-1, 1))
    x = np.linspace(low, high, _WIDTH)
    if score_map.scale == "value":
        served = get_link(score_map.link).phi(x)
        mapped, logarithmic = score_map(served), False
    else:
        offset = logit_offset(None if record is None else record.negative_sampling_rate)
        served, mapped, logarithmic = np.log(logistic(x)), np.log(score_map.at_logits(x - offset)), True
    bottom, top = min(served.min(), mapped.min()), max(served.max(), mapped.max())
    if not bottom < top:
        return []
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for values, mark in ((served, "·"), (mapped, "●")):
        for column, row in enumerate(np.rint((top - values) / (top - bottom) * (_HEIGHT - 1)).astype(int)):
            rows[row][column] = mark
    ends = [f"{math.exp(end) if logarithmic else end:.3g}" for end in (top, bottom, served[0], served[-1])]
    names, width = {0: ends[0], _HEIGHT - 1: ends[1]}, max(map(len, ends[:2]))
    margin = " " * width
    edges = [" "] * _WIDTH
    if scores is not None:
        for logit in scores.lowest(_MARKED):
            edges[int(np.clip(np.searchsorted(x, logit), 0, _WIDTH - 1))] = "▲"
    legend = [] if scores is None else ["".join(edges), "▲ lowest of the top 10% and 2%"]
    below = [f"{ends[2]}{ends[3]:>{_WIDTH - len(ends[2])}}", f"{'prediction as served':^{_WIDTH}}", *legend]
    return [
        f"prediction{', on log scales' * logarithmic}: ● with the map, · as served",
        *(f"{names.get(i, ''):>{width}} │{''.join(row)}".rstrip() for i, row in enumerate(rows)),
        f"{margin} └{'─' * _WIDTH}",
        *(f"{margin}  {line}".rstrip() for line in below),
    ]
