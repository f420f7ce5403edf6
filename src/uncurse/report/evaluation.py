"""`evaluation_page`: calibration of the selected rows, as served and after maps, with the scores and fits behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from ..errors import UncurseError
from ..methods import FitRecord, Fitted, ScoreSummary
from ..metrics import Evaluation
from . import figures
from .figures import OBSERVED, Chart, Frame, bin_rows, metric_rows, style_of
from .page import BigNumber, Figure, Page, Section, Table, provenance
from .prose import error_and_interval, fixed, interval, number, share, short

_MAX_SEGMENTS = 40  # of a table


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


def evaluation_page(
    methods: Sequence[Method],
    served: ScoreSummary | None = None,
    facts: Mapping[str, str | Sequence[str]] | None = None,
    *,
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
    records = [(m.name, m.fitted.record) for m in methods if m.fitted and m.fitted.record]
    sections = (
        _errors(methods, names), _outcomes(methods, value_name), _reliability(methods, names),
        _binned_errors(methods), _scores(records, served), _segments(records),
    )  # fmt: skip
    made = f"{number(first.total)} rows; {first.n_bins} {first.strategy} bins for ECE and MCE"
    entries = provenance({**(facts or {}), "Evaluated": made}, [(m.name, m.fitted) for m in methods])
    headline, numbers = _headline(methods, names, selection, value_name)
    found = [section for section in sections if section is not None]
    return Page("Calibration of the selected predictions", headline, numbers, found, entries, "evaluation")


def _headline(
    methods: Sequence[Method], names: Sequence[str], selection: str | None, value_name: str
) -> tuple[str, list[BigNumber]]:
    """Describe the calibration error of the first share that was given, as served and after the first map.

    Outcomes count by their value if it is known. The best of several maps is not reported: its error on the same rows
    is too optimistic.
    """
    values = [method.value for method in methods if method.value is not None]
    valued = len(values) == len(methods)
    rows = [one.rows for one in (values if valued else [method.evaluation for method in methods])[:2]]
    place = next((i for i in range(len(names)) if all(own[i].observed > 0 for own in rows)), None)
    if place is None:
        return "No selection has a positive label, so the calibration error is undefined.", []
    within = names[place] if names[place].startswith(("all ", "the ")) else f"the {names[place]}"
    within += "" if selection in (None, names[place]) else f" of the selected rows ({selection})"
    several = f" (first of {len(methods) - 1} maps)" if len(methods) > 2 else ""
    first = "" if methods[0].name == "as served" else f" ({methods[0].name})"
    sentence = f"On {within}, {f'weighted by {value_name}, ' if valued else ''}the scores{first}"
    numbers = []
    for series, (method, own) in enumerate(zip(methods, rows, strict=False)):
        error = own[place].calibration_error
        low, high = interval(error, error.standard_error)
        text, span = error_and_interval(error, low, high)
        name, bounds = method.name[:1].upper() + method.name[1:], f"95% interval {span}"
        if series:
            name, bounds = f"After {method.name}{several}", span
            sentence += f" {name}, they"
        if low <= 0 <= high:
            sentence += f" have a calibration error of {text} ({bounds}), consistent with zero."
        else:
            sentence += f" {'over' if error > 0 else 'under'}-predict by {text.lstrip('+−')} ({bounds})."
        numbers.append(BigNumber(series, name, text, f"95% interval {span}"))
    return sentence, numbers


def _errors(methods: Sequence[Method], names: Sequence[str]) -> Section:
    rows = metric_rows("calibration_error", [(m.name, m.evaluation) for m in methods])
    drawn = [row for row in rows if row["value"] == row["value"]]  # NaN without a positive label
    caption = (
        "Calibration error: sum of predictions over number of positive outcomes, minus 1, with 95% intervals. Above "
        "zero, the selected scores predict more than is observed."
    )
    caption += " With several maps, the smallest error is partly due to chance." if len(methods) > 2 else ""
    draw = partial(figures.panels_figure, {"calibration error": drawn}, error=True)
    cells = ["\n".join(error_and_interval(row["value"], row["low"], row["high"])) for row in rows]
    overview = [[m.name, *cells[i * len(names) : (i + 1) * len(names)]] for i, m in enumerate(methods)]
    every = [[m.name, *cells] for m in methods for cells in m.evaluation.table()[1:]]
    header = ["method", *methods[0].evaluation.table()[0]]
    blocks: list[Figure | Table] = [Figure("calibration-error", draw, caption)] if drawn else []
    blocks.append(Table("Calibration error with its 95% interval", ["method", *names], overview))
    blocks.append(Table("all metrics by method and share, ± standard errors", header, every, folded=True))
    return Section("error", "Calibration error by selected share", (), blocks)


def _outcomes(methods: Sequence[Method], value_name: str) -> Section:
    panel: list[dict[str, Any]] = []
    for row in methods[0].evaluation.rows:  # all methods have the same outcomes
        # Given the predictions, the outcomes of different bins are independent.
        error = math.sqrt(sum((one.weight * one.standard_error) ** 2 for one in row.bins))
        low, high = interval(row.observed, error)
        amounts = {"value": row.observed, "low": max(low, 0.0), "high": high}
        scaled = {key: 1e6 * amount / row.selected for key, amount in amounts.items()}
        panel.append({"series": OBSERVED, "name": "observed", "alpha": row.alpha, **scaled})
    for i, method in enumerate(methods):
        for row in method.evaluation.rows:
            value = 1e6 * row.predicted / row.selected
            panel.append({"series": i, "name": method.name, "alpha": row.alpha, "value": value})
    draw = partial(figures.panels_figure, {"outcomes per million": panel})
    caption = "Outcomes per million selected rows: predicted by each method, and observed with their 95% interval."
    blocks: list[Figure | Table] = [Figure("outcomes", draw, caption)]
    valued = [(method.name, row.cells()) for method in methods if method.value for row in method.value.rows]
    if valued:
        header = ["top", "predicted", "observed", "calibration error"]
        body = [[name, *(cells[key] for key in header)] for name, cells in valued]
        blocks.append(Table(f"Sums of {value_name}, ± standard errors", ["method", *header], body))
    return Section("outcomes", "Predicted and observed outcomes", (), blocks)


def _reliability(methods: Sequence[Method], names: Sequence[str]) -> Section:
    """Show observed rates against mean predictions in bins; the reader opens all selections but the first."""
    first, keys = methods[0].evaluation, ["weight", "predicted", "observed", "low", "high"]
    blocks: list[Figure | Table] = []
    for place, name in enumerate(names):
        rows = [bin_rows(i, m.name, m.evaluation.rows[place].bins) for i, m in enumerate(methods)]
        body = [[row["name"], *(number(row[key]) for key in keys)] for own in rows for row in own]
        caption = f"Observed rate against mean prediction in bins, {name}"
        blocks.append(Figure(f"reliability-{place + 1}", partial(_reliability_figure, rows), caption, folded=place > 0))
        blocks.append(Table(f"Bins, {name}", ["method", "rows", *keys[1:]], body, folded=True))
    kind = "equal size" if first.strategy == "quantile" else "equal width"
    prose = (
        f"Points are {first.n_bins} bins of {kind} of the selected rows. Bars are 95% intervals of the observed rate. "
        "Below the dashed line, fewer outcomes were observed than predicted."
    )
    return Section("reliability", "Reliability of the selected rows", (prose,), blocks)


def _reliability_figure(rows: Sequence[Sequence[Mapping[str, Any]]], frame: Frame) -> Chart:
    domain = figures.domain_of([row[key] for own in rows for row in own for key in ("predicted", "low", "high")])
    columns = min(len(rows), 3 if frame.wide else 2)
    side = min(frame.width // columns - 50, 270)
    figure, axes = figures.axes_of(frame, *[side + 20] * math.ceil(len(rows) / columns), columns=columns)
    for ax in axes[len(rows) :]:
        ax.remove()
    for i, (ax, own) in enumerate(zip(axes, rows, strict=False)):
        ax.set(xlim=domain, ylim=domain, aspect="equal", xlabel="predicted", ylabel="" if i % columns else "observed")
        figures.draw_reliability(ax, own)
        ax.set_title(short(own[0]["name"], max(side // 10, 10)), color=style_of(i)["color"])
        for axis in (ax.xaxis, ax.yaxis):
            figures.set_ticks(axis, 4, figures.plain)
    return figure


def _binned_errors(methods: Sequence[Method]) -> Section:
    panels = {}
    for metric in ("ece", "mce"):
        rows = metric_rows(metric, [(m.name, m.evaluation) for m in methods])
        floors = [
            {"series": OBSERVED, "name": "noise floor", "alpha": row.alpha,
             "value": mean(getattr(m.evaluation.rows[place], metric).floor or 0.0 for m in methods)}
            for place, row in enumerate(methods[0].evaluation.rows)
        ]  # fmt: skip
        panels[metric.upper()] = [*floors, *({**row, "low": max(row["low"], 0.0)} for row in rows)]
    caption = (
        "ECE is the average and MCE the largest difference between prediction and observed rate over the bins, with "
        "their 95% intervals. Noise floor: the value that perfect predictions would have with this many rows (average "
        "over methods)."
    )
    figure = Figure("ece-mce", partial(figures.panels_figure, panels), caption)
    return Section("binned", "ECE and MCE compared with their noise floor", (), (figure,))


def _scores(records: Sequence[tuple[str, FitRecord]], served: ScoreSummary | None) -> Section | None:
    """Compare the scores of pools, labeled rows and the evaluated rows with each other and a normal distribution."""
    found: dict[str, ScoreSummary] = {}
    for method, record in records:
        for role, data in (("pool", record.pool), ("labeled", record.labeled)):
            if data is not None and data.scores is not None and data.scores not in found.values():
                name = f"{role} scores"
                found[f"{name} of {method}" if name in found else name] = data.scores
    if served is not None:
        found["evaluated scores"] = served
    if not found:
        return None
    (reference, first), *_ = found.items()
    sd = first.sd or 1.0
    rows = []
    for name, one in found.items():
        shift, spread = fixed((one.mean - first.mean) / sd, 2, sign=True), fixed(one.sd / sd, 2)
        rows.append([name, f"{one.rows:,}", fixed(one.mean, 3), fixed(one.sd, 3), shift, spread, f"{one.distance:.4f}"])
    header = ["scores", "rows", "mean", "standard deviation", "shift", "spread", "distance from normal"]
    prose = (
        f"Shift and spread compare mean and standard deviation with those of the {reference}. From a shift of 0.3 or a "
        "spread of 1.25 on, a map that was fitted on one of them extrapolates on the other. The Kolmogorov–Smirnov "
        "distance from a normal distribution matters to maps with a single λ: they may correct too much if it is "
        "larger than the selected share."
    )
    blocks = (Table("Distributions of scores", header, rows),)
    return Section("scores", "Scores: without drift, and normally distributed?", (prose,), blocks)


def _segments(records: Sequence[tuple[str, FitRecord]]) -> Section | None:
    """Show λ of the largest segments of each map, by ascending λ."""
    blocks = []
    for name, record in records:
        total = len(record.segments)
        largest = sorted(record.segments.items(), key=lambda item: -item[1].rows)[:_MAX_SEGMENTS]
        ascending = sorted(largest, key=lambda item: item[1].lambda_)
        rows = [[key, f"{segment.rows:,}", fixed(segment.lambda_, 4)] for key, segment in ascending]
        rows += [] if record.lambda_ is None else [["all rows", f"{record.pool.rows:,}", fixed(record.lambda_, 4)]]
        shown = f"all {total} segments" if len(largest) == total else f"the {_MAX_SEGMENTS} largest of {total} segments"
        title = f"{name}: λ by {record.segment or 'segment'}, {shown}"
        blocks += [Table(title, ["segment", "rows", "λ"], rows)] if total else []
    return Section("lambda", "λ, the shrinkage factor, by segment", (), blocks) if blocks else None
