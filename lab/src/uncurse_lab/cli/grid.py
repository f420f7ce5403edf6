"""`uncurse-lab grid`: models × shifts × splits on a table of your own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from uncurse.cli.output import Format, Quiet, check_outputs, note
from uncurse.documents import write

from .show import MarkdownFile, Seed, progress_over, show


def grid(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="CSV or parquet files with --label, files of an Avazu, Criteo or MovieLens log, or a data set of "
            "scikit-learn: breast_cancer, digits, covtype, california.",
        ),
    ],
    label: Annotated[str | None, typer.Option(help="Column of 0/1 labels.")] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(help="Column of numbers that are categories; may be repeated. Columns of text always are."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="lightgbm, lightgbm-tuned, lightgbm-overfitted, xgboost, hist-gradient-boosting, random-forest, "
            "logistic or mlp; may be repeated. By default all that are installed."
        ),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(help="none, or the model that thins pool and test: lightgbm, logistic; may be repeated."),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Random splits of the rows.")] = 10,
    rows: Annotated[int, typer.Option(min=100, help="Rows to use, drawn at random.")] = 250_000,
    seed: Seed = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="JSON file, written after each cell. A later run continues with it."),
    ] = None,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Compare methods on a table of your own.

    The methods are the plain model, isotonic calibration, Platt scaling and UncursedClassifierCV. Each model is trained
    on random splits, without a shift and with a thinned pool, and judged by held-out labels.

    Example: uncurse-lab grid leads.csv --label bought --model lightgbm --model logistic -o grid.json
    """
    check_outputs({"--out": out, "--markdown": markdown}, [name for name in data if Path(name).exists()])
    from ..grid import SHIFTS, Grid, read_table, run

    table = read_table(data, label, categorical or (), rows, seed)
    found = Grid(table.name, len(table.labels), int(table.labels.sum()), seed)
    if out is not None and out.exists():
        found = found.resume(out)
        note(f"{len(found.cells)} cells are in {out}")
    save = (lambda grid: write(out, grid.to_json())) if out is not None else (lambda grid: None)
    bar = partial(progress_over, "cells")
    run(table, found, model or (), shift or SHIFTS, splits, processes=jobs, save=save, progress=bar)
    show(found.parts, found.to_json, format, markdown=markdown)
