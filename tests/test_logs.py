"""The commands over logs, as a user would run them: files in, files out."""

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import processes
from required_options import with_required
from uncurse import VAD, collect, evaluate, load, top_k, top_share
from uncurse.cli import main, reading
from uncurse.debias import load_record
from uncurse.evidence import Evidence, TopK
from uncurse.links import logistic


@cache
def make(rows=8_000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    return pl.DataFrame(
        {
            "id": [f"{i:05d}" for i in range(rows)],
            "s1": truth + rng.normal(0, 0.4, rows),
            "s2": truth + rng.normal(0, 0.4, rows),
            "click": (rng.random(rows) < logistic(truth)).astype(np.int8),
            "w": rng.integers(1, 3, rows).astype(np.float64),
            "site": rng.choice(["news", "sport"], rows),
            "request": rng.integers(0, rows // 10, rows),
        }
    )


MADE = {}


@pytest.fixture
def prepared(run, tmp_path, tmp_path_factory):
    """Call a function that writes files with `run`, or copy the files that it wrote for another test."""

    def copy(write):
        if write in MADE:
            shutil.copytree(MADE[write], tmp_path, dirs_exist_ok=True)
        else:
            write(run)
            MADE[write] = shutil.copytree(tmp_path, tmp_path_factory.mktemp("made") / "files")

    return copy


def records(text):
    """Return the metrics of each method and share, with the sums of value."""
    rows = []
    for method in json.loads(text)["methods"]:
        for i, row in enumerate(method["evaluation"]["rows"]):
            error = {"method": method["name"], "calibration_error": row["calibration_error"]["value"]}
            valued = {} if method["value"] is None else method["value"]["rows"][i]
            rows.append({**row, **error, **{f"value_{name}": sums for name, sums in valued.items()}})
    return rows


def a_log_its_evidence_and_its_map(run):
    log = make(500)
    log.write_parquet("log.parquet")
    log.write_csv("log.csv")
    Path("logs").mkdir()
    log.write_parquet("logs/0.parquet")
    gaps = pl.when(pl.int_range(500) % 2 == 0).then("request")
    log.with_columns(request=gaps).write_parquet("gaps.parquet")
    log.with_columns(s1=pl.col("click").cast(pl.Int128)).write_parquet("big.parquet")
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json")
    run("fit", "day.json", "-o", "map.json")


def files_of_every_kind(run):
    make(500).write_parquet("log.parquet")
    run("collect", "log.parquet", "--scores", "s1,s2", "-o", "day.json")
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "labelled.json")
    run("collect", "log.parquet", "--scores", "s1,s2", "--request", "request", "-o", "winners.json")
    run("fit", "day.json", "-o", "map.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "--group", "site", "-o", "groups.json")
    Path("bad.json").write_text('{"kind": "evid')


def evidence_of_other_options(run):
    make(500).write_parquet("log.parquet")
    options = ["--scores", "s1,s2", "--label", "click"]
    run("collect", "log.parquet", *options, "-o", "day.json")
    run("collect", "log.parquet", *options, "--request", "request", "-o", "top.json")
    run("collect", "log.parquet", "--scores", "s2,s1", "--label", "click", "-o", "swapped.json")
    run("collect", "log.parquet", *options, "--negative-rate", "0.5", "-o", "rate.json")


def test_from_a_log_to_a_map_to_predictions_to_a_page(run, tmp_path):
    log = make()
    log.write_parquet("log.parquet")
    collected = json.loads(run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json"))
    assert collected["rows"] == 8000
    fitted = json.loads(run("fit", "day.json", "-o", "map.json"))
    expected = VAD().fit(log.select("s1", "s2").to_numpy())
    assert float(fitted["lambda"]) == pytest.approx(expected.lambda_, abs=1e-12)
    assert load("map.json").slope == pytest.approx(expected.lambda_, abs=1e-12)
    record = load_record("map.json")
    assert record.lambda_ == pytest.approx(expected.lambda_)
    assert record.pool.rows == 8_000
    assert record.pool.sources == ("log.parquet",)
    run("apply", "map.json", "log.parquet", "--score", "s1", "-o", "out.parquet")
    out = pl.read_parquet("out.parquet")
    assert out.drop("prediction").equals(log)
    np.testing.assert_allclose(out["prediction"], expected.predict_proba(log["s1"].to_numpy()), atol=1e-12)
    options = ["--score", "s1", "--label", "click", "--map", "map.json"]
    said = records(run("evaluate", "log.parquet", *options))
    assert len(said) == 2 * 9
    truth = evaluate(log["click"].to_numpy(), out["prediction"].to_numpy(), [0.02])
    corrected = next(r for r in said if r["method"] == "map.json" and r["alpha"] == 0.02)
    assert float(corrected["calibration_error"]) == pytest.approx(float(truth.rows[0].calibration_error), abs=1e-9)
    options += ["--alpha", "2%,10%", "--report", "r.html"]
    content = json.loads(run("evaluate", "log.parquet", *options, "--format", "json"))
    assert [m["name"] for m in content["methods"]] == ["as served", "map.json"]
    page = (tmp_path / "r.html").read_text()
    assert "over-predict" in page
    assert len(page) < 2_000_000


def test_evidence_may_stand_for_its_log(run):
    make().write_parquet("log.parquet")
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "a.json")
    run("fit", "day.json", "-o", "b.json")
    assert load("a.json") == load("b.json")
    direct = records(run("evaluate", "log.parquet", "--score", "s1", "--label", "click", "--map", "a.json"))
    assert records(run("evaluate", "day.json", "--map", "a.json")) == direct


def test_evidence_of_several_days_is_merged(run):
    whole = pl.concat([make(seed=i) for i in range(3)])
    for i in range(3):
        make(seed=i).write_parquet(f"{i}.parquet")
        run("collect", f"{i}.parquet", "--scores", "s1,s2", "-o", f"{i}.json")
    run("fit", "0.json", "1.json", "2.json", "-o", "map.json")
    assert load("map.json").slope == pytest.approx(VAD().fit(whole.select("s1", "s2").to_numpy()).lambda_, abs=1e-12)
    assert load_record("map.json").pool.sources == ("0.parquet", "1.parquet", "2.parquet")


def test_a_tandem_from_two_logs(run):
    pool, labelled = make(), make(seed=1)
    pool.write_parquet("pool.parquet")
    labelled.write_parquet("labelled.parquet")
    options = ["--labelled", "labelled.parquet", "--label", "click", "--calibrator", "platt"]
    run("fit", "pool.parquet", "--scores", "s1,s2", *options, "-o", "map.json")
    scores = labelled.select("s1", "s2").to_numpy()
    expected = VAD(calibrator="platt").fit(pool.select("s1", "s2").to_numpy(), labelled=(scores, labelled["click"]))
    probe = np.linspace(-4, 2, 50)
    np.testing.assert_allclose(load("map.json")(probe), expected.map_(probe), atol=1e-9)
    assert load_record("map.json").labelled.rows == 8_000


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_groups_go_all_the_way(run, engine):
    log = make()
    log.write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "--group", "site", "--engine", engine, "-o", "map.json")
    vad = VAD().fit(log.select("s1", "s2").to_numpy(), groups=log["site"].to_numpy())
    # The map knows the column of its groups.
    run("apply", "map.json", "log.parquet", "--score", "s1", "--engine", engine, "-o", "out.parquet")
    expected = vad.predict_proba(log["s1"].to_numpy(), groups=log["site"].to_numpy())
    np.testing.assert_allclose(pl.read_parquet("out.parquet")["prediction"], expected, atol=1e-9)
    options = ["--score", "s1", "--label", "click", "--map", "map.json", "--alpha", "0.05", "--engine", engine]
    report = ["--report", "r.html"] if engine == "polars" else []
    said = records(run("evaluate", "log.parquet", *options, *report))
    top = top_share(log["s1"].to_numpy(), 0.05)  # the served score selects for every map
    assert float(said[1]["predicted"]) == pytest.approx(expected[top].sum(), rel=1e-9)
    assert not report or "sport" in Path("r.html").read_text()


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_best_of_each_request(run, engine, k):
    log = make()
    log.write_parquet("log.parquet")
    options = ["--request", "request", "--top-k", k, "--engine", engine]
    said = records(run("evaluate", "log.parquet", "--score", "s1", "--label", "click", *options))
    chosen = top_k(log["s1"].to_numpy(), log["request"].to_numpy(), k)
    p = logistic(log["s1"].to_numpy())[chosen]
    assert [r["alpha"] for r in said] == [1.0]
    assert float(said[0]["selected"]) == chosen.sum()
    assert float(said[0]["predicted"]) == pytest.approx(p.sum(), rel=1e-9)
    assert float(said[0]["observed"]) == log["click"].to_numpy()[chosen].sum()
    run("collect", "log.parquet", "--scores", "s1", "--label", "click", *options, "-o", "winners.json")
    assert Evidence.load("winners.json").spec.top_k == TopK("request", k)
    assert records(run("evaluate", "winners.json")) == said  # all of them, as from the log


def test_several_maps_side_by_side(run):
    make().write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "a.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "--curvature", "-o", "b.json")
    options = ["--score", "s1", "--label", "click", "--map", "a.json", "--map", "b.json", "--alpha", "0.05,0.1"]
    said = records(run("evaluate", "log.parquet", *options, "--figures", "figures"))
    assert [r["method"] for r in said] == ["as served"] * 2 + ["a.json"] * 2 + ["b.json"] * 2
    names = os.listdir("figures")
    assert any(name.endswith(".svg") for name in names)
    assert any(name.endswith(".png") for name in names)


def test_weights_and_sampled_negatives(run):
    log = make()
    log.write_parquet("log.parquet")
    options = ["--score", "s1", "--label", "click", "--weight", "w", "--negative-rate", "0.2", "--alpha", "0.1"]
    said = records(run("evaluate", "log.parquet", *options))
    p = logistic(log["s1"].to_numpy() + np.log(0.2))
    expected = evaluate(log["click"].to_numpy(), p, [0.1], sample_weight=log["w"].to_numpy()).rows[0]
    assert float(said[0]["calibration_error"]) == pytest.approx(float(expected.calibration_error), abs=1e-9)
    run("fit", "log.parquet", "--scores", "s1,s2", "--negative-rate", "0.2", "--weight", "w", "-o", "map.json")
    vad = VAD(negative_rate=0.2).fit(log.select("s1", "s2").to_numpy(), sample_weight=log["w"].to_numpy())
    probe = np.linspace(-4, 2, 50)
    np.testing.assert_allclose(load("map.json")(probe), vad.map_(probe), atol=1e-12)


def test_scores_corrected_for_the_rate_are_not_called_as_served(run):
    make().write_parquet("log.parquet")
    options = ["log.parquet", "--score", "s1", "--label", "click", "--alpha", "10%", "--format", "table"]
    assert " as served\n" in run("evaluate", *options)
    text = run("evaluate", *options, "--negative-rate", "0.2", "--report", "report.html")
    assert " as served, corrected for the rate\n" in text
    page = Path("report.html").read_text(encoding="utf-8")
    assert "the scores, corrected for the rate, " in page


def test_probabilities_all_the_way(run):
    log = make().with_columns(p1=1 / (1 + (-pl.col("s1")).exp()), p2=1 / (1 + (-pl.col("s2")).exp()))
    log.write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "p1,p2", "--scale", "probability", "-o", "map.json")
    vad = VAD(scale="probability").fit(log.select("p1", "p2").to_numpy())
    run("apply", "map.json", "log.parquet", "--score", "p1", "-o", "out.parquet")
    expected = vad.predict_proba(log["p1"].to_numpy())
    np.testing.assert_allclose(pl.read_parquet("out.parquet")["prediction"], expected, atol=1e-9)
    options = ["--score", "p1", "--label", "click", "--scale", "probability", "--map", "map.json", "--alpha", "0.1"]
    said = records(run("evaluate", "log.parquet", *options))
    whole = evaluate(log["click"].to_numpy(), expected, [0.1]).rows[0]
    assert float(said[1]["predicted"]) == pytest.approx(whole.predicted, rel=1e-9)
    options = ["--score", "s1", "--label", "click", "--map", "map.json"]
    error = run("evaluate", "log.parquet", *options, "--scale", "logit", code=2)
    assert "--scale is logit in this command, and probability in map.json; evaluate each map with the options" in error
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json")
    error = run("evaluate", "day.json", "--map", "map.json", code=2)
    assert "--scale is probability in map.json, and logit in day.json; use one scale" in error


