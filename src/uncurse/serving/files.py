"""Saved models: told apart by what they hold, read within bounds, and never by running what is in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .. import documents
from ..errors import UncurseError
from ..maps import ScoreMap
from ..optional import needing

LARGEST = 8 << 30  # bytes: more is no model that one process folds
_KNOWN = "LightGBM text, XGBoost JSON or UBJSON, CatBoost cbm or JSON, ONNX, safetensors, and torch state dicts"


def family(path: str | os.PathLike[str]) -> str:
    """What kind of model a file holds, by its first bytes; pickles are refused."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as stream:
            head = stream.read(4_096)
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    if size > LARGEST:
        most = f"at most {LARGEST >> 30} are read"
        raise UncurseError(f"{path} has {size / 2**30:.1f} GiB, and {most}; fold the model in Python")
    if head.startswith((b"tree\n", b"tree\r\n")):
        return "lightgbm"
    if head.startswith(b"CBM1"):
        return "catboost"
    if head.startswith(b"PK\x03\x04"):
        return "torch"
    if head[:1] == b"\x80" or head[:2] in (b"x\x9c", b"x\x01", b"x\xda") or head.startswith(b"\x1f\x8b"):
        raise UncurseError(
            f"{path} is a pickle or a compressed one, and reading it would run what is in it; fold the model in Python "
            f"with uncurse.fold, or save it in one of these forms: {_KNOWN}"
        )
    if head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if head[:1] == b"{":
        return "catboost-json" if b'"learner"' not in head and _is_catboost(path) else "xgboost"
    if Path(path).suffix == ".onnx" or (len(head) > 1 and head[0] == 0x08):
        return "onnx"
    raise UncurseError(f"{path} is no model that is known; these are: {_KNOWN}")


def _is_catboost(path: str | os.PathLike[str]) -> bool:
    try:
        content = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "scale_and_bias" in content


def fold_file(
    score_map: ScoreMap,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    layer: str | None = None,
    output: str | None = None,
) -> str:
    """Fold a map into a saved model and save that, whole or not at all; returns what kind of model it is."""
    kind = family(source)
    if layer is not None and kind not in ("torch", "safetensors"):
        raise UncurseError(f"layer={layer!r} is for torch weights and {source} is {kind}; leave it out")
    if output is not None and kind != "onnx":
        raise UncurseError(f"output={output!r} is for an ONNX model and {source} is {kind}; leave it out")
    try:
        with documents.replacing(target) as temporary:
            _fold(kind, score_map, Path(source), temporary, layer, output)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror}") from None
    return kind


def _fold(kind: str, score_map: ScoreMap, source: Path, target: Path, layer: str | None, output: str | None) -> None:
    if kind == "lightgbm":
        from .lightgbm_model import fold_text

        target.write_bytes(fold_text(score_map, text_of(source)).encode())
    elif kind == "xgboost":
        from . import xgboost_model

        target.write_bytes(xgboost_model.fold_bytes(score_map, source.read_bytes()))
    elif kind == "onnx":
        with needing("onnx"):
            from . import onnx_model
        target.write_bytes(onnx_model.fold_bytes(score_map, source.read_bytes(), output=output))
    elif kind in ("torch", "safetensors"):
        with needing("torch"):
            from . import torch_files
        torch_files.fold_file(score_map, source, target, layer, safe=kind == "safetensors")
    else:
        from . import catboost_model

        catboost_model.fold_file(score_map, source, target, "cbm" if kind == "catboost" else "json")


def text_of(path: Path) -> str:
    """A text file, with the line ends that it has."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise UncurseError(f"{path} is not whole: it is no UTF-8 text; save the model again") from None


__all__ = ["family", "fold_file", "text_of"]
