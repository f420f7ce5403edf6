"""Run the summary of a log, and maps, on the executors of Spark; they need this package and PyArrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import polars as pl

from ..errors import UncurseError
from ..evidence import Evidence
from .frames import check_columns
from .rows import Fault
from .summary import Part, Task


def collect_on_spark(frame: Any, task: Task) -> Part:
    """Collect one part for each partition, and merge them here."""
    columns = task.reader().columns
    check_columns(frame.columns, columns, "the frame")
    chosen = _plain(frame).select(*(f"c{frame.columns.index(name)}" for name in columns))
    if task.spec.top_k is not None:  # all rows of a request go to one partition
        chosen = chosen.repartition(chosen.columns[columns.index(task.spec.top_k.request)])

    def summarize(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        try:
            part = task.of_batches((pl.DataFrame(batch.rename_columns(columns)) for batch in batches), threads=1)
            evidence = None if part.evidence is None else part.evidence.to_dict()
            result: dict[str, Any] = {**vars(part), "evidence": evidence}
        except UncurseError as error:  # the number of a row in a partition is not its number in the log
            result = {"error": error.at("a value") if isinstance(error, Fault) else str(error)}
        yield pyarrow.RecordBatch.from_pydict({"part": [json.dumps(result)]})

    return reduce(
        Part.merge, (_part(row.part) for row in chosen.mapInArrow(summarize, "part string").collect()), Part()
    )


def _part(text: str) -> Part:
    content = json.loads(text)
    if "error" in content:
        raise UncurseError(content["error"])
    evidence = content.pop("evidence")
    content["left_out"] = Counter(content["left_out"])
    return Part(**content, evidence=None if evidence is None else Evidence.from_dict(evidence))


def add_on_spark(frame: Any, column: str, append: Callable[[Any], Any]) -> Any:
    """Return a Spark frame with one more column of doubles, which is appended to PyArrow batches."""
    from pyspark.sql.types import DoubleType, StructField, StructType

    names, schema = frame.columns, StructType([*frame.schema.fields, StructField(column, DoubleType())])
    return _plain(frame).mapInArrow(lambda batches: (append(batch.rename_columns(names)) for batch in batches), schema)


def _plain(frame: Any) -> Any:
    """Rename the columns: Spark takes a dot in a name for a field, and does not tell S0 from s0."""
    return frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
