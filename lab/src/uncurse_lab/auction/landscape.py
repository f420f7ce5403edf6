"""The highest competing price of an auction, as a distribution: from a histogram, from prices or by parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from uncurse._types import Array
from uncurse.errors import UncurseError

from .files import read_columns

#: Shape and scale of a gamma distribution, and the highest price, per thousand impressions. Fitted to the mean of the
#: distributions of market prices of nine campaigns of the iPinYou log, 15.4 million impressions. The distribution
#: functions differ by 3.7% at most, because real prices are often round numbers.
_SHAPE, _SCALE, _HIGHEST = 1.43, 58.3, 300.0


@dataclass(frozen=True)
class Landscape:
    """Distribution of the highest competing price, per thousand impressions, between the points of a grid.

    Examples
    --------
    >>> landscape = Landscape((0.0, 100.0), (0.0, 1.0))
    >>> landscape.win_probability([50.0, 200.0])
    array([0.5, 1. ])
    >>> landscape.expected_price([50.0])  # of auctions that a bid of 50 wins, counted for all auctions
    array([12.5])
    """

    prices: tuple[float, ...]  # ascending; prices between two points are uniform
    reached: tuple[float, ...]  # probability of a price up to each; the last is 1

    def __post_init__(self) -> None:
        x, p = np.array(self.prices, float), np.array(self.reached, float)
        if len(x) != len(p) or len(x) < 2 or not (np.diff(x) > 0).all() or x[0] < 0 or not np.isfinite(x).all():
            raise UncurseError("a landscape needs two or more ascending prices, the first 0 or more")
        if not (p[0] >= 0 and (np.diff(p) >= 0).all() and abs(p[-1] - 1) < 1e-9):
            raise UncurseError("the probabilities of a landscape must ascend to 1")

    @classmethod
    def default(cls) -> Landscape:
        """Return a landscape of the shape of a real exchange, with three parameters."""
        x = np.linspace(0.0, _HIGHEST, 601)
        reached = stats.gamma.cdf(x, _SHAPE, scale=_SCALE)
        return cls(tuple(x.tolist()), tuple((reached / reached[-1]).tolist()))

    @classmethod
    def from_histogram(cls, counts: Sequence[float] | Array) -> Landscape:
        """Return the landscape of the numbers of auctions at whole prices 0, 1, 2, …"""
        weights = np.array(counts, float)
        reached = np.append(0.0, np.cumsum(weights) / max(weights.sum(), 1e-300))
        # A price k is won by a bid above k - 1/2: spread it over one unit.
        x = np.append(0.0, np.arange(len(weights)) + 0.5)
        return cls(tuple(x.tolist()), tuple(reached.tolist()))

    @classmethod
    def from_prices(cls, prices: ArrayLike) -> Landscape:
        """Return the landscape of observed prices (n,), the highest competing one of each auction."""
        values = np.array(prices, float)
        x = np.unique(np.quantile(values, np.linspace(0, 1, 1001)))
        x = np.array([x[0], x[0] + 1e-9]) if len(x) == 1 else x
        reached = np.searchsorted(np.sort(values), x, side="right") / len(values)
        reached[0] = 0.0
        return cls(tuple(x.tolist()), tuple(reached.tolist()))

    @classmethod
    def from_file(cls, path: str | Path, column: str = "price") -> Landscape:
        """Read a landscape from the prices of a parquet or CSV file, or from a JSON file.

        A JSON file holds a histogram of whole prices 0, 1, 2, …: a list, or an object with the key
        ``"price_counter_train"``, as in the files of the iPinYou campaigns.
        """
        if not str(path).lower().endswith(".json"):
            return cls.from_prices(read_columns(path, [column])[column])
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UncurseError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
        counts = content.get("price_counter_train") if isinstance(content, dict) else content
        if not isinstance(counts, list):
            raise UncurseError(f"{path} has no histogram; pass a list of counts, or the key 'price_counter_train'")
        return cls.from_histogram(counts)

    def win_probability(self, bids: ArrayLike) -> Array:
        """Return the probability that a bid wins."""
        return np.asarray(np.interp(np.asarray(bids, float), self.prices, self.reached))

    def expected_price(self, bids: ArrayLike) -> Array:
        """Return the expected second price of an auction, which is 0 where it is lost."""
        x, p = np.array(self.prices), np.array(self.reached)
        below = np.append(0.0, np.cumsum(np.diff(p) * (x[1:] + x[:-1]) / 2)) + p[0] * x[0]
        b = np.clip(np.asarray(bids, float), x[0], x[-1])
        i = np.clip(np.searchsorted(x, b, side="right") - 1, 0, len(x) - 2)
        won = (p[i + 1] - p[i]) / (x[i + 1] - x[i]) * (np.square(b) - np.square(x[i])) / 2
        return np.where(np.asarray(bids, float) < x[0], 0.0, below[i] + won)

    def draw(self, rng: np.random.Generator, size: Any) -> Array:
        """Draw prices."""
        return np.asarray(np.interp(rng.random(size), self.reached, self.prices))
