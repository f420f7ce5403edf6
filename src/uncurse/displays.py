"""Figures for notebooks, in the style of scikit-learn's displays. They need matplotlib, see the extra ``plot``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from .errors import UncurseError
from .metrics import Bin, Evaluation, evaluate
from .optional import needing

_ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_Z = 1.96  # of the bands: 95%
_SMALL_BIN = 0.2  # of the rows of an average bin


class _Display(ABC):
    """The common part of the displays."""

    from_predictions: ClassVar[Any]

    def __init__(self, evaluations: Evaluation | Mapping[str, Evaluation]) -> None:
        self.evaluations = dict(evaluations) if isinstance(evaluations, Mapping) else {"": evaluations}
        if not self.evaluations or not all(isinstance(one, Evaluation) for one in self.evaluations.values()):
            raise UncurseError("pass an Evaluation, which evaluate returns, or a mapping of names to Evaluations")

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw the evaluations."""

    def plot(self, ax: Any = None) -> Self:
        """Draw the evaluations, with 95% intervals.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to plot.

        Returns
        -------
        SelectionErrorDisplay or SelectedReliabilityDisplay
        """
        with needing("plot"):
            import matplotlib.pyplot as plt
        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        if any(self.evaluations):
            self.ax_.legend()
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, name: str | None = None, **options: Any
    ) -> Self:
        """Predict with a fitted classifier, evaluate and plot.

        Parameters
        ----------
        estimator : classifier
            Fitted, with `predict_proba`.
        X : array-like of shape (n, features)
            Rows.
        y : array-like of shape (n,)
            Labels, 0 or 1.
        name : str, optional
            Name in the legend; by default that of the class.
        **options
            See `from_predictions`.

        Returns
        -------
        SelectionErrorDisplay or SelectedReliabilityDisplay
        """
        if not hasattr(estimator, "predict_proba"):
            raise UncurseError(f"a {type(estimator).__name__} has no predict_proba; pass a fitted classifier")
        predicted = np.asarray(estimator.predict_proba(X))[:, 1]
        display: Self = cls.from_predictions(
            y, predicted, name=type(estimator).__name__ if name is None else name, **options
        )
        return display


class SelectionErrorDisplay(_Display):
    """Calibration error of the top-scored rows, by selected share.

    Parameters
    ----------
    evaluations : Evaluation, or mapping of str to Evaluation
        What `evaluate` returns, by name.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Set by `plot`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.beta(2, 50, 10_000)
    >>> y, p = rng.random(10_000) < truth, truth * rng.lognormal(0, 0.3, 10_000)
    >>> display = SelectionErrorDisplay.from_predictions(y, p.clip(0, 1), alphas=[0.02, 0.1, 1.0], name="as served")
    >>> len(display.ax_.lines) > 0
    True
    """

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike | Mapping[str, ArrayLike],
        *,
        alphas: Sequence[float] = _ALPHAS,
        sample_weight: ArrayLike | None = None,
        name: str = "",
        ax: Any = None,
    ) -> SelectionErrorDisplay:
        """Evaluate predictions and plot.

        Parameters
        ----------
        y, sample_weight : array-like of shape (n,)
            Labels (0 or 1), and optional weights.
        p : array-like of shape (n,), or mapping of str to such
            Predicted probabilities, or several by name. Each selects its own rows.
        alphas : sequence of float
            Selected shares.
        name : str, default=""
            Name of a single set of predictions.
        ax : matplotlib Axes, optional
            Where to plot.

        Returns
        -------
        SelectionErrorDisplay
        """
        sets = p if isinstance(p, Mapping) else {name: p}
        found = {key: evaluate(y, values, alphas, sample_weight=sample_weight) for key, values in sets.items()}
        return cls(found).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        from .report.figures import draw_by_share, signed_percent

        rows = []
        for series, (name, evaluation) in enumerate(self.evaluations.items()):
            for row in evaluation.rows:
                error = row.calibration_error
                margin = _Z * error.standard_error
                ends = {"low": error - margin, "high": error + margin}
                rows.append({"series": series, "name": name, "alpha": row.alpha, "value": float(error), **ends})
        draw_by_share(ax, rows, "calibration error", labels=signed_percent, zero=True)


