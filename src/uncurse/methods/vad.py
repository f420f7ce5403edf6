"""Variance-adjusting debiasing (Algorithm 1 of the paper).

    λ = 1 − V / Var(l_served),    f = φ(λ · l_served + (1 − λ) · mean(l_served))

V is the variance between replicas: the part of the score variance that a retrained model does not reproduce.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ..calibration.calibrators import CALIBRATORS, fit_calibrator
from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import labeled_evidence, pool_evidence, sample_table
from ..evidence.histogram import ReplicaTable
from ..evidence.spec import check_negative_sampling_rate
from ..links import check_space, get_link, logistic
from ..maps import Affine, ScoreMap, Segmented, compose
from ..threads import one_blas_thread
from ..validation import check_choice, check_flag, check_number, check_numbers, warn_user
from .fitted import Method, Solution
from .label_free import Monotone, label_free_estimate, lines_of
from .noise import NO_NOISE, check_log_odds, check_replicas, replica_kind, served_lead
from .records import FitRecord
from .remaining_error import Estimate
from .shrinkage import Shrinkage, by_segment, segment_records
from .truth import TruthModel

_LARGEST_RATIO = 1.3  # of λ on the pool to that on labeled rows; a larger one raises the suspicion of selected rows
_SAMPLE = 1 << 15  # rows of an array from which the standard error of λ is estimated


class VAD(Method):
    """Correct scores without labels, by shrinking them according to how much replicas disagree.

    Parameters
    ----------
    scale : {"logit", "probability", "value"}
        Scale of the scores; "value" is for regression.
    replicas : {"seeds", "bootstrap", "ensemble", "snapshots"}
        "seeds": models that differ only by seed, column 0 is served. "bootstrap": column 0 is served, each other column
        is trained on its own bootstrap sample. "ensemble": the served score is the mean of the columns, on the link.
        "snapshots": column 0 is served, the others are earlier checkpoints of the same training run.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link on which scores are shrunk; "identity" is the paper's VAD(p).
    calibrator : str, optional
        Calibrator that is fitted on labeled rows; VAD then corrects the remaining bias on the pool.
    curvature : bool, default=False
        Predict E[φ(l*)] instead of φ(E[l*]), which differ because φ is curved.
    shape : {"straight", "monotone"}, default="straight"
        "straight": one λ for all scores. "monotone": any monotone curve, for noise that differs between rows or scores
        with heavy tails; best with three replicas or more.
    recenter : bool, default=True
        With a calibrator and the logistic link: shrink scores before calibration, so that a different mean of the
        labeled rows causes no bias. False shrinks calibrated scores about their mean, as the paper does.
    negative_sampling_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it. Labeled rows must have their natural
        rate.
    lambda_floor : float, optional
        λ to use, with a warning, if replicas differ more than scores vary (λ ≤ 0). By default that is an error.
    intervals : bool, default=False
        Count the rows of arrays in a histogram, which `interval` needs. Evidence of a log has it already.

    Attributes
    ----------
    map_ : ScoreMap
        Fitted map of the served score.
    lambda_, center_ : float
        λ, and the point that scores are shrunk towards, on the link.
    standard_error_ : float
        Standard error of λ over pool rows. It does not include the variation of λ with the training data.
    noise_variance_, score_variance_ : float
        V and Var(l_served) on the pool.
    record_ : FitRecord
        How the map was fitted. ``record_.segments`` holds the estimates of each segment.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(-2, 0.8, 50_000)
    >>> pool = truth[:, None] + rng.normal(0, 0.4, (50_000, 2))  # two replicas
    >>> vad = VAD(scale="logit", replicas="seeds").fit(pool)
    >>> round(vad.lambda_, 2)  # 0.64 / (0.64 + 0.16)
    0.8
    >>> vad.predict_proba([0.0]) < 0.5
    array([ True])
    """

    lambda_: float
    center_: float
    standard_error_: float
    noise_variance_: float
    score_variance_: float

    def __init__(
        self,
        *,
        scale: str,
        replicas: str,
        link: str = "logistic",
        calibrator: str | None = None,
        curvature: bool = False,
        shape: str = "straight",
        recenter: bool = True,
        negative_sampling_rate: float | None = None,
        lambda_floor: float | None = None,
        intervals: bool = False,
    ) -> None:
        check_space(link, scale)
        check_choice("shape", shape, ("straight", "monotone"))
        if calibrator is not None:
            check_choice("calibrator", calibrator, tuple(CALIBRATORS))
            if not replica_kind(replicas).served_is_a_column:
                raise UncurseError("a calibrator needs the served score in a column; use Auto for an ensemble")
            if curvature:
                raise UncurseError("curvature=True corrects VAD alone; leave it out with a calibrator")
        if shape == "monotone" and (calibrator or curvature or link != "logistic" or scale == "value"):
            raise UncurseError(
                "shape='monotone' needs logits or probabilities and the logistic link, without calibrator or curvature"
            )
        if scale == "value" and (calibrator or intervals):
            raise UncurseError("scale='value' is for regression: it has no calibrator and no intervals")
        if lambda_floor is not None and not 0 <= check_number(lambda_floor, "lambda_floor") < 1:
            raise UncurseError(f"lambda_floor={lambda_floor}; pass a number from 0 to 1, or None to raise an error")
        self.scale, self.link, self.replicas = scale, link, replica_kind(replicas).name
        self.calibrator, self.shape, self.lambda_floor = calibrator, shape, lambda_floor
        self.curvature, self.recenter = check_flag(curvature, "curvature"), check_flag(recenter, "recenter")
        self.intervals = check_flag(intervals, "intervals")
        self.negative_sampling_rate = check_negative_sampling_rate(negative_sampling_rate, scale)

    def __repr__(self) -> str:
        tandem = "" if self.calibrator is None else f", calibrator={self.calibrator!r}"
        text = f"VAD(link={self.link!r}, scale={self.scale!r}, replicas={self.replicas!r}{tandem})"
        if hasattr(self, "fitted_"):
            text += f" with λ = {self.lambda_:.4g} (standard error {self.standard_error_:.2g}) about {self.center_:.4g}"
        return text

    def fit(
        self,
        pool: ArrayLike | Evidence,
        *,
        labeled: tuple[ArrayLike, ...] | Evidence | None = None,
        segments: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        variance: float | None = None,
    ) -> VAD:
        """Fit to an unlabeled sample of the candidate pool.

        Parameters
        ----------
        pool : array-like of shape (n, S), or Evidence
            Replica scores, the served one in column 0.
        labeled : tuple (scores, labels) or (scores, labels, weights), or Evidence
            Labeled rows for the calibrator, scored by every replica. They come from the training distribution and
            must not have been selected by the served score.
        segments : array-like of shape (n,), optional
            Segment of each pool row. Each segment gets its own λ and center, shrunk towards those of all segments.
        sample_weight : array-like of shape (n,), optional
            Weights of pool rows; only their ratios matter.
        variance : float, optional
            V, if it is known; then one score column is enough. See `information_variance`.

        Returns
        -------
        VAD
            Itself. If fitting fails, the previous fit is kept.
        """
        if variance is not None:
            variance = check_number(variance, "variance")
            if variance < 0:
                raise UncurseError(f"variance={variance:g}; pass V, a number of 0 or more")
            if not isinstance(pool, Evidence) and np.ndim(pool) == 1:
                pool = np.asarray(pool)[:, None]
        evidence = pool_evidence(
            pool,
            labeled,
            scale=self.scale,
            link=self.link,
            negative_sampling_rate=self.negative_sampling_rate,
            segments=segments,
            sample_weight=sample_weight,
            histograms=self.intervals or self.shape == "monotone" or self.calibrator is not None,
        )
        rows = None if labeled is None else labeled_evidence(labeled, evidence)
        kind, table = replica_kind(self.replicas), None
        with one_blas_thread():
            if variance is None:
                kind.check_columns(len(evidence.spec.scores))
                of_logits = self.link == "logistic" and self.scale != "value" and evidence.rows > 0
                if of_logits and evidence.replicas is not None:
                    table = kind.table_of(evidence, "pool")
                elif of_logits and not isinstance(pool, Evidence) and sample_weight is None:
                    table = kind.table(sample_table(check_numbers(pool, "pool"), evidence.spec, _SAMPLE))
                check_replicas(kind, evidence, table)
            fitted = fit_vad(self, evidence, rows, table, variance).fitted()
        self.fitted_, record = fitted, fitted.record
        for name in ("lambda_", "standard_error", "center", "noise_variance", "score_variance"):
            setattr(self, name.rstrip("_") + "_", getattr(record, name))
        return self


def fit_vad(
    vad: VAD,
    pool: Evidence,
    labeled: Evidence | None = None,
    table: ReplicaTable | None = None,
    variance: float | None = None,
) -> Solution:
    """Fit to evidence; `table` shows the error of λ, and `variance` is a known V."""
    kind, rows = replica_kind(vad.replicas), None
    if vad.calibrator is None and labeled is not None:
        raise UncurseError("there are labeled rows but no calibrator; pass one, such as VAD(calibrator='platt')")
    if table is not None:
        check_log_odds(table, squares=vad.shape == "straight")
    shrinkage = Shrinkage.of(pool.moments, kind, variance=variance, table=table)
    if variance is None and shrinkage.identical:
        warn_user(f"{NO_NOISE}; was the seed changed?")
    score_map: ScoreMap
    estimate: Estimate | None = None
    segments: dict[str, Shrinkage] = {}
    if vad.shape == "monotone":
        if pool.segments or variance is not None:
            raise UncurseError("shape='monotone' needs replicas and has no segments; fit one VAD for each segment")
        model = TruthModel(table or kind.table_of(pool, "pool"), vad.replicas)
        estimate = monotone = Monotone.fit(model, lines_of(pool.moments, kind))
        score_map, no_interval = monotone.map(), kind.no_interval
    else:
        shrinkage = replace(shrinkage, value=_positive(vad, shrinkage, shrinkage.value))
        center_of = None
        map_of: Callable[[Shrinkage], ScoreMap] = partial(Shrinkage.map, link=vad.link, curvature=vad.curvature)
        if vad.calibrator is not None:
            rows, map_of, center_of = _tandem(vad, pool, labeled, shrinkage, variance)
        if pool.segments:
            segments = by_segment(
                pool, shrinkage, kind, variance, positive=partial(_positive, vad, shrinkage), center_of=center_of
            )
        if center_of is not None:
            shrinkage = replace(shrinkage, center=center_of(pool))
        score_map = map_of(shrinkage)
        if pool.segments:
            score_map = Segmented(score_map, {name: map_of(one) for name, one in segments.items()})
        no_interval = _no_interval(vad, pool, shrinkage, variance)
        if not no_interval:
            no_interval, model = kind.no_interval, TruthModel(table or kind.table_of(pool, "pool"), vad.replicas)
            try:
                estimate = label_free_estimate(model, shrinkage, lines_of(pool.moments, kind))
            except UncurseError as error:  # such as few rows, or a cap: the map needs no estimate
                no_interval = str(error)
    if rows is not None:
        ratio = shrinkage.value / rows.value
        of_ratio = float(np.hypot(shrinkage.error, ratio * rows.error)) / rows.value
        shrinkage = replace(shrinkage, value=ratio, error=of_ratio)
        segments = {name: replace(one, value=one.value / rows.value) for name, one in segments.items()}
    record = FitRecord.of(
        "vad",
        pool,
        labeled,
        no_interval=no_interval,
        replicas=vad.replicas,
        calibrator=vad.calibrator,
        curvature=vad.curvature,
        shape=vad.shape,
        segments=segment_records(pool, segments),
        **shrinkage.estimates,
    )
    return Solution(score_map, record, estimate)


def _no_interval(vad: VAD, pool: Evidence, shrinkage: Shrinkage, variance: float | None) -> str:
    """Return why there are no intervals; empty if there are."""
    if vad.scale == "value" or variance is not None:
        return "intervals need replica scores that are logits or probabilities"
    if vad.calibrator is not None:
        return "VAD with a calibrator has none; use Auto or ReplicaCalibrator"
    if vad.link != "logistic":
        return f"they need link='logistic', not {vad.link!r}"
    if shrinkage.identical:
        return NO_NOISE
    return "" if pool.replicas is not None else "fit VAD(intervals=True), or pass evidence of a log"


def _positive(vad: VAD, shrinkage: Shrinkage, value: float, where: str = "") -> float:
    """Return λ, or `lambda_floor` with a warning if λ is lower; raise UncurseError if λ ≤ 0 and without a floor."""
    floor = vad.lambda_floor
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


def _tandem(
    vad: VAD, pool: Evidence, labeled: Evidence | None, shrinkage: Shrinkage, variance: float | None
) -> tuple[Shrinkage, Callable[[Shrinkage], ScoreMap], Callable[[Evidence], float] | None]:
    """Calibrate on labeled rows. Return their λ, the map of a λ, and the center of rows if it is not their mean.

    Scores shrink by λ_pool / λ_labeled: calibration has removed the noise of the labeled rows.
    """
    kind, link = replica_kind(vad.replicas), vad.link
    assert vad.calibrator is not None
    if variance is not None:
        raise UncurseError("a calibrator needs replicas on pool and labeled rows; leave variance out")
    if labeled is None or labeled.served is None:
        raise UncurseError(f"calibrator={vad.calibrator!r} needs labeled=(scores, labels) in fit")
    rows = Shrinkage.of(labeled.moments, kind, where=" on the labeled rows")
    if rows.value <= 0:
        raise UncurseError(f"λ = {rows.value:.3g} on the labeled rows: replicas differ more than scores vary there")
    lead = served_lead(pool.moments, labeled.moments, kind)
    if lead:
        warn_user(
            f"the served scores exceed the other replicas by {lead:+.2f} more on the labeled rows than on the pool, "
            "as if the served score had selected them; then λ is biased: label rows that were selected without it"
        )
    if shrinkage.value / rows.value > _LARGEST_RATIO and not kind.shows_selection:
        warn_user(
            f"λ is {shrinkage.value:.3g} on the pool and {rows.value:.3g} on the labeled rows, whose scores vary less; "
            "if the served score selected them, λ is biased: use ReplicaCalibrator or Auto with labels_from='winners'"
        )
    calibration = fit_calibrator(vad.calibrator, labeled.served)

    def center_of(part: Evidence) -> float:
        """Return the mean calibrated score of some rows, on the link."""
        if part.served is None:
            raise UncurseError("a calibrator with recenter=False needs histograms by segment; use fewer segments")
        calibrated = calibration.transform(part.served.score)
        if link != "logistic":
            calibrated = get_link(link).inverse(logistic(calibrated))
        return float(np.average(calibrated, weights=part.served.weight))

    def recentered(one: Shrinkage) -> ScoreMap:
        # Convert a pool score to the labeled score with the same expected truth; each shrinks about its mean.
        start = rows.center + ((1 - one.value) * one.center - rows.center) / rows.value
        return compose(Affine(one.value / rows.value, start, link), calibration, scale="logit")

    def calibrated_first(one: Shrinkage) -> ScoreMap:
        value = one.value / rows.value
        return compose(calibration, Affine(value, (1 - value) * one.center, link), scale="logit")

    if vad.recenter and link == "logistic":
        return rows, recentered, None
    return rows, calibrated_first, center_of
