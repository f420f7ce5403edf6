import json

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.special import logit as true_logit
from sklearn.linear_model import LogisticRegression

from uncurse import VAD, Affine, Cells, Chain, Grouped, Moments, UncurseError, calibrate
from uncurse.calibration.calibrators import CALIBRATORS
from uncurse.debias.vad import REPLICAS, curved, noise_variance
from uncurse.links import LINKS, get_link
from uncurse.metrics.selection import top_share


def pool_of(rows, replicas=2, *, seed=0, mean=-3.0, sd=0.8, noise=0.4):
    """Exchangeable replicas; λ = sd² / (sd² + noise²), 0.8 by default."""
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def labelled_of(rows, replicas=2, *, seed=1, mean=-2.5, sd=1.0, noise=0.4):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    scores = truth[:, None] + noise * rng.normal(size=(rows, replicas))
    return scores, (rng.random(rows) < expit(truth)).astype(int)


# ---------------------------------------------------------------------------- V


def algorithm_1(pool):
    """Steps of the paper's Algorithm 1, one number at a time."""
    rows, replicas = pool.shape
    centred = np.empty_like(pool)
    for s in range(replicas):
        mean = sum(pool[:, s].tolist()) / rows
        for i in range(rows):
            centred[i, s] = pool[i, s] - mean
    total = 0.0
    for i in range(rows):
        row_mean = sum(centred[i].tolist()) / replicas
        total += sum((value - row_mean) ** 2 for value in centred[i].tolist()) / (replicas - 1)
    return total / rows


