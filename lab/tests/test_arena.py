"""The arena: worlds draw what they say, figures follow from draws alone, and one function adds to it."""

import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from uncurse import UncurseError
from uncurse.links import logistic
from uncurse_lab import arena, render
from uncurse_lab.arena import METHODS, WORLDS, ArenaCell, FittedMethod, dlrm, method, noisy, world, worlds
from uncurse_lab.arena.methods import BUILT_IN, MAIN

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
    return noisy(rng, rate=0.2, labeled=3_000, rows=4_000)


def smaller(rng):
    return noisy(rng, rate=0.3, labeled=2_000, rows=3_000)


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


def test_heavy_tails_are_heavier_and_rows_with_more_noise_spread_in_all_columns():
    true = {n: np.log((d := draw_of(n)).truth / (1 - d.truth)) for n in ("unequal-noise", "heavy-tails")}
    top = {name: np.quantile(l - l.mean(), 0.999) for name, l in true.items()}
    assert top["heavy-tails"] > 1.3 * top["unequal-noise"]
    apart = np.abs(draw_of("unequal-noise").test - true["unequal-noise"][:, None])
    assert np.corrcoef(apart[:, 0], apart[:, 1])[0, 1] > 0.2


def test_shifted_labels_are_shifted():
    for name, shift, stretch in (("mean-shift", 0.6, 1.0), ("strong-shift", 0.5, 0.6)):
        draw = draw_of(name)
        assert draw.labeled.mean() - draw.pool.mean() == pytest.approx(shift, abs=0.01)
        true_variance = np.cov(draw.labeled[:, 0], draw.labeled[:, 1])[0, 1]
        assert np.sqrt(true_variance) == pytest.approx(0.8 * stretch, rel=0.02)


def test_the_logistic_world_is_the_papers():
    draw = draw_of("logistic")
    assert draw.labeled.shape == (3_000, 6)
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
        assert draw.pool.shape[0] == draw.labeled.shape[0] // 2
        assert not np.array_equal(draw.pool, other.pool)
        assert 0.5 < np.corrcoef(np.log(draw.truth), draw.test[:, 0])[0, 1] < 1


def test_logits_are_packed_to_steps_of_their_size():
    rng = np.random.default_rng(0)
    true = rng.normal(-1, 1, (2, 400))
    scores = true[..., None] + rng.normal(0, 0.3, (2, 400, 6))
    packed = dlrm.pack({"28-a": dlrm.Logits(scores[0], true[0], scores[1], true[1])})
    (found,) = dlrm.unpack(io.BytesIO(packed)).values()
    np.testing.assert_allclose(found.pool, scores[1], atol=1 / 32 + 1 / 128)
    np.testing.assert_allclose(found.labeled_truth, true[0], atol=1 / 128)


def test_a_world_that_lacks_something_is_left_out_and_an_error_where_asked_for(registries):
    WORLDS.clear()
    world("small", "Four thousand rows.")(small)
    world("large", "A world that is not here.", lacks=lambda: "needs a library")(small)
    found = arena.run(None, ["vanilla"], 2, alphas=[0.1], processes=1)
    assert list(found.worlds) == ["small"]
    assert "left out: large: needs a library" in str(found)
    with pytest.raises(UncurseError, match="the world large needs a library"):
        arena.run(["large"], ["vanilla"], 2)


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
    assert {cell.method for cell in found.cells} == {"VAD S=2", "VAD S=3", "oracle"}
    assert "left out: double learning in logistic: 2 of 2 draws: needs replicas by seed" in str(found)


def test_a_method_that_does_not_apply_to_one_draw_is_named_in_every_output(little):
    seen = []

    @method("sometimes")
    def sometimes(draw):
        seen.append(draw)
        return "the scores are odd" if len(seen) == 2 else half(draw)

    found = arena.run(["small"], ["vanilla", "sometimes"], 3, alphas=[0.1], processes=1)
    assert found.get("small", "sometimes", 0.1) is None
    with pytest.raises(UncurseError, match=r"no cell of 'sometimes' in 'small' .* 1 of 3 draws: the scores are odd"):
        found.cell("small", "sometimes", 0.1)
    line = "sometimes in small: 1 of 3 draws: the scores are odd"
    assert any(line in sentence for sentence in found.page("").sections[0].prose)
    for output in (str(found), render.markdown(found.parts())):
        assert line in output
    assert "sometimes in small" in json.loads(found.to_json())["left_out"]


def test_importance_weights_undo_a_shift_of_the_noiseless_score():
    rng = np.random.default_rng(0)
    draw = noisy(rng, rate=0.2, noise=1e-9, shift=0.5, labeled=100_000, rows=50_000)
    bent = {name: -np.exp(-getattr(draw, name)) for name in ("labeled", "pool", "test")}
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
        (None, "AttributeError: .*'predict'"),
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


