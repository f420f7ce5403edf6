"""``python -m lab.benchmarks.outcomes [--movielens DIR] [--auctions FILE] [--splits 10]``: regressions of real targets.

Error of the mean prediction on the top 2, 5, 10 and 20% of held-out rows, as rms over splits in percent, averaged over
the shares: the plain model, isotonic regression of out-of-fold predictions, and `UncursedRegressorCV`; then the ratio
to the better of the first two, the share of 90% intervals that hold given the noise of the test rows, and the median of
half their width. Half of the rows are training rows, 20% the pool, 30% the test. With ``--shift``, pool and test rows
are kept with a probability that falls from 1 to 0.1 along the score of a linear model with rows of its own.

Targets: scikit-learn's diabetes; with DIR, which holds MovieLens-1M as ml-1m.{inter,user,item}.gz, the rating of a
film, the number of ratings of a film, and that of a user; with FILE, tab-separated lines of click, market price,
predicted rate and hour, the price.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from joblib import Parallel, delayed
from lightgbm import LGBMRegressor
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor
from sklearn.model_selection import KFold, cross_val_predict

import uncurse

SHARES, ROWS = (0.02, 0.05, 0.1, 0.2), 12_000
METHODS = ("plain", "isotonic", "uncursed")
_SOLVER = {"max_iter": 1000, "solver": "newton-cholesky"}
_TREES: dict[str, Any] = {"verbose": -1, "n_jobs": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "linear": LinearRegression,
    "Poisson": lambda: PoissonRegressor(alpha=1e-3, **_SOLVER),
    "gamma": lambda: GammaRegressor(alpha=1e-3, **_SOLVER),
    "LightGBM": lambda: LGBMRegressor(**_TREES),
    "LightGBM, Poisson": lambda: LGBMRegressor(objective="poisson", **_TREES),
}


def read(movielens: str | None, auctions: str | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return features, scaled, and a positive target, by name."""
    X, y = load_diabetes(return_X_y=True)
    found = {"diabetes": (X, y)}
    if movielens:
        tables = {
            name: pl.read_csv(Path(movielens) / f"ml-1m.{name}.gz", separator="\t", infer_schema=False, quote_char=None)
            for name in ("inter", "user", "item")
        }
        inter, user, item = (
            table.rename({column: column.split(":")[0] for column in table.columns}) for table in tables.values()
        )
        inter = inter.with_columns(pl.col("rating").cast(pl.Float64))
        user = user.select("user_id", pl.col("age").cast(pl.Float64), pl.col("gender", "occupation"))
        genres = sorted(set(" ".join(item["genre"].fill_null("")).split()))
        year = pl.col("release_year").cast(pl.Float64, strict=False).fill_null(1990)
        item = item.unique("item_id", maintain_order=True).select(
            "item_id", year, *(pl.col("genre").str.contains(genre).cast(pl.Float64).alias(genre) for genre in genres)
        )
        by_film = inter.group_by("item_id").agg(pl.len().alias("y"), pl.col("rating").mean())
        by_user = inter.group_by("user_id").agg(pl.len().alias("y"), pl.col("rating").mean())
        sample = inter.sample(ROWS, seed=0)
        rest = inter.join(sample.select("user_id", "item_id"), on=["user_id", "item_id"], how="anti")
        for key in ("user_id", "item_id"):
            sample = sample.join(rest.group_by(key).agg(pl.col("rating").mean().alias(f"of {key}")), on=key, how="left")
        ratings = sample.rename({"rating": "y"}).select("user_id", "item_id", "y", "of user_id", "of item_id")
        found["films, number of ratings"] = _features(by_film.join(item, on="item_id").sort("item_id"))
        found["users, number of ratings"] = _features(by_user.join(user, on="user_id").sort("user_id"))
        found["ratings"] = _features(ratings.join(user, on="user_id").join(item, on="item_id"))
    if auctions:
        columns = ["click", "y", "rate", "hour"]
        table = pl.read_csv(auctions, separator="\t", has_header=False, new_columns=columns).filter(pl.col("y") > 0)
        table = table.sample(ROWS, seed=0).select(
            "y", pl.col("rate").clip(1e-6).log(), (pl.col("hour") % 24).cast(pl.String), day=pl.col("hour") // 24
        )
        found["market price"] = _features(table)
    return found


