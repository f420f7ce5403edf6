"""Find the files of a log, check that they fit together, and read them with Polars."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from ..errors import UncurseError
from .frames import check_columns, first_line, lazy_batches
from .rows import Fault, Reader, check_segment, holds

_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark write for a missing value
# Formats whose metadata say which files and rows are current, by a pattern of their metadata.
_TABLE_FORMATS = {
    "_delta_log/": "a Delta Lake table",
    ".hoodie/": "a Hudi table",
    "data/../metadata/*.metadata.json": "an Iceberg table",  # which has a folder of data too
}


@dataclass(frozen=True)
class LogFile:
    """A file of a log, and the columns in its path: ``{"date": "2026-11-15"}`` for ``date=2026-11-15/``."""

    path: str
    relative: str  # below the folder, or below the fixed part of the glob, in which it was found
    folder_values: dict[str, str | None]  # None is a missing value


# ---------------------------------------------------------------------------- finding


def names_many(source: str | os.PathLike[str]) -> bool:
    """Tell whether a source is a folder or a glob, which may hold several files, rather than one path."""
    return os.path.isdir(source) or (not os.path.exists(source) and glob.has_magic(str(source)))


def locate(sources: Iterable[str | os.PathLike[str]]) -> list[LogFile]:
    """Find the files behind paths, globs and folders, ordered by name within each; all parquet or all CSV."""
    files: dict[str, LogFile] = {}
    for source in sources:
        for file in _locate_one(source):
            other = files.setdefault(os.path.realpath(file.path), file)  # links and relative paths name one file too
            if other is not file:
                names = file.path if file.path == other.path else f"{other.path} and {file.path} are one file, which"
                raise UncurseError(f"{names} is named twice; its rows would count twice")
    if not files:
        raise UncurseError("there is no file to read; pass a path, a glob or a folder")
    paths = [file.path for file in files.values()]
    _refuse_table_formats({os.path.dirname(os.path.abspath(path)) for path in paths})
    kinds = {kind_of(path): path for path in paths}
    if len(kinds) > 1:
        raise UncurseError(f"{' and '.join(kinds.values())} are not of one kind; pass parquet or CSV, not both")
    return list(files.values())


def _locate_one(source: str | os.PathLike[str]) -> Iterator[LogFile]:
    path, text = Path(source), str(source)
    base = path
    if not text:
        raise UncurseError("a path is empty; pass a file, a glob or a folder")
    if os.path.isdir(path):
        found = sorted(_walk(path))
        if not found:
            raise UncurseError(f"folder {source} holds no .parquet or .csv file")
    elif os.path.exists(path):
        found, base = [text], path.parent
    elif glob.has_magic(text):
        base = Path(*path.parts[: next(i for i, part in enumerate(path.parts) if glob.has_magic(part))] or ["."])
        asked = any(part.startswith((".", "_")) for part in Path(os.path.relpath(text, base)).parts)
        found = sorted(
            file
            for file in glob.glob(text, recursive=True)
            if os.path.isfile(file) and (asked or not _is_hidden(Path(os.path.relpath(file, base))))
        )
        if not found:
            raise UncurseError(f"no file matches {source}")
    else:
        raise UncurseError(f"cannot read {source}: there is no such file or folder")
    for file in found:
        if any("\ud800" <= letter <= "\udfff" for letter in file):
            raise UncurseError(f"{file!a} is not UTF-8; rename the file")
        relative = os.path.relpath(file, base)
        parts = [part.split("=", 1) for part in Path(relative).parts[:-1] if "=" in part]
        values = {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in parts}
        yield LogFile(file, relative, values)


def _walk(folder: Path) -> Iterator[str]:
    seen: set[str] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(at) in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(os.path.realpath(at))
        for name in names:
            file = os.path.join(at, name)
            if is_data(Path(os.path.relpath(file, folder))):
                yield file


def is_data(path: Path) -> bool:
    """Tell whether a file is read as part of a folder: known by its ending, and not hidden by a dot or underscore."""
    return not _is_hidden(path) and str(path).lower().endswith(tuple(_KINDS))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and part != ".." for part in path.parts)


def _refuse_table_formats(folders: set[str]) -> None:
    """Raise an error if one of the folders, or a folder above, is a table whose files may hold deleted rows."""
    for folder in sorted({str(above) for path in folders for above in (Path(path), *Path(path).parents)}):
        for pattern, table in _TABLE_FORMATS.items():
            if glob.glob(os.path.join(glob.escape(folder), pattern)):
                raise UncurseError(
                    f"{folder} is {table}, whose files may hold deleted rows; load it with Spark or DuckDB and pass "
                    "the frame to uncurse.collect"
                )


def kind_of(file: str) -> str:
    """Return "parquet" or "csv" by the ending of the name."""
    for suffix, kind in _KINDS.items():
        if file.lower().endswith(suffix):
            return kind
    raise UncurseError(f"{file} is neither .parquet nor .csv (nor .csv.gz); convert or rename it")


# ---------------------------------------------------------------------------- reading


def scan(paths: Sequence[str], *, local: bool = True) -> pl.LazyFrame:
    """Open files of one kind that have the same columns, all of them text if they are CSV files.

    A name of local files is never taken for a pattern, and the names of their folders are not columns.
    """
    if kind_of(paths[0]) == "csv":
        return pl.scan_csv(list(paths), infer_schema=False, glob=not local)
    return pl.scan_parquet(list(paths), glob=not local, hive_partitioning=False if local else None)


def open_files(files: Sequence[LogFile], reader: Reader) -> Iterator[pl.DataFrame]:
    """Read the columns of files in batches."""
    schemas = {file.path: check_file(file, reader) for file in files}
    for (schema, values), alike in groupby(files, lambda file: (schemas[file.path], file.folder_values)):
        paths = [file.path for file in alike]
        there = [name for name in reader.columns if name in schema]
        # Polars finds rows with too many fields only if it reads all columns of a CSV file.
        scanned = scan(paths) if reader.text else scan(paths).select(there)
        folder = [pl.lit(values[name], pl.String).alias(name) for name in reader.columns if name not in schema]
        try:
            yield from lazy_batches(scanned.with_columns(folder))
        except pl.exceptions.PolarsError as error:
            raise UncurseError(_describe_damage(paths, error)) from None


def _describe_damage(paths: Sequence[str], error: Exception) -> str:
    """Name the first of several files that cannot be read, and why."""
    damaged = paths[0]
    for path in paths if len(paths) > 1 else []:
        try:
            scan([path]).select(pl.all().hash().sum()).collect(engine="streaming")
        except pl.exceptions.PolarsError as reason:
            damaged, error = path, reason
            break
    return f"{damaged} cannot be read ({first_line(error)}); repair it, or leave it out"


def open_remote(paths: Sequence[str], reader: Reader, where: str) -> Iterator[pl.DataFrame]:
    """Read files at addresses such as ``s3://bucket/log/*.parquet``, which Polars finds, in batches."""
    scanned = scan(paths, local=False)
    check_columns(scanned.collect_schema().names(), reader.columns, where)
    return lazy_batches(scanned if reader.text else scanned.select(reader.columns))


