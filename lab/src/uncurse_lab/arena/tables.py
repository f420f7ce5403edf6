"""What an arena found: a cell for every world, method and α, and whether the run shows what it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from uncurse import documents
from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.validation import check_choice
from uncurse.version import __version__

from .methods import ALONE, PAPER


@dataclass(frozen=True)
class ArenaCell:
    """Errors of one method on the top α in one world, over replications.

    An error is Σf/Σp − 1 over the selected test rows, with predictions f and true probabilities p.

    Parameters
    ----------
    world, method : str
        Their names.
    alpha : float
        Selected share.
    bias, bias_error : float
        Mean of the errors, and its standard error.
    rms, rms_error : float
        Root mean square of the errors, and its standard error.
    ratio, ratio_error : float or None
        The rms divided by the oracle's, and its standard error, which uses that both meet the same draws. None if the
        oracle has no error.
    coverage, coverage_error : float or None
        Share of the replications whose error lies in the interval that the method states at 90%, and its standard
        error, which is not 0 even if all hold, or none. None if the method states none.
    count : int
        Number of replications.
    errors : tuple of float
        The error of each replication. All methods meet the same draws, so two methods can be compared pair by pair. Not
        in exported files.
    """

    world: str
    method: str
    alpha: float
    bias: float
    bias_error: float
    rms: float
    rms_error: float
    ratio: float | None
    ratio_error: float | None
    coverage: float | None
    coverage_error: float | None
    count: int
    errors: tuple[float, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All but the errors of each replication."""
        return {name: value for name, value in vars(self).items() if name != "errors"}


@dataclass(frozen=True)
class Dropped:
    """A method that has no cells in a world, because it does not apply to some draws."""

    world: str
    method: str
    draws: int
    reason: str  # of the first of these draws


@dataclass(frozen=True)
class Arena:
    """Results of `run`.

    Parameters
    ----------
    cells : tuple of ArenaCell
        A cell for each world, method and α; `cell` and `get` find one.
    worlds : mapping of str to str
        Name of each world, and a line that describes it.
    methods : mapping of str to str
        Name of each method, and its kind; see `method`.
    alphas : tuple of float
        Selected shares.
    replications, seed : int
        As passed to `run`.
    left_out : mapping of str to str
        Worlds that could not be drawn, and why.
    dropped : tuple of Dropped
        Methods that did not apply to a world, and why.
    """

    cells: tuple[ArenaCell, ...]
    worlds: Mapping[str, str]
    methods: Mapping[str, str]
    alphas: tuple[float, ...]
    replications: int
    seed: int
    left_out: Mapping[str, str]
    dropped: tuple[Dropped, ...] = ()

    def notes(self) -> list[str]:
        """Return a line for each world that could not be drawn, and for each method that is not in a table."""
        lines = [f"{name} {why}" for name, why in self.left_out.items()]
        for one in self.dropped:
            lines.append(f"{one.method} in {one.world}, {one.draws} of {self.replications} draws: {one.reason}")
        return [f"left out: {line}" for line in lines]

    def get(self, world: str, method: str, alpha: float) -> ArenaCell | None:
        """One cell; None where the method does not apply, or α selects nothing."""
        return self._by_place.get((world, method, round(alpha, 9)))

    def cell(self, world: str, method: str, alpha: float) -> ArenaCell:
        """One cell; an error where there is none."""
        cell = self.get(world, method, alpha)
        if cell is None:
            for one in self.dropped:
                if (one.world, one.method) == (world, method):
                    why = f"{one.draws} of {self.replications} draws: {one.reason}"
                    raise UncurseError(f"{method} has no cells in {world} ({why}); `get` returns None instead")
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
        verdicts = [{**asdict(verdict), "met": verdict.met} for verdict in judge(self)]
        content = {**asdict(self), "cells": [cell.to_dict() for cell in self.cells]}
        return documents.dumps("arena", {"version": __version__, **content, "verdicts": verdicts})


def summarise(place: tuple[str, str, float], errors: Array, oracle: Array, covered: Array | None) -> ArenaCell:
    """A cell from the errors of each replication, the oracle's in the same, and whether intervals held."""
    count = len(errors)
    root = float(np.sqrt(count))
    square, of_oracle = np.square(errors), np.square(oracle)
    rms = float(np.sqrt(square.mean()))
    ratio = ratio_error = None
    if of_oracle.mean() > 0:
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
        coverage_error=None if share is None else _share_error(share, count),
        count=count,
        errors=tuple(errors.tolist()),
    )


# ---------------------------------------------------------------------------- bars

FEW = 20  # replications below which bars mean little
#: Where bars apply; and the worlds of each law.
LOW, HIGH = 0.01, 0.1
EQUAL, UNEQUAL = ("equal-noise-4", "equal-noise-25"), ("unequal-noise", "heavy-tails")
SCARCE = ("low-rate", "few-labels")


@dataclass(frozen=True)
class Verdict:
    """One bar: what was claimed, in how many of how many cells it failed, how often beyond doubt, and the worst."""

    claim: str
    missed: int
    count: int
    worst: str
    sure: int = 0  # missed by more than two standard errors

    @property
    def met(self) -> bool:
        """In every cell."""
        return self.missed == 0

    def __str__(self) -> str:
        doubt = "" if self.sure == self.missed else f", by more than two standard errors in {self.sure or 'none'}"
        tally = "" if self.met else f"; missed in {self.missed} of {self.count}{doubt}"
        return f"{self.claim}: worst {self.worst}{tally}"


#: A figure under a bar: how bad it is (the bar is at 1), the standard error of that, and the figure in words.
_Case = tuple[float, float, str]
_Names = Sequence[str]


