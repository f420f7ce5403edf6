from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, gammaln, logsumexp
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from uncurse import Cells, Curve, Steps, UncurseError, calibrate
from uncurse.calibration.calibrators import CALIBRATORS, fit_calibrator
from uncurse.calibration.logistic import fit_logistic
from uncurse.links import logit

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
def test_platt_is_unpenalised_logistic_regression_on_the_logit(mean, sd, decimals, weighted):
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


@pytest.mark.parametrize("method", ["platt", "temperature", "beta"])
def test_parametric_fit_minimises_the_log_loss(method):
    l, y, w = world(2000)
    ours = calibrate(method, l, y, sample_weight=w).transform(l)

    def loss(m):
        return np.average(np.logaddexp(0, m) - y * m, weights=w)

    directions = [l] if method == "temperature" else [l, np.ones_like(l)]
    if method == "beta":
        directions.append(np.logaddexp(0, l))
    for direction in directions:
        for size in (-1e-3, 1e-3):
            assert loss(ours + size * direction) > loss(ours)


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


def beta_formula(l, y, x):
    low, high, ones = -np.logaddexp(0, -l), np.logaddexp(0, l), np.ones_like(l)
    a, b, c = fit_logistic(np.stack([low, high, ones]), ones, y).coefficients
    if a < 0:
        a, (b, c) = 0.0, fit_logistic(np.stack([high, ones]), ones, y).coefficients
    elif b < 0:
        b, (a, c) = 0.0, fit_logistic(np.stack([low, ones]), ones, y).coefficients
    return expit(-a * np.logaddexp(0, -x) + b * np.logaddexp(0, x) + c)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 2.0), (-3.0, 0.8), (-6.0, 0.8), (-6.0, 0.3)])
def test_curve_of_beta_matches_its_formula_at_any_base_rate(mean, sd):
    l, y, _ = world(50_000, mean=mean, sd=sd, truth=lambda l: l, seed=2)
    top = np.sort(l)[-200:]
    ours = fit_calibrator("beta", Cells(exact=True).update(l, y))(top)
    np.testing.assert_allclose(ours, beta_formula(l, y.astype(float), top), rtol=1e-4)


def test_dirichlet_error_names_beta():
    with pytest.raises(UncurseError, match="with two classes Dirichlet calibration is beta calibration; use 'beta'"):
        calibrate("dirichlet", [0.0, 1.0], [0, 1])


# ---------------------------------------------------------------------------- histogram, scaling-binning


@pytest.mark.parametrize("bins", [1, 10, 50])
def test_histogram_equals_uncertainty_calibration(bins):
    HistogramCalibrator = pytest.importorskip("calibration").HistogramCalibrator

    l, y, _ = world(3000)
    oracle = HistogramCalibrator(1, bins)
    oracle.train_calibration(expit(l), y)
    ours = calibrate("histogram", l, y, n_bins=bins, strict=False)
    np.testing.assert_allclose(ours(l), oracle.calibrate(expit(l)), atol=1e-9)


def test_scaling_binning_equals_uncertainty_calibration():
    PlattBinnerCalibrator = pytest.importorskip("calibration").PlattBinnerCalibrator

    l, y, _ = world(3000)
    oracle = PlattBinnerCalibrator(1, 20)
    oracle.train_calibration(expit(l), y)
    ours = calibrate("scaling-binning", l, y, n_bins=20, strict=False)
    # Platt scaling in uncertainty-calibration stops at a tolerance of 1e-4. The next test compares to 1e-6.
    np.testing.assert_allclose(ours(l), oracle.calibrate(expit(l)), atol=1e-4)


@pytest.mark.parametrize("bins", [1, 10, 50])
def test_scaling_binning_bins_the_converged_platt_scores(bins):
    utils = pytest.importorskip("calibration").utils

    l, y, _ = world(3000)
    scaled = LogisticRegression(C=np.inf, tol=1e-14, solver="newton-cholesky").fit(l[:, None], y)
    platt = scaled.predict_proba(l[:, None])[:, 1]
    oracle = utils.get_discrete_calibrator(platt, utils.get_equal_bins(platt, num_bins=bins))
    ours = calibrate("scaling-binning", l, y, n_bins=bins, strict=False)
    np.testing.assert_allclose(ours(l), oracle(platt), atol=1e-6)


