"""The fused kernels and the CUDA graph against plain PyTorch, where there is a GPU."""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

from torch import nn  # noqa: E402

import uncurse.deep  # noqa: E402
from uncurse_lab.deep import DLRM, Clicks, XDeepFM, train_replicas  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*[Dd]eterministic")
SHAPES = {
    "dlrm": (DLRM, 13, 26),
    "dlrm, wide": (partial(DLRM, embedding=32, bottom=(40,), top=(24, 12)), 5, 17),
    "dlrm, few fields": (partial(DLRM, bottom=(24,), top=(20,)), 3, 4),
    "xdeepfm": (XDeepFM, 0, 22),
    "xdeepfm, odd": (partial(XDeepFM, embedding=8, hidden=(20,), interactions=(10, 7)), 3, 5),
}


@pytest.fixture(autouse=True, scope="module")
def processor():
    """The GPU, unlike in all other tests."""


@pytest.fixture(autouse=True)
def precision(monkeypatch):
    """Products are exact to float32."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")


def draw(dense, fields, rows=500, seed=0):
    rng = np.random.default_rng(seed)
    sizes = tuple(3 + (11 * f) % 60 for f in range(fields))
    codes = np.stack([rng.integers(0, size, rows) for size in sizes], 1).astype(np.int32)
    label = (rng.random(rows) < 0.2 + 0.5 * (codes[:, 0] > sizes[0] // 2)).astype(np.uint8)
    return Clicks(rng.random((rows, dense), np.float32), codes, label, sizes).to("cuda")


def plainly(call):
    """Call without kernels and without a CUDA graph."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return call()
    finally:
        torch.use_deterministic_algorithms(False)


def change_of_one_step(shape, clicks, optimizer):
    options = {"optimizer": optimizer, "batch_size": len(clicks), "n_replicas": 3}
    rate = 10.0 if optimizer == "sgd" else 1e-3  # a smaller step is lost in the rounding of the weights
    still, fit = (train_replicas(shape, clicks, learning_rate=rate, **options) for rate in (1e-30, rate))
    before, after = still.module(2).state_dict(), fit.module(2).state_dict()
    return {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_step_with_the_kernels_is_the_step_without(name, optimizer):
    shape, dense, fields = SHAPES[name]
    clicks = draw(dense, fields)
    ours = change_of_one_step(shape, clicks, optimizer)
    plain = plainly(lambda: change_of_one_step(shape, clicks, optimizer))
    for part, expected in plain.items():
        close = (ours[part] - expected).abs() <= 2e-3 * expected.abs().max()
        # Adam divides by the gradient's own size: where that is rounding, so is the step.
        assert close.double().mean() > (0.999 if optimizer == "sgd" else 0.99), part


@pytest.mark.parametrize("name", SHAPES)
def test_a_graph_trains_as_single_steps_do(name):
    shape, dense, fields = SHAPES[name]
    clicks = draw(dense, fields, rows=1_350)
    options = {"epochs": 2, "learning_rate": 0.05, "final_rate": 0.01}
    graph = train_replicas(shape, clicks, **options).logits(clicks)
    single = plainly(lambda: train_replicas(shape, clicks, **options)).logits(clicks)
    assert np.abs(graph - single).mean() < 0.01 * single.std()


def test_a_network_with_dropout_is_trained_in_a_graph():
    clicks = draw(6, 3, rows=2_000)
    x = torch.cat([clicks.dense, clicks.codes[:, :1] / 3], 1)

    def network():
        return nn.Sequential(nn.Linear(7, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    options = {"epochs": 8, "batch_size": 100, "optimizer": "adam", "learning_rate": 1e-2}
    fit = uncurse.deep.train_replicas(network, (x, clicks.label), **options)
    assert (fit.losses[-1] < 0.58).all()  # 0.556 is what the labels' own noise leaves
    assert (fit.losses[0] > 0.6).all()
    module = fit.module(1).to("cuda")
    assert np.abs(module(x)[:, 0].detach().cpu().numpy() - fit.logits((x,))[:, 1]).max() < 1e-2


def test_a_served_module_moves_between_devices():
    shape, dense, fields = SHAPES["dlrm"]
    clicks = draw(dense, fields)
    fit = train_replicas(shape, clicks)
    there = fit.module(0)(clicks.dense, clicks.codes).detach().cpu()
    here = fit.module(0).cpu()(clicks.dense.cpu(), clicks.codes.cpu()).detach()
    assert (there - here).abs().max() < 1e-2
