"""A folded model is the map after the model, saved and explained too; nothing is changed in place."""

import copy
import json
import warnings

import numpy as np
import pytest
from scipy.special import expit, logit

from uncurse import Affine, Chain, Curve, Grouped, Steps, UncurseError, fold

MAP = Affine(0.8, -0.3)
CURVE = Curve((-1.0, 1.0), (-1.2, 0.7), 0.9, 0.8)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 6))
    X[:, 5] = rng.integers(0, 30, 3_000)
    y = (rng.random(3_000) < expit(X[:, 0] - 0.5)).astype(int)
    extreme = rng.normal(size=(1_000, 6)) * 10 ** rng.uniform(-3, 6, (1_000, 1))
    return X, y, np.concatenate([X, extreme, np.zeros((1, 6))])


def close(found, wanted, most):
    """To `most`, relative to scores beyond 1."""
    assert np.abs((found - wanted) / np.maximum(1, np.abs(wanted))).max() <= most


# ---------------------------------------------------------------------------- scikit-learn


def sklearn_models():
    from sklearn import linear_model
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    yield linear_model.LogisticRegression()
    yield linear_model.LogisticRegression(fit_intercept=False)
    yield linear_model.SGDClassifier(loss="log_loss", random_state=0)
    yield linear_model.RidgeClassifier()
    yield LinearSVC()
    yield make_pipeline(StandardScaler(), linear_model.LogisticRegression())
    yield make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), linear_model.LogisticRegression()))
    yield GridSearchCV(linear_model.LogisticRegression(), {"C": [0.1, 1.0]}, cv=2)


@pytest.mark.parametrize("model", list(sklearn_models()), ids=lambda m: type(m).__name__)
def test_linear_classifiers(model, world):
    X, y, Z = world
    model.fit(X, y)
    l = model.decision_function(Z)
    folded = fold(MAP, model)
    close(folded.decision_function(Z), 0.8 * l - 0.3, 1e-12)
    assert (model.decision_function(Z) == l).all()
    assert type(folded) is type(model)
    if hasattr(model, "predict_proba"):
        assert np.abs(folded.predict_proba(Z)[:, 1] - MAP(np.clip(l, -1e300, 1e300))).max() < 1e-12


@pytest.mark.parametrize("name", ["LinearRegression", "Ridge", "SGDRegressor", "HuberRegressor"])
def test_linear_regressors(name, world):
    from sklearn import linear_model

    X, y, Z = world
    model = getattr(linear_model, name)().fit(X / 30, y)
    folded = fold(Affine(0.8, -0.3, "identity", "value"), model)
    close(folded.predict(Z), 0.8 * model.predict(Z) - 0.3, 1e-12)


def test_regressors_of_counts_take_a_map_of_logarithms(world):
    from sklearn.linear_model import PoissonRegressor

    X, y, _ = world
    model = PoissonRegressor().fit(X, y)
    score_map = Affine(0.8, -0.3, "log", "value")
    close(fold(score_map, model).predict(X), score_map(model.predict(X)), 1e-12)
    with pytest.raises(UncurseError, match="in the logistic link and this PoissonRegressor in the log link"):
        fold(MAP, model)


def test_networks_of_scikit_learn(world):
    from sklearn.neural_network import MLPClassifier

    X, y, _ = world
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier((8,), max_iter=5, random_state=0).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    close(logit(fold(MAP, model).predict_proba(X)[:, 1]), 0.8 * logit(p) - 0.3, 1e-12)


def sklearn_refusals():
    from sklearn import ensemble, linear_model, svm
    from sklearn.calibration import CalibratedClassifierCV

    yield linear_model.LogisticRegression(), 3, "3 classes: a softmax"
    yield CalibratedClassifierCV(linear_model.LogisticRegression(), cv=2), 2, "a calibrator inside already"
    yield ensemble.VotingClassifier([("a", linear_model.LogisticRegression())], voting="soft"), 2, "after the sigmoid"
    yield ensemble.StackingClassifier([("a", linear_model.LogisticRegression())], cv=2), 2, "is a stack"
    yield ensemble.RandomForestClassifier(5), 2, "after the sigmoid"
    yield ensemble.GradientBoostingClassifier(n_estimators=3), 2, "is no model whose last step"
    yield linear_model.SGDClassifier(), 2, "loss='hinge'. has no sigmoid"
    yield svm.SVC(), 2, "is no model whose last step"


