"""Small pieces of HTML. Whatever comes from outside goes through `text`, and so is never markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from .given import clean
from .style import SERIES, dash, shape

_HEAD_CELL, _ROW_HEAD = '<th scope="col"{}>{}</th>', '<th scope="row">{}</th>'


def text(value: object) -> str:
    """Anything as text."""
    return html.escape(clean(value), quote=True)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str) -> str:
    """A table in a box that scrolls by itself; the first cell of a row is its head. Cells are text."""
    head = "".join(_HEAD_CELL.format(' class="text"' if i == 0 else "", text(h)) for i, h in enumerate(heads))
    body = "".join(
        f"<tr>{_ROW_HEAD.format(text(row[0]))}{''.join(f'<td>{_cell(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{text(caption)}" tabindex="0"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: str) -> str:
    """A cell; what follows a newline is set small beneath."""
    first, _, second = value.partition("\n")
    return text(first) + (f"<small>{text(second)}</small>" if second else "")


def details(summary: str, content: str) -> str:
    """The numbers behind a figure, folded away."""
    return f'<details class="data"><summary>{text(summary)}</summary>{content}</details>'


def figure(drawn: str, caption: str, key: str = "") -> str:
    """A figure, with the key to its series above and its caption beneath."""
    return f"<figure>{key}{drawn}<figcaption>{caption}</figcaption></figure>"


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading that names it."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{text(title)}</h2>{"".join(parts)}</section>'


def radios(name: str, legend: str, options: Sequence[tuple[str, str]]) -> str:
    """A choice of one; (id, label) each, the first chosen."""
    made = "".join(
        f'<label><input type="radio" name="{name}" id="{key}"{"" if i else " checked"}>'
        f"<span>{text(label)}</span></label>"
        for i, (key, label) in enumerate(options)
    )
    return f'<fieldset class="controls"><legend>{text(legend)}</legend>{made}</fieldset>'


_MARKS = {
    "circle": '<circle cx="14" cy="6" r="4"/>',
    "square": '<path d="M10.5 2.5h7v7h-7z"/>',
    "triangle-up": '<path d="M14 1.5l4.5 8h-9z"/>',
    "diamond": '<path d="M14 1l4 5-4 5-4-5z"/>',
    "triangle-down": '<path d="M14 10.5l4.5-8h-9z"/>',
    "cross": '<path d="M12.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z"/>',
    "triangle-right": '<path d="M18.5 6l-8 4.5v-9z"/>',
}


def legend(names: Sequence[tuple[int, str]], *, always: bool = False) -> str:
    """Names with the line and the point of each; on a desk most figures name their lines themselves."""
    made = []
    for series, name in names:
        tone = f"var(--s{series % len(SERIES)})"
        line = f'<path d="M0 6h28" stroke-width="2" fill="none" stroke-dasharray="{" ".join(map(str, dash(series)))}"/>'
        key = f'<svg width="28" height="12" aria-hidden="true" style="stroke:{tone};fill:{tone}">{line}'
        made.append(f"<li>{key}<g stroke='none'>{_MARKS[shape(series)]}</g></svg>{text(name)}</li>")
    return f'<ul class="legend{" always" if always else ""}">{"".join(made)}</ul>'


__all__ = ["details", "figure", "legend", "radios", "section", "table", "text"]
