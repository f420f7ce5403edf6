"""Scikit-learn estimators that correct their own predictions for the top of a candidate pool.

`fit` trains the served model and its replicas, on all rows and on the training part of each fold. Rows that are scored
out of fold are honest labeled rows. The map is fitted on these and on the pool. Predictions are the served model's,
passed through the map, so the ranking is unchanged.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import assert_all_finite, column_or_1d, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from .._types import Array
from ..errors import UncurseError
from ..evidence import Histogram
from ..evidence.from_arrays import pool_evidence
from ..links import logit
from ..maps import Affine, Curve, compose
from ..methods.auto import fit_auto
from ..methods.fitted import Fitted, FittedParts
from ..methods.label_free import lines_of
from ..methods.noise import replica_kind
from ..methods.records import FitRecord, ScoreSummary
from ..methods.replica_calibration import calibrate_replicas
from ..methods.vad import VAD, fit_vad
from ..validation import LARGEST_SCORE, check_choice, check_finite, is_missing, warn_user
from .cross_fitting import CLIP, CrossFit, cross_fit, make_folds, on_link
from .outcome_curve import fit_outcomes, has_log_link
from .replicas import ReplicaPlan, check_is_estimator, last_step
from .teacher import Teacher, default_teacher

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: this scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return a method as it is."""
        return method


_TIE = 1e-3  # logits between the predictions that are clipped
_LEAST_LAMBDA = 0.01  # a smaller λ is an estimate of pure noise
_NO_INTERVAL = "a regression without labels has none; compare predictions with outcomes by uncurse.calibration_error"
_TREES = ("lightgbm", "xgboost", "catboost", "sklearn.tree", "sklearn.ensemble")


