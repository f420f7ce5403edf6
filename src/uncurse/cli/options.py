"""Options that several commands share."""

from __future__ import annotations

import glob
import os
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import UncurseError

ScaleName = Literal["logit", "probability", "value"]
LinkName = Literal["logistic", "identity", "log", "probit"]
ReplicasName = Literal["seeds", "bootstrap", "anchored", "ensemble", "snapshots"]
EngineName = Literal["polars", "duckdb", "spark"]
DialectName = Literal["duckdb", "spark", "bigquery", "snowflake"]


def share_or_percent(text: str) -> float:
    """Return a share written as 0.1 or 10%; which shares are valid is checked where it is used.

    >>> share_or_percent("0.7%"), share_or_percent("0.1")
    (0.007, 0.1)
    """
    number = text.strip()
    try:
        return float(Decimal(number.removesuffix("%")) / (100 if number.endswith("%") else 1))
    except ArithmeticError:  # of Decimal
        raise typer.BadParameter(f"{text!r} is not a share such as 10% or 0.1") from None


def expand_evidence(sources: list[str] | None) -> list[str] | None:
    """Replace globs of evidence files by the files, in order of their names; globs of logs stay for their engine."""
    found: list[str] = []
    for source in sources or []:
        if not source.lower().endswith(".json") or os.path.exists(source) or not glob.has_magic(source):
            found.append(source)
            continue
        files = sorted(file for file in glob.glob(source, recursive=True) if os.path.isfile(file))
        if not files:
            raise UncurseError(f"no file matches {source}")
        found += files
    return sources and found


Logs = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Parquet or CSV files, globs or folders; - for standard input.")
]
LogsOrEvidence = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Parquet or CSV files, globs or folders; or evidence files from collect, or globs of them.",
        callback=expand_evidence,
    ),
]
MapFile = Annotated[str, typer.Argument(metavar="MAP", help="A map file that fit wrote.")]
Out = Annotated[str, typer.Option("--out", "-o", help="JSON file to write; - for standard output.")]
Scores = Annotated[
    str | None, typer.Option("--scores", help="Columns of the replica scores, comma-separated, the served one first.")
]
Score = Annotated[str | None, typer.Option(help="Column of the served score.")]
Scale = Annotated[ScaleName | None, typer.Option(help="Scale of the scores.")]
Label = Annotated[str | None, typer.Option(help="Column of 0/1 labels.")]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Group = Annotated[str | None, typer.Option(help="Column of groups (text or integers); each group gets its own map.")]
Request = Annotated[
    str | None, typer.Option(help="Column of requests, unique over all files; only the best rows of each are kept.")
]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Rows kept per request (default 1).")]
NegativeRate = Annotated[
    float | None,
    typer.Option(
        parser=share_or_percent,
        metavar="SHARE",
        help="Negative-sampling rate used in training, such as 10%; scores are corrected for it.",
    ),
]
Link = Annotated[LinkName | None, typer.Option(help="Link on which scores are shrunk (default logistic).")]
Engine = Annotated[EngineName | None, typer.Option(help="Engine that reads the files (default polars).")]
GroupColumn = Annotated[str | None, typer.Option(help="Column of groups, for maps by group.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write an offline HTML page to this file.")]
Tolerance = Annotated[str | None, typer.Option(help="Errors of the odds up to this share are accepted (default 0%).")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown.")]
ModelOutput = Annotated[str | None, typer.Option(help="Name of the score, if an ONNX model has several outputs.")]
