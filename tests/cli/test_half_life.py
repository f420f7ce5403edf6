"""Half-lives on the command line: `fit --half-life` and `collect --into --half-life`."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import processes
from uncurse import ReplicaCalibrator, load
from uncurse.evidence import Evidence, from_arrays, merged
from uncurse.links import logistic

PROBE = np.linspace(-4, 1, 60)
COLLECT = ["--scores", "s0,s1", "--scale", "logit", "--label", "click"]


def scored(rows, seed, level=0.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.9, rows)
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, 2))
    return scores, (rng.random(rows) < logistic(truth + level)).astype(np.int8)


def write_log(path, rows, seed, level=0.0):
    scores, labels = scored(rows, seed, level)
    pl.DataFrame({"s0": scores[:, 0], "s1": scores[:, 1], "click": labels}).write_parquet(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Evidence of five days, whose rates rise on the last days, and the folder of its files."""
    folder = tmp_path_factory.mktemp("week")
    drawn = [scored(8_000, [0, i], level) for i, level in enumerate([0.0, 0.0, 0.0, 0.7, 0.7])]
    parts = [from_arrays(scores.round(2), labels) for scores, labels in drawn]
    for i, part in enumerate(parts):
        part.save(folder / f"{i}.json")
    return folder, [replace(part, sources=()) for part in parts]


@pytest.fixture
def week(run, written):
    """Evidence of five days, and its files in the folder of `run`."""
    folder, parts = written
    shutil.copytree(folder, ".", dirs_exist_ok=True)
    return parts


FILES = [f"{i}.json" for i in range(5)]
LABELED = [*(word for name in FILES for word in ("--labeled", name)), "--labels-from", "elsewhere"]
FIT = ["--replicas", "seeds", "--method", "labels", "--half-life"]


@pytest.mark.parametrize("pool", [FILES, ["4.json"]])
def test_fit_weights_pool_and_labeled_files_by_their_order(run, week, pool):
    run("fit", *pool, *LABELED, *FIT, "1.5", "-o", "map.json")
    total = merged(week, 1.5)
    expected = ReplicaCalibrator(scale="logit", replicas="seeds")
    expected.fit(total if len(pool) > 1 else week[4], labeled=total, labels_from="elsewhere")
    np.testing.assert_allclose(load("map.json")(PROBE), expected.map_(PROBE), rtol=1e-9)
    record = load("map.json").record
    assert record.half_life == 1.5
    assert record.labeled.effective_rows == pytest.approx(total.effective_rows)


def test_a_quoted_glob_names_evidence_files_in_order_of_their_names(run, week):
    run("fit", "[0-4].json", "--labeled", "?.json", "--labels-from", "elsewhere", *FIT, "1.5", "-o", "glob.json")
    run("fit", *FILES, *LABELED, *FIT, "1.5", "-o", "map.json")
    assert load("glob.json").map == load("map.json").map
    run("refresh", "map.json", "[34].json", "-o", "glob.json")
    run("refresh", "map.json", "3.json", "4.json", "-o", "named.json")
    assert load("glob.json").map == load("named.json").map
    assert "day*.json" in run("fit", "day*.json", "--replicas", "seeds", "-o", "m.json", code=2)
    assert "3.json" in run("fit", "[34].json", "--replicas", "seeds", "-o", "3.json", code=2)


@pytest.mark.parametrize("value", ["0", "-2", "nan", "inf", "often", ""])
def test_half_lives_of_fit_are_positive_numbers(run, week, value):
    said = run("fit", "0.json", "1.json", "--replicas", "seeds", "--half-life", value, "-o", "map.json", code=2)
    assert "--half-life" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("log.parquet log2.parquet --scores s0,s1 --scale logit --half-life 2", "log.parquet, log2.parquet are logs"),
        (
            "0.json --labeled log.parquet --labeled log2.parquet --label click --labels-from elsewhere --method auto "
            "--half-life 1",
            "log.parquet, log2.parquet are logs",
        ),
    ],
)
def test_fit_explains_what_a_half_life_needs(run, week, words, message):
    for name in ("log.parquet", "log2.parquet"):
        write_log(name, 500, 0)
    assert message in run("fit", *words.split(), "--replicas", "seeds", "-o", "map.json", code=2)


def test_files_whose_times_go_backwards_are_refused(run, week):
    for i, day in enumerate(("2026-11-16", "2026-11-15")):
        replace(week[i], as_of=day).save(f"{i}.json")
    said = run("fit", "0.json", "1.json", "--replicas", "seeds", "--half-life", "2", "-o", "map.json", code=2)
    assert "0.json, 1.json are as of 2026-11-16T00:00:00+00:00, 2026-11-15T00:00:00+00:00" in said
    run("fit", "1.json", "0.json", "--replicas", "seeds", "--half-life", "2", "-o", "map.json")
    run("fit", "0.json", "1.json", "--replicas", "seeds", "-o", "map.json")


# ---------------------------------------------------------------------------- collect --into


def into(run, log, *words, **options):
    return run("collect", log, *COLLECT, "--into", "week.json", *words, **options)


