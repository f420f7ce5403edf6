"""One training: every step of it, as a CUDA graph where there is a GPU, and how it goes."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UncurseError
from .checkpoints import Checkpoint
from .inputs import check_rows
from .optimisers import Adam, Optimiser, Sgd
from .plan import Plan
from .stack import Stack

_WORKING_MEMORY = 8 << 30  # bytes: scoring takes half of it
_WARM = 3  # steps before a CUDA graph is captured: libraries make themselves ready in them


@dataclass(frozen=True)
class Progress:
    """Where a training stands."""

    step: int
    steps: int
    rows_per_second: float  # of all replicas together
    loss: float  # log loss since the last report, mean over replicas


class Clock:
    """Reports progress about once a second, and when an epoch ends: reading the loss makes the host wait."""

    def __init__(self, report: Callable[[Progress], None] | None, total: int, replicas: int) -> None:
        self.report, self.total, self.replicas, self.then = report, total, replicas, time.perf_counter()

    def start(self, loss: Tensor, rows: int) -> None:
        """Begin an epoch, or go on in the midst of one that a checkpoint left."""
        self.loss, self.rows = float(loss.mean()), rows

    def tick(self, done: int, ends: bool, loss: Tensor, rows: int) -> None:
        """After every step; `loss` (its sum) and `rows` are of this epoch so far."""
        if self.report is None or not (ends or (done % 32 == 0 and time.perf_counter() - self.then > 1)):
            return
        value, now, new = float(loss.mean()), time.perf_counter(), rows - self.rows
        self.report(Progress(done, self.total, new * self.replicas / (now - self.then), (value - self.loss) / new))
        self.then, self.loss, self.rows = now, value, rows


@contextmanager
def bar_or(progress: Callable[[Progress], None] | None) -> Iterator[Callable[[Progress], None] | None]:
    """What to tell: the caller's function, or a bar where standard error is a terminal."""
    if progress is not None or not sys.stderr.isatty():
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


