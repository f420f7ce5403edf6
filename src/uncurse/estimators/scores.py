"""Scores that a map is fitted to: of training rows out of fold, and of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples

from .._types import Array
from ..debias.records import DataRecord, FitRecord
from ..debias.replica_kinds import ReplicaKind
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, from_arrays
from ..evidence.from_arrays import column_names
from ..links import logit
from ..validation import effective_rows
from .replicas import Replicas
from .resampling import Rows

#: Predictions of exactly 0 or 1 have no logit; they are clipped to [CLIP, 1 − CLIP].
CLIP = 1e-6
_TREES_AND_LINEAR = (
    "lightgbm",
    "xgboost",
    "catboost",
    "sklearn.tree",
    "sklearn.ensemble",
    "sklearn.linear_model",
)
_LEAST_ROWS = 30  # of a fold, from which its noise is estimated
_LEAST_SHARE = 0.05  # least share of the variance that is attributed to true scores
_SCORED_ROWS = 20_000  # more scores of the pool have next to no effect on a map


def count_rows(pool: Any) -> int:
    """Return the number of rows of a pool, 0 if there is none; raise UncurseError if it has no rows."""
    if pool is None:
        return 0
    try:
        count = int(_num_samples(pool))
    except (TypeError, ValueError) as error:
        raise UncurseError(f"the pool has no rows to score: {error}") from None
    if not count:
        raise UncurseError("the pool has 0 rows; pass a sample of the candidates, or omit it")
    return count


def feature_names(X: Any) -> list[str] | None:
    """Return the names of the columns of a data frame; None for other arrays."""
    return None if getattr(X, "columns", None) is None else [str(name) for name in X.columns]


def check_feature_names(model: Any, names: list[str] | None, X: Any, called: str) -> None:
    """Raise UncurseError if a data frame has other columns than in training, or in another order.

    Other libraries check this themselves, or select columns by their names. LightGBM takes columns by their place.
    """
    own = feature_names(X)
    if names is None or own is None or own == names or not type(model).__module__.startswith("lightgbm"):
        return
    missing = [name for name in names if name not in own]
    problem = f"has no column {missing[0]!r}" if missing else "has other columns than X in training, or another order"
    raise UncurseError(
        f"{called} {problem}, and LightGBM takes columns by their place; pass the columns of training in their order, "
        f"such as {called}[names]"
    )


def is_tree_or_linear(estimator: Any) -> bool:
    """Return whether the noise of a model comes from its training rows rather than from its seed."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return any(part.__module__.startswith(_TREES_AND_LINEAR) for part in type(estimator).__mro__)


def on_link(scores: Array, link: str) -> Array:
    """Return predictions as scores of the link."""
    if link == "identity":
        return scores
    if link == "log":
        return np.asarray(np.log(scores), np.float64)
    return np.asarray(logit(np.clip(scores, CLIP, 1 - CLIP)), np.float64)


def all_constant(parts: list[Array]) -> bool:
    """Return whether each model predicts a single value; parts of one row say nothing."""
    several = [part for part in parts if len(part) > 1] or [np.concatenate(parts)]
    return all(not np.ptp(part[:, 0]) > 1e-9 * np.abs(part[:, 0]).max() for part in several)


