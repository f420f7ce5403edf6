import json

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.special import logit as true_logit
from sklearn.linear_model import LogisticRegression

from uncurse import VAD, Affine, Chain, Evidence, Grouped, LogSpec, Moments, TopK, UncurseError, calibrate
from uncurse.calibration.calibrators import CALIBRATORS, fit_calibrator
from uncurse.debias import KINDS
from uncurse.debias.shrinkage import lambda_error, with_curvature
from uncurse.evidence import from_arrays
from uncurse.evidence.from_arrays import column_names
from uncurse.links import LINKS, get_link
from uncurse.metrics.selection import top_share

ONE_MODEL = [name for name in KINDS if name != "ensemble"]  # kinds whose served score is one model


def pool_of(rows, replicas=2, *, seed=0, mean=-3.0, sd=0.8, noise=0.4):
    """Exchangeable replicas; λ = sd² / (sd² + noise²), 0.8 by default."""
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def evidence_of(scores, labels=None, *, groups=None, sample_weight=None, replica_counts=False, **spec):
    return from_arrays(
        scores,
        labels,
        spec=LogSpec(column_names(np.shape(scores)[1]), **spec),
        groups=groups,
        sample_weight=sample_weight,
        replica_counts=replica_counts,
    )


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


@pytest.mark.parametrize("replicas", [3, 4, 6])
def test_bootstrap_noise_variance_is_algorithm_1_without_the_served_column(replicas):
    pool = pool_of(300, replicas)
    vad = VAD(replicas="bootstrap").fit(pool)
    np.testing.assert_allclose(vad.noise_variance_, algorithm_1(pool[:, 1:]), rtol=1e-12)
    np.testing.assert_allclose(vad.score_variance_, np.var(pool[:, 0]), rtol=1e-12)


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_anchored_noise_variance_is_the_mean_variance_of_differences(replicas):
    pool = pool_of(300, replicas)
    expected = np.mean([np.var(pool[:, b] - pool[:, 0]) for b in range(1, replicas)])
    np.testing.assert_allclose(VAD(replicas="anchored").fit(pool).noise_variance_, expected, rtol=1e-12)


@pytest.mark.parametrize("replicas", ONE_MODEL)
def test_noise_variance_keeps_leading_axes(replicas):
    stack = np.stack([np.cov(pool_of(50, 3, seed=i), rowvar=False) for i in range(4)])
    one_by_one = [KINDS[replicas].noise_variance(c) for c in stack]
    np.testing.assert_allclose(KINDS[replicas].noise_variance(stack), one_by_one, rtol=1e-14)


def literal_lambda(pool):
    return 1 - algorithm_1(pool) / np.var(pool[:, 0])


def test_map_equals_the_formula_of_the_paper():
    pool = pool_of(400)
    vad = VAD().fit(pool)
    l = np.linspace(-8, 3, 101)
    lam = literal_lambda(pool)
    np.testing.assert_allclose(vad.predict_proba(l), expit(lam * l + (1 - lam) * pool[:, 0].mean()), rtol=1e-12)
    assert isinstance(vad.map_, Affine)


def test_identity_link_applies_the_formula_to_probabilities_and_stays_inside_0_and_1():
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
def test_units_of_a_regression_target_do_not_matter(scale, shift):
    pool = pool_of(1000)
    plain = VAD(link="identity", scale="value").fit(pool)
    other = VAD(link="identity", scale="value").fit(scale * (pool + shift))
    np.testing.assert_allclose(other.lambda_, plain.lambda_, rtol=1e-9)
    expected = scale * (plain.predict_proba(pool[:, 0]) + shift)
    np.testing.assert_allclose(other.predict_proba(scale * (pool[:, 0] + shift)), expected, rtol=1e-9)


# ---------------------------------------------------------------------------- simulations


def simulated(replicas, rows, rng, sd=0.8, noise=0.4):
    """Served = truth + noise. Seeds and bootstraps draw it again; anchored bootstraps add noise to the served score."""
    truth = rng.normal(-3, sd, rows)
    served = truth + noise * rng.normal(size=rows)
    others = {
        "seeds": lambda: truth + noise * rng.normal(size=rows),
        "bootstrap": lambda: truth + noise * rng.normal(size=rows),
        "snapshots": lambda: truth + noise * rng.normal(size=rows),
        "anchored": lambda: served + noise * rng.normal(size=rows),
    }[replicas]
    return np.column_stack([served] + [others() for _ in range(2)])


@pytest.mark.parametrize("replicas", ONE_MODEL)
def test_every_kind_of_replica_recovers_a_known_lambda(replicas):
    pool = simulated(replicas, 40_000, np.random.default_rng(1))
    vad = VAD(replicas=replicas).fit(pool)
    assert abs(vad.lambda_ - 0.8) < 3 * vad.standard_error_
    assert vad.standard_error_ < 0.01


@pytest.mark.theory
@pytest.mark.parametrize("replicas", ONE_MODEL)
def test_the_standard_error_of_lambda_is_the_spread_over_redrawn_pools(replicas):
    fits = [VAD(replicas=replicas).fit(simulated(replicas, 1000, np.random.default_rng(i))) for i in range(150)]
    spread = np.std([f.lambda_ for f in fits], ddof=1)
    # 150 draws: a standard error of 5.8%; 20% is 3.5 of these.
    assert abs(np.sqrt(np.mean([f.standard_error_**2 for f in fits])) / spread - 1) < 0.2


def test_anchored_bootstraps_declared_as_seeds_give_half_the_noise():
    # The wording of Algorithm 1 can be read as a V that is too small by (S − 1)/S.
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
def test_first_simulation_of_the_method_page_gives_the_published_errors(first_world, options, published):
    truth, pool = first_world
    error, standard_error = error_at_the_top(VAD(**options).fit(pool).predict_proba(pool[:, 0]), truth)
    # Published to 0.1%; 20,000 selected rows have a standard error of 0.2%.
    assert abs(error - published) < 3 * standard_error + 0.0005
    assert standard_error < 0.003


def test_uncorrected_predictions_of_the_first_simulation_are_far_too_high(first_world):
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
    step = with_curvature(lam, center, noise, "logistic")
    np.testing.assert_allclose(step(l), expit(points) @ density, rtol=1e-4)
    np.testing.assert_allclose(1 - step(l), expit(-points) @ density, rtol=1e-4)


