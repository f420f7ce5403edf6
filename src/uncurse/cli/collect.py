"""`uncurse collect`: a log to evidence, in a new file or added to one that decays."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..validation import check_time
from .app import app
from .options import Label, Logs, Missing, NegativeRate, Request, Scale, Scores, Segment, Teacher, TopK, Trials, Weight
from .output import Format, Quiet, check_outputs, emit, write_document
from .reading import collect_logs, column_names, log_spec

if TYPE_CHECKING:
    from ..evidence import Evidence

_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@app.command()
def collect(
    log: Logs,
    scores: Scores,
    scale: Scale,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Evidence file to write; - for standard output.")
    ] = None,
    into: Annotated[
        str | None, typer.Option(help="Evidence file to add the rows to; it is created if it does not exist.")
    ] = None,
    half_life: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="With --into: time after which a row counts half, such as 3d, 36h, 90m or 2w."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time of the newest rows, such as 2026-11-15 (default with --into: now)."),
    ] = None,
    label: Label = None,
    trials: Trials = None,
    teacher: Teacher = None,
    weight: Weight = None,
    segment: Segment = None,
    request: Request = None,
    top_k: TopK = None,
    negative_sampling_rate: NegativeRate = None,
    missing: Missing = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Summarize a log in a small evidence file.

    fit and evaluate read evidence files like logs, and merge several. With --into, the rows are added to a file, whose
    older rows lose weight if there is a --half-life.

    \b
    Examples:
      uncurse collect 'logs/2026-11-15/*.parquet' --scores s0,s1 --scale logit --label click -o day.json
      uncurse collect today.parquet --scores s0,s1 --scale logit --label click --into week.json --half-life 3d
    """
    if (out is None) == (into is None):
        raise UncurseError("pass --out, an evidence file to write, or --into, one to add rows to")
    if half_life is not None and into is None:
        raise UncurseError(f"--half-life {half_life} needs --into, the evidence file whose older rows lose weight")
    seconds = None if half_life is None else duration_seconds(half_life)
    time = None if as_of is None else check_time(as_of, "--as-of").isoformat(timespec="seconds")
    check_outputs({"--out": out, "--into": into}, log, format=format, suffix=".json")
    given: dict[str, Any] = {"scores": column_names(scores or ""), "scale": scale, "label": label, "trials": trials}
    given |= {"weight": weight, "segment": segment, "negative_sampling_rate": negative_sampling_rate}
    spec = log_spec({**given, "teacher": teacher, "request": request, "top_k": top_k})
    evidence = replace(collect_logs(log, spec, missing=missing), as_of=time)
    added = evidence.rows
    if out is not None:
        write_document(out, evidence.to_json() + "\n")
    elif into is not None:
        with documents.locked(into):  # keeps what other commands add meanwhile
            now = datetime.now(UTC).replace(microsecond=0).isoformat()
            evidence = _added(into, replace(evidence, as_of=time or now), seconds)
            write_document(into, evidence.to_json() + "\n")
    record: dict[str, Any] = {
        "out": out or into,
        "rows": evidence.rows,
        "columns": list(spec.scores),
        "segments": len(evidence.segments),
        "selection": str(spec.top_k or "all rows"),
        "added_rows": added,
        "as_of": evidence.as_of,
        "effective_rows": evidence.effective_rows,
    }
    text = f"{added:,} rows of {', '.join(spec.scores)}"
    text += f" in {len(evidence.segments):,} segments" if evidence.segments else ""
    text += f", {spec.top_k}" if spec.top_k else ""
    if into is None:
        text = f"{text}: written to {'standard output' if out == '-' else out}"
    else:
        text = f"{text}: added to {into}, now {evidence.rows:,} rows, {evidence.effective_rows:,.0f} in effect"
    emit(format, text, "collected", record, out)


def duration_seconds(text: str) -> float:
    """Return the seconds of a half-life such as 3d, 36h, 90m or 2w."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*([mhdw])\s*", text, re.ASCII)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise UncurseError(f"--half-life is {text!r}; pass a positive time with a unit: 90m, 36h, 3d or 2w")
    return seconds


def _added(into: str, evidence: Evidence, half_life: float | None) -> Evidence:
    """Return evidence with that of a file, which decays until the time of the new rows."""
    from ..evidence import Evidence
    from ..evidence.evidence import decay_factor

    if not os.path.exists(into):
        return evidence
    existing, time = Evidence.load(into), evidence.as_of
    if set(evidence.digests) & set(existing.digests):
        raise UncurseError(f"{into} holds the rows of {', '.join(evidence.sources)} already; add each log once")
    if half_life is not None:
        if existing.as_of is None:
            raise UncurseError(
                f"{into} does not hold the time of its rows, so they cannot decay; start another file with --into, or "
                "collect it again with --as-of"
            )
        seconds = (check_time(time, "time") - check_time(existing.as_of, "as_of")).total_seconds()
        if seconds < 0:
            raise UncurseError(
                f"{into} is as of {existing.as_of}, after {time}; add rows in order of time, or pass their time as "
                "--as-of"
            )
        existing = existing.decayed(decay_factor(seconds, half_life))
    total = existing.merge(evidence)
    return replace(total, sources=tuple(dict.fromkeys(total.sources)))