def test_histogram_of_equal_width_is_the_calibration_curve_of_scikit_learn():
    l, y, _ = world(5000)
    rates, _ = calibration_curve(y, expit(l), n_bins=20)
    _, places = np.unique(np.floor(20 * expit(l)), return_inverse=True)
    ours = calibrate("histogram", l, y, n_bins=20, strategy="uniform", strict=False)
    np.testing.assert_allclose(ours(l), rates[places], atol=1e-9)


def test_uniform_bins_have_edges_at_equal_widths():
    # No row is near the edge at one half, but a score of 0.45 still belongs to the lower bin.
    p = np.concatenate([np.full(10, 0.1), np.full(10, 0.6)])
    y = np.concatenate([np.arange(10) < 1, np.arange(10) < 8])
    ours = calibrate("histogram", logit(p), y, n_bins=2, strategy="uniform", strict=False)
    np.testing.assert_allclose(ours(logit(np.array([0.1, 0.45, 0.55]))), [0.1, 0.1, 0.8], atol=1e-9)


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
    ours = fit_calibrator(method, Cells().update(l, y), n_bins=15, refine_top=0.001, strict=False)
    assert np.mean(l >= ours.edges[-1]) <= 0.001
    assert len(ours.edges) > len(plain.edges)
    assert len(fine.edges) >= len(plain.edges)


def test_refine_top_terminates_on_tied_scores():
    assert len(calibrate("histogram", np.full(100, -1.0), np.arange(100) < 30, refine_top=0.001).values) == 1


# ---------------------------------------------------------------------------- isotonic


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 1, 0])
@pytest.mark.parametrize("mean", [-1.0, -4.0])
def test_isotonic_equals_scikit_learn(mean, decimals, weighted):
    l, y, w = world(5000, mean=mean, decimals=decimals)
    w = w if weighted else None
    oracle = IsotonicRegression(out_of_bounds="clip").fit(l, y, sample_weight=w)
    ours = calibrate("isotonic", l, y, sample_weight=w, exact=True, strict=False)
    np.testing.assert_allclose(ours(l), oracle.predict(l), atol=1e-9)
    ends = np.array([l.min() - 5, l.max() + 5])
    np.testing.assert_allclose(ours(ends), oracle.predict(ends), atol=1e-9)


def untouched(levels, w):
    """Mark the levels that the smoothing by half a row does not change."""
    low, high = w[levels < 1e-9].sum(), w[levels > 1 - 1e-9].sum()
    return (levels > 0.5 / (low + 1) + 1e-9) & (levels < (high + 0.5) / (high + 1) - 1e-9)


def test_strict_isotonic_keeps_the_levels_and_breaks_the_ties():
    l, y, _ = world(5000)
    x = np.sort(l)
    strict, level = calibrate("isotonic", l, y)(x), IsotonicRegression().fit(l, y).predict(x)
    inner = untouched(level, np.ones(5000))
    assert inner.mean() > 0.9
    np.testing.assert_allclose(strict[inner], level[inner], rtol=5e-6)  # a slope of 1e-6 over five logits
    assert (np.diff(strict) > 0).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 1])
def test_smooth_isotonic_passes_through_the_isotonic_levels_without_ties(decimals, weighted):
    l, y, w = world(5000, decimals=decimals)
    w = w if weighted else np.ones(5000)
    levels = IsotonicRegression().fit(l, y, sample_weight=w).predict(l)
    ours = calibrate("smooth-isotonic", l, y, sample_weight=w)
    assert isinstance(ours, Curve)
    inner = untouched(levels, w)
    assert inner.mean() > 0.9
    for level in np.unique(levels[inner].round(11)):
        rows = np.isclose(levels, level, atol=1e-10)
        np.testing.assert_allclose(ours(np.average(l[rows], weights=w[rows])), level, rtol=1e-9)
    assert (np.diff(ours(np.unique(l))) > 0).all()
    assert (np.diff(ours.y) > 0).all()


