"""The monotone shape: the teacher, the distribution of true scores, and the maps that follow."""

import re

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from simulated import error_on_top, posterior_mean, rows_of
from uncurse import VAD, Auto, UncurseError
from uncurse.evidence import ReplicaTable, from_arrays
from uncurse.methods import KINDS
from uncurse.methods.label_free import regress_on_served, teacher
from uncurse.methods.truth import TruthModel

X = np.linspace(-4, -0.5, 20)


def pool_of(rows, replicas=3, **world):
    return rows_of(rows, replicas, **world)[:2]


def fit(pool, kind="seeds", **options):
    return VAD(**{"scale": "logit", "replicas": kind, "shape": "monotone", **options}).fit(pool)


def model_of(pool, kind="seeds"):
    return TruthModel(KINDS[kind].table_of(from_arrays(pool), "pool"), kind)


# ---------------------------------------------------------------------------- the teacher


def taught_by(others):
    """Return the teacher of exact rows: cells of width 0 and equal levels."""
    size, count = others.shape
    mean, spread = others.mean(axis=1), others.var(axis=1, ddof=1)
    return teacher(ReplicaTable(mean, 0 * mean, spread, np.ones(size), None, np.zeros(count + 1), 0.0, float(size)))


@pytest.mark.parametrize(("replicas", "points"), [(2, 80), (3, 40), (5, 12)])
@pytest.mark.parametrize("t", [-6.0, -3.0, -0.5, 0.0, 2.0])
@pytest.mark.parametrize("sigma", [0.1, 0.4, 0.7])
def test_the_teacher_is_unbiased_for_the_true_probability(replicas, points, t, sigma):
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    columns = np.stack([x.ravel() for x in np.meshgrid(*[nodes] * replicas, indexing="ij")], axis=1)
    chance = np.prod([x.ravel() for x in np.meshgrid(*[weights / weights.sum()] * replicas, indexing="ij")], axis=0)
    assert abs(chance @ taught_by(t + sigma * columns) / expit(t) - 1) < 2e-4  # the accuracy of the rules


def test_the_teacher_is_the_real_part_of_the_complex_logistic():
    a, b = np.random.default_rng(0).normal(-1, 1, (2, 500))
    z = (a + b) / 2 + 1j * (a - b) / 2
    np.testing.assert_allclose(taught_by(np.column_stack([a, b])), (1 / (1 + np.exp(-z))).real, rtol=1e-10)


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_the_teacher_of_extreme_scores_is_finite_and_symmetric(replicas):
    pool = pool_of(500, replicas)[1]
    np.testing.assert_allclose(taught_by(-pool), 1 - taught_by(pool), atol=1e-12)
    l = np.linspace(-30, 30, 61)
    np.testing.assert_allclose(taught_by(np.repeat(l[:, None], replicas, axis=1)), expit(l), rtol=1e-12)
    with np.errstate(all="ignore"):
        assert taught_by(np.full((1, replicas), -800.0))[0] == 0
        assert np.isfinite(taught_by(np.array([[np.pi, -np.pi]]))).all()  # a pole


def test_the_regression_follows_the_curvature_of_noisy_scores():
    """Mean probabilities at a noisy score are close to a line, and yet a line is 0.6% too high on the top 1%."""
    table = model_of(pool_of(200_000, mean=-3.6)[1]).table

    def exact(served):
        return expit(posterior_mean(served, 0.16, mean=-3.6)[0])

    curve = regress_on_served(table, exact(table.served), teacher(table))
    served = norm.isf(np.linspace(1e-5, 0.01, 2_000), -3.6, np.hypot(0.8, 0.4))
    assert abs(expit(curve(served)).mean() / exact(served).mean() - 1) < 0.003


# ---------------------------------------------------------------------------- the distribution of true scores


