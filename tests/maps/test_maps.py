import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import interp1d
from scipy.special import expit

import uncurse
from uncurse import Affine, Curve, Segmented, Steps, UncurseError
from uncurse.links import logistic
from uncurse.maps.combined import from_dict

GRID = np.linspace(-12, 12, 4001)
LARGEST = np.finfo(np.float64).max
KNOTS = ((-2.0, 0.0, 1.5), (-1.5, -1.0, 2.0))
STEPS = Steps((-1.0, 0.5), (-3.0, -1.0, 2.0), 1e-6, 0.1)
EXAMPLES = {
    "affine": Affine(0.7, -0.3),
    "affine of probabilities": Affine(0.7, -0.3, scale="probability"),
    "affine in identity": Affine(0.7, 0.02, "identity", "probability"),
    "affine of values": Affine(0.7, 0.02, "log", "value"),
    "curve": Curve(*KNOTS, 0.5, 1.2),
    "one knot": Curve((0.1,), (0.2,), 0.5, 1.2),
    "steps": STEPS,
    "one step": Steps((), (0.3,)),
    "segmented": Segmented(Affine(0.7, -0.3), {"a": STEPS, "ü": Curve(*KNOTS, 0.5, 1.2)}),
}


def one_map(score_map):
    """The map of rows without a segment of their own."""
    return score_map.default if isinstance(score_map, Segmented) else score_map


def scores_for(score_map):
    return {"probability": logistic(GRID), "value": np.exp(GRID), "logit": GRID}[score_map.scale]


# ---------------------------------------------------------------------------- values of each map


def test_an_affine_map_is_a_line_in_link_space():
    np.testing.assert_allclose(Affine(0.7, -0.3)(GRID), expit(0.7 * GRID - 0.3), rtol=1e-14)


@pytest.mark.parametrize("link", ["logistic", "identity", "log"])
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_the_identity_map_returns_the_plain_prediction_on_every_link_and_scale(link, scale):
    scores = GRID if scale == "logit" else expit(GRID)
    np.testing.assert_allclose(Affine(1.0, 0.0, link, scale)(scores), expit(GRID), rtol=1e-9)


def test_a_curve_interpolates_and_extrapolates_with_its_end_slopes():
    x, y = KNOTS
    l = np.linspace(-2, 1.5, 101)
    curve = EXAMPLES["curve"]
    np.testing.assert_allclose(curve.transform(l), interp1d(x, y)(l), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(curve.transform(np.array([-5.0, 4.0])), [-1.5 - 0.5 * 3, 2 + 1.2 * 2.5])


def test_a_score_on_an_edge_belongs_to_the_step_above():
    np.testing.assert_array_equal(
        Steps((0.0, 1.0), (1.0, 2.0, 3.0)).transform(np.array([-1e-300, 0.0, 1.0])), [1, 2, 3]
    )


def test_ties_inside_a_step_are_broken_by_the_score():
    inside = np.linspace(-0.99, 0.49, 1000)
    values = STEPS.transform(inside)
    assert (np.diff(values) > 0).all()
    assert np.abs(values + 1.0).max() < 1.1e-6


def test_a_name_of_a_segment_that_is_half_a_character_is_refused():
    with pytest.raises(UncurseError, match="rename the segment"):
        Segmented(Affine(1.0, 0.0), {"\ud800": Affine(1.0, 0.0)})


def test_missing_segments_are_refused():
    with pytest.raises(UncurseError, match=r"segments\[1\] is None"):
        Segmented(Affine(1.0, 0.0), {"a": Affine(1.0, 1.0)})([0.0, 0.0], np.array(["a", None], dtype=object))


# ---------------------------------------------------------------------------- calling


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_single_number_gives_a_single_number(name):
    score_map = one_map(EXAMPLES[name])
    values = scores_for(score_map)
    single = score_map(float(values[2500]))
    assert np.ndim(single) == 0
    assert single == score_map(values)[2500]


@pytest.mark.parametrize("name", EXAMPLES)
def test_predictions_of_a_long_column_do_not_depend_on_chunks(name):
    score_map = one_map(EXAMPLES[name])
    values = scores_for(score_map)
    long = np.tile(values, 40)  # more than two chunks of 2^16
    np.testing.assert_array_equal(score_map(long), np.tile(score_map(values), 40))


@pytest.mark.parametrize("name", [name for name, m in EXAMPLES.items() if m.scale != "value"])
def test_logits_give_the_prediction_of_their_score_on_any_scale(name):
    score_map = one_map(EXAMPLES[name])
    expected = score_map(scores_for(score_map))
    # Not next to an edge, which a logit that was converted twice may cross.
    away = np.abs(GRID[:, None] - [-1.0, 0.5]).min(axis=1) > 0.01
    np.testing.assert_allclose(score_map.at_logits(GRID)[away], expected[away], rtol=1e-9)


# Not the steps: an edge may lie between a float64 and the float32 next to it.
@pytest.mark.parametrize("name", [name for name, m in EXAMPLES.items() if isinstance(m, Affine | Curve)])
def test_float32_and_float64_agree(name):
    score_map = EXAMPLES[name]
    values = scores_for(score_map)[np.abs(GRID) < 8]
    np.testing.assert_allclose(score_map(values.astype(np.float32)), score_map(values), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name, m in EXAMPLES.items() if m.scale != "value"])
