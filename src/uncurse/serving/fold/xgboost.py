"""XGBoost: a model is a JSON document, and its leaves are numbers in it; XGBoost itself converts UBJSON.

Leaves are scaled, and what the base score then lacks goes to the leaves of the first tree: the base score is stored as
a probability in single precision, too coarse for a shift.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from ..._types import Array
from ...errors import UncurseError
from ...links import get_link
from ...maps import ScoreMap
from .common import (
    STAMP,
    Scorer,
    calling_library,
    draw_rows,
    line_of,
    predictions_of,
    stamp_after,
    try_elsewhere,
    with_booster,
)

_TRY = "import xgboost; xgboost.Booster().load_model(bytearray(open(sys.argv[1], 'rb').read()))"
# Objectives whose base score is stored as a prediction; others return their sum itself.
_LINKS = {
    **dict.fromkeys(("binary:logistic", "reg:logistic"), "logistic"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "log"),
}


def fold_model(score_map: ScoreMap, model: Any) -> Iterator[Any]:
    """Fold a map into a Booster, or into a copy of an estimator that holds one."""
    booster = _booster(model)
    document = json.loads(booster.save_raw("json"))
    learner = document["learner"]
    link = _LINKS.get(learner["objective"]["name"])
    slope, intercept = line_of(score_map, link)
    base = float(np.float32(learner["learner_model_param"]["base_score"].strip("[]").split(",")[0]))
    if link is not None:
        base = float(get_link(link).inverse(np.array(base)))
    shift, sums = slope * base + intercept - base, learner["gradient_booster"]
    if sums["name"] == "gblinear":
        weights = sums["model"]["weights"]  # the last one is the bias
        sums["model"]["weights"] = _scaled(weights, slope, shift * (np.arange(len(weights)) == len(weights) - 1))
    elif sums["name"] == "dart":
        shift /= sums["weight_drop"][0]
    for tree in _trees(document):
        leaf = np.asarray(tree["left_children"]) == -1
        tree["split_conditions"] = _scaled(tree["split_conditions"], np.where(leaf, slope, 1.0), leaf * shift)
        tree["base_weights"] = _scaled(tree["base_weights"], slope, 0.0)
        shift = 0.0  # the first tree has it
    threads = json.loads(booster.save_config())["learner"]["generic_param"]["nthread"]
    folded = xgboost.Booster({"nthread": threads})
    folded.load_model(bytearray(json.dumps(document).encode()))
    folded.set_attr(**{STAMP: stamp_after(score_map, stamp(model))})
    yield with_booster(model, folded)


def stamp(model: Any) -> str | None:
    """Return what was folded into a model before."""
    found: str | None = _booster(model).attr(STAMP)
    return found


def _booster(model: Any) -> Any:
    return model if isinstance(model, xgboost.Booster) else model.get_booster()


def _trees(document: dict[str, Any]) -> Any:
    booster = document["learner"]["gradient_booster"]
    return (booster["gbtree"] if booster["name"] == "dart" else booster)["model"].get("trees", ())


def _scaled(values: list[float], slope: float | Array, shift: float | Array) -> list[float]:
    """Fold a line into numbers in single precision, as XGBoost holds them."""
    with np.errstate(over="ignore"):
        scaled = slope * np.asarray(values, np.float32).astype(np.float64) + shift
        return [*map(float, scaled.astype(np.float32))]


def scorer(model: Any) -> Scorer:
    """Return what an estimator predicts; of a Booster the logit or prediction."""
    if not isinstance(model, xgboost.Booster):
        return predictions_of(model)
    objective = json.loads(model.save_config())["learner"]["objective"]["name"]
    logistic = _LINKS.get(objective) == "logistic"

    def score(x: Any) -> Any:
        data = xgboost.DMatrix(x, nthread=1, enable_categorical=True)
        if data.num_col() != model.num_features():  # XGBoost takes columns that are not there as missing
            raise UncurseError(f"these rows have {data.num_col()} features and the model {model.num_features()}")
        return model.predict(data, output_margin=logistic, validate_features=False)

    return Scorer(score, model.feature_names, space="logit" if logistic else None)


def rows_for(model: Any) -> list[Array]:
    """Draw rows near the thresholds of the trees."""
    booster = _booster(model)
    document = json.loads(booster.save_raw("json"))
    names = ("left_children", "split_indices", "split_conditions")
    left, features, thresholds = (np.array([v for tree in _trees(document) for v in tree[name]]) for name in names)
    blocks = draw_rows(booster.num_features(), np.where(left == -1, -1, features), thresholds)
    codes = [i for i, kind in enumerate(document["learner"].get("feature_types", ())) if kind == "c"]
    for rows in blocks:
        rows[:, codes] = np.abs(rows[:, codes].round()) % 2
    return blocks


def read(path: Path) -> Any:
    """Read a model from JSON or UBJSON."""
    booster = xgboost.Booster({"nthread": 1})
    if not _is_json(path):  # of damaged UBJSON, XGBoost may read beyond the end
        try_elsewhere("XGBoost", _TRY, path)
    with calling_library(f"XGBoost does not read {path}"):
        booster.load_model(bytearray(path.read_bytes()))
    return booster


def _is_json(path: Path) -> bool:
    """Return whether a model is JSON rather than UBJSON: a space or a quote follows the first brace."""
    return path.read_bytes()[1:2] in b'" \n\r\t}'


def write(model: Any, source: Path, target: Path) -> None:
    """Save a Booster in the format of the source."""
    is_json = _is_json(source)
    target.write_bytes(model.save_raw("json" if is_json else "ubj"))
