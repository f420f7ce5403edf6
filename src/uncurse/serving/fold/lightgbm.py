"""LightGBM: a model is a text, and its leaves are numbers in it.

Leaves are scaled, and the shift goes to the first tree, or to every tree where trees are averaged. Values inside the
trees, from which libraries draw explanations, move along. The text is checked as a whole before anything else reads it.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...maps import ScoreMap
from .files import Scorer
from .line import RAW, calling_library, fold_boosted, line_of, refused

_LINKS = {
    **dict.fromkeys(("binary", "cross_entropy", "xentropy"), "logistic"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "log"),
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), RAW),
    **dict.fromkeys(("", "none", "custom", "lambdarank", "rank_xendcg"), RAW),
}
_SCALED = ("leaf_value", "internal_value", "leaf_const", "leaf_coeff")


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a Booster, or into an estimator that holds one."""
    import lightgbm

    def fold_booster(booster: Any) -> Any:
        folded = lightgbm.Booster(model_str=_fold_text(score_map, booster.model_to_string(num_iteration=-1)))
        folded.params = dict(booster.params)
        folded.best_iteration, folded.best_score = booster.best_iteration, copy.deepcopy(booster.best_score)
        return folded

    return fold_boosted(model, lightgbm, lightgbm.LGBMModel, fold_booster)


def _fold_text(score_map: ScoreMap, text: str) -> str:
    head, trees, tail = _parts(text)
    link, sigmoid, averaged = _link(head)
    slope, intercept = line_of(score_map, link, "this LightGBM model")
    shift = intercept / sigmoid
    made = [_scaled(tree, slope, shift if averaged or i == 0 else 0.0) for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in made)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head) + "".join(made) + tail


def _scaled(tree: str, slope: float, shift: float) -> str:
    def line(match: re.Match[str]) -> str:
        name, values = match[1], match[2]
        add = 0.0 if name == "leaf_coeff" else shift
        return f"{name}=" + re.sub(r"\S+", lambda number: f"{slope * float(number[0]) + add:.17g}", values)

    return re.sub(rf"(?m)^({'|'.join(_SCALED)})=(.*)$", line, tree)


def fold_file(score_map: ScoreMap, source: Path, target: Path, kind: str) -> None:
    """Fold a map into a saved model, without LightGBM."""
    target.write_bytes(_fold_text(score_map, _read(source)).encode())


def load_scorer(path: Path, score_map: ScoreMap) -> Scorer:
    """Load a saved model as a function to its sum."""
    text = _read(path)
    link, sigmoid, averaged = _link(_parts(text)[0])
    import lightgbm

    with calling_library(f"LightGBM does not read {path}"):
        booster = lightgbm.Booster(model_str=text)
    raw = link == "logistic" and not averaged  # LightGBM averages predictions, but not raw scores
    space = "logit" if raw else {"logistic": "probability", "log": "value"}.get(link, score_map.scale)

    def score(x: Any) -> Array:
        return (sigmoid if raw else 1.0) * np.asarray(booster.predict(x, raw_score=raw, num_threads=1))

    return Scorer(score, space, booster.feature_name(), categories=booster.pandas_categorical or ())


def _read(path: Path) -> str:
    with calling_library(f"{path} is no whole LightGBM model"):
        return path.read_bytes().decode()  # with the line ends that it has


# ---------------------------------------------------------------------------- checks: LightGBM follows without any


def _parts(text: str) -> tuple[str, list[str], str]:
    """Header, trees, and all after them; refuse a damaged model."""
    if any(letter < " " and letter not in "\n\t" for letter in set(text)):
        raise UncurseError("this LightGBM model holds control characters, such as the line ends of another system")
    start, end = text.find("\nTree=0\n") + 1, text.find("\nend of trees") + 1
    if not text.startswith("tree\n") or not 0 < start < end:
        raise UncurseError("this is no whole LightGBM model: a header, trees and 'end of trees'; save it again")
    head, trees = text[:start], [f"Tree={part}" for part in re.split(r"(?m)^Tree=", text[start:end])[1:]]
    lines = _lines(head)
    if "tree_sizes" not in lines:
        raise UncurseError("this LightGBM model has no tree_sizes; save it again with LightGBM 3 or later")
    if lines["tree_sizes"].split() != [str(len(tree.encode())) for tree in trees]:
        raise UncurseError("the trees of this LightGBM model are not as long as its header says; save it again")
    features = _whole(lines, "max_feature_idx", 0) + 1
    for i, tree in enumerate(trees):
        if not _is_tree(_lines(tree), features):
            raise UncurseError(f"tree {i} of this LightGBM model is damaged; save it again")
    return head, trees, text[end:]


