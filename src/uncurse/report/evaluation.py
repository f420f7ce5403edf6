"""`evaluation_page`: did a map help on the selected rows, where, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from statistics import mean
from typing import Any

import numpy as np

from ..errors import UncurseError
from ..evidence.spec import logit_offset
from ..links import logistic
from ..maps import Affine, Segmented
from ..methods import FitRecord, Fitted, ScoreSummary
from ..metrics import Comparison, Evaluation, compare
from ..metrics.comparison import SURE
from ..metrics.measure import Bin, SelectionMetrics
from ..text import error_and_interval, number, percent, probability, share
from . import figures
from .figures import LIGHT, REFERENCE, Chart, Dot, Frame, short, style_of
from .page import BigNumber, Figure, Page, Section, Table, provenance

_MAX_SEGMENTS = 40  # of a table
_DRAWN_SEGMENTS = 12  # of a figure
_PRECISE = 0.1  # an interval of an error that includes zero, and ends within this, is said to be noise
_MOVED, _SPREAD = 0.3, 1.25  # change of the mean score in standard deviations, and of their spread, that matters


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
    own_labels : bool, default=False
        Whether the map was fitted to the labels of these rows, so that its errors look too small.

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
    own_labels: bool = False


@dataclass(frozen=True)
class Results:
    """Methods on the same selected rows, and how they compare; for the arguments see `evaluation_page`."""

    methods: Sequence[Method]
    selection: str | None = None
    value_name: str = "value"
    segments: Mapping[str, Sequence[Evaluation]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.methods:
            raise UncurseError("a report needs at least one method; pass Method(name, evaluation)")
        for method in self.methods[1:]:
            if [row.alpha for row in method.evaluation.rows] != [row.alpha for row in self.first.rows]:
                raise UncurseError(
                    f"{method.name!r} and {self.methods[0].name!r} are evaluated on different shares; use the same "
                    "alphas for all methods"
                )

    @property
    def first(self) -> Evaluation:
        """The evaluation of the scores as served."""
        return self.methods[0].evaluation

    @property
    def last(self) -> Method:
        """The first map; without one, the scores as served."""
        return self.methods[min(1, len(self.methods) - 1)]

    @cached_property
    def names(self) -> list[str]:
        """Names of the shares, or the description of the selection if there is one share."""
        names = ["all rows" if one.alpha >= 1 else f"top {share(one.alpha)}" for one in self.first.rows]
        return [self.selection] if self.selection and len(names) == 1 else names

    @property
    def unchanged(self) -> bool:
        """Whether the first map leaves all predictions as they are."""
        served, after = ([row.predicted for row in one.evaluation.rows] for one in (self.methods[0], self.last))
        return len(self.methods) > 1 and np.allclose(served, after, rtol=1e-9)

    @property
    def largest(self) -> int:
        """Place of the largest share."""
        return int(np.argmax([row.alpha for row in self.first.rows]))

    @cached_property
    def by_count(self) -> Comparison | None:
        """Comparison of all methods; None without a positive label."""
        return compare([method.evaluation for method in self.methods])

    @cached_property
    def found(self) -> Comparison | None:
        """The same by value if it is known; None without a map too."""
        values = [method.value for method in self.methods if method.value is not None]
        if len(self.methods) < 2:
            return None
        return compare(values) if len(values) == len(self.methods) else self.by_count

    @cached_property
    def by_segment(self) -> dict[str, Comparison | None]:
        """Comparison of all methods in each segment."""
        return {name: compare(evaluations) for name, evaluations in self.segments.items()}


# ---------------------------------------------------------------------------- the answer in words


def ranked(methods: Sequence[Method]) -> list[Method]:
    """Return the scores as served, then the maps by their mean error, those fitted to these labels last."""
    found = Results(methods).found
    if found is None:
        return list(methods)
    order = sorted(range(1, len(methods)), key=lambda i: (methods[i].own_labels, found.error[i]))
    return [methods[i] for i in (0, *order)]


def answer(results: Results) -> tuple[str, str, str]:
    """Return in a sentence whether the first map helped, its word that matters, and a decision for its color."""
    served, last, names, found = results.methods[0], results.last, results.names, results.found
    rows, after = ((method.value or method.evaluation).rows for method in (served, last))
    known = [name for name, row in zip(names, rows, strict=True) if row.observed > 0]
    if not known:
        return "No selection has a positive label, so the calibration error is undefined.", "", ""
    within = _the(known[0] if known[-1] == known[0] else f"{known[0]} to {known[-1].removeprefix('top ')}")
    within += f", weighted by {results.value_name}" if served.value is not None else ""
    if found is None:
        bad = errors_in_words(rows, names)
        return f"Predictions {_as(served)} are {bad}.", "too" if bad.startswith("too") else "", "alarm"
    word, decision = _verdict(found.nearer[1])
    sentence = f"It is unclear whether {last.name} helps." if word == "unclear" else f"{last.name} {word}."
    if results.unchanged:
        word, sentence = "changes nothing", f"{last.name} changes nothing."
    if last.own_labels:
        word, decision = "Not a fair test", "watch"
        sentence = f"{word}: {last.name} was fitted to the labels of these rows."
    maps = len(results.methods) - 1
    nearest = maps > 1 and found.error[1] == min(found.error[1:])
    sentence += f" Of {maps} maps it is the nearest to the truth: on" if nearest else " On"
    mean = "on average " if len(known) > 1 else ""
    sentence += f" {within}, predictions are {mean}{_size_and_sign(rows)} {_as(served)} and {_size_and_sign(after)}"
    return f"{sentence} with {last.name}.", word, decision


def _size_and_sign(rows: Sequence[SelectionMetrics]) -> str:
    """Describe the mean size of errors, with their sign if all have the same."""
    errors = [float(row.calibration_error) for row in rows if row.observed > 0]
    signs = {math.copysign(1, error) for error in errors}
    sign = "off" if len(signs) > 1 else "too high" if 1 in signs else "too low"
    return f"{percent(mean(map(abs, errors)), sign=False)} {sign}"


def _as(method: Method) -> str:
    return method.name if method.name.startswith("as served") else f"with {method.name}"


def sureness(results: Results) -> str:
    """Return in a sentence how sure it is that the first map helped; with several maps, how near each is."""
    methods, found = results.methods, results.found
    if found is None or results.unchanged:
        return ""
    single = sorted(one for one in found.nearer_by_share[1] if one is not None)
    ends = dict.fromkeys(map(probability, (single[0], single[-1])))
    sure = probability(found.nearer[1])
    sure += "" if len(single) == 1 else f" over all shares, {' to '.join(ends)} at single ones"
    text = f"Probability that {results.last.name} is nearer to the truth than the scores {_as(methods[0])}: {sure}."
    if len(methods) > 2:
        order = sorted(range(len(methods)), key=found.error.__getitem__)
        sizes = ", ".join(f"{methods[i].name} {percent(found.error[i], sign=False)}" for i in order)
        pair = Results([methods[2], methods[1]]).found
        sure = probability(pair.nearer[1] if pair else None)
        text += f" Mean size of the error: {sizes}."
        text += f" Probability that {results.last.name} is nearer than {methods[2].name}: {sure}."
    return text


def _verdict(nearer: float) -> tuple[str, str]:
    """Return a verdict on a map and a decision for its color, by the probability that it is nearer to the truth."""
    if nearer >= SURE:
        return "helps", "keep"
    return ("hurts", "alarm") if nearer <= 1 - SURE else ("unclear", "watch")


def verdict(nearer: float | None) -> str:
    """Return whether a map helps, by the probability that it is nearer to the truth.

    >>> verdict(0.97), verdict(0.5), verdict(0.001), verdict(None)
    ('helps (97%)', 'unclear (50%)', 'hurts (<1%)', 'no positive label')
    """
    return "no positive label" if nearer is None else f"{_verdict(nearer)[0]} ({probability(nearer)})"


def errors_in_words(rows: Sequence[SelectionMetrics], names: Sequence[str]) -> str:
    """Describe where predictions are too high or too low, beyond their 95% intervals."""
    known = [(name, row.calibration_error) for name, row in zip(names, rows, strict=True) if row.observed > 0]
    if not known:
        return "without a positive label to be compared with"
    high = [name for name, error in known if error.interval[0] > 0]
    low = [name for name, error in known if error.interval[1] < 0]
    every = " at every share" if len(known) > 1 else ""
    if not (high or low):
        name, error = min(known, key=lambda one: one[1].standard_error)
        least, most = error.interval
        if max(-least, most) <= _PRECISE:
            return f"within noise of the truth{every}"
        possible = f"errors from {percent(least, 0)} to {percent(most, 0)} are possible"
        return f"neither clearly too high nor too low: on {_the(name)}, {possible}"
    if len(known) in (len(high), len(low)):
        size = sorted(abs(error) for _, error in known)
        sizes = dict.fromkeys((percent(size[0], sign=False), percent(size[-1], sign=False)))
        return f"too {'high' if high else 'low'}{every}, by {' to '.join(sizes)}"
    parts = [f"too {w} on {', '.join(map(_the, found))}" for w, found in (("high", high), ("low", low)) if found]
    return f"{' and '.join(parts)}{', and within noise elsewhere' if len(high + low) < len(known) else ''}"


def _the(name: str) -> str:
    return name if name.startswith("all ") else f"the {name}"


def promises(method: Method, *, by_request: bool = False) -> list[tuple[float, float, bool] | None]:
    """Return by share the 90% interval of the error that the fit expected, and whether the measured one agrees.

    It agrees if it lies inside, or no further outside than the noise of the labels, by its 95% interval. None where the
    fit gives no interval for these rows.
    """
    fitted, rows = method.fitted, method.evaluation.rows
    errors = None if fitted is None or isinstance(fitted.map, Segmented) else fitted.errors
    if fitted is None or errors is None or (fitted.record and (fitted.record.top_k is not None) != by_request):
        return [None] * len(rows)
    found: list[tuple[float, float, bool] | None] = []
    for row in rows:
        known = row.observed > 0 and row.alpha >= errors.alphas[0] * (1 - 1e-9)
        low, high = errors.interval(row.alpha) if known else (math.nan, math.nan)
        least, most = row.calibration_error.interval
        found.append((low, high, least <= high and most >= low) if known else None)
    return found


# ---------------------------------------------------------------------------- tables, of the page and of the terminal


def error_table(results: Results) -> Table:
    """Return the errors of all methods by share."""
    rows = []
    for place, name in enumerate(results.names):
        nearer = results.by_count.nearer_by_share[1:] if results.by_count else []
        sure = [probability(one[place]) for one in nearer] or ["unknown"] * (len(results.methods) - 1)
        rows.append(_compared(name, [method.evaluation.rows[place] for method in results.methods], sure))
    about = "Calibration error (predicted / observed − 1) with its 95% interval"
    about += "; nearer: probability that the map is nearer to the truth" if len(results.methods) > 1 else ""
    return Table(about, _header("rows", results, "nearer"), rows)


def segment_table(results: Results) -> Table:
    """Return the errors of all methods in the largest segments among the rows of the largest share."""
    rows = []
    for segment, evaluations in list(results.segments.items())[:_MAX_SEGMENTS]:
        found = results.by_segment[segment]
        verdicts = [verdict(found.nearer[i] if found else None) for i in range(1, len(evaluations))]
        rows.append(_compared(segment, [one.rows[0] for one in evaluations], verdicts))
    about = f"Calibration error by segment, {results.names[results.largest]}, those with most selected rows first"
    about += "; verdict: with the probability that the map is nearer to the truth" if len(results.methods) > 1 else ""
    return Table(about, _header("segment", results, "verdict"), rows)


def _header(first: str, results: Results, sure: str) -> list[str]:
    served, *maps = (method.name for method in results.methods)
    return [first, served, *(column for name in maps for column in (name, sure)), "selected", "positives"]


def _compared(name: str, rows: Sequence[SelectionMetrics], sure: Sequence[str]) -> list[str]:
    """Return a row of a table: the error as served, of each map its error and how sure it is to help, then counts."""
    served, *errors = (row.cells()["calibration error"] for row in rows)
    of_maps = (cell for pair in zip(errors, sure, strict=True) for cell in pair)
    return [name, served, *of_maps, _count(rows[0].selected), _count(rows[0].observed)]


def _count(rows: float) -> str:
    """Return a number of rows; those at the edge of a share may count in part."""
    return number(round(rows) if rows >= 10 else rows)


def expected_table(results: Results) -> Table | None:
    """Return the errors that the fits expected, and whether they held; None if no fit gives an interval."""
    columns = {}
    for method in results.methods:
        expected = promises(method, by_request=results.selection is not None)
        if any(expected):
            pairs = zip(expected, method.evaluation.rows, strict=True)
            columns[method.name] = [_promise_text(one, row.calibration_error) for one, row in pairs]
    about = "Errors that the fit expected (90% intervals), and the measured ones"
    rows = [list(row) for row in zip(results.names, *columns.values(), strict=True)]
    return Table(about, ["rows", *columns], rows, folded=True) if columns else None


def _promise_text(expected: tuple[float, float, bool] | None, measured: float) -> str:
    if expected is None:
        return ""
    low, high, held = expected
    place = "inside" if low <= measured <= high else "outside, but could be chance" if held else "outside"
    return f"{error_and_interval(0.0, low, high)[1]}; measured {percent(measured)}: {place}"


def value_table(results: Results) -> Table | None:
    """Return sums of value by share: observed, and predicted by each method with its error; None if it is not known."""
    valued = [(method.name, [row.cells() for row in method.value.rows]) for method in results.methods if method.value]
    if not valued:
        return None
    rows = [
        [name, cells[0]["observed"], *(f"{one['predicted']}: {one['calibration error']}" for one in cells)]
        for name, *cells in zip(results.names, *(cells for _, cells in valued), strict=True)
    ]
    about = f"Sums of {results.value_name}: observed, and predicted with the error and its 95% interval"
    return Table(about, ["rows", "observed", *(name for name, _ in valued)], rows)


# ---------------------------------------------------------------------------- the page


def evaluation_page(
    methods: Sequence[Method],
    served: ScoreSummary | None = None,
    facts: Mapping[str, str | Sequence[str]] | None = None,
    *,
    selection: str | None = None,
    value_name: str = "value",
    segments: Mapping[str, Sequence[Evaluation]] | None = None,
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
    segments : mapping of str to sequence of Evaluation, optional
        By segment, the results of all methods on its rows of the largest share.

    Returns
    -------
    Page

    Examples
    --------
    >>> from uncurse import evaluate
    >>> y, p = [0, 1, 0, 1, 1, 0] * 1000, [0.1, 0.9, 0.3, 0.6, 0.8, 0.4] * 1000
    >>> print(evaluation_page([Method("as served", evaluate(y, p, [0.5, 1.0]))]).headline)
    Predictions as served are too high on all rows and too low on the top 50%.
    """
    results = Results(methods, selection, value_name, segments or {})
    first, values = results.first, value_table(results)
    sections = (
        _errors(results),
        Section("values", f"In {value_name}", (), (values,)) if values else None,
        _by_segment(results) if segments else None,
        _maps(methods, first, served),
        _reliability(results),
        _scores([(m.name, m.fitted.record) for m in methods if m.fitted and m.fitted.record], served),
    )
    made = f"{number(first.total)} rows; {first.n_bins} {first.strategy} bins for ECE and MCE"
    headline, emphasis, decision = answer(results)
    return Page(
        title="Calibration of the selected predictions",
        headline=headline,
        numbers=_numbers(results),
        sections=[section for section in sections if section is not None],
        facts=provenance({**(facts or {}), "Evaluated": made}, [(m.name, m.fitted) for m in methods]),
        terms="evaluation",
        note=sureness(results),
        next_step=next_step(results),
        emphasis=emphasis,
        decision=decision,
    )


