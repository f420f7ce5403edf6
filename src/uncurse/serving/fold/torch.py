"""PyTorch: the last `nn.Linear`, if a trace or an example shows that its output is the model's.

Weights without a module are a state dict, or a file of one: safetensors, or what `torch.save` writes, read with
``weights_only``.
"""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from ...errors import UncurseError
from ...maps import ScoreMap
from ...optional import needing
from .line import RAW, calling_library, check_folded, line_of, refused

# What may follow the last layer: it moves numbers and changes none.
_MOVES = (
    *("squeeze", "unsqueeze", "view", "reshape", "flatten", "contiguous", "getitem", "ravel"),
    *("Flatten", "Identity", "Dropout", "float", "double"),
)
_SIGMOIDS = ("sigmoid", "sigmoid_", "expit", "Sigmoid")
_REASONS = {
    **dict.fromkeys(("softmax", "log_softmax", "Softmax", "LogSoftmax"), "ends in a softmax of many classes"),
    **dict.fromkeys(("mean", "stack", "truediv", "div"), "ends in an average"),
    **dict.fromkeys(("add", "add_", "iadd", "sum", "mul", "cat"), "ends in a sum of parts, of which no layer is all"),
}
_CLOSE = 1e-4  # between rounding in single precision, far below, and another layer, far above
_HELD = ("state_dict", "model_state_dict", "model")  # where a checkpoint may hold the state dict
_SATURATED = 8.0  # logits beyond: their probabilities have too few digits in single precision


class _NotTraced(Exception):
    """Why no linear layer is known to be the output."""


def fold_model(score_map: ScoreMap, model: Any, *, layer: str | None = None, example: Any = None) -> Any:
    """Fold a map into the last linear layer of a module, or into a state dict.

    A module whose logit is a sum of parts may have a method ``fold_line(slope, intercept)`` that changes them in place.
    With `example`, inputs of one batch, the result is compared with the mapped output of the module.
    """
    if isinstance(model, dict):
        return fold_state(score_map, model, layer=layer)
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        raise UncurseError(f"a {kind} of torch is no model; pass an nn.Module, or its state dict")
    made: Any = _copy(model)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        made.module = fold_model(score_map, model.module, layer=layer, example=example)
        return made
    if hasattr(made, "fold_line"):  # whoever wrote it knows how
        made.fold_line(*line_of(score_map, RAW, f"this {kind}"))
        return made
    name, ends_in_sigmoid, reason = layer, None, ""
    try:
        found, ends_in_sigmoid = _last_layer(_copy(model).eval())  # as it is served; a trace may change it
        name = found if layer is None else layer
        reason = f"ends in its layer {found!r}, not in {name!r}" if found != name else ""
    except _NotTraced as error:
        reason = str(error)
    linear = {name: part for name, part in made.named_modules() if isinstance(part, nn.Linear)}
    if name is None and example is not None:
        name = next((name for name in reversed(linear) if linear[name].out_features == 1), None)
    if name is None or (reason and example is None):
        raise refused(f"this {kind} {reason}", "pass layer= and example=inputs of one batch, and it is tried")
    if name not in linear:
        raise UncurseError(f"layer={name!r} is no nn.Linear of this module; there are: {', '.join(linear) or 'none'}")
    part = linear[name]
    for one, what in ((made, "itself"), (part, f"its layer {name!r}")):
        if _has_hooks(one):
            raise refused(f"this {kind} has hooks on {what}, which may change its output", "remove them")
    before = None if example is None else _call(model, example)
    if ends_in_sigmoid is None and before is not None:
        ends_in_sigmoid = bool(((before > 0) & (before < 1)).all())
    slope, intercept = line_of(score_map, "logistic" if ends_in_sigmoid else RAW, f"this {kind}")
    _fold_layer(part.weight, part.bias, name, slope, intercept)
    if before is not None:
        after = _call(made, example)
        if ends_in_sigmoid:
            before, after = torch.logit(before), torch.logit(after)
            before, after = before[before.abs() < _SATURATED], after[before.abs() < _SATURATED]
        if not before.numel():
            raise UncurseError("the example has no row by which to tell, of a logit within 8; pass another batch")
        check_folded(slope * before + intercept, after, _CLOSE, f"the layer {name!r} is not all of the output")
    return made


