"""Replicas of a scikit-learn estimator: the served model and refits that show how much a retrained model differs."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from .._types import Array
from ..errors import UncurseError
from ..validation import check_choice, check_count, check_weights, effective_rows, encode_names, warn_user

Rows = NDArray[np.intp]

_REDRAWS = 1000
_STOPS_EARLY = 9_500  # HistGradientBoosting does from 10,001 rows; a bootstrap may have a few rows more than its source
_LEAST_ROWS = 5  # effective rows that a bootstrap needs
_SAME = 1e-12  # models that differ less are identical to rounding
_LARGEST_SEED = np.iinfo(np.int32).max  # that every library takes
_PROBE_ROWS = 10_000  # predictions on this many rows show whether seeds matter
_MOST_REPLICAS = 10_000  # a larger number is a mistake
_Fit = tuple[Any, ...]  # arguments of `_fit`
_FEW_GROUPS = 20  # a variance between fewer units has an error of a third and more


@dataclass(frozen=True)
class Replicas:
    """Hold the served model and its replicas.

    Parameters
    ----------
    served : estimator
        The model trained on all rows.
    others : tuple of estimators
        The replicas.
    kind : {"seeds", "bootstrap"}
        Value of the parameter ``replicas`` of `VAD`, `ReplicaCalibrator` and `Auto` for the scores of these models.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> fit_replicas(GaussianNB(), X, X[:, 0] > 0.1, random_state=0).kind
    'bootstrap'
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
        Rows of a group, such as those of one user, are drawn together. They are not passed to the model.
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
    plan = ReplicaPlan(
        estimator, X, y, n_replicas=n_replicas, replicas=replicas, groups=groups, sample_weight=sample_weight,
        random_state=random_state,
    )  # fmt: skip
    return plan.replicas(run_jobs(plan.jobs(), n_jobs))


class ReplicaPlan:
    """What is fitted to which rows: the valid arguments of `fit_replicas`."""

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_replicas: int,
        replicas: str,
        groups: ArrayLike | None,
        sample_weight: ArrayLike | None,
        random_state: Any,
    ) -> None:
        self.begin: Callable[[int], Callable[[], None]] = lambda count: lambda: None  # of jobs, then of each done
        self.kind = check_choice("replicas", replicas, ("bootstrap", "seeds"))
        self.by_seeds = self.kind == "seeds"
        self.count = check_count(n_replicas, "n_replicas", _MOST_REPLICAS)
        if self.count < 2:
            raise UncurseError(f"n_replicas={n_replicas!r}; pass 2 or more: the served model and at least one replica")
        if y is None:
            raise UncurseError("y is None; pass a target for every row of X")
        inner = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
        check_is_estimator(inner)
        try:
            check_consistent_length(X, y)
            self.template = _unfitted(inner)
            # Without a seed, do not draw from the global state.
            state = np.random.default_rng() if random_state is None else random_state
            is_generator = isinstance(state, np.random.Generator)
            self.seed = int(
                state.integers(_LARGEST_SEED) if is_generator else check_random_state(state).randint(_LARGEST_SEED)
            )
        except (TypeError, ValueError) as error:
            raise UncurseError(str(error)) from None
        self.estimator, self.X, self.y = estimator, X, np.asarray(y)
        self.weights = check_weights(sample_weight, len(self.y))
        self.groups = None if groups is None else _number_groups(groups, len(self.y), drawn=not self.by_seeds)
        self.weight_name = _weight_name(self.template)
        # With weights, scikit-learn bins features up to thirty times more slowly: repeat rows instead.
        self.repeats = self.weight_name is None or (
            self.weights is None
            and isinstance(last_step(self.template), HistGradientBoostingClassifier | HistGradientBoostingRegressor)
        )
        name = type(self.template).__name__
        if self.weights is not None:
            if self.weight_name is None:
                raise UncurseError(
                    f"{name} takes no sample_weight; omit it, or request it by set_fit_request(sample_weight=True) if "
                    "metadata routing is enabled"
                )
            weights = self.weights / self.weights.max()
            fraction, exponent = np.frexp(weights * (effective_rows(weights) / weights.sum()))
            # The splits of a tree may depend on the last digits, which a common factor would change.
            self.weights = np.ldexp(fraction.round(9), exponent)
        parameters = self.template.get_params()
        self.seed_names = sorted(n for n in parameters if n == "random_state" or n.endswith("__random_state"))
        if self.by_seeds and not self.seed_names:
            raise UncurseError(f"{name} has no random_state; use replicas='bootstrap'")
        if random_state is not None:
            unset = [name for name in self.seed_names if parameters[name] is None]
            self.template = _with_seeds(self.template, unset, self.seed, 0)

    def jobs(
        self,
        rows: Rows | None = None,
        fold: int = 0,
        then: Callable[[Any], Any] | None = None,
        *,
        alone: bool = False,
    ) -> list[_Fit]:
        """Return the fits of all models to some rows, or of the served one alone.

        With `then` a fit returns that of its model, not the model.
        """
        frozen = rows is None and isinstance(self.estimator, FrozenEstimator)
        at_most_once = self.repeats and _splits_rows(self.template, len(self.y))
        jobs = []
        for s in range(1 if alone else self.count):
            drawn, weights = rows, self.weights
            if s == 0:
                model = self.estimator if frozen else _unfitted(self.template)
            else:
                model = _with_seeds(self.template, self.seed_names, self.seed, s + self.count * fold)
            if s > 0 and not self.by_seeds:
                times = self._bootstrap.draw([self.seed, fold, s], rows, at_most_once=at_most_once)
                if self.repeats:
                    drawn = np.repeat(np.arange(len(times)), times)
                else:
                    drawn = np.flatnonzero(times)
                    weights = np.asarray(times if weights is None else times * weights, np.float64)
            if weights is not None and drawn is not None:
                weights = weights[drawn]
            jobs.append((model, self.X, self.y, drawn, {} if weights is None else {self.weight_name: weights}, then))
        return jobs

    @cached_property
    def _bootstrap(self) -> Bootstrap:
        return Bootstrap(self.X, self.y, self.weights, self.groups, stratified=is_classifier(self.template))

    def replicas(self, models: list[Any]) -> Replicas:
        """Return the fitted models; raise UncurseError if seeds change nothing."""
        served, *others = models
        if self.by_seeds and others:
            X = take_rows(self.X, np.linspace(0, len(self.y) - 1, min(len(self.y), _PROBE_ROWS)).astype(np.intp))
            method = next(n for n in ("predict_proba", "decision_function", "predict") if hasattr(served, n))
            self.check_seeds(*(np.asarray(getattr(model, method)(X), np.float64) for model in (served, others[0])))
        return Replicas(served, tuple(others), self.kind)

    def check_seeds(self, first: Array, second: Array) -> None:
        """Raise UncurseError if predictions of two models differ by rounding only."""
        if float((first - second).var(axis=0).sum()) <= _SAME * float(first.var(axis=0).sum()):
            name = type(self.template).__name__
            raise UncurseError(f"{name} does not depend on its random_state; use replicas='bootstrap'")


