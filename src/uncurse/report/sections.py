"""The sections of the page: each a figure, what it shows in words, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import data, figures, words
from .drawing import inline
from .given import finite
from .markup import details, figure, legend, radios, section, table, text
from .style import NARROW, WIDE, Frame
from .words import decimals, number, percent, share

if TYPE_CHECKING:
    from . import Report

_NUMBERS = "Every number of this figure"


def _drawn(draw: Callable[[Frame], figures.Figure], prefix: str, label: str) -> str:
    """The figure for a desk and for a phone; the style sheet shows the one that fits."""
    pairs = (("wide", WIDE), ("narrow", NARROW))
    return "".join(inline(draw(frame), prefix=f"{prefix}-{kind}-", label=label, kind=kind) for kind, frame in pairs)


def _names(methods: Sequence[data.Method]) -> list[tuple[int, str]]:
    return [(i, method.name) for i, method in enumerate(methods)]


def _numbers(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    return details(_NUMBERS, table(heads, rows, caption=caption))


def _bounds(row: Mapping[str, Any]) -> tuple[str, str]:
    return ("", "") if row["low"] is None else (f"{row['low']:.4f}", f"{row['high']:.4f}")


def _chosen(report: Report, place: int) -> str:
    rows = report.methods[0].evaluation.rows
    if len(rows) == 1 and report.selection:
        return report.selection
    return "all" if rows[place].alpha >= 1 else f"top {share(rows[place].alpha)}"


def _plus_minus(row: Mapping[str, Any]) -> str:
    width = row["high"] - row["low"]
    return f"{percent(row['value'], decimals(width))}\n± {percent(width / 2, decimals(width), sign=False)}"


def errors(report: Report) -> str:
    """Calibration error against the share kept, and in a table of methods by shares."""
    rows, places = data.errors(report.methods), data.order(report.methods)
    caption = (
        "Predicted over observed, less one: above zero the selected scores promise more than comes. "
        f"{'Bands' if len(places) > 1 else 'Bars'} are 95% intervals of each point."
    )
    if len(report.methods) > 2:
        caption += " Of several maps, the one that looks best here is a little luckier than it is good."
    at = {(row["series"], row["place"]): row for row in rows}
    overview = table(
        [
            "kept",
            *(_chosen(report, i) if len(places) == 1 else _chosen(report, i).removeprefix("top ") for i in places),
        ],
        [[m.name, *(_plus_minus(at[s, i]) for i in places)] for s, m in enumerate(report.methods)],
        caption="Calibration error of the kept, ± half of its 95% interval",
    )
    body = [
        [r["name"], share(r["alpha"]), number(r["selected"]), number(r["predicted"]), number(r["observed"]),
         percent(r["value"], 2), percent(r["low"], 2), percent(r["high"], 2)]
        for r in rows
    ]  # fmt: skip
    heads = ["method", "share", "selected", "Σ predicted", "Σ observed", "error", "low", "high"]
    shown = data.defined(rows)
    drawn = shown and _drawn(
        lambda frame: figures.calibration_error(shown, frame, selection=report.selection),
        "error",
        words.found_errors(shown),
    )
    return section(
        "error",
        "Calibration error by share kept" if len(places) > 1 else "Calibration error",
        figure(drawn or "", text(caption), legend(_names(report.methods)) if len(places) > 1 else ""),
        overview,
        _numbers(heads, body, "Calibration error, by method and share"),
    )


def reliability(report: Report) -> str:
    """Observed rate against prediction, for the selection that the reader chooses."""
    options, drawn, tables = [], [], []
    heads = ["method", "rows", "predicted", "observed", "low", "high"]
    for i, place in enumerate(data.order(report.methods)):
        rows, name = data.reliability(report.methods, place), _chosen(report, place)
        label = f"Observed rate against mean prediction in bins of the selection: {name}. A panel per method."

        def draw(frame: Frame, rows: data.Rows = rows) -> figures.Figure:
            return figures.reliability(rows, frame)

        body = [[r["name"], *(number(r[k]) for k in ("weight", "predicted", "observed", "low", "high"))] for r in rows]
        options.append((f"alpha-{i}", name.removeprefix("top ")))
        # On paper there are no controls to say which selection is shown.
        printed = f'<p class="printed">Kept: {text(name)}</p>'
        drawn.append(f'<div class="choice choice-{i}">{printed}{_drawn(draw, f"reliability-{i}", label)}</div>')
        tables.append(f'<div class="choice choice-{i}">{_numbers(heads, body, f"Bins of the selection: {name}")}</div>')
    bins = report.methods[0].evaluation.n_bins
    even = "equally full" if report.methods[0].evaluation.strategy == "quantile" else "equally wide"
    note = (
        f"Points are {bins} {even} bins of the selected rows, bars 95% intervals of the observed rate. Below the "
        "dashed line, less came than was predicted."
    )
    control = radios("alpha", "Share kept", options) if len(options) > 1 else ""
    shown = figure("".join(drawn), text(note))
    return section("reliability", "Reliability on the selected set", control, shown, *tables)


def binned(report: Report) -> str:
    """ECE and MCE with their floors."""
    ece, mce = data.binned(report.methods, "ece"), data.binned(report.methods, "mce")
    note = (
        "ECE is the mean, MCE the largest gap between prediction and rate over bins. Grey is the noise floor: what "
        "exactly true predictions would show with this many rows (mean over methods). Only what stands above it counts."
    )
    body = [
        [a["name"], share(a["alpha"]), number(a["value"]), number(a["floor"]), number(b["value"]), number(b["floor"])]
        for a, b in zip(ece, mce, strict=True)
    ]
    found = words.found_floors(ece)
    drawn = _drawn(lambda f: figures.binned_errors(ece, mce, f, selection=report.selection), "binned", found)
    several = len(report.methods[0].evaluation.rows) > 1
    return section(
        "binned",
        "ECE and MCE against their noise floor",
        f"<p>{text(found)}</p>",
        figure(drawn, text(note), legend(_names(report.methods)) if several else ""),
        _numbers(["method", "share", "ECE", "floor", "MCE", "floor"], body, "ECE and MCE with their floors"),
    )


def gaussian(report: Report) -> str:
    """The scores' histogram with the Gaussian and the test."""
    judged = data.scores_judged(report.methods, report.served)
    if judged is None:
        return ""
    name, summary = judged
    rows, scale = data.histogram(summary), summary.get("scale", "logit")
    smallest = min(row.alpha for row in report.methods[0].evaluation.rows)
    straight = data.has_straight(report.methods)
    verdict = words.found_gaussian(summary, None if report.selection or not straight else smallest)
    if not straight:
        verdict += " The maps on this page do not assume that they are."
    note = (
        f"Scores of {name}, {summary['rows']:,} rows. The line is the Gaussian of the same mean "
        f"({number(summary['mean'])}) and standard deviation ({number(summary['sd'])})."
    )
    body = [
        [f"{number(r['left'])} to {number(r['right'])}", percent(r["share"], 2, sign=False), number(r["density"]),
         number(r["normal"])]
        for r in rows
    ]  # fmt: skip
    label = f"Histogram of scores. {verdict}"
    drawn = _drawn(lambda frame: figures.score_histogram(rows, frame, scale=scale), "histogram", label)
    return section(
        "gaussian",
        "Are the scores about Gaussian?",
        f"<p>{text(verdict)}</p>",
        figure(drawn, text(note)),
        _numbers(["score", "share", "density", "Gaussian"], body, "Histogram of the scores"),
    )


