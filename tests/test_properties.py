"""Properties that hold for whatever is fitted, on worlds that hypothesis chooses."""

import os
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from uncurse import VAD, Cells, Evidence, LogSpec, Moments, Tower, UncurseError, calibrate, load
from uncurse.calibration.calibrators import CALIBRATORS
from uncurse.evidence import from_arrays, merged
from uncurse.evidence.from_arrays import column_names
from uncurse.links import LINKS

# Worlds of coarse scores and little noise have replicas that are one.
pytestmark = pytest.mark.filterwarnings("ignore:the replicas are identical:UserWarning")

STEP = 2.0**-20  # the distance between neighbouring float32 from 8 to 16: multiples of it up to 15 are float32
# No shrinking: a world is a handful of numbers already, and a failure is told in a second.
# `make fuzz` sets the variable and draws other worlds from its seed; otherwise the worlds are always the same.
FIXED = "UNCURSE_FUZZ_SEED" not in os.environ
PROFILE = settings(deadline=None, max_examples=15, derandomize=FIXED, phases=(Phase.explicit, Phase.generate))


@dataclass(frozen=True)
class World:
    """Labelled replicas and a pool, on a grid of float32 scores, fine or with many ties."""

    seed: int
    rows: int
    mean: float
    sd: float
    noise: float  # of a replica, in units of sd
    slope: float  # of the true logit
    shift: float
    grain: float

    def draw(self):
        rng = np.random.default_rng(self.seed)
        truth = rng.normal(self.mean, self.sd, (2 * self.rows, 1))
        scores = truth + self.noise * self.sd * rng.normal(size=(2 * self.rows, 3))
        scores = (np.round(scores / self.grain) * self.grain).clip(-15, 15)
        y = (rng.random(self.rows) < expit(self.slope * truth[: self.rows, 0] + self.shift)).astype(int)
        assume(0 < y.sum() < self.rows)
        return scores[: self.rows], y, scores[self.rows :], rng


def worlds():
    return st.builds(
        World,
        seed=st.integers(0, 2**32 - 1),
        rows=st.integers(40, 160),
        mean=st.floats(-5, 1),
        sd=st.floats(0.3, 2),
        noise=st.floats(0.01, 0.5),
        slope=st.floats(0.7, 1.3),
        shift=st.floats(0, 3),
        grain=st.sampled_from([STEP, 0.25]),
    )


def served(rng, *scores):
    """Distinct float32 scores in order: those of the data, and many others from -15 to 15."""
    others = rng.integers(-15 * 2**20, 15 * 2**20, 300) * STEP
    neighbours = np.concatenate(scores) + STEP
    return np.unique(np.concatenate([*scores, neighbours, others]).clip(-15, 15))


def fitted(fit, *arguments, **options):
    """What was fitted; worlds that have no fit (separable, falling, λ ≤ 0) are another test's."""
    try:
        return fit(*arguments, **options)
    except UncurseError:
        assume(False)


def assert_sound(predict, x):
    p = predict(x)
    assert (p > 0).all()
    assert (p < 1).all()
    assert (np.diff(p) >= 0).all()
    np.testing.assert_array_equal(predict(x.astype(np.float32)), p)
    np.testing.assert_array_equal(predict(x[::-1]), p[::-1])


def assert_saved(step, x, folder, groups=None):
    path = folder / "map.json"
    step.save(path)
    back = load(path)
    np.testing.assert_array_equal(back(x), step(x))
    if groups is not None:
        np.testing.assert_array_equal(back(x, groups), step(x, groups))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("maps")


# ---------------------------------------------------------------------------- calibrators


@pytest.mark.parametrize("method", CALIBRATORS)
@given(world=worlds(), exact=st.booleans())
@PROFILE
def test_a_calibrator_keeps_the_order_stays_inside_0_and_1_and_saves_bit_for_bit(method, folder, world, exact):
    scores, y, pool, rng = world.draw()
    step = fitted(calibrate, method, scores[:, 0], y, exact=exact)
    x = served(rng, scores[:, 0], pool[:, 0])
    assert_sound(step, x)
    assert_saved(step, x, folder)


