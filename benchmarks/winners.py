"""``python -m benchmarks.winners [--data FOLDER] [--draws 40] [--only CASE]``: how good is the best of many?

Each case picks the best candidate on some items and compares its corrected value with its mean on other items, or with
the truth of a simulation. Bias is the mean error with its standard error over draws, and coverage that of 90%
intervals. Baselines are the observed value, repeated split-half selection, the out-of-bag bootstrap (BBC-CV), and in
simulations the Bayes rule for the spread that was simulated. The folder holds ``siren_law.npz`` (which questions a
language model answers correctly under ten prompts) and ``upworthy_even_tests.csv.gz`` (A/B tests of headlines).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import uncurse

Draw = tuple[np.ndarray, np.ndarray]  # items × candidates, and the true values


def observed(X: np.ndarray) -> float:
    return float(X.mean(0).max())


def split_half(X: np.ndarray) -> float:
    rng, found = np.random.default_rng(0), []
    for _ in range(100):
        order = rng.permutation(len(X))
        half = X[order[: len(X) // 2]].mean(0) + 1e-9 * rng.random(X.shape[1])
        found.append(X[order[len(X) // 2 :], half.argmax()].mean())
    return float(np.mean(found))


def out_of_bag(X: np.ndarray, draws: int = 500) -> float:
    rng, (n, k) = np.random.default_rng(0), X.shape
    weights = rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(float)
    best = (weights @ X + 1e-9 * rng.random((draws, k))).argmax(1)
    out = weights == 0
    return float(((out @ X)[np.arange(draws), best] / out.sum(1)).mean())


METHODS: dict[str, Callable[[np.ndarray], float]] = {
    "observed": observed,
    "repeated split-half": split_half,
    "BBC-CV (out-of-bag)": out_of_bag,
}


def row(case: str, method: str, errors: np.ndarray, covered: Any = None, unit: float = 100, *, by: int = 1) -> None:
    """Print bias, its standard error over draws of `by` errors each, rmse and coverage."""
    means = errors.reshape(-1, by).mean(1)
    spread = means.std(ddof=1) / np.sqrt(len(means))
    rmse = np.sqrt(np.mean(np.square(errors)))
    held = "" if covered is None else f"{np.mean(covered):8.1%}"
    print(
        f"{case:34} {method:22} {unit * errors.mean():+7.2f} ({unit * spread:.2f}) {unit * rmse:8.2f} {held}",
        flush=True,
    )


def compare(
    case: str, draws: Iterator[Draw], *, bayes: Callable[[np.ndarray], float] | None = None, by: int = 1
) -> None:
    """Print the errors of all methods on the same draws."""
    methods = {**METHODS, **({} if bayes is None else {"Bayes, spread known": bayes})}
    errors: dict[str, list[float]] = {name: [] for name in [*methods, "uncurse.winner"]}
    covered = []
    for X, truth in draws:
        best = uncurse.winner(X)
        value = truth[best.index]
        errors["uncurse.winner"].append(best.estimate - value)
        low, high = best.interval(0.9)
        covered.append(low <= value <= high)
        for name, method in methods.items():
            errors[name].append(method(X) - value)
    for name, found in errors.items():
        row(case, name, np.array(found), covered if name == "uncurse.winner" else None, by=by)
    print()


# ---------------------------------------------------------------------------- prompts


def prompts(data: Path, draws: int) -> None:
    file = np.load(data / "siren_law.npz")
    matrices = [file[name].astype(float) for name in file.files]
    orders = [np.random.default_rng([1, draw]).permutation(len(matrices[0])) for draw in range(draws)]
    for k in (6, 10):
        for n in (100, 200):
            parts = [[(A[order[:n], :k], A[order[n:], :k].mean(0)) for A in matrices] for order in orders]
            case = f"{k} prompts, {n} questions"
            compare(case, (draw for part in parts for draw in part), by=len(matrices))
            errors, covered = [], []
            for part in parts:
                groups = np.repeat(np.arange(len(part)), k)
                found = uncurse.winner(np.hstack([X for X, _ in part]), groups=groups)
                for best, (_, truth) in zip(found, part, strict=True):
                    value, (low, high) = truth[best.index % k], best.interval(0.9)
                    errors.append(best.estimate - value)
                    covered.append(low <= value <= high)
            row(case, "uncurse.winner, groups", np.array(errors), covered, by=len(matrices))
            print()
    unlike = np.stack([A[:, 3] for A in matrices], axis=1)
    cut = [(unlike[order[:100]], unlike[order[100:]].mean(0)) for order in orders]
    compare("11 models, 100 questions", iter(cut))


# ---------------------------------------------------------------------------- A/B tests


def headlines(data: Path, draws: int) -> None:
    table = np.genfromtxt(data / "upworthy_even_tests.csv.gz", delimiter=",", names=True, dtype=np.int64)
    test, shown, clicks = table["test"], table["impressions"], table["clicks"]
    _, first, codes = np.unique(test, return_index=True, return_inverse=True)
    size = np.bincount(codes)
    quartile = np.digitize(np.bincount(codes, shown), np.quantile(np.bincount(codes, shown), [0.25, 0.5, 0.75]))
    ratios = []
    for draw in range(draws):
        rng = np.random.default_rng([2, draw])
        half = rng.binomial(shown, 0.5)
        own = rng.hypergeometric(clicks, shown - clicks, half)
        rate, check = own / half, (clicks - own) / (shown - half)
        found = uncurse.winner(own, trials=half, groups=test)
        place = np.array([best.index for best in found])
        order = codes[place]
        corrected, later, before = np.array([best.estimate for best in found]), check[place], rate[place]
        mean, mean_later = ((np.bincount(codes, r) / size)[order] for r in (rate, check))
        of = quartile[order]
        figures = [before.sum() / later.sum(), corrected.sum() / later.sum()]
        figures += [corrected[of == q].sum() / later[of == q].sum() for q in range(4)]
        figures += [(before - mean).sum() / (later - mean_later).sum()]
        figures += [(corrected - mean).sum() / (later - mean_later).sum()]
        control = first[order]  # the first variant of each test; tests are shipped if they look good
        lift = np.array([best.estimate - best.estimates[0] for best in found])
        shipped = lift > 0.002
        true = (later - check[control])[shipped].sum()
        figures += [(before - rate[control])[shipped].sum() / true, lift[shipped].sum() / true]
        ratios.append(np.array(figures) - 1)
    titles = ("observed", "corrected", *(f"corrected, traffic quartile {q}" for q in range(1, 5)))
    titles += tuple(f"{lift}, {value}" for lift in ("lift", "shipped lift") for value in ("observed", "corrected"))
    for title, values in zip(titles, np.array(ratios).T, strict=True):
        print(f"headlines, {title:32} {values.mean():+8.2%} ({values.std(ddof=1) / np.sqrt(draws):.2%})", flush=True)
    print()


# ---------------------------------------------------------------------------- hyper-parameter search


def settings() -> list[Any]:
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    trees = [(depth, leaf) for depth in (1, 2, 4, None) for leaf in (1, 3)]
    return [
        *(LogisticRegression(C=c, max_iter=200) for c in np.geomspace(1e-3, 100, 8)),
        *(SVC(C=c, gamma=g) for c in (0.1, 1, 10, 100) for g in (0.001, 0.01, 0.1)),
        *(KNeighborsClassifier(k) for k in (1, 3, 5, 9, 15)),
        *(DecisionTreeClassifier(max_depth=d, min_samples_leaf=m, random_state=0) for d, m in trees),
        *(ExtraTreesClassifier(n_estimators=15, max_depth=d, random_state=0) for d in (2, 4, None)),
        *(GaussianNB(var_smoothing=v) for v in (1e-9, 1e-3, 0.1, 1)),
    ]  # fmt: skip


def search(X: np.ndarray, y: np.ndarray, rows: int, seed: int) -> Draw:
    """Score 40 settings by five folds of some rows; the truth is the mean accuracy of the folds' models elsewhere."""
    from sklearn.model_selection import KFold

    order = np.random.default_rng([rows, seed]).permutation(len(y))
    train, test = order[:rows], order[rows:][:700]
    models = settings()
    right, truth = np.zeros((rows, len(models))), np.zeros(len(models))
    for fit, held in KFold(5).split(train):
        for j, model in enumerate(models):
            model.fit(X[train[fit]], y[train[fit]])
            right[held, j] = model.predict(X[train[held]]) == y[train[held]]
            truth[j] += model.score(X[test], y[test]) / 5
    return right, truth


