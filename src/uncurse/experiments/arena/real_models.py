"""Small models for real logs, six at a time: logistic factorisations of ratings, bagged logistic regressions of clicks.

Models of one draw are exchangeable: any of them could be the one that is served.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._types import Array
from ...links import logistic
from .dlrm import MODELS
from .worlds import Rng

Ints = NDArray[np.intp]
Floats = NDArray[np.float32]

_FACTORS, _EPOCHS = 8, 5
_RATE, _RIDGE, _START = 0.1, 0.02, 0.1  # of Adagrad; for each row; of the first factors
_SCORED = 1 << 16  # rows at once


@dataclass(frozen=True)
class Side:
    """One side of every row, user or item: the codes of its categories, (n, C), numbered through all columns."""

    codes: Ints
    size: int

    @classmethod
    def of(cls, *columns: Ints) -> Side:
        """From one column of codes for each category."""
        starts = np.cumsum([0, *(int(column.max()) + 1 for column in columns)])
        return cls(
            np.stack([c + start for c, start in zip(columns, starts[:-1], strict=True)], axis=1), int(starts[-1])
        )


class Factorisation:
    """log odds = b + Σ biases + ⟨Σ user factors, Σ item factors⟩, by Adagrad on the log loss, with a ridge.

    A category that no training row has stays at zero, so a new user is what the others of the same age and occupation
    are.
    """

    def __init__(self, users: Side, items: Side) -> None:
        self.sides = users, items

    def fit(self, labels: NDArray[np.bool_], rows: Ints, rng: Rng) -> Factorisation:
        """Train on some rows; the generator is the seed: of the first factors, and of the order."""
        rate = float(labels[rows].mean())
        self.level = float(np.log(rate / (1 - rate)))
        self.tables = tuple(_start(side, rows, rng) for side in self.sides)
        squares = tuple(np.full_like(table, 1e-2) for table in self.tables)
        batch = int(np.clip(len(rows) // 100, 64, 4096))
        for _ in range(_EPOCHS):
            order = rng.permutation(rows)
            for start in range(0, len(order), batch):
                self._step(labels, order[start : start + batch], squares)
        return self

    def scores(self, rows: Ints) -> Array:
        """Log odds of rows."""
        parts = [self._score(*self._sums(rows[i : i + _SCORED])) for i in range(0, len(rows), _SCORED)]
        return np.concatenate(parts).astype(np.float64)

    def _sums(self, rows: Ints) -> tuple[Floats, Floats]:
        """(n, factors + 1) of either side; the last column is the bias."""
        users, items = (t[side.codes[rows]].sum(axis=1) for t, side in zip(self.tables, self.sides, strict=True))
        return users, items

    def _score(self, users: Floats, items: Floats) -> Floats:
        products = np.einsum("ij,ij->i", users[:, :-1], items[:, :-1])
        result: Floats = self.level + products + users[:, -1] + items[:, -1]
        return result

    def _step(self, labels: NDArray[np.bool_], rows: Ints, squares: tuple[Floats, ...]) -> None:
        users, items = self._sums(rows)
        away = (logistic(self._score(users, items)) - labels[rows]).astype(np.float32)
        users[:, -1] = items[:, -1] = 1
        for side, table, square, other in zip(self.sides, self.tables, squares, (items, users), strict=True):
            codes = side.codes[rows]
            places = codes[:, :, None] * table.shape[1] + np.arange(table.shape[1])
            pulls = np.broadcast_to((away[:, None] * other)[:, None], places.shape)
            pulled = np.bincount(places.ravel(), pulls.ravel(), table.size).reshape(table.shape)
            gradient = pulled + _RIDGE * np.bincount(codes.ravel(), minlength=side.size)[:, None] * table
            square += np.square(gradient).astype(np.float32)
            table -= (_RATE * gradient / np.sqrt(square)).astype(np.float32)


def _start(side: Side, rows: Ints, rng: Rng) -> Floats:
    table = _START * rng.standard_normal((side.size, _FACTORS + 1), dtype=np.float32)
    table[:, -1] = 0
    seen = np.bincount(side.codes[rows].ravel(), minlength=side.size) > 0
    return table * seen[:, None]


def factorised(users: Side, items: Side, labels: NDArray[np.bool_], train: Ints, wanted: Ints, rng: Rng) -> Array:
    """Scores (n, 6) of the wanted rows by six models of the same training rows."""
    models = (Factorisation(users, items).fit(labels, train, rng) for _ in range(MODELS))
    return np.stack([model.scores(wanted) for model in models], axis=1)


def bagged(features: Array, labels: NDArray[np.bool_], train: Ints, wanted: Ints, rng: Rng) -> Array:
    """Scores (n, 6) by six logistic regressions with a ridge, the served one too on a bootstrap of its own."""
    from sklearn.linear_model import LogisticRegression

    positive, negative = train[labels[train]], train[~labels[train]]
    scores = []
    for _ in range(MODELS):
        # Within either class, so that no bag is without a click.
        rows = np.concatenate([rng.choice(part, len(part)) for part in (positive, negative)])
        model = LogisticRegression(max_iter=1_000).fit(features[rows], labels[rows])
        scores.append(model.decision_function(features[wanted]))
    return np.stack(scores, axis=1).astype(np.float64)


__all__ = ["Factorisation", "Ints", "Side", "bagged", "factorised"]
