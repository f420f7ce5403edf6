"""Checkpoints: a training that was killed ends where it would have ended, to the last bit."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from functools import partial

import numpy as np
import pytest

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from uncurse.deep import checkpoints, run, train_replicas  # noqa: E402
from uncurse_lab.deep import DLRM, Clicks, XDeepFM  # noqa: E402

CLICKS = """
import numpy as np
from functools import partial
from uncurse_lab.deep import DLRM, Clicks, train_replicas

def draw(rows=2100):
    rng = np.random.default_rng(0)
    sizes = (5, 7, 30)
    codes = np.stack([rng.integers(0, size, rows) for size in sizes], 1).astype(np.int32)
    dense = rng.random((rows, 3), np.float32)
    label = (rng.random(rows) < 0.2 + 0.5 * (codes[:, 0] > 2)).astype(np.uint8)
    return Clicks(dense, codes, label, sizes)

SHAPE = partial(DLRM, embedding=4, bottom=(8,), top=(8, 4))
OPTIONS = dict(n_replicas=2, epochs=2, batch_size=8, deterministic=True)  # 263 steps an epoch, the last of 4 rows
"""
KILLED = (
    CLICKS
    + """
import sys, torch
torch.set_num_threads(1)
train_replicas(SHAPE, draw(), checkpoint=sys.argv[1], checkpoint_every=int(sys.argv[2]), **OPTIONS)
"""
)
made: dict = {}
exec(CLICKS, made)
draw, SHAPE, OPTIONS = made["draw"], made["SHAPE"], made["OPTIONS"]


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def step_of(path):
    with np.load(path, allow_pickle=False) as kept:
        return json.loads(bytes(kept["about"]).decode())["step"]


def kill_after(path, every, step):
    """Start the training, or go on with it, and kill it once its file is of this step or a later one."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), str(every)])
    seen, until = set(), time.monotonic() + 60
    try:
        while time.monotonic() < until and process.poll() is None:
            if path.exists():
                seen.add(step_of(path))
                if len(seen) > 1 and max(seen) >= step:
                    break
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return step_of(path)


def test_a_training_killed_and_stopped_ends_in_the_same_bits(tmp_path, monkeypatch):
    path = tmp_path / "training.npz"
    whole = train_replicas(SHAPE, draw(), **OPTIONS)
    killed = kill_after(path, 7, 20)
    with monkeypatch.context() as patch:  # in the second epoch
        stop_at(patch, 301 - killed)
        with pytest.raises(Stopped):
            train_replicas(SHAPE, draw(), checkpoint=path, checkpoint_every=7, **OPTIONS)
    assert 20 <= killed < 263 < step_of(path) <= 300
    assert killed % 7 == step_of(path) % 7 == 0
    resumed = train_replicas(SHAPE, draw(), checkpoint=path, **OPTIONS)
    assert step_of(path) == 526
    np.testing.assert_array_equal(resumed.logits(draw()), whole.logits(draw()))
    np.testing.assert_array_equal(resumed.losses, whole.losses)
    for name, w in whole.module().state_dict().items():
        assert torch.equal(w, resumed.module().state_dict()[name]), name


class Stopped(Exception):
    """As a kill, without a process."""


def stop_at(monkeypatch, step):
    """The next training ends in this step."""
    taken, original = [0], run.Run.step

    def limited(self, index):
        taken[0] += 1
        if taken[0] == step:
            raise Stopped
        original(self, index)

    monkeypatch.setattr(run.Run, "step", limited)


def lively():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 1))


def module_data():
    clicks = draw(150)
    return clicks.dense, clicks.label


ALL = {
    "dlrm, sgd": (SHAPE, lambda: draw(150), {}),
    "dlrm, adam": (SHAPE, lambda: draw(150), {"optimiser": "adam", "rate": 0.01}),
    "xdeepfm, adam": (
        partial(XDeepFM, hidden=(8,), interactions=(6, 4), deviation=0.1),
        lambda: draw(150),
        {"optimiser": "adam", "rate": 0.01},
    ),
    "xdeepfm, sgd": (partial(XDeepFM, hidden=(8,), interactions=(6, 4)), lambda: draw(150), {}),
    "module, sgd": (lively, module_data, {}),
    "module, adam": (lively, module_data, {"optimiser": "adam", "rate": 0.01}),
    "bootstrap": (SHAPE, lambda: draw(150), {"bootstrap": True}),
    "rows": (SHAPE, lambda: draw(150), {"rows": [np.arange(100), np.arange(50, 150)]}),
}


