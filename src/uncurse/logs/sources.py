"""Open a log: a path, glob or folder, or a frame of any engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import narwhals as nw

from ..errors import UncurseError
from ..validation import check_choice
from .checks import Frame, check_columns, check_spark_names, first_line, open_frame
from .files import LogFile, check_files, locate
from .scans import ENGINES, scan, scan_remote

_FOREIGN = ("polars", "duckdb", "_duckdb", "pyspark", "py4j", "ibis", "pyarrow", "sqlframe", "narwhals")


@dataclass(frozen=True)
class Table:
    """An opened log."""

    frame: Frame
    files: tuple[LogFile, ...] = ()  # none for frames and remote addresses
    name: str = "the frame"  # in messages


def is_frame(source: object) -> bool:
    """Tell whether a source is a frame of some engine rather than a path or paths."""
    if isinstance(source, str | os.PathLike):
        return False
    return not (isinstance(source, Sequence) and all(isinstance(item, str | os.PathLike) for item in source))


def open_table(source: Any, numbers: Sequence[str], names: Sequence[str] = (), *, engine: str = "polars") -> Table:
    """Open a log without reading it, and check its columns.

    Parameters
    ----------
    source : str, path, list of these, or frame
        A path, a glob or a folder of parquet or CSV files, a list of them, or a frame: Polars, DuckDB, PySpark,
        pandas, PyArrow, Ibis, or any other that narwhals supports.
    numbers : sequence of str
        Columns that must hold numbers.
    names : sequence of str, optional
        Columns that may hold any values.
    engine : {"polars", "duckdb", "spark"}, default="polars"
        Engine that reads files.

    Returns
    -------
    Table
        The opened log.

    Examples
    --------
    >>> import polars as pl
    >>> open_table(pl.DataFrame({"s": [0.5]}), ["s"]).frame.columns
    ['s']
    """
    check_choice("engine", engine, ENGINES)
    wanted = (*numbers, *names)
    if is_frame(source):
        frame = open_frame(source)
        check_spark_names(frame, wanted)
        check_columns(dict(frame.collect_schema()), numbers, names, "the frame")
        return Table(frame)
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise UncurseError("there is no file to read; pass a path, a glob or a folder")
    name = ", ".join(map(str, sources))
    with engine_errors(name):
        if any("://" in str(path) for path in sources):
            remote = scan_remote([str(path) for path in sources], numbers, names, engine)
            check_columns(dict(remote.collect_schema()), numbers, names, name)
            return Table(remote, (), name)
        files = locate(sources)
        uneven = check_files(files, numbers, names)
        lazy: nw.LazyFrame[Any] = nw.from_native(scan(files, numbers, names, engine=engine, uneven=uneven)).lazy()
        check_spark_names(lazy, wanted)
        return Table(lazy, tuple(files), name)


@contextmanager
def engine_errors(name: str) -> Iterator[None]:
    """Turn errors of engines and of the system into `UncurseError`, after the name of the log."""
    try:
        yield
    except UncurseError:
        raise
    except Exception as error:
        if not is_foreign(error):
            raise
        raise UncurseError(f"{name}: {first_line(error)}") from None


def is_foreign(error: Exception) -> bool:
    """Tell whether an engine or the system raised an error."""
    return type(error).__module__.partition(".")[0] in _FOREIGN or isinstance(error, OSError)
