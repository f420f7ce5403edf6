"""Is a map still valid? Calibration of new rows, tested every day without raising false alarms."""

from .state import MonitorState
from .verdict import Verdict, judge, monitor

__all__ = ["MonitorState", "Verdict", "judge", "monitor"]
