"""The command line as a user meets it: in a process of its own."""

import json
import signal
import subprocess
import sys
import time

import pytest


def uncurse(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "uncurse.cli", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120
    )


def test_demo_writes_logs_runs_the_commands_and_names_the_page(tmp_path):
    result = uncurse("demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "more often lucky than good" in result.stdout.split("\n\n")[0]
    for command in ("collect", "fit", "apply", "evaluate"):
        assert f"\n$ uncurse {command} " in result.stdout
    last = next(line for line in result.stdout.splitlines() if line.startswith("On the top"))
    before, after = (float(word.rstrip("%;.")) for word in last.split() if word.startswith(("+", "-")))
    assert before > 10
    assert abs(after) < before / 3
    page = result.stdout.strip().splitlines()[-1]
    assert page == f"The page: {(tmp_path / 'uncurse-demo' / 'report.html').as_uri()}"
    assert "over-predict" in (tmp_path / "uncurse-demo" / "report.html").read_text()
    assert result.stderr == ""
    # The commands it prints can be run again as they are.
    line = next(line for line in result.stdout.splitlines() if line.startswith("$ uncurse fit"))
    assert uncurse(*line.split()[2:], cwd=tmp_path).returncode == 0


def test_an_interrupted_demo_stops(tmp_path):
    command = [sys.executable, "-m", "uncurse.cli", "demo"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("$ uncurse evaluate"):  # which draws for a second or more
            break
    while process.poll() is None:  # a person, too, presses it again
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    rest, error = process.communicate(timeout=60)
    assert process.returncode not in (0, 2)
    assert "The page" not in rest
    assert "Traceback" not in error


def test_demo_says_where_it_cannot_write(tmp_path):
    (tmp_path / "file").touch()
    result = uncurse("demo", "--out", "file/demo", cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot make the folder file/demo" in result.stderr


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


def test_completion_is_there_for_every_shell():
    assert "--install-completion" in uncurse("--help").stdout


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m uncurse.cli reproduce synthetic --replications 2 --json - | head -c 10"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in result.stderr


def test_a_negative_seed_is_bad_usage():
    result = uncurse("demo", "--seed", "-5")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
