"""xDeepFM as a stack of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .models import XDeepFM
from .stack import ClickStack, fused


class XDeepFMStack(ClickStack):
    """Train `XDeepFM` replicas side by side; `model` has the shape of all.

    A row of the table is a value's weight in the linear part, and its embedding.
    """

    scored = 1 << 14  # products of fields and maps are 45 kB a row

    def __init__(self, model: XDeepFM, replicas: int, device: torch.device) -> None:
        super().__init__(model, 1 + model.options["embedding"], replicas, device)
        self._taken = model.taken
        self._hidden = len(model.options["hidden"])
        for name, layer in _linear(model).items():
            self.add(name, layer)
        bias = torch.zeros(replicas, 1, 1, device=device, dtype=self.table.dtype)
        self.weights["out.bias"] = bias.requires_grad_()

    def places(self, model: Any, replica: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each parameter of a plain model with its place in the stack."""
        for name, layer in _linear(model).items():
            yield from self.layer_places(name, layer, replica)
        yield model.out.weight, torch.ones(1, 1, device=self.device, dtype=self.table.dtype)
        yield model.out.bias, self.weights["out.bias"].detach()[replica, 0]
        yield from self.table_places(model.linear, replica, slice(0, 1))
        yield from self.table_places(model.embeddings, replica, slice(1, None))

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
        for i in range(self._hidden):
            x = self.linear(f"hidden.{i}", x, relu=True)
        z = z + torch.bmm(x, self._weight("hidden_out"))[..., 0]
        z = z + torch.bmm(self._interact(vectors), self._weight("maps_out"))[..., 0]
        return z.to(self.table.dtype)

    def _interact(self, vectors: Tensor) -> Tensor:
        """(R, B, F, d) to the sums over d of all maps that go to the logit, (R, B, maps)."""
        r, b, f, d = vectors.shape
        fields = vectors.permute(0, 2, 1, 3).reshape(r, f, b * d)
        maps, taken = fields, []
        for i, width in enumerate(self._taken):
            products = _Products.apply(fields, maps)  # type: ignore[no-untyped-call]
            w, bias = self._weight(f"maps.{i}"), self.weights[f"maps.{i}.bias"].to(self.dtype)
            new = torch.baddbmm(bias.transpose(1, 2), w.transpose(1, 2), products).relu()
            maps, out = (new, new) if i + 1 == len(self._taken) else torch.split(new, [new.shape[1] - width, width], 1)
            taken.append(out)
        return torch.cat(taken, 1).view(r, -1, b, d).sum(3).transpose(1, 2)

    def _weight(self, name: str) -> Tensor:
        return self.weights[f"{name}.weight"].to(self.dtype)


def _linear(model: XDeepFM) -> dict[str, nn.Linear]:
    """The linear layers by the name that their stacked weights have."""
    hidden = [layer for layer in model.hidden if isinstance(layer, nn.Linear)]
    layers: dict[str, Any] = {f"maps.{i}": layer for i, layer in enumerate(model.maps)}
    layers |= {f"hidden.{i}": layer for i, layer in enumerate(hidden)}
    layers |= {"hidden_out": model.hidden_out, "maps_out": model.maps_out, "linear_numbers": model.linear_numbers}
    return {name: layer for name, layer in layers.items() if layer is not None}


class _Products(torch.autograd.Function):
    """Every field times every map, element by element, (R, F, N) and (R, H, N) to (R, F · H, N): the bulk of a step."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, maps: Tensor) -> Tensor:
        """Products."""
        ctx.save_for_backward(fields, maps)
        kernels = fused(fields)
        if kernels is not None:
            return kernels.products(fields, maps)  # type: ignore[no-any-return]
        return (fields[:, :, None] * maps[:, None]).view(len(fields), -1, fields.shape[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of fields and of maps."""
        fields, maps = ctx.saved_tensors
        kernels = fused(fields)
        if kernels is not None:
            return kernels.products_gradient(gradients[0], fields.contiguous(), maps.contiguous())  # type: ignore[no-any-return]
        g = gradients[0].view(len(fields), fields.shape[1], maps.shape[1], -1)
        return (g * maps[:, None]).sum(2), (g * fields[:, :, None]).sum(1)
