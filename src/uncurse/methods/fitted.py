"""`Fitted`, the result of every method as plain data, and the base class of the methods."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from .. import documents
from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import labeled_evidence, pool_evidence
from ..evidence.histogram import ReplicaTable
from ..evidence.spec import check_negative_sampling_rate, logit_offset
from ..maps import Affine, ScoreMap, Segmented, compose
from ..maps.combined import MAP_KINDS, from_dict
from ..maps.compose import thin
from ..text import html_table
from ..validation import check_choice
from .affine import nearest_affine
from .noise import replica_kind
from .records import FitRecord
from .remaining_error import ErrorTable, Estimate, error_table


class Results:
    """What a `Fitted` and every fitted method share."""

    def _result(self) -> Fitted:
        raise NotImplementedError

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Return an interval for the remaining calibration error on the top share of the pool.

        With segments it applies to the default map, which is fitted to all rows.

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
        fitted = self._result()
        if fitted.errors is None:
            reason = "the map was saved without a record" if fitted.record is None else fitted.record.no_interval
            raise UncurseError(f"there are no intervals: {reason}")
        return fitted.errors.interval(alpha, level)

    def to_affine(self, alphas: Sequence[float] | None = None) -> Affine:
        """Return the straight line that is nearest to the map on the selected rows.

        A tree model or a linear layer can hold a straight line, not a curve.

        Parameters
        ----------
        alphas : sequence of two floats, optional
            Smallest and largest selected share. By default 1% and 10% of the pool; if the labeled rows are winners of
            the served score, 10% and all of these rows; if the map was fitted to the winners of requests, 10% and all
            of the winners.

        Returns
        -------
        Affine
            Its `max_error` is the largest relative difference between the mean predictions of line and map on these
            shares.
        """
        return nearest_affine(self._result().map, self._result().record, alphas)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map, its record and its errors to a JSON file, atomically.

        Parameters
        ----------
        path : str or path-like
            Target; `load` reads it.
        """
        documents.write(path, self._result().to_json() + "\n")


