"""The arena: worlds draw what they say, figures follow from draws alone, and one function adds to it."""

import dataclasses
import inspect
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from uncurse import UncurseError
from uncurse.links import logistic
from uncurse_lab import arena
from uncurse_lab.arena import METHODS, WORLDS, FittedMethod, dlrm, method, noisy, text, world, worlds
from uncurse_lab.arena.methods import ALONE, BUILT_IN, KINDS
from uncurse_lab.arena.page import render
from uncurse_lab.arena.run import pick
from uncurse_lab.arena.tables import LOW, ArenaCell, summarise

NOISE = [name for name in WORLDS if name not in ("logistic", "trees", "dlrm-28", "dlrm-4")]
PRESENT = ["vanilla", "platt", "isotonic + VAD", "VAD curved S=2"]


@pytest.fixture
def registries():
    """What a test registers is gone after it."""
    worlds, methods = dict(WORLDS), dict(METHODS)
    yield
    for registry, before in ((WORLDS, worlds), (METHODS, methods)):
        registry.clear()
        registry.update(before)


def small(rng):
    return noisy(rng, rate=0.2, labelled=3_000, rows=4_000)


def smaller(rng):
    return noisy(rng, rate=0.3, labelled=2_000, rows=3_000)


def half(draw):
    middle = draw.pool[:, 0].mean()
    return FittedMethod(lambda scores: logistic((scores[:, 0] + middle) / 2), lambda alpha, level: (-1.0, 0.0))


@pytest.fixture
def little(registries):
    world("small", "Four thousand rows.")(small)
    method("half")(half)


def draw_of(name, number=0):
    one = WORLDS[name]
    return one.draw(one.stream(0, number))


# ---------------------------------------------------------------------------- worlds


@pytest.mark.parametrize("name", NOISE)
def test_worlds_of_noise_have_the_rate_and_the_spread_they_say(name):
    draw = draw_of(name)
    rate = {"equal-noise-25": 0.25, "low-rate": 0.003}.get(name, 0.04)
    labelled = {"few-labels": 5_000, "many-labels": 1_000_000}.get(name, 200_000)
    assert draw.labelled.shape == (labelled, 6)
    assert draw.pool.shape == draw.test.shape == (200_000, 6)
    assert draw.replicas == "seeds"
    for truth in (draw.truth, draw.pool_truth):
        assert truth.mean() == pytest.approx(rate, rel=0.02)
    true = np.log(draw.truth / (1 - draw.truth))
    assert true.std() == pytest.approx(0.8, rel=0.05 if name == "heavy-tails" else 0.01)
    noise = (draw.test - true[:, None]).std(axis=0)
    low, high = {"unequal-noise": (0.05, 0.9), "heavy-tails": (0.05, 0.9), "top-of-request": (0.2, 0.4)}.get(
        name, (0.4, 0.4) if "shift" in name or name == "own-winners" else (0.3, 0.3)
    )
    uniform = np.sqrt((low**2 + low * high + high**2) / 3)  # the mean square of a uniform spread
    np.testing.assert_allclose(noise, uniform, rtol=0.02)


def test_heavy_tails_are_heavier_and_rows_with_more_noise_spread_in_all_columns():
    true = {n: np.log((d := draw_of(n)).truth / (1 - d.truth)) for n in ("unequal-noise", "heavy-tails")}
    top = {name: np.quantile(l - l.mean(), 0.999) for name, l in true.items()}
    assert top["heavy-tails"] > 1.3 * top["unequal-noise"]
    apart = np.abs(draw_of("unequal-noise").test - true["unequal-noise"][:, None])
    assert np.corrcoef(apart[:, 0], apart[:, 1])[0, 1] > 0.2


def test_shifted_labels_are_shifted():
    for name, shift, stretch in (("mean-shift", 0.6, 1.0), ("strong-shift", 0.5, 0.6)):
        draw = draw_of(name)
        assert draw.labelled.mean() - draw.pool.mean() == pytest.approx(shift, abs=0.01)
        true_variance = np.cov(draw.labelled[:, 0], draw.labelled[:, 1])[0, 1]
        assert np.sqrt(true_variance) == pytest.approx(0.8 * stretch, rel=0.02)


