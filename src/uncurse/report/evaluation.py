"""`evaluation_page`: calibration of the selected rows, as served and after maps, with the scores and fits behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UncurseError
from ..methods import FitRecord, Fitted, ScoreSummary
from ..metrics import Estimate, Evaluation
from . import figures
from .figures import LIGHT, OBSERVED, REFERENCE, Frame, bin_rows, metric_rows, style_of
from .page import BigNumber, Figure, Headline, Page, Section, Table, provenance
from .prose import error_text, fixed, interval, number, share, short, span_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Chart

_MAX_SEGMENTS = 40  # of a chart


@dataclass(frozen=True)
class Method:
    """Predictions to report on: the scores as served, or after a map.

    Parameters
    ----------
    name : str
        Name on the page.
    evaluation : Evaluation
        Result of `uncurse.evaluate` or `uncurse.metrics.evaluate_log`. All methods have the same shares.
    fitted : Fitted, optional
        The map and how it was fitted, see `uncurse.load`.
    value : Evaluation, optional
        Sums of value instead of counts on the same selections, see ``values`` of `uncurse.metrics.evaluate_log`.

    Examples
    --------
    >>> from uncurse import evaluate
    >>> Method("as served", evaluate([0, 1], [0.2, 0.7], [1.0])).name
    'as served'
    """

    name: str
    evaluation: Evaluation
    fitted: Fitted | None = None
    value: Evaluation | None = None

    @property
    def record(self) -> FitRecord | None:
        """How the map was fitted."""
        return None if self.fitted is None else self.fitted.record


def evaluation_page(
    methods: Sequence[Method],
    served: ScoreSummary | None = None,
    facts: Mapping[str, str | Sequence[str]] | None = None,
    *,
    title: str = "Calibration of the selected predictions",
    selection: str | None = None,
    value_name: str = "value",
) -> Page:
    """Compare methods on the same selected rows.

    Parameters
    ----------
    methods : sequence of Method
        The scores as served first, then maps. The headline is about the first map: choosing the best one by its
        error on these rows would make the reported error too small.
    served : ScoreSummary, optional
        Distribution of the evaluated scores.
    facts : mapping of str to str or sequence of str, optional
        Inputs, versions and the command.
    title : str
        Title of the page.
    selection : str, optional
        Description of the selection if it is not a share of all rows, such as ``"top 1 of each request"``.
    value_name : str, default="value"
        What the values of the methods are, with their unit.

    Returns
    -------
    Page

    Examples
    --------
    >>> from uncurse import evaluate
    >>> y, p = [0, 1, 0, 1, 1, 0], [0.1, 0.9, 0.3, 0.6, 0.8, 0.7]
    >>> print(evaluation_page([Method("as served", evaluate(y, p, [0.5, 1.0]))]).headline)
    On the top 50%, the scores have a calibration error of +20% (95% interval −64% to +104%), consistent with zero.
    """
    if not methods:
        raise UncurseError("a report needs at least one method; pass Method(name, evaluation)")
    first = methods[0].evaluation
    shares = [row.alpha for row in first.rows]
    for method in methods[1:]:
        if [row.alpha for row in method.evaluation.rows] != shares:
            raise UncurseError(
                f"{method.name!r} and {methods[0].name!r} are evaluated on different shares; use the same alphas for "
                "all methods"
            )
    names = ["all rows" if alpha >= 1 else f"top {share(alpha)}" for alpha in shares]
    names = [selection] if selection and len(shares) == 1 else names
    found = (
        _errors(methods, names, selection), _outcomes(methods, names, selection, value_name),
        _reliability(methods, names), _binned_errors(methods, names, selection),
        _scores(methods, served, selection), _segments(methods),
    )  # fmt: skip
    sections = tuple(section for section in found if section is not None)
    made = f"{number(first.total)} rows; {first.n_bins} {first.strategy} bins for ECE and MCE"
    entries = provenance({**(facts or {}), "Evaluated": made}, [(m.name, m.fitted) for m in methods])
    headline = _headline(methods, names, selection, value_name)
    return Page(title, headline, sections, entries, ("evaluation",))


# ---------------------------------------------------------------------------- headline


def _error_words(error: Estimate) -> tuple[str, int, str]:
    """Return an error, its sign (0 if it is not significant) and its 95% interval as text."""
    low, high = interval(error, error.standard_error)
    sign = 0 if low <= 0 <= high else 1 if error > 0 else -1
    return error_text(error, low, high), sign, span_words(low, high)


def _headline(methods: Sequence[Method], names: Sequence[str], selection: str | None, value_name: str) -> Headline:
    """Describe the calibration error of the first share that was given, as served and after the first map.

    Outcomes count by their value if it is known. The best of several maps is not reported: its error on the same rows
    is too optimistic.
    """
    valued = all(method.value is not None for method in methods)
    rows = [(method.value if valued and method.value else method.evaluation).rows for method in methods[:2]]
    place = next((i for i in range(len(rows[0])) if all(own[i].observed > 0 for own in rows)), None)
    if place is None:
        return Headline((("text", "No selection has a positive label, so the calibration error is undefined."),))
    served, *after = [_error_words(own[place].calibration_error) for own in rows]
    weighted = f"weighted by {value_name}, " if valued else ""
    name = methods[0].name
    how = name.removeprefix("as served") if name.startswith("as served, ") else ""  # ", corrected for the rate"
    within = names[place] if names[place].startswith(("all ", "the ")) else f"the {names[place]}"
    within += "" if selection in (None, names[place]) else f" of the selected rows ({selection})"
    start = f"On {within}, {weighted}the scores{how}{',' if how else ''} "
    sentence = [("text", start), *_verdict(served, "95% interval ")]
    if not after:
        return Headline(tuple(sentence), (_big_number(0, "Calibration error", served),))
    first, maps = methods[1].name, len(methods) - 1
    several = f" (first of {maps} maps)" if maps > 1 else ""
    sentence += [("text", " After "), ("name", first), ("text", f"{several}, they "), *_verdict(after[0])]
    numbers = (_big_number(0, f"As served{how}", served), _big_number(1, f"After {first}{several}", after[0]))
    return Headline(tuple(sentence), numbers)


def _verdict(error: tuple[str, int, str], kind: str = "") -> list[tuple[str, str]]:
    text, sign, bounds = error
    aside = ("aside", f" ({kind}{bounds})")
    if sign == 0:
        return [("text", f"have a calibration error of {text}"), aside, ("text", ", consistent with zero.")]
    verb = "over-predict" if sign > 0 else "under-predict"
    return [("text", f"{verb} by {text.lstrip('+−')}"), aside, ("text", ".")]


def _big_number(series: int, name: str, error: tuple[str, int, str]) -> BigNumber:
    return BigNumber(series, name, error[0], f"95% interval {error[2]}")


# ---------------------------------------------------------------------------- calibration error


def _errors(methods: Sequence[Method], names: Sequence[str], selection: str | None) -> Section:
    rows = metric_rows("calibration_error", [(m.name, m.evaluation) for m in methods])
    drawn = [row for row in rows if row["value"] == row["value"]]  # NaN without a positive label
    caption = (
        "Sum of predictions over number of positive outcomes, minus 1, with 95% intervals. Above zero, the selected "
        "scores predict more than is observed."
    )
    caption += " With several maps, the smallest error is partly due to chance." if len(methods) > 2 else ""
    options: Any = {"labels": figures.signed_percent, "zero": True, "selection": selection}
    draw = partial(figures.panels_figure, {"calibration error": drawn}, **options)
    label = "Calibration error of each method by selected share. The table below holds its numbers."
    overview = []
    for method in methods:
        words = [_error_words(row.calibration_error) for row in method.evaluation.rows]
        overview.append([method.name, *(f"{error}\n{bounds}" for error, _, bounds in words)])
    every = [[m.name, *cells] for m in methods for cells in m.evaluation.table()[1:]]
    header = ["method", *methods[0].evaluation.table()[0]]
    blocks: list[Figure | Table] = [Figure("calibration-error", draw, label, caption)] if drawn else []
    blocks.append(Table("Calibration error with its 95% interval", ["method", *names], overview))
    blocks.append(Table("all metrics by method and share, ± standard errors", header, every, folded=True))
    return Section("error", "Calibration error by selected share", (), tuple(blocks))


# ---------------------------------------------------------------------------- outcomes per million


def _outcomes(methods: Sequence[Method], names: Sequence[str], selection: str | None, value_name: str) -> Section:
    rows = _per_million(methods, [m.evaluation for m in methods])
    # All methods have the same outcomes.
    panel = [{**row, "series": OBSERVED, "name": "observed", "value": row["observed"]} for row in rows[: len(names)]]
    panel += [{**row, "value": row["predicted"], "low": None, "high": None} for row in rows]
    draw = partial(figures.panels_figure, {"outcomes per million": panel}, selection=selection)
    caption = "Predicted outcomes of each method, and observed outcomes with their 95% interval."
    title = "Outcomes per million selected rows"
    blocks: list[Figure | Table] = [Figure("outcomes", draw, f"{title}. {caption}", caption)]
    blocks.append(_outcome_table(title, names, rows))
    values = [m.value for m in methods if m.value is not None]
    if len(values) == len(methods):
        title = f"Value per million selected rows: {value_name}"
        blocks.append(_outcome_table(title, names, _per_million(methods, values)))
    return Section("outcomes", "Predicted and observed outcomes", (), tuple(blocks))


def _per_million(methods: Sequence[Method], sums: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Return predicted and observed outcomes, or their value, with the 95% interval of the observed sum."""
    rows = []
    for series, (method, evaluation) in enumerate(zip(methods, sums, strict=True)):
        parts = zip(method.evaluation.rows, evaluation.rows, sums[0].rows, strict=True)
        for place, (counts, own, served) in enumerate(parts):
            # Given the predictions, the outcomes of different bins are independent. All methods share the outcomes.
            error = math.sqrt(sum((b.weight * b.standard_error) ** 2 for b in served.bins))
            low, high = interval(own.observed, error)
            amounts = {"predicted": own.predicted, "observed": own.observed, "low": max(low, 0.0), "high": high}
            scaled = {name: 1e6 * amount / counts.selected for name, amount in amounts.items()}
            rows.append({"series": series, "name": method.name, "place": place, "alpha": counts.alpha, **scaled})
    return rows


