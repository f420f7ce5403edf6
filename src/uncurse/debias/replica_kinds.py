"""Kinds of replica: how the score columns of a pool are related, and what follows from it.

To add a kind, write a subclass of `ReplicaKind`, list it in `KINDS`, and its name in `cli/options.py` and `cli/fit.py`.
What trains replicas, `estimators/replicas.py` and `deep/`, makes columns of some of these kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence, Moments, ReplicaCounts
from ..evidence.replica_cells import ReplicaCells
from ..validation import check_choice, warn_user

_ALIKE = 1.5  # ratio of standard deviations; with a larger one, maps of such seeds are off by 5% and more
_MIN_ROWS = 1_000  # with fewer rows the ratio is not judged
_SLOPES = (0.5, 2.0)  # a snapshot whose scores vary less than half as much is another model


class ReplicaSummary(NamedTuple):
    """Mean and variance of the replicas of each cell, each replica corrected for its own level."""

    mean: Array  # over the models that estimate the truth
    variance: Array
    weight: Array
    models: int  # in the mean: its noise is σ²/models
    freedom: int  # of the variance
    level: float  # mean of `mean` minus that of the served score
    served_models: int = 1  # in the served score: its noise is σ²/served_models


class ReplicaKind(ABC):
    """How the columns are related; column 0 is the served score."""

    name: ClassVar[str]
    least_columns: ClassVar[int] = 2
    too_few: ClassVar[str] = "column 0 is the served model, each bootstrap another column"
    #: Number of columns that add no independent difference between replicas.
    without_difference: ClassVar[int] = 1
    #: Whether the served column is distributed like the others, so that the mean of all is a better score.
    exchangeable: ClassVar[bool] = False
    #: Whether all columns are of models that are trained alike, so that they vary alike.
    trained_alike: ClassVar[bool] = False
    #: Whether column 0 holds the served score. If not, calibrators and evidence have no cells of it.
    served_is_a_column: ClassVar[bool] = True
    #: What `Auto` says if the labels show noise that the replicas do not.
    if_noise_is_hidden: ClassVar[str] = "the scores vary more than the labels support, and the replicas do not show it"
    #: Typical error of a label-free correction, as a share of it. Bootstraps vary more than the model itself if rows
    #: are few for its parameters, and less if it memorises rows. A penalty may have done the correction already.
    correction_error: ClassVar[float] = 0.0
    #: Whether a served score that exceeds the others on some rows shows that it selected these rows.
    shows_selection: ClassVar[bool] = False
    #: Why there are no intervals without labels; empty if the replicas show how training again moves predictions.
    no_interval: ClassVar[str] = ""

    def evidence(self, evidence: Evidence) -> Evidence:
        """Return evidence whose moments have the served score in column 0."""
        return evidence

    def cells(self, counts: ReplicaCounts) -> ReplicaCells:
        """Return the cells of replica counts, with the served score in column 0."""
        return counts.cells()

    @abstractmethod
    def noise_variance(self, covariance: Array) -> Array:
        """Return the noise variance V of the served score from covariances (ddof 0) of shape (..., S, S)."""

    def differences(self, columns: int) -> int:
        """Return the number of independent differences between replicas behind V."""
        return columns - self.without_difference

    @abstractmethod
    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Summarize the replicas of each cell; `level` is that of a larger set that the rows are part of."""

    @abstractmethod
    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the variance of the mean logit of the predictions, and its degrees of freedom.

        It is estimated from `levels`, the differences between the mean logits of replicas.
        """

    def check_columns(self, count: int) -> None:
        """Raise UncurseError if there are too few score columns."""
        if count < self.least_columns:
            raise UncurseError(
                f"there are {count} score columns and replicas={self.name!r} needs {self.least_columns}; {self.too_few}"
            )


class Seeds(ReplicaKind):
    """Models that differ only by their seed; the served one is one of them."""

    name = "seeds"
    trained_alike = True
    too_few = "train the model once more with another seed"
    exchangeable = True
    shows_selection = True
    if_noise_is_hidden = (
        "the replicas agree more closely than the labels do; replicas by seed do not show the noise of data"
    )

    def noise_variance(self, covariance: Array) -> Array:
        """Return (tr C − 1ᵀC1/S) / (S − 1), the mean variance across centred replicas."""
        size = covariance.shape[-1]
        noise = (np.trace(covariance, axis1=-2, axis2=-1) - covariance.sum(axis=(-2, -1)) / size) / (size - 1)
        return np.asarray(np.maximum(noise, 0.0))

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return mean and variance of all columns."""
        s = cells.n_replicas
        share = (s - 1) / s
        gap_level = cells.gap_level if level is None else level / share
        variance = ((s - 2) * cells.spread + share * cells.gap_squared(gap_level)) / (s - 1)
        return ReplicaSummary(cells.served + share * cells.gap, variance, cells.weight, s, s - 1, share * gap_level)

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the variance of the mean of all columns, which predictions follow."""
        return float(np.var(levels, ddof=1)) / len(levels), len(levels) - 1


class Bootstrap(ReplicaKind):
    """Column 0 is trained on all rows, and each other column on its own bootstrap sample; V is between the others."""

    name = "bootstrap"
    correction_error = 0.5
    least_columns = 3
    without_difference = 2

    def noise_variance(self, covariance: Array) -> Array:
        """Return the mean variance across the centred bootstraps."""
        return Seeds().noise_variance(covariance[..., 1:, 1:])

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return the served score, and the variance of the bootstraps."""
        return ReplicaSummary(cells.served, cells.spread, cells.weight, 1, cells.n_replicas - 2, 0.0)

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the variance of the bootstraps, which is that of the served model."""
        return float(np.var(levels[1:], ddof=1)), len(levels) - 2


class Anchored(ReplicaKind):
    """Bootstraps around column 0 of a model without randomness of its own: V is the variance of their differences."""

    name = "anchored"
    correction_error = 0.5

    def noise_variance(self, covariance: Array) -> Array:
        """Return the mean of Var(l_b − l_served) over the bootstraps."""
        others = np.diagonal(covariance, axis1=-2, axis2=-1)[..., 1:]
        noise = (others + covariance[..., :1, 0] - 2 * covariance[..., 0, 1:]).mean(axis=-1)
        return np.asarray(np.maximum(noise, 0.0))

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return the served score, and the variance of the bootstraps about it."""
        freedom = cells.n_replicas - 1
        squares = cells.gap_squared(cells.gap_level if level is None else level)
        variance = squares + (freedom - 1) / freedom * cells.spread
        return ReplicaSummary(cells.served, variance, cells.weight, 1, freedom, 0.0)

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the mean squared difference between a bootstrap and the served model."""
        return float(np.mean(np.square(levels[1:]))), len(levels) - 1


class Ensemble(ReplicaKind):
    """The served score is the mean of the columns, on the link. Its noise variance is V/S.

    `evidence` and `cells` put this mean before the S columns, so the other methods see S + 1 columns.
    """

    name = "ensemble"
    too_few = "pass a column for each member of the ensemble"
    without_difference = 2  # the mean, and one member
    served_is_a_column = False

    def evidence(self, evidence: Evidence) -> Evidence:
        """Return evidence whose moments have the mean in column 0; there are no cells of the mean."""
        groups = {name: self.evidence(part) for name, part in evidence.groups.items()}
        moments, size = evidence.moments, evidence.moments.n_replicas
        if moments.rows:
            moments = moments.transformed(np.vstack([np.full(size, 1 / size), np.eye(size)]))
        return replace(evidence, moments=moments, cells=None, groups=groups)

    def cells(self, counts: ReplicaCounts) -> ReplicaCells:
        """Return cells whose served score is the mean of the members."""
        members = counts.cells()
        mean, variance, *_ = Seeds().summarize(members)
        levels = np.append(0.0, members.levels - members.levels.mean())
        return replace(members, served=mean, gap=np.zeros_like(mean), spread=variance, levels=levels)

    def check_columns(self, count: int) -> None:
        """Raise UncurseError if there are too few members."""
        super().check_columns(count - 1)

    def noise_variance(self, covariance: Array) -> Array:
        """Return V/S, with V the mean variance across the centred members."""
        members = covariance[..., 1:, 1:]
        return np.asarray(Seeds().noise_variance(members) / members.shape[-1])

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return the served mean, and the variance of the members."""
        size = cells.n_replicas - 1
        return ReplicaSummary(cells.served, cells.spread, cells.weight, size, size - 1, 0.0, size)

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the variance of the mean of the members."""
        size = len(levels) - 1
        return float(np.var(levels[1:], ddof=1)) / size, size - 1


class Snapshots(Seeds):
    """Column 0 is the served model, and each other column an earlier checkpoint of the same training run.

    An earlier checkpoint has learned less: its true score is b times that of the served model. The slope b follows
    from the covariances by Deming regression, and the columns are divided by it before the formulas of `Seeds`. The
    level is that of the served score, and its error is not known: without labels there are no intervals.
    """

    name = "snapshots"
    trained_alike = False
    too_few = "keep an earlier checkpoint of the served model"
    shows_selection = False  # with a slope, the difference of the columns changes with the score
    no_interval = (
        "snapshots of one training do not show how much another training would move the predictions; pass labelled "
        "rows, or replicas by seed"
    )
    if_noise_is_hidden = (
        "the snapshots agree more closely than the labels do; take earlier ones, or train a second model"
    )

    def cells(self, counts: ReplicaCounts) -> ReplicaCells:
        """Return cells in which the snapshots have the level and the slope of the served score."""
        cells = counts.cells()
        away, covariance = _served_and_others(cells)
        slope = float(_deming_slope(covariance, cells.n_replicas))
        # The level of an earlier checkpoint says nothing about that of the served model.
        gap, levels = away[1] / slope - away[0], np.zeros_like(cells.levels)
        return replace(cells, gap=gap, spread=cells.spread / slope**2, levels=levels)

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return mean and variance of all columns, the variance scaled to that of the served score."""
        (served, both), (_, others) = _served_and_others(cells)[1]
        size, known = cells.n_replicas, served > both
        ratio = (others - both) * (size - 1) / (served - both) if known else 1.0  # 1/b²
        factor = size / (1 + (size - 1) * float(np.clip(ratio, *np.square(_SLOPES))))
        summary = super().summarize(cells, level)
        return summary._replace(variance=factor * summary.variance)

    def noise_variance(self, covariance: Array) -> Array:
        """Return V of the served score; that of a snapshot divided by b is V/b²."""
        size = covariance.shape[-1]
        sums = np.full((size, 2), 1 / (size - 1))
        sums[0], sums[1:, 0] = (1.0, 0.0), 0.0
        slope = _deming_slope(sums.T @ covariance @ sums, size)
        scale = np.ones(covariance.shape[:-1])
        scale[..., 1:] = 1 / slope[..., None]
        noise = super().noise_variance(covariance * scale[..., None] * scale[..., None, :])
        return np.asarray(noise * size / (1 + (size - 1) / np.square(slope)))