@pytest.mark.parametrize("replicas", [2, 3, 5])
@pytest.mark.parametrize("offsets", [0.0, 1.0])
def test_the_closed_form_is_the_triple_loop_of_algorithm_1(replicas, offsets):
    pool = pool_of(300, replicas) + offsets * np.arange(replicas)  # replicas with means of their own
    V = algorithm_1(pool)
    np.testing.assert_allclose(noise_variance(np.cov(pool, rowvar=False, ddof=0)), V, rtol=1e-12)
    vad = VAD().fit(pool)
    np.testing.assert_allclose(vad.noise_variance_, V, rtol=1e-12)
    np.testing.assert_allclose(vad.lambda_, 1 - V / np.var(pool[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(vad.center_, pool[:, 0].mean(), rtol=1e-12)


@pytest.mark.parametrize("replicas", [3, 4, 6])
def test_the_bootstrap_form_is_algorithm_1_over_the_columns_after_the_served_one(replicas):
    pool = pool_of(300, replicas)
    vad = VAD(replicas="bootstrap").fit(pool)
    np.testing.assert_allclose(vad.noise_variance_, algorithm_1(pool[:, 1:]), rtol=1e-12)
    np.testing.assert_allclose(vad.score_variance_, np.var(pool[:, 0]), rtol=1e-12)


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_the_anchored_form_is_the_mean_variance_of_the_differences(replicas):
    pool = pool_of(300, replicas)
    expected = np.mean([np.var(pool[:, b] - pool[:, 0]) for b in range(1, replicas)])
    np.testing.assert_allclose(VAD(replicas="anchored").fit(pool).noise_variance_, expected, rtol=1e-12)


@pytest.mark.parametrize("replicas", REPLICAS)
def test_leading_axes_are_kept(replicas):
    stack = np.stack([np.cov(pool_of(50, 3, seed=i), rowvar=False) for i in range(4)])
    one_by_one = [noise_variance(c, replicas) for c in stack]
    np.testing.assert_allclose(noise_variance(stack, replicas), one_by_one, rtol=1e-14)


def literal_lambda(pool):
    return 1 - algorithm_1(pool) / np.var(pool[:, 0])


def test_the_paper_formula_is_the_map():
    pool = pool_of(400)
    vad = VAD().fit(pool)
    l = np.linspace(-8, 3, 101)
    lam = literal_lambda(pool)
    np.testing.assert_allclose(vad.predict_proba(l), expit(lam * l + (1 - lam) * pool[:, 0].mean()), rtol=1e-12)
    assert isinstance(vad.map_, Affine)


def test_vad_p_is_the_formula_on_probabilities_and_stays_inside_0_and_1():
    pool = pool_of(400)
    p = expit(pool)
    lam = literal_lambda(p)
    grid = np.array([0.0, 1e-9, 0.1, 0.5, 1 - 1e-9, 1.0])
    expected = lam * grid + (1 - lam) * p[:, 0].mean()
    np.testing.assert_allclose(VAD(link="identity", scale="probability").fit(p).predict_proba(grid), expected)
    of_logits = VAD(link="identity").fit(pool)
    np.testing.assert_allclose(of_logits.lambda_, lam, rtol=1e-9)
    extreme = of_logits.predict_proba([-1e3, 0.0, 1e3])
    assert (extreme > 0).all()
    assert (extreme < 1).all()


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scores", ["logit", "probability"])
def test_every_link_shrinks_its_own_scores(link, scores):
    pool = pool_of(400)
    given = pool if scores == "logit" else expit(pool)
    l = get_link(link).inverse(expit(pool))
    lam = literal_lambda(l)
    expected = get_link(link).phi(lam * l[:, 0] + (1 - lam) * l[:, 0].mean())
    vad = VAD(link=link, scale=scores).fit(given)
    np.testing.assert_allclose(vad.lambda_, lam, rtol=1e-9)
    np.testing.assert_allclose(vad.predict_proba(given[:, 0]), expected, rtol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-10])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_for_regression_units_do_not_matter(scale, shift):
    pool = pool_of(1000)
    plain = VAD(link="identity", scale="value").fit(pool)
    other = VAD(link="identity", scale="value").fit(scale * (pool + shift))
    np.testing.assert_allclose(other.lambda_, plain.lambda_, rtol=1e-9)
    expected = scale * (plain.predict_proba(pool[:, 0]) + shift)
    np.testing.assert_allclose(other.predict_proba(scale * (pool[:, 0] + shift)), expected, rtol=1e-9)


# ---------------------------------------------------------------------------- known worlds


def simulated(replicas, rows, rng, sd=0.8, noise=0.4):
    """Served = truth + one noise. Seeds and bootstraps repeat the noise; anchored bootstraps add it to the served."""
    truth = rng.normal(-3, sd, rows)
    served = truth + noise * rng.normal(size=rows)
    others = {
        "seeds": lambda: truth + noise * rng.normal(size=rows),
        "bootstrap": lambda: truth + noise * rng.normal(size=rows),
        "anchored": lambda: served + noise * rng.normal(size=rows),
    }[replicas]
    return np.column_stack([served] + [others() for _ in range(2)])


@pytest.mark.parametrize("replicas", REPLICAS)
def test_every_regime_recovers_a_known_lambda(replicas):
    pool = simulated(replicas, 40_000, np.random.default_rng(1))
    vad = VAD(replicas=replicas).fit(pool)
    assert abs(vad.lambda_ - 0.8) < 3 * vad.standard_error_
    assert vad.standard_error_ < 0.01


@pytest.mark.parametrize("replicas", REPLICAS)
def test_the_standard_error_of_lambda_is_the_spread_over_redrawn_pools(replicas):
    fits = [VAD(replicas=replicas).fit(simulated(replicas, 1000, np.random.default_rng(i))) for i in range(200)]
    spread = np.std([f.lambda_ for f in fits], ddof=1)
    # 200 draws: 5% each; 25% is five of these.
    assert abs(np.sqrt(np.mean([f.standard_error_**2 for f in fits])) / spread - 1) < 0.25


def test_anchored_bootstraps_read_as_seeds_give_half_the_noise():
    # The trap of Algorithm 1's text at S = 2: too small by (S − 1)/S.
    pool = simulated("anchored", 40_000, np.random.default_rng(2))[:, :2]
    right, wrong = VAD(replicas="anchored").fit(pool), VAD().fit(pool)
    np.testing.assert_allclose(wrong.noise_variance_, right.noise_variance_ / 2, rtol=1e-9)


@pytest.fixture(scope="module")
def first_world():
    """METHOD.md: CTR 4%, true logit normal with sd .8, equal noise .3; 2M rows."""
    z, w = np.polynomial.hermite_e.hermegauss(60)
    mean = brentq(lambda m: w @ expit(m + 0.8 * z) / w.sum() - 0.04, -6, 0)
    rng = np.random.default_rng(7)
    truth = rng.normal(mean, 0.8, 2_000_000)
    return truth, truth[:, None] + 0.3 * rng.normal(size=(len(truth), 2))


def error_at_the_top(prediction, truth, alpha=0.01):
    top = top_share(prediction, alpha)
    p = expit(truth[top])
    ratio = prediction[top].sum() / p.sum()
    return ratio - 1, p.std() / p.mean() / np.sqrt(top.sum())


@pytest.mark.parametrize(
    ("options", "published"),
    [({}, -0.019), ({"curvature": True}, -0.001), ({"link": "identity"}, 0.073)],
    ids=["VAD", "VAD with curvature", "VAD(p)"],
)
def test_the_first_world_of_the_method_gives_the_published_errors(first_world, options, published):
    truth, pool = first_world
    error, standard_error = error_at_the_top(VAD(**options).fit(pool).predict_proba(pool[:, 0]), truth)
    # Figures printed to 0.1%; 20,000 selected rows make a standard error of 0.2%.
    assert abs(error - published) < 3 * standard_error + 0.0005
    assert standard_error < 0.003


def test_without_a_repair_the_first_world_is_far_too_high(first_world):
    truth, pool = first_world
    error, standard_error = error_at_the_top(expit(pool[:, 0]), truth)
    assert abs(error - 0.226) < 3 * standard_error + 0.0005


# ---------------------------------------------------------------------------- curvature


@pytest.mark.parametrize(
    ("lam", "noise", "center"), [(0.8, 0.09, -3.0), (0.5, 1.0, -3.0), (0.3, 4.0, 0.0), (0.9, 0.5, 2)]
)
def test_curvature_is_the_integral_over_the_posterior(lam, noise, center):
    z = np.linspace(-9, 9, 6001)
    density = np.exp(-z * z / 2)
    density /= density.sum()
    l = np.linspace(-14, 10, 121)
    points = (lam * l + (1 - lam) * center)[:, None] + np.sqrt(lam * noise) * z
    step = curved(lam, center, noise, "logistic")
    np.testing.assert_allclose(step(l), expit(points) @ density, rtol=1e-4)
    np.testing.assert_allclose(1 - step(l), expit(-points) @ density, rtol=1e-4)


@pytest.mark.parametrize("link", ["identity", "log", "probit"])
def test_curvature_is_exact_on_the_other_links(link):
    z, w = np.polynomial.hermite_e.hermegauss(80)
    l = np.linspace(-4, -0.5, 31)
    expected = get_link(link).phi((0.7 * l + 0.3 * -2)[:, None] + np.sqrt(0.7 * 0.2) * z) @ w / w.sum()
    step = curved(0.7, -2.0, 0.2, link)
    np.testing.assert_allclose(get_link(link).phi(step.transform(l)), expected, rtol=1e-9)


def test_without_noise_curvature_does_nothing():
    l = np.linspace(-9, 5, 57)
    np.testing.assert_allclose(curved(1.0, -2.0, 0.0, "logistic")(l), expit(l), rtol=1e-9)


def test_curvature_of_a_group_is_that_of_its_own_noise():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], 100_000)
    noise = np.where(groups == 0, 0.1, 0.7)
    pool = rng.normal(-3, 0.8, (200_000, 1)) + noise[:, None] * rng.normal(size=(200_000, 2))
    together = VAD(curvature=True).fit(pool, groups=groups)
    l = np.linspace(-5, 0, 11)
    for group in (0, 1):
        alone = VAD(curvature=True).fit(pool[groups == group])
        # 100,000 rows: λ is known to 0.3%; the bend of the wrong group is worth 4%.
        np.testing.assert_allclose(together.predict_proba(l, np.full(11, group)), alone.predict_proba(l), rtol=0.01)


