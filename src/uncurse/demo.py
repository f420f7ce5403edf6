"""A small world with known truth for `uncurse demo`: train three models, score a pool, and write logs."""

from __future__ import annotations

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


def make(seed: int = 0) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Train a model and two replicas on bootstraps of the shown rows, and score the candidates.

    Returns their logits (n, 3), true rates and clicks.
    """
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
    return logit(probabilities).astype(np.float64), truth, rng.random(CANDIDATES) < truth


def write(scores: Array, truth: Array, clicks: NDArray[np.bool_], folder: Path) -> tuple[Path, Path]:
    """Write a folder of logs of the pool, without labels, and a file of the outcomes; return their paths."""
    import polars as pl

    pool, outcomes = folder / "pool", folder / "outcomes.parquet"
    pool.mkdir(parents=True, exist_ok=True)
    rows = np.arange(len(truth))
    columns = {f"s{i}": column for i, column in enumerate(scores.T)}
    log = pl.DataFrame({"request": rows // _PER_REQUEST, **columns, "click": clicks.astype(np.int8), "truth": truth})
    for i, part in enumerate(np.array_split(rows, _FILES)):
        log.slice(int(part[0]), len(part)).select("request", "s0", "s1", "s2").write_parquet(pool / f"part-{i}.parquet")
    log.select("request", "s0", "click", "truth").write_parquet(outcomes)
    return pool, outcomes


def outcomes(served: Array, predicted: Array, truth: Array) -> list[tuple[float, ...]]:
    """Return share, true rate and mean prediction, as served and corrected, of the candidates with the top logits."""
    rows = [(alpha, top_share(served, alpha)) for alpha in ALPHAS]
    means = (truth, logistic(served), predicted)
    return [(alpha, *(float(values[chosen].mean()) for values in means)) for alpha, chosen in rows]
