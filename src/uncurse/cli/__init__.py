"""The command line: `uncurse demo`, `collect`, `fit`, `apply`, `evaluate`, `reproduce`, `arena`."""

from . import arena, demo, fitting, logs, reproduce
from .app import app, main

app.add_typer(reproduce.reproduce, name="reproduce")

__all__ = ["app", "arena", "demo", "fitting", "logs", "main", "reproduce"]
