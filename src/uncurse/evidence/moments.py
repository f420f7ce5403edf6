"""`Moments`: weight, means and covariances of replica scores."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array, Float
from ..documents import PlainData
from ..errors import UncurseError
from ..links import get_link
from ..threads import in_threads, one_blas_thread, shares
from ..validation import LARGEST_SCORE, check_finite, check_number, check_numbers, check_weights
from .decay import check_factor

# Rows per step times columns: 8 MiB of float64 for each thread. Smaller steps fit the L2 cache but threads
# then wait for each other between calls (two threads, S=2, in units of one np.sum: 6.2 at 2^15, 2.8 at 2^20).
_STEP = 1 << 20
_THREAD_ROWS = 1 << 19


class Moments(PlainData):
    """Weight, mean vector and covariance of replica scores: all that `VAD` needs.

    Parameters
    ----------
    link : {"logistic", "identity", "log"}, default="logistic"
        Link of the scores. Moments of different links do not merge.

    Attributes
    ----------
    rows : int
        Number of rows.
    weight, weight_squares : float
        Σw and Σw².
    mean : array of shape (S,)
        Mean of each replica.
    scatter : array of shape (S, S)
        Weighted sum of squares and products about the mean.

    Examples
    --------
    >>> pool = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
    >>> a, b = Moments().update(pool[:1]), Moments().update(pool[1:])
    >>> a.merge(b).mean
    array([1., 2.])
    """

    _kind: ClassVar[str] = "moments"

    def __init__(self, link: str = "logistic") -> None:
        self.link = get_link(link).name
        self.rows = 0
        self.weight = self.weight_squares = 0.0
        self.mean: Array = np.empty(0)
        self.scatter: Array = np.empty((0, 0))

    def update(self, scores: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Moments:
        """Add rows.

        Parameters
        ----------
        scores : array-like of shape (n, S)
            Scores of the link of the replicas, the served one first.
        sample_weight : array-like of shape (n,), optional
            Row weights.

        Returns
        -------
        Moments
        """
        values = check_numbers(scores, "scores")
        if values.ndim != 2 or not values.size:
            raise UncurseError(f"the scores have shape {values.shape}; pass a column per replica, shape (n, S)")
        return self.add(values, check_weights(sample_weight, len(values), summed=True))

    def add(self, values: Float, weights: Array | None) -> Moments:
        """Add rows of numbers; raise UncurseError if some are not finite, which their sums show."""
        if self.weight and values.shape[1] != len(self.mean):
            raise UncurseError(f"these rows have {values.shape[1]} replicas, the ones before {len(self.mean)}")
        with np.errstate(invalid="ignore", over="ignore"):
            shift = _shift(values, weights)

            def sums(rows: slice) -> Moments:
                with np.errstate(invalid="ignore", over="ignore"):  # for this thread
                    return self._of_rows(values[rows], None if weights is None else weights[rows], shift)

            with one_blas_thread():
                parts = in_threads(sums, shares(len(values), max(1, _THREAD_ROWS // values.shape[1])))
        for part in parts:
            with np.errstate(invalid="ignore", over="ignore"):
                squares = part.weight * np.square(part.mean) + np.diagonal(part.scatter)
            if not (squares <= part.weight * LARGEST_SCORE**2).all():
                check_finite(values, "scores", LARGEST_SCORE)
                raise UncurseError("a weighted sum of these scores overflows; rescale sample_weight")
            self.merge(part)
        return self

    def _of_rows(self, values: Float, weights: Array | None, shift: Array | None) -> Moments:
        part = Moments(self.link)
        part.rows, count = len(values), values.shape[1]
        part.weight = float(len(values)) if weights is None else float(weights.sum())
        part.weight_squares = float(len(values)) if weights is None else float(weights @ weights)
        part.mean, part.scatter = np.zeros(count), np.zeros((count, count))
        if part.weight > 0:
            first, second = _sums(values, weights, shift)
            away = first / part.weight
            part.mean = away if shift is None else away + shift
            part.scatter = second - part.weight * np.outer(away, away)
        return part

    def merge(self, other: Moments) -> Moments:
        """Add the rows of `other`, which does not change.

        Parameters
        ----------
        other : Moments
            Rows with the same replicas and link.

        Returns
        -------
        Moments
            Itself.
        """
        if other.link != self.link:
            raise UncurseError(f"cannot merge moments of the {self.link} and the {other.link} link; use the same link")
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

    def repeated(self, times: float) -> Moments:
        """Return the moments of rows that each occur several times: the effective number of rows is divided."""
        same = copy.copy(self)
        same.weight_squares = self.weight_squares * check_number(times, "times")
        return same

    def decayed(self, factor: float) -> Moments:
        """Return the moments of the same rows with all weights multiplied by a factor in (0, 1]."""
        value = check_factor(factor, self.weight)
        same = copy.copy(self)
        same.weight, same.weight_squares = self.weight * value, self.weight_squares * value**2
        same.scatter = self.scatter * value
        return same

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

    def _to_dict(self) -> dict[str, Any]:
        return {
            "link": self.link,
            "rows": self.rows,
            "weight": self.weight,
            "weight_squares": self.weight_squares,
            "mean": self.mean.tolist(),
            "scatter": self.scatter.tolist(),
        }

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Moments:
        same = cls(content["link"])
        same.rows = int(content["rows"])
        same.weight, same.weight_squares = float(content["weight"]), float(content["weight_squares"])
        same.mean = np.array(content["mean"], np.float64)
        same.scatter = np.array(content["scatter"], np.float64).reshape(len(same.mean), len(same.mean))
        numbers = np.concatenate([same.mean, same.scatter.ravel(), [same.weight, same.weight_squares]])
        if not (np.isfinite(numbers).all() and same.weight >= 0):
            raise ValueError("its numbers do not form moments")
        return same


def _shift(values: Float, weights: Array | None) -> Array | None:
    """Return a point to subtract before squaring, or None if the means are small enough to lose no digits."""
    step = max(1, len(values) // 4096)
    sample, weight = values[::step].astype(np.float64), None if weights is None else weights[::step]
    if weight is not None and weight.sum() <= 0:
        weight = None
    mean = np.asarray(np.average(sample, axis=0, weights=weight), np.float64)
    variance = np.average(np.square(sample - mean), axis=0, weights=weight)
    # The mean of a column with an outlier is far from its other scores; subtracting it would lose digits of these.
    far = np.square(mean) > 25 * variance
    return np.where(far, mean, 0.0) if far.any() and np.isfinite(mean).all() else None


def _sums(values: Float, weights: Array | None, shift: Array | None) -> tuple[Array, Array]:
    """Return Σwl and Σwll' of rows, in few calls because threads wait for each other between calls."""
    replicas = values.shape[1]
    step = min(max(1024, _STEP // replicas), len(values))
    buffer = np.empty((replicas, step))
    if replicas == 2 and weights is None and shift is None:
        return _sums_of_pairs(values, buffer)
    first = [0.0] * replicas
    second = [[0.0] * replicas for _ in range(replicas)]
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        columns = buffer[:, : len(chunk)]
        columns[...] = chunk.T  # sums are float64
        for i in range(replicas):
            if shift is not None:
                columns[i] -= shift[i]
        for i in range(replicas):
            weighted = columns[i] if weights is None else weights[start : start + step] * columns[i]
            first[i] += float(weighted.sum())
            for j in range(i, replicas):
                second[i][j] += float(np.dot(weighted, columns[j]))  # unlike @, it lets other threads run
    upper = np.array(second)
    return np.array(first), upper + np.triu(upper, 1).T


def _sums_of_pairs(values: Float, buffer: Array) -> tuple[Array, Array]:
    """Do the same for two replicas as z = a + bi: Σz² = Σa² − Σb² + 2iΣab and Σ|z|² need no transposed copy."""
    step, flat = buffer.shape[1], buffer.reshape(-1)
    first, squares, moduli = 0j, 0j, 0.0
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        row = flat[: chunk.size]
        row[...] = chunk.reshape(-1)
        z = row.view(np.complex128)
        first += complex(z.sum())
        squares += complex(np.dot(z, z))
        moduli += float(np.dot(row, row))
    both = squares.imag / 2
    second = [[(moduli + squares.real) / 2, both], [both, (moduli - squares.real) / 2]]
    return np.array([first.real, first.imag]), np.array(second)
