"""Expected results of a market by quadrature, for any policy that is a function of the served score.

The served log odds of the chosen ad are the highest of n normal numbers. Given them, its true log odds are normal, and
the competing price is independent of both. So every sum of an `Account` is a double integral.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special, stats

from uncurse.links import logistic

from .landscape import Landscape
from .market import Account, Market
from .policies import Policy, as_served

_POINTS = 8001  # of the served score; the error of the sums is below 1e-5 of them
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


def expected_account(market: Market, policy: Policy = as_served, *, exchange: bool = True) -> Account:
    """Compute the expected account of one auction; without `exchange` all are won, at no price."""
    landscape = market.landscape if exchange else Landscape((0.0, 1e-9), (0.0, 1.0))
    s = float(np.hypot(market.spread, market.noise))
    z = np.linspace(-9.0, 9.0, _POINTS)
    # The density of the highest of n, with the powers of the distribution function in logarithms.
    density = market.candidates * np.exp(stats.norm.logpdf(z) + (market.candidates - 1) * special.log_ndtr(z))
    density *= z[1] - z[0]
    predictions = np.asarray(policy(market.mean + s * z), float)
    residual = market.spread * np.sqrt(1 - market.shrinkage)
    truth = market.mean + market.shrinkage * s * z[:, None] + residual * _NODES
    rate = logistic(truth) @ _WEIGHTS / _WEIGHTS.sum()
    bids = market.bids(predictions)
    win, price = landscape.win_probability(bids), landscape.expected_price(bids)
    worth = 1000 * market.value * logistic(truth)
    worth_win, worth_price = landscape.win_probability(worth), landscape.expected_price(worth)
    # Value minus price of the auctions whose price lies between the bid and the value.
    between = worth * (worth_win - win[:, None]) - (worth_price - price[:, None])
    everything = float(landscape.expected_price(np.array([landscape.prices[-1]]))[0])

    def mean(values: np.ndarray) -> float:
        inner = values @ _WEIGHTS / _WEIGHTS.sum() if values.ndim == 2 else values
        return float((density * inner).sum())

    above = worth > bids[:, None]
    predicted, clicks = mean(predictions * win), mean(rate * win)
    return Account(
        auctions=1.0,
        won=mean(win),
        predicted=predicted,
        clicks=clicks,
        spend=mean(price if market.price == "second" else bids * win) / 1000,
        charged=market.value * predicted,
        delivered=market.value * clicks,
        lost=mean(np.where(above, between, 0.0)) / 1000,
        overpaid=mean(np.where(above, 0.0, between)) / 1000,
        welfare=mean(worth * win[:, None] + everything - price[:, None]) / 1000,
        best_welfare=mean(worth * worth_win + everything - worth_price) / 1000,
    )


def causes(market: Market) -> tuple[tuple[str, float], ...]:
    """Return the causes of over-prediction as served, with the calibration error by each and those before it."""
    return (
        ("noise in log odds", expected_account(replace(market, candidates=1), exchange=False).error),
        ("the choice of the best ad", expected_account(market, exchange=False).error),
        ("the auction", expected_account(market).error),
    )
