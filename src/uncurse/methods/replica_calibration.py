"""Replica calibration: calibrate all replicas on labeled rows, then regress the result on the served score.

    P(y | served) = E[ P(y | all replicas) | served ]    over the pool

1. Estimate E[φ(t) | replicas] for each row (`truth`). Pool and labeled rows have their own distributions of
   true scores and noise, so that the estimates are comparable although the rows differ.
2. On labeled rows, fit the curve of P(y) over that estimate: a line, or a smooth curve if the labels support it.
3. On the pool, fit the mean of that probability given the served score alone: a monotone map of one score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.logistic import fit_logistic
from ..calibration.spline import SmoothCurve, fit_smooth
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec
from ..evidence.from_arrays import labeled_evidence, pool_evidence
from ..evidence.histogram import ReplicaTable, clip_outliers, outlier_fences
from ..evidence.spec import check_negative_sampling_rate
from ..links import logistic, logit
from ..maps import Affine, Segmented
from ..threads import one_blas_thread
from ..validation import check_choice, warn_user
from .fitted import Method, Solution, check_labels_from, on_scores
from .label_free import regress_on_served
from .noise import ReplicaKind, replica_kind, served_lead, warn_if_unlike
from .records import DataRecord, FitRecord
from .remaining_error import TopShare, log_bayes_factor
from .shrinkage import shrink_towards
from .truth import TruthModel

_MIN_SEGMENT_ROWS = 2_000  # a segment of this size gets its own distribution of true scores
# Denoised scores that vary by less than a tenth of the served scores are mostly the error of their own estimation.
_LEAST_SPREAD = 0.1


class ReplicaMethod(Method):
    """The common part of `ReplicaCalibrator` and `Auto`, which need replicas of logits or probabilities."""

    def __init__(self, *, scale: str, replicas: str, negative_sampling_rate: float | None = None) -> None:
        self.scale = check_choice("scale", scale, ("logit", "probability"))
        self.replicas = replica_kind(replicas).name
        self.negative_sampling_rate = check_negative_sampling_rate(negative_sampling_rate, scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale!r}, replicas={self.replicas!r})"

    def _evidence(
        self, pool: Any, labeled: Any, segments: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Evidence, Evidence | None]:
        """Return the evidence of pool and labeled rows."""
        evidence = pool_evidence(
            pool,
            labeled,
            scale=self.scale,
            negative_sampling_rate=self.negative_sampling_rate,
            segments=segments,
            sample_weight=sample_weight,
        )
        return evidence, None if labeled is None else labeled_evidence(labeled, evidence)


class ReplicaCalibrator(ReplicaMethod):
    """Calibrate all replicas on labeled rows, and regress the result on the served score over the pool.

    Parameters
    ----------
    scale : {"logit", "probability"}
        Scale of the scores.
    replicas : {"seeds", "bootstrap", "ensemble", "snapshots"}
        How the score columns are related, see `VAD`.
    negative_sampling_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it. Labeled rows must have their natural
        rate.

    Attributes
    ----------
    map_ : ScoreMap
        Fitted map of the served score.
    record_ : FitRecord
        How the map was fitted. ``line_probability`` is the probability that the curve of the labels is a straight
        line, and ``contrast`` the extra weight of the served score relative to its replicas.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def replicas(mean, rows):
    ...     truth = rng.normal(mean, 0.8, rows)
    ...     return truth, truth[:, None] + rng.normal(0, 0.4, (rows, 2))
    >>> truth, scores = replicas(-1.5, 50_000)
    >>> clicks = rng.random(50_000) < logistic(truth)
    >>> pool_truth, pool = replicas(-2.0, 50_000)  # candidates differ from the labeled rows
    >>> method = ReplicaCalibrator(scale="logit", replicas="seeds")
    >>> method = method.fit(pool, labeled=(scores, clicks), labels_from="elsewhere")
    >>> top = pool[:, 0] > np.quantile(pool[:, 0], 0.95)
    >>> before, after = logistic(pool[top, 0]).mean(), method.predict_proba(pool[top, 0]).mean()
    >>> true = logistic(pool_truth[top]).mean()
    >>> bool(before > 1.2 * true), bool(abs(after / true - 1) < 0.05)
    (True, True)
    """

    def fit(
        self,
        pool: ArrayLike | Evidence,
        *,
        labeled: tuple[ArrayLike, ...] | Evidence,
        labels_from: str,
        segments: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> ReplicaCalibrator:
        """Fit to a sample of the candidate pool and to labeled rows.

        Parameters
        ----------
        pool : array-like of shape (n, S), or Evidence
            Replica scores, the served one in column 0.
        labeled : tuple (scores, labels) or (scores, labels, weights), or Evidence
            Labeled rows, scored by every replica. The models were not trained on them.
        labels_from : {"winners", "elsewhere"}
            "winners": the served score itself selected the labeled rows from this pool. "elsewhere": anything else
            selected them, such as chance or an earlier model; not the mean of these replicas.
        segments : array-like of shape (n,), optional
            Segment of each pool row. Each segment gets its own map, shrunk towards that of the pool. If `labeled` is
            evidence with segments, the labels of a segment correct its level.
        sample_weight : array-like of shape (n,), optional
            Weights of pool rows; only their ratios matter.

        Returns
        -------
        ReplicaCalibrator
            Itself. If fitting fails, the previous fit is kept.
        """
        origin = check_labels_from(labeled, labels_from)
        evidence, rows = self._evidence(pool, labeled, segments, sample_weight)
        if rows is None or origin is None:
            raise UncurseError("labeled is missing; pass labeled=(scores, labels), or use VAD without labels")
        with one_blas_thread():
            self.fitted_ = calibrate_replicas(evidence, rows, replicas=self.replicas, labels_from=origin)[0].fitted()
        return self


@dataclass(frozen=True)
class ReplicaCalibration:
    """A fitted replica calibration: an estimate of the true rates on the pool, with its errors.

    `scaling` (slope and intercept) converts logits to log odds and is applied first; `pool` and `labeled` are rescaled
    by it, `table` is not. `winners` says whether the served score selected the labeled rows from the pool. `labels` is
    P(y | all replicas), and `projection` gives the log odds by served score. `segment_levels` are differences of log
    odds between the labels of a segment and `labels`, each with its standard error.
    """

    table: ReplicaTable
    scaling: tuple[float, float]
    pool: TruthModel
    labeled: TruthModel
    winners: bool
    labels: LabelModel
    projection: SmoothCurve
    segment_levels: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        slope, intercept = self.scaling
        return np.asarray(self.projection(slope * served + intercept))

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of predicted over true rate on the top share.

        It includes label noise, the projection, the true rate among the selected rows, and the distributions of true
        scores of pool and labeled rows.
        """
        served = self.pool.table.served[top.cells]
        denoised, variance = (x[top.cells] for x in self._posterior)
        by_score, by_replicas = logistic(self.log_odds(top.served)), self._by_replicas[top.cells]
        curve = self.labels.curve
        by_label = top.squared_error(by_replicas, curve.features(denoised), curve.covariance)
        by_pool = top.squared_error(by_score, self.projection.features(served), self.projection.covariance)
        sampling = top.sampling_error(by_replicas, by_score, variance)
        drawn = [np.log(top.mean(p[top.cells])) for p in self._resampled]
        return float(np.sqrt(by_label + by_pool + sampling + (np.var(drawn, ddof=1) if drawn else 0.0)))

    def level_error(self, top: TopShare) -> tuple[float, int]:
        """Return the relative error due to level differences between labeled rows and pool, and its freedom."""
        if self.winners:  # levels differ because of the selection
            return 0.0, 1
        variance, freedom = self.pool.kind.level_variance(self.pool.table.levels - self.labeled.table.levels)
        return top.level_error(self.log_odds(top.served), variance), freedom

    @cached_property
    def _posterior(self) -> tuple[Array, Array]:
        return self.pool.posterior_logit(self.pool.latent)

    @cached_property
    def _by_replicas(self) -> Array:
        return self.labels.probability(self._posterior[0], self.pool.table)

    @cached_property
    def _resampled(self) -> list[Array]:
        """P(y | all replicas) of the pool with distributions of true scores from bootstrap samples."""
        denoised = [self.pool.posterior_logit(latent)[0] for latent in self.pool.resampled]
        if not self.winners and self.labeled.latent is not None:
            before = self.labeled.posterior_logit(self.labeled.latent)[0]
            weight = self.labeled.table.weight
            for i, latent in enumerate(self.labeled.resampled[: len(denoised)]):
                # The curve shifts with the labeled rows.
                after = self.labeled.posterior_logit(latent)[0]
                denoised[i] = denoised[i] - np.interp(denoised[i], *_mean_moves(before, after, weight))
        return [self.labels.probability(x, self.pool.table) for x in denoised]