def test_predictions_keep_the_order_and_stay_between_0_and_1(name):
    score_map = one_map(EXAMPLES[name])
    ends = [0.0, 1.0] if score_map.scale == "probability" else [-1e3, 1e3, 1e300]
    p = score_map(np.sort(np.concatenate([scores_for(score_map), ends])))
    assert p.dtype == np.float64
    assert (p > 0).all()
    assert (p < 1).all()
    assert (np.diff(p) >= 0).all()


@pytest.mark.parametrize("center", [1e-3, 0.03, 0.9])
def test_adjacent_float32_probabilities_stay_distinct_and_in_order(center):
    p = np.float32(center) + np.arange(2000, dtype=np.float32) * np.spacing(np.float32(center))
    assert (np.diff(p) > 0).all()
    assert (np.diff(Affine(0.9, -0.1, scale="probability")(p)) > 0).all()


# ---------------------------------------------------------------------------- numbers of extreme size

finite = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-1e290, 1e290])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(finite, min_size=1, max_size=5, unique=True),
    st.lists(finite, min_size=6, max_size=6),
    st.floats(0, LARGEST),
    st.sampled_from([("logistic", "logit"), ("identity", "value"), ("log", "value")]),
    st.lists(finite, min_size=1, max_size=10),
)
def test_a_map_is_refused_or_predicts_finite_numbers(x, y, slope, space, scores):
    x, y, scores = sorted(x), sorted(y), [*scores, -LARGEST, LARGEST]
    for make in (
        lambda: Affine(slope, y[0], *space),
        lambda: Curve(x, y[: len(x)], slope, slope / 3, *space),
        lambda: Steps(x, y[: len(x) + 1], slope, x[0], *space),
    ):
        try:
            score_map = make()
        except UncurseError:
            continue
        assert np.isfinite(score_map(scores)).all()
        assert np.isfinite(score_map.transform(scores)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curve((-1e308, 1e308), (-1e308, 1e308), 1.0, 1.0), r"x\[0\] is -1e\+308"),
        (lambda: Curve((0.0, 1.0), (0.0, 1e308), 1.0, 1.0), r"y\[1\] is 1e\+308"),
        (lambda: Curve((0.0, 5e-324), (0.0, 1.0), 1.0, 1.0), r"the slope after x\[0\] of this curve is too large"),
        (lambda: Steps((1e300,), (0.0, 1.0)), r"edges\[0\] is 1e\+300"),
        (lambda: Steps((1.0,), (0.0, 1e300)), r"values\[1\] is 1e\+300"),
        (lambda: Steps((), (0.0,), 1.0, -1e300), r"center\[0\] is -1e\+300"),
    ],
)
def test_numbers_that_would_overflow_are_refused(make, message):
    with pytest.raises(UncurseError, match=message):
        make()


