"""Tables of the experiments on click logs: each cell beside the paper's, with standard errors of every kind."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from uncurse import documents
from uncurse._types import Array
from uncurse.version import __version__

from ..theory import Gaussianity

LEVEL = "Vanilla, level corrected"
#: The paper's methods, and ours that moves the logit so that Σf = Σy on labeled rows.
CALIBRATORS = ("Vanilla", LEVEL, "Histogram Binning", "Platt Scaling", "Scaling-Binning", "Isotonic Regression")
PAPER_CALIBRATORS = tuple(name for name in CALIBRATORS if name != LEVEL)
#: Methods that are compared by kind of replica: a second network, or an earlier checkpoint of the served one.
REPLICA_METHODS = ("VAD", "labels", "Auto")
MAIN_BINS = 50  # of ECE and MCE unless stated otherwise
OUTCOMES = ("confirmed", "contradicted", "not significant")


class Key(NamedTuple):
    """What was measured. S is `replicas`; `bins` is M for ECE and MCE and None elsewhere."""

    metric: str
    calibrator: str = "Vanilla"  # or one of `REPLICA_METHODS`
    variant: str = "original"  # or "vad", "vad_identity", "vad_curvature"; for `REPLICA_METHODS` the kind of replica
    replicas: int = 2
    bins: int | None = None


Printed = tuple[float, float | None]  # mean of the paper, and its standard error if it prints one
#: Figures of every replication: by key, then by (world, served network), an array over α.
Samples = Mapping[Key, Mapping[tuple[int, int], Array]]


@dataclass(frozen=True)
class ClickCell:
    """One cell of a table: ours, the paper's if it has one, and for ECE and MCE the noise floor."""

    metric: str
    alpha: float
    calibrator: str
    variant: str
    replicas: int
    bins: int | None
    mean: float
    network_error: float  # standard error over networks; nan for one group of networks
    count: int  # replications
    floor: float | None = None
    click_error: float | None = None  # standard error due to test clicks, which all networks of a world share
    world_error: float | None = None  # standard error over worlds, which counts everything; None for one world
    paper_mean: float | None = None
    paper_standard_error: float | None = None

    @property
    def within(self) -> float:
        """Standard error over networks and test clicks."""
        return float(np.hypot(self.network_error, self.click_error or 0.0))

    @property
    def error(self) -> float:
        """Standard error over worlds, or within the one world."""
        return self.within if self.world_error is None else self.world_error

    @property
    def distance(self) -> float | None:
        """Ours minus the paper's, in combined standard errors (ours twice if it prints none) and click noise."""
        if self.paper_mean is None or not self.error > 0:
            return None
        other = self.network_error if self.paper_standard_error is None else self.paper_standard_error
        combined = np.sqrt(self.error**2 + other**2 + (self.click_error or 0.0) ** 2)
        return (self.mean - self.paper_mean) / float(combined)


@dataclass(frozen=True)
class Lambda:
    """λ over replications: mean and standard deviation on the pool, on labeled rows, and of their ratio."""

    replicas: int
    kind: str  # "seeds", or a snapshot
    link: str
    count: int
    pool: float
    pool_sd: float
    labeled: float
    labeled_sd: float
    ratio: float
    ratio_sd: float


@dataclass(frozen=True)
class Finding:
    """One finding of the paper for one metric and calibrator: it holds where the statistic is below zero."""

    claim: str
    metric: str
    calibrator: str
    alpha: float
    sides: tuple[str, ...]  # what is compared, such as ("vad S=2", "original S=2")
    difference: float  # our statistic
    error: float  # its standard error: over worlds, or over networks and test clicks
    count: int  # replications
    outcome: str  # "confirmed", "contradicted" or "not significant", at 2 standard errors
    ours: tuple[float, ...]  # the means of the sides
    paper: tuple[float, ...]
    paper_difference: float  # the statistic of the paper's own means
    same_sign: int  # of `printed` values of α, those at which our statistic is below zero
    printed: int


@dataclass(frozen=True)
class ClickTables:
    """All results of an experiment."""

    dataset: str
    models: int  # per world
    worlds: int
    sizes: dict[str, float]  # rows of each part and their rates of positives, of the first world
    alphas: tuple[float, ...]
    cells: tuple[ClickCell, ...]
    claims: tuple[Finding, ...]
    lambdas: tuple[Lambda, ...]
    shape: Gaussianity  # of the served logit of the first network on the pool
    networks: tuple[dict[str, Any], ...]  # for each world: log loss by epoch, slopes and levels of its networks
    about: dict[str, Any]

    def get(self, metric: str, alpha: float, *place: Any, **names: Any) -> ClickCell | None:
        """Return one cell, or None; the rest of its `Key` follows α, and `bins` is 50 for ECE and MCE by default."""
        key = Key(metric, *place, **names)
        if key.bins is None and metric in ("ece", "mce"):
            key = key._replace(bins=MAIN_BINS)
        return self._by_place.get((key, percent(alpha)))

    @cached_property
    def _by_place(self) -> dict[tuple[Key, float], ClickCell]:
        return {(Key(*(getattr(c, name) for name in Key._fields)), percent(c.alpha)): c for c in self.cells}

    def to_json(self) -> str:
        """Return one JSON document; numbers that are not finite are null."""
        cells = [{**vars(cell), "distance": cell.distance} for cell in self.cells]
        content = json.dumps({"version": __version__, **asdict(self), "cells": cells})
        return documents.dumps("clicks", json.loads(content, parse_constant=lambda name: None))


