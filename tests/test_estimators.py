import re
from dataclasses import replace
from functools import cache

import joblib
import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneOut, RepeatedStratifiedKFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import estimator_checks, get_tags

from uncurse.debias.records import DataRecord
from uncurse.debias.replica_kinds import replica_kind
from uncurse.debias.straight_line import straight_line
from uncurse.debias.vad import VAD
from uncurse.errors import UncurseError
from uncurse.estimators import UncursedClassifierCV, UncursedRegressorCV
from uncurse.estimators.cross_fitting import CrossFitted
from uncurse.estimators.replicas import Replicas
from uncurse.estimators.scores import CLIP, CrossFit, labelled_evidence, pool_evidence, served_quantiles
from uncurse.maps import load
from uncurse.serving import fold

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
    UncursedClassifierCV(method="tower", cv=2, n_replicas=2, random_state=0),
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
@pytest.mark.filterwarnings("ignore:on the labelled rows:UserWarning")
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
    assert spread[1] < 0.09


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
    assert clf.method_ == "tower"
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
    assert len(clf.replicas_) == 2
    scores = clf.predict_replicas(POOL)
    assert scores.shape == (3000, 3)
    vad = VAD(scale="probability", replicas="bootstrap", lambda_floor=0.01).fit(scores)
    np.testing.assert_allclose(clf.predict_proba(POOL)[:, 1], vad.predict_proba(scores[:, 0]), rtol=1e-12)
    assert clf.method_ == "vad"
    low, high = clf.interval(0.1)
    assert low < 0 < high


def test_labelled_rows_are_scored_by_models_that_have_not_seen_them():
    folds = [(np.arange(100, 400), np.arange(100)), (np.arange(200), np.arange(200, 400))]
    done = UncursedClassifierCV(LOGISTIC, method="tower", cv=folds, random_state=0).cross_fit(X, Y, pool=POOL)
    scores, labels = done.labelled
    rows = np.concatenate([test for _, test in folds])
    np.testing.assert_array_equal(labels, Y[rows])
    expected = np.concatenate([clone(LOGISTIC).fit(X[a], Y[a]).predict_proba(X[b])[:, 1] for a, b in folds])
    np.testing.assert_allclose(scores[:, 0], expected, rtol=1e-9)
    assert not np.isclose(scores[:, 1], expected).any()
    assert done.pool.shape == (6000, 3)
    assert done.pool_repeats == 2


def test_the_folds_share_a_large_pool():
    pool = np.random.default_rng(1).normal(size=(12_000, 8))
    done = UncursedClassifierCV(LOGISTIC, cv=4, random_state=0).cross_fit(X, Y, pool=pool)
    assert done.pool.shape == (12_000, 3)
    assert done.pool_repeats == 1
    assert done.served_pool.shape == (12_000, 3)
    assert not np.isclose(np.sort(done.pool[:, 0]), np.sort(done.served_pool[:, 0])).all()


def test_a_pool_is_scored_by_the_models_that_score_labelled_rows():
    folds = [(np.arange(200, 400), np.arange(200)), (np.arange(200), np.arange(200, 400))]
    done = UncursedClassifierCV(LOGISTIC, cv=folds, random_state=0).cross_fit(X, Y, pool=X)
    assert done.pool.shape == (800, 3)
    assert done.pool_repeats == 2
    assert pool_evidence(done).moments.effective_rows == pytest.approx(400)
    np.testing.assert_allclose(done.pool[:200], done.labelled[0][:200], rtol=1e-12)
    np.testing.assert_allclose(done.pool[600:], done.labelled[0][200:], rtol=1e-12)
    np.testing.assert_allclose(done.served_pool[:, 0], clone(LOGISTIC).fit(X, Y).predict_proba(X)[:, 1], rtol=1e-9)


