"""`Evidence`: the result of one pass over the data, as one object and one file."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar

from ..documents import Document
from ..errors import UncurseError
from ..validation import check_share, check_time, warn_user
from .histogram import NEGLIGIBLE, Histogram
from .moments import Moments
from .spec import LogSpec

_LEAST_WEIGHT = 1e-100  # Σw² of the lightest cell is then still a normal number
_LEAST_FACTOR = 1e-30


@dataclass(frozen=True)
class Evidence(Document):
    """Sufficient statistics of a set of rows, for all methods and metrics.

    Examples
    --------
    >>> spec = LogSpec(("s0", "s1"))
    >>> a, b = (Evidence(spec, Moments().update([[0.0, 1.0], [x, 2.0]])) for x in (1.0, 2.0))
    >>> a.merge(b).rows, a.rows
    (4, 2)
    """

    _kind: ClassVar[str] = "evidence"
    _wanted: ClassVar[str] = "evidence, which `uncurse collect` writes"
    spec: LogSpec  # the columns
    moments: Moments  # of the replica scores, on the link
    served: Histogram | None = None  # rows by served logit; None for regression, and without histograms
    replicas: Histogram | None = None  # rows by the logits of all replicas; None for a single score as well
    segments: Mapping[str, Evidence] = field(default_factory=dict)
    teacher: Evidence | None = None  # of two columns, the served score and that of a teacher; None without a teacher
    sources: tuple[str, ...] = ()  # files that were read
    digests: tuple[str, ...] = ()  # of the content of each source
    as_of: str | None = None  # date and time (ISO 8601) of the newest rows, in UTC; None if unknown

    def __post_init__(self) -> None:
        for count in (self.moments.n_replicas, 0 if self.replicas is None else self.replicas.n_columns):
            if count not in (0, len(self.spec.scores)):
                raise UncurseError(f"these are sums of {count} columns, not of {', '.join(self.spec.scores)}")
        if self.as_of is not None:
            object.__setattr__(self, "as_of", check_time(self.as_of, "as_of").isoformat(timespec="seconds"))
        if self.segments and self.replicas is not None:  # on one grid, whatever the order of merging
            level = self.replicas.level
            segments = {
                name: part if part.replicas is None else replace(part, replicas=part.replicas.coarsened(level))
                for name, part in self.segments.items()
            }
            object.__setattr__(self, "segments", segments)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.moments.rows

    @property
    def effective_rows(self) -> float:
        """Number of rows of equal weight that carry as much information: (Σw)² / Σw²."""
        return self.moments.effective_rows

    @property
    def weight(self) -> float:
        """Total weight."""
        return self.moments.weight

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
        if difference is None and (self.served is None) != (other.served is None):
            difference = "only one has histograms"
        if difference:
            raise UncurseError(f"cannot merge evidence: {difference}; collect both with the same options")
        repeated = sorted(set(self.sources) & set(other.sources))
        if set(self.digests) & set(other.digests):
            warn_user(f"both hold the rows of {', '.join(repeated or other.sources)}, which now count twice")
        elif repeated and not (self.digests and other.digests):
            warn_user(f"{repeated[0]} is a source of both; if its rows are the same they count twice")
        return self._merged(other)

    def _merged(self, other: Evidence) -> Evidence:
        joint = self._each(lambda part, theirs: copy.copy(part).merge(theirs), other)
        segments = {**self.segments, **other.segments}
        for name in self.segments.keys() & other.segments.keys():
            segments[name] = self.segments[name]._merged(other.segments[name])
        as_of = max((time for time in (self.as_of, other.as_of) if time is not None), default=None)
        sources, digests = self.sources + other.sources, self.digests + other.digests
        return replace(joint, sources=sources, digests=digests, as_of=as_of, segments=segments)

    def _each(self, change: Callable[..., Any], *others: Evidence) -> Evidence:
        """Return this evidence with its sums changed; `others` give further arguments."""
        parts: dict[str, Any] = {
            name: None if (part := getattr(self, name)) is None else change(part, *(getattr(o, name) for o in others))
            for name in ("moments", "served", "replicas", "teacher")
        }
        return replace(self, **parts)

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
            Without cells and segments that have less than 1e-15 of the weight.

        Examples
        --------
        >>> spec = LogSpec(("s0", "s1"))
        >>> monday, tuesday = (Evidence(spec, Moments().update([[x, 1.0]])) for x in (0.0, 3.0))
        >>> monday.decayed(0.5).merge(tuesday).moments.mean
        array([2., 1.])
        """
        check_share(factor, "factor")
        weight = self.weight * factor
        if self.weight > 0 and not weight >= _LEAST_WEIGHT:
            raise UncurseError(f"factor={factor!r} leaves a total weight of {weight:.1g}; start with new evidence")
        least = NEGLIGIBLE * self.weight
        segments = {name: part.decayed(factor) for name, part in self.segments.items() if part.weight > least}
        return replace(self.scaled(factor, factor**2), segments=segments)

    def scaled(self, factor: float, of_squares: float) -> Evidence:
        """Return the same rows with Σw multiplied by one factor and Σw² by another, without segments.

        Parameters
        ----------
        factor, of_squares : float
            The factors.

        Returns
        -------
        Evidence
        """
        return replace(self._each(lambda part: part.scaled(factor, of_squares)), segments={})


def merged(parts: Iterable[Evidence], half_life: float | None = None) -> Evidence:
    """Merge at least one `Evidence`.

    By default all rows count the same. With a half-life, the parts are in order of time and one period apart, such as
    the days of a week: the weights of the part that is k periods older than the last are multiplied by
    0.5 ** (k / half_life).

    >>> spec = LogSpec(("s0", "s1"))
    >>> days = [Evidence(spec, Moments().update([[x, 1.0]])) for x in (0.0, 1.0, 2.0)]
    >>> merged(days).moments.mean
    array([1., 1.])
    >>> week = merged(days, half_life=1)
    >>> week.moments.weight, round(week.effective_rows, 2)
    (1.75, 2.33)
    """
    factor = 1.0
    if half_life is not None:
        if not isinstance(half_life, Real) or isinstance(half_life, bool) or not half_life > 0:
            raise UncurseError(f"half_life={half_life!r}; pass a positive number of periods, such as 3")
        factor = decay_factor(1.0, float(half_life))
    rest = iter(parts if isinstance(parts, Iterable) else [parts])
    total = next(rest, None)
    if not isinstance(total, Evidence):
        raise UncurseError(f"cannot merge evidence with a {type(total).__name__}; pass at least one Evidence")
    for part in rest:
        total = (total.decayed(factor) if factor < 1 else total).merge(part)
    return total


def decay_factor(elapsed: float, half_life: float) -> float:
    """Return the factor of weights after some time, at least 1e-30: older rows then have no weight to rounding."""
    return max(math.exp2(-elapsed / half_life), _LEAST_FACTOR)


def served_of(evidence: Evidence, name: str, *, labeled: bool = True) -> Histogram:
    """Return the served histogram of evidence; raise an error that calls it `name` if it has none, or no labels."""
    if evidence.served is None:
        raise UncurseError(f"the {name} holds no logits, which predict a label; pass logits or probabilities")
    if labeled and evidence.spec.label is None:
        raise UncurseError(f"the {name} holds no labels; collect it with its label column")
    return evidence.served
