"""The curve of a regression: the mean outcome by the score of rows out of fold.

Outcomes are shares of a range, from 0 to 1, so that the curve of the labels of a classifier serves: the log odds of the
share are a smooth function of the score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from .._types import Array
from ..calibration.binning import isotonic_levels
from ..calibration.parametric import MIN_SLOPE
from ..calibration.spline import SmoothCurve, fit_smooth, monotone_curve
from ..errors import UncurseError
from ..evidence.histogram import ReplicaTable, clip_outliers
from ..links import logistic, logit
from ..maps import Affine, Curve, compose
from ..methods.fitted import Fitted
from ..methods.noise import ReplicaKind, replica_kind
from ..methods.records import FitRecord
from ..methods.remaining_error import Estimate, TopShare, error_table
from ..methods.replica_calibration import MOVE_ERROR, shift_probability
from ..validation import effective_rows
from .cross_fitting import CrossFit, Scored, on_link

_KNOTS, _REACH = 512, 3.0  # of the map, which is constant from three spreads beyond the knots of the curve
_ROOM = 3.0  # above the highest outcome on the log link, relative to the range of the outcomes
_RUN, _LEAST_RUNS = 64, 3  # cells per estimate of the residual variance: a relative error of √(2/64) = 18%
_LEAST_LAMBDA = 0.3  # a smaller λ does not determine the true score


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


@dataclass(frozen=True)
class OutcomeCurve(Estimate):
    """Estimate of the mean outcome on the pool: the average of a smooth curve and isotonic regression.

    The curve has less noise, above all on the highest scores. Isotonic regression follows any bend.

    `steps` holds scores and the shares by isotonic regression there. `table` holds moved scores and, as gap, the way
    back.
    """

    ends: tuple[float, float]  # of the range of outcomes
    curve: SmoothCurve
    steps: tuple[Array, Array]
    table: ReplicaTable

    def log_odds(self, served: Array) -> Array:
        """Return the log odds of the share at scores of the link."""
        return np.asarray(logit(self.share(served)), np.float64)

    def share(self, served: Array) -> Array:
        """Return the mean share at scores of the link."""
        return np.asarray((logistic(self.curve(served)) + np.interp(served, *self.steps)) / 2, np.float64)

    def log_error(self, top: TopShare) -> float:
        """Return the relative standard error of the mean outcome: of its curve, its shape, and the move to the pool."""
        p, share = logistic(self.curve(top.served)), self.share(top.served)
        chance = top.squared_error(p, self.curve.features(top.served), self.curve.covariance) * top.mean(p) ** 2
        moved = MOVE_ERROR * top.mean(share - self.share(top.served + self.table.gap[top.cells]))
        shape = top.mean(p - share)
        return float(np.sqrt(chance + moved**2 + shape**2)) * (self.ends[1] - self.ends[0]) / self._mean(top)

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return no error of the level; None if the mean outcome is not positive, so that it has no relative error."""
        return (0.0, 1) if self._mean(top) > 0 else None

    def _mean(self, top: TopShare) -> float:
        return self.ends[0] + (self.ends[1] - self.ends[0]) * top.mean(self.share(top.served))

    def map(self, link: str) -> Curve:
        """Return the curve as an increasing map of scores on the link."""
        log_odds = self.curve.map()
        reach = _REACH * self.curve.spread
        x = np.linspace(log_odds.x[0] - reach, log_odds.x[-1] + reach, _KNOTS)
        share = (logistic(log_odds.transform(x)) + np.interp(x, *self.steps)) / 2
        curve = monotone_curve(x, on_link(self.ends[0] + (self.ends[1] - self.ends[0]) * share, link))
        return replace(curve, left=MIN_SLOPE, right=MIN_SLOPE, link=link, scale="value")