def percent(alpha: float) -> float:
    """Return α in percent as the paper's cells have it, so that 0.1 + 0.2 finds 30."""
    return round(100 * alpha, 6)


def printed_cells(name: str) -> Iterator[tuple[dict[str, str], Printed]]:
    """Yield the rows of a file of this package, each with the mean and standard error that the paper prints."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        yield row, (float(row["mean"]), float(row["standard_error"]) if row["standard_error"] else None)


@cache
def paper(dataset: str) -> dict[tuple[Key, float], Printed]:
    """Return the paper's cells: key and α in percent to mean and standard error."""
    cells = {}
    for row, printed in printed_cells("clicks.csv"):
        if row["dataset"] == dataset:
            bins = int(row["bins"]) if row["bins"] else None
            key = Key(row["metric"], row["calibrator"], row["variant"], int(row["replicas"]), bins)
            cells[key, percent(float(row["alpha"]))] = printed
    return cells


def count_far(cells: Iterable[Any]) -> tuple[int, int]:
    """Return the number of cells more than three combined standard errors from the paper's, and of all."""
    distances = [cell.distance for cell in cells if cell.distance is not None]
    return sum(abs(d) > 3 for d in distances), len(distances)


def pooled(values: Mapping[tuple[int, int], Any], block: int) -> tuple[Array, Array, Array | None]:
    """Return the mean over worlds, its standard error over networks, and that over worlds (None for one world).

    `values` are by world and served network. Neighboring networks in a block share networks (`block` is 2 for pairs in
    which both are served), so their errors may depend on each other, and a block counts as one observation.
    """
    by_world: dict[int, dict[int, list[Any]]] = {}
    for (world, model), value in values.items():
        by_world.setdefault(world, {}).setdefault(model // block, []).append(value)
    means, variances = [], []
    for blocks in by_world.values():
        count = len(blocks)
        sums = np.stack([np.sum(part, axis=0) for part in blocks.values()])
        sizes = np.array([float(len(part)) for part in blocks.values()]).reshape(-1, *[1] * (sums.ndim - 1))
        means.append(sums.sum(axis=0) / sizes.sum())
        spread = np.square(sums - sizes * means[-1]).sum(axis=0) / sizes.sum() ** 2
        variances.append(spread * count / (count - 1) if count > 1 else np.nan * spread)
    worlds = len(means)
    world_error = np.std(means, axis=0, ddof=1) / np.sqrt(worlds) if worlds > 1 else None
    return np.mean(means, axis=0), np.sqrt(np.sum(variances, axis=0)) / worlds, world_error


def beside(samples: Samples, key: Key, what: str, count: int) -> list[float | None]:
    """Return what goes with a figure, "floor" or "click_error", for each α; None if there is nothing."""
    values = samples.get(key._replace(metric=f"{key.metric}_{what}"))
    if values is None:
        return [None] * count
    mean = pooled(values, 1)[0]
    if what == "click_error":  # worlds have test rows of their own
        mean = mean / np.sqrt(len({world for world, _ in values}))
    return [float(value) for value in mean]


def cells_of(dataset: str, alphas: Sequence[float], samples: Samples) -> Iterator[ClickCell]:
    """Yield a cell for every key and α, and the root mean square of errors against the truth."""
    known = paper(dataset)
    for key, values in samples.items():
        if key.metric.endswith(("_floor", "_click_error")):
            continue
        floor, click_error = (beside(samples, key, what, len(alphas)) for what in ("floor", "click_error"))
        columns = [(key, *pooled(values, key.replicas))]
        if key.metric == "true_error":
            square, network, world = pooled({place: np.square(v) for place, v in values.items()}, key.replicas)
            rms = np.sqrt(square)
            twice = 2 * np.maximum(rms, 1e-300)
            between = None if world is None else world / twice
            columns.append((key._replace(metric="true_rms"), rms, network / twice, between))
        for name, mean, network, world in columns:
            for a, alpha in enumerate(alphas):
                of_worlds = None if world is None else float(world[a])
                ours: Any = float(mean[a]), float(network[a]), len(values), floor[a], click_error[a], of_worlds
                yield ClickCell(name.metric, alpha, *name[1:], *ours, *_of_paper(known, name, percent(alpha)))


def _of_paper(known: Any, key: Key, alpha: float) -> tuple[float, float | None] | tuple[()]:
    """Return the paper's mean and standard error; the step of VAD is the difference of two of its means."""
    if key.metric == "calibration_error_step":
        sides = [known.get((key._replace(metric="calibration_error", variant=v), alpha)) for v in ("vad", "original")]
        return () if None in sides else (sides[0][0] - sides[1][0], None)
    found: tuple[float, float | None] | tuple[()] = known.get((key, alpha), ())
    return found
