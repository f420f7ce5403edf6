"""Targets of the fuzzer, a module for each package of the core."""

from . import calibration, debias, estimators, evidence, foundations, maps, metrics, theory

__all__ = ["calibration", "debias", "estimators", "evidence", "foundations", "maps", "metrics", "theory"]
