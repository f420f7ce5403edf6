"""`TruthModel`: the distribution of true scores and of noise behind replicas, estimated without labels.

A row has a true score t and a noise of standard deviation σ; its replicas are t plus normal noise. Their mean m is
N(t, σ²/n) and their variance v is σ² χ²_d / d. The joint distribution of (t, σ) is a mixture on a grid, fitted by
maximum likelihood (Kiefer and Wolfowitz 1956), starting from the normal prior and the single noise that VAD assumes.
It gives E[φ(t) | served score] and E[φ(t) | m, v], and allows noise that differs between rows and heavy tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence.histogram import ReplicaTable, clip_outliers
from ..threads import one_blas_thread
from .noise import ReplicaSummary, identical_replicas, replica_kind

# The grid of true scores, of noises, of observed means and of observed variances. Twice as many points of each change
# predictions on the top by less than 0.1% and cost eight times as much.
_POINTS, _NOISES, _MEANS, _VARIANCES = 48, 10, 128, 16
# Ranges of the grids relative to the mean noise. Rows below a tenth of it are nearly noiseless; at most one row in a
# thousand is above the range.
_NOISE_RANGE = (0.1, 3.2)
_VARIANCE_RANGE = (0.02, 16.0)
# The initial weights are 85% near the mean noise (log standard deviation 0.35) and 15% uniform over all noises: EM
# never gives weight to a point that starts without.
_NOISE_SPREAD, _UNIFORM = 0.35, 0.15
# EM is stopped early, after one iteration per 100 rows, to avoid overfitting. More than 400 iterations change nothing.
_ROWS_PER_ITERATION, _MIN_ITERATIONS, _MAX_ITERATIONS = 100, 10, 400
_LEAST_TRUE = 0.02  # least share of the variance of means that is attributed to true scores
_POINT_WIDTH = 0.6  # width of a point relative to the distance of points, so that their sum is smooth
_DRAWS = 12  # of the Poisson bootstrap: the relative error of its standard error is 20%
_TABLE = 512  # means at which posteriors are tabulated
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)  # points are narrow, so three nodes are exact enough
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_TINY = 1e-280
# Odds are at most e^700, which a float64 holds. Probabilities of more extreme scores are below _TINY.
_LARGEST, _LARGEST_SWAY = 650.0, 50.0
Keys = NDArray[np.int64]


@dataclass(frozen=True)
class _Grid:
    """Grid of (true score, noise); each true score is a narrow normal."""

    points: Array  # (L,)
    width: Array  # (L,): standard deviations of the points
    noises: Array  # (N,)
    edges: Array  # (V + 1,): of the variance bins
    by_variance: Array  # (V, N): probabilities of the bins given the noise
    models: int
    level: float
    served_models: int = 1

    @cached_property
    def means(self) -> tuple[Array, tuple[Array, Array, Array]]:
        """Means at which posteriors are tabulated, and their `integrals`; the same for every distribution."""
        x = np.linspace(self.points[0], self.points[-1], _TABLE)
        return x, self.integrals(x, np.square(self.noises) / self.models)

    def integrals(self, x: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Return the likelihood of `x` times φ, 1 − φ and φ², integrated over each point for each noise: (N, L, X)."""
        up, down, squares = (np.zeros((len(noise), len(self.points), len(x))) for _ in range(3))
        points, square = self.points[:, None], np.square(self.width)[:, None]
        away, center = x - points, np.clip(points, -_LARGEST, _LARGEST)
        beyond = np.clip(x, -_LARGEST, _LARGEST) - center
        for i, of_noise in enumerate(noise):  # arrays of one noise fit in the cache
            variance = of_noise + square
            pull = square / variance
            chance, odds = _normal(away, np.sqrt(variance)), np.exp(center + pull * beyond)
            sway = np.exp(np.clip(np.sqrt(of_noise * pull) * _NODES, -_LARGEST_SWAY, _LARGEST_SWAY))
            for j, weight in enumerate(_WEIGHTS):
                of_node = odds * sway[:, j, None]
                q = 1 / (1 + of_node)
                p = of_node * q
                likelihood = weight * chance
                up[i] += p * likelihood
                down[i] += q * likelihood
                squares[i] += p * p * likelihood
        return up, down, squares