# ---------------------------------------------------------------------------- apply


@pytest.mark.parametrize("engine", ["polars", "duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_folder_becomes_a_folder_of_the_same_files(run, engine, tmp_path, request):
    if engine == "spark":
        request.getfixturevalue("spark")
    log = make()
    for i in range(3):
        folder = tmp_path / "logs" / f"day={i}"
        folder.mkdir(parents=True)
        log[i * 2_000 : (i + 1) * 2_000].write_parquet(folder / "part.parquet", row_group_size=700)
    run("fit", "logs", "--scores", "s1,s2", "-o", "map.json")
    run("apply", "map.json", "logs", "--score", "s1", "--column", "p", "--engine", engine, "-o", "out")
    for i in range(3):
        out = pl.read_parquet(tmp_path / "out" / f"day={i}" / "part.parquet", hive_partitioning=False)
        part = log[i * 2_000 : (i + 1) * 2_000]
        kept = out.drop("p")
        assert kept.drop("day", strict=False).equals(part)
        np.testing.assert_allclose(out["p"], load("map.json")(part["s1"].to_numpy()), atol=1e-12)
    assert sorted(os.listdir(tmp_path)) == ["logs", "map.json", "out"]  # nothing is left beside
    error = run("apply", "map.json", "logs", "--score", "s1", "--engine", engine, "-o", "out", code=2)
    assert "folder out holds files already; name a new one, or empty it first" in error


def test_a_csv_keeps_every_other_value_as_it_is_written(run, tmp_path):
    (tmp_path / "log.csv").write_text('id,s1,note\n007,0.50,"a, b"\n1e3,-1,\n0x1, 2.0 ,été\n')
    VAD().fit(make().select("s1", "s2").to_numpy()).map_.save("map.json")
    run("apply", "map.json", "log.csv", "--score", "s1", "-o", "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "id,s1,note,prediction"
    assert lines[1].startswith('007,0.50,"a, b",0.')
    assert lines[2].startswith("1e3,-1,,0.")
    assert lines[3].startswith("0x1, 2.0 ,été,0.")
    values = [float(line.rsplit(",", 1)[1]) for line in lines[1:]]
    np.testing.assert_allclose(values, load("map.json")([0.5, -1.0, 2.0]), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect", "log.parquet", "--scores", "s1,s2", "-o", "log.parquet"], "log.parquet is an input"),
        (["collect", "logs", "--scores", "s1,s2", "-o", "logs/0.parquet"], "logs/0.parquet is an input"),
        (["fit", "log.parquet", "--scores", "s1,s2", "-o", "./log.parquet"], "log.parquet is an input"),
        (["fit", "day.json", "-o", "day.json"], "day.json is an input of this command; name another file"),
        (["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--report", "link.parquet"], "is an input"),
        (["evaluate", "day.json", "--map", "map.json", "--report", "map.json"], "map.json is an input"),
        (["apply", "map.json", "log.parquet", "--score", "s1", "-o", "log.parquet"], "log.parquet is an input"),
        (["apply", "map.json", "log.parquet", "--score", "s1", "-o", "."], "log.parquet is the log itself"),
        (["apply", "map.json", "log.parquet", "--score", "s1", "-o", "map.json"], "map.json is an input"),
        (["fit", "day.json", "-o", "other.csv"], "--out is other.csv; name a .json file"),
        (["fit", "day.json", "-o", ""], "--out is empty; name a file"),
        (["fit", "", "--scores", "s1,s2", "-o", "m.json"], "a path is empty; pass a file, a glob or a folder"),
        (["fit", "day.json", "-o", "x" * 300 + ".json"], "cannot write --out 'xxx"),
        (["fit", "day.json", "-o", "-", "--format", "json"], "--out and --format both write to standard output"),
        (
            ["evaluate", "day.json", "--map", "map.json", "--report", "r.html", "--figures", "r.html"],
            "--figures r.html is the file of --report too; name another file",
        ),
    ],
)
def test_no_command_writes_over_what_it_reads(run, prepared, arguments, message, tmp_path):
    prepared(a_log_its_evidence_and_its_map)
    (tmp_path / "other.csv").write_text("a log\n")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "log.parquet")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert message in run(*arguments, code=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["log.parquet", "--score", "s9", "-o", "out.parquet"], "fitted to the score column 's1', not to 's9'"),
        (["log.parquet", "--score", "s1", "-o", "out.txt"], "out.txt is neither .parquet nor .csv"),
        (
            ["log.parquet", "--score", "s1", "-o", "no/out.parquet"],
            "cannot write --out no/out.parquet: No such file",
        ),
        (
            [".", "--score", "s1", "-o", "out.parquet"],
            ". is a folder or a glob, which may hold several files, and out.parquet names one",
        ),
        (["log.parquet", "--score", "s1", "--column", "w", "-o", "out.parquet"], "'w'"),
        (["none.parquet", "--score", "s1", "-o", "out.parquet"], "cannot read none.parquet"),
        (["", "--score", "s1", "-o", "out.parquet"], "a path is empty"),
    ],
)
def test_what_apply_refuses(run, arguments, message, tmp_path):
    make(500).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "map.json")
    assert message in run("apply", "map.json", *arguments, code=2)
    assert sorted(os.listdir(tmp_path)) == ["log.parquet", "map.json"]


