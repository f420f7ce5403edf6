"""What `fit` needs of a pool, however it is given: arrays, the evidence of a log, moments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array
from ..errors import UncurseError
from ..evidence import Cells, Evidence, Moments
from ..links import get_link, logistic, to_link
from ..maps import ScoreMap
from ..validation import check_numbers, check_weights, group_rows


@dataclass
class Pool:
    """Moments, the served logits where a calibrator will move them, and the same of groups."""

    moments: Moments
    served: Array | None = None
    weights: Array | None = None
    groups: dict[str, Pool] = field(default_factory=dict)

    def center(self, step: ScoreMap | None, link: str) -> float:
        """Mean of the (calibrated) served scores, in link space."""
        if step is None:
            return float(self.moments.mean[0])
        if self.served is None:
            raise UncurseError(
                "a tandem from moments needs the pool's cells too: pass pool=(moments, cells); logs keep those of up "
                "to 200 groups"
            )
        calibrated = step.transform(self.served)
        if link != "logistic":
            calibrated = get_link(link).inverse(logistic(calibrated))
        return float(np.average(calibrated, weights=self.weights))

    @classmethod
    def of_log(cls, log: Evidence) -> Pool:
        """From the evidence of a log."""
        served, weights = (None, None) if log.cells is None else (log.cells.score, log.cells.weight)
        return cls(log.moments, served, weights, {name: cls.of_log(part) for name, part in log.groups.items()})


@dataclass(frozen=True)
class Reader:
    """Scores as a link has them: what they are, and the share of negatives that was kept, to be undone."""

    link: str
    scale: str
    negative_rate: float | None = None

    @property
    def offset(self) -> float:
        """What is added to logits."""
        return float(np.log(self.negative_rate)) if self.negative_rate else 0.0

    def moments(self, pool: NDArray[Any], weights: Array | None, blocks: int = 32) -> Moments:
        """Of rows (n, S)."""
        return Moments(self.link, blocks).update(
            pool, scale=self.scale, sample_weight=weights, logit_offset=self.offset
        )

    def served(self, scores: NDArray[Any]) -> Array:
        """Served logits."""
        served = to_link(scores, self.scale, "logistic").astype(np.float64, copy=False)
        return served + self.offset if self.offset else served

    def pool(
        self,
        pool: Any,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        tandem: bool = False,
        single: bool = False,
    ) -> Pool:
        """The pool as it is given; cells of the served logits for a tandem, one column where `single`."""
        collected = isinstance(pool, Evidence | Mapping | Moments | tuple)
        if collected and (groups is not None or sample_weight is not None):
            raise UncurseError("groups and sample_weight go with arrays; moments were collected with theirs")
        if isinstance(pool, Evidence):
            self.check(pool, "VAD")
            found = Pool.of_log(pool)
        elif isinstance(pool, Mapping):
            found = Pool(Moments(self.link), groups={str(name): Pool(part) for name, part in pool.items()})
            for part in pool.values():
                found.moments.merge(part)
        elif isinstance(pool, Moments):
            found = Pool(pool)
        elif isinstance(pool, tuple):
            if len(pool) != 2 or not isinstance(pool[0], Moments) or not isinstance(pool[1], Cells):
                raise UncurseError("a tuple as pool must be (Moments, Cells); pass rows as an array")
            if pool[1].scale != "logit":
                raise UncurseError(
                    f"the pool's cells are on the {pool[1].scale} scale; a tandem needs them on the logit"
                )
            found = Pool(pool[0], pool[1].score, pool[1].weight)
        else:
            found = self._rows(pool, groups, sample_weight, tandem, single)
        if found.moments.link != self.link:
            raise UncurseError(
                f"these moments are of the {found.moments.link} link; VAD(link={self.link!r}) needs its own"
            )
        return found

    def _rows(
        self, pool: ArrayLike, groups: ArrayLike | None, sample_weight: ArrayLike | None, tandem: bool, single: bool
    ) -> Pool:
        array = check_numbers(pool, "pool")
        if array.ndim == 1 and single:
            array = array[:, None]
        weights = check_weights(sample_weight, len(array)) if array.ndim else None

        def part(rows: NDArray[np.intp] | slice, blocks: int = 32) -> Pool:
            w = None if weights is None else weights[rows]
            moments = self.moments(array[rows], w, blocks)
            if not tandem or array.ndim != 2:
                return Pool(moments)
            # In cells, as the evidence of a log has them, so that arrays and engines agree.
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "every value of .* lies in")  # the moments have said it
                cells = Cells().update(self.served(array[rows, 0]), sample_weight=w)
            return Pool.of_log(Evidence((), moments, cells))

        found = part(slice(None))
        if groups is not None:
            names, members = group_rows(groups, len(array))
            for name, rows in zip(names, members, strict=True):
                if weights is None or weights[rows].sum() > 0:
                    found.groups[name] = part(rows, blocks=1)
        return found

    def check(self, evidence: Evidence, who: str) -> None:
        """Evidence was collected with the same settings."""
        for name in ("scale", "negative_rate"):
            mine, theirs = getattr(self, name), evidence.scale if name == "scale" else evidence.negative_rate
            if mine != theirs:
                raise UncurseError(
                    f"this evidence was collected with {name}={theirs!r} and {who} has {name}={mine!r}; use the same"
                )


__all__ = ["Pool", "Reader"]
