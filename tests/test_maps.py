import json

import numpy as np
import pytest
from scipy.interpolate import interp1d
from scipy.special import expit

import uncurse
from uncurse import Affine, Chain, Curve, Grouped, Steps, UncurseError
from uncurse.links import LINKS, get_link, logistic, logit
from uncurse.maps import ScoreMap, compose, from_dict, group_rows, load, logit_knots

GRID = np.linspace(-12, 12, 4001)
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


def scores_of(step):
    return logistic(GRID) if step.scale == "probability" else np.exp(GRID) if step.scale == "value" else GRID


# ---------------------------------------------------------------------------- what each map computes


def test_an_affine_map_is_two_numbers_in_link_space():
    np.testing.assert_allclose(Affine(0.7, -0.3)(GRID), expit(0.7 * GRID - 0.3), rtol=1e-14)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scores", ["logit", "probability"])
def test_the_identity_map_is_the_plain_prediction_on_every_link_and_scale(link, scores):
    given = GRID if scores == "logit" else expit(GRID)
    np.testing.assert_allclose(Affine(1.0, 0.0, link, scores)(given), expit(GRID), rtol=1e-9)


def test_a_curve_interpolates_and_goes_on_with_its_end_slopes():
    x, y = KNOTS
    inner = interp1d(x, y)
    l = np.linspace(-2, 1.5, 101)
    curve = EXAMPLES["curve"]
    np.testing.assert_allclose(curve.transform(l), inner(l), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(curve.transform(np.array([-5.0, 4.0])), [-1.5 - 0.5 * 3, 2 + 1.2 * 2.5])


def test_a_score_on_an_edge_belongs_to_the_step_above():
    np.testing.assert_array_equal(
        Steps((0.0, 1.0), (1.0, 2.0, 3.0)).transform(np.array([-1e-300, 0.0, 1.0])), [1, 2, 3]
    )


def test_ties_inside_a_step_are_broken_by_the_score_and_by_little():
    inside = np.linspace(-0.99, 0.49, 1000)
    values = STEPS.transform(inside)
    assert (np.diff(values) > 0).all()
    assert np.abs(values + 1.0).max() < 1.1e-6


def test_a_chain_is_one_map_after_the_other():
    first, second = Affine(0.7, -0.3), EXAMPLES["curve"]
    np.testing.assert_allclose(Chain((first, second)).transform(GRID), second.transform(first.transform(GRID)))


def test_a_chain_hands_over_the_prediction_where_links_differ():
    p = logistic(STEPS.transform(GRID))
    chain = EXAMPLES["chain of links"]
    np.testing.assert_allclose(chain(GRID), 0.8 * p + 0.01, rtol=1e-12)
    np.testing.assert_allclose(chain.transform(GRID), logit(0.8 * p + 0.01), rtol=1e-9, atol=1e-12)


def test_compose_makes_one_straight_line_of_neighbours():
    step = compose(Affine(1.0, -2.0), Affine(0.5, 0.3), Affine(3.0, 0.1), scale="probability")
    assert isinstance(step, Affine)
    assert step.scale == "probability"
    np.testing.assert_allclose((step.slope, step.intercept), (1.5, 3 * (0.5 * -2 + 0.3) + 0.1))


@pytest.mark.parametrize(
    "maps",
    [
        (Affine(1.0, -2.0), STEPS, Affine(0.5, 0.3)),
        (STEPS, Affine(0.5, 0.3), Affine(2.0, 0.1)),
        (Affine(0.5, 0.3), Affine(0.9, 0.01, "identity")),
        (Affine(0.5, 0.3), Affine(2.0, 0.0), EXAMPLES["curve"], Affine(0.9, 0.0), Affine(0.9, 0.1)),
    ],
)
def test_compose_does_what_the_maps_do_in_turn(maps):
    expected = GRID
    link = "logistic"
    for step in maps:
        if step.link != link:
            expected, link = get_link(step.link).inverse(get_link(link).phi(expected)), step.link
        expected = step.transform(expected)
    np.testing.assert_allclose(compose(*maps, scale="logit")(GRID), get_link(link).phi(expected), rtol=1e-9)


def test_groups_get_their_own_map_and_unseen_ones_the_whole():
    grouped = EXAMPLES["grouped"]
    groups = np.array(["a", "ü", "never seen", "a"] * 1000 + ["a"])
    predictions = grouped(GRID, groups)
    for name in ("a", "ü"):
        np.testing.assert_array_equal(predictions[groups == name], grouped.maps[name](GRID[groups == name]))
    unseen = groups == "never seen"
    np.testing.assert_array_equal(predictions[unseen], grouped.whole(GRID[unseen]))
    np.testing.assert_array_equal(grouped(GRID), grouped.whole(GRID))


@pytest.mark.parametrize("groups", [[3, 1, 3, 2], np.array([3, 1, 3, 2], np.uint8), ["3", "1", "3", "2"]])
def test_groups_of_any_kind_are_known_by_their_text(groups):
    names, rows = group_rows(groups, 4)
    assert names == ["1", "2", "3"]
    assert [r.tolist() for r in rows] == [[1], [3], [0, 2]]


def test_a_missing_group_gets_the_map_of_the_whole_or_an_error_of_ours():
    grouped = Grouped(Affine(1.0, 0.0), {"a": Affine(1.0, 1.0)})
    try:
        predictions = grouped([0.0, 0.0], np.array(["a", None], dtype=object))
    except UncurseError:
        return
    np.testing.assert_allclose(predictions, [expit(1.0), 0.5])


def test_knots_of_the_logit_are_even_in_arcsin_root_p():
    angle = np.arcsin(np.sqrt(expit(logit_knots(64))))
    np.testing.assert_allclose(np.diff(angle), np.pi / 2 / 64, rtol=1e-9)


# ---------------------------------------------------------------------------- calling


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_single_number_gives_a_single_number(name):
    step = EXAMPLES[name]
    values = scores_of(step)
    single = step(float(values[2500]))
    assert np.ndim(single) == 0
    assert single == step(values)[2500]


@pytest.mark.parametrize("name", EXAMPLES)
def test_chunks_of_a_long_column_are_seamless(name):
    step = EXAMPLES[name]
    values = scores_of(step)
    long = np.tile(values, 40)  # more than two chunks of 2^16
    np.testing.assert_array_equal(step(long), np.tile(step(values), 40))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_map_leaves_its_input_alone(name):
    step = EXAMPLES[name]
    values = scores_of(step)
    before = values.copy()
    step(values)
    step.transform(values)
    np.testing.assert_array_equal(values, before)


# Not the steps: one may lie between a float64 and the float32 next to it.
@pytest.mark.parametrize("name", [name for name, step in EXAMPLES.items() if isinstance(step, Affine | Curve)])
def test_float32_and_float64_agree(name):
    step = EXAMPLES[name]
    values = scores_of(step)[np.abs(GRID) < 8]
    np.testing.assert_allclose(step(values.astype(np.float32)), step(values), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name, step in EXAMPLES.items() if step.scale != "value"])
