"""A small world with known truth for `uncurse demo`: train three models, score a pool, and write logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ._types import Array, Float
from .estimators import fit_replicas
from .links import logistic, logit
from .metrics.selection import top_share

FEATURES = 160
SHOWN, CANDIDATES = 32_000, 200_000  # rows with labels, from earlier winners; and candidates to choose from
ALPHAS = (0.01, 0.02, 0.05, 0.1, 1.0)
_FILES, _PER_REQUEST = 4, 50


@dataclass(frozen=True)
class DemoWorld:
    """A scored pool with its true rates and clicks."""

    scores: Array  # (n, 3) logits: the served model, and two trained on bootstraps of its training rows
    truth: Array
    clicks: NDArray[np.bool_]


@dataclass(frozen=True)
class Outcome:
    """Mean prediction of the selected candidates, before and after the map, and their true rate."""

    alpha: float
    truth: float
    before: float
    after: float
    error_before: float  # Σf / Σp − 1 of the served scores
    error_after: float  # the same of the corrected ones


def make(seed: int = 0) -> DemoWorld:
    """Train a model and two replicas on the shown rows, and score the candidates with all three."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.6 / np.sqrt(FEATURES), FEATURES)
    shift = 0.5 * weights / np.linalg.norm(weights)  # what was shown before is better than what is there

    def draw(rows: int, mean: Array) -> tuple[Float, Array]:
        x = rng.standard_normal((rows, FEATURES), dtype=np.float32) + mean.astype(np.float32)
        return x, logistic(x @ weights - 2.7).astype(np.float64)

    X, p = draw(SHOWN, shift)
    clicks = rng.random(SHOWN) < p
    candidates, truth = draw(CANDIDATES, np.zeros(FEATURES))
    fitted = fit_replicas(LogisticRegression(C=1e6, max_iter=1000), X, clicks, n_replicas=3, random_state=seed)
    probabilities = np.column_stack([model.predict_proba(candidates)[:, 1] for model in fitted.models])
    scores = logit(probabilities).astype(np.float64)
    return DemoWorld(scores, truth, rng.random(CANDIDATES) < truth)


def write(world: DemoWorld, folder: Path) -> tuple[Path, Path]:
    """Write a folder of logs of the pool, without labels, and a file of the outcomes; return their paths."""
    import polars as pl

    pool, outcomes = folder / "pool", folder / "outcomes.parquet"
    pool.mkdir(parents=True, exist_ok=True)
    rows = np.arange(len(world.truth))
    log = pl.DataFrame(
        {
            "request": rows // _PER_REQUEST,
            **{f"s{i}": column for i, column in enumerate(world.scores.T)},
            "click": world.clicks.astype(np.int8),
            "truth": world.truth,
        }
    )
    for i, part in enumerate(np.array_split(rows, _FILES)):
        log.slice(int(part[0]), len(part)).select("request", "s0", "s1", "s2").write_parquet(pool / f"part-{i}.parquet")
    log.select("request", "s0", "click", "truth").write_parquet(outcomes)
    return pool, outcomes


def outcomes(served: Array, predicted: Array, truth: Array) -> list[Outcome]:
    """Compare predictions and true rates of the candidates that the served logit selects, for each share."""
    found = []
    for alpha in ALPHAS:
        chosen = top_share(served, alpha)
        true, before, after = (float(values[chosen].mean()) for values in (truth, logistic(served), predicted))
        found.append(Outcome(alpha, true, before, after, before / true - 1, after / true - 1))
    return found
