"""Train a model on a split of a table, correct it in four ways, and measure the errors on the top of held-out rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from uncurse.calibration import calibrate
from uncurse.errors import UncurseError
from uncurse.estimators import UncursedClassifierCV
from uncurse.estimators.cross_fitting import CLIP, clip_of
from uncurse.methods.remaining_error import SHARES
from uncurse.metrics.selection import top_share
from uncurse.threads import one_blas_thread
from uncurse.validation import check_choice

from ..processes import Progress, in_processes
from .results import LEVEL, Grid
from .table import Table

#: Models, and the package that each needs.
MODELS = {
    "lightgbm": "lightgbm",
    "lightgbm-tuned": "lightgbm",
    "lightgbm-overfitted": "lightgbm",
    "xgboost": "xgboost",
    "hist-gradient-boosting": "sklearn",
    "random-forest": "sklearn",
    "logistic": "sklearn",
    "mlp": "sklearn",
}
SHIFTS = ("none", "lightgbm", "logistic")  # the model whose score thins pool and test
_ENDS = (0.4, 0.55, 0.72)  # where the training rows, those of the thinning model and the pool end; the rest is the test
_FOLDS = 5
_TUNED = {"num_leaves": 15, "learning_rate": 0.05}
_OVERFITTED = {"n_estimators": 200, "num_leaves": 63, "subsample": 0.7, "subsample_freq": 1, "colsample_bytree": 0.7}


def run(
    table: Table,
    grid: Grid,
    models: Iterable[str] = (),
    shifts: Iterable[str] = SHIFTS,
    splits: int = 10,
    *,
    processes: int | None = None,
    save: Callable[[Grid], None] = lambda grid: None,
    progress: Callable[[int], Progress] = lambda total: iter,
) -> Grid:
    """Measure every model under every shift on every split that `grid` lacks; `save` is called after each cell.

    By default these are all models whose package is installed. The shift of LightGBM is left out if that is not.
    """
    models = list(models) or [name for name, package in MODELS.items() if find_spec(package)]
    for model in models:
        check_choice("model", model, tuple(MODELS))
        if not find_spec(MODELS[model]):
            raise UncurseError(f"{MODELS[model]} is not installed; install it, or leave out --model {model}")
    for shift in shifts:
        check_choice("shift", shift, SHIFTS)
    shifts = [shift for shift in shifts if shift != "lightgbm" or find_spec("lightgbm")]
    done = {(cell["shift"], cell["model"], cell["split"]) for cell in grid.cells}
    places = [(shift, model, split) for split in range(splits) for shift in shifts for model in models]
    tasks = [(table, *place, grid.seed) for place in places if place not in done]

    def saving(total: int) -> Progress:
        def iterate(cells: Iterator[Any]) -> Iterator[Any]:
            for cell in progress(total)(cells):
                grid.cells.append(cell)
                grid.cells.sort(key=_place)  # cells finish in any order
                save(grid)
                yield cell

        return iterate

    in_processes(measure, tasks, processes, saving, in_order=False)
    return grid


def _place(cell: dict[str, Any]) -> tuple[int, int, int]:
    return SHIFTS.index(cell["shift"]), list(MODELS).index(cell["model"]), cell["split"]


def make_features(table: Table, model: str) -> Any:
    """Return codes as numbers for trees, and scaled numbers and one-hot categories for other models."""
    if model not in ("logistic", "mlp"):
        return np.hstack([table.numbers, table.codes.astype(np.float32)])
    scale = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    parts = [(scale, table.numbers), (OneHotEncoder(dtype=np.float32), table.codes)]
    made = [step.fit_transform(part) for step, part in parts if part.shape[1]]
    return made[0] if len(made) == 1 else sparse.hstack([sparse.csr_matrix(part) for part in made], format="csr")


def make_model(name: str, X: Any, y: NDArray[Any], seed: int) -> Any:
    """Return an unfitted model; the rows choose the number of trees of the tuned one."""
    if name == "hist-gradient-boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    if name == "random-forest":
        return RandomForestClassifier(random_state=seed)
    if name == "logistic":
        return LogisticRegression(max_iter=500)
    if name == "mlp":
        return MLPClassifier((32,), batch_size=64, max_iter=20, random_state=seed)
    if name == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_jobs=1, random_state=seed)
    from lightgbm import Dataset, LGBMClassifier, cv, early_stopping

    settings: dict[str, Any] = {"lightgbm-overfitted": _OVERFITTED, "lightgbm-tuned": _TUNED}.get(name, {})
    if name == "lightgbm-tuned":
        quiet = {"objective": "binary", "verbose": -1, "num_threads": 1, "seed": seed, **_TUNED}
        stop = early_stopping(30, verbose=False)
        found: Any = cv(quiet, Dataset(X, y), num_boost_round=1000, nfold=_FOLDS, seed=seed, callbacks=[stop])
        settings = {**_TUNED, "n_estimators": len(found["valid binary_logloss-mean"])}
    return LGBMClassifier(n_jobs=1, verbose=-1, deterministic=True, force_row_wise=True, random_state=seed, **settings)


def make_split(table: Table, shift: str, seed: list[int]) -> list[NDArray[np.intp]]:
    """Draw training, pool and test rows, and thin pool and test if there is a shift.

    A row is kept with probability 1 − p, where p is that of a model with rows of its own, as in the paper: candidates
    differ from training rows, which past systems selected.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(table.labels))
    train, other, pool, test = np.split(rows, [int(end * len(rows)) for end in _ENDS])
    if shift == "none":
        return [train, pool, test]
    X, y = make_features(table, shift), table.labels.astype(np.int64)
    if len(np.unique(y[other])) < 2:
        raise UncurseError(f"the {len(other)} rows of the thinning model have one class; pass a longer table")
    model = make_model(shift, X[other], y[other], seed[-1]).fit(X[other], y[other])
    pool, test = (part[rng.random(len(part)) >= model.predict_proba(X[part])[:, 1]] for part in (pool, test))
    return [train, pool, test]


