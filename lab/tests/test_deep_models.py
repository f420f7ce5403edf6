"""DLRM and xDeepFM: the plain modules equal DeepCTR's and the paper's, and their replicas equal the plain modules."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
import types
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from uncurse import Affine, UncurseError, fold

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import uncurse.deep  # noqa: E402
from uncurse_lab.deep import DLRM, Clicks, XDeepFM, train_replicas  # noqa: E402

SMALL = partial(DLRM, embedding=4, bottom=(8,), top=(8, 4))
MODELS = {"dlrm": SMALL, "xdeepfm": partial(XDeepFM, hidden=(8,), interactions=(6, 4), deviation=0.3)}

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def in_double():
    """Make modules of float64, whose stack then is too."""
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(kind)


def draw(rows=300, numbers=3, sizes=(5, 7, 30), seed=0):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, rows) for size in sizes], 1).astype(np.int32)
    dense = np.log1p(rng.integers(0, 30, (rows, numbers))).astype(np.float32)
    score = codes[:, 0] / sizes[0] - 0.8 + (0.3 * (dense[:, 0] - 2) if numbers else 0)
    label = (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.uint8)
    return Clicks(dense, codes, label, tuple(sizes))


def inputs(clicks):
    return torch.from_numpy(clicks.dense).to(torch.get_default_dtype()), torch.from_numpy(clicks.codes).long()


def plain_training(model, clicks, steps, *optimizers):
    """Steps of all rows, as a textbook has them; returns the last loss."""
    y = torch.from_numpy(clicks.label).to(torch.get_default_dtype())
    for _ in range(steps):
        loss = nn.functional.binary_cross_entropy_with_logits(model(*inputs(clicks)), y)
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return float(loss.detach())


# ---------------------------------------------------------------------- replicas


@pytest.mark.parametrize(("optimizer", "learning_rate"), [("sgd", 0.2), ("adam", 0.01)])
@pytest.mark.parametrize("numbers", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_two_replicas_equal_two_plain_trainings(name, numbers, optimizer, learning_rate, in_double):
    clicks = draw(numbers=numbers)
    options = {"optimizer": optimizer, "learning_rate": learning_rate, "epochs": 8, "batch_size": len(clicks)}
    fit = train_replicas(MODELS[name], clicks, seed=3, **options)
    for r in range(2):
        torch.manual_seed(3 + r)
        plain = MODELS[name](clicks.sizes, numbers)
        first = plain(*inputs(clicks)).detach()
        kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
        loss = plain_training(plain, clicks, 8, kind(plain.parameters(), lr=learning_rate))
        assert fit.losses[-1, r] == pytest.approx(loss, abs=1e-9)
        theirs, mine = plain.state_dict(), fit.module(r).state_dict()
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            torch.testing.assert_close(value, theirs[key], rtol=0, atol=1e-8, msg=key)
        last = plain.eval()(*inputs(clicks)).detach()
        np.testing.assert_allclose(fit.logits(clicks)[:, r], last, rtol=0, atol=1e-6)
        assert (last - first).abs().mean() > 1e-2  # and it has learnt something


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam", "learning_rate": 0.01}], ids=["sgd", "adam"])
@pytest.mark.parametrize("name", MODELS)
def test_three_bootstraps_side_by_side_equal_three_trained_alone(name, options):
    clicks = draw(1000, 2, (10, 4, 7, 30))  # 1000 is 7 batches of 128 and one of 104
    options = {**options, "epochs": 2, "bootstrap": True}
    beside = train_replicas(MODELS[name], clicks, n_replicas=3, seed=5, **options)
    together = beside.logits(clicks)
    for r in range(3):
        first = r > 0  # the first of a bootstrap is trained on all rows
        alone = train_replicas(MODELS[name], clicks, n_replicas=1 + first, seed=5 + r - first, **options)
        np.testing.assert_allclose(together[:, r], alone.logits(clicks)[:, -1], rtol=0, atol=2e-5)
        np.testing.assert_allclose(beside.losses[:, r], alone.losses[:, -1], rtol=0, atol=1e-6)
    assert np.abs(together[:, 0] - together[:, 1]).max() > 1e-3


def test_adam_is_lazy_on_embeddings_as_pytorchs_sparse_one():
    clicks = Clicks(None, np.array([[0, 1], [2, 1]], np.int32), np.array([0, 1]), (4, 2))
    made = train_replicas(SMALL, clicks, n_replicas=1, batch_size=1, optimizer="adam", learning_rate=0.02, epochs=2)
    found = []
    for order in itertools.product(((0, 1), (1, 0)), repeat=2):  # of two steps in each epoch
        torch.manual_seed(0)
        plain = SMALL(clicks.sizes)
        for table in plain.embeddings:
            table.sparse = True
        tables = torch.optim.SparseAdam(plain.embeddings.parameters(), lr=0.02)
        layers = torch.optim.Adam([*plain.bottom.parameters(), *plain.top.parameters()], lr=0.02)
        for row in itertools.chain(*order):
            plain_training(plain, clicks.take(slice(row, row + 1)), 1, tables, layers)
        found.append(np.abs(plain(*inputs(clicks)).detach().numpy() - made.logits(clicks)[:, 0]).max())
    assert min(found) < 2e-5
    torch.manual_seed(0)
    assert torch.equal(made.module(0).embeddings[0].weight[3], SMALL(clicks.sizes).embeddings[0].weight[3])


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam", "learning_rate": 0.01}], ids=["sgd", "adam"])
def test_a_replica_is_trained_on_its_own_rows_and_no_others(options):
    clicks, rng = draw(), np.random.default_rng(1)
    rows = [rng.permutation(300)[:150] for _ in range(2)]
    weight = rng.random(300)
    options = {"batch_size": 32, "epochs": 2, **options}
    fit = train_replicas(SMALL, clicks, rows=rows, sample_weight=weight / weight.mean(), **options)
    for r, own in enumerate(rows):
        alone = train_replicas(SMALL, clicks.take(own), n_replicas=1, seed=r, **options)
        weighted = train_replicas(SMALL, clicks, rows=[own], n_replicas=1, seed=r, **options)
        np.testing.assert_allclose(weighted.logits(clicks), alone.logits(clicks), rtol=0, atol=2e-5)
        np.testing.assert_allclose(weighted.losses, alone.losses, rtol=0, atol=1e-6)
        again = train_replicas(SMALL, clicks, rows=[own], sample_weight=weight, n_replicas=1, seed=r, **options)
        np.testing.assert_allclose(fit.logits(clicks)[:, r], again.logits(clicks)[:, 0], rtol=0, atol=2e-5)
        np.testing.assert_allclose(fit.losses[:, r], again.losses[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_falling_rate_takes_twenty_values(optimizer, in_double):
    clicks = draw()
    options = {"optimizer": optimizer, "learning_rate": 0.1, "epochs": 40, "batch_size": len(clicks)}
    fit = train_replicas(SMALL, clicks, n_replicas=1, final_rate=0.005, **options)
    torch.manual_seed(0)
    plain = SMALL(clicks.sizes, 3)
    falling = (torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam)(plain.parameters())
    for rate in np.repeat(np.linspace(0.1, 0.005, 20), 2):
        falling.param_groups[0]["lr"] = rate
        plain_training(plain, clicks, 1, falling)
    np.testing.assert_allclose(fit.logits(clicks)[:, 0], plain(*inputs(clicks)).detach(), rtol=0, atol=1e-5)


def test_a_snapshot_may_be_scored_at_once_and_not_kept():
    clicks, seen = draw(), {}
    options = {"batch_size": 64, "epochs": 2, "snapshots": (0.5, 0.9)}
    kept = train_replicas(SMALL, clicks, **options)
    shown = train_replicas(
        SMALL, clicks, on_snapshot=lambda share, now: seen.update({share: now.logits(clicks)}), **options
    )
    for share in (0.5, 0.9):
        np.testing.assert_array_equal(seen[share], kept.logits(clicks, snapshot=share))
    half = train_replicas(SMALL, clicks, batch_size=64, epochs=1)
    np.testing.assert_allclose(seen[0.5], half.logits(clicks), atol=1e-6)
    with pytest.raises(UncurseError, match=r"snapshot=0.9"):
        shown.logits(clicks, snapshot=0.9)


def test_a_large_table_is_scored_in_parts_with_the_same_result():
    clicks = draw(70_000, 0, (3,))
    fit = train_replicas(MODELS["xdeepfm"], clicks.take(slice(0, 100)))
    np.testing.assert_allclose(fit.logits(clicks)[-9:], fit.logits(clicks.take(slice(-9, None))), rtol=0, atol=1e-6)


# ---------------------------------------------------------------------- the plain modules


def test_the_plain_dlrm_takes_the_dot_product_of_every_two_vectors(in_double):
    clicks = draw(20, 3, (3, 4, 5))
    model = SMALL((3, 4, 5), 3)
    numbers, codes = inputs(clicks)
    x = model.bottom(numbers)
    vectors = [x, *(table.weight[codes[:, f]] for f, table in enumerate(model.embeddings))]
    pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(4) for j in range(i)]
    expected = model.top(torch.column_stack([x, *pairs]))[:, 0]
    torch.testing.assert_close(model(numbers, codes), expected, rtol=0, atol=1e-14)


def test_the_papers_dlrm_has_475985_dense_parameters():
    model = DLRM([5] * 26, 13)
    assert sum(w.numel() for part in (model.bottom, model.top) for w in part.parameters()) == 475_985


def test_initial_weights_of_a_dlrm_have_the_papers_variances():
    torch.manual_seed(0)
    models = [DLRM((4, 100, 2500), 13) for _ in range(12)]
    widths = {"bottom": [13, 512, 256, 64, 16], "top": [16 + 6, 512, 256, 1]}
    for part, chain in widths.items():
        for i, (inputs, outputs) in enumerate(pairwise(chain)):
            layers = [getattr(model, part)[2 * i] for model in models]
            weight, bias = (torch.stack([getattr(x, name) for x in layers]).detach() for name in ("weight", "bias"))
            for values, variance in ((weight, 2 / (inputs + outputs)), (bias, 1 / outputs)):
                n = values.numel()
                assert abs(values.mean()) < 4 * (variance / n) ** 0.5, (part, i)
                assert abs((values**2).mean() / variance - 1) < 4 * (2 / n) ** 0.5, (part, i)
    for field, size in enumerate((4, 100, 2500)):
        rows = torch.stack([model.embeddings[field].weight for model in models]).detach()
        assert rows.abs().max() <= size**-0.5
        assert abs(3 * size * (rows**2).mean() - 1) < 4 * (0.8 / rows.numel()) ** 0.5  # Var(3u²) = 4/5


@pytest.fixture
def deepctr():
    """DeepCTR's xDeepFM without its package, whose import asks a server for the newest version."""
    spec = importlib.util.find_spec("deepctr_torch")
    if spec is None:
        pytest.skip("needs deepctr-torch: pip install deepctr-torch")
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "deepctr_torch"}
    bare = types.ModuleType("deepctr_torch")
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules["deepctr_torch"] = bare
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = importlib.import_module("deepctr_torch.models.xdeepfm")
        features = importlib.import_module("deepctr_torch.inputs")
    yield models.xDeepFM, features
    for name in [name for name in sys.modules if name.split(".")[0] == "deepctr_torch"]:
        del sys.modules[name]
    sys.modules.update(before)


