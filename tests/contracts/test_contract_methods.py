"""Contracts of every method: what the result may depend on, and results on fixed data."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

from uncurse import (
    VAD,
    Auto,
    ReplicaCalibrator,
    UncursedClassifierCV,
    UncursedRegressorCV,
    UncurseError,
    calibrate,
    evaluate,
    information_variance,
)
from uncurse.calibration import CALIBRATORS

pytestmark = pytest.mark.filterwarnings("ignore:the other columns differ")  # bootstraps have the rows of seeds here

GRID = np.linspace(-6, 3, 50)
COMMON = {"scale": "logit", "replicas": "seeds"}
#: How to make each method, and whether it takes labels.
METHODS = {
    "vad": (lambda: VAD(**COMMON, intervals=True), False),
    "vad with curvature": (lambda: VAD(**COMMON, curvature=True, intervals=True), False),
    "vad of bootstraps": (lambda: VAD(scale="logit", replicas="bootstrap", intervals=True), False),
    "monotone": (lambda: VAD(**COMMON, shape="monotone", intervals=True), False),
    "tandem": (lambda: VAD(**COMMON, calibrator="isotonic"), True),
    "labels": (lambda: ReplicaCalibrator(**COMMON), True),
    "auto": (lambda: Auto(**COMMON), True),
    "auto without labels": (lambda: Auto(**COMMON), False),
}


def rows_of(rows, mean, seed):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, (rows, 1))
    scores = truth + rng.uniform(0.2, 0.6, (rows, 1)) * rng.normal(size=(rows, 3))
    labels = (rng.random(rows) < expit(truth[:, 0])).astype(int)
    return np.round(scores * 2.0**20) / 2.0**20, labels, rng.exponential(size=rows), rng.permutation(rows)


POOL, _, POOL_WEIGHTS, POOL_ORDER = rows_of(2_001, -2.0, 0)
SCORES, LABELS, WEIGHTS, ORDER = rows_of(3_003, -1.5, 1)
GROUPS = np.array(["large", "large", "middle", "small"])[np.arange(len(POOL)) % 4]


def fit(name, pool=POOL, scores=SCORES, labels=LABELS, weights=None, label_weights=None, segments=None):
    make, labeled = METHODS[name]
    rows = None
    if labeled:
        rows = (scores, labels) if label_weights is None else (scores, labels, label_weights)
    origin = {"labels_from": "elsewhere"} if labeled and name != "tandem" else {}
    return make().fit(pool, labeled=rows, sample_weight=weights, segments=segments, **origin)


def interval(name, method, alpha=0.1):
    """The interval of a method; those of a tandem do not exist."""
    if name != "tandem":
        return method.interval(alpha)
    with pytest.raises(UncurseError, match="no intervals"):
        method.interval(alpha)
    return None


def assert_same(name, one, other, rtol=1e-9):
    np.testing.assert_allclose(other.predict_proba(GRID), one.predict_proba(GRID), rtol=rtol)
    found, expected = interval(name, other), interval(name, one)
    if expected is not None:
        np.testing.assert_allclose(found, expected, rtol=100 * rtol, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-6, 1 / len(POOL), 1e6])
@pytest.mark.parametrize("name", METHODS)
def test_only_ratios_of_weights_matter(name, factor):
    one = fit(name, weights=POOL_WEIGHTS, label_weights=WEIGHTS)
    assert_same(name, one, fit(name, weights=factor * POOL_WEIGHTS, label_weights=WEIGHTS / factor))


@pytest.mark.parametrize("name", METHODS)
def test_equal_weights_are_no_weights(name):
    assert_same(name, fit(name), fit(name, weights=np.full(len(POOL), 0.1), label_weights=np.full(len(LABELS), 7.0)))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "monotone"])  # which has no segments
def test_only_ratios_of_weights_matter_to_segments(name):
    one, other = (
        fit(name, weights=k * POOL_WEIGHTS, label_weights=WEIGHTS / k, segments=GROUPS).map_ for k in (1.0, 1e6)
    )
    for segment in np.unique(GROUPS):
        names = np.full(len(GRID), segment)
        np.testing.assert_allclose(other(GRID, names), one(GRID, names), rtol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_rows_does_not_matter(name):
    i, j = POOL_ORDER, ORDER
    one = fit(name, weights=POOL_WEIGHTS, label_weights=WEIGHTS)
    other = fit(name, POOL[i], SCORES[j], LABELS[j], POOL_WEIGHTS[i], WEIGHTS[j])
    assert_same(name, one, other, rtol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_float32_and_float64_agree(name):
    one, other = fit(name), fit(name, POOL.astype(np.float32), SCORES.astype(np.float32))
    assert_same(name, one, other, rtol=1e-5)
    np.testing.assert_allclose(one.predict_proba(GRID.astype(np.float32)), one.predict_proba(GRID), rtol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_arrays_that_change_after_the_fit_change_nothing(name):
    arrays = [a.copy() for a in (POOL, SCORES, LABELS, POOL_WEIGHTS, WEIGHTS)]
    one, other = fit(name, POOL, SCORES, LABELS, POOL_WEIGHTS, WEIGHTS), fit(name, *arrays)
    for array in arrays:
        array[:] = 0
    np.testing.assert_array_equal(other.predict_proba(GRID), one.predict_proba(GRID))
    assert interval(name, other) == interval(name, one)


@pytest.mark.parametrize("name", METHODS)
def test_a_failed_fit_keeps_the_previous_one(name):
    method = fit(name)
    predictions, bounds = method.predict_proba(GRID), interval(name, method)
    rows = {"labeled": (SCORES, LABELS)} if METHODS[name][1] else {}
    rows |= {"labels_from": "elsewhere"} if rows and name != "tandem" else {}
    for pool in (np.full((50, 3), 1.5), POOL[:, :1], np.full((50, 3), np.nan)):
        with pytest.raises(UncurseError):
            method.fit(pool, **rows)
    np.testing.assert_array_equal(method.predict_proba(GRID), predictions)
    assert interval(name, method) == bounds


# ---------------------------------------------------------------------------- calibrators, metrics, estimators


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("name", CALIBRATORS)
def test_calibrators_depend_neither_on_the_size_of_weights_nor_on_the_type_of_scores(name, factor):
    one = calibrate(name, SCORES[:, 0], LABELS, scale="logit", sample_weight=WEIGHTS)
    other = calibrate(name, SCORES[:, 0], LABELS, scale="logit", sample_weight=factor * WEIGHTS)
    single = calibrate(name, SCORES[:, 0].astype(np.float32), LABELS, scale="logit", sample_weight=WEIGHTS)
    np.testing.assert_allclose(other(GRID), one(GRID), rtol=1e-9)
    np.testing.assert_allclose(single(GRID), one(GRID), rtol=1e-5)


def numbers(evaluation):
    names = ("ratio", "calibration_error", "ece", "mce", "log_loss", "brier")
    estimates = [getattr(row, name) for row in evaluation.rows for name in names]
    return [x for e in estimates for x in (float(e), e.standard_error, e.floor) if x is not None]


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "unequal"])
@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_metrics_depend_on_ratios_of_weights_only(weights, strategy, factor):
    p, scaled = expit(SCORES[:, 0]), factor * (np.ones(len(LABELS)) if weights is None else weights)
    one, other = (evaluate(LABELS, p, [0.02, 0.1, 1.0], sample_weight=w, strategy=strategy) for w in (weights, scaled))
    np.testing.assert_allclose(numbers(other), numbers(one), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("pool", [None, POOL], ids=["training rows", "candidates"])
@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (UncursedClassifierCV(LogisticRegression(C=0.1), cv=2, random_state=0), LABELS[:400]),
        (UncursedRegressorCV(Ridge(), random_state=0), SCORES[:400].sum(axis=1) + LABELS[:400]),
    ],
    ids=["classifier", "regressor"],
)
@pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")  # of scikit-learn 1.6
@pytest.mark.filterwarnings("ignore:λ = :UserWarning")
def test_estimators_depend_on_ratios_of_weights_only(estimator, target, pool):
    predictions = []
    for factor in (1.0, 1e-6, 1e6):
        estimator.fit(SCORES[:400], target, pool=pool, sample_weight=factor * WEIGHTS[:400])
        predict = getattr(estimator, "predict_proba", estimator.predict)
        predictions.append(predict(POOL))
    for other in predictions[1:]:
        np.testing.assert_allclose(other, predictions[0], rtol=1e-8)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
@pytest.mark.parametrize("factor", [1e-90, 1e-6, 1e90])
def test_information_variance_depends_on_ratios_of_weights_only(penalty, factor):
    one, other = (
        information_variance(SCORES, expit(SCORES[:, 0]), POOL, penalty=penalty, sample_weight=k * WEIGHTS)
        for k in (1.0, factor)
    )
    np.testing.assert_allclose(other, one, rtol=1e-9)


# ---------------------------------------------------------------------------- results on fixed data

#: Mean prediction on the top 2% of the pool, and its standard error by the method's own interval.
STORED = {
    "vad": (0.4263, 0.018),
    "vad with curvature": (0.4286, 0.018),
    "vad of bootstraps": (0.4307, 0.054),
    "monotone": (0.4177, 0.017),
    "tandem": (0.4098, 0.024),
    "labels": (0.4181, 0.025),
    "auto": (0.4242, 0.018),
    "auto without labels": (0.4247, 0.017),
}
LAMBDA = (0.7937, 0.0087)


def top_prediction(name):
    method = fit(name)
    top = np.sort(POOL[:, 0])[-round(0.02 * len(POOL)) :]
    mean, bounds = float(method.predict_proba(top).mean()), interval(name, method, 0.02)
    return mean, None if bounds is None else mean * (bounds[1] - bounds[0]) / (2 * 1.645)


@pytest.mark.parametrize("name", METHODS)
def test_the_prediction_on_the_top_is_the_stored_one(name):
    mean, error = top_prediction(name)
    stored, stored_error = STORED[name]
    assert abs(mean - stored) < 0.25 * stored_error
    assert error is None or 0.8 < error / stored_error < 1.25


def test_lambda_and_its_standard_error_are_the_stored_ones():
    vad = fit("vad")
    assert abs(vad.lambda_ - LAMBDA[0]) < 0.1 * LAMBDA[1]
    assert 0.9 < vad.standard_error_ / LAMBDA[1] < 1.1
