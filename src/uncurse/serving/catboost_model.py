"""CatBoost: leaves are scaled by the library itself, the shift is the bias that every model has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import documents
from ..errors import UncurseError
from ..maps import ScoreMap, from_dict
from ..optional import needing
from .lines import ELSEWHERE, RAW, line_of

_PATIENCE = 3_600  # seconds that a process may take
_LINKS = {"Logloss": "logistic", "CrossEntropy": "logistic", "Focal": "logistic", "Poisson": "log", "Tweedie": "log"}


def fold_model(score_map: ScoreMap, model: Any) -> Any:
    """A CatBoost model of any grow policy, with the map folded in.

    Not by the model's own scale: CatBoost explains and exports no model that has one.
    """
    import catboost

    if not isinstance(model, catboost.CatBoost):
        raise UncurseError(f"a {type(model).__name__} of CatBoost is no model; pass a CatBoost model")
    if not model.is_fitted():
        raise UncurseError("this CatBoost model is not fitted; fit it first")
    scale, bias = model.get_scale_and_bias()
    if isinstance(bias, list):
        raise UncurseError(f"this CatBoost model has {len(bias)} outputs, and a map is for one score; {ELSEWHERE}")
    slope, intercept = line_of(score_map, link_of(model), "this CatBoost model")
    unscaled = model
    if scale != 1:
        unscaled = model.copy()
        unscaled.set_scale_and_bias(1.0, 0.0)
    try:
        summed = catboost.sum_models([unscaled], weights=[slope * scale])
    except catboost.CatBoostError as error:
        reason = " ".join(str(error).split())[:120]
        raise UncurseError(f"CatBoost does not scale this model ({reason}); {ELSEWHERE}") from None
    summed.set_scale_and_bias(1.0, slope * bias + intercept)
    for name, value in model.get_metadata().items():  # classes and parameters, which a sum has not
        summed.get_metadata()[name] = value
    made = model.copy()
    made.load_model(blob=summed._serialize_model())
    made._init_params = dict(model._init_params)  # which a load forgets, and `predict` of counts asks
    return made


def fold_file(score_map: ScoreMap, source: Path, target: Path, form: str) -> None:
    """Fold a map into a saved model, and save that in the same form."""
    _apart(source, form, target, score_map.to_json())


def load(path: Path, form: str) -> Any:
    """A saved model, once it is known that reading it does no harm."""
    _apart(path, form)
    return _read(path, form)


def _read(path: Path, form: str) -> Any:
    import catboost

    model = catboost.CatBoost()
    model.load_model(str(path), format=form)
    model.get_metadata().items()  # which must be text
    return model


def _apart(source: Path, form: str, target: Path | None = None, text: str = "") -> None:
    """Read a model, and fold it where there is a target, in a process of its own.

    CatBoost's reader crashes on some damaged files; so it is that process that does.
    """
    with needing("catboost"):
        import catboost  # noqa: F401
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "uncurse.serving.catboost_model",
                form,
                str(source),
                *([] if target is None else [str(target)]),
            ],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        raise UncurseError(f"CatBoost has not read {source} in {_PATIENCE} seconds; save the model again") from None
    if done.returncode == 2:
        raise UncurseError(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise UncurseError(f"{source} is no whole CatBoost model: CatBoost's reader crashes on it; save it again")


def _main(form: str, source: str, target: str | None = None) -> None:
    import catboost

    try:
        model = _read(Path(source), form)
        if target is not None:
            score_map = from_dict(documents.loads(sys.stdin.read()))
            fold_model(score_map, model).save_model(target, format=form)
    except UncurseError as error:
        sys.exit(_said(str(error)))
    except (catboost.CatBoostError, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:120]
        sys.exit(_said(f"{source} is no whole CatBoost model ({reason}); save it again"))


def _said(text: str) -> int:
    sys.stderr.write(f"\n{' '.join(text.split())}\n")
    return 2


def link_of(model: Any) -> str:
    """The link of its loss."""
    try:
        return _LINKS.get(json.loads(model.get_metadata()["params"])["loss_function"]["type"], RAW)
    except (KeyError, TypeError, ValueError):
        return RAW


__all__ = ["fold_file", "fold_model", "link_of", "load"]

if __name__ == "__main__":
    _main(*sys.argv[1:])
