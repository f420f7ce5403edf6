import joblib
import numpy as np
import pytest
from scipy.special import expit
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import estimator_checks, get_tags

from uncurse.debias.vad import VAD
from uncurse.errors import UncurseError
from uncurse.estimators.vad_estimators import VADClassifier, VADRegressor
from uncurse.maps import load

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

LOGISTIC = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)


def data(n=400, d=8, *, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.1, 0.4, (n, d))
    return X, (rng.random(n) < expit(X.sum(axis=1))).astype(int), rng.normal(-0.1, 0.4, (3000, d))


X, Y, POOL = data()

# ---------------------------------------------------------------------------- scikit-learn's own checks

CHECKED = [
    VADClassifier(),
    VADClassifier(GaussianNB(), curvature=True, n_replicas=3),
    VADClassifier(DecisionTreeClassifier(max_depth=3), link="identity"),
    VADRegressor(),
    VADRegressor(DecisionTreeRegressor(max_depth=3), n_replicas=3),
]
# `parametrize_with_checks` of scikit-learn 1.6 passes pytest a generator, which pytest 9 warns of.
# Only ratios of weights matter here, so an integer weight differs from repeated rows: they are a larger sample.
CHECKS = [
    (estimator, check)
    for wrapper in CHECKED
    for estimator, check in estimator_checks.estimator_checks_generator(wrapper)
    if "sample_weight_equivalence" not in check.func.__name__
]


@pytest.mark.filterwarnings("ignore:λ = :UserWarning")  # some checks fit pure noise
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[f"{e!r}-{check.func.__name__}" for e, check in CHECKS])
def test_scikit_learn_check(estimator, check):
    check(estimator)


# ---------------------------------------------------------------------------- bias at the top


def test_debiasing_removes_the_over_prediction_of_the_top_two_percent():
    rng = np.random.default_rng(0)
    errors = []
    for replication in range(60):
        X, pool = rng.normal(0.05, 0.2, (1000, 10)), rng.normal(-0.05, 0.2, (10_000, 10))
        y = rng.random(1000) < expit(X.sum(axis=1))
        clf = VADClassifier(LOGISTIC, random_state=replication).fit(X, y, pool=pool)
        before, after = clf.estimator_.predict_proba(pool)[:, 1], clf.predict_proba(pool)[:, 1]
        top = np.argsort(before)[-200:]
        truth = expit(pool[top].sum(axis=1)).sum()
        errors.append([before[top].sum() / truth - 1, after[top].sum() / truth - 1])
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(60)
    assert mean[0] > 0.03
    assert mean[0] > 6 * error[0]
    assert abs(mean[1]) < 3 * error[1]
    assert error[1] < 0.01


def test_debiasing_removes_the_over_prediction_of_the_top_of_a_regression():
    rng = np.random.default_rng(0)
    errors = []
    for replication in range(60):
        X, pool = rng.normal(0, 1, (200, 20)), rng.normal(0, 1, (5000, 20))
        y = X.sum(axis=1) + rng.normal(0, 8, 200)
        reg = VADRegressor(random_state=replication).fit(X, y, pool=pool)
        before, after = reg.estimator_.predict(pool), reg.predict(pool)
        top = np.argsort(before)[-100:]
        truth = pool[top].sum()
        errors.append([before[top].sum() / truth - 1, after[top].sum() / truth - 1])
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(60)
    assert mean[0] > 0.2
    assert abs(mean[1]) < 3 * error[1]


def test_the_log_link_shrinks_the_logarithm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = rng.gamma(2.0, np.exp(0.3 * X[:, 0] + 1) / 2)
    reg = VADRegressor(GammaRegressor(alpha=0), link="log", random_state=0).fit(X, y)
    l = np.log(reg.estimator_.predict(X))
    assert 0 < reg.lambda_ < 1
    expected = np.exp(reg.lambda_ * l + (1 - reg.lambda_) * l.mean())
    np.testing.assert_allclose(reg.predict(X), expected, rtol=1e-10)
    with pytest.raises(UncurseError, match="which has no logarithm; use link='identity'"):
        VADRegressor(LinearRegression(), link="log", random_state=0).fit(X, y - 10)


