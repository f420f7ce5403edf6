"""Predictions that stay true after you pick the winners."""

from __future__ import annotations

import importlib

from .version import __version__ as __version__

TYPE_CHECKING = False  # without an import of typing, which takes longer than this module
if TYPE_CHECKING:
    from typing import Any

    from .calibration import calibrate
    from .displays import SelectedReliabilityDisplay, SelectionErrorDisplay
    from .errors import UncurseError
    from .estimators import UncursedClassifierCV, UncursedRegressorCV
    from .evidence import Evidence, TopK
    from .logs import collect
    from .maps import Affine, Curve, Segmented, Steps
    from .methods import VAD, Auto, Fitted, ReplicaCalibrator, load
    from .methods.information_variance import information_variance
    from .methods.refresh import refresh
    from .metrics import (
        Evaluation,
        calibration_error,
        evaluate,
        expected_calibration_error,
        log_loss_reduction,
        maximum_calibration_error,
        top_k,
        top_share,
    )
    from .monitoring import MonitorState, Verdict, monitor
    from .serving.fold import fold
    from .winners import Winner, winner

#: Names by their modules, which are imported on first use: together they take most of a second.
_HOMES = {
    "calibration": ("calibrate",),
    "displays": ("SelectedReliabilityDisplay", "SelectionErrorDisplay"),
    "errors": ("UncurseError",),
    "estimators": ("UncursedClassifierCV", "UncursedRegressorCV"),
    "evidence": ("Evidence", "TopK"),
    "logs": ("collect",),
    "maps": ("Affine", "Curve", "Segmented", "Steps"),
    "methods": ("VAD", "Auto", "Fitted", "ReplicaCalibrator", "information_variance", "load"),
    "methods.refresh": ("refresh",),
    "metrics": (
        "Evaluation",
        "calibration_error",
        "evaluate",
        "expected_calibration_error",
        "log_loss_reduction",
        "maximum_calibration_error",
        "top_k",
        "top_share",
    ),
    "monitoring": ("MonitorState", "Verdict", "monitor"),
    "serving": ("fold",),
    "winners": ("Winner", "winner"),
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {"deep", "mlflow", "report", *_HOMES} - {"errors", "methods.refresh"}


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
