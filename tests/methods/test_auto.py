"""`Auto`: the choice of the method, its reason and its accuracy."""

import re
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from simulated import error_on_top
from uncurse import VAD, Auto, ReplicaCalibrator, UncurseError, load, top_share
from uncurse.evidence import from_arrays

X = np.linspace(-4.0, 0.0, 21)
COMMON = {"scale": "logit", "replicas": "seeds"}


def fit(pool, labeled=None, *, method=Auto, segments=None, **options):
    origin = {} if labeled is None else {"labels_from": "elsewhere"}
    return method(**{**COMMON, **options}).fit(pool, labeled=labeled, segments=segments, **origin)


def curved(pool, **options):
    return VAD(**{**COMMON, **options}, curvature=True).fit(pool)


def rows_of(rows, replicas=3, *, seed=0, mean=-2.5, sd=0.8, noise=0.4, unequal=False, tails=False):
    rng = np.random.default_rng(seed)
    truth = mean + sd * (rng.standard_t(4, rows) / np.sqrt(2) if tails else rng.normal(size=rows))
    by_row = np.exp(rng.uniform(np.log(0.05), np.log(0.9), (rows, 1))) if unequal else noise
    scores = truth[:, None] + by_row * rng.normal(size=(rows, replicas))
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


TRUTH, POOL, _ = rows_of(30_000)
_, SCORES, LABELS = rows_of(30_000, seed=1, mean=-2.0)


@cache
def label_free():
    return fit(POOL)


@cache
def contradicted():
    return fit(POOL[:5_000], (SCORES[:5_000] + 1, LABELS[:5_000]))


# ---------------------------------------------------------------------------- choice of the method


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("kind", ["seeds", "bootstrap"])
def test_equal_noise_and_normal_scores_choose_vad(kind, replicas):
    pool = POOL[:, :replicas].copy()
    if kind == "bootstrap":
        pool[:, 1:] += pool[:, :1] - TRUTH[:, None]  # about the served score
    auto = fit(pool, replicas=kind)
    assert auto.method_ == "vad with curvature"
    expected = curved(pool, replicas=kind)
    np.testing.assert_array_equal(auto.predict_proba(X), expected.predict_proba(X))
    assert auto.record_.lambda_ == expected.lambda_
    intervals = VAD(**{**COMMON, "replicas": kind}, curvature=True, intervals=True).fit(pool).fitted_.errors
    assert auto.fitted_.errors.interval(0.05) == pytest.approx(intervals.interval(0.05), abs=1e-6)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("world", [{"unequal": True}, {"tails": True}])
def test_unequal_noise_or_heavy_tails_choose_the_monotone_shape(replicas, world):
    truth, pool, _ = rows_of(60_000, replicas, mean=-3.0, **world)
    auto = fit(pool)
    assert auto.method_ == "monotone"
    assert (auto.record_.curvature, auto.record_.shape) == (False, "monotone")
    own, one = (abs(error_on_top(f.predict_proba, truth, pool[:, 0], 0.01)) for f in (auto, curved(pool)))
    assert own < 0.05
    assert own < one


def test_if_replicas_leave_it_open_the_maps_are_averaged():
    rng = np.random.default_rng(1)
    noise = np.exp(rng.normal(-1, 0.5, (1_500, 1)))
    pool = rng.normal(-3, 0.8, (1_500, 1)) + noise * rng.normal(size=(1_500, 3))
    auto = fit(pool)
    assert auto.method_ == "average"
    weight = int(re.search(r"vad with curvature has a weight of (\d+)% and monotone (\d+)%", auto.reason_)[1]) / 100
    assert 0.2 < weight < 0.8
    l = np.linspace(-4, 0, 9)
    one, other = (part.predict_proba(l) for part in (curved(pool), VAD(**COMMON, shape="monotone").fit(pool)))
    np.testing.assert_allclose(auto.predict_proba(l), weight * one + (1 - weight) * other, rtol=0.01)
    low, high = auto.interval(0.05)
    assert low < 0 < high


def test_negligible_noise_chooses_nothing_but_the_negative_sampling_rate():
    _, pool, _ = rows_of(30_000, noise=0.01)
    for shift, rate in ((0.0, None), (np.log(0.1), 0.1)):
        auto = fit(pool - shift, negative_sampling_rate=rate)
        assert auto.method_ == "nothing"
        np.testing.assert_allclose(auto.predict_proba(X - shift), expit(X), rtol=1e-9)


