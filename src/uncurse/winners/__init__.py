"""The best of many noisy estimates, corrected for having been picked, and readers of common formats of scores."""

from .scores import Scores
from .winner import Impact, Winner, Winners, winner

__all__ = ["Impact", "Scores", "Winner", "Winners", "winner"]
