"""`refresh`: adjust a map to new labels."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.logistic import marginal_likelihood
from ..calibration.spline import MIN_KNOTS, Basis, distinct_knots, merge_cells, monotone_curve
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.evidence import served_of
from ..evidence.from_arrays import column_names
from ..links import logistic, logit
from ..maps import Affine, Curve, ScoreMap, compose
from ..maps.combined import predicted_cells
from ..validation import warn_user
from .fitted import Fitted, Method, fitted_of
from .noise import replica_kind
from .records import DataRecord, FitRecord, RefreshRecord, TopChange
from .remaining_error import SHARES

_NEGLIGIBLE = 0.002  # a change below 0.2% everywhere on the top is not worth a new map
_LEAST_SLOPE = 0.05  # below it labels no longer rise with the scores
_LARGE_LEVEL, _LARGE_SLOPE = 0.7, 0.5  # twice the odds, or a slope changed by half: something else has changed
_MAX_RECORDS = 100  # refreshes that a record keeps
_KNOTS = 64  # of a curve
_NO_INTERVAL = "the map was refreshed, and its intervals are those of the fit before; fit it again"


def refresh(map: str | os.PathLike[str] | ScoreMap | Fitted | Method, evidence: Evidence) -> Fitted:
    """Adjust a map to new labels, and only as much as these justify.

    The log odds of the predictions get a new level, a new slope and a curve, each weighted by the probability that it
    has changed since the last refresh. With few labels, or if nothing has changed, the map hardly moves. What earlier
    refreshes left uncertain is part of the prior, so daily refreshes add up.

    Parameters
    ----------
    map : path, ScoreMap, Fitted, or a fitted method or estimator
        The map that is served. A file and a fitted object also tell how it was fitted.
    evidence : Evidence
        New labeled rows of the served score, best those that were selected: their labels were in no fit and no refresh
        before. A map by segment needs evidence by segment; all segments get the same update.

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
    before = fitted_of(map)
    score_map, record = before.map, before.record
    if not isinstance(evidence, Evidence):
        raise UncurseError(f"evidence is of type {type(evidence).__name__}; pass Evidence with labels")
    check_fits(evidence, score_map, record, "evidence")
    rows = _Rows.of(score_map, evidence)
    spec = evidence.spec
    if record is not None:
        check_served(spec.scores[0], record)
    else:
        record = FitRecord.of("unknown", evidence, None, reason="the map had no record of its fit")
        record = replace(record, pool=DataRecord(0, spec.scores[:1]))
    seen = {os.path.realpath(source) for source in record.label_sources}
    repeated = [source for source in evidence.sources if source != "-" and os.path.realpath(source) in seen]
    if repeated:
        warn_user(f"the map has seen the labels of {repeated[0]} before; if its rows are the same they count twice")
    found, update = _examine(rows, evidence, record)
    record = replace(record, refreshes=(*record.refreshes, found)[-_MAX_RECORDS:])
    if update is None:
        return Fitted(score_map, record, before.errors)
    return Fitted(compose(score_map, update, scale=score_map.scale), replace(record, no_interval=_NO_INTERVAL))


# ---------------------------------------------------------------------------- the labeled rows


def check_fits(rows: Evidence, score_map: ScoreMap, record: FitRecord | None, name: str) -> None:
    """Check that rows, which errors call `name`, hold the scores that a map takes; all but a pool also hold labels."""
    spec = rows.spec
    served_of(rows, name, labeled=name != "pool")
    if not rows.rows:
        raise UncurseError(f"the {name} holds no rows; pass at least one")
    if spec.scale != score_map.scale:
        raise UncurseError(f"the map takes scale={score_map.scale!r} and the {name} has scale={spec.scale!r}; use one")
    if record is not None and record.negative_sampling_rate != spec.negative_sampling_rate:
        raise UncurseError(
            f"the map was fitted with negative_sampling_rate={record.negative_sampling_rate} and the {name} has "
            f"negative_sampling_rate={spec.negative_sampling_rate}; collect it again"
        )


