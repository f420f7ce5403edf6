"""Train replicas side by side: one step for all of them, data on the device, the whole step in one CUDA graph."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UncurseError
from ..validation import check_choice, check_count
from .checkpoints import Keeper, load_checkpoint, save_checkpoint
from .data import Clicks
from .inputs import Dataset, check_codes, check_finite, check_rows, inputs_of, pick_device, tensor, tensors_of
from .modules import stack_modules
from .optimisers import make_optimiser
from .progress import Clock, Progress, bar_or
from .settings import settings, threads
from .stack import Stack

PRECISIONS = ("tf32", "float32", "bf16")
_WARM = 3  # steps before a CUDA graph is captured: libraries make themselves ready in them


@dataclass(frozen=True)
class Plan:
    """How to train. What becomes of a replica depends on its seed, not on who trains beside it (dropout apart)."""

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
            object.__setattr__(self, name, check_count(getattr(self, name), name))
        check_choice("optimiser", self.optimiser, ("sgd", "adam"))
        check_choice("precision", self.precision, PRECISIONS)
        if not isinstance(self.rate, Real) or not 0 < self.rate < np.inf:
            raise UncurseError(f"rate={self.rate!r}; pass a learning rate above 0, such as 0.1")
        if not isinstance(self.seed, Integral) or not 0 <= self.seed < 1 << 62:
            raise UncurseError(f"seed={self.seed!r}; pass a whole number from 0 on")
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "seed", int(self.seed))

    @property
    def seeds(self) -> list[int]:
        """One for each replica."""
        return [self.seed + r for r in range(self.n_replicas)]

    def settings(self, device: torch.device) -> AbstractContextManager[None]:
        """What the process is set to while this plan is carried out."""
        return settings(device, precision=self.precision, deterministic=self.deterministic)


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
    checkpoint_every: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Replicas:
    """Train models that differ in their seed, side by side: on a GPU a second one costs a few percent, not double.

    Parameters
    ----------
    model
        `DLRM()`, `XDeepFM()`, or a function without arguments that makes an `nn.Module`: inputs to logits, (B,) or
        (B, 1). Modules are stacked by `torch.func`, so all of them must have the same shapes; what reads values to
        decide what to do (``.item()``, an ``if`` on a tensor), sparse gradients, `nn.EmbeddingBag` and recurrent
        layers cannot be stacked, and embeddings of your own get dense gradients, slow where tables are large. Tensors
        that are neither parameters nor buffers are the first replica's for all.
    dataset
        `Clicks`, or arrays or tensors: the inputs, then the labels (0 or 1). It is moved to the device whole.
    n_replicas, seed
        Replica r has the seed ``seed + r``: its own initial weights and its own order of rows. It is the same
        replica whoever trains beside it, except for dropout, which is drawn for all together (on a GPU from PyTorch's
        global stream).
    optimiser, rate
        ``"sgd"``, without momentum, or ``"adam"``, which leaves embeddings alone that the batch does not look up.
    bootstrap
        A Poisson(1) weight for every replica and row, in place of a sample with replacement. The first replica has
        weights too, so all are alike: for `VAD` they are ``replicas="seeds"``, with this or without.
    precision
        Of matrix products on a GPU: ``"tf32"`` or ``"float32"``; ``"bf16"`` is for `DLRM` and `XDeepFM`, on a CPU
        too. Weights stay float32.
    deterministic
        The same logits to the last bit in every run on the same machine; on a GPU slower, and PyTorch may ask for the
        environment variable ``CUBLAS_WORKSPACE_CONFIG``.
    rows
        For each replica the rows that it is trained on, where they are not all: as many for each.
    checkpoint, checkpoint_every
        A file that a killed training goes on from, and how many steps lie between two of them; by default a minute,
        or more where writing it takes longer than a second or two.
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
    device = pick_device(device)
    if isinstance(model, type) and hasattr(model, "stack"):
        model = model()  # DLRM for DLRM()
    try:
        inputs, label = tensors_of(dataset, device)
        if hasattr(model, "stack"):
            if not isinstance(dataset, Clicks):
                raise UncurseError(f"{type(model).__name__} is trained on Clicks, not on {type(dataset).__name__}")
            check_codes(inputs[1], dataset.sizes)
            stack: Stack = model.stack(dataset.sizes, inputs[0].shape[1], plan.seeds, device)
        else:
            stack = stack_modules(model, plan.seeds, device)
            if precision == "bf16":
                raise UncurseError("precision='bf16' is for DLRM and XDeepFM; cast inside your network instead")
        run = _Run(stack, plan, inputs, label, rows, cuda_graph and device.type == "cuda" and not deterministic)
        about = {"model": repr(model if hasattr(model, "stack") else stack), "sizes": list(stack.sizes), **asdict(plan)}
        with bar_or(progress) as report, plan.settings(device), threads(device, run.work), torch.enable_grad():
            every = None if checkpoint_every is None else check_count(checkpoint_every, "checkpoint_every")
            run.train(report, about, checkpoint, every)
    except torch.cuda.OutOfMemoryError as error:
        raise UncurseError(
            f"{n_replicas} replicas do not fit into the memory of {torch.cuda.get_device_name(device)}; train fewer at "
            "a time (seed= goes on where the last ended), or with smaller tables"
        ) from error
    return Replicas(stack, plan, run.losses, run.began)