@pytest.mark.parametrize(
    ("replicas", "kind"), [(2, "seeds"), (3, "seeds"), (6, "seeds"), (2, "bootstrap"), (3, "bootstrap")]
)
def test_log_odds_of_normal_scores_are_the_posterior_mean(replicas, kind):
    latent = model_of(pool_of(100_000, replicas, kind=kind)[1], kind).latent
    x = np.linspace(-4, -0.7, 30)  # two standard deviations of the served score
    away = latent.log_odds(x) - posterior_mean(x, 0.16)[0]
    assert np.abs(away).max() < 0.1
    assert abs(np.average(away, weights=np.exp(-0.5 * np.square(x + 2.5) / 0.8))) < 0.02
    assert np.isfinite(latent.log_odds(np.array([-60.0, 60.0]))).all()


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_the_posterior_of_normal_replicas_is_the_normal_posterior(replicas):
    model = model_of(pool_of(100_000, replicas)[1])
    denoised, variance = model.posterior_logit()
    expected, expected_variance = posterior_mean(model.summary.mean, 0.16 / replicas)
    w = model.summary.weight / model.summary.weight.sum()
    assert np.sqrt(w @ np.square(denoised - expected)) < 0.06  # of scores whose spread is 0.8
    assert abs(w @ (expit(denoised) - expit(expected))) < 0.001
    np.testing.assert_allclose(w @ variance, w @ expected_variance, rtol=0.1)


def test_rows_with_a_larger_variance_are_shrunk_more():
    rng = np.random.default_rng(0)
    noise = np.where(rng.random((100_000, 1)) < 0.5, 0.1, 0.8)
    model = model_of(rng.normal(-2.5, 0.8, (100_000, 1)) + noise * rng.normal(size=(100_000, 6)))
    (denoised, _), data = model.posterior_logit(), model.summary
    high = (data.mean > -1.7) & (data.mean < -1.3)
    for chosen, s, most in ((data.variance < 0.05, 0.1, 0.03), (data.variance > 0.3, 0.8, 0.06)):
        rows = high & chosen
        expected = posterior_mean(np.array([-1.5]), s**2 / 6)[0][0] + 1.5
        assert abs(np.average((denoised - data.mean)[rows], weights=data.weight[rows]) - expected) < most


def test_levels_of_other_replicas_matter_only_through_their_mean():
    pool = pool_of(20_000)[1]
    plain, raised = (model_of(pool + shift).latent.log_odds(X) for shift in (np.zeros(3), np.array([0.0, 0.4, -0.4])))
    np.testing.assert_allclose(raised, plain, atol=0.05)


@pytest.mark.theory
@pytest.mark.parametrize("kind", ["seeds", "bootstrap"])
def test_bootstrap_samples_vary_as_new_pools_do(kind):
    """The start of EM is part of the estimate: it is stopped after few iterations."""
    x = np.array([-1.5, -0.5])
    models = [model_of(pool_of(2_000, seed=seed, kind=kind)[1], kind) for seed in range(40)]
    over_pools = np.std([model.latent.log_odds(x) for model in models], axis=0, ddof=1)
    drawn = [np.var(model.resampled.log_odds(x), axis=0, ddof=1) for model in models[:5]]
    # 40 pools and 5 times 12 samples: standard errors of 11% and 10%.
    np.testing.assert_allclose(np.sqrt(np.mean(drawn, axis=0)) / over_pools, 1, atol=0.4)


# ---------------------------------------------------------------------------- maps


@pytest.mark.parametrize(("replicas", "kind"), [(2, "seeds"), (3, "seeds"), (2, "bootstrap"), (3, "bootstrap")])
def test_the_map_is_unbiased_on_the_top_for_normal_scores(replicas, kind):
    truth, pool = pool_of(60_000, replicas, kind=kind)
    vad = fit(pool, kind)
    for alpha in (0.02, 0.1, 1.0):
        error = error_on_top(vad.map_, truth, pool[:, 0], alpha)
        low, high = vad.interval(alpha, 0.999)
        assert low < error < high
        assert abs(error) < 0.03
    assert error_on_top(expit, truth, pool[:, 0], 0.02) > 0.25


def test_the_map_is_unbiased_for_unequal_noise_where_one_lambda_is_not():
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 0.8, 100_000)
    noise = np.exp(rng.uniform(np.log(0.05), np.log(0.9), (100_000, 1)))
    pool = truth[:, None] + noise * rng.normal(size=(100_000, 3))
    curved = fit(pool, shape="straight", curvature=True)
    assert error_on_top(curved.map_, truth, pool[:, 0], 0.01) > 0.06
    for vad in (fit(pool), fit(pool[:, :2])):
        assert abs(error_on_top(vad.map_, truth, pool[:, 0], 0.01)) < 0.04