def check_served(served: str, record: FitRecord, name: str = "the map") -> None:
    """Check that a map, which errors call `name`, is used on the score column that it was fitted to."""
    columns = record.pool.columns
    if not replica_kind(record.replicas).served_is_a_column:
        if served in columns:
            raise UncurseError(
                f"{name} takes the mean of {', '.join(columns)}, and {served} is one of them; use a column of the mean"
            )
    elif served != columns[0] and not {served, columns[0]} & set(column_names(1)):  # an array has no names
        raise UncurseError(
            f"{name} was fitted to the score column {columns[0]!r}, not to {served!r}; rename the column if it is the "
            "same score, or fit a map to it"
        )


@dataclass(frozen=True)
class _Rows:
    """Labeled cells: served score, log odds of the prediction, number of effective rows and of positives."""

    served: Array
    z: Array
    weight: Array
    label: Array

    @classmethod
    def of(cls, score_map: ScoreMap, evidence: Evidence) -> _Rows:
        assert evidence.served is not None
        columns = [
            np.stack([cells.score, logit(p), cells.weight, cells.label])  # type: ignore[list-item]
            for p, cells in predicted_cells(score_map, evidence).values()
        ]
        served, z, weight, label = np.concatenate(columns, axis=1)
        factor = float(evidence.served.weight.sum() / evidence.served.weight_squares.sum())  # to effective rows
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
    known = None if last is None or not last.uncertainty else Known.after(last)
    positives, total, expected = (
        float(rows.label.sum()),
        float(rows.weight.sum()),
        float(rows.weight @ logistic(rows.z)),
    )
    found = RefreshRecord(
        number=1 if last is None else last.number + 1,
        rows=evidence.rows,
        positives=positives,
        sources=evidence.sources,
        supported="nothing",
        reason="",
        changed=False,
        center=0.0,
    )
    if positives <= 0 or total - positives <= 1e-9 * total:
        kind, of_map = ("positive", expected) if positives <= 0 else ("negative", total - expected)
        found = replace(
            found, reason=f"no label is {kind}, and the map predicts {of_map:,.1f} {kind}s: nothing changes"
        )
        if last is None or known is None:
            return found, None
        return replace(  # what was uncertain before still is
            found,
            center=known.center,
            level_error=last.level_error,
            slope_error=last.slope_error / (1 + last.slope),
            uncertainty=_upper(known.covariance),
        ), None
    drift = fit_drift(rows.z, rows.weight, rows.label, known)
    update = drift.update()
    changes = _changes(rows, drift, update)
    change = _largest([one.change for one in changes])
    level_error, slope_error = np.sqrt(np.diagonal(drift.error_covariance)[:2]).tolist()
    found = replace(
        found,
        supported=drift.supported,
        center=drift.center,
        level_error=level_error,
        slope_error=slope_error,
        uncertainty=_upper(drift.covariance),
        probabilities=tuple(drift.probabilities.tolist()),
    )
    if abs(change) < _NEGLIGIBLE:
        changes = tuple(replace(one, change=0.0) for one in changes)
        return replace(found, reason=_reason(drift, 0.0), changes=changes), None
    level = float(update.transform(np.array([drift.center]))[0]) - drift.center
    slope = float(drift.coefficients[1])
    top = rows.z[rows.top(SHARES[-1]) > 0]
    line = float(drift.coefficients[0]) + slope * (top - drift.center)
    if abs(level) > _LARGE_LEVEL or abs(slope) > _LARGE_SLOPE:
        warn_user(
            f"the odds change by {100 * np.expm1(level):+.0f}% and the slope by {100 * slope:+.0f}%: so large a "
            "change is rarely a drift; check the labels, or fit the map again"
        )
    return replace(
        found,
        reason=_reason(drift, change),
        changed=True,
        level=level,
        slope=slope,
        curve=0.0 if drift.basis is None else _largest(update.transform(top) - top - line),
        changes=changes,
    ), update


def _upper(covariance: Array) -> tuple[float, ...]:
    return float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])


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


def _largest(values: ArrayLike) -> float:
    """Return the value with the largest absolute value."""
    return float(max(np.asarray(values).tolist(), key=abs))


