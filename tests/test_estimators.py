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

# scikit-learn 1.6 calls SciPy 1.17 the old way.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

LOGISTIC = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)


def data(n=400, d=8, *, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.1, 0.4, (n, d))
    return X, (rng.random(n) < expit(X.sum(axis=1))).astype(int), rng.normal(-0.1, 0.4, (3000, d))


X, Y, POOL = data()

# ---------------------------------------------------------------------------- scikit-learn's own checks

# Base models that pass them themselves: that weights equal repetition is not true of every tree and forest.
CHECKED = [
    VADClassifier(),
    VADClassifier(curvature=True, n_replicas=3),
    VADClassifier(GaussianNB()),
    VADClassifier(DecisionTreeClassifier(max_depth=3), link="identity"),
    VADRegressor(),
    VADRegressor(Ridge(), n_replicas=3),
    VADRegressor(DecisionTreeRegressor(max_depth=3)),
]
# `parametrize_with_checks` of scikit-learn 1.6 passes pytest a generator, which pytest 9 warns of.
CHECKS = [pair for estimator in CHECKED for pair in estimator_checks.estimator_checks_generator(estimator)]


@pytest.fixture
def _consistent_labels(monkeypatch):
    """In scikit-learn 1.6 the checks make y binary by its *first* label, so the two fits that are to agree get
    different labels and no binary classifier can pass; later versions go by the smallest. Do so there too."""
    original = estimator_checks._enforce_estimator_tags_y
    if original(VADClassifier(), np.array([1, 0])).tolist() != [1, 0]:

        def smallest(estimator, y):
            binary = get_tags(estimator).estimator_type == "classifier" and y.size > 0
            return np.where(y == y.min(), y, y.min() + 1) if binary else original(estimator, y)

        monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_y", smallest)


@pytest.mark.usefixtures("_consistent_labels")
@pytest.mark.filterwarnings("ignore:λ = :UserWarning")  # some checks fit pure noise
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[f"{e!r}-{check.func.__name__}" for e, check in CHECKS])
def test_scikit_learn_check(estimator, check):
    check(estimator)


# ---------------------------------------------------------------------------- what it is for


def test_the_top_two_percent_are_over_predicted_before_and_true_after():
    rng = np.random.default_rng(0)
    errors = []
    for replication in range(60):
        X, pool = rng.normal(0.05, 0.2, (1000, 10)), rng.normal(-0.05, 0.2, (20_000, 10))
        y = rng.random(1000) < expit(X.sum(axis=1))
        clf = VADClassifier(LOGISTIC, random_state=replication).fit(X, y, pool=pool)
        before, after = clf.estimator_.predict_proba(pool)[:, 1], clf.predict_proba(pool)[:, 1]
        top = np.argsort(before)[-400:]
        truth = expit(pool[top].sum(axis=1)).sum()
        errors.append([before[top].sum() / truth - 1, after[top].sum() / truth - 1])
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(60)
    assert mean[0] > 0.03
    assert mean[0] > 6 * error[0]
    assert abs(mean[1]) < 3 * error[1]
    assert error[1] < 0.01


def test_the_top_of_a_regression_is_over_predicted_before_and_true_after():
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
def test_the_ranking_is_the_base_model_s(base, curvature):
    clf = VADClassifier(base, curvature=curvature, random_state=0).fit(X, Y, pool=POOL)
    before, after = clf.estimator_.predict_proba(POOL)[:, 1], clf.predict_proba(POOL)[:, 1]
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()
    assert len(np.unique(after)) >= 0.999 * len(np.unique(before))
    np.testing.assert_allclose(clf.predict_proba(POOL).sum(axis=1), 1)
    assert (clf.predict(POOL) == (after > 0.5)).all()


def test_the_parts_agree():
    clf = VADClassifier(LOGISTIC, n_replicas=3, random_state=0).fit(X, Y, pool=POOL)
    assert clf.replicate_ == "bootstrap"
    assert clf.vad_.replicas == "anchored"
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


def test_a_model_by_seed_is_fitted_by_seed():
    clf = VADClassifier(RandomForestClassifier(5, max_depth=3), random_state=0).fit(X, Y, pool=POOL)
    assert (clf.replicate_, clf.vad_.replicas) == ("seeds", "seeds")
    assert 0 < clf.lambda_ < 1


# ---------------------------------------------------------------------------- invariances