def test_the_logistic_world_is_the_papers():
    draw = draw_of("logistic")
    assert draw.labelled.shape == (3_000, 6)
    assert draw.pool.shape == (30_000, 6)
    assert draw.replicas == "bootstrap"
    assert draw.labels.mean() == pytest.approx(0.72, abs=0.03)
    assert draw.truth.mean() == pytest.approx(0.28, abs=0.01)
    beside = [np.corrcoef(draw.pool[:, i], draw.pool[:, j])[0, 1] for i, j in ((0, 1), (1, 2))]
    assert beside[0] > beside[1]  # a bootstrap is nearer to what it is drawn from than to another


def test_trees_overfit_and_their_features_shift(monkeypatch):
    pytest.importorskip("lightgbm", reason="needs LightGBM: pip install 'uncurse[lightgbm]'")
    monkeypatch.setattr(worlds, "_TREES_TRAIN", 4_000)
    monkeypatch.setattr(worlds, "_TREES_ROWS", 5_000)
    draw, again = draw_of("trees"), draw_of("trees")
    np.testing.assert_array_equal(draw.test, again.test)
    assert draw.labels.mean() > draw.truth.mean() + 0.02
    best = np.argsort(-draw.test[:, 0])[:250]
    assert logistic(draw.test[best, 0]).sum() > 1.1 * draw.truth[best].sum()
    assert np.corrcoef(draw.test.T)[0, 1] < 0.99


@pytest.mark.skipif(not worlds.DLRM_FILE.is_file(), reason=f"no {worlds.DLRM_FILE.name} beside the benchmarks")
def test_a_dlrm_draw_permutes_models_halves_the_pool_and_redraws_labels():
    for name, rate in (("dlrm-28", 0.28), ("dlrm-4", 0.045)):
        draw, other = draw_of(name), draw_of(name, 1)
        assert draw.labels.mean() == pytest.approx(rate, rel=0.05)
        assert draw.pool.shape == draw.test.shape
        assert draw.pool.shape[0] == draw.labelled.shape[0] // 2
        assert not np.array_equal(draw.pool, other.pool)
        assert 0.5 < np.corrcoef(np.log(draw.truth), draw.test[:, 0])[0, 1] < 1


def kept_logits(rows=400):
    rng = np.random.default_rng(0)
    true = rng.normal(-1, 1, (2, rows))
    scores = true[..., None] + rng.normal(0, 0.3, (2, rows, 6))
    return dlrm.Logits(scores[0], true[0], scores[1], true[1])


def test_logits_of_a_file_make_a_world_of_their_own(tmp_path):
    file = tmp_path / "kept.npz"
    file.write_bytes(dlrm.pack({"28-a": kept_logits()}))
    found = arena.run(["dlrm-28"], ["vanilla"], 2, alphas=[0.1], dlrm=file, processes=1)
    assert found.cell("dlrm-28", "vanilla", 0.1).count == 2
    with pytest.raises(UncurseError, match=r"kept.npz has no data set 4-…; train it anew"):
        arena.run(["dlrm-4"], ["vanilla"], 2, alphas=[0.1], dlrm=file, processes=1)
    with pytest.raises(UncurseError, match=r"there is no file .*absent.npz; python -m uncurse_lab.arena.dlrm"):
        arena.run(["dlrm-28"], ["vanilla"], 2, dlrm=tmp_path / "absent.npz")


def test_a_world_that_lacks_something_is_left_out_and_an_error_where_asked_for(registries, monkeypatch, tmp_path):
    WORLDS.clear()
    world("small", "Four thousand rows.")(small)
    WORLDS.update(worlds.dlrm_worlds(tmp_path / "absent.npz"))
    found = arena.run(None, ["vanilla"], 2, alphas=[0.1], processes=1)
    assert list(found.worlds) == ["small"]
    assert re.search(r"absent.npz; python -m uncurse_lab.arena.dlrm FILE", found.left_out["dlrm-28"])
    assert "left out: dlrm-28 needs the logits" in text.text(found)
    with pytest.raises(UncurseError, match="the world dlrm-4 needs the logits of trained models"):
        arena.run(["dlrm-4"], ["vanilla"], 2)
    monkeypatch.setattr(worlds, "find_spec", lambda name: None)
    assert worlds._lacks_lightgbm() == "needs LightGBM: pip install 'uncurse[lightgbm]'"