@pytest.mark.parametrize("method", CALIBRATORS)
@given(world=worlds(), exact=st.booleans())
@PROFILE
def test_a_calibrator_does_not_see_the_order_of_rows(method, world, exact):
    scores, y, pool, rng = world.draw()
    w = rng.exponential(size=len(y))
    o = rng.permutation(len(y))
    x = pool[:, 0]
    for weights in (None, w):
        one = fitted(calibrate, method, scores[:, 0], y, sample_weight=weights, exact=exact)
        other = calibrate(method, scores[o, 0], y[o], sample_weight=None if weights is None else w[o], exact=exact)
        np.testing.assert_allclose(other(x), one(x), rtol=1e-9)


@pytest.mark.parametrize("method", CALIBRATORS)
@given(world=worlds(), exact=st.booleans())
@PROFILE
def test_only_ratios_of_weights_matter_to_a_calibrator(method, world, exact):
    scores, y, pool, rng = world.draw()
    weights = rng.exponential(size=len(y))
    one = fitted(calibrate, method, scores[:, 0], y, sample_weight=weights, exact=exact)
    for scale in (1e-6, 1e6):
        other = calibrate(method, scores[:, 0], y, sample_weight=scale * weights, exact=exact)
        np.testing.assert_allclose(other(pool[:, 0]), one(pool[:, 0]), rtol=1e-9)


@pytest.mark.parametrize("method", CALIBRATORS)
@given(world=worlds(), exact=st.booleans())
@PROFILE
def test_a_calibrator_from_merged_cells_is_that_of_the_whole(method, world, exact):
    from uncurse.calibration.calibrators import fit_calibrator

    scores, y, pool, rng = world.draw()
    cut = int(rng.integers(1, len(y)))
    parts = [Cells(exact=exact).update(scores[s, 0], y[s]) for s in (slice(cut), slice(cut, None))]
    one = fitted(calibrate, method, scores[:, 0], y, exact=exact)
    other = fit_calibrator(method, Cells.from_dict(parts[1].to_dict()).merge(parts[0]))
    np.testing.assert_allclose(other(pool[:, 0]), one(pool[:, 0]), rtol=1e-9)


# ---------------------------------------------------------------------------- VAD alone


@pytest.mark.parametrize("scores", ["logit", "probability"])
@pytest.mark.parametrize("curvature", [False, True])
@pytest.mark.parametrize("link", LINKS)
@given(world=worlds(), rate=st.sampled_from([None, 0.1]))
@PROFILE
def test_vad_keeps_the_order_stays_inside_0_and_1_and_saves_bit_for_bit(link, curvature, scores, folder, world, rate):
    _, _, pool, rng = world.draw()
    x = served(rng, pool[:, 0])
    given_, x = (pool, x) if scores == "logit" else (expit(pool), expit(x))
    vad = fitted(VAD(link=link, curvature=curvature, scale=scores, negative_rate=rate).fit, given_)
    p = vad.predict_proba(x)
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p) >= 0).all()
    assert_saved(vad.map_, x, folder)


@pytest.mark.parametrize("link", LINKS)
@given(world=worlds(), replicas=st.sampled_from(["seeds", "bootstrap", "anchored"]), scale=st.sampled_from([1e-9, 1e9]))
@PROFILE
def test_vad_depends_neither_on_row_order_nor_on_the_scale_of_weights(link, world, replicas, scale):
    _, _, pool, rng = world.draw()
    weights, o = rng.integers(0, 4, len(pool)), rng.permutation(len(pool))
    assume(weights.sum() > 1)

    def fit(rows, weights=None):
        return fitted(VAD(link=link, replicas=replicas).fit, rows, sample_weight=weights)

    def same(one, other):
        np.testing.assert_allclose(other.predict_proba(pool[:, 0]), one.predict_proba(pool[:, 0]), rtol=1e-9)

    same(fit(pool), fit(pool[o]))
    one, other = fit(pool, weights), fit(pool, scale * weights)
    same(one, other)
    np.testing.assert_allclose(other.standard_error_, one.standard_error_, rtol=1e-6)
    same(one, fit(pool[weights > 0], weights[weights > 0]))
    equal = fit(pool, np.full(len(pool), scale))
    same(fit(pool), equal)
    np.testing.assert_allclose(equal.standard_error_, fit(pool).standard_error_, rtol=1e-6)


