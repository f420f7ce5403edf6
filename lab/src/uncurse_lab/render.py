"""One list of parts for every reader, as text for a terminal and as Markdown; and what the lab's pages are drawn with.

A part is a paragraph, a list of lines that are not wrapped, or a `TextTable`. Pages are those of `uncurse.report`.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uncurse.report import figures
from uncurse.report.figures import COLORS, LIGHT, OBSERVED, axes_of, inline_svg, style_of
from uncurse.report.page import Figure
from uncurse.report.page import Table as PageTable
from uncurse.text import aligned

Table = list[tuple[str, ...]]  # the header first
_WIDTH = 118
_SERVED, _OURS, _OTHER = 0, 1, 6  # series of the report's palette


@dataclass(frozen=True)
class TextTable:
    """A table under a title, which may be empty. The header is the first row; `left` columns are aligned left."""

    title: str
    rows: Sequence[Sequence[str]]
    left: int = 1
    gap: int = 2

    def folded(self) -> PageTable:
        """Return the table for a page, hidden until the reader opens it."""
        header, *rows = self.rows
        return PageTable(self.title, header, rows, folded=True)


Part = str | Sequence[str] | TextTable
Points = Sequence[tuple[float, ...]]  # x and y; or x, low and high


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each name by its role: as served, Auto and the truth have colors, the others shades of gray.

    >>> [style["color"] == LIGHT["s6"] for style in styles(["as served", "platt", "auto", "oracle"]).values()]
    [False, True, False, False]
    """
    roles = {"as served": _SERVED, "vanilla": _SERVED, "auto": _OURS, "truth": OBSERVED, "oracle": OBSERVED}
    others = iter(range(_OTHER, 1000, 7))  # the same color, each with its own dash and marker
    return {name: style_of(roles[name] if name in roles else next(others)) for name in names}


def lines_figure(
    name: str, caption: str, lines: Mapping[str, Points], x: str, y: str, *, log_x: bool = False, log_y: bool = False
) -> Figure:
    """Return a chart of a line of points (x, y) for each name."""

    def draw(frame: figures.Frame) -> figures.Chart:
        figure, (ax,) = axes_of(frame, frame.height)
        for (label, points), style in zip(lines.items(), styles(lines).values(), strict=True):
            ax.plot(*zip(*points, strict=True), **style, label=label)
        ax.set(xlabel=x, ylabel=y)
        for axis, log in ((ax.xaxis, log_x), (ax.yaxis, log_y)):
            if log:
                ax.set(**{f"{axis.axis_name}scale": "log"})
            axis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
        if log_x:
            figures.set_labels(ax, xs := sorted({point[0] for points in lines.values() for point in points}),
                               [f"{value:g}" for value in xs])  # fmt: skip
        ax.minorticks_off()
        figures.add_legend(ax)
        return figure

    return Figure(name, draw, caption)


def dots_figure(name: str, caption: str, dots: Mapping[str, tuple[float, float]], x: str, percent: bool) -> Figure:
    """Return a chart of a value with its interval for each name, from the value and half of the width."""

    def draw(frame: figures.Frame) -> figures.Chart:
        figure, (ax,) = axes_of(frame, 30 * len(dots))
        for place, (label, style) in enumerate(styles(dots).items()):
            value, half = dots[label]
            if math.isfinite(half):
                ax.plot([value - half, value + half], [place, place], color=style["color"], lw=2)
            ax.plot([value], [place], **{**style, "ls": ""})
        ax.set(xlabel=x, ylim=(len(dots) - 0.5, -0.5))
        ax.set_yticks(range(len(dots)), list(dots), color=LIGHT["ink"])
        figures.set_ticks(ax.xaxis, 5, figures.signed_percent if percent else figures.plain)
        ax.grid(visible=False, axis="y")
        ax.grid(visible=True, axis="x")
        if percent:
            ax.axvline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
        return figure

    return Figure(name, draw, caption)


def heat_figure(
    name: str, caption: str, rows: Sequence[str], columns: Sequence[str], ratios: Sequence[Sequence[float]]
) -> Figure:
    """Return a chart of ratios as a table of shades."""

    def draw(frame: figures.Frame) -> figures.Chart:
        figure, (ax,) = axes_of(frame, 26 * len(rows) + (20 if frame.wide else 110))  # names of columns are upright
        draw_heat_map(ax, rows, columns, ratios)
        return figure

    return Figure(name, draw, caption)


def draw_heat_map(ax: Any, rows: Sequence[str], columns: Sequence[str], ratios: Sequence[Sequence[float]]) -> None:
    """Draw ratios as a table whose cells are darker the larger they are, on a log scale from 1 to 100.

    A cell of NaN stays empty.
    """
    from matplotlib.patches import Rectangle

    for y, line in enumerate(ratios):
        for x, ratio in enumerate(line):
            if not math.isnan(ratio):
                shade = 0.55 * min(max(math.log(ratio), 0.0) / math.log(100), 1.0)
                ax.add_patch(Rectangle((x - 0.47, y - 0.46), 0.94, 0.92, fc=LIGHT["s0"], alpha=shade, lw=0))
                ax.text(x, y, f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}", ha="center", va="center")
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), rows, color=LIGHT["ink"])
    narrow = ax.figure.get_figwidth() * 72 < 55 * (len(columns) + 2)  # names would overlap
    names = columns if narrow else [textwrap.fill(name, 9) for name in columns]
    ax.set_xticks(range(len(columns)), names, color=LIGHT["ink"], rotation=90 if narrow else 0)
    ax.xaxis.tick_top()
    ax.grid(visible=False)


def standalone_svg(figure: Any, *, name: str, label: str) -> str:
    """Return a figure in the style of the report as an SVG file, light or dark as the reader's settings."""
    light, dark = ("".join(f"--{color}:{values[mode]};" for color, values in COLORS.items()) for mode in (0, 1))
    style = (
        f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        "svg{background:var(--paper)}text{font-family:system-ui,'Segoe UI',Roboto,Arial,sans-serif}</style>"
    )
    start, end, drawing = inline_svg(figure, name=name, label=label, kind="file").partition(">")
    drawing = re.sub(r"\s+", " ", drawing).replace("> <", "><")
    drawing = re.sub(r" font-family: [^;]*;| transform=\"rotate\(-0 [^\"]*\"", "", drawing)
    return start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"') + end + style + drawing + "\n"


def text(parts: Iterable[Part]) -> str:
    """Return text for a terminal of 120 columns: paragraphs are wrapped, blocks of lines are not.

    >>> print(text(["Errors in percent.", TextTable("Results", [("method", "error"), ("VAD", "1")])]))
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


def markdown(parts: Iterable[Part]) -> str:
    """Return Markdown.

    >>> print(markdown([TextTable("Results", [("method", "error"), ("VAD", "1")])]), end="")
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
            rows = [[cell.strip().replace("*", "\\*").replace("|", "\\|") for cell in row] for row in part.rows]
            rows.insert(1, [":--" if i < part.left else "--:" for i in range(len(part.rows[0]))])
            made.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
        else:
            made.append("\n".join(["```text", *part, "```"]))
    return "\n\n".join(made) + "\n"
