"""Checks of arguments, and warnings that point at the caller."""

import re
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from uncurse.errors import UncurseError
from uncurse.evidence import from_arrays
from uncurse.validation import (
    SCALES,
    check_choice,
    check_count,
    check_finite,
    check_labels,
    check_length,
    check_names,
    check_number,
    check_numbers,
    check_scores,
    check_share,
    check_weights,
    effective_rows,
    encode_names,
    group_rows,
    warn_user,
)

FLOATS = [np.float32, np.float64]
HUGE = pytest.param(-(10**5000), id="huge")  # too long to print
NOT_NUMBERS = ["a", "0.05", b"1", None, True, np.True_, 1j, [0.5], np.array([0.5]), {}, object()]


# ---------------------------------------------------------------------------- warnings and errors


def test_warnings_point_at_the_file_of_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_user("a message")
        from_arrays(np.linspace(0.1, 0.9, 400).reshape(200, 2))
    assert {warning.filename for warning in caught} == {__file__}
    assert [str(warning.message)[:11] for warning in caught] == ["a message", "every value"]


def test_our_error_is_a_value_error():
    assert issubclass(UncurseError, ValueError)


# ---------------------------------------------------------------------------- single values


def test_a_known_choice_is_returned():
    assert [check_choice("scale", scale, SCALES) for scale in SCALES] == list(SCALES)


@pytest.mark.parametrize("value", ["odds", "", None, 3, HUGE, ["logit"], np.array(["logit", "value"])])
def test_an_unknown_choice_is_refused(value):
    with pytest.raises(UncurseError, match="is unknown; choose one of logit, probability, value"):
        check_choice("scale", value, SCALES)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int8(1), Fraction(1, 1)])
def test_numbers_of_every_type_become_floats(value):
    for check in (lambda: check_number(value, "x"), lambda: check_share(value)):
        assert check() == 1.0
        assert type(check()) is float


@pytest.mark.parametrize("value", [*NOT_NUMBERS, np.nan, np.inf, -np.inf, 10**400, HUGE])
def test_values_that_are_not_finite_numbers_are_refused(value):
    with pytest.raises(UncurseError, match=r"x is .*; pass a finite number"):
        check_number(value, "x")


@pytest.mark.parametrize("alpha", [*NOT_NUMBERS, 0, -0.1, 1.0001, 2, np.nan, np.inf, 10**400, HUGE])
def test_values_that_are_not_shares_are_refused(alpha):
    with pytest.raises(
        UncurseError, match=r"top=.* is not a share; pass a number above 0 and at most 1, such as 0\.02"
    ):
        check_share(alpha, "top")


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, -3, 2.0, np.nan, HUGE])
def test_values_that_are_not_counts_are_refused(value):
    with pytest.raises(UncurseError, match=r"n_bins=.*; pass an integer, 1 or more"):
        check_count(value, "n_bins")


def test_a_count_becomes_an_int():
    assert type(check_count(np.uint8(3), "n")) is int


# ---------------------------------------------------------------------------- scores


def test_an_unknown_scale_is_refused():
    with pytest.raises(UncurseError, match="scale='odds' is unknown; choose one of logit, probability, value"):
        check_scores([0.5], "odds")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", SCALES)
def test_a_score_that_is_not_finite_is_located(bad, scale):
    message = f"scores[1] is {bad} (2 such values); drop or repair those rows first"
    with pytest.raises(UncurseError, match=re.escape(message)):
        check_scores([0.5, bad, 0.25, bad], scale)


def test_a_score_of_a_matrix_is_located_by_row_and_column():
    scores = np.zeros((3, 2))
    scores[2, 1] = np.nan
    with pytest.raises(UncurseError, match=re.escape("pool[2, 1] is nan (1 such values)")):
        check_scores(scores, "logit", name="pool", ndim=2)


