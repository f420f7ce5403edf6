"""The files of a log: found, told apart and checked, so that a fault is named by its file and column."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from ..errors import UncurseError

if TYPE_CHECKING:
    import polars as pl

_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}

Located = list[tuple[str, dict[str, str]]]


def find_files(sources: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The files behind paths, globs and folders, in order of their names; all parquet or all CSV."""
    return tuple(file for file, _ in located(sources))


def located(sources: Iterable[str | os.PathLike[str]]) -> Located:
    """The same, each with what the folders below its source say of it: {"date": "2026-11-15"} for date=2026-11-15/."""
    files: dict[str, dict[str, str]] = {}
    for source in sources:
        path, text = Path(source), str(source)
        base = path
        if path.is_dir():
            found = sorted(_walk(path))
            if not found:
                raise UncurseError(f"folder {source} holds no .parquet or .csv file")
        elif path.exists():
            found, base = [text], path.parent
        elif glob.has_magic(text):
            found = sorted(p for p in glob.glob(text, recursive=True) if os.path.isfile(p))
            if not found:
                raise UncurseError(f"no file matches {source}")
            base = Path(*path.parts[: next(i for i, part in enumerate(path.parts) if glob.has_magic(part))] or ["."])
        else:
            raise UncurseError(f"cannot read {source}: there is no such file or folder")
        for file in found:
            if file in files:
                raise UncurseError(f"{file} is named twice; its rows would count double")
            if not file.isprintable() and not _is_utf8(file):
                raise UncurseError(f"{file!a} is not UTF-8; rename the file")
            parts = Path(os.path.relpath(file, base)).parts[:-1]
            files[file] = dict(part.split("=", 1) for part in parts if "=" in part)
    kinds = {kind_of(file): file for file in files}
    if len(kinds) > 1:
        raise UncurseError(f"{' and '.join(kinds.values())} are not of one kind; pass parquet or CSV, not both")
    return list(files.items())


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    """Whether a file of this name is read as a part of a log."""
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and any(str(path).lower().endswith(suffix) for suffix in _KINDS)


def kind_of(file: str) -> str:
    """parquet or csv, by the name."""
    for suffix, kind in _KINDS.items():
        if file.lower().endswith(suffix):
            return kind
    raise UncurseError(f"{file} is neither .parquet nor .csv (nor .csv.gz); convert or rename it")


def check_files(files: Located, numbers: Sequence[str], names: Sequence[str] = ()) -> bool:
    """Every file can be opened and has the columns; the first that does not is named.

    Keys of paths that are columns too are dropped. Returns whether files are uneven: differ in the types of these
    columns, or have some of them in their path.
    """
    import polars as pl

    types: dict[str, Any] = {}
    uneven = False
    for file, keys in files:
        try:
            if os.path.getsize(file) == 0:
                raise UncurseError(f"{file} is empty, 0 bytes; write it anew or leave it out")
            csv = kind_of(file) == "csv"
            scan = pl.scan_csv(file, infer_schema_length=1000, glob=False) if csv else scan_parquet([file])
            schema: dict[str, Any] = dict(scan.collect_schema())
            numbers_here = [] if csv else list(numbers)  # a CSV is all text: whether it is numbers shows when read
            if pl.Null in (schema.get(name) for name in numbers_here) and not scan.select(pl.len()).collect().item():
                numbers_here, uneven = [], True  # a file without rows has no types
        except OSError as error:
            raise UncurseError(f"cannot read {file}: {error.strerror or error}") from None
        except pl.exceptions.PolarsError as error:
            raise UncurseError(
                f"{file} is not a readable {kind_of(file)} file ({first_line(error)}); is it truncated? Write it anew"
            ) from None
        for name in set(keys) & set(schema):
            del keys[name]  # a folder is no column that the file has itself
        own = dict.fromkeys(keys, pl.String)
        check_columns(_as_narwhals({**own, **schema}), numbers_here, (*numbers, *names), file)
        for name in (*numbers, *names):
            uneven |= name in own or types.setdefault(name, schema[name]) != schema[name]
    return uneven


def _as_narwhals(schema: dict[str, Any]) -> dict[str, Any]:
    import polars as pl

    return dict(nw.from_native(pl.DataFrame(schema=schema)).schema)


def check_columns(schema: dict[str, Any], numbers: Sequence[str], names: Sequence[str], where: str) -> None:
    """The columns are there, and those that must hold numbers do."""
    for name in (*numbers, *names):
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise UncurseError(f"{where}: column {name!r} would be read as a pattern; rename it")
        if name not in schema:
            near = difflib.get_close_matches(name, schema, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, list(schema)[:12]))}"
            raise UncurseError(f"{where} has no column {name!r}; {hint}")
    for name in numbers:
        dtype = schema[name]
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            holds = {nw.Unknown: "is all null", nw.Object: "holds Python objects, not numbers"}
            said = next((text for kind, text in holds.items() if dtype == kind), f"holds {dtype}, not numbers")
            raise UncurseError(f"{where}: column {name!r} {said}; name another column, or convert it")


def first_line(error: Exception) -> str:
    """The first line of what an engine says, not too long."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def count_rows(sources: Iterable[str | os.PathLike[str]]) -> int | None:
    """How many rows parquet files say they hold, for a bar of progress; None where that takes a read."""
    import polars as pl

    try:
        files = find_files(sources)
        if kind_of(files[0]) != "parquet":
            return None
        return int(scan_parquet(files).select(pl.len()).collect().item())
    except (UncurseError, OSError, pl.exceptions.PolarsError):  # the read itself will say it better
        return None


def scan_parquet(files: Sequence[str]) -> pl.LazyFrame:
    """Parquet files that have the same columns, each by its own name."""
    import polars as pl

    return pl.scan_parquet(list(files), glob=False, hive_partitioning=False, extra_columns="ignore")


__all__ = [
    "Located",
    "check_columns",
    "check_files",
    "count_rows",
    "find_files",
    "first_line",
    "is_data",
    "kind_of",
    "located",
    "scan_parquet",
]
