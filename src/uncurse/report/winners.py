"""`winner_page`: the best of many candidates, observed and corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..text import probability
from ..winners import Winner, Winners
from . import figures
from .figures import LIGHT, Chart, Frame, style_of
from .page import BigNumber, Figure, Page, Section, Table, provenance
from .prose import number, short

_MOST = 40  # lines of a figure
_LISTED = 1000  # rows of a table


def winner_page(found: Winner | Winners, facts: Mapping[str, str | Sequence[str]] | None = None) -> Page:
    """Show the observed and the corrected values of the candidates, or of the winner of each group.

    Parameters
    ----------
    found : Winner or Winners
        Result of `uncurse.winner`.
    facts : mapping of str to str or sequence of str, optional
        Inputs, versions and the command.

    Returns
    -------
    Page

    Examples
    --------
    >>> from uncurse import winner
    >>> print(winner_page(winner([2.0, 1.0, 0.0], standard_error=1.0, names=["a", "b", "c"])).headline)
    a is the best of 3, with observed value 2. Its expected value is 1.28 (90% interval 0.126 to 2.77).
    """
    if isinstance(found, Winners):
        count, impact, frame = len(found), found.impact(), found.to_frame()
        observed, estimate = impact.observed / count, impact.estimate / count
        low, high = (number(end / count) for end in impact.interval())
        loss, best = (float(frame[key].to_numpy().mean()) for key in ("expected_loss", "probability_best"))
        title, what, who = f"The winners of {count:,} groups", "the winner of each group", "a winner, on average,"
        headline = f"{title} have a mean observed value of {number(observed)}. Their expected mean is "
        reason = "All groups share the distribution of their true values, and each group has its own center."
        frame = frame.select(frame["group"] + ": " + frame["winner"], *frame.columns[2:])
    else:
        (low, high), loss, best = map(number, found.interval()), found.expected_loss, found.probability_best
        count, observed, estimate, reason = len(found.names), found.observed, found.estimate, found.reason
        title, what, who = f"The best of {count:,} candidates", "all candidates", found.name
        headline = f"{who} is the best of {count:,}, with observed value {number(observed)}. Its expected value is "
        frame = found.to_frame().sort("observed", descending=bool(observed >= found.observations.mean()))
    numbers = [
        BigNumber(0, "Observed", number(observed), "before correction"),
        BigNumber(1, "Corrected", number(estimate), f"90% interval {low} to {high}"),
    ]
    lines = frame.rows()
    rows = [
        [
            name,
            number(value),
            f"{number(corrected)}\n{number(start)} to {number(end)}",
            probability(best),
            *map(number, loss),
        ]
        for name, value, corrected, start, end, best, *loss in lines[:_LISTED]
    ]
    header = ["candidate", "observed", "corrected", *(column.replace("_", " ") for column in frame.columns[5:])]
    shown = what if len(lines) <= _MOST else f"the first {_MOST} of {len(lines):,}"
    figure = Figure("forest", partial(_forest, lines), f"Observed and corrected values with 90% intervals, {shown}.")
    ship = (
        f"The probability that {who} is the best candidate is {probability(best)}. The best candidate is expected to "
        f"be better by {number(loss)}: more data can gain this at most."
    )
    table = Table(f"Values of {what}", header, rows)
    sections = [
        Section("values", "Observed and corrected values", (reason,), (figure,)),
        Section("loss", "What is lost by shipping the winner?", (ship,), (table,)),
    ]
    headline += f"{number(estimate)} (90% interval {low} to {high})."
    return Page(title, headline, numbers, sections, provenance(facts, []), "winner")


def _forest(lines: Sequence[Sequence[Any]], frame: Frame) -> Chart:
    """Draw the observed value, the corrected value and its interval of each candidate on a line."""
    lines = lines[:_MOST]
    figure, (ax,) = figures.axes_of(frame, 24 * len(lines) + 20)
    ends = [value for line in lines for value in line[1:5]]
    ax.set(xlim=figures.domain_of(ends), ylim=(len(lines) - 0.5, -0.5))
    figures.set_ticks(ax.xaxis, 5, figures.plain)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.set_yticks(range(len(lines)), [short(line[0], 30 if frame.wide else 16) for line in lines], color=LIGHT["ink"])
    observed, corrected = ({**style_of(series), "ls": ""} for series in (0, 1))
    for place, (_, value, estimate, low, high, *_) in enumerate(lines):
        ax.plot([low, high], [place, place], color=corrected["color"], lw=2)
        ax.plot([value], [place], **observed, label="observed" if place == 0 else None)
        ax.plot([estimate], [place], **corrected, label="corrected" if place == 0 else None)
    figures.add_legend(ax)
    return figure
