"""Commands that are killed or interrupted at random times leave nothing partial and lose nothing.

The profile "nightly" (``HYPOTHESIS_PROFILE=nightly``) stops 300 commands. With ``-s`` it prints what they did.
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import date, timedelta

import lightgbm
import numpy as np
import polars as pl
from hypothesis import settings

from uncurse import Affine, Evidence, load
from uncurse.monitoring import MonitorState

ROWS = 400
COLUMNS = ["--scores", "s0,s1", "--scale", "logit"]
LABELS = ["map.json", "log.parquet", "--label", "click"]
COMMANDS = {
    "week.json": ["collect", "log.parquet", *COLUMNS, "--into", "week.json"],
    "new.json": ["fit", "log.parquet", *COLUMNS, "--replicas", "seeds", "--method", "vad", "-o", "new.json"],
    "out.parquet": ["apply", "map.json", "log.parquet", "--scores", "s0", "-o", "out.parquet"],
    "page.html": [
        "evaluate",
        *COLUMNS,
        "log.parquet",
        "--label",
        "click",
        "--map",
        "map.json",
        "--report",
        "page.html",
    ],
    "state.json": ["monitor", *LABELS, "--scores", "s0", "--state", "state.json", "--day"],
    "fresh.json": ["refresh", *LABELS, "--scores", "s0", "-o", "fresh.json"],
    "folded.txt": ["fold", "map.json", "model.txt", "-o", "folded.txt"],
}
CHECKS = {
    "week.json": lambda path: Evidence.load(path).rows % ROWS == 0,
    "new.json": lambda path: load(path).record.pool.rows == ROWS,
    "out.parquet": lambda path: pl.read_parquet(path)["prediction"].is_between(0, 1).sum() == ROWS,
    "page.html": lambda path: path.read_text().rstrip().endswith("</html>"),
    "state.json": lambda path: all(day.sums.rows == ROWS for day in MonitorState.load(path).days.values()),
    "fresh.json": lambda path: 0 < load(path).map([0.0])[0] < 1,
    "folded.txt": lambda path: lightgbm.Booster(model_file=path).num_trees() == 5,
}


def start(words, folder):
    command = [sys.executable, "-m", "uncurse", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def write_log(folder, rng):
    true = rng.normal(-1.0, 0.8, ROWS)
    log = pl.DataFrame({name: true + rng.normal(0.0, 0.4, ROWS) for name in ("s0", "s1")})
    log.with_columns(click=pl.Series((rng.random(ROWS) < 0.3).astype(int))).write_parquet(folder / "log.parquet")


def stop(process, folder, draw, usual):
    """Send a signal while the command starts or works, or just after it begins to write; return whether it ended."""
    before, begun = set(folder.iterdir()), time.perf_counter()
    if draw.random() < 0.5:
        while process.poll() is None and set(folder.iterdir()) - before == set():
            time.sleep(0.001)
        time.sleep(draw.random() * 0.02)
    else:
        time.sleep(0.1 + draw.random() * usual)
    number = draw.choice([signal.SIGKILL, signal.SIGINT])
    process.send_signal(number)
    error = process.communicate(timeout=120)[1]
    return number, error, time.perf_counter() - begun


def test_stopped_commands_leave_nothing_partial_and_lose_nothing(tmp_path):
    count = 300 if settings.default.max_examples > 300 else 3
    draw, rng = random.Random(0), np.random.default_rng(0)
    write_log(tmp_path, rng)
    Affine(0.8, -0.2).save(tmp_path / "map.json")
    rows = lightgbm.Dataset(rng.normal(size=(ROWS, 2)), rng.integers(0, 2, ROWS), params={"verbose": -1})
    lightgbm.train({"objective": "binary", "verbose": -1}, rows, 5).save_model(tmp_path / "model.txt")
    inputs, usual = set(tmp_path.iterdir()), dict.fromkeys(COMMANDS, 2.0)
    found, stopped, days, collected = Counter(), 0, 0, 0
    while stopped < count:
        target = draw.choice(list(COMMANDS))
        path, words = tmp_path / target, list(COMMANDS[target])
        if target == "state.json":
            days += 1
            words.append(str(date(2026, 1, 1) + timedelta(days=days)))
        collected += target == "week.json"
        write_log(tmp_path, rng)
        before = path.read_bytes() if path.exists() else None
        hidden = set(tmp_path.glob(".*"))
        process = start(words, tmp_path)
        number, error, seconds = stop(process, tmp_path, draw, usual[target])
        ended = process.returncode in (0, 1)
        after = path.read_bytes() if path.exists() else None
        assert after == before or CHECKS[target](path), words
        left = set(tmp_path.iterdir()) - inputs - {tmp_path / name for name in COMMANDS}
        assert all(each.name.startswith(".uncurse-") or each.name.endswith(".json.lock") for each in left), left
        if ended:
            usual[target] = seconds
        elif number == signal.SIGINT:
            if "Traceback" not in error or "/cli/" in error:  # else Python itself was still starting
                assert process.returncode in (130, -number), (words, error)  # -2 while Python itself ends
                assert len(error.splitlines()) <= 1, (words, error)
            assert set(tmp_path.glob(".*")) == hidden, (words, error)
        else:
            assert process.returncode == -signal.SIGKILL, (words, error)
        if not ended and target in ("state.json", "week.json"):  # rows are counted once, however often it is repeated
            again = start(words, tmp_path)
            error = again.communicate(timeout=120)[1]
            assert again.returncode in (0, 1) or "already" in error, (words, error)
        stopped += not ended
        how = "ended before" if ended else "stopped, old file" if after == before else "stopped, new file"
        found[number.name, how] += 1
        if stopped % 50 == 0:
            sys.stderr.write(f"{stopped} stopped: {dict(found)}\n")
    hidden = set(tmp_path.glob(".uncurse-*"))
    sys.stderr.write(f"\n{dict(found)}; {len(hidden)} temporary folders left by SIGKILL\n")
    if days:
        assert len(MonitorState.load(tmp_path / "state.json").days) == days
    if collected:
        assert Evidence.load(tmp_path / "week.json").rows == ROWS * collected