@pytest.mark.parametrize("curvature", [False, True])
@pytest.mark.parametrize("base", [LOGISTIC, GaussianNB(), RandomForestClassifier(10, max_depth=4)], ids=repr)
def test_the_ranking_of_the_base_model_is_kept(base, curvature):
    clf = VADClassifier(base, curvature=curvature, random_state=0).fit(X, Y, pool=POOL)
    before, after = clf.estimator_.predict_proba(POOL)[:, 1], clf.predict_proba(POOL)[:, 1]
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()
    assert len(np.unique(after)) >= 0.999 * len(np.unique(before))
    np.testing.assert_allclose(clf.predict_proba(POOL).sum(axis=1), 1)
    assert (clf.predict(POOL) == (after > 0.5)).all()


def test_fitted_attributes_agree_with_a_vad_fitted_on_predict_replicas():
    clf = VADClassifier(LOGISTIC, n_replicas=3, random_state=0).fit(X, Y, pool=POOL)
    assert clf.replicate_ == "bootstrap"
    assert clf.vad_.options.replicas == "anchored"
    assert clf.clip_ == 0
    assert len(clf.replicas_) == 2
    scores = clf.predict_replicas(POOL)
    assert scores.shape == (3000, 3)
    vad = VAD(scale="probability", replicas="anchored", lambda_floor=0.01).fit(scores)
    assert vad.lambda_ == clf.lambda_ == clf.vad_.lambda_
    np.testing.assert_array_equal(clf.map_(scores[:, 0]), clf.predict_proba(POOL)[:, 1])


def test_without_a_pool_the_training_rows_are_the_pool():
    one = VADClassifier(LOGISTIC, random_state=0).fit(X, Y)
    assert one.map_ == VADClassifier(LOGISTIC, random_state=0).fit(X, Y, pool=X).map_


def test_a_random_model_is_replicated_by_seeds():
    clf = VADClassifier(RandomForestClassifier(5, max_depth=3), random_state=0).fit(X, Y, pool=POOL)
    assert (clf.replicate_, clf.vad_.options.replicas) == ("seeds", "seeds")
    assert 0 < clf.lambda_ < 1


# ---------------------------------------------------------------------------- invariances


@pytest.mark.parametrize(
    "base", [LOGISTIC, LogisticRegression(C=0.1), RandomForestClassifier(10, max_depth=4)], ids=repr
)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_only_ratios_of_weights_matter(base, scale):
    weights = np.random.default_rng(1).exponential(size=len(Y))
    one = VADClassifier(base, random_state=0).fit(X, Y, sample_weight=weights)
    two = VADClassifier(base, random_state=0).fit(X, Y, sample_weight=scale * weights)
    np.testing.assert_allclose(one.predict_proba(POOL), two.predict_proba(POOL), rtol=1e-9)
    assert not np.isclose(one.lambda_, VADClassifier(base, random_state=0).fit(X, Y).lambda_)


def test_large_weights_do_not_enlarge_the_bootstraps():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(50, 3)), np.full(50, 1e9)
    y = X.sum(axis=1) + rng.normal(size=50)
    weighted = VADRegressor(Ridge(), random_state=0).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(weighted.predict(X), VADRegressor(Ridge(), random_state=0).fit(X, y).predict(X))


def test_rows_of_weight_zero_change_nothing():
    weights = np.where(np.arange(len(Y)) < 100, 0.0, 2.0)
    one = VADClassifier(LOGISTIC, random_state=0).fit(X, Y, sample_weight=weights)
    two = VADClassifier(LOGISTIC, random_state=0).fit(X[100:], Y[100:])
    np.testing.assert_allclose(one.predict_proba(POOL), two.predict_proba(POOL), rtol=1e-9)


def test_weights_cannot_be_passed_for_the_pool():
    with pytest.raises(TypeError, match="positional"):
        VADClassifier().fit(X, Y, np.ones(len(Y)))


def test_the_order_of_rows_does_not_change_the_map():
    order = np.random.default_rng(1).permutation(len(Y))
    one = VADClassifier(LOGISTIC, random_state=0).fit(X, Y).map_
    two = VADClassifier(LOGISTIC, random_state=0).fit(X[order], Y[order]).map_
    np.testing.assert_allclose([one.slope, one.intercept], [two.slope, two.intercept], rtol=1e-9)