def pool_parts(pool: int, folds: int, seed: int) -> tuple[list[Rows | None], int]:
    """Return the pool rows that the models of each fold score, and how many folds score each row.

    Every fold scores a small pool, so that differences between models average out. A large one is divided between
    folds, which saves time.
    """
    times = min(folds, max(1, _SCORED_ROWS // max(pool, 1)))
    if times == folds:
        return [None] * folds, max(folds, 1)
    first = np.random.default_rng([seed, pool]).permutation(pool) % folds
    return [np.flatnonzero((number - first) % folds < times) for number in range(folds)], times


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Hold the models that `cross_fit` has trained, and the scores that a map is fitted to.

    Scores are what the base model predicts: probabilities of ``classes_[1]``, or values of a regressor. Column 0 holds
    those of the served model, or of its counterpart in a fold. S is `n_replicas`.

    Parameters
    ----------
    replicas : Replicas
        Models trained on all rows.
    pool : ndarray of shape (k * m, S)
        Scores of the m rows of the pool by the models of folds, fold by fold. Up to 20,000 rows, k is at most `cv`, so
        that there may be one copy of the pool for each fold; in a larger pool each row is scored by one fold. Without
        a pool these are the scores of `labelled`; without folds, those of the pool by `replicas`.
    pool_weights : ndarray of shape (k * m,), or None
        Weights of the rows of `pool`; None if all are equal.
    labelled : tuple (scores, labels) or (scores, labels, weights), or None
        Training rows scored out of fold, fold by fold, not in the order of X. None without folds.
    target : ndarray of shape (n,)
        The target, in the order of X.
    served_pool : ndarray of shape (m', S), or None
        Scores of the pool, or of a sample of it, by `replicas`. None without a pool but with folds.
    alignment : tuple of float
        Slope and intercept of the line, on the link, from a score of the served model to a score out
        of fold. Models of folds see fewer rows, so their scores are noisier. A map that is fitted to scores out of
        fold takes served scores after this line.
    constant : bool
        Whether each model predicts a single value.
    pool_repeats, labelled_repeats : float, default=1.0
        k, how often each row of the pool is scored, and the same for the labelled rows.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link on which the map is fitted; "log" for regressors that predict the exponential of a sum.

    Examples
    --------
    >>> from uncurse import UncursedClassifierCV
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> done = UncursedClassifierCV(cv=2, random_state=0).cross_fit(X, X[:, 0] > 0.1, pool=X[:50])
    >>> done.pool.shape, done.labelled[0].shape
    ((100, 3), (200, 3))
    """

    replicas: Replicas
    pool: Array
    pool_weights: Array | None
    labelled: tuple[Array, ...] | None
    target: NDArray[Any]
    served_pool: Array | None
    alignment: tuple[float, float]
    constant: bool
    pool_repeats: float = 1.0
    labelled_repeats: float = 1.0
    link: str = "logistic"


def pool_evidence(done: CrossFit, clip: float = 0.0) -> Evidence:
    """Return a pool of probabilities as evidence, with the number of different rows; `clip` as in `evidence_of`."""
    return evidence_of(done.pool, None, done.pool_weights, clip).repeated(done.pool_repeats)


def labelled_evidence(done: CrossFit, clip: float = 0.0) -> Evidence:
    """Return the labelled rows as evidence, with the number of different rows."""
    assert done.labelled is not None
    scores, labels, *weights = done.labelled
    return evidence_of(scores, labels, weights[0] if weights else None, clip).repeated(done.labelled_repeats)


def pool_record(done: CrossFit) -> DataRecord:
    """Return the record of the pool, with each row counted once."""
    return _data_record(done.pool, done.pool_weights, done.pool_repeats)


def served_quantiles(done: CrossFit) -> tuple[Array, Array]:
    """Return quantiles of the served score on the pool, on the link, and their weights."""
    slope, intercept = done.alignment
    served = (on_link(done.pool, done.link)[:, 0] - intercept) / slope
    if done.served_pool is not None:
        served = on_link(done.served_pool, done.link)[:, 0]
    weights = done.pool_weights if done.served_pool is None or done.labelled is None else None
    order = np.argsort(served, kind="stable")
    reached = np.cumsum(np.ones(len(served)) if weights is None else weights[order])
    # Enough rows above the top 1%, and little to store.
    shares = np.concatenate([np.linspace(0, 0.9, 100, endpoint=False), 1 - np.geomspace(0.1, 1e-4, 400)])
    places = np.searchsorted(reached, shares * reached[-1], side="right")
    return served[order[np.minimum(places, len(order) - 1)]], np.diff(shares, append=1.0)


def served_record(record: FitRecord, done: CrossFit, *, uses_labels: bool) -> FitRecord:
    """Return what the record of a fit to scores out of fold says about the map of served scores."""
    labelled = None
    if uses_labels and done.labelled is not None:
        scores, _, *weights = done.labelled
        labelled = _data_record(scores, weights[0] if weights else None, done.labelled_repeats)
    record = replace(record, pool=pool_record(done), labelled=labelled)
    if done.labelled is None:
        return record
    # Served scores have less noise, and another center; monitoring would take the difference of λ for a drift.
    return replace(record, standard_error=None, center=None, noise_variance=None, score_variance=None)


def _data_record(scores: Array, weights: Array | None, repeats: float) -> DataRecord:
    rows = len(scores) / repeats
    effective = rows if weights is None else effective_rows(weights) / repeats
    return DataRecord(round(rows), column_names(scores.shape[1]), effective_rows=effective)


def evidence_of(scores: Array, labels: Array | None, weights: Array | None, clip: float) -> Evidence:
    """Return probabilities, clipped to [clip, 1 − clip], as evidence."""
    spec = LogSpec(column_names(scores.shape[1]), "probability", label=None if labels is None else "label")
    clipped = np.clip(scores, clip, 1 - clip) if clip else scores
    return from_arrays(clipped, labels, spec=spec, sample_weight=weights, replica_counts=True)


def align(
    kind: ReplicaKind,
    folds: Sequence[Array],
    served: Array | None,
    *,
    held_out: float,
    weights: Sequence[Array] | None = None,
) -> tuple[float, float]:
    """Return slope and intercept that translate a served score to a score out of fold.

    The map is fitted to scores out of fold, whose models are trained on fewer rows and so have more noise. A served
    score corresponds to the score out of fold for which the expected truth is the same.

    With all rows, noise has r times the variance that it has in a fold. For regular models r is 1 − held_out, and for
    strongly regularised ones 1: the prior is the middle between them. Differences between replicas on the pool measure
    r, with an error that follows from the differences between folds.

    `folds` holds the scores (m, S) of the pool by the models of each fold, which have not seen a share `held_out` of
    the rows, `served` those by the models that are trained on all rows, and `weights` the weights (m,) of each fold's
    rows.
    """
    if min(map(len, folds)) < _LEAST_ROWS:
        folds, weights = [np.concatenate(folds)], None if weights is None else [np.concatenate(weights)]
    by_fold = [None] * len(folds) if weights is None else weights
    parts = [np.cov(scores.T, ddof=0, aweights=own) for scores, own in zip(folds, by_fold, strict=True)]
    noises = np.array([float(kind.noise_variance(part)) for part in parts])
    noise, variance = float(noises.mean()), float(np.mean([part[0, 0] for part in parts]))
    if not min(noises.min(), variance) > 0:
        return 1.0, 0.0
    means = [np.average(scores[:, 0], weights=own) for scores, own in zip(folds, by_fold, strict=True)]
    center = float(np.mean(means))
    log_ratio, error = np.log1p(-held_out / 2), held_out / 2
    served_center, served_variance = center, None
    if served is not None:
        covariance = np.cov(served.T, ddof=0)
        served_center, served_variance = float(served[:, 0].mean()), float(covariance[0, 0])
        served_noise = float(kind.noise_variance(covariance))
        if not min(served_noise, served_variance) > 0:
            return 1.0, 0.0
        chance = float(np.std(np.log(noises), ddof=1)) * np.sqrt(1 + 1 / len(folds)) if len(folds) > 1 else np.inf
        weight = error**2 / (error**2 + max(chance, 1e-3) ** 2)
        log_ratio += weight * (np.log(served_noise / noise) - log_ratio)
    ratio = float(np.exp(log_ratio))
    true = max(variance - noise, _LEAST_SHARE * variance)
    if served_variance is None:  # the true scores are the same, with less noise
        served_variance = true + ratio * noise
    served_true = max(served_variance - ratio * noise, _LEAST_SHARE * served_variance)
    # The ratio of both λ, and of the scales of the true scores if their variances differ.
    slope = float(np.sqrt(served_true / served_variance / (true / variance) * variance / served_variance))
    return slope, center - slope * served_center
