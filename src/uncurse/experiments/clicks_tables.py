"""What the real-data experiments give: cells beside the paper's, its findings judged, λ, the shape of the logit."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from .. import documents
from .._types import Array
from ..errors import UncurseError
from ..validation import check_choice

DATASETS = ("criteo", "avazu")
CALIBRATORS = ("Vanilla", "Histogram Binning", "Platt Scaling", "Scaling-Binning", "Isotonic Regression")
MAIN_BINS = 50  # of ECE and MCE where nothing else is said
OUTCOMES = ("confirmed", "contradicted", "not significant")


class Key(NamedTuple):
    """What was measured; S is `replicas`, and `bins` is M for ECE and MCE and None elsewhere."""

    metric: str
    calibrator: str
    variant: str
    replicas: int
    bins: int | None = None


#: Figures of every replication: by key, then by the served model, an array over α.
Samples = Mapping[Key, Mapping[int, Array]]


@dataclass(frozen=True)
class Cell:
    """One cell of a table: ours, the paper's where it has one, and for ECE and MCE the noise floor."""

    metric: str
    alpha: float
    calibrator: str
    variant: str
    replicas: int
    bins: int | None
    mean: float
    standard_error: float  # over replications; nan where there is one
    count: int  # replications
    floor: float | None = None
    row_error: float | None = None  # standard error of one replication over test rows, which all replications share
    paper_mean: float | None = None
    paper_standard_error: float | None = None

    @property
    def distance(self) -> float | None:
        """Ours minus the paper's, in combined standard errors, the noise of both test sets' clicks among them.

        What the paper does not give is taken to be as large as ours.
        """
        if self.paper_mean is None or not self.standard_error > 0:
            return None
        other = self.standard_error if self.paper_standard_error is None else self.paper_standard_error
        rows = self.row_error or 0.0
        return (self.mean - self.paper_mean) / float(np.sqrt(self.standard_error**2 + other**2 + 2 * rows**2))


@dataclass(frozen=True)
class Lambda:
    """λ over the replications of one S: mean and sd on the pool, on the labelled rows, and of their ratio."""

    replicas: int
    link: str
    count: int
    pool: float
    pool_sd: float
    labelled: float
    labelled_sd: float
    ratio: float
    ratio_sd: float


@dataclass(frozen=True)
class Shape:
    """The served logit on the pool: a histogram, the normal fitted to it, and how far apart they are."""

    rows: int
    mean: float
    sd: float
    skewness: float
    excess_kurtosis: float
    distance: float  # Kolmogorov-Smirnov
    p_value: float  # Lilliefors'
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    expected: tuple[float, ...]  # rows in each bin if the fitted normal were true


@dataclass(frozen=True)
class Finding:
    """One of the paper's findings at one place of its tables: the statistic is below zero where it holds."""

    claim: str
    metric: str
    alpha: float
    calibrator: str
    bins: int | None
    sides: tuple[str, ...]  # what is compared, such as ("vad S=2", "original S=2")
    difference: float  # our statistic
    standard_error: float  # paired over replications; nan where there is one
    row_error: float | None  # of the test rows that they share; known for the calibration error
    count: int
    outcome: str  # "confirmed", "contradicted" or "not significant", at 2 standard errors, both kinds together
    ours: tuple[float, ...]  # the means of the sides
    paper: tuple[float, ...]
    paper_difference: float  # the statistic of the paper's own means

    @property
    def error(self) -> float:
        """Both kinds of error together."""
        return float(np.hypot(self.standard_error, self.row_error or 0.0))


