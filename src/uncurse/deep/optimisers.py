"""SGD and Adam for stacks. Of a table they change only the rows that a batch looked up, momentum and decay included."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .stack import Stack, add_rows


class Optimiser:
    """Change weights, and rows of the table that were looked up, by the gradients that a backward pass left."""

    def __init__(self, stack: Stack, rate: float, weight_decay: float) -> None:
        self._stack, self._rate, self._decay = stack, rate, weight_decay
        self.state: dict[str, Tensor] = {}  # what a checkpoint keeps
        if stack.table is not None and stack.rate is None:
            self._sum = torch.zeros_like(stack.table)

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
        raise NotImplementedError

    def _row_change(self, index: Tensor, gradient: Tensor) -> Tensor:
        """Return what to subtract from the rows at `index`."""
        raise NotImplementedError


class Sgd(Optimiser):
    """w ← w − rate · v with v ← momentum · v + g. Without momentum and decay, layers do it in their backward pass."""

    def __init__(self, stack: Stack, rate: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self._momentum = momentum
        if not momentum and not weight_decay:
            stack.rate = rate
        super().__init__(stack, rate, weight_decay)
        if stack.rate is None:
            self.state = {f"sgd.{name}": torch.zeros_like(w) for name, w in stack.weights.items()}
        if stack.table is not None and momentum:
            self.state["sgd.table"] = torch.zeros_like(stack.table)

    def _step_weights(self) -> None:
        # Not by torch.optim.SGD, which imports PyTorch's compiler and takes 20 µs longer for a step on a CPU.
        found: dict[str, Any] = {name: w for name, w in self._stack.weights.items() if w.grad is not None}
        if not found:
            return
        weights, steps = tuple(found.values()), tuple(w.grad for w in found.values())
        if self._stack.rate is None:
            steps = torch._foreach_add(steps, weights, alpha=self._decay)
            velocity = tuple(self.state[f"sgd.{name}"] for name in found)
            torch._foreach_mul_(velocity, self._momentum)
            torch._foreach_add_(velocity, steps)
            steps = velocity
        torch._foreach_add_(weights, steps, alpha=-self._rate)

    def _row_change(self, index: Tensor, gradient: Tensor) -> Tensor:
        if self._momentum:
            velocity = self.state["sgd.table"]
            gradient = self._momentum * velocity[index] + gradient
            velocity[index] = gradient
        return self._rate * gradient


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015). `torch.optim.SparseAdam` treats rows alike, but for ε, which is as in `Adam` here."""

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, stack: Stack, rate: float, weight_decay: float = 0.0) -> None:
        super().__init__(stack, rate, weight_decay)
        weights, betas = list(stack.weights.values()), (self.beta1, self.beta2)
        cuda = stack.device.type == "cuda"
        self._dense = torch.optim.Adam(weights, rate, betas, self.epsilon, weight_decay, fused=True, capturable=cuda)
        self.state["adam.steps"] = torch.zeros((), device=stack.device, dtype=torch.float64)
        if stack.table is not None:
            self.state |= {f"adam.rows.{part}": torch.zeros_like(stack.table) for part in ("mean", "square")}
        for name, w in stack.weights.items():  # made here, not in the first step, so that a checkpoint can fill it
            step = torch.zeros((), device=stack.device)
            state = {"step": step, "exp_avg": torch.zeros_like(w), "exp_avg_sq": torch.zeros_like(w)}
            self._dense.state[w] = state
            self.state |= {f"adam.{name}.{part}": value for part, value in state.items()}

    def set_rate(self, rate: float) -> None:
        """Change the learning rate of the steps to come."""
        super().set_rate(rate)
        self._dense.param_groups[0]["lr"] = rate

    def _step_weights(self) -> None:
        self._dense.step()
        self.state["adam.steps"] += 1

    def _row_change(self, index: Tensor, gradient: Tensor) -> Tensor:
        steps, means, squares = (self.state[f"adam.{part}"] for part in ("steps", "rows.mean", "rows.square"))
        mean = torch.lerp(means[index], gradient, 1 - self.beta1)
        square = torch.lerp(squares[index], gradient * gradient, 1 - self.beta2)
        means[index], squares[index] = mean, square
        root = (1 - self.beta2**steps).sqrt()
        scale = (root / (1 - self.beta1**steps) * self._rate).to(mean.dtype)
        return scale * mean / (square.sqrt() + (self.epsilon * root).to(mean.dtype))
