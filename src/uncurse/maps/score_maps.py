"""Score maps: monotone functions of one served score, a few floats each, the only thing serving ever sees.

A map takes scores on its `scale` and returns predictions. Inside, it works on the scores of its
`link`: l = φ⁻¹(f). Every map is plain JSON (`save`, `load`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link, inside, to_link
from ..threads import chunks, in_threads, shares
from ..validation import SCALES, check_choice, check_names, check_numbers, check_scores


class ScoreMap:
    """What every map can do; see `Affine`, `Curve`, `Steps`, `Chain`, `Grouped`."""

    kind: ClassVar[str]
    link: str
    scale: str

    def __call__(self, scores: ArrayLike) -> Array:
        """Predictions for scores of shape (n,); a single number gives a single number."""
        single = np.ndim(scores) == 0
        values = check_scores(np.atleast_1d(check_numbers(scores, "scores")), self.scale)
        out = np.empty(len(values))

        def fill(share: slice) -> None:
            for part in chunks(share.stop - share.start):
                rows = slice(share.start + part.start, share.start + part.stop)
                self._fill(values[rows], out[rows])

        in_threads(fill, shares(len(values)))
        return out[0] if single else out

    def _fill(self, values: Float, out: Array) -> None:
        # float64 before anything bends: neighbouring float32 probabilities must not fall together.
        l = to_link(values.astype(np.float64, copy=False), self.scale, self.link)
        out[...] = self._predict(l.astype(np.float64, copy=False))

    def _predict(self, l: Array) -> Array:
        link = get_link(self.link)
        prediction = link.phi(self.transform(l))
        # Probabilities stay inside (0, 1), also where the link itself does not keep them there.
        bounds = (link.lower, link.upper) if self.scale == "value" else (0.0, 1.0)
        return inside(prediction, *bounds).astype(np.float64, copy=False)

    def transform(self, l: Float) -> Float:
        """From scores of the link to scores of the link; strictly increasing unless the map says otherwise."""
        raise NotImplementedError

    def at_logits(self, logits: ArrayLike) -> Array:
        """Predictions for served scores given as logits, whatever scale the map takes.

        >>> Affine(1.0, 0.0, scale="probability").at_logits([0.0])
        array([0.5])
        """
        if self.scale == "logit":
            return self(logits)
        values = to_link(check_scores(logits, "logit").astype(np.float64, copy=False), "logit", self.link)
        return self._predict(values.astype(np.float64, copy=False))

    def to_dict(self) -> dict[str, Any]:
        """The map as plain data."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def to_json(self) -> str:
        """One JSON document."""
        content = self.to_dict()
        return documents.dumps(content.pop("kind"), content)

    def save(self, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> None:
        """Write the map to a file, atomically; `about` is plain data on how it came about, for `load_about`."""
        content = self.to_dict()
        if about is not None:
            content["about"] = dict(about)
        documents.write(path, documents.dumps(content.pop("kind"), content) + "\n")


def _check_space(link: str, scale: str) -> None:
    check_choice("scale", scale, SCALES)
    upper = get_link(link).upper
    if scale == "value" and np.isfinite(upper):
        raise UncurseError(f"scale='value' has no {link} score; use the identity or the log link")


def _check_number(name: str, value: float) -> None:
    if not np.isfinite(value):
        raise UncurseError(f"{name} is {value}; a map needs finite numbers")


@dataclass(frozen=True)
class Affine(ScoreMap):
    """φ(slope · l + intercept): two numbers to bake into a model.

    >>> Affine(0.5, -1.0)([0.0, 2.0])
    array([0.26894142, 0.5       ])
    """

    kind: ClassVar[str] = "affine"
    slope: float
    intercept: float
    link: str = "logistic"
    scale: str = "logit"

    def __post_init__(self) -> None:
        _check_space(self.link, self.scale)
        _check_number("slope", self.slope)
        _check_number("intercept", self.intercept)
        if self.slope < 0:
            raise UncurseError(f"slope is {self.slope:g}; a map must not turn the order round")

    def _fill(self, values: Float, out: Array) -> None:
        if self.link != "logistic" or self.scale != "logit":
            super()._fill(values, out)
            return
        out[...] = values  # the common case, without a temporary: 1 / (1 + exp(−slope · l − intercept))
        out *= -self.slope
        out -= self.intercept
        with np.errstate(over="ignore"):
            np.exp(out, out=out)
        out += 1.0
        np.reciprocal(out, out=out)
        inside(out, 0.0, 1.0, out=out)

    def transform(self, l: Float) -> Float:
        """`slope` · l + `intercept`."""
        result: Float = self.slope * l
        result += self.intercept
        return result


@dataclass(frozen=True)
class Curve(ScoreMap):
    """Piecewise linear between knots (x, y) in link space, going on with `left` and `right` as slopes.

    >>> Curve((0.0, 1.0), (0.0, 0.5), 1.0, 1.0).transform(np.array([-1.0, 0.5, 2.0]))
    array([-1.  ,  0.25,  1.5 ])
    """

    kind: ClassVar[str] = "curve"
    x: Sequence[float]
    y: Sequence[float]
    left: float
    right: float
    link: str = "logistic"
    scale: str = "logit"

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", tuple(float(v) for v in self.x))
        object.__setattr__(self, "y", tuple(float(v) for v in self.y))
        _check_space(self.link, self.scale)
        if len(self.x) != len(self.y) or not self.x:
            raise UncurseError(f"a curve needs as many x as y and at least one; got {len(self.x)} and {len(self.y)}")
        x, y = self._knots
        _check_number("left", self.left)
        _check_number("right", self.right)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise UncurseError("a knot of this curve is not finite; fit it again on finite scores")
        if (np.diff(x) <= 0).any():
            raise UncurseError("the x of a curve must increase strictly; merge knots that coincide")
        if (np.diff(y) < 0).any() or self.left < 0 or self.right < 0:
            raise UncurseError("this curve falls somewhere; a map must not turn the order round")

    @cached_property
    def _knots(self) -> tuple[Array, Array]:
        return np.array(self.x), np.array(self.y)

    def transform(self, l: Float) -> Float:
        """Interpolate, and extrapolate with the end slopes."""
        x, y = self._knots
        result: Float = np.interp(l, x, y)
        result += self.left * np.minimum(l - x[0], 0.0)
        result += self.right * np.maximum(l - x[-1], 0.0)
        return result


@dataclass(frozen=True)
class Steps(ScoreMap):
    """A value per step in link space; `edges` lie between the steps, and a score on an edge is above it.

    With a tiny `slope` ties inside a step are broken by the raw score, so that the order is kept strictly: the
    value of the step plus slope · (l − center).

    >>> Steps((0.0,), (-1.0, 1.0)).transform(np.array([-5.0, 0.0, 5.0]))
    array([-1.,  1.,  1.])
    """

    kind: ClassVar[str] = "steps"
    edges: Sequence[float]
    values: Sequence[float]
    slope: float = 0.0
    center: float = 0.0
    link: str = "logistic"
    scale: str = "logit"

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(float(v) for v in self.edges))
        object.__setattr__(self, "values", tuple(float(v) for v in self.values))
        _check_space(self.link, self.scale)
        if len(self.values) != len(self.edges) + 1:
            raise UncurseError(f"{len(self.edges)} edges need {len(self.edges) + 1} values; got {len(self.values)}")
        edges, values = self._arrays
        _check_number("slope", self.slope)
        _check_number("center", self.center)
        if not (np.isfinite(edges).all() and np.isfinite(values).all()):
            raise UncurseError("a step is not finite; fit it again with bins that hold both labels")
        if (np.diff(edges) <= 0).any():
            raise UncurseError("the edges of steps must increase strictly; merge edges that coincide")
        if self.slope < 0:
            raise UncurseError(f"slope is {self.slope:g}; a map must not turn the order round")
        if self.slope > 0 and (np.diff(values) < 0).any():
            raise UncurseError("these steps fall somewhere; a map that keeps the order must not (pool them first)")

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.edges), np.array(self.values)

    def transform(self, l: Float) -> Float:
        """The value of the step, and the tie-break."""
        edges, values = self._arrays
        result: Float = values[np.searchsorted(edges, l, side="right")]
        if self.slope:
            result = result + self.slope * (l - self.center)
        return result


