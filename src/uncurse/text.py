"""Tables of text: aligned for a terminal, and in HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence


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
