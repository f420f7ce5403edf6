"""Fit `VAD` to evidence: λ, the tandem with a calibrator, groups and intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._types import Array
from ..calibration import CALIBRATORS, fit_calibrator
from ..errors import UncurseError
from ..evidence import Evidence, Moments
from ..evidence.spec import check_negative_rate, logit_offset
from ..links import check_space, get_link, logistic
from ..maps import Affine, Grouped, ScoreMap, compose
from ..validation import check_choice, check_flag, check_number, warn_user
from .base import Fitted
from .free_shape import FreeShape, LabelFree, LabelFreeAverage, Parametric, lines_of
from .label_selection import served_lead
from .latent_scores import ReplicaModel
from .records import DataRecord, FitRecord, GroupRecord
from .remaining_error import RemainingError
from .replica_kinds import ReplicaKind, replica_kind
from .shrinkage import group_lambdas, identical_replicas, lambda_error, shrink_towards, with_curvature
from .tower import fit_tower

_LARGEST_RATIO = 1.3  # of λ on the pool to that on labelled rows; a larger one raises the suspicion of selected rows
_LEAST_WEIGHT = 0.2  # a map with less weight changes predictions by less than its error


@dataclass(frozen=True)
class VADOptions:
    """Options of `VAD`, validated; see there."""

    link: str = "logistic"
    scale: str = "logit"
    replicas: str = "seeds"
    calibrator: str | None = None
    curvature: bool = False
    shape: str = "straight"
    recentre: bool = True
    negative_rate: float | None = None
    lambda_floor: float | None = None
    calibrator_options: Mapping[str, Any] = field(default_factory=dict)
    intervals: bool = False

    def __post_init__(self) -> None:
        check_space(self.link, self.scale)
        replica_kind(self.replicas)
        check_choice("shape", self.shape, ("straight", "free"))
        object.__setattr__(self, "negative_rate", check_negative_rate(self.negative_rate, self.scale))
        for name in ("curvature", "recentre", "intervals"):
            object.__setattr__(self, name, check_flag(getattr(self, name), name))
        if self.calibrator is not None:
            check_choice("calibrator", self.calibrator, tuple(CALIBRATORS))
            if not self.kind.served_is_a_column:
                raise UncurseError("a calibrator needs the served score in a column; use Tower or Auto for an ensemble")
            if self.curvature:
                raise UncurseError("curvature=True corrects VAD alone; leave it out with a calibrator")
        if not isinstance(self.calibrator_options, Mapping):
            raise UncurseError(f"calibrator_options={self.calibrator_options!r}; pass a dict such as {{'n_bins': 50}}")
        straight = self.calibrator is None and not self.curvature and self.link == "logistic" and self.scale != "value"
        if self.shape == "free" and not straight:
            raise UncurseError(
                "shape='free' needs logits or probabilities and the logistic link, without calibrator or curvature"
            )
        if self.scale == "value" and (self.calibrator or self.intervals):
            raise UncurseError("scale='value' is for regression: it has no calibrator and no intervals")
        if self.lambda_floor is not None and not 0 <= check_number(self.lambda_floor, "lambda_floor") < 1:
            raise UncurseError(
                f"lambda_floor={self.lambda_floor}; pass a number from 0 to 1, or None to raise an error"
            )

    @property
    def kind(self) -> ReplicaKind:
        """How the score columns are related."""
        return replica_kind(self.replicas)

    @property
    def offset(self) -> float:
        """Logarithm of the negative-sampling rate."""
        return logit_offset(self.negative_rate)

    @property
    def recentred(self) -> bool:
        """Whether scores are shrunk before calibration."""
        return self.recentre and self.link == "logistic"

    def composed(self, *maps: ScoreMap) -> ScoreMap:
        """Return one map that corrects scores for negative sampling and applies `maps` in order."""
        return compose(*([Affine(1.0, self.offset)] if self.offset else []), *maps, scale=self.scale)


@dataclass(frozen=True)
class _Shrinkage:
    """λ of a set of rows, with the moments that it follows from."""

    value: float
    error: float
    center: float
    noise: float
    variance: float
    labelled: float = 1.0  # λ of the labelled rows
    labelled_center: float = 0.0


def fit_vad(pool: Evidence, labelled: Evidence | None, options: VADOptions, *, variance: float | None = None) -> Fitted:
    """Fit VAD to evidence of the candidate pool; labelled rows are for a calibrator. `variance` is a known V."""
    if options.calibrator is None and labelled is not None:
        raise UncurseError("there are labelled rows but no calibrator; pass one, such as VAD(calibrator='platt')")
    pool, labelled = options.kind.evidence(pool), None if labelled is None else options.kind.evidence(labelled)
    shrinkage = _shrinkage(pool.moments, options, variance)
    seeds = options.kind.exchangeable and variance is None  # bootstraps of a stable model may agree
    if seeds and identical_replicas(shrinkage.noise, shrinkage.variance):
        warn_user("the replicas are identical, so they show no noise; was the seed changed?")
    if options.shape == "free":
        return _fit_free(pool, options, shrinkage, variance)
    shrinkage = replace(shrinkage, value=_positive(shrinkage.value, shrinkage, options))
    calibration = None
    if options.calibrator is not None:
        if variance is not None:
            raise UncurseError("a calibrator needs replicas on pool and labelled rows; leave variance out")
        if labelled is None:
            raise UncurseError(f"calibrator={options.calibrator!r} needs labelled=(scores, labels) in fit")
        shrinkage = _in_tandem(shrinkage, pool.moments, labelled.moments, options)
        calibration = fit_calibrator(
            options.calibrator, labelled.require("cells", "collect it again"), **options.calibrator_options
        )
        if not options.recentred:
            shrinkage = replace(shrinkage, center=_calibrated_mean(pool, calibration, options.link))
    score_map = _map(shrinkage, calibration, options)
    groups: dict[str, GroupRecord] = {}
    if pool.groups:
        maps, groups = _fit_groups(pool, shrinkage, calibration, options, variance)
        score_map = Grouped(score_map, maps)
    record = _record("vad", pool, labelled, options, shrinkage, groups)
    try:
        return Fitted(score_map, record, _remaining(pool, labelled, shrinkage, options, variance))
    except UncurseError as error:  # the map needs only the moments
        return Fitted(score_map, record, no_interval=str(error))


def label_free(model: ReplicaModel, moments: Moments, options: VADOptions) -> LabelFree:
    """Return VAD with curvature, the free shape, or their average if the replicas leave it open which is right.

    One λ has a smaller error than a curve, but noise may differ from row to row.
    """
    lines = lines_of(moments)
    free = FreeShape.fit(model, lines)
    shrinkage = _shrinkage(moments, options, None)
    if options.link != "logistic" or not shrinkage.value > 0:
        return free
    parametric = Parametric(model, shrinkage.value, shrinkage.center, shrinkage.variance, lines=lines)
    weight = free.probability_of(parametric)
    if weight > 1 - _LEAST_WEIGHT:
        return parametric
    return free if weight < _LEAST_WEIGHT else LabelFreeAverage(model, parametric, free, weight, lines=lines)


def _record(
    method: str,
    pool: Evidence,
    labelled: Evidence | None,
    options: VADOptions,
    shrinkage: _Shrinkage,
    groups: Mapping[str, GroupRecord],
) -> FitRecord:
    return FitRecord(
        method,
        DataRecord.of(pool),
        None if labelled is None else DataRecord.of(labelled),
        scale=options.scale,
        link=options.link,
        replicas=options.replicas,
        negative_rate=options.negative_rate,
        calibrator=options.calibrator,
        curvature=options.curvature,
        shape=options.shape,
        group=pool.spec.group,
        lambda_=shrinkage.value,
        standard_error=shrinkage.error,
        center=shrinkage.center,
        noise_variance=shrinkage.noise,
        score_variance=shrinkage.variance,
        groups=groups,
    )


def _fit_free(pool: Evidence, options: VADOptions, shrinkage: _Shrinkage, variance: float | None) -> Fitted:
    if pool.groups or variance is not None:
        raise UncurseError("shape='free' has no groups and takes no variance; fit one VAD for each group")
    counts = pool.require("replica_counts", "collect it with replica_counts=True")
    shape = FreeShape.fit(ReplicaModel(options.kind.cells(counts), options.replicas), lines_of(pool.moments))
    return Fitted(options.composed(shape.map()), _record("vad", pool, None, options, shrinkage, {}), shape)


def _remaining(
    pool: Evidence, labelled: Evidence | None, shrinkage: _Shrinkage, options: VADOptions, variance: float | None
) -> RemainingError | None:
    if options.scale == "value" or variance is not None:
        raise UncurseError("they need replicas of logits or probabilities")
    counts = pool.replica_counts
    if counts is None:
        raise UncurseError("fit VAD(intervals=True), or pass evidence collected with replica_counts=True")
    if labelled is not None:
        if options.link != "logistic":
            raise UncurseError(f"with a calibrator they need link='logistic', not {options.link!r}")
        return fit_tower(pool, labelled, replicas=options.replicas).remaining
    if identical_replicas(shrinkage.noise, shrinkage.variance):
        raise UncurseError("the replicas are identical, so they show no noise")
    return label_free(ReplicaModel(options.kind.cells(counts), options.replicas), pool.moments, options)


def _lambda_function(options: VADOptions, variance: float | None) -> Callable[[Array, Array], Array]:
    """Return λ as a function of mean and covariance, for the jackknife."""

    def function(mean: Array, covariance: Array) -> Array:
        served = covariance[..., 0, 0]
        noise = options.kind.noise_variance(covariance) if variance is None else np.full_like(served, variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1 - noise / served)

    return function


def _shrinkage(moments: Moments, options: VADOptions, variance: float | None, where: str = "") -> _Shrinkage:
    """Return λ of some moments, before `lambda_floor` is applied."""
    moments.require_rows()
    if variance is None:
        options.kind.check_columns(moments.n_replicas)
    covariance, center = moments.covariance, float(moments.mean[0])
    spread = float(covariance[0, 0])
    if np.sqrt(max(spread, 0.0)) <= 1e-9 * abs(center):
        raise UncurseError(f"the served scores are constant at {center:g}{where}; pass scores that differ")
    noise = float(options.kind.noise_variance(covariance)) if variance is None else variance
    if variance is None and identical_replicas(noise, spread):
        noise = 0.0  # exactly: rounding must not move a score across the edge of a bin
    function = _lambda_function(options, variance)
    value, error = 1 - noise / spread, moments.standard_error(function)
    if not np.isfinite(error):  # too few rows for a jackknife
        error = lambda_error(value, moments.effective_rows, *_differences(moments.n_replicas, options, variance))
    return _Shrinkage(value, error, center, noise, spread)


def _differences(columns: int, options: VADOptions, variance: float | None) -> tuple[int, bool]:
    """Return the number of differences between replicas behind V, and whether the served score is in them."""
    return 0 if variance is not None else options.kind.differences(columns), options.kind.exchangeable


def _positive(value: float, shrinkage: _Shrinkage, options: VADOptions, where: str = "") -> float:
    """Return λ, or `lambda_floor` with a warning if λ is lower; raise UncurseError if λ ≤ 0 and there is no floor."""
    floor = options.lambda_floor
    if value <= 0 and floor is None:
        raise UncurseError(
            f"λ = {value:.3g}{where}: replicas differ more (V = {shrinkage.noise:.3g}) than the served scores vary "
            f"(variance {shrinkage.variance:.3g}); train on more data, clip extreme scores, or pass "
            "lambda_floor=0.0 to predict the mean"
        )
    if floor is None or (value >= floor and value > 0):
        return value
    warn_user(f"λ = {value:.3g}{where} is too low; using lambda_floor={floor:g}")
    return floor


def _in_tandem(shrinkage: _Shrinkage, pool: Moments, labelled: Moments, options: VADOptions) -> _Shrinkage:
    """Return λ_pool / λ_labelled: calibration has already removed the noise of the labelled rows."""
    rows = _shrinkage(labelled, options, None, " on the labelled rows")
    if rows.value <= 0:
        raise UncurseError(f"λ = {rows.value:.3g} on the labelled rows: replicas differ more than scores vary there")
    lead = served_lead(pool, labelled, options.kind)
    if lead:
        warn_user(
            f"the served scores exceed the other replicas by {lead:+.2f} more on the labelled rows than on the pool, "
            "as if the served score had selected them; then λ is biased: label rows that were selected without it"
        )
    ratio = shrinkage.value / rows.value
    if ratio > _LARGEST_RATIO and not options.kind.shows_selection:
        warn_user(
            f"λ is {shrinkage.value:.3g} on the pool and {rows.value:.3g} on the labelled rows, whose scores vary "
            "less; if the served score selected them, λ is biased: use Tower or Auto with selected_by='served'"
        )
    error = float(np.hypot(shrinkage.error, ratio * rows.error)) / rows.value
    return replace(shrinkage, value=ratio, error=error, labelled=rows.value, labelled_center=rows.center)


def _calibrated_mean(evidence: Evidence, calibration: ScoreMap | None, link: str) -> float:
    """Return the mean (calibrated) served score, on the link."""
    if calibration is None:
        return float(evidence.moments.mean[0])
    cells = evidence.require("cells", "a calibrator with recentre=False needs them; use fewer groups")
    calibrated = calibration.transform(cells.score)
    if link != "logistic":
        calibrated = get_link(link).inverse(logistic(calibrated))
    return float(np.average(calibrated, weights=cells.weight))


def _fit_groups(
    pool: Evidence, shrinkage: _Shrinkage, calibration: ScoreMap | None, options: VADOptions, variance: float | None
) -> tuple[dict[str, ScoreMap], dict[str, GroupRecord]]:
    """Fit a map for each group, with λ and center shrunk towards the common values."""
    function = _lambda_function(options, variance)
    parts = {name: part.moments for name, part in pool.groups.items()}
    rows = np.array([part.effective_rows for part in parts.values()])
    spread = np.array([part.covariance[0, 0] for part in parts.values()])
    known = (rows > 2 * (1 + 1e-9)) & (spread > 0)
    own = np.array([float(function(part.mean, part.covariance)) for part in parts.values()])
    differences, in_noise = _differences(pool.moments.n_replicas, options, variance)
    overall = 1 - shrinkage.noise / shrinkage.variance
    lambdas = group_lambdas(own, spread, rows, known, overall, differences=differences, in_noise=in_noise)
    before = None if options.recentred else calibration
    own = np.array([_calibrated_mean(part, before, options.link) for part in pool.groups.values()])
    centers = shrink_towards(shrinkage.center, own, np.sqrt(np.maximum(spread, shrinkage.variance) / rows))
    maps: dict[str, ScoreMap] = {}
    records = {}
    for i, (name, part) in enumerate(parts.items()):
        value = _positive(float(lambdas[i]), shrinkage, options, f" in group {name!r}") / shrinkage.labelled
        noise = (1 - value) * float(spread[i]) if known[i] else shrinkage.noise
        group = replace(shrinkage, value=value, center=float(centers[i]), noise=noise)
        maps[name] = _map(group, calibration, options)
        records[name] = GroupRecord(value, float(centers[i]), part.rows)
    return maps, records


def _map(shrinkage: _Shrinkage, calibration: ScoreMap | None, options: VADOptions) -> ScoreMap:
    value, center = shrinkage.value, shrinkage.center
    if calibration is not None and options.recentred:
        # Convert a pool score to the labelled score with the same expected truth; each is shrunk about its own mean.
        own = shrinkage.labelled * value
        start = shrinkage.labelled_center + ((1 - own) * center - shrinkage.labelled_center) / shrinkage.labelled
        return options.composed(Affine(value, start, options.link), calibration)
    shrunk: ScoreMap = Affine(value, (1 - value) * center, options.link)
    if options.curvature:
        shrunk = with_curvature(value, center, shrinkage.noise, options.link)
    return options.composed(shrunk) if calibration is None else options.composed(calibration, shrunk)
