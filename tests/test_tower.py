import pickle
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, logit

import uncurse
from uncurse import VAD, Evidence, LogSpec, Moments, Tower, UncurseError
from uncurse.calibration.logistic import fit_logistic
from uncurse.debias.label_model import fit_scaling
from uncurse.debias.latent_scores import ReplicaModel
from uncurse.debias.tower import fit_tower
from uncurse.evidence import from_arrays
from uncurse.evidence.from_arrays import column_names
from uncurse.metrics.selection import top_share

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
X = np.linspace(-4.0, 0.0, 21)


def rows_of(rows, replicas=3, *, seed=0, mean=-2.0, sd=0.8, noise=0.4):
    """Return truth, scores and labels of exchangeable replicas."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    scores = truth[:, None] + noise * rng.normal(size=(rows, replicas))
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


def posterior_mean(x, mean, sd, noise=0.4):
    """Return logit E[φ(t) | served score], by Gauss–Hermite quadrature."""
    slope = sd**2 / (sd**2 + noise**2)
    l = (slope * x + (1 - slope) * mean)[:, None] + np.sqrt(slope) * noise * NODES
    return logit(expit(l) @ WEIGHTS)


def error_on_top(fitted, truth, served, alpha, *groups):
    top = top_share(served, alpha)
    return float(fitted.predict_proba(served[top], *groups).mean() / expit(truth[top]).mean() - 1)


def evidence_of(scores, labels=None, groups=None, **options):
    spec = LogSpec(column_names(np.shape(scores)[1]), **options)
    return from_arrays(scores, labels, spec=spec, groups=groups, cells=False, replica_counts=True)


TRUTH, POOL, _ = rows_of(10_000, mean=-2.5)
_, SCORES, LABELS = rows_of(10_000, seed=1)
FITTED = Tower().fit(POOL, labelled=(SCORES, LABELS))


# ---------------------------------------------------------------------------- normal scores, in closed form


@cache
def many_labels(replicas):
    _, scores, labels = rows_of(200_000, replicas, seed=1)
    return evidence_of(scores, labels)


@pytest.mark.parametrize("replicas", [2, 3, 6])
@pytest.mark.parametrize(("mean", "sd"), [(-2.0, 0.8), (-3.0, 0.8), (-2.5, 1.2), (-2.5, 0.5)])
def test_map_is_the_posterior_mean_for_normal_scores_wherever_labels_are(replicas, mean, sd):
    _, pool, _ = rows_of(50_000, replicas, mean=mean, sd=sd)
    tower = Tower().fit(pool, labelled=many_labels(replicas))
    spread = np.hypot(sd, 0.4)
    x = np.linspace(mean - 1.5 * spread, mean + 2.5 * spread, 30)
    assert np.abs(tower.map_.transform(x) - posterior_mean(x, mean, sd)).max() < 0.15
    assert abs(np.mean(tower.map_.transform(x) - posterior_mean(x, mean, sd))) < 0.04


def test_biased_scores_are_calibrated():
    # Scores that are too steep and too high: only labels show that.
    _, pool, _ = rows_of(50_000, mean=-2.5)
    _, scores, labels = rows_of(200_000, seed=1)
    tower = Tower().fit(1.6 * pool + 1, labelled=(1.6 * scores + 1, labels))
    inner = np.linspace(-3.5, -0.5, 20)
    np.testing.assert_allclose(tower.map_.transform(1.6 * inner + 1), posterior_mean(inner, -2.5, 0.8), atol=0.12)


def test_bootstrap_and_anchored_replicas_give_the_same_map():
    rng = np.random.default_rng(0)

    def served_and(rows, mean, anchored):
        truth = rng.normal(mean, 0.8, rows)
        served = truth + 0.4 * rng.normal(size=rows)
        middle = served if anchored else truth
        return np.column_stack([served, middle[:, None] + 0.4 * rng.normal(size=(rows, 3))]), truth

    for kind in ("anchored", "bootstrap"):
        # Bootstraps vary about the served fit in both cases; only the estimate of V differs.
        pool, truth = served_and(50_000, -2.5, True)
        scores, of_labelled = served_and(100_000, -2.0, True)
        tower = Tower(replicas=kind).fit(pool, labelled=(scores, rng.random(100_000) < expit(of_labelled)))
        assert abs(error_on_top(tower, truth, pool[:, 0], 0.02)) < 0.06
        assert abs(error_on_top(tower, truth, pool[:, 0], 0.2)) < 0.04


@pytest.mark.theory
@pytest.mark.parametrize("replicas", [2, 3])
def test_errors_on_the_top_average_to_zero(replicas):
    errors = []
    for seed in range(60):
        truth, pool, _ = rows_of(5_000, replicas, seed=2 * seed, mean=-2.5)
        _, scores, labels = rows_of(5_000, replicas, seed=2 * seed + 1)
        errors.append(error_on_top(Tower().fit(pool, labelled=(scores, labels)), truth, pool[:, 0], 0.05))
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(60) + 0.01


# ---------------------------------------------------------------------------- input


def test_probabilities_and_logits_give_the_same_map():
    other = Tower(scale="probability").fit(expit(POOL), labelled=(expit(SCORES), LABELS))
    np.testing.assert_allclose(other.predict_proba(expit(X)), FITTED.predict_proba(X), rtol=1e-6)


def test_negative_rate_equals_correcting_the_scores():
    shift = -np.log(0.1)
    pool, scores, labels = POOL[:2_000], SCORES[:2_000], LABELS[:2_000]
    plain = Tower().fit(pool, labelled=(scores, labels))
    thinned = Tower(negative_rate=0.1).fit(pool + shift, labelled=(scores + shift, labels))
    np.testing.assert_allclose(thinned.predict_proba(X + shift), plain.predict_proba(X), rtol=1e-3)
    np.testing.assert_allclose(thinned.interval(0.05), plain.interval(0.05), atol=1e-3)


@pytest.mark.parametrize("replicas", [2, 3])
def test_evidence_gives_map_and_interval_of_arrays(replicas):
    pool, scores, labels = POOL[:1_000, :replicas], SCORES[:1_000, :replicas], LABELS[:1_000]
    arrays = Tower().fit(pool, labelled=(scores, labels))
    evidence = Tower().fit(evidence_of(pool), labelled=evidence_of(scores, labels))
    np.testing.assert_allclose(evidence.predict_proba(X), arrays.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(evidence.interval(0.05), arrays.interval(0.05), rtol=1e-12)
    mixed = Tower().fit(pool, labelled=evidence_of(scores, labels))
    np.testing.assert_allclose(mixed.predict_proba(X), arrays.predict_proba(X), rtol=1e-12)


def test_groups_of_evidence_equal_groups_of_arrays():
    pool, labelled = POOL[:2_000], (SCORES[:2_000], LABELS[:2_000])
    groups = np.where(np.arange(2_000) % 4, "most", "some")
    of_rows = Tower().fit(pool, labelled=labelled, groups=groups)
    of_evidence = Tower().fit(evidence_of(pool, groups=groups), labelled=labelled)
    names = np.resize(["most", "some", "never seen"], len(X))
    np.testing.assert_allclose(of_evidence.predict_proba(X, names), of_rows.predict_proba(X, names), rtol=1e-12)


def test_evidence_collected_with_other_options_is_refused():
    with pytest.raises(UncurseError, match="collected with scale='probability', not 'logit'; use the same scale"):
        Tower().fit(evidence_of(expit(POOL), scale="probability"), labelled=(SCORES, LABELS))
    with pytest.raises(UncurseError, match=r"collected with negative_rate=0\.1, not None"):
        Tower().fit(evidence_of(POOL, negative_rate=0.1), labelled=(SCORES, LABELS))
    with pytest.raises(UncurseError, match="this evidence has no replica counts; collect it with replica_counts=True"):
        Tower().fit(Evidence(LogSpec(column_names(3)), Moments().update(POOL)), labelled=(SCORES, LABELS))
    with pytest.raises(UncurseError, match="holds no labels"):
        Tower().fit(POOL, labelled=evidence_of(SCORES))
    with pytest.raises(UncurseError, match="groups and sample_weight go with arrays"):
        Tower().fit(evidence_of(POOL), labelled=(SCORES, LABELS), sample_weight=np.ones(10_000))


def test_float32_row_order_and_repeated_rows_hardly_change_the_map():
    order = np.random.default_rng(0).permutation(10_000)
    shuffled = Tower().fit(POOL[order], labelled=(SCORES[order], LABELS[order]))
    single = Tower().fit(POOL.astype(np.float32), labelled=(SCORES.astype(np.float32), LABELS))
    np.testing.assert_allclose(shuffled.predict_proba(X), FITTED.predict_proba(X), rtol=0.01)
    np.testing.assert_allclose(single.predict_proba(X), FITTED.predict_proba(X), rtol=0.01)
    twice = Tower().fit(np.repeat(POOL, 2, axis=0), labelled=(SCORES, LABELS))
    np.testing.assert_allclose(twice.predict_proba(X), FITTED.predict_proba(X), rtol=0.03)


def test_rows_of_zero_weight_do_not_count():
    keep = np.random.default_rng(3).random(10_000) < 0.5
    part = Tower().fit(POOL[keep], labelled=(SCORES[keep], LABELS[keep]))
    weighted = Tower().fit(POOL, labelled=(SCORES, LABELS, keep.astype(float)), sample_weight=keep.astype(float))
    np.testing.assert_allclose(weighted.predict_proba(X), part.predict_proba(X), rtol=0.02)


def test_inverse_selection_weights_reproduce_the_pool():
    # Rows are kept with a probability that decreases with the truth, and weighted by its inverse.
    truth, pool, _ = rows_of(100_000, mean=-2.5)
    chance = expit(-2 - truth)
    keep = np.random.default_rng(4).random(100_000) < chance
    weighted = Tower().fit(pool[keep], labelled=(SCORES, LABELS), sample_weight=1 / chance[keep])
    whole = Tower().fit(pool, labelled=(SCORES, LABELS))
    np.testing.assert_allclose(weighted.map_.transform(X), whole.map_.transform(X), atol=0.12)


# ---------------------------------------------------------------------------- groups


def test_a_group_with_another_distribution_gets_its_own_map():
    rng = np.random.default_rng(0)
    low = rng.random(60_000) < 0.5
    truth = rng.normal(np.where(low, -3.5, -1.5), 0.8)
    pool = truth[:, None] + 0.4 * rng.normal(size=(60_000, 3))
    _, scores, labels = rows_of(60_000, seed=1, mean=-2.5, sd=1.3)
    groups = np.where(low, "low", "high")
    tower = Tower().fit(pool, labelled=(scores, labels), groups=groups)
    assert tower.map_.kind == "grouped"
    assert tower.predict_proba([-2.0], ["low"])[0] < 0.97 * tower.predict_proba([-2.0], ["high"])[0]
    # On the top of the group the map of the pool has a larger error.
    served, own = pool[low, 0], truth[low]
    top = top_share(served, 0.05)
    true = expit(own[top]).mean()
    of_group = tower.predict_proba(served[top], groups[low][top]).mean()
    assert abs(of_group / true - 1) < abs(tower.map_.default(served[top]).mean() / true - 1)


def two_levels(rows, seed):
    """Labels of group B have odds that are 1.65 times as high as any score says."""
    truth, scores, _ = rows_of(rows, 2, seed=seed)
    groups = np.where(np.random.default_rng(seed).random(rows) < 0.3, "B", "A")
    truth = truth + 0.5 * (groups == "B")
    return truth, scores, np.random.default_rng(seed + 1).random(rows) < expit(truth), groups


@pytest.mark.parametrize("method", [Tower, uncurse.Auto])
def test_labels_of_a_group_correct_its_level(method):
    _, scores, labels, groups = two_levels(40_000, seed=5)
    pool_truth, pool, _, pool_groups = two_levels(20_000, seed=15)
    of_pool = evidence_of(pool, groups=pool_groups)
    fitted = method().fit(of_pool, labelled=evidence_of(scores, labels, groups=groups))
    together = method().fit(of_pool, labelled=evidence_of(scores, labels))
    for name in "AB":
        rows = pool_groups == name
        own = pool_truth[rows], pool[rows, 0], 0.05
        some = pool_groups[rows][top_share(pool[rows, 0], 0.05)]
        assert abs(error_on_top(together, *own, some)) > 0.08
        assert abs(error_on_top(fitted, *own, some)) < 0.06  # label noise of B is 2.6%
    assert isinstance(fitted, Tower) or "the odds of group 'B' are" in fitted.reason_


def test_levels_of_groups_are_shrunk_and_finite_for_labels_of_one_class():
    groups = np.array(["most"] * 9_960 + ["few"] * 20 + ["none"] * 20)
    labels = np.where(groups == "none", 0, LABELS)
    fitted = fit_tower(evidence_of(POOL, groups=groups), evidence_of(SCORES, labels, groups=groups), replicas="seeds")
    level, error = fitted.remaining.group_levels["none"]
    assert -10 < level < -1
    assert error > 1
    for name in ("few", "none"):
        moved = fitted.map.maps[name].transform(X) - fitted.map.default.transform(X)
        assert np.abs(moved).max() < 0.1


def test_the_levels_of_groups_have_their_standard_errors():
    _, scores, labels, groups = two_levels(20_000, seed=6)
    pool = evidence_of(POOL[:, :2], groups=groups[:10_000])
    levels = fit_tower(pool, evidence_of(scores, labels, groups=groups), replicas="seeds").remaining.group_levels
    for name, (_, error) in levels.items():
        rate = labels[groups == name].mean()  # the information of a row is less than rate · (1 − rate)
        assert 1 < error * np.sqrt((groups == name).sum() * rate * (1 - rate)) < 1.2
    errors = np.hypot(levels["A"][1], levels["B"][1])
    assert levels["B"][0] - levels["A"][0] == pytest.approx(0.5, abs=3 * errors)


def test_tiny_groups_are_shrunk_to_the_pool():
    groups = np.array(["whole"] * 9_980 + ["tiny"] * 20)
    tower = Tower().fit(POOL, labelled=(SCORES, LABELS), groups=groups)
    whole, tiny = tower.map_.default(X), tower.predict_proba(X, np.full(len(X), "tiny"))
    np.testing.assert_allclose(tiny, whole, rtol=0.03)
    np.testing.assert_array_equal(tower.predict_proba(X, np.full(len(X), "never seen")), whole)


def test_groups_of_zero_weight_get_the_default_map():
    groups = np.arange(10_000) % 3
    tower = Tower().fit(POOL, labelled=(SCORES, LABELS), groups=groups, sample_weight=(groups > 0).astype(float))
    assert sorted(tower.map_.maps) == ["1", "2"]
    np.testing.assert_array_equal(tower.predict_proba(X, np.zeros(len(X), int)), tower.map_.default(X))


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_group_of_few_rows_or_of_one_score_has_a_finite_map(rows):
    groups, pool = (np.arange(5_000) < rows).astype(int), POOL[:5_000].copy()
    pool[:rows] = -2.0
    tower = Tower().fit(pool, labelled=(SCORES[:5_000], LABELS[:5_000]), groups=groups)
    p = tower.predict_proba(X, np.ones(len(X), int))
    assert (np.diff(p) > 0).all()
    assert np.isfinite(p).all()


def test_predicting_with_groups_needs_a_fit_with_groups():
    with pytest.raises(UncurseError, match="this Tower was fitted without groups"):
        FITTED.predict_proba(X, np.zeros(len(X)))


# ---------------------------------------------------------------------------- labels selected by the served score


@pytest.mark.parametrize("replicas", [2, 3])
def test_labels_selected_by_the_served_score_are_detected_and_do_not_bias_the_map(replicas):
    _, many, labels = rows_of(300_000, replicas, seed=5, mean=-2.5)
    keep = many[:, 0] > np.quantile(many[:, 0], 0.9)
    of_pool, pool, _ = rows_of(50_000, replicas, mean=-2.5)
    with pytest.warns(UserWarning, match="as if the served score had selected them"):
        tower = Tower().fit(pool, labelled=(many[keep], labels[keep]))
    for alpha in (0.02, 0.1):
        assert abs(error_on_top(tower, of_pool, pool[:, 0], alpha)) < 0.04


def test_labels_selected_by_an_earlier_model_raise_no_warning():
    truth, many, labels = rows_of(300_000, seed=5, mean=-2.5)
    earlier = truth + 0.5 * np.random.default_rng(6).normal(size=300_000)
    keep = earlier > np.quantile(earlier, 0.9)
    tower = Tower().fit(POOL, labelled=(many[keep], labels[keep]))  # a warning would be an error
    assert abs(error_on_top(tower, TRUTH, POOL[:, 0], 0.05)) < 0.06


def winners_and_pool(selected_by, seed=7):
    """The best of each 20 rows by the served score or by an earlier model, and a pool; bootstraps as replicas."""
    rng = np.random.default_rng(seed)

    def draw(requests):
        truth = rng.normal(-4, 1, (requests, 20))
        served = truth + 0.5 * rng.normal(size=truth.shape)
        return truth, served, served[..., None] + 0.5 * rng.normal(size=(*truth.shape, 2))

    truth, served, bootstraps = draw(20_000)
    by = served if selected_by == "served" else truth + 0.5 * rng.normal(size=truth.shape)
    best = np.arange(20_000), by.argmax(axis=1)
    labels = rng.random(20_000) < expit(truth[best])
    labelled = np.column_stack([served[best], bootstraps[best]]), labels
    truth, served, bootstraps = draw(4_000)
    return truth.ravel(), np.column_stack([served.ravel(), bootstraps.reshape(-1, 2)]), labelled


def test_with_bootstraps_labels_show_that_the_served_score_selected_them():
    truth, pool, labelled = winners_and_pool("served")
    with pytest.warns(UserWarning, match=r"rise by 1\.\d+ per unit .* treated as selected from this pool"):
        detected = Tower(replicas="bootstrap").fit(pool, labelled=labelled)
    named = Tower(replicas="bootstrap", selected_by="served").fit(pool, labelled=labelled)  # no warning
    assert named.map_ == detected.map_
    wrong = Tower(replicas="bootstrap", selected_by="other").fit(pool, labelled=labelled)
    for alpha in (0.02, 0.05):
        assert abs(error_on_top(named, truth, pool[:, 0], alpha)) < 0.06  # label noise is 2.2%
        assert error_on_top(wrong, truth, pool[:, 0], alpha) < -0.1


def test_with_bootstraps_it_is_asked_whether_the_served_score_selected_high_scores():
    truth, pool, labelled = winners_and_pool("earlier")
    asked = r"labelled rows are 1\.66 higher .* vary less, .*'bootstrap' do not show .* selected_by='served' or 'other'"
    with pytest.warns(UserWarning, match=asked):
        tower = Tower(replicas="bootstrap").fit(pool, labelled=labelled)
    assert tower.map_ == Tower(replicas="bootstrap", selected_by="other").fit(pool, labelled=labelled).map_
    for alpha in (0.02, 0.05):
        assert abs(error_on_top(tower, truth, pool[:, 0], alpha)) < 0.05


@pytest.mark.parametrize("slope", [1.0, 0.8, 0.4])
def test_seeds_that_vary_differently_are_reported(slope):
    scores, pool = (rows * [1.0, slope] for rows in (SCORES[:, :2], POOL[:, :2]))
    tower = Tower(selected_by="other")
    expected = pytest.warns(UserWarning, match=r"column 1 vary 0\.4\d? times .* train them alike")
    with expected if slope < 0.6 else nullcontext():
        tower.fit(pool, labelled=(scores, LABELS))
    tower.fit(pool[:500], labelled=(scores, LABELS))  # too few rows to say it
    Tower(replicas="snapshots", selected_by="other").fit(pool, labelled=(scores, LABELS))


def test_what_selected_the_labelled_rows_is_one_of_three():
    with pytest.raises(UncurseError, match="selected_by"):
        Tower(selected_by="me")


# ---------------------------------------------------------------------------- few rows


def test_fifty_pool_and_labelled_rows_give_a_map_close_to_the_scores():
    tower = Tower().fit(POOL[:50], labelled=(SCORES[:50], LABELS[:50]))
    slope = np.diff(tower.map_.transform(X)) / np.diff(X)
    assert (slope > 0.3).all()
    assert (slope < 1.7).all()
    low, high = tower.interval(0.1)
    assert low < -0.2
    assert high > 0.2


def test_five_positives_set_the_level_and_keep_the_slope():
    # At a rate of 1 in 1,000 they hardly determine a slope, so the prior slope is kept.
    _, scores, labels = rows_of(5_000, seed=7, mean=-7.2)
    assert 2 <= labels.sum() <= 10
    tower = Tower().fit(scores, labelled=(scores, labels))
    p = tower.predict_proba(scores[:, 0])
    assert 0.4 < p.mean() / labels.mean() < 2.5
    slope = np.diff(tower.map_.transform(np.array([-8.0, -6.0])))[0] / 2
    assert 0.4 < slope < 1.4


@pytest.mark.parametrize(("value", "missing"), [(0, "positives"), (1, "negatives")])
def test_labels_of_one_class_are_refused(value, missing):
    with pytest.raises(UncurseError, match=f"the labels have no {missing}"):
        Tower().fit(POOL, labelled=(SCORES, np.full(10_000, value)))


def test_separable_labels_have_a_finite_map():
    tower = Tower().fit(POOL, labelled=(SCORES, SCORES.mean(axis=1) > -2))
    l = tower.map_.transform(X)
    assert np.isfinite(l).all()
    assert (np.diff(l) > 0).all()


@pytest.mark.parametrize("kind", ["seeds", "anchored"])
def test_labels_independent_of_scores_are_predicted_by_their_rate(kind):
    labels = np.random.default_rng(8).random(10_000) < 0.1
    p = Tower(replicas=kind).fit(POOL, labelled=(SCORES, labels)).predict_proba(POOL[:, 0])
    np.testing.assert_allclose(p.mean(), 0.1, rtol=0.1)
    assert p.std() < 0.02


# ---------------------------------------------------------------------------- unusual scores


def test_identical_replicas_raise_a_warning_and_are_calibrated():
    pool, scores = (np.repeat(x[:, :1], 2, axis=1) for x in (POOL, SCORES))
    with pytest.warns(UserWarning, match="the replicas are identical"):
        tower = Tower().fit(pool, labelled=(scores, LABELS))
    platt = uncurse.calibrate("platt", SCORES[:, 0], LABELS)
    np.testing.assert_allclose(tower.map_.transform(X), platt.transform(X), atol=0.2)


def test_constant_scores_are_refused():
    with pytest.raises(UncurseError, match=r"the served scores of the (pool|labelled rows) are constant"):
        Tower().fit(np.full_like(POOL, -2.0), labelled=(SCORES, LABELS))
    with pytest.raises(UncurseError, match=r"the served scores of the (pool|labelled rows) are constant"):
        Tower().fit(POOL, labelled=(np.full_like(SCORES, -2.0), LABELS))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_invalid_scores_are_named(bad):
    pool, scores = POOL.copy(), SCORES.copy()
    pool[3, 1] = scores[3, 1] = bad
    with pytest.raises(UncurseError, match=rf"\[3, 1\] is {bad}"):
        Tower().fit(pool, labelled=(SCORES, LABELS))
    with pytest.raises(UncurseError, match=rf"\[3, 1\] is {bad}"):
        Tower().fit(POOL, labelled=(scores, LABELS))


@pytest.mark.parametrize(
    ("pool", "labelled", "message"),
    [
        (POOL[:, 0], (SCORES, LABELS), r"the scores have shape \(10000,\); pass rows \(n, S\)"),
        (POOL, (SCORES[:, 0], LABELS), r"the labelled scores have shape \(10000,\); pass the 3 replicas of the pool"),
        (
            POOL,
            (SCORES[:, :2], LABELS),
            r"the labelled scores have shape \(10000, 2\); pass the 3 replicas of the pool",
        ),
        (POOL[:, :1], (SCORES[:, :1], LABELS), "replica counts need two or more columns"),
        (POOL, (SCORES, LABELS[:-1]), r"labels has shape \(9999,\) but there are 10000 rows"),
        (POOL, (SCORES, LABELS + 1), "labels must be 0 or 1"),
        (POOL, (SCORES, LABELS, np.ones(3)), r"sample_weight has shape \(3,\)"),
        (POOL, (SCORES,), r"labelled must be \(scores, labels\)"),
        (POOL, None, r"labelled must be \(scores, labels\)"),
        (POOL[:0], (SCORES, LABELS), r"the scores have shape \(0, 3\)"),
    ],
)
def test_mismatched_shapes_are_named(pool, labelled, message):
    with pytest.raises(UncurseError, match=message):
        Tower().fit(pool, labelled=labelled)


def test_options_are_checked():
    for options in ({"scale": "value"}, {"replicas": "jackknife"}, {"negative_rate": 0.0}, {"negative_rate": 1.1}):
        with pytest.raises(UncurseError, match=next(iter(options))):
            Tower(**options)
    with pytest.raises(UncurseError, match="replicas='bootstrap' needs 3"):
        Tower(replicas="bootstrap").fit(POOL[:, :2], labelled=(SCORES[:, :2], LABELS))
    with pytest.raises(UncurseError, match="this Tower is not fitted"):
        Tower().predict_proba(X)


@pytest.mark.parametrize("far", [1_000.0, -1_000.0])
def test_rare_outliers_do_not_bias_the_map(far):
    pool, truth = POOL.copy(), TRUTH.copy()
    pool[0] = truth[0] = far
    tower = Tower().fit(pool, labelled=(SCORES, LABELS))
    assert abs(error_on_top(tower, truth, pool[:, 0], 0.05)) < 0.08
    assert np.isfinite(tower.predict_proba([-1e300, -1_000.0, 1_000.0, 1e300])).all()


@pytest.mark.parametrize("scale", [0.3, 2.0, 10.0])
def test_scores_that_are_log_odds_only_up_to_a_scale_are_calibrated(scale):
    tower = Tower().fit(scale * POOL, labelled=(scale * SCORES, LABELS))
    np.testing.assert_allclose(tower.predict_proba(scale * POOL[:, 0]).mean(), expit(TRUTH).mean(), rtol=0.05)


def test_logits_of_a_thousand_have_finite_maps():
    tower = Tower().fit(500 * POOL, labelled=(500 * SCORES, LABELS))
    assert np.isfinite(tower.predict_proba(500 * POOL[:, 0])).all()
    assert (np.diff(tower.map_.transform(500 * X)) > 0).all()


# ---------------------------------------------------------------------------- the map


@pytest.mark.filterwarnings("ignore:the odds of the labels are")  # the rate is not true of these scores
@pytest.mark.parametrize("kind", ["curve", "chain", "grouped"])
def test_map_can_be_saved_and_keeps_the_order(kind, tmp_path):
    groups = np.arange(5_000) % 2 if kind == "grouped" else None
    tower = Tower(negative_rate=0.2 if kind == "chain" else None)
    tower.fit(POOL[:5_000], labelled=(SCORES[:5_000], LABELS[:5_000]), groups=groups)
    assert tower.map_.kind == kind
    tower.map_.save(tmp_path / "map.json")
    again = uncurse.load(tmp_path / "map.json")
    assert again == tower.map_
    x = np.linspace(-30, 30, 2_001)
    for own in (["0"] * len(x), ["other"] * len(x)) if kind == "grouped" else (None,):
        assert (np.diff(again(x, own) if own else again(x)) > 0).all()
        np.testing.assert_array_equal(again(x, own) if own else again(x), tower.predict_proba(x, own))


def test_a_query_computes_the_same_predictions():
    pl = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    from uncurse.logs.expressions import with_prediction

    frame = pl.DataFrame({"s": POOL[:500, 0]})
    for given in (frame, duckdb.from_arrow(frame.to_arrow())):
        out = with_prediction(given, FITTED.map_, score="s", column="p")
        p = np.asarray(out["p"] if given is frame else out.fetchnumpy()["p"])
        np.testing.assert_allclose(np.sort(p), np.sort(FITTED.predict_proba(POOL[:500, 0])), rtol=1e-9)


def test_a_pickled_tower_keeps_predictions_and_interval():
    tower = Tower().fit(POOL[:1_000], labelled=(SCORES[:1_000], LABELS[:1_000]))
    again = pickle.loads(pickle.dumps(tower))
    np.testing.assert_array_equal(again.predict_proba(X), tower.predict_proba(X))
    assert again.interval(0.05) == tower.interval(0.05)
    assert repr(again) == repr(tower)


def test_repr_shows_options_and_numbers_of_rows():
    assert repr(Tower()) == "Tower(scale='logit', replicas='seeds')"
    assert repr(FITTED).endswith("of 10,000 labelled and 10,000 pool rows")


def test_a_second_fit_replaces_the_first():
    pool, scores, labels = POOL[:2_000], SCORES[:2_000], LABELS[:2_000]
    tower = Tower().fit(pool + 1, labelled=(scores - 1, labels), groups=np.arange(2_000) % 2)
    tower.fit(pool, labelled=(scores, labels))
    only = Tower().fit(pool, labelled=(scores, labels))
    np.testing.assert_array_equal(tower.predict_proba(X), only.predict_proba(X))
    assert tower.interval(0.05) == only.interval(0.05)


def test_input_arrays_are_not_changed():
    pool, scores, labels = POOL[:2_000].copy(), SCORES[:2_000].copy(), LABELS[:2_000].copy()
    Tower().fit(pool, labelled=(scores, labels), groups=np.arange(2_000) % 2)
    np.testing.assert_array_equal(pool, POOL[:2_000])
    np.testing.assert_array_equal(scores, SCORES[:2_000])
    np.testing.assert_array_equal(labels, LABELS[:2_000])


# ---------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("kind", ["seeds", "anchored"])
def test_top_of_each_group_is_as_accurate_as_with_vad(kind):
    rng = np.random.default_rng(0)
    means = np.linspace(-3.5, -0.5, 10)

    def draw(rows):
        group = rng.integers(0, 10, rows)
        truth = rng.normal(means[group], 0.8)
        served = truth + 0.4 * rng.normal(size=rows)
        other = (served if kind == "anchored" else truth) + 0.4 * rng.normal(size=rows)
        return group, truth, np.column_stack([served, other])

    group, truth, pool = draw(40_000)
    _, of_labelled, scores = draw(40_000)
    tower = Tower(replicas=kind).fit(pool, labelled=(scores, rng.random(40_000) < expit(of_labelled)), groups=group)
    vad = VAD(curvature=True, replicas=kind).fit(pool, groups=group)
    worst = []
    for fitted in (vad, tower):
        errors = []
        for g in range(10):
            mine = group == g
            top = top_share(pool[mine, 0], 0.05)
            p = fitted.predict_proba(pool[mine, 0][top], group[mine][top])
            errors.append(abs(p.mean() / expit(truth[mine][top]).mean() - 1))
        worst.append(max(errors))
    assert worst[1] < worst[0] + 0.05  # VAD is 3% off, Tower 17%


def test_a_common_level_of_anchored_bootstraps_does_not_change_groups():
    rng = np.random.default_rng(0)
    group = np.arange(20_000) % 2
    served = rng.normal(np.where(group, -1.3, -2.7), 0.9)
    pool = np.column_stack([served, served + 0.4 * rng.normal(size=20_000)])
    of_labelled = rng.normal(-2, 0.9, 20_000)
    scores = np.column_stack([of_labelled, of_labelled + 0.4 * rng.normal(size=20_000)])
    labels = rng.random(20_000) < expit(of_labelled)
    plain, raised = (
        Tower(replicas="anchored").fit(pool + level, labelled=(scores + level, labels), groups=group)
        for level in (np.array([0.0, 0.0]), np.array([0.0, 2.0]))
    )
    names = np.ones(len(X), int)
    np.testing.assert_allclose(raised.predict_proba(X, names), plain.predict_proba(X, names), rtol=0.02)


@pytest.mark.parametrize("scale", [0.05, 30.0, 500.0])
def test_scores_far_from_log_odds_are_calibrated(scale):
    # Platt in tandem with VAD is within 2% at any scale.
    tower = Tower().fit(scale * POOL, labelled=(scale * SCORES, LABELS))
    np.testing.assert_allclose(tower.predict_proba(scale * POOL[:, 0]).mean(), expit(TRUTH).mean(), rtol=0.1)


def test_labels_that_decrease_with_the_score_are_refused_or_raise_a_warning():
    with pytest.raises(UncurseError, match="labels fall as scores rise"):
        Tower().fit(POOL, labelled=(SCORES, 1 - LABELS))


def test_weights_of_another_length_are_named_with_groups():
    with pytest.raises(UncurseError, match=r"sample_weight has shape \(3,\)"):
        Tower().fit(POOL, labelled=(SCORES, LABELS), groups=np.arange(10_000) % 2, sample_weight=np.ones(3))


def test_a_constant_served_column_is_refused():
    pool = POOL.copy()
    pool[:, 0] = 0
    with (
        np.errstate(all="ignore"),
        pytest.raises(UncurseError, match="the served scores of the pool are constant; pass rows whose scores differ"),
    ):
        Tower().fit(pool, labelled=(SCORES, LABELS))


def test_many_groups_take_no_longer_than_their_rows():
    begin = time.process_time()
    Tower().fit(POOL[:1_000], labelled=(SCORES, LABELS))
    whole = time.process_time() - begin
    begin = time.process_time()
    Tower().fit(POOL[:1_000], labelled=(SCORES, LABELS), groups=np.arange(1_000) // 10)
    assert time.process_time() - begin < 6 * whole + 0.2


# ---------------------------------------------------------------------------- contrast, prior slope, scaling


def better_served(rows, mean, seed, noise=0.2):
    """Return rows whose served model is better than its replicas, which were trained on less data."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    scores = truth[:, None] + np.array([noise, 0.8, 0.8]) * rng.normal(size=(rows, 3))
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


