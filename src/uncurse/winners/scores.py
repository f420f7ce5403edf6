"""Scores of candidates on items, and the errors of their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..errors import UncurseError
from ..validation import check_length, check_numbers, check_weights, encode_names, is_missing
from .posterior import Candidates, Index


@dataclass(frozen=True)
class Scores:
    """Scores of candidates on items, as the readers of `uncurse.winners` return them.

    Attributes
    ----------
    values : array of shape (n_items, n_candidates)
        Scores; NaN where an item was not scored.
    names : sequence of str
        Names of the candidates.
    clusters, sample_weight : array of shape (n_items,), optional
        Cluster and weight of each item.
    groups : array of shape (n_candidates,), optional
        Group of each candidate.
    higher_is_better : bool, default=True
        Whether the best score is the highest one.
    """

    values: Array
    names: Sequence[str]
    clusters: NDArray[Any] | None = None
    sample_weight: Array | None = None
    groups: NDArray[Any] | None = None
    higher_is_better: bool = True

    @classmethod
    def of(cls, scores: Any, *, names: Sequence[str] | None, **more: Any) -> Scores:
        """Return checked scores of an array or a frame, with what else is given."""
        more = {name: value for name, value in more.items() if value is not None}
        if not isinstance(scores, Scores):
            if hasattr(scores, "cv_results_"):
                raise UncurseError(f"scores is a {type(scores).__name__}; pass uncurse.winners.from_search(search)")
            frame = nw.from_native(scores, eager_only=True, pass_through=True)
            is_frame = isinstance(frame, nw.DataFrame)
            if is_frame:
                columns = {name: numbers_of(frame, name) for name in frame.columns}
                for name, column in columns.items():
                    many = len(column) > 9  # scores of a few rows may be consecutive by chance
                    numbers = many or (len(column) > 2 and column[0] in (0, 1))
                    if numbers and (np.diff(np.sort(column) if many else column) == 1).all():
                        raise UncurseError(
                            f"column {name!r} numbers the rows and is not a candidate; leave it out (--item {name})"
                        )
                scores = np.array(list(columns.values())).T
            array = check_numbers(scores, "scores").astype(np.float64)
            if array.ndim != 2:
                raise UncurseError(f"scores has shape {array.shape}; pass items × candidates, trials or standard_error")
            scores = Scores(array, frame.columns if is_frame else list(map(str, range(array.shape[1]))))
        self: Scores = replace(scores, **more, **({} if names is None else {"names": list(map(str, names))}))
        rows, count = self.values.shape
        check_length(np.asarray(self.names), count, "names")
        check_weights(self.sample_weight, rows)
        if np.isinf(self.values).any() or not count:
            raise UncurseError("scores is empty or infinite; pass finite numbers, NaN where an item was not scored")
        for name, few in zip(self.names, np.isfinite(self.values).sum(0) < 2, strict=True):
            if few:
                raise UncurseError(f"candidate {name!r} has fewer than two scores; score it on more items, or drop it")
        return self

    def candidates(self, groups: Index, sign: float) -> tuple[Candidates, Array]:
        """Return the means with the variances of their own errors, by group, and the shared errors of the groups."""
        low, high = np.nanmin(self.values), np.nanmax(self.values)
        bounds = (min(0.0, sign), max(0.0, sign)) if low >= 0 and high <= 1 else None
        values, variances, shared = [], [], []
        for group in range(groups.max() + 1):
            mean, variance, rows, common = self._means(groups == group)
            pooled = variance * rows
            if bounds is not None:
                pooled = np.full_like(mean, pooled.sum() / max((mean * (1 - mean)).sum(), 1e-9))
            else:
                pooled = _pool(mean, pooled, rows)
            if bounds is not None and not pooled.any() and not common:
                # All scores are equal: the error of a rate with two more successes and two more failures.
                rate = (abs(mean[0]) * rows[0] + 2) / (rows[0] + 4)
                common = rate * (1 - rate) / (rows[0] + 4)
            smallest = (1e-9 * max(np.ptp(mean), np.abs(mean).max(), 1e-140)) ** 2 if bounds is None else 1e-8
            values.append(sign * mean)
            variances.append(np.maximum(pooled / rows, smallest))
            shared.append(common)
        starts = np.concatenate([[0], np.cumsum([len(mean) for mean in values])])
        found = Candidates(np.concatenate(values), np.concatenate(variances), starts, bounds)
        return found, np.sqrt(shared)

    def _means(self, columns: NDArray[np.bool_]) -> tuple[Array, Array, Array, float]:
        """Return means, variances of the errors that are not shared, effective numbers of items, and the shared one.

        An item has an effect on all candidates. Where some scores are missing, means are those of the additive model
        of item and candidate: as if every candidate had been scored on every item.
        """
        scores = self.values[:, columns]
        seen = np.isfinite(scores)
        some = seen.any(1)
        scores, seen = scores[some], seen[some]
        weight = np.ones(len(scores)) if self.sample_weight is None else np.asarray(self.sample_weight, float)[some]
        weight = weight / weight.max()
        count, total = seen.sum(1), weight @ seen
        filled = np.where(seen, scores, 0.0)
        effect = plain = weight @ filled / total
        item = np.zeros(len(scores))
        for _ in range(1 if seen.all() else 200):
            item = (filled.sum(1) - seen @ effect) / count
            before, effect = effect, weight @ np.where(seen, scores - item[:, None], 0.0) / total
            if np.abs(effect - before).max() <= 1e-10 * (np.abs(effect).max() + 1e-300):
                break
        level = float(weight @ item / weight.sum())
        residual = weight[:, None] * np.where(seen, scores - item[:, None] - effect, 0.0)
        deviation = weight * (item - level)
        clusters = len(scores)
        if self.clusters is not None:
            codes = np.unique(encode_names(self.clusters, len(self.values), "clusters")[1][some], return_inverse=True)[
                1
            ]
            residual = np.stack([np.bincount(codes, column) for column in residual.T], axis=1)
            deviation = np.bincount(codes, deviation)
            clusters = len(deviation)
        if clusters < 2:
            raise UncurseError("scores has fewer than two items or clusters; errors cannot be estimated")
        rows = total**2 / (weight**2 @ seen)
        kept = (weight**2 * (1 - 1 / count)) @ seen / (weight**2 @ seen)  # of the variance, by the item effects
        variance = (residual**2).sum(0) / total**2 / np.maximum(kept, 1e-9) * clusters / (clusters - 1)
        common = float(deviation @ deviation / weight.sum() ** 2 * clusters / (clusters - 1))
        own = float(variance.mean()) / scores.shape[1]
        mean = plain if seen.all() else effect + level
        return mean, variance, rows, max(common - own, 0.0) if scores.shape[1] > 1 else common


def numbers_of(table: nw.DataFrame[Any], name: str, *, missing: bool = True) -> Array:
    """Return a column of numbers; empty cells are NaN if they may be missing."""
    column = table[name]
    if column.dtype.is_numeric():
        found = column.to_numpy().astype(np.float64)
    else:
        found = np.empty(len(column))
        for row, value in enumerate(column.to_list()):
            try:
                found[row] = np.nan if is_missing(value) else value
            except (TypeError, ValueError):
                raise UncurseError(
                    f"column {name!r} holds {value!r:.80} in row {row}; pass numbers, such as 1 for yes and 0 for no"
                ) from None
    if not missing and np.isnan(found).any():
        raise UncurseError(f"column {name!r} is empty in row {np.isnan(found).argmax()}; fill it, or drop that row")
    return found


def codes_of(values: ArrayLike, count: int, name: str) -> tuple[list[str], Index]:
    """Return the distinct names in the order of first appearance, and the number of each row's name among them."""
    names, codes = encode_names(values, count, name)
    _, first = np.unique(codes, return_index=True)
    order = np.argsort(first)
    return [names[i] for i in order], np.argsort(order)[codes]


def _pool(mean: Array, variance: Array, rows: Array) -> Array:
    """Average variances over candidates with similar means: a candidate's own one depends on its luck."""
    pooled = np.full_like(variance, variance.mean())
    for _ in range(2):
        scale = np.maximum(pooled / rows, 1e-300)
        near = np.exp(-((mean[:, None] - mean) ** 2) / (8 * scale[:, None]))
        pooled = near @ variance / near.sum(1)
    return pooled
