"""Results of the grid: cells, their file, and the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from uncurse import documents
from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.version import __version__

from ..arena.results import number
from ..render import Part, TextTable

METHODS = ("plain", "isotonic", "Platt", "uncursed")
LEVEL = 0.9
_NEAR_FLOOR = 1.2  # an rms up to this multiple of the floor is mostly noise of the labels
_ABOUT = (
    "rms: root mean square of Σf / Σy − 1 over splits, in percent, averaged over the top 1, 2, 5 and 10% of the test "
    "rows; floor: the rms that the true probabilities would have, because test labels are random. An rms near it is "
    "noise of the labels, not error of the predictions. Ratios are of uncursed, with jackknife errors over splits, "
    "which share rows. Best: the smallest rms of the other three. Held: 90% intervals "
    "that hold, given the noise of the test labels; width: median of half their width. Time: relative to "
    "CalibratedClassifierCV(ensemble=False). –: not defined, or no interval."
)


@dataclass(frozen=True)
class Grid:
    """Errors of four methods for models × shifts × splits of a table."""

    data: str
    rows: int
    positives: int
    seed: int
    cells: list[dict[str, Any]] = field(default_factory=list)

    def resume(self, path: Path) -> Grid:
        """Return the grid with the cells that an earlier run on the same rows measured; it failed on others."""
        content = documents.read(path)
        if content["kind"] != "grid" or any(content[name] != getattr(self, name) for name in _SAME):
            raise UncurseError(f"{path} does not hold a grid of these rows and this seed; name another file")
        measured = [cell for cell in content["cells"] if "failed" not in cell]
        return Grid(self.data, self.rows, self.positives, self.seed, measured)

    def to_json(self) -> str:
        """Return one JSON document."""
        return documents.dumps("grid", {"version": __version__, **asdict(self)})

    def parts(self, brief: bool = False) -> Iterator[Part]:
        """Yield what was run, two tables for each shift, and a line for each model that failed on any split."""
        yield f"{self.data}: {self.rows:,} rows, {self.positives:,} positive; seed {self.seed}."
        yield _ABOUT
        places = list(dict.fromkeys((cell["shift"], cell["model"]) for cell in self.cells))
        for shift in dict.fromkeys(shift for shift, _ in places):
            summaries = [(model, self._good(shift, model)) for other, model in places if other == shift]
            summaries = [(model, cells) for model, cells in summaries if cells]
            title = "not thinned" if shift == "none" else f"pool and test thinned by the score of {shift}"
            yield TextTable(title, [_ERRORS, *(_error_row(*summary) for summary in summaries)], gap=1)
            yield TextTable(f"{title}: losses", [_LOSSES, *(_loss_row(*summary) for summary in summaries)])
        yield self._verdict(places)
        for cell in self.cells:
            if "failed" in cell:
                yield f"left out: {cell['model']}, shift {cell['shift']}, split {cell['split']}: {cell['failed']}"

    def _verdict(self, places: Sequence[tuple[str, str]]) -> str:
        """Count how often each method has the smallest rms, and how often the labels are too few to tell."""
        found = [_rms_and_floor(cells) for place in places if (cells := self._good(*place))]
        clear = [METHODS[int(rms.argmin())] for rms, floor in found if rms.min() > _NEAR_FLOOR * floor]
        wins = ", ".join(f"{name} in {clear.count(name)}" for name in METHODS if name in clear)
        text = f"Smallest rms, in {len(found)} cases (model and shift): {wins}." if wins else ""
        if near := len(found) - len(clear):
            text += (
                f" In {near} of {len(found)} cases the smallest rms is near the floor, so the test labels are too few "
            )
            text += "to tell which method is best: use more rows or splits."
        return text.strip()

    def _good(self, shift: str, model: str) -> list[dict[str, Any]]:
        cells = [cell for cell in self.cells if (cell["shift"], cell["model"]) == (shift, model)]
        return [cell for cell in cells if "failed" not in cell]


_SAME = ("data", "rows", "positives", "seed")
_ERRORS = (
    "model", "splits", *METHODS, "floor", "÷ isotonic", "÷ best", "bias ÷ isotonic", "held", "width", "time",
)  # fmt: skip
_LOSSES = ("model", *(f"{loss}: {name}" for loss in ("log loss", "Brier") for name in METHODS))


def _error_row(model: str, cells: list[dict[str, Any]]) -> list[str]:
    errors = _errors(cells)
    noise = np.array([cell["noise"] for cell in cells])
    rms, floor = _rms_and_floor(cells)
    ratios = (
        lambda e: _rms(e)[-1] / _rms(e)[1],
        lambda e: _rms(e)[-1] / _rms(e)[:-1].min(),
        lambda e: _bias(e)[-1] / _bias(e)[1],
    )
    held = width = "–"  # no interval
    stated = [i for i, cell in enumerate(cells) if cell["intervals"] is not None]
    if stated:
        ends = np.array([cells[i]["intervals"] for i in stated])
        middle, half = ends.mean(axis=2), (ends[..., 1] - ends[..., 0]) / 2
        holds = np.abs(errors[stated, -1] - middle) <= np.hypot(half, ndtri(0.5 + LEVEL / 2) * noise[stated])
        held, width = f"{100 * holds.mean():.0f}%", number(100 * float(np.median(half)))
    return [
        model,
        str(len(cells)),
        *(number(100 * value) for value in (*rms, floor)),
        *(_with_error(ratio, errors) for ratio in ratios),
        held,
        width,
        number(float(np.median([cell["time_ratio"] for cell in cells]))),
    ]


def _loss_row(model: str, cells: list[dict[str, Any]]) -> list[str]:
    means = (np.mean([cell[loss][name] for cell in cells]) for loss in ("log_loss", "brier") for name in METHODS)
    return [model, *(f"{mean:.4f}" for mean in means)]


def _errors(cells: list[dict[str, Any]]) -> Array:
    """Return errors of shape (splits, methods, shares)."""
    return np.array([[cell["errors"][name] for name in METHODS] for cell in cells])


def _rms_and_floor(cells: list[dict[str, Any]]) -> tuple[Array, float]:
    noise = np.array([cell["noise"] for cell in cells])
    return _rms(_errors(cells)), float(np.sqrt(np.square(noise).mean(axis=0)).mean())


def _rms(errors: Array) -> Array:
    return np.asarray(np.sqrt(np.square(errors).mean(axis=0)).mean(axis=-1))


def _bias(errors: Array) -> Array:
    return np.asarray(np.abs(errors.mean(axis=0)).mean(axis=-1))


def _with_error(statistic: Callable[[Array], float], errors: Array) -> str:
    """Return a statistic of all splits with its jackknife error, which needs two splits; none if it divides by 0."""
    count = len(errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = statistic(errors)
        without = [statistic(np.delete(errors, i, axis=0)) for i in range(count)] if count > 1 else []
    if not np.isfinite([value, *without]).all():
        return "–"
    return number(value) + (f" ({number(float(np.sqrt((count - 1) * np.var(without))))})" if without else "")
