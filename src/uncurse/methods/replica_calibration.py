"""Replica calibration: the labels of a served score, moved from the labeled rows to the pool.

The curve of the labels over the served score is right on the labeled rows. On another set of rows it is not: among rows
with lower true scores, a high served score owes more to luck. Replicas show by how much:

1. Estimate the true score of each row (`truth`). Pool and labeled rows have their own distributions of true scores and
   noise.
2. Fit the curve of P(y | true score) on the labeled rows, and average it at each served score: E[P(y | true score) |
   served score], once over the labeled rows and once over the pool.
3. Add the difference of the two log odds to those of the labels, as far as pool and labeled rows really differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.calibrators import fit_calibrator
from ..calibration.logistic import fit_logistic
from ..calibration.spline import SmoothCurve, fit_smooth, monotone_curve
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.histogram import ReplicaTable, clip_outliers, outlier_fences
from ..links import logistic
from ..maps import Affine, ScoreMap, Segmented, Steps, compose
from ..threads import one_blas_thread
from ..validation import warn_user
from .fitted import ReplicaMethod, Solution, check_labels_from
from .label_free import regress_on_served
from .noise import NO_NOISE, ReplicaKind, check_replicas, describe_extremes, replica_kind, served_lead
from .records import FitRecord
from .remaining_error import Estimate, TopShare, log_bayes_factor
from .shrinkage import shrink_towards
from .truth import TruthModel

_MIN_SEGMENT_ROWS = 2_000  # a segment of this size gets its own distribution of true scores
_Segments = dict[str, tuple[TruthModel, TruthModel]]  # the rows of each, and those whose distribution applies to it
MOVE_ERROR = 0.35  # of the move from labeled rows to pool, relative to it
# Denoised scores that vary by less than a tenth of the served scores are mostly the error of their own estimation.
_LEAST_SPREAD = 0.1


class ReplicaCalibrator(ReplicaMethod):
    """Correct scores using labels, after the noise that replicas show is taken off.

    The denoised scores are calibrated on the labeled rows. The result is expressed as a function of the served score.

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
        line, and ``shift_probability`` that pool and labeled rows differ.

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
        teacher: tuple[ArrayLike, ArrayLike] | None = None,
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
        teacher : tuple (pool, labeled) of array-like of shape (n,) and (m,), optional
            Scores of a teacher for pool and labeled rows, see `Auto.fit`.

        Returns
        -------
        ReplicaCalibrator
            Itself. If fitting fails, the previous fit is kept.
        """
        origin = check_labels_from(labeled, labels_from)
        evidence, rows = self._evidence(pool, labeled, segments, sample_weight, teacher)
        if rows is None or origin is None:
            raise UncurseError("labeled is missing; pass labeled=(scores, labels), or use VAD without labels")
        with one_blas_thread():
            self.fitted_ = calibrate_replicas(evidence, rows, replicas=self.replicas, labels_from=origin).fitted()
        return self


@dataclass(frozen=True)
class ReplicaCalibration(Estimate):
    """A fitted replica calibration: an estimate of the true rates on the pool, with its errors.

    `scaling` (slope and intercept) converts logits to log odds and is applied first; `pool` and `labeled` are rescaled
    by it, `table` is not. `winners` says whether the served score selected the labeled rows from the pool. `labels` is
    P(y | true score). `projection` gives its log odds by served score on the pool, `before` on the labeled rows, and
    `direct` those of the labels; for exchangeable replicas, whose noise is known, as a difference from `before`.
    `shift` is the probability that pool and labeled rows differ, and `move` the difference in log odds if they do. For
    exchangeable replicas that is the difference between `projection` and `before`.
    `segment_levels` are differences of log odds between the labels of a segment and `labels`, each with its standard
    error.
    """

    table: ReplicaTable
    scaling: tuple[float, float]
    pool: TruthModel
    labeled: TruthModel
    winners: bool
    labels: SmoothCurve
    projection: SmoothCurve
    before: SmoothCurve | None
    direct: SmoothCurve | None
    shift: float
    move: Callable[[Array], Array] | None = None
    segment_levels: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    teacher: Teacher | None = None

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        slope, intercept = self.scaling
        return self.of_scaled(slope * served + intercept)

    def of_scaled(self, x: Array) -> Array:
        """Return the estimated log odds at rescaled logits."""
        if self.before is None or self.direct is None:
            return np.asarray(self.projection(x))
        inside = np.clip(x, *self.direct.ends)
        by_replicas = self._of_labels(x)
        if self.pool.kind.exchangeable:
            moved = self.projection(x) + self._of_labels(inside) - self.before(inside)
            by_replicas = self.shift * moved + (1 - self.shift) * by_replicas
        elif self.move is not None:
            by_replicas = by_replicas + self.shift * self.move(x)
        if self.teacher is None or not self.teacher.weight:
            return np.asarray(by_replicas)
        by_teacher = self.teacher.pool(x) + self._of_labels(inside) - self.teacher.labeled(inside)
        return np.asarray((1 - self.teacher.weight) * by_replicas + self.teacher.weight * by_teacher)

    def _of_labels(self, x: Array) -> Array:
        """Return the log odds of the labels at rescaled logits."""
        assert self.before is not None
        assert self.direct is not None
        if self.pool.kind.exchangeable:
            return self.before(x) + self.direct(np.clip(x, *self.direct.ends))
        return self.direct(x)

    def map(self, move: tuple[float, float] = (0.0, 0.0)) -> ScoreMap:
        """Return the map of logits, changed by a level and a tilt of `projection`."""
        curve = self.projection.map()
        x = np.asarray(curve.x)
        level, tilt = move
        y = self.of_scaled(x) + level + tilt * (x - self.projection.center) / self.projection.spread
        curve = replace(monotone_curve(x, y), left=curve.left, right=curve.right)
        return curve if self.scaling == (1.0, 0.0) else compose(Affine(*self.scaling), curve, scale="logit")

    def log_error(self, top: TopShare) -> float:
        """Return the standard error of the log of predicted over true rate on the top share.

        It includes label noise, the move from labeled rows to pool, and the true rate among the selected rows.
        """
        cells = (x[..., top.cells] for x in self._cells)
        variance, by_replicas, unmoved, of_labels, of_pool = cells
        by_score, moved = self.rates[top.cells], 0.0
        if self.direct is None:
            by_label = top.squared_error(by_replicas, of_labels, self.labels.covariance)
        else:
            by_label = top.squared_error(by_score, of_labels, self.direct.covariance)
            moved = float(np.log(top.mean(by_score) / top.mean(unmoved)))
        by_pool = top.squared_error(by_score, of_pool, self.projection.covariance)
        sampling = top.sampling_error(by_replicas, by_score, variance)
        return float(np.sqrt(by_label + self.shift**2 * by_pool + sampling + np.square(MOVE_ERROR * moved)))

    def level_error(self, top: TopShare) -> tuple[float, int]:
        """Return the relative error due to level differences between labeled rows and pool, and its freedom."""
        if self.winners:  # levels differ because of the selection
            return 0.0, 1
        variance, freedom = self.pool.kind.level_variance(self.pool.table.levels - self.labeled.table.levels)
        return top.level_error(self.rates[top.cells], variance), freedom

    @cached_property
    def _cells(self) -> tuple[Array, ...]:
        """Posterior variance of each cell, rates by replicas and without the move, and features of curves."""
        x, (posterior, variance) = self.pool.table.served, self.pool.posterior_logit()
        by_replicas = np.asarray(logistic(self.labels(posterior)), np.float64)
        if self.direct is None:
            unmoved, of_labels = self.rates, self.labels.features(posterior)
        else:
            unmoved, of_labels = np.asarray(logistic(self._of_labels(x)), np.float64), self.direct.features(x)
        return variance, by_replicas, unmoved, of_labels, self.projection.features(x)


def calibrate_replicas(
    pool: Evidence,
    labeled: Evidence,
    *,
    replicas: str,
    labels_from: str,
    own_rows: bool = False,
    noise: float | None = None,
) -> Solution:
    """Fit to evidence of the candidate pool and of labeled rows.

    `own_rows` says that the labeled rows are those that the model was trained on, so their rate is no surprise, and the
    replicas were trained with it. `noise` is a known noise variance of the served score. The estimate is a
    `ReplicaCalibration`; None for scores that are no log odds.
    """
    kind, winners = replica_kind(replicas), labels_from == "winners"
    if pool.teacher is not None and (winners or not kind.served_is_a_column):
        raise UncurseError(
            f"a teacher is not for labels_from={labels_from!r} with replicas={replicas!r}; leave it out, or pass "
            "labels_from='elsewhere' and a served score in column 0"
        )
    # On grids of different widths, posteriors differ by several percent at the top although the rows are alike.
    level = max([part.replicas.level for part in (pool, labeled) if part.replicas is not None], default=0)
    table, rows = kind.table_of(pool, "pool", level), kind.table_of(labeled, "labeled rows", level)
    for each, name in ((table, "pool"), (rows, "labeled rows")):
        if np.ptp(each.served) <= 0:
            raise UncurseError(f"the served scores of the {name} are constant; pass rows whose scores differ")
    record = FitRecord.of("labels", pool, labeled, replicas=replicas, labels_from=labels_from)
    extremes = describe_extremes(table)
    if extremes and kind.served_is_a_column:
        steps = _isotonic(pool, labeled, replace(record, reason=extremes))
        if steps is not None:
            return steps
    scaling = fit_scaling(kind, rows)
    if not own_rows:  # otherwise the replicas were trained here
        check_replicas(kind, pool, table.rescaled(*scaling))
    if scaling[0] == 1.0 and scaling[1] > 0 and not own_rows:
        rate = pool.spec.negative_sampling_rate
        check = f"check negative_sampling_rate={rate}; " if rate not in (None, 1.0) else ""
        warn_user(
            f"the odds of the labels are {float(np.exp(min(scaling[1], 20.0))):.1f} times as high as the scores say; "
            f"{check}if the log keeps only a share of its negative rows, weight each row that it keeps by 1 / share"
        )
    # The same precision for both: the difference between them is what matters.
    least = min(table.effective_rows, rows.effective_rows)
    models = [TruthModel(each.rescaled(*scaling), replicas, least) for each in (table, rows)]
    if any(model.identical for model in models):
        warn_user(f"{NO_NOISE}; was the seed changed?")
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
        denoised, _ = of_labeled.posterior_logit()
    labels = fit_labels(of_labeled.table, denoised)
    of_truth = logistic(labels(of_pool.posterior_logit()[0]))
    projection = regress_on_served(of_pool.table, np.asarray(of_truth, np.float64))
    before, direct, shift, move = None, None, 1.0, None
    if not (winners and kind.exchangeable):
        before = regress_on_served(of_labeled.table, np.asarray(logistic(labels(denoised)), np.float64))
        # Only exchangeable replicas show how the curve bends. Bootstraps show the noise of the served score, not
        # another estimate of the truth: how much a row's noise says of its truth is uncertain.
        slope, offset = (0.0, before) if kind.exchangeable else (before.coefficients[1] / before.spread, None)
        direct = fit_labels(of_labeled.table, of_labeled.table.served, (slope, _SLOPE[1]), offset)
        shift = 1.0 if winners else shift_probability(of_pool.table, of_labeled.table, kind)
        if not (kind.exchangeable or winners):  # winners differ by their scores alone
            variance = (of_pool.served_noise + of_labeled.served_noise) / 2
            if noise is not None:
                variance = noise * scaling[0] ** 2
            move = move_of(of_pool, of_labeled, variance * float(labels.coefficients[1]) / labels.spread)
    teacher = None if winners else compare_by_teacher(pool.teacher, labeled.teacher, scaling)
    fit = ReplicaCalibration(
        table, scaling, of_pool, of_labeled, winners, labels, projection, before, direct, shift, move, teacher=teacher
    )
    if teacher is not None:
        reason = f"{reason}; {teacher.reason}" if reason else teacher.reason
    score_map = fit.map()
    if pool.segments:
        pools, rows_of = (
            _segment_models(part, whole, fit, level) for part, whole in ((pool, of_pool), (labeled, of_labeled))
        )
        fit = replace(fit, segment_levels=_segment_levels(rows_of, pools, fit))
        moves = _segment_moves(pools, fit)
        score_map = Segmented(score_map, {name: fit.map(move) for name, move in moves.items()})
    record = replace(
        record, reason=reason, line_probability=(direct or labels).line_probability, shift_probability=shift
    )
    return Solution(score_map, record, fit, of_labeled.table)


def _isotonic(pool: Evidence, labeled: Evidence, record: FitRecord) -> Solution | None:
    """Calibrate scores that are no log odds by isotonic regression, which needs their order alone.

    Return None if a line in the scores describes the log odds of the labels as well.
    """
    cells = labeled.served
    assert cells is not None
    assert cells.label is not None
    steps, line = fit_calibrator("isotonic", cells), None
    assert isinstance(steps, Steps)
    with suppress(UncurseError):  # a few scores that are far out can reverse the line
        line = fit_calibrator("platt", cells)
    if line is not None:
        curve, straight = (each.transform(cells.score) for each in (steps, line))
        gain = cells.label @ (curve - straight) - cells.weight @ (
            np.logaddexp(0.0, curve) - np.logaddexp(0.0, straight)
        )
        labels, total = float(cells.label.sum()), float(cells.weight.sum())
        rows = cells.effective_rows / total
        if rows * float(gain) < _BEND * (rows * min(labels, total - labels)) ** (1 / 3):
            return None
    # The slope inside the steps, however small, is too much for scores of any size.
    score_map: ScoreMap = replace(steps, slope=0.0)
    record = replace(
        record,
        reason=f"{record.reason}, too far out for log odds, so they are calibrated by isotonic regression",
        calibrator="isotonic",
        no_interval="the scores are no log odds",
    )
    return Solution(Segmented(score_map, {}) if pool.segments else score_map, record)


def _not_denoised(pool: TruthModel, labeled: TruthModel) -> str:
    """Return why the replicas do not tell noise from the truth; empty if they do.

    If they do not, the denoised scores hardly vary, compared with the served ones. Outliers do not count.
    """
    for model, name in ((pool, "the pool"), (labeled, "the labeled rows")):
        weight = model.table.weight
        served = np.cov(clip_outliers(model.table.served, weight), aweights=weight, ddof=0)
        if model.served_noise < served / 2 or served <= 0:  # most is no noise: no need to estimate a distribution
            continue
        denoised, _ = model.posterior_logit()
        if np.cov(clip_outliers(denoised, weight), aweights=weight, ddof=0) < _LEAST_SPREAD**2 * served:
            return (
                f"on {name} the replicas differ from each other about as much as the scores vary"
                f"{'' if model is pool else ', as is usual for winners'}, so they do not tell noise from the truth, "
                "and the map relies on the labels by score alone"
            )
    return ""


def _denoised_as_pool(labeled: TruthModel, pool: TruthModel) -> Array:
    """Denoise rows that the served score selected: given all replicas, their truth is distributed as on the pool."""
    return pool.posterior_logit(pool.kind.summarize(labeled.table, pool.summary.level))[0]


def _segment_models(evidence: Evidence, whole: TruthModel, fit: ReplicaCalibration, level: int) -> _Segments:
    """Return the replicas of each segment, on the grid of all rows, and the model that holds its true scores."""
    models = {}
    for name, part in evidence.segments.items():
        if part.replicas is not None:
            table = whole.kind.table_of(part, name, level).rescaled(*fit.scaling)
            own = TruthModel(table, whole.kind.name, None, whole.denoise)
            large = table.effective_rows >= _MIN_SEGMENT_ROWS and np.ptp(table.served) > 0
            models[name] = own, own if large else whole
    return models


def _segment_levels(labeled: _Segments, pool: _Segments, fit: ReplicaCalibration) -> dict[str, tuple[float, float]]:
    """Compare the labels of each segment with those of all rows: differences of log odds, and their standard errors."""
    levels = {}
    for name, (model, base) in labeled.items():
        if fit.winners:
            denoised = _denoised_as_pool(model, pool[name][1] if name in pool else fit.pool)
        else:
            denoised = base.posterior_logit(model.summary)[0]
        w, y = model.table.row_weights()
        log_odds = fit.labels(denoised)
        found = fit_logistic(np.ones((1, len(w))), w, y, offset=log_odds, prior_precision=np.ones(1))
        # The error of no difference: that of the estimate itself would be smaller where labels are many by chance.
        p = logistic(log_odds)
        levels[name] = float(found.coefficients[0]), float(w @ (p * (1 - p))) ** -0.5
    return levels


def _segment_moves(models: _Segments, fit: ReplicaCalibration) -> dict[str, tuple[float, float]]:
    """Return level and tilt by which the curve of each segment differs from that of the pool, shrunk towards 0.

    A segment differs by the noise of its scores, and by the level of its labels.
    """
    known = np.array(list(fit.segment_levels.values())).reshape(-1, 2)
    by_labels = dict(zip(fit.segment_levels, shrink_towards(0.0, known[:, 0], known[:, 1]).tolist(), strict=True))
    shifts = [by_labels.get(name, 0.0) for name in models]  # 0 for a segment without labels
    moves, errors = [], []
    for (model, base), shift in zip(models.values(), shifts, strict=True):
        table = model.table
        denoised, _ = base.posterior_logit(model.summary)
        target = logistic(fit.labels(denoised) + shift)
        w = table.row_weights()[0]
        z = (table.served - fit.projection.center) / fit.projection.spread
        features = np.stack([np.ones_like(z), z])
        log_odds = fit.projection(table.served) + shift
        # A weak prior keeps the fit of segments of one or two rows finite.
        moved = fit_logistic(features, w, w * target, offset=log_odds, prior_precision=np.full(2, 1e-9))
        p = logistic(log_odds + moved.coefficients @ features)
        # Probabilities vary less than labels.
        scatter = float(w @ np.square(target - p)) / max(float(w @ (p * (1 - p))), 1e-300)
        moves.append(moved.coefficients)
        errors.append(np.sqrt(np.maximum(np.diagonal(moved.covariance) * scatter, 1e-12)))
    if not models:
        return {}
    level, tilt = (shrink_towards(0.0, np.array(moves)[:, i], np.array(errors)[:, i]) for i in (0, 1))
    return {name: (float(level[i]) + shifts[i], float(tilt[i])) for i, name in enumerate(models)}


# ---------------------------------------------------------------------------- P(y | all replicas)

# Prior of the slope of the curve: scores are roughly log odds. Two hundred positives outweigh it.
_SLOPE = (1.0, 0.3)
# Scores are rescaled to log odds first if the labels show a slope outside ½ to 2 or a level off by 1.5, by more than
# four standard errors. The curve corrects smaller differences.
_FAR_SLOPE, _FAR_LEVEL, _FAR_ERRORS = 2.0, 1.5, 4.0
# Standard deviations of differences between pool and labeled rows, if there are any: of means (in standard deviations
# of the score), of the logarithm of the standard deviation of the score, and of that of the noise.
_SIZES = np.array([0.3, 0.1, 0.1])
# With n labels of the rarer class, the log likelihood of isotonic regression exceeds that of the right line by about
# 2 ∛n; a larger difference shows a bend.
_BEND = 3.5
_STEEPEST = 3.0  # typical change of the log ratio of two densities over a standard deviation, if rows differ very much
_ROUNDING = 1e-20  # a smaller squared standard error is 0 up to rounding, which depends on the order of rows


def fit_scaling(kind: ReplicaKind, labeled: ReplicaTable) -> tuple[float, float]:
    """Return slope and intercept that convert scores to log odds; (1, 0) unless labels show that they are far off."""
    (w, y), mean = labeled.row_weights(), kind.summarize(labeled).mean
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


def fit_labels(
    table: ReplicaTable,
    score: Array,
    slope: tuple[float, float] = _SLOPE,
    offset: Callable[[Array], Array] | None = None,
) -> SmoothCurve:
    """Fit the curve of the labels over a score; few labels do not determine its slope, which has a prior."""
    order = np.argsort(score, kind="stable")
    w, y = (x[order] for x in table.row_weights())
    return fit_smooth(score[order], w, y, slope=slope, offset=offset)


def shift_probability(pool: ReplicaTable, labeled: ReplicaTable, kind: ReplicaKind) -> float:
    """Return the probability that pool and labeled rows differ by more than chance.

    Mean, spread and noise are compared. All are the same with probability ½; otherwise each differs by a normal of
    known size.
    """
    values, errors = np.empty((2, 3)), np.empty((2, 3))  # mean, log standard deviation and log noise of both
    for i, table in enumerate((pool, labeled)):
        w = table.weight / table.weight.sum()
        x, variance = (clip_outliers(column, w) for column in (table.served, kind.summarize(table).variance))
        mean, noise = float(w @ x), float(w @ variance)
        square = np.square(x - mean)
        spread = float(w @ square)
        with np.errstate(divide="ignore", invalid="ignore"):
            values[i] = mean, 0.5 * np.log(spread), 0.5 * np.log(noise)
            relative = (float(w @ np.square(part - 1)) / 4 for part in (square / spread, variance / noise))
            errors[i] = np.array([1.0, *relative]) / table.effective_rows  # squared, of means in standard deviations
    difference = (values[0] - values[1]) / np.array([np.exp(values[1, 1]), 1.0, 1.0])
    error = errors.sum(axis=0)
    known = np.isfinite(difference) & (error > _ROUNDING)  # replicas that are equal have no noise to compare
    factor = log_bayes_factor(difference[known], error[known], np.square(_SIZES[known]))
    return float(logistic(-np.asarray(factor.sum())))


def move_of(pool: TruthModel, labeled: TruthModel, scale: float) -> Callable[[Array], Array] | None:
    """Return the difference in log odds between pool and labeled rows, as a function of the served score.

    With normal noise of variance V, the mean true score at a served score is that score plus V times the derivative of
    the log density (Tweedie's formula). So the difference is V times the derivative of the log of the ratio of the two
    densities, which is a smooth curve. `scale` is V times the slope of the log odds of the labels on the true score.
    None if the replicas do not tell noise from the truth.
    """
    if not (pool.denoise and labeled.denoise):
        return None
    score = np.append(pool.table.served, labeled.table.served)
    weight = np.append(pool.table.row_weights()[0], labeled.table.row_weights()[0])
    of_pool = np.where(np.arange(len(score)) < len(pool.table.served), weight, 0.0)
    order = np.argsort(score, kind="stable")
    flat = 0.0, _STEEPEST / float(np.sqrt(np.cov(score, aweights=weight, ddof=0)))
    ratio = fit_smooth(score[order], weight[order], of_pool[order], slope=flat, offset=np.zeros_like)
    return lambda x: scale * ratio.slope(x)


# ---------------------------------------------------------------------------- the teacher
#
# Replicas show noise, not what the served model's class cannot express. Suppose that at the same served score the
# candidates are worse than the labeled rows, in a way that the served model misses. The scores t of a teacher, a model
# of another class, differ there: Δ(s) = logit E_pool[t | s] − logit E_labeled[t | s].

# Prior standard deviation of the difference in the teacher's score at the same served score, if there is one.
_TEACHER_SIZE = 0.3
_SAME = 1e-9  # part of the variance of the teacher's scores that is rounding


@dataclass(frozen=True)
class Teacher:
    """What a teacher shows of the difference between pool and labeled rows.

    `pool` and `labeled` are the log odds of the mean teacher score by served score. `weight` is the part of the
    difference between pool and labeled rows that lies in the teacher's score, given the served score, times the
    probability that there is one.
    """

    pool: SmoothCurve
    labeled: SmoothCurve
    weight: float
    reason: str  # its part in the map, in words


def compare_by_teacher(pool: Evidence | None, labeled: Evidence | None, scaling: tuple[float, float]) -> Teacher | None:
    """Return what the teacher shows; its weight is 0 unless its log loss is lower than that of the served score.

    `scaling` (slope and intercept) converts served logits to log odds.
    """
    if pool is None or labeled is None or pool.replicas is None or labeled.replicas is None:
        return None
    level = max(pool.replicas.level, labeled.replicas.level)
    curves, losses = [], np.zeros(2)
    for part in (pool, labeled):
        assert part.replicas is not None
        table = part.replicas.coarsened(level).table()
        teacher = table.served + table.gap
        w, y = table.row_weights()
        if part is labeled:
            served = scaling[0] * table.served + scaling[1]
            losses = np.array([w @ np.logaddexp(0.0, x) - y @ x for x in (teacher, served)]) / w.sum()
        curves.append(regress_on_served(table.rescaled(*scaling), np.asarray(logistic(teacher), np.float64)))
    mine, theirs = pool.moments, labeled.moments
    covariance: Array = (mine.covariance + theirs.covariance) / 2
    difference = mine.mean - theirs.mean
    slope = covariance[0, 1] / covariance[0, 0]
    residual = covariance[1, 1] - slope * covariance[0, 1]
    words = f"log loss {losses[0]:.4g}, served {losses[1]:.4g}"
    if not losses[0] < losses[1] or residual <= _SAME * covariance[1, 1]:
        reason = f"the teacher does not predict better than the served model ({words}), so it is not used"
        return Teacher(curves[0], curves[1], 0.0, reason)
    # The part of the difference that lies in the teacher's score, given the served score, is its share of the linear
    # discriminant of pool against labeled rows, in logits of both scores.
    left = difference[1] - slope * difference[0]
    teacher = left / residual
    served = (difference[0] - covariance[0, 1] * teacher) / covariance[0, 0]
    # A served part of the opposite sign only says that the teacher's scores differ from those that go with the served.
    share = abs(teacher) / (abs(teacher) + max(served * np.sign(teacher), 0.0))
    variance = residual * (1 / mine.effective_rows + 1 / theirs.effective_rows)
    factor = log_bayes_factor(left, variance, residual * _TEACHER_SIZE**2)
    weight = float(share * logistic(-np.asarray(factor)))
    reason = f"the teacher ({words}) explains {100 * weight:.0f}% of the difference between pool and labels"
    return Teacher(curves[0], curves[1], weight, reason)
