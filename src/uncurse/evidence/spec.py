"""`LogSpec`: the columns of a log, and the scale of their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..documents import PlainData
from ..errors import UncurseError
from ..links import check_space
from ..validation import check_count, check_share


@dataclass(frozen=True)
class TopK:
    """Selection of the best rows of each request.

    Parameters
    ----------
    request : str
        Column that identifies the request of a row.
    k : int, default=1
        Number of rows kept per request.

    Examples
    --------
    >>> str(TopK("auction", 3))
    'top 3 of each auction'
    """

    request: str
    k: int = 1

    def __post_init__(self) -> None:
        _check_name("request", self.request)
        object.__setattr__(self, "k", check_count(self.k, "top_k"))

    def __str__(self) -> str:
        return f"top {self.k} of each {self.request}"


@dataclass(frozen=True)
class LogSpec(PlainData):
    """Description of a log of scores; part of every `Evidence`.

    >>> LogSpec(("s0", "s1"), label="click").numbers
    ('s0', 's1', 'click')
    """

    _kind: ClassVar[str] = "log description"
    scores: tuple[str, ...]  # columns of the replica scores, the served one first
    scale: str = "logit"  # of the scores
    label: str | None = None  # columns of labels (0 or 1, or successes in `trials`), row weights and segments
    weight: str | None = None
    segment: str | None = None
    top_k: TopK | None = None  # selection that was applied to the rows
    link: str = "logistic"  # of the moments
    negative_sampling_rate: float | None = None  # in training; its logarithm is added to every logit
    trials: str | None = None  # column of the number of trials of each row
    teacher: str | None = None  # column of the scores of a teacher, on the scale of the scores

    def __post_init__(self) -> None:
        names = tuple(self.scores) if isinstance(self.scores, tuple | list) else (self.scores,)
        object.__setattr__(self, "scores", names)
        if not names:
            raise UncurseError("no score column is named; name the served column first, then its replicas")
        for name in names:
            _check_name("scores", name)
        for role in ("label", "weight", "segment", "trials", "teacher"):
            if getattr(self, role) is not None:
                _check_name(role, getattr(self, role))
        if self.trials is not None and self.label is None:
            raise UncurseError(f"trials={self.trials!r} needs a label, the column of successes; name it")
        for name in self.numbers:
            if self.numbers.count(name) > 1:
                raise UncurseError(f"column {name!r} is named twice; name a column for each score, label and weight")
        if not isinstance(self.top_k, TopK | None):
            raise UncurseError(f"top_k={self.top_k!r}; pass a TopK, such as TopK('request', 3)")
        check_space(self.link, self.scale)
        rate = check_negative_sampling_rate(self.negative_sampling_rate, self.scale)
        object.__setattr__(self, "negative_sampling_rate", rate)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of scores: those of the replicas, then that of the teacher."""
        return self.scores if self.teacher is None else (*self.scores, self.teacher)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must hold numbers."""
        return (*self.columns, *(name for name in (self.label, self.trials, self.weight) if name is not None))

    @property
    def logit_offset(self) -> float:
        """Logarithm of the negative-sampling rate, added to every logit."""
        return logit_offset(self.negative_sampling_rate)

    def difference(self, other: LogSpec) -> str | None:
        """Describe the first field that differs; None if all are equal."""
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if mine != theirs:
                return f"{name} is {_text(mine)} in one and {_text(theirs)} in the other"
        return None


def logit_offset(negative_sampling_rate: float | None) -> float:
    """Return the logarithm of a negative-sampling rate, which is added to every logit; 0 without a rate."""
    return float(np.log(negative_sampling_rate)) if negative_sampling_rate else 0.0


def check_negative_sampling_rate(rate: Any, scale: str) -> float | None:
    """Return a negative-sampling rate in (0, 1], or None; raise UncurseError for other values and for regression."""
    if rate is None:
        return None
    if scale == "value":
        raise UncurseError("negative_sampling_rate applies to logits and probabilities; leave it out for scale='value'")
    return check_share(rate, "negative_sampling_rate")


def _check_name(role: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise UncurseError(f"{role}={name!r} is not a column name; pass a non-empty string")


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