@pytest.mark.parametrize("link", ["identity", "log", "probit"])
def test_curvature_is_exact_on_the_other_links(link):
    z, w = np.polynomial.hermite_e.hermegauss(80)
    l = np.linspace(-4, -0.5, 31)
    expected = get_link(link).phi((0.7 * l + 0.3 * -2)[:, None] + np.sqrt(0.7 * 0.2) * z) @ w / w.sum()
    step = with_curvature(0.7, -2.0, 0.2, link)
    np.testing.assert_allclose(get_link(link).phi(step.transform(l)), expected, rtol=1e-9)


def test_curvature_changes_nothing_without_noise():
    l = np.linspace(-9, 5, 57)
    np.testing.assert_allclose(with_curvature(1.0, -2.0, 0.0, "logistic")(l), expit(l), rtol=1e-9)


def test_curvature_of_a_group_uses_its_own_noise():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], 100_000)
    noise = np.where(groups == 0, 0.1, 0.7)
    pool = rng.normal(-3, 0.8, (200_000, 1)) + noise[:, None] * rng.normal(size=(200_000, 2))
    together = VAD(curvature=True).fit(pool, groups=groups)
    l = np.linspace(-5, 0, 11)
    for group in (0, 1):
        alone = VAD(curvature=True).fit(pool[groups == group])
        # 100,000 rows: the standard error of λ is 0.3%; the curvature of the wrong group would change it by 4%.
        np.testing.assert_allclose(together.predict_proba(l, np.full(11, group)), alone.predict_proba(l), rtol=0.01)


# ---------------------------------------------------------------------------- tandem


def literal_tandem(pool, scores, y, method, served, weights=None, **options):
    """Calibrate, then shrink about the mean calibrated logit of the pool by λ_pool / λ_labelled."""
    step = calibrate(method, scores[:, 0], y, sample_weight=weights, **options)
    calibrated = true_logit(step(pool[:, 0]))
    ratio = literal_lambda(pool) / literal_lambda(scores)
    return expit(ratio * true_logit(step(served)) + (1 - ratio) * calibrated.mean()), ratio


@pytest.mark.parametrize("method", ["histogram", "scaling-binning"])
def test_a_tandem_passes_options_to_its_calibrator(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    served = np.linspace(-6, 1, 101)
    options = {"n_bins": 7, "refine_top": 0.01}
    expected, _ = literal_tandem(pool, scores, y, method, served, **options)
    vad = VAD(calibrator=method, calibrator_options=options, recentre=False).fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.predict_proba(served), expected, rtol=1e-9)


def literal_recentred(pool, scores, y, method, served):
    """Convert to the labelled score with the same expected truth, then calibrate."""
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
    without_cells = Evidence(LogSpec(column_names(2)), Moments().update(pool))  # no cells needed
    from_evidence = VAD(calibrator=method).fit(without_cells, labelled=(scores, y))
    np.testing.assert_allclose(from_evidence.predict_proba(served), vad.predict_proba(served), rtol=1e-12)


@pytest.mark.parametrize("method", ["platt", "isotonic", "spline"])
def test_a_recentred_tandem_is_exact_under_a_mean_shift(method):
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
    assert error[False] > 0.1  # without recentring the error remains
    assert abs(error[True]) < 0.03


def test_groups_of_a_recentred_tandem_are_shrunk_about_their_own_mean():
    pool, groups = grouped_pool([20_000] * 2, [0.2, 0.6], [-3.5, -2.0])
    scores, y = labelled_of(20_000)
    vad = VAD(calibrator="platt").fit(pool, labelled=(scores, y), groups=groups)
    l = np.linspace(-5, 0, 41)
    for g in (0, 1):
        expected = literal_recentred(pool[groups == g], scores, y, "platt", l)
        np.testing.assert_allclose(vad.predict_proba(l, np.full(41, g)), expected, rtol=0.03)


def test_a_tandem_may_have_a_lambda_above_one():
    pool, (scores, y) = pool_of(3000, sd=1.5), labelled_of(3000, sd=0.5)
    vad = VAD(calibrator="platt").fit(pool, labelled=(scores, y))
    assert vad.lambda_ > 1
    assert isinstance(vad.map_, Affine)


