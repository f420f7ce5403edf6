"""`uncurse apply`: a log with the predictions of a map."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Annotated

import typer

from ..errors import UncurseError
from ..validation import warn_user
from .app import app
from .options import MapFile, Missing
from .output import Format, Quiet, check_outputs, emit, working
from .reading import column_names, input_file, load_map


@app.command()
def apply(
    map_file: MapFile,
    log: Annotated[str, typer.Argument(metavar="LOG", help="A parquet or CSV file, a glob or a folder; - for stdin.")],
    scores: Annotated[str, typer.Option(help="Column of the served score.")],
    out: Annotated[
        str, typer.Option("--out", "-o", help="File to write; a folder if LOG is a glob or a folder; - for stdout.")
    ],
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prediction",
    segment: Annotated[str | None, typer.Option(help="Column of segments, for a map by segment.")] = None,
    missing: Missing = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Add the predictions of a map to a log as a new column.

    The other columns and the order of the rows stay as they are.

    Example: uncurse apply map.json log.parquet --scores s0 -o corrected.parquet
    """
    from ..logs import apply_to_files
    from ..maps import Segmented
    from ..methods.refresh import check_served

    check_outputs({"--out": out}, [log, map_file], format=format)
    fitted = load_map(map_file)
    score_map, record = fitted.map, fitted.record
    score = column_names(scores)[0]
    if record is not None:
        check_served(score, record, map_file)
        if isinstance(score_map, Segmented) and segment is None:
            segment = record.segment
        elif segment is not None and segment != record.segment:
            warn_user(
                f"{map_file} was fitted to the segments of {record.segment!r}, and is applied to those of {segment!r}"
            )
    source = input_file(log)
    if out == "-" and not os.path.isfile(source):
        raise UncurseError(f"{log} is not a single file; name a folder with --out")
    with tempfile.TemporaryDirectory() as folder, working(f"applying {map_file}") as advance:
        written = apply_to_files(
            score_map,
            source,
            folder if out == "-" else out,
            score=score,
            column=column,
            segment=segment,
            missing=missing or "error",
            progress=lambda _: advance(1),
        )
        if out == "-":
            with open(written[0], "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.flush()
    where = "standard output" if out == "-" else written[0] if len(written) == 1 else out
    text = f"column {column!r} added to {len(written)} file{'s' if len(written) > 1 else ''}: written to {where}"
    document = {"column": column, "files": len(written), "out": where, "written": written}
    emit(format, text, "applied", document, out)
