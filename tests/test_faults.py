"""Bad logs: one line that names the file and the column, exit 2, and nothing written."""

import json
import sys
import warnings

import numpy as np
import polars as pl
import pytest

from required_options import with_required
from uncurse.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """The command line in this process: its exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["uncurse", *with_required(arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return stopped.value.code or 0, said.out, said.err

    return call


def make(rows=1_000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1, 1, rows)
    return pl.DataFrame(
        {
            "s1": truth + rng.normal(0, 0.3, rows),
            "s2": truth + rng.normal(0, 0.3, rows),
            "click": (rng.random(rows) < 0.3).astype(np.int8),
            "w": rng.random(rows),
            "site": rng.choice(["a", "b"], rows),
        }
    )


def nan_in(log, column, row, value=float("nan")):
    values = log[column].to_list()
    values[row] = value
    return log.with_columns(pl.Series(column, values, dtype=log.schema[column]))


FAULTS = {
    "nan": (lambda log: nan_in(log, "s2", 500), "column 's2', row 500 is nan; drop or repair"),
    "infinite": (lambda log: nan_in(log, "s1", 3, float("inf")), "column 's1', row 3 is inf; drop or repair"),
    "huge": (lambda log: nan_in(log, "s1", 3, 1e200), "column 's1', row 3 is 1e+200; its square overflows"),
    "null": (lambda log: nan_in(log, "s1", 7, None), "column 's1', row 7 is missing; drop or fill"),
    "label null": (
        lambda log: nan_in(log, "click", 4, None),
        "column 'click', row 4 is missing; leave out rows that were not shown, or collect the best of each request",
    ),
    "label nan": (
        lambda log: nan_in(log.with_columns(pl.col("click").cast(pl.Float64)), "click", 4),
        "column 'click', row 4 is nan; leave out rows that were not shown, or collect the best of each request",
    ),
    "all null": (lambda log: log.with_columns(s1=pl.lit(None, pl.Float64)), "column 's1' is all null (1,000 rows)"),
    "null type": (lambda log: log.with_columns(s1=pl.lit(None)), "column 's1' is all null"),
    "text": (lambda log: log.with_columns(pl.col("s2").cast(pl.String)), "column 's2' holds String, not numbers"),
    "missing": (lambda log: log.drop("s2"), "has no column 's2'; it has 's1', 'click', 'w', 'site'"),
    "label of 2": (lambda log: nan_in(log, "click", 9, 2), "column 'click', row 9 is 2; labels must be 0 or 1"),
    "weight below 0": (lambda log: nan_in(log, "w", 1, -0.5), "column 'w', row 1 is -0.5; weights must be 0 or more"),
    "no group": (lambda log: nan_in(log, "site", 2, None), "column 'site', row 2 is missing; fill it, say with"),
}


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_file_7_of_20_is_named(fault, engine, run, tmp_path):
    damage, message = FAULTS[fault]
    folder = tmp_path / "logs"
    folder.mkdir()
    for i in range(20):
        log = make(seed=i)
        (damage(log) if i == 7 else log).write_parquet(folder / f"{i:02d}.parquet")
    out = tmp_path / "day.json"
    options = ["--scores", "s1,s2", "--label", "click", "--weight", "w", "--group", "site", "--engine", engine]
    code, said, error = run("collect", folder, *options, "-o", out)
    assert code == 2, (said, error)
    assert error.count("\n") == 1
    assert error.startswith("uncurse: ")
    assert str(folder / "07.parquet") in error
    assert message in error
    assert not out.exists()


def test_the_first_of_several_bad_rows_is_named_with_its_value(run, tmp_path):
    path = tmp_path / "log.parquet"
    rng = np.random.default_rng(0)
    log = make(400_000).with_columns(click=pl.Series(rng.random(400_000)))
    log.write_parquet(path, row_group_size=50_000)
    code, _, error = run("evaluate", path, "--score", "s1", "--label", "click")
    assert code == 2
    assert f"row 0 is {log['click'][0]}; labels must be 0 or 1 (400,000 such values)" in error
    log = make(400_000)
    for row in (150_007, 7, 399_999):
        log[row, "s1"] = float("nan")
    log.write_parquet(path, row_group_size=50_000)
    code, _, error = run("evaluate", path, "--score", "s1", "--label", "click")
    assert "column 's1', row 7 is nan; drop or repair those rows first (3 such values)" in error


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_with_requests_only_missing_labels_of_the_best_rows_count(suffix, run, tmp_path):
    path = tmp_path / f"log.{suffix}"
    log = make(1_000).with_columns(request=pl.int_range(1_000) // 10)
    best = pl.col("s1") == pl.col("s1").max().over("request")
    log = log.with_columns(click=pl.when(best).then("click"))  # losers have no label

    def evaluate(frame, k=1):
        frame.write_parquet(path) if suffix == "parquet" else frame.write_csv(path)
        options = ("--score", "s1", "--label", "click", "--request", "request", "--top-k", k, "--format", "table")
        return run("evaluate", path, *options)

    code, said, _ = evaluate(log)
    assert code == 0
    assert said.startswith("100 rows")
    rows = np.flatnonzero(log.select(best).to_series())[[3, 40]]
    late = log.with_columns(click=pl.when(~pl.int_range(1_000).is_in(rows)).then("click"))
    code, _, error = evaluate(late)
    assert code == 2
    remedy = "leave out requests whose best rows have no label; do not fill labels with 0"
    place = f"row {rows[0]}" if suffix == "parquet" else f"line {rows[0] + 2}"
    assert f"{place} is missing; {remedy} (2 such values in the top 1 of each request)" in error
    code, _, error = evaluate(log, k=3)
    assert code == 2
    assert "(200 such values in the top 3 of each request)" in error
    code, _, error = evaluate(log.with_columns(click=pl.lit(None, pl.Int8)))
    assert "column 'click' is all null (1,000 rows)" in error


def _truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def _emptied(path):
    path.write_bytes(b"")


def _damaged(path):
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56  # the head of the first page
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_truncated, "is not a readable parquet file"),
        (_emptied, "is empty, 0 bytes; write it anew or leave it out"),
        (_damaged, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(spoil, message, engine, run, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for i in range(3):
        make(seed=i).write_parquet(folder / f"{i}.parquet", compression="uncompressed" if i == 1 else "zstd")
    spoil(folder / "2.parquet")
    code, _, error = run("fit", folder, "--scores", "s1,s2", "--engine", engine, "-o", tmp_path / "map.json")
    assert code == 2
    assert error.count("\n") == 1
    assert str(folder / "2.parquet") in error
    assert message in error
    assert not (tmp_path / "map.json").exists()


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_a_csv_may_say_true_and_false_and_pad_its_numbers(engine, run, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("s1,s2,click\n" + "\n".join(f" {i / 7} ,{i / 6},{'True' if i % 2 else 'false'}" for i in range(50)))
    code, out, error = run("evaluate", path, "--score", "s1", "--label", "click", "--alpha", "1", "--engine", engine)
    assert code == 0, error
    assert '"observed": 25.0' in out


def test_text_in_a_csv_is_named_with_its_line(run, tmp_path):
    path = tmp_path / "log.csv"
    lines = ["s1,s2,click", *(f"{i / 7},{i / 6},{i % 2}" for i in range(30_000))]
    lines[20_001] = "0.5,oops,1"
    path.write_text("\n".join(lines))
    code, _, error = run("collect", path, "--scores", "s1,s2", "-o", tmp_path / "day.json")
    assert code == 2
    text = "that is text, not a number: repair or drop the row"
    assert error == f"uncurse: {path}, column 's2', line 20,002 is 'oops'; {text}\n"


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_a_log_without_rows_and_a_selection_without_rows(engine, run, tmp_path):
    empty, small = tmp_path / "empty.parquet", tmp_path / "small.parquet"
    make().head(0).write_parquet(empty)
    make(100).write_parquet(small)
    code, _, error = run("collect", empty, "--scores", "s1,s2", "--engine", engine, "-o", tmp_path / "day.json")
    assert (code, error) == (2, f"uncurse: {empty}: there are no rows; pass a log that holds some\n")
    options = ["--score", "s1", "--label", "click", "--alpha", "0.001", "--engine", engine]
    code, _, error = run("evaluate", small, *options)
    assert code == 2
    assert error == (f"uncurse: {small}, label 'click': a share of 0.001 of 100 rows selects none; use at least 0.01\n")


def test_shares_without_positives_are_not_a_number_with_a_warning(run, tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    make().with_columns(click=pl.lit(0)).write_parquet(path)
    monkeypatch.setattr(sys.modules["uncurse.cli.app"], "_shown", set())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, said, error = run("evaluate", path, "--score", "s1", "--label", "click")
    assert code == 0
    assert error.startswith("uncurse: warning: the top 2% (20 rows) has no positive label, so its ratio and calibrat")
    assert error.count("\n") == 9  # one line for each share
    rows = json.loads(said)["methods"][0]["evaluation"]["rows"]
    assert [row["calibration_error"]["value"] for row in rows] == [None] * 9


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "row 4 is 1.5; that is not a probability; are these logits? Then the scale is logit"),
        (1.0, "row 4 is 1.0; there a logit is infinite; pass logits, or clip the probabilities first"),
    ],
)
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_what_is_no_probability(value, message, engine, run, tmp_path):
    path = tmp_path / "log.parquet"
    nan_in(make(140_000).select(pl.col("s1", "s2").tanh() / 4 + 0.5), "s2", 4, value).write_parquet(path)
    options = ["--scores", "s1,s2", "--scale", "probability", "--engine", engine]
    code, _, error = run("collect", path, *options, "-o", tmp_path / "day.json")
    assert code == 2
    assert f"{path}, column 's2', {message}" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect", "none.parquet"], "cannot read none.parquet: there is no such file or folder"),
        (["collect", "none-*.parquet"], "no file matches none-*.parquet"),
        (["collect", "."], "folder . holds no .parquet or .csv file"),
        (["collect", "notes.txt"], "notes.txt is neither .parquet nor .csv"),
        (["collect", "log.parquet", "log.csv"], "are not of one kind; pass parquet or CSV, not both"),
        (["collect", "log.parquet", "--top-k", "2"], "--top-k needs --request"),
        (
            ["collect", "log.parquet", "--engine", "dask"],
            "'--engine': 'dask' is not one of 'polars', 'duckdb', 'spark'",
        ),
        (["collect", "log.parquet", "--scale", "odds"], "'--scale': 'odds' is not one of 'logit'"),
        (["collect", "log.parquet", "--group", "s1"], "the group column 's1' holds Float64; groups are text or whole"),
        (["collect", "log.parquet", "--negative-rate", "3"], "pass the share of negatives kept"),
        (["collect", "log.parquet", "-o", "no/such/day.json"], "cannot write --out no/such/day.json"),
        (["collect", "log.parquet", "--scores", "s1,s1"], "score column 's1' is named twice; name a different column"),
        (["collect", "log.parquet", "--scores", ","], "--scores is empty; name a column"),
    ],
)
def test_bad_arguments_are_one_line(arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if arguments[1] != ".":
        make().write_parquet("log.parquet")
        make().write_csv("log.csv")
        (tmp_path / "notes.txt").write_text("x")
    words = [*arguments, *([] if "--scores" in arguments else ["--scores", "s1,s2"])]
    code, _, error = run(*words, *([] if "-o" in arguments else ["-o", "day.json"]))
    assert code == 2
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "day.json").exists()