def _outcome_table(title: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    header = ["method", "selected", "predicted", "observed", "95% interval", "predicted − observed"]
    body = []
    for row in sorted(rows, key=lambda row: row["place"]):
        predicted, observed, low, high = (round(row[key]) for key in ("predicted", "observed", "low", "high"))
        span, gap = f"{number(low)} to {number(high)}", f"{predicted - observed:+,}".replace("-", "−")
        body.append([row["name"], names[row["place"]], number(predicted), number(observed), span, gap])
    return Table(title, header, body, folded=True)


# ---------------------------------------------------------------------------- reliability


def _reliability(methods: Sequence[Method], names: Sequence[str]) -> Section:
    """Show observed rates against mean predictions in bins; the reader opens all selections but the first."""
    first, header = methods[0].evaluation, ["method", "rows", "predicted", "observed", "low", "high"]
    blocks: dict[str, list[Figure | Table]] = {}
    for place, (metrics, name) in enumerate(zip(first.rows, names, strict=True)):
        rows = [bin_rows(i, m.name, m.evaluation.rows[place].bins) for i, m in enumerate(methods)]
        file = f"reliability-{100 * metrics.alpha:.12g}".replace(".", "_")  # equal shares are shown once
        title = f"Bins: {name}"
        label = f"Observed rate against mean prediction in bins, one panel per method. {title}."
        figure = Figure(file, partial(_reliability_figure, rows), label, f"{title}.", title if place else "")
        body = [[r["name"], *(number(r[key]) for key in ("weight", *header[2:]))] for own in rows for r in own]
        blocks.setdefault(file, [figure, Table(title, header, body, folded=True)])
    kind = "equal size" if first.strategy == "quantile" else "equal width"
    prose = (
        f"Points are {first.n_bins} bins of {kind} of the selected rows. Bars are 95% intervals of the observed rate. "
        "Below the dashed line, fewer outcomes were observed than predicted."
    )
    shown = tuple(block for pair in blocks.values() for block in pair)
    return Section("reliability", "Reliability of the selected rows", (prose,), shown)


def _reliability_figure(rows: Sequence[Sequence[Mapping[str, Any]]], frame: Frame) -> Chart:
    """Return a panel for each method."""
    ends = [row[key] for own in rows for row in own for key in ("predicted", "low", "high")]
    domain = figures.domain_of(ends, zero=min(ends) < 0.25 * max(ends))
    columns = {1: 1, 2: 2, 4: 2}.get(len(rows), 3) if frame.wide else min(len(rows), 2)
    side = min(frame.width // columns - 50, 270)
    figure, axes = figures.axes_of(frame, *[side + 20] * math.ceil(len(rows) / columns), columns=columns)
    for ax in axes[len(rows) :]:
        ax.remove()
    for i, (ax, own) in enumerate(zip(axes, rows, strict=False)):
        ax.set(xlim=domain, ylim=domain, aspect="equal", xlabel="predicted", ylabel="" if i % columns else "observed")
        figures.draw_reliability(ax, own)
        ax.set_title(short(own[0]["name"], max(side // 10, 10)), color=style_of(i)["color"])
        for axis in (ax.xaxis, ax.yaxis):
            figures.set_ticks(axis, 4 if side >= 160 else 3, figures.plain)
    return figure


# ---------------------------------------------------------------------------- ECE and MCE


def _binned_errors(methods: Sequence[Method], names: Sequence[str], selection: str | None) -> Section:
    panels = {}
    for metric in ("ece", "mce"):
        rows = metric_rows(metric, [(m.name, m.evaluation) for m in methods])
        floors = [
            {"series": OBSERVED, "name": "noise floor", "alpha": row.alpha, "low": None, "high": None,
             "value": mean(getattr(m.evaluation.rows[place], metric).floor or 0.0 for m in methods)}
            for place, row in enumerate(methods[0].evaluation.rows)
        ]  # fmt: skip
        panels[metric.upper()] = [*floors, *({**row, "low": max(row["low"], 0.0)} for row in rows)]
    parts = [f"{m.name} {number(m.evaluation.rows[0].ece)}, {_floor_words(m.evaluation.rows[0].ece)}" for m in methods]
    prose = f"ECE, {names[0]}: {'; '.join(parts)}."
    caption = (
        "ECE is the average and MCE the largest difference between prediction and observed rate over the bins, with "
        "their 95% intervals. Noise floor: the value that perfect predictions would have with this many rows (average "
        "over methods)."
    )
    figure = Figure("ece-mce", partial(figures.panels_figure, panels, selection=selection), prose, caption)
    return Section("binned", "ECE and MCE compared with their noise floor", (prose,), (figure,))


def _floor_words(error: Estimate) -> str:
    if not error.floor:  # predictions of exactly 0 or 1 have no noise: any gap is an error
        return "equal to its floor (0)" if error <= 0 else "above its floor (0)"
    times = error / error.floor
    # With ten equal bins, the ECE of perfect predictions is 1 ± 0.24 floors: 1.5 is two standard deviations above.
    if times < 1.5:
        return f"consistent with its noise floor ({number(error.floor)})"
    return f"{number(times)} times its noise floor"


# ---------------------------------------------------------------------------- distribution and drift of the scores


def _scores(methods: Sequence[Method], served: ScoreSummary | None, selection: str | None) -> Section | None:
    """Compare the scores of pools, labeled rows and the evaluated rows with each other and a normal distribution."""
    found: dict[str, ScoreSummary] = {}
    for role in ("pool", "labeled"):
        for method in methods:
            data = None if method.record is None else getattr(method.record, role)
            if data is not None and data.scores is not None and data.scores not in found.values():
                name = f"{role} scores"
                found[f"{name} of {method.name}" if name in found else name] = data.scores
    if served is not None and not selection:  # rows selected per request are maxima
        found["evaluated scores"] = served
    if not found:
        return None
    (reference, first), *_ = found.items()
    maps = [method.record for method in methods[1:]]
    free = bool(maps) and all(one and (one.shape != "straight" or one.line_probability is not None) for one in maps)
    smallest = None if selection or free else min(row.alpha for row in methods[0].evaluation.rows)
    prose = [_normality_words(found.get("evaluated scores", first), smallest)]
    prose += ["The maps on this page do not assume a normal distribution."] if free else []
    prose += [_drift_sentence(name, one, reference, first) for name, one in found.items() if one is not first]
    rows = [[name, f"{one.rows:,}", fixed(one.mean, 3), fixed(one.sd, 3)] for name, one in found.items()]
    blocks = (
        Figure(
            "scores", partial(_density_figure, found), "Densities of scores. " + " ".join(prose),
            f"Densities of the scores, and the normal density with mean and standard deviation of the {reference}.",
        ),
        Table("Distributions of scores", ["scores", "rows", "mean", "standard deviation"], rows),
    )  # fmt: skip
    return Section("scores", "Scores: normally distributed, and without drift?", tuple(prose), blocks)


def _normality_words(summary: ScoreSummary, smallest: float | None) -> str:
    """Describe the distance from a normal distribution, and what it means for the smallest selected share."""
    text = f"The Kolmogorov–Smirnov distance from a normal distribution is {summary.distance:.4f}"
    if smallest is None:
        return f"{text}."
    advice = "not small: rely on the measured errors above, not on the theory"
    if summary.distance < smallest / 4:
        advice = "small: a single λ for all scores is appropriate"
    elif summary.distance > smallest:
        advice = "large: a map with a single λ may correct too much. Rely on the measured errors above"
    return f"{text}. Compared with the smallest selected share, {share(smallest)}, this is {advice}."


def _drift_sentence(name: str, summary: ScoreSummary, reference: str, first: ScoreSummary) -> str:
    sd = first.sd or 1.0
    shift, ratio = (summary.mean - first.mean) / sd, summary.sd / sd
    factor = max(ratio, 1 / max(ratio, 1e-9))
    verdict = "a small drift"
    if abs(shift) >= 0.3 or factor >= 1.25:
        verdict = "a large drift. A map or calibrator that was fitted on one of them extrapolates on the other"
    elif abs(shift) < 0.1 and factor < 1.1:
        verdict = "no relevant drift"
    moved = f"{fixed(shift, 2, sign=True)} standard deviations from that of the {reference}"
    return f"The mean of the {name} is {moved}, and their spread {fixed(ratio, 2)} times as large: {verdict}."


def _density_figure(found: Mapping[str, ScoreSummary], frame: Frame) -> Chart:
    """Return the densities of sets of scores, and of the normal distribution with the moments of the first."""
    figure, (ax,) = figures.axes_of(frame, frame.height - 60)
    for i, (name, one) in enumerate(found.items()):
        edges = np.array(one.edges)
        middles, heights = (edges[1:] + edges[:-1]) / 2, np.array(one.weights) / one.weight / np.diff(edges)
        look = {**style_of(6 - i % 7), "marker": ""}  # colors that the first methods do not have
        ax.plot(middles, heights, **look, label=name)
        if i == 0 and one.sd > 0:
            normal = np.exp(-np.square((middles - one.mean) / one.sd) / 2) / (one.sd * math.sqrt(2 * math.pi))
            ax.plot(middles, normal, color=LIGHT["ink"], **REFERENCE, label="normal distribution")
    ax.margins(x=0)
    ax.set(xlabel="score (logit)", yticks=[], ylim=(0, None))
    figures.set_ticks(ax.xaxis, 8 if frame.wide else 5, figures.plain)
    figures.add_legend(ax)
    return figure


# ---------------------------------------------------------------------------- λ by segment


def _segments(methods: Sequence[Method]) -> Section | None:
    """Show λ of the largest segments of each map, by ascending λ."""
    blocks: list[Figure | Table] = []
    for series, method in enumerate(methods):
        if method.record is None or not method.record.segments:
            continue
        record, total = method.record, len(method.record.segments)
        largest = sorted(record.segments.items(), key=lambda item: -item[1].rows)[:_MAX_SEGMENTS]
        ascending = sorted(largest, key=lambda item: item[1].lambda_)
        shown = f"all {total} segments" if len(largest) == total else f"the {_MAX_SEGMENTS} largest of {total} segments"
        title = f"{method.name}: λ by {record.segment or 'segment'}, {shown}"
        ends = {"series": series, "low": None, "high": None}
        rows = [{"name": key, "value": segment.lambda_, **ends} for key, segment in ascending]
        draw = partial(_segment_figure, rows, record.lambda_)
        dashed = "" if record.lambda_ is None else " Dashed: λ of all rows."
        body = [[key, f"{segment.rows:,}", fixed(segment.lambda_, 4)] for key, segment in ascending]
        blocks.append(Figure(f"lambda-segments-{series}", draw, f"{title}.", f"{title}.{dashed}"))
        blocks.append(Table(title, ["segment", "rows", "λ"], body, folded=True))
    return Section("lambda", "λ, the shrinkage factor, by segment", (), tuple(blocks)) if blocks else None


def _segment_figure(rows: Sequence[Mapping[str, Any]], line: float | None, frame: Frame) -> Chart:
    figure, (ax,) = figures.axes_of(frame, 18 * len(rows))
    figures.draw_dots(ax, rows, "λ of the segment", line=line)
    return figure
