"""A platform that learns from what it wins: every day a model, a policy, auctions, and new labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...links import logistic
from ...threads import in_threads
from ...validation import check_count, check_number
from .account import Account, settle
from .market import Auctions, Market
from .policies import POLICIES, History, Policy, check_policies, fit_policy
from .simulate import TRUTH, expected_warnings, mean_and_error, stream

#: Policies that keep the map of the first day on which there is one.
FROZEN, REFRESHED = "auto, once", "auto, refreshed"
#: Policies of the closed loop, and those that are compared unless others are named.
LOOP_POLICIES = (*POLICIES, FROZEN, REFRESHED)
LOOP_DEFAULT = ("as served", "multiplier", "platt", "isotonic", "vad", "tower", "auto", FROZEN, REFRESHED)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_HIGHEST = 0.95  # rate that the model predicts
_FIRST = 3  # the first day with a model and held-out labels: trained on day 0 and 1, labels of day 2


@dataclass(frozen=True)
class World:
    """Ads with a true click rate in each context, and a model that knows features of them and counts clicks.

    Parameters
    ----------
    ads, contexts : int
        Number of ads, and of contexts such as sites.
    mean : float
        Mean true log odds.
    ad_spread, cell_spread : float
        Standard deviation of the true log odds between ads, and of an ad between contexts.
    known : float
        Share of these variances that features of the ads explain. The model knows the features and their effect.
    new_ads : float
        Share of the ads that is replaced by new ones every day.
    smoothing : float
        The model multiplies the rate by features by (clicks + smoothing) / (expected clicks + smoothing): for the ad,
        and for the ad in the context. The best number is about 1 over the variance that features do not explain,
        here 4 for an ad and 8 in a context; a smaller one over-fits.
    retraining : float
        Standard deviation of the log odds between two trainings on the same impressions, as networks have it.
    bootstrap : bool
        Train replicas on Poisson bootstraps of the impressions; by default they differ by retraining only.
    memory : float
        Weight of the impressions of a day, relative to those of the day after.
    requests, candidates : int
        Requests of a day, and ads that each is scored for.
    market : Market
        Value of a click, kind of auction, shading and landscape; its ads are not used.

    Examples
    --------
    >>> World(ads=10).ads
    10
    """

    ads: int = 4000
    contexts: int = 4
    mean: float = -4.0
    ad_spread: float = 0.7
    cell_spread: float = 0.5
    known: float = 0.5
    new_ads: float = 0.05
    smoothing: float = 4.0
    retraining: float = 0.3
    bootstrap: bool = False
    memory: float = 0.9
    requests: int = 40_000
    candidates: int = 50
    market: Market = field(default_factory=lambda: Market(value=1.0))

    def __post_init__(self) -> None:
        for name in ("ads", "contexts", "requests", "candidates"):
            check_count(getattr(self, name), name)
        for name in ("ad_spread", "cell_spread", "smoothing"):
            if not check_number(getattr(self, name), name) > 0:
                raise UncurseError(f"{name}={getattr(self, name):g}; pass a positive number")
        for name in ("known", "new_ads", "memory"):
            if not 0 <= check_number(getattr(self, name), name) <= 1:
                raise UncurseError(f"{name}={getattr(self, name):g}; pass a number from 0 to 1")

    def draw(self, rng: np.random.Generator, ads: int) -> tuple[Array, Array]:
        """Draw new ads.

        Parameters
        ----------
        rng : numpy Generator
            Random numbers.
        ads : int
            Number of ads.

        Returns
        -------
        truth : array of shape (ads, contexts)
            True log odds.
        expected : array of shape (ads, contexts)
            Mean true rate of all ads with the same features.
        """
        z = rng.normal(size=(2, ads, 1)) * self.ad_spread + rng.normal(size=(2, ads, self.contexts)) * self.cell_spread
        by_features = self.mean + np.sqrt(self.known) * z[0]
        hidden = np.sqrt(1 - self.known)
        deviations = hidden * np.hypot(self.ad_spread, self.cell_spread) * _NODES
        return by_features + hidden * z[1], logistic(by_features[..., None] + deviations) @ _WEIGHTS


class _Counter:
    """Clicks and expected clicks of each ad and context: of all impressions, and of Poisson bootstraps of them."""

    def __init__(self, world: World, replicas: int) -> None:
        self.world = world
        self.clicks = np.zeros((replicas, world.ads, world.contexts))
        self.shown = np.zeros_like(self.clicks)

    def learn(self, clicks: Array, shown: Array, rng: np.random.Generator) -> None:
        """Add the clicks and impressions of a day; the weight of earlier days decreases."""
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

    def forget(self, ads: Array) -> None:
        """Start anew for ads that were replaced."""
        self.clicks[:, ads] = 0.0
        self.shown[:, ads] = 0.0

    def scores(self, expected: Array, rng: np.random.Generator) -> Array:
        """Train the replicas, and return log odds of shape (replicas, ads, contexts)."""
        k, by_features = self.world.smoothing, self.shown * expected
        ad = (self.clicks.sum(2) + k) / (by_features.sum(2) + k)
        by_ad = by_features * ad[:, :, None]
        rate = np.minimum(expected * ad[:, :, None] * (self.clicks + k) / (by_ad + k), _HIGHEST)
        noise = self.world.retraining * rng.standard_normal(rate.shape)
        return np.asarray(np.log(rate / (1 - rate)) + noise)


@dataclass(frozen=True)
class LoopOutcome:
    """Accounts of every policy, repetition and day.

    Parameters
    ----------
    world : World
        The world.
    explore : float
        Share of random traffic.
    days : tuple of int
        Days of the accounts.
    accounts : dict of str to tuple of tuple of Account
        Accounts by policy, repetition and day. Random traffic is not among the impressions won.
    explored : dict of str to float
        Mean daily payment for random traffic minus the value of its clicks, by policy.

    Examples
    --------
    >>> LoopOutcome(World(), 0.0, (), {}, {}).explore
    0.0
    """

    world: World
    explore: float
    days: tuple[int, ...]
    accounts: Mapping[str, tuple[tuple[Account, ...], ...]]
    explored: Mapping[str, float]

    def by_day(self, policy: str, figure: Callable[[Account], float]) -> list[tuple[float, float]]:
        """Return the mean of a figure over repetitions, and its standard error, for each day.

        Parameters
        ----------
        policy : str
            Name of the policy.
        figure : callable
            Function of an account.

        Returns
        -------
        list of tuple of float
        """
        return [mean_and_error([figure(account) for account in day]) for day in zip(*self.accounts[policy], strict=True)]

    def over_days(
        self, policy: str, figure: Callable[[Account], float], first: int = 10, *, size: bool = False
    ) -> tuple[float, float]:
        """Return the mean of a figure over the days from `first` on, and its standard error over repetitions.

        Parameters
        ----------
        policy : str
            Name of the policy.
        figure : callable
            Function of an account.
        first : int, default=10
            First day.
        size : bool, default=False
            Average absolute values.

        Returns
        -------
        tuple of float
        """
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
    repetitions: int = 3,
    replicas: int = 3,
    pool: int = 20_000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LoopOutcome:
    """Run a platform for some days with each policy: its bids decide what it wins, and so what it learns from.

    On day d the model is trained on the impressions of the days before d − 1. The impressions of day d − 1 are labels
    that it has not seen; the policy is fitted to them and to a sample of today's candidates. Days 0 to 2 show random
    ads at any price, so that there is something to learn from. All policies meet the same requests and prices.

    Parameters
    ----------
    world : World, optional
        Ads, contexts and the market.
    days : int, default=30
        Number of days.
    policies : sequence of str
        Names from `LOOP_POLICIES`. "truth" is always added.
    explore : float, default=0.0
        Share of the requests of every day that show a random ad, at any price.
    repetitions : int, default=3
        Number of repetitions with other random numbers.
    replicas : int, default=3
        The served model and bootstraps of it.
    pool : int, default=20_000
        Candidates of the sample of the pool.
    seed : int, default=0
        Seed.
    progress : callable, optional
        Called with 1 after every run of a policy.

    Returns
    -------
    LoopOutcome

    Examples
    --------
    >>> small = World(ads=50, requests=2000, candidates=10)
    >>> found = run_loop(small, 5, policies=["as served"], repetitions=1, pool=1000)
    >>> found.days
    (3, 4)
    """
    own = world or World()
    if check_count(days, "days") <= _FIRST:
        raise UncurseError(f"days={days}; pass {_FIRST + 1} or more, because the first {_FIRST} show random ads")
    if not 0 <= check_number(explore, "explore") < 1:
        raise UncurseError(f"explore={explore:g}; pass a share from 0 to below 1")
    if replicas < 3:
        raise UncurseError(f"replicas={replicas}; the closed loop needs the served model and two bootstraps")
    names = (*check_policies(policies, LOOP_POLICIES), TRUTH)
    runs = [(name, i) for i in range(check_count(repetitions, "repetitions")) for name in names]

    def one(run: tuple[str, int]) -> tuple[tuple[Account, ...], float]:
        found = _Platform(own, run[0], explore, replicas, pool, [seed, run[1]]).run(days)
        if progress is not None:
            progress(1)
        return found

    with expected_warnings():
        results = dict(zip(runs, in_threads(one, runs), strict=True))
    accounts = {name: tuple(results[name, i][0] for i in range(repetitions)) for name in names}
    costs = {name: float(np.mean([results[name, i][1] for i in range(repetitions)])) for name in names}
    return LoopOutcome(own, explore, tuple(range(_FIRST, days)), accounts, costs)


class _Platform:
    """One policy in one repetition."""

    def __init__(
        self, world: World, policy: str, explore: float, replicas: int, pool: int, seed: Sequence[int]
    ) -> None:
        self.world, self.policy, self.explore, self.pool, self.seed = world, policy, explore, pool, seed
        self.truth, self.expected = world.draw(self._rng(0, 0), world.ads)
        self.model = _Counter(world, replicas)
        self.kept: Policy | None = None  # the map of the first day

    def _rng(self, day: int, purpose: int) -> np.random.Generator:
        """Return random numbers of a day that do not depend on the policy."""
        return np.random.default_rng(stream(*self.seed, day, purpose))

    def run(self, days: int) -> tuple[tuple[Account, ...], float]:
        """Return the accounts of the days, and the mean daily cost of random traffic."""
        accounts, costs = [], []
        waiting: list[tuple[Array, Array, Array]] = []  # ads, contexts and clicks of days that are not yet learned
        for day in range(days):
            if len(waiting) == 2:
                self._learn(*waiting.pop(0), self._rng(day, 1))
            shown, account, cost = self._day(day, waiting[-1] if day >= _FIRST else None)
            waiting.append(shown)
            if account is not None:
                accounts.append(account)
                costs.append(cost)
            self._replace(waiting, self._rng(day, 2))
        return tuple(accounts), float(np.mean(costs))

    def _learn(self, ads: Array, contexts: Array, clicks: Array, rng: np.random.Generator) -> None:
        cells, shape = ads * self.world.contexts + contexts, self.truth.shape
        shown = np.bincount(cells, minlength=self.truth.size).reshape(shape)
        self.model.learn(np.bincount(cells, clicks, minlength=self.truth.size).reshape(shape), shown, rng)

    def _replace(self, waiting: list[tuple[Array, Array, Array]], rng: np.random.Generator) -> None:
        """Replace some ads; what is known of the old ones is of no use."""
        gone = np.flatnonzero(rng.random(self.world.ads) < self.world.new_ads)
        self.truth[gone], self.expected[gone] = self.world.draw(rng, len(gone))
        self.model.forget(gone)
        for i, (ads, contexts, clicks) in enumerate(waiting):
            kept = ~np.isin(ads, gone)
            waiting[i] = (ads[kept], contexts[kept], clicks[kept])

    def _day(
        self, day: int, labelled: tuple[Array, Array, Array] | None
    ) -> tuple[tuple[Array, Array, Array], Account | None, float]:
        """Return the impressions of a day, the account of the auctions, and the cost of random traffic."""
        world, rng = self.world, self._rng(day, 3)
        contexts = rng.integers(0, world.contexts, world.requests)
        candidates = rng.integers(0, world.ads, (world.requests, world.candidates))
        prices = world.market.landscape.draw(rng, world.requests)
        luck, dice = rng.random(world.requests), rng.random(world.requests)
        random = dice < (self.explore if labelled is not None else 1.0)
        ads, won, account = candidates[:, 0].copy(), np.zeros(world.requests, bool), None
        if labelled is not None:
            scores = self.model.scores(self.expected, self._rng(day, 5))
            table = scores[0].T.astype(np.float32).ravel()  # by context, then ad
            best = np.argmax(table[contexts[:, None] * world.ads + candidates], axis=1)
            ads = np.where(random, ads, candidates[np.arange(world.requests), best])
            served, truth = scores[0, ads, contexts], self.truth[ads, contexts]
            sample = self._rng(day, 4)
            pool = scores[:, sample.integers(0, world.ads, self.pool), sample.integers(0, world.contexts, self.pool)].T
            predict = self._fit(pool, labelled, scores)
            bought = ~random
            auctions = Auctions(served[bought, None], truth[bought], prices[bought])
            predictions = logistic(truth) if predict is None else predict(served)
            account = settle(world.market, auctions, predictions[bought])
            won = bought & (world.market.bids(predictions) > prices)
        rates = logistic(self.truth[ads, contexts])
        shown = won | random
        cost = float((prices[random] / 1000 - world.market.value * rates[random]).sum())
        return (ads[shown], contexts[shown], (luck < rates)[shown]), account, cost

    def _fit(self, pool: Array, labelled: tuple[Array, Array, Array], scores: Array) -> Policy | None:
        """Return the policy of the day; None for the truth."""
        if self.policy == TRUTH:
            return None
        ads, contexts, clicks = labelled
        shown = scores[:, ads, contexts].T
        history = History(pool, shown, clicks.astype(np.int8), replicas="bootstrap" if self.world.bootstrap else "seeds")
        if self.policy not in (FROZEN, REFRESHED):
            return fit_policy(self.policy, history)
        if self.kept is None:
            self.kept = fit_policy("auto", history)
        return self.kept if self.policy == FROZEN else _with_level(self.kept, shown[:, 0], clicks)


def _with_level(policy: Policy, served: Array, clicks: Array) -> Policy:
    """Return a policy with its log odds moved so that it predicts the clicks of some rows on average."""
    before = _log_odds(policy(served))
    low, high = -5.0, 5.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if logistic(before + middle).sum() < clicks.sum() else (low, middle)
    shift = (low + high) / 2
    return lambda scores: logistic(_log_odds(policy(scores)) + shift)


def _log_odds(rates: Array) -> Array:
    return np.asarray(np.log(rates) - np.log1p(-rates))


__all__ = ["FROZEN", "LOOP_DEFAULT", "LOOP_POLICIES", "REFRESHED", "LoopOutcome", "World", "run_loop"]
