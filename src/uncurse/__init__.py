"""Predictions that stay true after the winners are picked."""

import importlib
from typing import TYPE_CHECKING, Any

from .calibration.calibrators import calibrate
from .debias.auto import Auto
from .debias.information_variance import information_variance
from .debias.refresh import refresh
from .debias.tower import Tower
from .debias.vad import VAD
from .errors import UncurseError
from .evidence import Cells, Evidence, LogSpec, Moments, ReplicaCounts, TopK
from .maps import Affine, Chain, Curve, Grouped, Steps, load
from .metrics import (
    Evaluation,
    calibration_error,
    evaluate,
    expected_calibration_error,
    log_loss_reduction,
    maximum_calibration_error,
)
from .metrics.selection import top_k, top_share
from .monitoring import MonitorState, Verdict, monitor
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .displays import SelectedReliabilityDisplay, SelectionErrorDisplay
    from .estimators.uncursed import UncursedClassifierCV, UncursedRegressorCV
    from .logs import collect
    from .serving.fold import fold

#: Names and modules that are imported on first use: scikit-learn and dataframe engines take most of a second.
_LAZY = {
    "SelectedReliabilityDisplay": "displays",
    "SelectionErrorDisplay": "displays",
    "UncursedClassifierCV": "estimators",
    "UncursedRegressorCV": "estimators",
    "collect": "logs",
    "fold": "serving",
}
_MODULES = ("deep", "displays", "estimators", "logs", "mlflow", "report", "serving")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'uncurse' has no attribute {name!r}")


__all__ = [
    "VAD",
    "Affine",
    "Auto",
    "Cells",
    "Chain",
    "Curve",
    "Evaluation",
    "Evidence",
    "Grouped",
    "LogSpec",
    "Moments",
    "MonitorState",
    "ReplicaCounts",
    "SelectedReliabilityDisplay",
    "SelectionErrorDisplay",
    "Steps",
    "TopK",
    "Tower",
    "UncurseError",
    "UncursedClassifierCV",
    "UncursedRegressorCV",
    "Verdict",
    "calibrate",
    "calibration_error",
    "collect",
    "evaluate",
    "expected_calibration_error",
    "fold",
    "information_variance",
    "load",
    "log_loss_reduction",
    "maximum_calibration_error",
    "monitor",
    "refresh",
    "top_k",
    "top_share",
]