def test_labels_that_agree_keep_the_label_free_method():
    auto = fit(POOL, (SCORES[:10_000], LABELS[:10_000]))
    assert auto.method_ == "average"
    assert int(re.search(r"\(vad with curvature\) has a weight of (\d+)%", auto.reason_)[1]) > 75
    np.testing.assert_allclose(auto.predict_proba(X), label_free().predict_proba(X), rtol=0.02)


@pytest.mark.parametrize(
    ("slope", "level", "cause"),
    [
        (1.0, 0.3, "the odds of the labels are 2"),
        (1.6, 1.2, "replicas by seed do not show"),
        (0.6, -0.8, "the model also under-fits, or the replicas show too much noise"),
    ],
)
def test_labels_that_contradict_the_scores_choose_replica_calibration_and_name_the_cause(slope, level, cause):
    pool, scores, labels = slope * POOL[:10_000] + level, slope * SCORES[:10_000] + level, LABELS[:10_000]
    auto = fit(pool, (scores, labels))
    assert auto.method_ == "labels"
    assert "contradict the label-free map" in auto.reason_
    assert cause in auto.reason_
    expected = fit(pool, (scores, labels), method=ReplicaCalibrator)
    np.testing.assert_array_equal(auto.predict_proba(X), expected.predict_proba(X))
    assert abs(error_on_top(auto.predict_proba, TRUTH[:10_000], pool[:, 0], 0.05)) < 0.08


def test_a_wrong_level_is_corrected_by_the_labels_though_the_levels_of_replicas_differ():
    # Networks trained by SGD at a constant rate differ in level by 10% and more; the labels know the level to 1%.
    rng = np.random.default_rng(5)

    def rows(n):
        truth = rng.normal(-2.0, 1.2, n)
        return truth[:, None] + np.array([0.25, 0.0]) + rng.normal(0.0, 0.5, (n, 2)), truth

    (scores, truth), (pool, _), (test, test_truth) = rows(60_000), rows(20_000), rows(200_000)
    auto = fit(pool, (scores, rng.random(len(truth)) < expit(truth)))
    assert abs(auto.map_(test[:, 0]).sum() / expit(test_truth).sum() - 1) < 0.03
    assert expit(test.mean(axis=1)).sum() / expit(test_truth).sum() - 1 > 0.08  # the level without labels


@pytest.mark.theory
def test_a_few_labels_rarely_change_the_choice():
    chosen = [fit(POOL[:3_000], rows_of(500, seed=100 + seed, mean=-2.0)[1:]).method_ for seed in range(30)]
    assert chosen.count("labels") <= 3


# ---------------------------------------------------------------------------- results


def test_the_reason_is_one_line_and_part_of_the_repr_and_the_record():
    fits = label_free(), fit(rows_of(30_000, unequal=True)[1]), fit(rows_of(30_000, noise=0.01)[1]), contradicted()
    assert [auto.method_ for auto in fits] == ["vad with curvature", "monotone", "nothing", "labels"]
    for auto in fits:
        assert "\n" not in auto.reason_
        assert 20 < len(auto.reason_) < 200
        assert repr(auto) == f"Auto(scale='logit', replicas='seeds') chose {auto.method_}: {auto.reason_}"
        assert (auto.record_.method, auto.record_.reason) == (auto.method_, auto.reason_)


def test_a_fitted_map_survives_its_file_and_keeps_the_order(tmp_path):
    for auto in (label_free(), fit(POOL[:5_000], negative_sampling_rate=0.5), contradicted()):
        auto.save(tmp_path / "map.json")
        assert load(tmp_path / "map.json") == auto.fitted_
        assert (np.diff(auto.predict_proba(np.linspace(-30, 30, 2_001))) > 0).all()


