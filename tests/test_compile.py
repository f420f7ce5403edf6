from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncurse import Affine, Chain, Curve, Grouped, Steps, UncurseError
from uncurse.maps import ScoreMap
from uncurse.maps.compile import (
    BELOW_ONE,
    MOST,
    TINY,
    Clip,
    Inverse,
    Line,
    Phi,
    Pieces,
    apply,
    compile_map,
    compile_transform,
)
from uncurse.maps.shapes import logit_knots

RNG = np.random.default_rng(3)
CURVE = Curve(logit_knots(64), np.cumsum(RNG.gamma(1, 0.1, 64)) - 4, 0.8, 0.9)
TIES = Steps(np.unique(RNG.normal(-2, 2, 40)), np.sort(RNG.normal(-2, 2, 41)), 1e-6, 0.1)
FALLING = Steps(np.linspace(-5, 3, 30), RNG.normal(-2, 1, 31), monotone=False)
CLIP = Clip(TINY, BELOW_ONE)


def around(edges):
    """Numbers on both sides of every edge, and on it."""
    e = np.array(edges)
    return np.concatenate([e, np.nextafter(e, -np.inf), np.nextafter(e, np.inf)])


def evaluate(program, scores):
    """Run a program with NumPy."""
    l = scores
    with np.errstate(over="ignore"):
        for step in program:
            l = apply(step, l, scores)
    return l


def edges_of(steps):
    return next((step.edges for step in steps if isinstance(step, Pieces)), ())


# ---------------------------------------------------------------------------- one map


def test_a_map_of_logits_needs_no_conversion():
    assert compile_map(Affine(0.5, 1.0)) == (Line(0.5, 1.0), Phi("logistic"), CLIP)
    steps = compile_map(Curve((0.0, 2.0), (1.0, 2.0), 3.0, 4.0))
    assert steps == (Pieces((0.0, 2.0), (0.0, 0.0, 2.0), (1.0, 1.0, 2.0), (3.0, 0.5, 4.0)), Phi("logistic"), CLIP)
    steps = compile_map(Steps((0.0,), (-1.0, 1.0), 1e-6, 0.5))
    assert steps[0] == Pieces((0.0,), (0.5, 0.5), (-1.0, 1.0), (1e-6, 1e-6))


@pytest.mark.parametrize(
    ("score_map", "expected"),
    [
        (Affine(0.5, 1.0, scale="probability"), (Inverse("logistic"), Line(0.5, 1.0), Phi("logistic"), CLIP)),
        (Affine(0.5, 0.1, "identity", "probability"), (Line(0.5, 0.1), CLIP)),
        (Affine(0.5, 0.1, "identity"), (Phi("logistic"), Line(0.5, 0.1), CLIP)),
        (Affine(0.5, 0.1, "probit"), (Phi("logistic"), Inverse("probit"), Line(0.5, 0.1), Phi("probit"), CLIP)),
        (Affine(0.5, 0.1, "identity", "value"), (Line(0.5, 0.1), Clip(-MOST, MOST))),
        (Affine(0.5, 0.1, "log", "value"), (Inverse("log"), Line(0.5, 0.1), Phi("log"), Clip(TINY, MOST))),
    ],
)
def test_scales_and_links_are_converted_at_both_ends(score_map, expected):
    assert compile_map(score_map) == expected


def test_one_map_is_evaluated_to_the_last_bit():
    l = np.concatenate([RNG.uniform(-50, 50, 20_000), [1e6, -1e6, 800, -800]])
    for score_map in (CURVE, TIES, FALLING):
        scores = np.concatenate([l, around(edges_of(compile_map(score_map)))])
        np.testing.assert_array_equal(evaluate(compile_map(score_map), scores), score_map(scores))


def test_edges_of_probabilities_are_the_first_floats_that_pass():
    score_map = replace(FALLING, scale="probability")
    edges = np.array(edges_of(compile_map(score_map)))
    assert len(edges) == 30
    assert ((edges > 0) & (edges < 1)).all()
    p = np.concatenate([around(edges), [0.0, 1.0, 1e-300, 1 - 1e-16, 5e-324]])
    np.testing.assert_array_equal(evaluate(compile_map(score_map), p), score_map(p))


