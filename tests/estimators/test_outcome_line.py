"""Lines of outcomes by score, and regressors around them."""

from contextlib import nullcontext

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor, TweedieRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uncurse.estimators import UncursedRegressorCV
from uncurse.estimators.outcome_line import fit_outcome_line, has_log_link
from uncurse.metrics import top_share
from uncurse.serving import fold

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")


def outcomes(rng, rows, noise):
    x = rng.normal(size=rows)
    return x, 10 + 2 * x + noise * rng.normal(size=rows) * np.exp(x)


def test_the_line_of_a_target_with_unequal_variances_is_better_than_least_squares():
    rng = np.random.default_rng(0)
    found, plain, best = [], [], []
    for _ in range(200):
        x, y = outcomes(rng, 2_000, 3.0)
        found.append(fit_outcome_line(x, y, np.ones(2_000), 1.0, "identity").slope)
        plain.append(np.polyfit(x, y, 1)[0])
        best.append(np.polyfit(x, y, 1, w=np.exp(-x))[0])
    errors = [float(np.std(slopes)) for slopes in (found, plain, best)]
    assert np.mean(found) == pytest.approx(2, abs=4 * errors[0] / np.sqrt(200))
    assert errors[2] < errors[0] < 0.45 * errors[1]


def test_the_line_of_a_target_that_bends_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3_000)
    y = np.exp(x) * (1 + 0.3 * rng.normal(size=3_000))
    line = fit_outcome_line(x, y, np.ones(3_000), 1.0, "identity")
    assert abs(line.bend[0]) > 10 * line.bend[1]
    wanted = np.polyfit(x, y, 1)
    assert (line.slope, line.level) == pytest.approx(tuple(wanted), rel=0.02)
    np.testing.assert_allclose(line.fitted, np.polyval(wanted, x), rtol=1e-9, atol=1e-9)
    assert abs(line.slope - np.polyfit(x, y, 1, w=np.exp(-x))[0]) > 0.3 * line.slope


@pytest.mark.parametrize("link", ["identity", "log"])
def test_the_line_of_a_target_depends_on_ratios_of_weights_and_on_different_rows_only(link):
    x, y = outcomes(np.random.default_rng(0), 1_000, 6.0)
    y = np.maximum(y, 0.0)
    weight = np.random.default_rng(1).uniform(0.5, 2, 1_000)

    def numbers(*columns, repeats=1.0):
        line = fit_outcome_line(*columns, repeats, link)
        return (line.level, line.slope, *line.bend)

    line = numbers(x, y, weight)
    assert numbers(x, y, 1e6 * weight) == pytest.approx(line, rel=1e-7)
    order = np.random.default_rng(2).permutation(1_000)
    assert numbers(x[order], y[order], weight[order]) == pytest.approx(line, rel=1e-7)
    assert numbers(*(np.repeat(column, 2) for column in (x, y, weight)), repeats=2.0) == pytest.approx(line, rel=1e-7)
    # An exact line has no residuals, and few rows do not determine a variance.
    exact = 3 + 2 * x if link == "identity" else np.exp(3 + 2 * x)
    assert numbers(x, exact, weight) == pytest.approx((3, 2, 0, 0), abs=1e-6)
    few = numbers(x[:199], y[:199], weight[:199])
    assert few[2:] == (0, 0)
    assert min(np.abs(numbers(x[:200], y[:200], weight[:200])[2:])) > 0  # two bins are enough
    if link == "identity":
        assert few[:2] == pytest.approx(tuple(np.polyfit(x[:199], y[:199], 1, w=np.sqrt(weight[:199]))[::-1]))


def test_the_line_of_counts_on_the_log_link_is_a_poisson_regression():
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=180), rng.uniform(0.5, 2, 180)  # too few rows for a variance
    y = rng.poisson(np.exp(0.5 + 0.8 * x)).astype(float)
    line = fit_outcome_line(x, y, weight, 1.0, "log")
    oracle = PoissonRegressor(alpha=0, solver="newton-cholesky", tol=1e-10).fit(x[:, None], y, sample_weight=weight)
    assert (line.level, line.slope) == pytest.approx((oracle.intercept_, oracle.coef_[0]), rel=1e-7)
    np.testing.assert_allclose(line.fitted, oracle.predict(x[:, None]), rtol=1e-7)


