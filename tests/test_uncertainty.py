import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from uncurse import VAD, Affine, Joint, Moments, Tower, UncurseError, fit_auto
from uncurse.debias.uncertainty import Selected, interval_of, left_on_top, level_variance, levels_of, normal_quantile
from uncurse.metrics.selection import top_share


def rows_of(rows, replicas=3, *, seed=0, mean=-2.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    scores = truth[:, None] + noise * rng.normal(size=(rows, replicas))
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


def tower_of(pool_rows, labelled_rows, replicas=3, *, seed=0, shift=0.5):
    truth, pool, _ = rows_of(pool_rows, replicas, seed=2 * seed)
    _, scores, labels = rows_of(labelled_rows, replicas, seed=2 * seed + 1, mean=-2.0 + shift)
    return truth, pool[:, 0], Tower().fit(pool, labelled=(scores, labels))


# ---------------------------------------------------------------------------- parts


@pytest.mark.parametrize("alpha", [0.013, 0.2, 1.0])
def test_selected_is_the_top_share_of_cells(alpha):
    _, pool, _ = rows_of(20_000)
    joint = Joint().update(pool)
    top = Selected(joint, alpha)
    np.testing.assert_allclose(top.weight.sum(), alpha * 20_000)
    np.testing.assert_allclose(top.share.sum(), 1)
    rest = np.setdiff1d(np.arange(len(joint)), top.cells)
    assert joint.served[top.cells].min() >= joint.served[rest].max(initial=-np.inf)
    expected = pool[top_share(pool[:, 0], alpha), 0].mean()
    np.testing.assert_allclose(top.mean(joint.served[top.cells]), expected, atol=joint.step / 2)


def test_a_share_outside_zero_to_one_is_refused():
    joint = Joint().update(rows_of(100)[1])
    for alpha in (0.0, -0.1, 1.5):
        with pytest.raises(UncurseError, match="is not a share"):
            Selected(joint, alpha)


def test_the_relative_error_of_a_mean_is_the_delta_method():
    joint = Joint().update(rows_of(5_000)[1])
    top = Selected(joint, 0.1)
    x = joint.served[top.cells]
    features, covariance = np.stack([np.ones_like(x), x]), np.array([[0.04, 0.01], [0.01, 0.02]])
    rng = np.random.default_rng(0)
    b = rng.multivariate_normal([0, 0], 1e-4 * covariance, 20_000)
    drawn = np.log(top.share @ expit(x + (b @ features)).T)
    np.testing.assert_allclose(1e-4 * top.relative(expit(x), features, covariance), drawn.var(), rtol=0.05)


def test_the_quantile_is_the_normal_one():
    for level in (0.5, 0.9, 0.99):
        np.testing.assert_allclose(normal_quantile(level), stats.norm.ppf(0.5 + level / 2))
    for level in (0.0, 1.0, 90):
        with pytest.raises(UncurseError, match=r"pass a probability between 0 and 1, such as 0\.9"):
            normal_quantile(level)


def test_an_interval_is_of_the_logarithm_and_adds_students_quantile_in_squares():
    np.testing.assert_allclose(np.log1p(interval_of(0.1, 0.02, 0.9)), 0.1 + 0.02 * stats.norm.ppf([0.05, 0.95]))
    reach = np.hypot(0.02 * stats.norm.ppf(0.95), 0.03 * stats.t.ppf(0.95, 2))
    np.testing.assert_allclose(np.log1p(interval_of(0.0, 0.02, 0.9, (0.03, 2))), [-reach, reach])


def test_levels_are_the_means_of_columns_above_the_served_one():
    _, pool, _ = rows_of(30_000, 4)
    pool += [0.0, 0.5, -0.2, 0.1]
    np.testing.assert_allclose(levels_of(Joint().update(pool)), pool.mean(axis=0) - pool[:, 0].mean(), atol=0.01)


def test_the_variance_of_a_level_is_by_how_replicas_came_about():
    levels = np.array([0.0, 0.3, -0.1, 0.4])
    assert level_variance(levels, "seeds") == (pytest.approx(levels.var(ddof=1) / 4), 3)
    assert level_variance(levels, "anchored") == (pytest.approx(np.mean(levels[1:] ** 2)), 3)
    assert level_variance(levels, "bootstrap") == (pytest.approx(levels[1:].var(ddof=1)), 2)


# ---------------------------------------------------------------------------- what they say


def test_more_labels_and_more_rows_make_intervals_narrow():
    widths = [np.ptp(tower_of(*rows)[2].interval(0.05)) for rows in ((5_000, 300), (5_000, 5_000), (50_000, 50_000))]
    assert widths[0] > 1.5 * widths[1] > 2.5 * widths[2]


def test_a_higher_level_is_a_wider_interval_about_the_same_place():
    tower = tower_of(5_000, 5_000)[2]
    narrow, wide = tower.interval(0.05, 0.5), tower.interval(0.05, 0.99)
    assert wide[0] < narrow[0] < 0 < narrow[1] < wide[1]
    np.testing.assert_allclose(np.log1p(wide).sum(), 0, atol=1e-6)


def test_replicas_whose_levels_move_apart_make_it_wider():
    _, pool, _ = rows_of(20_000)
    _, scores, labels = rows_of(20_000, seed=1)
    still = Tower().fit(pool, labelled=(scores, labels)).interval(0.05)
    moved = Tower().fit(pool + np.array([0.0, 0.1, -0.1]), labelled=(scores, labels)).interval(0.05)
    assert np.ptp(moved) > 2 * np.ptp(still)


def test_a_map_that_is_wrong_is_found_out():
    _, pool, _ = rows_of(20_000)
    vanilla = left_on_top(Affine(1.0, 0.0), VAD(shape="free").fit(pool)._distilled(), 0.05, 0.9)
    assert 0.15 < vanilla[0] < vanilla[1] < 0.4
    low, high = VAD(curvature=True).fit(pool).interval(0.05)
    assert low < 0 < high


def test_the_interval_of_vad_is_about_its_own_error():
    truth, pool, _ = rows_of(200_000)
    paper, probabilities = VAD().fit(pool), VAD(link="identity").fit(pool)
    for vad in (paper, probabilities):
        top = top_share(pool[:, 0], 0.05)
        error = vad.predict_proba(pool[top, 0]).mean() / expit(truth[top]).mean() - 1
        low, high = vad.interval(0.05, 0.99)
        assert low < error < high
        assert not low < 0 < high  # without curvature, and in the wrong space: this many rows show it


def test_a_tandem_is_judged_by_tower():
    _, pool, _ = rows_of(5_000)
    _, scores, labels = rows_of(1_000, seed=1)
    vad = VAD(calibrator="platt").fit(pool, labelled=(scores, labels))
    reference = Tower().fit(pool, labelled=(scores, labels))
    expected = left_on_top(vad.map_, reference, 0.05, 0.9)
    np.testing.assert_allclose(vad.interval(0.05), expected)


def test_negatives_left_out_do_not_change_the_interval():
    _, pool, _ = rows_of(5_000)
    plain = VAD(curvature=True).fit(pool).interval(0.05)
    thinned = VAD(curvature=True, negative_rate=0.1).fit(pool - np.log(0.1)).interval(0.05)
    np.testing.assert_allclose(thinned, plain, atol=0.002)


def test_what_has_no_interval_says_why():
    _, pool, _ = rows_of(500)
    with pytest.raises(UncurseError, match="this VAD is not fitted"):
        VAD().interval(0.05)
    with pytest.raises(UncurseError, match="moments alone do not show the shape of noise"):
        VAD().fit(Moments().update(pool)).interval(0.05)
    with pytest.raises(UncurseError, match="this needs two columns of scores or more"):
        VAD().fit(pool[:, 0], variance=0.1).interval(0.05)
    with pytest.raises(UncurseError, match="scale='value' are no probabilities"):
        VAD(link="identity", scale="value").fit(pool).interval(0.05)
    with pytest.raises(UncurseError, match="has let its pool go"):
        pickle.loads(pickle.dumps(VAD().fit(pool))).interval(0.05)


# ---------------------------------------------------------------------------- coverage


def covered(make, draws, alpha=0.05):
    hits = []
    for seed in range(draws):
        truth, served, fitted = make(seed)
        top = top_share(served, alpha)
        error = fitted.predict_proba(served[top]).mean() / expit(truth[top]).mean() - 1
        low, high = fitted.interval(alpha)
        hits.append(low < error < high)
    return np.mean(hits)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("pool_rows", "labelled_rows", "replicas"), [(5_000, 5_000, 2), (5_000, 500, 3), (2_000, 20_000, 3)]
)
def test_intervals_of_tower_stated_at_90_percent_hold(pool_rows, labelled_rows, replicas):
    # Three standard errors of 120 draws below 90%; above it they may be wide, not narrow.
    assert covered(lambda seed: tower_of(pool_rows, labelled_rows, replicas, seed=seed), 120) > 0.9 - 0.082