def test_the_line_without_a_pool_is_that_of_the_rows_out_of_fold_as_the_served_model_scores_them():
    clf = UncursedClassifierCV(random_state=0, cv=2).fit(X[:300], Y[:300])
    done = clf.cross_fit(X[:300], Y[:300])
    slope, intercept = done.alignment
    assert abs(intercept) > 0.02
    served = (logit(done.pool[:, 0]) - intercept) / slope
    # The estimator keeps 500 quantiles of them.
    expected, _ = straight_line(clf.map_, served, np.ones(len(served)), (0.05, 0.5))
    line, _ = clf.line((0.05, 0.5))
    np.testing.assert_allclose(line([0.1, 0.3]), expected([0.1, 0.3]), rtol=0.01)


def test_without_a_pool_the_rows_scored_out_of_fold_are_the_pool():
    tree = DecisionTreeClassifier(max_depth=4)
    clf = UncursedClassifierCV(tree, method="tower", random_state=0).fit(X, Y)
    assert clf.predict_proba(X)[:, 1].max() < clf.estimator_.predict_proba(X)[:, 1].max() - 0.1


def test_the_record_counts_each_row_once_and_tells_what_is_known_of_the_map():
    clf, columns = default_fit(), ("column 0", "column 1", "column 2")
    record = clf.record_
    assert (record.method, record.reason) == (clf.method_, clf.reason_)
    assert (record.scale, record.link, record.replicas) == ("probability", "logistic", "bootstrap")
    assert record.pool == DataRecord(3000, columns, effective_rows=3000.0)
    assert record.labelled == DataRecord(400, columns, effective_rows=400.0)
    assert 0 < record.lambda_ < 1
    # The center of scores out of fold is not that of the served scores, nor is the error of λ.
    assert (record.center, record.standard_error, record.noise_variance) == (None, None, None)
    weights = np.where(Y == 1, 3.0, 1.0)
    folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=3, random_state=0)
    weighted = UncursedClassifierCV(LOGISTIC, method="tower", cv=folds, random_state=0).fit(X, Y, sample_weight=weights)
    for rows in (weighted.record_.pool, weighted.record_.labelled):
        assert (rows.rows, rows.effective_rows) == (400, pytest.approx(weights.sum() ** 2 / (weights @ weights)))
        assert isinstance(rows.rows, int)
    no_labels = UncursedClassifierCV(LOGISTIC, method="vad", cv=None, random_state=0).fit(X, Y, pool=POOL)
    vad = VAD(scale="probability", replicas="bootstrap").fit(no_labels.predict_replicas(POOL))
    assert no_labels.record_ == vad.record_


def test_regressors_keep_a_record_too():
    target = X.sum(axis=1)
    line = UncursedRegressorCV(random_state=0).fit(X, target + Y, pool=POOL).record_
    assert (line.method, line.scale, line.link) == ("line", "value", "identity")
    assert f"λ = {line.lambda_:.3f}" in line.reason
    assert (line.pool.rows, line.labelled.rows, line.remaining_error) == (3000, 400, ())
    noise = UncursedRegressorCV(random_state=0).fit(X, np.random.default_rng(0).normal(size=400)).record_
    assert noise.reason.startswith("most of the variance of the scores is noise")
    assert (noise.method, noise.lambda_, noise.labelled.rows) == ("line", None, 400)


def test_the_number_of_fits_is_the_number_of_replicas_times_the_folds_and_one():
    counted = []

    class Counted(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            counted.append(len(X))
            return super().fit(X, y, sample_weight)

    UncursedClassifierCV(Counted(), cv=4, random_state=0).fit(X, Y, pool=POOL)
    assert len(counted) == 5 * 3


# ---------------------------------------------------------------------------- invariances


def test_rows_of_weight_zero_are_not_used():
    weights = np.where(np.arange(len(Y)) < 100, 0.0, 2.0)
    target = np.where(np.arange(len(Y)) < 100, 1 - Y, Y)
    clf = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, target, sample_weight=weights)
    without = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(clf.predict_proba(POOL), without.predict_proba(POOL), rtol=1e-6)


def test_arguments_after_the_target_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        UncursedClassifierCV().fit(X, Y, np.ones(len(Y)))


