"""Random command lines, and tests of the fuzzer itself; test_pinned_calls.py calls the public names."""

import importlib
import os
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
from tools.fuzz import engine, targets
from tools.fuzz.__main__ import main
from tools.fuzz.checks import check_fit, check_map, check_predictions
from tools.fuzz.draws import Draw
from tools.fuzz.engine import TARGETS, Call, Fault, Finding, Target, run_call, schedule

import uncurse
from uncurse import Cells, UncurseError
from uncurse.maps import Affine, ScoreMap


def test_random_command_lines_end_with_an_answer_or_one_error_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcomes = [run_call(TARGETS["command_line"], 0, number, tmp_path)[1] for number in range(80)]
    assert not [str(outcome) for outcome in outcomes if isinstance(outcome, Finding)]
    assert 13 < sum(outcome is False for outcome in outcomes) < 67


PACKAGES = (
    "validation", "links", "maps", "calibration", "metrics", "monitoring", "theory", "evidence", "debias",
    "estimators",
)  # fmt: skip
#: Public names without a target of their own: results and records, and helpers that take checked arrays.
NOT_CALLED = {
    *(
        "Bin",
        "CrossFit",
        "DataRecord",
        "ErrorInterval",
        "Estimate",
        "Evaluation",
        "Gaussianity",
        "Geometry",
        "GroupRecord",
        "HalfLifeCandidate",
        "HalfLifeChoice",
        "Link",
    ),
    *("RefreshRecord", "Replicas", "ScoreSummary", "SelectionMetrics", "TopChange"),
    "UncurseError",
    *("check_length", "fold", "is_missing"),
    *("Calibration", "Day", "LabelSums", "LambdaChange", "ScoreChange"),
    *("SelectedReliabilityDisplay", "SelectionErrorDisplay"),
    *("warn_if_probabilities", "warn_user"),
}


