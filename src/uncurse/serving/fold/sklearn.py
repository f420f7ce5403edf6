"""scikit-learn: linear models, networks of one output, boosted trees, and pipelines and searches that end in one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import ensemble, neural_network
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..._types import Array
from ...maps import ScoreMap
from . import fold, stamp_of
from .common import STAMP, Scorer, draw_rows, line_of, predictions_of, stamp_after

_NETWORKS = (neural_network.MLPClassifier, neural_network.MLPRegressor)
_BOOSTED = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)


def fold_model(score_map: ScoreMap, model: Any) -> Iterator[Any]:
    """Fold a map into a fitted estimator, or into the model inside it, which may be of any family."""
    check_is_fitted(model)
    inner = _inside(model)
    if inner is not None:
        folded, made = fold(score_map, inner, again=True), copy.deepcopy(model)
        if isinstance(model, Pipeline):
            made.steps[-1] = (model.steps[-1][0], folded)
        elif not isinstance(model, FrozenEstimator):
            made.best_estimator_ = folded
        yield folded if isinstance(model, FrozenEstimator) else made
        return
    slope, intercept = line_of(score_map)
    # The logit is the sum, or twice the sum of an exponential loss or of a softmax of two classes.
    for shift in (intercept, intercept / 2):
        made = copy.deepcopy(model)
        if isinstance(model, _NETWORKS):
            made.coefs_[-1] = slope * model.coefs_[-1]
            made.intercepts_[-1] = slope * model.intercepts_[-1] + shift
        elif isinstance(model, _BOOSTED):
            _fold_trees(made, slope, shift)
        else:
            made.coef_ = slope * model.coef_
            made.intercept_ = slope * model.intercept_ + shift
        setattr(made, f"{STAMP}_", stamp_after(score_map, stamp(model)))
        yield made


def stamp(model: Any) -> str | None:
    """Return what was folded into a model before, or into the one inside it."""
    inner = _inside(model)
    found: str | None = getattr(model, f"{STAMP}_", None) if inner is None else stamp_of(inner)
    return found


def _inside(model: Any) -> Any:
    """Return the model whose predictions an estimator returns as they are; None if they are its own."""
    if isinstance(model, FrozenEstimator):
        return model.estimator
    if type(model) is Pipeline:
        return model.steps[-1][1]
    search = type(model).__module__.startswith("sklearn.model_selection.")
    return getattr(model, "best_estimator_", None) if search else None


def _fold_trees(model: Any, slope: float, shift: float) -> None:
    """Scale the leaves; the shift, and what the initial prediction then lacks, goes to those of the first tree."""
    start = float(model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32)).item())
    trees = [tree.tree_ for tree in model.estimators_[:, 0]]
    for tree in trees:
        tree.value[:] *= slope
    trees[0].value[:] += (slope * start + shift - start) / model.learning_rate


def scorer(model: Any) -> Scorer:
    """Return what the estimator predicts."""
    return predictions_of(model)


def rows_for(model: Any) -> list[Array]:
    """Draw rows near the thresholds of the trees, or at random; of a pipeline the model inside it was compared."""
    if _inside(model) is not None:
        return []
    trees = [tree.tree_ for tree in model.estimators_[:, 0]] if isinstance(model, _BOOSTED) else []
    splits = [np.concatenate([getattr(tree, name) for tree in trees] or [[]]) for name in ("feature", "threshold")]
    return draw_rows(model.n_features_in_, *splits)
