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
from .line import ELSEWHERE, RAW, check_predicts, fold_estimator, line_of

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


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a Booster, or into an estimator that holds one."""
    import lightgbm

    check_predicts(model, "lightgbm")
    if isinstance(model, lightgbm.LGBMModel):
        return fold_estimator(model, lambda booster: fold_model(score_map, booster))
    if not isinstance(model, lightgbm.Booster):
        raise UncurseError(f"a {type(model).__name__} of LightGBM is no model; pass a Booster or an estimator")
    text = model.model_to_string(num_iteration=-1)
    folded = lightgbm.Booster(model_str=_fold_text(score_map, text))
    folded.params = dict(model.params)
    folded.best_iteration, folded.best_score = model.best_iteration, copy.deepcopy(model.best_score)
    return folded


def _fold_text(score_map: ScoreMap, text: str) -> str:
    link, sigmoid, averaged = _check_text(text)
    slope, intercept = line_of(score_map, link, "this LightGBM model")
    shift = intercept / sigmoid
    head, trees, tail = _parts(text)
    made = [_scaled(tree, slope, shift if averaged or i == 0 else 0.0) for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in made)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head) + "".join(made) + tail


def _scaled(tree: str, slope: float, shift: float) -> str:
    def line(match: re.Match[str]) -> str:
        name, values = match[1], match[2]
        add = 0.0 if name == "leaf_coeff" else shift
        return f"{name}=" + re.sub(r"\S+", lambda number: f"{slope * float(number[0]) + add:.17g}", values)

    return re.sub(rf"(?m)^({'|'.join(_SCALED)})=(.*)$", line, tree)


# ---------------------------------------------------------------------------- files


def fold_file(score_map: ScoreMap, source: Path, target: Path, kind: str) -> None:
    """Fold a map into a saved model, without LightGBM."""
    target.write_bytes(_fold_text(score_map, _read(source)).encode())


def load_scorer(path: Path, score_map: ScoreMap) -> Scorer:
    """Load a saved model as a function to its sum."""
    text = _read(path)
    link, sigmoid, averaged = _check_text(text)
    import lightgbm

    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise UncurseError(f"LightGBM does not read {path}: {error}") from None
    names = booster.feature_name()
    if link == "logistic" and not averaged:  # LightGBM averages predictions, but not raw scores
        return Scorer(lambda x: sigmoid * np.asarray(booster.predict(x, raw_score=True, num_threads=1)), "logit", names)
    space = {"logistic": "probability", "log": "value"}.get(link, score_map.scale)
    return Scorer(lambda x: booster.predict(x, num_threads=1), space, names)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()  # with the line ends that it has
    except UnicodeDecodeError:
        raise UncurseError(f"{path} is not whole: it is no UTF-8 text; save the model again") from None


# ---------------------------------------------------------------------------- checks: LightGBM follows without any


def _check_text(text: str) -> tuple[str, float, bool]:
    """Return the link, the factor of its sum, and whether trees are averaged; refuse a damaged model."""
    head, trees, _ = _parts(text)
    lines = _lines(head)
    features = _whole(lines, "max_feature_idx", 0)
    for i, tree in enumerate(trees):
        if not _is_tree(_lines(tree), features):
            raise UncurseError(f"tree {i} of this LightGBM model is damaged; save it again")
    return *_link(lines), "average_output" in head.split("\n")


def _lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\n") if "=" in line)


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


def _numbers(text: str, name: str) -> Array:
    try:
        values = np.array(text.split(), np.float64)
    except ValueError:
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise UncurseError(f"{name} of this LightGBM model holds what is no finite number; save it again")
    return values


def _is_tree(lines: dict[str, str], features: int) -> bool:
    """Every node but the root has one parent, before it; every list has its length, and every index is in range."""
    leaves, linear = _whole(lines, "num_leaves", 0), lines.get("is_linear", "0").strip() == "1"
    nodes = leaves - 1
    lengths = {"leaf_value": leaves} | ({"leaf_const": leaves, "num_features": leaves} if linear else {})
    if nodes > 0:
        lengths |= dict.fromkeys(("split_feature", "threshold", "decision_type", "left_child", "right_child"), nodes)
    names = {*lengths, *_SCALED, "leaf_features", "cat_boundaries", "cat_threshold"}
    found = {name: _numbers(lines.get(name, ""), name) for name in names}
    if leaves < 1 or any(len(found[name]) != count for name, count in lengths.items()):
        return False
    if linear and not (
        (found["num_features"] >= 0).all()
        and found["num_features"].sum() == len(found["leaf_features"]) == len(found["leaf_coeff"])
        and _within(found["leaf_features"], features + 1)
    ):
        return False
    categories = _whole(lines, "num_cat", 0)
    if nodes <= 0:
        return categories == 0
    children, places = np.stack([found["left_child"], found["right_child"]]), np.arange(-leaves, nodes)
    bounds, by_category = found["cat_boundaries"], (found["decision_type"].astype(np.int64) & 1) == 1
    return (
        np.array_equal(np.sort(children, axis=None), places[places != 0])
        and bool((children > np.arange(nodes))[children >= 0].all())
        and _within(found["split_feature"], features + 1)
        and _within(found["threshold"][by_category], categories)
        and (
            not categories
            or (len(bounds) == categories + 1 and bounds[0] == 0 and bounds[-1] == len(found["cat_threshold"]))
        )
        and bool((np.diff(bounds) > 0).all())
    )


def _within(values: Array, end: int) -> bool:
    return bool(((values >= 0) & (values < end)).all())
