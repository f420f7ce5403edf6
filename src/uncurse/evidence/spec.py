"""`LogSpec`: the columns of a log, and the scale of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from ..documents import PlainData
from ..errors import UncurseError
from ..links import check_space
from ..validation import check_count


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

    Parameters
    ----------
    scores : tuple of str
        Columns of the replica scores, the served one first.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.
    label, weight, segment : str, optional
        Columns of 0/1 labels, of row weights and of segments.
    top_k : TopK, optional
        Selection that was applied to the rows.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link of the moments.
    negative_sampling_rate : float, optional
        Negative-sampling rate used in training. Logits are corrected by its logarithm.

    Examples
    --------
    >>> LogSpec(("s0", "s1"), label="click").numbers
    ('s0', 's1', 'click')
    """

    _kind: ClassVar[str] = "log description"
    scores: tuple[str, ...]
    scale: str = "logit"
    label: str | None = None
    weight: str | None = None
    segment: str | None = None
    top_k: TopK | None = None
    link: str = "logistic"
    negative_sampling_rate: float | None = None

    def __post_init__(self) -> None:
        names = tuple(self.scores) if isinstance(self.scores, tuple | list) else (self.scores,)
        object.__setattr__(self, "scores", names)
        if not names:
            raise UncurseError("no score column is named; name the served column first, then its replicas")
        for name in names:
            _check_name("scores", name)
            if names.count(name) > 1:
                raise UncurseError(f"score column {name!r} is named twice; name a different column for each replica")
        for role in ("label", "weight", "segment"):
            if getattr(self, role) is not None:
                _check_name(role, getattr(self, role))
        if self.label is not None and self.label == self.weight:
            raise UncurseError(f"column {self.label!r} is named as label and as weight; name two columns")
        for role in ("label", "weight"):
            if getattr(self, role) in names:
                raise UncurseError(f"column {getattr(self, role)!r} is named as score and as {role}; name two columns")
        if not isinstance(self.top_k, TopK | None):
            raise UncurseError(f"top_k={self.top_k!r}; pass a TopK, such as TopK('request', 3)")
        check_space(self.link, self.scale)
        object.__setattr__(
            self, "negative_sampling_rate", check_negative_sampling_rate(self.negative_sampling_rate, self.scale)
        )

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must hold numbers."""
        return (*self.scores, *(name for name in (self.label, self.weight) if name is not None))

    @property
    def wanted(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        return tuple(dict.fromkeys((*self.numbers, *((self.segment,) if self.segment is not None else ()))))

    @property
    def has_logits(self) -> bool:
        """Whether the scores have a logit: False for ``scale="value"``."""
        return self.scale != "value"

    @property
    def logit_offset(self) -> float:
        """Logarithm of the negative-sampling rate, added to every logit."""
        return logit_offset(self.negative_sampling_rate)

    def difference(self, other: LogSpec, *names: str) -> str | None:
        """Describe the first field that differs.

        Parameters
        ----------
        other : LogSpec
            Description to compare with.
        *names : str
            Fields to compare; all by default.

        Returns
        -------
        str or None
            None where all are equal.

        Examples
        --------
        >>> LogSpec(("s0",)).difference(LogSpec(("s0",), scale="probability"))
        'scale is logit in one and probability in the other'
        """
        for name in names or tuple(self.__dataclass_fields__):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {_text(mine)} in one and {_text(theirs)} in the other"
        return None

    def _to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "scores": list(self.scores)}

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> LogSpec:
        top_k = content["top_k"]
        return cls(**{**content, "top_k": None if top_k is None else TopK(**top_k)})


def logit_offset(negative_sampling_rate: float | None) -> float:
    """Return the logarithm of a negative-sampling rate, which is added to every logit; 0 without a rate."""
    return float(np.log(negative_sampling_rate)) if negative_sampling_rate else 0.0


def check_negative_sampling_rate(rate: Any, scale: str) -> float | None:
    """Return a negative-sampling rate in (0, 1], or None; raise UncurseError for other values and for regression."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate <= 1:
        raise UncurseError(
            f"negative_sampling_rate={rate!r}; pass the share of negatives kept in training, such as 0.1"
        )
    if scale == "value":
        raise UncurseError("negative_sampling_rate applies to logits and probabilities; leave it out for scale='value'")
    return float(rate)


def _check_name(role: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise UncurseError(f"{role}={name!r} is not a column name; pass a non-empty string")


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
