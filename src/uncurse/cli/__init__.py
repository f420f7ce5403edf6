"""The command line: one module per command, and one for fold and verify."""

# In the order of the commands in the help.
from . import demo, collect, fit, apply, evaluate, show, monitor, refresh, fold, export, winner  # isort: skip # noqa: F401
from .app import app, main

__all__ = ["app", "main"]