def test_a_bad_score_stops_apply_before_anything_is_written(run, tmp_path):
    log = make(500)
    (tmp_path / "logs").mkdir()
    for i in range(3):
        log.with_columns(
            s1=pl.when(pl.int_range(500) == 40 + i // 2 * 1000).then(float("nan")).otherwise("s1")
        ).write_parquet(f"logs/{i}.parquet") if i == 1 else log.write_parquet(f"logs/{i}.parquet")
    log.write_parquet("pool.parquet")
    run("fit", "pool.parquet", "--scores", "s1,s2", "-o", "map.json")
    error = run("apply", "map.json", "logs", "--score", "s1", "-o", "out", code=2)
    assert "logs/1.parquet, column 's1', row 40 is nan; drop or repair those rows first" in error
    assert not (tmp_path / "out").exists()


def test_a_map_by_group_without_its_column(run):
    log = make(500)
    log.write_parquet("log.parquet")
    VAD().fit(log.select("s1", "s2").to_numpy(), groups=log["site"].to_numpy()).map_.save("map.json")
    error = run("apply", "map.json", "log.parquet", "--score", "s1", "-o", "out.parquet", code=2)
    assert "this map has a map for each group; name the group column too" in error


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "log.parquet", "-o", "m.json"], "--scores is missing; name the column of the served score"),
        (["fit", "log.parquet", "--scores", "s1", "-o", "m.json"], "--scores names one column, 's1'; name two or more"),
        (["fit", "winners.json", "-o", "m.json"], "winners.json holds only the top 1 of each request, where λ would"),
        (["fit", "day.json", "day.json", "-o", "m.json"], "day.json is named twice; its rows would count twice"),
        (["fit", "log.parquet", "log*.parquet", "--scores", "s1,s2", "-o", "m.json"], "log.parquet is named twice"),
        (["fit", "day.json", "--calibrator", "platt", "-o", "m.json"], "--calibrator platt needs --labelled, a log"),
        (["fit", "log.parquet", "--scores", "s1,s2", "--method", "magic", "-o", "m.json"], "'magic'"),
        (
            ["fit", "day.json", "--calibrator", "x", "--labelled", "labelled.json", "-o", "m.json"],
            "'x' is not one of 'platt'",
        ),
        (
            ["fit", "log.parquet", "--scores", "s1,s2", "--labelled", "log.parquet", "-o", "m.json"],
            "--labelled needs a --calibrator",
        ),
        (["fit", "log.parquet", "day.json", "--scores", "s1,s2", "-o", "m.json"], "are logs and evidence mixed"),
        (
            ["fit", "day.json", "--scores", "s2,s1", "-o", "m.json"],
            "--scores is s2,s1 in this command, and s1,s2 in day.json; leave the option out, or collect",
        ),
        (
            ["fit", "day.json", "--negative-rate", "0.1", "-o", "m.json"],
            "--negative-rate is 0.1 in this command, and none in",
        ),
        (["fit", "map.json", "-o", "m.json"], "map.json holds a 'affine'; pass evidence, which"),
        (["fit", "bad.json", "-o", "m.json"], "bad.json is not valid JSON"),
        (["evaluate", "log.parquet", "--score", "s1"], "--label is missing; name the column of 0/1 labels"),
        (["evaluate", "log.parquet", "--label", "click"], "--score is missing; name the column of the served score"),
        (["evaluate", "day.json"], "day.json was collected without labels; collect it again"),
        (["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--alpha", "x%"], "--alpha is 'x%'; pass"),
        (["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--alpha", "0.5:0.1:0.1"], "--alpha is"),
        (
            ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--alpha", "3"],
            "uncurse: --alpha is '3'; pass a share",
        ),
        (
            ["evaluate", "labelled.json", "--map", "groups.json"],
            "groups.json has a map for each group; collect labelled",
        ),
        (
            ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--map", "day.json"],
            "day.json is of kind 'evidence'; pass a map",
        ),
        (
            ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--negative-rate", "0"],
            "pass the share of negatives kept",
        ),
        (
            ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--report", "no/r.html"],
            "cannot write --report no/r",
        ),
    ],
)
def test_what_the_commands_refuse(run, prepared, arguments, message):
    prepared(files_of_every_kind)
    error = run(*arguments, code=2)
    assert message in error
    assert error.count("\n") == 1


