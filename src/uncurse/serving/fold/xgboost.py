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
from .files import Scorer
from .line import RAW, calling_library, fold_boosted, line_of, refused

_LINKS = {
    **dict.fromkeys(("binary:logistic", "reg:logistic"), "logistic"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "log"),
    **dict.fromkeys(("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror"), RAW),
    **dict.fromkeys(("binary:logitraw", "rank:ndcg", "rank:map", "rank:pairwise"), RAW),
}


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a Booster, or into an estimator that holds one."""
    import xgboost

    def fold_booster(booster: Any) -> Any:
        with calling_library("this Booster cannot be saved", "train it first"):
            threads = json.loads(booster.save_config())["learner"]["generic_param"]["nthread"]
            document = json.loads(booster.save_raw("json"))
        fold_document(score_map, document)
        folded = xgboost.Booster({"nthread": threads})
        folded.load_model(bytearray(json.dumps(document).encode()))
        return folded

    return fold_boosted(model, xgboost, xgboost.XGBModel, fold_booster)


def fold_document(score_map: ScoreMap, document: dict[str, Any]) -> None:
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
    trees = _forest(booster)["trees"]
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


def _forest(booster: dict[str, Any]) -> Any:
    return (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]


def _scaled(values: list[float], slope: float | Array, shift: float | Array) -> list[float]:
    """Fold a line into numbers in single precision, as XGBoost holds them; write as few digits as tell them apart."""
    with np.errstate(over="ignore"):
        scaled = (slope * np.asarray(values, np.float32).astype(np.float64) + shift).astype(np.float32)
    if np.isinf(scaled[np.isfinite(values)]).any():
        raise UncurseError("a folded number of this XGBoost model is too large for single precision; check the map")
    return [float(str(value)) for value in scaled]


def load_scorer(path: Path, score_map: ScoreMap) -> Scorer:
    """Load a saved model as a function to its sum."""
    booster = read(path)
    booster.set_param({"nthread": 1})
    link = _link(json.loads(booster.save_raw("json")))
    options = {"predict_type": "value" if link == "log" else "margin", "validate_features": False}
    space = {"logistic": "logit", "log": "value"}.get(link, score_map.scale)
    return Scorer(lambda x: booster.inplace_predict(x, **options), space, booster.feature_names)


def read(path: Path) -> Any:
    """Read a model; only on files that a process of its own has accepted, as the reader may crash.

    Links between nodes are checked here: XGBoost follows them without a check.
    """
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(bytearray(path.read_bytes()))
    document = json.loads(booster.save_raw("json"))
    _link(document)
    features = int(document["learner"]["learner_model_param"]["num_feature"])
    model = document["learner"]["gradient_booster"]
    if model["name"] == "gblinear":
        whole = len(model["model"]["weights"]) == features + 1
    else:
        forest = _forest(model)
        whole = not any(forest["tree_info"]) and all(model.get("weight_drop", ()))
        whole = whole and all(_is_tree(tree, features) for tree in forest["trees"])
    if not whole:
        raise UncurseError("the trees or weights of this XGBoost model are damaged; save it again")
    return booster


def write(model: Any, source: Path, target: Path) -> None:
    """Save a Booster in the format of the source: after the first brace, JSON has a space or a quote."""
    is_json = source.read_bytes()[1:2] in b'" \n\r\t}'
    target.write_bytes(model.save_raw("json" if is_json else "ubj"))


def _is_tree(tree: dict[str, Any], features: int) -> bool:
    """Every node but the root has one parent, and knows it; XGBoost checks the lengths of all lists itself."""
    columns = ("left_children", "right_children", "parents", "split_indices")
    left, right, parents, feature = (np.asarray(tree[name], np.int64) for name in columns)
    inner, leaves = np.flatnonzero(left != -1), np.flatnonzero(left == -1)
    children = np.concatenate([left[inner], right[inner]])
    return bool(
        np.all(right[leaves] == -1)
        and np.all((children > 0) & (children < len(left)))
        and len(np.unique(children)) == len(children)
        and np.array_equal(parents[children], np.tile(inner, 2))
        and np.all((feature[inner] >= 0) & (feature[inner] < features))
        and np.all(np.isfinite(np.asarray(tree["split_conditions"], np.float64)[leaves]))
    )
