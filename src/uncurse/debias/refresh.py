"""`refresh`: update a map by new labels, as far as they support it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._types import Array, Float
from ..calibration.spline import monotone_curve
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec
from ..evidence.evidence import cells_of
from ..evidence.from_arrays import column_names
from ..links import logistic, logit
from ..maps import Affine, Curve, ScoreMap, load
from ..maps.append import append_map
from ..maps.combined import predicted_cells
from ..validation import warn_user
from .base import Debiaser, Fitted
from .drift_model import Drift, Known, fit_drift
from .records import DataRecord, FitRecord, RefreshRecord, TopChange, load_record
from .remaining_error import SHARES
from .replica_kinds import replica_kind

_NEGLIGIBLE = 0.002  # a change below 0.2% everywhere on the top is not worth a new map
_LEAST_SLOPE = 0.05  # below it labels no longer rise with the scores
_LARGE_LEVEL, _LARGE_SLOPE = 0.7, 0.5  # twice the odds, or a slope changed by half: something else has changed
_MAX_RECORDS = 100  # refreshes that a record keeps
_KNOTS = 64  # of a curve
_NO_INTERVAL = "the map was refreshed, and its intervals are those of the fit before; fit it again"


def refresh(map: str | os.PathLike[str] | ScoreMap | Fitted | Debiaser, evidence: Evidence) -> Fitted:
    """Update a map by new labels, as far as they support it.

    The log odds of the predictions get a new level, a new slope and a curve, each weighted by the probability that it
    has changed since the last refresh. With few labels, or if nothing has changed, the map hardly moves. What earlier
    refreshes left uncertain is part of the prior, so daily refreshes add up.

    Parameters
    ----------
    map : path, ScoreMap, Fitted, VAD, Tower or Auto
        The map that is served. A file and a fitted object also tell how it was fitted.
    evidence : Evidence
        New labelled rows of the served score, best those that were selected: their labels were in no fit and no refresh
        before. A map by group needs evidence by group; all groups get the same update.

    Returns
    -------
    Fitted
        The refreshed map. ``record.refreshes[-1]`` tells what has changed, with standard errors; the rest of the record
        is that of the original fit, without its intervals if the map has changed.

    Examples
    --------
    >>> from uncurse.evidence import from_arrays
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(-2, 1, 20_000)
    >>> labels = rng.random(20_000) < 1 / (1 + np.exp(0.3 - logits))  # the level is lower by 0.3
    >>> fitted = refresh(Affine(1.0, 0.0), from_arrays(logits[:, None], labels))
    >>> fitted.record.refreshes[-1].supported
    'level'
    >>> round(fitted.map.intercept, 1)
    -0.3
    """
    score_map, record = map_and_record(map)
    if not isinstance(evidence, Evidence):
        raise UncurseError(f"evidence is of type {type(evidence).__name__}; pass Evidence with labels")
    check_fits(evidence, score_map, record, "evidence")
    rows = _Rows.of(score_map, evidence)
    spec = evidence.spec
    if record is not None:
        _check_served(spec, record)
    else:
        data = DataRecord(0, spec.scores[:1])
        options: dict[str, Any] = {"scale": spec.scale, "link": spec.link, "negative_rate": spec.negative_rate}
        record = FitRecord("unknown", data, reason="the map had no record of its fit", group=spec.group, **options)
    seen = {os.path.realpath(source) for source in record.label_sources}
    repeated = [source for source in evidence.sources if source != "-" and os.path.realpath(source) in seen]
    if repeated:
        warn_user(f"the map has seen the labels of {repeated[0]} before; if its rows are the same they count twice")
    found, update = _examine(rows, evidence, record)
    record = replace(record, refreshes=(*record.refreshes, found)[-_MAX_RECORDS:])
    if update is None:
        return Fitted(score_map, record, None, _NO_INTERVAL)
    return Fitted(append_map(score_map, update), replace(record, remaining_error=()), None, _NO_INTERVAL)


def map_and_record(source: Any) -> tuple[ScoreMap, FitRecord | None]:
    """Return a map and the record of its fit from a path, a map or a fitted object."""
    if isinstance(source, ScoreMap):
        return source, None
    if isinstance(source, Fitted):
        return source.map, source.record
    if isinstance(source, str | os.PathLike):
        return load(source), load_record(source)
    if isinstance(getattr(source, "map_", None), ScoreMap):  # VAD, Tower, Auto or an estimator
        return source.map_, source.record_
    if isinstance(source, Debiaser):
        raise UncurseError(f"this {type(source).__name__} is not fitted; call fit first")
    raise UncurseError(f"map is of type {type(source).__name__}; pass a map, a fitted method or the path of a map file")


# ---------------------------------------------------------------------------- the labelled rows


def check_fits(rows: Evidence, score_map: ScoreMap, record: FitRecord | None, name: str) -> None:
    """Check that rows, which errors call `name`, hold the scores that a map takes; and labels, unless they are a pool.

    >>> from uncurse.evidence import from_arrays
    >>> check_fits(from_arrays([[0.0]]), Affine(1.0, 0.0), None, "evidence")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: the evidence holds no labels; collect it with its label column
    """
    spec = rows.spec
    cells_of(rows, name, labelled=name != "pool")
    if not rows.rows:
        raise UncurseError(f"the {name} holds no rows; pass at least one")
    if spec.scale != score_map.scale:
        raise UncurseError(f"the map takes scale={score_map.scale!r} and the {name} has scale={spec.scale!r}; use one")
    if record is not None and record.negative_rate != spec.negative_rate:
        raise UncurseError(
            f"the map was fitted with negative_rate={record.negative_rate} and the {name} has "
            f"negative_rate={spec.negative_rate}; collect it again"
        )


def _check_served(spec: LogSpec, record: FitRecord) -> None:
    """Check that the evidence holds the score that the map was fitted to."""
    columns, served = record.pool.columns, spec.scores[0]
    if not replica_kind(record.replicas).served_is_a_column:
        if served in columns:
            raise UncurseError(
                f"the map takes the mean of {', '.join(columns)}, and {served!r} is one of them; pass evidence of a "
                "column of the mean"
            )
    elif served != columns[0] and not {served, columns[0]} & set(column_names(1)):  # an array has no names
        raise UncurseError(
            f"the map was fitted to the score column {columns[0]!r} and the evidence has {served!r}; rename the "
            "column if it is the same score, or fit a map to it"
        )


@dataclass(frozen=True)
class _Rows:
    """Labelled cells: served score, log odds of the prediction, number of effective rows and of positives."""

    served: Array
    z: Array
    weight: Array
    label: Array

    @classmethod
    def of(cls, score_map: ScoreMap, evidence: Evidence) -> _Rows:
        assert evidence.cells is not None
        columns = [
            np.stack([cells.score, logit(p), cells.weight, cells.label])  # type: ignore[list-item]
            for p, cells in predicted_cells(score_map, evidence).values()
        ]
        served, z, weight, label = np.concatenate(columns, axis=1)
        factor = float(evidence.cells.weight.sum() / evidence.cells.weight_squares.sum())  # to effective rows
        return cls(served, z, weight * factor, label * factor)

    def top(self, alpha: float) -> Array:
        """Return how much of each cell belongs to the top share by served score; the last cell counts in part."""
        order = np.argsort(-self.served, kind="stable")
        weight = self.weight[order]
        share = np.empty_like(weight)
        share[order] = np.clip(alpha * weight.sum() - (np.cumsum(weight) - weight), 0.0, weight)
        return share


# ---------------------------------------------------------------------------- what has changed


def _examine(rows: _Rows, evidence: Evidence, record: FitRecord) -> tuple[RefreshRecord, Affine | Curve | None]:
    """Compare the labels with the predictions; return what has changed, and the update; None if nothing has."""
    last = record.refreshes[-1] if record.refreshes else None
    known = None if last is None else _uncertainty(last)
    positives = float(rows.label.sum())
    found = RefreshRecord(
        number=1 if last is None else last.number + 1,
        rows=evidence.rows,
        positives=positives,
        sources=evidence.sources,
        supported="nothing",
        reason=_one_class(rows),
        changed=False,
        center=0.0,
    )
    if found.reason:
        return (found if last is None or known is None else _carried(found, last, known)), None
    drift = fit_drift(rows.z, rows.weight, rows.label, known)
    found = replace(
        found,
        supported=drift.supported,
        center=drift.center,
        level_error=float(np.sqrt(drift.error_covariance[0, 0])),
        slope_error=float(np.sqrt(drift.error_covariance[1, 1])),
        uncertainty=_upper(drift.covariance),
        probabilities=tuple(drift.probabilities.tolist()),
    )
    update = _update(drift)
    changes = _changes(rows, drift, update)
    if abs(_largest(np.array([one.change for one in changes]))) < _NEGLIGIBLE:
        changes = tuple(replace(one, change=0.0) for one in changes)
        return replace(found, reason=_reason(drift, 0.0), changes=changes), None
    at_center = float(update.transform(np.array([drift.center]))[0]) - drift.center
    slope = float(drift.coefficients[1])
    top = rows.z[rows.top(SHARES[-1]) > 0]
    line = float(drift.coefficients[0]) + slope * (top - drift.center)
    found = replace(
        found,
        reason=_reason(drift, _largest(np.array([one.change for one in changes]))),
        changed=True,
        level=at_center,
        slope=slope,
        curve=0.0 if drift.basis is None else _largest(update.transform(top) - top - line),
        changes=changes,
    )
    if abs(at_center) > _LARGE_LEVEL or abs(slope) > _LARGE_SLOPE:
        warn_user(
            f"the odds change by {100 * np.expm1(at_center):+.0f}% and the slope by {100 * slope:+.0f}%: so large a "
            "change is rarely a drift; check the labels, or fit the map again"
        )
    return found, update


def _one_class(rows: _Rows) -> str:
    """Say that all labels are of one class; empty if they are not."""
    positives, total = float(rows.label.sum()), float(rows.weight.sum())
    expected = float(rows.weight @ logistic(rows.z))
    if positives <= 0:
        return f"no label is positive, and the map predicts {expected:,.1f} positives: nothing changes"
    if total - positives <= 1e-9 * total:
        return f"no label is negative, and the map predicts {total - expected:,.1f} negatives: nothing changes"
    return ""


def _uncertainty(last: RefreshRecord) -> Known | None:
    """Return what the last refresh left uncertain, in log odds of the map that it wrote."""
    if len(last.uncertainty) != 3:
        return None
    level, both, slope = last.uncertainty
    scale = np.array([1.0, 1 / (1 + last.slope)])
    return Known(last.center + last.level, np.array([[level, both], [both, slope]]) * np.outer(scale, scale))


def _carried(found: RefreshRecord, last: RefreshRecord, known: Known) -> RefreshRecord:
    """Return the record of a refresh that changes nothing: what was uncertain before still is."""
    return replace(
        found,
        center=known.center,
        level_error=last.level_error,
        slope_error=last.slope_error / (1 + last.slope),
        uncertainty=_upper(known.covariance),
    )


def _upper(covariance: Array) -> tuple[float, ...]:
    return float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])


def _update(drift: Drift) -> Affine | Curve:
    """Return the map of log odds that corrects the drift."""
    level, slope = drift.coefficients[:2].tolist()
    if 1 + slope < _LEAST_SLOPE:
        raise UncurseError(
            f"labels fall as predictions rise (their slope is {1 + slope:.2g}); is the label, or the score, inverted?"
        )
    if drift.basis is None:
        return Affine(1 + slope, level - slope * drift.center)
    knots = drift.basis.knots * drift.spread + drift.center
    z = np.unique(np.append(np.linspace(knots[0], knots[-1], _KNOTS), knots))
    z = z[np.append(True, np.diff(z) > 1e-6 * drift.spread)]
    return monotone_curve(z, z + drift.change(z))


def _changes(rows: _Rows, drift: Drift, update: Affine | Curve) -> tuple[TopChange, ...]:
    """Return the change of the mean prediction on the top shares and on all rows, with its standard error."""
    before, after = logistic(rows.z), logistic(update.transform(rows.z))
    features = drift.features(rows.z)
    changes = []
    for alpha in (*(alpha for alpha in SHARES if alpha * rows.weight.sum() >= 1), 1.0):
        share = rows.top(alpha)
        total = float(share @ after)
        gradient = features @ (share * after * (1 - after)) / total
        error = float(np.sqrt(max(float(gradient @ drift.error_covariance @ gradient), 0.0)))
        changes.append(TopChange(alpha, total / float(share @ before) - 1, error))
    return tuple(changes)


def _largest(values: Float) -> float:
    """Return the value with the largest absolute value."""
    return float(values[np.argmax(np.abs(values))])


def _reason(drift: Drift, change: float) -> str:
    names = {"level": "the level only", "slope": "level and slope", "curve": "level, slope and curve"}
    if drift.supported != "nothing":
        return f"the labels support a change of {names[drift.supported]}"
    effect = (
        "the map stays as it is" if not change else f"predictions on the top change by {100 * change:+.1f}% at most"
    )
    return f"the labels do not support a change ({100 * drift.probabilities[0]:.0f}% probable): {effect}"
