"""Fold in general: what is refused whatever the family."""

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


def unfitted():
    import catboost
    import lightgbm
    import torch
    import xgboost
    from sklearn.linear_model import LogisticRegression

    X = np.zeros((3, 2))
    yield LogisticRegression()
    yield lightgbm.LGBMClassifier()
    yield lightgbm.Dataset(X)
    yield xgboost.XGBClassifier()
    yield xgboost.Booster()
    yield xgboost.DMatrix(X)
    yield catboost.CatBoostClassifier()
    yield catboost.Pool(X)
    yield torch.zeros(3)
    yield torch.optim.SGD([torch.zeros(1, requires_grad=True)])


@pytest.mark.parametrize("model", list(unfitted()), ids=lambda m: f"{type(m).__module__}.{type(m).__name__}")
def test_what_is_no_fitted_model_is_refused(model):
    with pytest.raises(UncurseError):
        fold(MAP, model)
