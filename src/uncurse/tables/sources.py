"""Logs as tables: a path, glob or folder, or a frame of any engine, opened lazily and checked by file and column."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from ..links import UncurseError, check_choice

if TYPE_CHECKING:
    import polars as pl

#: Engines that open files.
ENGINES = ("polars", "duckdb", "spark")
_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}


@dataclass(frozen=True)
class Table:
    """A log that was opened: a narwhals frame, and the files behind it where there are any."""

    frame: nw.LazyFrame[Any] | nw.DataFrame[Any]
    files: tuple[str, ...] = ()
    name: str = "the frame"


def is_frame(source: object) -> bool:
    """Whether this is a frame of some engine rather than a path or paths."""
    if isinstance(source, str | os.PathLike):
        return False
    return not (isinstance(source, Sequence) and all(isinstance(item, str | os.PathLike) for item in source))


def open_table(source: Any, numbers: Sequence[str], names: Sequence[str] = (), *, engine: str = "polars") -> Table:
    """Open a log whose columns `numbers` hold numbers and `names` hold any values; nothing is read yet.

    Parameters
    ----------
    source
        A path, a glob or a folder of parquet or CSV files, a list of them, or a frame: Polars, DuckDB, PySpark,
        pandas, PyArrow, Ibis, or any other that narwhals knows.
    """
    check_choice("engine", engine, ENGINES)
    if is_frame(source):
        try:
            frame = nw.from_native(source)
        except TypeError:
            raise UncurseError(
                f"{type(source).__name__} is neither a path nor a frame that narwhals knows; pass a path, or a frame "
                "of Polars, DuckDB, PySpark, pandas, PyArrow or Ibis"
            ) from None
        table = Table(frame)
        check_columns(dict(frame.collect_schema()), numbers, names, table.name)
        return table
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise UncurseError("there is no file to read; pass a path, a glob or a folder")
    name = ", ".join(map(str, sources))
    if any("://" in str(path) for path in sources):  # an object store or a cluster: the engine finds the files
        table = Table(
            _scan(tuple(map(str, sources)), _kind_of(str(sources[0])), numbers, engine, remote=True), (), name
        )
        check_columns(dict(table.frame.collect_schema()), numbers, names, name)
        return table
    files = find_files(sources)
    types = check_files(files, numbers, names)
    return Table(_scan(files, _kind_of(files[0]), numbers, engine, types=types), files, name)


# ---------------------------------------------------------------------------- files


def find_files(sources: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The files behind paths, globs and folders, in order of their names; all parquet or all CSV."""
    files: list[str] = []
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = sorted(str(p) for p in path.rglob("*") if p.is_file() and is_data(p.relative_to(path)))
            if not found:
                raise UncurseError(f"folder {source} holds no .parquet or .csv file")
        elif path.exists():
            found = [str(path)]
        elif glob.has_magic(str(source)):
            found = sorted(p for p in glob.glob(str(source), recursive=True) if os.path.isfile(p))
            if not found:
                raise UncurseError(f"no file matches {source}")
        else:
            raise UncurseError(f"cannot read {source}: there is no such file or folder")
        twice = sorted(set(found) & set(files))
        if twice:
            raise UncurseError(f"{twice[0]} is named twice; its rows would count double")
        files += found
    kinds = {_kind_of(file): file for file in files}
    if len(kinds) > 1:
        raise UncurseError(f"{' and '.join(kinds.values())} are not of one kind; pass parquet or CSV, not both")
    return tuple(files)


def is_data(path: Path) -> bool:
    """Whether a file of this name is read as a part of a log."""
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and any(str(path).endswith(suffix) for suffix in _KINDS)


def _kind_of(file: str) -> str:
    for suffix, kind in _KINDS.items():
        if file.lower().endswith(suffix):
            return kind
    if glob.has_magic(file) or "://" in file:
        return "parquet"
    raise UncurseError(f"{file} is neither .parquet nor .csv (nor .csv.gz); convert or rename it")


def check_files(files: Sequence[str], numbers: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any] | None:
    """Every file can be opened and has the columns; the first that does not is named.

    Where files differ in the types of these columns, types that fit them all are returned.
    """
    import polars as pl

    types: dict[str, Any] = {}
    differ = False
    for file in files:
        try:
            if os.path.getsize(file) == 0:
                raise UncurseError(f"{file} is empty, 0 bytes; write it anew or leave it out")
            if _kind_of(file) == "parquet":
                schema: dict[str, Any] = dict(pl.read_parquet_schema(file))
                hive = _hive([file])
            else:
                schema = dict(pl.scan_csv(file, infer_schema_length=1000, glob=False).collect_schema())
                hive = False
        except OSError as error:
            raise UncurseError(f"cannot read {file}: {error.strerror or error}") from None
        except pl.exceptions.PolarsError as error:
            raise UncurseError(
                f"{file} is not a readable {_kind_of(file)} file ({_first_line(error)}); is it truncated? Write it anew"
            ) from None
        if hive:  # date=2026-11-15/part.parquet has its date in the path
            schema |= {part.split("=")[0]: pl.String for part in Path(file).parts[:-1] if "=" in part}
        csv = _kind_of(file) == "csv"  # all text there: whether it is numbers shows when it is read
        check_columns(_as_narwhals(schema), [] if csv else numbers, (*numbers, *names) if csv else names, file)
        for name in (*numbers, *names):
            differ |= types.setdefault(name, schema[name]) != schema[name]
    return {**types, **dict.fromkeys(numbers, pl.Float64)} if differ else None


