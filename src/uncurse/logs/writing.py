"""A map over the scores of files: every other column and the order of rows kept, each output whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..documents import replacing, umask
from ..errors import UncurseError
from ..evidence import LogSpec
from ..maps import Grouped, ScoreMap
from ..validation import check_choice
from .diagnose import fault_in
from .expressions import with_prediction
from .files import Located, check_files, first_line, is_data, kind_of, located
from .scans import number_of, scan_duckdb, scan_polars, scan_spark, spark_path
from .sources import ENGINES

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
    columns = LogSpec((score,), score_map.scale, group=group, link=score_map.link)
    files = located([source])
    check_files(files, [score], [group] if group is not None else [])
    target = Path(out)
    single = len(files) == 1 and not Path(source).is_dir()
    if single and (target.is_dir() or str(out).endswith(os.sep)):
        target = target / Path(files[0][0]).name
    if os.path.realpath(target) in [os.path.realpath(file) for file, _ in files]:
        raise UncurseError(f"{target} is the log itself; name another file, and nothing is lost")
    if single:
        kind_of(str(target))
    elif is_data(target) or target.is_file():
        raise UncurseError(f"{source} is {len(files)} files and {out} names one; name a folder to write them to")
    elif target.is_dir() and any(target.iterdir()):
        raise UncurseError(f"folder {out} holds files already; name a new one, or empty it first")
    for file, _ in files:
        fault = fault_in(file, columns)  # now, not half way
        if fault is not None:
            raise UncurseError(fault)

    def write(file: str, keys: dict[str, str], to: Path) -> None:
        one, by = score_map, group
        if isinstance(one, Grouped) and group in keys and group not in _names_of(file):
            one, by = one.maps.get(keys[group], one.default), None  # the whole file is of one group
        try:
            _write(one, file, to, score, column, by, engine)
        except UncurseError as error:
            raise UncurseError(f"{file}: {error}") from None
        except Exception as error:
            raise UncurseError(f"cannot write {file} with its predictions to {out}: {first_line(error)}") from None
        if progress is not None:
            progress(file)

    try:
        if single:
            if str(out).endswith(os.sep):
                target.parent.mkdir(exist_ok=True)
            with replacing(target) as temporary:
                write(*files[0], temporary)
            return [str(target)]
        return _write_folder(files, target, write)
    except OSError as error:
        raise UncurseError(f"cannot write {out}: {error.strerror}") from None


def _write_folder(files: Located, target: Path, write: Callable[[str, dict[str, str], Path], None]) -> list[str]:
    base = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file, _ in files])
    written = [Path(os.path.relpath(os.path.abspath(file), base)) for file, _ in files]
    folder = Path(tempfile.mkdtemp(prefix=".", dir=target.absolute().parent))
    try:
        for (file, keys), path in zip(files, written, strict=True):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write(file, keys, folder / path)
        folder.chmod(0o777 & ~umask())
        folder.rename(target)  # onto nothing, or an empty folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [str(target / path) for path in written]


def _names_of(file: str) -> list[str]:
    import polars as pl

    if kind_of(file) == "csv":
        return pl.scan_csv(file, infer_schema=False, glob=False).collect_schema().names()
    return scan_polars([(file, {})]).collect_schema().names()


def _write(score_map: ScoreMap, file: str, to: Path, score: str, column: str, group: str | None, engine: str) -> None:
    csv_in, csv_out = kind_of(file) == "csv", kind_of(to.name) == "csv"
    scan: Any
    if engine == "polars" or csv_in:
        import polars as pl

        if csv_in and csv_out:  # as text, so that every other value stays as it is written
            scan = pl.scan_csv(file, infer_schema=False, glob=False)
            scan = scan.with_columns(number_of(score).alias(_NUMBER))
            scan = with_prediction(scan, score_map, score=_NUMBER, column=column, group=group).drop(_NUMBER)
        else:
            texts = {name: pl.String for name in (score, group) if name is not None}
            scan = (
                pl.scan_csv(file, infer_schema_length=None, glob=False, schema_overrides=texts).with_columns(
                    number_of(score)
                )
                if csv_in
                else scan_polars([(file, {})])
            )
            scan = with_prediction(scan, score_map, score=score, column=column, group=group)
        if csv_out:
            packed = to.name.lower().endswith(".gz")
            scan.sink_csv(to, engine="streaming", compression="gzip" if packed else "uncompressed")
        else:
            scan.sink_parquet(to, engine="streaming")
        return
    open_one = scan_duckdb if engine == "duckdb" else scan_spark
    scan = with_prediction(open_one([(file, {})]), score_map, score=score, column=column, group=group)
    if engine == "spark":
        _write_spark(scan, to, csv_out)
    elif csv_out:
        scan.write_csv(str(to))
    else:
        scan.write_parquet(str(to))


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
