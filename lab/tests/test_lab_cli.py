import pytest


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
    assert listed[:4] == ["arena", "auction", "grid", "reproduce"]
    assert run("reproduce", code=2) == run("reproduce", "-h")
    assert "Example: uncurse-lab " in run("reproduce", "synthetic", "--help")
