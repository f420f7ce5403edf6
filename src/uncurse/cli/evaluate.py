"""`uncurse evaluate`: calibration of the top-scored rows, before and after each map."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .. import documents
from ..errors import UncurseError
from ..text_tables import aligned
from ..validation import warn_user
from . import options, reading
from .app import app
from .output import Format, Quiet, check_outputs, emit, note, program_facts, working

if TYPE_CHECKING:
    from ..debias import FitRecord
    from ..evidence import Evidence
    from ..maps import ScoreMap
    from ..metrics import Evaluation
    from ..report import Method, Monitored


_Records = list[dict[str, Any]]


class _Map(NamedTuple):
    """A map to evaluate."""

    path: str
    name: str  # in tables
    map: ScoreMap
    record: FitRecord | None


@app.command()
def evaluate(
    log: options.LogsOrEvidence,
    score: options.Score = None,
    label: options.Label = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Map file to compare with the scores as served; may be repeated. A report is headed by the first.",
        ),
    ] = None,
    alpha: Annotated[
        str | None, typer.Option(help="Selected shares: 2%,5% or first:last:step (default 0.02:0.10:0.01).")
    ] = None,
    request: options.Request = None,
    top_k: options.TopK = None,
    scale: options.Scale = None,
    weight: options.Weight = None,
    group: options.GroupColumn = None,
    negative_rate: options.NegativeRate = None,
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
    engine: options.Engine = None,
    report: options.ReportFile = None,
    state: Annotated[
        Path | None,
        typer.Option(help="State file of monitor; the report shows what it saw of its map since the fit."),
    ] = None,
    tolerance: options.Tolerance = None,
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
    from ..report import Method, Report
    from ..report.provenance import summarize_scores

    check_outputs(
        {"--report": report, "--figures": figures},
        [*log, *(maps or []), *([] if state is None else [state])],
        suffixes={"--report": (".html", ".htm")},
        folders=["--figures"],
    )
    limit = None if fail_above is None else options.share(fail_above, "--fail-above", most=100.0)
    reading.check_engine(engine, log)
    loaded = _load_maps(maps or [])
    since_fit = _since_fit(state, tolerance, loaded, drawn=report is not None or figures is not None)
    given = {"scale": scale, "negative_rate": negative_rate, "group": group}
    known = _options_of(loaded, given)
    columns = {"scores": None if score is None else (score,), "label": label, "weight": weight}
    wanted = {**columns, "request": request, "top_k": top_k, **(given if reading.is_evidence(log[0]) else known)}
    scale_from = loaded[0].path if loaded else None
    evidence = reading.read_evidence(
        log, wanted, engine, scores_option="--score", need_label=True, scale_from=scale_from
    )
    _check_maps(loaded, evidence, log, group)
    alphas = options.shares(alpha or ("0.02:0.10:0.01" if evidence.spec.top_k is None else "1"))
    evaluations = _evaluate(log, evidence, loaded, alphas, n_bins=bins)
    values: Sequence[Evaluation | None] = [None] * len(evaluations)
    if value is not None:
        valued_rows = _collect_values(log, evidence, value, engine, scale_from)
        values = _evaluate(log, evidence, loaded, alphas, values=valued_rows)
    # With a negative-sampling rate, evidence holds corrected scores: what is served without a map is much too high.
    corrected = evidence.spec.negative_rate not in (None, 1.0)
    named = [
        ("as served, corrected for the rate" if corrected else "as served", None),
        *((one.name, one.record) for one in loaded),
    ]
    methods = [
        Method(name, evaluation, record, valued)
        for (name, record), evaluation, valued in zip(named, evaluations, values, strict=True)
    ]
    selection = None if evidence.spec.top_k is None else str(evidence.spec.top_k)
    facts = _facts(log, evidence, [one.path for one in loaded], state)
    if report is not None or figures is not None:
        assert evidence.cells is not None  # a log with labels has logits
        with working("drawing"):
            served = summarize_scores(evidence.cells) if selection is None else None
            named_value = value or "value"
            page = Report(methods, served, facts, selection=selection, value_name=named_value, since_fit=since_fit)
            if report is not None:
                page.to_html(report)
            if figures is not None:
                page.save_figures(figures)
    emit(format, lambda: _text(methods, evidence, value), lambda: _document(methods, facts, selection))
    for path in (report, figures):
        if path is not None:
            note(f"written to {path}")
    if limit is not None:
        _gate(methods[1:] or methods, limit)


# ---------------------------------------------------------------------------- maps and options


def _load_maps(paths: Sequence[str]) -> list[_Map]:
    short = [Path(path).name for path in paths]
    names = short if len(set(short)) == len(short) and "as served" not in short else list(paths)
    return [_Map(path, name, *reading.load_map(path)) for path, name in zip(paths, names, strict=True)]


def _since_fit(state: Path | None, tolerance: str | None, maps: Sequence[_Map], *, drawn: bool) -> Monitored | None:
    """Return what a monitor saw of one of the maps."""
    from ..monitoring import MonitorState, judge
    from ..monitoring.state import map_digest
    from ..report import Monitored

    if state is None:
        if tolerance is not None:
            raise UncurseError("--tolerance is for the verdict of --state; pass --state, or leave it out")
        return None
    if not drawn:
        raise UncurseError("--state is shown in the report; pass --report FILE")
    if not maps:
        raise UncurseError("--state is about a map; pass its file with --map")
    content = MonitorState.load(state)
    own = [one for one in maps if map_digest(one.map) == content.map_id]
    if not own:
        names = ", ".join(one.path for one in maps)
        raise UncurseError(f"--state {state} belongs to another map than {names}; pass the map that was monitored")
    accepted = options.share(tolerance or "0", "--tolerance", zero=True)
    return Monitored(judge(content, tolerance=accepted), own[0].name, accepted)


def _options_of(maps: Sequence[_Map], given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with which the maps were fitted, or else the given ones; all must agree."""
    from ..maps import Grouped

    options = {}
    for name, value in given.items():
        held = {} if value is None else {"this command": value}
        for one in maps:
            if name == "scale":
                held[one.path] = one.map.scale
            elif one.record is not None and (name != "group" or isinstance(one.map, Grouped)):
                held[one.path] = getattr(one.record, name)
        if held:
            reading.check_same(name, held, "evaluate each map with the options that it was fitted with")
        options[name] = next(iter(held.values()), None)
    return options


