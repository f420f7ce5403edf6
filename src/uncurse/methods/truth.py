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


class _Mixture:
    """Grid of (true score, noise), where each true score is a narrow normal, and the likelihood of cells on it."""

    def __init__(self, summary: ReplicaSummary, precision: float) -> None:
        """Bin cells by mean and variance; `precision` is the number of rows that sets the number of iterations."""
        from scipy.special import gammainc

        w = summary.weight / summary.weight.sum()
        mean, variance = (clip_outliers(x, w) for x in (summary.mean, summary.variance))
        center = float(w @ mean)
        total, noise = float(w @ np.square(mean - center)), float(w @ variance)
        if not (total > 0 and noise > 0):
            raise UncurseError("the replicas are identical or their scores constant, so they show no noise")
        self.summary = summary._replace(mean=mean, variance=variance, weight=w)  # without outliers
        self.precision, spread = precision, np.sqrt(total)
        self.points = _sinh_grid(mean, center, spread, _POINTS)  # (L,)
        self.width = _POINT_WIDTH * np.gradient(self.points)  # (L,): standard deviations of the points
        self.noises = np.sqrt(noise) * np.geomspace(*_NOISE_RANGE, _NOISES)  # (N,)
        edges = np.concatenate([[0.0], noise * np.geomspace(*_VARIANCE_RANGE, _VARIANCES - 1), [np.inf]])
        cuts = _sinh_grid(mean, center, spread, _MEANS + 1)
        i = np.clip(np.searchsorted(cuts, mean, side="right") - 1, 0, _MEANS - 1)
        j = np.clip(np.searchsorted(edges, variance, side="right") - 1, 0, _VARIANCES - 1)
        _, i = np.unique(i, return_inverse=True)
        means = np.bincount(i, w * mean) / np.bincount(i, w)  # of each filled bin (B,)
        half = summary.freedom / 2
        below = gammainc(half, np.minimum(edges[:, None] / np.square(self.noises), 1e9) * half)
        self.edges: Array = edges  # (V + 1,): of the variance bins
        self.by_variance = np.maximum(np.diff(below, axis=0), 1e-300)  # (V, N): their probabilities given the noise
        deviation = np.sqrt(self.noises[:, None] ** 2 / summary.models + self.width**2)  # (N, L)
        self.kernel = _normal(means[None, :, None] - self.points, deviation[:, None, :])  # (N, B, L): density of a mean
        self.place = i * _VARIANCES + j  # (K,): of each cell among bins and variances

    def solve(self, weights: Array | None = None) -> list[TrueScores]:
        """Maximise the likelihood by EM, for one set of weights or for several at once (R, K)."""
        weights = self.summary.weight[None] if weights is None else weights
        weights = weights / weights.sum(axis=1, keepdims=True)
        size = self.kernel.shape[1] * _VARIANCES
        observed = np.stack([np.bincount(self.place, w, size).reshape(-1, _VARIANCES) for w in weights])
        needed = self.precision / _ROWS_PER_ITERATION + 1e-6  # 2,999.9999 rows are 3,000
        iterations = int(np.clip(needed, _MIN_ITERATIONS, _MAX_ITERATIONS))
        by_variance = self.by_variance
        back = np.ascontiguousarray(self.kernel.transpose(0, 2, 1))
        share = np.stack([self._first_share(w).T for w in weights], axis=2)  # (N, L, R)
        with one_blas_thread():
            for _ in range(iterations):
                by_noise = np.matmul(self.kernel, share)  # (N, B, R)
                chance = by_noise.transpose(2, 1, 0) @ by_variance.T  # (R, B, V)
                ratio = (observed / np.maximum(chance, _TINY)) @ by_variance  # (R, B, N)
                share = share * np.matmul(back, np.ascontiguousarray(ratio.transpose(2, 1, 0)))
                share /= share.sum(axis=(0, 1))
        return [TrueScores(self, np.ascontiguousarray(share[:, :, r].T)) for r in range(len(observed))]

    def _first_share(self, weight: Array) -> Array:
        """Return the normal prior and the single noise that VAD assumes, up to a factor: (L, N)."""
        mean, variance, points = self.summary.mean, self.summary.variance, self.points
        center, noise = float(weight @ mean), max(float(weight @ variance), _TINY)
        total = float(weight @ np.square(mean - center))
        true = max(total - noise / self.summary.models, _LEAST_TRUE * total, _TINY)
        exponent = 0.5 * np.square(points - center) / true
        by_score = np.exp(exponent.min() - exponent) * np.gradient(points)
        distance = 0.5 * np.square(np.log(self.noises**2 / noise) / _NOISE_SPREAD)
        near = np.exp(distance.min() - distance)
        return np.outer(by_score, (1 - _UNIFORM) * near / near.sum() + _UNIFORM / _NOISES)

    def integrals(self, x: Array, models: int) -> tuple[Array, Array, Array]:
        """Return the likelihood of `x`, the mean of several models, times φ, 1 − φ and φ²: (N, L, X).

        It is integrated over each point for each noise.
        """
        up, down, squares = (np.zeros((_NOISES, _POINTS, len(x))) for _ in range(3))
        points, square = self.points[:, None], np.square(self.width)[:, None]
        away, center = x - points, np.clip(points, -_LARGEST, _LARGEST)
        beyond = np.clip(x, -_LARGEST, _LARGEST) - center
        for i, of_noise in enumerate(np.square(self.noises) / models):  # arrays of one noise fit in the cache
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
    """Weights of (true score, noise) on the grid of a mixture."""

    mixture: _Mixture
    share: Array  # (L, N)

    @cached_property
    def posterior(self) -> tuple[Array, Array, Array]:
        """Grid of means, and posterior logit and variance by variance bin and mean."""
        mixture = self.mixture
        x, share = np.linspace(mixture.points[0], mixture.points[-1], _TABLE), self.share.T[:, None, :]
        integrals = (np.matmul(share, values)[:, 0].T for values in mixture.integrals(x, mixture.summary.models))
        p, q, square = (values @ mixture.by_variance.T for values in integrals)  # (X, V)
        known = np.minimum(p, q) > _TINY
        p, q = np.maximum(p, _TINY), np.maximum(q, _TINY)
        log_odds = np.where(known, np.log(p) - np.log(q), x[:, None])
        variance = np.where(known, np.maximum(square / (p + q) - np.square(p / (p + q)), 0.0), 0.0)
        return x, log_odds.T, variance.T

    def log_odds(self, served: Array) -> Array:
        """Return logit E[φ(t) | served score]; scores outside the grid are clipped to it."""
        mixture = self.mixture
        x = np.clip(served + mixture.summary.level, mixture.points[0], mixture.points[-1])
        up, down, _ = mixture.integrals(x, mixture.summary.served_models)
        p, q = (np.matmul(self.share.T[:, None, :], values)[:, 0].sum(axis=0) for values in (up, down))
        return np.asarray(np.log(np.maximum(p, _TINY)) - np.log(np.maximum(q, _TINY)))