@pytest.mark.parametrize("unequal", [False, True])
def test_probabilities_and_a_negative_sampling_rate_give_the_same_map(unequal):
    pool = rows_of(20_000, unequal=unequal)[1]
    plain, thinned = fit(pool), fit(pool - np.log(0.1), negative_sampling_rate=0.1)
    of_probabilities = fit(expit(pool), scale="probability")
    assert plain.method_ == of_probabilities.method_ == thinned.method_ == ("monotone" if unequal else plain.method_)
    np.testing.assert_allclose(of_probabilities.predict_proba(expit(X)), plain.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(thinned.predict_proba(X - np.log(0.1)), plain.predict_proba(X), rtol=1e-3)
    np.testing.assert_allclose(thinned.interval(0.05), plain.interval(0.05), atol=0.003)


def test_segments_get_their_own_maps_and_share_the_shape_of_noise():
    segments = np.where(np.arange(30_000) % 3, "a", "b")
    auto = fit(POOL + (segments == "b")[:, None], segments=segments)
    a, b = (auto.predict_proba(X, np.full(len(X), name)) for name in ("a", "b"))
    assert (a < b).all()
    unequal = rows_of(60_000, mean=-3.0, unequal=True)[1]
    by_segment, one = fit(unequal, segments=np.arange(60_000) % 2), fit(unequal)
    assert by_segment.method_ == one.method_ == "monotone"
    top = np.quantile(unequal[:, 0], [0.9, 0.95, 0.98, 0.99])
    np.testing.assert_allclose(by_segment.predict_proba(top, ["1"] * 4), one.predict_proba(top), rtol=0.02)


@pytest.mark.parametrize("labeled", [False, True])
@pytest.mark.parametrize("differ", [0.0, 0.8])
def test_a_map_by_segment_is_no_worse_than_one_map(differ, labeled):
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.uniform(np.log(50), np.log(1_500), 60)).astype(int)
    levels, segment = differ * rng.normal(size=60), np.repeat(np.arange(60), sizes)

    def rows():
        truth = rng.normal(-2.5, 0.8, len(segment)) + levels[segment]
        return truth, truth[:, None] + rng.normal(0, 0.4, (len(truth), 3))

    _, pool = rows()
    truth, scores = rows()
    labels = (rng.random(len(truth)) < expit(truth)).astype(int)
    parts = (from_arrays(scores, labels, segments=segment), from_arrays(scores, labels)) if labeled else (None, None)
    by_segment, one = fit(pool, parts[0], segments=segment), fit(pool, parts[1])
    errors = []
    for i in range(60):
        # 0.8 and 0.4: the true score given the served one is normal with λ = 0.8 and variance 0.8 · 0.16.
        served = levels[i] - 2.5 + np.hypot(0.8, 0.4) * np.linspace(1.3, 2.3, 9)
        draws = levels[i] - 2.5 + 0.8 * (served - levels[i] + 2.5) + np.sqrt(0.128) * rng.normal(size=(4_000, 1))
        true = expit(draws).mean(axis=0)
        maps = by_segment.predict_proba(served, [str(i)] * 9), one.predict_proba(served)
        errors.append([sizes[i] * np.log(p / true).mean() ** 2 for p in maps])
    ours, theirs = np.sqrt(np.sum(errors, axis=0) / sizes.sum())
    assert ours < (0.5 * theirs if differ else theirs + 0.005)


@pytest.mark.parametrize(
    ("world", "shift", "method"),
    [
        ({}, None, "vad with curvature"),
        ({"unequal": True}, None, "monotone"),
        ({}, 0.0, "average"),
        ({}, 1.0, "labels"),
    ],
)
def test_evidence_gives_map_reason_and_interval_of_arrays(world, shift, method):
    rows = 20_000 if shift is None else 1_000
    pool, (_, scores, labels) = rows_of(rows, mean=-3.0, **world)[1], rows_of(1_000, seed=1)
    if shift is None:
        arrays, evidence = fit(pool), fit(from_arrays(pool))
    else:
        arrays = fit(pool, (scores + shift, labels))
        evidence = fit(from_arrays(pool), from_arrays(scores + shift, labels))
    assert (evidence.method_, evidence.reason_) == (arrays.method_, arrays.reason_)
    assert arrays.method_ == method
    np.testing.assert_allclose(evidence.predict_proba(X), arrays.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(evidence.interval(0.05), arrays.interval(0.05), rtol=1e-12)


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (POOL[:, :1], "replicas='seeds' needs two"),
        (from_arrays(POOL, histograms=False), "histogram"),
        (POOL[:19], "19 rows do not determine a shape"),
        (np.minimum(POOL, np.quantile(POOL[:, 0], 0.95)), "capped"),
    ],
)
def test_bad_pools_are_refused(pool, message):
    with pytest.raises(UncurseError, match=message):
        fit(pool)


# ---------------------------------------------------------------------------- replicas that show no noise, or too much


@pytest.mark.parametrize(("replicas", "offset", "rows"), [(2, 0.0, 300), (2, -2.0, 30_000), (4, 0.3, 3_000)])
def test_columns_that_differ_by_a_constant_choose_nothing(replicas, offset, rows):
    with pytest.warns(UserWarning, match="the replicas are identical"):
        auto = fit(POOL[:rows, :1] + offset * np.arange(replicas))
    assert (auto.method_, auto.reason_) == ("nothing", "the replicas are identical, so they show no noise")
    np.testing.assert_allclose(auto.predict_proba(X), expit(X), rtol=1e-12)
    with pytest.raises(UncurseError, match="no intervals: the replicas are identical"):
        auto.interval(0.05)


