"""The application: command line in, exit code out. Every error is one line."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import warnings
from functools import cache
from typing import Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..version import __version__
from .reading import option_name, without_temporary_path

app = typer.Typer(
    name="uncurse",
    help="Predictions that stay true after the winners are picked.",
    epilog="Start with: uncurse demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


_UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy that typer contains


def main(application: typer.Typer = app) -> None:
    """Run the command line of this process."""
    _exit_on_signals()
    sys.exit(run(application))


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
        return _fail(_usage(error))
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except MemoryError:
        return _fail("out of memory; use fewer rows, columns or bins")
    except Exception as error:
        if os.environ.get("UNCURSE_DEBUG"):
            raise
        if isinstance(error, OSError) and error.filename is None:
            return _fail(f"cannot write to standard output: {error.strerror}")
        return _fail(
            f"internal error: {type(error).__name__}: {error}; this is a bug (UNCURSE_DEBUG=1 shows the traceback)"
        )


def _usage(error: Any) -> str:
    """Return what is wrong with the command line, in one line."""
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    command = "uncurse" if error.ctx is None else error.ctx.command_path
    return f"{message[:1].lower()}{message[1:]}; see {command} -h"


def _fail(message: str) -> int:
    """Print one line and return the exit code."""
    typer.echo(f"uncurse: {in_options(without_temporary_path(message))}", err=True)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):  # a full or closed standard output would raise again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 2


# Python arguments that have an option, and options of another name.
_OPTIONS = (
    "scale|link|replicas|shape|method|calibrator|engine|negative_rate|lambda_floor|alpha|group|labelled|curvature|"
    "replica_counts|straight|n_bins|alphas|selected_by"
)
_RENAMED = {"n_bins": "--bins", "alphas": "--alpha"}


def in_options(message: str) -> str:
    """Return a message of the library in one line, with the options of the command line for Python arguments.

    Examples
    --------
    >>> in_options("pass scale='probability'; or collect with replica_counts=True")
    'pass --scale probability; or collect with --replica-counts'
    >>> in_options("say it by selected_by='served' or 'other'")
    "say it by --selected-by served or 'other'"
    """

    def replaced(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        option = _RENAMED.get(name, option_name(name))
        flags = {"True": option, "False": option.replace("--", "--no-", 1)}
        return flags.get(value, f"{option} {value.strip(chr(39))}")

    text = re.sub(rf"\b({_OPTIONS})=('[^']*'|[^\s;,)]+)", replaced, " ".join(message.split()))
    text = re.sub(r"(?<!['-])\b(negative_rate|replica_counts|lambda_floor)\b(?!')", lambda m: option_name(m[1]), text)
    return re.sub(r"(?<!['\w])None\b(?!')", "none", text)


_shown: set[str] = set()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, UserWarning) or issubclass(category, FutureWarning | DeprecationWarning):
        return
    text = in_options(str(message))
    if text not in _shown:
        _shown.add(text)
        typer.echo(f"uncurse: warning: {text}", err=True)


def _exit_on_signals() -> None:
    """On SIGINT and SIGTERM remove temporary files and exit with 130 or 143, even if an engine is at work.

    A Python handler would wait until the engine returns. The number of a signal is written to a pipe at once, and a
    thread waits for it.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # the process has its own handlers
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        while True:
            number = os.read(read, 1)[0]
            if number in (signal.SIGINT, signal.SIGTERM):
                documents.remove_temporaries()
                if sys.stderr.isatty():
                    os.write(2, b"\x1b[?25h\n")  # show the cursor that a progress bar hides
                os._exit(128 + number)

    threading.Thread(target=wait, daemon=True).start()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
