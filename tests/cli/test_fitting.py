"""`uncurse fit` and `uncurse refresh`, as a user would run them."""

import json

import numpy as np
import polars as pl
import pytest

from uncurse import Affine, Auto, Evidence, Fitted, ReplicaCalibrator, Segmented, load
from uncurse.links import logistic
from uncurse.methods import DataRecord, FitRecord

PROBE = np.linspace(-4, 1, 60)
SCALE = ["--scale", "logit"]
POOL = ["fit", "pool.parquet", "--scores", "s1,s2", *SCALE]
SEEDS = ["--replicas", "seeds"]
AUTO = [*SEEDS, "--method", "auto"]
JSON = ["--format", "json"]
LABELED = ["--labeled", "labeled.parquet", "--label", "click"]
ELSEWHERE = [*LABELED, "--labels-from", "elsewhere"]
COMMON = {"scale": "logit", "replicas": "seeds"}


def make(rows, seed=0, level=0.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    columns = {f"s{i}": truth + rng.normal(0, 0.4, rows) for i in (1, 2)}
    columns |= {"click": (rng.random(rows) < logistic(truth + level)).astype(np.int8), "never": 0}
    columns |= {"w": rng.integers(1, 3, rows).astype(float), "site": rng.choice(["news", "sport"], rows)}
    return pl.DataFrame({**columns, "request": rng.integers(0, rows // 10, rows)})


@pytest.fixture
def logs(run):
    pool, labeled = make(4_000), make(4_000, 1)
    pool.write_parquet("pool.parquet")
    labeled.write_parquet("labeled.parquet")
    return pool, labeled


def arrays(logs):
    pool, labeled = (log.select("s1", "s2").to_numpy() for log in logs)
    return pool, (labeled, logs[1]["click"].to_numpy())


def collected(run, name, *options):
    run("collect", f"{name}.parquet", "--scores", "s1,s2", *SCALE, *options, "-o", f"{name}.json")
    return Evidence.load(f"{name}.json")


def test_replica_calibration_of_logs_and_of_evidence(run, logs):
    content = json.loads(run(*POOL, *SEEDS, *ELSEWHERE, "--method", "labels", "-o", "a.json", *JSON))
    pool, labeled = arrays(logs)
    expected = ReplicaCalibrator(**COMMON).fit(pool, labeled=labeled, labels_from="elsewhere").fitted_
    found = load("a.json")
    np.testing.assert_allclose(found(PROBE), expected(PROBE), rtol=1e-12)
    assert (content["method"], content["pool"]["rows"], content["labeled"]["rows"]) == ("labels", 4000, 4000)
    for alpha in (0.01, 0.1):
        assert found.interval(alpha) == pytest.approx(expected.interval(alpha), rel=1e-9)
    assert found.record.labeled.sources == ("labeled.parquet",)
    collected(run, "pool")
    collected(run, "labeled", "--label", "click")
    of_evidence = ["fit", "pool.json", *SEEDS, "--labeled", "labeled.json", "--labels-from", "elsewhere"]
    run(*of_evidence, "--method", "labels", "-o", "b.json")
    assert load("b.json").map == found.map


@pytest.mark.parametrize("labels", [True, False])
def test_auto_says_what_it_chose(run, logs, labels):
    content = json.loads(run(*POOL, *AUTO, *ELSEWHERE * labels, "-o", "map.json", *JSON))
    pool, labeled = arrays(logs)
    more = {"labeled": labeled, "labels_from": "elsewhere"} if labels else {}
    expected = Auto(**COMMON).fit(pool, **more)
    assert (content["method"], content["reason"]) == (expected.method_, expected.reason_)
    np.testing.assert_allclose(load("map.json")(PROBE), expected.map_(PROBE), rtol=1e-9)
    assert load("map.json").interval(0.02) == pytest.approx(expected.interval(0.02))
    text = run(*POOL, *AUTO, *ELSEWHERE * labels, "-o", "map.json", "--format", "table")
    assert expected.method_ in text
    assert "next: uncurse evaluate" in text


def test_affine_writes_the_nearest_line(run, logs):
    content = json.loads(run(*POOL, *SEEDS, "--method", "auto", "--affine", "-o", "line.json", *JSON))
    line = Auto(**COMMON).fit(collected(run, "pool")).to_affine()
    found = load("line.json")
    assert isinstance(found.map, Affine)
    assert (found.map.slope, found.map.intercept) == pytest.approx((line.slope, line.intercept), rel=1e-6)
    assert content["max_error"] == found.record.max_error == pytest.approx(line.max_error, abs=1e-6)


def test_labels_of_each_segment_are_used(run, logs):
    pool = collected(run, "pool", "--segment", "site")
    rows = collected(run, "labeled", "--label", "click", "--segment", "site")
    options = [*SEEDS, "--labels-from", "elsewhere", "--method", "labels", "-o", "map.json"]
    run("fit", "pool.json", "--labeled", "labeled.json", *options)
    expected = ReplicaCalibrator(**COMMON).fit(pool, labeled=rows, labels_from="elsewhere")
    assert load("map.json").map == expected.map_
    collected(run, "labeled", "--label", "click")
    run("fit", "pool.json", "--labeled", "labeled.json", *options)
    assert "collect it with --segment site" in run.stderr


def test_a_map_that_is_evaluated_on_its_own_labels_is_warned_of(run, logs):
    run(*POOL, *AUTO, *ELSEWHERE, "-o", "map.json")
    logs[1].write_parquet("other.parquet")
    for log, warned in (("./labeled.parquet", True), ("other.parquet", False)):
        run("evaluate", log, "--scores", "s1", "--label", "click", "--map", "map.json", "--format", "table")
        assert ("map.json was fitted to the labels of" in run.stderr) == warned


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "labels"], "--labeled"),
        (["--method", "labels", "--labeled", "labeled.parquet", "--labels-from", "elsewhere"], "--label"),
        (["--method", "labels", *LABELED], "labels_from"),
        (["--method", "auto", *LABELED], "labels_from"),
        (["--label", "click"], "--labeled"),
        *(
            (["--method", method, *ELSEWHERE, *words], words[0])
            for method in ("labels", "auto")
            for words in (["--calibrator", "platt"], ["--curvature"])
        ),
        (["--method", "x"], "--method"),
        (["--method", "vad", *LABELED], "calibrator"),
        (["--replicas", "twins"], "--replicas"),
        (["--scale", "odds"], "--scale"),
    ],
)
def test_options_that_exclude_each_other_are_refused(run, logs, arguments, message):
    kind = [] if "--replicas" in arguments else SEEDS
    error = run("fit", "pool.parquet", "--scores", "s1,s2", *kind, *SCALE, *arguments, "-o", "m.json", code=2)
    assert message in error


