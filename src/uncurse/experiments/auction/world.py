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
        """Draw new ads: true log odds and the mean true rate by features, both (ads, contexts)."""
        z = rng.normal(size=(2, ads, 1)) * self.ad_spread + rng.normal(size=(2, ads, self.contexts)) * self.cell_spread
        by_features = self.mean + np.sqrt(self.known) * z[0]
        hidden = np.sqrt(1 - self.known)
        deviations = hidden * np.hypot(self.ad_spread, self.cell_spread) * _NODES
        return by_features + hidden * z[1], np.asarray(logistic(by_features[..., None] + deviations) @ _WEIGHTS, float)


class ClickCounter:
    """A model that counts clicks and impressions of each ad and context, and its replicas."""

    def __init__(self, world: World, replicas: int) -> None:
        self.world = world
        self.clicks = np.zeros((replicas, world.ads, world.contexts))
        self.shown = np.zeros_like(self.clicks)

    def learn(self, clicks: NDArray[Any], shown: NDArray[Any], rng: np.random.Generator) -> None:
        """Add the clicks and impressions (ads, contexts) of a day; the weight of earlier days decreases."""
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
