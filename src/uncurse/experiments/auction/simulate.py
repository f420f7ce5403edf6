"""Simulate a market: fit policies to yesterday's shown ads, and settle today's auctions by each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...threads import in_threads
from ...validation import check_choice, check_count, check_number
from .account import Account, settle
from .market import Auctions, Market
from .policies import DEFAULT, History, Policy, as_served, check_policies, fit_policies

#: Not a policy that can be served: it bids by the true rates, for the ad that the model chose.
TRUTH = "truth"
#: Where the labelled rows come from.
LABELS = ("won", "earlier", "random")
_PACING_AUCTIONS = 200_000  # from which the factor is set that keeps the spend within the budget


@dataclass(frozen=True)
class Settings:
    """Sizes and options of a simulation.

    Parameters
    ----------
    auctions : int, default=200_000
        Auctions of the day that is measured, in each repetition.
    repetitions : int, default=5
        Number of repetitions with other random numbers.
    history : int, default=200_000
        Requests of the day before, from which the labelled rows come.
    labels : {"won", "earlier", "random"}
        Labelled rows: impressions that today's model chose and won; those of an earlier model with errors of its own,
        scored by today's; or random ads.
    explore : float, default=0.0
        Share of the requests of the day before that show a random ad. Its impressions are labelled rows too.
    pool : int, default=100_000
        Candidates of the sample of the pool.
    replicas : int, default=3
        Models that score it, the served one included.
    budget : float, optional
        Largest spend for a thousand requests; bids are lowered by one factor until it is kept.
    seed : int, default=0
        Seed.

    Examples
    --------
    >>> Settings(labels="earlier").repetitions
    5
    """

    auctions: int = 200_000
    repetitions: int = 5
    history: int = 200_000
    labels: str = "won"
    explore: float = 0.0
    pool: int = 100_000
    replicas: int = 3
    budget: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("auctions", "repetitions", "history", "pool"):
            check_count(getattr(self, name), name)
        check_choice("labels", self.labels, LABELS)
        if not 0 <= check_number(self.explore, "explore") < 1:
            raise UncurseError(f"explore={self.explore:g}; pass a share from 0 to below 1")
        if self.replicas < 2:
            raise UncurseError(f"replicas={self.replicas}; a policy needs the served model and at least one replica")
        if self.budget is not None and not check_number(self.budget, "budget") > 0:
            raise UncurseError(f"budget={self.budget:g}; pass a positive amount for a thousand requests")


@dataclass(frozen=True)
class Outcome:
    """Accounts of the policies, in every repetition.

    Parameters
    ----------
    market : Market
        The market.
    settings : Settings
        Sizes and options.
    accounts : dict of str to tuple of Account
        An account for each policy and repetition.
    pacing : dict of str to tuple of float
        Factor on the bids for each; 1 without a budget.
    labelled : tuple of (int, int)
        Labelled rows and their clicks, in each repetition.

    Examples
    --------
    >>> Outcome(Market(), Settings(), {}, {}, ()).market.candidates
    100
    """

    market: Market
    settings: Settings
    accounts: Mapping[str, tuple[Account, ...]]
    pacing: Mapping[str, tuple[float, ...]]
    labelled: tuple[tuple[int, int], ...]

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
        return mean_and_error([figure(account) for account in self.accounts[policy]])

    def removed(self, policy: str) -> tuple[float, float]:
        """Return the share of the overcharge as served that a policy removes, and its standard error.

        Parameters
        ----------
        policy : str
            Name of the policy.

        Returns
        -------
        tuple of float
        """
        served = np.array([account.overcharge_share for account in self.accounts["as served"]])
        own = np.array([account.overcharge_share for account in self.accounts[policy]])
        return mean_and_error((1 - np.abs(own) / served).tolist())


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of some repetitions, and its standard error (NaN for one repetition)."""
    numbers = np.array(values, float)
    error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else float("nan")
    return float(numbers.mean()), float(error)


