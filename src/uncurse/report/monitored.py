"""What a monitor saw of a map since its fit: numbers of each day, and the verdict in words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from operator import add

import numpy as np

from ..evidence.decay import check_time
from ..monitoring import Calibration, Verdict
from ..monitoring.sequential import LEVEL, LabelSums, intervals, log_e_values
from ..monitoring.state import Day
from .prose import BigNumber, Headline, decimals_for, number, percent

#: Series of the charts: each day alone, all days since the fit, the scores.
DAILY, RUNNING, SCORES = -1, 1, 2
#: E-value that raises an alarm.
ALARM = 1 / (1 - LEVEL)
#: Largest number of points of a chart: a chart is 640 pixels wide.
MAX_POINTS = 400


@dataclass(frozen=True)
class Monitored:
    """A map, and what `uncurse.monitor` found since it was fitted.

    Parameters
    ----------
    verdict : Verdict
        Result of `uncurse.monitor` or `uncurse.monitoring.judge`.
    name : str, default="the map"
        Name of the map on the page.
    tolerance : float, default=0.0
        Tolerance of the verdict.

    Examples
    --------
    >>> from uncurse import Affine, monitor
    >>> from uncurse.evidence import from_arrays
    >>> Monitored(monitor(Affine(1.0, 0.0), from_arrays([[0.0], [0.0]], [0, 1])), "map.json").name
    'map.json'
    """

    verdict: Verdict
    name: str = "the map"
    tolerance: float = 0.0


@dataclass(frozen=True)
class Point:
    """One day, or several days in a row if there are too many to draw.

    `own` is the 95% interval of these days alone, `sequence` the confidence sequence of all days up to them, `log_e`
    the logarithm of the largest e-value of these days.
    """

    name: str
    time: float  # milliseconds since 1970, UTC
    day: Day
    running: LabelSums
    own: tuple[float, float]
    sequence: tuple[float, float]
    log_e: float


def points(monitored: Monitored) -> list[Point]:
    """Return the days in order of time; more than 400 are added up in equal numbers.

    >>> from uncurse import Affine, monitor
    >>> from uncurse.evidence import from_arrays
    >>> verdict = monitor(Affine(1.0, 0.0), from_arrays([[0.0], [0.0]], [0, 1]), day="2026-11-01")
    >>> [(point.name, point.time) for point in points(Monitored(verdict))]
    [('2026-11-01', 1793491200000.0)]
    """
    state = monitored.verdict.state
    log_e = log_e_values(*state.series(), monitored.tolerance)
    ordered, size = state.ordered, math.ceil(len(state.days) / MAX_POINTS)
    starts = range(0, len(ordered), size)
    blocks = [ordered[i : i + size] for i in starts]
    days = [reduce(add, (day for _, day in block)) for block in blocks]
    running = list(accumulate(day.sums for day in days))
    own, sequence = intervals([day.sums for day in days], LEVEL, fixed=True), intervals(running, LEVEL)
    found = []
    for i, (start, block, day) in enumerate(zip(starts, blocks, days, strict=True)):
        (first, _), (last, _) = block[0], block[-1]
        name = first if first == last else f"{first} to {last}"
        time = 1000 * sum(check_time(end, "the state").timestamp() for end in (first, last)) / 2
        alone, so_far = ((float(low), float(high)) for low, high in (own[i], sequence[i]))
        largest = float(np.max(log_e[start : start + size]))
        found.append(Point(name, time, day, running[i], alone, so_far, largest))
    return found


def days_words(count: int) -> str:
    """Return a number of days.

    >>> days_words(1), days_words(1200)
    ('1 day', '1,200 days')
    """
    return "1 day" if count == 1 else f"{count:,} days"


def span_words(low: float | None, high: float | None) -> str:
    """Return an interval, whose ends may be absent or infinite.

    >>> span_words(-0.012, 0.03), span_words(0.1, None), span_words(-1.0, math.inf)
    ('−1.2% to +3.0%', '+10.0% or more', 'unknown')
    """
    if high is None or high == math.inf:  # an error is never below −100%
        return "unknown" if low is None or low <= -1 else f"{percent(low)} or more"
    if low is None or low <= -1:
        return f"{percent(high)} or less"
    d = decimals_for(high - low)
    return f"{percent(low, d)} to {percent(high, d)}"


def error_text(error: float | None, low: float | None, high: float | None) -> str:
    """Return an error with as many decimals as its interval needs.

    >>> error_text(0.05, -0.3, 0.4), error_text(None, 0.1, None)
    ('+5%', 'undefined')
    """
    if error is None or error != error:
        return "undefined"
    known = low is not None and high is not None and math.isfinite(high - low)
    return percent(error, decimals_for(high - low) if known else 1)  # type: ignore[operator]


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(exponent: int) -> str:
    """Return a power of ten.

    >>> power_of_ten(-1), power_of_ten(3), power_of_ten(12)
    ('0.1', '1,000', '10¹²')
    """
    return f"{10.0**exponent:,g}" if -4 <= exponent <= 4 else "10" + str(exponent).translate(_SUPERSCRIPTS)


def e_value_text(log_e: float) -> str:
    """Return an e-value from its logarithm; from 10,000 on, the power of ten below it.

    >>> e_value_text(math.log(0.1234)), e_value_text(math.log(20)), e_value_text(300.0)
    ('0.123', '20', '10¹³⁰')
    """
    return number(math.exp(log_e)) if log_e < math.log(1e4) else power_of_ten(math.floor(log_e / math.log(10)))


def part_cells(part: Calibration) -> list[str]:
    """Return a row of a table: name, rows, sums, error, confidence sequence and e-value."""
    sums = [number(value) for value in (part.rows, part.predicted, part.observed)]
    error = error_text(part.error, part.low, part.high)
    return [part.name, *sums, error, span_words(part.low, part.high), e_value_text(math.log(part.e_value))]


def headline(monitored: Monitored) -> Headline:
    """Return the decision and its reason, the error since the fit and the evidence against the map."""
    verdict, since = monitored.verdict, monitored.verdict.since_fit
    numbers = (
        BigNumber(
            RUNNING,
            f"Calibration error since the fit ({days_words(verdict.days)})",
            error_text(since.error, since.low, since.high),
            f"95% confidence sequence {span_words(since.low, since.high)}",
        ),
        BigNumber(
            DAILY,
            "Evidence against the map (e-value)",
            e_value_text(math.log(since.e_value)),
            f"{number(ALARM)} raises an alarm; 1 is no evidence",
        ),
    )
    return Headline(sentence(monitored), numbers, meaning(monitored))


def sentence(monitored: Monitored) -> tuple[tuple[str, str], ...]:
    """Return the decision and its reason in pieces of (style, text)."""
    verdict = monitored.verdict
    # The reason has the minus sign of a terminal. Dates and names keep their hyphens.
    reason = re.sub(r"(?<![\w.-])-(?=[\d.]+%)", "−", verdict.reason)
    reason = reason[0].upper() + reason[1:] if reason[0].isascii() else reason
    pieces: list[tuple[str, str]] = [(verdict.decision, f"{verdict.decision.capitalize()} {monitored.name}. ")]
    for piece in re.split(r"( \(95% confidence sequence [^()]*\))", f"{reason}."):
        if piece:
            pieces.append(("aside" if piece.startswith(" (95% confidence sequence") else "text", piece))
    return tuple(pieces)


def meaning(monitored: Monitored) -> str:
    """Say what the verdict means, and what to do."""
    verdict, since = monitored.verdict, monitored.verdict.since_fit
    counts = (
        f"In {days_words(verdict.days)} with {number(since.rows)} rows, {number(since.predicted)} positives were "
        f"predicted and {number(since.observed)} observed."
    )
    accepted = f" Errors of the odds up to {percent(monitored.tolerance, sign=False)} are accepted."
    tolerance = accepted if monitored.tolerance else ""
    if verdict.decision == "refit":
        return (
            f"{counts}{tolerance} Refresh the map with labels from after the change, or fit it again, and start a new "
            "state: the alarm stays until then. A valid map raises it with probability 5% at most, no matter how often "
            "it is checked."
        )
    if verdict.positives_needed:
        more = f"About {number(verdict.positives_needed)} more positives would find or exclude an error of 5%."
    else:
        more = "There are enough labels to find an error of 5%."
    if verdict.decision == "watch":
        return (
            f"{counts}{tolerance} This is no alarm: keep the map in place, look at what changed, and continue to "
            f"monitor. {more}"
        )
    return f"{counts}{tolerance} The map can stay in place. {more}"


def gap(times: list[float]) -> float:
    """Return the usual distance between two points in milliseconds; a day if there is one point."""
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return gaps[len(gaps) // 2] if gaps else 86_400_000.0