@pytest.mark.parametrize("replicas", ["bootstrap", "anchored"])
def test_a_tandem_uses_the_same_kind_of_replica_for_pool_and_labelled_rows(replicas):
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
def test_a_tandem_with_the_identity_link_shrinks_probabilities(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    step = calibrate(method, scores[:, 0], y)
    ratio = literal_lambda(expit(pool)) / literal_lambda(expit(scores))
    served = np.linspace(-6, 1, 101)
    expected = ratio * step(served) + (1 - ratio) * step(pool[:, 0]).mean()
    vad = VAD(link="identity", calibrator=method).fit(pool, labelled=(scores, y))
    np.testing.assert_allclose(vad.predict_proba(served), expected, rtol=1e-9)


def weighted_lambda(scores, w):
    """λ of weighted rows, by Algorithm 1 with weighted means."""
    centred = scores - np.average(scores, axis=0, weights=w)
    noise = np.average(centred.var(axis=1, ddof=1), weights=w)
    return 1 - noise / np.average(centred[:, 0] ** 2, weights=w)


@pytest.mark.parametrize("link", LINKS)
def test_a_weighted_tandem_shrinks_calibrated_scores_about_their_weighted_mean(link):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    rng = np.random.default_rng(5)
    m, k = np.exp(pool[:, 1] + 3) * rng.exponential(size=1000), np.exp(scores[:, 1] / 2) * rng.exponential(size=1500)
    served = np.linspace(-6, 1, 101)
    step, phi = calibrate("platt", scores[:, 0], y, sample_weight=k), get_link(link)
    ratio = weighted_lambda(phi.inverse(expit(pool)), m) / weighted_lambda(phi.inverse(expit(scores)), k)
    center = np.average(phi.inverse(step(pool[:, 0])), weights=m)
    vad = VAD(calibrator="platt", recentre=False, link=link).fit(pool, labelled=(scores, y, k), sample_weight=m)
    np.testing.assert_allclose(vad.lambda_, ratio, rtol=1e-9)
    np.testing.assert_allclose(vad.center_, center, rtol=1e-9)
    expected = phi.phi(ratio * phi.inverse(step(served)) + (1 - ratio) * center)
    inner = expected < 1 - 1e-9  # the log link is clipped there
    np.testing.assert_allclose(vad.predict_proba(served)[inner], expected[inner], rtol=1e-9)
    unweighted = VAD(calibrator="platt", recentre=False, link=link).fit(pool, labelled=(scores, y))
    assert np.abs(vad.predict_proba(served) / unweighted.predict_proba(served) - 1).max() > 0.02  # weights matter


def test_a_tandem_depends_only_on_ratios_of_weights():
    pool, (scores, y) = pool_of(500), labelled_of(800)
    rng = np.random.default_rng(5)
    m, k = rng.exponential(size=500), rng.exponential(size=800)
    served = np.linspace(-6, 1, 101)
    plain = VAD(calibrator="isotonic").fit(pool, labelled=(scores, y, k), sample_weight=m)
    scaled = VAD(calibrator="isotonic").fit(pool, labelled=(scores, y, 1e6 * k), sample_weight=1e-6 * m)
    np.testing.assert_allclose(scaled.predict_proba(served), plain.predict_proba(served), rtol=1e-9)


def test_platt_with_vad_is_nearly_unbiased_where_each_alone_is_biased():
    # A model too steep by 1.3 and a shifted pool: Platt corrects the slope, VAD the selection bias.
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


def test_tiny_groups_are_shrunk_close_to_the_pool():
    pool, groups = grouped_pool([50_000, 50_000, 5, 3, 1], [0.35, 0.45, 0.4, 0.4, 0.4], [-3.0] * 5)
    vad = VAD().fit(pool, groups=groups)
    between = abs(vad.group_lambda_["0"] - vad.group_lambda_["1"])
    for name in ("2", "3", "4"):
        assert abs(vad.group_lambda_[name] - vad.lambda_) < 0.1 * between


def test_equal_groups_get_nearly_the_map_of_the_pool():
    pool, groups = grouped_pool([2000] * 20, [0.4] * 20, [-3.0] * 20)
    vad = VAD().fit(pool, groups=groups)
    own = [VAD().fit(pool[groups == g]).lambda_ for g in range(20)]
    pulled = np.array([vad.group_lambda_[str(g)] for g in range(20)])
    assert np.std(pulled) < 0.5 * np.std(own)


def test_shrunk_lambdas_are_closer_to_the_truth_than_unshrunk_ones():
    noises = np.linspace(0.3, 0.5, 30)
    pool, groups = grouped_pool([300] * 30, noises, [-3.0] * 30)
    truth = 0.64 / (0.64 + noises**2)
    vad = VAD().fit(pool, groups=groups)
    pulled = np.array([vad.group_lambda_[str(g)] for g in range(30)])
    own = np.array([VAD().fit(pool[groups == g]).lambda_ for g in range(30)])
    assert np.mean((pulled - truth) ** 2) < np.mean((own - truth) ** 2)
    assert np.mean((pulled - truth) ** 2) < np.mean((vad.lambda_ - truth) ** 2)


def test_unseen_groups_get_the_default_map():
    pool, groups = grouped_pool([500] * 3, [0.2, 0.4, 0.6], [-3, -2, -4])
    vad, plain = VAD().fit(pool, groups=groups), VAD().fit(pool)
    l = np.linspace(-6, 1, 50)
    np.testing.assert_array_equal(vad.predict_proba(l, ["never"] * 50), plain.predict_proba(l))
    assert isinstance(vad.map_, Grouped)
    with pytest.raises(UncurseError, match="this map has a map for each group; pass groups="):
        vad.predict_proba(l)


@pytest.mark.parametrize("method", ["platt", "histogram", "isotonic"])
def test_groups_of_a_tandem_shrink_about_their_own_calibrated_mean(method):
    pool, groups = grouped_pool([20_000] * 2, [0.2, 0.6], [-3.5, -2.0])
    scores, y = labelled_of(20_000)
    vad = VAD(calibrator=method, recentre=False).fit(pool, labelled=(scores, y), groups=groups)
    l = np.linspace(-5, 0, 41)
    for g in (0, 1):
        expected, _ = literal_tandem(pool[groups == g], scores, y, method, l)
        # Shrunk by at most a standard error of λ (0.3%) over at most 4 logits.
        np.testing.assert_allclose(vad.predict_proba(l, np.full(41, g)), expected, rtol=0.03)


def test_a_group_of_few_rows_with_equal_scores_has_a_finite_map():
    pool = np.vstack([pool_of(1000), [[0.0, 0.1], [0.0, 0.0], [1.0, 0.9]]])
    vad = VAD().fit(pool, groups=["a"] * 1000 + ["b"] * 3)
    assert 0 < vad.group_lambda_["b"] < 1


def test_few_rows_with_equal_served_scores_have_a_lambda():
    vad = VAD().fit([[0.0, 0.1], [0.0, 0.0], [1.0, 0.9]])
    assert 0 < vad.lambda_ < 1


def test_a_group_without_weight_is_unseen():
    pool = pool_of(100)
    vad = VAD().fit(pool, groups=np.arange(100) % 2, sample_weight=1 - np.arange(100) % 2)
    assert list(vad.group_lambda_) == ["0"]


def test_groups_with_a_known_variance_have_the_lambda_of_their_own_score_variance():
    rng = np.random.default_rng(0)
    groups = np.repeat(["narrow", "wide"], 50_000)
    served = rng.normal(-3, np.where(groups == "narrow", 0.6, 1.5))
    vad = VAD().fit(served, groups=groups, variance=0.16)
    for name in ("narrow", "wide"):
        own = 1 - 0.16 / served[groups == name].var()
        assert abs(vad.group_lambda_[name] - own) < 0.003  # 50,000 rows: standard errors of 0.0028 and 0.0005
    assert vad.lambda_ == pytest.approx(1 - 0.16 / served.var(), rel=1e-12)


def test_groups_with_a_known_variance_are_shrunk_towards_each_other():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 200)
    served = rng.normal(-3, 0.8, 4_000)
    vad = VAD().fit(served, groups=groups, variance=0.16)
    own = np.array([1 - 0.16 / served[groups == g].var() for g in range(20)])
    shrunk = np.array([vad.group_lambda_[str(g)] for g in range(20)])
    assert shrunk.std() < 0.5 * own.std()  # they differ only by chance


