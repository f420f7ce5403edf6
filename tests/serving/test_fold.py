"""Fold in general: what is refused whatever the family, and the comparison of every folded model."""

import importlib

import numpy as np
import pytest
from folding import CURVE, MAP

from uncurse import Affine, Segmented, UncurseError, fold


def test_other_objects_are_refused():
    with pytest.raises(UncurseError, match="object is no model"):
        fold(MAP, object())
    with pytest.raises(UncurseError, match="layer='top'"):
        fold(MAP, object(), layer="top")
    with pytest.raises(UncurseError, match="output='p'"):
        fold(MAP, object(), output="p")
    with pytest.raises(UncurseError, match="got dict"):
        fold({"slope": 1}, object())
    with pytest.raises(UncurseError, match="no model"):
        fold(MAP)


# By name, so that the libraries are imported by the tests and not when they are collected.
UNFITTED = {
    "sklearn.linear_model.LogisticRegression": lambda kind: kind(),
    "lightgbm.LGBMClassifier": lambda kind: kind(),
    "lightgbm.Dataset": lambda kind: kind(np.zeros((3, 2))),
    "xgboost.XGBClassifier": lambda kind: kind(),
    "xgboost.Booster": lambda kind: kind(),
    "xgboost.DMatrix": lambda kind: kind(np.zeros((3, 2))),
    "catboost.CatBoostClassifier": lambda kind: kind(),
    "catboost.Pool": lambda kind: kind(np.zeros((3, 2))),
    "torch.zeros": lambda zeros: zeros(3),
    "torch.optim.SGD": lambda kind: kind([importlib.import_module("torch").zeros(1, requires_grad=True)]),
}


@pytest.mark.parametrize("name", UNFITTED)
def test_what_is_no_fitted_model_is_refused(name):
    module, _, attribute = name.rpartition(".")
    model = UNFITTED[name](getattr(importlib.import_module(module), attribute))
    with pytest.raises(UncurseError):
        fold(MAP, model)


@pytest.mark.parametrize(
    ("score_map", "reason"),
    [
        (CURVE, "not a straight line"),
        (Segmented(MAP, {"a": MAP}), "a map for each segment"),
        (Affine(0.0, 1.0), "slope of this map is 0"),
        (Affine(0.9, 0.01, "identity", "probability"), "in the identity link"),
    ],
)
def test_what_is_no_line_is_refused(score_map, reason, world):
    from sklearn.linear_model import LogisticRegression

    X, y, _ = world
    with pytest.raises(UncurseError, match=reason):
        fold(score_map, LogisticRegression().fit(X, y))


def test_a_class_that_predicts_in_its_own_way_is_refused(world):
    import lightgbm
    import xgboost
    from sklearn import linear_model

    def clipped(base, **options):
        class Clipped(base):
            def predict_proba(self, X):
                return super().predict_proba(X).clip(0.1, 0.9)

        return Clipped(**options)

    X, y, _ = world
    models = [
        clipped(linear_model.LogisticRegression),
        clipped(lightgbm.LGBMClassifier, n_estimators=20, verbosity=-1, n_jobs=1),
        clipped(xgboost.XGBClassifier, n_estimators=20, n_jobs=1),
    ]
    for model in models:
        with pytest.raises(UncurseError, match="differs from the map"):
            fold(MAP, model.fit(X, y))
    ridge = linear_model.Ridge().fit(X, y)
    ridge.predict = lambda X: linear_model.Ridge.predict(ridge, X).round(1)
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(Affine(0.8, -0.3, "identity", "value"), ridge)


def test_rows_of_the_user_decide(world):
    from sklearn.linear_model import LogisticRegression

    class Odd(LogisticRegression):
        def predict_proba(self, X):
            return np.where(X[:, :1] == 7.5, 0.5, super().predict_proba(X))

    X, y, _ = world
    model = Odd().fit(X, y)
    fold(MAP, model, X=X)
    X = X.copy()
    X[0, 0] = 7.5
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, model, X=X)
    with pytest.raises(UncurseError, match="X="):
        fold(MAP, model, X=X[:, :2])
