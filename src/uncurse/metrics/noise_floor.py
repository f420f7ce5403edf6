"""Noise floor of bins with few rows or few positives, for which the normal approximation is wrong.

If every prediction is the true probability, the label sum of a bin is a sum of independent 0/1 variables. Its
characteristic function is a product over rows, and an inverse Fourier transform gives its distribution. This is exact
for bins of up to 48 rows of equal weight; `_entries` and `_distributions` say what is approximate in other bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..links import normal_cdf

#: Bins whose label sum has a smaller variance, in rows, are small. Above it the normal approximation errs by 1%.
SMALL_VARIANCE = 10.0
_MAX_CELLS = 48  # cells of a bin that count one by one; more are merged
_CHUNKS = 16  # entries into which the cells of a larger bin are merged
_LATTICE = 64  # points of a distribution whose rows have equal weights: more than ±9 standard deviations
_FINE_LATTICE = 256  # points for unequal weights
_BLOCK = 1 << 20  # complex numbers held at once

#: Prediction, weight and Σw² of cells.
Cells = tuple[Array, Array, Array]
Index = NDArray[np.intp]


def gap_distributions(cells: Cells, reached: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the distribution of |mean label − mean prediction| of bins, for labels drawn from the predictions.

    Parameters
    ----------
    cells : tuple of arrays of shape (K,)
        Prediction, weight and Σw² of cells in descending order of the prediction.
    reached : array of shape (K + 1,)
        Cumulative weight of the cells.
    bounds : array of shape (bins, 2)
        Cumulative weight at which each bin begins and ends.

    Returns
    -------
    gap, probability : arrays of shape (bins, points)
        Gaps in ascending order, and their probabilities.
    """
    first = np.searchsorted(reached, bounds[:, 0], side="right") - 1
    last = np.minimum(np.searchsorted(reached, bounds[:, 1]), len(reached) - 1)
    gap, probability = np.zeros((2, len(bounds), _LATTICE))
    step = max(1, _BLOCK // (_MAX_CELLS * (_FINE_LATTICE // 2 + 1)))
    for start in range(0, len(bounds), step):
        block = slice(start, start + step)
        f, each, count, noise, starts = _entries(cells, reached, bounds[block], first[block], last[block])
        largest, smallest = np.maximum.reduceat(each, starts), np.minimum.reduceat(each, starts)
        equal = largest < (1 + 1e-9) * smallest
        for points, chosen in ((_LATTICE, equal), (_FINE_LATTICE, ~equal)):
            if chosen.any():
                sizes = np.diff(starts, append=len(f))
                part = np.repeat(chosen, sizes)
                begin = np.append(0, np.cumsum(sizes[chosen])[:-1])
                found = _distributions(f[part], each[part], count[part], noise[chosen], begin, points)
                if points > gap.shape[1]:
                    gap, probability = (
                        np.pad(values, ((0, 0), (0, points - _LATTICE))) for values in (gap, probability)
                    )
                at = start + np.flatnonzero(chosen)
                gap[at, :points], probability[at, :points] = found
    return gap, probability


def _entries(
    cells: Cells, reached: Array, bounds: Array, first: Index, last: Index
) -> tuple[Array, Array, Index, Array, Index]:
    """Return prediction, row weight and number of rows of entries; the variance of Σwy and the first entry of bins.

    An entry is a cell, or neighbouring cells of a bin with more than `_MAX_CELLS`, with their mean prediction: they
    hold a sixteenth of the variance of the bin. Σw² says how many rows of equal weight an entry stands for; the
    number is rounded. A cell that a selection cuts holds rows of smaller weight.
    """
    sizes = last - first
    owner = np.repeat(np.arange(len(sizes)), sizes)
    cell = np.arange(sizes.sum()) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)
    low, high = bounds[owner].T
    inside = np.minimum(reached[cell + 1], high) - np.maximum(reached[cell], low)
    kept = inside > 1e-9 * (high - low)  # others are due to the rounding of cumulative weights
    owner, cell, inside = owner[kept], cell[kept], inside[kept]
    sizes = np.bincount(owner, minlength=len(sizes))
    starts = np.cumsum(sizes) - sizes
    share = inside / (reached[cell + 1] - reached[cell])
    share[share > 1 - 1e-9] = 1.0
    f, w, w2 = (column[cell] for column in cells)
    w, w2 = share * w, share**2 * w2
    terms = w2 * f * (1 - f)
    noise = np.add.reduceat(terms, starts)
    before = np.cumsum(terms) - terms
    before -= before[starts][owner]
    chunk = np.where(
        (sizes > _MAX_CELLS)[owner], np.floor(_CHUNKS * before / np.maximum(noise, 1e-300)[owner]), np.arange(len(cell))
    )
    begin = np.union1d(np.flatnonzero(np.diff(chunk, prepend=-1.0)), starts)
    weight, squares, predicted = (np.add.reduceat(column, begin) for column in (w, w2, w * f))
    count = np.maximum(np.rint(weight**2 / squares), 1).astype(np.intp)
    return predicted / weight, weight / count, count, noise, np.searchsorted(begin, starts)


