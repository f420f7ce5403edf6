"""``python -m benchmarks.drift --data FOLDER [--trained 0.4] [--windows 10] [--seeds 3]``: maps under drift.

MovieLens in time order. FOLDER holds ``ml-1m.inter.gz``, ``ml-1m.item.gz`` and ``ml-1m.user.gz`` (MovieLens-1M in the
format of RecBole). The license does not allow redistribution, so the data is not part of this project.

The label is a rating of 4 or 5. A one-hot logistic regression (user, film, age, gender, occupation, genres, year) is
trained on the first 40% of the ratings, and two bootstraps of it beside it. The other ratings form eleven windows of
equal size. Every map is fitted on windows before the one that judges it, pool and labels alike; the first window is
never judged. The figure is the root mean square over the ten windows of Σf / Σy − 1 on the top share by served score,
and its mean over shares.

`refresh` updates the map that was fitted once by 500 labels of a window at a time: random rows of the window, or of its
top 10%. The mean square is over ten draws of these labels for each seed too.
"""

from __future__ import annotations

import argparse
import gzip
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse import ReplicaCalibrator, refresh
from uncurse.evidence import Evidence, from_arrays, merged
from uncurse.links import logistic
from uncurse.metrics import top_share
from uncurse.threads import one_blas_thread

Array = NDArray[Any]
Predict = Callable[[Array], Array]

SHARES = (0.01, 0.02, 0.05, 0.1)
TRAINED, JUDGED = 0.4, 10
ONCE = "fitted once"
LABELS, DRAWS = 500, 10  # labels of a window for `refresh`, and draws of them


# ---------------------------------------------------------------------------- the log


@dataclass(frozen=True)
class Ratings:
    """One-hot features and labels of all ratings, in time order."""

    features: Any  # sparse matrix of shape (n, d)
    labels: Array


@dataclass(frozen=True)
class Window:
    """Logits of the served model and its bootstraps, shape (n, 3), and labels."""

    scores: Array
    labels: Array

    @cached_property
    def evidence(self) -> Evidence:
        return from_arrays(self.scores, self.labels)


def read_ratings(folder: str) -> Ratings:
    import pandas as pd
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import OneHotEncoder

    def table(name: str) -> Any:
        with gzip.open(Path(folder) / f"ml-1m.{name}.gz", "rt", encoding="utf-8") as file:
            read = pd.read_csv(file, sep="\t", quoting=3)
        return read.rename(columns=lambda column: column.split(":")[0])

    log = table("inter").sort_values("timestamp", kind="stable")
    log = log.merge(table("user"), on="user_id", how="left").merge(table("item"), on="item_id", how="left")
    log["decade"] = log["release_year"] // 5
    columns = ["user_id", "item_id", "age", "gender", "occupation", "decade"]
    one_hot = OneHotEncoder(dtype=np.float32).fit_transform(log[columns].astype(str))
    genres = CountVectorizer(token_pattern=r"[^\s]+", binary=True, dtype=np.float32)
    features = hstack([one_hot, genres.fit_transform(log["genre"].fillna(""))]).tocsr()
    return Ratings(features, (log["rating"] >= 4).to_numpy())


def score_windows(ratings: Ratings, seed: int, trained: float = TRAINED, judged: int = JUDGED) -> list[Window]:
    """Train the served model and two bootstraps on the first ratings, and score the windows after them."""
    from sklearn.linear_model import LogisticRegression

    from uncurse.estimators import fit_replicas

    end = int(trained * len(ratings.labels))
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a model that has not converged
        model = LogisticRegression(max_iter=300)
        models = fit_replicas(model, ratings.features[:end], ratings.labels[:end], random_state=seed).models
    scores = np.column_stack([model.decision_function(ratings.features[end:]) for model in models])
    cuts = np.linspace(0, len(scores), judged + 2).astype(int)[1:-1]
    parts = zip(np.split(scores, cuts), np.split(ratings.labels[end:], cuts), strict=True)
    return [Window(*part) for part in parts]


# ---------------------------------------------------------------------------- maps and errors


def calibrated(labeled: Evidence) -> ReplicaCalibrator:
    """Calibrate replicas on labeled rows that are the pool too."""
    method = ReplicaCalibrator(scale="logit", replicas="bootstrap")
    return method.fit(labeled, labeled=labeled, labels_from="elsewhere")


