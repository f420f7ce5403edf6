"""Figures: plain rows of `data` in, an Altair chart out. Nothing is computed here but where things go."""

from __future__ import annotations

import altair as alt

from .data import Rows
from .marks import (
    SIGNED,
    SIGNED_PERCENT,
    Along,
    Figure,
    chart,
    colored,
    dashed,
    finish,
    label_room,
    lines,
    reach,
    rows_of_points,
    shaped,
    shares_axis,
)
from .style import FLOOR, INK, RULE, Frame, color, shape
from .words import number, percent, share, short


def _kept(selection: str | None) -> str:
    return "share kept, α" if selection is None else f"share kept ({selection})"


def calibration_error(rows: Rows, frame: Frame, *, selection: str | None = None) -> Figure:
    """Calibration error against the share kept, a line and a band per method; of one share, a point per method."""
    rows = [
        {**r, "text": f"{r['name']}, {share(r['alpha'])}: {percent(r['value'])} "
                      f"({percent(r['low'])} to {percent(r['high'])})"}
        for r in rows
    ]  # fmt: skip
    if len({row["alpha"] for row in rows}) == 1:
        return finish(rows_of_points(rows, "calibration error", frame, zero=True), frame)
    axis = alt.Axis(title="calibration error", labelExpr=SIGNED_PERCENT, tickCount=6)
    up = Along(reach([v for row in rows for v in (row["low"], row["high"])], zero=True), axis)
    across = shares_axis(rows, _kept(selection))
    zero = chart([{"zero": 0}]).mark_rule(color=INK[0], strokeWidth=1.2).encode(y=up.y("zero:Q"))
    band = chart(rows).mark_area(opacity=0.14).encode(
        x=across.x("alpha:Q"), y=up.y("low:Q"), y2="high:Q", color=colored(rows)
    )  # fmt: skip
    width = frame.width - 78 - (label_room([row["name"] for row in rows], frame) if frame.wide else 0)
    layers = lines(rows, across, up, (width, frame.height), frame, named=frame.wide)
    return finish(alt.layer(band, zero, *layers).properties(width=width, height=frame.height), frame)


