"""Tables of text: aligned for a terminal, in Markdown, and in HTML."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WIDTH = 118


@dataclass(frozen=True)
class TextTable:
    """A table under a title, which may be empty. The header is the first row; `left` columns are aligned left."""

    title: str
    rows: Sequence[Sequence[str]]
    left: int = 1
    gap: int = 2


def as_text(parts: Iterable[str | Sequence[str] | TextTable]) -> str:
    """Return paragraphs, which are wrapped, blocks of lines, which are not, and tables as text of 120 columns.

    >>> print(as_text(["Errors in percent.", TextTable("Results", [("method", "error"), ("VAD", "1")])]))
    Errors in percent.
    <BLANKLINE>
    Results
    method  error
    VAD         1
    """
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines += ["", textwrap.fill(part, _WIDTH)]
        elif isinstance(part, TextTable):
            # Do not repeat a name that the row above has.
            body = [
                ("" if part.left > 1 and row[0] == above[0] else row[0], *row[1:])
                for above, row in zip(part.rows, part.rows[1:], strict=False)
            ]
            lines += ["", *([part.title] if part.title else [])]
            lines += aligned([part.rows[0], *body], left=part.left, gap=part.gap)
        else:
            lines += ["", *part]
    return "\n".join(lines[1:])


def as_markdown(parts: Iterable[str | Sequence[str] | TextTable]) -> str:
    """Return the same parts as Markdown.

    >>> print(as_markdown([TextTable("Results", [("method", "error"), ("VAD", "1")])]), end="")
    **Results**
    <BLANKLINE>
    | method | error |
    | :-- | --: |
    | VAD | 1 |
    """
    made: list[str] = []
    for part in parts:
        if isinstance(part, str):
            made.append(part)
        elif isinstance(part, TextTable):
            made += [f"**{part.title}**"] if part.title else []
            made.append(markdown_table(part.rows, left=part.left))
        else:
            made.append("\n".join(["```text", *part, "```"]))
    return "\n\n".join(made) + "\n"


def aligned(table: Sequence[Sequence[str]], *, left: int = 1, gap: int = 2) -> list[str]:
    """Return the lines of a table with `left` columns aligned to the left, the others to the right.

    >>> aligned([("top", "error"), ("2%", "1%")])
    ['top  error', '2%      1%']
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def markdown_table(table: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table in Markdown."""
    header, *rows = [[cell.strip().replace("*", "\\*").replace("|", "\\|") for cell in row] for row in table]
    rule = [":--" if i < left else "--:" for i, _ in enumerate(header)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def html_table(table: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return a table as HTML for a notebook; all text is escaped.

    >>> html_table([("top", "error"), ("2%", "<1%")])
    '<table><tr><th>top</th><th>error</th></tr><tr><td>2%</td><td>&lt;1%</td></tr></table>'
    """

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    header, *rows = table
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{row(header, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"
