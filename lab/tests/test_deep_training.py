"""The trainer: which rows a replica sees, what it reports, what it takes and refuses, and what it leaves untouched."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import log_loss

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import uncurse.deep  # noqa: E402
from uncurse.deep import Progress, training  # noqa: E402
from uncurse_lab.deep import DLRM, Clicks, XDeepFM, train_replicas  # noqa: E402

SHAPE = partial(DLRM, embedding=4, bottom=(8,), top=(8, 4))
SIZES = (5, 7, 30)


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def draw(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, rows) for size in SIZES], 1).astype(np.int32)
    dense = rng.random((rows, 3), np.float32)
    label = (rng.random(rows) < 0.2 + 0.5 * (codes[:, 0] > 2)).astype(np.uint8)
    return Clicks(dense, codes, label, SIZES)


def linear():
    return nn.Linear(3, 1)


def pairs(rows=64):
    clicks = draw(rows)
    return clicks.dense, clicks.label


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("options", [{}, {"optimiser": "adam", "rate": 0.01}], ids=["sgd", "adam"])
def test_a_replica_is_trained_on_its_own_rows_and_no_others(options):
    clicks = draw()
    rng = np.random.default_rng(1)
    rows = [rng.permutation(300)[:150] for _ in range(2)]
    options = {"batch_size": 32, "epochs": 2, **options}
    fit = train_replicas(SHAPE, clicks, rows=rows, **options)
    for r, own in enumerate(rows):
        alone = train_replicas(SHAPE, clicks.take(own), n_replicas=1, seed=r, **options)
        np.testing.assert_allclose(fit.logits(clicks)[:, r], alone.logits(clicks)[:, 0], rtol=0, atol=2e-5)
        np.testing.assert_allclose(fit.losses[:, r], alone.losses[:, 0], rtol=0, atol=1e-6)


def test_a_bootstrap_of_some_rows_keeps_the_weights_of_those_rows():
    clicks = draw()
    rows = np.arange(300)
    given = train_replicas(SHAPE, clicks, rows=[rows, rows], bootstrap=True).logits(clicks)
    np.testing.assert_array_equal(given, train_replicas(SHAPE, clicks, bootstrap=True).logits(clicks))
    assert not np.array_equal(given, train_replicas(SHAPE, clicks).logits(clicks))


@pytest.mark.parametrize("kind", [list, np.asarray, torch.as_tensor], ids=["list", "numpy", "torch"])
def test_rows_may_be_lists_arrays_or_tensors_and_repeat(kind):
    fit = train_replicas(SHAPE, draw(), rows=[kind([1, 1, 2]), kind([0, 5, 299])])
    assert fit.losses.shape == (1, 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0, 1]], "rows for 1 replicas, and there are 2; pass one array for each"),
        ([[0, 1], [2]], r"replicas have \[1, 2\] rows; each needs as many as the others, and at least one"),
        ([[], []], r"replicas have \[0\] rows; each needs as many as the others, and at least one"),
        ([[0, 1], [2, 64]], "rows must be 0 to 63; found 2 to 64"),
        ([[-1, 1], [2, 3]], "rows must be 0 to 63; found -1 to 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, pairs(), rows=rows)


# ---------------------------------------------------------------------- progress and losses


def test_progress_is_reported_at_the_end_of_every_epoch_with_rates_and_losses():
    reports: list[Progress] = []
    start = time.perf_counter()
    fit = train_replicas(SHAPE, draw(), n_replicas=3, epochs=4, batch_size=32, progress=reports.append)
    seconds = time.perf_counter() - start
    ends = [report for report in reports if report.step % 10 == 0]
    assert [report.step for report in ends] == [10, 20, 30, 40]
    assert {report.steps for report in reports} == {40}
    assert all(report.rows_per_second > 4 * 300 * 3 / seconds / 10 for report in reports)
    assert sum(300 * 3 / report.rows_per_second for report in ends) < seconds
    if len(reports) == 4:  # a slow machine reports between, too
        np.testing.assert_allclose([report.loss for report in ends], fit.losses.mean(1), rtol=1e-12)
    assert 0.5 < ends[-1].loss < ends[0].loss < 0.9


def test_progress_is_reported_about_once_a_second_and_losses_are_those_since_the_last(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(nn.Linear):
        def forward(self, x):
            now[0] += 0.02
            return super().forward(x)

    reports: list[Progress] = []
    fit = train_replicas(lambda: Slow(3, 1), pairs(200), batch_size=1, progress=reports.append)
    assert [report.step for report in reports] == [64, 128, 192, 200]  # every 32nd step may report
    assert [report.rows_per_second for report in reports] == pytest.approx([2 / 0.02] * 4)
    parts = np.diff([0, *(report.step for report in reports)])
    assert np.average([report.loss for report in reports], weights=parts) == pytest.approx(fit.losses.mean())


def test_losses_are_mean_log_losses_of_the_rows_as_they_came():
    clicks = draw()
    fit = train_replicas(SHAPE, clicks, rate=1e-9, epochs=2, batch_size=32)  # too small a rate to change anything
    z = fit.logits(clicks).astype(float)
    expected = [log_loss(clicks.label, 1 / (1 + np.exp(-z[:, r]))) for r in range(2)]
    assert fit.losses.shape == (2, 2)
    np.testing.assert_allclose(fit.losses, [expected, expected], rtol=0, atol=1e-5)
    assert repr(fit) == f"Replicas(2, log loss {min(expected):.4f} to {max(expected):.4f} in the last epoch)"


def test_a_terminal_shows_a_bar_and_a_file_does_not(monkeypatch, capfd):
    train_replicas(linear, pairs())
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    train_replicas(linear, pairs())
    out, error = capfd.readouterr()
    assert out == ""
    assert "training" in error


# ---------------------------------------------------------------------- data


def test_data_may_be_numpy_on_disk_or_torch(tmp_path):
    clicks = draw()
    expected = train_replicas(SHAPE, clicks).logits(clicks)

    def on_disk(name, values):
        np.save(tmp_path / f"{name}.npy", values)
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    parts = [on_disk(name, getattr(clicks, name)) for name in ("dense", "codes", "label")]
    strided = Clicks(*(np.repeat(part, 2, 0)[::2] for part in parts), SIZES)
    wide = Clicks(clicks.dense.astype(np.float64), clicks.codes.astype(np.int64), clicks.label.astype(np.int64), SIZES)
    for same in (Clicks(*parts, SIZES), clicks.to("cpu"), strided, wide):
        fit = train_replicas(SHAPE, same)
        np.testing.assert_array_equal(fit.logits(same), expected)
        np.testing.assert_array_equal(fit.logits(clicks), expected)


def test_labels_are_not_looked_at_in_scoring():
    clicks = draw()
    fit = train_replicas(SHAPE, clicks)
    expected = fit.logits(clicks)
    for label in (1 - clicks.label, np.full(300, np.nan)):
        np.testing.assert_array_equal(fit.logits(Clicks(clicks.dense, clicks.codes, label, SIZES)), expected)
    np.testing.assert_array_equal(fit.logits((clicks.dense, clicks.codes)), expected)
    assert fit.logits(clicks.take(slice(0, 0))).shape == (0, 2)


def test_rows_are_scored_in_parts_with_the_same_result(monkeypatch):
    clicks = draw()
    fit = train_replicas(SHAPE, clicks)
    expected = fit.logits(clicks)
    monkeypatch.setattr(fit._stack, "scored", 14)
    np.testing.assert_allclose(fit.logits(clicks), expected, rtol=0, atol=1e-6)


def test_training_changes_nothing_that_was_given():
    clicks = draw().to("cpu")
    kept = [part.clone() for part in (clicks.dense, clicks.codes, clicks.label)]
    train_replicas(SHAPE, clicks, bootstrap=True).logits(clicks)
    assert all(torch.equal(a, b) for a, b in zip(kept, (clicks.dense, clicks.codes, clicks.label), strict=True))


@pytest.mark.parametrize("rows", [1, 31, 32, 33])
def test_a_batch_may_be_as_large_as_the_data_or_larger(rows):
    clicks = draw(rows)
    larger = train_replicas(SHAPE, clicks, batch_size=32, epochs=2)
    assert larger.losses.shape == (2, 2)
    if rows < 33:
        equal = train_replicas(SHAPE, clicks, batch_size=rows, epochs=2)
        np.testing.assert_allclose(larger.logits(clicks), equal.logits(clicks), rtol=0, atol=1e-6)


def test_half_precision_is_near_single_precision():
    clicks = draw()
    for shape in (SHAPE, partial(XDeepFM, hidden=(8,), interactions=(6, 4))):
        exact, rough = (train_replicas(shape, clicks, precision=p).logits(clicks) for p in ("float32", "bf16"))
        assert 0 < np.abs(exact - rough).max() < 0.03


X, Y = torch.zeros(8, 3), torch.tensor([0.0, 1.0] * 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:7]), "input 0 has 8 rows, the labels 7; pass one of each for a row"),
        ((X, X[:5], Y), "input 1 has 5 rows, the labels 8; pass one of each for a row"),
        ((X, 2 * Y), "labels must be 0 or 1; found 2"),
        ((X, -Y), "labels must be 0 or 1; found -1"),
        ((X, Y / 4), r"labels must be 0 or 1; found 0\.25"),
        ((X, Y * np.nan), "labels must be 0 or 1; found nan"),
        ((X[:0], Y[:0]), "the data set has no rows; pass some to train on"),
        ((Y,), r"the data set has 1 part; pass \(inputs, …, labels\)"),
        (X, r"the data set has 1 part; pass \(inputs, …, labels\)"),
        ({"x": X, "y": Y}, r"a data set is \(inputs, …, labels\), not dict"),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused(data, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, data)


BEYOND = [(0, 5), (1, -1), (1, 7), (2, 30)]  # the next category's rows, the last one's, the next replica's


@pytest.mark.parametrize(("place", "code"), BEYOND)
def test_codes_outside_of_their_category_are_not_trained_on(place, code):
    clicks = draw()
    clicks.codes[3, place] = code
    message = rf"field {place} has codes from -?\d+ to \d+, and its size is {SIZES[place]}; pass codes"
    with pytest.raises(UncurseError, match=message):
        train_replicas(SHAPE, clicks)


def test_a_training_that_diverges_says_so():
    x, y = pairs()
    message = r"the log loss of replica 0 is (nan|inf) in epoch \d: the training has diverged at rate=1e\+30; lower it"
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, (x * 1e20, y), epochs=3, rate=1e30, batch_size=8)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_numbers_are_named_before_training_and_before_scoring(value):
    x, y = pairs()
    fit = train_replicas(linear, (x, y))
    x = x.copy()
    x[7, 1] = value
    message = rf"input 0 column 1 holds {value} in row 7 \(1 such in all\); fill missing values first"
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, (x, y))
    with pytest.raises(UncurseError, match=message):
        fit.logits((x,))


def test_rows_may_be_one_array_for_all():
    from uncurse.deep.inputs import check_rows

    rows = np.arange(5) + 10 * np.arange(4)[:, None]
    for values in (rows, rows.astype(np.int32), torch.from_numpy(rows)):
        assert check_rows(values, 4, 100, torch.device("cpu")).tolist() == rows.tolist()


def test_text_is_no_input():
    _, y = pairs()
    with pytest.raises(UncurseError, match=r"values of type <U1 \('a', …\) are no numbers; pass codes"):
        train_replicas(linear, (np.full(len(y), "a"), y))


@pytest.mark.parametrize(
    ("device", "message"),
    [("tpu", "device='tpu' is unknown"), ("cuda", "device='cuda', and PyTorch finds no GPU here")],
)
def test_a_device_that_is_not_there_is_named(device, message):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, pairs(), device=device)


def test_a_card_that_is_too_small_is_named(monkeypatch):
    def too_much(*_):
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(training, "stack_modules", too_much)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a card")
    message = r"80 replicas do not fit into the memory of a card; train fewer at a time \(seed= goes on where the last"
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, pairs(), n_replicas=80)


def test_shapes_of_ours_are_trained_on_clicks():
    clicks = draw()
    with pytest.raises(UncurseError, match="DLRM is trained on Clicks, not on tuple"):
        train_replicas(SHAPE, (clicks.dense, clicks.codes, clicks.label))


def test_data_of_too_many_or_too_few_inputs_are_not_scored():
    fit = train_replicas(SHAPE, draw())
    clicks = draw()
    for given in ((clicks.dense,), (clicks.dense, clicks.codes, clicks.label, clicks.label)):
        message = rf"the network takes 2 inputs and the data set has {len(given)}; labels may follow"
        with pytest.raises(UncurseError, match=message):
            fit.logits(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_replicas": 0}, "n_replicas=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"batch_size": 2.5}, r"batch_size=2\.5"),
        ({"optimiser": "lion"}, "optimiser='lion'"),
        ({"precision": "fp8"}, "precision='fp8'"),
        ({"rate": 0}, r"rate=0; pass a learning rate above 0, such as 0\.1"),
        ({"rate": -1.0}, r"rate=-1\.0; pass a learning rate"),
        ({"rate": float("inf")}, "rate=inf; pass a learning rate"),
        ({"rate": float("nan")}, "rate=nan; pass a learning rate"),
    ],
)
def test_plans_that_cannot_be_are_refused(options, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(linear, pairs(), **options)


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
        "filled": torch.utils.deterministic.fill_uninitialized_memory,
    }


def dropping():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))


@pytest.mark.parametrize(
    ("deterministic", "precision"), [(False, "highest"), (True, "high"), (False, "medium")], ids=str
)
def test_streams_and_settings_of_the_process_are_as_before(deterministic, precision):
    kept = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    torch.use_deterministic_algorithms(not deterministic)
    before = settings()
    clicks = draw(100)
    try:
        for model, data in ((SHAPE, clicks), (dropping, pairs())):
            fit = train_replicas(model, data, deterministic=deterministic)
            assert settings() == before
            fit.logits(data)
            assert settings() == before
        with pytest.raises(UncurseError, match="one logit per row"):
            train_replicas(lambda: nn.Linear(3, 2), pairs(), deterministic=deterministic)
        assert settings() == before
    finally:
        torch.set_float32_matmul_precision(kept)
        torch.use_deterministic_algorithms(False)


def test_the_global_stream_does_not_matter():
    torch.manual_seed(1)
    first = train_replicas(dropping, pairs()).logits(pairs())
    torch.manual_seed(2)
    np.testing.assert_array_equal(first, train_replicas(dropping, pairs()).logits(pairs()))


def test_the_default_kind_of_the_process_does_not_matter_for_shapes_of_ours():
    clicks = draw()
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        for options in ({}, {"optimiser": "adam"}):
            assert train_replicas(SHAPE, clicks, **options).logits(clicks).dtype == np.float32
            assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(kind)


HEAVY = ("polars", "matplotlib", "vl_convert", "typer", "duckdb", "pandas")


def run_python(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_imports_nothing_heavy():
    names = ("torch", *HEAVY, "sklearn", "rich")
    assert run_python(f"import sys, uncurse.deep; print([m for m in {names} if m in sys.modules])") == "[]"


def test_training_in_a_process_of_its_own():
    """Where the packages of the reports are missing, on read-only data, and with precisions set the newer way."""
    code = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None
import numpy as np, torch
torch.set_num_threads(1)
from functools import partial
from uncurse_lab.deep import DLRM, Clicks, XDeepFM, train_replicas
parts = np.zeros((40, 2), np.float32), np.zeros((40, 1), np.int32), np.arange(40) % 2
for part in parts:
    part.flags.writeable = False  # which PyTorch would warn of, once in a process
clicks = Clicks(*parts, (3,))
for model in (partial(DLRM, embedding=4, bottom=(4,), top=(4,)), partial(XDeepFM, hidden=(4,), interactions=(4,))):
    assert train_replicas(model, clicks, optimiser="adam").logits(clicks).shape == (40, 2)
print(train_replicas(lambda: torch.nn.Linear(2, 1), (clicks.dense, clicks.label)).logits((clicks.dense,)).shape)
parts = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
before = [part.fp32_precision for part in parts]
train_replicas(lambda: torch.nn.Linear(3, 1), (torch.zeros(8, 3), torch.zeros(8)))
print(before == [part.fp32_precision for part in parts])
torch.backends.cuda.matmul.fp32_precision = "tf32"
train_replicas(lambda: torch.nn.Linear(3, 1), (torch.zeros(8, 3), torch.zeros(8)))
print(torch.backends.cuda.matmul.fp32_precision)
"""
    assert run_python(code).splitlines() == ["(40, 2)", "True", "tf32"]


