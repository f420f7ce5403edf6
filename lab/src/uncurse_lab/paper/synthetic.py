"""The paper's synthetic experiment: logistic regression on Gaussian features under a covariate shift.

Every cell of its tables beside the paper's, and more rows: Algorithm 1 read literally, bootstraps anchored at the
served model, the information matrix. More columns too: the error against the true probabilities, and noise floors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse import documents
from uncurse._types import Array, Float
from uncurse.calibration import logistic as solver
from uncurse.errors import UncurseError
from uncurse.links import logistic
from uncurse.methods.information_variance import information_variance
from uncurse.methods.vad import VAD
from uncurse.metrics import evaluate
from uncurse.threads import in_threads, one_blas_thread
from uncurse.version import __version__

from ..processes import Progress
from ..render import Part, TextTable
from .tables import Printed, count_far, printed_cells

#: The design: features, training rows, test and pool rows, and the means of the features.
FEATURES, TRAIN, TEST = 20, 3_000, 30_000
TRAIN_MEAN, POOL_MEAN, SPREAD = 0.05, -0.05, 0.1
ALPHAS = tuple(round(0.01 * i, 2) for i in range(2, 11))
METRICS = ("calibration_error", "ece", "mce", "log_loss_reduction", "true_error", "ece_floor", "mce_floor")
METHODS = ("Vanilla", "VAD", "VAD(p)", "VAD (S=3)", "Algorithm 1, literal", "anchored, S=2", "information, S=1")

#: Figures of the authors' own random stream, by α; see `run_golden`.
_FIGURES = ("Vanilla", "VAD", "VAD(p)", "lambda", "ECE Vanilla", "ECE VAD", "MCE Vanilla", "MCE VAD")
GOLDEN = {
    0.02: dict(zip(_FIGURES, (1.08702, 0.99470, 1.00528, 0.83940, 0.06588, 0.05728, 0.1476, 0.1297), strict=True)),
    0.10: dict(zip(_FIGURES, (1.06969, 0.99415, 1.00398, 0.84168, 0.04182, 0.03437, 0.0831, 0.0726), strict=True)),
}


PAPER_REPLICATIONS = 100


@dataclass(frozen=True)
class SyntheticCell:
    """One cell of a table: ours, the paper's where it has one, and the distance in combined standard errors."""

    metric: str
    alpha: float
    method: str
    mean: float
    standard_error: float
    paper_mean: float | None = None
    paper_standard_error: float | None = None
    replications: int = PAPER_REPLICATIONS

    @property
    def distance(self) -> float | None:
        """Ours minus the paper's, in combined standard errors.

        If the paper gives none, it is ours for as many replications as the paper has.
        """
        if self.paper_mean is None:
            return None
        other = self.paper_standard_error
        if other is None:
            other = self.standard_error * float(np.sqrt(self.replications / PAPER_REPLICATIONS))
        return (self.mean - self.paper_mean) / float(np.hypot(self.standard_error, other))


@dataclass(frozen=True)
class SyntheticTables:
    """The whole experiment, a `SyntheticCell` for every metric, α and method, and the mean λ of each method."""

    cells: tuple[SyntheticCell, ...]
    lambdas: dict[str, float]
    replications: int
    seed: int

    def cell(self, metric: str, alpha: float, method: str) -> SyntheticCell:
        """One cell."""
        wanted = metric, alpha, method
        return next(cell for cell in self.cells if (cell.metric, cell.alpha, cell.method) == wanted)

    def to_json(self) -> str:
        """One JSON document."""
        about = {"version": __version__, "seed": self.seed, "replications": self.replications, "lambda": self.lambdas}
        cells = [{**vars(cell), "distance": cell.distance} for cell in self.cells]
        return documents.dumps("synthetic", {**about, "cells": cells})


