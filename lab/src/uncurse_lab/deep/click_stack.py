"""DLRM and xDeepFM replicas side by side: stacked layers whose backward pass is SGD itself, and one table."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from uncurse.deep.stack import Stack, add_rows
from uncurse.validation import warn_user

from .models import DLRM, ClickModel, XDeepFM, check_codes


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

    def check_inputs(self, *inputs: Tensor) -> None:
        """Raise UncurseError if a code is outside its field."""
        check_codes(inputs[1], self.sizes)

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


class DLRMStack(ClickStack):
    """Train `DLRM` replicas side by side; `model` has the shape of all."""

    def __init__(self, model: DLRM, replicas: int, device: torch.device) -> None:
        width, vectors = model.options["embedding"], len(model.sizes) + 1
        pairs = vectors * (vectors - 1) // 2
        self._pad_dense = padded(model.numbers) - model.numbers
        self._width = padded(width + pairs + 1)  # one to spare, see below
        inputs = {"bottom.0": padded(model.numbers), "top.0": self._width}
        super().__init__(model, width, replicas, device, inputs)
        # Strictly below the diagonal, row by row; and for each entry of the square the place of its pair in the input
        # of the top network, the diagonal's being the padding, whose gradient is zero.
        lower = torch.tril_indices(vectors, vectors, -1)
        self._lower = (lower[0] * vectors + lower[1]).to(device)
        square = torch.full((vectors, vectors), pairs)
        square[lower[0], lower[1]] = torch.arange(pairs)
        self._square = torch.minimum(square, square.T).flatten().to(device)
        kernels = fused(self.table)
        if kernels is not None and not kernels.fits(len(self.sizes), width):
            warn_user(
                f"embedding={width} with {len(self.sizes)} fields is trained without the interaction kernel, which is "
                "slower: it takes an embedding of 16, 32 or 64 and 15 to 63 fields"
            )

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of numbers and codes (R or 1, B, …)."""
        dense, codes = inputs
        x = torch.nn.functional.pad(dense, (0, self._pad_dense)).to(self.dtype)
        x = x.expand(self.replicas, -1, -1)
        for i in range(len(self.model.options["bottom"]) + 1):
            x = self.linear(f"bottom.{i}", x, relu=True)
        kernels = fused(self.table) if self.without_gradients else None
        if kernels is not None and kernels.fits(len(self.sizes), self.table.shape[1]):
            x = kernels.SgdInteract.apply(x, self.table, self.index(codes), self._width, self.rate)
        else:
            x = _Interact.apply(x, self.lookup(codes), self._lower, self._square, self._width)  # type: ignore[no-untyped-call]
        last = len(self.model.options["top"])
        for i in range(last + 1):
            x = self.linear(f"top.{i}", x, relu=i < last)
        return x.squeeze(-1).to(self.table.dtype)


