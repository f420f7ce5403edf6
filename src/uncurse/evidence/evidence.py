"""`Evidence`: the result of one pass over the data, as one object and one file."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..documents import Document
from ..errors import UncurseError
from ..validation import warn_user
from .cells import Cells
from .decay import check_half_life, decay_factor, utc_time
from .moments import Moments
from .replica_counts import ReplicaCounts
from .spec import LogSpec
from .sums import NEGLIGIBLE

_OPTIONAL = ("cells", "replica_counts")
_FIELDS = ("spec", "sources", "as_of", "moments", *_OPTIONAL, "groups")


@dataclass(frozen=True)
class Evidence(Document):
    """Sufficient statistics of a set of rows, for all methods and metrics.

    Parameters
    ----------
    spec : LogSpec
        Description of the columns.
    moments : Moments
        Weights, means and covariances of the replica scores.
    cells : Cells, optional
        Served logits in order, with label sums. Calibrators and metrics need them.
    replica_counts : ReplicaCounts, optional
        Joint counts of the replica scores. `Tower`, `Auto` and intervals need them.
    groups : dict of str to Evidence
        Evidence of each group of rows.
    sources : tuple of str
        Files that were read.
    as_of : str, optional
        Date and time (ISO 8601) of the newest rows, kept in UTC; None if unknown.

    Examples
    --------
    >>> spec = LogSpec(("s0", "s1"))
    >>> a, b = (Evidence(spec, Moments().update([[0.0, 1.0], [x, 2.0]])) for x in (1.0, 2.0))
    >>> a.merge(b).rows, a.rows
    (4, 2)
    """

    _kind: ClassVar[str] = "evidence"
    _wanted: ClassVar[str] = "evidence, which `uncurse collect` writes"
    spec: LogSpec
    moments: Moments
    cells: Cells | None = None
    replica_counts: ReplicaCounts | None = None
    groups: Mapping[str, Evidence] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    as_of: str | None = None

    def __post_init__(self) -> None:
        if self.as_of is not None:
            object.__setattr__(self, "as_of", utc_time(self.as_of))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.moments.rows if self.cells is None else self.cells.rows

    @property
    def effective_rows(self) -> float:
        """Number of rows of equal weight that carry as much information: (Σw)² / Σw²."""
        return self.moments.effective_rows if self.cells is None else self.cells.effective_rows

    @property
    def weight(self) -> float:
        """Total weight."""
        return self.moments.weight if self.cells is None else float(self.cells.weight.sum())

    def require(self, part: str, remedy: str) -> Any:
        """Return a part, or raise UncurseError with a remedy if it is missing.

        Parameters
        ----------
        part : {"cells", "replica_counts"}
            Name of the part.
        remedy : str
            What the user should do.

        Returns
        -------
        Cells or ReplicaCounts
        """
        value = getattr(self, part)
        if value is None:
            raise UncurseError(f"this evidence has no {part.replace('_', ' ')}; {remedy}")
        return value

    def merge(self, other: Evidence) -> Evidence:
        """Return the evidence of the rows of both; neither changes.

        Parameters
        ----------
        other : Evidence
            Evidence with an equal `spec` and the same parts.

        Returns
        -------
        Evidence
        """
        if not isinstance(other, Evidence):
            raise UncurseError(f"cannot merge evidence with a {type(other).__name__}; pass Evidence")
        difference = self.spec.difference(other.spec)
        for name in _OPTIONAL:
            if difference is None and (getattr(self, name) is None) != (getattr(other, name) is None):
                difference = f"only one side has {name}"
        if difference:
            raise UncurseError(f"cannot merge evidence: {difference}; collect both with the same options")
        repeated = sorted(set(self.sources) & set(other.sources))
        if repeated:
            warn_user(f"{repeated[0]} is a source of both; if its rows are the same they count twice")
        return self._merged(other)

    def _merged(self, other: Evidence) -> Evidence:
        parts: dict[str, Any] = {
            name: None if (part := getattr(self, name)) is None else copy.deepcopy(part).merge(getattr(other, name))
            for name in ("moments", *_OPTIONAL)
        }
        groups = {**self.groups, **other.groups}
        for name in self.groups.keys() & other.groups.keys():
            mine, theirs = self.groups[name], other.groups[name]
            # Logs of many groups are collected without the optional parts of groups.
            missing: dict[str, Any] = {
                part: None for part in _OPTIONAL if getattr(mine, part) is None or getattr(theirs, part) is None
            }
            groups[name] = replace(mine, **missing)._merged(replace(theirs, **missing))
        as_of = max((time for time in (self.as_of, other.as_of) if time is not None), default=None)
        return replace(self, **parts, sources=self.sources + other.sources, as_of=as_of).with_groups(groups)

    def decayed(self, factor: float) -> Evidence:
        """Return the evidence of the same rows with all weights multiplied by a factor.

        Alone this changes nothing, because only ratios of weights matter. Merged with newer evidence, the older rows
        count less. `as_of` stays: it is the time of the newest rows.

        Parameters
        ----------
        factor : float
            In (0, 1].

        Returns
        -------
        Evidence
            Without cells, blocks and groups that have less than 1e-15 of the weight.

        Examples
        --------
        >>> spec = LogSpec(("s0", "s1"))
        >>> monday, tuesday = (Evidence(spec, Moments().update([[x, 1.0]])) for x in (0.0, 3.0))
        >>> monday.decayed(0.5).merge(tuesday).moments.mean
        array([2., 1.])
        """
        parts: dict[str, Any] = {
            name: None if (part := getattr(self, name)) is None else part.decayed(factor)
            for name in ("moments", *_OPTIONAL)
        }
        least = NEGLIGIBLE * self.weight
        groups = {name: part.decayed(factor) for name, part in self.groups.items() if part.weight > least}
        return replace(self, **parts, groups=groups)

    def repeated(self, times: float) -> Evidence:
        """Return the evidence of rows that each occur several times, such as rows that several models scored.

        Standard errors then follow from the number of different rows.

        Parameters
        ----------
        times : float
            How often each row occurs.

        Returns
        -------
        Evidence
            Without groups and cells.
        """
        counts = None if self.replica_counts is None else self.replica_counts.repeated(times)
        moments = self.moments.repeated(times)
        return replace(self, moments=moments, cells=None, replica_counts=counts, groups={})

    def with_groups(self, groups: Mapping[str, Evidence]) -> Evidence:
        """Return this evidence with the evidence of its groups.

        Replica counts of groups are put on the grid of all rows, so they do not depend on the engine or on the order
        of merging.

        Parameters
        ----------
        groups : mapping of str to Evidence
            Evidence of each group.

        Returns
        -------
        Evidence
        """
        counts = self.replica_counts
        if counts is None:
            return replace(self, groups=groups)
        parts = {
            name: part
            if part.replica_counts is None
            else replace(part, replica_counts=part.replica_counts.coarsened(counts.level))
            for name, part in groups.items()
        }
        return replace(self, groups=parts)

    def _to_dict(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_dict(),
            "sources": list(self.sources),
            "as_of": self.as_of,
            "moments": self.moments.to_dict(),
            "cells": None if self.cells is None else self.cells.to_dict(),
            "replica_counts": None if self.replica_counts is None else self.replica_counts.to_dict(),
            "groups": {name: part.to_dict() for name, part in self.groups.items()},
        }

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Evidence:
        unknown = set(content) - {"kind", "schema_version", *_FIELDS}
        if unknown:
            raise ValueError(f"{min(unknown)!r} is not one of its fields")
        cells, counts = content["cells"], content["replica_counts"]
        evidence = cls(
            LogSpec.from_dict(content["spec"]),
            Moments.from_dict(content["moments"]),
            None if cells is None else Cells.from_dict(cells),
            None if counts is None else ReplicaCounts.from_dict(counts),
            {str(name): cls.from_dict(part) for name, part in content["groups"].items()},
            tuple(map(str, content["sources"])),
            content["as_of"],
        )
        replicas, labelled = len(evidence.spec.scores), evidence.spec.label is not None
        if any(part is not None and part["labelled"] not in (None, labelled) for part in (cells, counts)):
            raise ValueError("its labels do not fit its columns")
        if evidence.cells is not None and evidence.cells.scale != "logit":
            raise ValueError("its cells are not logits")
        if evidence.moments.n_replicas not in (replicas, 0) or evidence.moments.link != evidence.spec.link:
            raise ValueError("its moments do not fit its columns")
        if evidence.replica_counts is not None and evidence.replica_counts.n_replicas not in (replicas, 0):
            raise ValueError("its replica counts do not fit its columns")
        return evidence


def merged(parts: Iterable[Evidence], half_life: float | None = None) -> Evidence:
    """Merge several `Evidence` objects.

    Parameters
    ----------
    parts : iterable of Evidence
        At least one. With a half-life, in order of time and one period apart, such as the days of a week.
    half_life : float, optional
        Number of periods after which a row counts half. The weights of the part that is k periods older than the last
        are multiplied by 0.5 ** (k / half_life). By default all rows count the same.

    Returns
    -------
    Evidence

    Examples
    --------
    >>> spec = LogSpec(("s0", "s1"))
    >>> days = [Evidence(spec, Moments().update([[x, 1.0]])) for x in (0.0, 1.0, 2.0)]
    >>> merged(days).moments.mean
    array([1., 1.])
    >>> week = merged(days, half_life=1)
    >>> week.moments.weight, round(week.effective_rows, 2)
    (1.75, 2.33)
    """
    if not isinstance(parts, Iterable) or getattr(parts, "ndim", 1) == 0:
        raise UncurseError(f"cannot merge a {type(parts).__name__}; pass a list of Evidence")
    factor = 1.0 if half_life is None else decay_factor(1.0, check_half_life(half_life))
    total: Evidence | None = None
    for part in parts:
        if not isinstance(part, Evidence):
            raise UncurseError(f"cannot merge evidence with a {type(part).__name__}; pass Evidence")
        if total is not None and factor < 1:
            total = total.decayed(factor)
        total = part if total is None else total.merge(part)
    if total is None:
        raise UncurseError("there is no evidence to merge; pass at least one")
    return total


def cells_of(evidence: Evidence, name: str, *, labelled: bool = True) -> Cells:
    """Return the cells of evidence; raise an error that calls it `name` if it has none, or no labels."""
    if not evidence.spec.has_logits:
        raise UncurseError(
            f"the {name} has scale='value', which does not predict a label; pass logits or probabilities"
        )
    if labelled and evidence.spec.label is None:
        raise UncurseError(f"the {name} holds no labels; collect it with its label column")
    if evidence.cells is None:
        raise UncurseError(f"the {name} has no cells; build it with cells=True")
    return evidence.cells