def test_results_do_not_depend_on_n_jobs():
    with joblib.parallel_config(backend="threading"):
        two = UncursedClassifierCV(LOGISTIC, n_jobs=2, random_state=0).fit(X, Y, pool=POOL)
    assert two.map_ == default_fit().map_


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


def test_string_classes_are_kept():
    names = np.array(["no", "yes"])
    clf = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, names[Y], pool=POOL)
    assert clf.classes_.tolist() == ["no", "yes"]
    assert set(clf.predict(POOL)) == {"no", "yes"}
    assert clf.map_ == default_fit().map_


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
    clf = UncursedClassifierCV(Watched(), random_state=0)
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


def test_weights_reach_the_last_step_of_a_pipeline():
    weights = np.where(Y == 1, 3.0, 1.0)
    pipeline = make_pipeline(StandardScaler(), LOGISTIC)
    clf = UncursedClassifierCV(pipeline, random_state=0).fit(X, Y, sample_weight=weights)
    assert clf.predict_proba(X)[:, 1].mean() > default_fit().predict_proba(X)[:, 1].mean() + 0.1


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
    assert clf.method_ in ("tower", "average", "vad with curvature", "free", "nothing")


# ---------------------------------------------------------------------------- edge cases and errors


@pytest.mark.filterwarnings("ignore:λ =")
def test_predictions_of_0_and_1_are_clipped(tmp_path):
    tree = DecisionTreeClassifier(max_depth=6)
    clf = UncursedClassifierCV(tree, random_state=0).fit(X, Y, pool=POOL)
    raw = clf.estimator_.predict_proba(POOL)[:, 1]
    assert ((raw == 0) | (raw == 1)).any()
    assert clf.predict_proba(POOL).min() > 0
    clf.map_.save(tmp_path / "map.json")
    np.testing.assert_array_equal(load(tmp_path / "map.json")(raw), clf.predict_proba(POOL)[:, 1])
    plain = UncursedClassifierCV(tree, method="vad", cv=None, random_state=0).fit(X, Y, pool=POOL).map_
    np.testing.assert_allclose(plain([0.0, 1.0]), plain([CLIP, 1 - CLIP]), rtol=1e-12)
    assert plain([1 - 2 * CLIP]) < plain([1.0])


class NeverOne(LogisticRegression):
    """Small probabilities are rounded to 0, and none is rounded to 1."""

    def predict_proba(self, X):
        p = super().predict_proba(X)[:, 1]
        p = np.where(p < 0.05, 0.0, p)
        return np.column_stack([1 - p, p])


def test_predictions_of_0_alone_are_clipped():
    clf = UncursedClassifierCV(NeverOne(), random_state=0).fit(X, Y, pool=POOL)
    assert clf.estimator_.predict_proba(POOL)[:, 1].min() == 0
    np.testing.assert_allclose(clf.map_([0.0]), clf.map_([CLIP]), rtol=1e-12)


@pytest.mark.parametrize(
    ("wrapper", "method"),
    [
        (UncursedClassifierCV(DummyClassifier(), random_state=0), "predict_proba"),
        (UncursedRegressorCV(DummyRegressor()), "predict"),
    ],
    ids=["classifier", "regressor"],
)
def test_a_constant_model_is_not_changed_and_warns(wrapper, method):
    with pytest.warns(UserWarning, match="predicts the same value for every row of the pool; predictions are not"):
        wrapper.fit(X, Y, pool=POOL)
    np.testing.assert_allclose(getattr(wrapper, method)(X), getattr(wrapper.estimator_, method)(X))
    assert wrapper.method_ == wrapper.record_.method == "nothing"
    assert wrapper.record_.scale == wrapper.map_.scale
    if method == "predict":
        assert not hasattr(wrapper, "interval")
    else:
        with pytest.raises(UncurseError, match="there are no intervals: the base model predicts the same value"):
            wrapper.interval(0.1)


