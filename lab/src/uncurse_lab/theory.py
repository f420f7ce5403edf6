"""Theorem 1, Corollary 1 and Lemma 1 of the paper, by quadrature, and a check that scores are Gaussian.

Setting (paper, section 4): candidates X ~ N(μ, Σ), truth φ(β*ᵀX), scores β̂ᵀX; the top share α of the scores is
selected. Given β̂, the bias depends on five numbers, those of `score_geometry`.

Theorem 1 keeps a leading term and drops an O(1/N) remainder. The leading term is O(1/N) too, because spread − signal
is quadratic in β̂ − β*. Where φ bends, the remainder is smaller, but not by a factor that grows with N, and it depends
on α. `selected_truth` is exact, so ``selected_mean(…) - selected_truth(…)`` is the bias without an approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.links import get_link
from uncurse.validation import check_finite, check_numbers, check_scores, check_share

__all__ = [
    "Gaussianity",
    "Geometry",
    "gaussianity",
    "lemma1_bounds",
    "maximization_bias",
    "score_geometry",
    "selected_mean",
    "selected_slope",
    "selected_truth",
]


def selected_mean(link: str, mean: ArrayLike, spread: ArrayLike, alpha: float) -> Array:
    """Compute h(t) = E[φ(mean + t·Z) | Z ≥ q_{1−α}], the mean prediction of the selected candidates.

    φ is the link "logistic", "identity" or "log"; `mean` is β̂ᵀμ and `spread` is t, which may be negative. Both are
    numbers or arrays that broadcast. The relative error is below 1e-10.

    Examples
    --------
    >>> selected_mean("logistic", -3.0, [0.4, 0.5], 0.02).round(6)
    array([0.116643, 0.144372])
    """
    phi = get_link(link).phi
    return _tail_average(lambda l, z: phi(l), mean, spread, 0.0, alpha)


def link_slope(link: str, scores: Array) -> Array:
    """Return the derivative φ' of a link."""
    phi = get_link(link).phi
    if link == "identity":
        return np.ones_like(scores)
    return np.asarray(phi(scores) if link == "log" else phi(scores) * phi(-scores), np.float64)


def selected_slope(link: str, mean: ArrayLike, spread: ArrayLike, alpha: float) -> Array:
    """Compute h'(t) = E[φ'(mean + t·Z)·Z | Z ≥ q_{1−α}] of Theorem 1; parameters as in `selected_mean`.

    Examples
    --------
    >>> selected_slope("identity", 0.0, 1.0, 0.02).round(4)  # E[Z | Z ≥ q]
    np.float64(2.4209)
    """
    return _tail_average(lambda l, z: link_slope(link, l) * z, mean, spread, 0.0, alpha)


def selected_truth(link: str, *, mean: ArrayLike, signal: ArrayLike, residual: ArrayLike, alpha: float) -> Array:
    """Compute E[φ(β*ᵀX)] of the selected candidates exactly (appendix A, before the Taylor expansion).

    `mean` is β*ᵀμ; `signal` and `residual` are the standard deviations of the true score along the served score and
    orthogonal to it.

    Examples
    --------
    >>> selected_truth("logistic", mean=-3.0, signal=0.4, residual=0.2, alpha=0.02).round(6)
    np.float64(0.118209)
    """
    phi = get_link(link).phi
    return _tail_average(lambda l, z: phi(l), mean, signal, residual, alpha)


def maximization_bias(
    link: str, *, mean: ArrayLike, spread: ArrayLike, signal: ArrayLike, alpha: float, shrinkage: ArrayLike = 1.0
) -> Array:
    """Compute ∫ h'(t) dt from `signal` to λ·`spread`: the leading term of Theorem 1 (λ = 1) and of Corollary 1.

    `mean`, `spread` and `signal` are as from `score_geometry`, `shrinkage` is λ. The leading term is 0 at λ =
    signal/spread, for every α. The theorem's expectation is the mean over training draws.

    Examples
    --------
    >>> maximization_bias("logistic", mean=-3.0, spread=[0.5], signal=[0.4], alpha=0.02).round(6)
    array([0.027729])
    >>> maximization_bias("logistic", mean=-3.0, spread=[0.5], signal=[0.4], alpha=0.02, shrinkage=0.8).round(6)
    array([0.])
    """
    shrunk = np.asarray(shrinkage) * _deviations("spread", spread)
    # The integral of h' is exactly a difference of h.
    return selected_mean(link, mean, shrunk, alpha) - selected_mean(link, mean, signal, alpha)


