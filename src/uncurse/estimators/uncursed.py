"""Scikit-learn estimators that correct their own predictions for the top of a candidate pool.

`fit` trains the served model and its replicas, on all rows and on the training part of each fold. Rows that are scored
out of fold are honest labelled rows. The map is fitted on these and on the pool. Predictions are the served model's,
passed through the map, so the ranking is unchanged.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from .._types import Array
from ..debias.auto import Auto, count_whole_models
from ..debias.records import FitRecord
from ..debias.replica_kinds import replica_kind
from ..debias.tower import Tower
from ..debias.vad import VAD
from ..errors import UncurseError
from ..evidence import Moments
from ..links import logit
from ..maps import Affine, Curve, ScoreMap, compose
from ..validation import LARGEST_SCORE, check_finite, check_numbers, is_missing
from .cross_fitting import CrossFitted
from .outcome_line import fit_outcome_line, has_log_link, warn_of_a_bend
from .replicas import ReplicaPlan
from .scores import CLIP, CrossFit, evidence_of, labelled_evidence, on_link, pool_evidence, pool_record

_LEAST_LAMBDA = 0.01  # a smaller λ is an estimate of pure noise
_LEAST_LABELLED = 0.3  # a smaller λ of the labelled rows does not determine a line in the true score


class UncursedClassifierCV(ClassifierMixin, CrossFitted):  # type: ignore[misc]
    """Correct a binary classifier for the candidates that it ranks highest.

    Parameters
    ----------
    estimator : estimator, default=None
        The base model, with ``predict_proba``. None is `LogisticRegression`. A `FrozenEstimator` is served unchanged
        and only its replicas are trained: pass the rows it was trained on.
    method : {"auto", "tower", "vad"}, default="auto"
        `Auto`, `Tower` or `VAD`. ``"vad"`` uses no labels beyond training.
    cv : int, cross-validation generator, iterable or None, default=5
        Folds in which training rows are scored by models that were not trained on them. These rows are the labelled
        rows of the method. None uses no labels.
    n_replicas : int, default=3
        Number of models, including the served one. ``(cv + 1) * n_replicas`` models are trained.
    replicas : {"bootstrap", "seeds"}, default="bootstrap"
        How replicas are trained, see `fit_replicas`. Seeds are enough for neural networks only.
    n_jobs : int, default=None
        Number of models trained in parallel by joblib. ``joblib.parallel_config(verbose=10)`` reports progress.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the replicas and folds, and of the served model if its own ``random_state`` is None.

    Attributes
    ----------
    estimator_ : estimator
        The served model, trained on all rows.
    replicas_ : tuple of estimators
        The other models trained on all rows.
    map_ : ScoreMap
        The score map. It takes ``estimator_.predict_proba(X)[:, 1]``, the probability of ``classes_[1]``.
    method_, reason_ : str
        Chosen method, and why it was chosen.
    record_ : FitRecord
        How the map was fitted. With folds, λ is that of scores out of fold, and its other estimates are left out:
        they do not apply to the scores that the map takes. It holds no intervals: call `interval`.
    classes_ : ndarray of shape (2,)
        The class labels.
    n_features_in_ : int
        Number of features, if the base model defines it.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the base model defines them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, pool = rng.normal(size=(500, 10)), rng.normal(size=(5000, 10))
    >>> y = rng.random(500) < 1 / (1 + np.exp(-X.sum(axis=1) / 5))
    >>> clf = UncursedClassifierCV(LogisticRegression(C=np.inf), random_state=0).fit(X, y, pool=pool)
    >>> best = pool[np.argsort(clf.predict_proba(pool)[:, 1])[-100:]]
    >>> bool(clf.predict_proba(best)[:, 1].mean() < clf.estimator_.predict_proba(best)[:, 1].mean())
    True
    """

    _default_estimator = "LogisticRegression"
    _methods = ("auto", "tower", "vad")
    _scale = "probability"

    @staticmethod
    def _predictions(model: Any, X: Any) -> Array:
        return np.asarray(np.asarray(model.predict_proba(X))[:, 1], np.float64)

    def _check_target(self, base: Any, y: ArrayLike) -> NDArray[Any]:
        if not hasattr(base, "predict_proba"):
            raise UncurseError(
                f"{type(base).__name__} has no predict_proba; wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        values = np.asarray(y)
        if values.dtype.kind in "fO" and values.ndim == 1:
            missing = np.flatnonzero([*map(is_missing, values.tolist())])
            if len(missing):
                raise UncurseError(
                    f"y[{missing[0]}] is {values[missing[0]]} ({len(missing):,} such values); Input y contains NaN or "
                    "missing labels: drop those rows, or pass them as the pool"
                )
            if {type(value) for value in values.tolist()} <= {bool, np.bool_}:
                values = y = values.astype(bool)
        try:
            if values.dtype.kind == "f":
                assert_all_finite(values, input_name="y")
            kind = type_of_target(y, input_name="y", raise_unknown=True)
        except (TypeError, ValueError) as error:
            raise UncurseError(" ".join(str(error).split())[:200]) from None
        if kind != "binary":
            raise UncurseError(f"Only binary classification is supported. The type of the target is {kind}.")
        return np.asarray(column_or_1d(y, warn=True))

    def _check_weighted(self, plan: ReplicaPlan) -> None:
        present = np.unique(plan.y if plan.weights is None else plan.y[plan.weights > 0])
        if len(present) < 2:
            raise UncurseError(f"y has one class, {present.tolist()}; pass rows of both classes with positive weight")

    def _model_attributes(self, served: Any, target: NDArray[Any]) -> dict[str, Any]:
        classes, known = np.unique(target), np.asarray(served.classes_).tolist()
        if known != classes.tolist():
            raise UncurseError(
                f"the frozen model has the classes {known} and y has {classes.tolist()}; pass the rows it was fitted on"
            )
        return {"classes_": classes, **super()._model_attributes(served, target)}

    def _labels(self, target: NDArray[Any], every: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(target == np.unique(every)[1])

    def _fit_map(self, done: CrossFit, labelled: tuple[Array, ...] | None) -> tuple[ScoreMap, FitRecord, Any]:
        every = np.concatenate([done.pool, *(x for x in (labelled and labelled[0], done.served_pool) if x is not None)])
        clip = CLIP if ((every <= 0) | (every >= 1)).any() else 0.0
        kind = done.replicas.kind
        method: VAD | Tower | Auto
        try:
            with warnings.catch_warnings():
                # The labelled rows are those that the model was trained on, not a log of their own.
                warnings.filterwarnings("ignore", "the odds of the labels are")
                pool = pool_evidence(done, clip)
                rows = None if labelled is None else labelled_evidence(done, clip)
                if self.method == "vad":
                    method = VAD(scale="probability", replicas=kind, lambda_floor=_LEAST_LAMBDA).fit(pool)
                elif self.method == "tower":
                    if rows is None:
                        raise UncurseError("method='tower' needs labels, and there are too few rows for two folds")
                    method = Tower(scale="probability", replicas=kind, selected_by="other").fit(pool, labelled=rows)
                else:
                    method = Auto(scale="probability", replicas=kind, selected_by="other").fit(pool, labelled=rows)
                    if rows is not None and done.served_pool is not None:
                        count_whole_models(method, evidence_of(done.served_pool, None, None, clip))
        except UncurseError as error:
            if self.method == "tower":
                raise
            return self._unchanged(done, str(error))
        score_map = method.map_
        if clip:  # part of the map, so that the map alone reproduces the estimator
            low, high = (float(v) for v in logit(np.array([clip, 1 - clip])))
            score_map = compose(Curve((low, high), (low, high), 0.0, 0.0), score_map, scale="probability")
        return score_map, method.record_, method

    def predict_proba(self, X: Any) -> Array:
        """Predict corrected probabilities.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Rows to score.

        Returns
        -------
        ndarray of shape (n, 2)
            Probabilities of ``classes_``.
        """
        p = self._mapped(X)
        return np.column_stack([1 - p, p])

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the more probable class.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Rows to score.

        Returns
        -------
        ndarray of shape (n,)
            Class labels.
        """
        p = self._mapped(X)
        return np.asarray(self.classes_[(p > 0.5).astype(np.intp)])

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Return an interval for the calibration error that remains on the top share of the pool.

        It knows the noise of the replicas and of the labels, not a drift after training.

        Parameters
        ----------
        alpha : float
            Selected share of the pool, in (0, 1].
        level : float, default=0.9
            Confidence level.

        Returns
        -------
        tuple of float
            Lower and upper bound; +0.05 means that predictions are 5% too high.
        """
        check_is_fitted(self)
        if self._intervals is None:  # no method could be fitted, and `reason_` says why
            raise UncurseError(f"there are no intervals: {self.reason_}")
        bounds: tuple[float, float] = self._intervals.interval(alpha, level)
        return bounds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class UncursedRegressorCV(RegressorMixin, CrossFitted):  # type: ignore[misc]
    """Correct a regressor for the candidates that it ranks highest.

    With labels the target is a line in the true score: its slope and level follow from the rows scored out of fold,
    and the true score given the served one from the replicas on the pool. Without labels the line is the identity.
    Around `PoissonRegressor`, `GammaRegressor` and `TweedieRegressor` with a log link, scores are logarithms of
    predictions, the target is the exponential of the line, and predictions stay positive.
    There are no intervals: compare predictions with outcomes by `uncurse.calibration_error`.

    Parameters
    ----------
    estimator : estimator, default=None
        The base model. None is `LinearRegression`. A `FrozenEstimator` is served unchanged and only its replicas are
        trained: pass the rows it was trained on.
    method : {"auto", "vad"}, default="auto"
        ``"vad"`` uses no labels beyond training.
    cv, n_replicas, replicas, n_jobs, random_state : optional
        As in `UncursedClassifierCV`.

    Attributes
    ----------
    estimator_, replicas_, method_, reason_, record_, n_features_in_, feature_names_in_
        As in `UncursedClassifierCV`.
    map_ : ScoreMap
        The score map, a straight line of the values or of their logarithms. It takes ``estimator_.predict(X)``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> reg = UncursedRegressorCV(random_state=0).fit(X, X.sum(axis=1) / 5 + rng.normal(size=100))
    >>> 0.2 < reg.map_.slope < 0.9
    True
    """

    _default_estimator = "LinearRegression"
    _methods = ("auto", "vad")
    _scale = "value"

    @staticmethod
    def _predictions(model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X), np.float64)

    def _link(self, base: Any, scores: Array, target: NDArray[Any]) -> str:
        positive = scores.min() > 0 and target.min() >= 0 and target.max() > 0
        return "log" if positive and has_log_link(base) else "identity"

    def _check_target(self, base: Any, y: ArrayLike) -> NDArray[Any]:
        if is_classifier(base):
            raise UncurseError(f"{type(base).__name__} is a classifier; use UncursedClassifierCV")
        try:
            target = column_or_1d(y, warn=True)
            if target.dtype.kind == "O":
                target = target.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise UncurseError(str(error)) from None
        check_finite(check_numbers(target, "y"), "y", LARGEST_SCORE)
        return np.asarray(target)

    def _fit_map(self, done: CrossFit, labelled: tuple[Array, ...] | None) -> tuple[ScoreMap, FitRecord, Any]:
        kind, link = done.replicas.kind, done.link
        slope, level, said = 1.0, 0.0, ""
        if labelled is not None:
            scores, y, *more = labelled
            weight = more[0] if more else np.ones(len(y))
            z = on_link(scores, link)
            moments = Moments("identity").update(z, scale="value", sample_weight=weight)
            noise = float(replica_kind(kind).noise_variance(moments.covariance))
            spread, center = float(moments.covariance[0, 0]), float(moments.mean[0])
            ratio = 1 - noise / spread if noise < (1 - _LEAST_LABELLED) * spread else 0.0
            curvature = noise * ratio / 2 if link == "log" else 0.0  # of exp, over true scores given a served one
            outcomes = fit_outcome_line(z[:, 0] - center, y, weight, done.labelled_repeats, link)
            warn_of_a_bend(z[:, 0], y, outcomes, link)
            # A line in the true score would magnify any difference between pool and labelled rows if noise prevails.
            slope = max(outcomes.slope, 0.0) / (ratio or 1.0)
            level = outcomes.level - slope * center - slope**2 * curvature
            if not ratio:
                said = f"most of the variance of the scores is noise; the target rises by {slope:.3f} per unit of them"
                record = FitRecord("line", pool_record(done), reason=said, scale="value", link=link, replicas=kind)
                return Affine(slope, level, link, "value"), record, None
            target = "log of the target" if link == "log" else "target"
            said = f"; the {target} rises by {slope:.3f} per unit of the true score"
        vad = VAD(link=link, scale="value", replicas=kind, lambda_floor=_LEAST_LAMBDA)
        vad.fit(done.pool, sample_weight=done.pool_weights)
        record = replace(vad.record_, method="line" if said else "vad", reason=f"λ = {vad.lambda_:.3f}{said}")
        shrinkage, center = vad.lambda_, vad.center_
        if link == "log":  # the mean of exp(true score) given the served score
            level += slope**2 * shrinkage * (record.noise_variance or 0.0) / 2
        score_map = Affine(slope * shrinkage, level + slope * (1 - shrinkage) * center, link, "value")
        return score_map, record, None

    def predict(self, X: Any) -> Array:
        """Predict corrected values.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Rows to score.

        Returns
        -------
        ndarray of shape (n,)
            Predictions.
        """
        return self._mapped(X)
