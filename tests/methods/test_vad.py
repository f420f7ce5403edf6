"""`VAD`: the formulas of the paper, its simulations, tandems, segments, weights and bad input."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.special import logit as true_logit

from simulated import evidence_of, rows_of
from uncurse import VAD, Affine, Evidence, Segmented, TopK, UncurseError, calibrate, top_share
from uncurse.calibration import CALIBRATORS
from uncurse.evidence import LogSpec, Moments, from_arrays
from uncurse.links import get_link

LINKS = ("logistic", "identity", "log")
KINDS_OF_ONE_MODEL = ("seeds", "bootstrap", "snapshots")  # the served score of an ensemble is a mean
GRID = np.linspace(-6, 1, 101)


def make(**options):
    return VAD(**{"scale": "logit", "replicas": "seeds", **options})


def pool_of(rows, replicas=2, **world):
    return rows_of(rows, replicas, **{"mean": -3.0, **world})[1]


def labeled_of(rows, replicas=2, **world):
    return rows_of(rows, replicas, **{"seed": 1, "sd": 1.0, **world})[1:]


def noise_of(scores, w=None):
    """Algorithm 1 with weighted means. The contract of the paper compares it with plain loops."""
    centered = scores - np.average(scores, axis=0, weights=w)
    return np.average(centered.var(axis=1, ddof=1), weights=w)


def lambda_of(scores, w=None):
    center = np.average(scores[:, 0], weights=w)
    return 1 - noise_of(scores, w) / np.average(np.square(scores[:, 0] - center), weights=w)


# ---------------------------------------------------------------------------- V and λ


@pytest.mark.parametrize("slope", [0.8, 1.3])
@pytest.mark.parametrize("bootstraps", [1, 2, 5])
def test_noise_of_bootstraps_is_their_variance_and_the_slope_that_they_add(bootstraps, slope):
    served = pool_of(300, 1)
    pool = np.hstack([served, slope * served + 0.2 * np.random.default_rng(1).normal(size=(300, bootstraps))])
    gap = pool[:, 1:].mean(axis=1) - pool[:, 0]
    rise = np.cov(gap, pool[:, 0], ddof=0)[0, 1] / np.var(pool[:, 0])
    expected = noise_of(pool[:, 1:]) if bootstraps > 1 else np.var(gap) - rise**2 * np.var(pool[:, 0])
    expected += max(rise, 0.0) ** 2 * np.var(pool[:, 0])
    vad = make(replicas="bootstrap").fit(pool)
    np.testing.assert_allclose(vad.noise_variance_, expected, rtol=1e-9)
    np.testing.assert_allclose(vad.lambda_, 1 - expected / np.var(pool[:, 0]), rtol=1e-9)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_every_link_shrinks_its_own_scores(link, scale):
    pool = pool_of(400)
    served = pool if scale == "logit" else expit(pool)
    l = get_link(link).inverse(expit(pool))
    factor = lambda_of(l)
    expected = get_link(link).phi(factor * l[:, 0] + (1 - factor) * l[:, 0].mean())
    vad = make(link=link, scale=scale).fit(served)
    assert isinstance(vad.map_, Affine)
    np.testing.assert_allclose(vad.lambda_, factor, rtol=1e-9)
    np.testing.assert_allclose(vad.predict_proba(served[:, 0]), expected, rtol=1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-10])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_units_of_a_regression_target_do_not_matter(unit, shift):
    pool = pool_of(1000)
    plain, other = (make(link="identity", scale="value").fit(x) for x in (pool, unit * (pool + shift)))
    np.testing.assert_allclose(other.lambda_, plain.lambda_, rtol=1e-9)
    expected = unit * (plain.predict_proba(pool[:, 0]) + shift)
    np.testing.assert_allclose(other.predict_proba(unit * (pool[:, 0] + shift)), expected, rtol=1e-9)


# ---------------------------------------------------------------------------- simulations


def simulated(replicas, rows, rng, sd=0.8, noise=0.4):
    """Served = truth + noise. Seeds draw the noise again; bootstraps add theirs to the served score."""
    truth = rng.normal(-3, sd, rows)
    served = truth + noise * rng.normal(size=rows)
    center = served if replicas == "bootstrap" else truth
    return np.column_stack([served, center[:, None] + noise * rng.normal(size=(rows, 2))])


@pytest.mark.parametrize("replicas", KINDS_OF_ONE_MODEL)
def test_every_kind_of_replica_recovers_a_known_lambda(replicas):
    vad = make(replicas=replicas).fit(simulated(replicas, 40_000, np.random.default_rng(1)))
    assert abs(vad.lambda_ - 0.8) < 3 * vad.standard_error_
    assert vad.standard_error_ < 0.01


@pytest.mark.theory
@pytest.mark.parametrize("replicas", KINDS_OF_ONE_MODEL)
@pytest.mark.parametrize(("rows", "noise", "most"), [(1_000, 0.4, 0.2), (20, 0.2, 0.35)])
def test_the_standard_error_of_lambda_is_its_spread_over_redrawn_pools(replicas, rows, noise, most):
    fits = [make(replicas=replicas).fit(simulated(replicas, rows, np.random.default_rng(i), noise=noise))
            for i in range(200)]  # fmt: skip
    spread = np.std([fit.lambda_ for fit in fits], ddof=1)
    # 200 draws: a standard error of 5%, and of 14% with 20 rows, where λ is skewed.
    assert abs(np.sqrt(np.mean([fit.standard_error_**2 for fit in fits])) / spread - 1) < most


def test_a_bootstrap_declared_as_a_seed_shows_half_the_noise():
    # The wording of Algorithm 1 can be read as a V that is too small by (S − 1)/S.
    pool = simulated("bootstrap", 40_000, np.random.default_rng(2))[:, :2]
    right, wrong = (make(replicas=kind).fit(pool).noise_variance_ for kind in ("bootstrap", "seeds"))
    np.testing.assert_allclose(wrong, right / 2, rtol=1e-3)


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
    return prediction[top].sum() / p.sum() - 1, p.std() / p.mean() / np.sqrt(top.sum())


@pytest.mark.parametrize(
    ("options", "published"),
    [(None, 0.226), ({}, -0.019), ({"curvature": True}, -0.001), ({"link": "identity"}, 0.073)],
    ids=["as served", "VAD", "VAD with curvature", "VAD(p)"],
)
def test_first_simulation_of_the_method_page_gives_the_published_errors(first_world, options, published):
    truth, pool = first_world
    predictions = expit(pool[:, 0]) if options is None else make(**options).fit(pool).predict_proba(pool[:, 0])
    error, standard_error = error_at_the_top(predictions, truth)
    # Published to 0.1%; 20,000 selected rows have a standard error of 0.2%.
    assert abs(error - published) < 3 * standard_error + 0.0005
    assert standard_error < 0.003


# ---------------------------------------------------------------------------- curvature


@pytest.mark.parametrize(("variance", "center"), [(0.16, -3.0), (1.0, -3.0), (4.0, 0.0), (0.5, 2.0)])
@pytest.mark.parametrize("link", LINKS)
def test_curvature_is_the_integral_over_the_posterior(link, variance, center):
    if link != "logistic":
        variance, center = variance / 25, center - 4
    served = np.random.default_rng(0).normal(center, np.sqrt(2 * variance), 1000)
    vad = make(link=link, curvature=True).fit(served, variance=0.0 if link == "identity" else variance)
    value, points = vad.lambda_, np.linspace(-9, 9, 6001)
    density = np.exp(-points * points / 2)
    density /= density.sum()
    l = np.linspace(center - 8, center + 5, 61) if link == "logistic" else np.linspace(-12, -5, 31)
    scores = l if link == "logistic" else true_logit(get_link(link).phi(l) if link == "log" else expit(l))
    if link == "identity":
        l = expit(l)
    at = (value * l + (1 - value) * vad.center_)[:, None] + np.sqrt(value * vad.noise_variance_) * points
    np.testing.assert_allclose(vad.predict_proba(scores), get_link(link).phi(at) @ density, rtol=1e-4)
    if link == "logistic":  # both tails keep their digits
        np.testing.assert_allclose(1 / vad.predict_proba(scores) - 1, expit(-at) @ density / (expit(at) @ density),
                                   rtol=2e-4)  # fmt: skip


def test_curvature_of_a_segment_uses_its_own_noise():
    pool, segments = segmented_pool([100_000] * 2, [0.1, 0.7], [-3.0] * 2)
    together = make(curvature=True).fit(pool, segments=segments)
    l = np.linspace(-5, 0, 11)
    for segment in (0, 1):
        alone = make(curvature=True).fit(pool[segments == segment])
        # 100,000 rows: the standard error of λ is 0.3%; the curvature of the wrong segment would change it by 4%.
        np.testing.assert_allclose(together.predict_proba(l, np.full(11, segment)), alone.predict_proba(l), rtol=0.01)


# ---------------------------------------------------------------------------- tandem


def literal_tandem(pool, scores, y, method, link="logistic", w=None, v=None):
    """Calibrate, then shrink about the mean calibrated score of the pool by λ_pool / λ_labeled: the paper's tandem."""
    step, phi = calibrate(method, scores[:, 0], y, scale="logit", sample_weight=v), get_link(link)
    ratio = lambda_of(phi.inverse(expit(pool)), w) / lambda_of(phi.inverse(expit(scores)), v)
    center = np.average(phi.inverse(step(pool[:, 0])), weights=w)
    return phi.phi(ratio * phi.inverse(step(GRID)) + (1 - ratio) * center), ratio, center


