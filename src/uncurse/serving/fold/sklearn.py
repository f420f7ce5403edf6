"""scikit-learn: linear models, networks of one output, boosted trees, and pipelines and searches that end in one.

A model is known by its exact type, and every fold is compared with the mapped predictions of the model: a subclass may
predict in its own way.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import calibration, discriminant_analysis, ensemble, linear_model, neural_network, svm
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ...errors import UncurseError
from ...links import get_link
from ...maps import ScoreMap
from .line import RAW, check_folded, line_of, refused

_LOGISTIC = (
    *(linear_model.LogisticRegression, linear_model.LogisticRegressionCV, linear_model.SGDClassifier),
    *(discriminant_analysis.LinearDiscriminantAnalysis, ensemble.GradientBoostingClassifier),
)
_LOG = (linear_model.PoissonRegressor, linear_model.GammaRegressor, linear_model.TweedieRegressor)
_SUMS = (
    *(linear_model.LinearRegression, linear_model.Ridge, linear_model.RidgeCV, linear_model.Lasso),
    *(linear_model.LassoCV, linear_model.ElasticNet, linear_model.ElasticNetCV, linear_model.SGDRegressor),
    *(linear_model.HuberRegressor, linear_model.RidgeClassifier, linear_model.RidgeClassifierCV),
    *(svm.LinearSVR, svm.LinearSVC),
)
_NETWORKS = (neural_network.MLPClassifier, neural_network.MLPRegressor)
_BOOSTED = (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor)
_KNOWN = (*_LOGISTIC, *_LOG, *_SUMS, *_NETWORKS, *_BOOSTED)
_VOTES = (
    *(ensemble.VotingClassifier, ensemble.BaggingClassifier),
    *(ensemble.RandomForestClassifier, ensemble.ExtraTreesClassifier),
)
_REASONS = {
    calibration.CalibratedClassifierCV: "has a calibrator inside already, which bends its sum",
    ensemble.StackingClassifier: "is a stack: its parts are models of their own",
    ensemble.StackingRegressor: "is a stack: its parts are models of their own",
    TransformedTargetRegressor: "transforms its target",
    **dict.fromkeys(_VOTES, "averages probabilities, after the sigmoid"),
}
_PROBES = 100
_CLOSE, _CLOSE_SINGLE = 1e-9, 1e-5  # by precision; sums differ by far less, other models by far more
_SATURATED = 12.0  # logits beyond: the probability next to 1 has too few digits to compare


def fold_model(score_map: ScoreMap, model: Any, fold: Callable[[ScoreMap, Any], Any]) -> Any:
    """Fold a map into a fitted estimator; `fold` is for the model inside it, which may be of any family."""
    kind = type(model)
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        raise UncurseError(f"this {kind.__name__} is no fitted estimator; fit it first") from None
    if kind is FrozenEstimator:
        return fold(score_map, model.estimator)
    if kind is Pipeline:
        last = fold(score_map, model.steps[-1][1])
        made = copy.deepcopy(model)
        made.steps[-1] = (model.steps[-1][0], last)
        return made
    if kind.__module__.startswith("sklearn.model_selection.") and hasattr(model, "best_estimator_"):
        best = fold(score_map, model.best_estimator_)
        made = copy.deepcopy(model)
        made.best_estimator_ = best
        return made
    link, share = _link(model, kind)
    slope, intercept = line_of(score_map, link, f"this {kind.__name__}")
    made = copy.deepcopy(model)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        if kind in _NETWORKS:
            made.coefs_[-1] = slope * model.coefs_[-1]
            made.intercepts_[-1] = slope * model.intercepts_[-1] + intercept
        elif kind in _BOOSTED:
            _fold_trees(made, slope, share * intercept)
        else:
            if not getattr(model, "fit_intercept", True) and intercept:
                made.fit_intercept = True  # or the shift would be left out
            made.coef_ = slope * model.coef_
            shifted = slope * np.asarray(model.intercept_) + share * intercept
            made.intercept_ = shifted if np.ndim(model.intercept_) else float(shifted)
        _compare(model, made, link, slope, intercept, share)
    return made


def _link(model: Any, kind: type) -> tuple[str, float]:
    """Return the link of the model's sum, and what share of the logit that sum is."""
    name, classes = kind.__name__, len(getattr(model, "classes_", (0, 1)))
    base = next((part for part in kind.__mro__ if part in _KNOWN), kind)
    if base is not kind:
        what = f"{kind.__module__}.{name} is a subclass of {base.__name__} and may predict in its own way"
        raise refused(what, f"fold a {base.__name__} itself")
    if classes != 2:
        raise refused(f"this {name} has {classes} classes: a softmax of many is no one score")
    loss = getattr(model, "loss", "log_loss")
    if kind is linear_model.SGDClassifier and loss != "log_loss":
        raise UncurseError(f"SGDClassifier(loss={loss!r}) has no sigmoid; train it with loss='log_loss'")
    if kind in _LOGISTIC:
        # Before scikit-learn 1.8 a multinomial model is a softmax of two classes: the logit is twice the sum.
        half = loss == "exponential" or getattr(model, "multi_class", None) == "multinomial"
        return "logistic", 0.5 if half else 1.0
    if kind in _NETWORKS and model.n_outputs_ == 1:
        return {"logistic": "logistic", "exp": "log"}.get(model.out_activation_, RAW), 1.0
    link = getattr(model, "link", "log")
    if kind in _LOG and (link == "log" or (link == "auto" and model.power > 0)):
        return "log", 1.0
    one_sum = kind in (*_SUMS, *_LOG) and np.size(model.intercept_) == 1 and len(np.atleast_2d(model.coef_)) == 1
    if one_sum or kind is ensemble.GradientBoostingRegressor:
        return RAW, 1.0
    reason = _REASONS.get(kind, "is no model whose last step is a sum that we know")
    raise refused(f"this {name} cannot be folded: it {reason}")


