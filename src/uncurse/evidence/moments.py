"""`Moments`: weight, means and covariances of replica scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array, Float
from ..documents import PlainData
from ..errors import UncurseError
from ..threads import chunks, one_blas_thread
from ..validation import LARGEST_SCORE, check_finite, check_numbers, check_weights

_STEP = 1 << 19  # rows per step times columns: 4 MiB of float64 for each thread; in smaller steps threads wait
_FAR = 100.0  # columns whose squared mean exceeds so many variances are centered before they are squared


@dataclass(eq=False, repr=False)
class Moments(PlainData):
    """Weight, mean vector and covariance of replica scores: all that `VAD` needs.

    `weight` and `weight_squares` are Σw and Σw², `mean` has shape (S,), and `scatter`, the weighted sum of squares and
    products about the mean, has shape (S, S). `link` is the link of the scores.

    >>> pool = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
    >>> a, b = Moments().update(pool[:1]), Moments().update(pool[1:])
    >>> a.merge(b).mean
    array([1., 2.])
    """

    _kind: ClassVar[str] = "moments"
    link: str = "logistic"
    rows: int = 0
    weight: float = 0.0
    weight_squares: float = 0.0
    mean: Array = field(default_factory=lambda: np.empty(0))
    scatter: Array = field(default_factory=lambda: np.empty((0, 0)))

    def update(self, scores: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Moments:
        """Check rows and add them: scores of the link (n, S), the served one first, and weights (n,)."""
        values = check_numbers(scores, "scores")
        if values.ndim != 2 or not values.size:
            raise UncurseError(f"the scores have shape {values.shape}; pass a column per replica, shape (n, S)")
        check_finite(values, "scores", LARGEST_SCORE)
        return self.add(values.T, check_weights(sample_weight, len(values)))

    def add(self, columns: Float, weights: Array | None = None, counts: Array | None = None) -> Moments:
        """Add rows, given by columns (S, n), each as often as it counts; raise UncurseError if some are not finite."""
        with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
            for rows in chunks(columns.shape[1], _STEP // len(columns)):
                w, c = (None if column is None else column[rows] for column in (weights, counts))
                part = self._of(columns[:, rows].astype(np.float64, order="C", copy=False), w, c)
                squares = part.weight * np.square(part.mean) + np.diagonal(part.scatter)
                if not (squares <= part.weight * LARGEST_SCORE**2).all():
                    check_finite(columns[:, rows].T, "scores", LARGEST_SCORE)
                self.merge(part)
        return self

    def _of(self, columns: Array, weights: Array | None, counts: Array | None) -> Moments:
        """Return the moments of rows."""
        rows = columns.shape[1] if counts is None else round(counts.sum())
        part, weighted = Moments(self.link, rows, float(rows), float(rows)), columns
        total = weights if counts is None else counts if weights is None else weights * counts
        if total is not None:
            weighted = columns * total
            if weights is not None:
                part.weight, part.weight_squares = float(total.sum()), float(np.dot(total, weights))
        if not part.weight > 0:
            return part
        part.mean = weighted.sum(axis=1) / part.weight
        squares = part.weight * np.outer(part.mean, part.mean)
        part.scatter = _products(weighted, columns) - squares
        if (np.diagonal(squares) > _FAR * np.diagonal(part.scatter)).any():  # which has lost digits
            centered = columns - part.mean[:, None]
            part.scatter = _products(centered if total is None else centered * total, centered)
        return part

    def merge(self, other: Moments) -> Moments:
        """Add the rows of other moments of the same replicas and link, which do not change; return these."""
        if self.weight > 0 < other.weight and len(other.mean) != len(self.mean):
            raise UncurseError(f"these rows have {len(other.mean)} replicas, the ones before {len(self.mean)}")
        self.rows += other.rows
        if not other.weight > 0:
            return self
        if not self.weight > 0:
            self.weight, self.weight_squares = other.weight, other.weight_squares
            self.mean, self.scatter = other.mean, other.scatter
            return self
        total, away = self.weight + other.weight, other.mean - self.mean
        share = other.weight / total
        self.scatter = self.scatter + other.scatter + np.outer(away, away) * (self.weight * share)
        self.mean = self.mean + away * share
        self.weight, self.weight_squares = total, self.weight_squares + other.weight_squares
        return self

    def scaled(self, factor: float, of_squares: float) -> Moments:
        """Return the moments of the same rows with Σw multiplied by one factor and Σw² by another."""
        weight, squares = self.weight * factor, self.weight_squares * of_squares
        return replace(self, weight=weight, weight_squares=squares, scatter=self.scatter * factor)

    @property
    def n_replicas(self) -> int:
        """Number of replicas."""
        return len(self.mean)

    @property
    def covariance(self) -> Array:
        """Covariance between replicas (ddof 0), shape (S, S)."""
        if not self.weight > 0:
            raise UncurseError("these moments hold no rows; update them with scores first")
        return self.scatter / self.weight

    @property
    def effective_rows(self) -> float:
        """Number of rows of equal weight that carry as much information: (Σw)² / Σw²."""
        return self.weight / self.weight_squares * self.weight if self.weight_squares > 0 else 0.0

    def __repr__(self) -> str:
        return f"Moments(link={self.link!r}) of {self.rows:,} rows and {self.n_replicas} replicas"

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Moments:
        numbers = int(content["rows"]), float(content["weight"]), float(content["weight_squares"])
        mean, scatter = (np.array(content[name], np.float64) for name in ("mean", "scatter"))
        return cls(content["link"], *numbers, mean, scatter.reshape(len(mean), len(mean)))


def _products(left: Array, right: Array) -> Array:
    """Return the symmetric matrix of the products of columns (S, n)."""
    products = np.empty((len(left), len(left)))
    for i, column in enumerate(left):
        for j, other in enumerate(right[: i + 1]):
            products[i, j] = products[j, i] = np.dot(column, other)  # unlike @, it lets other threads run
    return products