class Theirs(nn.Module):
    """DeepCTR's xDeepFM with the weights of ours, from numbers and codes to logits."""

    @torch.no_grad()
    def __init__(self, deepctr, mine):
        super().__init__()
        make, features = deepctr
        fields = taken = len(mine.sizes)
        options, sizes = mine.options, enumerate(mine.sizes)
        columns = [features.SparseFeat(f"c{f}", size, options["embedding"]) for f, size in sizes]
        columns += [features.DenseFeat(f"n{i}") for i in range(mine.numbers)]
        widths = options["hidden"], options["interactions"]
        model = make(columns, columns, *widths, l2_reg_linear=0, l2_reg_embedding=0).to(torch.get_default_dtype())
        for layer, conv, width in zip(mine.maps, model.cin.conv1ds, options["interactions"], strict=True):
            weight = layer.weight.view(-1, fields, taken)  # theirs has the maps before the fields
            conv.weight.copy_(weight.transpose(1, 2).reshape(len(weight), -1)[..., None])
            conv.bias.copy_(layer.bias)
            taken = width // 2
        for layer, linear in zip(mine.hidden[::2], model.dnn.linears, strict=True):
            linear.load_state_dict(layer.state_dict())
        model.dnn_linear.weight.copy_(mine.hidden_out.weight)
        model.cin_linear.weight.copy_(mine.maps_out.weight)
        model.out.bias.copy_(mine.out.bias)
        if mine.linear_numbers is not None:
            model.linear_model.weight.copy_(mine.linear_numbers.weight.T)
        for f in range(fields):
            model.linear_model.embedding_dict[f"c{f}"].weight.copy_(mine.linear[f].weight)
            model.embedding_dict[f"c{f}"].weight.copy_(mine.embeddings[f].weight)
        self.model = model

    def forward(self, dense, codes):
        return torch.logit(self.model(torch.cat([codes.to(dense.dtype), dense], 1)))[:, 0]


