"""scikit-learn: a folded estimator is the map after it, or is refused."""

import warnings

import numpy as np
import pytest
from folding import MAP, close
from scipy.special import logit

from uncurse import Affine, UncurseError, fold


def sklearn_models():
    from sklearn import linear_model
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    yield linear_model.LogisticRegression()
    yield linear_model.LogisticRegression(fit_intercept=False)
    yield linear_model.SGDClassifier(loss="log_loss", random_state=0)
    yield linear_model.RidgeClassifier()
    yield LinearDiscriminantAnalysis()
    yield LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
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
    with pytest.raises(UncurseError, match="not a sum in the logistic link"):
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

    linear = linear_model.LogisticRegression()
    yield linear_model.LogisticRegression(), 3, "3 numbers a row"
    yield CalibratedClassifierCV(linear, cv=2), 2, "CalibratedClassifierCV"
    yield ensemble.VotingClassifier([("a", linear)], voting="soft"), 2, "VotingClassifier"
    yield ensemble.StackingClassifier([("a", linear)], cv=2), 2, "StackingClassifier"
    yield ensemble.RandomForestClassifier(5), 2, "RandomForestClassifier"
    yield ensemble.GradientBoostingClassifier(n_estimators=3, init=linear), 2, "differs from the map"
    yield (
        ensemble.GradientBoostingClassifier(n_estimators=3, learning_rate=0.0),
        2,
        "GradientBoostingClassifier cannot be folded",
    )
    yield svm.SVC(), 2, "SVC"


@pytest.mark.parametrize(("model", "classes", "reason"), list(sklearn_refusals()))
def test_what_is_no_sum_is_refused(model, classes, reason, world):
    X, y, _ = world
    labels = y if classes == 2 else np.arange(len(y)) % classes
    with pytest.raises(UncurseError, match=reason):
        fold(MAP, model.fit(X, labels))


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


@pytest.mark.parametrize(
    "options",
    [{}, {"init": "zero"}, {"loss": "exponential"}, {"subsample": 0.5, "learning_rate": 0.3}, {"n_estimators": 1}],
    ids=str,
)
def test_boosted_trees(options, world):
    from sklearn.ensemble import GradientBoostingClassifier

    X, y, Z = world
    model = GradientBoostingClassifier(**{"n_estimators": 20, "random_state": 0, **options}).fit(X, y)
    p, l = model.predict_proba(Z)[:, 1], model.decision_function(Z)
    folded = fold(MAP, model)
    close(logit(folded.predict_proba(Z)[:, 1]), 0.8 * logit(p) - 0.3, 1e-12)
    half = 0.5 if options.get("loss") == "exponential" else 1.0  # the logit is twice the score
    close(folded.decision_function(Z), 0.8 * l - 0.3 * half, 1e-12)
    for old, new in zip(model.staged_decision_function(X), folded.staged_decision_function(X), strict=True):
        close(new, 0.8 * old - 0.3 * half, 1e-12)
    assert (model.decision_function(Z) == l).all()
    assert folded.get_params() == model.get_params()


def test_boosted_regressors_and_pipelines(world):
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y, Z = world
    model = GradientBoostingRegressor(n_estimators=10, random_state=0).fit(X, X[:, 0] + y)
    close(fold(Affine(0.8, -0.3, "identity", "value"), model).predict(Z), 0.8 * model.predict(Z) - 0.3, 1e-12)
    pipeline = make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=5)).fit(X, y)
    close(fold(MAP, pipeline).decision_function(Z), 0.8 * pipeline.decision_function(Z) - 0.3, 1e-12)


def test_models_in_single_precision(world):
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    X, y, _ = world
    X = X.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [LogisticRegression().fit(X, y), MLPClassifier((8,), max_iter=5, random_state=0).fit(X, y)]
        models += [LogisticRegression(C=1e6).fit(X * 1e-4, y)]
    for model in models:
        folded = fold(MAP, model)
        p, q = (one.predict_proba(X)[:, 1].astype(np.float64) for one in (model, folded))
        clear = np.abs(logit(p)) < 5
        close(q[clear], MAP.at_logits(logit(p[clear])), 1e-4)
    assert folded.coef_.dtype == model.coef_.dtype


def test_models_of_named_features(world):
    import pandas as pd
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    X, y, _ = world
    frame = pd.DataFrame(X, columns=list("abcdef"))
    for model in (LogisticRegression(), GradientBoostingClassifier(n_estimators=3)):
        model.fit(frame, y)
        close(fold(MAP, model).decision_function(frame), 0.8 * model.decision_function(frame) - 0.3, 1e-12)


def test_a_map_of_probabilities_does_not_fit_a_sum_that_is_not_one(world):
    from sklearn.linear_model import Ridge
    from sklearn.svm import LinearSVC

    X, y, _ = world
    for model in (Ridge(), LinearSVC()):
        with pytest.raises(UncurseError, match=r"probabilities|differs"):
            fold(Affine(0.8, -0.3, scale="probability"), model.fit(X, y))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("outer", ["alone", "pipeline", "search", "frozen", "lightgbm"])
def test_a_second_fold_is_noticed_inside_pipelines_and_searches(outer):
    import lightgbm
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = np.random.default_rng(0).normal(size=(200, 3))
    y = X[:, 0] > 0
    made = {
        "alone": LogisticRegression(),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
        "search": GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2),
        "frozen": FrozenEstimator(LogisticRegression().fit(X, y)),
        "lightgbm": make_pipeline(StandardScaler(), lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1)),
    }[outer]
    line = Affine(0.5, -0.1)
    folded = fold(line, made.fit(X, y))
    with pytest.raises(UncurseError, match="holds a map already"):
        fold(line, folded)
    twice = fold(line, folded, again=True)
    wanted = 0.25 * logit(made.predict_proba(X)[:, 1]) - 0.15
    np.testing.assert_allclose(logit(twice.predict_proba(X)[:, 1]), wanted, atol=1e-6)
