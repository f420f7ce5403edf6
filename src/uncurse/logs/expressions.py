"""Apply a map to a column, without leaving the engine that holds it.

Frames in memory and Polars scans go through the NumPy map itself. DuckDB, Spark and Ibis get it as expressions (see
`lazy_maps`), which agree with NumPy to 1e-12 and stay lazy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from ..errors import UncurseError
from ..maps import Grouped, ScoreMap
from ..validation import check_scores
from . import checks
from .lazy_maps import LazyColumns, predict

if TYPE_CHECKING:
    import polars as pl

#: What to do if a map of logits is applied to probabilities.
PROBABILITY_REMEDY = "apply the map to their logits, or fit it on the scale probability"


def with_prediction(frame: Any, score_map: ScoreMap, *, score: str, column: str, group: str | None = None) -> Any:
    """Add the predictions of a map as the last column; rows, their order and other columns stay.

    Parameters
    ----------
    frame : frame
        pandas, Polars (eager or lazy), PyArrow, DuckDB, PySpark or Ibis, native or wrapped by narwhals.
    score_map : ScoreMap
        The map.
    score : str
        Served column, on the scale of the map.
    column : str
        Name of the new column.
    group : str, optional
        For a map by group, which needs it: the column of groups, text or whole numbers.

    Returns
    -------
    frame
        Native, of the same kind. In memory, a missing score or group is an error that names its row. In a lazy frame
        a null score gives null and a null group gets the default map. A value that is no score (NaN, infinite, or a
        probability outside [0, 1]) gives null on DuckDB, Spark and Ibis, and an error when a Polars scan runs.

    Examples
    --------
    >>> import polars as pl
    >>> from uncurse import Affine
    >>> log = pl.DataFrame({"s1": [0.0, 2.0], "ad": ["a", "b"]})
    >>> with_prediction(log, Affine(0.5, -1.0), score="s1", column="p")["p"].round(3).to_list()
    [0.269, 0.5]
    """
    table = checks.open_frame(frame)
    schema = dict(table.collect_schema())
    names = [] if group is None else [group]
    checks.check_columns(schema, [score], names, "this frame")
    checks.check_spark_names(table, [score, *names])
    if column in schema:
        raise UncurseError(f"this frame has a column {column!r} already; choose another name, or drop it first")
    if group is not None and not isinstance(score_map, Grouped):
        raise UncurseError(f"this map has no groups, yet group={group!r}; leave it out, or fit a map by group")
    if group is None and isinstance(score_map, Grouped):
        raise UncurseError("this map has a map for each group; pass group=, their column, or its .default for all rows")
    if isinstance(table, nw.DataFrame):
        return _in_memory(table, score_map, score, column, group)
    if table.implementation.is_polars():
        return _scanned(table.to_native(), score_map, score, column, group)
    text = None
    if group is not None:
        checks.check_group(schema[group], group, "this frame")
        text = nw.col(group) if schema[group] == nw.String else nw.col(group).cast(nw.String)
    columns = LazyColumns(table)
    return columns.finish(predict(columns, score_map, score, text), column, list(schema))


def _in_memory(table: nw.DataFrame[Any], score_map: ScoreMap, score: str, column: str, group: str | None) -> Any:
    values, names = checks.read_numbers(table[score]), None
    if len(values):
        check_scores(values, score_map.scale, name=score, largest=np.inf)
        if score_map.scale == "logit":
            checks.warn_of_probabilities(score, values.min(), values.max(), len(values), PROBABILITY_REMEDY)
    if group is not None:
        checks.check_present(table[group], "fill it, say with 'unknown'")
        names = checks.read_names(table[group])
    predictions = np.empty(0) if not len(values) else score_map(*([values] if names is None else [values, names]))
    if table.implementation.is_pandas():  # by position, whatever the index
        native = table.to_native().copy(deep=False)
        native[column] = predictions
        return native
    return table.with_columns(
        nw.new_series(column, predictions, nw.Float64(), backend=table.implementation)
    ).to_native()


def _scanned(scan: pl.LazyFrame, score_map: ScoreMap, score: str, column: str, group: str | None) -> pl.LazyFrame:
    import polars as pl

    groups = {name: i for i, name in enumerate(score_map.maps)} if isinstance(score_map, Grouped) else {}

    def predict_batch(batch: pl.Series) -> pl.Series:
        scores = batch if group is None else batch.struct.field(score)
        names = None if group is None else batch.struct.field(group)
        out = np.full(len(batch), np.nan)
        known = scores.is_not_null()
        values = scores.filter(known)
        numbers = (values if values.dtype in (pl.Float32, pl.Float64) else values.cast(pl.Float64)).to_numpy()
        if not np.isfinite(numbers).all():  # the number of a row in this batch is not its number in the log
            worst = numbers[~np.isfinite(numbers)][0]
            raise UncurseError(f"column {score!r} holds {worst}; drop or repair those rows first")
        if len(numbers):
            check_scores(numbers, score_map.scale, name=score, largest=np.inf)
            if names is None or not isinstance(score_map, Grouped):
                out[known.to_numpy()] = score_map(numbers)
            else:
                place = names.filter(known).cast(pl.String).replace_strict(groups, default=-1, return_dtype=pl.Int32)
                out[known.to_numpy()] = score_map.by_number(numbers, place.fill_null(-1).to_numpy())
        return pl.Series(out).set(~known, None)

    inputs = pl.col(score) if group is None else pl.struct(*dict.fromkeys((score, group)))
    prediction = inputs.map_batches(predict_batch, return_dtype=pl.Float64, is_elementwise=True)
    return scan.with_columns(prediction.alias(column))
