"""Log maps to MLflow and load them: ``pip install '.[mlflow]'`` in a clone.

A logged map is an MLflow model whose only data is ``map.json``, the document that `Fitted.save` writes. There is no
pickle in it. A fitted `UncursedClassifierCV` is logged by ``mlflow.sklearn.log_model`` in the skops format.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .errors import UncurseError
from .maps import Affine, ScoreMap, Segmented
from .methods import Fitted, load
from .methods.fitted import Method, fitted_of
from .methods.remaining_error import SHARES
from .optional import needing
from .version import __version__

_FILE = Path("data", "map.json")  # in the folder of a model

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

    from .estimators.uncursed import UncursedClassifierCV, UncursedRegressorCV


def log_map(
    source: ScoreMap | Fitted | Method | UncursedClassifierCV | UncursedRegressorCV | str | os.PathLike[str],
    name: str = "map",
    *,
    score: str = "score",
    segment: str = "segment",
    registered_model_name: str | None = None,
    pip_requirements: Sequence[str] | None = None,
) -> ModelInfo:
    """Log a map as an MLflow model, and how it was fitted as parameters and metrics of the run.

    A run is started if none is active, and ended. ``mlflow.pyfunc.load_model`` returns a model that takes a data frame,
    or a dict of arrays, with the columns `score` and, for a `Segmented` map, `segment`, and returns predictions.

    Parameters
    ----------
    source : ScoreMap, Fitted, fitted method or estimator, or path of a map.json
        The map. All but a `ScoreMap` add how it was fitted, and intervals for the remaining error.
    name : str, default="map"
        Name of the model. Parameters and metrics are called ``name/lambda`` and so on, so that a run can hold several
        maps.
    score, segment : str, default="score" and "segment"
        Columns of the input that hold scores on the scale of the map, and names of segments as text.
    registered_model_name : str, optional
        Register the model under this name.
    pip_requirements : sequence of str, optional
        Packages that serving the model needs; by default this version of uncurse, mlflow-skinny and pandas.

    Returns
    -------
    mlflow.models.model.ModelInfo
        The logged model. Pass its ``model_uri`` to `load_map`.

    Examples
    --------
    >>> log_map(None)
    Traceback (most recent call last):
    uncurse.errors.UncurseError: expected a map, a fitted method or the path of a map file, got NoneType
    """
    fitted = fitted_of(source)
    score_map = fitted.map
    columns = {score: "double"} | ({segment: "string"} if isinstance(score_map, Segmented) else {})
    if not all(columns) or columns[score] != "double":
        raise UncurseError(f"score={score!r} and segment={segment!r}; pass two different names of columns")
    with needing("mlflow"):
        import mlflow
        import mlflow.pyfunc
        import pandas  # noqa: F401, which serving the model needs
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, Schema
    inputs = Schema([ColSpec(kind, column) for column, kind in columns.items()])
    params, metrics = _figures(fitted, name)
    if pip_requirements is None:  # MLflow adds its full distribution if the list has no mlflow-skinny
        pip_requirements = f"uncurse=={__version__}", f"mlflow-skinny=={mlflow.__version__}", "pandas"
    with tempfile.TemporaryDirectory() as folder, nullcontext() if mlflow.active_run() else mlflow.start_run():
        path = Path(folder, _FILE.name)
        fitted.save(path)
        mlflow.log_params(params)  # first: MLflow refuses a second map of the same name here, before it is stored
        info = mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(path),
            signature=ModelSignature(inputs, Schema([ColSpec("double", "prediction")])),
            pip_requirements=[*pip_requirements],
            registered_model_name=registered_model_name,
        )
        mlflow.log_metrics(metrics, model_id=info.model_id)
        return info


def load_map(uri: str) -> Fitted:
    """Load a map that `log_map` logged.

    Parameters
    ----------
    uri : str
        Model URI, such as ``"models:/m-…"``, ``"models:/name@champion"`` or ``"runs:/…/map"``, or the path of a folder
        that holds the model.

    Returns
    -------
    Fitted
        The map, its record and its intervals.

    Examples
    --------
    >>> load_map("/")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: / is not a map logged by uncurse.mlflow.log_map; load it with mlflow.pyfunc
    """
    with needing("mlflow"):
        from mlflow.artifacts import download_artifacts
    with tempfile.TemporaryDirectory() as target:
        try:
            path = Path(uri if Path(uri).is_dir() else download_artifacts(artifact_uri=uri, dst_path=target), _FILE)
        except Exception as error:  # of MLflow, of the client of a store, or of a parser
            reason = " ".join(str(error).split())[:200]
            raise UncurseError(f"MLflow cannot load {uri} ({reason}); pass the URI of a logged map") from None
        if not path.exists():
            raise UncurseError(f"{uri} is not a map logged by uncurse.mlflow.log_map; load it with mlflow.pyfunc")
        return load(path)


def _load_pyfunc(path: str) -> SimpleNamespace:
    """Load a logged map; MLflow calls this function, and `predict` with the columns of the signature in their order."""
    score_map = load(path).map
    return SimpleNamespace(predict=lambda frame: score_map(*(frame[name].to_numpy() for name in frame)))


def _figures(fitted: Fitted, name: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Return parameters and metrics of a run: the text and the numbers of the record, and those of the map."""
    score_map, record, errors = fitted.map, fitted.record, fitted.errors
    figures: dict[str, Any] = {} if record is None else record.to_dict()
    if record is not None:
        figures |= {"pool_rows": record.pool.rows, "labeled_rows": record.labeled.rows if record.labeled else 0}
    for alpha in [] if errors is None else [share for share in SHARES if share >= errors.alphas[0]]:
        ends = zip(("low", "high"), fitted.interval(alpha), strict=True)
        figures |= {f"remaining_error_{end}_{alpha:g}": value for end, value in ends}
    figures.pop("command", None)  # which may be longer than a parameter
    figures |= {"kind": score_map.kind, "scale": score_map.scale, "link": score_map.link}
    if isinstance(score_map, Affine):
        figures |= {"slope": score_map.slope, "intercept": score_map.intercept}
    if isinstance(score_map, Segmented):
        figures["segments"] = len(score_map.maps)
    figures = {f"{name}/{key.rstrip('_')}": value for key, value in figures.items()}
    params = {key: value for key, value in figures.items() if isinstance(value, str | bool) and value != ""}
    return params, {key: value for key, value in figures.items() if type(value) in (int, float)}


__all__ = ["load_map", "log_map"]