def reliability(rows: Rows, frame: Frame) -> Figure:
    """Observed rate against mean prediction of each bin, a panel per method, all on the same axes."""
    rows = [
        {**r, "text": f"{r['name']}: predicted {number(r['predicted'])}, observed {number(r['observed'])} "
                      f"({number(r['low'])} to {number(r['high'])})"}
        for r in rows
    ]  # fmt: skip
    ends = [v for row in rows for v in (row["predicted"], row["low"], row["high"])]
    domain = reach(ends, zero=min(ends) < 0.25 * max(ends))
    series = sorted({row["series"] for row in rows})
    columns = {1: 1, 2: 2, 4: 2}.get(len(series), 3) if frame.wide else min(len(series), 2)
    side = min((frame.width - 40 - 52 * columns) // columns + 24, 270)
    panels = []
    for i, one in enumerate(series):
        own = [row for row in rows if row["series"] == one]
        ticks = 4 if side >= 160 else 3
        across = Along(domain, alt.Axis(tickCount=ticks, title="predicted"))
        up = Along(domain, alt.Axis(tickCount=ticks, title="observed" if i % columns == 0 else None))
        corners = [{"predicted": end, "observed": end} for end in domain]
        diagonal = chart(corners).mark_line(color=RULE[0], strokeWidth=1.2, strokeDash=[4, 3])
        bars = chart(own).mark_rule(color=color(one), strokeWidth=1.5)
        points = chart(own).mark_point(filled=True, size=40, opacity=1, color=color(one), shape=shape(one))
        layers = (
            diagonal.encode(x=across.x("predicted:Q"), y=up.y("observed:Q")),
            bars.encode(x=across.x("predicted:Q"), y=up.y("low:Q"), y2="high:Q"),
            points.encode(x=across.x("predicted:Q"), y=up.y("observed:Q"), description="text:N"),
        )
        title = alt.TitleParams(short(own[0]["name"], max(side // 10, 10)), color=color(one))
        panels.append(alt.layer(*layers).properties(width=side, height=side, title=title))
    return finish(alt.concat(*panels, columns=columns, spacing=22), frame)


def binned_errors(ece: Rows, mce: Rows, frame: Frame, *, selection: str | None = None) -> Figure:
    """ECE and MCE against the share kept with their noise floor beneath, a panel each."""
    panels = []
    one = len({row["alpha"] for row in ece}) == 1
    for name, given in (("ECE", ece), ("MCE", mce)):
        rows = [
            {**r, "text": f"{r['name']}, {share(r['alpha'])}: {name} {number(r['value'])}, floor {number(r['floor'])}"}
            for r in given
        ]
        if one:
            panels.append(rows_of_points(rows, f"{name}; tick: floor", frame, floor=True))
            continue
        tops = [max(row["value"], row["floor"]) for row in rows]
        up = Along(reach(tops, zero=True, margin=0.1), alt.Axis(tickCount=5, title=None))
        across = shares_axis(rows, _kept(selection))
        room = label_room([row["name"] for row in rows], frame) if frame.wide else 0
        width, height = ((frame.width - 124 - room) // 2, 230) if frame.wide else (frame.width - 62, 190)
        floor = chart(_floors(rows)).mark_area(color=FLOOR[0], opacity=0.7)
        layers = lines(rows, across, up, (width, height), frame, named=frame.wide and name == "MCE")
        floors = floor.encode(x=across.x("alpha:Q"), y=up.y("floor:Q"))
        panels.append(alt.layer(floors, *layers).properties(width=width, height=height, title=name))
    if frame.wide and not one:
        return finish(alt.hconcat(*panels, spacing=70, bounds="flush"), frame)
    return finish(alt.vconcat(*panels, spacing=24), frame)


def _floors(rows: Rows) -> Rows:
    """Floors differ little between methods; the figure shows their mean, the table each."""
    at = {a: [row["floor"] for row in rows if row["alpha"] == a] for a in sorted({row["alpha"] for row in rows})}
    return [{"alpha": a, "floor": sum(floors) / len(floors)} for a, floors in at.items()]


def _scores_axis(rows: Rows, scale: str, frame: Frame) -> Along:
    axis = alt.Axis(grid=False, title=f"score ({scale})", labelExpr=SIGNED, tickCount=8 if frame.wide else 5)
    return Along((min(row["left"] for row in rows), max(row["right"] for row in rows)), axis)


def score_histogram(rows: Rows, frame: Frame, *, scale: str = "logit") -> Figure:
    """The scores' histogram with the normal of the same mean and sd."""
    rows = [
        {**r, "text": f"{number(r['left'])} to {number(r['right'])}: {percent(r['share'], 2, sign=False)} of scores"}
        for r in rows
    ]
    across = _scores_axis(rows, scale, frame)
    up = Along((0.0, 1.05 * max(max(row["density"], row["normal"]) for row in rows)), None)
    bars = chart(rows).mark_bar(color=color(1), opacity=0.45, binSpacing=0.7)
    normal = chart(rows).mark_line(color=INK[0], strokeWidth=1.8)
    layers = (
        bars.encode(x=across.x("left:Q"), x2="right:Q", y=up.y("density:Q"), y2=alt.datum(0), description="text:N"),
        normal.encode(x=across.x("middle:Q"), y=up.y("normal:Q")),
    )
    return finish(alt.layer(*layers).properties(width=frame.width - 30, height=frame.height - 60), frame)


def lambda_points(rows: Rows, frame: Frame) -> Figure:
    """λ of each method with its interval."""
    rows = [{**r, "text": f"{r['name']}: λ = {number(r['value'])}"} for r in rows]
    return finish(rows_of_points(rows, "λ, 95% interval", frame, line=1.0), frame)


def lambda_groups(rows: Rows, whole: float | None, frame: Frame, *, series: int = 1) -> Figure:
    """λ of each group, from the lowest up, and the whole's as a line."""
    rows = [{**r, "series": series, "text": f"{r['name']}: λ = {number(r['value'])}, {r['rows']:,} rows"} for r in rows]
    title = "λ of the group" + (", 95% interval" if any(row["low"] is not None for row in rows) else "")
    drawn = rows_of_points(rows, title, frame, line=whole, step=18, most=26 if frame.wide else 16)
    return finish(drawn, frame)


def drift(rows: Rows, frame: Frame) -> Figure:
    """Densities of the score distributions that a fit and its use have met, and their means on the axis."""
    points = [{**b, "series": row["series"]} for row in rows for b in row["bins"]]
    means = [
        {"series": r["series"], "mean": r["mean"], "zero": 0.0,
         "text": f"{r['name']}: mean {number(r['mean'])}, sd {number(r['sd'])}"}
        for r in rows
    ]  # fmt: skip
    across = _scores_axis(points, rows[0]["scale"], frame)
    up = Along((0.0, 1.05 * max(point["density"] for point in points)), None)
    curves = chart(points).mark_line(strokeWidth=2).encode(
        x=across.x("middle:Q"), y=up.y("density:Q"), color=colored(points), strokeDash=dashed(points)
    )  # fmt: skip
    marks = chart(means).mark_point(filled=True, size=80, opacity=1).encode(
        x=across.x("mean:Q"), y=up.y("zero:Q"), color=colored(points), shape=shaped(points), description="text:N"
    )  # fmt: skip
    return finish(alt.layer(curves, marks).properties(width=frame.width - 30, height=frame.height - 60), frame)


__all__ = [
    "Figure", "binned_errors", "calibration_error", "drift", "lambda_groups", "lambda_points", "reliability",
    "score_histogram",
]  # fmt: skip
