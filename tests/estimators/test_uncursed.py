"""`UncursedClassifierCV` and `UncursedRegressorCV`."""

import pickle
from functools import cache

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneOut, RepeatedStratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import estimator_checks, get_tags

from uncurse import VAD, UncurseError, load
from uncurse.estimators import UncursedClassifierCV, UncursedRegressorCV

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

LOGISTIC = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)


def data(n=400, d=8, *, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.1, 0.4, (n, d))
    return X, (rng.random(n) < expit(X.sum(axis=1))).astype(int), rng.normal(-0.1, 0.4, (3000, d))


X, Y, POOL = data()


@cache
def default_fit():
    return UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, pool=POOL)


# ---------------------------------------------------------------------------- scikit-learn's own checks

CHECKED = [
    UncursedClassifierCV(method="labels", cv=2, n_replicas=2, random_state=0),
    UncursedClassifierCV(GaussianNB(), method="vad", cv=None, random_state=0),
    UncursedRegressorCV(cv=2, random_state=0),
    UncursedRegressorCV(DecisionTreeRegressor(max_depth=3), method="vad", cv=None, random_state=0),
]
# `parametrize_with_checks` of scikit-learn 1.6 passes pytest a generator, which pytest 9 warns of.
# Only ratios of weights matter here, so an integer weight differs from repeated rows: they are a larger sample.
CHECKS = [
    (estimator, check)
    for wrapper in CHECKED
    for estimator, check in estimator_checks.estimator_checks_generator(wrapper)
    if "sample_weight_equivalence" not in check.func.__name__
]


# Some checks fit pure noise, or a few rows.
@pytest.mark.filterwarnings("ignore:λ = :UserWarning")
@pytest.mark.filterwarnings("ignore:.*predictions are not changed:UserWarning")
@pytest.mark.filterwarnings("ignore:there are :UserWarning")
@pytest.mark.filterwarnings("ignore:on the labeled rows:UserWarning")
@pytest.mark.filterwarnings("ignore:the replicas are identical:UserWarning")
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[f"{e!r}-{check.func.__name__}" for e, check in CHECKS])
def test_scikit_learn_check(estimator, check):
    check(estimator)


# ---------------------------------------------------------------------------- bias at the top


def top_errors(truth, served, corrected, count):
    top = np.argsort(served)[-count:]
    return [served[top].sum() / truth[top].sum() - 1, corrected[top].sum() / truth[top].sum() - 1]


@pytest.mark.parametrize(
    ("options", "replications"),
    [
        ({"method": "vad", "cv": None, "n_replicas": 2}, 20),
        pytest.param({"cv": 2}, 10, marks=pytest.mark.theory),
        pytest.param({}, 40, marks=pytest.mark.theory),
    ],
    ids=["vad", "auto of two folds", "auto"],
)
def test_the_over_prediction_of_the_top_two_percent_is_removed(options, replications):
    rng = np.random.default_rng(0)
    errors = []
    for replication in range(replications):
        X, pool = rng.normal(0.05, 0.2, (1000, 10)), rng.normal(-0.05, 0.2, (10_000, 10))
        y = rng.random(1000) < expit(X.sum(axis=1))
        clf = UncursedClassifierCV(LOGISTIC, random_state=replication, **options).fit(X, y, pool=pool)
        before, after = clf.estimator_.predict_proba(pool)[:, 1], clf.predict_proba(pool)[:, 1]
        errors.append(top_errors(expit(pool.sum(axis=1)), before, after, 200))
    spread = np.std(errors, axis=0, ddof=1)
    mean, error = np.mean(errors, axis=0), spread / np.sqrt(replications)
    assert mean[0] > 0.03
    assert mean[0] > 3 * error[0]
    # Bootstraps vary a little more than a model with 100 rows for each parameter: predictions are 1% too low.
    assert abs(mean[1]) < 0.01 + 3 * error[1]
    assert spread[1] < 0.09 * (1 + 1 / np.sqrt(2 * (replications - 1)))  # a spread has a standard error too


