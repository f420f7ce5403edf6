"""The ads of a closed loop, with a true rate in each context, and the model that learns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._types import Array
from ...errors import UncurseError
from ...links import logistic
from ...validation import check_count, check_number
from .market import Market

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_HIGHEST = 0.95  # rate that the model predicts


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
        if not check_number(self.retraining, "retraining") >= 0:
            raise UncurseError(f"retraining={self.retraining:g}; pass 0 or more")
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
        return by_features + hidden * z[1], np.asarray(logistic(by_features[..., None] + deviations) @ _WEIGHTS, float)


class ClickCounter:
    """A model that counts clicks and impressions of each ad and context, and its replicas.

    Parameters
    ----------
    world : World
        The ads, and how the model learns.
    replicas : int
        Number of models, the served one first.

    Examples
    --------
    >>> ClickCounter(World(ads=2, contexts=1), 3).scores(np.full((2, 1), 0.5), np.random.default_rng(0)).shape
    (3, 2, 1)
    """

    def __init__(self, world: World, replicas: int) -> None:
        self.world = world
        self.clicks = np.zeros((replicas, world.ads, world.contexts))
        self.shown = np.zeros_like(self.clicks)

    def learn(self, clicks: NDArray[Any], shown: NDArray[Any], rng: np.random.Generator) -> None:
        """Add the clicks and impressions of a day; the weight of earlier days decreases.

        Parameters
        ----------
        clicks, shown : arrays of shape (ads, contexts)
            Clicks and impressions.
        rng : numpy Generator
            Random numbers of the bootstraps.
        """
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
        """Start anew for ads that were replaced.

        Parameters
        ----------
        ads : array of int
            The ads.
        """
        self.clicks[:, ads] = 0.0
        self.shown[:, ads] = 0.0

    def scores(self, expected: Array, rng: np.random.Generator) -> Array:
        """Train the replicas, and score all ads.

        Parameters
        ----------
        expected : array of shape (ads, contexts)
            Rates by features.
        rng : numpy Generator
            Random numbers of the training.

        Returns
        -------
        array of shape (replicas, ads, contexts)
            Log odds.
        """
        k, by_features = self.world.smoothing, self.shown * expected
        ad = (self.clicks.sum(2) + k) / (by_features.sum(2) + k)
        by_ad = by_features * ad[:, :, None]
        rate = np.minimum(expected * ad[:, :, None] * (self.clicks + k) / (by_ad + k), _HIGHEST)
        noise = self.world.retraining * rng.standard_normal(rate.shape)
        return np.asarray(np.log(rate / (1 - rate)) + noise)


__all__ = ["ClickCounter", "World"]