def shrinkage(report: Report) -> str:
    """λ with its error, per method and per group."""
    rows = data.lambdas(report.methods)
    if not rows:
        return ""
    said = "; ".join(
        f"{r['name']}: λ = {r['value']:.3f}"
        + ("" if r["standard_error"] is None else f" ± {data.Z95 * r['standard_error']:.3f}")
        for r in rows
    )
    note = (
        "λ multiplies a score's distance from the centre: 1 (dashed) leaves scores alone, 0.8 takes a fifth off. In "
        "tandem with a calibrator it is what is left to do after it. The interval is over pool rows only; another "
        "training run moves λ more."
    )
    body = [[r["name"], f"{r['value']:.4f}", *_bounds(r)] for r in rows]
    drawn = _drawn(lambda frame: figures.lambda_points(rows, frame), "lambda", f"λ by method. {said}.")
    return section(
        "lambda",
        "λ, the shrinkage",
        f"<p>{text(said)}.</p>",
        figure(drawn, text(note)),
        _numbers(["method", "λ", "low", "high"], body, "λ with its 95% interval"),
        *(_groups(series, method) for series, method in enumerate(report.methods)),
    )


def _groups(series: int, method: data.Method) -> str:
    rows, total = data.groups(method)
    if not rows:
        return ""
    whole = finite((method.about or {}).get("lambda"))
    shown = f"the {len(rows)} largest of {total} groups" if len(rows) < total else f"all {total} groups"
    label = f"λ of {shown}, from {number(rows[0]['value'])} to {number(rows[-1]['value'])}."
    drawn = _drawn(lambda f: figures.lambda_groups(rows, whole, f, series=series), f"groups-{series}", label)
    body = [[r["name"], f"{r['rows']:,}", f"{r['value']:.4f}", *_bounds(r)] for r in rows]
    caption = f"{method.name}: λ by group, {shown}" + ("." if whole is None else "; the dashed line is the whole's.")
    more = _numbers(["group", "rows", "λ", "low", "high"], body, f"λ by group, {shown}")
    return figure(drawn, text(caption)) + more


def drift(report: Report) -> str:
    """The score distributions that a fit and its use have met."""
    rows = data.drift(report.methods, report.served)
    if not rows:
        return ""
    found = words.found_drift(rows)
    note = f"Densities; a mark on the axis is a mean. Shift and ratio are against the {rows[0]['name']}."
    drawn = _drawn(lambda frame: figures.drift(rows, frame), "drift", " ".join(found))
    body = [
        [r["name"], f"{r['rows']:,}", f"{r['mean']:.3f}", f"{r['sd']:.3f}", f"{r['shift']:+.2f}", f"{r['spread']:.2f}"]
        for r in rows
    ]
    body = [[row[0], *(cell.replace("-", "−") for cell in row[1:])] for row in body]
    return section(
        "drift",
        "Drift between labelled, pool and evaluated scores",
        *(f"<p>{text(line)}</p>" for line in found),
        figure(drawn, text(note), legend([(r["series"], r["name"]) for r in rows], always=True)),
        table(["scores", "rows", "mean", "sd", "shift, in sd", "sd ratio"], body, caption="Score distributions"),
    )


__all__ = ["binned", "drift", "errors", "gaussian", "reliability", "shrinkage"]
