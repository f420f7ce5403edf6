"""The click models of the paper as stacks of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..validation import warn_user
from .models import DLRM, XDeepFM
from .stack import ClickStack, fused, padded


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
