"""No serving cost: fold a map into the model that is served, or export it to wherever scores are.

`fold` puts a straight map into the numbers of the model: the same graph, the same latency, the same order. `verify`
shows it. A map that is not straight goes behind the model: `MapModule`, `to_onnx`, `to_sql`, `to_python`, `to_c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UncurseError
from ..maps import ScoreMap
from .files import fold_file
from .lines import ELSEWHERE, check_predicts
from .source import to_c, to_python
from .sql import to_sql
from .verifying import Verification, verify, verify_files

if TYPE_CHECKING:
    from .onnx_map import to_onnx
    from .torch_map import MapModule


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
        scikit-learn linear model, or a pipeline or search that ends in one; a torch module or its state dict;
        a LightGBM, XGBoost, CatBoost or ONNX model. It is not changed.
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
    if type(model).__name__ == "FrozenEstimator":  # of scikit-learn
        model = model.estimator
    if model is None:
        raise UncurseError("there is no model to fold into; pass one")
    names = {part.__module__.split(".")[0] for part in type(model).__mro__}
    if "torch" in names or (isinstance(model, dict) and _holds_tensors(model)):
        from . import torch_model

        if isinstance(model, dict):
            return torch_model.fold_state(score_map, model, layer=layer)
        return torch_model.fold_model(score_map, model, layer=layer, example=example)
    if layer is not None or example is not None:
        raise UncurseError("layer and example are for a torch module; leave them out")
    if "onnx" in names:
        from . import onnx_model

        return onnx_model.fold_model(score_map, model, output=output)
    if output is not None:
        raise UncurseError("output is for an ONNX model; leave it out")
    if "lightgbm" in names:
        from . import lightgbm_model

        check_predicts(model, "lightgbm")
        return lightgbm_model.fold_model(score_map, model)
    if "xgboost" in names:
        from . import xgboost_model

        check_predicts(model, "xgboost")
        return xgboost_model.fold_model(score_map, model)
    if names & {"catboost", "_catboost"}:
        from . import catboost_model

        check_predicts(model, "catboost")
        return catboost_model.fold_model(score_map, model)
    if "sklearn" in names:
        from . import sklearn_model

        return sklearn_model.fold_model(score_map, model, fold)
    raise UncurseError(f"{type(model).__name__} is no model that can be folded; {ELSEWHERE}")


def _holds_tensors(state: dict[Any, Any]) -> bool:
    return any(type(value).__module__.split(".")[0] == "torch" for value in state.values())


def __getattr__(name: str) -> Any:
    if name == "MapModule":  # torch and onnx only for those who use them
        from .torch_map import MapModule

        return MapModule
    if name == "to_onnx":
        from .onnx_map import to_onnx

        return to_onnx
    raise AttributeError(f"module 'uncurse.serving' has no attribute {name!r}")


__all__ = [
    "MapModule",
    "Verification",
    "fold",
    "fold_file",
    "to_c",
    "to_onnx",
    "to_python",
    "to_sql",
    "verify",
    "verify_files",
]
