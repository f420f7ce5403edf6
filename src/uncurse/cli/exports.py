"""`uncurse sql` and `export`: a map as text or a model that runs where the scores are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..serving.sql import DIALECTS
from .app import app, check_outputs, say
from .options import words

# Which options each kind of file takes.
_KINDS = {
    ".py": ("--name",),
    ".h": ("--name",),
    ".onnx": (),
    ".sql": ("--dialect", "--score", "--group"),
}

MapFile = Annotated[Path, typer.Argument(metavar="MAP", help="A map file that fit wrote.")]
Group = Annotated[str | None, typer.Option(help="Column of groups, for a map by group.")]
_DIALECT = typer.Option(
    help=f"Whose SQL: {', '.join(DIALECTS[:-1])} or {DIALECTS[-1]}.", autocompletion=words(*DIALECTS)
)


@app.command()
def sql(
    score_map: MapFile,
    dialect: Annotated[str, _DIALECT] = "duckdb",
    score: Annotated[str, typer.Option(help="Column of the served score.")] = "score",
    group: Group = None,
) -> None:
    """Print the map as one SQL expression over the column of the served score; NULL where that is no score.

    Example: uncurse sql map.json --dialect bigquery --score s1
    """
    typer.echo(_sql(score_map, dialect, score, group))


@app.command()
def export(
    score_map: MapFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .py, .h (C and C++), .onnx or .sql.")],
    name: Annotated[str | None, typer.Option(help="Of the function in a .py or .h file.")] = None,
    dialect: Annotated[str | None, _DIALECT] = None,
    score: Annotated[str | None, typer.Option(help="Column of the served score, for .sql; score.")] = None,
    group: Group = None,
) -> None:
    """Write the map as code or as a model of its own that needs nothing of uncurse; the suffix says which.

    \b
    Examples:
      uncurse export map.json -o map.onnx
      uncurse export map.json -o bid.h --name corrected
      uncurse export map.json -o map.sql --dialect spark --score s1
    """
    suffix = out.suffix.lower()
    if suffix not in _KINDS:
        raise UncurseError(f"{out} has no suffix that is known; name it .py, .h, .onnx or .sql")
    given = {"--name": name, "--dialect": dialect, "--score": score, "--group": group}
    for option, value in given.items():
        if value is not None and option not in _KINDS[suffix]:
            raise UncurseError(f"{option} is not for a {suffix} file; leave it out")
    check_outputs([out], [score_map])
    if suffix == ".sql":
        documents.write(out, _sql(score_map, dialect or "duckdb", score or "score", group) + "\n")
    elif suffix == ".onnx":
        _write_onnx(score_map, out)
    else:
        from ..maps import load
        from ..serving.source import to_c, to_python

        named: dict[str, Any] = {} if name is None else {"name": name}
        documents.write(out, (to_c if suffix == ".h" else to_python)(load(score_map), **named))
    say(f"written to {out}")


def _sql(path: Path, dialect: str, score: str, group: str | None) -> str:
    from ..maps import Grouped, load, load_record
    from ..serving.sql import to_sql

    loaded = load(path)
    if isinstance(loaded, Grouped) and group is None:
        group = load_record(path).get("group")
    return to_sql(loaded, score, dialect=dialect, group=group)


def _write_onnx(path: Path, out: Path) -> None:
    from ..maps import load
    from ..serving.onnx_map import to_onnx

    loaded = load(path)
    try:
        content = to_onnx(loaded).SerializeToString()
    except ImportError:
        raise UncurseError(f"{out} needs the onnx package; pip install 'uncurse[onnx]'") from None
    try:
        with documents.replacing(out) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UncurseError(f"cannot write {out}: {error.strerror}") from None


__all__ = ["export", "sql"]
