"""The teacher of `UncursedClassifierCV`, on a world with an interaction that a linear model cannot express."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from uncurse import UncursedClassifierCV, UncurseError


def draw(rows, *, shifted, seed=0):
    """Draw features, rates and labels; a shift keeps rows with probability 1 − p, as a system that shows the best."""
    rng = np.random.default_rng([seed, rows, shifted])
    X = rng.normal(size=(2 * rows, 4)).round(2)
    p = 1 / (1 + np.exp(2 - X[:, 0] - 1.5 * X[:, 1] * X[:, 2]))
    kept = np.flatnonzero(rng.random(2 * rows) < 1 - p * shifted)[:rows]
    return X[kept], p[kept], rng.random(len(kept)) < p[kept]


X, _, y = draw(8000, shifted=False)
POOL, TRUTH, _ = draw(8000, shifted=True)


def test_a_shift_along_an_interaction_is_corrected_by_more_than_half():
    errors, reasons = {}, {}
    for teacher in ("auto", None, HistGradientBoostingClassifier(max_iter=50)):
        fitted = UncursedClassifierCV(LogisticRegression(), teacher=teacher, n_replicas=2, random_state=0)
        fitted.fit(X, y, pool=POOL)
        top = np.argsort(-fitted.estimator_.predict_proba(POOL)[:, 1])[:800]
        name = type(teacher).__name__
        errors[name] = fitted.predict_proba(POOL[top])[:, 1].mean() / TRUTH[top].mean() - 1
        reasons[name] = fitted.reason_
    assert errors["NoneType"] > 0.15
    assert max(abs(errors["str"]), abs(errors["HistGradientBoostingClassifier"])) < 0.5 * errors["NoneType"]
    assert "log loss" in reasons["str"]
    assert "teacher" not in reasons["NoneType"]


def test_only_models_that_may_miss_something_get_a_teacher():
    for base, taught in ((LogisticRegression(), True), (HistGradientBoostingClassifier(max_iter=5), False)):
        estimator = UncursedClassifierCV(base, n_replicas=2, cv=2, random_state=0)
        for pool in (POOL, None):
            done = estimator.cross_fit(X[:500], y[:500], pool=pool)
            assert (
                (done.pool.teacher is not None) == (done.labeled.teacher is not None) == (taught and pool is not None)
            )


def rows(kind, count, shift, seed):
    """Draw features of three kinds; a shift of .3 is that of a system that shows the better of its candidates."""
    rng = np.random.default_rng(seed)
    if kind == "correlated":  # all columns are nearly the same one
        return rng.normal(shift, 1, (count, 1)) + rng.normal(0, 0.1, (count, 20))
    if kind == "numbers":  # one column differs, and one is constant
        numbers = rng.normal(shift * (np.arange(20) == 0), 1, (count, 20))
        numbers[:, 1] = 0.1
        return numbers
    codes = (rng.exponential(np.exp(shift) * 30, (count, 10))).astype(int)  # up to some hundreds, mostly rare
    return pytest.importorskip("scipy.sparse").csr_matrix(np.eye(1000, dtype=np.int64)[codes].reshape(count, -1))


@pytest.mark.parametrize("kind", ["numbers", "correlated", "categories"])
def test_the_teacher_is_trained_only_if_the_pool_differs_from_the_training_rows(kind):
    trained = {}
    for shift in (0.0, 0.3):
        trained[shift] = []
        for seed in range(10):
            train, pool = (rows(kind, 500, part, [seed, i]) for i, part in enumerate((0.0, shift)))
            y = np.random.default_rng(seed).random(500) < 0.3
            estimator = UncursedClassifierCV(LogisticRegression(), cv=2, n_replicas=2, random_state=seed)
            done = estimator.cross_fit(train, y, pool=pool)
            trained[shift].append(done.pool.teacher is not None)
    assert np.mean(trained[0.0]) <= 0.3  # a tenth is expected
    assert np.mean(trained[0.3]) >= 0.9


def test_the_reason_says_why_no_teacher_is_trained():
    fitted = UncursedClassifierCV(LogisticRegression(), n_replicas=2, cv=2, random_state=0).fit(X, y, pool=X[::2])
    assert fitted.reason_.endswith("differs from the training rows by no more than chance, so no teacher is trained")


def test_a_teacher_that_predicts_as_the_served_model_is_trained_but_not_used():
    estimator = UncursedClassifierCV(LogisticRegression(), teacher=LogisticRegression(), n_replicas=2, cv=2)
    assert "the teacher does not predict better" in estimator.fit(X, y, pool=X[::2]).reason_


def test_weighted_rows_get_a_teacher_although_their_mere_number_is_that_of_the_pool():
    estimator = UncursedClassifierCV(LogisticRegression(), n_replicas=2, cv=2, random_state=0)
    weights = np.where(X[:, 0] > 0, 3.0, 1.0)
    assert estimator.cross_fit(X, y, pool=X[::2], sample_weight=weights).pool.teacher is not None


def test_the_teacher_takes_sparse_rows_and_tables_with_text():
    pd, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    names = np.array(["low", "high"])
    tables = [pd.DataFrame({"a": part[:, 0], "b": names[(part[:, 1] > 0).astype(int)]}) for part in (X, POOL)]
    encoder = make_column_transformer((OneHotEncoder(), ["b"]), remainder="passthrough")
    scores = []
    for base, (rows, pool) in (
        (make_pipeline(encoder, LogisticRegression()), tables),
        (
            LogisticRegression(),
            [sparse.csr_matrix(table.assign(b=table.b == "high").astype(float)) for table in tables],
        ),
    ):
        done = UncursedClassifierCV(base, n_replicas=2, cv=2, random_state=0).cross_fit(rows[:900], y[:900], pool=pool)
        scores.append(done.pool.teacher)
    assert np.corrcoef(*scores)[0, 1] > 0.99  # the order of columns decides ties between splits


@pytest.mark.parametrize("teacher", ["trees", LogisticRegression, OneHotEncoder()])
def test_a_teacher_must_be_a_classifier(teacher):
    with pytest.raises(UncurseError, match=r"teacher|estimator"):
        UncursedClassifierCV(LogisticRegression(), teacher=teacher).fit(X[:100], y[:100], pool=POOL)


def test_a_pool_may_be_dense_where_the_training_rows_are_sparse():
    pools = POOL[:3000], csr_array(POOL[:3000])
    fits = [UncursedClassifierCV(LogisticRegression(), random_state=0).fit(csr_array(X), y, pool=p) for p in pools]
    assert fits[0].reason_ == fits[1].reason_
    assert "teacher" in fits[0].reason_
    np.testing.assert_allclose(*(fit.predict_proba(POOL)[:, 1] for fit in fits), rtol=1e-12)
