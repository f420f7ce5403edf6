"""Sections about the scores and the fits: distribution, λ, drift, and how the results were made."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import altair as alt

from ..debias.records import DataRecord, FitRecord, ScoreSummary
from . import charts
from .charts import AxisSpec, Chart, Frame, Rows
from .page import Facts, Figure, Section, Table
from .prose import Z95, fixed, interval, number, percent, share

if TYPE_CHECKING:
    from . import Method, Report

#: Largest number of groups in a chart.
MAX_GROUPS = 40
_TINY, _HUGE = 1e-100, 1e100  # squares and their inverses are finite in between


def _drawable(summary: ScoreSummary | None) -> ScoreSummary | None:
    """Return the summary unless its numbers are too large or too small to draw."""
    if summary is None:
        return None
    positive = [summary.weight, max(summary.weights), summary.sd or 1.0]
    positive += [high - low for low, high in pairwise(summary.edges)]
    numbers = [summary.mean, summary.sd, summary.weight, *summary.edges, *summary.weights]
    return summary if min(positive) >= _TINY and all(abs(one) <= _HUGE for one in numbers) else None


def _evaluated(report: Report) -> ScoreSummary | None:
    """Return the evaluated scores; rows selected per request are maxima, whose distribution is another."""
    return None if report.selection else _drawable(report.served)


def _data(method: Method, role: str) -> ScoreSummary | None:
    data: DataRecord | None = None if method.record is None else getattr(method.record, role)
    return None if data is None else _drawable(data.scores)


def _histogram(summary: ScoreSummary) -> Rows:
    """Return the density of each bin, and the normal density with the same mean and standard deviation."""
    normal = NormalDist(summary.mean, summary.sd) if summary.sd > 0 else None
    rows = []
    for (left, right), weight in zip(pairwise(summary.edges), summary.weights, strict=True):
        middle, part = (left + right) / 2, weight / summary.weight
        rows.append(
            {"left": left, "right": right, "middle": middle, "share": part, "density": part / (right - left),
             "normal": 0.0 if normal is None else normal.pdf(middle),
             "text": f"{number(left)} to {number(right)}: {percent(part, 2, sign=False)} of scores"}
        )  # fmt: skip
    return rows


def _score_axes(rows: Rows, scale: str, frame: Frame) -> tuple[AxisSpec, AxisSpec]:
    axis = alt.Axis(grid=False, title=f"score ({scale})", labelExpr=charts.SIGNED, tickCount=8 if frame.wide else 5)
    x = AxisSpec((min(row["left"] for row in rows), max(row["right"] for row in rows)), axis)
    return x, AxisSpec((0.0, 1.05 * max(max(row["density"], row.get("normal", 0.0)) for row in rows)), None)


# ---------------------------------------------------------------------------- distribution of the scores


def distribution(report: Report) -> Section | None:
    """Histogram of the evaluated scores, or else of the first pool, with a normal density."""
    found = [("the evaluated log", _evaluated(report))]
    found += [(f"the pool of {method.name}", _data(method, "pool")) for method in report.methods]
    name, summary = next(((name, one) for name, one in found if one is not None), ("", None))
    if summary is None:
        return None
    shapes = [_has_free_shape(method.record) for method in report.methods[1:]]
    free = bool(shapes) and all(shapes)
    smallest = min(row.alpha for row in report.methods[0].evaluation.rows)
    prose = normality_words(summary, None if report.selection or free else smallest)
    if free:
        prose += " The maps on this page do not assume a normal distribution."
    caption = (
        f"Scores of {name}, {summary.rows:,} rows. Line: the normal distribution with the same mean "
        f"({number(summary.mean)}) and standard deviation ({number(summary.sd)})."
    )
    rows = _histogram(summary)
    draw = partial(_distribution_chart, rows, summary.scale)
    table = Table(
        "histogram of the scores",
        ["score", "share", "density", "normal density"],
        [
            [f"{number(r['left'])} to {number(r['right'])}", percent(r["share"], 2, sign=False), number(r["density"]),
             number(r["normal"])]
            for r in rows
        ],
        folded=True,
    )  # fmt: skip
    figure = Figure("scores", draw, f"Histogram of scores. {prose}", caption)
    return Section("distribution", "Are the scores normally distributed?", (prose,), (figure, table))


def _has_free_shape(record: FitRecord | None) -> bool:
    return record is not None and (record.shape == "free" or record.line_probability is not None)


def normality_words(summary: ScoreSummary, smallest: float | None) -> str:
    """Describe the distance from a normal distribution, and what it means for the smallest selected share."""
    if summary.distance is None:
        return "There are too few distinct scores to judge their distribution."
    p = summary.p_value
    test = "" if p is None else f"; Lilliefors p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
    text = f"The Kolmogorov–Smirnov distance from a normal distribution is {summary.distance:.4f}{test}."
    if summary.skewness is not None and summary.excess_kurtosis is not None:
        text += f" Skewness {fixed(summary.skewness, 2)}, excess kurtosis {fixed(summary.excess_kurtosis, 2)}."
    if smallest is None:
        return text
    ratio, least = summary.distance / smallest, f"the smallest selected share, {share(smallest)}"
    if ratio < 0.25:
        return f"{text} This is small compared with {least}: a single λ for all scores is appropriate."
    if ratio < 1:
        return f"{text} This is not small compared with {least}: rely on the measured errors above, not on the theory."
    return (
        f"{text} This is larger than {least}: the selected scores are not close to normally distributed, and a map "
        "with a single λ may correct too much. Rely on the measured errors above."
    )


def _distribution_chart(rows: Rows, scale: str, frame: Frame) -> Chart:
    x, y = _score_axes(rows, scale, frame)
    bars = charts.chart(rows).mark_bar(color=charts.style_of(1).color, opacity=0.45, binSpacing=0.7)
    normal = charts.chart(rows).mark_line(color=charts.light("ink"), strokeWidth=1.8)
    layers = (
        bars.encode(x=x.x("left:Q"), x2="right:Q", y=y.y("density:Q"), y2=alt.datum(0), description="text:N"),
        normal.encode(x=x.x("middle:Q"), y=y.y("normal:Q")),
    )
    return charts.styled(alt.layer(*layers).properties(width=frame.width - 30, height=frame.height - 60), frame)


# ---------------------------------------------------------------------------- λ


def shrinkage(report: Report) -> Section | None:
    """λ of each method with its interval, and λ of each group."""
    rows: Rows = []
    for series, method in enumerate(report.methods):
        record = method.record
        if record is not None and record.lambda_ is not None and abs(record.lambda_) <= _HUGE:
            error = record.standard_error
            error = error if error is not None and 0 <= error <= _HUGE else None
            low, high = (None, None) if error is None else interval(record.lambda_, error)
            text = f"{method.name}: λ = {fixed(record.lambda_, 3)}"
            text += "" if error is None else f" ± {fixed(Z95 * error, 3)}"
            rows.append(
                {"series": series, "name": method.name, "value": record.lambda_, "low": low, "high": high, "text": text}
            )
    blocks: list[Figure | Table] = []
    if rows:
        caption = (
            "A map multiplies the distance of a score from the center by λ: 1 (dashed) changes nothing, 0.8 reduces it "
            "by a fifth. The interval covers the sampling of pool rows only; training again changes λ by more."
        )
        label = "λ by method. " + "; ".join(row["text"] for row in rows) + "."
        bounds = [["" if r[end] is None else fixed(r[end], 4) for end in ("low", "high")] for r in rows]
        blocks = [
            Figure("lambda", partial(_dots, rows, "λ, 95% interval", line=1.0), label, caption),
            Table(
                "λ with its 95% interval",
                ["method", "λ", "low", "high"],
                [[r["name"], fixed(r["value"], 4), *ends] for r, ends in zip(rows, bounds, strict=True)],
                folded=True,
            ),
        ]
    for series, method in enumerate(report.methods):
        blocks += _groups(series, method)
    if not blocks:
        return None
    prose = ("; ".join(row["text"] for row in rows) + ".",) if rows else ()
    return Section("lambda", "λ, the shrinkage factor", prose, tuple(blocks))


def _dots(rows: Rows, title: str, frame: Frame, **options: Any) -> Chart:
    return charts.styled(charts.dot_plot(rows, title, frame, **options), frame)


def _groups(series: int, method: Method) -> list[Figure | Table]:
    """Return chart and table of λ of the largest groups, by ascending λ."""
    groups = {} if method.record is None else method.record.groups
    rows: Rows = [
        {"series": series, "name": name, "rows": group.rows, "value": group.lambda_, "low": None, "high": None,
         "text": f"{name}: λ = {number(group.lambda_)}, {group.rows:,} rows"}
        for name, group in groups.items() if abs(group.lambda_) <= _HUGE
    ]  # fmt: skip
    if not rows or method.record is None:
        return []
    total = len(rows)
    rows = sorted(sorted(rows, key=lambda row: -row["rows"])[:MAX_GROUPS], key=lambda row: row["value"])
    shown = f"the {len(rows)} largest of {total} groups" if len(rows) < total else f"all {total} groups"
    overall = method.record.lambda_ if abs(method.record.lambda_ or 0.0) <= _HUGE else None
    label = f"{method.name}: λ of {shown}, from {number(rows[0]['value'])} to {number(rows[-1]['value'])}."
    caption = f"{method.name}: λ by {method.record.group or 'group'}, {shown}."
    if overall is not None:
        caption += " Dashed: λ of all rows."
    body = [[r["name"], f"{r['rows']:,}", fixed(r["value"], 4)] for r in rows]
    return [
        Figure(
            f"lambda-groups-{series}", partial(_dots, rows, "λ of the group", line=overall, step=18), label, caption
        ),
        Table(f"{method.name}: λ by group, {shown}", ["group", "rows", "λ"], body, folded=True),
    ]


# ---------------------------------------------------------------------------- drift

# Series of the chart: colours that the first methods do not have.
_DRIFT_SERIES = (6, 4, 5, 3, 2, 1, 0)
_CONCLUSIONS = {
    "labelled": (
        "Labelled rows and pool are alike, so a calibrator fitted on the labelled rows applies to the pool.",
        "Labelled rows and pool differ, so a calibrator fitted on the labelled rows alone extrapolates. Rely on the "
        "measured errors above.",
    ),
    "evaluated": (
        "The map was fitted on scores like those evaluated here.",
        "The map was fitted on other scores than those evaluated here. Fit it on a pool like this log.",
    ),
    "pool": (
        "The maps were fitted on similar pools.",
        "The maps were fitted on different pools. Prefer the map whose pool is like this log.",
    ),
}


def drift(report: Report) -> Section | None:
    """Compare the distributions of pool, labelled and evaluated scores that are on the same scale."""
    found: list[tuple[str, str, ScoreSummary]] = []
    for role in ("pool", "labelled"):
        for method in report.methods:
            summary = _data(method, role)
            if summary is not None and all(summary != known for _, _, known in found):
                taken = any(known == role for known, _, _ in found)
                found.append((role, f"{role} scores of {method.name}" if taken else f"{role} scores", summary))
    evaluated = _evaluated(report)
    if evaluated is not None:
        found.append(("evaluated", "evaluated scores", evaluated))
    if not found:
        return None
    first = found[0][2]
    found = [one for one in found if one[2].scale == first.scale]  # logits and values are not comparable
    if len(found) < 2:
        return None
    sd = first.sd or 1.0
    rows: Rows = [
        {"series": _DRIFT_SERIES[i % len(_DRIFT_SERIES)], "role": role, "name": name, "rows": one.rows,
         "mean": one.mean, "sd": one.sd, "shift": (one.mean - first.mean) / sd, "ratio": one.sd / sd,
         "bins": _histogram(one), "text": f"{name}: mean {number(one.mean)}, sd {number(one.sd)}"}
        for i, (role, name, one) in enumerate(found)
    ]  # fmt: skip
    prose = tuple(_drift_sentence(row, rows[0]["name"]) for row in rows[1:])
    caption = (
        f"Densities of the scores; a marker on the axis is a mean. Shift and ratio compare with the {found[0][1]}."
    )
    legend = tuple((row["series"], row["name"]) for row in rows)
    draw = partial(_drift_chart, rows, first.scale)
    table = Table(
        "Distributions of scores",
        ["scores", "rows", "mean", "sd", "shift in sd", "sd ratio"],
        [
            [r["name"], f"{r['rows']:,}", fixed(r["mean"], 3), fixed(r["sd"], 3), fixed(r["shift"], 2, sign=True),
             fixed(r["ratio"], 2)]
            for r in rows
        ],
    )  # fmt: skip
    figure = Figure("drift", draw, " ".join(prose), caption, legend, always=True)
    return Section("drift", "Drift between pool, labelled and evaluated scores", prose, (figure, table))


def _drift_sentence(row: dict[str, Any], reference: str) -> str:
    size, ratio = abs(row["shift"]), max(row["ratio"], 1 / max(row["ratio"], 1e-9))
    large = size >= 0.3 or ratio >= 1.25
    verdict = "no relevant drift" if size < 0.1 and ratio < 1.1 else "a large drift" if large else "a small drift"
    way = "above" if row["shift"] > 0 else "below"
    mean = f"{fixed(size, 2)} sd {way} that of" if size >= 0.005 else "equal to that of"
    return (
        f"The mean of the {row['name']} is {mean} the {reference}, and the sd is {fixed(row['ratio'], 2)} times as "
        f"large: {verdict}. {_CONCLUSIONS[row['role']][large]}"
    )


def _drift_chart(rows: Rows, scale: str, frame: Frame) -> Chart:
    points = [{**one, "series": row["series"], "normal": 0.0} for row in rows for one in row["bins"]]
    means = [{"series": r["series"], "mean": r["mean"], "zero": 0.0, "text": r["text"]} for r in rows]
    x, y = _score_axes(points, scale, frame)
    curves = charts.chart(points).mark_line(strokeWidth=2).encode(
        x=x.x("middle:Q"), y=y.y("density:Q"), color=charts.colored(points), strokeDash=charts.dashed(points)
    )  # fmt: skip
    markers = charts.chart(means).mark_point(filled=True, size=80, opacity=1).encode(
        x=x.x("mean:Q"), y=y.y("zero:Q"), color=charts.colored(points), shape=charts.marked(points),
        description="text:N",
    )  # fmt: skip
    size = {"width": frame.width - 30, "height": frame.height - 60}
    return charts.styled(alt.layer(curves, markers).properties(**size), frame)


# ---------------------------------------------------------------------------- provenance


def provenance(report: Report) -> Section:
    """Inputs, options and commands of the evaluation and of each fit."""
    first = report.methods[0].evaluation
    entries: list[tuple[str, tuple[str, ...], str]] = [
        (
            str(key),
            (value,) if isinstance(value, str) else tuple(value),
            "code" if str(key).lower() == "command" else "",
        )
        for key, value in report.facts.items()
    ]
    entries.append(
        ("Evaluated", (f"{number(first.total)} rows; {first.n_bins} {first.strategy} bins for ECE and MCE",), "")
    )
    for method in report.methods:
        if method.record is not None:
            entries.append((method.name, tuple(_record_lines(method.record)), ""))
            if method.record.command:
                entries.append((f"{method.name}: command", (method.record.command,), "code"))
    return Section("provenance", "How these results were made", (), (Facts(tuple(entries)),))


def _record_lines(record: FitRecord) -> list[str]:
    """Describe a fit, one line per subject."""
    options = [f"method {record.method}", f"scale {record.scale}", f"link {record.link}", f"replicas {record.replicas}"]
    options += [f"calibrator {record.calibrator}"] if record.calibrator else []
    options += ["curvature"] if record.curvature else []
    options += ["free shape"] if record.shape == "free" else []
    lines = [", ".join(options)]
    if record.negative_rate is not None:
        lines.append(f"negative-sampling rate {number(record.negative_rate)}")
    if record.group is not None:
        count = f" ({len(record.groups):,} groups)" if record.groups else ""
        lines.append(f"a map for each {record.group}{count}")
    if record.reason:
        lines.append(f"reason: {record.reason}")
    if record.line_probability is not None:
        lines.append(f"probability that the labels follow a straight line: {record.line_probability:.2f}")
    if record.straight_loss is not None:
        lines.append(
            f"straight line; it differs from the fitted curve by at most {percent(record.straight_loss, sign=False)}"
        )
    if record.remaining_error:
        parts = [f"top {share(one.alpha)}: {percent(one.low)} to {percent(one.high)}" for one in record.remaining_error]
        lines.append(f"{share(record.remaining_error[0].level)} interval for the remaining error: {', '.join(parts)}")
    for role, data in (("pool", record.pool), ("labelled", record.labelled)):
        if data is not None:
            lines.append(
                ", ".join([f"{role}: {data.rows:,} rows", *data.sources, f"columns {', '.join(data.columns)}"])
            )
    return [*lines, f"fitted with uncurse {record.version}"]