@pytest.mark.parametrize("link", LINKS)
@given(world=worlds())
@PROFILE
def test_vad_from_merged_evidence_is_that_of_all_rows(link, world):
    _, _, pool, rng = world.draw()
    cuts = np.sort(rng.integers(1, len(pool), 3))
    spec = LogSpec(column_names(3), link=link)
    parts = [from_arrays(part, spec=spec) for part in np.split(pool, np.unique(cuts))]
    total = merged(Evidence.from_dict(part.to_dict()) for part in parts)
    one, other = fitted(VAD(link=link).fit, pool), fitted(VAD(link=link).fit, total)
    np.testing.assert_allclose(other.lambda_, one.lambda_, rtol=1e-9)
    np.testing.assert_allclose(other.predict_proba(pool[:, 0]), one.predict_proba(pool[:, 0]), rtol=1e-9)


@given(world=worlds(), columns=st.sampled_from([2, 3]), scale=st.sampled_from([1e-9, 1e9]))
@settings(PROFILE, max_examples=8)
def test_a_free_shape_depends_neither_on_row_order_nor_on_the_scale_of_weights(world, columns, scale):
    _, _, pool, rng = world.draw()
    pool, weights, o = pool[:, :columns], rng.exponential(size=len(pool)), rng.permutation(len(pool))
    one = fitted(VAD(shape="free").fit, pool, sample_weight=weights)
    other = VAD(shape="free").fit(pool[o], sample_weight=scale * weights[o])
    np.testing.assert_allclose(other.predict_proba(pool[:, 0]), one.predict_proba(pool[:, 0]), rtol=1e-6)


@given(world=worlds(), columns=st.sampled_from([2, 3]), scale=st.sampled_from([1e-9, 1e9]))
@settings(PROFILE, max_examples=8)
def test_a_tower_depends_neither_on_row_order_nor_on_the_scale_of_weights(world, columns, scale):
    scores, y, pool, rng = world.draw()
    pool, scores = pool[:, :columns], scores[:, :columns]
    m, k = rng.exponential(size=len(pool)), rng.exponential(size=len(y))
    i, j = rng.permutation(len(pool)), rng.permutation(len(y))
    one = fitted(Tower().fit, pool, labelled=(scores, y, k), sample_weight=m)
    other = Tower().fit(pool[i], labelled=(scores[j], y[j], scale * k[j]), sample_weight=m[i] / scale)
    np.testing.assert_allclose(other.predict_proba(pool[:, 0]), one.predict_proba(pool[:, 0]), rtol=1e-6)


@given(world=worlds(), shift=st.floats(-3, 3), scale=st.floats(0.1, 10))
@PROFILE
def test_vad_of_scores_moved_and_stretched_is_vad_moved_and_stretched(world, shift, scale):
    _, _, pool, _ = world.draw()
    one = fitted(VAD(link="identity", scale="value").fit, pool)
    other = VAD(link="identity", scale="value").fit(scale * pool + shift)
    expected = scale * one.predict_proba(pool[:, 0]) + shift
    np.testing.assert_allclose(other.predict_proba(scale * pool[:, 0] + shift), expected, rtol=1e-7, atol=1e-7)