@pytest.mark.theory
@pytest.mark.parametrize("options", [{"curvature": True}, {"shape": "free"}])
@pytest.mark.parametrize("replicas", [2, 3])
def test_intervals_without_labels_stated_at_90_percent_hold(options, replicas):
    def make(seed):
        truth, pool, _ = rows_of(3_000, replicas, seed=seed)
        return truth, pool[:, 0], VAD(**options).fit(pool)

    assert covered(make, 60) > 0.9 - 0.116


# ---------------------------------------------------------------------------- what breaks


def test_a_tower_that_is_not_fitted_has_no_interval():
    with pytest.raises(UncurseError, match="this Tower is not fitted"):
        Tower().interval(0.05)


def test_labels_that_the_served_score_selected_do_not_widen_the_interval_by_that():
    _, pool, _ = rows_of(20_000, 2)
    _, many, labels = rows_of(200_000, 2, seed=1)
    keep = many[:, 0] > np.quantile(many[:, 0], 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selected = Tower().fit(pool, labelled=(many[keep], labels[keep])).interval(0.05)
    free = Tower().fit(pool, labelled=(many[:20_000], labels[:20_000])).interval(0.05)
    assert np.ptp(selected) < 2 * np.ptp(free)  # it is ten times as wide


def test_one_positive_leaves_a_rate_known_to_a_factor_of_a_hundred_at_least():
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 0.8, 5_000)
    scores = truth[:, None] + 0.4 * rng.normal(size=(5_000, 3))
    labels = np.zeros(5_000, int)
    labels[rng.choice(5_000, p=expit(truth) / expit(truth).sum())] = 1
    assert Tower().fit(scores, labelled=(scores, labels)).interval(0.05)[1] < 100


def test_the_interval_of_auto_is_of_the_map_it_chose():
    _, pool, _ = rows_of(5_000)
    auto = fit_auto(pool)
    np.testing.assert_allclose(auto.interval(0.05), VAD(curvature=True).fit(pool).interval(0.05), atol=1e-6)