@pytest.mark.filterwarnings("ignore:the replicas are identical")
@pytest.mark.parametrize(("replicas", "shift", "method"), [(2, 0.0, "nothing"), (3, 0.5, "labels"), (2, 3.0, "labels")])
def test_identical_replicas_with_labels_are_calibrated_only_if_labels_contradict_the_scores(replicas, shift, method):
    truth, scores, labels = rows_of(30_000, 1, noise=0.0)
    pool = np.repeat(rows_of(30_000, 1, seed=1, noise=0.0)[1] + shift, replicas, axis=1)
    auto = fit(pool, (np.repeat(scores + shift, replicas, axis=1), labels))
    assert auto.method_ == method
    # 30,000 labeled rows at a rate of 10%: 2% each on the top.
    assert abs(error_on_top(auto.predict_proba, truth, scores[:, 0] + shift, 0.1)) < 0.06


def test_replicas_that_contradict_each_other_are_an_error():
    with pytest.raises(UncurseError, match="column 1 are hardly related"):
        fit(np.column_stack([POOL[:, 0], -POOL[:, 1]]))


def test_a_pool_of_fifty_rows_is_corrected_where_lambda_is_known_to_be_below_one():
    for seed in range(10):
        _, pool, _ = rows_of(50, seed=seed)
        vad = VAD(**COMMON).fit(pool)
        if vad.lambda_ + 3 * vad.standard_error_ < 1:
            assert fit(pool).method_ != "nothing"


def weak_scores(spread, noise, rows, seed):
    """Return a pool and labeled rows of a right model whose bootstraps show noise that it does not have."""
    rng = np.random.default_rng(seed)

    def draw():
        served = rng.normal(-1.2, spread, rows)
        drawn = noise * spread * np.column_stack([np.zeros(rows), rng.normal(size=(rows, 2))])
        return served[:, None] + drawn, expit(served)

    (pool, _), (scores, rate) = draw(), draw()
    return pool, (scores, rng.random(rows) < rate)


@pytest.mark.parametrize("noise", [0.88, 0.92])
def test_labels_rule_out_a_map_that_removes_nearly_all_of_a_weak_score(noise):
    pool, labeled = weak_scores(0.3, noise, 4_000, seed=0)
    served = pool[:, 0]  # which is the truth
    auto = fit(pool, labeled, replicas="bootstrap")
    assert auto.method_ == "labels"
    assert "contradict the label-free map" in auto.reason_
    assert abs(error_on_top(auto.predict_proba, served, served, 0.02)) < 0.08


@pytest.mark.parametrize(("noise", "seed"), [(1.0, 0), (1.2, 1)])
def test_replicas_that_differ_as_much_as_the_scores_vary_leave_the_labels_by_score(noise, seed):
    pool, labeled = weak_scores(0.6, noise, 1_500, seed)
    served = pool[:, 0]
    for method in (Auto, ReplicaCalibrator):
        fitted = fit(pool, labeled, method=method, replicas="bootstrap")
        assert "differ from each other about as much as the scores vary" in fitted.reason_
        assert abs(error_on_top(fitted.predict_proba, served, served, 0.02)) < 0.15
        low, high = fitted.interval(0.02)
        assert -0.5 < low < 0 < high < 1


# ---------------------------------------------------------------------------- weight of the label-free map


def test_an_average_lies_between_its_parts_and_names_the_cause_of_a_difference():
    pool, labeled = POOL[:5_000] + 0.15, (SCORES[:1_500] + 0.15, LABELS[:1_500])
    auto = fit(pool, labeled)
    assert auto.method_ == "average"
    weight = int(re.search(r"has a weight of (\d+)%", auto.reason_)[1]) / 100
    assert 0.01 < weight < 0.99
    assert ("; the odds of the labels are " in auto.reason_) == (weight < 0.5)
    further = fit(pool, (labeled[0] + 0.1, labeled[1]))
    assert re.search(r"; the odds of the labels are \d\d% lower than those of that map$", further.reason_)
    parts = [part.predict_proba(X) for part in (fit(pool), fit(pool, labeled, method=ReplicaCalibrator))]
    inside = (np.quantile(pool[:, 0], 0.01) < X) & (np.quantile(pool[:, 0], 0.99) > X)
    expected = weight * parts[0] + (1 - weight) * parts[1]
    np.testing.assert_allclose(auto.predict_proba(X)[inside], expected[inside], rtol=0.005)
    assert (np.diff(auto.predict_proba(X)) > 0).all()
    low, high = auto.interval(0.05)
    assert low < 0 < high
    segments = np.array(["a", "b"])[np.arange(5_000) % 2]
    by_segment = fit(pool, labeled, segments=segments)
    assert by_segment.method_ == "average"
    assert set(by_segment.map_.maps) == {"a", "b"}
    np.testing.assert_allclose(by_segment.map_.default(X), auto.predict_proba(X), rtol=1e-9)


