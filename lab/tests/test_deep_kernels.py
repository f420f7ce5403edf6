"""The fused kernels and the CUDA graph against plain PyTorch, where there is a GPU."""

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

from torch import nn  # noqa: E402

from uncurse.deep.plan import Plan  # noqa: E402
from uncurse.deep.run import Run  # noqa: E402
from uncurse.deep.stack import stack_modules  # noqa: E402
from uncurse_lab.deep import DLRM, Clicks, XDeepFM, click_stack, train_replicas  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:embedding=16 with 4 fields")
DEVICE = torch.device("cuda")
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


def draw(dense, fields, rows=500, seed=0):
    rng = np.random.default_rng(seed)
    sizes = tuple(3 + (11 * f) % 60 for f in range(fields))
    codes = np.stack([rng.integers(0, size, rows) for size in sizes], 1).astype(np.int32)
    label = (rng.random(rows) < 0.2 + 0.5 * (codes[:, 0] > sizes[0] // 2)).astype(np.uint8)
    return Clicks(rng.random((rows, dense), np.float32), codes, label, sizes).to(DEVICE)


def change_of_one_step(shape, clicks, optimiser, precision, kernels):
    plan = Plan(3, 1, 100, optimiser, 0.1 if optimiser == "sgd" else 1e-3, precision=precision)
    with patch.object(click_stack, "_kernels", click_stack._kernels if kernels else lambda: None):
        made = stack_modules(shape, clicks, plan.seeds, DEVICE)
        run = Run(made, plan, [clicks.dense, clicks.codes], clicks.label)
        run.shuffle(0)
        before = {name: value.detach().clone() for name, value in made.state().items()}
        with plan.settings(DEVICE):
            run.next()
        return {name: (value.detach() - before[name]).cpu() for name, value in made.state().items()}


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_step_with_the_kernels_is_the_step_without(name, optimiser):
    shape, dense, fields = SHAPES[name]
    clicks = draw(dense, fields)
    ours = change_of_one_step(shape, clicks, optimiser, "float32", True)
    plain = change_of_one_step(shape, clicks, optimiser, "float32", False)
    for part, expected in plain.items():
        close = (ours[part] - expected).abs() <= 1e-3 * expected.abs().max()
        # Adam divides by the gradient's own size: where that is rounding, so is the step.
        assert close.double().mean() > (0.9999 if optimiser == "sgd" else 0.99), part


@pytest.mark.parametrize("name", SHAPES)
def test_a_graph_trains_as_single_steps_do(name):
    shape, dense, fields = SHAPES[name]
    clicks = draw(dense, fields, rows=1_350)
    options = {"n_replicas": 2, "epochs": 2, "rate": 0.05, "precision": "float32"}
    graph, eager = (train_replicas(shape, clicks, cuda_graph=g, **options).logits(clicks) for g in (True, False))
    assert np.abs(graph - eager).mean() < 0.01 * eager.std()


def test_precisions_differ_by_their_rounding():
    shape, dense, fields = SHAPES["dlrm"]
    clicks = draw(dense, fields, rows=1_280)
    exact, tf32, bf16 = (train_replicas(shape, clicks, precision=p).logits(clicks) for p in ("float32", "tf32", "bf16"))
    assert np.abs(tf32 - exact).mean() < 0.05 * exact.std()
    assert np.abs(bf16 - exact).mean() < 0.2 * exact.std()


def test_a_network_with_dropout_is_trained_in_a_graph():
    clicks = draw(6, 3, rows=2_000)
    x = torch.cat([clicks.dense, clicks.codes[:, :1] / 3], 1)

    def network():
        return nn.Sequential(nn.Linear(7, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    fit = train_replicas(network, (x, clicks.label), epochs=8, batch_size=100, optimiser="adam", rate=1e-2)
    assert (fit.losses[-1] < 0.58).all()  # 0.556 is what the labels' own noise leaves
    assert (fit.losses[0] > 0.6).all()
    module = fit.module(1).to(DEVICE)
    assert np.abs(module(x)[:, 0].detach().cpu().numpy() - fit.logits((x,))[:, 1]).max() < 1e-2


def test_a_checkpoint_goes_on_where_it_was_left(tmp_path):
    shape, dense, fields = SHAPES["xdeepfm, odd"]
    clicks = draw(dense, fields, rows=1_000)
    options = {"epochs": 2, "optimiser": "adam", "rate": 1e-2, "precision": "float32"}
    whole = train_replicas(shape, clicks, **options).logits(clicks)

    def stop(progress):
        if progress.step >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_replicas(shape, clicks, checkpoint=tmp_path / "c", checkpoint_every=3, progress=stop, **options)
    fit = train_replicas(shape, clicks, checkpoint=tmp_path / "c", **options)
    assert fit.began in (6, 9)
    np.testing.assert_allclose(fit.logits(clicks), whole, atol=1e-3)


def test_a_served_module_moves_between_devices():
    shape, dense, fields = SHAPES["dlrm"]
    clicks = draw(dense, fields)
    fit = train_replicas(shape, clicks)
    there = fit.module(0)
    here = fit.module(0).cpu()
    a = there(clicks.dense, clicks.codes).detach().cpu()
    b = here(clicks.dense.cpu(), clicks.codes.cpu()).detach()
    assert (a - b).abs().max() < 1e-2


@pytest.mark.parametrize("name", SHAPES)
def test_codes_that_lie_column_by_column_are_scored_as_others(name):
    shape, dense, fields = SHAPES[name]
    clicks = draw(dense, fields)
    fit = train_replicas(shape, clicks)
    by_column = Clicks(clicks.dense.T.contiguous().T, clicks.codes.T.contiguous().T, None, clicks.sizes)
    np.testing.assert_allclose(fit.logits(by_column), fit.logits(clicks), rtol=0, atol=1e-3)


def test_a_shape_without_an_interaction_kernel_is_reported():
    shape, dense, fields = SHAPES["dlrm, few fields"]
    with pytest.warns(UserWarning, match="embedding=16 with 4 fields is trained without the interaction kernel"):
        train_replicas(shape, draw(dense, fields))