def calibrate_replicas(
    pool: Evidence, labeled: Evidence, *, replicas: str, labels_from: str, own_rows: bool = False
) -> tuple[Solution, ReplicaCalibration]:
    """Fit to evidence of the candidate pool and of labeled rows.

    `own_rows` says that the labeled rows are those that the model was trained on, so their rate is no surprise.
    """
    kind, winners = replica_kind(replicas), labels_from == "winners"
    # On grids of different widths, posteriors differ by several percent at the top although the rows are alike.
    level = max([part.replicas.level for part in (pool, labeled) if part.replicas is not None], default=0)
    table, rows = kind.table_of(pool, "pool", level), kind.table_of(labeled, "labeled rows", level)
    for each, name in ((table, "pool"), (rows, "labeled rows")):
        if np.ptp(each.served) <= 0:
            raise UncurseError(f"the served scores of the {name} are constant; pass rows whose scores differ")
    warn_if_unlike(kind, pool.moments)
    scaling = fit_scaling(TruthModel(rows, replicas))
    if scaling[0] == 1.0 and scaling[1] > 0 and not own_rows:
        _warn_of_odds(scaling[1], pool.spec)
    # The same precision for both: the difference between them is what matters.
    least = min(table.effective_rows, rows.effective_rows)
    models = [TruthModel(each.rescaled(*scaling), replicas, least) for each in (table, rows)]
    if any(model.identical for model in models):
        warn_user("the replicas are identical, so they show no noise; was the seed changed?")
    reason = _not_denoised(*models)
    if reason:
        models = [TruthModel(model.table, replicas, least, denoise=False) for model in models]
    of_pool, of_labeled = models
    if winners:
        denoised = _denoised_as_pool(of_labeled, of_pool)
    else:
        lead = served_lead(pool.moments, labeled.moments, kind)
        if lead:
            who = "served" if lead > 0 else "second column's"
            warn_user(
                f"on the labeled rows the {who} scores are {abs(lead):.2f} further above the other replicas than on "
                f"the pool, as if the {who} score had selected them; if it did, pass labels_from='winners'"
            )
        alike = shrink_pool_shift(of_pool.table, of_labeled.table, kind)
        of_pool = TruthModel(alike, replicas, least, of_pool.denoise)
        denoised, _ = of_labeled.posterior_logit(of_labeled.latent)
    labels = fit_labels(of_labeled, denoised)
    by_replicas = labels.probability(of_pool.posterior_logit(of_pool.latent)[0], of_pool.table)
    projection = regress_on_served(of_pool.table, by_replicas)
    fit = ReplicaCalibration(table, scaling, of_pool, of_labeled, winners, labels, projection)
    first = [Affine(*scaling)] if scaling != (1.0, 0.0) else []
    score_map = on_scores(pool.spec, *first, projection.map())
    if pool.segments:
        pools, rows_of = (_segment_models(evidence, fit, level) for evidence in (pool, labeled))
        fit = replace(fit, segment_levels=_segment_levels(rows_of, pools, fit))
        maps = {name: on_scores(pool.spec, *first, c.map()) for name, c in _segment_curves(pools, fit).items()}
        score_map = Segmented(score_map, maps)
    record = FitRecord(
        "labels",
        DataRecord.of(pool),
        DataRecord.of(labeled),
        reason=reason,
        scale=pool.spec.scale,
        replicas=replicas,
        labels_from=labels_from,
        negative_sampling_rate=pool.spec.negative_sampling_rate,
        segment=pool.spec.segment,
        line_probability=labels.curve.line_probability,
        contrast=labels.contrast,
    )
    return Solution(score_map, record, fit), fit


