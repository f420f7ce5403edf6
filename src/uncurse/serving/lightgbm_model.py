"""LightGBM: a model is a text, and its leaves are numbers in it.

Leaves are scaled, and the shift goes to the first tree, or to every tree where trees are averaged. Values inside the
trees, from which libraries draw explanations, move along. The text is checked as a whole before anything else reads it.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np

from ..errors import UncurseError
from ..maps import ScoreMap
from .lines import ELSEWHERE, RAW, line_of, own_copy

_LINKS = {
    "binary": "logistic",
    "cross_entropy": "logistic",
    "xentropy": "logistic",
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "log"),
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), RAW),
    **dict.fromkeys(("", "none", "custom", "lambdarank", "rank_xendcg"), RAW),
}
_SCALED = ("leaf_value", "internal_value", "leaf_const", "leaf_coeff")
_END = "end of trees"


def fold_text(score_map: ScoreMap, text: str) -> str:
    """The text of a model with the map folded in."""
    link, sigmoid, averaged = about(text)
    slope, intercept = line_of(score_map, link, "this LightGBM model")
    shift = intercept / sigmoid
    head, trees, tail = _parts(text)
    made = [_scaled(tree, slope, shift if averaged or i == 0 else 0.0) for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in made)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head) + "".join(made) + tail


def about(text: str) -> tuple[str, float, bool]:
    """Link, what it multiplies the sum by, and whether trees are averaged; what is no whole model is refused."""
    head, trees, _ = _parts(text)
    lines = dict(line.split("=", 1) for line in head.split("\n") if "=" in line)
    features = _whole(lines, "max_feature_idx", 0)
    for i, tree in enumerate(trees):
        _check_tree(tree, i, features)
    return *_link(lines), "average_output" in head.split("\n")


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """A Booster, or an estimator that holds one, with the map folded in."""
    import lightgbm

    if isinstance(model, lightgbm.LGBMModel):
        if getattr(model, "_Booster", None) is None:
            raise UncurseError(f"this {type(model).__name__} is not fitted; fit it first")
        made = own_copy(model)
        made._Booster = fold_model(score_map, model.booster_)
        return made
    if not isinstance(model, lightgbm.Booster):
        raise UncurseError(f"a {type(model).__name__} of LightGBM is no model; pass a Booster or an estimator")
    text = model.model_to_string(num_iteration=-1)
    folded = lightgbm.Booster(params=dict(model.params), model_str=fold_text(score_map, text))
    folded.best_iteration, folded.best_score = model.best_iteration, copy.deepcopy(model.best_score)
    return folded


def _parts(text: str) -> tuple[str, list[str], str]:
    """Header, trees, and all after them."""
    if any(letter < " " and letter not in "\n\t" for letter in set(text)):
        raise UncurseError("this LightGBM model holds control characters, such as the line ends of another system")
    start, end = text.find("\nTree=0\n") + 1, text.find("\n" + _END) + 1
    if not text.startswith("tree\n") or not 0 < start < end:
        raise UncurseError("this is no whole LightGBM model: a header, trees and 'end of trees'; save it again")
    body = text[start:end]
    trees = [f"Tree={part}" for part in re.split(r"(?m)^Tree=", body)[1:]]
    head = text[:start]
    sizes = re.search(r"(?m)^tree_sizes=(.*)$", head)
    if sizes is None:
        raise UncurseError("this LightGBM model has no tree_sizes; save it again with LightGBM 3 or later")
    if sizes[1].split() != [str(len(tree.encode())) for tree in trees]:
        raise UncurseError("the trees of this LightGBM model are not as long as its header says; save it again")
    return head, trees, text[end:]


def _link(lines: dict[str, str]) -> tuple[str, float]:
    """The link of the objective, and what it multiplies the sum by."""
    if _whole(lines, "num_class", 1) != 1 or _whole(lines, "num_tree_per_iteration", 1) != 1:
        raise UncurseError(f"this LightGBM model has several classes: a softmax is no one score; {ELSEWHERE}")
    name, *options = lines.get("objective", "").split() or [""]
    if name not in _LINKS or "sqrt" in options:
        objective = " ".join([name, *options])
        raise UncurseError(f"a LightGBM model with the objective {objective!r} is no straight sum; {ELSEWHERE}")
    sigmoid = next((option.removeprefix("sigmoid:") for option in options if option.startswith("sigmoid:")), "1")
    values = _numbers(sigmoid, "sigmoid")
    if len(values) != 1 or values[0] <= 0:
        raise UncurseError(f"the sigmoid of this LightGBM model is {sigmoid!r}, which must be above 0; save it again")
    return _LINKS[name], float(values[0])


def _whole(lines: dict[str, str], name: str, default: int) -> int:
    value = lines.get(name, str(default)).strip()
    if not re.fullmatch(r"\d{1,9}", value):
        raise UncurseError(f"{name}={value!r} in this LightGBM model is no whole number; save it again")
    return int(value)


def _numbers(text: str, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        values = np.array(text.split(), np.float64)
    except ValueError:
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise UncurseError(f"{name} of this LightGBM model holds what is no finite number; save it again")
    return values


def _check_tree(tree: str, i: int, features: int) -> None:
    """Every node has one parent before it, and every list its length: a reader follows them without a check."""
    lines = dict(line.split("=", 1) for line in tree.split("\n") if "=" in line)
    leaves = _whole(lines, "num_leaves", 0)
    nodes = leaves - 1
    linear = lines.get("is_linear", "0").strip() == "1"
    lengths = {"leaf_value": leaves} | ({"leaf_const": leaves} if linear else {})
    if nodes > 0:
        lengths |= dict.fromkeys(("split_feature", "threshold", "decision_type", "left_child", "right_child"), nodes)
    found = {name: _numbers(lines.get(name, ""), name) for name in (*lengths, *_SCALED)}
    whole = leaves > 0 and all(len(found[name]) == count for name, count in lengths.items())
    if whole and nodes > 0:
        children = np.stack([found["left_child"], found["right_child"]])
        inner = children >= 0
        expected = np.arange(-leaves, nodes)
        whole = (
            np.array_equal(np.sort(children, axis=None), expected[expected != 0])
            and bool((children > np.arange(nodes))[inner].all())
            and bool(((found["split_feature"] >= 0) & (found["split_feature"] <= features)).all())
        )
    if whole:
        whole = _categories_fit(lines, found, nodes) and (not linear or _slopes_fit(lines, found, leaves, features))
    if not whole:
        raise UncurseError(f"tree {i} of this LightGBM model is damaged; save it again")


def _categories_fit(lines: dict[str, str], found: dict[str, Any], nodes: int) -> bool:
    """Splits by category point into lists that are there."""
    count = _whole(lines, "num_cat", 0)
    if nodes <= 0:
        return count == 0
    by_category = found["threshold"][(found["decision_type"].astype(np.int64) & 1) == 1]
    if not count:
        return not len(by_category)
    bounds, words = (_numbers(lines.get(name, ""), name) for name in ("cat_boundaries", "cat_threshold"))
    return (
        len(bounds) == count + 1
        and bounds[0] == 0
        and bounds[-1] == len(words)
        and bool((np.diff(bounds) > 0).all())
        and bool(((by_category >= 0) & (by_category < count)).all())
    )


def _slopes_fit(lines: dict[str, str], found: dict[str, Any], leaves: int, features: int) -> bool:
    """Of a linear tree: every leaf has as many coefficients as features, and those are there."""
    counts, used = (_numbers(lines.get(name, ""), name) for name in ("num_features", "leaf_features"))
    return (
        len(counts) == leaves
        and bool((counts >= 0).all())
        and counts.sum() == len(used) == len(found["leaf_coeff"])
        and bool(((used >= 0) & (used <= features)).all())
    )


def _scaled(tree: str, slope: float, shift: float) -> str:
    def line(match: re.Match[str]) -> str:
        name, values = match[1], match[2]
        add = 0.0 if name == "leaf_coeff" else shift
        return f"{name}=" + re.sub(r"\S+", lambda number: f"{slope * float(number[0]) + add:.17g}", values)

    return re.sub(rf"(?m)^({'|'.join(_SCALED)})=(.*)$", line, tree)


__all__ = ["about", "fold_model", "fold_text"]