def measure(table: Table, shift: str, model: str, split: int, seed: int) -> dict[str, Any]:
    """Return the errors of all methods in one cell, or why it failed, as plain data."""
    place = {"shift": shift, "model": model, "split": split}
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models that have not converged, and of fits, for every cell
        try:
            return {**place, **_measure(table, shift, model, [seed, split])}
        except ValueError as error:  # for instance one class in a fold
            return {**place, "failed": str(error)}


def _measure(table: Table, shift: str, model: str, seed: list[int]) -> dict[str, Any]:
    train, pool, test = make_split(table, shift, seed)
    X, y = make_features(table, model), table.labels.astype(np.int64)
    state = int(np.random.default_rng(seed).integers(2**31))
    base = make_model(model, X[train], y[train], state)
    starts = [time.perf_counter()]
    uncursed = UncursedClassifierCV(base, cv=_FOLDS, random_state=state).fit(X[train], y[train], pool=X[pool])
    starts.append(time.perf_counter())
    isotonic = CalibratedClassifierCV(base, method="isotonic", cv=_FOLDS, ensemble=False).fit(X[train], y[train])
    starts.append(time.perf_counter())
    out_of_fold = cross_val_predict(base, X[train], y[train], cv=_FOLDS, method="predict_proba")[:, 1]
    served, truth = uncursed.estimator_.predict_proba(X[test])[:, 1], y[test]
    clip = max(clip_of(np.append(out_of_fold, served)), CLIP)  # Platt scaling takes logits
    platt = calibrate("platt", np.clip(out_of_fold, clip, 1 - clip), y[train], scale="probability")
    predictions = {
        "plain": served,
        "isotonic": isotonic.predict_proba(X[test])[:, 1],
        "Platt": np.asarray(platt(np.clip(served, clip, 1 - clip))),
        "uncursed": uncursed.predict_proba(X[test])[:, 1],
    }
    top = [top_share(served, alpha) for alpha in SHARES]
    observed = np.array([truth[rows].sum() for rows in top])
    if not observed.all():
        raise UncurseError(f"no label of the top {100 * SHARES[0]:g}% of the test rows is positive; pass more rows")
    rates = np.array([truth[rows].mean() for rows in top])
    try:
        intervals = [list(uncursed.interval(alpha, LEVEL)) for alpha in SHARES]
    except UncurseError:
        intervals = None  # the map has none, for instance because the model is constant
    return {
        "training_rows": len(train),
        "errors": {
            name: [float(p[rows].sum() / total - 1) for rows, total in zip(top, observed, strict=True)]
            for name, p in predictions.items()
        },
        "noise": np.sqrt((1 - rates) / observed).tolist(),  # of an error, due to test labels
        "intervals": intervals,
        "log_loss": {name: float(log_loss(truth, p)) for name, p in predictions.items()},
        "brier": {name: float(brier_score_loss(truth, p)) for name, p in predictions.items()},
        "time_ratio": (starts[1] - starts[0]) / (starts[2] - starts[1]),
    }
