"""Saved models: tell the families apart by content, and fold a file without running what is in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ... import documents
from ...errors import UncurseError
from ...maps import ScoreMap
from ...methods.fitted import Fitted, fitted_of
from . import fold, load_family

_STARTS = {b"tree\n": "lightgbm", b"tree\r\n": "lightgbm", b"CBM1": "catboost", b"PK\x03\x04": "torch"}


def family(path: str | os.PathLike[str]) -> str:
    """Return the family of the model in a file, by its first bytes."""
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(4_096)
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    kind = next((kind for start, kind in _STARTS.items() if head.startswith(start)), None)
    if kind is not None:
        return kind
    if head[:1] == b"{":
        return "xgboost" if b"learner" in head else "catboost"
    if head[8:9] == b"{":  # safetensors: the size of the header is before it
        return "torch"
    if head[:1] == b"\x08":
        return "onnx"
    known = "LightGBM text, XGBoost JSON or UBJSON, CatBoost cbm or JSON, ONNX, safetensors, and torch state dicts"
    raise UncurseError(
        f"{path} is no model file that is known ({known}). A pickle would run what is in it: fold the model in Python "
        "with uncurse.fold instead"
    )


def fold_file(
    score_map: ScoreMap | Fitted,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    X: Any = None,
    layer: str | None = None,
    output: str | None = None,
) -> str:
    """Fold a map into a saved model and save the result; if that fails, nothing is written.

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        As for `fold`.
    source, target : path
        The model and the folded model, in the same format.
    X : array, or dict of arrays, optional
        Rows to compare the models on, as for `fold`; not for torch weights, which cannot be run.
    layer : str, optional
        Name of the last linear layer; torch weights need it.
    output : str, optional
        Name of the score, if an ONNX model has several outputs.

    Returns
    -------
    str
        The family of the model.

    Examples
    --------
    >>> import tempfile, torch
    >>> from uncurse import Affine
    >>> folder = Path(tempfile.mkdtemp())
    >>> torch.save(torch.nn.Sequential(torch.nn.Linear(3, 1)).state_dict(), folder / "model.pt")
    >>> fold_file(Affine(0.8, -0.1), folder / "model.pt", folder / "folded.pt", layer="0")
    'torch'
    """
    kind, path = family(source), Path(source)
    module = load_family(kind)
    folded = fold(fitted_of(score_map).map, module.read(path), X=X, layer=layer, output=output)
    try:
        with documents.replacing(target) as temporary:
            module.write(folded, path, temporary)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror}") from None
    return kind
