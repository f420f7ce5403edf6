"""`uncurse export`: a map as code, SQL or an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from .app import app
from .options import DialectName, MapFile
from .output import Quiet, check_outputs, note
from .reading import load_map
from .sql import GroupColumn, sql_text

# Options that each kind of file takes.
_KINDS = {".py": ("--name",), ".h": ("--name",), ".onnx": (), ".sql": ("--dialect", "--score", "--group")}


@app.command()
def export(
    map_file: MapFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .py, .h (C and C++), .onnx or .sql.")],
    name: Annotated[str | None, typer.Option(help="Name of the function in a .py or .h file.")] = None,
    dialect: Annotated[DialectName | None, typer.Option(help="SQL dialect of a .sql file (default duckdb).")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the served score in a .sql file.")] = None,
    group: GroupColumn = None,
    quiet: Quiet = False,
) -> None:
    """Write a map as Python, C, ONNX or SQL.

    The result runs without uncurse. The suffix of the file decides.

    \b
    Examples:
      uncurse export map.json -o map.onnx
      uncurse export map.json -o bid.h --name corrected
      uncurse export map.json -o map.sql --dialect spark --score s0
    """
    suffix = out.suffix.lower()
    check_outputs({"--out": out}, [map_file])
    if suffix not in _KINDS:
        raise UncurseError(f"--out is {out}; name a .py, .h, .onnx or .sql file")
    given = {"--name": name, "--dialect": dialect, "--score": score, "--group": group}
    for option, value in given.items():
        if value is not None and option not in _KINDS[suffix]:
            raise UncurseError(f"{option} is not for a {suffix} file; leave it out")
    if suffix == ".sql":
        documents.write(out, sql_text(map_file, dialect or "duckdb", score or "score", group) + "\n")
    elif suffix == ".onnx":
        _write_onnx(map_file, out)
    else:
        from ..serving import to_c, to_python

        named: dict[str, Any] = {} if name is None else {"name": name}
        documents.write(out, (to_c if suffix == ".h" else to_python)(load_map(map_file)[0], **named))
    note(f"written to {out}")


def _write_onnx(map_file: str, out: Path) -> None:
    score_map = load_map(map_file)[0]
    try:
        from ..serving.onnx_map import to_onnx

        content = to_onnx(score_map).SerializeToString()
    except ImportError:
        raise UncurseError(f"{out} needs the onnx package; pip install 'uncurse[onnx]'") from None
    try:
        with documents.replacing(out) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UncurseError(f"cannot write {out}: {error.strerror}") from None
