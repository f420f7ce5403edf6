"""Random command lines over valid and damaged files; the profile "nightly" (``HYPOTHESIS_PROFILE``) runs 1,000."""

import os
import random
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncurse import Affine, Segmented

ROWS = 400
NAMES = ["s0", "s1", "click", "site", "n", "t", "s9", "", "S0", "s0,s1", "s1,s0", ","]
ROLES = {"label": "click", "trials": "n", "weight": "n", "segment": "site", "request": "site", "value": "n"}
LOGS = ["log.parquet", "log.parquet", "log.csv", "null.parquet", "day.json"]
MAPS = ["map.json", "line.json", "segments.json"]
VALUES = {
    "--scores": ["s0,s1", "s0", "s0,site", "s1,s0", "s9", "", "s0,s0"],
    "--scale": ["logit", "probability", "value", "x"],
    "--replicas": ["seeds", "bootstrap", "ensemble", "snapshots", "x"],
    **{f"--{name}": [usual, *NAMES] for name, usual in ROLES.items()},
    "--top-k": ["1", "3", "0", "-1", "x"],
    "--missing": ["error", "drop", "null", "x"],
    "--labels-from": ["winners", "elsewhere", "x"],
    "--method": ["auto", "vad", "labels", "x"],
    "--calibrator": ["platt", "isotonic", "x"],
    "--negative-sampling-rate": ["0.1", "10%", "0", "2", "nan", "1e-320"],
    "--half-life": ["1", "3d", "0", "inf", "1e308d"],
    "--as-of": ["2026-11-15", "9999-12-31", "0001-01-01", "x"],
    "--top": ["2%", "2%,10%", "100%", "0", "1e-300", "0.02:0.1", "x"],
    "--bins": ["1", "10", "1000000000000", "x"],
    "--fail-above": ["5%", "0", "x"],
    "--tolerance": ["2%", "0", "100%", "1000%", "x"],
    "--day": ["2026-11-15", "0001-01-01", "9999-12-31T23:59:59.999999+00:00", "x"],
    "--time": ["t", "s0", "site", "x"],
    "--settled-before": ["2026-11-15", "x"],
    "--dialect": ["duckdb", "bigquery", "x"], "--name": ["f", "1", "int", ""],
    "--to": ["sql", "c", "python", "onnx", "x"],
    "--format": ["table", "json", "x"],
    "--column": ["prediction", "s0", ""],
    "--layer": ["0", ""], "--output": ["p"],
}  # fmt: skip
FLAGS = ["--affine", "--quiet", "--again"]
COMMANDS = {
    "collect": ([1, 2], ["--scores", "--scale", "-o"], ["--label", "--weight", "--segment", "--request", "--top-k",
        "--missing", "--trials", "--into", "--half-life", "--as-of", "--negative-sampling-rate"]),
    "fit": ([1, 2], ["--scores", "--scale", "--replicas", "-o"], ["--label", "--labeled", "--labels-from", "--method",
        "--calibrator", "--segment", "--request", "--top-k", "--missing", "--value", "--half-life", "--weight"]),
    "apply": (["map", 1], ["--scores", "-o"], ["--segment", "--missing", "--column"]),
    "evaluate": ([1, 2], ["--scores", "--label", "--map"], ["--scale", "--top", "--request", "--top-k", "--segment",
        "--missing", "--bins", "--fail-above", "--weight", "--value", "--trials"]),
    "show": (["map"], [], []),
    "monitor": (["map", 1], ["--label"], ["--scores", "--state", "--day", "--tolerance", "--missing", "--segment",
        "--time", "--settled-before", "--pool", "--prometheus", "--request"]),
    "refresh": (["map", 1], ["--label", "-o"], ["--scores", "--missing", "--segment", "--weight", "--request"]),
    "fold": (["map", "map"], ["-o"], ["--layer", "--output"]),
    "export": (["map"], ["--to"], ["-o", "--dialect", "--name", "--scores", "--segment"]),
}  # fmt: skip


