"""Methods of the arena: each is one function from a `Draw` to a `FittedMethod`, or to why it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from uncurse._types import Array, Float
from uncurse.calibration.calibrators import CALIBRATORS, calibrate
from uncurse.evidence import ReplicaTable
from uncurse.links import logistic
from uncurse.methods import VAD, Auto, ReplicaCalibrator
from uncurse.methods.label_free import regress_on_served

from ..baselines import BASELINES
from .dlrm import MODELS
from .worlds import Draw

Interval = Callable[[float, float], tuple[float, float]]
ORACLE = "oracle"
REPLICAS = (2, 3, 6)
#: Methods that the summary shows, and those of a quick run.
MAIN = ("vanilla", "isotonic + VAD", "VAD curved S=3", "monotone S=3", "labels S=3", "auto", ORACLE)
QUICK = (*MAIN, "platt", "platt + VAD", "isotonic", "VAD S=2", "labels S=2")
_BINS = 50  # of the density ratio
_OVERLAP = 0.05  # the least share of labeled rows that importance weights may come down to


@dataclass(frozen=True)
class FittedMethod:
    """What a method returns.

    An interval is a function from (α, level) to (low, high), between which the error on the top α remains with that
    probability, such as the method `interval` of a fitted `Auto` or ``VAD(intervals=True)``. It is about the
    top share of all rows, so it is not counted in worlds with requests.

    Examples
    --------
    >>> @method("doctest")
    ... def doctest(draw):
    ...     fit = VAD(scale="logit", replicas=draw.replicas, intervals=True).fit(draw.pool)
    ...     return FittedMethod(lambda scores: fit.predict_proba(scores[:, 0]), interval=fit.interval)
    >>> from uncurse_lab.arena import noisy
    >>> low, high = doctest(noisy(np.random.default_rng(0), rows=2_000, labeled=500)).interval(0.1, 0.9)
    >>> low < high and METHODS.pop("doctest").name
    'doctest'
    """

    predict: Callable[[Array], Float]  # from scores of shape (N, S) to N probabilities
    interval: Interval | None = None


Fit = Callable[[Draw], FittedMethod | str]  # a text says why the method does not apply


@dataclass(frozen=True)
class ArenaMethod:
    """A method of the arena."""

    name: str
    fit: Fit
    serves_one: bool  # whether it serves one model, and so can be the best of a table


METHODS: dict[str, ArenaMethod] = {}


def method(name: str, serves_one: bool = True) -> Callable[[Fit], Fit]:
    """Register a function as a method: from a `Draw` to a `FittedMethod`, or to a text on why it does not apply.

    Names that end in "S=2" or "S=3" form a family, which can be asked for by one name. A method that does not serve one
    model is never "the best".

    Examples
    --------
    >>> @method("doctest")
    ... def doctest(draw):
    ...     return FittedMethod(lambda scores: logistic(scores[:, 0] - 0.1))
    >>> METHODS.pop("doctest").name
    'doctest'
    """

    def register(function: Fit) -> Fit:
        METHODS[name] = ArenaMethod(name, function, serves_one)
        return function

    return register


def _of_served(function: Callable[[Array], Any], interval: Interval | None = None) -> FittedMethod:
    """Return a map of the served score alone."""
    return FittedMethod(lambda scores: np.asarray(function(scores[:, 0])), interval)


def _fit(model: Any, draw: Draw, count: int | None = None, *, labels: bool = True) -> FittedMethod:
    """Fit a `VAD`, `ReplicaCalibrator` or `Auto` to the first `count` models of a draw, all by default."""
    labeled = (draw.labeled[:, :count], draw.labels) if labels else None
    origin = {} if isinstance(model, VAD) or not labels else {"labels_from": draw.labels_from}
    model.fit(draw.pool[:, :count], labeled=labeled, **origin)
    return _of_served(model.predict_proba, None if model.fitted_.errors is None else model.interval)


def _of_size(s: int, build: Callable[..., Any], labels: bool, draw: Draw) -> FittedMethod | str:
    """Fit to S models; beside bootstraps the served one comes on top. A text: there are too few."""
    count, most = s + (draw.replicas == "bootstrap"), draw.pool.shape[1]
    if count > most:
        return f"needs {count} models, the served one among them, and there are {most}"
    return _fit(build(scale="logit", replicas=draw.replicas), draw, count, labels=labels)


def every_size(name: str, build: Callable[..., Any], *, labels: bool = False) -> None:
    """Register a method for every S; `build` makes the model, given the kind of the replicas."""
    for s in REPLICAS:
        method(f"{name} S={s}")(partial(_of_size, s, build, labels))


def calibrated(name: str, draw: Draw) -> FittedMethod:
    """A calibrator of the library or of the lab, of the served score, fitted where there are labels."""
    fit = BASELINES.get(name, partial(calibrate, name))
    return _of_served(fit(draw.labeled[:, 0], draw.labels))


def tandem(name: str, recenter: bool, draw: Draw) -> FittedMethod:
    """A calibrator, then VAD, S=2; or VAD first, about the mean of each set."""
    vad = VAD(scale="logit", replicas=draw.replicas, calibrator=name, recenter=recenter)
    return _fit(vad, draw, 2 + (draw.replicas == "bootstrap"))


# The paper's.
method("vanilla")(lambda draw: _of_served(logistic))
for _name in CALIBRATORS:
    method(_name)(partial(calibrated, _name))
for _name in CALIBRATORS:
    method(f"{_name} + VAD")(partial(tandem, _name, False))
every_size("VAD", partial(VAD, intervals=True))
every_size("VAD(p)", partial(VAD, link="identity"))

# Calibrators that the library leaves out.
for _name in BASELINES:
    method(_name)(partial(calibrated, _name))

# Ours: VAD with other shapes, replica calibration, and what the library chooses, with all models of the draw.
for _name in ("platt", "isotonic", "spline"):
    method(f"{_name} + VAD recentered")(partial(tandem, _name, True))
every_size("VAD curved", partial(VAD, curvature=True, intervals=True))
every_size("monotone", partial(VAD, shape="monotone", intervals=True))
every_size("labels", ReplicaCalibrator, labels=True)
method("auto")(lambda draw: _fit(Auto(scale="logit", replicas=draw.replicas), draw))
method("auto without labels")(lambda draw: _fit(Auto(scale="logit", replicas=draw.replicas), draw, labels=False))


def weighted(name: str, draw: Draw) -> FittedMethod | str:
    """A calibrator fitted to labeled rows weighted as the pool's: the shift of the served score, undone."""
    served = draw.labeled[:, 0]
    edges = np.quantile(served, np.arange(1, _BINS) / _BINS)
    bins = np.searchsorted(edges, served)
    shares = [np.bincount(b, minlength=_BINS) / len(b) for b in (np.searchsorted(edges, draw.pool[:, 0]), bins)]
    ratio = shares[0] / np.maximum(shares[1], 1 / len(served))
    weight = ratio[bins]
    share = weight.sum() ** 2 / (len(weight) * np.square(weight).sum())
    if share < _OVERLAP:
        return f"the pool hardly overlaps the labeled rows: the weights leave less than {100 * _OVERLAP:g}% of them"
    return _of_served(calibrate(name, served, draw.labels, sample_weight=weight))


