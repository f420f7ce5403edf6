"""Methods that remove the selection bias of served scores: `VAD`, `Tower` and `Auto`."""

from .auto import Auto
from .base import DataRecord, FitRecord, Fitted, GroupRecord
from .information_variance import information_variance
from .replica_kinds import KINDS
from .tower import Tower
from .vad import VAD

__all__ = [
    "KINDS",
    "VAD",
    "Auto",
    "DataRecord",
    "FitRecord",
    "Fitted",
    "GroupRecord",
    "Tower",
    "information_variance",
]
