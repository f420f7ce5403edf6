"""Replay a log of auctions: what a policy would have won, paid and received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from uncurse import documents
from uncurse.errors import UncurseError
from uncurse.links import to_link
from uncurse.validation import check_choice, check_labels, check_scores

from ..render import Part, Table, TextTable
from .files import read_columns
from .market import Account, Auctions, Market, settle
from .policies import History, Policy, as_served, fit_policy
from .results import as_percent

#: Policies that need one score and labels only, fitted to a training log.
TRAINED = ("multiplier", "platt", "isotonic")
#: What a replay cannot show.
CAVEATS = (
    "The log holds only auctions that the logging bidder won. Auctions with prices above its bids are missing, so a "
    "policy that bids more would win more than this replay shows.",
    "Competitors and prices do not react to the bids.",
    "The ads and the clicks are those of the logging bidder. A model that chooses among several ads would show others.",
    "Clicks are few; the intervals are exact Poisson intervals for them. They hold for the clicks of these "
    "impressions, and not for another day.",
    "One score without replicas shows nothing of its own noise: VAD, labels and Auto need replicas. Fit them with "
    "'uncurse fit' on a pool, and pass the map.",
)
_LEVEL = 0.95
#: What the exported file has of each policy.
_FIGURES = ("auctions", "won", "clicks", "predicted", "spend", "error", "overcharge", "surplus", "cost_per_click")


def intervals_of(account: Account, value: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return 95% intervals of the calibration error, whose upper end may be infinite, and of the overcharge.

    They are exact Poisson intervals for the expected number of clicks.
    """
    tail = (1 - _LEVEL) / 2
    low = float(stats.chi2.ppf(tail, 2 * account.clicks) / 2) if account.clicks else 0.0
    high = float(stats.chi2.ppf(1 - tail, 2 * account.clicks + 2) / 2)
    largest = account.predicted / low - 1 if low else float("inf")
    return (account.predicted / high - 1, largest), (account.charged - value * high, account.charged - value * low)


@dataclass(frozen=True)
class Replay:
    """Result of a replay."""

    accounts: Mapping[str, Account]  # by policy
    market: Market  # its value of a click, kind of auction and shading
    clicks: int  # of all auctions of the log
    cost_per_click: float  # of the log, at its prices
    currency: str = "units"

    def to_json(self) -> str:
        """Return one JSON document with a flat record for each policy."""
        records = []
        for policy, account in self.accounts.items():
            record = {"policy": policy, "value": self.market.value}
            record |= {name: getattr(account, name) for name in _FIGURES}
            for name, ends in zip(("error", "overcharge"), intervals_of(account, self.market.value), strict=True):
                record[f"{name}_low"], record[f"{name}_high"] = ends
            finite = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in record.items()}
            records.append(finite)
        market = {"price": self.market.price, "shading": self.market.shading}
        return documents.dumps("auction-replay", {**market, "records": records, "caveats": list(CAVEATS)})

    def parts(self, brief: bool = False) -> Iterator[Part]:
        """Yield the cost of over-prediction in a sentence, the table, and what a replay cannot show."""
        served, market = self.accounts["as served"], self.market
        _, (low, high) = intervals_of(served, market.value)
        yield (
            f"As served, advertisers would be charged {served.overcharge:,.0f} {self.currency} (95% interval "
            f"{low:,.0f} to {high:,.0f}) more than the {served.clicks:,.0f} clicks are worth: "
            f"{as_percent(served.error, 0)}."
        )
        shading = "" if market.shading == 1 else f", bids shaded to {market.shading:g}"
        yield (
            f"{served.auctions:,.0f} logged auctions with {self.clicks:,} clicks, at a cost per click of "
            f"{self.cost_per_click:,.1f}. Replayed as {market.price}-price auctions, value of a click "
            f"{market.value:,.4g}{shading}. Prices are for a thousand impressions; other amounts are totals, in "
            f"{self.currency}."
        )
        yield TextTable("", self.table())
        yield ["Caveats", *(f"- {line}" for line in CAVEATS)]

    def table(self) -> Table:
        """Return a header and a row for each policy."""
        head = ("policy", "won", "clicks", "predicted", "over-prediction (95%)", "overcharge (95%)")
        table: Table = [(*head, "spend", "cost per click", "surplus")]
        for name, one in self.accounts.items():
            (low, high), (least, most) = intervals_of(one, self.market.value)
            clicks = f"{100 * one.won / one.auctions:.1f}%", f"{one.clicks:,.0f}", f"{one.predicted:.1f}"
            error = f"{as_percent(one.error, 0)} ({as_percent(low, 0)} to {as_percent(high, 0)})"
            overcharge = f"{one.overcharge:,.0f} ({least:,.0f} to {most:,.0f})"
            money = f"{one.spend:,.1f}", f"{one.cost_per_click:,.1f}", f"{one.surplus:,.1f}"
            table.append((name, *clicks, error, overcharge, *money))
        return table


def read_log(path: str | Path, click: str, price: str, score: str, *, scale: str = "probability") -> Auctions:
    """Read a log of auctions from a file that `read_columns` reads.

    `click` (0 or 1), `price` (the highest competing one, for a thousand impressions) and `score` are names of columns;
    `scale` is that of the score, "probability" or "logit".
    """
    check_choice("scale", scale, ("probability", "logit"))
    found = read_columns(path, [click, price, score])
    try:
        labels = check_labels(found[click], len(found[click]))
        scores = check_scores(found[score], scale)
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from None
    prices = found[price]
    if not (prices >= 0).all():
        raise UncurseError(f"{path}, column {price!r}: {prices.min():g} is no price; prices are 0 or more")
    logits = np.asarray(to_link(scores, scale, "logistic"), float)
    return Auctions(logits[:, None], np.asarray(labels, float), prices)


def fit_on_log(log: Auctions) -> dict[str, Policy]:
    """Fit the policies that need no replicas to a training log, of other auctions than those that are replayed."""
    if not 0 < log.clicks.sum() < len(log.clicks):
        clicks, rows = log.clicks.sum(), len(log.clicks)
        raise UncurseError(f"the training log has {clicks:,.0f} clicks in {rows:,} rows; use another")
    history = History(log.scores, log.scores, log.clicks)
    return {name: fit_policy(name, history) for name in TRAINED}


def replay(
    log: Auctions,
    policies: Mapping[str, Policy],
    *,
    value: float | None = None,
    price: str = "second",
    shading: float = 1.0,
    currency: str = "units",
) -> Replay:
    """Bid in the auctions of a log by each policy, and as served.

    A policy bids ``1000 · value · prediction · shading`` and wins if that exceeds the price in the log. `value` is that
    of a click, by default the cost per click of the log. The winner pays the price in the log ("second") or its bid
    ("first").
    """
    clicks = int(log.clicks.sum())
    if value is None and not clicks:
        raise UncurseError("the log has no clicks, so it has no cost per click; pass the value of a click")
    cost_per_click = float(log.prices.sum()) / 1000 / clicks if clicks else float("nan")
    market = Market(value=cost_per_click if value is None else value, price=price, shading=shading)
    accounts = {
        name: settle(market, log, np.asarray(policy(log.served), float))
        for name, policy in {"as served": as_served, **policies}.items()
    }
    return Replay(accounts, market, clicks, cost_per_click, currency)
