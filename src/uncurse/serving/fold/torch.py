"""PyTorch: a linear layer of one output whose fold changes the predictions as the map does, found by trying.

Weights without a module are a state dict, or a file of one: safetensors, or what `torch.save` writes, read with
``weights_only``. They cannot be run, so anything in them that might change the output is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UncurseError
from ...maps import ScoreMap
from ...optional import needing
from .common import RAW, Scorer, calling_library, check_fold, draw_rows, line_of, refused

_HELD = ("state_dict", "model_state_dict", "model")  # where a checkpoint may hold the state dict


def fold_model(score_map: ScoreMap, model: Any, *, X: Any = None, layer: str | None = None) -> Any:
    """Fold a map into a linear layer of a module, or into a state dict.

    A module whose logit is a sum of parts may have a method ``fold_line(slope, intercept)`` that changes them in place.
    """
    if isinstance(model, dict):
        return fold_state(score_map, model, layer=layer)
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        raise UncurseError(f"a {kind} of torch is no model; pass an nn.Module, or its state dict")
    linear = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    if layer is not None and layer not in linear:
        raise UncurseError(f"layer={layer!r} is no nn.Linear of this module; there are: {', '.join(linear) or 'none'}")
    made: Any = _copy(model)
    if hasattr(made, "fold_line"):  # whoever wrote it knows how
        made.fold_line(*line_of(score_map, RAW, f"this {kind}"))
        if X is not None:
            _check(score_map, model, made, [X], False)
        return made
    names = [layer] if layer is not None else [name for name in reversed(linear) if linear[name].out_features == 1]
    if not names:
        raise refused(f"this {kind} has no linear layer of one output")
    blocks = [X] if X is not None else _draw(model, next(iter(linear.values())))
    error: UncurseError | None = None
    for name in names:
        for sigmoid in (True, False):
            if sigmoid and not all(((p := _call(model, rows)) >= 0).all() and (p <= 1).all() for rows in blocks):
                continue
            made = _copy(model)
            part = made.get_submodule(name)
            slope, intercept = line_of(score_map, "logistic" if sigmoid else RAW, f"this {kind}")
            try:
                _fold_layer(part.weight, part.bias, name, slope, intercept)
                _check(score_map, model, made, blocks, sigmoid)
                return made
            except UncurseError as reason:
                error = error or reason
    assert error is not None
    raise error


def _copy(module: nn.Module) -> nn.Module:
    with calling_library(f"this {type(module).__name__} cannot be copied", "remove what it caches"):
        return copy.deepcopy(module)


def _draw(module: nn.Module, first: nn.Linear) -> list[Any]:
    """Draw rows if the module takes what its first linear layer takes."""
    dtype = first.weight.dtype
    rows = [torch.from_numpy(block).to(first.weight.device, dtype) for block in draw_rows(first.in_features, {})]
    with calling_library(f"this {type(module).__name__} does not take rows of {first.in_features} numbers", "pass X="):
        _call(module, rows[0])
    return list(rows)


def _call(module: nn.Module, inputs: Any) -> Any:
    """Score rows with a copy of the module: a forward may change it."""
    with torch.no_grad():
        out = _copy(module).eval()(*(inputs if isinstance(inputs, tuple | list) else (inputs,)))
    if not isinstance(out, Tensor):
        raise UncurseError(f"this {type(module).__name__} gives a {type(out).__name__}, not one tensor of scores")
    return out.double().cpu().numpy()


def _check(score_map: ScoreMap, before: nn.Module, after: nn.Module, blocks: list[Any], sigmoid: bool) -> None:
    def scorer(module: nn.Module) -> Scorer:
        return Scorer(lambda rows: _call(module, rows).ravel(), "probability" if sigmoid else "logit")

    check_fold(score_map, [(scorer(before), scorer(after))], blocks, f"this {type(before).__name__}")


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
    """Fold a map into one layer of a state dict: the only one that can be the output, or a named one."""
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    owners = [name.removesuffix("weight").rstrip(".") for name in tensors if name.split(".")[-1] == "weight"]
    pairs = {owner: (f"{owner}.weight".lstrip("."), f"{owner}.bias".lstrip(".")) for owner in owners}
    layers = [name for name, (w, b) in pairs.items() if shapes[w][:-1] == shapes.get(b) == (1,)]
    seen = ", ".join(map(repr, layers)) or "none"
    if layer is not None and layer not in layers:
        raise UncurseError(f"layer={layer!r} is no layer of one output with a bias; there are: {seen}")
    if layer is None and len(layers) != 1:
        raise UncurseError(f"layers of one output with a bias in this state dict: {seen}; name the last (--layer)")
    name = layers[0] if layer is None else layer
    weight, bias = pairs[name]
    other = _rival(tensors, (weight, bias))
    if layer is None and other is not None:
        raise UncurseError(
            f"the only layer of one output with a bias is {name!r}, but {other!r} may be part of the output too: "
            "weights do not tell; name the layer if it is all of it (--layer), or fold the module in Python"
        )
    made = {**state, weight: tensors[weight].clone(), bias: tensors[bias].clone()}
    _fold_layer(made[weight], made[bias], name, *line_of(score_map, RAW, "this state dict"))
    return made


def _rival(state: Mapping[str, Tensor], mine: tuple[str, str]) -> str | None:
    """Return another tensor that may change the output: of one number or column, made of parts, or a later one."""
    order = list(state)
    last = max(map(order.index, mine))
    for i, (name, value) in enumerate(state.items()):
        narrow = value.numel() == 1 or (value.dim() == 2 and 1 in value.shape)
        made = "parametrizations" in name or name.endswith(("weight_g", "weight_v"))
        if name not in mine and not name.endswith("num_batches_tracked") and (narrow or made or i > last):
            return name
    return None


# ---------------------------------------------------------------------------- files


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
