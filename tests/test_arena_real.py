"""The arena on real logs: splits share no row and no label, figures follow from labels, errors are what they say."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from uncurse import UncurseError
from uncurse.experiments.arena import (
    METHODS,
    Draw,
    Fitted,
    method,
    real,
    real_data,
    real_models,
    real_tables,
    real_text,
)
from uncurse.experiments.arena.real_data import Held, Selection, Source, open_real
from uncurse.links import logistic
from uncurse.metrics.selection import top_k, top_share

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
FEW = ["vanilla", "isotonic + VAD recentred", "Tower S=3"]


def zipped(path, lines):
    with gzip.open(path, "wt") as stream:
        stream.write("\n".join(lines) + "\n")


def unzipped(path):
    with gzip.open(path, "rt") as stream:
        return stream.read().splitlines()


def write_movielens(folder, users=40, items=80, each=240, flip=None):
    """Ratings of users with tastes, in the format of MovieLens; `flip` turns the labels of rows from that time on."""
    rng = np.random.default_rng(0)
    taste, merit = rng.normal(0, 1, (users, 2)), rng.normal(0, 1, (items, 2))
    user, item = np.repeat(np.arange(users), each), rng.integers(0, items, users * each)
    time = rng.permutation(users * each)
    likes = rng.random(users * each) < logistic(0.3 + merit[item, 0] + (taste[user] * merit[item]).sum(axis=1))
    if flip is not None:
        likes = likes ^ (time >= flip)
    rating = np.where(likes, rng.integers(4, 6, len(likes)), rng.integers(1, 4, len(likes)))
    head = "user_id:token\titem_id:token\trating:float\ttimestamp:float"
    rows = (f"u{u}\tFilm {i}\t{r}\t{t}" for u, i, r, t in zip(user, item, rating, time, strict=True))
    zipped(folder / "ml-1m.inter.gz", [head, *rows])
    head = "item_id:token\tmovie_title:token\trelease_year:float\tgenre:token"
    zipped(folder / "ml-1m.item.gz", [head, *(f'Film {i}\tA "film" {i}\t{1990 + i % 9}\tDrama' for i in range(items))])
    head = "user_id:token\tage:float\tgender:token\toccupation:float\tzip_code:token"
    zipped(folder / "ml-1m.user.gz", [head, *(f"u{u}\t{18 + u % 3}\tF\t{u % 4}\t{u:05}-1" for u in range(users))])
    return folder


def write_openbandit(folder, rows=800, clicks=80):
    rng = np.random.default_rng(1)
    click = rng.permutation(np.arange(rows) < clicks).astype(int)
    head = ",timestamp,item_id,position,click,propensity_score," + ",".join(f"user_feature_{i}" for i in range(4))
    codes = rng.integers(0, 3, (rows, 4))
    lines = (
        f"{i},2019-11-24,{i % 5},{1 + i % 3},{click[i]},0.2," + ",".join(f"h{c}" for c in codes[i]) for i in range(rows)
    )
    zipped(folder / "random_all_all.csv.gz", [head, *lines])
    head = ",item_id," + ",".join(f"item_feature_{i}" for i in range(4))
    zipped(folder / "random_all_item_context.csv.gz", [head, *(f"{i},{i},{i / 5},a{i % 2},b,c" for i in range(5))])
    return folder


@pytest.fixture(scope="module")
def movielens(tmp_path_factory):
    return write_movielens(tmp_path_factory.mktemp("ml"))


@pytest.fixture(scope="module")
def openbandit(tmp_path_factory):
    return write_openbandit(tmp_path_factory.mktemp("ob"))


@pytest.fixture(scope="module")
def ratings(movielens):
    return real.run("movielens", movielens, FEW, 2, processes=1)


@pytest.fixture
def registry():
    """What a test registers is gone after it."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


# ---------------------------------------------------------------------------- splits


@pytest.fixture
def taken(monkeypatch):
    """Rows that train, and rows that are scored, of each split."""
    seen = []

    def scores(*given):
        *_, train, wanted, rng = given
        seen.append((train, wanted))
        return rng.standard_normal((len(wanted), 6))

    monkeypatch.setattr(real_data, "factorised", scores)
    monkeypatch.setattr(real_data, "bagged", scores)
    return seen


