"""S fits of any scikit-learn estimator: the served model, and replicas that show how far a retrained one would differ.

Two ways to replicate. *Seeds* train the same rows with another ``random_state``. *Bootstraps* train a Poisson
bootstrap of the rows around the served model, the ``"anchored"`` regime of `VAD`: two fits suffice.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from .._types import Array
from ..errors import UncurseError
from ..validation import check_choice, check_weights

logger = logging.getLogger(__name__)

_ALIKE = 1e-3  # replicas by seed with V below this share of the scores' variance would leave λ at 1
_SAME = 1e-12  # and below this they are one model, to rounding
_PROBE_ROWS = 10_000
_REDRAWS = 1000
_DELAY = 1.0  # seconds before a progress bar appears

Rows = NDArray[np.intp]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Replicas:
    """Models trained alike: `served` on all rows, `others` by `replicate`, ``"seeds"`` or ``"bootstrap"``."""

    served: Any
    others: tuple[Any, ...]
    replicate: str

    @property
    def models(self) -> tuple[Any, ...]:
        """All of them, the served one first: the columns of a pool."""
        return (self.served, *self.others)

    @property
    def regime(self) -> str:
        """What to pass to `VAD` as ``replicas``."""
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
    progress: bool = True,
) -> Replicas:
    """Fit `estimator` once on all rows and ``n_replicas - 1`` times more.

    Parameters
    ----------
    estimator
        Any scikit-learn estimator; it is cloned. In a `FrozenEstimator` it is served as it is, and unfitted clones of
        it are replicated: pass the rows it was trained on.
    X, y
        Training rows: arrays, sparse matrices, pandas or polars frames, lists.
    replicate
        ``"seeds"``: every ``random_state`` of the estimator, nested ones too, is another one. It sees the noise of
        training (neural networks), not that of the data. ``"bootstrap"``: Poisson bootstraps around the served model,
        which see both, though the noise of training twice: meant for estimators that have next to none.
        ``"auto"``: seeds, unless there is no ``random_state`` or it changes next to nothing; then bootstraps.
    sample_weight
        A weight counts rows: an integer weight is the same as repeating the row, also in the bootstraps.
    n_jobs
        For joblib; `joblib.parallel_config` chooses the backend.
    random_state
        Seed of replicas and bootstraps, and of the served model where it has none of its own.
    progress
        Show a bar on standard error, if that is a terminal and the fits take more than a second.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> replicas = fit_replicas(LogisticRegression(), X, X[:, 0] > 0.1, random_state=0)
    >>> replicas.replicate, replicas.regime, len(replicas.models)
    ('bootstrap', 'anchored', 2)
    """
    check_choice("replicate", replicate, ("auto", "seeds", "bootstrap"))
    if not isinstance(n_replicas, Integral) or n_replicas < 2:
        raise UncurseError(f"n_replicas={n_replicas!r}; pass 2 or more: the served model and at least one other")
    check_consistent_length(X, y)
    y = np.asarray(y)
    weights = check_weights(sample_weight, len(y))
    frozen = isinstance(estimator, FrozenEstimator)
    template = clone(estimator.estimator if frozen else estimator)
    name, seeds, root = type(template).__name__, _seed_names(template), _root(random_state)
    if replicate == "seeds" and not seeds:
        raise UncurseError(f"{name} has no random_state to replicate by; use replicate='bootstrap'")
    if random_state is not None:
        template = _seeded(template, [n for n in seeds if template.get_params()[n] is None], root, 0)
    how = ("seeds" if seeds else "bootstrap") if replicate == "auto" else replicate
    unweighted = weights is None or (frozen and how == "bootstrap")
    params = {} if unweighted else _weight_params(template, weights)
    probing = replicate == "auto" and how == "seeds"

    def fits(numbers: range) -> list[Any]:
        if how == "seeds" or not numbers:
            return [delayed(_fit)(_seeded(template, seeds, root, s), X, y, None, params) for s in numbers]
        groups = _Groups.of(X, y, weights, stratified=is_classifier(template))
        return [delayed(_fit)(clone(template), X, y, groups.draw(root, s), {}) for s in numbers]

    first = delayed(_fit)(estimator if frozen else clone(template), X, y, None, params)
    # A frozen model may come from other rows: there, two replicas are compared with each other.
    last = (2 if frozen else 1) if probing else n_replicas - 1
    with _bar(f"fitting {n_replicas} replicas of {name}", n_replicas, progress) as update:
        served, *others = _run([first, *fits(range(1, last + 1))], n_jobs, update)
        if how == "seeds":
            differ = _disagreement(*(others if probing and frozen else (served, others[0])), X, len(y))
            if differ < _SAME and not probing:
                raise UncurseError(
                    f"{name} is the same whatever its random_state, so its replicas show no noise; "
                    "use replicate='bootstrap'"
                )
            if differ < _ALIKE and probing:
                how, others = "bootstrap", []
        others += _run(fits(range(len(others) + 1, n_replicas)), n_jobs, update, len(others) + 1)
    logger.info("%s: %d replicas by %s", name, n_replicas, how)
    return Replicas(served, tuple(others[: n_replicas - 1]), how)


def _fit(estimator: Any, X: Any, y: NDArray[Any], rows: Rows | None, params: dict[str, Any]) -> Any:
    if rows is not None:
        X, y = take_rows(X, rows), y[rows]
    return estimator.fit(X, y, **params)


def _disagreement(one: Any, other: Any, X: Any, n: int) -> float:
    """V of two models by seed as a share of the variance of their predictions, on (a sample of) the training rows."""
    if n > _PROBE_ROWS:
        X = take_rows(X, np.linspace(0, n - 1, _PROBE_ROWS).astype(np.intp))
    method = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(one, name))
    a, b = (np.asarray(getattr(model, method)(X), np.float64) for model in (one, other))
    spread = float(a.var(axis=0).sum())
    return float((a - b).var(axis=0).sum()) / 2 / spread if spread > 0 else 0.0


# ---------------------------------------------------------------------------- seeds and weights


def _root(random_state: Any) -> int:
    if random_state is None:  # fresh, without the global state
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def _seed_names(estimator: Any) -> list[str]:
    return sorted(n for n in estimator.get_params() if n == "random_state" or n.endswith("__random_state"))


def _seeded(template: Any, names: Sequence[str], root: int, s: int) -> Any:
    drawn = np.random.default_rng([root, s]).integers(2**31 - 1, size=len(names))
    return clone(template).set_params(**dict(zip(names, drawn.tolist(), strict=True)))


def _weight_params(estimator: Any, weights: Array | None) -> dict[str, Any]:
    """How `estimator`'s fit takes sample weights: by metadata routing, as ``step__sample_weight``, or plainly."""
    if get_config()["enable_metadata_routing"]:
        if get_routing_for_object(estimator).consumes("fit", ["sample_weight"]):
            return {"sample_weight": weights}
        name = type(estimator).__name__
        raise UncurseError(f"{name} does not ask for sample_weight; call set_fit_request(sample_weight=True) on it")
    prefix = ""
    while isinstance(estimator, Pipeline):
        step, estimator = estimator.steps[-1]
        prefix += f"{step}__"
    fit = inspect.signature(estimator.fit).parameters
    if "sample_weight" not in fit and not any(p.kind is p.VAR_KEYWORD for p in fit.values()):
        raise UncurseError(f"{type(estimator).__name__} takes no sample_weight; leave it out, or repeat rows instead")
    return {f"{prefix}sample_weight": weights}


