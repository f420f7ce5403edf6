"""What the replicas say of each other, without labels: E[φ(t) | served score] of any shape, as a map of one score.

With three replicas and more the others teach: given the true score t they are t plus noise, independent of the served
score's noise, so the mean of an unbiased teacher given the served score is what that score is worth (double learning,
distilled: no second model is served). φ bends, so φ of their mean is biased; but normal noise in the plane, as much of
it across as along, averages out of any analytic function: the real part of φ(m + i·d), with m the mean of the others
and d a contrast of the same variance as m, has the mean φ(t), wherever noise stays clear of φ's poles at ±iπ. To second
order it is φ(m) − ½φ''(m)·d².

With two replicas, or bootstraps, nobody is left to teach: the distribution of truth and noise (`mixtures`) tells the
same, if noise is normal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..calibration.spline import SmoothCurve, fit_smooth, monotone_curve
from ..errors import UncurseError
from ..evidence import Evidence, Joint
from ..links import logistic, to_link
from ..maps import Affine, Curve
from ..threads import chunks
from ..validation import check_scores, check_weights
from .latent_scores import Mixture, redrawn, seen
from .shrinkage import curved
from .uncertainty import Selected, level_variance, levels_of

_STEPS = 128  # cells of one spread
_DRAWS = 12  # of the bootstrap
SHARES = (0.01, 0.02, 0.05, 0.1)  # where maps are compared
_POLE = 0.01  # as near to a pole of φ as noise may come
_SHARED = 0.75  # of what turns say that one of them says already: 0.6 to 0.85 as measured
_MOST_NOISE = 1.0  # of the others' mean, beyond which a teacher meets the poles: 0.3% of bias there, 6% at 1.4
_STRANGE = 2.5  # standard errors at which two maps are not the same


def teacher(others: NDArray[Any]) -> Array:
    """An unbiased estimate of φ(t) from replicas (n, K ≥ 2) that are t plus normal noise.

    >>> rng = np.random.default_rng(0)
    >>> replicas = -3 + rng.normal(0, 0.8, (200_000, 2))
    >>> true, naive = logistic(np.array(-3.0)), logistic(replicas.mean(axis=1)).mean()
    >>> bool(abs(teacher(replicas).mean() / true - 1) < 0.01), bool(naive / true - 1 > 0.1)
    (True, True)
    """
    columns = [np.asarray(others[:, i], np.float64) for i in range(others.shape[1])]
    count = len(columns)
    mean = np.asarray(sum(columns) / count)
    low = np.exp(-np.abs(mean))  # odds or one over them, whichever does not overflow
    up = mean >= 0
    total = np.zeros(len(mean))
    running = columns[0].copy()
    for j in range(1, count):  # contrasts of Helmert: the sum of those before against the next
        contrast = (running - j * columns[j]) / np.sqrt(j * (j + 1) * count)
        cosine = low * np.cos(contrast)
        bottom = np.maximum(1 + 2 * cosine + low * low, _POLE)
        total += np.where(up, 1 + cosine, low * low + cosine) / bottom
        running += columns[j]
    return total / (count - 1)


@dataclass
class Distilled:
    """A label-free map of any shape, and how well it is known."""

    curve: SmoothCurve | Curve
    joint: Joint
    replicas: str = "seeds"
    offset: float = 0.0  # that the joint's logits have and the scores that are given have not
    ends: tuple[Curve, ...] | None = None  # of VAD with curvature: one standard error of λ to either side

    @classmethod
    def by_teacher(
        cls, pool: ArrayLike, *, scale: str = "logit", sample_weight: ArrayLike | None = None, offset: float = 0.0
    ) -> Distilled:
        """From replicas (n, S ≥ 3) trained alike; each takes its turn as the served one."""
        values = check_scores(pool, scale, name="pool", ndim=2)
        weights = check_weights(sample_weight, len(values))
        joint = Joint().update(values, scale=scale, sample_weight=weights, logit_offset=offset)
        size = values.shape[1]
        sample = to_link(values[:: max(1, len(values) // 65_536)], scale, "logistic").astype(np.float64) + offset
        step = float(sample[:, 0].std()) / _STEPS or 1.0
        low = np.floor(sample.min() / step) - 8 * _STEPS
        bins = int(np.ceil(sample.max() / step) - low) + 8 * _STEPS
        sums = np.zeros((size, 3, bins))
        totals, means = 0.0, np.zeros(size)
        for chunk in chunks(len(values), 1 << 16):
            l = to_link(values[chunk], scale, "logistic").astype(np.float64) + offset
            w = np.ones(len(l)) if weights is None else weights[chunk]
            totals += float(w.sum())
            means += w @ l
            for turn in range(size):
                taught = teacher(np.delete(l, turn, axis=1))
                place = np.clip(np.floor(l[:, turn] / step) - low, 0, bins - 1).astype(np.int64)
                for row, column in enumerate((w, w * l[:, turn], w * taught)):
                    sums[turn, row] += np.bincount(place, weights=column, minlength=bins)
        means /= totals
        filled = sums[:, 0] > 0
        served = np.concatenate([(s[1] / np.maximum(s[0], 1e-300))[f] for s, f in zip(sums, filled, strict=True)])
        # Every replica at the level of the served one.
        served += np.concatenate([np.full(f.sum(), means[0] - m) for f, m in zip(filled, means, strict=True)])
        w, y = (np.concatenate([s[row][f] for s, f in zip(sums, filled, strict=True)]) for row in (0, 2))
        order = np.argsort(served, kind="stable")
        worth = joint.worth
        curve = fit_smooth(served[order], w[order] * worth, y[order] * worth, scatter=True)
        # Turns share their rows, and what differs most from row to row is the truth: all tell little more than one.
        return cls(replace(curve, covariance=_SHARED * size * curve.covariance), joint, offset=offset)

    @classmethod
    def by_mixture(cls, joint: Joint, replicas: str = "seeds", offset: float = 0.0) -> Distilled:
        """From counts of two replicas or more, whose noise is normal."""
        return cls(_mixture_curve(joint, replicas), joint, replicas, offset)

    def straight(self, slope: float, error: float, center: float, variance: float) -> Distilled:
        """VAD with curvature instead, of a λ known to a standard error."""
        slopes = np.clip(slope + error * np.array([0.0, -1.0, 1.0]), 1e-3, 1.0)
        maps = [curved(k, center, (1 - k) * variance, "logistic") for k in slopes.tolist()]
        own, *ends = (
            Curve((0.0,), (m.intercept,), m.slope, m.slope) if isinstance(m, Affine) else cast(Curve, m) for m in maps
        )
        return replace(self, curve=own, ends=tuple(ends))

    def as_given(self, served: Array) -> Array:
        """Served logits of the joint as scores are given."""
        return served - self.offset

    def odds(self, served: Array) -> Array:
        """Log odds at served scores."""
        return np.asarray(self.curve(served) if isinstance(self.curve, SmoothCurve) else self.curve.transform(served))

    def map(self) -> Curve:
        """As a score map."""
        return self.curve.map() if isinstance(self.curve, SmoothCurve) else self.curve

    def log_error(self, alpha: float) -> float:
        """Standard error of the logarithm of predicted over true on the top share, if the replicas' level is true."""
        top = Selected(self.joint, alpha)
        data = seen(self.joint, self.replicas)
        told, left = self._prior.told(data._replace(mean=data.mean[top.cells], variance=data.variance[top.cells]))
        scatter = top.scatter(logistic(told), logistic(self.odds(self.joint.served[top.cells])), left)
        return float(np.hypot(np.sqrt(scatter), self.map_error(alpha)))

    def map_error(self, alpha: float) -> float:
        """The part of it that another sample of the pool would change in the map."""
        top = Selected(self.joint, alpha)
        served = self.joint.served[top.cells]
        if isinstance(self.curve, SmoothCurve):
            p = logistic(self.odds(served))
            return float(np.sqrt(top.relative(p, self.curve.features(served), self.curve.covariance)))
        return float(np.std([np.log(top.mean(logistic(curve.transform(served)))) for curve in self._drawn]))

    @cached_property
    def _drawn(self) -> tuple[Curve, ...]:
        """Curves that could as well have come out."""
        if self.ends is not None:
            return self.ends
        rng = np.random.default_rng(0)
        return tuple(_mixture_curve(redrawn(self.joint, rng), self.replicas) for _ in range(_DRAWS))

    def differs_from(self, other: Distilled) -> float:
        """By how many standard errors, where it is most, if by more than 2.5; else 0."""
        most = 0.0
        for alpha in SHARES:
            top = Selected(self.joint, alpha)
            served = self.joint.served[top.cells]
            ours, theirs = (np.log(top.mean(logistic(one.odds(served)))) for one in (self, other))
            most = max(most, abs(float(ours - theirs)) / self.map_error(alpha))
        return most if most > _STRANGE else 0.0

    def level_error(self, alpha: float) -> tuple[float, int]:
        """Standard error by the level of all replicas together, and its degrees of freedom."""
        top = Selected(self.joint, alpha)
        p = logistic(self.odds(self.joint.served[top.cells]))
        variance, freedom = level_variance(levels_of(self.joint), self.replicas)
        return float(np.sqrt(variance)) * top.mean(p * (1 - p)) / top.mean(p), freedom

    @cached_property
    def _prior(self) -> Mixture:
        return Mixture.fit(self.joint, self.replicas)


