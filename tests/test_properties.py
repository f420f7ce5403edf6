"""Properties of maps, methods, evidence and metrics, on data that hypothesis draws.

The profile "ci" draws the same data each time. ``make fuzz`` selects "nightly": fresh data, and many more.
"""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit

from uncurse import (
    VAD,
    Affine,
    Auto,
    Curve,
    Evidence,
    ReplicaCalibrator,
    Segmented,
    Steps,
    UncurseError,
    calibrate,
    evaluate,
    load,
    serving,
)
from uncurse.calibration import CALIBRATORS
from uncurse.evidence import from_arrays

# Coarse scores with little noise give identical replicas.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

STEP = 2.0**-20  # the distance between neighboring float32 from 8 to 16: multiples of it up to 15 are float32
COMMON = {"scale": "logit", "replicas": "seeds"}
#: How to make each method, and whether it takes labels.
METHODS = {
    "vad": (lambda: VAD(**COMMON, intervals=True), False),
    "identity": (lambda: VAD(**COMMON, link="identity"), False),
    "curvature": (lambda: VAD(**COMMON, curvature=True, intervals=True), False),
    "bootstrap": (lambda: VAD(scale="logit", replicas="bootstrap"), False),
    "monotone": (lambda: VAD(**COMMON, shape="monotone", intervals=True), False),
    "platt": (lambda: VAD(**COMMON, calibrator="platt"), True),
    "isotonic": (lambda: VAD(**COMMON, calibrator="isotonic", recenter=False), True),
    "labels": (lambda: ReplicaCalibrator(**COMMON), True),
    "auto": (lambda: Auto(**COMMON), True),
    "auto without labels": (lambda: Auto(**COMMON), False),
}
SCALES = st.sampled_from([2.0**-20, 2.0**20])  # powers of two: products with weights are exact


@dataclass(frozen=True)
class World:
    """Labeled replicas and a pool, on a grid of float32 scores, fine or with many ties."""

    seed: int
    rows: int
    mean: float
    sd: float
    noise: float  # of a replica, in units of sd
    slope: float  # of the true logit
    shift: float
    grain: float
    kind: str

    def draw(self):
        """Return labeled scores, labels, a pool, and a random generator."""
        rng = np.random.default_rng(self.seed)
        truth = rng.normal(self.mean, self.sd, (2 * self.rows, 1))
        scores = truth + self.noise * self.sd * rng.normal(size=(2 * self.rows, 3))
        if self.kind == "floor":
            scores = np.maximum(scores, np.quantile(scores, 0.3))
        elif self.kind == "cap":
            scores = np.minimum(scores, np.quantile(scores, 0.7))
        elif self.kind == "tails":
            scores = scores + 0.2 * rng.standard_t(2.0, scores.shape)
        scores = (np.round(scores / self.grain) * self.grain).clip(-15, 15)
        y = (rng.random(self.rows) < expit(self.slope * truth[: self.rows, 0] + self.shift)).astype(int)
        assume(0 < y.sum() < self.rows)
        return scores[: self.rows], y, scores[self.rows :], rng


WORLDS = st.builds(
    World,
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(40, 160),
    mean=st.floats(-5, 1),
    sd=st.floats(0.3, 2),
    noise=st.floats(0.01, 0.5),
    slope=st.floats(0.7, 1.3),
    shift=st.floats(0, 3),
    grain=st.sampled_from([STEP, 0.25]),
    kind=st.sampled_from(["plain", "plain", "floor", "cap", "tails"]),
)


def served(rng, *scores):
    """Distinct float32 scores in order: those of the data, their neighbors, and others from -15 to 15."""
    others = rng.integers(-15 * 2**20, 15 * 2**20, 300) * STEP
    neighbors = np.concatenate(scores) + STEP
    return np.unique(np.concatenate([*scores, neighbors, others]).clip(-15, 15))


def fitted(fit, *arguments, **options):
    """Fit, or skip data without a fit: labels that are separable or fall, and λ ≤ 0."""
    try:
        return fit(*arguments, **options)
    except UncurseError:
        assume(False)