def test_results_do_not_depend_on_n_jobs():
    with joblib.parallel_config(backend="threading"):
        one, two = (VADClassifier(LOGISTIC, n_jobs=n, random_state=0).fit(X, Y, pool=POOL) for n in (1, 2))
    assert one.map_ == two.map_


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dataframes_and_arrays_give_the_same_predictions(library):
    frames = pytest.importorskip(library)
    names = [f"x{j}" for j in range(X.shape[1])]
    frame, pool = (frames.DataFrame(dict(zip(names, rows.T, strict=True))) for rows in (X, POOL))
    clf = VADClassifier(LOGISTIC, random_state=0).fit(frame, frames.Series(Y), pool=pool)
    plain = LogisticRegression().fit(frame, Y)  # which frames have names differs between releases of scikit-learn
    assert getattr(clf, "feature_names_in_", None) is None or clf.feature_names_in_.tolist() == names
    assert hasattr(clf, "feature_names_in_") == hasattr(plain, "feature_names_in_")
    expected = VADClassifier(LOGISTIC, random_state=0).fit(X, Y, pool=POOL)
    np.testing.assert_allclose(clf.predict_proba(pool), expected.predict_proba(POOL), rtol=1e-9)


def test_string_classes_are_kept():
    names = np.array(["no", "yes"])
    clf = VADClassifier(LOGISTIC, random_state=0).fit(X, names[Y])
    assert clf.classes_.tolist() == ["no", "yes"]
    assert set(clf.predict(POOL)) == {"no", "yes"}


# ---------------------------------------------------------------------------- base models and searches


def test_a_frozen_model_is_not_refitted():
    model = clone(LOGISTIC).fit(X, Y)
    before = model.coef_.copy()
    clf = VADClassifier(FrozenEstimator(model), replicate="bootstrap", random_state=0).fit(X, Y, pool=POOL)
    assert clf.estimator_.estimator is model
    np.testing.assert_array_equal(model.coef_, before)
    assert clf.map_ == VADClassifier(LOGISTIC, replicate="bootstrap", random_state=0).fit(X, Y, pool=POOL).map_


def test_weights_reach_the_last_step_of_a_pipeline():
    weights = np.where(Y == 1, 3.0, 1.0)
    clf = VADClassifier(make_pipeline(StandardScaler(), LOGISTIC), random_state=0).fit(X, Y, sample_weight=weights)
    assert clf.predict_proba(X)[:, 1].mean() > VADClassifier(LOGISTIC).fit(X, Y).predict_proba(X)[:, 1].mean() + 0.1


def test_metadata_is_routed_through_a_search():
    weights = np.where(Y == 1, 3.0, 1.0)
    with config_context(enable_metadata_routing=True):
        base = clone(LOGISTIC).set_fit_request(sample_weight=True)
        clf = VADClassifier(base, random_state=0).set_fit_request(sample_weight=True, pool=True)
        clf.set_score_request(sample_weight=False)
        search = GridSearchCV(clf, {"estimator__C": [1.0, np.inf]}, cv=2)
        search.fit(X, Y, sample_weight=weights, pool=POOL)
        best = clone(clf).set_params(**search.best_params_).fit(X, Y, sample_weight=weights, pool=POOL)
        assert search.best_estimator_.map_ == best.map_


def test_tags_follow_the_base_model():
    assert get_tags(VADClassifier()).input_tags.sparse
    assert not get_tags(VADClassifier(GaussianNB())).input_tags.sparse
    assert not get_tags(VADClassifier()).classifier_tags.multi_class
    assert get_tags(VADRegressor()).estimator_type == "regressor"


# ---------------------------------------------------------------------------- edge cases and errors


def test_predictions_of_0_and_1_are_clipped_if_the_link_is_infinite_there():
    tree = DecisionTreeClassifier(max_depth=6)
    clf = VADClassifier(tree, random_state=0).fit(X, Y, pool=POOL)
    raw = clf.estimator_.predict_proba(POOL)[:, 1]
    assert ((raw == 0) | (raw == 1)).any()
    assert clf.clip_ == 1e-6
    scores = clf.predict_replicas(POOL)
    assert (scores.min(), scores.max()) == (1e-6, 1 - 1e-6)
    assert VADClassifier(tree, link="identity", random_state=0).fit(X, Y, pool=POOL).clip_ == 0


