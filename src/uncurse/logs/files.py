"""Find the files of a log and check them, so that an error names the file and the column."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import narwhals as nw

from ..errors import UncurseError
from .checks import check_columns, first_line
from .csv_files import check_csv

if TYPE_CHECKING:
    import polars as pl

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


def find_files(sources: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the paths of the files that `locate` finds."""
    return tuple(file.path for file in locate(sources))


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
            if os.path.isfile(file) and (asked or not is_hidden(Path(os.path.relpath(file, base))))
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
    return not is_hidden(path) and any(str(path).lower().endswith(suffix) for suffix in _KINDS)


def is_hidden(path: Path) -> bool:
    """Tell whether a file or a folder above it is hidden by a dot or an underscore."""
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


def check_files(files: Sequence[LogFile], numbers: Sequence[str], names: Sequence[str] = ()) -> bool:
    """Check that every file can be opened and has the columns; the error names the first that does not.

    Returns whether files are uneven: differ in the types of these columns, or have some of them in their path. A
    value in the path is dropped from `folder_values` if the file has a column of that name.
    """
    import polars as pl

    types: dict[str, Any] = {}
    uneven = False
    for file in files:
        path, values = file.path, file.folder_values
        csv = kind_of(path) == "csv"
        try:
            if os.path.getsize(path) == 0:
                raise UncurseError(f"{path} is empty, 0 bytes; write it anew or leave it out")
            schema: dict[str, Any] = dict.fromkeys(check_csv(path), pl.String) if csv else parquet_schema(path)
            numbers_here = [] if csv else list(numbers)  # a CSV is all text: whether it is numbers shows when read
            untyped = pl.Null in (schema.get(name) for name in numbers_here)
            if untyped and not scan_parquet([path]).select(pl.len()).collect().item():
                numbers_here, uneven = [], True  # a file without rows has no types
        except OSError as error:
            raise UncurseError(f"cannot read {path}: {error.strerror or error}") from None
        except pl.exceptions.PolarsError as error:
            raise UncurseError(
                f"{path} is not a readable {kind_of(path)} file ({first_line(error)}); is it truncated? Write it anew"
            ) from None
        for name in set(values) & set(schema):
            del values[name]
        numbers_here += [name for name in numbers if name in values and name not in numbers_here]
        own = dict.fromkeys(values, pl.String)
        typed = dict(nw.from_native(pl.DataFrame(schema={**own, **schema})).schema)
        check_columns(typed, numbers_here, (*numbers, *names), path)
        for name in (*numbers, *names):
            if name in own and values[name] is None:
                raise UncurseError(
                    f"{path}: {name!r} is missing, as its folder {name}={_NO_VALUE} says; fill it, say with 'unknown'"
                )
            uneven |= name in own or types.setdefault(name, schema[name]) != schema[name]
    return uneven


def count_rows(sources: Iterable[str | os.PathLike[str]]) -> int | None:
    """Return the number of rows in the metadata of parquet files, for a progress bar; None for CSV files."""
    import polars as pl

    try:
        files = find_files(sources)
        if kind_of(files[0]) != "parquet":
            return None
        return int(scan_parquet(files).select(pl.len()).collect().item())
    except (UncurseError, OSError, pl.exceptions.PolarsError):  # reading gives a better message
        return None


def scan_parquet(files: Sequence[str]) -> pl.LazyFrame:
    """Open parquet files that have the same columns; a name is never taken for a pattern."""
    import polars as pl

    return pl.scan_parquet(list(files), glob=False, hive_partitioning=False, extra_columns="ignore")


def parquet_schema(file: str) -> dict[str, Any]:
    """Return the columns of a parquet file and their types."""
    return dict(scan_parquet([file]).collect_schema())
