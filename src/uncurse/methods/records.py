"""`FitRecord`: how a map was fitted and refreshed, as typed data that ``map.json`` carries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from .. import documents
from .._types import Array
from ..evidence import Evidence
from ..evidence.histogram import Histogram
from ..version import __version__

_TAIL = 5e-4  # share of the scores that the histogram leaves out at either end
_MAX_BINS = 72
#: Upper shares at which `ScoreSummary.top` gives quantiles.
TOP_SHARES = np.concatenate([np.geomspace(1e-4, 0.1, 90, endpoint=False), np.linspace(0.1, 1.0, 37)])


@dataclass(frozen=True)
class ScoreSummary:
    """Distribution of served logits, corrected for negative sampling.

    Examples
    --------
    >>> from uncurse.evidence import from_arrays
    >>> summary = ScoreSummary.of(from_arrays(np.random.default_rng(0).normal(-3.0, 0.5, (10_000, 1))).served)
    >>> summary.rows, round(summary.mean, 1), round(summary.sd, 1), summary.distance < 0.02
    (10000, -3.0, 0.5, True)
    """

    rows: int
    weight: float  # total
    mean: float
    sd: float  # standard deviation
    edges: tuple[float, ...]  # of a histogram with equal bins
    weights: tuple[float, ...]  # between the edges
    top: tuple[float, ...]  # the lowest logit of the top share, for each of `TOP_SHARES`
    distance: float  # Kolmogorov–Smirnov distance from a normal distribution

    def lowest(self, shares: Sequence[float]) -> Array:
        """Return the lowest logit of top shares."""
        return np.interp(shares, TOP_SHARES, self.top)

    @classmethod
    def of(cls, served: Histogram) -> ScoreSummary:
        """Summarize a histogram of served logits."""
        from scipy.special import ndtr

        score, weight, (low, high) = served.score, served.weight, served.bounds
        total = float(weight.sum())
        mean = float(weight @ score) / total
        sd = math.sqrt(float(weight @ np.square(score - mean)) / total)
        reached = np.append(0.0, np.cumsum(weight)) / total
        # Equal bins between the tails; a cell is spread over its width.
        ends, place = np.ravel([low, high], order="F"), np.ravel([reached[:-1], reached[1:]], order="F")
        left, right = np.interp([_TAIL, 1 - _TAIL], place, ends).tolist()
        edges, weights = np.array([left - 0.5, left + 0.5]), np.array([total])
        if right - left > 1e-9 * max(abs(left), abs(right)):
            count = int(np.clip(2 * round(served.effective_rows) ** (1 / 3), 12, _MAX_BINS))
            edges = np.linspace(left, right, count + 1)
            # An edge may itself be a score, where the cumulative weight jumps: look just below, at the last just above.
            below = edges - 1e-12 * (right - left)
            below[-1] = right + 1e-12 * (right - left)
            weights = np.diff(np.interp(below, ends, place)) * total
        distance = 1.0
        if sd > 1e-12 * abs(mean):
            away = [reached[:-1] - ndtr((low - mean) / sd), reached[1:] - ndtr((high - mean) / sd)]
            distance = float(np.abs(away).max())
        top = score[np.searchsorted(reached[1:], np.clip(1 - TOP_SHARES, 0.0, 1 - 1e-12), side="right")]
        columns = (tuple(column.tolist()) for column in (edges, weights, top))
        return cls(served.rows, total, mean, sd, next(columns), next(columns), next(columns), distance)


@dataclass(frozen=True)
class DataRecord:
    """Rows that a method was fitted on."""

    rows: int
    columns: tuple[str, ...]  # of scores, the served one first
    sources: tuple[str, ...] = ()  # files
    scores: ScoreSummary | None = None  # of the served score
    effective_rows: float | None = None  # (Σw)² / Σw²

    @classmethod
    def of(cls, evidence: Evidence) -> DataRecord:
        """Return the record of some evidence."""
        scores = None if evidence.served is None or not evidence.rows else ScoreSummary.of(evidence.served)
        return cls(evidence.rows, evidence.spec.scores, evidence.sources, scores, evidence.effective_rows)


@dataclass(frozen=True)
class SegmentRecord:
    """Estimates of one segment."""

    lambda_: float  # slope
    center: float  # the point that scores are shrunk towards
    rows: int


@dataclass(frozen=True)
class TopChange:
    """Change of the mean prediction on the top share of the labeled rows of a refresh."""

    alpha: float  # selected share of the rows
    change: float  # relative; +0.05 means that predictions are now 5% higher
    standard_error: float  # of the mean prediction after the change, relative to it


@dataclass(frozen=True)
class RefreshRecord:
    """What a refresh changed."""

    number: int  # 1 for the first refresh of a map
    rows: int  # labeled
    positives: float  # positive labels, in effective rows if rows have weights
    sources: tuple[str, ...]  # files
    supported: str  # largest part of the change that the labels support: "nothing", "level", "slope" or "curve"
    reason: str  # the same in words
    changed: bool  # whether the map differs from the one before
    center: float  # log odds of the previous predictions at which `level` is measured
    level: float = 0.0  # change of the log odds at the center
    slope: float = 0.0  # relative change of their slope
    curve: float = 0.0  # largest change on the top 10% that is neither
    level_error: float = 0.0  # standard errors of level and slope after the change, if both have drifted
    slope_error: float = 0.0
    uncertainty: tuple[float, ...] = ()  # left for the next refresh: variance of the level, covariance, of the slope
    probabilities: tuple[float, ...] = ()  # that the level has changed, the slope too, and the curve too
    changes: tuple[TopChange, ...] = ()  # of the predictions on the top
    command: str = ""  # that wrote the map


@dataclass(frozen=True)
class FitRecord(documents.PlainData):
    """How a map was fitted: the provenance that ``map.json`` carries.

    Examples
    --------
    >>> record = FitRecord("vad", DataRecord(1000, ("s0", "s1")), lambda_=0.8)
    >>> FitRecord.from_dict(record.to_dict()) == record
    True
    """

    _kind: ClassVar[str] = "fit record"
    method: str
    pool: DataRecord
    labeled: DataRecord | None = None
    reason: str = ""  # why the method was chosen
    no_interval: str = ""  # why there are no intervals
    scale: str = "logit"  # options, see `VAD`
    link: str = "logistic"
    replicas: str = "seeds"
    labels_from: str | None = None
    negative_sampling_rate: float | None = None
    calibrator: str | None = None
    curvature: bool = False
    shape: str = "straight"
    segment: str | None = None  # column of segments of a log
    top_k: int | None = None  # rows kept per request, if the map is fitted to the winners of requests
    half_life: float | None = None  # number of evidence files after which a row counts half
    lambda_: float | None = None  # estimates of `VAD`
    standard_error: float | None = None
    center: float | None = None
    noise_variance: float | None = None
    score_variance: float | None = None
    segments: Mapping[str, SegmentRecord] = field(default_factory=dict)
    line_probability: float | None = None  # that the label curve of `ReplicaCalibrator` is a straight line
    shift_probability: float | None = None  # that pool and labeled rows differ
    max_error: float | None = None  # of a straight line that was written instead of a curve, see `Affine.max_error`
    refreshes: tuple[RefreshRecord, ...] = ()  # since the fit, the latest last
    command: str = ""  # that wrote the map
    version: str = __version__  # of this package

    @classmethod
    def of(cls, method: str, pool: Evidence, labeled: Evidence | None, **more: Any) -> FitRecord:
        """Return the record of a fit to evidence, with the options that the evidence holds."""
        spec, rows = pool.spec, None if labeled is None else DataRecord.of(labeled)
        options = {name: getattr(spec, name) for name in ("scale", "link", "negative_sampling_rate", "segment")}
        return cls(method, DataRecord.of(pool), rows, **options, **more)

    @property
    def label_sources(self) -> tuple[str, ...]:
        """Files whose labels the map has seen, in its fit or in a refresh."""
        fitted = () if self.labeled is None else self.labeled.sources
        return (*fitted, *(source for one in self.refreshes for source in one.sources))
