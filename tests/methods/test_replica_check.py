"""Columns that are no replicas, replicas of another kind, and scores that are no log odds."""

import warnings

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from uncurse import VAD, Auto, ReplicaCalibrator, UncurseError, calibrate
from uncurse.links import logistic

ROWS, POOL_ROWS = 2_000, 5_000
LIGHTGBM = {"verbosity": -1, "n_jobs": 1, "n_estimators": 60}
MODELS = {
    "default LightGBM": lambda seed: LGBMClassifier(**LIGHTGBM, random_state=seed),
    "tuned LightGBM": lambda seed: LGBMClassifier(
        **LIGHTGBM, num_leaves=8, reg_lambda=5, subsample=0.8, subsample_freq=1, random_state=seed
    ),
    "histogram boosting": lambda seed: HistGradientBoostingClassifier(max_iter=40, random_state=seed),
    "random forest": lambda seed: RandomForestClassifier(40, min_samples_leaf=10, random_state=seed),
    "extra trees": lambda seed: ExtraTreesClassifier(40, min_samples_leaf=10, random_state=seed),
    "logistic regression": lambda seed: LogisticRegression(),
    "over-fitted network": lambda seed: MLPClassifier((32,), max_iter=30, batch_size=64, random_state=seed),
}


def world(rows, seed):
    """Return features, labels and true log odds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 16))
    truth = X @ np.linspace(0.6, 0.0, 16) + 0.5 * np.sin(2 * X[:, 0]) * X[:, 1] - 1.5
    return X, (rng.random(rows) < logistic(truth)).astype(int), truth


@pytest.fixture(scope="module")
def scores_of():
    """Return a function of model and kind that scores a pool by three models, trained once for all tests."""
    X, y, _ = world(ROWS, 0)
    candidates, done = world(POOL_ROWS, 1)[0], {}

    def scores(name, kind):
        if (name, kind) not in done:
            rng, columns = np.random.default_rng(2), []
            for seed in range(3):
                rows = rng.integers(0, ROWS, ROWS) if seed and kind == "bootstrap" else np.arange(ROWS)
                p = MODELS[name](seed).fit(X[rows], y[rows]).predict_proba(candidates)[:, 1].clip(1e-6, 1 - 1e-6)
                columns.append(np.log(p) - np.log1p(-p))
            done[name, kind] = np.column_stack(columns)
        return done[name, kind]

    return scores


@pytest.fixture
def rows():
    """Return a pool of replicas by seed, and labeled rows with their labels."""
    _, y, truth = world(10_000, 3)
    scores = truth[:, None] + np.random.default_rng(4).normal(0, 0.4, (10_000, 3))
    return scores, (scores, y)


def fit(pool, replicas="seeds", labeled=None):
    return Auto(scale="logit", replicas=replicas).fit(
        pool, labeled=labeled, labels_from=None if labeled is None else "elsewhere"
    )


# ---------------------------------------------------------------------------- the kind of replica


@pytest.mark.filterwarnings("ignore:X does not have valid feature names", "ignore:Stochastic Optimizer")
@pytest.mark.parametrize("name", [*MODELS])
def test_bootstraps_are_told_from_replicas_by_seed(name, scores_of):
    bootstraps = scores_of(name, "bootstrap")
    for make in (Auto, VAD):
        with pytest.warns(UserWarning, match=r"pass replicas='bootstrap'"):
            make(scale="logit", replicas="seeds").fit(bootstraps)
        make(scale="logit", replicas="bootstrap").fit(bootstraps)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names", "ignore:Stochastic Optimizer")
@pytest.mark.parametrize("name", ["tuned LightGBM", "random forest", "extra trees", "over-fitted network"])
def test_replicas_by_seed_are_told_from_bootstraps(name, scores_of):
    seeds = scores_of(name, "seeds")
    with pytest.warns(UserWarning, match=r"pass replicas='seeds'"):
        fit(seeds, "bootstrap")
    fit(seeds, "seeds")


@pytest.mark.parametrize("replicas", ["seeds", "bootstrap"])
def test_models_without_randomness_are_identical_for_any_seed(replicas, scores_of):
    with pytest.warns(UserWarning, match="the replicas are identical"):
        fit(scores_of("logistic regression", "seeds"), replicas)


@pytest.mark.parametrize("replicas", ["seeds", "bootstrap", "snapshots", "ensemble"])
def test_two_columns_do_not_show_their_kind(replicas, scores_of):
    for kind in ("seeds", "bootstrap"):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="the other columns differ")
            fit(scores_of("random forest", kind)[:, :2], replicas)


def test_labels_do_not_hide_the_wrong_kind(rows):
    pool, labeled = rows
    with pytest.warns(UserWarning, match=r"pass replicas='seeds'"):
        ReplicaCalibrator(scale="logit", replicas="bootstrap").fit(pool, labeled=labeled, labels_from="elsewhere")


# ---------------------------------------------------------------------------- columns that are no replicas


@pytest.mark.parametrize("with_labels", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_column_that_is_no_replica_is_refused(place, with_labels, rows):
    pool, labeled = rows
    labeled = labeled if with_labels else None
    rng = np.random.default_rng(5)
    for column, message in (
        (pool[:, place - 1], "repeats the scores"),
        (rng.permutation(pool[:, place]), f"column {place} are hardly related"),
        (rng.uniform(18, 80, len(pool)), "they are no replicas|served scores lie beyond"),
    ):
        changed = pool.copy()
        changed[:, place] = column
        with pytest.raises(UncurseError, match=message):
            fit(changed, labeled=labeled)


def test_a_shuffled_replica_is_refused_if_it_is_the_only_one(rows):
    pool = rows[0][:, :2].copy()
    pool[:, 1] = np.random.default_rng(5).permutation(pool[:, 1])
    with pytest.raises(UncurseError, match="column 1 are hardly related"):
        VAD(scale="logit", replicas="seeds").fit(pool)


# ---------------------------------------------------------------------------- scores that are no log odds


def diverged(X, y, seed):
    """Return a LightGBM whose raw scores leave the range of log odds."""
    options = {"n_estimators": 200, "learning_rate": 0.8, "min_child_samples": 2, "min_sum_hessian_in_leaf": 1e-9}
    model = LGBMClassifier(**LIGHTGBM | options, random_state=seed).fit(X, y)
    return lambda rows: model.predict(rows, raw_score=True)


def naive_bayes(X, y, seed):
    """Return a naive Bayes on features that repeat each other: its log odds are several times too large."""
    model = GaussianNB().fit(np.repeat(X, 8, axis=1), y)
    return lambda rows: np.diff(model.predict_joint_log_proba(np.repeat(rows, 8, axis=1)), axis=1)[:, 0]


def log_loss(truth, p):
    return -float(np.mean(logistic(truth) * np.log(p) + logistic(-truth) * np.log1p(-p)))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.filterwarnings("ignore:the other columns differ")
@pytest.mark.parametrize("train", [diverged, naive_bayes])
def test_scores_beyond_log_odds_need_labels_and_are_no_worse_than_isotonic_regression(train):
    (X, y, _), (others, labels, _), (candidates, _, truth) = (world(6_000, seed) for seed in range(3))
    rng, models = np.random.default_rng(0), [train(X, y, 0)]
    for seed in (1, 2):
        drawn = rng.integers(0, len(X), len(X))
        models.append(train(X[drawn], y[drawn], seed))
    pool, scores = (np.column_stack([model(each) for model in models]) for each in (candidates, others))
    with pytest.raises(UncurseError, match=r"served scores lie beyond ±30.* pass labeled rows"):
        fit(pool, "bootstrap")
    with pytest.raises(UncurseError, match="served scores lie beyond ±30"):
        VAD(scale="logit", replicas="bootstrap").fit(pool)
    p = fit(pool, "bootstrap", (scores, labels)).predict_proba(pool[:, 0])
    isotonic = calibrate("isotonic", scores[:, 0], labels, scale="logit")(pool[:, 0])
    assert log_loss(truth, p) < log_loss(truth, isotonic) + 1e-3


def test_scores_beyond_log_odds_have_a_reason_and_no_interval(rows):
    pool, (scores, labels) = rows
    wild = [np.sign(each) * np.expm1(5 * np.abs(each)) for each in (pool, scores)]
    found = fit(wild[0], labeled=(wild[1], labels))
    assert "calibrated by isotonic regression" in found.reason_
    assert (np.diff(found.predict_proba(np.sort(wild[0][:, 0]))) >= 0).all()
    with pytest.raises(UncurseError, match="no intervals: the scores are no log odds"):
        found.interval(0.02)


def test_one_score_beyond_log_odds_is_an_error_where_lambda_follows_from_it(rows):
    pool = rows[0].copy()
    pool[0] = [-53_736.0, -40_000.0, -60_000.0]
    with pytest.raises(UncurseError, match=r"a served score is -5\.374e\+04"):
        VAD(scale="logit", replicas="seeds").fit(pool)
    pool[0] = [-31.0, -30.0, -32.0]
    with pytest.warns(UserWarning, match="a served score is -31"):
        VAD(scale="logit", replicas="seeds").fit(pool)
