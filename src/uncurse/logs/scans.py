"""Files as lazy frames of Polars, DuckDB and Spark, with columns matched by name.

CSV files, and parquet files that differ in their types, give the requested columns only: numbers as float64, names as
text. Other parquet files give all their columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from ..errors import UncurseError
from .csv_files import parse_number, parse_number_sql, scan_text
from .dialects import DUCKDB, SPARK, Dialect
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
    """Open files of one kind as one native lazy frame; `uneven` is what `check_files` returns."""
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


def _sql_columns(
    dialect: Dialect, numbers: Sequence[str], texts: Sequence[str], csv: bool, values: Mapping[str, str | None]
) -> list[str]:
    """Write the requested columns as SQL; `values` are those in the path."""
    columns = {name: parse_number_sql(dialect.name(name)) if csv else dialect.name(name) for name in numbers}
    chosen = [f"cast({column} as {dialect.double}) as {dialect.name(name)}" for name, column in columns.items()]
    for name in texts:
        value = values.get(name)
        column = dialect.name(name) if value is None else dialect.literal(value)
        chosen.append(f"cast({column} as {dialect.text}) as {dialect.name(name)}")
    return chosen


def _scan_duckdb(files: Sequence[LogFile], numbers: Sequence[str], texts: Sequence[str], *, uneven: bool) -> Any:
    csv = kind_of(files[0].path) == "csv"
    alike: dict[tuple[tuple[str, str | None], ...], list[str]] = {}  # files by the values in their paths
    for file in files:
        keys = tuple((name, value) for name, value in file.folder_values.items() if name in texts)
        alike.setdefault(keys, []).append(re.sub(r"([*?\[])", r"[\1]", file.path))
    parts = []
    for keys, paths in alike.items():
        chosen = _sql_columns(DUCKDB, numbers, texts, csv, dict(keys)) if csv or uneven else ["*"]
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
    parts = []
    for path, file in zip(paths, files, strict=True):
        part = _spark_csv(reader, [path]) if csv else reader.parquet(path)
        parts.append(part.selectExpr(*_sql_columns(SPARK, numbers, texts, csv, file.folder_values)))
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
        chosen = _sql_columns(DUCKDB, numbers, texts, csv, {}) if csv else ["*"]
        frame = connect_duckdb().sql(f"select {', '.join(chosen)} from {_duckdb_reader(paths, hive=True)}")
    else:
        from .spark import session

        frame = _spark_csv(session().read, paths) if csv else session().read.parquet(*paths)
        if csv:
            frame = frame.selectExpr(*_sql_columns(SPARK, numbers, texts, csv, {}))
    lazy: nw.LazyFrame[Any] = nw.from_native(frame).lazy()
    return lazy
