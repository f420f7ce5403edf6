"""How a training goes: rows per second and loss, to a function or to a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor


@dataclass(frozen=True)
class Progress:
    """Where a training stands."""

    step: int
    steps: int
    rows_per_second: float  # of all replicas together
    loss: float  # log loss since the last report, mean over replicas


class Clock:
    """Tells how it goes about once a second, and when an epoch ends: reading the loss makes the host wait."""

    def __init__(self, report: Callable[[Progress], None] | None, total: int, replicas: int) -> None:
        self.report, self.total, self.replicas = report, total, replicas
        self.then, self.loss, self.rows = time.perf_counter(), 0.0, 0

    def start(self, loss: Tensor, rows: int) -> None:
        """Of an epoch, or in the midst of one that a checkpoint left."""
        if rows:
            self.loss, self.rows = float(loss.mean()), rows

    def tick(self, done: int, ends: bool, loss: Tensor, rows: int) -> None:
        """After every step; `loss` (its sum) and `rows` are of this epoch so far."""
        if self.report is None or not (ends or done % 32 == 0):
            return
        if ends or time.perf_counter() - self.then > 1:
            value, now = float(loss.mean()), time.perf_counter()
            if rows > self.rows:
                speed = (rows - self.rows) * self.replicas / (now - self.then)
                self.report(Progress(done, self.total, speed, (value - self.loss) / (rows - self.rows)))
            self.then, self.loss, self.rows = now, (0.0 if ends else value), (0 if ends else rows)


@contextmanager
def bar_or(progress: Callable[[Progress], None] | None) -> Iterator[Callable[[Progress], None] | None]:
    """What to tell: the caller's function, or a bar where standard error is a terminal."""
    if progress is not None or not sys.stderr.isatty() or find_spec("rich") is None:
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    parts = TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
    with Bar(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(p: Progress) -> None:
            text = f"{p.rows_per_second:,.0f} rows/s, log loss {p.loss:.4f}"
            bar.update(task, total=p.steps, completed=p.step, description=text)

        yield show
