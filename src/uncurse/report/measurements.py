"""Sections about the evaluation: calibration error, outcomes per million, reliability, and ECE and MCE."""

from __future__ import annotations

import math
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from ..metrics import Estimate, SelectionMetrics
from . import figures
from .figures import OBSERVED
from .page import Choice, Figure, Section, Table
from .prose import (
    by_share,
    decimals_for,
    error_words,
    fixed,
    has_value,
    interval,
    number,
    percent,
    selection_name,
    share,
    the_selection,
)

if TYPE_CHECKING:
    from . import Report

Rows = list[dict[str, Any]]
_MILLION = 1e6


def _each(report: Report) -> list[tuple[dict[str, Any], SelectionMetrics]]:
    """Return series, method and share of each result, with its metrics."""
    return [
        ({"series": series, "name": m.name, "place": i, "alpha": m.evaluation.rows[i].alpha}, m.evaluation.rows[i])
        for series, m in enumerate(report.methods)
        for i in by_share(report)
    ]


def _legend(report: Report) -> tuple[tuple[int, str], ...]:
    """Return the series of a line chart; a dot plot, of one share, names them itself."""
    several = len(report.methods[0].evaluation.rows) > 1
    return tuple((i, method.name) for i, method in enumerate(report.methods)) if several else ()


def _with_interval(value: Estimate) -> dict[str, float]:
    low, high = interval(value, value.standard_error)
    return {"value": float(value), "low": low, "high": high}


# ---------------------------------------------------------------------------- calibration error


def calibration_error(report: Report) -> Section:
    """Calibration error of each method by selected share."""
    rows = []
    for at, m in _each(report):
        text, _, bounds = error_words(m.calibration_error)
        described = f"{at['name']}, {share(at['alpha'])}: {text} ({bounds})"
        rows.append({**at, **_with_interval(m.calibration_error), "text": described})
    places, several = by_share(report), len(report.methods[0].evaluation.rows) > 1
    caption = (
        "Sum of predictions over number of positive outcomes, minus 1. Above zero, the selected scores predict more "
        f"than is observed. {'Bands' if several else 'Bars'} are 95% intervals."
    )
    if len(report.methods) > 2:
        caption += " With several maps, the smallest error is partly due to chance."
    drawn = [row for row in rows if row["value"] == row["value"]]  # NaN without a positive label
    drawings: tuple[Figure, ...] = ()
    if drawn:
        label = "Calibration error by selected share. " + _ranges(drawn)
        draw = partial(
            figures.by_share_figure, {"calibration error": drawn}, labels=figures.signed_percent, zero=True,
            selection=report.selection,
        )  # fmt: skip
        drawings = (Figure("calibration-error", draw, label, caption, _legend(report)),)
    cells = {(row["series"], row["place"]): _plus_minus(row) for row in rows}
    overview = [[m.name, *(cells[series, i] for i in places)] for series, m in enumerate(report.methods)]
    every = [(at["name"], m.cells()) for at, m in _each(report)]
    tables = (
        Table(
            "Calibration error with the half-width of its 95% interval",
            ["method", *(selection_name(report, i) for i in places)],
            overview,
        ),
        Table(
            "all metrics by method and share",
            ["method", *every[0][1]],
            [[name, *row.values()] for name, row in every],
            folded=True,
        ),
    )
    title = "Calibration error by selected share" if several else "Calibration error"
    return Section("error", title, (), (*drawings, *tables))


def _plus_minus(row: dict[str, Any]) -> str:
    width = row["high"] - row["low"]
    d = decimals_for(width)
    return f"{percent(row['value'], d)}\n± {percent(width / 2, d, sign=False)}"


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
    sentences = tuple(_outcome_sentence(report, row) for row in rows if row["place"] == 0)
    caption = "Predicted outcomes of each method, and observed outcomes with their 95% interval."
    label = "Predicted and observed outcomes per million selected rows. " + " ".join(sentences)
    legend = ((OBSERVED, "observed"), *_legend(report)) if _legend(report) else ()
    panels = {"outcomes per million": _outcome_lines(rows)}
    draw = partial(figures.by_share_figure, panels, selection=report.selection)
    blocks: list[Figure | Table] = [Figure("outcomes", draw, label, caption, legend)]
    blocks.append(_table(report, "Outcomes per million selected rows", rows))
    if has_value(report):
        title = f"Value per million selected rows: {report.value_name}"
        blocks.append(_table(report, title, _per_million(report, value=True)))
    return Section("outcomes", "Predicted and observed outcomes", sentences, tuple(blocks))


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
        _, sign, _ = error_words(sums.calibration_error)
        rows.append(
            {**at, "predicted": scale * sums.predicted, "observed": scale * sums.observed,
             "low": scale * max(low, 0.0), "high": scale * high, "consistent": sign == 0}
        )  # fmt: skip
    return rows


