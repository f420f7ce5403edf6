"""Which columns of a log are what: the one argument that streams and queries share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..errors import UncurseError
from ..links import get_link
from ..validation import SCALES, check_choice


@dataclass(frozen=True)
class Columns:
    """The columns of a log that are read, and how their scores are.

    >>> Columns(("s1", "s2"), label="click").numbers
    ('s1', 's2', 'click')
    """

    scores: tuple[str, ...]  # the served one first
    label: str | None = None
    weight: str | None = None
    group: str | None = None
    scale: str = "logit"
    link: str = "logistic"
    negative_rate: float | None = None
    joint: bool = False  # whether replicas are counted together too
    offset: float = field(init=False)  # added to every logit first: what sampling negatives has put on it

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        if not self.scores:
            raise UncurseError("name the column of the served score, and those of its replicas after it")
        twice = [name for name in self.scores if self.scores.count(name) > 1]
        if twice:
            raise UncurseError(f"column {twice[0]!r} is named twice among the scores; replicas are different columns")
        if self.joint and (len(self.scores) < 2 or not self.has_cells):
            raise UncurseError(
                f"joint counts of {', '.join(self.scores)} with scale={self.scale!r} cannot be; name the served column "
                "and a replica at least, of logits or probabilities"
            )
        if self.scale == "value" and np.isfinite(get_link(self.link).upper):
            raise UncurseError(f"scale='value' has no {self.link} score; use the identity or the log link")
        if self.negative_rate is not None and (not 0 < self.negative_rate <= 1 or self.scale == "value"):
            raise UncurseError(
                f"negative_rate={self.negative_rate} with scale={self.scale!r}; pass the share of negatives kept, "
                "such as 0.1, beside logits or probabilities"
            )
        object.__setattr__(self, "offset", float(np.log(self.negative_rate)) if self.negative_rate else 0.0)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must hold numbers."""
        return (*self.scores, *(name for name in (self.label, self.weight) if name is not None))

    @property
    def wanted(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        return tuple(dict.fromkeys((*self.numbers, *((self.group,) if self.group is not None else ()))))

    @property
    def has_cells(self) -> bool:
        """Whether the served score has a logit."""
        return self.scale != "value"


__all__ = ["Columns"]
