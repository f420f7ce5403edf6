"""The paper's experiments on click logs, after training: logits of many replicas to every table of the paper.

The models of one architecture differ in seed alone. For each S they fall into groups of S; the first of a group is
served, and every group is one replication. All maps are monotone, so the rows that a served model selects are found
once, and every calibrator, variant and number of bins is looked at on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from .._types import Array
from ..calibration import calibrators
from ..debias.vad import VAD
from ..errors import UncurseError
from ..evidence import Cells, Evidence, LogSpec, Moments
from ..evidence.from_arrays import column_names
from ..links import get_link, logistic
from ..maps import Affine, ScoreMap, compose
from ..metrics import SelectionMetrics
from ..metrics.ranking import Ranked, top_rows
from ..metrics.selection import count_of_share
from ..theory import gaussianity
from ..threads import in_threads, one_blas_thread
from ..validation import check_choice, check_count, check_finite, check_labels, check_share
from .clicks_claims import judge
from .clicks_tables import (
    CALIBRATORS,
    DATASETS,
    MAIN_BINS,
    ClickTables,
    Finding,
    Key,
    Lambda,
    Samples,
    Shape,
    cells_of,
    mean_and_error,
    paper,
)

ALPHAS = tuple(round(0.01 * i, 2) for i in range(2, 11))
BINS = (30, 40, 50, 60, 70)
REPLICAS = (2, 3, 4, 5, 6)

#: The paper's calibrators: the library's names and options.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Histogram Binning": ("histogram", {"n_bins": 50}),
    "Platt Scaling": ("platt", {}),
    "Scaling-Binning": ("scaling-binning", {"n_bins": 50}),
    "Isotonic Regression": ("isotonic", {}),
}
_LINKS = {"vad": "logistic", "vad_identity": "identity"}
_LEAST = 0.05  # λ of models that differ by more than their scores vary, as those of very few rows do


@dataclass(frozen=True)
class Scored:
    """Logits of S models on three sets of rows: what training hands over.

    >>> logits = np.zeros((4, 2), np.float32)
    >>> Scored(logits, np.array([0, 1, 0, 0]), logits, logits, np.array([1, 0, 0, 0])).models
    2
    """

    labelled: NDArray[Any]  # (m, S), rows of the training distribution
    labelled_y: NDArray[Any]  # (m,)
    pool: NDArray[Any]  # (n, S), unlabelled rows of the test distribution
    test: NDArray[Any]  # (t, S)
    test_y: NDArray[Any]  # (t,)
    truth: NDArray[Any] | None = None  # (t,) true probabilities of test rows, where a world has them

    def __post_init__(self) -> None:
        parts = {"labelled": self.labelled, "pool": self.pool, "test": self.test}
        for name, part in parts.items():
            if part.ndim != 2 or not len(part):
                raise UncurseError(f"{name} has shape {part.shape}; pass logits of shape (rows, models)")
        for name, part in parts.items():
            if part.shape[1] != self.pool.shape[1]:
                raise UncurseError(f"{name} has {part.shape[1]} models, the pool {self.pool.shape[1]}; score all alike")
            check_finite(part, name)
        if self.models < 2:
            raise UncurseError("there is 1 model; VAD needs replicas: train at least 2 that differ in seed")
        check_labels(self.labelled_y, len(self.labelled), name="labelled_y")
        check_labels(self.test_y, len(self.test), name="test_y")
        if self.truth is not None and self.truth.shape != self.test_y.shape:
            raise UncurseError(f"truth has shape {self.truth.shape}, test_y {self.test_y.shape}; pass one for each row")

    @property
    def models(self) -> int:
        """How many models."""
        return int(self.pool.shape[1])


def groups_of(models: int, replicas: Sequence[int] = REPLICAS) -> dict[int, list[int]]:
    """The served models, each with every S of whose groups it is the first.

    >>> groups_of(6, (2, 3))
    {0: [2, 3], 2: [2], 3: [3], 4: [2]}
    """
    sizes = [s for s in replicas if s <= models]
    if min(replicas, default=0) < 2 or not sizes:
        raise UncurseError(f"replicas={tuple(replicas)} with {models} models; pass sizes of groups from 2 to {models}")
    return {
        model: mine for model in range(models) if (mine := [s for s in sizes if model % s == 0 and model + s <= models])
    }


def measure(
    dataset: str,
    scored: Scored,
    *,
    alphas: Sequence[float] = ALPHAS,
    bins: Sequence[int] = BINS,
    replicas: Sequence[int] = REPLICAS,
    progress: Callable[[Iterator[Any]], Iterable[Any]] = iter,
    about: dict[str, Any] | None = None,
) -> ClickTables:
    """Every table of the paper on `dataset`, "criteo" or "avazu", and errors against the truth where it is known.

    Parameters
    ----------
    alphas
        Shares of the test rows to select, by the served score.
    bins
        Numbers of bins for ECE and MCE: 50 for all, the others for pairs (S = 2).
    replicas
        Sizes S of the groups; those larger than the number of models are left out.
    progress
        Wraps an iterator over the ``len(groups_of(models, replicas))`` served models.
    about
        Plain data on how the models came about, kept in the result.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def rows(n):
    ...     truth = rng.normal(-2.0, 1.0, n)
    ...     scores = truth[:, None] + rng.normal(0.0, 0.5, (n, 4))
    ...     return scores.astype(np.float32), rng.random(n) < logistic(truth)
    >>> labelled, pool, test = rows(20_000), rows(20_000), rows(50_000)
    >>> tables = measure("criteo", Scored(*labelled, pool[0], *test), alphas=[0.05], bins=[50])
    >>> tables.cell("calibration_error", 0.05).mean > 0.2  # of the models as they are
    True
    >>> abs(tables.cell("calibration_error", 0.05, "Platt Scaling", "vad").mean) < 0.1
    True
    """
    check_choice("dataset", dataset, DATASETS)
    shares = tuple(check_share(alpha) for alpha in alphas)
    counts = sorted({check_count(m, "bins") for m in bins})
    if not shares or not counts:
        raise UncurseError("alphas or bins is empty; pass at least one share and one number of bins")
    served = groups_of(scored.models, replicas)
    if not np.any(scored.labelled_y):
        raise UncurseError("the labels hold no positives, so no calibrator can be fitted; take more labelled rows")
    shares = _with_positives(scored, list(served), shares)
    moments = {
        (part, link): Moments(link).update(getattr(scored, part))
        for part in ("pool", "labelled")
        for link in _LINKS.values()
    }

    failed: dict[str, str] = {}

    def one(model: int) -> tuple[dict[Key, Array], dict[tuple[int, str], tuple[float, float]]]:
        each = _Served(scored, model, shares, counts)
        failed.update(each.failed)
        return each.measure(served[model], moments)

    with one_blas_thread(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "λ = ")  # one for each pair would be many: told below
        made = in_threads(one, list(served), progress)
    for name, reason in failed.items():
        warnings.warn(f"{name} is left out where it cannot be fitted: {reason}", UserWarning, stacklevel=2)
    about = dict(about or {})
    found = [value for _, pairs in made for pair in pairs.values() for value in pair]
    if _LEAST in found:
        about["λ not above zero"] = f"{found.count(_LEAST)} of {len(found)}, taken as {_LEAST}"
        warnings.warn(
            f"{found.count(_LEAST)} of {len(found)} λ were not above {_LEAST} and are taken as that: the models differ "
            "by more than their scores vary; train on more rows",
            UserWarning,
            stacklevel=2,
        )
    samples: dict[Key, dict[int, Array]] = {}
    lambdas: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for model, (figures, pairs) in zip(served, made, strict=True):
        for key, values in figures.items():
            samples.setdefault(key, {})[model] = values
        for place, pair in pairs.items():
            lambdas.setdefault(place, []).append(pair)
    samples = dict(sorted(samples.items(), key=lambda item: item[0][3]))
    return ClickTables(
        dataset,
        scored.models,
        _sizes(scored),
        shares,
        tuple(cells_of(dataset, shares, samples)),
        tuple(judge(dataset, shares, samples)),
        tuple(_lambda(*place, np.array(pairs)) for place, pairs in sorted(lambdas.items())),
        _shape(scored.pool[:, 0]),
        about,
    )


def _with_positives(scored: Scored, served: list[int], shares: tuple[float, ...]) -> tuple[float, ...]:
    """Shares whose selections all hold a click; of few test rows the smallest may not."""
    rate, rows = float(np.mean(scored.test_y)), len(scored.test)
    kept = []
    for alpha in shares:
        if alpha * rows < 1:
            continue
        count = count_of_share(alpha, rows)
        if count * rate > 100 or all(
            scored.test_y[np.argpartition(-scored.test[:, model], count - 1)[:count]].any() for model in served
        ):
            kept.append(alpha)
    left_out = [alpha for alpha in shares if alpha not in kept]
    if not kept:
        raise UncurseError(f"of {rows:,} test rows no selection holds a click for every model; take more rows")
    if left_out:
        names = ", ".join(f"{100 * alpha:g}%" for alpha in left_out)
        warnings.warn(f"left out: the top {names} of {rows:,} test rows holds no click", UserWarning, stacklevel=3)
    return tuple(kept)


class _Served:
    """One served model: its calibrators, the rows that it selects, and every figure on them."""

    def __init__(self, scored: Scored, model: int, alphas: tuple[float, ...], bins: list[int]) -> None:
        self.model, self.alphas = model, alphas
        self.main = MAIN_BINS if MAIN_BINS in bins else bins[0]
        self.others = [m for m in bins if m != self.main]
        self.pool = Cells().update(scored.pool[:, model])
        labelled = Cells().update(scored.labelled[:, model], scored.labelled_y)
        self.steps: dict[str, ScoreMap | None] = {"Vanilla": None}
        self.failed: dict[str, str] = {}
        for name, (method, options) in SETTINGS.items():
            try:
                self.steps[name] = calibrators.fit_calibrator(method, labelled, **options)
            except UncurseError as error:  # models of few rows may know nothing; the others are still worth seeing
                self.failed[name] = str(error)
        # Distinct served scores among the best rows, ascending, as `Ranked` takes them.
        rows = len(scored.test)
        self.selected = np.array([float(count_of_share(alpha, rows)) for alpha in alphas])
        score, chosen = top_rows(np.ascontiguousarray(scored.test[:, model]), np.arange(rows), int(self.selected.max()))
        order = np.argsort(score)
        score, chosen = score[order].astype(np.float64), chosen[order]
        starts = np.flatnonzero(np.append(True, score[1:] > score[:-1]))
        self.score = score[starts]
        weight = np.diff(starts, append=len(score)).astype(np.float64)
        label = np.add.reduceat(scored.test_y[chosen].astype(np.float64), starts)
        self.columns = weight, label, weight, label
        self.true: Array | None = None  # Σ truth of each selection, a tie at its edge taken in part
        if scored.truth is not None:
            truth = np.add.reduceat(scored.truth[chosen].astype(np.float64), starts)
            reached, total = (np.append(0.0, np.cumsum(column[::-1])) for column in (weight, truth))
            self.true = np.interp(self.selected, reached, total)

    def measure(
        self, groups: list[int], moments: dict[tuple[str, str], Moments]
    ) -> tuple[dict[Key, Array], dict[tuple[int, str], tuple[float, float]]]:
        """Every figure by key, each an array over α; and λ on the pool and on labelled rows, by S and link."""
        figures: dict[Key, Array] = {}
        lambdas: dict[tuple[int, str], tuple[float, float]] = {}
        losses: dict[str, Array] = {}
        for name, step in self.steps.items():
            alone = self._figures(step or Affine(1.0, 0.0), self.others if 2 in groups else [])
            losses[name] = alone.pop(("log_loss", None))
            for s in groups:  # the other numbers of bins are for pairs
                kept = {m: v for m, v in alone.items() if s == 2 or m[1] in (None, self.main)}
                figures |= {Key(metric, name, "original", s, m): v for (metric, m), v in kept.items()}
        for s in groups:
            columns = range(self.model, self.model + s)
            for variant, link in _LINKS.items():
                if variant != "vad" and s != 2:
                    continue
                spec = LogSpec(column_names(s), link=link)
                part = {side: Evidence(spec, moments[side, link].select(columns)) for side in ("pool", "labelled")}
                pool, labelled = (VAD(link=link, lambda_floor=_LEAST).fit(part[side]) for side in ("pool", "labelled"))
                lambdas[s, link] = pool.lambda_, labelled.lambda_
                maps = {
                    name: pool.map_ if step is None else self._tandem(step, pool.lambda_ / labelled.lambda_, link)
                    for name, step in self.steps.items()
                }
                for name, step in maps.items():
                    figures |= self._debiased(step, name, variant, s, losses[name])
                if s == 2 and variant == "vad":
                    curved = VAD(curvature=True, lambda_floor=_LEAST).fit(part["pool"]).map_
                    figures |= self._debiased(curved, "Vanilla", "vad_curvature", s, losses["Vanilla"])
        return figures, lambdas

    def _tandem(self, step: ScoreMap, slope: float, link: str) -> ScoreMap:
        """As `VAD(calibrator=…)` has it, with a calibrator that is fitted already."""
        calibrated = step.transform(self.pool.score)
        if link != "logistic":
            calibrated = get_link(link).inverse(logistic(calibrated))
        center = float(np.average(calibrated, weights=self.pool.weight))
        return compose(step, Affine(slope, (1 - slope) * center, link), scale="logit")

    def _debiased(self, step: ScoreMap, name: str, variant: str, s: int, alone: Array) -> dict[Key, Array]:
        made = self._figures(step, self.others if (s, variant) == (2, "vad") else [])
        made["log_loss_reduction", None] = made.pop(("log_loss", None)) / alone - 1
        return {Key(metric, name, variant, s, m): values for (metric, m), values in made.items()}

    def _figures(self, step: ScoreMap, others: list[int]) -> dict[tuple[str, int | None], Array]:
        """Every metric of one map, by name and number of bins, over α."""
        ranked = Ranked(step(self.score), self.columns)
        rows = ranked.rows(self.alphas, self.selected, self.main, "quantile")

        def column(name: str) -> Array:
            return np.array([float(getattr(row, name)) for row in rows])

        made: dict[tuple[str, int | None], Array] = {
            ("calibration_error", None): column("calibration_error"),
            ("calibration_error_row_error", None): np.array([row.calibration_error.standard_error for row in rows]),
            ("log_loss", None): column("log_loss"),
        }
        if self.true is not None:
            made["true_error", None] = column("predicted") / self.true - 1
        for m in (self.main, *others):
            ece, mce = _binned(rows) if m == self.main else ranked.binned(self.selected, m, "quantile")
            for name, estimates in (("ece", ece), ("mce", mce)):
                made[name, m] = np.array(estimates, np.float64)
                made[f"{name}_floor", m] = np.array([estimate.floor for estimate in estimates], np.float64)
                made[f"{name}_row_error", m] = np.array([estimate.standard_error for estimate in estimates])
        return made


def _binned(rows: Sequence[SelectionMetrics]) -> tuple[list[Any], list[Any]]:
    return [row.ece for row in rows], [row.mce for row in rows]


def _sizes(scored: Scored) -> dict[str, float]:
    sizes: dict[str, float] = {
        "labelled": len(scored.labelled),
        "labelled_rate": float(np.mean(scored.labelled_y)),
        "pool": len(scored.pool),
        "test": len(scored.test),
        "test_rate": float(np.mean(scored.test_y)),
    }
    return sizes if scored.truth is None else {**sizes, "test_true_rate": float(np.mean(scored.truth))}


def _lambda(s: int, link: str, pairs: Array) -> Lambda:
    columns = np.column_stack([pairs, pairs[:, 0] / pairs[:, 1]])
    mean, error = mean_and_error(columns)
    sd = error * np.sqrt(len(pairs))
    return Lambda(s, link, len(pairs), *np.column_stack([mean, sd]).ravel().tolist())


def _shape(logits: NDArray[Any], bins: int = 40) -> Shape:
    """A histogram over four standard deviations either way, the ends open, beside the fitted normal."""
    near = gaussianity(logits)
    inner = near.mean + near.sd * np.linspace(-4.0, 4.0, bins - 1)
    counts = np.bincount(np.searchsorted(inner, logits, side="right"), minlength=bins)
    expected = np.diff(ndtr((inner - near.mean) / near.sd), prepend=0.0, append=1.0) * near.n
    fitted = near.mean, near.sd, near.skewness, near.excess_kurtosis, near.distance, near.p_value
    return Shape(near.n, *fitted, tuple(inner.tolist()), tuple(counts.tolist()), tuple(expected.tolist()))


__all__ = [
    "ALPHAS",
    "BINS",
    "CALIBRATORS",
    "REPLICAS",
    "SETTINGS",
    "ClickTables",
    "Finding",
    "Samples",
    "Scored",
    "groups_of",
    "measure",
    "paper",
]
