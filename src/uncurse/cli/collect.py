"""`uncurse collect`: a log to evidence."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .. import documents
from .app import app
from .options import Engine, Group, Label, Link, Logs, NegativeRate, Out, Request, Scale, Scores, TopK, Weight
from .output import Format, Quiet, check_outputs, emit, is_stdout, write_document
from .reading import collect_logs, column_names, log_spec


@app.command()
def collect(
    log: Logs,
    scores: Scores,
    scale: Scale,
    out: Out,
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

    fit and evaluate read evidence files like logs, and merge several.

    Example: uncurse collect 'logs/2026-11-15/*.parquet' --scores s0,s1 --scale logit --label click -o day.json
    """
    check_outputs({"--out": out}, log, format=format, suffixes={"--out": (".json",)})
    given = {"scores": column_names(scores or ""), "scale": scale, "link": link, "negative_rate": negative_rate}
    spec = log_spec({**given, "label": label, "weight": weight, "group": group, "request": request, "top_k": top_k})
    if replica_counts is None:
        replica_counts = len(spec.scores) > 1 and spec.has_logits and spec.link == "logistic"
    evidence = collect_logs(log, spec, replica_counts, engine)
    write_document(out, evidence.to_json() + "\n")
    record: dict[str, Any] = {
        "out": out,
        "rows": evidence.rows,
        "columns": ",".join(spec.scores),
        "groups": len(evidence.groups),
        "selection": str(spec.top_k or "all rows"),
        "replica_counts": 0 if evidence.replica_counts is None else len(evidence.replica_counts),
    }
    text = f"{evidence.rows:,} rows of {', '.join(spec.scores)}"
    text += f" in {len(evidence.groups):,} groups" if evidence.groups else ""
    text += f", {spec.top_k}" if spec.top_k else ""
    text = f"{text}: written to {'standard output' if is_stdout(out) else out}"
    emit(format, text, documents.dumps("collected", record), [record], stdout=not is_stdout(out))