class CrossFitted(CallbackSupportMixin, MetaEstimatorMixin, BaseEstimator, FittedParts, ABC):  # type: ignore[misc]
    """Base of the classifier and the regressor."""

    _default_estimator: str  # in sklearn.linear_model
    _methods: tuple[str, ...]
    _scale: str

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "auto",
        cv: Any = 5,
        n_replicas: int | None = None,
        replicas: str = "bootstrap",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.n_replicas = n_replicas
        self.replicas = replicas
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _base(self) -> Any:
        if self.estimator is not None:
            check_is_estimator(self.estimator)
            return self.estimator
        from sklearn import linear_model  # slow to import

        return getattr(linear_model, self._default_estimator)()

    @staticmethod
    @abstractmethod
    def _predictions(model: Any, X: Any) -> Array:
        """Return predictions of one model, shape (n,)."""

    @abstractmethod
    def _check_target(self, base: Any, y: ArrayLike) -> NDArray[Any]:
        """Return a valid target."""

    @abstractmethod
    def _fit_map(self, done: CrossFit) -> Fitted:
        """Return map, record and errors for scores out of fold."""

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        pool: Any = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train the served model and its replicas, and fit the score map.

        Parameters
        ----------
        X : array-like, sparse matrix or dataframe of shape (n, d)
            Training rows.
        y : array-like of shape (n,)
            Targets.
        pool : array-like, sparse matrix or dataframe of shape (m, d), default=None
            Unlabeled rows distributed as the candidates. By default these are the training rows, scored out of fold.
        groups : array-like of shape (n,), default=None
            Group of each training row, such as its user. A group is never split between folds, and bootstraps draw
            whole groups.
        sample_weight : array-like of shape (n,), default=None
            Weights of the training rows. Only their ratios matter.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        done = self.cross_fit(X, y, pool=pool, groups=groups, sample_weight=sample_weight)
        if done.constant:
            fitted = self._unchanged(done, "the base model predicts the same value for every row of the pool")
        else:
            fitted = self._fit_map(done if self.method != "vad" else replace(done, labeled=None))
        assert fitted.record is not None
        score_map, record = fitted.map, self._record(fitted.record, done)
        if done.alignment and record.method != "nothing":
            score_map = compose(Affine(1.0, done.alignment, done.link), score_map, scale=self._scale)
        self.estimator_, self.replicas_ = done.replicas.served, done.replicas.others
        self.fitted_ = Fitted(score_map, record, fitted.errors)
        self._feature_names = _feature_names(X)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)  # of an earlier fit
            if hasattr(self.estimator_, name):
                self.__dict__[name] = getattr(self.estimator_, name)
        if self._scale == "probability":
            self.classes_ = np.unique(done.target)
        return self

    def _begin(self, count: int) -> Callable[[], None]:
        """Begin a task of `count` fits for the callbacks of scikit-learn; call the result after each fit."""
        task, number = self._init_callback_context(max_subtasks=count), itertools.count(1)
        task.call_on_fit_task_begin(estimator=self)

        def done() -> None:
            fitted = task.subcontext(task_name="fit a model")
            fitted.call_on_fit_task_begin(estimator=self)
            fitted.call_on_fit_task_end(estimator=self)
            if next(number) == count:
                task.call_on_fit_task_end(estimator=self)

        return done

    @with_callbacks  # type: ignore[untyped-decorator]
    def cross_fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        pool: Any = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> CrossFit:
        """Train all models and return them with the scores that `fit` fits the map to; the estimator is not changed.

        Parameters
        ----------
        X, y, pool, groups, sample_weight : array-like
            As in `fit`.

        Returns
        -------
        CrossFit
            Models trained on all rows, scores of the pool, and training rows scored out of fold.
        """
        method = check_choice("method", self.method, self._methods)
        if method == "labels" and self.cv is None:
            raise UncurseError("method='labels' needs labels; pass cv, such as cv=5")
        base = self._base()
        target = self._check_target(base, y)
        n_replicas = self.n_replicas
        if n_replicas is None:
            n_replicas = 3 if method == "vad" or self.cv is None else 2
        plan = ReplicaPlan(
            base, X, target, n_replicas=n_replicas, replicas=self.replicas, groups=groups,
            sample_weight=sample_weight, random_state=self.random_state,
        )  # fmt: skip
        if getattr(self, "_skl_callbacks", None):
            plan.begin = self._begin
        if self._scale == "probability":
            present = np.unique(plan.y if plan.weights is None else plan.y[plan.weights > 0])
            if len(present) < 2:
                raise UncurseError(f"y has one class, {present.tolist()}; pass rows of both with positive weight")
            labels, link = (plan.y == present[1]).astype(np.float64), "logistic"
        else:
            positive = plan.y.min() >= 0 and plan.y.max() > 0
            labels, link = plan.y, "log" if positive and has_log_link(base) else "identity"
        if pool is not None:
            _check_columns(base, _feature_names(X), pool, "pool")
        folds = make_folds(plan, self.cv) if method != "vad" or pool is None else []
        if (
            plan.by_seeds
            and (not folds or method == "vad")
            and _is_from(plan.template, (*_TREES, "sklearn.linear_model"))
        ):
            warn_user(
                f"replicas by seed show little of the noise of {type(plan.template).__name__}, which comes from the "
                "training rows; use replicas='bootstrap', or labels to check it"
            )
        teacher, note = None, ""
        if folds and pool is not None and method != "vad":
            teacher, note = self._teacher_of(plan, pool)
        done = cross_fit(
            plan, folds, pool, labels, predict=self._predictions, link=link, n_jobs=self.n_jobs, teacher=teacher
        )
        return replace(done, note=note)

    def _teacher_of(self, plan: ReplicaPlan, pool: Any) -> tuple[Teacher | None, str]:
        """Return the teacher, or None and the reason if it needs a word; regressors have none."""
        return None, ""

    def _result(self) -> Fitted:
        check_is_fitted(self)
        return self.fitted_

    def _mapped(self, X: Any) -> Array:
        check_is_fitted(self)
        _check_columns(self.estimator_, self._feature_names, X, "X")
        return np.asarray(self.map_(self._predictions(self.estimator_, X)))

    def _unchanged(self, done: CrossFit, reason: str) -> Fitted:
        warn_user(f"{reason}; predictions are not changed")
        record = FitRecord(
            "nothing", done.pool.record(), reason=reason, no_interval=reason, scale=self._scale, link=done.link,
            replicas=done.replicas.kind,
        )  # fmt: skip
        return Fitted(Affine(1.0, 0.0, done.link, self._scale), record)

    def _record(self, record: FitRecord, done: CrossFit) -> FitRecord:
        """Return what the record of a fit to scores out of fold tells of the map of served scores."""
        labeled = None if done.labeled is None or self.method == "vad" else done.labeled.record()
        scores = None
        if done.link == "logistic":
            rows = done.served_pool or done.pool
            served = on_link(rows.scores[:, 0], done.link, done.clip)
            scores = ScoreSummary.of(Histogram().update(served, sample_weight=rows.weights))
        reason = "; ".join(filter(None, (record.reason, done.note)))
        record = replace(record, pool=replace(done.pool.record(), scores=scores), labeled=labeled, reason=reason)
        if done.labeled is None:
            return record
        # Served scores have less noise, and another center; monitoring would take the difference of λ for a drift.
        return replace(record, standard_error=None, center=None, noise_variance=None, score_variance=None)

    def get_metadata_routing(self) -> Any:
        """Return the metadata router of scikit-learn: `fit` passes `sample_weight` on to the base model.

        Returns
        -------
        MetadataRouter
        """
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