@pytest.mark.parametrize("case", ALL)
def test_a_training_stopped_anywhere_ends_in_the_same_bits(case, tmp_path, monkeypatch):
    model, data, options = ALL[case]
    options = {"batch_size": 16, "epochs": 3, "deterministic": True, **options}  # 10 steps an epoch, 7 with rows=
    whole = train_replicas(model, data(), **options)
    for step in (2, 10, 13, 18 if case == "rows" else 27):
        path = tmp_path / f"{step}"
        with monkeypatch.context() as patch:
            stop_at(patch, step)
            with pytest.raises(Stopped):
                train_replicas(model, data(), checkpoint=path, checkpoint_every=4, **options)
        assert path.exists() == (step > 4)  # none yet: it begins anew
        resumed = train_replicas(model, data(), checkpoint=path, checkpoint_every=4, **options)
        np.testing.assert_array_equal(resumed.logits(data()), whole.logits(data()), err_msg=f"step {step}")
        np.testing.assert_array_equal(resumed.losses, whole.losses, err_msg=f"step {step}")


def test_a_training_stopped_from_its_progress_goes_on_after_the_epoch(tmp_path):
    reports = []

    def stop(progress):
        reports.append(progress)
        raise Stopped

    options = {"epochs": 3, "batch_size": 10, "checkpoint": tmp_path / "c", "checkpoint_every": 15}
    with pytest.raises(Stopped):
        train_replicas(SHAPE, draw(150), progress=stop, **options)
    assert [report.step for report in reports] == [15]
    assert step_of(tmp_path / "c") == 15
    train_replicas(SHAPE, draw(150), progress=reports.append, **options)
    assert [report.step for report in reports] == [15, 30, 45]


@pytest.mark.parametrize("case", ["dlrm, sgd", "module, adam"])
def test_a_finished_training_is_read_back_without_a_step(case, tmp_path, monkeypatch):
    model, data, options = ALL[case]
    options = {"epochs": 2, "checkpoint": tmp_path / "c", **options}
    first = train_replicas(model, data(), **options)
    before = (tmp_path / "c").stat()
    stop_at(monkeypatch, 1)
    again = train_replicas(model, data(), **options)
    np.testing.assert_array_equal(again.logits(data()), first.logits(data()))
    np.testing.assert_array_equal(again.losses, first.losses)
    after = (tmp_path / "c").stat()  # all but the time of the last reading, which may move
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_a_checkpoint_is_plain_arrays_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "c.npz"
    train_replicas(SHAPE, draw(150), checkpoint=path, checkpoint_every=1, optimiser="adam")
    assert list(tmp_path.iterdir()) == [path]
    with np.load(path, allow_pickle=False) as kept:
        names = set(kept.files)
        assert all(kept[name].dtype != object for name in names)
        head = json.loads(bytes(kept["about"]).decode())
    assert head["kind"] == "checkpoint"
    assert head["schema_version"] == 2
    assert head["about"]["model"] == "DLRM(3 fields, 42 codes, 3 numbers, embedding=4, bottom=(8,), top=(8, 4))"
    assert {
        "models/table",
        "models/top.0.weight",
        "adam.rows.mean",
        "adam.top.0.weight.exp_avg_sq",
        "run/losses",
    } <= names


