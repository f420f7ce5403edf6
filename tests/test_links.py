import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr

from uncurse.errors import UncurseError
from uncurse.links import LINKS, get_link, inside, logistic, logit, to_link
from uncurse.validation import (
    SCALES,
    check_choice,
    check_finite,
    check_labels,
    check_length,
    check_scores,
    check_share,
    check_weights,
)

EPS = np.finfo(np.float64).eps
FLOATS = [np.float32, np.float64]

# ---------------------------------------------------------------------------- the links


def test_logistic_is_expit_to_rounding():
    l = np.linspace(-700, 700, 200_001)
    np.testing.assert_allclose(logistic(l), expit(l), rtol=4 * EPS, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_probabilities_are_never_0_or_1_and_keep_their_dtype(name, dtype):
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
def test_phi_undoes_inverse(name):
    p = np.concatenate([10.0 ** np.arange(-300, -2, 7), np.linspace(0.01, 0.99, 99), 1 - 10.0 ** -np.arange(3, 15)])
    link = get_link(name)
    # A relative error of l·ε in l = φ⁻¹(p), and of l²·ε for probit, is what the float l can hold: |l| ≤ 700 or 37.
    np.testing.assert_allclose(link.phi(link.inverse(p)), p, rtol=2000 * EPS, atol=0)


@pytest.mark.parametrize("name", LINKS)
def test_phi_increases(name):
    p = get_link(name).phi(np.linspace(-8, 6, 1001))
    assert (np.diff(p) > 0).all()


@pytest.mark.parametrize("name", LINKS)
def test_slope_and_bend_are_the_derivatives_of_phi(name):
    link = get_link(name)
    l = np.linspace(-6, 6, 241)
    h = 1e-3

    def derivative(f):  # error of order h⁴
        return (8 * (f(l + h) - f(l - h)) - (f(l + 2 * h) - f(l - 2 * h))) / (12 * h)

    np.testing.assert_allclose(link.slope(l), derivative(link.phi), rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(link.bend(l), derivative(link.slope), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_slope_is_even_and_bend_is_odd(name):
    link, l = get_link(name), np.linspace(0.1, 30, 100)
    np.testing.assert_array_equal(link.slope(l), link.slope(-l))
    np.testing.assert_array_equal(link.bend(l), -link.bend(-l))


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


def test_logistic_leaves_its_input_alone():
    l = np.array([-1.0, 0.0, 2.0])
    logistic(l)
    np.testing.assert_array_equal(l, [-1.0, 0.0, 2.0])


@pytest.mark.parametrize("dtype", [np.int64, np.float16, bool])
def test_logistic_of_other_numbers_is_float64(dtype):
    p = logistic(np.array([0, 1], dtype=dtype))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, expit([0.0, 1.0]), rtol=2 * EPS)


def test_logistic_passes_nan_on():
    assert np.isnan(logistic(np.array([np.nan, 0.0]))).tolist() == [True, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_inside_moves_only_what_is_outside(dtype):
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


def test_values_of_an_identity_link_are_themselves():
    assert to_link([3, -4], "value", "identity").tolist() == [3.0, -4.0]


def test_logit_is_the_inverse_of_expit():
    assert logit(np.array([0.5, 0.75])).tolist() == [0.0, np.log(0.75) - np.log1p(-0.75)]


# ---------------------------------------------------------------------------- every raise


@pytest.mark.parametrize("value", ["sigmoid", "", "Logistic", None, 3, ["logistic"]])
def test_an_unknown_link_is_named_and_the_known_are_listed(value):
    message = f"link={value!r} is unknown; choose one of logistic, identity, log, probit"
    with pytest.raises(UncurseError, match=re.escape(message)):
        get_link(value)


def test_an_unknown_scale_is_named_and_the_known_are_listed():
    message = "scale='odds' is unknown; choose one of logit, probability, value"
    for call in (lambda: to_link([0.5], "odds", "logistic"), lambda: check_scores([0.5], "odds")):
        with pytest.raises(UncurseError, match=message):
            call()


def test_to_link_refuses_an_unknown_link():
    with pytest.raises(UncurseError, match="link='cloglog' is unknown"):
        to_link([0.5], "probability", "cloglog")


def test_a_known_choice_is_returned():
    assert [check_choice("scores", scale, SCALES) for scale in SCALES] == list(SCALES)


def test_our_error_is_a_value_error():
    assert issubclass(UncurseError, ValueError)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", SCALES)
def test_a_score_that_is_not_finite_is_named_by_its_place(bad, scale):
    message = f"scores[1] is {bad} (2 such values); drop or repair those rows first"
    with pytest.raises(UncurseError, match=re.escape(message)):
        check_scores([0.5, bad, 0.25, bad], scale)


def test_a_bad_score_in_a_matrix_is_named_by_row_and_column():
    scores = np.zeros((3, 2))
    scores[2, 1] = np.nan
    with pytest.raises(UncurseError, match=re.escape("pool[2, 1] is nan (1 such values)")):
        check_scores(scores, "logit", name="pool", ndim=2)


@pytest.mark.parametrize("infinities", [[np.inf, -np.inf], [-np.inf, np.inf]])
def test_infinities_that_cancel_are_found(infinities):
    with pytest.raises(UncurseError, match=re.escape("x[0] is ")):
        check_finite(np.array(infinities), "x")


def test_finite_numbers_whose_sum_overflows_are_accepted():
    assert check_finite(np.full(3, 1e308), "x") is None
    assert check_finite(np.full(3, 3e38, dtype=np.float32), "x") is None


@pytest.mark.parametrize(("value", "shown"), [(-0.1, "-0.1"), (1.5, "1.5"), (-7.0, "-7")])
def test_a_number_outside_0_1_is_not_a_probability(value, shown):
    with pytest.raises(UncurseError, match=f"scores holds {shown}, which is not a probability; are these logits"):
        check_scores([0.2, value, 0.4], "probability")


def test_0_and_1_are_probabilities_and_anything_finite_is_a_logit():
    assert check_scores([0, 1], "probability").tolist() == [0.0, 1.0]
    assert check_scores([-900.0, 900.0], "logit").tolist() == [-900.0, 900.0]


@pytest.mark.parametrize("scores", [0.5, [[0.5, 0.5]], np.zeros((2, 1, 1))])
def test_scores_of_another_shape_ask_for_one_column(scores):
    message = f"scores has shape {np.shape(scores)}; pass one column, shape (n,)"
    with pytest.raises(UncurseError, match=re.escape(message)):
        check_scores(scores, "logit")


def test_one_column_where_replicas_are_needed_asks_for_a_matrix():
    message = "pool has shape (3,); pass a column per replica, shape (n, S)"
    with pytest.raises(UncurseError, match=re.escape(message)):
        check_scores([1.0, 2.0, 3.0], "logit", name="pool", ndim=2)


@pytest.mark.parametrize(("shape", "ndim"), [((0,), 1), ((0, 2), 2), ((2, 0), 2)])
def test_empty_scores_are_refused(shape, ndim):
    with pytest.raises(UncurseError, match=re.escape(f"scores is empty, shape {shape}; pass at least one row")):
        check_scores(np.empty(shape), "logit", ndim=ndim)


@pytest.mark.parametrize(
    ("scores", "dtype"),
    [
        (["a", "b"], "<U1"),
        ([b"a"], r"\|S1"),
        ([0.1, None], "object"),
        ([1 + 2j], "complex128"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), r"datetime64\[D\]"),
        (np.array([1], dtype="timedelta64[s]"), r"timedelta64\[s\]"),
    ],
)
def test_scores_that_are_not_numbers_are_refused_by_dtype(scores, dtype):
    with pytest.raises(
        UncurseError, match=f"scores must be an array of numbers, not {type(scores).__name__}: dtype {dtype}"
    ):
        check_scores(scores, "logit")


def test_object_scores_say_what_to_do():
    with pytest.raises(UncurseError, match="dtype object; convert it to float first"):
        check_scores(np.array([0.1, 0.2], dtype=object), "logit")


@pytest.mark.parametrize("dtype", FLOATS)
def test_floating_scores_are_not_copied(dtype):
    scores = np.array([0.1, 0.2], dtype=dtype)
    assert check_scores(scores, "logit") is scores


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, bool, np.float16, ">f8"])
def test_other_numbers_become_native_float64(dtype):
    values = check_scores(np.array([0, 1], dtype=dtype), "probability")
    assert values.dtype == np.dtype(np.float64)
    assert values.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("bad", "shown"), [(2, "2"), (-1, "-1"), (0.5, "0.5"), (np.nan, "nan"), (np.inf, "inf")])