@pytest.mark.parametrize("calibrator", [None, "platt"])
@pytest.mark.parametrize("scale", [1 / 120_000, 1.0, 1e9])
def test_groups_with_equal_weights_of_any_size_equal_groups_without_weights(calibrator, scale):
    pool, groups = grouped_pool([2_000] * 3, [0.2, 0.4, 0.62], [-3.0] * 3)
    labelled = None if calibrator is None else labelled_of(500)
    plain, weighted = (
        VAD(calibrator=calibrator).fit(pool, groups=groups, labelled=labelled, sample_weight=w)
        for w in (None, np.full(6_000, scale))
    )
    assert np.ptp(list(plain.group_lambda_.values())) > 0.2
    for name, lam in plain.group_lambda_.items():
        np.testing.assert_allclose(weighted.group_lambda_[name], lam, rtol=1e-9)
        np.testing.assert_allclose(weighted.group_center_[name], plain.group_center_[name], rtol=1e-9)


def test_a_single_group_gets_the_map_of_the_pool():
    pool = pool_of(500)
    vad = VAD().fit(pool, groups=["all"] * 500)
    np.testing.assert_allclose(vad.group_lambda_["all"], vad.lambda_, rtol=1e-9)


# ---------------------------------------------------------------------------- weights, down-sampling, evidence


def test_integer_weights_give_lambda_and_center_of_repeated_rows():
    pool = pool_of(1000)
    counts = np.random.default_rng(0).integers(0, 4, 1000)
    weighted, repeated = VAD().fit(pool, sample_weight=counts), VAD().fit(np.repeat(pool, counts, axis=0))
    np.testing.assert_allclose(weighted.lambda_, repeated.lambda_, rtol=1e-9)
    np.testing.assert_allclose(weighted.center_, repeated.center_, rtol=1e-9)


def test_importance_weights_reproduce_the_fit_of_the_target_pool():
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
def test_negative_rate_corrects_for_known_down_sampling(link, scores):
    pool = pool_of(500)
    trained = pool - np.log(0.1)  # the model sees a tenth of the negatives
    plain = VAD(link=link).fit(pool)
    given = trained if scores == "logit" else expit(trained)
    vad = VAD(link=link, scale=scores, negative_rate=0.1).fit(given)
    np.testing.assert_allclose(vad.lambda_, plain.lambda_, rtol=1e-9)
    np.testing.assert_allclose(vad.predict_proba(given[:, 0]), plain.predict_proba(pool[:, 0]), rtol=1e-9)


def test_negative_rate_gives_true_rates_in_a_simulation():
    rng = np.random.default_rng(3)
    x = rng.normal(size=300_000)
    y = rng.random(len(x)) < expit(x - 4)
    kept = y | (rng.random(len(x)) < 0.05)
    model = LogisticRegression(C=np.inf).fit(x[kept, None], y[kept])
    l = model.decision_function(x[:, None])
    vad = VAD(negative_rate=0.05).fit(l, variance=1e-6)
    p = vad.predict_proba(l)
    # 10,000 positives: a standard error of 1%; the uncorrected mean is too high by a factor of 10.
    assert abs(p.sum() / y.sum() - 1) < 0.03
    assert expit(l).sum() / y.sum() > 8


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_negative_rate_also_corrects_labelled_scores(method):
    pool, (scores, y) = pool_of(1000), labelled_of(1500)
    shift = -np.log(0.2)
    plain = VAD(calibrator=method).fit(pool, labelled=(scores, y))
    vad = VAD(calibrator=method, negative_rate=0.2).fit(pool + shift, labelled=(scores + shift, y))
    l = np.linspace(-6.01, 1, 57)
    np.testing.assert_allclose(vad.predict_proba(l + shift), plain.predict_proba(l), rtol=1e-9)


def same_fit(a, b, l, groups=None):
    np.testing.assert_allclose(a.lambda_, b.lambda_, rtol=1e-12)
    np.testing.assert_allclose(a.center_, b.center_, rtol=1e-12)
    np.testing.assert_allclose(a.standard_error_, b.standard_error_, rtol=1e-9)
    np.testing.assert_allclose(a.predict_proba(l, groups), b.predict_proba(l, groups), rtol=1e-12)


def test_evidence_with_a_negative_rate_gives_the_fit_of_arrays():
    trained = pool_of(2000) - np.log(0.1)
    arrays, evidence = (VAD(negative_rate=0.1).fit(pool) for pool in (trained, evidence_of(trained, negative_rate=0.1)))
    same_fit(evidence, arrays, np.linspace(-4, 3, 29))


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("curvature", [False, True])
def test_evidence_gives_the_fit_of_arrays(link, curvature, replicas):
    pool = pool_of(3000, replicas)
    arrays, evidence = (VAD(link=link, curvature=curvature).fit(each) for each in (pool, evidence_of(pool, link=link)))
    same_fit(evidence, arrays, np.linspace(-6, 1, 57))


@pytest.mark.parametrize("options", [{"recentre": False}, {"link": "probit"}, {}])
@pytest.mark.parametrize("replicas", [2, 3])
def test_evidence_gives_the_tandem_of_arrays(options, replicas):
    pool, (scores, y) = pool_of(500, replicas), labelled_of(500, replicas)
    link = {"link": options.get("link", "logistic")}
    for method in CALIBRATORS:
        arrays = VAD(calibrator=method, **options).fit(pool, labelled=(scores, y))
        evidence = VAD(calibrator=method, **options).fit(
            evidence_of(pool, **link), labelled=evidence_of(scores, y, **link)
        )
        same_fit(evidence, arrays, np.linspace(-6, 1, 57))


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("options", [{"shape": "free"}, {"intervals": True}, {"curvature": True, "intervals": True}])
def test_evidence_with_replica_counts_gives_map_and_interval_of_arrays(options, replicas):
    pool = pool_of(500, replicas)
    arrays, evidence = (VAD(**options).fit(each) for each in (pool, evidence_of(pool, replica_counts=True)))
    same_fit(evidence, arrays, np.linspace(-6, 1, 57))
    np.testing.assert_allclose(evidence.interval(0.05), arrays.interval(0.05), rtol=1e-12)


