"""Networks trained side by side equal plain training loops, one replica after another."""

from __future__ import annotations

import numpy as np
import pytest

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from uncurse.deep import train_replicas  # noqa: E402

ROWS = 200
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def draw(rows=ROWS, columns=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator)
    y = (x[:, 0] + 0.5 * torch.randn(rows, generator=generator) > 0).float()
    return x, y


class Flat(nn.Module):
    """(B, inputs) to (B,), smooth: no ReLU that may fall to either side of zero."""

    def __init__(self, inputs=3, hidden=8):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        return self.last(self.first(x).tanh())[:, 0]


class Normed(Flat):
    """(B, inputs) to (B, 1), with statistics of the batch.

    Without a bias before them: its gradient is zero but for rounding, which Adam would make steps of full size of.
    """

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).tanh())


class TwoTowers(nn.Module):
    """Numbers and codes, with a table of its own."""

    def __init__(self):
        super().__init__()
        self.table, self.flat = nn.Embedding(6, 4), Flat(3 + 4)

    def forward(self, numbers, codes):
        return self.flat(torch.cat([numbers, self.table(codes)], 1))


def dropping(share=0.5):
    return nn.Sequential(nn.Linear(3, 16), nn.Dropout(share), nn.Linear(16, 1))


def frozen():
    module = dropping(0.0)
    module[0].requires_grad_(False)
    return module


def plain_training(make, inputs, y, *, seed, epochs, optimizer, learning_rate, weight=None):
    """What a textbook does, with all rows in a batch."""
    torch.manual_seed(seed)
    model = make().train()
    chosen = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](model.parameters(), lr=learning_rate)
    losses = []
    for _ in range(epochs):
        loss = nn.functional.binary_cross_entropy_with_logits(model(*inputs).reshape(-1), y, weight)
        chosen.zero_grad()
        loss.backward()
        chosen.step()
        losses.append(float(loss.detach()))
    return model.eval(), losses


CODES = torch.randint(0, 5, (ROWS,), generator=torch.Generator().manual_seed(8))  # of 6 values one is never seen
NETWORKS = {
    "flat": (Flat, False),
    "batch norm": (Normed, False),
    "embedding, two inputs": (TwoTowers, True),
    "frozen layer": (frozen, False),
}


@pytest.mark.parametrize(("optimizer", "learning_rate"), [("sgd", 0.1), ("adam", 0.01)])
@pytest.mark.parametrize("name", NETWORKS)
def test_two_replicas_equal_two_plain_trainings(name, optimizer, learning_rate):
    make, coded = NETWORKS[name]
    x, y = draw()
    inputs = (x, CODES) if coded else (x,)
    weight = torch.rand(ROWS, generator=torch.Generator().manual_seed(1)) if coded else None
    options = {"epochs": 6, "optimizer": optimizer, "learning_rate": learning_rate}
    fit = train_replicas(make, (*inputs, y), batch_size=ROWS, seed=4, sample_weight=weight, **options)
    z = fit.logits(inputs)
    assert z.shape == (ROWS, 2)
    assert z.dtype == np.float32
    relative = None if weight is None else weight / weight.mean()
    for r in range(2):
        model, losses = plain_training(make, inputs, y, seed=4 + r, weight=relative, **options)
        with torch.no_grad():
            np.testing.assert_allclose(z[:, r], model(*inputs).reshape(-1), rtol=0, atol=1e-5)
        np.testing.assert_allclose(fit.losses[:, r], losses, rtol=0, atol=1e-6)
        mine, state = fit.module(r), model.state_dict()
        assert not mine.training
        assert mine.state_dict().keys() == state.keys()
        for key, value in mine.state_dict().items():  # running means and counts of batches, too
            np.testing.assert_allclose(value, state[key], rtol=0, atol=1e-5, err_msg=key)
    assert np.abs(z[:, 0] - z[:, 1]).max() > 1e-2


