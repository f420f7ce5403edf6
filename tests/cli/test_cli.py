"""The command line as a user meets it, in a process of its own where that matters."""

import signal
import subprocess
import sys
from importlib.metadata import version

import pytest

from uncurse.cli.app import run as run_command


def test_demo_writes_logs_runs_the_commands_and_names_the_page(run, tmp_path, monkeypatch):
    said = run("demo")
    assert "more often lucky than good" in said.split("\n\n")[0]
    for command in ("collect", "fit", "apply", "evaluate"):
        assert f"\n$ uncurse {command} " in said
    last = next(line for line in said.splitlines() if line.startswith("On the top"))
    before, after = (float(word.rstrip("%;.,")) for word in last.split() if word.startswith(("+", "-")))
    assert before > 10
    assert abs(after) < before / 3
    page = said.strip().splitlines()[-1]
    assert page == f"The page: {(tmp_path / 'uncurse-demo' / 'report.html').as_uri()}"
    assert "over-predict" in (tmp_path / "uncurse-demo" / "report.html").read_text()
    assert run.stderr == "written to uncurse-demo/report.html\n"
    # The commands it prints can be run again as they are.
    line = next(line for line in said.splitlines() if line.startswith("$ uncurse fit"))
    monkeypatch.setattr(sys, "argv", line.split()[1:])
    assert run_command() == 0


def test_an_interrupted_command_stops_at_once(tmp_path):
    # The demo with fewer rows.
    code = "from uncurse import demo; demo.SHOWN, demo.CANDIDATES = 4_000, 10_000; "
    command = [sys.executable, "-c", code + "from uncurse.cli import main; main()", "demo"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("$ uncurse evaluate"):  # which draws for a second or more
            break
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The page" not in rest
    assert error.strip() == ""
    hidden = [path.name for path in (tmp_path / "uncurse-demo").iterdir() if path.name.startswith(".")]
    assert not hidden


WRITING = """
import time
from uncurse.cli import app
from uncurse.documents import temporary_folder

def work():
    with temporary_folder("."):
        print("writing", flush=True)
        time.sleep(60)

app.registered_commands[0].callback = work
app.registered_commands[0].name = "work"
from uncurse.cli import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_removes_its_unfinished_files(tmp_path, number, code):
    words = [sys.executable, "-c", WRITING, "work"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    assert list(tmp_path.iterdir())
    process.send_signal(number)
    rest, error = process.communicate(timeout=60)
    assert (process.returncode, rest, error) == (code, "", "")
    assert not list(tmp_path.iterdir())


def test_demo_says_where_it_cannot_write(tmp_path, run):
    (tmp_path / "file").touch()
    assert "cannot make the folder file/demo" in run("demo", "--out", "file/demo", code=2)


@pytest.mark.parametrize("arguments", [["demo", "--seed", "x"], ["demo", "--seed", "-5"], ["nonsense"]])
def test_bad_usage_exits_2(arguments, run):
    said = run(*arguments, code=2)
    assert said.startswith("uncurse: ")
    assert said.count("\n") == 1


def test_version():
    from uncurse.version import __version__

    words = [sys.executable, "-m", "uncurse", "--version"]  # as a user starts it
    result = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == __version__ == version("uncurse")


def test_completion_is_there_for_every_shell(run):
    assert "--install-completion" in run("--help")


def test_no_command_prints_the_help(run):
    assert run(code=2) == run("-h")


def test_help_groups_the_commands_in_the_order_of_the_workflow(run):
    help_text = run("-h")
    assert help_text == run("--help")
    listed = [line.split()[0] for line in help_text.split("\nStart:")[1].splitlines() if line.startswith("  ")][
        :-1
    ]  # the epilog
    names = "demo collect fit apply evaluate monitor refresh fold verify export winner"
    assert listed == names.split()
    for name in listed:
        assert "Example" in run(name, "-h")


def test_every_choice_of_the_library_is_offered(run):
    from uncurse.calibration import CALIBRATORS
    from uncurse.methods import KINDS
    from uncurse.validation import SCALES

    offered = " ".join(run("fit", "-h").replace("\n", " ").split())
    for names in (SCALES, KINDS, CALIBRATORS):
        assert "|".join(names) in offered