def test_collect_into_adds_rows_and_decays_the_older_ones(run):
    for i in range(3):
        write_log(f"{i}.parquet", 2_000, i)
    for i, day in enumerate(("2026-11-14T06:00", "2026-11-15T06:00", "2026-11-17T06:00")):
        into(run, f"{i}.parquet", "--half-life", "2d", "--as-of", day)
    week = Evidence.load("week.json")
    parts = [from_arrays(*scored(2_000, i)) for i in range(3)]
    expected = parts[0].decayed(0.5**1.5).merge(parts[1].decayed(0.5)).merge(parts[2])
    np.testing.assert_allclose(week.moments.covariance, expected.moments.covariance, rtol=1e-12)
    np.testing.assert_allclose(week.served.label, expected.served.label, rtol=1e-12)
    assert week.effective_rows == pytest.approx(expected.effective_rows)
    assert (week.rows, week.as_of) == (6_000, "2026-11-17T06:00:00+00:00")
    assert week.sources == ("0.parquet", "1.parquet", "2.parquet")


def test_collect_into_without_a_half_life_only_merges(run):
    for i in range(2):
        write_log(f"{i}.parquet", 1_000, i)
    into(run, "0.parquet", "--as-of", "2026-11-15")
    before = time.time()
    said = into(run, "1.parquet", "--format", "table")
    week = Evidence.load("week.json")
    assert week.effective_rows == week.rows == 2_000
    assert "1,000 rows of s0, s1: added to week.json, now 2,000 rows, 2,000 in effect" in said
    stamp = time.strftime("%Y-%m-%dT%H", time.gmtime(before))
    assert week.as_of.startswith(stamp[:10])
    write_log("2.parquet", 1_000, 2)
    (found,) = [json.loads(into(run, "2.parquet", "--format", "json"))]
    assert (found["rows"], found["added_rows"], found["as_of"]) == (3_000, 1_000, Evidence.load("week.json").as_of)


def test_collect_can_name_the_time_of_a_new_file(run):
    write_log("0.parquet", 500, 0)
    run("collect", "0.parquet", *COLLECT, "-o", "day.json")
    assert Evidence.load("day.json").as_of is None
    run("collect", "0.parquet", *COLLECT, "-o", "day.json", "--as-of", "2026-11-15T08:00:00+02:00")
    assert Evidence.load("day.json").as_of == "2026-11-15T06:00:00+00:00"


def test_a_log_that_is_added_twice_is_refused_under_any_name(run):
    write_log("0.parquet", 500, 0)
    into(run, "0.parquet")
    Path("copy.parquet").write_bytes(Path("0.parquet").read_bytes())
    for name in ("0.parquet", "./0.parquet", "0.par*", "copy.parquet"):
        assert f"week.json holds the rows of {name} already" in into(run, name, code=2)
    write_log("0.parquet", 500, 1)  # another day under the same name
    into(run, "0.parquet")
    assert Evidence.load("week.json").rows == 1_000


@pytest.mark.parametrize("value", ["3", "3 days", "0d", "-1d", "d", "nand", "1.2.3d", "infd"])
def test_half_lives_of_collect_have_a_unit(run, value):
    write_log("0.parquet", 100, 0)
    said = into(run, "0.parquet", "--half-life", value, code=2)
    assert f"--half-life is {value!r}; pass a positive time with a unit: 90m, 36h, 3d or 2w" in said
    assert not os.path.exists("week.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--half-life", "3d", "-o", "day.json"], "--half-life 3d needs --into, the evidence file"),
        (["--into", "week.json", "-o", "day.json"], "pass --out, "),
        ([], "--into, one to add rows to"),
        (["--into", "-"], "--into cannot be standard output"),
        (["--into", "week.txt"], "--into is week.txt; name a .json file"),
        (["--into", "week.json", "--as-of", "soon"], "--as-of is 'soon'; pass an ISO date or time, such as"),
    ],
)
def test_collect_explains_its_options(run, words, message):
    write_log("0.parquet", 100, 0)
    assert message in run("collect", "0.parquet", *COLLECT, *words, code=2)


def test_collect_into_refuses_files_that_do_not_fit(run):
    for i in range(2):
        write_log(f"{i}.parquet", 300, i)
    run("collect", "0.parquet", *COLLECT, "-o", "week.json")
    said = into(run, "1.parquet", "--half-life", "1d", code=2)
    assert "week.json does not hold the time of its rows, so they cannot decay; start another file with --into" in said
    run("collect", "0.parquet", *COLLECT, "-o", "week.json", "--as-of", "2026-11-15")
    before = Path("week.json").read_text()
    said = into(run, "1.parquet", "--half-life", "1d", "--as-of", "2026-11-14", code=2)
    assert "week.json is as of 2026-11-15T00:00:00+00:00, after 2026-11-14T00:00:00+00:00; add rows in order" in said
    said = run("collect", "1.parquet", "--scores", "s0,s1", "--scale", "logit", "--into", "week.json", code=2)
    assert "label is click" in said
    run("fit", "0.parquet", "--scores", "s0,s1", "--scale", "logit", "--replicas", "seeds", "-o", "map.json")
    said = run("collect", "1.parquet", *COLLECT, "--into", "map.json", code=2)
    assert "map.json" in said
    assert Path("week.json").read_text() == before


def start_collect(log):
    return processes.start(["collect", log, *COLLECT, "--into", "week.json", "-q", "--half-life", "3d"], Path.cwd())


def test_concurrent_calls_lose_no_rows(run):
    for i in range(4):
        write_log(f"{i}.parquet", 1_000 + i, i)
    started = [start_collect(f"{i}.parquet") for i in range(4)]
    for process in started:
        process.join()
        assert process.exitcode == 0
    assert Evidence.load("week.json").rows == 4_006
    assert sorted(Evidence.load("week.json").sources) == [f"{i}.parquet" for i in range(4)]
