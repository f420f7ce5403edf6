"""A platform that learns from what it wins: every day a model, a policy, auctions, and new labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.links import logistic, logit
from uncurse.threads import in_threads
from uncurse.validation import check_choice, check_count

from .market import REPLICAS, Account, Auctions, Market, check_fields, settle
from .policies import POLICIES, History, Policy, as_served, check_policies, fit_policy
from .simulate import TRUTH, mean_and_error, stream

#: Policies that keep the map of the first day on which there is one.
FROZEN, REFRESHED = "auto, once", "auto, refreshed"
#: Policies of the closed loop, and those that are compared unless others are named.
LOOP_POLICIES = (*POLICIES, FROZEN, REFRESHED)
LOOP_DEFAULT = ("as served", "multiplier", "platt", "isotonic", "vad", "labels", "auto", FROZEN, REFRESHED)
_FIRST = 3  # the first day with a model and held-out labels: trained on day 0 and 1, labels of day 2
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_HIGHEST = 0.95  # rate that the model predicts
#: Columns of the impressions of a day; random: whether the ad was drawn at random.
_COLUMNS = [("ads", np.int64), ("contexts", np.int64), ("clicks", bool), ("random", bool)]
Impressions = Any  # a record array of these columns


@dataclass(frozen=True)
class World:
    """Ads with a true click rate in each context, and a model that knows features of them and counts clicks.

    The model multiplies the rate by features by (clicks + smoothing) / (expected clicks + smoothing): for the ad, and
    for the ad in the context. The best `smoothing` is about 1 over the variance that features do not explain, here 4
    for an ad and 8 in a context; a smaller one over-fits.
    """

    ads: int = 4000
    contexts: int = 4  # such as sites
    mean: float = -4.0  # of the true log odds
    ad_spread: float = 0.7  # standard deviation of the true log odds between ads
    cell_spread: float = 0.5  # and of an ad between contexts
    known: float = 0.5  # share of these variances that features explain; the model knows these and their effect
    new_ads: float = 0.05  # share of the ads that is replaced every day
    smoothing: float = 4.0
    retraining: float = 0.3  # sd of the log odds between two trainings on the same impressions, as networks have it
    bootstrap: bool = False  # replicas are Poisson bootstraps of the impressions, not only retrained
    memory: float = 0.9  # weight of the impressions of a day, relative to those of the day after
    requests: int = 40_000  # of a day
    candidates: int = 50  # ads that each request is scored for
    #: Value of a click, kind of auction, shading and landscape; its ads are not used.
    market: Market = field(default_factory=lambda: Market(value=1.0))

    def __post_init__(self) -> None:
        positive, shares = "ad_spread cell_spread smoothing", "known new_ads memory"
        counts = "ads contexts requests candidates"
        check_fields(self, counts=counts, positive=positive, least_0="retraining", shares=shares)

    def draw(self, rng: np.random.Generator, ads: int) -> tuple[Array, Array]:
        """Draw new ads: true log odds and the mean true rate by features, both (ads, contexts)."""
        z = rng.normal(size=(2, ads, 1)) * self.ad_spread + rng.normal(size=(2, ads, self.contexts)) * self.cell_spread
        by_features = self.mean + np.sqrt(self.known) * z[0]
        hidden = np.sqrt(1 - self.known)
        deviations = hidden * np.hypot(self.ad_spread, self.cell_spread) * _NODES
        return by_features + hidden * z[1], np.asarray(logistic(by_features[..., None] + deviations) @ _WEIGHTS, float)


class ClickCounter:
    """A model that counts clicks and impressions of each ad and context, and its replicas."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clicks = np.zeros((REPLICAS, world.ads, world.contexts))
        self.shown = np.zeros_like(self.clicks)

    def learn(self, day: Impressions, rng: np.random.Generator) -> None:
        """Add the impressions of a day; the weight of earlier days decreases."""
        cells, shape = day.ads * self.world.contexts + day.contexts, self.clicks.shape[1:]
        clicks, shown = (np.bincount(cells, w, shape[0] * shape[1]).reshape(shape) for w in (day.clicks, None))
        self.clicks *= self.world.memory
        self.shown *= self.world.memory
        if self.world.bootstrap:
            # A Poisson bootstrap of rows that are alike is a Poisson number of them.
            drawn = [rng.poisson(counts, self.clicks[1:].shape) for counts in (clicks, shown - clicks)]
            self.clicks[1:] += drawn[0]
            self.shown[1:] += drawn[0] + drawn[1]
        counted = 1 if self.world.bootstrap else len(self.clicks)
        self.clicks[:counted] += clicks
        self.shown[:counted] += shown

    def forget(self, ads: NDArray[Any]) -> None:
        """Start anew for ads that were replaced."""
        self.clicks[:, ads] = 0.0
        self.shown[:, ads] = 0.0

    def scores(self, expected: Array, rng: np.random.Generator) -> Array:
        """Return log odds (replicas, ads, contexts) of newly trained replicas; `expected` are the rates by features."""
        k, by_features = self.world.smoothing, self.shown * expected
        ad = (self.clicks.sum(2) + k) / (by_features.sum(2) + k)
        by_ad = by_features * ad[:, :, None]
        rate = np.minimum(expected * ad[:, :, None] * (self.clicks + k) / (by_ad + k), _HIGHEST)
        noise = self.world.retraining * rng.standard_normal(rate.shape)
        return np.asarray(np.log(rate / (1 - rate)) + noise)