def _warn_of_odds(level: float, spec: LogSpec) -> None:
    """Warn of labels whose odds are far above those of the scores, as if negative rows were missing."""
    rate = spec.negative_sampling_rate
    check = f"check negative_sampling_rate={rate}; " if rate not in (None, 1.0) else ""
    warn_user(
        f"the odds of the labels are {float(np.exp(min(level, 20.0))):.1f} times as high as the scores say; {check}if "
        "the log keeps only a share of its negative rows, weight each row that it keeps by 1 / share"
    )


def _not_denoised(pool: TruthModel, labeled: TruthModel) -> str:
    """Return why the replicas do not tell noise from the truth; empty if they do."""
    flat_pool = _is_flat(pool)
    if not flat_pool and not _is_flat(labeled):
        return ""
    return (
        f"on the {'pool' if flat_pool else 'labeled rows'} the replicas differ from each other about as much as the "
        f"scores vary{'' if flat_pool else ', as is usual for winners'}, so they do not tell noise from the truth, and "
        "the map relies on the labels by score alone"
    )


def _denoised_as_pool(labeled: TruthModel, pool: TruthModel) -> Array:
    """Denoise rows that the served score selected: given all replicas, their truth is distributed as on the pool."""
    summary = pool.kind.summarize(labeled.table, pool.summary.level)
    return labeled.posterior_logit(pool.latent, summary)[0]


