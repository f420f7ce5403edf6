"""CatBoost: the library scales the leaves itself; the shift is the bias that every model has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import catboost

from ...errors import UncurseError
from ...maps import ScoreMap
from .common import STAMP, Scorer, calling_library, draw_rows, line_of, predictions_of, stamp_after

_LINKS = {"Logloss": "logistic", "CrossEntropy": "logistic", "Focal": "logistic", "Poisson": "log", "Tweedie": "log"}


def fold_model(score_map: ScoreMap, model: Any) -> Iterator[Any]:
    """Fold a map into a CatBoost model of any grow policy."""
    slope, intercept = line_of(score_map, _link(model))
    scale, bias = model.get_scale_and_bias()
    # Not by the model's own scale: CatBoost explains and exports no model that has one.
    unscaled = model.copy()
    unscaled.set_scale_and_bias(1.0, 0.0)
    summed = catboost.sum_models([unscaled], weights=[slope * scale])
    summed.set_scale_and_bias(1.0, slope * bias + intercept)
    for name, value in model.get_metadata().items():  # classes and parameters, which a sum lacks
        summed.get_metadata()[name] = value
    summed.get_metadata()[STAMP] = stamp_after(score_map, stamp(model))
    made = model.copy()
    made.load_model(blob=summed._serialize_model())
    made._init_params = dict(model._init_params)  # a load forgets them, and `predict` of counts needs them
    yield made


def stamp(model: Any) -> str | None:
    """Return what was folded into a model before."""
    found: str | None = dict(model.get_metadata()).get(STAMP)
    return found


def _link(model: Any) -> str | None:
    params = model.get_metadata().get("params")  # a model of another tool may have none
    return _LINKS.get(json.loads(params)["loss_function"]["type"]) if params else None


def scorer(model: Any) -> Scorer:
    """Return what an estimator predicts; of a bare CatBoost model its sum, or the exponential of it."""
    if type(model) is not catboost.CatBoost:
        return predictions_of(model)
    link = _link(model)
    form, space = "Exponent" if link == "log" else "RawFormulaVal", "logit" if link == "logistic" else None
    return Scorer(lambda x: model.predict(x, prediction_type=form, thread_count=1), model.feature_names_, space=space)


def rows_for(model: Any) -> list[Any]:
    """Draw rows near the borders of the trees; categories that the training did not see."""
    categorical = set(model.get_cat_feature_indices())
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise UncurseError("rows for features of text cannot be drawn; pass X=, rows that this model can score")
    borders = [(i, one) for i, many in model.get_borders().items() if i not in categorical for one in many]
    blocks = draw_rows(len(model.feature_names_), *zip(*borders, strict=True))
    if not categorical:
        return list(blocks)
    return [[[f"{v:g}" if i in categorical else v for i, v in enumerate(row)] for row in rows] for rows in blocks]


def read(path: Path) -> Any:
    """Read a model from cbm or JSON."""
    with calling_library(f"CatBoost does not read {path}"):
        return catboost.CatBoost().load_model(str(path), format=_format(path))


def write(model: Any, source: Path, target: Path) -> None:
    """Save a model in the format of the source."""
    model.save_model(str(target), format=_format(source))


def _format(path: Path) -> str:
    with path.open("rb") as stream:
        return "json" if stream.read(1) == b"{" else "cbm"