def test_a_served_model_better_than_its_replicas_gets_extra_weight(monkeypatch):
    truth, pool, _ = better_served(40_000, -2.5, 0)
    _, scores, labels = better_served(40_000, -2.0, 1)
    tower = Tower().fit(pool, labelled=(scores, labels))
    assert tower.record_.contrast == tower.contrast_
    rows = tower._remaining.labelled
    (w, y), lead = rows.cells.row_weights(), -rows.cells.gap
    base = tower.curve_(rows.posterior_logit(rows.latent)[0])
    fit = fit_logistic(np.stack([lead, np.ones_like(lead)]), w, y, offset=base)
    assert fit.coefficients[0] > 10 * np.sqrt(fit.covariance[0, 0])
    assert tower.contrast_ == pytest.approx(fit.coefficients[0], rel=0.1)  # one Newton step of the same regression
    p = tower.predict_proba(X)
    assert (np.diff(p) > 0.001).all()
    assert p.max() < 0.7
    monkeypatch.setattr("uncurse.debias.label_model._contrast", lambda *arguments: 0.0)
    without = Tower().fit(pool, labelled=(scores, labels))
    assert without.contrast_ == 0
    # The served score is trusted more, so predictions rise faster with it.
    for alpha in (0.05, 0.02):
        errors = [error_on_top(each, truth, pool[:, 0], alpha) for each in (without, tower)]
        assert errors[0] + 0.01 < errors[1] < 0.02
    # 40,000 labelled rows: the rate has a standard error of 1.5%.
    assert abs(tower.predict_proba(pool[:, 0]).mean() / expit(truth).mean() - 1) < 0.045