def test_the_same_number_is_the_same_draw_and_another_is_not():
    first, again, other = draw_of("few-labels"), draw_of("few-labels"), draw_of("few-labels", 1)
    np.testing.assert_array_equal(first.test, again.test)
    assert not np.array_equal(first.test, other.test)
    assert not np.array_equal(first.pool, first.test)
    assert not np.array_equal(first.pool[:, 0], draw_of("equal-noise-4").pool[:, 0])


# ---------------------------------------------------------------------------- running


def test_figures_are_the_same_for_any_company_and_any_number_of_processes(little):
    options = {"replications": 4, "seed": 3, "alphas": [0.05, 0.1]}
    alone = arena.run(["small"], ["half"], processes=1, **options)
    world("smaller", "Three thousand rows.")(smaller)
    company = arena.run(["smaller", "small"], ["vanilla", "half", "platt"], processes=2, **options)
    for alpha in options["alphas"]:
        assert alone.cell("small", "half", alpha) == company.cell("small", "half", alpha)
    assert arena.run(["small"], ["half"], processes=1, **{**options, "seed": 4}).cells != alone.cells


def test_errors_are_sums_over_the_best_by_the_served_score_against_the_truth(little):
    found = arena.run(["small"], ["vanilla", "half"], 3, seed=1, alphas=[0.1], processes=1)
    errors = []
    for number in range(3):
        draw = small(WORLDS["small"].stream(1, number))
        best = np.argsort(-draw.test[:, 0])[:400]
        errors.append(logistic(draw.test[best, 0]).sum() / draw.truth[best].sum() - 1)
    cell = found.cell("small", "vanilla", 0.1)
    assert cell.bias == pytest.approx(np.mean(errors), rel=1e-12)
    assert cell.bias_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3), rel=1e-12)
    assert cell.rms == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-12)
    assert cell.coverage is None
    oracle = found.cell("small", "oracle", 0.1)
    assert cell.ratio == pytest.approx(cell.rms / oracle.rms)
    assert (oracle.ratio, oracle.ratio_error) == (pytest.approx(1), 0)
    assert found.cell("small", "half", 0.1).coverage == 1  # it shrinks too much: errors from −1 to 0


