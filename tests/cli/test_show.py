"""`uncurse show`: how a map was fitted and what it does, and what a model holds."""

import json
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from uncurse import Affine, Curve, Fitted, Segmented, Steps
from uncurse.evidence import Histogram
from uncurse.maps import ScoreMap
from uncurse.methods import DataRecord, FitRecord, ScoreSummary


def test_a_fit_is_shown_with_method_data_command_formula_and_intervals(run):
    rng = np.random.default_rng(0)
    true = rng.normal(-2.0, 0.8, 3_000)
    pl.DataFrame({f"s{i}": true + rng.normal(0, 0.4, 3_000) for i in range(2)}).write_parquet("log.parquet")
    run("fit", "log.parquet", "--scores", "s0,s1", "--scale", "logit", "--affine", "-o", "map.json")
    said = run("show", "map.json")
    for part in ("method vad", "3,000 rows, log.parquet", "uncurse fit log.parquet", "90% intervals", "written 20"):
        assert part in said
    assert "prediction = 1 / (1 + exp(-(0.7" in said or "prediction = 1 / (1 + exp(-(0.8" in said
    found = json.loads(run("show", "map.json", "--format", "json"))
    assert found["map"]["kind"] == "affine"
    assert found["record"]["pool"]["rows"] == 3_000
    assert [one["alpha"] for one in found["intervals"]] == [0.01, 0.02, 0.05, 0.1]


def test_segments_are_shown_by_what_they_make_of_the_top_scores(run):
    pool = ScoreSummary.of(Histogram().update(np.random.default_rng(0).normal(-2.0, 1.0, 10_000)))
    score_map = Segmented(Affine(1.0, 0.0), {"news": Affine(1.0, -1.0), "sport": Affine(1.0, 0.0)})
    Fitted(score_map, FitRecord("vad", DataRecord(10_000, ("s0", "s1"), (), pool), segment="site")).save("map.json")
    table = run("show", "map.json").split("shown above.\n")[1]
    (_, *cells), served, news, sport = (re.split(r"\s{2,}", line) for line in table.splitlines())
    assert cells == ["top 10%", "top 2%"]
    assert (served[0], sport[0], served[1:]) == ("as served", "sport", sport[1:])
    logits = np.quantile(np.random.default_rng(0).normal(-2.0, 1.0, 10_000), [0.9, 0.98])
    assert [float(cell.strip("%")) / 100 for cell in news[1:]] == pytest.approx(1 / (1 + np.exp(1 - logits)), rel=0.02)


@pytest.mark.parametrize(
    ("score_map", "steps"),
    [
        (Affine(0.5, -2.0), 30),
        (Affine(0.0, -2.0), 1),
        (Affine(0.5, 0.0, link="identity", scale="value"), 30),
        (Affine(0.9, 0.1, link="log", scale="value"), 30),
        (Curve((-2.0, 0.0), (-1.5, -1.0), 0.5, 1.2, scale="probability"), 30),
        (Steps((-1.0,), (-3.0, -1.0), 1e-6, 0.1), 2),
        (Segmented(Affine(1.0, 0.5), {"a": Affine(0.8, 0.0), "ü": Affine(0.7, 0.0)}), 30),
    ],
)
def test_the_picture_rises_with_the_map(score_map: ScoreMap, steps, run):
    score_map.save("map.json")
    said = run("show", "map.json")
    assert "without a record" in said
    rows = [line.split("│")[1] for line in said.splitlines() if "│" in line]
    places = {column: i for i, row in enumerate(rows) for column, mark in enumerate(row) if mark == "●"}
    assert len(places) == 60
    heights = [places[column] for column in range(60)]
    assert heights == sorted(heights, reverse=True)
    assert 1 <= len(set(heights)) <= steps
    assert ("ü" in said) == isinstance(score_map, Segmented)


def test_a_model_says_what_was_folded_into_it(run):
    import xgboost

    X = np.random.default_rng(0).normal(size=(300, 3))
    data = xgboost.DMatrix(X, (X[:, 0] > 0).astype(int))
    xgboost.train({"objective": "binary:logistic", "nthread": 1}, data, 3).save_model("model.json")
    Affine(0.8, -0.3).save("line.json")
    run("fold", "line.json", "model.json", "-o", "model2.json")
    assert "no map was folded into it" in run("show", "model.json")
    assert "model2.json (xgboost): holds Affine(slope=0.8, intercept=-0.3" in run("show", "model2.json")
    assert json.loads(run("show", "model.json", "--format", "json"))["holds"] is None
    said = run("fold", "line.json", "model2.json", "-o", "model3.json", code=2)
    assert "holds a map already" in said
    assert "--again" in said
    run("fold", "line.json", "model2.json", "--again", "-o", "model3.json")


def test_what_cannot_be_shown_is_refused(run):
    with open("notes.txt", "w") as file:
        file.write("hello")
    assert "notes.txt is no model file that is known" in run("show", "notes.txt", code=2)
    assert "cannot read none.json" in run("show", "none.json", code=2)
    pl.DataFrame({"s0": [0.0, 1.0]}).write_parquet("log.parquet")
    run("collect", "log.parquet", "--scores", "s0", "-o", "day.json")
    assert "day.json is of kind 'evidence'" in run("show", "day.json", code=2)


def test_a_name_that_no_encoding_has_is_shown_with_its_code(tmp_path):
    pool = DataRecord(10, ("\ud800", "s1"), ())
    Fitted(Affine(1.0, 0.0), FitRecord("vad", pool)).save(tmp_path / "map.json")
    command = [sys.executable, "-m", "uncurse", "show", tmp_path / "map.json"]
    assert b"\\ud800" in subprocess.run(command, capture_output=True, check=True).stdout
