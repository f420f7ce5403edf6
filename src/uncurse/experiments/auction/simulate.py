"""Simulate a market: fit policies to yesterday's shown ads, and settle today's auctions by each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...validation import check_count
from .account import Account, settle
from .market import Auctions, Market
from .policies import DEFAULT, History, Policy, fit_policies

#: Not a policy that can be served: it bids by the true rates, for the ad that the model chose.
TRUTH = "truth"
_PACING_AUCTIONS = 200_000  # from which the factor is set that keeps the spend within the budget


@dataclass(frozen=True)
class Outcome:
    """Accounts of the policies, in every repetition.

    Parameters
    ----------
    market : Market
        The market.
    accounts : dict of str to tuple of Account
        An account for each policy and repetition.
    pacing : dict of str to tuple of float
        Factor on the bids for each; 1 without a budget.

    Examples
    --------
    >>> Outcome(Market(), {}, {}).market.candidates
    100
    """

    market: Market
    accounts: Mapping[str, tuple[Account, ...]]
    pacing: Mapping[str, tuple[float, ...]]

    def mean(self, policy: str, figure: Callable[[Account], float]) -> tuple[float, float]:
        """Return the mean of a figure over repetitions, and its standard error.

        Parameters
        ----------
        policy : str
            Name of the policy.
        figure : callable
            Function of an account.

        Returns
        -------
        tuple of float
        """
        values = np.array([figure(account) for account in self.accounts[policy]])
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        return float(values.mean()), float(error)


def simulate(
    market: Market,
    auctions: int = 200_000,
    *,
    policies: Sequence[str] = DEFAULT,
    repetitions: int = 5,
    history: int = 200_000,
    pool: int = 100_000,
    replicas: int = 3,
    budget: float | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Simulate days in a market, with every policy on the same auctions.

    In each repetition the platform first serves the scores as they are. The impressions that it wins are its labelled
    rows: selected, and thinned by the exchange. All policies are fitted to these and to a sample of the pool.

    Parameters
    ----------
    market : Market
        The market.
    auctions : int, default=200_000
        Auctions of the day that is measured, in each repetition.
    policies : sequence of str
        Names from `POLICIES`.
    repetitions : int, default=5
        Number of repetitions with other random numbers.
    history : int, default=200_000
        Auctions of the day before, of which those won have labels.
    pool : int, default=100_000
        Candidates of the sample of the pool.
    replicas : int, default=3
        Models that score it, the served one included.
    budget : float, optional
        Largest spend per auction; bids are lowered by one factor until it is kept.
    seed : int, default=0
        Seed.
    progress : callable, optional
        Called with the number of auctions done since the last call.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> found = simulate(Market(candidates=20), 20_000, policies=["as served"], repetitions=2, history=20_000)
    >>> bool(found.mean("as served", lambda account: account.overcharge)[0] > 0)
    True
    """
    check_count(repetitions, "repetitions")
    if replicas < 2:
        raise UncurseError(f"replicas={replicas}; a policy needs the served model and at least one replica")
    accounts: dict[str, list[Account]] = {name: [] for name in (*policies, TRUTH)}
    pacing: dict[str, list[float]] = {name: [] for name in accounts}
    for i in range(repetitions):
        fitted = fit_policies(policies, serve_one_day(market, history, pool, replicas, [seed, i, 0]))
        factors = _pacing(market, fitted, budget, [seed, i, 1])
        parts: dict[str, list[Account]] = {name: [] for name in accounts}
        for chunk in market.auctions(auctions, stream(seed, i, 2), progress=progress):
            for name in accounts:
                parts[name].append(settle(market, chunk, predict(fitted, name, chunk), factors[name]))
        for name, some in parts.items():
            accounts[name].append(reduce(add, some))
            pacing[name].append(factors[name])
    return Outcome(
        market, {name: tuple(some) for name, some in accounts.items()}, {n: tuple(f) for n, f in pacing.items()}
    )


def predict(fitted: Mapping[str, Policy], name: str, auctions: Auctions) -> Array:
    """Return the predictions of a policy, or the true rates for "truth".

    Parameters
    ----------
    fitted : mapping of str to callable
        Fitted policies.
    name : str
        Name of one of them, or "truth".
    auctions : Auctions
        Auctions of the chosen ads.

    Returns
    -------
    array of shape (n,)
    """
    return auctions.rate if name == TRUTH else fitted[name](auctions.served)


def stream(*numbers: int) -> int:
    """Return one seed for several numbers.

    Parameters
    ----------
    *numbers : int
        Seed of the run, number of the repetition, and so on.

    Returns
    -------
    int
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def serve_one_day(market: Market, auctions: int, pool: int, replicas: int, seed: Sequence[int]) -> History:
    """Serve the scores as they are, and return what the platform then knows.

    Parameters
    ----------
    market : Market
        The market.
    auctions, pool, replicas : int
        See `simulate`.
    seed : sequence of int
        Seed.

    Returns
    -------
    History
    """
    rng = np.random.default_rng([*seed, 1])
    shown, clicks = [], []
    for chunk in market.auctions(auctions, stream(*seed), replicas=replicas):
        won = market.bids(1 / (1 + np.exp(-chunk.served))) > chunk.prices
        shown.append(chunk.scores[won])
        clicks.append(rng.random(int(won.sum())) < chunk.rate[won])
    labels = np.concatenate(clicks).astype(np.int8)
    if not 0 < labels.sum() < len(labels):
        raise UncurseError(
            f"of {auctions:,} auctions {len(labels):,} were won, with {labels.sum():,} clicks; simulate more, or raise "
            "the value of a click"
        )
    return History(market.pool(pool, stream(*seed, 2), replicas=replicas), np.concatenate(shown), labels)


def _pacing(
    market: Market, fitted: Mapping[str, Policy], budget: float | None, seed: Sequence[int]
) -> dict[str, float]:
    """Return the factor on the bids of each policy that keeps the spend within the budget."""
    names = (*fitted, TRUTH)
    if budget is None:
        return dict.fromkeys(names, 1.0)
    sample = next(market.auctions(_PACING_AUCTIONS, stream(*seed)))
    factors = {}
    for name in names:
        predictions = predict(fitted, name, sample)
        low, high = 0.0, 1.0
        if settle(market, sample, predictions).spend <= budget * len(predictions):
            low = 1.0
        for _ in range(30 if low < 1 else 0):
            middle = (low + high) / 2
            affordable = settle(market, sample, predictions, middle).spend <= budget * len(predictions)
            low, high = (middle, high) if affordable else (low, middle)
        factors[name] = low
    return factors


def sensitivity(
    market: Market, field: str, values: Sequence[float], auctions: int, **options: object
) -> list[tuple[float, Outcome]]:
    """Simulate the market for several values of one of its fields.

    Parameters
    ----------
    market : Market
        The market.
    field : str
        Name of the field: "candidates", "noise", "shading" or "value".
    values : sequence of float
        Its values.
    auctions : int
        Auctions of each.
    **options
        See `simulate`.

    Returns
    -------
    list of tuple
        Value and outcome.
    """
    cast = int if field == "candidates" else float
    return [(v, simulate(replace(market, **{field: cast(v)}), auctions, **options)) for v in values]  # type: ignore[arg-type]


__all__ = ["TRUTH", "Outcome", "predict", "sensitivity", "serve_one_day", "simulate", "stream"]