def _check_maps(maps: Sequence[_Map], evidence: Evidence, log: Sequence[str], group: str | None) -> None:
    """Check that the maps take the scores that the evidence holds."""
    from ..maps import Grouped

    spec, names = evidence.spec, ", ".join(log)
    if group is not None and not any(isinstance(one.map, Grouped) for one in maps):
        raise UncurseError(f"--group {group} is for maps by group, and none of the maps is; leave it out")
    for path, _, score_map, record in maps:
        if isinstance(score_map, Grouped):
            if not evidence.groups:
                remedy = f"collect {names} with" if reading.is_evidence(log[0]) else "pass"
                column = (record.group if record else None) or "COLUMN"
                raise UncurseError(f"{path} has a map for each group; {remedy} --group {column}")
            rows = sum(part.rows for name, part in evidence.groups.items() if name not in score_map.maps)
            if rows:
                warn_user(
                    f"{rows:,} of {evidence.rows:,} rows have a {spec.group} without a map of its own in {path}; they "
                    "get the default map"
                )
        reading.check_same("scale", {path: score_map.scale, names: spec.scale}, "use one scale")
        if record is None:
            continue
        rates = {path: record.negative_rate, names: spec.negative_rate}
        reading.check_same("negative_rate", rates, f"collect {names} again")
        reading.check_served(path, record, spec.scores[0])
        if set(map(os.path.realpath, record.label_sources)) & set(map(os.path.realpath, evidence.sources)):
            warn_user(f"{path} was fitted to the labels of {names}; evaluate it on other rows, say of another day")


