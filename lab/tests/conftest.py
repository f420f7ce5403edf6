import sys

import pytest

collect_ignore = ["conftest.py"]  # which the doctests of modules would import under the name of another


@pytest.fixture(autouse=True, scope="module")
def small_bootstraps():
    """The bootstraps of ECE and MCE are small: they take nearly all the time of an experiment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uncurse.metrics.measure._DRAWS", 4_000)
        yield


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """The command `uncurse-lab` in this process, in a folder of its own; returns its standard output."""
    from uncurse.cli.app import run as run_command
    from uncurse_lab.cli import app

    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        words = [str(word) for word in arguments]
        if words[:1] == ["arena"] and "--format" not in words:
            words += ["--format", "json"]
        monkeypatch.setattr(sys, "argv", ["uncurse-lab", *words])
        exit_code = run_command(app)
        call.stdout, call.stderr = capsys.readouterr()
        assert exit_code == code, call.stderr
        return call.stdout if code == 0 else call.stderr

    return call
