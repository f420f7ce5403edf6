"""The process's settings while we train or score, put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

_SMALL = 1 << 25  # weights times rows of a step that one thread does in a few milliseconds


@contextmanager
def settings(device: torch.device, *, precision: str, deterministic: bool) -> Iterator[None]:
    """Precision of products, determinism, and the GPU that graphs and kernels are for."""
    cuda = device.type == "cuda"
    exact, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    precise: Any = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [home.fp32_precision for home in precise]
    # On a CPU anything but full precision may mean bf16.
    for home, value in zip(precise, ("tf32" if cuda and precision != "float32" else "ieee", "ieee"), strict=True):
        home.fp32_precision = value
    torch.use_deterministic_algorithms(deterministic or exact, warn_only=warns and not deterministic)
    try:
        with torch.cuda.device(device) if cuda else nullcontext():
            yield
    finally:
        for home, value in zip(precise, before, strict=True):
            home.fp32_precision = value
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


__all__ = ["settings", "threads"]