# ---------------------------------------------------------------------------- tandem


def literal_tandem(pool, scores, y, method, served, weights=None, **options):
    """Calibrate, then shrink about the mean calibrated logit of the pool by λ_pool / λ_labelled."""
    step = calibrate(method, scores[:, 0], y, sample_weight=weights, **options)
    calibrated = true_logit(step(pool[:, 0]))
    ratio = literal_lambda(pool) / literal_lambda(scores)
    return expit(ratio * true_logit(step(served)) + (1 - ratio) * calibrated.mean()), ratio


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_tandem_shrinks_what_is_calibrated_by_the_ratio_of_lambdas(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    served = np.linspace(-6, 1, 101)
    expected, ratio = literal_tandem(pool, scores, y, method, served)
    vad = VAD(calibrator=method, recentre=False).fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.lambda_, ratio, rtol=1e-12)
    np.testing.assert_allclose(vad.predict_proba(served), expected, rtol=1e-9)
    # λ_pool = .8 and λ_labelled = .862: the ratio is 0.93, and could as well be above 1.
    reverse = VAD(calibrator=method).fit(scores, labelled=(scores, y))
    np.testing.assert_allclose(reverse.lambda_, 1.0, rtol=1e-12)


@pytest.mark.parametrize("method", ["histogram", "scaling-binning"])
def test_a_tandem_passes_options_to_its_calibrator(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    served = np.linspace(-6, 1, 101)
    options = {"n_bins": 7, "refine_top": 0.01}
    expected, _ = literal_tandem(pool, scores, y, method, served, **options)
    vad = VAD(calibrator=method, calibrator_options=options, recentre=False).fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.predict_proba(served), expected, rtol=1e-9)


def literal_recentred(pool, scores, y, method, served):
    """To the labelled score that stands for the same truth, then calibrate."""
    step = calibrate(method, scores[:, 0], y)
    ours, theirs = literal_lambda(pool), literal_lambda(scores)
    center, away = pool[:, 0].mean(), scores[:, 0].mean()
    truth = center + ours * (served - center)
    return step(away + (truth - away) / theirs)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_recentred_tandem_calibrates_the_labelled_score_of_the_same_truth(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    served = np.linspace(-6, 1, 101)
    vad = VAD(calibrator=method).fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.predict_proba(served), literal_recentred(pool, scores, y, method, served), rtol=1e-9)
    from_moments = VAD(calibrator=method).fit(Moments().update(pool), labelled=(scores, y))
    np.testing.assert_allclose(from_moments.predict_proba(served), vad.predict_proba(served), rtol=1e-12)


@pytest.mark.parametrize("method", ["platt", "isotonic", "spline"])
def test_a_mean_shift_does_a_recentred_tandem_no_harm(method):
    """METHOD: Platt pivots about the labelled mean. Closed form: with normal noise the recentred tandem is exact."""
    rng = np.random.default_rng(3)
    rows = 400_000
    labelled_truth, truth = rng.normal(-1.0, 0.8, rows), rng.normal(-2.0, 0.8, rows)
    scores, pool = (t[:, None] + rng.normal(0, 0.5, (rows, 2)) for t in (labelled_truth, truth))
    y = rng.random(rows) < expit(labelled_truth)
    top = pool[:, 0] > np.quantile(pool[:, 0], 0.9)
    error = {}
    for recentre in (True, False):
        vad = VAD(calibrator=method, recentre=recentre).fit(pool, labelled=(scores, y))
        error[recentre] = vad.predict_proba(pool[top, 0]).sum() / expit(truth[top]).sum() - 1
    assert error[False] > 0.1  # the paper's tandem keeps the pivot
    assert abs(error[True]) < 0.03


def test_groups_of_a_recentred_tandem_are_read_about_their_own_mean():
    pool, groups = grouped_pool([20_000] * 2, [0.2, 0.6], [-3.5, -2.0])
    scores, y = labelled_of(20_000)
    vad = VAD(calibrator="platt").fit(pool, labelled=(scores, y), groups=groups)
    l = np.linspace(-5, 0, 41)
    for g in (0, 1):
        expected = literal_recentred(pool[groups == g], scores, y, "platt", l)
        np.testing.assert_allclose(vad.predict_proba(l, np.full(41, g)), expected, rtol=0.03)


def test_a_tandem_may_stretch():
    pool, (scores, y) = pool_of(3000, sd=1.5), labelled_of(3000, sd=0.5)
    vad = VAD(calibrator="platt").fit(pool, labelled=(scores, y))
    assert vad.lambda_ > 1
    assert isinstance(vad.map_, Affine)


@pytest.mark.parametrize("replicas", ["bootstrap", "anchored"])
def test_a_tandem_uses_the_same_regime_on_both_sides(replicas):
    pool, (scores, y) = pool_of(2000, 3), labelled_of(2000, 3)
    lambdas = [VAD(replicas=replicas).fit(each).lambda_ for each in (pool, scores)]
    vad = VAD(replicas=replicas, calibrator="platt").fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.lambda_, lambdas[0] / lambdas[1], rtol=1e-12)


