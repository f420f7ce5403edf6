"""A market: requests, candidates with true and predicted click rates, competing prices, and what a policy earns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.links import logistic
from uncurse.threads import in_threads
from uncurse.validation import check_choice, check_count, check_number

from .landscape import Landscape

REPLICAS = 3  # models that score the pool and the labeled rows: the served one and two more
_SCORES = 1 << 19  # candidates that a thread scores at once, so that they stay in its cache
_AUCTIONS = 1 << 17  # auctions that are handed on at once


@dataclass(frozen=True)
class Market:
    """Requests with candidates, of which the platform bids for the one with the highest predicted rate.

    The true log odds of a click are normal, and so is the error of the log odds of a model. The platform bids
    ``value · prediction · shading`` for an impression.

    Money has one unit, any currency. Prices and bids are for a thousand impressions, as is usual; the value of a click
    is for one click. A click worth 5 and a predicted rate of 2% make a bid of 1000 · 5 · 0.02 = 100.

    Examples
    --------
    >>> market = Market(candidates=10)
    >>> chosen = next(market.auctions(1000, seed=0))
    >>> chosen.served.shape, bool(logistic(chosen.served).mean() > chosen.clicks.mean())
    ((1000,), True)
    """

    candidates: int = 100  # ads that each request is scored for
    mean: float = -7.0  # of the true log odds of a click
    spread: float = 1.0  # standard deviation of the true log odds
    noise: float = 0.3  # standard deviation of the error of each replica of the model
    value: float = 5.0  # of a click
    price: str = "second"  # the winner pays the highest competing price, or its own bid ("first")
    shading: float = 1.0  # factor on all bids, as is common in first-price auctions
    landscape: Landscape = field(default_factory=Landscape.default)  # of the highest competing price

    def __post_init__(self) -> None:
        check_choice("price", self.price, ("second", "first"))
        check_number(self.mean, "mean")
        check_fields(self, counts="candidates", positive="value shading", least_0="spread noise")

    @property
    def shrinkage(self) -> float:
        """λ: share of the variance of the served log odds that is not noise."""
        return self.spread**2 / (self.spread**2 + self.noise**2) if self.spread else 0.0

    def auctions(
        self, count: int, seed: int, *, replicas: int = 1, progress: Callable[[int], None] | None = None
    ) -> Iterator[Auctions]:
        """Score the candidates of many requests, and yield the best of each, up to 131,072 at a time.

        `replicas` is the number of scores of the chosen candidate: of the model that chooses, then of replicas. The
        auctions of a seed are the same on any number of cores. `progress` is called with the number of auctions done.
        """
        starts = [*range(0, count, _AUCTIONS), count]
        for i, (start, stop) in enumerate(pairwise(starts)):
            most = max(1, _SCORES // self.candidates)
            edges = np.linspace(0, stop - start, max(1, -(-(stop - start) // most)) + 1).astype(int)
            streams = np.random.SeedSequence([seed, i]).spawn(len(edges) - 1)
            pieces = list(zip(np.diff(edges).tolist(), streams, strict=True))
            parts = in_threads(partial(self._choose, replicas), pieces)
            yield Auctions(*(np.concatenate(column) for column in zip(*parts, strict=True)))
            if progress is not None:
                progress(stop - start)

    def _choose(self, replicas: int, piece: tuple[int, np.random.SeedSequence]) -> tuple[Array, Array, Array]:
        """Return log odds of the chosen candidates by the models, true click rates, and competing prices."""
        count, stream = piece
        rng = np.random.Generator(np.random.SFC64(stream))
        truth = rng.standard_normal((count, self.candidates), np.float32)
        truth *= np.float32(self.spread)
        served = rng.standard_normal((count, self.candidates), np.float32)
        served *= np.float32(self.noise)
        served += truth
        best = np.argmax(served, axis=1)
        rows = np.arange(count)
        chosen = truth[rows, best].astype(np.float64)
        scores = np.empty((count, replicas))
        scores[:, 0] = served[rows, best]
        scores[:, 1:] = chosen[:, None] + self.noise * rng.standard_normal((count, replicas - 1))
        return scores + self.mean, logistic(chosen + self.mean).astype(float), self.landscape.draw(rng, count)

    def random_ads(self, rows: int, seed: Sequence[int]) -> tuple[Array, NDArray[np.bool_]]:
        """Draw candidates at random: their log odds by all replicas, (rows, 3), and whether they are clicked."""
        rng = np.random.default_rng(seed)
        truth = self.mean + self.spread * rng.standard_normal(rows)
        noise = self.noise * rng.standard_normal((rows, REPLICAS))
        return truth[:, None] + noise, rng.random(rows) < logistic(truth)

    def bids(self, predictions: Array) -> Array:
        """Return bids per thousand impressions for predicted click rates."""
        return 1000 * self.value * self.shading * predictions


def check_fields(of: Any, *, counts: str = "", positive: str = "", least_0: str = "", shares: str = "") -> None:
    """Check numbers of a dataclass by the names of their fields, separated by spaces."""
    for name in counts.split():
        check_count(getattr(of, name), name)
    kinds = ((positive, 1e-300, np.inf, "a positive number"), (least_0, 0.0, np.inf, "0 or more"))
    for names, low, high, remedy in (*kinds, (shares, 0.0, 1.0, "a number from 0 to 1")):
        for name in names.split():
            if not low <= check_number(getattr(of, name), name) <= high:
                raise UncurseError(f"{name}={getattr(of, name):g}; pass {remedy}")


@dataclass(frozen=True)
class Auctions:
    """Auctions of the chosen candidates, simulated or logged."""

    scores: Array  # (n, S) log odds by the served model, then by replicas
    clicks: Array  # (n,) expected clicks, which are the true rates; observed clicks, 0 or 1, in a log
    prices: Array  # (n,) highest competing prices

    @property
    def served(self) -> Array:
        """Log odds by the served model."""
        return np.asarray(self.scores[:, 0])


# ---------------------------------------------------------------------------- what a policy earns

_AMOUNTS = ("overcharge", "spend", "clicks", "surplus", "lost", "overpaid")


@dataclass(frozen=True)
class Account:
    """Sums over the auctions of a policy. Clicks are expected ones, by the true rates; in a replay, observed ones.

    The platform charges an advertiser the value of the predicted clicks, as in optimized cost per mille. If the
    predictions of the impressions won are 20% too high, the advertiser pays 20% more than the clicks are worth.
    """

    auctions: float
    won: float
    predicted: float  # clicks of the impressions won
    clicks: float  # true clicks of the impressions won
    spend: float  # payments to the exchange
    charged: float  # value of the predicted clicks, which advertisers are charged
    delivered: float  # value of the true clicks
    lost: float  # value minus price of impressions that were worth their price and not won
    overpaid: float  # price minus value of impressions that were won and not worth it
    welfare: float  # value of the impressions won, and prices of those lost, which others value so much
    best_welfare: float  # the same if every impression went to who values it most

    def figure(self, name: str) -> float:
        """Return a property by name: amounts for 1,000 auctions, impressions won as a share."""
        value = float(getattr(self, name))
        return 1000 * value / self.auctions if name in _AMOUNTS else value / self.auctions if name == "won" else value

    def __add__(self, other: Account) -> Account:
        return Account(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def error(self) -> float:
        """Calibration error of the impressions won."""
        return self.predicted / self.clicks - 1 if self.clicks > 0 else float("nan")

    @property
    def overcharge(self) -> float:
        """Value charged for clicks that did not come."""
        return self.charged - self.delivered

    @property
    def overcharge_share(self) -> float:
        """Overcharge, relative to the value of the clicks."""
        return self.overcharge / self.delivered if self.delivered > 0 else float("nan")

    @property
    def surplus(self) -> float:
        """Value of the clicks minus the payments to the exchange."""
        return self.delivered - self.spend

    @property
    def cost_per_click(self) -> float:
        """Payments per click."""
        return self.spend / self.clicks if self.clicks > 0 else float("nan")

    @property
    def lost_welfare(self) -> float:
        """Share of the best welfare that is lost."""
        return 1 - self.welfare / self.best_welfare if self.best_welfare > 0 else float("nan")


def settle(market: Market, auctions: Auctions, predictions: Array, pacing: float = 1.0) -> Account:
    """Bid in auctions by predicted rates (n,), times `pacing`, which keeps the spend within the budget; sum up."""
    prices = auctions.prices
    bids = market.bids(predictions) * pacing
    won = bids > prices
    worth = 1000 * market.value * auctions.clicks  # per thousand impressions, as prices
    paid = (prices if market.price == "second" else bids)[won]

    def money(values: Array) -> float:
        return float(values.sum()) / 1000

    predicted, clicks = float(predictions[won].sum()), float(auctions.clicks[won].sum())
    return Account(
        auctions=float(len(prices)),
        won=float(won.sum()),
        predicted=predicted,
        clicks=clicks,
        spend=money(paid),
        charged=market.value * predicted,
        delivered=market.value * clicks,
        lost=money(np.maximum(worth - prices, 0.0)[~won]),
        overpaid=money(np.maximum(prices - worth, 0.0)[won]),
        welfare=money(np.where(won, worth, prices)),
        best_welfare=money(np.maximum(worth, prices)),
    )
