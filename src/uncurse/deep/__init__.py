"""Replicas of your PyTorch network, trained side by side on a GPU or a CPU.

PyTorch is imported when something here needs it, not before.
"""

from __future__ import annotations

from typing import Any

from ..optional import needing

__all__ = ["Replicas", "train_replicas"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'uncurse.deep' has no attribute {name!r}")
    with needing("deep", f"uncurse.deep.{name} needs PyTorch"):
        from . import training
    return getattr(training, name)
