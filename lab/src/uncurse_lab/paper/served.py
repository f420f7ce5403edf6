"""One served network: its calibrators and maps, the rows that it selects, and every figure on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from uncurse._types import Array
from uncurse.calibration import calibrators
from uncurse.errors import UncurseError
from uncurse.evidence import Evidence, Histogram, LogSpec
from uncurse.evidence.from_arrays import column_names, from_arrays
from uncurse.links import get_link, inside, logistic
from uncurse.maps import Affine, ScoreMap
from uncurse.methods import VAD, Auto, ReplicaCalibrator
from uncurse.methods.vad import fit_vad
from uncurse.metrics.measure import sums_of_cells, top_metrics
from uncurse.metrics.selection import count_of_share
from uncurse.threads import one_blas_thread

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

Map = Callable[[Array], Array]  # from logits to probabilities
Figures = dict[Key, Array]  # arrays over α
Metrics = dict[tuple[str, int | None], Array]  # the same of one map, by metric and number of bins
Lambdas = dict[tuple[int, str, str], tuple[float, float]]  # by S, kind of replica and link: on pool and labeled rows


@dataclass(frozen=True)
class Scored:
    """Logits of networks on three sets of rows, of one world or log."""

    labeled: NDArray[Any]  # (m, R), of the training distribution
    labeled_y: NDArray[Any]  # (m,)
    pool: NDArray[Any]  # (n, R), of the test distribution
    test: NDArray[Any]  # (t, R)
    test_y: NDArray[Any]  # (t,)
    truth: NDArray[Any] | None = None  # (t,) probabilities
    #: Logits of earlier checkpoints of the same networks on labeled rows and pool, by share of the steps.
    snapshots: Mapping[float, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict)

    @property
    def models(self) -> int:
        """Number of networks."""
        return int(self.pool.shape[1])


def groups_of(models: int, replicas: Sequence[int] = REPLICAS) -> dict[int, list[int]]:
    """Return the served networks, each with every S for which it is served."""
    sizes = [s for s in replicas if s <= models]
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
    sums: Array  # Σw, Σwy, Σw² and Σw²y of each score
    alphas: tuple[float, ...]
    rows: Array  # selected at each α
    truth: Array | None  # Σ truth of each selection, with a tie at its edge counted in part


def _selections(scored: Scored, model: int, alphas: tuple[float, ...]) -> Iterator[_Selections]:
    """Yield the top rows with exact scores, and all rows, for α = 100%, as cells of similar scores."""
    test, count = np.ascontiguousarray(scored.test[:, model]), len(scored.test)
    top = tuple(alpha for alpha in alphas if alpha < 1)
    if top:
        selected = np.array([float(count_of_share(alpha, count)) for alpha in top])
        most = int(selected.max())
        chosen = np.flatnonzero(test >= np.partition(test, count - most)[count - most])
        chosen = chosen[np.argsort(test[chosen])]
        score = test[chosen].astype(np.float64)
        starts = np.flatnonzero(np.append(True, score[1:] > score[:-1]))
        weight = np.diff(starts, append=len(score)).astype(np.float64)
        label = np.add.reduceat(scored.test_y[chosen].astype(np.float64), starts)
        truth = None
        if scored.truth is not None:
            sums = np.add.reduceat(scored.truth[chosen].astype(np.float64), starts)
            reached, total = (np.append(0.0, np.cumsum(column[::-1])) for column in (weight, sums))
            truth = np.interp(selected, reached, total)
        yield _Selections(score[starts], np.stack([weight, label, weight, label]), top, selected, truth)
    if alphas[-1] == 1:
        cells = Histogram().update(test, scored.test_y)
        truth = None if scored.truth is None else np.array([scored.truth.sum(dtype=np.float64)])
        yield _Selections(cells.score, sums_of_cells(cells), (1.0,), np.array([float(count)]), truth)


class ServedNetwork:
    """A served network, and the maps that are fitted to it."""

    def __init__(self, scored: Scored, model: int, alphas: tuple[float, ...], bins: list[int]) -> None:
        self.scored, self.model = scored, model
        self.main = MAIN_BINS if MAIN_BINS in bins else bins[0]
        self.others = [m for m in bins if m != self.main]
        self.selections = list(_selections(scored, model, alphas))
        self.pool = Histogram().update(scored.pool[:, model])
        labeled = Histogram().update(scored.labeled[:, model], scored.labeled_y)
        score, weight, clicks = labeled.score, labeled.weight, float(scored.labeled_y.sum())
        shift = float(brentq(lambda move: float(weight @ logistic(score + move)) - clicks, -50.0, 50.0))
        self.steps: dict[str, ScoreMap] = {"Vanilla": Affine(1.0, 0.0), LEVEL: Affine(1.0, shift)}
        self.figures: Figures = {}
        self.lambdas: Lambdas = {}
        self.failed: dict[str, str] = {}
        for name, (method, options) in SETTINGS.items():
            try:
                self.steps[name] = calibrators.fit_calibrator(method, labeled, **options)
            except UncurseError as error:  # networks of few rows may know nothing; the others are still worth seeing
                self.failed[name] = str(error)

    def measure(self, groups: list[int], methods: Sequence[str]) -> None:
        """Fill `figures`, and `lambdas` with λ on the pool and on labeled rows."""
        alone = {name: self._figures(step, self.others if 2 in groups else []) for name, step in self.steps.items()}
        for s in groups:
            for name, made in alone.items():  # the other numbers of bins are for pairs
                self._add(name, "original", s, {k: v for k, v in made.items() if s == 2 or k[1] in (None, self.main)})
            columns = columns_of_group(self.model, s)
            for variant, link in _LINKS.items():
                if variant == "vad" or s == 2:
                    pool, labeled = (self._vad(part, columns, link) for part in ("pool", "labeled"))
                    self.lambdas[s, "seeds", link] = pool[1], labeled[1]
                    for name, step in self.steps.items():
                        # Neither the model nor its level corrects for noise, so VAD's whole λ remains to be applied.
                        slope = pool[1] / (1.0 if name in ("Vanilla", LEVEL) else labeled[1])
                        tandem = pool[0] if name == "Vanilla" else self._tandem(step, slope, link)
                        self._add_debiased(tandem, name, variant, s, alone[name])
        if 2 in groups:
            curved, _ = self._vad("pool", columns_of_group(self.model, 2), "logistic", curvature=True)
            self._add_debiased(curved, "Vanilla", "vad_curvature", 2, alone["Vanilla"])
            self._compare_replicas(methods)

    def _vad(self, part: str, columns: list[int], link: str, **options: Any) -> tuple[ScoreMap, float]:
        """Return map and λ."""
        spec = LogSpec(column_names(len(columns)), link=link)
        scores = np.ascontiguousarray(getattr(self.scored, part)[:, columns])
        evidence = from_arrays(scores, spec=spec, histograms=False)
        return _fit_vad(evidence, "seeds", link=link, **options)

    def _tandem(self, step: ScoreMap, slope: float, link: str) -> Map:
        """Return what `VAD(calibrator=…)` predicts, for a calibrator that is already fitted."""
        calibrated = step.transform(self.pool.score)
        if link != "logistic":
            calibrated = get_link(link).inverse(logistic(calibrated))
        center = float(np.average(calibrated, weights=self.pool.weight))
        shrink = Affine(slope, (1 - slope) * center, link, scale="probability")
        return lambda scores: shrink(step(scores))

    def _compare_replicas(self, methods: Sequence[str]) -> None:
        """Add figures of VAD, labels and Auto with a second network, and with an earlier checkpoint, as the replica."""
        now, pair = (self.scored.labeled, self.scored.pool), columns_of_group(self.model, 2)
        kinds = {"seeds": [part[:, pair] for part in now]}
        for share, then in self.scored.snapshots.items():
            both = [
                np.column_stack([new[:, self.model], old[:, self.model]]) for new, old in zip(now, then, strict=True)
            ]
            kinds[f"snapshot {100 * share:g}%"] = both
        for kind, (labeled, pool) in kinds.items():
            replicas = "seeds" if kind == "seeds" else "snapshots"
            rows = from_arrays(np.ascontiguousarray(labeled), self.scored.labeled_y)
            pool_rows = from_arrays(np.ascontiguousarray(pool))
            for name in methods:
                try:
                    if name == "VAD":
                        moments = [Evidence(each.spec, each.moments) for each in (pool_rows, rows)]
                        (step, on_pool), (_, on_labeled) = (_fit_vad(each, replicas) for each in moments)
                        self.lambdas[2, kind, "logistic"] = on_pool, on_labeled
                    else:
                        method: Any = {"labels": ReplicaCalibrator, "Auto": Auto}[name]
                        fitted = method(scale="logit", replicas=replicas)
                        step = fitted.fit(pool_rows, labeled=rows, labels_from="elsewhere").map_
                except UncurseError as error:
                    self.failed[f"{name}, {kind}"] = str(error)
                else:
                    self._add(name, kind, 2, self._figures(step))

    def _add_debiased(self, step: Map, name: str, variant: str, s: int, alone: Metrics) -> None:
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

    def _figures(self, step: Map, others: Sequence[int] = ()) -> Metrics:
        """Return every metric of one map."""
        parts = []
        for rows in self.selections:
            prediction = step(rows.score)
            measured = {
                m: top_metrics(prediction, rows.sums, rows.alphas, rows.rows.tolist(), m, "quantile")
                for m in (self.main, *others)
            }
            found = measured[self.main]
            made: dict[tuple[str, int | None], Any] = {
                ("calibration_error", None): [row.calibration_error for row in found],
                ("calibration_error_click_error", None): [row.calibration_error.standard_error for row in found],
                ("log_loss", None): [row.log_loss for row in found],
            }
            if rows.truth is not None:
                made["true_error", None] = np.array([row.predicted for row in found]) / rows.truth - 1
            for m, selections in measured.items():
                for name in ("ece", "mce"):
                    estimates = [getattr(row, name) for row in selections]
                    made[name, m] = estimates
                    made[f"{name}_floor", m] = [estimate.floor for estimate in estimates]
                    made[f"{name}_click_error", m] = [estimate.standard_error for estimate in estimates]
            parts.append(made)
        return {key: np.concatenate([np.array(part[key], np.float64) for part in parts]) for key in parts[0]}


def _reduction_error(rows: _Selections, before: Array, after: Array) -> Array:
    """Return the standard error, over test rows, of LogLoss(after) / LogLoss(before) − 1 at each α."""
    weight, label = (column[::-1] for column in rows.sums[:2])
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


def _fit_vad(evidence: Evidence, replicas: str, **options: Any) -> tuple[ScoreMap, float]:
    """Return map and λ of VAD on replicas whose kind is known."""
    vad = VAD(scale="logit", replicas=replicas, lambda_floor=LAMBDA_FLOOR, **options)
    fitted = fit_vad(vad, evidence).fitted()
    assert fitted.record is not None
    assert fitted.record.lambda_ is not None
    return fitted.map, fitted.record.lambda_


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
