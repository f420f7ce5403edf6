"""Results of the arena on a real log: errors of every split, summaries, text and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ... import documents
from ..._types import Array
from ...errors import UncurseError
from ...text_tables import TextTable, as_markdown, as_text
from .text import Table, number

METHODS = (
    "as served",
    "Platt",
    "isotonic",
    "isotonic + VAD",
    "label-free, seeds",
    "label-free, bootstraps",
    "Tower",
    "Auto",
)
SHARES = (0.01, 0.02, 0.05, 0.1)
_PEER = "isotonic"


@dataclass(frozen=True)
class RealSummary:
    """A method on a log, over all splits; errors are relative to the observed labels."""

    method: str
    mean: tuple[float, ...]  # for each of `SHARES`
    mean_error: tuple[float, ...]
    rms: tuple[float, ...]
    bias: float  # absolute value of the mean, averaged over shares
    average_rms: float
    difference: float  # of the average rms from that of isotonic
    difference_error: float
    covered: float | None  # share of the 90% intervals that hold, given the noise of test labels


@dataclass(frozen=True)
class RealResults:
    """Errors of all methods on the splits of a log."""

    log: str
    model: str
    shift: bool  # whether pool and test rows were thinned
    rows: int
    positives: int
    seed: int
    errors: Mapping[str, list[list[float]]]  # by method and split, on each of `SHARES`; none of a method that failed
    covered: Mapping[str, list[list[float]]]  # the same for whether 90% intervals hold
    noise: list[float]  # standard deviation of an error that is due to test labels, for each share
    dropped: Mapping[str, str]  # methods that failed on any split: on how many, and why

    @property
    def splits(self) -> int:
        """Number of splits."""
        return len(self.errors[_PEER])

    @property
    def title(self) -> str:
        """Log, model and shift."""
        return f"{self.log}, {self.model}, {'thinned' if self.shift else 'not thinned'}"

    def summary(self, method: str) -> RealSummary:
        """Summarize one method; raise UncurseError if it is missing."""
        if method not in self.errors:
            raise UncurseError(f"there is no method {method!r} here; there are {', '.join(self.errors)}")
        errors, peer = np.array(self.errors[method]), np.array(self.errors[_PEER])
        count = len(errors)
        differences = np.array(
            [_average_rms(np.delete(errors, i, 0)) - _average_rms(np.delete(peer, i, 0)) for i in range(count)]
        )
        covered = self.covered.get(method)
        return RealSummary(
            method,
            tuple(errors.mean(axis=0).tolist()),
            tuple((errors.std(axis=0, ddof=1) / np.sqrt(count)).tolist()),
            tuple(np.sqrt(np.square(errors).mean(axis=0)).tolist()),
            float(np.abs(errors.mean(axis=0)).mean()),
            _average_rms(errors),
            _average_rms(errors) - _average_rms(peer),
            float(np.sqrt((count - 1) * differences.var())),
            None if covered is None else float(np.mean(covered)),
        )

    @property
    def regret(self) -> float | None:
        """Average rms of `Auto` minus the smaller of the label-free map's and Tower's, or None."""
        names = ("Auto", "label-free, bootstraps", "Tower")
        if not all(name in self.errors for name in names):
            return None
        auto, free, tower = (self.summary(name).average_rms for name in names)
        return auto - min(free, tower)

    def to_json(self) -> str:
        """Return one JSON document."""
        return documents.dumps("arena-real", asdict(self))


def _average_rms(errors: Array) -> float:
    return float(np.sqrt(np.square(errors).mean(axis=0)).mean())


def table(results: RealResults) -> Table:
    """Return a row for each method, errors in percent."""
    head = ("method", *(f"top {100 * alpha:g}%" for alpha in SHARES), "bias", "rms", f"− {_PEER}'s", "covered")
    rows: Table = [head]
    for name in results.errors:
        s = results.summary(name)
        cells = [
            f"{number(100 * mean, '+')} ± {number(100 * error)} ({number(100 * rms)})"
            for mean, error, rms in zip(s.mean, s.mean_error, s.rms, strict=True)
        ]
        difference = f"{number(100 * s.difference, '+')} ± {number(100 * s.difference_error)}" if name != _PEER else ""
        covered = "" if s.covered is None else f"{100 * s.covered:.0f}%"
        rows.append((name, *cells, number(100 * s.bias), number(100 * s.average_rms), difference, covered))
    rows.append(("(noise of test labels)", *(f"± {number(100 * value)}" for value in results.noise), "", "", "", ""))
    return rows


def caption(results: RealResults) -> str:
    """Describe the table in a few sentences."""
    regret = results.regret
    more = "" if regret is None else f" Regret of Auto: {number(100 * regret)} points."
    return f"{results.rows:,} rows, {results.positives:,} positive; {results.splits} splits, seed {results.seed}.{more}"


_ABOUT = (
    "Error on the top share of the test rows in percent: mean ± standard error (rms). Bias: the absolute value of the "
    f"mean, averaged over shares; rms: averaged; − {_PEER}'s: paired difference. Covered: 90% intervals that hold, "
    "given the noise of test labels."
)


def text(results: RealResults) -> str:
    """Return the table for a terminal."""
    head = [results.title, caption(results)]
    return as_text([head, _ABOUT, TextTable("", table(results), gap=1), *_dropped(results)])


def markdown(results: RealResults) -> str:
    """Return the table as Markdown."""
    return as_markdown([f"### {results.title}", caption(results), TextTable("", table(results)), *_dropped(results)])


def _dropped(results: RealResults) -> list[str]:
    return [f"left out: {name}, {why}" for name, why in results.dropped.items()]


def records(results: RealResults) -> list[dict[str, Any]]:
    """Return a flat record for each method and share."""
    found = []
    for name in results.errors:
        s = results.summary(name)
        for alpha, mean, error, rms in zip(SHARES, s.mean, s.mean_error, s.rms, strict=True):
            place = {"log": results.log, "model": results.model, "shift": results.shift, "method": name}
            found.append({**place, "alpha": alpha, "mean": mean, "mean_error": error, "rms": rms})
    return found
