"""``python -m benchmarks.small_networks [--draws 16]``: replicas of a small network by seed and by bootstrap.

A network of 40 inputs and 32 hidden units is trained by `train_replicas` on few rows until it over-fits, on few rows
for four epochs, and on many. Labeled rows and pool are shifted in opposite directions. Errors of `Auto` with three
models on the top 2%, against the true probabilities.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

CASES = ((5_000, 20), (5_000, 4), (50_000, 4))  # training rows, epochs
INPUTS, HIDDEN, ALPHA = 40, 32, 0.02
Result = dict[str, tuple[float, bool | None]]  # the error, and whether the interval held


def draw(seed: int, rows: int, epochs: int) -> Result:
    """Return the errors of one draw in percent."""
    from torch import nn

    import uncurse
    from uncurse.deep import train_replicas
    from uncurse.links import logistic

    rng = np.random.default_rng(9_000 + seed)
    effects = rng.normal(0, 0.15, INPUTS)

    def sample(count: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = rng.standard_normal((count, INPUTS), dtype=np.float32) + np.float32(shift) * effects.astype(np.float32)
        p = logistic(x @ effects + 0.4 * np.tanh(x[:, 0] * x[:, 1]) - 2.5)
        return x, (rng.random(count) < p).astype(np.float32), p

    train, labeled, pool, test = sample(rows), sample(20_000, 0.5), sample(30_000, -0.3), sample(60_000, -0.3)
    found: Result = {}
    for kind in ("seeds", "bootstrap"):
        networks = train_replicas(
            lambda: nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)),
            train[:2], n_replicas=3, epochs=epochs, optimizer="adam", learning_rate=2e-3, seed=100 * seed,
            bootstrap=kind == "bootstrap",
        )  # fmt: skip
        scores, candidates, tested = (networks.logits((part[0],)) for part in (labeled, pool, test))
        served, top = tested[:, 0], uncurse.top_share(tested[:, 0], ALPHA)

        def error(predictions: np.ndarray, top: np.ndarray = top) -> float:
            return 100 * (float(predictions[top].sum() / test[2][top].sum()) - 1)

        if kind == "seeds":
            found["as served"] = error(logistic(served)), None
            found["Platt"] = error(uncurse.calibrate("platt", scores[:, 0], labeled[1])(served)), None
        for name, rows_with_labels in (("labels", (scores, labeled[1])), ("no labels", None)):
            origin = None if rows_with_labels is None else "elsewhere"
            auto = uncurse.Auto(scale="logit", replicas=kind)
            auto.fit(candidates, labeled=rows_with_labels, labels_from=origin)
            low, high = auto.interval(ALPHA)
            own = error(auto.predict_proba(served))
            found[f"Auto, {kind}, {name}"] = own, 100 * low <= own <= 100 * high
    return found


def main() -> None:
    """Print bias, rms error and the share of intervals that held for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=16)
    draws = parser.parse_args().draws
    warnings.simplefilter("ignore")
    for rows, epochs in CASES:
        print(f"{rows:,} training rows, {epochs} epochs, {draws} draws")
        results = [draw(seed, rows, epochs) for seed in range(draws)]
        for name in results[0]:
            errors = np.array([result[name][0] for result in results])
            held = [result[name][1] for result in results]
            share = "" if held[0] is None else f"   90% interval held: {100 * np.mean([bool(h) for h in held]):.0f}%"
            mean, standard_error = errors.mean(), errors.std(ddof=1) / np.sqrt(draws)
            rms = np.sqrt(np.square(errors).mean())
            print(f"  {name:28} {mean:+6.1f}% ({standard_error:.1f}%)   rms {rms:5.1f}%{share}", flush=True)


if __name__ == "__main__":
    main()
