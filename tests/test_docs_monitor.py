"""The programs of docs/how-to/monitor.md run, and its options exist."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import uncurse
from uncurse.methods import DataRecord, FitRecord

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
DAY = "2030-01-01"


@pytest.fixture
def folder(tmp_path):
    """A pool, a map, and rows that were shown."""
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 1, 6_000)
    pool = pl.DataFrame({f"s{i}": truth + rng.normal(0, 0.4, 6_000) for i in range(2)})
    shown = pl.DataFrame({"s0": truth, "click": (rng.random(6_000) < 1 / (1 + np.exp(-truth))).astype(int)})
    for name, frame in (("pool", pool), ("shown", shown)):
        (tmp_path / name / DAY).mkdir(parents=True)
        frame.write_parquet(tmp_path / name / DAY / "part.parquet")
    return tmp_path


def save_map(folder, shift):
    record = FitRecord("vad", DataRecord(6_000, ("s0", "s1")))
    uncurse.Fitted(uncurse.Affine(1.0, shift), record).save(folder / "map.json")


def run_script(script, folder):
    script = script.replace("$(date -d yesterday +%F)", DAY).replace("{{ ds }}", DAY)
    script = script.replace("uncurse monitor", f"{sys.executable} -m uncurse monitor")
    script = script.replace("uncurse fit", f"{sys.executable} -m uncurse fit")
    result = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, cwd=folder, timeout=240)
    assert "Traceback" not in result.stderr
    return result.returncode


@pytest.mark.parametrize(("shift", "refitted"), [(0.0, False), (0.5, True)])
def test_the_daily_script_refits_a_wrong_map_and_starts_a_new_state(folder, shift, refitted):
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    save_map(folder, shift)
    before = (folder / "map.json").read_text()
    assert run_script(script, folder) == 0
    assert ((folder / "map.json").read_text() != before) == refitted
    assert (folder / "state.json").exists() != refitted
    assert (folder / f"state-until-{DAY}.json").exists() == refitted
    assert (folder / "monitor.html").exists()
    assert (folder / "uncurse.prom").exists()
    if not refitted:
        assert run_script(script, folder) == 2  # the rows of a day count once


def test_the_tasks_of_the_dag_run_one_after_another_only_if_the_verdict_is_refit(folder):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    tree = ast.parse(code)
    scripts = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    for shift, code in ((0.0, 99), (0.5, 0)):
        (folder / "state.json").unlink(missing_ok=True)
        save_map(folder, shift)
        assert run_script(scripts["MONITOR"], folder) == code
    assert run_script(scripts["MONITOR"], folder) == 2  # counted already
    assert run_script(scripts["REFIT"], folder) == 0
    assert not (folder / "state.json").exists()
    assert uncurse.load(folder / "map.json")(0.0) < 0.5


def test_every_option_of_the_page_exists(run):
    text = run("monitor", "-h") + run("evaluate", "-h") + run("fit", "-h")
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)):
        assert option in text, option
