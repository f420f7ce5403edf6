"""PyTorch: the last linear layer, if it is the output."""

import copy

import numpy as np
import pytest
from folding import MAP, close
from scipy.special import logit

from uncurse import Affine, UncurseError, fold


@pytest.fixture(scope="module")
def nets():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, end):
            super().__init__()
            self.hidden, self.out, self.wide = nn.Linear(6, 16), nn.Linear(16, 1), nn.Linear(6, 1)
            self.end = end

        def forward(self, x):
            h = torch.relu(self.hidden(x))
            if self.end == "branches" and x.sum() > -1e9:
                return self.out(h)[:, 0]
            return {
                "logit": lambda: self.out(h).squeeze(-1),
                "sigmoid": lambda: torch.sigmoid(self.out(h)),
                "sum": lambda: self.out(h) + self.wide(x),
                "softmax": lambda: torch.softmax(torch.cat([self.out(h), self.wide(x)], 1), 1),
                "average": lambda: (torch.sigmoid(self.out(h)) + torch.sigmoid(self.wide(x))) / 2,
                "two": lambda: (self.out(h), h),
                "twice": lambda: self.out(h + self.out(h)),
                "tanh": lambda: torch.tanh(self.out(h)),
                "branches": lambda: self.out(h),
            }[self.end]()

    torch.manual_seed(0)
    return torch, nn, Net


def test_torch(nets, world, tmp_path):
    torch, nn, Net = nets
    x = torch.from_numpy(world[0]).float()
    stack = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    for module in (stack, Net("logit"), Net("sigmoid"), copy.deepcopy(stack).double()):
        given = x.to(next(module.parameters()).dtype)
        state = copy.deepcopy(module.state_dict())
        with torch.no_grad():
            before, after = (np.asarray(one(given).double()).ravel() for one in (module, fold(MAP, module)))
        if getattr(module, "end", "") == "sigmoid":
            assert np.abs(MAP.at_logits(logit(before)) - after).max() <= 1e-6
        else:
            assert np.abs(0.8 * before - 0.3 - after)[np.abs(before) <= 10].max() <= 1e-6
        assert all((value == state[name]).all() for name, value in module.state_dict().items())
    torch.save(fold(MAP, stack).state_dict(), tmp_path / "m.pt")
    again = copy.deepcopy(stack)
    again.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    assert (again(x) == fold(MAP, stack)(x)).all()


def test_rows_tell_which_layer_is_the_output(nets, world):
    torch, _, Net = nets
    x = torch.from_numpy(world[0][:100]).float()
    net = Net("branches")
    with torch.no_grad():
        for options in ({}, {"X": x}, {"X": x, "layer": "out"}):
            assert (0.8 * net(x) - 0.3 - fold(MAP, net, **options)(x)).abs().max() < 1e-6
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, net, layer="wide", X=x)
    with pytest.raises(UncurseError, match="layer='top'"):
        fold(MAP, net, layer="top", X=x)


@pytest.mark.parametrize("end", ["sum", "softmax", "average", "two", "twice", "tanh"])
def test_what_is_no_linear_layer_is_refused(end, nets):
    with pytest.raises(UncurseError):
        fold(MAP, nets[2](end))


def changed_otherwise(nn):
    """Modules that look like a linear layer and predict something else."""
    norms = nn.utils.parametrizations

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class Shifted(nn.Linear):
        def __call__(self, x):
            return super().__call__(x) + 1

    hooked, patched = nn.Linear(6, 1), nn.Linear(6, 1)
    hooked.register_forward_hook(lambda module, given, out: out / 2)
    patched.forward = lambda x: nn.Linear.forward(patched, x) ** 3
    yield from (hooked, patched, Doubled(6, 1), Shifted(6, 1))
    yield from (norms.weight_norm(nn.Linear(6, 1)), norms.spectral_norm(nn.Linear(6, 1)))
    tied = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    tied[1].weight = tied[0].weight
    yield tied


def test_layers_that_predict_otherwise_are_refused_or_right(nets, world):
    torch, nn, _ = nets
    for module in changed_otherwise(nn):
        x = torch.from_numpy(world[0]).float()[:, : 1 if isinstance(module, nn.Sequential) else 6]
        try:
            folded = fold(MAP, module)
        except UncurseError:
            continue
        with torch.no_grad():
            assert (0.8 * module(x) - 0.3 - folded(x)).abs().max() < 1e-4 * module(x).abs().max()


