"""Curves of outcomes by score, and regressors around them."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor, TweedieRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uncurse import UncurseError
from uncurse.estimators import UncursedRegressorCV
from uncurse.estimators.outcome_curve import has_log_link
from uncurse.metrics import top_share

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")


def top_errors(reg, pool, true, alpha=0.05):
    """Return the relative error of the plain and of the corrected predictions on the top of a pool."""
    before = reg.estimator_.predict(pool)
    top = top_share(before, alpha)
    return [float(values[top].mean() / true[top].mean() - 1) for values in (before, reg.predict(pool))]


def test_a_target_that_bends_is_followed():
    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(3_000, 8)), rng.normal(size=(5_000, 8))
    y = np.exp(X.sum(axis=1) / 4) * rng.gamma(8, 1 / 8, 3_000)
    reg = UncursedRegressorCV(cv=3, random_state=0).fit(X, y)
    before, after = top_errors(reg, pool, np.exp(pool.sum(axis=1) / 4))
    assert before < -0.15
    assert abs(after) < 0.06
    assert reg.method_ == "labels"
    ranked = reg.predict(pool)[np.argsort(reg.estimator_.predict(pool))]
    assert (np.diff(ranked) >= 0).all()


def test_a_pool_that_differs_from_the_training_rows_moves_the_curve():
    rng = np.random.default_rng(0)
    X, pool = rng.normal(0.5, 1, (2_000, 8)), rng.normal(-0.3, 1, (4_000, 8))
    y = np.exp(X.sum(axis=1) / 5) + 3 + rng.normal(size=2_000)
    model = GradientBoostingRegressor(n_estimators=40, max_depth=4, random_state=0)
    true = np.exp(pool.sum(axis=1) / 5) + 3
    alone, moved = (
        UncursedRegressorCV(model, cv=3, n_replicas=2, random_state=0).fit(X, y, pool=rows) for rows in (None, pool)
    )
    assert alone.record_.shift_probability == 0
    assert moved.record_.shift_probability > 0.99
    assert top_errors(alone, pool, true)[1] > 0.04
    assert abs(top_errors(moved, pool, true)[1]) < 0.04


@pytest.mark.theory
@pytest.mark.parametrize("alpha", [0.02, 0.1])
def test_intervals_of_a_regression_hold(alpha):
    held, width = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, pool = rng.normal(size=(1_000, 5)), rng.normal(size=(4_000, 5))
        true = 4 + pool.sum(axis=1) / 4
        y = (4 + X.sum(axis=1) / 4) * rng.gamma(4, 1 / 4, 1_000)
        reg = UncursedRegressorCV(cv=3, n_replicas=2, random_state=seed).fit(X, y)
        low, high = reg.interval(alpha)
        held.append(low <= top_errors(reg, pool, true, alpha)[1] <= high)
        width.append(high - low)
    assert np.mean(held) == pytest.approx(0.9, abs=3 * np.sqrt(0.9 * 0.1 / 60))
    assert np.mean(width) < 0.25


def test_a_mean_that_is_not_positive_has_no_interval():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    reg = UncursedRegressorCV(cv=2, n_replicas=2, random_state=0).fit(X, X.sum(axis=1) - 50)
    with pytest.raises(UncurseError, match="the mean target on the top is not positive"):
        reg.interval(0.1)


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
def test_penalized_counts_and_amounts_are_corrected_and_stay_positive(family):
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
