"""Logs as tables: a path, glob or folder, or a frame of any engine, opened lazily and checked by file and column."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import narwhals as nw

from ..errors import UncurseError
from ..validation import check_choice
from .files import Located, check_columns, check_files, first_line, located
from .scans import connect_duckdb, scan_duckdb, scan_polars, scan_spark

#: Engines that open files.
ENGINES = ("polars", "duckdb", "spark")
_FOREIGN = ("polars", "duckdb", "_duckdb", "pyspark", "py4j", "ibis", "pyarrow", "sqlframe", "narwhals")


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
        check_spark_names(frame, (*numbers, *names))
        table = Table(frame)
        check_columns(dict(frame.collect_schema()), numbers, names, table.name)
        return table
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise UncurseError("there is no file to read; pass a path, a glob or a folder")
    name = ", ".join(map(str, sources))
    with engine_errors(name):
        if any("://" in str(path) for path in sources):  # an object store or a cluster: the engine finds the files
            scan = _scan_remote([str(path) for path in sources], engine)
            check_columns(dict(scan.collect_schema()), numbers, names, name)
            return Table(scan, (), name)
        found = located(sources)
        uneven = check_files(found, numbers, names)
        scan = _scan(found, numbers, names, engine, uneven)
        check_spark_names(scan, (*numbers, *names))
        return Table(scan, tuple(file for file, _ in found), name)


def check_spark_names(frame: nw.LazyFrame[Any] | nw.DataFrame[Any], names: Sequence[str]) -> None:
    """Spark takes a dot in a name for a field, and no quoting of ours reaches it through narwhals."""
    kind = frame.implementation
    odd = [name for name in names if "." in name or "`" in name]
    if odd and (kind.is_pyspark() or kind.is_pyspark_connect()):
        raise UncurseError(f"Spark cannot be asked for column {odd[0]!r} by its name; rename it, or use another engine")


@contextmanager
def engine_errors(name: str) -> Iterator[None]:
    """What an engine says of a log, as our error."""
    try:
        yield
    except UncurseError:
        raise
    except Exception as error:
        if not is_foreign(error):
            raise
        raise UncurseError(f"{name}: {first_line(error)}") from None


def is_foreign(error: Exception) -> bool:
    """Whether an engine raised this, or the system."""
    return type(error).__module__.partition(".")[0] in _FOREIGN or isinstance(error, OSError)


def _scan(files: Located, numbers: Sequence[str], names: Sequence[str], engine: str, uneven: bool) -> nw.LazyFrame[Any]:
    scan: Any
    if engine == "polars":
        scan = scan_polars(files, numbers, names, uneven=uneven)
    elif engine == "duckdb":
        scan = scan_duckdb(files, names)
    else:
        scan = scan_spark(files, numbers, names, uneven=uneven)
    frame: nw.LazyFrame[Any] = nw.from_native(scan).lazy()
    return frame


def _scan_remote(paths: list[str], engine: str) -> nw.LazyFrame[Any]:
    import polars as pl

    csv = all(path.lower().endswith((".csv", ".csv.gz")) for path in paths)
    scan: Any
    if engine == "polars":
        scan = pl.scan_csv(paths) if csv else pl.scan_parquet(paths)
    elif engine == "duckdb":
        connection: Any = connect_duckdb()
        scan = connection.read_csv(paths, header=True) if csv else connection.read_parquet(paths)
    else:
        from .spark import session

        reader = session().read
        scan = reader.csv(paths, header=True, inferSchema=True) if csv else reader.parquet(*paths)
    frame: nw.LazyFrame[Any] = nw.from_native(scan).lazy()
    return frame


__all__ = ["ENGINES", "Table", "check_spark_names", "engine_errors", "is_foreign", "is_frame", "open_table"]