def fit_rows(method, pool, labeled, weights=None):
    options = {"labels_from": "elsewhere"} if labeled and not isinstance(method, VAD) else {}
    return method.fit(pool, labeled=labeled, sample_weight=weights, **options)


def fit_method(name, pool, scores, y, weights=None, label_weights=None):
    make, labeled = METHODS[name]
    rows = ((scores, y) if label_weights is None else (scores, y, label_weights)) if labeled else None
    return fitted(fit_rows, make(), pool, rows, weights)


def assert_sound(predict, x):
    """Predictions are inside 0 and 1, in the order of scores, and depend neither on their order nor on their type."""
    p = predict(x)
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p) >= -1e-15).all()
    np.testing.assert_array_equal(predict(x.astype(np.float32)), p)
    np.testing.assert_array_equal(predict(x[::-1]), p[::-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("maps")


def assert_saved(score_map, x, folder, *segments):
    score_map.save(folder / "map.json")
    np.testing.assert_array_equal(load(folder / "map.json").map(x, *segments), score_map(x, *segments))


# ---------------------------------------------------------------------------- methods


@pytest.mark.parametrize("name", METHODS)
@given(world=WORLDS)
def test_the_map_of_a_method_is_sound_and_saves_bit_for_bit(name, folder, world):
    scores, y, pool, rng = world.draw()
    method = fit_method(name, pool, scores, y)
    x = served(rng, scores[:, 0], pool[:, 0])
    assert_sound(method.predict_proba, x)
    assert_saved(method.map_, x, folder)


@pytest.mark.parametrize("name", METHODS)
@given(world=WORLDS, scale=SCALES)
def test_a_method_depends_neither_on_row_order_nor_on_the_size_of_weights(name, world, scale):
    scores, y, pool, rng = world.draw()
    w, k = rng.exponential(size=len(pool)), rng.exponential(size=len(y))
    i, j = rng.permutation(len(pool)), rng.permutation(len(y))
    one = fit_method(name, pool, scores, y, w, k)
    other = fit_method(name, pool[i], scores[j], y[j], scale * w[i], k[j] / scale)
    np.testing.assert_allclose(other.predict_proba(pool[:, 0]), one.predict_proba(pool[:, 0]), rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "identity"])
@given(world=WORLDS, cuts=st.lists(st.integers(1, 159), min_size=1, max_size=4))
def test_a_method_of_merged_evidence_is_that_of_all_rows(name, world, cuts):
    scores, y, pool, _ = world.draw()
    make, labeled = METHODS[name]

    def total(rows, labels=None):
        edges = sorted({cut for cut in cuts if cut < len(rows)})
        parts = np.split(np.arange(len(rows)), edges)
        evidence = None
        for part in parts:
            one = from_arrays(rows[part], None if labels is None else labels[part])
            one = Evidence.from_dict(json.loads(json.dumps(one.to_dict())))
            evidence = one if evidence is None else evidence.merge(one)
        return evidence

    one = fit_method(name, pool, scores, y)
    other = fitted(fit_rows, make(), total(pool), total(scores, y) if labeled else None)
    np.testing.assert_allclose(other.predict_proba(pool[:, 0]), one.predict_proba(pool[:, 0]), rtol=1e-9)


@pytest.mark.parametrize("name", ["vad", "curvature", "monotone", "labels", "auto"])
@given(world=WORLDS, share=st.floats(0.05, 1.0), level=st.floats(0.5, 0.99))
def test_an_interval_is_finite_and_in_order_and_grows_with_its_level(name, world, share, level):
    scores, y, pool, _ = world.draw()
    method = fit_method(name, pool, scores, y)
    low, high = fitted(method.interval, share, level)  # none where the scores are capped
    wide = method.interval(share, (1 + level) / 2)
    assert -1 <= wide[0] <= low <= high <= wide[1] < np.inf


@given(world=WORLDS)
def test_vad_moves_every_score_towards_the_center_and_not_past_it(world):
    _, _, pool, _ = world.draw()
    vad = fit_method("vad", pool, None, None)
    away, pulled = pool[:, 0] - vad.record_.center, vad.map_.transform(pool[:, 0]) - vad.record_.center
    assert (np.abs(pulled) <= np.abs(away) + 1e-12).all()
    assert (pulled * away >= -1e-12).all()


@given(world=WORLDS, count=st.integers(1, 6))
def test_maps_by_segment_are_sound_and_save_bit_for_bit(folder, world, count):
    _, _, pool, rng = world.draw()
    names = rng.integers(0, count, len(pool))
    vad = fitted(VAD(**COMMON).fit, pool, segments=names)
    x = served(rng, pool[:, 0])
    for name in [*range(count), "never seen"]:
        assert_sound(lambda s, name=name: vad.predict_proba(s, np.full(len(s), name)), x)
    assert_saved(vad.map_, x, folder, rng.integers(0, count + 1, len(x)))
    order = rng.permutation(len(pool))
    other = VAD(**COMMON).fit(pool[order], segments=names[order])
    for name, segment in vad.record_.segments.items():
        assert other.record_.segments[name].lambda_ == pytest.approx(segment.lambda_, rel=1e-9)


# ---------------------------------------------------------------------------- calibrators


@pytest.mark.parametrize("name", CALIBRATORS)
@given(world=WORLDS, scale=SCALES)
def test_a_calibrator_is_sound_and_depends_on_ratios_of_weights_only(name, folder, world, scale):
    scores, y, pool, rng = world.draw()
    w, j = rng.exponential(size=len(y)), rng.permutation(len(y))
    step = fitted(calibrate, name, scores[:, 0], y, scale="logit", sample_weight=w)
    x = served(rng, scores[:, 0], pool[:, 0])
    assert_sound(step, x)
    assert_saved(step, x, folder)
    other = calibrate(name, scores[j, 0], y[j], scale="logit", sample_weight=scale * w[j])
    np.testing.assert_allclose(other(pool[:, 0]), step(pool[:, 0]), rtol=1e-9)


# ---------------------------------------------------------------------------- maps

NUMBERS = st.floats(-30, 30)
SPACES = st.sampled_from([("logistic", "logit"), ("logistic", "probability"), ("identity", "value")])


@st.composite
def simple_maps(draw, space=None):
    link, scale = draw(SPACES) if space is None else space
    kind = draw(st.sampled_from(["affine", "curve", "steps"]))
    if kind == "affine":
        return Affine(draw(st.floats(0, 2)), draw(NUMBERS), link, scale)
    x = np.array(sorted(draw(st.sets(st.integers(-3_000, 3_000), min_size=1, max_size=8)))) / 100
    if kind == "curve":
        y = sorted(draw(st.lists(NUMBERS, min_size=len(x), max_size=len(x))))
        return Curve(x, y, draw(st.floats(0, 2)), draw(st.floats(0, 2)), link, scale)
    y = sorted(draw(st.lists(NUMBERS, min_size=len(x) + 1, max_size=len(x) + 1)))
    return Steps(x, y, link=link, scale=scale)


def scores_for(score_map):
    x = np.linspace(-40, 40, 1_601)
    return expit(x[np.abs(x) < 30]) if score_map.scale == "probability" else x


@given(score_map=simple_maps())
def test_a_map_is_finite_and_in_order_and_saves_bit_for_bit(folder, score_map):
    x = scores_for(score_map)
    p = score_map(x)
    assert np.isfinite(p).all()
    assert (np.diff(p) >= -1e-12 * np.abs(p[1:])).all()
    if score_map.scale != "value":
        assert ((p >= 0) & (p <= 1)).all()
    assert_saved(score_map, x, folder)


@given(maps=SPACES.flatmap(lambda space: st.lists(simple_maps(space), min_size=2, max_size=4)))
def test_a_map_by_segment_is_the_map_of_the_segment(folder, maps):
    segmented = Segmented(maps[0], {str(i): part for i, part in enumerate(maps[1:])})
    x = scores_for(segmented)
    for i, part in enumerate(maps[1:]):
        np.testing.assert_array_equal(segmented(x, np.full(len(x), str(i))), part(x))
    np.testing.assert_array_equal(segmented(x, np.full(len(x), "never seen")), maps[0](x))
    assert_saved(segmented, x, folder, np.arange(len(x)) % 3)


@given(score_map=simple_maps())
def test_generated_python_agrees_with_numpy(score_map):
    module = {}
    exec(serving.to_python(score_map, "predict"), module)
    x = scores_for(score_map)[::20]
    np.testing.assert_allclose([module["predict"](v) for v in x.tolist()], score_map(x), rtol=1e-9, atol=1e-300)


JUNK = st.sampled_from([None, True, -1, 0, 2, 0.5, 1e308, "", "x", [], {}, [1.0, None], [[1.0]], {"a": 1}])


@given(score_map=simple_maps(), data=st.data())
def test_a_damaged_map_file_is_refused_or_gives_a_map(folder, score_map, data):
    path = folder / "damaged.json"
    score_map.save(path)
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(text) - 1))
        text = text[:place] + data.draw(st.sampled_from(["", "x", '"', "]", "9" * 400, "\0", "é"]))
    else:
        key = data.draw(st.sampled_from(sorted(content)))
        text = json.dumps({**content, key: data.draw(JUNK)})
    path.write_text(text, encoding="utf-8")
    try:
        loaded = load(path)
    except UncurseError:
        return
    assert not np.isnan(loaded.map(scores_for(loaded.map))).any()


