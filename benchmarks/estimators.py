"""``python -m benchmarks.estimators [--rows 50000] [--rounds 3] [--json FILE]``: against scikit-learn's calibration.

`UncursedClassifierCV` trains (cv + 1) × n_replicas models, `CalibratedClassifierCV(ensemble=False)` cv + 1. Both fit
LightGBM and logistic regression on the same simulated click log, interleaved; the figure is the ratio of the minima.
Memory is the peak of a fresh process that fits once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

from .logs import peak

MOST = 3.3  # times the peer
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


def fit(side: str, model: str, rows: int) -> None:
    from sklearn.calibration import CalibratedClassifierCV

    from uncurse import UncursedClassifierCV

    X, y, pool = make_log(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if side == "ours":
            UncursedClassifierCV(make_model(model), random_state=0).fit(X, y, pool=pool)
        elif side == "peer":
            CalibratedClassifierCV(make_model(model), method="isotonic", ensemble=False).fit(X, y)


def megabytes(side: str, model: str, rows: int) -> float:
    words = [sys.executable, "-m", "benchmarks.estimators", "--once", side, "--model", model, "--rows", str(rows)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("--rows", type=float, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    if arguments.once:
        fit(arguments.once, arguments.model, rows)
        print(peak())
        return
    found = []
    for model in MODELS:
        best = dict.fromkeys(("ours", "peer"), np.inf)
        for _ in range(arguments.rounds):
            for side in best:
                start = time.perf_counter()
                fit(side, model, rows)
                best[side] = min(best[side], time.perf_counter() - start)
        memory = {side: megabytes(side, model, rows) for side in ("ours", "peer", "none")}
        ratio = best["ours"] / best["peer"]
        found.append({"model": model, "rows": rows, "seconds": best, "ratio": ratio, "megabytes": memory})
        verdict = "met" if ratio <= MOST else "MISSED"
        print(
            f"{model}, {rows:,} rows: {best['ours']:.2f} s against {best['peer']:.2f} s, ratio {ratio:.2f} "
            f"(at most {MOST}: {verdict}); {memory['ours']:.0f} MB against {memory['peer']:.0f} MB, without a fit "
            f"{memory['none']:.0f} MB"
        )
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if arguments.json:
        with open(arguments.json, "w") as stream:
            json.dump(found, stream, indent=1)


if __name__ == "__main__":
    main()
