"""Serve a map at no cost: fold it into the model, or export it to wherever scores are.

`fold` puts a straight map into the numbers of the model: the same graph, the same latency, the same order. `verify`
shows it. A map that is not straight goes behind the model: `MapModule`, `to_onnx`, `to_sql`, `to_python`, `to_c`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .export.code import to_c, to_python
from .export.sql import to_sql
from .fold import fold, fold_file
from .verify import Verification, verify, verify_files

if TYPE_CHECKING:
    from .export.onnx import to_onnx
    from .export.torch import MapModule

_HOMES = {"MapModule": "torch", "to_onnx": "onnx"}  # only those who use them need these libraries


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'uncurse.serving' has no attribute {name!r}")
    return getattr(import_module(f".export.{_HOMES[name]}", __name__), name)


__all__ = [
    "MapModule", "Verification", "fold", "fold_file",
    "to_c", "to_onnx", "to_python", "to_sql", "verify", "verify_files",
]  # fmt: skip