@pytest.mark.parametrize(("model", "classes", "reason"), list(sklearn_refusals()))
def test_what_is_no_sum_is_refused(model, classes, reason, world):
    X, y, _ = world
    labels = y if classes == 2 else np.arange(len(y)) % classes
    with pytest.raises(UncurseError, match=reason):
        fold(MAP, model.fit(X, labels))


@pytest.mark.parametrize(
    ("score_map", "reason"),
    [
        (CURVE, "a Curve is no straight line.*uncurse export"),
        (Steps((0.0,), (-1.0, 1.0)), "a Steps is no straight line"),
        (Chain((MAP, CURVE)), "a Chain is no straight line"),
        (Grouped(MAP, {"a": MAP}), "one line for each group"),
        (Affine(0.0, 1.0), "slope of this map is 0"),
        (Affine(1.0, 0.0, "identity", "probability"), "in the identity link"),
        ({"slope": 1}, "dict is no score map"),
    ],
)
def test_what_is_no_line_is_refused(score_map, reason, world):
    from sklearn.linear_model import LogisticRegression

    X, y, _ = world
    with pytest.raises(UncurseError, match=reason):
        fold(score_map, LogisticRegression().fit(X, y))


def test_a_chain_of_lines_is_a_line(world):
    from sklearn.linear_model import LogisticRegression

    X, y, Z = world
    model = LogisticRegression().fit(X, y)
    chain = Chain((Affine(0.5, 1.0), Affine(2.0, -1.0)))
    close(fold(chain, model).decision_function(Z), model.decision_function(Z) + 1, 1e-12)


def test_other_objects_are_refused():
    with pytest.raises(UncurseError, match="object is no model that can be folded"):
        fold(MAP, object())
    with pytest.raises(UncurseError, match="layer and example are for a torch module"):
        fold(MAP, object(), layer="top")
    with pytest.raises(UncurseError, match="output is for an ONNX model"):
        fold(MAP, object(), output="p")


# ---------------------------------------------------------------------------- LightGBM


def lightgbm_booster(world, rounds=30, **options):
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
        ({"objective": "multiclass", "num_class": 3}, "several classes"),
        ({"objective": "cross_entropy_lambda"}, "'cross_entropy_lambda' is no straight sum"),
        ({"objective": "regression", "reg_sqrt": True}, "'regression sqrt' is no straight sum"),
        ({"objective": "poisson"}, "in the log link"),
    ],
)
def test_lightgbm_refuses(options, reason, world):
    with pytest.raises(UncurseError, match=reason):
        fold(MAP, lightgbm_booster(world, 3, **options))


def test_lightgbm_regression_and_ranks_are_bare_sums(world):
    Z = world[2]
    booster = lightgbm_booster(world, 5, objective="regression")
    folded = fold(Affine(0.8, -0.3, "identity", "value"), booster)
    close(folded.predict(Z), 0.8 * booster.predict(Z) - 0.3, 1e-12)
    close(fold(MAP, booster).predict(Z), 0.8 * booster.predict(Z) - 0.3, 1e-12)


# ---------------------------------------------------------------------------- XGBoost