@pytest.mark.parametrize("options", [{"method": "vad", "cv": None}, {}], ids=["vad", "auto"])
def test_the_over_prediction_of_the_top_of_a_regression_is_removed(options):
    rng = np.random.default_rng(0)
    errors = []
    for replication in range(30):
        X, pool = rng.normal(0, 1, (200, 20)), rng.normal(0, 1, (3000, 20))
        y = X.sum(axis=1) + rng.normal(0, 8, 200)
        reg = UncursedRegressorCV(random_state=replication, **options).fit(X, y, pool=pool)
        errors.append(top_errors(pool.sum(axis=1), reg.estimator_.predict(pool), reg.predict(pool), 60))
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(30)
    assert mean[0] > 0.2
    assert abs(mean[1]) < 3 * error[1]


def test_labels_correct_a_model_that_is_too_steep_by_construction():
    class Steep(LogisticRegression):
        def predict_proba(self, X):
            p = expit(2 * self.decision_function(X))
            return np.column_stack([1 - p, p])

    rng = np.random.default_rng(0)
    X, pool = rng.normal(0, 1, (3000, 3)), rng.normal(0, 1, (5000, 3))
    y = rng.random(3000) < expit(X.sum(axis=1) - 1)
    clf = UncursedClassifierCV(Steep(), random_state=0).fit(X, y, pool=pool)
    assert clf.method_ == "labels"
    top = np.argsort(clf.predict_proba(pool)[:, 1])[-250:]
    assert clf.predict_proba(pool)[top, 1].mean() == pytest.approx(expit(pool[top].sum(axis=1) - 1).mean(), rel=0.03)


@pytest.mark.parametrize("base", [LOGISTIC, GaussianNB(), RandomForestClassifier(10, max_depth=4)], ids=repr)
def test_the_ranking_of_the_base_model_is_kept(base):
    clf = UncursedClassifierCV(base, cv=3, random_state=0).fit(X, Y, pool=POOL)
    before, after = clf.estimator_.predict_proba(POOL)[:, 1], clf.predict_proba(POOL)[:, 1]
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()
    assert len(np.unique(after)) >= 0.999 * len(np.unique(before))
    np.testing.assert_allclose(clf.predict_proba(POOL).sum(axis=1), 1)
    assert (clf.predict(POOL) == (after > 0.5)).all()


def test_vad_without_folds_is_vad_of_the_replicas():
    clf = UncursedClassifierCV(LOGISTIC, method="vad", cv=None, random_state=0).fit(X, Y, pool=POOL)
    scores = np.column_stack([model.predict_proba(POOL)[:, 1] for model in (clf.estimator_, *clf.replicas_)])
    assert scores.shape == (3000, 3)
    vad = VAD(scale="probability", replicas="bootstrap", lambda_floor=0.01).fit(scores)
    np.testing.assert_allclose(clf.predict_proba(POOL)[:, 1], vad.predict_proba(scores[:, 0]), rtol=1e-12)
    assert clf.method_ == "vad"
    assert clf.record_.lambda_ == pytest.approx(vad.record_.lambda_, rel=1e-12)
    low, high = clf.interval(0.1)
    assert low < 0 < high


@pytest.mark.parametrize("pool", [None, X, POOL])
def test_labeled_rows_are_scored_by_models_that_have_not_seen_them(pool):
    weights = np.r_[np.zeros(50), np.ones(350)]
    folds = [(np.arange(100, 400), np.arange(100)), (np.arange(200), np.arange(200, 400))]
    clf = UncursedClassifierCV(LOGISTIC, method="labels", cv=folds, random_state=0)
    done = clf.cross_fit(X, Y, pool=pool, sample_weight=weights)
    parts = [(train[train >= 50], test[test >= 50]) for train, test in folds]
    rows = np.concatenate([test for _, test in parts])
    np.testing.assert_array_equal(done.labeled.labels, Y[rows])
    models = [clone(LOGISTIC).fit(X[train], Y[train]) for train, _ in parts]
    expected = [model.predict_proba(X[test])[:, 1] for model, (_, test) in zip(models, parts, strict=True)]
    np.testing.assert_allclose(done.labeled.scores[:, 0], np.concatenate(expected), rtol=1e-6)
    assert not np.isclose(done.labeled.scores[:, 1], np.concatenate(expected)).any()
    if pool is None:
        np.testing.assert_array_equal(done.pool.scores, done.labeled.scores)
    else:  # the models that score labeled rows score the pool too
        expected = np.concatenate([model.predict_proba(pool)[:, 1] for model in models])
        np.testing.assert_allclose(done.pool.scores[:, 0], expected, rtol=1e-6)
        assert done.pool.repeats == 2