def _reason(drift: Drift, change: float) -> str:
    names = {"level": "the level only", "slope": "level and slope", "curve": "level, slope and curve"}
    if drift.supported != "nothing":
        return f"the labels support a change of {names[drift.supported]}"
    effect = f"predictions on the top change by {100 * change:+.1f}% at most" if change else "the map stays as it is"
    return f"the labels do not support a change ({100 * drift.probabilities[0]:.0f}% probable): {effect}"


# ---------------------------------------------------------------------------- the model of the drift
#
# The log odds of the labels are z + level + slope · (z − center) + curve(z), where z are the log odds of the
# predictions. Nested models (no drift, a level, a level and a slope, a curve too) with normal priors of several sizes
# are compared by their marginal likelihood. The map that served until now is the mean of every prior.

# Prior probabilities of no drift, of a level, of a level and a slope, and of a curve too. One half for no drift: most
# days are like the day before. Each further part is less likely than the one before it.
_PRIOR = np.array([0.5, 0.25, 0.15, 0.1])
# Sizes of a drift, in log odds, and their probabilities: 5% and 15% happen from one refresh to the next; 50% is a new
# kind of traffic or of labels. A factor of three between neighbors is finer than labels can resolve.
_SIZES, _SIZE_PRIOR = np.array([0.05, 0.15, 0.5]), np.array([0.4, 0.4, 0.2])
_SLOPE_SIZE = 0.5  # relative to the level: both move predictions alike two log odds above the center
# Size of the bends relative to the level, see `calibration.spline`: smaller than what a line explains.
_CURVE_SIZE = 0.3
_SUPPORTED = 0.75  # three to one: probability from which a part is called supported, and from which a curve is used
# Quantiles of z at the knots of the curve: closer towards the top, where rows are selected. Bends are small and smooth,
# so few knots are enough.
_LEVELS = np.array([0.01, 0.2, 0.5, 0.8, 0.95, 0.99])
_CELLS_PER_SPREAD = 256  # merge cells within 1/256 of a spread: a limit of memory and time, not of precision
_FENCE = 3.0  # outliers are outside the 1% to 99% range by 3 times its distance to the median

PARTS = ("nothing", "level", "slope", "curve")


@dataclass(frozen=True)
class Known:
    """What earlier labels left uncertain: the covariance of level and slope about `center`."""

    center: float
    covariance: Array

    @classmethod
    def after(cls, last: RefreshRecord) -> Known:
        """Return what a refresh left uncertain, in log odds of the map that it wrote."""
        level, both, slope = last.uncertainty
        scale = np.array([1.0, 1 / (1 + last.slope)])
        return cls(last.center + last.level, np.array([[level, both], [both, slope]]) * np.outer(scale, scale))

    def about(self, center: float) -> Array:
        """Return the covariance of level and slope about another center."""
        move = np.array([[1.0, center - self.center], [0.0, 1.0]])
        return np.asarray(move @ self.covariance @ move.T)


@dataclass(frozen=True)
class Drift:
    """Posterior of the drift: mean and covariance of level, slope and bends of a curve in (z − center) / spread.

    `center` and `spread` of z are weighted by the information of the labels. `error_covariance` holds the mean squared
    errors if level and slope have drifted; it is larger than `covariance`, in which the probability of no drift counts.
    `probabilities` are those that the level has drifted, the slope too, and the curve too. `basis` is None without a
    curve.
    """

    center: float
    spread: float
    basis: Basis | None
    coefficients: Array
    covariance: Array
    error_covariance: Array
    probabilities: Array

    @property
    def supported(self) -> str:
        """The largest part that the labels support: "nothing", "level", "slope" or "curve"."""
        return PARTS[int(np.sum(np.cumprod(self.probabilities > _SUPPORTED)))]

    def features(self, z: Array) -> Array:
        """Return the functions of z whose sum is the drift, shape (K, n)."""
        return _features(z, self.center, self.spread, self.basis)

    def update(self) -> Affine | Curve:
        """Return the map of log odds that corrects the drift."""
        level, slope = self.coefficients[:2].tolist()
        if 1 + slope < _LEAST_SLOPE:
            raise UncurseError(
                f"labels fall as predictions rise (their slope is {1 + slope:.2g}); is the label, or the score, "
                "inverted?"
            )
        if self.basis is None:
            return Affine(1 + slope, level - slope * self.center)
        knots = self.basis.knots * self.spread + self.center
        z = np.unique(np.append(np.linspace(knots[0], knots[-1], _KNOTS), knots))
        z = z[np.append(True, np.diff(z) > 1e-6 * self.spread)]
        return monotone_curve(z, z + self.coefficients @ self.features(z))