def xgboost_booster(world, rounds=30, **options):
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
@pytest.mark.parametrize("form", ["json", "ubj"])
def test_xgboost(options, form, world, tmp_path):
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
    booster.save_model(tmp_path / f"m.{form}")
    fold_file(MAP, tmp_path / f"m.{form}", tmp_path / f"f.{form}")
    folded.save_model(tmp_path / f"again.{form}")
    for name in ("f", "again"):
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

    from uncurse.serving.xgboost_model import fold_document

    X, y, _ = world
    many = xgboost.train(
        {"objective": "multi:softprob", "num_class": 3, "verbosity": 0}, xgboost.DMatrix(X, np.arange(len(y)) % 3), 2
    )
    with pytest.raises(UncurseError, match="a softmax is no one score"):
        fold(MAP, many)
    document = json.loads(bytes(xgboost_booster(world, 2).save_raw("json")))
    document["learner"]["objective"]["name"] = "survival:aft"
    with pytest.raises(UncurseError, match="'survival:aft' is no straight sum"):
        fold_document(MAP, document)
    with pytest.raises(UncurseError, match="in the log link"):
        fold(MAP, xgboost_booster(world, 2, objective="count:poisson"))


# ---------------------------------------------------------------------------- CatBoost


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
    twice = fold(MAP, folded).predict(Z, prediction_type="RawFormulaVal")
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
    with pytest.raises(UncurseError, match="has 3 outputs"):
        fold(MAP, catboost.CatBoostClassifier(**options).fit(X, np.arange(len(y)) % 3))
    with pytest.raises(UncurseError, match="in the log link"):
        fold(MAP, catboost.CatBoostRegressor(loss_function="Poisson", **options).fit(X, y))
    with pytest.raises(UncurseError, match="not fitted"):
        fold(MAP, catboost.CatBoostClassifier(**options))


# ---------------------------------------------------------------------------- torch


@pytest.fixture(scope="module")
def nets():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, end):
            super().__init__()
            self.hidden, self.out, self.wide = nn.Linear(6, 16), nn.Linear(16, 1), nn.Linear(6, 1)
            self.end = end

        def forward(self, x):
            h = torch.relu(self.hidden(x))
            if self.end == "branches" and x.sum() > -1e9:
                return self.out(h)[:, 0]
            return {
                "logit": lambda: self.out(h).squeeze(-1),
                "sigmoid": lambda: torch.sigmoid(self.out(h)),
                "sum": lambda: self.out(h) + self.wide(x),
                "softmax": lambda: torch.softmax(torch.cat([self.out(h), self.wide(x)], 1), 1),
                "average": lambda: (torch.sigmoid(self.out(h)) + torch.sigmoid(self.wide(x))) / 2,
                "two": lambda: (self.out(h), h),
                "twice": lambda: self.out(h + self.out(h)),
                "tanh": lambda: torch.tanh(self.out(h)),
                "branches": lambda: self.out(h),
            }[self.end]()

    torch.manual_seed(0)
    return torch, nn, Net


def test_torch(nets, world, tmp_path):
    torch, nn, Net = nets
    x = torch.from_numpy(world[0]).float()
    stack = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    for module in (stack, Net("logit"), Net("sigmoid"), copy.deepcopy(stack).double()):
        given = x.to(next(module.parameters()).dtype)
        state = copy.deepcopy(module.state_dict())
        with torch.no_grad():
            before, after = (np.asarray(one(given).double()).ravel() for one in (module, fold(MAP, module)))
        if getattr(module, "end", "") == "sigmoid":
            assert np.abs(MAP.at_logits(logit(before)) - after).max() <= 1e-6
        else:
            assert np.abs(0.8 * before - 0.3 - after)[np.abs(before) <= 10].max() <= 1e-6
        assert all((value == state[name]).all() for name, value in module.state_dict().items())
    torch.save(fold(MAP, stack).state_dict(), tmp_path / "m.pt")
    again = copy.deepcopy(stack)
    again.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    assert (again(x) == fold(MAP, stack)(x)).all()