@pytest.mark.parametrize("infinities", [[np.inf, -np.inf], [-np.inf, np.inf]])
def test_infinities_of_opposite_sign_are_detected(infinities):
    with pytest.raises(UncurseError, match=re.escape("x[0] is ")):
        check_finite(np.array(infinities), "x")


def test_finite_numbers_whose_sum_overflows_are_accepted():
    assert check_finite(np.full(3, 1e308), "x") is None
    assert check_finite(np.full(3, 3e38, dtype=np.float32), "x") is None


@pytest.mark.parametrize(("value", "shown"), [(-0.1, "-0.1"), (1.5, "1.5"), (-7.0, "-7")])
def test_numbers_outside_0_and_1_are_not_probabilities(value, shown):
    message = f"scores holds {shown}, which is not a probability; are these logits\\? Use the logit scale"
    with pytest.raises(UncurseError, match=message):
        check_scores([0.2, value, 0.4], "probability")


def test_0_and_1_are_probabilities_and_any_finite_number_is_a_logit():
    assert check_scores([0, 1], "probability").tolist() == [0.0, 1.0]
    assert check_scores([-900.0, 900.0], "logit").tolist() == [-900.0, 900.0]


@pytest.mark.parametrize("scores", [0.5, [[0.5, 0.5]], np.zeros((2, 1, 1))])
def test_scores_of_another_shape_are_refused(scores):
    message = f"scores has shape {np.shape(scores)}; pass one column, shape (n,)"
    with pytest.raises(UncurseError, match=re.escape(message)):
        check_scores(scores, "logit")


def test_one_column_is_refused_where_replicas_are_needed():
    message = "pool has shape (3,); pass a column per replica, shape (n, S)"
    with pytest.raises(UncurseError, match=re.escape(message)):
        check_scores([1.0, 2.0, 3.0], "logit", name="pool", ndim=2)


@pytest.mark.parametrize(("shape", "ndim"), [((0,), 1), ((0, 2), 2), ((2, 0), 2)])
def test_empty_scores_are_refused(shape, ndim):
    with pytest.raises(UncurseError, match=re.escape(f"scores is empty, shape {shape}; pass at least one row")):
        check_scores(np.empty(shape), "logit", ndim=ndim)


def test_text_labels_are_to_be_compared_with_a_class():
    with pytest.raises(UncurseError, match="<U4; compare it with the class that counts, such as labels == 'won'"):
        check_labels(["lost", "lost", "won"], 3)


@pytest.mark.parametrize(
    ("scores", "dtype"),
    [
        (["a", "b"], "<U1"),
        ([b"a"], r"\|S1"),
        ([0.1, None], "object"),
        ([10**400], "object"),
        ([1 + 2j], "complex128"),
        (np.array([0.1, 0.2], dtype=object), "object; convert it to float first"),
        (np.array(["won", "lost"]), "<U4; convert it to float first"),
        ({"plain": [0.1]}, "object; pass one array, and call this for each"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), r"datetime64\[D\]"),
        (np.array([1], dtype="timedelta64[s]"), r"timedelta64\[s\]"),
    ],
)
def test_scores_that_are_not_numbers_are_refused(scores, dtype):
    with pytest.raises(
        UncurseError, match=f"scores must be an array of numbers, not {type(scores).__name__}: dtype {dtype}"
    ):
        check_scores(scores, "logit")


@pytest.mark.parametrize("dtype", FLOATS)
def test_floating_scores_are_not_copied(dtype):
    scores = np.array([0.1, 0.2], dtype=dtype)
    assert check_scores(scores, "logit") is scores


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, bool, np.float16, ">f8"])
def test_other_numbers_become_native_float64(dtype):
    values = check_scores(np.array([0, 1], dtype=dtype), "probability")
    assert values.dtype == np.dtype(np.float64)
    assert values.tolist() == [0.0, 1.0]


def test_a_long_double_beyond_float64_is_reported_as_infinite():
    with pytest.raises(UncurseError, match=re.escape("scores[0] is inf")):
        check_scores(np.array([np.finfo(np.longdouble).max]), "logit")