def fit_map(windows: Sequence[Window], half_life: float | None = None) -> Predict:
    """Calibrate on windows in time order; a window that is `half_life` windows older has half the weight."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labeled = merged([window.evidence for window in windows], half_life)
        return calibrated(labeled).predict_proba


def errors(predict: Predict, window: Window) -> Array:
    """Return Σf / Σy − 1 on each top share of a window."""
    served = window.scores[:, 0]
    predicted, chosen = predict(served), [top_share(served, alpha) for alpha in SHARES]
    return np.array([predicted[top].sum() / window.labels[top].sum() - 1 for top in chosen])


def label_noise(window: Window) -> Array:
    """Return the standard error of Σf / Σy on each top share that the labels alone cause."""
    tops = [window.labels[top_share(window.scores[:, 0], alpha)] for alpha in SHARES]
    return np.array([np.sqrt((1 - top.mean()) / top.sum()) for top in tops])


#: Each takes the windows before the one that is judged.
POLICIES: dict[str, Callable[[Sequence[Window]], Predict]] = {
    "as served": lambda past: logistic,
    ONCE: lambda past: fit_map(past[:1]),
    "all labels so far": fit_map,
    "last window": lambda past: fit_map(past[-1:]),
    "half-life 1": lambda past: fit_map(past, 1.0),
    "half-life 2": lambda past: fit_map(past, 2.0),
}


def judge(windows: Sequence[Window], policy: Callable[[Sequence[Window]], Predict]) -> Array:
    """Return the errors of a policy on every window but the first, shape (windows, shares)."""
    return np.stack([errors(policy(windows[:i]), windows[i]) for i in range(1, len(windows))])


#: Whether each refresh starts from the one before (or from the map that was fitted once), and the share of the rows of
#: a window that labels are drawn from.
REFRESHES = {
    f"refresh, {LABELS} labels of every window": (True, 1.0),
    f"refresh, {LABELS} labels of the last window": (False, 1.0),
    f"refresh, {LABELS} labels of every top 10%": (True, 0.1),
}


def judge_refresh(windows: Sequence[Window], seed: int, chained: bool, share: float) -> Array:
    """Return the root mean square error over draws of labels, shape (windows, shares)."""
    once = calibrated(windows[0].evidence).fitted_
    found = np.zeros((DRAWS, len(windows) - 1, len(SHARES)))
    for draw in range(DRAWS):
        rng = np.random.default_rng([seed, draw])
        current = once
        for i, window in enumerate(windows[1:]):
            found[draw, i] = errors(current.map, window)
            served = window.scores[:, 0]
            rows = rng.choice(np.flatnonzero(top_share(served, share)), LABELS, replace=False)
            labeled = from_arrays(served[rows, None], window.labels[rows])
            current = refresh(current if chained else once, labeled)
    return np.sqrt(np.square(found).mean(axis=0))


def rms(found: Array) -> float:
    """Return the root mean square over windows, and its mean over shares, in percent."""
    return float(100 * np.sqrt(np.square(found).mean(axis=0)).mean())


def ratio_error(found: Array, other: Array) -> float:
    """Return the jackknife standard error of a ratio of two rms, over windows."""
    count = len(found)
    kept = [np.arange(count) != i for i in range(count)]
    ratios = np.array([rms(found[rows]) / rms(other[rows]) for rows in kept])
    return float(np.sqrt((count - 1) / count * np.square(ratios - ratios.mean()).sum()))


def table(found: dict[str, Array]) -> str:
    """Return a line for each policy from its errors, shape (seeds, windows, shares)."""
    width = max(map(len, found))
    shares = "".join(f"{100 * alpha:>7g}%" for alpha in SHARES)
    lines = [f"{'':{width}}{shares}    mean (seeds)    × fitted once (windows)"]
    for name, each in found.items():
        by_share = 100 * np.sqrt(np.square(each).mean(axis=1)).mean(axis=0)
        means, once = [rms(seed) for seed in each], [rms(seed) for seed in found[ONCE]]
        spread = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
        ratio = np.mean([ratio_error(a, b) for a, b in zip(each, found[ONCE], strict=True)])
        lines.append(
            f"{name:{width}}{''.join(f'{value:8.2f}' for value in by_share)}  {np.mean(means):6.2f} ({spread:5.3f})"
            f"    {np.mean(means) / np.mean(once):13.2f} ({ratio:.2f})"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=__doc__)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="folder of MovieLens-1M")
    parser.add_argument(
        "--seeds", type=int, default=3, help="number of draws of the bootstraps, and of the labels of `refresh`"
    )
    parser.add_argument("--trained", type=float, default=TRAINED, help="share of the ratings that train the model")
    parser.add_argument("--windows", type=int, default=JUDGED, help="number of windows that judge the maps")
    arguments = parser.parse_args()
    ratings = read_ratings(arguments.data)
    found: dict[str, list[Array]] = {name: [] for name in (*POLICIES, *REFRESHES)}
    for seed in range(arguments.seeds):
        windows = score_windows(ratings, seed, arguments.trained, arguments.windows)
        for name, policy in POLICIES.items():
            found[name].append(judge(windows, policy))
        for name, settings in REFRESHES.items():
            found[name].append(judge_refresh(windows, seed, *settings))
    noise = 100 * np.sqrt(np.square([label_noise(window) for window in windows[1:]]).mean(axis=0))
    counts = f"{len(windows) - 1} windows after {100 * arguments.trained:g}% of the ratings, {arguments.seeds} seeds"
    print(f"rms error in percent on the top shares of {counts}")
    print(table({name: np.stack(each) for name, each in found.items()}))
    print("noise of the labels alone:", " ".join(f"{value:.2f}" for value in noise), f"mean {noise.mean():.2f}")


if __name__ == "__main__":
    main()
