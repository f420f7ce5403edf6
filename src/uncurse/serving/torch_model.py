"""PyTorch: the last `nn.Linear`, where it is seen that its output is the model's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..errors import UncurseError
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
    "float",
    "double",
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
    kind = type(module).__name__
    if not isinstance(module, nn.Module):
        raise UncurseError(f"a {kind} of torch is no model; pass an nn.Module, or its state dict")
    made = _copy(module)
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        made.module = fold_model(score_map, module.module, layer=layer, example=example)
        return made
    if hasattr(made, "fold_line"):  # whoever wrote it knows how
        cast(Any, made).fold_line(*line_of(score_map, RAW, f"this {kind}"))
        return made
    served = _copy(module).eval()  # what is served, and what a trace may leave its marks on
    found, ends_in_sigmoid, why = _traced(served)
    name = layer if layer is not None else found
    if found is not None and found != name:
        why = f"ends in its layer {found!r}, not in {name!r}"
    if name is None and example is not None:
        name = next((n for n, part in reversed(list(module.named_modules())) if _is_last(part)), None)
    if (example is None and found != name) or name is None:
        remedy = "pass layer= and example=inputs of one batch, and it is tried, or "
        raise UncurseError(f"this {kind} {why}; {'' if example is not None else remedy}{ELSEWHERE}")
    parts = dict(made.named_modules())
    part = parts.get(name)
    if not isinstance(part, nn.Linear):
        linear = ", ".join(n for n, part in parts.items() if isinstance(part, nn.Linear)) or "none"
        raise UncurseError(f"layer={name!r} is no nn.Linear of this module; there are: {linear}")
    _check_hooks(made, part, name)
    if ends_in_sigmoid is None:
        with torch.no_grad():
            out = _call(served, example)
        ends_in_sigmoid = bool(((out > 0) & (out < 1)).all())
    slope, intercept = line_of(score_map, "logistic" if ends_in_sigmoid else RAW, f"this {kind}")
    _fold_layer(part.weight, part.bias, name, slope, intercept)
    if example is not None:
        _try(_copy(module).eval(), _copy(made).eval(), example, slope, intercept, ends_in_sigmoid, name)
    return made


def fold_state(score_map: ScoreMap, state: Mapping[str, Any], *, layer: str | None = None) -> dict[str, Any]:
    """A copy of a state dict with the map in one layer: the only one of a single output, or the one named."""
    if not all(isinstance(name, str) for name in state):
        raise UncurseError("this is no state dict: not all of its keys are names; pass model.state_dict()")
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    layers = [name.removesuffix("weight").rstrip(".") for name in tensors if _is_row(tensors, name)]
    if layer is None:
        if len(layers) != 1:
            seen = ", ".join(map(repr, layers)) or "none"
            raise UncurseError(f"layers of one output with a bias in this state dict: {seen}; name the last (--layer)")
        other = _rival(tensors, layers[0])
        if other is not None:
            raise UncurseError(
                f"the only layer of one output with a bias is {layers[0]!r}, but {other!r} may be part of the output "
                "too: weights do not tell; name the layer if it is all of it (--layer), or fold the module in Python"
            )
    elif layer not in layers:
        seen = ", ".join(layers) or "none"
        raise UncurseError(f"layer={layer!r} is no layer of one output with a bias; there are: {seen}")
    name = layers[0] if layer is None else layer
    _check_own(tensors, name)
    line = line_of(score_map, RAW, "this state dict")
    weight, bias = _names(name)
    made = {**state, weight: tensors[weight].clone(), bias: tensors[bias].clone()}
    _fold_layer(made[weight], made[bias], name, *line)
    return made


def _copy(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # whatever a foreign module holds
        raise UncurseError(f"this {type(module).__name__} cannot be copied ({error}); remove what it caches") from None


def _is_last(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) and part.out_features == 1


def _names(layer: str) -> tuple[str, str]:
    return f"{layer}.weight".lstrip("."), f"{layer}.bias".lstrip(".")


def _is_row(state: Mapping[str, Tensor], name: str) -> bool:
    bias = state.get(name.removesuffix("weight") + "bias")
    named = name == "weight" or name.endswith(".weight")
    return named and state[name].dim() == 2 and len(state[name]) == 1 and bias is not None and tuple(bias.shape) == (1,)


def _rival(state: Mapping[str, Tensor], layer: str) -> str | None:
    """Another tensor that may make a part of the output: one column or row, a weight made of parts, or a later one."""
    mine = _names(layer)
    after = False
    for name, value in state.items():
        after = after or name in mine
        narrow = value.dim() == 2 and 1 in value.shape
        made = "parametrizations" in name or name.endswith(("weight_g", "weight_v"))
        if name not in mine and (narrow or made or (after and value.dim() > 1)):
            return name
    return None


def _check_own(state: Mapping[str, Tensor], layer: str) -> None:
    """Its numbers are no other layer's too."""
    mine = _names(layer)
    places = [_place(state[name]) for name in mine if name in state]
    for name, value in state.items():
        if name not in mine and isinstance(value, Tensor):
            start, end = _place(value)
            if any(start < last and first < end for first, last in places):
                raise UncurseError(
                    f"the layer {layer!r} shares its numbers with {name!r}, which must not change; {ELSEWHERE}"
                )