def _distributions(
    f: Array, each: Array, count: Index, noise: Array, starts: Index, points: int
) -> tuple[Array, Array]:
    """Return sorted gaps and their probabilities; `each` is the weight of a row of an entry.

    A surprise is the less probable label of a row: it adds the row's weight to the label sum, or takes it away. Sums of
    surprises are multiples of a step, the weight of a row where all rows of a bin weigh the same. Otherwise the step
    is a small part of the weight of the bin, and a surprise adds one of the two nearest multiples, with probabilities
    that keep the mean. Gaps are scaled to their exact variance, which this and merged cells increase slightly.
    """
    sizes = np.diff(starts, append=len(f))

    def total(term: Array) -> Array:
        return np.asarray(np.add.reduceat(term, starts), np.float64)

    fall = f > 0.5
    surprise, sign = np.where(fall, 1 - f, f), np.where(fall, -1.0, 1.0)
    weight = each * count
    room = total(np.where(fall, weight, 0.0)), total(np.where(fall, 0.0, weight))  # how far the sum can fall and rise
    step, spare = each[starts], np.zeros((2, len(starts)))
    if points != _LATTICE:
        spare = np.minimum([total(np.where(fall, count, 0)), total(np.where(fall, 0, count))], points / 8)
        step = np.minimum(room[0] + room[1], 20 * np.sqrt(noise)) / (points - 2 - spare.sum(axis=0))
    angle = -2j * np.pi * np.arange(points // 2 + 1) / points
    if points == _LATTICE:
        change = (np.exp(np.stack([angle, -angle])) - 1)[fall.astype(np.intp)]
    else:
        jump = each / np.repeat(step, sizes)
        whole = np.floor(jump)
        change = np.exp(angle * (sign * whole)[:, None])
        change *= 1 + (jump - whole)[:, None] * (np.exp(angle * sign[:, None]) - 1)
        change -= 1
    change *= surprise[:, None]
    change += 1
    rows = _power(change, count)
    probability = np.fft.irfft(np.multiply.reduceat(rows, starts, axis=0), points, axis=1)
    probability = np.maximum(probability, 0.0)
    probability /= probability.sum(axis=1, keepdims=True)
    # The transform gives sums modulo the number of points. The right ones are possible, and the nearest to the mean.
    mean = total(sign * surprise * weight)
    least, most = -room[0] / step - spare[0], room[1] / step + spare[1]
    low = np.floor(np.clip(mean / step - points / 2, least, np.maximum(most + 1 - points, least)))[:, None]
    gap = np.abs((low + (np.arange(points) - low) % points) * step[:, None] - mean[:, None])
    variance = (probability * gap**2).sum(axis=1)
    scale = np.sqrt(np.divide(noise, variance, out=np.ones_like(step), where=variance > 0)).clip(0.5, 2.0)
    predicted = total(weight * f) / total(weight)
    gap *= (scale / total(weight))[:, None]
    gap = np.minimum(gap, np.maximum(predicted, 1 - predicted)[:, None])
    order = np.argsort(gap, axis=1)
    return np.take_along_axis(gap, order, 1), np.take_along_axis(probability, order, 1)


def _power(base: NDArray[np.complex128], exponent: Index) -> NDArray[np.complex128]:
    """Return powers with a positive integer exponent for each row, by repeated squaring."""
    if exponent.max() == 1:
        return base
    result = np.ones_like(base)
    while True:
        odd = exponent % 2 == 1
        result[odd] *= base[odd]
        exponent = exponent // 2
        if not exponent.any():
            return result
        base = base * base


def mean_of_largest(gap: Array, probability: Array, sd: Array) -> float:
    """Return the mean of the largest of independent gaps with these distributions and of |N(0, sd²)|.

    It is ∫ 1 − P(largest ≤ t) dt, and P is a product: a step function times a smooth one.
    """
    top = max(float(gap.max()), 7 * float(sd.max(initial=0.0)))
    distribution = np.minimum(np.cumsum(probability, axis=1), 1.0)
    logs = np.log(np.maximum(distribution, 1e-300))
    jumps = np.diff(logs, axis=1, prepend=np.log(1e-300)).ravel()
    order = np.argsort(gap, axis=None)
    ends = np.append(gap.ravel()[order], top)
    below = np.exp(np.minimum(np.cumsum(jumps[order]) + len(gap) * np.log(1e-300), 0.0))
    grid = np.linspace(0.0, top, 161)
    smooth = np.prod(1 - 2 * normal_cdf(-grid[:, None] / np.maximum(sd, 1e-300)), axis=1)
    integral = np.append(0.0, np.cumsum((smooth[1:] + smooth[:-1]) / 2 * grid[1]))
    return max(top - float(below @ np.diff(np.interp(ends, grid, integral))), 0.0)
