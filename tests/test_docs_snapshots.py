"""The recipes of docs/guide/replicas.md run."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import uncurse
from uncurse.links import logistic

PAGE = (Path(__file__).parents[1] / "docs" / "guide" / "replicas.md").read_text(encoding="utf-8")


def test_the_recipe_for_pytorch_removes_most_of_the_bias(tmp_path, monkeypatch, capsys, request):
    pytest.importorskip("torch", reason="the recipe needs PyTorch")
    request.getfixturevalue("one_torch_thread")  # several would wait for each other at these sizes
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "torch" in block)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "replicas.md", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    before, after = (
        [abs(float(e)) for e in re.findall(rf"{name} ([+-]\d+\.\d+)%", said)] for name in ("served", "map")
    )
    assert len(before) == len(after) == 2
    assert max(after) < 0.4 * min(before)
    assert uncurse.load(tmp_path / "map.json")(0.0) < 0.5


def test_the_daily_job_runs_as_written(tmp_path):
    import polars as pl

    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    rng = np.random.default_rng(0)
    truth = rng.normal(-2, 1, 18_000)
    noise = rng.normal(0, 0.5, (3, 18_000))
    columns = {"s0": truth + noise[0], "s1": truth + noise[1], "click": (rng.random(18_000) < logistic(truth)) * 1}
    log = pl.DataFrame(columns)
    for i, name in enumerate(("pool", "labeled", "outcomes")):
        (tmp_path / name / "2030-01-01").mkdir(parents=True)
        log.slice(6_000 * i, 6_000).write_parquet(tmp_path / name / "2030-01-01" / "part.parquet")
    script = script.replace("$(date +%F)", "2030-01-01").replace("uncurse ", f"{sys.executable} -m uncurse ")
    words = ["bash", "-euc", script]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert result.returncode in (0, 1), result.stderr  # 1: a map may miss the 5%
    assert uncurse.load(tmp_path / "map-2030-01-01.json")(0.0) < 0.5
