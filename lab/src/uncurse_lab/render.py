"""One list of parts for every reader: text for a terminal, Markdown, and one offline HTML page.

A part is a paragraph, a list of lines that are not wrapped, a `TextTable`, or a `Chart`, which only the page shows.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from uncurse.report.figures import COLORS, LIGHT, inline_svg
from uncurse.text import aligned, html_table

Table = list[tuple[str, ...]]  # the header first
_WIDTH = 118
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
div { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; white-space: nowrap; }
caption { text-align: left; font-weight: 600; white-space: normal; } svg { width: 100%; height: auto; }
th, td { padding: 2px 10px; border-bottom: 1px solid #ddd; text-align: right; } :first-child { text-align: left; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the page loads and runs nothing


@dataclass(frozen=True)
class TextTable:
    """A table under a title, which may be empty. The header is the first row; `left` columns are aligned left."""

    title: str
    rows: Sequence[Sequence[str]]
    left: int = 1
    gap: int = 2


@dataclass(frozen=True)
class Chart:
    """A chart with its caption; `draw` receives the axes of matplotlib."""

    caption: str
    draw: Callable[[Any], None]

    def svg(self) -> str:
        """Return the drawing as inline SVG."""
        import matplotlib
        from matplotlib.figure import Figure

        options: Any = {"svg.fonttype": "none", "svg.hashsalt": "uncurse", "text.parse_math": False, "axes.grid": True}
        with matplotlib.rc_context(options), io.StringIO() as stream:
            figure = Figure(figsize=(9, 4.5), layout="constrained")
            self.draw(figure.subplots())
            figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
            text = stream.getvalue()
        return text[text.index("<svg") :]


Part = str | Sequence[str] | TextTable | Chart


def lines_chart(
    caption: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    x: str,
    y: str,
    *,
    log_x: bool,
    log_y: bool = False,
) -> Chart:
    """Return a chart of a line of points (x, y) for each name."""

    def draw(ax: Any) -> None:
        for name, points in lines.items():
            ax.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
        ax.set(xlabel=x, ylabel=y)
        for axis, log in ((ax.xaxis, log_x), (ax.yaxis, log_y)):
            if log:
                axis.axes.set(**{f"{axis.axis_name}scale": "log"})
                axis.set_major_formatter("{x:g}")
        ax.figure.legend(loc="outside right upper")

    return Chart(caption, draw)


def bars_chart(caption: str, bars: Mapping[str, Sequence[float]], x: str) -> Chart:
    """Return a chart of a bar with its standard error for each name."""

    def draw(ax: Any) -> None:
        values, errors = zip(*bars.values(), strict=True)
        ax.barh(list(bars), values, xerr=errors)
        ax.invert_yaxis()
        ax.set_xlabel(x)

    return Chart(caption, draw)


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
    ax.set_xticks(range(len(columns)), [textwrap.fill(name, 9) for name in columns], color=LIGHT["ink"])
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
        elif not isinstance(part, Chart):
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
        elif not isinstance(part, Chart):
            made.append("\n".join(["```text", *part, "```"]))
    return "\n\n".join(made) + "\n"


def page(title: str, parts: Iterable[Part], command: str = "") -> str:
    """Return one HTML page; `command` is the one that made it.

    >>> page("Bias & noise", ["It is <small>."]).count("It is &lt;small&gt;.")
    1
    """
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    head += f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style>'
    end = f"<h2>Command</h2>\n<pre>{escape(command)}</pre>" if command else ""
    body = "\n".join([f"<h1>{escape(title)}</h1>", *map(_html, parts), end])
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _html(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Chart):
        return f"<figure>{part.svg()}<figcaption>{escape(part.caption)}</figcaption></figure>"
    if isinstance(part, TextTable):
        return f"<div>{html_table(part.rows, caption=part.title)}</div>"
    return f"<pre>{escape(chr(10).join(part))}</pre>"