def test_the_folds_share_a_large_pool_and_the_served_model_scores_a_sample_of_it():
    pool = np.random.default_rng(1).normal(size=(40_001, 8))
    done = UncursedClassifierCV(GaussianNB(), cv=4, n_replicas=2, random_state=0).cross_fit(X, Y, pool=pool)
    assert done.pool.scores.shape == (40_001, 2)
    assert done.pool.repeats == 1
    assert done.served_pool.scores.shape == (20_001, 1)


def test_the_record_counts_each_row_once():
    record = default_fit().record_
    assert (record.scale, record.link, record.replicas) == ("probability", "logistic", "bootstrap")
    assert (record.pool.rows, record.pool.effective_rows) == (3000, 3000)
    assert (record.labeled.rows, record.labeled.effective_rows) == (400, 400)
    assert 0 < record.lambda_ < 1
    # The center of scores out of fold is not that of the served scores, nor is the error of λ.
    assert (record.center, record.standard_error, record.noise_variance) == (None, None, None)
    weights = np.where(Y == 1, 3.0, 1.0)
    folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=3, random_state=0)
    weighted = UncursedClassifierCV(LOGISTIC, method="labels", cv=folds, random_state=0).fit(
        X, Y, sample_weight=weights
    )
    for rows in (weighted.record_.pool, weighted.record_.labeled):
        assert (rows.rows, rows.effective_rows) == (400, pytest.approx(weights.sum() ** 2 / (weights @ weights)))


# ---------------------------------------------------------------------------- size and files


def test_a_fitted_estimator_pickles_to_its_models_and_its_map_file_has_the_same_intervals(tmp_path):
    pool = np.random.default_rng(0).normal(size=(30_000, 8))
    clf = UncursedClassifierCV(RandomForestClassifier(20), cv=2, random_state=0).fit(X, Y, pool=pool)
    models = len(pickle.dumps((clf.estimator_, clf.replicas_)))
    assert len(pickle.dumps(clf)) < models + 200_000
    same = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(same.predict_proba(POOL), clf.predict_proba(POOL))
    clf.fitted_.save(tmp_path / "map.json")
    loaded = load(tmp_path / "map.json")
    assert loaded.interval(0.02) == clf.interval(0.02) == same.interval(0.02)
    served = clf.estimator_.predict_proba(POOL)[:, 1]
    np.testing.assert_array_equal(loaded(served), clf.predict_proba(POOL)[:, 1])
    assert loaded.to_affine() == clf.to_affine()


# ---------------------------------------------------------------------------- invariances


def test_rows_of_weight_zero_are_not_used():
    weights = np.where(np.arange(len(Y)) < 100, 0.0, 2.0)
    target = np.where(np.arange(len(Y)) < 100, 1 - Y, Y)
    clf = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, target, sample_weight=weights)
    without = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(clf.predict_proba(POOL), without.predict_proba(POOL), rtol=1e-6)


