"""Replicas of a scikit-learn estimator: the served model and refits that show how much a retrained model differs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from .._types import Array
from ..errors import UncurseError
from ..validation import check_choice, check_count, check_weights, effective_rows, group_rows, warn_user
from .resampling import Bootstrap, Rows, take_rows

_SAME = 1e-12  # models that differ less are identical to rounding
_LARGEST_SEED = np.iinfo(np.int32).max  # that every library takes
_PROBE_ROWS = 10_000  # predictions on this many rows show whether seeds matter
_MOST_REPLICAS = 10_000  # a larger number is a mistake
_FEW_GROUPS = 20  # a variance between fewer units has an error of a third and more


class RowsToScore(NamedTuple):
    """Rows that a model is to predict, instead of being kept."""

    predict: Callable[[Any, Any], Array]  # predictions of a model for some rows, shape (n,)
    rows: Rows  # of the training rows
    pool: Any = None
    pool_rows: Rows | None = None  # None: all


@dataclass(frozen=True)
class Replicas:
    """Hold the served model and its replicas.

    Parameters
    ----------
    served : estimator
        The model trained on all rows.
    others : tuple of estimators
        The replicas.
    kind : {"seeds", "bootstrap", "anchored"}
        Value of the parameter ``replicas`` of `VAD`, `Tower` and `Auto` for the scores of these models.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> fit_replicas(GaussianNB(), X, X[:, 0] > 0.1, random_state=0).kind
    'anchored'
    """

    served: Any
    others: tuple[Any, ...]
    kind: str

    @property
    def models(self) -> tuple[Any, ...]:
        """The served model, then the others."""
        return (self.served, *self.others)


def fit_replicas(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    n_replicas: int = 3,
    replicas: str = "bootstrap",
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> Replicas:
    """Fit an estimator and replicas of it.

    Parameters
    ----------
    estimator : estimator
        The model that is served. A `FrozenEstimator` is served unchanged, and its replicas are fitted to these rows.
    X : array-like, sparse matrix or dataframe of shape (n, d)
        Training rows.
    y : array-like of shape (n,)
        Targets.
    n_replicas : int, default=3
        Number of models, including the served one.
    replicas : {"bootstrap", "seeds"}, default="bootstrap"
        ``"bootstrap"`` trains on Poisson bootstraps of the rows, each with its own ``random_state``: it shows the noise
        of the data and of training. Rows are weighted if the estimator accepts ``sample_weight``, and repeated
        otherwise. ``"seeds"`` changes every ``random_state`` of the estimator, including nested ones. It shows the
        noise of training alone, which is enough for neural networks, not for trees or linear models.
    groups : array-like of shape (n,), default=None
        Rows of a group, such as those of one user, are drawn together.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows. Only their ratios matter: they are scaled to sum to the effective number of rows,
        (Σw)² / Σw².
    n_jobs : int, default=None
        Number of models trained in parallel by joblib. ``joblib.parallel_config(verbose=10)`` reports progress.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the replicas, and of the served model if its own ``random_state`` is None.

    Returns
    -------
    Replicas
        The served model and its replicas.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> fitted = fit_replicas(LogisticRegression(), X, X[:, 0] > 0.1, random_state=0)
    >>> fitted.kind, len(fitted.models)
    ('bootstrap', 3)
    """
    plan = ReplicaPlan.of(
        estimator, X, y, n_replicas=n_replicas, replicas=replicas, groups=groups, sample_weight=sample_weight,
        random_state=random_state,
    )  # fmt: skip
    return plan.replicas(run_jobs(plan.jobs(), n_jobs))


@dataclass(frozen=True)
class ReplicaPlan:
    """What is fitted to which rows."""

    estimator: Any  # as given; a frozen one is served
    template: Any
    X: Any
    y: NDArray[Any]
    weights: Array | None
    groups: ArrayLike | None
    count: int
    by_seeds: bool
    seed_names: tuple[str, ...]
    seed: int

    @classmethod
    def of(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_replicas: int,
        replicas: str,
        groups: ArrayLike | None,
        sample_weight: ArrayLike | None,
        random_state: Any,
    ) -> ReplicaPlan:
        """Validate the arguments of `fit_replicas`."""
        by_seeds = check_choice("replicas", replicas, ("bootstrap", "seeds")) == "seeds"
        if check_count(n_replicas, "n_replicas", _MOST_REPLICAS) < 2:
            raise UncurseError(f"n_replicas={n_replicas!r}; pass 2 or more: the served model and at least one replica")
        if y is None:
            raise UncurseError("y is None; pass a target for every row of X")
        if isinstance(groups, str):
            raise UncurseError(f"groups={groups!r}; pass the group of every row, such as X[{groups!r}]")
        inner = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
        check_is_estimator(inner)
        try:
            check_consistent_length(X, y)
            template, seed = _unfitted(inner), _root_seed(random_state)
        except (TypeError, ValueError) as error:
            raise UncurseError(str(error)) from None
        target = _check_target(y)
        weights = check_weights(sample_weight, len(target))
        if groups is not None and not by_seeds:
            _check_groups(groups, len(target))
        if weights is not None:
            weights = weights / weights.max()
            fraction, exponent = np.frexp(weights * (effective_rows(weights) / weights.sum()))
            # The splits of a tree may depend on the last digits, which a common factor would change.
            weights = np.ldexp(fraction.round(9), exponent)
        names = sorted(n for n in template.get_params() if n == "random_state" or n.endswith("__random_state"))
        if by_seeds and not names:
            raise UncurseError(f"{type(template).__name__} has no random_state; use replicas='bootstrap'")
        if random_state is not None:
            own = template.get_params()
            template = _with_seeds(template, [n for n in names if own[n] is None], seed, 0)
        return cls(estimator, template, X, target, weights, groups, int(n_replicas), by_seeds, tuple(names), seed)

    @property
    def kind(self) -> str:
        """How the score columns are related."""
        if self.by_seeds:
            return "seeds"
        # Bootstraps of a random estimator differ from the served model by its own noise too, which would count twice.
        return "bootstrap" if self.seed_names and self.count > 2 else "anchored"

    def jobs(self, rows: Rows | None = None, fold: int = 0, then: RowsToScore | None = None) -> list[tuple[Any, ...]]:
        """Return the fits of all replicas to some rows; with `then` a job returns predictions instead of the model."""
        frozen = rows is None and isinstance(self.estimator, FrozenEstimator)
        name = _weight_name(self.template)
        if self.weights is not None and name is None and not frozen:
            raise UncurseError(_no_weights(self.template))
        fits: list[tuple[Any, Rows | None, Array | None]] = [
            (self.estimator if frozen else _unfitted(self.template), rows, self._weights(rows))
        ]
        for s in range(1, self.count):
            model = _with_seeds(self.template, self.seed_names, self.seed, s + self.count * fold)
            if self.by_seeds:
                fits.append((model, rows, self._weights(rows)))
                continue
            at_most_once = name is None and _splits_rows(self.template)
            times = self._bootstrap.draw([self.seed, fold, s], rows, at_most_once=at_most_once)
            if name is None:
                fits.append((model, np.repeat(np.arange(len(times)), times), None))
            else:
                drawn = np.flatnonzero(times)
                weights = self._weights(drawn)
                fits.append((model, drawn, times[drawn] * (np.ones(len(drawn)) if weights is None else weights)))
        return [(model, self.X, self.y, chosen, name, weights, then) for model, chosen, weights in fits]

    def _weights(self, rows: Rows | None) -> Array | None:
        return self.weights if self.weights is None or rows is None else self.weights[rows]

    @cached_property
    def _bootstrap(self) -> Bootstrap:
        return Bootstrap.of(self.X, self.y, self.weights, self.groups, stratified=is_classifier(self.template))

    def replicas(self, models: list[Any]) -> Replicas:
        """Return the fitted models; raise UncurseError if seeds change nothing."""
        served, *others = models
        if self.by_seeds and _relative_noise(served, others[0], self.X, len(self.y)) < _SAME:
            name = type(self.template).__name__
            raise UncurseError(f"{name} does not depend on its random_state; use replicas='bootstrap'")
        return Replicas(served, tuple(others), self.kind)


def run_jobs(jobs: Sequence[tuple[Any, ...]], n_jobs: int | None) -> list[Any]:
    """Run the jobs of a `ReplicaPlan` in one pool of joblib."""
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise UncurseError(f"n_jobs={n_jobs!r}; pass None, a number of processes, or -1 for all cores")
    return list(Parallel(n_jobs=n_jobs)(delayed(_fit)(*job) for job in jobs))


def _fit(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    rows: Rows | None,
    name: str | None,
    weights: Array | None,
    then: RowsToScore | None,
) -> Any:
    chosen, target = (X, y) if rows is None else (take_rows(X, rows), y[rows])
    params: dict[str, Any] = {}
    if name is not None and weights is not None and not isinstance(estimator, FrozenEstimator):
        params[name] = weights
    try:
        model = estimator.fit(chosen, target, **params)
    except UncurseError:
        raise
    except ValueError as error:  # such as weights whose products overflow
        text = " ".join(str(error).split())
        if isinstance(error, UnsetMetadataPassedError) and ".fit" in text.split(" Call ")[0]:
            text = f"{text.split(' Call ')[0]} Bootstraps use weights too. C{_weight_requests(estimator)[1:]}"
        if "'groups' parameter should not be None" in text:
            text += " Groups are not passed to the model: tune it by its groups first, and wrap the best one."
        raise UncurseError(f"the model cannot be fitted: {text}") from error
    if then is None:
        return model
    scores = then.predict(model, take_rows(X, then.rows))
    if then.pool is None:
        return scores, None
    return scores, score_pool(then, model)


def score_pool(wanted: RowsToScore, model: Any) -> Array:
    """Return the predictions of a model for the pool; raise UncurseError if it cannot score these rows."""
    try:
        part = wanted.pool if wanted.pool_rows is None else take_rows(wanted.pool, wanted.pool_rows)
        return wanted.predict(model, part)
    except Exception as error:  # each library has exceptions of its own
        raise UncurseError(f"the models cannot score the pool: {' '.join(str(error).split())}") from None


def check_is_estimator(estimator: Any) -> None:
    """Raise UncurseError unless the object is a scikit-learn estimator, not its class."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        kind = f"the class {estimator.__name__}" if isinstance(estimator, type) else f"a {type(estimator).__name__}"
        raise UncurseError(f"estimator is {kind}; pass a scikit-learn estimator, such as LogisticRegression()")


