"""Stream rows through NumPy: frames in memory at once, lazy Polars scans in batches and in constant memory.

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
from ..evidence.from_arrays import EvidenceSums, Parts, evidence_by_group
from ..threads import cores
from ..validation import check_labels, check_numbers, check_weights
from .checks import Frame, missing_remedy, read_names

Progress = Callable[[int], None]  # called with the number of rows read since the last call

_BATCH = 1 << 20


def stream(frame: Frame, spec: LogSpec, parts: Parts, progress: Progress | None = None) -> Evidence:
    """Collect the evidence of all rows, without groups. Batch i goes to thread i mod n, so sums are reproducible."""
    sums = [EvidenceSums(spec, parts) for _ in range(cores())]
    seen = 0
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in sums]
        running: list[Future[None] | None] = [None] * len(sums)
        for i, batch in enumerate(_batches(frame, spec)):
            place = i % len(sums)
            before = running[place]
            if before is not None:
                before.result()  # hold at most one batch per thread
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
    """Collect the evidence of each group of a frame in memory."""
    scores, labels, weights = _arrays(frame, spec)
    named = read_names(_present(frame, str(spec.group), "fill them, say with 'unknown'"))
    return evidence_by_group(scores, labels, weights, named, spec, parts)


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
    """Return scores (n, S), labels and weights of a frame in memory, without missing values."""
    read = [_column(frame, name, spec) for name in spec.scores]
    kind = np.result_type(*read) if all(a.dtype in (np.float32, np.float64) for a in read) else np.float64
    scores: Float = np.empty((len(frame), len(read)), kind)
    for i, array in enumerate(read):
        scores[:, i] = array
    labels = None if spec.label is None else check_labels(_column(frame, spec.label, spec), len(frame))
    weights = None
    if spec.weight is not None:
        weights = _column(frame, spec.weight, spec).astype(np.float64)
        if weights.any():
            weights = check_weights(weights, len(frame), summed=True)
    return scores, labels, weights


def _column(frame: nw.DataFrame[Any], name: str, spec: LogSpec) -> NDArray[Any]:
    array: NDArray[Any] = _present(frame, name, missing_remedy(name, spec)).to_numpy()
    return array if array.dtype.kind in "biuf" else check_numbers(array.astype(np.float64), name)


def _present(frame: nw.DataFrame[Any], name: str, remedy: str) -> nw.Series[Any]:
    series = frame[name]
    missing = series.null_count()
    if missing:
        raise UncurseError(f"column {name!r} has {missing} missing values; {remedy}")
    return series
