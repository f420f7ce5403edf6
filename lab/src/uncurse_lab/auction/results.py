"""What a run of the command found: tables, charts and one JSON document, money first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from uncurse import documents
from uncurse.version import __version__

from ..render import Part, Table, TextTable, bars_chart, lines_chart
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
    "for 1,000 requests, in the currency of the prices. Overcharge: the platform charges advertisers the value of the "
    "predicted clicks; the overcharge is this minus the value of the clicks. Lost: value minus price of impressions "
    "that were worth their price and not won. Overpaid: price minus value of impressions that were won and not worth "
    "it. Surplus: value of the clicks minus payments. Welfare lost: against the best allocation of the impressions. "
    "± is a standard error."
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
        """Yield the cost of over-prediction in a sentence, the tables, and charts."""
        outcome = self.outcome
        yield " ".join(headline(outcome))
        yield setting(outcome)
        if outcome.settings.budget is None:
            (noise, first), (choice, second), (auction, third) = causes(outcome.market)
            yield (
                f"Theory expects an over-prediction as served of {as_percent(first)} from {noise} alone, "
                f"{as_percent(second)} with {choice} of {outcome.market.candidates}, and {as_percent(third)} with "
                f"{auction}, which selects again."
            )
        rows: Table = [("policy", *FIGURES.values())]
        rows += [(policy, *(cell(outcome, policy, name) for name in FIGURES)) for policy in outcome.accounts]
        # Two tables, so that 120 columns are enough.
        yield TextTable("Charges and clicks", [row[:7] for row in rows])
        yield TextTable("Value", [(row[0], *row[7:]) for row in rows])
        for name, unit in (("overcharge_share", 100), ("surplus", 1)):
            bars = {policy: [unit * x for x in outcome.mean(policy, name)] for policy in outcome.accounts}
            label = "overcharge, %" if unit == 100 else "surplus for 1,000 requests"
            yield bars_chart(f"{label} of each policy, with its standard error.".capitalize(), bars, label)
        for name, outcomes in self.sensitivity.items():
            yield from _sensitivity_parts(name, outcomes)
        if self.loop is not None:
            yield from _loop_parts(self.loop)
        yield _MONEY


def _figures(accounts: tuple[Account, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"repetitions": len(accounts)}
    for name in FIGURES:
        value, error = mean_and_error([account.figure(name) for account in accounts])
        found[name] = value if math.isfinite(value) else None
        found[f"{name}_error"] = error if math.isfinite(error) else None
    return found


def headline(outcome: Outcome) -> list[str]:
    """Return the cost of over-prediction in a sentence or two, in money."""
    served, sentences = "as served" in outcome.accounts, []
    others = [name for name in outcome.accounts if name not in ("as served", TRUTH)]
    if served:
        sentences.append(
            f"As served, advertisers are charged {_share(outcome, 'as served')} than the clicks they get are "
            f"worth: {cell(outcome, 'as served', 'overcharge')} for 1,000 requests."
        )
    if others:
        best = "auto" if "auto" in others else others[-1]
        removed, error = outcome.removed(best) if served else (math.nan, math.nan)
        share = "" if removed != removed else f", which removes {100 * removed:.1f}%{_plus_minus(100 * error)} of it"
        sentences.append(f"With the map of {best} they are charged {_share(outcome, best)}{share}.")
    return sentences


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


def _sensitivity_parts(name: str, outcomes: Sequence[tuple[float, Outcome]]) -> Iterator[Part]:
    """Yield the overcharge of each policy by the value of a field, and the surplus of two."""
    policies, title = outcomes[0][1].accounts, f"Overcharge by {_FIELDS[name]}"
    lines = [(policy, policy, "overcharge_share") for policy in policies]
    lines += [("surplus as served", "as served", "surplus"), ("surplus with truth", TRUTH, "surplus")]
    table: Table = [(_FIELDS[name], *(f"{value:g}" for value, _ in outcomes))]
    for row, policy, figure in lines:
        if policy in policies:
            table.append((row, *(cell(one, policy, figure) for _, one in outcomes)))
    yield TextTable(title, table)
    points = {
        policy: [(value, 100 * one.mean(policy, "overcharge_share")[0]) for value, one in outcomes]
        for policy in policies
    }
    yield lines_chart(f"{title}.", points, _FIELDS[name], "overcharge, %", log_x=name == "candidates")


def _loop_parts(loop: LoopOutcome) -> Iterator[Part]:
    """Yield errors of the policies on some days, and averages over the later ones."""
    since = min(_SINCE, loop.days[-1])
    shown = [day for day in loop.days if day % 5 == 0 or day in (loop.days[0], loop.days[-1])]
    table: Table = [
        ("policy", *(f"day {day}" for day in shown), f"mean from day {since}", "mean size", "won", "surplus")
    ]
    per_thousand, points = 1000 / loop.world.requests, {}
    for policy in loop.accounts:
        by_day = dict(zip(loop.days, loop.by_day(policy, lambda a: a.error), strict=True))
        points[policy] = [(day, 100 * mean) for day, (mean, _) in by_day.items()]
        mean, error = loop.over_days(policy, lambda a: a.error, since)
        size, size_error = loop.over_days(policy, lambda a: a.error, since, size=True)
        won, _ = loop.over_days(policy, lambda a: a.won / a.auctions, since)
        surplus, surplus_error = loop.over_days(policy, lambda a: a.surplus * per_thousand, since)
        days = (f"{100 * by_day[day][0]:+.1f}%" for day in shown)
        average = f"{100 * mean:+.1f}%{_plus_minus(100 * error)}", f"{100 * size:.1f}%{_plus_minus(100 * size_error)}"
        money = f"{surplus:.2f}{_plus_minus(surplus_error, 2)}"
        table.append((policy, *days, *average, f"{100 * won:.0f}%", money))
    count = len(next(iter(loop.accounts.values())))
    random = f", {100 * loop.explore:g}% random traffic" if loop.explore else ""
    random += ", which labels come from" if loop.labels == "random" else ""
    replicas = "bootstraps" if loop.world.bootstrap else "retrained models"
    title = f"Closed loop, over-prediction of won impressions: {count} repetitions, replicas are {replicas}{random}"
    yield TextTable(title, table)
    yield lines_chart("Over-prediction by day, for each policy.", points, "day", "over-prediction, %", log_x=False)


def as_percent(value: float, decimals: int = 1) -> str:
    """Format a share as a percentage with a sign."""
    return "undefined" if value != value else f"{100 * value:+.{decimals}f}%"


def _plus_minus(error: float, decimals: int = 1) -> str:
    return "" if error != error else f" ± {error:.{decimals}f}"


def cell(outcome: Outcome, policy: str, name: str) -> str:
    """Return the mean of a figure as text: a share in percent, or an amount, with its standard error."""
    value, error = outcome.mean(policy, name)
    if name not in _SHARES:
        return f"{value:.2f}{_plus_minus(error, 2)}"
    sign = "+" if name == "overcharge_share" else ""
    return f"{100 * value:{sign}.1f}%{_plus_minus(100 * error)}"


def _share(outcome: Outcome, policy: str) -> str:
    value, error = outcome.mean(policy, "overcharge_share")
    return f"{abs(100 * value):.1f}%{_plus_minus(100 * error)} {'more' if value >= 0 else 'less'}"
