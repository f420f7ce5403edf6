"""One served network: its calibrators and maps, the rows that it selects, and every figure on them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from uncurse._types import Array
from uncurse.calibration import calibrators
from uncurse.debias import VAD, Auto, Tower
from uncurse.errors import UncurseError
from uncurse.evidence import Cells, Evidence, LogSpec, Moments
from uncurse.evidence.from_arrays import column_names, from_arrays
from uncurse.links import get_link, inside, logistic
from uncurse.maps import Affine, ScoreMap, compose
from uncurse.metrics.ranking import Columns, Ranked, columns_of, top_rows
from uncurse.metrics.selection import count_of_share
from uncurse.threads import one_blas_thread
from uncurse.validation import check_finite, check_labels

from .tables import LEVEL, MAIN_BINS, Key

#: The paper's calibrators: the library's names and options.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Histogram Binning": ("histogram", {"n_bins": 50}),
    "Platt Scaling": ("platt", {}),
    "Scaling-Binning": ("scaling-binning", {"n_bins": 50}),
    "Isotonic Regression": ("isotonic", {}),
}
REPLICAS = (2, 3, 4, 5, 6)
#: Least λ: networks trained on very few rows differ by more than their scores vary.
LAMBDA_FLOOR = 0.05
_LINKS = {"vad": "logistic", "vad_identity": "identity"}

Figures = dict[Key, Array]  # arrays over α
Metrics = dict[tuple[str, int | None], Array]  # the same of one map, by metric and number of bins
Lambdas = dict[tuple[int, str, str], tuple[float, float]]  # by S, kind of replica and link: on pool and labelled rows


@dataclass(frozen=True)
class Scored:
    """Logits of networks on three sets of rows, of one world or log."""

    labelled: NDArray[Any]  # (m, R), of the training distribution
    labelled_y: NDArray[Any]  # (m,)
    pool: NDArray[Any]  # (n, R), of the test distribution
    test: NDArray[Any]  # (t, R)
    test_y: NDArray[Any]  # (t,)
    truth: NDArray[Any] | None = None  # (t,) probabilities
    #: Logits of earlier checkpoints of the same networks on labelled rows and pool, by share of the steps.
    snapshots: Mapping[float, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, part in (("pool", self.pool), ("labelled", self.labelled), ("test", self.test)):
            if part.ndim != 2 or not len(part):
                raise UncurseError(f"{name} has shape {part.shape}; pass logits of shape (rows, models)")
            if part.shape[1] != self.pool.shape[1]:
                raise UncurseError(f"{name} has {part.shape[1]} models, the pool {self.pool.shape[1]}; score all alike")
            check_finite(part, name)
        if self.models < 2:
            raise UncurseError("there is 1 model; VAD needs replicas: train at least 2 that differ in seed")
        check_labels(self.labelled_y, len(self.labelled), name="labelled_y")
        check_labels(self.test_y, len(self.test), name="test_y")
        if not np.any(self.labelled_y):
            raise UncurseError("the labels hold no positives, so no calibrator can be fitted; take more labelled rows")
        if self.truth is not None and self.truth.shape != self.test_y.shape:
            raise UncurseError(f"truth has shape {self.truth.shape}, test_y {self.test_y.shape}; pass one for each row")
        for share, (labelled, pool) in self.snapshots.items():
            if labelled.shape != self.labelled.shape or pool.shape != self.pool.shape:
                raise UncurseError(f"snapshot {share} has logits of other shapes; score the same rows and networks")

    @property
    def models(self) -> int:
        """Number of networks."""
        return int(self.pool.shape[1])


def groups_of(models: int, replicas: Sequence[int] = REPLICAS) -> dict[int, list[int]]:
    """Return the served networks, each with every S for which it is served."""
    sizes = [s for s in replicas if s <= models]
    if min(replicas, default=0) < 2 or not sizes:
        raise UncurseError(f"replicas={tuple(replicas)} with {models} models; pass sizes of groups from 2 to {models}")
    served = {}
    for model in range(models):
        mine = [s for s in sizes if (s == 2 or model % s == 0) and model - model % s + s <= models]
        if mine:
            served[model] = mine
    return served


def columns_of_group(model: int, s: int) -> list[int]:
    """Return the networks of the group of a served network, itself first."""
    first = model - model % s
    return [model, *(other for other in range(first, first + s) if other != model)]


@dataclass(frozen=True)
class _Selections:
    """Test rows in ascending order of the served score, and the selections that are made from their top."""

    score: Array
    columns: Columns
    alphas: tuple[float, ...]
    rows: Array  # selected at each α
    truth: Array | None  # Σ truth of each selection, with a tie at its edge counted in part


def _selections(scored: Scored, model: int, alphas: tuple[float, ...]) -> Iterator[_Selections]:
    """Yield the top rows with exact scores, and all rows, for α = 100%, as cells of similar scores."""
    test, count = np.ascontiguousarray(scored.test[:, model]), len(scored.test)
    top = tuple(alpha for alpha in alphas if alpha < 1)
    if top:
        selected = np.array([float(count_of_share(alpha, count)) for alpha in top])
        score, chosen = top_rows(test, np.arange(count), int(selected.max()))
        order = np.argsort(score)
        score, chosen = score[order].astype(np.float64), chosen[order]
        starts = np.flatnonzero(np.append(True, score[1:] > score[:-1]))
        weight = np.diff(starts, append=len(score)).astype(np.float64)
        label = np.add.reduceat(scored.test_y[chosen].astype(np.float64), starts)
        truth = None
        if scored.truth is not None:
            sums = np.add.reduceat(scored.truth[chosen].astype(np.float64), starts)
            reached, total = (np.append(0.0, np.cumsum(column[::-1])) for column in (weight, sums))
            truth = np.interp(selected, reached, total)
        yield _Selections(score[starts], (weight, label, weight, label), top, selected, truth)
    if alphas[-1] == 1:
        cells = Cells().update(test, scored.test_y)
        truth = None if scored.truth is None else np.array([scored.truth.sum(dtype=np.float64)])
        yield _Selections(cells.score, columns_of(cells), (1.0,), np.array([float(count)]), truth)


class ServedNetwork:
    """A served network, and the maps that are fitted to it."""

    def __init__(self, scored: Scored, model: int, alphas: tuple[float, ...], bins: list[int]) -> None:
        self.scored, self.model = scored, model
        self.main = MAIN_BINS if MAIN_BINS in bins else bins[0]
        self.others = [m for m in bins if m != self.main]
        self.selections = list(_selections(scored, model, alphas))
        self.pool = Cells().update(scored.pool[:, model])
        labelled = Cells().update(scored.labelled[:, model], scored.labelled_y)
        self.steps: dict[str, ScoreMap] = {"Vanilla": Affine(1.0, 0.0), LEVEL: Affine(1.0, level_shift(labelled))}
        self.figures: Figures = {}
        self.lambdas: Lambdas = {}
        self.failed: dict[str, str] = {}
        for name, (method, options) in SETTINGS.items():
            try:
                self.steps[name] = calibrators.fit_calibrator(method, labelled, **options)
            except UncurseError as error:  # networks of few rows may know nothing; the others are still worth seeing
                self.failed[name] = str(error)

    def measure(self, groups: list[int], methods: Sequence[str]) -> None:
        """Fill `figures`, and `lambdas` with λ on the pool and on labelled rows."""
        alone = {name: self._figures(step, self.others if 2 in groups else []) for name, step in self.steps.items()}
        for s in groups:
            for name, made in alone.items():  # the other numbers of bins are for pairs
                self._add(name, "original", s, {k: v for k, v in made.items() if s == 2 or k[1] in (None, self.main)})
            columns = columns_of_group(self.model, s)
            for variant, link in _LINKS.items():
                if variant == "vad" or s == 2:
                    pool, labelled = (self._vad(part, columns, link) for part in ("pool", "labelled"))
                    self.lambdas[s, "seeds", link] = pool.lambda_, labelled.lambda_
                    for name, step in self.steps.items():
                        # Neither the model nor its level corrects for noise, so VAD's whole λ remains to be applied.
                        slope = pool.lambda_ / (1.0 if name in ("Vanilla", LEVEL) else labelled.lambda_)
                        tandem = pool.map_ if name == "Vanilla" else self._tandem(step, slope, link)
                        self._add_debiased(tandem, name, variant, s, alone[name])
        if 2 in groups:
            curved = self._vad("pool", columns_of_group(self.model, 2), "logistic", curvature=True)
            self._add_debiased(curved.map_, "Vanilla", "vad_curvature", 2, alone["Vanilla"])
            self._compare_replicas(methods)

    def _vad(self, part: str, columns: list[int], link: str, **options: Any) -> VAD:
        moments = Moments(link).update(np.ascontiguousarray(getattr(self.scored, part)[:, columns]))
        evidence = Evidence(LogSpec(column_names(len(columns)), link=link), moments)
        return VAD(link=link, lambda_floor=LAMBDA_FLOOR, **options).fit(evidence)

    def _tandem(self, step: ScoreMap, slope: float, link: str) -> ScoreMap:
        """Return what `VAD(calibrator=…)` returns, for a calibrator that is already fitted."""
        calibrated = step.transform(self.pool.score)
        if link != "logistic":
            calibrated = get_link(link).inverse(logistic(calibrated))
        center = float(np.average(calibrated, weights=self.pool.weight))
        return compose(step, Affine(slope, (1 - slope) * center, link), scale="logit")

    def _compare_replicas(self, methods: Sequence[str]) -> None:
        """Add figures of VAD, Tower and Auto with a second network, and with an earlier checkpoint, as the replica."""
        now, pair = (self.scored.labelled, self.scored.pool), columns_of_group(self.model, 2)
        kinds = {"seeds": [part[:, pair] for part in now]}
        for share, then in self.scored.snapshots.items():
            both = [
                np.column_stack([new[:, self.model], old[:, self.model]]) for new, old in zip(now, then, strict=True)
            ]
            kinds[f"snapshot {100 * share:g}%"] = both
        for kind, (labelled, pool) in kinds.items():
            replicas = "seeds" if kind == "seeds" else "snapshots"
            counts: dict[str, Any] = {"cells": False, "replica_counts": True}
            rows = from_arrays(np.ascontiguousarray(labelled), self.scored.labelled_y, **counts)
            pool_rows = from_arrays(np.ascontiguousarray(pool), **counts)
            for name in methods:
                try:
                    if name == "VAD":
                        moments = [Evidence(each.spec, each.moments) for each in (pool_rows, rows)]
                        fits = [VAD(replicas=replicas, lambda_floor=LAMBDA_FLOOR).fit(each) for each in moments]
                        self.lambdas[2, kind, "logistic"] = fits[0].lambda_, fits[1].lambda_
                        step = fits[0].map_
                    else:
                        method: Any = {"Tower": Tower, "Auto": Auto}[name]
                        step = method(scale="logit", replicas=replicas).fit(pool_rows, labelled=rows).map_
                except UncurseError as error:
                    self.failed[f"{name}, {kind}"] = str(error)
                else:
                    self._add(name, kind, 2, self._figures(step))

    def _add_debiased(self, step: ScoreMap, name: str, variant: str, s: int, alone: Metrics) -> None:
        """Add figures of a map after VAD, and their changes against the calibrator alone."""
        pairs = (s, variant) == (2, "vad")
        made = self._figures(step, self.others if pairs else [])
        made["log_loss_reduction", None] = made["log_loss", None] / alone["log_loss", None] - 1
        made["log_loss_reduction_click_error", None] = np.concatenate(
            [_reduction_error(rows, self.steps[name](rows.score), step(rows.score)) for rows in self.selections]
        )
        for key in [("calibration_error", None), ("true_error", None)] if pairs else []:
            if key in made:
                made[f"{key[0]}_step", None] = made[key] - alone[key]
        self._add(name, variant, s, made)

    def _add(self, name: str, variant: str, s: int, made: Metrics) -> None:
        self.figures |= {Key(metric, name, variant, s, m): v for (metric, m), v in made.items() if metric != "log_loss"}

    def _figures(self, step: ScoreMap, others: Sequence[int] = ()) -> Metrics:
        """Return every metric of one map."""
        parts = []
        for rows in self.selections:
            ranked = Ranked(step(rows.score), rows.columns)
            found = ranked.rows(rows.alphas, rows.rows, self.main, "quantile")
            made: dict[tuple[str, int | None], Any] = {
                ("calibration_error", None): [row.calibration_error for row in found],
                ("calibration_error_click_error", None): [row.calibration_error.standard_error for row in found],
                ("log_loss", None): [row.log_loss for row in found],
            }
            if rows.truth is not None:
                made["true_error", None] = np.array([row.predicted for row in found]) / rows.truth - 1
            for m in (self.main, *others):
                main = [row.ece for row in found], [row.mce for row in found]
                binned = main if m == self.main else ranked.binned(rows.rows, m, "quantile")[1:3]
                for name, estimates in zip(("ece", "mce"), binned, strict=True):
                    made[name, m] = estimates
                    made[f"{name}_floor", m] = [estimate.floor for estimate in estimates]
                    made[f"{name}_click_error", m] = [estimate.standard_error for estimate in estimates]
            parts.append(made)
        return {key: np.concatenate([np.array(part[key], np.float64) for part in parts]) for key in parts[0]}


def _reduction_error(rows: _Selections, before: Array, after: Array) -> Array:
    """Return the standard error, over test rows, of LogLoss(after) / LogLoss(before) − 1 at each α."""
    weight, label = (column[::-1] for column in rows.columns[:2])
    f0, f1 = (inside(np.asarray(f[::-1], np.float64), 0.0, 1.0) for f in (before, after))
    losses = (-np.log(f0), -np.log(f1)), (-np.log1p(-f0), -np.log1p(-f1))  # of a click, and of none
    at = np.minimum(np.searchsorted(np.cumsum(weight), rows.rows), len(weight) - 1)

    def total(term: Any) -> Array:
        values = (label * term(*losses[0]) + (weight - label) * term(*losses[1])).cumsum()[at]
        return np.asarray(values, np.float64)

    loss = total(lambda old, new: old)
    ratio = total(lambda old, new: new - old) / loss
    squares = total(lambda old, new: (new - old) ** 2) - 2 * ratio * total(lambda old, new: (new - old) * old)
    return np.sqrt(np.maximum(squares + ratio**2 * total(lambda old, new: old**2), 0.0)) / loss


def level_shift(labelled: Cells) -> float:
    """Return the shift of the logit with which Σf = Σy on labelled rows."""
    assert labelled.label is not None
    score, weight, clicks = labelled.score, labelled.weight, float(labelled.label.sum())
    return float(brentq(lambda shift: float(weight @ logistic(score + shift)) - clicks, -50.0, 50.0))


def slope_of(platt: ScoreMap | None) -> float:
    """Return the slope of Platt scaling, NaN if it was not fitted."""
    return platt.slope if isinstance(platt, Affine) else np.nan


def measure_network(
    scored: Scored,
    model: int,
    groups: list[int],
    alphas: tuple[float, ...],
    bins: list[int],
    methods: Sequence[str],
) -> tuple[Figures, Lambdas, dict[str, str], float]:
    """Return figures, λ, reasons for methods that failed, and the Platt slope of one network."""
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `measure` reports them for all networks together
        network = ServedNetwork(scored, model, alphas, bins)
        network.measure(groups, methods)
        return network.figures, network.lambdas, network.failed, slope_of(network.steps.get("Platt Scaling"))