def distil(
    pool: Any, sample_weight: ArrayLike | None, *, scale: str, replicas: str, offset: float, noise: float
) -> Distilled:
    """By teachers where there are any and noise lets them, else by the mixture; of scores (n, S) or of `Evidence`."""
    if isinstance(pool, Evidence):
        if pool.joint is None:
            raise UncurseError("this evidence has no joint counts of two or more replicas; collect it with joint=True")
        return Distilled.by_mixture(pool.joint, replicas, offset)
    array = np.asarray(pool)
    if array.ndim != 2 or array.shape[1] < 2:
        raise UncurseError(f"the pool has shape {array.shape}; this needs two columns of scores or more")
    if replicas == "seeds" and array.shape[1] > 2 and noise <= _MOST_NOISE**2 * (array.shape[1] - 1):
        return Distilled.by_teacher(array, scale=scale, sample_weight=sample_weight, offset=offset)
    joint = Joint().update(array, scale=scale, sample_weight=sample_weight, logit_offset=offset)
    return Distilled.by_mixture(joint, replicas, offset)


def _mixture_curve(joint: Joint, replicas: str) -> Curve:
    mixture = Mixture.fit(joint, replicas)
    served = joint.served
    order = np.argsort(served)
    reached = np.cumsum(joint.weight[order]) / joint.weight.sum()
    few = max(2e-5, 3 / joint.effective_rows)
    low, knee, bend, high = np.interp([max(1e-4, few), 0.05, 0.97, 1 - few], reached, served[order])
    x = np.linspace(low, high, 128)
    y = mixture.odds(x)
    curve = monotone_curve(x, y)
    # Beyond all rows as steep as over the outer few percent, and no steeper than the score itself.
    ends = [(y[0], low, knee), (y[-1], high, bend)]
    left, right = (float(np.clip((end - np.interp(k, x, y)) / (at - k), 0.05, 1.0)) for end, at, k in ends)
    return replace(curve, left=left, right=right)


__all__ = ["SHARES", "Distilled", "distil", "teacher"]
