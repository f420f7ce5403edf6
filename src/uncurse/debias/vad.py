"""Variance-adjusting debiasing (Algorithm 1 of the paper).

    λ = 1 − V / Var(l_served),    f = φ(λ · l_served + (1 − λ) · mean(l_served))

V is the variance between replicas: the part of the score variance that a retrained model does not reproduce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UncurseError
from ..evidence import Evidence
from ..evidence.from_arrays import labelled_evidence, pool_evidence
from ..threads import one_blas_thread
from ..validation import check_number
from .base import Debiaser
from .vad_fit import VADOptions, fit_vad


class VAD(Debiaser):
    """Debias served scores with the variance between replicas on the candidate pool.

    Parameters
    ----------
    link : {"logistic", "identity", "log", "probit"}, default="logistic"
        Link on which scores are shrunk; "identity" is the paper's VAD(p).
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores; "value" is for regression.
    replicas : {"seeds", "bootstrap", "anchored", "ensemble", "snapshots"}, default="seeds"
        "seeds": models that differ only by seed, column 0 is served. "bootstrap": column 0 is served, each other column
        is trained on its own bootstrap sample. "anchored": bootstraps around column 0. "ensemble": the served score is
        the mean of the columns, on the link. "snapshots": column 0 is served, the others are earlier checkpoints of
        the same training run.
    calibrator : str, optional
        Calibrator that is fitted on labelled rows; VAD then corrects the remaining bias on the pool.
    curvature : bool, default=False
        Predict E[φ(l*)] instead of φ(E[l*]), which differ because φ is curved.
    shape : {"straight", "free"}, default="straight"
        "straight": one λ for all scores. "free": any monotone curve, for noise that differs between rows
        or scores with heavy tails; best with three replicas or more.
    recentre : bool, default=True
        With a calibrator and the logistic link: shrink scores before calibration, so that a different mean of the
        labelled rows causes no bias. False shrinks calibrated scores about their mean, as the paper does.
    negative_rate : float, optional
        Negative-sampling rate used in training; scores are corrected for it. Labelled rows must have their natural
        rate.
    lambda_floor : float, optional
        λ to use, with a warning, if replicas differ more than scores vary (λ ≤ 0). By default that is an error.
    calibrator_options : dict, optional
        Options of the calibrator, such as ``{"n_bins": 50}``.
    intervals : bool, default=False
        Collect the statistics that `interval` needs, in one more pass over the arrays.

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
    group_lambda_, group_center_ : dict of str to float
        λ and center of each group, if there are groups.
    record_ : FitRecord
        How the map was fitted.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(-2, 0.8, 50_000)
    >>> pool = truth[:, None] + rng.normal(0, 0.4, (50_000, 2))  # two replicas
    >>> vad = VAD().fit(pool)
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
        link: str = "logistic",
        scale: str = "logit",
        replicas: str = "seeds",
        calibrator: str | None = None,
        curvature: bool = False,
        shape: str = "straight",
        recentre: bool = True,
        negative_rate: float | None = None,
        lambda_floor: float | None = None,
        calibrator_options: Mapping[str, Any] | None = None,
        intervals: bool = False,
    ) -> None:
        self.options = VADOptions(
            link,
            scale,
            replicas,
            calibrator,
            curvature,
            shape,
            recentre,
            negative_rate,
            lambda_floor,
            {} if calibrator_options is None else calibrator_options,
            intervals,
        )

    def __repr__(self) -> str:
        o = self.options
        tandem = "" if o.calibrator is None else f", calibrator={o.calibrator!r}"
        text = f"VAD(link={o.link!r}, scale={o.scale!r}, replicas={o.replicas!r}{tandem})"
        if hasattr(self, "map_"):
            text += (
                f" with λ = {self.lambda_:.4g} ± {self.standard_error_:.2g} (over pool rows) about {self.center_:.4g}"
            )
        return text

    def fit(
        self,
        pool: ArrayLike | Evidence,
        *,
        labelled: tuple[ArrayLike, ...] | Evidence | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        variance: float | None = None,
    ) -> VAD:
        """Fit to an unlabelled sample of the candidate pool.

        Parameters
        ----------
        pool : array-like of shape (n, S), or Evidence
            Replica scores, the served one in column 0.
        labelled : tuple (scores, labels) or (scores, labels, weights), or Evidence
            Labelled rows for the calibrator, scored by every replica. They come from the training distribution and
            must not have been selected by the served score.
        groups : array-like of shape (n,), optional
            Group of each pool row. Each group gets its own λ and center, shrunk towards those of all groups.
        sample_weight : array-like of shape (n,), optional
            Weights of pool rows; only their ratios matter.
        variance : float, optional
            V, if it is known; then one score column is enough. See `information_variance`.

        Returns
        -------
        VAD
            Itself. If fitting fails, the previous fit is kept.
        """
        o = self.options
        if variance is not None:
            variance = check_number(variance, "variance")
            if variance < 0:
                raise UncurseError(f"variance={variance:g}; pass V, a number of 0 or more")
            if not isinstance(pool, Evidence) and np.ndim(pool) == 1:
                pool = np.asarray(pool)[:, None]
        counts = (o.intervals or o.shape == "free") and variance is None
        evidence = pool_evidence(
            pool,
            labelled,
            scale=o.scale,
            link=o.link,
            negative_rate=o.negative_rate,
            groups=groups,
            sample_weight=sample_weight,
            cells=o.calibrator is not None and not o.recentred,
            replica_counts=counts,
        )
        rows = None if labelled is None else labelled_evidence(labelled, evidence, cells=True, replica_counts=counts)
        with one_blas_thread():
            fitted = fit_vad(evidence, rows, o, variance=variance)
        self._set(fitted)
        for name in ("group_lambda_", "group_center_"):
            vars(self).pop(name, None)
        record = fitted.record
        for name in ("lambda_", "standard_error", "center", "noise_variance", "score_variance"):
            setattr(self, name.rstrip("_") + "_", getattr(record, name))
        if record.groups:
            self.group_lambda_ = {name: group.lambda_ for name, group in record.groups.items()}
            self.group_center_ = {name: group.center for name, group in record.groups.items()}
        return self
