"""How to train, and what the process is set to meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
        for name, may_be_zero, below, remedy in (
            ("rate", False, np.inf, "a learning rate above 0, such as 0.1"),
            ("final_rate", False, np.inf, "a learning rate above 0, or leave it out"),
            ("momentum", True, 1, "a number from 0 to below 1, such as 0.9"),
            ("weight_decay", True, np.inf, "a number of 0 or more, such as 1e-5"),
        ):
            value = getattr(self, name)
            if name == "final_rate" and value is None:
                continue
            number = float(value) if isinstance(value, Real) else np.nan
            if not 0 <= number < below or (number == 0 and not may_be_zero):
                raise UncurseError(f"{name}={value!r}; pass {remedy}")
            object.__setattr__(self, name, number)
        if not isinstance(self.seed, Integral) or not 0 <= self.seed < 1 << 62:
            raise UncurseError(f"seed={self.seed!r}; pass a whole number from 0 on")
        object.__setattr__(self, "seed", int(self.seed))
        if self.momentum and self.optimiser == "adam":
            raise UncurseError(f"momentum={self.momentum!r} is for optimiser='sgd'; Adam has its own, leave it out")
        for share in self.snapshots:
            if not isinstance(share, Real) or not 0 < share < 1:
                raise UncurseError(f"snapshots holds {share!r}; pass shares of the steps, such as (0.8, 0.9)")
        object.__setattr__(self, "snapshots", tuple(sorted({float(share) for share in self.snapshots})))
        for name in ("bootstrap", "deterministic"):
            object.__setattr__(self, name, bool(getattr(self, name)))

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
    def settings(self, device: torch.device, work: int = _SMALL) -> Iterator[None]:
        """Set the process to the precision and determinism of this plan, and to the GPU of graphs and kernels."""
        products: Any = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        exact, cuda = torch.are_deterministic_algorithms_enabled(), device.type == "cuda"
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        with ExitStack() as afterwards:
            for each in products:
                afterwards.callback(setattr, each, "fp32_precision", each.fp32_precision)
                each.fp32_precision = "ieee"  # on a CPU anything but full precision may mean bf16
            if cuda and self.precision != "float32":
                products[0].fp32_precision = "tf32"
            if self.deterministic and (not exact or warns):  # spare the call, which imports PyTorch's compiler
                afterwards.callback(torch.use_deterministic_algorithms, exact, warn_only=warns)
                torch.use_deterministic_algorithms(True)
            if work < _SMALL and device.type == "cpu":  # more threads would wait for each other (60 times longer)
                afterwards.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(1)
            if cuda:
                afterwards.enter_context(torch.cuda.device(device))
            yield
