"""Replicas of a scikit-learn estimator: the served model and refits that show how much a retrained model differs."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from .._types import Array
from ..errors import UncurseError
from ..validation import check_choice, check_count, check_weights, effective_rows

logger = logging.getLogger(__name__)

_ALIKE = 1e-3  # "auto" bootstraps if seeds change less than this share of the variance: λ would be 1
_SAME = 1e-12  # models that differ less are identical to rounding
_PROBE_ROWS = 10_000  # predictions on this many rows show whether seeds matter
_REDRAWS = 1000
_MOST_REPLICAS = 10_000  # a larger number is a mistake
_LEAST_ROWS = 5  # effective rows that a bootstrap needs

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Replicas:
    """Hold the served model and its replicas.

    Parameters
    ----------
    served : estimator
        The model trained on all rows.
    others : tuple of estimators
        The replicas.
    replicate : {"seeds", "bootstrap"}
        How the replicas were trained.

    Examples
    --------
    >>> Replicas("served", ("replica",), "bootstrap").models
    ('served', 'replica')
    """

    served: Any
    others: tuple[Any, ...]
    replicate: str

    @property
    def models(self) -> tuple[Any, ...]:
        """All models, the served one first: the columns of a pool."""
        return (self.served, *self.others)

    @property
    def regime(self) -> str:
        """Value of the parameter ``replicas`` of `VAD`: ``"seeds"`` or ``"anchored"``."""
        return "seeds" if self.replicate == "seeds" else "anchored"


def fit_replicas(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    n_replicas: int = 2,
    replicate: str = "auto",
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> Replicas:
    """Fit an estimator on all rows, and ``n_replicas - 1`` replicas of it.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn estimator. It is cloned. A `FrozenEstimator` is served unchanged and only its replicas are
        trained: pass the rows it was trained on.
    X : array-like, sparse matrix, dataframe or list of shape (n, ...)
        Training rows.
    y : array-like of shape (n,)
        Targets.
    n_replicas : int, default=2
        Number of models, including the served one.
    replicate : {"auto", "seeds", "bootstrap"}, default="auto"
        ``"seeds"`` changes every ``random_state`` of the estimator, including nested ones. It measures the noise of
        training (neural networks), not the noise of the data. ``"bootstrap"`` trains on Poisson bootstraps of the
        rows. It measures both, but counts the noise of training twice, so it suits estimators with little of it.
        ``"auto"`` uses seeds if the estimator has a ``random_state`` that matters, and bootstraps otherwise.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows. Only their ratios matter: they are scaled to sum to the effective number of rows,
        (Σw)² / Σw², before they are passed to the estimator or used as the expected counts of a bootstrap.
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
    >>> replicas = fit_replicas(LogisticRegression(), X, X[:, 0] > 0.1, random_state=0)
    >>> replicas.replicate, replicas.regime, len(replicas.models)
    ('bootstrap', 'anchored', 2)
    """
    check_choice("replicate", replicate, ("auto", "seeds", "bootstrap"))
    if check_count(n_replicas, "n_replicas", _MOST_REPLICAS) < 2:
        raise UncurseError(f"n_replicas={n_replicas!r}; pass 2 or more: the served model and at least one replica")
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise UncurseError(f"n_jobs={n_jobs!r}; pass None, a number of processes, or -1 for all cores")
    if y is None:
        raise UncurseError("y is None; pass a target for every row of X")
    frozen = isinstance(estimator, FrozenEstimator)
    template, root = _check_input(estimator.estimator if frozen else estimator, X, y, random_state)
    y = _check_target(y)
    weights = check_weights(sample_weight, len(y))
    if weights is not None:
        weights = weights / weights.max()
        fraction, exponent = np.frexp(weights * (effective_rows(weights) / weights.sum()))
        # The splits of a tree may depend on the last digits, which a common factor would change.
        weights = np.ldexp(fraction.round(9), exponent)
    name, seed_names = type(template).__name__, _seed_names(template)
    if replicate == "seeds" and not seed_names:
        raise UncurseError(f"{name} has no random_state; use replicate='bootstrap'")
    if random_state is not None:
        own = template.get_params()
        template = _with_seeds(template, [n for n in seed_names if own[n] is None], root, 0)
    how = ("seeds" if seed_names else "bootstrap") if replicate == "auto" else replicate
    unweighted = weights is None or (frozen and how == "bootstrap")
    params = {} if unweighted else _weight_params(template, weights)

    def jobs(how: str, first: int) -> list[Any]:
        numbers = range(first, n_replicas)
        if how == "seeds" or not numbers:
            return [delayed(_fit)(_with_seeds(template, seed_names, root, s), X, y, None, params) for s in numbers]
        bootstrap = _Bootstrap.of(X, y, weights, stratified=is_classifier(template))
        return [delayed(_fit)(clone(template), X, y, bootstrap.draw(root, s), {}) for s in numbers]

    run = Parallel(n_jobs=n_jobs)
    served_job = delayed(_fit)(estimator if frozen else clone(template), X, y, None, params)
    if replicate == "auto" and how == "seeds":
        # A frozen model may come from other rows, so two replicas are compared with each other.
        probes = [_with_seeds(template, seed_names, root, s) for s in range(1, 3 if frozen else 2)]
        served, *others = run([served_job, *(delayed(_fit)(probe, X, y, None, params) for probe in probes)])
        first, second = others if frozen else (served, *others)
        if _relative_noise(first, second, X, len(y)) < _ALIKE:
            how, others = "bootstrap", []
        others += run(jobs(how, len(others) + 1))
    else:
        served, *others = run([served_job, *jobs(how, 1)])
        if how == "seeds" and _relative_noise(served, others[0], X, len(y)) < _SAME:
            raise UncurseError(f"{name} does not depend on its random_state; use replicate='bootstrap'")
    logger.info("%s: %d replicas by %s", name, n_replicas, how)
    return Replicas(served, tuple(others[: n_replicas - 1]), how)


def _check_target(y: ArrayLike) -> NDArray[Any]:
    target = np.asarray(y)
    if target.dtype.kind == "c":
        raise UncurseError("y holds complex numbers; pass real ones, or class labels")
    if target.dtype.kind == "O":
        kinds = {float if isinstance(value, Real) else type(value) for value in target.ravel().tolist()}
        if len(kinds) > 1:
            raise UncurseError("y mixes labels of several types; convert them to text first")
    return target


def check_estimator(estimator: Any) -> None:
    """Raise UncurseError unless the object is a scikit-learn estimator, not its class."""
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        kind = f"the class {estimator.__name__}" if isinstance(estimator, type) else f"a {type(estimator).__name__}"
        raise UncurseError(f"estimator is {kind}; pass a scikit-learn estimator, such as LogisticRegression()")


def _check_input(estimator: Any, X: Any, y: ArrayLike, random_state: Any) -> tuple[Any, int]:
    """Clone the estimator and draw a seed, with scikit-learn's messages for invalid values."""
    check_estimator(estimator)
    try:
        check_consistent_length(X, y)
        return clone(estimator), _root_seed(random_state)
    except (TypeError, ValueError) as error:
        raise UncurseError(str(error)) from None