def test_the_map_knows_its_negative_rate(run):
    make().write_parquet("log.parquet")
    options = ["--scores", "s1,s2", "--label", "click"]
    run("collect", "log.parquet", *options, "--negative-rate", "0.5", "-o", "day.json")
    run("collect", "log.parquet", *options, "-o", "plain.json")
    run("fit", "day.json", "-o", "map.json")
    options = ["--score", "s1", "--label", "click", "--map", "map.json", "--alpha", "2%,10%"]
    expected = records(run("evaluate", "log.parquet", *options, "--negative-rate", "0.5"))
    assert records(run("evaluate", "log.parquet", *options)) == expected
    assert records(run("evaluate", "day.json", "--map", "map.json", "--alpha", "2%,10%")) == expected
    error = run("evaluate", "log.parquet", *options, "--negative-rate", "0.1", code=2)
    assert "--negative-rate is 0.1 in this command, and 0.5 in map.json" in error
    assert records(run("evaluate", "log.parquet", *options, "--negative-rate", "50%")) == expected
    for text in ("half", "%", "1e999999999%"):
        assert "--negative-rate" in run("evaluate", "log.parquet", *options, "--negative-rate", text, code=2)
    error = run("evaluate", "plain.json", "--map", "map.json", code=2)
    assert "--negative-rate is 0.5 in map.json, and none in plain.json; collect plain.json again" in error


