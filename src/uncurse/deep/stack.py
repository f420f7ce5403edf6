"""Weights of R models of one shape, stacked: a step of R models launches as many kernels as a step of one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UncurseError

_REMEDY = (
    "networks that read values to decide what to do (.item(), an if on a tensor), sparse gradients, EmbeddingBag and "
    "recurrent layers cannot be stacked; train such replicas one after another"
)


class Stack:
    """Stacked weights of R models, and the optimizer (SGD or Adam) that changes them."""

    scored = 1 << 17  # rows times replicas that are scored at a time: a gigabyte or two

    def __init__(self, replicas: int, device: torch.device) -> None:
        self.replicas, self.device = replicas, device
        if device.type == "cuda":
            self.scored = 4 * self.scored  # fewer, larger kernels
        self.weights: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}  # numbers that no gradient changes, such as means of batches
        self.widths: list[tuple[int, ...]] = []  # shapes of a row of each input, as trained on
        self.learning_rate = 0.0
        self.adam: torch.optim.Adam | None = None  # None for SGD

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of inputs (R or 1, B, …): for training if gradients are enabled, else for scoring."""
        raise NotImplementedError

    def module(self, replica: int) -> nn.Module:
        """Return one replica as a module of its own."""
        raise NotImplementedError

    def check_inputs(self, *inputs: Tensor) -> None:
        """Raise UncurseError if a row cannot be scored."""

    def reseed(self, seed: int, step: int) -> None:
        """Prepare a step of networks that draw random numbers."""

    def state(self) -> dict[str, Tensor]:
        """Return all numbers of the models by name."""
        return {**self.weights, **self.buffers}

    def with_state(self, state: dict[str, Tensor]) -> Stack:
        """Return a stack of the same models with other numbers."""
        made = copy.copy(self)
        made.weights = {name: state[name].to(self.device) for name in self.weights}
        made.buffers = {name: state[name].to(self.device) for name in self.buffers}
        return made

    def use_adam(self) -> None:
        """Optimize by Adam instead of SGD."""
        cuda = self.device.type == "cuda"
        self.adam = torch.optim.Adam(list(self.weights.values()), fused=True, capturable=cuda)

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights by the gradients that a backward pass left, and forget the gradients."""
        changed = [w for w in self.weights.values() if w.grad is not None]
        if self.adam is not None:
            self.adam.param_groups[0]["lr"] = self.learning_rate
            self.adam.step()
        elif changed:  # not by torch.optim.SGD, which imports PyTorch's compiler and takes 20 µs longer on a CPU
            gradients: Any = [w.grad for w in changed]
            torch._foreach_add_(changed, gradients, alpha=-self.learning_rate)
        for w in changed:
            w.grad = None


class ModuleStack(Stack):
    """A stack of any modules of one shape, by `torch.func`."""

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        super().__init__(len(modules), device)
        for part in chain.from_iterable(module.modules() for module in modules):
            if getattr(part, "sparse", False) or isinstance(part, nn.EmbeddingBag):
                raise UncurseError(f"this network has {part}: {_REMEDY}")
        try:
            weights, self.buffers = torch.func.stack_module_state([module.train() for module in modules])
        except RuntimeError as error:
            raise UncurseError(f"every call must make the same shapes of weights: {error}") from None
        self.weights = {name: w.detach().requires_grad_(w.requires_grad) for name, w in weights.items()}
        if not any(w.requires_grad for w in self.weights.values()):
            raise UncurseError("this network has no weights that want a gradient; there is nothing to train")
        self._dtype = next(w.dtype for w in self.weights.values() if w.requires_grad)
        self._stream = 0
        self._shell = modules[0]  # its own numbers are never used
        self._blank = copy.deepcopy(modules[0])

    def reseed(self, seed: int, step: int) -> None:
        """Choose the random numbers of a step."""
        # Dropout draws from the global stream: seeded by the step, its numbers do not depend on what drew before.
        self._stream = int(np.random.SeedSequence([seed, 0, step]).generate_state(1, np.uint64)[0] >> 1)

    def module(self, replica: int) -> nn.Module:
        """Return one replica as a module of its own."""
        made = copy.deepcopy(self._blank)
        places = dict(made.named_parameters()) | dict(made.named_buffers())
        with torch.no_grad():
            for name, value in self.state().items():
                places[name].copy_(value[replica])
        return made.eval()

    def logits(self, *inputs: Tensor) -> Tensor:
        """Return logits (R, B) of inputs (R or 1, B, …)."""
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
            raise UncurseError(f"this network failed on a batch of {rows} rows: {reason}; {_REMEDY}") from error
        if z.dim() == 3 and z.shape[2] == 1:
            z = z[..., 0]
        if z.shape != (self.replicas, rows):
            raise UncurseError(
                f"the network returned shape {tuple(z.shape[1:])} for {rows} rows; it must return one logit per row"
            )
        return z if z.dtype == torch.float64 else z.float()


def make_modules(make: Callable[[], Any], seeds: Sequence[int], device: torch.device) -> Iterator[Any]:
    """Yield the module of each seed on the device; one at a time, because embedding tables are large."""
    for seed in seeds:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            module = make()
        if not isinstance(module, nn.Module):
            raise UncurseError(f"the function made a {type(module).__name__}, not an nn.Module")
        yield module.to(device)
