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
ReplicasName = Literal["seeds", "bootstrap", "ensemble", "snapshots"]
DialectName = Literal["duckdb", "spark", "bigquery", "snowflake"]
_MAX_SHARES = 1_000


def parse_share(text: str) -> float:
    """Return a share written as 0.1 or 10%; which shares are valid is checked where it is used.

    >>> parse_share("0.7%"), parse_share("0.1")
    (0.007, 0.1)
    """
    number = text.strip()
    try:
        return float(Decimal(number.removesuffix("%")) / (100 if number.endswith("%") else 1))
    except ArithmeticError:  # of Decimal
        raise typer.BadParameter(f"{text!r} is not a share such as 10% or 0.1") from None


def share(text: str, option: str, most: float = 1.0, *, zero: bool = False) -> float:
    """Return the share of an option: above 0, or 0 with `zero`, and at most 1; a percentage at most `most`."""
    try:
        value = parse_share(text)
    except typer.BadParameter:
        value = float("nan")
    if not (0 < value <= (most if text.strip().endswith("%") else 1) or (zero and value == 0)):
        raise UncurseError(f"{option} is {text!r}; pass a share such as 2% or 0.02")
    return value


def shares(text: str) -> list[float]:
    """Return the shares of ``--top``: 2%,5% or 0.02:0.10:0.01 with both ends, or both, separated by commas."""
    found: list[float] = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) not in (1, 3):
            raise UncurseError(f"--top is {text!r}; pass shares such as 2%,5%, or first:last:step")
        first, *rest = [share(end, "--top") for end in ends]
        if not rest:
            found.append(first)
            continue
        last, step = rest
        count = int((last - first) / step + 1e-9) + 1 if last >= first else 0
        if not 0 < count <= _MAX_SHARES:
            raise UncurseError(f"--top is {text!r}, {count:,} shares; use between 1 and {_MAX_SHARES:,}")
        found += [round(first + i * step, 12) for i in range(count)]
    return found


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
Served = Annotated[
    str | None, typer.Option("--scores", help="Column of the served score; of several, separated by commas, the first.")
]
Scale = Annotated[ScaleName | None, typer.Option(help="Scale of the scores.")]
Label = Annotated[str | None, typer.Option(help="Column of 0/1 labels.")]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Missing = Annotated[
    Literal["refuse", "drop"] | None, typer.Option(help="What to do with rows without a value (default refuse).")
]
Segment = Annotated[
    str | None, typer.Option(help="Column of segments (text or integers); each segment gets its own map.")
]
Request = Annotated[
    str | None, typer.Option(help="Column of requests, unique over all files; only the best rows of each are kept.")
]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Rows kept per request (default 1).")]
NegativeRate = Annotated[
    float | None,
    typer.Option(
        parser=parse_share,
        metavar="SHARE",
        help="Negative-sampling rate used in training, such as 10%; scores are corrected for it.",
    ),
]
SegmentColumn = Annotated[str | None, typer.Option(help="Column of segments, for maps by segment.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write an offline HTML page to this file.")]
Tolerance = Annotated[str | None, typer.Option(help="Errors of the odds up to this share are accepted (default 0%).")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown.")]
ModelOutput = Annotated[str | None, typer.Option(help="Name of the score, if an ONNX model has several outputs.")]
