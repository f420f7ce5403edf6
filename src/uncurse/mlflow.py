"""Log maps to MLflow and load them: ``pip install '.[mlflow]'`` in a clone.

A logged map is an MLflow model whose only data is ``map.json``, the document that `ScoreMap.save` writes. There is no
pickle in it. A fitted `UncursedClassifierCV` is logged by ``mlflow.sklearn.log_model`` in the skops format; pass it
`TRUSTED_TYPES`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .debias import VAD, Auto, FitRecord, Tower
from .debias import load_record as read_record
from .debias.refresh import map_and_record
from .errors import UncurseError
from .maps import Affine, Grouped, ScoreMap, load
from .optional import needing
from .report.provenance import intervals_of
from .version import __version__

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo
    from pandas import DataFrame

    from ._types import Array
    from .estimators.uncursed import UncursedClassifierCV, UncursedRegressorCV

#: Types inside fitted `UncursedClassifierCV` and `UncursedRegressorCV` objects, for ``skops_trusted_types``. The types
#: of the base model are not among them.
TRUSTED_TYPES = (
    "uncurse.calibration.spline.Basis",
    "uncurse.calibration.spline.SmoothCurve",
    "uncurse.debias.auto.Auto",
    "uncurse.debias.averaging.Averaged",
    "uncurse.debias.free_shape.FreeShape",
    "uncurse.debias.free_shape.LabelFreeAverage",
    "uncurse.debias.free_shape.Parametric",
    "uncurse.debias.label_model.LabelModel",
    "uncurse.debias.label_model.Misfit",
    "uncurse.debias.latent_scores.LatentGrid",
    "uncurse.debias.latent_scores.LatentScores",
    "uncurse.debias.latent_scores.ReplicaModel",
    "uncurse.debias.latent_scores._Problem",
    "uncurse.debias.records.DataRecord",
    "uncurse.debias.records.FitRecord",
    "uncurse.debias.replica_kinds.Anchored",
    "uncurse.debias.replica_kinds.Bootstrap",
    "uncurse.debias.replica_kinds.ReplicaSummary",
    "uncurse.debias.replica_kinds.Seeds",
    "uncurse.debias.tower.Tower",
    "uncurse.debias.tower.TowerFit",
    "uncurse.debias.vad.VAD",
    "uncurse.debias.vad_fit.VADOptions",
    "uncurse.estimators.uncursed.UncursedClassifierCV",
    "uncurse.estimators.uncursed.UncursedRegressorCV",
    "uncurse.evidence.replica_cells.ReplicaCells",
    "uncurse.maps.combined.Chain",
    "uncurse.maps.shapes.Affine",
    "uncurse.maps.shapes.Curve",
)

_FILE = "map.json"
_EXAMPLE_SCORES = (0.1, 0.5, 0.9)  # valid on every scale
_FIGURES = (
    "standard_error", "center", "noise_variance", "score_variance", "line_probability", "contrast", "straight_loss",
)  # fmt: skip
_OPTIONS = ("method", "reason", "replicas", "calibrator", "curvature", "shape", "negative_rate", "version")


def log_map(
    source: ScoreMap | VAD | Tower | Auto | UncursedClassifierCV | UncursedRegressorCV | str | os.PathLike[str],
    name: str = "map",
    *,
    score: str = "score",
    group: str = "group",
    registered_model_name: str | None = None,
    pip_requirements: Sequence[str] | None = None,
) -> ModelInfo:
    """Log a map as an MLflow model, and how it was fitted as parameters and metrics of the run.

    A run is started if none is active, and ended. ``mlflow.pyfunc.load_model`` returns a model that takes a data frame,
    or a dict of arrays, with the columns `score` and, for a `Grouped` map, `group`, and returns predictions.

    Parameters
    ----------
    source : ScoreMap, fitted VAD, Tower, Auto or estimator, or path of a map.json
        The map. All but a `ScoreMap` add a `FitRecord`, with intervals for the remaining error where there are any.
    name : str, default="map"
        Name of the model. Parameters and metrics are called ``name/lambda`` and so on, so that a run can hold several
        maps.
    score, group : str, default="score" and "group"
        Columns of the input that hold scores on the scale of the map, and names of groups as text.
    registered_model_name : str, optional
        Register the model under this name.
    pip_requirements : sequence of str, optional
        Packages that serving the model needs; by default `requirements()`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        The logged model. Pass its ``model_uri`` to `load_map`.

    Examples
    --------
    >>> log_map(None)
    Traceback (most recent call last):
    uncurse.errors.UncurseError: map is of type NoneType; pass a map, a fitted method or the path of a map file
    """
    score_map, record = map_and_record(source)
    if record is not None and not record.remaining_error and hasattr(source, "interval"):
        record = replace(record, remaining_error=intervals_of(source))
    columns = [score, group] if isinstance(score_map, Grouped) else [score]
    if not all(isinstance(column, str) and column for column in columns) or len(set(columns)) < len(columns):
        raise UncurseError(f"score={score!r} and group={group!r}; pass two different names of columns")
    with needing("mlflow"):
        import mlflow
        import mlflow.pyfunc
        import pandas as pd
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, Schema
    example = pd.DataFrame({score: _EXAMPLE_SCORES})
    if isinstance(score_map, Grouped):
        example[group] = [*islice(cycle([*score_map.maps] or ["other"]), len(example))]
    types = ("double", "string")
    inputs = Schema([ColSpec(kind, column) for kind, column in zip(types, columns, strict=False)])
    params, metrics = _figures(score_map, record, name)
    with tempfile.TemporaryDirectory() as folder, nullcontext() if mlflow.active_run() else mlflow.start_run():
        path = Path(folder, _FILE)
        score_map.save(path, None if record is None else record.to_dict())
        mlflow.log_params(params)  # first: MLflow refuses a second map of the same name here, before it is stored
        info = mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(path),
            signature=ModelSignature(inputs, Schema([ColSpec("double", "prediction")])),
            input_example=example,
            pip_requirements=requirements() if pip_requirements is None else [*pip_requirements],
            registered_model_name=registered_model_name,
        )
        mlflow.log_metrics(metrics, model_id=info.model_id)
        return info


def load_map(uri: str) -> ScoreMap:
    """Load a map that `log_map` logged.

    Parameters
    ----------
    uri : str
        Model URI, such as ``"models:/m-…"``, ``"models:/name@champion"`` or ``"runs:/…/map"``, or the path of a folder
        that holds the model.

    Returns
    -------
    ScoreMap
        The map.

    Examples
    --------
    >>> load_map("/")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: / is not a map logged by uncurse.mlflow.log_map; load it with mlflow.pyfunc
    """
    with _downloaded(uri) as path:
        return load(path)


def load_record(uri: str) -> FitRecord | None:
    """Load how a logged map was fitted.

    Parameters
    ----------
    uri : str
        As in `load_map`.

    Returns
    -------
    FitRecord or None
        None if the map was logged without a record.

    Examples
    --------
    >>> load_record("/")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: / is not a map logged by uncurse.mlflow.log_map; load it with mlflow.pyfunc
    """
    with _downloaded(uri) as path:
        return read_record(path)


def requirements(*packages: str) -> list[str]:
    """Return pip requirements of a logged model, which MLflow would infer from all that is installed.

    Parameters
    ----------
    *packages : str
        Further packages that the model needs, such as ``"scikit-learn"``. Their installed versions are required.

    Returns
    -------
    list of str
        This version of uncurse, mlflow-skinny in the installed version of MLflow, pandas, and the packages.

    Examples
    --------
    >>> requirements("absent-package")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: absent-package is not installed; name packages as pip does
    """
    with needing("mlflow"):
        import mlflow
    try:
        versions = [f"{package}=={version(package)}" for package in packages]
    except PackageNotFoundError as error:
        raise UncurseError(f"{error.name} is not installed; name packages as pip does") from None
    # MLflow adds its full distribution if the list has no mlflow-skinny.
    return [f"uncurse=={__version__}", f"mlflow-skinny=={mlflow.__version__}", "pandas", *versions]


@contextmanager
def _downloaded(uri: str) -> Iterator[Path]:
    """Yield the path of the map.json of a model, in a temporary folder if the model is remote."""
    with needing("mlflow"):
        import pandas  # noqa: F401, Model.load imports it
        from mlflow.artifacts import download_artifacts
        from mlflow.models import Model
        from mlflow.models.model import MLMODEL_FILE_NAME
    with tempfile.TemporaryDirectory() as target:
        folder = Path(uri if Path(uri).is_dir() else download_artifacts(artifact_uri=uri, dst_path=target))
        is_model = (folder / MLMODEL_FILE_NAME).is_file()
        flavor = Model.load(folder).flavors.get("python_function", {}) if is_model else {}
        if flavor.get("loader_module") != __name__:
            raise UncurseError(f"{uri} is not a map logged by uncurse.mlflow.log_map; load it with mlflow.pyfunc")
        yield folder / flavor["data"]


class _PyfuncMap:
    """What ``mlflow.pyfunc.load_model`` calls; MLflow passes the columns of the signature in their order."""

    def __init__(self, score_map: ScoreMap) -> None:
        self.score_map = score_map

    def predict(self, model_input: DataFrame) -> Array:
        columns = [model_input[name].to_numpy() for name in model_input]
        return self.score_map(*columns)


def _load_pyfunc(path: str) -> _PyfuncMap:
    """Load a logged map; MLflow calls this function by its name."""
    return _PyfuncMap(load(path))


def _figures(score_map: ScoreMap, record: FitRecord | None, name: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Return parameters and metrics of a run."""
    params: dict[str, Any] = {"kind": score_map.kind, "scale": score_map.scale, "link": score_map.link}
    metrics: dict[str, float | None] = {
        key: getattr(score_map, key) for key in ("slope", "intercept") if isinstance(score_map, Affine)
    }
    if isinstance(score_map, Grouped):
        metrics["groups"] = len(score_map.maps)
    if record is not None:
        params |= {key: getattr(record, key) for key in _OPTIONS}
        metrics |= {"lambda": record.lambda_, **{key: getattr(record, key) for key in _FIGURES}}
        metrics |= {"pool_rows": record.pool.rows, "labelled_rows": record.labelled.rows if record.labelled else 0}
        for one in record.remaining_error:
            metrics |= {f"remaining_error_{end}_{one.alpha:g}": getattr(one, end) for end in ("low", "high")}
    return (
        {f"{name}/{key}": value for key, value in params.items() if value not in (None, "")},
        {f"{name}/{key}": value for key, value in metrics.items() if value is not None},
    )


__all__ = ["TRUSTED_TYPES", "load_map", "load_record", "log_map", "requirements"]