@dataclass(frozen=True)
class ClickTables:
    """The whole experiment after training."""

    dataset: str
    models: int
    sizes: dict[str, float]  # rows of each part and their rates of positives
    alphas: tuple[float, ...]
    cells: tuple[Cell, ...]
    claims: tuple[Finding, ...]
    lambdas: tuple[Lambda, ...]
    shape: Shape
    about: dict[str, Any]

    def get(
        self,
        metric: str,
        alpha: float,
        calibrator: str = "Vanilla",
        variant: str = "original",
        replicas: int = 2,
        bins: int | None = None,
    ) -> Cell | None:
        """One cell, or None; `bins` is 50 for ECE and MCE unless it says otherwise."""
        if bins is None and metric in ("ece", "mce"):
            bins = MAIN_BINS
        return self._by_place.get((Key(metric, calibrator, variant, replicas, bins), percent(alpha)))

    def cell(self, metric: str, alpha: float, *place: Any, **names: Any) -> Cell:
        """One cell, as `get`; an error where there is none."""
        cell = self.get(metric, alpha, *place, **names)
        if cell is None:
            asked = ", ".join([metric, f"alpha={alpha}", *map(str, place), *(f"{k}={v}" for k, v in names.items())])
            raise UncurseError(f"no cell for {asked}; `cells` has those that there are")
        return cell

    @cached_property
    def _by_place(self) -> dict[tuple[Key, float], Cell]:
        return {(key_of(cell), percent(cell.alpha)): cell for cell in self.cells}

    def findings(self, outcome: str | None = None) -> tuple[Finding, ...]:
        """The paper's findings judged, all or those of one outcome."""
        if outcome is not None:
            check_choice("outcome", outcome, OUTCOMES)
        return tuple(f for f in self.claims if outcome in (None, f.outcome))

    def far(self, limit: float = 3.0) -> tuple[int, int]:
        """How many cells lie more than `limit` combined standard errors from the paper's, and of how many."""
        distances = [cell.distance for cell in self.cells if cell.distance is not None]
        return sum(abs(d) > limit for d in distances), len(distances)

    def to_json(self) -> str:
        """One JSON document; what is not a number is null."""
        content = asdict(self)
        content["cells"] = [{**vars(cell), "distance": cell.distance} for cell in self.cells]
        return documents.dumps("clicks", _plain(content))

    @classmethod
    def from_json(cls, text: str) -> ClickTables:
        """Back from `to_json`."""
        content = documents.loads(text, source="tables")
        check_choice("kind", content.pop("kind"), ("clicks",))
        del content["schema_version"]
        with documents.reading("clicks"):
            parts: dict[str, type[Any]] = {"cells": Cell, "claims": Finding, "lambdas": Lambda}
            for name, part in parts.items():
                content[name] = tuple(_restore(part, row) for row in content[name])
            content["shape"] = _restore(Shape, content["shape"])
            content["alphas"] = tuple(content["alphas"])
            return cls(**content)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _restore(part: type[Any], row: dict[str, Any]) -> Any:
    types = part.__annotations__  # strings: a field that is plainly a float was nan where it is null
    values = {name: value for name, value in row.items() if name in types}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
        elif value is None and types[name] == "float":
            values[name] = float("nan")
    return part(**values)


def key_of(cell: Cell) -> Key:
    """The place of a cell, whatever α."""
    return Key(cell.metric, cell.calibrator, cell.variant, cell.replicas, cell.bins)


def percent(alpha: float) -> float:
    """α as the paper's cells have it, so that 0.1 + 0.2 finds 30."""
    return round(100 * alpha, 6)


# ---------------------------------------------------------------------------- the paper's


@cache
def paper(dataset: str) -> dict[tuple[Key, float], tuple[float, float | None]]:
    """The paper's cells: key and α in percent to mean and standard error.

    >>> paper("criteo")[Key("calibration_error", "Platt Scaling", "vad", 2), 2.0]
    (0.0086, 0.0012)
    """
    check_choice("dataset", dataset, DATASETS)
    text = resources.files(__package__).joinpath("clicks_paper.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    cells: dict[tuple[Key, float], tuple[float, float | None]] = {}
    for row in rows:
        if row["dataset"] == dataset:
            bins = int(row["bins"]) if row["bins"] else None
            key = Key(row["metric"], row["calibrator"], row["variant"], int(row["replicas"]), bins)
            error = float(row["standard_error"]) if row["standard_error"] else None
            cells[key, percent(float(row["alpha"]))] = float(row["mean"]), error
    return cells


# ---------------------------------------------------------------------------- from samples


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Mean and standard error over the first axis; nan where there is one.

    >>> mean_and_error(np.array([[1.0], [3.0]]))
    (array([2.]), array([1.]))
    """
    count = len(values)
    if count < 2:
        return values.mean(axis=0), np.full(values.shape[1:], np.nan)[()]
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(count)


def cells_of(dataset: str, alphas: Sequence[float], samples: Samples) -> Iterator[Cell]:
    """A cell for every key and α, and the root mean square of errors against the truth where there are any."""
    known = paper(dataset)
    for key, by_model in samples.items():
        if key.metric.endswith(("_floor", "_row_error")):
            continue
        values = np.stack(list(by_model.values()))
        beside_it = [beside(samples, key, what, len(alphas)) for what in ("floor", "row_error")]
        columns = [(key, *mean_and_error(values))]
        if key.metric == "true_error":
            square, error = mean_and_error(np.square(values))
            rms = np.sqrt(square)
            columns.append((key._replace(metric="true_rms"), rms, error / (2 * rms)))
        for name, mean, error in columns:
            for a, alpha in enumerate(alphas):
                place = (name.metric, alpha, *name[1:], float(mean[a]), float(error[a]), len(values))
                yield Cell(*place, *(column[a] for column in beside_it), *known.get((name, percent(alpha)), ()))


def beside(samples: Samples, key: Key, what: str, count: int) -> list[float | None]:
    """The mean over replications of what goes with a figure, where it has one."""
    values = samples.get(key._replace(metric=f"{key.metric}_{what}"))
    return [None] * count if values is None else np.mean(list(values.values()), axis=0).tolist()


__all__ = [
    "CALIBRATORS",
    "DATASETS",
    "MAIN_BINS",
    "OUTCOMES",
    "Cell",
    "ClickTables",
    "Finding",
    "Key",
    "Lambda",
    "Samples",
    "Shape",
    "beside",
    "cells_of",
    "key_of",
    "mean_and_error",
    "paper",
    "percent",
]