class _Interact(torch.autograd.Function):
    """The bottom's output, the dot products of every two embeddings, and zeros to a full width."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, lower: Tensor, square: Tensor, width: int) -> Tensor:
        """(R, B, d) and (R, B, F, d) to (R, B, d + F(F + 1)/2 + …)."""
        r, b, f, d = rows.shape
        t = torch.cat([x.unsqueeze(2), rows], 2).view(r * b, f + 1, d)
        products = torch.bmm(t, t.transpose(1, 2)).view(r, b, -1)
        ctx.save_for_backward(t, square)
        zeros = x.new_zeros(()).expand(r, b, width - d - len(lower))
        return torch.cat([x, products.index_select(2, lower), zeros], 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """d(tᵢ·tⱼ) gives tⱼ to i and tᵢ to j: a symmetric matrix times t."""
        (g,) = gradients
        t, square = ctx.saved_tensors
        r, b, _ = g.shape
        d = t.shape[2]
        both = g[..., d:].index_select(2, square).view(r * b, t.shape[1], t.shape[1])
        gt = torch.bmm(both, t).view(r, b, -1, d)
        return gt[:, :, 0] + g[..., :d], gt[:, :, 1:], None, None, None


class XDeepFMStack(ClickStack):
    """Train `XDeepFM` replicas side by side. A row of the table: a value's linear weight, and its embedding."""

    scored = 1 << 14  # products of fields and maps are 45 kB a row

    def __init__(self, model: XDeepFM, replicas: int, device: torch.device) -> None:
        super().__init__(model, 1 + model.options["embedding"], replicas, device, {})
        bias = torch.zeros(replicas, 1, 1, device=device, dtype=self.dtype)
        self.weights["out.bias"] = bias.requires_grad_()

    def places(self, model: Any, replica: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each parameter of a plain model with its place in the stack."""
        yield from super().places(model, replica)
        yield model.out.weight, torch.ones(1, 1, device=self.device, dtype=self.table.dtype)
        yield model.out.bias, self.weights["out.bias"].detach()[replica, 0]
        mine = self.table.view(self.replicas, sum(self.sizes), -1)[replica, :, :1]
        for table, place in zip(model.linear, torch.split(mine, list(self.sizes)), strict=True):
            yield table.weight, place

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of numbers and codes (R or 1, B, …)."""
        dense, codes = inputs
        r, b = self.replicas, codes.shape[1]
        rows = self.lookup(codes)  # (R, B, F, 1 + d)
        vectors = rows[..., 1:]
        x = vectors.reshape(r, b, -1)
        z = rows[..., 0].sum(2) + self.weights["out.bias"][:, 0]
        if dense.shape[-1]:
            numbers = dense.expand(r, -1, -1).to(self.dtype)
            x = torch.cat([x, numbers], 2)
            z = z + torch.bmm(numbers, self._weight("linear_numbers"))[..., 0]
        for i in range(len(self.model.options["hidden"])):
            x = self.linear(f"hidden.{i}", x, relu=True)
        z = z + torch.bmm(x, self._weight("hidden_out"))[..., 0]
        z = z + torch.bmm(self._interact(vectors), self._weight("maps_out"))[..., 0]
        return z.to(self.table.dtype)

    def _interact(self, vectors: Tensor) -> Tensor:
        """(R, B, F, d) to the sums over d of all maps that go to the logit, (R, B, maps)."""
        r, b, f, d = vectors.shape
        fields = vectors.permute(0, 2, 1, 3).reshape(r, f, b * d)
        maps, taken = fields, []
        for i, count in enumerate(self.model.taken):
            products = _Products.apply(fields, maps)  # type: ignore[no-untyped-call]
            w, bias = self._weight(f"maps.{i}"), self.weights[f"maps.{i}.bias"].to(self.dtype)
            new = torch.baddbmm(bias.transpose(1, 2), w.transpose(1, 2), products).relu()
            rest = new.shape[1] - count
            maps, out = torch.split(new, [rest, count], 1) if rest else (new, new)
            taken.append(out)
        return torch.cat(taken, 1).view(r, -1, b, d).sum(3).transpose(1, 2)

    def _weight(self, name: str) -> Tensor:
        return self.weights[f"{name}.weight"].to(self.dtype)


class _Products(torch.autograd.Function):
    """Every field times every map, element by element, (R, F, N) and (R, H, N) to (R, F · H, N): the bulk of a step."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, maps: Tensor) -> Tensor:
        ctx.save_for_backward(fields, maps)
        kernels = fused(fields)
        if kernels is not None:
            return kernels.products(fields, maps)  # type: ignore[no-any-return]
        return (fields[:, :, None] * maps[:, None]).view(len(fields), -1, fields.shape[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        fields, maps = ctx.saved_tensors
        kernels = fused(fields)
        if kernels is not None:
            return kernels.products_gradient(gradients[0], fields.contiguous(), maps.contiguous())  # type: ignore[no-any-return]
        g = gradients[0].view(len(fields), fields.shape[1], maps.shape[1], -1)
        return (g * maps[:, None]).sum(2), (g * fields[:, :, None]).sum(1)