def _numbers(results: Results) -> list[BigNumber]:
    """Return the error over all shares of the first two methods, with their range."""
    numbers = []
    for series, method in enumerate(results.methods[:2]):
        rows = zip((method.value or method.evaluation).rows, results.names, strict=True)
        errors = [(row.calibration_error, name) for row, name in rows if row.observed > 0]
        if not errors:
            return []
        (most, where), (least, there) = max(errors, key=_size), min(errors, key=_size)
        if len(errors) == 1:
            value, span = error_and_interval(most, *most.interval)
            numbers.append(BigNumber(series, f"{method.name}: error", value, f"95% interval {span}"))
            continue
        size = percent(mean(abs(error) for error, _ in errors), sign=False)
        note = f"from {percent(least)} ({there}) to {percent(most)} ({where})"
        numbers.append(BigNumber(series, f"{method.name}: mean size of the error", size, note))
    return numbers


def _size(item: tuple[float, str]) -> float:
    return abs(item[0])


def _errors(results: Results) -> Section:
    methods, last = results.methods, results.last
    caption = (
        "Calibration error: sum of predictions over number of positive outcomes, minus 1, with 95% intervals. At zero, "
        "predictions are right."
    )
    every = [[m.name, *cells] for m in methods for cells in m.evaluation.table()[1:]]
    drawn = [(m.name, m.evaluation) for m in methods if any(row.observed > 0 for row in m.evaluation.rows)]
    blocks = [
        Figure("calibration-error", partial(_error_figure, drawn), caption) if drawn else None,
        error_table(results),
        expected_table(results),
        Table("all metrics by method and share", ["method", *results.first.table()[0]], every, folded=True),
    ]
    title = "Predictions are " if last is methods[0] else f"With {last.name}, predictions are "
    title = f"On the rows that it was fitted to, predictions with {last.name} are " if last.own_labels else title
    title += errors_in_words(last.evaluation.rows, results.names)
    tops = [method.evaluation.rows[results.largest] for method in methods]
    predicted = ", ".join(f"{m.name} {number(row.predicted)}" for m, row in zip(methods, tops, strict=True))
    observed, selected = _count(tops[0].observed), _count(tops[0].selected)
    counts = f"On {_the(results.names[results.largest])}, {observed} positives were observed in {selected} rows. "
    return Section("error", title, (f"{counts}Predicted: {predicted}.",), [one for one in blocks if one is not None])


