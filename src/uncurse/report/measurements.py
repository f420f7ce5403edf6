"""Sections about the evaluation: calibration error, outcomes per million, reliability, and ECE and MCE."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import altair as alt

from ..metrics import Estimate, SelectionMetrics
from . import charts
from .charts import OBSERVED, AxisSpec, Chart, Frame, Rows
from .page import Choice, Figure, Section, Table
from .prose import (
    by_share,
    decimals_for,
    fixed,
    interval,
    number,
    percent,
    selection_name,
    share,
    short,
    the_selection,
)

if TYPE_CHECKING:
    from . import Report

_MILLION = 1e6


def _each(report: Report) -> list[tuple[dict[str, Any], SelectionMetrics]]:
    """Return series, method and share of each result, with its metrics."""
    return [
        ({"series": series, "name": m.name, "place": i, "alpha": m.evaluation.rows[i].alpha}, m.evaluation.rows[i])
        for series, m in enumerate(report.methods)
        for i in by_share(report.methods)
    ]


def _series(report: Report) -> tuple[tuple[int, str], ...]:
    return tuple((i, method.name) for i, method in enumerate(report.methods))


def _with_interval(value: Estimate) -> dict[str, float]:
    low, high = interval(value, value.standard_error)
    return {"value": float(value), "low": low, "high": high}


# ---------------------------------------------------------------------------- calibration error


def calibration_error(report: Report) -> Section:
    """Calibration error of each method by selected share."""
    rows = [
        {**at, "selected": m.selected, "predicted": m.predicted, "observed": m.observed,
         **_with_interval(m.calibration_error), "text": f"{at['name']}, {share(at['alpha'])}: {_error_text(m)}"}
        for at, m in _each(report)
    ]  # fmt: skip
    places, several = by_share(report.methods), len(report.methods[0].evaluation.rows) > 1
    caption = (
        "Sum of predictions over number of positive outcomes, minus 1. Above zero, the selected scores predict more "
        f"than is observed. {'Bands' if several else 'Bars'} are 95% intervals."
    )
    if len(report.methods) > 2:
        caption += " With several maps, the smallest error is partly due to chance."
    drawn = [row for row in rows if row["value"] == row["value"]]  # NaN without a positive label
    figures: tuple[Figure, ...] = ()
    if drawn:
        label = "Calibration error by selected share. " + _ranges(drawn)
        draw = partial(
            charts.by_share_chart, drawn, "calibration error", labels=charts.SIGNED_PERCENT, zero=True,
            selection=report.selection, band={"opacity": 0.14},
        )  # fmt: skip
        figures = (Figure("calibration-error", draw, label, caption, _series(report) if several else ()),)
    cells = {(row["series"], row["place"]): _plus_minus(row) for row in rows}
    names = [selection_name(report.methods, i, report.selection) for i in places]
    overview = Table(
        "Calibration error with the half-width of its 95% interval",
        ["method", *names],
        [[m.name, *(cells[s, i] for i in places)] for s, m in enumerate(report.methods)],
    )
    numbers = Table(
        "calibration error by method and share",
        ["method", "share", "selected", "predicted", "observed", "error", "low", "high"],
        [
            [r["name"], share(r["alpha"]), *(number(r[k]) for k in ("selected", "predicted", "observed")),
             *(percent(r[k], 2) for k in ("value", "low", "high"))]
            for r in rows
        ],
        folded=True,
    )  # fmt: skip
    title = "Calibration error by selected share" if several else "Calibration error"
    return Section("error", title, (), (*figures, overview, numbers))


def _plus_minus(row: dict[str, Any]) -> str:
    width = row["high"] - row["low"]
    d = decimals_for(width)
    return f"{percent(row['value'], d)}\n± {percent(width / 2, d, sign=False)}"


def _error_text(metrics: SelectionMetrics) -> str:
    low, high = interval(metrics.calibration_error, metrics.calibration_error.standard_error)
    return f"{percent(metrics.calibration_error)} ({percent(low)} to {percent(high)})"


def _ranges(rows: Rows) -> str:
    parts = []
    for series in sorted({row["series"] for row in rows}):
        own = [row for row in rows if row["series"] == series]
        low, high = (percent(f(row["value"] for row in own)) for f in (min, max))
        parts.append(f"{own[0]['name']}: {low}" if low == high else f"{own[0]['name']}: {low} to {high}")
    return "; ".join(parts) + "."


# ---------------------------------------------------------------------------- outcomes per million


def outcomes(report: Report) -> Section:
    """Predicted and observed outcomes per million selected rows."""
    rows = _per_million(report)
    sentences = [_outcome_sentence(report, row) for row in rows if row["place"] == 0]
    caption = "Predicted outcomes of each method, and observed outcomes with their 95% interval."
    served = {row["place"]: row["observed"] for row in rows if row["series"] == 0}
    label = "Predicted and observed outcomes per million selected rows. " + " ".join(sentences)
    legend = ((OBSERVED, "observed"), *_series(report)) if len(served) > 1 else ()
    draw = partial(
        charts.by_share_chart, _outcome_lines(rows), "outcomes per million", labels=charts.COUNT, zero=False,
        selection=report.selection, band={"opacity": 0.7, "color": charts.light("floor")},
    )  # fmt: skip
    figure = Figure("outcomes", draw, label, caption, legend)
    blocks: list[Figure | Table] = [figure, _table(report, "Outcomes per million selected rows", rows)]
    if all(method.value is not None for method in report.methods):
        title = f"Value per million selected rows: {report.value_name}"
        blocks.append(_table(report, title, _per_million(report, value=True)))
    return Section("outcomes", "Predicted and observed outcomes", tuple(sentences), tuple(blocks))


def _per_million(report: Report, *, value: bool = False) -> Rows:
    """Return predicted and observed outcomes, or their value, with the 95% interval of the observed sum."""
    rows = []
    for at, m in _each(report):
        evaluations = [method.value if value else method.evaluation for method in report.methods]
        served, sums = (evaluations[i].rows[at["place"]] for i in (0, at["series"]))  # type: ignore[union-attr]
        scale = _MILLION / m.selected
        # Given the predictions, the outcomes of different bins are independent. All methods share the outcomes.
        error = math.sqrt(sum((b.weight * b.standard_error) ** 2 for b in served.bins))
        low, high = interval(sums.observed, error)
        below, above = interval(sums.calibration_error, sums.calibration_error.standard_error)
        rows.append(
            {**at, "predicted": scale * sums.predicted, "observed": scale * sums.observed,
             "low": scale * max(low, 0.0), "high": scale * high, "consistent": below <= 0 <= above}
        )  # fmt: skip
    return rows


def _table(report: Report, title: str, rows: Rows) -> Table:
    return Table(
        title,
        ["method", "selected", "predicted", "observed", "95% interval", "predicted − observed"],
        [
            [r["name"], selection_name(report.methods, r["place"], report.selection), number(round(r["predicted"])),
             number(round(r["observed"])), f"{number(round(r['low']))} to {number(round(r['high']))}",
             _signed(r["predicted"] - r["observed"])]
            for r in sorted(rows, key=lambda row: row["alpha"])
        ],
    )  # fmt: skip


def _signed(value: float) -> str:
    return ("+" if round(value) > 0 else "") + number(round(value))


def _outcome_sentence(report: Report, row: dict[str, Any]) -> str:
    """Compare prediction and outcome of one method in words."""
    gap = abs(row["predicted"] - row["observed"])
    inside = row["consistent"]
    # Three digits, or as many as the difference needs.
    step = 10 ** math.floor(math.log10(max(min(row["predicted"] / 100, math.inf if inside else gap / 10), 1.0)))
    predicted, observed, low, high = (
        step * round(row[key] / step) if row["predicted"] >= 1000 else row[key]
        for key in ("predicted", "observed", "low", "high")
    )
    way = "high" if row["predicted"] > row["observed"] else "low"
    part = gap / (row["observed"] or math.inf)
    size = f" ({percent(part, decimals_for(part), sign=False)})" if part else ""
    verdict = f"The prediction is too {way} by {number(abs(predicted - observed))}{size}."
    if inside:
        verdict = "The difference is consistent with zero."
    if row["series"] == 0:
        where = the_selection(report.methods, row["place"], report.selection)
        return (
            f"On {where}, the scores predict {number(predicted)} outcomes per million selected rows; "
            f"{number(observed)} were observed (95% interval {number(low)} to {number(high)}). {verdict}"
        )
    return f"After {row['name']}: {number(predicted)} predicted, {number(observed)} observed. {verdict}"


def _outcome_lines(rows: Rows) -> Rows:
    """Return the observed outcomes of the first method with their interval, and the predictions of each."""
    observed = [
        {**r, "series": OBSERVED, "name": "observed", "value": r["observed"],
         "text": f"observed, {share(r['alpha'])}: {number(r['observed'])} per million "
                 f"({number(r['low'])} to {number(r['high'])})"}
        for r in rows if r["series"] == 0
    ]  # fmt: skip
    return observed + [
        {**r, "value": r["predicted"], "low": None, "high": None,
         "text": f"{r['name']}, {share(r['alpha'])}: {number(r['predicted'])} per million predicted"}
        for r in rows
    ]  # fmt: skip


# ---------------------------------------------------------------------------- reliability


def reliability(report: Report) -> Section:
    """Observed rate against mean prediction in bins, for the selection that the reader chooses."""
    options = []
    for place, name in zip(by_share(report.methods), file_names(report), strict=True):
        rows = _bins(report, place)
        title = selection_name(report.methods, place, report.selection)
        caption = f"Bins of {the_selection(report.methods, place, report.selection)}."
        label = f"Observed rate against mean prediction in bins, one panel per method. {caption}"
        table = Table(
            f"bins of the selection: {title}",
            ["method", "rows", "predicted", "observed", "low", "high"],
            [[r["name"], *(number(r[k]) for k in ("weight", "predicted", "observed", "low", "high"))] for r in rows],
            folded=True,
        )
        options.append((title, (Figure(f"reliability-{name}", partial(_panels, rows), label, caption), table)))
    first = report.methods[0].evaluation
    kind = "equal size" if first.strategy == "quantile" else "equal width"
    prose = (
        f"Points are {first.n_bins} bins of {kind} of the selected rows. Bars are 95% intervals of the observed rate. "
        "Below the dashed line, fewer outcomes were observed than predicted."
    )
    return Section(
        "reliability", "Reliability of the selected rows", (prose,), (Choice("Selected", "alpha", tuple(options)),)
    )


def file_names(report: Report) -> list[str]:
    """Return a unique name for each share, in ascending order: the percentage with as few digits as possible."""
    shares = [100 * report.methods[0].evaluation.rows[i].alpha for i in by_share(report.methods)]
    names: list[str] = []
    for i, one in enumerate(shares):
        same = [other for other in shares if other != one]
        digits = next((d for d in range(4, 18) if all(f"{one:.{d}g}" != f"{o:.{d}g}" for o in same)), 17)
        name = f"{one:.{digits}g}".replace(".", "_")
        again = shares[:i].count(one)
        names.append(f"{name}-{again + 1}" if again else name)
    return names


def _bins(report: Report, place: int) -> Rows:
    rows = []
    for series, method in enumerate(report.methods):
        for one in method.evaluation.rows[place].bins:
            low, high = interval(one.observed, one.standard_error)
            rows.append(
                {"series": series, "name": method.name, "weight": one.weight, "predicted": one.predicted,
                 "observed": one.observed, "low": max(low, 0.0), "high": min(high, 1.0),
                 "text": f"{method.name}: predicted {number(one.predicted)}, observed {number(one.observed)} "
                         f"({number(max(low, 0.0))} to {number(min(high, 1.0))})"}
            )  # fmt: skip
    return rows


def _panels(rows: Rows, frame: Frame) -> Chart:
    ends = [v for row in rows for v in (row["predicted"], row["low"], row["high"])]
    domain = charts.domain_of(ends, zero=min(ends) < 0.25 * max(ends))
    series = sorted({row["series"] for row in rows})
    columns = {1: 1, 2: 2, 4: 2}.get(len(series), 3) if frame.wide else min(len(series), 2)
    side = min((frame.width - 40 - 52 * columns) // columns + 24, 270)
    panels = []
    for i, one in enumerate(series):
        own, style = [row for row in rows if row["series"] == one], charts.style_of(one)
        ticks = 4 if side >= 160 else 3
        x = AxisSpec(domain, alt.Axis(tickCount=ticks, title="predicted"))
        y = AxisSpec(domain, alt.Axis(tickCount=ticks, title="observed" if i % columns == 0 else None))
        corners = charts.chart([{"predicted": end, "observed": end} for end in domain])
        diagonal = corners.mark_line(color=charts.light("rule"), strokeWidth=1.2, strokeDash=[4, 3])
        bars = charts.chart(own).mark_rule(color=style.color, strokeWidth=1.5)
        points = charts.chart(own).mark_point(filled=True, size=40, opacity=1, color=style.color, shape=style.marker)
        layers = (
            diagonal.encode(x=x.x("predicted:Q"), y=y.y("observed:Q")),
            bars.encode(x=x.x("predicted:Q"), y=y.y("low:Q"), y2="high:Q"),
            points.encode(x=x.x("predicted:Q"), y=y.y("observed:Q"), description="text:N"),
        )
        title = alt.TitleParams(short(own[0]["name"], max(side // 10, 10)), color=style.color)
        panels.append(alt.layer(*layers).properties(width=side, height=side, title=title))
    return charts.styled(alt.concat(*panels, columns=columns, spacing=22), frame)


# ---------------------------------------------------------------------------- ECE and MCE


def binned_errors(report: Report) -> Section:
    """ECE and MCE with their noise floor."""
    by_metric = {metric: [_binned_row(metric, at, m) for at, m in _each(report)] for metric in ("ECE", "MCE")}
    ece = by_metric["ECE"]
    smallest = min(row["alpha"] for row in ece)
    parts = [f"{r['name']} {number(r['value'])}, {_floor_words(r)}" for r in ece if r["alpha"] == smallest]
    prose = "ECE on the smallest selection: " + "; ".join(parts) + "."
    several = len({row["alpha"] for row in ece}) > 1
    caption = (
        "ECE is the average and MCE the largest difference between prediction and observed rate over the bins. "
        f"Grey{'' if several else ' ticks'}: the noise floor, the value that perfect predictions would have with this "
        f"many rows{' (average over methods)' if several else ''}."
    )
    figure = Figure(
        "ece-mce",
        partial(_binned_chart, by_metric, report.selection),
        prose,
        caption,
        _series(report) if several else (),
    )
    table = Table(
        "ECE and MCE with their noise floors",
        ["method", "share", "ECE", "floor", "MCE", "floor"],
        [
            [a["name"], share(a["alpha"]), *(number(r[k]) for r in (a, b) for k in ("value", "floor"))]
            for a, b in zip(ece, by_metric["MCE"], strict=True)
        ],
        folded=True,
    )
    return Section("binned", "ECE and MCE compared with their noise floor", (prose,), (figure, table))


def _binned_row(metric: str, at: dict[str, Any], metrics: SelectionMetrics) -> dict[str, Any]:
    value: Estimate = getattr(metrics, metric.lower())
    row = {**at, **_with_interval(value), "floor": float(value.floor or 0.0)}
    text = f"{row['name']}, {share(row['alpha'])}: {metric} {number(value)}, floor {number(row['floor'])}"
    return {**row, "low": max(row["low"], 0.0), "text": text}


def _floor_words(row: dict[str, Any]) -> str:
    value, floor = row["value"], row["floor"]
    if floor <= 0:  # predictions of exactly 0 or 1 have no noise: any gap is an error
        return "equal to its floor (0)" if value <= 0 else "above its floor (0)"
    times = value / floor
    # With ten equal bins, the ECE of perfect predictions is 1 ± 0.24 floors: 1.5 is two standard deviations above.
    if times < 1.5:
        return f"consistent with its noise floor ({number(floor)})"
    many = "over 1,000" if times > 1000 else fixed(times, 0 if times >= 9.5 else 1)
    return f"{many} times its noise floor"


def _binned_chart(by_metric: dict[str, Rows], selection: str | None, frame: Frame) -> Chart:
    panels = []
    for name, rows in by_metric.items():
        alphas = sorted({row["alpha"] for row in rows})
        if len(alphas) == 1:
            panels.append(charts.dot_plot(rows, f"{name}; tick: floor", frame, floor=True))
            continue
        tops = [max(row["value"], row["floor"]) for row in rows]
        y = AxisSpec(charts.domain_of(tops, zero=True, margin=0.1), alt.Axis(tickCount=5, title=None))
        x = charts.share_axis(rows, selection)
        room = charts.label_room([row["name"] for row in rows], frame) if frame.wide else 0
        size = ((frame.width - 124 - room) // 2, 230) if frame.wide else (frame.width - 62, 190)
        floors = {a: [row["floor"] for row in rows if row["alpha"] == a] for a in alphas}
        area = charts.chart([{"alpha": a, "floor": sum(own) / len(own)} for a, own in floors.items()])
        area = area.mark_area(color=charts.light("floor"), opacity=0.7).encode(x=x.x("alpha:Q"), y=y.y("floor:Q"))
        named = frame.wide and name == "MCE"
        panel = charts.line_chart(rows, x, y, frame, under=(area,), size=size, named=named)
        panels.append(panel.properties(title=name))
    if frame.wide and len(alphas) > 1:
        return charts.styled(alt.hconcat(*panels, spacing=70, bounds="flush"), frame)
    return charts.styled(alt.vconcat(*panels, spacing=24), frame)
