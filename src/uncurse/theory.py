"""Maximization bias by quadrature: Theorem 1, Corollary 1, Lemma 1 and Example 1 of the paper; a Gaussianity check.

The setting (paper, section 4): candidates X ~ N(μ, Σ), truth φ(β*ᵀX), scores β̂ᵀX, and the top share α of the scores
is kept. Given β̂ all that matters is five numbers, those of `score_geometry`. With q = q_{1−α}(Z), everything here is
E[g(mean + signal·Z + residual·Z₂) | Z ≥ q] for some g, and Z, Z₂ independent standard normals.

Theorem 1 keeps a leading term and drops an O(1/N). Mind that the leading term is O(1/N) too, since spread − signal
is quadratic in β̂ − β*: where φ bends, what is dropped is smaller, but not by a factor that grows with N, and it does
depend on α. `selected_truth` is exact, so `selected_mean(…) − selected_truth(…)` is the bias with nothing dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.evidence import Cells
from uncurse.links import get_link
from uncurse.validation import check_finite, check_scores, check_share

Integrand = Callable[[Array, Array], NDArray[np.floating]]  # of the score and of Z

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_REACH = 10.0  # normal mass beyond 10 standard deviations: 1e-23
_BREAKS = np.array([-40.0, -8.0, -3.0, 0.0, 3.0, 8.0, 40.0])  # panel ends around a bend, in units of its width
_BLOCK = 1024  # rows per pass: a few MB of nodes


def selected_mean(link: str, mean: ArrayLike, spread: ArrayLike, alpha: float) -> Array:
    """h(t) = E[φ(mean + t·Z) | Z ≥ q_{1−α}] at t = `spread`: the mean prediction on the selected set.

    Parameters
    ----------
    link : name of φ, see `uncurse.links`.
    mean, spread : β̂ᵀμ and t, numbers or arrays that broadcast; t may be negative.
    alpha : share selected, in (0, 1]; 1 selects everything.

    Returns an array of the broadcast shape; its relative error is below 1e-10 (probit: for values above 1e-20).

    >>> selected_mean("logistic", -3.0, [0.4, 0.5], 0.02).round(6)
    array([0.116643, 0.144372])
    """
    phi = get_link(link).phi
    return _average(lambda l, z: phi(l), mean, spread, 0.0, alpha)


def selected_slope(link: str, mean: ArrayLike, spread: ArrayLike, alpha: float) -> Array:
    """h'(t) = E[φ'(mean + t·Z)·Z | Z ≥ q_{1−α}] at t = `spread` (Theorem 1). Parameters as in `selected_mean`.

    >>> selected_slope("identity", 0.0, 1.0, 0.02).round(4)  # E[Z | Z ≥ q]
    np.float64(2.4209)
    """
    slope = get_link(link).slope
    return _average(lambda l, z: slope(l) * z, mean, spread, 0.0, alpha)


def selected_truth(link: str, *, mean: ArrayLike, signal: ArrayLike, residual: ArrayLike, alpha: float) -> Array:
    """E[φ(β*ᵀX)] on the selected set given β̂, exactly (appendix A, the line before the Taylor expansion).

    Parameters
    ----------
    mean : β*ᵀμ, of the truth, not of the scores.
    signal, residual : the parts of the true score along the served one and across it.

    >>> selected_truth("logistic", mean=-3.0, signal=0.4, residual=0.2, alpha=0.02).round(6)
    np.float64(0.118209)
    """
    phi = get_link(link).phi
    return _average(lambda l, z: phi(l), mean, signal, residual, alpha)


def maximization_bias(
    link: str, *, mean: ArrayLike, spread: ArrayLike, signal: ArrayLike, alpha: float, shrinkage: ArrayLike = 1.0
) -> Array:
    """∫ h'(t) dt from `signal` to λ·`spread`: the leading term of Theorem 1 (λ = 1) and Corollary 1.

    One entry per training draw; the theorem's expectation is the mean over draws, which is left to the caller.

    Parameters
    ----------
    mean, spread, signal : β̂ᵀμ, √(β̂ᵀΣβ̂) and β̂ᵀΣβ*/√(β̂ᵀΣβ̂), as from `score_geometry`.
    shrinkage : λ; the leading term is 0 at λ = signal/spread, whatever α is.

    >>> maximization_bias("logistic", mean=-3.0, spread=[0.5], signal=[0.4], alpha=0.02).round(6)
    array([0.027729])
    >>> maximization_bias("logistic", mean=-3.0, spread=[0.5], signal=[0.4], alpha=0.02, shrinkage=0.8).round(6)
    array([0.])
    """
    t = _numbers("spread", spread)
    if (t < 0).any():
        raise UncurseError(f"spread holds {t.min():g}; it is a standard deviation, pass 0 or more")
    shrunk = np.multiply(*_together(t, _numbers("shrinkage", shrinkage)))
    # ∫h' is taken as a difference of h: the integral over t is then exact.
    return selected_mean(link, mean, shrunk, alpha) - selected_mean(link, mean, signal, alpha)


@dataclass(frozen=True)
class Geometry:
    """What selection by β̂ᵀX sees of N(μ, Σ): one entry per row of β̂."""

    mean: Array  # β̂ᵀμ
    spread: Array  # √(β̂ᵀΣβ̂), the sd of the scores
    signal: Array  # β̂ᵀΣβ* / spread, the sd of the truth along the scores
    residual: Array  # √(β*ᵀΣβ* − signal²), the sd of the truth across them
    true_mean: Array  # β*ᵀμ


def score_geometry(beta_hat: ArrayLike, *, beta: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Geometry:
    """The five numbers that decide the bias, for every fitted β̂ (R, d) or (d,), with β*, μ (d,) and Σ (d, d).

    An intercept is a coordinate with μ = 1 and a row and a column of zeros in Σ.

    >>> g = score_geometry([[3.0, 4.0]], beta=[3.0, 0.0], mu=[1.0, 1.0], sigma=np.eye(2))
    >>> g.mean, g.spread, g.signal, g.residual
    (array([7.]), array([5.]), array([1.8]), array([2.4]))
    """
    b_hat, b = _numbers("beta_hat", beta_hat), _numbers("beta", beta)
    m, s = _numbers("mu", mu), _numbers("sigma", sigma)
    rows, d = np.atleast_2d(b_hat), b.size
    if rows.ndim != 2 or rows.shape[1] != d or b.shape != (d,) or m.shape != (d,) or s.shape != (d, d):
        raise UncurseError(
            f"shapes differ: beta_hat {b_hat.shape}, beta {b.shape}, mu {m.shape}, sigma {s.shape}; "
            "pass (R, d), (d,), (d,), (d, d)"
        )
    spread = np.sqrt(np.einsum("ij,jk,ik->i", rows, s, rows))
    if not (spread > 0).all():
        raise UncurseError(f"beta_hat[{np.flatnonzero(~(spread > 0))[0]}] gives constant scores; there is no top share")
    signal = rows @ s @ b / spread
    residual = np.sqrt(np.maximum(b @ s @ b - signal**2, 0.0))  # Cauchy-Schwarz, but for rounding
    return Geometry(rows @ m, spread, signal, residual, np.full(len(rows), b @ m))


def lemma1_bounds(
    link: str,
    *,
    mean_range: tuple[float, float],
    spread_range: tuple[float, float],
    alpha: float,
    probability: float = 1.0,
) -> tuple[float, float]:
    """Lemma 1: c₀c₁/2·E[Z | Z ≥ q] ≤ h'(t) ≤ C·E[Z | Z ≥ q] for t in `spread_range`, and α ≤ 0.2.

    The ½ stands for E[Z; q ≤ Z ≤ 2q] / E[Z; Z ≥ q] = 1 − exp(−3q²/2), which is .654 at α = 0.2 and still ½ at α = .248.
    As α → 0 at a fixed t > 0 the lower bound vanishes (c₀ is φ' as far out as 2tq), and so does h' where φ saturates.

    Parameters
    ----------
    mean_range, spread_range : [μ_l, μ_r] and [t_l, t_r], 0 ≤ t_l < t_r.
    probability : c₁, the probability that β̂ᵀμ is in `mean_range`; h' is then its mean over β̂.

    >>> low, high = lemma1_bounds("logistic", mean_range=(-3.0, -3.0), spread_range=(0.4, 0.6), alpha=0.02)
    >>> bool(low < selected_slope("logistic", -3.0, 0.5, 0.02) < high)
    True
    """
    φ, share = get_link(link), check_share(alpha)
    (mu_l, mu_r), (t_l, t_r) = mean_range, spread_range
    if share > 0.2:
        raise UncurseError(f"alpha={alpha!r} is above 0.2, where Lemma 1 does not apply; pass 0.2 or less")
    if not (np.isfinite([mu_l, mu_r]).all() and mu_l <= mu_r):
        raise UncurseError(f"mean_range={mean_range!r} is not a range; pass (low, high)")
    if not 0 <= t_l < t_r < np.inf:
        # A negative t_l would let mean + tZ leave [l, r], which the paper's statement overlooks.
        raise UncurseError(f"spread_range={spread_range!r} is not a range; pass 0 <= low < high")
    check_share(probability, "probability")
    if link == "log":
        raise UncurseError("link='log' has no largest slope (φ is not Lipschitz); Lemma 1 needs another link")
    q = -ndtri(share)
    # [l, r] as small as condition 2 allows. φ' has one peak, at 0, so its least value is at an end.
    ends = np.array([mu_l + t_l * q, mu_r + 2 * t_r * q])
    c0, c = float(φ.slope(ends).min()), float(φ.slope(np.zeros(1))[0])
    tail = float(np.exp(-0.5 * q * q) / np.sqrt(2 * np.pi) / share)  # E[Z | Z ≥ q]
    return 0.5 * c0 * probability * tail, c * tail


def best_of(n: int = 2, *, truth: float = 0.5, deviation: float = 0.1) -> tuple[float, float]:
    """Example 1 for n candidates of equal truth, each estimated as truth ± deviation, independently and unbiased.

    Returns the expected estimate of the one selected, which is high unless all n came out low, and its truth.

    >>> best_of()
    (0.55, 0.5)
    """
    if n < 1 or deviation < 0:
        raise UncurseError(f"n={n!r}, deviation={deviation!r}; pass 1 candidate or more and a deviation of 0 or more")
    return truth + deviation * (1 - 2.0 ** (1 - n)), truth


@dataclass(frozen=True)
class Gaussianity:
    """How near scores are to a normal distribution; read `distance`, see `gaussianity`."""

    n: int
    mean: float
    sd: float  # ddof 1
    skewness: float
    excess_kurtosis: float
    distance: float  # Kolmogorov-Smirnov, to the normal with this mean and sd
    p_value: float  # nan where rows have weights, for which there is no test


def gaussianity(scores: ArrayLike | Cells) -> Gaussianity:
    """Kolmogorov-Smirnov distance of scores (n,) to the normal fitted to them, with Lilliefors' p-value.

    The theorem needs jointly Gaussian scores (remark 1). Read the distance, not the p-value: a real distribution is
    never exactly normal, so at the size of a log any is rejected. A distance d moves any tail share by at most d, so
    compare it with α: 0.01 is harmless for the mean of the pool, and is not for the top 1%.

    Mean and sd come from the same scores, for which the plain Kolmogorov p-value is far too large (a true 5% reads
    about 40%). Here D·√n has Lilliefors' null, by a formula fitted to 10⁶ simulated samples: within .004 of
    the simulated p, and within 15% of it down to p = .001, for any n ≥ 20. One sort, whatever n is.

    `Cells` are judged on the logit, or as they are on the value scale. Inside a slot of their grid nothing is known of
    the scores, so the distance is looked at where slots end.

    >>> g = gaussianity(np.random.default_rng(0).normal(-3.0, 0.5, 10_000))
    >>> g.distance < 0.01, g.p_value > 0.1
    (True, True)
    """
    if isinstance(scores, Cells):
        return _gaussianity_of_cells(scores)
    x = np.sort(check_scores(scores, "value")).astype(np.float64)
    n = x.size
    mean, sd = float(x.mean()), float(x.std(ddof=1)) if n > 1 else 0.0
    _check_spread(n, mean, sd)
    x = (x - mean) / sd
    m2 = float(np.mean(x**2))
    skewness, kurtosis = float(np.mean(x**3)) / m2**1.5, float(np.mean(x**4)) / m2**2 - 3
    cdf, steps = ndtr(x), np.arange(n + 1) / n
    distance = float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()))
    return Gaussianity(n, mean, sd, skewness, kurtosis, distance, _lilliefors(distance, n))


def _gaussianity_of_cells(cells: Cells) -> Gaussianity:
    (x, low, high), w = cells.on_logit(), cells.weight
    n, total = cells.rows, float(w.sum())
    counted = np.array_equal(w, cells.weight_squares)
    effective = total if counted else total**2 / float(cells.weight_squares.sum())
    mean = float(w @ x) / total if n else 0.0
    variance = float(w @ np.square(x - mean)) / total if n else 0.0
    sd = float(np.sqrt(variance * effective / (effective - 1))) if effective > 1 else 0.0
    _check_spread(n, mean, sd)
    z = (x - mean) / np.sqrt(variance)
    reached = np.append(0.0, np.cumsum(w)) / total
    below, above = reached[:-1] - ndtr((low - mean) / sd), reached[1:] - ndtr((high - mean) / sd)
    distance = float(max(np.abs(below).max(), np.abs(above).max()))
    skewness, kurtosis = float(w @ z**3) / total, float(w @ z**4) / total - 3
    p_value = _lilliefors(distance, n) if counted else float("nan")
    return Gaussianity(n, mean, sd, skewness, kurtosis, distance, p_value)


def _check_spread(n: int, mean: float, sd: float) -> None:
    if n < 20:
        raise UncurseError(f"{n} scores are too few to judge a distribution; pass 20 or more")
    if not sd > 1e-12 * abs(mean):
        raise UncurseError(f"scores are constant ({mean:g}); there is no distribution to judge")


def _lilliefors(distance: float, n: int) -> float:
    k = distance * np.sqrt(n) + 0.153 / np.sqrt(n)
    u = np.log(k + 0.45 * k**3 / n)  # of D·√n at n → ∞; the two corrections hold each quantile to .001
    return float(ndtr(-np.polyval([0.8949, 0.8929, 4.5269, 2.0751], u)))


def _numbers(name: str, values: ArrayLike) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UncurseError(f"{name} must be numbers: {error}") from None
    check_finite(np.atleast_1d(array), name)
    return array


def _together(*arrays: Array) -> tuple[Array, ...]:
    try:
        return np.broadcast_arrays(*arrays)
    except ValueError:
        raise UncurseError(f"shapes {', '.join(str(a.shape) for a in arrays)} do not broadcast") from None


def _average(function: Integrand, mean: ArrayLike, signal: ArrayLike, residual: ArrayLike, alpha: float) -> Array:
    """E[function(mean + signal·Z + residual·Z₂, ·) | Z ≥ q], a block of rows at a time."""
    q = -float(ndtri(check_share(alpha)))
    r = _numbers("residual", residual)
    if (r < 0).any():
        raise UncurseError(f"residual holds {r.min():g}; it is a standard deviation, pass 0 or more")
    m, s, r = _together(_numbers("mean", mean), _numbers("spread or signal", signal), r)
    rows = np.stack([m.ravel(), s.ravel(), r.ravel()], axis=1)
    result = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        result[start : start + _BLOCK] = _average_block(function, rows[start : start + _BLOCK], q)
    if not np.isfinite(result).all():
        worst = rows[np.flatnonzero(~np.isfinite(result))[0]]
        raise UncurseError(f"the mean overflows at mean={worst[0]:g}, spread={worst[1]:g}; is the link right?")
    return result.reshape(m.shape)[()]


def _average_block(function: Integrand, rows: Array, q: float) -> Array:
    m, s, r = rows.T[:, :, None]
    # One dimension is enough: with T·W = s·Z + r·Z₂, W is standard normal and P(Z ≥ q | W) = Φ((ρW − q)/√(1 − ρ²)).
    # Where r = 0, W is Z itself and that gate is a step at q, which is made the end of the range.
    hard = r == 0
    total = np.where(hard, s, np.hypot(s, r))
    scale = np.where(hard, 1.0, total)
    rho, across = np.where(hard, 1.0, s / scale), np.where(hard, 1.0, r / scale)
    # The weight sits near ρq, or where an exponential φ tilts it, by T.
    near, tilt = rho * (q if np.isfinite(q) else 0.0), np.clip(total, -40, 40)
    low = np.minimum(near, 0) + np.minimum(tilt, 0) - _REACH
    high = np.maximum(near, 0) + np.maximum(tilt, 0) + _REACH
    low = np.where(hard, np.maximum(low, q), low)
    # Panels end where φ bends (mean + T·W = 0, width 1/T) and where the gate opens (W = q/ρ).
    steep, opening = (np.where(np.abs(x) < 1e-8, 1e-8, x) for x in (total, rho))
    ends = np.concatenate(
        [low + (high - low) * np.linspace(0, 1, 17), (_BREAKS - m) / steep, (q + _BREAKS * across) / opening], axis=1
    )
    ends = np.sort(np.clip(ends, low, high), axis=1)
    half = np.diff(ends, axis=1)[:, :, None] / 2
    w = (ends[:, :-1, None] + half * (1 + _NODES)).reshape(len(rows), -1)
    weight = (half * _WEIGHTS).reshape(w.shape) * np.exp(-0.5 * w * w)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported by the caller
        if not hard.all():
            weight *= np.where(hard, 1.0, ndtr((rho * w - q) / across))
        values = function(m + total * w, w)
        average: Array = np.sum(weight * values, axis=1) / np.sum(weight, axis=1)
    return average


__all__ = [
    "Gaussianity",
    "Geometry",
    "best_of",
    "gaussianity",
    "lemma1_bounds",
    "maximization_bias",
    "score_geometry",
    "selected_mean",
    "selected_slope",
    "selected_truth",
]