def test_a_served_model_worse_than_its_replicas_gets_less_weight():
    _, scores, labels = rows_of(40_000, seed=1)
    scores[:, 0] += 0.8 * np.random.default_rng(5).normal(size=40_000)
    assert Tower().fit(scores, labelled=(scores, labels)).contrast_ < -0.2


@pytest.mark.parametrize("kind", ["seeds", "bootstrap"])
def test_exchangeable_replicas_and_bootstraps_have_no_contrast(kind):
    assert Tower(replicas=kind).fit(POOL, labelled=(SCORES, LABELS)).contrast_ == 0


def test_few_labels_keep_the_prior_slope_and_many_override_it():
    """The prior is N(1, 0.3²): with information I on the slope it keeps the share 11.1 / (11.1 + I) of it."""
    slopes = []
    for rows in (300, 100_000):
        truth, scores, _ = rows_of(rows, 2, seed=7, noise=0.1, mean=-3.0)
        labels = (np.random.default_rng(8).random(rows) < expit(-3.0 + 0.6 * (truth + 3.0))).astype(int)
        tower = Tower().fit(scores, labelled=(scores, labels))
        slopes.append(float(np.diff(tower.curve_(np.array([-3.5, -2.5])))[0]))
    # 300 rows at a rate of 5%: I is 14 × 0.64 = 9, so about half way to 0.6, with a standard error of 0.22.
    assert 0.6 < slopes[0] < 1.05
    assert abs(slopes[1] - 0.6) < 0.06  # I is 3,000; a standard error is 0.02