def test_training_comes_before_labels_and_labels_before_the_test(movielens, taken):
    log = [line.split("\t") for line in unzipped(movielens / "ml-1m.inter.gz")[1:]]
    user, time = np.array([row[0] for row in log]), np.array([int(row[3]) for row in log])
    sources = open_real("movielens", movielens)
    for name, shares in (("movielens-time", (0.7, 0.15)), ("movielens-users", (0.6, 0.2))):
        (held,) = sources[name].split(np.random.default_rng(0))
        train, wanted = taken.pop()
        labelled, test = np.split(wanted, [len(held.draw.labelled)])
        assert len(train) == pytest.approx(0.8 * shares[0] * len(log), rel=0.03)
        assert len(test) == pytest.approx(shares[1] * len(log), rel=0.01)
        assert len(labelled) < len(test)  # of four fifths of the users
        assert len(set(user[labelled])) < 40
        for one in [...] if name == "movielens-time" else [user == u for u in set(user[labelled])]:
            parts = [time[rows[np.isin(rows, np.arange(len(log))[one])]] for rows in (train, labelled, test)]
            assert parts[0].max() < parts[1].min()
            assert parts[1].max() < parts[2].min()
        np.testing.assert_array_equal(held.units, np.unique(user, return_inverse=True)[1][test])
        assert np.isnan(held.draw.pool_truth).all()


def test_a_thinned_split_is_new_each_time_shares_no_row_and_keeps_what_a_model_likes_less(movielens, taken):
    source = open_real("movielens", movielens)["movielens-shift"]
    tests = []
    for seed in range(2):
        (held,) = source.split(np.random.default_rng(seed))
        train, wanted = taken.pop()
        assert len(set(train) | set(wanted)) == len(train) + len(wanted)
        tests.append(set(wanted[len(held.draw.labelled) :]))
        assert held.draw.truth.mean() < held.draw.labels.mean() - 0.05
    assert tests[0] != tests[1]


def test_every_click_is_once_in_the_test_and_parts_share_no_row(openbandit, taken):
    source = open_real("openbandit", openbandit)["openbandit"]
    splits = source.split(np.random.default_rng(0))
    assert len(splits) == 4
    tested = []
    for held, (train, wanted) in zip(splits, taken, strict=True):
        assert len(set(train) | set(wanted)) == 800
        assert len(train) == 400
        assert held.draw.labels.sum() == held.draw.truth.sum() == 20
        tested.append(wanted[len(held.draw.labelled) :])
        np.testing.assert_array_equal(held.units, tested[-1])
    np.testing.assert_array_equal(np.sort(np.concatenate(tested)), np.arange(800))


def test_labels_of_the_test_period_change_no_score(movielens, tmp_path):
    turned = write_movielens(tmp_path, flip=int(0.85 * 40 * 240))
    drawn = []
    for folder in (movielens, turned):
        (held,) = open_real("movielens", folder)["movielens-time"].split(np.random.default_rng(0))
        drawn.append(held.draw)
    np.testing.assert_array_equal(drawn[0].test, drawn[1].test)
    np.testing.assert_array_equal(drawn[0].labelled, drawn[1].labelled)
    np.testing.assert_array_equal(drawn[0].labels, drawn[1].labels)
    np.testing.assert_array_equal(drawn[0].truth, 1 - drawn[1].truth)


# ---------------------------------------------------------------------------- models


