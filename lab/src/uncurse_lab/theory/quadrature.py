"""Means over the selected tail of a Gaussian, by Gauss-Legendre quadrature."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.validation import check_finite, check_numbers, check_share

Integrand = Callable[[Array, Array], NDArray[np.floating]]  # function of the score and of Z

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_REACH = 10.0  # normal mass beyond 10 standard deviations: 1e-23
_BREAKS = np.array([-40.0, -8.0, -3.0, 0.0, 3.0, 8.0, 40.0])  # panel ends around a bend, in units of its width
_BLOCK = 1024  # rows per pass: a few MB of nodes


def tail_average(function: Integrand, mean: ArrayLike, signal: ArrayLike, residual: ArrayLike, alpha: float) -> Array:
    """Compute E[g(mean + signal·Z + residual·Z₂, Z) | Z ≥ q_{1−α}] for independent standard normals Z and Z₂.

    g is a function of two arrays, the score and Z; Z is exact only where `residual` is 0. Arguments broadcast.

    >>> tail_average(lambda l, z: l, 0.0, 1.0, 0.0, 0.02).round(4)
    np.float64(2.4209)
    """
    q = -float(ndtri(check_share(alpha)))
    m, s, r = broadcast(
        finite_numbers("mean", mean), finite_numbers("spread or signal", signal), deviations("residual", residual)
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


def finite_numbers(name: str, values: ArrayLike) -> Array:
    """Return finite numbers of any shape as float64."""
    array = check_numbers(values, name).astype(np.float64, copy=False)
    check_finite(np.atleast_1d(array), name)
    return array


def deviations(name: str, values: ArrayLike) -> Array:
    """Return standard deviations: finite numbers of at least 0."""
    array = finite_numbers(name, values)
    if (array < 0).any():
        raise UncurseError(f"{name} holds {array.min():g}; it is a standard deviation, pass 0 or more")
    return array


def broadcast(*arrays: Array) -> tuple[Array, ...]:
    """Broadcast arrays against each other."""
    try:
        return np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise UncurseError(f"shapes {shapes} do not broadcast; pass numbers or arrays of one shape") from None