@dataclass(frozen=True)
class Chain(ScoreMap):
    """Maps one after the other; where links differ the prediction is handed over.

    >>> Chain((Affine(2.0, 0.0), Affine(0.5, 1.0))).transform(np.array([3.0]))
    array([4.])
    """

    kind: ClassVar[str] = "chain"
    maps: tuple[ScoreMap, ...]
    link: str = field(init=False)
    scale: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.maps:
            raise UncurseError("a chain needs at least one map")
        object.__setattr__(self, "maps", tuple(self.maps))
        object.__setattr__(self, "link", self.maps[0].link)
        object.__setattr__(self, "scale", self.maps[0].scale)

    def _run(self, l: Float) -> tuple[Float, str]:
        link = self.link
        for step in self.maps:
            if step.link != link:
                l = get_link(step.link).inverse(get_link(link).phi(l))
                link = step.link
            l = step.transform(l)
        return l, link

    def _predict(self, l: Array) -> Array:
        values, link = self._run(l)
        last = get_link(link)
        bounds = (last.lower, last.upper) if self.scale == "value" else (0.0, 1.0)
        return inside(last.phi(values), *bounds).astype(np.float64, copy=False)

    def transform(self, l: Float) -> Float:
        """Through every map, then back to the scores of the first link."""
        values, link = self._run(l)
        return values if link == self.link else get_link(self.link).inverse(get_link(link).phi(values))

    def to_dict(self) -> dict[str, Any]:
        """The maps as plain data, in order."""
        return {"kind": self.kind, "maps": [step.to_dict() for step in self.maps]}


