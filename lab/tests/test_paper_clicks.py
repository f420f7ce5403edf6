"""The paper's experiments on click logs from rows to tables: worlds, and the real samples where they are."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the deep experiments need PyTorch")
import torch

from uncurse import UncurseError
from uncurse.links import logistic
from uncurse_lab import ClickWorld, render
from uncurse_lab.deep import Clicks
from uncurse_lab.logs import count_lines
from uncurse_lab.paper import clicks as clicks_module
from uncurse_lab.paper import rows as parts
from uncurse_lab.paper.clicks import run, train
from uncurse_lab.paper.rows import SETTINGS
from uncurse_lab.paper.text import parts as parts_of

SAMPLES = Path(__file__).parents[3] / "shared" / "data"


pytestmark = pytest.mark.usefixtures("one_torch_thread", "one_process")


@pytest.mark.filterwarnings("ignore:.*were not above", "ignore:left out")
@pytest.mark.parametrize(("name", "rows", "models"), [("criteo", 4_000, 3), ("avazu", 2_400, 2)])
def test_a_small_world_goes_from_rows_to_every_table(name, rows, models, monkeypatch):
    few = partial(clicks_module.measure, alphas=[0.1, 1.0], bins=[40, 50])  # each α takes as long as the training
    monkeypatch.setattr(clicks_module, "measure", few)
    said: list[str] = []
    tables = run(name, rows=rows, models=models, epochs=2, say=said.append)
    assert tables.models == models
    assert {cell.replicas for cell in tables.cells} == {*range(2, models + 1)}
    assert tables.get("true_error", 0.1, "Platt Scaling", "vad") is not None  # a world knows the truth
    assert tables.get("true_error", 1.0, "VAD", "snapshot 90%") is not None
    assert set(tables.about["seconds"]) == {"rows", "train", "score", "measure"}
    assert [line.split()[0] for line in said] == ["drew", "trained", "scored,", "measured"]
    (facts,) = tables.networks
    assert len(facts["held-out log loss by epoch"]) == len(facts["training log loss by epoch"]) == 2
    assert (facts["training rows left out"], tables.worlds) == (0, 1)
    assert "held-out log loss by epoch" in render.text(parts_of(tables))


@pytest.mark.filterwarnings("ignore:.*were not above", "ignore:left out", "ignore:.* is left out for")
def test_worlds_have_rows_and_networks_of_their_own(monkeypatch):
    few = partial(clicks_module.measure, alphas=[1.0], bins=[50], methods=["VAD"])  # the test above has more figures
    monkeypatch.setattr(clicks_module, "measure", few)
    tables = run("criteo", rows=2_000, models=2, epochs=1, worlds=2, thinning="same")
    first, second = tables.networks
    assert first["click rate"] != second["click rate"]
    assert first["training log loss by epoch"] != second["training log loss by epoch"]
    cell = tables.get("calibration_error", 1.0)
    assert (cell.count, tables.worlds) == (4, 2)
    assert cell.world_error > 0
    assert "trained on the training rows" in tables.about["thinning network"]


def test_splits_have_the_papers_shares_and_other_rows_come_after():
    split = parts.split_rows(SETTINGS["criteo"], 200_000, 370_000, seed=3)
    assert (split[200_000:] == parts.OTHER).all()
    shares = np.bincount(split[:200_000], minlength=5) / 200_000
    assert shares[:4] == pytest.approx([0.85, 0.015, 0.015, 0.12], abs=4 * 0.5 / np.sqrt(200_000))
    assert shares[4] == 0
    assert (split != parts.split_rows(SETTINGS["criteo"], 200_000, 370_000, seed=4)).any()


def test_values_that_no_training_row_has_become_unknown():
    clicks = ClickWorld.criteo(scale=0.001).draw(3_000, seed=1)
    before = clicks.codes.clone()
    parts.hide_unknown(clicks, np.arange(1_000))
    for field in range(clicks.codes.shape[1]):
        seen = set(before[:1_000, field].tolist()) | {0, 1}
        for old, new in zip(before[:, field].tolist(), clicks.codes[:, field].tolist(), strict=True):
            assert new == (old if old in seen else 1)


class Shift:
    """A thinning network with known logits, and two networks whose logits are the row's number and its negative."""

    def __init__(self, shift):
        self.shift, self.losses = shift, np.zeros((1, 3))

    def logits(self, part):
        rows = part.codes[:, 0].numpy()
        return np.stack([self.shift[rows], rows, -rows], axis=1).astype(np.float32)


def trainer(fit):
    """A trainer whose replicas are always these."""

    def train(model, clicks, *, snapshots, on_snapshot, rows, **options):
        fit.rows, fit.losses = rows, np.full((options["epochs"], options["n_replicas"]), 0.5)
        for share in snapshots:
            on_snapshot(share, fit)
        return fit

    return train


def numbered(n):
    codes = torch.arange(n, dtype=torch.int32)[:, None]
    label = (torch.arange(n) % 3 == 0).to(torch.uint8)
    return Clicks(torch.zeros(n, 0), codes, label, (n,), torch.full((n,), 0.3))


