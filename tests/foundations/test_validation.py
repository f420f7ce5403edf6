"""Checks of arguments, and warnings that point at the caller."""

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
    check_flag,
    check_labels,
    check_number,
    check_numbers,
    check_scores,
    check_share,
    check_weights,
    effective_rows,
    encode_names,
    segment_rows,
    warn_user,
)

NOT_NUMBERS = ["a", "0.05", b"1", None, True, np.True_, 1j, [0.5], np.array([0.5]), {}, object()]


def test_warnings_point_at_the_file_of_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_user("a message")
        from_arrays(np.linspace(0.1, 0.9, 400).reshape(200, 2))
    assert {warning.filename for warning in caught} == {__file__}
    assert len(caught) == 2


# ---------------------------------------------------------------------------- single values


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int8(1), Fraction(1, 1)])
def test_numbers_of_every_type_become_floats(value):
    for found in (check_number(value, "x"), check_share(value)):
        assert found == 1.0
        assert type(found) is float
    assert type(check_count(np.uint8(3), "n")) is int
    assert check_flag(np.True_, "x") is True


@pytest.mark.parametrize(
    ("check", "name", "values"),
    [
        (lambda v: check_choice("scale", v, SCALES), "scale", ["odds", "", None, 3, ["logit"]]),
        (lambda v: check_number(v, "x"), "x", [*NOT_NUMBERS, np.nan, np.inf, -np.inf]),
        (lambda v: check_share(v, "top"), "top", [*NOT_NUMBERS, 0, -0.1, 1.0001, np.nan, np.inf]),
        (lambda v: check_count(v, "n", 9), "n", [*NOT_NUMBERS, 0, -3, 2.0, np.nan, 10]),
        (lambda v: check_flag(v, "strict"), "strict", [0, 1, None, "yes", np.array([True])]),
    ],
)
def test_single_values_of_another_kind_are_refused(check, name, values):
    for value in values:
        with pytest.raises(UncurseError, match=rf"^{name}( is|=)"):
            check(value)


# ---------------------------------------------------------------------------- arrays


class Tensor:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("call detach() first")


@pytest.mark.parametrize(
    ("scores", "scale", "ndim", "match"),
    [
        ([0.5, np.nan, 0.25, np.nan], "logit", 1, r"scores\[1\] is nan \(2 such values\)"),
        ([0.5, np.inf], "probability", 1, r"scores\[1\] is inf"),
        ([[0.0, -np.inf]], "value", 2, r"scores\[0, 1\] is -inf"),
        ([0.0, 1e80], "logit", 1, r"scores\[1\] is 1e\+80 beyond ±1e\+75"),
        (np.array([np.finfo(np.longdouble).max]), "logit", 1, r"scores\[0\] is inf"),
        ([0.2, 1.5, 0.4], "probability", 1, r"1\.5.* not a probability"),
        ([0.2, -7.0, 0.4], "probability", 1, "-7.* not a probability; are these logits"),
        ([0.2, 57.0, 0.4], "probability", 1, "57, .* not a probability; are these percentages"),
        (0.5, "logit", 1, r"shape \(\)"),
        ([1.0, 2.0], "logit", 2, r"shape \(2,\)"),
        (np.empty((2, 0)), "logit", 2, r"empty.*\(2, 0\)"),
        ([0.5], "odds", 1, "scale='odds'"),
        (["a", "b"], "logit", 1, "<U1"),
        ([10**400], "logit", 1, "object"),
        (np.array([0.1, None], dtype=object), "logit", 1, "convert it to float"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), "logit", 1, "datetime64"),
        ([[1.0], [1.0, 2.0]], "logit", 1, "list"),
        (Tensor(), "logit", 1, "call detach"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), "logit", 1, "masked"),
    ],
)
def test_invalid_scores_are_refused(scores, scale, ndim, match):
    with pytest.raises(UncurseError, match=match):
        check_scores(scores, scale, ndim=ndim)


def test_valid_scores_are_returned():
    assert check_scores([0, 1], "probability").tolist() == [0.0, 1.0]
    assert check_scores([-900.0, 900.0], "logit").tolist() == [-900.0, 900.0]
    for dtype in (np.float32, np.float64):
        scores = np.array([0.1, 0.2], dtype=dtype)
        assert check_scores(scores, "logit") is scores
    for dtype in (np.int8, np.uint32, bool, np.float16, ">f8"):
        values = check_numbers(np.array([0, 1], dtype=dtype), "x")
        assert values.dtype == np.dtype(np.float64)
        assert values.tolist() == [0.0, 1.0]