OTHER = {
    "seed": ({"seed": 1}, r"seed was 0, here 1"),
    "rate": ({"rate": 0.2}, r"rate was 0\.1, here 0\.2"),
    "epochs": ({"epochs": 2}, "epochs was 1, here 2"),
    "replicas": ({"n_replicas": 3}, "n_replicas was 2, here 3"),
    "batch": ({"batch_size": 64}, "batch_size was 128, here 64"),
    "optimiser": ({"optimiser": "adam"}, "optimiser was 'sgd', here 'adam'"),
    "bootstrap": ({"bootstrap": True}, "bootstrap was False, here True"),
    "rows": ({"rows": [np.arange(150)] * 2}, "data was "),
    "model": (
        {"model": partial(DLRM, embedding=4, bottom=(8,), top=(8, 5))},
        r"model was 'DLRM\(.*top=\(8, 4\)\)', here 'DLRM\(.*top=\(8, 5\)\)'",
    ),
    "kind": ({"model": XDeepFM}, r"model was 'DLRM\(.*\)', here 'XDeepFM\(.*"),
    "data": ({"dataset": draw(151)}, "data was "),
    "labels": ({"dataset": Clicks(draw(150).dense, draw(150).codes, 1 - draw(150).label, (5, 7, 30))}, "data was "),
    "codes": ({"dataset": Clicks(draw(150).dense, draw(150).codes[::-1], draw(150).label, (5, 7, 30))}, "data was "),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The checkpoint of a training of one epoch."""
    path = tmp_path_factory.mktemp("finished") / "c"
    train_replicas(SHAPE, draw(150), checkpoint=path)
    return path.read_bytes()


@pytest.mark.parametrize("what", OTHER)
def test_a_checkpoint_of_another_training_is_refused(what, finished, tmp_path):
    options, message = OTHER[what]
    (tmp_path / "c").write_bytes(finished)
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(UncurseError, match=rf"c is a checkpoint of another training \({message}.*\); remove it, or"):
        train_replicas(**{"model": SHAPE, "dataset": draw(150), "checkpoint": tmp_path / "c", **options})
    assert (tmp_path / "c").read_bytes() == before


def rewritten(path, **changes):
    """The file with other fields in its head."""
    with np.load(path, allow_pickle=False) as kept:
        arrays = dict(kept)
    head = json.loads(bytes(arrays["about"]).decode()) | changes
    arrays["about"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def test_a_checkpoint_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "c"
    train_replicas(SHAPE, draw(150), checkpoint=path)
    rewritten(path, step=1)
    train_replicas(SHAPE, draw(150), checkpoint=path)  # the rewriting itself does no harm
    rewritten(path, schema_version=3)
    with pytest.raises(
        UncurseError,
        match="c is a checkpoint of schema_version 3 and this release reads checkpoints of 2; remove it, or name anot",
    ):
        train_replicas(SHAPE, draw(150), checkpoint=path)


def damage(path, how):
    whole = path.read_bytes()
    if how == "half":
        path.write_bytes(whole[: len(whole) // 2])
    elif how == "nothing":
        path.write_bytes(b"")
    elif how == "a bit":
        place = whole.index(b"table.npy") + 400
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    elif how == "text":
        path.write_text("loss,step\n")
    elif how == "a pickle":
        np.save(path.with_suffix(".npy"), np.array([{}], dtype=object), allow_pickle=True)
        path.with_suffix(".npy").replace(path)
    elif how == "other arrays":
        stream = io.BytesIO()
        np.savez(stream, x=np.zeros(3))
        path.write_bytes(stream.getvalue())
    elif how == "an array less":
        with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                if name != "models/table.npy":
                    new.writestr(name, old.read(name))
    elif how == "a folder":
        path.unlink()
        path.mkdir()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # see the test below
@pytest.mark.parametrize(
    "how", ["half", "nothing", "a bit", "text", "a pickle", "other arrays", "an array less", "a folder"]
)
def test_a_file_that_is_no_checkpoint_is_refused(how, finished, tmp_path):
    (tmp_path / "c").write_bytes(finished)
    damage(tmp_path / "c", how)
    with pytest.raises(UncurseError, match=r"c is no checkpoint \(.*\); remove it, or name another file"):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c")


def test_a_checkpoint_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(UncurseError, match=r"cannot write .*nowhere/c: No such file or directory"):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "nowhere" / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_be_text(tmp_path):
    train_replicas(SHAPE, draw(150), checkpoint=os.path.join(tmp_path, "c"))
    assert step_of(tmp_path / "c") == 2


# ---------------------------------------------------------------------- what users stumble on


def test_a_file_that_is_refused_is_closed(finished, tmp_path):
    (tmp_path / "c").write_bytes(finished)
    damage(tmp_path / "c", "half")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(UncurseError, match="no checkpoint"):
            train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c")
        gc.collect()
    assert not [str(w.message) for w in caught if issubclass(w.category, ResourceWarning)]


def test_a_single_array_is_no_checkpoint(tmp_path):
    np.save(tmp_path / "c.npy", np.zeros(3))
    with pytest.raises(UncurseError, match="no checkpoint"):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c.npy")


def test_a_head_that_is_a_list_is_no_checkpoint(tmp_path):
    with (tmp_path / "c").open("wb") as stream:
        np.savez(stream, about=np.frombuffer(b"[]", np.uint8))
    with pytest.raises(UncurseError, match="no checkpoint"):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c")


def test_a_checkpoint_of_another_module_of_the_same_shapes_is_refused(tmp_path):
    first, second = (
        lambda act=act: nn.Sequential(nn.Linear(3, 4), act(), nn.Linear(4, 1)) for act in (nn.ReLU, nn.Tanh)
    )
    train_replicas(first, module_data(), checkpoint=tmp_path / "c")
    with pytest.raises(UncurseError, match="another training"):
        train_replicas(second, module_data(), checkpoint=tmp_path / "c")


class Names(nn.Module):
    """Parameters with names that the trainer uses itself."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.zeros(3)))

    def forward(self, x):
        return x @ getattr(self, self.name)


@pytest.mark.parametrize("name", ["loss", "losses", "about"])
def test_parameters_may_have_any_name(name, tmp_path):
    options = {"checkpoint": tmp_path / "c", "epochs": 2}
    first = train_replicas(lambda: Names(name), module_data(), **options)
    again = train_replicas(lambda: Names(name), module_data(), **options)
    np.testing.assert_array_equal(first.logits(module_data()), again.logits(module_data()))


def test_a_checkpoint_of_the_same_rows_in_another_order_is_refused(tmp_path):
    rows = np.arange(100)
    train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", rows=[rows, rows])
    with pytest.raises(UncurseError, match="another training"):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", rows=[rows[::-1].copy(), rows])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_replicas", np.int64(2)),
        ("rate", np.float32(0.1)),
        ("final_rate", np.float32(0.01)),
        ("bootstrap", np.bool_(True)),
        ("deterministic", np.bool_(True)),
    ],
)
def test_a_plan_may_have_numpys_numbers(name, value, tmp_path):
    fit = train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", **{name: value})
    assert getattr(fit.plan, name) == value
    again = train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", **{name: value.item()})
    assert again.began > 0  # the same plan in Python's own numbers


