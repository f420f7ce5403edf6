"""A map over a column, without leaving the engine that holds it.

Frames in memory and Polars scans go through the numpy map itself. DuckDB, Spark and Ibis get it as expressions (see
`lookups`), which agree with numpy to 1e-12 and stay lazy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..maps import Grouped, ScoreMap
from ..validation import check_finite, check_scores
from .files import check_columns
from .lookups import Program, predict
from .sources import check_spark_names

if TYPE_CHECKING:
    import polars as pl

_NAMES = (nw.String, nw.Categorical, nw.Enum)
_FLOATS = (nw.Float32, nw.Float64)


def with_prediction(frame: Any, score_map: ScoreMap, *, score: str, column: str, group: str | None = None) -> Any:
    """The frame with the map's predictions as its last column; rows, their order and other columns stay.

    Parameters
    ----------
    frame
        pandas, Polars (lazy too), PyArrow, DuckDB, PySpark or Ibis, native or wrapped by narwhals.
    score
        The served column, on the scale the map takes.
    column
        The name of the new column.
    group
        For a map by group: the column of groups, text or whole numbers. Without it the default map serves every row.

    Returns
    -------
    frame
        Native, of the same kind. In memory, a missing score or group is an error that names its row. In a lazy frame
        a null score stays null and a null group gets the default map; on DuckDB, Spark and Ibis whatever is no
        score (NaN, infinite, a probability outside [0, 1]) gives null too, and on a Polars scan an error when it runs.

    Examples
    --------
    >>> import polars as pl
    >>> from uncurse import Affine
    >>> log = pl.DataFrame({"s1": [0.0, 2.0], "ad": ["a", "b"]})
    >>> with_prediction(log, Affine(0.5, -1.0), score="s1", column="p")["p"].round(3).to_list()
    [0.269, 0.5]
    """
    try:
        table = nw.from_native(frame)
    except TypeError:
        raise UncurseError(
            f"{type(frame).__name__} is no frame that narwhals knows; pass one of pandas, Polars, PyArrow, DuckDB, "
            "PySpark or Ibis"
        ) from None
    schema = dict(table.collect_schema())
    check_columns(schema, [score], [] if group is None else [group], "this frame")
    check_spark_names(table, [score] if group is None else [score, group])
    if column in schema:
        raise UncurseError(f"this frame has a column {column!r} already; choose another name, or drop it first")
    if group is not None and not isinstance(score_map, Grouped):
        raise UncurseError(f"this map has no groups, yet group={group!r}; leave it out, or fit a map by group")
    if isinstance(table, nw.DataFrame):
        return _in_memory(table, score_map, score, column, group)
    if table.implementation.is_polars():
        return _scanned(table.to_native(), score_map, score, column, group)
    program = Program(table)
    prediction = predict(program, score_map, score, _text(schema, group))
    return program.finish(prediction, column, list(schema))


def _text(schema: dict[str, Any], group: str | None) -> nw.Expr | None:
    """The group as `links.check_names` writes it; engines write a float or a truth in ways of their own."""
    if group is None:
        return None
    dtype = schema[group]
    if not (isinstance(dtype, _NAMES) or dtype in _NAMES or dtype.is_integer()):
        raise UncurseError(f"the group column {group!r} holds {dtype}; groups are text or whole numbers, so cast it")
    return nw.col(group) if dtype == nw.String else nw.col(group).cast(nw.String)


# ---------------------------------------------------------------------------- through numpy


def _in_memory(table: nw.DataFrame[Any], score_map: ScoreMap, score: str, column: str, group: str | None) -> Any:
    values = numbers_of(table[score])
    if len(values):
        check_scores(values, score_map.scale, name=score, largest=np.inf)
    if group is not None:
        check_present(table[group], "fill it, say with 'unknown'")
    predictions = _apply(score_map, values, None if group is None else _labels(table[group]))
    if table.implementation.is_pandas():  # by place, whatever its index
        native = table.to_native().copy(deep=False)
        native[column] = predictions
        return native
    return table.with_columns(
        nw.new_series(column, predictions, nw.Float64(), backend=table.implementation)
    ).to_native()


def check_present(series: nw.Series[Any], remedy: str) -> None:
    """No value of this column is null; the first that is, is named by its row."""
    missing = series.is_null().to_numpy()
    if missing.any():
        raise UncurseError(
            f"{series.name}[{int(np.argmax(missing))}] is missing ({missing.sum()} such values); {remedy}"
        )


def numbers_of(series: nw.Series[Any]) -> Array:
    """A column as finite floats."""
    check_present(series, "drop or repair those rows first")
    numbers: Array = (series if series.dtype in _FLOATS else series.cast(nw.Float64)).to_numpy()
    check_finite(numbers, series.name)
    return numbers


def _labels(series: nw.Series[Any]) -> Any:
    named = isinstance(series.dtype, _NAMES) or series.dtype in _NAMES
    return (series.cast(nw.String) if named else series).to_numpy()


def _apply(score_map: ScoreMap, values: Array, names: Any) -> Array:
    if not len(values):
        return np.empty(0)
    return score_map(values) if names is None else score_map(values, names)  # type: ignore[call-arg]


def _scanned(scan: pl.LazyFrame, score_map: ScoreMap, score: str, column: str, group: str | None) -> pl.LazyFrame:
    import polars as pl

    groups = {name: i for i, name in enumerate(score_map.maps)} if isinstance(score_map, Grouped) else {}

    def of_batch(batch: pl.Series) -> pl.Series:
        scores = batch if group is None else batch.struct.field(score)
        names = None if group is None else batch.struct.field(group)
        out = np.full(len(batch), np.nan)
        known = scores.is_not_null()
        valid = known.to_numpy()
        values = scores.filter(known)
        numbers = (values if values.dtype in (pl.Float32, pl.Float64) else values.cast(pl.Float64)).to_numpy()
        if not np.isfinite(numbers).all():  # a row of this batch is no row of the log
            worst = numbers[~np.isfinite(numbers)][0]
            raise UncurseError(f"column {score!r} holds {worst}; drop or repair those rows first")
        if len(numbers):
            check_scores(numbers, score_map.scale, name=score, largest=np.inf)
        if names is None or not isinstance(score_map, Grouped):
            out[valid] = _apply(score_map, numbers, None)
        elif len(numbers):
            place = names.filter(known).cast(pl.String).replace_strict(groups, default=-1, return_dtype=pl.Int32)
            out[valid] = score_map.by_number(numbers, place.fill_null(-1).to_numpy())
        return pl.Series(out).set(~known, None)

    given = pl.col(score) if group is None else pl.struct(*dict.fromkeys((score, group)))
    prediction = given.map_batches(of_batch, return_dtype=pl.Float64, is_elementwise=True)
    return scan.with_columns(prediction.alias(column))


__all__ = ["with_prediction"]
