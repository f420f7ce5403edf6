"""Fold a map into a model: one file per model family.

To add a family, write a file with ``fold_model(score_map, model)`` and list it in `_FAMILIES`. If its models are saved
in files, tell these apart in `files.family`, and add ``load_scorer(path, score_map)`` and
``fold_file(score_map, source, target, kind)``; or ``read`` and ``write`` if the reader of the library may crash.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import UncurseError
from ...maps import ScoreMap
from .line import refused

# Libraries, and files of this package. The first match counts: estimators of LightGBM are also of scikit-learn.
_FAMILIES = ("torch", "onnx", "lightgbm", "xgboost", "catboost", "sklearn")
# Options, the family that takes each, and its name in messages.
_OPTIONS = dict.fromkeys(("layer", "example"), ("torch", "a torch module")) | {"output": ("onnx", "an ONNX model")}


def fold(
    score_map: Any,
    model: Any = None,
    *,
    straight: bool = False,
    layer: str | None = None,
    example: Any = None,
    output: str | None = None,
) -> Any:
    """Return a copy of the model whose predictions are those of the map applied to the model's scores.

    Parameters
    ----------
    score_map : ScoreMap, or a fitted method or estimator
        An `Affine` map or a chain of them. For an ONNX model any map; one that is not affine is appended to the graph.
        Of a fitted `VAD`, `Tower`, `Auto` or `UncursedClassifierCV` its map is used.
    model : object, optional
        May be omitted for a fitted `UncursedClassifierCV` or `UncursedRegressorCV`, whose model is used. Else a fitted
        scikit-learn model that ends in a sum, or a pipeline or search that ends in one; a torch module or its state
        dict; a LightGBM, XGBoost, CatBoost or ONNX model. It is not changed.
    straight : bool, default=False
        Fold the straight line that is nearest to the map, see `Auto.line`. Needs a fitted method or estimator.
    layer : str, optional
        Name of the last linear layer of a torch module that cannot be traced.
    example : object, optional
        Inputs on which to run a torch module that cannot be traced.
    output : str, optional
        Name of the score, if an ONNX model has several outputs.

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
    if not isinstance(score_map, ScoreMap) and hasattr(score_map, "map_"):
        fitted = score_map
        score_map = fitted.line()[0] if straight else fitted.map_
        model = getattr(fitted, "estimator_", None) if model is None else model
    elif straight:
        raise UncurseError("straight=True needs a fitted method or estimator; pass it instead of its map")
    if not isinstance(score_map, ScoreMap):
        raise UncurseError(f"{type(score_map).__name__} is no score map; pass what `uncurse.load` gives, or vad.map_")
    if model is None:
        raise UncurseError("there is no model to fold into; pass one")
    family = _family(model)
    options = {"layer": layer, "example": example, "output": output}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if _OPTIONS[name][0] != family:
            raise UncurseError(f"{name} is for {_OPTIONS[name][1]}; leave it out")
    if family is None:
        raise refused(f"{type(model).__name__} is no model that can be folded")
    if family == "sklearn":
        given["fold"] = fold  # for the last step of a pipeline, which may be of any family
    return import_module(f"{__name__}.{family}").fold_model(score_map, model, **given)


def _family(model: Any) -> str | None:
    """Return the file of the family of a model, or of a state dict of tensors."""
    types = [*type(model).__mro__, *(map(type, model.values()) if isinstance(model, dict) else ())]
    libraries = {part.__module__.split(".")[0].lstrip("_") for part in types}  # CatBoost has a class of _catboost
    return next((family for family in _FAMILIES if family in libraries), None)


__all__ = ["fold"]