def test_prior_slope_is_kept_if_labels_carry_no_information():
    _, scores, labels = rows_of(5_000, seed=7, mean=-7.2)
    curve = Tower().fit(scores, labelled=(scores, labels)).curve_
    assert float(np.diff(curve(np.array([-8.0, -6.0])))[0]) / 2 == pytest.approx(1.0, abs=0.35)
    # Another prior, or none, would follow the few positives. This one moves by a fraction of its standard deviation.


def scaling_of(scores, labels):
    return fit_scaling(ReplicaModel(evidence_of(scores, labels).replica_counts.cells(), "seeds"))


@pytest.mark.parametrize(("slope", "level"), [(1.0, 0.0), (1.0, 1.2), (1.6, 0.0), (0.6, 0.0)])
def test_scores_near_log_odds_are_not_rescaled(slope, level):
    assert scaling_of(slope * SCORES + level, LABELS) == (1.0, 0.0)


@pytest.mark.parametrize("level", [2.0, -3.0])
def test_scores_with_a_wrong_level_are_shifted_and_keep_their_slope(level):
    slope, intercept = scaling_of(SCORES + level, LABELS)
    assert slope == 1.0
    assert intercept == pytest.approx(-level, abs=0.15)


def test_a_log_without_most_of_its_negative_rows_is_warned_of_and_weights_mend_it():
    keep = (LABELS == 1) | (np.arange(len(LABELS)) % 10 == 0)
    scores, labels = SCORES[keep], LABELS[keep]
    told = r"the odds of the labels are (9|10|11)\.\d times .* say; if the log keeps only a share of its negative rows"
    with pytest.warns(UserWarning, match=told):
        Tower().fit(POOL, labelled=(scores, labels))
    with pytest.warns(UserWarning, match=r"times as high as the scores say; check negative_rate=0\.2; if the log"):
        Tower(negative_rate=0.2).fit(POOL, labelled=(SCORES, LABELS))
    weighted = Tower().fit(POOL, labelled=(scores, labels, np.where(labels == 1, 1.0, 10.0)))
    expected = Tower().fit(POOL, labelled=(SCORES, LABELS)).map_(X)
    np.testing.assert_allclose(weighted.map_(X), expected, rtol=0.15)