def _lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\n") if "=" in line)


def _link(head: str) -> tuple[str, float, bool]:
    """Return the link of the objective, what it multiplies the sum by, and whether trees are averaged."""
    lines = _lines(head)
    if _whole(lines, "num_class", 1) != 1 or _whole(lines, "num_tree_per_iteration", 1) != 1:
        raise refused("this LightGBM model has several classes: a softmax is no one score")
    objective = lines.get("objective", "")
    name, *options = objective.split() or [""]
    if name not in _LINKS or "sqrt" in options:
        raise refused(f"a LightGBM model with the objective {objective!r} is no straight sum")
    sigmoid = next((option.removeprefix("sigmoid:") for option in options if option.startswith("sigmoid:")), "1")
    values = _numbers(sigmoid, "sigmoid")
    if len(values) != 1 or values[0] <= 0:
        raise UncurseError(f"the sigmoid of this LightGBM model is {sigmoid!r}, which must be above 0; save it again")
    return _LINKS[name], float(values[0]), "average_output" in head.split("\n")


def _whole(lines: dict[str, str], name: str, default: int) -> int:
    value = lines.get(name, str(default)).strip()
    if not re.fullmatch(r"\d{1,9}", value):
        raise UncurseError(f"{name}={value!r} in this LightGBM model is no whole number; save it again")
    return int(value)


def _numbers(text: str, name: str) -> Array:
    with calling_library(f"{name} of this LightGBM model holds what is no finite number"):
        values = np.array(text.split(), np.float64)
        if name == "threshold":  # infinite if all numbers go one way, and missing values the other
            values = np.where(np.isinf(values), np.copysign(np.finfo(np.float64).max, values), values)
        return np.asarray_chkfinite(values)


def _is_tree(lines: dict[str, str], features: int) -> bool:
    """Every node but the root has one parent; every list has its length, and every index is in range."""
    leaves, categories = _whole(lines, "num_leaves", 0), _whole(lines, "num_cat", 0)
    linear, nodes = lines.get("is_linear", "0").strip() == "1", leaves - 1
    lengths = dict.fromkeys(("leaf_value", *(("leaf_const", "num_features") if linear else ())), leaves)
    if nodes > 0:
        lengths |= dict.fromkeys(("split_feature", "threshold", "decision_type", "left_child", "right_child"), nodes)
    names = {*lengths, *_SCALED, "num_features", "leaf_features", "cat_boundaries", "cat_threshold"}
    found = {name: _numbers(lines.get(name, ""), name) for name in names}
    if leaves < 1 or any(len(found[name]) != count for name, count in lengths.items()):
        return False
    counts, inputs = found["num_features"], found["leaf_features"]
    of_leaves = (counts >= 0).all() and counts.sum() == len(inputs) == len(found["leaf_coeff"])
    if linear and not (of_leaves and _within(inputs, features)):
        return False
    if nodes == 0:
        return categories == 0
    children, places = np.append(found["left_child"], found["right_child"]), np.arange(-leaves, nodes)
    by_category = (found["decision_type"].astype(np.int64) & 1) == 1
    bounds, values = found["cat_boundaries"], len(found["cat_threshold"])
    return bool(
        np.array_equal(np.sort(children), places[places != 0])
        and _within(found["split_feature"], features)
        and _within(found["threshold"][by_category], categories)
        and (not categories or [*bounds[:1], len(bounds), *bounds[-1:]] == [0, categories + 1, values])
        and (np.diff(bounds) > 0).all()
    )


def _within(values: Array, end: int) -> bool:
    return bool(((values >= 0) & (values < end)).all())
