"""XGBoost: a model is a JSON document, and its leaves are numbers in it; XGBoost itself converts UBJSON.

Leaves are scaled, and what the base score then lacks goes to the leaves of the first tree: the base score is stored as
a probability in single precision, too coarse for a shift.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...links import get_link
from ...maps import ScoreMap
from .common import (
    RAW,
    Scorer,
    booster_of,
    calling_library,
    draw_rows,
    line_of,
    predictions_of,
    refused,
    with_booster,
)

_LINKS = {
    **dict.fromkeys(("binary:logistic", "reg:logistic"), "logistic"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "log"),
    **dict.fromkeys(("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror"), RAW),
    **dict.fromkeys(("binary:logitraw", "rank:ndcg", "rank:map", "rank:pairwise"), RAW),
}


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a Booster, or into a copy of an estimator that holds one."""
    import xgboost

    booster = _booster(model)
    document = _document(booster)
    _fold_document(score_map, document)
    threads = json.loads(booster.save_config())["learner"]["generic_param"]["nthread"]
    folded = xgboost.Booster({"nthread": threads})
    folded.load_model(bytearray(json.dumps(document).encode()))
    return with_booster(model, folded)


def _booster(model: Any) -> Any:
    import xgboost

    return booster_of(model, xgboost, xgboost.XGBModel)


def _document(booster: Any) -> Any:
    with calling_library("this Booster cannot be saved", "train it first"):
        return json.loads(booster.save_raw("json"))


def _fold_document(score_map: ScoreMap, document: dict[str, Any]) -> None:
    """Fold a map into the document of a model, in place."""
    link, learner = _link(document), document["learner"]
    slope, intercept = line_of(score_map, link, "this XGBoost model")
    # The base score is stored on the scale of predictions.
    base = float(np.float32(learner["learner_model_param"]["base_score"].strip("[]").split(",")[0]))
    if link != RAW:
        base = float(get_link(link).inverse(np.array(base)))
    shift = slope * base + intercept - base
    booster = learner["gradient_booster"]
    if booster["name"] == "gblinear":
        weights = booster["model"]["weights"]  # the last one is the bias
        booster["model"]["weights"] = _scaled(weights, slope, shift * (np.arange(len(weights)) == len(weights) - 1))
        return
    trees = _trees(document)
    if not trees:
        raise UncurseError("this XGBoost model has no trees; train it for a round at least")
    if booster["name"] == "dart":
        shift /= booster["weight_drop"][0]
    for tree in trees:
        leaf = np.asarray(tree["left_children"]) == -1
        tree["split_conditions"] = _scaled(tree["split_conditions"], np.where(leaf, slope, 1.0), leaf * shift)
        tree["base_weights"] = _scaled(tree["base_weights"], slope, 0.0)
        shift = 0.0  # the first tree has it


def _link(document: dict[str, Any]) -> str:
    """Return the link of the objective; refuse a model of several outputs."""
    param, name = document["learner"]["learner_model_param"], document["learner"]["objective"]["name"]
    if name not in _LINKS:
        reason = "has several classes: a softmax is no one score" if "multi:" in name else "is no straight sum"
        raise refused(f"an XGBoost model with the objective {name!r} {reason}")
    if max(int(param.get("num_class", 0)), int(param.get("num_target", 0))) > 1:
        raise refused("this XGBoost model has several outputs, and a map is for one score")
    return _LINKS[name]


def _trees(document: dict[str, Any]) -> Any:
    booster = document["learner"]["gradient_booster"]
    return (booster["gbtree"] if booster["name"] == "dart" else booster)["model"].get("trees", ())


def _scaled(values: list[float], slope: float | Array, shift: float | Array) -> list[float]:
    """Fold a line into numbers in single precision, as XGBoost holds them; write as few digits as tell them apart."""
    with np.errstate(over="ignore"):
        scaled = (slope * np.asarray(values, np.float32).astype(np.float64) + shift).astype(np.float32)
    if np.isinf(scaled[np.isfinite(values)]).any():
        raise UncurseError("a folded number of this XGBoost model is too large for single precision; check the map")
    return [float(str(value)) for value in scaled]


def scorers(model: Any, score_map: ScoreMap) -> list[Scorer]:
    """Return the sum of the Booster, and what the estimator around it predicts."""
    import xgboost

    booster = _booster(model)
    document = _document(booster)
    link = _link(document)
    linear = document["learner"]["gradient_booster"]["name"] == "gblinear"

    def score(x: Any) -> Any:
        if linear or not isinstance(x, np.ndarray):
            return booster.predict(xgboost.DMatrix(x), output_margin=link != "log", validate_features=False)
        options = {"predict_type": "value" if link == "log" else "margin", "validate_features": False}
        return booster.inplace_predict(x, **options)

    found = [Scorer(score, {"logistic": "logit", "log": "value"}.get(link, score_map.scale), booster.feature_names)]
    return [*found, *predictions_of(model, score_map)]


def rows_for(model: Any) -> list[Any]:
    """Draw rows near the thresholds of the trees."""
    booster = _booster(model)
    document, found = _document(booster), dict[int, list[float]]()
    for tree in _trees(document):
        for left, feature, value in zip(
            tree["left_children"], tree["split_indices"], tree["split_conditions"], strict=True
        ):
            if left != -1 and np.isfinite(value):
                found.setdefault(feature, []).append(value)
    blocks = draw_rows(booster.num_features(), {feature: np.array(values) for feature, values in found.items()})
    codes = [i for i, kind in enumerate(document["learner"].get("feature_types", ())) if kind == "c"]
    for rows in blocks:
        rows[:, codes] = np.abs(rows[:, codes].round()) % 2
    return list(blocks)


def read(path: Path) -> Any:
    """Read a model from JSON or UBJSON."""
    import xgboost

    booster = xgboost.Booster({"nthread": 1})
    with calling_library(f"XGBoost does not read {path}"):
        booster.load_model(bytearray(path.read_bytes()))
    return booster


def write(model: Any, source: Path, target: Path) -> None:
    """Save a Booster in the format of the source: after the first brace, JSON has a space or a quote."""
    is_json = source.read_bytes()[1:2] in b'" \n\r\t}'
    target.write_bytes(model.save_raw("json" if is_json else "ubj"))