def _is_flat(model: TruthModel) -> bool:
    """Return whether the denoised scores hardly vary, compared with the served ones. Outliers do not count."""
    weight = model.table.weight

    def spread(scores: Array) -> float:
        return float(np.sqrt(np.cov(clip_outliers(scores, weight), aweights=weight, ddof=0)))

    served = spread(model.table.served)
    if model.served_noise < served**2 / 2 or served <= 0:  # most of it is no noise: no need to estimate a distribution
        return False
    return spread(model.posterior_logit(model.latent)[0]) < _LEAST_SPREAD * served


def _segment_models(evidence: Evidence, fit: ReplicaCalibration, level: int) -> dict[str, TruthModel]:
    """Return the replicas of each segment, on the grid of all rows."""
    kind, denoise = fit.pool.kind, fit.pool.denoise
    return {
        name: TruthModel(kind.table_of(part, name, level).rescaled(*fit.scaling), kind.name, None, denoise)
        for name, part in evidence.segments.items()
        if part.replicas is not None
    }


def _is_large(model: TruthModel) -> bool:
    """Return whether a segment gets its own distribution of true scores."""
    return bool(model.table.effective_rows >= _MIN_SEGMENT_ROWS and np.ptp(model.table.served) > 0)


def _segment_levels(
    labeled: dict[str, TruthModel], pool: dict[str, TruthModel], fit: ReplicaCalibration
) -> dict[str, tuple[float, float]]:
    """Compare the labels of each segment with those of all rows: differences of log odds, and their standard errors."""
    levels = {}
    for name, model in labeled.items():
        if fit.winners:
            own = pool.get(name)
            denoised = _denoised_as_pool(model, own if own is not None and _is_large(own) else fit.pool)
        else:
            denoised = model.posterior_logit(model.latent if _is_large(model) else fit.labeled.latent)[0]
        w, y = model.table.row_weights()
        base = np.asarray(logit(fit.labels.probability(denoised, model.table)), np.float64)
        # A weak prior keeps the level of labels of one class finite.
        found = fit_logistic(np.ones((1, len(w))), w, y, offset=base, prior_precision=np.full(1, 0.01))
        levels[name] = float(found.coefficients[0]), float(np.sqrt(found.covariance[0, 0]))
    return levels


