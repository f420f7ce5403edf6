"""R models of one shape as one: stacked weights, one embedding table, and the optimiser inside the backward pass.

Models that differ only in their numbers need the same kernels. Stacked, a step of R models launches as many kernels as
a step of one, and a card that one small model leaves idle is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..validation import check_count
from .served import Served

_ALIGNED = 8  # inputs are padded to a multiple of this: tensor cores want it


class Stack:
    """Stacked weights of R models, and how a step changes them.

    Weights are (R, in, out), biases (R, 1, out), the embeddings of all models one table (R · rows, width). With
    ``rate`` set, the backward pass is exact SGD itself: a weight is changed where its gradient is made, which is then
    never written. Without, weights and looked-up rows are left with gradients for an optimiser.
    """

    #: Rows times replicas that are scored at a time: a gigabyte or two.
    scored = 1 << 17

    def __init__(self, sizes: Sequence[int], width: int, seeds: Sequence[int], device: Any) -> None:
        self.replicas, self.sizes, self.device = len(seeds), tuple(sizes), torch.device(device)
        if self.device.type == "cuda":
            self.scored = 4 * self.scored  # fewer, larger kernels
        self.rate: float | None = None
        self.dtype = torch.float32  # of activations
        self.weights: dict[str, Tensor] = {}
        self._generators = [torch.Generator(self.device).manual_seed(seed) for seed in seeds]
        self._rows = sum(self.sizes)
        self.table = torch.empty(self.replicas * self._rows, width, device=self.device)
        starts = torch.tensor([0, *self.sizes], dtype=torch.long)[:-1].cumsum(0).to(self.device)
        first = torch.arange(self.replicas, device=self.device) * self._rows
        self._offsets = starts + first[:, None, None]  # (R, 1, F)
        self.widths: list[tuple[int, ...]] = []  # shapes of a row of each input, as trained on
        self.touched: tuple[Tensor, Tensor] | None = None

    def logits(self, *inputs: Tensor) -> Tensor:
        """Inputs (R or 1, B, …), for click models numbers and codes, to logits (R, B)."""
        raise NotImplementedError

    def scores(self, *inputs: Tensor) -> Tensor:
        """Logits (R, B) of rows (1, B, …) for use, not for training."""
        return self.logits(*inputs)

    def parameters(self) -> int:
        """Of one model, without its embeddings (and without padding)."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """All that training changes, by name."""
        return {**self.weights, "table": self.table}

    def reseed(self, seed: int, step: int) -> None:
        """Before a step, for networks that draw random numbers."""

    def module(self, replica: int) -> torch.nn.Module:
        """One trained replica as a module of its own."""
        return Served(self, replica)

    # ------------------------------------------------------------------ making

    def add(
        self, name: str, inputs: int, outputs: int, weight: Draw, bias: Draw | None, rows: int | None = None
    ) -> None:
        """A linear layer, its weights and biases drawn for each model by its own generator.

        Where the input is padded with zeros to `rows`, so are the weights, and they stay zero.
        """
        w = torch.zeros(self.replicas, rows or inputs, outputs, device=self.device)
        self.draw(list(w[:, :inputs]), weight)
        self.weights[f"{name}.weight"] = w.requires_grad_()
        if bias is not None:
            b = torch.empty(self.replicas, 1, outputs, device=self.device)
            self.draw(list(b), bias)
            self.weights[f"{name}.bias"] = b.requires_grad_()

    def draw(self, parts: list[Tensor], draw: Draw) -> None:
        """Fill the part of each model."""
        for part, generator in zip(parts, self._generators, strict=True):
            draw(part, generator)

    def fields(self) -> list[tuple[int, list[Tensor]]]:
        """For every category its size, and its rows of the table in each model."""
        cut = torch.split(self.table.view(self.replicas, self._rows, -1), list(self.sizes), dim=1)
        return [(size, list(part)) for size, part in zip(self.sizes, cut, strict=True)]

    # ------------------------------------------------------------------ using

    def linear(self, name: str, x: Tensor, *, relu: bool) -> Tensor:
        """(R or 1, B, in) to (R, B, out)."""
        w, b = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        if self.rate is not None and torch.is_grad_enabled():
            y: Tensor = _SgdLinear.apply(x, w, b, relu, self.rate)  # type: ignore[no-untyped-call]
            return y
        y = torch.baddbmm(b.to(x.dtype), x.expand(len(w), -1, -1), w.to(x.dtype))
        return y.relu() if relu else y

    def index(self, codes: Tensor) -> Tensor:
        """Where in the table the codes of every model are, (R, B, F)."""
        return self._offsets + codes

    def lookup(self, codes: Tensor) -> Tensor:
        """(R or 1, B, F) to rows of the table (R, B, F, width)."""
        index = self.index(codes)
        if not torch.is_grad_enabled():
            return self.table[index].to(self.dtype)
        if self.rate is not None:
            rows: Tensor = _SgdRows.apply(self._anchor, self.table, index, self.rate)  # type: ignore[no-untyped-call]
        else:
            rows = self.table[index].requires_grad_()
            self.touched = index, rows
        return rows.to(self.dtype)

    @property
    def _anchor(self) -> Tensor:
        """Autograd calls a backward only where some input wants a gradient."""
        return next(iter(self.weights.values()))


Draw = Callable[[Tensor, torch.Generator], Any]  # fills a tensor


def gaussian(deviation: float) -> Draw:
    """Normal about zero."""
    return lambda part, generator: part.normal_(0, deviation, generator=generator)


def uniform(bound: float) -> Draw:
    """Between −bound and bound."""
    return lambda part, generator: part.uniform_(-bound, bound, generator=generator)


def fused(device: torch.device) -> Any:
    """The kernels for a GPU; None where there is none, or no Triton."""
    if device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        return None
    return _kernels()


@cache
def _kernels() -> Any:
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels


def check_widths(shape: Any) -> None:
    """Every width of a shape is a whole number from 1 on."""
    for name, value in vars(shape).items():
        if name != "deviation":
            for width in value if isinstance(value, tuple) else (value,):
                check_count(width, name)


def padded(width: int) -> int:
    """The next multiple of eight."""
    return -(-width // _ALIGNED) * _ALIGNED


class _SgdLinear(torch.autograd.Function):
    """A stacked linear layer (and ReLU) whose backward is its own SGD step: w ← w − rate · xᵀg, in one kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, relu: bool, rate: float) -> Tensor:
        """(R, B, in) to (R, B, out)."""
        kernels = fused(x.device)
        if kernels is not None:
            y = torch.bmm(x, w.to(x.dtype))
            kernels.bias_relu(y, b, relu)
        else:
            y = torch.baddbmm(b.to(x.dtype), x, w.to(x.dtype))
            if relu:
                y.relu_()
        ctx.save_for_backward(x, y if relu else None)
        ctx.w, ctx.b, ctx.rate = w, b, rate  # not saved: they are changed in place, and used before that
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x; w and b are updated here and have none."""
        (g,) = gradients
        x, y = ctx.saved_tensors
        w, b, rate = ctx.w, ctx.b, ctx.rate
        kernels = fused(g.device)
        if kernels is not None:
            g = kernels.relu_gradient(g, y, b, rate)
        else:
            if y is not None:
                g = torch.ops.aten.threshold_backward(g, y, 0)
            b.add_(g.sum(1, keepdim=True), alpha=-rate)
        gx = torch.bmm(g, w.to(g.dtype).transpose(1, 2)) if ctx.needs_input_grad[0] else None
        if g.dtype == w.dtype:
            w.baddbmm_(x.transpose(1, 2), g, alpha=-rate)
        else:
            w.add_(torch.bmm(x.transpose(1, 2), g), alpha=-rate)
        return gx, None, None, None, None


class _SgdRows(torch.autograd.Function):
    """Rows of a table; the backward adds −rate · gradient to them, once for each time that they were looked up."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: Tensor, index: Tensor, rate: float) -> Tensor:
        """Rows at `index`."""
        ctx.table, ctx.rate = table, rate
        ctx.save_for_backward(index)
        return table.index_select(0, index.view(-1)).view(*index.shape, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Updates the table."""
        (index,) = ctx.saved_tensors
        add_rows(ctx.table, index.view(-1), gradients[0].reshape(index.numel(), -1), -ctx.rate)
        return None, None, None, None


def add_rows(table: Tensor, index: Tensor, rows: Tensor, factor: float) -> None:
    """Add factor · rows to the table at `index`, repeated rows as often as they are there."""
    rows = rows.to(table.dtype)
    if table.is_cuda:
        table.index_add_(0, index, rows, alpha=factor)
    else:  # six times faster than index_add_ there
        table.scatter_add_(0, index[:, None].expand_as(rows), rows if factor == 1 else rows * factor)


__all__ = ["Draw", "Stack", "add_rows", "check_widths", "fused", "gaussian", "padded", "uniform"]