def warn_if_unlike(kind: ReplicaKind, moments: Moments) -> None:
    """Warn if the columns vary too differently for models that are trained alike."""
    variance = np.diagonal(moments.covariance)
    if not kind.trained_alike or moments.effective_rows < _MIN_ROWS or not (variance > 0).all():
        return
    ratios = np.sqrt(variance[1:] / variance[0])
    worst = int(np.argmax(np.abs(np.log(ratios))))
    if abs(np.log(ratios[worst])) > np.log(_ALIKE):
        warn_user(
            f"the scores of column {worst + 1} vary {ratios[worst]:.2g} times as much as the served ones, so models "
            "differ by more than the seed, and predictions can be off by 5% to 20%: train them alike, and long enough"
        )


def _served_and_others(cells: ReplicaCells) -> tuple[Array, Array]:
    """Return served score and mean of the other columns about their means, (2, K), and their covariances (2, 2)."""
    w, mean = cells.weight / cells.weight.sum(), cells.served + cells.gap
    away = np.stack([cells.served - w @ cells.served, mean - w @ mean])
    return away, (away * w) @ away.T


def _deming_slope(covariance: Array, columns: int) -> Array:
    """Return the slope of the mean of the other columns on the served score, from their covariances (..., 2, 2).

    Both have noise; that of the mean has 1/(S − 1) of the variance. The slope is 1 if the columns are unrelated.
    """
    ratio, both = 1 / (columns - 1), covariance[..., 0, 1]
    difference = covariance[..., 1, 1] - ratio * covariance[..., 0, 0]
    related = both > 0
    root = np.sqrt(np.square(difference) + 4 * ratio * np.square(both))
    slope = (difference + root) / (2 * np.where(related, both, 1.0))
    return np.asarray(np.clip(np.where(related, slope, 1.0), *_SLOPES))


#: Kinds by name: the values of the parameter ``replicas``.
KINDS: dict[str, ReplicaKind] = {
    kind.name: kind for kind in (Seeds(), Bootstrap(), Anchored(), Ensemble(), Snapshots())
}


def replica_kind(replicas: str) -> ReplicaKind:
    """Return the kind of this name; raise UncurseError if there is none."""
    return KINDS[check_choice("replicas", replicas, tuple(KINDS))]
