"""See that a folded model is the map after the model: order, differences, latency, all measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import logistic, logit
from ..maps import ScoreMap
from ..optional import needing
from .files import family, text_of

_KNOWN = 10.0  # logits that single precision tells apart once they are probabilities
_AGREE = 1e-5
_MANY = 10_000
_ROUNDING = 8 * 2.0**-24  # of single precision: what is nearer has no order
_SECONDS = 1.0  # of timing for each size

#: Features (n, d) to scores (n,).
Score = Callable[[Any], Any]


@dataclass(frozen=True)
class Verification:
    """What a comparison of two models found.

    `reversed_pairs` counts neighbours in the order of the first model that the second puts the other way round by more
    than rounding; `score_difference` is the largest one to the map applied after the fact, of logits up to ±10 where
    predictions are probabilities; times are the least of many interleaved calls, in seconds.
    """

    rows: int
    reversed_pairs: int
    score_difference: float
    prediction_difference: float
    largest: float  # of the predictions
    one_row: tuple[float, float]
    many_rows: tuple[float, float]
    many: int

    @property
    def agrees(self) -> bool:
        """It is the map after the model: the same order, and predictions to 1e-5, or of values to that share."""
        return self.same_order and self.prediction_difference <= _AGREE * max(1.0, self.largest)

    @property
    def same_order(self) -> bool:
        """No pair is reversed."""
        return self.reversed_pairs == 0

    def to_json(self) -> str:
        """One JSON document."""
        return documents.dumps("verification", asdict(self))


def verify(score_map: ScoreMap, before: Score, after: Score, features: Any, *, space: str = "logit") -> Verification:
    """Compare a model, as a function from features to scores, with the folded one.

    Parameters
    ----------
    before, after
        Functions from features to scores (n,).
    features
        What both take, with ``len`` and slices of rows: an array or a frame.
    space
        What they return: ``"logit"``, ``"probability"`` or ``"value"``.

    Examples
    --------
    >>> from uncurse import Affine
    >>> X = np.linspace(-3, 3, 1_000)
    >>> found = verify(Affine(0.5, 0.1), lambda x: 2 * x, lambda x: x + 0.1, X)
    >>> found.same_order, found.score_difference < 1e-12
    (True, True)
    """
    scores, folded = (np.asarray(one(features), np.float64) for one in (before, after))
    if not (np.isfinite(scores).all() and np.isfinite(folded).all()):
        raise UncurseError("a model gives scores that are not finite; pass rows that both can score")
    if scores.ndim != 1 or scores.shape != folded.shape or not len(scores):
        raise UncurseError(f"the models give scores of shape {scores.shape} and {folded.shape}; pass one for each row")
    times = [_least(before, after, features[: min(rows, len(scores))]) for rows in (1, _MANY)]
    difference, of_predictions, wanted = _differences(score_map, scores, folded, space)
    return Verification(
        rows=len(scores),
        reversed_pairs=_reversals(scores, wanted, folded),
        score_difference=difference,
        prediction_difference=of_predictions,
        largest=float(np.abs(folded).max()) if space == "value" else 1.0,
        one_row=times[0],
        many_rows=times[1],
        many=min(_MANY, len(scores)),
    )


def _differences(score_map: ScoreMap, scores: Array, folded: Float, space: str) -> tuple[float, float, Float]:
    """The largest ones of scores (logits, where a prediction is a probability), of predictions; and what was meant."""
    if space == "logit":
        wanted: Float = (
            logit(score_map.at_logits(scores)) if score_map.link != "logistic" else score_map.transform(scores)
        )
        p_wanted: Float = score_map.at_logits(scores)
        p_folded: Float = logistic(folded)
    elif space == "probability":
        p_wanted = score_map.at_logits(logit(scores)) if score_map.scale == "logit" else score_map(scores)
        p_folded, wanted, folded = folded, logit(p_wanted), logit(folded)
    else:
        wanted = p_wanted = score_map(scores)
        p_folded = folded
    known = np.abs(wanted) <= _KNOWN if space != "value" else np.ones(len(wanted), bool)
    away = np.abs(wanted - folded)[known]
    found = p_wanted if space == "probability" else wanted
    return float(away.max(initial=0.0)), float(np.abs(p_wanted - p_folded).max()), found


def _reversals(scores: Array, wanted: Float, folded: Array) -> int:
    """Neighbours that changed places, or that are one where the map keeps them well apart."""
    order = np.argsort(scores, kind="stable")
    before, meant, after = (np.diff(values[order]) for values in (scores, wanted, folded))
    near = _ROUNDING * np.maximum(np.abs(folded[order][1:]), 1.0)
    return int(((before > 0) & ((after < -near) | ((meant > 64 * near) & (after <= 0)))).sum())


def _least(before: Score, after: Score, features: Any) -> tuple[float, float]:
    """The least time of each, taken in turns: what else the machine does meets both."""
    least = [np.inf, np.inf]
    pair = list(enumerate((before, after)))
    end = time.perf_counter() + _SECONDS
    turns = 0
    while turns < 5 or time.perf_counter() < end:
        for place, one in pair:
            start = time.perf_counter()
            one(features)
            least[place] = min(least[place], time.perf_counter() - start)
        pair.reverse()
        turns += 1
    return least[0], least[1]


# ---------------------------------------------------------------------------- saved models


def verify_files(
    score_map: ScoreMap,
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    features: list[str] | None = None,
    output: str | None = None,
) -> Verification:
    """Compare two saved models on the rows of a parquet or CSV file."""
    kinds = [family(path) for path in (before, after)]
    if kinds[0] != kinds[1]:
        raise UncurseError(f"{before} is {kinds[0]} and {after} is {kinds[1]}; fold keeps the kind, so pass its output")
    first, second = (_scorer(kinds[0], Path(path), score_map, output) for path in (before, after))
    rows = _rows(Path(data), features, first.names)
    try:
        return verify(score_map, first.score, second.score, rows, space=first.space)
    except UncurseError:
        raise
    except Exception as error:  # each library has its own
        reason = " ".join(str(error).split())[:160]
        what = f"a model cannot score {rows.shape[1]} columns of {data} ({reason})"
        raise UncurseError(f"{what}; name the features (--features)") from None


@dataclass(frozen=True)
class _Scorer:
    score: Score
    space: str
    names: Sequence[str] | None = None  # of the features that it was trained on


def _rows(data: Path, asked: Sequence[str] | None, own: Sequence[str] | None) -> Array:
    """Numbers (n, d): the columns that are asked for, else those that the model names, if all are there, else all."""
    import polars as pl

    try:
        scan = pl.scan_csv(data) if data.suffix == ".csv" else pl.scan_parquet(data)
        there = scan.collect_schema()
        lacking = [name for name in asked or () if name not in there]
        if lacking:
            raise UncurseError(f"{data} has no column {lacking[0]!r}; there are: {', '.join(list(there)[:20])}")
        chosen = asked or (own if own and all(name in there for name in own) else list(there))
        frame = scan.select(chosen).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UncurseError(f"cannot read {data}: {str(error).splitlines()[0]}") from None
    texts = [name for name, dtype in frame.schema.items() if not (dtype.is_numeric() or dtype == pl.Boolean)]
    if texts:
        what = f"column {texts[0]!r} of {data} holds {frame.schema[texts[0]]}"
        raise UncurseError(f"{what}, no numbers; name the features (--features)")
    if not len(frame):
        raise UncurseError(f"{data} has no rows; pass some that the model can score")
    return np.ascontiguousarray(frame.cast(pl.Float64).to_numpy())


def _scorer(kind: str, path: Path, score_map: ScoreMap, output: str | None) -> _Scorer:
    """A saved model as a function to its sum, or to its prediction where that is no logit."""
    if kind == "lightgbm":
        return _lightgbm(path, score_map)
    if kind == "xgboost":
        return _xgboost(path, score_map)
    if kind == "onnx":
        return _onnx(path, score_map, output)
    if kind.startswith("catboost"):
        return _catboost(path, score_map, "cbm" if kind == "catboost" else "json")
    raise UncurseError(
        f"{path} holds weights and no graph, so it cannot score; verify the modules in Python: "
        "uncurse.serving.verify(map, before, after, X)"
    )


def _space(link: str, score_map: ScoreMap) -> str:
    return {"logistic": "logit", "log": "value"}.get(link, score_map.scale)


def _lightgbm(path: Path, score_map: ScoreMap) -> _Scorer:
    from .lightgbm_model import about

    text = text_of(path)
    link, sigmoid, averaged = about(text)
    with needing("lightgbm"):
        import lightgbm
    try:
        booster = lightgbm.Booster(model_str=text, params={"verbosity": -1})
    except lightgbm.basic.LightGBMError as error:
        raise UncurseError(f"LightGBM does not read {path}: {error}") from None
    names = booster.feature_name()
    if link != "logistic" or averaged:  # LightGBM averages predictions, but not raw scores
        return _Scorer(booster.predict, "probability" if link == "logistic" else _space(link, score_map), names)
    return _Scorer(lambda x: sigmoid * np.asarray(booster.predict(x, raw_score=True)), "logit", names)


def _xgboost(path: Path, score_map: ScoreMap) -> _Scorer:
    from . import xgboost_model

    data = path.read_bytes()
    link = xgboost_model.link_of(xgboost_model.read(data))
    with needing("xgboost"):
        import xgboost
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(data))
    except xgboost.core.XGBoostError as error:
        raise UncurseError(f"XGBoost does not read {path}: {str(error).splitlines()[0]}") from None
    kind = "value" if link == "log" else "margin"
    return _Scorer(
        lambda x: booster.inplace_predict(x, predict_type=kind, validate_features=False),
        _space(link, score_map),
        booster.feature_names,
    )


def _catboost(path: Path, score_map: ScoreMap, form: str) -> _Scorer:
    from . import catboost_model

    model = catboost_model.load(path, form)
    link = catboost_model.link_of(model)
    kind = "Exponent" if link == "log" else "RawFormulaVal"
    return _Scorer(lambda x: model.predict(x, prediction_type=kind), _space(link, score_map), model.feature_names_)


def _onnx(path: Path, score_map: ScoreMap, output: str | None) -> _Scorer:
    with needing("onnx"):
        import onnxruntime

        from . import onnx_model
    model = onnx_model.read(path.read_bytes())
    name, is_probability = onnx_model.score_of(model, output)
    inputs = model.graph.input
    stored = {tensor.name for tensor in model.graph.initializer}
    given = [one for one in inputs if one.name not in stored]
    if len(given) != 1:
        raise UncurseError(f"{path} takes {len(given)} inputs; verify takes models of one, so use Python for this one")
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has many kinds
        raise UncurseError(f"ONNX Runtime does not load {path}: {' '.join(str(error).split())[:160]}") from None
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(given[0].type.tensor_type.elem_type)

    def score(x: Array) -> Array:
        out = session.run([name], {given[0].name: x.astype(dtype)})[0]
        if isinstance(out, list):  # a ZipMap's dictionaries
            out = np.array([list(row.values()) for row in out])
        return np.asarray(out[:, -1] if np.ndim(out) == 2 else out, np.float64)

    return _Scorer(score, "probability" if is_probability else score_map.scale)


__all__ = ["Verification", "verify", "verify_files"]
