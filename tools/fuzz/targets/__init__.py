"""Targets of the fuzzer, a module for each package of the core and one for the command line."""

from . import (
    calibration,
    command_line,
    debias,
    estimators,
    evidence,
    foundations,
    maps,
    metrics,
    monitoring,
    refresh,
    theory,
)

__all__ = [
    "calibration",
    "command_line",
    "debias",
    "estimators",
    "evidence",
    "foundations",
    "maps",
    "metrics",
    "monitoring",
    "refresh",
    "theory",
]