def test_smooth_isotonic_has_no_flat_piece_where_isotonic_levels_are_equal():
    y = np.array([0, 1, 0, 1, 0, 1, 0, 1, 1])  # pools of one half, three in a row
    curve = calibrate("smooth-isotonic", np.arange(9.0), y)
    assert (np.diff(curve(np.linspace(-3, 12, 301))) > 0).all()


def test_level_without_positives_is_smoothed_by_half_a_row():
    l = np.arange(6.0)
    ours = calibrate("isotonic", l, [0, 0, 0, 1, 0, 1])
    np.testing.assert_allclose(ours(l), [0.5 / 4] * 3 + [0.5, 0.5] + [1.5 / 2], rtol=1e-5)


# ---------------------------------------------------------------------------- BBQ


def literal_bbq(l, y, middle):
    """Naeini, Cooper and Hauskrecht (2015), row by row: N' = 2, binnings of ∛N/10 to 10 ∛N bins of equal count."""
    order = np.argsort(l)
    p, z = expit(l[order]), y[order]
    n = len(p)
    sizes = sorted({min(size, n) for size in range(max(1, int(n ** (1 / 3) / 10)), int(10 * n ** (1 / 3)) + 1)})
    scores, estimates = [], []
    for size in sizes:
        ends = [int(np.ceil(n * k / size - 1e-9)) for k in range(size + 1)]
        score, estimate = 0.0, np.empty(n)
        for start, end in pairwise(ends):
            if middle == "of the scores in the bin":
                low, high = p[start], p[end - 1]
            else:  # of the interval, from 0 to 1 with cuts half way between neighbours
                low = 0.0 if start == 0 else (p[start - 1] + p[start]) / 2
                high = 1.0 if end == n else (p[end - 1] + p[end]) / 2
            center = (low + high) / 2
            alpha, beta = 2 / size * center, 2 / size * (1 - center)
            positives = int(z[start:end].sum())
            negatives = end - start - positives
            score += gammaln(2 / size) - gammaln(end - start + 2 / size)
            score += gammaln(positives + alpha) - gammaln(alpha) + gammaln(negatives + beta) - gammaln(beta)
            estimate[start:end] = (positives + alpha) / (end - start + 2 / size)
        scores.append(score)
        estimates.append(estimate)
    result = np.empty(n)
    result[order] = np.exp(np.array(scores) - logsumexp(scores)) @ np.array(estimates)
    return result


@pytest.mark.parametrize(("rows", "seed"), [(8, 0), (27, 1), (100, 2), (300, 3)])
def test_bbq_is_the_literal_average_over_binnings(rows, seed):
    l, y, _ = world(rows, seed=seed)
    ours = calibrate("bbq", l, y, strict=False)
    # Binnings with a posterior below 1e-6 are dropped: at most 60 of them here.
    np.testing.assert_allclose(ours(l), literal_bbq(l, y, "of the scores in the bin"), atol=1e-4)


def test_bbq_has_one_binning_for_each_number_of_bins():
    # With 6, 1 and 6 rows of equal scores, two bins end after the second score and three after the first one only.
    counts, positives, score = np.array([6, 1, 6]), np.array([1, 1, 5]), np.array([-1.0, 0.0, 1.5])
    label = np.concatenate([np.arange(n) < k for n, k in zip(counts, positives, strict=True)])
    ours = calibrate("bbq", np.repeat(score, counts), label, strict=False)
    p, evidences, values = expit(score), [], []
    for bins in ([[0, 1, 2]], [[0, 1], [2]]):
        evidence, value = 0.0, np.empty(3)
        for members in bins:
            n, m, prior = counts[members].sum(), positives[members].sum(), 2 / len(bins)
            a = prior * (p[members[0]] + p[members[-1]]) / 2
            b = prior - a
            evidence += gammaln(prior) - gammaln(n + prior) + gammaln(m + a) - gammaln(a) + gammaln(n - m + b)
            evidence -= gammaln(b)
            value[members] = (m + a) / (n + prior)
        evidences.append(evidence)
        values.append(value)
    wanted = np.exp(np.array(evidences) - logsumexp(evidences)) @ np.array(values)
    np.testing.assert_allclose(ours(score), wanted, rtol=1e-6)


