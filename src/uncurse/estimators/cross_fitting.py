"""The common part of `UncursedClassifierCV` and `UncursedRegressorCV`: fits, folds, and rows scored out of fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from .._types import Array
from ..debias.records import FitRecord
from ..debias.replica_kinds import replica_kind
from ..debias.straight_line import POOL_SHARES, straight_line
from ..errors import UncurseError
from ..maps import Affine, ScoreMap, compose
from ..validation import check_choice, encode_names, warn_user
from .replicas import ReplicaPlan, RowsToScore, check_is_estimator, run_jobs, score_pool
from .resampling import Rows, take_rows
from .scores import (
    CrossFit,
    align,
    all_constant,
    check_feature_names,
    count_rows,
    feature_names,
    is_tree_or_linear,
    on_link,
    pool_parts,
    pool_record,
    served_quantiles,
    served_record,
)

_FEATURES = ("n_features_in_", "feature_names_in_")
_ALIGNED_ROWS = 20_000  # pool rows that are scored by the served model


class CrossFitted(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
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
        n_replicas: int = 3,
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
    def _predictions(model: Any, X: Any) -> Array:
        """Predictions of one model, shape (n,)."""
        raise NotImplementedError

    def _link(self, base: Any, scores: Array, target: NDArray[Any]) -> str:
        """Return the link of the map, given predictions and targets."""
        return "logistic"

    def _check_target(self, base: Any, y: ArrayLike) -> NDArray[Any]:
        raise NotImplementedError

    def _model_attributes(self, served: Any, target: NDArray[Any]) -> dict[str, Any]:
        """Fitted attributes copied from the served model."""
        return {name: getattr(served, name) for name in _FEATURES if hasattr(served, name)}

    def _fit_map(self, done: CrossFit, labelled: tuple[Array, ...] | None) -> tuple[ScoreMap, FitRecord, Any]:
        """Return map, record, and an object that gives intervals or None."""
        raise NotImplementedError

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
            Unlabelled rows distributed as the candidates. By default these are the training rows, scored out of fold.
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
        attributes = self._model_attributes(done.replicas.served, done.target)
        labelled = None if self.method == "vad" else done.labelled
        if done.constant:
            fitted_map = self._unchanged(done, "the base model predicts the same value for every row of the pool")
        else:
            fitted_map = self._fit_map(done, labelled)
        score_map, record, intervals = fitted_map
        record = served_record(record, done, uses_labels=labelled is not None)
        if done.alignment != (1.0, 0.0) and record.method != "nothing":
            score_map = compose(Affine(*done.alignment, done.link), score_map, scale=self._scale)
        self.estimator_, self.replicas_ = done.replicas.served, done.replicas.others
        self.map_, self.record_, self._intervals = score_map, record, intervals
        self.method_, self.reason_ = record.method, record.reason
        self._served_scores = served_quantiles(done)
        self._feature_names = feature_names(X)
        for attribute in _FEATURES:
            self.__dict__.pop(attribute, None)  # of an earlier fit
        self.__dict__.update(attributes)
        return self

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
        if method == "tower" and (self.cv is None or self.cv is False):
            raise UncurseError("method='tower' needs labels; pass cv, such as cv=5")
        base = self._base()
        target = self._check_target(base, y)
        plan = ReplicaPlan.of(
            base, X, target, n_replicas=self.n_replicas, replicas=self.replicas, groups=groups,
            sample_weight=sample_weight, random_state=self.random_state,
        )  # fmt: skip
        replica_kind(plan.kind).check_columns(plan.count)
        self._check_weighted(plan)
        if pool is not None:
            check_feature_names(base, feature_names(X), pool, "pool")
        folds = self._folds(plan) if method != "vad" or pool is None else []
        if plan.by_seeds and (not folds or method == "vad") and is_tree_or_linear(plan.template):
            warn_user(
                f"replicas by seed show little of the noise of {type(plan.template).__name__}, which comes from the "
                "training rows; use replicas='bootstrap', or labels to check it"
            )
        pool_rows = count_rows(pool)
        parts, times = pool_parts(pool_rows, len(folds), plan.seed)
        jobs = plan.jobs()
        for number, (train, test) in enumerate(folds, 1):
            jobs += plan.jobs(train, number, RowsToScore(self._predictions, test, pool, parts[number - 1]))
        done = run_jobs(jobs, self.n_jobs)
        fitted = plan.replicas(done[: plan.count])

        def served_scores(source: Any, sample: Rows | None = None) -> Array:
            wanted = RowsToScore(self._predictions, np.arange(0), source, sample)
            return np.column_stack([score_pool(wanted, model) for model in fitted.models])

        if not folds:
            scores = served_scores(X if pool is None else pool)
            weights = plan.weights if pool is None else None
            link = self._link(base, scores, plan.y)
            return CrossFit(
                fitted, scores, weights, None, plan.y, scores, (1.0, 0.0), all_constant([scores]), link=link
            )
        scored = [done[i : i + plan.count] for i in range(plan.count, len(done), plan.count)]
        rows: Rows = np.concatenate([test for _, test in folds])
        by_fold = [np.column_stack([own for own, _ in part]) for part in scored]
        labels = np.asarray(self._labels(plan.y[rows], plan.y), np.float64)
        weights = None if plan.weights is None else plan.weights[rows]
        out_of_fold = np.concatenate(by_fold)
        labelled = (out_of_fold, labels) if weights is None else (out_of_fold, labels, weights)
        different = len(np.unique(rows))
        repeats = pool_repeats = len(rows) / different
        fold_weights = None if plan.weights is None else [plan.weights[test] for _, test in folds]
        served_pool = None
        if pool is not None:
            # Labelled rows and pool are scored by the same models, so they differ by their rows alone.
            by_fold = [np.column_stack([other for _, other in part]) for part in scored]
            weights = fold_weights = None
            pool_repeats = float(times)
            served_pool = served_scores(pool, np.arange(0, pool_rows, max(1, pool_rows // _ALIGNED_ROWS)))
        every = [out_of_fold, *by_fold, *([] if served_pool is None else [served_pool])]
        link = self._link(base, np.concatenate(every), plan.y)
        alignment = align(
            replica_kind(fitted.kind),
            [on_link(part, link) for part in by_fold],
            None if served_pool is None else on_link(served_pool, link),
            held_out=len(rows) / len(folds) / different,
            weights=fold_weights,
        )
        return CrossFit(
            fitted, np.concatenate(by_fold), weights, labelled, plan.y, served_pool, alignment, all_constant(by_fold),
            pool_repeats, repeats, link,
        )  # fmt: skip

    def _labels(self, target: NDArray[Any], every: NDArray[Any]) -> NDArray[Any]:
        """Return numbers to calibrate on; `every` holds the targets of all rows."""
        return target

    def _check_weighted(self, plan: ReplicaPlan) -> None:
        """Raise UncurseError if the rows of positive weight cannot be used."""

    def _folds(self, plan: ReplicaPlan) -> list[tuple[Rows, Rows]]:
        """Return training and test rows of each fold; rows of weight zero are in neither."""
        if self.cv is None or self.cv is False:
            return []
        classes = is_classifier(plan.template)
        weighted = np.ones(len(plan.y), bool) if plan.weights is None else plan.weights > 0
        groups = None if plan.groups is None else encode_names(plan.groups, len(plan.y), "groups")[1]
        if not isinstance(self.cv, int | np.integer):
            splits = self._split(self.cv, plan, np.arange(len(plan.y)), groups)
            folds = [(train[weighted[train]], test[weighted[test]]) for train, test in splits]
            folds = [(train, test) for train, test in folds if len(test)]
            if not folds:
                raise UncurseError(f"cv={self.cv!r} gives no folds; pass folds with rows, or None for no labels")
            return self._check_folds(plan, folds)
        if int(self.cv) < 2:
            raise UncurseError(f"cv={self.cv!r}; pass 2 or more folds, or None for no labels")
        kept = np.flatnonzero(weighted)
        count = int(np.unique(plan.y[kept], return_counts=True)[1].min()) if classes else len(kept)
        units = "rows"
        if groups is not None and len(np.unique(groups[kept])) < count:
            count, units = len(np.unique(groups[kept])), "groups"
        number = min(int(self.cv), count)
        if number < 2:
            warn_user(f"there are too few {units} for two folds, so no labels are used")
            return []
        if number < int(self.cv):
            warn_user(f"there are {units} for {number} folds only, not for {self.cv}")
        splitter: Any
        if groups is None:
            splitter = (StratifiedKFold if classes else KFold)(number, shuffle=True, random_state=plan.seed)
        else:
            splitter = (StratifiedGroupKFold if classes else GroupKFold)(number)
        return self._check_folds(plan, self._split(splitter, plan, kept, groups))

    def _split(self, splitter: Any, plan: ReplicaPlan, rows: Rows, groups: Rows | None) -> list[tuple[Rows, Rows]]:
        """Split some rows."""
        y, own = plan.y[rows], None if groups is None else groups[rows]
        try:
            made = check_cv(splitter, y, classifier=is_classifier(plan.template))
            return [(rows[train], rows[test]) for train, test in made.split(take_rows(plan.X, rows), y, own)]
        except (TypeError, ValueError, IndexError) as error:
            text = " ".join(str(error).split())[:200]
            raise UncurseError(f"cv={type(self.cv).__name__} does not split the rows: {text}") from None

    @staticmethod
    def _check_folds(plan: ReplicaPlan, folds: list[tuple[Rows, Rows]]) -> list[tuple[Rows, Rows]]:
        """Raise UncurseError if a model of a classifier would see a single class."""
        if is_classifier(plan.template):
            for number, (train, _) in enumerate(folds):
                if len(np.unique(plan.y[train])) < 2:
                    raise UncurseError(
                        f"the training rows of fold {number} have one class; use fewer folds, other groups, or cv=None"
                    )
        return folds

    def line(self, alphas: Sequence[float] = POOL_SHARES) -> tuple[Affine, float]:
        """Return the straight line that is nearest to the map on the top of the pool, and its loss.

        Parameters
        ----------
        alphas : sequence of two floats, default=(0.01, 0.1)
            Smallest and largest selected share.

        Returns
        -------
        line : Affine
            The affine map.
        loss : float
            Largest relative difference between the mean predictions of line and map on these shares.
        """
        check_is_fitted(self)
        return straight_line(self.map_, *self._served_scores, alphas)

    def predict_replicas(self, X: Any) -> Array:
        """Return the predictions of every model before the map.

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
        return np.column_stack([self._predictions(model, X) for model in (self.estimator_, *self.replicas_)])

    def _mapped(self, X: Any) -> Array:
        check_is_fitted(self)
        check_feature_names(self.estimator_, self._feature_names, X, "X")
        return np.asarray(self.map_(self._predictions(self.estimator_, X)))

    def _unchanged(self, done: CrossFit, reason: str) -> tuple[ScoreMap, FitRecord, Any]:
        warn_user(f"{reason}; predictions are not changed")
        link = done.link
        options: Any = {"scale": self._scale, "link": link, "replicas": done.replicas.kind}
        record = FitRecord("nothing", pool_record(done), reason=reason, **options)
        return Affine(1.0, 0.0, link, self._scale), record, None

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
