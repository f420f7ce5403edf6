"""What an arena found: a cell for every world, method and α, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from ... import documents
from ..._types import Array
from ...errors import UncurseError
from ...validation import check_choice


@dataclass(frozen=True)
class ArenaCell:
    """Errors of one method on the top α in one world, over replications.

    An error is Σf/Σp − 1 over the selected test rows, with the true probabilities p.
    """

    world: str
    method: str
    alpha: float
    bias: float
    bias_error: float  # standard errors, all of them
    rms: float
    rms_error: float
    ratio: float | None  # of the rms to the oracle's
    ratio_error: float | None
    coverage: float | None  # of the intervals stated at 90%
    coverage_error: float | None
    count: int  # replications


@dataclass(frozen=True)
class Dropped:
    """A method that has no cells in a world, because it does not apply to some draws."""

    world: str
    method: str
    draws: int
    reason: str  # of the first of these draws


@dataclass(frozen=True)
class Arena:
    """The whole run: cells, one line on each world, and the kind of each method."""

    cells: tuple[ArenaCell, ...]
    worlds: Mapping[str, str]
    methods: Mapping[str, str]
    alphas: tuple[float, ...]
    replications: int
    seed: int
    left_out: Mapping[str, str]  # worlds that could not be drawn, and why
    dropped: tuple[Dropped, ...] = ()

    def notes(self) -> list[str]:
        """Return a line for each world that could not be drawn, and for each method that is not in a table."""
        lines = [f"left out: {name} {why}" for name, why in self.left_out.items()]
        for one in self.dropped:
            where = f"{one.method} in {one.world}"
            lines.append(f"left out: {where}, {one.draws} of {self.replications} draws: {one.reason}")
        return lines

    def get(self, world: str, method: str, alpha: float) -> ArenaCell | None:
        """One cell; None where the method does not apply, or α selects nothing."""
        return self._by_place.get((world, method, round(alpha, 9)))

    def cell(self, world: str, method: str, alpha: float) -> ArenaCell:
        """One cell; an error where there is none."""
        cell = self.get(world, method, alpha)
        if cell is None:
            raise UncurseError(
                f"no cell for world={world!r}, method={method!r}, alpha={alpha}; there are the methods "
                f"{', '.join(self.methods)} in {', '.join(self.worlds)} at {', '.join(f'{a:g}' for a in self.alphas)}"
            )
        return cell

    def table(self, world: str) -> dict[str, tuple[ArenaCell | None, ...]]:
        """By method that applies, a cell for each α."""
        check_choice("world", world, tuple(self.worlds))
        rows = {name: tuple(self.get(world, name, alpha) for alpha in self.alphas) for name in self.methods}
        return {name: cells for name, cells in rows.items() if any(cells)}

    def best(self, world: str, alpha: float, methods: Sequence[str]) -> ArenaCell | None:
        """The one with the least rms of some methods."""
        cells = [cell for name in methods if (cell := self.get(world, name, alpha)) is not None]
        return min(cells, key=lambda cell: cell.rms, default=None)

    def of_kind(self, *kinds: str) -> list[str]:
        """Methods of these kinds."""
        return [name for name, kind in self.methods.items() if kind in kinds]

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, float], ArenaCell]:
        return {(cell.world, cell.method, round(cell.alpha, 9)): cell for cell in self.cells}

    def to_json(self) -> str:
        """One JSON document, the verdicts with it."""
        from .bars import judge

        verdicts = [{**asdict(verdict), "met": verdict.met} for verdict in judge(self)]
        return documents.dumps("arena", {**asdict(self), "verdicts": verdicts})


def summarise(place: tuple[str, str, float], errors: Array, oracle: Array | None, covered: Array | None) -> ArenaCell:
    """A cell from the errors of each replication, the oracle's in the same, and whether intervals held."""
    count = len(errors)
    root = float(np.sqrt(count))
    square, of_oracle = np.square(errors), None if oracle is None else np.square(oracle)
    rms = float(np.sqrt(square.mean()))
    ratio = ratio_error = None
    if of_oracle is not None and of_oracle.mean() > 0:
        ratio = rms / float(np.sqrt(of_oracle.mean()))
        # Both meet the same draws: what they share cancels, by the delta method on log ratio.
        apart = square / max(square.mean(), 1e-300) - of_oracle / of_oracle.mean()
        ratio_error = ratio / 2 * float(apart.std(ddof=1)) / root
    share = None if covered is None else float(covered.mean())
    return ArenaCell(
        *place,
        bias=float(errors.mean()),
        bias_error=float(errors.std(ddof=1)) / root,
        rms=rms,
        rms_error=float(square.std(ddof=1)) / root / max(2 * rms, 1e-300),
        ratio=ratio,
        ratio_error=ratio_error,
        coverage=share,
        coverage_error=None if share is None else float(np.sqrt(share * (1 - share) / count)),
        count=count,
    )
