"""Fold a map into a model: one file per model family.

To add a family, write a file with `fold_model(score_map, model)`, which yields folded copies, the likeliest first;
`scorer(model)`, which scores with it; `rows_for(model)`, blocks of rows to compare on; and `stamp(model)`, what was
folded into it before. List it in `_FAMILIES`. If its models are saved in files, tell these apart in `family`, and
add `read(path)` and `write(model, source, target)`.
"""

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
from .common import ELSEWHERE, calling_library, check_fold, refused

# Libraries, and files of this package. The first match counts: estimators of LightGBM are also of scikit-learn.
_FAMILIES = ("torch", "onnx", "lightgbm", "xgboost", "catboost", "sklearn")
_OPTIONS = {"layer": "torch", "output": "onnx"}  # the family that takes each

_STARTS = {b"tree\n": "lightgbm", b"tree\r\n": "lightgbm", b"CBM1": "catboost", b"PK\x03\x04": "torch"}
# Names in the JSON of each.
_WORDS = {b"learner": "xgboost"} | dict.fromkeys((b'_info"', b'trees"', b'"scale_and_bias"'), "catboost")


def fold(
    score_map: Any,
    model: Any = None,
    *,
    X: Any = None,
    layer: str | None = None,
    output: str | None = None,
    again: bool = False,
) -> Any:
    """Return a copy of the model whose predictions are those of the map applied to the model's scores.

    Both are compared on rows, and a fold that differs by more than single precision is refused.

    Parameters
    ----------
    score_map : ScoreMap, Fitted, fitted method or estimator, or path of a map.json
        An `Affine` map. For an ONNX model any map; one that is not affine is put into the graph.
    model : object, optional
        May be omitted for a fitted `UncursedClassifierCV` or `UncursedRegressorCV`, whose model is used. Else a fitted
        scikit-learn model that ends in a sum, or a pipeline or search that ends in one; a torch module or its state
        dict; a LightGBM, XGBoost, CatBoost or ONNX model. It is not changed.
    X : array, frame, tensor, or tuple or dict of these, optional
        Rows to compare the models on: what the model itself takes, a tuple for a torch module of several inputs, a dict
        for such an ONNX model. By default rows are drawn from the split thresholds or at random; models whose input
        cannot be drawn need it.
    layer : str, optional
        Name of the last linear layer of a torch module; a state dict needs it.
    output : str, optional
        Name of the score, if an ONNX model has several outputs.
    again : bool, default=False
        Accept a model into which a map was folded before. Right only for a map of the folded model's own scores.

    Returns
    -------
    object
        A model of the same type.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from uncurse import Affine
    >>> X = np.array([[-1.0], [0.0], [1.0], [2.0]])
    >>> model = LogisticRegression().fit(X, [0, 0, 1, 1])
    >>> folded = fold(Affine(0.8, -0.1), model)
    >>> bool(np.allclose(folded.decision_function(X), 0.8 * model.decision_function(X) - 0.1))
    True
    """
    model = getattr(score_map, "estimator_", None) if model is None else model
    score_map = fitted_of(score_map).map
    if model is None:
        raise UncurseError("there is no model to fold into; pass one")
    kind, what = _family(model), f"this {type(model).__name__}"
    options = options_for(kind, layer=layer, output=output)
    if kind is None:
        raise refused(f"{what} is no model that can be folded")
    module, error = load_family(kind), None
    with calling_library(f"{what} cannot be folded", f"pass a fitted model that ends in one sum, or {ELSEWHERE}"):
        before = module.stamp(model)
        if before and not again:
            raise UncurseError(
                f"{what} holds a map already ({before}); fold into the original model, or pass again=True (--again) if "
                "this map was fitted to the scores of the folded one"
            )
        blocks = module.rows_for(model) if X is None else [X]
        for folded in module.fold_model(score_map, model, **options):
            try:
                if blocks:
                    served, after = (module.scorer(one, **options) for one in (model, folded))
                    check_fold(score_map, served, after, blocks, what)
                return folded
            except UncurseError as reason:
                error = error or reason
    assert error is not None
    raise error


def stamp_of(model: Any) -> str | None:
    """Return what was folded into a model before; None if nothing was, or if it is a model of no family."""
    kind = _family(model)
    found: str | None = load_family(kind).stamp(model) if kind else None
    return found


def load_family(family: str) -> Any:
    """Return the module of a family, which imports its library."""
    with needing(family):
        return import_module(f"{__name__}.{family}")


def options_for(family: str | None, **options: str | None) -> dict[str, str]:
    """Return the options that are set; refuse one of another family."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if _OPTIONS[name] != family:
            raise UncurseError(f"{name}={value!r} is for models of {_OPTIONS[name]}; leave it out")
    return given


def _family(model: Any) -> str | None:
    """Return the file of the family of a model, or of a state dict of tensors."""
    types = [*type(model).__mro__, *(map(type, model.values()) if isinstance(model, dict) else ())]
    libraries = {part.__module__.split(".")[0].lstrip("_") for part in types}  # CatBoost has a class of _catboost
    return next((family for family in _FAMILIES if family in libraries), None)


# ---------------------------------------------------------------------------- saved models, told apart by content


def family(path: str | os.PathLike[str]) -> str:
    """Return the family of the model in a file, by its first bytes."""
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(4_096)
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    kind = next((kind for start, kind in _STARTS.items() if head.startswith(start)), None)
    if kind is None and head[:1] == b"{":
        kind = next((kind for word, kind in _WORDS.items() if word in head), None)
    if kind is not None:
        return kind
    if head[:1] != b"{" and head[8:9] == b"{":  # safetensors: the size of the header is before it
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
    again: bool = False,
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
    again : bool, default=False
        As for `fold`.

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
    kind = family(source)
    module = load_family(kind)
    folded = fold(fitted_of(score_map).map, module.read(Path(source)), X=X, layer=layer, output=output, again=again)
    try:
        with documents.replacing(target) as temporary:
            module.write(folded, Path(source), temporary)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror}") from None
    return kind