def _error_figure(evaluations: Sequence[tuple[str, Evaluation]], frame: Frame) -> Chart:
    """Return calibration errors by share; if there is one share, as dots."""
    if len(evaluations[0][1].rows) == 1:
        dots = [Dot(name, i, *end) for i, (name, one) in enumerate(evaluations) for _, *end in figures.errors_of(one)]
        return figures.dots_figure(dots, (), 30, frame)
    figure, (ax,) = figures.axes_of(frame, frame.height)
    figures.draw_errors(ax, evaluations, names=frame.wide)
    if not frame.wide:
        figures.add_legend(ax)
    return figure


def next_step(results: Results) -> str:
    """Return what to do after this result, with commands between backticks."""
    methods, found = results.methods, results.found
    error = errors_in_words(results.last.evaluation.rows, results.names)
    if found is None:
        steps = {"too": "correct the scores with `uncurse fit`", "neither": "evaluate on more labeled rows"}
        return steps.get(error.split()[0], "")
    if methods[1].own_labels:
        return "evaluate on rows that the map was not fitted to"
    if len(methods) > 2:
        best = min(range(1, len(methods)), key=found.error.__getitem__)
        return f"evaluate {methods[best].name} alone on other rows, because the best of several looks better than it is"
    serve = "serve the map with `uncurse export` or `uncurse apply`, or fit a line with `--affine` for `uncurse fold`"
    if all(one.fitted is not None and isinstance(one.fitted.map, Affine) for one in methods[1:]):
        serve = "put the map into the model with `uncurse fold`"
    more = "evaluate on more labeled rows"
    if error.startswith("too"):
        remains = "refresh the map with recent labels (`uncurse refresh`), because an error remains"
        serve, more = f"{remains}; then {serve}", f"{remains}, or {more}"
    return {
        "helps": f"{serve}, and check it on new labels with `uncurse monitor`",
        "unclear": "fit with labels (`uncurse fit --labeled`)" if results.unchanged else more,
        "hurts": "keep the scores as served; check that `--replicas` states how the replicas were trained, or fit with "
        "labels (`--labeled`)",
    }[_verdict(found.nearer[1])[0]]


