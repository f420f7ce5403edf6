"""Saved models: tell the families apart by content, and fold or score a file without running what is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ... import documents
from ...errors import UncurseError
from ...maps import ScoreMap
from ...optional import needing
from .isolated import run_isolated

LARGEST = 8 << 30  # bytes; a larger model does not fit into one process
_KNOWN = "LightGBM text, XGBoost JSON or UBJSON, CatBoost cbm or JSON, ONNX, safetensors, and torch state dicts"
# The file of this package that knows a kind of model file, if it has another name.
_FAMILIES = {"catboost-json": "catboost", "safetensors": "torch"}
_OPTIONS = {"layer": ("torch", "torch weights"), "output": ("onnx", "an ONNX model")}
_ISOLATED = ("catboost", "xgboost")  # families whose reader crashes on damaged files


@dataclass(frozen=True)
class Scorer:
    """A saved model as a function, for `verify`."""

    score: Callable[[Any], Any]  # to scores (n,), or to the columns 1 − p and p
    space: str
    names: Sequence[str] | None = None  # of the features that it was trained on
    others: Callable[[Any], dict[str, Any]] = lambda _: {}  # further outputs by name


def family(path: str | os.PathLike[str]) -> str:
    """Return what kind of model a file holds, by its first bytes; pickles are refused."""
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
    """Fold a map into a saved model and save the result; if that fails, nothing is written.

    Parameters
    ----------
    score_map : ScoreMap
        As for `fold`.
    source, target : path
        The model and the folded model, in the same format.
    layer : str, optional
        Name of the last linear layer, for torch weights.
    output : str, optional
        Name of the score, if an ONNX model has several outputs.

    Returns
    -------
    str
        The kind of model.

    Examples
    --------
    >>> import tempfile, torch
    >>> from uncurse import Affine
    >>> folder = Path(tempfile.mkdtemp())
    >>> torch.save(torch.nn.Linear(3, 1).state_dict(), folder / "model.pt")
    >>> fold_file(Affine(0.8, -0.1), folder / "model.pt", folder / "folded.pt")
    'torch'
    """
    kind, path = family(source), Path(source)
    library, options = _library(kind, path, layer=layer, output=output)
    try:
        with documents.replacing(target) as temporary:
            if library in _ISOLATED:
                run_isolated(library, path, temporary, score_map)
            else:
                _module(library).fold_file(score_map, path, temporary, kind, **options)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror}") from None
    return kind


def load_scorer(path: Path, kind: str, score_map: ScoreMap, output: str | None, space: str | None = None) -> Scorer:
    """Load a saved model as a function to its sum or prediction; `space` is that of the model before the fold.

    Models score with one thread: with more, the times of single rows are those of threads that wait for a core.
    """
    library, options = _library(kind, path, output=output)
    if library == "onnx":
        options["space"] = space
    if library in _ISOLATED:
        run_isolated(library, path)
    scorer: Scorer = _module(library).load_scorer(path, score_map, **options)
    return scorer


def _library(kind: str, path: Path, **options: str | None) -> tuple[str, dict[str, str | None]]:
    """Return the library of a kind of file, and the options that are set; refuse one of another library."""
    library = _FAMILIES.get(kind, kind)
    given: dict[str, str | None] = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if _OPTIONS[name][0] != library:
            raise UncurseError(f"{name}={value!r} is for {_OPTIONS[name][1]} and {path} is {kind}; leave it out")
    return library, given


def _module(library: str) -> Any:
    with needing(library):
        return import_module(f"{__package__}.{library}")
