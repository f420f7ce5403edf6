"""`winner_page`: the best of many candidates, observed and corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from ..text import number, probability
from ..winners import Winner, Winners
from ..winners.winner import cells_of, digits
from . import figures
from .figures import Chart, Dot, Frame
from .page import BigNumber, Figure, Page, Section, Table, provenance

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
    a is the best of 3, with observed value 2.00. Its expected value is 1.28 (90% interval 0.13 to 2.77).
    """
    if isinstance(found, Winners):
        count, mean, frame = len(found), found.mean(), found.to_frame()
        observed, estimate, low, high = digits(mean.observed, mean.estimate, *mean.interval())
        loss, best = (float(frame[key].to_numpy().mean()) for key in ("expected_loss", "probability_best"))
        title, what, who = f"The winners of {count:,} groups", "the winner of each group", "a winner, on average,"
        headline = f"{title} have a mean observed value of {observed}. Their expected mean is "
        frame = frame.select(frame["group"] + ": " + frame["winner"], *frame.columns[2:])
    else:
        observed, estimate, low, high = digits(found.observed, found.estimate, *found.interval())
        count, loss, best = len(found.names), found.expected_loss, found.probability_best
        title, what, who = f"The best of {count:,} candidates", "all candidates", found.name
        headline = f"{who} is the best of {count:,}, with observed value {observed}. Its expected value is "
        frame = found.to_frame().sort("observed", descending=bool(found.observed >= found.observations.mean()))
    numbers = [
        BigNumber(0, "Observed", observed, "before correction"),
        BigNumber(1, "Corrected", estimate, f"90% interval {low} to {high}"),
    ]
    shown = what if len(frame) <= _MOST else f"the first {_MOST} of {len(frame):,}"
    figure = Figure("forest", partial(_forest, frame), f"Observed and corrected values with 90% intervals, {shown}.")
    ship = (
        f"The probability that {who} is the best candidate is {probability(best)}. The best candidate is expected to "
        f"be better by {number(loss)}: more data can gain this at most."
    )
    header, *rows = cells_of(frame.head(_LISTED))
    header = [name.replace("estimate", "corrected").replace("_", " ") for name in header]
    table = Table(f"Values of {what}, with 90% intervals from low to high", header, rows)
    sections = [
        Section("values", "Observed and corrected values", (found.reason,), (figure,)),
        Section("loss", "What is lost by shipping the winner?", (ship,), (table,)),
    ]
    headline += f"{estimate} (90% interval {low} to {high})."
    return Page(title, headline, numbers, sections, provenance(facts, []), "winner")


def _forest(values: pl.DataFrame, frame: Frame) -> Chart:
    """Draw the observed value, the corrected value and its interval of each candidate on a line."""
    lines = [line[:5] for line in values.head(_MOST).rows()]
    dots = [Dot(name, 0, value, value, value) for name, value, *_ in lines]
    dots += [Dot(name, 1, estimate, low, high) for name, _, estimate, low, high in lines]
    figure, (ax,) = figures.axes_of(frame, 24 * len(lines) + 20)
    ax.set(xlim=figures.domain_of([value for line in lines for value in line[1:]]))
    figures.set_ticks(ax.xaxis, 5, figures.plain)
    figures.draw_dots(ax, dots, ["observed", "corrected"])
    figures.add_legend(ax)
    return figure
