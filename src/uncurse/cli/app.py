"""The application: command line in, exit code out. Every error is one line."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from functools import cache
from typing import Annotated, Any

import typer
import typer.core

from ..errors import UncurseError
from ..version import __version__

_GROUPS = {
    "Start": ("demo",),
    "Correct": ("collect", "fit", "apply"),
    "Check": ("evaluate", "show", "monitor", "refresh"),
    "Serve": ("fold", "verify", "export"),
    "Winners": ("winner",),
}


class _Grouped(typer.core.TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = formatter.width - 6 - max(map(len, self.commands))
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


app = typer.Typer(
    name="uncurse",
    cls=_Grouped,
    help="Predictions that stay true after you pick the winners.",
    epilog="Start with: uncurse demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


_UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy that typer contains


def main(application: typer.Typer = app) -> None:
    """Run the command line of this process; on SIGINT and SIGTERM exit with 130 or 143."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    for stream in (sys.stdout, sys.stderr):  # names of files may be no text
        with contextlib.suppress(AttributeError, OSError):  # not of a file, or of one that was replaced
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(application))


def _stop(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise SystemExit(128 + number)  # context managers remove temporary files on the way


@cache
def command(application: typer.Typer = app) -> Any:
    """Return the application as one command. To build it takes longer than a small command runs."""
    return typer.main.get_command(application)


def run(application: typer.Typer = app) -> int:
    """Run the command line in ``sys.argv`` and return its exit code: 0 done, 1 the answer is no, 2 an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning
            return int(command(application)(prog_name=application.info.name, standalone_mode=False) or 0)
    except UncurseError as error:
        return _fail(str(error))
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.ctx.get_help(), err=True)
            return 2
        return _fail(
            f"{error.format_message().rstrip('.')}; see {error.ctx.command_path if error.ctx else 'uncurse'} -h"
        )
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except MemoryError:
        return _fail("out of memory; use fewer rows, columns or bins")
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic of Polars is no Exception
        if os.environ.get("UNCURSE_DEBUG"):
            raise
        if isinstance(error, OSError) and error.filename is None:
            return _fail(f"cannot write to standard output: {error.strerror}")
        return _fail(
            f"internal error: {type(error).__name__}: {error}; this is a bug (UNCURSE_DEBUG=1 shows the traceback)"
        )


def _fail(message: str) -> int:
    typer.echo(f"uncurse: {' '.join(message.split())}", err=True)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):  # a full or closed standard output would raise again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 2


_shown: set[str] = set()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, UserWarning) or issubclass(category, FutureWarning | DeprecationWarning):
        return
    text = " ".join(str(message).split())
    if text not in _shown:
        _shown.add(text)
        typer.echo(f"uncurse: warning: {text}", err=True)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
