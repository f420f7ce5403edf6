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
    frame = frame.with_columns(clicks=2000 * rate, shown=pl.lit(2000))
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
    counts = ("tests.parquet", "--successes", "clicks", "--trials", "shown", "--group", "test")
    same = json.loads(run("winner", *counts, "--format", "json"))
    assert same["estimate"] == pytest.approx(found["estimate"]) == expected.mean().estimate
    text = run("winner", *counts)
    first, *_, last = text.splitlines()
    assert "30 groups: mean observed 0.0" in first
    assert "rates of about 2,000 trials" in text
    assert "row " in text
    assert len(text.splitlines()) == 5 + 20
    assert "first 20 of 30" in last
    lowest = json.loads(run("winner", *options[:-2], "--lower-is-better", "--format", "json"))
    assert lowest["observed"] == pytest.approx(tests_file["ctr"].min())
    assert lowest["estimate"] > lowest["observed"]


def test_a_column_for_each_candidate_needs_no_options(run, results):
    wide = pl.DataFrame(results.astype(int), schema=list("abcd"))
    wide.write_csv("wide.csv")
    expected = winner(wide)
    assert json.loads(run("winner", "wide.csv", "--format", "json"))["estimate"] == expected.estimate
    wide.with_row_index("question").with_columns(topic=pl.col("question") // 4).write_csv("more.csv")
    assert "'question' numbers the rows" in run("winner", "more.csv", "--cluster", "topic", code=2)
    options = ("--item", "question", "--cluster", "topic")
    found = json.loads(run("winner", "more.csv", *options, "--format", "json"))
    assert found["interval"] == pytest.approx(list(winner(wide, clusters=np.arange(80) // 4).interval()))


def test_values_that_are_no_numbers_are_named(run, results):
    pl.DataFrame(
        {"ctr": ["0.04", "4.9%"], "se": [0.1, None], "ok": ["yes", "no"], "q": [1, 1], "m": ["a", "b"]}
    ).write_csv("t.csv")
    assert "column 'ctr' holds '4.9%' in row 1" in run(
        "winner", "t.csv", "--estimate", "ctr", "--standard-error", "se", code=2
    )
    assert "column 'se' is empty in row 1" in run(
        "winner", "t.csv", "--estimate", "q", "--standard-error", "se", code=2
    )
    message = run("winner", "t.csv", "--item", "q", "--candidate", "m", "--score", "ok", code=2)
    assert "column 'ok' holds 'yes' in row 0" in message


def test_evaluation_logs_are_read_by_their_ending(run):
    for name, right in (("a", [1.0, 1.0, 0.0]), ("b", [0.0, 1.0, 0.0])):
        lines = ({"doc_id": i, "filter": "none", "metrics": ["acc"], "acc": value} for i, value in enumerate(right))
        Path(f"samples_{name}_2024-06-01T10-00-00.1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    files = [f"samples_{name}_2024-06-01T10-00-00.1.jsonl" for name in "ab"]
    assert json.loads(run("winner", *files, "--format", "json"))["name"] == "a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name --item, --candidate and --score"),
        (("--candidate", "model", "--score", "correct"), "--item is missing"),
        (("--estimate", "correct"), "--standard-error is missing"),
        (("--trials", "correct"), "--successes is missing"),
        (("--estimate", "id", "--standard-error", "id", "--score", "correct"), "--score does not belong to --estimate"),
        (("--group", "model"), "--group does not belong to a table with a column for each candidate"),
        (("--item", "id", "--candidate", "model", "--score", "absent"), "absent"),
    ],
)
def test_bad_options_are_named(run, results, options, message):
    run("winner", "results.csv", *options, code=2)
    assert message in run.stderr
    run("winner", "absent.csv", *options, code=2)
    assert "absent.csv" in run.stderr
