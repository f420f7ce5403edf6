"""Convert arrays to `Evidence`. Readers of logs use the same sums, `EvidenceSums`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..links import to_link
from ..validation import check_labels, check_numbers, check_weights, group_rows, warn_if_probabilities
from .cells import Cells
from .evidence import Evidence
from .moments import Moments
from .replica_counts import ReplicaCounts
from .spec import LogSpec

_BLOCKS, _LATER_BLOCKS = 32, 4  # jackknife blocks: 33 to 64 of comparable size after merging
_MAX_COLUMNS = 1_000  # an array with more columns is probably transposed


@dataclass(frozen=True)
class Parts:
    """Parts of the evidence to build besides the moments."""

    cells: bool = False
    replica_counts: bool = False


class EvidenceSums:
    """Running sums from which `Evidence` is built; a streaming pass has one for each thread."""

    def __init__(self, spec: LogSpec, parts: Parts, blocks: int = _BLOCKS) -> None:
        if parts.replica_counts and (len(spec.scores) < 2 or not spec.has_logits):
            raise UncurseError(
                f"replica counts need two or more columns of logits or probabilities, not {', '.join(spec.scores)} "
                f"with scale={spec.scale!r}; name a replica, or leave them out"
            )
        self.spec = spec
        self.moments = Moments(spec.link, blocks)
        self.cells = Cells() if parts.cells and spec.has_logits else None
        self.replica_counts = ReplicaCounts() if parts.replica_counts else None

    def add(self, scores: Float, labels: NDArray[Any] | None, weights: Array | None) -> None:
        """Add rows: scores (n, S), labels and weights (n,)."""
        if weights is not None and not weights.any():
            return  # a batch of a log may have zero weight
        spec, offset = self.spec, self.spec.logit_offset
        one_column = self.cells is not None and scores.shape[1] == 1 and spec.scale == "probability"
        if not (one_column and ((scores <= 0) | (scores >= 1)).any()):  # cells take probabilities of exactly 0 and 1
            self.moments.update(scores, scale=spec.scale, sample_weight=weights, logit_offset=offset)
        self.moments.blocks = min(self.moments.blocks, _LATER_BLOCKS)
        if self.cells is not None:
            served, scale = scores[:, 0], spec.scale
            if offset:
                served, scale = to_link(served.astype(np.float64), scale, "logistic") + offset, "logit"
            self.cells.update(served, labels, scale=scale, sample_weight=weights)
        if self.replica_counts is not None:
            self.replica_counts.update(scores, labels, scale=spec.scale, sample_weight=weights, logit_offset=offset)

    def merge(self, other: EvidenceSums) -> None:
        """Add the sums of another thread."""
        self.moments.merge(other.moments)
        if self.cells is not None and other.cells is not None:
            self.cells.merge(other.cells)
        if self.replica_counts is not None and other.replica_counts is not None:
            self.replica_counts.merge(other.replica_counts)

    def evidence(self) -> Evidence:
        """Return the evidence of all rows that were added; without moments if some rows have none."""
        complete = self.cells is None or self.moments.rows == self.cells.rows
        moments = self.moments if complete else Moments(self.spec.link)
        return Evidence(self.spec, moments, self.cells, self.replica_counts)


def from_arrays(
    scores: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    spec: LogSpec | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    cells: bool = True,
    replica_counts: bool = False,
) -> Evidence:
    """Convert arrays to evidence.

    Parameters
    ----------
    scores : array-like of shape (n, S)
        Scores of the replicas, the served one first.
    labels, groups, sample_weight : array-like of shape (n,), optional
        Labels (0 or 1), group, and weight of each row; only ratios of weights matter.
    spec : LogSpec, optional
        Description of the columns; by default logits in columns named ``column 0``, ``column 1``, …
    cells, replica_counts : bool
        Parts to build besides the moments.

    Returns
    -------
    Evidence

    Examples
    --------
    >>> from_arrays([[0.0, 0.5], [1.0, 0.5]], [0, 1]).cells.label
    array([0., 1.])
    """
    array = check_numbers(scores, "scores")
    if array.ndim != 2 or not array.size:
        raise UncurseError(f"the scores have shape {array.shape}; pass rows (n, S) with the served model in column 0")
    weights = check_weights(sample_weight, len(array))
    y = None if labels is None else check_labels(labels, len(array))
    if not isinstance(spec, LogSpec | None):
        raise UncurseError(f"spec is a {type(spec).__name__}; pass a LogSpec")
    spec = LogSpec(column_names(array.shape[1])) if spec is None else spec
    if len(spec.scores) != array.shape[1]:
        raise UncurseError(f"there are {array.shape[1]} score columns, not {len(spec.scores)}; pass the same columns")
    spec = replace(
        spec,
        label=None if y is None else spec.label or "label",
        weight=None if weights is None else spec.weight or "weight",
        group=None if groups is None else spec.group or "group",
    )
    if spec.scale == "logit":
        warn_if_probabilities(array, "the scores")
    parts = Parts(cells, replica_counts)
    total = EvidenceSums(spec, parts)
    total.add(array, y, weights)
    by_group = {} if groups is None else evidence_by_group(array, y, weights, groups, spec, parts)
    return total.evidence().with_groups(by_group)


def evidence_by_group(
    scores: Float, labels: NDArray[Any] | None, weights: Array | None, groups: ArrayLike, spec: LogSpec, parts: Parts
) -> dict[str, Evidence]:
    """Return the evidence of each group that has any weight."""
    found = {}
    for name, rows in zip(*group_rows(groups, len(scores)), strict=True):
        y, w = (None if column is None else column[rows] for column in (labels, weights))
        if w is None or w.any():
            sums = EvidenceSums(spec, parts, blocks=1)
            sums.add(scores[rows], y, w)
            found[name] = sums.evidence()
    return found


def column_names(count: int) -> tuple[str, ...]:
    """Return names for the columns of an array."""
    if count > _MAX_COLUMNS:
        raise UncurseError(f"there are {count} score columns; columns are replicas: pass the transpose")
    return tuple(f"column {i}" for i in range(count))


def pool_evidence(
    pool: ArrayLike | Evidence,
    labelled: object,
    *,
    scale: str,
    link: str = "logistic",
    negative_rate: float | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    cells: bool = False,
    replica_counts: bool = False,
) -> Evidence:
    """Return the evidence of a pool that is passed as an array or as evidence.

    An array takes its column names from labelled evidence, if there is any.
    """
    if isinstance(pool, Evidence):
        if groups is not None or sample_weight is not None:
            raise UncurseError("groups and sample_weight go with arrays; evidence already holds its own")
        if pool.spec.top_k is not None:
            raise UncurseError(f"the pool holds only the {pool.spec.top_k}; collect all candidates")
        _check_options(pool, "pool", scale=scale, link=link, negative_rate=negative_rate)
        return pool
    array = check_numbers(pool, "pool")
    names = column_names(array.shape[1] if array.ndim == 2 else 1)
    if isinstance(labelled, Evidence) and len(labelled.spec.scores) == len(names):
        names = labelled.spec.scores
    spec = LogSpec(names, scale, link=link, negative_rate=negative_rate)
    return from_arrays(
        array, spec=spec, groups=groups, sample_weight=sample_weight, cells=cells, replica_counts=replica_counts
    )


def labelled_evidence(labelled: Any, pool: Evidence, *, cells: bool = False, replica_counts: bool = False) -> Evidence:
    """Return the evidence of labelled rows that are passed as ``(scores, labels[, weights])`` or as evidence."""
    spec = pool.spec
    if isinstance(labelled, Evidence):
        evidence = labelled
        names = ("scale", "link", "negative_rate")
        _check_options(evidence, "labelled rows", **{name: getattr(spec, name) for name in names})
        difference = spec.difference(evidence.spec, "scores")
        if difference:
            raise UncurseError(f"pool and labelled rows have different columns: {difference}; collect the same columns")
    else:
        if not isinstance(labelled, tuple | list) or len(labelled) not in (2, 3) or labelled[1] is None:
            raise UncurseError("labelled must be (scores, labels), (scores, labels, weights) or Evidence with labels")
        scores, labels, *weights = labelled
        array = check_numbers(scores, "labelled scores")
        if array.ndim != 2 or array.shape[1] != len(spec.scores):
            raise UncurseError(
                f"the labelled scores have shape {array.shape}; pass the {len(spec.scores)} replicas "
                "of the pool, shape (m, S)"
            )
        evidence = from_arrays(
            array,
            labels,
            spec=replace(spec, label=None, weight=None, group=None),
            sample_weight=weights[0] if weights else None,
            cells=cells,
            replica_counts=replica_counts,
        )
    if evidence.spec.label is None:
        raise UncurseError("the labelled evidence holds no labels; collect it with its label column")
    if cells:
        evidence.require("cells", "collect logits or probabilities")
    counts = evidence.replica_counts
    sums = evidence.cells if evidence.cells is not None or counts is None else counts.cells()
    if sums is not None and sums.label is not None:
        check_classes(sums.weight, sums.label)
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
            raise UncurseError(
                f"evidence of the {role} was collected with {name}={actual!r}, not {wanted!r}; use the same {name}"
            )
