"""Tower calibration: calibrate all replicas where there are labels, then project on the served score over the pool.

    P(y | served) = E[ P(y | all replicas) | served ]    over the pool

1. Estimate E[φ(t) | replicas] for each row (`latent_scores`). Pool and labelled rows have their own distributions of
   true scores and noise, so that the estimates are comparable although the rows differ.
2. On labelled rows, fit the curve of P(y) over that estimate: a line, or a smooth curve if the labels support it.
3. On the pool, fit the mean of that probability given the served score alone: a monotone map of one score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.logistic import fit_logistic
from ..calibration.spline import SmoothCurve
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import labelled_evidence
from ..evidence.replica_cells import ReplicaCells, clip_outliers
from ..links import logistic, logit
from ..maps import Affine, Grouped, ScoreMap, compose
from ..threads import one_blas_thread
from ..validation import warn_user
from .base import Fitted, ReplicaDebiaser
from .free_shape import project
from .label_model import LabelModel, fit_labels, fit_scaling
from .label_selection import denoised_as_pool, selected_by_served
from .latent_scores import ReplicaModel
from .records import DataRecord, FitRecord
from .remaining_error import TopShare, relative_level_error
from .replica_kinds import replica_kind, warn_if_unlike
from .shift import without_chance
from .shrinkage import shrink_towards

_MIN_GROUP_ROWS = 2_000  # a group of this size gets its own distribution of true scores
# Denoised scores that vary by less than a tenth of the served scores are mostly the error of their own estimation.
_LEAST_SPREAD = 0.1
_COUNTS = "collect it with replica_counts=True"


class Tower(ReplicaDebiaser):
    """Calibrate all replicas on labelled rows, and project the result on the served score over the pool.

    Parameters
    ----------
    scale : {"logit", "probability"}, default="logit"
        Scale of the scores.
    replicas : {"seeds", "bootstrap", "anchored", "ensemble", "snapshots"}, default="seeds"
        How the score columns are related, see `VAD`.
    negative_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it. Labelled rows must have their natural
        rate.
    selected_by : {"auto", "served", "other"}, default="auto"
        What selected the labelled rows: the served score, from this pool; or anything else, such as an earlier model or
        chance. ``"auto"`` detects it, with a warning if it was the served score. Bootstraps show it less clearly than
        seeds: name it if you know it.

    Attributes
    ----------
    map_ : ScoreMap
        Fitted map of the served score.
    curve_ : SmoothCurve
        Log odds of a positive by denoised score, fitted on the labelled rows.
    line_probability_ : float
        Probability that this curve is a straight line.
    contrast_ : float
        Extra weight of the served score relative to its replicas; 0 unless labels show it clearly.
    record_ : FitRecord
        How the map was fitted.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def replicas(mean, rows):
    ...     truth = rng.normal(mean, 0.8, rows)
    ...     return truth, truth[:, None] + rng.normal(0, 0.4, (rows, 2))
    >>> truth, scores = replicas(-1.5, 50_000)
    >>> clicks = rng.random(50_000) < logistic(truth)
    >>> pool_truth, pool = replicas(-2.0, 50_000)  # candidates differ from the labelled rows
    >>> tower = Tower().fit(pool, labelled=(scores, clicks))
    >>> top = pool[:, 0] > np.quantile(pool[:, 0], 0.95)
    >>> before, after = logistic(pool[top, 0]).mean(), tower.predict_proba(pool[top, 0]).mean()
    >>> true = logistic(pool_truth[top]).mean()
    >>> bool(before > 1.2 * true), bool(abs(after / true - 1) < 0.05)
    (True, True)
    """

    curve_: SmoothCurve
    line_probability_: float
    contrast_: float

    def __repr__(self) -> str:
        text = super().__repr__()
        if hasattr(self, "map_") and self.record_.labelled is not None:
            text += f" of {self.record_.labelled.rows:,} labelled and {self.record_.pool.rows:,} pool rows"
        return text

    def fit(
        self,
        pool: ArrayLike | Evidence,
        *,
        labelled: tuple[ArrayLike, ...] | Evidence,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Tower:
        """Fit to a sample of the candidate pool and to labelled rows.

        Parameters
        ----------
        pool : array-like of shape (n, S), or Evidence
            Replica scores, the served one in column 0.
        labelled : tuple (scores, labels) or (scores, labels, weights), or Evidence
            Labelled rows, scored by every replica. An earlier model may have selected them, or the served score from
            this pool (see `selected_by`); not the mean of these replicas. The models were not trained on them.
        groups : array-like of shape (n,), optional
            Group of each pool row. Each group gets its own map, shrunk towards that of the pool. If `labelled` is
            evidence with groups, the labels of a group correct its level.
        sample_weight : array-like of shape (n,), optional
            Weights of pool rows; only their ratios matter.

        Returns
        -------
        Tower
            Itself. If fitting fails, the previous fit is kept.
        """
        evidence = self._pool_evidence(pool, labelled, groups, sample_weight)
        rows = labelled_evidence(labelled, evidence, replica_counts=True)
        with one_blas_thread():
            fitted = fit_tower(evidence, rows, replicas=self.replicas, selected_by=self.selected_by)
        self._set(fitted)
        assert isinstance(fitted.remaining, TowerFit)
        self.curve_, self.contrast_ = fitted.remaining.labels.curve, fitted.remaining.labels.contrast
        self.line_probability_ = self.curve_.line_probability
        return self


@dataclass(frozen=True)
class TowerFit:
    """A fitted tower: an estimate of the true rates on the pool, with its errors.

    `scaling` (slope and intercept) converts logits to log odds and is applied first; `pool` and `labelled` are rescaled
    by it, `cells` are not. `selected` says whether the served score selected the labelled rows from the pool. `labels`
    is P(y | all replicas), and `projection` gives the log odds by served score. `group_levels` are differences of log
    odds between the labels of a group and `labels`, each with its standard error.
    """

    cells: ReplicaCells
    scaling: tuple[float, float]
    pool: ReplicaModel
    labelled: ReplicaModel
    selected: bool
    labels: LabelModel
    projection: SmoothCurve
    group_levels: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def log_odds(self, served: Array) -> Array:
        """Return the estimated log odds at served logits."""
        slope, intercept = self.scaling
        return np.asarray(self.projection(slope * served + intercept))

    def log_error(self, alpha: float) -> float:
        """Return the standard error of the log of predicted over true rate on the top share.

        It includes label noise, the projection, the true rate among the selected rows, and the distributions of true
        scores of pool and labelled rows.
        """
        top = TopShare(self.cells, alpha)
        served = self.pool.cells.served[top.cells]
        denoised, variance = (x[top.cells] for x in self._posterior)
        by_score, by_replicas = logistic(self.log_odds(self.cells.served[top.cells])), self._by_replicas[top.cells]
        curve = self.labels.curve
        by_label = top.squared_error(by_replicas, curve.features(denoised), curve.covariance)
        by_pool = top.squared_error(by_score, self.projection.features(served), self.projection.covariance)
        sampling = top.sampling_error(by_replicas, by_score, variance)
        drawn = [np.log(top.mean(p[top.cells])) for p in self._resampled]
        return float(np.sqrt(by_label + by_pool + sampling + (np.var(drawn, ddof=1) if drawn else 0.0)))

    def level_error(self, alpha: float) -> tuple[float, int]:
        """Return the relative error due to level differences between labelled rows and pool, and its freedom."""
        if self.selected:  # levels differ because of the selection
            return 0.0, 1
        top = TopShare(self.cells, alpha)
        variance, freedom = self.pool.kind.level_variance(self.pool.cells.levels - self.labelled.cells.levels)
        return relative_level_error(top, self.log_odds(self.cells.served[top.cells]), variance), freedom

    @cached_property
    def _posterior(self) -> tuple[Array, Array]:
        return self.pool.posterior_logit(self.pool.latent)

    @cached_property
    def _by_replicas(self) -> Array:
        return self.labels.probability(self._posterior[0], self.pool.cells)

    @cached_property
    def _resampled(self) -> list[Array]:
        """P(y | all replicas) of the pool with distributions of true scores from bootstrap samples."""
        denoised = [self.pool.posterior_logit(latent)[0] for latent in self.pool.resampled]
        if not self.selected and self.labelled.latent is not None:
            before = self.labelled.posterior_logit(self.labelled.latent)[0]
            weight = self.labelled.cells.weight
            for i, latent in enumerate(self.labelled.resampled[: len(denoised)]):
                # The curve shifts with the labelled rows.
                after = self.labelled.posterior_logit(latent)[0]
                denoised[i] = denoised[i] - np.interp(denoised[i], *_mean_moves(before, after, weight))
        return [self.labels.probability(x, self.pool.cells) for x in denoised]


def fit_tower(pool: Evidence, labelled: Evidence, *, replicas: str, selected_by: str = "auto") -> Fitted:
    """Fit a tower to evidence of the candidate pool and of labelled rows, both with replica counts.

    `selected_by` says what selected the labelled rows, see `Tower`.
    """
    kind = replica_kind(replicas)
    warn_if_unlike(kind, pool.moments)
    counts = [evidence.require("replica_counts", _COUNTS) for evidence in (pool, labelled)]
    # On grids of different widths, posteriors differ by several percent at the top although the rows are alike.
    level = max(each.level for each in counts)
    cells, rows = (kind.cells(each.coarsened(level)) for each in counts)
    for part, name in ((cells, "pool"), (rows, "labelled rows")):
        if np.ptp(part.served) <= 0:
            raise UncurseError(f"the served scores of the {name} are constant; pass rows whose scores differ")
    scaling = fit_scaling(ReplicaModel(rows, replicas))
    if scaling[0] == 1.0 and scaling[1] > 0:  # scores of a model that was trained on sampled rows would be too high
        rate = pool.spec.negative_rate
        check = f"check negative_rate={rate}; " if rate not in (None, 1.0) else ""
        times = float(np.exp(min(scaling[1], 20.0)))
        warn_user(
            f"the odds of the labels are {times:.1f} times as high as the scores say; {check}if the log keeps only a "
            "share of its negative rows, weight each row that it keeps by 1 / share"
        )
    # The same precision for both: the difference between them is what matters.
    least = min(cells.effective_rows, rows.effective_rows)
    pool_model = ReplicaModel(cells.rescaled(*scaling), replicas, least)
    labelled_model = ReplicaModel(rows.rescaled(*scaling), replicas, least)
    if pool_model.identical or labelled_model.identical:
        warn_user("the replicas are identical, so they show no noise; was the seed changed?")
    reason = ""
    flat_pool = _is_flat(pool_model)
    if flat_pool or _is_flat(labelled_model):
        reason = (
            f"on the {'pool' if flat_pool else 'labelled rows'} the replicas differ from each other about as much as "
            f"the scores vary{'' if flat_pool else ', as is usual for winners'}, so they do not tell noise from the "
            "truth, and the map relies on the labels by score alone"
        )
        pool_model, labelled_model = (
            ReplicaModel(model.cells, replicas, least, denoise=False) for model in (pool_model, labelled_model)
        )
    selected = selected_by == "served"
    if selected_by == "auto":
        selected = selected_by_served(pool, labelled, (pool_model, labelled_model))
    if selected:
        denoised = denoised_as_pool(labelled_model, pool_model)
    else:
        alike = without_chance(pool_model.cells, labelled_model.cells, kind)
        pool_model = ReplicaModel(alike, replicas, least, pool_model.denoise)
        denoised, _ = labelled_model.posterior_logit(labelled_model.latent)
    labels = fit_labels(labelled_model, denoised)
    by_replicas = labels.probability(pool_model.posterior_logit(pool_model.latent)[0], pool_model.cells)
    projection = project(pool_model.cells, by_replicas)
    fit = TowerFit(cells, scaling, pool_model, labelled_model, selected, labels, projection)
    slope, intercept = scaling
    offset = pool.spec.logit_offset
    first = Affine(slope, intercept + slope * offset)
    steps = [first] if (first.slope, first.intercept) != (1.0, 0.0) else []

    def composed(curve: SmoothCurve) -> ScoreMap:
        return compose(*steps, curve.map(), scale=pool.spec.scale)

    score_map = composed(projection)
    if pool.groups:
        of_pool, of_labelled = (_group_models(evidence, fit, level) for evidence in (pool, labelled))
        fit = replace(fit, group_levels=_group_levels(of_labelled, of_pool, fit))
        score_map = Grouped(score_map, {name: composed(c) for name, c in _group_curves(of_pool, fit).items()})
    record = FitRecord(
        "tower",
        DataRecord.of(pool),
        DataRecord.of(labelled),
        reason=reason,
        scale=pool.spec.scale,
        replicas=replicas,
        negative_rate=pool.spec.negative_rate,
        group=pool.spec.group,
        line_probability=labels.curve.line_probability,
        contrast=labels.contrast,
        selected_by="served" if selected else "other",
    )
    return Fitted(score_map, record, fit, selected=rows if selected else None)


def _is_flat(model: ReplicaModel) -> bool:
    """Return whether the denoised scores hardly vary, compared with the served ones. Outliers do not count."""
    weight = model.cells.weight

    def spread(scores: Array) -> float:
        return float(np.sqrt(np.cov(clip_outliers(scores, weight), aweights=weight, ddof=0)))

    served = spread(model.cells.served)
    if model.served_noise < served**2 / 2 or served <= 0:  # most of it is no noise: no need to estimate a distribution
        return False
    return spread(model.posterior_logit(model.latent)[0]) < _LEAST_SPREAD * served


def _group_models(evidence: Evidence, fit: TowerFit, level: int) -> dict[str, ReplicaModel]:
    """Return the replicas of each group, on the grid of all rows."""
    counts = {name: part.replica_counts for name, part in evidence.groups.items()}
    kind = fit.pool.kind
    return {
        name: ReplicaModel(kind.cells(each.coarsened(level)).rescaled(*fit.scaling), kind.name, None, fit.pool.denoise)
        for name, each in counts.items()
        if each is not None
    }


def _is_large(model: ReplicaModel) -> bool:
    """Return whether a group gets its own distribution of true scores."""
    return bool(model.cells.effective_rows >= _MIN_GROUP_ROWS and np.ptp(model.cells.served) > 0)


def _group_levels(
    labelled: dict[str, ReplicaModel], pool: dict[str, ReplicaModel], fit: TowerFit
) -> dict[str, tuple[float, float]]:
    """Compare the labels of each group with those of all rows: differences of log odds, and their standard errors."""
    levels = {}
    for name, model in labelled.items():
        if fit.selected:
            own = pool.get(name)
            denoised = denoised_as_pool(model, own if own is not None and _is_large(own) else fit.pool)
        else:
            denoised = model.posterior_logit(model.latent if _is_large(model) else fit.labelled.latent)[0]
        w, y = model.cells.row_weights()
        base = np.asarray(logit(fit.labels.probability(denoised, model.cells)), np.float64)
        # A weak prior keeps the level of labels of one class finite.
        found = fit_logistic(np.ones((1, len(w))), w, y, offset=base, prior_precision=np.full(1, 0.01))
        levels[name] = float(found.coefficients[0]), float(np.sqrt(found.covariance[0, 0]))
    return levels


def _group_curves(models: dict[str, ReplicaModel], fit: TowerFit) -> dict[str, SmoothCurve]:
    """Shift and tilt the curve of the pool for each group, shrunk towards no change.

    A group differs by the noise of its scores, and by the level of its labels.
    """
    known = np.array(list(fit.group_levels.values())).reshape(-1, 2)
    by_labels = dict(zip(fit.group_levels, shrink_towards(0.0, known[:, 0], known[:, 1]).tolist(), strict=True))
    shifts = [by_labels.get(name, 0.0) for name in models]  # 0 for a group without labels
    moves, errors = [], []
    for model, shift in zip(models.values(), shifts, strict=True):
        cells = model.cells
        denoised, _ = model.posterior_logit(model.latent if _is_large(model) else fit.pool.latent)
        target = logistic(logit(fit.labels.probability(denoised, cells)) + shift)
        w = cells.row_weights()[0]
        z = (cells.served - fit.projection.center) / fit.projection.spread
        features = np.stack([np.ones_like(z), z])
        base = fit.projection(cells.served) + shift
        # A weak prior keeps the fit of groups of one or two rows finite.
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
