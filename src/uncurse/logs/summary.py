"""Sum up batches of rows: running sums of each thread, and what they have seen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from ..evidence import Evidence, LogSpec
from ..evidence.from_arrays import EvidenceSums
from ..evidence.histogram import Rows
from ..threads import cores
from .rows import BATCH, Progress, Reader, Settled


@dataclass(frozen=True)
class Part:
    """What one thread or one partition has read; `low` and `high` bound the served scores."""

    rows: int = 0
    evidence: Evidence | None = None
    low: float = np.inf
    high: float = -np.inf
    left_out: Counter[str] = field(default_factory=Counter)

    def merge(self, other: Part) -> Part:
        """Return the part of the rows of both."""
        mine, theirs = self.evidence, other.evidence
        both = mine.merge(theirs) if mine is not None and theirs is not None else mine or theirs
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Part(self.rows + other.rows, both, low, high, self.left_out + other.left_out)


class Sums:
    """Running sums of all rows and of each segment."""

    def __init__(self, task: Task) -> None:
        self.task, self.reader = task, task.reader()
        self.total = EvidenceSums(task.spec)
        self.segments: dict[str, EvidenceSums] = {}
        self.waiting: dict[str, list[Rows]] = {}  # rows of segments: many at once are counted in half the time
        self.part = Part()

    def add(self, batch: pl.DataFrame) -> None:
        """Add the rows of a batch."""
        scores, labels, weights = self.reader.arrays(batch)
        served = scores[:, 0]
        self.part = self.part.merge(Part(len(batch), None, float(served.min()), float(served.max())))
        self.total.add(scores, labels, weights)
        for name, rows in self.reader.segments(batch):
            y, w = (None if column is None else column[rows] for column in (labels, weights))
            if w is None or w.any():
                self.waiting.setdefault(name, []).append((scores[rows], y, w))
        if sum(len(rows) for parts in self.waiting.values() for rows, _, _ in parts) >= 2 * BATCH:
            self._add_segments()

    def _add_segments(self) -> None:
        for name, parts in self.waiting.items():
            scores, y, w = (None if c[0] is None else np.concatenate(c) for c in zip(*parts, strict=True))
            assert scores is not None
            self.segments.setdefault(name, EvidenceSums(self.task.spec)).add(scores, y, w)
        self.waiting = {}

    def result(self) -> Part:
        """Return what was added."""
        self._add_segments()
        evidence = self.total.evidence()
        if not evidence.rows:
            return self.part
        segments = {name: sums.evidence() for name, sums in self.segments.items()}
        return replace(self.part, evidence=evidence.with_segments(segments))


@dataclass(frozen=True)
class Task:
    """What to collect; Spark sends it to its executors."""

    spec: LogSpec
    settled: Settled | None
    missing: str
    text: bool = False

    def reader(self) -> Reader:
        """Return a reader of the columns."""
        return Reader(self.spec, settled=self.settled, missing=self.missing, text=self.text)

    def of_batches(
        self, batches: Iterable[pl.DataFrame], progress: Progress | None = None, threads: int | None = None
    ) -> Part:
        """Read batches; the i-th goes to sums i mod n, so that the result does not depend on the threads."""
        reader = self.reader()
        sums = [Sums(self) for _ in range(threads or cores())]
        running: deque[Future[None]] = deque()
        with ThreadPoolExecutor(len(sums)) as pool:
            for i, batch in enumerate(batch for batch in reader.select(batches, progress) if len(batch)):
                if len(running) == len(sums):  # hold at most one batch per thread
                    running.popleft().result()
                running.append(pool.submit(sums[i % len(sums)].add, batch))
            for future in running:
                future.result()
        total = Part(left_out=reader.left_out)
        for each in sums:
            total = total.merge(each.result())
        return total
