"""The scikit-learn face: any estimator, debiased for the top of a candidate pool.

`fit` trains the served model and its replicas, scores the pool with all of them and fits `VAD`; `predict_proba` and
`predict` pass the served model's predictions through the score map. The ranking is the served model's.
"""

from __future__ import annotations

import warnings
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
from ..evidence import Moments
from ..links import get_link
from ..maps import Affine, Curve, compose
from ..validation import check_weights
from .replicas import fit_replicas

#: Where predictions of exactly 0 or 1 are put, which have no logit.
CLIP = 1e-6


class _VADEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share. `_scale`: what the served model's numbers are."""

    _scale: str

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_replicas: int = 2,
        replicate: str = "auto",
        link: str = "logistic",
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
        raise NotImplementedError

    def _predictions(self, model: Any, X: Any) -> Array:
        """One column of predictions, as the model gives them."""
        raise NotImplementedError

    def _check_target(self, base: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> NDArray[Any]:
        raise NotImplementedError

    def fit(self, X: Any, y: ArrayLike, pool: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train the base model and its replicas, and debias it for the pool.

        Parameters
        ----------
        X, y
            Training rows and their targets.
        pool
            Unlabelled rows like those the winners are picked from; the training rows, with their weights, if None.
        sample_weight
            Weights of the training rows. A weight counts rows: 2 is the row twice.
        """
        vad = VAD(link=self.link, scale=self._scale, curvature=self.curvature, lambda_floor=self.lambda_floor)
        target = self._check_target(self._base(), y, sample_weight)
        replicas = fit_replicas(
            self._base(),
            X,
            target,
            n_replicas=self.n_replicas,
            replicate=self.replicate,
            sample_weight=sample_weight,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        self.estimator_, self.replicas_, self.replicate_ = replicas.served, replicas.others, replicas.replicate
        vad.replicas = replicas.regime
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        weights = check_weights(sample_weight, len(target)) if pool is None else None
        self._fit_map(vad, X if pool is None else pool, weights)
        return self

    def _fit_map(self, vad: VAD, pool: Any, weights: Array | None) -> None:
        self.clip_ = 0.0
        scores = self.predict_replicas(pool)
        if weights is not None:
            scores, weights = scores[weights > 0], weights[weights > 0]
        bounded = self._scale == "probability" and np.isfinite(get_link(self.link).lower)
        if bounded and ((scores <= 0) | (scores >= 1)).any():
            self.clip_ = CLIP
            scores = self._clipped(scores)
        moments = Moments(self.link).update(scores, scale=self._scale, sample_weight=weights)
        if moments.covariance[0, 0] <= 1e-18 * max(1.0, moments.mean[0] ** 2):
            warnings.warn(
                f"{type(self.estimator_).__name__} gives the whole pool one score, so there is nothing to debias; "
                "its predictions are left as they are",
                UserWarning,
                stacklevel=3,
            )
            vad.lambda_, vad.center_, vad.standard_error_ = 1.0, float(moments.mean[0]), 0.0
            vad.noise_variance_ = vad.score_variance_ = 0.0
            vad.map_ = Affine(1.0, 0.0, self.link, self._scale)
        else:
            vad.fit(moments)
        self.vad_, self.lambda_, self.map_ = vad, vad.lambda_, vad.map_
        if self.clip_:  # into the map, so that it alone does what this estimator does
            low, high = (float(v) for v in get_link(self.link).inverse(np.array([CLIP, 1 - CLIP])))
            clip = Curve((low, high), (low, high), 0.0, 0.0, self.link)
            self.map_ = compose(clip, vad.map_, scale=self._scale)

    def predict_replicas(self, X: Any) -> Array:
        """Raw predictions of every replica, shape (n, S), the served model first.

        What `VAD` takes as a pool, here with ``scale="probability"`` for a classifier and ``"value"``
        for a regressor, and with ``replicas`` as in ``vad_.replicas``.
        """
        check_is_fitted(self, "estimator_")
        columns = [self._clipped(self._predictions(m, X)) for m in (self.estimator_, *self.replicas_)]
        return np.column_stack(columns)

    def _clipped(self, predictions: Array) -> Array:
        return np.clip(predictions, self.clip_, 1 - self.clip_) if self.clip_ else predictions

    def _debiased(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.map_(self._predictions(self.estimator_, X))

    def get_metadata_routing(self) -> Any:
        """How scikit-learn routes metadata: ``fit`` takes `pool` and `sample_weight`, the latter also for the base."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self._base(), method_mapping=MethodMapping().add(caller="fit", callee="fit"))

    def __sklearn_tags__(self) -> Any:
        tags, base = super().__sklearn_tags__(), get_tags(self._base())
        pairwise = tags.input_tags.pairwise
        tags.input_tags = base.input_tags
        tags.input_tags.pairwise = pairwise  # rows of a kernel cannot be bootstrapped alone
        tags.target_tags.required = True
        tags.non_deterministic = base.non_deterministic
        return tags


class VADClassifier(ClassifierMixin, _VADEstimator):  # type: ignore[misc]
    """A binary classifier whose probabilities stay true for the candidates it ranks highest.

    Parameters
    ----------
    estimator
        The base model, with ``predict_proba``; `LogisticRegression` by default. In a `FrozenEstimator` it is served
        as it is, and only its replicas are trained: pass the rows it was trained on. VAD takes noise for the only
        error of a model: one that is under-fitted, or averages much already (a forest), is better left alone.
    n_replicas
        How many models in all, the served one included.
    replicate
        ``"seeds"``, ``"bootstrap"`` or ``"auto"``; see `fit_replicas`.
    link
        Where scores are shrunk: ``logistic``, ``probit``, ``log``, or ``identity`` (the paper's VAD(p)), which suits
        models that vote, such as fully grown forests: many of their scores are 0 or 1 and have no logit.
    curvature
        Add what the link's bend does to the posterior mean; see `VAD`.
    lambda_floor
        Least λ. Where replicas differ more than scores do (λ ≤ 0) this is used, with a warning; None is an error.
    n_jobs
        How many models are trained at a time, through joblib.
    random_state
        Seed of replicas and bootstraps, and of the served model where it has none of its own.

    Attributes
    ----------
    estimator_, replicas_, replicate_
        The served model, the other models, and how they came about: ``"seeds"`` or ``"bootstrap"``.
    vad_
        The fitted `VAD`; its λ is 1, with a warning, where the base model gives the whole pool one score.
    lambda_, map_
        λ and the score map. It takes ``estimator_.predict_proba(X)[:, 1]``, the probability of ``classes_[1]``.
    clip_
        1e-6 where the base model gave exact 0 or 1 on the pool (trees, nearest neighbours), else 0: probabilities are
        then kept that far inside, for 0 and 1 have no logit.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn, the last two where the base model has them.

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

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from sklearn.linear_model import LogisticRegression  # heavy, and only the default

        return LogisticRegression()

    def _predictions(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict_proba(X)[:, 1], np.float64)

    def _check_target(self, base: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> NDArray[Any]:
        if not hasattr(base, "predict_proba"):
            raise UncurseError(
                f"{type(base).__name__} has no predict_proba; wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        if np.asarray(y).dtype.kind == "f":
            assert_all_finite(np.asarray(y), input_name="y")
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise UncurseError(f"Only binary classification is supported. The type of the target is {kind}.")
        labels = column_or_1d(y, warn=True)
        weights = check_weights(sample_weight, len(labels))
        self.classes_ = np.unique(labels)
        present = self.classes_ if weights is None else np.unique(labels[weights > 0])
        if len(present) < 2:
            raise UncurseError(f"y holds one class, {present.tolist()}; pass rows of both classes, with weight")
        return np.asarray(labels)

    def _fit_map(self, vad: VAD, pool: Any, weights: Array | None) -> None:
        known, held = np.asarray(self.estimator_.classes_).tolist(), self.classes_.tolist()
        if known != held:
            raise UncurseError(
                f"the frozen model knows the classes {known}, y holds {held}; pass what it was fitted on"
            )
        super()._fit_map(vad, pool, weights)

    def predict_proba(self, X: Any) -> Array:
        """Debiased probabilities of the two classes, shape (n, 2)."""
        p = self._debiased(X)
        return np.column_stack([1 - p, p])

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each row."""
        p = self._debiased(X)
        return np.asarray(self.classes_[(p > 0.5).astype(np.intp)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class VADRegressor(RegressorMixin, _VADEstimator):  # type: ignore[misc]
    """A regressor whose predictions stay true for the candidates it ranks highest.

    Parameters
    ----------
    estimator
        The base model; `LinearRegression` by default. In a `FrozenEstimator` it is served as it is.
    link
        Where predictions are shrunk: ``identity``, or ``log`` for positive ones.
    n_replicas, replicate, curvature, lambda_floor, n_jobs, random_state
        As for `VADClassifier`.

    Attributes
    ----------
    estimator_, replicas_, replicate_, vad_, lambda_, map_, n_features_in_, feature_names_in_
        As for `VADClassifier`; the map is a function of the served model's prediction.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> reg = VADRegressor(random_state=0).fit(X, X.sum(axis=1) / 5 + rng.normal(size=100))
    >>> 0.5 < reg.lambda_ < 0.9
    True
    """

    _scale = "value"

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_replicas: int = 2,
        replicate: str = "auto",
        link: str = "identity",
        curvature: bool = False,
        lambda_floor: float | None = 0.01,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            estimator,
            n_replicas=n_replicas,
            replicate=replicate,
            link=link,
            curvature=curvature,
            lambda_floor=lambda_floor,
            n_jobs=n_jobs,
            random_state=random_state,
        )

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from sklearn.linear_model import LinearRegression  # heavy, and only the default

        return LinearRegression()

    def _predictions(self, model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X), np.float64)

    def _check_target(self, base: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> NDArray[Any]:
        if is_classifier(base):
            raise UncurseError(f"{type(base).__name__} is a classifier; use VADClassifier")
        return np.asarray(column_or_1d(y, warn=True))

    def predict(self, X: Any) -> Array:
        """Debiased predictions, shape (n,)."""
        return self._debiased(X)


__all__ = ["CLIP", "VADClassifier", "VADRegressor"]