@dataclass(frozen=True)
class Grouped(ScoreMap):
    """A map per group, and one for the whole, which unseen groups get.

    >>> grouped = Grouped(Affine(1.0, 0.0), {"news": Affine(1.0, 1.0)})
    >>> grouped([0.0, 0.0], ["news", "sport"])
    array([0.73105858, 0.5       ])
    """

    kind: ClassVar[str] = "grouped"
    whole: ScoreMap
    maps: Mapping[str, ScoreMap]
    link: str = field(init=False)
    scale: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", {str(name): step for name, step in self.maps.items()})
        object.__setattr__(self, "link", self.whole.link)
        object.__setattr__(self, "scale", self.whole.scale)

    def __call__(self, scores: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Predictions by each row's group; without `groups` the whole's map serves all."""
        if groups is None:
            return self.whole(scores)
        values = check_scores(scores, self.scale)
        names, codes = np.unique(check_names(groups, len(values), "groups"), return_inverse=True)
        number = {name: i for i, name in enumerate(self.maps)}
        return self.by_number(values, np.array([number.get(str(name), -1) for name in names.tolist()])[codes])

    def by_number(self, scores: ArrayLike, numbers: NDArray[np.integer[Any]]) -> Array:
        """Predictions where `numbers` says which map a row gets, in the order of `maps`; -1 is the whole's.

        >>> Grouped(Affine(1.0, 0.0), {"news": Affine(1.0, 1.0)}).by_number([0.0, 0.0], np.array([0, -1]))
        array([0.73105858, 0.5       ])
        """
        values = check_scores(scores, self.scale)
        steps = [*self.maps.values(), self.whole]  # so that -1 is the last
        out = np.empty(len(values))
        if all(isinstance(step, Affine) and step.link == self.link for step in steps):
            slopes, intercepts = np.array([(s.slope, s.intercept) for s in steps]).T  # type: ignore[attr-defined]
            link = get_link(self.link)
            for rows in chunks(len(values)):
                l = to_link(values[rows].astype(np.float64, copy=False), self.scale, self.link)
                prediction = link.phi(slopes[numbers[rows]] * l + intercepts[numbers[rows]])
                bounds = (link.lower, link.upper) if self.scale == "value" else (0.0, 1.0)
                out[rows] = inside(prediction, *bounds)
            return out
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for i, members in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            out[members] = steps[i](values[members])
        return out

    def transform(self, l: Float) -> Float:
        """As the whole's map."""
        return self.whole.transform(l)

    def to_dict(self) -> dict[str, Any]:
        """The maps as plain data, by group."""
        return {
            "kind": self.kind,
            "whole": self.whole.to_dict(),
            "maps": {name: step.to_dict() for name, step in self.maps.items()},
        }


def group_rows(groups: ArrayLike, rows: int) -> tuple[list[str], list[NDArray[np.intp]]]:
    """Names of the groups (as text) and the rows of each."""
    labels = check_names(groups, rows, "groups")
    names, codes = np.unique(labels, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    return [str(name) for name in names.tolist()], np.split(order, ends[:-1])


def compose(*maps: ScoreMap, scale: str) -> ScoreMap:
    """One map that does what these do in turn, with neighbouring straight lines made one.

    >>> compose(Affine(2.0, 1.0), Affine(0.5, 0.0), scale="logit")
    Affine(slope=1.0, intercept=0.5, link='logistic', scale='logit')
    """
    steps: list[ScoreMap] = []
    for step in maps:
        last = steps[-1] if steps else None
        if isinstance(last, Affine) and isinstance(step, Affine) and last.link == step.link:
            slope, intercept = step.slope * last.slope, step.slope * last.intercept + step.intercept
            steps[-1] = Affine(slope, intercept, step.link)
        else:
            steps.append(step)
    steps[0] = replace(steps[0], scale=scale)  # type: ignore[type-var]
    return steps[0] if len(steps) == 1 else Chain(tuple(steps))


def logit_knots(count: int = 256) -> Array:
    """Logits at equal steps of arcsin √p: where a curve of the logit bends as p(1 − p), all pieces err alike."""
    angle = (np.arange(count) + 0.5) / count * (np.pi / 2)
    knots: Array = 2 * np.log(np.tan(angle))
    return knots


_KINDS: dict[str, type[Affine] | type[Curve] | type[Steps]] = {c.kind: c for c in (Affine, Curve, Steps)}


def from_dict(content: Mapping[str, Any], *, source: str = "map") -> ScoreMap:
    """A map from plain data, checked."""
    kind = check_choice("kind", content.get("kind"), (*_KINDS, "chain", "grouped"))
    arguments = {key: value for key, value in content.items() if key not in ("kind", "schema_version", "about")}
    try:
        if kind == "chain":
            return Chain(tuple(from_dict(step, source=source) for step in arguments["maps"]))
        if kind == "grouped":
            maps = {name: from_dict(step, source=source) for name, step in arguments["maps"].items()}
            return Grouped(from_dict(arguments["whole"], source=source), maps)
        return _KINDS[kind](**arguments)
    except UncurseError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UncurseError(f"{source} is not a complete {kind} map ({error}); write it anew") from None


def load(path: str | os.PathLike[str]) -> ScoreMap:
    """Read a map from a file written by `save`."""
    content = documents.read(path)
    if content["kind"] not in (*_KINDS, "chain", "grouped"):
        raise UncurseError(f"{path} is of kind {content['kind']!r}; a map is what `save` and `uncurse fit` write")
    return from_dict(content, source=str(path))


def load_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file of a map says on how it came about; empty where it says nothing."""
    about = documents.read(path).get("about")
    return about if isinstance(about, dict) else {}


__all__ = [
    "Affine",
    "Chain",
    "Curve",
    "Grouped",
    "ScoreMap",
    "Steps",
    "compose",
    "from_dict",
    "group_rows",
    "load",
    "load_about",
    "logit_knots",
]