@pytest.mark.parametrize(("slope", "level"), [(4.0, 0.0), (10.0, 5.0), (0.1, 0.0), (0.02, -1.0)])
def test_scores_with_a_wrong_slope_are_rescaled_to_log_odds(slope, level):
    found, intercept = scaling_of(slope * SCORES + level, LABELS)
    # Noise in the mean of three replicas lowers the slope by 0.64 / (0.64 + 0.053).
    assert found * slope == pytest.approx(0.92, abs=0.06)
    center = SCORES.mean()
    assert found * (slope * center + level) + intercept == pytest.approx(center, abs=0.1)


def test_a_few_labels_do_not_rescale():
    for seed in range(20):
        _, scores, labels = rows_of(40, seed=seed)
        if 0 < labels.sum() < 40:
            assert scaling_of(scores, labels) == (1.0, 0.0)


def test_separable_labels_do_not_rescale():
    assert scaling_of(SCORES, SCORES.mean(axis=1) > -2) == (1.0, 0.0)


# ---------------------------------------------------------------------------- floors, caps, few rows, no noise


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(("floor", "cap"), [(0.3, 0.0), (0.0, 0.05), (0.3, 0.05)])
def test_a_floor_and_a_cap_on_scores_do_not_bias_the_map(replicas, floor, cap):
    fences = np.quantile(POOL[:, 0], [floor, 1 - cap])

    def clipped(scores):
        return np.clip(scores[:, :replicas], *fences)

    pool = clipped(POOL)
    tower = Tower().fit(pool, labelled=(clipped(SCORES), LABELS))
    l = tower.map_.transform(np.linspace(-9, 3, 400))
    assert np.isfinite(l).all()
    assert (np.diff(l) > 0).all()
    assert abs(tower.predict_proba(pool[:, 0]).mean() / expit(TRUTH).mean() - 1) < 0.06
    if floor and cap:
        low, high = tower.interval(0.1)
        assert -0.3 < low < high < 0.3


