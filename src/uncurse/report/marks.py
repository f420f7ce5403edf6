"""What figures are made of: axes shared by all layers, scales by series, lines with bands, rows of points."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from .data import Rows
from .style import INK, MUTED, Frame, color, config, dash, shape
from .words import share, short

Figure = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart

_CHARACTER = 0.7  # the width of a character over its size, of a wide bold font: a reader may have another font

# Tick labels with a true minus, and with as few decimals as tell ticks apart.
SIGNED_PERCENT = "datum.value == 0 ? '0%' : replace(format(datum.value, '+.2~%'), '-', '−')"
SIGNED = "replace(datum.label, '-', '−')"


@dataclass(frozen=True)
class Along:
    """One axis. Every layer names it in full: Vega-Lite merges axes that agree, and trips over some that do not."""

    domain: tuple[float, float]
    axis: alt.Axis | None
    kind: str = "linear"

    def x(self, field: str) -> alt.X:
        """A field across."""
        return alt.X(field, scale=self._scale(), axis=self.axis)

    def y(self, field: str) -> alt.Y:
        """A field up."""
        return alt.Y(field, scale=self._scale(), axis=self.axis)

    def _scale(self) -> alt.Scale:
        zero = {} if self.kind == "log" else {"zero": False}
        return alt.Scale(type=self.kind, domain=list(self.domain), nice=False, **zero)  # type: ignore[arg-type]


def chart(rows: Rows) -> alt.Chart:
    """A chart of plain rows. They travel as JSON text: Altair copies lists at every turn, for most of the time."""
    content = {"values": json.dumps(rows, allow_nan=False), "format": {"type": "json"}}
    return alt.Chart(alt.Data.from_dict(content))


def finish(figure: Any, frame: Frame) -> Figure:
    """The figure with the look of all figures."""
    figure.config = config(frame)
    return figure  # type: ignore[no-any-return]


def _by_series(rows: Rows, values: Callable[[int], Any]) -> Any:
    series = sorted({row["series"] for row in rows})
    return alt.Scale(domain=series, range=[values(s) for s in series])


def colored(rows: Rows) -> alt.Color:
    """The colour of each series."""
    return alt.Color("series:N", scale=_by_series(rows, color), legend=None)


def shaped(rows: Rows) -> alt.Shape:
    """The point of each series."""
    return alt.Shape("series:N", scale=_by_series(rows, shape), legend=None)


def dashed(rows: Rows) -> alt.StrokeDash:
    """The dash of each series."""
    return alt.StrokeDash("series:N", scale=_by_series(rows, dash), legend=None)


def reach(values: Sequence[float], *, zero: bool, margin: float = 0.06) -> tuple[float, float]:
    """A domain with a little room, and with zero in it where it must be."""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    least = 0.02 * max(abs(low), abs(high)) or 1.0  # what differs in its fifth digit is drawn as one
    if high - low < least:
        low, high = (low, low + least) if zero else ((low + high - least) / 2, (low + high + least) / 2)
    room = margin * (high - low)
    return (low if zero and low == 0 else low - room), high + room


def shares_axis(rows: Rows, title: str) -> Along:
    """The shares kept, each with its own tick; on a log scale where they span much."""
    alphas = sorted({row["alpha"] for row in rows})
    labels = " : ".join(f"datum.value == {a!r} ? '{share(a)}'" for a in alphas) + " : ''"
    axis = alt.Axis(values=alphas, labelExpr=labels, labelOverlap="greedy", grid=False, title=title)
    if alphas[-1] > 8 * alphas[0]:
        room = (alphas[-1] / alphas[0]) ** 0.02
        return Along((alphas[0] / room, alphas[-1] * room), axis, "log")
    room = 0.025 * (alphas[-1] - alphas[0])
    return Along((alphas[0] - room, alphas[-1] + room), axis)


def label_room(names: Sequence[str], frame: Frame, most: int = 22) -> int:
    """The width that the longest name may need."""
    return int(max(len(short(name, most)) for name in names) * _CHARACTER * frame.font_size) + 14


def lines(rows: Rows, across: Along, up: Along, size: tuple[int, int], frame: Frame, *, named: bool) -> list[Any]:
    """Line and points per series, and where `named` its name at the end of its line."""
    tone = colored(rows)
    base = chart(rows).encode(x=across.x("alpha:Q"), color=tone)
    layers: list[Any] = [
        base.mark_line(strokeWidth=2).encode(y=up.y("value:Q"), strokeDash=dashed(rows)),
        base.mark_point(filled=True, size=44, opacity=1).encode(
            y=up.y("value:Q"), shape=shaped(rows), description="text:N"
        ),
    ]
    if named:
        widest = max(row["alpha"] for row in rows)
        last = [row for row in rows if row["alpha"] == widest]
        gap = (up.domain[1] - up.domain[0]) * (frame.font_size + 4) / size[1]
        heights = apart([row["value"] for row in last], gap, *up.domain)
        ends = [{**row, "at": at, "label": short(row["name"])} for row, at in zip(last, heights, strict=True)]
        text = chart(ends).mark_text(align="left", dx=11, baseline="middle", fontWeight=600)
        layers.append(text.encode(x=across.x("alpha:Q"), y=up.y("at:Q"), text="label:N", color=tone))
        # Vega measures names in its own font. An unseen mark keeps the room that another may need.
        room = label_room([row["name"] for row in rows], frame)
        unseen = chart([{}]).mark_point(opacity=0, size=1)
        layers.append(unseen.encode(x=alt.value(size[0] + room), y=alt.value(0)))
    return layers


def apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights moved to at least `gap` from each other, and back between `low` and `high` as far as they fit.

    >>> apart([1.0, 1.0, 5.0], 2.0, 0.0, 9.0)
    [0.0, 2.0, 5.0]
    """
    places = sorted(range(len(heights)), key=heights.__getitem__)
    placed = [heights[i] for i in places]
    for _ in range(200):  # neighbours push each other apart, each by half of what is missing
        for i in range(len(placed) - 1):
            missing = gap - (placed[i + 1] - placed[i])
            if missing > 0:
                placed[i], placed[i + 1] = placed[i] - missing / 2, placed[i + 1] + missing / 2
    over = max(placed[-1] - high, 0.0) or -max(low - placed[0], 0.0)
    made = dict(zip(places, placed, strict=True))
    return [made[i] - over for i in range(len(heights))]


