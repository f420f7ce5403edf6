"""Building blocks of charts: colours, axes, lines, dots, and rendering to SVG and PNG. Nothing is downloaded.

Charts are drawn in the light colours of ``page.css``. The page replaces these by their variables, so that one drawing
serves light, dark and print, and a chart that is saved to a file is complete.
"""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any

import altair as alt
import vl_convert

from .prose import clean, share, short

Rows = list[dict[str, Any]]
Chart = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart

STYLESHEET = resources.files(__package__).joinpath("page.css").read_text("utf-8")
#: Light and dark colour by name.
COLORS: dict[str, tuple[str, str]] = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", STYLESHEET)
}  # fmt: skip
#: Series of the observed outcomes, which belong to no method.
OBSERVED = -1
_SERIES = [name for name in COLORS if re.fullmatch(r"s\d", name)]
_DASHES = ([1, 0], [1, 0], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4])
# Shape of the marker, and the same as a path for the legend of the page.
_MARKERS = (
    ("circle", "M10 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    ("square", "M10.5 2.5h7v7h-7z"),
    ("triangle-up", "M14 1.5l4.5 8h-9z"),
    ("diamond", "M14 1l4 5-4 5-4-5z"),
    ("triangle-down", "M14 10.5l4.5-8h-9z"),
    ("cross", "M12.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z"),
    ("triangle-right", "M18.5 6l-8 4.5v-9z"),
)
_CHARACTER_WIDTH = 0.7  # of a wide bold font, relative to the font size: the reader's font is not known

#: Tick labels with a minus sign and no more decimals than needed.
SIGNED_PERCENT = "datum.value == 0 ? '0%' : replace(format(datum.value, '+.2~%'), '-', '−')"
SIGNED = "replace(datum.label, '-', '−')"
COUNT = "format(datum.value, ',.7~g')"


@dataclass(frozen=True)
class Frame:
    """Size of a chart: for a desktop screen or paper, and for a phone."""

    width: int
    height: int
    wide: bool


FONT_SIZE = 12
WIDE = Frame(width=720, height=300, wide=True)
NARROW = Frame(width=340, height=250, wide=False)


@dataclass(frozen=True)
class SeriesStyle:
    """Look of a series: its colour variable, light colour, dash, marker, and the path of the marker."""

    variable: str
    color: str
    dash: list[int]
    marker: str
    path: str


def style_of(series: int) -> SeriesStyle:
    """Return the look of a series; colours repeat after the last one, with another dash and marker."""
    variable = "ink" if series == OBSERVED else _SERIES[series % len(_SERIES)]
    turn = 0 if series == OBSERVED else series + series // len(_SERIES)
    marker, path = _MARKERS[turn % len(_MARKERS)]
    return SeriesStyle(variable, COLORS[variable][0], _DASHES[turn % len(_DASHES)], marker, path)


def light(name: str) -> str:
    """Return the light colour of a role, such as "ink"."""
    return COLORS[name][0]


@dataclass(frozen=True)
class AxisSpec:
    """One axis. Every layer names it in full: Vega-Lite merges equal axes, and fails on some that differ."""

    domain: tuple[float, float]
    axis: alt.Axis | None
    kind: str = "linear"

    def x(self, field: str) -> alt.X:
        """Encode a field on the horizontal axis."""
        return alt.X(field, scale=self._scale(), axis=self.axis)

    def y(self, field: str) -> alt.Y:
        """Encode a field on the vertical axis."""
        return alt.Y(field, scale=self._scale(), axis=self.axis)

    def _scale(self) -> alt.Scale:
        zero = {} if self.kind == "log" else {"zero": False}
        return alt.Scale(type=self.kind, domain=list(self.domain), nice=False, **zero)  # type: ignore[arg-type]


def chart(rows: Rows) -> alt.Chart:
    """Return a chart of plain rows, as JSON text: Altair copies lists many times."""
    rows = [{key: clean(v) if isinstance(v, str) else v for key, v in row.items()} for row in rows]
    return alt.Chart(alt.InlineData(json.dumps(rows, allow_nan=False), format=alt.JsonDataFormat(type="json")))


def styled(figure: Any, frame: Frame) -> Chart:
    """Set fonts and colours: quiet axes, a light grid, no frame."""
    size, ink, muted = FONT_SIZE, light("ink"), light("muted")
    axis = {
        "domain": False, "ticks": False, "gridColor": light("grid"), "labelColor": muted, "titleColor": muted,
        "labelFontSize": size, "titleFontSize": size, "titleFontWeight": "normal", "labelPadding": 7,
        "titlePadding": 10, "labelFlush": False,
    }  # fmt: skip
    figure.config = {
        "font": "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif",
        "background": light("paper"), "padding": 6, "view": {"stroke": None}, "axis": axis,
        "text": {"fontSize": size, "color": ink},
        "title": {"fontSize": size + 1, "fontWeight": 600, "color": ink, "anchor": "start", "offset": 8},
    }  # fmt: skip
    return figure  # type: ignore[no-any-return]


def encoded(rows: Rows, *channels: str) -> dict[str, Any]:
    """Encode the look of each series: its "color", its marker ("shape") and its "strokeDash"."""
    series = sorted({row["series"] for row in rows})
    looks = {"color": (alt.Color, "color"), "shape": (alt.Shape, "marker"), "strokeDash": (alt.StrokeDash, "dash")}
    found = {}
    for channel in channels:
        kind, look = looks[channel]
        scale = alt.Scale(domain=series, range=[getattr(style_of(one), look) for one in series])
        found[channel] = kind("series:N", scale=scale, legend=None)
    return found


def domain_of(values: Sequence[float], *, zero: bool, margin: float = 0.06) -> tuple[float, float]:
    """Return the range of an axis with a margin; with `zero` it includes 0.

    >>> domain_of([0.0, 1.0], zero=True, margin=0.1)
    (0.0, 1.1)
    """
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    least = 0.02 * max(abs(low), abs(high)) or 1.0  # differences in the fifth digit are not drawn
    if high - low < least:
        low, high = (low, low + least) if zero else ((low + high - least) / 2, (low + high + least) / 2)
    room = margin * (high - low)
    return (low if zero and low == 0 else low - room), high + room


def share_axis(rows: Rows, selection: str | None = None) -> AxisSpec:
    """Return the axis of selected shares, with a tick for each; on a log scale if they span much."""
    alphas = sorted({row["alpha"] for row in rows})
    title = "share selected, α" if selection is None else f"share selected ({clean(selection)})"
    labels = " : ".join(f"datum.value == {a!r} ? '{share(a)}'" for a in alphas) + " : ''"
    axis = alt.Axis(values=alphas, labelExpr=labels, labelOverlap="greedy", grid=False, title=title)
    if alphas[-1] > 8 * alphas[0]:
        room = (alphas[-1] / alphas[0]) ** 0.02
        return AxisSpec((alphas[0] / room, alphas[-1] * room), axis, "log")
    room = 0.025 * (alphas[-1] - alphas[0])
    return AxisSpec((alphas[0] - room, alphas[-1] + room), axis)


def log10_axis(domain: tuple[float, float], ticks: Sequence[float], title: str) -> AxisSpec:
    """Return an axis of logarithms of percentages, with labels at some of the percentages."""
    ticks = [tick for tick in ticks if domain[0] <= math.log10(tick) <= domain[1]]
    labels = "".join(f"abs(datum.value - {math.log10(tick)!r}) < 1e-6 ? '{tick:g}%' : " for tick in ticks) + "''"
    return AxisSpec(domain, alt.Axis(values=[math.log10(tick) for tick in ticks], labelExpr=labels, title=title))


def layered(layers: Sequence[Any]) -> Any:
    """Return the layers as one chart. Altair copies each layer several times: dictionaries are copied faster."""
    plain = []
    for one in layers:
        own = one.copy(deep=False)
        own.mark = one.mark.to_dict(validate=False)
        own.encoding = alt.FacetedEncoding(**one.encoding.to_dict(validate=False))
        plain.append(own)
    return alt.layer(*plain)


def label_room(names: Sequence[str], frame: Frame, limit: int = 22) -> int:
    """Return the width that the longest name may need."""
    return int(max(len(short(name, limit)) for name in names) * _CHARACTER_WIDTH * FONT_SIZE) + 14


def line_chart(rows: Rows, x: AxisSpec, y: AxisSpec, frame: Frame, *, under: Sequence[Any] = ()) -> Any:
    """Return a line with points for each series over other layers; wide charts have names at the ends of lines.

    Rows have keys "series", "name", "alpha", "value" and "text", the description of the point.
    """
    room = label_room([row["name"] for row in rows], frame) if frame.wide else 0
    width, height = frame.width - 78 - room, frame.height
    tone = encoded(rows, "color")
    base = chart(rows).encode(x=x.x("alpha:Q"), y=y.y("value:Q"), **tone)
    layers = [
        *under,
        base.mark_line(strokeWidth=2).encode(**encoded(rows, "strokeDash")),
        base.mark_point(filled=True, size=44, opacity=1).encode(
            **encoded(rows, "shape"), description=alt.Description("text:N")
        ),
    ]
    if frame.wide:
        widest = max(row["alpha"] for row in rows)
        last = [row for row in rows if row["alpha"] == widest]
        gap = (y.domain[1] - y.domain[0]) * (FONT_SIZE + 4) / height
        heights = spread([row["value"] for row in last], gap, y.domain[1])
        ends = [{**row, "at": at, "label": short(row["name"])} for row, at in zip(last, heights, strict=True)]
        text = chart(ends).mark_text(align="left", dx=11, baseline="middle", fontWeight=600)
        layers.append(text.encode(x=x.x("alpha:Q"), y=y.y("at:Q"), text=alt.Text("label:N"), **tone))
        # Vega measures names in its own font. An invisible mark reserves the room that another font may need.
        unseen = chart([{}]).mark_point(opacity=0, size=1)
        layers.append(unseen.encode(x=alt.value(width + room), y=alt.value(0)))
    return layered(layers).properties(width=width, height=height)


def spread(heights: Sequence[float], gap: float, high: float) -> list[float]:
    """Move heights up until they are at least `gap` from each other, and down again to stay below `high`.

    >>> spread([1.0, 1.0, 5.0], 2.0, 9.0)
    [1.0, 3.0, 5.0]
    """
    placed = list(heights)
    order = sorted(range(len(placed)), key=placed.__getitem__)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    highest = high
    for i in reversed(order):
        placed[i] = min(placed[i], highest)
        highest = placed[i] - gap
    return placed


def dot_plot(
    rows: Rows, title: str, frame: Frame, *, labels: str = SIGNED, line: float | None = None, step: int = 30
) -> Any:
    """Return one line per row: name, value and interval, with a reference `line`.

    Rows have keys "series", "name", "value", "low", "high" (may be None) and "text".
    """
    limit = 22 if frame.wide else 14
    ends = [v for r in rows for v in (r["low"], r["high"], r["value"], line) if v is not None]
    x = AxisSpec(domain_of(ends, zero=line == 0), alt.Axis(title=title, labelExpr=labels, tickCount=5))
    rows = [{**row, "label": short(row["name"], limit), "row": i} for i, row in enumerate(rows)]
    y = alt.Y("row:O", axis=None)
    layers: list[Any] = []
    if line is not None:
        mark = {"color": light("muted"), "strokeDash": [4, 3]} if line else {"color": light("ink"), "strokeWidth": 1.2}
        layers.append(chart([{"at": line}]).mark_rule(**mark).encode(x=x.x("at:Q")))
    known = [row for row in rows if row["low"] is not None]
    if known:
        bars = chart(known).mark_rule(strokeWidth=2)
        layers.append(bars.encode(y=y, x=x.x("low:Q"), x2=alt.X2("high:Q"), **encoded(rows, "color")))
    points = chart(rows).mark_point(filled=True, size=60, opacity=1).encode(**encoded(rows, "color", "shape"))
    layers.append(points.encode(y=y, x=x.x("value:Q"), description=alt.Description("text:N")))
    # Names are marks: labels of an axis would have to pass through an expression.
    room = label_room([row["name"] for row in rows], frame, limit)
    names = chart(rows).mark_text(align="left", baseline="middle")
    layers.append(names.encode(x=alt.value(-room), y=y, text=alt.Text("label:N")))
    return layered(layers).properties(width=frame.width - 30 - room, height=step * len(rows))


def by_share_chart(
    rows: Rows, title: str, frame: Frame, *, labels: str, zero: bool, selection: str | None, band: dict[str, Any]
) -> Any:
    """Return lines with bands from "low" to "high" by selected share; if there is one share, a dot plot."""
    if len({row["alpha"] for row in rows}) == 1:
        return dot_plot(rows, title, frame, line=0.0 if zero else None, labels=labels)
    known = [row for row in rows if row["low"] is not None]
    ends = [row["value"] for row in rows] + [row[end] for row in known for end in ("low", "high")]
    domain = domain_of(ends, zero=zero or min(ends) < 0.4 * max(ends))
    y = AxisSpec(domain, alt.Axis(title=title, labelExpr=labels, tickCount=6))
    x = share_axis(rows, selection)
    area = chart(known).mark_area(**band).encode(x=x.x("alpha:Q"), y=y.y("low:Q"), y2=alt.Y2("high:Q"))
    under = [area if "color" in band else area.encode(**encoded(rows, "color"))]
    if zero:
        under.append(chart([{"zero": 0}]).mark_rule(color=light("ink"), strokeWidth=1.2).encode(y=y.y("zero:Q")))
    return line_chart(rows, x, y, frame, under=under)


# ---------------------------------------------------------------------------- rendering

# Attributes that Vega writes and that a drawing with one description does not need.
_DROPPED = {
    "class", "role", "aria-label", "aria-roledescription", "aria-hidden", "pointer-events", "font-family",
    "stroke-miterlimit", "version",
}  # fmt: skip
_MANY_DIGITS = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")


def to_svg(figure: Chart) -> str:
    """Return the chart as an SVG document."""
    return str(vl_convert.vegalite_to_svg(figure.to_dict(validate=False), allowed_base_urls=[]))


def to_png(figure: Chart, scale: float = 2.0) -> bytes:
    """Return the chart as PNG."""
    return bytes(vl_convert.vegalite_to_png(figure.to_dict(validate=False), scale=scale, allowed_base_urls=[]))


def inline_svg(figure: Chart, *, prefix: str, label: str, kind: str) -> str:
    """Return the chart as an `<svg>` element for the page, which scales with the page and takes its colours.

    Descriptions of marks become tooltips. Ids begin with `prefix`, so that they are unique on the page.
    """
    root = ET.fromstring(to_svg(figure).replace(' xmlns="http://www.w3.org/2000/svg"', "", 1))
    root.remove(next(child for child in root if child.tag == "rect"))  # the background
    for element in list(root.iter()):
        if element.get("role") == "graphics-symbol" and element.tag in ("path", "rect", "line"):
            ET.SubElement(element, "title").text = element.get("aria-label")
        for name, value in list(element.attrib.items()):
            if name in _DROPPED:
                del element.attrib[name]
            else:
                value = prefix + value if name == "id" else value.replace("url(#", f"url(#{prefix}")
                element.set(name, _MANY_DIGITS.sub(lambda m: f"{float(m.group()):.2f}", value))
    width, height = root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib.update(
        {
            "class": f"figure {kind}", "role": "img", "aria-label": clean(label), "viewBox": f"0 0 {width} {height}",
            "style": f"--drawn:{float(width):g}px", "preserveAspectRatio": "xMidYMid meet",
        }
    )  # fmt: skip
    return ET.tostring(root, encoding="unicode")
