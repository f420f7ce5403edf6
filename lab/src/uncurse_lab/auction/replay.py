"""Replay a log of auctions: what a policy would have won, paid and received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from uncurse import documents
from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.links import to_link
from uncurse.validation import check_choice, check_labels, check_number, check_scores

from ..render import Part, TextTable
from .files import read_columns
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


@dataclass(frozen=True)
class AuctionLog:
    """Auctions with their highest competing price."""

    clicks: NDArray[Any]  # (n,) 0 or 1
    prices: Array  # (n,) highest competing price for a thousand impressions
    scores: Array  # (n,) log odds of the served model


@dataclass(frozen=True)
class ReplayAccount:
    """Sums over the auctions that a policy would have won."""

    auctions: int
    won: int
    clicks: int  # observed on the auctions won
    predicted: float  # clicks of the auctions won
    spend: float  # payments to the exchange
    value: float  # of a click

    @property
    def click_interval(self) -> tuple[float, float]:
        """Exact 95% interval for the expected number of clicks."""
        tail = (1 - _LEVEL) / 2
        low = float(stats.chi2.ppf(tail, 2 * self.clicks) / 2) if self.clicks else 0.0
        return low, float(stats.chi2.ppf(1 - tail, 2 * self.clicks + 2) / 2)

    @property
    def error(self) -> float:
        """Calibration error of the auctions won."""
        return self.predicted / self.clicks - 1 if self.clicks else float("nan")

    @property
    def error_interval(self) -> tuple[float, float]:
        """95% interval of the calibration error; the upper end may be infinite."""
        low, high = self.click_interval
        return self.predicted / high - 1, self.predicted / low - 1 if low else float("inf")

    @property
    def overcharge(self) -> float:
        """Value of the predicted clicks minus value of the observed ones."""
        return self.value * (self.predicted - self.clicks)

    @property
    def overcharge_interval(self) -> tuple[float, float]:
        """95% interval of the overcharge."""
        low, high = self.click_interval
        return self.value * (self.predicted - high), self.value * (self.predicted - low)

    @property
    def surplus(self) -> float:
        """Value of the observed clicks minus payments."""
        return self.value * self.clicks - self.spend

    @property
    def cost_per_click(self) -> float:
        """Payments per observed click."""
        return self.spend / self.clicks if self.clicks else float("nan")


@dataclass(frozen=True)
class Replay:
    """Result of a replay."""

    accounts: Mapping[str, ReplayAccount]  # by policy
    price: str  # "second" or "first"
    shading: float  # factor on all bids
    logged: ReplayAccount  # all auctions of the log, at their prices

    def to_json(self) -> str:
        """Return one JSON document with a flat record for each policy."""
        records = []
        for policy, account in self.accounts.items():
            record = {"policy": policy, **vars(account)}
            record |= {name: getattr(account, name) for name in ("error", "overcharge", "surplus", "cost_per_click")}
            for name in ("error", "overcharge"):
                record[f"{name}_low"], record[f"{name}_high"] = getattr(account, f"{name}_interval")
            finite = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in record.items()}
            records.append(finite)
        content = {"price": self.price, "shading": self.shading, "records": records, "caveats": list(CAVEATS)}
        return documents.dumps("auction-replay", content)

    def parts(self, brief: bool = False) -> Iterator[Part]:
        """Yield the cost of over-prediction in a sentence, the table, and what a replay cannot show."""
        served, logged = self.accounts["as served"], self.logged
        low, high = served.overcharge_interval
        yield (
            f"As served, advertisers would be charged {served.overcharge:,.0f} (95% interval {low:,.0f} to "
            f"{high:,.0f}) more than the {served.clicks:,} clicks are worth: {as_percent(served.error, 0)}."
        )
        shading = "" if self.shading == 1 else f", bids shaded to {self.shading:g}"
        yield (
            f"{logged.auctions:,} logged auctions with {logged.clicks:,} clicks, at a cost per click of "
            f"{logged.cost_per_click:,.1f}. Replayed as {self.price}-price auctions, value of a click "
            f"{logged.value:,.4g}{shading}. Prices are for a thousand impressions; other amounts are totals in the "
            "same currency."
        )
        yield TextTable("", self.table())
        yield ["Caveats", *(f"- {line}" for line in CAVEATS)]

    def table(self) -> list[tuple[str, ...]]:
        """Return a header and a row for each policy."""
        head = ("policy", "won", "clicks", "predicted", "over-prediction (95%)", "overcharge (95%)")
        table: list[tuple[str, ...]] = [(*head, "spend", "cost per click", "surplus")]
        for name, one in self.accounts.items():
            low, high = one.error_interval
            least, most = one.overcharge_interval
            clicks = f"{100 * one.won / one.auctions:.1f}%", f"{one.clicks:,}", f"{one.predicted:.1f}"
            error = f"{as_percent(one.error, 0)} ({as_percent(low, 0)} to {as_percent(high, 0)})"
            overcharge = f"{one.overcharge:,.0f} ({least:,.0f} to {most:,.0f})"
            money = f"{one.spend:,.1f}", f"{one.cost_per_click:,.1f}", f"{one.surplus:,.1f}"
            table.append((name, *clicks, error, overcharge, *money))
        return table


def read_log(path: str | Path, click: str, price: str, score: str, *, scale: str = "probability") -> AuctionLog:
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
    return AuctionLog(np.asarray(labels), prices, np.asarray(to_link(scores, scale, "logistic"), float))


def fit_on_log(log: AuctionLog) -> dict[str, Policy]:
    """Fit the policies that need no replicas to a training log, of other auctions than those that are replayed."""
    if not 0 < log.clicks.sum() < len(log.clicks):
        raise UncurseError(f"the training log has {log.clicks.sum():,} clicks in {len(log.clicks):,} rows; use another")
    alone = log.scores[:, None]
    history = History(alone, alone, log.clicks)
    return {name: fit_policy(name, history) for name in TRAINED}


def replay(
    log: AuctionLog,
    policies: Mapping[str, Policy],
    *,
    value: float | None = None,
    price: str = "second",
    shading: float = 1.0,
) -> Replay:
    """Bid in the auctions of a log by each policy, and as served.

    A policy bids ``1000 · value · prediction · shading`` and wins if that exceeds the price in the log. `value` is that
    of a click, by default the cost per click of the log. The winner pays the price in the log ("second") or its bid
    ("first").
    """
    check_choice("price", price, ("second", "first"))
    clicks = float(log.clicks.sum())
    cost_per_click = float(log.prices.sum()) / 1000 / clicks if clicks else float("nan")
    worth = cost_per_click if value is None else check_number(value, "value")
    if not worth > 0:
        raise UncurseError("the log has no clicks, so it has no cost per click; pass the value of a click")

    def account(predictions: Array, won: NDArray[np.bool_], paid: Array) -> ReplayAccount:
        counts = len(won), int(won.sum()), int(log.clicks[won].sum())
        return ReplayAccount(*counts, float(predictions[won].sum()), float(paid[won].sum()) / 1000, worth)

    accounts = {}
    for name, policy in {"as served": as_served, **policies}.items():
        predictions = np.asarray(policy(log.scores), float)
        bids = 1000 * worth * shading * predictions
        accounts[name] = account(predictions, bids > log.prices, log.prices if price == "second" else bids)
    logged = account(as_served(log.scores), np.ones(len(log.clicks), bool), log.prices)
    return Replay(accounts, price, shading, logged)
