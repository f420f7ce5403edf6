"""What model families share: the line of a map, how to score rows, and the comparison of every folded model."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._types import Array
from ...errors import UncurseError
from ...links import logit
from ...maps import Affine, ScoreMap, Segmented
from ...maps.program import SERVE_SEGMENTS
from ...version import __version__

_TRY_SECONDS = 300
_TRY = "import sys; sys.modules |= dict.fromkeys(('pandas', 'pyarrow', 'sklearn')); "  # which take a second to import
STAMP = "uncurse_fold"  # under which a model says what was folded into it
USE_THE_LINE = "fold the straight line nearest to it (`to_affine` of a fitted method, or `uncurse fit --affine`)"
ELSEWHERE = (
    "serve the map behind the model instead: `uncurse fold` appends it to an ONNX model, `uncurse export` writes it as "
    "ONNX, C, Python or SQL, and uncurse.serving.MapModule is a torch module"
)
_CLOSE = 3e-4  # more than the rounding of a sum of a thousand trees in single precision, less than another model
_CLEAR = (1e-30, 0.999)  # probabilities with enough digits in single precision, and next to 1
_ROUNDING = 3e-7  # of a probability in single precision: runtimes compute it from a hyperbolic tangent
_PROBES = 50
_MAGNITUDES = (1e-6, 1e-3, 1.0, 100.0)


@dataclass(frozen=True)
class Scorer:
    """A model as a function from rows to scores (n,), or to the columns 1 − p and p."""

    score: Callable[[Any], Any]
    names: Sequence[str] | None = None  # of the features that it was trained on
    others: Callable[[Any], dict[str, Any]] = lambda _: {}  # further outputs by name, which a fold must not change
    categories: Sequence[Sequence[Any]] = ()  # of features that were text, in their order: the position is the code
    space: str | None = None  # "logit" if scores are known to be logits


def stamp_after(score_map: ScoreMap, stamp: str | None) -> str:
    """Return the stamp of a model into which a map is folded: the maps that it holds, the first one first."""
    return f"{f'{stamp}; ' if stamp else ''}{score_map!r:.200} by uncurse {__version__}"


def try_elsewhere(library: str, code: str, path: Path) -> None:
    """Read a model file in another process first: a damaged one may end the process, or never return."""
    try:
        subprocess.run([sys.executable, "-c", _TRY + code, path], capture_output=True, timeout=_TRY_SECONDS, check=True)
    except subprocess.SubprocessError:
        raise UncurseError(f"{library} does not read {path}: it is damaged or cut off; save it again") from None


def refused(reason: str) -> UncurseError:
    """Return the error for what cannot be folded: it says how to serve the map behind the model."""
    return UncurseError(f"{reason}; {ELSEWHERE}")


@contextmanager
def calling_library(what: str, remedy: str = "save it again") -> Iterator[None]:
    """Turn an error of another library into `what`, its reason, and a remedy: each library has its own errors."""
    try:
        yield
    except UncurseError:
        raise
    except Exception as error:
        text = str(error).partition("Stack trace:")[0]  # of XGBoost, with paths of its authors
        reason = " ".join(re.sub(r"^\[[\d:]+\] \S+: ", "", text).split())[:160] or type(error).__name__
        raise UncurseError(f"{what} ({reason}); {remedy}") from None


def line_of(score_map: ScoreMap, link: str | None = None) -> tuple[float, float]:
    """Return the slope and intercept of a map; `link` is that of the sum in the model, if its file says so."""
    if isinstance(score_map, Segmented):
        raise UncurseError(f"this map has a map for each segment, and a model has one sum; {SERVE_SEGMENTS}")
    if not isinstance(score_map, Affine):
        raise UncurseError(f"this map is not a straight line, so a sum cannot hold it; {USE_THE_LINE}. Or {ELSEWHERE}")
    if link is not None and score_map.link != link:
        what = f"this map is straight in the {score_map.link} link and the sum of this model is in the {link} link"
        raise UncurseError(f"{what}; fit it with link={link!r}, or {ELSEWHERE}")
    if score_map.slope == 0:
        raise UncurseError("the slope of this map is 0, so the folded model would have no order; fit it again")
    return score_map.slope, score_map.intercept


def with_booster(model: Any, booster: Any) -> Any:
    """Return a copy of an estimator with another Booster; of a Booster, the other one itself."""
    if not hasattr(model, "_Booster"):
        return booster
    made: Any = copy.deepcopy(model)
    made._Booster = booster
    return made


def predictions_of(estimator: Any) -> Scorer:
    """Return the probabilities of an estimator, else its decision function, else its predictions."""
    names = ("predict_proba", "decision_function", "predict")
    return Scorer(next(getattr(estimator, name) for name in names if hasattr(estimator, name)))


def draw_rows(width: int, features: Any = (), thresholds: Any = ()) -> list[Array]:
    """Draw rows of several magnitudes, near the split thresholds of features; a leaf has the feature −1 or less."""
    features, thresholds = np.asarray(features, int), np.asarray(thresholds, np.float64)
    known = (features >= 0) & (features < width) & np.isfinite(thresholds)
    rng = np.random.default_rng(0)
    blocks = []
    for magnitude in _MAGNITUDES:
        rows = magnitude * rng.normal(size=(_PROBES, width))
        for feature in np.unique(features[known]):
            near = rng.choice(thresholds[known & (features == feature)], _PROBES)
            rows[:, feature] = near + magnitude * np.where(near == 0, 1, np.abs(near)) * rows[:, feature]
        blocks.append(rows)
    return blocks


# ---------------------------------------------------------------------------- before and after


def columns_of(output: Any) -> Array:
    """Return the scores (k, n) of a model: one row, or for the columns 1 − p and p two rows that should be equal."""
    values = np.asarray(output, np.float64)
    values = values.reshape(len(values), -1).T
    if len(values) == 2:
        return np.stack([values[1], 1 - values[0]])
    if len(values) != 1:
        raise refused(f"this model gives {len(values)} numbers a row, and a map is for one score")
    return values


def spaces_of(score_map: ScoreMap, *scores: Array) -> list[str]:
    """Return what scores may be: values for a map of values, else logits, or probabilities if all lie in [0, 1]."""
    if score_map.scale == "value":
        return ["value"]
    raw = "value" if score_map.link == "identity" and score_map.scale == "probability" else "logit"
    return ["probability", raw] if all(((one >= 0) & (one <= 1)).all() for one in scores) else [raw]


def map_scores(score_map: ScoreMap, space: str, scores: Array) -> Array:
    """Return the map after scores of a space, in the same space."""
    if space == "probability":
        return score_map.at_logits(logit(scores))
    if score_map.link == ("identity" if space == "value" else "logistic"):
        return np.asarray(score_map.transform(scores), np.float64)
    return score_map(scores) if space == "value" else np.asarray(logit(score_map.at_logits(scores)), np.float64)


def check_fold(score_map: ScoreMap, before: Scorer, after: Scorer, blocks: Sequence[Any], what: str) -> None:
    """Refuse a fold if its scores on some rows are not those of the map after the model, up to single precision."""
    compared = False
    for rows in blocks:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            with calling_library(f"{what} cannot score these rows", "pass X=, rows that it can score"):
                (scores, *_), folded = (columns_of(one.score(rows)) for one in (before, after))
                others, folded_others = before.others(rows), after.others(rows)
            spaces = [before.space] if before.space else spaces_of(score_map, scores, folded)
            if before.space is None and score_map.scale == "probability":
                spaces = [space for space in spaces if space != "logit"]
            if not spaces:
                raise UncurseError(f"this map takes probabilities and {what} gives other scores; fit it on those")
            excess, away, known = min(_distance(score_map, space, scores, folded) for space in spaces)
        if excess > 1:
            reason = f"its predictions are not a sum in the {score_map.link} link"
            raise refused(f"{what}, once folded, differs from the map by {away:.3g}: {reason}")
        for name, value in others.items():
            same = np.shape(value) == np.shape(folded_others[name])
            if not (same and np.allclose(value, folded_others[name], _CLOSE, _CLOSE, equal_nan=True)):
                raise refused(f"the output {name!r} of {what} is made of the score too, and would change with it")
        compared = compared or known
    if not compared:
        raise UncurseError(f"{what} gives no score by which to compare the folded model; pass X=, rows that it scores")


def _distance(score_map: ScoreMap, space: str, scores: Array, folded: Array) -> tuple[float, float, bool]:
    """Return how far folded scores are from the map, relative to rounding and absolute, and if any row tells."""
    known = np.isfinite(scores)
    if space == "probability" and score_map.link == "logistic":
        known &= (scores > _CLEAR[0]) & (scores < _CLEAR[1])
    elif score_map.link == "log":  # an exponential may be 0 or infinite
        known &= (scores > 1e-300) & (scores < 1e300)
    if not known.any():
        return 0.0, 0.0, False
    wanted = map_scores(score_map, space, scores[known])
    if space == "probability":
        room = 2e-6 + _CLOSE * wanted
        if score_map.link == "logistic":  # what the map makes of the rounding of the score
            near = (np.clip(scores[known] + sign * _ROUNDING, *_CLEAR) for sign in (1, -1))
            room += np.abs(np.subtract(*(map_scores(score_map, space, one) for one in near)))
    elif score_map.link == "log":
        room = _CLOSE * wanted * max(1.0, np.abs(np.log(wanted)).max())
    else:
        room = _CLOSE * np.full(len(wanted), max(1.0, np.abs(wanted).max()))
    away = np.nan_to_num(np.abs(folded[:, known] - wanted), nan=np.inf)
    return float((away / room).max()), float(away.max()), True
