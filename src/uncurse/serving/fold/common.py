"""What model families share: the line of a map, how to score rows, and the comparison of every folded model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...links import logit
from ...maps import Affine, ScoreMap, Segmented
from ...maps.program import SERVE_SEGMENTS

#: The link of a model that returns its sum itself: a logit, a probability or a value, as the map says.
RAW = "raw"
USE_THE_LINE = "fold the straight line nearest to it (`to_affine` of a fitted method, or `uncurse fit --affine`)"
ELSEWHERE = (
    "serve the map behind the model instead: `uncurse fold` appends it to an ONNX model, `uncurse export` writes it as "
    "ONNX, C, Python or SQL, and uncurse.serving.MapModule is a torch module"
)
_CLOSE = 3e-4  # between the rounding of a sum of thousand trees in single precision, and other models
_CLEAR = (1e-30, 0.999)  # probabilities with enough digits in single precision, and next to 1
_PROBES = 50
_MAGNITUDES = (1e-6, 1e-3, 1.0, 100.0)


@dataclass(frozen=True)
class Scorer:
    """A model as a function."""

    score: Callable[[Any], Any]  # rows to scores (n,), or to the columns 1 − p and p
    space: str  # of the scores: logit, probability or value
    names: Sequence[str] | None = None  # of the features that it was trained on
    others: Callable[[Any], dict[str, Any]] = lambda _: {}  # further outputs by name, which a fold must not change
    categories: Sequence[Sequence[Any]] = ()  # of features that were text, in their order: the position is the code


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
    if isinstance(score_map, Segmented):
        raise UncurseError(f"this map has a map for each segment, and {model} has one sum; {SERVE_SEGMENTS}")
    if not isinstance(score_map, Affine):
        what = f"this map is not a straight line, so the numbers of {model} cannot hold it"
        raise UncurseError(f"{what}; {USE_THE_LINE}. Or {ELSEWHERE}")
    wanted = link if link != RAW else ("logistic" if score_map.scale == "logit" else "identity")
    if score_map.link != wanted and link == RAW:
        what = f"this map takes scale={score_map.scale!r} in the {score_map.link} link, and {model} returns its sum"
        raise UncurseError(f"{what} as it is; fit it on that: scale='logit', or link='identity' with scale='value'")
    if score_map.link != wanted:
        what = f"this map is straight in the {score_map.link} link and {model} in the {wanted} link"
        raise refused(what, f"fit it with link={wanted!r}")
    if score_map.slope == 0:
        raise UncurseError("the slope of this map is 0, so the folded model would have no order; fit it again")
    return score_map.slope, score_map.intercept


def booster_of(model: Any, library: Any, estimator: type) -> Any:
    """Return the Booster of LightGBM or XGBoost, or the one inside a fitted estimator."""
    kind = type(model).__name__
    if isinstance(model, library.Booster):
        return model
    if not isinstance(model, estimator):
        raise UncurseError(f"a {kind} of {library.__name__} is no model; pass a Booster or an estimator")
    if getattr(model, "_Booster", None) is None:
        raise UncurseError(f"this {kind} is not fitted; fit it first")
    return model._Booster  # type: ignore[attr-defined]


def with_booster(model: Any, booster: Any) -> Any:
    """Return a copy of an estimator with another Booster, which shares no settings; of a Booster, that itself."""
    if not hasattr(model, "_Booster"):
        return booster
    made: Any = copy.copy(model)
    vars(made).update({name: copy.copy(value) for name, value in vars(made).items() if isinstance(value, dict)})
    made._Booster = booster
    return made


def predictions_of(model: Any, score_map: ScoreMap) -> list[Scorer]:
    """Return what an estimator itself predicts; a Booster predicts its sum."""
    if hasattr(model, "predict_proba"):
        return [Scorer(model.predict_proba, "probability")]
    return [Scorer(model.predict, score_map.scale)] if hasattr(model, "_Booster") else []


def draw_rows(width: int, splits: Mapping[int, Array]) -> list[Array]:
    """Draw rows of several magnitudes; features with split thresholds are drawn near these."""
    rng = np.random.default_rng(0)
    blocks = []
    for magnitude in _MAGNITUDES:
        rows = magnitude * rng.normal(size=(_PROBES, width))
        for feature, thresholds in splits.items():
            near = rng.choice(thresholds, _PROBES)
            rows[:, feature] = near + magnitude * np.where(near == 0, 1, np.abs(near)) * rows[:, feature]
        blocks.append(rows)
    return blocks


def check_fold(score_map: ScoreMap, pairs: Sequence[tuple[Scorer, Scorer]], blocks: Sequence[Any], what: str) -> None:
    """Refuse a fold if its scores on some rows are not those of the map after the model, up to single precision."""
    compared = not blocks
    for before, after in pairs:
        for rows in blocks:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                with calling_library(f"{what} cannot score these rows", "pass X=, rows that it can score"):
                    scores, folded = before.score(rows), after.score(rows)
                    others, folded_others = before.others(rows), after.others(rows)
                wanted, found, rooms = _wanted_and_found(score_map, before.space, scores, folded)
            compared = compared or bool(len(wanted))
            if not (np.abs(wanted - found) <= rooms).all():  # NaN too
                away = np.abs(wanted - found).max()
                raise refused(f"{what} is not the sum that it seems: folded, it differs from the map by {away:.3g}")
            for name, value in others.items():
                same = np.shape(value) == np.shape(folded_others[name])
                if not (same and np.allclose(value, folded_others[name], _CLOSE, _CLOSE, equal_nan=True)):
                    raise refused(f"the output {name!r} of {what} is made of the score too, and would change with it")
    if not compared:
        raise UncurseError(f"{what} gives no score by which to compare the folded model; pass X=, rows that it scores")


def _wanted_and_found(score_map: ScoreMap, space: str, scores: Any, folded: Any) -> tuple[Array, Array, Array]:
    """Return mapped scores, scores of the folded model, and how far they may be apart."""
    before, after = (np.asarray(one, np.float64) for one in (scores, folded))
    if before.shape != after.shape:
        raise UncurseError(f"the folded model gives scores of shape {after.shape}, the model of {before.shape}")
    if space == "probability":
        pairs = before.ndim == 2 and before.shape[1] == 2
        if pairs and not np.allclose(after.sum(axis=1), before.sum(axis=1), 0.0, 1e-5):
            return np.zeros(1), np.ones(1), np.zeros(1)
        before, after = (one[:, 1] if pairs else one.ravel() for one in (before, after))
        clear = (before > _CLEAR[0]) & (before < _CLEAR[1])
        wanted = np.asarray(score_map.at_logits(logit(before[clear])), np.float64) if clear.any() else np.empty(0)
        return wanted, after[clear], 2e-6 + _CLOSE * wanted
    before, after = before.ravel(), after.ravel()
    if score_map.link == "log":
        clear = (before > 1e-300) & (before < 1e300)  # an exponential may be 0 or infinite
        before, after = np.log(before[clear]), np.log(after[clear])
    else:
        clear = np.isfinite(before)
        before, after = before[clear], after[clear]
    wanted = np.asarray(score_map.transform(before), np.float64) if len(before) else np.empty(0)
    return wanted, after, _CLOSE * np.full(len(wanted), max(1.0, np.abs(wanted).max(initial=0.0)))
