"""`Section` and its parts, and the page that the template makes of them: one HTML file, no script, no request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from ..version import __version__
from . import charts
from .charts import NARROW, WIDE, Chart, Frame
from .prose import Headline, clean

# The page may load nothing and run nothing: even if a name became markup, it would do nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Figure:
    """A chart with its description, caption and legend.

    Parameters
    ----------
    name : str
        Unique name: the file name of `Report.save_figures`.
    draw : callable
        Returns the chart for a `charts.Frame`.
    label : str
        Description for people who cannot see it.
    caption : str
        Text below it.
    legend : tuple of (int, str)
        Series and their names. Wide line charts name their lines, so the legend appears on phones only.
    always : bool
        Show the legend on wide screens too.

    Examples
    --------
    >>> Figure("error", lambda frame: charts.chart([{}]).mark_point(), "An empty chart").name
    'error'
    """

    name: str
    draw: Callable[[Frame], Chart]
    label: str
    caption: str = ""
    legend: tuple[tuple[int, str], ...] = ()
    always: bool = False
    kind = "figure"

    @property
    def svg(self) -> Markup:
        """The chart for wide screens and for phones; the style sheet shows one of them."""
        frames = (("wide", WIDE), ("narrow", NARROW))
        return Markup("").join(
            Markup(charts.inline_svg(self.draw(frame), prefix=f"{self.name}-{kind}-", label=self.label, kind=kind))
            for kind, frame in frames
        )


@dataclass(frozen=True)
class Table:
    """A table of text; the first cell of a row is its heading, and text after a newline is set small.

    Parameters
    ----------
    caption : str
        Title.
    header : sequence of str
        Names of the columns.
    rows : sequence of sequence of str
        Cells.
    folded : bool
        Hide it until the reader opens it.

    Examples
    --------
    >>> Table("Errors", ["method", "error"], [["as served", "+12%"]]).folded
    False
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False
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
class Terms:
    """Terms with their explanation."""

    entries: tuple[tuple[str, str], ...]
    kind = "terms"


Block = Figure | Table | Choice | Facts | Terms


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Parameters
    ----------
    id : str
        Identifier, unique on the page.
    title : str
        Heading.
    prose : tuple of str
        Paragraphs.
    blocks : tuple of Figure, Table, Choice, Facts or Terms
        Content below the paragraphs, in order.

    Examples
    --------
    >>> section = Section("error", "Calibration error", ("It is small.",), (Table("Errors", ["error"], [["+1%"]]),))
    >>> "<h2 id=\\"error\\">Calibration error</h2>" in render("Title", Headline(()), [section])
    True
    """

    id: str
    title: str
    prose: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()

    def figures(self) -> Iterator[Figure]:
        """Iterate over the figures, also those of choices.

        Yields
        ------
        Figure
        """
        for block in self.blocks:
            if isinstance(block, Figure):
                yield block
            elif isinstance(block, Choice):
                for _, inner in block.options:
                    yield from (one for one in inner if isinstance(one, Figure))


def render(title: str, headline: Headline, sections: Sequence[Section]) -> str:
    """Return the HTML document.

    Parameters
    ----------
    title : str
        Title of the page.
    headline : Headline
        First lines.
    sections : sequence of Section
        Content, in order.

    Returns
    -------
    str

    Examples
    --------
    >>> render("<Title>", Headline(()), [])[:15]
    '<!DOCTYPE html>'
    """
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_text
    )
    template = environment.from_string(resources.files(__package__).joinpath("page.html.jinja").read_text("utf-8"))
    text = template.render(
        title=title, headline=headline, sections=sections, policy=_POLICY, version=__version__,
        stylesheet=Markup(charts.STYLESHEET), colors=charts.COLORS, style_of=charts.style_of,
    )  # fmt: skip
    return text.lstrip() + "\n"


def _text(value: object) -> object:
    """Remove characters that XML does not allow from everything that the template prints, except finished markup."""
    return value if isinstance(value, Markup) else clean(value)