def _as_narwhals(schema: dict[str, Any]) -> dict[str, Any]:
    import polars as pl

    return dict(nw.from_native(pl.DataFrame(schema=schema)).schema)


def check_columns(schema: dict[str, Any], numbers: Sequence[str], names: Sequence[str], where: str) -> None:
    """The columns are there, and those that must hold numbers do."""
    for name in (*numbers, *names):
        if name not in schema:
            near = difflib.get_close_matches(name, schema, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, list(schema)[:12]))}"
            raise UncurseError(f"{where} has no column {name!r}; {hint}")
    for name in numbers:
        dtype = schema[name]
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            empty = "is all null" if dtype in (nw.Unknown, nw.Object) else f"holds {dtype}, not numbers"
            raise UncurseError(f"{where}: column {name!r} {empty}; name another column, or convert it")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _hive(files: Sequence[str]) -> bool:
    return any("=" in part for file in files for part in Path(file).parts[:-1])


def count_rows(sources: Iterable[str | os.PathLike[str]]) -> int | None:
    """How many rows parquet files say they hold, for a bar of progress; None where that takes a read."""
    import polars as pl

    try:
        files = find_files(sources)
        if _kind_of(files[0]) != "parquet":
            return None
        return int(pl.scan_parquet(list(files), glob=False, extra_columns="ignore").select(pl.len()).collect().item())
    except (UncurseError, OSError, pl.exceptions.PolarsError):  # the read itself will say it better
        return None


# ---------------------------------------------------------------------------- engines


def _scan(
    files: tuple[str, ...],
    kind: str,
    numbers: Sequence[str],
    engine: str,
    *,
    remote: bool = False,
    types: dict[str, Any] | None = None,
) -> nw.LazyFrame[Any]:
    scan: Any
    if engine == "polars":
        scan = scan_polars(files, kind, numbers, remote=remote, types=types)
    else:
        scan = (_scan_duckdb if engine == "duckdb" else _scan_spark)(files, kind)
    frame: nw.LazyFrame[Any] = nw.from_native(scan).lazy()
    return frame


def scan_polars(
    files: Sequence[str],
    kind: str,
    numbers: Sequence[str] = (),
    *,
    remote: bool = False,
    types: dict[str, Any] | None = None,
) -> pl.LazyFrame:
    """The files as one lazy frame, without a look at more than their schema; `types` where files differ in theirs."""
    import polars as pl

    if kind == "csv":
        texts = dict.fromkeys(numbers, pl.String)
        scan = pl.scan_csv(list(files), schema_overrides=texts, infer_schema_length=1000, glob=remote)
        return scan.with_columns(number_of(name) for name in numbers)
    hive = _hive(files)
    return pl.scan_parquet(
        list(files),
        glob=remote,
        hive_partitioning=hive or None,
        schema=None if types is None or hive else types,
        extra_columns="ignore",
        cast_options=pl.ScanCastOptions(integer_cast=["upcast", "allow-float"], float_cast=["upcast"]),
    )


def number_of(name: str, *, strict: bool = True) -> pl.Expr:
    """The number that a text of a CSV stands for; true and false are 1 and 0."""
    import polars as pl

    text = pl.col(name).str.strip_chars()
    truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64)
    return pl.coalesce(truth, pl.when(truth.is_null()).then(text).cast(pl.Float64, strict=strict)).alias(name)


def _scan_duckdb(files: Sequence[str], kind: str) -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UncurseError("engine='duckdb' needs DuckDB; pip install duckdb pyarrow") from None
    connection: Any = duckdb.connect()
    if kind == "csv":
        return connection.read_csv(list(files))
    return connection.read_parquet(list(files), hive_partitioning=_hive(files), union_by_name=True)


def spark_path(file: str) -> str:
    """A local file as Spark names it: with its scheme, and nothing encoded."""
    return f"file://{Path(file).resolve()}"


def glob_free(file: str) -> str:
    """The file's own name where a reader would see a pattern in it."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", file)


def _scan_spark(files: Sequence[str], kind: str) -> Any:
    from .spark import session

    spark = session()
    paths = [file if "://" in file else spark_path(glob_free(file)) for file in files]
    if kind == "csv":
        return spark.read.csv(paths, header=True, inferSchema=True)
    return spark.read.parquet(*paths)


__all__ = [
    "ENGINES",
    "Table",
    "check_columns",
    "check_files",
    "count_rows",
    "find_files",
    "is_frame",
    "open_table",
    "scan_polars",
]