def test_torch_layers_that_hold_no_line(nets):
    _, nn, _ = nets
    for module in (nn.Linear(6, 1, bias=False), nn.Linear(6, 3), nn.Linear(6, 1).half(), nn.ReLU()):
        with pytest.raises(UncurseError, match="linear layer"):
            fold(MAP, nn.Sequential(module))


def test_a_module_may_know_how(nets, world):
    torch, nn, _ = nets

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 1), nn.Linear(6, 1)

        def forward(self, x):
            return self.a(x) + self.b(x)

        def fold_line(self, slope, intercept):
            with torch.no_grad():
                for layer in (self.a, self.b):
                    layer.weight *= slope
                    layer.bias *= slope
                self.a.bias += intercept

    net, x = Sum().double(), torch.from_numpy(world[0])  # the two parts may cancel, in single precision to 1e-5
    with torch.no_grad():
        close(fold(MAP, net)(x).numpy(), (0.8 * net(x) - 0.3).numpy(), 1e-12)


def test_a_comparison_leaves_no_mark_and_sees_what_is_served(nets):
    nn = nets[1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.calls = nn.Linear(6, 1), 0

        def forward(self, x):
            self.calls += 1
            self.seen = self.out(x)
            return self.seen if self.training else self.seen - 2.0

    net = Net()
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, net)
    assert net.calls == 0
    assert not hasattr(net, "seen")
    assert net.training


def test_a_clipped_probability_is_refused(nets):
    torch, nn, _ = nets
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 1), nn.Hardtanh(0.0, 1.0))
    for link in ("identity", "log", "logistic"):
        with pytest.raises(UncurseError, match="differs from the map"):
            fold(Affine(0.9, -0.01, link, "probability"), module)


def test_rows_must_tell(nets):
    torch, _, Net = nets
    with pytest.raises(UncurseError, match="X="):
        fold(MAP, Net("branches"), X=torch.zeros(0, 6))


def test_a_linear_layer_alone_and_in_parallel(nets, world):
    torch, nn, _ = nets
    x = torch.from_numpy(world[0]).float()
    layer = nn.Linear(6, 1)
    with torch.no_grad():
        for module in (layer, nn.DataParallel(layer)):
            close(fold(MAP, module)(x).numpy(), (0.8 * module(x) - 0.3).numpy(), 1e-6)


def test_the_layer_of_a_state_dict_is_named(nets):
    torch = nets[0]
    state = {"wide.weight": torch.ones(1, 5), "top.weight": torch.ones(1, 8), "top.bias": torch.ones(1)}
    with pytest.raises(UncurseError, match=r"layer=None.*'top'"):
        fold(MAP, state)
    with pytest.raises(UncurseError, match="layer='wide'"):
        fold(MAP, state, layer="wide")
    assert float(fold(MAP, state, layer="top")["top.bias"]) == pytest.approx(0.5)
    assert (state["top.bias"] == 1).all()


@pytest.mark.parametrize("tail", ["BatchNorm1d(1)", "LayerNorm(1)", "PReLU()", "Linear(1, 1)"])
def test_a_state_dict_with_one_number_after_the_layer_is_refused(tail):
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 3), nn.PReLU(), nn.BatchNorm1d(3), nn.Linear(3, 1), eval(f"nn.{tail}"))
    with pytest.raises(UncurseError, match=r"4\.\w+ is one number .* layer '3'"):
        fold(MAP, net.state_dict(), layer="3")
    fold(MAP, net[:4].state_dict(), layer="3")


def test_a_module_that_was_folded_is_refused(nets):
    from torch import nn

    folded = fold(MAP, nn.Linear(4, 1))
    with pytest.raises(UncurseError, match="holds a map already"):
        fold(MAP, folded)
    assert fold(MAP, folded, again=True).bias is not None


def test_a_layer_without_weights_yet_is_refused():
    from torch import nn

    with pytest.raises(UncurseError, match="uninitialized"):
        fold(MAP, nn.Sequential(nn.LazyLinear(1)))
