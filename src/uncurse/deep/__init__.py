"""Replicas of your PyTorch network, trained side by side on a GPU or a CPU.

PyTorch is imported when something here needs it, not before.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "train_replicas": "training",
    "Replicas": "training",
    "Progress": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'uncurse.deep' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"uncurse.deep.{name} needs PyTorch: pip install 'uncurse[deep]'") from None


__all__ = ["Progress", "Replicas", "train_replicas"]
