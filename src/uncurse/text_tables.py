"""Tables of text: aligned for a terminal, in Markdown, and tab-separated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def aligned(table: Sequence[Sequence[str]], *, left: int = 1, gap: int = 2) -> list[str]:
    """Return the lines of a table with aligned columns.

    Parameters
    ----------
    table : sequence of sequences of str
        Rows of cells, the header first.
    left : int, default=1
        Number of columns that are aligned to the left; the others are aligned to the right.
    gap : int, default=2
        Number of spaces between columns.

    Returns
    -------
    list of str

    Examples
    --------
    >>> print("\\n".join(aligned([("method", "error"), ("VAD", "1%")])))
    method  error
    VAD        1%
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def markdown_table(table: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return a table in Markdown.

    Parameters
    ----------
    table : sequence of sequences of str
        Rows of cells, the header first.
    left : int, default=1
        Number of columns that are aligned to the left.

    Returns
    -------
    str

    Examples
    --------
    >>> print(markdown_table([("method", "error"), ("VAD", "1%")]))
    | method | error |
    | :-- | --: |
    | VAD | 1% |
    """
    header, *rows = [[cell.strip().replace("*", "\\*").replace("|", "\\|") for cell in row] for row in table]
    rule = [":--" if i < left else "--:" for i, _ in enumerate(header)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def tab_separated(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a header and one line per record; tabs and line ends inside a value become spaces.

    Parameters
    ----------
    records : sequence of mappings
        Records with the same keys.

    Returns
    -------
    str

    Examples
    --------
    >>> print(tab_separated([{"alpha": 0.02, "method": "as served"}]).expandtabs(8))
    alpha   method
    0.02    as served
    """
    lines = ["\t".join(records[0])] if records else []
    return "\n".join(lines + ["\t".join(" ".join(str(v).split()) for v in record.values()) for record in records])


__all__ = ["aligned", "markdown_table", "tab_separated"]
