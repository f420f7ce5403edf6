from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from uncurse import Steps, UncurseError, calibrate
from uncurse.calibration import CALIBRATORS
from uncurse.calibration.logistic import fit_logistic

BINNED = ("histogram", "scaling-binning")


def world(rows, *, seed=0, mean=-1.0, sd=1.5, truth=lambda l: 0.7 * l + 0.3, decimals=None):
    """Scores whose true logit is truth(l): 0.7 l + 0.3 is a model too steep."""
    rng = np.random.default_rng(seed)
    l = rng.normal(mean, sd, rows)
    if decimals is not None:
        l = l.round(decimals)
    return l, (rng.random(rows) < expit(truth(l))).astype(int), rng.exponential(size=rows)


# ---------------------------------------------------------------------------- Platt and temperature


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("mean", "sd", "decimals"), [(-1.0, 1.5, None), (-5.0, 0.8, None), (-3.0, 0.05, None), (20.0, 1.0, None), (0, 2, 0)]
)
def test_platt_is_unpenalized_logistic_regression_on_the_logit(mean, sd, decimals, weighted):
    l, y, w = world(4000, mean=mean, sd=sd, decimals=decimals, truth=lambda l: 0.7 * (l - mean) + max(-4, mean) / 7)
    w = w if weighted else None
    oracle = LogisticRegression(C=np.inf, tol=1e-14, solver="newton-cholesky", max_iter=1000)
    oracle.fit((l - mean)[:, None] / sd, y, sample_weight=w)
    slope = oracle.coef_[0, 0] / sd
    ours = calibrate("platt", l, y, sample_weight=w)
    np.testing.assert_allclose(ours.slope, slope, rtol=1e-6)
    np.testing.assert_allclose(ours.intercept, oracle.intercept_[0] - slope * mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours(l), oracle.predict_proba((l - mean)[:, None] / sd)[:, 1], rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("truth", [0.3, 1.0, 4.0])
def test_temperature_is_the_minimum_of_the_log_loss(truth, weighted):
    l, y, w = world(3000, truth=lambda l: truth * l)
    w = w if weighted else np.ones(3000)

    def loss(slope):
        return np.average(np.logaddexp(0, slope * l) - y * slope * l, weights=w)

    oracle = minimize_scalar(loss, bracket=(truth / 2, truth * 2), tol=1e-12)
    ours = calibrate("temperature", l, y, sample_weight=w)
    assert ours.intercept == 0
    np.testing.assert_allclose(ours.slope, oracle.x, rtol=1e-6)
    assert loss(ours.slope) <= oracle.fun + 1e-15


# ---------------------------------------------------------------------------- beta


TRUTHS = {
    "a, b > 0": lambda l: 0.5 * -np.logaddexp(0, -l) + 1.2 * np.logaddexp(0, l) + 0.3,
    "a < 0": lambda l: 0.02 * l**3 + 0.6 * np.maximum(l, 0) - 0.2 * np.minimum(l, 0) - 1,
    "b < 0": lambda l: 0.8 * np.minimum(l, 0) - 0.3 * np.maximum(l, 0),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", TRUTHS)
def test_beta_equals_betacal(case, weighted, monkeypatch):
    betacal = pytest.importorskip("betacal")

    l, y, w = world(8000, mean=0.0, sd=2.0, truth=TRUTHS[case], seed=3)
    w = w if weighted else None
    free = fit_logistic(
        np.stack([-np.logaddexp(0, -l), np.logaddexp(0, l), np.ones_like(l)]),
        np.ones_like(l) if w is None else w,
        y if w is None else w * y,
    ).coefficients
    assert (free[0] < 0, free[1] < 0) == (case == "a < 0", case == "b < 0")
    # The solver of betacal stops at a tolerance of 1e-4, an error of 1.2e-4: use a smaller tolerance.
    solver = partial(LogisticRegression, tol=1e-10, max_iter=10_000)
    monkeypatch.setattr(betacal.beta_calibration, "LogisticRegression", solver)
    oracle = betacal.BetaCalibration("abm").fit(expit(l), y, sample_weight=w)
    np.testing.assert_allclose(calibrate("beta", l, y, sample_weight=w)(l), oracle.predict(expit(l)), atol=1e-4)


# ---------------------------------------------------------------------------- histogram, scaling-binning


@pytest.mark.parametrize("bins", [1, 10, 50])
def test_histogram_equals_uncertainty_calibration(bins):
    HistogramCalibrator = pytest.importorskip("calibration").HistogramCalibrator

    l, y, _ = world(3000)
    oracle = HistogramCalibrator(1, bins)
    oracle.train_calibration(expit(l), y)
    ours = calibrate("histogram", l, y, n_bins=bins, strict=False)
    np.testing.assert_allclose(ours(l), oracle.calibrate(expit(l)), atol=1e-9)


@pytest.mark.parametrize("bins", [1, 10, 50])
def test_scaling_binning_bins_the_converged_platt_scores(bins):
    utils = pytest.importorskip("calibration").utils

    l, y, _ = world(3000)
    scaled = LogisticRegression(C=np.inf, tol=1e-14, solver="newton-cholesky").fit(l[:, None], y)
    platt = scaled.predict_proba(l[:, None])[:, 1]
    oracle = utils.get_discrete_calibrator(platt, utils.get_equal_bins(platt, num_bins=bins))
    ours = calibrate("scaling-binning", l, y, n_bins=bins, strict=False)
    np.testing.assert_allclose(ours(l), oracle(platt), atol=1e-6)


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_bins_hold_weighted_means(strategy):
    l, y, w = world(2000)
    ours = calibrate("histogram", l, y, n_bins=10, strategy=strategy, sample_weight=w, strict=False)
    order = np.argsort(l)
    if strategy == "uniform":
        codes = np.floor(expit(l[order]) * 10).astype(int)
    else:  # a row belongs to the bin in which its weight begins
        before = np.cumsum(w[order]) - w[order]
        codes = np.floor(before / w.sum() * 10 + 1e-9).astype(int)
    means = np.bincount(codes, w[order] * y[order], 10) / np.bincount(codes, w[order], 10)
    np.testing.assert_allclose(ours(l[order]), means[codes], atol=1e-9)


@pytest.mark.parametrize("bins", [10, 20, 50])
def test_tied_scores_that_fill_a_bin_have_their_own_bin(bins):
    rng = np.random.default_rng(0)
    l = np.repeat(np.arange(10.0), 100)
    y = rng.random(1000) < 0.3
    ours = calibrate("histogram", l, y, n_bins=bins, strict=False)
    np.testing.assert_allclose(ours(np.arange(10.0)), y.reshape(10, 100).mean(axis=1), atol=1e-9)


@pytest.mark.parametrize("method", BINNED)
def test_refine_top_limits_the_share_of_the_last_bin(method):
    l, y, _ = world(20_000, mean=-3.0, sd=1.0)
    plain = calibrate(method, l, y, n_bins=15)
    fine = calibrate(method, l, y, n_bins=15, refine_top=0.001)
    assert np.mean(l >= plain.edges[-1]) > 0.05
    ours = calibrate(method, l, y, n_bins=15, refine_top=0.001, strict=False)
    assert np.mean(l >= ours.edges[-1]) <= 0.001
    assert len(ours.edges) > len(plain.edges)
    assert len(fine.edges) >= len(plain.edges)


# ---------------------------------------------------------------------------- isotonic


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("mean", "decimals"), [(-1.0, None), (-4.0, 1), (-1.0, 0)])
def test_isotonic_equals_scikit_learn(mean, decimals, weighted):
    l, y, w = world(5000, mean=mean, decimals=decimals)
    w = w if weighted else None
    oracle = IsotonicRegression(out_of_bounds="clip").fit(l, y, sample_weight=w)
    ours = calibrate("isotonic", l, y, sample_weight=w, strict=False)
    np.testing.assert_allclose(ours(l), oracle.predict(l), atol=1e-9)
    ends = np.array([l.min() - 5, l.max() + 5])
    np.testing.assert_allclose(ours(ends), oracle.predict(ends), atol=1e-9)


def test_level_without_positives_is_smoothed_by_half_a_row():
    l = np.arange(6.0)
    ours = calibrate("isotonic", l, [0, 0, 0, 1, 0, 1])
    np.testing.assert_allclose(ours(l), [0.5 / 4] * 3 + [0.5, 0.5] + [1.5 / 2], rtol=1e-5)


# ---------------------------------------------------------------------------- all calibrators


@pytest.mark.parametrize("method", CALIBRATORS)
def test_calibrated_mean_equals_the_observed_rate(method):
    l, y, w = world(20_000, truth=lambda l: l)
    ours = calibrate(method, l, y, sample_weight=w)
    loose = {"temperature": 0.03, "isotonic": 1e-3, "histogram": 1e-4}
    assert abs(np.average(ours(l), weights=w) / np.average(y, weights=w) - 1) < loose.get(method, 1e-5)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_calibrator_corrects_a_model_that_is_too_steep(method):
    l, y, _ = world(50_000, truth=lambda l: 0.6 * l)
    truth = expit(0.6 * l)
    assert np.abs(calibrate(method, l, y)(l) - truth).mean() < 0.2 * np.abs(expit(l) - truth).mean()


@pytest.mark.parametrize("method", CALIBRATORS)
def test_many_rows_are_summarized_first(method):
    l, y, w = world(140_000, mean=-3.0, sd=1.0)
    few = calibrate(method, l[:130_000], y[:130_000], sample_weight=w[:130_000])
    many = calibrate(method, l, y, sample_weight=np.where(np.arange(140_000) < 130_000, w, 0))
    assert np.quantile(np.abs(many(l) / few(l) - 1), 0.95) < 0.03


@pytest.mark.parametrize("method", CALIBRATORS)
def test_map_fitted_to_probabilities_takes_probabilities(method):
    l, y, _ = world(2000)
    of_logits, of_probabilities = calibrate(method, l, y), calibrate(method, expit(l), y, scale="probability")
    np.testing.assert_allclose(of_probabilities(expit(l)), of_logits(l), rtol=1e-6)


def test_without_strict_only_certain_bins_change():
    step = calibrate("histogram", np.arange(40.0), np.arange(40) >= 20, n_bins=2, strict=False)
    np.testing.assert_allclose(step([0.0, 39.0]), [1e-12, 1 - 1e-12], rtol=1e-4)


def test_bins_may_decrease_without_strict():
    l = np.arange(40.0)
    step = calibrate("histogram", l, (l % 2 == 0) & (l < 20), n_bins=2, strict=False)
    assert step(0.0) > step(39.0)
    strict = calibrate("histogram", l, (l % 2 == 0) & (l < 20), n_bins=2)
    assert step(0.0) > strict(0.0)
    assert (np.diff(strict(l)) > 0).all()


# ---------------------------------------------------------------------------- degenerate and invalid input

SEPARABLE = ([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
TOUCHING = ([-2.0, 0.5, 0.5, 2.0], [0, 0, 1, 1])
TURNED = ([-2.0, -1.0, 1.0, 2.0], [1, 1, 0, 0])
CONSTANT = ([1.5] * 5, [0, 0, 0, 1, 1])
FALLING = ([-2.0, -1.0, 0.5, 1.0, 2.0, 3.0], [1, 1, 0, 1, 0, 0])
BINS = ("histogram", "isotonic")


PARAMETRIC = ("platt", "beta", "scaling-binning")
NO_FIT = [
    *((method, data, "every positive scores at least") for method in PARAMETRIC for data in (SEPARABLE, TOUCHING)),
    *((method, TURNED, "every positive scores at most") for method in PARAMETRIC),
    *((method, CONSTANT, "needs scores that differ") for method in PARAMETRIC),
    *((method, FALLING, "labels fall as scores rise") for method in (*PARAMETRIC, "temperature", "spline")),
    ("spline", SEPARABLE, "every positive scores at least"),
    ("temperature", SEPARABLE, "the sign of the score predicts every label"),
    ("temperature", TURNED, "every label contradicts its score"),
    ("temperature", ([0.0, 0.0], [0, 1]), "every score is 0"),
]


@pytest.mark.parametrize(("method", "data", "message"), NO_FIT)
def test_labels_without_a_finite_rising_fit_are_an_error(method, data, message):
    with pytest.raises(UncurseError, match=message):
        calibrate(method, *data)


@pytest.mark.parametrize("method", BINS)
@pytest.mark.parametrize("data", [SEPARABLE, TOUCHING])
def test_binning_accepts_separable_labels(method, data):
    p = calibrate(method, *data)(data[0])
    assert (np.diff(np.unique(p)) > 0).all()
    assert p[0] < 0.5 < p[-1]


@pytest.mark.parametrize("method", BINS)
@pytest.mark.parametrize("data", [TURNED, FALLING])
def test_decreasing_rates_become_one_level_in_strict_bins(method, data):
    p = calibrate(method, *data)(data[0])
    assert (np.diff(p) > 0).all()
    assert np.ptp(p) < 0.2


@pytest.mark.parametrize("method", ["histogram", "isotonic", "temperature"])
def test_constant_scores_get_the_observed_rate(method):
    data = ([1.5] * 5, [0, 0, 1, 1, 1])
    np.testing.assert_allclose(calibrate(method, *data)(1.5), 0.6, rtol=1e-6)


@pytest.mark.parametrize(("label", "missing"), [(0, "positives"), (1, "negatives")])
def test_labels_of_one_class_are_an_error(label, missing):
    message = f"the labels have no {missing}; add rows until both classes occur"
    with pytest.raises(UncurseError, match=message):
        calibrate("isotonic", [0.0, 1.0, 2.0], [label] * 3)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("plat", {}, "calibrator='plat'"),
        ("platt", {"n_bins": 5}, "n_bins"),
        ("histogram", {"bins": 5}, "bins"),
        ("histogram", {"n_bins": 0}, "n_bins=0"),
        ("histogram", {"n_bins": 2.5}, "n_bins"),
        ("histogram", {"strategy": "kmeans"}, "strategy='kmeans'"),
        ("histogram", {"refine_top": 2.0}, r"refine_top=2\.0"),
        ("histogram", {"strict": "no"}, "strict='no'"),
        ("platt", {"scale": "value"}, "scale='value'"),
        ("platt", {"scale": "probability"}, "which is not a probability"),
    ],
)
def test_unknown_method_or_option_is_named(method, options, message):
    l, y, _ = world(200)
    with pytest.raises(UncurseError, match=message):
        calibrate(method, l, y, **options)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.0, np.nan], [0, 1], r"scores\[1\] is nan"),
        ([0.0, np.inf], [0, 1], r"scores\[1\] is inf"),
        ([0.0, 1.0], [0, 1, 1], r"labels has shape \(3,\) but there are 2 rows"),
        ([0.0, 1.0], [0, -1], r"labels\[1\] is -1"),
        ([[0.0, 1.0]], [0, 1], r"scores has shape \(1, 2\)"),
        ([], [], "scores is empty"),
    ],
)
def test_invalid_rows_are_named(scores, labels, message):
    with pytest.raises(UncurseError, match=message):
        calibrate("platt", scores, labels)


