"""What an arena of real logs found: a cell for every split, method and selection, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ... import documents
from ..._types import Array
from ...errors import UncurseError
from ...validation import check_choice
from .methods import Method
from .real_data import Source


@dataclass(frozen=True)
class RealCell:
    """One method on one selection of a log, over replications."""

    world: str
    method: str
    selection: str
    error: float  # (Σf − Σy)/Σy
    error_error: float  # standard errors, all of them
    rms: float  # over replications; the labels' noise is in it
    less: float  # its rms less that of the method compared with
    less_error: float
    coverage: float | None  # how many intervals stated at 90% held, given the noise of labels
    count: int  # replications


@dataclass(frozen=True)
class Real:
    """The whole run."""

    cells: tuple[RealCell, ...]
    worlds: Mapping[str, str]
    methods: Mapping[str, str]  # their kinds
    selections: Mapping[str, tuple[str, ...]]  # by world
    noise: Mapping[str, tuple[float, ...]]  # by world, for each selection: the sd of Σy over its mean, of coins
    observed: Mapping[str, tuple[float, ...]]  # positives in it, in the mean
    replications: Mapping[str, int]
    failed: Mapping[str, Mapping[str, str]]  # by world, methods that do not work there, and why
    against: str
    seed: int

    def get(self, world: str, method: str, selection: str) -> RealCell | None:
        """One cell; None where the method does not apply."""
        return self._by_place.get((world, method, selection))

    def cell(self, world: str, method: str, selection: str) -> RealCell:
        """One cell; an error where there is none."""
        cell = self.get(world, method, selection)
        if cell is None:
            raise UncurseError(f"no cell for world={world!r}, method={method!r}, selection={selection!r}")
        return cell

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str], RealCell]:
        return {(cell.world, cell.method, cell.selection): cell for cell in self.cells}

    def to_json(self) -> str:
        """One JSON document."""
        return documents.dumps("arena-real", asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Real:
        """Back from `to_json`."""
        content = documents.loads(text, source="arena")
        check_choice("kind", content["kind"], ("arena-real",))
        with documents.reading("arena-real"):
            parts: dict[str, Any] = {name: content[name] for name in cls.__dataclass_fields__}
            parts["cells"] = tuple(RealCell(**cell) for cell in parts["cells"])
            for name in ("selections", "noise", "observed"):
                parts[name] = {world: tuple(values) for world, values in parts[name].items()}
            return cls(**parts)


# ---------------------------------------------------------------------------- from replications


@dataclass
class Sums:
    """Of one method, by selection: Σf as it is and in each bootstrap; and whether its interval held, or nan."""

    predicted: Array  # (selections, 1 + draws)
    held: Array | None


@dataclass
class Measured:
    """Of one replication: Σy likewise, its noise if labels are coins, and the methods; or why one failed."""

    observed: Array
    coins: Array
    methods: dict[str, Sums] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def failures(found: Sequence[Measured]) -> dict[str, str]:
    """Methods that failed in any replication: in how many, and what the first said."""
    counts: dict[str, list[str]] = {}
    for one in found:
        for name, why in one.failed.items():
            counts.setdefault(name, []).append(why)
    return {
        name: f"in {len(whys)} of {len(found)} replications: {whys[0].split(';')[0]}" for name, whys in counts.items()
    }


def summarise(
    source: Source, found: Sequence[Measured], methods: Sequence[Method], failed: Mapping[str, str], base: str
) -> list[RealCell]:
    """The cells of one split, from its replications."""
    observed = np.stack([one.observed for one in found])  # (replications, selections, 1 + draws)
    level = observed.mean(axis=0)
    divisor = np.where(level > 0, level, np.nan)

    def errors(name: str) -> Array:
        return np.asarray((np.stack([one.methods[name].predicted for one in found]) - observed) / divisor)

    reference = errors(base)
    cells = []
    for one in methods:
        if one.name in failed or not all(one.name in measured.methods for measured in found):
            continue
        mine = errors(one.name)
        held = [measured.methods[one.name].held for measured in found]
        shares = np.full(len(level), np.nan) if held[0] is None else np.mean(np.stack(held), axis=0)  # type: ignore[arg-type]
        for i, selection in enumerate(source.selections):
            if level[i, 0] > 0:  # without a click there is nothing to divide by
                cells.append(_cell((source.name, one.name, selection.name), mine[:, i], reference[:, i], shares[i]))
    return cells


def _cell(place: tuple[str, str, str], errors: Array, reference: Array, share: float) -> RealCell:
    """From errors (replications, 1 + draws) of a method and of the one compared with."""
    root = np.sqrt(len(errors))
    mean, rms, other = errors.mean(axis=0), _rms(errors), _rms(reference)
    # Around the errors at hand, as a square root's tangent: what both have in common cancels.
    tangent = np.square(errors[:, 0]) / max(2 * rms[0], 1e-300) - np.square(reference[:, 0]) / max(2 * other[0], 1e-300)
    return RealCell(
        *place,
        error=float(mean[0]),
        error_error=float(np.hypot(_spread(mean[1:]), errors[:, 0].std(ddof=1) / root)),
        rms=float(rms[0]),
        less=float(rms[0] - other[0]),
        less_error=float(np.hypot(_spread((rms - other)[1:]), tangent.std(ddof=1) / root)),
        coverage=None if np.isnan(share) else float(share),
        count=len(errors),
    )


def _rms(errors: Array) -> Array:
    result: Array = np.sqrt(np.square(errors).mean(axis=0))
    return result


def _spread(values: Array) -> float:
    """Half of where the middle 68% lie: with few clicks the draws have a tail, and a few no click at all (nan)."""
    low, high = np.nanquantile(values, [0.1587, 0.8413])
    return float(high - low) / 2


__all__ = ["Measured", "Real", "RealCell", "Sums", "failures", "summarise"]
