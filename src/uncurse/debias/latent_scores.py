"""The distribution of true scores and of noise behind replicas, from how replicas scatter: no labels.

A row has a true score t and a noise of standard deviation σ; its replicas are t plus normal noise. What is seen of a
row is their mean m ~ N(t, σ²/n) and their variance v ~ σ² χ²_d / d. The joint distribution of (t, σ) is left free: a
mixture on a grid, fitted by maximum likelihood (Kiefer and Wolfowitz 1956), beginning from the normal prior and the
single noise that VAD assumes. It gives what scores are worth, E[φ(t) | served score] and E[φ(t) | m, v], where noise
differs from row to row and true scores have heavy tails.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Joint
from ..links import logistic
from ..threads import one_blas_thread
from ..validation import check_choice

_POINTS, _NOISES, _BINS, _VARIANCES = 48, 10, 128, 16
_TURNS = 400  # of the EM algorithm, at most
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)  # points are narrow
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Seen(NamedTuple):
    """What cells of a `Joint` show of the truth."""

    mean: Array  # of the replicas that tell of it
    variance: Array
    weight: Array
    models: int  # in the mean: its noise is σ²/models
    freedom: int  # of the variance
    level: float  # mean of `mean` less that of the served score


def seen(joint: Joint, replicas: str, level: float | None = None) -> Seen:
    """Mean and variance of each cell by how its columns came about, each column less its own level.

    `level` is that of another set of rows, to be seen as these are.
    """
    s, w = joint.n_replicas, joint.weight
    if replicas == "bootstrap" and s < 3:
        raise UncurseError(f"there are {s} columns and replicas='bootstrap' needs 3: the served model and two others")
    share = (s - 1) / s
    apart = joint.apart
    higher = float(w @ apart / w.sum()) if level is None else level / share
    squares = joint.apart_squared(higher)
    if replicas == "bootstrap":
        return Seen(joint.served, joint.variance, w, 1, s - 2, 0.0)
    if replicas == "anchored":
        return Seen(joint.served, squares + (s - 2) / (s - 1) * joint.variance, w, 1, s - 1, 0.0)
    check_choice("replicas", replicas, ("seeds", "bootstrap", "anchored"))
    variance = ((s - 2) * joint.variance + share * squares) / (s - 1)
    return Seen(joint.served + share * apart, variance, w, s, s - 1, share * higher)


def redrawn(joint: Joint, rng: np.random.Generator) -> Joint:
    """The same cells with counts drawn anew, to see what chance does."""
    drawn = copy(joint)
    worth = joint.worth
    weight = rng.poisson(joint.weight * worth) / worth
    kept = weight > 0
    drawn._keys, drawn._table = drawn._keys[kept], np.stack([weight[kept], drawn._table[1, kept]])
    return drawn


class Rescaled(Joint):
    """The same cells with every logit l as slope · l + start."""

    def __init__(self, joint: Joint, slope: float, start: float) -> None:
        vars(self).update(vars(copy(joint)))
        self._by = slope, start

    def __copy__(self) -> Rescaled:
        return Rescaled(super().__copy__(), *self._by)

    @property
    def served(self) -> Array:
        """Served logit of each cell; its width is scaled already, and with it `apart`."""
        return super().served + self._by[1]

    @property
    def variance(self) -> Array:
        """Variance of the other replicas about their mean."""
        return self._by[0] ** 2 * super().variance

    @property
    def levels(self) -> Array:
        """By how much each of the others lies above their mean."""
        return self._by[0] * super().levels

    @property
    def step(self) -> float:
        """How wide cells are."""
        return self._by[0] * super().step


@dataclass(frozen=True)
class Mixture:
    """Weights of (true score, noise) on a grid; each point is a narrow normal, so that the whole is smooth."""

    points: Array  # (L,)
    width: Array  # (L,): their standard deviations
    noises: Array  # (N,)
    share: Array  # (L, N)
    edges: Array  # of the variances that are told apart
    by_variance: Array  # (V, N): their probabilities
    models: int
    level: float

    @classmethod
    def fit(cls, joint: Joint, replicas: str = "seeds") -> Mixture:
        """From the cells of a pool or of labelled rows, whose labels are not looked at."""
        data = seen(joint, replicas)
        # A few rows far out must not set the scale of all.
        data = data._replace(mean=_trimmed(data.mean, data.weight), variance=_trimmed(data.variance, data.weight))
        w = data.weight / data.weight.sum()
        center = float(w @ data.mean)
        total = float(w @ np.square(data.mean - center))
        noise = float(w @ data.variance)
        if total <= 0 or noise <= 0:
            raise UncurseError(
                "the replicas are identical, or their scores constant, so no noise shows; pass more rows"
            )
        true = max(total - noise / data.models, 0.02 * total)
        points, width = _grid(data.mean, center, np.sqrt(total))
        noises = np.sqrt(noise) * np.exp(np.linspace(np.log(0.1), np.log(3.2), _NOISES))
        edges = np.concatenate(
            [[0.0], noise * np.exp(np.linspace(np.log(0.02), np.log(16.0), _VARIANCES - 1)), [np.inf]]
        )
        by_variance = _chance_of_variance(edges, noises, data.freedom)
        bins, counts = _binned(data, edges)
        start = np.exp(-0.5 * np.square(points - center) / true) * _spacing(points)
        levels = np.exp(-0.5 * np.square(np.log(noises**2 / noise) / 0.35))
        start = np.outer(start / start.sum(), 0.85 * levels / levels.sum() + 0.15 / _NOISES)
        spread = np.sqrt(noises[None] ** 2 / data.models + width[:, None] ** 2)  # (L, N)
        kernel = _normal(bins[None, :, None] - points[None, None, :], spread.T[:, None, :])  # (N, B, L)
        turns = int(np.clip(joint.effective_rows / 100, 10, _TURNS))
        with one_blas_thread():
            share = _expectation_maximisation(kernel, by_variance, counts, start, turns)
        return cls(points, width, noises, share, edges, by_variance, data.models, data.level)

    def told(self, data: Seen) -> tuple[Array, Array]:
        """Of each cell, logit E[φ(t) | m, v], and the variance of φ(t) that is left."""
        grid, odds, variance = self._table
        place = np.clip(np.searchsorted(self.edges, data.variance, side="right") - 1, 0, len(odds) - 1)
        at = (data.mean - grid[0]) / (grid[1] - grid[0])
        left = np.clip(np.floor(at), 0, len(grid) - 2).astype(np.int64)
        part = np.clip(at - left, 0.0, 1.0)

        def between(table: Array) -> Array:
            return np.asarray(table[place, left] * (1 - part) + table[place, left + 1] * part)

        return between(odds), between(variance)

    @cached_property
    def _table(self) -> tuple[Array, Array, Array]:
        """A grid of means, and for each variance and mean what `told` tells."""
        grid = np.linspace(self.points[0], self.points[-1], 512)
        spread = np.square(self.noises)[None] / self.models + np.square(self.width)[:, None]  # (L, N)
        up, down, squares = self._posterior(grid, spread, np.square(self.noises)[None] / self.models)  # (G, N)
        odds, variance = np.empty((2, len(self.by_variance), len(grid)))
        for i, row in enumerate(self.by_variance):
            p, q, square = up @ row, down @ row, squares @ row
            known = np.minimum(p, q) > 1e-280
            odds[i] = np.where(known, np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-300)), grid)
            total = np.maximum(p + q, 1e-300)
            variance[i] = np.where(known, np.maximum(square / total - np.square(p / total), 0.0), 0.0)
        return grid, odds, variance

    def odds(self, served: Array) -> Array:
        """logit E[φ(t) | served score], the label-free map; a score beyond all points counts as the last of them."""
        spread = np.square(self.noises)[None] + np.square(self.width)[:, None]
        x = np.clip(served + self.level, self.points[0], self.points[-1])
        up, down, _ = self._posterior(x, spread, np.square(self.noises)[None])
        return np.asarray(np.log(up.sum(axis=1)) - np.log(down.sum(axis=1)))

    def _posterior(self, x: Array, spread: Array, noise: Array) -> tuple[Array, Array, Array]:
        """∫φ, ∫(1 − φ) and ∫φ² against the prior and a normal likelihood at `x`, apart for each noise: (X, N)."""
        away = x[:, None, None] - self.points[:, None]
        chance = _normal(away, np.sqrt(spread)) * self.share  # (X, L, N)
        pull = np.square(self.width)[:, None] / spread
        mean = self.points[:, None] + pull * away
        left = np.sqrt(noise * pull)  # posterior spread within a point
        up, down, squares = (np.zeros_like(chance) for _ in range(3))
        for weight, node in zip(_WEIGHTS, _NODES, strict=True):
            p = logistic(mean + left * node)
            up += weight * p
            down += weight * logistic(-mean - left * node)
            squares += weight * np.square(p)
        return (chance * up).sum(axis=1), (chance * down).sum(axis=1), (chance * squares).sum(axis=1)


def _trimmed(values: Array, weight: Array) -> Array:
    """What lies more than twice as far out as nearly all rows, drawn in to there."""
    order = np.argsort(values, kind="stable")
    reached = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    low, high = np.interp([0.001, 0.999], reached, values[order])
    reach = high - low
    return np.clip(values, low - reach, high + reach) if reach > 0 else values


def _grid(mean: Array, center: float, spread: float) -> tuple[Array, Array]:
    """Points from the lowest to the highest mean, closer in the middle, and how wide each is."""
    ends = np.arcsinh((np.array([mean.min(), mean.max()]) - center) / (2 * spread))
    points = center + 2 * spread * np.sinh(np.linspace(ends[0], ends[1], _POINTS))
    return points, 0.6 * _spacing(points)


def _spacing(points: Array) -> Array:
    return np.asarray(np.gradient(points))


def _normal(away: Array, spread: Array) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(away / spread)) / spread)


def _chance_of_variance(edges: Array, noises: Array, freedom: int) -> Array:
    from scipy.special import gammainc

    below = gammainc(freedom / 2, np.minimum(edges[:, None] / np.square(noises), 1e9) * freedom / 2)
    return np.maximum(np.diff(below, axis=0), 1e-300)


def _binned(data: Seen, edges: Array) -> tuple[Array, Array]:
    """Mean scores of bins, and the share of rows in each (mean, variance) bin: (B,), (B, V)."""
    low, high = float(data.mean.min()), float(data.mean.max())
    center = float(data.weight @ data.mean / data.weight.sum())
    spread = float(np.sqrt(data.weight @ np.square(data.mean - center) / data.weight.sum()))
    ends = np.arcsinh((np.array([low, high]) - center) / (2 * spread))
    cuts = center + 2 * spread * np.sinh(np.linspace(ends[0], ends[1], _BINS + 1))
    i = np.clip(np.searchsorted(cuts, data.mean, side="right") - 1, 0, _BINS - 1)
    j = np.clip(np.searchsorted(edges, data.variance, side="right") - 1, 0, len(edges) - 2)
    size = len(edges) - 1
    counts = np.bincount(i * size + j, weights=data.weight, minlength=_BINS * size).reshape(_BINS, size)
    by_bin = counts.sum(axis=1)
    mean = np.bincount(i, weights=data.weight * data.mean, minlength=_BINS)
    filled = by_bin > 0
    return mean[filled] / by_bin[filled], counts[filled] / counts.sum()


def _expectation_maximisation(kernel: Array, by_variance: Array, counts: Array, start: Array, turns: int) -> Array:
    """Shares (L, N) that make the counts (B, V) most likely; kernel (N, B, L), by_variance (V, N)."""
    share = start
    back = np.ascontiguousarray(kernel.transpose(0, 2, 1))
    for _ in range(turns):
        by_noise = np.matmul(kernel, share.T[:, :, None])[:, :, 0]  # (N, B)
        chance = by_noise.T @ by_variance.T  # (B, V)
        weight = counts / np.maximum(chance, 1e-300)
        factor = np.matmul(back, (weight @ by_variance).T[:, :, None])[:, :, 0].T  # (L, N)
        share = share * factor
        share /= share.sum()
    return share


__all__ = ["Mixture", "Rescaled", "Seen", "redrawn", "seen"]
