"""Collect the evidence of a log of any engine, and apply maps to logs."""

from .apply import apply_to_files, with_prediction
from .collecting import collect
from .rows import Settled

__all__ = ["Settled", "apply_to_files", "collect", "with_prediction"]
