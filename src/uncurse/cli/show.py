"""`uncurse show`: what a map file, or a folded model, holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..errors import UncurseError
from ..text import aligned
from .app import app
from .output import Format, emit
from .reading import input_file, is_evidence, load_map

if TYPE_CHECKING:
    from ..maps import ScoreMap
    from ..methods import FitRecord, Fitted

_WIDTH, _HEIGHT = 60, 15  # of the picture, in characters
_MOST_SEGMENTS = 20


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A map file, or a model that may be folded.")],
    format: Format = "table",
) -> None:
    """Show how a map was fitted and what it does, or which map was folded into a model.

    \b
    Examples:
      uncurse show map.json
      uncurse show model2.txt
    """
    if not is_evidence(file) or _is_model(file):
        from ..serving.fold import family, load_family

        kind = family(file)
        module = load_family(kind)
        stamp = module.stamp(module.read(file))
        text = f"{file} ({kind}): " + (f"holds {stamp}" if stamp else "no map was folded into it by uncurse fold")
        emit(format, text, "folded", {"family": kind, "holds": stamp})
        return
    fitted = load_map(file)
    content = fitted.to_dict()
    content["map_kind"] = content.pop("kind")
    emit(format, "\n".join(_text(fitted)), "shown", {**content, "intervals": _intervals(fitted)})


def _is_model(file: str) -> bool:
    """Tell a model in JSON from a document of uncurse."""
    from ..serving.fold import family

    try:
        with open(input_file(file), "rb") as stream:
            if b'"schema_version"' in stream.read(4_096):
                return False
        return family(file) is not None
    except (OSError, UncurseError):
        return False


def _intervals(fitted: Fitted) -> list[dict[str, float]]:
    from ..report.prose import intervals_of

    return [{"alpha": alpha, "low": low, "high": high} for alpha, low, high in intervals_of(fitted)]


def _text(fitted: Fitted) -> list[str]:
    """Return the lines of a description."""
    from ..maps import Segmented
    from ..report.prose import fit_words

    score_map, record = fitted.map, fitted.record
    lines = aligned(_facts(score_map, record), left=2)
    if record is not None:
        lines += ["", *fit_words(fitted)]
    default = score_map.default if isinstance(score_map, Segmented) else score_map
    lines += ["", *_formula(default), *_picture(default, record)]
    if isinstance(score_map, Segmented):
        lines += ["", f"{len(score_map.maps):,} segments have a map each; the map of all other rows is shown above"]
        rows = [
            ("segment", "map"),
            *((name, f"{one!r:.90}") for name, one in [*score_map.maps.items()][:_MOST_SEGMENTS]),
        ]
        lines += aligned(rows, left=2)
        lines += ["…"] if len(score_map.maps) > _MOST_SEGMENTS else []
    return lines


def _facts(score_map: ScoreMap, record: FitRecord | None) -> list[tuple[str, str]]:
    """Return names and values: the method, the data, the time and the command."""
    facts: dict[str, Any] = {"map": f"{score_map.kind}, scores on the {score_map.scale} scale"}
    if record is None:
        return [*facts.items(), ("fit", "unknown: the map was saved without a record")]
    pool, labeled = record.pool, record.labeled
    facts["method"] = record.method
    facts["replicas"] = f"{record.replicas}: {', '.join(pool.columns)}"
    facts["pool"] = f"{pool.rows:,} rows {_from(pool.sources)}"
    facts["labels"] = labeled and f"{labeled.rows:,} rows {_from(labeled.sources)}, from {record.labels_from}"
    facts["segments"] = record.segment
    facts["requests"] = record.top_k and f"top {record.top_k} of each"
    facts["sampling"] = (
        record.negative_sampling_rate and f"{record.negative_sampling_rate:g} of the negatives in training"
    )
    facts["refreshes"] = "; ".join(f"{one.number}: {one.rows:,} rows, {one.reason}" for one in record.refreshes)
    facts["command"] = record.command
    facts["version"] = f"uncurse {record.version}"
    return [(name, str(value)) for name, value in facts.items() if value]


def _from(sources: Sequence[str]) -> str:
    return f"of {', '.join(sources)}" if sources else "of arrays"


def _formula(score_map: ScoreMap) -> list[str]:
    from ..maps import Affine
    from ..report.prose import formula

    if isinstance(score_map, Affine):
        return [formula(score_map), ""]
    return []


def _picture(score_map: ScoreMap, record: FitRecord | None) -> list[str]:
    """Draw predictions against served predictions, on the range of the pool, as lines of text."""
    from ..maps.base import to_prediction

    scores = None if record is None else record.pool.scores
    low, high = (scores.edges[0], scores.edges[-1]) if scores is not None else (-6.0, 2.0)
    x = np.linspace(low, high, _WIDTH)
    if score_map.scale == "value":
        if record is not None and record.center is not None and record.score_variance is not None:
            x = record.center + np.sqrt(record.score_variance) * np.linspace(-3.0, 3.0, _WIDTH)
        served, mapped = (
            to_prediction(x, score_map.link, "value"),
            to_prediction(score_map.transform(x), score_map.link, "value"),
        )
    else:
        served, mapped = 1 / (1 + np.exp(-x)), score_map.at_logits(x)
        served, mapped = np.log(served), np.log(mapped)
    ends = float(min(served.min(), mapped.min())), float(max(served.max(), mapped.max()))
    if not ends[1] > ends[0]:
        return []
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for values, mark in ((served, "·"), (mapped, "●")):
        for column, value in enumerate(values):
            grid[round((ends[1] - float(value)) / (ends[1] - ends[0]) * (_HEIGHT - 1))][column] = mark
    to_value = (lambda v: v) if score_map.scale == "value" else np.exp
    names = {0: f"{to_value(ends[1]):.3g}", _HEIGHT - 1: f"{to_value(ends[0]):.3g}"}
    width = max(map(len, names.values()))
    lines = [f"{names.get(i, ''):>{width}} │{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    first, last = (f"{to_value(served[i]):.3g}" for i in (0, -1))
    axis = first + f"{last:>{_WIDTH - len(first)}}"
    return [
        *lines,
        f"{'':>{width}} └{'─' * _WIDTH}",
        f"{'':>{width}}  {axis}",
        f"{'':>{width}}  served prediction: ● corrected, · as served",
    ]