def test_a_few_labels_that_the_scores_separate_change_little():
    labels = POOL[:40, 0] > np.quantile(POOL[:40, 0], 0.7)
    chosen = fit(POOL, (POOL[:40], labels))
    assert np.abs(np.log(chosen.predict_proba(X) / label_free().predict_proba(X))).max() < 0.7


# ---------------------------------------------------------------------------- floors, caps, outliers, few rows


@pytest.mark.parametrize(
    ("replicas", "floor", "cap", "labeled"),
    [(2, 0.3, 0, False), (3, 0.3, 0, False), (2, 0.3, 0, True), (3, 0, 0.05, True), (2, 0.3, 0.05, True)],
)
def test_a_floor_and_a_cap_on_scores_do_not_bias_the_map(replicas, floor, cap, labeled):
    truth, pool, _ = rows_of(8_000, replicas)
    _, scores, labels = rows_of(8_000, replicas, seed=1)
    pool, scores = (np.clip(x, *np.quantile(x[:, 0], [floor, 1 - cap])) for x in (pool, scores))
    auto = fit(pool, (scores, labels) if labeled else None)
    if cap:
        assert (auto.method_, "capped" in auto.reason_) == ("labels", True)
    assert (np.diff(auto.predict_proba(np.linspace(-9, 3, 200))) > 0).all()
    low, high = auto.interval(0.1)
    assert -0.5 < low < high < 0.5
    before, after = (abs(float(f(pool[:, 0]).mean() / expit(truth).mean() - 1)) for f in (expit, auto.predict_proba))
    assert after < max(before, 0.05) + 0.02


def test_outliers_are_judged_by_their_share_of_predictions_on_the_top_percent():
    pool, labeled = POOL[:12_000].copy(), (SCORES[:5_000], LABELS[:5_000])
    pool[:2] = 6.0  # 2 of the 120 rows of the top 1%, and 3.6% of their predictions
    chosen = fit(pool, labeled)
    assert chosen.method_ == "labels"
    assert re.match(r"outliers make up [2-9]\.\d% of the predictions on the top 1%", chosen.reason_)
    pool[1] = POOL[1]
    assert "outliers" not in fit(pool, labeled).reason_


@pytest.mark.parametrize(("noise", "method", "least", "most"), [(0.25, "nothing", 0.0, 0.0), (0.55, "", 0.4, 0.9)])
def test_bootstraps_that_fall_behind_the_served_score_move_it_less(noise, method, least, most):
    """Such models, trees above all, under-fit by an amount that replicas do not show."""
    rng = np.random.default_rng(0)
    served = rng.normal(-2, 0.8, 30_000)
    shown, changes = noise * rng.normal(size=(30_000, 2)), []
    for behind in (0.0, 0.15):
        pool = np.column_stack([served, (1 - behind) * served[:, None] + shown])
        auto = fit(pool, replicas="bootstrap")
        top = top_share(served, 0.05)
        changes.append(float(np.log(expit(served[top]).mean() / auto.predict_proba(served[top]).mean())))
    assert least * changes[0] <= changes[1] <= most * changes[0]
    assert "which replicas do not show" in auto.reason_
    low, high = auto.interval(0.05)
    assert low < 0 < high
    if method:
        assert auto.method_ == method


def test_without_labels_trees_are_not_made_worse():
    """LightGBM that is stopped in time needs no correction; one that over-fits needs most of it."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30_000, 10))
    true = -2 + X @ rng.normal(0, 0.25, 10) + 0.4 * X[:, 0] * X[:, 1]
    y, train = rng.random(30_000) < expit(true), np.arange(12_000)
    for trees, leaves, most in ((60, 8, 0.1), (200, 31, 0.2)):

        def scores(rows, trees=trees, leaves=leaves):
            model = lightgbm.LGBMClassifier(n_estimators=trees, num_leaves=leaves, n_jobs=1, verbose=-1)
            return model.fit(X[rows], y[rows]).booster_.predict(X[12_000:], raw_score=True)

        pool = np.column_stack([scores(train), *(scores(rng.choice(train, 12_000)) for _ in range(2))])
        predict = fit(pool, replicas="bootstrap").predict_proba
        served = error_on_top(expit, true[12_000:], pool[:, 0], 0.05)
        assert abs(error_on_top(predict, true[12_000:], pool[:, 0], 0.05)) < max(most, 0.5 * abs(served))
