import numpy as np
import pytest
from scipy.special import expit, logit

from uncurse import Joint, UncurseError
from uncurse.debias.latent_scores import Mixture, _binned, _chance_of_variance, _expectation_maximisation, seen

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def pool_of(rows, replicas=2, *, seed=0, mean=-2.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def posterior_mean(x, variance, mean=-2.0, sd=0.8):
    """logit E[φ(t) | x], and the variance of φ(t) left, where x is normal about t."""
    slope = sd**2 / (sd**2 + variance)
    l = (slope * x + (1 - slope) * mean)[:, None] + np.sqrt(slope * variance) * NODES
    p = expit(l) @ WEIGHTS
    return logit(p), expit(l) ** 2 @ WEIGHTS - p**2


# ---------------------------------------------------------------------------- what is seen


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_seeds_show_the_mean_and_the_variance_of_all_columns(replicas):
    pool = pool_of(30_000, replicas) + np.linspace(0, 1.5, replicas)  # levels of their own
    data = seen(Joint().update(pool), "seeds")
    centred = pool - pool.mean(axis=0)
    w = data.weight / data.weight.sum()
    np.testing.assert_allclose(w @ data.mean, pool.mean(), atol=0.01)
    np.testing.assert_allclose(w @ data.mean**2 - (w @ data.mean) ** 2, centred.mean(axis=1).var(), rtol=0.02)
    np.testing.assert_allclose(w @ data.variance, centred.var(axis=1, ddof=1).mean(), rtol=0.02)
    assert (data.models, data.freedom) == (replicas, replicas - 1)
    np.testing.assert_allclose(data.level, pool.mean() - pool[:, 0].mean(), atol=0.01)


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_anchored_bootstraps_show_how_they_scatter_about_the_served_score(replicas):
    pool = pool_of(30_000, replicas) + 0.5 * np.arange(replicas)
    data = seen(Joint().update(pool), "anchored")
    away = pool[:, 1:] - pool[:, :1]
    expected = (away - away.mean(axis=0)).var(axis=0).mean()
    np.testing.assert_allclose(np.average(data.variance, weights=data.weight), expected, rtol=0.02)
    assert (data.models, data.freedom, data.level) == (1, replicas - 1, 0.0)


@pytest.mark.parametrize("replicas", [3, 6])
def test_bootstraps_of_their_own_show_their_variance(replicas):
    pool = pool_of(30_000, replicas) + 0.5 * np.arange(replicas)
    data = seen(Joint().update(pool), "bootstrap")
    others = pool[:, 1:] - pool[:, 1:].mean(axis=0)
    expected = others.var(axis=1, ddof=1).mean()
    np.testing.assert_allclose(np.average(data.variance, weights=data.weight), expected, rtol=0.03)
    assert (data.models, data.freedom) == (1, replicas - 2)


def test_two_columns_are_too_few_for_bootstraps_of_their_own():
    with pytest.raises(UncurseError, match="there are 2 columns and replicas='bootstrap' needs 3"):
        seen(Joint().update(pool_of(50)), "bootstrap")


def test_an_unknown_kind_of_replica_is_named():
    with pytest.raises(UncurseError, match="replicas"):
        seen(Joint().update(pool_of(50)), "jackknife")


# ---------------------------------------------------------------------------- a normal world, in closed form


@pytest.mark.parametrize(("replicas", "kind"), [(2, "seeds"), (3, "seeds"), (6, "seeds"), (3, "bootstrap")])
def test_in_a_normal_world_the_label_free_map_is_the_normal_posterior_mean(replicas, kind):
    mixture = Mixture.fit(Joint().update(pool_of(100_000, replicas)), kind)
    x = np.linspace(-3.5, -0.2, 30)  # two standard deviations of the served score
    expected, _ = posterior_mean(x, 0.16)
    assert np.abs(mixture.odds(x) - expected).max() < 0.08
    weight = np.exp(-0.5 * np.square(x + 2) / 0.8)
    assert abs(np.average(mixture.odds(x) - expected, weights=weight)) < 0.01


@pytest.mark.parametrize("replicas", [2, 3, 6])
def test_in_a_normal_world_what_replicas_tell_together_is_the_normal_posterior_mean(replicas):
    joint = Joint().update(pool_of(100_000, replicas))
    data = seen(joint, "seeds")
    told, left = Mixture.fit(joint).told(data)
    expected, uncertain = posterior_mean(data.mean, 0.16 / replicas)
    w = data.weight / data.weight.sum()
    assert np.sqrt(w @ np.square(told - expected)) < 0.06  # of scores whose spread is 0.8
    assert abs(w @ (expit(told) - expit(expected))) < 0.001
    np.testing.assert_allclose(w @ left, w @ uncertain, rtol=0.1)


def test_anchored_bootstraps_give_the_same_map():
    rng = np.random.default_rng(0)
    served = rng.normal(-2, 0.8, 100_000) + 0.4 * rng.normal(size=100_000)
    pool = np.column_stack([served, served + 0.4 * rng.normal(size=100_000)])
    x = np.linspace(-3.5, -0.2, 30)
    assert np.abs(Mixture.fit(Joint().update(pool), "anchored").odds(x) - posterior_mean(x, 0.16)[0]).max() < 0.1


def test_levels_of_the_other_replicas_do_not_matter_to_the_served_one_but_for_the_mean_of_all():
    pool = pool_of(20_000, 3)
    plain = Mixture.fit(Joint().update(pool))
    raised = Mixture.fit(Joint().update(pool + np.array([0.0, 0.4, -0.4])))
    x = np.linspace(-3.5, -0.2, 30)
    np.testing.assert_allclose(raised.odds(x), plain.odds(x), atol=0.05)


def test_rows_that_scatter_more_are_pulled_further():
    rng = np.random.default_rng(0)
    noise = np.where(rng.random((100_000, 1)) < 0.5, 0.1, 0.8)
    pool = rng.normal(-2, 0.8, (100_000, 1)) + noise * rng.normal(size=(100_000, 6))
    joint = Joint().update(pool)
    data = seen(joint, "seeds")
    told, _ = Mixture.fit(joint).told(data)
    high = (data.mean > -1.2) & (data.mean < -0.8)
    pulled = (told - data.mean)[high]
    calm, wild = data.variance[high] < 0.05, data.variance[high] > 0.3
    w = data.weight[high]
    expected = [posterior_mean(np.array([-1.0]), s**2 / 6)[0][0] + 1 for s in (0.1, 0.8)]
    assert abs(np.average(pulled[calm], weights=w[calm]) - expected[0]) < 0.03
    assert abs(np.average(pulled[wild], weights=w[wild]) - expected[1]) < 0.06


# ---------------------------------------------------------------------------- the fit


def test_a_turn_of_the_algorithm_never_lowers_the_likelihood():
    data = seen(Joint().update(pool_of(5_000, 3)), "seeds")
    noises, points = np.array([0.1, 0.3, 0.5, 0.9]), np.linspace(-5, 1, 20)
    edges = np.array([0.0, 0.05, 0.15, 0.4, np.inf])
    by_variance = _chance_of_variance(edges, noises, 2)
    bins, counts = _binned(data, edges)
    spread = np.sqrt(noises**2 / 3 + 0.1**2)
    kernel = np.exp(-0.5 * np.square((bins[None, :, None] - points) / spread[:, None, None])) / spread[:, None, None]
    share = np.full((20, 4), 1 / 80)

    def likelihood(share):
        chance = np.einsum("nbl,ln,vn->bv", kernel, share, by_variance)
        return float((counts * np.log(np.maximum(chance, 1e-300))).sum())

    reached = [likelihood(share)]
    for _ in range(60):
        share = _expectation_maximisation(kernel, by_variance, counts, share, 1)
        reached.append(likelihood(share))
        np.testing.assert_allclose(share.sum(), 1, rtol=1e-12)
    assert (np.diff(reached) > -1e-12).all()
    assert reached[-1] > reached[0] + 0.01


def test_chances_of_a_variance_are_those_of_chi_squared():
    from scipy.stats import chi2

    edges, noises = np.array([0.0, 0.1, 0.5, np.inf]), np.array([0.3, 1.0])
    for freedom in (1, 2, 5):
        expected = np.diff(chi2.cdf(edges[:, None] * freedom / noises**2, freedom), axis=0)
        np.testing.assert_allclose(_chance_of_variance(edges, noises, freedom), expected, atol=1e-12)
        np.testing.assert_allclose(_chance_of_variance(edges, noises, freedom).sum(axis=0), 1)


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_shares_are_a_distribution_and_carry_the_mean_of_scores(scale):
    pool = scale * pool_of(20_000)
    mixture = Mixture.fit(Joint().update(pool))
    assert (mixture.share >= 0).all()
    np.testing.assert_allclose(mixture.share.sum(), 1)
    np.testing.assert_allclose(mixture.share.sum(axis=1) @ mixture.points, pool.mean(), atol=0.02 * scale)
    noise = np.sqrt(mixture.share.sum(axis=0) @ np.square(mixture.noises))
    np.testing.assert_allclose(noise, 0.4 * scale, rtol=0.05)


def test_identical_replicas_show_no_noise():
    pool = np.repeat(pool_of(500)[:, :1], 2, axis=1)
    with pytest.raises(UncurseError, match="the replicas are identical, or their scores constant"):
        Mixture.fit(Joint().update(pool))


def test_a_score_that_no_row_was_near_is_worth_a_finite_number():
    mixture = Mixture.fit(Joint().update(pool_of(2_000)))
    assert np.isfinite(mixture.odds(np.array([-60.0, 60.0]))).all()