@pytest.mark.parametrize("numbers", [0, 3], ids=["no numbers", "numbers"])
@pytest.mark.parametrize("interactions", [(8,), (8, 6), (6, 4, 5)], ids=str)
def test_an_xdeepfm_equals_deepctrs_before_and_after_steps_of_sgd(deepctr, numbers, interactions, in_double):
    clicks = draw(256, numbers, (3, 7, 5, 2))
    shape = partial(XDeepFM, hidden=(12, 8), interactions=interactions, deviation=0.3)  # so that every part has its say
    torch.manual_seed(0)
    mine = shape(clicks.sizes, numbers)
    theirs = Theirs(deepctr, mine)
    first = theirs(*inputs(clicks)).detach()
    assert first.std() > 0.1
    torch.testing.assert_close(mine(*inputs(clicks)).detach(), first, rtol=0, atol=1e-10)
    assert sum(w.numel() for w in theirs.parameters()) == sum(w.numel() for w in mine.parameters() if w.requires_grad)
    plain_training(theirs, clicks, 5, torch.optim.SGD(theirs.parameters(), lr=0.1))
    last = theirs(*inputs(clicks)).detach()
    fit = train_replicas(shape, clicks, n_replicas=1, batch_size=256, epochs=5)
    np.testing.assert_allclose(fit.logits(clicks)[:, 0], last, rtol=0, atol=1e-6)
    assert (last - first).abs().max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_a_replica_is_a_module_that_can_be_saved_and_trained_further(name, tmp_path):
    clicks = draw().to("cpu")
    fit = train_replicas(MODELS[name], clicks)
    module = fit.module(1)
    logits = module(clicks.dense, clicks.codes)
    np.testing.assert_allclose(logits.detach().numpy(), fit.logits(clicks)[:, 1], atol=1e-6)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = fit.module(0)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(clicks.dense, clicks.codes), logits)
    logits.sum().backward()
    assert all(w.grad is not None for w in module.parameters() if w.requires_grad)


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_model_runs_folded_in_onnx_runtime(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    clicks = draw()
    model = train_replicas(MODELS[name], clicks).module(0)
    numbers, codes = inputs(clicks)
    folded = fold(Affine(0.8, -0.3), model, X=(numbers, codes))
    expected = (0.8 * model(numbers, codes).double() - 0.3).detach()
    assert (folded(numbers, codes) - expected).abs().max() < 1e-6
    batch = torch.export.Dim("batch", min=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: batch}, {0: batch})
        program = torch.onnx.export(folded, (numbers[:5], codes[:5]), dynamic_shapes=shapes, verbose=False)
    program.save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    (made,) = session.run(None, dict(zip(names, (clicks.dense, clicks.codes.astype(np.int64)), strict=True)))
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-6)


