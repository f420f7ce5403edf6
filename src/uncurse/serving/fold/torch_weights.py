"""Weights of PyTorch: the numbers of one linear layer, in a module, a state dict or a file of one.

Files are safetensors, or what `torch.save` writes, read with ``weights_only``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UncurseError
from ...maps import ScoreMap
from ...optional import needing
from .line import ELSEWHERE, RAW, line_of

_HELD = ("state_dict", "model_state_dict", "model")


def fold_layer(weight: Tensor, bias: Tensor | None, layer: str, slope: float, intercept: float) -> None:
    """Fold a line into the numbers of a layer, in place."""
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


def fold_state(score_map: ScoreMap, state: Mapping[str, Any], *, layer: str | None = None) -> dict[str, Any]:
    """Fold a map into one layer of a state dict: the only one of a single output, or the one named."""
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
    check_not_shared(tensors, name)
    line = line_of(score_map, RAW, "this state dict")
    weight, bias = parameter_names(name)
    made = {**state, weight: tensors[weight].clone(), bias: tensors[bias].clone()}
    fold_layer(made[weight], made[bias], name, *line)
    return made


def parameter_names(layer: str) -> tuple[str, str]:
    """Return the names of the weight and bias of a layer."""
    return f"{layer}.weight".lstrip("."), f"{layer}.bias".lstrip(".")


def _is_row(state: Mapping[str, Tensor], name: str) -> bool:
    bias = state.get(name.removesuffix("weight") + "bias")
    named = name == "weight" or name.endswith(".weight")
    return named and state[name].dim() == 2 and len(state[name]) == 1 and bias is not None and tuple(bias.shape) == (1,)


def _rival(state: Mapping[str, Tensor], layer: str) -> str | None:
    """Another tensor that may make a part of the output: one column or row, a weight made of parts, or a later one."""
    mine = parameter_names(layer)
    after = False
    for name, value in state.items():
        after = after or name in mine
        narrow = value.dim() == 2 and 1 in value.shape
        made = "parametrizations" in name or name.endswith(("weight_g", "weight_v"))
        if name not in mine and (narrow or made or (after and value.dim() > 1)):
            return name
    return None


def check_not_shared(state: Mapping[str, Tensor], layer: str) -> None:
    """Refuse a layer whose numbers lie in the memory of another tensor too."""
    mine = parameter_names(layer)
    places = [_bytes(state[name]) for name in mine if name in state]
    for name, value in state.items():
        start, end = _bytes(value)
        if name not in mine and any(start < last and first < end for first, last in places):
            raise UncurseError(
                f"the layer {layer!r} shares its numbers with {name!r}, which must not change; {ELSEWHERE}"
            )


def _bytes(value: Tensor) -> tuple[int, int]:
    """Return where the numbers of a tensor begin and end."""
    if value.layout != torch.strided or value.is_meta or not value.numel():
        return 0, 0
    reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), value.data_ptr() + (reach + 1) * value.element_size()


# ---------------------------------------------------------------------------- files


def fold_file(score_map: ScoreMap, source: Path, target: Path, kind: str, *, layer: str | None = None) -> None:
    """Fold a map into a file of weights, in the same format."""
    if kind == "safetensors":
        state, about = _read_safetensors(source)
        with needing("safetensors"):
            from safetensors.torch import save_file
        save_file(fold_state(score_map, state, layer=layer), target, about)
        return
    _check_zip(source)
    try:
        content = torch.load(source, weights_only=True, map_location="cpu")
    except Exception as error:  # the reader of a foreign file raises many kinds
        reason = " ".join(str(error).split())[:120]
        raise UncurseError(f"{source} is no file of weights alone ({reason}); save model.state_dict() itself") from None
    # A checkpoint may hold the state dict beside other things.
    held = [name for name in _HELD if isinstance(content, dict) and isinstance(content.get(name), dict)]
    state = content[held[0]] if len(held) == 1 else content
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise UncurseError("this file holds no state dict, nor one under 'state_dict' or 'model'; save that alone")
    folded = fold_state(score_map, state, layer=layer)
    with target.open("wb") as stream:  # by a stream: torch does not like the name of a temporary file
        torch.save({**content, held[0]: folded} if len(held) == 1 else folded, stream)


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str] | None]:
    with needing("safetensors"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UncurseError(f"{path} is no whole safetensors file ({error}); save it again") from None


def _check_zip(path: Path) -> None:
    """Refuse a zip that unpacks to more bytes than it has: `torch.save` packs nothing, and torch unpacks anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed: list[Any] = [one for one in archive.infolist() if one.compress_type != zipfile.ZIP_STORED]
            total = sum(one.file_size for one in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UncurseError(f"{path} is no whole torch file ({error}); save it again") from None
    if packed or total > path.stat().st_size:
        raise UncurseError(f"{path} is packed, and torch stores its files unpacked; save it again with torch.save")
