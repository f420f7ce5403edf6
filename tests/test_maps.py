import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import interp1d
from scipy.special import expit

import uncurse
from uncurse import Affine, Cells, Chain, Curve, Grouped, Steps, UncurseError
from uncurse.links import LINKS, get_link, logistic, logit
from uncurse.maps import ScoreMap, compose, from_dict, load
from uncurse.maps.shapes import logit_knots

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
    "one knot": Curve((0.1,), (0.2,), 0.5, 1.2, "probit"),
    "steps": STEPS,
    "one step": Steps((), (0.3,)),
    "chain": Chain((Affine(1.0, -2.3), STEPS, Affine(0.8, 0.1))),
    "chain of links": Chain((STEPS, Affine(0.8, 0.01, "identity"))),
    "grouped": Grouped(Affine(0.7, -0.3), {"a": STEPS, "ü": Chain((STEPS, Affine(0.8, 0.1)))}),
}


def one_map(score_map):
    """The map of rows without a group of their own."""
    return score_map.default if isinstance(score_map, Grouped) else score_map


def scores_for(score_map):
    return {"probability": logistic(GRID), "value": np.exp(GRID), "logit": GRID}[score_map.scale]


# ---------------------------------------------------------------------------- values of each map


def test_an_affine_map_is_a_line_in_link_space():
    np.testing.assert_allclose(Affine(0.7, -0.3)(GRID), expit(0.7 * GRID - 0.3), rtol=1e-14)


@pytest.mark.parametrize("link", LINKS)
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


def test_a_chain_applies_its_maps_in_order():
    first, second = Affine(0.7, -0.3), EXAMPLES["curve"]
    np.testing.assert_allclose(Chain((first, second)).transform(GRID), second.transform(first.transform(GRID)))


def test_a_chain_passes_predictions_between_maps_of_different_links():
    p = logistic(STEPS.transform(GRID))
    chain = EXAMPLES["chain of links"]
    np.testing.assert_allclose(chain(GRID), 0.8 * p + 0.01, rtol=1e-12)
    np.testing.assert_allclose(chain.transform(GRID), logit(0.8 * p + 0.01), rtol=1e-9, atol=1e-12)


def test_a_chain_in_a_chain_is_replaced_by_its_maps():
    inner = Chain((STEPS, Affine(0.8, 0.01, "identity")))
    assert Chain((inner, Affine(0.5, 0.1))) == Chain((*inner.maps, Affine(0.5, 0.1)))


def test_compose_merges_adjacent_lines():
    score_map = compose(Affine(1.0, -2.0), Affine(0.5, 0.3), Affine(3.0, 0.1), scale="probability")
    assert isinstance(score_map, Affine)
    assert score_map.scale == "probability"
    np.testing.assert_allclose((score_map.slope, score_map.intercept), (1.5, 3 * (0.5 * -2 + 0.3) + 0.1))


@pytest.mark.parametrize(
    "maps",
    [
        (Affine(1.0, -2.0), STEPS, Affine(0.5, 0.3)),
        (STEPS, Affine(0.5, 0.3), Affine(2.0, 0.1)),
        (Affine(0.5, 0.3), Affine(0.9, 0.01, "identity")),
        (Affine(0.5, 0.3), Affine(2.0, 0.0), EXAMPLES["curve"], Affine(0.9, 0.0), Affine(0.9, 0.1)),
        (EXAMPLES["chain of links"],),
        (Affine(0.5, 0.3), EXAMPLES["chain"], EXAMPLES["chain of links"], Affine(0.5, 0.3)),
    ],
)
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_compose_applies_the_maps_in_order(maps, scale):
    expected, link = GRID, "logistic"
    for score_map in maps:
        for step in getattr(score_map, "maps", [score_map]):
            if step.link != link:
                expected, link = get_link(step.link).inverse(get_link(link).phi(expected)), step.link
            expected = step.transform(expected)
    composed = compose(*maps, scale=scale)
    assert composed.scale == scale
    scores = GRID if scale == "logit" else logistic(GRID)
    # Not next to an edge, which a score that was converted twice may cross.
    away = np.abs(GRID[:, None] - [-1.0, 0.5, 0.7, 0.4, -2.6]).min(axis=1) > 0.01
    np.testing.assert_allclose(composed(scores)[away], get_link(link).phi(expected)[away], rtol=1e-9)


