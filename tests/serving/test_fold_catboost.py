"""CatBoost: a folded model is the map after the model, saved and explained too."""

import numpy as np
import pytest
from folding import MAP, close
from scipy.special import expit

from uncurse import Affine, UncurseError, fold


@pytest.mark.parametrize(
    "options",
    [{}, {"grow_policy": "Lossguide"}, {"boosting_type": "Ordered"}, {"boost_from_average": True}],
    ids=str,
)
def test_catboost(options, world, tmp_path):
    import catboost

    X, y, Z = world
    model = catboost.CatBoostClassifier(
        iterations=20, depth=4, verbose=0, thread_count=1, allow_writing_files=False, **options
    )
    model.fit(X, np.where(y == 1, "yes", "no"))
    l = model.predict(Z, prediction_type="RawFormulaVal")
    folded = fold(MAP, model)
    g = folded.predict(Z, prediction_type="RawFormulaVal")
    close(g, 0.8 * l - 0.3, 1e-12)
    assert folded.classes_.tolist() == ["no", "yes"]
    assert np.abs(folded.predict_proba(Z)[:, 1] - expit(g)).max() < 1e-12
    assert (model.predict(Z, prediction_type="RawFormulaVal") == l).all()
    shap, own = (one.get_feature_importance(catboost.Pool(Z), type="ShapValues") for one in (folded, model))
    close(shap[:, :-1], 0.8 * own[:, :-1], 1e-12)
    if not options.get("grow_policy"):  # CatBoost's own do not add up for other trees
        close(shap.sum(axis=1), g, 1e-12)
    for form in ("cbm", "json"):
        folded.save_model(str(tmp_path / f"m.{form}"), format=form)
        again = catboost.CatBoostClassifier().load_model(str(tmp_path / f"m.{form}"), format=form)
        close(again.predict(Z, prediction_type="RawFormulaVal"), g, 1e-12)
    twice = fold(MAP, folded, again=True).predict(Z, prediction_type="RawFormulaVal")
    close(twice, 0.8 * g - 0.3, 1e-12)


def test_catboost_with_categories_and_a_scale(world):
    import catboost
    import pandas as pd

    X, y, _ = world
    frame = pd.DataFrame(X[:, :3]).assign(c=[f"c{int(v)}" for v in X[:, 5]])
    model = catboost.CatBoostClassifier(iterations=10, verbose=0, thread_count=1, allow_writing_files=False)
    model.fit(frame, y, cat_features=["c"])
    model.set_scale_and_bias(2.0, 0.5)
    l = model.predict(frame, prediction_type="RawFormulaVal")
    close(fold(MAP, model).predict(frame, prediction_type="RawFormulaVal"), 0.8 * l - 0.3, 1e-12)
    assert model.get_scale_and_bias() == (2.0, 0.5)


def test_catboost_refuses(world):
    import catboost

    X, y, _ = world
    options = {"iterations": 2, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    with pytest.raises(UncurseError, match="should be 3"):
        fold(MAP, catboost.CatBoostClassifier(**options).fit(X, np.arange(len(y)) % 3))
    with pytest.raises(UncurseError, match="in the log link"):
        fold(MAP, catboost.CatBoostRegressor(loss_function="Poisson", **options).fit(X, y))
    with pytest.raises(UncurseError, match="not fitted"):
        fold(MAP, catboost.CatBoostClassifier(**options))


def test_counts_of_catboost_and_settings_stay(world):
    import catboost

    X, y, _ = world
    options = {"iterations": 5, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoostRegressor(loss_function="Poisson", **options).fit(X, y)
    score_map = Affine(0.8, -0.3, "log", "value")
    folded = fold(score_map, model)
    close(folded.predict(X), score_map(model.predict(X)), 1e-12)
    assert folded.get_params() == model.get_params()


def test_a_ranker_of_catboost(world):
    import catboost

    X, y, _ = world
    options = {"iterations": 5, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoostRanker(**options).fit(X, y, group_id=np.arange(len(y)) // 20)
    close(fold(MAP, model).predict(X), 0.8 * model.predict(X) - 0.3, 1e-12)
