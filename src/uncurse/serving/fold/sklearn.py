"""scikit-learn: linear models, networks of one output, boosted trees, and pipelines and searches that end in one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn import discriminant_analysis, ensemble, linear_model, neural_network, svm
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..._types import Array
from ...errors import UncurseError
from ...maps import ScoreMap
from . import fold
from .common import RAW, Scorer, draw_rows, line_of, refused

_LOGISTIC = (
    *(linear_model.LogisticRegression, linear_model.SGDClassifier, ensemble.GradientBoostingClassifier),
    discriminant_analysis.LinearDiscriminantAnalysis,
)
_LOG = (linear_model.PoissonRegressor, linear_model.GammaRegressor, linear_model.TweedieRegressor)
_SUMS = (
    *(linear_model.LinearRegression, linear_model.Ridge, linear_model.RidgeCV, linear_model.ElasticNet),
    *(linear_model.LassoCV, linear_model.ElasticNetCV, linear_model.SGDRegressor, linear_model.HuberRegressor),
    *(linear_model.RidgeClassifier, linear_model.RidgeClassifierCV, svm.LinearSVR, svm.LinearSVC),
)
_NETWORKS = (neural_network.MLPClassifier, neural_network.MLPRegressor)
_BOOSTED = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a fitted estimator, or into the model inside it, which may be of any family."""
    name = type(model).__name__
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        raise UncurseError(f"this {name} is no fitted estimator; fit it first") from None
    if isinstance(model, FrozenEstimator):
        return fold(score_map, model.estimator)
    if _is_wrapper(model):
        made = copy.deepcopy(model)
        if isinstance(model, Pipeline):
            made.steps[-1] = (model.steps[-1][0], fold(score_map, model.steps[-1][1]))
        else:
            made.best_estimator_ = fold(score_map, model.best_estimator_)
        return made
    link, share = _link(model)
    slope, intercept = line_of(score_map, link, f"this {name}")
    made = copy.deepcopy(model)
    if isinstance(model, _NETWORKS):
        made.coefs_[-1] = slope * model.coefs_[-1]
        made.intercepts_[-1] = slope * model.intercepts_[-1] + intercept
    elif isinstance(model, _BOOSTED):
        _fold_trees(made, slope, share * intercept)
    else:
        if not getattr(model, "fit_intercept", True) and intercept:
            made.fit_intercept = True  # or the shift would be left out
        made.coef_ = slope * model.coef_
        shifted = slope * np.asarray(model.intercept_) + share * intercept
        made.intercept_ = shifted if np.ndim(model.intercept_) else float(shifted)
    return made


def _is_wrapper(model: Any) -> bool:
    """Tell whether an estimator predicts what the model inside it predicts."""
    kind = type(model)
    search = kind.__module__.startswith("sklearn.model_selection.") and hasattr(model, "best_estimator_")
    return kind is Pipeline or search


def _link(model: Any) -> tuple[str, float]:
    """Return the link of the model's sum, and what share of the logit that sum is."""
    name, classes = type(model).__name__, len(getattr(model, "classes_", (0, 1)))
    if classes != 2:
        raise refused(f"this {name} has {classes} classes: a softmax of many is no one score")
    loss = getattr(model, "loss", "log_loss")
    if isinstance(model, linear_model.SGDClassifier) and loss != "log_loss":
        raise UncurseError(f"SGDClassifier(loss={loss!r}) has no sigmoid; train it with loss='log_loss'")
    if isinstance(model, _LOGISTIC):
        # Before scikit-learn 1.8 a multinomial model is a softmax of two classes: the logit is twice the sum.
        half = loss == "exponential" or getattr(model, "multi_class", None) == "multinomial"
        return "logistic", 0.5 if half else 1.0
    if isinstance(model, _NETWORKS) and model.n_outputs_ == 1:
        return {"logistic": "logistic", "exp": "log"}.get(model.out_activation_, RAW), 1.0
    link = getattr(model, "link", "log")
    if isinstance(model, _LOG) and (link == "log" or (link == "auto" and model.power > 0)):
        return "log", 1.0
    one_sum = isinstance(model, (*_SUMS, *_LOG)) and np.size(model.intercept_) == len(np.atleast_2d(model.coef_)) == 1
    if one_sum or isinstance(model, ensemble.GradientBoostingRegressor):
        return RAW, 1.0
    raise refused(f"this {name} cannot be folded: its last step is no sum that we know")


def _fold_trees(model: Any, slope: float, shift: float) -> None:
    """Scale the leaves; the shift, and what the initial prediction then lacks, goes to those of the first tree."""
    if not isinstance(model.init_, str | DummyClassifier | DummyRegressor):
        raise refused(f"this {type(model).__name__} starts from a {type(model.init_).__name__}")
    if not model.learning_rate:
        raise refused(f"this {type(model).__name__} has learning_rate=0")
    zero = np.zeros((1, model.n_features_in_), np.float32)
    trees = [tree.tree_ for tree in model.estimators_[:, 0]]
    start = float(model._raw_predict_init(zero).item())
    for tree in trees:
        tree.value[:] *= slope
    trees[0].value[:] += (slope * start + shift - start) / model.learning_rate


def scorers(model: Any, score_map: ScoreMap) -> list[Scorer]:
    """Return the decision function, probabilities, or predictions of a regressor."""
    if hasattr(model, "predict_proba"):
        found = [Scorer(model.predict_proba, "probability")]
        if hasattr(model, "decision_function") and not _is_wrapper(model) and _link(model)[1] == 1.0:
            found.append(Scorer(model.decision_function, "logit"))
        return found
    call = model.decision_function if hasattr(model, "decision_function") else model.predict
    return [Scorer(call, "logit" if score_map.scale == "probability" else score_map.scale)]


def rows_for(model: Any) -> list[Array]:
    """Draw rows near the thresholds of the trees, or at random; of a pipeline the model inside it was compared."""
    if _is_wrapper(model) or isinstance(model, FrozenEstimator):
        return []
    width = getattr(model, "n_features_in_", None) or np.shape(model.coef_)[-1]
    trees = [tree.tree_ for tree in model.estimators_[:, 0]] if isinstance(model, _BOOSTED) else []
    features = np.concatenate([tree.feature for tree in trees]) if trees else np.zeros(0, int)
    thresholds = np.concatenate([tree.threshold for tree in trees]) if trees else np.zeros(0)
    return draw_rows(width, {i: thresholds[features == i] for i in np.unique(features[features >= 0]).tolist()})
