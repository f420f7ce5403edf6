"""Scikit-learn estimators that debias their own predictions for the top of a candidate pool.

`fit` trains the served model and its replicas, scores the pool with all of them and fits `VAD`. Predictions are the
served model's, passed through the score map, so the ranking is unchanged.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, is_classifier
from sklearn.utils import assert_all_finite, column_or_1d, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from .._types import Array
from ..debias.vad import VAD
from ..errors import UncurseError
from ..evidence import Evidence, LogSpec, Moments
from ..evidence.from_arrays import column_names
from ..links import get_link
from ..maps import Affine, Curve, ScoreMap, compose
from ..validation import LARGEST_SCORE, check_finite, check_numbers, check_weights, warn_user
from .replicas import check_estimator, fit_replicas

#: Predictions of exactly 0 or 1 have no logit; they are clipped to [CLIP, 1 − CLIP].
CLIP = 1e-6
_FEATURES = ("n_features_in_", "feature_names_in_")


class _VADEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifier and the regressor."""

    _scale: str  # of the base model's predictions
    _default_estimator: str  # in sklearn.linear_model
    _default_link: str

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_replicas: int = 2,
        replicate: str = "auto",
        link: str | None = None,
        curvature: bool = False,
        lambda_floor: float | None = 0.01,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_replicas = n_replicas
        self.replicate = replicate
        self.link = link
        self.curvature = curvature
        self.lambda_floor = lambda_floor
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _base(self) -> Any:
        if self.estimator is not None:
            check_estimator(self.estimator)
            return self.estimator
        from sklearn import linear_model  # slow to import

        return getattr(linear_model, self._default_estimator)()

    def _predictions(self, model: Any, X: Any) -> Array:
        """Predictions of one model, shape (n,)."""
        raise NotImplementedError

    def _check_target(self, base: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> NDArray[Any]:
        raise NotImplementedError

    def _model_attributes(self, served: Any, target: NDArray[Any]) -> dict[str, Any]:
        """Fitted attributes copied from the served model."""
        return {name: getattr(served, name) for name in _FEATURES if hasattr(served, name)}

    def fit(self, X: Any, y: ArrayLike, *, pool: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train the base model and its replicas, and fit the score map on the pool.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Training rows.
        y : array-like of shape (n,)
            Targets.
        pool : array-like, sparse matrix or dataframe of shape (m, d), default=None
            Unlabelled rows distributed as the candidates. None uses the training rows and their weights.
        sample_weight : array-like of shape (n,), default=None
            Weights of the training rows. Only their ratios matter; see `fit_replicas`.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        link = self._default_link if self.link is None else self.link
        options: dict[str, Any] = {"link": link, "scale": self._scale}
        options |= {"curvature": self.curvature, "lambda_floor": self.lambda_floor}
        VAD(**options)  # raises on invalid options before models are trained
        base = self._base()
        target = self._check_target(base, y, sample_weight)
        fitted = fit_replicas(
            base,
            X,
            target,
            n_replicas=self.n_replicas,
            replicate=self.replicate,
            sample_weight=sample_weight,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        attributes = self._model_attributes(fitted.served, target)
        scores = np.column_stack([self._predictions(model, X if pool is None else pool) for model in fitted.models])
        weights = check_weights(sample_weight, len(target)) if pool is None else None
        if weights is not None:
            scores, weights = scores[weights > 0], weights[weights > 0]
        bounded = self._scale == "probability" and np.isfinite(get_link(link).lower)
        clip = CLIP if bounded and ((scores <= 0) | (scores >= 1)).any() else 0.0
        moments = Moments(link).update(_clipped(scores, clip), scale=self._scale, sample_weight=weights)
        vad = None
        score_map: ScoreMap = Affine(1.0, 0.0, link, self._scale)
        if moments.covariance[0, 0] > 1e-18 * max(1.0, moments.mean[0] ** 2):
            vad = VAD(**options, replicas=fitted.regime).fit(
                Evidence(LogSpec(column_names(scores.shape[1]), self._scale, link=link), moments)
            )
            score_map = vad.map_
        else:
            warn_user(
                f"{type(fitted.served).__name__} predicts the same value for every row of the pool; "
                "its predictions are not changed"
            )
        if clip:  # part of the map, so that the map alone reproduces the estimator
            low, high = (float(v) for v in get_link(link).inverse(np.array([clip, 1 - clip])))
            score_map = compose(Curve((low, high), (low, high), 0.0, 0.0, link), score_map, scale=self._scale)
        self.estimator_, self.replicas_, self.replicate_ = fitted.served, fitted.others, fitted.replicate
        self.clip_, self.vad_, self.map_ = clip, vad, score_map
        self.lambda_ = 1.0 if vad is None else vad.lambda_
        for name in _FEATURES:
            self.__dict__.pop(name, None)  # of an earlier fit
        self.__dict__.update(attributes)
        return self

    def predict_replicas(self, X: Any) -> Array:
        """Return the predictions of every model before debiasing.

        Pass them to `VAD` with ``scale="probability"`` (classifier) or ``"value"`` (regressor) and
        ``replicas=vad_.options.replicas``.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Rows to score.

        Returns
        -------
        ndarray of shape (n, n_replicas)
            Predictions, the served model in column 0.
        """
        check_is_fitted(self)
        models = (self.estimator_, *self.replicas_)
        return _clipped(np.column_stack([self._predictions(model, X) for model in models]), self.clip_)

    def _debiased(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(self.map_(self._predictions(self.estimator_, X)))

    def get_metadata_routing(self) -> Any:
        """Return the metadata router of scikit-learn: `fit` passes `sample_weight` on to the base model."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self._base(), method_mapping=MethodMapping().add(caller="fit", callee="fit"))

    def __sklearn_tags__(self) -> Any:
        tags, base = super().__sklearn_tags__(), get_tags(self._base())
        pairwise = tags.input_tags.pairwise
        tags.input_tags = base.input_tags
        tags.input_tags.pairwise = pairwise  # rows of a kernel matrix cannot be bootstrapped
        tags.target_tags.required = True
        tags.non_deterministic = base.non_deterministic
        return tags


class VADClassifier(ClassifierMixin, _VADEstimator):  # type: ignore[misc]
    """Debias a binary classifier for the candidates that it ranks highest.

    VAD assumes that noise is the only error of the base model. Do not use it for a model that under-fits, or that
    averages many models already (a large forest).

    Parameters
    ----------
    estimator : estimator, default=None
        The base model, with ``predict_proba``. None is `LogisticRegression`. A `FrozenEstimator` is served unchanged
        and only its replicas are trained: pass the rows it was trained on.
    n_replicas : int, default=2
        Number of models, including the served one.
    replicate : {"auto", "seeds", "bootstrap"}, default="auto"
        How replicas are trained; see `fit_replicas`.
    link : {"logistic", "probit", "log", "identity"}, default=None
        Scale on which scores are shrunk; None is ``"logistic"``. ``"identity"`` is the paper's VAD(p). It suits models
        that vote, such as fully grown forests: many of their predictions are 0 or 1 and have no logit.
    curvature : bool, default=False
        Correct for the curvature of the link; see `VAD`.
    lambda_floor : float or None, default=0.01
        Smallest λ. It is used, with a warning, if replicas differ more than scores do (λ ≤ 0). None raises an error.
    n_jobs : int, default=None
        Number of models trained in parallel by joblib.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the replicas, and of the served model if its own ``random_state`` is None.

    Attributes
    ----------
    estimator_ : estimator
        The served model.
    replicas_ : tuple of estimators
        The other models.
    replicate_ : {"seeds", "bootstrap"}
        How they were trained.
    vad_ : VAD or None
        The fitted `VAD`; None, with a warning, if the base model predicts one value for the whole pool.
    lambda_ : float
        λ, which is 1 if `vad_` is None.
    map_ : ScoreMap
        The score map. It takes ``estimator_.predict_proba(X)[:, 1]``, the probability of ``classes_[1]``.
    clip_ : float
        1e-6 if the base model predicted exactly 0 or 1 on the pool (trees, nearest neighbours) and the link is
        infinite there, else 0. `map_` clips predictions to [clip_, 1 − clip_].
    classes_ : ndarray of shape (2,)
        The class labels.
    n_features_in_ : int
        Number of features, if the base model defines it.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if the base model defines them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, pool = rng.normal(size=(500, 10)), rng.normal(size=(5000, 10))
    >>> y = rng.random(500) < 1 / (1 + np.exp(-X.sum(axis=1) / 5))
    >>> clf = VADClassifier(LogisticRegression(C=np.inf), random_state=0).fit(X, y, pool=pool)
    >>> clf.replicate_, 0.5 < clf.lambda_ < 0.9
    ('bootstrap', True)
    >>> best = pool[np.argsort(clf.predict_proba(pool)[:, 1])[-100:]]
    >>> bool(clf.predict_proba(best)[:, 1].mean() < clf.estimator_.predict_proba(best)[:, 1].mean())
    True
    """

    _scale = "probability"
    _default_estimator = "LogisticRegression"
    _default_link = "logistic"

    def _predictions(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict_proba(X)[:, 1], np.float64)

    def _check_target(self, base: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> NDArray[Any]:
        if not hasattr(base, "predict_proba"):
            raise UncurseError(
                f"{type(base).__name__} has no predict_proba; wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        try:
            if np.asarray(y).dtype.kind == "f":
                assert_all_finite(np.asarray(y), input_name="y")
            kind = type_of_target(y, input_name="y", raise_unknown=True)
        except (TypeError, ValueError) as error:
            raise UncurseError(str(error)) from None
        if kind != "binary":
            raise UncurseError(f"Only binary classification is supported. The type of the target is {kind}.")
        labels = np.asarray(column_or_1d(y, warn=True))
        weights = check_weights(sample_weight, len(labels))
        present = np.unique(labels if weights is None else labels[weights > 0])
        if len(present) < 2:
            raise UncurseError(f"y has one class, {present.tolist()}; pass rows of both classes with positive weight")
        return labels

    def _model_attributes(self, served: Any, target: NDArray[Any]) -> dict[str, Any]:
        classes, known = np.unique(target), np.asarray(served.classes_).tolist()
        if known != classes.tolist():
            raise UncurseError(
                f"the frozen model has the classes {known} and y has {classes.tolist()}; pass the rows it was fitted on"
            )
        return {"classes_": classes, **super()._model_attributes(served, target)}

    def predict_proba(self, X: Any) -> Array:
        """Predict debiased probabilities.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Rows to score.

        Returns
        -------
        ndarray of shape (n, 2)
            Probabilities of ``classes_``.
        """
        p = self._debiased(X)
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
        p = self._debiased(X)
        return np.asarray(self.classes_[(p > 0.5).astype(np.intp)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class VADRegressor(RegressorMixin, _VADEstimator):  # type: ignore[misc]
    """Debias a regressor for the candidates that it ranks highest.

    Parameters
    ----------
    estimator : estimator, default=None
        The base model. None is `LinearRegression`. A `FrozenEstimator` is served unchanged and only its replicas are
        trained: pass the rows it was trained on.
    link : {"identity", "log"}, default=None
        Scale on which predictions are shrunk; None is ``"identity"``, ``"log"`` is for positive predictions.
    n_replicas, replicate, curvature, lambda_floor, n_jobs, random_state : optional
        As in `VADClassifier`.

    Attributes
    ----------
    estimator_, replicas_, replicate_, vad_, lambda_, n_features_in_, feature_names_in_
        As in `VADClassifier`.
    map_ : ScoreMap
        The score map. It takes ``estimator_.predict(X)``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> reg = VADRegressor(random_state=0).fit(X, X.sum(axis=1) / 5 + rng.normal(size=100))
    >>> 0.5 < reg.lambda_ < 0.9
    True
    """

    _scale = "value"
    _default_estimator = "LinearRegression"
    _default_link = "identity"

    def _predictions(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X), np.float64)

    def _check_target(self, base: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> NDArray[Any]:
        if is_classifier(base):
            raise UncurseError(f"{type(base).__name__} is a classifier; use VADClassifier")
        try:
            target = column_or_1d(y, warn=True)
            if target.dtype.kind == "O":
                target = target.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise UncurseError(str(error)) from None
        check_finite(check_numbers(target, "y"), "y", LARGEST_SCORE)
        return np.asarray(target)

    def predict(self, X: Any) -> Array:
        """Predict debiased values.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Rows to score.

        Returns
        -------
        ndarray of shape (n,)
            Predictions.
        """
        return self._debiased(X)


def _clipped(predictions: Array, clip: float) -> Array:
    return np.clip(predictions, clip, 1 - clip) if clip else predictions


__all__ = ["VADClassifier", "VADRegressor"]