def test_a_click_model_is_stacked_as_any_other_network():
    clicks = draw()
    data = clicks.dense, clicks.codes, clicks.label
    options = {"batch_size": 100, "epochs": 2}
    general = uncurse.deep.train_replicas(lambda: SMALL(clicks.sizes, 3), data, **options)
    special = train_replicas(SMALL, clicks, **options)
    np.testing.assert_allclose(general.logits(data), special.logits(clicks), rtol=0, atol=1e-5)


# ---------------------------------------------------------------------- clicks


def test_clicks_refuse_parts_that_do_not_fit():
    good = draw(6, 2, (3, 4))
    for parts, message in (
        ((good.dense[:5], good.codes, good.label, good.sizes), "dense has 5 rows"),
        ((good.dense, good.codes[:4], good.label, good.sizes), "dense has 6 rows"),
        ((good.dense, good.codes, good.label, good.sizes, np.zeros(1)), "truth has 1 rows"),
        ((good.dense, good.codes, good.label, (3, 4, 5)), r"\(6, 2\) and 3 sizes"),
        ((good.dense, good.codes[:, 0], good.label, (3,)), r"\(6,\) and 1 sizes"),
        ((good.dense[:, 0], good.codes, good.label, good.sizes), r"dense has shape \(6,\)"),
    ):
        with pytest.raises(UncurseError, match=message):
            Clicks(*parts)


