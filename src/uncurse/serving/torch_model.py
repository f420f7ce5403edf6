"""PyTorch: the last `nn.Linear`, where it is seen that its output is the model's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..links import UncurseError
from ..maps import ScoreMap
from .lines import ELSEWHERE, RAW, line_of

# What may lie between the last layer and the output: it moves numbers about and changes none.
_MOVES = (
    "squeeze",
    "unsqueeze",
    "view",
    "reshape",
    "flatten",
    "contiguous",
    "getitem",
    "ravel",
    "Flatten",
    "Identity",
    "Dropout",
)
_SIGMOIDS = ("sigmoid", "sigmoid_", "expit", "Sigmoid")
_REASONS = {
    **dict.fromkeys(("softmax", "log_softmax", "Softmax", "LogSoftmax"), "ends in a softmax of many classes"),
    **dict.fromkeys(("mean", "stack", "truediv", "div"), "ends in an average"),
    **dict.fromkeys(("add", "add_", "iadd", "sum", "mul", "cat"), "ends in a sum of parts, of which no layer is all"),
}
_CLOSE = 1e-4  # to tell a layer that is the output from one that is not; single precision is far below


def fold_model(score_map: ScoreMap, module: nn.Module, *, layer: str | None = None, example: Any = None) -> nn.Module:
    """A copy of the module with the map in its last linear layer.

    A module whose logit is a sum of parts may have a method ``fold_line(slope, intercept)`` that changes them in place.

    Parameters
    ----------
    layer
        The name of that layer, where it is not the one that a trace of the module finds.
    example
        Inputs of one batch (a tensor or a tuple): needed where the module cannot be traced, to see that the layer is
        the output's; checked wherever given.
    """
    if hasattr(module, "fold_line"):  # whoever wrote it knows how
        own: Any = copy.deepcopy(module)
        own.fold_line(*line_of(score_map, RAW, f"this {type(module).__name__}"))
        return cast(nn.Module, own)
    found, ends_in_sigmoid, why = _traced(module)
    name = layer or found
    if found is not None and found != name:
        why = f"ends in its layer {found!r}, not in {name!r}"
    if name is None and example is not None:
        name = next((n for n, part in reversed(list(module.named_modules())) if _is_last(part)), None)
    if (example is None and found != name) or name is None:
        remedy = "pass layer= and example=inputs of one batch, and it is tried, or "
        raise UncurseError(f"this {type(module).__name__} {why}; {'' if example is not None else remedy}{ELSEWHERE}")
    made = copy.deepcopy(module)
    parts = dict(made.named_modules())
    if not isinstance(parts.get(name), nn.Linear):
        linear = ", ".join(n for n, part in parts.items() if isinstance(part, nn.Linear)) or "none"
        raise UncurseError(f"layer={name!r} is no nn.Linear of this module; there are: {linear}")
    if ends_in_sigmoid is None:
        with torch.no_grad():
            out = _call(copy.deepcopy(module).eval(), example)
        ends_in_sigmoid = bool(((out > 0) & (out < 1)).all())
    slope, intercept = line_of(score_map, "logistic" if ends_in_sigmoid else RAW, f"this {type(module).__name__}")
    state = made.state_dict(keep_vars=True)
    _fold_layer(state, name, slope, intercept)
    if example is not None:
        _try(module, made, example, slope, intercept, ends_in_sigmoid, name)
    return made


def fold_state(score_map: ScoreMap, state: Mapping[str, Tensor], *, layer: str | None = None) -> dict[str, Tensor]:
    """A copy of a state dict with the map in one layer: the only one of a single output, or the one named."""
    made = {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}
    last = [
        n.removesuffix("weight").rstrip(".") for n, w in made.items() if n.endswith("weight") and _is_row(made, n, w)
    ]
    if layer is None and len(last) != 1:
        seen = ", ".join(map(repr, last)) or "none"
        raise UncurseError(f"layers of one output with a bias in this state dict: {seen}; name the last one (--layer)")
    name = last[0] if layer is None else layer
    if layer is not None and layer not in last:
        raise UncurseError(
            f"layer={layer!r} is no layer of one output with a bias; there are: {', '.join(last) or 'none'}"
        )
    _check_own(state, name)
    _fold_layer(made, name, *line_of(score_map, RAW, "this state dict"))
    return made


def _is_last(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) and part.out_features == 1


def _is_row(state: Mapping[str, Any], name: str, weight: Any) -> bool:
    bias = state.get(name.removesuffix("weight") + "bias")
    return weight.dim() == 2 and weight.shape[0] == 1 and isinstance(bias, Tensor) and tuple(bias.shape) == (1,)


def _check_own(state: Mapping[str, Tensor], layer: str) -> None:
    """Its numbers are no other layer's too."""
    mine = [f"{layer}.{part}".lstrip(".") for part in ("weight", "bias")]
    places = {state[name].untyped_storage().data_ptr() for name in mine if name in state}
    for name, value in state.items():
        if name not in mine and isinstance(value, Tensor) and value.untyped_storage().data_ptr() in places:
            raise UncurseError(
                f"the layer {layer!r} shares its numbers with {name!r}, which must not change; {ELSEWHERE}"
            )


