"""Weights, means and scatter matrices of blocks of rows: the numerical kernel of `Moments`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link, to_link
from ..threads import cores, in_threads, one_blas_thread

#: Rows, Σw, Σw², mean and scatter of blocks: (B,), (B,), (B,), (B, S) and (B, S, S).
Blocks = tuple[NDArray[np.int64], Array, Array, Array, Array]

# Rows per step times columns: 8 MiB of float64 for each thread. Smaller steps fit the L2 cache but threads
# then wait for each other between calls (two threads, S=2, in units of one np.sum: 6.2 at 2^15, 2.8 at 2^20).
_STEP = 1 << 20


def block_sums(values: Float, weights: Array | None, convert: Callable[[Float], Float] | None, blocks: int) -> Blocks:
    """Return the moments of runs of rows, computed by a thread per core."""
    count, replicas = values.shape
    bounds = np.linspace(0, count, min(blocks, count) + 1).astype(np.int64)
    step = max(1024, _STEP // max(replicas, 1))
    with np.errstate(invalid="ignore", over="ignore"):
        shift = _shift(values, weights, convert)

    def sum_blocks(numbers: NDArray[np.intp]) -> list[tuple[float, Array, Array]]:
        buffer = np.empty(
            (replicas, min(step, int(np.diff(bounds).max())))
        )  # allocating it for each block costs more than the sums
        result = []
        for i in numbers:
            part = slice(bounds[i], bounds[i + 1])
            with np.errstate(invalid="ignore", over="ignore"):  # `Moments` checks the sums for NaN and infinities
                result.append(_block(values[part], None if weights is None else weights[part], convert, buffer, shift))
        return result

    workers = min(cores(), max(1, values.size // (1 << 19)))
    shares = np.array_split(np.arange(len(bounds) - 1), workers)
    with one_blas_thread():
        sums = [block for share in in_threads(sum_blocks, shares) for block in share]
    rows = np.diff(bounds)
    squares = rows.astype(np.float64) if weights is None else np.add.reduceat(np.square(weights), bounds[:-1])
    weight, mean, scatter = (np.array(column) for column in zip(*sums, strict=True))
    return rows, weight, squares, mean, scatter


def _block(
    values: Float, weights: Array | None, convert: Callable[[Float], Float] | None, buffer: Array, shift: Array | None
) -> tuple[float, Array, Array]:
    """Return weight, mean and scatter of one block."""
    replicas = values.shape[1]
    total = float(len(values)) if weights is None else float(weights.sum())
    if total <= 0:
        return 0.0, np.zeros(replicas), np.zeros((replicas, replicas))
    first, second = _sums(values, weights, convert, buffer, shift)
    shifted = first / total
    mean = shifted if shift is None else shifted + shift
    return total, mean, second - total * np.outer(shifted, shifted)


def _shift(values: Float, weights: Array | None, convert: Callable[[Float], Float] | None) -> Array | None:
    """Return a point to subtract before squaring, or None if the means are small enough to lose no digits."""
    step = max(1, len(values) // 4096)
    sample, weight = values[::step], None if weights is None else weights[::step]
    if weight is not None and weight.sum() <= 0:
        weight = None
    sample = (sample if convert is None else convert(sample)).astype(np.float64)
    mean = np.asarray(np.average(sample, axis=0, weights=weight), np.float64)
    variance = np.average(np.square(sample - mean), axis=0, weights=weight)
    # The mean of a column with an outlier is far from its other scores; subtracting it would lose digits of these.
    far = np.square(mean) > 25 * variance
    return np.where(far, mean, 0.0) if far.any() and np.isfinite(mean).all() else None


def _sums(
    values: Float, weights: Array | None, convert: Callable[[Float], Float] | None, buffer: Array, shift: Array | None
) -> tuple[Array, Array]:
    """Return Σwl and Σwll' of one block, in few calls because threads wait for each other between calls."""
    replicas, step = buffer.shape
    if replicas == 2 and weights is None and shift is None:
        return _sums_of_pairs(values, convert, buffer)
    first = [0.0] * replicas
    second = [[0.0] * replicas for _ in range(replicas)]
    for start in range(0, len(values), step):
        chunk = values[start : start + step]
        columns = buffer[:, : len(chunk)]
        columns[...] = (chunk if convert is None else convert(chunk)).T  # sums are float64
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


def _sums_of_pairs(values: Float, convert: Callable[[Float], Float] | None, buffer: Array) -> tuple[Array, Array]:
    """Do the same for two replicas as z = a + bi: Σz² = Σa² − Σb² + 2iΣab and Σ|z|² need no transposed copy."""
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


def strict_link(chunk: Float, scale: str, link: str, logit_offset: float) -> Float:
    """Convert scores to scores of `link`; raise UncurseError for a probability of 0 or 1, whose logit is infinite."""
    if scale != "logit" or link != "logistic" or logit_offset:
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


def check_blocks(blocks: Blocks) -> None:
    """Raise ValueError unless these are the blocks of `Moments`."""
    rows, weight, squares, mean, scatter = blocks
    count, replicas = len(rows), mean.shape[-1]
    shapes = [(count,), (count,), (count,), (count, replicas), (count, replicas, replicas)]
    if [block.shape for block in blocks] != shapes:
        raise ValueError("its arrays differ in length")
    if not all((np.abs(block) < 1e305).all() for block in blocks):  # their sums must be finite too
        raise ValueError("it holds numbers that are not finite")
    if (rows < 0).any() or (rows > 1 << 53).any() or (weight < 0).any() or not weight.any():
        raise ValueError("rows and weights must be positive")
    # Σw² lies between (Σw)²/n and (Σw)².
    with np.errstate(over="ignore"):
        total, levels = np.square(weight) * (1 + 1e-9), weight * np.square(mean).max(initial=0.0)
    if not np.isfinite(levels).all():
        raise ValueError("the squares of its means overflow")
    if (squares > total).any() or (squares < total / np.maximum(rows, 1) * (1 - 2e-9)).any():
        raise ValueError("its squared weights do not fit its weights")
    size = np.abs(scatter).max(axis=(1, 2))
    twisted = np.abs(scatter - scatter.transpose(0, 2, 1)).max(axis=(1, 2))
    # A block of one row has no scatter beyond the rounding of its squares about a mean of all blocks.
    slack = 1e-9 * size + 1e-14 * levels
    if (twisted > slack).any() or (np.linalg.eigvalsh(scatter).min(axis=1) < -slack).any():
        raise ValueError("a scatter matrix is not symmetric and positive semi-definite")
