"""Sections about the scores and the fits: distribution, λ, drift, and how the results were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from ..debias.records import DataRecord, FitRecord, ScoreSummary
from . import figures
from .figures import OBSERVED
from .page import Facts, Figure, Section, Table
from .prose import Z95, fit_words, fixed, interval, number, percent, share

if TYPE_CHECKING:
    from . import Method, Report

#: Largest number of groups in a chart.
MAX_GROUPS = 40
#: Title of the section with inputs, options and commands.
PROVENANCE = "How these results were made"


def _drawable(summary: ScoreSummary | None) -> ScoreSummary | None:
    """Return the summary unless its numbers cannot be drawn: their squares and inverses must be finite."""
    if summary is None:
        return None
    sizes = [summary.weight, summary.sd or 1.0, *(high - low for low, high in pairwise(summary.edges))]
    largest = max(abs(one) for one in (*sizes, summary.mean, *summary.edges, *summary.weights))
    return summary if min(*sizes, max(summary.weights)) >= 1e-100 and largest <= 1e100 else None


def _evaluated(report: Report) -> ScoreSummary | None:
    """Return the evaluated scores; rows selected per request are maxima, whose distribution is another."""
    return None if report.selection else _drawable(report.served)


def _data(method: Method, role: str) -> ScoreSummary | None:
    data: DataRecord | None = None if method.record is None else getattr(method.record, role)
    return None if data is None else _drawable(data.scores)


def _histogram(summary: ScoreSummary) -> list[dict[str, Any]]:
    """Return the density of each bin, and the normal density with the same mean and standard deviation."""
    normal = NormalDist(summary.mean, summary.sd) if summary.sd > 0 else None
    rows = []
    for (left, right), weight in zip(pairwise(summary.edges), summary.weights, strict=True):
        middle, part = (left + right) / 2, weight / summary.weight
        rows.append(
            {"left": left, "right": right, "middle": middle, "share": part, "density": part / (right - left),
             "normal": 0.0 if normal is None else normal.pdf(middle)}
        )  # fmt: skip
    return rows


# ---------------------------------------------------------------------------- distribution of the scores


def distribution(report: Report) -> Section | None:
    """Histogram of the evaluated scores, or else of the first pool, with a normal density."""
    found = [("the evaluated log", _evaluated(report))]
    found += [(f"the pool of {method.name}", _data(method, "pool")) for method in report.methods]
    name, summary = next(((name, one) for name, one in found if one is not None), ("", None))
    if summary is None:
        return None
    maps = [method.record for method in report.methods[1:]]
    free = bool(maps) and all(one and (one.shape == "free" or one.line_probability is not None) for one in maps)
    smallest = min(row.alpha for row in report.methods[0].evaluation.rows)
    prose = normality_words(summary, None if report.selection or free else smallest)
    if free:
        prose += " The maps on this page do not assume a normal distribution."
    moments = f"mean {number(summary.mean)}, standard deviation {number(summary.sd)}"
    caption = f"Densities of the scores of {name}, {summary.rows:,} rows ({moments}), and of the normal distribution."
    bins = _histogram(summary)
    normal = [{**one, "density": one["normal"]} for one in bins]
    rows: list[dict[str, Any]] = [
        {"series": series, "name": title, "bins": own, "mean": summary.mean, "text": f"{title}: {moments}"}
        for series, title, own in ((1, "scores", bins), (OBSERVED, "normal distribution", normal))
    ]
    body = [
        [f"{number(one['left'])} to {number(one['right'])}", percent(one["share"], 2, sign=False),
         number(one["density"]), number(one["normal"])]
        for one in bins
    ]  # fmt: skip
    legend = tuple((row["series"], row["name"]) for row in rows)
    draw = partial(figures.density_figure, rows, summary.scale)
    blocks = (
        Figure("scores", draw, f"Densities of scores. {prose}", caption, legend, always=True),
        Table("histogram of the scores", ["score", "share", "density", "normal density"], body, folded=True),
    )
    return Section("distribution", "Are the scores normally distributed?", (prose,), blocks)


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


# ---------------------------------------------------------------------------- λ


def shrinkage(report: Report) -> Section | None:
    """λ of each method with its interval, and λ of each group."""
    rows: list[dict[str, Any]] = []
    for series, method in enumerate(report.methods):
        value = None if method.record is None else method.record.lambda_
        if method.record is None or value is None:
            continue
        error, text = method.record.standard_error, f"{method.name}: λ = {fixed(value, 3)}"
        low, high = (None, None) if error is None else interval(value, error)
        text += "" if error is None else f" ± {fixed(Z95 * error, 3)}"
        rows.append({"series": series, "name": method.name, "value": value, "low": low, "high": high, "text": text})
    blocks: list[Figure | Table] = []
    prose = "; ".join(row["text"] for row in rows) + "."
    if rows:
        caption = (
            "A map multiplies the distance of a score from the center by λ: 1 (dashed) changes nothing, 0.8 reduces it "
            "by a fifth. The interval covers the sampling of pool rows only; training again changes λ by more."
        )
        draw = partial(figures.dots_figure, rows, "λ, 95% interval", line=1.0)
        ends = ("value", "low", "high")
        body = [[r["name"], *("" if r[end] is None else fixed(r[end], 4) for end in ends)] for r in rows]
        blocks = [
            Figure("lambda", draw, f"λ by method. {prose}", caption),
            Table("λ with its 95% interval", ["method", "λ", "low", "high"], body, folded=True),
        ]
    for series, method in enumerate(report.methods):
        if method.record is not None and method.record.groups:
            blocks += _groups(series, method.name, method.record)
    if not blocks:
        return None
    return Section("lambda", "λ, the shrinkage factor", (prose,) if rows else (), tuple(blocks))


def _groups(series: int, name: str, record: FitRecord) -> list[Figure | Table]:
    """Return chart and table of λ of the largest groups, by ascending λ."""
    largest = sorted(record.groups.items(), key=lambda item: -item[1].rows)[:MAX_GROUPS]
    rows: list[dict[str, Any]] = [
        {"series": series, "name": key, "rows": f"{group.rows:,}", "value": group.lambda_, "low": None, "high": None,
         "text": f"{key}: λ = {number(group.lambda_)}, {group.rows:,} rows"}
        for key, group in sorted(largest, key=lambda item: item[1].lambda_)
    ]  # fmt: skip
    total = len(record.groups)
    shown = f"the {len(rows)} largest of {total} groups" if len(rows) < total else f"all {total} groups"
    label = f"{name}: λ of {shown}, from {number(rows[0]['value'])} to {number(rows[-1]['value'])}."
    caption = f"{name}: λ by {record.group or 'group'}, {shown}."
    caption += "" if record.lambda_ is None else " Dashed: λ of all rows."
    draw = partial(figures.dots_figure, rows, "λ of the group", line=record.lambda_, step=18)
    body = [[row["name"], row["rows"], fixed(row["value"], 4)] for row in rows]
    return [
        Figure(f"lambda-groups-{series}", draw, label, caption),
        Table(f"{name}: λ by group, {shown}", ["group", "rows", "λ"], body, folded=True),
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
    "selected": (
        "The served score selected the labelled rows.",
        "The served score selected the labelled rows, so they lie above the pool. The fit takes this into account.",
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
                taken = any(name.startswith(role) for _, name, _ in found)
                selected = role == "labelled" and method.record is not None and method.record.selected_by == "served"
                name = f"{role} scores of {method.name}" if taken else f"{role} scores"
                found.append(("selected" if selected else role, name, summary))
    evaluated = _evaluated(report)
    if evaluated is not None:
        found.append(("evaluated", "evaluated scores", evaluated))
    found = [one for one in found if one[2].scale == found[0][2].scale]  # logits and values are not comparable
    if len(found) < 2:
        return None
    (_, reference, first), sd = found[0], found[0][2].sd or 1.0
    rows: list[dict[str, Any]] = []
    for i, (role, name, one) in enumerate(found):
        shift, ratio = (one.mean - first.mean) / sd, one.sd / sd
        cells = [f"{one.rows:,}", fixed(one.mean, 3), fixed(one.sd, 3), fixed(shift, 2, sign=True), fixed(ratio, 2)]
        rows.append(
            {"series": _DRIFT_SERIES[i % len(_DRIFT_SERIES)], "name": name, "mean": one.mean, "bins": _histogram(one),
             "cells": [name, *cells], "text": f"{name}: mean {number(one.mean)}, sd {number(one.sd)}",
             "sentence": _drift_sentence(name, reference, shift, ratio, _CONCLUSIONS[role])}
        )  # fmt: skip
    prose = tuple(row["sentence"] for row in rows[1:])
    caption = f"Densities of the scores; a marker on the axis is a mean. Shift and ratio compare with the {reference}."
    legend = tuple((row["series"], row["name"]) for row in rows)
    header = ["scores", "rows", "mean", "sd", "shift in sd", "sd ratio"]
    blocks = (
        Figure(
            "drift", partial(figures.density_figure, rows, first.scale), " ".join(prose), caption, legend, always=True
        ),
        Table("Distributions of scores", header, [row["cells"] for row in rows]),
    )
    kinds = [kind for kind in ("pool", "labelled", "evaluated") if any(name.startswith(kind) for _, name, _ in found)]
    title = f"Drift between {', '.join(kinds[:-1])} and {kinds[-1]} scores" if len(kinds) > 1 else "Drift between pools"
    return Section("drift", title, prose, blocks)


def _drift_sentence(name: str, reference: str, shift: float, ratio: float, conclusions: tuple[str, str]) -> str:
    size, factor = abs(shift), max(ratio, 1 / max(ratio, 1e-9))
    large = size >= 0.3 or factor >= 1.25
    verdict = "no relevant drift" if size < 0.1 and factor < 1.1 else "a large drift" if large else "a small drift"
    way = "above" if shift > 0 else "below"
    mean = f"{fixed(size, 2)} sd {way} that of" if size >= 0.005 else "equal to that of"
    return (
        f"The mean of the {name} is {mean} the {reference}, and the sd is {fixed(ratio, 2)} times as large: {verdict}. "
        f"{conclusions[large]}"
    )


# ---------------------------------------------------------------------------- provenance


def provenance(report: Report) -> Section:
    """Inputs, options and commands of the evaluation and of each fit."""
    first = report.methods[0].evaluation
    entries = fact_entries(report.facts)
    bins = f"{number(first.total)} rows; {first.n_bins} {first.strategy} bins for ECE and MCE"
    entries.append(("Evaluated", (bins,), ""))
    for method in report.methods:
        entries += record_entries(method.name, method.record)
    return Section("provenance", PROVENANCE, (), (Facts(tuple(entries)),))


def fact_entries(facts: Mapping[str, str | Sequence[str]]) -> list[tuple[str, tuple[str, ...], str]]:
    """Return facts as entries of `Facts`."""
    entries = []
    for key, value in facts.items():
        lines = (value,) if isinstance(value, str) else tuple(value)
        entries.append((str(key), lines, "code" if str(key).lower() == "command" else ""))
    return entries


def record_entries(name: str, record: FitRecord | None) -> list[tuple[str, tuple[str, ...], str]]:
    """Return how a map was fitted as entries of `Facts`."""
    if record is None:
        return []
    entries = [(name, tuple(_record_lines(record)), "")]
    return [*entries, (f"{name}: command", (record.command,), "code")] if record.command else entries


def _record_lines(record: FitRecord) -> list[str]:
    """Describe a fit, one line per subject."""
    options = [f"{name} {getattr(record, name)}" for name in ("method", "scale", "link", "replicas")]
    options += [f"calibrator {record.calibrator}"] if record.calibrator else []
    options += ["curvature"] if record.curvature else []
    options += ["free shape"] if record.shape == "free" else []
    lines = [", ".join(options)]
    if record.negative_rate is not None:
        lines.append(f"negative-sampling rate {number(record.negative_rate)}")
    if record.group is not None:
        count = f" ({len(record.groups):,} groups)" if record.groups else ""
        lines.append(f"a map for each {record.group}{count}")
    lines += fit_words(record)
    for role, data in (("pool", record.pool), ("labelled", record.labelled)):
        if data is not None:
            lines.append(
                ", ".join([f"{role}: {data.rows:,} rows", *data.sources, f"columns {', '.join(data.columns)}"])
            )
    return [*lines, f"fitted with uncurse {record.version}"]