def test_sparse_rows_and_names_of_classes_give_the_same_predictions():
    expected = default_fit().predict_proba(POOL)
    rows, pool = sparse.csr_array(X), sparse.csr_array(POOL)
    base = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1_000)
    names = np.array(["no", "yes"])
    clf = UncursedClassifierCV(base, random_state=0).fit(rows, names[Y], pool=pool)
    dense = UncursedClassifierCV(base, random_state=0).fit(rows.toarray(), Y, pool=POOL)
    assert np.abs(clf.predict_proba(pool) - expected).mean() < 0.02  # other bootstraps
    assert clf.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(clf.predict(pool), names[(clf.predict_proba(pool)[:, 1] > 0.5).astype(int)])
    np.testing.assert_allclose(dense.predict_proba(POOL), expected, rtol=1e-3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dataframes_and_arrays_give_the_same_predictions(library):
    frames = pytest.importorskip(library)
    names = [f"x{j}" for j in range(X.shape[1])]
    frame, pool = (frames.DataFrame(dict(zip(names, rows.T, strict=True))) for rows in (X, POOL))
    clf = UncursedClassifierCV(LOGISTIC, method="vad", cv=2, random_state=0).fit(frame, frames.Series(Y), pool=pool)
    plain = LogisticRegression().fit(frame, Y)  # which frames have names differs between releases of scikit-learn
    assert hasattr(clf, "feature_names_in_") == hasattr(plain, "feature_names_in_")
    expected = UncursedClassifierCV(LOGISTIC, method="vad", cv=2, random_state=0).fit(X, Y, pool=POOL)
    np.testing.assert_allclose(clf.predict_proba(pool), expected.predict_proba(POOL), rtol=1e-8)


def test_groups_are_never_split():
    split = []

    class Watched(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            split.append(set(X[:, 0].astype(int).tolist()))
            return super().fit(X, y, sample_weight)

        def predict_proba(self, X):
            if len(X) == 80:  # a fold, not the pool
                assert not split[-1] & set(X[:, 0].astype(int).tolist())
            return super().predict_proba(X)

    users = np.arange(len(Y)) % 80
    rows = np.column_stack([users, X[:, 0]])
    clf = UncursedClassifierCV(Watched(), teacher=None, random_state=0)
    clf.fit(rows, Y, pool=np.repeat(rows, 3, axis=0), groups=users)
    assert len(split[1]) < 80  # a bootstrap leaves out whole users


# ---------------------------------------------------------------------------- base models and searches


def test_a_frozen_model_is_not_refitted():
    model = clone(LOGISTIC).fit(X, Y)
    before = model.coef_.copy()
    clf = UncursedClassifierCV(FrozenEstimator(model), random_state=0).fit(X, Y, pool=POOL)
    assert clf.estimator_.estimator is model
    np.testing.assert_array_equal(model.coef_, before)
    assert clf.map_ == default_fit().map_


def test_metadata_is_routed_through_a_search():
    weights = np.where(Y == 1, 3.0, 1.0)
    with config_context(enable_metadata_routing=True):
        base = clone(LOGISTIC).set_fit_request(sample_weight=True)
        clf = UncursedClassifierCV(base, method="vad", cv=2, random_state=0)
        clf.set_fit_request(sample_weight=True, pool=True)
        clf.set_score_request(sample_weight=False)
        search = GridSearchCV(clf, {"estimator__C": [1.0, np.inf]}, cv=2)
        search.fit(X, Y, sample_weight=weights, pool=POOL)
        best = clone(clf).set_params(**search.best_params_).fit(X, Y, sample_weight=weights, pool=POOL)
        assert search.best_estimator_.map_ == best.map_


def test_tags_follow_the_base_model():
    # scikit-learn 1.6.0 does not say that a logistic regression takes sparse rows.
    takes_sparse = get_tags(LogisticRegression()).input_tags.sparse
    assert get_tags(UncursedClassifierCV()).input_tags.sparse == takes_sparse
    assert not get_tags(UncursedClassifierCV(GaussianNB())).input_tags.sparse
    assert not get_tags(UncursedClassifierCV()).classifier_tags.multi_class
    assert get_tags(UncursedRegressorCV()).estimator_type == "regressor"


def boosted(name):
    if name == "lightgbm":
        return pytest.importorskip(name).LGBMClassifier(n_estimators=10, num_leaves=7, verbose=-1, n_jobs=1)
    if name == "xgboost":
        return pytest.importorskip(name).XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1, enable_categorical=True)
    catboost = pytest.importorskip(name)
    return catboost.CatBoostClassifier(10, verbose=0, thread_count=1, allow_writing_files=False, cat_features=["c"])


@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "catboost"])
def test_boosted_trees_take_frames_with_categories(name):
    pandas = pytest.importorskip("pandas")

    def frame(rows):
        text = np.array(["a", "b", "c", "d"])[np.digitize(rows[:, 1], [-0.3, 0.1, 0.5])]
        return pandas.DataFrame({"x": rows[:, 0], "c": text if name == "catboost" else pandas.Categorical(text)})

    clf = UncursedClassifierCV(boosted(name), cv=3, random_state=0).fit(frame(X), Y, pool=frame(POOL))
    p = clf.predict_proba(frame(POOL))
    assert p.shape == (3000, 2)
    assert p[:, 1].std() > 0
    with pytest.raises(UncurseError, match=r"pool has shape \(0, 2\)"):
        clf.fit(frame(X), Y, pool=frame(POOL)[:0])


