"""Anybody's own network as a stack of replicas, through `torch.func`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UncurseError
from .served import check_replica
from .stack import Stack

_REMEDY = (
    "a network that reads values to decide what to do (.item(), an if on a tensor), sparse gradients, EmbeddingBag and "
    "recurrent layers cannot be stacked; train such replicas one after another"
)
_UNSTACKABLE = re.compile(r"vmap|\.item\(\)|data-dependent|batching rule|functorch", re.IGNORECASE)


def stack_modules(make_module: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device) -> Stack:
    """One module for each seed, made under that seed, stacked."""
    if not callable(make_module) or isinstance(make_module, nn.Module):
        raise UncurseError(
            f"model is a {type(make_module).__name__}; pass DLRM(), XDeepFM(), or a function that makes a module, "
            "such as lambda: Net(), so that every replica gets weights of its own"
        )
    modules = []
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for seed in seeds:
            torch.manual_seed(seed)
            modules.append(make_module())
    for module in modules:
        if not isinstance(module, nn.Module):
            raise UncurseError(f"the function made a {type(module).__name__}, not an nn.Module")
        for part in module.modules():
            if getattr(part, "sparse", False) or isinstance(part, nn.EmbeddingBag | nn.RNNBase):
                raise UncurseError(f"{type(part).__name__} cannot be stacked: {_REMEDY}")
    return _ModuleStack([module.to(device).train() for module in modules], seeds, device)


class _ModuleStack(Stack):
    def __init__(self, modules: list[nn.Module], seeds: Sequence[int], device: torch.device) -> None:
        super().__init__((), 1, seeds, device)
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

    def parameters(self) -> int:
        return sum(w[0].numel() for w in self.weights.values())

    def state(self) -> dict[str, Tensor]:
        return {**self.weights, **self._buffers}

    def reseed(self, seed: int, step: int) -> None:
        # Dropout draws from the global stream: a step's numbers follow from its place, so a resumed run repeats them.
        self._stream = int(np.random.SeedSequence([seed, 0, step]).generate_state(1, np.uint64)[0] >> 1)

    def logits(self, *inputs: Tensor) -> Tensor:
        return self._call(True, inputs)

    def scores(self, *inputs: Tensor) -> Tensor:
        return self._call(False, inputs)

    def module(self, replica: int) -> nn.Module:
        """A copy with the weights of one replica."""
        replica = check_replica(replica, self.replicas)
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
        return z.float()


__all__ = ["stack_modules"]
