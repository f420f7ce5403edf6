"""DLRM as a stack of replicas."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .models import DLRM
from .stack import ClickStack, fused, padded


class DLRMStack(ClickStack):
    """Train `DLRM` replicas side by side; `model` has the shape of all."""

    def __init__(self, model: DLRM, replicas: int, device: torch.device) -> None:
        width = model.options["embedding"]
        super().__init__(model, width, replicas, device)
        self._layers = {name: len(layers) for name, layers in _linear(model).items()}
        for name, layers in _linear(model).items():
            for i, layer in enumerate(layers):
                full = None if i else padded(layer.in_features + (name == "top"))  # one spare for the top, see below
                self.add(f"{name}.{i}", layer, full)
        vectors = len(self.sizes) + 1
        pairs = vectors * (vectors - 1) // 2
        # Strictly below the diagonal, row by row; and for each entry of the square the place of its pair in the input
        # of the top network, the diagonal's being the padding, whose gradient is zero.
        self._pad_dense = padded(model.numbers) - model.numbers
        self._width = padded(width + pairs + 1)
        lower = torch.tril_indices(vectors, vectors, -1)
        self._lower = (lower[0] * vectors + lower[1]).to(device)
        square = torch.full((vectors, vectors), pairs)
        square[lower[0], lower[1]] = torch.arange(pairs)
        self._square = torch.minimum(square, square.T).flatten().to(device)
        kernels = fused(self.table)
        self._fits = kernels is not None and kernels.fits(len(self.sizes), width)
        if kernels is not None and not self._fits:
            warnings.warn(
                f"embedding={width} with {len(self.sizes)} fields is trained without the interaction kernel, which is "
                "slower: it takes an embedding of 16, 32 or 64 and 15 to 63 fields",
                UserWarning,
                stacklevel=4,
            )

    def places(self, model: Any, replica: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each parameter of a plain model with its place in the stack."""
        for name, layers in _linear(model).items():
            yield from chain.from_iterable(
                self.layer_places(f"{name}.{i}", layer, replica) for i, layer in enumerate(layers)
            )
        yield from self.table_places(model.embeddings, replica, slice(None))

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of numbers and codes (R or 1, B, …)."""
        dense, codes = inputs
        x = torch.nn.functional.pad(dense, (0, self._pad_dense)).to(self.dtype)
        x = x.expand(self.replicas, -1, -1)
        for i in range(self._layers["bottom"]):
            x = self.linear(f"bottom.{i}", x, relu=True)
        if self._fits and self.rate is not None and torch.is_grad_enabled() and fused(self.table) is not None:
            x = _SgdInteract.apply(x, self.table, self.index(codes), self._width, self.rate)  # type: ignore[no-untyped-call]
        else:
            x = _Interact.apply(x, self.lookup(codes), self._lower, self._square, self._width)  # type: ignore[no-untyped-call]
        last = self._layers["top"] - 1
        for i in range(last + 1):
            x = self.linear(f"top.{i}", x, relu=i < last)
        return x.squeeze(-1).to(self.table.dtype)


def _linear(model: DLRM) -> dict[str, list[nn.Linear]]:
    return {
        name: [layer for layer in getattr(model, name) if isinstance(layer, nn.Linear)] for name in ("bottom", "top")
    }


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


class _SgdInteract(torch.autograd.Function):
    """The same with the lookup in it and the embeddings' SGD step in its backward, a kernel each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, index: Tensor, width: int, rate: float) -> Tensor:
        """(R, B, d) and places in the table (R, B, F) to (R, B, width)."""
        kernels = fused(x)
        out, vectors = kernels.interact(x, table, index, width)
        ctx.save_for_backward(vectors, index)
        ctx.kernels, ctx.table, ctx.rate = kernels, table, rate
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x; the table is updated here."""
        vectors, index = ctx.saved_tensors
        gx = ctx.kernels.interact_gradient(gradients[0], vectors, ctx.table, index, ctx.rate)
        return gx, None, None, None, None
