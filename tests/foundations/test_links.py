"""Links and their inverses, to rounding and into both tails."""

import numpy as np
import pytest
from scipy.special import expit

from uncurse.errors import UncurseError
from uncurse.links import LINKS, check_space, get_link, inside, logistic, logit, to_link

EPS = np.finfo(np.float64).eps
FLOATS = [np.float32, np.float64]


def test_logistic_is_expit_to_rounding_and_leaves_its_input_alone():
    l = np.linspace(-700, 700, 200_001)
    before = l.copy()
    np.testing.assert_allclose(logistic(l), expit(l), rtol=4 * EPS, atol=0)
    np.testing.assert_array_equal(l, before)
    assert np.isnan(logistic(np.array([np.nan, 0.0]))).tolist() == [True, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_probabilities_are_never_0_or_1_and_keep_the_dtype_of_the_scores(dtype):
    l = np.array([-1e30, -1e4, -800, -104, -88, -40, 0, 17, 38, 800, 1e30], dtype=dtype)
    p = logistic(l)
    assert p.dtype == dtype
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p) >= 0).all()
    assert p[6] == 0.5
    back = logit(np.array([0, 1], dtype=dtype))
    assert np.isfinite(back).all()
    assert back[0] < -10
    assert back[1] > 5


@pytest.mark.parametrize("dtype", [np.int64, np.float16, bool])
def test_logistic_of_other_numbers_is_float64(dtype):
    p = logistic(np.array([0, 1], dtype=dtype))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, expit([0.0, 1.0]), rtol=2 * EPS)


@pytest.mark.parametrize("name", LINKS)
def test_phi_inverts_its_inverse_and_increases(name):
    p = np.concatenate([10.0 ** np.arange(-300, -2, 7), np.linspace(0.01, 0.99, 99), 1 - 10.0 ** -np.arange(3, 15)])
    link = get_link(name)
    # Rounding of l gives a relative error of l·ε, where |l| ≤ 700.
    np.testing.assert_allclose(link.phi(link.inverse(p)), p, rtol=1000 * EPS, atol=0)
    predictions = link.phi(np.linspace(-40, 20, 1001))
    assert (np.diff(predictions) > 0).all()
    assert link.lower <= predictions[0] <= predictions[-1] <= link.upper


@pytest.mark.parametrize("name", LINKS)
def test_links_of_the_largest_scores_give_no_warning(name):
    link, extremes = get_link(name), np.array([-1.7e308, 1.7e308])
    assert not np.isnan([link.phi(extremes), link.inverse(extremes)]).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_inside_clips_only_values_outside_the_interval(dtype):
    values = np.array([-1, 0, 0.25, 1, 2], dtype=dtype)
    tiny, below_one = np.finfo(dtype).tiny, np.nextafter(dtype(1), dtype(0))
    np.testing.assert_array_equal(inside(values, 0.0, 1.0), [tiny, tiny, 0.25, below_one, below_one])
    assert inside(values, 0.0, 1.0).dtype == dtype
    np.testing.assert_array_equal(inside(values, 0.5, np.inf)[[2, 4]], [np.nextafter(dtype(0.5), dtype(1)), 2])
    np.testing.assert_array_equal(inside(values, -np.inf, np.inf), values)


@pytest.mark.parametrize("link", LINKS)
def test_scores_on_every_scale_become_scores_of_the_link(link):
    l = np.linspace(-5, 5, 21)
    found = to_link(l, "logit", link)
    np.testing.assert_allclose(found, to_link(expit(l), "probability", link), atol=1e-13)
    np.testing.assert_allclose(get_link(link).phi(found), expit(l), rtol=1e-14)
    assert (found is l) == (link == "logistic")  # logits are not copied


@pytest.mark.parametrize("value", ["sigmoid", "", "Logistic", None, 3, ["logistic"]])
def test_an_unknown_link_is_refused(value):
    for call in (get_link, lambda link: check_space(link, "logit")):
        with pytest.raises(UncurseError, match="link="):
            call(value)


def test_a_scale_without_scores_of_the_link_is_refused():
    for link, scale in (("logistic", "odds"), ("logistic", "value")):
        with pytest.raises(UncurseError, match=f"scale='{scale}'"):
            check_space(link, scale)


@pytest.mark.parametrize("function", [logistic, logit])
@pytest.mark.parametrize("values", ["a", ["0.5"], None, [[1.0], [1.0, 2.0]], 1j])
def test_values_that_are_not_numbers_are_refused(function, values):
    with pytest.raises(UncurseError, match="must be an array of numbers"):
        function(values)
