"""Fit for the winners of requests: simulated requests, of which the true rates are known."""

import numpy as np
import pytest
from scipy.special import expit

from uncurse import VAD, Auto, UncurseError, load
from uncurse.evidence import Evidence, LogSpec
from uncurse.evidence.from_arrays import from_arrays
from uncurse.metrics import top_k

WORLDS = {  # standard deviation of the level of requests, within requests, and of the noise that a request shares
    "requests alike": (0.0, 1.0, 0.0, 20),
    "requests differ": (0.8, 1.0, 0.0, 20),
    "requests share noise": (0.8, 1.0, 0.3, 20),
    "little spread within requests": (0.8, 0.3, 0.0, 50),
}


def draw(seed, world="requests differ", kind="seeds", columns=3, requests=4_000):
    """Return request, true log odds and scores of the candidates of simulated requests."""
    rng = np.random.default_rng(seed)
    level, within, shared, size = WORLDS[world]
    request = np.repeat(np.arange(requests), size)
    rows = len(request)
    true = -3 + level * rng.standard_normal(requests)[request] + within * rng.standard_normal(rows)

    def noise(count):
        own = 0.4 * rng.standard_normal((rows, count))
        return own + shared * rng.standard_normal((requests, count))[request]

    if kind == "bootstrap":
        served = true[:, None] + noise(1)
        return request, true, np.hstack([served, served + noise(columns - 1)])
    return request, true, true[:, None] + noise(columns)


def served_of(scores, kind):
    return scores.mean(axis=1) if kind == "ensemble" else scores[:, 0]


def error_of_winners(fitted, seed, kind="seeds", k=1, bid=None, **options):
    """Return the error of the predictions of the winners of another draw, and of the served ones."""
    request, true, scores = draw(seed, kind=kind, **options)
    served = served_of(scores, kind)
    won = top_k(served if bid is None else bid(len(served)) * expit(served), request, k)
    truth = expit(true[won]).mean()
    return fitted.predict_proba(served[won]).mean() / truth - 1, expit(served[won]).mean() / truth - 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("kind", "columns"), [("seeds", 2), ("seeds", 3), ("bootstrap", 3), ("ensemble", 3)])
def test_replicas_at_the_winners_remove_their_luck(world, kind, columns):
    request, _, scores = draw(1, world, kind, columns)
    fitted = Auto(scale="logit", replicas=kind).fit(scores, request=request)
    error, served = error_of_winners(fitted, 2, kind, world=world, columns=columns)
    assert abs(error) < (0.04 if kind == "bootstrap" else 0.025)  # four standard errors of 4,000 winners
    assert served > 0.045
    low, high = fitted.interval(1.0)
    assert low - 0.025 < error < high + 0.025
    if kind == "seeds" and world == "little spread within requests":
        of_the_pool = VAD(scale="logit", replicas=kind).fit(scores)
        assert error_of_winners(of_the_pool, 2, kind, world=world, columns=columns)[0] > 0.2


def test_labeled_rows_with_other_scores_are_not_taken_for_lucky_by_snapshots():
    """An earlier checkpoint varies less, so it falls behind where scores are higher than on the pool."""

    def rows(seed, mean):
        request, true, scores = draw(seed, requests=2_000)
        scores = scores + mean
        return request, true + mean, np.hstack([scores[:, :1], 0.8 * scores[:, 1:]])

    request, _, pool = rows(1, 0.0)
    _, true, scores = rows(4, 0.5)
    labels = np.random.default_rng(5).random(len(true)) < expit(true)
    auto = Auto(scale="logit", replicas="snapshots")
    fitted = auto.fit(pool, request=request, labeled=(scores, labels), labels_from="elsewhere")
    assert abs(error_of_winners(fitted, 2)[0]) < 0.05


def test_the_best_k_by_value_times_probability():
    request, _, scores = draw(1)

    def bid(rows):
        return np.random.default_rng(3).lognormal(0, 0.5, rows)

    fitted = Auto(scale="logit", replicas="seeds").fit(scores, request=request, top_k=3, value=bid(len(scores)))
    error, served = error_of_winners(fitted, 2, k=3, bid=bid)
    assert abs(error) < 0.015 < 0.08 < served
    assert fitted.record_.top_k == 3