def _by_segment(results: Results) -> Section:
    """Show the errors of the largest segments among the rows of the largest share."""
    drawn = [
        Dot(segment, i, *end)
        for segment, evaluations in list(results.segments.items())[:_DRAWN_SEGMENTS]
        for i, one in enumerate(evaluations)
        for _, *end in figures.errors_of(one)
    ]
    draw = partial(figures.dots_figure, drawn, [method.name for method in results.methods], 34)
    where = results.names[results.largest]
    caption = f"Calibration error with its 95% interval on the rows of each segment in the {where}."
    figure = [Figure("segments", draw, caption)] if drawn else []
    title, *advice = segments_in_words(results)
    return Section("by-segment", title, advice, [*figure, segment_table(results)])


def segments_in_words(results: Results) -> list[str]:
    """Say in which segments the first map helps, then what to do about the others."""
    if len(results.methods) == 1:
        return ["By segment"]
    verdicts: dict[str, list[str]] = {"helps": [], "hurts": [], "unclear": []}
    for segment, found in results.by_segment.items():
        verdicts["unclear" if found is None else _verdict(found.nearer[1])[0]].append(segment)
    parts = [f"{word} in {_listed(names)}" for word, names in verdicts.items() if names]
    advice = {
        "hurts": "Where it hurts, fit a map by segment (--segment), or keep the scores as served.",
        "unclear": "Where it is unclear, errors differ little, or positives are few: more labeled rows would tell.",
    }
    text = f"By segment: {results.last.name} {'; '.join(parts)}"
    return [text, *(advice[word] for word in advice if verdicts[word])]


