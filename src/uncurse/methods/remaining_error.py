"""The calibration error that remains after a map, by selected share of the pool, as a table of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..evidence.histogram import ReplicaTable
from ..links import logistic
from ..validation import check_number, check_share

#: Shares on which maps are compared.
SHARES = (0.01, 0.02, 0.05, 0.1)
_SMALLEST, _STEPS = 0.001, 32  # of the shares in the table, at equal ratios
_CERTAIN = 1e-280  # a mean probability below this has no relative error in double precision
_LARGEST_FACTOR = 1_000.0  # by which a rate may be off, with 90% confidence; there is no interval beyond


@dataclass(frozen=True)
class ErrorTable:
    """Expected error of a map on the top of the pool, by selected share.

    Examples
    --------
    >>> table = ErrorTable((0.01, 1.0), (0.02, 0.0), (0.03, 0.01), (0.0, 0.0), 1)
    >>> low, high = table.interval(0.01)
    >>> round(low, 3), round(high, 3)
    (-0.029, 0.072)
    """

    alphas: tuple[float, ...]  # selected shares, ascending
    error: tuple[float, ...]  # log of predicted over estimated rate
    standard_error: tuple[float, ...]  # of that log, by chance in labels and rows
    level_error: tuple[float, ...]  # the part that all scores share
    freedom: int  # degrees of freedom of the level error
    predicted: tuple[float, ...] = ()  # mean prediction, if it is a rate: the true rate is at most 1

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Return an interval for the calibration error on the top share, see `Fitted.interval`."""
        from scipy.special import ndtri, stdtrit

        share = check_share(alpha)
        if not 0 < check_number(level, "level") < 1:
            raise UncurseError(f"level={level!r}; pass a probability between 0 and 1, such as 0.9")
        if share < self.alphas[0] * (1 - 1e-9):
            raise UncurseError(f"alpha={alpha:g} selects too few rows of the pool; use at least {self.alphas[0]:.2g}")
        place = np.log(self.alphas)
        error, chance, shared = (
            float(np.interp(np.log(share), place, column))
            for column in (self.error, self.standard_error, self.level_error)
        )
        quantile, student = float(ndtri(0.5 + level / 2)), float(stdtrit(self.freedom, 0.5 + level / 2))
        reach = float(np.hypot(quantile * chance, student * shared))
        least = float(np.interp(np.log(share), place, self.predicted)) - 1 if self.predicted else -1.0
        return max(float(np.expm1(error - reach)), least), float(np.expm1(min(error + reach, 700.0)))


