"""PyTorch: a linear layer of one output whose fold changes the predictions as the map does, found by trying.

Weights without a module are a state dict, or a file of one: safetensors, or what `torch.save` writes, read with
``weights_only``. They cannot be run, so the user names the layer.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..._types import Array
from ...errors import UncurseError
from ...maps import ScoreMap
from ...optional import needing
from .common import STAMP, Scorer, calling_library, draw_rows, line_of, refused, stamp_after

_DTYPES = (torch.float32, torch.float64)  # coarser ones do not keep the order


def fold_model(score_map: ScoreMap, model: Any, *, layer: str | None = None) -> Iterator[Any]:
    """Fold a map into each linear layer of a module, the last one first, or into a state dict.

    A module whose logit is a sum of parts may have a method ``fold_line(slope, intercept)`` that changes them in place.
    """
    slope, intercept = line_of(score_map)
    if isinstance(model, dict):
        folded = OrderedDict(_fold_state(model, slope, intercept, layer))
        metadata = {**getattr(model, "_metadata", {}), STAMP: stamp_after(score_map, stamp(model))}
        folded._metadata = OrderedDict(metadata)  # type: ignore[attr-defined]  # as of torch's own state dicts
        yield folded
        return
    made: Any = copy.deepcopy(model)
    if hasattr(made, "fold_line"):  # whoever wrote it knows how
        made.fold_line(slope, intercept)
        setattr(made, STAMP, stamp_after(score_map, stamp(model)))
        yield made
        return
    linear = {name: part for name, part in _linear_layers(model).items() if _holds_line(part.weight, part.bias)}
    if (layer is not None and layer not in linear) or not linear:
        what = f"layer={layer!r} is not one" if layer is not None else "this module has none"
        raise refused(f"a map goes into a linear layer of one output, a bias and float32 or float64; {what} of these")
    for name in [layer] if layer is not None else reversed(linear):
        made = copy.deepcopy(model)
        part = made.get_submodule(name)
        _fold_layer(part.weight, part.bias, slope, intercept)
        setattr(made, STAMP, stamp_after(score_map, stamp(model)))
        yield made


def stamp(model: Any) -> str | None:
    """Return what was folded into a module or a state dict before; the state dict of a module does not have it."""
    found: str | None = getattr(model, "_metadata", {}).get(STAMP) if isinstance(model, dict) else None
    return getattr(model, STAMP, None) if isinstance(model, nn.Module) else found


def _linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    return {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}


def _holds_line(weight: Tensor, bias: Tensor | None) -> bool:
    return bias is not None and weight.shape[:-1] == bias.shape == (1,) and weight.dtype in _DTYPES


def _fold_layer(weight: Tensor, bias: Tensor, slope: float, intercept: float) -> None:
    with torch.no_grad():
        weight.copy_(weight.double() * slope)
        bias.copy_(bias.double() * slope + intercept)


def _fold_state(state: dict[str, Any], slope: float, intercept: float, layer: str | None) -> dict[str, Any]:
    """Fold a line into a layer of a state dict, which the user names: nothing can tell what else makes the output."""
    owners = [name.removesuffix("weight") for name in state if name.split(".")[-1] == "weight"]
    layers = [one for one in owners if _holds_line(state[f"{one}weight"], state.get(f"{one}bias"))]
    if layer is None or f"{layer}.".lstrip(".") not in layers:
        seen = ", ".join(repr(one.rstrip(".")) for one in layers) or "none"
        what = f"layer={layer!r}; name the layer that makes the output, the last one (--layer)"
        raise UncurseError(f"{what}; those of one output, with a bias and in float32 or float64: {seen}")
    weight, bias = (f"{layer}.{name}".lstrip(".") for name in ("weight", "bias"))
    numbers = [name for name, value in state.items() if isinstance(value, Tensor) and value.is_floating_point()]
    single = [name for name in numbers if state[name].numel() == 1 and name not in (weight, bias)]
    for name in single:
        owner = name.rpartition(".")[0]
        holds_layer = not owner or f"{layer}.".startswith(f"{owner}.")
        if holds_layer or numbers.index(name) > numbers.index(bias):
            raise UncurseError(
                f"{name} is one number and may change what layer {layer!r} returns, as a temperature or a norm does; "
                "fold the module in Python, where both models are compared"
            )
    made = {**state, weight: state[weight].clone(), bias: state[bias].clone()}
    _fold_layer(made[weight], made[bias], slope, intercept)
    return made


# ---------------------------------------------------------------------------- running


def scorer(model: Any, *, layer: str | None = None) -> Scorer:
    """Return a module as a function, whatever the layer; it scores with a copy, which a forward may change."""
    if isinstance(model, dict):
        raise UncurseError("weights have no graph, so they cannot score; fold and verify the module in Python")
    module = copy.deepcopy(model).eval()

    def score(x: Any) -> Array:
        with torch.no_grad():
            return np.asarray(module(*(x if isinstance(x, tuple | list) else (x,))).double().cpu())

    return Scorer(score)


def rows_for(model: Any) -> list[Any]:
    """Draw rows of as many numbers as the first linear layer takes; a state dict cannot be run."""
    if isinstance(model, dict):
        return []
    layers = [*_linear_layers(model).values()]
    if not layers:
        raise refused(f"this {type(model).__name__} has no linear layer")
    return [torch.from_numpy(block).to(layers[0].weight) for block in draw_rows(layers[0].in_features)]


# ---------------------------------------------------------------------------- files


def read(path: Path) -> dict[str, Any]:
    """Read the state dict of a file of weights."""
    if _is_safetensors(path):
        with needing("torch"):  # the extra that has it
            from safetensors import safe_open
            from safetensors.torch import load_file
        with calling_library(f"{path} is no whole safetensors file"):
            state = OrderedDict(load_file(path))
            with safe_open(path, "pt") as file:
                state._metadata = file.metadata() or {}  # type: ignore[attr-defined]
            return state
    with calling_library(f"{path} is no file of weights alone", "save model.state_dict() itself"):
        content = torch.load(path, weights_only=True, map_location="cpu")
    if not isinstance(content, dict) or not any(isinstance(value, Tensor) for value in content.values()):
        raise UncurseError(f"{path} holds no state dict; save model.state_dict() itself")
    return content


def write(model: dict[str, Any], source: Path, target: Path) -> None:
    """Save a state dict in the format of the source, with the metadata of safetensors."""
    if _is_safetensors(source):
        from safetensors.torch import save_file

        save_file(model, target, dict(getattr(model, "_metadata", {})))
        return
    with target.open("wb") as stream:  # by a stream: torch does not like the name of a temporary file
        torch.save(model, stream)


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) != b"PK"