def _check_target(y: ArrayLike) -> NDArray[Any]:
    target = np.asarray(y)
    if target.dtype.kind == "c":
        raise UncurseError("y holds complex numbers; pass real ones, or class labels")
    if target.dtype.kind == "O":
        kinds = {float if isinstance(value, Real) else type(value) for value in target.ravel().tolist()}
        if len(kinds) > 1:
            raise UncurseError("y mixes labels of several types; convert them to text first")
    return target


def _check_groups(groups: ArrayLike, rows: int) -> None:
    """Raise UncurseError for a single group and warn of few: bootstraps draw whole groups."""
    count = len(group_rows(groups, rows)[0])
    segments = "for a model of each segment, fit each segment on its own"
    if count < 2:
        raise UncurseError(
            "groups has one value, and bootstraps draw whole groups; pass one value for each user or customer, or omit "
            f"groups ({segments})"
        )
    if count < _FEW_GROUPS:
        warn_user(
            f"groups has {count} values, and bootstraps draw whole groups, so they show little of the noise; pass one "
            f"value for each user or customer, or omit groups ({segments})"
        )


def _relative_noise(first: Any, second: Any, X: Any, n: int) -> float:
    """Variance of the difference of two models relative to that of their predictions, on a sample of training rows."""
    if n > _PROBE_ROWS:
        X = take_rows(X, np.linspace(0, n - 1, _PROBE_ROWS).astype(np.intp))
    method = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(first, name))
    a, b = (np.asarray(getattr(model, method)(X), np.float64) for model in (first, second))
    spread = float(a.var(axis=0).sum())
    return float((a - b).var(axis=0).sum()) / spread if spread > 0 else 0.0