def test_bbq_with_priors_at_the_middle_of_the_interval_is_nearly_the_same():
    # The paper's p_b is the middle of the *interval* (from 0 to 1); ours that of the scores in it, so that the last
    # bin of a pool at 4% is not pulled towards one half. They differ by less than a tenth of a standard error.
    l, y, _ = world(2000, mean=-3.5, sd=0.8, truth=lambda l: l)
    ours, theirs = calibrate("bbq", l, y, strict=False)(l), literal_bbq(l, y, "of the interval")
    error = np.sqrt(theirs * (1 - theirs) / 100)
    assert (np.abs(ours - theirs) / error).max() < 0.5
    assert np.mean(np.abs(ours - theirs) / error) < 0.1


def test_bbq_is_closer_to_the_truth_than_the_raw_score():
    l, y, _ = world(20_000)
    truth = expit(0.7 * l + 0.3)
    assert np.mean((calibrate("bbq", l, y)(l) - truth) ** 2) < 0.2 * np.mean((expit(l) - truth) ** 2)


# ---------------------------------------------------------------------------- all calibrators


@pytest.mark.parametrize("method", CALIBRATORS)
def test_calibrated_mean_equals_the_observed_rate(method):
    l, y, w = world(20_000, truth=lambda l: l)
    ours = calibrate(method, l, y, sample_weight=w)
    loose = {"temperature": 0.03, "bbq": 1e-3, "smooth-isotonic": 0.01, "isotonic": 1e-3, "histogram": 1e-4}
    assert abs(np.average(ours(l), weights=w) / np.average(y, weights=w) - 1) < loose.get(method, 1e-5)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_calibrator_corrects_a_model_that_is_too_steep(method):
    l, y, _ = world(50_000, truth=lambda l: 0.6 * l)
    truth = expit(0.6 * l)
    assert np.abs(calibrate(method, l, y)(l) - truth).mean() < 0.2 * np.abs(expit(l) - truth).mean()


@pytest.mark.parametrize("method", CALIBRATORS)
def test_map_fitted_to_probabilities_takes_probabilities(method):
    l, y, _ = world(2000)
    of_logits, of_probabilities = calibrate(method, l, y), calibrate(method, expit(l), y, scale="probability")
    np.testing.assert_allclose(of_probabilities(expit(l)), of_logits(l), rtol=1e-6)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_strict_map_never_predicts_0_or_1(method):
    l, y, _ = world(300, mean=-3.0)
    p = calibrate(method, l, y)(np.array([-1e3, -30.0, l.min(), l.max(), 30.0, 1e3]))
    assert (p > 0).all()
    assert (p < 1).all()


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


@pytest.mark.parametrize("method", [m for m in CALIBRATORS if m not in ("platt", "temperature", "beta")])
def test_small_samples_use_exact_cells_by_default(method):
    l, y, _ = world(2000)
    assert calibrate(method, l, y) == fit_calibrator(method, Cells(exact=True).update(l, y))
    assert calibrate(method, l, y, exact=False) == fit_calibrator(method, Cells(exact=False).update(l, y))


# ---------------------------------------------------------------------------- degenerate and invalid input