def test_few_rows_give_fewer_folds_and_a_warning():
    target = (np.arange(40) % 14 == 0).astype(int)
    with pytest.warns(UserWarning, match="there are rows for 3 folds only, not for 5"):
        UncursedClassifierCV(LOGISTIC, random_state=0).fit(X[:40], target)


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

    UncursedClassifierCV(Split(), cv=None, method="vad", random_state=0).fit(X, Y, pool=POOL)
    assert all(drawn)
    drawn.clear()
    UncursedClassifierCV(Split(cv=None), cv=None, method="vad", random_state=0).fit(X, Y, pool=POOL)
    assert drawn == [True, False, False]


THREE = np.arange(len(Y)) % 3


@pytest.mark.parametrize(
    ("wrapper", "target", "options", "message"),
    [
        (UncursedClassifierCV(LinearSVC()), Y, {}, "LinearSVC has no predict_proba; wrap it in .*CalibratedClassif"),
        (UncursedClassifierCV(), THREE, {}, "Only binary classification is supported. The type of the target is mul"),
        (UncursedClassifierCV(), Y * 0, {}, r"y has one class, \[0\]; pass rows of both classes"),
        (UncursedClassifierCV(), Y, {"sample_weight": Y}, r"y has one class, \[1\]; pass rows of both classes with"),
        (UncursedClassifierCV(), Y, {"sample_weight": 0 * Y}, "every sample_weight is zero"),
        (UncursedClassifierCV(), Y, {"sample_weight": [1.0]}, rf"has shape \(1,\) but there are {len(Y)} rows"),
        (
            UncursedClassifierCV(FrozenEstimator(GaussianNB().fit(X, THREE))),
            Y,
            {},
            r"the frozen model has .*0, 1, 2.* and y has",
        ),
        (UncursedClassifierCV(method="magic"), Y, {}, "method='magic' is unknown; choose one of auto, tower, vad"),
        (UncursedClassifierCV(method="tower", cv=None), Y, {}, "method='tower' needs labels; pass cv, such as cv=5"),
        (UncursedClassifierCV(cv=1), Y, {}, "cv=1; pass 2 or more folds, or None"),
        (UncursedClassifierCV(cv=[("a", "b")]), Y, {}, "does not split the rows"),
        (UncursedClassifierCV(replicas="twins"), Y, {}, "replicas='twins' is unknown; choose one of bootstrap, seeds"),
        (UncursedClassifierCV(GaussianNB(), replicas="seeds"), Y, {}, "GaussianNB has no random_state; use replicas"),
        (UncursedClassifierCV("tree"), Y, {}, "estimator is a str; pass a scikit-learn estimator"),
        (UncursedRegressorCV(GaussianNB()), Y, {}, "GaussianNB is a classifier; use UncursedClassifierCV"),
        (UncursedRegressorCV(method="tower"), Y, {}, "method='tower' is unknown; choose one of auto, vad"),
        (UncursedRegressorCV(), np.ones((len(Y), 2)), {}, "y should be a 1d array"),
        (UncursedClassifierCV(), np.full(len(Y), np.nan), {}, "Input y contains NaN"),
    ],
)
def test_errors_name_the_value_and_the_remedy(wrapper, target, options, message):
    with pytest.raises(UncurseError, match=message):
        wrapper.fit(X, target, **options)


def test_the_remedy_for_a_missing_predict_proba_works():
    clf = UncursedClassifierCV(CalibratedClassifierCV(LinearSVC(), cv=2), cv=2, random_state=0).fit(X, Y, pool=POOL)
    assert clf.predict_proba(POOL).shape == (3000, 2)


def test_a_failed_refit_keeps_the_previous_state():
    clf = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y)
    before = clf.predict_proba(POOL)
    with pytest.raises(ValueError, match="NaN"):
        clf.fit(X, Y, pool=np.full_like(POOL, np.nan))
    with pytest.raises(UncurseError, match="one class"):
        clf.fit(X, np.array(["a"] * len(Y)))
    np.testing.assert_array_equal(clf.predict_proba(POOL), before)
    assert clf.classes_.tolist() == [0, 1]