def _listed(names: Sequence[str], most: int = 4) -> str:
    """Join names; of many, only the first ones."""
    shown = list(map(short, names if len(names) <= most else names[: most - 1]))
    last = f"{len(names) - len(shown)} others" if len(shown) < len(names) else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last


def _maps(methods: Sequence[Method], first: Evaluation, served: ScoreSummary | None) -> Section | None:
    """Draw what the maps make of served predictions; of maps by segment, the default map."""
    lines: list[dict[str, Any]] = []
    shares = sorted(row.alpha for row in first.rows if row.alpha < 1) or [0.02, 0.1]
    for series, method in enumerate(methods):
        if method.fitted is None or method.fitted.map.link != "logistic":
            continue
        record, own = method.fitted.record, served
        if own is None and record is not None:
            own = record.pool.scores
        if own is None:
            return None
        score_map = method.fitted.map.default if isinstance(method.fitted.map, Segmented) else method.fitted.map
        offset = logit_offset(None if record is None else record.negative_sampling_rate)
        top = own.lowest(shares)
        logits = np.concatenate([top, np.linspace(own.edges[0], max(own.edges[-1], own.top[0]), 200)])
        before, after = logistic(logits), score_map.at_logits(logits - offset)
        name = f"{method.name}, default" if isinstance(method.fitted.map, Segmented) else method.name
        lines.append({"series": series, "name": name, "before": before, "after": after})
    if not lines:
        return None
    middle = len(shares) // 2
    change = " becomes ".join(f"{number(100 * lines[0][key][middle])}%" for key in ("before", "after"))
    title = f"The map: at the edge of the top {share(shares[middle])}, {change}"
    caption = (
        "Predictions after the map, by prediction as served; on the dashed diagonal, a prediction stays as it is. "
        f"Dotted lines: edges of the selected shares. Shaded: the top {share(shares[-1])}."
    )
    return Section("map", title, (), (Figure("map", partial(_map_figure, lines, shares), caption),))