def check_file(file: LogFile, reader: Reader) -> dict[str, pl.DataType]:
    """Return the columns of a file, which must be those that are wanted."""
    path, spec, values = file.path, reader.spec, file.folder_values
    csv = kind_of(path) == "csv"
    try:
        if os.path.getsize(path) == 0:
            raise UncurseError(f"{path} is empty, 0 bytes; write it anew or leave it out")
        if csv:
            _check_header(path)
        schema = dict(scan([path]).collect_schema())
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror or error}") from None
    except pl.exceptions.PolarsError as error:
        problem = f"is not a readable {kind_of(path)} file ({first_line(error)}); is it truncated? Write it anew"
        raise UncurseError(f"{path} {problem}") from None
    check_columns([*schema, *values], reader.columns, path)
    for name in spec.numbers:
        dtype = schema.get(name, pl.String())
        if name not in schema or not (csv or dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
            raise UncurseError(
                f"{path}: column {name!r} {holds(dtype)}, not numbers; name another column, or convert it"
            )
    for name in reader.names:
        if name not in schema and values[name] is None:
            raise UncurseError(
                f"{path}: {name!r} is missing, as its folder {name}={_NO_VALUE} says; fill it, say with 'unknown'"
            )
    if spec.segment in schema:
        check_segment(schema[spec.segment], f"{path}: the segment column {spec.segment!r}")
    return schema


def _check_header(path: str) -> None:
    """Refuse a CSV file that names a column twice; Polars would rename it."""
    first = pl.scan_csv(path, has_header=False, n_rows=1, infer_schema=False, glob=False).collect()
    header = first.row(0) if len(first) else ()
    for name in header:
        if header.count(name) > 1:
            raise UncurseError(f"{path} has two columns named {name!r}; rename one of them")


def locate_fault(files: Sequence[LogFile], fault: Fault) -> str:
    """Describe a fault by its file, and by the line of a CSV file or the row of others, counted from 0."""
    row = fault.row or 0
    for file in files:
        rows = scan([file.path]).select(pl.len()).collect(engine="streaming").item()
        if row < rows:
            csv = kind_of(file.path) == "csv"
            return f"{file.path}, {fault.at(f'line {row + 2:,}' if csv else f'row {row:,}')}"
        row -= rows
    return str(fault)


def count_rows(sources: Iterable[str | os.PathLike[str]]) -> int | None:
    """Return the number of rows in the metadata of parquet files, for a progress bar; None for CSV files."""
    try:
        files = [file.path for file in locate(sources)]
        return None if kind_of(files[0]) == "csv" else int(scan(files).select(pl.len()).collect().item())
    except (UncurseError, OSError, pl.exceptions.PolarsError):  # reading gives a better message
        return None