def test_sampled_negatives_are_no_drift(run):
    make().write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "--negative-rate", "0.1", "-o", "map.json")
    options = ["--score", "s1", "--label", "click", "--negative-rate", "0.1", "--map", "map.json", "--alpha", "10%"]
    run("evaluate", "log.parquet", *options, "--report", "r.html")
    with open("r.html") as page:
        assert "large drift" not in page.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "day.json", "--label", "click", "-o", "m.json"], "--label click needs --labelled"),
        (["fit", "day.json", "--group", "nosuch", "-o", "m.json"], "--group is nosuch in this command, and none in"),
        (["fit", "day.json", "--engine", "duckdb", "-o", "m.json"], "--engine duckdb reads logs, and day.json is"),
        (["evaluate", "top.json", "--top-k", "5"], "--top-k is 5 in this command, and 1 in top.json"),
        (["evaluate", "day.json", "--top-k", "5"], "--top-k is 5 in this command, and none in day.json"),
        (
            ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--top-k", "5"],
            "--top-k needs --request",
        ),
        (["evaluate", "day.json", "--group", "nosuch"], "--group is nosuch in this command, and none in day.json"),
        (["evaluate", "day.json", "--score", "s2"], "--score is s2 in this command, and s1 in day.json"),
        (["evaluate", "day.json", "--value", "w"], "--value w needs rows, and day.json is evidence"),
        (
            ["fit", "day.json", "--method", "auto", "--labelled", "swapped.json", "-o", "m.json"],
            "--scores is s1,s2 in day.json, and s2,s1 in --labelled swapped.json; collect both",
        ),
        (
            ["fit", "day.json", "--method", "auto", "--labelled", "rate.json", "-o", "m.json"],
            "--negative-rate is none in day.json, and 0.5 in --labelled rate.json",
        ),
    ],
)
def test_no_option_is_ignored(run, prepared, arguments, message):
    prepared(evidence_of_other_options)
    assert message in run(*arguments, code=2)


