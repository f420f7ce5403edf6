"""What a run should show, judged from its cells: each bar is met or missed, with the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .methods import ALONE, PAPER

if TYPE_CHECKING:
    from .tables import Arena, ArenaCell

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


@dataclass(frozen=True)
class _Case:
    """A figure under a bar: how bad it is (the bar is at 1), and in words."""

    badness: float
    words: str
    error: float = 0.0  # of the badness


def judge(arena: Arena) -> tuple[Verdict, ...]:
    """Every bar of which the run has a figure."""
    judged = ((claim, list(cases)) for claim, cases in _bars(arena))
    made = []
    for claim, cases in judged:
        if cases:
            worst = max(cases, key=lambda case: case.badness)
            missed = sum(case.badness > 1 for case in cases)
            sure = sum(case.badness - 2 * case.error > 1 for case in cases)
            made.append(Verdict(claim, missed, len(cases), worst.words, sure))
    return tuple(made)


def _bars(arena: Arena) -> Iterator[tuple[str, Iterator[_Case]]]:
    rivals = [name for name in arena.of_kind("calibrator", "tandem") if name.removesuffix(" + VAD") in PAPER]
    # A run of a few rivals is an easier bar, so it says how many there were.
    best = f"the best of {len(rivals)} calibrators and tandems of the paper"
    for name in ("Tower S=3", "Tower S=2"):
        yield (
            f"{name}: rms at most 0.7 of {best} on dlrm-28 from α = 5%",
            _against(arena, name, rivals, 0.7, ("dlrm-28",), low=0.05),
        )
        yield (
            f"{name}: rms at most 1.1 of {best} in every world",
            _against(arena, name, rivals, 1.1),
        )
        yield (
            f"{name}: rms at most 1.1 of Platt's where labels are scarce",
            _against(arena, name, ["platt"], 1.1, SCARCE),
        )
    yield "free S=3: bias within 1.5 points in worlds of unequal noise", _bias(arena, ["free S=3"], 0.015, UNEQUAL)
    yield "free S=3: rms at most 1.25 of the oracle's there", _against(arena, "free S=3", ["oracle"], 1.25, UNEQUAL)
    curved = [name for name in arena.methods if name.startswith("VAD curved")]
    yield "VAD curved: bias within 0.3 points in worlds of equal noise", _bias(arena, curved, 0.003, EQUAL)
    others = [name for name in arena.of_kind(*ALONE) if name != "auto"]
    yield (
        f"auto: rms at most 1.15 of the best of {len(others)} other methods in every world",
        _against(arena, "auto", others, 1.15),
    )
    yield "auto: rms at most that of the scores as served", _against(arena, "auto", ["vanilla"], 1.0)
    for name in arena.methods:
        yield f"{name}: intervals stated at 90% hold 85% to 95%, up to 2 standard errors", _coverage(arena, name)


def _cells(
    arena: Arena, name: str, worlds: Sequence[str] | None = None, low: float = LOW, high: float = HIGH
) -> Iterator[ArenaCell]:
    for world in arena.worlds if worlds is None else worlds:
        for alpha in arena.alphas:
            cell = arena.get(world, name, alpha)
            if cell is not None and low - 1e-9 <= alpha <= high + 1e-9:
                yield cell


def _place(cell: ArenaCell) -> str:
    return f"{cell.world}, α = {100 * cell.alpha:g}%"


def _against(
    arena: Arena,
    name: str,
    others: Sequence[str],
    most: float,
    worlds: Sequence[str] | None = None,
    low: float = LOW,
) -> Iterator[_Case]:
    """The rms over the least of some others."""
    for cell in _cells(arena, name, worlds, low):
        best = arena.best(cell.world, cell.alpha, others)
        if best is not None:
            ratio = cell.rms / best.rms if best.rms > 0 else np.inf
            error = ratio * sum((one.rms_error / one.rms) ** 2 for one in (cell, best)) ** 0.5 if best.rms > 0 else 0.0
            figures = f"{100 * cell.rms:.2f}% against {100 * best.rms:.2f}%"
            beside = "" if len(others) == 1 else f" of {best.method}"
            yield _Case(ratio / most, f"{ratio:.2f} ({_place(cell)}: {figures}{beside})", error / most)


def _bias(arena: Arena, names: Sequence[str], most: float, worlds: Sequence[str]) -> Iterator[_Case]:
    for name in names:
        for cell in _cells(arena, name, worlds):
            figure = f"{100 * cell.bias:+.2f} ± {100 * cell.bias_error:.2f}"
            beside = f"{name}, " if len(names) > 1 else ""
            yield _Case(abs(cell.bias) / most, f"{figure} ({beside}{_place(cell)})", cell.bias_error / most)


def _coverage(arena: Arena, name: str) -> Iterator[_Case]:
    """The mean over α of each world: neighbouring selections share their rows, so one figure for all."""
    for world in arena.worlds:
        cells = [cell.coverage for cell in _cells(arena, name, [world]) if cell.coverage is not None]
        if cells:
            share, count = float(np.mean(cells)), arena.replications
            likely = (share * count + 1) / (count + 2)  # so that a few replications never tell for certain
            error = float(np.sqrt(likely * (1 - likely) / count))
            away = max(abs(share - 0.9) - 0.05, 0.0)
            yield _Case(away / (2 * error), f"{100 * share:.0f}% ± {100 * error:.0f} ({world})")