def test_a_factorisation_learns_tastes_and_whom_it_has_not_met_is_as_the_group():
    rng = np.random.default_rng(0)
    taste, merit = rng.normal(0, 1.2, (200, 2)), rng.normal(0, 1.2, (100, 2))
    user, item = rng.integers(0, 200, 30_000), rng.integers(0, 100, 30_000)
    true = 0.5 + (taste[user] * merit[item]).sum(axis=1)
    labels = rng.random(30_000) < logistic(true)
    train = np.flatnonzero(user[:24_000] > 1)
    users, items = real_models.Side.of(user, user // 100), real_models.Side.of(item)
    assert users.size == 202
    fits = [real_models.Factorisation(users, items).fit(labels, train, np.random.default_rng(s)) for s in (0, 1)]
    rest = 24_000 + np.flatnonzero(user[24_000:] > 1)
    scores = [fit.scores(rest) for fit in fits]
    for l in scores:
        assert np.corrcoef(l, true[rest])[0, 1] > 0.7
        assert logistic(l).mean() == pytest.approx(labels[rest].mean(), abs=0.03)
    assert 0.8 < np.corrcoef(scores)[0, 1] < 0.999
    new = np.flatnonzero(user < 2)  # users 0 and 1 are of one group, and neither has trained
    l = fits[0].scores(new)
    for one in np.unique(item[new]):
        assert np.ptp(l[item[new] == one]) < 1e-5


def test_bagged_regressions_differ_and_none_is_without_a_click():
    rng = np.random.default_rng(0)
    features = rng.normal(0, 1, (500, 3))
    labels = np.arange(500) < 2
    scores = real_models.bagged(features, labels, np.arange(400), np.arange(400, 500), rng)
    assert scores.shape == (100, 6)
    assert len(np.unique(scores[0])) > 1
    assert np.isfinite(scores).all()


# ---------------------------------------------------------------------------- figures


def test_errors_are_of_sums_over_what_the_served_score_selects(movielens, ratings):
    sums = {name: [] for name in ("best 2", "10%")}
    for number in range(2):
        source = open_real("movielens", movielens)["movielens-users"]
        (held,) = source.split(np.random.default_rng([0, number, *b"movielens-users"]))
        served, y = held.draw.test[:, 0], held.draw.truth
        for name, mask in (("best 2", top_k(served, held.units, k=2)), ("10%", top_share(served, 0.1))):
            sums[name].append((logistic(served[mask]).sum(), y[mask].sum()))
    for name, found in sums.items():
        f, y = np.array(found).T
        cell = ratings.cell("movielens-users", "vanilla", name)
        assert cell.error == pytest.approx(f.sum() / y.sum() - 1, rel=1e-9)
        assert cell.rms == pytest.approx(np.sqrt(np.mean((f - y) ** 2)) / y.mean(), rel=1e-9)
        assert (cell.less, cell.less_error, cell.count) == (0, 0, 2)
    place = ratings.selections["movielens-users"].index("best 2")
    assert ratings.observed["movielens-users"][place] == np.mean([y for _, y in sums["best 2"]])


def coins(seed, rows=1_000):
    """A log whose served probabilities are true: all that errs is the labels."""
    rng = np.random.default_rng(seed)
    scores = np.random.default_rng(0).normal(-1, 1, rows)
    y = (rng.random(rows) < logistic(scores)).astype(float)
    six = np.repeat(scores[:, None], 6, axis=1)
    held = Held(Draw(six, y, six, np.full(rows, np.nan), six, y), np.arange(rows))
    return Source("coins", "", lambda rng: [held], (Selection(0.1), Selection(1.0)), rows, "rows", 2)


def test_standard_errors_and_intervals_are_those_of_many_logs(monkeypatch, registry):
    @method("wrong")
    def wrong(draw):
        return Fitted(lambda s: 1.2 * logistic(s[:, 0]), lambda alpha, level: (-0.01, 0.01))

    @method("right")
    def right(draw):
        return Fitted(lambda s: logistic(s[:, 0]), lambda alpha, level: (-0.001, 0.001))

    runs = []
    for seed in range(150):
        monkeypatch.setattr(real, "open_real", lambda *_, s=seed: {"coins": coins(s)})
        runs.append(real.run("coins", "", ["vanilla", "wrong", "right"], processes=1))
    for selection in ("10%", "100%"):
        for name in ("right", "wrong"):
            cells = [found.cell("coins", name, selection) for found in runs]
            spread = np.std([c.error for c in cells])
            assert np.mean([c.error_error for c in cells]) == pytest.approx(spread, rel=0.15)
            if name == "right":  # 4 standard errors of 150 coins
                assert np.mean([c.coverage for c in cells]) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 150))
                assert spread == pytest.approx(runs[0].noise["coins"][selection == "100%"], rel=0.25)
                assert {c.less for c in cells} == {0.0}
    wide = [found.cell("coins", "wrong", "100%") for found in runs]
    assert np.mean([c.coverage for c in wide]) < 0.1
    assert np.mean([c.less for c in wide]) > 0.1
    # Labels are common to both, so the difference is known better than either error.
    assert np.mean([c.less_error for c in wide]) == pytest.approx(np.std([c.less for c in wide]), rel=0.35)