@pytest.mark.filterwarnings("ignore:the odds of the labels are")
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("rows", [2, 10, 60])
def test_few_rows_give_a_finite_increasing_map(rows, replicas):
    _, scores, _ = rows_of(rows, replicas, seed=rows)
    labels = np.arange(rows) % 2
    for pool in (scores, POOL[:1_000, :replicas]):
        tower = Tower().fit(pool, labelled=(scores, labels))
        l = tower.map_.transform(X)
        assert np.isfinite(l).all()
        assert (np.diff(l) > 0).all()
        assert np.isfinite(tower.interval(0.5)).all()


@pytest.mark.filterwarnings("ignore:the odds of the labels are")
@pytest.mark.parametrize("offset", [0.0, 0.3, -2.0])
@pytest.mark.parametrize("replicas", [2, 3])
def test_columns_that_differ_by_a_constant_show_no_noise(offset, replicas):
    offsets = offset * np.arange(replicas)
    with pytest.warns(UserWarning, match="the replicas are identical, so they show no noise"):
        tower = Tower().fit(POOL[:, :1] + offsets, labelled=(SCORES[:, :1] + offsets, LABELS))
    platt = uncurse.calibrate("platt", SCORES[:, 0], LABELS)
    np.testing.assert_allclose(tower.map_.transform(X), platt.transform(X), atol=0.2)