# ---------------------------------------------------------------------------- documents


def test_numpy_numbers_are_stored_as_plain_numbers():
    for score_map in (
        Affine(np.float32(0.5), np.int64(0)),
        Curve(np.array([0.0, 1.0], np.float32), [np.float64(0.0), 1], np.float32(1.0), 1),
        Steps(np.arange(2), np.arange(3.0), np.float32(0.0), np.int8(1)),
        Steps((0.0,), (2.0, 1.0), monotone=False),
    ):
        assert from_dict(json.loads(json.dumps(score_map.to_dict()))) == score_map


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"kind": "cells", "schema_version": 2}')
    with pytest.raises(UncurseError, match=r"x\.json is of kind 'cells'; pass a map written by `save`"):
        uncurse.load(tmp_path / "x.json")


AFFINE = {"kind": "affine", "slope": 1.0, "intercept": 0.0}


def test_a_map_of_a_later_version_is_refused_also_inside_another_map(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**AFFINE, "schema_version": 3}))
    with pytest.raises(UncurseError, match=rf"x\.json has schema_version 3, and uncurse {uncurse.__version__} reads 2"):
        uncurse.load(path)
    for name in ("schema_version", "checksum"):
        maps = {"kind": "segmented", "schema_version": 2, "default": AFFINE, "maps": {"a": {**AFFINE, name: None}}}
        path.write_text(json.dumps(maps))
        with pytest.raises(UncurseError, match=f"x\\.json is not a complete affine map .*{name}"):
            uncurse.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "affine", "slope": 1.0}, r"map is not a complete affine map \(.*intercept.*\); write it again"),
        ({**AFFINE, "bend": 2}, "not a complete affine map .*bend"),
        ({**AFFINE, "slope": "1"}, "slope is '1'; pass a finite number"),
        ({**AFFINE, "slope": True}, "slope is True; pass a finite number"),
        ({**AFFINE, "link": ["logistic"]}, "is unknown"),
        ({"kind": "curve", "x": None, "y": [1.0], "left": 1.0, "right": 1.0}, "x must be an array of numbers"),
        ({"kind": "curve", "x": [1.0], "y": [[1.0]], "left": 1.0, "right": 1.0}, "y has shape"),
        ({"kind": "steps", "edges": []}, "not a complete steps map"),
        ({"kind": "steps", "edges": "", "values": [1.0]}, "edges must be an array of numbers"),
        ({"kind": "steps", "edges": [], "values": [1.0], "monotone": 1}, "monotone=1; pass True or False"),
        ({"kind": "segmented", "maps": {}}, r"not a complete segmented map .*default"),
        ({"kind": "segmented", "default": AFFINE, "maps": []}, "not a complete segmented map"),
        ({"kind": "tree"}, "kind='tree' is unknown;"),
        ({"kind": ["affine"]}, "is unknown"),
        (None, "map holds None where a map should be"),
    ],
)
def test_incomplete_or_unknown_maps_are_refused(content, message):
    with pytest.raises(UncurseError, match=message):
        from_dict(content)


