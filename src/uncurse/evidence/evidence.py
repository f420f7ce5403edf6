"""`Evidence`: what one pass over a log leaves behind, as one object and one file."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import documents
from ..errors import UncurseError
from .cells import Cells
from .moments import Moments
from .replica_counts import Joint


@dataclass
class Evidence:
    """Moments of the replica scores of a log and cells of the served one, whole and by group.

    Days, shards and files merge: a changing pool is followed by merging the newest of them. What `uncurse collect`
    writes, `uncurse fit` and `uncurse evaluate` read.

    Examples
    --------
    >>> a, b = (Evidence(("s1", "s2"), Moments().update([[0.0, 1.0], [x, 2.0]])) for x in (1.0, 2.0))
    >>> a.merge(b).rows
    4
    """

    columns: tuple[str, ...]  # of the replica scores, the served one first
    moments: Moments
    cells: Cells | None = None  # of the served logit; none on the value scale
    joint: Joint | None = None  # of the served logit and the other replicas'
    groups: dict[str, Evidence] = field(default_factory=dict)
    scale: str = "logit"  # of the columns
    negative_rate: float | None = None  # undone in moments and cells
    label: str | None = None
    weight: str | None = None
    group: str | None = None
    selection: str | None = None  # which rows these are, where not all
    sources: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows were seen."""
        return self.moments.rows if self.cells is None else self.cells.rows

    @property
    def link(self) -> str:
        """The link whose scores the moments are of."""
        return self.moments.link

    def merge(self, other: Evidence) -> Evidence:
        """Add the rows behind `other`, which must be of the same columns, scale and selection."""
        for name in ("columns", "scale", "link", "negative_rate", "label", "group", "selection"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise UncurseError(
                    f"cannot merge evidence: {name} is {_text(mine)} in one and {_text(theirs)} in the other; "
                    "collect both alike"
                )
        both = sorted(set(self.sources) & set(other.sources))
        if both:
            message = f"{both[0]} is in both of the evidence that is merged; if its rows are the same they count double"
            warnings.warn(message, UserWarning, stacklevel=2)
        self.moments.merge(other.moments)
        if self.cells is None or other.cells is None:
            self.cells = None
        else:
            self.cells.merge(other.cells)
        if self.joint is None or other.joint is None:
            self.joint = None
        else:
            self.joint.merge(other.joint)
        for name, part in other.groups.items():
            if name in self.groups:
                self.groups[name].merge(part)
            else:
                self.groups[name] = copy.deepcopy(part)
        self.sources += other.sources
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "columns": list(self.columns),
            "scale": self.scale,
            "negative_rate": self.negative_rate,
            "label": self.label,
            "weight": self.weight,
            "group": self.group,
            "selection": self.selection,
            "sources": list(self.sources),
            "moments": self.moments.to_dict(),
            "cells": None if self.cells is None else self.cells.to_dict(),
            "joint": None if self.joint is None else self.joint.to_dict(),
            "groups": {name: part.to_dict() for name, part in self.groups.items()},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Evidence:
        """Back from `to_dict`."""
        with documents.reading("evidence"):
            cells, joint = content["cells"], content.get("joint")
            return cls(
                columns=tuple(content["columns"]),
                moments=Moments.from_dict(content["moments"]),
                cells=None if cells is None else Cells.from_dict(cells),
                joint=None if joint is None else Joint.from_dict(joint),
                groups={name: cls.from_dict(part) for name, part in content["groups"].items()},
                sources=tuple(content["sources"]),
                **{name: content[name] for name in ("scale", "negative_rate", "label", "weight", "group", "selection")},
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file, atomically."""
        documents.write(path, documents.dumps("evidence", self.to_dict()) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Evidence:
        """Read what `save` wrote."""
        content = documents.read(path)
        if content["kind"] != "evidence":
            raise UncurseError(f"{path} is of kind {content['kind']!r}; evidence is what `uncurse collect` writes")
        return cls.from_dict(content)


def merged(parts: Iterable[Evidence]) -> Evidence:
    """All parts as one; the parts are used up."""
    whole: Evidence | None = None
    for part in parts:
        whole = part if whole is None else whole.merge(part)
    if whole is None:
        raise UncurseError("there is no evidence to merge; pass at least one file")
    return whole


def _text(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else repr(value)


__all__ = ["Evidence", "merged"]
