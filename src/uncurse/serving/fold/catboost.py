"""CatBoost: the library scales the leaves itself; the shift is the bias that every model has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UncurseError
from ...maps import ScoreMap
from .common import ELSEWHERE, RAW, Scorer, calling_library, draw_rows, line_of, predictions_of, refused

_LINKS = {"Logloss": "logistic", "CrossEntropy": "logistic", "Focal": "logistic", "Poisson": "log", "Tweedie": "log"}


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a CatBoost model of any grow policy."""
    import catboost

    if not isinstance(model, catboost.CatBoost):
        raise UncurseError(f"a {type(model).__name__} of CatBoost is no model; pass a CatBoost model")
    if not model.is_fitted():
        raise UncurseError("this CatBoost model is not fitted; fit it first")
    scale, bias = model.get_scale_and_bias()
    if isinstance(bias, list):
        raise refused(f"this CatBoost model has {len(bias)} outputs, and a map is for one score")
    slope, intercept = line_of(score_map, _link(model), "this CatBoost model")
    # Not by the model's own scale: CatBoost explains and exports no model that has one.
    unscaled = model.copy()
    unscaled.set_scale_and_bias(1.0, 0.0)
    with calling_library("CatBoost does not scale this model", ELSEWHERE):
        summed = catboost.sum_models([unscaled], weights=[slope * scale])
    summed.set_scale_and_bias(1.0, slope * bias + intercept)
    for name, value in model.get_metadata().items():  # classes and parameters, which a sum lacks
        summed.get_metadata()[name] = value
    made = model.copy()
    made.load_model(blob=summed._serialize_model())
    made._init_params = dict(model._init_params)  # a load forgets them, and `predict` of counts needs them
    return made


def _link(model: Any) -> str:
    try:
        return _LINKS.get(json.loads(model.get_metadata()["params"])["loss_function"]["type"], RAW)
    except (KeyError, TypeError, ValueError):
        return RAW


def scorers(model: Any, score_map: ScoreMap) -> list[Scorer]:
    """Return the sum of the model, and the probabilities of a classifier."""
    link = _link(model)
    form = "Exponent" if link == "log" else "RawFormulaVal"
    space = {"logistic": "logit", "log": "value"}.get(link, score_map.scale)
    found = Scorer(lambda x: model.predict(x, prediction_type=form, thread_count=1), space, model.feature_names_)
    return [found, *predictions_of(model, score_map)]


def rows_for(model: Any) -> list[Any]:
    """Draw rows near the borders of the trees; categories that the training did not see."""
    with calling_library("rows for this CatBoost model cannot be drawn", "pass X=, rows that it can score"):
        categorical = set(model.get_cat_feature_indices())
        if model.get_text_feature_indices() or model.get_embedding_feature_indices():
            raise ValueError("it has features of text")
        borders = {i: np.array(one) for i, one in model.get_borders().items() if len(one) and i not in categorical}
    blocks = draw_rows(len(model.feature_names_), borders)
    if not categorical:
        return list(blocks)
    return [[[f"{v:g}" if i in categorical else v for i, v in enumerate(row)] for row in rows] for rows in blocks]


def read(path: Path) -> Any:
    """Read a model from cbm or JSON."""
    import catboost

    with calling_library(f"CatBoost does not read {path}"):
        return catboost.CatBoost().load_model(str(path), format=_format(path))


def write(model: Any, source: Path, target: Path) -> None:
    """Save a model in the format of the source."""
    model.save_model(str(target), format=_format(source))


def _format(path: Path) -> str:
    with path.open("rb") as stream:
        return "json" if stream.read(1) == b"{" else "cbm"
