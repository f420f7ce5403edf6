"""`ReplicaCells`: the filled cells of `ReplicaCounts` as arrays, the input of the methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from .replica_grid import Keys, expand

_MASS, _MASS_RATIO = 0.02, 2.5  # see `point_masses`
_ABOVE_CAP = 0.002  # largest share of outliers above a cap


@dataclass(frozen=True)
class ReplicaCells:
    """Filled cells of `ReplicaCounts`, made by `ReplicaCounts.cells`. All arrays but `levels` have shape (K,).

    >>> from uncurse import ReplicaCounts
    >>> cells = ReplicaCounts().update([[0.0, 1.0], [2.0, 2.5]]).cells()
    >>> cells.served.round(3), cells.gap.round(3), cells.levels
    (array([0., 2.]), array([1. , 0.5]), array([0.  , 0.75]))
    """

    served: Array  # logit
    gap: Array  # mean of the other replicas minus the served logit
    spread: Array  # variance of the other replicas about their mean, each corrected for its level; 0 for two replicas
    weight: Array  # Σw
    label: Array | None  # Σwy
    levels: Array  # (S,), mean logit of each replica minus that of the served one
    width: float  # of a cell
    effective_rows: float  # (Σw)² / Σw²

    @property
    def n_replicas(self) -> int:
        """Number of replicas, the served one included."""
        return len(self.levels)

    @property
    def gap_level(self) -> float:
        """Mean gap."""
        return float(self.levels[1:].mean())

    def gap_squared(self, level: float) -> Array:
        """Return the mean squared gap about `level` of each cell, with the variance inside a cell."""
        return np.asarray(np.square(self.gap - level) + self.width**2 / 12)

    def row_weights(self) -> tuple[Array, Array]:
        """Return weight and label sums (zero without labels) scaled to the effective number of rows."""
        factor = self.effective_rows / float(self.weight.sum())
        return self.weight * factor, np.zeros_like(self.weight) if self.label is None else self.label * factor

    @cached_property
    def descending(self) -> NDArray[np.intp]:
        """Order of the cells from the highest served logit to the lowest."""
        return np.argsort(-self.served, kind="stable")

    @cached_property
    def served_masses(self) -> Array:
        """Served logits that are floors, caps or default values, see `point_masses`."""
        order = np.argsort(self.served, kind="stable")
        served = self.served[order]
        starts = np.flatnonzero(np.concatenate([[True], np.diff(served) > 0]))
        return np.asarray(served[starts][point_masses(np.add.reduceat(self.weight[order], starts))])

    @property
    def cap(self) -> str:
        """Description of a cap on the served score; empty if there is none."""
        total = float(self.weight.sum())
        for served in self.served_masses[-1:].tolist():
            here = self.at(served)
            if float(self.weight[(self.served > served) & ~here].sum()) <= _ABOVE_CAP * total:
                share = float(self.weight[here].sum()) / total
                return f"{100 * share:.1f}% of the served scores are capped at a logit of about {served:.3g}"
        return ""

    def at(self, served: float, width: float = 0.0) -> NDArray[np.bool_]:
        """Mark the cells at a served logit, up to half the width of a cell, or of the grid that the logit is from."""
        return np.asarray(np.abs(self.served - served) <= max(self.width, width) / 2)

    def rescaled(self, slope: float, intercept: float) -> ReplicaCells:
        """Return the cells of the logits slope · l + intercept."""
        return replace(
            self,
            served=slope * self.served + intercept,
            gap=slope * self.gap,
            spread=slope**2 * self.spread,
            levels=slope * self.levels,
            width=slope * self.width,
        )


def replica_cells(
    numbers: list[Keys],
    width: float,
    weight: Array,
    label: Array | None,
    means: Array,
    effective_rows: float,
) -> ReplicaCells:
    """Turn cell numbers and exact column means into `ReplicaCells`.

    Outliers of gap and contrast are replaced by their means: a few extreme scores of other replicas must neither
    determine the noise nor move the denoised score of their rows.
    """
    served = expand(_centers(numbers[0], weight) * width)
    gap = expand(_centers(numbers[1], weight, along=_beside_line(numbers[0], numbers[1], weight)) * width)
    total = float(weight.sum())
    kept = _without_outliers(gap, weight)
    levels = means - means[0]
    if (kept != gap).any():  # the exact means contain the outliers
        levels[1:] += float(weight @ kept) / total - levels[1:].mean()
    spread, others = np.zeros(len(weight)), len(means) - 1
    if others > 1:
        contrast = expand(_centers(numbers[2], weight) * 2 * width)
        bounded = _without_outliers(contrast, weight)
        if (bounded != contrast).any():
            half = float(weight @ bounded) / total / 2
            levels[1:] = levels[1:].mean() + (np.array([half, -half]) if others == 2 else 0.0)
        if others == 2:
            square = np.square(bounded - (levels[1] - levels[2]))
        else:
            # Without a row's own replicas, only the mean of this correction can be exact.
            raw = np.square(bounded)
            mean = max(float(weight @ raw) / total, 1e-300)
            share = 1 - 2 * float(np.var(levels[1:], ddof=1)) / mean
            square = raw * (max(share, 0.0) if np.ptp(bounded) > 4 * width else 0.0)  # equal contrasts are levels
        spread = (square + width**2 / 3) / 2  # plus the variance inside a cell, which is 2 · width wide
    return ReplicaCells(served, kept, spread, weight, label, levels, width, effective_rows)


def point_masses(weight: Array) -> NDArray[np.bool_]:
    """Mark floors, caps and default values among the weights of neighbouring scores.

    A point mass has more than 2% of the weight and 2.5 times the mean of the three scores on either side. A smooth
    distribution in cells of half a standard deviation or less has no such score.
    """
    marked = np.zeros(len(weight), bool)
    for i in np.flatnonzero(weight > _MASS * weight.sum()):
        near = np.concatenate([weight[max(i - 3, 0) : i], weight[i + 1 : i + 4]])
        marked[i] = len(near) > 0 and weight[i] > _MASS_RATIO * near.mean()
    return marked


def outlier_fences(values: Array, weight: Array) -> tuple[float, float]:
    """Return the ends of the central 99.8% of the weight, each moved out by the range between them."""
    # Do not interpolate: between a cap and the first outlier there is nothing.
    low, high = np.quantile(values, np.array([0.001, 0.999]) * (1 - 1e-9), weights=weight, method="inverted_cdf")
    reach = high - low
    return (float(low - reach), float(high + reach)) if reach > 0 else (float(values.min()), float(values.max()))


def clip_outliers(values: Array, weight: Array) -> Array:
    """Clip values at the outlier fences."""
    return np.clip(values, *outlier_fences(values, weight))


def _without_outliers(values: Array, weight: Array) -> Array:
    """Replace values outside the outlier fences by the mean of the others."""
    low, high = outlier_fences(values, weight)
    inside = (values >= low) & (values <= high)
    return values if inside.all() else np.where(inside, values, np.average(values[inside], weights=weight[inside]))


def _centers(numbers: Keys, weight: Array, along: Keys | None = None) -> Array:
    """Return the mean position of the rows of each cell, in units of the width.

    Where the density falls by a factor e per logit, the mean of a cell lies width²/12 below its middle: half a percent
    of a prediction at the top if cells are wide. The counts of the neighbouring cells show the slope of the density;
    `along` is the coordinate to count them by, if it is not `numbers` itself.
    """
    columns, place = np.unique(numbers if along is None else along, return_inverse=True)
    count = np.bincount(place, weights=weight)
    before, after = np.diff(columns, prepend=columns[0] - 2) == 1, np.diff(columns, append=columns[-1] + 2) == 1
    rise = np.where(after, np.roll(count, -1), 0.0) - np.where(before, np.roll(count, 1), 0.0)
    aside = np.clip(rise / count / 24, -0.2, 0.2)
    return np.asarray(numbers + 0.5 + aside[place], np.float64)


def _beside_line(served: Keys, gap: Keys, weight: Array) -> Keys:
    """Return the gap minus its regression on the served score, as cell numbers.

    Given the served score, the density of the gap depends on this difference. Its slope is not that of the density of
    all gaps, which would make label-free maps 0.3% too high in cells of an eighth of a logit.
    """
    share = weight / weight.sum()
    x, y = served - float(share @ served), gap - float(share @ gap)
    slope = float(share @ (x * y)) / max(float(share @ (x * x)), 1e-300)
    slope = round(slope, 6)  # neither the order of the rows nor the level of the scores decides how a half is rounded
    return np.asarray(gap - np.round(slope * (served - served.min())).astype(np.int64))
