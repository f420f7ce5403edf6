"""Methods that remove the selection bias of served scores: `VAD`, `Tower` and `Auto`."""

from .auto import Auto
from .base import Fitted
from .information_variance import information_variance
from .records import (
    DataRecord,
    ErrorInterval,
    FitRecord,
    GroupRecord,
    RefreshRecord,
    ScoreSummary,
    TopChange,
    load_record,
)
from .replica_kinds import KINDS
from .tower import Tower
from .vad import VAD

__all__ = [
    "KINDS",
    "VAD",
    "Auto",
    "DataRecord",
    "ErrorInterval",
    "FitRecord",
    "Fitted",
    "GroupRecord",
    "RefreshRecord",
    "ScoreSummary",
    "TopChange",
    "Tower",
    "information_variance",
    "load_record",
]