def test_a_frame_with_other_columns_is_refused_for_lightgbm():
    pandas = pytest.importorskip("pandas")
    names = [f"x{i}" for i in range(X.shape[1])]
    rows, pool = (pandas.DataFrame(values, columns=names) for values in (X, POOL))
    clf = UncursedClassifierCV(boosted("lightgbm"), teacher=None, cv=2, random_state=0).fit(rows, Y, pool=pool)
    others = (pool[names[::-1]], "'x7'"), (pool.rename(columns={"x0": "z"}), "'z'"), (pool[names[:3]], "None")
    for other, first in others:
        with pytest.raises(UncurseError, match=f"of pool is {first}"):
            clf.fit(rows, Y, pool=other)
        with pytest.raises(UncurseError, match=f"of X is {first}"):
            clf.predict_proba(other)
    by_name = make_pipeline(ColumnTransformer([("keep", "passthrough", names)]), LOGISTIC)  # in any order
    other = UncursedClassifierCV(by_name, teacher=None, cv=2, random_state=0).fit(rows, Y, pool=pool[names[::-1]])
    assert other.predict_proba(pool[names[::-1]]).shape == (len(POOL), 2)


# ---------------------------------------------------------------------------- edge cases and errors


@pytest.mark.filterwarnings("ignore:λ =")
def test_predictions_of_0_and_1_are_clipped():
    clf = UncursedClassifierCV(DecisionTreeClassifier(max_depth=6), random_state=0).fit(X, Y, pool=POOL)
    raw = clf.estimator_.predict_proba(POOL)[:, 1]
    assert ((raw == 0) | (raw == 1)).any()
    assert clf.predict_proba(POOL).min() > 0
    np.testing.assert_array_equal(clf.map_(raw), clf.predict_proba(POOL)[:, 1])
    plain = UncursedClassifierCV(clf.estimator, method="vad", cv=None, random_state=0).fit(X, Y, pool=POOL).map_
    np.testing.assert_allclose(plain([0.0, 1.0]), plain([1e-6, 1 - 1e-6]), rtol=1e-12)


def test_clipped_predictions_keep_their_ranking():
    clf = UncursedClassifierCV(RandomForestClassifier(30), cv=2, random_state=0).fit(X, Y, pool=POOL)
    x = np.concatenate([[0.0], np.geomspace(1e-5, 0.5, 50), 1 - np.geomspace(0.4, 1e-5, 50), [1.0]])
    assert (np.diff(clf.map_(x)) > 0).all()
    assert clf.map_(0.0) > 0.001  # not 1e-6: 30 trees show no smaller rate


@pytest.mark.parametrize(
    ("wrapper", "method"),
    [
        (UncursedClassifierCV(DummyClassifier(), teacher=None, cv=2, random_state=0), "predict_proba"),
        (UncursedRegressorCV(DummyRegressor(), cv=2), "predict"),
    ],
    ids=["classifier", "regressor"],
)
def test_a_constant_model_is_not_changed_and_warns(wrapper, method):
    with pytest.warns(UserWarning, match="same value for every row"):
        wrapper.fit(X, Y, pool=POOL)
    np.testing.assert_allclose(getattr(wrapper, method)(X), getattr(wrapper.estimator_, method)(X))
    assert wrapper.method_ == "nothing"
    with pytest.raises(UncurseError, match="no intervals: the base model predicts the same value"):
        wrapper.interval(0.1)


def test_folds_of_one_row_are_no_constant_model():
    clf = UncursedClassifierCV(LOGISTIC, cv=LeaveOneOut(), n_replicas=2, random_state=0).fit(X[:60], Y[:60])
    assert clf.method_ != "nothing"


@pytest.mark.filterwarnings("ignore:λ = ")
def test_there_are_no_more_folds_than_rows_of_a_class_or_groups():
    target = (np.arange(40) % 14 == 0).astype(int)
    with pytest.warns(UserWarning, match="rows for 3 folds only, not for 5"):
        UncursedClassifierCV(LOGISTIC, random_state=0).fit(X[:40], target)
    few = pytest.warns(UserWarning, match="groups for 3 folds only, not for 5")
    with few, pytest.warns(UserWarning, match="number of groups is 3"):
        UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, groups=np.arange(len(Y)) % 3)
    network = MLPClassifier(hidden_layer_sizes=2, max_iter=300, tol=0.1, random_state=0)
    with pytest.warns(UserWarning, match="too few groups for two folds"):
        UncursedClassifierCV(network, replicas="seeds", random_state=0).fit(X, Y, groups=np.zeros(len(Y)))