def test_labels_other_than_0_and_1_are_refused_by_place(bad, shown):
    with pytest.raises(UncurseError, match=re.escape(f"labels[1] is {shown}; labels must be 0 or 1")):
        check_labels(np.array([0, bad, 1]), 3)


@pytest.mark.parametrize("labels", [["0", "1"], np.array([0, 1], dtype=object), [0j, 1j]])
def test_labels_that_are_not_numbers_are_refused_by_dtype(labels):
    with pytest.raises(
        UncurseError, match=r"y must be an array of numbers, not (list|ndarray): dtype (<U1|object|complex128)"
    ):
        check_labels(labels, 2, name="y")


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_labels_of_any_numeric_dtype_count_the_same(dtype):
    y = check_labels(np.array([0, 1, 1], dtype=dtype), 3)
    assert y.sum() == 2
    assert y.tolist() == [0, 1, 1]


@pytest.mark.parametrize("check", [check_labels, check_weights])
@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0, 1.0], [[1.0, 1.0]], 1.0])
def test_lengths_that_differ_are_refused(check, values):
    shape = np.shape(values)
    with pytest.raises(UncurseError, match=re.escape(f"has shape {shape} but there are 2 scores; pass shape (2,)")):
        check(values, 2)


def test_check_length_names_the_argument():
    with pytest.raises(UncurseError, match=re.escape("groups has shape (3,) but there are 4 scores")):
        check_length(np.zeros(3), 4, "groups")