def test_a_tandem_on_probabilities_is_the_tandem_on_their_logits():
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    plain = VAD(calibrator="isotonic").fit(pool, labelled=(scores, y))
    other = VAD(calibrator="isotonic", scale="probability").fit(expit(pool), labelled=(expit(scores), y))
    served = np.linspace(-6.01, 1, 101)
    np.testing.assert_allclose(other.predict_proba(expit(served)), plain.predict_proba(served), rtol=1e-8)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_tandem_in_identity_space_shrinks_probabilities(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    step = calibrate(method, scores[:, 0], y)
    ratio = literal_lambda(expit(pool)) / literal_lambda(expit(scores))
    served = np.linspace(-6, 1, 101)
    expected = ratio * step(served) + (1 - ratio) * step(pool[:, 0]).mean()
    vad = VAD(link="identity", calibrator=method).fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.predict_proba(served), expected, rtol=1e-9)


def test_a_tandem_depends_only_on_ratios_of_weights():
    pool, (scores, y) = pool_of(500), labelled_of(800)
    rng = np.random.default_rng(5)
    m, k = rng.exponential(size=500), rng.exponential(size=800)
    served = np.linspace(-6, 1, 101)
    plain = VAD(calibrator="isotonic").fit(pool, labelled=(scores, y, k), sample_weight=m)
    scaled = VAD(calibrator="isotonic").fit(pool, labelled=(scores, y, 1e6 * k), sample_weight=1e-6 * m)
    np.testing.assert_allclose(scaled.predict_proba(served), plain.predict_proba(served), rtol=1e-9)


def test_platt_and_vad_in_tandem_is_nearly_unbiased_where_each_alone_is_not():
    # A model too steep by 1.3, shifted pool: Platt repairs the model, VAD what selection does.
    rng = np.random.default_rng(11)

    def draw(rows, mean, sd):
        truth = rng.normal(mean, sd, rows)
        return truth, 1.3 * (truth[:, None] + 0.4 * rng.normal(size=(rows, 2)))

    (known, scores), (truth, pool) = draw(400_000, -2.0, 1.0), draw(400_000, -2.5, 0.6)
    y = rng.random(len(known)) < expit(known)
    tandem = VAD(calibrator="platt").fit(pool, labelled=(scores, y))
    platt = calibrate("platt", scores[:, 0], y)
    alone, _ = error_at_the_top(platt(pool[:, 0]), truth, 0.02)
    both, standard_error = error_at_the_top(tandem.predict_proba(pool[:, 0]), truth, 0.02)
    assert alone > 0.15
    assert abs(both) < 0.4 * alone
    assert standard_error < 0.01


# ---------------------------------------------------------------------------- groups


