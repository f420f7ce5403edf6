"""Convert rows to `Evidence`: arrays here, and batches of logs by `add_rows`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..links import logit, to_link
from ..threads import chunks, in_threads, one_blas_thread, shares
from ..validation import (
    LARGEST_SCORE,
    check_counts,
    check_finite,
    check_length,
    check_numbers,
    check_scores,
    check_weights,
    segment_rows,
    split_trials,
    warn_if_probabilities,
)
from .evidence import Evidence, merged
from .histogram import Histogram, ReplicaTable
from .moments import Moments
from .spec import LogSpec

_CHUNK = 1 << 18  # rows whose scores are converted at once


def empty_evidence(spec: LogSpec, histograms: bool = True) -> Evidence:
    """Return evidence without rows, for `add_rows`."""
    counted = histograms and spec.scale != "value"
    served, replicas = Histogram() if counted else None, Histogram() if counted and len(spec.scores) > 1 else None
    teacher = None
    if spec.teacher is not None:  # evidence of two columns, the served score and that of the teacher
        columns = replace(spec, scores=(spec.scores[0], spec.teacher), teacher=None, segment=None)
        teacher = empty_evidence(columns, histograms)
    return Evidence(spec, Moments(spec.link), served, replicas, teacher=teacher)


def add_rows(
    evidence: Evidence, scores: Float, labels: NDArray[Any] | None, weights: Array | None, trials: Array | None = None
) -> None:
    """Add rows to evidence in place: scores in `spec.columns` (n, S), labels, weights and trials (n,)."""
    spec, counts = evidence.spec, None
    for part in chunks(len(scores), _CHUNK):
        columns = scores[part].T.astype(np.float64, order="C")
        y, w, n = (None if column is None else column[part] for column in (labels, weights, trials))
        if y is not None and n is not None:
            rows, y, counts = split_trials(y, n)
            columns, w = columns[:, rows], None if w is None else w[rows]
        linked, logits = converted(columns, spec)
        own = len(spec.scores)
        _add(evidence, linked[:own], logits[:own], y, w, counts)
        if evidence.teacher is not None:
            ends = [0, own]
            _add(evidence.teacher, linked[ends], logits[ends], y, w, counts)


def _add(evidence: Evidence, linked: Float, logits: Float, labels: NDArray[Any] | None, *weights: Array | None) -> None:
    """Add rows to evidence: columns of scores of the link and of logits, labels, weights and counts."""
    evidence.moments.add(linked, *weights)
    if evidence.served is not None:
        evidence.served.add(logits[:1], labels, *weights)
    if evidence.replicas is not None:
        evidence.replicas.add(logits, labels, *weights)


def converted(columns: Array, spec: LogSpec) -> tuple[Float, Float]:
    """Return scores of the link, and logits of the served model: the one place where scores are converted."""
    if spec.scale == "value":
        if spec.link == "log" and columns.min() <= 0:
            raise UncurseError(f"a score is {columns.min():g}, which has no logarithm; use link='identity'")
        return to_link(columns, "value", spec.link), columns
    if spec.scale == "probability" and spec.link != "identity" and len(columns) > 1:
        ends = int(np.count_nonzero((columns == 0) | ((columns == 1) & (spec.link == "logistic"))))
        if ends:
            raise UncurseError(
                f"{ends} probabilities are exactly 0 or 1, where the score of the {spec.link} link is infinite; pass "
                "logits, or clip them first, for example np.clip(p, 1e-6, 1 - 1e-6)"
            )
    logits = logit(columns) if spec.scale == "probability" else columns
    if spec.logit_offset:
        logits = logits + spec.logit_offset
    elif spec.link == "identity" and spec.scale == "probability":
        return columns, logits
    return to_link(logits, "logit", spec.link), logits


def from_arrays(
    scores: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    spec: LogSpec | None = None,
    segments: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    trials: ArrayLike | None = None,
    histograms: bool = True,
) -> Evidence:
    """Convert arrays to evidence: scores (n, S), the served one first, labels (0 or 1), segments and weights of rows.

    With `trials`, the label of a row is the number of its successes: the row counts as one row per trial.
    `spec` describes the columns; by default they are logits in columns named ``column 0``, ``column 1``, … Without
    histograms evidence has moments only.

    >>> from_arrays([[0.0, 0.5], [1.0, 0.5]], [0, 1]).served.label
    array([0., 1.])
    """
    array = check_numbers(scores, "scores")
    if array.ndim != 2 or not array.size:
        raise UncurseError(f"the scores have shape {array.shape}; pass rows (n, S) with the served model in column 0")
    if array.shape[1] > max(64, len(array)):
        raise UncurseError(f"the scores have shape {array.shape}; columns are replicas: pass the transpose")
    weights = check_weights(sample_weight, len(array))
    y, n = (None, None) if labels is None else check_counts(labels, trials, len(array), "labels")
    if trials is not None and labels is None:
        raise UncurseError("trials need labels, the successes of each row; pass both")
    if not isinstance(spec, LogSpec | None):
        raise UncurseError(f"spec is a {type(spec).__name__}; pass a LogSpec")
    spec = LogSpec(column_names(array.shape[1])) if spec is None else spec
    if len(spec.columns) != array.shape[1]:
        raise UncurseError(f"there are {array.shape[1]} score columns, not {len(spec.columns)}; pass the same columns")
    spec = replace(
        spec,
        label=None if y is None else spec.label or "label",
        weight=None if weights is None else spec.weight or "weight",
        segment=None if segments is None else spec.segment or "segment",
        trials=None if n is None else spec.trials or "trials",
    )
    if spec.scale == "logit":
        warn_if_probabilities(array, "the scores")
    elif spec.scale == "probability" and not (array.min() >= 0 and array.max() <= 1):
        check_scores(array, "probability", ndim=2)
    try:
        total = _sums(spec, histograms, array, y, weights, n)
    except UncurseError:
        check_finite(array, "scores", LARGEST_SCORE)  # names the row among all
        raise
    parts = {}
    if segments is not None:
        for name, rows in zip(*segment_rows(segments, len(array)), strict=True):
            own = _sums(spec, histograms, array[rows], *(None if c is None else c[rows] for c in (y, weights, n)))
            if own.weight:
                parts[name] = own
    return replace(total, segments=parts)


def _sums(spec: LogSpec, histograms: bool, scores: Float, *columns: NDArray[Any] | None) -> Evidence:
    """Sum up rows, one thread per core."""

    def sums_of(rows: slice) -> Evidence:
        part = empty_evidence(spec, histograms)
        add_rows(part, scores[rows], *(None if column is None else column[rows] for column in columns))
        return part

    with one_blas_thread():  # once, because to change the number of threads costs more than to add up a chunk
        return merged(in_threads(sums_of, shares(len(scores))))


def sample_table(scores: Float, spec: LogSpec, most: int) -> ReplicaTable:
    """Return replicas of at most `most` rows of an array."""
    rows = scores[:: -(-len(scores) // most)].astype(np.float64)
    return ReplicaTable.of_rows(converted(rows.T, spec)[1].T)


def column_names(count: int) -> tuple[str, ...]:
    """Return names for the columns of an array."""
    return tuple(f"column {i}" for i in range(count))


def pool_evidence(
    pool: ArrayLike | Evidence,
    labeled: object,
    *,
    scale: str,
    link: str = "logistic",
    negative_sampling_rate: float | None = None,
    segments: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    histograms: bool = True,
    teacher: ArrayLike | None = None,
) -> Evidence:
    """Return the evidence of a pool that is passed as an array or as evidence.

    An array takes its column names from labeled evidence, if there is any.
    """
    if isinstance(pool, Evidence):
        if segments is not None or sample_weight is not None:
            raise UncurseError("segments and sample_weight go with arrays; evidence already holds its own")
        if pool.spec.top_k is not None:
            raise UncurseError(f"the pool holds only the {pool.spec.top_k}; collect all candidates")
        _check_options(pool, "pool", scale=scale, link=link, negative_sampling_rate=negative_sampling_rate)
        return pool
    array = check_numbers(pool, "pool")
    names = column_names(array.shape[1] if array.ndim == 2 else 1)
    if isinstance(labeled, Evidence) and len(labeled.spec.scores) == len(names):
        names = labeled.spec.scores
    spec = LogSpec(names, scale, link=link, negative_sampling_rate=negative_sampling_rate)
    if teacher is not None:
        array, spec = _with_teacher(array, teacher, "pool"), replace(spec, teacher="teacher")
    return from_arrays(array, spec=spec, segments=segments, sample_weight=sample_weight, histograms=histograms)


def _with_teacher(scores: Float, teacher: ArrayLike, name: str) -> Float:
    """Return scores with those of a teacher in a last column."""
    column = check_numbers(teacher, "teacher")
    check_length(column, len(scores), f"the column of the teacher's scores of the {name}")
    return np.column_stack([scores, column])


def labeled_evidence(labeled: Any, pool: Evidence, teacher: ArrayLike | None = None) -> Evidence:
    """Return the evidence of labeled rows that are passed as ``(scores, labels[, weights])`` or as evidence."""
    spec = pool.spec
    if isinstance(labeled, Evidence):
        evidence = labeled
        names = ("scores", "scale", "link", "negative_sampling_rate", "teacher")
        _check_options(evidence, "labeled rows", **{name: getattr(spec, name) for name in names})
    else:
        if not isinstance(labeled, tuple | list) or len(labeled) not in (2, 3) or labeled[1] is None:
            raise UncurseError("labeled must be (scores, labels), (scores, labels, weights) or Evidence with labels")
        scores, labels, *weights = labeled
        array = check_numbers(scores, "labeled scores")
        if array.ndim != 2 or array.shape[1] != len(spec.scores):
            raise UncurseError(
                f"the labeled scores have shape {array.shape}; pass the {len(spec.scores)} replicas "
                "of the pool, shape (m, S)"
            )
        own = replace(spec, label=None, weight=None, segment=None, trials=None)
        if teacher is not None:
            array = _with_teacher(array, teacher, "labeled sample")
        evidence = from_arrays(array, labels, spec=own, sample_weight=weights[0] if weights else None)
    if evidence.spec.label is None:
        raise UncurseError("the labeled evidence holds no labels; collect it with its label column")
    if evidence.served is not None and evidence.served.label is not None:
        check_classes(evidence.served.weight, evidence.served.label)
    return evidence


def check_classes(weight: Array, label: Array) -> None:
    """Raise an error unless cells of these weights and label sums hold labels of both classes."""
    for missing, count in (("positives", label.sum()), ("negatives", (weight - label).sum())):
        if count <= 0:
            raise UncurseError(f"the labels have no {missing}; add rows until both classes occur")


def _check_options(evidence: Evidence, role: str, **options: object) -> None:
    for name, wanted in options.items():
        actual = getattr(evidence.spec, name)
        if wanted != actual:
            shown = [", ".join(value) if isinstance(value, tuple) else value for value in (actual, wanted)]
            raise UncurseError(f"{name} in the {role}: {shown[0]}, not {shown[1]}; use the same {name}")


def best_of_each(score: Float, request: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Tell which rows are among the best `k` of their request; of equal scores the first."""
    import polars as pl

    rows = pl.DataFrame({"score": score, "request": request})
    is_best = pl.col("score").rank("ordinal", descending=True).over("request") <= k
    return rows.select(is_best).to_series().to_numpy()
