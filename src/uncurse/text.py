"""Numbers and tables as text: aligned for a terminal, and in HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from statistics import NormalDist

_Z = NormalDist().inv_cdf(0.975)


def interval(value: float, standard_error: float) -> tuple[float, float]:
    """Return the 95% interval."""
    return value - _Z * standard_error, value + _Z * standard_error


def percent(value: float, decimals: int = 1, *, sign: bool = True) -> str:
    """Format a share as a percentage.

    >>> percent(0.1234), percent(-0.0004), percent(0.02, sign=False), percent(0.0004, sign=False)
    ('+12.3%', '0%', '2.0%', '<0.1%')
    """
    rounded = round(100 * value, decimals)
    if not rounded:
        return "0%" if sign or not value else f"<{10**-decimals:g}%"
    return f"{rounded:{'+' if sign else ''},.{decimals}f}%"


def share(alpha: float) -> str:
    """Format a selected share.

    >>> share(0.02), share(0.125)
    ('2%', '12.5%')
    """
    return f"{100 * alpha:.4g}%"


def number(value: float) -> str:
    """Format a number with four digits, or as an integer from 1000 on.

    >>> number(-0.0123456), number(1234567.0)
    ('-0.01235', '1,234,567')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def error_and_interval(error: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Return an error and its interval, with as many decimals as the interval needs.

    The ends of the interval may be absent or infinite; an error is never below -100%.

    >>> error_and_interval(0.123, 0.103, 0.143), error_and_interval(None, -1.0, None)
    (('+12.3%', '+10.3% to +14.3%'), ('undefined', 'unknown'))
    """
    low, high = -1.0 if low is None else low, math.inf if high is None else high
    decimals = 2 if high - low < 0.004 else 1 if high - low < 0.4 else 0
    ends = [percent(low, decimals)] if low > -1 else []
    ends += [percent(high, decimals)] if high < math.inf else []
    span = " to ".join(ends) or "unknown"
    if len(ends) == 1:
        span += " or more" if low > -1 else " or less"
    return "undefined" if error is None or math.isnan(error) else percent(error, decimals), span


def probability(value: float | None) -> str:
    """Return a probability as a percentage; below 1% and above 99% more digits say nothing.

    It is rounded towards 50%, so that none below a limit of whole percents is printed as the limit.

    >>> probability(0.876), probability(0.9499), probability(0.9999), probability(None)
    ('87%', '94%', '>99%', 'unknown')
    """
    if value is None:
        return "unknown"
    whole = (math.floor if value > 0.5 else math.ceil)(round(100 * value, 6))
    return ">99%" if value > 0.99 else "<1%" if value < 0.01 else f"{whole}%"


def aligned(table: Sequence[Sequence[str]], *, left: int = 1, gap: int = 2) -> list[str]:
    """Return the lines of a table with `left` columns aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def html_table(table: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return a table as HTML for a notebook; all text is escaped.

    >>> html_table([("top", "error"), ("2%", "<1%")])
    '<table><tr><th>top</th><th>error</th></tr><tr><td>2%</td><td>&lt;1%</td></tr></table>'
    """

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    header, *rows = table
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{row(header, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"
