"""Figures of the pages and of notebooks: drawing on matplotlib axes, one style, and SVG and PNG.

Figures are drawn in the light colors of ``page.css``. A page replaces these by their CSS variables, so that one
drawing serves light, dark and print, and a figure that is saved to a file is complete.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from statistics import median
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from .monitored import ALARM, DAILY, RUNNING, SCORES, Point, e_value_text, error_text, gap, power_of_ten, span_words
from .prose import clean, number, share, short

Chart = Figure
Rows = Sequence[Mapping[str, Any]]

STYLESHEET = resources.files(__package__).joinpath("page.css").read_text("utf-8")
#: Light and dark color by name.
COLORS: dict[str, tuple[str, str]] = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", STYLESHEET)
}  # fmt: skip
#: Series of the observed outcomes, which belong to no method.
OBSERVED = -1
FONT_SIZE = 12

_LIGHT = {name: light for name, (light, _) in COLORS.items()}
_SERIES = [name for name in COLORS if re.fullmatch(r"s\d", name)]
_DASHES = ((), (), (7, 3), (2, 3), (9, 3, 2, 3), (4, 2), (12, 4))
# Marker of matplotlib, and the same as a path for the legend of the page.
_MARKERS = (
    ("o", "M10 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    ("s", "M10.5 2.5h7v7h-7z"),
    ("^", "M14 1.5l4.5 8h-9z"),
    ("D", "M14 1l4 5-4 5-4-5z"),
    ("v", "M14 10.5l4.5-8h-9z"),
    ("P", "M12.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z"),
    (">", "M18.5 6l-8 4.5v-9z"),
)
# Quiet axes, a light grid, no frame. One unit of a drawing is one pixel.
_STYLE = {
    "figure.dpi": 72, "figure.facecolor": _LIGHT["paper"], "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08, "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans", "font.size": FONT_SIZE, "text.color": _LIGHT["ink"], "text.parse_math": False,
    "axes.facecolor": "none", "axes.labelcolor": _LIGHT["muted"], "axes.labelpad": 8, "axes.axisbelow": True,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False, "axes.spines.bottom": False,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": _LIGHT["grid"], "grid.linewidth": 1,
    "axes.titlelocation": "left", "axes.titlesize": FONT_SIZE + 1, "axes.titleweight": "bold",
    "xtick.color": _LIGHT["muted"], "ytick.color": _LIGHT["muted"], "xtick.major.size": 0, "ytick.major.size": 0,
    "xtick.major.pad": 7, "ytick.major.pad": 7, "lines.scale_dashes": False,
    "svg.fonttype": "none", "svg.hashsalt": "uncurse",
}  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """Size of a figure: for a desktop screen or paper, and for a phone."""

    width: int
    height: int  # of the axes
    wide: bool


WIDE = Frame(width=720, height=300, wide=True)
NARROW = Frame(width=340, height=250, wide=False)
_MARGIN = 55  # height of an axis with its title


@dataclass(frozen=True)
class SeriesStyle:
    """Look of a series: its color variable, light color, dash, marker, and the path of the marker."""

    variable: str
    color: str
    dash: tuple[int, ...]
    marker: str
    path: str

    @property
    def line(self) -> dict[str, Any]:
        """Options of `Axes.plot` for a line with this color and dash."""
        return {"color": self.color, "lw": 2, "ls": (0, self.dash) if self.dash else "-"}

    @property
    def point(self) -> dict[str, Any]:
        """Options of `Axes.plot` for markers without a line."""
        return {"color": self.color, "marker": self.marker, "ls": "", "ms": 6.5, "mew": 0}


def style_of(series: int) -> SeriesStyle:
    """Return the look of a series; colors repeat after the last one, with another dash and marker."""
    variable = "ink" if series == OBSERVED else _SERIES[series % len(_SERIES)]
    turn = 0 if series == OBSERVED else series + series // len(_SERIES)
    marker, path = _MARKERS[turn % len(_MARKERS)]
    return SeriesStyle(variable, _LIGHT[variable], _DASHES[turn % len(_DASHES)], marker, path)


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in the style of the page, whatever the settings of the user are."""
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's browser has other fonts
        yield


