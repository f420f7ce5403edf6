"""XGBoost: a folded model is the map after the model, saved and explained too."""

import json
import warnings

import numpy as np
import pytest
from folding import MAP, close
from scipy.special import logit

from uncurse import UncurseError, fold


def xgboost_booster(world, rounds=12, **options):
    import xgboost

    X, y, _ = world
    parameters = {"objective": "binary:logistic", "max_depth": 4, "verbosity": 0, "nthread": 1, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xgboost.train(parameters, xgboost.DMatrix(X, y), rounds)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"booster": "dart", "rate_drop": 0.3},
        {"booster": "gblinear"},
        {"objective": "binary:logitraw"},
        {"objective": "reg:logistic"},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"base_score": 1e-4},
    ],
    ids=str,
)
def test_xgboost(options, world, tmp_path):
    import xgboost

    from uncurse.serving import fold_file

    linear = options.get("booster") == "gblinear"
    data = xgboost.DMatrix(world[0] if linear else world[2])
    booster = xgboost_booster(world, **options)
    folded = fold(MAP, booster)
    l, g = (one.predict(data, output_margin=True).astype(np.float64) for one in (booster, folded))
    known = np.abs(l) <= 10
    assert np.abs(0.8 * l - 0.3 - g)[known].max() <= 1e-5
    if not linear:
        close(folded.predict(data, pred_contribs=True).sum(axis=1), g, 1e-5)
    for form in ("json",) if options else ("json", "ubj"):  # which is read in a process of its own first
        booster.save_model(tmp_path / f"m.{form}")
        fold_file(MAP, tmp_path / f"m.{form}", tmp_path / f"f.{form}")
        folded.save_model(tmp_path / f"again.{form}")
        for name in ("f", "again"):
            assert ((tmp_path / f"{name}.{form}").read_bytes()[:2] == b'{"') == (form == "json")
            other = xgboost.Booster(model_file=tmp_path / f"{name}.{form}")
            assert np.abs(other.predict(data, output_margin=True) - g).max() < 1e-6


def test_estimators_of_xgboost(world):
    import xgboost

    X, y, _ = world
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1).fit(X, y)
    p = model.predict_proba(X)[:, 1].astype(np.float64)
    assert np.abs(logit(fold(MAP, model).predict_proba(X)[:, 1].astype(np.float64)) - 0.8 * logit(p) + 0.3).max() < 1e-5
    assert (model.predict_proba(X)[:, 1] == p.astype(np.float32)).all()


def test_xgboost_refuses(world):
    import xgboost

    X, y, _ = world
    many = xgboost.train(
        {"objective": "multi:softprob", "num_class": 3, "verbosity": 0}, xgboost.DMatrix(X, np.arange(len(y)) % 3), 2
    )
    with pytest.raises(UncurseError, match="3 numbers a row"):
        fold(MAP, many)
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, xgboost_booster(world, 2, objective="survival:cox"))
    with pytest.raises(UncurseError, match="in the log link"):
        fold(MAP, xgboost_booster(world, 2, objective="count:poisson"))


def test_settings_are_not_shared(world):
    import xgboost

    X, y, _ = world
    model = xgboost.XGBClassifier(n_estimators=2, n_jobs=1, verbosity=0, own=1).fit(X, y)
    fold(MAP, model).set_params(own=3)
    assert model.get_params()["own"] == 1
    booster = xgboost_booster(world, 2)
    config = json.loads(fold(MAP, booster).save_config())
    assert config["learner"]["generic_param"]["nthread"] == "1"


def test_the_rounding_of_many_trees_reverses_no_rows(tmp_path):
    import polars as pl
    import xgboost

    from uncurse import Affine
    from uncurse.serving import fold_file, verify_files

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 4)).astype(np.float32)
    y = rng.random(10_000) < 1 / (1 + np.exp(3 - X[:, 0] - 0.5 * X[:, 1] * X[:, 2]))
    model = xgboost.XGBClassifier(n_estimators=150, max_depth=4, learning_rate=0.1, n_jobs=1).fit(X, y)
    model.save_model(tmp_path / "m.json")
    pl.DataFrame(X, schema=[f"f{i}" for i in range(4)]).write_parquet(tmp_path / "rows.parquet")
    files = [tmp_path / name for name in ("m.json", "folded.json", "rows.parquet")]
    line = Affine(0.83, -0.54, scale="probability")
    fold_file(line, *files[:2])
    found = verify_files(line, *files, features=[f"f{i}" for i in range(4)])
    assert found.agrees
    assert 0 < found.score_difference < 2e-5
    steeper = Affine(0.84, -0.54, scale="probability")
    assert not verify_files(steeper, *files, features=[f"f{i}" for i in range(4)]).agrees


def test_rows_of_a_frame_with_categories(world):
    import pandas as pd
    import xgboost

    X, y, _ = world
    frame = pd.DataFrame({"a": X[:, 0], "c": pd.Categorical(X[:, 5].astype(int).astype(str))})
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1, enable_categorical=True).fit(frame, y)
    p, q = (one.predict_proba(frame)[:, 1].astype(np.float64) for one in (model, fold(MAP, model, X=frame)))
    assert np.abs(logit(q) - 0.8 * logit(p) + 0.3).max() < 1e-5