def test_a_map_of_an_ensemble_is_not_used_on_a_member(run):
    log = make(2_000).with_columns(mean=(pl.col("s1") + pl.col("s2")) / 2)
    log.write_parquet("log.parquet")
    options = ["--scores", "s1,s2", "--replicas", "ensemble", "--format", "table"]
    assert "--score MEAN" in run("fit", "log.parquet", *options, "-o", "map.json")
    message = "map.json takes the mean of s1, s2, and s1 is one of them; use a column of the mean"
    assert message in run("apply", "map.json", "log.parquet", "--score", "s1", "-o", "out.parquet", code=2)
    evaluated = ["evaluate", "log.parquet", "--label", "click", "--map", "map.json", "--alpha", "0.5"]
    assert message in run(*evaluated, "--score", "s1", code=2)
    run(*evaluated, "--score", "mean")
    run("apply", "map.json", "log.parquet", "--score", "mean", "-o", "out.parquet")


def test_groups_without_a_map_are_warned_of(run):
    log = make(2_000)
    log.write_parquet("log.parquet")
    log.with_columns(site=pl.lit("radio"), other="site").write_parquet("new.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "--group", "site", "-o", "map.json")
    words = ["map.json", "new.parquet", "--score", "s1", "-o", "out.parquet"]

    def warned(*arguments):
        run(*arguments)
        return run.stderr

    assert "2,000 of 2,000 rows have a site without a map of its own; they get the default map" in warned(
        "apply", *words
    )
    assert "was fitted to the groups of 'site', and is applied to those of 'other'" in warned(
        "apply", *words, "--group", "other"
    )
    options = ["--score", "s1", "--label", "click", "--map", "map.json", "--alpha", "0.5"]
    assert "2,000 of 2,000 rows have a site without a map" in warned("evaluate", "new.parquet", *options)
    error = run("evaluate", "log.parquet", "--score", "s1", "--label", "click", "--group", "site", code=2)
    assert "--group site is for maps by group, and none of the maps is; leave it out" in error


def test_maps_that_were_fitted_with_other_options_are_not_compared(run):
    make(2_000).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "a.json")
    run("fit", "log.parquet", "--scores", "s1,s2", "--negative-rate", "0.5", "-o", "b.json")
    options = ["--score", "s1", "--label", "click", "--map", "a.json", "--map", "b.json"]
    error = run("evaluate", "log.parquet", *options, code=2)
    assert "--negative-rate is none in a.json, and 0.5 in b.json; evaluate each map" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "day.json", "--report", "-"], "--report cannot be standard output; name a file"),
        (["evaluate", "day.json", "--figures", "-"], "--figures cannot be standard output; name a file"),
        (["fit", "-", "--labelled", "-", "-o", "m.json"], "standard input is named twice"),
        (["evaluate", "day.json", "--map", "-", "--map", "-"], "standard input is named twice"),
        (["fit", "log.parquet", "./log.parquet", "--scores", "s1,s2", "-o", "m.json"], "is named twice"),
        (["fit", "log.parquet", "link.parquet", "--scores", "s1,s2", "-o", "m.json"], "is named twice"),
        (["fit", "day.json", "./day.json", "-o", "m.json"], "./day.json is named twice"),
        (["fit", "day.json", "--shape", "free", "--lambda-floor", "0.5", "-o", "m.json"], "--lambda-floor is not for"),
        (
            ["fit", "log.parquet", "--scores", "s1,s2", "--weight", "w", "--method", "auto", "--labelled", "day.json"],
            "--weight is w in this command, and none in day.json",
        ),
        (
            ["apply", "map.json", "log.csv", "--score", "s1", "--engine", "duckdb", "-o", "o.csv"],
            "--engine duckdb is for",
        ),
        (["apply", "map.json", "logs", "--score", "s1", "-o", "logs/out"], "logs/out lies inside logs"),
        (["apply", "map.json", "log.csv", "--score", "s1", "--column", "", "-o", "o.csv"], "new column is empty"),
        (
            ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--request", "request", "--value", "w"],
            "--value and --request exclude each other",
        ),
        (
            ["collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "--weight", "click", "-o", "x.json"],
            "column 'click' is named as label and as weight",
        ),
        (
            ["collect", "log.parquet", "--scores", "s1,click", "--label", "click", "-o", "x.json"],
            "as score and as label",
        ),
        (
            ["collect", "gaps.parquet", "--scores", "s1", "--request", "request", "-o", "x.json"],
            "250 rows have no request",
        ),
        (["collect", "big.parquet", "--scores", "s1", "-o", "x.json"], "holds Int128, which few engines read; cast it"),
    ],
)
def test_what_a_careful_user_would_want_refused(run, prepared, tmp_path, arguments, message):
    prepared(a_log_its_evidence_and_its_map)
    (tmp_path / "link.parquet").symlink_to(tmp_path / "log.parquet")
    if arguments[0] == "fit" and "-o" not in arguments:
        arguments = [*arguments, "-o", "m.json"]
    assert message in run(*arguments, code=2)


@pytest.mark.parametrize("name", ["_hidden.parquet", ".hidden.parquet", "_temporary/0.parquet"])
def test_a_glob_does_not_read_hidden_files(run, tmp_path, name):
    (tmp_path / "logs" / "_temporary").mkdir(parents=True)
    log = make(500)
    log.write_parquet("logs/0.parquet")
    log.write_parquet(f"logs/{name}")
    for pattern in ("logs/*.parquet", "logs/**/*.parquet", "logs"):
        said = json.loads(run("collect", pattern, "--scores", "s1,s2", "-o", "day.json"))
        assert said["rows"] == 500
    said = json.loads(run("collect", f"logs/{name[:-8]}?parquet", "--scores", "s1,s2", "-o", "day.json"))
    assert said["rows"] == 500  # asked for by name


