"""Compare a folded model with the map after the model: order, predictions and latency."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..links import logistic, logit
from ..logs.files import kind_of
from ..maps import ScoreMap
from ..methods.fitted import Fitted, fitted_of
from .fold import family, load_family, options_for
from .fold.common import calling_library, columns_of, map_scores, spaces_of

_KNOWN = 10.0  # logits that single precision tells apart once they are probabilities
_AGREE = 1e-5
_MANY = 10_000
_SUMMED = 1e-4  # the rounding of a sum of a thousand trees in single precision
_ROUNDING = 8 * 2.0**-24  # of single precision: what is nearer has no order
_SECONDS = 1.0  # of timing for each size

#: Features (n, d) to scores (n,).
Score = Callable[[Any], Any]


@dataclass(frozen=True)
class Verification:
    """Comparison of a folded model with the map applied after the model.

    Examples
    --------
    >>> Verification(2, 0, 0.0, 1e-9, 1.0, (1e-6, 1e-6), (1e-4, 1e-4), 2).agrees
    True
    """

    rows: int  # compared
    reversed_pairs: int  # neighbors that the folded model reverses by more than rounding
    score_difference: float  # largest, of logits up to ±10 if predictions are probabilities
    prediction_difference: float  # largest, also of other columns and outputs (these relative to their largest value)
    largest: float  # largest prediction
    one_row: tuple[float, float]  # seconds before and after: the least of many interleaved calls
    many_rows: tuple[float, float]  # the same for `many` rows
    many: int

    @property
    def agrees(self) -> bool:
        """Whether the order is the same and predictions differ by at most 1e-5, relative to values beyond 1."""
        return self.same_order and self.prediction_difference <= _AGREE * max(1.0, self.largest)

    @property
    def same_order(self) -> bool:
        """Whether no pair is reversed."""
        return self.reversed_pairs == 0


def verify(score_map: ScoreMap | Fitted, before: Score, after: Score, features: Any) -> Verification:
    """Compare a model, as a function from features to scores, with the folded model.

    Scores of a map of values are values. Others are probabilities if all lie in [0, 1] and the folded model is nearer
    to the map after them than if they were logits.

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        The map that was folded.
    before, after : callable
        Functions from features to scores (n,), or to the columns 1 − p and p, as ``predict_proba`` gives.
    features : array or frame
        Input of both, with ``len`` and slices of rows.

    Returns
    -------
    Verification
        What was measured.

    Examples
    --------
    >>> from uncurse import Affine
    >>> X = np.linspace(-3, 3, 1_000)
    >>> found = verify(Affine(0.5, 0.1), lambda x: 2 * x, lambda x: x + 0.1, X)
    >>> found.same_order, found.score_difference < 1e-12
    (True, True)
    """
    score_map = fitted_of(score_map).map
    with calling_library("a model cannot score these rows", "pass the features of its training (--features)"):
        (scores, *_), columns = (columns_of(one(features)) for one in (before, after))
    if not (np.isfinite(scores).all() and np.isfinite(columns).all()):
        raise UncurseError("a model gives scores that are not finite; pass rows that both can score")
    times = [_least(before, after, features[: min(rows, len(scores))]) for rows in (1, _MANY)]
    found = {name: map_scores(score_map, name, scores) for name in spaces_of(score_map, scores, columns)}
    space, wanted = min(found.items(), key=lambda item: float(np.abs(item[1] - columns).max()))
    folded, as_is = columns[0], np.asarray
    to_prediction, to_score = logistic if space == "logit" else as_is, logit if space == "probability" else as_is
    differences = np.abs(to_score(wanted) - to_score(folded))
    known = np.abs(to_score(wanted)) <= (np.inf if space == "value" else _KNOWN)
    largest = float(differences[known].max(initial=0.0))
    return Verification(
        rows=len(scores),
        reversed_pairs=_reversals(scores, wanted, folded, largest),
        score_difference=largest,
        prediction_difference=float(np.abs(to_prediction(wanted) - to_prediction(columns)).max()),
        largest=float(np.abs(folded).max()) if space == "value" else 1.0,
        one_row=times[0],
        many_rows=times[1],
        many=min(_MANY, len(scores)),
    )


def _reversals(scores: Array, wanted: Array, folded: Array, difference: float) -> int:
    """Neighbors that changed places, or that are one where the map keeps them well apart.

    Sums of many trees in single precision differ by `difference` from what was meant, so two can change places by
    twice as much; a difference that is not rounding is an error by itself.
    """
    order = np.argsort(scores, kind="stable")
    before, meant, after = (np.diff(values[order]) for values in (scores, wanted, folded))
    near = _ROUNDING * np.maximum(np.abs(folded[order][1:]), 1.0)
    reversed_ = after < -np.maximum(near, 2 * min(difference, _SUMMED))
    return int(((before > 0) & (reversed_ | ((meant > 64 * near) & (after <= 0)))).sum())


def _least(before: Score, after: Score, features: Any) -> tuple[float, float]:
    """Return the minimum run time of each, interleaved so that other load affects both."""
    least, turns, end = [np.inf, np.inf], 0, time.perf_counter() + _SECONDS
    while turns < 5 or time.perf_counter() < end:
        for place in (turns % 2, 1 - turns % 2):
            start = time.perf_counter()
            (before, after)[place](features)
            least[place] = min(least[place], time.perf_counter() - start)
        turns += 1
    return least[0], least[1]


def verify_files(
    score_map: ScoreMap | Fitted,
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    features: list[str] | None = None,
    output: str | None = None,
) -> Verification:
    """Compare two saved models on the rows of a parquet or CSV file, in every output.

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        The map that was folded.
    before, after : path
        The model and the folded model.
    data : path
        A parquet or CSV file with a column per feature.
    features : list of str, optional
        Feature columns in order; by default those that the model names, or all.
    output : str, optional
        Name of the score, if an ONNX model has several outputs.

    Returns
    -------
    Verification
        What was measured.

    Examples
    --------
    >>> from uncurse import Affine
    >>> verify_files(Affine(0.8, -0.1), "model.txt", "folded.txt", "rows.parquet")  # doctest: +SKIP
    """
    kind = family(before)
    if family(after) != kind:
        raise UncurseError(f"{before} and {after} are models of two libraries; pass a model and its fold")
    module, options = load_family(kind), options_for(kind, output=output)
    first, second = (module.scorer(module.read(Path(path)), **options) for path in (before, after))
    rows = _rows(Path(data), features, first.names, first.categories)
    found = verify(score_map, first.score, second.score, rows)
    mine, theirs = first.others(rows), second.others(rows)
    if mine.keys() != theirs.keys():
        raise UncurseError(f"the models have the outputs {[*mine]} and {[*theirs]} beside the score; pass its fold")
    pairs = ((np.asarray(mine[name], np.float64), np.asarray(theirs[name], np.float64)) for name in mine)
    others = (float(np.abs(a - b).max() / max(1.0, np.abs(a).max())) for a, b in pairs)  # which no fold may change
    return replace(found, prediction_difference=max((found.prediction_difference, *others)))


def _rows(
    data: Path, asked: Sequence[str] | None, own: Sequence[str] | None, categories: Sequence[Sequence[Any]]
) -> Array:
    """Read numbers (n, d): the columns that are asked for, else those that the model names, if all are there, else all.

    Columns of text become the codes of `categories`, if there is one for each.
    """
    import polars as pl

    remedy = "name the features (--features), and write categories as the codes of the training"
    with calling_library(f"cannot read the features in {data}", remedy):
        scan = pl.scan_csv(data) if kind_of(data.name) == "csv" else pl.scan_parquet(data)
        there = scan.collect_schema()
        columns = asked or (own if own and set(own) <= set(there) else [*there])
        texts = [name for name in columns if there[name] == pl.String or there[name] == pl.Categorical]
        codes = [
            pl.col(name).cast(pl.String).replace_strict([*map(str, values)], [*range(len(values))], default=None)
            for name, values in zip(texts, categories, strict=False)
        ]
        frame = scan.select(columns).with_columns(codes if len(texts) == len(categories) else ())
        rows = frame.cast(pl.Float64).collect().to_numpy()
    if not len(rows):
        raise UncurseError(f"{data} has no rows; pass some that the model can score")
    return np.ascontiguousarray(rows)