def _copy(module: nn.Module) -> nn.Module:
    with calling_library(f"this {type(module).__name__} cannot be copied", "remove what it caches"):
        return copy.deepcopy(module)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _call(module: nn.Module, example: Any) -> Tensor:
    with torch.no_grad():
        out = _copy(module).eval()(*(example if isinstance(example, tuple | list) else (example,)))
    if not isinstance(out, Tensor):
        raise UncurseError(f"this {type(module).__name__} gives a {type(out).__name__}, not one tensor of scores")
    return out.double()


def _last_layer(module: nn.Module) -> tuple[str, bool]:
    """Return the name of the linear layer whose output is the module's, and whether a sigmoid follows it."""
    if isinstance(module, nn.Linear):
        return "", False
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # whatever a foreign forward raises under a trace
        lines = str(error).splitlines() or [type(error).__name__]
        raise _NotTraced(f"cannot be traced ({lines[0][:80]})") from None
    parts = dict(module.named_modules())
    node, sigmoid = next(node for node in graph.nodes if node.op == "output").args[0], False
    while isinstance(node, fx.Node):
        name, part = str(node.target), parts.get(str(node.target)) if node.op == "call_module" else None
        what = type(part).__name__ if part is not None else getattr(node.target, "__name__", name)
        if isinstance(part, nn.Linear):
            what = f"its layer {name!r}"
            if sum(one.op == "call_module" and one.target == node.target for one in graph.nodes) > 1:
                raise _NotTraced(f"calls {what} more than once")
            if any(one.op == "get_attr" and one.target in _parameter_names(name) for one in graph.nodes):
                raise _NotTraced(f"uses the numbers of {what} elsewhere too")
        elif what in _SIGMOIDS and not sigmoid:
            sigmoid = True
        elif what not in _MOVES:
            raise _NotTraced(_REASONS.get(what, f"ends in {what!r}, not in a linear layer"))
        if len(node.users) > 1:
            raise _NotTraced(f"uses the output of {what} more than once")
        if isinstance(part, nn.Linear):
            tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
            _check_not_shared(tensors, name)
            return name, sigmoid
        if part is not None and _has_hooks(part):
            raise _NotTraced(f"has hooks on {name!r}")
        node = node.args[0] if node.args else None
    raise _NotTraced("has several outputs" if isinstance(node, tuple | list | dict) else "ends in no layer")


# ---------------------------------------------------------------------------- weights


def _fold_layer(weight: Tensor, bias: Tensor | None, layer: str, slope: float, intercept: float) -> None:
    """Fold a line into the numbers of a layer, in place."""
    if isinstance(weight, nn.parameter.UninitializedParameter) or weight.is_meta:
        raise UncurseError(f"the layer {layer!r} has no numbers yet; train or load the module first")
    if weight.shape[0] != 1:
        raise refused(f"the layer {layer!r} has {weight.shape[0]} outputs, and a map is for one score")
    if bias is None:
        raise refused(f"the layer {layer!r} has no bias to hold the shift", "train it with one")
    if weight.dtype not in (torch.float32, torch.float64):
        raise UncurseError(f"the layer {layer!r} holds {weight.dtype}, too coarse to keep the order; use float32")
    with torch.no_grad():
        weight.copy_(weight.double() * slope)
        bias.copy_(bias.double() * slope + intercept)