def literal_recentered(pool, scores, y, method):
    """Convert to the labeled score with the same expected truth, then calibrate."""
    ours, theirs = lambda_of(pool), lambda_of(scores)
    center, away = pool[:, 0].mean(), scores[:, 0].mean()
    return calibrate(method, scores[:, 0], y, scale="logit")(away + (center + ours * (GRID - center) - away) / theirs)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_recentered_tandem_calibrates_the_labeled_score_of_the_same_truth(method):
    pool, (scores, y) = pool_of(1000), labeled_of(1500)
    expected = literal_recentered(pool, scores, y, method)
    for rows in (pool, evidence_of(pool, histograms=False)):  # it needs no histogram of the pool
        vad = make(calibrator=method).fit(rows, labeled=(scores, y))
        np.testing.assert_allclose(vad.predict_proba(GRID), expected, rtol=2e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("link", LINKS)
def test_a_tandem_shrinks_calibrated_scores_about_their_mean(link, weighted):
    pool, (scores, y) = pool_of(1000), labeled_of(1500)
    rng = np.random.default_rng(5)
    w, v = np.exp(pool[:, 1] + 3) * rng.exponential(size=1000), np.exp(scores[:, 1] / 2) * rng.exponential(size=1500)
    w, v = (w, v) if weighted else (None, None)
    expected, ratio, center = literal_tandem(pool, scores, y, "platt", link, w, v)
    vad = make(calibrator="platt", recenter=False, link=link).fit(pool, labeled=(scores, y, v), sample_weight=w)
    np.testing.assert_allclose((vad.lambda_, vad.center_), (ratio, center), rtol=1e-6)
    inner = expected < 1 - 1e-9  # the log link is clipped there
    np.testing.assert_allclose(vad.predict_proba(GRID)[inner], expected[inner], rtol=2e-4)


@pytest.mark.parametrize("method", ["platt", "isotonic", "spline"])
def test_a_recentered_tandem_is_exact_under_a_mean_shift(method):
    """METHOD: Platt pivots about the labeled mean. Closed form: with normal noise the recentered tandem is exact."""
    rng = np.random.default_rng(3)
    rows = 400_000
    labeled_truth, truth = rng.normal(-1.0, 0.8, rows), rng.normal(-2.0, 0.8, rows)
    scores, pool = (t[:, None] + rng.normal(0, 0.5, (rows, 2)) for t in (labeled_truth, truth))
    y = rng.random(rows) < expit(labeled_truth)
    top = pool[:, 0] > np.quantile(pool[:, 0], 0.9)
    error = {}
    for recenter in (True, False):
        vad = make(calibrator=method, recenter=recenter).fit(pool, labeled=(scores, y))
        error[recenter] = vad.predict_proba(pool[top, 0]).sum() / expit(truth[top]).sum() - 1
    assert error[False] > 0.1  # without recentering the error remains
    assert abs(error[True]) < 0.03


def test_platt_with_vad_is_nearly_unbiased_where_each_alone_is_biased():
    # A model too steep by 1.3 and a shifted pool: Platt corrects the slope, VAD the selection bias.
    rng = np.random.default_rng(11)

    def draw(rows, mean, sd):
        truth = rng.normal(mean, sd, rows)
        return truth, 1.3 * (truth[:, None] + 0.4 * rng.normal(size=(rows, 2)))

    (known, scores), (truth, pool) = draw(400_000, -2.0, 1.0), draw(400_000, -2.5, 0.6)
    y = rng.random(len(known)) < expit(known)
    tandem = make(calibrator="platt").fit(pool, labeled=(scores, y))
    platt = calibrate("platt", scores[:, 0], y, scale="logit")
    alone, _ = error_at_the_top(platt(pool[:, 0]), truth, 0.02)
    both, standard_error = error_at_the_top(tandem.predict_proba(pool[:, 0]), truth, 0.02)
    assert alone > 0.15
    assert abs(both) < 0.4 * alone
    assert standard_error < 0.01


@pytest.mark.parametrize("recenter", [True, False])
def test_segments_of_a_tandem_shrink_about_their_own_mean(recenter):
    pool, segments = segmented_pool([20_000] * 2, [0.2, 0.6], [-3.5, -2.0])
    scores, y = labeled_of(20_000)
    vad = make(calibrator="isotonic", recenter=recenter).fit(pool, labeled=(scores, y), segments=segments)
    for g in (0, 1):
        own = pool[segments == g]
        expected = literal_recentered(own, scores, y, "isotonic") if recenter else literal_tandem(
            own, scores, y, "isotonic")[0]  # fmt: skip
        # Shrunk by at most a standard error of λ (0.3%) over at most 4 logits; steps of the isotonic curve move too.
        found, inner = vad.predict_proba(GRID, np.full(101, g)), (GRID > -5) & (GRID < 0)
        assert np.median(np.abs(found / expected - 1)[inner]) < 0.01


def test_a_tandem_uses_the_same_kind_of_replica_for_pool_and_labeled_rows():
    pool, (scores, y) = pool_of(900, 3), labeled_of(900, 3)
    lambdas = [make(replicas="bootstrap").fit(each).lambda_ for each in (pool, scores)]
    vad = make(replicas="bootstrap", calibrator="platt").fit(pool, labeled=(scores, y))
    np.testing.assert_allclose(vad.lambda_, lambdas[0] / lambdas[1], rtol=1e-12)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
@pytest.mark.parametrize(
    ("options", "change"),
    [({"scale": "probability"}, expit), ({"negative_sampling_rate": 0.2}, lambda l: l - np.log(0.2))],
    ids=["probabilities", "sampled negatives"],
)
def test_a_tandem_on_other_scores_is_the_tandem_on_their_logits(options, change, method):
    pool, (scores, y), l = pool_of(1000), labeled_of(1500), GRID - 0.01
    plain = make(calibrator=method).fit(pool, labeled=(scores, y))
    other = make(calibrator=method, **options).fit(change(pool), labeled=(change(scores), y))
    np.testing.assert_allclose(other.predict_proba(change(l)), plain.predict_proba(l), rtol=1e-8)


# ---------------------------------------------------------------------------- segments


def segmented_pool(sizes, noises, means, seed=0):
    rng = np.random.default_rng(seed)
    segments = np.repeat(np.arange(len(sizes)), sizes)
    truth = rng.normal(np.repeat(means, sizes), 0.8)
    pool = truth[:, None] + np.repeat(noises, sizes)[:, None] * rng.normal(size=(len(truth), 2))
    order = rng.permutation(len(truth))
    return pool[order], segments[order]


def lambdas_of(vad):
    return {name: one.lambda_ for name, one in vad.record_.segments.items()}


def test_large_segments_keep_their_own_lambda_and_center():
    pool, segments = segmented_pool([40_000] * 4, [0.1, 0.3, 0.5, 0.7], [-4, -3, -3, -2])
    vad = make().fit(pool, segments=segments)
    assert list(vad.record_.segments) == ["0", "1", "2", "3"]
    for name, one in vad.record_.segments.items():
        alone = make().fit(pool[segments == int(name)])
        assert abs(one.lambda_ - alone.lambda_) < alone.standard_error_
        assert abs(one.center - alone.center_) < 0.01
        assert one.rows == 40_000


@pytest.mark.parametrize("variance", [None, 0.16])
def test_segments_that_differ_only_by_chance_are_shrunk_towards_each_other(variance):
    pool, segments = segmented_pool([200] * 20, [0.4] * 20, [-3.0] * 20)
    pool = pool if variance is None else pool[:, 0]
    shrunk = list(lambdas_of(make().fit(pool, segments=segments, variance=variance)).values())
    own = [make().fit(pool[segments == g], variance=variance).lambda_ for g in range(20)]
    assert np.std(shrunk) < 0.5 * np.std(own)


def test_shrunk_lambdas_are_closer_to_the_truth_than_unshrunk_ones():
    noises = np.linspace(0.3, 0.5, 30)
    pool, segments = segmented_pool([300] * 30, noises, [-3.0] * 30)
    vad, truth = make().fit(pool, segments=segments), 0.64 / (0.64 + noises**2)
    own = np.array([make().fit(pool[segments == g]).lambda_ for g in range(30)])
    shrunk = np.array([lambdas_of(vad)[str(g)] for g in range(30)])
    errors = [np.mean((values - truth) ** 2) for values in (shrunk, own, vad.lambda_)]
    assert errors[0] < min(errors[1:])


def test_segments_of_one_lambda_and_different_centers_keep_that_lambda():
    pool, segments = segmented_pool([5_000] * 30, [0.6] * 30, np.random.default_rng(0).normal(-3, 0.8, 30))
    vad = make().fit(pool, segments=segments)
    right = 0.64 / (0.64 + 0.36)
    assert vad.lambda_ > right + 0.05  # λ of the pool includes the spread of centers
    # 5,000 rows: a standard error of 0.01 each; the shrunk values are more precise.
    assert np.abs(np.array(list(lambdas_of(vad).values())) - right).max() < 0.02


def test_segments_with_a_known_variance_have_the_lambda_of_their_own_score_variance():
    rng = np.random.default_rng(0)
    segments = np.repeat(["narrow", "wide"], 50_000)
    served = rng.normal(-3, np.where(segments == "narrow", 0.6, 1.5))
    vad = make().fit(served, segments=segments, variance=0.16)
    for name, found in lambdas_of(vad).items():
        # 50,000 rows: standard errors of 0.0028 and 0.0005.
        assert found == pytest.approx(1 - 0.16 / served[segments == name].var(), abs=0.003)
    assert vad.lambda_ == pytest.approx(1 - 0.16 / served.var(), rel=1e-12)


def test_unseen_segments_get_the_default_map():
    pool, segments = segmented_pool([500] * 3, [0.2, 0.4, 0.6], [-3, -2, -4])
    vad, plain = make().fit(pool, segments=segments), make().fit(pool)
    np.testing.assert_array_equal(vad.predict_proba(GRID, ["never"] * 101), plain.predict_proba(GRID))
    assert isinstance(vad.map_, Segmented)
    with pytest.raises(UncurseError, match="segments="):
        vad.predict_proba(GRID)


def test_a_segment_of_few_rows_with_equal_scores_has_a_finite_lambda():
    pool = np.vstack([pool_of(1000), [[0.0, 0.1], [0.0, 0.0], [1.0, 0.9]]])
    assert 0 < lambdas_of(make().fit(pool, segments=["a"] * 1000 + ["b"] * 3))["b"] < 1
    assert 0 < make().fit(pool[1000:]).lambda_ < 1


@pytest.mark.filterwarnings("ignore:λ =")
def test_segments_of_one_or_two_rows_have_the_lambda_of_the_pool():
    pool = pool_of(400, 3, mean=-2, sd=1, noise=0.5)
    tiny = make().fit(pool, segments=np.arange(400) // 2)
    np.testing.assert_allclose(list(lambdas_of(tiny).values()), tiny.lambda_, rtol=1e-12)
    np.testing.assert_allclose(lambdas_of(make().fit(pool, segments=["all"] * 400))["all"], tiny.lambda_, rtol=1e-9)


@pytest.mark.parametrize("rows", [3, 5, 10])
def test_many_segments_of_a_few_rows_are_no_worse_than_one_map(rows):
    rng = np.random.default_rng(rows)
    names = np.arange(3_000) // rows
    truth = rng.normal(-1.5, 0.8, 3_000)
    pool = truth[:, None] + rng.normal(0, 0.32, (3_000, 2))
    one, many = make().fit(pool).map_(pool[:, 0]), make().fit(pool, segments=names).map_(pool[:, 0], names)
    assert np.square(many - expit(truth)).mean() < 1.02 * np.square(one - expit(truth)).mean()


def test_a_segment_without_weight_is_unseen_and_a_new_fit_forgets_segments():
    pool = pool_of(100)
    vad = make().fit(pool, segments=np.arange(100) % 2, sample_weight=1 - np.arange(100) % 2)
    assert list(vad.record_.segments) == ["0"]
    assert isinstance(vad.fit(pool).map_, Affine)
    assert vad.record_.segments == {}


# ---------------------------------------------------------------------------- weights, sampling, evidence


def test_integer_weights_give_lambda_and_center_of_repeated_rows():
    pool, counts = pool_of(1000), np.random.default_rng(0).integers(0, 4, 1000)
    weighted, repeated = make().fit(pool, sample_weight=counts), make().fit(np.repeat(pool, counts, axis=0))
    np.testing.assert_allclose((weighted.lambda_, weighted.center_), (repeated.lambda_, repeated.center_), rtol=1e-9)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_a_negative_sampling_rate_equals_correcting_the_scores(link, scale):
    pool = pool_of(500)
    trained = pool - np.log(0.1)  # the model sees a tenth of the negatives
    plain, served = make(link=link).fit(pool), trained if scale == "logit" else expit(trained)
    vad = make(link=link, scale=scale, negative_sampling_rate=0.1).fit(served)
    np.testing.assert_allclose(vad.lambda_, plain.lambda_, rtol=1e-9)
    close = 1e-9 if link == "logistic" else 2e-4  # the offset is of logits: another link is sampled into a curve
    np.testing.assert_allclose(vad.predict_proba(served[:, 0]), plain.predict_proba(pool[:, 0]), rtol=close)


@pytest.mark.parametrize("options", [
    *({"link": link, "curvature": curvature} for link in LINKS for curvature in (False, True)),
    {"shape": "monotone"}, {"intervals": True}, {"scale": "probability"}, {"negative_sampling_rate": 0.1},
])  # fmt: skip
def test_evidence_gives_the_fit_of_arrays(options):
    pool = expit(pool_of(500, 3)) if "scale" in options else pool_of(500, 3)
    names = ("link", "scale", "negative_sampling_rate")
    evidence = evidence_of(pool, **{name: options[name] for name in names if name in options})
    arrays, of_evidence = make(**options).fit(pool), make(**options).fit(evidence)
    for name in ("lambda_", "center_"):
        assert getattr(of_evidence, name) == pytest.approx(getattr(arrays, name), rel=1e-12)
    np.testing.assert_allclose(of_evidence.map_.at_logits(GRID), arrays.map_.at_logits(GRID), rtol=1e-12)
    if arrays.fitted_.errors is not None:
        assert of_evidence.interval(0.05) == pytest.approx(arrays.interval(0.05), rel=1e-12)
    if options.get("link", "logistic") == "logistic":
        # λ's standard error comes from the rows, or from the cells of the histogram.
        assert of_evidence.standard_error_ == pytest.approx(arrays.standard_error_, rel=1e-3)


@pytest.mark.parametrize("recenter", [True, False])
def test_evidence_gives_the_tandem_of_arrays_by_segment(recenter):
    pool, segments = segmented_pool([500, 700, 2000], [0.2, 0.4, 0.6], [-3, -2, -4])
    scores, y = labeled_of(2000)
    vad = make(calibrator="isotonic", recenter=recenter)
    arrays = vad.fit(pool, segments=segments, labeled=(scores, y)).fitted_
    evidence = vad.fit(evidence_of(pool, segments=segments), labeled=evidence_of(scores, y)).fitted_
    names = np.resize([*map(str, range(3)), "unseen"], 101)
    np.testing.assert_allclose(evidence(GRID, names), arrays(GRID, names), rtol=1e-12)


# ---------------------------------------------------------------------------- few rows, no noise


@pytest.mark.filterwarnings("ignore:λ")
@pytest.mark.parametrize("rows", [2, 3, 20])
@pytest.mark.parametrize("options", [{}, {"curvature": True}, {"link": "identity"}, {"shape": "monotone"}])
def test_few_rows_give_a_finite_increasing_map(rows, options):
    for replicas in (2, 3):
        vad, pool = make(lambda_floor=0.1, **options), pool_of(rows, replicas, seed=rows)
        if "shape" in options and rows < 20:
            with pytest.raises(UncurseError, match=f"{rows} rows do not determine a shape"):
                vad.fit(pool)
            continue
        p = vad.fit(pool).predict_proba(np.linspace(-9, 3, 50))
        assert np.isfinite(vad.standard_error_)
        assert ((p > 0) & (p < 1)).all()
        assert (np.diff(p) > 0).all()


@pytest.mark.parametrize(("replicas", "offset"), [(2, 0.1), (3, -2.5)])
def test_columns_that_differ_by_a_constant_show_no_noise(offset, replicas):
    served = pool_of(20_000)[:, :1]
    with pytest.warns(UserWarning, match="the replicas are identical"):
        vad = make(curvature=True).fit(served + offset * np.arange(replicas))
    assert vad.noise_variance_ == 0
    assert vad.lambda_ == 1
    np.testing.assert_allclose(vad.predict_proba(served[:200, 0]), expit(served[:200, 0]), rtol=1e-9)


def test_scores_that_differ_in_the_last_bit_are_constant_or_fitted():
    pool = np.full((100, 2), -3.0)
    pool[::2, 0] = np.nextafter(-3.0, 0)
    with pytest.raises(UncurseError, match="constant at -3"):
        make().fit(pool)
    pool = pool_of(100)
    pool[1] = np.nextafter(pool[0], 0)  # such rows among others are valid
    assert 0 < make(shape="monotone").fit(pool).predict_proba(pool[:2, 0])[0] < 1


# ---------------------------------------------------------------------------- λ ≤ 0

DISAGREEING = np.random.default_rng(0).normal(size=(500, 2)) * [0.1, 3.0]
GOOD_AND_BAD = np.vstack([pool_of(20_000), DISAGREEING]), np.repeat(["good", "bad"], [20_000, 500])


def test_replicas_that_differ_more_than_scores_vary_are_an_error():
    with pytest.raises(UncurseError, match=r"λ = -\d+.* lambda_floor"):
        make().fit(DISAGREEING)
    with pytest.raises(UncurseError, match=r"λ = .* in segment 'bad'"):
        make().fit(GOOD_AND_BAD[0], segments=GOOD_AND_BAD[1])


@pytest.mark.parametrize("curvature", [False, True])
def test_lambda_floor_warns_and_predicts_the_mean(curvature):
    with pytest.warns(UserWarning, match=r"λ = -\d+ .*lambda_floor=0") as caught:
        vad = make(lambda_floor=0.0, curvature=curvature).fit(DISAGREEING)
    assert [one.filename for one in caught] == [__file__]
    assert vad.lambda_ == 0
    np.testing.assert_allclose(vad.predict_proba([-3.0, 3.0]), expit(DISAGREEING[:, 0].mean()), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:λ")
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_lambda_floor_works_in_a_tandem_and_for_one_segment(floor):
    scores, y = labeled_of(2000)
    vad = make(lambda_floor=floor, calibrator="platt").fit(DISAGREEING, labeled=(scores, y))
    np.testing.assert_allclose(vad.lambda_, floor / lambda_of(scores), rtol=1e-12)
    found = lambdas_of(make(lambda_floor=floor).fit(GOOD_AND_BAD[0], segments=GOOD_AND_BAD[1]))
    assert found["bad"] == floor
    assert found["good"] == pytest.approx(0.8, abs=0.02)
    assert make(lambda_floor=floor).fit(pool_of(2000)).lambda_ == make().fit(pool_of(2000)).lambda_


# ---------------------------------------------------------------------------- common mistakes


def test_labeled_rows_selected_by_the_served_score_raise_a_warning():
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 0.8, 40_000)
    scores = truth[:, None] + rng.normal(0, 0.4, (40_000, 2))
    y = rng.random(40_000) < expit(truth)
    winners, earlier = scores[:, 0], truth + rng.normal(0, 0.6, 40_000)
    best, shown = (by > np.quantile(by, 0.8) for by in (winners, earlier))
    with pytest.warns(UserWarning, match="as if the served score had selected them"):
        make(calibrator="platt").fit(scores, labeled=(scores[best], y[best]))
    make(calibrator="platt").fit(scores, labeled=(scores[shown], y[shown]))  # no warning


def test_a_tandem_with_bootstraps_warns_if_labeled_rows_vary_less_than_the_pool():
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 1, 40_000)
    served = truth + 0.5 * rng.normal(size=40_000)
    scores = np.column_stack([served, served[:, None] + 0.5 * rng.normal(size=(40_000, 2))])
    labels, best = rng.random(40_000) < expit(truth), served > np.quantile(served, 0.8)
    vad = make(replicas="bootstrap", calibrator="platt")
    with pytest.warns(UserWarning, match="labels_from='winners'"):
        vad.fit(scores, labeled=(scores[best], labels[best]))
    vad.fit(scores, labeled=(scores[:20_000], labels[:20_000]))


def test_probabilities_passed_as_logits_raise_a_warning():
    with pytest.warns(UserWarning, match="probabilities"):
        make().fit(expit(GOOD))


# ---------------------------------------------------------------------------- invalid input

GOOD = pool_of(200)
SCORES, LABELS = labeled_of(200)


def with_value(value):
    pool = GOOD.copy()
    pool[3, 1] = value
    return pool


@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        (np.full((5, 2), 1e300), {}, r"\[0, 0\] is 1e\+300"),
        (GOOD, {"scale": "probability"}, "not a probability"),
        (expit(with_value(np.inf)), {"scale": "probability"}, "exactly 0 or 1"),
        (-np.abs(GOOD), {"scale": "value", "link": "log"}, "no logarithm"),
        (GOOD[:, :1], {}, "replicas='seeds' needs two"),
        (GOOD[:, :1], {"replicas": "ensemble"}, "replicas='ensemble' needs two"),
        (GOOD[:, 0], {}, r"shape \(200,\)"),
        (GOOD.T, {}, "transpose"),
        (GOOD[:1], {}, "constant"),
        (np.column_stack([np.full(200, 1.5), GOOD[:, 0]]), {}, r"constant at 1\.5"),
        (Moments().update(GOOD), {}, "pool"),
        (Evidence(LogSpec(("a", "b")), Moments()), {}, "no rows"),
        (evidence_of(GOOD, link="identity"), {}, "link in the pool: identity"),
        (evidence_of(expit(GOOD), scale="probability"), {}, "scale in the pool: probability"),
        (evidence_of(GOOD, negative_sampling_rate=0.1), {}, "negative_sampling_rate in the pool"),
        (evidence_of(GOOD, top_k=TopK("auction", 3)), {}, "top 3 of each auction"),
        (evidence_of(GOOD, histograms=False), {"shape": "monotone"}, "histograms=True"),
    ],
)
def test_invalid_pool_is_refused(pool, options, message):
    with pytest.raises(UncurseError, match=message):
        make(**options).fit(pool)


