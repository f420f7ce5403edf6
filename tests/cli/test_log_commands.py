"""The commands over logs, as a user would run them: files in, files out."""

import contextlib
import json
import os
import shlex
import shutil
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import processes
from made_logs import make, records
from uncurse import VAD, Affine, collect, evaluate, load, top_k, top_share
from uncurse.evidence import Evidence, TopK
from uncurse.links import logistic

COMMON = {"scale": "logit", "replicas": "seeds"}


@pytest.fixture(scope="module")
def made():
    """The folder of the files of `prepared`, once they are written."""
    return {}


@pytest.fixture
def prepared(run, made, tmp_path, tmp_path_factory):
    """A log, and evidence and maps of it with several options, in the folder of the command."""
    if made:
        shutil.copytree(made["folder"], tmp_path, dirs_exist_ok=True)
        return
    log = make(500)
    Path("logs").mkdir()
    for name in ("log.parquet", "logs/0.parquet"):
        log.write_parquet(name)
    log.write_csv("log.csv")
    gaps = pl.when(pl.int_range(500) % 2 == 0).then("request")
    log.with_columns(request=gaps).write_parquet("gaps.parquet")
    for name, options in {
        "plain": "--scores s1,s2",
        "day": "--scores s1,s2 --label click",
        "winners": "--scores s1,s2 --label click --request request",
        "swapped": "--scores s2,s1 --label click",
        "rate": "--scores s1,s2 --label click --negative-sampling-rate 0.5",
    }.items():
        run("collect", "log.parquet", *options.split(), "-o", f"{name}.json")
    run("fit", "day.json", "-o", "map.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "--segment", "site", "-o", "segments.json")
    made["folder"] = shutil.copytree(tmp_path, tmp_path_factory.mktemp("made") / "files")


def test_from_a_log_to_a_map_to_predictions_to_a_page(run, tmp_path):
    log = make()
    log.write_parquet("log.parquet")
    collected = json.loads(run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json"))
    assert collected["rows"] == 8000
    fitted = json.loads(run("fit", "day.json", "-o", "map.json"))
    expected = VAD(**COMMON).fit(log.select("s1", "s2").to_numpy())
    assert float(fitted["lambda_"]) == pytest.approx(expected.lambda_, abs=1e-12)
    assert load("map.json").map.slope == pytest.approx(expected.lambda_, abs=1e-12)
    record = load("map.json").record
    assert record.lambda_ == pytest.approx(expected.lambda_)
    assert record.pool.rows == 8_000
    assert record.pool.sources == ("log.parquet",)
    run("apply", "map.json", "log.parquet", "--scores", "s1", "-o", "out.parquet")
    out = pl.read_parquet("out.parquet")
    assert out.drop("prediction").equals(log)
    np.testing.assert_allclose(out["prediction"], expected.predict_proba(log["s1"].to_numpy()), atol=1e-12)
    run("fit", "day.json", "--replicas", "bootstrap", "-o", "other.json")
    options = ["--scores", "s1", "--label", "click", "--map", "map.json"]
    said = records(run("evaluate", "log.parquet", *options, "--map", "other.json"))
    assert [r["method"] for r in said] == ["as served"] * 3 + ["map.json"] * 3 + ["other.json"] * 3
    truth = evaluate(log["click"].to_numpy(), out["prediction"].to_numpy(), [0.02])
    corrected = next(r for r in said if r["method"] == "map.json" and r["alpha"] == 0.02)
    assert float(corrected["calibration_error"]) == pytest.approx(float(truth.rows[0].calibration_error), abs=1e-9)
    options += ["--top", "2%,10%", "--report", "r.html"]
    content = json.loads(run("evaluate", "log.parquet", *options, "--format", "json"))
    assert [m["name"] for m in content["methods"]] == ["as served", "map.json"]
    page = (tmp_path / "r.html").read_text()
    assert ">helps</span>. On the top 2% to 10%, predictions are " in page
    assert len(page) < 2_000_000


def test_evidence_may_stand_for_its_log(run):
    make().write_parquet("log.parquet")
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "a.json")
    run("fit", "day.json", "-o", "b.json")
    assert load("a.json").map == load("b.json").map
    direct = records(run("evaluate", "log.parquet", "--scores", "s1", "--label", "click", "--map", "a.json"))
    assert records(run("evaluate", "day.json", "--map", "a.json")) == direct


def test_a_tandem_from_two_logs(run):
    pool, labeled = make(), make(seed=1)
    pool.write_parquet("pool.parquet")
    labeled.write_parquet("labeled.parquet")
    options = ["--labeled", "labeled.parquet", "--label", "click", "--calibrator", "platt"]
    run("fit", "pool.parquet", "--scores", "s1,s2", *options, "-o", "map.json")
    scores = labeled.select("s1", "s2").to_numpy()
    expected = VAD(**COMMON, calibrator="platt").fit(
        pool.select("s1", "s2").to_numpy(), labeled=(scores, labeled["click"])
    )
    probe = np.linspace(-4, 2, 50)
    np.testing.assert_allclose(load("map.json")(probe), expected.map_(probe), atol=1e-9)
    assert load("map.json").record.labeled.rows == 8_000


@pytest.mark.parametrize("k", [1, 3])
def test_the_best_of_each_request(run, k):
    log = make()
    log.write_parquet("log.parquet")
    options = ["--request", "request", "--top-k", k]
    said = records(run("evaluate", "log.parquet", "--scores", "s1", "--label", "click", *options))
    chosen = top_k(log["s1"].to_numpy(), log["request"].to_numpy(), k)
    p = logistic(log["s1"].to_numpy())[chosen]
    assert [r["alpha"] for r in said] == [1.0]
    assert float(said[0]["selected"]) == chosen.sum()
    assert float(said[0]["predicted"]) == pytest.approx(p.sum(), rel=1e-9)
    assert float(said[0]["observed"]) == log["click"].to_numpy()[chosen].sum()
    run("collect", "log.parquet", "--scores", "s1", "--label", "click", *options, "-o", "winners.json")
    assert Evidence.load("winners.json").spec.top_k == TopK("request", k)
    assert records(run("evaluate", "winners.json")) == said  # all of them, as from the log


def test_weights_and_sampled_negatives(run):
    log = make()
    log.write_parquet("log.parquet")
    options = "--scores s1 --label click --weight w --negative-sampling-rate 0.2 --top 0.1"
    said = records(run("evaluate", "log.parquet", *options.split()))
    p = logistic(log["s1"].to_numpy() + np.log(0.2))
    expected = evaluate(log["click"].to_numpy(), p, [0.1], sample_weight=log["w"].to_numpy()).rows[0]
    assert float(said[0]["calibration_error"]) == pytest.approx(float(expected.calibration_error), abs=1e-9)
    run("fit", "log.parquet", "--scores", "s1,s2", "--negative-sampling-rate", "0.2", "--weight", "w", "-o", "map.json")
    vad = VAD(**COMMON, negative_sampling_rate=0.2).fit(
        log.select("s1", "s2").to_numpy(), sample_weight=log["w"].to_numpy()
    )
    probe = np.linspace(-4, 2, 50)
    np.testing.assert_allclose(load("map.json")(probe), vad.map_(probe), atol=1e-12)


def test_labels_may_be_counts_of_trials(run):
    log = make(2_000)
    trials = np.random.default_rng(1).integers(1, 5, len(log))
    counted = log.with_columns(clicks=log["click"] * trials, shown=trials)
    counted.write_parquet("counts.parquet")
    counted[np.repeat(np.arange(len(log)), trials)].write_parquet("rows.parquet")
    labels = {"counts": ["--label", "clicks", "--trials", "shown"], "rows": ["--label", "click"]}
    common = ["--scores", "s1,s2", "--scale", "logit"]
    found = {}
    for name, own in labels.items():
        run("collect", f"{name}.parquet", *common, *own, "-o", f"{name}.json")
        labeled = ["--labeled", f"{name}.parquet", *own, "--labels-from", "elsewhere"]
        run("fit", "rows.parquet", *common, "--method", "auto", *labeled, "-o", "map.json")
        run("refresh", "map.json", f"{name}.parquet", *own, "-o", "next.json")
        shown = run("evaluate", f"{name}.parquet", *own, "--map", "map.json", "--map", "next.json", "--format", "json")
        kept = run("monitor", "map.json", f"{name}.parquet", *own, "--format", "json")
        rows = records(shown)
        found[name] = [row["calibration_error"] for row in rows], Evidence.load(f"{name}.json").rows, len(kept) > 0
    assert found["counts"][0] == pytest.approx(found["rows"][0], rel=1e-6)
    assert found["counts"][1:] == found["rows"][1:] == (trials.sum(), True)
    assert "--trials is other, and shown in counts.json" in run("evaluate", "counts.json", "--trials", "other", code=2)


def test_scores_corrected_for_the_rate_are_not_called_as_served(run):
    make().write_parquet("log.parquet")
    options = ["log.parquet", "--scores", "s1", "--label", "click", "--top", "10%", "--format", "table"]
    assert "  as served  " in run("evaluate", *options)
    text = run("evaluate", *options, "--negative-sampling-rate", "0.2", "--report", "report.html")
    assert "  as served, corrected for the rate  " in text
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Predictions as served, corrected for the rate are <" in page


def test_probabilities_all_the_way(run):
    log = make().with_columns(p1=1 / (1 + (-pl.col("s1")).exp()), p2=1 / (1 + (-pl.col("s2")).exp()))
    log.write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "p1,p2", "--scale", "probability", "-o", "map.json")
    vad = VAD(scale="probability", replicas="seeds").fit(log.select("p1", "p2").to_numpy())
    run("apply", "map.json", "log.parquet", "--scores", "p1", "-o", "out.parquet")
    expected = vad.predict_proba(log["p1"].to_numpy())
    np.testing.assert_allclose(pl.read_parquet("out.parquet")["prediction"], expected, atol=1e-9)
    options = ["--scores", "p1", "--label", "click", "--scale", "probability", "--map", "map.json", "--top", "0.1"]
    said = records(run("evaluate", "log.parquet", *options))
    whole = evaluate(log["click"].to_numpy(), expected, [0.1]).rows[0]
    assert float(said[1]["predicted"]) == pytest.approx(whole.predicted, rel=1e-9)
    options = ["--scores", "s1", "--label", "click", "--map", "map.json"]
    error = run("evaluate", "log.parquet", *options, "--scale", "logit", code=2)
    assert "map.json has scale='logit'" in error
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json")
    error = run("evaluate", "day.json", "--map", "map.json", code=2)
    assert "day.json for map.json has scale='logit'" in error