def _place(value: Tensor) -> tuple[int, int]:
    if value.layout != torch.strided or value.is_meta:
        return 0, 0
    reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), value.data_ptr() + (
        reach + 1
    ) * value.element_size() if value.numel() else value.data_ptr()


def _check_hooks(module: nn.Module, layer: nn.Module, name: str) -> None:
    for part, what in ((module, "itself"), (layer, f"its layer {name!r}")):
        if part._forward_hooks or part._forward_pre_hooks:
            raise UncurseError(
                f"this {type(module).__name__} has hooks on {what}, which may change what it gives; remove them, or "
                f"{ELSEWHERE}"
            )


def _fold_layer(weight: Tensor, bias: Tensor | None, layer: str, slope: float, intercept: float) -> None:
    if isinstance(weight, nn.parameter.UninitializedParameter) or weight.is_meta:
        raise UncurseError(f"the layer {layer!r} has no numbers yet; train or load the module first")
    if weight.shape[0] != 1:
        raise UncurseError(
            f"the layer {layer!r} has {weight.shape[0]} outputs, and a map is for one score; {ELSEWHERE}"
        )
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

    if isinstance(module, nn.Linear):
        return "", False, ""
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
            if any(one.op == "get_attr" and one.target in _names(str(node.target)) for one in graph.nodes):
                return None, None, f"uses the numbers of its layer {node.target!r} elsewhere too"
            _check_own(
                {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())},
                str(node.target),
            )
            return str(node.target), sigmoid, ""
        elif what not in _MOVES:
            return None, None, _REASONS.get(what, f"ends in {what!r}, not in a linear layer")
        if len(node.users) > 1:
            return None, None, f"uses what {what!r} gives more than once"
        if (
            node.op == "call_module"
            and (part := parts[str(node.target)])
            and (part._forward_hooks or part._forward_pre_hooks)
        ):
            return None, None, f"has hooks on {node.target!r}"
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
        before, after = _call(module, example), _call(folded, example)
    if sigmoid:
        before, after = torch.logit(before), torch.logit(after)
    known = before.abs() < 8 if sigmoid else torch.ones_like(before, dtype=torch.bool)
    away = (slope * before + intercept - after).abs()[known]
    if not len(away):
        raise UncurseError("the example has no row by which to tell, of a logit within 8; pass another batch")
    if not float((away / (1 + before[known].abs())).max()) < _CLOSE:
        raise UncurseError(
            f"the layer {layer!r} is not all of the output: on the example the folded module is off by "
            f"{float(away.max()):.3g}; {ELSEWHERE}"
        )


__all__ = ["fold_model", "fold_state"]
