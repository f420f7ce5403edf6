"""The best of many noisy estimates, corrected for having been picked, and readers of common formats of scores."""

from .readers import from_frame, from_inspect, from_lm_eval, from_search, from_study
from .scores import Scores
from .winner import Impact, Winner, Winners, winner

__all__ = [
    "Impact", "Scores", "Winner", "Winners", "from_frame", "from_inspect", "from_lm_eval", "from_search", "from_study",
    "winner",
]  # fmt: skip
