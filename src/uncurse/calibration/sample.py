"""The labeled scores that calibrators are fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import Array
from ..evidence import Histogram


@dataclass(frozen=True)
class Sample:
    """Scores in ascending order, and the weight and label sum of each, in effective rows.

    The weights add up to (Σw)² / Σw², which is the number of rows without weights.
    """

    score: Array
    weight: Array
    label: Array

    @property
    def mean(self) -> float:
        """Mean score."""
        return float(self.weight @ self.score / self.weight.sum())


def sample_of_cells(cells: Histogram) -> Sample:
    """Return the labeled cells of a histogram as a sample."""
    assert cells.label is not None
    factor = float(cells.weight.sum()) / float(cells.weight_squares.sum())
    return Sample(cells.score, cells.weight * factor, cells.label * factor)


def sample_of_rows(logits: Array, labels: Any, weights: Array | None, counts: Array | None = None) -> Sample:
    """Return the distinct scores of rows, each of which counts several times if there are counts, as a sample."""
    w = np.ones(len(logits)) if weights is None else weights
    times = np.ones(len(logits)) if counts is None else counts
    w = w * times * ((w @ times) / (np.square(w) @ times))
    kept = w > 0
    score, place = np.unique(logits[kept], return_inverse=True)
    weight, label = (np.asarray(np.bincount(place, column[kept]), np.float64) for column in (w, w * labels))
    return Sample(score, weight, label)
