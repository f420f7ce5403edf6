"""Methods that remove the selection bias of served scores: `VAD`, `Tower` and `Auto`."""

from .auto import Auto
from .base import REPLICAS, DataRecord, FitRecord, Fitted, GroupRecord
from .information_variance import information_variance
from .tower import Tower
from .vad import VAD

__all__ = [
    "REPLICAS",
    "VAD",
    "Auto",
    "DataRecord",
    "FitRecord",
    "Fitted",
    "GroupRecord",
    "Tower",
    "information_variance",
]
