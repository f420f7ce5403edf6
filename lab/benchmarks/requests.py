"""``python -m lab.benchmarks.requests [simulated] [learned] [movielens --log FILE]``: the best of each request.

Error of the mean prediction of the winners of requests that were not in the fit, as a mean over draws with its standard
error, and the share of 90% intervals that hold.

- simulated: 20,000 requests of 20 candidates, or of 50 in the last world, without labels. VAD is fitted to all
  candidates.
- learned: LightGBM, over-fitted and tuned, on 20,000 rows of a simulated log with 6 features of the request, 12 of the
  candidate, and 6 or 72 products of two of them; requests of 30 candidates. Labels are those of 20,000 random rows, or
  of 5,000 winners. Trainings are LightGBMs with rows of their own.
- movielens: logistic regression and LightGBM on a tenth of the ratings of MovieLens-1M (its file of user_id, item_id,
  rating), the user is the request, and a rating of 4 or 5 a positive label. Labels are those of the winners of half of
  the users; the winners of the other half are the test. An error includes the noise of these test labels.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import norm

import uncurse
from uncurse.links import logistic, logit

Rows = dict[str, Any]
Found = dict[
    str, tuple[float, float]
]  # error and interval, by method: (error, 1 if the interval holds, else 0, or nan)

# Standard deviation of the level of requests, within requests, and of the noise that a request shares; candidates.
WORLDS = {
    "requests alike": (0.0, 1.0, 0.0, 20),
    "requests differ": (0.8, 0.6, 0.0, 20),
    "requests differ and share noise": (0.8, 0.6, 0.3, 20),
    "little spread within requests": (0.8, 0.3, 0.0, 50),
}
OVERFITTED = {"n_estimators": 150, "num_leaves": 31}
TUNED = {"n_estimators": 80, "num_leaves": 8}


def judge(fitted: Any, served: np.ndarray, truth: np.ndarray, noise: float = 0.0) -> tuple[float, float]:
    """Return the error on winners of the scores served, and whether the interval for all of them holds.

    `noise` is the standard error of the mean of `truth`, relative to it.
    """
    error = fitted.predict_proba(served).mean() / truth.mean() - 1
    if not hasattr(fitted, "interval"):
        return error, np.nan
    low, high = fitted.interval(1.0)
    half = np.hypot((high - low) / 2, norm.ppf(0.95) * noise)
    return error, float(abs(error - (low + high) / 2) <= half)


# ---------------------------------------------------------------------------- simulated scores


def simulate(rng: np.random.Generator, world: str, kind: str, columns: int, requests: int) -> Rows:
    level, within, shared, size = WORLDS[world]
    request = np.repeat(np.arange(requests), size)
    rows = len(request)
    true = -3 + level * rng.standard_normal(requests)[request] + within * rng.standard_normal(rows)

    def noise(count: int) -> np.ndarray:
        own = 0.4 * rng.standard_normal((rows, count))
        return own + shared * rng.standard_normal((requests, count))[request]

    served = true[:, None] + noise(1)
    others = noise(columns - 1) + (served if kind == "bootstrap" else true[:, None])
    return {"request": request, "true": true, "scores": np.hstack([served, others])}


def draw_simulated(seed: int, world: str, kind: str, columns: int, requests: int) -> Found:
    rng = np.random.default_rng([3, seed])
    fit, test = (simulate(rng, world, kind, columns, requests) for _ in range(2))
    won = uncurse.top_k(test["scores"][:, 0], test["request"])
    served, truth = test["scores"][won, 0], logistic(test["true"][won])
    auto = uncurse.Auto(scale="logit", replicas=kind).fit(fit["scores"], request=fit["request"])
    pool = uncurse.VAD(scale="logit", replicas=kind).fit(fit["scores"])
    return {
        "served": (logistic(served).mean() / truth.mean() - 1, np.nan),
        "VAD": (pool.predict_proba(served).mean() / truth.mean() - 1, np.nan),
        "no labels": judge(auto, served, truth),
    }


# ---------------------------------------------------------------------------- models of a simulated log


def make_log(rng: np.random.Generator, products: int) -> Callable[[int, int], Rows]:
    """Return a function that draws requests of so many candidates; the log odds hold so many products of features."""
    of_request, of_candidate = rng.normal(0, 0.3, 6), rng.normal(0, 0.2, 12)
    chosen = rng.permutation(72)[:products]
    both = np.zeros(72)
    both[chosen] = rng.normal(0, np.sqrt(0.24 / products), products)

    def rows(requests: int, size: int) -> Rows:
        request = np.repeat(np.arange(requests), size)
        x, z = rng.standard_normal((requests, 6))[request], rng.standard_normal((len(request), 12))
        true = -2.2 + x @ of_request + z @ of_candidate + np.einsum("ni,ij,nj->n", x, both.reshape(6, 12), z)
        y = (rng.random(len(true)) < logistic(true)).astype(int)
        return {"X": np.hstack([x, z]).astype(np.float32), "true": true, "y": y, "request": request}

    return rows


def draw_learned(seed: int, settings: dict[str, int], columns: int, products: int) -> Found:
    from lightgbm import LGBMClassifier

    rng = np.random.default_rng([4, seed])
    rows = make_log(rng, products)
    train = rows(20_000, 1)

    def model(X: np.ndarray, y: np.ndarray) -> Any:
        state = int(rng.integers(2**31))
        return LGBMClassifier(**settings, n_jobs=1, verbose=-1, random_state=state).fit(X, y)

    def bootstrap() -> Any:
        drawn = rng.integers(0, 20_000, 20_000)
        return model(train["X"][drawn], train["y"][drawn])

    def training() -> Any:
        other = rows(20_000, 1)
        return model(other["X"], other["y"])

    served = model(train["X"], train["y"])
    models = {"bootstrap": [served, *(bootstrap() for _ in range(columns - 1))]}
    models["seeds"] = [served, *(training() for _ in range(columns - 1))]
    pool, labeled, test = rows(4_000, 30), rows(20_000, 1), rows(4_000, 30)
    of_winners = rows(5_000, 30)

    def scores(of: list[Any], where: Rows) -> np.ndarray:
        return np.column_stack([each.predict(where["X"], raw_score=True) for each in of])

    of_test = scores([served], test)[:, 0]
    won = uncurse.top_k(of_test, test["request"])
    top, truth = of_test[won], logistic(test["true"][won])
    found = {"served": (logistic(top).mean() / truth.mean() - 1, np.nan)}
    platt = uncurse.calibrate("platt", scores([served], labeled)[:, 0], labeled["y"])
    found["Platt, random labels"] = (np.asarray(platt(top)).mean() / truth.mean() - 1, np.nan)
    rows_won = uncurse.top_k(scores([served], of_winners)[:, 0], of_winners["request"])
    winners_X, winners_y = of_winners["X"][rows_won], of_winners["y"][rows_won]
    platt = uncurse.calibrate("platt", scores([served], {"X": winners_X})[:, 0], winners_y)
    found["Platt, winners' labels"] = (np.asarray(platt(top)).mean() / truth.mean() - 1, np.nan)
    for kind, name in (("seeds", "trainings"), ("bootstrap", "bootstraps")):
        of_pool = scores(models[kind], pool)
        fit = partial(uncurse.Auto(scale="logit", replicas=kind).fit, of_pool, request=pool["request"])
        found[f"no labels, {name}"] = judge(fit(), top, truth)
        labels = scores(models[kind], labeled), labeled["y"]
        found[f"random labels, {name}"] = judge(fit(labeled=labels, labels_from="elsewhere"), top, truth)
        labels = scores(models[kind], {"X": winners_X}), winners_y
        found[f"winners' labels, {name}"] = judge(fit(labeled=labels, labels_from="winners"), top, truth)
    return found


# ---------------------------------------------------------------------------- MovieLens


def draw_movielens(seed: int, table: Any, name: str) -> Found:
    from uncurse_lab.grid.experiment import make_features, make_model

    rng = np.random.default_rng([5, seed])
    order = rng.permutation(len(table.labels))
    train, rest = order[: len(order) // 10], order[len(order) // 10 :]
    X, y = make_features(table, name), table.labels.astype(int)
    user = table.codes[:, 0]

    def scores(rows: np.ndarray) -> np.ndarray:
        p = np.column_stack([model.predict_proba(X[rows])[:, 1] for model in models])
        return logit(np.clip(p, 1e-6, 1 - 1e-6))

    models = []
    for i in range(3):
        rows = train if i == 0 else rng.choice(train, len(train))
        models.append(make_model(name, X[rows], y[rows], int(rng.integers(2**31))).fit(X[rows], y[rows]))
    half = rng.permutation(user.max() + 1) % 2 == 0
    fit, test = rest[half[user[rest]]], rest[~half[user[rest]]]
    of_fit, of_test = scores(fit), scores(test)[:, 0]
    won, labeled = uncurse.top_k(of_test, user[test]), uncurse.top_k(of_fit[:, 0], user[fit])
    served, truth = of_test[won], y[test[won]]
    noise = np.sqrt((1 - truth.mean()) / truth.sum())
    auto = uncurse.Auto(scale="logit", replicas="bootstrap")
    found = {"served": (logistic(served).mean() / truth.mean() - 1, np.nan)}
    pool = uncurse.VAD(scale="logit", replicas="bootstrap").fit(of_fit)
    found["VAD"] = (pool.predict_proba(served).mean() / truth.mean() - 1, np.nan)
    found["no labels"] = judge(auto.fit(of_fit, request=user[fit]), served, truth, noise)
    labels = of_fit[labeled], y[fit[labeled]]
    fitted = auto.fit(of_fit, labeled=labels, labels_from="winners", request=user[fit])
    found["winners' labels"] = judge(fitted, served, truth, noise)
    drawn = rng.choice(len(fit), len(labels[1]), replace=False)
    labels = of_fit[drawn], y[fit[drawn]]
    platt = uncurse.calibrate("platt", labels[0][:, 0], labels[1])
    found["Platt, random labels"] = (np.asarray(platt(served)).mean() / truth.mean() - 1, np.nan)
    fitted = auto.fit(of_fit, labeled=labels, labels_from="elsewhere", request=user[fit])
    found["random labels"] = judge(fitted, served, truth, noise)
    return found


# ---------------------------------------------------------------------------- tables


def cases(chosen: list[str], log: str | None) -> Iterator[tuple[str, Callable[[int], Found]]]:
    if "simulated" in chosen:
        for world in WORLDS:
            for kind, columns in (("seeds", 2), ("seeds", 3), ("bootstrap", 2), ("bootstrap", 3), ("bootstrap", 4)):
                name = f"{world}, {columns} columns, {kind}"
                yield name, partial(draw_simulated, world=world, kind=kind, columns=columns, requests=20_000)
    if "learned" in chosen:
        for name, settings in (("over-fitted", OVERFITTED), ("tuned", TUNED)):
            for columns, products in ((2, 6), (3, 6), (3, 72)):
                call = partial(draw_learned, settings=settings, columns=columns, products=products)
                yield f"LightGBM, {name}, {columns} columns, {products} interactions", call
    if "movielens" in chosen:
        from uncurse_lab.grid import read_table

        if log is None:
            raise SystemExit("movielens needs --log FILE")
        table = read_table([log])
        for name in ("logistic", "lightgbm"):
            yield f"MovieLens, {name}", partial(draw_movielens, table=table, name=name)


def quiet(call: Callable[[int], Found], seed: int) -> Found:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["simulated", "learned"], metavar="PART")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", help="MovieLens-1M's file of ratings")
    given = parser.parse_args()
    for name, call in cases(given.parts, given.log):
        draws = Parallel(n_jobs=given.jobs)(delayed(quiet)(call, seed) for seed in range(given.draws))
        print(name)
        for method in draws[0]:
            errors, held = np.array([each[method] for each in draws]).T
            text = f"  {method:32}{errors.mean():+8.2%}, standard error {errors.std(ddof=1) / np.sqrt(len(errors)):.2%}"
            print(text + ("" if np.isnan(held).any() else f"; {held.mean():.0%} of intervals hold"), flush=True)


if __name__ == "__main__":
    main()