def test_the_line_of_a_regressor_follows_from_moments():
    rng = np.random.default_rng(3)
    features, pool = rng.normal(size=(190, 5)), rng.normal(0.3, 1.2, (2000, 5))  # too few for unequal variances
    y = features.sum(axis=1) + 2 + rng.normal(0, 3, 190)
    folds = [(np.arange(95), np.arange(95, 190)), (np.arange(95, 190), np.arange(95))]
    reg = UncursedRegressorCV(cv=folds, random_state=0).fit(features, y, pool=pool)
    done = reg.cross_fit(features, y, pool=pool)
    vad = VAD(link="identity", scale="value", replicas="anchored").fit(done.pool)
    rows = np.concatenate([test for _, test in folds])
    served = np.concatenate([LinearRegression().fit(features[a], y[a]).predict(features[b]) for a, b in folds])
    slope, intercept = done.alignment
    assert 1 < slope < 1.3  # the served model has less noise than those of two folds
    steepness = reg.map_.slope / vad.lambda_ / slope
    # The true variance of the scores out of fold is their variance less that of the noise, which only bootstraps show.
    true = np.cov(served, y[rows], ddof=0)[0, 1] / steepness
    assert 0.5 * served.var() < true < served.var()
    level = y.mean() - steepness * served.mean()
    expected = level + steepness * ((1 - vad.lambda_) * vad.center_ + vad.lambda_ * intercept)
    assert reg.map_.intercept == pytest.approx(expected)
    assert reg.method_ == "line"
    assert f"λ = {vad.lambda_:.3f}" in reg.reason_


@pytest.mark.parametrize(
    ("estimator", "options", "warned"),
    [
        (ExtraTreesClassifier(10, min_samples_leaf=20), {"cv": None}, True),
        (make_pipeline(StandardScaler(), ExtraTreesClassifier(10, min_samples_leaf=20)), {"method": "vad"}, True),
        (ExtraTreesClassifier(10, min_samples_leaf=20), {}, False),  # labels show what seeds do not
        (MLPClassifier((4,), max_iter=3), {"cv": None}, False),
    ],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.filterwarnings("ignore:λ = ")
def test_seeds_of_trees_and_lines_without_labels_are_warned_of(estimator, options, warned, recwarn):
    UncursedClassifierCV(estimator, replicas="seeds", random_state=0, **options).fit(X, Y)
    assert any("replicas by seed show little of the noise" in str(one.message) for one in recwarn) == warned


@pytest.mark.filterwarnings("ignore:groups has 3 values")
def test_fewer_groups_than_folds_give_fewer_folds():
    with pytest.warns(UserWarning, match="there are groups for 3 folds only, not for 5"):
        UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, groups=np.arange(len(Y)) % 3)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer", "ignore:λ = ")
def test_one_group_is_an_error_and_few_are_warned_of():
    with pytest.raises(UncurseError, match="groups has one value, and bootstraps draw whole groups; pass one value"):
        UncursedClassifierCV(LOGISTIC).fit(X, Y, groups=np.zeros(len(Y)))
    with pytest.warns(UserWarning, match="groups has 19 values, and bootstraps draw whole groups, so they show little"):
        UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, groups=np.arange(len(Y)) % 19)
    UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y, groups=np.arange(len(Y)) % 20)
    # Seeds change nothing in the rows, so groups are for the folds alone.
    network = MLPClassifier(hidden_layer_sizes=2, max_iter=5, random_state=0)
    with pytest.warns(UserWarning, match="there are too few groups for two folds, so no labels are used"):
        UncursedClassifierCV(network, replicas="seeds", random_state=0).fit(X, Y, groups=np.zeros(len(Y)))


