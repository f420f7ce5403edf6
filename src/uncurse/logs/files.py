"""Find the files of a log, check that they fit together, and read them with Polars."""

from __future__ import annotations

import filecmp
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from ..documents import fingerprint
from ..errors import UncurseError
from .rows import Fault, Reader, check_columns, first_line, lazy_batches

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
        for file in _locate_one(str(source)):
            if files.setdefault(os.path.realpath(file.path), file) is not file:  # links and relative paths too
                raise UncurseError(f"{file.path} is named twice; its rows would count twice")
    if not files:
        raise UncurseError("there is no file to read; pass a path, a glob or a folder")
    folders = {Path(file.path).absolute().parent for file in files.values()}
    for folder in sorted({above for path in folders for above in (path, *path.parents)}):
        for pattern, table in _TABLE_FORMATS.items():
            if glob.glob(os.path.join(glob.escape(str(folder)), pattern)):
                raise UncurseError(
                    f"{folder} is {table}, whose files may hold deleted rows; collect, fit and evaluate read a table "
                    "of Delta Lake or Iceberg by its own folder; else load it with Spark or DuckDB and pass the frame"
                )
    kinds = {kind_of(file.path): file.path for file in files.values()}
    if len(kinds) > 1:
        raise UncurseError(f"{' and '.join(kinds.values())} are not of one kind; pass parquet or CSV, not both")
    return list(files.values())


def check_copies(files: Sequence[LogFile]) -> None:
    """Refuse a file that is a copy of another one, unless it is empty or the names of their folders differ."""
    seen: dict[tuple[str, str], str] = {}
    for file in files:
        path = file.path
        first = seen.setdefault((fingerprint(path), str(file.folder_values)), path)
        if first != path and filecmp.cmp(first, path, shallow=False) and _count_rows(path):
            raise UncurseError(f"{path} is a copy of {first}, so its rows would count twice; name one")


def digests(paths: Iterable[str]) -> tuple[str, ...]:
    """Return a digest of the content of each local path, by which its rows are known under another name."""
    files = (locate([path]) for path in paths if "://" not in path and table_package(path) is None)
    found = ("".join(fingerprint(file.path) for file in each) for each in files)
    return tuple(hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in found)


def _count_rows(path: str) -> int:
    return int(scan([path]).select(pl.len()).collect(engine="streaming").item())


def _locate_one(source: str) -> Iterator[LogFile]:
    if not source:
        raise UncurseError("a path is empty; pass a file, a glob or a folder")
    parts = Path(source).parts
    if os.path.isdir(source):
        base, found = source, glob.glob(os.path.join(glob.escape(source), "**"), recursive=True)
        found = [file for file in found if is_data(Path(os.path.relpath(file, base)))]
    elif os.path.exists(source):
        base, found = os.path.dirname(source), [source]
    else:
        fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
        base, found = os.path.join("", *parts[:fixed]), glob.glob(source, recursive=True)
        if not any(part.startswith((".", "_")) for part in parts[fixed:]):
            found = [file for file in found if not _is_hidden(Path(os.path.relpath(file, base or ".")))]
    found = sorted(file for file in found if not os.path.isdir(file))
    for file in found:
        if not os.path.isfile(file):
            raise UncurseError(f"cannot read {file}: it is a link to nothing, or no regular file; remove it")
    if not found:
        raise UncurseError(f"cannot read {source}: there is no such file, or no .parquet or .csv file in this folder")
    for file in found:
        relative = os.path.relpath(file, base or ".")
        named = [part.split("=", 1) for part in Path(relative).parts[:-1] if "=" in part]
        values = {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in named}
        yield LogFile(file, relative, values)


def is_data(path: Path) -> bool:
    """Tell whether a file is read as part of a folder: known by its ending, and not hidden by a dot or underscore."""
    return not _is_hidden(path) and str(path).lower().endswith(tuple(_KINDS))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and part != ".." for part in path.parts)


