"""Sum up a log, and apply maps, on the executors of Spark; they need this package and PyArrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from ..errors import UncurseError
from ..evidence import Evidence, merged
from .rows import Fault, Reader, check_columns, sum_up


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
