"""The comparison of README: the error on the top 2% with and without uncurse, over ten draws of its simulated clicks.

``python -m benchmarks.readme`` prints the mean with its standard error, the root mean square and the time to fit, once
for candidates that differ from the labeled rows and once for candidates that look like them.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier

from uncurse import UncursedClassifierCV

SHARE = 0.02


def draw(seed: int, tilt: float) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return the data of README: labeled rows, and candidates with their true rates."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, 0.5, (6, 40))

    def rows(n: int, tilt: float) -> tuple[NDArray, NDArray]:
        X = np.stack([rng.choice(40, n, p=(w := np.exp(tilt * e)) / w.sum()) for e in effects], axis=1)
        return X, 1 / (1 + np.exp(2 - effects[range(6), X].sum(axis=1)))

    X, rate = rows(20_000, 0.4)
    y = rng.random(20_000) < rate
    return X, y, *rows(100_000, tilt)


def compare(seeds: int, tilt: float) -> None:
    """Print a row for each method; all judge the same candidates, which the plain model ranks highest."""
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    held = 0
    for seed in range(seeds):
        X, y, candidates, truth = draw(seed, tilt)
        # A fixed seed: otherwise each method would calibrate another model than the one that selects.
        model = HistGradientBoostingClassifier(learning_rate=0.3, max_iter=50, early_stopping=False, random_state=0)
        wrapper = UncursedClassifierCV(model, random_state=0)
        methods = {
            "plain": (model, {}),
            "CalibratedClassifierCV, sigmoid (Platt)": (CalibratedClassifierCV(model, ensemble=False), {}),
            "CalibratedClassifierCV, isotonic": (CalibratedClassifierCV(model, method="isotonic", ensemble=False), {}),
            "UncursedClassifierCV": (wrapper, {"pool": candidates[:10_000]}),
        }
        top = None
        for name, (estimator, more) in methods.items():
            start = perf_counter()
            estimator.fit(X, y, **more)
            seconds.setdefault(name, []).append(perf_counter() - start)
            if top is None:
                top = np.argsort(estimator.predict_proba(candidates)[:, 1])[-int(SHARE * len(truth)) :]
            predicted = estimator.predict_proba(candidates[top])[:, 1].mean()
            errors.setdefault(name, []).append(predicted / truth[top].mean() - 1)
        low, high = wrapper.interval(SHARE)
        held += low <= errors["UncursedClassifierCV"][-1] <= high
    print(f"{'':40} mean error (s.e.)    rms   seconds to fit")
    for name, values in errors.items():
        mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
        rms = np.sqrt(np.mean(np.square(values)))
        print(f"{name:40} {mean:+7.1%} ({error:.1%})  {rms:7.1%}   {np.median(seconds[name]):.1f}")
    print(f"90% intervals that hold: {held} of {seeds}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print(f"Error of the predicted rate on the top {SHARE:.0%}, {options.seeds} draws")
    print("Candidates that differ from the labeled rows:")
    compare(options.seeds, tilt=-0.4)
    print("Candidates that look like the labeled rows:")
    compare(options.seeds, tilt=0.4)
