"""The click models of the paper, DLRM and xDeepFM, trained as replicas side by side.

PyTorch is imported when something here needs it, not before.
"""

from __future__ import annotations

import importlib
from typing import Any

from .clicks import Clicks


def __getattr__(name: str) -> Any:
    if name == "train_replicas":
        return importlib.import_module("uncurse.deep").train_replicas
    if name not in ("DLRM", "XDeepFM"):
        raise AttributeError(f"module 'uncurse_lab.deep' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(".models", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"uncurse_lab.deep.{name} needs PyTorch: pip install 'uncurse[deep]'") from None


__all__ = ["DLRM", "Clicks", "XDeepFM", "train_replicas"]
