"""`uncurse fold` and `uncurse verify`: a map into a saved model, and the proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..maps import load
from .app import JsonOption, app, check_outputs, finish, say, working

MapFile = Annotated[Path, typer.Argument(metavar="map.json", help="A map that `uncurse fit` wrote.")]
Output = Annotated[str | None, typer.Option(help="Of an ONNX model with several outputs: the one that is the score.")]


@app.command()
def fold(
    map_file: MapFile,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="LightGBM, XGBoost, CatBoost, ONNX, torch weights.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folded model to write.")],
    layer: Annotated[str | None, typer.Option(help="Of torch weights: the last linear layer.")] = None,
    output: Output = None,
) -> None:
    """Fold a map into a saved model: the same model, the same latency, other numbers.

    Example: uncurse fold map.json model.txt -o model2.txt
    """
    from .. import serving

    check_outputs([out], [model, map_file])
    kind = serving.fold_file(load(map_file), model, out, layer=layer, output=output)
    say(f"{map_file} folded into {model} ({kind}), written to {out}")


@app.command()
def verify(
    map_file: MapFile,
    before: Annotated[Path, typer.Argument(metavar="MODEL", help="The model as it was.")],
    after: Annotated[Path, typer.Argument(metavar="MODEL2", help="The folded model.")],
    data: Annotated[Path, typer.Option(help="Rows to score: parquet or CSV, a column for each feature.")],
    features: Annotated[
        str | None,
        typer.Option(help="Columns of the features, in order, with commas; else those the model names, or all."),
    ] = None,
    output: Output = None,
    json: JsonOption = None,
) -> None:
    """Compare a folded model with the map after the model: order, largest difference, latency.

    Example: uncurse verify map.json model.txt model2.txt --data rows.parquet
    """
    from .. import serving

    check_outputs([json], [before, after, data])
    names = None if features is None else [name.strip() for name in features.split(",")]
    with working("scoring"):
        found = serving.verify_files(load(map_file), before, after, data, features=names, output=output)
    lines = [
        f"{found.rows:,} rows: "
        + ("the same order" if found.same_order else f"{found.reversed_pairs:,} neighbours are REVERSED")
        + ("" if found.agrees else "; this is NOT the map after the model"),
        f"largest difference to the map after the model: {found.score_difference:.2g} in the score, "
        f"{found.prediction_difference:.2g} in the prediction",
    ]
    for name, (first, second) in (("one row", found.one_row), (f"{found.many:,} rows", found.many_rows)):
        times = f"{1e6 * first:,.1f} µs before, {1e6 * second:,.1f} µs after"
        lines.append(f"latency, {name}: {times}: {second / first:.3f}")
    finish("\n".join(lines), found.to_json(), json)
    if not found.agrees:
        raise typer.Exit(1)


__all__ = ["fold", "verify"]
