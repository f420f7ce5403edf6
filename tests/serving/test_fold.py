"""Fold in general: what is refused whatever the family."""

import importlib

import numpy as np
import pytest
from folding import MAP

from uncurse import UncurseError, fold


def test_other_objects_are_refused():
    with pytest.raises(UncurseError, match="object is no model that can be folded"):
        fold(MAP, object())
    with pytest.raises(UncurseError, match="layer is for a torch module; leave it out"):
        fold(MAP, object(), layer="top")
    with pytest.raises(UncurseError, match="output is for an ONNX model; leave it out"):
        fold(MAP, object(), output="p")


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