def grouped_pool(sizes, noises, means, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    truth = rng.normal(np.repeat(means, sizes), 0.8)
    pool = truth[:, None] + np.repeat(noises, sizes)[:, None] * rng.normal(size=(len(truth), 2))
    order = rng.permutation(len(truth))
    return pool[order], groups[order]


def test_large_groups_keep_their_own_lambda_and_center():
    pool, groups = grouped_pool([40_000] * 4, [0.1, 0.3, 0.5, 0.7], [-4, -3, -3, -2])
    vad = VAD().fit(pool, groups=groups)
    assert vad.group_lambda_.keys() == vad.group_center_.keys() == {"0", "1", "2", "3"}
    for name, lam in vad.group_lambda_.items():
        alone = VAD().fit(pool[groups == int(name)])
        assert abs(lam - alone.lambda_) < alone.standard_error_
        assert abs(vad.group_center_[name] - alone.center_) < 0.01


def test_tiny_groups_are_pulled_close_to_the_whole():
    pool, groups = grouped_pool([50_000, 50_000, 5, 3, 1], [0.35, 0.45, 0.4, 0.4, 0.4], [-3.0] * 5)
    vad = VAD().fit(pool, groups=groups)
    between = abs(vad.group_lambda_["0"] - vad.group_lambda_["1"])
    for name in ("2", "3", "4"):
        assert abs(vad.group_lambda_[name] - vad.lambda_) < 0.1 * between


def test_groups_that_do_not_differ_all_get_nearly_the_whole():
    pool, groups = grouped_pool([2000] * 20, [0.4] * 20, [-3.0] * 20)
    vad = VAD().fit(pool, groups=groups)
    own = [VAD().fit(pool[groups == g]).lambda_ for g in range(20)]
    pulled = np.array([vad.group_lambda_[str(g)] for g in range(20)])
    assert np.std(pulled) < 0.5 * np.std(own)


def test_pulled_lambdas_are_nearer_to_the_truth_than_the_groups_own():
    noises = np.linspace(0.3, 0.5, 30)
    pool, groups = grouped_pool([300] * 30, noises, [-3.0] * 30)
    truth = 0.64 / (0.64 + noises**2)
    vad = VAD().fit(pool, groups=groups)
    pulled = np.array([vad.group_lambda_[str(g)] for g in range(30)])
    own = np.array([VAD().fit(pool[groups == g]).lambda_ for g in range(30)])
    assert np.mean((pulled - truth) ** 2) < np.mean((own - truth) ** 2)
    assert np.mean((pulled - truth) ** 2) < np.mean((vad.lambda_ - truth) ** 2)


def test_unseen_groups_get_exactly_the_map_of_the_whole():
    pool, groups = grouped_pool([500] * 3, [0.2, 0.4, 0.6], [-3, -2, -4])
    vad, plain = VAD().fit(pool, groups=groups), VAD().fit(pool)
    l = np.linspace(-6, 1, 50)
    np.testing.assert_array_equal(vad.predict_proba(l, ["never"] * 50), plain.predict_proba(l))
    np.testing.assert_array_equal(vad.predict_proba(l), plain.predict_proba(l))
    assert isinstance(vad.map_, Grouped)


@pytest.mark.parametrize("method", ["platt", "histogram", "isotonic"])
def test_groups_of_a_tandem_shrink_about_their_own_calibrated_mean(method):
    pool, groups = grouped_pool([20_000] * 2, [0.2, 0.6], [-3.5, -2.0])
    scores, y = labelled_of(20_000)
    vad = VAD(calibrator=method, recentre=False).fit(pool, labelled=(scores, y), groups=groups)
    l = np.linspace(-5, 0, 41)
    for g in (0, 1):
        expected, _ = literal_tandem(pool[groups == g], scores, y, method, l)
        # Pulled by at most a standard error of λ (0.3%) over at most 4 logits.
        np.testing.assert_allclose(vad.predict_proba(l, np.full(41, g)), expected, rtol=0.03)


def test_a_group_of_few_rows_with_equal_scores_is_no_trouble():
    pool = np.vstack([pool_of(1000), [[0.0, 0.1], [0.0, 0.0], [1.0, 0.9]]])
    vad = VAD().fit(pool, groups=["a"] * 1000 + ["b"] * 3)
    assert 0 < vad.group_lambda_["b"] < 1


def test_a_pool_of_few_rows_with_equal_scores_is_no_trouble():
    vad = VAD().fit([[0.0, 0.1], [0.0, 0.0], [1.0, 0.9]])
    assert 0 < vad.lambda_ < 1


def test_a_group_without_weight_is_unseen():
    pool = pool_of(100)
    vad = VAD().fit(pool, groups=np.arange(100) % 2, sample_weight=1 - np.arange(100) % 2)
    assert list(vad.group_lambda_) == ["0"]


def test_one_group_is_the_whole():
    pool = pool_of(500)
    vad = VAD().fit(pool, groups=["all"] * 500)
    np.testing.assert_allclose(vad.group_lambda_["all"], vad.lambda_, rtol=1e-9)


# ---------------------------------------------------------------------------- weights, down-sampling, evidence


def test_importance_weights_equal_repetition():
    pool = pool_of(1000)
    counts = np.random.default_rng(0).integers(0, 4, 1000)
    weighted, repeated = VAD().fit(pool, sample_weight=counts), VAD().fit(np.repeat(pool, counts, axis=0))
    np.testing.assert_allclose(weighted.lambda_, repeated.lambda_, rtol=1e-9)
    np.testing.assert_allclose(weighted.center_, repeated.center_, rtol=1e-9)


def test_importance_weights_turn_one_pool_into_another():
    # Rows of N(-3, .8²) weighted by the density ratio to N(-2.5, .8²): λ stays, the centre moves.
    pool = pool_of(200_000)
    truth_like = pool.mean(axis=1)
    variance = 0.64 + 0.08
    weights = np.exp((truth_like * (0.5 / variance)) - (2.5**2 - 3**2) / 2 / variance * -1)
    weights *= len(weights) / weights.sum()
    vad = VAD().fit(pool, sample_weight=weights)
    assert abs(vad.center_ + 2.5) < 0.02
    assert abs(vad.lambda_ - 0.8) < 4 * vad.standard_error_


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scores", ["logit", "probability"])
def test_a_negative_rate_undoes_known_down_sampling(link, scores):
    pool = pool_of(500)
    trained = pool - np.log(0.1)  # what a model learns where a tenth of the negatives is kept
    plain = VAD(link=link).fit(pool)
    given = trained if scores == "logit" else expit(trained)
    vad = VAD(link=link, scale=scores, negative_rate=0.1).fit(given)
    np.testing.assert_allclose(vad.lambda_, plain.lambda_, rtol=1e-9)
    np.testing.assert_allclose(vad.predict_proba(given[:, 0]), plain.predict_proba(pool[:, 0]), rtol=1e-9)


def test_a_negative_rate_gives_true_rates_in_a_simulation():
    rng = np.random.default_rng(3)
    x = rng.normal(size=300_000)
    y = rng.random(len(x)) < expit(x - 4)
    kept = y | (rng.random(len(x)) < 0.05)
    model = LogisticRegression(C=np.inf).fit(x[kept, None], y[kept])
    l = model.decision_function(x[:, None])
    vad = VAD(negative_rate=0.05).fit(l, variance=1e-6)
    p = vad.predict_proba(l)
    # 10,000 positives: 1% each; the uncorrected mean is off by a factor of 10.
    assert abs(p.sum() / y.sum() - 1) < 0.03
    assert expit(l).sum() / y.sum() > 8


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_a_negative_rate_moves_labelled_rows_too(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    shift = -np.log(0.2)
    plain = VAD(calibrator=method).fit(pool, labelled=(scores, y))
    vad = VAD(calibrator=method, negative_rate=0.2).fit(pool + shift, labelled=(scores + shift, y))
    l = np.linspace(-6.01, 1, 57)
    np.testing.assert_allclose(vad.predict_proba(l + shift), plain.predict_proba(l), rtol=1e-9)


def test_moments_of_a_down_sampled_model_are_collected_with_its_offset():
    trained = pool_of(2000) - np.log(0.1)
    from_arrays = VAD(negative_rate=0.1).fit(trained)
    from_moments = VAD(negative_rate=0.1).fit(Moments().update(trained, logit_offset=np.log(0.1)))
    same_fit(from_moments, from_arrays, np.linspace(-4, 3, 29))


def same_fit(a, b, l, groups=None):
    np.testing.assert_allclose(a.lambda_, b.lambda_, rtol=1e-12)
    np.testing.assert_allclose(a.standard_error_, b.standard_error_, rtol=1e-9)
    np.testing.assert_allclose(a.predict_proba(l, groups), b.predict_proba(l, groups), rtol=1e-12)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("curvature", [False, True])
def test_a_fit_from_moments_is_the_fit_from_arrays(link, curvature):
    pool = pool_of(3000)
    l = np.linspace(-6, 1, 57)
    vad = VAD(link=link, curvature=curvature)
    from_arrays = VAD(link=link, curvature=curvature).fit(pool)
    same_fit(vad.fit(Moments(link).update(pool)), from_arrays, l)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_tandem_from_evidence_is_the_tandem_from_arrays(method):
    pool, (scores, y) = pool_of(2000), labelled_of(2000)
    from_arrays = VAD(calibrator=method).fit(pool, labelled=(scores, y))
    evidence = (Moments().update(pool), Cells().update(pool[:, 0]))
    labelled = (Moments().update(scores), Cells().update(scores[:, 0], y))
    l = np.linspace(-6, 1, 57)
    same_fit(VAD(calibrator=method).fit(evidence, labelled=labelled), from_arrays, l)


def test_a_fit_from_moments_by_group_is_the_fit_from_arrays():
    pool, groups = grouped_pool([500, 700, 2000], [0.2, 0.4, 0.6], [-3, -2, -4])
    from_arrays = VAD().fit(pool, groups=groups)
    from_moments = VAD().fit({str(g): Moments().update(pool[groups == g]) for g in range(3)})
    np.testing.assert_allclose(from_moments.lambda_, from_arrays.lambda_, rtol=1e-12)
    for name, lam in from_arrays.group_lambda_.items():
        np.testing.assert_allclose(from_moments.group_lambda_[name], lam, rtol=1e-9)
        np.testing.assert_allclose(from_moments.group_center_[name], from_arrays.group_center_[name], rtol=1e-9)


def test_moments_that_went_through_json_and_merges_give_the_same_lambda():
    pool = pool_of(3000)
    parts = [Moments.from_json(Moments().update(part).to_json()) for part in np.array_split(pool, 7)]
    merged = Moments()
    for part in parts:
        merged.merge(part)
    np.testing.assert_allclose(VAD().fit(merged).lambda_, VAD().fit(pool).lambda_, rtol=1e-12)


def test_float32_and_float64_agree():
    pool, (scores, y) = pool_of(20_000), labelled_of(20_000)
    single = [a.astype(np.float32) for a in (pool, scores)]
    for calibrator in (None, "platt"):
        labelled = (None, None) if calibrator is None else ((scores, y), (single[1], y))
        double = VAD(calibrator=calibrator).fit(pool, labelled=labelled[0])
        float_ = VAD(calibrator=calibrator).fit(single[0], labelled=labelled[1])
        np.testing.assert_allclose(float_.lambda_, double.lambda_, rtol=1e-5)
        np.testing.assert_allclose(float_.predict_proba(single[0][:, 0]), double.predict_proba(pool[:, 0]), rtol=1e-5)


def test_fitting_again_forgets_the_groups():
    pool = pool_of(500)
    vad = VAD().fit(pool, groups=np.arange(500) % 2).fit(pool)
    assert isinstance(vad.map_, Affine)
    assert not hasattr(vad, "group_lambda_")


# ---------------------------------------------------------------------------- λ ≤ 0

DISAGREEING = np.random.default_rng(0).normal(size=(500, 2)) * [0.1, 3.0]


def test_replicas_that_differ_more_than_scores_vary_are_an_error():
    message = (
        r"λ = -\d+: replicas differ by more \(V = .*\) than the served scores vary \(Var = .*\); train on more data"
    )
    with pytest.raises(UncurseError, match=message):
        VAD().fit(DISAGREEING)


def test_a_floor_warns_and_predicts_the_mean():
    with pytest.warns(UserWarning, match=r"λ = -\d+: replicas differ by more .*; using lambda_floor=0") as caught:
        vad = VAD(lambda_floor=0.0).fit(DISAGREEING)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert vad.lambda_ == 0
    np.testing.assert_allclose(vad.predict_proba([-3.0, 3.0]), expit(DISAGREEING[:, 0].mean()), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:λ")
def test_a_floor_works_with_curvature():
    vad = VAD(lambda_floor=0.0, curvature=True).fit(DISAGREEING)
    np.testing.assert_allclose(np.diff(vad.predict_proba([-3.0, 3.0])), 0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:λ")
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_a_floor_works_in_a_tandem(floor):
    scores, y = labelled_of(2000)
    vad = VAD(lambda_floor=floor, calibrator="platt").fit(DISAGREEING, labelled=(scores, y))
    np.testing.assert_allclose(vad.lambda_, floor / literal_lambda(scores), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:λ")
def test_a_floor_works_with_groups():
    pool = np.vstack([pool_of(2000), DISAGREEING])
    vad = VAD(lambda_floor=0.1).fit(pool, groups=np.repeat(["good", "bad"], [2000, 500]))
    assert vad.group_lambda_["bad"] == 0.1
    assert vad.group_lambda_["good"] > 0.5


def test_a_disagreeing_group_is_named():
    pool = np.vstack([pool_of(20_000), DISAGREEING])
    with pytest.raises(UncurseError, match=r"λ = .* in group 'bad': replicas differ"):
        VAD().fit(pool, groups=np.repeat(["good", "bad"], [20_000, 500]))


def test_a_positive_lambda_is_left_alone_by_a_floor():
    pool = pool_of(2000)
    assert VAD(lambda_floor=0.0).fit(pool).lambda_ == VAD().fit(pool).lambda_


# ---------------------------------------------------------------------------- bad input

GOOD = pool_of(200)
GOOD_LABELLED = labelled_of(200)


def with_value(value, place=(3, 1)):
    pool = GOOD.copy()
    pool[place] = value
    return pool


@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        (with_value(np.nan), {}, r"pool\[3, 1\] is nan \(1 such values\); drop or repair those rows first"),
        (with_value(np.inf), {}, r"pool\[3, 1\] is inf"),
        (with_value(-np.inf), {}, r"pool\[3, 1\] is -inf"),
        (GOOD, {"scale": "probability"}, r"pool holds -.*, which is not a probability; are these logits"),
        (expit(with_value(np.inf)), {"scale": "probability"}, "1 probabilities of the pool are exactly 0 or 1.*clip"),
        (GOOD[:, :1], {}, r"there are 1 column\(s\) and replicas='seeds' needs 2; train the model once more with ano"),
        (GOOD, {"replicas": "bootstrap"}, r"there are 2 column\(s\) and replicas='bootstrap' needs 3; the served mod"),
        (GOOD[:, :1], {"replicas": "anchored"}, r"there are 1 column\(s\) and replicas='anchored' needs 2"),
        (GOOD[:, 0], {}, r"pool has shape \(200,\); pass a column per replica, shape \(n, S\)"),
        (GOOD[None], {}, r"pool has shape \(1, 200, 2\)"),
        (GOOD[:0], {}, r"pool is empty, shape \(0, 2\); pass at least one row"),
        (GOOD[:1], {}, "the served scores are constant at"),
        (np.column_stack([np.full(200, 1.5), GOOD[:, 0]]), {}, r"served scores are constant at 1\.5; a pool must hold"),
        (np.full((200, 2), 1 / 3), {"link": "identity", "scale": "value"}, "the served scores are constant at"),
        ([["a", "b"]], {}, "pool must be an array of numbers"),
        (Moments(), {}, "column|no rows"),
        ((), {}, "pool"),
        ((Moments().update(GOOD),), {}, "pool|cells"),
        ({}, {}, "pool|no rows|column"),
        (Moments("probit").update(GOOD), {}, r"these moments are of the probit link; VAD\(link='logistic'\) needs its"),
        ({"a": Moments("probit").update(GOOD)}, {}, "cannot merge moments of the logistic and the probit link"),
    ],
)
def test_a_bad_pool_is_named_with_the_remedy(pool, options, message):
    with pytest.raises(UncurseError, match=message):
        VAD(**options).fit(pool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "odds"}, "link='odds' is unknown; choose one of logistic, identity, log, probit"),
        ({"scale": "odds"}, "scale='odds' is unknown; choose one of logit, probability, value"),
        ({"replicas": "folds"}, "replicas='folds' is unknown; choose one of seeds, bootstrap, anchored"),
        ({"calibrator": "plat"}, "calibrator='plat' is unknown; choose one of platt"),
        ({"calibrator": "platt", "curvature": True}, "curvature=True corrects VAD alone; leave it out beside"),
        ({"scale": "value"}, "scale='value' is for regression: use link='identity' or 'log', and no calibrator"),
        ({"scale": "value", "link": "probit"}, "scale='value' is for regression"),
        ({"scale": "value", "link": "identity", "calibrator": "platt"}, "scale='value' is for regression"),
        ({"scale": "value", "link": "identity", "negative_rate": 0.1}, "scale='value' is for regression"),
        ({"negative_rate": 0.0}, r"negative_rate=0\.0; pass the share of negatives kept, such as 0\.1"),
        ({"negative_rate": 10.0}, r"negative_rate=10\.0; pass the share"),
        ({"lambda_floor": -0.1}, r"lambda_floor=-0\.1; pass a number from 0 to 1, or None for an error"),
        ({"lambda_floor": 1.0}, r"lambda_floor=1\.0; pass a number from 0 to 1"),
    ],
)
def test_a_bad_option_is_named(options, message):
    with pytest.raises(UncurseError, match=message):
        VAD(**options)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"labelled": GOOD_LABELLED}, r"labelled rows are given but no calibrator; pass one, such as VAD\(calib"),
        ({"calibrator": "platt"}, {}, r"calibrator='platt' needs labelled=\(scores, labels\) in fit"),
        (
            {"calibrator": "platt"},
            {"labelled": (GOOD_LABELLED[0][:, 0], GOOD_LABELLED[1])},
            r"labelled scores have shape \(200,\); a tandem needs every replica there too, shape \(m, S\)",
        ),
        (
            {"calibrator": "platt"},
            {"labelled": (GOOD_LABELLED[0][:, :1], GOOD_LABELLED[1])},
            r"there are 1 column\(s\) and replicas='seeds' needs 2",
        ),
        (
            {"calibrator": "platt"},
            {"labelled": (DISAGREEING, np.arange(500) % 2)},
            r"λ = -\d+ on the labelled rows: replicas differ more than scores vary there",
        ),
        ({"calibrator": "platt"}, {"labelled": (GOOD_LABELLED[0], np.zeros(200))}, "the labels have no positives"),
        ({"calibrator": "platt"}, {"labelled": (GOOD_LABELLED[0], np.zeros(199))}, r"labels has shape \(199,\)"),
        ({"calibrator": "platt"}, {"labelled": (GOOD_LABELLED[0], np.full(200, 2))}, "labels must be 0 or 1"),
        (
            {"calibrator": "platt"},
            {"labelled": (np.full((200, 2), 1.5), GOOD_LABELLED[1])},
            "labelled.*constant|every score is 1",
        ),
        ({"calibrator": "platt"}, {"labelled": (with_value(np.nan), GOOD_LABELLED[1])}, r"\[3, 1\] is nan"),
        ({"calibrator": "platt"}, {"labelled": GOOD_LABELLED, "variance": 0.1}, "a tandem needs replicas on pool and"),
        (
            {"calibrator": "histogram", "calibrator_options": {"bins": 5}},
            {"labelled": GOOD_LABELLED},
            "histogram has no option 'bins'",
        ),
        ({}, {"groups": ["a"]}, r"groups has shape \(1,\) but there are 200 scores"),
        ({}, {"groups": np.array(["a", None] * 100, dtype=object)}, "groups"),
        ({}, {"sample_weight": [1.0]}, r"sample_weight has shape \(1,\) but there are 200 scores"),
        ({}, {"sample_weight": np.zeros(200)}, "every sample_weight is zero; give some row a positive weight"),
        ({}, {"sample_weight": np.full(200, -1.0)}, "sample_weight holds -1; weights must be 0 or more"),
        ({}, {"variance": -0.1}, "variance"),
        ({}, {"variance": np.nan}, "variance|λ = nan"),
        ({}, {"variance": 100.0}, r"λ = -.*: replicas differ by more \(V = 100\)"),
    ],
)
def test_a_bad_fit_is_named_with_the_remedy(options, arguments, message):
    with pytest.raises(UncurseError, match=message):
        VAD(**options).fit(GOOD, **arguments)