def test_sums_of_finite_numbers_may_overflow():
    check_finite(np.full(3, 1e308), "x")
    check_finite(np.full(3, 3e38, dtype=np.float32), "x")


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        *(([0, bad, 1], rf"y\[1\] is {bad}") for bad in (2, -1, 0.5, np.nan, np.inf)),
        (["lost", "won", "lost"], "y == 'won'"),
        (np.array([0, 1, 1], dtype=object), "object"),
        ([1.0], r"shape \(1,\) but there are 3 rows"),
        ([[1, 0, 1]], r"shape \(1, 3\) but there are 3 rows"),
    ],
)
def test_invalid_labels_are_refused(labels, match):
    with pytest.raises(UncurseError, match=match):
        check_labels(labels, 3, name="y")


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_labels_of_any_numeric_dtype_can_be_summed(dtype):
    y = check_labels(np.array([0, 1, 1], dtype=dtype), 3)
    assert y.sum() == 2
    assert y.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([1.0, -0.5], r"-0\.5"),
        ([0.0, 0.0], "zero"),
        ([1e308, 1e308], r"1e\+308"),
        ([1e-310, 0.0], "1e-310"),
        ([1.0], "2 rows"),
    ],
)
def test_invalid_weights_are_refused(weights, match):
    with pytest.raises(UncurseError, match=rf"sample_weight.*{match}"):
        check_weights(weights, 2)


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_only_ratios_of_weights_matter(scale):
    weights = np.random.default_rng(0).exponential(size=1000)
    assert effective_rows(weights * scale) == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=1e-12)
    assert effective_rows(np.full(1000, scale)) == pytest.approx(1000, rel=1e-12)


# ---------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "segments", [[3, 1, 3, 2], np.array([3, 1, 3, 2], np.uint8), ["3", "1", "3", "2"], [3.0, 1, 3, 2]]
)
def test_segments_of_any_type_are_named_by_their_text(segments):
    names, rows = segment_rows(segments, 4)
    assert names == ["1", "2", "3"]
    assert [r.tolist() for r in rows] == [[1], [3], [0, 2]]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda v: np.array(v, object), pd.Series, pd.Categorical])
def test_names_are_encoded_in_their_order_whatever_holds_them(kind):
    names, codes = encode_names(kind(["b", "a", "b", "Ω"]), 4, "segments")
    assert (names, codes.tolist()) == (["a", "b", "Ω"], [1, 0, 1, 2])
    assert {type(name) for name in names} == {str}


@pytest.mark.parametrize("kind", [list, lambda v: np.array(v, object), pd.Series])
def test_a_whole_number_and_its_float_are_one_name_also_beside_text(kind):
    names, codes = encode_names(kind([1, 1.0, np.float32(1), "a", 1.5, "1"]), 6, "segments")
    assert (names, codes.tolist()) == (["1", "1.5", "a"], [0, 0, 0, 2, 1, 0])


@pytest.mark.parametrize("bad", [None, np.nan, pd.NA, pd.NaT, b"a", ("a", "b"), ["a"], {}])
def test_values_that_are_no_names_are_refused(bad):
    values = np.empty(2, object)
    values[:] = "a", bad
    for segments in (values, values.tolist(), pd.Series(values)):
        with pytest.raises(UncurseError, match="segments"):
            encode_names(segments, 2, "segments")


def test_a_missing_name_is_located():
    for segments in ([1.0, np.nan], np.array([1.0, np.nan]), ["a", np.nan]):
        with pytest.raises(UncurseError, match=r"segments\[1\] is nan"):
            encode_names(segments, 2, "segments")


@pytest.mark.parametrize(
    "values",
    [[["a"], ["b"]], [["a"], ["b", "c"]], "ab", ["a"], np.array([b"a", b"b"]), np.ma.array(["a", "b"], mask=[1, 0])],
)
def test_containers_that_hold_no_names_are_refused(values):
    with pytest.raises(UncurseError, match="segments"):
        encode_names(values, 2, "segments")
