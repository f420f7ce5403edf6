"""One replica of a stack as a plain module: to serve it, to save its state, to train it further."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UncurseError


def check_replica(replica: int, replicas: int) -> int:
    """Of those that are there."""
    if not -replicas <= replica < replicas:
        raise UncurseError(f"replica={replica}, and there are {replicas}; pass 0 to {replicas - 1}")
    return replica % replicas


class Served(nn.Module):
    """A trained `DLRM` or `XDeepFM`: numbers (B, D) and codes (B, F) to logits (B,).

    Its parameters are those of its replica, and ``state_dict`` has them all.
    """

    def __init__(self, stack: Any, replica: int) -> None:
        super().__init__()
        r = check_replica(replica, stack.replicas)
        self._stack = copy.copy(stack)
        self._stack.replicas, self._stack.rate, self._stack.dtype = 1, None, torch.float32
        self._stack._offsets = stack._offsets[:1].clone()
        parts = stack.table.detach().view(stack.replicas, -1, stack.table.shape[1])
        self.table = nn.Parameter(parts[r].clone())
        self.weights = nn.ParameterDict()
        for name, w in stack.weights.items():
            self.weights[name.replace(".", "_")] = nn.Parameter(w.detach()[r : r + 1].clone())
        self._stack._generators, self._stack.touched = [], None
        self._use_own()

    def _use_own(self) -> None:
        """What moved to another device, or was loaded, is what counts; the other replicas are let go."""
        stack = self._stack
        stack.table, stack.device = self.table, self.table.device
        stack.weights = {name: self.weights[name.replace(".", "_")] for name in stack.weights}
        for name, value in vars(stack).items():
            if isinstance(value, Tensor) and value.device != stack.device:
                setattr(stack, name, value.to(stack.device))

    def fold_line(self, slope: float, intercept: float) -> None:
        """Make every logit l into slope · l + intercept, in place; see `uncurse.fold`."""
        parts: list[Tensor] = [w for name, w in self.weights.items() if name.startswith("out_")]
        if parts:  # xDeepFM: a linear part, which its table holds, a network and interactions
            parts.append(self.table[:, :1])
            bias = self.weights["out_bias"]
        else:
            last = max(int(name.split("_")[1]) for name in self.weights if name.startswith("top_"))
            bias = self.weights[f"top_{last}_bias"]
            parts = [self.weights[f"top_{last}_weight"], bias]
        with torch.no_grad():
            for part in parts:
                part.copy_(part.double() * slope)
            bias += intercept

    def forward(self, dense: Tensor, codes: Tensor) -> Tensor:
        """Logits of rows."""
        self._use_own()
        logits: Tensor = self._stack.logits(dense[None].float(), codes[None])[0]
        self._stack.touched = None
        return logits


__all__ = ["Served", "check_replica"]
