"""DLRM and xDeepFM replicas side by side: stacked layers whose backward pass is SGD itself, and one table."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from uncurse.deep.inputs import pick_device, tensor
from uncurse.deep.stack import Stack, make_modules
from uncurse.deep.training import Plan, Replicas, Run
from uncurse.errors import UncurseError
from uncurse.validation import warn_user

from .clicks import Clicks
from .models import DLRM, ClickModel, XDeepFM, check_codes

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # of Adam (Kingma and Ba 2015)
_RATE_CHANGES = 20  # values of a changing learning rate: a GPU captures its step anew for each


@dataclass
class ClickPlan(Plan):
    """A plan whose learning rate may fall linearly to a final one."""

    final_rate: float | None = None

    def rate_at(self, progress: float) -> float:
        """Return the learning rate after a share of the steps: twenty values if it falls."""
        if self.final_rate is None:
            return self.learning_rate
        done = min(int(progress * _RATE_CHANGES), _RATE_CHANGES - 1) / (_RATE_CHANGES - 1)
        return self.learning_rate + done * (self.final_rate - self.learning_rate)


def train_replicas(
    model: Callable[..., ClickModel],
    clicks: Clicks,
    *,
    rows: Sequence[Any] | None = None,
    on_snapshot: Callable[[float, Replicas], None] | None = None,
    sample_weight: Any = None,
    device: Any = None,
    **options: Any,
) -> Replicas:
    """Train DLRM or xDeepFM replicas side by side, as `uncurse.deep.train_replicas` trains other networks.

    Large tables of embeddings cost no more than the rows that a batch looks up. Adam is lazy on them: it leaves other
    rows alone. `model` is `DLRM` or `XDeepFM`, or a `functools.partial` of one with other widths. `rows` has for each
    replica the numbers of the rows that it is trained on, as many for each. `on_snapshot` is called with the share of
    the steps and the replicas as they are then; these are not kept, which saves memory. Other options are those of
    `uncurse.deep.train_replicas`, and ``final_rate``, to which the learning rate falls in twenty steps.

    Examples
    --------
    >>> clicks = Clicks(None, torch.tensor([[0, 1], [2, 0]]), torch.tensor([0, 1]), sizes=(3, 2))
    >>> train_replicas(XDeepFM, clicks, n_replicas=3, optimizer="adam", learning_rate=1e-3).logits(clicks).shape
    (2, 3)
    """
    if not isinstance(clicks, Clicks):
        raise UncurseError(f"click models are trained on Clicks, not on {type(clicks).__name__}")
    if clicks.label is None:
        raise UncurseError("the clicks have no labels; pass some to train on")
    check_codes(tensor(clicks.codes), clicks.sizes)
    device, plan = pick_device(device), ClickPlan(**options)
    places = None
    if rows is not None:
        once = {id(part): tensor(part).to(device=device, dtype=torch.int32) for part in rows}
        places = torch.stack([once[id(part)] for part in rows])
    run = Run(
        lambda device: stack_models(model, clicks, plan.seeds, device), clicks, plan, rows=places,
        sample_weight=sample_weight, device=device, on_snapshot=on_snapshot,
    )  # fmt: skip
    return run.train()


def stack_models(
    model: Callable[..., ClickModel], clicks: Clicks, seeds: Sequence[int], device: torch.device
) -> ClickStack:
    """Make a model that fits the clicks for each seed, and stack them."""

    def make() -> ClickModel:
        with device:
            return model(clicks.sizes, clicks.dense.shape[1])

    modules = make_modules(make, seeds, device)
    first = next(modules)
    kinds: dict[Any, Any] = {DLRM: DLRMStack, XDeepFM: XDeepFMStack}  # a subclass may compute something else
    if type(first) not in kinds:
        name = type(first).__name__
        raise UncurseError(f"{name} is not a DLRM or XDeepFM; uncurse.deep.train_replicas trains networks of your own")
    stack: ClickStack = kinds[type(first)](first, len(seeds), device)
    for replica, module in enumerate(chain([first], modules)):
        stack.load(module, replica)
    return stack


class ClickStack(Stack):
    """A stack of click models: weights (R, in, out), biases (R, 1, out), one table with rows of `width` numbers."""

    def __init__(
        self, model: ClickModel, width: int, replicas: int, device: torch.device, padded_inputs: dict[str, int]
    ) -> None:
        super().__init__(replicas, device)
        self.model: Any = copy.deepcopy(model).to_empty(device="meta")  # its shape
        self.sizes, self.dtype = model.sizes, next(model.parameters()).dtype
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
        self._looked_up: tuple[Tensor, Tensor] | None = None  # by a step: places in the table, and their rows

    def check_inputs(self, *inputs: Tensor) -> None:
        """Raise UncurseError if a code is outside its field."""
        check_codes(inputs[1], self.sizes)

    def state(self) -> dict[str, Tensor]:
        """Return all numbers of the models by name."""
        return {**self.weights, "table": self.table}

    def with_state(self, state: dict[str, Tensor]) -> Stack:
        """Return a stack of the same models with other numbers."""
        made: Any = super().with_state(state)
        made.table = state["table"].to(self.device)
        return made  # type: ignore[no-any-return]

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

    def use_adam(self) -> None:
        """Optimize by Adam; the table's rows lazily."""
        super().use_adam()
        self._sum, self._mean, self._square = (torch.zeros_like(self.table) for _ in range(3))
        self._steps = torch.zeros((), device=self.device, dtype=torch.float64)

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights, and of the table the rows that were looked up."""
        super().step()
        if self._looked_up is None:
            return
        index, rows = self._looked_up[0].reshape(-1), self._looked_up[1]
        self._looked_up = None
        assert rows.grad is not None
        gradient = rows.grad.reshape(len(index), -1)
        if self.adam is None:
            _add_rows(self.table, index, gradient, -self.learning_rate)
            return
        # As by `torch.optim.SparseAdam`, but with the ε of `Adam`. A row's gradients are summed first: a row that a
        # batch holds twice gets one step. Such a row is computed twice, to the same values, so that every shape is
        # fixed, as a CUDA graph wants it.
        _add_rows(self._sum, index, gradient, 1.0)
        gradient = self._sum[index]
        self._sum[index] = torch.zeros_like(gradient)
        self._steps += 1
        mean = torch.lerp(self._mean[index], gradient, 1 - _BETA1)
        square = torch.lerp(self._square[index], gradient * gradient, 1 - _BETA2)
        self._mean[index], self._square[index] = mean, square
        root = (1 - _BETA2**self._steps).sqrt()
        scale = (root / (1 - _BETA1**self._steps) * self.learning_rate).to(mean.dtype)
        self.table[index] -= scale * mean / (square.sqrt() + (_EPSILON * root).to(mean.dtype))

    @property
    def without_gradients(self) -> bool:
        """Whether layers keep no gradient: the backward pass is SGD itself, or rows are only scored."""
        return self.adam is None or not torch.is_grad_enabled()

    def linear(self, name: str, x: Tensor, *, relu: bool) -> Tensor:
        """(R or 1, B, in) to (R, B, out)."""
        w, b = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        if self.without_gradients:
            y: Tensor = _SgdLinear.apply(x, w, b, relu, self.learning_rate)  # type: ignore[no-untyped-call]
            return y
        y = torch.baddbmm(b, x.expand(len(w), -1, -1), w)
        return y.relu() if relu else y

    def index(self, codes: Tensor) -> Tensor:
        """Where in the table the codes of every model are, (R, B, F)."""
        return (self._offsets + codes).contiguous()  # the kernels read it row by row, however codes lie in memory

    def lookup(self, codes: Tensor) -> Tensor:
        """(R or 1, B, F) to rows of the table (R, B, F, width)."""
        index = self.index(codes)
        rows = self.table[index]
        if torch.is_grad_enabled():
            self._looked_up = index, rows.requires_grad_()
        return rows


def _add_rows(table: Tensor, index: Tensor, rows: Tensor, factor: float) -> None:
    """Add factor · rows to the table at `index`, repeated rows as often as they are there."""
    if table.is_cuda:
        table.index_add_(0, index, rows, alpha=factor)
    else:  # six times faster than index_add_ there
        table.scatter_add_(0, index[:, None].expand_as(rows), rows if factor == 1 else rows * factor)


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
            y = torch.bmm(x, w)
            kernels.bias_relu(y, b, relu)
        else:
            y = torch.baddbmm(b, x, w)
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
        gx = torch.bmm(g, w.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        w.baddbmm_(x.transpose(1, 2), g, alpha=-rate)
        return gx, None, None, None, None


class DLRMStack(ClickStack):
    """Train `DLRM` replicas side by side; `model` has the shape of all."""

    def __init__(self, model: DLRM, replicas: int, device: torch.device) -> None:
        width, vectors = model.options["embedding"], len(model.sizes) + 1
        pairs = vectors * (vectors - 1) // 2
        self._pad_dense = padded(model.numbers) - model.numbers
        self._width = padded(width + pairs)
        inputs = {"bottom.0": padded(model.numbers), "top.0": self._width}
        super().__init__(model, width, replicas, device, inputs)
        lower = torch.tril_indices(vectors, vectors, -1)  # strictly below the diagonal, row by row
        self._lower = (lower[0] * vectors + lower[1]).to(device)

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of numbers and codes (R or 1, B, …)."""
        dense, codes = inputs
        x = torch.nn.functional.pad(dense, (0, self._pad_dense)).to(self.dtype)
        x = x.expand(self.replicas, -1, -1)
        for i in range(len(self.model.options["bottom"]) + 1):
            x = self.linear(f"bottom.{i}", x, relu=True)
        kernels = fused(self.table) if self.without_gradients else None
        if kernels is not None and kernels.fits(len(self.sizes), self.table.shape[1]):
            x = kernels.SgdInteract.apply(x, self.table, self.index(codes), self._width, self.learning_rate)
        else:
            x = self._interact(x, self.lookup(codes))
        last = len(self.model.options["top"])
        for i in range(last + 1):
            x = self.linear(f"top.{i}", x, relu=i < last)
        return x.squeeze(-1)

    def _interact(self, x: Tensor, rows: Tensor) -> Tensor:
        """The bottom's output, the dot products of every two vectors, and zeros to a full width, side by side."""
        r, b, f, d = rows.shape
        t = torch.cat([x.unsqueeze(2), rows], 2).view(r * b, f + 1, d)
        products = torch.bmm(t, t.transpose(1, 2)).view(r, b, -1).index_select(2, self._lower)
        return torch.nn.functional.pad(torch.cat([x, products], 2), (0, self._width - d - len(self._lower)))


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
        yield model.out.weight, torch.ones(1, 1, device=self.device, dtype=self.dtype)
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
            z = z + torch.bmm(numbers, self.weights["linear_numbers.weight"])[..., 0]
        for i in range(len(self.model.options["hidden"])):
            x = self.linear(f"hidden.{i}", x, relu=True)
        z = z + torch.bmm(x, self.weights["hidden_out.weight"])[..., 0]
        return z + torch.bmm(self._interact(vectors), self.weights["maps_out.weight"])[..., 0]

    def _interact(self, vectors: Tensor) -> Tensor:
        """(R, B, F, d) to the sums over d of all maps that go to the logit, (R, B, maps)."""
        r, b, f, d = vectors.shape
        fields = vectors.permute(0, 2, 1, 3).reshape(r, f, b * d)
        maps, taken, kernels = fields, [], fused(fields)
        for i, count in enumerate(self.model.taken):
            if kernels is not None:
                products = kernels.Products.apply(fields, maps)
            else:
                products = (fields[:, :, None] * maps[:, None]).view(r, -1, b * d)
            w, bias = self.weights[f"maps.{i}.weight"], self.weights[f"maps.{i}.bias"]
            new = torch.baddbmm(bias.transpose(1, 2), w.transpose(1, 2), products).relu()
            rest = new.shape[1] - count
            maps, out = torch.split(new, [rest, count], 1) if rest else (new, new)
            taken.append(out)
        return torch.cat(taken, 1).view(r, -1, b, d).sum(3).transpose(1, 2)
