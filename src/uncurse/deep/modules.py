"""Modules that differ in their seed as one stack: click models by kernels of their own, others by `torch.func`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UncurseError
from ..validation import warn_user
from .data import Clicks
from .inputs import Dataset
from .models import DLRM, XDeepFM
from .stack import ClickStack, Stack, fused, padded

_REMEDY = (
    "a network that reads values to decide what to do (.item(), an if on a tensor), sparse gradients, EmbeddingBag and "
    "recurrent layers cannot be stacked; train such replicas one after another"
)
_UNSTACKABLE = re.compile(r"vmap|\.item\(\)|data-dependent|batching rule|functorch", re.IGNORECASE)


def stack_modules(model: Any, dataset: Dataset, seeds: Sequence[int], device: torch.device) -> Stack:
    """Make and stack one module per seed; `DLRM`, `XDeepFM` or a partial of one is made to fit the data."""
    if not callable(model) or isinstance(model, nn.Module):
        raise UncurseError(
            f"model is a {type(model).__name__}; pass DLRM, XDeepFM, or a function that makes a module, such as "
            "lambda: Net(), so that every replica gets weights of its own"
        )
    made = _make_all(model, dataset, seeds, device)
    first = next(made)
    if type(first) not in _CLICK_MODELS:
        return _ModuleStack([first, *made], device)
    shape = _shape(type(first), dataset)
    if (first.sizes, first.numbers) != shape:
        raise UncurseError(
            f"the {type(first).__name__} is for {len(first.sizes)} fields of {sum(first.sizes):,} codes and "
            f"{first.numbers} numbers, the clicks have {len(shape[0])} of {sum(shape[0]):,} and {shape[1]}; pass "
            f"{type(first).__name__} itself, which is made to fit"
        )
    stack: ClickStack = _CLICK_MODELS[type(first)](first, len(seeds), device)
    for replica, module in enumerate(chain([first], made)):
        stack.load(module, replica)
    return stack


def _shape(kind: Any, dataset: Dataset) -> tuple[tuple[int, ...], int]:
    """Return the sizes and the count of numbers of the clicks that a click model is trained on."""
    if not isinstance(dataset, Clicks):
        raise UncurseError(f"{kind.__name__} is trained on Clicks, not on {type(dataset).__name__}")
    return tuple(dataset.sizes), dataset.dense.shape[1]


def _make_all(model: Any, dataset: Dataset, seeds: Sequence[int], device: torch.device) -> Iterator[Any]:
    """Yield the module of each seed; one at a time, for their tables are large."""
    kind, has_shape = model, False
    if isinstance(model, partial):
        kind, has_shape = model.func, bool(model.args) or "sizes" in model.keywords
    to_fit = kind in _CLICK_MODELS and not has_shape
    shape = _shape(kind, dataset) if to_fit else ()
    for seed in seeds:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            with device if to_fit else nullcontext():  # weights of click models are drawn on the device
                module = model(*shape)
        if not isinstance(module, nn.Module):
            raise UncurseError(f"the function made a {type(module).__name__}, not an nn.Module")
        yield module.to(device)


class _ModuleStack(Stack):
    def __init__(self, modules: list[nn.Module], device: torch.device) -> None:
        super().__init__(len(modules), device)
        for part in chain.from_iterable(module.modules() for module in modules):
            if getattr(part, "sparse", False) or isinstance(part, nn.EmbeddingBag | nn.RNNBase):
                raise UncurseError(f"{type(part).__name__} cannot be stacked: {_REMEDY}")
        try:
            weights, self.buffers = torch.func.stack_module_state([module.train() for module in modules])
        except RuntimeError as error:
            message = f"these modules cannot be stacked ({error}): every call must make the same shapes"
            raise UncurseError(message) from None
        self.weights = {name: w.detach().requires_grad_(w.requires_grad) for name, w in weights.items()}
        if not any(w.requires_grad for w in self.weights.values()):
            raise UncurseError("this network has no weights that want a gradient; there is nothing to train")
        self._dtype = next(w.dtype for w in self.weights.values() if w.requires_grad)
        self._stream = 0
        self._shell = modules[0]  # its own numbers are never used
        self._blank = copy.deepcopy(modules[0])

    def __repr__(self) -> str:
        return repr(self._blank)

    def reseed(self, seed: int, step: int) -> None:
        # Dropout draws from the global stream: a step's numbers follow from its place, so a resumed run repeats them.
        self._stream = int(np.random.SeedSequence([seed, 0, step]).generate_state(1, np.uint64)[0] >> 1)

    def module(self, replica: int) -> nn.Module:
        made = copy.deepcopy(self._blank)
        places = dict(made.named_parameters()) | dict(made.named_buffers())
        with torch.no_grad():
            for name, value in self.state().items():
                places[name].copy_(value[replica])
        return made.eval()

    def logits(self, *inputs: Tensor) -> Tensor:
        train, rows = torch.is_grad_enabled(), inputs[0].shape[1]
        self._shell.train(train)

        def one(weights: dict[str, Tensor], buffers: dict[str, Tensor], *x: Tensor) -> Tensor:
            return torch.func.functional_call(self._shell, (weights, buffers), x)  # type: ignore[no-any-return]

        given = [x.to(self._dtype) if x.is_floating_point() else x for x in inputs]
        if not train:
            given = [x[0] for x in given]
        call = torch.vmap(one, in_dims=(0, 0, *[0 if train else None] * len(given)), randomness="different")
        cuda = self.device.type == "cuda"
        apart = not (cuda and torch.cuda.is_current_stream_capturing())  # a captured step has a stream of its own
        try:
            with torch.random.fork_rng(devices=[self.device] if cuda else [], enabled=apart):
                if apart:  # not torch.manual_seed, which notes every call for a CUDA that may come
                    torch.default_generator.manual_seed(self._stream)
                    if cuda:
                        torch.cuda.manual_seed(self._stream)
                z = call(self.weights, self.buffers, *given)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if _UNSTACKABLE.search(str(error)):
                raise UncurseError(f"this network cannot be stacked ({reason}): {_REMEDY}") from error
            raise UncurseError(f"this network failed on a batch of {rows} rows: {reason}") from error
        if z.dim() == 3 and z.shape[2] == 1:
            z = z[..., 0]
        if z.shape != (self.replicas, rows):
            raise UncurseError(f"the network gives {tuple(z.shape[1:])} for {rows} rows; one logit a row, please")
        return z if z.dtype == torch.float64 else z.float()


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


_CLICK_MODELS: dict[Any, Any] = {DLRM: DLRMStack, XDeepFM: XDeepFMStack}
