"""`uncurse fold`: a map into a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import MapFile, ModelOutput
from .output import Quiet, check_outputs, note
from .reading import load_map


@app.command()
def fold(
    map_file: MapFile,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A LightGBM, XGBoost, CatBoost or ONNX file, or torch weights.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folded model to write.")],
    layer: Annotated[str | None, typer.Option(help="Name of the last linear layer; torch weights need it.")] = None,
    output: ModelOutput = None,
    quiet: Quiet = False,
) -> None:
    """Fold a straight map into a saved model, at no serving cost.

    uncurse fit --affine writes such a map. Only an ONNX model can hold a curve.

    Example: uncurse fold line.json model.txt -o model2.txt
    """
    from .. import serving

    check_outputs({"--out": out}, [model, map_file])
    kind = serving.fold_file(load_map(map_file).map, model, out, layer=layer, output=output)
    note(f"{map_file} folded into {model} ({kind}): written to {out}")
