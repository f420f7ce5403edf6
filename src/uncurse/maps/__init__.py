"""Score maps: monotone functions of one served score, the only part that serving needs."""

from .base import ScoreMap
from .combined import Chain, Grouped, compose
from .files import from_dict, load
from .shapes import Affine, Curve, Steps

__all__ = [
    "Affine",
    "Chain",
    "Curve",
    "Grouped",
    "ScoreMap",
    "Steps",
    "compose",
    "from_dict",
    "load",
]