def _segment_curves(models: dict[str, TruthModel], fit: ReplicaCalibration) -> dict[str, SmoothCurve]:
    """Shift and tilt the curve of the pool for each segment, shrunk towards no change.

    A segment differs by the noise of its scores, and by the level of its labels.
    """
    known = np.array(list(fit.segment_levels.values())).reshape(-1, 2)
    by_labels = dict(zip(fit.segment_levels, shrink_towards(0.0, known[:, 0], known[:, 1]).tolist(), strict=True))
    shifts = [by_labels.get(name, 0.0) for name in models]  # 0 for a segment without labels
    moves, errors = [], []
    for model, shift in zip(models.values(), shifts, strict=True):
        table = model.table
        denoised, _ = model.posterior_logit(model.latent if _is_large(model) else fit.pool.latent)
        target = logistic(logit(fit.labels.probability(denoised, table)) + shift)
        w = table.row_weights()[0]
        z = (table.served - fit.projection.center) / fit.projection.spread
        features = np.stack([np.ones_like(z), z])
        base = fit.projection(table.served) + shift
        # A weak prior keeps the fit of segments of one or two rows finite.
        moved = fit_logistic(features, w, w * target, offset=base, prior_precision=np.full(2, 1e-9))
        p = logistic(base + moved.coefficients @ features)
        # Probabilities vary less than labels.
        scatter = float(w @ np.square(target - p)) / max(float(w @ (p * (1 - p))), 1e-300)
        moves.append(moved.coefficients)
        errors.append(np.sqrt(np.maximum(np.diagonal(moved.covariance) * scatter, 1e-12)))
    if not models:
        return {}
    level, tilt = (shrink_towards(0.0, np.array(moves)[:, i], np.array(errors)[:, i]) for i in (0, 1))
    return {name: fit.projection.moved(float(level[i]) + shifts[i], float(tilt[i])) for i, name in enumerate(models)}


def _mean_moves(before: Array, after: Array, weight: Array) -> tuple[Array, Array]:
    """Return mean position and mean shift of the rows in 64 bins of equal weight."""
    order = np.argsort(before, kind="stable")
    w = weight[order]
    starts = np.unique(np.searchsorted(np.cumsum(w), np.arange(64) / 64 * w.sum()))
    total = np.add.reduceat(w, starts)
    place, move = (np.add.reduceat(w * column[order], starts) / total for column in (after, after - before))
    rise = np.concatenate([[True], np.diff(place) > 0])
    return place[rise], move[rise]


# ---------------------------------------------------------------------------- P(y | all replicas)

# Prior of the slope of the curve: scores are roughly log odds. Two hundred positives outweigh it.
_SLOPE = (1.0, 0.3)
# Scores are rescaled to log odds first if the labels show a slope outside ½ to 2 or a level off by 1.5, by more than
# four standard errors. The curve corrects smaller differences.
_FAR_SLOPE, _FAR_LEVEL, _FAR_ERRORS = 2.0, 1.5, 4.0
_MIN_POSITIVES = 20  # fewer do not determine a curve
_MASS_PRIOR = 0.5  # standard deviation of the extra log odds at a floor or a cap
# Standard deviations of differences between pool and labeled rows, if there are any: of means (in standard deviations
# of the score), of the logarithm of the standard deviation of the score, and of that of the noise.
_SIZES = np.array([0.3, 0.1, 0.1])
_ROUNDING = 1e-20  # a smaller squared standard error is 0 up to rounding, which depends on the order of rows


