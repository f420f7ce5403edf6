"""scikit-learn: linear models, networks of one output, and pipelines and searches that end in one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UncurseError
from ..maps import ScoreMap
from .lines import ELSEWHERE, RAW, line_of

_SIGMOIDS = ("LogisticRegression", "LogisticRegressionCV", "SGDClassifier")
_SUMS = (
    *("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "SGDRegressor"),
    *("HuberRegressor", "LinearSVR", "LinearSVC", "RidgeClassifier", "RidgeClassifierCV"),
)
_LOGS = ("PoissonRegressor", "GammaRegressor", "TweedieRegressor")
_REASONS = {
    "CalibratedClassifierCV": "has a calibrator inside already, which bends its sum",
    "StackingClassifier": "is a stack: its parts are models of their own",
    "StackingRegressor": "is a stack: its parts are models of their own",
    "TransformedTargetRegressor": "transforms its target",
    **dict.fromkeys(
        ("VotingClassifier", "BaggingClassifier", "RandomForestClassifier", "ExtraTreesClassifier"),
        "averages probabilities, after the sigmoid",
    ),
}

Fold = Callable[[ScoreMap, Any], Any]


def fold_model(score_map: ScoreMap, model: Any, fold: Fold) -> Any:
    """A fitted estimator with the map folded in; `fold` is for the last step of a pipeline, which may be any model."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError):
        raise UncurseError(f"this {type(model).__name__} is no fitted estimator; fit it first") from None
    name = type(model).__name__
    if name == "Pipeline":
        last = fold(score_map, model.steps[-1][1])
        made = copy.deepcopy(model)
        made.steps[-1] = (model.steps[-1][0], last)
        return made
    if hasattr(model, "best_estimator_"):
        best = fold(score_map, model.best_estimator_)
        made = copy.deepcopy(model)
        made.best_estimator_ = best
        return made
    link, part = _link(model, name)
    slope, intercept = line_of(score_map, link, f"this {name}")
    made = copy.deepcopy(model)
    if name.startswith("MLP"):
        made.coefs_[-1] = slope * model.coefs_[-1]
        made.intercepts_[-1] = slope * model.intercepts_[-1] + intercept
        return made
    if not getattr(model, "fit_intercept", True) and intercept:
        made.fit_intercept = True  # or the shift would be left out
    made.coef_ = slope * model.coef_
    made.intercept_ = slope * np.asarray(model.intercept_) + intercept * part
    if np.ndim(model.intercept_) == 0:
        made.intercept_ = float(made.intercept_)
    return made


def _link(model: Any, name: str) -> tuple[str, float]:
    """The link of the model's sum, and what share of the logit that sum is."""
    classes = len(getattr(model, "classes_", (0, 1)))
    if classes != 2:
        raise UncurseError(f"this {name} has {classes} classes: a softmax of many is no one score; {ELSEWHERE}")
    if name in _SIGMOIDS:
        if getattr(model, "loss", "log_loss") != "log_loss":
            raise UncurseError(f"SGDClassifier(loss={model.loss!r}) has no sigmoid; train it with loss='log_loss'")
        # Before scikit-learn 1.8 a softmax of two classes: the logit is twice the sum.
        return "logistic", 0.5 if getattr(model, "multi_class", None) == "multinomial" else 1.0
    if name in ("MLPClassifier", "MLPRegressor") and model.n_outputs_ == 1:
        return {"logistic": "logistic", "exp": "log"}.get(model.out_activation_, RAW), 1.0
    if name in _LOGS and not (name == "TweedieRegressor" and _is_identity(model)):
        return "log", 1.0
    if name in (*_SUMS, *_LOGS) and np.size(model.intercept_) == 1 and len(np.atleast_2d(model.coef_)) == 1:
        return RAW, 1.0
    reason = _REASONS.get(name, "is no model whose last step is a sum that we know")
    raise UncurseError(f"this {name} cannot be folded: it {reason}; {ELSEWHERE}")


def _is_identity(model: Any) -> bool:
    return bool(model.link == "identity" or (model.link == "auto" and model.power <= 0))


__all__ = ["fold_model"]
