"""Options that several commands share, and what completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from .. import links, validation
from ..calibration import calibrators
from ..debias.replica_kinds import KINDS


def words(*known: str) -> Callable[[str], list[str]]:
    """Completion of an option that takes one of these."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


SCALES, LINKS, REPLICAS = words(*validation.SCALES), words(*links.LINKS), words(*KINDS)
METHODS, SHAPES = words("vad", "tower", "auto"), words("straight", "free")
CALIBRATORS, ENGINES = words(*calibrators.CALIBRATORS), words("polars", "duckdb", "spark")

Logs = Annotated[list[str], typer.Argument(metavar="LOG...", help="Parquet or CSV files, globs or folders.")]
LogsOrEvidence = Annotated[
    list[str],
    typer.Argument(metavar="LOG...", help="Parquet or CSV files, globs or folders; or files that collect wrote."),
]
Scores = Annotated[
    str | None, typer.Option("--scores", help="Columns of the replicas' scores, comma-separated, the served one first.")
]
Scale = Annotated[str, typer.Option(help="Scale of the scores: logit, probability or value.", autocompletion=SCALES)]
Label = Annotated[str | None, typer.Option(help="Column of labels, 0 or 1.")]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Group = Annotated[str | None, typer.Option(help="Column of groups, text or whole numbers: one map each.")]
Request = Annotated[str | None, typer.Option(help="Column of requests: keep the best of each.")]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="How many of each request are kept; 1.")]
NegativeRate = Annotated[
    float | None, typer.Option(help="The share of negatives kept when the model was trained, undone first.")
]
Link = Annotated[
    str, typer.Option(help="Where scores are shrunk: logistic, identity, log or probit.", autocompletion=LINKS)
]
Engine = Annotated[str, typer.Option(help="What reads the files: polars, duckdb or spark.", autocompletion=ENGINES)]

__all__ = [
    "CALIBRATORS",
    "ENGINES",
    "LINKS",
    "METHODS",
    "REPLICAS",
    "SCALES",
    "SHAPES",
    "Engine",
    "Group",
    "Label",
    "Link",
    "Logs",
    "LogsOrEvidence",
    "NegativeRate",
    "Request",
    "Scale",
    "Scores",
    "TopK",
    "Weight",
    "words",
]
