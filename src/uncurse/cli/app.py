"""The application: what every command shares. Arguments in, one call, a table out."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import documents
from ..errors import UncurseError
from ..version import __version__

app = typer.Typer(
    name="uncurse",
    help="Predictions that stay true after the winners are picked.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write every number to this file ('-': only that, to stdout).")
]


def main() -> None:
    """Run the command line; bad input is one line and exit code 2."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app()
    except UncurseError as error:
        typer.echo(f"uncurse: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, UserWarning) or issubclass(category, FutureWarning | DeprecationWarning):
        return
    text = str(message)
    if "lies in [0, 1]" in text:  # the library names its own arguments
        text = "every score lies in [0, 1]; if these are probabilities, not logits, say --scale probability"
    if text not in _warned:
        _warned.add(text)
        typer.echo(f"uncurse: warning: {text}", err=True)


_warned: set[str] = set()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


# ---------------------------------------------------------------------------- output


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[str | Path] = ()) -> None:
    """The folders of outputs are there, and none is an input: told now, not after the work."""
    from ..logs.files import find_files

    given = [path for path in outputs if path is not None and str(path) != "-"]
    for path in given:
        if not path.absolute().parent.is_dir():
            raise UncurseError(f"cannot write {path}: No such file or directory")
        if path.is_dir():
            raise UncurseError(f"cannot write {path}: Is a directory")
        if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
            raise UncurseError(f"cannot write {path}: Permission denied")
        if given.count(path) > 1:
            raise UncurseError(f"{path} is named for two outputs; name another file for one of them")
        if not path.exists():
            continue
        for source in inputs:
            try:
                files = [str(source)] if Path(source).is_file() else find_files([source])
            except UncurseError:  # whoever reads it will say so
                continue
            if path.resolve() in [Path(file).resolve() for file in files]:
                raise UncurseError(f"{path} is an input of this command; name another file, and nothing is lost")


def finish(text: str, content: str, path: Path | None, records: Sequence[dict[str, Any]] = ()) -> None:
    """Show the text, write the JSON. Where standard output is no terminal, records come as tab-separated values."""
    if path is not None and str(path) == "-":
        typer.echo(content)
        return
    typer.echo(text if _to_a_person() or not records else tab_separated(records))
    if path is not None:
        documents.write(path, content + "\n")
        say(f"written to {path}")


def tab_separated(records: Sequence[dict[str, Any]]) -> str:
    """A header and a line for each record; tabs and line ends inside a value become spaces.

    >>> print(tab_separated([{"alpha": 0.02, "method": "as served"}]).expandtabs(8))
    alpha   method
    0.02    as served
    """
    lines = ["\t".join(records[0])]
    lines += ["\t".join(" ".join(str(value).split()) for value in record.values()) for record in records]
    return "\n".join(lines)


def say(text: str) -> None:
    """A line for a person: to the terminal where there is one, else beside the output, on standard error."""
    typer.echo(text, err=not _to_a_person())


_talk: list[list[str]] = []  # the command that the demo runs, where it does


@contextmanager
def talking(words: list[str]) -> Iterator[None]:
    """While the body runs, output is for a person, terminal or not, and `words` are the command."""
    _talk.append(words)
    try:
        yield
    finally:
        _talk.pop()


def _to_a_person() -> bool:
    return bool(_talk) or sys.stdout.isatty()


def command() -> str:
    """The command line that runs, to be repeated."""
    return shlex.join(["uncurse", *(_talk[-1] if _talk else sys.argv[1:])])


# ---------------------------------------------------------------------------- progress


def each(description: str, total: int) -> Callable[[Iterator[Any]], Iterable[Any]]:
    """A bar over items on standard error where that is a terminal; silence where it is not."""
    if not sys.stderr.isatty():
        return iter
    from rich.console import Console
    from rich.progress import track

    return lambda items: track(items, description, total=total, console=Console(stderr=True), transient=True)


@contextmanager
def working(description: str, total: Callable[[], int | None] = lambda: None) -> Iterator[Callable[[int], None]]:
    """A bar of rows (a moving one where their number is not known) while the body runs; call it with rows done."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}")
    with Progress(*parts, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total())
        yield lambda rows: bar.advance(task, rows)


__all__ = [
    "JsonOption",
    "app",
    "check_outputs",
    "command",
    "each",
    "finish",
    "main",
    "say",
    "tab_separated",
    "talking",
    "working",
]
