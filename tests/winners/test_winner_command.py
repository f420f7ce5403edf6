"""`uncurse winner` and its page, as a user meets them."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from uncurse import winner


@pytest.fixture
def results(run):
    rng = np.random.default_rng(0)
    right = rng.random((80, 4)) < 0.6
    rows = [
        {"id": i, "model": f"<m{j}>", "correct": int(right[i, j]), "topic": i // 4} for i in range(80) for j in range(4)
    ]
    pl.DataFrame(rows).write_csv("results.csv")
    return right


@pytest.fixture
def tests_file(run):
    rng = np.random.default_rng(1)
    rate = rng.binomial(2000, 0.05, 120) / 2000
    frame = pl.DataFrame({"test": np.repeat(np.arange(30), 4), "ctr": rate, "se": np.sqrt(rate * (1 - rate) / 2000)})
    frame.write_parquet("tests.parquet")
    return frame


def test_scores_of_items_become_a_table_and_a_page(run, results):
    options = ("results.csv", "--item", "id", "--candidate", "model", "--score", "correct")
    best = winner(results)
    found = json.loads(run("winner", *options, "--format", "json"))
    assert found["name"] == f"<m{best.index}>"
    assert found["estimate"] == pytest.approx(best.estimate)
    assert found["interval"] == pytest.approx(list(best.interval()))
    assert len(found["candidates"]) == 4
    clustered = json.loads(run("winner", *options, "--cluster", "topic", "--format", "json"))
    assert clustered["estimate"] != found["estimate"]
    text = run("winner", *options, "--report", "r.html")
    assert "luck" in text
    page = Path("r.html").read_text()
    assert "<m0>" not in page
    assert "&lt;m0&gt;" in page
    assert "What is lost by shipping the winner?" in page
    assert "Calibration error" not in page


def test_estimates_have_a_winner_in_each_group(run, tests_file):
    options = ("tests.parquet", "--estimate", "ctr", "--standard-error", "se", "--group", "test")
    found = json.loads(run("winner", *options, "--format", "json"))
    assert len(found["groups"]) == 30
    expected = winner(tests_file["ctr"], standard_error=tests_file["se"], groups=tests_file["test"])
    assert [row["estimate"] for row in found["groups"]] == pytest.approx([best.estimate for best in expected])
    run("winner", *options, "--report", "r.html")
    assert "The winners of 30 groups" in Path("r.html").read_text()
    lowest = json.loads(run("winner", *options[:-2], "--lower-is-better", "--format", "json"))
    assert lowest["observed"] == pytest.approx(tests_file["ctr"].min())
    assert lowest["estimate"] > lowest["observed"]


def test_evaluation_logs_are_read_by_their_ending(run):
    for name, right in (("a", [1.0, 1.0, 0.0]), ("b", [0.0, 1.0, 0.0])):
        lines = ({"doc_id": i, "filter": "none", "metrics": ["acc"], "acc": value} for i, value in enumerate(right))
        Path(f"samples_{name}_2024-06-01T10-00-00.1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    files = [f"samples_{name}_2024-06-01T10-00-00.1.jsonl" for name in "ab"]
    assert json.loads(run("winner", *files, "--format", "json"))["name"] == "a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--item is missing"),
        (("--estimate", "correct"), "--standard-error is missing"),
        (("--item", "id", "--candidate", "model", "--score", "absent"), "absent"),
    ],
)
def test_bad_options_are_named(run, results, options, message):
    run("winner", "results.csv", *options, code=2)
    assert message in run.stderr
    run("winner", "absent.csv", *options, code=2)
    assert "absent.csv" in run.stderr
