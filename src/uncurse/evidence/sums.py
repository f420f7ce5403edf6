"""`Sums`: the common part of `Moments`, `Cells` and `ReplicaCounts`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from ..documents import PlainData
from ..errors import UncurseError
from ..validation import check_number

#: Cells and blocks with a smaller share of the weight are dropped when weights decay: a file that decays every day for
#: years then stays small, and no result changes by more than rounding.
NEGLIGIBLE = 1e-15
_LEAST_WEIGHT = 1e-100  # Σw² of the lightest cell is then still a normal number


class Sums(PlainData):
    """Sums over rows, which can be merged and can decay."""

    @abstractmethod
    def _totals(self) -> tuple[float, float]:
        """Return Σw and Σw² of all rows."""

    @abstractmethod
    def _merge(self, other: Self) -> Self:
        """Add the rows of `other`."""

    @abstractmethod
    def _decayed(self, factor: float, total: float) -> Self:
        """Return sums with all weights, which add up to `total`, multiplied by a valid factor."""

    @property
    def effective_rows(self) -> float:
        """Number of rows of equal weight that carry as much information: (Σw)² / Σw²."""
        total, squares = self._totals()
        return total / squares * total if squares > 0 else 0.0

    def merge(self, other: Self) -> Self:
        """Add the rows of `other`, which does not change.

        Parameters
        ----------
        other : object of the same class
            Sums of the same columns, on the same scale or link, with labels if these have labels.

        Returns
        -------
        object of the same class
            Itself.
        """
        if not isinstance(other, type(self)):
            name = type(self).__name__
            raise UncurseError(f"cannot merge a {type(other).__name__} into {name}; pass {name}")
        return self._merge(other)

    def decayed(self, factor: float) -> Self:
        """Return sums of the same rows with all weights multiplied by a factor.

        Parameters
        ----------
        factor : float
            In (0, 1].

        Returns
        -------
        object of the same class
            Without cells and blocks that have less than 1e-15 of the weight.

        Examples
        --------
        >>> from uncurse import Cells
        >>> cells = Cells().update([0.5, -1.0, 0.5], [1, 0, 0]).decayed(0.5)
        >>> cells.weight, cells.label, cells.effective_rows
        (array([0.5, 1. ]), array([0. , 0.5]), 3.0)
        """
        value, (total, _) = check_number(factor, "factor"), self._totals()
        if not 0 < value <= 1:
            raise UncurseError(f"factor={factor!r}; pass a number above 0 and at most 1")
        if total > 0 and not total * value >= _LEAST_WEIGHT:
            raise UncurseError(
                f"factor={factor!r} leaves a total weight of {total * value:.1g}; start with new evidence"
            )
        return self._decayed(value, total)