class Replicas:
    """Trained replicas; the first is the one to serve."""

    def __init__(self, stack: Stack, plan: Plan, losses: NDArray[np.float64], began: int) -> None:
        self._stack, self.plan = stack, plan
        self.began = began  # at this step: 0, or where a checkpoint had left off
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

    def module(self, replica: int = 0) -> torch.nn.Module:
        """A trained replica as a plain module: your own network, or a `DLRM` or `XDeepFM` of (numbers, codes)."""
        return self._stack.module(replica)

    def logits(self, dataset: Dataset) -> NDArray[np.float32]:
        """Logits of every replica, (n, n_replicas); labels in the data set are not looked at."""
        stack = self._stack
        inputs = inputs_of(dataset, stack)
        n, device = len(inputs[0]), stack.device
        step = max(1, stack.scored // self.plan.n_replicas)
        out = np.empty((n, self.plan.n_replicas), np.float32)
        with torch.no_grad(), self.plan.settings(device):
            for start in range(0, n, step):
                part = [tensor(x[start : start + step]).to(device) for x in inputs]
                for i, x in enumerate(part):
                    check_finite(x, i)
                if stack.sizes:
                    check_codes(part[1], stack.sizes)
                out[start : start + step] = stack.scores(*(x[None] for x in part)).T.cpu().numpy()
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
        stack.widths = [tuple(x.shape[1:]) for x in inputs]
        device, r = stack.device, plan.n_replicas
        if plan.precision == "bf16":
            stack.dtype = torch.bfloat16
        self.rows = None if rows is None else check_rows(rows, r, len(label), device)
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
        self.total = torch.full((r,), float(self.n), dtype=torch.float64)  # what a mean of losses is over
        if self.weight is not None:
            chosen = self.weight if self.rows is None else self.weight.gather(1, self.rows.long())
            self.total = chosen.sum(1, dtype=torch.float64).cpu().clamp(min=1)
        self.captured: Any = None
        self.began = 0

    @property
    def work(self) -> int:
        """Of a step: weights times rows."""
        return sum(w.numel() for w in self.stack.weights.values()) * self.order.shape[2]

    def fingerprint(self) -> list[int]:
        """Figures that tell other data from these: rows, and a check sum of everything."""
        crc = 0
        for x in [self.label, *self.inputs] + ([] if self.rows is None else [self.rows]):
            for part in torch.split(x.reshape(-1), 1 << 24):
                crc = zlib.crc32(part.cpu().numpy().tobytes(), crc)
        return [len(self.label), self.n, crc]

    def state(self) -> dict[str, Tensor]:
        """All that a step changes."""
        models = {f"models/{name}": value for name, value in self.stack.state().items()}
        return {**models, **self.optimiser.state(), "run/loss": self.loss}

    def train(self, report: Any, about: dict[str, Any], checkpoint: Any, every: int | None) -> None:
        """Every step from where a checkpoint left off to the end."""
        plan, total = self.plan, self.per_epoch * self.plan.epochs
        losses = torch.zeros(plan.epochs, plan.n_replicas, dtype=torch.float64)
        state = {**self.state(), "run/losses": losses}
        done = 0
        if checkpoint is not None:
            about = {**about, "data": self.fingerprint()}
            self.began = done = load_checkpoint(checkpoint, about, state)
            keeper = Keeper(every)
        clock = Clock(report, total, plan.n_replicas)
        while done < total:
            epoch, first = divmod(done, self.per_epoch)
            if first == 0:
                self.loss.zero_()
            tail = self.shuffle(epoch)
            self.place.fill_(first)
            clock.start(self.loss, first * plan.batch_size)
            for step in range(first, self.per_epoch):
                self.stack.reseed(plan.seed, done)
                if step < self.whole:
                    self.advance()
                else:
                    self.step(tail)
                done += 1
                if step + 1 == self.per_epoch:
                    losses[epoch] = self.loss.cpu() / self.total
                    _check_finite(losses[epoch], epoch, plan)
                if checkpoint is not None and (keeper.due(done) or done == total):
                    with keeper:
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


def _generator(device: torch.device, seed: int, purpose: int) -> torch.Generator:
    """Streams that do not meet: the first draw of a seed is its weights."""
    mixed = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(mixed))


__all__ = ["PRECISIONS", "Plan", "Progress", "Replicas", "train_replicas"]
