"""``python -m lab.benchmarks.replica_kinds [FILE...] [--draws 10]``: how often the wrong kind of replica is named.

Ten kinds of model are trained on 4,000 rows: a served model and two others, on bootstrap samples or with other seeds.
The pool has 20,000 rows. "told" is the share of draws in which `Auto` warns that the columns look like the other kind
if that was passed, "wrong" the share in which it warns although the kind is right. The rows of a draw are simulated, or
drawn from FILE, a log as in ``uncurse-lab grid``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from catboost import CatBoostClassifier
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale
from xgboost import XGBClassifier

import uncurse
from uncurse.links import logistic, logit
from uncurse_lab.grid import read_table

ROWS, POOL = 4_000, 20_000
_LIGHTGBM: dict[str, Any] = {"verbose": -1, "n_jobs": 1}
_RANDOM = {"subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.7}
#: Models by name: a function of a seed, and whether the seed changes the model.
MODELS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "LightGBM": (lambda seed: LGBMClassifier(**_LIGHTGBM, random_state=seed), False),
    "LightGBM, tuned": (
        lambda seed: LGBMClassifier(**_LIGHTGBM, **_RANDOM, n_estimators=60, num_leaves=8, random_state=seed),
        True,
    ),
    "LightGBM, over-fitted": (
        lambda seed: LGBMClassifier(**_LIGHTGBM, **_RANDOM, n_estimators=150, num_leaves=63, random_state=seed),
        True,
    ),
    "XGBoost": (
        lambda seed: XGBClassifier(n_estimators=60, max_depth=5, subsample=0.8, n_jobs=1, random_state=seed),
        True,
    ),
    "CatBoost": (
        lambda seed: CatBoostClassifier(
            iterations=100, thread_count=1, verbose=False, allow_writing_files=False, random_seed=seed
        ),
        True,
    ),
    "histogram boosting, early stopping": (
        lambda seed: HistGradientBoostingClassifier(early_stopping=True, random_state=seed),
        True,
    ),
    "random forest": (lambda seed: RandomForestClassifier(60, min_samples_leaf=5, random_state=seed), True),
    "extra trees": (lambda seed: ExtraTreesClassifier(60, min_samples_leaf=5, random_state=seed), True),
    "logistic regression": (lambda seed: LogisticRegression(C=10, max_iter=300), False),
    "logistic regression by SGD": (lambda seed: SGDClassifier(loss="log_loss", alpha=1e-3, random_state=seed), True),
    "network": (lambda seed: MLPClassifier((32,), max_iter=15, batch_size=64, random_state=seed), True),
    "network, over-fitted": (lambda seed: MLPClassifier((64,), max_iter=60, batch_size=64, random_state=seed), True),
}


def rows_of(draw: int, table: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features and labels of training rows, and features of the pool."""
    rng = np.random.default_rng([6, draw])
    if table is not None:
        rows = rng.permutation(len(table.labels))[: ROWS + POOL]
        X = scale(np.nan_to_num(np.hstack([table.numbers, table.codes])[rows]))
        return X[:ROWS], table.labels[rows[:ROWS]].astype(int), X[ROWS:]
    X = rng.normal(size=(ROWS + POOL, 20)).astype(np.float32)
    true = X @ (rng.normal(0, 0.6, 20) * rng.random(20)) + 0.5 * X[:, 0] * X[:, 1] + 0.5 * np.sin(2 * X[:, 2]) - 2
    return X[:ROWS], (rng.random(ROWS) < logistic(true[:ROWS])).astype(int), X[ROWS:]


def warned(scores: np.ndarray, kind: str) -> str:
    """Return the kind that a warning names, or an empty text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            uncurse.Auto(scale="logit", replicas=kind).fit(scores)
        except uncurse.UncurseError as error:
            return str(error)
    texts = [str(each.message) for each in caught]
    return next((text for text in texts if "the other columns differ" in text or "repeats" in text), "")


def draw(seed: int, name: str, table: Any) -> dict[str, bool]:
    X, y, pool = rows_of(seed, table)
    make, random = MODELS[name]
    rng = np.random.default_rng([7, seed])

    def scores(rows: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = make(int(rng.integers(2**31))).fit(X[rows], y[rows]).predict_proba(pool)[:, 1]
        return np.asarray(logit(np.clip(p, 1e-6, 1 - 1e-6)))

    everything = np.arange(ROWS)
    served = scores(everything)
    bootstraps = np.column_stack([served, *(scores(rng.integers(0, ROWS, ROWS)) for _ in range(2))])
    found = {"bootstraps told": bool(warned(bootstraps, "seeds")), "wrong": bool(warned(bootstraps, "bootstrap"))}
    if random:
        seeds = np.column_stack([served, scores(everything), scores(everything)])
        found |= {"seeds told": bool(warned(seeds, "bootstrap")), "wrong, seeds": bool(warned(seeds, "seeds"))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--model", action="append", choices=[*MODELS], metavar="MODEL")
    given = parser.parse_args()
    table = read_table(given.files) if given.files else None
    total: dict[str, list[bool]] = {}
    with Parallel(n_jobs=given.jobs) as parallel:
        for name in given.model or MODELS:
            draws = parallel(delayed(draw)(seed, name, table) for seed in range(given.draws))
            text = ""
            for column in draws[0]:
                values = [each[column] for each in draws]
                total.setdefault(column, []).extend(values)
                text += f"  {column} {sum(values)} of {len(values)}"
            print(f"{name:36}{text}", flush=True)
    print(f"{'all':36}" + "".join(f"  {column} {sum(v)} of {len(v)}" for column, v in total.items()))


if __name__ == "__main__":
    main()
