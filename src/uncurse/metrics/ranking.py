"""Predictions in descending order, and the cumulative sums from which the metrics of any selection follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells
from ..links import inside, normal_cdf
from ..threads import chunks, in_threads, shares
from ..validation import check_choice, check_count
from .estimates import Bin, Estimate, SelectionMetrics
from .selection import count_of_share

#: Weight, label sum, Σw² and Σw²y of cells in ascending order of the score.
Columns = tuple[Array, Array, Array, Array]

_EXACT_ROWS = 1 << 21  # rows that are sorted; those below are summarised by the grid
_SMALL_VARIANCE = 10.0  # of a label sum, in rows; above it the normal approximation of a noise floor errs by 1%
_FLOOR_POINTS = 200  # at which the distribution of the largest gap is evaluated
_MAX_BINS = 1 << 12  # the standard error of the MCE takes 81 numbers per bin and share

# Terms summed with weight w and, for standard errors, w²; all other sums follow from these (see `_combined`).
_BASE = ("1", "f", "y", "fy", "ff", "loss", "loss2", "brier2")


class Ranked:
    """Cells in descending order of the prediction, with the sums that give the metrics of any selection.

    `columns` holds weight, label sum, Σw² and Σw²y of each cell. `f` are the distinct predictions, `reached` the
    cumulative weight (K + 1,), and `unit` the weight of a row if all rows have the same.
    """

    def __init__(self, prediction: Array, columns: Columns) -> None:
        if not (prediction[1:] > prediction[:-1]).all():  # the map has ties or decreases: sort and merge
            prediction, place = np.unique(prediction, return_inverse=True)
            columns = tuple(np.asarray(np.bincount(place, column), np.float64) for column in columns)  # type: ignore[assignment]
        self.f = prediction[::-1]
        w, y, w2, y2 = (column[::-1] for column in columns)
        self.unit = unit_weight(columns[0], columns[2])
        self.pairs = [(w, y)] if self.unit == 1 else [(w, y), (w2, y2)]
        self.reached = np.append(0.0, np.cumsum(w))

    def sums(self, bounds: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return sums between consecutive bounds along the last axis, and up to the last bound.

        A bound is the total weight of the rows above it; a cell that it cuts counts in part. A trailing 1 or 2 in the
        name of a sum is Σw²x or Σw²x²; "r" is y − f, and "noise" the variance of Σwy for labels drawn from f.
        """
        reached, rounding = self._cumulative(bounds)
        between = np.diff(reached, axis=-1) + np.diff(rounding, axis=-1)
        return _combined(between), _combined((reached + rounding)[..., -1])

    def _cumulative(self, weight: Array) -> tuple[Array, Array]:
        """Return the base terms, summed with w and with w² over the top rows of total weight `weight`.

        A cell at the edge counts in part. The second array holds the rounding errors of the first: with them,
        differences of cumulative sums keep the digits of light bins.
        """
        reached = self.reached
        inside_of = np.clip(np.searchsorted(reached, weight, side="right") - 1, 0, len(self.f) - 1)
        ends, place = np.unique(inside_of, return_inverse=True)
        place = place.reshape(inside_of.shape)  # its shape differs between versions of NumPy
        share = np.clip((weight - reached[inside_of]) / (reached[inside_of + 1] - reached[inside_of]), 0.0, 1.0)
        terms = self._terms(ends)[:, place]
        # A row selected with share s has weight s, and s² where weights are squared.
        terms = np.stack([share * terms[: len(_BASE)], share**2 * terms[-len(_BASE) :]])
        before, rounding = self._before(ends)
        before, rounding = (np.stack([v[: len(_BASE)], v[-len(_BASE) :]])[..., place] for v in (before, rounding))
        sums, error = _two_sum(before, terms)
        return sums, rounding + error

    def _terms(self, cells: slice | NDArray[np.intp]) -> Array:
        """Return the base terms of some cells, one row per term."""
        f = self.f[cells]
        safe = inside(f, 0.0, 1.0)
        hit, miss = np.log(safe), np.log(1 - safe)
        terms = np.empty((len(self.pairs) * len(_BASE), len(f)))
        for i, (weight, label) in enumerate(self.pairs):
            w, y = weight[cells], label[cells]
            t = terms[i * len(_BASE) : (i + 1) * len(_BASE)]
            t[0], t[2] = w, y
            np.multiply(w, f, out=t[1])
            np.multiply(y, f, out=t[3])
            np.multiply(t[1], f, out=t[4])
            n = w - y
            t[5] = -(y * hit + n * miss)
            t[6] = y * hit * hit + n * miss * miss
            t[7] = y * np.square(np.square(1 - f)) + n * np.square(f * f)
        return terms

    def _before(self, ends: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return sums of the base terms over all cells before each of `ends`, and the rounding errors of these sums.

        The terms are summed in steps that stay in the cache.
        """

        def pieces(share: slice) -> list[tuple[NDArray[np.intp], Array]]:
            sums = []
            for part in chunks(share, 1 << 13):
                inner = ends[np.searchsorted(ends, part.start, side="right") : np.searchsorted(ends, part.stop)]
                starts = np.append(part.start, inner)
                sums.append((starts, np.add.reduceat(self._terms(part), starts - part.start, axis=1)))
            return sums

        starts, totals = [np.empty(0, np.intp)], [np.zeros((len(self.pairs) * len(_BASE), 1))]
        if ends[-1] > 0:
            for sums in in_threads(pieces, shares(int(ends[-1]))):
                starts += [piece[0] for piece in sums]
                totals += [piece[1] for piece in sums]
        added = np.concatenate(totals, axis=1)
        running = np.cumsum(added, axis=1)
        rounding = np.cumsum(_two_sum(running[:, :-1], added[:, 1:])[1], axis=1)
        rounding = np.concatenate([np.zeros((len(added), 1)), rounding], axis=1)
        places = np.searchsorted(np.concatenate(starts), ends)
        return running[:, places], rounding[:, places]

    def rows(
        self, alphas: Sequence[float], selected: Array, n_bins: int, strategy: str
    ) -> tuple[SelectionMetrics, ...]:
        """Return the metrics of the top rows of each weight in `selected`."""
        s, ece, mce, table = self.binned(selected, n_bins, strategy)
        bins = [tuple(Bin(*values) for values in row if values[0] > 0) for row in table.tolist()]
        defined = s["y"] > 0
        observed = np.where(defined, s["y"], 1.0)
        ratio = np.where(defined, s["f"] / observed, np.nan)
        # Linearised ratio estimator of a sample of rows.
        error = np.sqrt(np.maximum(s["ff2"] - 2 * ratio * s["fy2"] + ratio**2 * s["yy2"], 0.0)) / observed

        def means(name: str) -> list[Estimate]:
            value = s[name] / s["w"]
            return list(map(Estimate, value, _deviation(value, s["w2"], s[name + "1"], s[name + "2"]) / s["w"]))

        columns = zip(
            alphas,
            selected.tolist(),
            s["f"].tolist(),
            s["y"].tolist(),
            map(Estimate, ratio, error),
            map(Estimate, ratio - 1, error),
            ece,
            mce,
            means("loss"),
            means("brier"),
            bins,
            strict=True,
        )
        return tuple(SelectionMetrics(*values) for values in columns)

    def binned(
        self, selected: Array, n_bins: int, strategy: str
    ) -> tuple[dict[str, Array], list[Estimate], list[Estimate], Array]:
        """Return sums, ECE, MCE and a table of the bins, for the top rows of each weight in `selected`."""
        check_choice("strategy", strategy, ("quantile", "uniform"))
        n_bins = limit_bins(n_bins)
        edges = np.arange(n_bins + 1) / n_bins
        reached, end = self.reached, selected[:, None]
        if strategy == "quantile":
            # A bin ends at the nearest end of a cell: equal predictions share a bin.
            target = end * edges
            i = np.clip(np.searchsorted(reached, target), 1, len(reached) - 1)
            below, above = target - reached[i - 1], reached[i] - target
            # A tie goes to the upper end, whatever the rounding of cumulative weights.
            bounds = np.where(below < above - 1e-9 * end, reached[i - 1], reached[i])
        else:
            # Predictions descend, so cells with f ≥ edge come first.
            bounds = np.tile(reached[np.searchsorted(-self.f, -edges[::-1], side="right")], (len(end), 1))
        bounds[:, 0], bounds[:, -1] = 0.0, np.inf
        bounds = np.minimum(bounds, end)
        s, total = self.sums(bounds)
        # Rounding of the bounds would decide the rate of lighter bins.
        empty = s["w"] <= 1e-7 * end
        w = np.where(empty, 1.0, s["w"])
        residual = (s["y"] - s["f"]) / w
        gap, spread = np.abs(residual), _deviation(residual, s["w2"], s["r1"], s["r2"]) / w
        floor = np.sqrt(np.maximum(s["noise"], 0.0)) / w
        # A single row has no spread, and neither have rows with the same label and prediction, up to rounding.
        spread = np.where((np.square(s["w"]) < 1.5 * s["w2"]) | (spread < 1e-6 * floor), floor, spread)
        gap, spread, floor = (np.where(empty, 0.0, v) for v in (gap, spread, floor))
        share = s["w"] / s["w"].sum(axis=-1, keepdims=True)
        # Observed gaps include noise. Shrink them by the James–Stein factor to estimate the gaps without it.
        z = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 1e-100 * gap)
        filled = np.maximum((spread > 0).sum(axis=-1, keepdims=True), 1)
        mean_gap = gap * np.maximum(1 - filled / np.maximum(np.square(z).sum(axis=-1, keepdims=True), 1e-300), 0.0)
        variance = _folded(mean_gap, spread)[1]
        mean_floor, largest_floor = _floors(
            floor, np.where(empty, 0.0, w**2 / np.where(empty, 1.0, s["w2"])), s["f"] / w
        )
        ece = map(
            Estimate,
            (share * gap).sum(axis=-1),
            np.sqrt((np.square(share) * variance).sum(axis=-1)),
            (share * mean_floor).sum(axis=-1),
        )
        mce = map(Estimate, gap.max(axis=-1), _largest(mean_gap, spread)[1], largest_floor)
        # The rate varies by p(1 − p), with the predictions for p where all labels of a bin are equal.
        rate = s["y"] / w
        error = _deviation(rate, s["w2"], s["yy2"], s["yy2"]) / w
        error = np.where((s["y"] <= 0) | (s["y"] >= s["w"]), floor, error)
        table = np.stack([s["w"], s["f"] / w, rate, error], axis=-1)[:, ::-1]
        return total, list(ece), list(mce), table


def _combined(sums: Array) -> dict[str, Array]:
    """Return all sums by name from the base terms, summed with w and with w²."""
    a, b = (dict(zip(_BASE, terms, strict=True)) for terms in sums)
    squares = b["y"] - 2 * b["fy"] + b["ff"]
    return {
        "w": a["1"], "f": a["f"], "y": a["y"], "w2": b["1"],
        "ff2": b["ff"], "fy2": b["fy"], "yy2": b["y"],
        "noise": b["f"] - b["ff"], "r1": b["y"] - b["f"], "r2": squares,
        "loss": a["loss"], "loss1": b["loss"], "loss2": b["loss2"],
        "brier": a["y"] - 2 * a["fy"] + a["ff"], "brier1": squares, "brier2": b["brier2"],
    }  # fmt: skip


def _two_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """Return one + other and the rounding error of that sum (Knuth's TwoSum)."""
    total = one + other
    added = total - one
    return total, (one - (total - added)) + (other - added)


def unit_weight(weight: Array, squares: Array) -> float | None:
    """Return the weight of a row if all rows have the same; `squares` holds Σw² of each cell."""
    unit = float(squares[0] / weight[0])
    return unit if weight is squares or np.allclose(squares, unit * weight, rtol=1e-12, atol=0.0) else None


def selected_weight(alpha: float, total: float, unit: float | None) -> float:
    """Return the weight of the top share: of whole rows if all rows have the same weight."""
    return alpha * total if unit is None else unit * count_of_share(alpha, round(total / unit))


def limit_bins(n_bins: int) -> int:
    """Return `n_bins`, limited to 4096."""
    return min(check_count(n_bins, "n_bins"), _MAX_BINS)


def _deviation(mean: Any, w2: Any, first: Any, second: Any) -> Any:
    """Return √Σw²(x − m)² from Σw², Σw²x and Σw²x²."""
    squares = second - 2 * mean * first + mean * mean * w2
    return np.sqrt(np.where(squares > 1e-12 * second, squares, 0.0))


def _folded(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Return mean and variance of |N(mean, sd²)|."""
    ratio = np.divide(mean, sd, out=np.full_like(mean, 1e100), where=sd > 1e-100 * mean)
    expected = sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * np.square(ratio)) + mean * (1 - 2 * normal_cdf(-ratio))
    return expected, np.maximum(mean**2 + sd**2 - expected**2, 0.0)


def _largest(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of the largest of independent |N(mean, sd²)|, by ∫ P(max > t) dt."""
    low = np.maximum((mean - 7 * sd).max(axis=-1), 0.0)  # below it P is 1
    width = (mean + 7 * sd).max(axis=-1) - low + 1e-300  # and beyond it 0
    u = np.linspace(0.0, 1.0, 81)
    x = width[..., None] * u
    t = (low[..., None] + x)[..., None]
    mean, sd = mean[..., None, :], np.maximum(sd, 1e-300)[..., None, :]
    with np.errstate(over="ignore"):
        above = 1 - np.prod(normal_cdf((t - mean) / sd) - normal_cdf((-t - mean) / sd), axis=-1)
    # Moments about `low`: a large gap with a small error would lose the error to rounding.
    first = width * u[1] * (above.sum(axis=-1) - above[..., 0] / 2)
    second = width * u[1] * (2 * x * above).sum(axis=-1)
    return low + first, np.sqrt(np.maximum(second - first**2, 0.0))


def _floors(sd: Array, rows: Array, rate: Array) -> tuple[Array, Array]:
    """Return the mean gap of each bin, and of the largest of each selection, for labels drawn from the predictions.

    Gaps are normal in bins whose label sum has a variance of 10 or more. In others the sum is binomial, with the mean
    prediction as its rate and scaled to the exact standard deviation; `rows` are effective rows.
    """
    mean, (largest, _) = sd * np.sqrt(2 / np.pi), _largest(np.zeros_like(sd), sd)
    small = (sd > 0) & (np.square(rows * sd) < _SMALL_VARIANCE) & (rate > 0) & (rate < 1)  # up to rounding
    if not small.any():
        return mean, largest
    for i in np.flatnonzero(small.any(axis=-1)):
        few, normal = small[i], sd[i, ~small[i]]
        n, p = np.maximum(np.rint(rows[i, few]), 1.0), rate[i, few]
        scale = sd[i, few] / np.sqrt(p * (1 - p) / n)  # of a gap, so that its standard deviation is exact
        first, chance = _binomial(n, p)
        counts = first[:, None] + np.arange(chance.shape[1])
        mean[i, few] = scale / n * (np.abs(counts - (n * p)[:, None]) * chance).sum(axis=-1)
        unit = n / scale
        width = max((np.maximum(p, 1 - p) * scale).max(), 7 * normal.max(initial=0.0)) / _FLOOR_POINTS
        t = width * (np.arange(_FLOOR_POINTS) + 0.5)
        reached = np.concatenate([np.zeros((len(n), 1)), np.cumsum(chance, axis=1)], axis=1)
        # Counts from `low` to `high` have a gap of at most t.
        low, high = np.ceil((n * p)[:, None] - unit[:, None] * t), np.floor((n * p)[:, None] + unit[:, None] * t) + 1
        places = (np.clip(end - first[:, None], 0, chance.shape[1]).astype(np.intp) for end in (high, low))
        upto, below = (np.take_along_axis(reached, place, axis=1) for place in places)
        inside = np.prod(upto - below, axis=0)
        inside *= np.prod(1 - 2 * normal_cdf(-t[:, None] / np.maximum(normal, 1e-300)), axis=-1)
        largest[i] = width * float(np.sum(1 - inside))
    return mean, largest


def _binomial(n: Array, p: Array) -> tuple[Array, Array]:
    """Return the first count and the probabilities of the counts from there on, of binomials of small variance.

    Counts that are more than 15 standard deviations away are left out.
    """
    reach = 15 * np.sqrt(_SMALL_VARIANCE)
    first = np.maximum(np.floor(n * p - reach), 0.0)
    counts = first[:, None] + np.arange(int(min(n.max(), 2 * reach + 1)) + 1)
    with np.errstate(divide="ignore"):  # a count above n has the logarithm −∞
        steps = np.log(np.maximum(n[:, None] - counts[:, :-1], 0.0) / counts[:, 1:]) + np.log(p / (1 - p))[:, None]
    logs = np.concatenate([np.zeros((len(n), 1)), np.cumsum(steps, axis=1)], axis=1)
    chance = np.exp(logs - logs.max(axis=1, keepdims=True))
    return first, chance / chance.sum(axis=1, keepdims=True)


def columns_of(cells: Cells) -> Columns:
    """Return the columns of labelled cells that `Ranked` needs."""
    labels = cells.label
    if labels is None:
        raise UncurseError("these cells have no labels; update them with scores and labels")
    return cells.weight, labels, cells.weight_squares, cells.label_squares


def rank(f: Any, labels: NDArray[Any], weights: Array | None) -> Ranked:
    """Rank rows: the top 2^21 exactly, those below by cells of the grid with their mean prediction."""
    if f.min() < 1e-300:  # −0 would sort last, and products of denormal numbers lose all digits
        f = np.where(f < 1e-300, f.dtype.type(0), f)
    parts = [slice(None)]
    if len(f) > _EXACT_ROWS:
        top = f >= np.partition(f, len(f) - _EXACT_ROWS)[len(f) - _EXACT_ROWS]
        parts = [top] if top.all() else [~top, top]
    ranked = []
    for i, part in enumerate(parts):
        w = None if weights is None else weights[part]
        if w is not None and not w.any():
            continue
        if w is None and i == len(parts) - 1:
            ranked.append(_sorted(f[part], labels[part]))
        else:
            cells = Cells("probability", exact=i == len(parts) - 1).update(f[part], labels[part], sample_weight=w)
            ranked.append((cells.score, columns_of(cells)))
    if len(ranked) == 1:
        return Ranked(*ranked[0])
    w, y, w2, y2 = (np.concatenate(column) for column in zip(*(columns for _, columns in ranked), strict=True))
    return Ranked(np.concatenate([scores for scores, _ in ranked]), (w, y, w2, y2))


def top_rows(f: Any, labels: NDArray[Any], count: int) -> tuple[Any, NDArray[Any]]:
    """Return the rows from some prediction upwards: at least `count`, and rarely many more.

    A sample gives a cut slightly below the `count`-th prediction, ten times faster than a partition of all rows. If
    the cut is too high, the partition is used.
    """
    sample = f[:: max(1, len(f) // 100_000)]
    share = count / len(f)
    keep = int(np.ceil(len(sample) * share + 5 * np.sqrt(len(sample) * share))) + 1
    cut = np.partition(sample, -keep)[-keep] if keep < len(sample) else f.min()

    def take(share: slice) -> tuple[Any, NDArray[Any]]:
        chosen = np.concatenate([np.flatnonzero(f[part] >= cut) + part.start for part in chunks(share)])
        return f[chosen], labels[chosen]

    taken = in_threads(take, shares(len(f)))
    if sum(len(y) for _, y in taken) < count:
        cut = np.partition(f, len(f) - count)[len(f) - count]
        taken = in_threads(take, shares(len(f)))
    return np.concatenate([t[0] for t in taken]), np.concatenate([t[1] for t in taken])


def _sorted(f: Any, labels: NDArray[Any]) -> tuple[Array, Columns]:
    """Return distinct predictions and their columns. The sort key holds the label in its lowest bit."""
    bits = f.view(np.uint32 if f.dtype == np.float32 else np.uint64) << 1
    bits |= labels.astype(bits.dtype)
    bits.sort()
    y = (bits & 1).astype(np.float64)
    bits >>= 1
    scores = bits.view(f.dtype).astype(np.float64)
    w = np.ones(len(scores))
    first = np.append(True, scores[1:] > scores[:-1])
    if not first.all():
        starts = np.flatnonzero(first)
        scores, y = scores[starts], np.add.reduceat(y, starts)
        w = np.diff(starts, append=len(w)).astype(np.float64)
    return scores, (w, y, w, y)