@dataclass(frozen=True)
class TrueScores:
    """Weights of (true score, noise) on a grid."""

    grid: _Grid
    share: Array  # (L, N)

    def posterior_logit(self, summary: ReplicaSummary) -> tuple[Array, Array]:
        """Return logit E[φ(t) | m, v] of each cell, and the posterior variance of φ(t)."""
        grid, log_odds, variance = self._table
        row = np.clip(np.searchsorted(self.grid.edges, summary.variance, side="right") - 1, 0, len(log_odds) - 1)
        at = (summary.mean - grid[0]) / (grid[1] - grid[0])
        before = np.clip(np.floor(at), 0, len(grid) - 2).astype(np.int64)
        part = np.clip(at - before, 0.0, 1.0)
        values = (table[row, before] * (1 - part) + table[row, before + 1] * part for table in (log_odds, variance))
        return next(values), next(values)

    @cached_property
    def _table(self) -> tuple[Array, Array, Array]:
        """Grid of means, and posterior logit and variance by variance bin and mean."""
        x, integrals = self.grid.means
        p, q, square = (self._weighted(values) @ self.grid.by_variance.T for values in integrals)  # (G, V)
        known = np.minimum(p, q) > _TINY
        p, q = np.maximum(p, _TINY), np.maximum(q, _TINY)
        log_odds = np.where(known, np.log(p) - np.log(q), x[:, None])
        variance = np.where(known, np.maximum(square / (p + q) - np.square(p / (p + q)), 0.0), 0.0)
        return x, log_odds.T, variance.T

    def log_odds(self, served: Array) -> Array:
        """Return logit E[φ(t) | served score]; scores outside the grid are clipped to it."""
        x = np.clip(served + self.grid.level, self.grid.points[0], self.grid.points[-1])
        noise = np.square(self.grid.noises) / self.grid.served_models
        up, down, _ = (self._weighted(values) for values in self.grid.integrals(x, noise))
        return np.asarray(np.log(np.maximum(up.sum(axis=1), _TINY)) - np.log(np.maximum(down.sum(axis=1), _TINY)))

    def _weighted(self, integrals: Array) -> Array:
        """Sum over the points: (X, N)."""
        return np.asarray(np.matmul(self.share.T[:, None, :], integrals)[:, 0].T)


@dataclass(frozen=True)
class _Problem:
    """The likelihood of binned means and variances."""

    summary: ReplicaSummary  # without outliers, its weights adding up to 1
    precision: float  # rows that set the number of iterations
    grid: _Grid
    kernel: Array  # (N, B, L): density of a mean given noise and true score
    place: Keys  # (K,): of each cell among bins and variances

    @classmethod
    def of(cls, summary: ReplicaSummary, precision: float) -> _Problem:
        from scipy.special import gammainc

        w = summary.weight / summary.weight.sum()
        mean, variance = (clip_outliers(x, w) for x in (summary.mean, summary.variance))
        center = float(w @ mean)
        total, noise = float(w @ np.square(mean - center)), float(w @ variance)
        if not (total > 0 and noise > 0):
            raise UncurseError("the replicas are identical or their scores constant, so they show no noise")
        spread = np.sqrt(total)
        points = _sinh_grid(mean, center, spread, _POINTS)
        width = _POINT_WIDTH * np.gradient(points)
        noises = np.sqrt(noise) * np.geomspace(*_NOISE_RANGE, _NOISES)
        edges = np.concatenate([[0.0], noise * np.geomspace(*_VARIANCE_RANGE, _VARIANCES - 1), [np.inf]])
        cuts = _sinh_grid(mean, center, spread, _MEANS + 1)
        i = np.clip(np.searchsorted(cuts, mean, side="right") - 1, 0, _MEANS - 1)
        j = np.clip(np.searchsorted(edges, variance, side="right") - 1, 0, _VARIANCES - 1)
        _, i = np.unique(i, return_inverse=True)
        means = np.bincount(i, w * mean) / np.bincount(i, w)  # of each filled bin (B,)
        half = summary.freedom / 2
        below = gammainc(half, np.minimum(edges[:, None] / np.square(noises), 1e9) * half)
        by_variance = np.maximum(np.diff(below, axis=0), 1e-300)
        grid = _Grid(points, width, noises, edges, by_variance, summary.models, summary.level, summary.served_models)
        deviation = np.sqrt(noises[:, None] ** 2 / summary.models + width**2)  # (N, L)
        kernel = _normal(means[None, :, None] - points, deviation[:, None, :])
        clean = summary._replace(mean=mean, variance=variance, weight=w)
        return cls(clean, precision, grid, kernel, i * _VARIANCES + j)

    def solve(self, weights: Array | None = None) -> list[TrueScores]:
        """Maximise the likelihood by EM, for one set of weights or for several at once (R, K)."""
        weights = self.summary.weight[None] if weights is None else weights
        weights = weights / weights.sum(axis=1, keepdims=True)
        size = self.kernel.shape[1] * _VARIANCES
        observed = np.stack([np.bincount(self.place, w, size).reshape(-1, _VARIANCES) for w in weights])
        needed = self.precision / _ROWS_PER_ITERATION + 1e-6  # 2,999.9999 rows are 3,000
        iterations = int(np.clip(needed, _MIN_ITERATIONS, _MAX_ITERATIONS))
        by_variance = self.grid.by_variance  # (V, N)
        back = np.ascontiguousarray(self.kernel.transpose(0, 2, 1))
        share = np.stack([self._first_share(w).T for w in weights], axis=2)  # (N, L, R)
        with one_blas_thread():
            for _ in range(iterations):
                by_noise = np.matmul(self.kernel, share)  # (N, B, R)
                chance = by_noise.transpose(2, 1, 0) @ by_variance.T  # (R, B, V)
                ratio = (observed / np.maximum(chance, _TINY)) @ by_variance  # (R, B, N)
                share = share * np.matmul(back, np.ascontiguousarray(ratio.transpose(2, 1, 0)))
                share /= share.sum(axis=(0, 1))
        return [TrueScores(self.grid, np.ascontiguousarray(share[:, :, r].T)) for r in range(len(observed))]

    def _first_share(self, weight: Array) -> Array:
        """Return the normal prior and the single noise that VAD assumes, up to a factor: (L, N)."""
        mean, variance, points, noises = self.summary.mean, self.summary.variance, self.grid.points, self.grid.noises
        center, noise = float(weight @ mean), max(float(weight @ variance), _TINY)
        total = float(weight @ np.square(mean - center))
        true = max(total - noise / self.summary.models, _LEAST_TRUE * total, _TINY)
        exponent = 0.5 * np.square(points - center) / true
        by_score = np.exp(exponent.min() - exponent) * np.gradient(points)
        distance = 0.5 * np.square(np.log(noises**2 / noise) / _NOISE_SPREAD)
        near = np.exp(distance.min() - distance)
        return np.outer(by_score, (1 - _UNIFORM) * near / near.sum() + _UNIFORM / _NOISES)


