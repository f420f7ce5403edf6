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

# Rows per step times columns: 8 MiB of float64 for each thread. Smaller steps fit the L2 cache but threads
# then wait for each other between calls (two threads, S=2, in units of one np.sum: 6.2 at 2^15, 2.8 at 2^20).
_STEP = 1 << 20


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
        return self.add(values, check_weights(sample_weight, len(values)))

    def add(self, values: Float, weights: Array | None, counts: Array | None = None) -> Moments:
        """Add rows of numbers, each as often as it counts; raise UncurseError if sums show that some are not finite."""
        part = Moments(self.link)
        part.rows = len(values) if counts is None else round(counts.sum())
        part.weight = part.weight_squares = float(part.rows)
        total = weights if counts is None or weights is None else weights * counts
        if total is not None and weights is not None:
            part.weight, part.weight_squares = float(total.sum()), float(total @ weights)
        weights = counts if total is None else total
        if part.weight > 0:
            with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
                # Far from zero, subtracting a point near the scores before squaring keeps the digits of variances.
                sample = values[:: max(1, len(values) // 4096)].astype(np.float64)
                middle = np.median(sample, axis=0)
                shift = np.where(np.square(middle) > 25 * sample.var(axis=0), middle, 0.0)
                first, second = _sums(values, weights, shift)
                away = first / part.weight
                part.mean, part.scatter = shift + away, second - part.weight * np.outer(away, away)
                squares = part.weight * np.square(part.mean) + np.diagonal(part.scatter)
            if not (squares <= part.weight * LARGEST_SCORE**2).all():
                check_finite(values, "scores", LARGEST_SCORE)
        return self.merge(part)

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


def _sums(values: Float, weights: Array | None, shift: Array) -> tuple[Array, Array]:
    """Return Σwd and Σwdd' of the deviations d of rows from `shift`, in few calls: threads wait for each other."""
    count = values.shape[1]
    step = min(max(1024, _STEP // count), len(values))
    buffer = np.empty((count, step))
    if count == 2 and values.flags.c_contiguous and weights is None and not shift.any():
        return _sums_of_pairs(values, buffer.reshape(-1))
    first, second = np.zeros(count), np.zeros((count, count))
    for rows in chunks(len(values), step):
        chunk = values[rows]
        columns = buffer[:, : len(chunk)]
        columns[...] = chunk.T  # sums are float64
        if shift.any():
            columns -= shift[:, None]
        for i, column in enumerate(columns):
            weighted = column if weights is None else weights[rows] * column
            first[i] += weighted.sum()
            for j in range(i, count):
                second[i, j] += np.dot(weighted, columns[j])  # unlike @, it lets other threads run
    return first, second + np.triu(second, 1).T


def _sums_of_pairs(values: Float, buffer: Array) -> tuple[Array, Array]:
    """Do the same for two replicas as z = a + bi: Σz² = Σa² − Σb² + 2iΣab and Σ|z|² need no transposed copy."""
    first, squares, moduli = 0j, 0j, 0.0
    for rows in chunks(len(values), len(buffer) // 2):
        chunk = values[rows].reshape(-1)
        row = buffer[: len(chunk)]
        row[...] = chunk
        z = row.view(np.complex128)
        first += complex(z.sum())
        squares += complex(np.dot(z, z))
        moduli += float(np.dot(row, row))
    both = squares.imag / 2
    second = [[(moduli + squares.real) / 2, both], [both, (moduli - squares.real) / 2]]
    return np.array([first.real, first.imag]), np.array(second)
