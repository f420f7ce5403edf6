"""Sections about a map since its fit: calibration by day, evidence, served scores, ranges and groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..monitoring import Calibration
from . import figures
from .monitored import (
    ALARM,
    DAILY,
    RUNNING,
    Monitored,
    Point,
    days_words,
    e_value_text,
    error_text,
    meaning,
    part_cells,
    points,
    sentence,
    span_words,
)
from .page import Figure, Heading, Section, Table
from .prose import fixed, number

#: Largest number of groups in the table.
MAX_GROUPS = 40


def sections(monitored: Monitored) -> list[Section]:
    """Return a section for each subject."""
    found = points(monitored)
    parts = [_errors(monitored, found), _evidence(monitored, found), _scores(monitored, found)]
    if monitored.verdict.buckets:
        parts.append(_ranges(monitored.verdict.buckets))
    if monitored.verdict.groups:
        parts.append(_groups(monitored.verdict.groups))
    return parts


def section(monitored: Monitored) -> Section:
    """Return the same as one section, which begins with the verdict."""
    verdict = "".join(text for _, text in sentence(monitored))
    blocks: list[Any] = []
    for one in sections(monitored):
        blocks += [Heading(one.title, one.prose), *one.blocks]
    source = "The verdict is from these days; uncurse monitor --pool also compares the scores and λ with the fit."
    return Section("since-fit", "Since the fit", (verdict, meaning(monitored), source), tuple(blocks))


def _blocks_words(found: Sequence[Point], days: int) -> str:
    return "" if len(found) == days else f" There are {days:,} days: each point adds up several of them."


# ---------------------------------------------------------------------------- calibration by day


def _errors(monitored: Monitored, found: Sequence[Point]) -> Section:
    since, last = monitored.verdict.since_fit, found[-1]
    own = error_text(last.day.sums.error, *last.own)
    prose = (
        f"The last day, {last.name}, has an error of {own} (95% interval {span_words(*last.own)}); all "
        f"{days_words(monitored.verdict.days)} together have {error_text(since.error, since.low, since.high)} (95% "
        f"confidence sequence {span_words(since.low, since.high)})."
        if monitored.verdict.days > 1
        else f"The only day, {last.name}, has an error of {own}. Its 95% interval is {span_words(*last.own)}; the "
        f"confidence sequence, which stays valid as days are added, is {span_words(since.low, since.high)}."
    )
    caption = (
        "Sum of predictions over number of positive labels, minus 1. Dots: each day with its own 95% interval; if "
        "the map is valid, one day in 20 misses zero by chance. Line and band: all days since the fit with their 95% "
        "confidence sequence. If the error stays the same, the band covers it on all days with probability 95%."
    ) + _blocks_words(found, monitored.verdict.days)
    domain = figures.error_domain(found)
    outside = sum(not domain[0] <= point.day.sums.error <= domain[1] for point in found if point.day.sums.observed)
    if outside:
        caption += f" Triangles: {days_words(outside)} outside of the axis."
    draw = partial(figures.error_figure, found, monitored.verdict.alarm)
    label = f"Calibration error by day since the fit. {prose}"
    legend = ((DAILY, "each day, 95% interval"), (RUNNING, "since the fit, 95% confidence sequence"))
    header = ["day", "rows", "predicted", "observed", "error", "95% interval", "since the fit",
              "95% confidence sequence", "e-value"]  # fmt: skip
    rows = [
        [
            point.name, *(number(getattr(point.day.sums, name)) for name in ("rows", "predicted", "observed")),
            error_text(point.day.sums.error, *point.own), span_words(*point.own),
            error_text(point.running.error, *point.sequence), span_words(*point.sequence),
            e_value_text(point.log_e),
        ]
        for point in found
    ]  # fmt: skip
    blocks = (
        Figure("daily-calibration", draw, label, caption, legend, always=True),
        Table("calibration by day", header, rows, folded=True),
    )
    return Section("daily-error", "Calibration error by day", (prose,), blocks)


# ---------------------------------------------------------------------------- evidence


def _evidence(monitored: Monitored, found: Sequence[Point]) -> Section:
    verdict = monitored.verdict
    now = f"The e-value is {e_value_text(math.log(verdict.since_fit.e_value))}"
    if verdict.alarm is not None:
        prose = f"{now}. It reached {number(ALARM)} on {verdict.alarm}, which raised the alarm."
    else:
        prose = f"{now}; it has not reached {number(ALARM)}, which would raise an alarm."
    caption = (
        "Evidence of all labels since the fit against the map, on a log scale. It multiplies up day by day, and falls "
        f"below 1 if the labels support the map. A valid map ever reaches {number(ALARM)} with probability 5% at most."
    )
    label = f"Evidence against the map by day, as e-values on a log scale. {prose}"
    return Section(
        "evidence", "Evidence against the map", (prose,),
        (Figure("evidence", partial(figures.evidence_figure, found), label, caption),),
    )  # fmt: skip


# ---------------------------------------------------------------------------- served scores


def _scores(monitored: Monitored, found: Sequence[Point]) -> Section:
    verdict, first, last = monitored.verdict, found[0].day, found[-1].day
    prose = []
    if len(found) > 1:
        prose.append(
            f"The mean went from {fixed(first.score_mean, 2)} on the first day to {fixed(last.score_mean, 2)} on the "
            f"last, the standard deviation from {fixed(first.score_sd, 2)} to {fixed(last.score_sd, 2)}."
        )
    else:
        prose.append(f"The mean is {fixed(last.score_mean, 2)}, the standard deviation {fixed(last.score_sd, 2)}.")
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
        "Mean of the served scores of the labelled rows of each day, as logits before the map; band: one standard "
        "deviation on either side. A change shows that the rows differ from earlier ones, before labels can tell."
    ) + _blocks_words(found, verdict.days)
    rows = [[p.name, fixed(p.day.score_mean, 4), fixed(p.day.score_sd, 4)] for p in found]
    label = f"Mean and standard deviation of the served scores by day. {prose[0]}"
    blocks = (
        Figure("daily-scores", partial(figures.score_figure, found), label, caption),
        Table("scores by day", ["day", "mean", "standard deviation"], rows, folded=True),
    )
    return Section("served-scores", "Served scores by day", tuple(prose), blocks)


# ---------------------------------------------------------------------------- ranges and groups

_HEADER = ["rows", "predicted", "observed", "error", "95% confidence sequence", "e-value"]


def _ranges(parts: Sequence[Calibration]) -> Section:
    prose = (
        "Calibration since the fit by range of the prediction. Errors of different ranges can cancel out in the sum. "
        f"{_level_words(len(parts), 'range')}"
    )
    table = Table("Calibration by range of the prediction", ["prediction", *_HEADER], [part_cells(p) for p in parts])
    return Section("ranges", "By range of the prediction", (prose,), (table,))


def _groups(parts: Sequence[Calibration]) -> Section:
    shown = sorted(parts, key=lambda part: -part.e_value)[:MAX_GROUPS]
    which = f"all {len(parts)} groups" if len(shown) == len(parts) else f"{len(shown)} of {len(parts):,} groups"
    prose = f"Calibration since the fit by group, most evidence first. {_level_words(len(parts), 'group')}"
    table = Table(f"Calibration by group, {which}", ["group", *_HEADER], [part_cells(part) for part in shown])
    return Section("groups", "By group", (prose,), (table,))


def _level_words(count: int, kind: str) -> str:
    if count == 1:
        return f"An e-value of {number(ALARM)} or more is evidence of an error."
    return (
        f"The more {kind}s, the larger the largest e-value is by chance: of {count:,} {kind}s, {number(ALARM * count)} "
        "or more is evidence of an error."
    )
