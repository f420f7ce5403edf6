"""What the commands write: results to standard output or files, notes and progress to standard error."""

from __future__ import annotations

import glob
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .. import documents
from ..errors import UncurseError

_SUFFIXES = {
    "--into": (".json",),
    "--state": (".json",),
    "--report": (".html", ".htm"),
    "--prometheus": (".prom", ".txt"),
}

Format = Annotated[Literal["table", "json"], typer.Option("--format", help="Format of the result on standard output.")]


def _set_quiet(quiet: bool) -> bool:
    _state["quiet"] = quiet
    return quiet


Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_set_quiet, help="Print results only.")]
_state = {"quiet": False}


def emit(format: str, text: str, kind: str, content: Mapping[str, Any], out: str | None = None) -> None:
    """Print a result as text for people ("table") or as a JSON document of a kind ("json").

    If standard output holds the file `out` already, the text goes to standard error.
    """
    if out == "-":
        note(text)
    else:
        typer.echo(documents.dumps(kind, content) if format == "json" else text)


def note(text: str) -> None:
    """Print a line for people on standard error, unless `--quiet` is given."""
    if not _state["quiet"]:
        typer.echo(text, err=True)


def write_document(path: str, text: str) -> None:
    """Write a text file atomically, or to standard output if the path is ``-``."""
    if path == "-":
        typer.echo(text.rstrip("\n"))
    else:
        documents.write(path, text)


def command_line() -> str:
    """Return the command that runs, as it can be typed again."""
    return shlex.join(["uncurse", *sys.argv[1:]])


def check_outputs(
    outputs: Mapping[str, str | Path | None],
    inputs: Iterable[str | Path] = (),
    *,
    format: str = "table",
    suffix: str = "",
) -> None:
    """Check that each output has a folder, and overwrites neither an input nor another output.

    `outputs` are paths by option; None if an option is not given. `suffix` is that of the file of ``--out``.
    """
    sources = [str(source) for source in inputs]
    if sources.count("-") > 1:
        raise UncurseError("standard input is named twice; name a file for one of them")
    files = [file for name in sources for file in ([name] if os.path.exists(name) else glob.glob(name, recursive=True))]
    taken = {os.path.realpath(file): "an input of this command" for file in files}
    for option, path in ((option, str(path)) for option, path in outputs.items() if path is not None):
        if path == "-":
            if option != "--out":
                raise UncurseError(f"{option} cannot be standard output; name a file")
            if format != "table":
                raise UncurseError("--out and --format both write to standard output; name a file for one of them")
            continue
        if not path:
            raise UncurseError(f"{option} is empty; name a file")
        if os.path.isdir(path) and option != "--out":
            raise UncurseError(f"cannot write {option} {path}: it is a folder; name a file")
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            continue  # a device or a pipe
        real, wanted = os.path.realpath(path), _SUFFIXES.get(option, (suffix,))
        if real in taken:
            raise UncurseError(f"{option} {path} is {taken[real]}; name another file")
        if not path.lower().endswith(wanted):
            raise UncurseError(f"{option} is {path}; name a {' or '.join(wanted)} file")
        if not os.path.isdir(os.path.dirname(real)):
            raise UncurseError(f"cannot write {option} {path}: there is no such folder")
        taken[real] = f"the file of {option} too"


@contextmanager
def working(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal once the body has run for a second; call the result with the number of items done."""
    if _state["quiet"] or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts = (*Progress.get_default_columns()[:2], TextColumn("{task.completed:,}"), TimeElapsedColumn())
    bar = Progress(SpinnerColumn(), *parts, console=Console(stderr=True), transient=True)
    task = bar.add_task(description, total=total)
    timer = threading.Timer(1.0, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda count: bar.advance(task, count)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