def test_a_value_of_zero_on_all_selected_rows_is_undefined(run):
    log = make(2_000).with_columns(bid=pl.when(pl.col("s1") < 0).then(1.0).otherwise(0.0))
    log.write_parquet("log.parquet")
    options = ["--score", "s1", "--label", "click", "--alpha", "1%,50%", "--value", "bid"]
    first, second = records(run("evaluate", "log.parquet", *options))
    assert (first["value_predicted"], first["value_observed"]) == (0.0, 0.0)
    assert float(second["value_observed"]) > 0
    run("evaluate", "log.parquet", *options, "--report", "r.html", "--format", "table")
    log.with_columns(bid=-pl.col("bid")).write_parquet("log.parquet")
    assert "values are weights of the rows: " in run("evaluate", "log.parquet", *options, code=2)


def test_a_csv_becomes_a_parquet_without_another_change(run, tmp_path):
    (tmp_path / "log.csv").write_text("id,zip,s1\n00001,01,0.5\n00002,007,-1\n")
    VAD().fit(make().select("s1", "s2").to_numpy()).map_.save("map.json")
    run("apply", "map.json", "log.csv", "--score", "s1", "-o", "out.parquet")
    out = pl.read_parquet("out.parquet")
    assert out["zip"].to_list() == ["01", "007"]
    assert out["s1"].to_list() == ["0.5", "-1"]
    np.testing.assert_allclose(out["prediction"], load("map.json")([0.5, -1.0]), rtol=1e-12)


def test_evaluate_is_a_gate(run):
    make(20_000).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "map.json")
    options = ["--score", "s1", "--label", "click", "--alpha", "2%,10%"]
    error = run("evaluate", "log.parquet", *options, "--fail-above", "5%", code=1)
    assert error.startswith("uncurse: the calibration error is above 5%: as served, top 2%: +1")
    run("evaluate", "log.parquet", *options, "--map", "map.json", "--fail-above", "9%")
    assert "map.json, top " in run(
        "evaluate", "log.parquet", *options, "--map", "map.json", "--fail-above", "0.0001", code=1
    )
    for bad in ("5x", "10", "0"):  # 10 would be 1,000%
        error = run("evaluate", "log.parquet", *options, "--fail-above", bad, code=2)
        assert f"--fail-above is '{bad}'; pass a share such as 2%" in error
    run("evaluate", "log.parquet", *options, "--fail-above", "150%")


def test_value_sums_the_column_over_the_selected_rows(run):
    log = make()
    log.write_parquet("log.parquet")
    options = ["--score", "s1", "--label", "click", "--alpha", "5%", "--value", "w"]
    (said,) = records(run("evaluate", "log.parquet", *options))
    top = top_share(log["s1"].to_numpy(), 0.05)
    s1, click, w = (log[name].to_numpy()[top] for name in ("s1", "click", "w"))
    assert float(said["value_observed"]) == pytest.approx(w @ click, rel=1e-12)
    assert float(said["value_predicted"]) == pytest.approx(w @ logistic(s1), rel=1e-12)