def _table(report: Report, title: str, rows: Rows) -> Table:
    header = ["method", "selected", "predicted", "observed", "95% interval", "predicted − observed"]
    body = []
    for row in sorted(rows, key=lambda row: row["alpha"]):
        predicted, observed, low, high = (number(round(row[key])) for key in ("predicted", "observed", "low", "high"))
        gap = round(row["predicted"] - row["observed"])
        signed = ("+" if gap > 0 else "") + number(gap)
        name = selection_name(report, row["place"])
        body.append([row["name"], name, predicted, observed, f"{low} to {high}", signed])
    return Table(title, header, body)


def _outcome_sentence(report: Report, row: dict[str, Any]) -> str:
    """Compare prediction and outcome of one method in words."""
    predicted, observed, low, high = (round(row[key]) for key in ("predicted", "observed", "low", "high"))
    gap = abs(row["predicted"] - row["observed"])
    part = gap / (row["observed"] or math.inf)
    size = f" ({percent(part, decimals_for(part), sign=False)})" if part else ""
    way = "high" if row["predicted"] > row["observed"] else "low"
    verdict = f"The prediction is too {way} by {number(abs(predicted - observed))}{size}."
    if row["consistent"]:
        verdict = "The difference is consistent with zero."
    if row["series"] == 0:
        return (
            f"On {the_selection(report, row['place'])}, the scores predict {number(predicted)} outcomes per million "
            f"selected rows; {number(observed)} were observed (95% interval {number(low)} to {number(high)}). {verdict}"
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
    for place, name in zip(by_share(report), file_names(report), strict=True):
        rows = _bins(report, place)
        title = selection_name(report, place)
        caption = f"Bins of {the_selection(report, place)}."
        label = f"Observed rate against mean prediction in bins, one panel per method. {caption}"
        figure = Figure(f"reliability-{name}", partial(figures.reliability_figure, rows), label, caption)
        header = ["method", "rows", "predicted", "observed", "low", "high"]
        body = [[r["name"], *(number(r[key]) for key in ("weight", *header[2:]))] for r in rows]
        options.append((title, (figure, Table(f"bins of the selection: {title}", header, body, folded=True))))
    first = report.methods[0].evaluation
    kind = "equal size" if first.strategy == "quantile" else "equal width"
    prose = (
        f"Points are {first.n_bins} bins of {kind} of the selected rows. Bars are 95% intervals of the observed rate. "
        "Below the dashed line, fewer outcomes were observed than predicted."
    )
    choice = Choice("Selected", "alpha", tuple(options))
    return Section("reliability", "Reliability of the selected rows", (prose,), (choice,))


def file_names(report: Report) -> list[str]:
    """Return a unique name for each share, in ascending order: its percentage."""
    rows = report.methods[0].evaluation.rows
    names = [f"{100 * rows[i].alpha:.12g}".replace(".", "_") for i in by_share(report)]
    again = [names[:i].count(name) for i, name in enumerate(names)]
    return [f"{name}-{count + 1}" if count else name for name, count in zip(names, again, strict=True)]


def _bins(report: Report, place: int) -> Rows:
    rows = []
    for series, method in enumerate(report.methods):
        for one in method.evaluation.rows[place].bins:
            low, high = interval(one.observed, one.standard_error)
            low, high = max(low, 0.0), min(high, 1.0)
            text = f"{method.name}: predicted {number(one.predicted)}, observed {number(one.observed)}"
            rows.append(
                {"series": series, "name": method.name, "weight": one.weight, "predicted": one.predicted,
                 "observed": one.observed, "low": low, "high": high,
                 "text": f"{text} ({number(low)} to {number(high)})"}
            )  # fmt: skip
    return rows


# ---------------------------------------------------------------------------- ECE and MCE


def binned_errors(report: Report) -> Section:
    """ECE and MCE with their noise floor."""
    ece, mce = ([_binned_row(metric, at, m) for at, m in _each(report)] for metric in ("ECE", "MCE"))
    smallest = min(row["alpha"] for row in ece)
    parts = [f"{r['name']} {number(r['value'])}, {_floor_words(r)}" for r in ece if r["alpha"] == smallest]
    prose = "ECE on the smallest selection: " + "; ".join(parts) + "."
    caption = (
        "ECE is the average and MCE the largest difference between prediction and observed rate over the bins, with "
        "their 95% intervals. Noise floor: the value that perfect predictions would have with this many rows (average "
        "over methods)."
    )
    legend = ((OBSERVED, "noise floor"), *_legend(report)) if _legend(report) else ()
    panels = {"ECE": _with_floor("ECE", ece), "MCE": _with_floor("MCE", mce)}
    draw = partial(figures.by_share_figure, panels, selection=report.selection)
    figure = Figure("ece-mce", draw, prose, caption, legend)
    return Section("binned", "ECE and MCE compared with their noise floor", (prose,), (figure,))


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


def _with_floor(metric: str, rows: Rows) -> Rows:
    """Return the rows after those of the noise floor, an average over methods."""
    floors = []
    for alpha in sorted({row["alpha"] for row in rows}):
        value = mean(row["floor"] for row in rows if row["alpha"] == alpha)
        text = f"noise floor of {metric}, {share(alpha)}: {number(value)}"
        floor = {"series": OBSERVED, "name": "noise floor", "alpha": alpha, "value": value, "text": text}
        floors.append({**floor, "low": None, "high": None})
    return floors + rows
