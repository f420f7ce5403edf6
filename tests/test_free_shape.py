import contextlib

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from uncurse import VAD, Auto, Evidence, LogSpec, Moments, UncurseError
from uncurse.debias.free_shape import FreeShape, LabelFreeAverage, Parametric, lines_of, project, teacher
from uncurse.debias.latent_scores import ReplicaModel
from uncurse.debias.remaining_error import SHARES
from uncurse.debias.vad_fit import VADOptions, label_free
from uncurse.evidence import from_arrays
from uncurse.evidence.replica_cells import ReplicaCells
from uncurse.metrics.selection import top_share


def pool_of(rows, replicas=3, *, seed=0, mean=-2.5, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    return truth, truth[:, None] + noise * rng.normal(size=(rows, replicas))


def error_on_top(score_map, truth, served, alpha):
    top = top_share(served, alpha)
    return float(score_map(served[top]).mean() / expit(truth[top]).mean() - 1)


def model_of(pool, replicas="seeds"):
    return ReplicaModel(from_arrays(pool, replica_counts=True).replica_counts.cells(), replicas)


# ---------------------------------------------------------------------------- the teacher


def taught_by(others):
    """Return the teacher of exact rows: cells of width 0 and equal levels."""
    size, count = others.shape
    mean, spread = others.mean(axis=1), others.var(axis=1, ddof=1)
    ones, levels = np.ones(size), np.zeros(count + 1)
    return teacher(ReplicaCells(mean, 0 * mean, spread, ones, None, levels, 0.0, float(size)))


def mean_of_teacher(t, sigma, replicas, points):
    """Integrate by a product of Gauss–Hermite rules, one for each replica."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    weights = weights / weights.sum()
    columns = np.stack([x.ravel() for x in np.meshgrid(*[nodes] * replicas, indexing="ij")], axis=1)
    chance = np.prod([x.ravel() for x in np.meshgrid(*[weights] * replicas, indexing="ij")], axis=0)
    return float(chance @ taught_by(t + sigma * columns))


@pytest.mark.parametrize(("replicas", "points"), [(2, 80), (3, 40), (5, 12)])
@pytest.mark.parametrize("t", [-6.0, -3.0, -0.5, 0.0, 2.0])
@pytest.mark.parametrize("sigma", [0.1, 0.4, 0.7])
def test_teacher_is_unbiased_for_the_true_probability(replicas, points, t, sigma):
    assert abs(mean_of_teacher(t, sigma, replicas, points) / expit(t) - 1) < 2e-4  # the accuracy of the rules


def mean_in_the_plane(t, spread):
    """Integrate over a fine grid: mean and half difference of two replicas have the standard deviation `spread`."""
    away = spread * (np.linspace(-8, 8, 401) + 1e-4)  # off the poles
    chance = np.exp(-0.5 * np.square(away / spread))
    chance /= chance.sum()
    m, d = np.meshgrid(t + away, away, indexing="ij")
    values = taught_by(np.column_stack([(m + d).ravel(), (m - d).ravel()])).reshape(m.shape)
    return float(chance @ values @ chance)


@pytest.mark.parametrize(("spread", "most"), [(0.4, 1e-10), (0.57, 1e-6), (0.8, 2e-4), (1.0, 4e-3), (1.41, 0.07)])
def test_poles_bias_the_teacher_only_for_noise_above_one_logit(spread, most):
    bias = [mean_in_the_plane(t, spread) / expit(t) - 1 for t in (-5.0, -3.0, -1.0, 0.0, 2.0)]
    assert np.abs(bias).max() < most
    assert np.abs(bias).max() > most / 100_000


def test_teacher_equals_the_taylor_formula_to_second_order():
    m, d = np.linspace(-5, 3, 40), 0.02
    p = expit(m)
    second = p * (1 - p) * (1 - 2 * p)
    np.testing.assert_allclose(taught_by(np.column_stack([m + d, m - d])), p - second * d**2 / 2, atol=1e-8)


def test_teacher_is_the_real_part_of_the_complex_logistic():
    rng = np.random.default_rng(0)
    a, b = rng.normal(-1, 1, (2, 500))
    z = (a + b) / 2 + 1j * (a - b) / 2
    np.testing.assert_allclose(taught_by(np.column_stack([a, b])), (1 / (1 + np.exp(-z))).real, rtol=1e-10)


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_teacher_of_negated_scores_is_the_complement(replicas):
    pool = pool_of(500, replicas)[1]
    np.testing.assert_allclose(taught_by(-pool), 1 - taught_by(pool), atol=1e-12)


def test_teacher_of_equal_replicas_is_their_probability():
    l = np.linspace(-30, 30, 61)
    np.testing.assert_allclose(taught_by(np.column_stack([l, l, l])), expit(l), rtol=1e-12)


def test_teacher_of_very_low_scores_is_zero():
    with np.errstate(all="ignore"):
        assert taught_by(np.full((1, 2), -800.0))[0] == 0


def test_the_teacher_is_finite_on_the_poles():
    with np.errstate(all="ignore"):
        assert np.isfinite(taught_by(np.array([[np.pi, -np.pi]]))).all()


# ---------------------------------------------------------------------------- free shape


@pytest.mark.theory
@pytest.mark.parametrize(
    ("replicas", "kind"),
    [(2, "seeds"), (3, "seeds"), (6, "seeds"), (3, "bootstrap"), (2, "anchored"), (3, "anchored")],
)
def test_free_shape_is_unbiased_on_the_top_for_normal_scores(replicas, kind):
    truth, pool = pool_of(60_000, replicas)
    if kind == "anchored":
        pool[:, 1:] = pool[:, :1] + (pool[:, 1:] - truth[:, None])
    vad = VAD(shape="free", replicas=kind).fit(pool)
    for alpha in (0.02, 0.1, 1.0):
        error = error_on_top(vad.map_, truth, pool[:, 0], alpha)
        low, high = vad.interval(alpha, 0.999)
        assert low < error < high
        assert abs(error) < 0.03
    assert error_on_top(expit, truth, pool[:, 0], 0.02) > 0.25


def test_free_shape_is_unbiased_for_unequal_noise_where_one_lambda_is_not():
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 0.8, 100_000)
    noise = np.exp(rng.uniform(np.log(0.05), np.log(0.9), 100_000))[:, None]
    pool = truth[:, None] + noise * rng.normal(size=(100_000, 3))
    straight, free = VAD(curvature=True).fit(pool), VAD(shape="free").fit(pool)
    of_two = VAD(shape="free").fit(pool[:, :2])
    assert error_on_top(straight.map_, truth, pool[:, 0], 0.01) > 0.06
    assert abs(error_on_top(free.map_, truth, pool[:, 0], 0.01)) < 0.04
    assert abs(error_on_top(of_two.map_, truth, pool[:, 0], 0.01)) < 0.04


def test_projection_follows_the_curvature_of_noisy_scores():
    """Mean probabilities at a noisy score are close to a line, and yet a line is 0.6% too high on the top 1%."""
    _, pool = pool_of(200_000, mean=-3.6)
    cells = model_of(pool).cells
    shrinkage = 0.8**2 / (0.8**2 + 0.4**2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)

    def exact(served):
        center = -3.6 + shrinkage * (served + 3.6)
        return expit(center[:, None] + 0.4 * np.sqrt(shrinkage) * nodes) @ (weights / weights.sum())

    curve = project(cells, exact(cells.served), teacher(cells))
    served = norm.isf(np.linspace(1e-5, 0.01, 2_000), -3.6, np.hypot(0.8, 0.4))
    assert abs(expit(curve(served)).mean() / exact(served).mean() - 1) < 0.003


def test_probabilities_and_logits_give_the_same_map():
    _, pool = pool_of(3_000)
    of_logits, of_probabilities = VAD(shape="free").fit(pool), VAD(shape="free", scale="probability").fit(expit(pool))
    x = np.linspace(-4, -0.5, 20)
    np.testing.assert_allclose(of_probabilities.map_.at_logits(x), of_logits.map_.at_logits(x), rtol=1e-6)


def test_negative_rate_equals_correcting_the_scores():
    _, pool = pool_of(3_000)
    plain = VAD(shape="free").fit(pool)
    thinned = VAD(shape="free", negative_rate=0.1).fit(pool - np.log(0.1))
    x = np.linspace(-4, -0.5, 20)
    np.testing.assert_allclose(thinned.predict_proba(x - np.log(0.1)), plain.predict_proba(x), rtol=1e-4)
    assert thinned.map_.kind == "chain"


def test_rows_of_zero_weight_do_not_count():
    truth, pool = pool_of(20_000)
    keep = truth > -2.5
    weighted = VAD(shape="free").fit(pool, sample_weight=keep.astype(float))
    x = np.linspace(-3, -0.5, 20)
    np.testing.assert_allclose(weighted.predict_proba(x), VAD(shape="free").fit(pool[keep]).predict_proba(x), rtol=0.01)


@pytest.mark.parametrize("replicas", [2, 3])
def test_map_increases_strictly_far_outside_the_pool(replicas):
    _, pool = pool_of(3_000, replicas)
    x = np.linspace(-50, 50, 3_001)
    assert (np.diff(VAD(shape="free").fit(pool).map_.transform(x)) > 0).all()


@pytest.mark.parametrize("replicas", [2, 3])
def test_rows_that_were_collected_in_parts_give_the_same_map(replicas):
    _, pool = pool_of(5_000, replicas)
    parts = [from_arrays(part, replica_counts=True) for part in (pool[:10], pool[10:4_000], pool[4_000:])]
    merged, whole = (VAD(shape="free").fit(pool) for pool in (parts[2].merge(parts[0]).merge(parts[1]), pool))
    x = np.linspace(-4, -0.5, 20)
    np.testing.assert_allclose(merged.predict_proba(x), whole.predict_proba(x), rtol=1e-9)
    np.testing.assert_allclose(merged.interval(0.1), whole.interval(0.1), rtol=1e-6)


def test_invalid_input_for_a_free_shape_is_refused():
    _, pool = pool_of(500)
    with pytest.raises(UncurseError, match="this evidence has no replica counts; collect it with replica_counts=True"):
        VAD(shape="free").fit(Evidence(LogSpec(("a", "b", "c")), Moments().update(pool)))
    with pytest.raises(UncurseError, match="shape='free' has no groups"):
        VAD(shape="free").fit(pool, groups=np.arange(500) % 2)
    with pytest.raises(UncurseError, match="takes no variance"):
        VAD(shape="free").fit(pool, variance=0.1)
    for options in ({"calibrator": "platt"}, {"curvature": True}, {"link": "identity"}):
        with pytest.raises(UncurseError, match="shape='free' needs logits or probabilities and the logistic link"):
            VAD(shape="free", **options)
    with pytest.raises(UncurseError, match="19 rows do not determine a shape; pass at least 20"):
        VAD(shape="free").fit(pool[:19])


def unequal_noise(rows, replicas, spread=0.8, seed=1):
    rng = np.random.default_rng(seed)
    noise = np.exp(rng.normal(-1, spread, (rows, 1)))
    return rng.normal(-3, 0.8, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


@pytest.mark.parametrize("replicas", [2, 3])
def test_one_lambda_is_used_unless_replicas_contradict_it(replicas):
    _, pool = pool_of(30_000, replicas)
    options = VADOptions(curvature=True)
    assert isinstance(label_free(model_of(pool), from_arrays(pool).moments, options), Parametric)
    unequal = unequal_noise(30_000, replicas)
    assert isinstance(label_free(model_of(unequal), from_arrays(unequal).moments, options), FreeShape)


@pytest.mark.theory
@pytest.mark.parametrize(("replicas", "kind"), [(2, "seeds"), (3, "seeds"), (3, "anchored")])
def test_normal_scores_rarely_contradict_one_lambda(replicas, kind):
    options = VADOptions(curvature=True, replicas=kind)
    weights = []
    for seed in range(8):
        truth, pool = pool_of(4_000, replicas, seed=seed)
        if kind == "anchored":
            pool[:, 1:] += pool[:, :1] - truth[:, None]
        chosen = label_free(model_of(pool, kind), from_arrays(pool).moments, options)
        weights.append(getattr(chosen, "weight", float(isinstance(chosen, Parametric))))
    assert np.mean(weights) > 0.6
    assert min(weights) > 0.1


def test_if_replicas_leave_it_open_the_maps_are_averaged():
    pool = unequal_noise(1_500, 3, spread=0.5)
    model, moments = model_of(pool), from_arrays(pool).moments
    chosen = label_free(model, moments, VADOptions(curvature=True))
    assert isinstance(chosen, LabelFreeAverage)
    assert 0.2 < chosen.weight < 0.8
    served = np.linspace(-4, 0, 9)
    one, other = (expit(part.log_odds(served)) for part in (chosen.parametric, chosen.free))
    np.testing.assert_allclose(expit(chosen.log_odds(served)), chosen.weight * one + (1 - chosen.weight) * other)
    assert chosen.map_error(0.05) > min(chosen.parametric.map_error(0.05), chosen.free.map_error(0.05))
    auto = Auto().fit(pool)
    assert auto.method_ == "average"
    assert f"vad with curvature has a weight of {100 * chosen.weight:.0f}%" in auto.reason_
    np.testing.assert_allclose(auto.predict_proba(served), expit(chosen.log_odds(served)), rtol=4e-3)
    low, high = auto.interval(0.05)
    assert low < 0 < high


def test_the_probability_of_one_lambda_is_that_of_two_normals():
    pool = unequal_noise(1_500, 2, spread=0.5)
    model = model_of(pool)
    free = FreeShape.fit(model)
    other = Parametric(model, 0.7, float(pool[:, 0].mean()), float(pool[:, 0].var()))
    factors = []
    for alpha in (0.01, 0.02, 0.05, 0.1):
        difference, error = free.log_mean(alpha) - other.log_mean(alpha), free.map_error(alpha)
        factors.append(norm.logpdf(difference, scale=error) - norm.logpdf(difference, scale=np.hypot(error, 0.1)))
    assert free.probability_of(other) == pytest.approx(expit(np.mean(factors)))


def test_errors_of_the_free_shape_fall_with_the_root_of_rows():
    errors = [FreeShape.fit(model_of(pool_of(rows)[1])).log_error(0.1) for rows in (2_000, 32_000)]
    assert 3 < errors[0] / errors[1] < 5.5


def test_bootstrap_samples_give_similar_curves():
    fitted = FreeShape.fit(model_of(pool_of(5_000, 2)[1]))
    curves = fitted._resampled
    top = np.array([-1.0])
    spread = np.std([float(c.transform(top)[0]) for c in curves])
    assert 0.003 < spread < 0.2
    assert fitted._resampled is curves  # computed once


def test_maps_are_compared_on_typical_selected_shares():
    assert SHARES == (0.01, 0.02, 0.05, 0.1)


def test_pure_noise_is_predicted_by_its_mean():
    pool = np.random.default_rng(0).normal(-2, 1, (20_000, 3))
    p = VAD(shape="free").fit(pool).predict_proba(np.array([-4.0, -2.0, 0.0]))
    np.testing.assert_allclose(logit(p), -2, atol=0.1)


# ---------------------------------------------------------------------------- edge cases


def test_one_low_outlier_does_not_change_the_free_shape():
    truth, pool = pool_of(20_000)
    pool[0] = truth[0] = -800
    with np.errstate(all="ignore"):
        assert abs(error_on_top(VAD(shape="free").fit(pool).map_, truth, pool[:, 0], 0.05)) < 0.05


@pytest.mark.parametrize("far", [-800.0, 800.0])
def test_one_outlier_does_not_change_the_free_shape_of_two_replicas(far):
    truth, pool = pool_of(20_000, 2)
    pool[0] = truth[0] = far
    with np.errstate(all="ignore"):
        assert abs(error_on_top(VAD(shape="free").fit(pool).map_, truth[1:], pool[1:, 0], 0.05)) < 0.05


def test_one_row_with_an_extreme_gap_does_not_change_the_free_shape():
    truth, pool = pool_of(20_000, 2)
    pool[0] = 300, -300
    assert abs(error_on_top(VAD(shape="free").fit(pool).map_, truth[1:], pool[1:, 0], 0.05)) < 0.05


@pytest.mark.parametrize("kind", ["seeds", "anchored"])
def test_slope_above_the_pool_is_close_to_lambda(kind):
    for seed in range(4):
        truth, pool = pool_of(20_000, 2, seed=seed)
        if kind == "anchored":
            pool[:, 1] += pool[:, 0] - truth
        slope = VAD(shape="free", replicas=kind).fit(pool).map_.right  # λ is 0.8
        assert 0.4 < slope < 1.2, seed


# ---------------------------------------------------------------------------- floors, caps, few rows, no noise


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_floor_on_scores_does_not_bias_the_free_shape(replicas):
    truth, pool = pool_of(20_000, replicas)
    low = np.quantile(pool[:, 0], 0.3)
    pool = np.maximum(pool, low)
    vad = VAD(shape="free").fit(pool)
    p = vad.predict_proba(np.linspace(-9, 3, 400))
    assert np.isfinite(p).all()
    assert (np.diff(p) > 0).all()
    for alpha in (0.02, 0.1):
        error = error_on_top(vad.map_, truth, pool[:, 0], alpha)
        interval = vad.interval(alpha, 0.999)
        assert abs(error) < 0.05
        assert interval[0] < error < interval[1]


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_a_cap_on_scores_is_an_error(replicas, floor):
    _, pool = pool_of(20_000, replicas)
    low, high = np.quantile(pool[:, 0], [floor, 0.95])
    with pytest.raises(
        UncurseError, match=r"5\.0% of the served scores are capped at .*; pass scores without a cap, or"
    ):
        VAD(shape="free").fit(np.clip(pool, low, high))


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("rows", [20, 60, 99])
def test_few_rows_give_an_increasing_map_that_is_not_flat(replicas, rows):
    for seed in range(3):
        _, pool = pool_of(rows, replicas, seed=seed)
        vad = VAD(shape="free").fit(pool)
        l = vad.map_.transform(np.linspace(-6, 1, 50))
        assert np.isfinite(l).all()
        assert (np.diff(l) > 0).all()
        assert l[-1] - l[0] > 0.05 * 7
        assert np.isfinite(vad.interval(0.1)).all()


@pytest.mark.filterwarnings("ignore:the replicas are identical")
@pytest.mark.parametrize("offset", [0.0, 0.3, -2.0])
@pytest.mark.parametrize("replicas", [2, 3])
def test_identical_columns_keep_the_scores_or_raise_an_error(replicas, offset):
    pool = pool_of(1_000)[1][:, :1] + offset * np.arange(replicas)
    if replicas == 2:
        with pytest.raises(UncurseError, match="the replicas are identical, so they show no noise"):
            VAD(shape="free").fit(pool)
        return
    vad = VAD(shape="free").fit(pool)
    x = np.linspace(-4, -1, 20)
    level = offset * (replicas - 1) / 2  # all replicas at their common mean level
    np.testing.assert_allclose(vad.map_.transform(x), x + level, atol=0.01)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(("mean", "sd"), [(30.0, 3.0), (-1000.0, 40.0)])
def test_saturated_logits_have_a_finite_interval_or_an_error(mean, sd, replicas):
    _, pool = pool_of(500, replicas, mean=mean, sd=sd, noise=0.3 * sd)
    for options in ({"shape": "free"}, {"intervals": True}, {"curvature": True, "intervals": True}):
        with contextlib.suppress(UncurseError):
            vad = VAD(**options).fit(pool)
            assert np.isfinite(vad.predict_proba(pool[:, 0])).all()
            assert np.isfinite(vad.interval(0.01)).all()


@pytest.mark.parametrize("replicas", [2, 3])
def test_scores_that_differ_in_the_last_bit_are_constant(replicas):
    _, pool = pool_of(2_000, replicas)
    x = np.linspace(-4, -1, 20)
    moved = np.nextafter(pool, np.where(np.arange(2_000) % 2, np.inf, -np.inf)[:, None])
    one, other = (VAD(shape="free").fit(each) for each in (pool, moved))
    np.testing.assert_allclose(other.predict_proba(x), one.predict_proba(x), rtol=1e-3)


def test_lines_of_constant_served_scores_are_flat():
    mean, slope, gap = lines_of(Moments().update([[1.0, 0.0], [1.0, 2.0]]))
    assert (mean.tolist(), slope.tolist(), gap.tolist()) == ([1.0, 1.0], [1.0, 1.0], [0.0, 0.0])


def test_replicas_that_disagree_on_the_lowest_scores_leave_the_curve_finite():
    # Estimates of probabilities by the other replicas may be negative, and so may be the sum of those of few rows.
    rng = np.random.default_rng(10)
    truth = rng.normal(-3, 0.8, 20_000)
    pool = truth[:, None] + 0.5 * rng.standard_t(3, (20_000, 3))
    for method in (VAD(scale="logit", replicas="seeds", shape="free"), Auto(scale="logit", replicas="seeds")):
        predictions = method.fit(pool).predict_proba(np.sort(pool[:, 0]))
        assert (np.diff(predictions) >= 0).all()
        assert 0 < predictions[0] < predictions[-1] < 1