def _map_figure(lines: Sequence[Mapping[str, Any]], shares: Sequence[float], frame: Frame) -> Chart:
    figure, (ax,) = figures.axes_of(frame, frame.height)
    ends = [end for line in lines for key in ("before", "after") for end in (line[key].min(), line[key].max())]
    low, high = max(min(ends), 1e-9), max(ends)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    ax.set(xlabel="prediction as served (log scale)", ylabel="after the map (log scale)")
    ax.grid(visible=True)
    ax.axline((low, low), (high, high), color=LIGHT["rule"], **REFERENCE)
    for line in lines:
        style = {**style_of(line["series"]), "marker": ""}
        ax.plot(line["before"][len(shares) :], line["after"][len(shares) :], **style, label=short(line["name"]))
    edges = lines[0]["before"][: len(shares)]
    ax.axvspan(edges[-1], high, color=LIGHT["grid"], alpha=0.5, lw=0, zorder=0)
    for i, (edge, alpha) in enumerate(zip(edges, shares, strict=True)):
        ax.axvline(edge, color=LIGHT["muted"], lw=1, ls=(0, (1, 3)), zorder=1)
        place = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
        ax.annotate(
            f"top {share(alpha)}",
            (edge, 0),
            xytext=(-3, 5 + 14 * i),
            ha="right",
            color=LIGHT["muted"],
            size=10,
            **place,
        )
    figures.set_log_percent(ax)
    figures.add_legend(ax)
    return figure


