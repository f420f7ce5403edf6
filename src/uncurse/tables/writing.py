"""A map over the scores of files: every other column and the order of rows kept, each output whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..documents import replacing, umask
from ..links import UncurseError, check_choice
from ..maps import Grouped, ScoreMap
from .columns import Columns
from .expressions import with_prediction
from .faults import fault_in
from .sources import (
    ENGINES,
    _first_line,
    _kind_of,
    _scan_duckdb,
    _scan_spark,
    check_files,
    find_files,
    is_data,
    number_of,
    scan_polars,
    spark_path,
)

_NUMBER = "uncurse score as a number"  # of a CSV, beside its text


def apply_to_files(
    score_map: ScoreMap,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    score: str,
    column: str = "prediction",
    group: str | None = None,
    engine: str = "polars",
    progress: Callable[[str], None] | None = None,
) -> list[str]:
    """Write a log anew with the map's predictions as its last column; the names of the files written.

    One file in is one file out. A folder or a glob becomes a folder of files of the same names, which must not hold
    anything yet. All is written beside and renamed at the end, so that an output is whole or not there.

    Parameters
    ----------
    score
        The served column, on the scale the map takes.
    column
        The name of the new column.
    group
        For a map by group: the column of groups.
    progress
        Called with the name of each file that is done.
    """
    check_choice("engine", engine, ENGINES)
    if isinstance(score_map, Grouped) and group is None:
        raise UncurseError("this map has a map for each group; name the group column too")
    columns = Columns((score,), group=group, scale=score_map.scores, link=score_map.link)
    files = find_files([source])
    check_files(files, [score], [group] if group is not None else [])
    target = Path(out)
    single = len(files) == 1 and Path(source).is_file()
    if single and (target.is_dir() or str(out).endswith(os.sep)):
        target = target / Path(files[0]).name
    if target.resolve() in [Path(file).resolve() for file in files]:
        raise UncurseError(f"{target} is the log itself; name another file, and nothing is lost")
    if single:
        _kind_of(str(target))
    elif is_data(target) or target.is_file():
        raise UncurseError(f"{source} is {len(files)} files and {out} names one; name a folder to write them to")
    elif target.is_dir() and any(target.iterdir()):
        raise UncurseError(f"folder {out} holds files already; name a new one, or empty it first")
    if not target.parent.is_dir():
        raise UncurseError(f"cannot write {out}: there is no folder {target.parent}")
    for file in files:
        fault = fault_in(file, columns)  # now, not half way
        if fault is not None:
            raise UncurseError(fault)

    def write(file: str, to: Path) -> None:
        try:
            _write(score_map, file, to, score, column, group, engine)
        except UncurseError as error:
            raise UncurseError(f"{file}: {error}") from None
        except Exception as error:
            raise UncurseError(f"cannot write {file} with its predictions to {out}: {_first_line(error)}") from None
        if progress is not None:
            progress(file)

    if single:
        with replacing(target) as temporary:
            write(files[0], temporary)
        return [str(target)]
    base = Path(os.path.commonpath([str(Path(file).parent) for file in files]))
    written = [Path(file).relative_to(base) for file in files]
    written = [path.with_suffix("") if path.name.endswith(".csv.gz") else path for path in written]
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for file, path in zip(files, written, strict=True):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write(file, folder / path)
        folder.chmod(0o777 & ~umask())
        folder.rename(target)  # onto nothing, or an empty folder
    except OSError as error:
        raise UncurseError(f"cannot write {out}: {error.strerror}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [str(target / path) for path in written]


def _write(score_map: ScoreMap, file: str, to: Path, score: str, column: str, group: str | None, engine: str) -> None:
    csv_in, csv_out = _kind_of(file) == "csv", _kind_of(to.name) == "csv"
    scan: Any
    if engine == "polars" or csv_in:
        import polars as pl

        if csv_in and csv_out:  # as text, so that every other value stays as it is written
            scan = pl.scan_csv(file, infer_schema=False, glob=False)
            scan = scan.with_columns(number_of(score).alias(_NUMBER))
            scan = with_prediction(scan, score_map, score=_NUMBER, column=column, group=group).drop(_NUMBER)
        elif csv_in:
            scan = pl.scan_csv(file, infer_schema_length=None, glob=False, schema_overrides={score: pl.String})
            scan = with_prediction(
                scan.with_columns(number_of(score)), score_map, score=score, column=column, group=group
            )
        else:
            scan = scan_polars([file], "parquet")
            scan = with_prediction(scan, score_map, score=score, column=column, group=group)
        if csv_out:
            scan.sink_csv(to, engine="streaming")
        else:
            scan.sink_parquet(to, engine="streaming")
        return
    if engine == "duckdb":
        relation = with_prediction(_scan_duckdb([file], "parquet"), score_map, score=score, column=column, group=group)
        relation.write_csv(str(to)) if csv_out else relation.write_parquet(str(to))
        return
    _write_spark(
        with_prediction(_scan_spark([file], "parquet"), score_map, score=score, column=column, group=group), to, csv_out
    )


def _write_spark(frame: Any, to: Path, csv: bool) -> None:
    """One file in, one file out: Spark reads a file's parts in order, and one task writes them."""
    folder = Path(tempfile.mkdtemp(prefix=".uncurse-spark.", dir=to.parent))
    try:
        writer = frame.coalesce(1).write.mode("overwrite")
        parts = folder / "parts"
        writer.csv(spark_path(str(parts)), header=True) if csv else writer.parquet(spark_path(str(parts)))
        (part,) = parts.glob("part-*")
        os.replace(part, to)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["apply_to_files"]
