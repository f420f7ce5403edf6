"""``python -m benchmarks.intervals [--draws 40]``: how often 90% intervals hold.

First `UncursedClassifierCV`: each draw is a logistic regression of 40 features on 8,000 rows, about 6% of them
positive, and a pool of the same distribution. Then `ReplicaCalibrator` and `Auto` where the calibration curve bends:
two models by seed whose scores rise by 1.9 per unit of the true log odds two standard deviations below the mean, and by
.9 above it, with 30,000 labeled rows, about 9% of them positive. The error of the corrected predictions on the top 2%
of the pool is against the true probabilities.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from joblib import Parallel, delayed

ROWS, FEATURES, POOL, ALPHA = 8_000, 40, 20_000, 0.02


def draw(seed: int, replicas: int, method: str) -> tuple[float, float, float]:
    """Return the error on the top share and the interval for it."""
    from sklearn.linear_model import LogisticRegression

    from uncurse import UncursedClassifierCV

    rng = np.random.default_rng([7, seed])
    effects = rng.normal(0, 1.2 / np.sqrt(FEATURES), FEATURES)
    X, pool = rng.normal(size=(ROWS, FEATURES)), rng.normal(size=(POOL, FEATURES))
    y = rng.random(ROWS) < 1 / (1 + np.exp(3.3 - X @ effects))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=100, max_iter=500)
        fitted = UncursedClassifierCV(model, method=method, n_replicas=replicas, random_state=seed).fit(X, y, pool=pool)
    best = np.argsort(-fitted.estimator_.predict_proba(pool)[:, 1])[: int(ALPHA * POOL)]
    truth = 1 / (1 + np.exp(3.3 - pool[best] @ effects))
    return fitted.predict_proba(pool[best])[:, 1].sum() / truth.sum() - 1, *fitted.interval(ALPHA)


def draw_bend(seed: int, method: str) -> tuple[float, float, float]:
    """Return the error on the top share and the interval for it, for scores that are a bent function of the truth."""
    import uncurse

    rng = np.random.default_rng([8, seed])

    def rows() -> tuple[np.ndarray, np.ndarray]:
        truth = rng.normal(-2.7, 0.8, 30_000)
        z = (truth[:, None] + 2.7 + rng.normal(0, 0.35, (30_000, 2))) / 0.8
        return -2.7 + 0.8 * (1.4 * z - 0.12 * z**2), 1 / (1 + np.exp(-truth))

    (pool, truth), (scores, rate) = rows(), rows()
    labels = rng.random(len(rate)) < rate
    kind = uncurse.ReplicaCalibrator if method == "labels" else uncurse.Auto
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = kind(scale="logit", replicas="seeds").fit(pool, labeled=(scores, labels), labels_from="elsewhere")
    best = uncurse.top_share(pool[:, 0], ALPHA)
    return fitted.predict_proba(pool[best, 0]).sum() / truth[best].sum() - 1, *fitted.interval(ALPHA)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals", description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    draws = parser.parse_args().draws
    print(f"{draws} draws, top {ALPHA:.0%}: share of 90% intervals that hold, median half-width, mean and rms error")
    cases = [(f"{m:6} n_replicas={n}", delayed(draw), (n, m)) for m, n in (("auto", 3), ("auto", 6), ("labels", 6))]
    cases += [(f"{method:6} with a bend", delayed(draw_bend), (method,)) for method in ("auto", "labels")]
    for name, function, options in cases:
        found = np.array(Parallel(n_jobs=-1)(function(seed, *options) for seed in range(draws)))
        error, low, high = found.T
        held = np.mean((low <= error) & (error <= high))
        spread = np.sqrt(held * (1 - held) / draws)
        width = np.median(high - low) / 2
        mean = f"{error.mean():+.1%} ({error.std(ddof=1) / np.sqrt(draws):.1%})"
        rms = np.sqrt(np.mean(np.square(error)))
        print(f"{name}: {held:.0%} ({spread:.0%}), {width:.1%}, {mean}, {rms:.1%}", flush=True)


if __name__ == "__main__":
    main()
