"""How to train, and what the process is set to meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from ..errors import UncurseError
from ..validation import check_choice, check_count

_RATE_CHANGES = 20  # values of a changing learning rate: a GPU captures its step anew for each
PRECISIONS = ("tf32", "float32", "bf16")
_SMALL = 1 << 25  # weights times rows of a step that one thread does in a few milliseconds


@dataclass(frozen=True)
class Plan:
    """How to train. What becomes of a replica depends on its seed, not on who trains beside it (dropout apart)."""

    n_replicas: int = 2
    epochs: int = 1
    batch_size: int = 128
    optimiser: str = "sgd"  # or "adam"
    rate: float = 0.1
    final_rate: float | None = None  # the rate is constant by default
    momentum: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0  # of the first replica; the second has the next
    bootstrap: bool = False
    snapshots: tuple[float, ...] = ()
    precision: str = "tf32"
    deterministic: bool = False

    def __post_init__(self) -> None:
        for name in ("n_replicas", "epochs", "batch_size"):
            object.__setattr__(self, name, check_count(getattr(self, name), name))
        check_choice("optimiser", self.optimiser, ("sgd", "adam"))
        check_choice("precision", self.precision, PRECISIONS)
        if not isinstance(self.rate, Real) or not 0 < self.rate < np.inf:
            raise UncurseError(f"rate={self.rate!r}; pass a learning rate above 0, such as 0.1")
        if not isinstance(self.seed, Integral) or not 0 <= self.seed < 1 << 62:
            raise UncurseError(f"seed={self.seed!r}; pass a whole number from 0 on")
        if self.final_rate is not None and not (isinstance(self.final_rate, Real) and 0 < self.final_rate < np.inf):
            raise UncurseError(f"final_rate={self.final_rate!r}; pass a learning rate above 0, or leave it out")
        if not isinstance(self.momentum, Real) or not 0 <= self.momentum < 1:
            raise UncurseError(f"momentum={self.momentum!r}; pass a number from 0 to below 1, such as 0.9")
        if self.momentum and self.optimiser == "adam":
            raise UncurseError(f"momentum={self.momentum!r} is for optimiser='sgd'; Adam has its own, leave it out")
        if not isinstance(self.weight_decay, Real) or not 0 <= self.weight_decay < np.inf:
            raise UncurseError(f"weight_decay={self.weight_decay!r}; pass a number of 0 or more, such as 1e-5")
        for share in self.snapshots:
            if not isinstance(share, Real) or not 0 < share < 1:
                raise UncurseError(f"snapshots holds {share!r}; pass shares of the steps, such as (0.8, 0.9)")
        for name in ("rate", "final_rate", "momentum", "weight_decay"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("bootstrap", "deterministic"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        object.__setattr__(self, "snapshots", tuple(sorted({float(share) for share in self.snapshots})))
        object.__setattr__(self, "seed", int(self.seed))

    def rate_at(self, progress: float) -> float:
        """Return the learning rate after a share of the steps: twenty values from `rate` to `final_rate`."""
        if self.final_rate is None:
            return self.rate
        done = min(int(progress * _RATE_CHANGES), _RATE_CHANGES - 1) / (_RATE_CHANGES - 1)
        return self.rate + done * (self.final_rate - self.rate)

    @property
    def seeds(self) -> list[int]:
        """One for each replica."""
        return [self.seed + r for r in range(self.n_replicas)]

    @contextmanager
    def settings(self, device: torch.device) -> Iterator[None]:
        """Set the process to the precision and determinism of this plan, and to the GPU of graphs and kernels."""
        cuda = device.type == "cuda"
        exact = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        precise: Any = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
        before = [home.fp32_precision for home in precise]
        # On a CPU anything but full precision may mean bf16.
        wanted = ("tf32" if cuda and self.precision != "float32" else "ieee", "ieee")
        for home, value in zip(precise, wanted, strict=True):
            home.fp32_precision = value
        changed = self.deterministic and (not exact or warns)
        if changed:  # otherwise spare the call: it imports PyTorch's compiler, which takes seconds
            torch.use_deterministic_algorithms(True)
        try:
            with torch.cuda.device(device) if cuda else nullcontext():
                yield
        finally:
            for home, value in zip(precise, before, strict=True):
                home.fp32_precision = value
            if changed:
                torch.use_deterministic_algorithms(exact, warn_only=warns)


@contextmanager
def threads(device: torch.device, work: int) -> Iterator[None]:
    """One thread on a CPU where a step is small: more would wait for each other (60 times longer on busy cores)."""
    before = torch.get_num_threads()
    if device.type == "cpu" and work < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