class Bootstrap:
    """Units that are drawn independently: rows in the order of their content, or whole groups of rows."""

    def __init__(
        self, X: Any, y: NDArray[Any], weights: Array | None, groups: Rows | None, *, stratified: bool
    ) -> None:
        """Prepare draws for these rows; `stratified` makes sure that every class of `y` is drawn."""
        n = len(y)
        self.weight = np.ones(n) if weights is None else weights
        kept, effective = np.count_nonzero(self.weight), effective_rows(self.weight)
        if effective < min(_LEAST_ROWS, kept / 2):
            raise UncurseError(
                f"sample_weight leaves {effective:.3g} effective rows of {kept}, and a bootstrap needs {_LEAST_ROWS}; "
                "use less extreme weights, or replicas='seeds'"
            )
        grouped = stratified and y.ndim == 1
        self.classes: Rows = np.unique(y, return_inverse=True)[1] if grouped else np.zeros(n, np.intp)
        self.units: Rows = np.empty(n, np.intp)  # of each row
        if groups is None:
            hashes = row_hashes(X, self.classes if stratified else y)
            self.units[np.lexsort([self.weight, hashes, self.weight == 0])] = np.arange(n)
        else:
            self.units = groups
        self.count = int(self.units.max()) + 1

    def draw(self, seed: list[int], rows: Rows | None = None, *, at_most_once: bool = False) -> NDArray[np.int64]:
        """Return how often each row is drawn: Poisson(1), or 0 or 1 with equal chances; 0 outside `rows`.

        Half of the rows without repetition have the same variance as a bootstrap. Draw again if a class, or half of
        the weight that is expected, is missing.
        """
        among = np.ones(len(self.units), bool) if rows is None else np.isin(np.arange(len(self.units)), rows)
        allowed = np.where(among, self.weight, 0.0)
        expected = allowed.sum() / (2 if at_most_once else 1)
        needed = np.bincount(self.classes, weights=allowed) > 0
        for attempt in range(_REDRAWS):
            rng = np.random.default_rng([*seed, attempt])
            times = (rng.integers(2, size=self.count) if at_most_once else rng.poisson(1.0, self.count))[self.units]
            weight = allowed * times
            if weight.sum() >= expected / 2 and (np.bincount(self.classes, weights=weight) > 0)[needed].all():
                return np.asarray(times * (allowed > 0), np.int64)
        rarest = int(np.bincount(self.classes[self.weight > 0]).min())
        raise UncurseError(
            f"none of {_REDRAWS} bootstraps contains every class: the rarest has {rarest} rows; add rows of it, or use "
            "replicas='seeds'"
        )