def test_a_frame_with_other_columns_is_refused_for_lightgbm():
    pandas = pytest.importorskip("pandas")
    names = [f"x{i}" for i in range(X.shape[1])]
    rows, pool = (pandas.DataFrame(values, columns=names) for values in (X, POOL))
    clf = UncursedClassifierCV(boosted("lightgbm"), cv=2, random_state=0).fit(rows, Y, pool=pool)
    order = r"has other columns than X in training, or another order, and LightGBM .* such as {}\[names\]"
    with pytest.raises(UncurseError, match="pool " + order.format("pool")):
        clf.fit(rows, Y, pool=pool[names[::-1]])
    with pytest.raises(UncurseError, match="pool has no column 'x0', and LightGBM takes columns by their place"):
        clf.fit(rows, Y, pool=pool.rename(columns={"x0": "z"}))
    with pytest.raises(UncurseError, match="X " + order.format("X")):
        clf.predict_proba(pool[names[::-1]])
    np.testing.assert_allclose(clf.predict_proba(pool)[:3], clf.predict_proba(pool[:3]))
    # Columns that are selected by name may come in any order.
    by_name = make_pipeline(ColumnTransformer([("keep", "passthrough", names)]), LOGISTIC)
    other = UncursedClassifierCV(by_name, cv=2, random_state=0).fit(rows, Y, pool=pool[names[::-1]])
    assert other.predict_proba(pool[names[::-1]]).shape == (len(POOL), 2)


@pytest.mark.parametrize("missing", [None, float("nan"), "<NA>"])
def test_missing_labels_are_counted_and_named(missing):
    labels = [*Y.tolist()[:-2], *[pytest.importorskip("pandas").NA if missing == "<NA>" else missing] * 2]
    where = rf"y\[{len(Y) - 2}\] is {missing} \(2 such values\)"
    with pytest.raises(UncurseError, match=f"{where}.*: drop those rows, or pass them as the pool"):
        UncursedClassifierCV(LOGISTIC).fit(X, np.array(labels, dtype=object))


def test_truth_values_of_dtype_object_are_labels():
    ragged = np.empty(len(Y), object)
    ragged[:] = [Y[:2]] * len(Y)
    with pytest.raises(UncurseError, match="label"):
        UncursedClassifierCV(LOGISTIC).fit(X, ragged)
    objects = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, np.array(Y == 1, dtype=object))
    plain = UncursedClassifierCV(LOGISTIC, random_state=0).fit(X, Y == 1)
    assert objects.classes_.tolist() == [False, True]
    np.testing.assert_array_equal(objects.predict_proba(POOL), plain.predict_proba(POOL))


def test_groups_that_a_search_inside_needs_are_explained():
    search = GridSearchCV(LOGISTIC, {"C": [0.1, 1.0]}, cv=GroupKFold(2))
    with pytest.raises(UncurseError, match="Groups are not passed to the model: tune it by its groups first"):
        UncursedClassifierCV(search, cv=2).fit(X, Y, groups=np.arange(len(Y)) % 40)


# ---------------------------------------------------------------------------- folds, weights and pools of all kinds


def test_given_folds_refer_to_all_rows_whatever_their_weights():
    weights = np.ones(400)
    weights[::2] = 0
    train, test = np.arange(200), np.arange(200, 300)
    done = UncursedClassifierCV(LOGISTIC, cv=[(train, test)], random_state=0).cross_fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(done.labelled[1], Y[test[weights[test] > 0]])


def test_rows_of_weight_zero_do_not_change_the_line():
    weights = (np.arange(400) % 2).astype(float)
    kept = weights > 0
    far = X.copy()
    far[~kept] *= 50
    options = {"method": "auto", "cv": None, "random_state": 0}
    with_zeros = UncursedClassifierCV(LOGISTIC, **options).fit(far, Y, sample_weight=weights)
    without = UncursedClassifierCV(LOGISTIC, **options).fit(X[kept], Y[kept])
    assert with_zeros.line()[0].slope == pytest.approx(without.line()[0].slope, rel=1e-6)


