"""A market: requests, candidates with true and predicted click rates, an exchange with competing prices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..._types import Array
from ...errors import UncurseError
from ...links import logistic
from ...threads import in_threads
from ...validation import check_choice, check_count, check_number
from .landscape import Landscape

_SCORES = 1 << 19  # candidates that a thread scores at once, so that they stay in its cache
_AUCTIONS = 1 << 17  # auctions that are handed on at once


@dataclass(frozen=True)
class Market:
    """Requests with candidates, of which the platform bids for the one with the highest predicted rate.

    The true log odds of a click are normal, and so is the error of the log odds of a model. The platform bids
    ``value · prediction · shading`` for an impression.

    Money has one unit, any currency. Prices and bids are for a thousand impressions, as is usual; the value of a click
    is for one click. A click worth 5 and a predicted rate of 2% make a bid of 1000 · 5 · 0.02 = 100.

    Parameters
    ----------
    candidates : int, default=100
        Ads that each request is scored for.
    mean, spread : float
        Mean and standard deviation of the true log odds of a click.
    noise : float
        Standard deviation of the error of each replica of the model.
    value : float
        Value of a click.
    price : {"second", "first"}
        The winner pays the highest competing price, or its own bid.
    shading : float, default=1.0
        Factor on all bids, as is common in first-price auctions.
    landscape : Landscape
        Highest competing price.

    Examples
    --------
    >>> market = Market(candidates=10)
    >>> chosen = next(market.auctions(1000, seed=0))
    >>> chosen.served.shape, bool(chosen.served.mean() > chosen.truth.mean())
    ((1000,), True)
    """

    candidates: int = 100
    mean: float = -7.0
    spread: float = 1.0
    noise: float = 0.3
    value: float = 5.0
    price: str = "second"
    shading: float = 1.0
    landscape: Landscape = field(default_factory=Landscape.default)

    def __post_init__(self) -> None:
        check_count(self.candidates, "candidates")
        check_choice("price", self.price, ("second", "first"))
        for name in ("mean", "spread", "noise", "value", "shading"):
            number = check_number(getattr(self, name), name)
            least = {"mean": -np.inf, "spread": 0.0, "noise": 0.0}.get(name, 1e-300)
            if not number >= least:
                raise UncurseError(f"{name}={number:g}; pass {'a positive number' if least else '0 or more'}")

    @property
    def shrinkage(self) -> float:
        """λ: share of the variance of the served log odds that is not noise."""
        return self.spread**2 / (self.spread**2 + self.noise**2) if self.spread else 0.0

    def auctions(
        self, count: int, seed: int, *, replicas: int = 1, progress: Callable[[int], None] | None = None
    ) -> Iterator[Auctions]:
        """Score the candidates of many requests, and keep the best of each, in constant memory.

        Parameters
        ----------
        count : int
            Number of requests.
        seed : int
            Seed; a run with the same seed has the same auctions, on any number of cores.
        replicas : int, default=1
            Scores of the chosen candidate: of the model that chooses, and of replicas.
        progress : callable, optional
            Called with the number of auctions done since the last call.

        Yields
        ------
        Auctions
            Up to 131,072 auctions at a time.
        """
        starts = [*range(0, count, _AUCTIONS), count]
        for i, (start, stop) in enumerate(pairwise(starts)):
            pieces = _split(stop - start, max(1, _SCORES // self.candidates))
            streams = np.random.SeedSequence([seed, i]).spawn(len(pieces))
            parts = in_threads(partial(self._choose, replicas), list(zip(pieces, streams, strict=True)))
            joined = (np.concatenate(column) for column in zip(*parts, strict=True))
            yield Auctions(*joined)
            if progress is not None:
                progress(stop - start)

    def _choose(self, replicas: int, piece: tuple[int, np.random.SeedSequence]) -> tuple[Array, Array, Array]:
        """Return log odds of the chosen candidates by the models, true log odds, and competing prices."""
        count, stream = piece
        rng = np.random.Generator(np.random.SFC64(stream))
        truth = rng.standard_normal((count, self.candidates), np.float32)
        truth *= np.float32(self.spread)
        served = rng.standard_normal((count, self.candidates), np.float32)
        served *= np.float32(self.noise)
        served += truth
        best = np.argmax(served, axis=1)
        rows = np.arange(count)
        chosen = truth[rows, best].astype(np.float64)
        scores = np.empty((count, replicas))
        scores[:, 0] = served[rows, best]
        scores[:, 1:] = chosen[:, None] + self.noise * rng.standard_normal((count, replicas - 1))
        return scores + self.mean, chosen + self.mean, self.landscape.draw(rng, count)

    def pool(self, rows: int, seed: int, *, replicas: int = 3) -> Array:
        """Draw candidates at random, scored by all replicas.

        Parameters
        ----------
        rows : int
            Number of candidates.
        seed : int
            Seed.
        replicas : int, default=3
            Number of columns, the served model first.

        Returns
        -------
        array of shape (rows, replicas)
            Log odds.
        """
        rng = np.random.default_rng([seed, 1])
        truth = self.mean + self.spread * rng.standard_normal(rows)
        noise = self.noise * rng.standard_normal((rows, replicas))
        return np.asarray(truth[:, None] + noise)

    def random_traffic(self, rows: int, seed: int, *, replicas: int = 3) -> tuple[Array, NDArray[np.bool_]]:
        """Draw ads that are shown at random, whatever their scores and the price.

        Parameters
        ----------
        rows : int
            Number of impressions.
        seed : int
            Seed.
        replicas : int, default=3
            Number of columns, the served model first.

        Returns
        -------
        scores : array of shape (rows, replicas)
            Log odds.
        clicks : array of bool of shape (rows,)
            Whether they were clicked.
        """
        rng = np.random.default_rng([seed, 3])
        truth = self.mean + self.spread * rng.standard_normal(rows)
        noise = self.noise * rng.standard_normal((rows, replicas))
        return truth[:, None] + noise, rng.random(rows) < logistic(truth)

    def bids(self, predictions: Array) -> Array:
        """Return bids per thousand impressions.

        Parameters
        ----------
        predictions : array
            Predicted click rates.

        Returns
        -------
        array
        """
        return 1000 * self.value * self.shading * predictions

    def paid(self, bids: Array, prices: Array) -> Array:
        """Return what a winner pays per thousand impressions.

        Parameters
        ----------
        bids, prices : arrays
            Bids, and highest competing prices.

        Returns
        -------
        array
        """
        return prices if self.price == "second" else bids


@dataclass(frozen=True)
class Auctions:
    """Auctions of the chosen candidates.

    Parameters
    ----------
    scores : array of shape (n, S)
        Log odds of the chosen candidate by the served model, then by replicas.
    truth : array of shape (n,)
        True log odds.
    prices : array of shape (n,)
        Highest competing price.

    Examples
    --------
    >>> Auctions(np.zeros((1, 2)), np.zeros(1), np.ones(1)).rate
    array([0.5])
    """

    scores: Array
    truth: Array
    prices: Array

    @property
    def served(self) -> Array:
        """Log odds by the served model."""
        return np.asarray(self.scores[:, 0])

    @property
    def rate(self) -> Array:
        """True click rate."""
        return logistic(self.truth).astype(np.float64, copy=False)


def _split(count: int, most: int) -> list[int]:
    """Split a count into pieces of at most `most`; independent of the number of cores."""
    pieces = max(1, -(-count // most))
    edges = np.linspace(0, count, pieces + 1).astype(int)
    return [int(stop - start) for start, stop in pairwise(edges)]