def fold_state(score_map: ScoreMap, state: Mapping[str, Any], *, layer: str | None = None) -> dict[str, Any]:
    """Fold a map into one layer of a state dict: the only one of a single output, or the one named."""
    if not all(isinstance(name, str) for name in state):
        raise UncurseError("this is no state dict: not all of its keys are names; pass model.state_dict()")
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    owners = [name.removesuffix("weight").rstrip(".") for name in tensors if name.split(".")[-1] == "weight"]
    pairs = {owner: _parameter_names(owner) for owner in owners}
    layers = [name for name, (w, b) in pairs.items() if shapes[w][:-1] == (1,) and shapes.get(b) == (1,)]
    seen = ", ".join(layers) or "none"
    if layer is not None and layer not in layers:
        raise UncurseError(f"layer={layer!r} is no layer of one output with a bias; there are: {seen}")
    if layer is None and len(layers) != 1:
        raise UncurseError(f"layers of one output with a bias in this state dict: {seen}; name the last (--layer)")
    name = layers[0] if layer is None else layer
    other = _rival(tensors, name)
    if layer is None and other is not None:
        raise UncurseError(
            f"the only layer of one output with a bias is {name!r}, but {other!r} may be part of the output too: "
            "weights do not tell; name the layer if it is all of it (--layer), or fold the module in Python"
        )
    _check_not_shared(tensors, name)
    weight, bias = pairs[name]
    made = {**state, weight: tensors[weight].clone(), bias: tensors[bias].clone()}
    _fold_layer(made[weight], made[bias], name, *line_of(score_map, RAW, "this state dict"))
    return made


def _parameter_names(layer: str) -> tuple[str, str]:
    return f"{layer}.weight".lstrip("."), f"{layer}.bias".lstrip(".")


def _rival(state: Mapping[str, Tensor], layer: str) -> str | None:
    """Another tensor that may make a part of the output: one column or row, a weight made of parts, or a later one."""
    mine = _parameter_names(layer)
    after = False
    for name, value in state.items():
        after = after or name in mine
        narrow = value.dim() == 2 and 1 in value.shape
        made = "parametrizations" in name or name.endswith(("weight_g", "weight_v"))
        if name not in mine and (narrow or made or (after and value.dim() > 1)):
            return name
    return None


def _check_not_shared(state: Mapping[str, Tensor], layer: str) -> None:
    """Refuse a layer whose numbers lie in the memory of another tensor too."""
    mine = _parameter_names(layer)
    places = [_bytes(state[name]) for name in mine if name in state]
    for name, value in state.items():
        start, end = _bytes(value)
        if name not in mine and any(start < last and first < end for first, last in places):
            raise refused(f"the layer {layer!r} shares its numbers with {name!r}, which must not change")


def _bytes(value: Tensor) -> tuple[int, int]:
    """Return where the numbers of a tensor begin and end."""
    if value.layout != torch.strided or value.is_meta or not value.numel():
        return 0, 0
    reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), value.data_ptr() + (reach + 1) * value.element_size()


# ---------------------------------------------------------------------------- files


def load_scorer(path: Path, score_map: ScoreMap) -> Any:
    """Refuse: a file of weights has no graph."""
    raise UncurseError(
        f"{path} holds weights and no graph, so it cannot score; verify the modules in Python: "
        "uncurse.serving.verify(map, before, after, X)"
    )


def fold_file(score_map: ScoreMap, source: Path, target: Path, kind: str, *, layer: str | None = None) -> None:
    """Fold a map into a file of weights, in the same format."""
    if kind == "safetensors":
        with needing("safetensors"):
            from safetensors import safe_open
            from safetensors.torch import save_file
        with calling_library(f"{source} is no whole safetensors file"), safe_open(source, "pt") as file:
            state, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        save_file(fold_state(score_map, state, layer=layer), target, about)
        return
    with calling_library(f"{source} is no whole torch file"), zipfile.ZipFile(source) as archive:
        unpacked = sum(one.file_size for one in archive.infolist())
    if unpacked > source.stat().st_size:  # torch unpacks anything, however large
        raise UncurseError(f"{source} is packed, and torch stores its files unpacked; save it again with torch.save")
    with calling_library(f"{source} is no file of weights alone", "save model.state_dict() itself"):
        content = torch.load(source, weights_only=True, map_location="cpu")
    # A checkpoint may hold the state dict beside other things.
    held = [name for name in _HELD if isinstance(content, dict) and isinstance(content.get(name), dict)]
    state = content[held[0]] if len(held) == 1 else content
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise UncurseError("this file holds no state dict, nor one under 'state_dict' or 'model'; save that alone")
    folded = fold_state(score_map, state, layer=layer)
    with target.open("wb") as stream:  # by a stream: torch does not like the name of a temporary file
        torch.save({**content, held[0]: folded} if len(held) == 1 else folded, stream)
