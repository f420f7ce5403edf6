"""``python -m benchmarks.regressions [--draws 24]``: error of `UncursedRegressorCV` on the top 5%, against the truth.

Each draw has 2,500 training rows and 8,000 candidates with 30 features. The mean is exp(−1 + effects · features), or
5 + effects · features for a linear model. In worlds with a shift the mean of each feature is .3 higher in training.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed

ROWS, POOL, FEATURES, ALPHA = 2_500, 8_000, 30, 0.05


def models() -> dict[str, Callable[[], Any]]:
    """Return the models by name; the name says which outcomes `draw` makes."""
    from lightgbm import LGBMRegressor
    from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor

    options: dict[str, Any] = {"max_iter": 500, "solver": "newton-cholesky"}
    trees: dict[str, Any] = {"n_estimators": 60, "num_leaves": 15, "verbose": -1, "n_jobs": 1}
    return {
        "GammaRegressor(alpha=1)": lambda: GammaRegressor(alpha=1, **options),
        "GammaRegressor(alpha=0.03)": lambda: GammaRegressor(alpha=0.03, **options),
        "GammaRegressor(alpha=0)": lambda: GammaRegressor(alpha=0, **options),
        "PoissonRegressor(alpha=1)": lambda: PoissonRegressor(alpha=1, **options),
        "PoissonRegressor(alpha=0.03)": lambda: PoissonRegressor(alpha=0.03, **options),
        "PoissonRegressor(alpha=0)": lambda: PoissonRegressor(alpha=0, **options),
        "LinearRegression()": LinearRegression,
        "LGBMRegressor(objective='poisson')": lambda: LGBMRegressor(objective="poisson", **trees),
    }


def draw(seed: int, name: str, shift: float) -> tuple[float, float]:
    """Return the error of the plain and of the corrected predictions on the top share."""
    from uncurse import UncursedRegressorCV, top_share

    rng = np.random.default_rng([9, seed])
    X, pool = rng.normal(shift, 1, (ROWS, FEATURES)), rng.normal(size=(POOL, FEATURES))
    effects = rng.normal(0, 0.8 / np.sqrt(FEATURES), FEATURES)
    if name.startswith("Linear"):
        truth, y = 5 + pool @ effects, rng.normal(5 + X @ effects, 3)
    else:
        truth, mean = np.exp(pool @ effects - 1), np.exp(X @ effects - 1)
        y = rng.gamma(1.5, mean / 1.5) if name.startswith("Gamma") else rng.poisson(mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = UncursedRegressorCV(models()[name](), random_state=seed).fit(X, y, pool=pool)
        plain, corrected = fitted.estimator_.predict(pool), fitted.predict(pool)
    top = top_share(plain, ALPHA)
    return tuple(100 * (float(values[top].mean() / truth[top].mean()) - 1) for values in (plain, corrected))


def main() -> None:
    """Print mean and rms error of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=24)
    draws = parser.parse_args().draws
    print(f"{'model':36}{'shift':>6}{'plain, mean':>15}{'rms':>7}{'uncursed, mean':>19}{'rms':>7}")
    with Parallel(n_jobs=2) as parallel:
        for name in models():
            for shift in (0.0, 0.3):
                errors = np.array(parallel(delayed(draw)(seed, name, shift) for seed in range(draws)))
                mean, rms = errors.mean(axis=0), np.sqrt(np.square(errors).mean(axis=0))
                error = errors.std(axis=0, ddof=1) / np.sqrt(draws)
                parts = [f"{m:+.1f}% ({e:.1f}%)" for m, e in zip(mean, error, strict=True)]
                print(f"{name:36}{shift:6.1f}{parts[0]:>15}{rms[0]:6.1f}%{parts[1]:>19}{rms[1]:6.1f}%", flush=True)


if __name__ == "__main__":
    main()