def test_weights_equal_repetition():
    weights = np.random.default_rng(1).integers(0, 4, len(Y))
    one = VADClassifier(LOGISTIC, random_state=0).fit(X, Y, sample_weight=weights)
    two = VADClassifier(LOGISTIC, random_state=0).fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights))
    np.testing.assert_allclose(one.predict_proba(POOL), two.predict_proba(POOL), rtol=1e-9)
    assert not np.isclose(one.lambda_, VADClassifier(LOGISTIC, random_state=0).fit(X, Y).lambda_)


def test_the_order_of_rows_does_not_change_the_map():
    order = np.random.default_rng(1).permutation(len(Y))
    one = VADClassifier(LOGISTIC, random_state=0).fit(X, Y).map_
    two = VADClassifier(LOGISTIC, random_state=0).fit(X[order], Y[order]).map_
    np.testing.assert_allclose([one.slope, one.intercept], [two.slope, two.intercept], rtol=1e-9)


def test_two_jobs_give_what_one_gives():
    one, two = (VADClassifier(LOGISTIC, n_jobs=n, random_state=0).fit(X, Y, pool=POOL) for n in (1, 2))
    assert one.map_ == two.map_


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_give_what_arrays_give(library):
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


# ---------------------------------------------------------------------------- other estimators around and inside


def test_a_frozen_model_is_not_refitted():
    model = clone(LOGISTIC).fit(X, Y)
    before = model.coef_.copy()
    clf = VADClassifier(FrozenEstimator(model), replicate="bootstrap", random_state=0).fit(X, Y, pool=POOL)
    assert clf.estimator_.estimator is model
    np.testing.assert_array_equal(model.coef_, before)
    assert clf.map_ == VADClassifier(LOGISTIC, replicate="bootstrap", random_state=0).fit(X, Y, pool=POOL).map_


def test_a_pipeline_takes_weights_by_its_last_step():
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


# ---------------------------------------------------------------------------- the edges


def test_exact_0_and_1_are_clipped_where_the_link_needs_it():
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
def test_a_constant_model_is_left_as_it_is_with_a_warning(wrapper, method):
    with pytest.warns(UserWarning, match="gives the whole pool one score, so there is nothing to debias"):
        wrapper.fit(X, Y)
    np.testing.assert_allclose(getattr(wrapper, method)(X), getattr(wrapper.estimator_, method)(X))
    assert wrapper.lambda_ == wrapper.vad_.lambda_ == 1


def test_pure_noise_warns_and_uses_the_floor():
    noise = np.random.default_rng(0).integers(0, 2, 40)
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
        (VADClassifier(), Y * 0, {}, r"y holds one class, \[0\]; pass rows of both classes"),
        (VADClassifier(), Y, {"sample_weight": Y}, r"y holds one class, \[1\]; pass rows of both classes, with weight"),
        (VADClassifier(), Y, {"sample_weight": 0 * Y}, "every sample_weight is zero"),
        (
            VADClassifier(FrozenEstimator(GaussianNB().fit(X, THREE))),
            Y,
            {},
            r"the frozen model knows .*0, 1, 2.* y hold",
        ),
        (VADClassifier(link="cauchit"), Y, {}, "link='cauchit' is unknown"),
        (VADRegressor(GaussianNB()), Y, {}, "GaussianNB is a classifier; use VADClassifier"),
        (VADRegressor(link="logistic"), Y, {}, "use link='identity' or 'log'"),
    ],
)
def test_errors_name_the_value_and_the_remedy(wrapper, target, options, message):
    with pytest.raises(UncurseError, match=message):
        wrapper.fit(X, target, **options)


def test_the_remedy_for_a_missing_predict_proba_works():
    clf = VADClassifier(CalibratedClassifierCV(LinearSVC(), cv=2), random_state=0).fit(X, Y, pool=POOL)
    assert 0 < clf.lambda_ <= 1


def test_the_saved_map_alone_does_what_the_estimator_does_also_where_votes_are_0_or_1(tmp_path):
    forest = RandomForestClassifier(20, random_state=0)
    clf = VADClassifier(forest, random_state=0).fit(X, Y, pool=POOL)
    assert clf.clip_ > 0
    clf.map_.save(tmp_path / "map.json")
    again = load(tmp_path / "map.json")(clf.estimator_.predict_proba(POOL)[:, 1])
    np.testing.assert_array_equal(again, clf.predict_proba(POOL)[:, 1])