def test_compose_keeps_lines_separate_whose_product_overflows():
    composed = compose(Affine(1e200, 0.0), Affine(1e200, 0.0), scale="logit")
    assert isinstance(composed, Chain)
    np.testing.assert_array_equal(composed([-1.0, 0.0, 1.0]), Affine(1e308, 0.0)([-1.0, 0.0, 1.0]))


def test_groups_use_their_own_map_and_unseen_groups_the_default():
    grouped = EXAMPLES["grouped"]
    groups = np.array(["a", "ü", "never seen", "a"] * 1000 + ["a"])
    predictions = grouped(GRID, groups)
    for name in ("a", "ü"):
        np.testing.assert_array_equal(predictions[groups == name], grouped.maps[name](GRID[groups == name]))
    unseen = groups == "never seen"
    np.testing.assert_array_equal(predictions[unseen], grouped.default(GRID[unseen]))
    for call in (grouped, grouped.at_logits):
        with pytest.raises(UncurseError, match="has a map for each group; pass groups="):
            call(GRID)
    np.testing.assert_array_equal(grouped.transform(GRID), grouped.default.transform(GRID))


@pytest.mark.parametrize("last", [Affine(0.3, 0.1), STEPS])
def test_positions_of_groups_select_the_map(last):
    grouped = Grouped(Affine(0.7, -0.3), {"a": Affine(2.0, 0.5), "b": last})
    numbers = np.tile([0, 1, -1], 1334)[: len(GRID)]
    names = np.array(["a", "b", "other"])[numbers]
    np.testing.assert_array_equal(grouped.by_number(GRID, numbers), grouped(GRID, names))


def test_missing_groups_are_refused():
    with pytest.raises(UncurseError, match=r"groups\[1\] is None; fill missing values, for example with 'unknown'"):
        Grouped(Affine(1.0, 0.0), {"a": Affine(1.0, 1.0)})([0.0, 0.0], np.array(["a", None], dtype=object))


def test_logit_knots_are_equally_spaced_in_arcsin_root_p():
    angle = np.arcsin(np.sqrt(expit(logit_knots(64))))
    np.testing.assert_allclose(np.diff(angle), np.pi / 2 / 64, rtol=1e-9)


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


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_map_does_not_change_its_input(name):
    score_map = one_map(EXAMPLES[name])
    values = scores_for(score_map)
    before = values.copy()
    score_map(values)
    score_map.transform(values)
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("name", [name for name, m in EXAMPLES.items() if m.scale != "value"])
def test_logits_give_the_prediction_of_their_score_on_any_scale(name):
    score_map = one_map(EXAMPLES[name])
    expected = score_map(scores_for(score_map))
    # Not next to an edge, which a logit that was converted twice may cross.
    away = np.abs(GRID[:, None] - [-1.0, 0.5, 1.3, 2.8]).min(axis=1) > 0.01
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

EXTREME_SCORES = np.array([-LARGEST, -1e300, -1e290, -1.0, 0.0, 5e-324, 1.0, 1e290, 1e300, LARGEST])
EXTREME_MAPS = {
    "steep line": Affine(1e308, -1e308),
    "flat line": Affine(0.0, 1e308),
    "line of values": Affine(1e308, 1e308, "identity", "value"),
    "line in log": Affine(1e308, 0.0, "log", "value"),
    "wide curve": Curve((-1e290, 1e290), (-1e290, 1e290), 1.0, 1.0),
    "wide curve with flat ends": Curve((-1e290, 1e290), (-1e290, 1e290), 0.0, 0.0, "identity", "value"),
    "steep curve": Curve((0.0, 1e-10), (-1e290, 1e290), 1e308, 1e308, "identity", "value"),
    "one knot": Curve((-1e290,), (1e290,), 0.0, 1e-308, "identity", "value"),
    "steps": Steps((-1e290, 1e290), (-1e290, 0.0, 1e290), 1e308, -1e290, "identity", "value"),
    "chain": Chain((Affine(1e308, 0.0), Affine(0.0, 0.3), Affine(1e308, 1.0))),
    "chain of links": Chain((Affine(1e308, 0.0, "log", "value"), Affine(0.0, 1.0, "identity", "value"))),
    "groups": Grouped(Affine(1e308, 0.0), {"a": Affine(0.0, 1e308)}),
}


