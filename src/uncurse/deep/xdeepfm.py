"""xDeepFM, the model of the paper's Avazu experiment, as a stack of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..errors import UncurseError
from .stack import Stack, check_widths, fused, gaussian, uniform


@dataclass(frozen=True)
class XDeepFM:
    """The shape of an xDeepFM (Lian et al. 2018); layers and initial weights are those of deepctr-torch.

    A logit is the sum of a linear part, of a network over all embeddings, and of compressed interactions: every map of
    a layer is a weighted sum of products of the fields with the maps before it, element by element, half of the maps
    going on to the next layer. Numbers, where there are any, go to the linear part and the network.

    >>> XDeepFM().stack(sizes=[10] * 22, dense=0, seeds=[0], device="cpu").parameters()
    573825
    """

    embedding: int = 4
    hidden: tuple[int, ...] = (256, 256)
    interactions: tuple[int, ...] = (256, 128)
    deviation: float = 1e-4  # of initial embeddings and of the network's weights

    def __post_init__(self) -> None:
        check_widths(self)
        if not self.interactions or any(width % 2 for width in self.interactions[:-1]):
            raise UncurseError(
                f"interactions={self.interactions}; pass at least one width, even where another layer follows"
            )

    def stack(self, sizes: Sequence[int], dense: int, seeds: Sequence[int], device: Any) -> Stack:
        """One model for each seed, with weights of its own."""
        return _XDeepFMStack(self, sizes, dense, seeds, device)


class _XDeepFMStack(Stack):
    scored = 1 << 14  # products of fields and maps are 45 kB a row

    def __init__(self, shape: XDeepFM, sizes: Sequence[int], dense: int, seeds: Sequence[int], device: Any) -> None:
        # A row of the table is the value's weight in the linear part, and its embedding.
        super().__init__(sizes, 1 + shape.embedding, seeds, device)
        fields = len(sizes)
        if not fields:
            raise UncurseError("XDeepFM needs categories, and these rows have none; use a network of your own")
        self._hidden = [fields * shape.embedding + dense, *shape.hidden]
        maps = [fields]  # what a layer of interactions takes in
        for i, width in enumerate(shape.interactions):
            default = uniform((fields * maps[-1]) ** -0.5)  # as PyTorch makes a layer
            self.add(f"maps.{i}", fields * maps[-1], width, default, default)
            maps.append(width if i + 1 == len(shape.interactions) else width // 2)
        self._taken = maps[1:]  # of each layer, so many go to the logit: what does not go on
        small = gaussian(shape.deviation)
        for i, (inputs, outputs) in enumerate(pairwise(self._hidden)):
            self.add(f"hidden.{i}", inputs, outputs, small, uniform(inputs**-0.5))
        for name, inputs in (("out.hidden", self._hidden[-1]), ("out.maps", sum(self._taken))):
            self.add(name, inputs, 1, uniform(inputs**-0.5), None)
        if dense:
            self.add("out.dense", dense, 1, small, None)
        self.weights["out.bias"] = torch.zeros(self.replicas, 1, 1, device=self.device).requires_grad_()
        for _, parts in self.fields():
            self.draw(parts, small)

    def parameters(self) -> int:
        return sum(w[0].numel() for w in self.weights.values())

    def logits(self, *inputs: Tensor) -> Tensor:
        dense, codes = inputs
        r, b = self.replicas, codes.shape[1]
        rows = self.lookup(codes)  # (R, B, F, 1 + d)
        vectors = rows[..., 1:]
        x = vectors.reshape(r, b, -1)
        z = rows[..., 0].sum(2) + self.weights["out.bias"][:, 0]
        if dense.shape[-1]:
            numbers = dense.expand(r, -1, -1).to(self.dtype)
            x = torch.cat([x, numbers], 2)
            z = z + torch.bmm(numbers, self._weight("out.dense"))[..., 0]
        for i in range(len(self._hidden) - 1):
            x = self.linear(f"hidden.{i}", x, relu=True)
        z = z + torch.bmm(x, self._weight("out.hidden"))[..., 0]
        z = z + torch.bmm(self._interact(vectors), self._weight("out.maps"))[..., 0]
        return z.float()

    def _interact(self, vectors: Tensor) -> Tensor:
        """(R, B, F, d) to the sums over d of all maps that go to the logit, (R, B, maps)."""
        r, b, f, d = vectors.shape
        fields = vectors.permute(0, 2, 1, 3).reshape(r, f, b * d)
        maps, taken = fields, []
        for i, width in enumerate(self._taken):
            products = _Products.apply(fields, maps)  # type: ignore[no-untyped-call]
            w, bias = self._weight(f"maps.{i}"), self._weight(f"maps.{i}.bias")
            new = torch.baddbmm(bias.transpose(1, 2), w.transpose(1, 2), products).relu()
            maps, out = (new, new) if i + 1 == len(self._taken) else torch.split(new, [new.shape[1] - width, width], 1)
            taken.append(out)
        return torch.cat(taken, 1).view(r, -1, b, d).sum(3).transpose(1, 2)

    def _weight(self, name: str) -> Tensor:
        return self.weights[name if name in self.weights else f"{name}.weight"].to(self.dtype)


class _Products(torch.autograd.Function):
    """Every field times every map, element by element, (R, F, N) and (R, H, N) to (R, F · H, N): the bulk of a step."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, maps: Tensor) -> Tensor:
        """Products."""
        ctx.save_for_backward(fields, maps)
        kernels = fused(fields.device)
        if kernels is not None:
            return kernels.products(fields, maps)  # type: ignore[no-any-return]
        return (fields[:, :, None] * maps[:, None]).view(len(fields), -1, fields.shape[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of fields and of maps."""
        fields, maps = ctx.saved_tensors
        kernels = fused(fields.device)
        if kernels is not None:
            return kernels.products_gradient(gradients[0], fields.contiguous(), maps.contiguous())  # type: ignore[no-any-return]
        g = gradients[0].view(len(fields), fields.shape[1], maps.shape[1], -1)
        return (g * maps[:, None]).sum(2), (g * fields[:, :, None]).sum(1)


__all__ = ["XDeepFM"]