def test_labels_that_are_scored_again_and_again_count_once():
    widths = []
    for cv in (StratifiedKFold(5, shuffle=True, random_state=0), RepeatedStratifiedKFold(n_splits=5, n_repeats=3)):
        clf = UncursedClassifierCV(LOGISTIC, method="tower", cv=cv, random_state=0).fit(X, Y)
        low, high = clf.interval(0.1)
        widths.append(high - low)
    assert widths[1] > 0.8 * widths[0]
    done = UncursedClassifierCV(LOGISTIC, cv=cv, random_state=0).cross_fit(X, Y)
    assert (done.labelled_repeats, done.pool_repeats) == (3, 3)
    assert labelled_evidence(done).moments.effective_rows == pytest.approx(400)


def test_folds_of_one_row_are_no_constant_model():
    clf = UncursedClassifierCV(LOGISTIC, cv=LeaveOneOut(), random_state=0).fit(X[:60], Y[:60])
    assert "predicts the same value" not in clf.reason_
    reg = UncursedRegressorCV(cv=40, random_state=0).fit(X[:40], X[:40].sum(axis=1) + np.arange(40) % 3)
    assert reg.method_ == "line"


@pytest.mark.parametrize("method", ["auto", "tower"])
def test_a_cv_without_folds_is_an_error(method):
    with pytest.raises(UncurseError, match="gives no folds"):
        UncursedClassifierCV(LOGISTIC, cv=[], method=method).fit(X, Y)
    folds = iter([(np.arange(200), np.arange(200, 400)), (np.arange(200, 400), np.arange(200))])
    clf = UncursedClassifierCV(LOGISTIC, cv=folds, method=method, random_state=0).fit(X, Y)
    with pytest.raises(UncurseError, match="gives no folds"):  # the generator is used up
        clf.fit(X, Y)


def test_a_pool_that_cannot_be_scored_is_named():
    catboost = pytest.importorskip("catboost").CatBoostClassifier(iterations=5, verbose=0, allow_writing_files=False)
    for model in (boosted("xgboost"), catboost, LOGISTIC):
        with pytest.raises(UncurseError, match="the pool has 0 rows"):
            UncursedClassifierCV(model, cv=2).fit(X, Y, pool=POOL[:0])
        with pytest.raises(UncurseError, match="the models cannot score the pool"):
            UncursedClassifierCV(model, cv=2).fit(X, Y, pool=POOL[:, :3])


def test_groups_are_checked_before_folds():
    with pytest.raises(UncurseError, match="group"):
        UncursedClassifierCV(LOGISTIC).fit(X, Y, groups=[None] * 100 + ["a"] * 300)
    pure = 2 * (np.arange(len(Y)) % 10) + Y  # groups of one class each
    folds = [(np.flatnonzero(pure % 2 == 0), np.flatnonzero(pure % 2))]
    with pytest.raises(UncurseError, match="have one class; use fewer folds, other groups"):
        UncursedClassifierCV(LOGISTIC, cv=folds).fit(X, Y, groups=pure)


def test_a_regressor_of_pure_noise_predicts_within_the_range_of_the_target():
    rng = np.random.default_rng(0)
    features, pool = rng.normal(size=(100, 60)), rng.normal(size=(2000, 60)) + 0.5
    y = features @ (0.03 * rng.normal(size=60)) + rng.normal(size=100)
    reg = UncursedRegressorCV(random_state=0).fit(features, y, pool=pool)
    predicted = reg.predict(pool)
    assert y.min() < predicted.min() < predicted.max() < y.max()
    assert "noise" in reg.reason_


def test_fold_of_a_frozen_model_folds_the_model_inside():
    model = clone(LOGISTIC).fit(X, Y)
    clf = UncursedClassifierCV(FrozenEstimator(model), random_state=0).fit(X, Y, pool=POOL)
    folded = fold(clf, straight=True)
    expected = clf.line()[0](model.predict_proba(POOL)[:, 1])
    np.testing.assert_allclose(folded.predict_proba(POOL)[:, 1], expected, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.6, 0.75])
