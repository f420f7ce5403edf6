"""Worlds with a known truth, of noise and of trained models: each is a function from a random generator to a `Draw`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

from uncurse._types import Array, Float
from uncurse.errors import UncurseError
from uncurse.links import logistic

from ..paper import synthetic
from .dlrm import MODELS, unpack

ROWS = 200_000
PER_REQUEST = 100

Rng = np.random.Generator


@dataclass(frozen=True)
class Draw:
    """One replication of a world: what a method may use, which is all but the truths, and what it is judged by.

    Scores are logits of S models, the same in each array, with the served one in column 0. The worlds of the library
    have S = 6. Where there are requests, a share α is selected from each request instead of from all rows, and an α
    that selects no row of a request has no cell.
    """

    labeled: Array  # (m, S) scores of labeled rows
    labels: Array  # (m,) 0 or 1
    pool: Array  # (n, S) scores of unlabeled candidates
    pool_truth: Float  # (n,) true probabilities of the pool, for the oracle alone
    test: Array  # (N, S) scores of the rows that are selected from, distributed as the pool
    truth: Float  # (N,) their true probabilities
    replicas: str = "seeds"  # kind of the models beside the served one; see `uncurse.VAD`
    labels_from: str = "elsewhere"  # "winners" if the served score selected the labeled rows; see `uncurse.Auto`
    requests: NDArray[np.intp] | None = None  # (N,) number of each test row's request, from 0; all of one size

    def check(self) -> None:
        """Raise UncurseError if an array has a wrong shape or impossible values."""
        columns = np.shape(self.pool)[-1:]
        for name, beside in (("labeled", "labels"), ("pool", "pool_truth"), ("test", "truth")):
            scores, values = np.asarray(getattr(self, name)), np.asarray(getattr(self, beside))
            if scores.ndim != 2 or not scores.size or scores.shape[1:] != columns:
                raise UncurseError(f"{name} has shape {scores.shape}; return rows × models, as many models as the pool")
            if not np.isfinite(scores).all():
                raise UncurseError(f"{name} has scores that are not finite; return logits")
            if values.shape != scores.shape[:1] or not ((values >= 0) & (values <= 1)).all():
                what = f"shape {values.shape} and values from {values.min():.3g} to {values.max():.3g}"
                raise UncurseError(f"{beside} has {what}; return a probability, not a logit, for each row of {name}")
        if not np.isin(self.labels, (0, 1)).all():
            raise UncurseError("labels has values other than 0 and 1; return 0 or 1 for each row")
        if self.requests is not None:
            requests = np.asarray(self.requests)
            if requests.shape != np.shape(self.truth) or requests.dtype.kind not in "iu" or requests.min() < 0:
                raise UncurseError("requests is not a number from 0 for each test row; return integers of shape (N,)")
            if np.ptp(np.bincount(requests)):
                raise UncurseError("requests have different numbers of rows; return requests of one size")


Drawing = Callable[[Rng], Draw]


@dataclass(frozen=True)
class ArenaWorld:
    """A world of the arena."""

    name: str  # part of the seed of its random numbers
    text: str  # one line that describes it
    draw: Drawing
    lacks: Callable[[], str | None] | None = None  # says what is missing to draw it here, such as a library

    def stream(self, seed: int, number: int) -> Rng:
        """Of one replication: other worlds and methods change nothing in it."""
        return np.random.default_rng([seed, number, *self.name.encode()])


WORLDS: dict[str, ArenaWorld] = {}


def world(name: str, text: str, *, lacks: Callable[[], str | None] | None = None) -> Callable[[Drawing], Drawing]:
    """Register a function from a random generator to a `Draw` as a world; see `ArenaWorld` for the parameters.

    Examples
    --------
    >>> @world("doctest", "Half the noise, twice the rate.")
    ... def doctest(rng):
    ...     return noisy(rng, rate=0.08, noise=0.15)
    >>> WORLDS.pop("doctest").text
    'Half the noise, twice the rate.'
    """

    def register(function: Drawing) -> Drawing:
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
    law: Any = None,
    shift: float = 0.0,
    stretch: float = 1.0,
    labeled: int = ROWS,
    rows: int = ROWS,
) -> Draw:
    """Draw true logits from a law, and six scores around each with independent normal noise.

    `rate` is the mean true probability of pool and test rows; it sets the middle of the true logits. `noise` is the
    standard deviation of the noise of all scores, or the range from which each row draws its own. `law` is a frozen
    distribution of scipy.stats, of the true logits about their middle, by default normal with standard deviation 0.8.
    The middle of the labeled rows is higher by `shift`, and distances from it are multiplied by `stretch`. There are
    `labeled` labeled rows, and `rows` pool rows and test rows.

    Examples
    --------
    >>> noisy(np.random.default_rng(0), labeled=100, rows=200).pool.shape
    (200, 6)
    """
    law = NORMAL if law is None else law
    middle = _middle(law, rate)

    def part(count: int, shift: float = 0.0, stretch: float = 1.0) -> tuple[Array, Float]:
        true = middle + shift + stretch * np.asarray(law.rvs(count, random_state=rng))
        spread = noise if isinstance(noise, float) else rng.uniform(*noise, (count, 1))
        return true[:, None] + spread * rng.standard_normal((count, MODELS)), logistic(true)

    scores, chance = part(labeled, shift, stretch)
    labels = (rng.random(labeled) < chance).astype(np.float64)
    return Draw(scores, labels, *part(rows), *part(rows))


@cache
def _middle(law: Any, rate: float) -> float:
    """The mean logit at which the mean probability is `rate`."""
    away = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    return float(brentq(lambda m: float(logistic(m + away).mean()) - rate, -20.0, 20.0))


def _noise_world(name: str, text: str, **options: Any) -> None:
    world(name, text)(partial(noisy, **options))


# VAD's own assumptions; with the second rate, the link is nearly straight.
_noise_world("equal-noise-4", "Normal true logits at a rate of 4%, the same noise (sd 0.3) in every score.")
_noise_world(
    "equal-noise-25", "Normal true logits at a rate of 25%, the same noise (sd 0.3) in every score.", rate=0.25
)
# No single λ is right.
_noise_world("unequal-noise", "Noise of each row's own (sd 0.05 to 0.9), rate 4%.", noise=UNEQUAL)
# The best are really good.
_heavy = "Unequal noise, and true logits with the tails of a t with 4 degrees of freedom, rate 4%."
_noise_world("heavy-tails", _heavy, noise=UNEQUAL, law=HEAVY)
# A slope fitted on labels pivots about the wrong mean; then λ differs between labeled rows and pool too.
_mean = "Labeled rows have logits higher by 0.6; noise 0.4, rate 4% on the pool."
_noise_world("mean-shift", _mean, noise=0.4, shift=0.6)
_strong = "Labeled rows have logits higher by 0.5 and 0.6 times as spread; noise 0.4, rate 4%."
_noise_world("strong-shift", _strong, noise=0.4, shift=0.5, stretch=0.6)
# The noise of the labels dominates with few labels; with many, the bias of the methods does.
_noise_world("low-rate", "Equal noise at a rate of 0.3%: 600 positives.", rate=0.003)
_noise_world("few-labels", "Equal noise at 4%, 5,000 labels: 200 positives.", labeled=5_000)
_noise_world("many-labels", "Equal noise at 4%, a million labels.", labeled=1_000_000)


@world("top-of-request", "The best k of 100 candidates of each request (k = 1, 2, 5, 10); noise 0.2 to 0.4, rate 4%.")
def top_of_request(rng: Rng) -> Draw:
    """A selection within requests, not of a share of all rows."""
    made = noisy(rng, noise=(0.2, 0.4))
    return replace(made, requests=np.arange(len(made.test)) // PER_REQUEST)


@world("own-winners", "Labeled rows are the top 20% of the pool by the served score itself; noise 0.4, rate 4%.")
def own_winners(rng: Rng) -> Draw:
    """What a log holds where the served model chose what was shown."""
    made = noisy(rng, noise=0.4, labeled=5 * ROWS)
    shown = made.labeled[:, 0] > np.quantile(made.labeled[:, 0], 0.8)
    return replace(made, labeled=made.labeled[shown], labels=made.labels[shown], labels_from="winners")


# ---------------------------------------------------------------------------- trained models

#: Trained once and kept beside the benchmarks of a checkout.
DLRM_FILE = Path(__file__).parents[3] / "benchmarks" / "dlrm.npz"


@world("logistic", "The paper's synthetic experiment: logistic regression on 3,000 rows, five bootstraps beside it.")
def logistic_regression(rng: Rng) -> Draw:
    """As in `experiments.synthetic`; labeled rows are fresh ones of the training distribution."""
    x, y, _ = synthetic.draw_rows(rng, synthetic.TRAIN, synthetic.TRAIN_MEAN)
    even = np.full(len(y), 1 / len(y))
    weights = [np.ones(len(y)), *(rng.multinomial(len(y), even).astype(float) for _ in range(MODELS - 1))]
    fits = np.stack([synthetic.fit_model(x, y, weight) for weight in weights])

    def part(rows: int, mean: float) -> tuple[Array, NDArray[np.bool_], Float]:
        features, labels, truth = synthetic.draw_rows(rng, rows, mean)
        return synthetic.scores_of(features, fits), labels, truth

    labeled, labels, _ = part(synthetic.TRAIN, synthetic.TRAIN_MEAN)
    pool, _, pool_truth = part(synthetic.TEST, synthetic.POOL_MEAN)
    test, _, truth = part(synthetic.TEST, synthetic.POOL_MEAN)
    return Draw(labeled, labels.astype(np.float64), pool, pool_truth, test, truth, replicas="bootstrap")


_TREES = {
    "objective": "binary", "num_leaves": 31, "learning_rate": 0.1, "bagging_fraction": 0.6, "bagging_freq": 1,
    "feature_fraction": 0.6, "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbose": -1,
}  # fmt: skip
_TREES_TRAIN, _TREES_ROWS, _TREES_FEATURES, _TREES_SHIFT = 20_000, 50_000, 8, 0.3


@world(
    "trees",
    "Six LightGBM models by seed, bagged, on 20,000 rows of a tabular world that shifts.",
    lacks=lambda: None if find_spec("lightgbm") else "needs LightGBM: pip install 'uncurse[lightgbm]'",
)
def trees(rng: Rng) -> Draw:
    """Over-fitted trees; the features of training and labeled rows are higher by 0.6 than those of the pool."""
    import lightgbm

    def rows(count: int, mean: float) -> tuple[Array, Float]:
        x = mean + rng.standard_normal((count, _TREES_FEATURES))
        steps = 0.7 * (x[:, 3] > 0.5) + 0.4 * np.abs(x[:, 4]) + 0.3 * (x[:, 5] - x[:, 6])
        return x, logistic(0.8 * np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + steps - 2.2)

    x, chance = rows(_TREES_TRAIN, _TREES_SHIFT)
    data = lightgbm.Dataset(x, rng.random(len(x)) < chance, params=_TREES)
    seeds = rng.integers(1 << 30, size=MODELS).tolist()
    models = [lightgbm.train({**_TREES, "seed": seed}, data, num_boost_round=100) for seed in seeds]

    def part(mean: float) -> tuple[Array, Float]:
        features, truth = rows(_TREES_ROWS, mean)
        scores = [model.predict(features, raw_score=True, num_threads=1) for model in models]
        return np.stack([np.asarray(s, np.float64) for s in scores], axis=1), truth

    labeled, chance = part(_TREES_SHIFT)
    labels = (rng.random(len(chance)) < chance).astype(np.float64)
    return Draw(labeled, labels, *part(-_TREES_SHIFT), *part(-_TREES_SHIFT))


_logits = cache(unpack)


def _draw_dlrm(prefix: str, rng: Rng) -> Draw:
    """Draw from the kept logits of trained DLRMs: who is served, who is in the pool, and the labels are new."""
    sets = [logits for name, logits in _logits(DLRM_FILE).items() if name.startswith(prefix)]
    kept = sets[rng.integers(len(sets))]
    models, rows = rng.permutation(MODELS), rng.permutation(len(kept.pool))
    labels = rng.random(len(kept.labeled)) < logistic(kept.labeled_truth)
    pool, test = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    parts = [(kept.pool[part][:, models], logistic(kept.pool_truth[part])) for part in (pool, test)]
    return Draw(kept.labeled[:, models], labels.astype(np.float64), *parts[0], *parts[1])


def _lacks_dlrm() -> str | None:
    if DLRM_FILE.is_file():
        return None
    return f"needs {DLRM_FILE.name} of the repository; python -m uncurse_lab.arena.dlrm {DLRM_FILE} trains it on a GPU"


for _name, _prefix, _rate in (("dlrm-28", "28-", "28%"), ("dlrm-4", "4-", "4.5%")):
    _text = f"Six DLRMs by seed on a click log of 3 million rows, rate {_rate}; the pool is thinned by 1 − p."
    world(_name, _text, lacks=_lacks_dlrm)(partial(_draw_dlrm, _prefix))
