"""Saved models: tell the families apart by content, and fold or score a file without running what is in it."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from ... import documents
from ...errors import UncurseError
from ...maps import ScoreMap
from ...methods.fitted import Fitted, fitted_of
from ...optional import needing
from . import fold
from .common import Scorer

_KNOWN = "LightGBM text, XGBoost JSON or UBJSON, CatBoost cbm or JSON, ONNX, safetensors, and torch state dicts"
_STARTS = {b"tree\n": "lightgbm", b"tree\r\n": "lightgbm", b"CBM1": "catboost", b"PK\x03\x04": "torch"}
_PICKLES = (b"\x80", b"x\x9c", b"x\x01", b"x\xda", b"\x1f\x8b")  # the last ones are compressed
_OPTIONS = {"layer": (("torch", "safetensors"), "torch weights"), "output": (("onnx",), "an ONNX model")}


def family(path: str | os.PathLike[str]) -> str:
    """Return what kind of model a file holds, by its first bytes; pickles are refused."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as stream:
            head = stream.read(4_096)
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    kind = next((kind for start, kind in _STARTS.items() if head.startswith(start)), None)
    if kind is not None:
        return kind
    if head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if head.startswith(_PICKLES):
        raise UncurseError(
            f"{path} is a pickle or a compressed one, and reading it would run what is in it; fold the model in Python "
            f"with uncurse.fold, or save it in one of these forms: {_KNOWN}"
        )
    if head[:1] == b"{":
        is_catboost = b'"learner"' not in head and b'"scale_and_bias"' in Path(path).read_bytes()
        return "catboost" if is_catboost else "xgboost"
    if Path(path).suffix == ".onnx" or (len(head) > 1 and head[0] == 0x08):
        return "onnx"
    raise UncurseError(f"{path} is no model that is known; these are: {_KNOWN}")


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
    score_map = fitted_of(score_map).map
    kind, path = family(source), Path(source)
    options = _options(kind, path, layer=layer, output=output)
    module = _module(kind)
    try:
        with documents.replacing(target) as temporary:
            if kind in ("torch", "safetensors"):
                module.fold_file(score_map, path, temporary, kind, **options)
            else:
                module.write(fold(score_map, module.read(path), X=X, **options), path, temporary)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror}") from None
    return kind


def load_scorer(path: Path, kind: str, score_map: ScoreMap, output: str | None) -> Scorer:
    """Load a saved model as a function to its sum or prediction.

    Models score with one thread: with more, the times of single rows are those of threads that wait for a core.
    """
    if kind in ("torch", "safetensors"):
        raise UncurseError(
            f"{path} holds weights and no graph, so it cannot score; verify the modules in Python: "
            "uncurse.serving.verify(map, before, after, X)"
        )
    module, options = _module(kind), _options(kind, path, output=output)
    scorer: Scorer = module.scorers(module.read(path), score_map, **options)[0]
    return scorer


def _options(kind: str, path: Path, **options: str | None) -> dict[str, Any]:
    """Return the options that are set; refuse one of another kind of model."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        kinds, what = _OPTIONS[name]
        if kind not in kinds:
            raise UncurseError(f"{name}={value!r} is for {what} and {path} is {kind}; leave it out")
    return given


def _module(kind: str) -> Any:
    library = {"safetensors": "torch"}.get(kind, kind)
    with needing(library):
        import_module(library)
        return import_module(f"{__package__}.{library}")