@pytest.mark.parametrize("calibrator", [None, "platt"])
def test_evidence_gives_the_fit_of_arrays_by_group(calibrator):
    pool, groups = grouped_pool([500, 700, 2000], [0.2, 0.4, 0.6], [-3, -2, -4])
    labelled = None if calibrator is None else labelled_of(2000)
    vad = {"calibrator": calibrator, "recentre": False}
    arrays = VAD(**vad).fit(pool, groups=groups, labelled=labelled)
    evidence = VAD(**vad).fit(evidence_of(pool, groups=groups), labelled=labelled)
    names = np.resize([*map(str, range(3)), "unseen"], 57)
    same_fit(evidence, arrays, np.linspace(-6, 1, 57), names)
    for name, lam in arrays.group_lambda_.items():
        np.testing.assert_allclose(evidence.group_lambda_[name], lam, rtol=1e-9)
        np.testing.assert_allclose(evidence.group_center_[name], arrays.group_center_[name], rtol=1e-9)


def test_evidence_that_was_saved_in_parts_and_merged_gives_the_same_lambda(tmp_path):
    pool = pool_of(3000)
    merged = None
    for i, part in enumerate(np.array_split(pool, 7)):
        evidence_of(part).save(tmp_path / f"{i}.json")
        day = Evidence.load(tmp_path / f"{i}.json")
        merged = day if merged is None else merged.merge(day)
    np.testing.assert_allclose(VAD().fit(merged).lambda_, VAD().fit(pool).lambda_, rtol=1e-12)


def test_fitting_again_forgets_the_groups():
    pool = pool_of(500)
    vad = VAD().fit(pool, groups=np.arange(500) % 2).fit(pool)
    assert isinstance(vad.map_, Affine)
    assert not hasattr(vad, "group_lambda_")


def test_a_failed_fit_keeps_the_previous_one():
    vad = VAD(intervals=True).fit(pool_of(500), groups=np.arange(500) % 2)
    before = dict(vars(vad))
    interval = vad.interval(0.1)
    failures = [
        ({"pool": DISAGREEING}, "λ = "),
        ({"pool": np.full((20, 2), 1.5)}, "constant"),
        ({"pool": np.vstack([pool_of(20_000), DISAGREEING]), "groups": np.repeat([0, 1], [20_000, 500])}, "group '1'"),
        ({"pool": pool_of(500), "labelled": labelled_of(500)}, "no calibrator"),
        ({"pool": pool_of(500)[:, :1]}, "two or more columns"),
    ]
    for arguments, message in failures:
        with pytest.raises(UncurseError, match=message):
            vad.fit(**arguments)
        assert vars(vad).keys() == before.keys()
        assert all(vars(vad)[name] is value for name, value in before.items())
    assert vad.interval(0.1) == interval


# ---------------------------------------------------------------------------- few rows, no noise


def test_two_rows_have_the_standard_error_of_normal_theory():
    vad = VAD().fit([[0.0, 0.1], [2.0, 1.8]])
    noise, variance = 0.0225 / 2, 1.0  # differences 0.1 and −0.2, centred: ±0.15
    assert vad.lambda_ == pytest.approx(1 - noise / variance, rel=1e-12)
    assert vad.standard_error_ == pytest.approx(lambda_error(vad.lambda_, 2, 1, True), rel=1e-12)
    assert vad.standard_error_ == pytest.approx(noise * np.sqrt(2 - noise), rel=1e-12)


def test_two_rows_with_a_known_variance_have_the_standard_error_of_normal_theory():
    vad = VAD().fit([0.0, 2.0], variance=0.1)
    assert vad.standard_error_ == pytest.approx(0.1, rel=1e-12)  # (1 − λ) √(2/n)


@pytest.mark.theory
@pytest.mark.parametrize("replicas", ONE_MODEL)
def test_standard_error_of_lambda_equals_its_spread_for_few_rows(replicas):
    fits = [
        VAD(replicas=replicas).fit(simulated(replicas, 20, np.random.default_rng(i), noise=0.2)) for i in range(200)
    ]
    spread = np.std([f.lambda_ for f in fits], ddof=1)
    # 200 draws of a skewed λ: a standard error of 14%, and the jackknife of 20 rows has a bias of 5%.
    assert abs(np.sqrt(np.mean([f.standard_error_**2 for f in fits])) / spread - 1) < 0.35


@pytest.mark.filterwarnings("ignore:λ")
@pytest.mark.parametrize("rows", [2, 3, 10, 20, 60])
@pytest.mark.parametrize("options", [{}, {"curvature": True}, {"link": "identity"}, {"intervals": True}])
def test_few_rows_give_a_finite_increasing_map(rows, options):
    for replicas in (2, 3):
        vad = VAD(lambda_floor=0.1, **options).fit(pool_of(rows, replicas, seed=rows))
        p = vad.predict_proba(np.linspace(-9, 3, 50))
        assert np.isfinite(vad.standard_error_)
        assert ((p > 0) & (p < 1)).all()
        assert (np.diff(p) > 0).all()
        if "intervals" not in options:
            continue
        if rows < 20:
            with pytest.raises(UncurseError, match=f"{rows} rows do not determine a shape; pass at least 20"):
                vad.interval(0.5)
        elif vad.lambda_ > 0.1:
            assert np.isfinite(vad.interval(0.5)).all()


@pytest.mark.parametrize("offset", [0.0, 0.1, -2.5])
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("rows", [200, 100_000])
def test_columns_that_differ_by_a_constant_show_no_noise(offset, replicas, rows):
    served = pool_of(rows)[:, :1]
    with pytest.warns(UserWarning, match="the replicas are identical, so they show no noise"):
        vad = VAD(curvature=True).fit(served + offset * np.arange(replicas))
    assert 0 <= vad.noise_variance_ < 1e-12
    assert vad.lambda_ == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(vad.predict_proba(served[:200, 0]), expit(served[:200, 0]), rtol=1e-9)


