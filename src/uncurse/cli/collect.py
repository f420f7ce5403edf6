"""`uncurse collect`: a log to evidence."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .. import documents
from .app import app
from .options import (
    Engine,
    Group,
    Label,
    Link,
    Logs,
    NegativeRate,
    Out,
    Request,
    ScaleName,
    TopK,
    Weight,
)
from .output import Format, Quiet, check_outputs, emit, is_stdout, write_document
from .reading import LogOptions, collect_logs, column_names


@app.command()
def collect(
    log: Logs,
    scores: Annotated[
        str, typer.Option("--scores", help="Columns of the replica scores, comma-separated, the served one first.")
    ],
    scale: Annotated[ScaleName, typer.Option(help="Scale of the scores.")],
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
    names = column_names(scores)
    options = LogOptions(names, label, weight, group, request, top_k, scale, link, negative_rate, engine)
    spec = options.spec("--scores")
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
