"""Collect the evidence of a log of any engine, and apply maps to logs. All engines are reached through narwhals.

Frames in memory and lazy Polars scans stream through NumPy. DuckDB, Spark and Ibis answer one aggregated query for the
moments, one for the cells and, if requested, one for the replica counts. All give the same `Evidence`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw

from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, TopK
from ..evidence.cell_tables import EXACT_ROWS
from ..evidence.from_arrays import EvidenceSums, Parts
from ..validation import check_choice
from .batches import Progress, rows_by_group, stream
from .checks import Frame, check_columns, check_group, check_spark_names, open_frame, warn_of_probabilities
from .diagnose import locating_errors
from .expressions import with_prediction
from .files import LogFile, check_files, locate
from .queries import fetch, query
from .scans import ENGINES, scan, scan_remote
from .settled import Settled, keep_settled
from .top_per_request import top_per_request
from .writing import apply_to_files

#: Up to this many rows are fetched and every score is a cell of its own, whatever the engine.
SMALL = EXACT_ROWS


def collect(
    source: Any,
    scores: str | Sequence[str],
    *,
    label: str | None = None,
    weight: str | None = None,
    group: str | None = None,
    top_k: TopK | None = None,
    scale: str = "logit",
    link: str = "logistic",
    negative_rate: float | None = None,
    replica_counts: bool = False,
    engine: str = "polars",
    progress: Progress | None = None,
) -> Evidence:
    """Collect the evidence of a log.

    Parameters
    ----------
    source : str, path, list of these, or frame
        A path, glob or folder of parquet or CSV files, a list of them, or a frame: Polars (lazy frames stream), DuckDB,
        PySpark, pandas, PyArrow, Ibis.
    scores : str or sequence of str
        Columns of the replica scores, the served one first.
    label, weight, group : str, optional
        Columns of 0/1 labels, of row weights, and of groups (text or whole numbers).
    top_k : TopK, optional
        Keep only the best rows of each request, by the served score.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.
    link : {"logistic", "identity", "log", "probit"}, default="logistic"
        Link on which `VAD` will shrink them.
    negative_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it.
    replica_counts : bool, default=False
        Also count how replicas lie together, which `Tower`, `Auto` and intervals need: two score columns or more.
    engine : {"polars", "duckdb", "spark"}, default="polars"
        Engine that reads files. Frames bring their own.
    progress : callable, optional
        Called with the number of rows read since the last call, where rows are read in batches.

    Returns
    -------
    Evidence
        The sums over all rows that methods fit to.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.DataFrame({"s1": [0.5, -1.0, 0.25], "s2": [0.25, -1.0, 0.5], "click": [1, 0, 0]})
    >>> collect(log, ["s1", "s2"], label="click").rows
    3
    """
    columns = (scores,) if isinstance(scores, str) else tuple(scores)
    spec = LogSpec(columns, scale, label, weight, group, top_k, link, negative_rate)
    return collect_spec(source, spec, replica_counts, engine=engine, progress=progress)


def collect_spec(
    source: Any,
    spec: LogSpec,
    replica_counts: bool,
    *,
    engine: str = "polars",
    progress: Progress | None = None,
    settled: Settled | None = None,
    scale_remedy: str = "set the scale to probability",
) -> Evidence:
    """Collect the evidence of a log that a `LogSpec` describes, of all its rows or of those that `settled` keeps.

    `scale_remedy` says what to do if logits look like probabilities.
    """
    parts = Parts(spec.has_logits, replica_counts)
    EvidenceSums(spec, parts)  # refuses parts that these columns cannot have, before anything is read
    request = None if spec.top_k is None else spec.top_k.request
    time = None if settled is None else settled.time
    names = [name for name in (spec.group, request, time) if name is not None]
    check_choice("engine", engine, ENGINES)
    files: list[LogFile] = []
    sources = None if _is_frame(source) else [source] if isinstance(source, str | os.PathLike) else list(source)
    name = "the frame" if sources is None else ", ".join(map(str, sources))
    with locating_errors(name):
        frame: Any  # lazy or in memory
        if sources is None:
            frame = open_frame(source)
        elif not sources:
            raise UncurseError("there is no file to read; pass a path, a glob or a folder")
        elif any("://" in str(path) for path in sources):
            frame = scan_remote([str(path) for path in sources], spec.numbers, names, engine)
        else:
            files = locate(sources)
            uneven = check_files(files, spec.numbers, names)
            frame = nw.from_native(scan(files, spec.numbers, names, engine=engine, uneven=uneven)).lazy()
        check_spark_names(frame, (*spec.numbers, *names))
        schema = dict(frame.collect_schema())
        if not files:  # whose columns are checked, file by file
            check_columns(schema, spec.numbers, names, name)
        if spec.group is not None:
            check_group(schema[spec.group], spec.group, name)
        if spec.top_k is not None:
            _check_requests(frame, spec.top_k.request, name)
            wanted = list(dict.fromkeys((*spec.wanted, *([] if time is None else [time]))))
            frame = top_per_request(frame, spec.scores[0], spec.top_k.request, spec.top_k.k, columns=wanted)
        if settled is not None:
            frame = keep_settled(frame, settled)
    with locating_errors(name, files, spec):
        evidence = _collect(frame, spec, parts, progress)
    if spec.scale == "logit" and evidence.cells is not None:
        score = evidence.cells.score
        warn_of_probabilities(spec.scores[0], score[0], score[-1], evidence.rows, scale_remedy)
    return evidence if sources is None else replace(evidence, sources=tuple(map(str, sources)))


def _is_frame(source: object) -> bool:
    paths = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    return not all(isinstance(path, str | os.PathLike) for path in paths)


def _check_requests(frame: Frame, request: str, where: str) -> None:
    missing = nw.col(request).is_null()
    if frame.collect_schema()[request].is_float():
        missing = missing | nw.col(request).is_nan()
    counted: Any = frame.lazy().select(missing.cast(nw.Int64).sum().alias("missing")).collect()
    count = int(counted["missing"][0] or 0)
    if count:
        raise UncurseError(f"{where}: {count:,} rows have no {request}; drop them, or give each a request")


def _collect(frame: Frame, spec: LogSpec, parts: Parts, progress: Progress | None) -> Evidence:
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        if fetch(frame, [nw.len()]).to_numpy()[0, 0] > SMALL:
            evidence = query(frame, spec, parts)[""]
            return evidence if spec.group is None else evidence.with_groups(query(frame, spec, parts, spec.group))
        frame = fetch(frame, spec.wanted)
    evidence = stream(frame, spec, parts, progress)
    if spec.group is None:
        return evidence
    if evidence.rows <= SMALL:
        small = fetch(frame, spec.wanted) if isinstance(frame, nw.LazyFrame) else frame
        return evidence.with_groups(rows_by_group(small, spec, parts))
    lazy = frame if isinstance(frame, nw.LazyFrame) else frame.select(*spec.wanted).lazy("polars")
    return evidence.with_groups(query(lazy, spec, parts, spec.group))


__all__ = ["ENGINES", "Settled", "apply_to_files", "collect", "top_per_request", "with_prediction"]
