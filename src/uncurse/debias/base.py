"""`Fitted`, the result of a method, and the interface that the methods share."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import pool_evidence
from ..evidence.replica_cells import ReplicaCells
from ..evidence.spec import check_negative_rate, logit_offset
from ..maps import Affine, Grouped, ScoreMap, compose
from ..text_tables import html_table
from ..threads import one_blas_thread
from ..validation import check_choice
from .records import FitRecord
from .remaining_error import RemainingError, remaining_error_interval
from .replica_kinds import replica_kind
from .straight_line import POOL_SHARES, SELECTED_SHARES, straight_line


@dataclass(frozen=True)
class Fitted:
    """Result of a method.

    Parameters
    ----------
    map : ScoreMap
        Map of the served score.
    record : FitRecord
        How it was fitted.
    remaining : RemainingError, optional
        Estimate of the error that remains after the map.
    no_interval : str
        Why `remaining` is None.
    selected : ReplicaCells, optional
        Labelled rows, if the served score selected them: the winners that the map is for.

    Examples
    --------
    >>> from uncurse.debias import DataRecord
    >>> from uncurse.maps import Affine
    >>> Fitted(Affine(0.8, -0.4), FitRecord("vad", DataRecord(1000, ("s0", "s1")))).map.slope
    0.8
    """

    map: ScoreMap
    record: FitRecord
    remaining: RemainingError | None = None
    no_interval: str = ""
    selected: ReplicaCells | None = None

    def _repr_html_(self) -> str:
        return _html(self.map, self.record)


class Debiaser:
    """Interface that `VAD`, `Tower` and `Auto` share.

    Attributes
    ----------
    map_ : ScoreMap
        Fitted map of the served score.
    record_ : FitRecord
        How it was fitted.
    """

    map_: ScoreMap
    record_: FitRecord
    _remaining: RemainingError | None
    _no_interval: str
    _selected: ReplicaCells | None

    def _repr_html_(self) -> str:
        return _html(self.map_, self.record_) if hasattr(self, "map_") else f"<code>{html.escape(repr(self))}</code>"

    def predict_proba(self, served: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Return debiased predictions.

        Parameters
        ----------
        served : array-like of shape (n,)
            Served scores.
        groups : array-like of shape (n,), optional
            Group of each row, which is needed if `fit` had groups. Unseen groups get the default map.

        Returns
        -------
        array of shape (n,)
        """
        self._check_fitted()
        if groups is None:
            return self.map_(served)
        if not isinstance(self.map_, Grouped):
            raise UncurseError(f"this {type(self).__name__} was fitted without groups; leave groups out")
        return self.map_(served, groups)

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Return an interval for the remaining calibration error on the top share of the pool.

        With groups it applies to the default map, which is fitted to all rows.

        Parameters
        ----------
        alpha : float
            Selected share of the pool, in (0, 1].
        level : float, default=0.9
            Confidence level.

        Returns
        -------
        tuple of float
            Lower and upper bound; +0.05 means that predictions are 5% too high.
        """
        self._check_fitted()
        if self._remaining is None:
            raise UncurseError(f"this {type(self).__name__} has no intervals: {self._no_interval}")
        with one_blas_thread():
            return remaining_error_interval(self.map_, self._remaining, alpha, level, self.record_.negative_rate)

    def line(self, alphas: Sequence[float] | None = None) -> tuple[Affine, float]:
        """Return the straight line that is nearest to the map on the selected rows, and its loss.

        A tree model or a linear layer can hold a straight line, not a curve.

        Parameters
        ----------
        alphas : sequence of two floats, optional
            Smallest and largest selected share of the pool. By default 1% and 10%; if the served score selected the
            labelled rows, shares of these rows from 10% to all of them.

        Returns
        -------
        line : Affine
            The affine map. A map with groups has none: fit each group on its own.
        loss : float
            Largest relative difference between the mean predictions of line and map on these shares.
        """
        self._check_fitted()
        if alphas is None and self._selected is not None:
            cells, offset = self._selected, logit_offset(self.record_.negative_rate)
            return straight_line(self.map_, cells.served - offset, cells.weight, SELECTED_SHARES, cells.effective_rows)
        rows = None if self._remaining is None else self._remaining.cells.effective_rows
        return straight_line(self.map_, *self._pool_scores(), POOL_SHARES if alphas is None else alphas, rows)

    def _pool_scores(self) -> tuple[Array, Array]:
        """Return served logits of the pool, as the map takes them, and their weights."""
        record = self.record_
        offset = logit_offset(record.negative_rate)
        if self._remaining is not None:
            cells = self._remaining.cells
            return cells.served - offset, cells.weight
        if isinstance(self.map_, Grouped) or isinstance(compose(self.map_, scale=self.map_.scale), Affine):
            return np.zeros(0), np.zeros(0)
        if record.calibrator is not None or record.center is None or record.score_variance is None:
            raise UncurseError(f"a line needs the scores of the pool; {self._no_interval or 'fit again'}")
        nodes = np.linspace(-5, 5, 2001)  # only moments are known: take a normal
        return record.center - offset + np.sqrt(record.score_variance) * nodes, np.exp(-np.square(nodes) / 2)

    def _check_fitted(self) -> None:
        if not hasattr(self, "map_"):
            raise UncurseError(f"this {type(self).__name__} is not fitted; call fit first")

    def _set(self, fitted: Fitted) -> None:
        self.map_, self.record_ = fitted.map, fitted.record
        self._remaining, self._no_interval, self._selected = fitted.remaining, fitted.no_interval, fitted.selected


class ReplicaDebiaser(Debiaser):
    """The common part of `Tower` and `Auto`, which need replica counts of logits or probabilities."""

    def __init__(
        self,
        *,
        scale: str = "logit",
        replicas: str = "seeds",
        negative_rate: float | None = None,
        selected_by: str = "auto",
    ) -> None:
        self.scale = check_choice("scale", scale, ("logit", "probability"))
        self.replicas = replica_kind(replicas).name
        self.negative_rate = check_negative_rate(negative_rate, scale)
        self.selected_by = check_choice("selected_by", selected_by, ("auto", "served", "other"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale!r}, replicas={self.replicas!r})"

    def _pool_evidence(
        self, pool: ArrayLike | Evidence, labelled: object, groups: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> Evidence:
        return pool_evidence(
            pool,
            labelled,
            scale=self.scale,
            negative_rate=self.negative_rate,
            groups=groups,
            sample_weight=sample_weight,
            replica_counts=True,
        )


def _html(score_map: ScoreMap, record: FitRecord) -> str:
    """Return how a map was fitted, as a table for a notebook."""
    rows = [("method", record.method), ("why", record.reason), ("map", type(score_map).__name__)]
    rows += [("pool", f"{record.pool.rows:,} rows of {', '.join(record.pool.columns)}")]
    if record.labelled is not None:
        rows.append(("labelled", f"{record.labelled.rows:,} rows"))
    if record.lambda_ is not None:
        error = "" if record.standard_error is None else f" ± {record.standard_error:.4f}"
        rows.append(("λ", f"{record.lambda_:.4f}{error}"))
    return html_table([("", "uncurse"), *(row for row in rows if row[1])])
