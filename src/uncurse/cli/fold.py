"""`uncurse fold` and `uncurse verify`: a map into a saved model, and the check of the folded model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import MapFile, ModelOutput
from .output import Format, Quiet, check_outputs, emit, note, working
from .reading import column_names, load_map


@app.command()
def fold(
    map_file: MapFile,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A LightGBM, XGBoost, CatBoost or ONNX file, or torch weights.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folded model to write.")],
    layer: Annotated[str | None, typer.Option(help="Name of the last linear layer; torch weights need it.")] = None,
    output: ModelOutput = None,
    again: Annotated[
        bool, typer.Option("--again", help="Accept a folded model: MAP was fitted to its own scores.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Fold a straight map into a saved model, at no serving cost.

    uncurse fit --affine writes such a map. Only an ONNX model can hold a curve.

    Example: uncurse fold line.json model.txt -o model2.txt
    """
    from .. import serving

    check_outputs({"--out": out}, [model, map_file])
    kind = serving.fold_file(load_map(map_file).map, model, out, layer=layer, output=output, again=again)
    note(f"{map_file} folded into {model} ({kind}): written to {out}")


@app.command()
def verify(
    map_file: MapFile,
    before: Annotated[Path, typer.Argument(metavar="MODEL", help="The model before folding.")],
    after: Annotated[Path, typer.Argument(metavar="MODEL2", help="The folded model.")],
    data: Annotated[Path, typer.Option(help="Rows to score: a parquet or CSV file with a column per feature.")],
    features: Annotated[
        str | None,
        typer.Option(help="Feature columns in order, comma-separated; by default those the model names, or all."),
    ] = None,
    output: ModelOutput = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Check a folded model against the model and the map.

    Compares order, predictions and latency. Exit code 0 if they agree, 1 if they do not.

    Example: uncurse verify line.json model.txt model2.txt --data rows.parquet
    """
    from .. import serving

    names = None if features is None else list(column_names(features, "--features"))
    score_map = load_map(map_file).map
    with working("scoring"):
        found = serving.verify_files(score_map, before, after, data, features=names, output=output)
    lines = [
        f"{found.rows:,} rows: "
        + ("the same order" if found.same_order else f"{found.reversed_pairs:,} neighbors are REVERSED")
        + ("" if found.agrees else "; this is NOT the map after the model"),
        f"largest difference to the map after the model: {found.score_difference:.2g} in the score, "
        f"{found.prediction_difference:.2g} in the prediction",
    ]
    for name, (first, second) in (("one row", found.one_row), (f"{found.many:,} rows", found.many_rows)):
        times = f"{1e6 * first:,.1f} µs before, {1e6 * second:,.1f} µs after"
        lines.append(f"latency, {name}: {times}: ratio {second / first:.3f}")
    emit(format, "\n".join(lines), "verification", asdict(found))
    if not found.agrees:
        raise typer.Exit(1)