class TruthModel:
    """A table of replicas, with the distributions of true scores and noise derived from it, each computed once.

    `rows` sets the precision of the latent distribution; by default it is the effective number of rows. With
    ``denoise=False`` the mean of the replicas is taken for the true score, as for identical replicas.
    """

    def __init__(self, table: ReplicaTable, replicas: str, rows: float | None = None, denoise: bool = True) -> None:
        self.table, self.kind, self.denoise = table, replica_kind(replicas), denoise
        self.rows = table.effective_rows if rows is None else rows
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
    def latent(self) -> TrueScores | None:
        """Distribution of true scores and noise; None if the replicas are identical or are not denoised."""
        return None if self.identical or not self.denoise else _Mixture(self.summary, self.rows).solve().pop()

    @cached_property
    def resampled(self) -> list[TrueScores]:
        """Distributions fitted to Poisson bootstraps of the rows; empty if the replicas are identical."""
        if self.latent is None:
            return []
        rng, mixture = np.random.default_rng(0), self.latent.mixture  # the same draws for the same rows
        weight, rows = mixture.summary.weight, self.table.effective_rows
        drawn = rng.poisson(weight * rows, (_DRAWS, len(weight))) / rows
        return mixture.solve(np.where(drawn.any(axis=1, keepdims=True), drawn, weight))  # if no row is drawn

    def posterior_logit(self, latent: TrueScores | None, summary: ReplicaSummary | None = None) -> tuple[Array, Array]:
        """Return logit E[φ(t) | m, v] of each cell and the posterior variance of φ(t); mean score and 0 for None."""
        summary = self.summary if summary is None else summary
        if latent is None:
            return summary.mean, np.zeros(len(summary.mean))
        grid, log_odds, variance = latent.posterior
        edges = latent.mixture.edges
        row = np.clip(np.searchsorted(edges, summary.variance, side="right") - 1, 0, _VARIANCES - 1)
        at = (summary.mean - grid[0]) / (grid[1] - grid[0])
        before = np.clip(np.floor(at), 0, _TABLE - 2).astype(np.int64)
        part = np.clip(at - before, 0.0, 1.0)
        values = (table[row, before] * (1 - part) + table[row, before + 1] * part for table in (log_odds, variance))
        return next(values), next(values)


def _sinh_grid(values: Array, center: float, spread: float, count: int) -> Array:
    """Return points from the lowest to the highest value, closer in the middle."""
    ends = np.arcsinh((np.array([values.min(), values.max()]) - center) / (2 * spread))
    return np.asarray(center + 2 * spread * np.sinh(np.linspace(ends[0], ends[1], count)))


def _normal(away: Array, deviation: Array) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(away / deviation)) / deviation)
