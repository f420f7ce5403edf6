"""Only ratios of sample weights matter: a common factor changes no map, λ, interval or metric."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

import uncurse
from uncurse import (
    VAD,
    Auto,
    Cells,
    Grouped,
    Moments,
    Tower,
    UncursedClassifierCV,
    UncursedRegressorCV,
    information_variance,
    metrics,
)
from uncurse.calibration import CALIBRATORS

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

ROWS, LABELLED_ROWS = 1201, 1003
GRID = np.linspace(-6, 3, 50)
RNG = np.random.default_rng(0)


def replica_scores(rows, mean, noise=0.4):
    truth = RNG.normal(mean, 0.8, rows)
    return truth, truth[:, None] + noise * RNG.normal(size=(rows, 3))


_, POOL = replica_scores(ROWS, -2.0)
TRUTH, SCORES = replica_scores(LABELLED_ROWS, -1.5)
LABELS = (RNG.random(LABELLED_ROWS) < expit(TRUTH)).astype(int)
POOL_WEIGHTS, WEIGHTS = RNG.exponential(size=ROWS), RNG.exponential(size=LABELLED_ROWS)
GROUPS = np.array(["large", "large", "middle", "small"])[RNG.choice(4, ROWS, p=[0.5, 0.3, 0.17, 0.03])]


FACTORS = [1e-6, 1 / ROWS, 1e6]
EXTREMES = [1e-6, 1e6]


@pytest.fixture(params=FACTORS, ids=["1e-6", "1/n", "1e6"])
def factor(request):
    return request.param


def assert_close(one, two):
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-13)


def assert_same_fit(one, two):
    """Compare λ, its error and the predictions of two fitted debiasers."""
    for name in ("lambda_", "center_", "standard_error_", "noise_variance_", "score_variance_"):
        if hasattr(one, name):
            assert_close(getattr(one, name), getattr(two, name))
    for name in ("group_lambda_", "group_center_"):
        if hasattr(one, name):
            assert_close(list(getattr(one, name).values()), list(getattr(two, name).values()))
    assert_same_map(one.map_, two.map_)


def assert_same_map(one, two):
    inputs = expit(GRID) if one.scale == "probability" else GRID
    if isinstance(one, Grouped):
        for name in one.maps:
            assert_close(one.maps[name](inputs), two.maps[name](inputs))
        one, two = one.default, two.default
    assert_close(one(inputs), two(inputs))


# ---------------------------------------------------------------------------- evidence


def test_moments_depend_on_ratios_of_weights_only(factor):
    one = Moments().update(POOL, sample_weight=POOL_WEIGHTS)
    two = Moments().update(POOL, sample_weight=factor * POOL_WEIGHTS)
    assert_close(one.mean, two.mean)
    assert_close(one.covariance, two.covariance)

    def share(mean, covariance):
        return covariance[..., 0, 1] / covariance[..., 0, 0]

    assert_close(one.standard_error(share), two.standard_error(share))


@pytest.mark.parametrize("exact", [True, False])
def test_cells_depend_on_ratios_of_weights_only(factor, exact):
    one = Cells(exact=exact).update(SCORES[:, 0], LABELS, sample_weight=WEIGHTS)
    two = Cells(exact=exact).update(SCORES[:, 0], LABELS, sample_weight=factor * WEIGHTS)
    assert_close(one.score, two.score)
    assert_close(one.weight / one.weight.sum(), two.weight / two.weight.sum())
    assert_close(one.label / one.weight, two.label / two.weight)
    effective = [cells.weight.sum() ** 2 / cells.weight_squares.sum() for cells in (one, two)]
    assert_close(*effective)


# ---------------------------------------------------------------------------- calibrators


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize("weights", [np.ones(LABELLED_ROWS), WEIGHTS], ids=["equal", "unequal"])
def test_calibrators_depend_on_ratios_of_weights_only(method, weights, factor):
    one = uncurse.calibrate(method, SCORES[:, 0], LABELS, sample_weight=weights)
    two = uncurse.calibrate(method, SCORES[:, 0], LABELS, sample_weight=factor * weights)
    assert_same_map(one, two)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_equal_weights_calibrate_as_no_weights(method):
    one = uncurse.calibrate(method, SCORES[:, 0], LABELS)
    two = uncurse.calibrate(method, SCORES[:, 0], LABELS, sample_weight=np.full(LABELLED_ROWS, 0.1))
    assert_same_map(one, two)


# ---------------------------------------------------------------------------- metrics

PROBABILITIES = expit(SCORES[:, 0])
METRICS = {
    "calibration_ratio": {},
    "calibration_error": {},
    "expected_calibration_error": {"n_bins": 7},
    "maximum_calibration_error": {"strategy": "uniform"},
    "log_loss": {},
    "brier_score": {},
    "log_loss_reduction": {"baseline": expit(SCORES[:, 1])},
}


def assert_same_estimate(one, two):
    assert_close(float(one), float(two))
    for name in ("standard_error", "floor"):
        values = [getattr(estimate, name) for estimate in (one, two)]
        if values[0] is not None:
            assert_close(*values)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("weights", [np.ones(LABELLED_ROWS), WEIGHTS], ids=["equal", "unequal"])
def test_metrics_depend_on_ratios_of_weights_only(name, weights, factor):
    metric, options = getattr(metrics, name), METRICS[name]
    one = metric(LABELS, PROBABILITIES, **options, sample_weight=weights)
    two = metric(LABELS, PROBABILITIES, **options, sample_weight=factor * weights)
    assert_same_estimate(one, two)


@pytest.mark.parametrize("weights", [None, np.ones(LABELLED_ROWS), WEIGHTS], ids=["none", "equal", "unequal"])
@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_evaluate_depends_on_ratios_of_weights_only(weights, strategy, factor):
    alphas = [0.02, 0.1, 1.0]
    scaled = factor * (np.ones(LABELLED_ROWS) if weights is None else weights)
    one = uncurse.evaluate(LABELS, PROBABILITIES, alphas, sample_weight=weights, strategy=strategy)
    two = uncurse.evaluate(LABELS, PROBABILITIES, alphas, sample_weight=scaled, strategy=strategy)
    for before, after in zip(one.rows, two.rows, strict=True):
        for name in ("ratio", "calibration_error", "ece", "mce", "log_loss", "brier"):
            assert_same_estimate(getattr(before, name), getattr(after, name))


# ---------------------------------------------------------------------------- VAD, Tower, Auto

VAD_OPTIONS = {
    "logistic": {},
    "identity": {"link": "identity"},
    "probit": {"link": "probit"},
    "curvature": {"curvature": True},
    "bootstrap": {"replicas": "bootstrap"},
    "anchored": {"replicas": "anchored", "lambda_floor": 0.01},
    "free shape": {"shape": "free"},
    "negative rate": {"negative_rate": 0.1},
}


@pytest.mark.parametrize("options", VAD_OPTIONS.values(), ids=VAD_OPTIONS)
def test_vad_depends_on_ratios_of_weights_only(options, factor):
    options = {"scale": "logit", "replicas": "seeds"} | options
    one = VAD(**options).fit(POOL, sample_weight=POOL_WEIGHTS)
    two = VAD(**options).fit(POOL, sample_weight=factor * POOL_WEIGHTS)
    assert_same_fit(one, two)


@pytest.mark.parametrize("options", [{}, {"shape": "free"}, {"curvature": True}], ids=["straight", "free", "curvature"])
@pytest.mark.parametrize("weights", [np.ones(ROWS), POOL_WEIGHTS], ids=["equal", "unequal"])
def test_intervals_of_vad_depend_on_ratios_of_weights_only(options, weights):
    first, *others = (
        VAD(scale="logit", replicas="seeds", intervals=True, **options).fit(POOL, sample_weight=factor * weights)
        for factor in (1.0, *EXTREMES)
    )
    for other in others:
        assert_close(first.interval(0.05), other.interval(0.05))


@pytest.mark.parametrize("weights", [None, np.ones(ROWS), POOL_WEIGHTS], ids=["none", "equal", "unequal"])
@pytest.mark.parametrize("curvature", [False, True])
def test_groups_of_vad_depend_on_ratios_of_weights_only(weights, curvature, factor):
    scaled = factor * (np.ones(ROWS) if weights is None else weights)
    one, two = (
        VAD(scale="logit", replicas="seeds", curvature=curvature).fit(POOL, groups=GROUPS, sample_weight=w)
        for w in (weights, scaled)
    )
    assert len(one.group_lambda_) == 3
    assert_same_fit(one, two)


def test_vad_with_a_known_variance_depends_on_ratios_of_weights_only(factor):
    one, two = (
        VAD(scale="logit").fit(POOL[:, 0], groups=GROUPS, variance=0.16, sample_weight=w)
        for w in (POOL_WEIGHTS, factor * POOL_WEIGHTS)
    )
    assert_same_fit(one, two)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("recentre", [True, False])
def test_a_tandem_depends_on_ratios_of_weights_only(calibrator, recentre):
    first, *others = (
        VAD(scale="logit", replicas="seeds", calibrator=calibrator, recentre=recentre).fit(
            POOL, labelled=(SCORES, LABELS, factor * WEIGHTS), sample_weight=3 * factor * POOL_WEIGHTS
        )
        for factor in (1.0, *FACTORS)
    )
    for other in others:
        assert_same_fit(first, other)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["one map", "groups"])
def test_tower_depends_on_ratios_of_weights_only(groups):
    first, *others = (
        Tower(scale="logit", replicas="seeds").fit(
            POOL, labelled=(SCORES, LABELS, factor * WEIGHTS), sample_weight=3 * factor * POOL_WEIGHTS, groups=groups
        )
        for factor in (1.0, *EXTREMES)
    )
    for other in others:
        assert_same_fit(first, other)
        assert_close(first.interval(0.05), other.interval(0.05))


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["one map", "groups"])
@pytest.mark.parametrize(
    ("labelled", "shift"), [(False, 0.0), (True, 0.0), (True, 1.0)], ids=["no labels", "calibrated", "shifted"]
)
def test_auto_depends_on_ratios_of_weights_only(groups, labelled, shift):
    one, two = (
        Auto(scale="logit", replicas="seeds").fit(
            POOL + shift,
            labelled=(SCORES + shift, LABELS, of_labels * WEIGHTS) if labelled else None,
            sample_weight=of_pool * POOL_WEIGHTS,
            groups=groups,
        )
        for of_pool, of_labels in ((1.0, 1.0), EXTREMES)
    )
    assert one.method_ == two.method_
    assert_same_fit(one, two)
    if groups is None:
        assert_close(one.interval(0.05), two.interval(0.05))


# ---------------------------------------------------------------------------- estimators

FEATURES, CANDIDATES = RNG.normal(size=(400, 4)), RNG.normal(size=(500, 4))
ROW_WEIGHTS = RNG.exponential(size=400)


@pytest.mark.parametrize("pool", [None, CANDIDATES], ids=["training rows", "candidates"])
@pytest.mark.parametrize(
    ("estimator", "target", "classifier"),
    [
        (
            UncursedClassifierCV(LogisticRegression(C=0.1), cv=2, random_state=0),
            FEATURES.sum(axis=1) > RNG.normal(size=400),
            True,
        ),
        (UncursedRegressorCV(Ridge(), random_state=0), FEATURES.sum(axis=1) + RNG.normal(size=400), False),
    ],
    ids=["classifier", "regressor"],
)
def test_estimators_depend_on_ratios_of_weights_only(estimator, target, classifier, pool):
    predictions = []
    for factor in (1.0, *EXTREMES):
        estimator.fit(FEATURES, target, pool=pool, sample_weight=factor * ROW_WEIGHTS)
        predictions.append((estimator.predict_proba if classifier else estimator.predict)(CANDIDATES))
    for other in predictions[1:]:
        assert_close(predictions[0], other)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_information_variance_depends_on_ratios_of_weights_only(penalty, factor):
    p = expit(FEATURES[:, 0])
    one, two = (
        information_variance(FEATURES, p, CANDIDATES, penalty=penalty, sample_weight=w)
        for w in (ROW_WEIGHTS, factor * ROW_WEIGHTS)
    )
    assert_close(one, two)


@pytest.mark.parametrize("size", [1e-290, 1e290])
def test_weights_of_extreme_size_give_the_same_result(size):
    p = expit(FEATURES[:, 0])
    one, two = (information_variance(FEATURES, p, CANDIDATES, sample_weight=w * ROW_WEIGHTS) for w in (1.0, size))
    assert_close(one, two)
    target = FEATURES.sum(axis=1)
    one, two = (
        UncursedRegressorCV(Ridge(), random_state=0).fit(
            FEATURES, target, pool=CANDIDATES, sample_weight=w * ROW_WEIGHTS
        )
        for w in (1.0, size)
    )
    assert_close(one.predict(CANDIDATES), two.predict(CANDIDATES))