def rows_of_points(
    rows: Rows, title: str, frame: Frame, *, zero: bool = False, floor: bool = False, line: float | None = None,
    step: int = 30, most: int | None = None,
) -> Any:  # fmt: skip
    """A row each: its name, its value, its interval, and what nothing but noise would show."""
    most = most or (22 if frame.wide else 14)
    ends = [v for r in rows for v in (r["low"], r["high"], r["value"], r.get("floor"), line) if v is not None]
    labels = SIGNED_PERCENT if zero else SIGNED
    across = Along(reach(ends, zero=zero or floor), alt.Axis(title=title, labelExpr=labels, tickCount=5))
    rows = [{**row, "label": short(row["name"], most), "row": i} for i, row in enumerate(rows)]
    y = alt.Y("row:O", axis=None)
    base = chart(rows).encode(y=y, color=colored(rows))
    layers: list[Any] = []
    if zero or line is not None:
        mark = {"strokeWidth": 1.2} if zero else {"strokeDash": [4, 3]}
        rule = chart([{"at": 0.0 if line is None else line}]).mark_rule(color=INK[0] if zero else MUTED[0], **mark)
        layers.append(rule.encode(x=across.x("at:Q")))
    if floor:
        layers.append(chart(rows).mark_tick(color=MUTED[0], thickness=2, size=18).encode(y=y, x=across.x("floor:Q")))
    known = [row for row in rows if row["low"] is not None]
    if known:
        bars = chart(known).mark_rule(strokeWidth=2).encode(y=y, color=colored(rows))
        layers.append(bars.encode(x=across.x("low:Q"), x2="high:Q"))
    points = base.mark_point(filled=True, size=60, opacity=1)
    layers.append(points.encode(x=across.x("value:Q"), shape=shaped(rows), description="text:N"))
    # Names are marks: as labels of an axis they would have to go through an expression.
    room = label_room([row["name"] for row in rows], frame, most)
    names = chart(rows).mark_text(align="left", baseline="middle")
    layers.append(names.encode(x=alt.value(-room), y=y, text="label:N"))
    width = frame.width - 30 - room
    return alt.layer(*layers).properties(width=width, height=step * len(rows))


__all__ = [
    "SIGNED", "SIGNED_PERCENT", "Along", "Figure", "apart", "chart", "colored", "dashed", "finish", "label_room",
    "lines", "reach", "rows_of_points", "shaped", "shares_axis",
]  # fmt: skip
