"""Cross-fitting: train the models, score rows that they have not seen, and align these scores with the served ones.

The models of a fold are trained without its rows, so their scores of these rows are honest. They are also noisier than
served scores, because they are trained on fewer rows. A map is fitted to scores out of fold, and takes served scores
after a line that aligns them: `cross_fit` returns both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, from_arrays
from ..evidence.from_arrays import column_names
from ..links import logit
from ..methods.records import DataRecord
from ..validation import effective_rows, warn_user
from .replicas import ReplicaPlan, Replicas, Rows, run_jobs, take_rows
from .teacher import Teacher

Folds = Sequence[tuple[Rows, Rows]]  # training and test rows of each
Predict = Callable[[Any, Any], Array]  # predictions of a model for some rows, shape (n,)

#: Predictions of exactly 0 or 1 have no logit; they are clipped to [CLIP, 1 − CLIP], or further, see `clip_of`.
CLIP = 1e-6
_SERVED_ROWS = 20_000  # of the pool, scored by the served model: more have next to no effect on the alignment
_SCORED_ROWS = 8_000  # a smaller pool is scored by several folds, until it has this many scores
_COMMON_ROWS = 1_000  # of the pool, scored by all folds: more do not change the noise that they show
_FEW_FOLDS = 4  # with fewer, two folds score each row of a pool of moderate size
_UPPER = (0.005, 0.2)  # shares of the pool at whose quantiles scores are aligned


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows and what S models predict for them: probabilities of the second class, or values of a regressor."""

    scores: Array  # (n, S): column 0 is of the served model, or of its counterpart in a fold
    weights: Array | None = None  # (n,), None if all are equal
    labels: Array | None = None  # (n,): 0 and 1, or the target of a regressor
    repeats: float = 1.0  # how often each row is scored
    teacher: Array | None = None  # (n,): what the teacher predicts

    @property
    def row_weights(self) -> Array:
        """Weights, 1 if all are equal."""
        return np.ones(len(self.scores)) if self.weights is None else self.weights

    @classmethod
    def joined(cls, parts: Sequence[Scored], different: int) -> Scored:
        """Join the parts of folds, in which so many different rows occur."""
        rows = ((part.scores, part.weights, part.labels, part.teacher) for part in parts)
        columns: list[Any] = [None if own[0] is None else np.concatenate(own) for own in zip(*rows, strict=True)]
        scores, weights, labels, teacher = columns
        return cls(scores, weights, labels, len(scores) / different, teacher)

    def evidence(self, clip: float = 0.0) -> Evidence:
        """Return probabilities, clipped to [clip, 1 − clip], as evidence in which each different row counts once."""
        spec, scores = LogSpec(column_names(self.scores.shape[1]), "probability"), self.scores
        if clip:
            scores = np.clip(scores, clip, 1 - clip)
        if self.teacher is not None:
            spec = replace(spec, teacher="teacher")
            scores = np.column_stack([scores, np.clip(self.teacher, CLIP, 1 - CLIP)])
        evidence = from_arrays(scores, self.labels, spec=spec, sample_weight=self.weights)
        return evidence.scaled(1.0, self.repeats)

    def record(self) -> DataRecord:
        """Return the record of the rows, with each different row counted once."""
        names, effective = column_names(self.scores.shape[1]), effective_rows(self.row_weights) / self.repeats
        return DataRecord(round(len(self.scores) / self.repeats), names, effective_rows=effective)


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossFit:
    """Models that `cross_fit` has trained, and the scores that a map is fitted to."""

    replicas: Replicas  # trained on all rows; with folds the served model alone
    target: NDArray[Any]  # in the order of X
    link: str  # of the map; "log" for regressors that predict the exponential of a sum
    #: The pool as the models of folds score it, fold by fold. Several folds score each row of a small pool.
    #: Without a pool these are the rows of `labeled`; without folds, rows that `replicas` score.
    pool: Scored
    of_fold: Scored  # the part of `pool` that the models of the first fold score
    labeled: Scored | None  # training rows out of fold, fold by fold; None without folds
    #: The pool, or a sample of it, as the served model scores it; None if there is no pool but folds.
    served_pool: Scored | None
    clip: float  # probabilities are clipped to [clip, 1 − clip]; 0 if none is 0 or 1
    noise: float | None  # variance of a served score, on the link, see `noise_of`; None if folds do not show it
    alignment: float  # of a served score to a score out of fold, on the link, see `align`
    constant: bool  # whether each model predicts a single value
    note: str = ""  # why there is no teacher, if that needs a word


