import json
import subprocess
import sys

import pytest


def test_reproduce_prints_the_tables(run):
    said = run("reproduce", "synthetic", "--replications", "3")
    assert "Calibration error, %" in said
    assert "[8.55 " in said


def test_json_to_standard_output_is_nothing_but_json(run):
    content = json.loads(run("reproduce", "synthetic", "--replications", "2", "--format", "json"))
    assert (content["kind"], content["replications"]) == ("synthetic", 2)


def test_a_folder_that_is_not_there_is_one_line_and_exit_2(run):
    said = run("reproduce", "criteo", "--world", "--markdown", "no/such/out.md", code=2)
    assert said.strip() == "uncurse: cannot write --markdown no/such/out.md: No such file or directory"


def test_golden_takes_neither_a_seed_nor_a_number_of_replications(run):
    said = run("reproduce", "synthetic", "--golden", "--seed", "3", code=2)
    assert "--golden is one fixed stream of 100 replications" in said


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m uncurse_lab reproduce synthetic --replications 2 --format json | head -c 10"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in result.stderr


def test_a_full_or_closed_standard_output_is_one_line():
    command = f"{sys.executable} -m uncurse_lab reproduce synthetic --replications 2"
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True, timeout=120)
    assert closed.returncode in (0, 2)
    assert "Traceback" not in closed.stderr
    full = subprocess.run(f"{command} >/dev/full", shell=True, capture_output=True, text=True, timeout=120)
    assert full.returncode == 2
    assert full.stderr == "uncurse: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["reproduce", "synthetic", "--replications", "1"], ["nonsense"]])
def test_bad_usage_exits_2(arguments, run):
    said = run(*arguments, code=2)
    assert said.startswith("uncurse: ")
    assert said.count("\n") == 1


def test_help_lists_the_commands(run):
    help_text = run("-h")
    listed = [line.split()[0] for line in help_text.split("Commands:")[1].splitlines() if line.startswith("  ")]
    assert listed[:3] == ["arena", "auction", "reproduce"]
    assert run("reproduce", code=2) == run("reproduce", "-h")
    assert "Example: uncurse-lab " in run("reproduce", "synthetic", "--help")