@given(world=worlds())
@PROFILE
def test_vad_pulls_every_score_towards_the_center_and_never_past_it(world):
    _, _, pool, _ = world.draw()
    vad = fitted(VAD().fit, pool)
    l = pool[:, 0]
    pulled = vad.map_.transform(l)
    assert (np.abs(pulled - vad.center_) <= np.abs(l - vad.center_) + 1e-12).all()
    assert ((pulled - vad.center_) * (l - vad.center_) >= -1e-12).all()


# ---------------------------------------------------------------------------- tandem


@pytest.mark.parametrize("method", CALIBRATORS)
@given(world=worlds(), link=st.sampled_from(LINKS))
@PROFILE
def test_a_tandem_keeps_the_order_stays_inside_0_and_1_and_saves_bit_for_bit(method, folder, world, link):
    scores, y, pool, rng = world.draw()
    vad = fitted(VAD(link=link, calibrator=method).fit, pool, labelled=(scores, y))
    x = served(rng, scores[:, 0], pool[:, 0])
    assert_sound(vad.predict_proba, x)
    assert_saved(vad.map_, x, folder)


@pytest.mark.parametrize("method", CALIBRATORS)
@given(world=worlds())
@PROFILE
def test_a_tandem_depends_neither_on_row_order_nor_on_the_scale_of_weights(method, world):
    scores, y, pool, rng = world.draw()
    m, k = rng.integers(0, 4, len(pool)), rng.integers(0, 4, len(y))
    i, j = rng.permutation(len(pool)), rng.permutation(len(y))
    assume(m.sum() > 1)
    assume(k.sum() > 1)
    x = pool[:, 0]

    def fit(pool, scores, y, m=None, k=None):
        labelled = (scores, y) if k is None else (scores, y, k)
        return fitted(VAD(calibrator=method).fit, pool, labelled=labelled, sample_weight=m).predict_proba(x)

    np.testing.assert_allclose(fit(pool[i], scores[j], y[j]), fit(pool, scores, y), rtol=1e-9)
    scaled = fit(pool, scores, y, 1e6 * m, 1e-6 * k)
    np.testing.assert_allclose(scaled, fit(pool, scores, y, m, k), rtol=1e-9)


# ---------------------------------------------------------------------------- groups


@pytest.mark.parametrize("calibrator", [None, "platt", "isotonic"])
@given(world=worlds(), groups=st.integers(1, 6))
@PROFILE
def test_groups_keep_the_order_inside_each_and_save_bit_for_bit(calibrator, folder, world, groups):
    scores, y, pool, rng = world.draw()
    names = rng.integers(0, groups, len(pool))
    labelled = None if calibrator is None else (scores, y)
    vad = fitted(VAD(calibrator=calibrator).fit, pool, groups=names, labelled=labelled)
    x = served(rng, pool[:, 0])
    for name in [*range(groups), "never seen"]:
        assert_sound(lambda s, name=name: vad.predict_proba(s, np.full(len(s), name)), x)
    assert_saved(vad.map_, x, folder, rng.integers(0, groups + 1, len(x)))


def group_fit(pool, names, weights=None):
    return fitted(VAD().fit, pool, groups=names, sample_weight=weights)


@given(world=worlds(), groups=st.integers(2, 4))
@PROFILE
def test_groups_do_not_see_the_order_of_rows(world, groups):
    _, _, pool, rng = world.draw()
    names, o = rng.integers(0, groups, len(pool)), rng.permutation(len(pool))
    one, other = group_fit(pool, names), group_fit(pool[o], names[o])
    for name, lam in one.group_lambda_.items():
        np.testing.assert_allclose(other.group_lambda_[name], lam, rtol=1e-9)
        np.testing.assert_allclose(other.group_center_[name], one.group_center_[name], rtol=1e-9)


