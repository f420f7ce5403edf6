"""`Section` and its parts, and the page that the template makes of them: one HTML file, no script, no request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from ..version import __version__
from . import figures
from .figures import NARROW, WIDE, Chart, Frame
from .prose import Headline, clean

# The page may load nothing and run nothing: even if a name became markup, it would do nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Figure:
    """A chart with its description, caption and legend.

    >>> Figure("error", lambda frame: figures.axes_of(frame, 100)[0], "An empty chart").name
    'error'
    """

    name: str  # unique: the file name of `Report.save_figures`
    draw: Callable[[Frame], Chart]
    label: str  # for people who cannot see it
    caption: str = ""
    legend: tuple[tuple[int, str], ...] = ()  # series and their names
    always: bool = False  # show the legend on wide screens too, where lines have their names at their ends
    kind = "figure"

    def chart(self, frame: Frame) -> Chart:
        """Return the chart with the fonts and colors of the page."""
        with figures.page_style():
            return self.draw(frame)

    @property
    def svg(self) -> Markup:
        """The chart for wide screens and for phones; the style sheet shows one of them."""
        return Markup("").join(
            Markup(figures.inline_svg(self.chart(frame), prefix=f"{self.name}-{kind}-", label=self.label, kind=kind))
            for kind, frame in (("wide", WIDE), ("narrow", NARROW))
        )


@dataclass(frozen=True)
class Table:
    """A table of text; the first cell of a row is its heading, and text after a newline is set small.

    >>> Table("Errors", ["method", "error"], [["as served", "+12%"]]).folded
    False
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False  # hidden until the reader opens it
    kind = "table"


@dataclass(frozen=True)
class Choice:
    """Alternatives of which the reader sees one: the name of the control, an id, and (label, blocks) for each."""

    title: str
    id: str
    options: tuple[tuple[str, tuple[Figure | Table, ...]], ...]
    kind = "choice"


@dataclass(frozen=True)
class Facts:
    """Names with lines of text: (name, lines, style); style is "code", a colour variable such as "s2", or ""."""

    entries: tuple[tuple[str, tuple[str, ...], str], ...]
    kind = "facts"


@dataclass(frozen=True)
class Heading:
    """A heading inside a section, with paragraphs.

    >>> Heading("By group", ("All groups are alike.",)).title
    'By group'
    """

    title: str
    prose: tuple[str, ...] = ()
    kind = "heading"


@dataclass(frozen=True)
class Terms:
    """The explanations of the terms of an evaluation and of a monitor, which the template holds."""

    evaluation: bool = True
    monitor: bool = False
    kind = "terms"


@dataclass(frozen=True)
class Section:
    """A section of the page: its id, a heading, paragraphs, and blocks below them.

    >>> section = Section("error", "Calibration error", ("It is small.",), (Table("Errors", ["error"], [["+1%"]]),))
    >>> "<h2 id=\\"error\\">Calibration error</h2>" in render("Title", Headline(()), [section])
    True
    """

    id: str
    title: str
    prose: tuple[str, ...] = ()
    blocks: tuple[Figure | Table | Choice | Facts | Heading | Terms, ...] = ()

    def figures(self) -> Iterator[Figure]:
        """Iterate over the figures, also those of choices."""
        for block in self.blocks:
            inner = [one for _, own in block.options for one in own] if isinstance(block, Choice) else [block]
            yield from (one for one in inner if isinstance(one, Figure))


def render(title: str, headline: Headline, sections: Sequence[Section]) -> str:
    """Return the HTML document.

    >>> render("<Title>", Headline(()), [])[:15]
    '<!DOCTYPE html>'
    """
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_text
    )
    template = environment.from_string(resources.files(__package__).joinpath("page.html.jinja").read_text("utf-8"))
    text = template.render(
        title=title, headline=headline, sections=sections, policy=_POLICY, version=__version__,
        stylesheet=Markup(figures.STYLESHEET), style_of=figures.style_of,
    )  # fmt: skip
    return text.lstrip() + "\n"


def _text(value: object) -> object:
    """Remove characters that XML does not allow from everything that the template prints, except finished markup."""
    return value if isinstance(value, Markup) else clean(value)
