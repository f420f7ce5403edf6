"""The examples run, and show what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_first_example_shows_less_bias_than_calibration(tmp_path):
    pytest.importorskip("lightgbm", reason="the example needs LightGBM")
    script = EXAMPLES / "01_correct_a_classifier.py"
    words = [sys.executable, "-W", "ignore", script]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=180)
    assert result.returncode == 0, result.stderr
    served, calibrated, corrected = (
        [abs(float(e)) for e in re.findall(rf"{name} ([+-]\d+\.\d+)%", result.stdout)]
        for name in ("as served", "CalibratedClassifierCV", "UncursedClassifierCV")
    )
    assert len(served) == 3
    assert sum(corrected) < 0.6 * min(sum(calibrated), sum(served))
    assert "<svg" in (tmp_path / "01_correct_a_classifier.svg").read_text()


def test_the_second_example_shows_the_bias_before_and_not_after(tmp_path):
    script = EXAMPLES / "02_debias_a_pool.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert result.returncode == 0, result.stderr
    errors = [float(e) for e in re.findall(r"([+-]\d+\.\d+)% ±", result.stdout)]
    assert min(errors[:2]) > 20
    assert max(map(abs, errors[2:])) < 8
    assert (tmp_path / "map.json").stat().st_size < 20_000


def test_the_third_example_trains_replicas_side_by_side_and_shows_less_bias_after(tmp_path):
    pytest.importorskip("torch", reason="the example needs PyTorch")
    script = EXAMPLES / "03_replicas_side_by_side.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert result.returncode == 0, result.stderr
    before, after = (
        [float(e) for e in re.findall(rf"{name} ([+-]\d+\.\d+)%", result.stdout)] for name in ("served", "map")
    )
    assert len(before) == len(after) == 2
    assert min(before) > 10
    assert max(map(abs, after)) < 0.6 * min(before)


def test_the_fourth_example_chooses_tower_and_shows_less_bias_than_all_others(tmp_path):
    script = EXAMPLES / "04_labels_and_a_choice.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Auto(scale='logit', replicas='seeds') chose tower: the labels contradict")
    errors = {
        name: [abs(float(e)) for e in re.findall(rf"  {re.escape(name)} +([+-]\d+\.\d+)%", result.stdout)]
        for name in ("as served", "platt", "platt + VAD", "tower", "auto")
    }
    for name in ("tower", "auto"):
        for ours, *others in zip(errors[name], errors["as served"], errors["platt"], strict=True):
            assert ours < 6
            assert ours < min(others)


def test_the_picture_is_drawn_from_the_tables(tmp_path):
    data, picture = tmp_path / "tables.json", tmp_path / "picture.svg"
    command = [
        sys.executable,
        "-m",
        "uncurse.cli",
        "reproduce",
        "synthetic",
        "--replications",
        "3",
        "--format",
        "json",
    ]
    data.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    subprocess.run([sys.executable, EXAMPLES / "problem_picture.py", data, picture], check=True)
    assert picture.read_text().count("<polyline") == 3


def test_the_fifth_example_folds_a_map_into_a_model(tmp_path):
    pytest.importorskip("lightgbm", reason="the example needs LightGBM")
    script = EXAMPLES / "05_fold.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert result.returncode == 0, result.stderr
    before, after = (float(e) for e in re.findall(r"([+-]\d+\.\d+)%", result.stdout))
    assert before > 20
    assert abs(after) < 4
    assert "the same order: True" in result.stdout
    assert float(result.stdout.split()[-1]) < 1e-12


def test_the_week_in_production_raises_one_alarm_on_the_fourth_day(tmp_path):
    script = EXAMPLES / "12_a_week_in_production.py"
    words = [sys.executable, "-W", "ignore", script]
    environment = {**os.environ, "MPLBACKEND": "agg"}
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=180, env=environment)
    assert result.returncode == 0, result.stderr
    decisions = re.findall(r"2026-11-\d\d  (\w+):", result.stdout)
    assert decisions == ["keep"] * 3 + ["refit"] + ["keep"] * 3