def test_a_method_that_fails_is_left_out_and_said_and_the_one_compared_with_must_not(movielens, registry):
    @method("broken")
    def broken(draw):
        raise UncurseError("no luck; try again")

    method("not here")(lambda draw: None)
    options = {"worlds": ["movielens-time"], "replications": 2, "processes": 1}
    found = real.run("movielens", movielens, ["vanilla", "broken", "not here"], **options)
    assert found.failed["movielens-time"]["broken"] == "in 2 of 2 replications: no luck"
    assert found.get("movielens-time", "broken", "10%") is None
    assert "left out: not here in 2 of 2 replications: does not apply to these rows" in real_text.text(found)
    with pytest.raises(UncurseError, match="broken, which the others are compared with, fails in movielens-time: in 2"):
        real.run("movielens", movielens, ["vanilla"], against="broken", **options)


def test_processes_and_company_change_no_figure(openbandit):
    alone = real.run("openbandit", openbandit, ["isotonic"], 2, processes=1)
    company = real.run("openbandit", openbandit, ["isotonic", "bbq"], 2, processes=2)
    assert alone.cells == tuple(cell for cell in company.cells if cell.method != "bbq")
    other = real.run("openbandit", openbandit, ["vanilla", "isotonic"], 2, against="isotonic", processes=1)
    for selection in ("10%", "100%"):
        ahead, behind = other.cell("openbandit", "vanilla", selection), alone.cell("openbandit", "isotonic", selection)
        assert ahead.less == pytest.approx(-behind.less)
        assert ahead.less_error == pytest.approx(behind.less_error)


def test_json_comes_back_as_it_was_and_tables_fit_a_terminal(ratings):
    content = ratings.to_json()
    assert real_tables.Real.from_json(content) == ratings
    with pytest.raises(UncurseError, match="kind='arena' is unknown"):
        real_tables.Real.from_json('{"kind": "arena", "schema_version": 2}')
    with pytest.raises(UncurseError, match="not a complete arena-real document"):
        real_tables.Real.from_json('{"kind": "arena-real", "schema_version": 2}')
    with pytest.raises(UncurseError, match="no cell for world='movielens-time', method='oracle', selection='1%'"):
        ratings.cell("movielens-time", "oracle", "1%")
    head, *rows = real_text.errors(ratings, "movielens-time")
    assert head == ("method", "best 1", "best 2", "best 5", "1%", "2%", "5%", "10%", "100%", "90% held")
    assert [row[0] for row in rows[-2:]] == ["(labels' noise)", "(positives)"]
    for column in range(1, 9):
        assert sum(row[column].endswith("*") for row in rows) == 1
    assert {row[0] for row in real_text.differences(ratings, "movielens-time")} == {"method", *FEW[1:]}
    assert max(map(len, real_text.text(ratings).splitlines())) <= 120
    assert "### movielens-shift" in real_text.markdown(ratings)
    assert len(real_text.records(ratings)) == len(ratings.cells) == 3 * 3 * 8


# ---------------------------------------------------------------------------- what is wrong


def test_bad_arguments_are_named(movielens, tmp_path):
    for options, message in (
        ({"name": "netflix"}, "real='netflix' is unknown; choose one of movielens, openbandit"),
        (
            {"data": tmp_path / "absent"},
            r"there is no folder .*absent; name the one with ml-1m.inter.gz, ml-1m.item.gz",
        ),
        ({"replications": 1}, "replications=1; a standard error needs at least 2"),
        ({"methods": ["oracle"]}, "method='oracle' is unknown"),
        ({"against": "magic"}, "against='magic' is unknown"),
        ({"against": "Tower"}, "against='Tower' are several methods; name one: Tower S=2, Tower S=3"),
        ({"worlds": ["mars"]}, "world='mars' is unknown; choose from movielens-time, movielens-users, movielens-shift"),
    ):
        with pytest.raises(UncurseError, match=message):
            real.run(**{"name": "movielens", "data": movielens, **options})