def labels_of(true, seed=5):
    return (np.random.default_rng(seed).random(len(true)) < expit(true)).astype(int)


def test_labels_give_the_curve_and_replicas_the_luck():
    """A model that is overconfident as a whole: replicas alone do not show it."""
    request, true, scores = draw(1)
    scores = -3 + 1.3 * (scores + 3)
    rows = np.random.default_rng(4).integers(0, len(true), 40_000)
    labeled = scores[rows], labels_of(true[rows])
    auto = Auto(scale="logit", replicas="seeds")
    alone = auto.fit(scores, request=request).predict_proba(scores[:, 0])
    with_labels = auto.fit(scores, labeled=labeled, labels_from="elsewhere", request=request)
    won = top_k(scores[:, 0], request, 1)
    truth = expit(true[won]).mean()
    assert alone[won].mean() / truth > 1.1
    error = with_labels.predict_proba(scores[won, 0]).mean() / truth - 1
    low, high = with_labels.interval(1.0)
    assert abs(error) < 0.05
    assert high - low < 0.15


def test_labels_of_winners_correct_what_the_replicas_do_not_show():
    request, true, scores = draw(1)
    scores = -3 + 1.3 * (scores + 3)
    won = top_k(scores[:, 0], request, 1)
    half = won & (request % 2 == 0)
    fitted = Auto(scale="logit", replicas="seeds").fit(
        scores, labeled=(scores[half], labels_of(true[half])), labels_from="winners", request=request
    )
    rest = won & ~half
    assert abs(fitted.predict_proba(scores[rest, 0]).mean() / expit(true[rest]).mean() - 1) < 0.1


def test_map_file_line_and_record_refer_to_the_winners(tmp_path):
    request, _, scores = draw(1)
    auto = Auto(scale="logit", replicas="seeds").fit(scores, request=request)
    auto.save(tmp_path / "map.json")
    loaded = load(tmp_path / "map.json")
    assert loaded.record == auto.record_
    assert loaded.interval(0.5) == auto.interval(0.5)
    assert auto.record_.pool.rows == 4_000
    won = top_k(scores[:, 0], request, 1)
    line = auto.to_affine()
    curve = auto.predict_proba(scores[won, 0]).mean()
    assert abs(line(scores[won, 0]).mean() / curve - 1) <= line.max_error + 1e-3 < 0.02


def test_identical_replicas_leave_the_scores_alone():
    request, _, scores = draw(1, columns=1)
    with pytest.warns(UserWarning, match="replicas are identical"):
        fitted = Auto(scale="logit", replicas="seeds").fit(np.hstack([scores, scores]), request=request)
    np.testing.assert_allclose(fitted.predict_proba(scores[:9, 0]), expit(scores[:9, 0]))
    with pytest.raises(UncurseError, match="identical"):
        fitted.interval(1.0)


def test_snapshots_have_no_intervals_without_labels():
    request, _, scores = draw(1, kind="snapshots")
    fitted = Auto(scale="logit", replicas="snapshots").fit(scores, request=request)
    assert abs(error_of_winners(fitted, 2)[0]) < 0.025
    with pytest.raises(UncurseError, match="snapshots of one training"):
        fitted.interval(1.0)


def pool_of(scores) -> Evidence:
    return from_arrays(scores, spec=LogSpec(("a", "b", "c"), "logit"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 2}, "pass request"),
        ({"value": np.ones(80_000)}, "pass request"),
        (
            {"request": np.zeros(80_000, int), "segments": np.zeros(80_000, int)},
            "segments, weights and teacher",
        ),
        ({"request": [1, 2]}, "request has"),
        ({"request": np.arange(80_000)}, "no request has more than 1 rows"),
        ({"request": np.zeros(80_000, int)}, "too few different winners of requests: 1"),
        ({"request": np.arange(80_000) // 20, "top_k": 0}, "top_k"),
        ({"request": np.arange(80_000) // 20, "value": -np.ones(80_000)}, "negative or not finite"),
    ],
)
def test_bad_requests_are_refused(options, message):
    scores = draw(1)[2]
    with pytest.raises(UncurseError, match=message):
        Auto(scale="logit", replicas="seeds").fit(scores, **options)
    with pytest.raises(UncurseError, match="rows of the pool"):
        Auto(scale="logit", replicas="seeds").fit(pool_of(scores), request=np.zeros(80_000))
