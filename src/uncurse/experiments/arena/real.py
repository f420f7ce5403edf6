"""The arena on real logs: the methods are compared on held-out labels.

Every split draws training, pool and test rows at random. With a shift, pool and test rows are kept with probability
1 − p, where p comes from a model trained on rows of its own, as in the paper. `UncursedClassifierCV` trains the served
model and its replicas and scores the training rows out of fold; all methods use these scores.

The error of a method is Σf / Σy − 1 over the top share of the test rows. Its standard error is the spread over splits.
Splits share rows, so it does not show how another log of the same size would differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._types import Array
from ...calibration import calibrate
from ...debias import VAD, Auto, Tower
from ...debias.intervals import normal_quantile
from ...errors import UncurseError
from ...estimators import UncursedClassifierCV, fit_replicas
from ...maps import Affine
from ...metrics.selection import top_share
from ...threads import one_blas_thread
from ...validation import check_choice
from ..processes import in_processes
from .click_logs import ClickLog
from .real_results import METHODS, SHARES, RealResults

MODELS = ("lightgbm", "lightgbm-small", "logistic", "mlp")
SPLITS = 20
_LEVEL = 0.9
_ENDS = (0.5, 0.7)  # where the training rows and the pool end; the rest is the test
_SHIFTED_ENDS = (0.4, 0.55, 0.72)  # where the training rows, those of the thinning model and the pool end
_CLIP = 1e-6

Predict = Callable[[Array], Array]
Rows = NDArray[np.intp]


def run(
    log: ClickLog,
    model: str,
    *,
    shift: bool = False,
    splits: int = SPLITS,
    seed: int = 0,
    processes: int | None = None,
    progress: Callable[[int], Callable[[Iterator[Any]], Iterable[Any]]] = lambda total: iter,
) -> RealResults:
    """Compare all methods on random splits of a log.

    The small LightGBM is strongly regularised and under-fits. With `shift`, pool and test rows are thinned by 1 − p of
    another model.
    """
    check_choice("model", model, MODELS)
    if splits < 2:
        raise UncurseError(f"splits={splits}; a standard error needs at least 2")
    if not 0 < log.labels.sum() < len(log.labels):
        raise UncurseError(f"all labels of the log are {int(log.labels[0])}; pass rows of both classes")
    features = make_features(log, model)
    tasks = [(features, log.labels, model, shift, [seed, number]) for number in range(splits)]
    done = in_processes(_measure, tasks, processes, progress)
    failures = [each[3] for each in done]
    errors, covered, noise = (np.stack([each[i] for each in done]) for i in range(3))
    if not np.isfinite(errors[:, METHODS.index("isotonic")]).all():
        raise UncurseError(
            "isotonic calibration fails on a split, and the methods are compared with it; pass more rows"
        )
    return RealResults(
        log.name,
        model,
        shift,
        len(log.labels),
        int(log.labels.sum()),
        seed,
        {name: errors[:, i].tolist() for i, name in enumerate(METHODS) if np.isfinite(errors[:, i]).all()},
        {name: covered[:, i].tolist() for i, name in enumerate(METHODS) if np.isfinite(covered[:, i]).all()},
        noise.mean(axis=0).tolist(),
        {name: _dropped(name, failures) for name in METHODS if any(name in each for each in failures)},
    )


def _dropped(name: str, failures: list[dict[str, str]]) -> str:
    reasons = [each[name] for each in failures if name in each]
    return f"{len(reasons)} of {len(failures)} splits: {reasons[0]}"


def make_features(log: ClickLog, model: str) -> Any:
    """Return codes as numbers for trees, and one-hot features for other models."""
    if model.startswith("lightgbm"):
        return log.codes.astype(np.float32)
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(dtype=np.float32).fit_transform(log.codes).tocsr()


def make_model(name: str) -> Any:
    """Return an unfitted model."""
    if name == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=500)
    if name == "mlp":
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier((32,), batch_size=256, max_iter=4)
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        raise UncurseError("LightGBM is not installed; install uncurse[lightgbm], or use --model logistic") from None
    common: dict[str, Any] = {"n_jobs": 1, "verbose": -1, "deterministic": True, "force_row_wise": True}
    if name == "lightgbm":
        return LGBMClassifier(
            n_estimators=200, num_leaves=63, subsample=0.7, subsample_freq=1, colsample_bytree=0.7, **common
        )
    return LGBMClassifier(
        n_estimators=60, num_leaves=15, learning_rate=0.05, min_child_samples=100, reg_lambda=5.0, **common
    )


@dataclass(frozen=True)
class Split:
    """Rows of one split."""

    train: Rows
    pool: Rows
    test: Rows


def make_split(features: Any, labels: NDArray[np.bool_], model: str, shift: bool, seed: list[int]) -> Split:
    """Draw the rows of a split, and thin pool and test if there is a shift."""
    rng = np.random.default_rng(seed)
    rows, count = rng.permutation(len(labels)), len(labels)
    if not shift:
        train, pool, test = np.split(rows, [int(end * count) for end in _ENDS])
        return Split(train, pool, test)
    train, other, pool, test = np.split(rows, [int(end * count) for end in _SHIFTED_ENDS])
    if len(np.unique(labels[other])) < 2:
        raise UncurseError(f"the {len(other)} rows of the thinning model have one class; pass a longer log")
    thinning = make_model(model).set_params(random_state=seed[-1])
    thinning.fit(features[other], labels[other])

    def thinned(part: Rows) -> Rows:
        kept: Rows = part[rng.random(len(part)) < 1 - thinning.predict_proba(features[part])[:, 1]]
        return kept

    return Split(train, thinned(pool), thinned(test))


def _measure(
    features: Any, labels: NDArray[np.bool_], model: str, shift: bool, seed: list[int]
) -> tuple[Array, Array, Array, dict[str, str]]:
    """Return errors and covered intervals, shape (methods, shares), the noise of test labels, and what failed."""
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models that have not converged, and of fits, for every split
        split = make_split(features, labels, model, shift, seed)
        served, maps, intervals, failed = _fit_methods(features, labels, split, model, seed)
    test = labels[split.test].astype(np.float64)
    chosen = [top_share(served, alpha) for alpha in SHARES]
    observed = np.array([test[rows].sum() for rows in chosen])
    if not observed.all():
        raise UncurseError(f"no label of the top {100 * SHARES[0]:g}% of the test rows is positive; pass a longer log")
    noise = np.sqrt([(test[rows] * (1 - test[rows].mean())).sum() for rows in chosen]) / observed
    errors, covered = np.full((2, len(METHODS), len(SHARES)), np.nan)
    for name, predict in maps.items():
        i, f = METHODS.index(name), predict(served)
        errors[i] = [f[rows].sum() / total - 1 for rows, total in zip(chosen, observed, strict=True)]
        if name in intervals:
            ends = np.array([intervals[name](alpha, _LEVEL) for alpha in SHARES])
            middle, half = ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2
            covered[i] = np.abs(errors[i] - middle) <= np.hypot(half, normal_quantile(_LEVEL) * noise)
    return errors, covered, noise, failed


def _fit_methods(
    features: Any, labels: NDArray[np.bool_], split: Split, model: str, seed: list[int]
) -> tuple[Array, dict[str, Predict], dict[str, Callable[[float, float], tuple[float, float]]], dict[str, str]]:
    """Return served scores of the test, a function of them and an interval for each method, and why others failed."""
    state = int(np.random.default_rng(seed).integers(2**31))
    base, X, y = make_model(model), features[split.train], labels[split.train]
    done = UncursedClassifierCV(base, random_state=state).cross_fit(X, y, pool=features[split.pool])
    assert done.labelled is not None
    scores, target = np.clip(done.labelled[0], _CLIP, 1 - _CLIP), done.labelled[1]
    pool, kind = done.pool_evidence("probability", _CLIP), done.replicas.kind
    columns = np.clip(done.pool, _CLIP, 1 - _CLIP)  # a calibrator takes arrays
    labelled = (scores, target)
    assert done.served_pool is not None
    unaligned = np.clip(done.served_pool, _CLIP, 1 - _CLIP)
    to_fold = Affine(*done.alignment, scale="probability")
    served = np.clip(done.replicas.served.predict_proba(features[split.test])[:, 1], _CLIP, 1 - _CLIP)
    fits: dict[str, Any] = {
        "isotonic + VAD": lambda: VAD(calibrator="isotonic", scale="probability", replicas=kind, lambda_floor=0.01).fit(
            columns, labelled=labelled
        ),
        "label-free, seeds": lambda: Auto(scale="probability").fit(_seeded(base, X, y, state, features[split.pool])),
        "label-free, bootstraps": lambda: Auto(scale="probability", replicas=kind).fit(unaligned),
        "Tower": lambda: Tower(scale="probability", replicas=kind).fit(pool, labelled=labelled),
        "Auto": lambda: Auto(scale="probability", replicas=kind).fit(pool, labelled=labelled),
    }
    maps: dict[str, Predict] = {"as served": lambda p: p}
    intervals, failed = {}, {}
    for name in ("Platt", "isotonic"):
        try:
            maps[name] = calibrate(name.lower(), scores[:, 0], target, scale="probability")
        except UncurseError as error:  # for instance labels that fall as scores rise
            failed[name] = str(error)
    for name, fit in fits.items():
        try:
            fitted = fit()
        except UncurseError as error:  # for instance seeds of a model without randomness
            failed[name] = str(error)
            continue
        maps[name] = _mapped(fitted, None if name.startswith("label-free") else to_fold)
        if name in ("Tower", "Auto"):
            intervals[name] = fitted.interval
    return served, maps, intervals, failed


def _mapped(fitted: Any, before: Affine | None) -> Predict:
    return lambda scores: np.asarray(fitted.predict_proba(scores if before is None else before(scores)), np.float64)


def _seeded(base: Any, X: Any, y: NDArray[np.bool_], state: int, pool: Any) -> Array:
    models = fit_replicas(base, X, y, replicas="seeds", random_state=state).models
    scores = np.column_stack([model.predict_proba(pool)[:, 1] for model in models])
    return np.asarray(np.clip(scores, _CLIP, 1 - _CLIP), np.float64)
