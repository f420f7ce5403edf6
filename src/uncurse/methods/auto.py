"""Choose a method from the evidence, and state why."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.logistic import marginal_likelihood
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.histogram import ReplicaTable, outlier_fences
from ..links import logistic
from ..maps import Affine, ScoreMap, Segmented
from ..threads import one_blas_thread
from ..validation import check_numbers, warn_user
from .fitted import ReplicaMethod, Solution, check_labels_from
from .label_free import (
    UNDER_FIT,
    Average,
    Cautious,
    LabelFree,
    Monotone,
    OneLambda,
    average_maps,
    label_free_estimate,
    lines_of,
    shaped_maps,
)
from .noise import NO_NOISE, check_log_odds, check_replicas, replica_kind
from .records import FitRecord
from .remaining_error import SHARES, Estimate, compared_tops, log_bayes_factor, top_shares
from .replica_calibration import ReplicaCalibration, calibrate_replicas
from .requests import Requests, fit_requests
from .shrinkage import Shrinkage, by_segment, normal_error, segment_records
from .truth import TruthModel

_NEGLIGIBLE = 0.002  # a correction below 0.2% everywhere is not worth a map
# Prior of the label-free map: right with probability ½, otherwise off by levels and a slope with standard deviation
# 0.2. On real logs label-free maps are rarely right, and labels deserve more weight than in worlds of pure noise.
_PRIOR, _WRONG = 0.5, 0.2
_TOPS = (0.1, 0.02)  # shares whose levels the labels may contradict
_WRONG_ERROR = 0.1  # error on the top of a label-free map that is wrong
_RULED_OUT = 0.05  # probability below which the labels rule a map out
_LEAST_WEIGHT = 0.01  # a smaller weight in an average is not worth a larger map
_LEAST_SHARE = 0.1  # a smaller share of a correction is not worth a map
_MAX_OUTLIERS = 0.02  # largest share of outliers in the predictions on the top 1%
_Z_CORRECTION = 2.0  # standard errors that a correction must exceed


class Auto(ReplicaMethod):
    """Correct scores for selection, choosing the method automatically.

    Use it if you have scores of a model and its replicas. With an estimator and its training data, use
    `UncursedClassifierCV`. Without labels the method is VAD with curvature, its monotone shape if replicas show that
    one λ is not enough, or their average. Bootstraps of trees then move scores less, because trees under-fit too. With
    labels it is the average of that map and `ReplicaCalibrator`, weighted by the probability that the label-free map is
    right, given the labels. If the noise of the replicas is negligible, scores are not changed.

    Parameters
    ----------
    scale : {"logit", "probability"}
        Scale of the scores.
    replicas : {"seeds", "bootstrap", "ensemble", "snapshots"}
        How the score columns are related, see `VAD`.
    negative_sampling_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it.

    Attributes
    ----------
    method_ : str
        Chosen method: "nothing", "vad with curvature", "monotone", "labels" or "average".
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
    >>> Auto(scale="logit", replicas="seeds").fit(pool).method_
    'vad with curvature'
    """

    def __repr__(self) -> str:
        chosen = f" chose {self.method_}: {self.reason_}" if hasattr(self, "fitted_") else ""
        return super().__repr__() + chosen

    def fit(
        self,
        pool: ArrayLike | Evidence,
        *,
        labeled: tuple[ArrayLike, ...] | Evidence | None = None,
        labels_from: str | None = None,
        segments: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        teacher: tuple[ArrayLike, ArrayLike] | None = None,
        request: ArrayLike | None = None,
        top_k: int = 1,
        value: ArrayLike | None = None,
    ) -> Auto:
        """Fit to a sample of the candidate pool and, optionally, to labeled rows.

        Parameters
        ----------
        pool : array-like of shape (n, S), or Evidence
            Replica scores, the served one in column 0.
        labeled : tuple (scores, labels) or (scores, labels, weights), or Evidence
            Labeled rows, scored by every replica. Not rows that the models were trained on.
        labels_from : {"winners", "elsewhere"}
            What selected the labeled rows, which is needed if there are any: see `ReplicaCalibrator.fit`.
        segments : array-like of shape (n,), optional
            Segment of each pool row.
        sample_weight : array-like of shape (n,), optional
            Weights of pool rows; only their ratios matter.
        teacher : tuple (pool, labeled) of array-like of shape (n,) and (m,), optional
            Scores of a teacher, a model of another kind such as boosted trees, for pool and labeled rows; the labeled
            ones out of fold. They show how the pool differs in what the served model misses. They are used only if
            their log loss is lower than that of the served score. Labels must be from elsewhere.
        request : array-like of shape (n,), optional
            Request of each pool row. The map is then fitted to the rows that win their requests, which need other
            corrections than the top share of all rows; intervals refer to the winners too. Pass all candidates.
        top_k : int, default=1
            Number of winners of a request.
        value : array-like of shape (n,), optional
            Value of each pool row, such as its bid, if requests are won by value × probability.

        Returns
        -------
        Auto
            Itself. If fitting fails, the previous fit is kept.
        """
        origin = check_labels_from(labeled, labels_from)
        if request is None and (value is not None or top_k != 1):
            raise UncurseError("top_k and value select within requests; pass request, the request of each pool row")
        others = (segments, sample_weight, teacher)
        if request is not None and (any(one is not None for one in others) or isinstance(pool, Evidence)):
            raise UncurseError("request needs the rows of the pool, without segments, weights and teacher")
        evidence, rows = self._evidence(pool, labeled, segments, sample_weight, teacher)
        with one_blas_thread():
            if request is None:
                solution = fit_auto(evidence, rows, replicas=self.replicas, labels_from=origin)
            else:
                requests = Requests.of(request, evidence.rows, top_k, value)
                scores = check_numbers(pool, "pool")  # type: ignore[arg-type]
                of_labeled = check_numbers(labeled[0], "labeled") if isinstance(labeled, tuple) else None
                solution = fit_requests(
                    scores, evidence, requests, rows, of_labeled, replicas=self.replicas, labels_from=origin
                )
            self.fitted_ = solution.fitted()
        return self


def fit_auto(
    pool: Evidence,
    labeled: Evidence | None,
    *,
    replicas: str,
    labels_from: str | None,
    own_rows: bool = False,
    noise: float | None = None,
    lines: Array | None = None,
) -> Solution:
    """Choose and fit a method; its record holds method and reason.

    `own_rows`, `noise` and `lines` are for rows that are scored out of fold, see `calibrate_replicas` and `lines_of`.
    """
    kind = replica_kind(replicas)
    lines = lines_of(pool.moments, kind) if lines is None else lines
    if labeled is None or labels_from is None:
        model = TruthModel(kind.table_of(pool, "pool"), replicas)
        check_log_odds(model.table)
        if not own_rows:
            check_replicas(kind, pool, model.table)
        return _label_free(pool, model, lines, labels=False)
    solution = calibrate_replicas(
        pool, labeled, replicas=replicas, labels_from=labels_from, own_rows=own_rows, noise=noise
    )
    record, fit = solution.record, solution.estimate
    if not isinstance(fit, ReplicaCalibration) or not fit.pool.denoise:  # the record says why
        return solution
    problem = _problem_of_scores(fit.table)
    if fit.scaling != (1.0, 0.0):
        problem = "the labels show that the scores are far from log odds"
    taught = "" if fit.teacher is None else f"; {fit.teacher.reason}"
    if problem:
        return replace(solution, record=replace(record, reason=f"{problem}, so they are calibrated{taught}"))
    base = _label_free(pool, TruthModel(fit.table, replicas), lines, labels=True)
    found = _compare_with_labels(base, fit)
    name, percent = base.record.method, 100 * found.weight
    described = "average of vad with curvature and monotone" if name == "average" else name
    # Scores that need no map get none: an average would only add the noise of the labels.
    if found.weight > 1 - _LEAST_WEIGHT or (name == "nothing" and found.weight >= 0.5):
        support = f"{found.rarer:,.0f} labels of the rarer class support it (weight {percent:.0f}%)"
        reason = f"{base.record.reason}; {support}{taught}"
        own = replace(base.record, reason=reason, labeled=record.labeled, labels_from=labels_from)
        return replace(base, record=own, labeled=fit.labeled.table)
    if found.weight < _LEAST_WEIGHT or name == "nothing" or base.estimate is None:
        reason = f"the labels are more precise than the label-free map ({described}), so it is not used"
        if found.cause:
            reason = f"the labels contradict the label-free map ({described}), so it is not used: {found.cause}"
        return replace(solution, record=replace(record, reason=reason + taught))
    reason = f"by the labels, the label-free map ({described}) has a weight of {percent:.0f}% and replica calibration "
    reason += f"{100 - percent:.0f}%"
    if found.weight < 0.5 and found.cause:
        reason += f"; {found.cause}"
    record = replace(record, method="average", reason=reason + taught, lambda_=base.record.lambda_)
    score_map = average_maps(base.map, solution.map, found.weight, fit.table)
    return Solution(score_map, record, Average(base.estimate, fit, found.weight), fit.labeled.table)


def _problem_of_scores(table: ReplicaTable) -> str:
    """Describe a cap or outliers that make label-free maps unreliable on the top; empty if there are none."""
    if table.cap:
        return f"{table.cap}, which hides the noise there"
    alpha = max(SHARES[0], 1 / table.effective_rows)
    (top,) = top_shares(table, [alpha])
    p = logistic(top.served)
    share = top.mean(p * (top.served > outlier_fences(table.served, table.weight)[1])) / top.mean(p)
    if share <= _MAX_OUTLIERS:
        return ""
    return f"outliers make up {100 * share:.1f}% of the predictions on the top {100 * alpha:g}%"


def _label_free(pool: Evidence, model: TruthModel, lines: Array, *, labels: bool) -> Solution:
    """Choose between no change, VAD with curvature, and its monotone shape; `labels` decide if λ is too low."""
    kind, table = model.kind, model.table

    def positive(value: float, where: str = "") -> float:
        if value <= 0 and not labels:
            warn_user(
                f"λ = {value:.3g}{where}: replicas differ more than the served scores vary, so nothing but their mean "
                "is predicted; train on more data, clip extreme scores, or pass labeled rows"
            )
        return max(value, 0.0)

    shrinkage = Shrinkage.of(pool.moments, kind, table=table)
    known = replace(shrinkage, value=positive(shrinkage.value))
    common = {"replicas": kind.name, "curvature": True, "no_interval": kind.no_interval}
    record = FitRecord.of("nothing", pool, None, **common, **known.estimates)
    served = Affine(1.0, 0.0)
    if model.identical or shrinkage.identical:
        if not labels:
            warn_user(f"{NO_NOISE}; was the seed changed?")
        return Solution(served, replace(record, reason=NO_NOISE, no_interval=NO_NOISE))
    chosen, tops = label_free_estimate(model, shrinkage, lines), compared_tops(table)
    precise = chosen.first if isinstance(chosen, Average) else chosen  # λ has the smaller error
    assert isinstance(precise, LabelFree)
    errors = (max(precise.map_error(top), _NEGLIGIBLE / 2) for top in tops)
    if max(abs(precise.correction(top)) / error for top, error in zip(tops, errors, strict=True)) < _Z_CORRECTION:
        reason = "the correction is smaller than its standard error"
        return Solution(served, replace(record, reason=reason), chosen)
    cautious = Cautious.of(chosen, 0.0 if labels else kind.under_fit(table), tops)
    if cautious.share < _LEAST_SHARE:
        reason = (
            "the correction is not larger than what models of this kind usually under-predict, which replicas do not "
            "show; pass labeled rows, for instance training rows scored out of fold"
        )
        return Solution(served, replace(record, reason=reason), cautious)
    one = f"one λ = {known.value:.3f}"
    score_map: ScoreMap
    if isinstance(chosen, Average):
        assert isinstance(chosen.second, LabelFree)
        score_map = average_maps(precise.map(), chosen.second.map(), chosen.weight, table)
        percent = 100 * chosen.weight
        reason = "the replicas do not settle which correction fits better: vad with curvature has a weight of "
        record = replace(record, method="average", reason=f"{reason}{percent:.0f}% and monotone {100 - percent:.0f}%")
    elif isinstance(chosen, OneLambda):
        score_map = chosen.map()
        record = replace(record, method="vad with curvature", reason=f"{one} fits the replicas")
    else:
        score_map = chosen.map()
        reason = f"{one} does not fit all rows: noise differs from row to row, or scores have heavy tails"
        record = replace(record, method="monotone", reason=reason, curvature=False, shape="monotone")
    if pool.segments:
        segments = by_segment(pool, known, kind, None, positive=positive)
        maps = {name: each.map(curvature=True) for name, each in segments.items()}
        parts = {name: kind.table_of(part, name) for name, part in pool.segments.items() if part.replicas is not None}
        if parts and not isinstance(chosen, OneLambda):
            maps = shaped_maps(maps, score_map, parts, table)
        score_map = Segmented(score_map, maps)
        record = replace(record, segments=segment_records(pool, segments))
    if cautious.share == 1:
        return Solution(score_map, record, chosen)
    score_map = average_maps(score_map, served, cautious.share, table)
    reason = f"{record.reason}; {100 * cautious.share:.0f}% of the correction is used, because {UNDER_FIT}"
    return Solution(score_map, replace(record, reason=reason), cautious)


@dataclass(frozen=True)
class _Comparison:
    """What the labels show about the label-free map."""

    weight: float  # of the map in an average with replica calibration
    rarer: float  # labels of the rarer class
    cause: str  # of a difference


def _compare_with_labels(base: Solution, fit: ReplicaCalibration) -> _Comparison:
    """Return the weight of the label-free map, given the labels.

    If it is right, the log odds of the labeled rows differ from it by the error of λ. Otherwise they also differ by a
    level, a slope, and a level of the top 10% and of the top 2%, because an error on the selected rows may be made up
    for by the others. All are normal, and the marginal likelihoods of the labels give the probability that it is right.
    That the levels of replicas differ is no excuse for a wrong level: the labels measure it.
    """
    table, kind, tops = fit.labeled.table, fit.pool.kind, compared_tops(fit.table)
    by_map, systematic, lambda_error = table.served, 0.0, 0.0
    if base.estimate is not None and base.record.method != "nothing":
        # Rows that the served score selected from this pool have its map; others are denoised by their own replicas.
        by_map = (base.estimate if fit.winners else _refitted(base.estimate, fit.labeled)).log_odds(table.served)
        changes = [base.estimate.correction(top) for top in tops]
        systematic = kind.correction_error**2 * float(np.mean(np.square(changes)))
    if base.estimate is not None and base.record.lambda_:
        differences = kind.differences(table.n_replicas)
        lambda_error = normal_error(base.record.lambda_, fit.table.effective_rows, differences, kind.exchangeable)
    w, y = table.row_weights()
    selected = [table.served > np.quantile(table.served, 1 - a, weights=w, method="inverted_cdf") for a in _TOPS]
    features = np.stack([np.ones_like(w), table.served - w @ table.served / w.sum(), *selected])
    right = np.diag([0.0, lambda_error**2, *(0.0 for _ in selected)])
    wrong = right + np.eye(len(features)) * _WRONG**2
    moves, covariance, of_wrong = marginal_likelihood(features, w, y, by_map, wrong)
    factor = marginal_likelihood(features, w, y, by_map, right)[2] - of_wrong
    segments = {
        name: float(log_bayes_factor(level, error**2, _WRONG**2)) for name, (level, error) in fit.segment_levels.items()
    }
    # Segments of the right levels do not show that the level of all rows is right.
    odds = np.log(_PRIOR / (1 - _PRIOR)) + factor + min(sum(segments.values()), 0.0)
    is_right = float(logistic(np.array(odds)))
    # Each map counts by its squared error. A label-free map that is wrong is off by some 10% on the top, and one that
    # the labels rule out by more.
    variance = float(np.mean([fit.log_error(top) ** 2 for top in tops]))
    weight = is_right * variance / (variance + systematic)
    weight += (1 - is_right) * min(is_right / _RULED_OUT, 1.0) * variance / (variance + systematic + _WRONG_ERROR**2)
    if fit.teacher is not None:  # labels do not judge the map where the pool differs from them
        weight *= 1 - fit.teacher.weight
    cause = ""
    if segments and min(sum(segments.values()), factor) < min(factor, 0.0):
        worst = min(segments, key=segments.__getitem__)
        cause = f"the odds of segment {worst!r} {_change(fit.segment_levels[worst][0])} by its labels"
    elif (np.square(moves) > 4 * np.diagonal(covariance)).any():
        cause = _cause(moves @ features, w, fit)
    return _Comparison(weight, min(float(y.sum()), float((w - y).sum())), cause)


def _refitted(estimate: Estimate, model: TruthModel) -> Estimate:
    """Return the same method, fitted to other rows."""
    if isinstance(estimate, Average):
        return replace(estimate, first=_refitted(estimate.first, model), second=_refitted(estimate.second, model))
    assert isinstance(estimate, OneLambda | Monotone)
    return estimate.fit(model, estimate.lines)


def _change(level: float) -> str:
    percent = 100 * np.expm1(level)
    return f"are {abs(percent):.0f}% {'higher' if percent > 0 else 'lower'}"


def _cause(moves: Array, weight: Array, fit: ReplicaCalibration) -> str:
    """Name the likely cause of a difference in log odds between labels and the label-free map."""
    served = fit.labeled.table.served
    level = float(weight @ moves / weight.sum())
    rise = float(np.polynomial.polynomial.polyfit(served, moves, 1, w=np.sqrt(weight))[1])
    spread = float(np.sqrt(np.cov(served, aweights=weight, ddof=0)))
    if abs(level) > 2 * abs(rise) * spread:
        return f"the odds of the labels {_change(level)} than those of that map"
    if rise < 0:
        return fit.labeled.kind.if_noise_is_hidden
    why = "the model also under-fits, or the replicas show too much noise"
    return f"the labels rise more steeply than that map: it corrects too much, because {why}"