def _evaluate(
    log: Sequence[str], evidence: Evidence, maps: Sequence[_Map], alphas: Sequence[float], **options: Any
) -> list[Evaluation]:
    """Evaluate the scores as served, and after each map."""
    from ..metrics import evaluate_log

    try:
        return [evaluate_log(evidence, one, alphas, **options) for one in (None, *(m.map for m in maps))]
    except UncurseError as error:
        raise UncurseError(f"{', '.join(log)}, label {evidence.spec.label!r}: {error}") from None


def _collect_values(
    log: Sequence[str], evidence: Evidence, column: str, engine: str | None, scale_from: str | None
) -> Evidence:
    """Collect the log with the value of each row as its weight."""
    spec = evidence.spec
    if reading.is_evidence(log[0]):
        raise UncurseError(f"--value {column} needs rows, and {', '.join(log)} is evidence; evaluate the log itself")
    if spec.weight is not None:
        raise UncurseError("--value and --weight exclude each other; multiply the values by the weights")
    if spec.top_k is not None:  # a second pass may keep other rows of equal scores
        raise UncurseError("--value and --request exclude each other; select the rows of each request first")
    try:
        return reading.collect_logs(log, replace(spec, weight=column), False, engine, scale_from=scale_from)
    except UncurseError as error:
        raise UncurseError(f"values are weights of the rows: {error}") from None


# ---------------------------------------------------------------------------- results


def _facts(log: Sequence[str], evidence: Evidence, maps: list[str], state: Path | None) -> dict[str, str | list[str]]:
    facts = {**reading.log_facts(log, evidence), "Maps": maps or None, "State": None if state is None else str(state)}
    facts |= program_facts()
    return {name: fact for name, fact in facts.items() if fact is not None}


def _document(methods: Sequence[Method], facts: dict[str, Any], selection: str | None) -> str:
    parts = [
        {key: part.to_dict() if hasattr(part, "to_dict") else part for key, part in vars(m).items()} for m in methods
    ]
    return documents.dumps("evaluations", {"facts": facts, "selection": selection, "methods": parts})


def _text(methods: Sequence[Method], log: Evidence, value: str | None) -> str:
    """Return tables of calibration errors, of ECE and of value: a row for each share, a column for each method."""
    lines = [f"{log.rows:,} rows, label {log.spec.label}, {log.spec.top_k or f'selected by {log.spec.scores[0]}'}"]
    cells = [[row.cells() for row in method.evaluation.rows] for method in methods]
    names = [method.name for method in methods]
    for title, column, first in (
        ("Calibration error (predicted / observed − 1) ± standard error", "calibration error", ("top", "selected")),
        ("ECE (noise floor)", "ECE (floor)", ("top",)),
    ):
        rows = [(*(row[0][name] for name in first), *(one[column] for one in row)) for row in zip(*cells, strict=True)]
        lines += ["", title, *aligned([(*first, *names), *rows], left=0)]
    if value is not None:
        valued = [[row.cells() for row in method.value.rows] for method in methods if method.value is not None]
        rows = [
            (row[0]["top"], row[0]["observed"], *(f"{one['predicted']} ({one['calibration error']})" for one in row))
            for row in zip(*valued, strict=True)
        ]
        title = f"Sum of {value}: observed, and predicted (difference ± standard error)"
        lines += ["", title, *aligned([("top", "observed", *names), *rows], left=0)]
    return "\n".join(lines)


def _gate(methods: Sequence[Method], limit: float) -> None:
    """Exit with 1 if a calibration error exceeds the limit; NaN, without a positive label, does too."""
    above = f"above {100 * limit:.4g}%"
    exceeded = [
        f"{method.name}, top {row.cells()['top']}: {row.cells()['calibration error']}"
        for method in methods
        for row in method.evaluation.rows
        if not abs(row.calibration_error) <= limit
    ]
    if exceeded:
        typer.echo(f"uncurse: the calibration error is {above}: {'; '.join(exceeded)}", err=True)
        raise typer.Exit(1)
    note(f"no calibration error of {', '.join(method.name for method in methods)} is {above}")