@pytest.mark.parametrize("bootstrap", [False, True], ids=["all rows", "bootstrap"])
@pytest.mark.parametrize(("optimizer", "learning_rate"), [("sgd", 0.1), ("adam", 0.01)])
def test_three_replicas_side_by_side_equal_three_trained_alone(optimizer, learning_rate, bootstrap):
    # 200 rows are six batches of 32 and one of 8.
    options = {"epochs": 2, "batch_size": 32, "optimizer": optimizer, "learning_rate": learning_rate}
    options["bootstrap"] = bootstrap
    x, y = draw()
    beside = train_replicas(Normed, (x, y), n_replicas=3, seed=5, **options)
    together = beside.logits((x,))
    for r in range(3):
        first = bootstrap and r > 0  # the first of a bootstrap is trained on all rows
        alone = train_replicas(Normed, (x, y), n_replicas=1 + first, seed=5 + r - first, **options)
        np.testing.assert_allclose(together[:, r], alone.logits((x,))[:, -1], rtol=0, atol=2e-5)
        np.testing.assert_allclose(beside.losses[:, r], alone.losses[:, -1], rtol=0, atol=1e-6)
    assert np.abs(together[:, 0] - together[:, 1]).max() > 1e-3


def test_an_epoch_passes_over_every_row_once_in_another_order_for_each_replica():
    class Sum(nn.Module):  # its gradient is the sum of the rows of a batch, over twice the size of the batch
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(100, dtype=torch.float64))

        def forward(self, x):
            return x @ self.weight

    rows, y = torch.eye(100, dtype=torch.float64), torch.zeros(100)
    options = {"batch_size": 32, "learning_rate": 1e-9}
    fit = train_replicas(Sum, (rows, y), epochs=3, **options)
    changes = [-fit.module(r).weight.detach() / 1e-9 for r in range(2)]
    alone = train_replicas(Sum, (rows, y), epochs=1, **options)
    for r, change in enumerate(changes):
        once = -alone.module(r).weight.detach() / 1e-9
        batches = torch.round(0.5 / once)  # the size of the batch in which a row was
        assert sorted(batches.tolist()) == [4.0] * 4 + [32.0] * 96
        assert float(change.sum()) == pytest.approx(3 * float(once.sum()))
        assert not torch.equal(torch.round(0.5 * 3 / change), batches)  # another order in each epoch
    assert not torch.equal(*changes)


def test_bootstrap_replicas_vary_as_much_as_estimates_from_other_samples():
    n, r = 2_000, 200
    x, y = draw(n, 1)
    options = {"n_replicas": r, "epochs": 60, "batch_size": n, "optimizer": "adam", "learning_rate": 0.2}
    fit = train_replicas(lambda: nn.Linear(1, 1), (x, y), bootstrap=True, **options)
    slopes = np.array([float(fit.module(i).weight.detach()) for i in range(1, r)])
    served = float(fit.module(0).weight.detach())
    p = 1 / (1 + np.exp(-fit.logits((x,))[:, 0].astype(float)))
    design = np.column_stack([np.ones(n), x.numpy()])
    inverse = np.linalg.inv((design * (p * (1 - p))[:, None]).T @ design)
    residual = (y.numpy() - p)[:, None] * design
    variance = (inverse @ (residual.T @ residual) @ inverse)[1, 1]  # the sandwich
    assert slopes.std(ddof=1) / np.sqrt(variance) == pytest.approx(1, abs=4 / np.sqrt(2 * r))
    assert abs(slopes.mean() - served) < 4 * np.sqrt(variance / r) + 0.3 * np.sqrt(variance)


def test_weights_of_rows_count_as_repeated_rows():
    x, y = draw()
    times = np.random.default_rng(1).integers(0, 3, ROWS)
    weighted = train_replicas(Flat, (x, y), epochs=3, sample_weight=7.0 * times, batch_size=ROWS)
    again = np.repeat(np.arange(ROWS), times)
    repeated = train_replicas(Flat, (x[again], y[again]), epochs=3, batch_size=len(again))
    np.testing.assert_allclose(weighted.logits((x,)), repeated.logits((x,)), atol=1e-4)
    np.testing.assert_allclose(weighted.losses, repeated.losses, atol=1e-5)


