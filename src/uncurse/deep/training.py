"""Train replicas side by side: one step for all of them, data on the device, the whole step in one CUDA graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UncurseError
from ..validation import check_choice, check_count, check_flag, check_number, check_weights
from .inputs import Dataset, check_finite, inputs_of, pick_device, tensor, tensors_of
from .stack import ModuleStack, Stack, make_modules

_WARM = 3  # steps before a CUDA graph is captured: libraries make themselves ready in them
_SMALL = 1 << 25  # weights times rows of a step that one thread does in a few milliseconds


def train_replicas(
    model: Callable[[], nn.Module],
    dataset: Dataset,
    *,
    n_replicas: int = 2,
    epochs: int = 1,
    batch_size: int = 128,
    optimizer: str = "sgd",
    learning_rate: float = 0.1,
    seed: int = 0,
    bootstrap: bool = False,
    snapshots: float | Sequence[float] = (),
    sample_weight: Any = None,
    device: Any = None,
) -> Replicas:
    """Train models that differ in their seed, side by side: on a GPU a second one costs a few percent, not double.

    On a GPU the step is one CUDA graph. After ``torch.use_deterministic_algorithms(True)`` there is no graph, and the
    logits are the same in every run. ``torch.set_float32_matmul_precision("high")`` makes large networks faster there.

    Parameters
    ----------
    model : callable
        A function without arguments that makes an `nn.Module`: inputs to logits, (B,) or (B, 1). Modules are stacked
        by `torch.func`, so all of them must have the same shapes. Code that reads values to decide what to do
        (``.item()``, an ``if`` on a tensor), sparse gradients, `nn.EmbeddingBag` and recurrent layers cannot be
        stacked. Embeddings get dense gradients, which is slow if tables are large. Tensors that are neither parameters
        nor buffers are the first replica's for all.
    dataset : sequence of arrays
        Arrays or tensors: the inputs, then the labels (0 or 1). It is moved to the device whole.
    n_replicas, seed : int
        Replica r has the seed ``seed + r``: its own initial weights and its own order of rows. It is the same replica
        whoever trains beside it, except for dropout, which is drawn for all together (on a GPU from PyTorch's global
        stream).
    epochs, batch_size : int
        Passes over the rows, and rows of a step.
    optimizer : {"sgd", "adam"}
        As in `torch.optim`.
    learning_rate : float
        Of the optimizer.
    bootstrap : bool
        If true, the first replica is trained on all rows, and each of the others with Poisson(1) weights of the rows
        in place of a sample with replacement. Pass ``replicas="bootstrap"`` to the method then, and
        ``replicas="seeds"`` otherwise.
    snapshots : float or sequence of float
        Shares of the steps, such as ``(0.8, 0.9)``, after which all replicas are also kept as they are then, in the
        host's memory. Earlier versions of the served replica are replicas without a second training
        (``replicas="snapshots"``). See `Replicas.logits`.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows in the loss. Only their ratios matter.
    device : str or torch.device, optional
        By default the GPU if there is one.

    Returns
    -------
    Replicas
        ``.logits(dataset)`` is an (n, n_replicas) array for `VAD.fit`.

    Examples
    --------
    >>> x = torch.randn(512, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0).float()
    >>> fit = train_replicas(lambda: torch.nn.Linear(3, 1), (x, y), n_replicas=2, epochs=3)
    >>> fit.logits((x,)).shape
    (512, 2)
    """
    if not callable(model) or isinstance(model, nn.Module):
        raise UncurseError(
            f"model is a {type(model).__name__}; pass a function that makes a module, such as lambda: Net(), so that "
            "every replica has weights of its own"
        )
    shares: Any = (snapshots,) if isinstance(snapshots, Real) else tuple(snapshots)  # type: ignore[arg-type]
    plan = Plan(n_replicas, epochs, batch_size, optimizer, learning_rate, seed, bootstrap, shares)

    def make_stack(device: torch.device) -> Stack:
        return ModuleStack(list(make_modules(model, plan.seeds, device)), device)

    return Run(make_stack, dataset, plan, sample_weight=sample_weight, device=device).train()


class Replicas:
    """Trained replicas; the first is the one to serve.

    Attributes
    ----------
    losses : ndarray of shape (epochs, replicas)
        Mean log loss of the training rows as they came.
    """

    def __init__(self, run: Run) -> None:
        self._stack, self._snapshots, self.losses = run.stack, run.snapshots, run.losses.numpy()

    def __repr__(self) -> str:
        last = self.losses[-1]
        return f"Replicas({len(last)}, log loss {last.min():.4f} to {last.max():.4f} in the last epoch)"

    def module(self, replica: int = 0, *, snapshot: float | None = None) -> nn.Module:
        """Return a replica as a plain module.

        Parameters
        ----------
        replica : int
            Which one; 0 is the one to serve.
        snapshot : float, optional
            As it was after this share of the steps.

        Returns
        -------
        torch.nn.Module
            In evaluation mode.
        """
        count = self._stack.replicas
        if not -count <= replica < count:
            raise UncurseError(f"replica={replica}, and there are {count}; pass 0 to {count - 1}")
        return self._at(snapshot).module(replica % count)

    def logits(self, dataset: Dataset, *, snapshot: float | None = None) -> NDArray[np.float32]:
        """Return the logits of every replica.

        Parameters
        ----------
        dataset : sequence of arrays
            Rows of the shape trained on; labels in it are ignored.
        snapshot : float, optional
            One of `snapshots` as given to `train_replicas`: score the replicas as they were after this share of the
            steps. By default, as they were at the end.

        Returns
        -------
        ndarray of shape (n, n_replicas)
            Column 0 is the replica to serve.
        """
        stack = self._at(snapshot)
        inputs = inputs_of(dataset, stack.widths)
        n, step = len(inputs[0]), max(1, stack.scored // stack.replicas)
        out = np.empty((n, stack.replicas), np.float32)
        with torch.no_grad(), _settings(stack.device):
            for start in range(0, n, step):
                part = [tensor(x[start : start + step]).to(stack.device) for x in inputs]
                for i, x in enumerate(part):
                    check_finite(x, i)
                stack.check_inputs(*part)
                out[start : start + step] = stack.logits(*(x[None] for x in part)).T.contiguous().cpu().numpy()
        return out

    def _at(self, share: float | None) -> Stack:
        if share is None:
            return self._stack
        if share not in self._snapshots:
            kept = ", ".join(map(str, self._snapshots)) or "none"
            raise UncurseError(f"snapshot={share!r}, and kept are: {kept}; pass snapshots=({share!r},) to train")
        return self._stack.with_state(self._snapshots[share])


# ---------------------------------------------------------------------------- the training of any stack


@dataclass
class Plan:
    """How to train. What becomes of a replica depends on its seed, not on who trains beside it (dropout apart)."""

    n_replicas: int = 2
    epochs: int = 1
    batch_size: int = 128
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    seed: int = 0
    bootstrap: bool = False
    snapshots: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("n_replicas", "epochs", "batch_size"):
            check_count(getattr(self, name), name)
        check_choice("optimizer", self.optimizer, ("sgd", "adam"))
        self.learning_rate = check_number(self.learning_rate, "learning_rate")
        if not self.learning_rate > 0:
            raise UncurseError(f"learning_rate={self.learning_rate:g}; pass a number above 0, such as 0.1")
        if not isinstance(self.seed, Integral) or not 0 <= self.seed < 1 << 62:
            raise UncurseError(f"seed={self.seed!r}; pass a whole number from 0 on")
        check_flag(self.bootstrap, "bootstrap")
        for share in self.snapshots:
            if not isinstance(share, Real) or not 0 < share < 1:
                raise UncurseError(f"snapshots holds {share!r}; pass shares of the steps, such as (0.8, 0.9)")

    @property
    def seeds(self) -> list[int]:
        """One for each replica."""
        return [self.seed + r for r in range(self.n_replicas)]

    def rate_at(self, progress: float) -> float:
        """Return the learning rate after a share of the steps."""
        return self.learning_rate


@contextmanager
def _settings(device: torch.device, work: int = _SMALL) -> Iterator[None]:
    """Select the GPU of graphs and kernels, or the threads that a step of this much work needs on a CPU."""
    threads = torch.get_num_threads()
    if device.type == "cpu" and work < _SMALL:  # more threads would wait for each other (60 times longer)
        torch.set_num_threads(1)
    try:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def _bar(steps: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many steps are done, on a bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=steps)
        yield lambda done: bar.update(task, completed=done)


class Run:
    """One training of any stack: buffers that stay where they are, and the step that a CUDA graph repeats.

    `rows` (R, n) are those of each replica; `on_snapshot` replaces keeping.
    """

    def __init__(
        self,
        make_stack: Callable[[torch.device], Stack],
        dataset: Dataset,
        plan: Plan,
        *,
        rows: Tensor | None = None,
        sample_weight: Any = None,
        device: Any = None,
        on_snapshot: Callable[[float, Replicas], None] | None = None,
    ) -> None:
        device, r = pick_device(device), plan.n_replicas
        self.inputs, label = tensors_of(dataset, device)
        self.weight = None  # of the rows (R, n)
        if sample_weight is not None:
            checked: Any = check_weights(tensor(sample_weight).cpu().numpy(), len(label))
            self.weight = torch.from_numpy(checked / checked.mean()).float().to(device).expand(r, -1)
        with _settings(device):
            stack = make_stack(device)
        self.stack, self.plan, self.label, self.rows = stack, plan, label, rows
        stack.widths = [tuple(x.shape[1:]) for x in self.inputs]
        stack.learning_rate = plan.learning_rate
        if plan.optimizer == "adam":
            stack.use_adam()
        self.n = len(label) if rows is None else rows.shape[1]
        self.whole, rest = divmod(self.n, plan.batch_size)  # a last batch of fewer rows is a step too
        self.per_epoch = self.whole + (rest > 0)
        self.steps = self.per_epoch * plan.epochs
        self.losses = torch.zeros(plan.epochs, r, dtype=torch.float64)
        self.loss = torch.zeros(r, device=device, dtype=torch.float64)  # sum over rows since the epoch began
        self.place = torch.zeros(1, device=device, dtype=torch.long)
        self.order = torch.empty(max(1, self.whole), r, min(plan.batch_size, self.n), dtype=torch.int32, device=device)
        if plan.bootstrap:
            drawn = torch.ones(r, len(label), dtype=torch.uint8, device=device)
            mean = torch.ones(len(label), device=device)
            for row, each in zip(drawn[1:], plan.seeds[1:], strict=True):
                row.copy_(torch.poisson(mean, generator=_generator(device, each, 1)))
            self.weight = drawn if self.weight is None else self.weight * drawn
        self.snapshots: dict[float, dict[str, Tensor]] = {}
        self.on_snapshot = on_snapshot
        graph = device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
        self.graph: Any = 0 if graph else None  # steps before it is captured, then the CUDA graph

    def train(self) -> Replicas:
        """Take every step, and return the replicas."""
        plan, stack = self.plan, self.stack
        work = sum(w.numel() for w in stack.weights.values()) * min(plan.batch_size, self.n)  # of a step
        with _bar(self.steps) as show, _settings(stack.device, work), torch.enable_grad():
            for done in range(self.steps):
                epoch, step = divmod(done, self.per_epoch)
                if step == 0:
                    tail = self.shuffle(epoch)
                rate = plan.rate_at(done / self.steps)
                if rate != stack.learning_rate:
                    stack.learning_rate, self.graph = rate, None if self.graph is None else 0  # a graph has constants
                stack.reseed(plan.seed, done)
                if step < self.whole:
                    self.advance()
                else:
                    self.step(tail)
                for share in plan.snapshots:
                    if done + 1 == max(1, round(share * self.steps)):
                        self.keep_snapshot(share)
                if step + 1 == self.per_epoch:
                    self.end_epoch(epoch)
                show(done + 1)
        return Replicas(self)

    def end_epoch(self, epoch: int) -> None:
        """Note the mean log loss of every replica; raise if one is not finite."""
        total: Any = self.n
        if self.weight is not None:
            weight = self.weight if self.rows is None else self.weight.gather(1, self.rows.long())
            total = weight.sum(1, dtype=torch.float64).clamp_min(1e-300)
        self.losses[epoch] = (self.loss / total).cpu()
        self.loss.zero_()
        for replica, loss in enumerate(self.losses[epoch].tolist()):
            if not np.isfinite(loss):
                raise UncurseError(
                    f"the log loss of replica {replica} is {loss} in epoch {epoch + 1}: the training has diverged at "
                    f"learning_rate={self.plan.learning_rate}; lower it, and look for infinite or huge inputs"
                )

    def keep_snapshot(self, share: float) -> None:
        """Copy the models as they are now, or pass them on."""
        if self.on_snapshot is not None:
            self.on_snapshot(share, Replicas(self))
        else:
            self.snapshots[share] = {name: x.detach().to("cpu", copy=True) for name, x in self.stack.state().items()}

    def shuffle(self, epoch: int) -> Tensor:
        """Draw every replica's own order of rows for an epoch; return the rows of the last, shorter batch."""
        self.place.zero_()
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
        """Take the step of the next whole batch: as a CUDA graph if there is one, captured after a few steps."""
        if self.graph is None:
            self.next()
        elif isinstance(self.graph, int) and self.graph < _WARM:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.next()
            torch.cuda.current_stream().wait_stream(side)
            self.graph += 1
        else:
            if isinstance(self.graph, int):
                self.graph = torch.cuda.CUDAGraph()
                try:
                    with torch.cuda.graph(self.graph):
                        self.next()
                except (RuntimeError, UncurseError) as error:
                    raise UncurseError(
                        f"the step of this network cannot be captured in a CUDA graph ({error}); make no tensors from "
                        "Python numbers in it, or call torch.use_deterministic_algorithms(True): it trains without one"
                    ) from error
            self.graph.replay()

    def next(self) -> None:
        """Take the step of the batch at `place`, which moves on."""
        self.step(self.order.index_select(0, self.place)[0])
        self.place += 1

    def step(self, index: Tensor) -> None:
        """Change the weights by a batch of rows (R, B)."""
        inputs = [x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:]) for x in self.inputs]
        z = self.stack.logits(*inputs)
        y = self.label[index].to(z.dtype)
        with torch.no_grad():
            # The log loss and its gradient by hand: a few kernels fewer.
            g = torch.sigmoid(z) - y
            loss = torch.nn.functional.softplus(z) - y * z
            if self.weight is not None:
                weight = self.weight.gather(1, index.long())
                g, loss = g * weight, loss * weight
            g /= index.shape[1]
            self.loss += loss.sum(1)
        z.backward(g)  # type: ignore[no-untyped-call]
        self.stack.step()


def _generator(device: torch.device, seed: int, purpose: int) -> torch.Generator:
    """Streams that do not meet: the first draw of a seed is its weights."""
    mixed = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(mixed))
