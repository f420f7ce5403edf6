"""`uncurse evaluate`: calibration of the top-scored rows, before and after each map."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..text_tables import aligned
from ..validation import warn_user
from .app import app
from .options import Engine, Label, LogsOrEvidence, NegativeRate, Request, Scale, Score, TopK, Weight
from .output import Format, Quiet, check_outputs, command_line, emit, note, working
from .reading import (
    LogOptions,
    check_served,
    collect_logs,
    column_names,
    is_evidence,
    load_map,
    option_name,
    read_evidence,
    share,
    shares,
    value_text,
)

if TYPE_CHECKING:
    from ..debias import FitRecord
    from ..evidence import Evidence
    from ..maps import ScoreMap
    from ..metrics import Evaluation
    from ..report import Method


@dataclass(frozen=True)
class _Map:
    """A map to evaluate: the file, its name in tables, the map and its record."""

    path: str
    name: str
    map: ScoreMap
    record: FitRecord | None


@app.command()
def evaluate(
    log: LogsOrEvidence,
    score: Score = None,
    label: Label = None,
    maps: Annotated[
        list[str] | None, typer.Option("--map", help="Map file to compare with the scores as served; may be repeated.")
    ] = None,
    alpha: Annotated[
        str | None, typer.Option(help="Selected shares: 2%,5% or first:last:step (default 0.02:0.10:0.01).")
    ] = None,
    request: Request = None,
    top_k: TopK = None,
    scale: Scale = None,
    weight: Weight = None,
    group: Annotated[str | None, typer.Option(help="Column of groups, for maps by group.")] = None,
    negative_rate: NegativeRate = None,
    value: Annotated[
        str | None, typer.Option(help="Column with the value of a positive label, to report value as well.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Number of bins of ECE and MCE.")] = 10,
    fail_above: Annotated[
        str | None,
        typer.Option(
            help="Exit with 1 if a calibration error of a map (or of the scores as served) is larger, such as 5%."
        ),
    ] = None,
    engine: Engine = None,
    report: Annotated[Path | None, typer.Option(help="Write an offline HTML page to this file.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Write every figure as SVG and PNG to this folder.")] = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Measure calibration of the top-scored rows, with and without maps.

    The scale, the negative-sampling rate and the column of groups are taken from the maps if they are not given.

    \b
    Examples:
      uncurse evaluate log.parquet --score s0 --label click --map map.json --report report.html
      uncurse evaluate day.json --map a.json --map b.json --alpha 1%,5%
      uncurse evaluate log.parquet --score s0 --label click --map map.json --alpha 2% --fail-above 5%
      uncurse evaluate log.parquet --score s0 --scale logit --label click --request request_id --top-k 1
    """
    from ..metrics import evaluate_log
    from ..report import Method

    check_outputs(
        {"--report": report, "--figures": figures},
        [*log, *(maps or [])],
        suffixes={"--report": (".html", ".htm")},
        folders=["--figures"],
    )
    limit = None if fail_above is None else share(fail_above, "--fail-above", most=100.0)
    loaded = _load_maps(maps or [])
    options = LogOptions(
        column_names(score, "--score"), label, weight, group, request, top_k, scale, None, negative_rate, engine
    )
    options = _from_maps(options, loaded, is_log=not is_evidence(log[0]))
    evidence = read_evidence(log, options, scores_option="--score", need_label=True)
    _check_maps(loaded, evidence, log, group)
    spec = evidence.spec
    selection = None if spec.top_k is None else str(spec.top_k)
    alphas = shares(alpha, selection)
    try:
        evaluations = [evaluate_log(evidence, one, alphas, n_bins=bins) for one in (None, *(m.map for m in loaded))]
    except UncurseError as error:
        raise UncurseError(f"{', '.join(log)}, label {spec.label!r}: {error}") from None
    names = ["as served", *(one.name for one in loaded)]
    records = [None, *(one.record for one in loaded)]
    values: list[Evaluation | None] = [None] * len(names)
    if value is not None:
        values = [*_values(log, evidence, value, loaded, alphas, options.engine)]
    methods = [Method(*one) for one in zip(names, evaluations, records, values, strict=True)]
    if report is not None or figures is not None:
        _draw(methods, evidence, log, value or "value", report, figures)
    content = {
        "facts": _facts(log, evidence, [one.path for one in loaded]),
        "selection": selection,
        "methods": [
            {
                "name": m.name,
                "evaluation": m.evaluation.to_dict(),
                "record": None if m.record is None else m.record.to_dict(),
                "value": None if m.value is None else m.value.to_dict(),
            }
            for m in methods
        ],
    }
    text = _text(methods, evidence) + ("" if value is None else "\n\n" + _value_text(methods, value))
    emit(format, text, documents.dumps("evaluations", content), _records(methods))
    for path in (report, figures):
        if path is not None:
            note(f"written to {path}")
    if limit is not None:
        _gate(methods, limit)


