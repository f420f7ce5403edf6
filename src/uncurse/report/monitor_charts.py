"""Charts of a map since its fit, by day: calibration error, evidence and served scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import altair as alt

from . import charts
from .charts import AxisSpec, Frame, Rows, SeriesStyle
from .monitored import ALARM, DAILY, RUNNING, SCORES, Point, e_value_text, error_text, gap, power_of_ten, span_words
from .prose import number

_WATCH = 5.0  # e-value from which the verdict is "watch"
_MARKERS = 40  # up to this many points, every point has a marker
_DAY = 86_400_000.0  # milliseconds
_FAR = 3.0  # intervals this many times as wide as on a usual day do not stretch the axis
_BAR = 60  # width of the band of a single day, in pixels


def _time_axis(found: Sequence[Point], frame: Frame) -> AxisSpec:
    """Return the axis of time, in UTC: ticks at days that were seen, or at months if there are many."""
    times = [point.time for point in found]
    low, high, most = times[0], times[-1], 8 if frame.wide else 4
    years = sorted({datetime.fromtimestamp(end / 1000, UTC).year for end in (low, high)})
    unit, pattern = "day", "%-d %b"
    if high - low > 120 * _DAY:
        ticks, pattern = _months(low, high, most), "%b %Y" if len(years) > 1 else "%b"
    else:
        if any(time % _DAY for time in times):
            unit, pattern, most = "time", "%-d %b %H:%M", most // 2
        ticks = times[:: math.ceil(len(times) / most)]
    room = max(0.5 * min(gap(times), _DAY) if len(times) < 60 else 0.0, 0.015 * (high - low))
    title = f"{unit} ({'–'.join(map(str, years))}, UTC)"
    labels = f"utcFormat(datum.value, '{pattern}')"
    axis = alt.Axis(values=ticks, labelExpr=labels, labelOverlap="greedy", grid=False, title=title)
    return AxisSpec((low - room, high + room), axis)


def _months(low: float, high: float, most: int) -> list[float]:
    """Return the beginnings of at most so many months between two times."""
    start, end = (datetime.fromtimestamp(one / 1000, UTC) for one in (low, high))
    months = range(12 * start.year + start.month - 1, 12 * end.year + end.month)
    times = [1000 * datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp() for month in months]
    times = [time for time in times if low <= time <= high]
    return times[:: math.ceil(len(times) / most)]


def _band(rows: Rows, x: AxisSpec, y: AxisSpec, style: SeriesStyle, opacity: float) -> Any:
    """Return an area from "low" to "high"; a bar if there is one point only, which has no width of its own."""
    base = charts.chart(rows).encode(x=x.x("time:Q"), y=y.y("low:Q"), y2=alt.Y2("high:Q"))
    look: dict[str, Any] = {"color": style.color, "opacity": opacity, "clip": True}
    return base.mark_area(**look) if len(rows) > 1 else base.mark_rule(strokeWidth=_BAR, **look)


def _line(rows: Rows, x: AxisSpec, y: AxisSpec, style: SeriesStyle) -> list[Any]:
    """Return a line with markers; if there are many points, only the last one can be seen, and all have tooltips."""
    base = charts.chart(rows).encode(x=x.x("time:Q"), y=y.y("value:Q"))
    look: dict[str, Any] = {"filled": True, "size": 44, "color": style.color, "shape": style.marker}
    many = len(rows) > _MARKERS
    layers = [
        base.mark_line(color=style.color, strokeWidth=2, clip=True),
        base.mark_point(opacity=0 if many else 1, **look).encode(description=alt.Description("text:N")),
    ]
    if many:
        last = charts.chart(rows[-1:]).encode(x=x.x("time:Q"), y=y.y("value:Q"))
        layers.append(last.mark_point(opacity=1, **look).encode(description=alt.Description("text:N")))
    return layers


def _sized(layers: Sequence[Any], frame: Frame, height: int) -> Any:
    return charts.layered(layers).properties(width=frame.width - 78, height=height)


# ---------------------------------------------------------------------------- calibration error


def error_domain(found: Sequence[Point]) -> tuple[float, float]:
    """Return the range of errors: what is known as well as on a usual day, and the last confidence sequence."""
    most = _FAR * median(_width(point.own) for point in found)
    spans = [span for p in found for span in (p.own, p.sequence) if _width(span) <= most < math.inf]
    last = [*found[-1].sequence, found[-1].running.error]
    ends = [end for end in (*(end for span in spans for end in span), *last) if math.isfinite(end)]
    if found[-1].sequence[1] == math.inf:
        ends += [-1.0, 1.0]
    low, high = charts.domain_of(ends, zero=True)
    return max(low, -1.0), high


def _width(span: tuple[float, float]) -> float:
    """Return the width of an interval of the error, relative to predicted / observed."""
    low, high = span
    return math.log((1 + high) / (1 + low)) if low > -1 else math.inf


def error_chart(found: Sequence[Point], domain: tuple[float, float], alarm: str | None, frame: Frame) -> Any:
    """Return the error of each day with its interval, and of all days with their confidence sequence."""
    x = _time_axis(found, frame)
    y = AxisSpec(domain, alt.Axis(title="calibration error", labelExpr=charts.SIGNED_PERCENT, tickCount=6))
    low, high = domain
    size = high - low

    def near(value: float) -> float:
        return min(max(value, low - size), high + size)  # bands and bars are cut off at the edge of the chart

    bands: Rows = []
    days: Rows = []
    for p in found:
        text = f"since the fit, up to {p.name}: {error_text(p.running.error, *p.sequence)} ({span_words(*p.sequence)})"
        error = p.running.error if low <= p.running.error <= high else None
        ends = {"low": near(p.sequence[0]), "high": near(p.sequence[1])}
        bands.append({"time": p.time, "value": error, **ends, "text": text})
        own = p.day.sums.error
        marker = "triangle-up" if own > high else "triangle-down" if own < low else charts.style_of(DAILY).marker
        ends = {"low": near(p.own[0]), "high": near(p.own[1])}
        text = f"{p.name}: {error_text(own, *p.own)} ({span_words(*p.own)})"
        shown = None if own != own else min(max(own, low), high)
        days.append({"time": p.time, "value": shown, **ends, "marker": marker, "text": text})
    many, ink = len(found) > 120, charts.style_of(DAILY).color
    bars = charts.chart(days).mark_rule(color=ink, strokeWidth=1, opacity=0.13 if many else 0.5, clip=True)
    layers = [
        bars.encode(x=x.x("time:Q"), y=y.y("low:Q"), y2=alt.Y2("high:Q")),
        *_dots([row for row in days if row["value"] is not None], x, y, 8 if many else 14 if len(found) > 40 else 34),
        _band(bands, x, y, charts.style_of(RUNNING), 0.3 if many else 0.16),
        charts.chart([{"zero": 0}]).mark_rule(color=charts.light("ink"), strokeWidth=1.2).encode(y=y.y("zero:Q")),
        *_alarm(found, alarm, x, y),
    ]
    known = [row for row in bands if row["value"] is not None]
    return _sized([*layers, *(_line(known, x, y, charts.style_of(RUNNING)) if known else ())], frame, frame.height)


def _dots(rows: Rows, x: AxisSpec, y: AxisSpec, size: int) -> list[Any]:
    """Return the errors of single days; triangles at the edge stand for errors beyond it."""
    if not rows:
        return []
    markers = sorted({row["marker"] for row in rows})
    shape = alt.Shape("marker:N", scale=alt.Scale(domain=markers, range=markers), legend=None)
    dots = charts.chart(rows).mark_point(filled=True, size=size, opacity=1, color=charts.style_of(DAILY).color)
    return [dots.encode(x=x.x("time:Q"), y=y.y("value:Q"), shape=shape, description=alt.Description("text:N"))]


def _alarm(found: Sequence[Point], alarm: str | None, x: AxisSpec, y: AxisSpec) -> list[Any]:
    """Return a vertical line at the day of the alarm with its name, on the side that has more room."""
    if alarm is None:
        return []
    time = next(point.time for point in found if point.log_e >= math.log(ALARM))
    right, color = time > sum(x.domain) / 2, charts.light("s0")
    row = charts.chart([{"time": time, "top": y.domain[1], "label": f"alarm, {alarm}"}]).encode(x=x.x("time:Q"))
    text = row.mark_text(
        align="right" if right else "left", dx=-6 if right else 6, dy=8, baseline="middle", color=color
    )
    rule = row.mark_rule(color=color, strokeWidth=1.2, strokeDash=[4, 3])
    return [rule, text.encode(y=y.y("top:Q"), text=alt.Text("label:N"))]


# ---------------------------------------------------------------------------- evidence and scores


def evidence_chart(found: Sequence[Point], frame: Frame) -> Any:
    """Return the e-value after each day on a log scale, with the lines of "watch" and of the alarm."""
    x = _time_axis(found, frame)
    rows: Rows = [
        {"time": p.time, "value": p.log_e / math.log(10), "text": f"{p.name}: e-value {e_value_text(p.log_e)}"}
        for p in found
    ]
    values = [row["value"] for row in rows]
    low, high = min(*values, -1.0), max(*values, 2.0)
    step = max(1, round((high - low) / 5))
    ticks = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    labels = "".join(f"datum.value == {tick} ? '{power_of_ten(tick)}' : " for tick in ticks) + "''"
    room = 0.05 * (high - low)
    y = AxisSpec((low - room, high + room), alt.Axis(title="e-value", values=ticks, labelExpr=labels))
    layers: list[Any] = []
    lines = [(ALARM, "alarm", "s0"), (_WATCH, "watch", "muted")]
    for value, name, color in lines if high - low < 6 else lines[:1]:  # else they are too close to each other
        row = charts.chart([{"at": math.log10(value), "label": f"{number(value)}: {name}"}]).encode(y=y.y("at:Q"))
        layers.append(row.mark_rule(color=charts.light(color), strokeWidth=1.2, strokeDash=[4, 3]))
        text = row.mark_text(align="left", baseline="bottom", dy=-3, color=charts.light(color))
        layers.append(text.encode(x=alt.value(4), text=alt.Text("label:N")))
    return _sized([*layers, *_line(rows, x, y, charts.style_of(RUNNING))], frame, frame.height - 60)


def score_chart(found: Sequence[Point], frame: Frame) -> Any:
    """Return the mean of the scores of each day, with one standard deviation on either side."""
    x, style = _time_axis(found, frame), charts.style_of(SCORES)
    rows: Rows = []
    for p in found:
        mean, sd = p.day.score_mean, p.day.score_sd
        text = f"{p.name}: mean {number(mean)}, standard deviation {number(sd)}"
        rows.append({"time": p.time, "value": mean, "low": mean - sd, "high": mean + sd, "text": text})
    domain = charts.domain_of([row[end] for row in rows for end in ("low", "high")], zero=False)
    y = AxisSpec(domain, alt.Axis(title="score (logit)", labelExpr=charts.SIGNED, tickCount=5))
    return _sized([_band(rows, x, y, style, 0.14), *_line(rows, x, y, style)], frame, frame.height - 60)
