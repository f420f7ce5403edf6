"""Numbers as text, names of selections, the headline, and the result of a fit in words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..debias import FitRecord, RefreshRecord
    from ..metrics import Estimate
    from . import Report

#: Half the width of a 95% interval in standard errors.
Z95 = NormalDist().inv_cdf(0.975)

# Characters that XML 1.0 does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(value: object) -> str:
    r"""Return text without characters that XML does not allow.

    >>> clean("a\x00b\ud800\tλ")
    'a�b�\tλ'
    """
    return _NOT_XML.sub("�", str(value))


def percent(value: float, decimals: int = 1, *, sign: bool = True) -> str:
    """Format a share as a percentage; NaN is "n/a".

    >>> percent(0.1234), percent(-0.004), percent(0.02, sign=False), percent(1e300)
    ('+12.3%', '−0.4%', '2.0%', '+1e+302%')
    """
    if value != value:
        return "n/a"
    return fixed(100 * value, decimals, sign=sign) + "%"


def fixed(value: float, decimals: int, *, sign: bool = False) -> str:
    """Format a number with a fixed number of decimals; a very large one with three digits.

    >>> fixed(-1.5, 2), fixed(0.1, 3, sign=True)
    ('−1.50', '+0.100')
    """
    text = f"{value:{'+' if sign else ''}{'.3g' if abs(value) >= 1e9 else f'.{decimals}f'}}"
    return text.replace("-", "−")


def number(value: float) -> str:
    """Format a number with three digits, or as an integer from 1000 on.

    >>> number(-0.012345), number(1234567.0), number(1e20)
    ('−0.0123', '1,234,567', '1e+20')
    """
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"
    return text.replace("-", "−") if "e" not in text else text


def share(alpha: float) -> str:
    """Format a selected share.

    >>> share(0.02), share(0.125)
    ('2%', '12.5%')
    """
    return f"{100 * alpha:.4g}%"


def short(name: str, limit: int = 22) -> str:
    """Shorten a name for a chart: keep both ends, on one line.

    >>> short("a-very-long-name-of-a-map.json", 15)
    'a-very-…ap.json'
    """
    name = " ".join(clean(name).split())
    head = (limit - 1) // 2
    return name if len(name) <= limit else f"{name[:head]}…{name[head + 1 - limit :]}"


def decimals_for(width: float) -> int:
    """Return how many decimals a percentage with a 95% interval of this width needs."""
    return 2 if width < 0.004 else 1 if width < 0.4 else 0


def interval(value: float, standard_error: float) -> tuple[float, float]:
    """Return the 95% interval."""
    return value - Z95 * standard_error, value + Z95 * standard_error


def error_words(error: Estimate) -> tuple[str, int, str]:
    """Return an error, its sign (0 if it is not significant) and its 95% interval as text."""
    low, high = interval(error, error.standard_error)
    sign = 0 if low <= 0 <= high else 1 if error > 0 else -1
    d = decimals_for(high - low)
    return percent(error, d), sign, f"{percent(low, d)} to {percent(high, d)}"


def by_share(report: Report) -> list[int]:
    """Return positions of the rows of the evaluations, by ascending share."""
    rows = report.methods[0].evaluation.rows
    return sorted(range(len(rows)), key=lambda i: rows[i].alpha)


def selection_name(report: Report, place: int) -> str:
    """Name a selection: "top 2%", "all rows" or, if there is one selection only, its description."""
    rows = report.methods[0].evaluation.rows
    if len(rows) == 1 and report.selection:
        return report.selection
    return "all rows" if rows[place].alpha >= 1 else f"top {share(rows[place].alpha)}"


def the_selection(report: Report, place: int) -> str:
    """Name a selection inside a sentence: "the top 2%"."""
    name = selection_name(report, place)
    article = "" if name.startswith(("all ", "the ")) else "the "
    if not report.selection or name == report.selection:
        return article + name
    within = "all selected rows" if name == "all rows" else f"{article}{name} of the selected rows"
    return f"{within} ({report.selection})"


def has_value(report: Report) -> bool:
    """Tell whether the value of the outcomes is known."""
    return all(method.value is not None for method in report.methods)


@dataclass(frozen=True)
class BigNumber:
    """A number next to the headline, in the colour of its series."""

    series: int
    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Headline:
    """First lines of a page: a sentence in pieces of (style, text), large numbers, and a paragraph."""

    sentence: tuple[tuple[str, str], ...]
    numbers: tuple[BigNumber, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return clean("".join(text for _, text in self.sentence))


def headline(report: Report) -> Headline:
    """Describe the calibration error of the first share that was given, as served and after the first map.

    Outcomes count by their value if it is known. The best of several maps is not reported: its error on the same rows
    is too optimistic.
    """
    valued = has_value(report)
    rows = [(method.value if valued and method.value else method.evaluation).rows for method in report.methods[:2]]
    place = next((i for i in range(len(rows[0])) if all(own[i].observed > 0 for own in rows)), None)
    if place is None:
        return Headline((("text", "No selection has a positive label, so the calibration error is undefined."),))
    served, *after = [error_words(own[place].calibration_error) for own in rows]
    weighted = f"weighted by {report.value_name}, " if valued else ""
    name = report.methods[0].name
    how = name.removeprefix("as served") if name.startswith("as served, ") else ""  # ", corrected for the rate"
    start = f"On {the_selection(report, place)}, {weighted}the scores{how}{',' if how else ''} "
    sentence = [("text", start), *_verdict(served, "95% interval ")]
    if not after:
        return Headline(tuple(sentence), (_big_number(0, "Calibration error", served),))
    first, maps = report.methods[1].name, len(report.methods) - 1
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


def decay_words(record: FitRecord) -> str:
    """Describe how old rows were weighted, and how many rows are left in effect."""
    parts = (("pool", record.pool), ("labelled", record.labelled))
    rows = [f"{data.effective_rows:,.0f} {role}" for role, data in parts if data is not None and data.effective_rows]
    effective = f"; {' and '.join(rows)} rows in effect" if rows else ""
    files = "1 file" if record.half_life == 1 else f"{record.half_life:g} files"
    return f"rows count half after {files}{effective}"


def fit_words(record: FitRecord) -> list[str]:
    """Describe the result of a fit, one line per subject."""
    from ..debias.replica_kinds import KINDS

    lines = [f"why: {record.reason}"] if record.reason else []
    if record.half_life is not None:
        lines.append(decay_words(record))
    shrunk = record.method.startswith("vad") and record.shape == "straight"  # other maps do not shrink by one λ
    if shrunk and record.lambda_ is not None and record.standard_error is not None and record.center is not None:
        shrinkage = f"λ = {record.lambda_:.4f} ± {record.standard_error:.4f}"
        lines.append(f"scores are shrunk towards {record.center:.4f} by {shrinkage}")
    if record.line_probability is not None:
        lines.append(f"probability that the labels follow a straight line: {record.line_probability:.2f}")
    if record.straight_loss is not None:
        selected = record.selected_by == "served"
        rows = "the top 10% to 100% of the labelled rows" if selected else "the top 1% to 10% of the pool"
        differs = f"its mean predictions differ from the curve's by at most {100 * record.straight_loss:.2g}% on {rows}"
        lines.append(f"written as a straight line; {differs}, and by more on lower scores")
    if record.remaining_error:
        spans = [f"{share(e.alpha)}: {100 * e.low:+.1f}% to {100 * e.high:+.1f}%" for e in record.remaining_error]
        level = share(record.remaining_error[0].level)
        unseen = " (errors that all replicas share are not counted)" if record.labelled is None else ""
        expected = f"expected error on the top of this pool, {level} intervals{_measured_map(record)}"
        lines.append(f"{expected}: {', '.join(spans)}{unseen}")
        lines += _shape_words(record)
    elif record.labelled is None and record.replicas in KINDS and KINDS[record.replicas].no_interval:
        lines.append(f"no intervals: {KINDS[record.replicas].no_interval}")
    if record.refreshes:
        lines.append(_refresh_words(record.refreshes[-1]))
    return lines


def _measured_map(record: FitRecord) -> str:
    """Name the map that intervals are about, if it is not the one that was written."""
    if record.straight_loss:
        return " of the curve, not of the straight line"
    return "" if record.group is None else " of the map of all rows, not of each group's"


def _shape_words(record: FitRecord) -> list[str]:
    """Say why intervals do not contain zero: they allow for what these maps do not have."""
    off = any(error.low > 0 or error.high < 0 for error in record.remaining_error)
    if not off or not record.method.startswith("vad"):
        return []
    if record.calibrator is not None:
        why, remedy = "labels and replicas together contradict this map", "use --method auto or tower"
    elif record.method == "vad with curvature":
        why = "one λ does not describe these replicas, and maps by group have no free shape"
        remedy = "pass --labelled, or leave out --group"
    else:
        curvature = "" if record.curvature else "the curvature of the link and "
        why = f"they allow for {curvature}noise that one λ does not describe, and --method vad does not"
        remedy = "use --method auto"
    return [f"intervals without zero: {why}; {remedy}"]


def _refresh_words(last: RefreshRecord) -> str:
    times = "once" if last.number == 1 else f"{last.number:,} times, last"
    changes = [f"{part} {change}" for part, change, _ in refresh_parts(last)] if last.changed else []
    return "; ".join([f"refreshed {times} with {last.rows:,} labelled rows: {last.reason}", *changes])


def refresh_parts(refresh: RefreshRecord) -> list[tuple[str, str, str]]:
    """Describe the changes of a refresh: part, change with its standard error, probability of a change.

    >>> from uncurse.debias import RefreshRecord
    >>> known = {"level": 0.03, "level_error": 0.009, "probabilities": (0.9, 0.1, 0.0)}
    >>> refresh_parts(RefreshRecord(1, 500, 40.0, (), "level", "", True, -2.0, **known))[0]
    ('level', '+3.0% ± 0.9% of the odds', '90%')
    """
    odds = math.exp(min(refresh.level, 700.0))
    level = f"{percent(odds - 1)} ± {percent(odds * refresh.level_error, sign=False)} of the odds"
    slope = f"{percent(refresh.slope)} ± {percent(refresh.slope_error, sign=False)}"
    bent = f"{percent(math.expm1(min(refresh.curve, 700.0)))} of the odds on the top 10%"
    changes = {"level": level, "slope": slope, "curve": bent if refresh.curve else "none"}
    known = [percent(value, 0, sign=False) for value in refresh.probabilities] or [""] * len(changes)
    return [(part, change, value) for (part, change), value in zip(changes.items(), known, strict=True)]
