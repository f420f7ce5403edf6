"""Parts of the debiasing methods against closed forms, quadrature and direct computation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from uncurse import Tower, UncurseError
from uncurse.calibration.spline import fit_smooth
from uncurse.debias import free_shape, label_model
from uncurse.debias.free_shape import FreeShape, Parametric
from uncurse.debias.label_model import LabelModel, Misfit
from uncurse.debias.latent_scores import LatentGrid, LatentScores, ReplicaModel
from uncurse.debias.replica_kinds import ReplicaSummary
from uncurse.debias.shrinkage import with_curvature
from uncurse.debias.vad_fit import VADOptions, _differences
from uncurse.evidence import from_arrays
from uncurse.evidence.replica_cells import ReplicaCells, outlier_fences


def cells_of(rows=2_000, replicas=2, *, seed=0, labelled=False, noise=0.4):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-2, 0.8, (rows, 1))
    labels = rng.random(rows) < expit(truth[:, 0]) if labelled else None
    pool = truth + noise * rng.normal(size=(rows, replicas))
    return from_arrays(pool, labels, replica_counts=True).replica_counts.cells()


# ---------------------------------------------------------------------------- latent scores


def normal(x, mean, variance):
    return np.exp(-np.square(x - mean) / 2 / variance) / np.sqrt(variance)


@pytest.fixture
def latent():
    rng = np.random.default_rng(0)
    points, noises = np.linspace(-4, 2, 7), np.array([0.2, 0.5, 1.0])
    by_variance = np.array([[0.7, 0.3, 0.1], [0.3, 0.7, 0.9]])
    share = rng.random((7, 3))
    grid = LatentGrid(points, np.full(7, 0.3), noises, np.array([0.0, 0.25, np.inf]), by_variance, 3, 0.4)
    return LatentScores(grid, share / share.sum())


def integrated(latent, x, noises, likelihood):
    """Return E[φ(t) | x] and its posterior variance on a fine grid of t."""
    t = np.linspace(-8, 6, 5_001)
    moments = np.zeros((3, len(x)))
    for point, width, shares in zip(latent.grid.points, latent.grid.width, latent.share, strict=True):
        for noise, share, chance in zip(noises, shares, likelihood, strict=True):
            joint = normal(t, point, width**2) * normal(x[:, None], t, noise**2) * share * chance
            moments += [joint.sum(axis=1), joint @ expit(t), joint @ expit(t) ** 2]
    mean = moments[1] / moments[0]
    return mean, moments[2] / moments[0] - mean**2


@pytest.mark.parametrize("variance", [0.1, 0.25, 3.0])
def test_posterior_of_a_cell_equals_the_integral_over_true_scores(latent, variance):
    x = np.array([-3.9, -2.05, -0.3, 1.7])
    cells = ReplicaSummary(x, np.full(4, variance), np.ones(4), 3, 2, 0.4)
    log_odds, left = latent.posterior_logit(cells)
    row = int(variance >= 0.25)
    mean, expected = integrated(latent, x, latent.grid.noises / np.sqrt(3), latent.grid.by_variance[row])
    np.testing.assert_allclose(log_odds, logit(mean), atol=0.002)  # three nodes, and a table of 512 means
    np.testing.assert_allclose(left, expected, rtol=0.02)
    far, ends = (latent.posterior_logit(cells._replace(mean=np.array(m)))[0] for m in ([-13, 0, 0, 11], [-4, 0, 0, 2]))
    np.testing.assert_allclose(far, ends)


def test_log_odds_of_served_scores_are_the_integral_with_the_noise_of_one_model(latent):
    served = np.array([-3.0, -1.5, 0.8])
    mean, _ = integrated(latent, served + 0.4, latent.grid.noises, np.ones(3))
    np.testing.assert_allclose(latent.log_odds(served), logit(mean), atol=0.002)
    np.testing.assert_allclose(latent.log_odds(np.array([-99.0, 99.0])), latent.log_odds(np.array([-4.4, 1.6])))


# ---------------------------------------------------------------------------- label-free maps


def test_slopes_at_the_ends_of_a_latent_curve_are_those_of_its_outer_parts():
    model = ReplicaModel(cells_of(), "seeds")
    curve, cells = FreeShape.fit(model).curve, model.cells
    order = np.argsort(cells.served)
    reached = np.cumsum(cells.weight[order]) / cells.weight.sum()
    low, bottom, top, high = np.interp([3 / 2_000, 0.05, 0.97, 1 - 3 / 2_000], reached, cells.served[order])
    np.testing.assert_allclose([curve.x[0], curve.x[-1]], [low, high])
    x, y = np.array(curve.x), np.array(curve.y)
    assert len(x) == 128
    np.testing.assert_allclose(y, model.latent.log_odds(x), atol=1e-3)
    i, j = np.searchsorted(x, [bottom, top])
    np.testing.assert_allclose(curve.left, (y[i] - y[0]) / (x[i] - x[0]), rtol=1e-3)
    np.testing.assert_allclose(curve.right, (y[-1] - y[j]) / (x[-1] - x[j]), rtol=1e-3)
    assert curve.left != pytest.approx(curve.right, rel=0.01)


@pytest.mark.parametrize("outliers", [1, 10])
def test_curve_is_flat_beyond_the_fences_of_outliers(outliers):
    rng = np.random.default_rng(0)
    pool = rng.normal(-2, 0.8, (20_000, 1)) + 0.4 * rng.normal(size=(20_000, 2))
    pool[:outliers], pool[-outliers:] = 40.0, -50.0
    cells = from_arrays(pool, replica_counts=True).replica_counts.cells()
    curve = FreeShape.fit(ReplicaModel(cells, "seeds")).curve
    fences = outlier_fences(cells.served, cells.weight)
    assert -50 < fences[0] < -5
    assert 2 < fences[1] < 40
    np.testing.assert_allclose([curve.x[0], curve.x[-1]], fences)
    if outliers == 1:  # three rows are outside the knots of the curve itself
        assert curve.left == curve.right == 1e-6


@pytest.mark.parametrize("shrinkage", [0.5, 0.9])
def test_parametric_map_is_vad_with_curvature_and_its_error_follows_lambda(shrinkage):
    model = ReplicaModel(cells_of(), "seeds")
    w, served = model.cells.weight / model.cells.weight.sum(), model.cells.served
    center = float(w @ served)
    variance = float(w @ np.square(served - center))
    vad = Parametric(model, shrinkage, center, variance)
    x = np.array([-3.0, -1.0, 0.5])
    expected = with_curvature(shrinkage, center, (1 - shrinkage) * variance, "logistic").transform(x)
    np.testing.assert_allclose(vad.log_odds(x), expected)
    # The error on the top is the slope of its log mean times the error of λ.
    step = 1e-3
    rise = replace(vad, shrinkage=shrinkage + step).log_mean(0.05) - replace(vad, shrinkage=shrinkage - step).log_mean(
        0.05
    )
    np.testing.assert_allclose(vad.map_error(0.05), abs(rise) / (2 * step) * vad.shrinkage_error, rtol=0.02)


@pytest.mark.theory
def test_error_of_lambda_is_its_spread_over_pools():
    found = []
    for seed in range(200):
        model = ReplicaModel(cells_of(seed=seed), "seeds")
        w, served = model.cells.weight / model.cells.weight.sum(), model.cells.served
        variance = float(w @ np.square(served - w @ served))
        shrinkage = 1 - model.noise / variance
        found.append((shrinkage, Parametric(model, shrinkage, float(w @ served), variance).shrinkage_error))
    values, errors = np.array(found).T
    np.testing.assert_allclose(errors.mean(), values.std(), rtol=0.2)  # 4/√(2 · 200)


def test_error_of_lambda_follows_its_influence_function():
    cells = cells_of(300)
    model = ReplicaModel(cells, "seeds")

    def estimate(weight):
        w = weight / weight.sum()
        variance = w @ np.square(cells.served - w @ cells.served)
        return 1 - w @ model.summary.variance / variance

    # Infinitesimal jackknife: the derivative with respect to the weight of each cell.
    w = cells.weight
    slopes = np.array([estimate(w + 1e-4 * (np.arange(len(w)) == i)) for i in range(len(w))]) - estimate(w)
    expected = np.sqrt(w @ np.square(slopes / 1e-4))
    share = w / w.sum()
    center = float(share @ cells.served)
    variance = float(share @ np.square(cells.served - center))
    vad = Parametric(model, float(estimate(w)), center, variance)
    np.testing.assert_allclose(vad.shrinkage_error, expected, rtol=1e-3)


@pytest.mark.parametrize("side", [-1, 1])
def test_floor_or_cap_is_put_at_the_end_of_its_cell_where_other_scores_begin(side):
    rng = np.random.default_rng(0)
    width = 0.01
    served = np.append(width * np.unique(np.round(rng.normal(0, 0.5, 5_000) / width)), 0.0)
    served[-1] = end = side * 3.0
    weight = np.append(np.exp(-2 * np.square(served[:-1])), 10.0)
    k = len(served)
    cells = ReplicaCells(served, np.zeros(k), np.zeros(k), weight, None, np.zeros(2), width, 5_000.0)
    curve = free_shape.project(cells, expit(served - 2) + 0.01 * rng.random(k))
    np.testing.assert_allclose(curve.limits[int(side > 0)], end - side * width / 2, rtol=1e-6)


def test_dispersion_is_the_variance_of_probabilities_relative_to_that_of_labels():
    rng = np.random.default_rng(0)
    p = np.clip(0.3 + 0.05 * rng.normal(size=20_000), 0.01, 0.99)
    found = free_shape._dispersion(np.ones(20_000), p, p**2)
    assert found.shape == (20_000,)
    # Bins have 60 rows and more, in groups of ten.
    np.testing.assert_allclose(found.mean(), 0.05**2 / 0.21, rtol=0.05)
    np.testing.assert_allclose(found, 0.05**2 / 0.21, rtol=0.6)


@pytest.mark.parametrize(
    ("replicas", "columns", "expected"), [("seeds", 5, 4), ("bootstrap", 5, 3), ("anchored", 5, 4)]
)
def test_differences_behind_the_noise_variance_depend_on_the_kind_of_replica(replicas, columns, expected):
    options = VADOptions(replicas=replicas)
    assert _differences(columns, options, None) == (expected, replicas == "seeds")
    assert _differences(columns, options, 0.1)[0] == 0  # a known variance


# ---------------------------------------------------------------------------- the label model


def test_contrast_is_one_newton_step_and_zero_unless_significant():
    rng = np.random.default_rng(0)
    log_odds, lead = rng.normal(-1, 1, 500), rng.normal(0.3, 0.5, 500)
    w = rng.random(500) + 0.5
    y = w * (rng.random(500) < expit(log_odds + 0.8 * lead))
    p = expit(log_odds)
    features = np.stack([lead, np.ones(500)])
    information = (features * w * p * (1 - p)) @ features.T
    expected = np.linalg.solve(information, features @ (y - w * p))[0]
    # Per unit of weight; the square of z grows with the weight.
    square = expected**2 / np.linalg.inv(information)[0, 0]
    rarer = min(y.sum(), (w - y).sum())
    factors = np.geomspace(1e-3, 1e3, 2_001)
    k = factors[np.argmax(factors * square > 2 * np.log(np.maximum(factors * rarer, 3)) + 4)]
    assert label_model._contrast(log_odds, lead, 0.98 * k * w, 0.98 * k * y) == 0
    np.testing.assert_allclose(label_model._contrast(log_odds, lead, 1.02 * k * w, 1.02 * k * y), expected, rtol=1e-9)
    assert label_model._contrast(log_odds, np.ones(500), w, y) == 0


def test_probability_adds_contrast_and_masses_to_the_curve():
    served, gap = np.array([-3.0, -1.0, 0.0]), np.array([0.2, -0.1, 0.4])
    cells = ReplicaCells(served, gap, np.zeros(3), np.ones(3), None, np.array([0.0, 0.1]), 0.01, 3.0)
    model = LabelModel(lambda x: 0.5 * x, 0.3, 0.1, ((-3.0, 0.01, 0.7),))
    expected = expit(0.5 * served - 0.3 * (gap - 0.1) + [0.7, 0, 0])
    np.testing.assert_allclose(model.probability(served, cells), expected, rtol=1e-12)


def labelled_cells(low, high, rows=1_000, gap=1.0):
    """Return labelled cells of two scores ±gap with these numbers of positives, for replicas that agree."""
    scores = np.repeat([-gap, gap], rows)[:, None] + np.zeros(2)
    labels = np.concatenate([np.arange(rows) < low, np.arange(rows) < high])
    return ReplicaModel(from_arrays(scores, labels, replica_counts=True).replica_counts.cells(), "seeds")


def test_labels_that_fall_by_three_standard_errors_are_inverted():
    assert label_model.fit_scaling(labelled_cells(528, 472)) == (1.0, 0.0)  # 2.5 standard errors
    with pytest.raises(
        UncurseError, match=r"labels fall as scores rise \(slope -0\.16\); is the label, or the score, inv"
    ):
        label_model.fit_scaling(labelled_cells(540, 460))  # 3.6


def test_labels_that_do_not_depend_on_the_score_do_not_rescale_it():
    assert label_model.fit_scaling(labelled_cells(500, 500)) == (1.0, 0.0)


@pytest.mark.parametrize(("slope", "far"), [(0.45, True), (0.55, False), (1.9, False), (2.1, True)])
def test_scores_are_rescaled_beyond_a_slope_of_two_or_a_half(slope, far):
    rows = 100_000
    low, high = (round(rows * float(expit(slope * x))) for x in (-1, 1))
    found = label_model.fit_scaling(labelled_cells(low, high, rows))
    assert found == (pytest.approx((slope, 0.0), abs=1e-3) if far else (1.0, 0.0))


@pytest.mark.parametrize(("level", "far"), [(-1.6, True), (-1.4, False), (1.4, False), (1.6, True)])
def test_scores_are_moved_by_a_level_beyond_one_and_a_half(level, far):
    rows = 100_000
    low, high = (round(rows * float(expit(x + level))) for x in (-1, 1))
    found = label_model.fit_scaling(labelled_cells(low, high, rows))
    assert found == (pytest.approx((1.0, level), abs=1e-2) if far else (1.0, 0.0))


def test_few_labels_do_not_rescale_scores():
    # Four standard errors: a slope of 3 from 2 · 40 rows, and a level of 2 from 2 · 6.
    assert label_model.fit_scaling(labelled_cells(2, 38, 40)) == (1.0, 0.0)
    assert label_model.fit_scaling(labelled_cells(4, 5, 6)) == (1.0, 0.0)


@pytest.mark.parametrize("width", [0.0, 0.5])
def test_the_teacher_corrects_for_the_width_of_cells(width):
    mean, spread = np.array([-3.0, -0.5, 1.0]), np.array([0.3, 0.8, 0.02])
    cells = ReplicaCells(mean, 0 * mean, spread, np.ones(3), None, np.zeros(3), width, 3.0)
    contrast = np.sqrt(np.maximum(spread / 2 - width**2 / 12, 0.0))
    expected = (1 / (1 + np.exp(-(mean + 1j * contrast)))).real
    np.testing.assert_allclose(free_shape.teacher(cells), expected, rtol=1e-12)


def test_dispersion_has_a_floor_and_a_ceiling_on_the_variance_of_the_logit():
    ones = np.ones(2_000)
    exact = np.full(2_000, 0.3)
    np.testing.assert_allclose(free_shape._dispersion(ones, exact, exact**2), 1e-4 * 0.01 * 0.21, rtol=1e-6)
    # Probabilities of 0 and 1 with a mean of 0.1% have a variance of p(1 − p), and a logit of more than 100.
    rare = np.full(2_000, 0.001)
    np.testing.assert_allclose(free_shape._dispersion(10 * ones, rare, rare), 100 * 0.001 * 0.999, rtol=1e-6)
    # One bin of noise sets the floor of the others.
    top = np.arange(2_000) >= 1_960
    noisy = free_shape._dispersion(10 * ones, exact, np.where(top, 0.1, 0.09))
    np.testing.assert_allclose(noisy[:300], 1e-4 * noisy.max(), rtol=1e-2)


@pytest.mark.parametrize(("shrinkage", "bounded"), [(-0.2, 1e-3), (0.0, 1e-3), (1.3, 1.0)])
def test_lambda_of_a_parametric_map_stays_between_a_thousandth_and_one(shrinkage, bounded):
    vad = Parametric(ReplicaModel(cells_of(200), "seeds"), shrinkage, -2.0, 0.8)
    x = np.array([-3.0, 0.5])
    expected = with_curvature(bounded, -2.0, (1 - bounded) * 0.8, "logistic").transform(x)
    np.testing.assert_allclose(vad.log_odds(x), expected, rtol=1e-12)


@pytest.mark.parametrize(("rows", "far"), [(60, False), (90, True)])
def test_a_slope_beyond_two_counts_from_four_standard_errors_of_its_distance_to_one(rows, far):
    # The slope of two scores at ±1 is half the difference of their log odds, with variance (1/4) Σ 1/(n p q).
    slope = 2.1
    counts = [round(rows * float(expit(slope * x))) for x in (-1, 1)]
    found = np.log([k / (rows - k) for k in counts])
    exact = (found[1] - found[0]) / 2
    error = np.sqrt(sum(rows / k / (rows - k) for k in counts) / 4)
    assert exact > 2
    assert (exact - 1 > 4 * error) == far
    assert not abs(exact - 2) > 4 * error
    slope, _ = label_model.fit_scaling(labelled_cells(*counts, rows))
    assert slope == pytest.approx(exact if far else 1.0, rel=1e-3)


@pytest.mark.parametrize(("rows", "far"), [(18, False), (40, True)])
def test_a_level_beyond_one_and_a_half_counts_from_four_standard_errors(rows, far):
    counts = [round(rows * float(expit(x + 1.8))) for x in (-0.1, 0.1)]
    level = np.log(sum(counts) / (2 * rows - sum(counts)))
    error = (2 * rows / sum(counts) / (2 * rows - sum(counts))) ** 0.5
    assert level > 1.5
    assert (level > 4 * error) == far
    found = label_model.fit_scaling(labelled_cells(*counts, rows, gap=0.1))
    assert found[0] == 1
    assert found[1] == pytest.approx(level if far else 0.0, abs=0.05)


@pytest.mark.parametrize("rarer", [0, 1])
@pytest.mark.parametrize(("count", "left_out"), [(19, False), (20, True)])
def test_a_floor_is_left_out_of_the_curve_if_twenty_other_labels_of_either_class_remain(count, left_out, rarer):
    rng = np.random.default_rng(0)
    free = rng.normal(-1, 0.7, 2_000)
    chance = np.exp(free if rarer else -free)
    others = np.full(2_000, 1 - rarer)
    others[rng.choice(2_000, count, replace=False, p=chance / chance.sum())] = rarer
    scores = np.append(np.full(2_000, -4.0), free)[:, None] + np.zeros(2)
    rows = from_arrays(scores, np.append(np.arange(2_000) < 900, others), replica_counts=True)
    model = ReplicaModel(rows.replica_counts.cells(), "seeds")
    found = label_model.fit_labels(model, model.cells.served)
    # A curve that is fitted to the floor too has a level of its own there.
    assert np.isfinite(found.curve.limits[0]) == (not left_out)
    ((at, _, extra),) = found.masses
    base = float(found.curve(np.array([at]))[0])
    # One parameter with a normal prior of standard deviation ½: the gradient of the penalised likelihood is 0.
    assert 900 - 2_000 * expit(base + extra) - extra / 0.5**2 == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_gap_of_identical_replicas_says_nothing_of_labels_at_a_floor(seed):
    rng = np.random.default_rng(seed)
    free = rng.normal(-1, 0.7, 2_000)
    served = np.append(np.full(2_000, -4.0), free)
    labels = np.append(rng.random(2_000) < 0.1, rng.random(2_000) < expit(free))
    order = rng.permutation(4_000)
    scores = served[order, None] + np.zeros(2)
    with pytest.warns(UserWarning, match="the replicas are identical"):
        tower = Tower().fit(scores, labelled=(scores, labels[order]))
    np.testing.assert_allclose(tower.predict_proba([-1.0, 0.0]), expit([-1.0, 0.0]), rtol=0.15)


def test_the_misfit_is_the_difference_of_two_curves_and_constant_beyond_the_served_scores():
    misfit = Misfit(lambda x: 2 * x, lambda x: 0.5 * x**2, (-3.0, 1.0))
    np.testing.assert_allclose(misfit(np.array([-9.0, -3.0, 0.5, 4.0])), [-10.5, -10.5, 0.875, 1.5])


def test_the_misfit_of_labels_has_the_slope_of_the_implied_curve_as_its_prior():
    cells = cells_of(400, labelled=True)
    probability = expit(0.5 * cells.served - 1)
    found = label_model._misfit(cells, probability)
    order = np.argsort(cells.served, kind="stable")
    w, y = (x[order] for x in cells.row_weights())
    wanted = fit_smooth(cells.served[order], w, y, slope=(0.5, 0.3))
    x = np.linspace(-4, 0, 9)
    np.testing.assert_allclose(found.implied(x), 0.5 * x - 1, atol=0.01)
    np.testing.assert_allclose(found.direct(x), wanted(x), atol=0.01)
    knots = wanted.basis.knots * wanted.spread + wanted.center
    assert found.ends == pytest.approx((knots[0], knots[-1]))
