"""A map as a torch module, to stand behind the model that it corrects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...maps import ScoreMap
from ...maps.compile import BELOW_ONE, TINY, Clip, Line, Operation, Phi, Pieces, compile_map, valid_range


def _normal(l: Tensor) -> Tensor:
    """The normal distribution function; torch's own has no lower tail."""
    return 0.5 * torch.erfc(l * -math.sqrt(0.5))


_PHI: dict[str, Callable[[Tensor], Tensor]] = {"logistic": torch.sigmoid, "log": torch.exp, "probit": _normal}
_INVERSE: dict[str, Any] = {"logistic": torch.logit, "log": torch.log, "probit": torch.special.ndtri}


class MapModule(nn.Module):
    """A map as a module: from scores of any shape to predictions of the same dtype; NaN for what is no score.

    The map's numbers are buffers in double and stay so when the model around them is cast: neighbouring scores must not
    fall together before the map has seen them.

    Parameters
    ----------
    score_map : ScoreMap
        An `Affine`, `Curve`, `Steps` or `Chain`.

    Examples
    --------
    >>> from uncurse import Affine
    >>> MapModule(Affine(0.5, -1.0))(torch.tensor([[2.0], [-2.0]]))
    tensor([[0.5000],
            [0.1192]])
    """

    def __init__(self, score_map: ScoreMap) -> None:
        super().__init__()
        self._low, self._high = valid_range(score_map)
        self._steps = compile_map(score_map)
        buffers: dict[str, Any] = {}
        for i, step in enumerate(self._steps):
            if isinstance(step, Line):
                buffers[f"line_{i}"] = [step.slope, step.intercept]
            elif isinstance(step, Pieces):
                buffers |= {"edges": step.edges, f"pieces_{i}": [step.x, step.y, step.slope]}
        for name, values in buffers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """The prediction of each score."""
        served = scores.to(torch.float64)
        is_score = (served >= self._low) & (served <= self._high)
        served = torch.where(is_score, served, 0.5)
        piece = torch.bucketize(served, self.get_buffer("edges"), right=True) if hasattr(self, "edges") else None
        l = served
        for i, step in enumerate(self._steps):
            l = self._step(step, i, l, piece)
        l = torch.where(is_score, l, torch.nan)
        return l.to(scores.dtype) if scores.is_floating_point() else l

    def _step(self, step: Operation, i: int, l: Tensor, piece: Tensor | None) -> Tensor:
        if isinstance(step, Line):
            slope, intercept = self.get_buffer(f"line_{i}").unbind()
            return slope * l + intercept
        if isinstance(step, Pieces):
            x, y, slope = self.get_buffer(f"pieces_{i}")[:, piece].unbind()
            return y + slope * (l - x)
        if isinstance(step, Clip):
            return l.clamp(step.low, step.high)
        if isinstance(step, Phi):
            return _PHI[step.link](l)
        return cast(Tensor, _INVERSE[step.link](l.clamp(TINY, None if step.link == "log" else BELOW_ONE)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MapModule:
        """Moves to another device are followed, casts to another dtype are not."""

        def moved(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            return made if made.dtype == tensor.dtype else tensor.to(made.device)

        return cast(MapModule, super()._apply(moved, recurse))  # type: ignore[no-untyped-call]
