"""Methods that remove the selection bias of served scores: `VAD`, `ReplicaCalibrator` and `Auto`."""

from .auto import Auto
from .fitted import Fitted, load
from .information_variance import information_variance
from .noise import KINDS
from .records import DataRecord, FitRecord, RefreshRecord, ScoreSummary, SegmentRecord, TopChange
from .remaining_error import ErrorTable
from .replica_calibration import ReplicaCalibrator
from .vad import VAD

__all__ = [
    "KINDS",
    "VAD",
    "Auto",
    "DataRecord",
    "ErrorTable",
    "FitRecord",
    "Fitted",
    "RefreshRecord",
    "ReplicaCalibrator",
    "ScoreSummary",
    "SegmentRecord",
    "TopChange",
    "information_variance",
    "load",
]
