import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from uncurse import VAD, UncurseError, information_variance

UNPENALISED = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8)


def logistic_data(rows=1500, dimensions=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.2, 1.0, (rows, dimensions))
    y = rng.random(rows) < expit(X @ np.linspace(0.2, 0.8, dimensions) - 1)
    return X, y, rng.normal(-0.3, 0.7, (4000, dimensions))


def small_data(rows=60, pool_rows=40, dimensions=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, dimensions))
    return X, expit(X[:, 0]), rng.normal(size=(pool_rows, dimensions))


def variance_in_extended_precision(X, p, pool, weights, penalty):
    """tr(Σ_pool H⁻¹ J H⁻¹) with 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        rows = [[mpmath.mpf(float(value)) for value in row] + [mpmath.mpf(1)] for row in X]
        d = X.shape[1]
        H, J = mpmath.zeros(d + 1), mpmath.zeros(d + 1)
        for row, p_i, w_i in zip(rows, p.tolist(), weights.tolist(), strict=True):
            information = mpmath.mpf(p_i) * (1 - mpmath.mpf(p_i)) * w_i
            outer = mpmath.matrix(row) * mpmath.matrix(row).T
            H += information * outer
            J += information * w_i * outer
        for j in range(d):
            H[j, j] += penalty
        bread = H**-1
        covariance = (bread * J * bread)[:d, :d]
        candidates = [mpmath.matrix([mpmath.mpf(float(value)) for value in row]) for row in pool]
        mean = sum(candidates, mpmath.zeros(d, 1)) / len(candidates)
        return float(sum(((c - mean).T * covariance * (c - mean))[0] for c in candidates) / len(candidates))


# ---------------------------------------------------------------------------- values


@pytest.mark.parametrize(("penalty", "intercept"), [(0.0, True), (0.0, False), (5.0, True), (5.0, False)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_variance_equals_the_direct_computation(penalty, intercept, weighted):
    X, y, pool = logistic_data()
    w = np.random.default_rng(1).exponential(size=len(X)) if weighted else np.ones(len(X))
    w *= w.sum() / np.sum(w**2)
    model = LogisticRegression(C=np.inf if penalty == 0 else 1 / penalty, fit_intercept=intercept, tol=1e-10)
    p = model.fit(X, y, sample_weight=w).predict_proba(X)[:, 1]
    design = np.column_stack([X, np.ones(len(X))]) if intercept else X
    H = sum(w[i] * p[i] * (1 - p[i]) * np.outer(design[i], design[i]) for i in range(len(X)))
    J = sum(w[i] ** 2 * p[i] * (1 - p[i]) * np.outer(design[i], design[i]) for i in range(len(X)))
    bread = np.linalg.inv(H + penalty * np.diag([1.0] * X.shape[1] + [0.0] * intercept))
    covariance = (bread @ J @ bread)[: X.shape[1], : X.shape[1]]
    centered = pool - pool.mean(axis=0)
    expected = np.mean([row @ covariance @ row for row in centered])
    weights = 17 * w if weighted else None
    ours = information_variance(X, p, pool, sample_weight=weights, penalty=penalty, fit_intercept=intercept)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_the_variance_agrees_with_many_bootstrap_refits():
    X, y, pool = logistic_data()
    model = clone(UNPENALISED).fit(X, y)
    rng = np.random.default_rng(2)
    served = model.decision_function(pool)
    refits = []
    for _ in range(200):
        rows = rng.integers(0, len(X), len(X))
        refit = clone(UNPENALISED).fit(X[rows], y[rows])
        refits.append(np.var(refit.decision_function(pool) - served))
    V = information_variance(X, model.predict_proba(X)[:, 1], pool)
    # Monte-Carlo error of the mean, and the 1/n by which the two definitions differ: d²/n of V.
    assert abs(V / np.mean(refits) - 1) < 3 * np.std(refits) / np.mean(refits) / np.sqrt(200) + 16 / 1500
    vad = VAD(scale="logit", replicas="seeds").fit(served, variance=V)
    np.testing.assert_allclose(vad.lambda_, 1 - V / np.var(served), rtol=1e-12)


# ---------------------------------------------------------------------------- numerical accuracy


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("penalty", [0.0, 1e-9, 0.5])
def test_nearly_collinear_columns_agree_with_extended_precision(gap, penalty):
    for seed in range(2):
        X, p, pool = small_data(seed=seed)
        rng = np.random.default_rng(seed + 10)
        X[:, 2] = X[:, 0] + gap * rng.normal(size=len(X))
        pool[:, 2] = pool[:, 0] + gap * rng.normal(size=len(pool))
        weights = rng.exponential(size=len(X))
        weights *= weights.sum() / np.sum(weights**2)
        exact = variance_in_extended_precision(X, p, pool, weights, penalty)
        ours = information_variance(X, p, pool, sample_weight=weights, penalty=penalty)
        np.testing.assert_allclose(ours, exact, rtol=1e-14 / gap + 1e-9)


@pytest.mark.parametrize("gap", [0.0, 1e-15])
def test_a_column_collinear_to_rounding_counts_once(gap):
    X, p, pool = small_data()
    rng = np.random.default_rng(1)
    more, more_pool = (np.column_stack([x, x[:, 0] + gap * rng.normal(size=len(x))]) for x in (X, pool))
    np.testing.assert_allclose(information_variance(more, p, more_pool), information_variance(X, p, pool), rtol=1e-6)


def test_more_columns_than_rows_give_a_finite_variance():
    X, p, pool = small_data(rows=5, dimensions=8)
    assert 0 < information_variance(X, p, pool) < np.inf
    assert 0 < information_variance(X, p, pool, penalty=1.0) < information_variance(X, p, pool)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_a_column_far_from_zero_does_not_change_the_variance(offset):
    X, p, pool = small_data(500, 400, 5)
    shift = np.array([offset, 0, 0, 0, 0])
    V = information_variance(X + shift, p, pool + shift)
    np.testing.assert_allclose(V, information_variance(X, p, pool), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e-4, 1e8, 1e200, 1e300])
def test_units_of_a_column_do_not_change_the_variance(scale):
    X, p, pool = small_data(500, 400, 5)
    units = np.array([scale, 1, 1, 1, 1])
    V = information_variance(X * units, p, pool * units)
    np.testing.assert_allclose(V, information_variance(X, p, pool), rtol=1e-9)


def test_constant_columns_change_nothing():
    X, p, pool = small_data()
    more, more_pool = (np.column_stack([x, np.zeros(len(x)), np.full(len(x), 1e200)]) for x in (X, pool))
    np.testing.assert_allclose(information_variance(more, p, more_pool), information_variance(X, p, pool), rtol=1e-9)
    more_pool[:, 3] = pool[:, 0]  # a column that was constant in training has no coefficient
    np.testing.assert_allclose(information_variance(more, p, more_pool), information_variance(X, p, pool), rtol=1e-9)


# ---------------------------------------------------------------------------- errors


ROWS, HALF = np.ones((3, 2)), [0.5] * 3
UP = np.arange(3.0)[:, None]


@pytest.mark.parametrize(
    ("X", "p", "pool", "options", "message"),
    [
        (ROWS, [0.5] * 2, ROWS, {}, r"X has shape \(3, 2\)"),
        (ROWS, HALF, np.ones((3, 1)), {}, "X has 2 columns and X_pool has 1"),
        (np.ones(3), HALF, np.ones((3, 1)), {}, r"X has shape \(3,\)"),
        (np.ones((3, 0)), HALF, np.ones((3, 0)), {}, r"X has shape \(3, 0\)"),
        (ROWS, HALF, np.ones((0, 2)), {}, r"X_pool has shape \(0, 2\)"),
        (np.ones((0, 2)), [], ROWS, {}, "probabilities is empty"),
        (ROWS, [0.5, 0.5, 1.5], ROWS, {}, r"probabilities holds 1\.5"),
        (ROWS, [0.0, 1.0, 1.0], ROWS, {}, "every probability is 0 or 1"),
        (np.full((3, 1), np.nan), HALF, np.ones((3, 1)), {}, "nan"),
        (UP, HALF, np.full((3, 1), np.inf), {}, "inf"),
        ([["a"]] * 3, HALF, np.ones((3, 1)), {}, "X must be"),
        (UP * 1e-200, HALF, [[1e200], [0.0]], {}, "the variance overflows"),
        *((ROWS, HALF, ROWS, {"penalty": penalty}, "penalty") for penalty in (-20, "x", np.nan, True)),
        (ROWS, HALF, ROWS, {"fit_intercept": 1}, "fit_intercept"),
        (ROWS, HALF, ROWS, {"sample_weight": [-1, 1, 1]}, "sample_weight"),
    ],
)
def test_errors_name_the_value(X, p, pool, options, message):
    with pytest.raises(UncurseError, match=message):
        information_variance(X, p, pool, **options)