# ---------------------------------------------------------------------------- maps and options


def _load_maps(paths: Sequence[str]) -> list[_Map]:
    short = [Path(path).name for path in paths]
    names = short if len(set(short)) == len(short) and "as served" not in short else list(paths)
    return [_Map(path, name, *load_map(path)) for path, name in zip(paths, names, strict=True)]


def _from_maps(options: LogOptions, maps: Sequence[_Map], *, is_log: bool) -> LogOptions:
    """Fill in the options that the records of the maps know; a contradiction is an error that names both sides."""
    from ..maps import Grouped

    for name in ("scale", "negative_rate", "group"):
        given, option = getattr(options, name), option_name(name)
        known: dict[str, Any] = {}
        for one in maps:
            grouped = isinstance(one.map, Grouped)
            if name == "scale":
                known[one.path] = one.map.scale
            elif one.record is not None and (grouped or name != "group"):
                known[one.path] = getattr(one.record, name)
        if len(set(known.values())) > 1:
            fitted = ", ".join(f"{path} with {value_text(value)}" for path, value in known.items())
            raise UncurseError(f"the maps differ in {option}: {fitted}; evaluate them one by one")
        for path, value in known.items():
            if given is not None and given != value:
                raise UncurseError(
                    f"{option} is {given}, but {path} was fitted with {value_text(value)}; evaluate it with the "
                    "options that it was fitted with"
                )
            if is_log:
                options = replace(options, **{name: value})
    return options


def _check_maps(maps: Sequence[_Map], evidence: Evidence, log: Sequence[str], group: str | None) -> None:
    """Check that the maps take the scores that the evidence holds."""
    from ..maps import Grouped

    spec, names = evidence.spec, ", ".join(log)
    if group is not None and not any(isinstance(one.map, Grouped) for one in maps):
        raise UncurseError(f"--group {group} is for maps by group, and none of the maps is; leave it out")
    for one in maps:
        if isinstance(one.map, Grouped):
            unknown = [name for name in evidence.groups if name not in one.map.maps]
            if unknown:
                rows = sum(evidence.groups[name].rows for name in unknown)
                warn_user(
                    f"{rows:,} of {evidence.rows:,} rows have a {spec.group} without a map of its own in {one.path}; "
                    "they get the default map"
                )
        record = one.record
        if isinstance(one.map, Grouped) and not evidence.groups:
            column = record.group if record is not None and record.group else "COLUMN"
            remedy = f"collect {names} with --group {column}" if is_evidence(log[0]) else f"pass --group {column}"
            raise UncurseError(f"{one.path} has a map for each group; {remedy}")
        if one.map.scale != spec.scale:
            raise UncurseError(
                f"{one.path} takes --scale {one.map.scale}, and {names} holds --scale {spec.scale}; use one scale"
            )
        if record is None:
            continue
        if record.negative_rate != spec.negative_rate:
            raise UncurseError(
                f"{one.path} was fitted with --negative-rate {value_text(record.negative_rate)}, and {names} was "
                f"collected with {value_text(spec.negative_rate)}; collect it again"
            )
        check_served(one.path, record, spec.scores[0])
        own = set() if record.labelled is None else set(map(os.path.realpath, record.labelled.sources))
        if own & set(map(os.path.realpath, evidence.sources)):
            warn_user(f"{one.path} was fitted to the labels of {names}; evaluate it on other rows, say of another day")


def _values(
    log: Sequence[str],
    evidence: Evidence,
    column: str,
    maps: Sequence[_Map],
    alphas: Sequence[float],
    engine: str | None,
) -> list[Evaluation]:
    """Evaluate predicted and observed value: the sums of `--value` over the selected rows."""
    from ..metrics import evaluate_log

    spec = evidence.spec
    if is_evidence(log[0]):
        raise UncurseError(f"--value {column} needs rows, and {', '.join(log)} is evidence; evaluate the log itself")
    if spec.weight is not None:
        raise UncurseError("--value and --weight exclude each other; multiply the values by the weights")
    if spec.top_k is not None:  # a second pass may keep other rows of equal scores
        raise UncurseError("--value and --request exclude each other; select the rows of each request first")
    try:
        values = collect_logs(log, replace(spec, weight=column), False, engine)
    except UncurseError as error:  # values are collected as weights
        message = str(error)
        for phrase in ("weights must be 0", "every weight in", "a positive weight", "and as weight"):
            message = message.replace(phrase, phrase.replace("weight", "value"))
        raise UncurseError(message) from None
    return [evaluate_log(evidence, one, alphas, values=values) for one in (None, *(m.map for m in maps))]