def test_a_tandem_from_moments_needs_the_cells_of_the_pool():
    with pytest.raises(
        UncurseError, match=r"a tandem from moments needs the pool's cells too: pass pool=\(moments, ce"
    ):
        VAD(calibrator="platt", recentre=False).fit(Moments().update(GOOD), labelled=GOOD_LABELLED)


@pytest.mark.parametrize("argument", [{"groups": np.zeros(200)}, {"sample_weight": np.ones(200)}])
def test_groups_and_weights_beside_moments_are_refused_not_ignored(argument):
    with pytest.raises(UncurseError, match=r"moments|Moments"):
        VAD().fit(Moments().update(GOOD), **argument)


def test_an_unfitted_vad_says_so():
    with pytest.raises(UncurseError, match="this VAD is not fitted; call fit with the pool first"):
        VAD().predict_proba([0.0])


def test_groups_unknown_at_the_fit_are_refused_at_prediction():
    with pytest.raises(UncurseError, match="this VAD was fitted without groups; leave groups out, or fit with them"):
        VAD().fit(GOOD).predict_proba([0.0], ["a"])


@pytest.mark.parametrize(
    ("served", "message"),
    [
        ([np.nan], r"scores\[0\] is nan"),
        ([[0.0, 1.0]], r"scores has shape \(1, 2\); pass one column"),
        ([], "scores is empty"),
    ],
)
def test_bad_served_scores_are_named(served, message):
    with pytest.raises(UncurseError, match=message):
        VAD().fit(GOOD).predict_proba(served)