@dataclass(frozen=True)
class Misfit:
    """Log odds of labels by served score, minus those that the curve of the denoised score implies."""

    direct: SmoothCurve
    implied: SmoothCurve
    ends: tuple[float, float]  # of the served scores; it is constant beyond them

    def __call__(self, served: Array) -> Array:
        """Return the difference at served logits."""
        x = np.clip(served, *self.ends)
        return self.direct(x) - self.implied(x)


@dataclass(frozen=True)
class LabelModel:
    """P(y | all replicas), fitted on labeled rows: `curve` gives the log odds by denoised score.

    `contrast` is the extra weight of the served score, relative to `contrast_level`, the mean gap of the labeled rows.
    `masses` holds served logit, cell width and extra log odds of each floor, cap or default value of the served score.
    """

    curve: SmoothCurve
    contrast: float
    contrast_level: float
    masses: tuple[tuple[float, float, float], ...]
    misfit: Misfit | None = None

    def probability(self, denoised: Array, table: ReplicaTable) -> Array:
        """Return the probability of each cell."""
        log_odds = self.curve(denoised)
        if self.contrast:
            log_odds = log_odds - self.contrast * (table.gap - self.contrast_level)
        if self.misfit is not None:
            log_odds = log_odds + self.misfit(table.served)
        for served, width, extra in self.masses:
            log_odds = log_odds + extra * table.at(served, width)
        return np.asarray(logistic(log_odds), np.float64)


def fit_scaling(labeled: TruthModel) -> tuple[float, float]:
    """Return slope and intercept that convert scores to log odds; (1, 0) unless labels show that they are far off."""
    (w, y), mean = labeled.table.row_weights(), labeled.summary.mean
    center = float(w @ mean / w.sum())
    fences = outlier_fences(mean, w)
    z = np.clip(mean, *fences) - center
    try:
        fit = fit_logistic(np.stack([z, np.ones_like(z)]), w, y)
    except UncurseError:  # the scores separate the labels: do not rescale
        return 1.0, 0.0
    slope, level = fit.coefficients.tolist()
    slope_error = float(np.sqrt(fit.covariance[0, 0]))
    level_error = float(np.linalg.inv(fit.covariance)[1, 1] ** -0.5)  # at the labeled scores, not at z = 0
    if slope + 3 * slope_error < 0:
        raise UncurseError(f"labels fall as scores rise (slope {slope:.3g}); is the label, or the score, inverted?")
    far = not 1 / _FAR_SLOPE <= slope <= _FAR_SLOPE and abs(slope - 1) > _FAR_ERRORS * slope_error and slope > 0
    moved = abs(level - center) > max(_FAR_LEVEL, _FAR_ERRORS * level_error)
    if not far and not moved:
        return 1.0, 0.0
    slope = slope if far else 1.0
    return slope, float(level - slope * center)


def fit_labels(labeled: TruthModel, denoised: Array) -> LabelModel:
    """Fit P(y | all replicas) to the labeled rows."""
    table, order = labeled.table, np.argsort(denoised, kind="stable")
    w, y = (x[order] for x in table.row_weights())
    # A floor or a cap hides noise: rows there differ from other rows with the same denoised score.
    masses = table.served_masses.tolist()
    free = ~np.any([table.at(served)[order] for served in masses], axis=0) if masses else np.ones(len(w), bool)
    if min(float(y[free].sum()), float((w - y)[free].sum())) < _MIN_POSITIVES:
        free = np.ones(len(w), bool)
    curve = fit_smooth(denoised[order][free], w[free], y[free], slope=_SLOPE)
    contrast = 0.0
    if labeled.kind.exchangeable:
        contrast = _contrast(curve(denoised[order]), -table.gap[order], w, y)
    model = LabelModel(curve, contrast, table.gap_level, ())
    if not labeled.kind.exchangeable:
        model = replace(model, misfit=_misfit(table, model.probability(denoised, table)))
    p = model.probability(denoised, table)
    extra = []
    for served in masses:
        here = table.at(served)
        weight, positives = (x[here] for x in table.row_weights())
        level = np.ones((1, len(weight)))
        base = np.asarray(logit(p[here]), np.float64)
        fit = fit_logistic(level, weight, positives, offset=base, prior_precision=np.array([_MASS_PRIOR**-2]))
        extra.append((served, table.width, float(fit.coefficients[0])))
    return replace(model, masses=tuple(extra))


