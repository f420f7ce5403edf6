"""Score maps: monotone functions of one served score, the only part that serving needs."""

from .base import ScoreMap
from .combined import Segmented
from .compose import compose
from .shapes import Affine, Curve, Steps

__all__ = ["Affine", "Curve", "ScoreMap", "Segmented", "Steps", "compose"]
