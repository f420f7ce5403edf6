"""LightGBM: a model is a text, and its leaves are numbers in it.

Leaves are scaled, and the shift goes to the first tree, or to every tree where trees are averaged. Values inside the
trees, from which libraries draw explanations, move along.
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
    **dict.fromkeys(("binary", "cross_entropy", "xentropy"), "logistic"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "log"),
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), RAW),
    **dict.fromkeys(("", "none", "custom", "lambdarank", "rank_xendcg"), RAW),
}
_SCALED = re.compile(r"(?m)^(leaf_value|internal_value|leaf_const|leaf_coeff)=(.*)$")


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """Fold a map into a Booster, or into a copy of an estimator that holds one."""
    import lightgbm

    booster = _booster(model)
    text = _fold_text(score_map, booster.model_to_string(num_iteration=-1))
    with calling_library("LightGBM does not read the folded model"):
        folded = lightgbm.Booster(model_str=text)
    folded.params = dict(booster.params)
    folded.best_iteration, folded.best_score = booster.best_iteration, copy.deepcopy(booster.best_score)
    return with_booster(model, folded)


def _booster(model: Any) -> Any:
    import lightgbm

    return booster_of(model, lightgbm, lightgbm.LGBMModel)


def _fold_text(score_map: ScoreMap, text: str) -> str:
    link, sigmoid, averaged = _link(text)
    slope, intercept = line_of(score_map, link, "this LightGBM model")
    head, *trees = re.split(r"(?m)^(?=Tree=)", text)
    trees[-1], tail = re.split(r"(?m)^(?=end of trees)", trees[-1], maxsplit=1)
    shift = intercept / sigmoid
    made = [_scaled(tree, slope, shift if averaged or i == 0 else 0.0) for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in made)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head) + "".join(made) + tail


def _scaled(tree: str, slope: float, shift: float) -> str:
    def line(match: re.Match[str]) -> str:
        add = 0.0 if match[1] == "leaf_coeff" else shift
        return f"{match[1]}=" + " ".join(f"{slope * float(number) + add:.17g}" for number in match[2].split())

    return _SCALED.sub(line, tree)


def _link(text: str) -> tuple[str, float, bool]:
    """Return the link of the objective, what it multiplies the sum by, and whether trees are averaged."""
    lines = text[: text.find("\nTree=")].split("\n")
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    if values.get("num_class", "1") != "1":
        raise refused("this LightGBM model has several classes: a softmax is no one score")
    objective = values.get("objective", "")
    name, *options = objective.split() or [""]
    if name not in _LINKS or "sqrt" in options:
        raise refused(f"a LightGBM model with the objective {objective!r} is no straight sum")
    sigmoid = next((option.removeprefix("sigmoid:") for option in options if option.startswith("sigmoid:")), "1")
    return _LINKS[name], float(sigmoid), "average_output" in lines


def scorers(model: Any, score_map: ScoreMap) -> list[Scorer]:
    """Return the sum of the Booster, and what the estimator around it predicts."""
    booster = _booster(model)
    link, sigmoid, averaged = _link(booster.model_to_string(num_iteration=1))
    raw = link == "logistic" and not averaged  # LightGBM averages predictions, but not raw scores
    space = "logit" if raw else {"logistic": "probability", "log": "value"}.get(link, score_map.scale)

    def score(x: Any) -> Array:
        return (sigmoid if raw else 1.0) * np.asarray(booster.predict(x, raw_score=raw, num_threads=1))

    found = [Scorer(score, space, booster.feature_name(), categories=booster.pandas_categorical or ())]
    return [*found, *predictions_of(model, score_map)]


def rows_for(model: Any) -> list[Any]:
    """Draw rows near the thresholds of the trees."""
    booster = _booster(model)
    text = booster.model_to_string(num_iteration=-1)
    lists = [" ".join(re.findall(rf"(?m)^{name}=(.*)$", text)).split() for name in ("split_feature", "threshold")]
    features, thresholds = np.array(lists[0], int), np.array(lists[1], float)
    known = np.isfinite(thresholds)
    splits = {i: thresholds[known & (features == i)] for i in np.unique(features[known]).tolist()}
    return list(draw_rows(booster.num_feature(), splits))


def read(path: Path) -> Any:
    """Read a model from a text file."""
    import lightgbm

    if b"\nend of trees" not in path.read_bytes():  # LightGBM would end the process
        raise UncurseError(f"{path} has no end of trees, so it is cut off; save it again")
    with calling_library(f"LightGBM does not read {path}"):
        return lightgbm.Booster(model_file=path)


def write(model: Any, source: Path, target: Path) -> None:
    """Save a Booster as text."""
    model.save_model(target, num_iteration=-1)