def _misfit(table: ReplicaTable, probability: Array) -> Misfit:
    """Compare labels with the predicted probabilities by served score.

    Bootstraps show the noise of the served score, not another estimate of the truth. How much a row's own noise says
    about its truth is uncertain. The comparison makes predictions right on the labeled rows, whatever that noise says.
    """
    order = np.argsort(table.served, kind="stable")
    w, y = (x[order] for x in table.row_weights())
    implied = regress_on_served(table, probability)
    # Few labels do not determine a slope: the prior is the slope of the implied curve.
    direct = fit_smooth(table.served[order], w, y, slope=(implied.coefficients[1] / implied.spread, _SLOPE[1]))
    ends = direct.basis.knots[[0, -1]] * direct.spread + direct.center
    return Misfit(direct, implied, (float(ends[0]), float(ends[1])))


def _contrast(log_odds: Array, lead: Array, w: Array, y: Array) -> float:
    """Return the extra weight of the served score by one Newton step; 0 unless it is significant.

    The squared z must exceed 2 log(positives) + 4, more than the penalty of BIC, because the term is 0 for exchangeable
    replicas.
    """
    p = logistic(log_odds)
    information = w * p * (1 - p)
    c = lead - float(information @ lead / information.sum())
    total = float(information @ np.square(c))
    if total <= 1e-20 * float(information @ np.square(lead)):  # replicas that agree: the rest is rounding
        return 0.0
    value = float(c @ (y - w * p)) / total
    rarer = min(float(y.sum()), float((w - y).sum()))
    return value if value**2 * total > 2 * np.log(max(rarer, 3.0)) + 4 else 0.0


def shrink_pool_shift(pool: ReplicaTable, labeled: ReplicaTable, kind: ReplicaKind) -> ReplicaTable:
    """Shrink the difference between pool and labeled rows by the probability that it is real.

    Mean, spread and noise are compared one by one. Each differs with probability ½, by a normal of known size. The
    difference is multiplied by the probability that it is real, given the samples.
    """
    if len(pool.served_masses) or len(labeled.served_masses):  # floors and caps must stay where they are
        return pool
    (mine, my_errors), (theirs, their_errors) = (_moments(table, kind) for table in (pool, labeled))
    scale = np.array([float(np.exp(theirs[1])), 1.0, 1.0])
    difference, error = (mine - theirs) / scale, my_errors + their_errors
    if not (np.isfinite(difference).all() and (error > _ROUNDING).all()):  # replicas that are equal or all as far apart
        return pool
    chance = log_bayes_factor(difference, error, np.square(_SIZES))
    mean, spread, noise = theirs + logistic(-chance) * difference * scale
    noise_ratio = float(np.exp(noise - mine[2]))
    return replace(
        pool,
        served=mean + float(np.exp(spread - mine[1])) * (pool.served - mine[0]),
        gap=pool.gap_level + noise_ratio * (pool.gap - pool.gap_level),
        spread=noise_ratio**2 * pool.spread,
    )


def _moments(table: ReplicaTable, kind: ReplicaKind) -> tuple[Array, Array]:
    """Return mean, log standard deviation and log noise of a table, and their squared standard errors.

    The first error is in standard deviations of the score.
    """
    w = table.weight / table.weight.sum()
    x, variance = (clip_outliers(values, w) for values in (table.served, kind.summarize(table).variance))
    mean, noise = float(w @ x), float(w @ variance)
    square = np.square(x - mean)
    spread = float(w @ square)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.array([mean, 0.5 * np.log(spread), 0.5 * np.log(noise)])
        relative = [1.0, float(w @ np.square(square / spread - 1)) / 4, float(w @ np.square(variance / noise - 1)) / 4]
    return values, np.array(relative) / table.effective_rows