@dataclass(frozen=True)
class Fitted(Results, documents.Saved):
    """A fitted map: the map, a record of how it was fitted, and the error that remains by selected share.

    Parameters
    ----------
    map : ScoreMap
        Map of the served score.
    record : FitRecord, optional
        How it was fitted.
    errors : ErrorTable, optional
        Expected error on the top of the pool. ``record.no_interval`` tells why it is missing.

    Examples
    --------
    >>> Fitted(Affine(0.8, -0.4))([0.0])
    array([0.40131234])
    """

    map: ScoreMap
    record: FitRecord | None = None
    errors: ErrorTable | None = None

    def _result(self) -> Fitted:
        return self

    def __call__(self, scores: ArrayLike, segments: ArrayLike | None = None) -> Array:
        """Return predictions.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Served scores.
        segments : array-like of shape (n,), optional
            Segment of each row, which a map by segment needs. Segments that were not fitted get the default map.

        Returns
        -------
        ndarray of shape (n,)
        """
        if segments is None:
            return self.map(scores)
        if not isinstance(self.map, Segmented):
            raise UncurseError("this map was fitted without segments; leave segments out")
        return self.map(scores, segments)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Returns
        -------
        dict
            The fields of the map, ``"record"`` and ``"errors"``.
        """
        content = self.map.to_dict()
        if self.record is not None:
            content["record"] = self.record.to_dict()
        if self.errors is not None:
            content["errors"] = documents.plain(self.errors)
        return content

    def _repr_html_(self) -> str:
        rows = [("map", type(self.map).__name__)]
        if self.record is not None:
            record = self.record
            rows = [("method", record.method), ("why", record.reason), *rows]
            rows += [("pool", f"{record.pool.rows:,} rows of {', '.join(record.pool.columns)}")]
            if record.labeled is not None:
                rows.append(("labeled", f"{record.labeled.rows:,} rows"))
            if record.lambda_ is not None:
                error = "" if record.standard_error is None else f" (standard error {record.standard_error:.4f})"
                rows.append(("λ", f"{record.lambda_:.4f}{error}"))
        return html_table([("", "uncurse"), *(row for row in rows if row[1])])


def load(path: str | os.PathLike[str]) -> Fitted:
    """Read a fitted map from a file.

    Parameters
    ----------
    path : str or path-like
        A JSON file that ``uncurse fit``, `Fitted.save` or `ScoreMap.save` has written.

    Returns
    -------
    Fitted
        The map, its record and its intervals, as far as the file has them.

    Examples
    --------
    >>> load("absent.json")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: cannot read absent.json: No such file or directory
    """
    content = documents.read(path)
    if content["kind"] not in MAP_KINDS:
        raise UncurseError(f"{path} is of kind {content['kind']!r}; pass a map written by `save` or `uncurse fit`")
    record, errors, _ = (content.pop(name, None) for name in ("record", "errors", "schema_version"))
    score_map = from_dict(content, source=str(path))
    try:
        return Fitted(
            score_map,
            None if record is None else FitRecord.from_dict(record),
            None if errors is None else documents.from_fields(ErrorTable, errors),
        )
    except (UncurseError, KeyError, TypeError, ValueError) as error:
        raise UncurseError(f"the record of {path}: {error}; fit the map again") from None


def fitted_of(source: Any) -> Fitted:
    """Return the fitted map of a path, a map, a `Fitted`, or a fitted method or estimator."""
    if isinstance(source, Results):
        return source._result()
    if isinstance(source, ScoreMap):
        return Fitted(source)
    if isinstance(source, str | os.PathLike):
        return load(source)
    raise UncurseError(f"expected a map, a fitted method or the path of a map file, got {type(source).__name__}")


@dataclass(frozen=True)
class Solution:
    """What a method finds: a map of logits, its record, and the estimate of the true rates that gives intervals.

    `labeled` holds the labeled rows that support the estimate, if there are any.
    """

    map: ScoreMap
    record: FitRecord
    estimate: Estimate | None = None
    labeled: ReplicaTable | None = None

    def fitted(self) -> Fitted:
        """Return the result for served scores, whose logits the evidence has corrected for negative sampling."""
        record, errors = self.record, None
        if self.estimate is not None:
            default = self.map.default if isinstance(self.map, Segmented) else self.map
            errors = error_table(default.at_logits, self.estimate, self.labeled)
            if errors is None and not record.no_interval:
                reason = "the rate on the top is 0, or not known to a factor of 1,000"
                record = replace(record, no_interval=f"{reason}; are the scores logits of one model?")
        return Fitted(_on_scores(self.map, record), record, errors)


def _on_scores(score_map: ScoreMap, record: FitRecord) -> ScoreMap:
    """Return the map of served scores from a map of their logits."""
    if isinstance(score_map, Segmented):
        maps = {name: _on_scores(part, record) for name, part in score_map.maps.items()}
        return Segmented(_on_scores(score_map.default, record), maps)
    offset = logit_offset(record.negative_sampling_rate)
    first = [Affine(1.0, offset)] if offset else []
    thinned: ScoreMap = thin(compose(*first, score_map, scale=record.scale))
    return thinned


class FittedParts(Results):
    """Parts of the result as attributes, which methods and estimators share."""

    fitted_: Fitted

    @property
    def map_(self) -> ScoreMap:
        """Fitted map of the served score."""
        return self._result().map

    @property
    def record_(self) -> FitRecord:
        """How the map was fitted."""
        record = self._result().record
        assert record is not None
        return record

    @property
    def method_(self) -> str:
        """Chosen method."""
        return self.record_.method

    @property
    def reason_(self) -> str:
        """Why it was chosen."""
        return self.record_.reason


class Method(FittedParts):
    """Interface that `VAD`, `ReplicaCalibrator` and `Auto` share.

    Attributes
    ----------
    fitted_ : Fitted
        The result; `map_`, `record_`, `method_` and `reason_` are parts of it.
    """

    def predict_proba(self, served: ArrayLike, segments: ArrayLike | None = None) -> Array:
        """Return corrected predictions.

        Parameters
        ----------
        served : array-like of shape (n,)
            Served scores.
        segments : array-like of shape (n,), optional
            Segment of each row, which is needed if `fit` had segments. Unseen segments get the default map.

        Returns
        -------
        array of shape (n,)
        """
        return self._result()(served, segments)

    def _result(self) -> Fitted:
        if not hasattr(self, "fitted_"):
            raise UncurseError(f"this {type(self).__name__} is not fitted; call fit first")
        return self.fitted_

    def _repr_html_(self) -> str:
        return self.fitted_._repr_html_() if hasattr(self, "fitted_") else f"<code>{html.escape(repr(self))}</code>"


class ReplicaMethod(Method):
    """The common part of `ReplicaCalibrator` and `Auto`, which need replicas of logits or probabilities."""

    def __init__(self, *, scale: str, replicas: str, negative_sampling_rate: float | None = None) -> None:
        self.scale = check_choice("scale", scale, ("logit", "probability"))
        self.replicas = replica_kind(replicas).name
        self.negative_sampling_rate = check_negative_sampling_rate(negative_sampling_rate, scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale!r}, replicas={self.replicas!r})"

    def _evidence(
        self,
        pool: Any,
        labeled: Any,
        segments: ArrayLike | None,
        sample_weight: ArrayLike | None,
        teacher: tuple[ArrayLike, ArrayLike] | None,
    ) -> tuple[Evidence, Evidence | None]:
        """Return the evidence of pool and labeled rows."""
        of_pool, of_labeled = (None, None) if teacher is None else teacher
        if teacher is not None and not isinstance(labeled, tuple):
            raise UncurseError("teacher needs labeled=(scores, labels); evidence holds the teacher's scores already")
        evidence = pool_evidence(
            pool,
            labeled,
            scale=self.scale,
            negative_sampling_rate=self.negative_sampling_rate,
            segments=segments,
            sample_weight=sample_weight,
            teacher=of_pool,
        )
        return evidence, None if labeled is None else labeled_evidence(labeled, evidence, of_labeled)


def check_labels_from(labeled: object, labels_from: Any) -> str | None:
    """Return the origin of labeled rows, which must be named if there are any."""
    if labeled is None:
        return None
    if labels_from is None:
        raise UncurseError(
            "labels_from (--labels-from) is missing; pass 'winners' if the served score selected the labeled rows from "
            "this pool, or 'elsewhere' if chance or an earlier model did"
        )
    return check_choice("labels_from", labels_from, ("winners", "elsewhere"))
