"""`uncurse apply`: a log with the predictions of a map."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..validation import warn_user
from .app import app
from .options import Engine, MapFile
from .output import Format, Quiet, check_outputs, emit, is_stdout, working
from .reading import check_served, input_file, load_map


@app.command()
def apply(
    map_file: MapFile,
    log: Annotated[str, typer.Argument(metavar="LOG", help="A parquet or CSV file, a glob or a folder; - for stdin.")],
    score: Annotated[str, typer.Option(help="Column of the served score.")],
    out: Annotated[
        str, typer.Option("--out", "-o", help="File to write; a folder if LOG is a glob or a folder; - for stdout.")
    ],
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prediction",
    group: Annotated[str | None, typer.Option(help="Column of groups, for a map by group.")] = None,
    engine: Engine = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Add the predictions of a map to a log as a new column.

    The other columns and the order of the rows stay as they are.

    Example: uncurse apply map.json log.parquet --score s0 -o corrected.parquet
    """
    from ..logs import apply_to_files
    from ..logs.files import find_files, kind_of
    from ..maps import Grouped

    check_outputs({"--out": out}, [log, map_file], format=format, folders=["--out"])
    score_map, record = load_map(map_file)
    if record is not None:
        check_served(map_file, record, score)
        if isinstance(score_map, Grouped) and group is None:
            group = record.group
        elif group is not None and group != record.group:
            warn_user(f"{map_file} was fitted to the groups of {record.group!r}, and is applied to those of {group!r}")
    source = input_file(log)
    if engine not in (None, "polars") and kind_of(find_files([source])[0]) == "csv":
        raise UncurseError(f"--engine {engine} is for parquet files, and Polars reads CSV files; leave it out")
    written: list[str] = []

    def write(target: str) -> None:
        with working(f"applying {map_file}") as advance:
            options: dict[str, Any] = {"score": score, "column": column, "group": group, "engine": engine or "polars"}
            written[:] = apply_to_files(score_map, source, target, progress=lambda _: advance(1), **options)

    if is_stdout(out):
        if sys.stdout is None:
            raise UncurseError("standard output is closed; name a file with --out")
        if not os.path.isfile(source):
            raise UncurseError(f"{log} is not a single file; name a folder with --out")
        with documents.temporary_folder(tempfile.gettempdir()) as folder:
            write(str(folder / Path(source).name))
            with open(written[0], "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.flush()
    else:
        write(out)
    where = "standard output" if is_stdout(out) else written[0] if len(written) == 1 else out
    result = {"column": column, "files": len(written), "out": where}
    text = f"column {column!r} added to {len(written)} file{'s' if len(written) > 1 else ''}: written to {where}"
    document = {**result, "written": written}
    emit(format, lambda: text, lambda: documents.dumps("applied", document), stdout=not is_stdout(out))