# ---------------------------------------------------------------------------- the bootstrap


@dataclass(frozen=True)
class _Groups:
    """Equal rows as one, in the order of their hashes: neither row order nor weight against repetition matters."""

    first: Rows  # a row of each group
    weight: Array  # W, how many rows it stands for
    classes: Rows  # the class of each; all must be drawn

    @classmethod
    def of(cls, X: Any, y: NDArray[Any], weights: Array | None, *, stratified: bool) -> _Groups:
        _, first, group = np.unique(row_hashes(X, y), return_index=True, return_inverse=True)
        weight = np.bincount(group, weights=weights).astype(np.float64)
        rows = len(y) if weights is None else np.count_nonzero(weights)
        if weight.sum() < min(10, rows):
            raise UncurseError(
                f"sample_weight sums to {weight.sum():g} over {rows} rows, but in a bootstrap a weight counts rows; "
                "rescale the weights to sum to the number of observations"
            )
        first, weight = first[weight > 0], weight[weight > 0]
        single = np.zeros(len(first), np.intp)
        return cls(first, weight, np.unique(y[first], return_inverse=True)[1] if stratified and y.ndim == 1 else single)

    def draw(self, root: int, s: int) -> Rows:
        """Rows of bootstrap `s`: each group N ~ Poisson(W) times, drawn anew if a class or half of all is missing."""
        for attempt in range(_REDRAWS):
            times = np.random.default_rng([root, s, attempt]).poisson(self.weight)
            if times.sum() >= self.weight.sum() / 2 and np.bincount(self.classes, weights=times).all():
                return np.repeat(self.first, times)
        rarest = np.bincount(self.classes, weights=self.weight).min()
        raise UncurseError(
            f"none of {_REDRAWS} bootstraps held every class: the rarest weighs {rarest:.3g} rows; "
            "collect more of it, or give it more weight"
        )