def test_without_pytorch_the_error_says_how_to_get_it():
    code = """
import sys
sys.modules["torch"] = None
import uncurse.deep, uncurse_lab.deep
assert uncurse_lab.deep.Clicks
for package, name in ((uncurse_lab.deep, "DLRM"), (uncurse_lab.deep, "XDeepFM"), (uncurse.deep, "train_replicas")):
    try:
        getattr(package, name)
    except ImportError as error:
        print(error)
"""
    lines = run_python(code).splitlines()
    names = ("DLRM", "XDeepFM", "train_replicas")
    assert [line.split()[0].split(".")[-1] for line in lines] == list(names)
    assert all("pip install 'uncurse[deep]'" in line for line in lines)


def test_every_public_name_is_there_and_an_unknown_one_is_not():
    for name in uncurse.deep.__all__:
        assert getattr(uncurse.deep, name) is not None
    with pytest.raises(AttributeError, match=r"module 'uncurse\.deep' has no attribute 'Dlrm'"):
        uncurse.deep.Dlrm


# ---------------------------------------------------------------------- what users stumble on


def test_deterministic_with_warnings_only_stays_so():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        train_replicas(linear, pairs())
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("place", "code"), BEYOND)
def test_codes_outside_of_their_category_are_not_scored(place, code):
    clicks = draw()
    fit = train_replicas(SHAPE, clicks)
    clicks.codes[3, place] = code
    with pytest.raises(UncurseError, match=rf"field {place} has codes"):
        fit.logits(clicks)