def axes_of(frame: Frame, *heights: int, columns: int = 1) -> tuple[Chart, list[Any]]:
    """Return an empty figure of the frame's width and its axes: one row for each of the heights."""
    figure = Chart(figsize=(frame.width / 72, sum(height + _MARGIN for height in heights) / 72))
    return figure, list(figure.subplots(len(heights), columns, squeeze=False).flat)


# ---------------------------------------------------------------------------- axes and marks


def signed_percent(value: float, _: object = None) -> str:
    """Format a tick of an error.

    >>> signed_percent(0.1), signed_percent(-0.025), signed_percent(0.0)
    ('+10%', '−2.5%', '0%')
    """
    text = f"{100 * value:+.6g}%" if abs(value) > 1e-12 else "0%"
    return text.replace("-", "−")


def plain(value: float, _: object = None) -> str:
    """Format a tick of a number.

    >>> plain(1250000.0), plain(-0.1)
    ('1,250,000', '−0.1')
    """
    return f"{value:,.7g}".replace("-", "−")


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


def set_ticks(axis: Any, ticks: int, labels: Callable[[float, object], str]) -> None:
    """Put about so many ticks at round numbers."""
    axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(labels)


def share_axis(ax: Any, alphas: Sequence[float], selection: str | None = None) -> None:
    """Set the axis of selected shares, with a tick for each; on a log scale if they span much."""
    alphas = sorted(set(alphas))
    low, high = alphas[0], alphas[-1]
    logarithmic = high > 8 * low
    if logarithmic:
        room = (high / low) ** 0.02
        ax.set(xscale="log", xlim=(low / room, high * room))
    else:
        room = 0.025 * (high - low) or 0.05 * high
        ax.set(xlim=(low - room, high + room))
    ax.minorticks_off()
    set_labels(ax, alphas, [share(alpha) for alpha in alphas])
    ax.set_xlabel("share selected, α" if selection is None else f"share selected ({clean(selection)})")