def test_the_map_of_a_tandem_is_a_few_floats_of_plain_json():
    vad = VAD(calibrator="histogram").fit(pool_of(1000), labelled=labelled_of(5000))
    assert isinstance(vad.map_, Chain)
    text = vad.map_.to_json()
    assert len(text) < 5000
    assert json.loads(text)["kind"] == "chain"


def test_a_vad_shows_what_it_found():
    vad = VAD(calibrator="platt")
    assert repr(vad) == "VAD(link='logistic', scale='logit', replicas='seeds', calibrator='platt')"
    assert f"with λ = {VAD().fit(GOOD).lambda_:.4g} ± " in repr(VAD().fit(GOOD))


# ---------------------------------------------------------------------------- what users slip on


def test_groups_of_one_lambda_and_different_centres_keep_that_lambda():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 5_000)
    truth = rng.normal(0, 0.5, 30)[groups] - 3 + rng.normal(0, 0.5, len(groups))
    pool = truth[:, None] + rng.normal(0, 0.4, (len(groups), 2))
    vad = VAD().fit(pool, groups=groups)
    right = 0.25 / (0.25 + 0.16)
    assert vad.lambda_ > right + 0.05  # the whole's also holds the spread of centres
    # 5,000 rows know λ to 0.009 each; what is pulled together knows it better.
    assert np.abs(np.array(list(vad.group_lambda_.values())) - right).max() < 0.02