def _features(table: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    y = table["y"].cast(pl.Float64).to_numpy()
    table = table.drop("y", "user_id", "item_id", strict=False)
    table = table.to_dummies([name for name, kind in table.schema.items() if kind == pl.String], drop_first=True)
    X = table.fill_null(strategy="mean").to_numpy().astype(np.float64)
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9), y


def draw(seed: int, X: np.ndarray, y: np.ndarray, model: str, shift: bool) -> dict[str, Any]:
    rng = np.random.default_rng([10, seed])
    rows = rng.permutation(len(y))
    if shift:
        other, rows = np.split(rows, [len(rows) // 10])
        score = LinearRegression().fit(X[other], y[other]).predict(X)
    train, pool, test = np.split(rows, [len(rows) // 2, 7 * len(rows) // 10])
    if shift:
        kept = 1 - 0.9 * np.searchsorted(np.sort(score[rows]), score) / len(rows)
        pool, test = (part[rng.random(len(part)) < kept[part]] for part in (pool, test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = uncurse.UncursedRegressorCV(MODELS[model](), random_state=seed).fit(X[train], y[train], pool=X[pool])
        folds = KFold(5, shuffle=True, random_state=seed)
        out_of_fold = cross_val_predict(MODELS[model](), X[train], y[train], cv=folds)
        plain = fitted.estimator_.predict(X[test])
        isotonic = IsotonicRegression(out_of_bounds="clip").fit(out_of_fold, y[train]).predict(plain)
        predictions = (plain, isotonic, fitted.predict(X[test]))
    top = [uncurse.top_share(plain, alpha) for alpha in SHARES]
    noise = np.array([y[test][t].std(ddof=1) / np.sqrt(t.sum()) / y[test][t].mean() for t in top])
    errors = np.array([[p[t].mean() / y[test][t].mean() - 1 for t in top] for p in predictions])
    try:
        ends = np.array([fitted.interval(alpha) for alpha in SHARES])
    except uncurse.UncurseError:
        ends = np.full((len(SHARES), 2), np.nan)
    half = (ends[:, 1] - ends[:, 0]) / 2
    reach = np.hypot(half, norm.ppf(0.95) * noise)
    holds = np.where(np.isnan(half), np.nan, np.abs(errors[2] - ends.mean(axis=1)) <= reach)
    return {"errors": errors, "holds": holds, "half": half, "noise": noise}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--movielens", metavar="DIR")
    parser.add_argument("--auctions", metavar="FILE")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shift", action="store_true")
    parser.add_argument("--model", action="append", choices=[*MODELS], metavar="MODEL")
    given = parser.parse_args()
    ratios, held = [], []
    print(
        f"{'target':26}{'model':20}"
        + "".join(f"{name:>10}" for name in (*METHODS, "noise", "÷ better", "held", "width"))
    )
    with Parallel(n_jobs=given.jobs) as parallel:
        for target, (X, y) in read(given.movielens, given.auctions).items():
            for model in given.model or MODELS:
                found = parallel(delayed(draw)(seed, X, y, model, given.shift) for seed in range(given.splits))
                errors = np.stack([each["errors"] for each in found])
                rms = 100 * np.sqrt(np.square(errors).mean(axis=0)).mean(axis=1)
                noise = 100 * np.sqrt(np.square([each["noise"] for each in found]).mean(axis=0)).mean()
                ratios.append(rms[2] / rms[:2].min())
                held.append(np.nanmean([each["holds"] for each in found]))
                width = 100 * np.nanmedian([each["half"] for each in found])
                figures = "".join(f"{value:10.2f}" for value in (*rms, noise, ratios[-1]))
                print(f"{target:26}{model:20}{figures}{held[-1]:10.0%}{width:10.2f}", flush=True)
    error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    print(f"mean ratio {np.mean(ratios):.3f}, standard error over cells {error:.3f}; held {np.mean(held):.0%}")


if __name__ == "__main__":
    main()