def test_predictions_keep_the_order_and_stay_inside_0_and_1(name):
    step = EXAMPLES[name]
    values = np.sort(
        np.concatenate([scores_of(step), [0.0, 1.0] if step.scale == "probability" else [-1e3, 1e3, 1e300]])
    )
    p = step(values)
    assert p.dtype == np.float64
    assert (p > 0).all()
    assert (p < 1).all()
    assert (np.diff(p) >= 0).all()


@pytest.mark.parametrize("center", [1e-3, 0.03, 0.9])
def test_neighbouring_float32_probabilities_stay_apart_and_in_order(center):
    p = np.float32(center) + np.arange(2000, dtype=np.float32) * np.spacing(np.float32(center))
    assert (np.diff(p) > 0).all()
    assert (np.diff(Affine(0.9, -0.1, scale="probability")(p)) > 0).all()


# ---------------------------------------------------------------------------- documents


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_saved_map_predicts_the_same_bit_for_bit(name, tmp_path):
    step = EXAMPLES[name]
    step.save(tmp_path / "map.json")
    back = uncurse.load(tmp_path / "map.json")
    values = scores_of(step)
    assert back == step
    np.testing.assert_array_equal(back(values), step(values))
    if isinstance(step, Grouped):
        groups = np.array(["a", "ü", "b"] * 1333 + ["a", "b"])
        np.testing.assert_array_equal(back(values, groups), step(values, groups))
    assert back.to_json() == step.to_json()
    assert json.loads(step.to_json())["schema_version"] == 1


