"""`FitRecord`: how a map was fitted and refreshed, as typed data that ``map.json`` carries."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

from .. import documents
from ..errors import UncurseError
from ..evidence import Evidence
from ..version import __version__

T = TypeVar("T")


@dataclass(frozen=True)
class ScoreSummary:
    """Distribution of served scores: moments, a histogram and the distance from a normal distribution.

    Parameters
    ----------
    rows : int
        Number of rows.
    weight, mean, sd : float
        Total weight, mean and standard deviation.
    scale : {"logit", "value"}
        Scale of the scores here; probabilities are summarised as logits.
    edges, weights : tuple of float
        Edges of the histogram, and the weight between them.
    distance, skewness, excess_kurtosis, p_value : float, optional
        Kolmogorov–Smirnov distance from a normal distribution, and its Lilliefors p-value; see
        `uncurse.metrics.normality.gaussianity`. None if there are too few scores.

    Examples
    --------
    >>> ScoreSummary(3, 3.0, 0.5, 1.0, "logit", (-1.0, 0.0, 2.0), (1.0, 2.0)).rows
    3
    """

    rows: int
    weight: float
    mean: float
    sd: float
    scale: str
    edges: tuple[float, ...]
    weights: tuple[float, ...]
    distance: float | None = None
    skewness: float | None = None
    excess_kurtosis: float | None = None
    p_value: float | None = None

    def __post_init__(self) -> None:
        edges, weights = self.edges, self.weights
        rising = all(high > low for low, high in pairwise(edges))
        if not (len(edges) == len(weights) + 1 > 1 and rising and min(weights) >= 0 and self.weight > 0 <= self.sd):
            raise UncurseError("this summary of scores is not a distribution; fit the map again")


@dataclass(frozen=True)
class DataRecord:
    """Rows that a method was fitted on.

    Parameters
    ----------
    rows : int
        Number of rows.
    columns : tuple of str
        Score columns, the served one first.
    sources : tuple of str
        Files that were read.
    scores : ScoreSummary, optional
        Distribution of the served scores.
    effective_rows : float, optional
        Number of rows of equal weight that carry as much information, (Σw)² / Σw².

    Examples
    --------
    >>> DataRecord(1000, ("s0", "s1")).rows
    1000
    """

    rows: int
    columns: tuple[str, ...]
    sources: tuple[str, ...] = ()
    scores: ScoreSummary | None = None
    effective_rows: float | None = None

    @classmethod
    def of(cls, evidence: Evidence) -> DataRecord:
        """Return the record of some evidence.

        Parameters
        ----------
        evidence : Evidence
            Rows that the method sees.

        Returns
        -------
        DataRecord
        """
        return cls(evidence.rows, evidence.spec.scores, evidence.sources, effective_rows=evidence.effective_rows)


@dataclass(frozen=True)
class GroupRecord:
    """Estimates of one group: λ, center and number of rows.

    Parameters
    ----------
    lambda_, center : float
        Slope of the group, and the point that its scores are shrunk towards.
    rows : int
        Number of rows.

    Examples
    --------
    >>> GroupRecord(0.8, -2.0, 100).lambda_
    0.8
    """

    lambda_: float
    center: float
    rows: int


@dataclass(frozen=True)
class ErrorInterval:
    """Interval for the calibration error that remains on the top share of the pool.

    Parameters
    ----------
    alpha : float
        Selected share of the pool.
    low, high : float
        Bounds; +0.05 means that predictions are 5% too high.
    level : float
        Confidence level.

    Examples
    --------
    >>> ErrorInterval(0.02, -0.01, 0.03, 0.9).level
    0.9
    """

    alpha: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class TopChange:
    """Change of the mean prediction on the top share of the labelled rows of a refresh.

    Parameters
    ----------
    alpha : float
        Selected share of the rows.
    change : float
        Relative change; +0.05 means that predictions are now 5% higher.
    standard_error : float
        Standard error of the mean prediction after the change, relative to it.

    Examples
    --------
    >>> TopChange(0.02, 0.05, 0.01).change
    0.05
    """

    alpha: float
    change: float
    standard_error: float


@dataclass(frozen=True)
class RefreshRecord:
    """What a refresh changed.

    Parameters
    ----------
    number : int
        1 for the first refresh of a map.
    rows : int
        Number of labelled rows.
    positives : float
        Number of positive labels among them, in effective rows if rows have weights.
    sources : tuple of str
        Files that were read.
    supported : {"nothing", "level", "slope", "curve"}
        Largest part of the change that the labels support.
    reason : str
        The same in words.
    changed : bool
        Whether the map differs from the one before.
    center : float
        Log odds of the previous predictions at which `level` is measured.
    level, slope, curve : float
        Change of the log odds at the center, relative change of their slope, and the largest change on the top 10% that
        is neither.
    level_error, slope_error : float
        Standard errors of level and slope after the change, if both have drifted.
    uncertainty : tuple of float
        What is left for the next refresh: variance of the level, covariance, variance of the slope. The probability of
        no drift counts in it.
    probabilities : tuple of float
        Probability that the level has changed, the slope too, and the curve too.
    changes : tuple of TopChange
        Changes of the predictions on the top.
    command : str
        Command line that wrote the map.

    Examples
    --------
    >>> RefreshRecord(1, 500, 40.0, (), "nothing", "too few labels", False, -2.0).level
    0.0
    """

    number: int
    rows: int
    positives: float
    sources: tuple[str, ...]
    supported: str
    reason: str
    changed: bool
    center: float
    level: float = 0.0
    slope: float = 0.0
    curve: float = 0.0
    level_error: float = 0.0
    slope_error: float = 0.0
    uncertainty: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()
    changes: tuple[TopChange, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class FitRecord(documents.PlainData):
    """How a map was fitted: the provenance that ``map.json`` carries.

    Parameters
    ----------
    method : str
        Name of the method.
    pool, labelled : DataRecord
        Rows that the method was fitted on; `labelled` is None without labels.
    reason : str
        Why `Auto` chose the method.
    scale, link, replicas, negative_rate, calibrator, curvature, shape : optional
        Options, see `VAD`.
    group : str, optional
        Column of groups of a log.
    half_life : float, optional
        Number of evidence files after which a row counts half; None if all rows count the same.
    lambda_, standard_error, center, noise_variance, score_variance : float, optional
        Estimates of `VAD`.
    groups : dict of str to GroupRecord
        Estimates of `VAD` for each group.
    line_probability, contrast, selected_by : optional
        Estimates of `Tower`, and whether it took labelled rows as selected by the served score ("served" or "other").
    remaining_error : tuple of ErrorInterval
        Intervals for the error that remains: in records that ``uncurse fit`` and `uncurse.mlflow.log_map` write, and
        empty otherwise; call `interval` of the fitted method instead.
    straight_loss : float, optional
        Largest relative difference to the fitted curve, if a straight line was written instead.
    refreshes : tuple of RefreshRecord
        What `refresh` changed since the fit, the latest last. Everything else describes the fit itself.
    command : str
        Command line that wrote the map.
    version : str
        Version of this package.

    Examples
    --------
    >>> record = FitRecord("vad", DataRecord(1000, ("s0", "s1")), lambda_=0.8)
    >>> FitRecord.from_dict(record.to_dict()) == record
    True
    """

    _kind: ClassVar[str] = "fit record"
    method: str
    pool: DataRecord
    labelled: DataRecord | None = None
    reason: str = ""
    scale: str = "logit"
    link: str = "logistic"
    replicas: str = "seeds"
    negative_rate: float | None = None
    calibrator: str | None = None
    curvature: bool = False
    shape: str = "straight"
    group: str | None = None
    half_life: float | None = None
    lambda_: float | None = None
    standard_error: float | None = None
    center: float | None = None
    noise_variance: float | None = None
    score_variance: float | None = None
    groups: Mapping[str, GroupRecord] = field(default_factory=dict)
    line_probability: float | None = None
    contrast: float | None = None
    selected_by: str | None = None
    remaining_error: tuple[ErrorInterval, ...] = ()
    straight_loss: float | None = None
    refreshes: tuple[RefreshRecord, ...] = ()
    command: str = ""
    version: str = __version__

    @property
    def label_sources(self) -> tuple[str, ...]:
        """Files whose labels the map has seen, in its fit or in a refresh."""
        fitted = () if self.labelled is None else self.labelled.sources
        return (*fitted, *(source for one in self.refreshes for source in one.sources))

    def _to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        content["lambda"] = content.pop("lambda_")
        content["groups"] = {
            name: {"lambda": g.lambda_, "center": g.center, "rows": g.rows} for name, g in self.groups.items()
        }
        return content

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> FitRecord:
        return _built(cls, content)


def load_record(path: str | os.PathLike[str]) -> FitRecord | None:
    """Read how the map in a file was fitted.

    Parameters
    ----------
    path : str or path-like
        A JSON file written by `ScoreMap.save`.

    Returns
    -------
    FitRecord or None
        None if the map was saved without a record.

    Examples
    --------
    >>> load_record("absent.json")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: cannot read absent.json: No such file or directory
    """
    content = documents.read(path).get("record")
    if content is None:
        return None
    try:
        return FitRecord.from_dict(content)
    except UncurseError as error:
        raise UncurseError(f"the record of {path}: {error}") from None


def _built(kind: type[T], content: Any) -> T:
    """Build a dataclass from plain data; a missing or unknown key, or a value of another type, is an error."""
    content = _checked(kind.__name__, content, Mapping)
    values = {"lambda_" if key == "lambda" else key: value for key, value in content.items()}
    known = {f.name: str(f.type) for f in fields(kind)}  # type: ignore[arg-type]
    for name in [*values, *known]:
        if name not in known or name not in values:
            raise KeyError(name)
    return kind(**{name: _value(name, known[name], value) for name, value in values.items()})


def _value(name: str, wanted: str, value: Any) -> Any:
    """Check and convert one value; `wanted` is the annotation of its field."""
    if wanted.endswith(" | None"):
        return None if value is None else _value(name, wanted.removesuffix(" | None"), value)
    if wanted in _PARTS:
        return _built(_PARTS[wanted], value)
    if wanted.startswith("tuple["):
        item = wanted.removeprefix("tuple[").removesuffix(", ...]")
        return tuple(_value(name, item, one) for one in _checked(name, value, list | tuple))
    if wanted.startswith("Mapping"):
        return {key: _built(GroupRecord, one) for key, one in _checked(name, value, Mapping).items()}
    if wanted in ("float", "int"):
        number = _checked(name, value, int if wanted == "int" else int | float)
        valid = math.isfinite(number) if wanted == "float" else 0 <= number < 2**63
        if isinstance(value, bool) or not valid:
            raise ValueError(f"{name} is {value!r:.40}")
        return float(number) if wanted == "float" else number
    return _checked(name, value, {"str": str, "bool": bool}[wanted])


def _checked(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r:.40}")
    return value


_PARTS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (ScoreSummary, DataRecord, ErrorInterval, TopChange, RefreshRecord)
}
