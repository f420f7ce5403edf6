"""The grid: models × shifts × splits on a table with labels."""

import json

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV

from uncurse import UncursedClassifierCV
from uncurse_lab import grid, render
from uncurse_lab.grid import experiment

ROWS = 3000


@pytest.fixture(scope="module")
def table():
    """Two numbers and a category, whose effects add up to the log odds."""
    rng = np.random.default_rng(0)
    numbers, codes = rng.normal(size=(ROWS, 2)).astype(np.float32), rng.integers(5, size=(ROWS, 1)).astype(np.int32)
    odds = numbers.sum(axis=1) + 0.5 * codes[:, 0] - 2
    return grid.Table("drawn", numbers, codes, rng.random(ROWS) < 1 / (1 + np.exp(-odds)))


def empty(table, seed=0):
    return grid.Grid(table.name, len(table.labels), int(table.labels.sum()), seed)


def cell(split, uncursed, isotonic, plain=0.5, intervals=None):
    errors = {"plain": plain, "isotonic": isotonic, "Platt": 0.3, "uncursed": uncursed}
    losses = dict.fromkeys(errors, 0.25)
    return {
        "shift": "none", "model": "mlp", "split": split, "errors": {name: [e] * 4 for name, e in errors.items()},
        "noise": [0.1] * 4, "intervals": intervals, "log_loss": losses, "brier": losses, "time_ratio": 3.0,
    }  # fmt: skip


def test_errors_are_those_of_the_estimator_and_of_scikit_learn(table):
    found = experiment.measure(table, "none", "logistic", split=1, seed=3)
    train, pool, test = experiment.make_split(table, "none", [3, 1])
    X, y = experiment.make_features(table, "logistic"), table.labels.astype(int)
    state = int(np.random.default_rng([3, 1]).integers(2**31))
    model = experiment.make_model("logistic", X[train], y[train], state)
    isotonic = CalibratedClassifierCV(model, method="isotonic", cv=5, ensemble=False).fit(X[train], y[train])
    uncursed = UncursedClassifierCV(model, random_state=state).fit(X[train], y[train], pool=X[pool])
    order = np.argsort(-uncursed.estimator_.predict_proba(X[test])[:, 1], kind="stable")
    for i, alpha in enumerate((0.01, 0.02, 0.05, 0.1)):
        top = test[order[: round(alpha * len(order))]]
        total = y[top].sum()
        for name, fitted in (("plain", uncursed.estimator_), ("isotonic", isotonic), ("uncursed", uncursed)):
            expected = fitted.predict_proba(X[top])[:, 1].sum() / total - 1
            assert found["errors"][name][i] == pytest.approx(expected, abs=1e-6)
        assert found["intervals"][i] == pytest.approx(uncursed.interval(alpha))
        assert found["noise"][i] == pytest.approx(np.sqrt(((y[top] - y[top].mean()) ** 2).sum()) / total)
    assert abs(found["errors"]["Platt"][3]) < 0.2  # a logistic regression of the right form needs no correction


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("shift", ["logistic", "lightgbm"])
def test_thinning_leaves_out_rows_with_high_scores_of_pool_and_test(table, shift):
    if shift == "lightgbm":
        pytest.importorskip("lightgbm")
    train, *whole = experiment.make_split(table, "none", [0, 1])
    same, *thinned = experiment.make_split(table, shift, [0, 1])
    assert (same == train).all()
    for before, after in zip(whole, thinned, strict=True):
        assert set(after) < set(before)
        assert table.labels[after].mean() < table.labels[before].mean() - 0.05


@pytest.mark.filterwarnings(
    "ignore"
)  # of names that LightGBM gives to columns, and of a network that has not converged
@pytest.mark.parametrize("model", [name for name in grid.MODELS if name != "logistic"])
def test_every_model_ranks_rows_that_it_has_not_seen(table, model):
    pytest.importorskip(grid.MODELS[model])
    train, _, test = experiment.make_split(table, "none", [0, 0])
    X, y = experiment.make_features(table, model), table.labels.astype(int)
    p = experiment.make_model(model, X[train], y[train], 0).fit(X[train], y[train]).predict_proba(X[test])[:, 1]
    assert p[y[test] == 1].mean() > p[y[test] == 0].mean() + 0.1


def test_the_table_follows_from_the_errors():
    always, never = [[-1.0, 1.0]] * 4, [[-0.9, -0.8]] * 4
    cells = [cell(0, 0.1, 0.2, intervals=always), cell(1, -0.3, 0.2, intervals=never)]
    failed = {"shift": "none", "model": "logistic", "split": 0, "failed": "one class"}
    found = grid.Grid("d", 10, 5, 0, [*cells, failed])
    errors, losses = (part for part in found.parts() if isinstance(part, render.TextTable))
    row = dict(zip(*errors.rows, strict=True))
    assert (row["plain"], row["isotonic"], row["uncursed"], row["floor"]) == ("50.0", "20.0", "22.4", "10.0")
    assert row["÷ isotonic"] == row["÷ best"] == "1.12 (0.50)"
    assert row["bias ÷ isotonic"] == "0.50 (0.50)"
    assert (row["held"], row["width"], row["time"]) == ("50%", "52.5", "3.00")
    assert losses.rows[1] == ["mlp", *["0.2500"] * 8]
    assert "left out: logistic, shift none, split 0: one class" in render.text(found.parts())


def test_a_ratio_to_no_error_and_an_interval_that_is_missing_are_marked():
    _, row = next(
        part for part in grid.Grid("d", 10, 5, 0, [cell(0, 0.1, 0.0)]).parts() if not isinstance(part, str)
    ).rows
    assert row[-6:] == ["–"] * 5 + ["3.00"]


def test_the_command_runs_on_a_data_set_and_continues_from_its_file(run):
    words = ["grid", "breast_cancer", "--model", "logistic", "--shift", "none", "--jobs", 1, "-o", "g.json"]
    assert "breast_cancer: 569 rows, 212 positive" in run(*words, "--splits", 1)
    with open("g.json") as stream:
        first = json.load(stream)["cells"]
    assert [each["split"] for each in first] == [0]
    found = json.loads(run(*words, "--splits", 2, "--format", "json"))
    assert "1 cells are in g.json" in run.stderr
    assert found["cells"][0] == first[0]
    assert [each["split"] for each in found["cells"]] == [0, 1]
    assert "name another file" in run(*words, "--seed", 1, code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "forest"], "model='forest'"),
        (["--shift", "drift"], "shift='drift'"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(words, message, run):
    said = run("grid", "breast_cancer", *words, code=2)
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_cell_that_fails_is_kept_with_its_reason(table):
    few = np.zeros(ROWS, bool)
    few[:3] = True
    rare = grid.Table("rare", table.numbers, table.codes, few)
    found = grid.run(rare, empty(rare), ["logistic"], ["logistic"], splits=1, processes=1)
    assert list(found.cells[0]) == ["shift", "model", "split", "failed"]
