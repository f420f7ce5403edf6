"""`LogSpec` and `TopK`: the description of a log."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from uncurse import TopK, UncurseError
from uncurse.evidence import LogSpec

FULL = LogSpec(
    ("s0", "s1"), "probability", label="click", weight="w", segment="country", top_k=TopK("auction", 3), link="log",
    negative_sampling_rate=0.1, trials="shown",
)  # fmt: skip
OTHERS = {
    "scores": ("s0", "s2"),
    "scale": "logit",
    "label": "sale",
    "weight": None,
    "segment": "city",
    "top_k": TopK("auction", 4),
    "link": "logistic",
    "negative_sampling_rate": None,
    "trials": None,
    "teacher": "t",
}


def test_columns_of_numbers_are_listed():
    assert FULL.numbers == ("s0", "s1", "click", "shown", "w")
    assert LogSpec("s0").numbers == LogSpec(["s0"]).numbers == ("s0",)


def test_the_offset_is_the_logarithm_of_the_negative_sampling_rate():
    assert FULL.logit_offset == np.log(0.1)
    assert LogSpec(("s0",)).logit_offset == LogSpec(("s0",), negative_sampling_rate=1).logit_offset == 0.0


@pytest.mark.parametrize("name", [field.name for field in fields(LogSpec)])
def test_a_difference_names_the_field_and_both_values(name):
    other = replace(FULL, **{name: OTHERS[name]})
    assert FULL.difference(other).startswith(f"{name} is ")
    assert FULL.difference(other) != other.difference(FULL)
    assert FULL.difference(replace(FULL)) is None


@pytest.mark.parametrize("spec", [FULL, LogSpec(("s0",)), LogSpec(("s0",), negative_sampling_rate=np.float32(0.5))])
def test_a_description_survives_json(spec):
    assert LogSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unknown", 1),
        ("top_k", 3),
        ("top_k", {"k": 3}),
        ("top_k", {"request": "auction", "k": -1}),
        ("scores", None),
        ("scale", None),
        ("negative_sampling_rate", "0.1"),
    ],
)
def test_inconsistent_content_is_refused(key, value):
    with pytest.raises(UncurseError):
        LogSpec.from_dict({**FULL.to_dict(), key: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": ()}, "no score column"),
        ({"scores": ("a", "b", "a")}, "'a' is named twice"),
        ({"scores": ("a", "")}, "scores=''"),
        ({"scores": ("a", 3)}, "scores=3"),
        ({"scores": None}, "scores=None"),
        ({"scores": ([], "a")}, r"scores=\[\]"),
        ({"label": ""}, "label=''"),
        ({"weight": 3}, "weight=3"),
        ({"segment": ["a"]}, r"segment=\['a'\]"),
        ({"label": "x", "weight": "x"}, "'x' is named twice"),
        ({"label": "a"}, "'a' is named twice"),
        ({"weight": "a"}, "'a' is named twice"),
        ({"scale": "odds"}, "scale='odds'"),
        ({"scale": None}, "scale=None"),
        ({"link": "cloglog"}, "link='cloglog'"),
        ({"link": ["logistic"]}, "link="),
        ({"scale": "value"}, "scale='value'"),
        ({"scale": "value", "link": "identity", "negative_sampling_rate": 0.5}, "negative_sampling_rate"),
        *(
            ({"negative_sampling_rate": rate}, "negative_sampling_rate=")
            for rate in (0, -0.1, 1.5, np.nan, "0.1", True, 1j)
        ),
        ({"top_k": 3}, "top_k=3"),
        ({"top_k": ("auction", 3)}, "top_k="),
    ],
)
def test_invalid_descriptions_are_refused(options, message):
    with pytest.raises(UncurseError, match=message):
        LogSpec(**{"scores": ("a",), **options})


@pytest.mark.parametrize(
    ("request_column", "k", "name"),
    [
        *(("auction", k, "top_k") for k in (0, -1, 1.5, True, "3", None)),
        *((name, 1, "request") for name in ("", None, 3)),
    ],
)
def test_invalid_selections_are_refused(request_column, k, name):
    with pytest.raises(UncurseError, match=f"{name}="):
        TopK(request_column, k)
