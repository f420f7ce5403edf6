"""`uncurse sql` and `uncurse export`: a map as SQL, code or an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UncurseError
from ..optional import needing
from .app import app
from .options import DialectName, GroupColumn, MapFile
from .output import Quiet, check_outputs, write_file
from .reading import load_map

# Options that each kind of file takes.
_KINDS = {".py": ("--name",), ".h": ("--name",), ".onnx": (), ".sql": ("--dialect", "--score", "--group")}


@app.command()
def sql(
    map_file: MapFile,
    dialect: Annotated[DialectName, typer.Option(help="SQL dialect.")] = "duckdb",
    score: Annotated[str, typer.Option(help="Column of the served score.")] = "score",
    group: GroupColumn = None,
) -> None:
    """Print a map as a SQL expression.

    The expression is NULL where the column does not hold a score.

    Example: uncurse sql map.json --dialect bigquery --score s0
    """
    typer.echo(_sql(map_file, dialect, score, group))


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
        content: str | bytes = _sql(map_file, dialect or "duckdb", score or "score", group) + "\n"
    elif suffix == ".onnx":
        with needing("onnx", f"{out} needs the onnx package"):
            from ..serving import to_onnx

            content = to_onnx(load_map(map_file)[0]).SerializeToString()
    else:
        from ..serving import to_c, to_python

        named: dict[str, Any] = {} if name is None else {"name": name}
        content = (to_c if suffix == ".h" else to_python)(load_map(map_file)[0], **named)
    write_file(out, content)


def _sql(map_file: str, dialect: str, score: str, group: str | None) -> str:
    """Return the SQL expression of the map in a file; its record knows the column of its groups."""
    from ..maps import Grouped
    from ..serving import to_sql

    score_map, record = load_map(map_file)
    if isinstance(score_map, Grouped) and group is None and record is not None:
        group = record.group
    return to_sql(score_map, score, dialect=dialect, group=group)
