"""`ReplicaCalibrator`: closed forms, labels of winners, segments, unusual scores and bad input."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

import simulated
from simulated import evidence_of, posterior_mean
from uncurse import Auto, ReplicaCalibrator, UncurseError, calibrate, top_share
from uncurse.evidence import from_arrays

X = np.linspace(-4.0, 0.0, 21)


def fit(pool, labeled, *, method=ReplicaCalibrator, labels_from="elsewhere", segments=None, weights=None, **options):
    calibrator = method(**{"scale": "logit", "replicas": "seeds", **options})
    return calibrator.fit(pool, labeled=labeled, labels_from=labels_from, segments=segments, sample_weight=weights)


def rows_of(rows, replicas=3, *, mean=-2.0, **world):
    return simulated.rows_of(rows, replicas, mean=mean, **world)


def error_on_top(fitted, truth, served, alpha, *segments):
    return simulated.error_on_top(fitted.predict_proba, truth, served, alpha, *segments)


TRUTH, POOL, _ = rows_of(10_000, mean=-2.5)
_, SCORES, LABELS = rows_of(10_000, seed=1)


@cache
def fitted():
    return fit(POOL, (SCORES, LABELS))


# ---------------------------------------------------------------------------- normal scores, in closed form


@cache
def many_labels(replicas):
    _, scores, labels = rows_of(200_000, replicas, seed=1)
    return evidence_of(scores, labels)


@pytest.mark.parametrize(
    ("replicas", "mean", "sd"), [(2, -3.0, 0.8), (2, -2.5, 0.5), (3, -2.5, 1.2), (3, -3.0, 0.8), (6, -2.5, 0.5)]
)
def test_map_is_the_posterior_mean_for_normal_scores_wherever_labels_are(replicas, mean, sd):
    _, pool, _ = rows_of(50_000, replicas, mean=mean, sd=sd)
    score_map, spread = fit(pool, many_labels(replicas)).map_, np.hypot(sd, 0.4)
    x = np.linspace(mean - 1.5 * spread, mean + 2.5 * spread, 30)
    away = score_map.transform(x) - posterior_mean(x, mean=mean, sd=sd)[0]
    assert np.abs(away).max() < 0.15
    assert abs(away.mean()) < 0.04


def test_biased_scores_are_calibrated():
    # Scores that are too steep and too high: only labels show that.
    _, pool, _ = rows_of(50_000, mean=-2.5)
    _, scores, labels = rows_of(200_000, seed=1)
    found = fit(1.6 * pool + 1, (1.6 * scores + 1, labels))
    inner = np.linspace(-3.5, -0.5, 20)
    np.testing.assert_allclose(found.map_.transform(1.6 * inner + 1), posterior_mean(inner)[0], atol=0.12)


# ---------------------------------------------------------------------------- input


def test_a_negative_sampling_rate_equals_correcting_the_scores():
    shift, labels = -np.log(0.1), LABELS[:2_000]
    plain = fit(POOL[:2_000], (SCORES[:2_000], labels))
    thinned = fit(POOL[:2_000] + shift, (SCORES[:2_000] + shift, labels), negative_sampling_rate=0.1)
    np.testing.assert_allclose(thinned.predict_proba(X + shift), plain.predict_proba(X), rtol=1e-3)
    np.testing.assert_allclose(thinned.interval(0.05), plain.interval(0.05), atol=1e-3)


@pytest.mark.parametrize("segmented", [False, True])
def test_evidence_gives_map_and_interval_of_arrays(segmented):
    pool, labeled = POOL[:2_000], (SCORES[:1_000], LABELS[:1_000])
    segments = np.where(np.arange(2_000) % 4, "most", "some") if segmented else None
    names = (np.resize(["most", "some", "never seen"], len(X)),) if segmented else ()
    arrays = fit(pool, labeled, segments=segments)
    for rows in (labeled, evidence_of(*labeled)):
        evidence = fit(evidence_of(pool, segments=segments), rows)
        np.testing.assert_allclose(evidence.predict_proba(X, *names), arrays.predict_proba(X, *names), rtol=1e-12)
        np.testing.assert_allclose(evidence.interval(0.05), arrays.interval(0.05), rtol=1e-12)


def test_repeated_rows_and_rows_of_zero_weight_hardly_change_the_map():
    twice = fit(np.repeat(POOL, 2, axis=0), (SCORES, LABELS))
    np.testing.assert_allclose(twice.predict_proba(X), fitted().predict_proba(X), rtol=0.03)
    keep = np.random.default_rng(3).random(10_000) < 0.5
    part = fit(POOL[keep], (SCORES[keep], LABELS[keep]))
    weighted = fit(POOL, (SCORES, LABELS, keep.astype(float)), weights=keep.astype(float))
    np.testing.assert_allclose(weighted.predict_proba(X), part.predict_proba(X), rtol=0.02)


@pytest.mark.parametrize("coarser", ["pool", "labeled"])
def test_pool_and_labeled_rows_are_compared_on_the_same_grid(coarser):
    # More rows fill more cells, so their grid is coarser. Posteriors on another grid differ by several percent.
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.2, 0.9, (20_000, 1))
    truth = rng.normal(-2, 0.7, (20_000, 1))
    served = truth + noise * rng.standard_normal((20_000, 1))
    scores = np.hstack([served, served + noise * rng.standard_normal((20_000, 3))])
    fine = from_arrays(scores, rng.random(20_000) < expit(truth[:, 0]))
    coarse = replace(fine, replicas=fine.replicas.coarsened(fine.replicas.level + 2))
    pair = (coarse, fine) if coarser == "pool" else (fine, coarse)
    mixed, alike = (fit(pool, rows, replicas="bootstrap").map_ for pool, rows in (pair, (coarse, coarse)))
    np.testing.assert_allclose(mixed(served[:, 0]), alike(served[:, 0]), rtol=1e-12)


# ---------------------------------------------------------------------------- segments


def test_a_segment_with_another_distribution_gets_its_own_map():
    rng = np.random.default_rng(0)
    low = rng.random(60_000) < 0.5
    truth = rng.normal(np.where(low, -3.5, -1.5), 0.8)
    pool = truth[:, None] + 0.4 * rng.normal(size=(60_000, 3))
    _, scores, labels = rows_of(60_000, seed=1, mean=-2.5, sd=1.3)
    segments = np.where(low, "low", "high")
    found = fit(pool, (scores, labels), segments=segments)
    assert found.predict_proba([-2.0], ["low"])[0] < 0.97 * found.predict_proba([-2.0], ["high"])[0]
    # On the top of the segment the map of the pool has a larger error.
    own, default = (
        error_on_top(found, truth[low], pool[low, 0], 0.05, np.full(top_share(pool[low, 0], 0.05).sum(), name))
        for name in ("low", "never seen")
    )
    assert abs(own) < abs(default)


def two_levels(rows, seed):
    """Labels of segment B have odds that are 1.65 times as high as any score says."""
    truth, scores, _ = rows_of(rows, 2, seed=seed)
    segments = np.where(np.random.default_rng(seed).random(rows) < 0.3, "B", "A")
    truth = truth + 0.5 * (segments == "B")
    return truth, scores, np.random.default_rng(seed + 1).random(rows) < expit(truth), segments


@pytest.mark.parametrize("method", [ReplicaCalibrator, Auto])
def test_labels_of_a_segment_correct_its_level(method):
    _, scores, labels, segments = two_levels(40_000, seed=5)
    pool_truth, pool, _, pool_segments = two_levels(20_000, seed=15)
    of_pool = evidence_of(pool, segments=pool_segments)
    own, together = (
        fit(of_pool, evidence_of(scores, labels, segments=names), method=method) for names in (segments, None)
    )
    for name in "AB":
        rows = pool_segments == name
        top = np.full(top_share(pool[rows, 0], 0.05).sum(), name)
        assert abs(error_on_top(together, pool_truth[rows], pool[rows, 0], 0.05, top)) > 0.08
        assert abs(error_on_top(own, pool_truth[rows], pool[rows, 0], 0.05, top)) < 0.06  # label noise of B is 2.6%
    assert method is ReplicaCalibrator or "the odds of segment 'B'" in own.reason_


def test_small_segments_are_shrunk_to_the_pool_even_with_labels_of_one_class():
    segments = np.array(["most"] * 9_960 + ["few"] * 20 + ["none"] * 20)
    labels = np.where(segments == "none", 0, LABELS)
    found = fit(evidence_of(POOL, segments=segments), evidence_of(SCORES, labels, segments=segments))
    for name in ("few", "none"):
        assert np.abs(found.map_.maps[name].transform(X) - found.map_.default.transform(X)).max() < 0.1


def test_unseen_segments_and_those_of_zero_weight_get_the_default_map():
    segments = np.arange(10_000) % 3
    found = fit(POOL, (SCORES, LABELS), segments=segments, weights=(segments > 0).astype(float))
    assert sorted(found.map_.maps) == ["1", "2"]
    for name in (0, 7):
        np.testing.assert_array_equal(found.predict_proba(X, np.full(len(X), name)), found.map_.default(X))


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_segment_of_few_rows_or_of_one_score_has_a_finite_map(rows):
    segments, pool = (np.arange(5_000) < rows).astype(int), POOL[:5_000].copy()
    pool[:rows] = -2.0
    p = fit(pool, (SCORES[:5_000], LABELS[:5_000]), segments=segments).predict_proba(X, np.ones(len(X), int))
    assert (np.diff(p) > 0).all()
    assert np.isfinite(p).all()


def test_a_common_level_of_bootstraps_does_not_change_segments():
    rng = np.random.default_rng(0)
    segment = np.arange(20_000) % 2
    served = rng.normal(np.where(segment, -1.3, -2.7), 0.9)
    pool = np.column_stack([served, served + 0.4 * rng.normal(size=20_000)])
    of_labeled = rng.normal(-2, 0.9, 20_000)
    scores = np.column_stack([of_labeled, of_labeled + 0.4 * rng.normal(size=20_000)])
    labels, names = rng.random(20_000) < expit(of_labeled), np.ones(len(X), int)
    plain, raised = (
        fit(pool + level, (scores + level, labels), segments=segment, replicas="bootstrap")
        for level in (np.array([0.0, 0.0]), np.array([0.0, 2.0]))
    )
    np.testing.assert_allclose(raised.predict_proba(X, names), plain.predict_proba(X, names), rtol=0.02)


# ---------------------------------------------------------------------------- what selected the labeled rows


@pytest.mark.parametrize("replicas", [2, 3])
def test_labels_of_winners_do_not_bias_the_map_and_seeds_show_that_they_are_winners(replicas):
    _, many, labels = rows_of(300_000, replicas, seed=5, mean=-2.5)
    keep = many[:, 0] > np.quantile(many[:, 0], 0.9)
    truth, pool, _ = rows_of(50_000, replicas, mean=-2.5)
    winners = fit(pool, (many[keep], labels[keep]), labels_from="winners")
    with pytest.warns(UserWarning, match="labels_from='winners'"):
        elsewhere = fit(pool, (many[keep], labels[keep]))
    for alpha in (0.02, 0.1):
        assert abs(error_on_top(winners, truth, pool[:, 0], alpha)) < 0.04
    assert abs(error_on_top(elsewhere, truth, pool[:, 0], 0.1)) > 0.05


def test_labels_selected_by_an_earlier_model_raise_no_warning():
    truth, many, labels = rows_of(300_000, seed=5, mean=-2.5)
    earlier = truth + 0.5 * np.random.default_rng(6).normal(size=300_000)
    keep = earlier > np.quantile(earlier, 0.9)
    assert abs(error_on_top(fit(POOL, (many[keep], labels[keep])), TRUTH, POOL[:, 0], 0.05)) < 0.06


@pytest.mark.parametrize("origin", ["winners", "elsewhere"])
def test_with_bootstraps_the_best_of_each_request_need_their_origin(origin):
    rng = np.random.default_rng(7)

    def draw(requests):
        truth = rng.normal(-4, 1, (requests, 20))
        served = truth + 0.5 * rng.normal(size=truth.shape)
        return truth, served, served[..., None] + 0.5 * rng.normal(size=(*truth.shape, 2))

    truth, served, bootstraps = draw(20_000)
    by = served if origin == "winners" else truth + 0.5 * rng.normal(size=truth.shape)
    best = np.arange(20_000), by.argmax(axis=1)
    labeled = np.column_stack([served[best], bootstraps[best]]), rng.random(20_000) < expit(truth[best])
    truth, served, bootstraps = draw(4_000)
    truth, pool = truth.ravel(), np.column_stack([served.ravel(), bootstraps.reshape(-1, 2)])
    right, wrong = (
        fit(pool, labeled, replicas="bootstrap", labels_from=name) for name in sorted(("winners", "elsewhere"),
                                                                                      key=lambda name: name != origin)
    )  # fmt: skip
    for alpha in (0.02, 0.05):
        assert abs(error_on_top(right, truth, pool[:, 0], alpha)) < 0.06  # label noise is 2.2%
    assert origin == "elsewhere" or error_on_top(wrong, truth, pool[:, 0], 0.02) < -0.1


@pytest.mark.parametrize("slope", [1.0, 0.8, 0.4])
def test_seeds_that_vary_differently_are_reported(slope):
    scores, pool = (rows * [1.0, slope] for rows in (SCORES[:, :2], POOL[:, :2]))
    with pytest.warns(UserWarning, match="column 1 vary 0.4") if slope < 0.6 else nullcontext():
        fit(pool, (scores, LABELS))
    fit(pool[:500], (scores, LABELS))  # too few rows to say it
    fit(pool, (scores, LABELS), replicas="snapshots")


# ---------------------------------------------------------------------------- few rows and unusual labels


def test_fifty_pool_and_labeled_rows_give_a_map_close_to_the_scores():
    found = fit(POOL[:50], (SCORES[:50], LABELS[:50]))
    slope = np.diff(found.map_.transform(X)) / np.diff(X)
    assert ((slope > 0.3) & (slope < 1.7)).all()
    low, high = found.interval(0.1)
    assert low < -0.2
    assert high > 0.2


def test_five_positives_set_the_level_and_keep_the_slope():
    # At a rate of 1 in 1,000 they hardly determine a slope, so the prior slope is kept.
    _, scores, labels = rows_of(5_000, seed=7, mean=-7.2)
    assert 2 <= labels.sum() <= 10
    found = fit(scores, (scores, labels))
    assert 0.4 < found.predict_proba(scores[:, 0]).mean() / labels.mean() < 2.5
    assert 0.4 < np.diff(found.map_.transform(np.array([-8.0, -6.0])))[0] / 2 < 1.4


def test_few_labels_keep_the_prior_slope_and_many_override_it():
    """The prior is N(1, 0.3²): with information I on the slope it keeps the share 11.1 / (11.1 + I) of it."""
    slopes = []
    for rows in (300, 100_000):
        truth, scores, _ = rows_of(rows, 2, seed=7, noise=0.1, mean=-3.0)
        labels = np.random.default_rng(8).random(rows) < expit(-3.0 + 0.6 * (truth + 3.0))
        curve = fit(scores, (scores, labels)).map_.transform
        slopes.append(float(np.diff(curve(np.array([-3.5, -2.5])))[0]))
    # 300 rows at a rate of 5%: I is 14 × 0.64 = 9, so about half way to 0.6, with a standard error of 0.22.
    assert 0.6 < slopes[0] < 1.05
    assert abs(slopes[1] - 0.6) < 0.06  # I is 3,000; a standard error is 0.02


@pytest.mark.filterwarnings("ignore:the other columns differ")  # they are replicas by seed
@pytest.mark.parametrize("kind", ["seeds", "bootstrap"])
def test_labels_independent_of_scores_are_predicted_by_their_rate(kind):
    labels = np.random.default_rng(8).random(10_000) < 0.1
    p = fit(POOL, (SCORES, labels), replicas=kind).predict_proba(POOL[:, 0])
    np.testing.assert_allclose(p.mean(), 0.1, rtol=0.1)
    assert p.std() < 0.02


@pytest.mark.filterwarnings("ignore:the odds of the labels are")
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("rows", [2, 60])
def test_few_rows_and_separable_labels_give_a_finite_increasing_map(rows, replicas):
    _, scores, _ = rows_of(rows, replicas, seed=rows)
    for labels in (np.arange(rows) % 2, scores.mean(axis=1) > np.median(scores.mean(axis=1))):
        for pool in (scores, POOL[:1_000, :replicas]):
            found = fit(pool, (scores, labels))
            l = found.map_.transform(X)
            assert np.isfinite(l).all()
            assert (np.diff(l) > 0).all()
            assert np.isfinite(found.interval(0.5)).all()


def test_a_log_without_most_of_its_negative_rows_is_reported_and_weights_mend_it():
    keep = (LABELS == 1) | (np.arange(len(LABELS)) % 10 == 0)
    scores, labels = SCORES[keep], LABELS[keep]
    with pytest.warns(UserWarning, match=r"odds of the labels are (9|10|11)\.\d times"):
        fit(POOL, (scores, labels))
    with pytest.warns(UserWarning, match=r"check negative_sampling_rate=0\.2"):
        fit(POOL, (SCORES, LABELS), negative_sampling_rate=0.2)
    weighted = fit(POOL, (scores, labels, np.where(labels == 1, 1.0, 10.0)))
    np.testing.assert_allclose(weighted.map_(X), fitted().map_(X), rtol=0.15)


# ---------------------------------------------------------------------------- unusual scores


@pytest.mark.filterwarnings("ignore:the odds of the labels are")
@pytest.mark.parametrize(("replicas", "offset"), [(2, 0.0), (3, -2.0)])
def test_identical_replicas_raise_a_warning_and_are_calibrated(offset, replicas):
    offsets = offset * np.arange(replicas)
    with pytest.warns(UserWarning, match="the replicas are identical"):
        found = fit(POOL[:, :1] + offsets, (SCORES[:, :1] + offsets, LABELS))
    platt = calibrate("platt", SCORES[:, 0], LABELS, scale="logit")
    np.testing.assert_allclose(found.map_.transform(X), platt.transform(X), atol=0.2)


@pytest.mark.parametrize("far", [1_000.0, -1_000.0])
def test_rare_outliers_do_not_bias_the_map(far):
    pool, truth = POOL.copy(), TRUTH.copy()
    pool[0] = truth[0] = far
    found = fit(pool, (SCORES, LABELS))
    assert abs(error_on_top(found, truth, pool[:, 0], 0.05)) < 0.08
    assert np.isfinite(found.predict_proba([-1e300, -1_000.0, 1_000.0, 1e300])).all()


@pytest.mark.parametrize(
    ("slope", "level"), [(0.05, 0.0), (0.3, 0.0), (2.0, 0.0), (30.0, 5.0), (500.0, 0.0), (1.0, 1.2), (1.0, -3.0)]
)
def test_scores_that_are_far_from_log_odds_are_calibrated(slope, level):
    with pytest.warns(UserWarning, match="odds of the labels") if level < 0 else nullcontext():
        found = fit(slope * POOL + level, (slope * SCORES + level, LABELS))
    p = found.predict_proba(slope * POOL[:, 0] + level)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.mean(), expit(TRUTH).mean(), rtol=0.1)
    assert (np.diff(found.map_.transform(slope * X + level)) > 0).all()


@pytest.mark.filterwarnings("ignore:every value of the scores lies in .0, 100.")
@pytest.mark.parametrize(("mean", "sd"), [(30.0, 3.0), (-1000.0, 40.0)])
def test_saturated_logits_have_a_finite_map_and_interval(mean, sd):
    rng = np.random.default_rng(0)
    scores = rng.normal(mean, sd, (2_000, 1)) + 0.3 * sd * rng.normal(size=(2_000, 3))
    labels = rng.random(2_000) < expit((scores.mean(axis=1) - mean) / sd)
    found = fit(scores, (scores, labels))
    assert np.isfinite(found.predict_proba(scores[:, 0])).all()
    assert np.isfinite(found.interval(0.05)).all()


def test_rounding_of_scores_does_not_change_the_map():
    moved = np.nextafter(POOL, np.where(np.arange(10_000) % 2, np.inf, -np.inf)[:, None])
    found = fit(moved, (SCORES, LABELS))
    np.testing.assert_allclose(found.predict_proba(X), fitted().predict_proba(X), rtol=1e-3)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("pool", "labeled", "message"),
    [
        (POOL[:0], (SCORES, LABELS), r"shape \(0, 3\)"),
        (POOL, (SCORES[:, :2], LABELS), r"labeled scores have shape \(10000, 2\)"),
        (POOL[:, :1], (SCORES[:, :1], LABELS), "replicas='seeds' needs two"),
        (POOL, (SCORES, LABELS[:-1]), r"labels has shape \(9999,\)"),
        (POOL, (SCORES, np.zeros(10_000)), "no positives"),
        (POOL, (SCORES, np.ones(10_000)), "no negatives"),
        (POOL, (SCORES, 1 - LABELS), "labels fall as scores rise"),
        (POOL, (SCORES, LABELS, np.ones(3)), r"sample_weight has shape \(3,\)"),
        (POOL, (SCORES,), "labeled must be"),
        (POOL, None, "labeled is missing"),
        (np.full_like(POOL, -2.0), (SCORES, LABELS), "scores of the pool are constant"),
        (POOL * [0, 1, 1], (SCORES, LABELS), "scores of the pool are constant"),
        (POOL, (np.full_like(SCORES, -2.0), LABELS), "scores of the labeled rows are constant"),
        (evidence_of(expit(POOL), scale="probability"), (SCORES, LABELS), "scale in the pool: probability"),
        (evidence_of(POOL, negative_sampling_rate=0.1), (SCORES, LABELS), "negative_sampling_rate in the pool: 0.1"),
        (from_arrays(POOL, histograms=False), (SCORES, LABELS), "histogram"),
        (POOL, evidence_of(SCORES), "no labels"),
        (POOL, from_arrays(SCORES, LABELS, histograms=False), "histogram"),
    ],
)
def test_bad_rows_are_refused(pool, labeled, message):
    with pytest.raises(UncurseError, match=message):
        fit(pool, labeled)


@pytest.mark.parametrize(
    "options",
    [{"scale": "value"}, {"replicas": "jackknife"}, {"negative_sampling_rate": 0.0}, {"labels_from": "me"},
     {"labels_from": None}],
)  # fmt: skip
def test_bad_options_are_named(options):
    for method in (ReplicaCalibrator, Auto):
        with pytest.raises(UncurseError, match=next(iter(options))):
            fit(POOL, (SCORES, LABELS), method=method, **options)


def test_required_arguments_and_a_fit_are_asked_for():
    with pytest.raises(TypeError, match="required keyword-only"):
        ReplicaCalibrator(scale="logit")
    method = ReplicaCalibrator(scale="logit", replicas="seeds")
    with pytest.raises(TypeError, match="labels_from"):
        method.fit(POOL, labeled=(SCORES, LABELS))
    for use in (lambda: method.predict_proba(X), lambda: method.interval(0.05), lambda: method.to_affine()):
        with pytest.raises(UncurseError, match="this ReplicaCalibrator is not fitted"):
            use()
    with pytest.raises(UncurseError, match="without segments"):
        fitted().predict_proba(X, np.zeros(len(X)))
    with pytest.raises(UncurseError, match="segments and sample_weight"):
        fit(evidence_of(POOL), (SCORES, LABELS), weights=np.ones(10_000))


def test_a_second_fit_replaces_the_first_and_changes_no_array():
    pool, scores, labels = POOL[:2_000].copy(), SCORES[:2_000].copy(), LABELS[:2_000].copy()
    again = fit(pool + 1, (scores - 1, labels), segments=np.arange(2_000) % 2)
    again.fit(pool, labeled=(scores, labels), labels_from="elsewhere")
    assert again.fitted_ == fit(pool, (scores, labels)).fitted_
    for one, other in ((pool, POOL), (scores, SCORES), (labels, LABELS)):
        np.testing.assert_array_equal(one, other[:2_000])
