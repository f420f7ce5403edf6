"""What a run of the command found: tables, charts and one JSON document, money first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scipy.special import stdtrit

from uncurse import documents
from uncurse.report.page import BigNumber, Page, Section
from uncurse.text import error_and_interval, percent
from uncurse.version import __version__

from ..render import Part, Table, TextTable, dots_figure, lines_figure
from .loop import LoopOutcome
from .market import Account
from .simulate import TRUTH, Outcome, mean_and_error
from .theory import causes

#: Values of each field in a study of sensitivity. Budgets are for a thousand requests; without one the default market
#: spends about 18.
SENSITIVITY: Mapping[str, tuple[float, ...]] = {
    "candidates": (1, 3, 10, 30, 100, 300),
    "noise": (0.1, 0.2, 0.3, 0.5),
    "shading": (0.6, 0.8, 1.0),
    "budget": (5.0, 10.0, 15.0),
}
_FIELDS = {
    "candidates": "ads for each request",
    "noise": "noise of the log odds",
    "shading": "bid shading",
    "budget": "budget for 1,000 requests",
}
_MONEY = (
    "Prices and bids are for a thousand impressions, the value of a click is for one click, and all other amounts are "
    "for 1,000 requests, in {}. Overcharge: the platform charges advertisers the value of the "
    "predicted clicks; the overcharge is this minus the value of the clicks. Lost: value minus price of impressions "
    "that were worth their price and not won. Overpaid: price minus value of impressions that were won and not worth "
    "it. Surplus: value of the clicks minus payments. Welfare lost: against the best allocation of the impressions. "
    "Numbers in parentheses are standard errors."
)
_LABELS = {
    "won": "impressions that the served model won",
    "earlier": "impressions that an earlier model won, scored by the served one",
    "random": "random ads",
}
_SINCE = 10  # first day of the averages of the closed loop
#: Figures of the tables, see `Account.figure`, and the titles of their columns.
FIGURES = {
    "overcharge_share": "overcharge",
    "overcharge": "overcharge, money",
    "won": "won",
    "spend": "spend",
    "clicks": "clicks",
    "cost_per_click": "cost per click",
    "surplus": "surplus",
    "lost": "lost",
    "overpaid": "overpaid",
    "lost_welfare": "welfare lost",
}
_SHARES = ("overcharge_share", "won", "lost_welfare")


@dataclass(frozen=True)
class Results:
    """Everything that one run simulated."""

    outcome: Outcome
    sensitivity: Mapping[str, tuple[tuple[float, Outcome], ...]] = field(default_factory=dict)  # by varied field
    loop: LoopOutcome | None = None
    currency: str = "units"

    def to_json(self) -> str:
        """Return one JSON document: the market, the settings, and a flat record for each policy, market and day."""
        outcome, loop = self.outcome, self.loop
        market = {name: value for name, value in vars(outcome.market).items() if name != "landscape"}
        content: dict[str, Any] = {"version": __version__, "market": market, "settings": asdict(outcome.settings)}
        if outcome.settings.budget is None:
            content["expected_as_served"] = dict(causes(outcome.market))
        if loop is not None:
            world = {name: value for name, value in vars(loop.world).items() if name != "market"}
            content["loop"] = {**world, "explore": loop.explore}
        rows: list[Any] = [("market", None, *item) for item in outcome.accounts.items()]
        for name, some in self.sensitivity.items():
            rows += [(name, f"{value:g}", *item) for value, one in some for item in one.accounts.items()]
        if loop is not None:
            for policy, runs in loop.accounts.items():
                days = zip(loop.days, zip(*runs, strict=True), strict=True)
                rows += [("day", str(day), policy, accounts) for day, accounts in days]
        content["records"] = [
            {"part": part, "value": value, "policy": policy, **_figures(accounts)}
            for part, value, policy, accounts in rows
        ]
        return documents.dumps("auction", content)

    def parts(self, brief: bool = False) -> Iterator[Part]:
        """Yield the cost of over-prediction in a sentence, and the tables."""
        yield " ".join(self._headline())
        yield from self._setting()
        yield from self._tables()
        for name, outcomes in self.sensitivity.items():
            yield _sensitivity_table(name, outcomes)
        if self.loop is not None:
            yield _loop_table(self.loop)
        yield _MONEY.format(self.currency)

    def page(self, command: str) -> Page:
        """Return the page: the cost of over-prediction first, then charts with their tables."""
        outcome = self.outcome
        by_error = sorted(outcome.accounts, key=lambda policy: -abs(outcome.mean(policy, "overcharge_share")[0]))
        dots = {
            name: {policy: self._interval(policy, name) for policy in by_error}
            for name in ("overcharge_share", "surplus")
        }
        requests = f"{self.currency} for 1,000 requests"
        charges, value = (table.folded() for table in self._tables())
        overcharge = dots_figure("overcharge", "Overcharge of each policy, with its 95% interval.",
                                 dots["overcharge_share"], "overcharge", percent=True)  # fmt: skip
        surplus = dots_figure("surplus", "Surplus of each policy, with its 95% interval.",
                              dots["surplus"], f"surplus, {requests}", percent=False)  # fmt: skip
        sections = [
            Section("overcharge", "Who is overcharged", list(self._setting()), [overcharge, charges]),
            Section("surplus", "What the platform keeps", (), [surplus, value]),
        ]
        for name, outcomes in self.sensitivity.items():
            points = {
                policy: [(value, 100 * one.mean(policy, "overcharge_share")[0]) for value, one in outcomes]
                for policy in outcomes[0][1].accounts
            }
            table = _sensitivity_table(name, outcomes)
            figure = lines_figure(f"by-{name}", f"{table.title}.", points, _FIELDS[name], "overcharge, %",
                                  log_x=name == "candidates")  # fmt: skip
            sections.append(Section(f"by-{name}", table.title, (), [figure, table.folded()]))
        if self.loop is not None:
            table, points = _loop_table(self.loop), _loop_points(self.loop)
            figure = lines_figure("loop", "Over-prediction of the impressions won, by day.", points, "day",
                                  "over-prediction, %")  # fmt: skip
            sections.append(Section("loop", "Closed loop", (), [figure, table.folded()]))
        facts = {"Amounts": [_MONEY.format(self.currency)], **({"Command": [command]} if command else {})}
        return Page(
            "What over-prediction costs", " ".join(self._headline()), self._numbers(), sections, facts, terms=""
        )

    def _headline(self) -> list[str]:
        """Return the cost of over-prediction in a sentence or two, in money."""
        outcome, sentences = self.outcome, []
        if "as served" in outcome.accounts:
            value, _ = outcome.mean("as served", "overcharge")
            sentences.append(
                f"As served, advertisers are charged {_share(outcome, 'as served')} than the clicks they get are "
                f"worth: {value:.2f} {self.currency} for 1,000 requests."
            )
        if corrected := self._corrected():
            sentences.append(f"With {corrected} they are charged {_share(outcome, corrected)}.")
        return sentences

    def _corrected(self) -> str | None:
        others = [name for name in self.outcome.accounts if name not in ("as served", TRUTH)]
        return "auto" if "auto" in others else others[-1] if others else None

    def _numbers(self) -> list[BigNumber]:
        numbers = []
        for series, policy in enumerate(("as served", self._corrected() or "")):
            if policy in self.outcome.accounts:
                value, half = self._interval(policy, "overcharge_share")
                overcharge, span = error_and_interval(value, value - half, value + half)
                note = f"overcharge, 95% interval {span}" if math.isfinite(half) else "overcharge"
                numbers.append(BigNumber(series, policy, overcharge, note))
        return numbers

    def _interval(self, policy: str, name: str) -> tuple[float, float]:
        """Return a mean, and half the width of its 95% interval over few repetitions."""
        value, error = self.outcome.mean(policy, name)
        return value, float(stdtrit(max(len(self.outcome.accounts[policy]) - 1, 1), 0.975)) * error

    def _setting(self) -> Iterator[str]:
        yield setting(self.outcome)
        if self.outcome.settings.budget is None:
            (noise, first), (choice, second), (auction, third) = causes(self.outcome.market)
            yield (
                f"Theory expects an over-prediction as served of {as_percent(first)} from {noise} alone, "
                f"{as_percent(second)} with {choice} of {self.outcome.market.candidates}, and {as_percent(third)} with "
                f"{auction}, which selects again."
            )

    def _tables(self) -> tuple[TextTable, TextTable]:
        """Return two tables, so that 120 columns are enough."""
        outcome, titles = self.outcome, dict(FIGURES) | {"overcharge": f"overcharge, {self.currency}"}
        rows: Table = [("policy", *titles.values())]
        rows += [(policy, *(cell(outcome, policy, name) for name in FIGURES)) for policy in outcome.accounts]
        charges = TextTable("Charges and clicks", [row[:7] for row in rows])
        return charges, TextTable("Value", [(row[0], *row[7:]) for row in rows])


def _figures(accounts: tuple[Account, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"repetitions": len(accounts)}
    for name in FIGURES:
        value, error = mean_and_error([account.figure(name) for account in accounts])
        found[name] = value if math.isfinite(value) else None
        found[f"{name}_error"] = error if math.isfinite(error) else None
    return found


def setting(outcome: Outcome) -> str:
    """Return how the market was simulated."""
    market, options = outcome.market, outcome.settings
    rows, clicks = (sum(column) / len(outcome.labeled) for column in zip(*outcome.labeled, strict=True))
    random = f", and {100 * options.explore:g}% random traffic" if options.explore else ""
    budget = "" if options.budget is None else f", a budget of {options.budget:g} for 1,000 requests"
    shading = "" if market.shading == 1 else f", bids shaded to {market.shading:g}"
    return (
        f"{options.auctions:,} {market.price}-price auctions in each of {options.repetitions} repetitions, "
        f"{market.candidates} ads for each request, noise {market.noise:g}, value of a click {market.value:g}"
        f"{shading}{budget}. Labels: {_LABELS[options.labels]}{random}; {rows:,.0f} rows with {clicks:,.0f} clicks."
    )


def _sensitivity_table(name: str, outcomes: Sequence[tuple[float, Outcome]]) -> TextTable:
    """Return the overcharge of each policy by the value of a field, and the surplus of two."""
    policies = outcomes[0][1].accounts
    lines = [(policy, policy, "overcharge_share") for policy in policies]
    lines += [("surplus as served", "as served", "surplus"), ("surplus with truth", TRUTH, "surplus")]
    table: Table = [(_FIELDS[name], *(f"{value:g}" for value, _ in outcomes))]
    for row, policy, figure in lines:
        if policy in policies:
            table.append((row, *(cell(one, policy, figure) for _, one in outcomes)))
    return TextTable(f"Overcharge by {_FIELDS[name]}", table)


def _loop_points(loop: LoopOutcome) -> dict[str, list[tuple[float, float]]]:
    return {
        policy: [(day, 100 * mean) for day, (mean, _) in zip(loop.days, loop.by_day(policy, _error), strict=True)]
        for policy in loop.accounts
    }


def _error(account: Account) -> float:
    return account.error


def _loop_table(loop: LoopOutcome) -> TextTable:
    """Return errors of the policies on some days, and averages over the later ones."""
    since = min(_SINCE, loop.days[-1])
    shown = [day for day in loop.days if day % 5 == 0 or day in (loop.days[0], loop.days[-1])]
    table: Table = [
        ("policy", *(f"day {day}" for day in shown), f"mean from day {since}", "mean size", "won", "surplus")
    ]
    per_thousand = 1000 / loop.world.requests
    for policy, points in _loop_points(loop).items():
        by_day = dict(points)
        mean, error = loop.over_days(policy, _error, since)
        size, size_error = loop.over_days(policy, _error, since, size=True)
        won, _ = loop.over_days(policy, lambda a: a.won / a.auctions, since)
        surplus, surplus_error = loop.over_days(policy, lambda a: a.surplus * per_thousand, since)
        days = (f"{by_day[day]:+.1f}%" for day in shown)
        average = (
            f"{100 * mean:+.1f}%{_in_parentheses(100 * error)}",
            f"{100 * size:.1f}%{_in_parentheses(100 * size_error)}",
        )
        money = f"{surplus:.2f}{_in_parentheses(surplus_error, 2)}"
        table.append((policy, *days, *average, f"{100 * won:.0f}%", money))
    count = len(next(iter(loop.accounts.values())))
    random = f", {100 * loop.explore:g}% random traffic" if loop.explore else ""
    random += ", which labels come from" if loop.labels == "random" else ""
    replicas = "bootstraps" if loop.world.bootstrap else "retrained models"
    title = f"Closed loop, over-prediction of won impressions: {count} repetitions, replicas are {replicas}{random}"
    return TextTable(title, table)


def as_percent(value: float, decimals: int = 1) -> str:
    """Format a share as a percentage with a sign."""
    return "undefined" if value != value else percent(value, decimals)


def _in_parentheses(error: float, decimals: int = 1) -> str:
    return "" if error != error else f" ({error:.{decimals}f})"


def cell(outcome: Outcome, policy: str, name: str) -> str:
    """Return the mean of a figure as text: a share in percent, or an amount, with its standard error."""
    value, error = outcome.mean(policy, name)
    if name not in _SHARES:
        return f"{value:.2f}{_in_parentheses(error, 2)}"
    sign = "+" if name == "overcharge_share" else ""
    return f"{100 * value:{sign}.1f}%{_in_parentheses(100 * error)}"


def _share(outcome: Outcome, policy: str) -> str:
    value, _ = outcome.mean(policy, "overcharge_share")
    return f"{percent(abs(value), sign=False)} {'more' if value >= 0 else 'less'}"