def _fit(estimator: Any, X: Any, y: NDArray[Any], rows: Rows | None, params: dict[str, Any]) -> Any:
    if rows is not None:
        X, y = _take_rows(X, rows), y[rows]
    return estimator.fit(X, y, **params)


def _relative_noise(first: Any, second: Any, X: Any, n: int) -> float:
    """V of two models as a share of the variance of their predictions, on a sample of the training rows."""
    if n > _PROBE_ROWS:
        X = _take_rows(X, np.linspace(0, n - 1, _PROBE_ROWS).astype(np.intp))
    method = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(first, name))
    a, b = (np.asarray(getattr(model, method)(X), np.float64) for model in (first, second))
    spread = float(a.var(axis=0).sum())
    return float((a - b).var(axis=0).sum()) / 2 / spread if spread > 0 else 0.0


# ---------------------------------------------------------------------------- seeds and weights


def _root_seed(random_state: Any) -> int:
    if random_state is None:  # do not draw from the global state
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def _seed_names(estimator: Any) -> list[str]:
    return sorted(n for n in estimator.get_params() if n == "random_state" or n.endswith("__random_state"))


def _with_seeds(template: Any, names: Sequence[str], root: int, s: int) -> Any:
    seeds = np.random.default_rng([root, s]).integers(2**31 - 1, size=len(names))
    return clone(template).set_params(**dict(zip(names, seeds.tolist(), strict=True)))


