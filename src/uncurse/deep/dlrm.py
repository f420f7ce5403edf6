"""DLRM, the model of the paper's Criteo experiment, as a stack of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..errors import UncurseError
from .stack import Stack, check_widths, fused, gaussian, padded, uniform


@dataclass(frozen=True)
class DLRM:
    """The shape of a deep learning recommendation model (Naumov et al. 2019); the defaults are the paper's.

    Numbers go through the bottom network (a ReLU after its last layer too) and become one more embedding; the dot
    products of every two embeddings, with the bottom's output before them, go through the top network to a logit.

    >>> DLRM().stack(sizes=[10] * 26, dense=13, seeds=[0], device="cpu").parameters()
    475985
    """

    embedding: int = 16
    bottom: tuple[int, ...] = (512, 256, 64)
    top: tuple[int, ...] = (512, 256)

    def __post_init__(self) -> None:
        check_widths(self)

    def stack(self, sizes: Sequence[int], dense: int, seeds: Sequence[int], device: Any) -> Stack:
        """One model for each seed, with weights of its own."""
        return _DLRMStack(self, sizes, dense, seeds, device)


class _DLRMStack(Stack):
    def __init__(self, shape: DLRM, sizes: Sequence[int], dense: int, seeds: Sequence[int], device: Any) -> None:
        super().__init__(sizes, shape.embedding, seeds, device)
        if not sizes:
            raise UncurseError("DLRM needs categories, and these rows have none; use a network of your own")
        d, vectors = shape.embedding, len(sizes) + 1
        pairs = vectors * (vectors - 1) // 2
        self._layers = {"bottom": [dense, *shape.bottom, d], "top": [d + pairs, *shape.top, 1]}
        for part, widths in self._layers.items():
            for i, (inputs, outputs) in enumerate(pairwise(widths)):
                full = None if i else padded(inputs + (part == "top"))  # one spare for the top, see below
                weight, bias = gaussian((2 / (inputs + outputs)) ** 0.5), gaussian(outputs**-0.5)
                self.add(f"{part}.{i}", inputs, outputs, weight, bias, full)
        for size, parts in self.fields():
            self.draw(parts, uniform(size**-0.5))
        # Strictly below the diagonal, row by row; and for each entry of the square the place of its pair in the input
        # of the top network, the diagonal's being the padding, whose gradient is zero.
        self._pad_dense = padded(dense) - dense
        self._width = padded(d + pairs + 1)
        lower = torch.tril_indices(vectors, vectors, -1)
        self._lower = (lower[0] * vectors + lower[1]).to(device)
        square = torch.full((vectors, vectors), pairs)
        square[lower[0], lower[1]] = torch.arange(pairs)
        self._square = torch.minimum(square, square.T).flatten().to(device)

    def parameters(self) -> int:
        return sum((i + 1) * o for widths in self._layers.values() for i, o in pairwise(widths))

    def logits(self, *inputs: Tensor) -> Tensor:
        dense, codes = inputs
        x = torch.nn.functional.pad(dense, (0, self._pad_dense)).to(self.dtype)
        x = x.expand(self.replicas, -1, -1)
        for i in range(len(self._layers["bottom"]) - 1):
            x = self.linear(f"bottom.{i}", x, relu=True)
        kernels = fused(self.device) if self.rate is not None and torch.is_grad_enabled() else None
        if kernels is not None and kernels.fits(len(self.sizes), self.table.shape[1]):
            x = _SgdInteract.apply(x, self.table, self.index(codes), self._width, self.rate)  # type: ignore[no-untyped-call]
        else:
            x = _Interact.apply(x, self.lookup(codes), self._lower, self._square, self._width)  # type: ignore[no-untyped-call]
        last = len(self._layers["top"]) - 2
        for i in range(last + 1):
            x = self.linear(f"top.{i}", x, relu=i < last)
        return x.squeeze(-1).float()


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
        kernels = fused(x.device)
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


__all__ = ["DLRM"]
