import numpy as np
import pytest
from scipy.special import expit

from uncurse.calibration.logistic import fit_logistic
from uncurse.errors import UncurseError


def line(rows, seed=0, slope=1.0, intercept=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(-2, 1.5, rows)
    y = (rng.random(rows) < expit(slope * x + intercept)).astype(float)
    return np.stack([x, np.ones(rows)]), np.ones(rows), y


def gradient(fit, features, weight, label, offset=0.0):
    return features @ (label - weight * expit(fit.coefficients @ features + offset))


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
def test_scale_of_weights_does_not_change_coefficients(scale):
    features, weight, label = line(500)
    plain, scaled = fit_logistic(features, weight, label), fit_logistic(features, scale * weight, scale * label)
    np.testing.assert_allclose(scaled.coefficients, plain.coefficients, rtol=1e-12)
    np.testing.assert_allclose(scaled.covariance * scale, plain.covariance, rtol=1e-9)


@pytest.mark.parametrize("start", [(1e4, 0.0), (-1e4, 1e5), (1e300, -1e300), (-50.0, 30.0)])
def test_result_does_not_depend_on_the_start(start):
    features, weight, label = line(500)
    ours = fit_logistic(features, weight, label, start=np.array(start)).coefficients
    np.testing.assert_allclose(ours, fit_logistic(features, weight, label).coefficients, rtol=1e-9)


@pytest.mark.parametrize(("stretch", "shift"), [(1e4, 1e6), (1e-150, 0.0), (1e150, 0.0), (1.0, -1e5)])
def test_badly_scaled_features_converge(stretch, shift):
    features, weight, label = line(2_000)
    slope, intercept = fit_logistic(features, weight, label).coefficients
    moved = np.stack([stretch * features[0] + shift, features[1]])
    ours = fit_logistic(moved, weight, label).coefficients
    expected = [slope / stretch, intercept - slope / stretch * shift]
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


@pytest.mark.parametrize("size", [30.0, -30.0, 300.0, 1e4, 1e8])
@pytest.mark.parametrize("agrees", [False, True])
def test_outlier_does_not_stop_convergence(size, agrees):
    features, _, label = line(5_000)
    features = np.column_stack([features, [size, 1.0]])
    label = np.append(label, (size > 0) == agrees).astype(float)
    fit = fit_logistic(features, np.ones(5_001), label)
    # The gradient per feature is zero up to the rounding of its largest term.
    assert (np.abs(gradient(fit, features, 1.0, label)) < 1e-8 * np.abs(features).max(axis=1)).all()


@pytest.mark.parametrize("width", [1e-3, 1e-5])
def test_rounding_does_not_decide_whether_nearly_separated_labels_converge(width):
    # All scores but one are within `width`, so that the slope is large and cancels with the intercept.
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, weight = np.append(np.sort(rng.normal(0, width, 200)), 2.0), rng.lognormal(0, 2, 201)
        weight[-1] = 0.3 * weight.sum()
        label = weight * np.append(rng.random(200) < expit(2 * x[:-1] / width), True)
        fits = []
        for order in [np.arange(201), *(rng.permutation(201) for _ in range(5))]:
            features = np.stack([x - weight @ x / weight.sum(), np.ones(201)])[:, order]
            fits.append(fit_logistic(features, weight[order], label[order]).coefficients)
        np.testing.assert_allclose(fits, [fits[0]] * 6, rtol=1e-7)


def test_prior_gives_the_posterior_mode_and_its_information():
    features, weight, label = line(400)
    mean, precision = np.array([2.0, -1.0]), np.array([30.0, 5.0])
    fit = fit_logistic(features, weight, label, offset=0.3, prior_mean=mean, prior_precision=precision)
    score = gradient(fit, features, weight, label, 0.3) - precision * (fit.coefficients - mean)
    assert np.abs(score).max() < 1e-9
    l = fit.coefficients @ features + 0.3
    information = (features * expit(l) * expit(-l)) @ features.T + np.diag(precision)
    np.testing.assert_allclose(fit.covariance, np.linalg.inv(information), rtol=1e-9)
    np.testing.assert_allclose(fit.log_determinant, np.linalg.slogdet(information)[1], rtol=1e-9)
    penalty = 0.5 * precision @ np.square(fit.coefficients - mean)
    np.testing.assert_allclose(fit.log_likelihood, label @ l - np.logaddexp(0, l).sum() - penalty, rtol=1e-12)


def test_prior_makes_separated_and_collinear_problems_solvable():
    features, weight, _ = line(300)
    separated = fit_logistic(features, weight, (features[0] > -2).astype(float), prior_precision=np.array([1.0, 1.0]))
    assert 0 < separated.coefficients[0] < 100
    collinear = fit_logistic(np.ones((2, 10)), np.ones(10), np.full(10, 0.5), prior_precision=np.array([1e-6, 0.0]))
    np.testing.assert_allclose(collinear.coefficients, 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("features", "label"),
    [
        ([[-2.0, -1.0, 1.0, 2.0]], [0, 0, 1, 1]),  # separated
        ([[-2.0, -1.0, 1.0, 2.0], [1, 1, 1, 1]], [0, 0, 1, 1]),
        ([[0.0, 0.0, 1.0, 1.0], [1, 1, 1, 1]], [0, 1, 1, 1]),  # separated in one direction only
        ([[1, 1, 1, 1]], [1, 1, 1, 1]),
        ([[3, 3, 3, 3], [1, 1, 1, 1]], [0, 1, 0, 1]),  # constant score
        ([[0, 0, 0, 0]], [0, 1, 0, 1]),
    ],
)
def test_problem_without_a_finite_maximum_is_an_error(features, label):
    with pytest.raises(UncurseError, match="did not converge in 100 Newton steps; the scores separate the labels, or"):
        fit_logistic(np.array(features, float), np.ones(4), np.array(label, float))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: [x, 1 - x, np.ones_like(x)],
        lambda x: [x, 3 * x],
        lambda x: [x, np.where(np.arange(len(x)) == 0, 1.0, 0.0)],  # not zero only where the weight is
    ],
)
def test_features_that_are_collinear_to_rounding_are_an_error(make):
    rng = np.random.default_rng(0)
    weight = np.append(0.0, np.ones(49))
    label = weight * (rng.random(50) < 0.5)
    with pytest.raises(UncurseError, match="did not converge"):
        fit_logistic(np.array(make(rng.normal(size=50))), weight, label)