@pytest.mark.parametrize("make", [Flat, Normed, dropping])
def test_a_module_gives_the_logits_of_its_replica(make):
    x, y = draw()
    fit = train_replicas(make, (x, y), n_replicas=3, batch_size=40)
    for r in (0, 1, -1):
        module = fit.module(r)
        with torch.no_grad():
            np.testing.assert_allclose(module(x).reshape(-1), fit.logits((x,))[:, r], rtol=0, atol=1e-6)
    first = fit.module()
    with torch.no_grad():
        for w in first.parameters():
            w.zero_()
    assert np.abs(fit.logits((x,))[:, 0]).max() > 0  # a module is a copy


def test_batch_statistics_are_of_each_replica_and_do_not_move_while_scoring():
    x, y = draw()
    fit = train_replicas(Normed, (x, y), batch_size=40)
    before = [fit.module(r).norm.running_mean for r in range(2)]
    assert not torch.equal(*before)
    first = fit.logits((x,))
    np.testing.assert_array_equal(first, fit.logits((x,)))
    np.testing.assert_allclose(first[:7], fit.logits((x[:7],)), rtol=0, atol=1e-6)  # nor do rows see each other
    assert all(torch.equal(old, fit.module(r).norm.running_mean) for r, old in enumerate(before))


def test_a_snapshot_is_the_replicas_of_that_step():
    x, y = draw()
    fit = train_replicas(Normed, (x, y), batch_size=50, epochs=2, snapshots=(0.5, 0.9))
    half = train_replicas(Normed, (x, y), batch_size=50, epochs=1)  # four of eight steps
    np.testing.assert_allclose(fit.logits((x,), snapshot=0.5), half.logits((x,)), atol=1e-6)
    np.testing.assert_allclose(fit.module(1, snapshot=0.5)(x)[:, 0].detach(), half.logits((x,))[:, 1], atol=1e-6)
    assert np.abs(fit.logits((x,), snapshot=0.9) - fit.logits((x,))).max() > 1e-4
    with pytest.raises(UncurseError, match=r"snapshot=0.8, and kept are: 0.5, 0.9"):
        fit.logits((x,), snapshot=0.8)


# ---------------------------------------------------------------------- random numbers


def alike(share):
    module = nn.Sequential(nn.Linear(3, 64), nn.Dropout(share), nn.Linear(64, 1))
    for w in module.parameters():
        nn.init.constant_(w, 0.1)
    return module


def test_dropout_differs_between_replicas_units_and_steps_and_is_off_in_scoring():
    # Equal rows and equal weights: nothing but what is dropped tells replicas, or hidden units, apart.
    x, y = torch.ones(1, 3), torch.ones(1)
    same = train_replicas(lambda: alike(0.0), (x, y), epochs=12).logits((x,))
    np.testing.assert_allclose(same[:, 0], same[:, 1], rtol=0, atol=1e-6)
    fit = train_replicas(lambda: alike(0.5), (x, y), epochs=12)  # a step each
    z = fit.logits((x,))
    assert abs(z[0, 0] - z[0, 1]) > 1e-4
    torch.manual_seed(5)  # the global stream does not matter
    np.testing.assert_array_equal(z, train_replicas(lambda: alike(0.5), (x, y), epochs=12).logits((x,)))
    weights = fit.module(0).state_dict()
    assert not torch.equal(weights["0.weight"][0], weights["0.weight"][1])
    never = (weights["2.weight"] == 0.1).float().mean()  # 2⁻¹² of them, were they dropped at random
    assert never < 0.05


