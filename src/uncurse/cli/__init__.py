"""The command line: `uncurse demo`, `collect`, `fit`, `apply`, `evaluate`, `fold`, `export`, `sql` and others."""

from . import arena, demo, exports, fitting, logs, reproduce, serving
from .app import app, main

app.add_typer(reproduce.reproduce, name="reproduce")

__all__ = ["app", "arena", "demo", "exports", "fitting", "logs", "main", "reproduce", "serving"]