@pytest.mark.parametrize("name", EXTREME_MAPS)
def test_predictions_are_finite_and_in_order_for_numbers_of_extreme_size(name):
    score_map = EXTREME_MAPS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictions, transformed = one_map(score_map)(EXTREME_SCORES), score_map.transform(EXTREME_SCORES)
    assert np.isfinite(predictions).all()
    assert np.isfinite(transformed).all()
    assert (np.diff(predictions) >= 0).all()
    if name == "groups":
        assert np.isfinite(score_map(EXTREME_SCORES, ["a", "b"] * 5)).all()


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(finite, min_size=1, max_size=5, unique=True),
    st.lists(finite, min_size=6, max_size=6),
    st.floats(0, LARGEST),
    st.sampled_from([("logistic", "logit"), ("identity", "value"), ("log", "value"), ("probit", "logit")]),
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curve((-1e308, 1e308), (-1e308, 1e308), 1.0, 1.0), r"x\[0\] is -1e\+308; .* within ±1e290"),
        (lambda: Curve((0.0, 1.0), (0.0, 1e308), 1.0, 1.0), r"y\[1\] is 1e\+308; "),
        (lambda: Curve((0.0, 5e-324), (0.0, 1.0), 1.0, 1.0), r"the slope after x\[0\] of this curve is too large"),
        (lambda: Steps((1e300,), (0.0, 1.0)), r"edges\[0\] is 1e\+300; "),
        (lambda: Steps((1.0,), (0.0, 1e300)), r"values\[1\] is 1e\+300; "),
        (lambda: Steps((), (0.0,), 1.0, -1e300), r"center\[0\] is -1e\+300; "),
        (lambda: Affine(10**400, 0.0), "slope is 1000.*; pass a finite number"),
        (lambda: Affine(10**5000, 0.0), "slope is too large; pass a finite number"),
        (lambda: Curve((0, 10**400), (0, 1), 1, 1), r"x\[1\] is 1000.*; pass a finite number"),
    ],
)
def test_numbers_that_would_overflow_are_refused(make, message):
    with pytest.raises(UncurseError, match=message):
        make()


# ---------------------------------------------------------------------------- documents


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_saved_map_predicts_exactly_the_same(name, tmp_path):
    score_map = EXAMPLES[name]
    score_map.save(tmp_path / "map.json")
    back = uncurse.load(tmp_path / "map.json")
    values = scores_for(score_map)
    assert back == score_map
    np.testing.assert_array_equal(one_map(back)(values), one_map(score_map)(values))
    if isinstance(score_map, Grouped):
        groups = np.array(["a", "ü", "b"] * 1333 + ["a", "b"])
        np.testing.assert_array_equal(back(values, groups), score_map(values, groups))
    assert back.to_json() == score_map.to_json()
    assert json.loads(score_map.to_json())["schema_version"] == 2


def test_numpy_numbers_are_stored_as_plain_numbers():
    for score_map in (
        Affine(np.float32(0.5), np.int64(0)),
        Curve(np.array([0.0, 1.0], np.float32), [np.float64(0.0), 1], np.float32(1.0), 1),
        Steps(np.arange(2), np.arange(3.0), np.float32(0.0), np.int8(1)),
    ):
        assert from_dict(json.loads(score_map.to_json())) == score_map


def test_decreasing_steps_make_a_file_round_trip(tmp_path):
    falling = Steps((0.0,), (2.0, 1.0), monotone=False)
    falling.save(tmp_path / "map.json")
    assert load(tmp_path / "map.json") == falling


