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

from .._types import Array, Float
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
_DRAWS = 12  # of the bootstrap: the relative error of its standard error is 20%
_MERGED = 0.1  # width of the bins of means for a standard error, relative to the standard deviation
_TABLE = 512  # means at which posteriors are tabulated
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)  # points are narrow, so three nodes are exact enough
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_TINY = 1e-280
# Odds are at most e^700, which a float64 holds. Probabilities of more extreme scores are below _TINY.
_LARGEST, _LARGEST_SWAY = 650.0, 50.0


class _Mixture:
    """Grid of (true score, noise), where each true score is a narrow normal, and the likelihood of cells on it."""

    def __init__(self, summary: ReplicaSummary, rows: float) -> None:
        """Bin cells by mean and variance; `rows` sets the number of iterations."""
        from scipy.special import gammainc

        w = summary.weight / summary.weight.sum()
        mean, variance = (clip_outliers(x, w) for x in (summary.mean, summary.variance))
        center = float(w @ mean)
        square, noise = np.square(mean - center), float(w @ variance)
        if not (square.any() and noise > 0):
            raise UncurseError("the replicas are identical or their scores constant, so they show no noise")
        self.summary, self.center, spread = summary, center, np.sqrt(float(w @ square))
        needed = rows / _ROWS_PER_ITERATION + 1e-6  # 2,999.9999 rows are 3,000
        self.iterations = int(np.clip(needed, _MIN_ITERATIONS, _MAX_ITERATIONS))
        self.points = _sinh_grid(mean, center, spread, _POINTS)  # (L,)
        self.width = _POINT_WIDTH * np.gradient(self.points)  # (L,): standard deviations of the points
        self.noises = np.sqrt(noise) * np.geomspace(*_NOISE_RANGE, _NOISES)  # (N,)
        self.edges: Array = np.concatenate(  # (V + 1,): of the variance bins
            [[0.0], noise * np.geomspace(*_VARIANCE_RANGE, _VARIANCES - 1), [np.inf]]
        )
        cuts = _sinh_grid(mean, center, spread, _MEANS + 1)
        i = np.clip(np.searchsorted(cuts, mean, side="right") - 1, 0, _MEANS - 1)
        j = np.clip(np.searchsorted(self.edges, variance, side="right") - 1, 0, _VARIANCES - 1)
        self.filled, i = np.unique(i, return_inverse=True)  # numbers of the bins of means that hold rows (B,)
        total = np.bincount(i, w)
        # Mean score and square of each filled bin of means (B,), mean variance of each bin of variances (V,).
        self.means, self.squares = (np.bincount(i, w * x) / total for x in (mean, square))
        self.variances = np.bincount(j, w * variance, _VARIANCES) / np.maximum(np.bincount(j, w, _VARIANCES), _TINY)
        #: Share of the rows in each bin of means and variances (B, V).
        counted = np.bincount(i * _VARIANCES + j, w, len(total) * _VARIANCES)
        self.observed = np.asarray(counted, np.float64).reshape(-1, _VARIANCES)
        half = summary.freedom / 2
        below = gammainc(half, np.minimum(self.edges[:, None] / np.square(self.noises), 1e9) * half)
        self.by_variance = np.maximum(np.diff(below, axis=0), 1e-300)  # (V, N): their probabilities given the noise
        deviation = np.sqrt(self.noises[:, None] ** 2 / summary.models + self.width**2)  # (N, L)
        away = self.means[None, :, None] - self.points
        self.kernel = _normal(away, deviation[:, None, :])  # (N, B, L): density of a mean

    def solve(self) -> TrueScores:
        """Fit to the rows."""
        start = self._start(self.observed)[None]
        return TrueScores(self, self._maximize(self.observed[None], self.kernel, start)[0])

    def resample(self, rows: float) -> TrueScores:
        """Fit to bootstraps of so many rows.

        The weight of n rows in a bin is a gamma variable of mean and variance n, as in the Bayesian bootstrap, by the
        approximation of Wilson and Hilferty. It changes smoothly with n, so rounding of the scores does not matter. A
        standard error needs fewer bins and digits than an estimate, so narrow bins of means are merged.
        """
        normal = np.random.default_rng(0).normal(size=(_DRAWS, _MEANS, _VARIANCES))[:, self.filled]
        count = np.maximum(self.observed * rows, 1e-9)
        drawn = self.observed * np.maximum(1 - 1 / (9 * count) + normal / (3 * np.sqrt(count)), 0.0) ** 3
        drawn /= drawn.sum(axis=(1, 2), keepdims=True)
        weight = self.observed.sum(axis=1)
        width = _MERGED * np.sqrt(weight @ self.squares)
        first = np.flatnonzero(np.diff(np.floor((self.means - self.means[0]) / width), prepend=-1))
        kernel = np.add.reduceat(self.kernel * weight[:, None], first, axis=1) / np.add.reduceat(weight, first)[:, None]
        start = np.stack([self._start(each) for each in drawn])
        single = [x.astype(np.float32) for x in (np.add.reduceat(drawn, first, axis=1), kernel, start)]
        return TrueScores(self, self._maximize(*single))

    def _start(self, observed: Array) -> Array:
        """Return the normal prior and the single noise that VAD assumes, (N, L)."""
        by_mean, noise = observed.sum(axis=1), max(float(observed.sum(axis=0) @ self.variances), _TINY)
        center = float(by_mean @ self.means)
        total = float(by_mean @ self.squares) - (center - self.center) ** 2
        true = max(total - noise / self.summary.models, _LEAST_TRUE * total, _TINY)
        exponent = 0.5 * np.square(self.points - center) / true
        by_score = np.exp(exponent.min() - exponent) * np.gradient(self.points)
        distance = 0.5 * np.square(np.log(self.noises**2 / noise) / _NOISE_SPREAD)
        near = np.exp(distance.min() - distance)
        share = np.outer((1 - _UNIFORM) * near / near.sum() + _UNIFORM / _NOISES, by_score)
        return np.asarray(share / share.sum())

    def _maximize(self, observed: Float, kernel: Float, start: Float) -> Array:
        """Maximize the likelihood by EM for several sets of rows (R, B, V) at once; return shares (R, N, L)."""
        by_variance, tiny = self.by_variance.astype(kernel.dtype), max(_TINY, float(np.finfo(kernel.dtype).tiny))
        back = np.ascontiguousarray(kernel.transpose(0, 2, 1))  # (N, L, B)
        share = np.ascontiguousarray(start.transpose(1, 2, 0))  # (N, L, R)
        rows = observed.T.reshape(_VARIANCES, -1)  # (V, B · R)
        with one_blas_thread():
            for _ in range(self.iterations):
                by_noise = np.matmul(kernel, share)  # (N, B, R)
                chance = by_variance @ by_noise.reshape(_NOISES, -1)  # (V, B · R)
                ratio = by_variance.T @ np.divide(rows, np.maximum(chance, tiny, out=chance), out=chance)
                share *= np.matmul(back, ratio.reshape(by_noise.shape))  # which still adds up to 1
        return share.transpose(2, 0, 1).astype(np.float64)

    def integrals(self, share: Array, x: Array, models: int) -> tuple[Array, Array, Array]:
        """Return the likelihood of `x`, the mean of several models, times φ, 1 − φ and φ², for each noise: (..., N, X).

        It is integrated over each point, and summed up with the weights of the points, `share` (..., N, L).
        """
        up, down, squares = (np.zeros((*share.shape[:-1], len(x))) for _ in range(3))
        points, square = self.points[:, None], np.square(self.width)[:, None]
        away, center = x - points, np.clip(points, -_LARGEST, _LARGEST)
        beyond = np.clip(x, -_LARGEST, _LARGEST) - center
        for i, of_noise in enumerate(np.square(self.noises) / models):  # arrays of one noise fit in the cache
            variance = of_noise + square
            pull = square / variance
            chance, odds = _normal(away, np.sqrt(variance)), np.exp(center + pull * beyond)
            sway = np.exp(np.clip(np.sqrt(of_noise * pull) * _NODES, -_LARGEST_SWAY, _LARGEST_SWAY))
            for j, weight in enumerate(_WEIGHTS):
                of_node, own = odds * sway[:, j, None], weight * share[..., i, :]
                q = 1 / (1 + of_node)
                p = of_node * q
                q *= chance
                chance_of_p = p * chance
                up[..., i, :] += own @ chance_of_p
                down[..., i, :] += own @ q
                chance_of_p *= p
                squares[..., i, :] += own @ chance_of_p
        return up, down, squares


