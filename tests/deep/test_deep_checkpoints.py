"""Checkpoints: a training that was killed ends where it would have ended, to the last bit."""

from __future__ import annotations

import os

import numpy as np
import pytest

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

from uncurse.deep import train_replicas, training  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Stopped(Exception):
    """As a kill, without a process."""


@pytest.fixture(autouse=True)
def every_step(monkeypatch):
    """Checkpoints are written after every step, instead of every minute."""
    monkeypatch.setattr(training, "_CHECKPOINT_SECONDS", 0.0)


def data(rows=150):
    x = np.random.default_rng(0).random((rows, 3), np.float32)
    return x, (x[:, 0] > 0.5).astype(np.uint8)


class Lively(nn.Sequential):
    """A network with statistics and random numbers, which stops the training at a step."""

    def __init__(self, width=8, stop=None):
        super().__init__(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Dropout(0.4), nn.ReLU(), nn.Linear(width, 1))
        self.left = stop

    def forward(self, x):
        if self.left is not None and self.training:
            self.left -= 1
            if self.left < 0:
                raise Stopped
        return super().forward(x)


def step_of(path):
    with safe_open(path, "pt") as file:
        return int(file.metadata()["step"])


@pytest.mark.parametrize(
    ("options", "step"),
    [
        *(({}, step) for step in (0, 2, 10, 27)),
        ({"optimizer": "adam", "learning_rate": 0.01}, 13),
        ({"bootstrap": True}, 13),
        ({"sample_weight": np.arange(150) % 3}, 13),
    ],
)
def test_a_training_stopped_anywhere_ends_in_the_same_bits(options, step, tmp_path):
    options = {"batch_size": 16, "epochs": 3, **options}  # 10 steps an epoch
    whole = train_replicas(Lively, data(), **options)
    with pytest.raises(Stopped):
        train_replicas(lambda: Lively(stop=step), data(), checkpoint=tmp_path / "c", **options)
    assert (tmp_path / "c").exists() == (step > 0)  # none yet: it begins anew
    resumed = train_replicas(Lively, data(), checkpoint=tmp_path / "c", **options)
    assert resumed.began == step
    np.testing.assert_array_equal(resumed.logits(data()), whole.logits(data()))
    np.testing.assert_array_equal(resumed.losses, whole.losses)


def test_a_training_stopped_from_its_progress_goes_on_after_the_epoch(tmp_path):
    reports = []

    def stop(progress):
        reports.append(progress)
        raise Stopped

    options = {"epochs": 3, "batch_size": 10, "checkpoint": tmp_path / "c"}
    with pytest.raises(Stopped):
        train_replicas(Lively, data(), progress=stop, **options)
    train_replicas(Lively, data(), progress=reports.append, **options)
    assert [report.step for report in reports] == [15, 30, 45]


def test_a_finished_training_is_read_back_without_a_step(tmp_path):
    path = os.path.join(tmp_path, "c")
    first = train_replicas(Lively, data(), checkpoint=path)
    before = os.stat(path)
    again = train_replicas(lambda: Lively(stop=0), data(), checkpoint=path)
    np.testing.assert_array_equal(again.logits(data()), first.logits(data()))
    np.testing.assert_array_equal(again.losses, first.losses)
    after = os.stat(path)
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_checkpoints_are_not_written_at_every_step(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_CHECKPOINT_SECONDS", 60.0)
    with pytest.raises(Stopped):
        train_replicas(lambda: Lively(stop=20), data(), epochs=20, checkpoint=tmp_path / "c")
    assert list(tmp_path.iterdir()) == []
    train_replicas(Lively, data(), checkpoint=tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]  # and nothing beside it


class Names(nn.Module):
    """Parameters with names that the trainer uses itself."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.zeros(3)))

    def forward(self, x):
        return x @ getattr(self, self.name)


@pytest.mark.parametrize("name", ["loss", "losses", "about", "__metadata__"])
def test_parameters_may_have_any_name(name, tmp_path):
    first, again = (train_replicas(lambda: Names(name), data(), checkpoint=tmp_path / "c", epochs=2) for _ in range(2))
    np.testing.assert_array_equal(first.logits(data()), again.logits(data()))


# ---------------------------------------------------------------------- what is refused

x, y = data()
OTHER = {
    "seed": ({"seed": 1}, "seed was 0, here 1"),
    "snapshots": ({"snapshots": 0.5}, "snapshots was "),
    "model": ({"model": lambda: Lively(9)}, "model was "),
    "labels": ({"dataset": (x, 1 - y)}, "data was "),
    "inputs": ({"dataset": (x[::-1].copy(), y)}, "data was "),
    "weights": ({"sample_weight": 1 + y}, "data was "),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The checkpoint of a training of one epoch."""
    path = tmp_path_factory.mktemp("finished") / "c"
    train_replicas(Lively, data(), checkpoint=path)
    return path.read_bytes()


@pytest.mark.parametrize("what", OTHER)
def test_a_checkpoint_of_another_training_is_refused(what, finished, tmp_path):
    options, message = OTHER[what]
    (tmp_path / "c").write_bytes(finished)
    with pytest.raises(UncurseError, match=rf"(?s)c is a checkpoint of another training \({message}.*; remove it"):
        train_replicas(**{"model": Lively, "dataset": data(), "checkpoint": tmp_path / "c", **options})
    assert (tmp_path / "c").read_bytes() == finished


def rewrite(path, **changes):
    """Write the file with other fields in its head."""
    with safe_open(path, "pt") as file:
        head = file.metadata()
    save_file(load_file(path), path, {**head, **changes})


DAMAGE = {
    "half": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "nothing": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("loss,step\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "no head": lambda path: save_file({"x": torch.zeros(3)}, path),
    "another schema": lambda path: rewrite(path, schema_version="99"),
    "another kind": lambda path: rewrite(path, kind="map"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_file_that_is_not_a_checkpoint_is_refused(how, finished, tmp_path):
    (tmp_path / "c").write_bytes(finished)
    DAMAGE[how](tmp_path / "c")
    with pytest.raises(UncurseError, match=r"c is not a checkpoint.*; remove it, or name another file"):
        train_replicas(Lively, data(), checkpoint=tmp_path / "c")


def test_a_checkpoint_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(UncurseError, match=r"cannot write .*nowhere/c"):
        train_replicas(Lively, data(), checkpoint=tmp_path / "nowhere" / "c")
    assert list(tmp_path.iterdir()) == []