def cross_fit(
    plan: ReplicaPlan,
    folds: Folds,
    pool: Any,
    labels: Array,
    *,
    predict: Predict,
    link: str,
    n_jobs: int | None,
    teacher: Teacher | None = None,
) -> CrossFit:
    """Train, score and align; without a pool the training rows are the pool.

    Labeled rows and pool are scored by the same models, so they differ by their rows alone. A pool and the training
    rows of no folds are scored by the models of all rows too. The link "log" becomes "identity" if a prediction is not
    positive.
    """
    count = 0
    if pool is not None:
        shape = np.shape(pool)
        if not shape or not shape[0]:
            raise UncurseError(f"the pool has shape {shape}; pass a sample of the candidates as rows, or omit it")
        count = shape[0]
    replicas, by_fold = train(plan, folds, pool, count, predict, n_jobs, teacher)
    tested = np.concatenate([test for _, test in folds]) if folds else np.arange(len(plan.y))
    different = len(np.unique(tested))
    labeled = [
        replace(scored[0], weights=None if plan.weights is None else plan.weights[test], labels=labels[test])
        for (_, test), scored in zip(folds, by_fold, strict=True)
    ]
    served, noise = None, None
    if folds and pool is None:
        parts = [replace(part, labels=None) for part in labeled]
    else:
        rows, weights = (plan.X, plan.weights) if pool is None else (pool, None)
        sample = np.arange(0, count, max(1, count // _SERVED_ROWS)) if folds else None
        columns = [_score(predict, [(rows, sample)], model)[0] for model in replicas.models]
        served = Scored(np.column_stack(columns), weights)
        parts = [scores[1] for scores in by_fold] or [served]
    scored = [*labeled, *parts] if served is None else [*labeled, *parts, served]
    if link == "log" and min(part.scores.min() for part in scored) <= 0:
        link = "identity"
    clip = clip_of(np.concatenate([part.scores.ravel() for part in scored])) if link == "logistic" else 0.0
    if len(folds) > 1 and pool is not None:
        noise = noise_of([scores[2] for scores in by_fold], folds, link, clip)
    alignment = 0.0
    if folds and served is not None:
        of_folds, of_served = ([on_link(part.scores[:, 0], link, clip) for part in each] for each in (parts, [served]))
        alignment = align(of_folds, of_served[0])
    several = [part.scores for part in parts if len(part.scores) > 1]  # parts of one row say nothing
    several = several or [np.concatenate([part.scores for part in parts])]
    return CrossFit(
        replicas=replicas,
        target=plan.y,
        link=link,
        pool=Scored.joined(parts, count or different),
        labeled=Scored.joined(labeled, different) if folds else None,
        served_pool=served,
        clip=clip,
        noise=noise,
        alignment=alignment,
        of_fold=parts[0],
        constant=all(not np.ptp(x[:, 0]) > 1e-9 * np.abs(x[:, 0]).max() for x in several),
    )


def train(
    plan: ReplicaPlan,
    folds: Folds,
    pool: Any,
    count: int,
    predict: Predict,
    n_jobs: int | None,
    teacher: Teacher | None = None,
) -> tuple[Replicas, list[list[Scored]]]:
    """Train all models in one pool of processes.

    Return those of all rows, and for each fold the scores of its test rows and, with a pool of `count` rows, of its
    share of the pool and of a sample that all folds score. Models of folds are not kept.

    Several folds score each row of a small pool, so that differences between models average out. A large one is divided
    between folds, which saves time. Replicas are trained on all rows only if there are no folds.
    """
    jobs, times = plan.jobs(alone=bool(folds)), max(1, _SCORED_ROWS // max(count, 1))
    if len(folds) < _FEW_FOLDS and count <= _SERVED_ROWS:  # the error of one model is a large part of the score
        times = max(times, 2)
    first = np.random.default_rng([plan.seed, count]).permutation(count) % max(len(folds), 1)
    common = np.arange(0, count, max(1, count // _COMMON_ROWS))
    for number, (rows, test) in enumerate(folds):
        share = None if times >= len(folds) else np.flatnonzero((number - first) % len(folds) < times)
        sources: list[tuple[Any, Rows | None]] = [(plan.X, test)]
        if pool is not None:
            sources += [(pool, share), (pool, common)]
        jobs += plan.jobs(rows, number + 1, partial(_score, predict, sources))
        if teacher is not None:
            weights = {} if plan.weights is None else {"sample_weight": plan.weights[rows]}
            score = partial(_score, predict, [(teacher.rows, test), (teacher.pool, share), (teacher.pool, common)])
            jobs.append((clone(teacher.model), teacher.rows, plan.y, rows, weights, score))
    done = run_jobs(jobs, n_jobs, plan.begin(len(jobs)))
    of_all, width = 1 if folds else plan.count, plan.count + (teacher is not None)
    by_fold = []
    for i in range(of_all, len(done), width):  # the scores of a teacher come last
        parts = [np.column_stack(columns) for columns in zip(*done[i : i + width], strict=True)]
        by_fold.append([Scored(x[:, : plan.count], teacher=None if teacher is None else x[:, -1]) for x in parts])
    if plan.by_seeds and folds:
        plan.check_seeds(*by_fold[0][0].scores.T[:2])
    return plan.replicas(done[:of_all]), by_fold


def _score(predict: Predict, sources: list[tuple[Any, Rows | None]], model: Any) -> list[Array]:
    """Return predictions for some rows, or all, of each source."""
    try:
        return [predict(model, X if rows is None else take_rows(X, rows)) for X, rows in sources]
    except Exception as error:  # each library has exceptions of its own
        raise UncurseError(f"the models cannot score X or the pool: {' '.join(str(error).split())}") from None


def clip_of(scores: Array) -> float:
    """Return how far from 0 and 1 probabilities of exactly 0 or 1 are put; 0 if there are none.

    A forest of 100 trees predicts 0 where the rate may be 1%. It is put at half of the smallest predictions, the lowest
    hundredth: far outside, it would pass for noise.
    """
    distance = np.minimum(scores, 1 - scores)
    inside = distance[distance > 0]
    if len(inside) == scores.size:
        return 0.0
    return max(CLIP, float(np.quantile(inside, 0.01)) / 2) if len(inside) else CLIP


def on_link(scores: Array, link: str, clip: float = 0.0) -> Array:
    """Return predictions as scores of the link."""
    if link == "logistic":
        least = max(clip, CLIP)
        return np.asarray(logit(np.clip(scores, least, 1 - least)), np.float64)
    return np.log(scores) if link == "log" else scores


# ---------------------------------------------------------------------------- align


def align(folds: Sequence[Array], served: Array) -> float:
    """Return the mean difference between the upper quantiles of the pool's scores by fold models and by the served one.

    Models of folds are trained on fewer rows, and may stop at another step, so their scores differ in level and noise.
    The difference where rows are selected counts: the level of the whole pool is that of the rows at the bottom.
    """
    upper = 1 - np.geomspace(*_UPPER, 12)
    return float(np.mean([np.quantile(part, upper) for part in folds]) - np.mean(np.quantile(served, upper)))


def noise_of(folds: Sequence[Scored], splits: Folds, link: str, clip: float) -> float:
    """Return the noise variance of a served score, from the scores that the models of all folds give the same rows.

    The bootstraps of two folds differ because their draws differ, and because the rows of the folds do. The second
    part is their covariance with the models of these folds, and is subtracted. The distance of one bootstrap to
    its own model would be too large for trees. The served model has more rows, and its noise falls with their number.
    """
    scores = np.stack([on_link(part.scores, link, clip) for part in folds])
    scores -= scores.mean(axis=0)
    served, others = scores[:, :, :1], scores[:, :, 1:]
    variance = float(np.mean(others * (others - served))) * len(folds) / (len(folds) - 1)
    share = float(np.mean([len(kept) / (len(kept) + len(test)) for kept, test in splits]))
    return max(variance, 0.0) * share


# ---------------------------------------------------------------------------- folds


def make_folds(plan: ReplicaPlan, cv: Any) -> list[tuple[Rows, Rows]]:
    """Return training and test rows of each fold; rows of weight zero are in neither."""
    if cv is None:
        return []
    classes, splitter = is_classifier(plan.template), cv
    weighted = np.ones(len(plan.y), bool) if plan.weights is None else plan.weights > 0
    rows, groups = np.arange(len(plan.y)), plan.groups
    if isinstance(cv, int | np.integer):
        if int(cv) < 2:
            raise UncurseError(f"cv={cv!r}; pass 2 or more folds, or None for no labels")
        rows = np.flatnonzero(weighted)
        count = int(np.unique(plan.y[rows], return_counts=True)[1].min()) if classes else len(rows)
        units = "rows"
        if groups is not None and len(np.unique(groups[rows])) < count:
            count, units = len(np.unique(groups[rows])), "groups"
        number = min(int(cv), count)
        if number < 2:
            warn_user(f"there are too few {units} for two folds, so no labels are used")
            return []
        if number < int(cv):
            warn_user(f"there are {units} for {number} folds only, not for {cv}")
        if groups is None:
            splitter = (StratifiedKFold if classes else KFold)(number, shuffle=True, random_state=plan.seed)
        else:
            splitter = (StratifiedGroupKFold if classes else GroupKFold)(number)
    X, y, own = take_rows(plan.X, rows), plan.y[rows], None if groups is None else groups[rows]
    try:
        splits = [(rows[kept], rows[test]) for kept, test in check_cv(splitter, y, classifier=classes).split(X, y, own)]
    except (TypeError, ValueError, IndexError) as error:
        raise UncurseError(f"cv={type(splitter).__name__} does not split the rows: {error}") from None
    folds = [(kept[weighted[kept]], test[weighted[test]]) for kept, test in splits if weighted[test].any()]
    if not folds:
        raise UncurseError(f"cv={cv!r} gives no folds; pass folds with rows, or None for no labels")
    for i, (kept, _) in enumerate(folds if classes else []):
        if len(np.unique(plan.y[kept])) < 2:
            raise UncurseError(
                f"the training rows of fold {i} have one class; use fewer folds, other groups, or cv=None"
            )
    return folds
