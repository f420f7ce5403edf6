"""Collect the evidence of a log: batches of rows of any engine go through one summary in NumPy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw
import polars as pl

from .._types import Array, Float
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, TopK
from ..validation import warn_if_probabilities, warn_user
from .files import (
    LogFile,
    check_copies,
    digests,
    kind_of,
    locate,
    locate_fault,
    open_files,
    scan,
    scan_table,
    table_package,
)
from .frames import collect_on_spark, is_spark, open_frame
from .rows import Fault, Progress, Reader, Settled, check_columns, check_present, first_line, lazy_batches, sum_up


def collect(
    source: Any,
    scores: str | Sequence[str],
    *,
    label: str | None = None,
    trials: str | None = None,
    weight: str | None = None,
    segment: str | None = None,
    teacher: str | None = None,
    top_k: TopK | None = None,
    scale: str = "logit",
    link: str = "logistic",
    negative_sampling_rate: float | None = None,
    missing: str = "error",
    progress: Progress | None = None,
) -> Evidence:
    """Collect the evidence of a log.

    Parameters
    ----------
    source : str, path, list of these, or frame
        A path, glob or folder of parquet or CSV files, a list of them, an address such as ``s3://bucket/*.parquet``,
        the folder or address of a table of Delta Lake or Iceberg (which needs ``deltalake`` or ``pyiceberg``), or a
        frame: Polars (lazy frames stream), DuckDB, Ibis, PySpark, pandas, PyArrow or any Arrow stream.
    scores : str or sequence of str
        Columns of the replica scores, the served one first.
    label, weight, segment : str, optional
        Columns of 0/1 labels, of row weights, and of segments (text or whole numbers).
    trials : str, optional
        Column of the number of trials of each row, such as its impressions. The label is then the number of successes,
        such as its clicks, and the row counts as one row per trial.
    teacher : str, optional
        Column of the scores of a teacher, see `Auto.fit`, on the scale of the scores.
    top_k : TopK, optional
        Keep only the best rows of each request, by the served score; of equal scores the first.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link on which `VAD` will shrink them.
    negative_sampling_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it.
    missing : {"error", "drop", "null"}, default="error"
        What to do with missing values. With "drop", rows that lack a value in one of the columns are left out; with
        "null", rows that lack a score. A warning counts them.
    progress : callable, optional
        Called with the number of rows read since the last call.

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
    columns = (scores,) if isinstance(scores, str) else tuple(scores) if isinstance(scores, Iterable) else scores
    spec = LogSpec(columns, scale, label, weight, segment, top_k, link, negative_sampling_rate, trials, teacher)
    return collect_spec(source, spec, missing=missing, progress=progress)


def collect_spec(
    source: Any,
    spec: LogSpec,
    *,
    missing: str = "error",
    progress: Progress | None = None,
    settled: Settled | None = None,
) -> Evidence:
    """Collect the evidence of a log that a `LogSpec` describes, of all its rows or of those that `settled` keeps."""
    reader = Reader(spec, settled=settled, missing=missing)
    paths = _paths(source)
    name = "the frame" if paths is None else ", ".join(paths)
    with _opened(source, paths, reader) as batches:
        on_spark = paths is None and is_spark(batches)
        evidence = collect_on_spark(batches, reader) if on_spark else sum_up(batches, reader, progress)
    if evidence is None or not evidence.weight:
        raise UncurseError(f"{name}: there are no rows{f' with a positive {spec.weight}' if spec.weight else ''}")
    if spec.scale == "logit" and evidence.served is not None:
        warn_if_probabilities(evidence.served.score - spec.logit_offset, spec.scores[0])
    return replace(evidence, sources=tuple(paths or ()), digests=digests(paths or ()))


def read_rows(
    source: Any, spec: LogSpec, *, missing: str = "error", progress: Progress | None = None
) -> tuple[Float, Array | None, Array | None]:
    """Return scores (n, S), numbers of segments, and weights of the rows of a log, in memory."""
    reader, names = Reader(spec, missing=missing), None
    with _opened(source, _paths(source), reader) as batches:
        rows = pl.concat(reader.select(batches, progress), how="vertical_relaxed")
        scores, _, weights, _ = reader.arrays(rows)
        if spec.segment is not None:
            check_present(rows, spec.segment, "drop it, or fill it")
            names = rows[spec.segment].rank("dense").to_numpy()
    return scores, names, weights


def _paths(source: Any) -> list[str] | None:
    """Return the paths of a source, or None if it is a frame."""
    sources = source if isinstance(source, list | tuple) else [source]
    paths = [os.fspath(path) for path in sources if isinstance(path, str | os.PathLike)]
    return paths if len(paths) == len(sources) else None


@contextmanager
def _opened(source: Any, paths: list[str] | None, reader: Reader) -> Iterator[Any]:
    """Yield the batches of a log, or a frame of Spark; errors within name the place of the value at fault."""
    name = "the frame" if paths is None else ", ".join(paths)
    files: list[LogFile] = []
    try:
        if paths is None:
            frame = nw.to_native(source, pass_through=True)
            yield frame if is_spark(frame) else open_frame(frame, reader.columns)
        elif len(paths) == 1 and (package := table_package(paths[0])) is not None:
            table = scan_table(paths[0], package)
            check_columns(table.collect_schema().names(), reader.columns, name)
            yield lazy_batches(table.select(reader.columns))
        elif any("://" in path for path in paths):
            reader.text = kind_of(paths[0]) == "csv"
            scanned = scan(paths, local=False)
            try:
                columns = scanned.collect_schema().names()
            except Exception as error:  # libraries that look for credentials raise other errors
                raise OSError(first_line(error)) from None
            check_columns(columns, reader.columns, name)
            yield lazy_batches(scanned if reader.text else scanned.select(reader.columns))
        else:
            files = locate(paths)
            check_copies(files)
            reader.text = kind_of(files[0].path) == "csv"
            yield open_files(files, reader)
    except Fault as fault:
        raise UncurseError(locate_fault(files, fault) if files else f"{name}: {fault}") from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:  # of addresses and frames
        raise UncurseError(f"{name}: {first_line(error)}") from None
    for column, count in reader.left_out.items():
        warn_user(f"{count:,} rows have no {column}; they are not counted")
