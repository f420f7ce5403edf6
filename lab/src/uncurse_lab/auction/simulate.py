"""Simulate a market: fit policies to yesterday's shown ads, and settle today's auctions by each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import numpy as np

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.threads import in_threads
from uncurse.validation import check_choice

from .market import REPLICAS, Account, Auctions, Market, check_fields, settle
from .policies import DEFAULT, History, Policy, as_served, check_policies, fit_policy

#: Not a policy that can be served: it bids by the true rates, for the ad that the model chose.
TRUTH = "truth"
#: Labeled rows: impressions that today's model won; those that an earlier model with errors of its own won, scored by
#: today's; or random ads.
LABELS = ("won", "earlier", "random")
_PACING_AUCTIONS = 200_000  # from which the factor is set that keeps the spend within the budget


@dataclass(frozen=True)
class Settings:
    """Sizes and options of a simulation."""

    auctions: int = 200_000  # of the day that is measured, in each repetition
    repetitions: int = 5  # with other random numbers
    history: int = 200_000  # requests of the day before, from which the labeled rows come
    labels: str = "won"  # one of `LABELS`
    explore: float = 0.0  # share of the requests of the day before that show a random ad, which is a labeled row too
    pool: int = 100_000  # candidates of the sample of the pool
    budget: float | None = None  # largest spend for a thousand requests; one factor lowers all bids until it is kept
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("labels", self.labels, LABELS)
        check_fields(self, counts="auctions repetitions history pool", shares="explore")
        if self.budget is not None:
            check_fields(self, positive="budget")


@dataclass(frozen=True)
class Outcome:
    """Accounts of the policies, in every repetition."""

    market: Market
    settings: Settings
    accounts: Mapping[str, tuple[Account, ...]]  # by policy, for each repetition
    labeled: tuple[tuple[int, int], ...]  # labeled rows and their clicks, in each repetition

    def mean(self, policy: str, figure: str) -> tuple[float, float]:
        """Return the mean of a figure, see `Account.figure`, over repetitions, and its standard error."""
        return mean_and_error([account.figure(figure) for account in self.accounts[policy]])

    def removed(self, policy: str) -> tuple[float, float]:
        """Return the share of the overcharge as served that a policy removes, and its standard error.

        By repetition, an undercharge counts as an overcharge of the same size.
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

    In each repetition the platform first collects labeled rows for a day. All policies are fitted to these and to a
    sample of the pool, and bid in the same auctions of the next day. Maps are monotone, so all choose the same ads.
    `progress` is called with the number of auctions done since the last call.

    Examples
    --------
    >>> small = Settings(auctions=20_000, repetitions=2, history=20_000, pool=10_000)
    >>> found = simulate(Market(candidates=20), small, policies=["as served"])
    >>> bool(found.mean("as served", "overcharge")[0] > 0)
    True
    """
    options = settings or Settings()
    names = (*check_policies(policies), TRUTH)
    runs = [_simulate_once(market, options, names, i, progress) for i in range(options.repetitions)]
    accounts, labeled = zip(*runs, strict=True)
    return Outcome(market, options, {name: tuple(each[name] for each in accounts) for name in names}, labeled)


def _simulate_once(
    market: Market, options: Settings, names: tuple[str, ...], number: int, progress: Callable[[int], None] | None
) -> tuple[dict[str, Account], tuple[int, int]]:
    """Return accounts by policy, and the number of labeled rows and of their clicks."""
    history = observe(market, options, [options.seed, number, 0])
    labeled = len(history.clicks), int(history.clicks.sum())
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of labels that the served score selected
        fitted = {name: fit_policy(name, history) for name in names if name != TRUTH}
    del history
    factors = _pacing(market, fitted, options.budget, [options.seed, number, 1])

    def settled(auctions: Auctions, name: str) -> Account:
        return settle(market, auctions, _predict(fitted, name, auctions), factors[name])

    chunks = market.auctions(options.auctions, stream(options.seed, number, 2), progress=progress)
    parts = [in_threads(partial(settled, chunk), names) for chunk in chunks]
    return {name: reduce(add, some) for name, some in zip(names, zip(*parts, strict=True), strict=True)}, labeled


def _predict(fitted: Mapping[str, Policy], name: str, auctions: Auctions) -> Array:
    return auctions.clicks if name == TRUTH else fitted[name](auctions.served)


def stream(*numbers: int) -> int:
    """Return one seed for several numbers: the seed of the run, the number of the repetition, and so on."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def observe(market: Market, settings: Settings, seed: Sequence[int]) -> History:
    """Let the platform run for a day, and return what it then knows."""
    explored = round(settings.history * settings.explore)
    if settings.labels == "random":
        explored = settings.history
    scores, clicks = ([part] for part in market.random_ads(explored, [stream(*seed, 3), 3]))
    rng = np.random.default_rng([*seed, 1])
    # An earlier model has chosen: its scores are in the first column, and those of today's replicas follow.
    first = int(settings.labels == "earlier")
    for chunk in market.auctions(settings.history - explored, stream(*seed), replicas=REPLICAS + first):
        won = market.bids(as_served(chunk.served)) > chunk.prices
        scores.append(chunk.scores[won, first:])
        clicks.append(rng.random(int(won.sum())) < chunk.clicks[won])
    labels = np.concatenate(clicks).astype(np.int8)
    if not 0 < labels.sum() < len(labels):
        raise UncurseError(
            f"{len(labels):,} ads were shown on {settings.history:,} requests, with {labels.sum():,} clicks; simulate "
            "more requests, or raise the value of a click"
        )
    pool, _ = market.random_ads(settings.pool, [stream(*seed, 2), 1])
    labels_from = "winners" if settings.labels == "won" else "elsewhere"
    return History(pool, np.concatenate(scores), labels, labels_from=labels_from)


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
        predictions = _predict(fitted, name, sample)
        most = budget / 1000 * len(predictions)
        low, high = float(settle(market, sample, predictions).spend <= most), 1.0
        for _ in range(30 if low < 1 else 0):
            middle = (low + high) / 2
            affordable = settle(market, sample, predictions, middle).spend <= most
            low, high = (middle, high) if affordable else (low, middle)
        factors[name] = low
    return factors