def test_a_record_that_is_not_an_object_is_refused(tmp_path):
    path = tmp_path / "map.json"
    with pytest.raises(UncurseError, match="record is of type list; pass a mapping of plain data"):
        EXAMPLES["affine"].save(path, [1])
    with pytest.raises(UncurseError, match=r"cannot write this affine as JSON: .*; pass plain, finite data"):
        EXAMPLES["affine"].save(path, {"lambda": np.nan})


def test_a_truncated_map_file_is_refused(tmp_path):
    path = tmp_path / "map.json"
    EXAMPLES["grouped"].save(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UncurseError, match=r"map\.json is not valid JSON .*truncated"):
        load(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"kind": "cells", "schema_version": 2}')
    with pytest.raises(UncurseError, match=r"x\.json is of kind 'cells'; pass a map written by `save`"):
        load(tmp_path / "x.json")


@pytest.mark.parametrize("path", [None, 5.0, b"\0", "\0"])
def test_a_path_that_is_not_a_path_is_refused(path):
    with pytest.raises(UncurseError, match=r"cannot read .*; pass the path of a file"):
        load(path)


AFFINE = {"kind": "affine", "slope": 1.0, "intercept": 0.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "affine", "slope": 1.0}, r"map is not a complete affine map \(.*intercept.*\); write it again"),
        ({**AFFINE, "bend": 2}, "not a complete affine map .*bend"),
        ({**AFFINE, "slope": "1"}, "slope is '1'; pass a finite number"),
        ({**AFFINE, "slope": True}, "slope is True; pass a finite number"),
        ({**AFFINE, "slope": None}, "slope is None; pass a finite number"),
        ({**AFFINE, "link": ["logistic"]}, "is unknown"),
        ({"kind": "curve", "x": None, "y": [1.0], "left": 1.0, "right": 1.0}, "x is of type NoneType; pass a list"),
        ({"kind": "curve", "x": "123", "y": [1, 2, 3], "left": 1.0, "right": 1.0}, "x is of type str; pass a list"),
        ({"kind": "curve", "x": {"1": 2}, "y": [1.0], "left": 1.0, "right": 1.0}, "x is of type dict; pass a list"),
        ({"kind": "curve", "x": [1.0], "y": ["a"], "left": 1.0, "right": 1.0}, r"y\[0\] is 'a'; pass a finite number"),
        ({"kind": "curve", "x": [1.0], "y": [[1.0]], "left": 1.0, "right": 1.0}, r"y\[0\] is \[1\.0\]; pass a finite"),
        ({"kind": "steps", "edges": []}, "not a complete steps map"),
        ({"kind": "steps", "edges": "", "values": [1.0]}, "edges is of type str"),
        ({"kind": "steps", "edges": [], "values": ["a"]}, r"values\[0\] is 'a'"),
        ({"kind": "steps", "edges": [], "values": [1.0], "monotone": 1}, "monotone=1; pass True or False"),
        ({"kind": "chain"}, "not a complete chain map"),
        ({"kind": "chain", "maps": ["affine"]}, "map holds 'affine' where a map should be"),
        ({"kind": "chain", "maps": [AFFINE], "scale": "logit"}, "not a complete chain map .*scale"),
        ({"kind": "grouped", "maps": {}}, r"not a complete grouped map .*default"),
        ({"kind": "grouped", "default": AFFINE, "maps": []}, "not a complete grouped map"),
        ({"kind": "grouped", "default": AFFINE, "maps": {}, "whole": AFFINE}, "not a complete grouped map .*whole"),
        ({"kind": "tree"}, "kind='tree' is unknown; choose one of affine, curve, steps, chain, grouped"),
        ({"kind": ["affine"]}, "is unknown"),
        ({}, "kind=None is unknown"),
        (None, "map holds None where a map should be"),
    ],
)
def test_incomplete_or_unknown_maps_are_refused(content, message):
    with pytest.raises(UncurseError, match=message):
        from_dict(content)