class Run:
    """One training: buffers that stay where they are, and the step that a CUDA graph repeats."""

    def __init__(
        self,
        stack: Stack,
        plan: Plan,
        inputs: list[Tensor],
        label: Tensor,
        *,
        rows: Sequence[Any] | None = None,
        weight: Tensor | None = None,
        graph: bool = False,
    ) -> None:
        self.stack, self.plan, self.inputs, self.label, self.graph = stack, plan, inputs, label, graph
        stack.widths = [tuple(x.shape[1:]) for x in inputs]
        device, r = stack.device, plan.n_replicas
        if plan.precision == "bf16":
            if stack.dtype is None:
                raise UncurseError("precision='bf16' is for DLRM and XDeepFM; cast inside your network instead")
            stack.dtype = torch.bfloat16
        self.rows = None if rows is None else check_rows(rows, r, len(label), device)
        self.n = len(label) if self.rows is None else self.rows.shape[1]
        if plan.optimiser == "adam":
            self.optimiser: Optimiser = Adam(stack, plan.rate, plan.weight_decay)
        else:
            self.optimiser = Sgd(stack, plan.rate, plan.momentum, plan.weight_decay)
        self.whole, rest = divmod(self.n, plan.batch_size)  # a last batch of fewer rows is a step too
        self.per_epoch = self.whole + (rest > 0)
        self.losses = np.zeros((plan.epochs, r))
        self.loss = torch.zeros(r, device=device, dtype=torch.float64)  # sum over rows since the epoch began
        self.place = torch.zeros(1, device=device, dtype=torch.long)
        self.order = torch.empty(max(1, self.whole), r, min(plan.batch_size, self.n), dtype=torch.int32, device=device)
        self.row_weight = weight
        self.bootstrap: Tensor | None = None
        if plan.bootstrap:  # Poisson(1) weights (R, rows); those of the first replica are 1
            self.bootstrap = torch.ones(r, len(label), dtype=torch.uint8, device=device)
            mean = torch.ones(len(label), device=device)
            for row, each in zip(self.bootstrap[1:], plan.seeds[1:], strict=True):
                row.copy_(torch.poisson(mean, generator=_generator(device, each, 1)))
        # The sum of weights that the mean loss of each replica is over.
        self.total = torch.tensor([self.weight_of_rows(replica) for replica in range(r)], dtype=torch.float64)
        self.on_snapshot: Callable[[float], None] = self.keep_snapshot
        self.snapshots: dict[float, dict[str, Tensor]] = {}
        self.captured: Any = 0  # steps before the CUDA graph is captured, then the graph
        self.began = 0

    def make_room(self) -> None:
        """Allocate the snapshots: on the GPU if that leaves room to work there, else on the host, which is slower."""
        state, device = self.stack.state(), self.stack.device
        size = sum(value.numel() * value.element_size() for value in state.values())
        for share in self.plan.snapshots:
            fits = device.type == "cuda" and torch.cuda.mem_get_info(device)[0] > size + _WORKING_MEMORY
            place = device if fits else torch.device("cpu")
            self.snapshots[share] = {name: torch.empty_like(value, device=place) for name, value in state.items()}

    def weights_of(self, index: Tensor) -> Tensor | None:
        """Return the weights of the rows (R, B) of a batch, or None if all are 1."""
        weight = None if self.row_weight is None else self.row_weight[index]
        if self.bootstrap is None:
            return weight
        drawn = self.bootstrap.gather(1, index.long())
        return drawn if weight is None else weight * drawn

    def weight_of_rows(self, replica: int) -> float:
        """Return the sum of the weights of a replica's rows."""
        if self.row_weight is None and self.bootstrap is None:
            return float(self.n)
        weight = torch.ones(len(self.label), device=self.stack.device, dtype=torch.float64)
        if self.row_weight is not None:
            weight *= self.row_weight
        if self.bootstrap is not None:
            weight *= self.bootstrap[replica]
        if self.rows is not None:
            weight = weight[self.rows[replica].long()]
        return max(float(weight.sum()), 1e-300)

    def describe(self) -> dict[str, Any]:
        """What tells this training from another: models, options, and of the data the rows and a check sum."""
        crc = 0
        for x in (self.label, *self.inputs, self.rows, self.row_weight):
            for part in () if x is None else torch.split(x.reshape(-1), 1 << 24):
                crc = zlib.crc32(part.cpu().numpy().tobytes(), crc)
        models = {"model": repr(self.stack), "sizes": list(self.stack.sizes)}
        options = {**asdict(self.plan), "snapshots": list(self.plan.snapshots)}
        return {**models, **options, "data": [len(self.label), self.n, crc]}

    def train(self, report: Any = None, checkpoint: Any = None, every: int | None = None) -> None:
        """Every step from where a checkpoint left off to the end."""
        plan, total = self.plan, self.per_epoch * self.plan.epochs
        state = {f"models/{name}": value for name, value in self.stack.state().items()}
        state |= {**self.optimiser.state, "run/loss": self.loss, "run/losses": torch.from_numpy(self.losses)}
        for share, kept in self.snapshots.items():
            state |= {f"snapshots/{share}/{name}": value for name, value in kept.items()}
        steps = {share: max(1, round(share * total)) for share in plan.snapshots}
        file = None if checkpoint is None else Checkpoint(checkpoint, self.describe(), every)
        self.began = done = 0 if file is None else file.load(state)
        clock, rate = Clock(report, total, plan.n_replicas), plan.rate
        while done < total:
            epoch, first = divmod(done, self.per_epoch)
            if first == 0:
                self.loss.zero_()
            tail = self.shuffle(epoch)
            self.place.fill_(first)
            clock.start(self.loss, first * plan.batch_size)
            for step in range(first, self.per_epoch):
                if plan.rate_at(done / total) != rate:
                    rate, self.captured = plan.rate_at(done / total), 0  # a captured step has the rate as a constant
                    self.optimiser.set_rate(rate)
                self.stack.reseed(plan.seed, done)
                if step < self.whole:
                    self.advance()
                else:
                    self.step(tail)
                done += 1
                for share in [share for share, at in steps.items() if at == done]:
                    self.on_snapshot(share)
                ends = step + 1 == self.per_epoch
                if ends:
                    self.end_epoch(epoch)
                if file is not None and (file.due(done) or done == total):
                    file.save(done, state)
                clock.tick(done, ends, self.loss, min(self.n, (step + 1) * plan.batch_size))

    def end_epoch(self, epoch: int) -> None:
        """Note the mean log loss of every replica; raise if one is not finite."""
        self.losses[epoch] = self.loss.cpu() / self.total
        for replica, loss in enumerate(self.losses[epoch].tolist()):
            if not np.isfinite(loss):
                raise UncurseError(
                    f"the log loss of replica {replica} is {loss} in epoch {epoch + 1}: the training has diverged at "
                    f"rate={self.plan.rate}; lower it, and look for infinite or huge inputs"
                )

    @torch.no_grad()
    def keep_snapshot(self, share: float) -> None:
        """Copy the models as they are now."""
        for name, value in self.stack.state().items():
            self.snapshots[share][name].copy_(value)

    def shuffle(self, epoch: int) -> Tensor:
        """Every replica's own order of rows for this epoch; returns the rows of the last, shorter batch."""
        size, cut = self.order.shape[2], self.whole * self.order.shape[2]
        tails = []
        for r, seed in enumerate(self.plan.seeds):
            generator = _generator(self.stack.device, seed, 2 + epoch)
            order = torch.randperm(self.n, generator=generator, device=self.stack.device, dtype=torch.int32)
            if self.rows is not None:
                order = self.rows[r][order.long()]
            if self.whole:
                self.order[:, r] = order[:cut].view(-1, size)
            tails.append(order[cut:])
        return torch.stack(tails)

    def advance(self) -> None:
        """The next whole batch: as a CUDA graph where there is one, captured after a few steps."""
        if not self.graph:
            self.next()
        elif isinstance(self.captured, int) and self.captured < _WARM:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.next()
            torch.cuda.current_stream().wait_stream(side)
            self.captured += 1
        else:
            if isinstance(self.captured, int):
                self.captured = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.captured):
                    self.next()
            self.captured.replay()

    def next(self) -> None:
        """A step of the batch at `place`, which moves on."""
        self.step(self.order.index_select(0, self.place)[0])
        self.place += 1

    def step(self, index: Tensor) -> None:
        """Rows (R, B) in, weights changed."""
        inputs = [x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:]) for x in self.inputs]
        z = self.stack.logits(*inputs)
        y = self.label[index].to(z.dtype)
        with torch.no_grad():
            # The log loss and its gradient by hand: a few kernels fewer.
            g = torch.sigmoid(z) - y
            loss = torch.nn.functional.softplus(z) - y * z
            weight = self.weights_of(index)
            if weight is not None:
                g, loss = g * weight, loss * weight
            g /= index.shape[1]
            self.loss += loss.sum(1)
        z.backward(g)  # type: ignore[no-untyped-call]
        self.optimiser.step()


def _generator(device: torch.device, seed: int, purpose: int) -> torch.Generator:
    """Streams that do not meet: the first draw of a seed is its weights."""
    mixed = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(mixed))