def test_scores_that_differ_in_the_last_bit_are_constant_or_fitted():
    pool = np.full((100, 2), -3.0)
    pool[::2, 0] = np.nextafter(-3.0, 0)
    with pytest.raises(UncurseError, match="the served scores are constant at -3"):
        VAD().fit(pool)
    pool = pool_of(100)
    pool[1] = np.nextafter(pool[0], 0)  # such rows among others are valid
    assert 0 < VAD(shape="free").fit(pool).predict_proba(pool[:2, 0])[0] < 1


# ---------------------------------------------------------------------------- λ ≤ 0

DISAGREEING = np.random.default_rng(0).normal(size=(500, 2)) * [0.1, 3.0]


def test_replicas_that_differ_more_than_scores_vary_are_an_error():
    message = (
        r"λ = -\d+: replicas differ more \(V = .*\) than the served scores vary \(variance .*\); train on more data"
    )
    with pytest.raises(UncurseError, match=message):
        VAD().fit(DISAGREEING)


def test_lambda_floor_warns_and_predicts_the_mean():
    with pytest.warns(UserWarning, match=r"λ = -\d+ is too low; using lambda_floor=0") as caught:
        vad = VAD(lambda_floor=0.0).fit(DISAGREEING)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert vad.lambda_ == 0
    np.testing.assert_allclose(vad.predict_proba([-3.0, 3.0]), expit(DISAGREEING[:, 0].mean()), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:λ")
def test_lambda_floor_works_with_curvature():
    vad = VAD(lambda_floor=0.0, curvature=True).fit(DISAGREEING)
    np.testing.assert_allclose(np.diff(vad.predict_proba([-3.0, 3.0])), 0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:λ")
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_lambda_floor_works_in_a_tandem(floor):
    scores, y = labelled_of(2000)
    vad = VAD(lambda_floor=floor, calibrator="platt").fit(DISAGREEING, labelled=(scores, y))
    np.testing.assert_allclose(vad.lambda_, floor / literal_lambda(scores), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:λ")
def test_lambda_floor_works_with_groups():
    pool = np.vstack([pool_of(2000), DISAGREEING])
    vad = VAD(lambda_floor=0.1).fit(pool, groups=np.repeat(["good", "bad"], [2000, 500]))
    assert vad.group_lambda_["bad"] == 0.1
    assert vad.group_lambda_["good"] > 0.5


def test_error_names_the_group_with_a_negative_lambda():
    pool = np.vstack([pool_of(20_000), DISAGREEING])
    with pytest.raises(UncurseError, match=r"λ = .* in group 'bad': replicas differ"):
        VAD().fit(pool, groups=np.repeat(["good", "bad"], [20_000, 500]))


def test_lambda_floor_does_not_change_a_positive_lambda():
    pool = pool_of(2000)
    assert VAD(lambda_floor=0.0).fit(pool).lambda_ == VAD().fit(pool).lambda_


# ---------------------------------------------------------------------------- invalid input

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
        (GOOD[:, :1], {}, "there are 1 score columns and replicas='seeds' needs 2; train the model once more with ano"),
        (
            GOOD,
            {"replicas": "bootstrap"},
            "there are 2 score columns and replicas='bootstrap' needs 3; column 0 is the served model",
        ),
        (GOOD[:, :1], {"replicas": "anchored"}, "there are 1 score columns and replicas='anchored' needs 2"),
        (GOOD[:, 0], {}, r"the scores have shape \(200,\); pass rows \(n, S\) with the served model in column 0"),
        (GOOD[None], {}, r"the scores have shape \(1, 200, 2\)"),
        (GOOD[:0], {}, r"the scores have shape \(0, 2\); pass rows"),
        (GOOD[:1], {}, "the served scores are constant at"),
        (
            np.column_stack([np.full(200, 1.5), GOOD[:, 0]]),
            {},
            r"the served scores are constant at 1\.5; pass scores that differ",
        ),
        (np.full((200, 2), 1 / 3), {"link": "identity", "scale": "value"}, "the served scores are constant at"),
        ([["a", "b"]], {}, "pool must be an array of numbers"),
        (5, {}, r"the scores have shape \(\)"),
        ((), {}, r"the scores have shape \(0,\)"),
        ({"a": GOOD}, {}, "pool must be an array of numbers, not dict"),
        (Moments().update(GOOD), {}, "pool must be an array of numbers, not Moments"),
        (Evidence(LogSpec(("a", "b")), Moments()), {}, "no rows"),
        (evidence_of(GOOD, link="probit"), {}, "collected with link='probit', not 'logistic'; use the same link"),
        (evidence_of(expit(GOOD), scale="probability"), {}, "collected with scale='probability', not 'logit'"),
        (evidence_of(GOOD, negative_rate=0.1), {}, r"collected with negative_rate=0\.1, not None"),
        (evidence_of(GOOD, top_k=TopK("auction", 3)), {}, "the pool holds only the top 3 of each auction; collect all"),
        (np.full((5, 2), 1e300), {}, r"pool\[0, 0\] is 1e\+300 beyond ±1e\+75 \(10 such values\)"),
        (1e300 * GOOD, {}, r"beyond ±1e\+75"),
    ],
)
def test_invalid_pool_is_refused_with_a_remedy(pool, options, message):
    with pytest.raises(UncurseError, match=message):
        VAD(**options).fit(pool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "odds"}, "link='odds' is unknown; choose one of logistic, identity, log, probit"),
        ({"scale": "odds"}, "scale='odds' is unknown; choose one of logit, probability, value"),
        ({"replicas": "folds"}, "replicas='folds' is unknown; choose one of seeds, bootstrap, anchored"),
        ({"calibrator": "plat"}, "calibrator='plat' is unknown; choose one of platt"),
        (
            {"calibrator": "platt", "curvature": True},
            "curvature=True corrects VAD alone; leave it out with a calibrator",
        ),
        ({"scale": "value"}, "scale='value' has no logistic score; use the identity or the log link"),
        ({"scale": "value", "link": "probit"}, "scale='value' has no probit score; use the identity or the log link"),
        (
            {"scale": "value", "link": "identity", "calibrator": "platt"},
            "scale='value' is for regression: it has no calibrator and no intervals",
        ),
        ({"scale": "value", "link": "identity", "intervals": True}, "scale='value' is for regression"),
        ({"scale": "value", "link": "identity", "negative_rate": 0.1}, "negative_rate applies to logits and prob"),
        ({"negative_rate": 0.0}, r"negative_rate=0\.0; pass the share of negatives kept in training, such as 0\.1"),
        ({"negative_rate": 10.0}, r"negative_rate=10\.0; pass the share"),
        ({"lambda_floor": -0.1}, r"lambda_floor=-0\.1; pass a number from 0 to 1, or None to raise an error"),
        ({"lambda_floor": 1.0}, r"lambda_floor=1\.0; pass a number from 0 to 1"),
        ({"lambda_floor": "a"}, "lambda_floor is 'a'; pass a finite number"),
        ({"negative_rate": "a"}, "negative_rate='a'; pass the share"),
        ({"curvature": 1}, "curvature=1; pass True or False"),
        ({"recentre": "no"}, "recentre='no'; pass True or False"),
        ({"intervals": None}, "intervals=None; pass True or False"),
        ({"shape": "curved"}, "shape='curved' is unknown; choose one of straight, free"),
        ({"calibrator_options": ["n_bins"]}, r"calibrator_options=\['n_bins'\]; pass a dict"),
    ],
)
def test_invalid_option_is_named(options, message):
    with pytest.raises(UncurseError, match=message):
        VAD(**options)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"labelled": GOOD_LABELLED}, "there are labelled rows but no calibrator; pass one"),
        ({"calibrator": "platt"}, {}, r"calibrator='platt' needs labelled=\(scores, labels\) in fit"),
        (
            {"calibrator": "platt"},
            {"labelled": (GOOD_LABELLED[0][:, 0], GOOD_LABELLED[1])},
            r"the labelled scores have shape \(200,\); pass the 2 replicas of the pool, shape \(m, S\)",
        ),
        (
            {"calibrator": "platt"},
            {"labelled": (GOOD_LABELLED[0][:, :1], GOOD_LABELLED[1])},
            r"the labelled scores have shape \(200, 1\); pass the 2 replicas of the pool",
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
            r"the served scores are constant at 1\.5 on the labelled rows",
        ),
        ({"calibrator": "platt"}, {"labelled": (with_value(np.nan), GOOD_LABELLED[1])}, r"\[3, 1\] is nan"),
        (
            {"calibrator": "platt"},
            {"labelled": GOOD_LABELLED, "variance": 0.1},
            "a calibrator needs replicas on pool and labelled rows; leave variance out",
        ),
        (
            {"calibrator": "histogram", "calibrator_options": {"bins": 5}},
            {"labelled": GOOD_LABELLED},
            "histogram has no option 'bins'",
        ),
        ({}, {"groups": ["a"]}, r"groups has shape \(1,\) but there are 200 rows"),
        ({}, {"groups": np.array(["a", None] * 100, dtype=object)}, "groups"),
        ({}, {"sample_weight": [1.0]}, r"sample_weight has shape \(1,\) but there are 200 rows"),
        ({}, {"sample_weight": np.zeros(200)}, "every sample_weight is zero; give some row a positive weight"),
        ({}, {"sample_weight": np.full(200, -1.0)}, "sample_weight holds -1; weights must be 0 or more"),
        ({}, {"variance": -0.1}, r"variance=-0\.1; pass V, a number of 0 or more"),
        ({}, {"variance": np.nan}, "variance"),
        ({}, {"variance": "x"}, "variance"),
        ({"calibrator": "platt"}, {"labelled": []}, r"labelled must be \(scores, labels\)"),
        ({"calibrator": "platt"}, {"labelled": (GOOD_LABELLED[0], None)}, r"labelled must be \(scores, labels\)"),
        ({"calibrator": "platt"}, {"labelled": evidence_of(GOOD_LABELLED[0])}, "the labelled evidence holds no labels"),
        ({}, {"variance": 100.0}, r"λ = -.*: replicas differ more \(V = 100\)"),
    ],
)
def test_invalid_arguments_of_fit_are_refused_with_a_remedy(options, arguments, message):
    with pytest.raises(UncurseError, match=message):
        VAD(**options).fit(GOOD, **arguments)


