"""The line of a regression: how outcomes rise with the scores of rows out of fold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from .._types import Array
from ..methods.noise import ReplicaKind
from ..metrics.selection import top_share
from ..validation import warn_user

# The variance of outcomes is estimated in bins of equal count; the weights that follow converge in a few rounds.
_VARIANCE_BINS, _VARIANCE_ROWS, _VARIANCE_ROUNDS = 10, 100, 3
_CHANCE = 4.0  # squared difference of two lines that chance explains, in units of its variance
_TOP, _LEAST_TOP = 0.1, 30  # share and least number of the rows on which outcomes are compared with a line
_BEND, _BEND_ERRORS = 0.03, 4.0  # least difference: relative, and in standard errors, which chance does not reach
_POWERS = (0.0, 3.0)  # of the mean, from equal variances to those of an inverse Gaussian distribution
_LEAST_RATIO = 0.3  # a smaller λ of the labeled rows does not determine a line in the true score
_STEPS, _CLOSE, _LARGEST = 50, 1e-10, 600.0  # of Newton's method, and of a logarithm


def has_log_link(estimator: Any) -> bool:
    """Return whether a regressor is a generalized linear model with a log link, as of counts and of amounts.

    Not trees with such a loss: outcomes follow a line in their over-fitted predictions better than a power.
    """
    from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor  # slow to import

    while isinstance(estimator, Pipeline) or hasattr(estimator, "estimator"):  # as a search and a frozen model have
        estimator = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator.estimator
    if isinstance(estimator, TweedieRegressor):
        return bool(estimator.link == "log" or (estimator.link == "auto" and estimator.power > 0))
    return isinstance(estimator, PoissonRegressor | GammaRegressor)


def fit_target_line(
    z: Array, y: Array, weight: Array, repeats: float, kind: ReplicaKind, link: str
) -> tuple[float, float, bool]:
    """Return slope and level of the target by score, and whether it is the true score.

    It is the served score if most of its variance is noise: a line in the true score would magnify any difference
    between pool and labeled rows. `z` (n, S) are scores on the link.
    """
    covariance = np.cov(z.T, ddof=0, aweights=weight)
    noise, variance = float(kind.noise_variance(covariance)), float(covariance[0, 0])
    center = float(np.average(z[:, 0], weights=weight))
    line = fit_outcome_line(z[:, 0] - center, y, weight, repeats, link)
    warn_of_a_bend(z[:, 0], y, line, link)
    slope = max(line.slope, 0.0)
    if noise >= (1 - _LEAST_RATIO) * variance:
        return slope, line.level - slope * center, False
    ratio = 1 - noise / variance
    slope /= ratio
    curvature = noise * ratio / 2 if link == "log" else 0.0  # of exp, over true scores given a served one
    return slope, line.level - slope * center - slope**2 * curvature, True


class OutcomeLine(NamedTuple):
    """Level and slope of outcomes by score; `bend` is a sign that outcomes bend, and its standard error."""

    level: float
    slope: float
    fitted: Array  # the outcome of each row by a line that no variance weights
    bend: tuple[float, float]


def fit_outcome_line(x: Array, y: Array, weight: Array, repeats: float, link: str) -> OutcomeLine:
    """Fit outcomes as a line in scores, or as the exponential of a line if `link` is "log".

    `repeats` is how often each row occurs. `bend` is the difference of two lines on the top.

    If the spread of outcomes grows with their mean, as that of claims, few rows determine a line by least squares.
    Rows that are weighted by the inverse variance give a better line, but a wrong one where the target bends. So both
    are averaged: the more they differ on the top, compared with the error of their difference, the more the unweighted
    one counts.
    """
    line, covariance, unweighted = _fit_line(x, y, weight, repeats, link)
    bins = np.array_split(np.argsort(x, kind="stable"), min(_VARIANCE_BINS, len(x) // _VARIANCE_ROWS) or 1)
    if len(bins) < 2 or not (y - unweighted).any():
        return OutcomeLine(float(line[0]), float(line[1]), unweighted, (0.0, 0.0))
    own, own_covariance, fitted = line, covariance, unweighted
    for _ in range(_VARIANCE_ROUNDS):
        factor = _inverse_variance(np.square(y - fitted), fitted, weight, bins, link)
        own, own_covariance, fitted = _fit_line(x, y, weight * factor, repeats, link)
    top = np.array([1.0, x[bins[-1]].mean()])
    error = max(float(top @ (covariance - own_covariance) @ top), 0.01 * float(top @ covariance @ top))
    away = float(top @ (line - own))
    share = max(0.0, 1 - _CHANCE * error / away**2) if away else 0.0
    level, slope = own + share * (line - own)
    unit = float(np.exp(min(float(top @ line), _LARGEST))) if link == "log" else 1.0
    return OutcomeLine(float(level), float(slope), unweighted, (away * unit, float(np.sqrt(error)) * unit))


def _inverse_variance(squares: Array, fitted: Array, weight: Array, bins: list[NDArray[np.intp]], link: str) -> Array:
    """Return a factor of the weight of each row, such that a line has the smallest error."""
    variance = np.array([weight[rows] @ squares[rows] / max(float(weight[rows].sum()), 1e-300) for rows in bins])
    if link == "log":  # the variance is a power of the mean, which differs much inside the highest bin
        means = np.log([fitted[rows].mean() for rows in bins])
        spread = float(np.var(means))
        power = float(np.cov(means, np.log(variance + 1e-300), ddof=0)[0, 1]) / spread if spread > _CLOSE else 1.0
        return np.asarray(np.power(fitted / fitted.mean(), 1 - np.clip(power, *_POWERS)))
    factor, variance = np.empty(len(squares)), np.maximum(variance, 1e-3 * variance.mean())
    for rows, own in zip(bins, variance, strict=True):
        factor[rows] = 1 / own
    return factor


def _fit_line(x: Array, y: Array, weight: Array, repeats: float, link: str) -> tuple[Array, Array, Array]:
    """Return level and slope, their covariance for any variance of rows, and the fitted outcome of each row."""
    features = np.stack([np.ones_like(x), x])
    if link == "log":
        line, fitted = _poisson_line(features, y, weight)
    else:
        from sklearn.linear_model import LinearRegression  # slow to import

        model = LinearRegression().fit(x[:, None], y, sample_weight=weight)
        line, fitted = np.array([model.intercept_, model.coef_[0]]), model.predict(x[:, None])
    inverse = np.linalg.pinv((features * (weight * fitted if link == "log" else weight)) @ features.T)
    scatter = features * (weight * (y - fitted))
    return line, repeats * inverse @ (scatter @ scatter.T) @ inverse, fitted


def _poisson_line(features: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Return the line of a Poisson regression, and fitted outcomes.

    The solvers of `PoissonRegressor` fail where weights or outcomes differ by many orders of magnitude.
    """
    line = np.array([np.log(max(float(np.average(y, weights=weight)), 1e-300)), 0.0])
    fitted = np.full(len(y), np.exp(line[0]))
    for _ in range(_STEPS):
        inverse = np.linalg.pinv((features * (weight * fitted)) @ features.T)
        step = inverse @ (features @ (weight * (y - fitted)))
        line = line + step / max(1.0, float(np.abs(step @ features).max()))  # at most a factor of e at a time
        fitted = np.exp(np.clip(line @ features, -_LARGEST, _LARGEST))
        if float(np.abs(step).max()) < _CLOSE:
            break
    return line, fitted


