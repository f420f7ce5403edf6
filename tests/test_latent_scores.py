import numpy as np
import pytest
from scipy.special import expit, logit

from uncurse import ReplicaCounts, UncurseError
from uncurse.debias.latent_scores import ReplicaModel, _Problem

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def pool_of(rows, replicas=2, *, seed=0, mean=-2.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def cells_of(pool):
    return ReplicaCounts().update(pool).cells()


def summarize(cells, replicas):
    return ReplicaModel(cells, replicas).summary


def fit_latent(summary, rows):
    (fitted,) = _Problem.of(summary, rows, rows).solve()
    return fitted


def latent_of(pool, replicas="seeds"):
    cells = cells_of(pool)
    return fit_latent(summarize(cells, replicas), cells.effective_rows)


def posterior_mean(x, variance, mean=-2.0, sd=0.8):
    """Return logit E[φ(t) | x] and the posterior variance of φ(t), where x is normal about t."""
    slope = sd**2 / (sd**2 + variance)
    l = (slope * x + (1 - slope) * mean)[:, None] + np.sqrt(slope * variance) * NODES
    p = expit(l) @ WEIGHTS
    return logit(p), expit(l) ** 2 @ WEIGHTS - p**2


# ---------------------------------------------------------------------------- summaries


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_summary_of_seeds_is_the_mean_and_variance_of_all_columns(replicas):
    pool = pool_of(30_000, replicas) + (0.3 if replicas > 3 else 1.5) * np.linspace(0, 1, replicas)  # different levels
    data = summarize(cells_of(pool), "seeds")
    centred = pool - pool.mean(axis=0)
    w = data.weight / data.weight.sum()
    np.testing.assert_allclose(w @ data.mean, pool.mean(), atol=0.01)
    np.testing.assert_allclose(w @ data.mean**2 - (w @ data.mean) ** 2, centred.mean(axis=1).var(), rtol=0.02)
    np.testing.assert_allclose(w @ data.variance, centred.var(axis=1, ddof=1).mean(), rtol=0.02)
    assert (data.models, data.freedom) == (replicas, replicas - 1)
    np.testing.assert_allclose(data.level, pool.mean() - pool[:, 0].mean(), atol=0.01)


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_summary_of_anchored_bootstraps_is_their_variance_about_the_served_score(replicas):
    pool = pool_of(30_000, replicas) + (0.05 if replicas > 3 else 0.5) * np.arange(replicas)
    data = summarize(cells_of(pool), "anchored")
    away = pool[:, 1:] - pool[:, :1]
    expected = (away - away.mean(axis=0)).var(axis=0).mean()
    np.testing.assert_allclose(np.average(data.variance, weights=data.weight), expected, rtol=0.02)
    assert (data.models, data.freedom, data.level) == (1, replicas - 1, 0.0)


@pytest.mark.parametrize("replicas", [3, 6])
def test_summary_of_bootstraps_is_their_variance(replicas):
    pool = pool_of(30_000, replicas) + (0.05 if replicas > 3 else 0.5) * np.arange(replicas)
    data = summarize(cells_of(pool), "bootstrap")
    others = pool[:, 1:] - pool[:, 1:].mean(axis=0)
    expected = others.var(axis=1, ddof=1).mean()
    np.testing.assert_allclose(np.average(data.variance, weights=data.weight), expected, rtol=0.03)
    assert (data.models, data.freedom) == (1, replicas - 2)


@pytest.mark.parametrize("kind", ["seeds", "anchored"])
@pytest.mark.parametrize("replicas", [4, 6])
def test_noise_of_replicas_with_very_different_levels_is_unbiased(kind, replicas):
    pool = pool_of(30_000, replicas)
    if kind == "anchored":
        pool[:, 1:] = pool[:, :1] + 0.4 * np.random.default_rng(1).normal(size=(30_000, replicas - 1))
    data = summarize(cells_of(pool + np.arange(replicas)), kind)
    assert data.freedom == replicas - 1
    # 30,000 squares of a normal: a standard error of 0.8%.
    np.testing.assert_allclose(np.average(data.variance, weights=data.weight), 0.16, rtol=0.03)


def test_bootstraps_whose_levels_differ_by_much_keep_their_mean_noise():
    pool = pool_of(30_000, 4)
    near, far = (summarize(cells_of(pool + shift * np.arange(4)), "bootstrap") for shift in (0.0, 1.0))
    means = [np.average(data.variance, weights=data.weight) for data in (near, far)]
    assert means[1] == pytest.approx(means[0], rel=0.02)


def test_bootstraps_need_three_columns():
    with pytest.raises(UncurseError, match="there are 2 score columns and replicas='bootstrap' needs 3"):
        summarize(cells_of(pool_of(50)), "bootstrap")


def test_an_unknown_kind_of_replica_is_named():
    with pytest.raises(UncurseError, match="replicas"):
        summarize(cells_of(pool_of(50)), "jackknife")


# ---------------------------------------------------------------------------- normal scores, in closed form


@pytest.mark.parametrize(("replicas", "kind"), [(2, "seeds"), (3, "seeds"), (6, "seeds"), (3, "bootstrap")])
def test_label_free_map_of_normal_scores_is_the_posterior_mean(replicas, kind):
    latent = latent_of(pool_of(100_000, replicas), kind)
    x = np.linspace(-3.5, -0.2, 30)  # two standard deviations of the served score
    expected, _ = posterior_mean(x, 0.16)
    assert np.abs(latent.log_odds(x) - expected).max() < 0.08
    weight = np.exp(-0.5 * np.square(x + 2) / 0.8)
    assert abs(np.average(latent.log_odds(x) - expected, weights=weight)) < 0.01


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_posterior_of_normal_replicas_is_the_normal_posterior(replicas):
    cells = cells_of(pool_of(100_000, replicas))
    data = summarize(cells, "seeds")
    denoised, left = fit_latent(data, cells.effective_rows).posterior_logit(data)
    expected, uncertain = posterior_mean(data.mean, 0.16 / replicas)
    w = data.weight / data.weight.sum()
    assert np.sqrt(w @ np.square(denoised - expected)) < 0.06  # of scores whose spread is 0.8
    assert abs(w @ (expit(denoised) - expit(expected))) < 0.001
    np.testing.assert_allclose(w @ left, w @ uncertain, rtol=0.1)


def test_anchored_bootstraps_give_the_same_map():
    rng = np.random.default_rng(0)
    served = rng.normal(-2, 0.8, 100_000) + 0.4 * rng.normal(size=100_000)
    pool = np.column_stack([served, served + 0.4 * rng.normal(size=100_000)])
    x = np.linspace(-3.5, -0.2, 30)
    assert np.abs(latent_of(pool, "anchored").log_odds(x) - posterior_mean(x, 0.16)[0]).max() < 0.1


def test_levels_of_other_replicas_matter_only_through_their_mean():
    pool = pool_of(20_000, 3)
    plain = latent_of(pool)
    raised = latent_of(pool + np.array([0.0, 0.4, -0.4]))
    x = np.linspace(-3.5, -0.2, 30)
    np.testing.assert_allclose(raised.log_odds(x), plain.log_odds(x), atol=0.05)


def test_rows_with_a_larger_variance_are_shrunk_more():
    rng = np.random.default_rng(0)
    noise = np.where(rng.random((100_000, 1)) < 0.5, 0.1, 0.8)
    pool = rng.normal(-2, 0.8, (100_000, 1)) + noise * rng.normal(size=(100_000, 6))
    cells = cells_of(pool)
    data = summarize(cells, "seeds")
    denoised, _ = fit_latent(data, cells.effective_rows).posterior_logit(data)
    high = (data.mean > -1.2) & (data.mean < -0.8)
    pulled = (denoised - data.mean)[high]
    calm, wild = data.variance[high] < 0.05, data.variance[high] > 0.3
    w = data.weight[high]
    expected = [posterior_mean(np.array([-1.0]), s**2 / 6)[0][0] + 1 for s in (0.1, 0.8)]
    assert abs(np.average(pulled[calm], weights=w[calm]) - expected[0]) < 0.03
    assert abs(np.average(pulled[wild], weights=w[wild]) - expected[1]) < 0.06


# ---------------------------------------------------------------------------- the fit


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_weights_sum_to_one_and_have_the_mean_of_the_scores(scale):
    pool = scale * pool_of(20_000)
    latent = latent_of(pool)
    assert (latent.share >= 0).all()
    np.testing.assert_allclose(latent.share.sum(), 1)
    np.testing.assert_allclose(latent.share.sum(axis=1) @ latent.grid.points, pool.mean(), atol=0.02 * scale)
    noise = np.sqrt(latent.share.sum(axis=0) @ np.square(latent.grid.noises))
    np.testing.assert_allclose(noise, 0.4 * scale, rtol=0.05)


def test_rows_without_variance_have_no_latent_scores():
    cells = cells_of(pool_of(500))
    summary = summarize(cells, "seeds")
    for without in (summary._replace(variance=0 * summary.variance), summary._replace(mean=0 * summary.mean)):
        with pytest.raises(UncurseError, match="the replicas are identical or their scores constant"):
            fit_latent(without, cells.effective_rows)


def test_scores_far_from_every_row_have_finite_log_odds():
    latent = latent_of(pool_of(2_000))
    assert np.isfinite(latent.log_odds(np.array([-60.0, 60.0]))).all()


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("offset", [0.0, 0.3, -2.0])
def test_a_model_of_identical_columns_has_no_latent_scores(replicas, offset):
    model = ReplicaModel(cells_of(pool_of(500)[:, :1] + offset * np.arange(replicas)), "seeds")
    assert model.identical
    assert model.latent is None
    assert model.resampled == []
    logit_, variance = model.posterior_logit(None)
    np.testing.assert_array_equal(logit_, model.summary.mean)
    assert not variance.any()


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.4])
def test_a_model_of_columns_with_little_noise_has_latent_scores(noise):
    assert not ReplicaModel(cells_of(pool_of(500, noise=noise)), "seeds").identical


@pytest.mark.parametrize("kind", ["seeds", "anchored"])
def test_bootstrap_samples_vary_as_new_pools_do(kind):
    """The start of EM is part of the estimate: it is stopped after few iterations."""
    x = np.array([-1.0, 0.0])

    def drawn(seed):
        pool = pool_of(2_000, 3, seed=seed)
        if kind == "anchored":
            rng = np.random.default_rng(1_000 + seed)
            pool[:, 1:] = pool[:, :1] + 0.4 * rng.normal(size=(2_000, 2))
        return pool

    over_pools = np.std([latent_of(drawn(seed), kind).log_odds(x) for seed in range(40)], axis=0, ddof=1)
    models = [ReplicaModel(cells_of(drawn(seed)), kind) for seed in range(5)]
    estimated = np.sqrt(np.mean([np.var([f.log_odds(x) for f in m.resampled], axis=0, ddof=1) for m in models], axis=0))
    # 40 pools and 5 times 12 samples: standard errors of 11% and 10%.
    np.testing.assert_allclose(estimated / over_pools, 1, atol=0.4)