@dataclass(frozen=True)
class LoopOutcome:
    """Accounts of every policy, repetition and day."""

    world: World
    explore: float  # share of random traffic
    labels: str  # rows that policies were fitted to: "shown" or "random"
    days: tuple[int, ...]
    accounts: Mapping[str, tuple[tuple[Account, ...], ...]]  # by policy, repetition and day, without random traffic

    def by_day(self, policy: str, figure: Callable[[Account], float]) -> list[tuple[float, float]]:
        """Return the mean of a figure over repetitions, and its standard error, for each day."""
        days = zip(*self.accounts[policy], strict=True)
        return [mean_and_error([figure(account) for account in day]) for day in days]

    def over_days(
        self, policy: str, figure: Callable[[Account], float], first: int = 10, *, size: bool = False
    ) -> tuple[float, float]:
        """Return the mean of a figure, or its `size`, from day `first` on, and its standard error over repetitions."""
        start = sum(day < first for day in self.days)
        means = []
        for days in self.accounts[policy]:
            values = np.array([figure(account) for account in days[start:]])
            means.append(float((np.abs(values) if size else values).mean()))
        return mean_and_error(means)


def run_loop(
    world: World | None = None,
    days: int = 30,
    *,
    policies: Sequence[str] = LOOP_DEFAULT,
    explore: float = 0.0,
    labels: str = "shown",
    repetitions: int = 3,
    pool: int = 20_000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LoopOutcome:
    """Run a platform for some days with each policy: its bids decide what it wins, and so what it learns from.

    On day d the model is trained on the impressions of the days before d − 1. The impressions of day d − 1 are labels
    that it has not seen; the policy is fitted to them and to a sample of `pool` candidates of today. Days 0 to 2 show
    random ads at any price. All policies meet the same requests and prices, and "truth" is always among them.

    A share `explore` of the requests of every day shows a random ad at any price. The model learns from these too; with
    ``labels="random"`` policies are fitted to these alone. `progress` is called with 1 after every run of a policy.
    """
    own = world or World()
    if check_count(days, "days") <= _FIRST:
        raise UncurseError(f"days={days}; pass {_FIRST + 1} or more, because the first {_FIRST} show random ads")
    if check_choice("labels", labels, ("shown", "random")) == "random" and not explore:
        raise UncurseError("labels of random traffic need a share of it; pass explore, such as 0.1")
    names = (*check_policies(policies, LOOP_POLICIES), TRUTH)
    runs = [(name, i) for i in range(check_count(repetitions, "repetitions")) for name in names]

    def one(run: tuple[str, int]) -> tuple[Account, ...]:
        found = _Platform(own, run[0], explore, labels, pool, [seed, run[1]]).run(days)
        if progress is not None:
            progress(1)
        return found

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of labels that the served score selected
        results = dict(zip(runs, in_threads(one, runs), strict=True))
    accounts = {name: tuple(results[name, i] for i in range(repetitions)) for name in names}
    return LoopOutcome(own, explore, labels, tuple(range(_FIRST, days)), accounts)


class _Platform:
    """One policy in one repetition."""

    def __init__(self, world: World, policy: str, explore: float, labels: str, pool: int, seed: Sequence[int]) -> None:
        self.world, self.policy, self.explore, self.labels = world, policy, explore, labels
        self.pool, self.seed = pool, seed
        self.truth, self.expected = world.draw(self._rng(0, 0), world.ads)
        self.model = ClickCounter(world)
        self.kept: Policy | None = None  # the map of the first day

    def _rng(self, day: int, purpose: int) -> np.random.Generator:
        """Return random numbers of a day that do not depend on the policy."""
        return np.random.default_rng(stream(*self.seed, day, purpose))

    def run(self, days: int) -> tuple[Account, ...]:
        """Return the accounts of the days."""
        accounts = []
        waiting: list[Impressions] = []  # of days that are not yet learned
        for day in range(days):
            if len(waiting) == 2:
                self.model.learn(waiting.pop(0), self._rng(day, 1))
            shown, account = self._day(day, waiting[-1] if day >= _FIRST else None)
            waiting.append(shown)
            if account is not None:
                accounts.append(account)
            self._replace(waiting, self._rng(day, 2))
        return tuple(accounts)

    def _replace(self, waiting: list[Impressions], rng: np.random.Generator) -> None:
        """Replace some ads; what is known of the old ones is of no use."""
        gone = np.flatnonzero(rng.random(self.world.ads) < self.world.new_ads)
        self.truth[gone], self.expected[gone] = self.world.draw(rng, len(gone))
        self.model.forget(gone)
        waiting[:] = [day[~np.isin(day.ads, gone)] for day in waiting]

    def _day(self, day: int, labeled: Impressions | None) -> tuple[Impressions, Account | None]:
        """Return the impressions of a day, and the account of the auctions."""
        world, rng = self.world, self._rng(day, 3)
        contexts = rng.integers(0, world.contexts, world.requests)
        candidates = rng.integers(0, world.ads, (world.requests, world.candidates))
        prices = world.market.landscape.draw(rng, world.requests)
        luck, dice = rng.random(world.requests), rng.random(world.requests)
        random = dice < (self.explore if labeled is not None else 1.0)
        ads, won, account = candidates[:, 0].copy(), np.zeros(world.requests, bool), None
        if labeled is not None:
            scores = self.model.scores(self.expected, self._rng(day, 5))
            table = scores[0].T.astype(np.float32).ravel()  # by context, then ad
            best = np.argmax(table[contexts[:, None] * world.ads + candidates], axis=1)
            ads = np.where(random, ads, candidates[np.arange(world.requests), best])
            served, truth = scores[0, ads, contexts], self.truth[ads, contexts]
            sample = self._rng(day, 4)
            pool = scores[:, sample.integers(0, world.ads, self.pool), sample.integers(0, world.contexts, self.pool)].T
            predict = self._fit(pool, labeled, scores)
            bought = ~random
            rates = as_served(truth)
            auctions = Auctions(served[bought, None], rates[bought], prices[bought])
            predictions = rates if predict is None else predict(served)
            account = settle(world.market, auctions, predictions[bought])
            won = bought & (world.market.bids(predictions) > prices)
        clicks = luck < as_served(self.truth[ads, contexts])
        impressions = np.rec.fromarrays([ads, contexts, clicks, random], _COLUMNS)
        return impressions[won | random], account

    def _fit(self, pool: Array, day_before: Impressions, scores: Array) -> Policy | None:
        """Return the policy of the day; None for the truth."""
        if self.policy == TRUTH:
            return None
        rows = day_before[day_before.random] if self.labels == "random" else day_before
        shown, clicks = scores[:, rows.ads, rows.contexts].T, rows.clicks
        replicas = "bootstrap" if self.world.bootstrap else "seeds"
        # The model of the day before chose these rows, on other training data, so "elsewhere" is right.
        history = History(pool, shown, clicks.astype(np.int8), replicas)
        if self.policy not in (FROZEN, REFRESHED):
            return fit_policy(self.policy, history)
        if self.kept is None:
            self.kept = fit_policy("auto", history)
        return self.kept if self.policy == FROZEN else _with_level(self.kept, shown[:, 0], clicks)


def _with_level(policy: Policy, served: Array, clicks: NDArray[Any]) -> Policy:
    """Return a policy with its log odds moved so that it predicts the clicks of some rows on average."""
    before = logit(policy(served))
    low, high = -5.0, 5.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if as_served(before + middle).sum() < clicks.sum() else (low, middle)
    shift = (low + high) / 2
    return lambda scores: as_served(logit(policy(scores)) + shift)