def test_winners_of_requests_are_labels_and_not_a_pool(run, logs):
    winners = collected(run, "labeled", "--label", "click", "--request", "request", "--top-k", "2")
    assert winners.spec.top_k.k == 2
    options = ["--labeled", "labeled.json", "--labels-from", "winners", "--format", "table"]
    text = run(*POOL, *AUTO, *options, "-o", "map.json")
    assert "--request request --top-k 2" in text
    assert load("map.json").record.labels_from == "winners"
    assert "collect all candidates" in run("fit", "labeled.json", *SEEDS, "-o", "m.json", code=2)


# ---------------------------------------------------------------------------- refresh


@pytest.fixture
def today(logs):
    """A log of today whose level is higher, and a map of a column that it has."""
    make(5_000, 2, level=0.4).write_parquet("today.parquet")
    record = FitRecord("vad", DataRecord(1_000, ("s1", "s2"), ("pool.parquet",)), segment="site")
    Fitted(Affine(0.8, -0.3), record).save("map.json")
    Fitted(Segmented(Affine(0.8, -0.3), {"news": Affine(0.8, -0.2)}), record).save("segmented.json")


def test_a_refresh_with_evidence_or_a_log(run, today):
    text = run("refresh", "map.json", "today.parquet", "--label", "click", "-o", "map2.json", "--format", "table")
    assert "the labels support a change of the level" in text
    assert "--map map.json --map map2.json" in text
    run("collect", "today.parquet", "--scores", "s1", *SCALE, "--label", "click", "-o", "today.json")
    run("refresh", "map.json", "today.json", "-o", "map3.json")
    assert load("map3.json").map == load("map2.json").map
    found = load("map2.json").record.refreshes[-1]
    assert found.level == pytest.approx(0.4, abs=4 * found.level_error)
    assert found.command.startswith("uncurse refresh map.json")
    content = json.loads(run("refresh", "map.json", "today.json", "-o", "map3.json", *JSON))
    assert (content["kind"], content["changed"]) == ("refresh", True)
    run("refresh", "map.json", "today.parquet", "--label", "never", "-o", "same.json")
    assert load("same.json").map == load("map.json").map
    run("refresh", "segmented.json", "today.parquet", "--label", "click", "-o", "segmented2.json")
    assert load("segmented2.json").map.maps["news"].intercept > 0


def test_a_refresh_names_files_and_options(run, today):
    log = ["today.parquet", "--label", "click", "-o", "out.json"]
    assert "--label" in run("refresh", "map.json", "today.parquet", "-o", "out.json", code=2)
    run("collect", "today.parquet", "--scores", "s1", *SCALE, "-o", "unlabeled.json")
    assert "unlabeled.json" in run("refresh", "map.json", "unlabeled.json", "-o", "out.json", code=2)
    assert "map.json" in run("refresh", "map.json", *log[:-1], "map.json", code=2)
    Affine(1.0, 0.0).save("bare.json")
    assert "--scores" in run("refresh", "bare.json", *log, code=2)


def test_winners_of_requests(run, logs):
    """A log gives the map that its arrays give."""
    pool, labeled = arrays(logs)
    bids = np.random.default_rng(7).lognormal(0, 0.3, len(pool))
    logs[0].with_columns(bid=bids).write_parquet("pool.parquet")
    asked = "--request", "request", "--top-k", "2", "--value", "bid"
    content = json.loads(run(*POOL, *AUTO, *ELSEWHERE, *asked, "-o", "a.json", *JSON))
    expected = Auto(**COMMON).fit(
        pool, labeled=labeled, labels_from="elsewhere", request=logs[0]["request"], top_k=2, value=bids
    )
    found = load("a.json")
    np.testing.assert_allclose(found(PROBE), expected.fitted_(PROBE), rtol=1e-12)
    assert content["top_k"] == found.record.top_k == 2
    assert found.record.pool.columns == ("s1", "s2")
    assert "of which 800 win their requests" in run(*POOL, *AUTO, *asked, "-o", "b.json", "--format", "table")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top-k", "2"), "--top-k and --value need --request"),
        (("--request", "s1"), "whole numbers, so cast it"),
        (("--request", "request", "--segment", "site"), "--segment site is not for --request"),
        (("--request", "request", "--weight", "w"), "--weight w is not for --request"),
    ],
)
def test_options_of_requests_are_checked(run, logs, options, message):
    assert message in run(*POOL, *AUTO, *options, "-o", "a.json", code=2)


def test_requests_need_rows(run, logs):
    collected(run, "pool")
    fit = "fit", "pool.json", *AUTO, "--request", "request", "-o", "a.json"
    assert "needs the rows of the pool" in run(*fit, code=2)
