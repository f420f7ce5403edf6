"""Targets of the fuzzer, a module for each package of the core."""

from . import calibration, foundations, maps, metrics, theory

__all__ = ["calibration", "foundations", "maps", "metrics", "theory"]