@pytest.mark.parametrize("shape", [SHAPE, partial(XDeepFM, hidden=(4,), interactions=(4,))], ids=["dlrm", "xdeepfm"])
@pytest.mark.parametrize("part", ["codes", "dense", "rows"])
def test_data_of_other_widths_or_lengths_are_not_scored(shape, part):
    clicks = draw()
    fit = train_replicas(shape, clicks)
    dense = clicks.dense[:, :1] if part == "dense" else clicks.dense[:9] if part == "rows" else clicks.dense
    codes = clicks.codes[:, :1] if part == "codes" else clicks.codes
    message = r"input 1 has \d+ rows, input 0 9" if part == "rows" else r"rows of shape \(1,\), in training they were"
    with pytest.raises(UncurseError, match=message):
        fit.logits((dense, codes))


def test_codes_that_are_no_whole_numbers_are_refused():
    clicks = draw()
    with pytest.raises(UncurseError, match=r"codes are torch\.float32; pass int32 or int64"):
        train_replicas(SHAPE, Clicks(clicks.dense, clicks.codes.astype(np.float32), clicks.label, clicks.sizes))


def test_masks_for_rows_are_taken_as_masks():
    half = np.arange(64) < 32
    fit = train_replicas(linear, pairs(), rows=[half, half])
    expected = train_replicas(linear, pairs(), rows=[np.flatnonzero(half)] * 2)
    np.testing.assert_array_equal(fit.logits(pairs()), expected.logits(pairs()))


