"""`Page`: sections with figures and tables that the template makes one HTML file of, without scripts or requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from .. import documents
from ..methods import Fitted
from ..optional import needing
from ..text import aligned
from ..version import __version__
from . import figures
from .figures import NARROW, WIDE, Chart, Frame, clean
from .prose import record_lines

# The page may load nothing and run nothing: even if a name became markup, it would do nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Figure:
    """A chart with its caption, which also describes it to people who cannot see it."""

    name: str  # unique
    draw: Callable[[Frame], Chart]
    caption: str
    kind = "figure"

    def chart(self, frame: Frame = WIDE) -> Chart:
        """Return the chart with the fonts and colors of the page."""
        with figures.page_style():
            return self.draw(frame)

    @property
    def svg(self) -> str:
        """The chart for wide screens and for phones; the style sheet shows one of them."""
        return "".join(
            figures.inline_svg(self.chart(frame), name=self.name, label=self.caption, kind=kind)
            for kind, frame in (("wide", WIDE), ("narrow", NARROW))
        )


@dataclass(frozen=True)
class Table:
    """A table of text; the first cell of a row is its heading, and in the others, text in parentheses is set small."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False  # hidden until the reader opens it
    kind = "table"

    def lines(self) -> list[str]:
        """Return the lines of the table for a terminal."""
        return [self.caption, *aligned([self.header, *self.rows])]


@dataclass(frozen=True)
class Section:
    """A section of the page: its id, a heading, paragraphs, and blocks below them."""

    id: str
    title: str
    prose: Sequence[str] = ()
    blocks: Sequence[Figure | Table] = ()
    folded: bool = False  # hidden until the reader opens it


@dataclass(frozen=True)
class BigNumber:
    """A number next to the headline, in the color of its series."""

    series: int
    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Page:
    """A page, which `evaluation_page`, `monitor_page` and `winner_page` return."""

    title: str
    headline: str  # the result in a sentence
    numbers: Sequence[BigNumber]
    sections: Sequence[Section]
    facts: Mapping[str, Sequence[str]]  # how it was made, in lines
    terms: str  # "evaluation", "monitor" or "winner": terms that the page explains
    note: str = ""  # below the headline
    next_step: str = ""  # what to do; a command is between backticks
    emphasis: str = ""  # a word of the headline, in the color of the decision
    decision: str = ""  # "keep", "watch" or "alarm"

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page: one file that works offline. An existing file is replaced atomically.

        Parameters
        ----------
        path : str or path-like
            Target.
        """
        check_requirements()
        import jinja2

        environment = jinja2.Environment(
            autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
            finalize=lambda value: clean(value) if type(value) is str else value,
        )  # fmt: skip
        template = environment.from_string(resources.files(__package__).joinpath("page.html.jinja").read_text("utf-8"))
        content = {"page": self, "policy": _POLICY, "version": __version__, "stylesheet": figures.STYLESHEET}
        documents.write(path, template.render(content, color_name=figures.color_name).lstrip() + "\n")

    def figures(self) -> dict[str, Chart]:
        """Return the charts of the page.

        Returns
        -------
        dict of str to matplotlib.figure.Figure
            Charts by name.
        """
        check_requirements()
        blocks = [block for section in self.sections for block in section.blocks]
        return {block.name: block.chart() for block in blocks if isinstance(block, Figure)}


def check_requirements() -> None:
    """Raise UncurseError if the packages that a page needs are not installed."""
    with needing("report", "the report needs matplotlib and jinja2"):
        import jinja2  # noqa: F401
        import matplotlib.style  # noqa: F401


def provenance(
    facts: Mapping[str, str | Sequence[str]] | None, fits: Iterable[tuple[str, Fitted | None]]
) -> dict[str, Sequence[str]]:
    """Return inputs, options and commands of the page and of each fit, as `Page.facts`."""
    entries = {name: [value] if isinstance(value, str) else value for name, value in (facts or {}).items()}
    for name, fitted in fits:
        if fitted is not None and fitted.record is not None:
            entries[name] = record_lines(fitted)
            entries |= {f"{name}: command": [fitted.record.command]} if fitted.record.command else {}
    return entries
