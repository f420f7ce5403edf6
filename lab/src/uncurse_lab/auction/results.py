"""What a run of the command found: as text and Markdown, money first, as flat records and as one JSON document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from uncurse import documents
from uncurse.text_tables import TextTable, as_markdown, as_text
from uncurse.version import __version__

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
#: Names of the fields that are varied.
FIELDS = {
    "candidates": "Ads for each request",
    "noise": "Noise of the log odds",
    "shading": "Bid shading",
    "budget": "Budget for 1,000 requests",
}
MONEY = (
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
Table = list[tuple[str, ...]]  # the header first


@dataclass(frozen=True)
class FigureOf:
    """A figure of an account."""

    title: str  # of its column
    of: Callable[[Account], float]
    percent: bool = False  # else an amount for a thousand requests, or for a click


def _per_thousand(name: str) -> Callable[[Account], float]:
    return lambda account: 1000 * float(getattr(account, name)) / account.auctions


#: Figures of the tables, by their names in records.
FIGURES = {
    "overcharge_share": FigureOf("overcharge", lambda account: account.overcharge_share, percent=True),
    "overcharge": FigureOf("overcharge, money", _per_thousand("overcharge")),
    "won": FigureOf("won", lambda account: account.won / account.auctions, percent=True),
    "spend": FigureOf("spend", _per_thousand("spend")),
    "clicks": FigureOf("clicks", _per_thousand("clicks")),
    "cost_per_click": FigureOf("cost per click", lambda account: account.cost_per_click),
    "surplus": FigureOf("surplus", _per_thousand("surplus")),
    "lost": FigureOf("lost", _per_thousand("lost")),
    "overpaid": FigureOf("overpaid", _per_thousand("overpaid")),
    "lost_welfare": FigureOf("welfare lost", lambda account: account.lost_welfare, percent=True),
}


@dataclass(frozen=True)
class Results:
    """Everything that one run simulated."""

    outcome: Outcome
    sensitivity: Mapping[str, tuple[tuple[float, Outcome], ...]] = field(default_factory=dict)  # by varied field
    loop: LoopOutcome | None = None


# ---------------------------------------------------------------------------- records


def records(results: Results) -> list[dict[str, Any]]:
    """Return a flat record for each policy, in every market and on every day; what is not known is empty."""
    markets = [("market", "", results.outcome)]
    markets += [(name, f"{value:g}", one) for name, some in results.sensitivity.items() for value, one in some]
    found = []
    for part, value, outcome in markets:
        for policy, accounts in outcome.accounts.items():
            found.append({"part": part, "value": value, "policy": policy, **_figures(accounts)})
    if results.loop is not None:
        for policy, repetitions in results.loop.accounts.items():
            for day, accounts in zip(results.loop.days, zip(*repetitions, strict=True), strict=True):
                found.append({"part": "day", "value": str(day), "policy": policy, **_figures(accounts)})
    return found


def _figures(accounts: tuple[Account, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"repetitions": len(accounts)}
    for name, figure in FIGURES.items():
        value, error = mean_and_error([figure.of(account) for account in accounts])
        found[name] = value if math.isfinite(value) else ""
        found[f"{name}_error"] = error if math.isfinite(error) else ""
    return found


def to_json(results: Results) -> str:
    """Return one JSON document: the market, the settings, and the records."""
    market = {name: value for name, value in vars(results.outcome.market).items() if name != "landscape"}
    content: dict[str, Any] = {"version": __version__, "market": market, "settings": asdict(results.outcome.settings)}
    if results.outcome.settings.budget is None:
        content["expected_as_served"] = dict(causes(results.outcome.market))
    if results.loop is not None:
        world = {name: value for name, value in vars(results.loop.world).items() if name != "market"}
        content["loop"] = {**world, "explore": results.loop.explore}
    content["records"] = [{k: None if v == "" else v for k, v in record.items()} for record in records(results)]
    return documents.dumps("auction", content)


# ---------------------------------------------------------------------------- text


def text(results: Results) -> str:
    """Return the results for a terminal."""
    return as_text(_parts(results))


def markdown(results: Results) -> str:
    """Return the results as Markdown."""
    return as_markdown(_parts(results))


def _parts(results: Results) -> list[str | TextTable]:
    outcome = results.outcome
    parts: list[str | TextTable] = [" ".join(headline(outcome)), setting(outcome)]
    if outcome.settings.budget is None:
        parts.append(expected_words(outcome))
    rows = figures_table(outcome)
    # Two tables, so that 120 columns are enough.
    parts.append(TextTable("Charges and clicks", [row[:7] for row in rows]))
    parts.append(TextTable("Value", [(row[0], *row[7:]) for row in rows]))
    for name, outcomes in results.sensitivity.items():
        parts.append(TextTable(f"Overcharge by {FIELDS[name].lower()}", sensitivity_table(outcomes, name)))
    if results.loop is not None:
        parts.append(TextTable(loop_title(results.loop), loop_table(results.loop)))
    return [*parts, MONEY]


def headline(outcome: Outcome) -> list[str]:
    """Return the cost of over-prediction in a sentence or two, in money."""
    best, served = corrected(outcome), "as served" in outcome.accounts
    sentences = []
    if served:
        sentences.append(
            f"As served, advertisers are charged {_share(outcome, 'as served')} than the clicks they get are "
            f"worth: {_cell(outcome, 'as served', 'overcharge')} for 1,000 requests."
        )
    if best is not None:
        removed, error = outcome.removed(best) if served else (math.nan, math.nan)
        share = "" if removed != removed else f", which removes {100 * removed:.1f}%{_plus_minus(100 * error)} of it"
        sentences.append(f"With the map of {best} they are charged {_share(outcome, best)}{share}.")
    return sentences


def corrected(outcome: Outcome) -> str | None:
    """Return the policy of the headline: "auto" if it took part, else the last one, or None."""
    names = [name for name in outcome.accounts if name not in ("as served", TRUTH)]
    return "auto" if "auto" in names else names[-1] if names else None


def expected_words(outcome: Outcome) -> str:
    """Return the over-prediction as served that theory expects, by its causes."""
    (noise, first), (choice, second), (auction, third) = causes(outcome.market)
    return (
        f"Theory expects an over-prediction as served of {as_percent(first)} from {noise} alone, {as_percent(second)} "
        f"with {choice} of {outcome.market.candidates}, and {as_percent(third)} with {auction}, which selects again."
    )


def setting(outcome: Outcome) -> str:
    """Return how the market was simulated."""
    market, options = outcome.market, outcome.settings
    rows, clicks = (sum(column) / len(outcome.labelled) for column in zip(*outcome.labelled, strict=True))
    random = f", and {100 * options.explore:g}% random traffic" if options.explore else ""
    budget = "" if options.budget is None else f", a budget of {options.budget:g} for 1,000 requests"
    shading = "" if market.shading == 1 else f", bids shaded to {market.shading:g}"
    return (
        f"{options.auctions:,} {market.price}-price auctions in each of {options.repetitions} repetitions, "
        f"{market.candidates} ads for each request, noise {market.noise:g}, value of a click {market.value:g}"
        f"{shading}{budget}. Labels: {_LABELS[options.labels]}{random}; {rows:,.0f} rows with {clicks:,.0f} clicks."
    )


def figures_table(outcome: Outcome) -> Table:
    """Return a header, and a row of figures for each policy."""
    header = ("policy", *(figure.title for figure in FIGURES.values()))
    return [header, *((policy, *(_cell(outcome, policy, name) for name in FIGURES)) for policy in outcome.accounts)]


def sensitivity_table(outcomes: Sequence[tuple[float, Outcome]], name: str) -> Table:
    """Return a header, and the overcharge of each policy by the value of a field; then the surplus of two."""
    policies = outcomes[0][1].accounts
    lines = [(policy, policy, "overcharge_share") for policy in policies]
    lines += [("surplus as served", "as served", "surplus"), ("surplus with truth", TRUTH, "surplus")]
    table = [(FIELDS[name].lower(), *(f"{value:g}" for value, _ in outcomes))]
    for title, policy, figure in lines:
        if policy in policies:
            table.append((title, *(_cell(one, policy, figure) for _, one in outcomes)))
    return table


def loop_table(loop: LoopOutcome) -> Table:
    """Return a header, errors of the policies on some days, and averages over the later ones."""
    since = min(_SINCE, loop.days[-1])
    shown = [day for day in loop.days if day % 5 == 0 or day in (loop.days[0], loop.days[-1])]
    table = [("policy", *(f"day {day}" for day in shown), f"mean from day {since}", "mean size", "won", "surplus")]
    per_thousand = 1000 / loop.world.requests
    for policy in loop.accounts:
        by_day = dict(zip(loop.days, loop.by_day(policy, lambda a: a.error), strict=True))
        mean, error = loop.over_days(policy, lambda a: a.error, since)
        size, size_error = loop.over_days(policy, lambda a: a.error, since, size=True)
        won, _ = loop.over_days(policy, lambda a: a.won / a.auctions, since)
        surplus, surplus_error = loop.over_days(policy, lambda a: a.surplus * per_thousand, since)
        table.append(
            (
                policy,
                *(f"{100 * by_day[day][0]:+.1f}%" for day in shown),
                f"{100 * mean:+.1f}%{_plus_minus(100 * error)}",
                f"{100 * size:.1f}%{_plus_minus(100 * size_error)}",
                f"{100 * won:.0f}%",
                f"{surplus:.2f}{_plus_minus(surplus_error, 2)}",
            )
        )
    return table


def loop_title(loop: LoopOutcome) -> str:
    """Return the title of the table of the closed loop."""
    count = len(next(iter(loop.accounts.values())))
    random = f", {100 * loop.explore:g}% random traffic" if loop.explore else ""
    random += ", which labels come from" if loop.labels == "random" else ""
    replicas = "bootstraps" if loop.world.bootstrap else "retrained models"
    return f"Closed loop, over-prediction of won impressions: {count} repetitions, replicas are {replicas}{random}"


def as_percent(value: float, decimals: int = 1) -> str:
    """Format a share as a percentage with a sign."""
    return "undefined" if value != value else f"{100 * value:+.{decimals}f}%"


def _plus_minus(error: float, decimals: int = 1) -> str:
    return "" if error != error else f" ± {error:.{decimals}f}"


def _cell(outcome: Outcome, policy: str, name: str) -> str:
    value, error = outcome.mean(policy, FIGURES[name].of)
    if not FIGURES[name].percent:
        return f"{value:.2f}{_plus_minus(error, 2)}"
    sign = "+" if name == "overcharge_share" else ""
    return f"{100 * value:{sign}.1f}%{_plus_minus(100 * error)}"


def _share(outcome: Outcome, policy: str) -> str:
    value, error = outcome.mean(policy, lambda account: account.overcharge_share)
    return f"{abs(100 * value):.1f}%{_plus_minus(100 * error)} {'more' if value >= 0 else 'less'}"