@pytest.mark.parametrize(
    ("wrapper", "method"),
    [(VADClassifier(DummyClassifier(), random_state=0), "predict_proba"), (VADRegressor(DummyRegressor()), "predict")],
    ids=["classifier", "regressor"],
)
def test_a_constant_model_is_not_changed_and_warns(wrapper, method):
    with pytest.warns(UserWarning, match="predicts the same value for every row of the pool; its predictions are not"):
        wrapper.fit(X, Y)
    np.testing.assert_allclose(getattr(wrapper, method)(X), getattr(wrapper.estimator_, method)(X))
    assert wrapper.vad_ is None
    assert wrapper.lambda_ == 1


def test_pure_noise_warns_and_uses_lambda_floor():
    noise = np.random.default_rng(7).integers(0, 2, 40)
    clf = VADClassifier(LogisticRegression(), random_state=0)
    with pytest.warns(UserWarning, match=r"λ = -.* using lambda_floor=0.01"):
        clf.fit(X[:40], noise)
    assert clf.lambda_ == 0.01
    with pytest.raises(UncurseError, match="λ = -"):
        clf.set_params(lambda_floor=None).fit(X[:40], noise)


THREE = np.arange(len(Y)) % 3


@pytest.mark.parametrize(
    ("wrapper", "target", "options", "message"),
    [
        (VADClassifier(LinearSVC()), Y, {}, "LinearSVC has no predict_proba; wrap it in .*CalibratedClassifierCV"),
        (VADClassifier(), THREE, {}, "Only binary classification is supported. The type of the target is multiclass."),
        (VADClassifier(), Y * 0, {}, r"y has one class, \[0\]; pass rows of both classes"),
        (VADClassifier(), Y, {"sample_weight": Y}, r"y has one class, \[1\]; pass rows of both classes with pos"),
        (VADClassifier(), Y, {"sample_weight": 0 * Y}, "every sample_weight is zero"),
        (
            VADClassifier(FrozenEstimator(GaussianNB().fit(X, THREE))),
            Y,
            {},
            r"the frozen model has .*0, 1, 2.* and y has",
        ),
        (VADClassifier(link="cauchit"), Y, {}, "link='cauchit' is unknown"),
        (VADRegressor(GaussianNB()), Y, {}, "GaussianNB is a classifier; use VADClassifier"),
        (VADRegressor(link="logistic"), Y, {}, "use link='identity' or 'log'"),
        (VADRegressor(), np.ones((len(Y), 2)), {}, "y should be a 1d array"),
        (VADClassifier(), np.full(len(Y), np.nan), {}, "Input y contains NaN"),
    ],
)
def test_errors_name_the_value_and_the_remedy(wrapper, target, options, message):
    with pytest.raises(UncurseError, match=message):
        wrapper.fit(X, target, **options)


def test_the_remedy_for_a_missing_predict_proba_works():
    clf = VADClassifier(CalibratedClassifierCV(LinearSVC(), cv=2), random_state=0).fit(X, Y, pool=POOL)
    assert 0 < clf.lambda_ <= 1


def test_the_saved_map_reproduces_the_estimator_for_predictions_of_0_and_1(tmp_path):
    forest = RandomForestClassifier(20, random_state=0)
    clf = VADClassifier(forest, random_state=0).fit(X, Y, pool=POOL)
    assert clf.clip_ > 0
    clf.map_.save(tmp_path / "map.json")
    again = load(tmp_path / "map.json")(clf.estimator_.predict_proba(POOL)[:, 1])
    np.testing.assert_array_equal(again, clf.predict_proba(POOL)[:, 1])


def test_a_failed_refit_keeps_the_previous_state():
    clf = VADClassifier(LOGISTIC, random_state=0).fit(X, Y)
    before = clf.predict_proba(POOL)
    with pytest.raises(ValueError, match="NaN"):
        clf.fit(X, Y, pool=np.full_like(POOL, np.nan))
    with pytest.raises(UncurseError, match="one class"):
        clf.fit(X, np.array(["a"] * len(Y)))
    np.testing.assert_array_equal(clf.predict_proba(POOL), before)
    assert clf.classes_.tolist() == [0, 1]