def take_rows(X: Any, rows: Rows) -> Any:
    """Rows by number, in the container they came in.

    >>> take_rows(["a", "b"], np.array([1, 1]))
    ['b', 'b']
    """
    if _is_sparse(X):
        return X.tocsr()[rows]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows]
    return X[rows] if hasattr(X, "__getitem__") else np.asarray(X)[rows]


def row_hashes(X: Any, y: NDArray[Any]) -> Hashes:
    """64 bits of each row's content, the same for arrays, sparse matrices and frames of the same numbers.

    >>> h = row_hashes(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]), np.array([1, 1, 1]))
    >>> bool(h[0] == h[1]), bool(h[0] == h[2])
    (True, False)
    """
    hashes = np.zeros(len(y), np.uint64)
    place = 0
    for part in (*_parts(X), *_parts(y)):
        # An odd multiplier a column.
        odd = _mix(np.arange(place + 1, place + part.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
        place += part.shape[1]
        if _is_sparse(part):
            part = part.tocsr(copy=True)
            part.sum_duplicates()
            sums = np.cumsum(np.append(np.uint64(0), _mix(_mix(_bits(part.data)) * odd[part.indices])))
            hashes += np.diff(sums[part.indptr])
            continue
        step = max(1, 2**16 // max(1, part.shape[1]))  # rows that stay in the cache
        for start in range(0, len(hashes), step):
            block = slice(start, start + step)
            hashes[block] += _mix(_mix(_bits(part[block])) * odd).sum(axis=1, dtype=np.uint64)
    return hashes


def _is_sparse(X: Any) -> bool:
    return bool(sparse.issparse(X))


def _parts(X: Any) -> Iterator[Any]:
    """Two-dimensional pieces, each of one dtype."""
    if _is_sparse(X):
        yield X
    elif hasattr(X, "columns") and len(set(X.dtypes)) > 1:
        for j in range(X.shape[1]):
            yield np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else X[:, j])[:, None]
    else:
        try:
            array = np.asarray(X)
        except ValueError:  # ragged lists
            array = np.fromiter(X, object, len(X))
        yield array.reshape(len(array), -1) if array.size else np.empty((len(array), 0))


def _bits(values: NDArray[Any]) -> Hashes:
    """64 bits a value, none of them set for zeros."""
    if values.dtype.kind in "biuf":
        floats = values.astype(np.float64)
        floats += 0.0  # −0 is 0
        floats[np.isnan(floats)] = np.nan  # there are many NaN
        return floats.view(np.uint64)
    return np.array([_digest(v) for v in values.ravel().tolist()], np.uint64).reshape(values.shape)


def _digest(value: Any) -> int:
    data = value.tobytes() if hasattr(value, "tobytes") else str(value).encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _mix(z: Hashes) -> Hashes:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014). 0 stays 0, so that sparse and dense agree."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


# ---------------------------------------------------------------------------- progress


@contextmanager
def _bar(label: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal, once the work has taken a second."""
    if not (show and sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console  # not at import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    task = bar.add_task(label, total=total)
    timer = threading.Timer(_DELAY, bar.start)
    timer.start()
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bar just now
        bar.stop()


def _run(jobs: list[Any], n_jobs: int | None, update: Callable[[int], None], before: int = 0) -> list[Any]:
    class Watched(Parallel):  # type: ignore[misc]
        def print_progress(self) -> None:  # joblib calls it whenever a job is done, on every backend
            update(before + self.n_completed_tasks)

    return list(Watched(n_jobs=n_jobs)(jobs)) if jobs else []


__all__ = ["Replicas", "fit_replicas", "row_hashes", "take_rows"]
