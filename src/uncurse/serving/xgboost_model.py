"""XGBoost: a model is a document, JSON or UBJSON, and its leaves are numbers in it.

Leaves are scaled, and what the base score lacks then goes to the leaves of the first tree: the base score is stored as
a probability in single precision, too coarse for a shift.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..links import get_link
from ..maps import ScoreMap
from . import ubjson
from .lines import ELSEWHERE, RAW, line_of, own_copy

_LINKS = {
    **dict.fromkeys(("binary:logistic", "reg:logistic"), "logistic"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "log"),
    **dict.fromkeys(("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror"), RAW),
    **dict.fromkeys(("binary:logitraw", "rank:ndcg", "rank:map", "rank:pairwise"), RAW),
}
_PER_NODE = ("left_children", "right_children", "split_conditions", "split_indices", "base_weights")


def fold_document(score_map: ScoreMap, document: Any) -> dict[str, Any]:
    """The document of a model with the map folded in; the given one stays as it is."""
    made: dict[str, Any] = check_document(document)
    link, learner = link_of(made), made["learner"]
    slope, intercept = line_of(score_map, link, "this XGBoost model")
    base = _base(learner["learner_model_param"], link)
    shift = slope * base + intercept - base
    booster = learner["gradient_booster"]
    if booster["name"] == "gblinear":
        model = booster["model"]
        weights = slope * _single(model["weights"])
        weights[-1] += shift
        model["weights"] = _like(weights, model["weights"])
        return made
    trees = _trees(booster)
    if not trees:
        raise UncurseError("this XGBoost model has no trees; train it for a round at least")
    weight = float(booster["weight_drop"][0]) if booster["name"] == "dart" else 1.0
    for i, tree in enumerate(trees):
        leaf = np.asarray(tree["left_children"]) == -1
        values = _single(tree["split_conditions"])
        values[leaf] = slope * values[leaf] + (shift / weight if i == 0 else 0.0)
        tree["split_conditions"] = _like(values, tree["split_conditions"])
        tree["base_weights"] = _like(slope * _single(tree["base_weights"]), tree["base_weights"])
    return made


def link_of(document: dict[str, Any]) -> str:
    """The link of its objective; a model of several outputs has none."""
    learner = document["learner"]
    param, name = learner["learner_model_param"], str(learner["objective"]["name"])
    if name not in _LINKS:
        reason = "has several classes: a softmax is no one score" if "multi:" in name else "is no straight sum"
        raise UncurseError(f"an XGBoost model with the objective {name!r} {reason}; {ELSEWHERE}")
    if max(_whole(param, "num_class"), _whole(param, "num_target")) > 1:
        raise UncurseError(f"this XGBoost model has several outputs, and a map is for one score; {ELSEWHERE}")
    return _LINKS[name]


def fold_bytes(score_map: ScoreMap, data: bytes) -> bytes:
    """A saved model, JSON or UBJSON, with the map folded in; in the form in which it came."""
    made = fold_document(score_map, read(data))
    return json.dumps(made, separators=(",", ":")).encode() if _is_json(data) else ubjson.dumps(made)


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """A Booster, or an estimator that holds one, with the map folded in."""
    import xgboost

    if isinstance(model, xgboost.XGBModel):
        if getattr(model, "_Booster", None) is None:
            raise UncurseError(f"this {type(model).__name__} is not fitted; fit it first")
        made = own_copy(model)
        made._Booster = fold_model(score_map, model.get_booster())
        return made
    if not isinstance(model, xgboost.Booster):
        raise UncurseError(f"a {type(model).__name__} of XGBoost is no model; pass a Booster or an estimator")
    try:
        threads = json.loads(model.save_config())["learner"]["generic_param"]["nthread"]
    except (xgboost.core.XGBoostError, KeyError) as error:
        raise UncurseError(
            f"this Booster cannot be saved ({str(error).splitlines()[0][:80]}); train it first"
        ) from None
    folded = xgboost.Booster({"nthread": threads})
    folded.load_model(bytearray(fold_bytes(score_map, bytes(model.save_raw("ubj")))))
    return folded


def read(data: bytes) -> Any:
    """The document of a saved model, checked."""
    try:
        document = json.loads(data) if _is_json(data) else ubjson.loads(data)
    except (ValueError, RecursionError) as error:
        if isinstance(error, UncurseError):
            raise
        raise UncurseError(f"this XGBoost model is no valid JSON ({str(error)[:80]}); save it again") from None
    check_document(document)
    return document


def _is_json(data: bytes) -> bool:
    return data[:2].strip()[:1] == b"{" and data[1:2] not in (b"L", b"i", b"U", b"l", b"I")


def check_document(document: Any) -> dict[str, Any]:
    """A copy; refused if it is no model, or if a reader could be led astray."""
    try:
        made: dict[str, Any] = copy.deepcopy(document)
        learner = made["learner"]
        param, booster = learner["learner_model_param"], learner["gradient_booster"]
        features = _whole(param, "num_feature")
        str(learner["objective"]["name"]), _base(param, RAW), _whole(param, "num_class"), _whole(param, "num_target")
        if booster["name"] == "gblinear":
            whole = bool(np.isfinite(_numbers(booster["model"]["weights"])).all())
            whole = whole and len(booster["model"]["weights"]) == features + 1
        else:
            trees = _trees(booster)
            info = (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]["tree_info"]
            several = max(_whole(param, "num_class"), _whole(param, "num_target")) > 1
            whole = all(_is_tree(tree, features) for tree in trees)
            whole = whole and (several or not _numbers(info).any())
            if booster["name"] == "dart":
                drop = _numbers(booster["weight_drop"])
                whole = whole and len(drop) == len(trees) and bool(np.isfinite(drop).all() and (drop != 0).all())
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, UncurseError):
            raise
        raise UncurseError(f"this is no whole XGBoost model ({error!r:.80}); save it again") from None
    if not whole:
        raise UncurseError("the trees or weights of this XGBoost model are damaged; save it again")
    return made


def _trees(booster: dict[str, Any]) -> list[dict[str, Any]]:
    if booster["name"] not in ("gbtree", "dart"):
        raise UncurseError(f"the XGBoost booster {booster['name']!r} is unknown; gbtree, dart and gblinear are known")
    model = (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]
    trees: list[dict[str, Any]] = model["trees"]
    if len(model["tree_info"]) != len(trees):
        raise UncurseError("this XGBoost model does not have the trees that it says; save it again")
    return trees


def _is_tree(tree: dict[str, Any], features: int) -> bool:
    """Every node has one parent at most, the root none, and every list its length: a reader follows without a check."""
    columns = {name: _numbers(tree[name]) for name in _PER_NODE}
    count = _whole(tree["tree_param"], "num_nodes")
    if _whole(tree["tree_param"], "size_leaf_vector") > 1:
        raise UncurseError(f"this XGBoost model has several outputs in a leaf, and a map is for one score; {ELSEWHERE}")
    if count < 1 or any(len(column) != count for column in columns.values()):
        return False
    left, right = columns["left_children"], columns["right_children"]
    inner = left != -1
    children = np.concatenate([left[inner], right[inner]])
    parents = _numbers(tree["parents"])
    segments, sizes = (_numbers(tree.get(name, [])) for name in ("categories_segments", "categories_sizes"))
    return (
        bool((right[~inner] == -1).all())
        and bool(((children > 0) & (children < count)).all())
        and len(np.unique(children)) == len(children)
        and len(parents) == count
        and np.array_equal(parents[children.astype(np.int64)], np.tile(np.flatnonzero(inner), 2))
        and bool(np.isfinite(columns["split_conditions"][~inner]).all())
        and bool(((columns["split_indices"][inner] >= 0) & (columns["split_indices"][inner] < features)).all())
        and len(segments) == len(sizes) == len(tree.get("categories_nodes", []))
        and bool((segments >= 0).all() and (sizes >= 0).all())
        and bool((segments + sizes <= len(tree.get("categories", []))).all())
    )


def _numbers(values: Any) -> Array:
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1:
        raise ValueError("a list of numbers is none")
    return numbers


def _whole(param: dict[str, Any], name: str) -> int:
    value = int(param.get(name, "0"))
    if value < 0:
        raise ValueError(f"{name} is {value}")
    return value


def _base(param: dict[str, Any], link: str) -> float:
    """The base score as a sum; stored on the scale of predictions."""
    value = float(np.float32(str(param["base_score"]).strip("[]").split(",")[0]))
    if not np.isfinite(value):
        raise ValueError(f"base_score is {value}")
    if (link == "logistic" and not 0 < value < 1) or (link == "log" and value <= 0):
        raise UncurseError(
            f"the base_score of this XGBoost model is {value:g}, which has no {link} score; save it again"
        )
    return value if link == RAW else float(get_link(link).inverse(np.array(value)))


def _single(values: Any) -> Array:
    """As XGBoost holds them, whatever the digits in a file."""
    return np.asarray(values, np.float32).astype(np.float64)


def _like(values: Array, given: Any) -> Any:
    """Single precision, as a list of short numbers or as an array, whichever was given."""
    single = values.astype(np.float32)
    if not np.isfinite(single).all() and np.isfinite(values).all():
        raise UncurseError("a folded number of this XGBoost model is too large for single precision; check the map")
    return single if isinstance(given, np.ndarray) else [float(str(value)) for value in single]


__all__ = ["fold_bytes", "fold_document", "fold_model", "link_of", "read"]
