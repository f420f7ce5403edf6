"""The command line as a user meets it: in a process of its own."""

import json
import subprocess
import sys

import pytest


def uncurse(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "uncurse.cli", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120
    )


def test_demo_shows_the_bias_before_and_less_after():
    result = uncurse("demo")
    assert result.returncode == 0, result.stderr
    assert "top   1%" in result.stdout
    last = next(line for line in result.stdout.splitlines() if line.startswith("On the top"))
    before, after = (float(word.rstrip("%;.")) for word in last.split() if word.startswith(("+", "-")))
    assert before > 10
    assert abs(after) < before / 3
    assert result.stderr == ""


def test_reproduce_prints_the_tables_and_writes_json(tmp_path):
    result = uncurse("reproduce", "synthetic", "--replications", "3", "--json", "out.json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Calibration error, %" in result.stdout
    assert "[8.55 " in result.stdout
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["kind"] == "synthetic"
    assert content["replications"] == 3


def test_json_to_standard_output_is_nothing_but_json():
    result = uncurse("reproduce", "synthetic", "--replications", "2", "--json", "-")
    assert json.loads(result.stdout)["replications"] == 2


def test_a_folder_that_is_not_there_is_one_line_and_exit_2():
    result = uncurse("reproduce", "synthetic", "--replications", "2", "--json", "no/such/folder/out.json")
    assert result.returncode == 2
    assert result.stderr.strip() == "uncurse: cannot write no/such/folder/out.json: No such file or directory"


@pytest.mark.parametrize("arguments", [["reproduce", "synthetic", "--replications", "1"], ["nonsense"]])
def test_bad_usage_exits_2(arguments):
    result = uncurse(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["demo"], ["reproduce", "synthetic"]])
def test_help_has_an_example(command):
    assert "Example: uncurse " in uncurse(*command, "--help").stdout


def test_version():
    assert uncurse("--version").stdout.strip() == "0.1.0"


def test_golden_takes_neither_a_seed_nor_a_number_of_replications():
    result = uncurse("reproduce", "synthetic", "--golden", "--seed", "3")
    assert result.returncode == 2
    assert "--golden is one fixed stream of 100 replications" in result.stderr


def test_a_negative_seed_is_bad_usage():
    result = uncurse("demo", "--seed", "-5")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