class TruthModel:
    """A table of replicas, with the distributions of true scores and noise derived from it, each computed once.

    `rows` sets the precision of the latent distribution; by default it is the effective number of rows. With
    ``denoise=False`` the mean of the replicas is taken for the true score, as for identical replicas.
    """

    def __init__(self, table: ReplicaTable, replicas: str, rows: float | None = None, denoise: bool = True) -> None:
        self.table, self.kind, self.denoise = table, replica_kind(replicas), denoise
        self.rows = table.effective_rows if rows is None else rows
        self.kind.check_columns(table.n_replicas)
        self.summary = self.kind.summarize(table)

    @cached_property
    def noise(self) -> float:
        """Mean variance between replicas."""
        return float(self.summary.weight @ self.summary.variance / self.summary.weight.sum())

    @property
    def served_noise(self) -> float:
        """Mean noise variance of the served score."""
        return self.noise / self.summary.served_models

    @cached_property
    def identical(self) -> bool:
        """Whether the replicas are identical to the precision of the cells."""
        w = self.table.weight / self.table.weight.sum()
        variance = float(w @ np.square(self.table.served - w @ self.table.served))
        # Rounding to cells gives equal gaps a variance of at most two thirds of the squared width.
        return identical_replicas(self.noise, variance) or self.noise <= self.table.width**2

    @cached_property
    def _problem(self) -> _Problem:
        return _Problem.of(self.summary, self.rows)

    @cached_property
    def latent(self) -> TrueScores | None:
        """Distribution of true scores and noise; None if the replicas are identical or are not denoised."""
        return None if self.identical or not self.denoise else self._problem.solve().pop()

    @cached_property
    def resampled(self) -> list[TrueScores]:
        """Distributions fitted to Poisson bootstraps of the rows; empty if the replicas are identical."""
        if self.latent is None:
            return []
        rng = np.random.default_rng(0)  # the same draws for the same rows
        weight, rows = self._problem.summary.weight, self.table.effective_rows
        drawn = rng.poisson(weight * rows, (_DRAWS, len(weight))) / rows
        return self._problem.solve(np.where(drawn.any(axis=1, keepdims=True), drawn, weight))  # if no row is drawn

    def posterior_logit(self, latent: TrueScores | None, summary: ReplicaSummary | None = None) -> tuple[Array, Array]:
        """Return posterior logit and variance of each cell; for ``latent=None`` the mean score and 0."""
        summary = self.summary if summary is None else summary
        return (summary.mean, np.zeros(len(summary.mean))) if latent is None else latent.posterior_logit(summary)


def _sinh_grid(values: Array, center: float, spread: float, count: int) -> Array:
    """Return points from the lowest to the highest value, closer in the middle."""
    ends = np.arcsinh((np.array([values.min(), values.max()]) - center) / (2 * spread))
    return np.asarray(center + 2 * spread * np.sinh(np.linspace(ends[0], ends[1], count)))


def _normal(away: Array, deviation: Array) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(away / deviation)) / deviation)