for _name in ("platt", "isotonic"):
    method(f"weighted {_name}")(partial(weighted, _name))


@method("double learning", serves_one=False)
def double_learning(draw: Draw) -> FittedMethod | str:
    """Two models served: one ranks, the other predicts. A bootstrap is not independent of what it is drawn from."""
    if draw.replicas != "seeds":
        return f"needs replicas by seed, and these are {draw.replicas}"
    return FittedMethod(lambda scores: logistic(scores[:, 1]))


@method(f"ensemble of {MODELS}", serves_one=False)
def ensemble(draw: Draw) -> FittedMethod | str:
    """Six models served: their mean logit predicts, calibrated by Platt; the first alone ranks."""
    if draw.pool.shape[1] < MODELS:
        return f"needs {MODELS} models, and there are {draw.pool.shape[1]}"
    calibrator = calibrate("platt", draw.labeled[:, :MODELS].mean(axis=1), draw.labels)
    return FittedMethod(lambda scores: calibrator(scores[:, :MODELS].mean(axis=1)))


@method(ORACLE, serves_one=False)
def oracle(draw: Draw) -> FittedMethod:
    """A smooth map of the served score, fitted to the true probabilities of the pool; it has an error of its own."""
    curve = regress_on_served(ReplicaTable.of_rows(draw.pool), draw.pool_truth.astype(np.float64))
    return _of_served(lambda served: logistic(curve(served)))


#: Names of the methods above; others were registered by a user.
BUILT_IN = frozenset(METHODS)
