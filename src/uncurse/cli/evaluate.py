"""`uncurse evaluate`: calibration of the top-scored rows, before and after each map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from . import options, reading
from .app import app
from .output import Format, Quiet, check_outputs, emit, note, working

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..methods import Fitted
    from ..metrics import Evaluation
    from ..report import Method
    from ..report.evaluation import Results

_MOST_SEGMENTS = 100  # that are evaluated


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
            help="Map file to compare with the scores as served; may be repeated. Maps are ranked by their mean error.",
        ),
    ] = None,
    top: Annotated[
        Any,
        typer.Option(
            parser=options.shares,
            metavar="SHARES",
            help="Selected shares, such as 2%,5% (default 0.1%,1%,2%,5%,10%, without shares of fewer than 100 rows or "
            "10 predicted positives).",
        ),
    ] = None,
    request: options.Request = None,
    top_k: options.TopK = None,
    scale: options.Scale = None,
    weight: options.Weight = None,
    segment: Annotated[
        str | None, typer.Option(help="Column of segments; the errors are shown for each (default: that of the maps).")
    ] = None,
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
    from ..methods.records import ScoreSummary
    from ..metrics import default_shares, evaluate_log
    from ..metrics.evaluation import DEFAULT_SHARES
    from ..report import Method, evaluation_page
    from ..report.evaluation import Results, promises, ranked

    check_outputs({"--report": report}, [*log, *(maps or [])])
    loaded = {path: reading.load_map(path) for path in maps or []}
    given: dict[str, Any] = {"scores": reading.served_column(scores), "scale": scale, "label": label, "weight": weight}
    given |= {"negative_sampling_rate": negative_sampling_rate, "segment": segment, "missing": missing}
    given |= {"trials": trials, "request": request, "top_k": top_k}
    evidence = reading.read_for_maps(log, loaded, given)
    alphas = top or ([1.0] if evidence.spec.top_k is not None else default_shares(evidence))
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
        own = fitted is not None and reading.is_fitted_to(fitted, evidence)
        methods.append(Method(name, evaluation, fitted, valued, own))
    methods = ranked(methods)
    selection = None if evidence.spec.top_k is None else str(evidence.spec.top_k)
    results = Results(methods, selection, value or "value", _by_segment(methods, evidence, max(alphas)))
    facts = reading.log_facts(log, evidence, Maps=[*loaded])
    if report is not None:
        assert evidence.served is not None  # a log with labels has logits
        with working("drawing"):
            served = ScoreSummary.of(evidence.served) if selection is None else None
            more: dict[str, Any] = {"value_name": results.value_name, "segments": results.segments}
            evaluation_page(methods, served, facts, selection=selection, **more).to_html(report)
    plain = []
    for i, method in enumerate(methods):
        compared = {} if results.found is None else {name: value[i] for name, value in vars(results.found).items()}
        expected = promises(method, by_request=selection is not None)
        plain.append({**documents.plain(method), **compared, "expected": expected})
    by_segment = {name: [one.to_dict() for one in found] for name, found in results.segments.items()}
    document = {"facts": facts, "selection": selection, "methods": plain, "segments": by_segment}
    left_out = [] if top or selection else [alpha for alpha in DEFAULT_SHARES if alpha not in alphas]
    emit(format, _text(results, evidence, left_out), "evaluations", document)
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


def _by_segment(methods: Sequence[Method], log: Evidence, alpha: float) -> dict[str, list[Evaluation]]:
    """Evaluate the methods on the selected rows of the largest segments that have some, with the most rows first."""
    from ..maps import Segmented
    from ..metrics import evaluate_log

    found = {}
    for name, part in sorted(log.segments.items(), key=lambda item: -item[1].weight)[:_MOST_SEGMENTS]:
        maps = [None if method.fitted is None else method.fitted.map for method in methods]
        own = [one.maps.get(name, one.default) if isinstance(one, Segmented) else one for one in maps]
        found[name] = [evaluate_log(log, one, alpha, values=part) for one in own]
    order = sorted(found, key=lambda name: -found[name][0].rows[0].selected)
    return {name: found[name] for name in order if found[name][0].rows[0].selected}


def _text(results: Results, log: Evidence, left_out: Sequence[float]) -> str:
    """Return whether the first map helps, the tables of the page, and what to do next."""
    from ..report import evaluation as page

    lines = [f"{log.rows:,} rows, label {log.spec.label}, {log.spec.top_k or f'selected by {log.spec.scores[0]}'}"]
    lines += filter(None, [page.answer(results)[0], page.sureness(results)])
    for table in (page.error_table(results), page.expected_table(results), page.value_table(results)):
        lines += ["", *table.lines()] if table is not None else []
    if left_out:
        shares = ", ".join(f"{100 * alpha:g}%" for alpha in left_out)
        lines += ["", f"left out: the top {shares}, with fewer than 100 rows or 10 predicted positives (see --top)"]
    if results.segments:
        table, (title, *advice) = page.segment_table(results), page.segments_in_words(results)
        lines += ["", title, *table.lines(), *advice]
        if rest := len(log.segments) - len(table.rows):
            listed = len(results.segments)
            more = f"; --format json has the {listed} largest" if listed > len(table.rows) else ""
            lines.append(f"… and {rest:,} segment{'s' * (rest > 1)} with fewer selected rows, or none{more}")
    step = page.next_step(results).replace("`", "")
    lines += ["", f"next: {step}"] if step else []
    return "\n".join(lines)


def _gate(methods: Sequence[Method], limit: float) -> None:
    """Exit with 1 if a calibration error exceeds the limit; NaN, without a positive label, does too."""
    above = f"above {100 * limit:.4g}%"
    exceeded = [
        f"\n  {method.name}, top {row.cells()['top']}: {row.cells()['calibration error']}"
        for method in methods
        for row in method.evaluation.rows
        if not abs(row.calibration_error) <= limit
    ]
    if exceeded:
        typer.echo(f"uncurse: failed, because these calibration errors are {above}:{''.join(exceeded)}", err=True)
        raise typer.Exit(1)
    note(f"no calibration error of {', '.join(method.name for method in methods)} is {above}")
