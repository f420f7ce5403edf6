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
from . import fold
from .common import Scorer, draw_rows, line_of

_NETWORKS = (neural_network.MLPClassifier, neural_network.MLPRegressor)
_BOOSTED = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)


def fold_model(score_map: ScoreMap, model: Any) -> Iterator[Any]:
    """Fold a map into a fitted estimator, or into the model inside it, which may be of any family."""
    check_is_fitted(model)
    if isinstance(model, FrozenEstimator):
        yield fold(score_map, model.estimator)
        return
    made = copy.deepcopy(model)
    if _is_wrapper(model):
        if isinstance(model, Pipeline):
            made.steps[-1] = (model.steps[-1][0], fold(score_map, model.steps[-1][1]))
        else:
            made.best_estimator_ = fold(score_map, model.best_estimator_)
        yield made
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
        yield made


def _is_wrapper(model: Any) -> bool:
    """Tell whether an estimator predicts what the model inside it predicts."""
    kind = type(model)
    search = kind.__module__.startswith("sklearn.model_selection.") and hasattr(model, "best_estimator_")
    return kind is Pipeline or search


def _fold_trees(model: Any, slope: float, shift: float) -> None:
    """Scale the leaves; the shift, and what the initial prediction then lacks, goes to those of the first tree."""
    start = float(model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32)).item())
    trees = [tree.tree_ for tree in model.estimators_[:, 0]]
    for tree in trees:
        tree.value[:] *= slope
    trees[0].value[:] += (slope * start + shift - start) / model.learning_rate


def scorers(model: Any) -> list[Scorer]:
    """Return the probabilities, else the decision function, else the predictions."""
    names = ("predict_proba", "decision_function", "predict")
    return [Scorer(next(getattr(model, name) for name in names if hasattr(model, name)))]


def rows_for(model: Any) -> list[Array]:
    """Draw rows near the thresholds of the trees, or at random; of a pipeline the model inside it was compared."""
    if _is_wrapper(model) or isinstance(model, FrozenEstimator):
        return []
    width = getattr(model, "n_features_in_", None) or np.shape(model.coef_)[-1]
    trees = [tree.tree_ for tree in model.estimators_[:, 0]] if isinstance(model, _BOOSTED) else []
    splits = [np.concatenate([getattr(tree, name) for tree in trees] or [[]]) for name in ("feature", "threshold")]
    return draw_rows(width, *splits)
