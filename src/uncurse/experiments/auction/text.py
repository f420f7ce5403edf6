"""The results of a market as text: money first, then the tables."""

from __future__ import annotations

from collections.abc import Sequence

from ...text_tables import TextTable, as_markdown, as_text
from .loop import LoopOutcome
from .results import FIGURES, FigureOf, Results
from .simulate import TRUTH, Outcome
from .theory import causes

Parts = list[str | Sequence[str] | TextTable]
_SINCE = 10  # first day of the averages of the closed loop

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


def headline(outcome: Outcome) -> str:
    """Return the cost of over-prediction in a sentence or two, in money."""
    best = corrected(outcome)
    parts = []
    if "as served" in outcome.accounts:
        amount = _cell(outcome, "as served", _figure("overcharge"))
        parts.append(
            f"As served, advertisers are charged {_share(outcome, 'as served')} than the clicks they get are "
            f"worth: {amount} for 1,000 requests."
        )
    if best is not None:
        removed, error = outcome.removed(best) if "as served" in outcome.accounts else (float("nan"), float("nan"))
        share = "" if removed != removed else f", which removes {100 * removed:.1f}%{_plus_minus(100 * error)} of it"
        parts.append(f"With the map of {best} they are charged {_share(outcome, best)}{share}.")
    return " ".join(parts)


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
    rows = sum(n for n, _ in outcome.labelled) / len(outcome.labelled)
    clicks = sum(n for _, n in outcome.labelled) / len(outcome.labelled)
    random = f", and {100 * options.explore:g}% random traffic" if options.explore else ""
    budget = "" if options.budget is None else f", a budget of {options.budget:g} for 1,000 requests"
    shading = "" if market.shading == 1 else f", bids shaded to {market.shading:g}"
    return (
        f"{options.auctions:,} {market.price}-price auctions in each of {options.repetitions} repetitions, "
        f"{market.candidates} ads for each request, noise {market.noise:g}, value of a click {market.value:g}"
        f"{shading}{budget}. Labels: {_LABELS[options.labels]}{random}; {rows:,.0f} rows with {clicks:,.0f} clicks."
    )


def figures_table(outcome: Outcome) -> list[tuple[str, ...]]:
    """Return a header, and a row of figures for each policy."""
    table = [("policy", *(figure.title for figure in FIGURES))]
    for policy in outcome.accounts:
        table.append((policy, *(_cell(outcome, policy, figure) for figure in FIGURES)))
    return table


def sensitivity_table(outcomes: Sequence[tuple[float, Outcome]], name: str) -> list[tuple[str, ...]]:
    """Return a header, and the overcharge of each policy by the value of a field."""
    table = [(FIELDS[name].lower(), *(f"{value:g}" for value, _ in outcomes))]
    for policy in outcomes[0][1].accounts:
        table.append((policy, *(_cell(one, policy, _figure("overcharge_share")) for _, one in outcomes)))
    for label, figure in (("surplus as served", "surplus"), ("surplus with truth", "surplus")):
        policy = TRUTH if "truth" in label else "as served"
        if policy in outcomes[0][1].accounts:
            table.append((label, *(_cell(one, policy, _figure(figure)) for _, one in outcomes)))
    return table


def loop_table(loop: LoopOutcome) -> list[tuple[str, ...]]:
    """Return a header, errors of the policies on some days, and averages over the later ones."""
    since = min(_SINCE, loop.days[-1])
    shown = [day for day in loop.days if day % 5 == 0 or day in (loop.days[0], loop.days[-1])]
    header = [f"day {day}" for day in shown]
    table = [("policy", *header, f"mean from day {since}", "mean size", "won", "surplus")]
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


def text(results: Results) -> str:
    """Return the results for a terminal."""
    return as_text(_parts(results))


def markdown(results: Results) -> str:
    """Return the results as Markdown."""
    return as_markdown(_parts(results))


def _parts(results: Results) -> Parts:
    outcome = results.outcome
    parts: Parts = [headline(outcome), setting(outcome)]
    if outcome.settings.budget is None:
        parts.append(expected_words(outcome))
    rows = figures_table(outcome)
    # Two tables, so that 120 columns are enough.
    parts.append(TextTable("Charges and clicks", [row[:7] for row in rows]))
    parts.append(TextTable("Value", [(row[0], *row[7:]) for row in rows]))
    for name, outcomes in results.sensitivity.items():
        parts.append(TextTable(f"Overcharge by {FIELDS[name].lower()}", sensitivity_table(outcomes, name)))
    if results.loop is not None:
        parts += [TextTable(loop_title(results.loop), loop_table(results.loop))]
    return [*parts, MONEY]


def loop_title(loop: LoopOutcome) -> str:
    """Return the title of the table of the closed loop."""
    count = len(next(iter(loop.accounts.values())))
    random = f", {100 * loop.explore:g}% random traffic" if loop.explore else ""
    random += ", which labels come from" if loop.labels == "random" else ""
    replicas = "bootstraps" if loop.world.bootstrap else "retrained models"
    return f"Closed loop, over-prediction of won impressions: {count} repetitions, replicas are {replicas}{random}"


# ---------------------------------------------------------------------------- cells


def _figure(name: str) -> FigureOf:
    return next(figure for figure in FIGURES if figure.name == name)


def as_percent(value: float, decimals: int = 1) -> str:
    """Format a share as a percentage with a sign."""
    return "undefined" if value != value else f"{100 * value:+.{decimals}f}%"


def _plus_minus(error: float, decimals: int = 1) -> str:
    return "" if error != error else f" ± {error:.{decimals}f}"


def _cell(outcome: Outcome, policy: str, figure: FigureOf) -> str:
    value, error = outcome.mean(policy, figure.of)
    if not figure.percent:
        return f"{value:.2f}{_plus_minus(error, 2)}"
    sign = "+" if figure.name == "overcharge_share" else ""
    return f"{100 * value:{sign}.1f}%{_plus_minus(100 * error)}"


def _share(outcome: Outcome, policy: str) -> str:
    value, error = outcome.mean(policy, lambda account: account.overcharge_share)
    return f"{abs(100 * value):.1f}%{_plus_minus(100 * error)} {'more' if value >= 0 else 'less'}"
