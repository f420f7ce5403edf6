"""What an arena found: a cell for every world, method and α, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np

from uncurse import documents
from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.report.page import Figure, Page, Section
from uncurse.text import share
from uncurse.version import __version__

from ..render import Part, Table, TextTable, heat_figure, lines_figure, text
from .methods import BUILT_IN, MAIN, ORACLE

_LOW, _HIGH = 0.01, 0.1  # ratios to the oracle and coverages are averaged over the shares between these
_SUMMARY = 0.02
_NEAR = 1.5  # times the error of the oracle
_ORDER = {"vanilla": 0, "auto": 1, ORACLE: 3}  # of the columns of the chart; the others are between
_WIDE = 4  # as many α as 120 columns hold; the smallest are in the files
_HEAD = (
    "{0.replications} replications, seed {0.seed}. A cell: bias (standard error) and rms, in percent, of Σf/Σp − 1 on "
    "the top α, with true probabilities p. *: the least rms of methods that serve one model, significant or not. "
    "× oracle: rms over that of a smooth map fitted to the true probabilities of the pool, geometric mean from α = 1% "
    "to 10%; a parametric map of the right form can have a smaller error. 90% held: share of the errors there that lie "
    "in the intervals that a method states at 90%. vanilla: as served. labels: replica calibration. oracle: that map. "
    "S: number of models; in worlds of bootstraps, of bootstraps. auto uses all models of a draw; ensemble of 6 "
    "serves six and calibrates their mean logit."
)


@dataclass(frozen=True)
class ArenaCell:
    """Errors of one method on the top α in one world, over replications.

    An error is Σf/Σp − 1 over the selected test rows, with predictions f and true probabilities p.
    """

    world: str
    method: str
    alpha: float  # selected share
    bias: float  # mean of the errors
    bias_error: float  # its standard error
    rms: float  # root mean square of the errors
    rms_error: float
    ratio: float | None  # rms divided by the oracle's; None if the oracle has no error
    ratio_error: float | None  # uses that both meet the same draws
    coverage: float | None  # share of the errors in the interval stated at 90%; None if the method states none
    coverage_error: float | None  # not 0 even if all hold, or none
    count: int  # replications
    errors: tuple[float, ...] = field(default=(), repr=False)  # of each replication; not in exported files


@dataclass(frozen=True)
class Arena:
    """Results of `run`; ``print(arena)`` prints its tables."""

    cells: tuple[ArenaCell, ...]
    worlds: Mapping[str, str]  # name of each world, and a line that describes it
    methods: Mapping[str, bool]  # name of each method, and whether it serves one model
    alphas: tuple[float, ...]
    replications: int
    seed: int
    left_out: Mapping[str, str]  # worlds, and methods such as "platt in few-labels", that could not run, and why

    def get(self, world: str, method: str, alpha: float) -> ArenaCell | None:
        """One cell; None where the method does not apply, or α selects nothing."""
        return self._by_place.get((world, method, round(alpha, 9)))

    def cell(self, world: str, method: str, alpha: float) -> ArenaCell:
        """One cell; an error where there is none."""
        cell = self.get(world, method, alpha)
        if cell is None:
            known = [name for name in self.methods if name.startswith(f"{method} ")] or list(self.methods)
            has = f"the methods are {', '.join(known)}, the shares {', '.join(f'{a:g}' for a in self.alphas)}"
            why = self.left_out.get(f"{method} in {world}", has)
            raise UncurseError(f"there is no cell of {method!r} in {world!r} at {alpha}: {why}")
        return cell

    def best(self, world: str, alpha: float) -> ArenaCell | None:
        """The cell with the least rms of the methods that serve one model."""
        names = [name for name, serves_one in self.methods.items() if serves_one]
        cells = [cell for name in names if (cell := self.get(world, name, alpha)) is not None]
        return min(cells, key=lambda cell: cell.rms, default=None)

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, float], ArenaCell]:
        return {(cell.world, cell.method, round(cell.alpha, 9)): cell for cell in self.cells}

    def to_json(self) -> str:
        """One JSON document."""
        content = asdict(self)
        for cell in content["cells"]:
            del cell["errors"]
        return documents.dumps("arena", {"version": __version__, **content})

    def __str__(self) -> str:
        return text(self.parts(brief=True))

    def parts(self, brief: bool = False) -> Iterator[Part]:
        """Yield a table for each world, then all worlds in one table; `brief` leaves out small α."""
        yield _HEAD.format(self)
        for world, about in self.worlds.items():
            yield TextTable(f"{world}: {about}", self.world_table(world, _WIDE if brief else None), gap=1)
        alpha = self._summary_alpha
        yield TextTable(f"rms in percent on the top {share(alpha)}", self.summary(), gap=1)
        yield from (f"left out: {name}: {why}" for name, why in self.left_out.items())

    def world_table(self, world: str, most: int | None = None) -> Table:
        """Methods by how near they come to the oracle; bias (se) and rms at each α, or at the `most` largest."""
        rows = {name: [self.get(world, name, alpha) for alpha in self.alphas] for name in self.methods}
        rows = {name: cells for name, cells in rows.items() if any(cells)}
        alphas = [a for i, a in enumerate(self.alphas) if any(cells[i] for cells in rows.values())]
        alphas = sorted(alphas)[-most:] if most else alphas
        best = {alpha: self.best(world, alpha) for alpha in alphas}
        ratios, held = {}, {}
        for name, cells in rows.items():
            near = [cell for cell in cells if cell is not None and _LOW - 1e-9 <= cell.alpha <= _HIGH + 1e-9]
            if logs := [np.log(cell.ratio) for cell in near if cell.ratio]:
                ratios[name] = float(np.exp(np.mean(logs)))
            if shares := [cell.coverage for cell in near if cell.coverage is not None]:
                held[name] = float(np.mean(shares))
        table: Table = [("method", *map(share, alphas), "× oracle", *(["90% held"] if held else []))]
        for name in sorted(rows, key=lambda name: ratios.get(name, np.inf)):
            shown = [_cell(self.get(world, name, alpha), best[alpha]) for alpha in alphas]
            row = (name, *shown, number(ratios[name]) if name in ratios else "")
            table.append((*row, f"{100 * held[name]:.0f}%" if name in held else "") if held else row)
        return table

    def summary(self) -> Table:
        """Main methods and those of a user across, worlds down: rms at one α, and the best that serves one model."""
        alpha, names = self._summary_alpha, self._shown()
        names[-1:-1] = [name for name in self.methods if name not in BUILT_IN and name not in names]
        table: Table = [("world", "the best", *names)]
        for world in self.worlds:
            cells = [self.get(world, name, alpha) for name in names]
            best = self.best(world, alpha)
            named = "" if best is None else f"{best.method} {number(100 * best.rms)}"
            table.append((world, named, *("" if cell is None else number(100 * cell.rms) for cell in cells)))
        return table

    @property
    def _summary_alpha(self) -> float:
        return _SUMMARY if _SUMMARY in self.alphas else self.alphas[0]

    def _shown(self) -> list[str]:
        """The main methods, or all where there are few, the oracle last."""
        names: Sequence[str] = list(self.methods)
        if len(names) > len(MAIN):
            names = [name for name in MAIN if name in self.methods]
        return [*(name for name in names if name != ORACLE), ORACLE]

    def page(self, command: str) -> Page:
        """Return the page: all worlds on one chart, then each world."""
        alpha = self._summary_alpha
        ratios = {name: [self._ratio(world, name) for world in self.worlds] for name in self._shown()}
        near = sum(ratio <= _NEAR for ratio in ratios.get("auto", ()))
        headline = f"{len(self.methods)} methods in {len(self.worlds)} settings with known truth."
        if near:
            headline = (
                f"Auto is within {_NEAR:g} times of the best possible map in {near} of {len(self.worlds)} settings, on "
                f"the top {share(alpha)}."
            )
        names = sorted(ratios, key=lambda name: _ORDER.get(name, 2))
        caption = (
            f"Rms error on the top {share(alpha)}, divided by that of the oracle, a map of the served score that "
            "is fitted to the true probabilities. The darker, the worse; 1 is as good as any map can be."
        )
        heat = heat_figure("worlds", caption, list(self.worlds), names,
                           [[ratios[name][i] for name in names] for i in range(len(self.worlds))])  # fmt: skip
        table = TextTable(f"rms in percent on the top {share(alpha)}", self.summary())
        left_out = [f"left out: {name}: {why}" for name, why in self.left_out.items()]
        sections = [Section("summary", "Which method is best where", left_out, [heat, table.folded()])]
        for i, (world, about) in enumerate(self.worlds.items()):
            table = TextTable(f"{world}: bias (standard error) and rms, in percent", self.world_table(world))
            sections.append(Section(f"world-{i}", world, [about], [self._figure(i, world), table.folded()]))
        facts = {"Results": [_HEAD.format(self)], **({"Command": [command]} if command else {})}
        return Page("Simulations with known truth", headline, (), sections, facts, terms="")

    def _ratio(self, world: str, name: str) -> float:
        cell = self.get(world, name, self._summary_alpha)
        return float("nan") if cell is None or cell.ratio is None else cell.ratio

    def _figure(self, number_: int, world: str) -> Figure:
        lines = {}
        for name in self._shown():
            cells = [cell for alpha in sorted(self.alphas) if (cell := self.get(world, name, alpha)) is not None]
            if cells:
                lines[name] = [(100 * cell.alpha, max(100 * cell.rms, 0.01)) for cell in cells]
        caption = f"{world}: root mean square error on the top shares over {self.replications} replications."
        axes = "share selected, %", "rms error, %"
        return lines_figure(f"world-{number_}", caption, lines, *axes, log_x=True, log_y=True)


def summarize(place: tuple[str, str, float], errors: Array, oracle: Array, covered: Array | None) -> ArenaCell:
    """A cell from the errors of each replication, the oracle's in the same, and whether intervals held."""
    count = len(errors)
    root = float(np.sqrt(count))
    square, of_oracle = np.square(errors), np.square(oracle)
    rms = float(np.sqrt(square.mean()))
    ratio = ratio_error = share = share_error = None
    if of_oracle.mean() > 0:
        ratio = rms / float(np.sqrt(of_oracle.mean()))
        # Both meet the same draws: what they share cancels, by the delta method on log ratio.
        apart = square / max(square.mean(), 1e-300) - of_oracle / of_oracle.mean()
        ratio_error = ratio / 2 * float(apart.std(ddof=1)) / root
    if covered is not None:
        share = float(covered.mean())
        likely = (share * count + 1) / (count + 2)  # so that the error is not 0 if all or none are covered
        share_error = float(np.sqrt(likely * (1 - likely) / count))
    bias, bias_error = float(errors.mean()), float(errors.std(ddof=1)) / root
    rms_error = float(square.std(ddof=1)) / root / max(2 * rms, 1e-300)
    all_errors = tuple(errors.tolist())
    return ArenaCell(
        *place, bias, bias_error, rms, rms_error, ratio, ratio_error, share, share_error, count, all_errors
    )


def number(value: float, sign: str = "") -> str:
    """Three figures, at most two decimals."""
    size = abs(value)
    return f"{value:{sign}.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def _cell(cell: ArenaCell | None, best: ArenaCell | None) -> str:
    if cell is None:
        return ""
    bias = f"{number(100 * cell.bias, '+')} ({number(100 * cell.bias_error)})"
    return f"{bias} {number(100 * cell.rms):>4}" + ("*" if cell == best else " ")
