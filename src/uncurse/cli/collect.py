"""`uncurse collect`: a log to evidence, in a new file or added to one that decays."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from .app import app
from .options import Engine, Group, Label, Link, Logs, NegativeRate, Request, Scale, Scores, TopK, Weight
from .output import Format, Quiet, check_outputs, emit, is_stdout, write_document
from .reading import collect_logs, column_names, log_spec

if TYPE_CHECKING:
    from ..evidence import Evidence


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
    weight: Weight = None,
    group: Group = None,
    request: Request = None,
    top_k: TopK = None,
    negative_rate: NegativeRate = None,
    link: Link = None,
    replica_counts: Annotated[
        bool | None,
        typer.Option(
            help="Count the replica scores jointly, for --method auto and tower (default: if there are two or more)."
        ),
    ] = None,
    engine: Engine = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Summarise a log in a small evidence file.

    fit and evaluate read evidence files like logs, and merge several. With --into, the rows are added to a file, whose
    older rows lose weight if there is a --half-life.

    \b
    Examples:
      uncurse collect 'logs/2026-11-15/*.parquet' --scores s0,s1 --scale logit --label click -o day.json
      uncurse collect today.parquet --scores s0,s1 --scale logit --label click --into week.json --half-life 3d
    """
    target, seconds = _check_options(out, into, half_life)
    time = None if as_of is None else _time(as_of)
    check_outputs(
        {"--out": out, "--into": into}, log, format=format, suffixes={"--out": (".json",), "--into": (".json",)}
    )
    given = {"scores": column_names(scores or ""), "scale": scale, "link": link, "negative_rate": negative_rate}
    spec = log_spec({**given, "label": label, "weight": weight, "group": group, "request": request, "top_k": top_k})
    if replica_counts is None:
        replica_counts = len(spec.scores) > 1 and spec.has_logits and spec.link == "logistic"
    if into is not None:
        _check_existing(into, spec, time, half_life)
    evidence = replace(collect_logs(log, spec, replica_counts, engine), as_of=time)
    added = evidence.rows
    if into is not None:
        evidence = _add(evidence, into, time, seconds)
    else:
        write_document(target, evidence.to_json() + "\n")
    record: dict[str, Any] = {
        "out": target,
        "rows": evidence.rows,
        "columns": list(spec.scores),
        "groups": len(evidence.groups),
        "selection": str(spec.top_k or "all rows"),
        "replica_counts": 0 if evidence.replica_counts is None else len(evidence.replica_counts),
        "added_rows": added,
        "as_of": evidence.as_of,
        "effective_rows": evidence.effective_rows,
    }
    text = f"{added:,} rows of {', '.join(spec.scores)}"
    text += f" in {len(evidence.groups):,} groups" if evidence.groups else ""
    text += f", {spec.top_k}" if spec.top_k else ""
    if into is None:
        text = f"{text}: written to {'standard output' if is_stdout(target) else target}"
    else:
        text = f"{text}: added to {target}, now {evidence.rows:,} rows, {evidence.effective_rows:,.0f} in effect"
    emit(format, lambda: text, lambda: documents.dumps("collected", record), stdout=not is_stdout(out))


def _check_options(out: str | None, into: str | None, half_life: str | None) -> tuple[str, float | None]:
    """Return the file to write, and the half-life in seconds."""
    from ..evidence.decay import duration_seconds

    if out is None and into is None:
        raise UncurseError("--out is missing; name an evidence file to write, or one to add rows to with --into")
    if out is not None and into is not None:
        raise UncurseError("--out and --into are both given; --into adds to an existing file, --out writes a new one")
    if half_life is None:
        return out or into or "", None
    if into is None:
        raise UncurseError(f"--half-life {half_life} needs --into, the evidence file whose older rows lose weight")
    return into, duration_seconds(half_life, "--half-life")


def _time(text: str) -> str:
    from ..evidence.decay import utc_time

    return utc_time(text, "--as-of")


def _check_existing(into: str, spec: Any, time: str | None, half_life: str | None) -> None:
    """Check that rows can be added to a file, before the log is read."""
    if os.path.exists(into):
        from ..evidence import Evidence

        existing = Evidence.load(into)
        difference = existing.spec.difference(spec)
        if difference:
            raise UncurseError(f"{into} was collected differently: {difference}; use the same options, or another file")
        if half_life is not None:
            _elapsed(existing, into, time or _now())


def _now() -> str:
    return _time(datetime.now(UTC).isoformat())


def _elapsed(existing: Evidence, into: str, time: str) -> float:
    """Return the seconds by which rows of a file are older than a time."""
    from ..evidence.decay import check_time

    if existing.as_of is None:
        raise UncurseError(
            f"{into} does not hold the time of its rows, so they cannot decay; start another file with --into, or "
            "collect it again with --as-of"
        )
    seconds = (check_time(time, "time") - check_time(existing.as_of, "as_of")).total_seconds()
    if seconds < 0:
        raise UncurseError(
            f"{into} is as of {existing.as_of}, after {time}; add rows in order of time, or pass their time as --as-of"
        )
    return seconds


def _add(evidence: Evidence, into: str, time: str | None, half_life: float | None) -> Evidence:
    """Add evidence to a file. The lock keeps what other commands add meanwhile."""
    from ..evidence import Evidence
    from ..evidence.decay import decay_factor

    with documents.locked(into):
        time = time or _now()
        evidence = replace(evidence, as_of=time)
        if os.path.exists(into):
            existing = Evidence.load(into)
            if half_life is not None:
                existing = existing.decayed(decay_factor(_elapsed(existing, into, time), half_life))
            total = existing.merge(evidence)
            evidence = replace(total, sources=tuple(dict.fromkeys(total.sources)))
        write_document(into, evidence.to_json() + "\n")
    return evidence
