"""What model families share: the slope and intercept of a map, checks of model and result, and copies of estimators."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import UncurseError
from ...maps import Affine, Chain, Grouped, ScoreMap, compose

#: The link of a model that returns its sum itself: a logit, a probability or a value, as the map says.
RAW = "raw"
ELSEWHERE = (
    "serve the map behind the model instead: `uncurse fold` appends it to an ONNX model, "
    "`uncurse export` writes it as ONNX, C or Python, `uncurse sql` as SQL, and uncurse.serving.MapModule is a torch "
    "module"
)
#: What to do with a curve, in Python.
USE_THE_LINE = (
    "fold the line nearest to it: fold(…, straight=True) of a fitted method or estimator, or `uncurse fit --straight`"
)


def line_of(score_map: ScoreMap, link: str, model: str) -> tuple[float, float]:
    """Return the slope and intercept of a map on the sum of a model with this link."""
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has one line for each group and {model} has one sum; {ELSEWHERE}")
    score_map = simplified(score_map)
    if not isinstance(score_map, Affine):
        raise UncurseError(
            f"this map is not a straight line, so the numbers of {model} cannot hold it; {USE_THE_LINE}. Or {ELSEWHERE}"
        )
    wanted = link if link != RAW else ("logistic" if score_map.scale == "logit" else "identity")
    if link == RAW and score_map.link != wanted:
        raise UncurseError(
            f"this map takes scale={score_map.scale!r} in the {score_map.link} link, and {model} returns its sum as "
            "it is; fit it on that: scale='logit', or link='identity' with scale='value'"
        )
    if score_map.link != wanted:
        raise UncurseError(
            f"this map is straight in the {score_map.link} link and {model} in the {wanted} link; fit it with "
            f"link={wanted!r}, or {ELSEWHERE}"
        )
    if score_map.slope == 0:
        raise UncurseError("the slope of this map is 0, so the folded model would have no order; fit it again")
    return score_map.slope, score_map.intercept


def simplified(score_map: ScoreMap) -> ScoreMap:
    """Return a chain of straight lines as one line."""
    return compose(*score_map.maps, scale=score_map.scale) if isinstance(score_map, Chain) else score_map


def check_folded(wanted: ArrayLike, found: ArrayLike, tolerance: float, what: str) -> None:
    """Refuse a fold whose scores differ from the mapped scores of the model, relative to the largest beyond 1."""
    wanted, found = np.asarray(wanted, np.float64), np.asarray(found, np.float64)
    away = np.abs(wanted - found) / max(1.0, np.abs(wanted).max(initial=0.0))
    if not away.max(initial=0.0) <= tolerance:  # NaN too
        raise UncurseError(
            f"{what}: the folded model differs from the map after the model by {away.max():.3g}; {ELSEWHERE}"
        )


def fold_estimator(estimator: Any, fold_booster: Callable[[Any], Any]) -> Any:
    """Copy an estimator of LightGBM or XGBoost with a folded booster; the copy shares no settings with it."""
    if getattr(estimator, "_Booster", None) is None:
        raise UncurseError(f"this {type(estimator).__name__} is not fitted; fit it first")
    made = copy.copy(estimator)
    vars(made).update({name: copy.copy(value) for name, value in vars(made).items() if isinstance(value, dict)})
    made._Booster = fold_booster(estimator._Booster)
    return made


def check_predicts(model: Any, library: str) -> None:
    """Refuse a subclass of a library's model that overrides how it predicts."""
    for part in type(model).__mro__:
        if part.__module__.split(".")[0] == library:
            return
        own = [name for name in ("predict", "predict_proba", "decision_function") if name in vars(part)]
        if own:
            raise UncurseError(
                f"{part.__name__} has a {own[0]} of its own, so its sum is not known; fold the model inside it, or "
                f"{ELSEWHERE}"
            )
