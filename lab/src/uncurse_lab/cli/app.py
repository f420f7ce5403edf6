"""The application `uncurse-lab`."""

from typing import Annotated

import typer

from uncurse.version import __version__

app = typer.Typer(
    name="uncurse-lab",
    help="The experiments of the paper, and methods compared where the truth is known.",
    epilog="Start with: uncurse-lab reproduce synthetic",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