def test_requests_keep_the_best_of_each(registries):
    @world("paired", "Pairs.")
    def paired(rng):
        draw = small(rng)
        return dataclasses.replace(draw, requests=np.arange(len(draw.test)) // 2)

    method("half")(half)
    found = arena.run(["paired"], ["vanilla", "half"], 2, alphas=[0.1, 0.5, 1.0], processes=1)
    assert found.get("paired", "vanilla", 0.1) is None  # a fifth of a row
    errors = []
    for number in range(2):
        draw = small(WORLDS["paired"].stream(0, number))
        winner = np.argmax(draw.test[:, 0].reshape(-1, 2), axis=1) + 2 * np.arange(len(draw.test) // 2)
        errors.append(logistic(draw.test[winner, 0]).sum() / draw.truth[winner].sum() - 1)
    assert found.cell("paired", "vanilla", 0.5).bias == pytest.approx(np.mean(errors), rel=1e-12)
    assert found.cell("paired", "half", 0.5).coverage is None  # intervals are of shares of a pool


def test_standard_errors_are_those_of_many_runs():
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(400):
        oracle = rng.normal(0, 1, 50)
        runs.append(summarise(("w", "m", 0.1), 0.5 + oracle + rng.normal(0, 0.5, 50), oracle, rng.random(50) < 0.9))
    for name in ("bias", "rms", "ratio", "coverage"):
        spread = np.std([getattr(cell, name) for cell in runs])
        stated = np.mean([getattr(cell, f"{name}_error") for cell in runs])
        assert stated == pytest.approx(spread, rel=0.15), name


def test_curvature_beats_platt_and_platt_beats_the_scores_as_served():
    found = arena.run(["equal-noise-4"], PRESENT, 4, alphas=[0.02, 0.1], processes=1)
    vanilla, platt, curved = (found.cell("equal-noise-4", name, 0.02) for name in (*PRESENT[:2], PRESENT[3]))
    assert vanilla.bias == pytest.approx(0.21, abs=0.02)
    assert curved.rms < platt.rms < vanilla.rms / 5
    assert abs(curved.bias) < 0.003 + 3 * curved.bias_error


def test_what_needs_independent_replicas_does_not_apply_to_bootstraps():
    draw = draw_of("logistic")
    for name in ("double learning", "VAD S=6", "weighted platt"):  # the last for want of overlap
        assert isinstance(METHODS[name].fit(draw), str)
    assert isinstance(METHODS["VAD S=3"].fit(draw), FittedMethod)
    found = arena.run(["logistic"], ["double learning", "VAD"], 2, alphas=[0.1], processes=1)
    assert list(found.table("logistic")) == ["VAD S=2", "VAD S=3", "oracle"]
    assert "left out: double learning in logistic, 2 of 2 draws: needs replicas by seed" in text.text(found)


def test_a_method_that_does_not_apply_to_one_draw_is_named_in_every_output(little):
    seen = []

    @method("sometimes")
    def sometimes(draw):
        seen.append(draw)
        return "the scores are odd" if len(seen) == 2 else half(draw)

    found = arena.run(["small"], ["vanilla", "sometimes"], 3, alphas=[0.1], processes=1)
    line = "sometimes in small, 1 of 3 draws: the scores are odd"
    assert found.get("small", "sometimes", 0.1) is None
    with pytest.raises(
        UncurseError, match=r"has no cells in small \(1 of 3 draws: the scores are odd\); `get` returns"
    ):
        found.cell("small", "sometimes", 0.1)
    assert f"left out: {line}" in text.text(found)
    assert line in text.markdown(found)
    assert line in render(found)
    assert json.loads(found.to_json())["dropped"][0]["draws"] == 1


def test_importance_weights_undo_a_shift_of_the_noiseless_score():
    rng = np.random.default_rng(0)
    draw = noisy(rng, rate=0.2, noise=1e-9, shift=0.5, labelled=100_000, rows=50_000)
    bent = {name: -np.exp(-getattr(draw, name)) for name in ("labelled", "pool", "test")}
    draw = dataclasses.replace(draw, **bent)  # no line is right here, but one is less wrong where it looks
    fits = {name: METHODS[name].fit(draw) for name in ("platt", "weighted platt")}
    errors = {name: fit.predict(draw.test).sum() / draw.truth.sum() - 1 for name, fit in fits.items()}
    assert abs(errors["weighted platt"]) < 0.5 * abs(errors["platt"])


def test_a_method_that_fails_is_an_error_that_names_it(little):
    @method("broken")
    def broken(draw):
        raise UncurseError("no luck")

    with pytest.raises(UncurseError, match="broken fails in small, replication 0: no luck"):
        arena.run(["small"], ["broken"], 2, alphas=[0.1], processes=1)
    method("mistaken")(lambda draw: draw.scores)
    with pytest.raises(UncurseError, match=r"mistaken fails in small, replication 0: AttributeError: .*'scores'"):
        arena.run(["small"], ["mistaken"], 2, alphas=[0.1], processes=1)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            FittedMethod(lambda scores: logistic(scores)),
            r"predictions have shape \(4000, 6\).*one probability for each",
        ),
        (FittedMethod(lambda scores: scores[:, 0]), "lie between -.*one probability for each of the 4,000 rows"),
        (lambda scores: logistic(scores[:, 0]), "it returns a function; return a FittedMethod, or a text"),
        (None, "it returns None; return a FittedMethod, or a text on why it does not apply"),
        (
            FittedMethod(lambda scores: logistic(scores[:, 0]), interval=lambda alpha, level: (0.1, -0.1)),
            r"its interval is not a pair \(low, high\) for each α; return the lower bound first",
        ),
    ],
)
def test_a_method_must_return_one_probability_for_each_row(little, made, reason):
    method("odd")(lambda draw: made)
    with pytest.raises(UncurseError, match=f"odd fails in small, replication 0: .*{reason}"):
        arena.run(["small"], ["odd"], 2, alphas=[0.1], processes=1)