def _unfitted(estimator: Any) -> Any:
    try:
        return clone(estimator)
    except RuntimeError:  # CatBoost copies its list of categorical features, which `clone` refuses
        return type(estimator)(**copy.deepcopy(estimator.get_params()))


def _root_seed(random_state: Any) -> int:
    if random_state is None:  # do not draw from the global state
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_LARGEST_SEED))
    return int(check_random_state(random_state).randint(_LARGEST_SEED))


def _with_seeds(template: Any, names: Sequence[str], root: int, s: int) -> Any:
    seeds = np.random.default_rng([root, s]).integers(_LARGEST_SEED, size=len(names))
    return _unfitted(template).set_params(**dict(zip(names, seeds.tolist(), strict=True)))


def _weight_name(estimator: Any) -> str | None:
    """Name the weights as `fit` expects them: routed, as ``step__sample_weight`` or ``sample_weight``; None if not."""
    if get_config()["enable_metadata_routing"]:
        return "sample_weight" if get_routing_for_object(estimator).consumes("fit", ["sample_weight"]) else None
    prefix = ""
    while isinstance(estimator, Pipeline):
        step, estimator = estimator.steps[-1]
        prefix += f"{step}__"
    fit = inspect.signature(estimator.fit).parameters
    if "sample_weight" in fit:
        return f"{prefix}sample_weight"
    inner = getattr(estimator, "estimator", None)  # a search passes keyword arguments on
    passed_on = any(p.kind is p.VAR_KEYWORD for p in fit.values()) and hasattr(inner, "fit")
    name = _weight_name(inner) if passed_on else None
    return None if name is None else prefix + name


def _no_weights(estimator: Any) -> str:
    name, remedy = type(estimator).__name__, _weight_requests(estimator)
    if get_config()["enable_metadata_routing"] and remedy:
        return f"{name} does not request sample_weight; {remedy}"
    return f"{name} does not support sample_weight; omit it"


def _weight_requests(estimator: Any) -> str:
    """Return which parts of an estimator are to request weights, and which are not; empty if no model takes them."""
    parts = [estimator, *estimator.get_params().values()]
    parts = [part for part in parts if hasattr(part, "set_fit_request") and not isinstance(part, type)]
    parts = [part for part in parts if "sample_weight" in inspect.signature(part.fit).parameters]
    names = [(is_classifier(part) or is_regressor(part), type(part).__name__) for part in parts]
    models, others = (", ".join(sorted({name for own, name in names if own is kind})) for kind in (True, False))
    if not models:
        return ""
    text = f"call set_fit_request(sample_weight=True) on {models}"
    return f"{text}, and with False on {others}, which would take weights too" if others else text


def _splits_rows(estimator: Any) -> bool:
    """Whether the estimator splits its rows for validation, so that a repeated row would be on both sides."""
    params = estimator.get_params()
    return any(n.split("__")[-1] in ("cv", "validation_fraction") and v is not None for n, v in params.items())