def test_bad_files_are_named(tmp_path):
    def fails(message):
        with pytest.raises(UncurseError, match=message):
            real.run("movielens", tmp_path, ["vanilla"], 2, processes=1)

    write_movielens(tmp_path, users=8, each=50)
    fails("no user has 20 test ratings, and the best are of those; take the whole log")
    log = tmp_path / "ml-1m.inter.gz"
    lines = unzipped(log)
    zipped(log, [lines[0], *(re.sub(r"\t\d\t", "\t5\t", line) for line in lines[1:])])
    fails(r"of \d+ training rows \d+ are rated 4 or more; take a longer log")
    zipped(log, [*lines, "u1\tFilm 1\tgood\t3"])
    fails("the column rating holds 'good' in row 400: not a number")
    zipped(log, lines[:1])
    fails("ml-1m.inter.gz holds no rows")
    zipped(log, [line.rsplit("\t", 1)[0] for line in lines])
    fails("ml-1m.inter.gz has no column 'timestamp'; it has user_id, item_id, rating")
    log.write_bytes(log.read_bytes()[:200])
    fails("cannot read .*ml-1m.inter.gz: ")
    log.unlink()
    fails("has no file ml-1m.inter.gz; it is part of the data set")
    write_openbandit(tmp_path, clicks=5)
    with pytest.raises(UncurseError, match="5 clicks in 800 rows are too few to split; take a longer log"):
        real.run("openbandit", tmp_path)


# ---------------------------------------------------------------------------- the command


def uncurse(*arguments, cwd=None):
    command = [sys.executable, "-m", "uncurse.cli", "arena", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def test_the_command_prints_records_and_writes_every_file(openbandit, tmp_path):
    words = ["--real", "openbandit", "--data", openbandit, "--method", "isotonic", "--replications", "2"]
    done = uncurse(*words, "--json", "r.json", "--markdown", "r.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    head, *rows = (line.split("\t") for line in done.stdout.splitlines())
    assert head[:5] == ["world", "method", "selection", "error", "error_error"]
    assert {row[1] for row in rows} == {"vanilla", "isotonic"}
    assert json.loads((tmp_path / "r.json").read_text())["kind"] == "arena-real"
    assert "### openbandit" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--real", "movielens"], "say --data FOLDER, where the files of the real log are"),
        (["--data", "x"], "--data goes with a real log; say --real too"),
        (["--against", "platt"], "--against goes with a real log; say --real too"),
        (["--real", "movielens", "--data", "x", "--report", "r.html"], "--report is for worlds whose truth is known"),
        (["--real", "movielens", "--data", "nowhere"], "there is no folder nowhere"),
        (["--real", "netflix", "--data", "."], "real='netflix' is unknown"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(words, message):
    done = uncurse(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("uncurse: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# ---------------------------------------------------------------------------- the real ones


def sample(name):
    if not (SAMPLES / name).is_dir():
        pytest.skip(f"the real log {name} is not here: its owner forbids to ship it")
    return SAMPLES / name


def test_on_movielens_labels_repair_what_the_model_overstates(monkeypatch):
    folder = sample("ml1m")
    monkeypatch.setattr(real_models, "_EPOCHS", 1)
    found = real.run("movielens", folder, FEW, 2, worlds=["movielens-shift"], processes=1)
    assert found.worlds["movielens-shift"].startswith("1,000,209 rows")
    before, after = (found.cell("movielens-shift", name, "100%") for name in ("vanilla", "Tower S=3"))
    assert abs(after.error) < abs(before.error) + 2 * after.less_error


def test_on_open_bandit_the_best_are_noise_and_shrinking_helps():
    found = real.run("openbandit", sample("openbandit"), ["vanilla", "isotonic"], 2, processes=1)
    assert found.observed["openbandit"][-1] == 38
    before, after = (found.cell("openbandit", name, "20%") for name in ("vanilla", "isotonic"))
    assert before.error > 1
    assert after.less < -2 * after.less_error
