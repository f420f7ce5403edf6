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
from .click_stacks import DLRMStack, XDeepFMStack
from .data import Clicks
from .inputs import Dataset
from .models import DLRM, XDeepFM
from .stack import ClickStack, Stack

_CLICK_MODELS: dict[Any, Any] = {DLRM: DLRMStack, XDeepFM: XDeepFMStack}

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
