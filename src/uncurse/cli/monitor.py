"""`uncurse monitor`: is a map still valid?"""

from __future__ import annotations

import os
import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..text import aligned
from . import options, reading
from .app import app
from .output import Format, Quiet, check_outputs, emit, note, working

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..logs import Settled
    from ..methods import FitRecord
    from ..monitoring import MonitorState, Verdict


@app.command()
def monitor(
    map_file: options.MapFile,
    log: options.LogsOrEvidence,
    label: options.Label = None,
    trials: options.Trials = None,
    scores: options.Served = None,
    weight: options.Weight = None,
    segment: Annotated[
        str | None, typer.Option(help="Column of segments; calibration is shown for each (default: that of the map).")
    ] = None,
    request: options.Request = None,
    top_k: options.TopK = None,
    missing: options.Missing = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            help="New rows of the whole candidate pool with all replicas, or evidence of them; their scores and λ are "
            "compared with the fit. May be repeated."
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="JSON file that collects what is seen day by day; created if it is absent.")
    ] = None,
    day: Annotated[str | None, typer.Option(help="ISO date or time of these rows (default: today, UTC).")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times, for --settled-before.")] = None,
    settled_before: Annotated[
        str | None,
        typer.Option(
            help="Count only rows before this ISO date or time, whose labels are final. With --state, rows that were "
            "counted before are left out."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            parser=options.share,
            metavar="SHARE",
            help="Ignore errors smaller than this, such as 2% (default: that of the state, or 0%).",
        ),
    ] = None,
    prometheus: Annotated[Path | None, typer.Option(help="Write metrics in the text format of Prometheus.")] = None,
    report: options.ReportFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Check whether a map still holds: keep, watch or alarm.

    LOG holds rows that were selected and have labels since; rows without a label are left out. With --state the command
    may run every day: if the map is right, the chance of ever raising a false alarm is at most 5%. The state keeps the
    tolerance, the labels and the selection, so later days need not repeat them. Exit code 0 for keep and watch, 1 for
    alarm.

    \b
    Examples:
      uncurse monitor map.json log.parquet --label click --state state.json --report since_fit.html
      uncurse monitor map.json log.parquet --label click --request request_id --top-k 1 --format json
      uncurse monitor map.json 'logs/*.parquet' --label sale --time shown_at --settled-before 2026-11-14 --state s.json
    """
    from .. import monitoring
    from ..monitoring.prometheus import prometheus_text
    from ..monitoring.state import map_digest
    from ..report import monitor_page
    from ..report.page import check_requirements

    inputs = [map_file, *log, *(pool or [])]
    outputs = {"--state": state, "--prometheus": prometheus, "--report": report}
    check_outputs(outputs, inputs)
    if report is not None:
        check_requirements()  # before these rows are counted
    fitted = reading.load_map(map_file)
    given: dict[str, Any] = {"scores": reading.served_column(scores), "label": label, "trials": trials}
    given |= {"weight": weight, "segment": segment, "request": request, "top_k": top_k}
    with nullcontext() if state is None else documents.locked(state):
        before = None if state is None or not state.exists() else monitoring.MonitorState.load(state)
        if before is not None and before.map_id != map_digest(fitted.map):
            raise UncurseError(f"--state {state} belongs to another map than {map_file}; name a new file for a new map")
        if before is not None and before.spec is not None:  # labels and selection of the first day
            kept = reading.options_of(before.spec)
            given |= {name: kept[name] for name, value in given.items() if value is None and name != "scores"}
        settled = _settled(time, settled_before, before, log)
        rows = reading.read_for_maps(log, {map_file: fitted}, {**given, "missing": missing}, settled)
        if any(map(reading.is_evidence, log)):
            rows = replace(rows, sources=(*rows.sources, *log))
        candidates = None if pool is None else _read_pool(pool, fitted.record, map_file)
        verdict = monitoring.monitor(fitted, rows, before, pool=candidates, day=day, tolerance=tolerance)
        if settled_before is not None:
            verdict = replace(verdict, state=replace(verdict.state, settled_before=settled_before))
        step = _next_step(verdict, map_file, log)
        if prometheus is not None:
            documents.write(prometheus, prometheus_text(verdict, os.path.basename(map_file)))
        if report is not None:
            facts = reading.log_facts(log, rows, Map=map_file)
            with working("drawing"):
                monitor_page(verdict, os.path.basename(map_file), fitted, facts, step).to_html(report)
        if state is not None:  # last: until then the rows are not counted, and the command can run again
            verdict.state.save(state)
    plain = step.replace("`", "")
    content = {"map": map_file, **verdict.to_dict(), "next": plain}
    emit(format, f"{_text(verdict, pool is not None)}\nnext: {plain}", "verdict", content)
    for path in (prometheus, report, state):
        if path is not None:
            note(f"written to {path}")
    if verdict.decision == "alarm":
        raise typer.Exit(1)


def _next_step(verdict: Verdict, map_file: str, log: list[str]) -> str:
    """Return what to run next."""
    spec = verdict.state.spec
    options = "" if spec is None or any(map(reading.is_evidence, log)) else f" {reading.label_options(spec)}"
    if verdict.decision == "alarm":
        since = (verdict.wrong_since or verdict.since_fit).name
        return f"`uncurse refresh {map_file} LOG{options} -o new.json`, with the rows {since}"
    if verdict.decision == "watch":
        return f"`uncurse evaluate {shlex.join(log)}{options} --map {map_file} --report report.html`"
    return "the same command with the next rows"


def _settled(
    time: str | None, settled_before: str | None, state: MonitorState | None, log: list[str]
) -> Settled | None:
    """Return which rows of the logs count."""
    from ..logs import Settled
    from ..validation import check_time

    last = None if state is None else state.settled_before
    if (time is None) != (settled_before is None):
        raise UncurseError("--time and --settled-before belong together; pass both")
    if any(map(reading.is_evidence, log)):
        if time is not None:
            raise UncurseError(f"--settled-before needs rows, and {', '.join(log)} is evidence; pass the log itself")
        return None
    if settled_before is None:
        if last is not None:
            raise UncurseError(f"this state counts the rows before {last}; pass --time and --settled-before again")
        return Settled()
    before, since = check_time(settled_before, "--settled-before"), None if last is None else check_time(last, "state")
    if since is not None and before <= since:
        raise UncurseError(
            f"--settled-before is {settled_before}, and all rows before {last} are counted; pass a later time"
        )
    return Settled(time, since, before)


def _read_pool(pool: list[str], record: FitRecord | None, map_file: str) -> Evidence:
    if record is None:
        raise UncurseError(f"--pool needs a map that says what it was fitted to, and {map_file} does not; fit it again")
    given: dict[str, Any] = {"scores": record.pool.columns, "scale": record.scale, "link": record.link}
    given |= {"negative_sampling_rate": record.negative_sampling_rate, "weight": None, "segment": None}
    return reading.read_evidence(pool, given)


def _text(verdict: Verdict, pool: bool) -> str:
    from ..monitoring.sequential import error_words
    from ..report import monitor as page

    lines = [f"{verdict.decision}: {verdict.reason}"]
    if verdict.decision == "keep" and not verdict.latest.may_be_zero:
        lines.append(f"these rows alone: {error_words(verdict.latest)}")
    segments = sorted(verdict.segments, key=lambda part: -part.e_value)
    named = [(f"since the fit ({page.days_words(verdict.days)})", verdict.since_fit)]
    named += [] if verdict.wrong_since is None else [(verdict.wrong_since.name, verdict.wrong_since)]
    named += [("these rows", verdict.latest), *((f"predictions {part.name}", part) for part in verdict.buckets)]
    named += [(f"segment {part.name}", part) for part in segments[: page.MAX_PARTS]]
    lines += ["", *aligned([("", *page.HEADER), *((name, *page.cells_of(part)) for name, part in named)])]
    if len(segments) > page.MAX_PARTS:
        lines.append(f"… and {len(segments) - page.MAX_PARTS:,} segments with less evidence; --format json has all")
    lines += ["", *page.changes_in_words(verdict)]
    if pool and verdict.scores is not None and verdict.shrinkage is None:
        lines.append("λ is not compared: this map has none, or there is one score column")
    if verdict.decision != "alarm":  # after an alarm the error is found
        lines.append(page.labels_in_words(verdict))
    return "\n".join(lines)