def paper() -> dict[tuple[str, float, str], Printed]:
    """Return the paper's cells: (metric, α, method) to mean and standard error."""
    cells = printed_cells("synthetic.csv")
    return {(row["metric"], float(row["alpha"]), row["method"]): printed for row, printed in cells}


def run(replications: int = PAPER_REPLICATIONS, seed: int = 0, *, progress: Progress = iter) -> SyntheticTables:
    """Run the experiment with fresh random numbers."""
    if replications < 2:
        raise UncurseError(f"replications={replications}; a standard error needs at least 2")
    streams = np.random.SeedSequence(seed).spawn(replications)
    with one_blas_thread():
        made = in_threads(lambda stream: _replicate(np.random.default_rng(stream)), streams, progress)
    results, lambdas = zip(*made, strict=True)
    stack = np.stack(results)  # replications × metrics × α × methods
    means, errors = stack.mean(axis=0), stack.std(axis=0, ddof=1) / np.sqrt(replications)
    places = list(product(METRICS, ALPHAS, METHODS))
    known = paper()
    cells = [
        replace(SyntheticCell(*place, mean, error, *known.get(place, ())), replications=replications)
        for place, mean, error in zip(places, means.ravel().tolist(), errors.ravel().tolist(), strict=True)
    ]
    mean_lambdas = {name: float(np.mean([entry[name] for entry in lambdas])) for name in lambdas[0]}
    return SyntheticTables(tuple(cells), mean_lambdas, replications, seed)


def _replicate(rng: np.random.Generator) -> tuple[NDArray[np.float64], dict[str, float]]:
    """One replication: every metric of every method at every α, and λ."""
    x, y, _ = draw_rows(rng, TRAIN, TRAIN_MEAN)
    x_test, y_test, truth = draw_rows(rng, TEST, POOL_MEAN)
    x_pool = draw_rows(rng, TEST, POOL_MEAN)[0]
    served = fit_model(x, y, np.ones(TRAIN))
    bootstraps = [fit_model(x, y, rng.multinomial(TRAIN, np.full(TRAIN, 1 / TRAIN)).astype(float)) for _ in range(3)]
    pool = scores_of(x_pool, np.stack([served, *bootstraps]))
    test = scores_of(x_test, served[None])[:, 0]
    variance = information_variance(x, logistic(scores_of(x, served[None])[:, 0]), x_pool)
    fits = {
        "VAD": paper_vad(pool[:, :3]),
        "VAD(p)": paper_vad(pool[:, :3], "identity"),
        "VAD (S=3)": paper_vad(pool),
        "Algorithm 1, literal": VAD(scale="logit", replicas="seeds").fit(pool[:, :2]),
        "anchored, S=2": VAD(scale="logit", replicas="bootstrap").fit(pool[:, :2]),
        "information, S=1": VAD(scale="logit", replicas="seeds").fit(pool[:, :1], variance=variance),
    }
    predictions = {"Vanilla": logistic(test)} | {name: fit.predict_proba(test) for name, fit in fits.items()}
    most = round(max(ALPHAS) * TEST)
    best = np.argpartition(-test, most)[:most]
    best = best[np.argsort(-test[best])]
    reached = np.cumsum(truth[best])[[round(a * TEST) - 1 for a in ALPHAS]]
    out = np.empty((len(METRICS), len(ALPHAS), len(METHODS)))
    results = [evaluate(y_test, predictions[name], ALPHAS) for name in METHODS]
    for j, result in enumerate(results):
        out[:3, :, j] = [result.column(metric) for metric in METRICS[:3]]
        out[3, :, j] = result.column("log_loss") / results[0].column("log_loss") - 1
        out[4, :, j] = result.column("predicted") / reached - 1
        out[5:, :, j] = [[row.ece.floor for row in result.rows], [row.mce.floor for row in result.rows]]
    return out, {name: fit.lambda_ for name, fit in fits.items()}