@dataclass(frozen=True)
class Geometry:
    """The numbers that determine the bias of selection by β̂ᵀX for X ~ N(μ, Σ), each of shape (R,)."""

    mean: Array  # β̂ᵀμ
    spread: Array  # √(β̂ᵀΣβ̂), the standard deviation of the scores
    signal: Array  # β̂ᵀΣβ* / spread, the standard deviation of the true score along the scores
    residual: Array  # √(β*ᵀΣβ* − signal²), the standard deviation of the true score orthogonal to them
    true_mean: Array  # β*ᵀμ


def score_geometry(beta_hat: ArrayLike, *, beta: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Geometry:
    """Compute the five numbers that determine the bias, for every row β̂ of `beta_hat`, (R, d) or (d,).

    `beta` is β* (d,); the candidates have the mean `mu` (d,) and the covariance `sigma` (d, d). An intercept is a
    coordinate with μ = 1 and a row and a column of zeros in Σ.

    Examples
    --------
    >>> g = score_geometry([[3.0, 4.0]], beta=[3.0, 0.0], mu=[1.0, 1.0], sigma=np.eye(2))
    >>> g.mean, g.spread, g.signal, g.residual
    (array([7.]), array([5.]), array([1.8]), array([2.4]))
    """
    b_hat, b = _finite_numbers("beta_hat", beta_hat), _finite_numbers("beta", beta)
    m, s = _finite_numbers("mu", mu), _finite_numbers("sigma", sigma)
    rows, d = np.atleast_2d(b_hat), b.size
    if rows.ndim != 2 or rows.shape[1] != d or b.shape != (d,) or m.shape != (d,) or s.shape != (d, d):
        raise UncurseError(
            f"shapes differ: beta_hat {b_hat.shape}, beta {b.shape}, mu {m.shape}, sigma {s.shape}; "
            "pass (R, d), (d,), (d,), (d, d)"
        )
    unit = s / (np.abs(s).max() or 1.0)
    if not np.allclose(unit, unit.T, atol=1e-9) or np.linalg.eigvalsh(unit).min() < -1e-9:
        raise UncurseError("sigma is not a covariance; pass a symmetric matrix without negative eigenvalues")
    variance = np.einsum("ij,jk,ik->i", rows, s, rows)
    constant = np.flatnonzero(variance <= 0)
    if constant.size:
        raise UncurseError(f"beta_hat[{constant[0]}] gives constant scores; there is no top share")
    spread = np.sqrt(variance)
    signal = rows @ s @ b / spread
    residual = np.sqrt(np.maximum(b @ s @ b - signal**2, 0.0))  # negative only by rounding
    return Geometry(rows @ m, spread, signal, residual, np.full(len(rows), b @ m))


def lemma1_bounds(
    link: str,
    *,
    mean_range: tuple[float, float],
    spread_range: tuple[float, float],
    alpha: float,
    probability: float = 1.0,
) -> tuple[float, float]:
    """Compute the bounds of Lemma 1: c₀c₁/2·E[Z | Z ≥ q] ≤ h'(t) ≤ C·E[Z | Z ≥ q] for t in `spread_range`.

    The factor ½ bounds E[Z; q ≤ Z ≤ 2q] / E[Z; Z ≥ q] = 1 − exp(−3q²/2), which is .654 at α = 0.2 and ½ at α = .248.
    As α → 0 at a fixed t > 0 the lower bound vanishes (c₀ is φ' at up to 2tq), and so does h' where φ saturates.

    `link` is "logistic" or "identity", `alpha` at most 0.2, and 0 ≤ t_l < t_r. `probability` is c₁, the probability
    that β̂ᵀμ lies in `mean_range`; the bounds then hold for the mean of h' over β̂.

    Examples
    --------
    >>> low, high = lemma1_bounds("logistic", mean_range=(-3.0, -3.0), spread_range=(0.4, 0.6), alpha=0.02)
    >>> bool(low < selected_slope("logistic", -3.0, 0.5, 0.02) < high)
    True
    """
    share = check_share(alpha)
    if share > 0.2:
        raise UncurseError(f"alpha={alpha!r} is above 0.2, where Lemma 1 does not apply; pass 0.2 or less")
    for name, given in {"mean_range": mean_range, "spread_range": spread_range}.items():
        if (numbers := _finite_numbers(name, given)).shape != (2,) or numbers[0] > numbers[1]:
            raise UncurseError(f"{name}={given!r} is not a range; pass (low, high)")
    (mu_l, mu_r), (t_l, t_r) = mean_range, spread_range
    if not 0 <= t_l < t_r:
        # For t_l < 0, mean + tZ may leave [l, r], which the statement in the paper overlooks.
        raise UncurseError(f"spread_range={spread_range!r} is not a range; pass 0 <= low < high")
    c1 = check_share(probability, "probability")
    if link == "log":
        raise UncurseError("link='log' has no largest slope (φ is not Lipschitz); Lemma 1 needs another link")
    q = -ndtri(share)
    # The smallest [l, r] that condition 2 allows. φ' has one peak, at 0, so it is smallest at an end.
    with np.errstate(over="ignore"):
        ends = np.array([mu_l + t_l * q, mu_r + 2 * t_r * q])
    c0, c = float(link_slope(link, ends).min()), float(link_slope(link, np.zeros(1))[0])
    tail = float(np.exp(-0.5 * q * q) / np.sqrt(2 * np.pi) / share)  # E[Z | Z ≥ q]
    return 0.5 * c0 * c1 * tail, c * tail


# ---------------------------------------------------------------------------- whether scores are Gaussian


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


# ---------------------------------------------------------------------------- quadrature

Integrand = Callable[[Array, Array], NDArray[np.floating]]  # function of the score and of Z

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_REACH = 10.0  # normal mass beyond 10 standard deviations: 1e-23
_BREAKS = np.array([-40.0, -8.0, -3.0, 0.0, 3.0, 8.0, 40.0])  # panel ends around a bend, in units of its width
_BLOCK = 1024  # rows per pass: a few MB of nodes


def _tail_average(function: Integrand, mean: ArrayLike, signal: ArrayLike, residual: ArrayLike, alpha: float) -> Array:
    """Compute E[g(mean + signal·Z + residual·Z₂, Z) | Z ≥ q_{1−α}] for independent standard normals Z and Z₂.

    g is a function of two arrays, the score and Z; Z is exact only where `residual` is 0. Arguments broadcast.
    """
    q = -float(ndtri(check_share(alpha)))
    m, s, r = np.broadcast_arrays(
        _finite_numbers("mean", mean), _finite_numbers("spread or signal", signal), _deviations("residual", residual)
    )
    rows = np.stack([m.ravel(), s.ravel(), r.ravel()], axis=1)
    result = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            result[start : start + _BLOCK] = _average_block(function, rows[start : start + _BLOCK], q)
    if not np.isfinite(result).all():
        worst = rows[np.flatnonzero(~np.isfinite(result))[0]]
        raise UncurseError(f"the mean overflows at mean={worst[0]:g}, spread={worst[1]:g}; is the link right?")
    return result.reshape(m.shape)[()]


def _average_block(function: Integrand, rows: Array, q: float) -> Array:
    m, s, r = rows.T[:, :, None]
    # One dimension is enough: with T·W = s·Z + r·Z₂, W is standard normal and P(Z ≥ q | W) = Φ((ρW − q)/√(1 − ρ²)).
    # Where r = 0 (to rounding), W is Z and this probability is a step at q, so the range of integration ends there.
    hard = r <= 1e-20 * np.abs(s)
    total = np.where(hard, s, np.hypot(s, r))
    scale = np.where(hard, 1.0, total)
    rho, across = np.where(hard, 1.0, s / scale), np.where(hard, 1.0, r / scale)
    # The weight is concentrated near ρq, or where an exponential φ tilts it, by T.
    near, tilt = rho * (q if np.isfinite(q) else 0.0), np.clip(total, -40, 40)
    low = np.minimum(near, 0) + np.minimum(tilt, 0) - _REACH
    high = np.maximum(near, 0) + np.maximum(tilt, 0) + _REACH
    low = np.where(hard, np.maximum(low, q), low)
    # Panels end where φ bends (mean + T·W = 0, width 1/T) and where P(Z ≥ q | W) rises (W = q/ρ).
    steep, rising = (np.where(np.abs(x) < 1e-8, 1e-8, x) for x in (total, rho))
    ends = np.concatenate(
        [low + (high - low) * np.linspace(0, 1, 17), (_BREAKS - m) / steep, (q + _BREAKS * across) / rising], axis=1
    )
    ends = np.sort(np.clip(ends, low, high), axis=1)
    half = np.diff(ends, axis=1)[:, :, None] / 2
    w = (ends[:, :-1, None] + half * (1 + _NODES)).reshape(len(rows), -1)
    weight = (half * _WEIGHTS).reshape(w.shape) * np.exp(-0.5 * w * w)
    if not hard.all():
        weight *= np.where(hard, 1.0, ndtr((rho * w - q) / across))
    average: Array = np.sum(weight * function(m + total * w, w), axis=1) / np.sum(weight, axis=1)
    return average


def _finite_numbers(name: str, values: ArrayLike) -> Array:
    """Return finite numbers of any shape as float64."""
    array = check_numbers(values, name).astype(np.float64, copy=False)
    check_finite(np.atleast_1d(array), name)
    return array


def _deviations(name: str, values: ArrayLike) -> Array:
    """Return standard deviations: finite numbers of at least 0."""
    array = _finite_numbers(name, values)
    if (array < 0).any():
        raise UncurseError(f"{name} holds {array.min():g}; it is a standard deviation, pass 0 or more")
    return array
