"""λ of VAD with its standard error, the maps that it gives, and its shrinkage between segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import polygamma

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence, Moments
from ..evidence.histogram import ReplicaTable
from ..links import logistic
from ..maps import Affine, Curve, ScoreMap
from ..maps.shapes import logit_knots
from .noise import ReplicaKind, identical_replicas
from .records import SegmentRecord

_hermegauss = cache(np.polynomial.hermite_e.hermegauss)  # nodes take longer to find than to use


@dataclass(frozen=True)
class Shrinkage:
    """λ of a set of rows, and the moments that it follows from."""

    value: float  # λ = 1 − noise / variance
    error: float  # standard error of λ over rows
    center: float  # mean of the served score
    noise: float  # V
    variance: float  # of the served score
    identical: bool = False  # replicas, so that they show no noise

    @classmethod
    def of(
        cls,
        moments: Moments,
        kind: ReplicaKind,
        *,
        variance: float | None = None,
        table: ReplicaTable | None = None,
        where: str = "",
    ) -> Shrinkage:
        """Return λ of some rows; `variance` is a known V, `table` shows how its error depends on the rows."""
        if not moments.weight > 0:
            raise UncurseError(f"there are no rows{where}; pass at least two")
        mean, covariance = kind.columns(moments)
        center, spread = float(mean[0]), float(covariance[0, 0])
        if np.sqrt(max(spread, 0.0)) <= 1e-9 * abs(center):
            raise UncurseError(f"the served scores are constant at {center:g}{where}; pass scores that differ")
        noise = float(kind.noise_variance(covariance)) if variance is None else variance
        identical = variance is None and identical_replicas(noise, spread)
        if identical:
            noise = 0.0  # exactly: rounding must not move a score across the edge of a bin
        value, rows = 1 - noise / spread, moments.effective_rows
        if table is None:
            differences = 0 if variance is not None else kind.differences(len(mean))
            error = normal_error(value, rows, differences, kind.exchangeable)
            return cls(value, error, center, noise, spread, identical)
        # By the influence function of λ, which holds for scores of any distribution.
        w, summary = table.weight / table.weight.sum(), kind.summarize(table)
        noise_of, square = summary.variance / summary.served_models, np.square(table.served - w @ table.served)
        influence = (noise_of - w @ noise_of - (1 - value) * (square - w @ square)) / float(w @ square)
        error = float(np.sqrt(w @ np.square(influence) / rows))
        return cls(value, error, center, noise, spread, identical)

    @property
    def estimates(self) -> dict[str, float]:
        """Fields of a record."""
        names = ("lambda_", "standard_error", "center", "noise_variance", "score_variance")
        values = (self.value, self.error, self.center, self.noise, self.variance)
        return dict(zip(names, values, strict=True))

    def map(self, link: str = "logistic", *, curvature: bool = False) -> ScoreMap:
        """Return the map φ(λl + (1 − λ)c), or with curvature E[φ(l*) | l] where l* | l is N(λl + (1 − λ)c, λV)."""
        intercept = (1 - self.value) * self.center
        variance = self.value * max(self.noise, 0.0) if curvature else 0.0
        if not curvature or link != "logistic" or self.value == 0:
            return Affine(self.value, intercept + (variance / 2 if link == "log" else 0.0), link)
        nodes, weights = _hermegauss(61)
        m = logit_knots()
        l = m[:, None] + np.sqrt(variance) * nodes
        # φ and 1 − φ separately, so that neither tail loses digits.
        odds = (logistic(l) @ weights) / (logistic(-l) @ weights)
        return Curve(((m - intercept) / self.value).tolist(), np.log(odds).tolist(), self.value, self.value)


def normal_error(shrinkage: float, rows: float, differences: int, served_in_noise: bool) -> float:
    """Return the standard error of λ by normal theory.

    The variance of log(V / Var) is 2/n for the served scores and 2/(n · differences) for V, minus twice their
    covariance if the served score is one of the replicas. `differences` is 0 for a known V.
    """
    factor = 1 + (1 / differences if differences else 0.0)
    if differences and served_in_noise:
        factor -= 2 * (1 - shrinkage) / (differences + 1)
    return abs(1 - shrinkage) * float(np.sqrt(2 / rows * max(factor, 0.0)))


def shrink_towards(target: float, values: Array, errors: Array) -> Array:
    """Shrink estimates of segments towards a common value by empirical Bayes; an infinite error means no estimate.

    An estimate with error s has the weight τ²/(τ² + s²), with the variance τ² between them by DerSimonian and Laird. As
    much of it as chance alone may show, two standard errors, is left out: segments that are alike stay alike.
    """
    known = np.isfinite(errors) & (errors > 0)
    if known.sum() < 2:
        return np.where(errors == 0, values, target)
    w = 1 / np.square(errors[known])
    mean = np.average(values[known], weights=w)
    freedom = known.sum() - 1
    excess = w @ np.square(values[known] - mean) - freedom - 2 * np.sqrt(2 * freedom)
    between = max(0.0, excess / (w.sum() - np.square(w).sum() / w.sum()))
    variance = between + np.square(errors)
    share = np.divide(between, variance, out=np.ones_like(variance), where=variance > 0)
    return np.asarray(target + share * (values - target))


def by_segment(
    pool: Evidence,
    whole: Shrinkage,
    kind: ReplicaKind,
    variance: float | None,
    *,
    positive: Callable[[float, str], float],
    center_of: Callable[[Evidence], float] | None = None,
) -> dict[str, Shrinkage]:
    """Return λ and center of each segment, shrunk towards the common values.

    `positive` replaces a λ that is too low, or raises an error that names the segment; `center_of` gives the center of
    a segment if it is not the mean of its served score.
    """
    parts = list(pool.segments.values())
    columns = [kind.columns(part.moments) for part in parts]
    rows = np.array([part.moments.effective_rows for part in parts])
    means, spread = (np.array(values) for values in zip(*((m[0], c[0, 0]) for m, c in columns), strict=True))
    noise = np.array([float(kind.noise_variance(c)) if variance is None else variance for _, c in columns])
    known = (rows > 2 * (1 + 1e-9)) & (spread > 0)
    n = np.where(known, rows, 0.0)
    # The common 1 − λ is that within segments: the spread between centers is not noise.
    common = float(n @ noise) / float(n @ spread) if known.any() else whole.noise / whole.variance
    values = np.full(len(rows), 1 - common)
    if common > 0:  # in log(1 − λ), whose errors are nearly normal also for a few rows, and no λ is negative by chance
        ratios, errors = np.full(len(rows), common), np.full(len(rows), np.inf)
        ratios[known] = np.maximum(noise[known] / spread[known], common / 100)
        differences = 0 if variance is not None else kind.differences(len(columns[0][0]))
        errors[known] = [normal_error(1 - common, n, differences, kind.exchangeable) / common for n in rows[known]]
        errors[known] *= np.sqrt(rows[known] / 2 * polygamma(1, (rows[known] - 1) / 2))  # of the log of a variance
        values = 1 - np.exp(shrink_towards(float(np.log(common)), np.log(ratios), errors))
    if center_of is not None:
        means = np.array([center_of(part) for part in parts])
    centers = shrink_towards(whole.center, means, np.sqrt(np.maximum(spread, whole.variance) / rows))
    found = {}
    for i, name in enumerate(pool.segments):
        value = positive(float(values[i]), f" in segment {name!r}")
        noise_of = (1 - value) * float(spread[i]) if known[i] else whole.noise
        found[name] = replace(whole, value=value, center=float(centers[i]), noise=noise_of)
    return found


def segment_records(pool: Evidence, segments: Mapping[str, Shrinkage]) -> dict[str, SegmentRecord]:
    """Return the records of segments."""
    return {name: SegmentRecord(one.value, one.center, pool.segments[name].rows) for name, one in segments.items()}
