"""The results of a market as one offline page, with money in the headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from uncurse.optional import needing
from uncurse.report import REQUIREMENT
from uncurse.report.prose import BigNumber, Headline, decimals_for, percent

from . import results as words
from .loop import FROZEN, REFRESHED, LoopOutcome
from .results import FIELDS, FIGURES, MONEY, Results
from .simulate import TRUTH, Outcome
from .theory import expected_account

with needing("report", REQUIREMENT):
    from uncurse.report import figures as charts
    from uncurse.report.page import Facts, Figure, Section, Table
    from uncurse.report.page import render as render_page

#: Policies of line charts, which hold few lines.
_LINES = ("as served", "auto", "tower", "vad", "platt", "multiplier", FROZEN, REFRESHED)
#: Policies by colour: those that are compared most have colours of their own.
_ORDER = (*_LINES[:6], "isotonic", "platt + vad", FROZEN, REFRESHED, TRUTH)


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
    for i, name in enumerate(("as served", words.corrected(outcome))):
        if name not in outcome.accounts:
            continue
        amount, _ = outcome.mean(str(name), FIGURES["overcharge"].of)
        value, spread = outcome.mean(str(name), FIGURES["overcharge_share"].of)
        low, high = _interval(value, spread, outcome)
        decimals = 1 if spread != spread else decimals_for(high - low)
        bounds = "" if spread != spread else f", 95% interval {percent(low, decimals)} to {percent(high, decimals)}"
        title = "Overcharge as served" if name == "as served" else f"With {name}"
        note = f"{amount:.2f} for 1,000 requests{bounds}"
        numbers.append(BigNumber(i, title, percent(value, decimals), note))
    theory = "" if outcome.settings.budget is not None else words.expected_words(outcome)
    first, *rest = words.headline(outcome) or [""]
    return Headline((("text", first), *(("aside", f" {sentence}") for sentence in rest)), tuple(numbers), theory)


def _interval(value: float, error: float, outcome: Outcome) -> tuple[float, float]:
    """Return the 95% interval by Student's distribution: there are few repetitions."""
    from scipy.special import stdtrit

    reach = float(stdtrit(max(outcome.settings.repetitions - 1, 1), 0.975)) * error
    return value - reach, value + reach


def _policies(outcome: Outcome) -> Section:
    def dots(name: str, title: str, labels: Any, line: float | None) -> Any:
        rows = [_dot(outcome, policy, place, name) for policy, place in _series(outcome.accounts).items()]
        return partial(charts.dots_figure, rows, title, labels=labels, line=line)

    blocks = (
        Figure(
            "overcharge",
            dots("overcharge_share", "overcharge, share of the value", charts.signed_percent, 0.0),
            "Overcharge of each policy with its 95% interval.",
            "Overcharge: value of the predicted clicks of the impressions won over the value of their clicks, minus 1. "
            "Bars are 95% intervals over repetitions.",
        ),
        Figure(
            "surplus",
            dots("surplus", "surplus for 1,000 requests", charts.plain, None),
            "Surplus of each policy with its 95% interval.",
            "Surplus: value of the clicks minus payments to the exchange. All policies bid in the same auctions, so "
            "their differences are more certain than the bars suggest.",
        ),
        _folded("All figures, for 1,000 requests", words.figures_table(outcome)),
    )
    return Section("policies", "What each policy costs", (words.setting(outcome),), blocks)


def _sensitivity(name: str, outcomes: Sequence[tuple[float, Outcome]]) -> Section:
    field, overcharge = FIELDS[name].lower(), FIGURES["overcharge_share"].of
    points = {
        policy: [(value, outcome.mean(policy, overcharge)[0]) for value, outcome in outcomes]
        for policy in outcomes[0][1].accounts
    }
    prose = []
    if name == "candidates" and outcomes[0][1].settings.budget is None:
        shown = ", ".join(f"{percent(expected_account(one.market).error)} for {value:g}" for value, one in outcomes)
        prose.append(
            f"The more ads a request has, the luckier is the best of them. Theory expects as served: {shown}. "
            "With few ads the auction itself selects the lucky bids."
        )
    title = f"Overcharge by {field}"
    captions = f"{title}, for each policy.", f"{title}: mean over repetitions."
    figure = _line_figure(f"by-{name}", points, field, captions, logarithmic=name == "candidates")
    table = _folded(title, words.sensitivity_table(outcomes, name))
    return Section(f"sensitivity-{name}", FIELDS[name], tuple(prose), (figure, table))


def _loop(loop: LoopOutcome) -> Section:
    points = {
        policy: list(zip(loop.days, [mean for mean, _ in loop.by_day(policy, lambda a: a.error)], strict=True))
        for policy in loop.accounts
    }
    prose = (
        "Every policy runs its own platform: its bids decide which impressions it wins, and the model of the next days "
        "learns from these. The policy of a day is fitted to the impressions of the day before, which the model has "
        "not seen.",
    )
    captions = (
        "Over-prediction by day, for each policy.",
        "Predicted clicks over true clicks of the impressions won, minus 1.",
    )
    figure = _line_figure("closed-loop", points, "day", captions)
    return Section("loop", "Closed loop", prose, (figure, _folded(words.loop_title(loop), words.loop_table(loop))))


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


def _dot(outcome: Outcome, policy: str, place: int, name: str) -> dict[str, Any]:
    value, error = outcome.mean(policy, FIGURES[name].of)
    low, high = (None, None) if error != error else _interval(value, error, outcome)
    shown = percent(value) if FIGURES[name].percent else f"{value:.2f}"
    return {"series": place, "name": policy, "value": value, "low": low, "high": high, "text": f"{policy}: {shown}"}


def _line_figure(
    name: str, points: Mapping[str, Any], axis: str, captions: tuple[str, str], *, logarithmic: bool = False
) -> Figure:
    """Return a line of (place, over-prediction) for each policy that is drawn."""
    order = {policy: place for policy, place in _series(points).items() if policy in _LINES}
    rows = []
    for policy, series in order.items():
        for place, value in points[policy]:
            text = f"{policy}, {axis} {place:g}: {percent(value)}"
            rows.append({"series": series, "name": policy, "alpha": place, "value": value, "text": text})
    legend = tuple((series, policy) for policy, series in order.items())
    x, y = (axis, charts.plain), ("over-prediction", charts.signed_percent)
    return Figure(name, partial(charts.lines_figure, rows, x=x, y=y, log_x=logarithmic), *captions, legend)


def _folded(title: str, table: Sequence[tuple[str, ...]]) -> Table:
    return Table(title, table[0], table[1:], folded=True)
