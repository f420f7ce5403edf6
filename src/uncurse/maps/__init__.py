"""Score maps: monotone functions of one served score, the only part that serving needs."""

from .combined import Segmented
from .compose import compose
from .shapes import Affine, Curve, ScoreMap, Steps

__all__ = ["Affine", "Curve", "ScoreMap", "Segmented", "Steps", "compose"]
