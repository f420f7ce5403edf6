"""Predictions that stay true after you pick the winners."""

import importlib
from typing import TYPE_CHECKING, Any

from .calibration.calibrators import calibrate
from .errors import UncurseError
from .evidence import Evidence, TopK
from .maps import Affine, Curve, Segmented, Steps
from .methods.auto import Auto
from .methods.fitted import Fitted, load
from .methods.information_variance import information_variance
from .methods.refresh import refresh
from .methods.replica_calibration import ReplicaCalibrator
from .methods.vad import VAD
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
    from .winners import Winner, winner

#: Names and modules that are imported on first use: scikit-learn and dataframe engines take most of a second.
_LAZY = {
    "SelectedReliabilityDisplay": "displays",
    "SelectionErrorDisplay": "displays",
    "UncursedClassifierCV": "estimators",
    "UncursedRegressorCV": "estimators",
    "collect": "logs",
    "fold": "serving",
    "Winner": "winners",
    "winner": "winners",
}
_MODULES = ("deep", "displays", "estimators", "logs", "mlflow", "report", "serving", "winners")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'uncurse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})


__all__ = [
    "VAD",
    "Affine",
    "Auto",
    "Curve",
    "Evaluation",
    "Evidence",
    "Fitted",
    "MonitorState",
    "ReplicaCalibrator",
    "Segmented",
    "SelectedReliabilityDisplay",
    "SelectionErrorDisplay",
    "Steps",
    "TopK",
    "UncurseError",
    "UncursedClassifierCV",
    "UncursedRegressorCV",
    "Verdict",
    "Winner",
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
    "winner",
]