def test_clicks_of_a_pool_have_no_labels_and_may_have_no_numbers():
    good = draw(30, 2, (3, 4))
    without = Clicks(None, good.codes, good.label, good.sizes)
    fit = train_replicas(SMALL, without)
    pool = Clicks(None, good.codes.tolist(), sizes=good.sizes)
    np.testing.assert_array_equal(fit.logits(pool), fit.logits(without))
    with pytest.raises(UncurseError, match="no labels"):
        train_replicas(SMALL, pool)


@pytest.mark.parametrize("rows", [slice(1, 4), np.array([4, 1]), np.arange(6) > 2], ids=["slice", "indices", "mask"])
def test_clicks_take_rows_of_every_part(rows):
    good = draw(6, 2, (3, 4))
    good = Clicks(good.dense, good.codes, good.label, good.sizes, np.arange(6) / 6)
    for taken in (good.take(rows), good.to("cpu").take(rows)):
        assert len(taken) == len(np.arange(6)[rows])
        assert taken.sizes == (3, 4)
        for part in ("dense", "codes", "label", "truth"):
            assert np.array_equal(getattr(taken, part), getattr(good, part)[rows])


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("place", "code"), [(0, 5), (1, -1), (1, 7), (2, 30)])
def test_codes_outside_of_their_field_are_refused(place, code):
    clicks = draw()
    fit = train_replicas(SMALL, clicks)
    clicks.codes[3, place] = code  # of the next category, of the last one's, of the next replica's rows
    for call in (lambda: train_replicas(SMALL, clicks), lambda: fit.logits(clicks)):
        with pytest.raises(UncurseError, match=f"field {place} has codes from"):
            call()


def test_codes_that_are_fractions_are_refused():
    clicks = draw()
    with pytest.raises(UncurseError, match=r"torch\.float32; pass int32"):
        train_replicas(SMALL, Clicks(clicks.dense, clicks.codes.astype(np.float32), clicks.label, clicks.sizes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_replicas(SMALL, (1, 2)), "Clicks, not on tuple"),
        (lambda: train_replicas(type("Half", (DLRM,), {}), draw()), "Half is not a DLRM or XDeepFM"),
        (lambda: DLRM(()), "sizes is empty"),
        (lambda: XDeepFM((3, 0)), "sizes=0"),
        (lambda: XDeepFM((3, 4), interactions=()), r"interactions=\(\)"),
        (lambda: XDeepFM((3, 4), interactions=(5, 4)), r"interactions=\(5, 4\)"),
    ],
)
def test_models_that_cannot_be_are_refused(call, message):
    with pytest.raises(UncurseError, match=message):
        call()
