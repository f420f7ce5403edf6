"""``python -m benchmarks.estimators [--rows 50000] [--rounds 3]``: against scikit-learn's calibration.

`UncursedClassifierCV` trains cv × n_replicas + 1 models, `CalibratedClassifierCV(ensemble=False)` cv + 1. Both fit
LightGBM and logistic regression on the same simulated click log, interleaved; the figure is the ratio of the minima.
Memory is the peak of a fresh process that fits once. The pickle of the fitted estimator is compared with those of the
models that it holds.
"""

from __future__ import annotations

import argparse
import os
import pickle
from functools import partial
from typing import Any

import numpy as np

from .harness import bar, fresh, minima, peak_megabytes

MOST = 3.3  # times the peer
MOST_BESIDE_MODELS = 50.0  # kB of a pickle that are not its models
MODELS = ("lightgbm", "logistic")


def make_log(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, clicks, and features of a pool of the same size."""
    rng = np.random.default_rng(0)
    effects = rng.normal(0, 0.5, (10, 30))
    X, pool = rng.integers(30, size=(2, rows, 10))
    log_odds = effects[np.arange(10), X].sum(axis=1) - 2
    return X.astype(np.float32), rng.random(rows) < 1 / (1 + np.exp(-log_odds)), pool.astype(np.float32)


def make_model(name: str) -> Any:
    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1, random_state=0)
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    return make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=300))


def fit(side: str, model: str, rows: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV

    from uncurse import UncursedClassifierCV

    X, y, pool = make_log(rows)
    if side == "ours":
        return UncursedClassifierCV(make_model(model), random_state=0).fit(X, y, pool=pool)
    if side == "peer":
        return CalibratedClassifierCV(make_model(model), method="isotonic", ensemble=False).fit(X, y)
    return None


def _peak(side: str, model: str, rows: int) -> float:
    minima({side: partial(fit, side, model, rows)}, rounds=1)
    return peak_megabytes()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("--rows", type=float, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    for model in MODELS:
        seconds, fitted = minima({side: partial(fit, side, model, rows) for side in ("ours", "peer")}, arguments.rounds)
        memory = {side: float(fresh(_peak, side, model, rows)) for side in ("ours", "peer", "none")}
        print(
            f"{model}, {rows:,} rows: {seconds['ours']:.2f} s against {seconds['peer']:.2f} s; {memory['ours']:.0f} MB "
            f"against {memory['peer']:.0f} MB, without a fit {memory['none']:.0f} MB"
        )
        bar("time / peer", seconds["ours"] / seconds["peer"], MOST)
        whole = len(pickle.dumps(fitted["ours"]))
        models = len(pickle.dumps((fitted["ours"].estimator_, fitted["ours"].replicas_)))
        print(f"  pickle: {whole / 1e3:,.0f} kB, its models {models / 1e3:,.0f} kB")
        bar("kB beside the models", (whole - models) / 1e3, MOST_BESIDE_MODELS)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