def _fold_layer(state: Mapping[str, Tensor], layer: str, slope: float, intercept: float) -> None:
    weight, bias = (state.get(f"{layer}.{part}".lstrip(".")) for part in ("weight", "bias"))
    if weight is None or weight.shape[0] != 1:
        outputs = "no weight" if weight is None else f"{weight.shape[0]} outputs"
        raise UncurseError(f"the layer {layer!r} has {outputs}, and a map is for one score; {ELSEWHERE}")
    if bias is None:
        raise UncurseError(f"the layer {layer!r} has no bias to hold the shift; train it with one, or {ELSEWHERE}")
    if weight.dtype not in (torch.float32, torch.float64):
        raise UncurseError(f"the layer {layer!r} holds {weight.dtype}, too coarse to keep the order; use float32")
    with torch.no_grad():
        weight.copy_(weight.double() * slope)
        bias.copy_(bias.double() * slope + intercept)


def _traced(module: nn.Module) -> tuple[str | None, bool | None, str]:
    """The linear layer whose output is the module's, whether a sigmoid follows it; or None twice, and why."""
    from torch import fx

    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # whatever a foreign forward raises under a trace
        return (
            None,
            None,
            f"cannot be traced ({str(error).splitlines()[0][:80] if str(error) else type(error).__name__})",
        )
    parts = dict(module.named_modules())
    output = next(node for node in graph.nodes if node.op == "output")
    node, sigmoid = output.args[0], False
    while isinstance(node, fx.Node):
        what = _operation(node, parts)
        if what in _SIGMOIDS and not sigmoid:
            sigmoid = True
        elif node.op == "call_module" and isinstance(parts[str(node.target)], nn.Linear):
            calls = [one for one in graph.nodes if one.op == "call_module" and one.target == node.target]
            if len(calls) > 1:
                return None, None, f"calls its layer {node.target!r} more than once"
            if len(node.users) > 1:
                return None, None, f"uses what its layer {node.target!r} gives more than once"
            _check_own(module.state_dict(), str(node.target))
            return str(node.target), sigmoid, ""
        elif what not in _MOVES:
            return None, None, _REASONS.get(what, f"ends in {what!r}, not in a linear layer")
        if len(node.users) > 1:
            return None, None, f"uses what {what!r} gives more than once"
        node = node.args[0] if node.args else None
    return None, None, "has several outputs" if isinstance(node, tuple | list | dict) else "ends in no layer"


def _operation(node: Any, parts: Mapping[str, nn.Module]) -> str:
    if node.op == "call_module":
        return type(parts[str(node.target)]).__name__
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target))
    return str(node.target) if node.op == "call_method" else str(node.op)


def _call(module: nn.Module, example: Any) -> Tensor:
    out = module(*example) if isinstance(example, tuple | list) else module(example)
    if not isinstance(out, Tensor):
        raise UncurseError(f"this {type(module).__name__} gives a {type(out).__name__}, not one tensor of scores")
    return out.double()


def _try(
    module: nn.Module, folded: nn.Module, example: Any, slope: float, intercept: float, sigmoid: bool, layer: str
) -> None:
    with torch.no_grad():
        before, after = (_call(copy.deepcopy(one).eval(), example) for one in (module, folded))
    if sigmoid:
        before, after = torch.logit(before), torch.logit(after)
    known = before.abs() < 8 if sigmoid else torch.ones_like(before, dtype=torch.bool)
    away = (slope * before + intercept - after).abs()[known]
    if len(away) and not float((away / (1 + before[known].abs())).max()) < _CLOSE:
        raise UncurseError(
            f"the layer {layer!r} is not all of the output: on the example the folded module is off by "
            f"{float(away.max()):.3g}; {ELSEWHERE}"
        )


__all__ = ["fold_model", "fold_state"]