def test_a_world_must_return_a_draw(registries):
    world("odd", "A tuple.")(lambda rng: (1, 2))
    with pytest.raises(UncurseError, match="the world odd fails in replication 0: it returns a tuple; return a Draw"):
        arena.run(["odd"], ["vanilla"], 2, alphas=[0.1], processes=1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"truth": lambda d: d.test[:, 0]}, "truth lies between -.*return probabilities, not logits"),
        ({"pool_truth": lambda d: d.pool_truth[1:]}, r"pool_truth has shape \(3999,\); return shape \(4000,\)"),
        ({"truth": lambda d: np.full(4_000, np.nan)}, "truth lies between nan and nan"),
        ({"labels": lambda d: d.labels + 0.5}, "labels has values other than 0 and 1"),
        ({"pool": lambda d: np.where(d.pool > 1, np.inf, d.pool)}, "pool has scores that are not finite"),
        ({"test": lambda d: d.test[:, :3]}, r"test has shape \(4000, 3\); return rows × models"),
        ({"labelled": lambda d: d.labelled[:, 0]}, r"labelled has shape \(3000,\); return rows × models"),
        ({"requests": lambda d: np.arange(4_000) / 2}, "requests is not a number from 0 for each test row"),
        ({"requests": lambda d: np.arange(4_000) // 3}, "requests have different numbers of rows"),
    ],
)
def test_a_draw_must_have_probabilities_and_finite_scores_of_one_shape(registries, changes, reason):
    @world("odd", "Not what it should be.")
    def odd(rng):
        draw = small(rng)
        return dataclasses.replace(draw, **{name: change(draw) for name, change in changes.items()})

    with pytest.raises(UncurseError, match=f"the world odd fails in replication 0: {reason}"):
        arena.run(["odd"], ["vanilla"], 2, alphas=[0.1], processes=1)


def test_an_error_inside_a_world_names_it(registries):
    world("broken", "Divides by zero.")(lambda rng: 1 / 0)
    with pytest.raises(UncurseError, match="the world broken fails in replication 0: ZeroDivisionError"):
        arena.run(["broken"], ["vanilla"], 2, processes=1)


def test_an_ensemble_of_six_needs_six_models(registries):
    @world("three", "Three models.")
    def three(rng):
        draw = small(rng)
        columns = {name: getattr(draw, name)[:, :3] for name in ("labelled", "pool", "test")}
        return dataclasses.replace(draw, **columns)

    found = arena.run(["three"], ["vanilla", "ensemble of 6", "VAD S=6"], 2, alphas=[0.1], processes=1)
    assert list(found.table("three")) == ["vanilla", "oracle"]
    assert {one.method: one.reason for one in found.dropped} == {
        "ensemble of 6": "needs 6 models, and there are 3",
        "VAD S=6": "needs 6 models, the served one among them, and there are 3",
    }


def test_an_unknown_kind_is_refused(registries):
    with pytest.raises(UncurseError, match=r"kind='mine' is unknown; choose one of vanilla, calibrator, .*oracle"):
        method("odd", kind="mine")


def test_signatures_in_the_reference_show_no_addresses():
    for name in arena.__all__:
        if callable(value := getattr(arena, name)):
            assert " at 0x" not in str(inspect.signature(value)), name


@pytest.mark.parametrize(("replications", "few"), [(19, True), (20, False)])
def test_bars_of_few_replications_are_said_to_mean_little(replications, few):
    cells = {("few-labels", "auto"): (1.1, None), ("few-labels", "vanilla"): (9.0, None)}
    found = dataclasses.replace(made_of(cells=cells), replications=replications)
    warning = f"ith {replications} replications, bars that are met or missed mean little; run 20 or more"
    for output in (text.text(found), text.markdown(found), render(found)):
        assert (warning in output) == few


def test_the_oracle_is_not_called_the_best():
    found = arena.run(["few-labels"], ["vanilla"], 2, alphas=[0.1], processes=1)
    for output in (text.text(found), text.markdown(found), render(found)):
        flat = " ".join(output.split())
        assert "true probabilities of the pool" in flat
        assert "parametric map of the right form can have a smaller error" in flat


def test_every_method_has_a_known_kind_and_a_name_of_its_own():
    assert {one.kind for one in METHODS.values()} == set(KINDS)
    assert all(name == one.name for name, one in METHODS.items())
    assert "double learning" not in [n for n, one in METHODS.items() if one.kind in ALONE]
    for name in (*arena.MAIN, *arena.QUICK):
        assert name in METHODS