def set_labels(ax: Any, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Put ticks on the horizontal axis; a label that would touch the one before it is left out."""
    places = ax.transData.transform([(tick, 0.0) for tick in ticks])[:, 0] * 72 / ax.figure.dpi
    end, shown = -math.inf, []
    for place, label in zip(places, labels, strict=True):
        half = 0.33 * FONT_SIZE * len(label)
        shown.append(label if place - half > end + 5 else "")
        end = place + half if shown[-1] else end
    ax.set_xticks(ticks, shown)


def describe(artist: Any, texts: Sequence[str]) -> None:
    """Give each marker of an artist a tooltip. The id of the artist carries them to the SVG."""
    artist.set_gid(_TOOLTIPS + _SEPARATOR.join(" ".join(clean(text).split()) for text in texts))


_TOOLTIPS, _SEPARATOR = "tooltips:", "\u2028"


def draw_lines(ax: Any, rows: Rows, *, names: bool = False) -> None:
    """Draw a line with markers for each series, with bands where "low" and "high" are known.

    Rows have keys "series", "name", "alpha", "value" and optionally "low", "high" and "text", a tooltip. With `names`,
    each line has its name at its end.
    """
    ends = []
    for series in sorted({row["series"] for row in rows}):
        own, style = [row for row in rows if row["series"] == series], style_of(series)
        known = [row for row in own if row.get("low") is not None]
        if known:
            x, low, high = ([row[key] for row in known] for key in ("alpha", "low", "high"))
            ax.fill_between(x, low, high, color=style.color, alpha=0.14, lw=0)
        x, y = ([row[key] for row in own] for key in ("alpha", "value"))
        (line,) = ax.plot(x, y, **{**style.point, **style.line}, label=own[0]["name"] or None)
        describe(line, [row.get("text", "") for row in own])
        ends.append((own[-1]["value"], short(own[0]["name"]), style.color))
    if names:
        low, high = ax.get_ylim()
        step = (high - low) * (FONT_SIZE + 4) / (72 / ax.figure.dpi * ax.bbox.height)
        for at, (_, name, color) in zip(spread([end[0] for end in ends], step, high), ends, strict=True):
            place = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
            ax.annotate(name, (1, at), xytext=(4, 0), va="center", color=color, weight="bold", **place)


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


def draw_by_share(
    ax: Any, rows: Rows, title: str, *, labels: Any = plain, zero: bool = False, selection: str | None = None,
    names: bool = False,
) -> None:  # fmt: skip
    """Draw values by selected share, with bands from "low" to "high"; with `zero`, a line at 0."""
    ends = [row[key] for row in rows for key in ("value", "low", "high") if row.get(key) is not None]
    ax.set(ylabel=title, ylim=domain_of(ends, zero=zero or min(ends) < 0.4 * max(ends)))
    set_ticks(ax.yaxis, 6, labels)
    share_axis(ax, [row["alpha"] for row in rows], selection)
    if zero:
        ax.axhline(0, color=_LIGHT["ink"], lw=1.2, zorder=1)
    draw_lines(ax, rows, names=names)


def draw_dots(ax: Any, rows: Rows, title: str, *, labels: Any = plain, line: float | None = None) -> None:
    """Draw one line per row: name, value and interval, with a reference `line`.

    Rows have keys "series", "name", "value", "low", "high" (may be None) and "text".
    """
    ends = [v for r in rows for v in (r["low"], r["high"], r["value"], line) if v is not None]
    ax.set(xlabel=title, xlim=domain_of(ends, zero=line == 0), ylim=(len(rows) - 0.5, -0.5))
    set_ticks(ax.xaxis, 5, labels)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.set_yticks(range(len(rows)), [short(row["name"]) for row in rows], color=_LIGHT["ink"])
    if line is not None:
        look = {"color": _LIGHT["muted"], "ls": (0, (4, 3))} if line else {"color": _LIGHT["ink"], "lw": 1.2}
        ax.axvline(line, **look)
    for place, row in enumerate(rows):
        style = style_of(row["series"])
        if row["low"] is not None:
            ax.plot([row["low"], row["high"]], [place, place], color=style.color, lw=2)
        describe(ax.plot([row["value"]], [place], **style.point)[0], [row["text"]])


def draw_reliability(ax: Any, rows: Rows, *, domain: tuple[float, float] | None = None) -> None:
    """Draw observed rates against mean predictions of bins, with their intervals, and the diagonal.

    Rows have keys "series", "name", "predicted", "observed", "low", "high" and optionally "text".
    """
    style = style_of(rows[0]["series"])
    x, y, low, high = ([row[key] for row in rows] for key in ("predicted", "observed", "low", "high"))
    describe(ax.plot(x, y, **style.point, label=rows[0]["name"] or None)[0], [row.get("text", "") for row in rows])
    ax.vlines(x, low, high, color=style.color, lw=1.5)
    if domain is not None:
        ax.set(xlim=domain, ylim=domain)
    ax.axline((0, 0), slope=1, color=_LIGHT["rule"], lw=1.2, ls=(0, (4, 3)), zorder=1)


# ---------------------------------------------------------------------------- figures of an evaluation


def by_share_figure(
    panels: Mapping[str, Rows], frame: Frame, *, labels: Any = plain, zero: bool = False, selection: str | None = None
) -> Chart:
    """Return a panel of lines by selected share for each title; if there is one share, of dots."""
    single = len({row["alpha"] for rows in panels.values() for row in rows}) == 1
    figure, axes = axes_of(frame, *(30 * len(rows) if single else frame.height for rows in panels.values()))
    for ax, (title, rows) in zip(axes, panels.items(), strict=True):
        if single:
            draw_dots(ax, rows, title, labels=labels, line=0.0 if zero else None)
        else:
            draw_by_share(ax, rows, title, labels=labels, zero=zero, selection=selection, names=frame.wide)
    return figure


def dots_figure(
    rows: Rows, title: str, frame: Frame, *, labels: Any = plain, line: float | None = None, step: int = 30
) -> Chart:
    """Return one line per row, see `draw_dots`."""
    figure, (ax,) = axes_of(frame, step * len(rows))
    draw_dots(ax, rows, title, labels=labels, line=line)
    return figure


def lines_figure(
    rows: Rows, frame: Frame, *, x: tuple[str, Any], y: tuple[str, Any], log_x: bool = False, log_y: bool = False
) -> Chart:
    """Return lines over the numbers "alpha" of the rows. `x` and `y` are a title and the labels of ticks.

    The axis of values contains 0, which has a line, or is logarithmic.
    """
    figure, (ax,) = axes_of(frame, frame.height)
    values, places = [row["value"] for row in rows], sorted({row["alpha"] for row in rows})
    if log_y:
        ax.set(yscale="log", ylim=(min(values) / 1.2, max(values) * 1.2))
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(y[1])
    else:
        ax.set_ylim(domain_of(values, zero=True))
        set_ticks(ax.yaxis, 6, y[1])
        ax.axhline(0, color=_LIGHT["ink"], lw=1.2, zorder=1)
    room = 0.02 * (places[-1] - places[0]) or 1.0
    if log_x:
        ax.set(xscale="log", xlim=(places[0] / 1.1, places[-1] * 1.1))
    else:
        ax.set_xlim(places[0] - room, places[-1] + room)
    ax.minorticks_off()
    if log_x or len(places) < 8:
        set_labels(ax, places, [x[1](place) for place in places])
    else:
        set_ticks(ax.xaxis, 8, x[1])
    ax.set(xlabel=x[0], ylabel=y[0])
    draw_lines(ax, rows, names=frame.wide)
    return figure


def reliability_figure(rows: Rows, frame: Frame) -> Chart:
    """Return a panel for each series, see `draw_reliability`."""
    ends = [v for row in rows for v in (row["predicted"], row["low"], row["high"])]
    domain = domain_of(ends, zero=min(ends) < 0.25 * max(ends))
    series = sorted({row["series"] for row in rows})
    columns = {1: 1, 2: 2, 4: 2}.get(len(series), 3) if frame.wide else min(len(series), 2)
    side = min(frame.width // columns - 50, 270)
    figure, axes = axes_of(frame, *[side + 20] * math.ceil(len(series) / columns), columns=columns)
    for ax in axes[len(series) :]:
        ax.remove()
    for i, (ax, one) in enumerate(zip(axes, series, strict=False)):
        own = [row for row in rows if row["series"] == one]
        draw_reliability(ax, own, domain=domain)
        ax.set_title(short(own[0]["name"], max(side // 10, 10)), color=style_of(one).color)
        ax.set(aspect="equal", xlabel="predicted", ylabel="observed" if i % columns == 0 else "")
        for axis in (ax.xaxis, ax.yaxis):
            set_ticks(axis, 4 if side >= 160 else 3, plain)
    return figure


def density_figure(rows: Rows, scale: str, frame: Frame) -> Chart:
    """Return a line over the "bins" of each row, and a marker at its "mean"."""
    figure, (ax,) = axes_of(frame, frame.height - 60)
    for row in rows:
        bins, style = row["bins"], style_of(row["series"])
        ax.plot([one["middle"] for one in bins], [one["density"] for one in bins], **style.line)
        describe(ax.plot([row["mean"]], [0.0], **style.point, clip_on=False)[0], [row["text"]])
    bins = [one for row in rows for one in row["bins"]]
    ax.set(xlim=(min(one["left"] for one in bins), max(one["right"] for one in bins)), xlabel=f"score ({scale})")
    ax.set(ylim=(0.0, 1.05 * max(one["density"] for one in bins)), yticks=[])
    set_ticks(ax.xaxis, 8 if frame.wide else 5, plain)
    return figure


# ---------------------------------------------------------------------------- figures of a map since its fit

_WATCH = 5.0  # e-value from which the verdict is "watch"
_MANY = 40  # up to this many points, every point has a marker
_DAY = 86_400_000.0  # milliseconds
_FAR = 3.0  # intervals this many times as wide as on a usual day do not stretch the axis


def _time_axis(ax: Any, found: Sequence[Point], frame: Frame) -> None:
    """Set the axis of time, in UTC: ticks at days that were seen, or at months if there are many."""
    times = [point.time for point in found]
    low, high, most = times[0], times[-1], 8 if frame.wide else 4
    years = sorted({_utc(end).year for end in (low, high)})
    unit = "day"
    if high - low > 120 * _DAY:
        ticks = _months(low, high, most)
        labels = [f"{_utc(tick):%b %Y}" if len(years) > 1 else f"{_utc(tick):%b}" for tick in ticks]
    else:
        unit = "time" if any(time % _DAY for time in times) else "day"
        ticks = times[:: math.ceil(len(times) / (most if unit == "day" else most // 2))]
        labels = [f"{_utc(tick).day} {_utc(tick):%b}" for tick in ticks]
        if unit == "time":
            labels = [f"{label} {_utc(tick):%H:%M}" for label, tick in zip(labels, ticks, strict=True)]
    room = max(0.5 * min(gap(times), _DAY) if len(times) < 60 else 0.0, 0.015 * (high - low))
    ax.set(xlim=(low - room, high + room), xlabel=f"{unit} ({'–'.join(map(str, years))}, UTC)")
    set_labels(ax, ticks, labels)


def _utc(time: float) -> datetime:
    return datetime.fromtimestamp(time / 1000, UTC)


def _months(low: float, high: float, most: int) -> list[float]:
    """Return the beginnings of at most so many months between two times."""
    start, end = _utc(low), _utc(high)
    months = range(12 * start.year + start.month - 1, 12 * end.year + end.month)
    times = [1000 * datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp() for month in months]
    times = [time for time in times if low <= time <= high]
    return times[:: math.ceil(len(times) / most)]


def _draw_days(ax: Any, rows: Rows, series: int) -> None:
    """Draw a line with tooltips; if there are many points, only the marker of the last one can be seen."""
    style = style_of(series)
    x, y = ([row[key] for row in rows] for key in ("time", "value"))
    ax.plot(x, y, **style.line)
    (points,) = ax.plot(x, y, **style.point, alpha=0 if len(rows) > _MANY else 1)
    describe(points, [row["text"] for row in rows])
    if len(rows) > _MANY:
        ax.plot(x[-1:], y[-1:], **style.point)


def _draw_band(ax: Any, rows: Rows, series: int, opacity: float) -> None:
    """Draw an area from "low" to "high"; a bar if there is one point only, which has no width."""
    times = [row["time"] for row in rows]
    if len(times) == 1:
        low, high = ax.get_xlim()
        times = [times[0] - 0.05 * (high - low), times[0] + 0.05 * (high - low)]
    low, high = ([row[end] for row in rows] * (2 if len(rows) == 1 else 1) for end in ("low", "high"))
    ax.fill_between(times, low, high, color=style_of(series).color, alpha=opacity, lw=0)


def error_domain(found: Sequence[Point]) -> tuple[float, float]:
    """Return the range of errors: what is known as well as on a usual day, and the last confidence sequence."""
    most = _FAR * median(_width(point.own) for point in found)
    spans = [span for p in found for span in (p.own, p.sequence) if _width(span) <= most < math.inf]
    last = [*found[-1].sequence, found[-1].running.error]
    ends = [end for end in (*(end for span in spans for end in span), *last) if math.isfinite(end)]
    if found[-1].sequence[1] == math.inf:
        ends += [-1.0, 1.0]
    low, high = domain_of(ends, zero=True)
    return max(low, -1.0), high


def _width(span: tuple[float, float]) -> float:
    """Return the width of an interval of the error, relative to predicted / observed."""
    low, high = span
    return math.log((1 + high) / (1 + low)) if low > -1 else math.inf


def error_figure(found: Sequence[Point], alarm: str | None, frame: Frame) -> Chart:
    """Return the error of each day with its interval, and of all days with their confidence sequence."""
    figure, (ax,) = axes_of(frame, frame.height)
    low, high = error_domain(found)
    ax.set(ylim=(low, high), ylabel="calibration error")
    set_ticks(ax.yaxis, 6, signed_percent)
    _time_axis(ax, found, frame)

    def near(value: float) -> float:
        return min(max(value, 2 * low - high), 2 * high - low)  # bars and bands are cut off at the edge of the axes

    many, daily = len(found) > 120, style_of(DAILY)
    ax.vlines(
        [p.time for p in found], [near(p.own[0]) for p in found], [near(p.own[1]) for p in found],
        color=daily.color, lw=1, alpha=0.13 if many else 0.5,
    )  # fmt: skip
    days: dict[str, list[tuple[float, float, str]]] = {}
    for p in found:
        own = p.day.sums.error
        marker = "^" if own > high else "v" if own < low else daily.marker  # triangles at the edge: beyond it
        if own == own:
            text = f"{p.name}: {error_text(own, *p.own)} ({span_words(*p.own)})"
            days.setdefault(marker, []).append((p.time, min(max(own, low), high), text))
    for marker, points in days.items():
        x, y, texts = zip(*points, strict=True)
        size = 3 if many else 4 if len(found) > _MANY else 6
        look = {**daily.point, "marker": marker, "ms": size, "clip_on": False}
        describe(ax.plot(x, y, **look)[0], texts)
    ends = [{"time": p.time, "low": near(p.sequence[0]), "high": near(p.sequence[1])} for p in found]
    _draw_band(ax, ends, RUNNING, 0.3 if many else 0.16)
    ax.axhline(0, color=_LIGHT["ink"], lw=1.2, zorder=1)
    if alarm is not None:
        time = next(point.time for point in found if point.log_e >= math.log(ALARM))
        right, color = time > sum(ax.get_xlim()) / 2, _LIGHT["s0"]  # the name is on the side that has more room
        ax.axvline(time, color=color, lw=1.2, ls=(0, (4, 3)))
        offset = {"xytext": (-6 if right else 6, -8), "textcoords": "offset points", "ha": "right" if right else "left"}
        ax.annotate(f"alarm, {alarm}", (time, high), va="center", color=color, **offset)
    running = [
        {"time": p.time, "value": p.running.error,
         "text": f"since the fit, up to {p.name}: {error_text(p.running.error, *p.sequence)} "
                 f"({span_words(*p.sequence)})"}
        for p in found if low <= p.running.error <= high
    ]  # fmt: skip
    if running:
        _draw_days(ax, running, RUNNING)
    return figure


def evidence_figure(found: Sequence[Point], frame: Frame) -> Chart:
    """Return the e-value after each day on a log scale, with the lines of "watch" and of the alarm."""
    figure, (ax,) = axes_of(frame, frame.height - 60)
    rows: list[dict[str, Any]] = [
        {"time": p.time, "value": p.log_e / math.log(10), "text": f"{p.name}: e-value {e_value_text(p.log_e)}"}
        for p in found
    ]
    values = [row["value"] for row in rows]
    low, high = min(*values, -1.0), max(*values, 2.0)
    step = max(1, round((high - low) / 5))
    ticks = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    room = 0.05 * (high - low)
    ax.set(ylim=(low - room, high + room), ylabel="e-value")
    ax.set_yticks(ticks, [power_of_ten(tick) for tick in ticks])
    _time_axis(ax, found, frame)
    lines = [(ALARM, "alarm", "s0"), (_WATCH, "watch", "muted")]
    for value, name, color in lines if high - low < 6 else lines[:1]:  # else they are too close to each other
        ax.axhline(math.log10(value), color=_LIGHT[color], lw=1.2, ls=(0, (4, 3)))
        place = {"xycoords": ax.get_yaxis_transform(), "xytext": (4, 3), "textcoords": "offset points"}
        ax.annotate(f"{number(value)}: {name}", (0, math.log10(value)), color=_LIGHT[color], **place)
    _draw_days(ax, rows, RUNNING)
    return figure


def score_figure(found: Sequence[Point], frame: Frame) -> Chart:
    """Return the mean of the scores of each day, with one standard deviation on either side."""
    figure, (ax,) = axes_of(frame, frame.height - 60)
    rows: list[dict[str, Any]] = []
    for p in found:
        mean, sd = p.day.score_mean, p.day.score_sd
        text = f"{p.name}: mean {number(mean)}, standard deviation {number(sd)}"
        rows.append({"time": p.time, "value": mean, "low": mean - sd, "high": mean + sd, "text": text})
    ax.set(ylim=domain_of([row[end] for row in rows for end in ("low", "high")], zero=False), ylabel="score (logit)")
    set_ticks(ax.yaxis, 5, plain)
    _time_axis(ax, found, frame)
    _draw_band(ax, rows, SCORES, 0.14)
    _draw_days(ax, rows, SCORES)
    return figure


# ---------------------------------------------------------------------------- rendering

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_MANY_DIGITS = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_HEX = re.compile("#[0-9a-f]{6}")
_VARIABLES = {light: f"var(--{name})" for name, light in _LIGHT.items()}


def to_png(figure: Chart) -> bytes:
    """Return the figure as PNG."""
    return _saved(figure, format="png", dpi=144)


def to_svg(figure: Chart) -> str:
    """Return the figure as an SVG document, with tooltips."""
    root = _svg_tree(figure)
    root.attrib.update({"xmlns": "http://www.w3.org/2000/svg", "stroke-linejoin": "round"})
    return ET.tostring(root, encoding="unicode")


def inline_svg(figure: Chart, *, prefix: str, label: str, kind: str) -> str:
    """Return the figure as an `<svg>` element for the page, which scales with the page and takes its colors.

    Ids begin with `prefix`, so that they are unique on the page.
    """
    root = _svg_tree(figure, prefix, transparent=True)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    width = float(root.get("viewBox", "").split()[2])
    root.attrib.update(
        {"class": f"figure {kind}", "role": "img", "aria-label": clean(label), "style": f"--drawn:{width:g}px"}
    )
    return ET.tostring(root, encoding="unicode")


def _saved(figure: Chart, **options: Any) -> bytes:
    file = io.BytesIO()
    with page_style():
        figure.savefig(file, **options)
    return file.getvalue()


def _svg_tree(figure: Chart, prefix: str = "", **options: Any) -> ET.Element:
    """Return the SVG of matplotlib with tooltips, short numbers, and no ids except those that are used.

    With a prefix, which ids then have, colors are CSS variables.
    """
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    text = _saved(figure, format="svg", metadata=metadata, **options).decode()
    used = set(re.findall(r'(?:href="|url\()#(\w+)', text))
    root = ET.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.find(f"{_SVG}style") is not None:  # it would apply to the whole page
                parent.remove(child)
    for group in root.iter(f"{_SVG}g"):
        marks = group.findall(f"{_SVG}use")
        if len({mark.get("style") for mark in marks}) == 1:  # write the style once
            group.set("style", marks[0].get("style", ""))
            for mark in marks:
                del mark.attrib["style"]
    for element in list(root.iter()):
        element.tag = element.tag.removeprefix(_SVG)
        given = dict(element.attrib)
        element.attrib.clear()
        own = given.pop("id", "")
        if own in used:
            element.set("id", prefix + own)
        elif own.startswith(_TOOLTIPS):
            drawn = element.iter(f"{_SVG}use")
            for mark, text in zip(drawn, own.removeprefix(_TOOLTIPS).split(_SEPARATOR), strict=False):
                ET.SubElement(mark, "title").text = text
        for name, value in given.items():
            if name == _XLINK:
                name, value = "href", f"#{prefix}{value[1:]}"
            elif prefix and name == "style":
                value = _HEX.sub(lambda m: _VARIABLES.get(m.group(), m.group()), value)
            value = value.replace("url(#", f"url(#{prefix}").replace("\n", "")
            element.set(name, _MANY_DIGITS.sub(lambda m: f"{float(m.group()):.2f}", value))
    return root
