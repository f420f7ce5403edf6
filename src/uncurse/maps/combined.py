"""Maps composed of other maps: a chain, and one map per group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link, inside, logistic, to_link
from ..threads import chunks
from ..validation import check_length, check_scores, encode_names
from .base import ScoreMap, set_fields
from .shapes import Affine, Curve, Steps

if TYPE_CHECKING:
    from ..evidence import Cells, Evidence


@dataclass(frozen=True, repr=False)
class Chain(ScoreMap):
    """Maps applied in order; between maps of different links the prediction is passed on.

    Parameters
    ----------
    maps : sequence of ScoreMap
        At least one `Affine`, `Curve`, `Steps` or `Chain`, all on the same scale. A chain is replaced by its maps.

    Examples
    --------
    >>> Chain((Affine(2.0, 0.0), Affine(0.5, 1.0))).transform([3.0])
    array([4.])
    """

    kind: ClassVar[str] = "chain"
    maps: Sequence[ScoreMap]
    link: str = field(init=False)
    scale: str = field(init=False)

    def __post_init__(self) -> None:
        maps = _flat(self.maps)
        set_fields(self, maps=maps, link=maps[0].link, scale=maps[0].scale)
        for part in maps:
            _check_scale(part, self.scale, "a map of this chain")

    def _run(self, link_scores: Float) -> tuple[Float, str]:
        l, link = link_scores, self.link
        for part in self.maps:
            if part.link != link:
                # exp may overflow, and 0 · ∞ is NaN
                l = inside(get_link(part.link).inverse(get_link(link).phi(l)), -np.inf, np.inf)
                link = part.link
            l = part.transform(l)
        return l, link

    def _transform(self, l: Float) -> Float:
        values, link = self._run(l)
        return values if link == self.link else get_link(self.link).inverse(get_link(link).phi(values))

    def to_dict(self) -> dict[str, Any]:
        """Return the maps as plain data, in order.

        Returns
        -------
        dict
            As for `from_dict`.
        """
        return {"kind": self.kind, "maps": [part.to_dict() for part in self.maps]}


def compose(*maps: ScoreMap, scale: str) -> ScoreMap:
    """Return one map that applies `maps` in order; merge adjacent straight lines of one link.

    Parameters
    ----------
    *maps : Affine, Curve, Steps or Chain
        At least one map. Their own scales are ignored.
    scale : {"logit", "probability", "value"}
        Scale of the scores that the result takes.

    Returns
    -------
    ScoreMap
        An `Affine`, a `Curve`, a `Steps` or a `Chain`.

    Examples
    --------
    >>> compose(Affine(2.0, 1.0), Affine(0.5, 0.0), scale="logit")
    Affine(slope=1.0, intercept=0.5, link='logistic', scale='logit')
    """
    merged: list[ScoreMap] = []
    for part in _flat(maps):
        last = merged[-1] if merged else None
        if isinstance(last, Affine) and isinstance(part, Affine) and last.link == part.link:
            slope, intercept = part.slope * last.slope, part.slope * last.intercept + part.intercept
            if math.isfinite(slope) and math.isfinite(intercept):
                merged[-1] = replace(last, slope=slope, intercept=intercept)
                continue
        merged.append(replace(part, scale=scale))
    return merged[0] if len(merged) == 1 else Chain(merged)


@dataclass(frozen=True, repr=False)
class Grouped(ScoreMap):
    """One map per group, and a default map for all other groups.

    Parameters
    ----------
    default : ScoreMap
        Map for groups that are not in `maps`.
    maps : mapping of str to ScoreMap
        Map of each group by its name, on the scale of `default`.

    Examples
    --------
    >>> grouped = Grouped(Affine(1.0, 0.0), {"news": Affine(1.0, 1.0)})
    >>> grouped([0.0, 0.0], ["news", "sport"])
    array([0.73105858, 0.5       ])
    """

    kind: ClassVar[str] = "grouped"
    default: ScoreMap
    maps: Mapping[str, ScoreMap]
    link: str = field(init=False)
    scale: str = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.maps, Mapping) or not all(isinstance(name, str) for name in self.maps):
            raise UncurseError(f"maps is {self.maps!r:.80}; pass a mapping from names of groups (text) to maps")
        named = [("the default map", self.default)]
        for group, part in self.maps.items():
            if group.endswith("\0"):
                raise UncurseError(f"the group {group!r} ends in a null character; rename it")
            named.append((f"the map of group {group!r}", part))
        for name, part in named:
            if not isinstance(part, ScoreMap) or isinstance(part, Grouped):
                raise UncurseError(f"{name} is of type {type(part).__name__}; pass an Affine, Curve, Steps or Chain")
            _check_scale(part, self.default.scale, name)
        set_fields(self, maps=dict(self.maps), link=self.default.link, scale=self.default.scale)

    def __call__(self, scores: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Return predictions.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Scores on the scale of the map.
        groups : array-like of shape (n,)
            Group of each row. Groups that are not in `maps` get the default map. For the default map of all rows, call
            `default`.

        Returns
        -------
        ndarray of float64 of shape (n,)
            Predictions.
        """
        if groups is None:
            raise UncurseError("this map has a map for each group; pass groups=, or call its .default for all rows")
        values = check_scores(scores, self.scale, largest=np.inf)
        names, codes = encode_names(groups, len(values), "groups")
        number = {name: i for i, name in enumerate(self.maps)}
        return self.by_number(values, np.array([number.get(name, -1) for name in names])[codes])

    def by_number(self, scores: ArrayLike, numbers: NDArray[np.integer[Any]]) -> Array:
        """Return predictions for groups identified by their position in `maps`.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Scores on the scale of the map.
        numbers : ndarray of int of shape (n,)
            Position of each row's group in `maps`; -1 means the default map.

        Returns
        -------
        ndarray of float64 of shape (n,)
            Predictions.

        Examples
        --------
        >>> Grouped(Affine(1.0, 0.0), {"news": Affine(1.0, 1.0)}).by_number([0.0, 0.0], np.array([0, -1]))
        array([0.73105858, 0.5       ])
        """
        values, numbers = check_scores(scores, self.scale, largest=np.inf), np.asarray(numbers)
        check_length(numbers, len(values), "numbers")
        if numbers.dtype.kind not in "iu" or numbers.min() < -1 or numbers.max() >= len(self.maps):
            raise UncurseError(f"numbers must be integers from -1 to {len(self.maps) - 1}; see `by_number`")
        maps = [*self.maps.values(), self.default]  # position -1 is the default
        out = np.empty(len(values))
        if all(isinstance(part, Affine) and part.link == self.link for part in maps):
            # Thousands of groups of few rows: one pass over the rows is much faster than a call per group.
            slopes, intercepts = np.array([(part.slope, part.intercept) for part in maps]).T  # type: ignore[attr-defined]
            link = get_link(self.link)
            bounds = (link.lower, link.upper) if self.scale == "value" else (0.0, 1.0)
            for rows in chunks(len(values)):
                l = to_link(values[rows].astype(np.float64, copy=False), self.scale, self.link)
                with np.errstate(over="ignore"):
                    transformed = slopes[numbers[rows]] * l + intercepts[numbers[rows]]
                out[rows] = inside(link.phi(transformed), *bounds)
            return out
        order = np.argsort(numbers, kind="stable")
        present, starts = np.unique(numbers[order], return_index=True)
        for i, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            out[members] = maps[i](values[members])
        return out

    def _transform(self, l: Float) -> Float:
        return self.default.transform(l)

    def to_dict(self) -> dict[str, Any]:
        """Return the maps as plain data, by group.

        Returns
        -------
        dict
            As for `from_dict`.
        """
        maps = {name: part.to_dict() for name, part in self.maps.items()}
        return {"kind": self.kind, "default": self.default.to_dict(), "maps": maps}


