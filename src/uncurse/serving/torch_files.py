"""State dicts in files: safetensors, or what `torch.save` writes, read with ``weights_only``."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UncurseError
from ..maps import ScoreMap
from ..optional import needing
from .torch_model import fold_state

_HELD = ("state_dict", "model_state_dict", "model")


def fold_file(score_map: ScoreMap, source: Path, target: Path, layer: str | None, *, safe: bool) -> None:
    """Fold a map into the weights of a file, and write them to another of the same form."""
    if safe:
        state, about = _safe(source)
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
    with target.open("wb") as stream:  # by a stream: torch does not like the name of a temporary file
        torch.save(_folded(score_map, content, layer), stream)


def _folded(score_map: ScoreMap, content: Any, layer: str | None) -> Any:
    """The state dict itself, or a checkpoint that holds one beside other things."""
    held = [name for name in _HELD if isinstance(content, dict) and isinstance(content.get(name), dict)]
    if len(held) == 1:
        return {**content, held[0]: _state(score_map, content[held[0]], layer)}
    return _state(score_map, content, layer)


def _state(score_map: ScoreMap, content: Any, layer: str | None) -> dict[str, Any]:
    if not isinstance(content, Mapping) or not any(isinstance(value, Tensor) for value in content.values()):
        raise UncurseError("this file holds no state dict, nor one under 'state_dict' or 'model'; save that alone")
    return fold_state(score_map, content, layer=layer)


def _safe(path: Path) -> tuple[dict[str, Tensor], dict[str, str] | None]:
    with needing("safetensors"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UncurseError(f"{path} is no whole safetensors file ({error}); save it again") from None


def _check_zip(path: Path) -> None:
    """A torch file is a zip of stored parts: no more bytes come out of it than are in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed: list[Any] = [one for one in archive.infolist() if one.compress_type != zipfile.ZIP_STORED]
            total = sum(one.file_size for one in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UncurseError(f"{path} is no whole torch file ({error}); save it again") from None
    if packed or total > path.stat().st_size:
        raise UncurseError(f"{path} is packed, and torch stores its files unpacked; save it again with torch.save")


__all__ = ["fold_file"]
