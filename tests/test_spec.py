"""`LogSpec` and `TopK`: the description of a log."""

import dataclasses
import json

import numpy as np
import pytest

from uncurse import UncurseError
from uncurse.evidence import LogSpec, TopK
from uncurse.evidence.spec import check_negative_rate
from uncurse.links import LINKS

FULL = LogSpec(
    ("s0", "s1"),
    "probability",
    label="click",
    weight="w",
    group="country",
    top_k=TopK("auction", 3),
    link="probit",
    negative_rate=0.1,
)
OTHERS = {
    "scores": ("s0", "s2"),
    "scale": "logit",
    "label": "sale",
    "weight": None,
    "group": "city",
    "top_k": TopK("auction", 4),
    "link": "logistic",
    "negative_rate": None,
}


def test_defaults_describe_logits_without_other_columns():
    spec = LogSpec(("s0",))
    assert (spec.scale, spec.link, spec.label, spec.weight, spec.group, spec.top_k, spec.negative_rate) == (
        "logit",
        "logistic",
        *[None] * 5,
    )


@pytest.mark.parametrize("scores", [("a", "b"), ["a", "b"]])
def test_scores_are_a_tuple_of_names(scores):
    assert LogSpec(scores).scores == ("a", "b")
    assert LogSpec("served").scores == ("served",)


def test_descriptions_are_values():
    same = dataclasses.replace(FULL)
    assert same == FULL
    assert hash(same) == hash(FULL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        same.scale = "logit"


def test_columns_to_read_are_listed_once():
    assert FULL.numbers == ("s0", "s1", "click", "w")
    assert FULL.wanted == ("s0", "s1", "click", "w", "country")
    assert LogSpec(("s0", "s1")).numbers == LogSpec(("s0", "s1")).wanted == ("s0", "s1")
    assert LogSpec(("s0",), label="y", group="y").wanted == ("s0", "y")


def test_the_offset_is_the_logarithm_of_the_negative_rate():
    assert FULL.logit_offset == np.log(0.1)
    assert LogSpec(("s0",)).logit_offset == LogSpec(("s0",), negative_rate=1).logit_offset == 0.0


@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_logits_and_probabilities_have_logits(scale):
    assert LogSpec(("s0",), scale).has_logits
    assert not LogSpec(("s0",), "value", link="identity").has_logits


# ---------------------------------------------------------------------------- differences


@pytest.mark.parametrize("name", OTHERS)
def test_a_difference_names_the_field_and_both_values(name):
    other = dataclasses.replace(FULL, **{name: OTHERS[name]})
    text = FULL.difference(other)
    assert text.startswith(f"{name} is ")
    assert text.endswith(" in the other")
    assert other.difference(FULL) != text
    assert FULL.difference(other, name) == text
    others = [field for field in OTHERS if field != name]
    assert FULL.difference(other, *others) is None


def test_every_field_is_compared():
    assert set(OTHERS) == {field.name for field in dataclasses.fields(LogSpec)}
    assert FULL.difference(dataclasses.replace(FULL)) is None


def test_a_difference_is_described_in_words():
    assert LogSpec(("a", "b")).difference(LogSpec(("a",))) == "scores is a, b in one and a in the other"
    bare = dataclasses.replace(FULL, top_k=None)
    assert FULL.difference(bare) == "top_k is top 3 of each auction in one and None in the other"


# ---------------------------------------------------------------------------- plain data


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unknown", 1),
        ("top_k", 3),
        ("top_k", {"request": "auction", "k": 3, "more": 1}),
        ("top_k", {"k": 3}),
        ("top_k", {"request": "auction", "k": -1}),
        ("scores", None),
        ("scores", []),
        ("scores", [1, 2]),
        ("scale", None),
        ("link", None),
        ("label", 1),
        ("negative_rate", "0.1"),
    ],
)
def test_inconsistent_content_is_refused(key, value):
    with pytest.raises(UncurseError):
        LogSpec.from_dict({**FULL.to_dict(), key: value})