def test_a_truncated_map_file_is_refused(tmp_path):
    path = tmp_path / "map.json"
    EXAMPLES["grouped"].save(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UncurseError, match=r"map\.json is not valid JSON .*truncated"):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "affine", "slope": 1.0}, r"map is not a complete affine map \(.*intercept.*\); write it anew"),
        ({"kind": "affine", "slope": 1.0, "intercept": 0.0, "bend": 2}, "not a complete affine map .*bend"),
        ({"kind": "affine", "slope": "1", "intercept": 0.0}, "not a complete affine map"),
        ({"kind": "affine", "slope": None, "intercept": 0.0}, "not a complete affine map"),
        ({"kind": "curve", "x": None, "y": [1.0], "left": 1.0, "right": 1.0}, "not a complete curve map"),
        ({"kind": "curve", "x": [1.0], "y": ["a"], "left": 1.0, "right": 1.0}, "not a complete curve map"),
        ({"kind": "steps", "edges": []}, "not a complete steps map"),
        ({"kind": "steps", "edges": [], "values": ["a"]}, "not a complete steps map"),
        ({"kind": "chain"}, "not a complete chain map"),
        ({"kind": "chain", "maps": ["affine"]}, "not a complete chain map"),
        ({"kind": "grouped", "maps": {}}, r"not a complete grouped map .*whole"),
        ({"kind": "grouped", "whole": {"kind": "affine", "slope": 1.0, "intercept": 0.0}, "maps": []}, "grouped"),
        ({"kind": "tree"}, "kind='tree' is unknown; choose one of affine, curve, steps, chain, grouped"),
        ({"kind": ["affine"]}, "is unknown"),
        ({}, "kind=None is unknown"),
    ],
)
def test_an_incomplete_or_foreign_map_is_named(content, message):
    with pytest.raises(UncurseError, match=message):
        from_dict(content)


NOT_FINITE = [float("nan"), float("inf")]


@pytest.mark.parametrize("bad", NOT_FINITE)
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
def test_a_map_has_only_finite_numbers(make, bad):
    with pytest.raises(UncurseError, match="finite"):
        make(bad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Affine(np.nan, 0.0), "slope is nan; a map needs finite numbers"),
        (lambda: Affine(1.0, np.inf), "intercept is inf; a map needs finite numbers"),
        (lambda: Affine(-0.5, 0.0), r"slope is -0\.5; a map must not turn the order round"),
        (lambda: Affine(1.0, 0.0, "odds"), "link='odds' is unknown"),
        (lambda: Affine(1.0, 0.0, scale="odds"), "scale='odds' is unknown"),
        (lambda: Curve((), (), 1.0, 1.0), "as many x as y and at least one; got 0 and 0"),
        (lambda: Curve((0.0,), (0.0, 1.0), 1.0, 1.0), "as many x as y and at least one; got 1 and 2"),
        (lambda: Curve((0.0, np.inf), (0.0, 1.0), 1.0, 1.0), "a knot of this curve is not finite; fit it again"),
        (lambda: Curve((0.0, 0.0), (0.0, 1.0), 1.0, 1.0), "x of a curve must increase strictly; merge knots"),
        (lambda: Curve((0.0, 1.0), (1.0, 0.0), 1.0, 1.0), "curve falls somewhere; a map must not turn the order"),
        (lambda: Curve((0.0, 1.0), (0.0, 1.0), -1.0, 1.0), "curve falls somewhere"),
        (lambda: Curve((0.0, 1.0), (0.0, 1.0), 1.0, -1.0), "curve falls somewhere"),
        (lambda: Curve((0.0,), (0.0,), 1.0, 1.0, "odds"), "link='odds' is unknown"),
        (lambda: Steps((0.0,), (1.0,)), "1 edges need 2 values; got 1"),
        (lambda: Steps((0.0,), (1.0, np.nan)), "a step is not finite; fit it again with bins that hold both labels"),
        (lambda: Steps((0.0, 0.0), (1.0, 2.0, 3.0)), "edges of steps must increase strictly; merge edges"),
        (lambda: Steps((0.0,), (1.0, 2.0), -1.0), "slope is -1; a map must not turn the order round"),
        (lambda: Steps((0.0,), (2.0, 1.0), 1e-6), r"these steps fall somewhere.*pool them first"),
        (lambda: Steps((), (0.0,), link="odds"), "link='odds' is unknown"),
        (lambda: Chain(()), "a chain needs at least one map"),
        (lambda: EXAMPLES["grouped"]([0.0, 1.0], ["a"]), r"groups has shape \(1,\) but there are 2 scores"),
        (lambda: EXAMPLES["affine"]([0.0, np.nan]), r"scores\[1\] is nan"),
        (lambda: EXAMPLES["affine"]([[0.0]]), r"scores has shape \(1, 1\); pass one column"),
        (lambda: EXAMPLES["affine"]([]), "scores is empty"),
        (lambda: EXAMPLES["affine"](["a"]), "scores must be an array of numbers"),
        (lambda: EXAMPLES["affine of probabilities"]([2.0]), "scores holds 2, which is not a probability"),
    ],
)
def test_what_cannot_be_a_map_is_named(make, message):
    with pytest.raises(UncurseError, match=message):
        make()


def test_steps_that_fall_are_allowed_where_nobody_asked_for_order():
    np.testing.assert_array_equal(Steps((0.0,), (2.0, 1.0)).transform(np.array([-1.0, 1.0])), [2.0, 1.0])


def test_a_map_without_a_transform_is_no_map():
    class Half(ScoreMap):
        kind, link, scale = "half", "logistic", "logit"

    with pytest.raises(NotImplementedError):
        Half()([0.0])