@pytest.mark.parametrize("rows", [[[2**32], [1]], [[0.5], [1.5]]], ids=["overflow", "fractions"])
def test_rows_that_are_no_rows_are_refused(rows):
    with pytest.raises(UncurseError, match=r"rows must be 0 to 63|rows of shape \(1,\) and type torch\.float"):
        train_replicas(linear, pairs(), rows=rows)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", 2**64])
def test_seeds_that_cannot_be_are_refused(seed):
    with pytest.raises(UncurseError, match="seed"):
        train_replicas(SHAPE, draw(), seed=seed)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (linear, (), "the data set has 0 parts"),
        (linear, (torch.tensor(1.0), torch.ones(1)), "input 0 is a single number"),
        (SHAPE, Clicks(np.zeros((4, 2), np.float32), np.zeros((4, 0), np.int32), np.zeros(4), ()), "DLRM needs fields"),
        (
            XDeepFM,
            Clicks(np.zeros((4, 2), np.float32), np.zeros((4, 0), np.int32), np.zeros(4), ()),
            "XDeepFM needs fields",
        ),
    ],
    ids=["empty", "scalar", "dlrm of numbers only", "xdeepfm of numbers only"],
)
def test_data_that_cannot_be_are_refused(model, data, message):
    with pytest.raises(UncurseError, match=message):
        train_replicas(model, data)


@pytest.mark.parametrize("interactions", [(), (5, 4)])
def test_interactions_that_cannot_be_halved_are_refused(interactions):
    with pytest.raises(UncurseError, match=r"interactions=.*pass at least one width, even where another layer follows"):
        XDeepFM((3, 4), interactions=interactions)


def test_a_class_is_made_to_fit_the_data():
    (a,), (b,) = (
        train_replicas(model, draw(), n_replicas=1).losses
        for model in (DLRM, lambda: DLRM(draw().sizes, draw().dense.shape[1]))
    )
    assert a == b


def test_training_works_inside_no_grad():
    with torch.no_grad():
        inside = train_replicas(linear, pairs()).losses
    np.testing.assert_array_equal(inside, train_replicas(linear, pairs()).losses)


def test_lists_are_scored_as_they_are_trained_on():
    x, y = pairs()
    fit = train_replicas(linear, (x.tolist(), y.tolist()))
    np.testing.assert_allclose(fit.logits((x.tolist(),)), fit.logits((x,)), atol=1e-6)