# ---------------------------------------------------------------------------- chains


def test_maps_of_one_link_become_one():
    chain = Chain((Affine(2.0, 0.0), Affine(0.5, 1.0)))
    assert compile_transform(chain) == (Line(1.0, 1.0),)
    (pieces,) = compile_transform(Chain((Affine(2.0, 1.0), Curve((1.0, 3.0), (0.0, 4.0), 1.0, 1.0))))
    assert pieces.edges == pytest.approx((0.0, 1.0), abs=1e-15)  # the first floats that round to the knots
    assert pieces.slope == (2.0, 4.0, 2.0)
    l = RNG.uniform(-50, 50, 20_000)
    for chain in (Chain((Affine(0.8, -0.2), CURVE, Affine(1.1, 0.2), TIES)), Chain((FALLING, CURVE, TIES))):
        steps = compile_transform(chain)
        assert len(steps) == 1
        scores = np.concatenate([l, around(steps[0].edges)])
        np.testing.assert_allclose(evaluate(steps, scores), chain.transform(scores), rtol=1e-12, atol=1e-12)


def test_a_flat_piece_is_one_value_and_equal_neighbours_are_one_piece():
    (pieces,) = compile_transform(Chain((CURVE, Steps((-1.0, 1.0), (0.1, 0.2, 0.2)))))
    assert len(pieces.edges) == 1
    assert pieces.y == (0.1, 0.2)
    assert pieces.slope == (0.0, 0.0)
    assert compile_transform(Steps((), (0.3,), 0.5, 1.0)) == (Line(0.5, 0.3 - 0.5),)
    assert compile_transform(Chain((Affine(0.0, 2.0), CURVE)))[0].slope == 0.0


def test_steps_that_fall_pass_an_edge_more_than_once():
    falling = Steps((0.0, 1.0), (5.0, -5.0, 5.0), monotone=False)
    (pieces,) = compile_transform(Chain((falling, Steps((0.0,), (10.0, 20.0)))))
    assert pieces.edges == (0.0, 1.0)
    assert pieces.y == (20.0, 10.0, 20.0)


def test_where_links_differ_the_prediction_is_handed_over():
    steps = compile_map(Chain((CURVE, Affine(0.9, 0.01, "identity"), Affine(0.5, 0.0, "log"))))
    assert [type(step) for step in steps] == [Pieces, Phi, Line, Inverse, Line, Phi, Clip]
    chain = Chain((CURVE, Affine(0.9, 0.01, "identity")))
    assert compile_transform(chain)[-1] == Inverse("logistic")
    l = RNG.normal(-2, 3, 10_000)
    np.testing.assert_allclose(evaluate(compile_transform(chain), l), chain.transform(l), rtol=1e-12)
    # Values that depend on the piece alone need nothing before it.
    steps = compile_map(Chain((CURVE, Steps((0.1, 0.3), (0.05, 0.2, 0.4), link="identity"))))
    assert [type(step) for step in steps] == [Pieces, Clip]


def test_all_pieces_of_a_sequence_have_the_edges_of_what_goes_in():
    chain = Chain((TIES, Curve((0.1, 0.3), (0.05, 0.4), 0.5, 0.2, "identity")))
    tables = [step for step in compile_map(chain) if isinstance(step, Pieces)]
    assert len(tables) == 2
    assert tables[0].edges == tables[1].edges
    scores = np.concatenate([RNG.normal(-2, 3, 10_000), around(tables[0].edges)])
    np.testing.assert_allclose(evaluate(compile_map(chain), scores), chain(scores), rtol=1e-12)