def test_unknown_names_and_too_few_replications_are_refused():
    with pytest.raises(UncurseError, match=r"world='mars' is unknown; choose from equal-noise-4, .*dlrm-4"):
        arena.run(["mars"])
    with pytest.raises(UncurseError, match=r"method='magic' is unknown; choose from vanilla, platt, .*oracle"):
        arena.run(["few-labels"], ["magic"])
    with pytest.raises(UncurseError, match="replications=1; a standard error needs at least 2"):
        arena.run(replications=1)
    with pytest.raises(UncurseError, match="alpha"):
        arena.run(["few-labels"], ["vanilla"], alphas=[0.0])


# ---------------------------------------------------------------------------- what is found


def made_of(**rms):
    """An arena of one α from rms by (world, method), in percent."""
    cells = tuple(
        ArenaCell(w, m, 0.05, value / 100, 0.001, value / 100, 0.001, 1.0, 0.0, covered, 0.03, 100)
        for (w, m), (value, covered) in rms["cells"].items()
    )
    worlds = {c.world: "" for c in cells}
    kinds = {c.method: METHODS[c.method].kind for c in cells}
    return arena.Arena(cells, worlds, kinds, (0.05,), 100, 0, {})


def test_bars_are_met_or_missed_by_their_figures():
    cells = {
        ("dlrm-28", "Tower S=3"): (0.36, 0.91),
        ("dlrm-28", "isotonic + VAD"): (0.64, None),
        ("dlrm-28", "platt"): (0.9, None),
        ("low-rate", "Tower S=3"): (2.4, 0.80),
        ("low-rate", "platt"): (2.0, None),
        ("unequal-noise", "free S=3"): (1.6, None),
        ("unequal-noise", "oracle"): (1.4, None),
    }
    judged = {verdict.claim: verdict for verdict in arena.judge(made_of(cells=cells))}
    found = {claim: verdict.met for claim, verdict in judged.items()}
    assert found == {
        "Tower S=3: rms at most 0.7 of the best of 2 calibrators and tandems of the paper on dlrm-28 from α = 5%": True,
        "Tower S=3: rms at most 1.1 of the best of 2 calibrators and tandems of the paper in every world": False,
        "Tower S=3: rms at most 1.1 of Platt's where labels are scarce": False,
        "free S=3: bias within 1.5 points in worlds of unequal noise": False,
        "free S=3: rms at most 1.25 of the oracle's there": True,
        "Tower S=3: intervals stated at 90% hold 85% to 95%, up to 2 standard errors": True,
    }
    worst = judged["Tower S=3: rms at most 1.1 of the best of 2 calibrators and tandems of the paper in every world"]
    assert (worst.missed, worst.count) == (1, 2)
    assert worst.worst == "1.20 (low-rate, α = 5%: 2.40% against 2.00% of platt)"
    held = judged["Tower S=3: intervals stated at 90% hold 85% to 95%, up to 2 standard errors"]
    assert held.worst.startswith("80% ± ")
    assert held.worst.endswith("(low-rate)")


def test_auto_is_held_against_the_best_that_serves_one_model():
    cells = {
        ("few-labels", "auto"): (1.1, None),
        ("few-labels", "platt"): (1.0, None),
        ("few-labels", "vanilla"): (9.0, None),
        ("few-labels", "ensemble of 6"): (0.1, None),
        ("few-labels", "oracle"): (0.1, None),
    }
    assert [verdict.met for verdict in arena.judge(made_of(cells=cells))] == [True, True]
    cells["few-labels", "auto"] = (1.2, None)
    assert [verdict.met for verdict in arena.judge(made_of(cells=cells))] == [False, True]
    assert LOW == 0.01


def test_the_summary_has_every_method_of_a_user(registries):
    built_in = [name for name in METHODS if name in BUILT_IN]  # a page of the docs that ran before may have added one
    method("own way")(half)
    cells = {("few-labels", name): (1.0, None) for name in [*built_in, "own way"]}
    header = text.summary(made_of(cells=cells))[0]
    assert header == ("world", "the best", *arena.MAIN[:-1], "own way", "oracle")


def test_the_title_of_the_summary_names_its_share():
    found = made_of(cells={("few-labels", "vanilla"): (1.0, None)})  # at 5% only
    for output in (text.text(found), text.markdown(found)):
        assert "rms in percent on the top 5%" in output
    assert "Root mean square error in percent on the top 5%" in render(found)


