"""The trainer: what it reports, what it refuses, and what it leaves untouched."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import log_loss

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from uncurse.deep import train_replicas  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def linear():
    return nn.Linear(3, 1)


def dropping():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))


def pairs(rows=64):
    rng = np.random.default_rng(0)
    x = rng.random((rows, 3), np.float32)
    return x, (rng.random(rows) < x[:, 0]).astype(np.uint8)


# ---------------------------------------------------------------------- losses and the bar


def test_losses_are_mean_log_losses_of_the_rows_as_they_came():
    x, y = pairs(300)
    fit = train_replicas(linear, (x, y), learning_rate=1e-9, epochs=2, batch_size=32)  # too small to change anything
    z = fit.logits((x,)).astype(float)
    expected = [log_loss(y, 1 / (1 + np.exp(-z[:, r]))) for r in range(2)]
    np.testing.assert_allclose(fit.losses, [expected, expected], rtol=0, atol=1e-5)
    assert f"{min(expected):.4f}" in repr(fit)


def test_a_terminal_shows_a_bar_and_a_file_does_not(monkeypatch, capfd):
    train_replicas(linear, pairs())
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    train_replicas(linear, pairs())
    out, error = capfd.readouterr()
    assert out == ""
    assert "training" in error


# ---------------------------------------------------------------------- what is refused

X, Y = torch.zeros(8, 3), torch.tensor([0.0, 1.0] * 4)
BAD_DATA = [
    ((X, Y[:7]), "input 0 has 8 rows"),
    ((X, X[:5], Y), "input 1 has 5 rows"),
    ((X, 2 * Y), "labels must be 0 or 1; found 2"),
    ((X, Y / 4), r"labels must be 0 or 1; found 0\.25"),
    ((X, Y * np.nan), "labels must be 0 or 1; found nan"),
    ((X[:0], Y[:0]), "no rows"),
    ((Y,), "no labels"),
    (X, "no labels"),
    ({"x": X, "y": Y}, "not dict"),
    ((np.full(8, "a"), Y), "'a'"),
]


@pytest.mark.parametrize(("data", "message"), BAD_DATA)
def test_data_that_cannot_be_trained_on_are_refused(data, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, data)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_numbers_are_named_before_training_and_before_scoring(value):
    x, y = pairs()
    fit = train_replicas(linear, (x, y))
    x = x.copy()
    x[7, 1] = value
    message = rf"input 0 column 1 holds {value} in row 7 \(1 such in all\)"
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, (x, y))
    with pytest.raises(UncurseError, match=message):
        fit.logits((x,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "1 inputs and the data set has 0"),
        ((X, Y, Y), "1 inputs and the data set has 3"),
        ((X[:, :2],), r"rows of shape \(2,\)"),
    ],
)
def test_data_of_another_shape_are_not_scored(given, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, (X, Y)).logits(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_replicas": 0}, "n_replicas=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 2.5}, r"batch_size=2\.5"),
        ({"optimizer": "lion"}, "optimizer='lion'"),
        ({"learning_rate": 0}, "learning_rate=0"),
        ({"learning_rate": -1.0}, "learning_rate=-1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.5}, r"seed=1\.5"),
        ({"seed": 2**64}, "seed="),
        ({"snapshots": (0,)}, "snapshots holds 0"),
        ({"snapshots": 1.0}, r"snapshots holds 1\.0"),
        ({"snapshots": ("half",)}, "snapshots holds 'half'"),
        ({"bootstrap": "yes"}, "bootstrap='yes'"),
        ({"sample_weight": -np.ones(64)}, "sample_weight holds -1"),
        ({"sample_weight": np.zeros(64)}, "sample_weight is zero"),
        ({"sample_weight": np.ones(3)}, "sample_weight has shape"),
        ({"device": "tpu"}, "device='tpu'"),
        ({"device": "cuda"}, "device='cuda'"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, pairs(), **options)


def test_a_training_that_diverges_is_reported():
    x, y = pairs()
    with pytest.raises(UncurseError, match=r"replica 0 is (nan|inf) in epoch \d.*learning_rate=1e\+30"):
        train_replicas(linear, (x * 1e20, y), epochs=3, learning_rate=1e30, batch_size=8)


# ---------------------------------------------------------------------- the process


def settings():
    return {
        "stream": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),
        "precision": torch.get_float32_matmul_precision(),
        "exact": torch.are_deterministic_algorithms_enabled(),
        "kind": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


@pytest.mark.parametrize("deterministic", [False, True])
def test_streams_and_settings_of_the_process_are_as_before(deterministic):
    torch.use_deterministic_algorithms(deterministic)
    try:
        before = settings()
        fit = train_replicas(dropping, pairs())
        assert settings() == before
        fit.logits(pairs())
        assert settings() == before
        with pytest.raises(UncurseError, match="one logit per row"):
            train_replicas(lambda: nn.Linear(3, 2), pairs())
        assert settings() == before
    finally:
        torch.use_deterministic_algorithms(False)


HEAVY = ("polars", "matplotlib", "typer", "duckdb", "pandas")


def run_python(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_imports_nothing_heavy():
    names = ("torch", *HEAVY, "sklearn", "rich")
    assert run_python(f"import sys, uncurse.deep; print([m for m in {names} if m in sys.modules])") == "[]"


def test_training_on_read_only_data_where_other_packages_are_missing_warns_of_nothing():
    code = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None
import numpy as np, torch
from uncurse.deep import train_replicas
x, y = np.zeros((40, 2), np.float32), np.arange(40) % 2
for part in x, y:
    part.flags.writeable = False  # which PyTorch would warn of, once in a process
for optimizer in ("sgd", "adam"):
    print(train_replicas(lambda: torch.nn.Linear(2, 1), (x, y), optimizer=optimizer).logits((x,)).shape)
"""
    assert run_python(code).splitlines() == ["(40, 2)"] * 2


def test_without_pytorch_the_error_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
import uncurse.deep
try:
    uncurse.deep.train_replicas
except uncurse.UncurseError as error:
    print(error)
"""
    assert "pip install 'uncurse[deep]'" in run_python(code)