def draw_rows(rng: np.random.Generator, rows: int, mean: float) -> tuple[Array, NDArray[np.bool_], Float]:
    """Features, labels and true probabilities: β = 1, no intercept."""
    x = rng.standard_normal((rows, FEATURES))
    x *= SPREAD
    x += mean
    truth = logistic(x.sum(axis=1))
    return x, rng.random(rows) < truth, truth


def paper_vad(pool: Array, link: str = "logistic") -> VAD:
    """Fit VAD as the authors' code does: V is the variance between the bootstraps, the columns after the first."""
    bootstraps = pool[:, 1:] if link == "logistic" else logistic(pool[:, 1:])
    variance = float(np.var(bootstraps - bootstraps.mean(axis=0), axis=1, ddof=1).mean())
    return VAD(scale="logit", replicas="bootstrap", link=link).fit(pool[:, :1], variance=variance)


def fit_model(x: Array, y: NDArray[Any], weight: Array) -> Array:
    """Unpenalized logistic regression with an intercept, the last coefficient."""
    design = np.concatenate([x.T, np.ones((1, len(x)))])
    return solver.fit_logistic(design, weight, weight * y).coefficients


def scores_of(x: Array, coefficients: Array) -> Array:
    """Logits of every model, a column each."""
    scores: Array = x @ coefficients[:, :-1].T
    scores += coefficients[:, -1]
    return scores


def run_golden(*, progress: Progress = iter) -> list[dict[str, Any]]:
    """Compare our figures from the authors' own random stream with theirs, which are in `GOLDEN`.

    All training sets are drawn first, then all test sets, then all pools, each its rows and then its labels; then two
    bootstraps for each replication and α.
    """
    stream = np.random.RandomState(1234)
    count = 100

    def draw(rows: int, mean: float) -> tuple[Array, NDArray[Any]]:
        x = stream.normal(mean, SPREAD, size=(rows, FEATURES))
        return x, stream.binomial(1, logistic(x.sum(axis=1)))

    train = [draw(TRAIN, TRAIN_MEAN) for _ in range(count)]
    served = [fit_model(x, y, np.ones(TRAIN)) for x, y in train]
    # A test set is only ever seen through its served score, a pool through float32: a tenth of the memory.
    drawn = ((coefficients[None], *draw(TEST, POOL_MEAN)) for coefficients in served)
    test = [(scores_of(x, coefficients)[:, 0], y) for coefficients, x, y in drawn]
    pools = [draw(TEST, POOL_MEAN)[0].astype(np.float32) for _ in range(count)]
    records = []
    for alpha, golden in GOLDEN.items():
        rows = []
        for i in progress(iter(range(count))):
            x, y = train[i]
            fits = [served[i]]
            for _ in range(2):
                chosen = stream.choice(np.arange(TRAIN), TRAIN, replace=True)
                fits.append(fit_model(x, y, np.bincount(chosen, minlength=TRAIN).astype(float)))
            pool = scores_of(pools[i].astype(np.float64), np.stack(fits))
            score, label = test[i]
            vad, identity = paper_vad(pool), paper_vad(pool, "identity")
            predictions = logistic(score), vad.predict_proba(score), identity.predict_proba(score)
            vanilla, debiased, by_value = (evaluate(label, p, [alpha]).rows[0] for p in predictions)
            ratios = vanilla.ratio, debiased.ratio, by_value.ratio, vad.lambda_
            rows.append((*ratios, vanilla.ece, debiased.ece, vanilla.mce, debiased.mce))
        records += [
            {"alpha": alpha, "figure": name, "ours": float(np.mean(row)), "theirs": golden[name]}
            for name, *row in zip(_FIGURES, *rows, strict=True)
        ]
    return records


