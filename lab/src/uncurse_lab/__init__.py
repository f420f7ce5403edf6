"""Research code: the experiments of the paper, the arena, and click logs with known probabilities.

>>> from uncurse_lab import ClickWorld
>>> ClickWorld.criteo(scale=0.001).draw(10, seed=1).codes.shape
torch.Size([10, 26])
"""

from __future__ import annotations

from typing import Any

from uncurse.optional import needing


def __getattr__(name: str) -> Any:
    if name != "ClickWorld":
        raise AttributeError(f"module 'uncurse_lab' has no attribute {name!r}")
    with needing("deep"):
        from .worlds import ClickWorld
    return ClickWorld


__all__ = ["ClickWorld"]
