"""The command `uncurse-lab`: one module per command."""

from __future__ import annotations

from typing import Annotated

import typer

from uncurse.cli.app import main as run_main
from uncurse.version import __version__

from .arena import arena
from .auction import auction
from .grid import grid
from .reproduce import reproduce

app = typer.Typer(
    name="uncurse-lab",
    help="The experiments of the paper, and methods compared where the truth is known.",
    epilog="Start with: uncurse-lab reproduce synthetic",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(arena)
app.command()(auction)
app.command()(grid)
app.add_typer(reproduce, name="reproduce")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line of this process."""
    run_main(app)


__all__ = ["app", "main"]
