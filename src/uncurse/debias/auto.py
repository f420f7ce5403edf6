"""Choose a method from the evidence, and state why."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.logistic import fit_logistic
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import labelled_evidence
from ..evidence.replica_cells import ReplicaCells, outlier_fences
from ..links import logistic
from ..maps import Affine, compose
from ..threads import one_blas_thread
from .averaging import Averaged, average_maps, mixed_log_odds
from .base import Fitted, ReplicaDebiaser
from .free_shape import FreeShape, LabelFree, LabelFreeAverage, Parametric, lines_of
from .latent_scores import ReplicaModel
from .remaining_error import SHARES, TopShare, compared_shares, log_bayes_factor
from .replica_kinds import replica_kind
from .shrinkage import identical_replicas, lambda_error
from .tower import TowerFit, fit_tower
from .vad_fit import VADOptions, fit_vad, label_free

_NEGLIGIBLE = 0.002  # a correction below 0.2% everywhere is not worth a map
# Prior of the label-free map: right with probability ½, otherwise off by a level and a slope with standard deviation
# 0.2. On real logs label-free maps are rarely right, and labels deserve more weight than in worlds of pure noise.
_PRIOR, _WRONG_LEVEL, _WRONG_SLOPE = 0.5, 0.2, 0.2
_WRONG_ERROR = 0.1  # error on the top of a label-free map that is wrong
_RULED_OUT = 0.05  # probability below which the labels rule a map out
_LEAST_WEIGHT = 0.01  # a smaller weight in an average is not worth a larger map
_LEAST_LAMBDA = 0.01
_MAX_OUTLIERS = 0.02  # largest share of outliers in the predictions on the top 1%
_Z_CORRECTION = 2.0  # standard errors that a correction must exceed


class Auto(ReplicaDebiaser):
    """Choose a method from the evidence and fit it.

    Without labels this is VAD with curvature, its free shape if replicas show that one λ is not enough, or their
    average. With labels it is the average of that map and `Tower`, weighted by the probability that the label-free map
    is right, given the labels. If the noise of the replicas is negligible, scores are not changed.

    Parameters
    ----------
    scale : {"logit", "probability"}, default="logit"
        Scale of the scores.
    replicas : {"seeds", "bootstrap", "anchored", "ensemble", "snapshots"}, default="seeds"
        How the score columns are related, see `VAD`.
    negative_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it.
    selected_by : {"auto", "served", "other"}, default="auto"
        What selected the labelled rows, see `Tower`.

    Attributes
    ----------
    method_ : str
        Chosen method: "nothing", "vad with curvature", "free", "tower" or "average".
    reason_ : str
        Why it was chosen, and the weights of an average.
    map_ : ScoreMap
        Fitted map of the served score.
    record_ : FitRecord
        How the map was fitted.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pool = rng.normal(-2, 0.8, 50_000)[:, None] + rng.normal(0, 0.3, (50_000, 3))
    >>> Auto().fit(pool).method_
    'vad with curvature'
    """

    method_: str
    reason_: str

    def __repr__(self) -> str:
        chosen = f" chose {self.method_}: {self.reason_}" if hasattr(self, "map_") else ""
        return super().__repr__() + chosen

    def fit(
        self,
        pool: ArrayLike | Evidence,
        *,
        labelled: tuple[ArrayLike, ...] | Evidence | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Auto:
        """Fit to a sample of the candidate pool and, optionally, to labelled rows.

        Parameters
        ----------
        pool : array-like of shape (n, S), or Evidence
            Replica scores, the served one in column 0.
        labelled : tuple (scores, labels) or (scores, labels, weights), or Evidence
            Labelled rows, scored by every replica, see `Tower.fit`. Not rows that the models were trained on.
        groups : array-like of shape (n,), optional
            Group of each pool row.
        sample_weight : array-like of shape (n,), optional
            Weights of pool rows; only their ratios matter.

        Returns
        -------
        Auto
            Itself. If fitting fails, the previous fit is kept.
        """
        evidence = self._pool_evidence(pool, labelled, groups, sample_weight)
        rows = None if labelled is None else labelled_evidence(labelled, evidence, replica_counts=True)
        with one_blas_thread():
            fitted = fit_auto(evidence, rows, replicas=self.replicas, selected_by=self.selected_by)
        self._set(fitted)
        self.method_, self.reason_ = fitted.record.method, fitted.record.reason
        return self


def count_whole_models(auto: Auto, scores: Evidence) -> None:
    """Let the intervals count level and slope of whole models, which `scores` are of.

    In cross-fitting, a column holds the scores of several models, whose errors average out.
    """
    lines, remaining = lines_of(scores.moments), auto._remaining
    if isinstance(remaining, LabelFree):
        auto._remaining = replace(remaining, lines=lines)
    elif isinstance(remaining, Averaged) and isinstance(remaining.first, LabelFree):
        auto._remaining = replace(remaining, first=replace(remaining.first, lines=lines))


def fit_auto(pool: Evidence, labelled: Evidence | None, *, replicas: str, selected_by: str = "auto") -> Fitted:
    """Choose and fit a method; its record holds method and reason. Both kinds of evidence need replica counts."""
    if labelled is None:
        counts = pool.require("replica_counts", "collect it with replica_counts=True")
        return _fit_label_free(pool, ReplicaModel(replica_kind(replicas).cells(counts), replicas), labels=False)
    tower = fit_tower(pool, labelled, replicas=replicas, selected_by=selected_by)
    fit = tower.remaining
    assert isinstance(fit, TowerFit)
    if not fit.pool.denoise:  # the record says why
        return tower
    problem = _problem_of_scores(fit.cells)
    if fit.scaling != (1.0, 0.0):
        problem = "the labels show that the scores are far from log odds"
    if problem:
        return replace(tower, record=replace(tower.record, reason=f"{problem}, so they are calibrated"))
    base = _fit_label_free(pool, ReplicaModel(fit.cells, replicas), labels=True)
    found = _compare_with_labels(base, fit)
    name, percent = base.record.method, 100 * found.weight
    described = "average of vad with curvature and free" if name == "average" else name
    # Scores that need no map get none: an average would only add the noise of the labels.
    if found.weight > 1 - _LEAST_WEIGHT or (name == "nothing" and found.weight >= 0.5):
        support = f"{found.rarer:,.0f} labels of the rarer class support it (weight {percent:.0f}%)"
        reason = f"{base.record.reason}; {support}"
        record = replace(base.record, reason=reason, labelled=tower.record.labelled)
        return replace(base, record=replace(record, selected_by=tower.record.selected_by), selected=tower.selected)
    if found.weight < _LEAST_WEIGHT or name == "nothing" or base.remaining is None:
        reason = f"the labels are more precise than the label-free map ({described}), so it is not used"
        if found.cause:
            reason = f"the labels contradict the label-free map ({described}), so it is not used: {found.cause}"
        return replace(tower, record=replace(tower.record, reason=reason))
    score_map = average_maps(base.map, tower.map, found.weight, fit.cells, pool.spec.logit_offset)
    reason = f"by the labels, the label-free map ({described}) has a weight of {percent:.0f}% and tower "
    reason += f"{100 - percent:.0f}%"
    reason += f"; {found.cause}" if found.weight < 0.5 and found.cause else ""
    record = replace(tower.record, method="average", reason=reason, lambda_=base.record.lambda_)
    return Fitted(score_map, record, Averaged(base.remaining, fit, found.weight), selected=tower.selected)


def _problem_of_scores(cells: ReplicaCells) -> str:
    """Describe a cap or outliers that make label-free maps unreliable on the top; empty if there are none."""
    if cells.cap:
        return f"{cells.cap}, which hides the noise there"
    alpha = max(SHARES[0], 1 / cells.effective_rows)
    top = TopShare(cells, alpha)
    served, p = cells.served[top.cells], logistic(cells.served[top.cells])
    share = top.mean(p * (served > outlier_fences(cells.served, cells.weight)[1])) / top.mean(p)
    if share <= _MAX_OUTLIERS:
        return ""
    return f"outliers make up {100 * share:.1f}% of the predictions on the top {100 * alpha:g}%"


def _fit_label_free(pool: Evidence, model: ReplicaModel, *, labels: bool) -> Fitted:
    """Choose between no change, VAD with curvature, and its free shape."""
    spec = pool.spec
    options = VADOptions(
        scale=spec.scale,
        link=spec.link,
        replicas=model.kind.name,
        curvature=True,
        negative_rate=spec.negative_rate,
        lambda_floor=0.0,
    )
    with warnings.catch_warnings():
        if labels:  # which decide what to do if λ is too low
            warnings.simplefilter("ignore", UserWarning)
        vad = fit_vad(replace(pool, replica_counts=None), None, options)
    identity = compose(Affine(1.0, options.offset), scale=spec.scale)

    def nothing(reason: str, remaining: LabelFree | None) -> Fitted:
        return Fitted(identity, replace(vad.record, method="nothing", reason=reason), remaining, reason)

    if model.identical or identical_replicas(vad.record.noise_variance or 0.0, vad.record.score_variance or 0.0):
        return nothing("the replicas are identical, so they show no noise", None)
    chosen = label_free(model, model.kind.evidence(pool).moments, options)
    known = chosen.parametric if isinstance(chosen, LabelFreeAverage) else chosen  # λ has the smaller error
    if max(_correction(known, alpha) for alpha in SHARES) < _Z_CORRECTION:
        return nothing("the correction is smaller than its standard error", chosen)
    one = f"one λ = {vad.record.lambda_:.3f}"
    if isinstance(chosen, Parametric) or pool.groups:
        reason = f"{one} describes the replicas"
        if not isinstance(chosen, Parametric):
            reason = "one λ for each group; the shape of noise is not examined by group"
        return Fitted(vad.map, replace(vad.record, method="vad with curvature", reason=reason), chosen)
    free = chosen.free if isinstance(chosen, LabelFreeAverage) else chosen
    assert isinstance(free, FreeShape)
    free_map = options.composed(free.map())
    if isinstance(chosen, LabelFreeAverage):
        score_map = average_maps(vad.map, free_map, chosen.weight, model.cells, spec.logit_offset)
        percent = 100 * chosen.weight
        reason = f"{one} may describe the replicas: vad with curvature has a weight of {percent:.0f}% and "
        record = replace(vad.record, method="average", reason=f"{reason}free {100 - percent:.0f}%")
        return Fitted(score_map, record, chosen)
    reason = f"noise differs from row to row, or scores have heavy tails: {one} does not describe the replicas"
    record = replace(vad.record, method="free", reason=reason, curvature=False, shape="free")
    return Fitted(free_map, record, free)


def _correction(estimate: LabelFree, alpha: float) -> float:
    """Return the change of predictions on the top share in standard errors, or in units of half of 0.2%."""
    if alpha * estimate.cells.effective_rows < 1:
        return 0.0
    top = TopShare(estimate.cells, alpha)
    before = top.log_mean(estimate.cells.served[top.cells])
    return abs(before - estimate.log_mean(alpha)) / max(estimate.map_error(alpha), _NEGLIGIBLE / 2)


@dataclass(frozen=True)
class _Comparison:
    """What the labels say of the label-free map."""

    weight: float  # of the map in an average with Tower
    right: float  # probability that it is right
    rarer: float  # labels of the rarer class
    cause: str  # of a difference


def _compare_with_labels(base: Fitted, tower: TowerFit) -> _Comparison:
    """Return the weight of the label-free map, given the labels, and the probability that it is right.

    If it is right, the log odds of the labelled rows differ from it by the error of λ. Otherwise they differ by a level
    and a slope too. Both are normal; so is the estimate from the labels, whose density gives the Bayes factor. That
    the levels of replicas differ is no excuse for a wrong level: the labels measure it, and the tower uses them.

    The map is fitted to the replicas of the labelled rows, whose distribution differs from that of the pool.
    """
    cells = tower.labelled.cells
    w, y = cells.row_weights()
    rarer = min(float(y.sum()), float((w - y).sum()))
    log_odds = _label_free_odds(base, tower)
    spread, of_served = (float(np.sqrt(np.cov(x, aweights=w, ddof=0))) for x in (log_odds, cells.served))
    # A map that removes most of the score leaves nothing to tilt: if it is wrong, a part of what it removed is right.
    kept = min(spread / max(of_served, 1e-300), 1.0)
    # One unit of the tilt is `per_tilt` units of the map's log odds.
    tilted, per_tilt = (log_odds, 1.0) if kept >= 0.5 else ((1 - kept) * cells.served, kept / (1 - kept))
    features = np.stack([np.ones_like(tilted), tilted - float(w @ tilted / w.sum())])
    prior = np.array([_WRONG_LEVEL, _WRONG_SLOPE]) ** 2
    try:
        labels = fit_logistic(features, w, y, offset=log_odds)
    except UncurseError:  # too few labels to say anything
        return _Comparison(1.0, 1.0, rarer, "")
    level, slope = labels.coefficients
    right = labels.covariance + np.diag([0.0, _slope_variance(base, tower) * per_tilt**2])
    wrong = right + np.diag(prior)
    factor = _log_density(labels.coefficients, right) - _log_density(labels.coefficients, wrong)
    by_group = _group_factors(tower)
    all_groups = sum(by_group.values())
    # Groups of the right levels do not show that the level of all rows is right.
    odds = np.log(_PRIOR / (1 - _PRIOR)) + factor + min(all_groups, 0.0)
    right_share = float(logistic(np.array(odds)))
    # If the map is wrong, it is wrong by some 10% on the top. A tower with an error of that size shares its weight with
    # the map, unless the labels rule the map out.
    shared = min(1.0, right_share / _RULED_OUT)
    certain = 1.0
    if shared > _LEAST_WEIGHT:  # else the error of the tower, which takes long, does not matter
        error = float(np.mean([tower.log_error(alpha) ** 2 for alpha in compared_shares(tower.cells)]))
        shared *= error / (error + _WRONG_ERROR**2)
        certain = error / (error + _systematic_error(base, tower) ** 2)
    weight = certain * (right_share + (1 - right_share) * shared)
    rise = 1 + float(slope) / max(per_tilt, 1e-2)  # of the log odds of the labels, for a unit of those of the map
    cause = ""
    # A cause is named if level or slope differ by more than chance: by two standard errors.
    if (np.square(labels.coefficients) > 4 * np.diagonal(right)).any():
        cause = _cause(float(level), rise, spread, base, tower)
    if all_groups < min(factor, 0.0):
        worst = min(by_group, key=by_group.__getitem__)
        rise = 100 * np.expm1(tower.group_levels[worst][0])
        cause = f"the odds of group {worst!r} are {abs(rise):.0f}% {'higher' if rise > 0 else 'lower'} by its labels"
    return _Comparison(weight, right_share, rarer, cause)


def _log_density(x: Array, covariance: Array) -> float:
    """Return the log density of a normal about 0, up to a constant."""
    return -0.5 * float(x @ np.linalg.solve(covariance, x) + np.linalg.slogdet(covariance)[1])


def _systematic_error(base: Fitted, tower: TowerFit) -> float:
    """Return the error of a label-free map on the top that the kind of replica causes: a share of its correction."""
    share = tower.pool.kind.correction_error
    if not share or not isinstance(base.remaining, LabelFree) or base.record.method == "nothing":
        return 0.0
    changes = []
    for alpha in compared_shares(tower.cells):
        top = TopShare(tower.cells, alpha)
        changes.append(top.log_mean(tower.cells.served[top.cells]) - base.remaining.log_mean(alpha))
    return share * float(np.sqrt(np.mean(np.square(changes))))


def _group_factors(tower: TowerFit) -> dict[str, float]:
    """Return the log Bayes factor of each group for the level of all labels, against one of its own."""
    levels = tower.group_levels.items()
    return {name: float(log_bayes_factor(level, error**2, _WRONG_LEVEL**2)) for name, (level, error) in levels}


def _slope_variance(base: Fitted, tower: TowerFit) -> float:
    """Return the variance of the relative error of λ, by normal theory: a jackknife depends on how rows were split."""
    shrinkage = base.record.lambda_
    if base.remaining is None or not shrinkage:
        return 0.0
    cells, kind = tower.cells, tower.pool.kind
    error = lambda_error(shrinkage, cells.effective_rows, kind.differences(cells.n_replicas), kind.exchangeable)
    return float(np.square(error / max(shrinkage, _LEAST_LAMBDA)))


def _cause(level: float, rise: float, spread: float, base: Fitted, tower: TowerFit) -> str:
    """Name the likely cause of a difference between labels and the label-free map."""
    if abs(level) > 2 * abs((rise - 1) * spread):
        side = "low" if level > 0 else "high"
        return f"on the labelled rows, the odds of that map are {100 * abs(np.expm1(-level)):.0f}% too {side}"
    if rise < 1:
        return tower.labelled.kind.if_noise_is_hidden
    steep = f"log odds of the labels rise by {rise:.2f} per unit of that map's log odds: the model under-fits"
    if base.record.method == "nothing":
        return steep
    return f"{steep}, or the replicas show more noise than the served score has"


def _label_free_odds(base: Fitted, tower: TowerFit) -> Array:
    """Return the log odds of labelled rows by the label-free method."""
    model, served = tower.labelled, tower.labelled.cells.served
    if base.record.method == "nothing" or not isinstance(base.remaining, LabelFree):
        return served
    if tower.selected:  # selected from this pool by the served score: the map of the pool applies
        return base.remaining.log_odds(served)
    free = FreeShape.fit(model).log_odds(served) if base.record.method != "vad with curvature" else served
    if base.record.method == "free":
        return free
    w = model.cells.weight / model.cells.weight.sum()
    center = float(w @ served)
    variance = float(w @ np.square(served - center))
    one = Parametric(model, max(1 - model.served_noise / variance, 0.0), center, variance).log_odds(served)
    if not isinstance(base.remaining, LabelFreeAverage):
        return one
    return mixed_log_odds(base.remaining.weight, one, free)
