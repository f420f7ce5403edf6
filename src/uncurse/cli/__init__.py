"""The command line: one module per command."""

# In the order of the commands in the help.
from . import demo, collect, fit, apply, evaluate, monitor, refresh, fold, verify, export  # isort: skip # noqa: F401
from .app import app, main

__all__ = ["app", "main"]
