"""The arena on real logs: the methods are compared on held-out labels.

Every split draws training, pool and test rows at random. With a shift, pool and test rows are kept with probability
1 − p of a model with rows of its own. `UncursedClassifierCV` trains the served model and its replicas, and scores the
training rows out of fold; all methods use these scores. Splits share rows: the spread of errors over splits does not
show how another log of the same size would differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder

from uncurse import documents
from uncurse._types import Array
from uncurse.calibration import calibrate
from uncurse.errors import UncurseError
from uncurse.estimators import UncursedClassifierCV, fit_replicas
from uncurse.maps import Affine
from uncurse.methods import VAD, Auto, ReplicaCalibrator
from uncurse.methods.remaining_error import SHARES
from uncurse.metrics.selection import top_share
from uncurse.threads import one_blas_thread
from uncurse.validation import check_choice
from uncurse.version import __version__

from ..processes import Progress, in_processes
from ..render import Part, Table, TextTable
from .click_logs import ClickLog
from .methods import FittedMethod, Interval
from .results import number

_PEER = "isotonic"  # the other methods are compared with it
_LABEL_FREE = ("label-free, seeds", "label-free, bootstraps")
METHODS = ("as served", "Platt", _PEER, "isotonic + VAD", *_LABEL_FREE, "labels", "Auto")
_LIGHTGBM: dict[str, dict[str, Any]] = {
    "lightgbm": {"n_estimators": 200, "num_leaves": 63, "subsample": 0.7, "subsample_freq": 1, "colsample_bytree": 0.7},
    "lightgbm-small": {  # strongly regularized: it under-fits
        "n_estimators": 60, "num_leaves": 15, "learning_rate": 0.05, "min_child_samples": 100, "reg_lambda": 5.0,
    },
}  # fmt: skip
MODELS = (*_LIGHTGBM, "logistic", "mlp")
SPLITS = 20
_LEVEL = 0.9
_ENDS = (0.5, 0.7)  # where the training rows and the pool end; the rest is the test
_SHIFTED_ENDS = (0.4, 0.55, 0.72)  # where the training rows, those of the thinning model and the pool end
_CLIP = 1e-6

_ABOUT = (
    "Error on the top share of the test rows in percent: mean ± standard error (rms). Bias: the absolute value of the "
    f"mean, averaged over shares; rms: averaged; − {_PEER}'s: paired difference. Covered: 90% intervals that hold, "
    "given the noise of test labels."
)
Rows = NDArray[np.intp]
Labels = NDArray[np.bool_]


def run(
    log: ClickLog,
    model: str,
    *,
    shift: bool = False,
    splits: int = SPLITS,
    seed: int = 0,
    processes: int | None = None,
    progress: Callable[[int], Progress] = lambda total: iter,
) -> RealResults:
    """Compare all methods on random splits of a log; with `shift`, pool and test rows are thinned."""
    check_choice("model", model, MODELS)
    if splits < 2:
        raise UncurseError(f"splits={splits}; a standard error needs at least 2")
    rows, positives = len(log.labels), int(log.labels.sum())
    if not 0 < positives < rows:
        raise UncurseError(f"all labels of the log are {int(log.labels[0])}; pass rows of both classes")
    features = make_features(log, model)
    tasks = [(features, log.labels, model, shift, [seed, number]) for number in range(splits)]
    *arrays, failures = zip(*in_processes(_measure, tasks, processes, progress), strict=True)
    errors, covered, noise = map(np.stack, arrays)

    def by_method(values: Array) -> dict[str, list[list[float]]]:
        """The figures of methods that have one in every split."""
        return {name: values[:, i].tolist() for i, name in enumerate(METHODS) if np.isfinite(values[:, i]).all()}

    if _PEER not in by_method(errors):
        raise UncurseError(
            "isotonic calibration fails on a split, and the methods are compared with it; pass more rows"
        )
    reasons = {name: [each[name] for each in failures if name in each] for name in METHODS}
    dropped = {name: f"{len(some)} of {splits} splits: {some[0]}" for name, some in reasons.items() if some}
    kept, noise = (by_method(errors), by_method(covered)), noise.mean(axis=0).tolist()
    return RealResults(log.name, model, shift, rows, positives, seed, *kept, noise, dropped)


def make_features(log: ClickLog, model: str) -> Any:
    """Return codes as numbers for trees, and one-hot features for other models."""
    if model in _LIGHTGBM:
        return log.codes.astype(np.float32)
    return OneHotEncoder(dtype=np.float32).fit_transform(log.codes).tocsr()


def make_model(name: str) -> Any:
    """Return an unfitted model."""
    if name == "logistic":
        return LogisticRegression(max_iter=500)
    if name == "mlp":
        return MLPClassifier((32,), batch_size=256, max_iter=4)
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        raise UncurseError("LightGBM is not installed; install uncurse[lightgbm], or use --model logistic") from None
    return LGBMClassifier(n_jobs=1, verbose=-1, deterministic=True, force_row_wise=True, **_LIGHTGBM[name])


def make_split(features: Any, labels: Labels, model: str, shift: bool, seed: list[int]) -> list[Rows]:
    """Draw training, pool and test rows, and thin pool and test if there is a shift."""
    rng = np.random.default_rng(seed)
    rows, count = rng.permutation(len(labels)), len(labels)
    if not shift:
        return np.split(rows, [int(end * count) for end in _ENDS])
    train, other, *parts = np.split(rows, [int(end * count) for end in _SHIFTED_ENDS])
    if len(np.unique(labels[other])) < 2:
        raise UncurseError(f"the {len(other)} rows of the thinning model have one class; pass a longer log")
    thinning = make_model(model).set_params(random_state=seed[-1])
    thinning.fit(features[other], labels[other])
    kept = [part[rng.random(len(part)) < 1 - thinning.predict_proba(features[part])[:, 1]] for part in parts]
    return [train, *kept]


def _measure(
    features: Any, labels: Labels, model: str, shift: bool, seed: list[int]
) -> tuple[Array, Array, Array, dict[str, str]]:
    """Return errors and covered intervals, shape (methods, shares), the noise of test labels, and what failed."""
    errors, covered = np.full((2, len(METHODS), len(SHARES)), np.nan)
    failed = {}
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models that have not converged, and of fits, for every split
        train, pool, tested = make_split(features, labels, model, shift, seed)
        served, fits = _methods(features, labels, train, pool, tested, model, seed)
        test = labels[tested].astype(np.float64)
        chosen = [top_share(served, alpha) for alpha in SHARES]
        observed = np.array([test[rows].sum() for rows in chosen])
        if not observed.all():
            raise UncurseError(
                f"no label of the top {100 * SHARES[0]:g}% of the test rows is positive; pass a longer log"
            )
        noise = np.sqrt([(test[rows] * (1 - test[rows].mean())).sum() for rows in chosen]) / observed
        for i, name in enumerate(METHODS):
            try:
                fitted = fits[name]()
            except UncurseError as error:  # for instance seeds of a model without randomness, or labels that fall
                failed[name] = str(error)
                continue
            f = fitted.predict(served)
            errors[i] = [f[rows].sum() / total - 1 for rows, total in zip(chosen, observed, strict=True)]
            if fitted.interval is not None:
                ends = np.array([fitted.interval(alpha, _LEVEL) for alpha in SHARES])
                middle, half = ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2
                covered[i] = np.abs(errors[i] - middle) <= np.hypot(half, ndtri(0.5 + _LEVEL / 2) * noise)
    return errors, covered, noise, failed


def _methods(
    features: Any, labels: Labels, train: Rows, pool_rows: Rows, tested: Rows, model: str, seed: list[int]
) -> tuple[Array, dict[str, Callable[[], FittedMethod]]]:
    """Return the served scores of the test, and for each of `METHODS` a function that fits it to the split."""
    state = int(np.random.default_rng(seed).integers(2**31))
    base, X, y, candidates = make_model(model), features[train], labels[train], features[pool_rows]
    done = UncursedClassifierCV(base, random_state=state).cross_fit(X, y, pool=candidates)
    assert done.labeled is not None
    assert done.served_pool is not None
    assert done.labeled.labels is not None
    pool = done.pool.evidence(_CLIP)
    columns, unaligned = _clipped(done.pool.scores), _clipped(done.served_pool.scores)  # a calibrator takes arrays
    labeled = scores, target = _clipped(done.labeled.scores), done.labeled.labels
    to_fold = Affine(1.0, done.alignment, scale="probability")
    own: dict[str, Any] = {"scale": "probability", "replicas": done.replicas.kind}

    def calibrated(name: str) -> FittedMethod:
        return FittedMethod(calibrate(name, scores[:, 0], target, scale="probability"))

    def corrected(fitted: Any, *, aligned: bool = True, interval: Interval | None = None) -> FittedMethod:
        def predict(p: Array) -> Array:
            return np.asarray(fitted.predict_proba(to_fold(p) if aligned else p), np.float64)

        return FittedMethod(predict, interval)

    def with_labels(model: Auto | ReplicaCalibrator) -> FittedMethod:
        return corrected(model.fit(pool, labeled=labeled, labels_from="elsewhere"), interval=model.interval)

    def by_seed() -> Auto:
        models = fit_replicas(base, X, y, replicas="seeds", random_state=state).models
        by_model = np.column_stack([each.predict_proba(candidates)[:, 1] for each in models])
        return Auto(scale="probability", replicas="seeds").fit(np.asarray(_clipped(by_model), np.float64))

    tandem = VAD(calibrator="isotonic", lambda_floor=0.01, **own)
    served = _clipped(done.replicas.served.predict_proba(features[tested])[:, 1])
    return served, {
        "as served": lambda: FittedMethod(lambda p: p),
        "Platt": lambda: calibrated("platt"),
        "isotonic": lambda: calibrated("isotonic"),
        "isotonic + VAD": lambda: corrected(tandem.fit(columns, labeled=labeled)),
        "label-free, seeds": lambda: corrected(by_seed(), aligned=False),
        "label-free, bootstraps": lambda: corrected(Auto(**own).fit(unaligned), aligned=False),
        "labels": lambda: with_labels(ReplicaCalibrator(**own)),
        "Auto": lambda: with_labels(Auto(**own)),
    }


def _clipped(probabilities: Any) -> Any:
    return np.clip(probabilities, _CLIP, 1 - _CLIP)


# ---------------------------------------------------------------------------- results


@dataclass(frozen=True)
class RealSummary:
    """A method on a log, over all splits; errors are relative to the observed labels."""

    mean: Array  # for each of `SHARES`
    mean_error: Array
    rms: Array
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

    def summary(self, method: str) -> RealSummary:
        """Summarize one method."""
        errors, peer = np.array(self.errors[method]), np.array(self.errors[_PEER])
        count, mean, rms = len(errors), errors.mean(axis=0), _rms(errors)
        differences = [_rms(np.delete(errors, i, 0)).mean() - _rms(np.delete(peer, i, 0)).mean() for i in range(count)]
        return RealSummary(
            mean,
            errors.std(axis=0, ddof=1) / np.sqrt(count),
            rms,
            bias=float(np.abs(mean).mean()),
            average_rms=float(rms.mean()),
            difference=float(rms.mean() - _rms(peer).mean()),
            difference_error=float(np.sqrt((count - 1) * np.var(differences))),
            covered=float(np.mean(self.covered[method])) if method in self.covered else None,
        )

    @property
    def regret(self) -> float | None:
        """Average rms of `Auto` minus the smaller of the label-free map's and replica calibration's, or None."""
        names = ("Auto", "label-free, bootstraps", "labels")
        rms = [self.summary(name).average_rms for name in names if name in self.errors]
        return rms[0] - min(rms[1:]) if len(rms) == len(names) else None

    def to_json(self) -> str:
        """Return one JSON document."""
        return documents.dumps("arena-real", {"version": __version__, **asdict(self)})

    def parts(self, brief: bool = False) -> Iterator[Part]:
        """Yield what was run, the table, and a line for each method that was left out."""
        regret = "" if self.regret is None else f" Regret of Auto: {number(100 * self.regret)} points."
        yield (
            f"{self.log}, {self.model}, {'thinned' if self.shift else 'not thinned'}: {self.rows:,} rows, "
            f"{self.positives:,} positive; {len(self.errors[_PEER])} splits, seed {self.seed}.{regret}"
        )
        yield _ABOUT
        yield TextTable("", self.table(), gap=1)
        yield from (f"left out: {name}, {why}" for name, why in self.dropped.items())

    def table(self) -> Table:
        """Return a row for each method, errors in percent."""
        head = ("method", *(f"top {100 * alpha:g}%" for alpha in SHARES), "bias", "rms", f"− {_PEER}'s", "covered")
        rows: Table = [head]
        for name in self.errors:
            s = self.summary(name)
            cells = [
                f"{number(100 * mean, '+')} ± {number(100 * error)} ({number(100 * rms)})"
                for mean, error, rms in zip(s.mean, s.mean_error, s.rms, strict=True)
            ]
            difference = f"{number(100 * s.difference, '+')} ± {number(100 * s.difference_error)}"
            covered = "" if s.covered is None else f"{100 * s.covered:.0f}%"
            averages = number(100 * s.bias), number(100 * s.average_rms), difference if name != _PEER else ""
            rows.append((name, *cells, *averages, covered))
        noise = (f"± {number(100 * value)}" for value in self.noise)
        return [*rows, ("(noise of test labels)", *noise, "", "", "", "")]


def _rms(errors: Array) -> Array:
    return np.asarray(np.sqrt(np.square(errors).mean(axis=0)))