def test_a_map_nested_too_deeply_is_refused():
    content = AFFINE
    for _ in range(3000):
        content = {"kind": "chain", "maps": [content]}
    with pytest.raises(UncurseError, match="not a complete chain map"):
        from_dict(content)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "1", None, True, 1j, [1.0]])
@pytest.mark.parametrize(
    "make",
    [
        lambda bad: Affine(bad, 0.0),
        lambda bad: Affine(1.0, bad),
        lambda bad: Curve((0.0, bad), (0.0, 1.0), 1.0, 1.0),
        lambda bad: Curve((0.0, 1.0), (0.0, bad), 1.0, 1.0),
        lambda bad: Curve((0.0, 1.0), (0.0, 1.0), bad, 1.0),
        lambda bad: Curve((0.0, 1.0), (0.0, 1.0), 1.0, bad),
        lambda bad: Steps((bad,), (0.0, 1.0)),
        lambda bad: Steps((0.0,), (0.0, bad)),
        lambda bad: Steps((0.0,), (0.0, 1.0), bad),
        lambda bad: Steps((0.0,), (0.0, 1.0), 1e-6, bad),
    ],
    ids=[
        "slope", "intercept", "curve x", "curve y", "left", "right", "edge", "value", "step slope", "center"
    ],
)  # fmt: skip
def test_a_map_holds_only_finite_numbers(make, bad):
    with pytest.raises(UncurseError, match="; pass a finite number"):
        make(bad)


GROUPED, PROBABILITY = EXAMPLES["grouped"], EXAMPLES["affine of probabilities"]


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
        (lambda: Curve((0.0, 1.0), (0.0, 1.0), 1.0, -1.0), "right is -1; a map must not reverse"),
        (lambda: Curve((0.0,), (0.0,), 1.0, 1.0, "odds"), "link='odds' is unknown"),
        (lambda: Curve(3.0, (0.0,), 1.0, 1.0), "x is of type float; pass a list of numbers"),
        (lambda: Steps((0.0,), (1.0,)), "1 edges need 2 values; got 1"),
        (lambda: Steps((0.0, 0.0), (1.0, 2.0, 3.0)), "edges of steps must increase strictly; merge edges"),
        (lambda: Steps((0.0,), (1.0, 2.0), -1.0), "slope is -1; a map must not reverse"),
        (lambda: Steps((0.0,), (2.0, 1.0)), r"values of these steps decrease somewhere; .* or pass monotone=False"),
        (lambda: Steps((0.0,), (2.0, 1.0), 1e-6), "values of these steps decrease somewhere"),
        (lambda: Steps((0.0,), (2.0, 1.0), 1e-6, monotone=False), "slope is 1e-06 and monotone=False; a tie-break"),
        (lambda: Steps((), (0.0,), link="odds"), "link='odds' is unknown"),
        (lambda: Chain(()), "no map to apply; pass at least one"),
        (lambda: Chain(5), "maps is of type int; pass a sequence of maps"),
        (lambda: Chain("ab"), "a str cannot be part of a chain; pass Affine, Curve, Steps or Chain maps"),
        (lambda: Chain((GROUPED, STEPS)), "a Grouped cannot be part of a chain; .* chain the map of each group"),
        (lambda: Chain((STEPS, PROBABILITY)), "a map of this chain takes scores on the probability scale .* the logit"),
        (lambda: compose(scale="logit"), "no map to apply; pass at least one"),
        (lambda: compose(GROUPED, STEPS, scale="logit"), "a Grouped cannot be part of a chain"),
        (lambda: compose(STEPS, scale="odds"), "scale='odds' is unknown"),
        (lambda: Grouped(STEPS, {"a": PROBABILITY}), "the map of group 'a' takes scores on the probability scale"),
        (lambda: Grouped(STEPS, {"a": GROUPED}), "the map of group 'a' is of type Grouped; pass an Affine"),
        (lambda: Grouped(GROUPED, {}), "the default map is of type Grouped"),
        (lambda: Grouped(None, {}), "the default map is of type NoneType"),
        (lambda: Grouped(GROUPED, {"default": STEPS}), "the default map is of type Grouped"),
        (lambda: Grouped(None, {"default": STEPS}), "the default map is of type NoneType"),
        (lambda: Grouped(STEPS, {1: STEPS}), r"maps is {1: .*; pass a mapping from names of groups \(text\) to maps"),
        (lambda: Grouped(STEPS, [STEPS]), "pass a mapping from names of groups"),
        (lambda: GROUPED([0.0, 1.0], ["a"]), r"groups has shape \(1,\) but there are 2 rows"),
        (lambda: GROUPED([0.0, 1.0], [["a"], ["b", "c"]]), "groups must be a list of names"),
        (lambda: GROUPED.by_number([0.0, 1.0], np.array([0, 2])), "numbers must be integers from -1 to 1"),
        (lambda: GROUPED.by_number([0.0, 1.0], np.array([0, -2])), "numbers must be integers from -1 to 1"),
        (lambda: GROUPED.by_number([0.0, 1.0], np.array([0.0, 1.0])), "numbers must be integers"),
        (lambda: GROUPED.by_number([0.0, 1.0], np.array([0])), r"numbers has shape \(1,\) but there are 2 rows"),
        (lambda: EXAMPLES["affine"]([0.0, np.nan]), r"scores\[1\] is nan"),
        (lambda: EXAMPLES["affine"]([[0.0]]), r"scores has shape \(1, 1\); pass one column"),
        (lambda: EXAMPLES["affine"]([[0.0], [1.0, 2.0]]), "scores must be an array of numbers, not list"),
        (lambda: EXAMPLES["affine"]([]), "scores is empty"),
        (lambda: EXAMPLES["affine"](["a"]), "scores must be an array of numbers"),
        (lambda: EXAMPLES["affine"].transform("a"), "link_scores must be an array of numbers"),
        (lambda: PROBABILITY([2.0]), "scores holds 2, which is not a probability"),
    ],
)
def test_invalid_maps_and_scores_are_refused(make, message):
    with pytest.raises(UncurseError, match=message):
        make()


