"""What model families share: the slope and intercept of a map, checks of model and result, and errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import UncurseError
from ...maps import Affine, Chain, Grouped, ScoreMap, compose
from ...maps.compile import SERVE_GROUPS

#: The link of a model that returns its sum itself: a logit, a probability or a value, as the map says.
RAW = "raw"
#: What to do with a curve, in Python.
USE_THE_LINE = (
    "fold the line nearest to it: fold(…, straight=True) of a fitted method or estimator, or `uncurse fit --straight`"
)
ELSEWHERE = (
    "serve the map behind the model instead: `uncurse fold` appends it to an ONNX model, "
    "`uncurse export` writes it as ONNX, C or Python, `uncurse sql` as SQL, and uncurse.serving.MapModule is a torch "
    "module"
)


def refused(reason: str, remedy: str = "") -> UncurseError:
    """Return the error for what cannot be folded: it names a remedy, and how to serve the map behind the model."""
    return UncurseError(f"{reason}; {f'{remedy}, or ' if remedy else ''}{ELSEWHERE}")


@contextmanager
def calling_library(what: str, remedy: str = "save it again") -> Iterator[None]:
    """Turn an error of another library into `what`, its reason, and a remedy: each library has its own errors."""
    try:
        yield
    except UncurseError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UncurseError(f"{what} ({reason}); {remedy}") from None


def line_of(score_map: ScoreMap, link: str, model: str) -> tuple[float, float]:
    """Return the slope and intercept of a map on the sum of a model with this link."""
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has a map for each group, and {model} has one sum; {SERVE_GROUPS}")
    score_map = simplified(score_map)
    if not isinstance(score_map, Affine):
        what = f"this map is not a straight line, so the numbers of {model} cannot hold it"
        raise UncurseError(f"{what}; {USE_THE_LINE}. Or {ELSEWHERE}")
    wanted = link if link != RAW else ("logistic" if score_map.scale == "logit" else "identity")
    if score_map.link != wanted and link == RAW:
        what = f"this map takes scale={score_map.scale!r} in the {score_map.link} link, and {model} returns its sum"
        raise UncurseError(f"{what} as it is; fit it on that: scale='logit', or link='identity' with scale='value'")
    if score_map.link != wanted:
        what = f"this map is straight in the {score_map.link} link and {model} in the {wanted} link"
        remedy = f"fit it with link={wanted!r}"
        if score_map.scale == "value":
            remedy = f"fit VAD(scale='value', link={wanted!r}), without labels, on the scores of `fit_replicas`"
        raise refused(what, remedy)
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
        raise refused(f"{what}: the folded model differs from the map after the model by {away.max():.3g}")


def fold_boosted(model: Any, library: Any, estimator: type, fold_booster: Callable[[Any], Any]) -> Any:
    """Fold a Booster of LightGBM or XGBoost, or a copy of an estimator that holds one and shares no settings."""
    check_predicts(model, library.__name__)
    kind = type(model).__name__
    if isinstance(model, library.Booster):
        return fold_booster(model)
    if not isinstance(model, estimator):
        raise UncurseError(f"a {kind} of {library.__name__} is no model; pass a Booster or an estimator")
    if getattr(model, "_Booster", None) is None:
        raise UncurseError(f"this {kind} is not fitted; fit it first")
    made: Any = copy.copy(model)
    vars(made).update({name: copy.copy(value) for name, value in vars(made).items() if isinstance(value, dict)})
    made._Booster = fold_booster(made._Booster)
    return made


def check_predicts(model: Any, library: str) -> None:
    """Refuse a subclass of a library's model that overrides how it predicts."""
    for part in type(model).__mro__:
        if part.__module__.split(".")[0] == library:
            return
        for name in ("predict", "predict_proba", "decision_function"):
            if name in vars(part):
                what = f"{part.__name__} has a {name} of its own, so its sum is not known"
                raise refused(what, "fold the model inside it")