def _reliability(results: Results) -> Section:
    """Show observed rates against mean predictions in bins of the largest share."""
    methods, names, first, largest = results.methods, results.names, results.first, results.largest
    header = ["share", "method", "rows", "predicted", "observed (95% interval)"]
    body = [
        [
            name,
            m.name,
            number(one.weight),
            number(one.predicted),
            f"{number(one.observed)} ({number(low)} to {number(high)})",
        ]
        for place, name in enumerate(names)
        for m in methods
        for one in m.evaluation.rows[place].bins
        for low, high in [one.interval]
    ]
    kind = "equal size" if first.strategy == "quantile" else "equal width"
    ece = results.last.evaluation.rows[largest].ece
    prose = (
        f"The average difference between prediction and observed rate over the bins (ECE) of {results.last.name} is "
        f"{number(ece)}; perfect predictions would have {number(ece.floor or 0.0)} on this many rows."
    )
    caption = (
        f"Observed rate against mean prediction in {first.n_bins} bins of {kind}, {names[largest]}, with the 95% "
        "interval of the observed rate. Predictions on the diagonal are right; below it they are too high."
    )
    draw = partial(_reliability_figure, [(m.name, m.evaluation.rows[largest].bins) for m in methods])
    blocks = Figure("reliability", draw, caption), Table("bins", header, body, folded=True)
    return Section("reliability", f"Reliability, {names[largest]}", (prose,), blocks)


def _reliability_figure(binned: Sequence[tuple[str, Sequence[Bin]]], frame: Frame) -> Chart:
    domain = figures.domain_of([end for _, bins in binned for one in bins for end in (one.predicted, *one.interval)])
    figure, (ax,) = figures.axes_of(frame, min(frame.width - 60, 400))
    ax.set(xlim=domain, ylim=domain, aspect="equal", xlabel="predicted", ylabel="observed")
    for series, (name, bins) in enumerate(binned):
        figures.draw_reliability(ax, series, name, bins)
    for axis in (ax.xaxis, ax.yaxis):
        figures.set_ticks(axis, 5, figures.plain)
    figures.add_legend(ax)
    return figure


def _scores(records: Sequence[tuple[str, FitRecord]], served: ScoreSummary | None) -> Section | None:
    """Compare the scores of pools, labeled rows and the evaluated rows with each other and a normal distribution."""
    found: dict[str, ScoreSummary] = {}
    for method, record in records:
        # Labeled rows of a map for the winners of requests need not look like the winners.
        roles = [("pool", record.pool), ("labeled", record.labeled)]
        for role, data in roles if record.top_k is None else [("winners'", record.pool)]:
            if data is not None and data.scores is not None and data.scores not in found.values():
                name = f"{role} scores"
                found[f"{name} of {method}" if name in found else name] = data.scores
    if served is not None:
        found["evaluated scores"] = served
    if not found:
        return None
    (reference, first), *others = found.items()
    sd = first.sd or 1.0
    rows = []
    moved = [
        name for name, one in others
        if abs(one.mean - first.mean) >= _MOVED * sd or not 1 / _SPREAD < one.sd / sd < _SPREAD
    ]  # fmt: skip
    for name, one in found.items():
        shift, spread = f"{(one.mean - first.mean) / sd:+z.2f}", f"{one.sd / sd:.2f}"
        rows.append([name, f"{one.rows:,}", f"{one.mean:z.3f}", f"{one.sd:.3f}", shift, spread, f"{one.distance:.4f}"])
    header = ["scores", "rows", "mean", "standard deviation", "shift", "spread", "distance from normal"]
    prose = (
        f"Shift and spread compare mean and standard deviation with those of the {reference}. From a shift of 0.3 or a "
        "spread of 1.25 on, a map that was fitted on one of them extrapolates on the other. The Kolmogorov–Smirnov "
        "distance from a normal distribution matters to maps with a single λ: they may correct too much if it is "
        "larger than the selected share."
    )
    blocks = (Table("Distributions of scores", header, rows),)
    drift = f"{', '.join(moved)} differ from {reference}" if moved else "the scores are like those of the fit"
    return Section("scores", f"Diagnostics: {drift}", (prose,), blocks, folded=not moved)
