"""Is a map still valid? Calibration of new rows, tested every day without raising false alarms."""

from .drift import LambdaChange, ScoreChange
from .sequential import Calibration, LabelSums
from .state import Day, MonitorState
from .verdict import Verdict, judge, monitor

__all__ = [
    "Calibration",
    "Day",
    "LabelSums",
    "LambdaChange",
    "MonitorState",
    "ScoreChange",
    "Verdict",
    "judge",
    "monitor",
]
