"""The command line: `uncurse demo`, `collect`, `fit`, `apply`, `evaluate`, `reproduce`."""

from . import demo, logs, reproduce
from .app import app, main

app.add_typer(reproduce.reproduce, name="reproduce")

__all__ = ["app", "demo", "logs", "main", "reproduce"]