def test_negative_weights_are_refused():
    with pytest.raises(UncurseError, match=r"sample_weight holds -0\.5; weights must be 0 or more"):
        check_weights([1.0, -0.5], 2)


def test_weights_that_are_all_0_are_refused():
    with pytest.raises(UncurseError, match="every sample_weight is zero; give some row a positive weight"):
        check_weights([0.0, 0.0], 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(bad):
    with pytest.raises(UncurseError, match=re.escape(f"sample_weight[0] is {bad}")):
        check_weights([bad, 1.0], 2)


def test_no_weights_stay_none_and_good_ones_become_float64():
    assert check_weights(None, 5) is None
    weights = check_weights([0, 3], 2)
    assert weights is not None
    assert weights.dtype == np.float64
    assert weights.tolist() == [0.0, 3.0]


@pytest.mark.parametrize("alpha", [0, -0.1, 1.0001, 2, np.nan, np.inf])
def test_a_share_outside_0_1_is_refused(alpha):
    with pytest.raises(UncurseError, match=re.escape(f"alpha={alpha!r} is not a share; pass a number above 0")):
        check_share(alpha)


def test_a_share_is_returned_as_a_float_and_named_in_errors():
    assert check_share(1) == 1.0
    assert type(check_share(np.float32(0.5))) is float
    with pytest.raises(UncurseError, match="top=0 is not a share"):
        check_share(0, "top")


@pytest.mark.parametrize(
    "check", [lambda v: check_scores(v, "logit"), lambda v: check_labels(v, 2), lambda v: check_weights(v, 2)]
)
def test_ragged_lists_get_our_error(check):
    with pytest.raises(UncurseError, match="must be an array of numbers, not list"):
        check([[1.0], [1.0, 2.0]])


def test_masked_values_are_refused():
    with pytest.raises(UncurseError, match="scores has masked values; drop or fill those rows first"):
        check_scores(np.ma.masked_array([1.0, 2.0], [False, True]), "logit")


def test_weights_whose_sum_overflows_are_refused():
    with pytest.raises(UncurseError, match="whose square is no number; rescale the weights"):
        check_weights([1e308] * 3, 3)


@pytest.mark.parametrize("share", ["a", None, 0.0, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(UncurseError, match="is not a share; pass a number above 0 and at most 1"):
        check_share(share)


def test_log_link_overflows_to_infinity_without_a_warning():
    assert np.isinf(get_link("log").phi(np.array([800.0]))[0])
