"""The account of a policy: what it won, paid and received."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ..._types import Array
from .market import Auctions, Market


@dataclass(frozen=True)
class Account:
    """Sums over auctions, per policy. Clicks are expected clicks, by the true rates.

    The platform charges an advertiser the value of the predicted clicks, as in optimised cost per mille. If the
    predictions of the impressions won are 20% too high, the advertiser pays 20% more than the clicks are worth.

    Parameters
    ----------
    auctions, won : float
        Number of auctions, and of those won.
    predicted, clicks : float
        Predicted and true clicks of the impressions won.
    spend : float
        Payments to the exchange.
    charged, delivered : float
        Value of the predicted clicks, which the advertisers are charged, and of the true clicks.
    lost : float
        Value minus price of the impressions that were lost though they were worth their price.
    overpaid : float
        Price minus value of the impressions that were won though they were not worth their price.
    welfare, best_welfare : float
        Value of the impressions won, and prices of those lost, which others value so much; and the same if every
        impression went to who values it most.

    Examples
    --------
    >>> account = Account(10, 5, 0.6, 0.5, 40.0, 60.0, 50.0, 1.0, 2.0, 90.0, 100.0)
    >>> round(account.error, 3), account.overcharge, account.surplus, account.cost_per_click
    (0.2, 10.0, 10.0, 80.0)
    """

    auctions: float
    won: float
    predicted: float
    clicks: float
    spend: float
    charged: float
    delivered: float
    lost: float
    overpaid: float
    welfare: float
    best_welfare: float

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

    def to_dict(self) -> dict[str, Any]:
        """Return all sums and what follows from them.

        Returns
        -------
        dict
        """
        more = ("error", "overcharge", "overcharge_share", "surplus", "cost_per_click", "lost_welfare")
        return {**asdict(self), **{name: getattr(self, name) for name in more}}


def settle(market: Market, auctions: Auctions, predictions: Array, pacing: float = 1.0) -> Account:
    """Bid in auctions by predicted rates (n,), times `pacing`, which keeps the spend within the budget; sum up."""
    rate, prices = auctions.rate, auctions.prices
    bids = market.bids(predictions) * pacing
    won = bids > prices
    worth = 1000 * market.value * rate  # per thousand impressions, as prices
    paid = market.paid(bids, prices)[won]

    def money(values: Array) -> float:
        return float(values.sum()) / 1000

    predicted, clicks = float(predictions[won].sum()), float(rate[won].sum())
    return Account(
        auctions=float(len(rate)),
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