GROUPED, PROBABILITY = EXAMPLES["segmented"], EXAMPLES["affine of probabilities"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Affine(-0.5, 0.0), r"slope is -0\.5; a map must not reverse the order of scores, so pass 0 or more"),
        (lambda: Affine(1.0, 0.0, "odds"), "link='odds' is unknown"),
        (lambda: Affine(1.0, 0.0, scale="odds"), "scale='odds' is unknown"),
        (lambda: Affine(1.0, 0.0, scale="value"), "scale='value' has no logistic score; use the identity or the log"),
        (lambda: Curve((), (), 1.0, 1.0), "as many x as y and at least one; got 0 and 0"),
        (lambda: Curve((0.0,), (0.0, 1.0), 1.0, 1.0), "as many x as y and at least one; got 1 and 2"),
        (lambda: Curve((0.0, 0.0), (0.0, 1.0), 1.0, 1.0), "x of a curve must increase strictly; merge knots"),
        (lambda: Curve((0.0, 1.0), (1.0, 0.0), 1.0, 1.0), "y of this curve decrease somewhere; a map must not reverse"),
        (lambda: Curve((0.0, 1.0), (0.0, 1.0), -1.0, 1.0), "left is -1; a map must not reverse"),
        (lambda: Curve(3.0, (0.0,), 1.0, 1.0), "x has shape"),
        (lambda: Steps((0.0,), (1.0,)), "1 edges need 2 values; got 1"),
        (lambda: Steps((0.0, 0.0), (1.0, 2.0, 3.0)), "edges of steps must increase strictly; merge edges"),
        (lambda: Steps((0.0,), (2.0, 1.0)), r"values of these steps decrease somewhere; .* or pass monotone=False"),
        (lambda: Steps((0.0,), (2.0, 1.0), 1e-6, monotone=False), "slope is 1e-06 and monotone=False; a tie-break"),
        (lambda: Segmented(STEPS, {"a": PROBABILITY}), "the map of segment 'a' takes scores on the probability scale"),
        (lambda: Segmented(STEPS, {"a": GROUPED}), "the map of segment 'a' is of type Segmented; pass an Affine"),
        (lambda: Segmented(GROUPED, {}), "the default map is of type Segmented"),
        (lambda: Segmented(None, {}), "the default map is of type NoneType"),
        (
            lambda: Segmented(STEPS, {1: STEPS}),
            r"maps is {1: .*; pass a mapping from names of segments \(text\) to maps",
        ),
        (lambda: Segmented(STEPS, [STEPS]), "pass a mapping from names of segments"),
        (lambda: GROUPED([0.0, 1.0], ["a"]), r"segments has shape \(1,\) but there are 2 rows"),
        (lambda: GROUPED([0.0, 1.0], [["a"], ["b", "c"]]), "segments must be a list of names"),
        (lambda: EXAMPLES["affine"]([0.0, np.nan]), r"scores\[1\] is nan"),
        (lambda: EXAMPLES["affine"]([[0.0]]), r"scores has shape \(1, 1\); pass one column"),
        (lambda: EXAMPLES["affine"]([]), "scores is empty"),
        (lambda: EXAMPLES["affine"](["a"]), "scores must be an array of numbers"),
        (lambda: EXAMPLES["affine"].transform("a"), "link_scores must be an array of numbers"),
        (lambda: PROBABILITY([2.0]), "scores holds 2, which is not a probability"),
    ],
)
def test_invalid_maps_and_scores_are_refused(make, message):
    with pytest.raises(UncurseError, match=message):
        make()


def test_steps_may_decrease_if_monotone_is_false():
    falling = Steps((0.0,), (2.0, 1.0), monotone=False)
    np.testing.assert_array_equal(falling.transform(np.array([-1.0, 1.0])), [2.0, 1.0])


def test_the_repr_of_many_numbers_is_short():
    many = range(900)
    assert len(repr(Curve(many, many, 1.0, 0.5))) < 200
    assert len(repr(Segmented(Affine(1.0, 0.0), {f"g{i}": Affine(1.0, i) for i in many}))) < 700


def test_the_error_of_a_line_that_replaces_a_curve_is_part_of_it():
    line = Affine(0.8, -0.3, max_error=0.01)
    assert from_dict(line.to_dict()) == line
    assert "max_error" not in Affine(0.8, -0.3).to_dict()
