"""A check that scores are Gaussian, which Theorem 1 assumes (remark 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from uncurse.errors import UncurseError
from uncurse.validation import check_scores


@dataclass(frozen=True)
class Gaussianity:
    """Distance of scores to a normal distribution; see `gaussianity`."""

    n: int  # number of rows
    mean: float
    sd: float  # ddof 1
    skewness: float
    excess_kurtosis: float
    distance: float  # of Kolmogorov and Smirnov, to the normal distribution with this mean and sd
    p_value: float  # of Lilliefors


def gaussianity(scores: ArrayLike) -> Gaussianity:
    """Compute the Kolmogorov-Smirnov distance of at least 20 scores to a fitted normal, with Lilliefors' p-value.

    Read the distance, not the p-value: no real distribution is exactly normal, so the test rejects every large log. A
    distance d changes any tail share by at most d, so compare it with α: 0.01 is harmless for the mean of the pool but
    not for the top 1%.

    The plain Kolmogorov p-value is far too large because mean and sd are estimated (it is about 40% where 5% is
    right). Here D·√n has Lilliefors' null distribution, by a formula fitted to 10⁶ simulated samples: within .004 of
    the simulated p, and within 15% of it down to p = .001, for n ≥ 20.

    >>> g = gaussianity(np.random.default_rng(0).normal(-3.0, 0.5, 10_000))
    >>> g.distance < 0.01, g.p_value > 0.1
    (True, True)
    """
    x, counts = np.unique(check_scores(scores, "value").astype(np.float64), return_counts=True)
    n = int(counts.sum())
    if n < 20:
        raise UncurseError(f"{n} scores are too few to judge a distribution; pass 20 or more")
    mean = float(counts @ x) / n
    variance = float(counts @ np.square(x - mean)) / n
    sd = float(np.sqrt(variance * n / (n - 1)))
    if not sd > 1e-12 * abs(mean):
        raise UncurseError(f"scores are constant ({mean:g}); there is no distribution to judge")
    z = (x - mean) / np.sqrt(variance)
    reached, normal = np.append(0, np.cumsum(counts)) / n, ndtr((x - mean) / sd)
    distance = float(max(np.abs(reached[:-1] - normal).max(), np.abs(reached[1:] - normal).max()))
    skewness, kurtosis = float(counts @ z**3) / n, float(counts @ z**4) / n - 3
    return Gaussianity(n, mean, sd, skewness, kurtosis, distance, _lilliefors(distance, n))


def _lilliefors(distance: float, n: int) -> float:
    k = distance * np.sqrt(n) + 0.153 / np.sqrt(n)
    u = np.log(k + 0.45 * k**3 / n)  # of D·√n at n → ∞; the two corrections hold each quantile to .001
    return float(ndtr(-np.polyval([0.8949, 0.8929, 4.5269, 2.0751], u)))