@pytest.mark.parametrize(
    ("estimator", "options", "expected"),
    [
        (ExtraTreesClassifier(10, min_samples_leaf=20), {"cv": None}, True),
        (make_pipeline(StandardScaler(), ExtraTreesClassifier(10, min_samples_leaf=20)), {"method": "vad"}, True),
        (ExtraTreesClassifier(10, min_samples_leaf=20), {}, False),  # labels show what seeds do not
        (MLPClassifier((4,), max_iter=3), {"cv": None}, False),
    ],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer", "ignore:λ = ")
def test_seeds_of_trees_and_lines_without_labels_are_warned_of(estimator, options, expected, recwarn):
    UncursedClassifierCV(estimator, replicas="seeds", random_state=0, **options).fit(X, Y)
    assert any("replicas by seed" in str(each.message) for each in recwarn) == expected


@pytest.mark.filterwarnings("ignore:λ = :UserWarning")
def test_rows_that_an_estimator_splits_are_drawn_at_most_once():
    drawn = []

    class Split(KNeighborsClassifier):
        def __init__(self, cv=3):
            super().__init__()
            self.cv = cv

        def fit(self, X, y):
            drawn.append(len(np.unique(X, axis=0)) == len(X))
            return super().fit(X, y)

    for cv, expected in ((3, [True, True, True]), (None, [True, False, False])):
        drawn.clear()
        UncursedClassifierCV(Split(cv), cv=None, method="vad", random_state=0).fit(X, Y, pool=POOL)
        assert drawn == expected


THREE = np.arange(len(Y)) % 3
PURE = 2 * (np.arange(len(Y)) % 10) + Y  # groups of one class each
ONE_CLASS = [(np.flatnonzero(PURE % 2 == 0), np.flatnonzero(PURE % 2))]
RAGGED = np.empty(len(Y), object)
RAGGED[:] = [Y[:2]] * len(Y)


@pytest.mark.parametrize(
    ("wrapper", "target", "options", "message"),
    [
        (UncursedClassifierCV(LinearSVC()), Y, {}, "LinearSVC has no predict_proba"),
        (UncursedClassifierCV(), THREE, {}, "Only binary classification is supported"),
        (UncursedClassifierCV(), RAGGED, {}, "label"),
        (UncursedClassifierCV(), Y * 0, {}, r"y has one class, \[0\]"),
        (UncursedClassifierCV(), Y, {"sample_weight": Y}, r"y has one class, \[1\]"),
        (UncursedClassifierCV(), Y, {"sample_weight": 0 * Y}, "every sample_weight is zero"),
        (UncursedClassifierCV(), Y, {"sample_weight": [1.0]}, r"has shape \(1,\)"),
        (UncursedClassifierCV(FrozenEstimator(GaussianNB().fit(X, THREE))), Y, {}, "frozen model has .*0, 1, 2.*"),
        (UncursedClassifierCV(method="magic"), Y, {}, "method='magic'"),
        (UncursedClassifierCV(method="labels", cv=None), Y, {}, "method='labels' needs labels"),
        (UncursedClassifierCV(cv=1), Y, {}, "cv=1"),
        (UncursedClassifierCV(cv=True), Y, {}, "cv=True"),
        (UncursedClassifierCV(cv=[("a", "b")]), Y, {}, "does not split the rows"),
        (UncursedClassifierCV(cv=ONE_CLASS), Y, {"groups": PURE}, "fold 0 have one class"),
        (UncursedClassifierCV(), Y, {"groups": [None] * 100 + ["a"] * 300}, "groups"),
        (UncursedClassifierCV(), Y, {"groups": np.zeros(len(Y))}, "number of groups is 1"),
        (UncursedClassifierCV(replicas="twins"), Y, {}, "replicas='twins'"),
        (UncursedClassifierCV(GaussianNB(), replicas="seeds"), Y, {}, "GaussianNB has no random_state"),
        (UncursedClassifierCV("tree"), Y, {}, "estimator is a str"),
        (UncursedClassifierCV(LOGISTIC, cv=2), Y, {"pool": POOL[:0]}, r"pool has shape \(0, 8\)"),
        (UncursedClassifierCV(LOGISTIC, cv=2), Y, {"pool": 5}, r"pool has shape \(\)"),
        (UncursedClassifierCV(LOGISTIC, cv=2), Y, {"pool": POOL[:, :3]}, "cannot score X or the pool"),
        (UncursedClassifierCV(), np.full(len(Y), np.nan), {}, "Input y contains NaN"),
        (UncursedRegressorCV(GaussianNB()), Y, {}, "GaussianNB is a classifier"),
        (UncursedRegressorCV(method="labels"), Y, {}, "method='labels'"),
        (UncursedRegressorCV(), np.ones((len(Y), 2)), {}, "y should be a 1d array"),
        (UncursedRegressorCV(), np.where(Y == 1, np.inf, 0), {}, "y"),
    ],
)
def test_errors_name_the_value(wrapper, target, options, message):
    with pytest.raises(UncurseError, match=message):
        wrapper.fit(X, target, **options)


def test_a_failed_refit_keeps_the_previous_state():
    clf = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y)
    before = clf.predict_proba(POOL)
    with pytest.raises(UncurseError, match="NaN"):
        clf.fit(X, Y, pool=np.full_like(POOL, np.nan))
    np.testing.assert_array_equal(clf.predict_proba(POOL), before)
    assert clf.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("missing", [None, float("nan"), "<NA>"])
