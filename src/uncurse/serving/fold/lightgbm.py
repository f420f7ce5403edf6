"""LightGBM: a model is a text, and its leaves are numbers in it.

Leaves are scaled, and the shift goes to the first tree, or to every tree where trees are averaged. Values inside the
trees, from which libraries draw explanations, move along.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from ..._types import Array
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

_TRY = (
    "import lightgbm, numpy; model = lightgbm.Booster(model_file=sys.argv[1]); "
    "model.predict(numpy.zeros((1, model.num_feature())), num_threads=1)"
)
# Among the parameters, which LightGBM keeps. Of one that it does not recognize, it would warn at every load.
_STAMP = re.compile(rf"(?m)^\[input_model: {STAMP} (.*)\]\n")
_SCALED = re.compile(r"(?m)^(leaf_value|internal_value|leaf_const|leaf_coeff)=(.*)$")


def fold_model(score_map: ScoreMap, model: Any) -> Iterator[Any]:
    """Fold a map into a Booster, or into a copy of an estimator that holds one."""
    booster = _booster(model)
    text = booster.model_to_string(num_iteration=-1)
    head, *trees = re.split(r"(?m)^(?=Tree=)", text)
    trees[-1], tail = re.split(r"(?m)^(?=end of trees)", trees[-1], maxsplit=1)
    logistic, sigmoid, averaged = _objective(head)
    slope, intercept = line_of(score_map, "logistic" if logistic else None)
    shift = intercept / sigmoid
    note = f"[input_model: {STAMP} {stamp_after(score_map, stamp(model))}]\n"
    if "\nend of parameters" in tail:
        tail = _STAMP.sub("", tail).replace("\nend of parameters", f"{note}\nend of parameters", 1)
    made = [_scaled(tree, slope, shift if averaged or i == 0 else 0.0) for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in made)
    folded = lightgbm.Booster(
        model_str=re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head) + "".join(made) + tail
    )
    folded.params = dict(booster.params)
    folded.best_iteration, folded.best_score = booster.best_iteration, copy.deepcopy(booster.best_score)
    yield with_booster(model, folded)


def _booster(model: Any) -> Any:
    return model if isinstance(model, lightgbm.Booster) else model.booster_


def stamp(model: Any) -> str | None:
    """Return what was folded into a model before."""
    found = _STAMP.search(_booster(model).model_to_string(num_iteration=1))
    return found and found[1]


def _scaled(tree: str, slope: float, shift: float) -> str:
    def line(match: re.Match[str]) -> str:
        add = 0.0 if match[1] == "leaf_coeff" else shift
        return f"{match[1]}=" + " ".join(f"{slope * float(number) + add:.17g}" for number in match[2].split())

    return _SCALED.sub(line, tree)


def _objective(text: str) -> tuple[bool, float, bool]:
    """Return whether the sum is a logit, what multiplies it, and whether trees are averaged."""
    logistic = re.search(r"(?m)^objective=(binary|cross_entropy|xentropy)( |$)", text)
    sigmoid = re.search(r"(?m)^objective=.* sigmoid:(\S+)", text)
    averaged = re.search(r"(?m)^average_output$", text)
    return logistic is not None, float(sigmoid[1]) if sigmoid else 1.0, averaged is not None


def scorer(model: Any) -> Scorer:
    """Return what an estimator predicts; of a Booster the logit or prediction."""
    if not isinstance(model, lightgbm.Booster):
        return predictions_of(model)
    logistic, sigmoid, averaged = _objective(model.model_to_string(num_iteration=1))
    raw = logistic and not averaged  # LightGBM averages predictions, but not raw scores

    def score(x: Any) -> Array:
        return (sigmoid if raw else 1.0) * np.asarray(model.predict(x, raw_score=raw, num_threads=1))

    names, categories = model.feature_name(), model.pandas_categorical or ()
    return Scorer(score, names, categories=categories, space="logit" if raw else None)


def rows_for(model: Any) -> list[Array]:
    """Draw rows near the thresholds of the trees."""
    booster = _booster(model)
    text = booster.model_to_string(num_iteration=-1)
    lists = [" ".join(re.findall(rf"(?m)^{name}=(.*)$", text)).split() for name in ("split_feature", "threshold")]
    return draw_rows(booster.num_feature(), *lists)


def read(path: Path) -> Any:
    """Read a model from a text file."""
    with calling_library(f"LightGBM does not read {path}"):
        text = path.read_text(encoding="utf-8", errors="replace")
        for children in re.findall(r"(?m)^(?:left|right)_child=(.*)$", text):
            child = np.array(children.split(), np.int64)
            if ((child >= 0) & (child <= np.arange(len(child)))).any():
                raise ValueError("a tree has a cycle, so that a prediction would never end")
        try_elsewhere("LightGBM", _TRY, path)
        return lightgbm.Booster(model_file=path)


def write(model: Any, source: Path, target: Path) -> None:
    """Save a Booster as text."""
    model.save_model(target, num_iteration=-1)
