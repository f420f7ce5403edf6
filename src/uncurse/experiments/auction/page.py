"""The results of a market as one offline page, with money in the headline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...optional import needing
from ...report import REQUIREMENT
from ...report.prose import BigNumber, Headline, decimals_for, interval, percent
from .loop import FROZEN, REFRESHED, LoopOutcome
from .results import FIGURES, FigureOf, Results
from .simulate import TRUTH, Outcome
from .text import (
    FIELDS,
    MONEY,
    corrected,
    expected_words,
    figures_table,
    headline,
    loop_table,
    loop_title,
    sensitivity_table,
    setting,
)
from .theory import expected_account

with needing("report", REQUIREMENT):
    import altair as alt

    from ...report import charts
    from ...report.page import Facts, Figure, Section, Table
    from ...report.page import render as render_page

#: Policies of line charts, which hold few lines.
_LINES = ("as served", "multiplier", "platt", "vad", "tower", "auto", FROZEN, REFRESHED)
#: Policies by colour: those that are compared most have colours of their own.
_ORDER = (
    "as served",
    "auto",
    "tower",
    "vad",
    "platt",
    "multiplier",
    "isotonic",
    "platt + vad",
    FROZEN,
    REFRESHED,
    TRUTH,
)
_OVERCHARGE = next(figure for figure in FIGURES if figure.name == "overcharge_share")
_MONEY = next(figure for figure in FIGURES if figure.name == "overcharge")
_SURPLUS = next(figure for figure in FIGURES if figure.name == "surplus")


def render(results: Results, command: str = "") -> str:
    """Return the HTML document; `command` is the one that made it."""
    outcome = results.outcome
    sections = [_policies(outcome)]
    sections += [_sensitivity(name, outcomes) for name, outcomes in results.sensitivity.items()]
    if results.loop is not None:
        sections.append(_loop(results.loop))
    sections += [Section("terms", "Terms", (MONEY,)), _provenance(results, command)]
    return render_page("What over-prediction costs", _headline(outcome), sections)


def _headline(outcome: Outcome) -> Headline:
    numbers = []
    for i, name in enumerate(dict.fromkeys(("as served", corrected(outcome)))):
        if name in outcome.accounts:
            amount, _ = outcome.mean(str(name), _MONEY.of)
            value, spread = outcome.mean(str(name), _OVERCHARGE.of)
            low, high = interval(value, spread)
            decimals = 1 if spread != spread else decimals_for(high - low)
            bounds = "" if spread != spread else f", 95% interval {percent(low, decimals)} to {percent(high, decimals)}"
            note = f"{amount:.2f} for 1,000 requests{bounds}"
            title = "Overcharge as served" if name == "as served" else f"With {name}"
            numbers.append(BigNumber(i, title, percent(value, decimals), note))
    theory = "" if outcome.settings.budget is not None else expected_words(outcome)
    first, _, rest = headline(outcome).partition(". With")
    sentence = (("text", f"{first}."), ("aside", f" With{rest}")) if rest else (("text", first),)
    return Headline(sentence, tuple(numbers), theory)


def _policies(outcome: Outcome) -> Section:
    order = _series(outcome.accounts)
    rows = [_dot(outcome, name, place, _OVERCHARGE) for name, place in order.items()]
    value = [_dot(outcome, name, place, _SURPLUS) for name, place in order.items()]
    blocks = (
        Figure(
            "overcharge", partial(_dots, rows, "overcharge, share of the value", charts.SIGNED_PERCENT, 0.0),
            "Overcharge of each policy with its 95% interval.",
            "Overcharge: value of the predicted clicks of the impressions won over the value of their clicks, minus 1. "
            "Bars are 95% intervals over repetitions.",
        ),
        Figure(
            "surplus", partial(_dots, value, "surplus for 1,000 requests", charts.SIGNED, None),
            "Surplus of each policy with its 95% interval.",
            "Surplus: value of the clicks minus payments to the exchange. All policies bid in the same auctions, so "
            "their differences are more certain than the bars suggest.",
        ),
        Table("All figures, for 1,000 requests", *_split(figures_table(outcome)), folded=True),
    )  # fmt: skip
    return Section("policies", "What each policy costs", (setting(outcome),), blocks)


def _sensitivity(name: str, outcomes: Sequence[tuple[float, Outcome]]) -> Section:
    order = {policy: i for policy, i in _series(outcomes[0][1].accounts).items() if policy in _LINES}
    rows = []
    for policy, place in order.items():
        for value, outcome in outcomes:
            mean, _ = outcome.mean(policy, _OVERCHARGE.of)
            text = f"{policy}, {FIELDS[name].lower()} {value:g}: {percent(mean)}"
            rows.append({"series": place, "name": policy, "alpha": value, "value": mean, "text": text})
    prose = []
    if name == "candidates" and outcomes[0][1].settings.budget is None:
        expected = [expected_account(outcome.market).error for _, outcome in outcomes]
        shown = ", ".join(f"{percent(e)} for {v:g}" for e, (v, _) in zip(expected, outcomes, strict=True))
        prose.append(
            f"The more ads a request has, the luckier is the best of them. Theory expects as served: {shown}. "
            "With few ads the auction itself selects the lucky bids."
        )
    title = f"Overcharge by {FIELDS[name].lower()}"
    legend = tuple((place, policy) for policy, place in order.items())
    figure = Figure(
        f"by-{name}", partial(_lines, rows, FIELDS[name].lower(), name == "candidates"), f"{title}, for each policy.",
        f"{title}: mean over repetitions.", legend,
    )  # fmt: skip
    table = Table(title, *_split(sensitivity_table(outcomes, name)), folded=True)
    return Section(f"sensitivity-{name}", FIELDS[name], tuple(prose), (figure, table))


def _loop(loop: LoopOutcome) -> Section:
    order = {policy: i for policy, i in _series(loop.accounts).items() if policy in _LINES}
    rows = []
    for policy, place in order.items():
        for day, (value, _) in zip(loop.days, loop.by_day(policy, lambda account: account.error), strict=True):
            text = f"{policy}, day {day}: {percent(value)}"
            rows.append({"series": place, "name": policy, "alpha": day, "value": value, "text": text})
    prose = (
        "Every policy runs its own platform: its bids decide which impressions it wins, and the model of the next days "
        "learns from these. The policy of a day is fitted to the impressions of the day before, which the model has "
        "not seen.",
    )
    figure = Figure(
        "closed-loop", partial(_lines, rows, "day", False), "Over-prediction by day, for each policy.",
        "Predicted clicks over true clicks of the impressions won, minus 1.",
        tuple((place, policy) for policy, place in order.items()),
    )  # fmt: skip
    return Section(
        "loop", "Closed loop", prose, (figure, Table(loop_title(loop), *_split(loop_table(loop)), folded=True))
    )


def _provenance(results: Results, command: str) -> Section:
    settings = results.outcome.settings
    entries = [("Repetitions", (str(settings.repetitions),), ""), ("Seed", (str(settings.seed),), "")]
    entries += [("Command", (command,), "code")] if command else []
    return Section("provenance", "How these results were made", (), (Facts(tuple(entries)),))


# ---------------------------------------------------------------------------- charts


def _series(names: Any) -> dict[str, int]:
    """Return policies and their colours, which are the same on every chart."""
    others = [name for name in names if name not in _ORDER]
    return {name: [*_ORDER, *others].index(name) for name in names}


def _dot(outcome: Outcome, name: str, place: int, figure: FigureOf) -> dict[str, Any]:
    value, error = outcome.mean(name, figure.of)
    low, high = (None, None) if error != error else interval(value, error)
    shown = percent(value) if figure.percent else f"{value:.2f}"
    return {"series": place, "name": name, "value": value, "low": low, "high": high, "text": f"{name}: {shown}"}


def _dots(rows: charts.Rows, title: str, labels: str, line: float | None, frame: charts.Frame) -> Any:
    return charts.dot_plot(rows, title, frame, labels=labels, line=line)


def _lines(rows: charts.Rows, title: str, logarithmic: bool, frame: charts.Frame) -> Any:
    places = sorted({row["alpha"] for row in rows})
    values = [row["value"] for row in rows]
    y = charts.AxisSpec(
        charts.domain_of(values, zero=True),
        alt.Axis(title="over-prediction", labelExpr=charts.SIGNED_PERCENT, tickCount=6),
    )
    ticks = {"values": places} if len(places) < 8 else {"tickCount": 8}
    axis = alt.Axis(title=title, labelExpr=charts.COUNT, grid=False, labelOverlap="greedy", **ticks)
    room = 0.02 * (places[-1] - places[0]) or 1.0
    domain = (places[0] - room, places[-1] + room)
    if logarithmic:
        x = charts.AxisSpec((places[0] / 1.1, places[-1] * 1.1), axis, "log")
    else:
        x = charts.AxisSpec(domain, axis)
    zero = charts.chart([{"zero": 0}]).mark_rule(color=charts.light("ink"), strokeWidth=1.2).encode(y=y.y("zero:Q"))
    return charts.line_chart(rows, x, y, frame, under=[zero])


def _split(table: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
    return table[0], table[1:]
