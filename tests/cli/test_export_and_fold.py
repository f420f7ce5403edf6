"""`uncurse export`, `fit --affine` and `fold`, exit codes and outputs, as a user meets them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from made_logs import make
from uncurse import Affine, Curve, Segmented, load, serving

SCORES = np.linspace(-4, 3, 50)
CURVE = Curve((-2.0, 0.0, 1.5), (-1.5, -1.0, 2.0), 0.5, 1.2)


@pytest.fixture
def saved(run):
    CURVE.save("map.json")


def test_export_to_sql_is_an_expression_for_an_engine(run, saved):
    duckdb = pytest.importorskip("duckdb")
    expression = run("export", "map.json", "--to", "sql", "--scores", "s")
    frame = pl.DataFrame({"s": SCORES})  # noqa: F841  duckdb reads it
    found = duckdb.sql(f"select {expression} as p from frame").fetchnumpy()["p"]
    np.testing.assert_allclose(found, CURVE(SCORES), rtol=1e-9)
    assert "`s`" in run("export", "map.json", "--to", "sql", "--scores", "s", "--dialect", "bigquery")


def test_export_to_sql_takes_the_segments_of_the_map_or_of_an_option(run):
    Segmented(CURVE, {"news": Affine(0.5, 0.0)}).save("map.json")
    assert "site" in run("export", "map.json", "--to", "sql", "--segment", "site")
    assert "segment" in run("export", "map.json", "--to", "sql", code=2)


def test_export_to_code_is_what_the_library_writes(run, saved):
    assert run("export", "map.json", "--to", "python", "--name", "corrected") == serving.to_python(CURVE, "corrected")
    run("export", "map.json", "--to", "c", "--name", "corrected", "-o", "map.h")
    assert Path("map.h").read_text() == serving.to_c(CURVE, "corrected")


@pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")
def test_export_to_onnx_and_torch_are_models(run, saved):
    run("export", "map.json", "--to", "onnx", "-o", "map.onnx")
    assert pytest.importorskip("onnx").load("map.onnx") == serving.to_onnx(CURVE)
    torch = pytest.importorskip("torch")
    run("export", "map.json", "--to", "torch", "-o", "map.pt")
    with torch.no_grad():
        found = torch.jit.load("map.pt")(torch.tensor(SCORES, dtype=torch.float32))
    np.testing.assert_allclose(found.numpy(), CURVE(SCORES), rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onnx"], "--out"),
        (["--to", "c", "--scores", "s"], "--scores"),
        (["--to", "sql", "--name", "f"], "--name"),
        (["--to", "onnx", "--dialect", "spark", "-o", "m.onnx"], "--dialect"),
        (["--to", "fortran"], "fortran"),
        (["--to", "c", "--name", "1x"], "1x"),
        (["--to", "c", "-o", "map.json"], "map.json"),
        ([], "--to"),
    ],
)
def test_export_refuses_what_a_target_has_not(run, saved, arguments, message):
    error = run("export", "map.json", *arguments, code=2)
    assert message in error
    assert error.count("\n") == 1


def test_an_affine_map_is_folded_and_a_folded_model_is_verified(run):
    torch = pytest.importorskip("torch")
    make(4_000).write_parquet("pool.parquet")
    run("fit", "pool.parquet", "--scores", "s1,s2", "--method", "auto", "--affine", "-o", "line.json")
    weights = {"head.weight": torch.ones(1, 3), "head.bias": torch.zeros(1)}
    torch.save(weights, "model.pt")
    run("fold", "line.json", "model.pt", "--layer", "head", "-o", "folded.pt")
    line, folded = load("line.json").map, torch.load("folded.pt", weights_only=True)
    np.testing.assert_allclose(folded["head.weight"], line.slope * weights["head.weight"], rtol=1e-6)
    np.testing.assert_allclose(folded["head.bias"], [line.intercept], rtol=1e-6)
    CURVE.save("map.json")
    assert "straight line" in run("fold", "map.json", "model.pt", "--layer", "head", "-o", "no.pt", code=2)
    assert not os.path.exists("no.pt")


def test_rows_without_a_value_are_refused_dropped_or_kept(run):
    log = make(1_000).with_columns(s1=pl.when(pl.int_range(1_000) != 7).then("s1"))
    log.write_parquet("log.parquet")
    pool = ["log.parquet", "--scores", "s1,s2"]
    assert "row 7 is missing" in run("fit", *pool, "-o", "map.json", code=2)
    run("fit", *pool, "--missing", "drop", "-o", "map.json")
    assert load("map.json").record.pool.rows == 999
    run("collect", *pool, "--label", "click", "--missing", "drop", "-o", "day.json")
    options = ["--scores", "s1", "--label", "click", "--map", "map.json", "--top", "10%"]
    found = run("evaluate", "log.parquet", *options, "--missing", "drop")
    assert json.loads(found)["methods"] == json.loads(run("evaluate", "day.json", *options[4:]))["methods"]
    assert "--missing" in run("evaluate", "day.json", *options[4:], "--missing", "drop", code=2)
    apply = ["apply", "map.json", "log.parquet", "--scores", "s1", "-o", "out.parquet"]
    assert "row 7 is missing" in run(*apply, code=2)
    for missing, result, rows in (("null", "have no prediction", 1_000), ("drop", "are left out", 999)):
        run(*apply, "--missing", missing)
        assert f"1 of 1,000 rows have no s1; they {result}" in run.stderr
        out = pl.read_parquet("out.parquet")
        assert (len(out), out["prediction"].null_count()) == (rows, int(missing == "null"))
    for command in (
        ["collect", "-o", "day.json", "--scores", "s1,s2"],
        ["fit", "-o", "map2.json", "--scores", "s1,s2"],
        ["evaluate", *options],
        ["monitor", "map.json", "--label", "click", "--format", "json"],
        ["refresh", "map.json", "-o", "new.json", "--label", "click", "--format", "json"],
    ):
        at = 2 if command[1] == "map.json" else 1
        words = [*command[:at], "log.parquet", *command[at:]]
        assert "row 7" in run(*words, code=2)
        assert "row 7" in run(*words, "--missing", "error", code=2)
        for missing in ("drop", "null"):
            run(*words, "--missing", missing)
            assert "1 rows have no s1; they are not counted" in run.stderr


def test_null_accepts_missing_scores_alone(run):
    log = make(1_000).with_columns(click=pl.when(pl.int_range(1_000) != 7).then("click"))
    log.write_parquet("log.parquet")
    words = ["collect", "log.parquet", "--scores", "s1", "--label", "click", "-o", "day.json"]
    assert "'click', row 7" in run(*words, "--missing", "null", code=2)
    run(*words, "--missing", "drop")


def test_a_closed_pipe_and_a_full_disk_end_without_a_traceback(run, saved, tmp_path):
    command = [sys.executable, "-m", "uncurse", "export", "map.json", "--to", "c"]
    full = "/dev/full"
    if not os.path.exists(full):
        pytest.skip("needs /dev/full")
    with open(full, "w") as file:
        ended = subprocess.run(command, cwd=tmp_path, stdout=file, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("uncurse: ")
    assert ended.stderr.count("\n") == 1