# ---------------------------------------------------------------------------- metrics and selection


# ---------------------------------------------------------------------------- invalid input


def with_value(value):
    def damage(array):
        changed = array.astype(object if isinstance(value, str | None) else float)
        changed[len(array) // 2] = value
        return changed

    return damage


DAMAGES = {
    "nan": with_value(np.nan),
    "infinite": with_value(np.inf),
    "missing": with_value(None),
    "text": with_value("a"),
    "empty": lambda array: array[:0],
    "three axes": lambda array: np.zeros((2, 2, 2)),
    "complex": lambda array: array + 1j,
    "ragged": lambda array: [[1.0], [2.0, 3.0]],
    "dictionary": lambda array: {"a": array},
    "none": lambda array: None,
    "number": lambda array: 0.5,
    "dates": lambda array: np.full(array.shape, "2020-01-01", dtype="datetime64[D]"),
}
SHORT = {"short": lambda array: array[:-1], "negative": with_value(-1.0), "dates": DAMAGES["dates"]}


@pytest.mark.parametrize("name", METHODS)
@given(world=WORLDS, damage=st.sampled_from(sorted(DAMAGES)), part=st.sampled_from(["pool", "scores"]))
def test_damaged_scores_are_refused(name, world, damage, part):
    scores, y, pool, _ = world.draw()
    make, labeled = METHODS[name]
    assume((name, damage) != ("identity", "infinite"))  # an infinite logit is the probability 1
    if part == "scores" and labeled:
        scores = DAMAGES[damage](scores)
    else:
        pool = DAMAGES[damage](pool)
    with pytest.raises(UncurseError):
        fit_rows(make(), pool, (scores, y) if labeled else None)


@pytest.mark.parametrize("name", METHODS)
@given(world=WORLDS, damage=st.sampled_from(sorted(SHORT)), part=st.sampled_from(["labels", "weights"]))
def test_damaged_labels_and_weights_are_refused(name, world, damage, part):
    scores, y, pool, _ = world.draw()
    make, labeled = METHODS[name]
    weights = np.ones(len(pool))
    if part == "labels" and labeled:
        y = SHORT[damage](y)
    else:
        weights = SHORT[damage](weights)
    with pytest.raises(UncurseError):
        fit_rows(make(), pool, (scores, y) if labeled else None, weights)


@given(world=WORLDS, damage=st.sampled_from(sorted(DAMAGES)), part=st.sampled_from([0, 1]))
def test_damaged_predictions_and_labels_are_not_evaluated(world, damage, part):
    scores, y, _, _ = world.draw()
    arguments = [y, expit(scores[:, 0])]
    arguments[part] = DAMAGES[damage](arguments[part])
    with pytest.raises(UncurseError):
        evaluate(*arguments, [0.5])


@given(score_map=simple_maps(), damage=st.sampled_from(sorted(set(DAMAGES) - {"number", "empty", "three axes"})))
def test_damaged_scores_are_not_mapped(score_map, damage):
    with pytest.raises(UncurseError):
        score_map(DAMAGES[damage](scores_for(score_map)))