def predicted_cells(score_map: ScoreMap | None, evidence: Evidence) -> dict[str, tuple[Array, Cells]]:
    """Return predictions and cells of each group if the map is by group, else of all rows, whose name is empty.

    Without a map the predictions are those of the served score.
    """
    by_group = isinstance(score_map, Grouped)
    if by_group and not evidence.groups:
        raise UncurseError("this map has a map for each group; collect the log by its group column too")
    found = {}
    for name, part in evidence.groups.items() if by_group else [("", evidence)]:
        own = score_map.maps.get(name, score_map.default) if isinstance(score_map, Grouped) else score_map
        if part.cells is None:
            raise UncurseError("a log of more than 200 groups is collected without their cells; use fewer groups")
        # Cells hold logits corrected for negative sampling. Maps take uncorrected logits.
        score, offset = part.cells.score, evidence.spec.logit_offset
        p = logistic(score).astype(np.float64, copy=False) if own is None else own.at_logits(score - offset)
        found[name] = p, part.cells
    return found


def _flat(maps: Sequence[ScoreMap]) -> tuple[Affine | Curve | Steps, ...]:
    """Return the maps with chains replaced by their maps."""
    if not isinstance(maps, Iterable) or getattr(maps, "ndim", 1) == 0:
        raise UncurseError(f"maps is of type {type(maps).__name__}; pass a sequence of maps")
    flat = tuple(
        part for score_map in maps for part in (score_map.maps if isinstance(score_map, Chain) else (score_map,))
    )
    for part in flat:
        if not isinstance(part, Affine | Curve | Steps):
            raise UncurseError(
                f"a {type(part).__name__} cannot be part of a chain; pass Affine, Curve, Steps or Chain maps "
                "(for a Grouped map, chain the map of each group)"
            )
    if not flat:
        raise UncurseError("no map to apply; pass at least one")
    return flat  # type: ignore[return-value]


def _check_scale(part: ScoreMap, scale: str, name: str) -> None:
    if part.scale != scale:
        raise UncurseError(
            f"{name} takes scores on the {part.scale} scale and the others on the {scale} scale; use one scale "
            "(`compose` sets it)"
        )