@dataclass(frozen=True)
class TrueScores:
    """Weights of (true score, noise) on the grid of a mixture; resampled rows have several sets of them."""

    mixture: _Mixture
    share: Array  # (N, L) or (R, N, L)

    @cached_property
    def posterior(self) -> tuple[Array, Array, Array]:
        """Grid of means, and posterior logit and variance by variance bin and mean."""
        mixture = self.mixture
        x = np.linspace(mixture.points[0], mixture.points[-1], _TABLE)
        integrals = mixture.integrals(self.share, x, mixture.summary.models)
        p, q, square = (values.T @ mixture.by_variance.T for values in integrals)  # (X, V)
        known = np.minimum(p, q) > _TINY
        p, q = np.maximum(p, _TINY), np.maximum(q, _TINY)
        log_odds = np.where(known, np.log(p) - np.log(q), x[:, None])
        variance = np.where(known, np.maximum(square / (p + q) - np.square(p / (p + q)), 0.0), 0.0)
        return x, log_odds.T, variance.T

    def log_odds(self, served: Array) -> Array:
        """Return logit E[φ(t) | served score], (n,) or (R, n); scores outside the grid are clipped to it."""
        mixture = self.mixture
        x = np.clip(served + mixture.summary.level, mixture.points[0], mixture.points[-1])
        p, q, _ = (values.sum(axis=-2) for values in mixture.integrals(self.share, x, mixture.summary.served_models))
        return np.asarray(np.log(np.maximum(p, _TINY)) - np.log(np.maximum(q, _TINY)))