def fit_drift(z: Array, weight: Array, label: Array, known: Known | None) -> Drift:
    """Compare labels with the log odds z of predictions, cell by cell, and return the posterior of their drift.

    Level and slope are averaged over all models, weighted by their posterior probability. The curve is used only if it
    is supported, so that a straight line otherwise stays one. `weight` and `label` are effective rows and positives.
    `known` is what earlier labels left uncertain; without it the map is taken as certain before it drifts.
    """
    # Outliers, beyond 9 standard deviations of a normal, show nothing of the others, and their leverage is extreme.
    low, middle, high = np.quantile(z, [0.01, 0.5, 0.99], weights=weight, method="inverted_cdf")
    inside = (z >= low - _FENCE * (middle - low)) & (z <= high + _FENCE * (high - middle))
    z, weight, label = z[inside], weight[inside], label[inside]
    p = logistic(z)
    information = weight * p * (1 - p)
    center = float(information @ z / information.sum())
    spread = float(np.sqrt(weight @ np.square(z - weight @ z / weight.sum()) / weight.sum()))
    order = np.argsort(z, kind="stable")
    z, weight, label = z[order], weight[order], label[order]
    keys = np.floor((z - z[0]) / (spread / _CELLS_PER_SPREAD)) if spread > 0 else np.zeros(len(z))
    z, weight, label = merge_cells(z, weight, label, keys)
    knots = distinct_knots(_LEVELS, (z - center) / spread, weight) if spread > 0 else z[:0]
    basis = Basis(knots) if len(knots) >= MIN_KNOTS else None  # too few different predictions show no curve
    features = _features(z, center, spread, basis)
    size = len(features)
    before = np.zeros((size, size))
    if known is not None:
        before[:2, :2] = known.about(center)
    # Only ratios of prior weights matter, so a curve may be missing.
    drifted = range(1, 3 if basis is None else 4)
    models = [(part, sd, share) for part in drifted for sd, share in zip(_SIZES, _SIZE_PRIOR, strict=True)]
    models.insert(0, (0, 0.0, 1.0))
    part_of, evidence = np.array([part for part, _, _ in models]), np.zeros(len(models))
    means, covariances = np.zeros((len(models), size)), np.zeros((len(models), size, size))
    for i, (part, sd, share) in enumerate(models):
        variance = np.full(size, (part == 3) * (_CURVE_SIZE * sd) ** 2)
        variance[:2] = (part >= 1) * sd**2, (part >= 2) * (_SLOPE_SIZE * sd) ** 2
        means[i], covariances[i], likelihood = marginal_likelihood(
            features, weight, label, z, before + np.diag(variance)
        )
        evidence[i] = likelihood + np.log(_PRIOR[part] * share)
    posterior = np.exp(evidence - evidence.max())
    posterior /= posterior.sum()
    probabilities = np.array([posterior[part_of >= part].sum() for part in (1, 2, 3)])
    if probabilities[2] <= _SUPPORTED:
        posterior = np.where(part_of < 3, posterior, 0.0) / posterior[part_of < 3].sum()
        basis, means, covariances = None, means[:, :2], covariances[:, :2, :2]
    mean = posterior @ means
    squares = covariances + np.einsum("mi,mj->mij", means - mean, means - mean)
    both = np.where(part_of >= 2, posterior, 0.0)
    covariance, errors = (np.einsum("m,mij->ij", p / p.sum(), squares) for p in (posterior, both))
    return Drift(center, spread, basis, mean, covariance, errors, probabilities)


def _features(z: Array, center: float, spread: float, basis: Basis | None) -> Array:
    line = np.stack([np.ones_like(z), z - center])
    return line if basis is None else np.vstack([line, basis((z - center) / spread)[2:]])