def searches(draws: int) -> None:
    from joblib import Parallel, delayed
    from sklearn.datasets import load_breast_cancer, load_digits

    for name, load in (("breast cancer", load_breast_cancer), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        X = (X - X.mean(0)) / (X.std(0) + 1e-9)
        every = []
        for rows in (50, 80, 120):
            found = Parallel(n_jobs=-1)(delayed(search)(X, y, rows, seed) for seed in range(draws))
            every += found
            compare(f"{name}, {rows} rows", iter(found))
        compare(f"{name}, all of these", iter(every))


# ---------------------------------------------------------------------------- simulations


def clear(draws: int) -> None:
    """Ten candidates whose rates differ by far more than their errors, on items of different difficulty."""
    from scipy.special import ndtr

    for n in (100, 400):

        def cut(n: int = n) -> Iterator[Draw]:
            for draw in range(10 * draws):
                rng = np.random.default_rng([4, draw, n])
                rates = rng.permutation(np.linspace(0.05, 0.9, 10))
                yield (
                    (ndtr(0.6 * rng.normal(size=(n, 1)) + 0.8 * rng.normal(size=(n, 10))) < rates).astype(float),
                    rates,
                )

        compare(f"clear winner, {n} items", cut())


def normals(draws: int) -> None:
    """Normal true values, in units of the standard error of a mean; with and without errors that are shared."""
    n = 100
    for shared in (0.0, 1.0):
        for k in (5, 40):
            for spread in (0, 0.5, 1, 2, 4):

                def cut(k: int = k, spread: float = spread, shared: float = shared) -> Iterator[Draw]:
                    for draw in range(10 * draws):
                        rng = np.random.default_rng([5, draw, k, int(10 * spread)])
                        truth = spread * rng.normal(size=k)
                        noise = np.sqrt(n) * (rng.normal(size=(n, k)) + shared * rng.normal(size=(n, 1)))
                        yield (truth + noise) / 100, truth / 100

                def bayes(X: np.ndarray, spread: float = spread) -> float:
                    means = X.mean(0)
                    return float(means.mean() + spread**2 / (1 + spread**2) * (means.max() - means.mean()))

                compare(f"{k} normal, spread {spread}{', shared' if shared else ''}", cut(), bayes=bayes)


def speed(draws: int) -> None:
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=50_000), np.repeat(np.arange(10_000), 5)
    matrix = (rng.random((10_000, 200)) < 0.7).astype(float)
    calls: dict[str, Callable[[], Any]] = {
        "10,000 groups of 5": lambda: uncurse.winner(values, standard_error=1.0, groups=groups),
        "10,000 items × 200 candidates": lambda: uncurse.winner(matrix),
    }
    for name, call in calls.items():
        start, processor = time.perf_counter(), time.process_time()
        call()
        print(f"{name:32} {time.perf_counter() - start:.2f} s, {time.process_time() - processor:.2f} s of one core")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.winners", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of siren_law.npz and upworthy_even_tests.csv.gz")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--only", choices=("prompts", "headlines", "searches", "clear", "normals", "speed"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # models on few rows warn about themselves
    cases: dict[str, Callable[[], None]] = {
        "searches": lambda: searches(options.draws),
        "clear": lambda: clear(options.draws),
        "normals": lambda: normals(options.draws),
        "speed": lambda: speed(options.draws),
    }
    if options.data:
        cases = {
            "prompts": lambda: prompts(options.data, options.draws),
            "headlines": lambda: headlines(options.data, options.draws),
            **cases,
        }
    print(f"{'case':34} {'method':22} bias (points), rmse (points), coverage of 90% intervals")
    for name, run in cases.items():
        if options.only in (None, name):
            run()


if __name__ == "__main__":
    main()