def take_rows(X: Any, rows: Rows) -> Any:
    """Return some rows of an array, a sparse matrix, a dataframe or a list."""
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    return X[rows] if hasattr(X, "__getitem__") else np.asarray(X)[rows]


def row_hashes(X: Any, y: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of the content of each row."""
    pairs = zip(_row_bytes(X), _row_bytes(y), strict=True)
    digests = (hashlib.blake2b(b"".join(pair), digest_size=8).digest() for pair in pairs)
    return np.frombuffer(b"".join(digests), np.uint64)


def _row_bytes(X: Any) -> Iterator[bytes]:
    """Content of each row: equal for equal numbers in arrays, lists and dataframes."""
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        return (X.indices[i:j].tobytes() + X.data[i:j].tobytes() for i, j in pairwise(X.indptr.tolist()))
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":  # the estimator refuses complex numbers by itself
        return (row.tobytes() for row in np.asarray(X))
    try:
        return (row.tobytes() for row in np.asarray(X, np.float64))
    except (TypeError, ValueError):  # text, categories, dates, ragged lists
        rows = X if isinstance(X, list | tuple) else np.asarray(X).tolist()
    return (
        row.tobytes() if isinstance(row, np.ndarray) else repr(row).encode("utf-8", "backslashreplace") for row in rows
    )


def run_jobs(jobs: Sequence[_Fit], n_jobs: int | None, done: Callable[[], None] = lambda: None) -> list[Any]:
    """Run the jobs of a `ReplicaPlan` in one pool of joblib; `done` is called after each."""
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise UncurseError(f"n_jobs={n_jobs!r}; pass None, a number of processes, or -1 for all cores")
    results = []
    for result in Parallel(n_jobs=n_jobs, return_as="generator")(delayed(_fit)(*job) for job in jobs):
        results.append(result)
        done()
    return results


def _fit(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    rows: Rows | None,
    weights: dict[str, Array],
    then: Callable[[Any], Any] | None,
) -> Any:
    chosen, target = (X, y) if rows is None else (take_rows(X, rows), y[rows])
    try:
        model = estimator.fit(chosen, target, **weights)
    except UncurseError:
        raise
    except ValueError as error:  # such as weights whose products overflow
        raise UncurseError(f"the model cannot be fitted: {' '.join(str(error).split())}") from error
    return model if then is None else then(model)


def check_is_estimator(estimator: Any) -> None:
    """Raise UncurseError unless the object is a scikit-learn estimator, not its class."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        kind = f"the class {estimator.__name__}" if isinstance(estimator, type) else f"a {type(estimator).__name__}"
        raise UncurseError(f"estimator is {kind}; pass a scikit-learn estimator, such as LogisticRegression()")


def _number_groups(groups: ArrayLike, rows: int, *, drawn: bool) -> Rows:
    """Return the number of each row's group; warn of few groups, and refuse a single one, if they are drawn."""
    if isinstance(groups, str):
        raise UncurseError(f"groups={groups!r}; pass the group of every row, such as X[{groups!r}]")
    names, numbers = encode_names(groups, rows, "groups")
    if drawn and len(names) < _FEW_GROUPS:
        problem = (
            f"the number of groups is {len(names)}, and bootstraps draw whole groups; pass one value for each user or "
            "customer, or omit groups (for a model of each segment, fit each segment on its own)"
        )
        if len(names) < 2:
            raise UncurseError(problem)
        warn_user(problem)
    return numbers


def _unfitted(estimator: Any) -> Any:
    try:
        return clone(estimator)
    except RuntimeError:  # CatBoost copies its list of categorical features, which `clone` refuses
        return type(estimator)(**copy.deepcopy(estimator.get_params()))


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


def last_step(estimator: Any) -> Any:
    """Return the model of a pipeline, or the model itself."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def _splits_rows(estimator: Any, rows: int) -> bool:
    """Whether the estimator splits its rows for validation, so that a repeated row would be on both sides."""
    params = estimator.get_params()
    stops = {n.split("__")[-1]: v for n, v in params.items()}.get("early_stopping", True)
    if stops is False or (stops == "auto" and rows <= _STOPS_EARLY):
        return False
    return any(n.split("__")[-1] in ("cv", "validation_fraction") and v is not None for n, v in params.items())
