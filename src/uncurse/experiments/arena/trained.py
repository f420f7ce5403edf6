"""Worlds of trained models, whose truth is known: logistic regressions, trees, and DLRMs trained beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..._types import Array, Float
from ...errors import UncurseError
from ...links import logistic
from ..paper import synthetic
from .dlrm import MODELS, unpack
from .worlds import WORLDS, ArenaWorld, Draw, Rng, world

#: Trained once and kept beside the benchmarks of a checkout.
DLRM_FILE = Path(__file__).parents[4] / "benchmarks" / "dlrm.npz"


@world("logistic", "The paper's synthetic experiment: logistic regression on 3,000 rows, five bootstraps beside it.")
def logistic_regression(rng: Rng) -> Draw:
    """As in `experiments.synthetic`; labelled rows are fresh ones of the training distribution."""
    x, y, _ = synthetic.draw_rows(rng, synthetic.TRAIN, synthetic.TRAIN_MEAN)
    even = np.full(len(y), 1 / len(y))
    weights = [np.ones(len(y)), *(rng.multinomial(len(y), even).astype(float) for _ in range(MODELS - 1))]
    fits = np.stack([synthetic.fit_model(x, y, weight) for weight in weights])

    def part(rows: int, mean: float) -> tuple[Array, NDArray[np.bool_], Float]:
        features, labels, truth = synthetic.draw_rows(rng, rows, mean)
        return synthetic.scores_of(features, fits), labels, truth

    labelled, labels, _ = part(synthetic.TRAIN, synthetic.TRAIN_MEAN)
    pool, _, pool_truth = part(synthetic.TEST, synthetic.POOL_MEAN)
    test, _, truth = part(synthetic.TEST, synthetic.POOL_MEAN)
    return Draw(labelled, labels.astype(np.float64), pool, pool_truth, test, truth, replicas="bootstrap")


def _lacks_lightgbm() -> str | None:
    return None if find_spec("lightgbm") else "needs LightGBM: pip install 'uncurse[lightgbm]'"


_TREES = {
    "objective": "binary", "num_leaves": 31, "learning_rate": 0.1, "bagging_fraction": 0.6, "bagging_freq": 1,
    "feature_fraction": 0.6, "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbose": -1,
}  # fmt: skip
_TREES_TRAIN, _TREES_ROWS, _TREES_FEATURES, _TREES_SHIFT = 20_000, 50_000, 8, 0.3


@world(
    "trees",
    "Six LightGBM models by seed, bagged, on 20,000 rows of a tabular world that shifts.",
    lacks=_lacks_lightgbm,
)
def trees(rng: Rng) -> Draw:
    """Over-fitted trees; the features of training and labelled rows are higher by 0.6 than those of the pool."""
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

    labelled, chance = part(_TREES_SHIFT)
    labels = (rng.random(len(chance)) < chance).astype(np.float64)
    return Draw(labelled, labels, *part(-_TREES_SHIFT), *part(-_TREES_SHIFT))


_logits = cache(unpack)


@dataclass(frozen=True)
class Dlrm:
    """Draws from the kept logits of trained DLRMs: who is served, who is in the pool, and the labels are new."""

    prefix: str  # of the data sets' names
    path: Path

    def __call__(self, rng: Rng) -> Draw:
        """One draw."""
        sets = [logits for name, logits in _logits(self.path).items() if name.startswith(self.prefix)]
        if not sets:
            raise UncurseError(f"{self.path} has no data set {self.prefix}…; train it anew")
        kept = sets[rng.integers(len(sets))]
        models, rows = rng.permutation(MODELS), rng.permutation(len(kept.pool))
        labels = rng.random(len(kept.labelled)) < logistic(kept.labelled_truth)
        pool, test = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        return Draw(
            kept.labelled[:, models],
            labels.astype(np.float64),
            kept.pool[pool][:, models],
            logistic(kept.pool_truth[pool]),
            kept.pool[test][:, models],
            logistic(kept.pool_truth[test]),
        )

    def lacks(self) -> str | None:
        """What is missing."""
        if self.path.is_file():
            return None
        how = "python -m uncurse.experiments.arena.dlrm FILE trains it in minutes on a GPU; name it by --dlrm FILE"
        return f"needs the logits of trained models, and there is no {self.path}; {how}"


def dlrm_worlds(path: Path = DLRM_FILE) -> dict[str, ArenaWorld]:
    """The worlds of trained DLRMs, of the logits in this file."""
    text = "Six DLRMs by seed on a click log of 3 million rows, rate {}; the pool is thinned by 1 − p."
    made = {}
    for name, prefix, rate in (("dlrm-28", "28-", "28%"), ("dlrm-4", "4-", "4.5%")):
        draw = Dlrm(prefix, path)
        made[name] = ArenaWorld(name, text.format(rate), draw, draw.lacks)
    return made


WORLDS |= dlrm_worlds()
