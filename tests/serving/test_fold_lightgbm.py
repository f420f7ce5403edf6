"""LightGBM: a folded model is the map after the model, saved and explained too."""

import re
import warnings

import numpy as np
import pytest
from folding import MAP, close
from scipy.special import expit, logit

from uncurse import Affine, UncurseError, fold
from uncurse.serving import fold_file, verify_files


def lightgbm_booster(world, rounds=12, **options):
    import lightgbm

    X, y, _ = world
    parameters = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data_per_group": 5, **options}
    data = lightgbm.Dataset(X, y, categorical_feature=[5], params={"verbosity": -1, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lightgbm.train(parameters, data, rounds)


BOOSTINGS = [
    {},
    {"boosting": "dart"},
    {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
    {"data_sample_strategy": "goss"},
    {"linear_tree": True},
    {"objective": "cross_entropy"},
    {"sigmoid": 2.0},
    {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "sigmoid": 0.5},
    {"boost_from_average": False},
]


@pytest.mark.parametrize("options", BOOSTINGS, ids=str)
def test_lightgbm(options, world, tmp_path):
    import lightgbm

    Z = world[2]
    booster = lightgbm_booster(world, **options)
    text = booster.model_to_string()
    folded = fold(MAP, booster)
    trees = booster.num_trees()
    # Of a forest raw scores are sums and predictions averages: raw scores are compared as averages too.
    scale = options.get("sigmoid", 1.0) / (trees if options.get("boosting") == "rf" else 1)
    l, g = (scale * one.predict(Z, raw_score=True) for one in (booster, folded))
    close(g, 0.8 * l - 0.3, 1e-12)
    assert np.abs(folded.predict(Z) - expit(0.8 * l - 0.3)).max() < 1e-12
    folded.save_model(tmp_path / "m.txt")
    again = lightgbm.Booster(model_file=tmp_path / "m.txt")
    assert (again.predict(Z, raw_score=True) * scale == g).all()
    assert booster.model_to_string() == text
    if not options.get("linear_tree"):
        close(scale * folded.predict(Z, pred_contrib=True).sum(axis=1), g, 1e-12)
        few = [scale * one.predict(Z, raw_score=True, num_iteration=7) for one in (booster, folded)]
        if options.get("boosting") != "rf":
            close(few[1], 0.8 * few[0] - 0.3, 1e-12)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")  # since 4.7; 4.6 knows no other
def test_estimators_of_lightgbm_and_best_iterations(world):
    import lightgbm

    X, y, _ = world
    model = lightgbm.LGBMClassifier(n_estimators=50, verbosity=-1, n_jobs=1)
    model.fit(X, y, eval_set=[(X[:500], y[:500])], callbacks=[lightgbm.early_stopping(3, verbose=False)])
    p = model.predict_proba(X)[:, 1]
    folded = fold(MAP, model)
    close(logit(folded.predict_proba(X)[:, 1]), 0.8 * logit(p) - 0.3, 1e-11)
    assert (model.predict_proba(X)[:, 1] == p).all()
    assert folded.best_iteration_ == model.best_iteration_


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"objective": "multiclass", "num_class": 3}, "3 numbers a row"),
        ({"objective": "cross_entropy_lambda"}, "not a sum in the logistic link"),
        ({"objective": "regression", "reg_sqrt": True}, "not a sum in the logistic link"),
        ({"objective": "poisson"}, "not a sum in the logistic link"),
    ],
)
def test_lightgbm_refuses(options, reason, world):
    with pytest.raises(UncurseError, match=reason):
        fold(MAP, lightgbm_booster(world, 3, **options))


def test_a_map_of_another_link_is_refused(world):
    for score_map in (Affine(0.9, 0.01, "identity", "probability"), Affine(0.9, 0.01, "log", "value")):
        with pytest.raises(UncurseError, match="in the logistic link"):
            fold(score_map, lightgbm_booster(world, 3))


def test_lightgbm_regression_and_ranks_are_bare_sums(world):
    Z = world[2]
    booster = lightgbm_booster(world, 5, objective="regression")
    folded = fold(Affine(0.8, -0.3, "identity", "value"), booster)
    close(folded.predict(Z), 0.8 * booster.predict(Z) - 0.3, 1e-12)
    close(fold(MAP, booster).predict(Z), 0.8 * booster.predict(Z) - 0.3, 1e-12)


def test_splits_of_missing_values_against_all_numbers(tmp_path):
    """LightGBM writes an infinite threshold for them."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000, 3))
    missing = rng.random(4_000) < 0.1
    x[missing, 0] = np.nan
    y = rng.random(4_000) < expit(np.where(missing, 1.5, -0.5) + 0.5 * x[:, 1])
    options = {"objective": "binary", "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(x, y), 20)
    assert re.search(r"(?m)^threshold=.*\binf\b", booster.model_to_string())
    expected = MAP(booster.predict(x, raw_score=True))
    close(fold(MAP, booster).predict(x), expected, 1e-12)
    booster.save_model(tmp_path / "model.txt")
    assert fold_file(MAP, tmp_path / "model.txt", tmp_path / "folded.txt") == "lightgbm"
    close(lightgbm.Booster(model_file=tmp_path / "folded.txt").predict(x), expected, 1e-12)


def test_verify_reads_the_categories_of_a_frame(tmp_path):
    lightgbm, pd = pytest.importorskip("lightgbm"), pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=3_000), "country": rng.choice(["DE", "FR", "US"], 3_000)})
    y = rng.random(3_000) < expit(frame["age"] + (frame["country"] == "US"))
    options = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data_per_group": 10}
    booster = lightgbm.train(options, lightgbm.Dataset(frame.astype({"country": "category"}), y), 10)
    booster.save_model(tmp_path / "model.txt")
    fold_file(MAP, tmp_path / "model.txt", tmp_path / "folded.txt")
    frame.loc[:9, "country"] = "XX"  # not in the training
    frame.to_parquet(tmp_path / "rows.parquet")
    files = [tmp_path / name for name in ("model.txt", "folded.txt", "rows.parquet")]
    assert verify_files(MAP, *files).agrees
    frame.assign(age=frame["age"].astype(str)).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(UncurseError, match="column 'country'"):
        verify_files(MAP, *files)