class UncursedClassifierCV(ClassifierMixin, CrossFitted):  # type: ignore[misc]
    """Make predicted probabilities accurate for the candidates that a classifier ranks highest.

    Use it if you have the training data. With scores of a model and its replicas, use `Auto`.

    Parameters
    ----------
    estimator : estimator, default=None
        The base model, with ``predict_proba``. None is `LogisticRegression`. A `FrozenEstimator` is served unchanged
        and only its replicas are trained: pass the rows it was trained on.
    method : {"auto", "labels", "vad"}, default="auto"
        `Auto`, `ReplicaCalibrator` or `VAD`. ``"vad"`` uses no labels beyond training.
    cv : int, cross-validation generator, iterable or None, default=5
        Cross-validation splits, used to obtain out-of-fold scores for the labeled rows. If None, no labels are used.
    n_replicas : int, default=None
        Number of models of a fold, including the counterpart of the served one. ``cv * n_replicas + 1`` models are
        trained, and ``n_replicas`` without folds. None is 2 if labels are used, and otherwise 3.
    replicas : {"bootstrap", "seeds"}, default="bootstrap"
        How replicas are trained, see `fit_replicas`. Seeds are enough for neural networks only.
    teacher : estimator, "auto" or None, default="auto"
        Classifier of another kind that is trained in the folds, and shows how the pool differs from the training rows
        in what the base model misses. It is used only if its log loss is lower. ``"auto"`` trains a
        `HistGradientBoostingClassifier` if the base model is not made of trees, and there is a pool whose columns
        differ from those of the training rows by more than chance. Any other classifier is always trained.
    n_jobs : int, default=None
        Number of models trained in parallel by joblib. ``set_callbacks(sklearn.callback.ProgressBar())``
        shows the progress of all fits (scikit-learn 1.9), as ``joblib.parallel_config(verbose=10)`` does.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the replicas and folds, and of the served model if its own ``random_state`` is None.

    Attributes
    ----------
    estimator_ : estimator
        The served model, trained on all rows.
    replicas_ : tuple of estimators
        The other models trained on all rows; there are some only without folds.
    map_ : ScoreMap
        The score map. It takes ``estimator_.predict_proba(X)[:, 1]``, the probability of ``classes_[1]``.
    method_, reason_ : str
        Chosen method, and why it was chosen.
    record_ : FitRecord
        How the map was fitted. With folds, λ is that of scores out of fold, and its other estimates are left out:
        they do not apply to the scores that the map takes.
    fitted_ : Fitted
        Map, record and errors, as one object that can be saved.
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
    _methods = ("auto", "labels", "vad")
    _scale = "probability"

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "auto",
        cv: Any = 5,
        n_replicas: int | None = None,
        replicas: str = "bootstrap",
        teacher: Any = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            estimator, method=method, cv=cv, n_replicas=n_replicas, replicas=replicas, n_jobs=n_jobs,
            random_state=random_state,
        )  # fmt: skip
        self.teacher = teacher

    @staticmethod
    def _predictions(model: Any, X: Any) -> Array:
        return np.asarray(np.asarray(model.predict_proba(X))[:, 1], np.float64)

    def _teacher_of(self, plan: ReplicaPlan, pool: Any) -> tuple[Teacher | None, str]:
        if self.teacher is None:
            return None, ""
        if not isinstance(self.teacher, str):
            check_is_estimator(self.teacher)
            if not hasattr(self.teacher, "predict_proba"):
                raise UncurseError(f"teacher={self.teacher!r} has no predict_proba; pass a classifier that has one")
            return Teacher(self.teacher, plan.X, pool), ""
        check_choice("teacher", self.teacher, ("auto",))
        if _is_from(plan.template, _TREES):
            return None, ""
        teacher = default_teacher(plan.X, pool, plan.seed)
        # Weighted rows may have another distribution than their mere number.
        if teacher is None or plan.weights is not None or teacher.sees_a_shift(plan.seed):
            return teacher, ""
        return None, "the pool differs from the training rows by no more than chance, so no teacher is trained"

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
                    f"Input y contains NaN or missing labels: y[{missing[0]}] is {values[missing[0]]} "
                    f"({len(missing):,} such values); drop those rows, or pass them as the pool"
                )
        try:
            if values.dtype.kind == "f":
                assert_all_finite(values, input_name="y")
            kind = type_of_target(y, input_name="y", raise_unknown=True)
        except (TypeError, ValueError) as error:
            raise UncurseError(" ".join(str(error).split())[:200]) from None
        if kind != "binary":
            raise UncurseError(f"Only binary classification is supported. The type of the target is {kind}.")
        target = np.asarray(column_or_1d(y, warn=True))
        classes = np.unique(target).tolist()
        known = np.asarray(base.classes_).tolist() if isinstance(base, FrozenEstimator) else classes
        if known != classes:
            raise UncurseError(
                f"the frozen model has the classes {known} and y has {classes}; pass the rows it was fitted on"
            )
        return target

    def _fit_map(self, done: CrossFit) -> Fitted:
        kind, clip = done.replicas.kind, done.clip
        options: Any = {"replicas": kind, "labels_from": "elsewhere", "own_rows": True, "noise": done.noise}
        try:
            pool = done.pool.evidence(clip)
            rows = None if done.labeled is None else done.labeled.evidence(clip)
            if self.method == "vad":
                vad = VAD(scale="probability", replicas=kind, lambda_floor=_LEAST_LAMBDA)
                fitted = fit_vad(vad, pool, table=replica_kind(kind).table_of(pool, "pool")).fitted()
            elif self.method == "labels":
                if rows is None:
                    raise UncurseError("method='labels' needs labels, and there are too few rows for two folds")
                fitted = calibrate_replicas(pool, rows, **options).fitted()
            else:
                lines = None
                if rows is not None:
                    # A column of the pool holds scores of the models of all folds, whose errors average out.
                    lines = lines_of(done.of_fold.evidence(clip).moments, replica_kind(kind))
                fitted = fit_auto(pool, rows, lines=lines, **options).fitted()
        except UncurseError as error:
            if self.method == "labels":
                raise
            return self._unchanged(done, str(error))
        if clip:  # part of the map, so that the map alone reproduces the estimator; it keeps the ranking
            x = logit(np.array([CLIP, clip + CLIP, 1 - clip - CLIP, 1 - CLIP])).tolist()
            ends = Curve(x, [x[1] - _TIE, x[1], x[2], x[2] + _TIE], 0.0, 0.0)
            clipped = compose(ends, fitted.map, scale="probability")
            fitted = replace(fitted, map=clipped)
        return fitted

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class UncursedRegressorCV(RegressorMixin, CrossFitted):  # type: ignore[misc]
    """Make predicted values accurate for the candidates that a regressor ranks highest.

    The map is a smooth curve of the targets by the scores of rows out of fold. If the pool differs from the training
    rows, replicas show which true score a score stands for there. Without labels the map is that of `VAD`. Around
    `PoissonRegressor`, `GammaRegressor` and `TweedieRegressor` with a log link, scores are logarithms of predictions.

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
        The score map of the values, or of their logarithms. It takes ``estimator_.predict(X)``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> reg = UncursedRegressorCV(random_state=0).fit(X, X.sum(axis=1) / 5 + rng.normal(size=100))
    >>> values = reg.estimator_.predict(X)
    >>> bool(reg.predict(X).max() < values.max())
    True
    """

    _default_estimator = "LinearRegression"
    _methods = ("auto", "vad")
    _scale = "value"

    @staticmethod
    def _predictions(model: Any, X: Any) -> Array:
        return np.asarray(model.predict(X), np.float64)

    def _check_target(self, base: Any, y: ArrayLike) -> NDArray[Any]:
        if is_classifier(base):
            raise UncurseError(f"{type(base).__name__} is a classifier; use UncursedClassifierCV")
        try:
            target = column_or_1d(y, dtype=np.float64, warn=True)
        except (TypeError, ValueError, OverflowError) as error:
            raise UncurseError(str(error)) from None
        check_finite(target, "y", LARGEST_SCORE)
        return np.asarray(target)

    def _fit_map(self, done: CrossFit) -> Fitted:
        try:
            if done.labeled is not None:
                return fit_outcomes(done)
        except UncurseError as error:
            return self._unchanged(done, str(error))
        scores, weights, link = done.pool.scores, done.pool.weights, done.link
        vad = VAD(link=link, scale="value", replicas=done.replicas.kind, lambda_floor=_LEAST_LAMBDA)
        fitted = fit_vad(vad, pool_evidence(scores, None, scale="value", link=link, sample_weight=weights)).fitted()
        assert fitted.record is not None
        return Fitted(fitted.map, replace(fitted.record, no_interval=_NO_INTERVAL))

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


def _feature_names(X: Any) -> list[str] | None:
    """Return the names of the columns of a data frame; None for other arrays."""
    return None if getattr(X, "columns", None) is None else [str(name) for name in X.columns]


def _check_columns(model: Any, names: list[str] | None, X: Any, called: str) -> None:
    """Raise UncurseError if a data frame for LightGBM has other columns than in training, or another order.

    Other libraries check this themselves, or select columns by their names.
    """
    own = _feature_names(X)
    if names is None or own is None or own == names or not type(model).__module__.startswith("lightgbm"):
        return
    place, (here, trained) = next(pair for pair in enumerate(zip_longest(own, names)) if pair[1][0] != pair[1][1])
    raise UncurseError(
        f"column {place} of {called} is {here!r}, in training it was {trained!r}, and LightGBM takes columns by their "
        f"place; pass {called} with the columns of training in their order"
    )


def _is_from(estimator: Any, modules: tuple[str, ...]) -> bool:
    """Return whether a model, or the last step of a pipeline, comes from one of these modules."""
    return any(part.__module__.startswith(modules) for part in type(last_step(estimator)).__mro__)
