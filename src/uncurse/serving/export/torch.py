"""A map as a torch module, to stand behind the model that it corrects."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from ...maps import ScoreMap
from ...maps.program import BELOW_ONE, TINY, compile_map
from ...methods.fitted import Fitted, fitted_of

_STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "logit": lambda p: torch.logit(p.clamp(TINY, BELOW_ONE)),
    "log": lambda value: value.clamp(TINY).log(),
    "exp": torch.exp,
}


class MapModule(nn.Module):
    """A map as a module: from scores of any shape to predictions of the same dtype; NaN for what is no score.

    The map's numbers are buffers in double and stay so when the model around them is cast: neighboring scores must not
    fall together before the map has seen them.

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        An `Affine`, `Curve` or `Steps`.

    Examples
    --------
    >>> from uncurse import Affine
    >>> MapModule(Affine(0.5, -1.0))(torch.tensor([[2.0], [-2.0]]))
    tensor([[0.5000],
            [0.1192]])
    """

    def __init__(self, score_map: ScoreMap | Fitted) -> None:
        super().__init__()
        self._program = compile_map(fitted_of(score_map).map)
        self.register_buffer("edges", torch.tensor(self._program.edges, dtype=torch.float64))
        self.register_buffer("pieces", torch.tensor(self._program.pieces, dtype=torch.float64))

    def forward(self, scores: Tensor) -> Tensor:
        """Return the prediction of each score.

        Parameters
        ----------
        scores : Tensor
            Served scores of any shape.

        Returns
        -------
        Tensor
            Of the same shape and dtype.
        """
        program, served = self._program, scores.to(torch.float64)
        low, high = program.valid
        is_score = (served >= low) & (served <= high)
        served = torch.where(is_score, served, 0.5)
        piece = torch.bucketize(served, self.get_buffer("edges"), right=True)
        x, y, slope = self.get_buffer("pieces")[piece].unbind(-1)
        before, after = program.steps
        l = served
        for step in before:
            l = _STEPS[step](l)
        l = y + slope * (l - x)
        for step in after:
            l = _STEPS[step](l)
        if program.bounds is not None:
            l = l.clamp(*program.bounds)
        l = torch.where(is_score, l, torch.nan)
        return l.to(scores.dtype) if scores.is_floating_point() else l

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MapModule:
        """Moves to another device are followed, casts to another dtype are not."""

        def moved(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            return made if made.dtype == tensor.dtype else tensor.to(made.device)

        return cast(MapModule, super()._apply(moved, recurse))  # type: ignore[no-untyped-call]