def test_bars_do_not_count_methods_that_were_left_out():
    cells = {("few-labels", name): (1.0, None) for name in ("auto", "platt", "vanilla", "Tower S=3")}
    made = made_of(cells=cells)
    made = dataclasses.replace(made, methods=made.methods | {"isotonic": "calibrator", "VAD S=2": "vad"})
    claims = [verdict.claim for verdict in arena.judge(made)]
    assert "auto: rms at most 1.15 of the best of 3 other methods in every world" in claims
    assert "Tower S=3: rms at most 1.1 of the best of 1 calibrators and tandems of the paper in every world" in claims


def test_json_holds_cells_and_verdicts(little):
    found = arena.run(["small"], ["vanilla", "half"], 2, alphas=[0.05, 1.0], processes=1)
    content = json.loads(found.to_json())
    assert content["cells"] == [cell.to_dict() for cell in found.cells]
    assert set(content["cells"][0]) == {field.name for field in dataclasses.fields(arena.ArenaCell)} - {"errors"}
    for cell in found.cells:
        assert (np.mean(cell.errors), len(cell.errors)) == (pytest.approx(cell.bias), cell.count)
    assert content["verdicts"][-1]["claim"].startswith("half: intervals")
    with pytest.raises(UncurseError, match="no cell for world='small', method='platt', alpha=1"):
        found.cell("small", "platt", 1.0)
    with pytest.raises(UncurseError, match="world='mars' is unknown"):
        found.table("mars")


def test_the_name_of_a_family_is_all_its_members():
    assert pick(["vad"], {"VAD S=2": 1, "VAD S=3": 2, "VAD(p) S=2": 3}, "method") == [1, 2]


def test_numbers_have_three_figures_and_at_most_two_decimals():
    assert [text.number(1.234), text.number(23.45), text.number(-123.4, "+")] == ["1.23", "23.4", "-123"]


def test_tables_have_the_best_first_and_mark_it(little):
    found = arena.run(["small"], ["vanilla", "half", "platt"], 3, processes=1)
    head, *rows = text.world_table(found, "small")
    assert head == ("method", "0.5%", "1%", "2%", "5%", "10%", "100%", "× oracle", "90% held")
    ratios = [float(row[-2]) for row in rows]
    assert ratios == sorted(ratios)
    for column in range(1, 7):
        assert sum(row[column].endswith("*") for row in rows) == 1
    lines = text.text(found).splitlines()
    assert max(map(len, lines)) <= 120
    assert "half" in text.markdown(found)
    assert len(text.records(found)) == len(found.cells)


def test_the_page_draws_every_world_and_takes_no_name_for_markup(registries):
    hostile = "</script><script>alert(1)</script>"
    world(hostile, "<b>bold</b> & text")(small)
    method("<i>half</i>")(half)
    found = arena.run([hostile], ["vanilla", "<i>half</i>"], 2, processes=1)
    page = render(found, f"uncurse-lab arena --world {hostile!r}")
    assert page.count("<svg class=") + page.count("<svg ") >= 2
    assert "<script" not in page
    assert "<i>half" not in page
    assert "<b>bold" not in page
    assert "&lt;i&gt;half&lt;/i&gt;" in page
    assert not re.search(r"src=|href=\"[^#]", page)
    assert "light-dark(" in page
    for drawn in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        ET.fromstring(drawn)


# ---------------------------------------------------------------------------- the command


def test_the_command_prints_records_and_writes_every_file(tmp_path, run, one_process, little):
    words = ["--world", "small", "--method", "vanilla", "--method", "vad", "--replications", "2"]
    files = ["--markdown", "r.md", "--report", "r.html"]
    found = json.loads(run("arena", *words, *files, "--format", "json"))
    assert {cell["method"] for cell in found["cells"]} == {"vanilla", "VAD S=2", "VAD S=3", "VAD S=6", "oracle"}
    assert "### small" in (tmp_path / "r.md").read_text()
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_the_command_names_what_it_knows(run):
    assert run("arena", "--world", "mars", code=2).startswith(
        "uncurse: world='mars' is unknown; choose from equal-noise-4, equal-noise-25,"
    )