VALUE = {"scale": "value", "link": "identity"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "odds"}, "link='odds'"),
        ({"scale": "odds"}, "scale='odds'"),
        ({"replicas": "folds"}, "replicas='folds'"),
        ({"calibrator": "plat"}, "calibrator='plat'"),
        ({"shape": "curved"}, "shape='curved'"),
        ({"calibrator": "platt", "curvature": True}, "curvature=True"),
        ({"calibrator": "platt", "replicas": "ensemble"}, "Auto for an ensemble"),
        ({"scale": "value"}, "scale='value'"),
        ({**VALUE, "calibrator": "platt"}, "scale='value'"),
        ({**VALUE, "intervals": True}, "scale='value'"),
        ({**VALUE, "negative_sampling_rate": 0.1}, "negative_sampling_rate"),
        *(({"negative_sampling_rate": rate}, "negative_sampling_rate") for rate in (0.0, -1.0, 10.0, "a")),
        *(({"lambda_floor": floor}, "lambda_floor") for floor in (-0.1, 1.0, "a")),
        *(({name: 1}, f"{name}=1") for name in ("curvature", "recenter", "intervals")),
        *(({"shape": "monotone", **more}, "shape='monotone'")
          for more in ({"calibrator": "platt"}, {"curvature": True}, {"link": "identity"})),
    ],
)  # fmt: skip
def test_invalid_option_is_named(options, message):
    with pytest.raises(UncurseError, match=message):
        make(**options)


