"""Any dataframe, scan or file of scores to evidence; a map over a column. All engines through narwhals.

Frames in memory and lazy Polars scans stream through numpy; DuckDB, Spark and Ibis answer one aggregated query for the
moments, one for the cells and, where it is wanted, one for how replicas lie together. All end in the same `Evidence`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw

from ..errors import UncurseError
from ..evidence import EXACT_ROWS, Evidence
from ..validation import check_count
from .columns import Columns
from .expressions import with_prediction
from .faults import blamed
from .queries import query, query_groups
from .sources import ENGINES, Table, is_frame, open_table
from .sql import fetch, row_count
from .streams import Frame, Progress, rows_by_group, stream
from .winners import winners
from .writing import apply_to_files

#: Up to this many rows are fetched and every score is a cell of its own, whatever the engine.
SMALL = EXACT_ROWS
_NAMES = (nw.String, nw.Categorical, nw.Enum)


def collect(
    source: Any,
    scores: str | Sequence[str],
    *,
    label: str | None = None,
    weight: str | None = None,
    group: str | None = None,
    request: str | None = None,
    top_k: int = 1,
    scale: str = "logit",
    link: str = "logistic",
    negative_rate: float | None = None,
    joint: bool = False,
    engine: str = "polars",
    progress: Progress | None = None,
) -> Evidence:
    """Evidence of a log: moments of its replica scores and cells of the served one.

    Parameters
    ----------
    source
        A path, glob or folder of parquet or CSV files, a list of them, or a frame: Polars (lazy ones stream),
        DuckDB, PySpark, pandas, PyArrow, Ibis.
    scores
        Columns of the replica scores, the served one first. With one alone there are cells but no moments.
    label, weight, group
        Columns of 0/1 labels, of weights, and of groups (text or whole numbers) to be collected apart as well.
    request, top_k
        Only the `top_k` best rows of each request, by the served score.
    scale
        What the scores are: ``"logit"``, ``"probability"`` or ``"value"``.
    link
        Where `VAD` will shrink them.
    negative_rate
        The share of negatives kept when the model was trained, undone first.
    joint
        Also count how replicas lie together, which `Tower` needs: two score columns or more.
    engine
        What reads files: ``"polars"``, ``"duckdb"`` or ``"spark"``. Frames bring their own.
    progress
        Called with the number of rows read since the last call, where rows are read in batches.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.DataFrame({"s1": [0.5, -1.0, 0.25], "s2": [0.25, -1.0, 0.5], "click": [1, 0, 0]})
    >>> collect(log, ["s1", "s2"], label="click").rows
    3
    """
    columns = Columns(
        (scores,) if isinstance(scores, str) else tuple(scores), label, weight, group, scale, link, negative_rate, joint
    )
    names = [name for name in (group, request) if name is not None]
    table = open_table(source, columns.numbers, names, engine=engine)
    if group is not None:
        _check_group(table, group)
    if request is not None:
        check_count(top_k, "top_k")
        frame: Any = table.frame  # lazy or not, winners are as it is
        table = replace(table, frame=winners(frame, columns.scores[0], request, top_k, columns=columns.wanted))
    with blamed(table, columns), warnings.catch_warnings():
        # What is said of a batch or a group; the whole is judged below.
        warnings.filterwarnings("ignore", "every value of .* lies in")
        evidence = _collect(table.frame, columns, progress)
    if scale == "logit" and evidence.cells is not None and evidence.rows >= 100:
        score = evidence.cells.score
        if score[0] >= 0 and score[-1] <= 1:
            warnings.warn(
                f"every value of {columns.scores[0]} lies in [0, 1]; if these are probabilities, not logits, say "
                "scale='probability'",
                UserWarning,
                stacklevel=2,
            )
    evidence.selection = None if request is None else f"top {top_k} of each {request}"
    if not is_frame(source):
        sources = [source] if isinstance(source, str | os.PathLike) else source
        evidence.sources = tuple(str(path) for path in sources)
    return evidence


def _collect(frame: Frame, columns: Columns, progress: Progress | None) -> Evidence:
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        rows = row_count(frame)
        if rows > SMALL:
            evidence = query(frame, columns)
            if columns.group is not None:
                evidence.groups = query_groups(frame, columns, evidence.joint)
            return evidence
        frame = fetch(frame, columns.wanted)
    evidence = stream(frame, columns, progress)
    if columns.group is not None:
        if evidence.rows <= SMALL:
            small = fetch(frame, columns.wanted) if isinstance(frame, nw.LazyFrame) else frame
            evidence.groups = rows_by_group(small, columns, evidence.joint)
        else:
            lazy = frame if isinstance(frame, nw.LazyFrame) else frame.select(*columns.wanted).lazy("polars")
            evidence.groups = query_groups(lazy, columns, evidence.joint)
    return evidence


def _check_group(table: Table, group: str) -> None:
    dtype = table.frame.collect_schema()[group]
    if not (isinstance(dtype, _NAMES) or dtype in _NAMES or dtype.is_integer() or dtype == nw.Object):
        raise UncurseError(
            f"{table.name}: the group column {group!r} holds {dtype}; groups are text or whole numbers, so cast it"
        )


__all__ = ["ENGINES", "Columns", "Table", "apply_to_files", "collect", "open_table", "winners", "with_prediction"]