# ---------------------------------------------------------------------------- apply


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("collect log.parquet --scores s1,s2 -o log.parquet", "log.parquet is an input"),
        ("collect logs --scores s1,s2 -o logs/0.parquet", "logs/0.parquet; name a .json file"),
        ("fit log.parquet --scores s1,s2 -o ./log.parquet", "log.parquet is an input"),
        ("fit day.json -o day.json", "day.json is an input of this command; name another file"),
        ("evaluate log.parquet --scores s1 --label click --report link.parquet", "is an input"),
        ("evaluate day.json --map map.json --report map.json", "map.json is an input"),
        ("apply map.json log.parquet --scores s1 -o log.parquet", "log.parquet is an input"),
        ("apply map.json log.parquet --scores s1 -o .", "log.parquet is the log itself"),
        ("apply map.json log.parquet --scores s1 -o map.json", "map.json is an input"),
        ("fit day.json -o other.csv", "--out is other.csv; name a .json file"),
        ("fit day.json -o ''", "--out is empty; name a file"),
        ("fit '' --scores s1,s2 -o m.json", "a path is empty; pass a file, a glob or a folder"),
        ("fit day.json -o " + "x" * 300 + ".json", "File name too long"),
        ("fit day.json -o - --format json", "--out and --format both write to standard output"),
        ("monitor map.json logs --label click --prometheus logs/0.parquet", "--prometheus is logs/0.parquet; name a ."),
    ],
)
def test_no_command_writes_over_what_it_reads(run, prepared, arguments, message, tmp_path):
    (tmp_path / "other.csv").write_text("a log\n")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "log.parquet")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert message in run(*shlex.split(arguments), code=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit log.parquet -o m.json", "--scores is missing; name the column of the served score"),
        ("fit log.parquet --scores s1 -o m.json", "there is one score column"),
        ("fit winners.json -o m.json", "the pool holds only the top 1 of each request"),
        ("fit day.json day.json -o m.json", "day.json is named twice, or a copy"),
        ("fit day.json --calibrator platt -o m.json", "--calibrator platt needs --labeled, a log"),
        ("fit day.json --calibrator x --labeled day.json -o m.json", "'x' is not one of 'platt'"),
        ("fit log.parquet day.json --scores s1,s2 -o m.json", "are logs and evidence mixed"),
        ("fit day.json --scores s2,s1 -o m.json", "--scores is s2,s1, and s1,s2 in day.json"),
        ("fit day.json --negative-sampling-rate 0.1 -o m.json", "--negative-sampling-rate is 0.1, and none in"),
        ("fit map.json -o m.json", "map.json holds a 'affine'; pass evidence, which"),
        ("evaluate log.parquet --scores s1", "--label is missing; name the column of 0/1 labels"),
        ("evaluate log.parquet --label click", "--scores is missing; name the column of the served score"),
        ("evaluate plain.json", "plain.json was collected without labels; collect it again"),
        ("evaluate log.parquet --scores s1 --label click --top x%", "'--top': 'x%'"),
        ("evaluate log.parquet --scores s1 --label click --top 2%,0.5:1", "'--top': '0.5:1'"),
        ("evaluate log.parquet --scores s1 --label click --top 3", "'--top': '3'"),
        ("collect log.parquet --scores s1 --as-of 9999-12-31T23:59:59 -o d.json", "pass an ISO date or time"),
        ("monitor map.json log.parquet --label click --state /dev/full", "cannot read /dev/full: it is a device"),
        ("evaluate log.parquet --scores s1 --label click --map /dev/zero", "cannot read /dev/zero: it is a device"),
        ("evaluate day.json --map segments.json", "segments.json has a map for each segment; collect day"),
        ("evaluate log.parquet --scores s1 --label click --map day.json", "day.json is of kind 'evidence'; pass a map"),
        ("evaluate log.parquet --scores s1 --label click --report no/r.html", "cannot write --report no/r"),
        ("fit day.json --label click -o m.json", "--label click needs --labeled"),
        ("fit day.json --segment nosuch -o m.json", "--segment is nosuch, and none in"),
        ("evaluate winners.json --top-k 5", "--top-k is 5, and 1 in winners.json"),
        ("evaluate day.json --top-k 5", "--top-k is 5, and none in day.json"),
        ("evaluate log.parquet --scores s1 --label click --top-k 5", "--top-k needs --request"),
        ("evaluate day.json --segment nosuch", "--segment is nosuch, and none in day.json"),
        ("evaluate day.json --scores s2", "--scores is s2, and s1 in day.json"),
        ("evaluate day.json --value w", "--value w needs rows, and day.json is evidence"),
        (
            "fit day.json --method auto --labels-from elsewhere --labeled swapped.json -o m.json",
            "scores in the labeled rows: s2, s1",
        ),
        (
            "fit day.json --method auto --labels-from elsewhere --labeled rate.json -o m.json",
            "negative_sampling_rate in the labeled rows: 0.5",
        ),
        ("evaluate day.json --report -", "--report cannot be standard output; name a file"),
        ("fit - --labeled - -o m.json", "standard input is named twice"),
        ("evaluate day.json --map - --map -", "standard input is named twice"),
        ("fit day.json ./day.json -o m.json", "./day.json is named twice, or a copy of another"),
        ("fit log.parquet --scores s1,s2 --weight w --calibrator platt --labeled day.json -o m.json", "--weight is w"),
        ("apply map.json logs --scores s1 -o logs/out", "logs/out lies inside logs"),
        ("apply map.json log.csv --scores s1 --column '' -o o.csv", "column '' "),
        ("evaluate log.parquet --scores s1 --label click --request request --value w", "--value and --request exclude"),
        ("collect gaps.parquet --scores s1 --request request -o x.json", "column 'request', row 1 is missing"),
    ],
)
def test_what_the_commands_refuse(run, prepared, arguments, message):
    error = run(*shlex.split(arguments), code=2)
    assert message in error
    assert error.count("\n") == 1


