"""The examples run, draw a figure, and show what they say."""

import re
import time
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NUMBERED = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))


@pytest.fixture
def output(tmp_path, monkeypatch, capsys):
    """Run an example by its number; check its figure and its time, and return what it prints."""
    plt = pytest.importorskip("matplotlib.pyplot", reason="the examples need matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("Agg")

    def run(number, **values):
        """With other values of constants that are set on a line of their own."""
        (script,) = EXAMPLES.glob(f"{number:02d}_*.py")
        code = script.read_text(encoding="utf-8")
        for name, value in values.items():
            code, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", code, flags=re.M)
            assert count == 1
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, str(script), "exec"), {"__name__": "__main__", "__file__": str(script)})
        assert time.process_time() - began < 20
        assert any(ax.get_title() for figure in plt.get_fignums() for ax in plt.figure(figure).axes)
        assert not list(tmp_path.iterdir())  # it leaves nothing behind
        return capsys.readouterr().out

    yield run
    plt.close("all")


def percentages(text, before=""):
    """Return the signed percentages that follow a pattern."""
    return [float(e) for e in re.findall(rf"{before} *([+-]\d+\.\d+)%", text)]


def test_examples_are_numbered_and_titled():
    assert [int(path.name[:2]) for path in NUMBERED] == list(range(1, len(NUMBERED) + 1))
    for path in NUMBERED:
        lines = path.read_text().splitlines()
        assert lines[0] == '"""', path.name  # the title is on its own line, with a rule below
        assert set(lines[2]) == {"="}, path.name
        assert len(lines[2]) == len(lines[1]), path.name


def test_01_the_idea_takes_fifteen_lines_of_code():
    code = (EXAMPLES / "01_the_idea.py").read_text().split('"""')[2].split("# %%")[0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15


def test_01_the_idea(output):
    errors = percentages(output(1), ":")  # after the correction
    assert len(errors) == 3
    assert max(map(abs, errors)) < 8


def test_02_less_bias_than_calibration(output):
    text = output(2)
    served, corrected, *calibrated = (
        [abs(e) for e in percentages(line, "%:")] for line in text.splitlines() if "top 10%:" in line
    )
    assert len(served) == len(corrected) == 3
    assert sum(corrected) < 0.6 * min(map(sum, (served, *calibrated)))


def test_03_the_bias_is_there_before_and_not_after(output):
    text = output(3)
    served, corrected = (percentages(line, "%:") for line in text.splitlines() if "top 5%:" in line)
    assert min(served) > 20
    assert max(map(abs, corrected)) < 8
    assert "the same predictions: True" in text


def test_04_labels_are_used_where_they_contradict_the_replicas(output):
    text = output(4)
    assert text.startswith("Auto(scale='logit', replicas='seeds') chose labels: the labels contradict")
    errors = {
        name: [abs(e) for e in percentages(line, "top [15]%:")]
        for line in text.splitlines()
        for name in ("as served", "Platt scaling", "Auto")
        if line.startswith(name + " ")
    }
    assert len(errors["Auto"]) == 2
    for ours, *others in zip(errors["Auto"], errors["as served"], errors["Platt scaling"], strict=True):
        assert ours < 6
        assert ours < min(others)


def test_05_replicas_side_by_side(output):
    pytest.importorskip("torch", reason="the example needs PyTorch")
    text = output(5)
    before, after = (percentages(text, name) for name in ("served", "corrected"))
    assert len(before) == len(after) == 2
    assert min(before) > 10
    assert max(map(abs, after)) < 0.6 * min(before)


def test_06_a_map_inside_a_model(output):
    pytest.importorskip("lightgbm", reason="the example needs LightGBM")
    text = output(6)
    before, after = percentages(text.splitlines()[-1])
    assert before > 20
    assert abs(after) < 4
    assert "the same ranking: True" in text
    assert float(re.findall(r"applied to the scores: (\S+)", text)[0]) < 1e-12


def test_07_the_best_of_each_request(output):
    served, corrected, *shared = output(7).splitlines()
    assert min(percentages(served, ":")) > 15
    assert max(map(abs, percentages(corrected, ":"))) < 5
    # Candidates that share a user: the map is too high on the winners, and labels of winners repair it.
    served, mapped, refreshed = (percentages(line)[0] for line in shared)
    assert served > mapped > 20
    assert abs(refreshed) < 8


def test_08_segments(output):
    lines = output(8).splitlines()[1:]
    assert len(lines) == 4
    for line in lines:
        served, _, grouped = percentages(line, ":")
        assert abs(grouped) < min(4, served)


def test_09_sampled_negatives(output):
    first, second, third = percentages(output(9), "2%:")
    assert first > 300
    assert second > 20
    assert abs(third) < 8


def test_10_intervals(output):
    held, times = map(int, re.findall(r"(\d+) of (\d+)", output(10, TIMES=10))[0])
    assert times == 10
    assert held >= 7


def test_11_a_world_of_your_own(output):
    lines = output(11).splitlines()
    assert len(lines) == 2
    for line in lines:
        rms = {name: float(value) for name, value in re.findall(r"([a-zA-Z][^:,%]*) (\d+\.\d+)%", line)}
        assert rms["auto"] < rms["platt"] < rms["vanilla"]


def test_12_a_week_in_production(output):
    decisions = re.findall(r"2026-11-\d\d  (\w+):", output(12))
    assert decisions == ["keep"] * 3 + ["alarm"] + ["keep"] * 3


def test_13_the_best_of_many_prompts(output):
    observed, estimate = re.findall(r"([+-]\d+\.\d+) points", output(13))
    assert float(observed) > 2
    assert abs(float(estimate)) < 0.4 * float(observed)