class Fourier(nn.Module):
    """Random features that are drawn once and not saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("directions", torch.randn(3, 8), persistent=False)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return self.last((x @ self.directions).cos())


def test_a_module_has_the_buffers_of_its_replica_also_those_that_are_not_saved():
    x, y = draw()
    fit = train_replicas(Fourier, (x, y))
    with torch.no_grad():
        np.testing.assert_allclose(fit.module(1)(x)[:, 0], fit.logits((x,))[:, 1], rtol=0, atol=1e-6)


def test_scoring_a_network_that_always_draws_leaves_the_global_stream_alone():
    class Noisy(Flat):
        def forward(self, x):
            return super().forward(x + torch.randn_like(x))

    x, y = draw()
    fit = train_replicas(Noisy, (x, y))
    before = torch.get_rng_state()
    fit.logits((x,))
    assert torch.equal(before, torch.get_rng_state())


# ---------------------------------------------------------------------- data


def test_data_may_be_tuples_lists_tensor_datasets_or_arrays_on_disk(tmp_path):
    x, y = draw()
    expected = train_replicas(TwoTowers, (x, CODES, y)).logits((x, CODES))
    np.save(tmp_path / "x.npy", x.numpy())
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    for data in (
        [x.numpy(), CODES.numpy(), y.numpy()],
        (x.double().numpy(), CODES, y),
        (on_disk, CODES, y),
        (np.repeat(x.numpy(), 2, 0)[::2], CODES, y),
        TensorDataset(x, CODES, y),
        (x, CODES, y.bool()),
        (x, CODES, y[:, None]),
        (x, CODES, y.tolist()),
    ):
        np.testing.assert_array_equal(train_replicas(TwoTowers, data).logits(data), expected)
    listed = train_replicas(Flat, (x.tolist(), y.tolist()))
    np.testing.assert_allclose(listed.logits((x.tolist(),)), listed.logits((x,)), atol=1e-6)


def test_labels_are_not_looked_at_in_scoring():
    x, y = draw()
    fit = train_replicas(Flat, (x, y))
    expected = fit.logits((x,))
    for data in ((x, 1 - y), (x, y * np.nan), [x], x):
        np.testing.assert_array_equal(fit.logits(data), expected)
    assert fit.logits((x[:0],)).shape == (0, 2)


# ---------------------------------------------------------------------- what cannot be stacked


class Reads(Flat):
    def forward(self, x):
        return super().forward(x) * (2.0 if x.sum().item() > 0 else 1.0)


class Decides(Flat):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


class Fails(Flat):
    def forward(self, x):
        raise ValueError


widths = iter(range(4, 100))
NOT_STACKED = {
    "reads a value": (Reads, "cannot be stacked; train such replicas one after another"),
    "decides by a value": (Decides, "cannot be stacked; train such replicas one after another"),
    "bag": (lambda: nn.EmbeddingBag(3, 1), "this network has EmbeddingBag.* cannot be stacked"),
    "recurrent": (lambda: nn.Sequential(nn.LSTM(3, 1)), "lstm.* cannot be stacked"),
    "sparse": (lambda: nn.Embedding(3, 1, sparse=True), "this network has Embedding.* cannot be stacked"),
    "other shapes": (lambda: Flat(3, next(widths)), "every call must make the same shapes"),
    "a module": (nn.Linear(3, 1), "model is a Linear; pass a function"),
    "text": ("dlrm", "model is a str; pass a function"),
    "makes a list": (lambda: [nn.Linear(3, 1)], "made a list, not an nn.Module"),
    "two logits": (lambda: nn.Linear(3, 2), r"shape \(16, 2\) for 16 rows"),
    "flat": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Flatten(0)), r"shape \(48,\) for 16 rows"),
    "other width": (lambda: nn.Linear(4, 1), "failed on a batch of 16 rows: .*(size|shape)"),
    "an error without a message": (Fails, "failed on a batch of 16 rows: ValueError"),
    "frozen": (lambda: nn.Linear(3, 1).requires_grad_(False), "nothing to train"),
    "no weights": (lambda: nn.AvgPool1d(3), "nothing to train"),
}


@pytest.mark.parametrize("what", NOT_STACKED)
def test_a_network_that_cannot_be_stacked_is_refused(what):
    make, message = NOT_STACKED[what]
    with pytest.raises(UncurseError, match=message):
        train_replicas(make, draw(), batch_size=16)


def test_a_replica_that_is_not_there_is_refused():
    fit = train_replicas(Flat, draw())
    with pytest.raises(UncurseError, match="replica=5"):
        fit.module(5)