def test_the_map_knows_its_negative_sampling_rate(run):
    make().write_parquet("log.parquet")
    options = ["--scores", "s1,s2", "--label", "click"]
    run("collect", "log.parquet", *options, "--negative-sampling-rate", "0.5", "-o", "day.json")
    run("collect", "log.parquet", *options, "-o", "plain.json")
    run("fit", "day.json", "-o", "map.json")
    options = ["--scores", "s1", "--label", "click", "--map", "map.json", "--top", "2%,10%"]
    expected = records(run("evaluate", "log.parquet", *options, "--negative-sampling-rate", "0.5"))
    assert records(run("evaluate", "log.parquet", *options)) == expected
    assert records(run("evaluate", "day.json", "--map", "map.json", "--top", "2%,10%")) == expected
    error = run("evaluate", "log.parquet", *options, "--negative-sampling-rate", "0.1", code=2)
    assert "map.json has negative_sampling_rate=0.1" in error
    assert records(run("evaluate", "log.parquet", *options, "--negative-sampling-rate", "50%")) == expected
    for text in ("half", "%", "1e999999999%"):
        assert "--negative-sampling-rate" in run(
            "evaluate", "log.parquet", *options, "--negative-sampling-rate", text, code=2
        )
    error = run("evaluate", "plain.json", "--map", "map.json", code=2)
    assert "plain.json for map.json has negative_sampling_rate=None" in error


