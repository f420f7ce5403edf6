"""Train replicas side by side: one step for all of them, data on the device, the whole step in one CUDA graph."""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..links import UncurseError, check_choice, check_count
from .checkpoints import load_checkpoint, save_checkpoint
from .data import Clicks
from .modules import stack_modules
from .optimisers import make_optimiser
from .stack import Stack

PRECISIONS = ("tf32", "float32", "bf16")
_SCORED = 1 << 18  # rows times replicas that are scored at a time
_WARM = 3  # steps before a CUDA graph is captured: libraries make themselves ready in them

Dataset = Clicks | Sequence[Any]


@dataclass(frozen=True)
class Plan:
    """How to train. What becomes of a replica depends on its seed, not on who trains beside it."""

    n_replicas: int = 2
    epochs: int = 1
    batch_size: int = 128
    optimiser: str = "sgd"  # or "adam"
    rate: float = 0.1
    seed: int = 0  # of the first replica; the second has the next
    bootstrap: bool = False
    precision: str = "tf32"
    deterministic: bool = False

    def __post_init__(self) -> None:
        for name in ("n_replicas", "epochs", "batch_size"):
            check_count(getattr(self, name), name)
        check_choice("optimiser", self.optimiser, ("sgd", "adam"))
        check_choice("precision", self.precision, PRECISIONS)
        if not 0 < self.rate < np.inf:
            raise UncurseError(f"rate={self.rate}; pass a learning rate above 0, such as 0.1")

    @property
    def seeds(self) -> list[int]:
        """One for each replica."""
        return [self.seed + r for r in range(self.n_replicas)]


@dataclass(frozen=True)
class Progress:
    """Where a training stands."""

    step: int
    steps: int
    rows_per_second: float  # of all replicas together
    loss: float  # log loss since the last report, mean over replicas


def train_replicas(
    model: Any,
    dataset: Dataset,
    *,
    n_replicas: int = 2,
    epochs: int = 1,
    batch_size: int = 128,
    optimiser: str = "sgd",
    rate: float = 0.1,
    seed: int = 0,
    bootstrap: bool = False,
    precision: str = "tf32",
    deterministic: bool = False,
    rows: Sequence[Any] | None = None,
    device: Any = None,
    cuda_graph: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 20_000,
    progress: Callable[[Progress], None] | None = None,
) -> Replicas:
    """Train models that differ in their seed, side by side: a second one costs a tenth more, not twice as much.

    Parameters
    ----------
    model
        `DLRM()`, `XDeepFM()`, or a function without arguments that makes an `nn.Module`: inputs to logits, (B,) or
        (B, 1). Modules are stacked by `torch.func`, so all of them must have the same shapes; what reads values to
        decide what to do (``.item()``, an ``if`` on a tensor), sparse gradients, `nn.EmbeddingBag` and recurrent
        layers cannot be stacked, and embeddings of your own get dense gradients, slow where tables are large.
    dataset
        `Clicks`, or arrays or tensors: the inputs, then the labels (0 or 1). It is moved to the device whole.
    n_replicas, seed
        Replica r has the seed ``seed + r``: its own initial weights and its own order of rows.
    optimiser, rate
        ``"sgd"``, without momentum, or ``"adam"``, which leaves embeddings alone that the batch does not look up.
    bootstrap
        A Poisson(1) weight for every replica and row, in place of a sample with replacement.
    precision
        Of matrix products on a GPU: ``"tf32"``, ``"float32"`` or ``"bf16"``. Weights stay float32.
    deterministic
        The same logits to the last bit in every run on the same machine; on a GPU slower.
    rows
        For each replica the rows that it is trained on, where they are not all: as many for each.
    checkpoint, checkpoint_every
        A file that a killed training goes on from, and how many steps lie between two of them.
    progress
        Called about once a second; by default a bar where standard error is a terminal.

    Returns
    -------
    Replicas
        ``.logits(dataset)`` is an (n, n_replicas) array for `VAD().fit`.

    Examples
    --------
    >>> x = torch.randn(512, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0).float()
    >>> fit = train_replicas(lambda: torch.nn.Linear(3, 1), (x, y), n_replicas=2, epochs=3)
    >>> fit.logits((x,)).shape
    (512, 2)
    """
    plan = Plan(n_replicas, epochs, batch_size, optimiser, rate, seed, bootstrap, precision, deterministic)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        inputs, label = _tensors(dataset, device)
        if hasattr(model, "stack"):
            if not isinstance(dataset, Clicks):
                raise UncurseError(f"{type(model).__name__} is trained on Clicks, not on {type(dataset).__name__}")
            _check_codes(inputs[1], dataset.sizes)
            stack: Stack = model.stack(dataset.sizes, inputs[0].shape[1], plan.seeds, device)
        else:
            stack = stack_modules(model, plan.seeds, device)
        run = _Run(stack, plan, inputs, label, rows, cuda_graph and device.type == "cuda" and not deterministic)
        name = repr(model) if hasattr(model, "stack") else "module"
        about = {"model": name, **asdict(plan), "data": run.fingerprint()}
        with _bar(progress) as report, _settings(plan, device.type == "cuda"):
            run.train(report, about, checkpoint, checkpoint_every)
    except torch.cuda.OutOfMemoryError as error:
        raise UncurseError(
            f"{n_replicas} replicas do not fit into the memory of {torch.cuda.get_device_name(device)}; train fewer at "
            "a time (seed= goes on where the last ended), or with smaller tables"
        ) from error
    return Replicas(stack, plan, run.losses)


