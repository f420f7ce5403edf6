"""What a run of the command found: figures of the policies, as flat records and as one JSON document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ... import documents
from .account import Account
from .loop import LoopOutcome
from .market import Market
from .policies import DEFAULT
from .simulate import Outcome, Settings, mean_and_error, simulate
from .theory import causes

#: Values of each field in a study of sensitivity. Budgets are for a thousand requests; without one the default market
#: spends about 18.
SENSITIVITY: Mapping[str, tuple[float, ...]] = {
    "candidates": (1, 3, 10, 30, 100, 300),
    "noise": (0.1, 0.2, 0.3, 0.5),
    "shading": (0.6, 0.8, 1.0),
    "budget": (5.0, 10.0, 15.0),
}


@dataclass(frozen=True)
class FigureOf:
    """A figure of an account."""

    name: str  # in records
    title: str  # of its column
    of: Callable[[Account], float]
    percent: bool = False  # else an amount for a thousand requests, or for a click


def _per_thousand(name: str) -> Callable[[Account], float]:
    return lambda account: 1000 * float(getattr(account, name)) / account.auctions


#: Figures of the tables.
FIGURES = (
    FigureOf("overcharge_share", "overcharge", lambda account: account.overcharge_share, percent=True),
    FigureOf("overcharge", "overcharge, money", _per_thousand("overcharge")),
    FigureOf("won", "won", lambda account: account.won / account.auctions, percent=True),
    FigureOf("spend", "spend", _per_thousand("spend")),
    FigureOf("clicks", "clicks", _per_thousand("clicks")),
    FigureOf("cost_per_click", "cost per click", lambda account: account.cost_per_click),
    FigureOf("surplus", "surplus", _per_thousand("surplus")),
    FigureOf("lost", "lost", _per_thousand("lost")),
    FigureOf("overpaid", "overpaid", _per_thousand("overpaid")),
    FigureOf("lost_welfare", "welfare lost", lambda account: account.lost_welfare, percent=True),
)


@dataclass(frozen=True)
class Results:
    """Everything that one run simulated."""

    outcome: Outcome
    sensitivity: Mapping[str, tuple[tuple[float, Outcome], ...]] = field(default_factory=dict)  # by varied field
    loop: LoopOutcome | None = None


def sensitivity(
    market: Market,
    settings: Settings,
    field: str,
    values: Sequence[float],
    *,
    policies: Sequence[str] = DEFAULT,
    progress: Callable[[int], None] | None = None,
) -> tuple[tuple[float, Outcome], ...]:
    """Simulate the market for several values of one of its fields, or of the budget.

    Parameters
    ----------
    market : Market
        The market.
    settings : Settings
        Sizes and options of each simulation.
    field : {"candidates", "noise", "shading", "value", "budget"}
        Field of `Market`, or "budget".
    values : sequence of float
        Its values.
    policies, progress
        See `simulate`.

    Returns
    -------
    tuple of (float, Outcome)
    """
    found = []
    for value in values:
        varied, options = market, settings
        if field == "budget":
            options = replace(settings, budget=value)
        else:
            number: Any = int(value) if field == "candidates" else value
            varied = replace(market, **{field: number})
        found.append((value, simulate(varied, options, policies=policies, progress=progress)))
    return tuple(found)


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
    for figure in FIGURES:
        value, error = mean_and_error([figure.of(account) for account in accounts])
        found[figure.name] = value if math.isfinite(value) else ""
        found[f"{figure.name}_error"] = error if math.isfinite(error) else ""
    return found


def to_json(results: Results) -> str:
    """Return one JSON document: the market, the settings, and the records."""
    market = {name: value for name, value in vars(results.outcome.market).items() if name != "landscape"}
    content: dict[str, Any] = {"market": market, "settings": asdict(results.outcome.settings)}
    if results.outcome.settings.budget is None:
        content["expected_as_served"] = dict(causes(results.outcome.market))
    if results.loop is not None:
        world = {name: value for name, value in vars(results.loop.world).items() if name != "market"}
        content["loop"] = {**world, "explore": results.loop.explore}
    content["records"] = [{k: None if v == "" else v for k, v in record.items()} for record in records(results)]
    return documents.dumps("auction", content)
