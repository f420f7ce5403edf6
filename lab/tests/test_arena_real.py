"""The arena on real logs, on small files in the formats of Avazu, Criteo and MovieLens."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from uncurse import UncursedClassifierCV, UncurseError, calibrate
from uncurse_lab import render
from uncurse_lab.arena import real
from uncurse_lab.arena.click_logs import ClickLog, read_click_log

ROWS = 4000


def drawn(rows=ROWS, columns=4, values=30, seed=0):
    """Codes, and labels whose log odds are sums of effects of the codes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(values, size=(rows, columns))
    effects = rng.normal(0, 0.5, (columns, values))
    odds = effects[np.arange(columns), codes].sum(axis=1) - 1
    return codes, rng.random(rows) < 1 / (1 + np.exp(-odds))


@pytest.fixture(scope="module")
def log():
    codes, labels = drawn()
    return ClickLog("avazu", codes.astype(np.int32), labels)


def write_avazu(path, codes, labels, numbered=False):
    lines = ["id,click,hour,device_id,site_id,C1"]
    for i, (row, label) in enumerate(zip(codes, labels, strict=True)):
        lines.append(("7," if numbered else "") + f"{i},{int(label)},{row[0]},d{i},s{row[1]},{row[2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_criteo(path, codes, labels, separator):
    wide = np.tile(codes, 10)[:, :39]
    path.write_text(
        "".join(separator.join(map(str, (int(y), *row))) + "\n" for y, row in zip(labels, wide, strict=True))
    )
    return path


def test_avazu_drops_unique_columns_and_joins_files_with_and_without_row_numbers(tmp_path):
    codes, labels = drawn(50)
    files = [write_avazu(tmp_path / "a.csv", codes[:20], labels[:20])]
    files.append(write_avazu(tmp_path / "b.csv", codes[20:], labels[20:], numbered=True))
    found = read_click_log(files)
    assert found.name == "avazu"
    assert found.codes.shape == (50, 3)
    assert (found.labels == labels).all()
    for column in range(3):
        assert len(np.unique(found.codes[:, column])) == len(np.unique(codes[:, column]))


def test_a_column_named_label_is_a_feature_beside_click(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("click,label,site\n1,a,b\n0,b,b\n1,b,c\n")
    found = read_click_log([path])
    assert found.labels.tolist() == [True, False, True]
    assert found.codes.tolist() == [[1, 1], [2, 1], [2, 2]]


def test_criteo_codes_keep_their_order_and_raw_counts_are_binned(tmp_path):
    codes, labels = drawn(60)
    found = read_click_log([write_criteo(tmp_path / "codes.csv", codes, labels, ",")])
    assert found.name == "criteo"
    assert found.codes.shape == (60, 39)
    assert (np.argsort(codes[:, 0], kind="stable") == np.argsort(found.codes[:, 0], kind="stable")).all()
    counts = np.tile(np.arange(0, 10_000, 167)[:60, None], 4)
    raw = read_click_log([write_criteo(tmp_path / "raw.txt", counts, labels, "\t")])
    assert len(np.unique(raw.codes[:, 0])) < 60 == len(np.unique(raw.codes[:, 20]))
    assert (np.diff(raw.codes[:, 0]) >= 0).all()


@pytest.mark.parametrize(
    "head", ["user_id:token\titem_id:token\trating:float\ttimestamp:float", "userId,movieId,rating,timestamp"]
)
def test_movielens_ratings_of_four_are_positive_and_rows_are_drawn_at_random(tmp_path, head):
    separator = "\t" if "\t" in head else ","
    path = tmp_path / "ratings.gz"
    rows = [(i % 7, i % 11, 1 + i % 5, i) for i in range(100)]
    with gzip.open(path, "wt") as stream:
        stream.write("\n".join([head, *(separator.join(map(str, row)) for row in rows)]) + "\n")
    found = read_click_log([path])
    assert found.name == "movielens"
    assert found.codes.shape == (100, 2)
    assert found.labels.tolist() == [row[2] >= 4 for row in rows]
    some = read_click_log([path], 30, seed=1)
    assert some.codes.shape == (30, 2)
    assert (read_click_log([path], 30, seed=1).labels == some.labels).all()


def test_bad_files_are_named(tmp_path):
    codes, labels = drawn(30)
    avazu = write_avazu(tmp_path / "a.csv", codes, labels)
    criteo = write_criteo(tmp_path / "c.csv", codes, labels, ",")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "other.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "text.csv").write_text("click,site\nyes,a\nno,b\n")
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(b"click,site\n1,a\n" * 99)[:-9])
    (tmp_path / "twice.csv").write_text("click,site,site\n1,a,b\n0,b,c\n")
    (tmp_path / "long.csv").write_text("click,site,C1\n1,a\n0,b\n")
    (tmp_path / "unrated.csv").write_text("userId,movieId\n1,2\n3,4\n")
    (tmp_path / "bare.csv").write_text("id,click\n1,1\n2,0\n")
    for files, message in (
        ([tmp_path / "twice.csv"], "the names click, site, site for 3 columns"),
        ([tmp_path / "long.csv"], "the names click, site, C1 for 2 columns"),
        ([tmp_path / "unrated.csv"], "has no column 'rating'"),
        ([tmp_path / "bare.csv"], "has no feature"),
        ([avazu, avazu], "is named twice"),
        ([avazu, criteo], "different logs: avazu, criteo"),
        ([tmp_path / "empty.csv"], "cannot read .*empty.csv"),
        ([tmp_path / "other.csv"], "has 3 columns"),
        (
            [tmp_path / "text.csv"],
            "2 of 2 lines of .*text.csv are bad, more than 1%, first line 2 of text.csv: click is 'yes', not a number",
        ),
        ([tmp_path / "bad.csv.gz"], "cannot read"),
        ([tmp_path / "missing.csv"], "missing.csv"),
    ):
        with pytest.raises(UncurseError, match=message):
            read_click_log(files)


def test_bad_lines_are_skipped_and_counted_and_the_first_is_named(tmp_path):
    codes, labels = drawn(500)
    good = write_criteo(tmp_path / "good.txt", codes, labels, "\t")
    lines = good.read_text().splitlines()
    bad = tmp_path / "bad.txt"
    bad.write_text("\n".join([*lines[:300], "broken line", *lines[300:400], "\t" * 39, *lines[400:]]) + "\n")
    one, other = read_click_log([good], 400), read_click_log([bad], 400)
    np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert (one.bad_lines, one.first_bad) == (0, "")
    assert (other.bad_lines, other.first_bad) == (2, "line 301 of bad.txt: label is 'broken line', not a number")
    joined = read_click_log([good, bad])
    assert (len(joined.labels), joined.bad_lines) == (1000, 2)
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("userId,movieId,rating\n" + "1,2,4\n3,4,1\n" * 100 + "5,6,nan\n")
    found = read_click_log([ratings])
    assert (len(found.labels), found.labels.sum(), found.bad_lines) == (200, 100, 1)
    assert found.first_bad == "line 202 of ratings.csv: rating is 'nan', not a number"


def test_splits_share_no_row_and_thinning_keeps_what_another_model_likes_less(log):
    features = real.make_features(log, "logistic")
    plain = real.make_split(features, log.labels, "logistic", False, [0, 1])
    assert sorted(np.concatenate(plain)) == list(range(ROWS))
    assert len(plain[0]) == ROWS // 2
    assert len(plain[2]) == ROWS - int(0.7 * ROWS)
    thinned = real.make_split(features, log.labels, "logistic", True, [0, 1])
    parts = np.concatenate(thinned)
    assert len(np.unique(parts)) == len(parts)
    assert len(thinned[2]) < 0.9 * 0.28 * ROWS
    assert log.labels[thinned[2]].mean() < log.labels.mean() - 0.02


class Kept(UncursedClassifierCV):
    """Keeps what `fit` trained, to spare a second training."""

    def cross_fit(self, *arguments, **options):
        self.done = super().cross_fit(*arguments, **options)
        return self.done


def test_errors_are_those_of_the_estimator_and_of_scikit_learn(log):
    found = real.run(log, "logistic", splits=2, seed=3, processes=1)
    features, number = real.make_features(log, "logistic"), 1  # the second split; the first differs by its number only
    train, pool, test = real.make_split(features, log.labels, "logistic", False, [3, number])
    state = int(np.random.default_rng([3, number]).integers(2**31))
    model = Kept(real.make_model("logistic"), random_state=state)
    model.fit(features[train], log.labels[train], pool=features[pool])
    scores, labels = model.done.labeled.scores, model.done.labeled.labels
    served = model.estimator_.predict_proba(features[test])[:, 1]
    corrected = model.predict_proba(features[test])[:, 1]
    ours = calibrate("isotonic", scores[:, 0], labels, scale="probability")
    order, truth = np.argsort(-served, kind="stable"), log.labels[test]
    for i, alpha in enumerate(real.SHARES):
        top = order[: round(alpha * len(order))]
        observed = truth[top].sum()
        assert found.errors["as served"][number][i] == pytest.approx(served[top].sum() / observed - 1, abs=1e-5)
        assert found.errors["Auto"][number][i] == pytest.approx(corrected[top].sum() / observed - 1, abs=1e-5)
        expected = ours(served[top]).sum() / observed - 1
        assert found.errors["isotonic"][number][i] == pytest.approx(expected, abs=1e-5)
    # Scikit-learn interpolates between the steps, which matters on the few rows at the top.
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(scores[:, 0], labels)
    expected = isotonic.predict(served[top]).sum() / truth[top].sum() - 1
    assert found.errors["isotonic"][number][-1] == pytest.approx(expected, abs=0.03)
    assert found.errors["as served"][0] != found.errors["as served"][1]
    assert "label-free, seeds" not in found.errors  # this model has no seed
    assert list(found.dropped) == ["label-free, seeds"]
    assert "left out: label-free, seeds, 2 of 2 splits: " in render.text(found.parts())
    assert set(found.covered) == {"labels", "Auto"}


def test_summaries_follow_from_the_errors():
    errors = {"isotonic": [[0.1, 0.2, 0.0, 0.0], [0.3, -0.2, 0.0, 0.0], [0.2, 0.0, 0.0, 0.0]]}
    errors["Auto"] = [[0.0, 0.1, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0]]
    found = real.RealResults("avazu", "mlp", True, 10, 2, 0, errors, {}, [0.1] * 4, {})
    peer, auto = found.summary("isotonic"), found.summary("Auto")
    assert peer.mean[:2] == pytest.approx((0.2, 0.0))
    assert peer.bias == pytest.approx(0.05)
    assert peer.mean_error[0] == pytest.approx(0.1 / np.sqrt(3))
    assert peer.rms[1] == pytest.approx(np.sqrt(0.08 / 3))
    assert auto.bias == pytest.approx(0.025)
    assert auto.average_rms == pytest.approx(0.025)
    assert auto.difference == pytest.approx(0.025 - peer.average_rms)
    assert auto.difference_error > 0 == peer.difference_error
    assert found.regret is None


def test_bad_arguments_are_named(log):
    with pytest.raises(UncurseError, match="model='forest'"):
        real.run(log, "forest")
    with pytest.raises(UncurseError, match="splits=1"):
        real.run(log, "logistic", splits=1)
    few = np.zeros(ROWS, bool)
    few[:3] = True
    with pytest.raises(UncurseError, match="of the thinning model have one class"):
        real.make_split(real.make_features(log, "logistic"), few, "logistic", True, [0, 3])
    with pytest.raises(UncurseError, match="all labels of the log are 1"):
        real.run(ClickLog("avazu", log.codes, np.ones(ROWS, bool)), "logistic")


def test_the_command_prints_records_and_writes_every_file(tmp_path, run, one_process, monkeypatch):
    path = write_avazu(tmp_path / "log.csv", *drawn())
    with path.open("a") as stream:
        stream.write("0,broken\n")
    words = ["--real", path, "--model", "logistic", "--shift", "--replications", "2"]
    made, measure = [], real.run

    def once(log, model, **options):
        """Measure for the first format, and give the second the same figures."""
        made.append((model, options["shift"], options["splits"], options["seed"]))
        once.found = measure(log, model, **options) if len(made) == 1 else once.found
        return once.found

    monkeypatch.setattr(real, "run", once)
    run("arena", *words, "--markdown", tmp_path / "r.md")
    assert "read as a log like Avazu's: the label is click, each of " in run.stderr
    assert f"skipped 1 bad line, first line {ROWS + 2} of log.csv: click is 'broken', not a number" in run.stderr
    assert "| Auto |" in (tmp_path / "r.md").read_text()
    found = json.loads(run("arena", *words, "--format", "json"))
    assert found["log"] == "avazu"
    assert len(found["errors"]["Auto"]) == 2
    assert made == [("logistic", True, 2, 0)] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--real", "log.csv"], "pass --model"),
        (["--model", "mlp"], "pass --real FILE"),
        (["--shift"], "pass --real FILE"),
        (["--real", "log.csv", "--model", "mlp", "--world", "normal"], "--world is for worlds"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(words, message, run):
    said = run("arena", *words, code=2)
    assert message in said
    assert len(said.splitlines()) == 1


def test_on_a_real_log_the_default_removes_most_of_the_error():
    data = Path(__file__).parents[3] / "shared" / "data" / "avazu" / "avazu_random10k_with_rowindex.csv.gz"
    if not data.exists():
        pytest.skip("the Avazu log is not here")
    found = real.run(read_click_log([data]), "logistic", splits=2, processes=1)
    assert found.summary("Auto").bias < 0.5 * found.summary("as served").bias