def test_a_regression_line_in_the_true_score_needs_a_lambda_of_thirty_percent(noise):
    rng = np.random.default_rng(0)
    truth = rng.normal(0, np.sqrt(1 - noise), 4_000)
    scores = truth[:, None] + rng.normal(0, np.sqrt(noise), (4_000, 3))
    done = CrossFit(Replicas(None, (), "seeds"), scores, None, None, truth, None, (1.0, 0.0), False, link="identity")
    score_map, record, _ = UncursedRegressorCV()._fit_map(done, (scores, 2 * truth))
    assert record.method == "line"
    assert score_map.slope == pytest.approx(2 * (1 - noise), rel=0.1)
    assert ("most of the variance of the scores is noise" in record.reason) == (noise > 0.7)


def test_cv_false_means_no_labels():
    for method in ("auto", "vad"):
        none, false = (
            UncursedClassifierCV(LOGISTIC, method=method, cv=cv, random_state=0).fit(X, Y, pool=POOL)
            for cv in (None, False)
        )
        assert none.map_ == false.map_
    with pytest.raises(UncurseError, match="method='tower' needs labels"):
        UncursedClassifierCV(method="tower", cv=False).fit(X, Y)
    with pytest.raises(UncurseError, match="cv=True; pass 2 or more folds"):
        UncursedClassifierCV(cv=True).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("_predictions", (None, X)), ("_check_target", (None, Y)), ("_fit_map", (None, None))],
)
def test_the_common_part_alone_is_no_estimator(name, arguments):
    with pytest.raises(NotImplementedError):
        getattr(CrossFitted(), name)(*arguments)


@pytest.mark.parametrize("weighted", [False, True])
def test_quantiles_of_the_served_score_are_dense_at_the_top(weighted):
    rng = np.random.default_rng(0)
    p = rng.random((10_000, 2))
    weights = rng.integers(1, 4, 10_000).astype(float) if weighted else None
    done = CrossFit(None, p, weights, None, Y, None, (2.0, 0.5), False)
    served, shares = served_quantiles(done)
    assert (len(served), len(shares)) == (500, 500)
    assert shares.sum() == pytest.approx(1)
    start = np.append(0.0, np.cumsum(shares)[:-1])
    assert (start[99], start[100], start[-1]) == pytest.approx((0.891, 0.9, 0.9999))
    link = np.sort((logit(np.repeat(p[:, 0], 1 if weights is None else weights.astype(int))) - 0.5) / 2)
    wanted = link[np.minimum((start * len(link) * (1 + 1e-12)).astype(int), len(link) - 1)]
    np.testing.assert_allclose(served, wanted, atol=0.02)
    np.testing.assert_allclose(served[:450], wanted[:450], atol=2e-3)
    sampled = replace(done, served_pool=p[:, ::-1], labelled=(p, Y))
    served, _ = served_quantiles(sampled)
    np.testing.assert_allclose(served[:200], np.quantile(logit(p[:, 1]), start[:200]), atol=0.02)


def test_the_served_model_scores_a_sample_of_a_large_pool():
    rng = np.random.default_rng(0)
    for rows, scored in ((39_999, 39_999), (40_001, 20_001), (60_000, 20_000)):
        clf = UncursedClassifierCV(GaussianNB(), cv=2, n_replicas=2, random_state=0)
        assert len(clf.cross_fit(X, Y, pool=rng.normal(size=(rows, 8))).served_pool) == scored


def test_the_line_of_a_regression_is_the_covariance_with_the_served_score_over_its_true_variance():
    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(190, 10)), rng.normal(size=(1_000, 10))
    y = X.sum(axis=1) + rng.normal(0, 5, 190)
    regressor = UncursedRegressorCV(random_state=0)
    (scores, target), kind = (done := regressor.cross_fit(X, y, pool=pool)).labelled, done.replicas.kind
    covariance = np.cov(np.column_stack([scores, target]).T, ddof=0)
    true = covariance[0, 0] - float(replica_kind(kind).noise_variance(covariance[:-1, :-1]))
    rises = re.search(r"the target rises by ([\d.]+) per unit", regressor.fit(X, y, pool=pool).reason_).group(1)
    assert float(rises) == pytest.approx(covariance[0, -1] / true, abs=6e-4)
