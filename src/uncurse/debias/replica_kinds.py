"""Kinds of replica: how the score columns of a pool are related, and what follows from it.

To add a kind, write a subclass of `ReplicaKind` and list it in `KINDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import ReplicaCells
from ..validation import check_choice


class ReplicaSummary(NamedTuple):
    """Mean and variance of the replicas of each cell, each replica corrected for its own level."""

    mean: Array  # over the models that estimate the truth
    variance: Array
    weight: Array
    models: int  # in the mean: its noise is σ²/models
    freedom: int  # of the variance
    level: float  # mean of `mean` minus that of the served score


class ReplicaKind(ABC):
    """How the columns are related; column 0 is the served score."""

    name: ClassVar[str]
    least_columns: ClassVar[int] = 2
    too_few: ClassVar[str] = "column 0 is the served model, each bootstrap another column"
    #: Whether the served column is distributed like the others, so that the mean of all is a better score.
    exchangeable: ClassVar[bool] = False

    @abstractmethod
    def noise_variance(self, covariance: Array) -> Array:
        """Return the noise variance V of the served score from covariances (ddof 0) of shape (..., S, S)."""

    @abstractmethod
    def differences(self, columns: int) -> int:
        """Return the number of independent differences between replicas behind V."""

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
    too_few = "train the model once more with another seed"
    exchangeable = True

    def noise_variance(self, covariance: Array) -> Array:
        """Return (tr C − 1ᵀC1/S) / (S − 1), the mean variance across centred replicas."""
        size = covariance.shape[-1]
        noise = (np.trace(covariance, axis1=-2, axis2=-1) - covariance.sum(axis=(-2, -1)) / size) / (size - 1)
        return np.asarray(np.maximum(noise, 0.0))

    def differences(self, columns: int) -> int:
        """Return S − 1."""
        return columns - 1

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
    least_columns = 3

    def noise_variance(self, covariance: Array) -> Array:
        """Return the mean variance across the centred bootstraps."""
        return Seeds().noise_variance(covariance[..., 1:, 1:])

    def differences(self, columns: int) -> int:
        """Return S − 2."""
        return columns - 2

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return the served score, and the variance of the bootstraps."""
        return ReplicaSummary(cells.served, cells.spread, cells.weight, 1, cells.n_replicas - 2, 0.0)

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the variance of the bootstraps, which is that of the served model."""
        return float(np.var(levels[1:], ddof=1)), len(levels) - 2


class Anchored(ReplicaKind):
    """Bootstraps around column 0 of a model without randomness of its own: V is the variance of their differences."""

    name = "anchored"

    def noise_variance(self, covariance: Array) -> Array:
        """Return the mean of Var(l_b − l_served) over the bootstraps."""
        others = np.diagonal(covariance, axis1=-2, axis2=-1)[..., 1:]
        noise = (others + covariance[..., :1, 0] - 2 * covariance[..., 0, 1:]).mean(axis=-1)
        return np.asarray(np.maximum(noise, 0.0))

    def differences(self, columns: int) -> int:
        """Return S − 1."""
        return columns - 1

    def summarize(self, cells: ReplicaCells, level: float | None = None) -> ReplicaSummary:
        """Return the served score, and the variance of the bootstraps about it."""
        freedom = cells.n_replicas - 1
        squares = cells.gap_squared(cells.gap_level if level is None else level)
        variance = squares + (freedom - 1) / freedom * cells.spread
        return ReplicaSummary(cells.served, variance, cells.weight, 1, freedom, 0.0)

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the mean squared difference between a bootstrap and the served model."""
        return float(np.mean(np.square(levels[1:]))), len(levels) - 1


#: Kinds by name: the values of the parameter ``replicas``.
KINDS: dict[str, ReplicaKind] = {kind.name: kind for kind in (Seeds(), Bootstrap(), Anchored())}


def replica_kind(replicas: str) -> ReplicaKind:
    """Return the kind of this name; raise UncurseError if there is none."""
    return KINDS[check_choice("replicas", replicas, tuple(KINDS))]


__all__ = ["KINDS", "ReplicaKind", "ReplicaSummary", "replica_kind"]