# ---------------------------------------------------------------------------- invalid descriptions


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ((), "no score column is named; name the served column first, then its replicas"),
        ([], "no score column is named"),
        (("a", "b", "a"), "score column 'a' is named twice; name a different column for each replica"),
        (("a", ""), "scores='' is not a column name; pass a non-empty string"),
        ("", "scores='' is not a column name"),
        (("a", 3), "scores=3 is not a column name"),
        (("a", None), "scores=None is not a column name"),
        (5, "scores=5 is not a column name"),
        (None, "scores=None is not a column name"),
        ({"a": 1}, "scores={'a': 1} is not a column name"),
        (([], "a"), r"scores=\[\] is not a column name"),
    ],
)
def test_invalid_score_columns_are_refused(scores, message):
    with pytest.raises(UncurseError, match=message):
        LogSpec(scores)


@pytest.mark.parametrize("role", ["label", "weight", "group"])
@pytest.mark.parametrize("name", ["", 3, True, ["a"], b"a"])
def test_other_columns_must_be_names(role, name):
    with pytest.raises(UncurseError, match=f"{role}=.* is not a column name; pass a non-empty string"):
        LogSpec(("a",), **{role: name})


@pytest.mark.parametrize("scale", ["odds", None, 3, ["logit"], "Logit"])
def test_an_unknown_scale_is_refused(scale):
    with pytest.raises(UncurseError, match=r"scale=.* is unknown; choose one of logit, probability, value"):
        LogSpec(("a",), scale)


@pytest.mark.parametrize("link", ["cloglog", None, 3, ["logistic"]])
def test_an_unknown_link_is_refused(link):
    with pytest.raises(UncurseError, match=r"link=.* is unknown; choose one of logistic, identity, log, probit"):
        LogSpec(("a",), link=link)


@pytest.mark.parametrize("link", LINKS)
def test_values_need_an_unbounded_link(link):
    if link in ("identity", "log"):
        assert LogSpec(("a",), "value", link=link).link == link
    else:
        with pytest.raises(UncurseError, match=f"scale='value' has no {link} score; use the identity or the log link"):
            LogSpec(("a",), "value", link=link)


@pytest.mark.parametrize("rate", [0, 0.0, -0.1, 1.5, np.nan, np.inf, "a", "0.1", True, [0.1], 1j])
def test_an_invalid_negative_rate_is_refused(rate):
    message = r"negative_rate=.*; pass the share of negatives kept in training, such as 0.1"
    with pytest.raises(UncurseError, match=message):
        LogSpec(("a",), negative_rate=rate)
    with pytest.raises(UncurseError, match=message):
        check_negative_rate(rate, "logit")


@pytest.mark.parametrize("rate", [1, 1.0, 0.5, 1e-9, np.float32(0.5), None])
def test_a_valid_negative_rate_is_accepted(rate):
    spec = LogSpec(("a",), negative_rate=rate)
    assert spec.negative_rate == rate
    assert LogSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_values_have_no_negative_rate():
    with pytest.raises(UncurseError, match="negative_rate applies to logits and probabilities; leave it out"):
        LogSpec(("a",), "value", link="identity", negative_rate=0.5)


@pytest.mark.parametrize("top_k", [3, "auction", ("auction", 3), {"request": "auction"}])
def test_a_selection_must_be_a_top_k(top_k):
    with pytest.raises(UncurseError, match=r"top_k=.*; pass a TopK, such as TopK\('request', 3\)"):
        LogSpec(("a",), top_k=top_k)


# ---------------------------------------------------------------------------- TopK


def test_a_selection_is_described_in_words():
    assert str(TopK("auction")) == "top 1 of each auction"
    assert str(TopK("request", 10)) == "top 10 of each request"
    assert type(TopK("request", np.int64(3)).k) is int


@pytest.mark.parametrize("k", [0, -1, 2.0, 1.5, True, "3", None, np.nan])
def test_an_invalid_number_of_rows_is_refused(k):
    with pytest.raises(UncurseError, match=r"top_k=.*; pass an integer, 1 or more"):
        TopK("request", k)


@pytest.mark.parametrize("request_column", ["", None, 3, ["a"]])
def test_an_invalid_request_column_is_refused(request_column):
    with pytest.raises(UncurseError, match=r"request=.* is not a column name; pass a non-empty string"):
        TopK(request_column)
