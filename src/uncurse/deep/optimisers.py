"""What the trainer does with gradients that the backward pass left: plain SGD, or Adam that is lazy on embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .stack import Stack, add_rows


class Sgd:
    """w ← w − rate · g, exactly; layers that did it in their backward pass left no gradient."""

    def __init__(self, stack: Stack, rate: float) -> None:
        self._weights, self._rate = list(stack.weights.values()), rate
        stack.rate = rate

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights and forget their gradients."""
        pairs = [(w, w.grad) for w in self._weights if w.grad is not None]
        if pairs:
            torch._foreach_add_([w for w, _ in pairs], [g for _, g in pairs], alpha=-self._rate)
        for w, _ in pairs:
            w.grad = None

    def state(self) -> dict[str, Tensor]:
        """Nothing to keep."""
        return {}


class Adam:
    """Adam (Kingma and Ba 2015) with the defaults of everyone; of a table only rows that the batch looked up change.

    So does `torch.optim.SparseAdam`, but for ε, which is as in `torch.optim.Adam` here. A row's gradients are summed in
    a table of their own first: a row that a batch holds twice gets one step, and every shape is fixed, as a CUDA graph
    wants it.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, stack: Stack, rate: float) -> None:
        self._stack, self._rate = stack, rate
        weights = list(stack.weights.values())
        self._dense = torch.optim.Adam(
            weights, rate, (self.beta1, self.beta2), self.epsilon, fused=True, capturable=stack.device.type == "cuda"
        )
        for w in weights:  # the state is made here, not in the first step, so that a checkpoint can fill it
            step = torch.zeros((), device=stack.device)
            self._dense.state[w] = {"step": step, "exp_avg": torch.zeros_like(w), "exp_avg_sq": torch.zeros_like(w)}
        self._steps = torch.zeros((), device=stack.device, dtype=torch.float64)
        self._mean, self._square, self._sum = (torch.zeros_like(stack.table) for _ in range(3))

    def step(self) -> None:
        """Change the weights and the rows that were looked up, and forget their gradients."""
        self._dense.step()
        self._dense.zero_grad(set_to_none=True)
        self._steps += 1
        if self._stack.touched is not None:
            self._step_rows(*self._stack.touched)
            self._stack.touched = None

    @torch.no_grad()
    def _step_rows(self, index: Tensor, rows: Tensor) -> None:
        assert rows.grad is not None
        index = index.reshape(-1)
        add_rows(self._sum, index, rows.grad.reshape(len(index), -1), 1.0)
        g = self._sum[index]
        # Rows looked up twice are computed twice, to the same values: it does not matter which is written last.
        mean = torch.lerp(self._mean[index], g, 1 - self.beta1)
        square = torch.lerp(self._square[index], g * g, 1 - self.beta2)
        scale = (1 - self.beta2**self._steps).sqrt() / (1 - self.beta1**self._steps) * self._rate
        change = (scale.float() * mean) / (square.sqrt() + self.epsilon * (1 - self.beta2**self._steps).sqrt().float())
        self._stack.table[index] = self._stack.table[index] - change
        self._mean[index], self._square[index] = mean, square
        self._sum[index] = torch.zeros_like(g)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, by name."""
        kept = {"adam.steps": self._steps, "adam.rows.mean": self._mean, "adam.rows.square": self._square}
        for name, w in self._stack.weights.items():
            kept |= {f"adam.{name}.{part}": value for part, value in self._dense.state[w].items()}
        return kept


def make_optimiser(name: str, stack: Stack, rate: float) -> Any:
    """By name."""
    return (Adam if name == "adam" else Sgd)(stack, rate)


__all__ = ["Adam", "Sgd", "make_optimiser"]
