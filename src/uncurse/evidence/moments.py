"""`Moments`: weight, means and covariances of replica scores, all that VAD ever needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link, to_link
from ..threads import cores, in_threads, one_blas_thread
from ..validation import check_choice, check_count, check_finite, check_scores, check_weights, warn_if_probabilities

# Rows per step times columns: 8 MiB of float64 for each thread. Smaller steps fit the L2 cache but threads
# then wait for each other between calls (two threads, S=2, in units of one np.sum: 6.2 at 2^15, 2.8 at 2^20).
_STEP = 1 << 20
_MOST_BLOCKS = 64  # kept after merging


class Moments:
    """Weight, mean vector and covariance of replica scores, in a few dozen sub-blocks.

    The sub-blocks give every function of the moments a jackknife standard error, also after merging. They are runs
    of rows: where rows come sorted by score that error is far too large, so shuffle such rows first.

    Parameters
    ----------
    link
        The link whose scores are held. Moments of different links do not merge.
    blocks
        Into how many sub-blocks an update is cut.

    Examples
    --------
    >>> pool = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 4.0]])
    >>> a, b = Moments().update(pool[:1]), Moments().update(pool[1:])
    >>> a.merge(b).mean
    array([1., 2.])
    """

    def __init__(self, link: str = "logistic", blocks: int = 32) -> None:
        self.link = get_link(link).name
        self.blocks = check_count(blocks, "blocks")
        self.block_rows: NDArray[np.int64] = np.empty(0, np.int64)
        self.block_weight: Array = np.empty(0)
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
        """Add rows; `scores` is (n, S) on `scale`. `logit_offset` is added to every logit first."""
        plain_array = type(scores) is np.ndarray and scores.dtype in (np.float32, np.float64)
        if plain_array and scale != "probability" and scores.ndim == 2 and scores.size:  # type: ignore[union-attr]
            values: Float = np.asarray(scores)  # the sums below find NaN and infinities for free
        else:
            values = check_scores(scores, scale, name="pool", ndim=2)
        if scale == "value" and np.isfinite(get_link(self.link).upper):
            raise UncurseError(f"scale='value' has no {self.link} score; use the identity or the log link")
        weights = check_weights(sample_weight, len(values))
        if values.shape[1] > max(64, len(values)):
            raise UncurseError(
                f"the pool has {len(values)} rows and {values.shape[1]} columns; rows are candidates and columns "
                "replicas: pass the transpose"
            )
        if scale == "logit":
            warn_if_probabilities(values, "pool")

        def convert(chunk: Float) -> Float:
            return strict_link(chunk, scale, self.link, logit_offset)

        plain = scale == "logit" and self.link == "logistic" and not logit_offset
        blocks = _blocks_of(values, weights, None if plain else convert, self.blocks)
        if not np.isfinite(blocks[2]).all() or not np.isfinite(blocks[3]).all():
            check_finite(values, "pool")
            raise UncurseError("the squares of these scores overflow; pass scores of ordinary size, such as logits")
        self._append(*blocks)
        return self

    def merge(self, other: Moments) -> Moments:
        """Add the rows behind `other`."""
        if other.link != self.link:
            raise UncurseError(f"cannot merge moments of the {self.link} and the {other.link} link; collect them alike")
        self._append(other.block_rows, other.block_weight, other.block_mean, other.block_scatter)
        return self

    def select(self, columns: Sequence[int]) -> Moments:
        """The moments of some of the replicas, in that order.

        >>> Moments().update([[0.0, 1.0, 5.0], [2.0, 1.0, 7.0]]).select([2, 0]).mean
        array([6., 1.])
        """
        chosen = Moments(self.link)
        i = np.asarray(columns)
        chosen._append(self.block_rows, self.block_weight, self.block_mean[:, i], self.block_scatter[:, i[:, None], i])
        return chosen

    def _append(self, rows: NDArray[np.int64], weight: Array, mean: Array, scatter: Array) -> None:
        if not len(weight):
            return
        if len(self.block_weight) and mean.shape[1] != self.n_replicas:
            raise UncurseError(
                f"these rows have {mean.shape[1]} replicas, the ones before {self.n_replicas}; pass the same columns"
            )
        if len(self.block_weight):
            rows = np.concatenate([self.block_rows, rows])
            weight = np.concatenate([self.block_weight, weight])
            mean = np.concatenate([self.block_mean, mean])
            scatter = np.concatenate([self.block_scatter, scatter])
        while len(weight) > _MOST_BLOCKS:
            # The lightest neighbours become one, so block sizes stay comparable however the rows came.
            i = int(np.argmin(weight[:-1] + weight[1:]))
            total = weight[i] + weight[i + 1]
            share = weight[i + 1] / total if total > 0 else 0.0
            step = mean[i + 1] - mean[i]
            scatter[i] += scatter[i + 1] + np.outer(step, step) * weight[i] * share
            mean[i] += step * share
            rows[i] += rows[i + 1]
            weight[i] = total
            rows, weight = np.delete(rows, i + 1), np.delete(weight, i + 1)
            mean, scatter = np.delete(mean, i + 1, axis=0), np.delete(scatter, i + 1, axis=0)
        self.block_rows, self.block_weight, self.block_mean, self.block_scatter = rows, weight, mean, scatter

    @property
    def n_replicas(self) -> int:
        """S, the number of columns."""
        return int(self.block_mean.shape[1])

    @property
    def rows(self) -> int:
        """How many rows were seen."""
        return int(self.block_rows.sum())

    @property
    def weight(self) -> float:
        """Their total weight."""
        return float(self.block_weight.sum())

    @property
    def mean(self) -> Array:
        """Mean of each replica, shape (S,)."""
        self.require_rows()
        result: Array = self.block_weight @ self.block_mean / self.weight
        return result

    @property
    def covariance(self) -> Array:
        """Covariance between replicas (ddof 0), shape (S, S)."""
        away = self.block_mean - self.mean
        between = np.einsum("b,bi,bj->ij", self.block_weight, away, away)
        result: Array = (self.block_scatter.sum(axis=0) + between) / self.weight
        return result

    def leave_one_out(self) -> tuple[Array, Array, Array]:
        """Weight (B,), mean (B, S) and covariance (B, S, S) of all rows but those of each block."""
        center = self.mean
        away = self.block_mean - center
        first = self.block_weight[:, None] * away
        second = self.block_scatter + np.einsum("b,bi,bj->bij", self.block_weight, away, away)
        rest = self.block_weight.sum() - self.block_weight
        mean = (first.sum(axis=0) - first) / rest[:, None]
        covariance = (second.sum(axis=0) - second) / rest[:, None, None] - mean[:, :, None] * mean[:, None, :]
        return rest, mean + center, covariance

    def standard_error(self, function: Callable[[Array, Array], Array]) -> float:
        """Jackknife standard error of `function(mean, covariance)`, which maps over leading axes.

        Blocks may differ in weight: the delete-a-group jackknife of Busing, Meijer and van der Leeden (1999).
        """
        kept = self.block_weight > 0
        if kept.sum() < 2:
            return float("nan")
        whole = function(self.mean, self.covariance)
        with np.errstate(invalid="ignore", divide="ignore"):
            _, mean, covariance = self.leave_one_out()
            without = function(mean[kept], covariance[kept])
        if not np.isfinite(without).all():  # a handful of rows, and one of them holds all that varies
            return float("inf")
        inverse_share = self.block_weight.sum() / self.block_weight[kept]
        pseudo = inverse_share * whole - (inverse_share - 1) * without
        estimate = whole + np.sum((1 - 1 / inverse_share) * (whole - without))
        variance = np.mean(np.square(pseudo - estimate) / (inverse_share - 1))
        return float(np.sqrt(variance))

    def require_rows(self) -> None:
        """Raise where there are none."""
        if not self.weight > 0:
            raise UncurseError("these moments hold no rows; update them with scores first")

    def __repr__(self) -> str:
        return f"Moments(link={self.link!r}) of {self.rows:,} rows and {self.n_replicas} replicas"

    def update_blocks(self, rows: NDArray[np.int64], weight: Array, mean: Array, scatter: Array) -> Moments:
        """Add sub-blocks that an engine has summed up: (B,), (B,), (B, S) and (B, S, S), scatter about each mean."""
        self._append(rows, weight, mean, scatter)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "link": self.link,
            "rows": self.block_rows.tolist(),
            "weight": self.block_weight.tolist(),
            "mean": self.block_mean.tolist(),
            "scatter": self.block_scatter.tolist(),
        }

    def to_json(self) -> str:
        """One JSON document."""
        return documents.dumps("moments", self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Moments:
        """Back from `to_json`."""
        content = documents.loads(text, source="moments")
        check_choice("kind", content["kind"], ("moments",))
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Moments:
        """Back from `to_dict`."""
        with documents.reading("moments"):
            moments = cls(content["link"])
            blocks = (
                np.array(content["rows"], np.int64),
                np.array(content["weight"], np.float64),
                np.array(content["mean"], np.float64),
                np.array(content["scatter"], np.float64),
            )
            count, replicas = len(blocks[0]), blocks[2].shape[-1]
            if count:
                shapes = [(count,), (count,), (count, replicas), (count, replicas, replicas)]
                if [block.shape for block in blocks] != shapes:
                    raise ValueError("its arrays differ in length")
                moments._append(*blocks)
        return moments


def strict_link(chunk: Float, scale: str, link: str, logit_offset: float) -> Float:
    """Scores of `link`, refusing a probability that has none: at 0 or 1 a logit is infinite."""
    if scale != "logit" or logit_offset:
        chunk = chunk.astype(np.float64, copy=False)
    if scale == "probability" and get_link(link).lower == 0.0:
        ends = int(np.count_nonzero((chunk == 0) | (chunk == get_link(link).upper)))
        if ends:
            raise UncurseError(
                f"{ends} probabilities of the pool are exactly 0 or 1, where the {link} score is infinite; "
                "pass logits, or clip them first, for example np.clip(p, 1e-6, 1 - 1e-6)"
            )
    if scale == "value" and link == "log" and chunk.min() <= 0:
        raise UncurseError(f"the pool holds {chunk.min():g}, which has no logarithm; use link='identity'")
    if logit_offset:
        return to_link(to_link(chunk, scale, "logistic") + logit_offset, "logit", link)
    return to_link(chunk, scale, link)


def _blocks_of(
    values: Float, weights: Array | None, convert: Callable[[Float], Float] | None, blocks: int
) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Moments of contiguous blocks of rows, a thread per core."""
    rows, replicas = values.shape
    bounds = np.linspace(0, rows, min(blocks, rows) + 1).astype(np.int64)
    step = max(1024, _STEP // max(replicas, 1))
    with np.errstate(invalid="ignore", over="ignore"):
        shift = _shift(values, convert)

    def some(numbers: NDArray[np.intp]) -> list[tuple[float, Array, Array]]:
        buffer = np.empty((replicas, min(step, int(np.diff(bounds).max()))))  # fresh pages cost more than the sums
        result = []
        for i in numbers:
            part = slice(bounds[i], bounds[i + 1])
            with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities are looked for in the sums
                result.append(_block(values[part], None if weights is None else weights[part], convert, buffer, shift))
        return result

    workers = min(cores(), max(1, values.size // (1 << 19)))
    shares = np.array_split(np.arange(len(bounds) - 1), workers)
    with one_blas_thread():
        made = [block for share in in_threads(some, shares) for block in share]
    return (
        np.diff(bounds),
        np.array([b[0] for b in made]),
        np.array([b[1] for b in made]),
        np.array([b[2] for b in made]),
    )


def _block(
    values: Float, weights: Array | None, convert: Callable[[Float], Float] | None, buffer: Array, shift: Array | None
) -> tuple[float, Array, Array]:
    """Weight, mean and scatter of one block."""
    replicas = values.shape[1]
    total = float(len(values)) if weights is None else float(weights.sum())
    if total <= 0:
        return 0.0, np.zeros(replicas), np.zeros((replicas, replicas))
    first, second = _sums(values, weights, convert, buffer, shift)
    rest = first / total
    mean = rest if shift is None else rest + shift
    return total, mean, second - total * np.outer(rest, rest)


def _shift(values: Float, convert: Callable[[Float], Float] | None) -> Array | None:
    """About which point to add up squares: zero costs no pass, but a mean of many spreads would cost digits."""
    sample = values[:: max(1, len(values) // 4096)]
    sample = (sample if convert is None else convert(sample)).astype(np.float64)
    mean: Array = sample.mean(axis=0)
    return mean if (np.square(mean) > 25 * sample.var(axis=0)).any() and np.isfinite(mean).all() else None


def _sums(
    values: Float, weights: Array | None, convert: Callable[[Float], Float] | None, buffer: Array, shift: Array | None
) -> tuple[Array, Array]:
    """Σwl and Σwll' of one block. As few calls as can be: threads wait for each other between them."""
    replicas, step = buffer.shape
    if replicas == 2 and weights is None and shift is None:
        return _sums_of_pairs(values, convert, buffer)
    first = [0.0] * replicas
    second = [[0.0] * replicas for _ in range(replicas)]
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        columns = buffer[:, : len(chunk)]
        columns[...] = (chunk if convert is None else convert(chunk)).T  # float32 in, float64 sums
        for i in range(replicas):
            if shift is not None:
                columns[i] -= shift[i]
        for i in range(replicas):
            left = columns[i] if weights is None else weights[start : start + step] * columns[i]
            first[i] += float(left.sum())
            for j in range(i, replicas):
                second[i][j] += float(np.dot(left, columns[j]))  # unlike @, it lets other threads run
    upper = np.array(second)
    return np.array(first), upper + np.triu(upper, 1).T


def _sums_of_pairs(values: Float, convert: Callable[[Float], Float] | None, buffer: Array) -> tuple[Array, Array]:
    """The same for two replicas as z = a + bi: Σz² = Σa² − Σb² + 2iΣab and Σ|z|² need no transposed copy."""
    step, flat = buffer.shape[1], buffer.reshape(-1)
    first, squares, moduli = 0j, 0j, 0.0
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        row = flat[: chunk.size]
        row[...] = (chunk if convert is None else convert(chunk)).reshape(-1)
        z = row.view(np.complex128)
        first += complex(z.sum())
        squares += complex(np.dot(z, z))
        moduli += float(np.dot(row, row))
    both = squares.imag / 2
    second = [[(moduli + squares.real) / 2, both], [both, (moduli - squares.real) / 2]]
    return np.array([first.real, first.imag]), np.array(second)


__all__ = ["Moments", "strict_link"]