def kind_of(file: str) -> str:
    """Return "parquet" or "csv" by the ending of the name."""
    for suffix, kind in _KINDS.items():
        if file.lower().endswith(suffix):
            return kind
    raise UncurseError(f"{file} is neither .parquet nor .csv (nor .csv.gz); convert or rename it")


# ---------------------------------------------------------------------------- reading


def table_package(path: str) -> str | None:
    """Return the package that Polars needs to read a table, by its folder or address; None for a log of files."""
    address = "://" in path and not Path(path).suffix and not glob.has_magic(path)
    if address or os.path.isdir(os.path.join(path, "_delta_log")):
        return "deltalake"
    return "pyiceberg" if os.path.isdir(os.path.join(path, "data")) and _iceberg_metadata(path) else None


def _iceberg_metadata(path: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(path), "metadata", "*.metadata.json"))


def scan_table(path: str, package: str) -> pl.LazyFrame:
    """Open the current rows of a table of Delta Lake or Iceberg."""
    if find_spec(package) is None:
        raise UncurseError(f"{path} is a table, which Polars reads with {package}; pip install {package}")
    if package == "deltalake":
        return pl.scan_delta(path)
    newest = max(_iceberg_metadata(path), key=lambda file: (_version_of(file), os.path.getmtime(file)))
    return pl.scan_iceberg(newest)


def _version_of(metadata: str) -> int:
    """Return the version in the name of a metadata file of Iceberg: v3.metadata.json, or 00003-….metadata.json."""
    found = re.match(r"v?(\d+)", os.path.basename(metadata))
    return int(found[1]) if found else 0


def scan(paths: Sequence[str], *, local: bool = True) -> pl.LazyFrame:
    """Open files of one kind that have the same columns, all of them text if they are CSV files.

    A name of local files is never taken for a pattern, and the names of their folders are not columns.
    """
    if kind_of(paths[0]) == "csv":
        return pl.scan_csv(list(paths), infer_schema=False, glob=not local)
    return pl.scan_parquet(list(paths), glob=not local, hive_partitioning=False if local else None)


def open_files(files: Sequence[LogFile], reader: Reader) -> Iterator[pl.DataFrame]:
    """Read the columns of files in batches."""
    schemas = [check_file(file, reader) for file in files]
    for file, schema in zip(files, schemas, strict=True):
        # Polars finds rows with too many fields only if it reads all columns of a CSV file.
        scanned = scan([file.path])
        if not reader.text:
            scanned = scanned.select(name for name in reader.columns if name in schema)
        folder = {name: file.folder_values[name] for name in reader.columns if name not in schema}
        try:
            yield from lazy_batches(scanned.with_columns(pl.lit(v, pl.String).alias(n) for n, v in folder.items()))
        except pl.exceptions.PolarsError as error:
            raise UncurseError(
                f"{file.path} cannot be read ({first_line(error)}); repair it, or leave it out"
            ) from None


def check_file(file: LogFile, reader: Reader) -> dict[str, pl.DataType]:
    """Return the columns of a file, which must be those that are wanted."""
    path = file.path
    try:
        schema = dict(scan([path]).collect_schema())
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = f"is not a readable {kind_of(path)} file ({first_line(error)}); is it truncated? Write it anew"
        raise UncurseError(f"{path} {problem}") from None
    check_columns([*schema, *file.folder_values], reader.columns, path)
    for name in schema:
        if f"{name}_duplicated_0" in schema:  # as Polars renames the second one
            raise UncurseError(f"{path} has two columns named {name!r}; rename one of them")
    try:
        reader.typed(pl.DataFrame(schema={name: schema.get(name, pl.String) for name in reader.columns}))
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from None
    return schema


def locate_fault(files: Sequence[LogFile], fault: Fault) -> str:
    """Describe a fault by its file, and by the line of a CSV file or the row of others, counted from 0."""
    row = fault.row or 0
    for file in files:
        rows = _count_rows(file.path)
        if row < rows:
            csv = kind_of(file.path) == "csv"
            return f"{file.path}, {fault.at(f'line {row + 2:,}' if csv else f'row {row:,}')}"
        row -= rows
    return str(fault)
