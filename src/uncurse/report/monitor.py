"""`monitor_page`: what a monitor saw of a map since its fit, by day, by range of predictions and by segment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ..methods import Fitted
from ..monitoring import Verdict
from ..monitoring.sequential import (
    ALARM,
    WATCH,
    Calibration,
    e_value,
    e_value_text,
    intervals,
    log_e_values,
    series_of,
)
from ..text import error_and_interval, number, percent
from ..validation import check_time
from . import figures
from .figures import LIGHT, REFERENCE, Chart, Frame, style_of
from .page import BigNumber, Figure, Page, Section, Table, provenance

# Series of the charts: each day alone, all days since the fit, the scores.
_DAILY, _RUNNING, _SCORES = -1, 1, 2
_MOST = 100.0  # of the chart of e-values
_CHANGED = 0.1  # population stability index from which scores are said to have changed
_MAX_DAYS = 400  # of a chart, which is 640 pixels wide
MAX_PARTS = 40  # of a table


def monitor_page(
    verdict: Verdict,
    name: str = "the map",
    fitted: Fitted | None = None,
    facts: Mapping[str, str | Sequence[str]] | None = None,
    next_step: str = "",
) -> Page:
    """Show what a monitor saw of a map since its fit.

    Parameters
    ----------
    verdict : Verdict
        Result of `uncurse.monitor` or `uncurse.monitoring.judge`.
    name : str, default="the map"
        Name of the map on the page.
    fitted : Fitted, optional
        The map and how it was fitted.
    facts : mapping of str to str or sequence of str, optional
        Inputs, versions and the command.
    next_step : str, optional
        What to do next; a command is between backticks.

    Returns
    -------
    Page

    Examples
    --------
    >>> from uncurse import Affine, monitor
    >>> from uncurse.evidence import from_arrays
    >>> verdict = monitor(Affine(1.0, 0.0), from_arrays([[-2.0], [2.0]] * 50, [0, 1] * 50))
    >>> monitor_page(verdict, "map.json").headline[:48]
    'Keep map.json. Its predictions are <0.1% too low'
    """
    days = _days_of(verdict)
    segments = sorted(verdict.segments, key=lambda part: -part.e_value)
    sections = [
        _errors(verdict, days), _evidence(days), _scores(verdict, days),
        _parts("segment", "Segments with the most evidence come first.", segments),
        _parts("range", "Errors of different ranges of predictions can cancel out in the sum.", verdict.buckets),
    ]  # fmt: skip
    return Page(
        title="Calibration since the fit",
        headline=_headline(verdict, name),
        numbers=_numbers(verdict, name),
        sections=[section for section in sections if section is not None],
        facts=provenance(facts, [(name, fitted)]),
        terms="monitor",
        note=_meaning(verdict),
        next_step=next_step or ("refresh the map, or fit it again" if verdict.alarm else ""),
        emphasis=verdict.decision.capitalize(),
        decision=verdict.decision,
    )


def _days_of(verdict: Verdict) -> dict[str, Any]:
    """Return what was seen on the newest days in order of time, as columns."""
    names, days = zip(*verdict.state.ordered, strict=True)
    sums = [day.sums for day in days]
    running, tolerance = list(accumulate(sums)), verdict.state.tolerance or 0.0
    columns = {
        "name": names,
        "time": [check_time(name, "the state").timestamp() / 86_400 for name in names],  # days since 1970, UTC
        "rows": [one.rows for one in sums],
        "predicted": [one.predicted for one in sums],
        "observed": [one.observed for one in sums],
        "error": [one.error for one in sums],
        "interval": intervals(sums, fixed=True),  # of each day
        "total": [one.error for one in running],  # the error of all days so far
        "sequence": intervals(running),  # its confidence sequence
        "e-value": [e_value(one) for one in log_e_values(*series_of(sums), tolerance)],
        "mean": [day.score_mean for day in days],
        "sd": [day.score_sd for day in days],
    }
    return {name: np.array(values)[-_MAX_DAYS:] for name, values in columns.items()}


def _axes_by_day(days: Mapping[str, Any], frame: Frame, height: int, label: str) -> tuple[Chart, Any]:
    """Return a figure with an axis of time in UTC, and its axes."""
    figure, (ax,) = figures.axes_of(frame, height)
    times, names = days["time"], days["name"]
    every = slice(None, None, math.ceil(len(times) / (8 if frame.wide else 4)))
    room = 0.02 * (times[-1] - times[0]) or 1.0
    span = " to ".join(dict.fromkeys((names[0], names[-1])))
    ax.set(xlim=(times[0] - room, times[-1] + room), ylabel=label, xlabel=f"{span}, UTC")
    hours = " %H:%M" if np.any(times % 1) else ""
    labels = [f"{check_time(name, 'the state'):%d %b{hours}}" for name in names[every].tolist()]
    figures.set_labels(ax, times[every], labels)
    return figure, ax


def _draw_days(ax: Any, times: Any, values: Any, series: int, low: Any = None, high: Any = None) -> None:
    """Draw a line with a band; of many points, only the last one has a marker, and of one, the band is a bar."""
    style, every = style_of(series), [len(times) - 1] if len(times) > 40 else None
    ax.plot(times, values, **style, markevery=every, label="since the fit")
    if low is not None:
        ax.fill_between(times, low, high, color=style["color"], alpha=0.16, lw=0)
        if len(times) == 1:
            ax.vlines(times, low, high, color=style["color"], alpha=0.16, lw=40)


def days_words(count: int) -> str:
    """Return a number of days as text."""
    return "1 day" if count == 1 else f"{count:,} days"


def _headline(verdict: Verdict, name: str) -> str:
    """Return the decision, and its reason."""
    if verdict.decision == "watch":
        reason = verdict.reason if verdict.reason.startswith("λ") else verdict.reason[0].upper() + verdict.reason[1:]
        return f"Watch {name}. {reason}."
    about = verdict.wrong_since or verdict.since_fit
    error = "have no positive label to be compared with"
    if about.error is not None:
        error = f"are {percent(abs(about.error), sign=False)} too {'high' if about.error >= 0 else 'low'}"
    if verdict.alarm is not None:
        return f"Alarm: {about.name}, the predictions of {name} {error}."
    return f"Keep {name}. Its predictions {error}{', within noise of the truth' if about.may_be_zero else ''}."


def _numbers(verdict: Verdict, name: str) -> tuple[BigNumber, BigNumber]:
    about = verdict.wrong_since or verdict.since_fit
    error, span = error_and_interval(about.error, about.low, about.high)
    served = _served(about)
    return (
        BigNumber(0 if verdict.alarm else _RUNNING, f"{name}, {about.name}", error, f"95% confidence sequence {span}"),
        BigNumber(_DAILY, f"as served, {about.name}", served, "error of the same rows without the map"),
    )


HEADER = ["rows", "predicted", "observed", "as served", "error", "95% confidence sequence", "e-value"]


def cells_of(part: Calibration) -> list[str]:
    """Return the calibration of some rows as text, in columns as in `HEADER`."""
    counts = [number(part.rows), number(part.predicted), number(part.observed)]
    return [*counts, _served(part), *error_and_interval(part.error, part.low, part.high), e_value_text(part.e_value)]


def _served(part: Calibration) -> str:
    return "undefined" if part.served_error is None else percent(part.served_error)


def _meaning(verdict: Verdict) -> str:
    since, tolerance = verdict.since_fit, verdict.state.tolerance
    text = (
        f"In {days_words(verdict.days)} with {number(since.rows)} rows, {number(since.predicted)} positives were "
        f"predicted and {number(since.observed)} observed."
    )
    text += f" Errors of the odds up to {percent(tolerance, sign=False)} are accepted." if tolerance else ""
    if verdict.alarm is not None:
        return f"{text} The alarm was raised on {verdict.alarm} and stays: start a new state with the next map."
    watch = " This is no alarm: keep the map, and look at what changed." if verdict.decision == "watch" else ""
    return f"{text}{watch} {labels_in_words(verdict)}"


def labels_in_words(verdict: Verdict) -> str:
    """Say how many labels are missing."""
    if verdict.positives_needed:
        return f"About {number(verdict.positives_needed)} more positives would find or exclude an error of 5%."
    return "There are enough labels to find an error of 5%."


def _errors(verdict: Verdict, days: Mapping[str, Any]) -> Section:
    header = ["day", "rows", "predicted", "observed", "error", "95% interval", "since the fit",
              "95% confidence sequence", "e-value", "mean score"]  # fmt: skip
    rows = []
    for values in zip(*days.values(), strict=True):
        day = dict(zip(days, values, strict=True))
        counts = [number(day[key]) for key in ("rows", "predicted", "observed")]
        errors = [
            *error_and_interval(day["error"], *day["interval"]),
            *error_and_interval(day["total"], *day["sequence"]),
        ]
        rows.append([day["name"], *counts, *errors, e_value_text(day["e-value"]), f"{day['mean']:z.3f}"])
    name, _, _, _, error, span, total, sequence, _, _ = rows[-1]
    prose = f"The last day, {name}, has an error of {error} (95% interval {span})"
    if verdict.days > 1:
        prose += f"; all {verdict.days:,} days together have {total} (95% confidence sequence {sequence})"
    caption = (
        "Calibration error by day: sum of predictions over number of positive labels, minus 1. Dots: each day with its "
        "own 95% interval; if the map is valid, one day in 20 misses zero by chance. Line and band: all days since the "
        "fit with their 95% confidence sequence. If the error stays the same, the band covers it on all days with "
        "probability 95%. Errors beyond the axis are drawn at its edge."
    )
    caption += f" The newest {len(rows)} of {verdict.days:,} days are shown." if len(rows) < verdict.days else ""
    blocks = (
        Figure("daily-calibration", partial(_error_figure, days, verdict.alarm), caption),
        Table("calibration by day", header, rows, folded=True),
    )
    return Section("daily-error", "Calibration error by day", (f"{prose}.",), blocks)


def _error_domain(days: Mapping[str, Any]) -> tuple[float, float]:
    """Return the range of errors on all but unusual days, and of the last confidence sequence."""
    unusual, sequence = len(days["time"]) // 20, days["sequence"][-1]
    low, high = np.sort(days["interval"], axis=0)[[unusual, -1 - unusual], [0, 1]]
    ends = np.array([low, high, *sequence, days["total"][-1]])
    bottom, top = figures.domain_of(ends[np.isfinite(ends)].tolist(), zero=True)
    return max(bottom, -1.0), top if math.isfinite(sequence[1]) else max(top, 1.0)


def _error_figure(days: Mapping[str, Any], alarm: str | None, frame: Frame) -> Chart:
    figure, ax = _axes_by_day(days, frame, frame.height, "calibration error")
    low, high = _error_domain(days)
    ax.set_ylim(low, high)
    figures.set_ticks(ax.yaxis, 6, figures.signed_percent)
    times, daily = days["time"], style_of(_DAILY)
    daily_low, daily_high = np.clip(days["interval"], low, high).T
    ax.vlines(times, daily_low, daily_high, color=daily["color"], lw=1, alpha=0.3)
    errors = np.clip(days["error"], low, high)
    ax.plot(times, errors, **{**daily, "ls": "", "ms": 4, "clip_on": False}, label="each day")
    _draw_days(ax, times, np.clip(days["total"], low, high), _RUNNING, *np.clip(days["sequence"], low, high).T)
    ax.axhline(0, color=LIGHT["ink"], lw=1.2, zorder=1)
    for time in times[days["name"] == alarm]:
        ax.axvline(time, color=LIGHT["s0"], **REFERENCE, label=f"alarm, {alarm}")
    figures.add_legend(ax)
    return figure


def _evidence(days: Mapping[str, Any]) -> Section:
    caption = (
        "Evidence of all labels since the fit against the map (e-value), drawn up to 100. It multiplies up day by day, "
        f"and falls below 1 if the labels support the map. A valid map ever reaches {number(ALARM)} with probability "
        "5% at most."
    )
    figure = Figure("evidence", partial(_evidence_figure, days), caption)
    last = e_value_text(float(days["e-value"][-1]))
    return Section("evidence", f"Evidence against the map: {last}", (), (figure,))


def _evidence_figure(days: Mapping[str, Any], frame: Frame) -> Chart:
    figure, ax = _axes_by_day(days, frame, frame.height - 60, "e-value")
    values = np.minimum(days["e-value"], _MOST)
    ax.set(ylim=(0, 1.06 * max(*values, 1.2 * ALARM)))
    ax.set_yticks([0, ALARM, _MOST] if max(values) > 3 * ALARM else [1, WATCH, ALARM])
    ax.yaxis.set_major_formatter(lambda value, _: number(value))
    for value, name, color in ((ALARM, "alarm", LIGHT["s0"]), (WATCH, "watch", LIGHT["muted"])):
        ax.axhline(value, color=color, **REFERENCE)
        place = {"xycoords": ax.get_yaxis_transform(), "xytext": (4, 3), "textcoords": "offset points"}
        ax.annotate(name, (0, value), color=color, **place)
    _draw_days(ax, days["time"], values, _RUNNING)
    return figure


def changes_in_words(verdict: Verdict) -> list[str]:
    """Describe the changes of the scores and of λ."""
    words = []
    if (change := verdict.scores) is not None:
        words.append(
            f"Against the {change.reference}, the mean of the newest scores moved by {change.mean:+z.2f} standard "
            f"deviations and their spread is {change.spread:.2f} times as large; the population stability index, a "
            f"measure of their distance, is {change.stability:.3f} (above 0.1: changed)."
        )
    if (moved := verdict.shrinkage) is not None:
        errors = f"{moved.standard_errors:+z.1f} standard errors"
        words.append(f"λ went from {moved.before:.3f} at the fit to {moved.after:.3f}, {errors}.")
    return words


def _scores(verdict: Verdict, days: Mapping[str, Any]) -> Section:
    caption = (
        "Mean of the served scores of the labeled rows of each day, as logits before the map; band: one standard "
        "deviation on either side. A change shows that the rows differ from earlier ones, before labels can tell."
    )
    figure = Figure("daily-scores", partial(_score_figure, days), caption)
    folded = verdict.shrinkage is None and (verdict.scores is None or verdict.scores.stability <= _CHANGED)
    title = "Served scores by day: no change" if folded else "Served scores by day"
    return Section("served-scores", title, changes_in_words(verdict), (figure,), folded=folded)


def _score_figure(days: Mapping[str, Any], frame: Frame) -> Chart:
    figure, ax = _axes_by_day(days, frame, frame.height - 60, "score (logit)")
    mean, low, high = days["mean"], days["mean"] - days["sd"], days["mean"] + days["sd"]
    ax.set_ylim(figures.domain_of([*low, *high]))
    figures.set_ticks(ax.yaxis, 5, figures.plain)
    _draw_days(ax, days["time"], mean, _SCORES, low, high)
    return figure


def _parts(kind: str, remark: str, parts: Sequence[Calibration]) -> Section | None:
    if not parts:
        return None
    rows = [[part.name, *cells_of(part)] for part in parts[:MAX_PARTS]]
    prose = (
        f"{remark} With {len(parts):,} {kind}s, an e-value of {number(ALARM * len(parts))} or more is evidence of an "
        "error: the largest of several is larger by chance."
    )
    which = f"{len(rows)} of {len(parts):,} {kind}s"
    wrong = [part.name for part in parts if part.e_value >= ALARM * len(parts)]
    title = f"By {kind}: {'errors in ' + ', '.join(wrong[:3]) if wrong else 'no evidence of an error'}"
    table = Table(f"Calibration by {kind}, {which}", [kind, *HEADER], rows)
    return Section(f"{kind}s", title, (prose,), (table,), folded=not wrong and kind == "range")