def _weight_params(estimator: Any, weights: Array | None) -> dict[str, Any]:
    """Name the weights as the estimator's `fit` expects: routed, as ``step__sample_weight``, or ``sample_weight``."""
    if get_config()["enable_metadata_routing"]:
        if get_routing_for_object(estimator).consumes("fit", ["sample_weight"]):
            return {"sample_weight": weights}
        name = type(estimator).__name__
        raise UncurseError(f"{name} does not request sample_weight; call set_fit_request(sample_weight=True) on it")
    prefix = ""
    while isinstance(estimator, Pipeline):
        step, estimator = estimator.steps[-1]
        prefix += f"{step}__"
    fit = inspect.signature(estimator.fit).parameters
    if "sample_weight" not in fit and not any(p.kind is p.VAR_KEYWORD for p in fit.values()):
        raise UncurseError(f"{type(estimator).__name__} does not support sample_weight; omit it")
    return {f"{prefix}sample_weight": weights}


# ---------------------------------------------------------------------------- bootstraps


@dataclass(frozen=True)
class _Bootstrap:
    """Rows of positive weight in the order of their content, so that draws do not depend on the order of rows."""

    rows: Rows
    weight: Array  # expected number of draws
    classes: Rows  # every class must be drawn

    @classmethod
    def of(cls, X: Any, y: NDArray[Any], weights: Array | None, *, stratified: bool) -> _Bootstrap:
        weight = np.ones(len(y)) if weights is None else weights
        positive = np.count_nonzero(weight)
        if weight.sum() < min(_LEAST_ROWS, positive / 2):
            raise UncurseError(
                f"sample_weight leaves {weight.sum():.3g} effective rows of {positive}, and a bootstrap needs "
                f"{_LEAST_ROWS}; use less extreme weights, or replicate='seeds'"
            )
        rows = np.lexsort([weight, _row_hashes(X, y)])
        rows = rows[weight[rows] > 0]
        strata = y[rows] if stratified and y.ndim == 1 else np.zeros(len(rows))
        return cls(rows, weight[rows], np.unique(strata, return_inverse=True)[1])

    def draw(self, root: int, s: int) -> Rows:
        """Draw each row Poisson(weight) times; draw again if a class or half of the rows is missing."""
        for attempt in range(_REDRAWS):
            times = np.random.default_rng([root, s, attempt]).poisson(self.weight)
            if times.sum() >= self.weight.sum() / 2 and np.bincount(self.classes, weights=times).all():
                return np.repeat(self.rows, times)
        rarest = np.bincount(self.classes, weights=self.weight).min()
        raise UncurseError(
            f"none of {_REDRAWS} bootstraps contains every class: the rarest has {rarest:.3g} effective rows; "
            "add rows of it, or use replicate='seeds'"
        )


def _take_rows(X: Any, rows: Rows) -> Any:
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    return X[rows] if hasattr(X, "__getitem__") else np.asarray(X)[rows]


def _row_hashes(X: Any, y: NDArray[Any]) -> NDArray[np.uint64]:
    pairs = zip(_row_bytes(X), _row_bytes(y), strict=True)
    digests = (hashlib.blake2b(b"".join(pair), digest_size=8).digest() for pair in pairs)
    return np.frombuffer(b"".join(digests), np.uint64)


def _row_bytes(X: Any) -> Iterator[bytes]:
    """Content of each row: equal for equal numbers in arrays, lists and dataframes."""
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        return (X.indices[i:j].tobytes() + X.data[i:j].tobytes() for i, j in pairwise(X.indptr.tolist()))
    try:
        return (row.tobytes() for row in np.asarray(X, np.float64))
    except (TypeError, ValueError):  # text, categories, dates, ragged lists
        rows = X if isinstance(X, list | tuple) else np.asarray(X).tolist()
    return (
        row.tobytes() if isinstance(row, np.ndarray) else repr(row).encode("utf-8", "backslashreplace") for row in rows
    )


__all__ = ["Replicas", "check_estimator", "fit_replicas"]