def test_torch_that_cannot_be_traced_is_tried(nets, world):
    torch, _, Net = nets
    x = torch.from_numpy(world[0][:100]).float()
    net = Net("branches")
    with pytest.raises(UncurseError, match=r"cannot be traced.*pass layer= and example="):
        fold(MAP, net)
    with torch.no_grad():
        assert (0.8 * net(x) - 0.3 - fold(MAP, net, layer="out", example=x)(x)).abs().max() < 1e-6
    with pytest.raises(UncurseError, match="'wide' is not all of the output"):
        fold(MAP, net, layer="wide", example=x)
    with pytest.raises(UncurseError, match=r"'top' is no nn.Linear of this module; there are: hidden, out, wide"):
        fold(MAP, net, layer="top", example=x)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("sum", "a sum of parts"),
        ("softmax", "a softmax of many classes"),
        ("average", "an average"),
        ("two", "has several outputs"),
        ("twice", "more than once"),
        ("tanh", "ends in 'tanh'"),
    ],
)
def test_torch_refuses(end, reason, nets):
    with pytest.raises(UncurseError, match=reason):
        fold(MAP, nets[2](end))


def test_torch_layers_that_hold_no_line(nets):
    _, nn, _ = nets
    with pytest.raises(UncurseError, match="has no bias"):
        fold(MAP, nn.Sequential(nn.Linear(6, 1, bias=False)))
    with pytest.raises(UncurseError, match="has 3 outputs"):
        fold(MAP, nn.Sequential(nn.Linear(6, 3)))
    with pytest.raises(UncurseError, match="float16, too coarse"):
        fold(MAP, nn.Sequential(nn.Linear(6, 1)).half())
    tied = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    tied[1].weight = tied[0].weight
    with pytest.raises(UncurseError, match=r"shares its numbers with '0.weight'"):
        fold(MAP, tied)


def test_a_module_may_know_how(nets, world):
    torch, nn, _ = nets

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 1), nn.Linear(6, 1)

        def forward(self, x):
            return self.a(x) + self.b(x)

        def fold_line(self, slope, intercept):
            with torch.no_grad():
                for layer in (self.a, self.b):
                    layer.weight *= slope
                    layer.bias *= slope
                self.a.bias += intercept

    net, x = Sum(), torch.from_numpy(world[0]).float()
    with torch.no_grad():
        close(fold(MAP, net)(x).numpy(), (0.8 * net(x) - 0.3).numpy(), 1e-6)


@pytest.mark.parametrize("kind", ["DLRM", "XDeepFM"])
def test_our_own_networks(kind, nets):
    torch = nets[0]
    from uncurse import deep

    small = {"DLRM": {"bottom": (8,), "top": (8,)}, "XDeepFM": {"hidden": (8,), "interactions": (4,)}}[kind]
    served = getattr(deep, kind)((5, 7), 3, embedding=4, **small)
    rng = np.random.default_rng(0)
    dense = torch.from_numpy(rng.normal(size=(50, 3)).astype(np.float32))
    codes = torch.from_numpy(np.stack([rng.integers(0, 5, 50), rng.integers(0, 7, 50)], 1))
    with torch.no_grad():
        before = served(dense, codes)
        after = fold(MAP, served)(dense, codes)
        assert (0.8 * before - 0.3 - after).abs().max() < 1e-6
        assert (served(dense, codes) == before).all()
        other = copy.deepcopy(served)
        other.load_state_dict(fold(MAP, served.state_dict(), layer={"DLRM": "top.2", "XDeepFM": "out"}[kind]))
        assert (other(dense, codes) == after).all()