@given(world=worlds(), groups=st.integers(2, 4), scale=st.sampled_from([1e-9, 1e-3, 1e9]))
@PROFILE
def test_groups_depend_only_on_ratios_of_weights(world, groups, scale):
    _, _, pool, rng = world.draw()
    names, weights = rng.integers(0, groups, len(pool)), rng.exponential(size=len(pool))
    pairs = [
        (group_fit(pool, names, weights), group_fit(pool, names, scale * weights)),
        (group_fit(pool, names), group_fit(pool, names, np.full(len(pool), scale))),
    ]
    for one, other in pairs:
        for name, lam in one.group_lambda_.items():
            np.testing.assert_allclose(other.group_lambda_[name], lam, rtol=1e-9)
            np.testing.assert_allclose(other.group_center_[name], one.group_center_[name], rtol=1e-9)


@given(world=worlds(), groups=st.integers(2, 6))
@PROFILE
def test_a_group_lies_between_its_own_lambda_and_that_within_all_groups(world, groups):
    _, _, pool, rng = world.draw()
    names = rng.integers(0, groups, len(pool))
    vad = group_fit(pool, names)
    own = {name: Moments().update(pool[names == int(name)]) for name in vad.group_lambda_}
    noise = {name: (np.trace(m.covariance) - m.covariance.sum() / 3) / 2 for name, m in own.items()}
    known = [name for name, m in own.items() if m.rows > 2 and m.covariance[0, 0] > 0]
    weighted = [(own[n].weight * noise[n], own[n].weight * own[n].covariance[0, 0]) for n in known]
    within = 1 - sum(v for v, _ in weighted) / sum(s for _, s in weighted)
    for name in known:
        ends = sorted([within, 1 - noise[name] / own[name].covariance[0, 0]])
        assert ends[0] - 1e-9 <= vad.group_lambda_[name] <= ends[1] + 1e-9


# ---------------------------------------------------------------------------- strictness

RUNS = np.concatenate([start * 2**20 + np.arange(-400, 401) for start in (-14, -10, -5, -1, 0, 1, 3, 6, 10, 14)])
FLOATS = np.unique(np.concatenate([RUNS, [-15 * 2**20, 15 * 2**20]])) * STEP


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize(("mean", "sd"), [(-6.0, 0.5), (-3.0, 0.8), (-1.0, 1.0), (2.0, 1.0)])
def test_neighbouring_float32_scores_get_distinct_predictions_in_order(method, mean, sd):
    assert (FLOATS.astype(np.float32) == FLOATS).all()
    rng = np.random.default_rng(0)
    l = rng.normal(mean, sd, 20_000)
    p = calibrate(method, l, rng.random(20_000) < expit(l))(FLOATS)
    p = p[p < 0.999]  # nearer to 1 float64 has no room for them
    assert len(p) > 2000
    assert (np.diff(p) > 0).all()


@pytest.mark.parametrize("link", ["logistic", "probit", "log", "identity"])
@pytest.mark.parametrize("curvature", [False, True])
def test_vad_gives_neighbouring_float32_scores_distinct_predictions_in_order(link, curvature):
    rng = np.random.default_rng(0)
    pool = rng.normal(-3, 0.8, (5000, 1)) + 0.4 * rng.normal(size=(5000, 2))
    vad = VAD(link=link, curvature=curvature).fit(pool)
    inner = FLOATS[np.abs(FLOATS) < 7]  # beyond, φ of these links is 0 or 1 to rounding, or is clipped
    p = vad.predict_proba(FLOATS if link == "logistic" else inner)
    assert (np.diff(p) >= 0).all()
    assert (np.diff(vad.predict_proba(inner if link != "log" else inner[inner < 0])) > 0).all()


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_tandem_gives_neighbouring_float32_scores_distinct_predictions_in_order(method):
    rng = np.random.default_rng(0)
    truth = rng.normal(-3, 0.8, (20_000, 1))
    pool = truth + 0.4 * rng.normal(size=(20_000, 2))
    y = rng.random(20_000) < expit(truth[:, 0])
    vad = VAD(calibrator=method).fit(pool[:10_000], labelled=(pool[10_000:], y[10_000:]))
    assert (np.diff(vad.predict_proba(FLOATS)) > 0).all()
