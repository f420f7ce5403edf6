"""Expected results of a market by quadrature, for any policy that is a function of the served score.

The served log odds of the chosen ad are the highest of n normal numbers. Given them, its true log odds are normal, and
the competing price is independent of both. So every sum of an `Account` is a double integral.

The highest of n is a mixture of the selections of Theorem 1: if the share α has the distribution Beta(2, n − 1), then a
random one of the top share α is distributed as the highest of n. So Theorem 1, averaged over these α, gives the
over-prediction of the chosen ads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special, stats

from ...links import logistic
from ...theory import selected_mean, selected_truth
from .account import Account
from .landscape import Landscape
from .market import Market
from .policies import Policy, as_served

_POINTS = 8001  # of the served score; the error of the sums is below 1e-5 of them
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_SHARES = 400  # quantiles of α in the average of Theorem 1


def expected_account(market: Market, policy: Policy = as_served, *, exchange: bool = True) -> Account:
    """Compute the expected account of one auction for a policy.

    Without `exchange` every auction is won, at no price.
    """
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


def theorem_bias(market: Market) -> tuple[float, float]:
    """Return the mean prediction and mean true rate of the chosen ads, before the auction, by Theorem 1."""
    s = float(np.hypot(market.spread, market.noise))
    signal = market.shrinkage * s
    residual = market.spread * float(np.sqrt(1 - market.shrinkage))
    if market.candidates == 1:
        shares = np.ones(1)
    else:
        middles = (np.arange(_SHARES) + 0.5) / _SHARES
        shares = stats.beta(2, market.candidates - 1).ppf(middles)
    predicted = [float(selected_mean("logistic", market.mean, s, alpha)) for alpha in shares]
    rate = [
        float(selected_truth("logistic", mean=market.mean, signal=signal, residual=residual, alpha=alpha))
        for alpha in shares
    ]
    return float(np.mean(predicted)), float(np.mean(rate))


def highest_of(market: Market) -> float:
    """Compute the calibration error of the chosen ads by extreme-value theory, for many candidates and rare clicks.

    The highest of n normal numbers is about b + G/b with a Gumbel variable G. If clicks are rare, rates are exponential
    in the log odds, and the ratio of the means is known.
    """
    s = float(np.hypot(market.spread, market.noise))
    signal, residual = market.shrinkage * s, market.spread**2 * (1 - market.shrinkage)
    b = -float(special.ndtri(1 / market.candidates))  # exceeded by one of n on average
    a = 1 / (market.candidates * stats.norm.pdf(b))  # scale: the mean excess of a normal number over b
    means = [t * b + special.gammaln(1 - t * a) for t in (s, signal)]
    return float(np.exp(means[0] - means[1] - residual / 2) - 1)
