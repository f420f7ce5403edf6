"""Worlds with a known truth: each is one function from a random generator to a `Draw`.

Here noise has a known law; the worlds of trained models are in `trained`.

A world of your own is one function more::

    @world("weekend", "Half the noise, twice the rate.")
    def weekend(rng):
        return noisy(rng, rate=0.08, noise=0.15)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

from ..._types import Array, Float
from ...links import logistic
from .dlrm import MODELS

ROWS = 200_000
PER_REQUEST = 100

Rng = np.random.Generator


@dataclass(frozen=True)
class Draw:
    """What a method may see (all but the truths), and what it is judged by. Scores are logits, column 0 is served."""

    labelled: Array  # (m, 6)
    labels: Array  # (m,), 0 or 1
    pool: Array  # (n, 6)
    pool_truth: Float  # (n,), probabilities: for the oracle alone
    test: Array  # (N, 6), of the pool's distribution
    truth: Float  # (N,), probabilities
    replicas: str = "seeds"  # or "bootstrap"; see `uncurse.VAD`
    requests: NDArray[np.intp] | None = None  # of test rows, all of one size: the best of each are kept


def _nothing() -> str | None:
    return None


@dataclass(frozen=True)
class ArenaWorld:
    """A name, a line of text, one function; and where something must be there first, a function that says what."""

    name: str
    text: str
    draw: Callable[[Rng], Draw]
    lacks: Callable[[], str | None] = _nothing

    def stream(self, seed: int, number: int) -> Rng:
        """Of one replication: other worlds and methods change nothing in it."""
        return np.random.default_rng([seed, number, *self.name.encode()])


WORLDS: dict[str, ArenaWorld] = {}


def world(
    name: str, text: str, *, lacks: Callable[[], str | None] = _nothing
) -> Callable[[Callable[[Rng], Draw]], Callable[[Rng], Draw]]:
    """Register a function as a world."""

    def register(function: Callable[[Rng], Draw]) -> Callable[[Rng], Draw]:
        WORLDS[name] = ArenaWorld(name, text, function, lacks)
        return function

    return register


# ---------------------------------------------------------------------------- noise of a known law

SPREAD = 0.8  # of the true logit
NORMAL = stats.norm(scale=SPREAD)
HEAVY = stats.t(4, scale=SPREAD / np.sqrt(2))  # a t with 4 degrees of freedom has the variance 2
UNEQUAL = (0.05, 0.9)


def noisy(
    rng: Rng,
    *,
    rate: float = 0.04,
    noise: float | tuple[float, float] = 0.3,
    law: Any = NORMAL,
    shift: float = 0.0,
    stretch: float = 1.0,
    labelled: int = ROWS,
    rows: int = ROWS,
) -> Draw:
    """True logits of a law, and six scores around each with independent normal noise.

    `rate` is the pool's; `noise` one standard deviation for all rows or the range of each row's own; true logits of
    labelled rows are stretched about the middle, then shifted.
    """
    middle = _middle(law, rate)

    def part(count: int, shift: float = 0.0, stretch: float = 1.0) -> tuple[Array, Float]:
        true = middle + shift + stretch * np.asarray(law.rvs(count, random_state=rng))
        spread = noise if isinstance(noise, float) else rng.uniform(*noise, (count, 1))
        return true[:, None] + spread * rng.standard_normal((count, MODELS)), logistic(true)

    scores, chance = part(labelled, shift, stretch)
    labels = (rng.random(labelled) < chance).astype(np.float64)
    return Draw(scores, labels, *part(rows), *part(rows))


@cache
def _middle(law: Any, rate: float) -> float:
    """The mean logit at which the mean probability is `rate`."""
    away = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    return float(brentq(lambda m: float(logistic(m + away).mean()) - rate, -20.0, 20.0))


for _name, _text, _options in (
    # VAD's own assumptions; with the second rate, the link is nearly straight.
    ("equal-noise-4", "Normal true logits at a rate of 4%, the same noise (sd 0.3) in every score.", {}),
    ("equal-noise-25", "Normal true logits at a rate of 25%, the same noise (sd 0.3) in every score.", {"rate": 0.25}),
    # No single λ is right.
    ("unequal-noise", "Noise of each row's own (sd 0.05 to 0.9), rate 4%.", {"noise": UNEQUAL}),
    # The best are really good.
    (
        "heavy-tails",
        "Unequal noise, and true logits with the tails of a t with 4 degrees of freedom, rate 4%.",
        {"noise": UNEQUAL, "law": HEAVY},
    ),
    # A slope fitted on labels pivots about the wrong mean.
    (
        "mean-shift",
        "Labelled rows have logits higher by 0.6; noise 0.4, rate 4% on the pool.",
        {"noise": 0.4, "shift": 0.6},
    ),
    # λ differs between labelled rows and pool.
    (
        "strong-shift",
        "Labelled rows have logits higher by 0.5 and 0.6 times as spread; noise 0.4, rate 4%.",
        {"noise": 0.4, "shift": 0.5, "stretch": 0.6},
    ),
    # The noise of labels rules; with few labels at another balance.
    ("low-rate", "Equal noise at a rate of 0.3%: 600 positives.", {"rate": 0.003}),
    ("few-labels", "Equal noise at 4%, 5,000 labels: 200 positives.", {"labelled": 5_000}),
    # What is left is bias.
    ("many-labels", "Equal noise at 4%, a million labels.", {"labelled": 1_000_000}),
):
    world(_name, _text)(partial(noisy, **_options))


@world("top-of-request", "The best k of 100 candidates of each request (k = 1, 2, 5, 10); noise 0.2 to 0.4, rate 4%.")
def top_of_request(rng: Rng) -> Draw:
    """A selection within requests, not of a share of all rows."""
    made = noisy(rng, noise=(0.2, 0.4))
    return Draw(**{**vars(made), "requests": np.arange(len(made.test)) // PER_REQUEST})


@world("own-winners", "Labelled rows are the top 20% of the pool by the served score itself; noise 0.4, rate 4%.")
def own_winners(rng: Rng) -> Draw:
    """What a log holds where the served model chose what was shown."""
    made = noisy(rng, noise=0.4, labelled=5 * ROWS)
    shown = made.labelled[:, 0] > np.quantile(made.labelled[:, 0], 0.8)
    return Draw(**{**vars(made), "labelled": made.labelled[shown], "labels": made.labels[shown]})