def test_a_map_of_an_ensemble_is_not_used_on_a_member(run):
    log = make(2_000).with_columns(mean=(pl.col("s1") + pl.col("s2")) / 2)
    log.write_parquet("log.parquet")
    options = ["--scores", "s1,s2", "--replicas", "ensemble", "--format", "table"]
    assert "--scores MEAN" in run("fit", "log.parquet", *options, "-o", "map.json")
    message = "map.json takes the mean of s1, s2, and s1 is one of them; use a column of the mean"
    assert message in run("apply", "map.json", "log.parquet", "--scores", "s1", "-o", "out.parquet", code=2)
    evaluated = ["evaluate", "log.parquet", "--label", "click", "--map", "map.json", "--top", "0.5"]
    assert message in run(*evaluated, "--scores", "s1", code=2)
    run(*evaluated, "--scores", "mean")
    run("apply", "map.json", "log.parquet", "--scores", "mean", "-o", "out.parquet")


def test_segments_without_a_map_are_warned_of(run):
    log = make(2_000)
    log.write_parquet("log.parquet")
    log.with_columns(site=pl.lit("radio"), other="site").write_parquet("new.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "--segment", "site", "-o", "map.json")
    words = ["map.json", "new.parquet", "--scores", "s1", "-o", "out.parquet"]

    def warned(*arguments):
        run(*arguments)
        return run.stderr

    assert "2,000 of 2,000 rows have a site without a map of its own; they get the default map" in warned(
        "apply", *words
    )
    assert "was fitted to the segments of 'site', and is applied to those of 'other'" in warned(
        "apply", *words, "--segment", "other"
    )
    options = ["--scores", "s1", "--label", "click", "--map", "map.json", "--top", "0.5"]
    assert "2,000 of 2,000 rows have a site without a map" in warned("evaluate", "new.parquet", *options)


def test_maps_that_were_fitted_with_other_options_are_not_compared(run):
    make(2_000).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "a.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "--negative-sampling-rate", "0.5", "-o", "b.json")
    options = ["--scores", "s1", "--label", "click", "--map", "a.json", "--map", "b.json"]
    error = run("evaluate", "log.parquet", *options, code=2)
    assert "negative_sampling_rate=0.5" in error


def test_a_value_of_zero_on_all_selected_rows_is_undefined(run):
    log = make(2_000).with_columns(bid=pl.when(pl.col("s1") < 0).then(1.0).otherwise(0.0))
    log.write_parquet("log.parquet")
    options = ["--scores", "s1", "--label", "click", "--top", "1%,50%", "--value", "bid"]
    first, second = records(run("evaluate", "log.parquet", *options))
    assert (first["value_predicted"], first["value_observed"]) == (0.0, 0.0)
    assert float(second["value_observed"]) > 0
    run("evaluate", "log.parquet", *options, "--report", "r.html", "--format", "table")
    log.with_columns(bid=-pl.col("bid")).write_parquet("log.parquet")
    assert "column 'bid', row " in run("evaluate", "log.parquet", *options, code=2)


def test_evaluate_says_whether_maps_help_by_share_and_by_segment(run):
    make(20_000).write_parquet("log.parquet")
    Affine(1.0, 0.5).save("worse.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "map.json")
    words = ["evaluate", "log.parquet", "--scores", "s1", "--label", "click", "--segment", "site", "--map", "map.json"]
    words += ["--map", "worse.json", "--top", "2%,10%"]
    text = run(*words, "--format", "table")
    lines = text.splitlines()
    assert lines[1].startswith("map.json helps. Of 2 maps it is the nearest to the truth: on the top 2% to 10%, ")
    assert "Mean size of the error: map.json " in lines[2]
    (place,) = (i for i, line in enumerate(lines) if line.startswith("By segment: map.json "))
    end = lines.index("", place)
    segments = [line.split()[0] for line in lines[place + 3 : end] if not line.startswith("Where ")]
    content = json.loads(run(*words, "--report", "r.html"))
    served, after, worse = content["methods"]
    assert after["error"] < served["error"] < worse["error"]
    assert after["nearer"] > 0.95 > 0.05 > worse["nearer"]
    assert len(after["nearer_by_share"]) == len(after["expected"]) == 2
    low, high, held = after["expected"][1]
    assert low < high
    assert held is True
    assert list(content["segments"]) == segments
    rows = {name: found[1]["rows"][0] for name, found in content["segments"].items()}
    assert [row["selected"] for row in rows.values()] == sorted((r["selected"] for r in rows.values()), reverse=True)
    total = after["evaluation"]["rows"][1]  # the segments are parts of the selected rows
    for sums in ("selected", "predicted", "observed"):
        assert sum(row[sums] for row in rows.values()) == pytest.approx(total[sums], rel=1e-3)
    page = Path("r.html").read_text(encoding="utf-8")
    assert all(f'<th scope="row">{name}</th>' in page for name in segments)


def test_segments_without_a_selected_row_are_counted_and_not_shown(run):
    site = pl.when(pl.col("s1") < -2).then(pl.lit("low")).otherwise("site")
    low = make(8_000).with_columns(site=site)
    low.write_parquet("log.parquet")
    words = ["evaluate", "log.parquet", "--scores", "s1", "--label", "click", "--segment", "site", "--top", "10%"]
    lines = run(*words, "--format", "table").splitlines()
    assert "… and 1 segment with fewer selected rows, or none" in lines
    assert lines[-1] == "next: correct the scores with uncurse fit"
    assert sorted(json.loads(run(*words))["segments"]) == ["news", "sport"]


def test_by_default_shares_that_select_too_few_rows_are_left_out(run):
    for rows, shares in ((8_000, ["2%", "5%", "10%"]), (300, ["10%"])):
        make(rows).write_parquet("log.parquet")
        text = run("evaluate", "log.parquet", "--scores", "s1", "--label", "click", "--format", "table")
        table = text.split("\n\n")[1].splitlines()[2:]
        assert [line.split()[1] for line in table] == shares
        assert f"left out: the top 0.1%, 1%{', 2%, 5%' * (rows == 300)}, with fewer than 100 rows" in text


def test_evaluate_is_a_gate(run):
    make(20_000).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "map.json")
    options = ["--scores", "s1", "--label", "click", "--top", "2%,10%"]
    error = run("evaluate", "log.parquet", *options, "--fail-above", "5%", code=1)
    assert error.startswith("uncurse: failed, because these calibration errors are above 5%:\n  as served, top 2%: +1")
    run("evaluate", "log.parquet", *options, "--map", "map.json", "--fail-above", "9%")
    assert "map.json, top " in run(
        "evaluate", "log.parquet", *options, "--map", "map.json", "--fail-above", "0.0001", code=1
    )
    for bad in ("5x", "10", "-1%"):  # 10 would be 1,000%
        assert f"'{bad}' is not a share" in run("evaluate", "log.parquet", *options, "--fail-above", bad, code=2)
    run("evaluate", "log.parquet", *options, "--fail-above", "150%")


def test_value_sums_the_column_over_the_selected_rows(run):
    log = make()
    log.write_parquet("log.parquet")
    options = ["--scores", "s1", "--label", "click", "--top", "5%", "--value", "w"]
    (said,) = records(run("evaluate", "log.parquet", *options))
    top = top_share(log["s1"].to_numpy(), 0.05)
    s1, click, w = (log[name].to_numpy()[top] for name in ("s1", "click", "w"))
    assert float(said["value_observed"]) == pytest.approx(w @ click, rel=1e-12)
    assert float(said["value_predicted"]) == pytest.approx(w @ logistic(s1), rel=1e-12)


def test_standard_input_and_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = make(500)
    log.write_csv("log.csv")
    log.write_parquet("log.parquet")
    collect("log.csv", ["s1", "s2"]).save("day.json")
    VAD(**COMMON).fit(log.select("s1", "s2").to_numpy()).save("map.json")

    def piped(path, *words):
        process = processes.start(words, tmp_path, "out", path)
        process.join()
        assert process.exitcode == 0
        return Path("out").read_bytes()

    options = ["--scores", "s1,s2", "--scale", "logit", "-o", "-"]
    for path in ("log.csv", "log.parquet"):
        content = json.loads(piped(path, "collect", "-", *options))
        assert content["moments"] == json.loads(Path("day.json").read_text())["moments"]
        assert content["sources"] == ["-"]
    fitted = json.loads(piped("day.json", "fit", "-", "--replicas", "seeds", "--method", "vad", "-o", "-"))
    assert fitted["slope"] == pytest.approx(load("map.json").map.slope, rel=1e-12)
    out = piped("log.csv", "apply", "map.json", "-", "--scores", "s1", "-o", "-")
    assert out.splitlines()[0] == b"id,s1,s2,click,w,site,request,prediction"


# ---------------------------------------------------------------------------- a person at the terminal


def test_output_is_the_same_at_a_terminal_and_in_a_pipe(run, tmp_path):
    pty = pytest.importorskip("pty")
    make().write_parquet("log.parquet")
    words = ["evaluate", "log.parquet", "--scores", "s1", "--label", "click", "--scale", "logit", "--format", "table"]
    primary, secondary = pty.openpty()
    process = processes.start(words, tmp_path, os.ttyname(secondary))
    os.set_blocking(primary, False)
    said = b""
    ends = time.monotonic() + 60
    while (process.exitcode is None or not said.endswith(b"\n")) and time.monotonic() < ends:
        with contextlib.suppress(BlockingIOError):
            said += os.read(primary, 65_536)
        time.sleep(0.001)
    os.close(secondary)
    os.close(primary)
    assert process.exitcode == 0
    piped = run(*words)
    assert run.stderr == ""
    assert piped == said.decode().replace("\r\n", "\n")
    assert "Calibration error (predicted / observed − 1) with its 95% interval" in piped


def test_all_commands_refuse_another_score_column_alike(run):
    make(2_000).with_columns(s0=pl.col("s1")).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "map.json")
    for words in (
        ["evaluate", "log.parquet", "--map", "map.json", "--label", "click"],
        ["monitor", "map.json", "log.parquet", "--label", "click", "--state", "s.json"],
        ["refresh", "map.json", "log.parquet", "--label", "click", "-o", "map2.json"],
        ["apply", "map.json", "log.parquet", "-o", "out.parquet"],
    ):
        assert "map.json was fitted to the score column 's1', not to 's0'" in run(*words, "--scores", "s0", code=2)