def test_a_chain_in_a_chain_goes_back_to_its_own_link():
    inner = Chain((Affine(0.9, 0.1), Affine(0.5, 0.2, "identity")))
    chain = Chain((inner, Affine(1.0, 0.3)))
    assert Inverse("logistic") in compile_map(chain)
    l = RNG.normal(0, 3, 1000)
    np.testing.assert_allclose(evaluate(compile_map(chain), l), chain(l), rtol=1e-13)


def test_values_beyond_all_floats_are_clipped_before_they_meet_a_zero():
    chain = Chain((Affine(2.0, 0.0, "log", "value"), Steps((1.0,), (3.0, 4.0), link="identity", scale="value")))
    np.testing.assert_array_equal(evaluate(compile_map(chain), np.array([1e-300, 0.5, 1e300])), [3.0, 3.0, 4.0])
    chain = Chain((Affine(2.0, 0.0, "log", "value"), Curve((1.0,), (3.0,), 0.0, 1e-300, "identity", "value")))
    assert np.isfinite(evaluate(compile_map(chain), np.array([1e300])))


finite = st.floats(-20, 20)
slopes = st.floats(0, 4)


@st.composite
def lines(draw):
    return Affine(draw(slopes), draw(finite))


@st.composite
def curves(draw):
    gaps = draw(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 5)), min_size=0, max_size=8))
    x0, y0 = draw(finite), draw(finite)
    x = x0 + np.cumsum([0.0, *(a for a, _ in gaps)])
    y = y0 + np.cumsum([0.0, *(b for _, b in gaps)])
    return Curve(x, y, draw(slopes), draw(slopes))


@st.composite
def steps(draw):
    edges = sorted(draw(st.sets(finite, max_size=8)))
    values = draw(st.lists(finite, min_size=len(edges) + 1, max_size=len(edges) + 1))
    slope = draw(st.sampled_from([0.0, 1e-6, 0.3]))
    return Steps(edges, sorted(values) if slope else values, slope, draw(finite), monotone=slope > 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(lines(), curves(), steps()), min_size=1, max_size=4), st.lists(finite, max_size=20))
def test_a_chain_of_one_link_is_one_operation_that_does_the_same(maps, some):
    chain = Chain(tuple(maps))
    made = compile_transform(chain)
    assert len(made) == 1
    own = np.concatenate([np.array(getattr(one, "x", getattr(one, "edges", ()))) for one in maps])
    scores = np.concatenate([around(edges_of(made)), around(own), some, [0.0, 1e6, -1e6]])
    np.testing.assert_allclose(evaluate(made, scores), chain.transform(scores), rtol=1e-9, atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(lines(), curves(), steps()),
    st.sampled_from(["identity", "log", "probit"]),
    st.one_of(lines(), curves(), steps()),
    st.sampled_from(["logit", "probability"]),
)
def test_a_chain_that_crosses_links_does_the_same(first, link, second, scale):
    chain = Chain((replace(first, scale=scale), replace(second, link=link, scale=scale)))
    made = compile_map(chain)
    scores = np.concatenate([around(edges_of(made)), np.linspace(-30, 30, 41)])
    if scale == "probability":
        scores = np.unique(np.concatenate([np.clip(around(edges_of(made)), 0, 1), np.linspace(0, 1, 41)]))
    np.testing.assert_allclose(evaluate(made, scores), chain(scores), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------------- errors


def test_maps_with_groups_are_refused():
    grouped = Grouped(Affine(1.0, 0.0), {"a": Affine(1.0, 1.0)})
    for of in (compile_map, compile_transform):
        with pytest.raises(UncurseError, match="this map has a map for each group"):
            of(grouped)


def test_a_map_of_a_kind_of_ones_own_has_no_formula():
    class Half(ScoreMap):
        kind, link, scale = "half", "logistic", "logit"

    with pytest.raises(UncurseError, match="a Half map cannot be compiled; use an Affine, Curve, Steps or Chain map"):
        compile_map(Half())


def test_bounds_of_predictions_are_the_ends_of_the_floats():
    import sys

    assert (sys.float_info.min, sys.float_info.max) == (TINY, MOST)
    assert 1 - sys.float_info.epsilon / 2 == BELOW_ONE
