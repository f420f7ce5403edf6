"""Rows through numpy: frames in memory at once, lazy Polars scans batch by batch, in memory that does not grow.

On a scan of 1e7 rows this takes 0.16 s, Polars' own queries for the grid, the top and the moments 0.2 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._types import Float
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec
from ..evidence.from_arrays import EvidenceSums, Parts
from ..threads import cores
from ..validation import check_labels, check_numbers, check_weights, group_rows

Frame = nw.LazyFrame[Any] | nw.DataFrame[Any]
Progress = Callable[[int], None]  # told how many rows were read since the last time

_BATCH = 1 << 20


def stream(frame: Frame, spec: LogSpec, parts: Parts, progress: Progress | None = None) -> Evidence:
    """Evidence of every row, without groups. Batch i goes to thread i mod n, so that sums are the same each time."""
    sums = [EvidenceSums(spec, parts) for _ in range(cores())]
    seen = 0
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in sums]
        running: list[Future[None] | None] = [None] * len(sums)
        for i, batch in enumerate(_batches(frame, spec)):
            place = i % len(sums)
            before = running[place]
            if before is not None:
                before.result()  # no more than a batch for each thread is held
            running[place] = threads[place].submit(sums[place].add, *batch)
            seen += len(batch[0])
            if progress is not None:
                progress(len(batch[0]))
        for future in running:
            if future is not None:
                future.result()
    for more in sums[1:]:
        sums[0].merge(more)
    evidence = sums[0].evidence()
    if not seen:
        raise UncurseError("there are no rows; pass a log that holds some")
    if not evidence.rows:
        raise UncurseError(f"every weight in column {spec.weight!r} is zero; give some row a positive weight")
    return evidence


def rows_by_group(frame: nw.DataFrame[Any], spec: LogSpec, parts: Parts) -> dict[str, Evidence]:
    """Evidence of each group of a frame in memory."""
    scores, labels, weights = _arrays(frame, spec)
    names, members = group_rows(_names(frame, str(spec.group)), len(scores))
    groups = {}
    for name, rows in zip(names, members, strict=True):
        w = None if weights is None else weights[rows]
        if w is not None and not w.any():
            continue
        sums = EvidenceSums(spec, parts, blocks=1)
        sums.add(scores[rows], None if labels is None else labels[rows], w)
        groups[name] = sums.evidence()
    return groups


def _batches(frame: Frame, spec: LogSpec) -> Iterator[tuple[Float, NDArray[Any] | None, NDArray[np.float64] | None]]:
    if isinstance(frame, nw.DataFrame):
        if len(frame):
            yield _arrays(frame, spec)
        return
    native = frame.select(*spec.wanted).to_native()
    for batch in native.collect_batches(chunk_size=_BATCH, maintain_order=True, engine="streaming"):
        if len(batch):
            yield _arrays(nw.from_native(batch, eager_only=True), spec)


def _arrays(frame: nw.DataFrame[Any], spec: LogSpec) -> tuple[Float, NDArray[Any] | None, NDArray[np.float64] | None]:
    """Scores (n, S), labels and weights of a frame in memory, checked for what is missing."""
    read = [_column(frame, name) for name in spec.scores]
    kind = np.result_type(*read) if all(a.dtype in (np.float32, np.float64) for a in read) else np.float64
    scores: Float = np.empty((len(frame), len(read)), kind)
    for i, array in enumerate(read):
        scores[:, i] = array
    labels = None if spec.label is None else check_labels(_column(frame, spec.label), len(frame))
    weights = None
    if spec.weight is not None:
        weights = _column(frame, spec.weight).astype(np.float64)
        if weights.any():
            weights = check_weights(weights, len(frame), summed=True)
    return scores, labels, weights


def _column(frame: nw.DataFrame[Any], name: str) -> NDArray[Any]:
    series = frame[name]
    missing = series.null_count()
    if missing:
        raise UncurseError(f"column {name!r} has {missing} missing values; drop or fill those rows first")
    array: NDArray[Any] = series.to_numpy()
    return array if array.dtype.kind in "biuf" else check_numbers(array.astype(np.float64), name)


def _names(frame: nw.DataFrame[Any], name: str) -> NDArray[Any]:
    series = frame[name]
    missing = series.null_count()
    if missing:
        raise UncurseError(f"column {name!r} has {missing} missing values; fill them, say with 'unknown'")
    return np.asarray(series.to_numpy())


__all__ = ["Frame", "Progress", "rows_by_group", "stream"]