def test_adjacent_floats_get_separate_steps():
    a = 1.0
    b = np.nextafter(a, 2.0)
    step = calibrate("isotonic", [a, b, a, b], [0, 1, 0, 1], strict=False)
    assert isinstance(step, Steps)
    assert step(a) < 0.01
    assert step(b) > 0.99


# ---------------------------------------------------------------------------- sizes and weights


def test_smoothing_uses_the_effective_number_of_rows():
    # Weights 1 and 3 in turn: (Σw)² / Σw² is 0.8 of the number of rows.
    l, y, w = np.repeat([-1.0, 1.0], 20), np.repeat([0, 1], 20), np.tile([1.0, 3.0], 20)
    p = calibrate("isotonic", l, y, sample_weight=w)([-1.0, 1.0])
    np.testing.assert_allclose(p, [0.5 / 17, 16.5 / 17], rtol=1e-5)


@pytest.mark.parametrize("method", sorted(CALIBRATORS))
def test_labels_that_fall_as_scores_rise_are_refused(method):
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 1, 2_000)
    scores = np.append(truth, [-5e4, -6e4])  # two outliers do not decide
    labels = np.append(rng.random(2_000) < expit(truth), [1, 1])
    with pytest.raises(UncurseError, match="labels fall as scores rise"):
        calibrate(method, scores[:-2], 1 - labels[:-2])
    if method in ("isotonic", "histogram"):
        assert calibrate(method, scores, labels)([0.0])[0] > calibrate(method, scores, labels)([-3.0])[0]
