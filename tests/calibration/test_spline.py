import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from uncurse import UncurseError
from uncurse.calibration.spline import Basis, fit_smooth, monotone_curve
from uncurse.evidence import ReplicaTable
from uncurse.methods.label_free import regress_on_served

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


def test_basis_continues_linearly_beyond_the_knots():
    basis = Basis(KNOTS)
    coefficients = np.random.default_rng(1).normal(size=len(KNOTS))
    oracle = CubicSpline(KNOTS, coefficients @ basis(KNOTS), bc_type="natural")
    for end, beyond in ((KNOTS[0], KNOTS[0] - np.array([0.0, 1.0, 50.0])), (KNOTS[-1], KNOTS[-1] + np.array([0.1, 9]))):
        expected = oracle(end) + oracle(end, 1) * (beyond - end)
        np.testing.assert_allclose(coefficients @ basis(beyond), expected, rtol=1e-10)


def test_squared_bends_sum_to_the_integral_of_the_squared_second_derivative():
    basis = Basis(KNOTS)
    coefficients = np.random.default_rng(2).normal(size=len(KNOTS))
    second = CubicSpline(KNOTS, coefficients @ basis(KNOTS), bc_type="natural").derivative(2)
    # It is piecewise linear, so Simpson's rule is exact on each piece.
    left, right, middle = second(KNOTS[:-1]), second(KNOTS[1:]), second((KNOTS[:-1] + KNOTS[1:]) / 2)
    integral = np.diff(KNOTS) @ (left**2 + 4 * middle**2 + right**2) / 6
    np.testing.assert_allclose(np.square(coefficients[2:]).sum(), integral, rtol=1e-10)


# ---------------------------------------------------------------------------- fits to labels


@pytest.mark.parametrize("rows", [60, 1_000, 30_000])
def test_fit_of_linear_log_odds_is_within_one_standard_error_of_platt(rows):
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


def test_fit_follows_a_bend_in_the_data():
    def log_odds(x):
        return np.where(x < -1, 0.3 * x - 1, 1.5 * x + 0.2)

    smooth = fit_smooth(*rows_of(100_000, log_odds))
    assert smooth.line_probability < 1e-6
    x = np.linspace(-3, 1, 50)
    assert np.abs(smooth(x) - log_odds(x)).max() < 0.25  # a corner, which a smooth curve rounds
    assert np.abs(smooth(x) - log_odds(x)).mean() < 0.06


def test_weights_are_effective_rows():
    x, w, y = rows_of(2_000)
    twice = fit_smooth(np.repeat(x, 2), np.ones(4_000), np.repeat(y, 2))
    weighted = fit_smooth(x, 2 * w, 2 * y)
    np.testing.assert_allclose(weighted(KNOTS), twice(KNOTS), atol=1e-3)
    np.testing.assert_allclose(weighted.covariance, twice.covariance, atol=1e-4)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 0.0), (1e3, 0.0), (1.0, 500.0), (7.0, -40.0)])
def test_scale_and_origin_of_the_score_do_not_change_the_fit(scale, shift):
    x, w, y = rows_of(5_000)
    plain, moved = fit_smooth(x, w, y), fit_smooth(scale * x + shift, w, y)
    np.testing.assert_allclose(moved(scale * KNOTS + shift), plain(KNOTS), atol=1e-3)


@pytest.mark.theory
def test_errors_of_the_curve_agree_with_its_covariance():
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


def projected(x, p):
    return regress_on_served(ReplicaTable.of_rows(np.column_stack([x, x])), p)


def test_scatter_scales_errors_by_the_residuals():
    rng = np.random.default_rng(3)
    x = np.sort(rng.normal(-1, 1, 20_000))
    errors = []
    for spread in (0.05, 0.1):
        p = expit(0.8 * x + spread * rng.normal(size=len(x)))
        smooth = projected(x, p)
        assert np.abs(smooth(KNOTS[1:-2]) - 0.8 * KNOTS[1:-2]).max() < 0.02
        at = smooth.features(np.array([-1.0]))
        errors.append(float(np.sqrt(at[:, 0] @ smooth.covariance @ at[:, 0])))
    assert 1.5 < errors[1] / errors[0] < 2.7
    assert 0.3 < errors[1] / (0.1 / np.sqrt(20_000 / 2)) < 3  # half of the rows are nearby


# ---------------------------------------------------------------------------- floors, caps and outliers

WILD = np.array([-1e6, -1e4, 1e4, 1e4, 3e5, 1e12]), np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.0])