def simulate(
    market: Market,
    settings: Settings | None = None,
    *,
    policies: Sequence[str] = DEFAULT,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Simulate days in a market, with every policy on the same auctions.

    In each repetition the platform first collects labelled rows for a day. All policies are fitted to these and to a
    sample of the pool, and bid in the same auctions of the next day. Maps are monotone, so all choose the same ads.

    Parameters
    ----------
    market : Market
        The market.
    settings : Settings, optional
        Sizes and options.
    policies : sequence of str
        Names from `POLICIES`.
    progress : callable, optional
        Called with the number of auctions done since the last call.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> small = Settings(auctions=20_000, repetitions=2, history=20_000, pool=10_000)
    >>> found = simulate(Market(candidates=20), small, policies=["as served"])
    >>> bool(found.mean("as served", lambda account: account.overcharge)[0] > 0)
    True
    """
    options = settings or Settings()
    names = (*check_policies(policies), TRUTH)
    accounts: dict[str, list[Account]] = {name: [] for name in names}
    pacing: dict[str, list[float]] = {name: [] for name in names}
    labelled = []
    for i in range(options.repetitions):
        history = observe(market, options, [options.seed, i, 0])
        labelled.append((len(history.clicks), int(history.clicks.sum())))
        with expected_warnings():
            fitted = fit_policies(names[:-1], history)
        del history
        factors = _pacing(market, fitted, options.budget, [options.seed, i, 1])
        parts: dict[str, list[Account]] = {name: [] for name in names}
        for chunk in market.auctions(options.auctions, stream(options.seed, i, 2), progress=progress):
            for name, part in zip(
                names, in_threads(partial(_settle, market, fitted, factors, chunk), names), strict=True
            ):
                parts[name].append(part)
        for name, some in parts.items():
            accounts[name].append(reduce(add, some))
            pacing[name].append(factors[name])
    return Outcome(
        market,
        options,
        {name: tuple(some) for name, some in accounts.items()},
        {name: tuple(some) for name, some in pacing.items()},
        tuple(labelled),
    )


def _settle(
    market: Market, fitted: Mapping[str, Policy], factors: Mapping[str, float], auctions: Auctions, name: str
) -> Account:
    return settle(market, auctions, predict(fitted, name, auctions), factors[name])


@contextmanager
def expected_warnings() -> Iterator[None]:
    """Silence the warnings of the library while policies are fitted.

    Labelled rows that the served score has selected are what the simulation is about. The library warns of them, and of
    labels that contradict the replicas, once for each fit.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def predict(fitted: Mapping[str, Policy], name: str, auctions: Auctions) -> Array:
    """Return the predictions (n,) of a policy, or the true rates for "truth"."""
    return auctions.rate if name == TRUTH else fitted[name](auctions.served)


def stream(*numbers: int) -> int:
    """Return one seed for several numbers: the seed of the run, the number of the repetition, and so on."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def observe(market: Market, settings: Settings, seed: Sequence[int]) -> History:
    """Let the platform run for a day, and return what it then knows."""
    replicas, explored = settings.replicas, round(settings.history * settings.explore)
    if settings.labels == "random":
        explored = settings.history
    drawn = market.random_traffic(explored, stream(*seed, 3), replicas=replicas)
    scores, clicks = [drawn[0]], [drawn[1]]
    rng = np.random.default_rng([*seed, 1])
    # An earlier model has chosen: its scores are in the first column, and those of today's replicas follow.
    first = int(settings.labels == "earlier")
    for chunk in market.auctions(settings.history - explored, stream(*seed), replicas=replicas + first):
        won = market.bids(as_served(chunk.served)) > chunk.prices
        scores.append(chunk.scores[won, first:])
        clicks.append(rng.random(int(won.sum())) < chunk.rate[won])
    labels = np.concatenate(clicks).astype(np.int8)
    if not 0 < labels.sum() < len(labels):
        raise UncurseError(
            f"{len(labels):,} ads were shown on {settings.history:,} requests, with {labels.sum():,} clicks; simulate "
            "more requests, or raise the value of a click"
        )
    return History(market.pool(settings.pool, stream(*seed, 2), replicas=replicas), np.concatenate(scores), labels)


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
        most = budget / 1000 * len(predictions)
        low, high = 0.0, 1.0
        if settle(market, sample, predictions).spend <= most:
            low = 1.0
        for _ in range(30 if low < 1 else 0):
            middle = (low + high) / 2
            affordable = settle(market, sample, predictions, middle).spend <= most
            low, high = (middle, high) if affordable else (low, middle)
        factors[name] = low
    return factors