def test_flags_of_numpy_are_flags():
    assert Steps((0.0,), (2.0, 1.0), monotone=np.False_).monotone is False
    assert Cells(exact=np.True_).exact is True


def test_steps_may_decrease_if_monotone_is_false():
    falling = Steps((0.0,), (2.0, 1.0), monotone=False)
    np.testing.assert_array_equal(falling.transform(np.array([-1.0, 1.0])), [2.0, 1.0])


def test_the_repr_of_many_numbers_shows_the_first_and_the_last():
    end = "link='logistic', scale='logit')"
    six = tuple(map(float, range(6)))
    assert repr(Curve(six, six, 1.0, 0.5)) == f"Curve(x={six}, y={six}, left=1.0, right=0.5, {end}"
    seven = tuple(map(float, range(7)))
    assert "x=(0.0, 1.0, …, 5.0, 6.0; 7 in all)" in repr(Curve(seven, seven, 1.0, 0.5))
    many = range(900)
    shown = "(0.0, 1.0, …, 898.0, 899.0; 900 in all)"
    curve = Curve(many, many, 1.0, 0.5)
    assert repr(curve) == f"Curve(x={shown}, y={shown}, left=1.0, right=0.5, {end}"
    steps = Steps(many[1:], many)
    assert f"values={shown}, slope=0.0" in repr(steps)
    assert repr(Chain((curve, steps))) == f"Chain(maps=({curve!r}, {steps!r}), {end}"
    grouped = Grouped(curve, {f"g{i}": Affine(1.0, i) for i in many})
    ends = [f"'g{i}': {Affine(1.0, i)!r}" for i in (0, 1, 898, 899)]
    expected = f"{{{ends[0]}, {ends[1]}, …, {ends[2]}, {ends[3]}; 900 in all}}"
    assert repr(grouped) == f"Grouped(default={curve!r}, maps={expected}, {end}"


def test_a_map_without_a_transform_cannot_predict():
    class Half(ScoreMap):
        kind, link, scale = "half", "logistic", "logit"

    assert "Half object" in repr(Half())

    with pytest.raises(NotImplementedError):
        Half()([0.0])
