"""What the trainer does with the gradients that the backward pass left: SGD or Adam, lazy on embeddings.

Lazy: only the rows of the table that a batch looked up change, their momentum and weight decay included.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .stack import Stack, add_rows


class Optimiser:
    """Change weights after a backward pass; with `rows` also the rows of the table that were looked up."""

    def __init__(self, stack: Stack, rate: float, weight_decay: float, *, rows: bool = True) -> None:
        self._stack, self._rate, self._decay = stack, rate, weight_decay
        self._sum = torch.zeros_like(stack.table) if rows and stack.table is not None else None

    def set_rate(self, rate: float) -> None:
        """Change the learning rate of the steps to come."""
        self._rate = rate
        if self._stack.rate is not None:
            self._stack.rate = rate

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights and the rows that were looked up, and forget their gradients."""
        self._step_weights()
        for w in self._stack.weights.values():
            w.grad = None
        if self._stack.touched is None:
            return
        (index, rows), table = self._stack.touched, self._stack.table
        self._stack.touched = None
        assert rows.grad is not None
        assert self._sum is not None
        assert table is not None
        index = index.reshape(-1)
        # A row's gradients are summed first: a row that a batch holds twice gets one step. Such a row is computed
        # twice, to the same values, so that every shape is fixed, as a CUDA graph wants it.
        add_rows(self._sum, index, rows.grad.reshape(len(index), -1), 1.0)
        g = self._sum[index]
        self._sum[index] = torch.zeros_like(g)
        if self._decay:
            g = g + self._decay * table[index]
        table[index] = table[index] - self._row_change(index, g)

    def _step_weights(self) -> None:
        """Change the weights that have a gradient."""
        raise NotImplementedError

    def _row_change(self, index: Tensor, gradient: Tensor) -> Tensor:
        """Return what to subtract from the rows at `index`."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps, by name."""
        raise NotImplementedError


class Sgd(Optimiser):
    """w ← w − rate · v with v ← momentum · v + g. Without momentum and decay, layers do it in their backward pass."""

    def __init__(self, stack: Stack, rate: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self._momentum, self._plain = momentum, not momentum and not weight_decay
        super().__init__(stack, rate, weight_decay, rows=not self._plain)
        if self._plain:
            stack.rate = rate
        self._velocity = {} if self._plain else {name: torch.zeros_like(w) for name, w in stack.weights.items()}
        if stack.table is not None and momentum:
            self._velocity["table"] = torch.zeros_like(stack.table)

    def _step_weights(self) -> None:
        # Not by torch.optim.SGD, which imports PyTorch's compiler and takes 20 µs longer for a step on a CPU.
        found = {name: w for name, w in self._stack.weights.items() if w.grad is not None}
        if not found:
            return
        weights: list[Any] = list(found.values())
        steps: list[Any] = [w.grad for w in weights]
        if not self._plain:
            steps = list(torch._foreach_add(steps, weights, alpha=self._decay))
            velocity: list[Any] = [self._velocity[name] for name in found]
            torch._foreach_mul_(velocity, self._momentum)
            torch._foreach_add_(velocity, steps)
            steps = velocity
        torch._foreach_add_(weights, steps, alpha=-self._rate)

    def _row_change(self, index: Tensor, gradient: Tensor) -> Tensor:
        if self._momentum:
            velocity = self._velocity["table"]
            gradient = self._momentum * velocity[index] + gradient
            velocity[index] = gradient
        return self._rate * gradient

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps, by name."""
        return {f"sgd.{name}": value for name, value in self._velocity.items()}


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015) with its usual constants.

    `torch.optim.SparseAdam` treats rows alike, but for ε, which is as in `torch.optim.Adam` here.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, stack: Stack, rate: float, weight_decay: float = 0.0) -> None:
        super().__init__(stack, rate, weight_decay)
        weights, betas = list(stack.weights.values()), (self.beta1, self.beta2)
        cuda = stack.device.type == "cuda"
        self._dense = torch.optim.Adam(weights, rate, betas, self.epsilon, weight_decay, fused=True, capturable=cuda)
        for w in weights:  # the state is made here, not in the first step, so that a checkpoint can fill it
            step = torch.zeros((), device=stack.device)
            self._dense.state[w] = {"step": step, "exp_avg": torch.zeros_like(w), "exp_avg_sq": torch.zeros_like(w)}
        self._kept = {"adam.steps": torch.zeros((), device=stack.device, dtype=torch.float64)}
        if stack.table is not None:
            self._kept |= {f"adam.rows.{part}": torch.zeros_like(stack.table) for part in ("mean", "square")}

    def set_rate(self, rate: float) -> None:
        """Change the learning rate of the steps to come."""
        super().set_rate(rate)
        for group in self._dense.param_groups:
            group["lr"] = rate

    def _step_weights(self) -> None:
        self._dense.step()
        self._kept["adam.steps"] += 1

    def _row_change(self, index: Tensor, gradient: Tensor) -> Tensor:
        steps, means, squares = self._kept.values()
        mean = torch.lerp(means[index], gradient, 1 - self.beta1)
        square = torch.lerp(squares[index], gradient * gradient, 1 - self.beta2)
        means[index], squares[index] = mean, square
        root = (1 - self.beta2**steps).sqrt()
        scale = (root / (1 - self.beta1**steps) * self._rate).to(mean.dtype)
        return scale * mean / (square.sqrt() + (self.epsilon * root).to(mean.dtype))

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps, by name."""
        parts = ((f"adam.{name}", self._dense.state[w]) for name, w in self._stack.weights.items())
        return self._kept | {f"{name}.{part}": value for name, state in parts for part, value in state.items()}