def test_standard_input_and_output(monkeypatch, capsysbinary, tmp_path):
    monkeypatch.chdir(tmp_path)

    log = make(500)
    log.write_csv("log.csv")
    log.write_parquet("log.parquet")
    collect("log.csv", ["s1", "s2"]).save("day.json")
    VAD().fit(log.select("s1", "s2").to_numpy()).map_.save("map.json")

    class Input:
        def __init__(self, path):
            with open(path, "rb") as file:
                self.buffer = io.BytesIO(file.read())

    def piped(path, *words):
        reading._standard_input.cache_clear()
        monkeypatch.setattr(sys, "stdin", Input(path))
        monkeypatch.setattr(sys, "argv", ["uncurse", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, capsysbinary.readouterr().err
        return capsysbinary.readouterr().out

    options = ["--scores", "s1,s2", "--scale", "logit", "-o", "-"]
    for path in ("log.csv", "log.parquet"):
        content = json.loads(piped(path, "collect", "-", *options))
        assert content["moments"] == json.loads(Path("day.json").read_text())["moments"]
        assert content["sources"] == ["-"]
    fitted = json.loads(piped("day.json", "fit", "-", "--replicas", "seeds", "--method", "vad", "-o", "-"))
    assert fitted["slope"] == load("map.json").slope
    out = piped("log.csv", "apply", "map.json", "-", "--score", "s1", "-o", "-")
    assert out.splitlines()[0] == b"id,s1,s2,click,w,site,request,prediction"


def test_scores_that_look_like_probabilities_are_warned_of(run):
    log = make().with_columns(p1=1 / (1 + (-pl.col("s1")).exp()), p2=1 / (1 + (-pl.col("s2")).exp()))
    log.write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "p1,p2", "-o", "m.json")
    assert run.stderr.startswith("uncurse: warning: every value of p1 lies in [0, 1]; if these are probabilities")
    assert run.stderr.endswith("set the scale to probability\n")
    assert run.stderr.count("\n") == 1


def test_a_folder_may_have_a_dot_in_its_name(run, tmp_path):
    log = make(500)
    (tmp_path / "logs").mkdir()
    for i in range(2):
        log.write_parquet(f"logs/{i}.parquet")
    VAD().fit(log.select("s1", "s2").to_numpy()).map_.save("map.json")
    run("apply", "map.json", "logs", "--score", "s1", "-o", "corrected-v1.2")
    assert len(os.listdir(tmp_path / "corrected-v1.2")) == 2


def test_evidence_of_overlapping_sources_is_warned_of(run):
    make(500).write_parquet("log.parquet")
    for name in ("a.json", "b.json"):
        run("collect", "log.parquet", "--scores", "s1,s2", "-o", name)
    with pytest.warns(UserWarning, match=r"log\.parquet is a source of both; if its rows are the same they count"):
        Evidence.load("a.json").merge(Evidence.load("b.json"))


def test_winners_are_not_judged_as_a_pool(run, tmp_path):
    make().write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s1,s2", "-o", "map.json")
    options = ["--score", "s1", "--label", "click", "--map", "map.json", "--request", "request"]
    run("evaluate", "log.parquet", *options, "--report", "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "top 1 of each request" in page
    assert "fit on a pool like this log" not in page
    assert "a single λ for all scores" not in page


def test_options_complete(run, monkeypatch):
    monkeypatch.setenv("_UNCURSE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "uncurse fit --scale p")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run().split() == ["probability"]


# ---------------------------------------------------------------------------- killed as it writes


def a_log_a_folder_and_a_map(run):
    log = make()
    Path("logs").mkdir()
    for i in range(4):
        log[i * 2_000 : (i + 1) * 2_000].write_parquet(f"logs/{i}.parquet")
    log.write_parquet("log.parquet")
    run("collect", "log.parquet", "--scores", "s1,s2", "--label", "click", "-o", "day.json")
    run("fit", "day.json", "-o", "map.json")


@pytest.mark.parametrize("command", ["collect", "fit", "apply", "apply folder", "evaluate"])
def test_a_killed_command_leaves_its_output_whole_or_untouched(command, run, prepared, tmp_path):
    prepared(a_log_a_folder_and_a_map)
    words, out = {
        "collect": (["collect", "log.parquet", "--scores", "s1,s2", "--label", "click"], "out.json"),
        "fit": (["fit", "day.json"], "out.json"),
        "apply": (["apply", "map.json", "log.parquet", "--score", "s1"], "out.parquet"),
        "apply folder": (["apply", "map.json", "logs", "--score", "s1"], "out"),
        "evaluate": (["evaluate", "day.json", "--map", "map.json", "--alpha", "0.05"], "out.html"),
    }[command]
    words = [*with_required(words), "--report" if command == "evaluate" else "-o", out]

    def whole():
        if command == "apply folder":
            return all(pl.read_parquet(tmp_path / "out" / f"{i}.parquet").shape == (2_000, 8) for i in range(4))
        if command == "apply":
            return pl.read_parquet(tmp_path / out).shape == (8_000, 8)
        text = (tmp_path / out).read_text()
        return text.rstrip().endswith("</html>") if command == "evaluate" else json.loads(text) is not None

    def seen():
        """Names, sizes and times of all that is there."""
        found = {}
        for folder, _, names in os.walk(tmp_path):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # it has just been renamed
                    state = os.stat(os.path.join(folder, name))
                    found[folder, name] = state.st_size, state.st_mtime_ns
        return found

    run(*words)
    assert whole()
    if command == "apply folder":
        shutil.rmtree(tmp_path / out)
    before = seen()
    process = processes.start(words, tmp_path)
    while process.exitcode is None and seen() == before:  # until it begins to write
        time.sleep(0.0005)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    if (tmp_path / out).exists():
        assert whole()
    else:
        assert command == "apply folder"  # files that were there stay; a folder comes whole or not at all


# ---------------------------------------------------------------------------- a person at the terminal


def test_output_is_the_same_at_a_terminal_and_in_a_pipe(run, tmp_path):
    pty = pytest.importorskip("pty")
    make().write_parquet("log.parquet")
    words = ["evaluate", "log.parquet", "--score", "s1", "--label", "click", "--scale", "logit", "--format", "table"]
    primary, secondary = pty.openpty()
    process = processes.start(words, tmp_path, os.ttyname(secondary))
    os.set_blocking(primary, False)
    said = b""
    while process.exitcode is None or not said.endswith(b"\n"):
        with contextlib.suppress(BlockingIOError):
            said += os.read(primary, 65_536)
        time.sleep(0.001)
    os.close(secondary)
    os.close(primary)
    assert process.exitcode == 0
    piped = run(*words)
    assert run.stderr == ""
    assert piped == said.decode().replace("\r\n", "\n")
    assert "Calibration error (predicted / observed − 1) ± standard error" in piped


@pytest.mark.parametrize("command", ["collect", "fit", "apply", "evaluate", "demo"])
def test_every_command_has_an_example_that_runs_as_written(command, run):
    text = run(command, "--help")
    assert "Example" in text
    assert f"uncurse {command}" in text