class Estimate:
    """Estimate of the true rates on the pool, with standard errors; the predictions of a map are compared with it."""

    table: ReplicaTable  # replicas of the pool

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        raise NotImplementedError

    @cached_property
    def rates(self) -> Array:
        """Estimated rates of the cells of the table."""
        return np.asarray(logistic(self.log_odds(self.table.served)), np.float64)

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of the mean estimate on the top share."""
        raise NotImplementedError

    def level_error(self, top: TopShare) -> tuple[float, int] | None:
        """Return the part of the error that all scores share, and its freedom; None if replicas do not show it."""
        raise NotImplementedError

    def correction(self, top: TopShare) -> float:
        """Return by how much the log of the mean served probability on the top share exceeds that of the estimate."""
        return top.log_mean(logistic(top.served)) - top.log_mean(self.rates[top.cells])


def error_table(
    predict: Any, estimate: Estimate, labeled: ReplicaTable | None = None, *, rates: bool = True
) -> ErrorTable | None:
    """Compare predictions, a function of served logits, with an estimate; None if a rate is 0 or not known at all.

    Near a rate of 1, neither replicas nor a curve of labels show an error. One more negative among the labeled rows of
    the top is always possible.
    """
    rows = estimate.table.effective_rows
    lowest = min(max(_SMALLEST, 1 / rows), 1.0)
    alphas = np.unique([*np.geomspace(lowest, 1.0, _STEPS).round(12), *(a for a in SHARES if a >= lowest)])
    tops, prediction, columns = top_shares(estimate.table, alphas.tolist()), predict(estimate.table.served), []
    known = np.array([top.mean(estimate.rates[top.cells]) for top in tops])
    one_more = np.zeros(len(tops))
    if labeled is not None:
        weight = labeled.row_weights()[0]
        counts = np.array([weight[labeled.served >= top.served.min()].sum() for top in tops])
        # A rate at the top is at least that of a larger share, whose labels are more.
        one_more = np.array([(r - known[k:] + r / (counts[k:] + 1)).min() for k, r in enumerate(known)])
    for top, estimated, chance in zip(tops, known.tolist(), one_more.tolist(), strict=True):
        predicted, shared = top.mean(prediction[top.cells]), estimate.level_error(top)
        if shared is None or min(predicted, estimated) < _CERTAIN:
            return None
        by_chance = float(np.hypot(estimate.log_error(top), max(chance, 0.0)))
        columns.append((float(np.log(predicted / estimated)), by_chance, *shared, predicted))
    error, by_chances, level, freedom, means = zip(*columns, strict=True)
    table = ErrorTable(tuple(alphas.tolist()), error, by_chances, level, int(freedom[0]), means if rates else ())
    return table if table.interval(float(alphas[0]))[1] < _LARGEST_FACTOR else None


def compared_tops(table: ReplicaTable) -> list[TopShare]:
    """Return the top shares on which maps are compared: those that select a row."""
    return top_shares(table, [a for a in SHARES if a * table.effective_rows >= 1] or [1.0])


def top_shares(table: ReplicaTable, alphas: Iterable[float]) -> list[TopShare]:
    """Return the cells of several top shares of a pool; the last cell of each counts in part."""
    weight = table.weight[table.descending]
    reached, tops = np.cumsum(weight), []
    for alpha in alphas:
        total = alpha * reached[-1]
        size = int(np.searchsorted(reached, total * (1 - 1e-12))) + 1
        part = weight[:size].copy()
        part[-1] -= reached[size - 1] - total
        cells = table.descending[:size]
        tops.append(TopShare(cells, part / total, table.served[cells], alpha * table.effective_rows))
    return tops


@dataclass(frozen=True)
class TopShare:
    """Cells of a pool that hold its top share."""

    cells: NDArray[np.intp]  # numbers, from the highest served logit to the lowest
    share: Array  # of the selected rows in each
    served: Array  # logits
    rows: float

    def mean(self, values: Float) -> float:
        """Return the mean over the selected rows."""
        return float(self.share @ values)

    def log_spread(self, rates: Array) -> float:
        """Return the standard deviation of the log mean of several rates of all cells, (R, K)."""
        return float(np.std(np.log(rates[:, self.cells] @ self.share)))

    def log_mean(self, p: Float) -> float:
        """Return the log of the mean probability of the selected rows."""
        return float(np.log(self.mean(p)))

    def squared_error(self, p: Float, features: Array, covariance: Array) -> float:
        """Return the squared relative error of the mean of `p`, whose log odds are linear in `features`."""
        gradient = features @ (self.share * (p / self.mean(p)) * (1 - p))
        return float(gradient @ covariance @ gradient)

    def sampling_error(self, p: Float, by_score: Float, variance: Array) -> float:
        """Return the squared relative error of the true rate among the selected rows.

        True probabilities differ from `p` with the given variance, and `p` differs from the mean at the same score.
        """
        mean = self.mean(p)
        relative = self.mean(np.square((p - by_score) / mean)) + self.mean(variance / mean / mean)
        return relative / self.rows

    def level_error(self, p: Array, variance: float) -> float:
        """Return the standard error of the log mean prediction, if the mean logit has this `variance`."""
        return float(np.sqrt(variance)) * self.mean(p / self.mean(p) * (1 - p))


def log_bayes_factor(difference: Any, variance: Any, more: Any) -> Any:
    """Return the log Bayes factor of N(0, variance) against N(0, variance + more), given a difference."""
    return 0.5 * (np.log1p(more / variance) - np.square(difference) * (1 / variance - 1 / (variance + more)))