def write_files(folder):
    """Write logs, maps, evidence and states, and damaged copies of each."""
    rng = np.random.default_rng(0)
    true = rng.normal(-1.0, 0.8, ROWS)
    log = pl.DataFrame({f"s{i}": true + rng.normal(0, 0.4, ROWS) for i in range(2)}).with_columns(
        click=pl.Series((rng.random(ROWS) < 1 / (1 + np.exp(-true))).astype(int)),
        site=pl.Series(rng.choice(["a", "b"], ROWS)),
        n=pl.Series(rng.integers(1, 5, ROWS)),
        t=pl.lit("2026-11-14"),
    )
    log.write_parquet(folder / "log.parquet")
    log.write_csv(folder / "log.csv")
    log.with_columns(s0=pl.when(pl.int_range(ROWS) % 50 > 0).then("s0")).write_parquet(folder / "null.parquet")
    log.head(0).write_parquet(folder / "none.csv.parquet")
    Affine(0.8, -0.2).save(folder / "line.json")
    Segmented(Affine(0.8, -0.2), {"a": Affine(0.7, 0.0)}).save(folder / "segments.json")
    call(
        ["collect", "log.parquet", "--scores", "s0,s1", "--scale", "logit", "--label", "click", "-o", "day.json"],
        folder,
    )
    call(["fit", "log.csv", "--scores", "s0,s1", "--scale", "logit", "--replicas", "seeds", "-o", "map.json"], folder)
    call(["monitor", "map.json", "null.parquet", "--label", "click", "--missing", "drop", "--state", "S.json"], folder)
    for path in sorted(path for path in folder.iterdir() if path.suffix != ".lock"):
        data, draw = bytearray(path.read_bytes()), random.Random(path.name)
        (folder / f"cut.{path.name}").write_bytes(data[: draw.randrange(len(data))])
        for _ in range(4):
            data[draw.randrange(len(data))] = draw.choice(b'09-e{}[],"\x00\xff')
        (folder / f"bad.{path.name}").write_bytes(data)
    (folder / "empty.csv").touch()
    (folder / "folder.parquet").mkdir()


def call(words, folder):
    """Run the command line in this process; return its exit code and standard error."""
    import contextlib
    import io

    from uncurse.cli.app import _shown, run

    _shown.clear()
    before, arguments = os.getcwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["uncurse", *words]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            try:
                code = run()
            except SystemExit as stopped:
                code = stopped.code or 0
    finally:
        os.chdir(before)
        sys.argv = arguments
    return code, said.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    write_files(made)
    return made


def command_line(draw, files):
    """Draw a command with mostly sensible options."""
    name = draw.choice(list(COMMANDS))
    arguments, usual, others = COMMANDS[name]
    words = [name]
    for kind in arguments if arguments[0] == "map" else [1] * arguments[draw.random() < 0.2]:
        words.append(draw.choice(files if draw.random() < 0.15 else MAPS if kind == "map" else LOGS))
    wanted = [one for one in usual if draw.random() < 0.98] + draw.sample(
        others, min(len(others), draw.choice([0, 0, 0, 1, 2]))
    )
    for option in wanted:
        if option in ("-o", "--into", "--state", "--prometheus"):
            usual = "out.parquet" if name == "apply" else "out.prom" if option == "--prometheus" else "out.json"
            value = usual if draw.random() < 0.8 else draw.choice(["no/out.json", "/dev/full", "S.json", *files[:2]])
        elif option in ("--map", "--labeled", "--pool"):
            value = draw.choice(files if draw.random() < 0.2 else MAPS if option == "--map" else LOGS)
        else:
            values = VALUES[option]
            value = values[0] if draw.random() < 0.85 else draw.choice(values)
        words += [option, value]
    words += [draw.choice(FLAGS)] if draw.random() < 0.05 else []
    return words


@given(seed=st.integers(0, 2**32))
def test_a_random_command_ends_with_0_1_or_2_and_at_most_one_line_of_error(folder, seed):
    draw = random.Random(seed)
    files = sorted(path.name for path in folder.iterdir() if not path.name.startswith("out"))
    words = command_line(draw, files)
    code, said = call(words, folder)
    errors = [line for line in said.splitlines() if line.startswith("uncurse: ") and "warning: " not in line]
    assert code in (0, 1, 2), (words, code, said)
    assert len(errors) <= 1, (words, said)
    assert len(errors) == 1 or code < 2, (words, said)
    assert "Traceback" not in said, (words, said)
    assert "internal error" not in said, (words, said)
