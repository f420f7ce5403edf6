"""`monitor_page`: what a monitor saw of a map since its fit, by day, by range of predictions and by segment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from .._types import Array
from ..evidence.decay import check_time
from ..methods import Fitted
from ..monitoring import Verdict
from ..monitoring.sequential import LEVEL, Calibration, LabelSums, intervals, log_e_values
from ..monitoring.state import Day
from . import figures
from .figures import LIGHT, REFERENCE, Frame, style_of
from .page import BigNumber, Figure, Headline, Page, Section, Table, provenance
from .prose import error_text, fixed, number, percent, span_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Chart

# Series of the charts: each day alone, all days since the fit, the scores.
_DAILY, _RUNNING, _SCORES = -1, 1, 2
_ALARM, _WATCH = 1 / (1 - LEVEL), 5.0  # e-values
_MOST = 1e6  # larger e-values say nothing more
_MAX_DAYS = 400  # of a chart, which is 640 pixels wide
_MAX_PARTS = 40  # of a table


def monitor_page(
    verdict: Verdict,
    name: str = "the map",
    tolerance: float = 0.0,
    fitted: Fitted | None = None,
    facts: Mapping[str, str | Sequence[str]] | None = None,
    *,
    title: str = "Calibration since the fit",
) -> Page:
    """Show what a monitor saw of a map since its fit.

    Parameters
    ----------
    verdict : Verdict
        Result of `uncurse.monitor` or `uncurse.monitoring.judge`.
    name : str, default="the map"
        Name of the map on the page.
    tolerance : float, default=0.0
        Tolerance of the verdict.
    fitted : Fitted, optional
        The map and how it was fitted.
    facts : mapping of str to str or sequence of str, optional
        Inputs, versions and the command.
    title : str
        Title of the page.

    Returns
    -------
    Page

    Examples
    --------
    >>> from uncurse import Affine, monitor
    >>> from uncurse.evidence import from_arrays
    >>> verdict = monitor(Affine(1.0, 0.0), from_arrays([[-2.0], [2.0]] * 50, [0, 1] * 50))
    >>> str(monitor_page(verdict, "map.json").headline)[:47]
    'Keep map.json. No evidence against the map: pre'
    """
    days = _days_of(verdict, tolerance)
    found = [
        _errors(verdict, days), _evidence(verdict, days), _scores(verdict, days),
        _parts("range", "Errors of different ranges can cancel out in the sum.", verdict.buckets),
        _parts("segment", "Most evidence first.", sorted(verdict.segments, key=lambda part: -part.e_value)),
    ]  # fmt: skip
    sections = tuple(section for section in found if section is not None)
    made = provenance(facts, [(name, fitted)])
    return Page(title, _headline(verdict, name, tolerance), sections, made, ("monitor",))


# ---------------------------------------------------------------------------- days


@dataclass(frozen=True)
class _Days:
    """The newest days in order of time."""

    names: list[str]
    times: Array  # in days since 1970, UTC
    days: list[Day]
    running: list[LabelSums]  # of all days so far
    own: Array  # 95% interval of each day
    sequence: Array  # confidence sequence of all days so far
    log_e: Array


def _days_of(verdict: Verdict, tolerance: float) -> _Days:
    ordered = verdict.state.ordered
    running = list(accumulate(day.sums for _, day in ordered))[-_MAX_DAYS:]
    log_e = log_e_values(*verdict.state.series(), tolerance)[-_MAX_DAYS:]
    names, days = [name for name, _ in ordered[-_MAX_DAYS:]], [day for _, day in ordered[-_MAX_DAYS:]]
    times = np.array([check_time(name, "the state").timestamp() for name in names]) / 86_400
    own = intervals([day.sums for day in days], LEVEL, fixed=True)
    return _Days(names, times, days, running, own, intervals(running, LEVEL), log_e)


def _axes_by_day(found: _Days, frame: Frame, height: int, label: str) -> tuple[Chart, Any]:
    """Return a figure with an axis of time in UTC, and its axes."""
    figure, (ax,) = figures.axes_of(frame, height)
    times, shown = found.times, slice(None, None, math.ceil(len(found.times) / (8 if frame.wide else 4)))
    room = 0.02 * (times[-1] - times[0]) or 1.0
    span = " to ".join(dict.fromkeys((found.names[0], found.names[-1])))
    ax.set(xlim=(times[0] - room, times[-1] + room), ylabel=label, xlabel=f"{span}, UTC")
    hours = " %H:%M" if np.any(times % 1) else ""
    labels = [f"{datetime.fromtimestamp(86_400 * time, UTC):%d %b{hours}}" for time in times[shown]]
    figures.set_labels(ax, times[shown].tolist(), labels)
    return figure, ax


def _draw_days(ax: Any, found: _Days, values: Any, series: int, low: Any = None, high: Any = None) -> None:
    """Draw a line with a band; of many points, only the last one has a marker, and of one, the band is a bar."""
    style, every = style_of(series), [len(found.times) - 1] if len(found.times) > 40 else None
    ax.plot(found.times, values, **style, markevery=every, label="since the fit")
    if low is not None:
        ax.fill_between(found.times, low, high, color=style["color"], alpha=0.16, lw=0)
        if len(found.times) == 1:
            ax.vlines(found.times, low, high, color=style["color"], alpha=0.16, lw=40)


# ---------------------------------------------------------------------------- numbers


def _days_words(count: int) -> str:
    return "1 day" if count == 1 else f"{count:,} days"


def _e_value_text(value: float) -> str:
    return number(value) if value < _MOST else "over a million"


# ---------------------------------------------------------------------------- headline


def _headline(verdict: Verdict, name: str, tolerance: float) -> Headline:
    """Return the decision and its reason, the error that it is about and the evidence against the map."""
    about = verdict.wrong_since or verdict.since_fit
    error, span = error_text(about.error, about.low, about.high), span_words(about.low, about.high)
    series, evidence = 0 if verdict.alarm else _RUNNING, _e_value_text(verdict.since_fit.e_value)
    note = f"{number(_ALARM)} raises an alarm; 1 is no evidence"
    numbers = (
        BigNumber(series, f"Calibration error {about.name}", error, f"95% confidence sequence {span}"),
        BigNumber(_DAILY, "Evidence against the map (e-value)", evidence, note),
    )
    reason = verdict.reason if verdict.reason.startswith("λ") else verdict.reason[0].upper() + verdict.reason[1:]
    sentence = ((verdict.decision, f"{verdict.decision.capitalize()} {name}. "), ("text", f"{reason}."))
    return Headline(sentence, numbers, _meaning(verdict, tolerance))


def _meaning(verdict: Verdict, tolerance: float) -> str:
    """Say what the verdict means, and what to do."""
    since = verdict.since_fit
    text = (
        f"In {_days_words(verdict.days)} with {number(since.rows)} rows, {number(since.predicted)} positives were "
        f"predicted and {number(since.observed)} observed."
    )
    text += f" Errors of the odds up to {percent(tolerance, sign=False)} are accepted." if tolerance else ""
    if verdict.alarm is not None:
        return (
            f"{text} Refresh the map with labels from after the change, or fit it again, and start a new state: the "
            "alarm stays until then. A valid map raises it with probability 5% at most, no matter how often it is "
            "checked."
        )
    more = "There are enough labels to find an error of 5%."
    if verdict.positives_needed:
        more = f"About {number(verdict.positives_needed)} more positives would find or exclude an error of 5%."
    if verdict.decision == "keep":
        return f"{text} The map can stay in place. {more}"
    return f"{text} This is no alarm: keep the map in place, look at what changed, and continue to monitor. {more}"


# ---------------------------------------------------------------------------- calibration by day


def _errors(verdict: Verdict, found: _Days) -> Section:
    rows = [
        [
            name, *(number(getattr(day.sums, amount)) for amount in ("rows", "predicted", "observed")),
            error_text(day.sums.error, *own), span_words(*own), error_text(running.error, *sequence),
            span_words(*sequence), _e_value_text(math.exp(min(log_e, 700.0))), fixed(day.score_mean, 3),
        ]
        for name, day, own, running, sequence, log_e in zip(
            found.names, found.days, found.own, found.running, found.sequence, found.log_e, strict=True
        )
    ]  # fmt: skip
    name, *_, error, span, total, sequence, _, _ = rows[-1]
    prose = (
        f"The last day, {name}, has an error of {error} (95% interval {span}); all {_days_words(verdict.days)} "
        f"together have {total} (95% confidence sequence {sequence}, which stays valid as days are added)."
    )
    caption = (
        "Sum of predictions over number of positive labels, minus 1. Dots: each day with its own 95% interval; if "
        "the map is valid, one day in 20 misses zero by chance. Line and band: all days since the fit with their 95% "
        "confidence sequence. If the error stays the same, the band covers it on all days with probability 95%. Errors "
        "beyond the axis are drawn at its edge."
    )
    caption += f" The newest {len(rows)} of {verdict.days:,} days are shown." if len(rows) < verdict.days else ""
    header = ["day", "rows", "predicted", "observed", "error", "95% interval", "since the fit",
              "95% confidence sequence", "e-value", "mean score"]  # fmt: skip
    label = f"Calibration error by day since the fit. {prose}"
    blocks = (
        Figure("daily-calibration", partial(_error_figure, found, verdict.alarm), label, caption),
        Table("calibration by day", header, rows, folded=True),
    )
    return Section("daily-error", "Calibration error by day", (prose,), blocks)


def _error_domain(found: _Days) -> tuple[float, float]:
    """Return the range of errors on all but unusual days, and of the last confidence sequence."""
    q = 0.05 if len(found.times) >= 10 else 0.0
    low, high = np.quantile(found.own[:, 0], q, method="higher"), np.quantile(found.own[:, 1], 1 - q, method="lower")
    ends = np.array([low, high, *found.sequence[-1], found.running[-1].error])
    bottom, top = figures.domain_of(ends[np.isfinite(ends)].tolist(), zero=True)
    return max(bottom, -1.0), top if math.isfinite(found.sequence[-1, 1]) else max(top, 1.0)


def _error_figure(found: _Days, alarm: str | None, frame: Frame) -> Chart:
    """Return the error of each day with its interval, and of all days with their confidence sequence."""
    figure, ax = _axes_by_day(found, frame, frame.height, "calibration error")
    low, high = _error_domain(found)
    ax.set_ylim(low, high)
    figures.set_ticks(ax.yaxis, 6, figures.signed_percent)
    daily, many = style_of(_DAILY), len(found.times) > 40
    ax.vlines(found.times, *np.clip(found.own, low, high).T, color=daily["color"], lw=1, alpha=0.2 if many else 0.5)
    errors = np.clip([day.sums.error for day in found.days], low, high)
    ax.plot(found.times, errors, **{**daily, "ls": "", "ms": 3 if many else 6, "clip_on": False}, label="each day")
    running = np.clip([sums.error for sums in found.running], low, high)
    _draw_days(ax, found, running, _RUNNING, *np.clip(found.sequence, low, high).T)
    ax.axhline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
    if alarm in found.names:
        ax.axvline(found.times[found.names.index(alarm)], color=LIGHT["s0"], **REFERENCE, label=f"alarm, {alarm}")
    figures.add_legend(ax)
    return figure


# ---------------------------------------------------------------------------- evidence


def _evidence(verdict: Verdict, found: _Days) -> Section:
    prose = f"The e-value is {_e_value_text(verdict.since_fit.e_value)}"
    if verdict.alarm is not None:
        prose += f". It reached {number(_ALARM)} on {verdict.alarm}, which raised the alarm."
    else:
        prose += f"; it has not reached {number(_ALARM)}, which would raise an alarm."
    caption = (
        "Evidence of all labels since the fit against the map, on a log scale up to a million. It multiplies up day by "
        f"day, and falls below 1 if the labels support the map. A valid map ever reaches {number(_ALARM)} with "
        "probability 5% at most."
    )
    label = f"Evidence against the map by day, as e-values on a log scale. {prose}"
    figure = Figure("evidence", partial(_evidence_figure, found), label, caption)
    return Section("evidence", "Evidence against the map", (prose,), (figure,))


def _evidence_figure(found: _Days, frame: Frame) -> Chart:
    """Return the e-value after each day on a log scale, with the lines of "watch" and of the alarm."""
    figure, ax = _axes_by_day(found, frame, frame.height - 60, "e-value")
    values = np.exp(np.clip(found.log_e, -math.log(_MOST), math.log(_MOST)))
    ax.set(yscale="log", ylim=(0.7 * min(*values, 0.2), 1.5 * max(*values, 50.0)))
    ax.yaxis.set_major_formatter(lambda value, _: number(value))
    ax.minorticks_off()
    for value, name, color in ((_ALARM, "alarm", LIGHT["s0"]), (_WATCH, "watch", LIGHT["muted"])):
        ax.axhline(value, color=color, **REFERENCE)
        place = {"xycoords": ax.get_yaxis_transform(), "xytext": (4, 3), "textcoords": "offset points"}
        ax.annotate(f"{number(value)}: {name}", (0, value), color=color, **place)
    _draw_days(ax, found, values, _RUNNING)
    return figure


# ---------------------------------------------------------------------------- served scores


def _scores(verdict: Verdict, found: _Days) -> Section:
    first, last = found.days[0], found.days[-1]
    prose = [
        f"The mean went from {fixed(first.score_mean, 2)} on the first day to {fixed(last.score_mean, 2)} on the last, "
        f"the standard deviation from {fixed(first.score_sd, 2)} to {fixed(last.score_sd, 2)}."
    ]
    if verdict.scores is not None:
        change = verdict.scores
        prose.append(
            f"Against the {change.reference}, the mean of the newest scores moved by "
            f"{fixed(change.mean, 2, sign=True)} standard deviations and their spread is {fixed(change.spread, 2)} "
            f"times as large; the population stability index is {fixed(change.stability, 3)} (above 0.1: changed)."
        )
    if verdict.shrinkage is not None:
        moved = verdict.shrinkage
        prose.append(
            f"λ went from {fixed(moved.before, 3)} at the fit to {fixed(moved.after, 3)}, "
            f"{fixed(moved.standard_errors, 1, sign=True)} standard errors."
        )
    caption = (
        "Mean of the served scores of the labeled rows of each day, as logits before the map; band: one standard "
        "deviation on either side. A change shows that the rows differ from earlier ones, before labels can tell."
    )
    label = f"Mean and standard deviation of the served scores by day. {prose[0]}"
    figure = Figure("daily-scores", partial(_score_figure, found), label, caption)
    return Section("served-scores", "Served scores by day", tuple(prose), (figure,))


def _score_figure(found: _Days, frame: Frame) -> Chart:
    """Return the mean of the scores of each day, with one standard deviation on either side."""
    figure, ax = _axes_by_day(found, frame, frame.height - 60, "score (logit)")
    mean, sd = np.array([(day.score_mean, day.score_sd) for day in found.days]).T
    ax.set_ylim(figures.domain_of([*(mean - sd), *(mean + sd)], zero=False))
    figures.set_ticks(ax.yaxis, 5, figures.plain)
    _draw_days(ax, found, mean, _SCORES, mean - sd, mean + sd)
    return figure


# ---------------------------------------------------------------------------- ranges and segments


def _parts(kind: str, remark: str, parts: Sequence[Calibration]) -> Section | None:
    """Return the calibration of ranges of the prediction or of segments as a table."""
    if not parts:
        return None
    rows = [
        [
            part.name, number(part.rows), number(part.predicted), number(part.observed),
            error_text(part.error, part.low, part.high), span_words(part.low, part.high), _e_value_text(part.e_value),
        ]
        for part in parts[:_MAX_PARTS]
    ]  # fmt: skip
    prose = (
        f"Calibration since the fit by {kind}. {remark} The more {kind}s, the larger the largest e-value is by chance: "
        f"of {len(parts):,}, {number(_ALARM * len(parts))} or more is evidence of an error."
    )
    which = f"{len(rows)} of {len(parts):,} {kind}s"
    header = [kind, "rows", "predicted", "observed", "error", "95% confidence sequence", "e-value"]
    return Section(f"{kind}s", f"By {kind}", (prose,), (Table(f"Calibration by {kind}, {which}", header, rows),))
