import json

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
    assert "--seed is for fresh random numbers" in said


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