def warn_of_a_bend(x: Array, y: Array, line: OutcomeLine, link: str) -> None:
    """Warn if outcomes of the highest scores are off the line of outcomes by score, which the map relies on.

    Where the outcomes of high scores are noisy, a difference between two lines shows it better.
    """
    top = np.flatnonzero(top_share(x, _TOP))
    if len(top) < _LEAST_TOP:
        return
    fitted, difference = float(line.fitted[top].mean()), y[top] - line.fitted[top]
    direct = float(np.mean(difference)), float(np.std(difference)) / np.sqrt(len(top))
    what = {f"outcomes of the top {100 * _TOP:g}% differ from a line in the predictions": direct}
    remedy = "compare it with the plain model on rows with outcomes"
    if link == "identity":  # amounts on the log link would raise false alarms by the second sign
        what["lines through noisy and through precise outcomes differ on the top"] = line.bend
        remedy += ", or use a model that follows the target, such as PoissonRegressor or GammaRegressor"
    for name, (away, error) in what.items():
        if abs(away) > max(_BEND * abs(fitted), _BEND_ERRORS * error):
            warn_user(
                f"out of fold, {name} by {away:+.3g} ± {error:.2g}, where the mean is {fitted:.3g}: the target "
                "bends and the map is a straight line, so it is off on the top, and may be worse than the plain model; "
                f"{remedy}"
            )
            return