def test_missing_labels_are_counted_and_named(missing):
    labels = [*Y.tolist()[:-2], *[pytest.importorskip("pandas").NA if missing == "<NA>" else missing] * 2]
    where = rf"y\[{len(Y) - 2}\] is {missing} \(2 such values\)"
    with pytest.raises(UncurseError, match=f"{where}; drop those rows, or pass them as the pool"):
        UncursedClassifierCV(LOGISTIC).fit(X, np.array(labels, dtype=object))


# ---------------------------------------------------------------------------- folds, weights and pools of all kinds


@pytest.mark.parametrize("method", ["auto", "labels"])
def test_a_cv_without_folds_is_an_error(method):
    with pytest.raises(UncurseError, match="gives no folds"):
        UncursedClassifierCV(LOGISTIC, cv=[], method=method).fit(X, Y)
    folds = iter([(np.arange(200), np.arange(200, 400)), (np.arange(200, 400), np.arange(200))])
    clf = UncursedClassifierCV(LOGISTIC, cv=folds, method=method, random_state=0).fit(X, Y)
    with pytest.raises(UncurseError, match="gives no folds"):  # the generator is used up
        clf.fit(X, Y)


def test_a_regressor_of_pure_noise_predicts_within_the_range_of_the_target():
    rng = np.random.default_rng(0)
    features, pool = rng.normal(size=(100, 60)), rng.normal(size=(2000, 60)) + 0.5
    y = features @ (0.03 * rng.normal(size=60)) + rng.normal(size=100)
    reg = UncursedRegressorCV(random_state=0).fit(features, y, pool=pool)
    predicted = reg.predict(pool)
    assert y.min() < predicted.min() < predicted.max() < y.max()


def test_callbacks_of_scikit_learn_see_every_fit():
    pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")

    class Count:
        def __init__(self):
            self.seen = []

        def setup(self, estimator, context):
            self.seen.append("setup")

        def on_fit_task_begin(self, estimator, context, **more):
            self.seen.append(context.max_subtasks if context.parent is None else "fit")

        def on_fit_task_end(self, estimator, context, **more):
            self.seen.append("end" if context.parent is None else "done")

        def teardown(self, estimator, context):
            self.seen.append("teardown")

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    count = Count()
    UncursedClassifierCV(cv=2, n_replicas=2).set_callbacks(count).fit(X, y)
    assert count.seen[0] == "setup"
    fits = count.seen.count("fit")
    assert count.seen[1] == fits == count.seen.count("done") >= 4
    assert count.seen[-2:] == ["end", "teardown"]
