"""Train R models of one shape as one: a step of R models launches as many kernels as a step of one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ..validation import warn_user
from .models import ClickModel


class Stack:
    """Stacked weights of R models, and how a step changes them."""

    scored = 1 << 17  # rows times replicas that are scored at a time: a gigabyte or two
    sizes: tuple[int, ...] = ()  # codes of each field, where the models have a table
    table: Tensor | None = None  # embeddings of all models, (R · codes, width)
    # If set, the backward pass is exact SGD itself: a weight is changed where its gradient is made, which is then never
    # written. If not, weights and looked-up rows are left with gradients for an optimiser.
    rate: float | None = None
    touched: tuple[Tensor, Tensor] | None = None  # places in the table that were looked up, and their rows

    def __init__(self, replicas: int, device: torch.device) -> None:
        self.replicas, self.device = replicas, device
        if device.type == "cuda":
            self.scored = 4 * self.scored  # fewer, larger kernels
        self.weights: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}  # numbers that no gradient changes, such as means of batches
        self.widths: list[tuple[int, ...]] = []  # shapes of a row of each input, as trained on

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of inputs (R or 1, B, …): for training if gradients are enabled, else for scoring."""
        raise NotImplementedError

    def module(self, replica: int) -> nn.Module:
        """Return one replica as a module of its own."""
        raise NotImplementedError

    def reseed(self, seed: int, step: int) -> None:
        """Prepare a step of networks that draw random numbers."""

    def state(self) -> dict[str, Tensor]:
        """Return all that training changes, by name."""
        return {**self.weights, **self.buffers, **({} if self.table is None else {"table": self.table})}

    def with_state(self, state: dict[str, Tensor]) -> Stack:
        """Return a stack of the same models with other weights."""
        made = copy.copy(self)
        made.weights = {name: state[name].to(self.device) for name in self.weights}
        made.buffers = {name: state[name].to(self.device) for name in self.buffers}
        if self.table is not None:
            made.table = state["table"].to(self.device)
        return made


class ClickStack(Stack):
    """A stack of click models: weights (R, in, out), biases (R, 1, out), one table with rows of `width` numbers."""

    table: Tensor

    def __init__(
        self, model: ClickModel, width: int, replicas: int, device: torch.device, padded_inputs: dict[str, int]
    ) -> None:
        super().__init__(replicas, device)
        self.model: Any = copy.deepcopy(model).to_empty(device="meta")  # its shape
        self.sizes, self.dtype = model.sizes, next(model.parameters()).dtype  # of activations
        place: dict[str, Any] = {"device": device, "dtype": self.dtype}
        self.table = torch.empty(replicas * sum(self.sizes), width, **place)
        for name, layer in _linear_layers(model).items():
            inputs, outputs = padded_inputs.get(name, layer.in_features), layer.out_features  # padding stays zero
            self.weights[f"{name}.weight"] = torch.zeros(replicas, inputs, outputs, requires_grad=True, **place)
            if layer.bias is not None:
                self.weights[f"{name}.bias"] = torch.zeros(replicas, 1, outputs, requires_grad=True, **place)
        starts = torch.tensor([0, *self.sizes[:-1]]).cumsum(0).to(device)
        first = torch.arange(replicas, device=device) * sum(self.sizes)
        self._offsets = starts + first[:, None, None]  # (R, 1, F)

    def __repr__(self) -> str:
        return repr(self.model)

    def places(self, model: Any, replica: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each parameter of a plain model with its place in the stack."""
        for name, layer in _linear_layers(model).items():
            yield layer.weight, self.weights[f"{name}.weight"].detach()[replica, : layer.in_features].T
            if layer.bias is not None:
                yield layer.bias, self.weights[f"{name}.bias"].detach()[replica, 0]
        mine = self.table.view(self.replicas, sum(self.sizes), -1)[replica]
        for table, place in zip(model.embeddings, torch.split(mine, list(self.sizes)), strict=True):
            yield table.weight, place[:, -table.embedding_dim :]

    @torch.no_grad()
    def load(self, model: nn.Module, replica: int) -> None:
        """Copy the weights of a plain model into the stack."""
        for parameter, place in self.places(model, replica):
            place.copy_(parameter)

    @torch.no_grad()
    def module(self, replica: int) -> nn.Module:
        """Return one replica as a plain model."""
        model: nn.Module = copy.deepcopy(self.model).to_empty(device=self.device)
        for parameter, place in self.places(model, replica):
            parameter.copy_(place)
        return model.eval()

    @property
    def without_gradients(self) -> bool:
        """Whether no gradient is kept: the backward pass is SGD itself, or rows are only scored."""
        return self.rate is not None or not torch.is_grad_enabled()

    def linear(self, name: str, x: Tensor, *, relu: bool) -> Tensor:
        """(R or 1, B, in) to (R, B, out)."""
        w, b = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        if self.without_gradients:
            y: Tensor = _SgdLinear.apply(x, w, b, relu, self.rate)  # type: ignore[no-untyped-call]
            return y
        y = torch.baddbmm(b.to(x.dtype), x.expand(len(w), -1, -1), w.to(x.dtype))
        return y.relu() if relu else y

    def index(self, codes: Tensor) -> Tensor:
        """Where in the table the codes of every model are, (R, B, F)."""
        return (self._offsets + codes).contiguous()  # the kernels read it row by row, however codes lie in memory

    def lookup(self, codes: Tensor) -> Tensor:
        """(R or 1, B, F) to rows of the table (R, B, F, width)."""
        index = self.index(codes)
        if self.without_gradients:
            wants_gradient = next(iter(self.weights.values()))  # or autograd would not call the backward
            rows: Tensor = _SgdRows.apply(wants_gradient, self.table, index, self.rate)  # type: ignore[no-untyped-call]
        else:
            rows = self.table[index].requires_grad_()
            self.touched = index, rows
        return rows.to(self.dtype)


def fused(values: Tensor) -> Any:
    """Return the kernels for tensors like this one, or None: on a CPU, in float64, or if results must repeat."""
    if not values.is_cuda or values.dtype == torch.float64 or torch.are_deterministic_algorithms_enabled():
        return None
    return _kernels()


@cache  # one warning is enough
def _kernels() -> Any:
    try:
        from . import kernels
    except ImportError as error:
        warn_user(f"the GPU kernels cannot be loaded ({error}), so training is slower; install triton")
        return None
    return kernels


def _linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return linear layers by the name of their stacked weights: `top.1` is the second of the part `top`."""
    found: dict[str, nn.Linear] = {}
    for part, module in model.named_children():
        layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
        found |= {part if layer is module else f"{part}.{i}": layer for i, layer in enumerate(layers)}
    found.pop("out", None)  # of XDeepFM: a bias alone
    return found


def padded(width: int) -> int:
    """Return the next multiple of eight, which tensor cores want."""
    return -(-width // 8) * 8


class _SgdLinear(torch.autograd.Function):
    """A stacked linear layer (and ReLU) whose backward is its own SGD step: w ← w − rate · xᵀg, in one kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, relu: bool, rate: float) -> Tensor:
        """(R, B, in) to (R, B, out)."""
        kernels = fused(x)
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
        (g,) = gradients
        x, y = ctx.saved_tensors
        w, b, rate = ctx.w, ctx.b, ctx.rate
        kernels = fused(g)
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
    def forward(ctx: Any, wants_gradient: Tensor, table: Tensor, index: Tensor, rate: float) -> Tensor:
        ctx.table, ctx.rate = table, rate
        ctx.save_for_backward(index)
        return table.index_select(0, index.view(-1)).view(*index.shape, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
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
