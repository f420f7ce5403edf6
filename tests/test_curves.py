import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from uncurse import UncurseError, calibrate
from uncurse.calibration.spline import fit_smooth, make_basis, rising

KNOTS = np.array([-2.5, -1.1, -0.4, 0.0, 0.3, 0.9, 1.0, 2.2, 3.6])


def rows_of(rows, log_odds=lambda x: 0.8 * x + 0.2, *, seed=0, mean=-1.0, sd=1.0):
    """Ascending scores, weights of one, labels."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.normal(mean, sd, rows))
    return x, np.ones(rows), (rng.random(rows) < expit(log_odds(x))).astype(float)


def platt(x, y, weight=None):
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(x[:, None], y, sample_weight=weight)
    return model.coef_[0, 0], model.intercept_[0]


# ---------------------------------------------------------------------------- the basis


def test_the_basis_is_the_natural_cubic_spline():
    basis = make_basis(KNOTS)
    coefficients = np.random.default_rng(0).normal(size=len(KNOTS))
    oracle = CubicSpline(KNOTS, basis.change @ coefficients, bc_type="natural")
    x = np.linspace(KNOTS[0], KNOTS[-1], 1_001)
    np.testing.assert_allclose(coefficients @ basis(x), oracle(x), atol=1e-12)


def test_beyond_the_knots_it_goes_on_as_steeply_as_it_ends():
    basis = make_basis(KNOTS)
    coefficients = np.random.default_rng(1).normal(size=len(KNOTS))
    oracle = CubicSpline(KNOTS, basis.change @ coefficients, bc_type="natural")
    for end, beyond in ((KNOTS[0], KNOTS[0] - np.array([0.0, 1.0, 50.0])), (KNOTS[-1], KNOTS[-1] + np.array([0.1, 9]))):
        expected = oracle(end) + oracle(end, 1) * (beyond - end)
        np.testing.assert_allclose(coefficients @ basis(beyond), expected, rtol=1e-10)


def test_the_sum_of_squared_bends_is_the_integral_of_the_squared_second_derivative():
    basis = make_basis(KNOTS)
    coefficients = np.random.default_rng(2).normal(size=len(KNOTS))
    second = CubicSpline(KNOTS, basis.change @ coefficients, bc_type="natural").derivative(2)
    # It is piecewise linear, so Simpson's rule is exact on each piece.
    left, right, middle = second(KNOTS[:-1]), second(KNOTS[1:]), second((KNOTS[:-1] + KNOTS[1:]) / 2)
    integral = np.diff(KNOTS) @ (left**2 + 4 * middle**2 + right**2) / 6
    np.testing.assert_allclose(np.square(coefficients[2:]).sum(), integral, rtol=1e-10)


def test_its_first_two_columns_are_a_line():
    x = np.linspace(-9, 9, 50)
    np.testing.assert_allclose(make_basis(KNOTS)(x)[:2], [np.ones(50), x], atol=1e-10)


# ---------------------------------------------------------------------------- fits to labels


@pytest.mark.parametrize("rows", [60, 1_000, 30_000])
def test_where_log_odds_are_a_line_the_fit_is_platts_within_a_fraction_of_its_error(rows):
    x, w, y = rows_of(rows)
    slope, intercept = platt(x, y)
    p = expit(slope * x + intercept)
    design = np.stack([np.ones(rows), x])
    covariance = np.linalg.inv((design * p * (1 - p)) @ design.T)
    inner = np.quantile(x, np.linspace(0.05, 0.95, 19))
    at = np.stack([np.ones(19), inner])
    error = np.sqrt(np.einsum("ik,ij,jk->k", at, covariance, at))
    smooth = fit_smooth(x, w, y)
    assert np.abs((smooth(inner) - slope * inner - intercept) / error).max() < 1
    assert smooth.line_probability > 0.3


def test_the_line_grows_more_probable_with_rows_that_show_no_bend():
    few, many = (fit_smooth(*rows_of(rows, seed=0)).line_probability for rows in (1_000, 1_000_000))
    assert few < many
    assert many > 0.6


def test_a_bend_that_rows_show_is_followed():
    def log_odds(x):
        return np.where(x < -1, 0.3 * x - 1, 1.5 * x + 0.2)

    smooth = fit_smooth(*rows_of(100_000, log_odds))
    assert smooth.line_probability < 1e-6
    x = np.linspace(-3, 1, 50)
    assert np.abs(smooth(x) - log_odds(x)).max() < 0.25  # a corner, which a smooth curve rounds
    assert np.abs(smooth(x) - log_odds(x)).mean() < 0.06


def test_a_weight_of_two_is_the_row_twice():
    x, w, y = rows_of(2_000)
    twice = fit_smooth(np.repeat(x, 2), np.ones(4_000), np.repeat(y, 2))
    weighted = fit_smooth(x, 2 * w, 2 * y)
    np.testing.assert_allclose(weighted(KNOTS), twice(KNOTS), atol=1e-3)
    np.testing.assert_allclose(weighted.covariance, twice.covariance, atol=1e-4)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 0.0), (1e3, 0.0), (1.0, 500.0), (7.0, -40.0)])
def test_scale_and_origin_of_the_score_do_not_matter(scale, shift):
    x, w, y = rows_of(5_000)
    plain, moved = fit_smooth(x, w, y), fit_smooth(scale * x + shift, w, y)
    np.testing.assert_allclose(moved(scale * KNOTS + shift), plain(KNOTS), atol=1e-3)


def test_a_slope_that_is_known_for_certain_is_the_slope():
    x, w, y = rows_of(300)
    smooth = fit_smooth(x, w, y, slope=(1.5, 1e-6))
    assert abs(smooth.coefficients[1] / smooth.spread - 1.5) < 1e-6
    assert platt(x, y)[0] < 1.2


def test_a_vague_idea_of_the_slope_gives_way_to_rows():
    x, w, y = rows_of(50_000)
    known, unknown = fit_smooth(x, w, y, slope=(1.0, 0.3)), fit_smooth(x, w, y)
    assert np.abs(known(KNOTS) - unknown(KNOTS)).max() < 0.02


@pytest.mark.theory
def test_errors_of_the_curve_are_what_its_covariance_says():
    x0 = np.array([-2.5, -1.0, 0.5])
    away = []
    for seed in range(200):
        smooth = fit_smooth(*rows_of(3_000, seed=seed))
        at = smooth.features(x0)
        error = np.sqrt(np.einsum("ik,ij,jk->k", at, smooth.covariance, at))
        away.append((smooth(x0) - 0.8 * x0 - 0.2) / error)
    assert np.all((np.std(away, axis=0) > 0.75) & (np.std(away, axis=0) < 1.15))  # 1 ± 3/√400, and bends shrink it
    assert np.abs(np.mean(away, axis=0)).max() < 0.35


# ---------------------------------------------------------------------------- fits to probabilities


def test_probabilities_on_a_line_give_that_line():
    x = np.linspace(-4, 2, 500)
    w = np.ones(500)
    smooth = fit_smooth(x, w, w * expit(0.7 * x - 1), scatter=True)
    np.testing.assert_allclose(smooth(x), 0.7 * x - 1, atol=2e-3)
    at = smooth.features(x)
    assert np.sqrt(np.einsum("ik,ij,jk->k", at, smooth.covariance, at)).max() < 0.01


def test_scatter_is_estimated_so_that_errors_are_those_of_the_residuals():
    rng = np.random.default_rng(3)
    x = np.sort(rng.normal(-1, 1, 20_000))
    errors = []
    for spread in (0.05, 0.1):
        p = expit(0.8 * x + spread * rng.normal(size=len(x)))
        smooth = fit_smooth(x, np.ones(len(x)), p, scatter=True)
        assert np.abs(smooth(KNOTS[1:-2]) - 0.8 * KNOTS[1:-2]).max() < 0.02
        at = smooth.features(np.array([-1.0]))
        errors.append(float(np.sqrt(at[:, 0] @ smooth.covariance @ at[:, 0])))
    assert 1.5 < errors[1] / errors[0] < 2.7
    assert 0.3 < errors[1] / (0.1 / np.sqrt(20_000 / 2)) < 3  # about as many rows as lie near


# ---------------------------------------------------------------------------- maps


def test_the_map_is_the_curve_and_rises_strictly():
    smooth = fit_smooth(*rows_of(5_000))
    curve = smooth.map()
    x = np.linspace(-60, 60, 5_001)
    assert (np.diff(curve.transform(x)) > 0).all()
    inner = np.linspace(-3, 1, 101)
    np.testing.assert_allclose(curve.transform(inner), smooth(inner), atol=2e-3)


def test_moved_is_higher_and_steeper_by_what_it_says():
    smooth = fit_smooth(*rows_of(2_000))
    x = np.array([-30.0, -1.0, 2.0])
    expected = smooth(x) + 0.3 - 0.1 * (x - smooth.center) / smooth.spread
    np.testing.assert_allclose(smooth.moved(0.3, -0.1)(x), expected, atol=1e-10)


def test_what_falls_is_pooled_as_isotonic_regression_does():
    rng = np.random.default_rng(0)
    x, w = np.sort(rng.normal(size=200)), rng.random(200) + 0.1
    y = x + rng.normal(size=200)
    oracle = IsotonicRegression().fit(x, y, sample_weight=w).predict(x)
    curve = rising(x, y, w)
    np.testing.assert_allclose(curve.transform(x), oracle, atol=1e-4)
    assert (np.diff(curve.transform(x)) > 0).all()


def test_a_rising_curve_is_left_alone():
    x = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(rising(x, np.sinh(x)).transform(x), np.sinh(x), atol=1e-12)


# ---------------------------------------------------------------------------- the calibrator


def test_the_spline_calibrator_is_platts_line_where_labels_are_few():
    x, _, y = rows_of(200, seed=4)
    slope, intercept = platt(x, y)
    inner = np.quantile(x, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(calibrate("spline", x, y).transform(inner), slope * inner + intercept, atol=0.15)


def test_the_spline_calibrator_counts_rows_by_weight():
    x, _, y = rows_of(500, lambda x: np.sinh(x))
    many = calibrate("spline", x, y, sample_weight=np.full(500, 1_000.0))
    repeated = calibrate("spline", np.repeat(x, 1_000), np.repeat(y, 1_000), exact=True)
    np.testing.assert_allclose(many.transform(KNOTS), repeated.transform(KNOTS), atol=1e-6)


def test_labels_that_scores_separate_have_no_spline():
    with pytest.raises(UncurseError, match="spline has no finite fit: every positive scores at least"):
        calibrate("spline", [0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1])


def test_labels_that_fall_as_scores_rise_are_refused_as_platt_does():
    x, _, y = rows_of(5_000, lambda x: -x)
    with pytest.raises(UncurseError, match="turned round"):
        calibrate("spline", x, y)


def test_one_row_far_out_does_not_flatten_the_spline():
    x, _, y = rows_of(3_000)
    x[-1], y[-1] = 1e6, 1
    slope, intercept = platt(x[:-1], y[:-1])
    inner = np.array([-2.0, 0.0])
    np.testing.assert_allclose(calibrate("spline", x, y).transform(inner), slope * inner + intercept, atol=0.3)