class SelectedReliabilityDisplay(_Display):
    """Reliability of the selected rows: observed against predicted rate, in bins.

    Parameters
    ----------
    evaluations : Evaluation, or mapping of str to Evaluation
        What `evaluate` returns for one share, by name.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Set by `plot`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.beta(2, 50, 10_000)
    >>> display = SelectedReliabilityDisplay.from_predictions(rng.random(10_000) < truth, truth, alpha=0.1)
    >>> display.ax_.get_xlabel()
    'predicted rate of the top 10%'
    """

    def __init__(self, evaluations: Evaluation | Mapping[str, Evaluation]) -> None:
        super().__init__(evaluations)
        for evaluation in self.evaluations.values():
            if len(evaluation.rows) != 1:
                raise UncurseError(
                    f"the evaluation has {len(evaluation.rows)} shares; evaluate one, such as alphas=0.02"
                )

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike | Mapping[str, ArrayLike],
        *,
        alpha: float = 0.02,
        n_bins: int = 10,
        sample_weight: ArrayLike | None = None,
        name: str = "",
        ax: Any = None,
    ) -> SelectedReliabilityDisplay:
        """Evaluate predictions and plot.

        Parameters
        ----------
        y, p : array-like of shape (n,)
            As in `SelectionErrorDisplay.from_predictions`.
        alpha : float, default=0.02
            Selected share.
        n_bins : int, default=10
            Number of bins, with equal numbers of rows. Ties, such as those of isotonic regression, stay together; a
            bin with few rows that they leave is drawn with its neighbour.
        sample_weight, name, ax : optional
            As in `SelectionErrorDisplay.from_predictions`.

        Returns
        -------
        SelectedReliabilityDisplay
        """
        sets = p if isinstance(p, Mapping) else {name: p}
        options: Any = {"sample_weight": sample_weight, "n_bins": n_bins}
        return cls({key: evaluate(y, values, alpha, **options) for key, values in sets.items()}).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        from .report.figures import draw_reliability

        for series, (name, evaluation) in enumerate(self.evaluations.items()):
            bins: Sequence[Bin] = evaluation.rows[0].bins
            if evaluation.strategy == "quantile":
                bins = _merge_small(bins, evaluation.n_bins)
            rows = []
            for one in bins:
                margin = _Z * one.standard_error
                ends = {"low": max(one.observed - margin, 0.0), "high": min(one.observed + margin, 1.0)}
                rows.append(
                    {"series": series, "name": name, "predicted": one.predicted, "observed": one.observed, **ends}
                )
            draw_reliability(ax, rows)
        share = 100 * next(iter(self.evaluations.values())).rows[0].alpha
        ax.set(xlabel=f"predicted rate of the top {share:g}%", ylabel="observed rate")


def _merge_small(bins: Sequence[Bin], n_bins: int) -> list[Bin]:
    """Merge bins with few rows, which ties leave, with the neighbour that has the nearer prediction."""
    merged = list(bins)
    least = _SMALL_BIN * sum(one.weight for one in bins) / n_bins
    while len(merged) > 1:
        small = min(range(len(merged)), key=lambda i: merged[i].weight)
        if merged[small].weight >= least:
            break
        sides = [i for i in (small - 1, small + 1) if 0 <= i < len(merged)]
        near = min(sides, key=lambda i: abs(merged[i].predicted - merged[small].predicted))
        first = min(small, near)
        pair = merged[first : first + 2]
        weight = sum(one.weight for one in pair)
        shares = np.array([one.weight / weight for one in pair])
        predicted, observed, error = (
            np.array([getattr(one, name) for one in pair]) for name in ("predicted", "observed", "standard_error")
        )
        joined = Bin(weight, float(shares @ predicted), float(shares @ observed), float(np.hypot(*(shares * error))))
        merged[first : first + 2] = [joined]
    return merged
