"""Predictions that stay true after the winners are picked."""

from .calibrators import calibrate
from .evidence import Cells, Moments
from .links import UncurseError
from .maps import Affine, Chain, Curve, Grouped, Steps, load
from .vad import VAD, information_variance

__version__ = "0.1.0"

__all__ = [
    "VAD",
    "Affine",
    "Cells",
    "Chain",
    "Curve",
    "Grouped",
    "Moments",
    "Steps",
    "UncurseError",
    "calibrate",
    "information_variance",
    "load",
]