def listed(module):
    """The names of a module that other modules use; internal modules have no __all__."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def test_every_public_name_of_the_core_has_a_target():
    files = [path for path in Path(targets.__file__).parent.glob("*.py") if path.stem != "command_line"]
    source = "\n".join(path.read_text() for path in files)
    modules = [uncurse, *(importlib.import_module(f"uncurse.{name}") for name in PACKAGES)]
    names = {name for module in modules for name in listed(module) if callable(getattr(module, name))}
    missing = {name for name in names if not re.search(rf"\b{name}\b", source)}
    assert missing == NOT_CALLED & names
    assert names >= NOT_CALLED


# ---------------------------------------------------------------------------- the fuzzer finds planted faults


@pytest.fixture
def run(tmp_path):
    def outcome(function, number=0):
        return run_call(Target("planted", function), 0, number, tmp_path)[1]

    return outcome


def raising(error):
    def function(*arguments):
        raise error

    return function


@pytest.mark.parametrize("error", [TypeError("x"), MemoryError("x"), ZeroDivisionError("x"), RecursionError("x")])
def test_other_exceptions_are_faults(run, error):
    found = run(lambda call: call.call(raising(error)))
    assert isinstance(found, Finding)
    assert type(error).__name__ in found.summary


def test_an_uncurse_error_is_a_refusal_and_needs_a_message(run):
    assert run(lambda call: call.call(raising(UncurseError("slope is -1")))) is True
    assert "no message" in run(lambda call: call.call(raising(UncurseError("")))).summary


def test_user_warnings_pass_and_other_warnings_are_faults(run):
    assert run(lambda call: warnings.warn("x", UserWarning, stacklevel=1)) is False
    assert "RuntimeWarning" in run(lambda call: np.log(np.array(0.0))).summary


def test_a_slow_call_is_a_fault(run, monkeypatch):
    monkeypatch.setattr(engine, "SLOW_SECONDS", 0.01)
    assert "Slow" in run(lambda call: call.call(time.sleep, 0.02)).summary
    assert "stopped" in run(lambda call: call.call(time.sleep, 5)).summary


class Falling(Affine):
    def __call__(self, scores):
        return 1 - super().__call__(scores)


class Missing(Affine):
    def __call__(self, scores):
        return np.where(np.asarray(scores) > 3, np.nan, super().__call__(scores))


@pytest.mark.parametrize(("kind", "message"), [(Falling, "NotMonotone"), (Missing, "NotFinite")])
def test_a_map_that_falls_or_is_not_finite_is_a_fault(run, kind, message):
    assert run(lambda call: check_map(call, Affine(0.5, 1.0))) is False
    assert message in run(lambda call: check_map(call, kind(0.5, 1.0))).summary


def test_a_map_that_a_file_changes_is_a_fault(run, monkeypatch):
    monkeypatch.setattr(ScoreMap, "save", lambda self, path: path.write_text(Affine(0.5, 1.0 + 1e-9).to_json()))
    assert "Changed" in run(lambda call: check_map(call, Affine(0.5, 1.0))).summary


def test_a_refusal_of_what_was_written_is_a_fault(run):
    found = run(lambda call: call.read_back(raising(UncurseError("this is not a map"))))
    assert "Refused what was written" in found.summary


def test_predictions_out_of_range_are_a_fault():
    with pytest.raises(Fault, match="OutOfRange"):
        check_predictions(np.arange(2.0), np.array([0.5, 1.5]), probability=True)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda scores, weights: scores[:1], "order of rows"),
        (lambda scores, weights: [1.0 if weights is None else weights.sum() / len(scores)], "weights times"),
    ],
)
def test_a_fit_that_depends_on_order_or_on_the_scale_of_weights_is_a_fault(run, fit, message):
    def function(call):
        call.broken = False
        check_fit(call, fit, (np.arange(9.0),), None)

    assert message in run(function).summary
    assert run(lambda call: check_fit(call, lambda scores, weights: [scores.mean()], (np.arange(9.0),), None)) is False


@pytest.mark.parametrize("lost", ["label", "weight"])
def test_cells_that_lose_labels_or_weights_in_a_merge_are_a_fault(run, monkeypatch, lost):
    def function(call):
        call.broken, call.one_of = False, lambda *values: values[-1]  # probabilities with labels, on the grid
        call.scores, call.weights = lambda rows, scale: np.linspace(0.1, 0.9, 50), lambda rows: None
        TARGETS["evidence.Cells"].function(call)

    assert run(function) is False
    merge = Cells._merge

    def losing(self, other):
        found = merge(self, other)
        for table in (found._exact_table, found._grid_table):
            table[1 if lost == "weight" else 2, 20:] *= 0.5
        return found

    monkeypatch.setattr(Cells, "_merge", losing)
    assert "how rows were split" in run(function).summary


# ---------------------------------------------------------------------------- the fuzzer is reproducible


def test_equal_seeds_draw_equal_values(tmp_path):
    one, other, third = (Call([0, 1, number], tmp_path) for number in (2, 2, 3))
    draws = [(d.broken, d.rows(), d.scores(7).tolist(), d.weights(3) is None) for d in (one, other, third)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_damaged_arrays_have_every_form():
    draw = Draw([0])
    kinds = {type(draw.damage(np.arange(4.0))).__name__ for _ in range(2000)}
    assert {"ndarray", "list", "dict", "generator", "MaskedArray", "NoneType", "Series", "str"} <= kinds


def test_the_schedule_spaces_out_slow_targets(monkeypatch):
    fast, slow = (Target(name, lambda call: None, every) for name, every in (("fast", 1), ("slow", 10)))
    monkeypatch.setattr(engine, "TARGETS", {"fast": fast, "slow": slow})
    made = list(schedule(["fast", "slow"], 110))
    assert len(made) == 110
    assert sum(name == "slow" for name, _ in made) == 10


def test_one_call_is_made_again_by_its_number(capsys, monkeypatch):
    monkeypatch.setitem(TARGETS, "planted", Target("planted", lambda call: call.call(raising(TypeError("boom")))))
    assert main(["--only", "planted", "--call", "7", "--seed", "3"]) == 1
    assert "--seed 3 --only planted --call 7" in capsys.readouterr().out
    assert main(["--only", "validation.check_share", "--call", "0"]) == 0


def test_workers_report_faults_and_processes_that_die(monkeypatch, capsys):

    def dies(call):
        if call.chance(0.5):
            os._exit(3)

    monkeypatch.setitem(TARGETS, "dies", Target("dies", dies))
    assert main(["--only", "dies", "--calls", "6", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "Crash" in out
    assert "6 calls" in out
