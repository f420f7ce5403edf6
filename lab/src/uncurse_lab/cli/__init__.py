"""The command `uncurse-lab`: one module per command."""

from uncurse.cli.app import main as run_main

# The order of these imports is the order of the commands in the help.
# isort: off
from . import arena as arena
from . import auction as auction
from . import reproduce

# isort: on
from .app import app

app.add_typer(reproduce.reproduce, name="reproduce")


def main() -> None:
    """Run the command line of this process."""
    run_main(app)


__all__ = ["app", "main"]
