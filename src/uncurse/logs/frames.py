"""Open frames of any library as batches of rows: Polars frames, made of Arrow without a copy.

Spark sums up a log, and applies maps, on its executors; they need this package and PyArrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import polars as pl
from narwhals.stable.v2 import dependencies

from ..errors import UncurseError
from ..evidence import Evidence, merged
from ..validation import is_missing
from .rows import BATCH, Fault, Reader, check_columns, lazy_batches, sum_up


def open_frame(frame: Any, names: list[str]) -> Iterable[pl.DataFrame]:
    """Read columns of a native frame in batches; an Arrow stream can be read once."""
    if isinstance(frame, pl.LazyFrame | pl.DataFrame):
        lazy = frame.lazy()
        check_columns(lazy.collect_schema().names(), names, "the frame")
        return lazy_batches(lazy.select(names))
    if is_stream(frame):
        return (pl.DataFrame(batch.select(names)) for batch in arrow_reader(frame, names))
    table = open_eager(frame)
    check_columns(table.columns, names, "the frame")
    return [pl.DataFrame([series_of(table[name]) for name in names])]


def is_stream(frame: Any) -> bool:
    """Tell whether a frame is read as an Arrow stream."""
    is_arrow = hasattr(frame, "__arrow_c_stream__") and not dependencies.is_into_dataframe(frame)
    return is_arrow or dependencies.is_duckdb_relation(frame) or dependencies.is_ibis_table(frame)


def arrow_reader(frame: Any, names: Sequence[str], *, more: bool = False) -> Any:
    """Return a PyArrow reader of columns, and of all others if there are `more` to keep."""
    import pyarrow

    is_duckdb, is_ibis = dependencies.is_duckdb_relation(frame), dependencies.is_ibis_table(frame)
    if is_duckdb or is_ibis:
        check_columns(frame.columns, names, "the frame")
        for name in names:  # SQL ignores case, so an engine would read either column
            alike = [other for other in frame.columns if other.lower() == name.lower()]
            if len(alike) > 1:
                raise UncurseError(f"columns {' and '.join(alike)} differ by case alone, which SQL ignores; rename one")
    if is_duckdb:
        quoted = ('"' + name.replace('"', '""') + '"' for name in names)
        return (frame if more else frame.project(", ".join(quoted))).to_arrow_reader(BATCH)
    if is_ibis and frame.get_backend().name != "duckdb":  # Ibis 12 cannot stream from DuckDB 2
        return (frame if more else frame.select(*names)).to_pyarrow_batches(chunk_size=BATCH)
    reader = pyarrow.RecordBatchReader.from_stream(frame if more or not is_ibis else frame.select(*names))
    check_columns(reader.schema.names, names, "the frame")
    return reader


def open_eager(frame: Any) -> nw.DataFrame[Any]:
    """Wrap a frame in memory."""
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise UncurseError(
            f"{type(frame).__name__} is neither a path nor a frame in memory, nor an Arrow stream; pass a path, or a "
            "frame of Polars, DuckDB, PySpark, pandas, PyArrow or Ibis"
        ) from None


def series_of(column: nw.Series[Any]) -> pl.Series:
    """Convert a column in memory to Polars."""
    try:
        return column.to_polars()
    except Exception:  # pandas without PyArrow, or Python objects
        values = [None if is_missing(value) else value for value in column.to_list()]
        return pl.Series(column.name, values, strict=False)


# ---------------------------------------------------------------------------- Spark


def is_spark(frame: Any) -> bool:
    """Tell whether a frame is one of PySpark, classic or Connect."""
    return dependencies.is_pyspark_dataframe(frame) or dependencies.is_pyspark_connect_dataframe(frame)


def collect_on_spark(frame: Any, reader: Reader) -> Evidence | None:
    """Sum up each partition on its executor, and merge the evidence here."""
    columns = reader.columns
    check_columns(frame.columns, columns, "the frame")
    chosen = _plain(frame).select(*(f"c{frame.columns.index(name)}" for name in columns))
    if reader.spec.top_k is not None:  # all rows of a request go to one partition
        chosen = chosen.repartition(chosen.columns[columns.index(reader.spec.top_k.request)])

    def summarize(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        result: dict[str, Any] = {"evidence": None, "left_out": {}, "error": None}
        try:
            evidence = sum_up((pl.DataFrame(batch.rename_columns(columns)) for batch in batches), reader, threads=1)
            result |= {"evidence": evidence and evidence.to_dict(), "left_out": reader.left_out}
        except UncurseError as error:  # the number of a row in a partition is not its number in the log
            result["error"] = error.at("a value") if isinstance(error, Fault) else str(error)
        yield pyarrow.RecordBatch.from_pydict({"part": [json.dumps(result)]})

    parts = [json.loads(row.part) for row in chosen.mapInArrow(summarize, "part string").collect()]
    for part in parts:
        if part["error"] is not None:
            raise UncurseError(part["error"])
        reader.left_out.update(part["left_out"])
    found = [Evidence.from_dict(part["evidence"]) for part in parts if part["evidence"] is not None]
    return merged(found) if found else None


def add_on_spark(frame: Any, column: str, append: Callable[[Any], Any]) -> Any:
    """Return a Spark frame with one more column of doubles, which is appended to PyArrow batches."""
    from pyspark.sql.types import DoubleType, StructField, StructType

    names, schema = frame.columns, StructType([*frame.schema.fields, StructField(column, DoubleType())])
    return _plain(frame).mapInArrow(lambda batches: (append(batch.rename_columns(names)) for batch in batches), schema)


def _plain(frame: Any) -> Any:
    """Rename the columns: Spark takes a dot in a name for a field, and does not tell S0 from s0."""
    return frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
