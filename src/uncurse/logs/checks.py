"""Checks of columns that every engine and every kind of file shares."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import LogSpec
from ..links import get_link
from ..validation import check_finite, warn_user

Frame = nw.LazyFrame[Any] | nw.DataFrame[Any]
_FLOATS = (nw.Float32, nw.Float64)
_FEW = 100  # rows; fewer scores may lie in [0, 1] by chance


def open_frame(source: Any) -> Frame:
    """Wrap a frame of any engine that narwhals supports."""
    try:
        frame: Frame = nw.from_native(source)
    except TypeError:
        raise UncurseError(
            f"{type(source).__name__} is neither a path nor a frame that narwhals knows; pass a path, or a frame of "
            "Polars, DuckDB, PySpark, pandas, PyArrow or Ibis"
        ) from None
    return frame


def check_columns(schema: dict[str, Any], numbers: Sequence[str], names: Sequence[str], where: str) -> None:
    """Check that the columns exist and that those in `numbers` hold numbers."""
    for name in (*numbers, *names):
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise UncurseError(f"{where}: column {name!r} would be read as a pattern; rename it")
        if name not in schema:
            near = difflib.get_close_matches(name, schema, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, list(schema)[:12]))}"
            hint += f" and {len(schema) - 12} more" if not near and len(schema) > 12 else ""
            raise UncurseError(f"{where} has no column {name!r}; {hint}")
    for name in numbers:
        dtype = schema[name]
        if dtype in (nw.Int128, nw.UInt128):
            raise UncurseError(f"{where}: column {name!r} holds {dtype}, which few engines read; cast it to float")
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            holds = {nw.Unknown: "is all null", nw.Object: "holds Python objects, not numbers"}
            problem = next((text for kind, text in holds.items() if dtype == kind), f"holds {dtype}, not numbers")
            raise UncurseError(f"{where}: column {name!r} {problem}; name another column, or convert it")


def check_group(dtype: Any, group: str, where: str) -> None:
    """Check that a column can name groups; engines write floats and truth values as text each in its own way."""
    if not (is_text(dtype) or dtype.is_integer() or dtype == nw.Object):
        raise UncurseError(
            f"{where}: the group column {group!r} holds {dtype}; groups are text or whole numbers, so cast it"
        )


def check_spark_names(frame: Frame, names: Sequence[str]) -> None:
    """Refuse names that narwhals cannot pass to Spark, which takes a dot for a field."""
    odd = [name for name in names if "." in name or "`" in name]
    if odd and is_spark(frame):
        raise UncurseError(f"Spark cannot be asked for column {odd[0]!r} by its name; rename it, or use another engine")


def is_spark(frame: Frame) -> bool:
    """Tell whether a frame is one of PySpark, classic or Connect."""
    return frame.implementation.is_pyspark() or frame.implementation.is_pyspark_connect()


def is_text(dtype: Any) -> bool:
    """Tell whether a column holds text or categories."""
    kinds = (nw.String, nw.Categorical, nw.Enum)
    return isinstance(dtype, kinds) or dtype in kinds


def bad_values(name: str, spec: LogSpec) -> dict[str, Callable[[Any], Any]]:
    """Return tests for finite values that a column cannot hold, on numbers or expressions, by their remedies."""
    if name == spec.label:
        return {"labels must be 0 or 1": lambda x: (x != 0) & (x != 1)}
    if name == spec.weight:
        return {"weights must be 0 or more": lambda x: x < 0}
    if spec.scale == "value" and spec.link == "log":
        return {"that has no logarithm; use the identity link": lambda x: x <= 0}
    if spec.scale != "probability":
        return {}
    remedy = "that is not a probability; are these logits? Then the scale is logit"
    tests: dict[str, Callable[[Any], Any]] = {remedy: lambda x: (x < 0) | (x > 1)}
    link = get_link(spec.link)
    if len(spec.scores) > 1 and link.lower == 0:
        remedy = "there a logit is infinite; pass logits, or clip the probabilities first"
        tests[remedy] = lambda x: (x == 0) | (x == link.upper)
    return tests


def missing_remedy(name: str, spec: LogSpec, otherwise: str = "drop or fill those rows first") -> str:
    """Return what to do about missing values of a column; a label that is missing is no 0."""
    if name != spec.label:
        return otherwise
    # Without the best row, the next one of its request would count as selected.
    rows = "requests whose best rows have no label"
    if spec.top_k is None:
        rows = "rows that were not shown, or collect the best of each request (--request, --top-k)"
    return f"leave out {rows}; do not fill labels with 0"


def check_present(series: nw.Series[Any], remedy: str) -> None:
    """Check that a column has no null; the error names the row of the first."""
    missing = series.is_null().to_numpy()
    if missing.any():
        raise UncurseError(
            f"{series.name}[{int(np.argmax(missing))}] is missing ({missing.sum()} such values); {remedy}"
        )


def read_numbers(series: nw.Series[Any]) -> Array:
    """Return a column as finite floats."""
    check_present(series, "drop or repair those rows first")
    numbers: Array = (series if series.dtype in _FLOATS else series.cast(nw.Float64)).to_numpy()
    check_finite(numbers, series.name)
    return numbers


def read_names(series: nw.Series[Any]) -> NDArray[Any]:
    """Return a column of groups or requests; text as Python objects, as NumPy's text drops null characters."""
    if is_text(series.dtype):
        return np.array(series.cast(nw.String).to_list(), dtype=object)
    return np.asarray(series.to_numpy())


def warn_of_probabilities(score: str, low: float, high: float, rows: int, remedy: str) -> None:
    """Warn if scores that should be logits all lie in [0, 1]."""
    if rows >= _FEW and low >= 0 and high <= 1:
        warn_user(f"every value of {score} lies in [0, 1]; if these are probabilities, {remedy}")


def unused_name(taken: Collection[str], name: str) -> str:
    """Return `name`, with underscores added until no column starts with it, whatever the case (as in DuckDB)."""
    while any(other.lower().startswith(name) for other in taken):
        name += "_"
    return name


def first_line(error: Exception) -> str:
    """Return the first line of an engine's message, at most 200 characters."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
