"""Options that several commands share."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import typer


def share(text: str) -> float:
    """Return a share written as 0.1 or 10%; without a percent sign it is at most 1.

    >>> share("0.7%"), share("0.1")
    (0.007, 0.1)
    """
    number = text.strip()
    percent = number.endswith("%")
    try:
        value = float(Decimal(number.removesuffix("%")) / (100 if percent else 1))
    except ArithmeticError:  # of Decimal
        value = -1.0
    if not 0 <= value <= (1e6 if percent else 1):
        raise typer.BadParameter(f"{text!r} is not a share; pass one such as 2% or 0.02")
    return value


def shares(text: str) -> list[float]:
    """Return the shares of ``--top``, separated by commas.

    >>> shares("1%,0.05")
    [0.01, 0.05]
    """
    return list(map(share, text.split(",")))


Logs = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Parquet or CSV files, globs or folders; - for standard input.")
]
LogsOrEvidence = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Parquet or CSV files, globs or folders; or evidence files from collect, or globs of them.",
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
Scale = Annotated[Literal["logit", "probability", "value"] | None, typer.Option(help="What the scores are.")]
Label = Annotated[str | None, typer.Option(help="Column of 0/1 labels.")]
Trials = Annotated[
    str | None, typer.Option(help="Column of trials, such as impressions; labels are then counts, such as clicks.")
]
Teacher = Annotated[
    str | None,
    typer.Option(
        help="Column of scores of another kind of model, which learns more; same scale, out of fold on labeled rows."
    ),
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Missing = Annotated[
    Literal["error", "drop", "null"] | None,
    typer.Option(
        help="What to do with missing values (default error). drop: leave out rows that lack any value. null: accept "
        "missing scores, which get no prediction and are not counted."
    ),
]
Segment = Annotated[
    str | None, typer.Option(help="Column of segments (text or integers); each segment gets its own map.")
]
Request = Annotated[
    str | None, typer.Option(help="Column of request ids, unique over all files; only the best rows of each count.")
]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Rows kept per request (default 1).")]
NegativeRate = Annotated[
    float | None,
    typer.Option(
        parser=share,
        metavar="SHARE",
        help="Negative-sampling rate used in training, such as 10%; scores are corrected for it.",
    ),
]
SegmentColumn = Annotated[str | None, typer.Option(help="Column of segments, for maps by segment.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write an offline HTML page to this file.")]
ModelOutput = Annotated[str | None, typer.Option(help="Name of the score, if an ONNX model has several outputs.")]