@pytest.mark.parametrize(("mean", "sd"), [(30.0, 3.0), (-1000.0, 40.0)])
def test_saturated_logits_have_a_finite_interval_or_an_error(mean, sd):
    rng = np.random.default_rng(0)
    scores = rng.normal(mean, sd, (2_000, 1)) + 0.3 * sd * rng.normal(size=(2_000, 3))
    labels = (rng.random(2_000) < expit((scores.mean(axis=1) - mean) / sd)).astype(int)
    tower = Tower().fit(scores, labelled=(scores, labels))
    assert np.isfinite(tower.predict_proba(scores[:, 0])).all()
    assert np.isfinite(tower.interval(0.05)).all()


def test_scores_that_differ_in_the_last_bit_are_constant():
    moved = np.nextafter(POOL, np.where(np.arange(10_000) % 2, np.inf, -np.inf)[:, None])
    tower = Tower().fit(moved, labelled=(SCORES, LABELS))
    np.testing.assert_allclose(tower.predict_proba(X), FITTED.predict_proba(X), rtol=1e-3)


def test_a_share_that_selects_no_row_is_refused():
    with pytest.raises(UncurseError, match=r"alpha=1e-07 of 10,000 rows selects none; use at least 0\.0001"):
        FITTED.interval(1e-7)


@pytest.mark.parametrize("coarser", ["pool", "labelled"])
def test_pool_and_labelled_rows_are_compared_on_the_same_grid(coarser):
    # More rows fill more cells, so their grid is coarser. Posteriors on another grid differ by several percent.
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.2, 0.9, 20_000)
    truth = rng.normal(-2, 0.7, len(noise))
    served = truth + noise * rng.standard_normal(len(noise))
    scores = np.column_stack([served, served[:, None] + noise[:, None] * rng.standard_normal((len(noise), 3))])
    clicks = rng.random(len(noise)) < expit(truth)
    fine = from_arrays(scores, clicks, replica_counts=True)
    coarse = replace(fine, replica_counts=fine.replica_counts.coarsened(fine.replica_counts.level + 2))
    pair = (coarse, fine) if coarser == "pool" else (fine, coarse)
    mixed, alike = (fit_tower(*each, replicas="bootstrap").map for each in (pair, (coarse, coarse)))
    assert_allclose(mixed(served), alike(served), rtol=1e-12)
