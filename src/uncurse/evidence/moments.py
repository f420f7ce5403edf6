"""`Moments`: weights, means and covariances of replica scores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..links import check_space, get_link
from ..validation import (
    LARGEST_SCORE,
    check_count,
    check_finite,
    check_number,
    check_scores,
    check_weights,
)
from .block_sums import Blocks, block_sums, check_blocks, strict_link
from .sums import NEGLIGIBLE, Sums

_MAX_BLOCKS = 64  # kept after merging
_FIELDS = ("rows", "weight", "squares", "mean", "scatter")


class Moments(Sums):
    """Weight, mean vector and covariance of replica scores: all that `VAD` needs.

    Rows are kept in up to 64 blocks, which give functions of the moments a jackknife standard error. Blocks are runs
    of consecutive rows: shuffle rows that are sorted by score, or the standard error is far too large.

    Parameters
    ----------
    link : {"logistic", "identity", "log", "probit"}, default="logistic"
        Link of the scores. Moments of different links do not merge.
    blocks : int, default=32
        Number of blocks into which each update is cut.

    Attributes
    ----------
    block_rows, block_weight, block_squares : arrays of shape (B,)
        Rows, Σw and Σw² of each block.
    block_mean, block_scatter : arrays of shape (B, S) and (B, S, S)
        Mean, and weighted sum of squares and products about it.

    Examples
    --------
    >>> pool = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
    >>> a, b = Moments().update(pool[:1]), Moments().update(pool[1:])
    >>> a.merge(b).mean
    array([1., 2.])
    """

    _kind: ClassVar[str] = "moments"

    def __init__(self, link: str = "logistic", blocks: int = 32) -> None:
        self.link = get_link(link).name
        self.blocks = check_count(blocks, "blocks")
        self.block_rows: NDArray[np.int64] = np.empty(0, np.int64)
        self.block_weight: Array = np.empty(0)
        self.block_squares: Array = np.empty(0)
        self.block_mean: Array = np.empty((0, 0))
        self.block_scatter: Array = np.empty((0, 0, 0))

    def update(
        self,
        scores: ArrayLike,
        *,
        scale: str = "logit",
        sample_weight: ArrayLike | None = None,
        logit_offset: float = 0.0,
    ) -> Moments:
        """Add rows.

        Parameters
        ----------
        scores : array-like of shape (n, S)
            Scores of the replicas, the served one first.
        scale : {"logit", "probability", "value"}, default="logit"
            Scale of the scores.
        sample_weight : array-like of shape (n,), optional
            Row weights.
        logit_offset : float, default=0.0
            Number added to every logit.

        Returns
        -------
        Moments
        """
        check_space(self.link, scale)
        plain_array = type(scores) is np.ndarray and scores.dtype in (np.float32, np.float64)
        if plain_array and scale != "probability" and scores.ndim == 2 and scores.size:  # type: ignore[union-attr]
            values: Float = np.asarray(scores)  # the sums below reveal NaN and infinities
        else:
            values = check_scores(scores, scale, name="pool", ndim=2)
        weights = check_weights(sample_weight, len(values), summed=True)
        logit_offset = check_number(logit_offset, "logit_offset")
        if values.shape[1] > max(64, len(values)):
            raise UncurseError(
                f"the pool has {len(values)} rows and {values.shape[1]} columns; rows are candidates and columns "
                "replicas: pass the transpose"
            )

        def convert(chunk: Float) -> Float:
            return strict_link(chunk, scale, self.link, logit_offset)

        plain = scale == "logit" and self.link == "logistic" and not logit_offset
        blocks = block_sums(values, weights, None if plain else convert, self.blocks)
        _, weight, _, mean, scatter = blocks
        with np.errstate(over="ignore", invalid="ignore"):
            squares = weight[:, None] * np.square(mean) + np.diagonal(scatter, axis1=1, axis2=2)
        if not (squares <= weight[:, None] * LARGEST_SCORE**2).all():
            check_finite(values, "pool", LARGEST_SCORE)
            raise UncurseError("a weighted sum of these scores overflows; rescale sample_weight")
        return self.update_blocks(*blocks)

    def _merge(self, other: Moments) -> Moments:
        if other.link != self.link:
            raise UncurseError(f"cannot merge moments of the {self.link} and the {other.link} link; use the same link")
        return self.update_blocks(*other._blocks)

    @property
    def _blocks(self) -> Blocks:
        return self.block_rows, self.block_weight, self.block_squares, self.block_mean, self.block_scatter

    def repeated(self, times: float) -> Moments:
        """Return moments of rows that each occur several times: the effective number of rows is divided.

        Parameters
        ----------
        times : float

        Returns
        -------
        Moments
        """
        same = copy.copy(self)
        same.block_squares = self.block_squares * check_number(times, "times")
        return same

    def _decayed(self, factor: float, total: float) -> Moments:
        if not len(self.block_weight):
            return Moments(self.link, self.blocks)
        rows, weight, squares, mean, scatter = self._blocks
        kept = weight > NEGLIGIBLE * total
        # The rows of a block that is dropped still count as rows.
        rows = rows + np.where(np.arange(len(rows)) == np.argmax(weight), rows[~kept].sum(), 0)
        return Moments(self.link, self.blocks).update_blocks(
            rows[kept], weight[kept] * factor, squares[kept] * factor**2, mean[kept], scatter[kept] * factor
        )

    def transformed(self, matrix: ArrayLike) -> Moments:
        """Return the moments of linear combinations of the replicas.

        Parameters
        ----------
        matrix : array-like of shape (T, S)
            Weights of the replicas in each combination.

        Returns
        -------
        Moments

        Examples
        --------
        >>> Moments().update([[0.0, 1.0], [2.0, 5.0]]).transformed([[0.5, 0.5]]).mean
        array([2.])
        """
        chosen, weights = Moments(self.link, self.blocks), np.asarray(matrix, np.float64)
        if weights.ndim != 2 or weights.shape[1] != self.n_replicas:
            raise UncurseError(f"the matrix has shape {weights.shape}; pass {self.n_replicas} columns")
        rows, weight, squares, mean, scatter = self._blocks
        return chosen.update_blocks(rows, weight, squares, mean @ weights.T, weights @ scatter @ weights.T)

    def update_blocks(
        self, rows: NDArray[np.int64], weight: Array, squares: Array, mean: Array, scatter: Array
    ) -> Moments:
        """Add blocks that a dataframe engine has computed.

        Parameters
        ----------
        rows, weight, squares : arrays of shape (B,)
            Rows, Σw and Σw² of each block.
        mean, scatter : arrays of shape (B, S) and (B, S, S)
            Mean, and weighted sum of squares and products about it.

        Returns
        -------
        Moments
        """
        if not len(weight):
            return self
        if len(self.block_weight) and mean.shape[1] != self.n_replicas:
            raise UncurseError(
                f"these rows have {mean.shape[1]} replicas, the ones before {self.n_replicas}; pass the same columns"
            )
        if len(self.block_weight):
            both = zip(self._blocks, (rows, weight, squares, mean, scatter), strict=True)
            rows, weight, squares, mean, scatter = (np.concatenate(pair) for pair in both)
        while len(weight) > _MAX_BLOCKS:
            # Join the lightest neighbours, so that block sizes stay comparable.
            # Sums that differ by rounding are ties: the first is joined, also after all weights have decayed.
            pairs = weight[:-1] + weight[1:]
            i = int(np.argmax(pairs <= pairs.min() * (1 + 1e-9)))
            total = pairs[i]
            share = weight[i + 1] / total if total > 0 else 0.0
            step = mean[i + 1] - mean[i]
            joint = scatter[i] + scatter[i + 1] + np.outer(step, step) * weight[i] * share
            middle, sums = mean[i] + step * share, [c[i] + c[i + 1] for c in (rows, weight, squares)]
            rows = np.delete(rows, i + 1)
            weight, squares, mean, scatter = (np.delete(c, i + 1, axis=0) for c in (weight, squares, mean, scatter))
            rows[i], weight[i], squares[i], mean[i], scatter[i] = (*sums, middle, joint)
        self.block_rows, self.block_weight, self.block_squares = rows, weight, squares
        self.block_mean, self.block_scatter = mean, scatter
        return self

    @property
    def n_replicas(self) -> int:
        """Number of replicas."""
        return int(self.block_mean.shape[1])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.block_rows.sum())

    @property
    def weight(self) -> float:
        """Total weight."""
        return float(self.block_weight.sum())

    def _totals(self) -> tuple[float, float]:
        return self.weight, float(self.block_squares.sum())

    @property
    def mean(self) -> Array:
        """Mean of each replica, shape (S,)."""
        self.require_rows()
        return self.block_weight @ self.block_mean / self.weight

    @property
    def covariance(self) -> Array:
        """Covariance between replicas (ddof 0), shape (S, S)."""
        away = self.block_mean - self.mean
        between = np.einsum("b,bi,bj->ij", self.block_weight, away, away)
        return np.asarray((self.block_scatter.sum(axis=0) + between) / self.weight)

    def standard_error(self, function: Callable[[Array, Array], Array]) -> float:
        """Return the jackknife standard error of a function of the moments.

        Leave out each block once: the variance is Σ (1 − q) (without − center)², where q is the share of a block in the
        weight, and the center is the mean of the estimates without a block, weighted by 1 − q. It holds for blocks that
        differ in weight and in weight per row, such as days that decay.

        Parameters
        ----------
        function : callable
            ``function(mean, covariance)``, which broadcasts over leading axes.

        Returns
        -------
        float
            NaN if there are fewer than two blocks, or if the function of the other blocks is not finite.
        """
        kept = self.block_weight > 0
        if kept.sum() < 2:
            return float("nan")
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            away = self.block_mean - self.mean
            first = self.block_weight[:, None] * away
            second = self.block_scatter + np.einsum("b,bi,bj->bij", self.block_weight, away, away)
            rest = self.block_weight.sum() - self.block_weight
            mean = (first.sum(axis=0) - first) / rest[:, None]
            covariance = (second.sum(axis=0) - second) / rest[:, None, None] - mean[:, :, None] * mean[:, None, :]
            without = function((mean + self.mean)[kept], covariance[kept])
        if not np.isfinite(without).all():  # a single row may hold all the variation
            return float("nan")
        with np.errstate(over="ignore", invalid="ignore"):
            share = rest[kept] / self.block_weight.sum()  # they add up to the number of blocks less one
            variance = share @ np.square(without - share @ without / share.sum())
        return float(np.sqrt(variance)) if np.isfinite(variance) else float("nan")

    def require_rows(self) -> None:
        """Raise UncurseError if there are no rows."""
        if not self.weight > 0:
            raise UncurseError("these moments hold no rows; update them with scores first")

    def __repr__(self) -> str:
        return f"Moments(link={self.link!r}) of {self.rows:,} rows and {self.n_replicas} replicas"

    def _to_dict(self) -> dict[str, Any]:
        return {"link": self.link, **{name: b.tolist() for name, b in zip(_FIELDS, self._blocks, strict=True)}}

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Moments:
        moments = cls(content["link"])
        rows = np.array(content["rows"], np.int64)
        weight, squares, mean, scatter = (np.array(content[name], np.float64) for name in _FIELDS[1:])
        blocks: Blocks = (rows, weight, squares, mean, scatter)
        if not any(block.size for block in blocks):
            return moments
        check_blocks(blocks)
        return moments.update_blocks(*blocks)
