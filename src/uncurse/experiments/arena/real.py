"""The arena on real logs: the methods are compared on held-out labels.

Every split draws training, pool and test rows at random. With a shift, pool and test rows are kept with probability
1 − p, where p comes from a model trained on rows of its own, as in the paper. `UncursedClassifierCV` trains the served
model and its replicas and scores the training rows out of fold; all methods use these scores.

The error of a method is Σf / Σy − 1 over the top share of the test rows. Its standard error is the spread over splits.
Splits share rows, so it does not show how another log of the same size would differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import documents
from ..._types import Array
from ...calibration import calibrate
from ...debias import VAD, Auto, Tower
from ...debias.remaining_error import normal_quantile
from ...errors import UncurseError
from ...estimators import UncursedClassifierCV, fit_replicas
from ...maps import Affine
from ...metrics.selection import top_share
from ...text_tables import TextTable, as_markdown, as_text
from ...threads import one_blas_thread
from ...validation import check_choice
from ..processes import in_processes
from .click_logs import ClickLog
from .text import Table, number

METHODS = (
    *("as served", "Platt", "isotonic", "isotonic + VAD"),
    *("label-free, seeds", "label-free, bootstraps", "Tower", "Auto"),
)
SHARES = (0.01, 0.02, 0.05, 0.1)
_PEER = "isotonic"
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
    """Compare all methods on random splits of a log; with `shift`, pool and test rows are thinned."""
    check_choice("model", model, MODELS)
    if splits < 2:
        raise UncurseError(f"splits={splits}; a standard error needs at least 2")
    if not 0 < log.labels.sum() < len(log.labels):
        raise UncurseError(f"all labels of the log are {int(log.labels[0])}; pass rows of both classes")
    features = make_features(log, model)
    tasks = [(features, log.labels, model, shift, [seed, number]) for number in range(splits)]
    *arrays, failures = zip(*in_processes(_measure, tasks, processes, progress), strict=True)
    errors, covered, noise = map(np.stack, arrays)
    if not np.isfinite(errors[:, METHODS.index("isotonic")]).all():
        raise UncurseError(
            "isotonic calibration fails on a split, and the methods are compared with it; pass more rows"
        )
    reasons = {name: [each[name] for each in failures if name in each] for name in METHODS}
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
        {name: f"{len(some)} of {splits} splits: {some[0]}" for name, some in reasons.items() if some},
    )


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
    return LGBMClassifier(  # strongly regularised: it under-fits
        n_estimators=60, num_leaves=15, learning_rate=0.05, min_child_samples=100, reg_lambda=5.0, **common
    )


class Split(NamedTuple):
    """Rows of one split."""

    train: Rows
    pool: Rows
    test: Rows


def make_split(features: Any, labels: NDArray[np.bool_], model: str, shift: bool, seed: list[int]) -> Split:
    """Draw the rows of a split, and thin pool and test if there is a shift."""
    rng = np.random.default_rng(seed)
    rows, count = rng.permutation(len(labels)), len(labels)
    if not shift:
        return Split(*np.split(rows, [int(end * count) for end in _ENDS]))
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
    base, X, y, candidates = make_model(model), features[split.train], labels[split.train], features[split.pool]
    done = UncursedClassifierCV(base, random_state=state).cross_fit(X, y, pool=candidates)
    assert done.labelled is not None
    assert done.served_pool is not None
    pool, kind = done.pool_evidence("probability", _CLIP), done.replicas.kind
    columns, unaligned = _clipped(done.pool), _clipped(done.served_pool)  # a calibrator takes arrays
    labelled = scores, target = _clipped(done.labelled[0]), done.labelled[1]
    to_fold = Affine(*done.alignment, scale="probability")
    own: dict[str, Any] = {"scale": "probability", "replicas": kind}

    def by_seed() -> Auto:
        models = fit_replicas(base, X, y, replicas="seeds", random_state=state).models
        by_model = np.column_stack([each.predict_proba(candidates)[:, 1] for each in models])
        return Auto(scale="probability").fit(np.asarray(_clipped(by_model), np.float64))

    fits: dict[str, Callable[[], Any]] = {
        "Platt": lambda: calibrate("platt", scores[:, 0], target, scale="probability"),
        "isotonic": lambda: calibrate("isotonic", scores[:, 0], target, scale="probability"),
        "isotonic + VAD": lambda: VAD(calibrator="isotonic", lambda_floor=0.01, **own).fit(columns, labelled=labelled),
        "label-free, seeds": by_seed,
        "label-free, bootstraps": lambda: Auto(**own).fit(unaligned),
        "Tower": lambda: Tower(selected_by="other", **own).fit(pool, labelled=labelled),
        "Auto": lambda: Auto(selected_by="other", **own).fit(pool, labelled=labelled),
    }
    maps: dict[str, Predict] = {"as served": lambda p: p}
    intervals, failed = {}, {}
    for name, fit in fits.items():
        try:
            fitted = fit()
        except UncurseError as error:  # for instance seeds of a model without randomness, or labels that fall
            failed[name] = str(error)
            continue
        if name in ("Platt", "isotonic"):
            maps[name] = fitted
        else:
            maps[name] = partial(_predict, fitted, None if name.startswith("label-free") else to_fold)
        if name in ("Tower", "Auto"):
            intervals[name] = fitted.interval
    return _clipped(done.replicas.served.predict_proba(features[split.test])[:, 1]), maps, intervals, failed


def _predict(fitted: Any, before: Affine | None, scores: Array) -> Array:
    return np.asarray(fitted.predict_proba(scores if before is None else before(scores)), np.float64)


def _clipped(probabilities: Any) -> Any:
    return np.clip(probabilities, _CLIP, 1 - _CLIP)


# ---------------------------------------------------------------------------- results


@dataclass(frozen=True)
class RealSummary:
    """A method on a log, over all splits; errors are relative to the observed labels."""

    method: str
    mean: tuple[float, ...]  # for each of `SHARES`
    mean_error: tuple[float, ...]
    rms: tuple[float, ...]
    bias: float  # absolute value of the mean, averaged over shares
    average_rms: float
    difference: float  # of the average rms from that of isotonic
    difference_error: float
    covered: float | None  # share of the 90% intervals that hold, given the noise of test labels


@dataclass(frozen=True)
class RealResults:
    """Errors of all methods on the splits of a log."""

    log: str
    model: str
    shift: bool  # whether pool and test rows were thinned
    rows: int
    positives: int
    seed: int
    errors: Mapping[str, list[list[float]]]  # by method and split, on each of `SHARES`; none of a method that failed
    covered: Mapping[str, list[list[float]]]  # the same for whether 90% intervals hold
    noise: list[float]  # standard deviation of an error that is due to test labels, for each share
    dropped: Mapping[str, str]  # methods that failed on any split: on how many, and why

    @property
    def splits(self) -> int:
        """Number of splits."""
        return len(self.errors[_PEER])

    @property
    def title(self) -> str:
        """Log, model and shift."""
        return f"{self.log}, {self.model}, {'thinned' if self.shift else 'not thinned'}"

    def summary(self, method: str) -> RealSummary:
        """Summarize one method; raise UncurseError if it is missing."""
        if method not in self.errors:
            raise UncurseError(f"there is no method {method!r} here; there are {', '.join(self.errors)}")
        errors, peer = np.array(self.errors[method]), np.array(self.errors[_PEER])
        count = len(errors)
        differences = np.array(
            [_average_rms(np.delete(errors, i, 0)) - _average_rms(np.delete(peer, i, 0)) for i in range(count)]
        )
        covered = self.covered.get(method)
        return RealSummary(
            method,
            tuple(errors.mean(axis=0).tolist()),
            tuple((errors.std(axis=0, ddof=1) / np.sqrt(count)).tolist()),
            tuple(np.sqrt(np.square(errors).mean(axis=0)).tolist()),
            float(np.abs(errors.mean(axis=0)).mean()),
            _average_rms(errors),
            _average_rms(errors) - _average_rms(peer),
            float(np.sqrt((count - 1) * differences.var())),
            None if covered is None else float(np.mean(covered)),
        )

    @property
    def regret(self) -> float | None:
        """Average rms of `Auto` minus the smaller of the label-free map's and Tower's, or None."""
        names = ("Auto", "label-free, bootstraps", "Tower")
        if not all(name in self.errors for name in names):
            return None
        auto, free, tower = (self.summary(name).average_rms for name in names)
        return auto - min(free, tower)

    def to_json(self) -> str:
        """Return one JSON document."""
        return documents.dumps("arena-real", asdict(self))


def _average_rms(errors: Array) -> float:
    return float(np.sqrt(np.square(errors).mean(axis=0)).mean())


def table(results: RealResults) -> Table:
    """Return a row for each method, errors in percent."""
    head = ("method", *(f"top {100 * alpha:g}%" for alpha in SHARES), "bias", "rms", f"− {_PEER}'s", "covered")
    rows: Table = [head]
    for name in results.errors:
        s = results.summary(name)
        cells = [
            f"{number(100 * mean, '+')} ± {number(100 * error)} ({number(100 * rms)})"
            for mean, error, rms in zip(s.mean, s.mean_error, s.rms, strict=True)
        ]
        difference = f"{number(100 * s.difference, '+')} ± {number(100 * s.difference_error)}" if name != _PEER else ""
        covered = "" if s.covered is None else f"{100 * s.covered:.0f}%"
        rows.append((name, *cells, number(100 * s.bias), number(100 * s.average_rms), difference, covered))
    rows.append(("(noise of test labels)", *(f"± {number(100 * value)}" for value in results.noise), "", "", "", ""))
    return rows


def caption(results: RealResults) -> str:
    """Describe the table in a few sentences."""
    regret = results.regret
    more = "" if regret is None else f" Regret of Auto: {number(100 * regret)} points."
    return f"{results.rows:,} rows, {results.positives:,} positive; {results.splits} splits, seed {results.seed}.{more}"


_ABOUT = (
    "Error on the top share of the test rows in percent: mean ± standard error (rms). Bias: the absolute value of the "
    f"mean, averaged over shares; rms: averaged; − {_PEER}'s: paired difference. Covered: 90% intervals that hold, "
    "given the noise of test labels."
)


def text(results: RealResults) -> str:
    """Return the table for a terminal."""
    head = [results.title, caption(results)]
    return as_text([head, _ABOUT, TextTable("", table(results), gap=1), *_left_out(results)])


def markdown(results: RealResults) -> str:
    """Return the table as Markdown."""
    return as_markdown([f"### {results.title}", caption(results), TextTable("", table(results)), *_left_out(results)])


def _left_out(results: RealResults) -> list[str]:
    return [f"left out: {name}, {why}" for name, why in results.dropped.items()]


def records(results: RealResults) -> list[dict[str, Any]]:
    """Return a flat record for each method and share."""
    found = []
    for name in results.errors:
        s = results.summary(name)
        for alpha, mean, error, rms in zip(SHARES, s.mean, s.mean_error, s.rms, strict=True):
            place = {"log": results.log, "model": results.model, "shift": results.shift, "method": name}
            found.append({**place, "alpha": alpha, "mean": mean, "mean_error": error, "rms": rms})
    return found
