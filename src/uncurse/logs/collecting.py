"""Collect the evidence of a log: batches of rows of any engine go through one summary in NumPy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw

from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, TopK
from ..validation import warn_user
from .files import LogFile, kind_of, locate, locate_fault, open_files, open_remote
from .frames import is_spark, naming_errors, open_frame
from .rows import Fault, Progress, Settled, warn_of_probabilities
from .summary import Task


def collect(
    source: Any,
    scores: str | Sequence[str],
    *,
    label: str | None = None,
    weight: str | None = None,
    segment: str | None = None,
    top_k: TopK | None = None,
    scale: str = "logit",
    link: str = "logistic",
    negative_sampling_rate: float | None = None,
    missing: str = "refuse",
    progress: Progress | None = None,
) -> Evidence:
    """Collect the evidence of a log.

    Parameters
    ----------
    source : str, path, list of these, or frame
        A path, glob or folder of parquet or CSV files, a list of them, an address such as ``s3://bucket/*.parquet``, or
        a frame: Polars (lazy frames stream), DuckDB, Ibis, PySpark, pandas, PyArrow or any Arrow stream.
    scores : str or sequence of str
        Columns of the replica scores, the served one first.
    label, weight, segment : str, optional
        Columns of 0/1 labels, of row weights, and of segments (text or whole numbers).
    top_k : TopK, optional
        Keep only the best rows of each request, by the served score; of equal scores the first.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link on which `VAD` will shrink them.
    negative_sampling_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that lack a value in one of the columns. Dropped rows are counted in a warning.
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
    spec = LogSpec(columns, scale, label, weight, segment, top_k, link, negative_sampling_rate)
    return collect_spec(source, spec, missing=missing, progress=progress)


def collect_spec(
    source: Any,
    spec: LogSpec,
    *,
    missing: str = "refuse",
    progress: Progress | None = None,
    settled: Settled | None = None,
    scale_remedy: str = "set the scale to probability",
) -> Evidence:
    """Collect the evidence of a log that a `LogSpec` describes, of all its rows or of those that `settled` keeps.

    `scale_remedy` says what to do if logits look like probabilities.
    """
    task = Task(spec, settled, missing)
    paths = _paths(source)
    name = "the frame" if paths is None else ", ".join(paths)
    files: list[LogFile] = []
    try:
        with naming_errors(name):
            if paths is None:
                frame = nw.to_native(source, pass_through=True)
                if is_spark(frame):
                    from .spark import collect_on_spark

                    part = collect_on_spark(frame, task)
                else:
                    part = task.of_batches(open_frame(frame, task.reader().columns), progress)
            elif any("://" in path for path in paths):
                task = replace(task, text=kind_of(paths[0]) == "csv")
                part = task.of_batches(open_remote(paths, task.reader(), name), progress)
            else:
                files = locate(paths)
                task = replace(task, text=kind_of(files[0].path) == "csv")
                part = task.of_batches(open_files(files, task.reader()), progress)
    except Fault as fault:
        raise UncurseError(locate_fault(files, fault) if files else f"{name}: {fault}") from None
    for column, count in part.left_out.items():
        warn_user(f"{count:,} rows have no {column}{' yet' if settled else ''}; they are not counted")
    if not part.rows:
        raise UncurseError(f"{name}: there are no rows; pass a log that holds some")
    if part.evidence is None or not part.evidence.weight:
        raise UncurseError(f"{name}: every weight in column {spec.weight!r} is zero; give some row a positive weight")
    if spec.scale == "logit":
        warn_of_probabilities(spec.scores[0], part.low, part.high, part.evidence.rows, scale_remedy)
    return part.evidence if paths is None else replace(part.evidence, sources=tuple(paths))


def _paths(source: Any) -> list[str] | None:
    """Return the paths that a source names, or None if it is a frame."""
    paths = source if isinstance(source, list | tuple) else [source]
    return [os.fspath(path) for path in paths] if all(isinstance(path, str | os.PathLike) for path in paths) else None