def _scatter(x: Array, weight: Array, share: Array) -> Array:
    """Return the variance of shares about their curve relative to p(1 − p): a power of the odds of the curve.

    A variance by neighboring rows alone would give rows near a high outcome less weight, and the curve a low bias.
    """
    log_odds = fit_smooth(x, weight, share)(x)
    p = np.asarray(logistic(log_odds), np.float64)
    pearson = np.square(share - weight * p) / (weight * np.maximum(p * (1 - p), 1e-12))
    starts = np.arange(0, max(len(pearson) - _RUN + 1, 1), _RUN)
    counts = np.diff(starts, append=len(pearson))
    means, place = (np.add.reduceat(values, starts) / counts for values in (pearson, log_odds))
    means = np.maximum(means, 1e-12 + 1e-6 * means.max())  # an exact fit has no residual
    if len(means) < _LEAST_RUNS or not np.ptp(place) > 0:
        return np.full(len(x), pearson.mean() or 1.0)
    power = np.exp(np.polyval(np.polyfit(place, np.log(means), 1), log_odds))
    return np.asarray(power * max(float(np.mean(pearson / power)), 1e-12))


def fit_outcomes(done: CrossFit) -> Fitted:
    """Fit the curve to labeled rows, and move it to the pool as far as pool and labeled rows differ."""
    rows, pool, link, kind = done.labeled, done.pool, done.link, replica_kind(done.replicas.kind)
    assert rows is not None
    assert rows.labels is not None
    ends = float(rows.labels.min()), float(rows.labels.max())
    if not ends[0] < ends[1]:
        raise UncurseError(f"every target is {ends[0]:g}")
    if link == "log":  # the log odds of small shares are their logarithms, so right scores give a line
        ends = ends[0], ends[1] + _ROOM * (ends[1] - ends[0])
    x, weight = on_link(rows.scores[:, 0], link), rows.row_weights
    weight = weight * (effective_rows(weight) / weight.sum() / rows.repeats)
    order = np.argsort(x, kind="stable")
    share = weight * (rows.labels - ends[0]) / (ends[1] - ends[0])
    columns = x[order], weight[order], share[order]
    curve = fit_smooth(*columns, scatter=_scatter(*columns))
    same = 0.0, Affine(1.0, 0.0, link, "value")
    shift, move = same if done.served_pool is None else _move(pool, rows, kind, link)
    before = on_link(pool.scores[:, 0], link)
    table = _table(replace(pool, scores=np.column_stack([move.transform(before), before])))
    score, starts = np.unique(columns[0], return_index=True)
    total, shares = (np.add.reduceat(column, starts) for column in columns[1:])
    first, levels = isotonic_levels(shares / total, total)
    steps = score, np.repeat(levels, np.diff(first, append=len(score)))
    estimate = OutcomeCurve(ends, curve, steps, table)
    errors = error_table(estimate.share, estimate, rates=False)
    record = FitRecord(
        "labels",
        pool.record(),
        reason="the map is the curve of the targets by the scores out of fold",
        no_interval="" if errors else "the mean target on the top is not positive, so it has no relative error",
        scale="value",
        link=link,
        replicas=kind.name,
        shift_probability=shift,
    )
    return Fitted(compose(move, estimate.map(link), scale="value"), record, errors)


def _move(pool: Scored, rows: Scored, kind: ReplicaKind, link: str) -> tuple[float, Affine]:
    """Return the probability that pool and labeled rows differ, and the map of scores of the pool.

    A score of the pool becomes the one with the same expected true score among the labeled rows.
    """
    tables, found = [], []
    for part in (pool, rows):
        scores = np.stack([clip_outliers(x, part.row_weights) for x in on_link(part.scores, link).T], axis=1)
        tables.append(_table(replace(part, scores=scores)))
        covariance = np.cov(scores.T, ddof=0, aweights=part.row_weights)
        ratio = 1 - float(kind.noise_variance(covariance)) / float(covariance[0, 0])
        found.append((ratio, float(np.average(scores[:, 0], weights=part.row_weights))))
    (ratio, center), (own_ratio, own_center) = found
    if min(ratio, own_ratio) < _LEAST_LAMBDA:
        return 0.0, Affine(1.0, 0.0, link, "value")
    shift = shift_probability(tables[0], tables[1], kind)
    away = ((1 - ratio) * center - (1 - own_ratio) * own_center) / own_ratio
    return shift, Affine(1 + shift * (ratio / own_ratio - 1), shift * away, link, "value")


def _table(part: Scored) -> ReplicaTable:
    """Return scores as a table of replicas, in which each different row counts once."""
    effective = effective_rows(part.row_weights) / part.repeats
    return replace(ReplicaTable.of_rows(part.scores), weight=part.row_weights, effective_rows=effective)
