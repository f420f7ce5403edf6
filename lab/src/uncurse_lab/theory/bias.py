"""Theorem 1, Corollary 1, Lemma 1 and Example 1 of the paper.

Setting (paper, section 4): candidates X ~ N(μ, Σ), truth φ(β*ᵀX), scores β̂ᵀX; the top share α of the scores is
selected. Given β̂, the bias depends on five numbers, those of `score_geometry`.

Theorem 1 keeps a leading term and drops an O(1/N) remainder. The leading term is O(1/N) too, because spread − signal
is quadratic in β̂ − β*. Where φ bends, the remainder is smaller, but not by a factor that grows with N, and it depends
on α. `selected_truth` is exact, so ``selected_mean(…) - selected_truth(…)`` is the bias without an approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.links import get_link
from uncurse.validation import check_count, check_number, check_share

from .quadrature import broadcast, deviations, finite_numbers, tail_average


def selected_mean(link: str, mean: ArrayLike, spread: ArrayLike, alpha: float) -> Array:
    """Compute h(t) = E[φ(mean + t·Z) | Z ≥ q_{1−α}], the mean prediction of the selected candidates.

    Parameters
    ----------
    link : {"logistic", "identity", "log", "probit"}
        Name of φ.
    mean, spread : array-like
        β̂ᵀμ and t, numbers or arrays that broadcast; t may be negative.
    alpha : float
        Selected share, in (0, 1].

    Returns
    -------
    ndarray of float64
        Means in the broadcast shape, with a relative error below 1e-10 (probit: for values above 1e-20).

    Examples
    --------
    >>> selected_mean("logistic", -3.0, [0.4, 0.5], 0.02).round(6)
    array([0.116643, 0.144372])
    """
    phi = get_link(link).phi
    return tail_average(lambda l, z: phi(l), mean, spread, 0.0, alpha)


def selected_slope(link: str, mean: ArrayLike, spread: ArrayLike, alpha: float) -> Array:
    """Compute h'(t) = E[φ'(mean + t·Z)·Z | Z ≥ q_{1−α}] of Theorem 1.

    Parameters
    ----------
    link : {"logistic", "identity", "log", "probit"}
        Name of φ.
    mean, spread : array-like
        As in `selected_mean`.
    alpha : float
        Selected share, in (0, 1].

    Returns
    -------
    ndarray of float64
        Derivatives of `selected_mean` with respect to `spread`.

    Examples
    --------
    >>> selected_slope("identity", 0.0, 1.0, 0.02).round(4)  # E[Z | Z ≥ q]
    np.float64(2.4209)
    """
    slope = get_link(link).slope
    return tail_average(lambda l, z: slope(l) * z, mean, spread, 0.0, alpha)


def selected_truth(link: str, *, mean: ArrayLike, signal: ArrayLike, residual: ArrayLike, alpha: float) -> Array:
    """Compute E[φ(β*ᵀX)] of the selected candidates exactly (appendix A, before the Taylor expansion).

    Parameters
    ----------
    link : {"logistic", "identity", "log", "probit"}
        Name of φ.
    mean : array-like
        β*ᵀμ, the mean of the true scores.
    signal, residual : array-like
        Standard deviations of the true score along the served score and orthogonal to it.
    alpha : float
        Selected share, in (0, 1].

    Returns
    -------
    ndarray of float64
        Mean truth, in the broadcast shape.

    Examples
    --------
    >>> selected_truth("logistic", mean=-3.0, signal=0.4, residual=0.2, alpha=0.02).round(6)
    np.float64(0.118209)
    """
    phi = get_link(link).phi
    return tail_average(lambda l, z: phi(l), mean, signal, residual, alpha)


def maximization_bias(
    link: str, *, mean: ArrayLike, spread: ArrayLike, signal: ArrayLike, alpha: float, shrinkage: ArrayLike = 1.0
) -> Array:
    """Compute ∫ h'(t) dt from `signal` to λ·`spread`: the leading term of Theorem 1 (λ = 1) and of Corollary 1.

    Parameters
    ----------
    link : {"logistic", "identity", "log", "probit"}
        Name of φ.
    mean, spread, signal : array-like
        β̂ᵀμ, √(β̂ᵀΣβ̂) and β̂ᵀΣβ*/√(β̂ᵀΣβ̂), as from `score_geometry`.
    alpha : float
        Selected share, in (0, 1].
    shrinkage : array-like, default=1.0
        λ. The leading term is 0 at λ = signal/spread, for every α.

    Returns
    -------
    ndarray of float64
        One entry per training draw; the theorem's expectation is their mean.

    Examples
    --------
    >>> maximization_bias("logistic", mean=-3.0, spread=[0.5], signal=[0.4], alpha=0.02).round(6)
    array([0.027729])
    >>> maximization_bias("logistic", mean=-3.0, spread=[0.5], signal=[0.4], alpha=0.02, shrinkage=0.8).round(6)
    array([0.])
    """
    m, t, s, lambda_ = broadcast(
        finite_numbers("mean", mean),
        deviations("spread", spread),
        finite_numbers("signal", signal),
        finite_numbers("shrinkage", shrinkage),
    )
    with np.errstate(over="ignore"):  # `selected_mean` reports an infinite spread
        shrunk = lambda_ * t
    # The integral of h' is exactly a difference of h.
    return selected_mean(link, m, shrunk, alpha) - selected_mean(link, m, s, alpha)


@dataclass(frozen=True)
class Geometry:
    """The numbers that determine the bias of selection by β̂ᵀX for X ~ N(μ, Σ); see `score_geometry`.

    Parameters
    ----------
    mean : ndarray of shape (R,)
        β̂ᵀμ.
    spread : ndarray of shape (R,)
        √(β̂ᵀΣβ̂), the standard deviation of the scores.
    signal : ndarray of shape (R,)
        β̂ᵀΣβ* / spread, the standard deviation of the true score along the scores.
    residual : ndarray of shape (R,)
        √(β*ᵀΣβ* − signal²), the standard deviation of the true score orthogonal to them.
    true_mean : ndarray of shape (R,)
        β*ᵀμ.

    Examples
    --------
    >>> score_geometry([3.0, 4.0], beta=[3.0, 0.0], mu=[1.0, 1.0], sigma=np.eye(2)).spread
    array([5.])
    """

    mean: Array
    spread: Array
    signal: Array
    residual: Array
    true_mean: Array


def score_geometry(beta_hat: ArrayLike, *, beta: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Geometry:
    """Compute the five numbers that determine the bias, for every fitted β̂.

    Parameters
    ----------
    beta_hat : array-like of shape (R, d) or (d,)
        Fitted coefficients. An intercept is a coordinate with μ = 1 and a row and a column of zeros in Σ.
    beta : array-like of shape (d,)
        True coefficients β*.
    mu : array-like of shape (d,)
        Mean of the candidates.
    sigma : array-like of shape (d, d)
        Covariance of the candidates.

    Returns
    -------
    Geometry
        One entry per row of `beta_hat`.

    Examples
    --------
    >>> g = score_geometry([[3.0, 4.0]], beta=[3.0, 0.0], mu=[1.0, 1.0], sigma=np.eye(2))
    >>> g.mean, g.spread, g.signal, g.residual
    (array([7.]), array([5.]), array([1.8]), array([2.4]))
    """
    b_hat, b = finite_numbers("beta_hat", beta_hat), finite_numbers("beta", beta)
    m, s = finite_numbers("mu", mu), finite_numbers("sigma", sigma)
    rows, d = np.atleast_2d(b_hat), b.size
    if rows.ndim != 2 or rows.shape[1] != d or b.shape != (d,) or m.shape != (d,) or s.shape != (d, d):
        raise UncurseError(
            f"shapes differ: beta_hat {b_hat.shape}, beta {b.shape}, mu {m.shape}, sigma {s.shape}; "
            "pass (R, d), (d,), (d,), (d, d)"
        )
    largest = np.abs(s).max(initial=0.0)
    unit = s / largest if largest else s
    if not np.allclose(unit, unit.T, atol=1e-9) or (d and np.linalg.eigvalsh(unit).min() < -1e-9):
        raise UncurseError("sigma is not a covariance; pass a symmetric matrix without negative eigenvalues")
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.einsum("ij,jk,ik->i", rows, s, rows)
        constant = np.flatnonzero(variance <= 0)
        if constant.size:
            raise UncurseError(f"beta_hat[{constant[0]}] gives constant scores; there is no top share")
        spread = np.sqrt(variance)
        signal = rows @ s @ b / spread
        residual = np.sqrt(np.maximum(b @ s @ b - signal**2, 0.0))  # negative only by rounding
        geometry = Geometry(rows @ m, spread, signal, residual, np.full(len(rows), b @ m))
    if not all(np.isfinite(numbers).all() for numbers in vars(geometry).values()):
        raise UncurseError("the variance of these scores overflows; rescale beta_hat, beta and sigma")
    return geometry


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

    Parameters
    ----------
    link : {"logistic", "identity", "probit"}
        Name of φ.
    mean_range : tuple of float
        [μ_l, μ_r], a range of β̂ᵀμ.
    spread_range : tuple of float
        [t_l, t_r] with 0 ≤ t_l < t_r.
    alpha : float
        Selected share, at most 0.2.
    probability : float, default=1.0
        c₁, the probability that β̂ᵀμ lies in `mean_range`; the bounds then hold for the mean of h' over β̂.

    Returns
    -------
    tuple of float
        Lower and upper bound.

    Examples
    --------
    >>> low, high = lemma1_bounds("logistic", mean_range=(-3.0, -3.0), spread_range=(0.4, 0.6), alpha=0.02)
    >>> bool(low < selected_slope("logistic", -3.0, 0.5, 0.02) < high)
    True
    """
    φ, share = get_link(link), check_share(alpha)
    (mu_l, mu_r), (t_l, t_r) = _two_numbers(mean_range), _two_numbers(spread_range)
    if share > 0.2:
        raise UncurseError(f"alpha={alpha!r} is above 0.2, where Lemma 1 does not apply; pass 0.2 or less")
    if not mu_l <= mu_r:
        raise UncurseError(f"mean_range={mean_range!r} is not a range; pass (low, high)")
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
    c0, c = float(φ.slope(ends).min()), float(φ.slope(np.zeros(1))[0])
    tail = float(np.exp(-0.5 * q * q) / np.sqrt(2 * np.pi) / share)  # E[Z | Z ≥ q]
    return 0.5 * c0 * c1 * tail, c * tail


def _two_numbers(values: Any) -> tuple[float, float]:
    """Return two finite numbers, or NaN where `values` is anything else."""
    try:
        low, high = (check_number(value, "range") for value in values)
    except (TypeError, ValueError):
        return math.nan, math.nan
    return low, high


def best_of(n: int = 2, *, truth: float = 0.5, deviation: float = 0.1) -> tuple[float, float]:
    """Compute Example 1: select the best of n candidates of equal truth.

    Each candidate is estimated as truth ± deviation, independently and without bias.

    Parameters
    ----------
    n : int, default=2
        Number of candidates.
    truth : float, default=0.5
        True value of every candidate.
    deviation : float, default=0.1
        Error of each estimate, 0 or more.

    Returns
    -------
    tuple of float
        Expected estimate of the selected candidate, and its truth. The estimate is high unless all n are low.

    Examples
    --------
    >>> best_of()
    (0.55, 0.5)
    """
    count, true = check_count(n, "n"), check_number(truth, "truth")
    high_share = 1 - math.ldexp(1.0, 1 - count)
    return true + float(deviations("deviation", check_number(deviation, "deviation"))) * high_share, true
