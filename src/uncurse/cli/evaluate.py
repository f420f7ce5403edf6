"""`uncurse evaluate`: calibration of the top-scored rows, before and after each map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UncurseError
from ..text import aligned
from . import options, reading
from .app import app
from .output import Format, Quiet, check_outputs, emit, note, working

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..methods import Fitted
    from ..report import Method


@app.command()
def evaluate(
    log: options.LogsOrEvidence,
    scores: options.Served = None,
    label: options.Label = None,
    trials: options.Trials = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Map file to compare with the scores as served; may be repeated. A report is headed by the first.",
        ),
    ] = None,
    top: Annotated[
        Any,
        typer.Option(
            parser=options.shares,
            metavar="SHARES",
            help="Selected shares: 2%,5% or first:last:step (default 0.02:0.10:0.01).",
        ),
    ] = None,
    request: options.Request = None,
    top_k: options.TopK = None,
    scale: options.Scale = None,
    weight: options.Weight = None,
    segment: options.SegmentColumn = None,
    negative_sampling_rate: options.NegativeRate = None,
    missing: options.Missing = None,
    value: Annotated[
        str | None, typer.Option(help="Column with the value of a positive label, to report value as well.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Number of bins of ECE and MCE.")] = 10,
    fail_above: Annotated[
        float | None,
        typer.Option(
            parser=options.share,
            metavar="SHARE",
            help="Exit with 1 if a calibration error of a map (or of the scores as served) is larger, such as 5%.",
        ),
    ] = None,
    report: options.ReportFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Measure the error on the top-scored rows, with and without maps.

    The scale, the negative-sampling rate and the column of segments are taken from the maps if they are not given.

    \b
    Examples:
      uncurse evaluate log.parquet --scores s0 --label click --map map.json --report report.html
      uncurse evaluate day.json --map a.json --map b.json --top 1%,5%
      uncurse evaluate log.parquet --scores s0 --label click --map map.json --top 2% --fail-above 5%
      uncurse evaluate log.parquet --scores s0 --scale logit --label click --request request_id --top-k 1
    """
    from ..maps import Segmented
    from ..methods.records import ScoreSummary
    from ..metrics import evaluate_log
    from ..report import Method, evaluation_page

    check_outputs({"--report": report}, [*log, *(maps or [])])
    loaded = {path: reading.load_map(path) for path in maps or []}
    if segment is not None and not any(isinstance(one.map, Segmented) for one in loaded.values()):
        raise UncurseError(f"--segment {segment} is for maps by segment, and none of the maps is; leave it out")
    given: dict[str, Any] = {"scores": reading.served_column(scores), "scale": scale, "label": label, "weight": weight}
    given |= {"negative_sampling_rate": negative_sampling_rate, "segment": segment, "missing": missing}
    given |= {"trials": trials, "request": request, "top_k": top_k}
    evidence = reading.read_for_maps(log, loaded, given)
    alphas = top or options.shares("0.02:0.10:0.01" if evidence.spec.top_k is None else "1")
    values = None if value is None else _collect_values(log, evidence, value, missing)
    # With a negative-sampling rate, evidence holds corrected scores: what is served without a map is much too high.
    corrected = evidence.spec.negative_sampling_rate not in (None, 1.0)
    short = [Path(path).name for path in loaded]
    distinct = len(set(short)) == len(short) and "as served" not in short
    named: list[tuple[str, Fitted | None]] = [
        ("as served, corrected for the rate" if corrected else "as served", None),
        *zip(short if distinct else loaded, loaded.values(), strict=True),
    ]
    methods = []
    for name, fitted in named:
        score_map = None if fitted is None else fitted.map
        evaluation = evaluate_log(evidence, score_map, alphas, n_bins=bins)
        valued = None if values is None else evaluate_log(evidence, score_map, alphas, values=values)
        methods.append(Method(name, evaluation, fitted, valued))
    selection = None if evidence.spec.top_k is None else str(evidence.spec.top_k)
    facts = reading.log_facts(log, evidence, Maps=[*loaded])
    if report is not None:
        assert evidence.served is not None  # a log with labels has logits
        with working("drawing"):
            served = ScoreSummary.of(evidence.served) if selection is None else None
            page = evaluation_page(methods, served, facts, selection=selection, value_name=value or "value")
            page.to_html(report)
    document = {"facts": facts, "selection": selection, "methods": [_plain(method) for method in methods]}
    emit(format, _text(methods, evidence, value), "evaluations", document)
    if report is not None:
        note(f"written to {report}")
    if fail_above is not None:
        _gate(methods[1:] or methods, fail_above)


def _collect_values(log: Sequence[str], evidence: Evidence, column: str, missing: str | None) -> Evidence:
    """Collect the log with the value of each row as its weight."""
    spec = evidence.spec
    if reading.is_evidence(log[0]):
        raise UncurseError(f"--value {column} needs rows, and {', '.join(log)} is evidence; evaluate the log itself")
    if spec.weight is not None:
        raise UncurseError("--value and --weight exclude each other; multiply the values by the weights")
    if spec.top_k is not None:  # a second pass may keep other rows of equal scores
        raise UncurseError("--value and --request exclude each other; select the rows of each request first")
    return reading.collect_logs(log, replace(spec, weight=column), missing=missing)


def _plain(method: Method) -> dict[str, Any]:
    return {key: part.to_dict() if hasattr(part, "to_dict") else part for key, part in vars(method).items()}


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
