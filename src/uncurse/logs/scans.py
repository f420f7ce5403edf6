"""Files as lazy frames of Polars, DuckDB and Spark, with columns matched by name.

CSV files, and parquet files that differ in their types, give the requested columns only: numbers as float64, names as
text. Other parquet files give all their columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from ..errors import UncurseError
from .csv_files import parse_number, parse_number_sql, scan_text
from .dialects import DUCKDB, SPARK
from .files import LogFile, kind_of, scan_parquet

if TYPE_CHECKING:
    import polars as pl

#: Engines that open files.
ENGINES = ("polars", "duckdb", "spark")


def scan(
    files: Sequence[LogFile],
    numbers: Sequence[str] = (),
    names: Sequence[str] = (),
    *,
    engine: str,
    uneven: bool = False,
) -> Any:
    """Open files as one lazy frame of the engine.

    Parameters
    ----------
    files : sequence of LogFile
        Files of one kind, as from `locate`.
    numbers, names : sequence of str
        Columns to read as numbers and as text.
    engine : {"polars", "duckdb", "spark"}
        The engine.
    uneven : bool, default=False
        Whether files differ in the types of these columns, or have some in their path; see `check_files`.

    Returns
    -------
    frame
        A native lazy frame.
    """
    scans = {"polars": scan_polars, "duckdb": _scan_duckdb, "spark": _scan_spark}
    texts = [name for name in dict.fromkeys(names) if name not in numbers]
    return scans[engine](files, numbers, texts, uneven=uneven)


def scan_polars(
    files: Sequence[LogFile], numbers: Sequence[str] = (), texts: Sequence[str] = (), *, uneven: bool = False
) -> pl.LazyFrame:
    """Open files as one Polars frame, as `scan`."""
    import polars as pl

    csv = kind_of(files[0].path) == "csv"
    if not csv and not uneven:
        return scan_parquet([file.path for file in files])
    parts = []
    for file in files:
        part = scan_text(file.path) if csv else scan_parquet([file.path])
        values = [parse_number(name) if csv else pl.col(name).cast(pl.Float64) for name in numbers]
        keys = file.folder_values
        text = [(pl.lit(keys[name]) if name in keys else pl.col(name)).cast(pl.String).alias(name) for name in texts]
        parts.append(part.select(*values, *text))
    return pl.concat(parts)


def connect_duckdb() -> Any:
    """Return a new DuckDB connection, or say what to install."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UncurseError("engine='duckdb' needs DuckDB; pip install duckdb pyarrow") from None
    return duckdb.connect()


def _scan_duckdb(files: Sequence[LogFile], numbers: Sequence[str], texts: Sequence[str], *, uneven: bool) -> Any:
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}  # files by the values in their paths
    for file in files:
        keys = tuple((name, value) for name, value in file.folder_values.items() if name in texts and value is not None)
        alike.setdefault(keys, []).append(re.sub(r"([*?\[])", r"[\1]", file.path))
    parts = []
    for keys, paths in alike.items():
        constants = {name: DUCKDB.literal(value) for name, value in keys}
        if kind_of(files[0].path) == "csv":
            chosen = [f"{parse_number_sql(DUCKDB.name(name))} as {DUCKDB.name(name)}" for name in numbers]
            chosen += [f"{constants.get(name, DUCKDB.name(name))} as {DUCKDB.name(name)}" for name in texts]
        else:
            chosen = ["*", *(f"{value} as {DUCKDB.name(name)}" for name, value in constants.items())]
        parts.append(f"select {', '.join(chosen)} from {_duckdb_reader(paths)}")
    return connect_duckdb().sql(" union all by name ".join(parts))


def _duckdb_reader(paths: Sequence[str], hive: bool = False) -> str:
    listed = ", ".join(map(DUCKDB.literal, paths))
    options = f"union_by_name = true, hive_partitioning = {str(hive).lower()}"
    if kind_of(paths[0]) == "csv":
        return f"""read_csv([{listed}], header = true, delim = ',', quote = '"', all_varchar = true, {options})"""
    return f"read_parquet([{listed}], {options})"


def _scan_spark(files: Sequence[LogFile], numbers: Sequence[str], texts: Sequence[str], *, uneven: bool) -> Any:
    from .spark import session

    reader = session().read
    # Escape what Spark would take for a pattern in the name of a file.
    paths = [spark_path(re.sub(r"([\[\]{}*?\\])", r"\\\1", file.path)) for file in files]
    csv = kind_of(files[0].path) == "csv"
    if not csv and not uneven:
        return reader.parquet(*paths)
    from pyspark.sql import functions as F

    parts = []
    for path, file in zip(paths, files, strict=True):
        part = _spark_csv(reader, [path]) if csv else reader.parquet(path)
        keys = file.folder_values
        values = [parse_number_sql(SPARK.name(n)) if csv else f"cast({SPARK.name(n)} as double)" for n in numbers]
        columns = [F.expr(value).alias(name) for name, value in zip(numbers, values, strict=True)]
        text = [(F.lit(keys[n]) if n in keys else F.col(SPARK.name(n))).cast("string").alias(n) for n in texts]
        parts.append(part.select(*columns, *text))
    return reduce(lambda a, b: a.unionByName(b), parts)


def _spark_csv(reader: Any, paths: list[str]) -> Any:
    return reader.csv(paths, header=True, multiLine=True, escape='"')


def spark_path(file: str) -> str:
    """Return a local file as Spark names it: with its scheme, and nothing encoded."""
    return f"file://{Path(file).resolve()}"


def scan_remote(paths: list[str], numbers: Sequence[str], names: Sequence[str], engine: str) -> nw.LazyFrame[Any]:
    """Open addresses such as ``s3://bucket/log/*.parquet``; the engine finds the files and reads their paths."""
    import polars as pl

    csv = all(path.lower().endswith((".csv", ".csv.gz")) for path in paths)
    texts = [name for name in dict.fromkeys(names) if name not in numbers]
    frame: Any
    if engine == "polars":
        frame = pl.scan_csv(paths, infer_schema=False) if csv else pl.scan_parquet(paths)
        if csv:
            frame = frame.select(*map(parse_number, numbers), *texts)
    elif engine == "duckdb":
        chosen = [f"{parse_number_sql(DUCKDB.name(name))} as {DUCKDB.name(name)}" for name in numbers]
        chosen += [DUCKDB.name(name) for name in texts]
        frame = connect_duckdb().sql(f"select {', '.join(chosen) if csv else '*'} from {_duckdb_reader(paths, True)}")
    else:
        from pyspark.sql import functions as F

        from .spark import session

        frame = _spark_csv(session().read, paths) if csv else session().read.parquet(*paths)
        if csv:
            columns = [F.expr(parse_number_sql(SPARK.name(name))).alias(name) for name in numbers]
            frame = frame.select(*columns, *(F.col(SPARK.name(name)) for name in texts))
    lazy: nw.LazyFrame[Any] = nw.from_native(frame).lazy()
    return lazy


__all__ = ["ENGINES", "connect_duckdb", "scan", "scan_polars", "scan_remote", "spark_path"]