def test_scale_and_replicas_have_no_default():
    for options in ({"scale": "logit"}, {"replicas": "seeds"}):
        with pytest.raises(TypeError, match="required keyword-only argument"):
            VAD(**options)


PLATT = {"calibrator": "platt"}


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"labeled": (SCORES, LABELS)}, "no calibrator"),
        (PLATT, {}, "calibrator='platt' needs labeled"),
        (PLATT, {"labeled": (SCORES[:, :1], LABELS)}, r"shape \(200, 1\)"),
        (PLATT, {"labeled": (DISAGREEING, np.arange(500) % 2)}, r"λ = -\d+ on the labeled rows"),
        (PLATT, {"labeled": (SCORES, np.zeros(200))}, "no positives"),
        (PLATT, {"labeled": (SCORES, np.ones(200))}, "no negatives"),
        (PLATT, {"labeled": (SCORES, np.zeros(199))}, r"labels has shape \(199,\)"),
        (PLATT, {"labeled": (np.full((200, 2), 1.5), LABELS)}, r"constant at 1\.5 on the labeled rows"),
        (PLATT, {"labeled": (SCORES, LABELS), "variance": 0.1}, "variance"),
        (PLATT, {"labeled": []}, "labeled must be"),
        (PLATT, {"labeled": (SCORES, None)}, "labeled must be"),
        (PLATT, {"labeled": evidence_of(SCORES)}, "no labels"),
        (
            PLATT,
            {"labeled": evidence_of(SCORES, LABELS, negative_sampling_rate=0.5)},
            "negative_sampling_rate in the labeled rows",
        ),
        (PLATT, {"labeled": evidence_of(SCORES, LABELS, link="identity")}, "link in the labeled rows"),
        ({}, {"segments": ["a"]}, r"segments has shape \(1,\)"),
        ({}, {"segments": np.array(["a", None] * 100, dtype=object)}, "segments"),
        ({}, {"sample_weight": np.zeros(200)}, "sample_weight"),
        *(({}, {"variance": value}, "variance") for value in (-0.1, np.nan, "x")),
        ({}, {"variance": 100.0}, r"V = 100"),
        ({"shape": "monotone"}, {"variance": 0.1}, "shape='monotone'"),
        ({"shape": "monotone"}, {"segments": np.arange(200) % 2}, "shape='monotone'"),
    ],
)
def test_invalid_arguments_of_fit_are_refused(options, arguments, message):
    with pytest.raises(UncurseError, match=message):
        make(**options).fit(GOOD, **arguments)