_TITLES = {
    "calibration_error": ("Calibration error, %", 100),
    "ece": ("ECE, 10 bins of equal count", 1),
    "mce": ("MCE", 1),
    "log_loss_reduction": ("Log-loss reduction, %", 100),
}
_ENOUGH = 20  # replications
_LEGEND = (
    "Calibration error: Σf/Σy − 1 on the top α of the test rows, against their labels. VAD: two bootstraps beside the "
    "served model; VAD(p): the same on probabilities instead of logits; VAD (S=3): three bootstraps. Algorithm 1, "
    "literal: one bootstrap, counted as an independent model as in the paper's pseudocode, which halves the noise "
    "variance; anchored, S=2: one bootstrap around the served model; information, S=1: no bootstrap, the noise from "
    "the information matrix. Noise floor: mean of the metric if every prediction were the true probability. Log-loss "
    "reduction: log loss over Vanilla's, minus 1; below zero is better."
)


def golden_parts(records: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the comparison with the authors' figures as a table."""
    table = [("α", "figure", "ours", "theirs", "difference")]
    for one in records:
        ours, theirs = one["ours"], one["theirs"]
        figures = (f"{ours:.6f}", f"{theirs:g}", f"{ours - theirs:+.1e}")
        table.append((f"{100 * one['alpha']:g}%", one["figure"], *figures))
    yield (
        "The 100 replications of the authors, drawn with their random numbers: means of our code beside those of "
        "theirs. Vanilla, VAD and VAD(p) are ratios Σf/Σy; the paper's tables have calibration errors, Σf/Σy − 1, in "
        "percent. λ differs between 2% and 10% because the random numbers run on, so each α has bootstraps of its own."
    )
    largest = max(abs(one["ours"] - one["theirs"]) for one in records)
    agree = "all agree to four decimals" if largest < 1e-4 else "some differ in the first four decimals"
    yield TextTable("", table, left=2)
    yield f"{len(records)} figures, largest difference {largest:.1e}: {agree}."


def parts(tables: SyntheticTables) -> Iterator[Part]:
    """Yield every table of the experiment beside the paper's."""
    yield (
        f"Means (standard errors) over {tables.replications} replications (seed {tables.seed}). In brackets: the "
        "paper's figure, and the difference in combined standard errors."
    )
    yield _LEGEND
    for metric, (title, unit) in _TITLES.items():
        methods = METHODS[:4] if metric != "log_loss_reduction" else ("VAD",)
        table = [("α", *methods, *["noise floor"] * (unit == 1))]
        for alpha in ALPHAS:
            cells = [_cell_text(tables.cell(metric, alpha, method), unit) for method in methods]
            if unit == 1:
                cells.append(f"{tables.cell(f'{metric}_floor', alpha, 'VAD').mean:.4f}")
            table.append((f"{100 * alpha:g}%", *cells))
        yield TextTable(title, table)
    table = [("method", "top 2%", "top 5%", "top 10%", "λ")]
    for method in METHODS:
        row = [method]
        for alpha in (0.02, 0.05, 0.1):
            ours, true = (tables.cell(name, alpha, method) for name in ("calibration_error", "true_error"))
            row.append(f"{100 * ours.mean:+.2f} ({100 * ours.standard_error:.2f}) [{100 * true.mean:+.2f}]")
        table.append((*row, f"{tables.lambdas[method]:.4f}" if method in tables.lambdas else ""))
    title = "Calibration error, %, with other replicas (in brackets: against the true probabilities), and mean λ"
    yield TextTable(title, table)
    far, count = count_far(tables.cells)
    few = ""
    if tables.replications < _ENOUGH:
        few = f" {tables.replications} replications are too few to compare: their standard errors are unreliable"
        few += f", so use {_ENOUGH} or more."
    yield f"{far} of {count} cells lie more than 3 combined standard errors away from the paper's.{few}"


def _cell_text(cell: SyntheticCell, unit: int) -> str:
    digits = 2 if unit == 100 else 4
    text = f"{unit * cell.mean:.{digits}f} ({unit * cell.standard_error:.{digits}f})"
    if cell.paper_mean is not None:
        text += f" [{unit * cell.paper_mean:.{digits}f} {cell.distance:+.1f}]"
    return text