SEPARABLE = ([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
TOUCHING = ([-2.0, 0.5, 0.5, 2.0], [0, 0, 1, 1])
TURNED = ([-2.0, -1.0, 1.0, 2.0], [1, 1, 0, 0])
CONSTANT = ([1.5] * 5, [0, 0, 0, 1, 1])
FALLING = ([-2.0, -1.0, 0.5, 1.0, 2.0, 3.0], [1, 1, 0, 1, 0, 0])
BINS = ("histogram", "isotonic", "smooth-isotonic", "bbq")


@pytest.mark.parametrize("method", BINS)
@pytest.mark.parametrize("data", [SEPARABLE, TOUCHING])
def test_binning_accepts_separable_labels(method, data):
    p = calibrate(method, *data)(data[0])
    assert (np.diff(np.unique(p)) > 0).all()
    assert p[0] < 0.5 < p[-1]


@pytest.mark.parametrize("method", ["platt", "beta", "scaling-binning"])
@pytest.mark.parametrize(("data", "least"), [(SEPARABLE, "1"), (TOUCHING, r"0\.5")])
def test_separable_labels_have_no_parametric_fit(method, data, least):
    message = rf"no finite fit: every positive scores at least {least} and no negative scores more; use 'isotonic'"
    with pytest.raises(UncurseError, match=message):
        calibrate(method, *data)


@pytest.mark.parametrize("method", ["platt", "beta", "scaling-binning"])
def test_reversed_labels_have_no_parametric_fit(method):
    with pytest.raises(UncurseError, match=r"every positive scores at most -1 and no negative scores less; is the lab"):
        calibrate(method, *TURNED)


def test_temperature_has_no_finite_fit_if_signs_predict_labels():
    with pytest.raises(UncurseError, match="no finite fit: the sign of the score predicts every label; use 'isotonic'"):
        calibrate("temperature", *SEPARABLE)


def test_temperature_refuses_reversed_labels():
    with pytest.raises(UncurseError, match="every label contradicts its score; is one of them reversed"):
        calibrate("temperature", *TURNED)


@pytest.mark.parametrize("method", ["platt", "temperature", "beta", "scaling-binning"])
def test_decreasing_fit_is_an_error(method):
    message = r"has slope -.*: labels fall as scores rise; is the label, or the score, reversed\?"
    with pytest.raises(UncurseError, match=message):
        calibrate(method, *FALLING)


@pytest.mark.parametrize("method", BINS)
@pytest.mark.parametrize("data", [TURNED, FALLING])
def test_decreasing_rates_become_one_level_in_strict_bins(method, data):
    p = calibrate(method, *data)(data[0])
    assert (np.diff(p) > 0).all()
    assert np.ptp(p) < (0.2 if method in ("histogram", "isotonic", "bbq") else 1e-4)


@pytest.mark.parametrize("method", ["platt", "beta", "scaling-binning"])
def test_constant_scores_are_an_error_for_parametric_fits(method):
    with pytest.raises(UncurseError, match=r"every score is 1\.5; .* needs scores that differ \(use 'histogram'"):
        calibrate(method, *CONSTANT)


@pytest.mark.parametrize("method", ["histogram", "isotonic", "smooth-isotonic", "temperature"])
def test_constant_scores_get_the_observed_rate(method):
    data = ([1.5] * 5, [0, 0, 1, 1, 1])
    np.testing.assert_allclose(calibrate(method, *data)(1.5), 0.6, rtol=1e-6)


def test_bbq_of_constant_scores_is_between_rate_and_score():
    assert 0.4 < calibrate("bbq", *CONSTANT)(1.5) < expit(1.5)


def test_temperature_of_zero_scores_is_an_error():
    with pytest.raises(UncurseError, match="every score is 0, so a temperature has no effect; use another"):
        calibrate("temperature", [0.0, 0.0], [0, 1])


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize(("label", "missing"), [(0, "positives"), (1, "negatives")])
@pytest.mark.parametrize("exact", [True, False])
def test_labels_of_one_class_are_an_error(method, label, missing, exact):
    message = f"the labels have no {missing}; add rows until both classes occur"
    with pytest.raises(UncurseError, match=message):
        calibrate(method, [0.0, 1.0, 2.0], [label] * 3, exact=exact)


def test_positives_of_zero_weight_do_not_count():
    with pytest.raises(UncurseError, match="the labels have no positives"):
        calibrate("isotonic", [0.0, 1.0, 2.0], [0, 0, 1], sample_weight=[1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("plat", {}, "calibrator='plat' is unknown; choose one of platt, temperature, beta"),
        ("platt", {"n_bins": 5}, "platt has no option 'n_bins'; it takes no options"),
        ("histogram", {"bins": 5}, "histogram has no option 'bins'; it takes n_bins, strategy, refine_top, strict"),
        ("histogram", {"n_bins": 0}, "n_bins=0; pass an integer, 1 or more"),
        ("scaling-binning", {"n_bins": -3}, "n_bins=-3; pass an integer, 1 or more"),
        ("histogram", {"strategy": "kmeans"}, "strategy='kmeans' is unknown; choose one of quantile, uniform"),
        ("histogram", {"refine_top": 0}, "refine_top=0 is not a share; pass a number above 0 and at most 1"),
        ("histogram", {"refine_top": 2.0}, r"refine_top=2\.0 is not a share"),
        ("histogram", {"refine_top": "x"}, "refine_top='x' is not a share"),
        ("platt", {"strict": True}, "platt has no option 'strict'; it takes no options"),
        ("temperature", {"strict": False}, "temperature has no option 'strict'"),
        ("spline", {"strict": False}, "spline has no option 'strict'"),
        ("smooth-isotonic", {"strict": False}, "smooth-isotonic has no option 'strict'"),
        ("histogram", {"n_bins": "many"}, "n_bins"),
        ("histogram", {"n_bins": 2.5}, "n_bins"),
    ],
)
def test_unknown_method_or_option_is_named(method, options, message):
    l, y, _ = world(200)
    with pytest.raises(UncurseError, match=message):
        calibrate(method, l, y, **options)


@pytest.mark.parametrize("method", CALIBRATORS)
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
def test_invalid_rows_are_named(method, scores, labels, message):
    with pytest.raises(UncurseError, match=message):
        calibrate(method, scores, labels)


def test_probability_outside_0_and_1_is_named():
    with pytest.raises(UncurseError, match=r"scores holds 1\.5, which is not a probability; are these logits"):
        calibrate("platt", [0.5, 1.5], [0, 1], scale="probability")


def test_cells_without_labels_or_on_another_scale_are_refused():
    with pytest.raises(UncurseError, match="platt needs labels; update the cells with scores and labels"):
        fit_calibrator("platt", Cells().update([0.0, 1.0]))
    with pytest.raises(UncurseError, match="platt needs labels"):
        fit_calibrator("platt", Cells())
    with pytest.raises(UncurseError, match="calibrators need cells on the logit scale, not on the probability scale"):
        fit_calibrator("platt", Cells("probability").update([0.1, 0.2], [0, 1]))


def test_adjacent_floats_get_separate_steps():
    a = 1.0
    b = np.nextafter(a, 2.0)
    step = calibrate("isotonic", [a, b, a, b], [0, 1, 0, 1], strict=False)
    assert isinstance(step, Steps)
    assert step(a) < 0.01
    assert step(b) > 0.99


# ---------------------------------------------------------------------------- sizes and weights


@pytest.mark.parametrize("method", BINNED)
@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_n_bins_is_limited_to_the_number_of_rows(method, strategy):
    l, y, _ = world(500)
    assert calibrate(method, l, y, n_bins=10**9, strategy=strategy) == calibrate(
        method, l, y, n_bins=500, strategy=strategy
    )


def test_one_uniform_bin_is_the_observed_rate():
    l, y, _ = world(500)
    np.testing.assert_allclose(
        calibrate("histogram", l, y, n_bins=1, strategy="uniform")(l).mean(), y.mean(), rtol=1e-6
    )


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e20])
def test_scale_of_weights_does_not_change_the_map(method, exact, scale):
    l, y, w = world(600)
    plain = calibrate(method, l, y, sample_weight=w, exact=exact)
    scaled = calibrate(method, l, y, sample_weight=scale * w, exact=exact)
    np.testing.assert_allclose(scaled(l), plain(l), rtol=1e-9)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_equal_weights_give_the_unweighted_map(method):
    l, y, _ = world(600)
    weighted = calibrate(method, l, y, sample_weight=np.full(600, 1e20))
    np.testing.assert_allclose(weighted(l), calibrate(method, l, y)(l), rtol=1e-9)


def test_smoothing_uses_the_effective_number_of_rows():
    # Weights 1 and 3 in turn: (Σw)² / Σw² is 0.8 of the number of rows.
    l, y, w = np.repeat([-1.0, 1.0], 20), np.repeat([0, 1], 20), np.tile([1.0, 3.0], 20)
    p = calibrate("isotonic", l, y, sample_weight=w)([-1.0, 1.0])
    np.testing.assert_allclose(p, [0.5 / 17, 16.5 / 17], rtol=1e-5)
