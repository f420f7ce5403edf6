"""`uncurse export`: a map as SQL, code, or a model."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Literal

import typer

from .. import documents
from ..errors import UncurseError
from ..optional import needing
from .app import app
from .options import MapFile, SegmentColumn
from .output import Quiet, check_outputs, note
from .reading import load_map, served_column

# Options that each target takes.
_TARGETS = {"sql": ("--dialect", "--scores", "--segment"), "c": ("--name",), "python": ("--name",)}


@app.command()
def export(
    map_file: MapFile,
    to: Annotated[Literal["sql", "c", "python", "onnx", "torch"], typer.Option(help="Language or format to write.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write (default for sql, c and python: standard output).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the function in C or Python.")] = None,
    dialect: Annotated[
        Literal["duckdb", "spark", "bigquery", "snowflake"] | None, typer.Option(help="SQL dialect (default duckdb).")
    ] = None,
    scores: Annotated[str | None, typer.Option(help="Column of the served score in SQL (default score).")] = None,
    segment: SegmentColumn = None,
    quiet: Quiet = False,
) -> None:
    """Write a map as SQL, C, Python, ONNX or TorchScript.

    The result runs without uncurse. The SQL expression is NULL where the column does not hold a score.

    \b
    Examples:
      uncurse export map.json --to sql --dialect bigquery --scores s0
      uncurse export map.json --to c --name corrected -o bid.h
      uncurse export map.json --to onnx -o map.onnx
    """
    from .. import serving
    from ..maps import Segmented

    check_outputs({"--out": out}, [map_file])
    given = {"--name": name, "--dialect": dialect, "--scores": scores, "--segment": segment}
    for option, value in given.items():
        if value is not None and option not in _TARGETS.get(to, ()):
            raise UncurseError(f"{option} is not for --to {to}; leave it out")
    if out is None and to not in _TARGETS:
        raise UncurseError(f"--to {to} needs --out, a file to write")
    fitted = load_map(map_file)
    content: str | bytes
    if to == "sql":
        if isinstance(fitted.map, Segmented) and segment is None and fitted.record is not None:
            segment = fitted.record.segment
        (score,) = served_column(scores) or ("score",)
        content = serving.to_sql(fitted.map, score, dialect=dialect or "duckdb", segment=segment) + "\n"
    elif to in ("c", "python"):
        write = serving.to_c if to == "c" else serving.to_python
        content = write(fitted.map) if name is None else write(fitted.map, name=name)
    elif to == "onnx":
        with needing("onnx", f"{out} needs the onnx package"):
            content = serving.to_onnx(fitted.map).SerializeToString()
    else:
        with needing("deep", f"{out} needs PyTorch"):
            import torch

            buffer = io.BytesIO()
            torch.jit.save(torch.jit.trace(serving.MapModule(fitted.map), torch.zeros(2)), buffer)  # type: ignore[no-untyped-call]
            content = buffer.getvalue()
    if out is None:
        typer.echo(content, nl=False)
    else:
        documents.write(out, content)
        note(f"written to {out}")
