"""Files as lazy frames of Polars, DuckDB and Spark, columns matched by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UncurseError
from .files import Located, kind_of, scan_parquet

if TYPE_CHECKING:
    import polars as pl


def scan_polars(
    files: Located, numbers: Sequence[str] = (), names: Sequence[str] = (), *, uneven: bool = False
) -> pl.LazyFrame:
    """The files as one lazy frame; where they are uneven, or CSV, file by file with the columns asked for alone."""
    import polars as pl

    if kind_of(files[0][0]) == "parquet" and not uneven:
        return scan_parquet([file for file, _ in files])
    return pl.concat([_scan_one(file, keys, numbers, names) for file, keys in files])


def _scan_one(file: str, keys: dict[str, str], numbers: Sequence[str], names: Sequence[str]) -> pl.LazyFrame:
    import polars as pl

    if kind_of(file) == "csv":
        texts = dict.fromkeys((*numbers, *names), pl.String)
        scan = pl.scan_csv(file, schema_overrides=texts, infer_schema_length=1000, glob=False)
        values = [number_of(name) for name in numbers]
    else:
        scan = scan_parquet([file])
        values = [pl.col(name).cast(pl.Float64) for name in numbers]
    there = scan.collect_schema()
    texts_of = (pl.col(name) if name in there else pl.lit(keys[name]).alias(name) for name in names)
    return scan.select(*values, *(text.cast(pl.String) for text in texts_of if text.meta.output_name() not in numbers))


def number_of(name: str, *, strict: bool = True) -> pl.Expr:
    """The number that a text of a CSV stands for; true and false are 1 and 0."""
    import polars as pl

    text = pl.col(name).str.strip_chars()
    truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64)
    return pl.coalesce(truth, pl.when(truth.is_null()).then(text).cast(pl.Float64, strict=strict)).alias(name)


def connect_duckdb() -> Any:
    """DuckDB, or what to install."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UncurseError("engine='duckdb' needs DuckDB; pip install duckdb pyarrow") from None
    return duckdb.connect()


def scan_duckdb(files: Located, names: Sequence[str] = ()) -> Any:
    """The files as one relation, columns matched by name."""

    def quoted(text: str, mark: str = "'") -> str:
        return mark + text.replace(mark, 2 * mark) + mark

    def listed(some: Sequence[str]) -> str:
        return "[" + ", ".join(quoted(re.sub(r"([*?\[])", r"[\1]", file)) for file in some) + "]"

    if kind_of(files[0][0]) == "csv":
        texts = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
        types = f", types = {{{texts}}}" if texts else ""
        paths = listed([file for file, _ in files])
        return connect_duckdb().sql(f"select * from read_csv({paths}, header = true, union_by_name = true{types})")
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}  # files by what their folders say of the names asked for
    for file, keys in files:
        alike.setdefault(tuple((name, keys[name]) for name in names if name in keys), []).append(file)
    parts = []
    for keys_here, some in alike.items():
        said = "".join(f", {quoted(value)} as {quoted(name, chr(34))}" for name, value in keys_here)
        options = "union_by_name = true, hive_partitioning = false"
        parts.append(f"select *{said} from read_parquet({listed(some)}, {options})")
    return connect_duckdb().sql(" union all by name ".join(parts))


def scan_spark(files: Located, numbers: Sequence[str] = (), names: Sequence[str] = (), *, uneven: bool = False) -> Any:
    """The files as one Spark frame, columns matched by name."""
    from functools import reduce

    from .spark import session

    reader = session().read
    # A file's own name, where Spark would see a pattern in it.
    paths = [spark_path(re.sub(r"([\[\]{}*?\\])", r"\\\1", file)) for file, _ in files]
    csv = kind_of(files[0][0]) == "csv"
    if not csv and not uneven:
        return reader.parquet(*paths)
    from pyspark.sql import functions as F

    def named(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def number(name: str) -> Any:
        if not csv:
            return F.col(named(name)).cast("double").alias(name)
        text = f"trim({named(name)})"
        truth = f"case lower({text}) when 'true' then 1d when 'false' then 0d end"
        return F.expr(f"coalesce({truth}, try_cast({text} as double))").alias(name)

    parts = []
    for path, (_, keys) in zip(paths, files, strict=True):
        one = reader.csv(path, header=True, multiLine=True, escape='"') if csv else reader.parquet(path)
        texts = [
            (F.col(named(name)) if name in one.columns else F.lit(keys[name])).cast("string").alias(name)
            for name in names
            if name not in numbers
        ]
        parts.append(one.select(*map(number, numbers), *texts))
    return reduce(lambda a, b: a.unionByName(b), parts)


def spark_path(file: str) -> str:
    """A local file as Spark names it: with its scheme, and nothing encoded."""
    return f"file://{Path(file).resolve()}"


__all__ = ["connect_duckdb", "number_of", "scan_duckdb", "scan_polars", "scan_spark", "spark_path"]
