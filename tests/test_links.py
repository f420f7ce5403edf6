import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr

from uncurse.errors import UncurseError
from uncurse.links import LINKS, get_link, inside, logistic, logit, normal_cdf, to_link

EPS = np.finfo(np.float64).eps
FLOATS = [np.float32, np.float64]

# ---------------------------------------------------------------------------- the links


def test_logistic_is_expit_to_rounding():
    l = np.linspace(-700, 700, 200_001)
    np.testing.assert_allclose(logistic(l), expit(l), rtol=4 * EPS, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_probabilities_are_never_0_or_1_and_keep_the_dtype_of_the_scores(name, dtype):
    l = np.array([-1e30, -1e4, -800, -104, -88, -40, 0, 17, 38, 800, 1e30], dtype=dtype)
    p = get_link(name).phi(l)
    assert p.dtype == dtype
    assert (p > 0).all()
    assert (p < 1).all()
    assert (np.diff(p) >= 0).all()
    assert p[6] == 0.5


@given(st.floats(-600, 600))
@settings(deadline=None)
def test_logistic_of_minus_l_is_the_complement(l):
    assert abs(logistic(np.array(l)) + logistic(np.array(-l)) - 1) <= 2 * EPS


@pytest.mark.parametrize("name", LINKS)
def test_phi_inverts_its_inverse(name):
    p = np.concatenate([10.0 ** np.arange(-300, -2, 7), np.linspace(0.01, 0.99, 99), 1 - 10.0 ** -np.arange(3, 15)])
    link = get_link(name)
    # Rounding of l gives a relative error of l·ε, and of l²·ε for probit, where |l| ≤ 700 or 37.
    np.testing.assert_allclose(link.phi(link.inverse(p)), p, rtol=2000 * EPS, atol=0)


@pytest.mark.parametrize("name", LINKS)
def test_phi_increases(name):
    p = get_link(name).phi(np.linspace(-8, 6, 1001))
    assert (np.diff(p) > 0).all()


@pytest.mark.parametrize("name", LINKS)
def test_slope_is_the_derivative_of_phi(name):
    link = get_link(name)
    l = np.linspace(-6, 6, 241)
    h = 1e-3

    def derivative(f):  # error of order h⁴
        return (8 * (f(l + h) - f(l - h)) - (f(l + 2 * h) - f(l - 2 * h))) / (12 * h)

    np.testing.assert_allclose(link.slope(l), derivative(link.phi), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_slope_is_even(name):
    link, l = get_link(name), np.linspace(0.1, 30, 100)
    np.testing.assert_array_equal(link.slope(l), link.slope(-l))


def test_slope_of_the_logistic_keeps_its_relative_accuracy_in_both_tails():
    l = np.array([-300.0, -40.0, 40.0, 300.0])
    np.testing.assert_allclose(get_link("logistic").slope(l), np.exp(-np.abs(l)), rtol=1e-13)


@pytest.mark.parametrize("name", LINKS)
def test_predictions_stay_inside_the_bounds_of_the_link(name):
    link = get_link(name)
    p = link.phi(np.linspace(-40, 40, 81))
    assert (p >= link.lower).all()
    assert (p <= link.upper).all()


def test_probit_is_the_normal_distribution_function():
    l = np.linspace(-37, 8, 1001)
    np.testing.assert_array_equal(get_link("probit").phi(l), ndtr(l))


def test_logistic_does_not_change_its_input():
    l = np.array([-1.0, 0.0, 2.0])
    logistic(l)
    np.testing.assert_array_equal(l, [-1.0, 0.0, 2.0])


@pytest.mark.parametrize("dtype", [np.int64, np.float16, bool])
def test_logistic_of_other_numbers_is_float64(dtype):
    p = logistic(np.array([0, 1], dtype=dtype))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, expit([0.0, 1.0]), rtol=2 * EPS)


def test_logistic_of_nan_is_nan():
    assert np.isnan(logistic(np.array([np.nan, 0.0]))).tolist() == [True, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_inside_clips_only_values_outside_the_interval(dtype):
    info = np.finfo(dtype)
    values = np.array([-1, 0, 0.25, 1, 2], dtype=dtype)
    below_one = np.nextafter(dtype(1), dtype(0))
    np.testing.assert_array_equal(inside(values, 0.0, 1.0), [info.tiny, info.tiny, 0.25, below_one, below_one])
    assert inside(values, 0.0, 1.0).dtype == dtype
    np.testing.assert_array_equal(inside(values, 0.5, np.inf)[[2, 4]], [np.nextafter(dtype(0.5), dtype(1)), 2])
    np.testing.assert_array_equal(inside(values, -np.inf, np.inf), values)


@pytest.mark.parametrize("name", ["logistic", "probit"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_inverse_of_exactly_0_and_1_is_finite(name, dtype):
    l = get_link(name).inverse(np.array([0, 1], dtype=dtype))
    assert np.isfinite(l).all()
    assert l[0] < -10
    assert l[1] > 5


def test_log_inverse_of_0_is_finite():
    assert get_link("log").inverse(np.array([0.0, 1.0])).tolist() == [np.log(np.finfo(np.float64).tiny), 0.0]


# ---------------------------------------------------------------------------- to_link


@pytest.mark.parametrize("dtype", FLOATS)
def test_logits_of_a_logistic_link_are_not_copied(dtype):
    l = np.array([-1.0, 2.0], dtype=dtype)
    assert to_link(l, "logit", "logistic") is l


@pytest.mark.parametrize("link", LINKS)
def test_logits_and_their_probabilities_give_the_same_scores(link):
    l = np.linspace(-5, 5, 21)
    np.testing.assert_allclose(to_link(l, "logit", link), to_link(expit(l), "probability", link), atol=1e-13)


@pytest.mark.parametrize("link", LINKS)
def test_phi_of_a_score_is_the_prediction(link):
    p = np.array([0.01, 0.5, 0.9])
    np.testing.assert_allclose(get_link(link).phi(to_link(p, "probability", link)), p, rtol=1e-14)


def test_identity_link_returns_its_input():
    assert to_link([3, -4], "value", "identity").tolist() == [3.0, -4.0]


def test_logit_is_the_inverse_of_expit():
    assert logit(np.array([0.5, 0.75])).tolist() == [0.0, np.log(0.75) - np.log1p(-0.75)]


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize("value", ["sigmoid", "", "Logistic", None, 3, ["logistic"]])
def test_an_unknown_link_is_refused(value):
    message = f"link={value!r} is unknown; choose one of logistic, identity, log, probit"
    with pytest.raises(UncurseError, match=re.escape(message)):
        get_link(value)


def test_unknown_scales_and_links_are_refused_by_to_link():
    with pytest.raises(UncurseError, match="scale='odds' is unknown; choose one of logit, probability, value"):
        to_link([0.5], "odds", "logistic")
    with pytest.raises(UncurseError, match="link='cloglog' is unknown"):
        to_link([0.5], "probability", "cloglog")
    with pytest.raises(UncurseError, match="link=array"):
        to_link([0.5], "logit", np.array(["logistic", "log"]))


@pytest.mark.parametrize("function", [logistic, logit, normal_cdf, lambda x: to_link(x, "logit", "log")])
@pytest.mark.parametrize("values", ["a", ["0.5"], None, [[1.0], [1.0, 2.0]], 1j])
def test_values_that_are_not_numbers_are_refused(function, values):
    with pytest.raises(UncurseError, match=r"(scores|probabilities) must be an array of numbers"):
        function(values)


@pytest.mark.parametrize("name", LINKS)
def test_links_of_the_largest_scores_give_no_warning(name):
    link, extremes = get_link(name), np.array([-1.7e308, 1.7e308])
    assert not np.isnan([link.phi(extremes), link.inverse(extremes), link.slope(extremes)]).any()


def test_the_log_link_overflows_to_infinity_without_a_warning():
    assert np.isinf(get_link("log").phi(np.array([800.0]))[0])
