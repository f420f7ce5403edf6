"""What all commands share: which options go together, and writing the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from uncurse import documents
from uncurse.cli.output import command_line, note, working
from uncurse.errors import UncurseError
from uncurse.report.page import Page

from .. import render

Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Also write every table as Markdown.")]


def progress_over(description: str, total: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that shows progress while it passes items on."""

    def iterate(items: Iterable[Any]) -> Iterator[Any]:
        with working(description, total) as advance:
            for item in items:
                yield item
                advance(1)

    return iterate


def passed(context: typer.Context, *names: str) -> list[str]:
    """Return those of some parameters that the user passed."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def refuse(context: typer.Context, names: str, remedy: str) -> None:
    """Raise an error that names an option of these, separated by spaces, if the user passed one."""
    if given := passed(context, *names.split()):
        option = {param.name: param.opts[0] for param in context.command.params}[given[0]]
        raise UncurseError(f"{option} is for {remedy}")


def show(
    parts: Callable[[bool], Iterable[render.Part]],
    document: Callable[[], str],
    format: str,
    *,
    brief: bool = True,
    markdown: Path | None = None,
    report: Path | None = None,
    page: Callable[[str], Page] | None = None,
) -> None:
    """Print results as text or JSON, and write them as Markdown and as a page.

    `parts` takes whether to be brief, `page` the command.
    """
    typer.echo(document() if format == "json" else render.text(parts(brief)))
    if markdown is not None:
        documents.write(markdown, render.markdown(parts(False)))
        note(f"written to {markdown}")
    if report is not None and page is not None:
        page(command_line()).to_html(report)
        note(f"written to {report}")
