"""Maps that follow each other are one map, with few knots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from uncurse import Affine, Curve, Segmented, Steps, UncurseError
from uncurse.maps import compose
from uncurse.maps.compose import thin

GRID = np.linspace(-30, 20, 20_001)
LINE = Affine(0.8, -0.3)
BEND = Curve((-3.0, 0.0, 1.0), (-2.5, 0.2, 0.7), 0.4, 1.3)
KNOTS = np.linspace(-8, 4, 200)
SMOOTH = Curve(KNOTS, 0.85 * KNOTS - 0.3 + 0.2 * np.tanh(KNOTS), 0.8, 0.9)
STEPS = Steps((-1.0, 0.5), (-3.0, -1.0, 2.0), 1e-6, 0.1)
FALLING = Steps((0.0,), (2.0, 1.0), monotone=False)
MIXED = Affine(0.9, 0.01, "identity")


def in_order(maps, logits):
    """Predictions of maps applied one after the other."""
    for score_map in maps:
        logits = logit(np.clip(score_map(logits), 1e-300, 1 - 1e-16))
    return expit(logits)


@pytest.mark.parametrize(
    ("maps", "kind", "tolerance"),
    [
        ((LINE, LINE), Affine, 1e-12),
        ((LINE, BEND), Curve, 1e-12),
        ((BEND, LINE), Curve, 1e-12),
        ((LINE, STEPS, LINE), Steps, 1e-9),
        ((FALLING, LINE), Steps, 1e-9),
        ((BEND, SMOOTH), Curve, 1.1e-4),
        ((LINE, SMOOTH, BEND, SMOOTH), Curve, 3e-4),
        ((SMOOTH, STEPS), Steps, 1e-4),
        ((STEPS, SMOOTH), Steps, 1e-4),
        ((FALLING, SMOOTH), Steps, 1e-4),
        ((LINE, MIXED), Curve, 1.2e-4),
        ((MIXED, SMOOTH), Curve, 2.2e-4),
        ((STEPS, MIXED), Steps, 1e-4),
        ((Affine(0.0, 0.4), SMOOTH), Affine, 1e-12),
        ((Affine(0.0, 0.4), MIXED), Affine, 1e-12),
    ],
)
def test_one_map_predicts_what_maps_in_order_predict(maps, kind, tolerance):
    composed = compose(*maps, scale="logit")
    assert type(composed) is kind
    predictions, wanted = composed(GRID), in_order(maps, GRID)
    # A score next to an edge may be on its other side after a logarithm.
    away = np.abs(np.gradient(wanted)) < 0.01
    assert away.mean() > 0.99
    np.testing.assert_allclose(predictions[away], wanted[away], rtol=tolerance)
    assert compose(*maps, scale="probability").scale == "probability"


def test_maps_of_values_cross_the_log_link():
    maps = Affine(0.9, 0.1, "log", "value"), Affine(0.8, 0.5, "identity", "value")
    values = np.exp(np.linspace(-20, 20, 1_001))
    np.testing.assert_allclose(compose(*maps, scale="value")(values), maps[1](maps[0](values)), rtol=1.2e-4)


def test_every_segment_is_composed():
    segmented = Segmented(LINE, {"a": BEND})
    composed = compose(segmented, LINE, scale="logit")
    assert composed == Segmented(compose(LINE, LINE, scale="logit"), {"a": compose(BEND, LINE, scale="logit")})


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ((STEPS, STEPS), "steps"),
        ((Steps((0.0,), (0.0, 1.0), 0.5), SMOOTH), "slope=0.5"),
        ((LINE, Affine(0.9, -0.01, "identity")), "identity"),  # predictions below 0
        ((Affine(1e200, 0.0), Affine(1e200, 0.0)), "inf"),
    ],
)
def test_what_is_not_one_map_is_refused(maps, message):
    with pytest.raises(UncurseError, match=message):
        compose(*maps, scale="logit")
    with pytest.raises(UncurseError, match="odds"):
        compose(LINE, scale="odds")


def test_a_map_that_is_updated_every_day_does_not_grow():
    score_map = SMOOTH
    for day in range(50):
        bend = Curve((-3.0, -1.0 + day / 100, 1.0), (-3.0, -1.01 + day / 100, 1.02), 1.0, 1.0)
        score_map = compose(score_map, bend, scale="logit")
    assert len(score_map.x) < 200


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-3, 3), st.floats(0, 3)), min_size=1, max_size=100), st.floats(0, 2))
def test_a_thin_predicts_the_same(gaps, slope):
    x, y = (np.cumsum(one) for one in zip(*gaps, strict=True))
    for link, scale in (("logistic", "logit"), ("identity", "value"), ("log", "value")):
        curve = Curve(x, y, slope, slope, link, scale)
        short = thin(curve)
        assert len(short.x) <= len(curve.x)
        scores = GRID if link != "log" else np.exp(GRID)
        scores = scores[curve.transform(scores if link != "log" else GRID) > 0]  # values may cross 0
        if len(scores):
            np.testing.assert_allclose(short(scores), curve(scores), rtol=1.001e-4, atol=1e-12)


def test_a_smooth_curve_needs_few_knots():
    assert len(thin(SMOOTH).x) < 60
