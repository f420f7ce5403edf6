"""`uncurse fit` by every method, as a user would run it."""

import json
import re
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from test_logs import make, records
from uncurse import VAD, Affine, Auto, Tower, evaluate, load
from uncurse.cli.app import run as run_command
from uncurse.debias import DataRecord, ErrorInterval, FitRecord, load_record
from uncurse.evidence import Evidence
from uncurse.report.prose import fit_words

PROBE = np.linspace(-4, 1, 60)
LABELLED = ["--labelled", "labelled.parquet", "--label", "click"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a pool and labelled rows."""
    folder = tmp_path_factory.mktemp("logs")
    make(4_000).write_parquet(folder / "pool.parquet")
    make(4_000, 1).write_parquet(folder / "labelled.parquet")
    return folder


@pytest.fixture
def logs(run, written):
    """A pool and labelled rows in the folder of `run`."""
    shutil.copytree(written, ".", dirs_exist_ok=True)
    return make(4_000), make(4_000, 1)


def arrays(logs):
    pool, labelled = logs
    names = ["s1", "s2"]
    return pool.select(names).to_numpy(), (labelled.select(names).to_numpy(), labelled["click"].to_numpy())


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_a_tower_from_two_logs(run, logs, engine):
    options = ["--scores", "s1,s2", *LABELLED, "--method", "tower", "--engine", engine, "-o", "map.json"]
    said = json.loads(run("fit", "pool.parquet", *options))
    pool, labelled = arrays(logs)
    expected = Tower().fit(pool, labelled=labelled)
    np.testing.assert_allclose(load("map.json")(PROBE), expected.map_(PROBE), rtol=1e-12)
    assert (said["method"], said["pool"]["rows"], said["labelled"]["rows"]) == ("tower", 4000, 4000)
    assert float(said["line_probability"]) == pytest.approx(expected.line_probability_, rel=1e-9)
    record = load_record("map.json")
    for row in record.remaining_error:
        assert (row.low, row.high) == pytest.approx(expected.interval(row.alpha, 0.9), rel=1e-9)
    assert [row["high"] for row in said["remaining_error"]] == [row.high for row in record.remaining_error]
    assert [row.alpha for row in record.remaining_error] == [0.01, 0.02, 0.05, 0.1]
    assert record.labelled.sources == ("labelled.parquet",)


def test_evidence_collected_with_replica_counts_gives_the_map_of_its_log(run, logs):
    run("collect", "pool.parquet", "--scores", "s1,s2", "--replica-counts", "-o", "pool.json")
    options = ["--scores", "s1,s2", "--label", "click", "--replica-counts"]
    run("collect", "labelled.parquet", *options, "-o", "labelled.json")
    assert Evidence.load("pool.json").replica_counts.rows == 4_000
    run("fit", "pool.json", "--labelled", "labelled.json", "--method", "tower", "-o", "a.json")
    run("fit", "pool.parquet", "--scores", "s1,s2", *LABELLED, "--method", "tower", "-o", "b.json")
    assert load("a.json") == load("b.json")
    run("fit", "pool.json", "-o", "c.json")
    assert len(load_record("c.json").remaining_error) == 4


def test_labels_of_each_group_are_used(run, logs):
    run("collect", "pool.parquet", "--scores", "s1,s2", "--group", "site", "-o", "pool.json")
    run("collect", "labelled.parquet", "--scores", "s1,s2", "--label", "click", "-o", "rows.json")
    run("collect", "labelled.parquet", "--scores", "s1,s2", "--label", "click", "--group", "site", "-o", "named.json")
    run("fit", "pool.json", *LABELLED, "--method", "tower", "-o", "map.json")
    expected = Tower().fit(Evidence.load("pool.json"), labelled=Evidence.load("named.json"))
    assert load("map.json") == expected.map_
    assert "collect it with --group" not in run.stderr
    run("fit", "pool.json", "--labelled", "rows.json", "--method", "tower", "-o", "map.json")
    assert "labels correct all groups alike; collect it with --group site to correct each" in run.stderr


def test_groups_weights_and_sampled_negatives(run, logs):
    options = ["--group", "site", "--weight", "w", "--negative-rate", "0.5", "--replicas", "anchored"]
    run("fit", "pool.parquet", "--scores", "s1,s2", *LABELLED, "--method", "tower", *options, "-o", "map.json")
    pool, labelled = arrays(logs)
    tower = Tower(negative_rate=0.5, replicas="anchored").fit(
        pool,
        labelled=(*labelled, logs[1]["w"].to_numpy()),
        groups=logs[0]["site"].to_numpy(),
        sample_weight=logs[0]["w"].to_numpy(),
    )
    run("apply", "map.json", "pool.parquet", "--score", "s1", "-o", "out.parquet")
    expected = tower.predict_proba(pool[:, 0], groups=logs[0]["site"].to_numpy())
    np.testing.assert_allclose(pl.read_parquet("out.parquet")["prediction"], expected, rtol=1e-12)


def test_probabilities_go_through_a_tower_too(run, logs):
    for name, log in zip(("pool", "labelled"), logs, strict=True):
        log.with_columns((-pl.col("s1", "s2")).exp().add(1).pow(-1)).write_parquet(f"{name}.parquet")
    options = ["--scores", "s1,s2", "--scale", "probability", *LABELLED, "--method", "tower", "-o", "map.json"]
    run("fit", "pool.parquet", *options)
    pool, labelled = arrays(logs)
    p = 1 / (1 + np.exp(-PROBE))
    np.testing.assert_allclose(load("map.json")(p), Tower().fit(pool, labelled=labelled).map_(PROBE), rtol=1e-3)


@pytest.mark.parametrize("labels", [True, False])
def test_auto_says_what_it_chose_and_why(run, logs, labels):
    said = json.loads(
        run("fit", "pool.parquet", "--scores", "s1,s2", *LABELLED * labels, "--method", "auto", "-o", "map.json")
    )
    rows = _collected(run, "labelled", "--label", "click") if labels else None
    expected = Auto().fit(_collected(run, "pool"), labelled=rows)
    assert said["method"] == expected.method_
    assert said["reason"] == expected.reason_
    np.testing.assert_allclose(load("map.json")(PROBE), expected.map_(PROBE), rtol=1e-9)
    record = load_record("map.json")
    assert record.reason == expected.reason_
    assert record.remaining_error[1].low == pytest.approx(expected.interval(0.02)[0])


def _collected(run, name, *options):
    run("collect", f"{name}.parquet", "--scores", "s1,s2", "--replica-counts", *options, "-o", f"{name}.json")
    return Evidence.load(f"{name}.json")


def test_a_free_shape_from_a_log(run, logs):
    said = json.loads(run("fit", "pool.parquet", "--scores", "s1,s2", "--shape", "free", "-o", "map.json"))
    expected = VAD(shape="free").fit(arrays(logs)[0])
    np.testing.assert_allclose(load("map.json")(PROBE), expected.map_(PROBE), rtol=1e-12)
    assert float(said["lambda"]) == pytest.approx(expected.lambda_)
    assert load_record("map.json").shape == "free"


def test_maps_of_every_method_on_one_page(run, logs, tmp_path):
    for method in ("tower", "auto"):
        run("fit", "pool.parquet", "--scores", "s1,s2", *LABELLED, "--method", method, "-o", f"{method}.json")
    options = ["--score", "s1", "--label", "click", "--map", "tower.json", "--alpha", "0.05", "--report", "r.html"]
    said = records(run("evaluate", "labelled.parquet", *options))
    log = logs[1]
    expected = evaluate(log["click"].to_numpy(), load("tower.json")(log["s1"].to_numpy()), [0.05]).rows[0]
    assert float(said[1]["predicted"]) == pytest.approx(expected.predicted, rel=1e-9)
    page = (tmp_path / "r.html").read_text()
    for text in (
        "method tower",
        "labels follow a straight line",
        "expected error on the top of this pool, 90% intervals",
    ):
        assert text in page
    assert "The maps on this page do not assume a normal distribution." in page
    assert "a single λ for all scores" not in page
    run("evaluate", "labelled.parquet", *options[:-1], "r2.html", "--map", "auto.json")
    page = (tmp_path / "r2.html").read_text()
    assert "why: " in page
    content = json.loads(run("evaluate", "labelled.parquet", *options[:-2], "--format", "json"))
    assert content["methods"][1]["record"]["method"] == "tower"


def test_the_text_for_people(run, logs):
    options = ["--scores", "s1,s2", *LABELLED, "--group", "site", "-o", "map.json", "--format", "table"]
    text = run("fit", "pool.parquet", *options, "--method", "tower")
    for words in (
        "tower, from 4,000 pool rows and 4,000 labelled rows of s1, s2\n",
        "probability that the labels follow a straight line: 0.",
        "2 groups with a map each",
        "expected error on the top of this pool, 90% intervals of the map of all rows, not of each group's: 1%: -",
        "written to map.json; next: uncurse evaluate LOG --score s1 --label click --map map.json",
    ):
        assert words in text
    assert "not counted" not in text
    assert "\nwhy: " in run("fit", "pool.parquet", *options, "--method", "auto")
    text = run("fit", "pool.parquet", *options[:2], "--method", "vad", "-o", "map.json", "--format", "table")
    assert text.endswith("next: uncurse evaluate LOG --score s1 --label LABEL --map map.json\n")


def test_the_next_command_after_a_fit_to_winners_selects_them_too(run, logs):
    winners = ["--label", "click", "--request", "request", "--top-k", "2"]
    run("collect", "labelled.parquet", "--scores", "s1,s2", *winners, "-o", "winners.json")
    options = ["--labelled", "winners.json", "--selected-by", "served", "-o", "map.json", "--format", "table"]
    text = run("fit", "pool.parquet", "--scores", "s1,s2", "--method", "tower", *options)
    assert text.endswith("LOG --score s1 --label click --request request --top-k 2 --map map.json\n")


def test_a_log_of_labelled_rows_may_have_weights_that_the_collected_pool_has_not(run, logs):
    _, labelled = logs
    labelled.with_columns(w=pl.Series(np.arange(4_000) % 3 / 2)).write_parquet("weighted.parquet")
    run("collect", "pool.parquet", "--scores", "s1,s2", "-o", "pool.json")
    options = ["--labelled", "weighted.parquet", "--label", "click", "--method", "tower", "-o", "map.json"]
    text = run("fit", "pool.json", *options, "--weight", "w", "--format", "table")
    assert text.endswith("LOG --score s1 --label click --weight w --map map.json\n")
    record = load_record("map.json")
    assert (record.pool.effective_rows, record.labelled.effective_rows) == (4_000, pytest.approx(2_400, rel=1e-3))
    error = run("fit", "pool.json", "-o", "map.json", "--weight", "w", code=2)
    assert "--weight is w in this command, and none in pool.json" in error


def test_intervals_without_labels_say_what_they_leave_out(run):
    rng = np.random.default_rng(0)
    noise = np.where(rng.random(20_000) < 0.5, 0.1, 1.0)  # one λ does not describe these replicas
    truth = rng.normal(-2.5, 0.8, 20_000)
    columns = {f"s{i}": truth + noise * rng.normal(size=20_000) for i in (1, 2, 3)}
    pl.DataFrame({**columns, "site": np.arange(20_000) % 2}).write_parquet("pool.parquet")
    options = ["--scores", "s1,s2,s3", "--method", "auto", "-o", "map.json", "--format", "table"]
    why = "\nintervals without zero: one λ does not describe these replicas, and maps by group have no free shape; "
    for group in (False, True):
        text = run("fit", "pool.parquet", *options, *["--group", "site"] * group)
        assert "% (errors that all replicas share are not counted)\n" in text
        errors = load_record("map.json").remaining_error
        assert any(error.low > 0 or error.high < 0 for error in errors) == group
        assert (why in text) == group
        assert ("\nscores are shrunk towards" in text) == group  # maps by group shrink by λ, a free shape does not
    run("collect", "pool.parquet", "--scores", "s1,s2,s3", "-o", "pool.json")
    assert "\nscores are shrunk towards" not in run(
        "fit", "pool.json", *options[2:], "--method", "vad", "--shape", "free"
    )
    text = run("fit", "pool.json", *options[4:], "--method", "vad")
    assert "\nscores are shrunk towards" in text
    assert "\nintervals without zero: they allow for the curvature of the link and noise that one λ does not " in text
    assert "does not; use --method auto\n" in text
    line = run("fit", "pool.json", *options[2:], "--straight")
    assert re.search(r"90% intervals of the curve, not of the straight line: 1%: [-+]", line)


def test_intervals_of_a_calibrator_that_labels_contradict_say_so():
    errors = (ErrorInterval(0.1, -0.1, -0.02, 0.9),)
    rows = DataRecord(10, ("s0", "s1"))
    record = FitRecord("vad", rows, rows, calibrator="platt", remaining_error=errors)
    (last,) = fit_words(record)[-1:]
    assert last.startswith(
        "intervals without zero: labels and replicas together contradict this map; use --method auto"
    )
    assert len(fit_words(replace(record, remaining_error=(ErrorInterval(0.1, -0.1, 0.02, 0.9),)))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "tower"], "--method tower needs --labelled, a log with labels, and --label, their column"),
        (["--method", "tower", "--labelled", "labelled.parquet"], "--label is missing"),
        (["--method", "tower", *LABELLED, "--calibrator", "platt"], "--calibrator is not for --method tower; leave it"),
        (["--method", "tower", *LABELLED, "--curvature"], "--curvature is not for --method tower"),
        (["--method", "tower", *LABELLED, "--lambda-floor", "0"], "--lambda-floor is not for --method tower"),
        (["--method", "tower", *LABELLED, "--link", "identity"], "--link is not for --method tower"),
        (["--method", "tower", *LABELLED, "--shape", "free"], "--shape is not for --method tower"),
        (
            ["--method", "auto", "--curvature"],
            "--curvature is not for --method auto; leave it out, or use",
        ),
        (
            ["--method", "tower", *LABELLED, "--scale", "value"],
            "--scale value is not for --method tower; leave it out, or use --method vad",
        ),
        (["--method", "tower", *LABELLED, "--replicas", "magic"], "'--replicas': 'magic' is not one of 'seeds', 'boot"),
        (["--method", "x"], "'--method': 'x' is not one of 'auto', 'vad', 'tower'"),
        (["--shape", "x"], "'--shape': 'x' is not one of 'straight', 'free'"),
        (
            ["--shape", "free", "--curvature"],
            "needs logits or probabilities and the logistic link, without calibrator or",
        ),
        (LABELLED, "--labelled needs a --calibrator such as platt, or --method auto or tower"),
    ],
)
def test_options_that_exclude_each_other_are_refused(run, logs, arguments, message):
    error = run("fit", "pool.parquet", "--scores", "s1,s2", *arguments, "-o", "m.json", code=2)
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("options", [["--method", "auto"], ["--shape", "free"], ["--method", "tower"]])
def test_evidence_without_replica_counts_is_refused_with_the_remedy(run, logs, options):
    run("collect", "pool.parquet", "--scores", "s1,s2", "--no-replica-counts", "-o", "pool.json")
    run("collect", "pool.parquet", "--scores", "s1,s2", "--replica-counts", "-o", "with.json")
    options_of = ["--scores", "s1,s2", "--label", "click", "--no-replica-counts"]
    run("collect", "labelled.parquet", *options_of, "-o", "labelled.json")
    labelled = ["--labelled", "labelled.json"] if "tower" in options else []
    error = run("fit", "pool.json", *labelled, *options, "-o", "m.json", code=2)
    assert "pool.json was collected without replica counts; collect it again without --no-replica-counts" in error
    assert error.count("\n") == 1
    if labelled:
        error = run("fit", "with.json", *labelled, *options, "-o", "m.json", code=2)
        assert "labelled.json was collected without replica counts" in error
        run("collect", "labelled.parquet", "--scores", "s1", "--label", "click", "-o", "labelled.json")
        error = run("fit", "with.json", *labelled, *options, "-o", "m.json", code=2)
        assert "labelled.json was collected with the score column 's1' alone; collect it again with all" in error
    error = run("collect", "pool.parquet", "--scores", "s1", "--replica-counts", "-o", "x.json", code=2)
    assert "replica counts need two or more columns" in error


@pytest.mark.parametrize("options", [["--method", "tower"], ["--method", "auto"], ["--calibrator", "platt"]])
def test_labelled_evidence_whose_columns_are_in_another_order_is_refused(run, logs, options):
    run("collect", "pool.parquet", "--scores", "s1,s2", "--replica-counts", "-o", "pool.json")
    run("collect", "labelled.parquet", "--scores", "s2,s1", "--label", "click", "--replica-counts", "-o", "l.json")
    error = run("fit", "pool.json", "--labelled", "l.json", *options, "-o", "m.json", code=2)
    assert "--scores is s1,s2 in pool.json, and s2,s1 in --labelled l.json" in error
    assert error.count("\n") == 1


def test_the_defaults_are_auto_with_the_replicas_and_the_scale_that_are_named(logs, monkeypatch, capsys):
    def call(*words):  # `run` adds options
        monkeypatch.setattr(sys, "argv", ["uncurse", *words])
        return SimpleNamespace(returncode=run_command(), stderr=capsys.readouterr().err)

    pool = ["fit", "pool.parquet", "--scores", "s1,s2", "-o", "map.json"]
    missing = call(*pool, "--scale", "logit")
    assert missing.returncode == 2
    assert "--replicas" in missing.stderr
    missing = call(*pool, "--replicas", "seeds")
    assert missing.returncode == 2
    assert missing.stderr == "uncurse: --scale is missing; name the scale of the scores: logit, probability or value\n"
    unknown = call(*pool, "--scale", "logit", "--replicas", "twins")
    assert "'twins' is not one of 'seeds'" in unknown.stderr
    done = call(*pool, "--scale", "logit", "--replicas", "seeds", *LABELLED)
    assert done.returncode == 0, done.stderr
    expected = Auto().fit(arrays(logs)[0], labelled=arrays(logs)[1])
    assert load("map.json") == expected.map_
    missing = call("collect", "pool.parquet", "--scores", "s1,s2", "-o", "pool.json")
    assert missing.returncode == 2
    assert "--scale" in missing.stderr
    assert call("collect", "pool.parquet", "--scores", "s1,s2", "--scale", "logit", "-o", "pool.json").returncode == 0
    assert Evidence.load("pool.json").replica_counts is not None
    assert call("fit", "pool.json", "--replicas", "seeds", "-o", "evidence.json").returncode == 0


def test_straight_writes_a_line_and_its_loss(run, logs):
    said = json.loads(run("fit", "pool.parquet", "--scores", "s1,s2", "--curvature", "--straight", "-o", "map.json"))
    line, loss = VAD(curvature=True, intervals=True).fit(arrays(logs)[0]).line()
    assert isinstance(load("map.json"), Affine)
    assert load("map.json").slope == pytest.approx(line.slope, rel=1e-3)
    assert float(said["straight_loss"]) == pytest.approx(loss, abs=1e-4)
    assert load_record("map.json").straight_loss == float(said["straight_loss"])


def test_a_calibrated_map_of_a_log_has_a_line(run, logs):
    options = ["--method", "vad", "--calibrator", "isotonic", *LABELLED, "--straight", "-o", "map.json"]
    run("fit", "pool.parquet", "--scores", "s1,s2", *options)
    assert isinstance(load("map.json"), Affine)


def test_a_map_of_an_ensemble_is_not_evaluated_on_evidence(run, logs):
    run("fit", "pool.parquet", "--scores", "s1,s2", "--replicas", "ensemble", "-o", "map.json")
    run("collect", "labelled.parquet", "--scores", "s1,s2", "--label", "click", "-o", "labelled.json")
    error = run("evaluate", "labelled.json", "--map", "map.json", code=2)
    assert "takes the mean of" in error
    mean = logs[1].with_columns(mean=(pl.col("s1") + pl.col("s2")) / 2)
    mean.write_parquet("mean.parquet")
    run("evaluate", "mean.parquet", "--score", "mean", "--label", "click", "--map", "map.json")


def test_a_map_that_is_evaluated_on_its_own_labels_is_warned_of(run, logs):
    run("fit", "pool.parquet", "--scores", "s1,s2", *LABELLED, "--method", "auto", "-o", "map.json")
    logs[1].write_parquet("other.parquet")
    for log, warned in (("./labelled.parquet", True), ("other.parquet", False)):
        run("evaluate", log, "--score", "s1", "--label", "click", "--map", "map.json", "--alpha", "10%")
        assert ("map.json was fitted to the labels of" in run.stderr) == warned


def test_a_map_of_arrays_is_used_on_a_column_of_any_name(run, logs):
    fitted = VAD().fit(arrays(logs)[0])
    fitted.map_.save("map.json", fitted.record_.to_dict())
    run("evaluate", "labelled.parquet", "--score", "s1", "--label", "click", "--map", "map.json")
    assert "fitted to the score column" not in run.stderr
