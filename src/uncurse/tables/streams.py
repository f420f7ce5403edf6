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
from ..evidence import Cells, Evidence, Joint, Moments
from ..links import to_link
from ..threads import cores
from ..validation import check_labels, check_numbers, check_weights, group_rows
from .columns import Columns

Frame = nw.LazyFrame[Any] | nw.DataFrame[Any]
Progress = Callable[[int], None]  # told how many rows were read since the last time

_BATCH = 1 << 20
_FIRST_BLOCKS, _LATER_BLOCKS = 32, 4  # of the jackknife: what merging leaves are 33 to 64 of comparable size


def stream(frame: Frame, columns: Columns, progress: Progress | None = None) -> Evidence:
    """Evidence of every row, without groups. Batch i goes to thread i mod n, so that sums are the same each time."""
    parts = [_Sums(columns) for _ in range(cores())]
    seen = 0
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in parts]
        running: list[Future[None] | None] = [None] * len(parts)
        for i, batch in enumerate(_batches(frame, columns)):
            place = i % len(parts)
            before = running[place]
            if before is not None:
                before.result()  # no more than a batch for each thread is held
            if columns.joint and parts[0].joint is None and _counts(batch[2]):
                joint = _settled(columns, *batch)  # one grid for all threads
                for part in parts:
                    part.joint = joint.like()
            running[place] = threads[place].submit(parts[place].add, *batch)
            seen += len(batch[0])
            if progress is not None:
                progress(len(batch[0]))
        for future in running:
            if future is not None:
                future.result()
    first = parts[0]
    for part in parts[1:]:
        first.merge(part)
    evidence = evidence_of(columns, first.moments, first.cells, first.joint)
    if not seen:
        raise UncurseError("there are no rows; pass a log that holds some")
    if not evidence.rows:
        raise UncurseError(f"every weight in column {columns.weight!r} is zero; give some row a positive weight")
    return evidence


class _Sums:
    """What one thread adds up."""

    def __init__(self, columns: Columns, blocks: int = _FIRST_BLOCKS, joint: Joint | None = None) -> None:
        self.columns = columns
        self.moments = Moments(columns.link, blocks)
        self.cells = Cells() if columns.has_cells else None
        self.joint = joint

    def add(self, scores: Float, labels: NDArray[Any] | None, weights: NDArray[np.float64] | None) -> None:
        if not _counts(weights):
            return  # a batch may hold nothing that counts; a log may not, which its sums will tell
        columns = self.columns
        if scores.shape[1] > 1 or self.cells is None:
            self.moments.update(scores, scale=columns.scale, sample_weight=weights, logit_offset=columns.offset)
            self.moments.blocks = min(self.moments.blocks, _LATER_BLOCKS)
        if self.cells is not None:
            served, scale = scores[:, 0], columns.scale
            if columns.offset:
                served = to_link(served.astype(np.float64), scale, "logistic") + columns.offset
                scale = "logit"
            self.cells.update(served, labels, scale=scale, sample_weight=weights)
        if self.joint is not None:
            self.joint.update(scores, labels, scale=columns.scale, sample_weight=weights, logit_offset=columns.offset)

    def merge(self, other: _Sums) -> None:
        """Add what another thread has."""
        self.moments.merge(other.moments)
        if self.cells is not None and other.cells is not None:
            self.cells.merge(other.cells)
        if self.joint is not None and other.joint is not None:
            self.joint.merge(other.joint)


def _counts(weights: NDArray[np.float64] | None) -> bool:
    return weights is None or bool(weights.any())


def _settled(
    columns: Columns, scores: Float, labels: NDArray[Any] | None, weights: NDArray[np.float64] | None
) -> Joint:
    return Joint().settle(
        scores, labels is not None, scale=columns.scale, sample_weight=weights, logit_offset=columns.offset
    )


def rows_by_group(frame: nw.DataFrame[Any], columns: Columns, joint: Joint | None = None) -> dict[str, Evidence]:
    """Evidence of each group of a frame in memory; `joint` is that of all rows, whose grid groups share."""
    scores, labels, weights = _arrays(frame, columns)
    names, members = group_rows(_names(frame, str(columns.group)), len(scores))
    groups = {}
    for name, rows in zip(names, members, strict=True):
        w = None if weights is None else weights[rows]
        if not _counts(w):
            continue
        sums = _Sums(columns, blocks=1, joint=None if joint is None else joint.like())
        sums.add(scores[rows], None if labels is None else labels[rows], w)
        groups[name] = evidence_of(columns, sums.moments, sums.cells, sums.joint)
    return groups


def evidence_of(columns: Columns, moments: Moments, cells: Cells | None, joint: Joint | None = None) -> Evidence:
    """Evidence with the names of its columns."""
    return Evidence(
        columns.scores,
        moments,
        cells,
        joint,
        scale=columns.scale,
        negative_rate=columns.negative_rate,
        label=columns.label,
        weight=columns.weight,
        group=columns.group,
    )


def _batches(frame: Frame, columns: Columns) -> Iterator[tuple[Float, NDArray[Any] | None, NDArray[np.float64] | None]]:
    if isinstance(frame, nw.DataFrame):
        if len(frame):
            yield _arrays(frame, columns)
        return
    native = frame.select(*columns.wanted).to_native()
    for batch in native.collect_batches(chunk_size=_BATCH, maintain_order=True, engine="streaming"):
        if len(batch):
            yield _arrays(nw.from_native(batch, eager_only=True), columns)


def _arrays(
    frame: nw.DataFrame[Any], columns: Columns
) -> tuple[Float, NDArray[Any] | None, NDArray[np.float64] | None]:
    """Scores (n, S), labels and weights of a frame in memory, checked for what is missing."""
    read = [_column(frame, name) for name in columns.scores]
    kind = np.result_type(*read) if all(a.dtype in (np.float32, np.float64) for a in read) else np.float64
    scores: Float = np.empty((len(frame), len(read)), kind)
    for i, array in enumerate(read):
        scores[:, i] = array
    labels = None if columns.label is None else check_labels(_column(frame, columns.label), len(frame))
    weights = None
    if columns.weight is not None:
        weights = _column(frame, columns.weight).astype(np.float64)
        if weights.any():
            weights = check_weights(weights, len(frame))
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


__all__ = ["Frame", "Progress", "evidence_of", "rows_by_group", "stream"]