@pytest.mark.parametrize(
    "check", [lambda v: check_scores(v, "logit"), lambda v: check_labels(v, 2), lambda v: check_weights(v, 2)]
)
def test_ragged_lists_are_refused(check):
    with pytest.raises(UncurseError, match="must be an array of numbers, not list"):
        check([[1.0], [1.0, 2.0]])


def test_objects_that_cannot_become_an_array_are_refused():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("call detach() first")

    with pytest.raises(UncurseError, match="scores must be an array of numbers, not Tensor: call detach"):
        check_numbers(Tensor(), "scores")


def test_masked_values_are_refused():
    with pytest.raises(UncurseError, match="scores has masked values; drop or fill those rows first"):
        check_scores(np.ma.masked_array([1.0, 2.0], [False, True]), "logit")
    with pytest.raises(UncurseError, match="groups has masked values; drop or fill those rows first"):
        check_names(np.ma.masked_array([1, 2], [False, True]), 2, "groups")


# ---------------------------------------------------------------------------- labels and weights


@pytest.mark.parametrize(("bad", "shown"), [(2, "2"), (-1, "-1"), (0.5, "0.5"), (np.nan, "nan"), (np.inf, "inf")])
def test_labels_other_than_0_and_1_are_located(bad, shown):
    with pytest.raises(UncurseError, match=re.escape(f"labels[1] is {shown}; labels must be 0 or 1")):
        check_labels(np.array([0, bad, 1]), 3)


@pytest.mark.parametrize("labels", [["0", "1"], np.array([0, 1], dtype=object), [0j, 1j]])
def test_labels_that_are_not_numbers_are_refused(labels):
    with pytest.raises(
        UncurseError, match=r"y must be an array of numbers, not (list|ndarray): dtype (<U1|object|complex128)"
    ):
        check_labels(labels, 2, name="y")


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_labels_of_any_numeric_dtype_are_accepted(dtype):
    y = check_labels(np.array([0, 1, 1], dtype=dtype), 3)
    assert y.sum() == 2
    assert y.tolist() == [0, 1, 1]


@pytest.mark.parametrize("check", [check_labels, check_weights])
@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0, 1.0], [[1.0, 1.0]], 1.0])
def test_lengths_that_differ_are_refused(check, values):
    shape = np.shape(values)
    with pytest.raises(UncurseError, match=re.escape(f"has shape {shape} but there are 2 rows; pass shape (2,)")):
        check(values, 2)


def test_check_length_names_the_argument():
    with pytest.raises(UncurseError, match=re.escape("groups has shape (3,) but there are 4 rows")):
        check_length(np.zeros(3), 4, "groups")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -0.5], r"sample_weight holds -0\.5; weights must be 0 or more"),
        ([0.0, 0.0], "every sample_weight is zero; give some row a positive weight"),
        ([], "every sample_weight is zero"),
        ([np.nan, 1.0], r"sample_weight\[0\] is nan"),
        ([np.inf, 1.0], r"sample_weight\[0\] is inf"),
        ([1e308] * 3, r"the largest sample_weight is 1e\+308; rescale the weights, only their ratios matter"),
        ([1e-310, 0.0], "the largest sample_weight is 1e-310; rescale the weights"),
        (["1", "2"], "sample_weight must be an array of numbers"),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    for call in (lambda: check_weights(weights, len(weights)), lambda: effective_rows(weights)):
        with pytest.raises(UncurseError, match=message):
            call()


def test_valid_weights_become_float64_and_none_stays_none():
    assert check_weights(None, 5) is None
    weights = check_weights(np.array([0, 3], np.float32), 2)
    assert weights is not None
    assert weights.dtype == np.float64
    assert weights.tolist() == [0.0, 3.0]


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_effective_rows_do_not_depend_on_the_scale_of_the_weights(scale):
    weights = np.random.default_rng(0).exponential(size=1000)
    expected = weights.sum() ** 2 / (weights**2).sum()
    scaled = weights / weights.max() * scale
    checked = check_weights(scaled, 1000)
    np.testing.assert_array_equal(checked, scaled if scale == 1 else scaled / scaled.max())
    if scale != 1:
        with pytest.raises(UncurseError, match=r"the largest sample_weight is .*; rescale the weights"):
            check_weights(scaled, 1000, summed=True)
    assert effective_rows(scaled) == pytest.approx(expected, rel=1e-12)