def test_a_tandem_without_recentring_needs_the_cells_of_the_pool():
    without_cells = Evidence(LogSpec(column_names(2)), Moments().update(GOOD))
    with pytest.raises(UncurseError, match="this evidence has no cells; a calibrator with recentre=False needs them"):
        VAD(calibrator="platt", recentre=False).fit(without_cells, labelled=GOOD_LABELLED)


@pytest.mark.parametrize("argument", [{"groups": np.zeros(200)}, {"sample_weight": np.ones(200)}])
def test_groups_and_weights_are_refused_with_evidence(argument):
    with pytest.raises(UncurseError, match="groups and sample_weight go with arrays; evidence already holds its own"):
        VAD().fit(evidence_of(GOOD), **argument)


def test_unfitted_vad_is_an_error():
    with pytest.raises(UncurseError, match="this VAD is not fitted; call fit first"):
        VAD().predict_proba([0.0])


def test_predicting_with_groups_needs_a_fit_with_groups():
    with pytest.raises(UncurseError, match="this VAD was fitted without groups; leave groups out"):
        VAD().fit(GOOD).predict_proba([0.0], ["a"])


@pytest.mark.parametrize(
    ("served", "message"),
    [
        ([np.nan], r"scores\[0\] is nan"),
        ([[0.0, 1.0]], r"scores has shape \(1, 2\); pass one column"),
        ([], "scores is empty"),
    ],
)
def test_invalid_served_scores_are_named(served, message):
    with pytest.raises(UncurseError, match=message):
        VAD().fit(GOOD).predict_proba(served)


def test_map_of_a_tandem_is_short_plain_json():
    vad = VAD(calibrator="histogram").fit(pool_of(1000), labelled=labelled_of(5000))
    assert isinstance(vad.map_, Chain)
    text = vad.map_.to_json()
    assert len(text) < 5000
    assert json.loads(text)["kind"] == "chain"