def few_replications(arena: Arena) -> str:
    """Say that bars mean little if there are few replications; an empty text otherwise."""
    if arena.replications >= FEW:
        return ""
    return f"with {arena.replications} replications, bars that are met or missed mean little; run {FEW} or more"


def judge(arena: Arena) -> tuple[Verdict, ...]:
    """Every bar of which the run has a figure."""
    made = []
    for claim, found in _bars(arena):
        if cases := list(found):
            worst = max(cases, key=lambda case: case[0])
            missed = sum(badness > 1 for badness, _, _ in cases)
            sure = sum(badness - 2 * error > 1 for badness, error, _ in cases)
            made.append(Verdict(claim, missed, len(cases), worst[2], sure))
    return tuple(made)


def _bars(arena: Arena) -> Iterator[tuple[str, Iterator[_Case]]]:
    ran = {cell.method for cell in arena.cells}  # others do not apply to any world
    rivals = [
        name for name in arena.of_kind("calibrator", "tandem") if name in ran and name.removesuffix(" + VAD") in PAPER
    ]
    # A run of a few rivals is an easier bar, so it says how many there were.
    best = f"the best of {len(rivals)} calibrators and tandems of the paper"
    for name in ("Tower S=3", "Tower S=2"):
        there = _against(arena, name, rivals, 0.7, ("dlrm-28",), low=0.05)
        yield f"{name}: rms at most 0.7 of {best} on dlrm-28 from α = 5%", there
        yield f"{name}: rms at most 1.1 of {best} in every world", _against(arena, name, rivals, 1.1)
        scarce = _against(arena, name, ["platt"], 1.1, SCARCE)
        yield f"{name}: rms at most 1.1 of Platt's where labels are scarce", scarce
    yield "free S=3: bias within 1.5 points in worlds of unequal noise", _bias(arena, ["free S=3"], 0.015, UNEQUAL)
    yield "free S=3: rms at most 1.25 of the oracle's there", _against(arena, "free S=3", ["oracle"], 1.25, UNEQUAL)
    curved = [name for name in arena.methods if name.startswith("VAD curved")]
    yield "VAD curved: bias within 0.3 points in worlds of equal noise", _bias(arena, curved, 0.003, EQUAL)
    others = [name for name in arena.of_kind(*ALONE) if name in ran and name != "auto"]
    claim = f"auto: rms at most 1.15 of the best of {len(others)} other methods in every world"
    yield claim, _against(arena, "auto", others, 1.15)
    yield "auto: rms at most that of the scores as served", _against(arena, "auto", ["vanilla"], 1.0)
    for name in arena.methods:
        yield f"{name}: intervals stated at 90% hold 85% to 95%, up to 2 standard errors", _coverage(arena, name)


def _cells(arena: Arena, name: str, worlds: _Names | None = None, low: float = LOW) -> Iterator[ArenaCell]:
    for world in arena.worlds if worlds is None else worlds:
        for alpha in arena.alphas:
            cell = arena.get(world, name, alpha)
            if cell is not None and low - 1e-9 <= alpha <= HIGH + 1e-9:
                yield cell


def from_oracle(arena: Arena, world: str, name: str) -> float | None:
    """The geometric mean of ratios to the oracle's rms, from α = 1% to 10%."""
    ratios = [cell.ratio for cell in _cells(arena, name, [world]) if cell.ratio]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def coverage(arena: Arena, world: str, name: str) -> float | None:
    """How many of the intervals stated at 90% held, from α = 1% to 10%."""
    shares = [cell.coverage for cell in _cells(arena, name, [world]) if cell.coverage is not None]
    return float(np.mean(shares)) if shares else None


def _place(cell: ArenaCell) -> str:
    return f"{cell.world}, α = {100 * cell.alpha:g}%"


def _against(
    arena: Arena, name: str, others: _Names, most: float, worlds: _Names | None = None, low: float = LOW
) -> Iterator[_Case]:
    """The rms over the least of some others."""
    for cell in _cells(arena, name, worlds, low):
        best = arena.best(cell.world, cell.alpha, others)
        if best is not None:
            ratio = cell.rms / best.rms if best.rms > 0 else np.inf
            error = ratio * sum((one.rms_error / one.rms) ** 2 for one in (cell, best)) ** 0.5 if best.rms > 0 else 0.0
            figures = f"{100 * cell.rms:.2f}% against {100 * best.rms:.2f}%"
            beside = "" if len(others) == 1 else f" of {best.method}"
            yield ratio / most, error / most, f"{ratio:.2f} ({_place(cell)}: {figures}{beside})"


def _bias(arena: Arena, names: _Names, most: float, worlds: _Names) -> Iterator[_Case]:
    for name in names:
        for cell in _cells(arena, name, worlds):
            figure = f"{100 * cell.bias:+.2f} ± {100 * cell.bias_error:.2f}"
            beside = f"{name}, " if len(names) > 1 else ""
            yield abs(cell.bias) / most, cell.bias_error / most, f"{figure} ({beside}{_place(cell)})"


def _share_error(share: float, count: int) -> float:
    """Return the standard error of a share of `count` draws; it is not 0 if all or none are counted."""
    likely = (share * count + 1) / (count + 2)
    return float(np.sqrt(likely * (1 - likely) / count))


def _coverage(arena: Arena, name: str) -> Iterator[_Case]:
    """The mean over α of each world: neighbouring selections share their rows, so one figure for all."""
    for world in arena.worlds:
        share, count = coverage(arena, world, name), arena.replications
        if share is not None:
            error = _share_error(share, count)
            away = max(abs(share - 0.9) - 0.05, 0.0)
            yield away / (2 * error), 0.0, f"{100 * share:.0f}% ± {100 * error:.0f} ({world})"