def _gate(methods: Sequence[Method], limit: float) -> None:
    """Exit with 1 if an error exceeds the limit."""
    exceeded = []
    for method in methods[1:] or methods:
        for row in method.evaluation.rows:
            error = row.calibration_error
            if not abs(error) <= limit:  # NaN, of a selection without a positive label, fails too
                exceeded.append(f"{method.name}, top {_percent(row.alpha)}: {_signed(error)}")
    if not exceeded:
        names = ", ".join(method.name for method in methods[1:] or methods)
        note(f"no calibration error of {names} is above {_percent(limit)}")
    else:
        typer.echo(f"uncurse: the calibration error is above {_percent(limit)}: {'; '.join(exceeded)}", err=True)
        raise typer.Exit(1)


# ---------------------------------------------------------------------------- results


def _draw(
    methods: Sequence[Method],
    evidence: Evidence,
    log: Sequence[str],
    value_name: str,
    report: Path | None,
    figures: Path | None,
) -> None:
    from ..report import Report
    from ..report.provenance import summarize_scores

    assert evidence.cells is not None  # a log with labels has logits
    spec = evidence.spec
    with working("drawing"):
        page = Report(
            methods,
            served=None if spec.top_k is not None else summarize_scores(evidence.cells),
            facts=_facts(log, evidence, [m.name for m in methods[1:]]),
            selection=None if spec.top_k is None else str(spec.top_k),
            value_name=value_name,
        )
        if report is not None:
            page.to_html(report)
        if figures is not None:
            page.save_figures(figures)


def _facts(log: Sequence[str], evidence: Evidence, maps: list[str]) -> dict[str, str | list[str]]:
    import platform
    from importlib.metadata import version

    spec = evidence.spec
    facts: dict[str, str | list[str]] = {
        "Log": list(log),
        "Rows": f"{evidence.rows:,}",
        "Served score": f"{spec.scores[0]} ({spec.scale})",
        "Label": str(spec.label),
    }
    optional = {
        "Weight": spec.weight,
        "Group": spec.group,
        "Negative-sampling rate": None if spec.negative_rate is None else f"{spec.negative_rate:g}",
        "Selection": None if spec.top_k is None else str(spec.top_k),
        "Maps": maps or None,
    }
    facts |= {name: value for name, value in optional.items() if value is not None}
    versions = [f"{name} {version(name)}" for name in ("uncurse", "numpy", "polars")]
    versions.append(f"Python {platform.python_version()}")
    return {**facts, "Command": command_line(), "Versions": ", ".join(versions)}


def _percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def _signed(value: float, digits: int = 2) -> str:
    return "undefined" if value != value else f"{100 * value:+.{digits}f}%"


def _text(methods: Sequence[Method], log: Evidence) -> str:
    """Return a table of calibration errors and one of ECE, a row for each share."""
    names = [m.name for m in methods]
    errors, eces = [("top", "selected", *names)], [("top", *names)]
    for rows in zip(*(m.evaluation.rows for m in methods), strict=True):
        top = _percent(rows[0].alpha)
        cells = [
            f"{_signed(e)} ± {100 * e.standard_error:.2f}%" if e == e else "undefined"
            for e in (row.calibration_error for row in rows)
        ]
        errors.append((top, f"{rows[0].selected:,.0f}", *cells))
        eces.append((top, *(f"{float(row.ece):.5f} ({row.ece.floor:.5f})" for row in rows)))
    chosen = log.spec.top_k or f"selected by {log.spec.scores[0]}"
    return "\n".join(
        [
            f"{log.rows:,} rows, label {log.spec.label}, {chosen}",
            "",
            "Calibration error (predicted / observed − 1) ± standard error",
            *aligned(errors, left=0),
            "",
            "ECE (noise floor)",
            *aligned(eces, left=0),
        ]
    )


def _value_text(methods: Sequence[Method], column: str) -> str:
    table = [("top", "observed", *(m.name for m in methods))]
    for rows in zip(*(m.value.rows for m in methods if m.value is not None), strict=True):
        cells = []
        for row in rows:
            error = row.calibration_error
            share = f" ({_signed(error, 1)} ± {100 * error.standard_error:.1f}%)" if error == error else ""
            cells.append(f"{row.predicted:,.6g}{share}")
        table.append((_percent(rows[0].alpha), f"{rows[0].observed:,.6g}", *cells))
    title = f"Sum of {column}: observed, and predicted (difference ± standard error)"
    return "\n".join([title, *aligned(table, left=0)])


def _records(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Return a flat record for every method and share."""
    records = []
    for method in methods:
        for i, row in enumerate(method.evaluation.rows):
            record: dict[str, Any] = {
                "method": method.name,
                **{name: getattr(row, name) for name in ("alpha", "selected", "predicted", "observed")},
                "calibration_error": float(row.calibration_error),
                "standard_error": row.calibration_error.standard_error,
                "ece": float(row.ece),
                "ece_floor": row.ece.floor,
                "mce": float(row.mce),
                "mce_floor": row.mce.floor,
                "log_loss": float(row.log_loss),
                "brier": float(row.brier),
            }
            if method.value is not None:
                one = method.value.rows[i]
                record |= {"value_predicted": one.predicted, "value_observed": one.observed}
            records.append(record)
    return records