def test_effective_rows_of_equal_weights_are_the_rows():
    assert effective_rows(np.full(1000, 1e300)) == pytest.approx(1000, rel=1e-12)
    assert effective_rows([0.0, 5.0]) == 1.0


# ---------------------------------------------------------------------------- groups


@pytest.mark.parametrize(
    "groups", [[3, 1, 3, 2], np.array([3, 1, 3, 2], np.uint8), ["3", "1", "3", "2"], [3.0, 1, 3, 2]]
)
def test_groups_of_any_type_are_named_by_their_text(groups):
    names, rows = group_rows(groups, 4)
    assert names == ["1", "2", "3"]
    assert [r.tolist() for r in rows] == [[1], [3], [0, 2]]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_groups_are_located(missing):
    for groups in (np.array(["a", missing], dtype=object), pd.Series(["a", missing], dtype=object)):
        with pytest.raises(UncurseError, match=r"groups\[1\] is .*; fill missing values, for example with 'unknown'"):
            check_names(groups, 2, "groups")
    with pytest.raises(UncurseError, match=r"groups\[0\] is nan"):
        check_names([np.nan, 1.0], 2, "groups")


@pytest.mark.parametrize("kind", [list, lambda v: np.array(v, object), pd.Series])
def test_a_whole_number_and_its_float_are_one_name_also_beside_text(kind):
    names, codes = encode_names(kind([1, 1.0, np.float32(1), "a", 1.5]), 5, "groups")
    assert (names, codes.tolist()) == (["1", "1.5", "a"], [0, 0, 0, 2, 1])
    with pytest.raises(UncurseError, match=r"groups\[1\] is nan; fill missing values"):
        encode_names(kind(["a", np.nan]), 2, "groups")


def test_ragged_groups_are_refused():
    with pytest.raises(UncurseError, match="groups must be a list of names"):
        check_names([["a"], ["b", "c"]], 2, "groups")


@pytest.mark.parametrize("groups", [["a", "b\0"], np.array(["a", "b\0"], object)])
def test_a_group_that_ends_in_a_null_character_is_refused(groups):
    with pytest.raises(
        UncurseError, match=r"groups\[1\] is 'b\\x00', which ends in a null character; rename the group"
    ):
        group_rows(groups, 2)


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda v: np.array(v, object), lambda v: np.array(v, "U9")])
def test_names_are_encoded_in_their_order_whatever_holds_them(kind):
    names, codes = encode_names(kind(["b", "a", "b", "Ω"]), 4, "groups")
    assert (names, codes.tolist()) == (["a", "b", "Ω"], [1, 0, 1, 2])
    assert {type(name) for name in names} == {str}


def test_names_that_are_not_text_are_encoded_by_their_values():
    for values, expected in (([10, 9, 10], ["9", "10"]), ([1.0, 1, 2], ["1", "2"]), (["b", 1, "b"], ["1", "b"])):
        names, codes = encode_names(values, 3, "groups")
        assert names == expected
        assert [names[code] for code in codes] == [
            f"{value:g}" if type(value) is float else str(value) for value in values
        ]


@pytest.mark.parametrize(
    "values",
    [[["a"], ["b"]], ["a\0", "b"], ("a\0", "b"), ["a", None], "ab", ["a"], np.ma.array(["a", "b"], mask=[1, 0])],
)
def test_names_that_cannot_be_encoded_are_an_error(values):
    with pytest.raises(UncurseError, match="groups"):
        encode_names(values, 2, "groups")