def test_a_floor_does_not_lift_other_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat(["calm", "noisy"], 20_000)
    noise = np.where(groups == "calm", 0.3, 0.8)
    pool = rng.normal(-3, 0.6, (40_000, 1)) + noise[:, None] * rng.normal(size=(40_000, 2))
    with pytest.warns(UserWarning, match="below the floor"):
        vad = VAD(lambda_floor=0.7).fit(pool, groups=groups)
    assert vad.group_lambda_["calm"] == pytest.approx(0.8, abs=0.02)
    assert vad.group_lambda_["noisy"] == 0.7


def test_labelled_rows_selected_by_the_served_score_are_warned_of():
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 0.8, 40_000)
    scores = truth[:, None] + rng.normal(0, 0.4, (40_000, 2))
    y = rng.random(40_000) < expit(truth)
    winners = scores[:, 0] > np.quantile(scores[:, 0], 0.8)
    with pytest.warns(UserWarning, match=r"above the other replicas, .* label rows chosen without it"):
        VAD(calibrator="platt").fit(scores, labelled=(scores[winners], y[winners]))
    earlier = truth + rng.normal(0, 0.6, 40_000)
    shown = earlier > np.quantile(earlier, 0.8)
    VAD(calibrator="platt").fit(scores, labelled=(scores[shown], y[shown]))  # no warning


def test_identical_replicas_are_warned_of():
    with pytest.warns(UserWarning, match="the replicas are identical, so no noise shows; was the seed changed"):
        VAD().fit(np.column_stack([GOOD[:, 0], GOOD[:, 0]]))


def test_probabilities_taken_for_logits_are_warned_of():
    with pytest.warns(UserWarning, match=r"every value of pool lies in \[0, 1\]; if these are probabilities"):
        VAD().fit(expit(GOOD))


def test_a_transposed_pool_is_refused():
    with pytest.raises(UncurseError, match="2 rows and 200 columns; rows are candidates and columns replicas"):
        VAD().fit(GOOD.T)


def test_evidence_of_another_scale_or_link_is_refused_in_a_tandem():
    cells = Cells("probability").update(expit(GOOD[:, 0]))
    with pytest.raises(
        UncurseError, match="the pool's cells are on the probability scale; a tandem needs them on the logit"
    ):
        VAD(calibrator="platt").fit((Moments().update(GOOD), cells), labelled=GOOD_LABELLED)
    labelled = (Moments("probit").update(GOOD), Cells().update(GOOD[:, 0], GOOD_LABELLED[1]))
    with pytest.raises(UncurseError, match="the labelled moments are of the probit link"):
        VAD(calibrator="platt").fit(GOOD, labelled=labelled)


def test_a_masked_pool_is_refused():
    with pytest.raises(UncurseError, match="pool has masked values"):
        VAD().fit(np.ma.masked_array(GOOD, np.abs(GOOD) > 3.5))