def test_a_trace_leaves_no_mark_and_sees_what_is_served(nets):
    nn = nets[1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.calls = nn.Linear(6, 1), 0

        def forward(self, x):
            self.calls += 1
            self.seen = self.out(x)
            return self.seen if self.training else self.seen - 2.0

    net = Net()
    with pytest.raises(UncurseError, match="ends in 'sub'"):
        fold(MAP, net)
    assert net.calls == 0
    assert not hasattr(net, "seen")
    assert net.training


def test_torch_layers_with_hooks_or_used_elsewhere(nets, world):
    torch, nn, _ = nets
    net = nn.Sequential(nn.Linear(6, 1))
    net[0].register_forward_hook(lambda module, given, out: out / 2)
    with pytest.raises(UncurseError, match="has hooks on its layer '0'"):
        fold(MAP, net)

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(6, 1)

        def forward(self, x):
            return self.out(x * torch.sigmoid(self.out.weight.squeeze(0)))

    with pytest.raises(UncurseError, match="uses the numbers of its layer 'out' elsewhere"):
        fold(MAP, Gate())


def test_an_example_must_tell(nets):
    torch, _, Net = nets
    with pytest.raises(UncurseError, match="has no row by which to tell"):
        fold(MAP, Net("branches"), layer="out", example=torch.zeros(0, 6))


def test_a_linear_layer_alone_and_in_parallel(nets, world):
    torch, nn, _ = nets
    x = torch.from_numpy(world[0]).float()
    layer = nn.Linear(6, 1)
    with torch.no_grad():
        for module in (layer, nn.DataParallel(layer)):
            close(fold(MAP, module)(x).numpy(), (0.8 * module(x) - 0.3).numpy(), 1e-6)


@pytest.mark.parametrize(
    ("state", "rival"),
    [
        ({"wide.weight": (1, 5), "top.weight": (1, 8), "top.bias": (1,)}, "wide.weight"),
        ({"first.weight": (50, 1), "top.weight": (1, 8), "top.bias": (1,)}, "first.weight"),
        ({"gate.weight": (1, 8), "gate.bias": (1,), "head.weight": (2, 8)}, "head.weight"),
        ({"gate.weight": (1, 8), "gate.bias": (1,), "head.weight_g": (3,)}, "head.weight_g"),
    ],
)
def test_weights_do_not_tell_of_other_parts(state, rival, nets):
    torch = nets[0]
    made = {name: torch.ones(shape) for name, shape in state.items()}
    with pytest.raises(UncurseError, match=f"but '{rival}' may be part of the output"):
        fold(MAP, made)
    layer = "top" if "top.weight" in state else "gate"
    assert float(fold(MAP, made, layer=layer)[f"{layer}.bias"]) == pytest.approx(0.5)
    assert (made[f"{layer}.bias"] == 1).all()


def test_counts_of_catboost_and_settings_stay(world):
    import catboost

    X, y, _ = world
    options = {"iterations": 5, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoostRegressor(loss_function="Poisson", **options).fit(X, y)
    score_map = Affine(0.8, -0.3, "log", "value")
    folded = fold(score_map, model)
    close(folded.predict(X), score_map(model.predict(X)), 1e-12)
    assert folded.get_params() == model.get_params()


def test_settings_are_not_shared(world):
    import xgboost

    X, y, _ = world
    model = xgboost.XGBClassifier(n_estimators=2, n_jobs=1, verbosity=0, own=1).fit(X, y)
    fold(MAP, model).set_params(own=3)
    assert model.get_params()["own"] == 1
    booster = xgboost_booster(world, 2)
    config = json.loads(fold(MAP, booster).save_config())
    assert config["learner"]["generic_param"]["nthread"] == "1"


def test_classes_of_ones_own_that_predict_otherwise(world):
    import lightgbm

    class Corrected(lightgbm.LGBMClassifier):
        def predict_proba(self, X):
            return super().predict_proba(X) / 2

    X, y, _ = world
    with pytest.raises(UncurseError, match="Corrected has a predict_proba of its own"):
        fold(MAP, Corrected(n_estimators=2, verbosity=-1).fit(X, y))


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


def test_networks_of_counts(world):
    from sklearn import __version__
    from sklearn.neural_network import MLPRegressor

    if tuple(map(int, __version__.split(".")[:2])) < (1, 7):
        pytest.skip("this scikit-learn has no MLPRegressor of counts")
    X, y, _ = world
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPRegressor(hidden_layer_sizes=(4,), loss="poisson", max_iter=3, random_state=0).fit(X, y)
    score_map = Affine(0.8, -0.3, "log", "value")
    close(fold(score_map, model).predict(X), score_map(model.predict(X)), 1e-12)