@pytest.fixture
def train_on(monkeypatch):
    """Train networks of these logits on a split of numbered rows; returns scores, facts and rows of the networks."""
    from uncurse_lab import deep

    def call(shift, split, *, same=False, epochs=1):
        fit = Shift(shift)
        monkeypatch.setattr(deep, "train_replicas", trainer(fit), raising=False)
        plan = {"epochs": epochs, "batch_size": 128, "optimizer": "sgd"}
        options = {"seed": 0, "same": same, "done": lambda stage, text: None}
        scored, facts = train(SETTINGS["criteo"], numbered(len(split)), split, 2, plan, **options)
        return scored, facts, fit.rows

    return call


def test_test_and_pool_are_thinned_by_the_model_trained_elsewhere_and_labeled_rows_are_not(train_on):
    n = 40_000
    shift = np.random.default_rng(0).normal(0, 1, n).astype(np.float32)
    split = (np.arange(n) % 5).astype(np.int8)
    scored, facts, _ = train_on(shift, split)
    assert len(scored.labeled) == n // 5  # untouched
    pool, whole = shift[scored.pool[:, 0].astype(int)], shift[split == parts.POOL]
    assert len(pool) < 0.6 * len(whole)
    assert pool.mean() == pytest.approx(np.average(whole, weights=1 - logistic(whole)), abs=4 / np.sqrt(n // 5))
    expected = 1 - logistic(shift[split == parts.TEST])
    assert facts["test rows kept"] == pytest.approx(expected.mean(), abs=4 * 0.5 / np.sqrt(n // 5))
    assert len(scored.test) == len(scored.test_y) == len(scored.truth)
    assert np.array_equal(scored.snapshots[0.8][1], scored.pool)


@pytest.mark.parametrize(("same", "size"), [(False, 250), (True, 600)])
def test_no_row_of_the_thinning_network_is_repeated_on_a_short_log(train_on, same, size):
    split = np.repeat(np.arange(5), [600, 100, 100, 100, 250]).astype(np.int8)
    _, facts, (thinning, training, _) = train_on(np.zeros(len(split)), split, same=same)
    assert len(thinning) == len(np.unique(thinning)) == len(training) == size
    assert facts["training rows left out"] == 600 - size
    assert np.array_equal(thinning, training) == same


def test_the_log_loss_after_each_epoch_and_snapshots_are_kept(train_on):
    split = (np.arange(5_000) % 5).astype(np.int8)
    scored, facts, _ = train_on(np.zeros(5_000), split, epochs=3)
    assert np.isfinite(facts["held-out log loss by epoch"]).sum() == 2
    assert list(scored.snapshots) == [0.8, 0.9]
    assert scored.snapshots[0.9][0].shape == scored.labeled.shape


@pytest.mark.parametrize(
    ("words", "epochs"),
    [
        (["criteo", "--quick"], 2),
        (["criteo", "--quick", "--epochs", "1"], 1),
        (["criteo", "--quick", "--epochs", "3"], 3),
        (["avazu", "--quick"], 1),
        (["avazu", "--quick", "--epochs", "2"], 2),
        (["criteo"], 3),
    ],
)
def test_epochs_are_those_asked_for_whatever_the_number_of_rows(words, epochs, monkeypatch, run):
    seen = {}
    from uncurse_lab import deep

    def stop(model, clicks, **options):
        seen.update(options)
        raise UncurseError("far enough")

    monkeypatch.setattr(deep, "train_replicas", stop, raising=False)
    said = run("reproduce", *words, "--world", "--rows", "2000", "--models", "2", code=2)
    assert "far enough" in said
    assert (seen["epochs"], seen["n_replicas"]) == (epochs, 3)
    assert not set(seen["rows"][0]) & set(seen["rows"][1])  # the thinning network has rows of its own


@pytest.mark.filterwarnings("ignore:.*were not above", "ignore:left out", "ignore:.* is left out for")
def test_the_output_says_why_a_short_log_gives_fewer_rows_than_asked_for(tmp_path, monkeypatch):
    few = partial(clicks_module.measure, alphas=[1.0], bins=[50], methods=["VAD"])
    monkeypatch.setattr(clicks_module, "measure", few)
    log = tmp_path / "train.txt"
    log.write_text(criteo_lines(3_000))
    said: list[str] = []
    tables = run("criteo", data=log, rows=2_000, models=2, epochs=1, say=said.append)
    reason = (
        "1,875 rows instead of 2,000: the log has 3,000, and the thinning network needs as many further rows as the "
        "others train on"
    )
    assert said[0] == reason
    assert tables.about["rows"] == 1_875
    assert f"fewer rows: {reason}" in render.text(parts_of(tables))
    tables = run("criteo", data=log, rows=1_801, models=2, epochs=1)
    assert tables.about["rows"] == 1_801
    assert "fewer rows" not in tables.about


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": 1}, "models=1; train a served model"),
        ({"worlds": 2, "data": "x"}, "worlds=2, and a log is one"),
        ({"data": "nowhere.txt"}, "cannot read nowhere.txt"),
        ({"data": "/dev/null"}, "/dev/null holds no rows; pass Criteo's log"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(UncurseError, match=message):
        run("criteo", **options)


def criteo_lines(rows: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    codes, numbers = rng.integers(0, 40, (rows, 26)), rng.integers(0, 9, (rows, 13))
    lines = zip(rng.integers(0, 2, rows), numbers, codes, strict=True)
    return "".join("\t".join([str(y), *map(str, x), *(f"{c:08x}" for c in z)]) + "\n" for y, x, z in lines)


def test_a_log_is_encoded_by_the_training_rows_of_its_split_and_used_again_only_for_them(tmp_path, monkeypatch):
    from uncurse_lab import deep

    seen = []

    def stop(model, clicks, **options):
        seen.append((clicks, options["rows"]))
        raise UncurseError("far enough")

    monkeypatch.setattr(deep, "train_replicas", stop, raising=False)
    log, kept = tmp_path / "train.txt", tmp_path / "kept.clicks"
    log.write_text(criteo_lines(1_600))

    def go(**options):
        with pytest.raises(UncurseError) as caught:
            run("criteo", **{"data": log, "encoded": kept, "models": 2, **options})
        return str(caught.value)

    assert go() == "far enough"
    clicks, rows = seen[0]
    split = parts.split_rows(replace(SETTINGS["criteo"], shares=parts.SMALL_SHARES), 1000, 1600, 0)
    training = np.flatnonzero(split == parts.TRAIN)
    assert np.array_equal(rows[1], training[: (split == parts.OTHER).sum()])
    for field in range(26):  # no value of other rows is known
        assert set(clicks.codes[:, field].tolist()) <= {1, *clicks.codes[training, field].tolist()}
    assert go() == "far enough"  # the same again, from the encoded file
    assert go(models=80) == "far enough"  # many models of few rows are no work for half a day
    for options in ({"seed": 1}, {"rows": 500}):
        assert "for something else" in go(**options)
    other = tmp_path / "other.txt"
    other.write_text(criteo_lines(1_601, seed=1))
    assert "source_bytes is" in go(data=other)


def test_without_a_gpu_nobody_waits_for_half_a_day_by_accident(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UncurseError, match=r"no GPU here, and 81 models on 15,000,000 rows would take some \d+ hours"):
        run("criteo")


def test_parts_without_a_click_are_told_before_the_training():
    with pytest.raises(UncurseError, match=r"are \w+ rows, with 0 clicks among them: too few; take more rows"):
        run("criteo", rows=30, models=2)


def test_lines_are_counted_gzipped_or_not(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n" * 9 + b"y")
    (tmp_path / "zipped").write_bytes(gzip.compress(b"x\n" * 10))
    assert count_lines(tmp_path / "a.txt", 99) == count_lines(tmp_path / "zipped", 99) == 10
    assert count_lines(tmp_path / "a.txt", 7) == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "criteo"], "pass --data FILE, or --world"),
        (["reproduce", "avazu", "--world", "--data", "x"], "--world and --data exclude each other"),
        (["reproduce", "criteo", "--world", "--markdown", "."], "cannot write --markdown .: it is a folder"),
        (["reproduce", "criteo", "--world", "--device", "tpu"], "device='tpu' is unknown"),
        (["reproduce", "criteo", "--world", "--encoded", "x"], "--encoded keeps an encoded log"),
        (["reproduce", "criteo", "--data", "nowhere.txt"], "cannot read nowhere.txt"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(words, message, run):
    said = run(*words, code=2)
    assert said.startswith("uncurse: ")
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("criteo", "criteo_kaggle_raw/criteo_train_first10k.txt.gz"),
        ("avazu", "avazu/avazu_train_first10k.csv.gz"),
        ("avazu", "avazu/avazu_random10k_with_rowindex.csv.gz"),
    ],
)
def test_the_command_runs_through_on_a_real_sample(name, file, tmp_path, run, monkeypatch):
    sample = SAMPLES / file
    if "random" in file:  # another file of the same log: other rows and another column, and the same figures
        monkeypatch.setattr(clicks_module, "measure", partial(clicks_module.measure, methods=["VAD"]))
    if not sample.exists():
        pytest.skip(f"the real sample {file} is not here: its owner forbids to ship it")
    encoded, tables = tmp_path / "log.clicks", tmp_path / "t.md"
    words = ["reproduce", name, "--data", str(sample), "--models", "2", "--epochs", "1", "--format", "json"]
    words += ["--encoded", str(encoded), "--device", "cpu", "--rows", "2400"]
    assert json.loads(run(*words, "--markdown", str(tables)))["kind"] == "clicks"
    assert encoded.exists()
    assert "for something else (training_crc is" in run(*words, "--seed", "1", code=2)
    assert tables.read_text().startswith(name.capitalize())
    assert "Platt Scaling" in tables.read_text()