class TruthModel:
    """A table of replicas, with the distributions of true scores and noise derived from it, each computed once.

    `rows` sets the precision of the latent distribution; by default it is the effective number of rows. With
    ``denoise=False`` the mean of the replicas is taken for the true score, as for identical replicas.
    """

    def __init__(self, table: ReplicaTable, replicas: str, rows: float | None = None, denoise: bool = True) -> None:
        self.table, self.kind, self.denoise = table, replica_kind(replicas), denoise
        self.rows = table.effective_rows if rows is None else rows
        self.summary, w = self.kind.summarize(table), table.weight / table.weight.sum()
        #: Mean variance between replicas, and mean noise variance of the served score.
        self.noise = float(self.summary.weight @ self.summary.variance / self.summary.weight.sum())
        self.served_noise = self.noise / self.summary.served_models
        variance = float(w @ np.square(table.served - w @ table.served))
        #: Whether the replicas are identical to the precision of the cells. Rounding to cells gives equal gaps a
        #: variance of at most two thirds of the squared width.
        self.identical = identical_replicas(self.noise, variance) or self.noise <= table.width**2

    @cached_property
    def latent(self) -> TrueScores | None:
        """Distribution of true scores and noise; None if the replicas are identical or are not denoised."""
        return None if self.identical or not self.denoise else _Mixture(self.summary, self.rows).solve()

    @cached_property
    def resampled(self) -> TrueScores:
        """Distributions fitted to bootstraps of the rows."""
        assert self.latent is not None
        return self.latent.mixture.resample(self.table.effective_rows)

    def posterior_logit(self, summary: ReplicaSummary | None = None) -> tuple[Array, Array]:
        """Return logit E[φ(t) | m, v] and the posterior variance of φ(t), for each cell of this or another summary.

        Identical replicas give the mean score and 0.
        """
        summary = self.summary if summary is None else summary
        if self.latent is None:
            return summary.mean, np.zeros(len(summary.mean))
        grid, log_odds, variance = self.latent.posterior
        edges = self.latent.mixture.edges
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