def test_what_evidence_cannot_do_is_refused():
    for argument in ({"segments": np.zeros(200)}, {"sample_weight": np.ones(200)}):
        with pytest.raises(UncurseError, match="segments and sample_weight"):
            make().fit(evidence_of(GOOD), **argument)
    with pytest.raises(UncurseError, match="recenter=False"):
        make(calibrator="platt", recenter=False).fit(evidence_of(GOOD, histograms=False), labeled=(SCORES, LABELS))
    labeled = from_arrays(SCORES, LABELS, spec=LogSpec(("column 1", "column 0")))
    with pytest.raises(UncurseError, match="scores in the labeled rows"):
        make(calibrator="platt").fit(evidence_of(GOOD), labeled=labeled)


@pytest.mark.parametrize(
    ("served", "message"),
    [([np.nan], r"\[0\] is nan"), ([[0.0, 1.0]], r"shape \(1, 2\)"), ([], "empty")],
)
def test_invalid_served_scores_are_named(served, message):
    with pytest.raises(UncurseError, match=message):
        make().fit(GOOD).predict_proba(served)


def test_segments_need_a_fit_with_segments_and_predictions_a_fit():
    with pytest.raises(UncurseError, match="without segments"):
        make().fit(GOOD).predict_proba([0.0], ["a"])
    for use in (lambda vad: vad.predict_proba([0.0]), lambda vad: vad.interval(0.05), lambda vad: vad.to_affine()):
        with pytest.raises(UncurseError, match="this VAD is not fitted"):
            use(make())


def test_repr_shows_options_and_estimates():
    assert repr(make(calibrator="platt")).startswith("VAD(link='logistic', scale='logit', replicas='seeds', calib")
    vad = make().fit(GOOD)
    assert f"λ = {vad.lambda_:.4g} (standard error {vad.standard_error_:.2g})" in repr(vad)
    assert "λ" in vad._repr_html_()
