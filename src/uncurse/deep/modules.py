"""Modules that differ in their seed as one stack: click models by kernels of their own, others by `torch.func`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
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
    made = _make_all(_to_fit(model, dataset, device), seeds, device)
    first = next(made)
    for kind, stacked in _CLICK_MODELS.items():
        if type(first) is kind:
            if not isinstance(dataset, Clicks):
                raise UncurseError(f"{kind.__name__} is trained on Clicks, not on {type(dataset).__name__}")
            fits = first.sizes == tuple(dataset.sizes) and first.numbers == dataset.dense.shape[1]
            if not fits:
                raise UncurseError(
                    f"the {kind.__name__} is for {len(first.sizes)} fields of {sum(first.sizes):,} codes and "
                    f"{first.numbers} numbers, the clicks have {len(dataset.sizes)} of {sum(dataset.sizes):,} and "
                    f"{dataset.dense.shape[1]}; pass {kind.__name__} itself, which is made to fit"
                )
            stack: ClickStack = stacked(first, len(seeds), device)
            for replica, module in enumerate(chain([first], made)):
                stack.load(module, replica)
            return stack
    modules = [first, *made]
    for module in modules:
        for part in module.modules():
            if getattr(part, "sparse", False) or isinstance(part, nn.EmbeddingBag | nn.RNNBase):
                raise UncurseError(f"{type(part).__name__} cannot be stacked: {_REMEDY}")
    return _ModuleStack([module.train() for module in modules], device)


def _to_fit(model: Any, dataset: Dataset, device: torch.device) -> Callable[[], nn.Module]:
    """A function without arguments; for a click model by its class, one that draws its weights on the device."""
    kind = model.func if isinstance(model, partial) else model
    if kind not in _CLICK_MODELS or (isinstance(model, partial) and (model.args or "sizes" in model.keywords)):
        return model  # type: ignore[no-any-return]
    if not isinstance(dataset, Clicks):
        raise UncurseError(f"{kind.__name__} is trained on Clicks, not on {type(dataset).__name__}")

    def make() -> nn.Module:
        with device:
            return model(dataset.sizes, dataset.dense.shape[1])  # type: ignore[no-any-return]

    return make


def _make_all(make: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device) -> Iterator[Any]:
    """Each module under its seed; one at a time, for their tables are large."""
    for seed in seeds:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            module = make()
        if not isinstance(module, nn.Module):
            raise UncurseError(f"the function made a {type(module).__name__}, not an nn.Module")
        yield module.to(device)


class _ModuleStack(Stack):
    def __init__(self, modules: list[nn.Module], device: torch.device) -> None:
        super().__init__(len(modules), device)
        try:
            weights, self._buffers = torch.func.stack_module_state(modules)
        except RuntimeError as error:
            raise UncurseError(
                f"these modules cannot be stacked ({error}): every call must make the same shapes"
            ) from None
        self.weights = {name: w.detach().requires_grad_(w.requires_grad) for name, w in weights.items()}
        if not any(w.requires_grad for w in self.weights.values()):
            raise UncurseError("this network has no weights that want a gradient; there is nothing to train")
        self._dtype = next(w.dtype for w in self.weights.values() if w.requires_grad)
        self._stream = 0
        self._shell = modules[0]  # its own numbers are never used
        self._blank = copy.deepcopy(modules[0])

    def __repr__(self) -> str:
        return repr(self._blank)

    def state(self) -> dict[str, Tensor]:
        return {**self.weights, **self._buffers}

    def with_state(self, state: dict[str, Tensor]) -> Stack:
        made = copy.copy(self)
        there = {name: value.to(self.device) for name, value in state.items()}
        made.weights = {name: there[name] for name in self.weights}
        made._buffers = {name: there[name] for name in self._buffers}
        return made

    def reseed(self, seed: int, step: int) -> None:
        # Dropout draws from the global stream: a step's numbers follow from its place, so a resumed run repeats them.
        self._stream = int(np.random.SeedSequence([seed, 0, step]).generate_state(1, np.uint64)[0] >> 1)

    def logits(self, *inputs: Tensor) -> Tensor:
        return self._call(True, inputs)

    def scores(self, *inputs: Tensor) -> Tensor:
        return self._call(False, inputs)

    def module(self, replica: int) -> nn.Module:
        """A copy with the weights of one replica."""
        replica = self.check_replica(replica)
        made = copy.deepcopy(self._blank)
        places = dict(made.named_parameters()) | dict(made.named_buffers())
        with torch.no_grad():
            for name, value in self.state().items():
                places[name].copy_(value[replica])
        return made.eval()

    def _call(self, train: bool, inputs: tuple[Tensor, ...]) -> Tensor:
        self._shell.train(train)

        def one(weights: dict[str, Tensor], buffers: dict[str, Tensor], *x: Tensor) -> Tensor:
            return torch.func.functional_call(self._shell, (weights, buffers), x)  # type: ignore[no-any-return]

        each = 0 if train else None
        given = tuple((x if train else x[0]) for x in inputs)
        given = tuple(x.to(self._dtype) if x.is_floating_point() else x for x in given)
        call = torch.vmap(one, in_dims=(0, 0, *(each for _ in given)), randomness="different")
        cuda = self.device.type == "cuda"
        apart = not (cuda and torch.cuda.is_current_stream_capturing())  # a captured step has a stream of its own
        try:
            with torch.random.fork_rng(devices=[self.device] if cuda else [], enabled=apart):
                if apart:  # not torch.manual_seed, which notes every call for a CUDA that may come
                    torch.default_generator.manual_seed(self._stream)
                    if cuda:
                        torch.cuda.manual_seed(self._stream)
                z = call(self.weights, self._buffers, *given)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            if _UNSTACKABLE.search(str(error)):
                raise UncurseError(f"this network cannot be stacked ({reason}): {_REMEDY}") from error
            raise UncurseError(
                f"this network failed on a batch of {given[0].shape[each is not None]} rows: {reason}"
            ) from error
        if z.dim() == 3 and z.shape[2] == 1:
            z = z[..., 0]
        if z.shape != (self.replicas, inputs[0].shape[1]):
            raise UncurseError(
                f"the network gives {tuple(z.shape[1:])} for {inputs[0].shape[1]} rows; one logit a row, please"
            )
        return z if z.dtype == torch.float64 else z.float()