def test_a_checkpoint_every_zero_steps_is_refused(tmp_path):
    with pytest.raises(UncurseError, match="checkpoint_every"):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", checkpoint_every=0)


def test_the_rate_after_going_on_is_of_the_rows_trained_since(tmp_path, monkeypatch):
    options = {"batch_size": 1, "checkpoint": tmp_path / "c", "checkpoint_every": 140, "n_replicas": 1}
    with monkeypatch.context() as patch:
        stop_at(patch, 141)
        with pytest.raises(Stopped):
            train_replicas(SHAPE, draw(150), **options)
    reports, start = [], time.perf_counter()
    train_replicas(SHAPE, draw(150), progress=reports.append, **options)
    most = 10 / (time.perf_counter() - start)  # ten steps, and a little around them
    assert reports[-1].rows_per_second < 6 * most


def test_without_a_number_of_steps_checkpoints_are_written_by_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_MINUTE", 0.0)

    def stop(progress):
        raise KeyboardInterrupt

    options = {"epochs": 2, "deterministic": True, "batch_size": 25}
    with pytest.raises(KeyboardInterrupt):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", progress=stop, **options)
    assert (tmp_path / "c").exists()
    fit = train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", **options)
    assert 0 < fit.began <= 6
    whole = train_replicas(SHAPE, draw(150), **options)
    assert whole.began == 0
    np.testing.assert_array_equal(fit.logits(draw(150)), whole.logits(draw(150)))


def test_a_resumed_training_has_the_snapshots_of_one_that_was_not_killed(tmp_path):
    def stop(progress):
        if progress.step >= 6:
            raise KeyboardInterrupt

    options = {"epochs": 2, "deterministic": True, "batch_size": 25, "snapshots": (0.25, 0.75)}
    with pytest.raises(KeyboardInterrupt):
        train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", checkpoint_every=1, progress=stop, **options)
    fit = train_replicas(SHAPE, draw(150), checkpoint=tmp_path / "c", **options)
    assert 3 < fit.began < 9  # the first snapshot, of step 3, came before, the second after
    whole = train_replicas(SHAPE, draw(150), **options)
    for share in (0.25, 0.75):
        np.testing.assert_array_equal(fit.logits(draw(150), snapshot=share), whole.logits(draw(150), snapshot=share))
