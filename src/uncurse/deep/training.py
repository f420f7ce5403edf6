"""Train replicas side by side: one step for all of them, data on the device, the whole step in one CUDA graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UncurseError
from ..validation import check_count
from .inputs import Dataset, check_finite, check_weights, inputs_of, pick_device, tensor, tensors_of
from .plan import Plan
from .run import Progress, Run, bar_or
from .stack import Stack, stack_modules


def train_replicas(
    model: Any,
    dataset: Dataset,
    *,
    n_replicas: int = 2,
    epochs: int = 1,
    batch_size: int = 128,
    optimiser: str = "sgd",
    rate: float = 0.1,
    final_rate: float | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    seed: int = 0,
    bootstrap: bool = False,
    snapshots: Sequence[float] = (),
    precision: str = "tf32",
    deterministic: bool = False,
    rows: Sequence[Any] | None = None,
    sample_weight: Any = None,
    device: Any = None,
    cuda_graph: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_snapshot: Callable[[float, Replicas], None] | None = None,
) -> Replicas:
    """Train models that differ in their seed, side by side: on a GPU a second one costs a few percent, not double.

    Parameters
    ----------
    model : callable
        A function without arguments that makes an `nn.Module`: inputs to logits, (B,) or (B, 1). Modules are stacked
        by `torch.func`, so all of them must have the same shapes. Code that reads values to decide what to do
        (``.item()``, an ``if`` on a tensor), sparse gradients, `nn.EmbeddingBag` and recurrent layers cannot be
        stacked. Embeddings of your own get dense gradients, which is slow if tables are large. Tensors that are neither
        parameters nor buffers are the first replica's for all.
    dataset : sequence of arrays
        Arrays or tensors: the inputs, then the labels (0 or 1). It is moved to the device whole.
    n_replicas, seed : int
        Replica r has the seed ``seed + r``: its own initial weights and its own order of rows. It is the same replica
        whoever trains beside it, except for dropout, which is drawn for all together (on a GPU from PyTorch's global
        stream).
    epochs, batch_size : int
        Passes over the rows, and rows of a step.
    optimiser : {"sgd", "adam"}
        As in `torch.optim`.
    rate, momentum, weight_decay : float
        Of the optimiser. Momentum is for SGD.
    final_rate : float, optional
        If given, the learning rate falls (or rises) linearly to it, in twenty equal parts of the steps.
    bootstrap : bool
        If true, the first replica is trained on all rows, and each of the others with Poisson(1) weights of the rows
        in place of a sample with replacement. Pass ``replicas="bootstrap"`` to `Auto`, `Tower` or `VAD` then, and
        ``replicas="seeds"`` otherwise.
    snapshots : sequence of float
        Shares of the steps, such as ``(0.8, 0.9)``, after which all replicas are also kept as they are then. See
        `Replicas.logits`. Earlier versions of the served replica are replicas without a second training
        (``replicas="snapshots"``). Each takes as much memory as the replicas, on the GPU if there is room.
    precision : {"tf32", "float32", "bf16"}
        Of matrix products on a GPU; ``"bf16"`` is for the click models of `uncurse_lab`. Weights stay float32.
    deterministic : bool
        If true, the logits are the same to the last bit in every run on the same machine. On a GPU this is slower, and
        PyTorch may ask for the environment variable ``CUBLAS_WORKSPACE_CONFIG``.
    rows : sequence of arrays, optional
        For each replica the rows that it is trained on, as many for each. By default all rows.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows in the loss. Only their ratios matter.
    device : str or torch.device, optional
        By default the GPU if there is one.
    cuda_graph : bool
        If true, a step on a GPU is captured once and replayed.
    checkpoint, checkpoint_every : path and int, optional
        A file from which a killed training resumes, and how many steps lie between two of them; by default a minute,
        or more if writing it takes longer than a second or two.
    progress : callable, optional
        Called about once a second; by default a bar if standard error is a terminal.
    on_snapshot : callable, optional
        Called with the share of the steps and the replicas as they are then, to score them at once. Snapshots are then
        not kept, which saves memory. A training that resumes from a checkpoint does not repeat earlier calls.

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
    shares: Any = (snapshots,) if isinstance(snapshots, Real) else tuple(snapshots)
    plan = Plan(
        n_replicas, epochs, batch_size, optimiser, rate, final_rate, momentum, weight_decay, seed, bootstrap,
        shares, precision, deterministic,
    )  # fmt: skip
    device = pick_device(device)
    try:
        inputs, label = tensors_of(dataset, device)
        with plan.settings(device):
            stack = stack_modules(model, dataset, plan.seeds, device)
        weight = None if sample_weight is None else check_weights(sample_weight, len(label), device)
        every = None if checkpoint_every is None else check_count(checkpoint_every, "checkpoint_every")
        graph = cuda_graph and device.type == "cuda" and not deterministic
        run = Run(stack, plan, inputs, label, rows=rows, weight=weight, graph=graph)
        if on_snapshot is not None:
            run.on_snapshot = lambda share: on_snapshot(share, Replicas(run))
        else:
            run.make_room()
        work = sum(w.numel() for w in stack.weights.values()) * min(plan.batch_size, run.n)  # of a step
        with bar_or(progress) as report, plan.settings(device, work), torch.enable_grad():
            run.train(report, checkpoint, every)
    except torch.cuda.OutOfMemoryError as error:
        raise UncurseError(
            f"{n_replicas} replicas do not fit into the memory of {torch.cuda.get_device_name(device)}; train fewer at "
            "a time (seed= goes on where the last ended), or with smaller tables"
        ) from error
    return Replicas(run)


class Replicas:
    """Trained replicas; the first is the one to serve.

    Attributes
    ----------
    plan : Plan
        How they were trained.
    losses : ndarray of shape (epochs, replicas)
        Mean log loss of the training rows as they came.
    began : int
        The step at which this call began: 0, or where a checkpoint had left off.
    """

    def __init__(self, run: Run) -> None:
        self._stack, self._snapshots = run.stack, run.snapshots
        self.plan, self.losses, self.began = run.plan, run.losses, run.began

    def __repr__(self) -> str:
        last = self.losses[-1]
        return f"Replicas({self.plan.n_replicas}, log loss {last.min():.4f} to {last.max():.4f} in the last epoch)"

    def module(self, replica: int = 0, *, snapshot: float | None = None) -> torch.nn.Module:
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
        count = self.plan.n_replicas
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
        n, device = len(inputs[0]), stack.device
        step = max(1, stack.scored // self.plan.n_replicas)
        out = np.empty((n, self.plan.n_replicas), np.float32)
        with torch.no_grad(), self.plan.settings(device):
            for start in range(0, n, step):
                part = [tensor(x[start : start + step]).to(device) for x in inputs]
                for i, x in enumerate(part):
                    check_finite(x, i)
                stack.check_inputs(*part)
                out[start : start + step] = stack.logits(*(x[None] for x in part)).T.contiguous().cpu().numpy()
        return out

    def _at(self, snapshot: float | None) -> Stack:
        if snapshot is None:
            return self._stack
        if snapshot not in self._snapshots:
            kept = ", ".join(map(str, self._snapshots)) or "none"
            raise UncurseError(f"snapshot={snapshot!r}, and kept are: {kept}; pass snapshots=({snapshot!r},) to train")
        return self._stack.with_state(self._snapshots[snapshot])