def with_outliers(kind, rows, seed):
    """Return all cells by ascending score, and the cells of the rows with log odds x."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-3, 1.2, rows)
    y = (rng.random(rows) < expit(x)).astype(float)
    share, regular = rng.random(rows), np.ones(rows, bool)

    def replace_rows(chosen, value, rate):
        x[chosen], y[chosen], regular[chosen] = value, rng.random(chosen.sum()) < rate, False

    if kind == "clipped below":
        regular = x > np.quantile(x, 0.3)
        x = np.maximum(x, np.quantile(x, 0.3))
    if kind == "clipped above":
        regular = x < np.quantile(x, 0.95)
        x = np.minimum(x, np.quantile(x, 0.95))
    if kind in ("floor", "all"):
        replace_rows(share < 0.3, -20.0, 0.05)
    if kind == "missing value":
        replace_rows(share < 0.7, -9999.0, 0.02)
    if kind in ("cap", "all"):
        replace_rows(share > 0.95, 3.0, 0.9)
    if kind in ("wild", "all"):
        place = rng.choice(rows, len(WILD[0]), replace=False)
        x[place], y[place], regular[place] = *WILD, False

    def cells(chosen):
        scores, place = np.unique(x[chosen], return_inverse=True)
        return scores, np.bincount(place).astype(float), np.bincount(place, y[chosen])

    return cells(np.ones(rows, bool)), cells(regular)


@pytest.mark.parametrize("rows", [1_000, 30_000])
@pytest.mark.parametrize("kind", ["clipped below", "clipped above", "floor", "missing value", "cap", "wild", "all"])
def test_floors_caps_and_outliers_do_not_change_the_curve_elsewhere(kind, rows):
    for seed in range(3):
        everything, regular = with_outliers(kind, rows, seed)
        inner = np.quantile(regular[0], np.linspace(0.01, 0.99, 50))
        with_them, without = fit_smooth(*everything), fit_smooth(*regular)
        at = without.features(inner)
        error = np.sqrt(np.einsum("ik,ij,jk->k", at, without.covariance, at))
        # A quarter of a standard error: outliers above with few positives share their level with the highest rows.
        assert (np.abs(with_them(inner) - without(inner)) < 0.25 * error).all()
        assert (np.abs(with_them.map().transform(inner) - without(inner)) < 0.25 * error + 2e-3).all()


def test_floor_and_cap_are_predicted_at_their_own_rates():
    (x, w, y), _ = with_outliers("all", 30_000, 0)
    curve = fit_smooth(x, w, y)
    for place in (-20.0, 3.0):
        rows, positives = w[x == place][0], y[x == place][0]
        rate = positives / rows
        error = np.sqrt(rate * (1 - rate) / rows)
        expected = min(rate, expit(curve(np.array([-19.9]))[0])) if place < 0 else rate
        np.testing.assert_allclose(expit(curve(np.array([place])))[0], expected, atol=error)


def test_cap_below_the_curve_is_pooled_with_the_top():
    rng = np.random.default_rng(0)
    x = np.sort(np.append(rng.normal(-3, 1.2, 19_000), np.full(1_000, 9.0)))
    y = (rng.random(20_000) < np.where(x == 9, 0.1, expit(x))).astype(float)
    curve = fit_smooth(x, np.ones(20_000), y)
    top = slice(-2_000, None)
    error = np.sqrt(y[top].mean() / 2_000)
    assert abs(expit(curve(x[top])).mean() - y[top].mean()) < 2 * error
    assert (np.diff(curve.map().transform(x)) >= 0).all()


@pytest.mark.parametrize("rows", [12, 60, 300])
def test_map_is_finite_and_increasing_for_extreme_scores(rows):
    rng = np.random.default_rng(rows)
    for scale in (1e-6, 1.0, 1e4, 1e60):
        x = np.sort(scale * rng.standard_cauchy(rows))
        y = (rng.random(rows) < 0.4).astype(float)
        curve = fit_smooth(x, np.ones(rows), y, slope=(1 / scale, 0.3 / scale)).map()
        values = curve.transform(np.linspace(x[0], x[-1], 1_000))
        assert np.isfinite(values).all()
        assert (np.diff(values) >= 0).all()


def test_scores_with_few_values_keep_all_cells_in_the_curve():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    w = np.array([9_000.0, 800.0, 150.0, 50.0])
    np.testing.assert_allclose(fit_smooth(x, w, w * expit(x - 4))(x), x - 4, atol=0.02)


@pytest.mark.parametrize(("x", "message"), [(np.full(5, 2.0), "every score is 2"), (np.arange(5) * 1e200, "spread of")])
def test_scores_without_a_usable_spread_are_an_error(x, message):
    with pytest.raises(UncurseError, match=message):
        fit_smooth(x, np.ones(5), np.array([0.0, 1.0, 0.0, 1.0, 0.0]))


# ---------------------------------------------------------------------------- maps


def test_map_equals_the_curve_and_increases_strictly():
    smooth = fit_smooth(*rows_of(5_000))
    curve = smooth.map()
    x = np.linspace(-60, 60, 5_001)
    assert (np.diff(curve.transform(x)) > 0).all()
    inner = np.linspace(-3, 1, 101)
    np.testing.assert_allclose(curve.transform(inner), smooth(inner), atol=2e-3)


def test_monotone_curve_pools_like_isotonic_regression():
    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=200))
    y = x + rng.normal(size=200)
    oracle = IsotonicRegression().fit(x, y).predict(x)
    curve = monotone_curve(x, y)
    np.testing.assert_allclose(curve.transform(x), oracle, atol=1e-4)
    assert (np.diff(curve.transform(x)) > 0).all()


# ---------------------------------------------------------------------------- the calibrator


def test_scatter_of_scores_that_differ_by_rounding_does_not_depend_on_the_rounding():
    x = np.repeat(np.linspace(-4, 2, 60), 2)
    scatter = np.tile([0.01, 1.0], 60)
    labels = expit(0.7 * x - 1 + 0.1 * np.sin(3 * x))

    def fit(gap: float) -> np.ndarray:
        return fit_smooth(x + np.tile([0.0, gap], 60), np.full(120, 5.0), 5 * labels, scatter=scatter)(x)

    np.testing.assert_allclose(fit(1e-15), fit(1e-12), rtol=1e-9)
    np.testing.assert_allclose(fit(0.0), fit(1e-12), rtol=1e-9)
