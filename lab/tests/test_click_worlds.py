"""Worlds with known probabilities: what is asked of them holds within standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from uncurse import UncurseError

torch = pytest.importorskip("torch")
from uncurse_lab.worlds import ClickWorld  # noqa: E402

SMALL = 0.003
SHAPES = {"criteo": ClickWorld.criteo, "avazu": ClickWorld.avazu}


@pytest.fixture(scope="module", params=sorted(SHAPES))
def drawn(request):
    world = SHAPES[request.param](scale=SMALL)
    return world, world.draw(30_000, seed=5)


def test_shapes_and_kinds_are_those_a_network_takes(drawn):
    world, clicks = drawn
    rows = len(clicks)
    assert clicks.dense.shape == (rows, len(world.numbers))
    assert clicks.codes.shape == (rows, len(world.fields))
    kinds = [part.dtype for part in (clicks.dense, clicks.codes, clicks.label, clicks.truth)]
    assert kinds == [torch.float32, torch.int32, torch.uint8, torch.float32]
    assert all(low >= 0 and high < size for low, high, size in zip(*_ends(clicks.codes), world.sizes, strict=True))
    assert not (clicks.codes == 1).any()  # the unknown code is left to the encoder
    assert torch.isfinite(clicks.dense).all()
    assert (clicks.dense >= 0).all()


def _ends(codes):
    return codes.amin(0).tolist(), codes.amax(0).tolist()


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize("rate", [0.006, 0.05, None, 0.3])
def test_the_rate_is_met(name, rate):
    world = SHAPES[name](**({} if rate is None else {"rate": rate}), scale=SMALL, seed=3)
    truth = world.draw(20_000, seed=11).truth.double()
    # Two samples meet here: this one and that of 2^17 rows which settled the intercept.
    error = float(truth.std()) * (1 / 20_000 + 1 / 2**17) ** 0.5
    assert abs(float(truth.mean()) - world.rate) < 4 * error
    assert abs(float(truth.mean()) - world.rate) < 0.005


@pytest.mark.parametrize(("name", "low", "high", "spread"), [("criteo", 0.79, 0.82, 1.4), ("avazu", 0.75, 0.78, 1.1)])
def test_the_truth_separates_as_good_models_do_on_the_public_logs(name, low, high, spread):
    world = SHAPES[name](seed=4)  # full vocabularies
    clicks = world.draw(60_000, seed=2)
    assert low < roc_auc_score(clicks.label, clicks.truth) < high
    assert float(torch.logit(clicks.truth).std()) == pytest.approx(spread, rel=0.03)


def test_labels_are_flips_of_the_truth(drawn):
    _, clicks = drawn
    for rows in torch.tensor_split(torch.argsort(clicks.truth), 20):
        truth, label = clicks.truth[rows].double(), clicks.label[rows].double()
        error = float((truth * (1 - truth)).sum()) ** 0.5
        assert abs(float((label - truth).sum())) < 4 * error


def test_interactions_carry_what_main_effects_cannot(drawn):
    world, clicks = drawn
    main, mixed = world.parts(clicks.dense, clicks.codes)
    # The best model of the main effects alone orders rows by them.
    lost = roc_auc_score(clicks.label, main + mixed) - roc_auc_score(clicks.label, main)
    assert lost > 0.03
    assert abs(float(torch.corrcoef(torch.stack([main, mixed]))[0, 1])) < 0.2


def test_the_truth_is_a_function_of_the_encoded_row(drawn):
    world, clicks = drawn
    again = world.truth(clicks.dense[100:200], clicks.codes[100:200])
    torch.testing.assert_close(again, clicks.truth[100:200], rtol=1e-5, atol=1e-7)


def test_a_longer_draw_begins_with_the_shorter_one_across_chunks():
    world = ClickWorld.criteo(scale=SMALL)
    threads = torch.get_num_threads()
    few, many = world.draw(33_000, seed=3), world.draw(70_000, seed=3)
    assert torch.get_num_threads() == threads  # one at work, as many as before after it
    for name in ("dense", "codes", "label"):
        torch.testing.assert_close(getattr(many, name)[:33_000], getattr(few, name))
    torch.testing.assert_close(many.truth[:33_000], few.truth)


def test_seeds_of_the_draw_change_rows_and_seeds_of_the_world_change_the_function():
    world, other = ClickWorld.avazu(scale=SMALL), ClickWorld.avazu(scale=SMALL, seed=1)
    one, same, two = world.draw(5000, seed=0), world.draw(5000, seed=0), world.draw(5000, seed=1)
    assert torch.equal(one.codes, same.codes)
    assert torch.equal(one.label, same.label)
    assert torch.equal(one.codes, world.draw(5000, seed=np.int64(0)).codes)
    assert (one.codes != two.codes).any(1).float().mean() > 0.99
    torch.testing.assert_close(world.truth(two.dense, two.codes), two.truth)
    logits = torch.stack([torch.logit(each.truth(one.dense, one.codes)) for each in (world, other)])
    assert abs(float(torch.corrcoef(logits)[0, 1])) < 0.3


def test_an_avazu_row_has_a_site_or_an_app():
    world = ClickWorld.avazu(scale=SMALL)
    names = [item.name for item in world.fields]
    codes = world.draw(5000, seed=6).codes
    site, app = (codes[:, names.index(name)] > 0 for name in ("site_id", "app_id"))
    assert (site ^ app).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClickWorld.criteo(25.6), "rate=25.6"),
        (lambda: ClickWorld.avazu(scale=0), "scale=0"),
        (lambda: ClickWorld.avazu(scale=SMALL).draw(0, seed=0), "rows=0"),
    ],
)
def test_impossible_worlds_and_draws_are_refused(make, message):
    with pytest.raises(UncurseError, match=message):
        make()