@pytest.mark.parametrize(
    ("draw", "reason"),
    [(lambda rng: (1, 2), "AttributeError"), (lambda rng: 1 / 0, "ZeroDivisionError")],
)
def test_a_world_that_fails_is_an_error_that_names_it(registries, draw, reason):
    world("odd", "No draw.")(draw)
    with pytest.raises(UncurseError, match=f"the world odd fails in replication 0: {reason}"):
        arena.run(["odd"], ["vanilla"], 2, alphas=[0.1], processes=1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"truth": lambda d: d.test[:, 0]}, "truth has .*return a probability, not a logit"),
        ({"pool_truth": lambda d: d.pool_truth[1:]}, r"pool_truth has shape \(3999,\)"),
        ({"labels": lambda d: d.labels / 2}, "labels has values other than 0 and 1"),
        ({"pool": lambda d: np.where(d.pool > 1, np.inf, d.pool)}, "pool has scores that are not finite"),
        ({"test": lambda d: d.test[:, :3]}, r"test has shape \(4000, 3\); return rows × models"),
        ({"labeled": lambda d: d.labeled[:, 0]}, r"labeled has shape \(3000,\); return rows × models"),
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


def test_the_summary_has_every_method_of_a_user(registries):
    built_in = [name for name in METHODS if name in BUILT_IN]  # a page of the docs that ran before may have added one
    method("own way")(half)
    names = [*built_in, "own way"]
    figures = (0.01, 0.001, 0.01, 0.001, 1.0, 0.0, None, None, 100)
    cells = tuple(ArenaCell("few-labels", name, 0.05, *figures) for name in names)
    serves_one = {name: METHODS[name].serves_one for name in names}
    found = arena.Arena(cells, {"few-labels": ""}, serves_one, (0.05,), 100, 0, {})
    assert found.summary()[0] == ("world", "the best", *MAIN[:-1], "own way", "oracle")
    assert "rms in percent on the top 5%" in str(found)


def test_json_holds_cells(little):
    found = arena.run(["small"], ["vanilla", "half"], 2, alphas=[0.05, 1.0], processes=1)
    content = json.loads(found.to_json())
    assert set(content["cells"][0]) == {field.name for field in dataclasses.fields(ArenaCell)} - {"errors"}
    for cell, kept in zip(found.cells, content["cells"], strict=True):
        assert all(getattr(cell, name) == value for name, value in kept.items())
        assert (np.mean(cell.errors), len(cell.errors)) == (pytest.approx(cell.bias), cell.count)
    with pytest.raises(UncurseError, match="no cell of 'platt' in 'small' at 1"):
        found.cell("small", "platt", 1.0)


def test_tables_have_the_best_first_and_mark_it(little):
    found = arena.run(["small"], ["vanilla", "half", "platt"], 3, processes=1)
    head, *rows = found.world_table("small")
    assert head == ("method", "0.5%", "1%", "2%", "5%", "10%", "100%", "× oracle", "90% held")
    ratios = [float(row[-2]) for row in rows]
    assert ratios == sorted(ratios)
    for column in range(1, 7):
        assert sum(row[column].endswith("*") for row in rows) == 1
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 120
    assert "half" in render.markdown(found.parts())


def test_the_page_draws_every_world_and_takes_no_name_for_markup(registries, tmp_path):
    hostile = "</script><script>alert(1)</script>"
    world(hostile, "<b>bold</b> & text")(small)
    method("<i>half</i>")(half)
    found = arena.run([hostile], ["vanilla", "<i>half</i>"], 2, processes=1)
    found.page(f"uncurse-lab arena --world {hostile!r}").to_html(tmp_path / "arena.html")
    page = (tmp_path / "arena.html").read_text()
    assert "<script" not in page
    assert "<i>half" not in page
    assert "<b>bold" not in page
    assert "&lt;i&gt;half&lt;/i&gt;" in page
    assert not re.search(r"src=|href=\"[^#]", page)
    drawn = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(drawn) == 2 * 2  # all worlds and this one, for desktops and phones
    for svg in drawn:
        ET.fromstring(svg)


def test_the_page_leads_with_how_often_auto_is_near_the_oracle(little):
    found = arena.run(["small"], ["vanilla", "auto"], 2, processes=1)
    ratio = found.cell("small", "auto", 0.02).ratio
    assert found.page("").headline.startswith("Auto is within 1.5 times" if ratio <= 1.5 else "3 methods in 1 settings")


# ---------------------------------------------------------------------------- the command


def test_the_command_prints_records_and_writes_every_file(tmp_path, run, one_process, little):
    words = ["--world", "small", "--method", "vanilla", "--method", "vad", "--replications", "2"]
    files = ["--markdown", "r.md", "--report", "r.html"]
    found = json.loads(run("arena", *words, *files, "--format", "json"))
    assert {cell["method"] for cell in found["cells"]} == {"vanilla", "VAD S=2", "VAD S=3", "VAD S=6", "oracle"}
    assert "**small: " in (tmp_path / "r.md").read_text()
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_the_command_names_what_it_knows(run):
    assert run("arena", "--world", "mars", code=2).startswith(
        "uncurse: world='mars' is unknown; choose from equal-noise-4, equal-noise-25,"
    )
