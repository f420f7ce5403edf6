"""Figures for notebooks, in the style of scikit-learn's displays. They need matplotlib, see the extra ``report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from .errors import UncurseError
from .metrics import Evaluation, evaluate
from .optional import needing
from .report.figures import draw_errors, draw_reliability, page_style


class _Display:
    """Evaluations by name, and how to plot them; subclasses draw."""

    _alphas: ClassVar[Sequence[float]]

    def __init__(self, evaluations: Evaluation | Mapping[str, Evaluation]) -> None:
        self.evaluations = dict(evaluations) if isinstance(evaluations, Mapping) else {"": evaluations}
        if not self.evaluations or not all(isinstance(one, Evaluation) for one in self.evaluations.values()):
            raise UncurseError("pass an Evaluation, which evaluate returns, or a mapping of names to Evaluations")

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike | Mapping[str, ArrayLike],
        *,
        alphas: Sequence[float] | float | None = None,
        ax: Any = None,
    ) -> Self:
        """Evaluate predictions and plot. For weights or another number of bins, call `evaluate`.

        Parameters
        ----------
        y : array-like of shape (n,)
            Labels, 0 or 1.
        p : array-like of shape (n,), or mapping of str to such
            Predicted probabilities, or several by name. Each selects its own rows.
        alphas : sequence of float or float, optional
            Selected shares; by default 1% to 100%, or 2% for reliability, which shows one share.
        ax : matplotlib Axes, optional
            Where to plot.

        Returns
        -------
        SelectionErrorDisplay or SelectedReliabilityDisplay
        """
        sets = p if isinstance(p, Mapping) else {"": p}
        shares = cls._alphas if alphas is None else alphas
        return cls({name: evaluate(y, values, shares) for name, values in sets.items()}).plot(ax=ax)

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
        with needing("report"):
            import matplotlib.pyplot as plt
        dpi = plt.rcParams["figure.dpi"]
        with page_style():
            self.ax_ = plt.subplots(dpi=dpi)[1] if ax is None else ax
            self.figure_ = self.ax_.figure
            self._draw()
            if any(self.evaluations):
                self.ax_.legend()
        return self

    def _draw(self) -> None:
        raise NotImplementedError


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
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.beta(2, 50, 10_000)
    >>> y, p = rng.random(10_000) < truth, truth * rng.lognormal(0, 0.3, 10_000)
    >>> display = SelectionErrorDisplay.from_predictions(y, {"as served": p.clip(0, 1)}, alphas=[0.02, 0.1, 1.0])
    >>> len(display.ax_.lines) > 0
    True
    """

    _alphas = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

    def _draw(self) -> None:
        draw_errors(self.ax_, [*self.evaluations.items()])


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
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.beta(2, 50, 10_000)
    >>> display = SelectedReliabilityDisplay.from_predictions(rng.random(10_000) < truth, truth, alphas=0.1)
    >>> display.ax_.get_xlabel()
    'predicted rate of the top 10%'
    """

    _alphas = (0.02,)

    def _draw(self) -> None:
        for series, (name, evaluation) in enumerate(self.evaluations.items()):
            if len(evaluation.rows) != 1:
                raise UncurseError(
                    f"the evaluation has {len(evaluation.rows)} shares; evaluate one, such as alphas=0.02"
                )
            draw_reliability(self.ax_, series, name, evaluation.rows[0].bins)
            share = 100 * evaluation.rows[0].alpha
        self.ax_.set(xlabel=f"predicted rate of the top {share:g}%", ylabel="observed rate")
