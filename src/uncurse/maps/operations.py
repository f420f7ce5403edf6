"""Operations of compiled maps: lines, tables of pieces, links and bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import Array
from ..links import get_link

#: Bounds of predictions: the smallest normal float, the largest, and the largest below 1.
TINY = float(np.finfo(np.float64).tiny)
MOST = float(np.finfo(np.float64).max)
BELOW_ONE = float(np.nextafter(1.0, 0.0))


@dataclass(frozen=True)
class Line:
    """slope · l + intercept."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Pieces:
    """y[i] + slope[i] · (l − x[i]), where i is the number of `edges` that are at most the input of the program.

    All `Pieces` of one program have the same edges.
    """

    edges: tuple[float, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float, ...]


@dataclass(frozen=True)
class Phi:
    """φ(l): from a score of the link to the prediction, inside (0, 1) for the logistic and probit links."""

    link: str


@dataclass(frozen=True)
class Inverse:
    """φ⁻¹(l): from a prediction to the score of the link; 0 and 1 give the largest finite scores."""

    link: str


@dataclass(frozen=True)
class Clip:
    """Clip l to [`low`, `high`]."""

    low: float
    high: float


Operation = Line | Pieces | Phi | Inverse | Clip


def apply(operation: Operation, l: Array, found_by: Array) -> Array:
    """Apply one operation to the numbers `l`, in the arithmetic of the maps themselves.

    `found_by` is the input of the program, by which the piece is found.
    """
    result: Array
    if isinstance(operation, Line):
        return operation.slope * l + operation.intercept if operation.slope else np.full_like(l, operation.intercept)
    if isinstance(operation, Pieces):
        i = np.searchsorted(operation.edges, found_by, side="right")
        x, y, slope = (np.array(column)[i] for column in (operation.x, operation.y, operation.slope))
        with np.errstate(over="ignore", invalid="ignore"):
            result = np.where(slope == 0.0, y, slope * (l - x) + y)
        return result
    if isinstance(operation, Phi):
        return get_link(operation.link).phi(l).astype(np.float64, copy=False)
    if isinstance(operation, Inverse):
        return get_link(operation.link).inverse(l).astype(np.float64, copy=False)
    result = np.clip(l, operation.low, operation.high)
    return result
