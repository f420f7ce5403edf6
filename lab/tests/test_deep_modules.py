"""Networks of one's own, stacked: equal to plain training loops, one replica after another."""

from __future__ import annotations

import numpy as np
import pytest

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from uncurse.deep.run import _generator  # noqa: E402
from uncurse_lab.deep import Clicks, train_replicas  # noqa: E402

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


def plain_training(make, inputs, y, *, seed, epochs, batch_size, optimiser, rate):
    """What a textbook does, in the order of rows that this seed has."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make().train()
    chosen = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimiser](model.parameters(), lr=rate)
    losses = []
    for epoch in range(epochs):
        order = torch.randperm(len(y), generator=_generator(torch.device("cpu"), seed, 2 + epoch))
        total = 0.0
        for batch in order.split(batch_size):
            z = model(*(x[batch] for x in inputs)).reshape(-1)
            loss = nn.functional.binary_cross_entropy_with_logits(z, y[batch])
            chosen.zero_grad()
            loss.backward()
            chosen.step()
            total += float(loss.detach()) * len(batch)
        losses.append(total / len(y))
    return model.eval(), losses


CODES = torch.randint(0, 5, (ROWS,), generator=torch.Generator().manual_seed(8))  # of 6 values one is never seen
NETWORKS = {"flat": (Flat, False), "batch norm": (Normed, False), "embedding, two inputs": (TwoTowers, True)}


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.1), ("adam", 0.01)])
@pytest.mark.parametrize("name", NETWORKS)
def test_two_replicas_equal_two_plain_trainings(name, optimiser, rate):
    make, coded = NETWORKS[name]
    x, y = draw()
    inputs = (x, CODES) if coded else (x,)
    # 200 rows are six batches of 32 and one of 8.
    options = {"epochs": 3, "batch_size": 32, "optimiser": optimiser, "rate": rate}
    fit = train_replicas(make, (*inputs, y), n_replicas=2, seed=4, **options)
    z = fit.logits(inputs)
    assert z.shape == (ROWS, 2)
    assert z.dtype == np.float32
    for r in range(2):
        model, losses = plain_training(make, inputs, y, seed=4 + r, **options)
        with torch.no_grad():
            np.testing.assert_allclose(z[:, r], model(*inputs).reshape(-1), rtol=0, atol=1e-5)
        np.testing.assert_allclose(fit.losses[:, r], losses, rtol=0, atol=1e-6)
        mine, state = fit.module(r), model.state_dict()
        assert not mine.training
        assert isinstance(mine, make)
        assert mine.state_dict().keys() == state.keys()
        for key, value in mine.state_dict().items():  # running means and counts of batches, too
            np.testing.assert_allclose(value, state[key], rtol=0, atol=1e-5, err_msg=key)
    assert np.abs(z[:, 0] - z[:, 1]).max() > 1e-2


@pytest.mark.parametrize("make", [Flat, Normed, dropping])
def test_a_module_gives_the_logits_of_its_replica(make):
    x, y = draw()
    fit = train_replicas(make, (x, y), n_replicas=3, batch_size=40)
    for r in range(3):
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
    assert int(fit.module(0).norm.num_batches_tracked) == 5


def alike(share):
    module = dropping(share)
    for w in module.parameters():
        nn.init.constant_(w, 0.1)
    return module


def test_dropout_differs_between_replicas_and_units_in_training_and_is_off_in_scoring():
    # Equal rows and equal weights: nothing but what is dropped tells replicas, or hidden units, apart.
    x, y = torch.ones(16, 3), torch.ones(16)
    options = {"batch_size": 16, "epochs": 3}
    same = train_replicas(lambda: alike(0.0), (x, y), **options).logits((x,))
    np.testing.assert_allclose(same[:, 0], same[:, 1], rtol=0, atol=1e-6)
    fit = train_replicas(lambda: alike(0.5), (x, y), **options)
    z = fit.logits((x,))
    assert abs(z[0, 0] - z[0, 1]) > 1e-4
    np.testing.assert_allclose(z, np.tile(z[:1], (16, 1)), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(z, train_replicas(lambda: alike(0.5), (x, y), **options).logits((x,)))
    weights = fit.module(0).state_dict()["0.weight"]
    assert not torch.equal(weights[0], weights[1])


def test_dropout_draws_anew_in_every_step_and_epoch():
    def make():
        return nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5), nn.Linear(64, 1))

    x, y = torch.ones(1, 3), torch.ones(1)
    fit = train_replicas(make, (x, y), n_replicas=1, epochs=12)  # a step each
    torch.manual_seed(0)
    start = make()[2].weight.detach()[0]
    end = fit.module(0).state_dict()["2.weight"][0]
    never = (end == start).float().mean()  # 2⁻¹² of them, were they dropped at random
    assert never < 0.05


def test_frozen_parameters_stay_where_they_were():
    def make():
        module = dropping(0.0)
        module[0].requires_grad_(False)
        return module

    x, y = draw()
    for optimiser in ("sgd", "adam"):
        fit = train_replicas(make, (x, y), optimiser=optimiser, seed=2)
        torch.manual_seed(3)
        start = make()
        assert torch.equal(fit.module(1).state_dict()["0.weight"], start[0].weight)
        assert not torch.equal(fit.module(1).state_dict()["2.weight"], start[2].weight)


def test_a_bootstrap_weighs_rows_of_a_module_too():
    x, y = draw()
    options = {"n_replicas": 2, "batch_size": ROWS, "epochs": 2}
    weight = torch.poisson(torch.ones(ROWS), generator=_generator(torch.device("cpu"), 1, 1))
    torch.manual_seed(1)
    model = Flat()
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        steps.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), y, weight).backward()
        steps.step()
    z = train_replicas(Flat, (x, y), bootstrap=True, **options).logits((x,))
    np.testing.assert_allclose(z[:, 1], model(x).detach(), rtol=0, atol=1e-5)
    everywhere = train_replicas(Flat, (x, y), **options).logits((x,))
    np.testing.assert_allclose(z[:, 0], everywhere[:, 0], rtol=0, atol=1e-6)
    assert np.abs(z[:, 1] - everywhere[:, 1]).max() > 1e-4


def test_data_may_be_tuples_lists_tensor_datasets_or_clicks():
    x, y = draw()
    expected = train_replicas(TwoTowers, (x, CODES, y)).logits((x, CODES))
    tensors = TensorDataset(x, CODES, y)
    codes = CODES[:, None].int()

    class OfClicks(TwoTowers):
        def forward(self, numbers, codes):
            return super().forward(numbers, codes[:, 0])

    for make, data in (
        (TwoTowers, [x.numpy(), CODES.numpy(), y.numpy()]),
        (TwoTowers, tensors),
        (TwoTowers, (x, CODES, y.bool())),
        (TwoTowers, (x, CODES, y[:, None])),
        (TwoTowers, (x, CODES, y.tolist())),
        (OfClicks, Clicks(x, codes, y, (6,))),
    ):
        fit = train_replicas(make, data)
        np.testing.assert_array_equal(fit.logits(data), expected)


# ---------------------------------------------------------------------- what cannot be stacked


class Reads(Flat):
    def forward(self, x):
        return super().forward(x) * (2.0 if x.sum().item() > 0 else 1.0)


class Decides(Flat):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


REMEDY = r"cannot be stacked; train such replicas one after another"


@pytest.mark.parametrize("make", [Reads, Decides])
def test_a_network_that_decides_by_values_is_refused(make):
    with pytest.raises(UncurseError, match=rf"this network cannot be stacked \(.*\): a network that reads .*{REMEDY}"):
        train_replicas(make, draw())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: nn.EmbeddingBag(3, 1), "EmbeddingBag"),
        (lambda: nn.Sequential(nn.LSTM(3, 1)), "LSTM"),
        (lambda: nn.GRU(3, 1), "GRU"),
        (lambda: nn.Embedding(3, 1, sparse=True), "Embedding"),
    ],
)
def test_layers_that_cannot_be_stacked_are_refused_by_name(make, name):
    with pytest.raises(UncurseError, match=rf"^{name} cannot be stacked: .*{REMEDY}"):
        train_replicas(make, draw())


@pytest.mark.parametrize("model", [nn.Linear(3, 1), "dlrm", None], ids=["module", "text", "nothing"])
def test_what_does_not_make_modules_is_refused(model):
    kind = type(model).__name__
    with pytest.raises(UncurseError, match=rf"model is a {kind}; pass a function that makes"):
        train_replicas(model, draw())


def test_a_function_that_makes_something_else_is_refused():
    with pytest.raises(UncurseError, match=r"the function made a list, not an nn\.Module"):
        train_replicas(lambda: [nn.Linear(3, 1)], draw())


def test_modules_of_different_shapes_are_refused():
    widths = iter((4, 5))
    with pytest.raises(UncurseError, match=r"these modules cannot be stacked \(.*\): every call must make the"):
        train_replicas(lambda: Flat(3, next(widths)), draw())


@pytest.mark.parametrize(
    ("tail", "shape"), [(nn.Linear(3, 2), r"\(16, 2\)"), (nn.Flatten(0), r"\(48,\)")], ids=["two", "flat"]
)
def test_a_network_that_gives_other_than_one_logit_a_row_is_refused(tail, shape):
    with pytest.raises(UncurseError, match=rf"the network returned shape {shape} for 16 rows"):
        train_replicas(lambda: nn.Sequential(nn.Linear(3, 3), tail), draw(), batch_size=16)


# ---------------------------------------------------------------------- what users stumble on


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


def test_a_seed_may_be_a_date():
    x, y = draw()
    first, second = (train_replicas(Flat, (x, y), seed=20_261_231 + i, n_replicas=2 - i).logits((x,)) for i in range(2))
    np.testing.assert_allclose(first[:, 1], second[:, 0], rtol=0, atol=1e-6)
    assert not np.allclose(first[:, 0], first[:, 1])


def test_numbers_in_numpys_own_precision_are_taken():
    x, y = draw()
    expected = train_replicas(Flat, (x, y)).logits((x,))
    x = x.double().numpy()
    np.testing.assert_array_equal(train_replicas(Flat, (x, y)).logits((x,)), expected)


def test_an_error_that_is_not_of_stacking_does_not_speak_of_stacking():
    with pytest.raises(UncurseError, match=r"this network failed on a batch of \d+ rows: .*(size|shape)") as caught:
        train_replicas(lambda: nn.Linear(4, 1), draw())
    assert "EmbeddingBag" not in str(caught.value)


def test_an_error_without_a_message_is_named():
    class Fails(Flat):
        def forward(self, x):
            raise ValueError

    with pytest.raises(UncurseError, match=r"this network failed on a batch of \d+ rows: ValueError"):
        train_replicas(Fails, draw())


def test_scoring_a_network_that_always_draws_leaves_the_global_stream_alone():
    class Noisy(Flat):
        def forward(self, x):
            return super().forward(x + torch.randn_like(x))

    x, y = draw()
    fit = train_replicas(Noisy, (x, y))
    before = torch.get_rng_state()
    fit.logits((x,))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("make", [lambda: nn.Linear(3, 1).requires_grad_(False), lambda: nn.AvgPool1d(3)])
def test_a_network_with_nothing_to_train_is_refused(make):
    with pytest.raises(UncurseError, match=r"no weights that want a gradient; there is nothing to train"):
        train_replicas(make, draw())


def test_bf16_is_for_our_own_shapes():
    with pytest.raises(UncurseError, match=r"precision='bf16' is for DLRM and XDeepFM; cast inside your network"):
        train_replicas(lambda: nn.Linear(3, 1), draw(), precision="bf16")


def test_a_replica_that_is_not_there_is_refused():
    fit = train_replicas(Flat, draw())
    with pytest.raises(UncurseError, match=r"replica=5, and there are 2; pass 0 to 1"):
        fit.module(5)