@pytest.mark.theory
@pytest.mark.parametrize(("replicas", "kind"), [(2, "seeds"), (3, "seeds"), (3, "bootstrap")])
def test_normal_scores_rarely_contradict_one_lambda(replicas, kind):
    auto, weights = Auto(scale="logit", replicas=kind), []
    for seed in range(8):
        auto.fit(pool_of(4_000, replicas, seed=seed, kind=kind)[1])
        found = re.search(r"weight of (\d+)%", auto.reason_)
        weights.append(int(found[1]) / 100 if found else float(auto.method_ == "vad with curvature"))
    assert np.mean(weights) > 0.6
    # Two bootstraps show their variance by a single difference: one of the eight pools contradicts λ by chance.
    assert sum(weight < 0.1 for weight in weights) <= (kind == "bootstrap")


def test_pure_noise_is_predicted_by_its_mean():
    pool = np.random.default_rng(0).normal(-2, 1, (999, 3))  # of more rows it is an error
    np.testing.assert_allclose(logit(fit(pool).predict_proba([-4.0, -2.0, 0.0])), -2, atol=0.1)


# ---------------------------------------------------------------------------- unusual scores


@pytest.mark.parametrize(("replicas", "row"), [(2, 800.0), (3, -800.0), (3, [300.0, -300.0])])
def test_one_outlier_does_not_change_the_map(replicas, row):
    truth, pool = pool_of(20_000, replicas)
    pool[0, :2] = row
    with np.errstate(all="ignore"), pytest.warns(UserWarning, match="a served score is -?[38]00"):
        assert abs(error_on_top(fit(pool).map_, truth[1:], pool[1:, 0], 0.05)) < 0.05


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_a_floor_does_not_bias_the_map_and_a_cap_is_an_error(replicas, floor):
    truth, pool = pool_of(20_000, replicas)
    low, high = np.quantile(pool[:, 0], [floor, 0.95])
    with pytest.raises(UncurseError, match=r"5\.0% of the served scores are capped"):
        fit(np.clip(pool, low, high))
    pool = np.maximum(pool, low)
    vad = fit(pool)
    assert (np.diff(vad.predict_proba(np.linspace(-9, 3, 400))) > 0).all()
    for alpha in (0.02, 0.1):
        error = error_on_top(vad.map_, truth, pool[:, 0], alpha)
        interval = vad.interval(alpha, 0.999)
        assert abs(error) < 0.05
        assert interval[0] < error < interval[1]


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("rows", [20, 99])
def test_few_rows_give_an_increasing_map_that_is_not_flat(replicas, rows):
    for seed in range(3):
        vad = fit(pool_of(rows, replicas, seed=seed)[1])
        l = vad.map_.transform(np.linspace(-6, 1, 50))
        assert (np.diff(l) > 0).all()
        assert l[-1] - l[0] > 0.05 * 7
        assert np.isfinite(vad.interval(0.1)).all()


@pytest.mark.filterwarnings("ignore:the replicas are identical")
@pytest.mark.parametrize("offset", [0.0, -2.0])
def test_identical_columns_keep_the_scores_or_are_an_error(offset):
    served = pool_of(1_000)[1][:, :1]
    with pytest.raises(UncurseError, match="the replicas are identical"):
        fit(served + offset * np.arange(2))
    vad = fit(served + offset * np.arange(3))
    np.testing.assert_allclose(vad.map_.transform(X), X + offset, atol=0.01)  # all at their common mean level


def test_replicas_that_disagree_on_the_lowest_scores_leave_the_curve_finite():
    # Estimates of probabilities by the other replicas may be negative, and so may be the sum of those of few rows.
    rng = np.random.default_rng(10)
    pool = rng.normal(-3, 0.8, (20_000, 1)) + 0.5 * rng.standard_t(3, (20_000, 3))
    for method in (fit(pool), Auto(scale="logit", replicas="seeds").fit(pool)):
        predictions = method.predict_proba(np.sort(pool[:, 0]))
        assert (np.diff(predictions) >= 0).all()
        assert 0 < predictions[0] < predictions[-1] < 1
