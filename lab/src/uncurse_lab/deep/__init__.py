"""The click models of the paper, DLRM and xDeepFM, trained as replicas side by side.

PyTorch is imported when something here needs it, not before.
"""

from __future__ import annotations

import importlib
from typing import Any

from uncurse.optional import needing

from .clicks import Clicks

__all__ = ["DLRM", "Clicks", "XDeepFM", "train_replicas"]
_HOMES = {"DLRM": "models", "XDeepFM": "models", "train_replicas": "click_stack"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'uncurse_lab.deep' has no attribute {name!r}")
    with needing("deep", f"uncurse_lab.deep.{name} needs PyTorch"):
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
