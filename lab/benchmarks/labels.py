"""``python -m lab.benchmarks.labels [FILE...] [--splits 10]``: `Auto` on scores, with and without labels.

Error of the mean prediction on the top 1, 2, 5 and 10% of test rows, as rms over splits in percent, averaged over the
shares. With labels the peers are Platt scaling of the served score and isotonic regression, fitted to the same labels;
without labels it is the model as served. A row gives the ratio to the best of them, the share of 90% intervals that
hold given the noise of the test labels, and the median of half their width.

Replicas are two bootstraps. Labels are those of random rows; of the rows that an earlier model, trained on rows of its
own, ranks highest (the top 30%); or of winners, which the served model ranks highest (the top 20%). Rows are simulated,
with 6 or 72 products of features, and truth instead of test labels; or those of FILE, a log as in ``uncurse-lab grid``.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import norm
from sklearn.base import clone

import uncurse
from uncurse.links import logistic, logit
from uncurse_lab.grid import MODELS as GRID_MODELS
from uncurse_lab.grid import read_table
from uncurse_lab.grid.experiment import make_features, make_model

from .requests import make_log

SHARES = (0.01, 0.02, 0.05, 0.1)
MODELS = ("lightgbm-tuned", "lightgbm", "lightgbm-overfitted", "logistic")
LABELS = ("random", "earlier model", "winners", "none")
_ENDS = (0.35, 0.42, 0.72)  # of the training rows, those of the earlier model, and the candidates; the rest is the test
_EARLIER, _WON = 0.3, 0.2


def simulated(seed: int, products: int, rows: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a table-like pair of features for trees and others, labels and true rates."""
    made = make_log(np.random.default_rng([11, seed]), products)(rows, 1)
    return made["X"], made["y"], np.asarray(logistic(made["true"]))


def cell(split: int, data: Any, name: str, rows: int) -> dict[str, Any]:
    """Return errors, intervals and noise for each source of labels."""
    rng = np.random.default_rng([12, split])
    if isinstance(data, int):
        X, y, truth = simulated(split, data, rows)
        features = {True: X, False: X}
    else:
        y = data.labels.astype(int)
        features = {linear: make_features(data, "logistic" if linear else "lightgbm") for linear in (False, True)}
        truth = y.astype(float)
    order = rng.permutation(len(y))[:rows]
    train, other, candidates, test = np.split(order, [int(end * len(order)) for end in _ENDS])
    X = features[name in ("logistic", "mlp")]
    state = int(rng.integers(2**31))
    template = make_model(name, X[train], y[train], state)  # bootstraps have its number of trees

    def scores(rows_of: np.ndarray, where: np.ndarray) -> np.ndarray:
        model = clone(template).fit(X[rows_of], y[rows_of])
        return logit(np.clip(model.predict_proba(X[where])[:, 1], 1e-6, 1 - 1e-6))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        where = np.concatenate([candidates, test])
        z = np.column_stack([scores(r, where) for r in (train, *(rng.choice(train, len(train)) for _ in range(2)))])
        earlier = make_model("lightgbm", features[False][other], y[other], state).fit(features[False][other], y[other])
        ranks = earlier.predict_proba(features[False][candidates])[:, 1]
        pool, served = z[: len(candidates)], z[len(candidates) :, 0]
        rows_with = {
            "random": rng.random(len(candidates)) < _EARLIER,
            "earlier model": uncurse.top_share(ranks, _EARLIER),
            "winners": uncurse.top_share(pool[:, 0], _WON),
        }
        top = [uncurse.top_share(served, share) for share in SHARES]
        noise = np.zeros(len(SHARES))
        if not isinstance(data, int):
            sums = np.array([truth[test][t].sum() for t in top])
            noise = np.sqrt((1 - sums / [t.sum() for t in top]) / sums)

        def errors(p: np.ndarray) -> np.ndarray:
            return np.array([p[t].mean() / truth[test][t].mean() - 1 for t in top])

        found: dict[str, Any] = {}
        for source in LABELS:
            auto = uncurse.Auto(scale="logit", replicas="bootstrap")
            peers = {"served": logistic(served)}
            if source == "none":
                auto.fit(pool)
            else:
                rows_won = rows_with[source]
                labels = pool[rows_won], y[candidates][rows_won]
                auto.fit(pool, labeled=labels, labels_from="winners" if source == "winners" else "elsewhere")
                for method in ("platt", "isotonic"):
                    peers[method] = np.asarray(uncurse.calibrate(method, labels[0][:, 0], labels[1])(served))
            try:
                ends = np.array([auto.interval(share) for share in SHARES])
            except uncurse.UncurseError:
                ends = np.full((len(SHARES), 2), np.nan)
            mine = errors(auto.predict_proba(served))
            reach = np.hypot((ends[:, 1] - ends[:, 0]) / 2, norm.ppf(0.95) * noise)
            found[source] = {
                "errors": {**{peer: errors(p) for peer, p in peers.items()}, "auto": mine},
                "holds": np.where(np.isnan(reach), np.nan, np.abs(mine - ends.mean(axis=1)) <= reach),
                "half": (ends[:, 1] - ends[:, 0]) / 2,
                "method": auto.method_,
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--model", action="append", choices=tuple(GRID_MODELS), metavar="MODEL")
    given = parser.parse_args()
    worlds = {"6 products": 6, "72 products": 72} if not given.files else {"log": read_table(given.files)}
    ratios: dict[str, list[float]] = {}
    columns = ("served", "platt", "isotonic", "auto", "÷ best", "held", "width")
    print(f"{'rows':12}{'model':22}{'labels':15}" + "".join(f"{name:>10}" for name in columns))
    with Parallel(n_jobs=given.jobs) as parallel:
        for world, data in worlds.items():
            for model in given.model or MODELS:
                cells = parallel(delayed(cell)(split, data, model, given.rows) for split in range(given.splits))
                for source in LABELS:
                    parts = [each[source] for each in cells]
                    rms = {
                        name: 100 * np.sqrt(np.mean([np.square(p["errors"][name]) for p in parts], axis=0)).mean()
                        for name in parts[0]["errors"]
                    }
                    peers = ["served"] if source == "none" else ["platt", "isotonic"]
                    ratio = rms["auto"] / min(rms[peer] for peer in peers)
                    over = {"lightgbm-tuned": "tuned", "lightgbm-overfitted": "over-fitted"}.get(model, "other models")
                    ratios.setdefault(f"no labels, {over}" if source == "none" else source, []).append(ratio)
                    text = "".join(f"{rms[name]:10.2f}" if name in rms else f"{'':10}" for name in columns[:4])
                    held = np.nanmean([part["holds"] for part in parts])
                    width = 100 * np.nanmedian([part["half"] for part in parts])
                    methods = ", ".join(sorted({part["method"] for part in parts}))
                    print(
                        f"{world:12}{model:22}{source:15}{text}{ratio:10.2f}{held:10.0%}{width:10.2f}  {methods}",
                        flush=True,
                    )
    for source, values in ratios.items():
        print(f"{source}: mean ratio {np.mean(values):.2f}, largest {max(values):.2f}, of {len(values)} cells")


if __name__ == "__main__":
    main()
