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
    files: Sequence[LogFile], numbers: Sequence[str] = (), names: Sequence[str] = (), *, engine: str, uneven: bool
) -> Any:
    """Open files of one kind as one native lazy frame; `uneven` is what `check_files` returns."""
    texts = [name for name in dict.fromkeys(names) if name not in numbers]
    if engine == "polars":
        return scan_polars(files, numbers, texts, uneven=uneven)
    csv, dialect = kind_of(files[0].path) == "csv", DUCKDB if engine == "duckdb" else SPARK
    alike: dict[tuple[str, ...], list[str]] = {}  # files by their columns, which differ in the values in their paths
    for file in files:
        own = _sql_columns(dialect, numbers, texts, csv, file.folder_values) if csv or uneven else ["*"]
        alike.setdefault(tuple(own), []).append(file.path)
    if engine == "duckdb":
        escaped = {columns: [re.sub(r"([*?\[])", r"[\1]", path) for path in paths] for columns, paths in alike.items()}
        selects = [_duckdb_select(paths, csv, columns) for columns, paths in escaped.items()]
        return connect_duckdb().sql(" union all ".join(selects))
    parts = []
    for columns, paths in alike.items():
        addresses = [spark_path(re.sub(r"([\[\]{}*?\\])", r"\\\1", path)) for path in paths]
        together = [addresses] if not csv and not uneven else [[address] for address in addresses]
        parts += [_spark_select(some, csv, columns) for some in together]  # Spark takes the columns of the first file
    return reduce(lambda a, b: a.union(b), parts)


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


def scan_remote(paths: list[str], numbers: Sequence[str], names: Sequence[str], engine: str) -> nw.LazyFrame[Any]:
    """Open addresses such as ``s3://bucket/log/*.parquet``; the engine finds the files and reads their paths."""
    import polars as pl

    csv = all(path.lower().endswith((".csv", ".csv.gz")) for path in paths)
    texts = [name for name in dict.fromkeys(names) if name not in numbers]
    frame: Any
    if engine == "polars":
        frame = pl.scan_csv(paths, infer_schema=False) if csv else pl.scan_parquet(paths)
        frame = frame.select(*map(parse_number, numbers), *texts) if csv else frame
    else:
        dialect = DUCKDB if engine == "duckdb" else SPARK
        columns = _sql_columns(dialect, numbers, texts, csv, {}) if csv else ["*"]
        if engine == "duckdb":
            frame = connect_duckdb().sql(_duckdb_select(paths, csv, columns, hive=True))
        else:
            frame = _spark_select(paths, csv, columns)
    lazy: nw.LazyFrame[Any] = nw.from_native(frame).lazy()
    return lazy


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


def _duckdb_select(paths: Sequence[str], csv: bool, columns: Sequence[str], *, hive: bool = False) -> str:
    options = f"[{', '.join(map(DUCKDB.literal, paths))}], union_by_name = true, hive_partitioning = {hive}"
    text = """, header = true, delim = ',', quote = '"', all_varchar = true"""
    return f"select {', '.join(columns)} from {f'read_csv({options}{text})' if csv else f'read_parquet({options})'}"


def _spark_select(paths: Sequence[str], csv: bool, columns: Sequence[str]) -> Any:
    from .spark import session

    read = session().read
    frame = read.csv(list(paths), header=True, multiLine=True, escape='"') if csv else read.parquet(*paths)
    return frame.selectExpr(*columns)


def connect_duckdb() -> Any:
    """Open a DuckDB connection, or say what to install."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UncurseError("engine='duckdb' needs DuckDB; pip install duckdb pyarrow") from None
    return duckdb.connect()


def spark_path(file: str) -> str:
    """Return a local file as Spark names it: with its scheme, and nothing encoded."""
    return f"file://{Path(file).resolve()}"