def test_rare_outcomes_and_scores_without_effect_have_a_finite_line():
    x = np.random.default_rng(0).normal(size=1_000)
    for y in (np.eye(1_000)[3], np.ones(1_000), np.where(np.arange(1_000) % 2, 1e9, 0.0)):
        line = fit_outcome_line(x, y, np.ones(1_000), 1.0, "log")
        assert np.isfinite([line.level, line.slope, *line.bend]).all()
        assert line.fitted.mean() == pytest.approx(y.mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (PoissonRegressor(), True),
        (GammaRegressor(), True),
        (TweedieRegressor(power=1.5), True),
        (TweedieRegressor(power=0), False),
        (TweedieRegressor(power=0, link="log"), True),
        (TweedieRegressor(power=1.5, link="identity"), False),
        (HistGradientBoostingRegressor(loss="poisson"), False),
        (RandomForestRegressor(criterion="poisson"), False),
        (LinearRegression(), False),
        (make_pipeline(StandardScaler(), GammaRegressor()), True),
        (GridSearchCV(make_pipeline(StandardScaler(), GammaRegressor()), {}), True),
        (FrozenEstimator(PoissonRegressor()), True),
    ],
)
def test_linear_models_of_counts_and_amounts_have_a_log_link(model, expected):
    assert has_log_link(model) is expected


@pytest.mark.parametrize("family", [PoissonRegressor, GammaRegressor])
def test_penalized_counts_and_amounts_are_corrected_stay_positive_and_fold_exactly(family):
    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(2_500, 12)), rng.normal(size=(5_000, 12))
    effects = rng.normal(0, 0.2, 12)
    mean = np.exp(X @ effects - 1)
    y = rng.poisson(mean) if family is PoissonRegressor else rng.gamma(1.5, mean / 1.5)
    reg = UncursedRegressorCV(family(alpha=1.0), cv=3, random_state=0).fit(X, y, pool=pool)
    before, after = reg.estimator_.predict(pool), reg.predict(pool)
    top = top_share(before, 0.05)
    true = np.exp(pool[top] @ effects - 1).mean()
    assert before[top].mean() / true < 0.6  # the penalty halves the highest predictions
    assert after[top].mean() / true == pytest.approx(1, abs=0.12)
    assert after.min() > 0
    np.testing.assert_allclose(fold(reg).predict(pool), after, rtol=1e-9)


def test_a_log_link_needs_outcomes_and_predictions_that_are_not_negative():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = rng.normal(5, 1, 300) + X[:, 0]
    model = TweedieRegressor(power=0, link="log", alpha=0)
    assert UncursedRegressorCV(model, cv=2, n_replicas=2, random_state=0).fit(X, y).map_.link == "log"
    y[0] = -1
    assert UncursedRegressorCV(model, cv=2, n_replicas=2, random_state=0).fit(X, y).map_.link == "identity"


@pytest.mark.theory
def test_a_regression_of_claims_with_a_log_link_is_not_made_worse():
    errors = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        X, pool = rng.normal(0.3, 1, (2_500, 10)), rng.normal(size=(8_000, 10))
        coefficients = np.linspace(0, 0.5, 10)
        y = rng.gamma(1.5, np.exp(X @ coefficients) / 1.5)
        model = GammaRegressor(alpha=0, max_iter=300, solver="newton-cholesky")
        reg = UncursedRegressorCV(model, random_state=seed).fit(X, y, pool=pool)
        before, top = reg.estimator_.predict(pool), top_share(reg.estimator_.predict(pool), 0.05)
        true = np.exp(pool[top] @ coefficients).mean()
        errors.append((before[top].mean() / true - 1, reg.predict(pool)[top].mean() / true - 1))
    plain, corrected = np.sqrt(np.square(errors).mean(axis=0))
    assert corrected < 1.1 * plain  # it was twice as large by least squares


@pytest.mark.parametrize("bends", [False, True])
def test_a_regression_whose_target_bends_is_reported(bends):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 8))
    score = X.sum(axis=1) / 4
    mean = np.exp(score) if bends else 3 + score
    y = mean * rng.gamma(8, 1 / 8, 3_000)
    reported = pytest.warns(UserWarning, match=r"of the top 10% differ .* by \+.* the target bends .* GammaRegressor")
    with reported if bends else nullcontext():
        UncursedRegressorCV(cv=3, random_state=0).fit(X, y)