def _fold_trees(model: Any, slope: float, shift: float) -> None:
    """Scale the leaves; the shift, and what the initial prediction then lacks, goes to those of the first tree."""
    if not isinstance(model.init_, str | DummyClassifier | DummyRegressor):
        raise refused(f"this {type(model).__name__} starts from a {type(model.init_).__name__}")
    zero = np.zeros((1, model.n_features_in_), np.float32)
    trees = [tree.tree_ for tree in model.estimators_[:, 0]]
    score = model.decision_function(zero) if hasattr(model, "decision_function") else model.predict(zero)
    start = float(score[0]) - model.learning_rate * sum(float(tree.predict(zero).item()) for tree in trees)
    for tree in trees:
        tree.value[:] *= slope
    trees[0].value[:] += (slope * start + shift - start) / model.learning_rate


def _compare(model: Any, folded: Any, link: str, slope: float, intercept: float, share: float) -> None:
    """Compare predictions on random rows of several magnitudes; refuse a fold that is not the map after the model."""
    what = f"this {type(model).__name__} does not predict as its numbers say"
    width = getattr(model, "n_features_in_", None) or np.shape(model.coef_)[-1]
    numbers = folded.coefs_[-1] if type(model) in _NETWORKS else getattr(folded, "coef_", np.zeros(0))
    close = _CLOSE_SINGLE if numbers.dtype == np.float32 else _CLOSE
    logistic, normal = get_link("logistic"), np.random.default_rng(0).normal(size=(_PROBES, width))
    for rows in (0.01 * normal, normal, 100 * normal):
        if hasattr(model, "decision_function"):
            before, after = model.decision_function(rows), folded.decision_function(rows)
            check_folded(slope * before + share * intercept, after, close, what)
        if hasattr(model, "predict_proba"):
            before, after = model.predict_proba(rows), folded.predict_proba(rows)
            logit = logistic.inverse(before[:, 1])
            wanted = logistic.phi(slope * logit + intercept)
            clear = np.abs(logit) < _SATURATED
            # Where scores are large, so is the rounding of those near 0.
            room = close * max(1.0, np.abs(logit).max())
            check_folded(np.stack([1 - wanted, wanted], 1)[clear], after[clear], room, what)
        elif not hasattr(model, "decision_function"):
            before, after = model.predict(rows), folded.predict(rows)
            if link == "log":
                clear = (before > 1e-300) & (before < 1e300)  # an exponential may be 0 or infinite
                before, after = np.log(before[clear]), np.log(after[clear])
            check_folded(slope * before + intercept, after, close, what)