class Replicas:
    """Trained replicas; the first is the one to serve."""

    def __init__(self, stack: Stack, plan: Plan, losses: NDArray[np.float64]) -> None:
        self._stack, self.plan = stack, plan
        self.losses = losses  # (epochs, replicas): mean log loss of the training rows as they came

    def __repr__(self) -> str:
        last = self.losses[-1]
        return f"Replicas({self.plan.n_replicas}, log loss {last.min():.4f} to {last.max():.4f} in the last epoch)"

    @property
    def weights(self) -> dict[str, Tensor]:
        """Stacked weights by name, replicas first; for `DLRM` and `XDeepFM` "table" holds their embeddings."""
        kept = {name: w.detach() for name, w in self._stack.weights.items()}
        if len(self._stack.table):
            kept["table"] = self._stack.table.view(self.plan.n_replicas, -1, self._stack.table.shape[1])
        return kept

    def module(self, replica: int = 0) -> Any:
        """One of your own networks with its trained weights."""
        return self._stack.module(replica)

    def logits(self, dataset: Dataset) -> NDArray[np.float32]:
        """Logits of every replica, (n, n_replicas); labels in the data set are not looked at."""
        inputs = _inputs(dataset, self._stack.inputs)
        n, device = len(inputs[0]), self._stack.device
        step = max(1, _SCORED // self.plan.n_replicas)
        out = np.empty((n, self.plan.n_replicas), np.float32)
        with torch.no_grad(), _settings(self.plan, device.type == "cuda"):
            for start in range(0, n, step):
                part = [_tensor(x[start : start + step]).to(device)[None] for x in inputs]
                out[start : start + step] = self._stack.scores(*part).T.cpu().numpy()
        return out


class _Run:
    """One training: buffers that stay where they are, and the step that a CUDA graph repeats."""

    def __init__(
        self,
        stack: Stack,
        plan: Plan,
        inputs: list[Tensor],
        label: Tensor,
        rows: Sequence[Any] | None,
        graph: bool,
    ) -> None:
        self.stack, self.plan, self.inputs, self.label, self.graph = stack, plan, inputs, label, graph
        stack.inputs = len(inputs)
        device, r = stack.device, plan.n_replicas
        if plan.precision == "bf16":
            stack.dtype = torch.bfloat16
        self.rows = None if rows is None else _check_rows(rows, r, len(label), device)
        self.n = len(label) if self.rows is None else self.rows.shape[1]
        self.optimiser = make_optimiser(plan.optimiser, stack, plan.rate)
        self.whole, rest = divmod(self.n, plan.batch_size)  # a last batch of fewer rows is a step too
        self.per_epoch = self.whole + (rest > 0)
        self.losses = np.zeros((plan.epochs, r))
        self.loss = torch.zeros(r, device=device, dtype=torch.float64)  # sum over rows since the epoch began
        self.place = torch.zeros(1, device=device, dtype=torch.long)
        self.order = torch.empty(max(1, self.whole), r, min(plan.batch_size, self.n), dtype=torch.int32, device=device)
        self.weight = None
        if plan.bootstrap:
            self.weight = torch.empty(r, len(label), dtype=torch.uint8, device=device)
            ones = torch.ones(len(label), device=device)
            for row, seed in zip(self.weight, plan.seeds, strict=True):
                row.copy_(torch.poisson(ones, generator=_generator(device, seed, 1)))
        self.captured: Any = None

    def fingerprint(self) -> str:
        """A few figures that tell other data from these."""
        crc = zlib.crc32(self.label.cpu().numpy().tobytes())
        for x in self.inputs:
            crc = zlib.crc32(x[:: max(1, len(x) // 1000)].cpu().contiguous().numpy().tobytes(), crc)
        rows = None if self.rows is None else self.rows.sum(1).tolist()
        return json.dumps([len(self.label), self.n, crc, rows])

    def state(self) -> dict[str, Tensor]:
        """All that a step changes."""
        return {**self.stack.state(), **self.optimiser.state(), "loss": self.loss}

    def train(self, report: Any, about: dict[str, Any], checkpoint: Any, every: int) -> None:
        """Every step from where a checkpoint left off to the end."""
        plan, total = self.plan, self.per_epoch * self.plan.epochs
        losses = torch.zeros(plan.epochs, plan.n_replicas, dtype=torch.float64)
        state = {**self.state(), "losses": losses}
        done = 0 if checkpoint is None else load_checkpoint(checkpoint, about, state)
        clock = _Clock(report, total, plan.n_replicas)
        while done < total:
            epoch, first = divmod(done, self.per_epoch)
            if first == 0:
                self.loss.zero_()
            tail = self.shuffle(epoch)
            self.place.fill_(first)
            for step in range(first, self.per_epoch):
                self.stack.reseed(plan.seed, done)
                if step < self.whole:
                    self.advance()
                else:
                    self.step(tail)
                done += 1
                if step + 1 == self.per_epoch:
                    losses[epoch] = self.loss.cpu() / self.n
                    _check_finite(losses[epoch], epoch, plan)
                if checkpoint is not None and (done % every == 0 or done == total):
                    save_checkpoint(checkpoint, about, done, state)
                clock.tick(done, step + 1 == self.per_epoch, self.loss, min(self.n, (step + 1) * plan.batch_size))
        self.losses = losses.numpy()

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
            return self.next()
        if self.captured is None:
            self.captured = 0
        if isinstance(self.captured, int):
            if self.captured < _WARM:
                side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    self.next()
                torch.cuda.current_stream().wait_stream(side)
                self.captured += 1
                return None
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.next()
            self.captured = graph
        self.captured.replay()
        return None

    def next(self) -> None:
        """A step of the batch at `place`, which moves on."""
        self.step(self.order.index_select(0, self.place)[0])
        self.place += 1

    def step(self, index: Tensor) -> None:
        """Rows (R, B) in, weights changed."""
        inputs = [_gather(x, index) for x in self.inputs]
        y = self.label[index].float()
        z = self.stack.logits(*inputs)
        with torch.no_grad():
            # The log loss and its gradient by hand: a few kernels fewer.
            g = torch.sigmoid(z) - y
            loss = torch.nn.functional.softplus(z) - y * z
            if self.weight is not None:
                w = self.weight.gather(1, index.long())
                g, loss = g * w, loss * w
            g /= index.shape[1]
            self.loss += loss.sum(1)
        z.backward(g)  # type: ignore[no-untyped-call]
        self.optimiser.step()


def _check_finite(losses: Tensor, epoch: int, plan: Plan) -> None:
    lost = torch.nonzero(~torch.isfinite(losses)).flatten().tolist()
    if lost:
        raise UncurseError(
            f"the log loss of replica {lost[0]} is {float(losses[lost[0]])} in epoch {epoch + 1}: the training has "
            f"diverged at rate={plan.rate}; lower it, and look for infinite or huge inputs"
        )


def _gather(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:])


class _Clock:
    """Tells how it goes about once a second, and when an epoch ends: reading the loss makes the host wait."""

    def __init__(self, report: Callable[[Progress], None] | None, total: int, replicas: int) -> None:
        self.report, self.total, self.replicas = report, total, replicas
        self.then, self.loss, self.rows = time.perf_counter(), 0.0, 0

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
def _bar(progress: Callable[[Progress], None] | None) -> Iterator[Callable[[Progress], None] | None]:
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


@contextmanager
def _settings(plan: Plan, cuda: bool) -> Iterator[None]:
    """The process's settings for as long as we run."""
    precision, exact = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    # On a CPU "high" may mean bf16.
    torch.set_float32_matmul_precision("high" if cuda and plan.precision != "float32" else "highest")
    torch.use_deterministic_algorithms(plan.deterministic or exact)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(exact)


def _generator(device: torch.device, seed: int, purpose: int) -> torch.Generator:
    """Streams that do not meet: the first draw of a seed is its weights."""
    mixed = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(mixed))


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # a file mapped read-only is copied


def _parts(dataset: Dataset) -> list[Any]:
    if isinstance(dataset, Clicks):
        return [dataset.dense, dataset.codes, dataset.label]
    if hasattr(dataset, "tensors"):  # a TensorDataset
        return list(dataset.tensors)
    if isinstance(dataset, tuple | list):
        return list(dataset)
    raise UncurseError(f"a data set is Clicks or (inputs, …, labels), not {type(dataset).__name__}")


def _inputs(dataset: Dataset, count: int) -> list[Any]:
    parts = _parts(dataset)
    if not count <= len(parts) <= count + 1:
        raise UncurseError(f"the network takes {count} inputs and the data set has {len(parts)}; labels may follow")
    return parts[:count]


def _tensors(dataset: Dataset, device: torch.device) -> tuple[list[Tensor], Tensor]:
    *inputs, label = [_tensor(part).to(device) for part in _parts(dataset)]
    if not inputs:
        raise UncurseError("the data set has labels and no inputs; pass (inputs, …, labels)")
    label = label.reshape(-1)
    if not len(label):
        raise UncurseError("the data set has no rows; pass some to train on")
    for i, x in enumerate(inputs):
        if len(x) != len(label):
            raise UncurseError(f"input {i} has {len(x)} rows, the labels have {len(label)}; pass one of each for a row")
    if not bool(((label == 0) | (label == 1)).all()):
        raise UncurseError(f"labels must be 0 or 1; found {float(label[(label != 0) & (label != 1)][0]):g}")
    return inputs, label


def _check_codes(codes: Tensor, sizes: Sequence[int]) -> None:
    """A code beyond its category would look up a row of the next."""
    for field, size in enumerate(sizes):
        low, high = (int(v) for v in codes[:, field].aminmax())
        if low < 0 or high >= size:
            raise UncurseError(
                f"category {field} has codes from {low} to {high} and a size of {size}; codes are 0 to size − 1"
            )


def _check_rows(rows: Sequence[Any], replicas: int, n: int, device: torch.device) -> Tensor:
    if len(rows) != replicas:
        raise UncurseError(f"rows for {len(rows)} replicas, and there are {replicas}; pass one array for each")
    parts = [_tensor(part).to(device=device, dtype=torch.int32) for part in rows]
    counts = {len(part) for part in parts}
    if len(counts) != 1 or 0 in counts:
        raise UncurseError(f"replicas have {sorted(counts)} rows; each needs as many as the others, and at least one")
    stacked = torch.stack(parts)
    if int(stacked.min()) < 0 or int(stacked.max()) >= n:
        raise UncurseError(f"rows must be 0 to {n - 1}; found {int(stacked.min())} to {int(stacked.max())}")
    return stacked


__all__ = ["PRECISIONS", "Plan", "Progress", "Replicas", "train_replicas"]