def test_repr_shows_the_estimates():
    vad = VAD(calibrator="platt")
    assert repr(vad) == "VAD(link='logistic', scale='logit', replicas='seeds', calibrator='platt')"
    assert f"with λ = {VAD().fit(GOOD).lambda_:.4g} ± " in repr(VAD().fit(GOOD))


# ---------------------------------------------------------------------------- common mistakes


def test_groups_of_one_lambda_and_different_centres_keep_that_lambda():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 5_000)
    truth = rng.normal(0, 0.5, 30)[groups] - 3 + rng.normal(0, 0.5, len(groups))
    pool = truth[:, None] + rng.normal(0, 0.4, (len(groups), 2))
    vad = VAD().fit(pool, groups=groups)
    right = 0.25 / (0.25 + 0.16)
    assert vad.lambda_ > right + 0.05  # λ of the pool includes the spread of centers
    # 5,000 rows: a standard error of 0.009 each; the shrunk values are more precise.
    assert np.abs(np.array(list(vad.group_lambda_.values())) - right).max() < 0.02


def test_lambda_floor_does_not_change_other_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat(["calm", "noisy"], 20_000)
    noise = np.where(groups == "calm", 0.3, 0.8)
    pool = rng.normal(-3, 0.6, (40_000, 1)) + noise[:, None] * rng.normal(size=(40_000, 2))
    with pytest.warns(UserWarning, match=r"λ = .* is too low; using lambda_floor=0\.7"):
        vad = VAD(lambda_floor=0.7).fit(pool, groups=groups)
    assert vad.group_lambda_["calm"] == pytest.approx(0.8, abs=0.02)
    assert vad.group_lambda_["noisy"] == 0.7


def test_labelled_rows_selected_by_the_served_score_raise_a_warning():
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 0.8, 40_000)
    scores = truth[:, None] + rng.normal(0, 0.4, (40_000, 2))
    y = rng.random(40_000) < expit(truth)
    winners = scores[:, 0] > np.quantile(scores[:, 0], 0.8)
    with pytest.warns(UserWarning, match=r"exceed the other replicas .*: label rows that were selected without it"):
        VAD(calibrator="platt").fit(scores, labelled=(scores[winners], y[winners]))
    earlier = truth + rng.normal(0, 0.6, 40_000)
    shown = earlier > np.quantile(earlier, 0.8)
    VAD(calibrator="platt").fit(scores, labelled=(scores[shown], y[shown]))  # no warning


def test_identical_replicas_raise_a_warning():
    with pytest.warns(UserWarning, match="the replicas are identical, so they show no noise; was the seed changed"):
        VAD().fit(np.column_stack([GOOD[:, 0], GOOD[:, 0]]))


def test_probabilities_passed_as_logits_raise_a_warning():
    with pytest.warns(UserWarning, match=r"every value of the scores lies in \[0, 1\]; if these are probabilities"):
        VAD().fit(expit(GOOD))


def test_a_transposed_pool_is_refused():
    with pytest.raises(UncurseError, match="2 rows and 200 columns; rows are candidates and columns replicas"):
        VAD().fit(GOOD.T)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"link": "probit"}, "evidence of the labelled rows was collected with link='probit', not 'logistic'"),
        ({"negative_rate": 0.5}, r"evidence of the labelled rows was collected with negative_rate=0\.5, not None"),
        ({"names": ("column 1", "column 0")}, "pool and labelled rows have different columns"),
    ],
)
def test_labelled_evidence_collected_with_other_options_is_refused(spec, message):
    names = spec.pop("names", column_names(2))
    labelled = from_arrays(*GOOD_LABELLED, spec=LogSpec(names, **spec))
    with pytest.raises(UncurseError, match=message):
        VAD(calibrator="platt").fit(evidence_of(GOOD), labelled=labelled)


def test_a_masked_pool_is_refused():
    with pytest.raises(UncurseError, match="pool has masked values"):
        VAD().fit(np.ma.masked_array(GOOD, np.abs(GOOD) > 3.5))


@pytest.mark.filterwarnings("ignore:λ =")
def test_groups_of_one_or_two_rows_have_the_lambda_of_the_pool():
    pool = np.random.default_rng(0).normal(-2, 1, (400, 1)) + np.random.default_rng(1).normal(0, 0.5, (400, 3))
    tiny = VAD().fit(pool, groups=np.arange(400) // 2)
    np.testing.assert_allclose(list(tiny.group_lambda_.values()), tiny.lambda_, rtol=1e-12)
    three = VAD(lambda_floor=0.0).fit(pool[:399], groups=np.arange(399) // 3)  # three rows have a λ of their own
    assert np.ptp(list(three.group_lambda_.values())) > 0


def test_a_tandem_with_bootstraps_warns_if_labelled_rows_vary_less_than_the_pool():
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 1, 40_000)
    served = truth + 0.5 * rng.normal(size=40_000)
    scores = np.column_stack([served, served[:, None] + 0.5 * rng.normal(size=(40_000, 2))])
    labels = rng.random(40_000) < 1 / (1 + np.exp(-truth))
    best = served > np.quantile(served, 0.8)
    with pytest.warns(UserWarning, match=r"if the served score selected them, .* selected_by='served'"):
        VAD(replicas="bootstrap", calibrator="platt").fit(scores, labelled=(scores[best], labels[best]))
    VAD(replicas="bootstrap", calibrator="platt").fit(scores, labelled=(scores[:20_000], labels[:20_000]))


def test_identical_replicas_leave_scores_on_the_edges_of_bins_where_they_are():
    # Rounding in λ = 1 moved a score on an edge to the bin below, depending on the order of rows.
    rng = np.random.default_rng(3)
    for _ in range(30):
        scores = rng.normal(size=(40, 1)).repeat(7, axis=1)
        labels, weights = rng.random(40) < 0.4, rng.uniform(0.1, 2, 40)
        method = VAD(replicas="bootstrap", calibrator="histogram", calibrator_options={"n_bins": 8})
        method.fit(scores, labelled=(scores, labels), sample_weight=weights)
        alone = fit_calibrator("histogram", evidence_of(scores, labels).cells, n_bins=8)
        assert method.lambda_ == 1.0
        np.testing.assert_array_equal(method.map_.transform(alone.edges), alone.transform(alone.edges))
